//! A shared mapping of a file, with words that are stored in order.
//!
//! Invariant: every access is inside the mapping, and words are aligned to eight bytes.

use crate::sys::errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

#[derive(Debug)]
pub(super) struct Map {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone; plain memory may be used from any thread.
unsafe impl Send for Map {}
// SAFETY: shared access only reads, or stores words atomically.
unsafe impl Sync for Map {}

impl Map {
    pub(super) fn new(file: &File, length: usize) -> io::Result<Map> {
        // SAFETY: a new mapping at a place that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        mapped(base).map(|base| Map { base, length })
    }

    /// Extends the mapping to `length` bytes. The mapping may move.
    pub(super) fn remap(&mut self, length: usize) -> io::Result<()> {
        // SAFETY: the old mapping is ours, and `&mut self` guarantees that no reference into it
        // exists.
        let base = unsafe {
            libc::mremap(self.base.as_ptr().cast(), self.length, length, libc::MREMAP_MAYMOVE)
        };
        self.base = mapped(base)?;
        self.length = length;
        Ok(())
    }

    pub(super) fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    /// Stores a word after all earlier stores.
    pub(super) fn store(&mut self, at: usize, word: u64) {
        self.word(at).store(word, Ordering::Release);
        // Nor may a later store precede it: the next write may reuse the half that this word
        // releases. Only the compiler can reorder them, because a killed process stops at one point
        // of its own order.
        compiler_fence(Ordering::SeqCst);
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.length, "a word outside the mapping");
        // SAFETY: inside the mapping, which is page aligned, so the word is aligned; it lives as
        // long as `self`.
        unsafe { self.base.add(at).cast::<AtomicU64>().as_ref() }
    }

    /// Returns bytes of the mapping. No other process changes them: the file is locked, and writing
    /// needs `&mut self`.
    pub(super) fn read(&self, at: usize, length: usize) -> &[u8] {
        assert!(at <= self.length && length <= self.length - at, "bytes outside the mapping");
        // SAFETY: inside the mapping; only a process that ignores the lock and is root or us could
        // write there.
        unsafe { std::slice::from_raw_parts(self.base.add(at).as_ptr(), length) }
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.length && bytes.len() <= self.length - at, "bytes outside the mapping");
        // SAFETY: inside the mapping; `&mut self` guarantees that nothing reads it, so the two do
        // not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at).as_ptr(), bytes.len());
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: ours, and no reference into it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

fn mapped(base: *mut libc::c_void) -> io::Result<NonNull<u8>> {
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| errno(libc::ENOMEM))
}
