//! What a keeper does with groups whose run was killed.

use crate::keeper::Duty;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Tries to remove a group, a millisecond apart.
const TRIES: u32 = 5_000;
/// Groups stand below each other at most so deep, or are left.
const DEPTH: u32 = 16;

/// Kills who is in a group, and removes it.
pub(super) struct Rites {
    kill: CString,
    room: CString,
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

impl Rites {
    /// For the group there, with those in it; it need not exist yet.
    pub(super) fn of(path: &Path) -> io::Result<Rites> {
        Ok(Rites { kill: c_string(&path.join("cgroup.kill"))?, room: c_string(path)? })
    }
}

impl Duty for Rites {
    fn clean(&self) {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // SAFETY: system calls on strings that end, and on a structure that is valid; none of them
        // allocates.
        unsafe {
            for _ in 0..TRIES {
                // Each time: a child that was being made may have been missed, and would live.
                let file = libc::open(self.kill.as_ptr(), libc::O_WRONLY);
                if file != -1 {
                    libc::write(file, c"1".as_ptr().cast(), 1);
                    libc::close(file);
                }
                if remove(libc::AT_FDCWD, self.room.as_ptr(), DEPTH) {
                    return;
                }
                libc::nanosleep(&raw const pause, std::ptr::null_mut());
            }
        }
    }
}

/// Removes a group with those below it: a program may have made some. Whether it is gone.
///
/// # Safety
/// Only system calls: see [`Duty::clean`]. The name ends.
unsafe fn remove(at: libc::c_int, name: *const libc::c_char, depth: u32) -> bool {
    // What `getdents64` writes: a number and an offset, of eight bytes each, the entry's length, of
    // two, its kind, of one, and its name.
    const LENGTH: usize = 16;
    const KIND: usize = 18;
    const NAME: usize = 19;
    // SAFETY: system calls on a name that ends; the kernel fills the buffer with whole entries,
    // whose names end, and says how much it has filled.
    unsafe {
        let is_gone = || matches!(*libc::__errno_location(), libc::ENOENT | libc::ENODEV);
        if libc::unlinkat(at, name, libc::AT_REMOVEDIR) == 0 || is_gone() {
            return true;
        }
        if depth == 0 {
            return false;
        }
        let folder = libc::openat(at, name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW);
        if folder == -1 {
            return is_gone();
        }
        let mut buffer = [0_u64; 256];
        let bytes = buffer.as_mut_ptr().cast::<u8>();
        loop {
            let filled = libc::syscall(libc::SYS_getdents64, folder, bytes, size_of_val(&buffer));
            let Some(filled) = usize::try_from(filled).ok().filter(|&filled| filled > 0) else {
                break;
            };
            let mut entry = 0;
            while entry < filled {
                let of = bytes.add(entry);
                let name = of.add(NAME).cast::<libc::c_char>();
                if *of.add(KIND) == libc::DT_DIR && *name != b'.' as libc::c_char {
                    remove(folder, name, depth - 1);
                }
                entry += usize::from(of.add(LENGTH).cast::<u16>().read_unaligned());
            }
        }
        libc::close(folder);
        libc::unlinkat(at, name, libc::AT_REMOVEDIR) == 0 || is_gone()
    }
}
