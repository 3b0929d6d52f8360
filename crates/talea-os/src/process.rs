//! Number of the calling process, cached so that most calls need no system call.
//!
//! Model: a page that the kernel clears in the child of a fork (`MADV_WIPEONFORK`) holds the
//! number, so an empty page was not filled by this process. Without such a page each call asks the
//! kernel.
//!
//! Absent on purpose: children that share their parent's memory (`vfork`). They read their parent's
//! number, and may only call `execve`.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Returns the number of the calling process. The number is correct even right after a fork.
pub fn id() -> u32 {
    let page = page();
    match page.load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            if !std::ptr::eq(page, &raw const NO_PAGE) {
                page.store(id, Ordering::Relaxed);
            }
            id
        }
        id => id,
    }
}

/// Placeholder for a missing page. Always zero.
static NO_PAGE: AtomicU32 = AtomicU32::new(0);

/// Returns the page. Lock-free: a fork may happen while another thread executes this function, and
/// the child must not wait for that thread.
fn page() -> &'static AtomicU32 {
    static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
    // SAFETY: null, or a page or static that lives forever and is only used as an atomic.
    if let Some(page) = unsafe { PAGE.load(Ordering::Acquire).as_ref() } {
        return page;
    }
    let new = wiped_on_fork().unwrap_or((&raw const NO_PAGE).cast_mut());
    // Two threads at once leave one page unused.
    let kept = match PAGE.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        Err(first) => first,
    };
    // SAFETY: as above, and not null.
    unsafe { &*kept }
}

fn wiped_on_fork() -> Option<*mut AtomicU32> {
    const LENGTH: usize = 4096;
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place that the kernel chooses.
    let base = unsafe { libc::mmap(null_mut(), LENGTH, access, kind, -1, 0) };
    if base == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is ours and not used yet; it is unmapped where the kernel will not wipe
    // it.
    unsafe {
        if libc::madvise(base, LENGTH, libc::MADV_WIPEONFORK) == 0 {
            return Some(base.cast());
        }
        libc::munmap(base, LENGTH);
    }
    None
}
