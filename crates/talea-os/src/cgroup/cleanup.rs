//! Cleanup by a reaper of the cgroups of a killed run.

use crate::reaper::Cleanup;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of attempts to remove a cgroup, one millisecond apart.
const MAX_REMOVE_ATTEMPTS: u32 = 5_000;
/// Maximum nesting depth. Deeper cgroups remain.
const MAX_DEPTH: u32 = 16;

/// Cleanup that kills the members of a cgroup and removes it.
pub(super) struct KillCgroup {
    kill: CString,
    directory: CString,
    rt_groups: Vec<KillRtGroup>,
}

/// Real-time control group of a cgroup.
struct KillRtGroup {
    directory: CString,
    members: CString,
    /// Members of the group above.
    members_above: CString,
}

pub(super) fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

impl KillCgroup {
    /// Prepares the cleanup of the cgroup at `path`, of the cgroups below it, and of these
    /// real-time control groups. None of them need exist yet.
    pub(super) fn new<'p>(
        path: &Path,
        rt_groups: impl Iterator<Item = &'p PathBuf>,
    ) -> io::Result<KillCgroup> {
        let rt_group = |path: &PathBuf| {
            Ok(KillRtGroup {
                directory: c_string(path)?,
                members: c_string(&path.join("tasks"))?,
                members_above: c_string(&path.with_file_name("tasks"))?,
            })
        };
        Ok(KillCgroup {
            kill: c_string(&path.join("cgroup.kill"))?,
            directory: c_string(path)?,
            rt_groups: rt_groups.map(rt_group).collect::<io::Result<_>>()?,
        })
    }
}

/// Writes `text` to the file at `path`, if the file exists.
///
/// # Safety
/// Only system calls: see [`Cleanup::run`].
pub(super) unsafe fn write(path: &CString, text: &[u8]) {
    // SAFETY: system calls on a string that ends and on a slice.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY);
        if file != -1 {
            libc::write(file, text.as_ptr().cast(), text.len());
            libc::close(file);
        }
    }
}

/// Moves the members of a real-time control group to the group above: killed threads need CPU time
/// in order to exit, which a throttled group does not have. The caller repeats the call for members
/// beyond the buffer.
///
/// # Safety
/// Only system calls: see [`Cleanup::run`].
unsafe fn release(group: &KillRtGroup) {
    let mut text = [0_u8; 4096];
    // SAFETY: system calls on strings that end, and on a buffer that lives as long as the calls.
    let length = unsafe {
        let file = libc::open(group.members.as_ptr(), libc::O_RDONLY);
        if file == -1 {
            return;
        }
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        usize::try_from(length).unwrap_or(0)
    };
    for member in text[..length].split_inclusive(|&byte| byte == b'\n') {
        // A number that the buffer has cut has no line end.
        if member.ends_with(b"\n") {
            // SAFETY: as above.
            unsafe { write(&group.members_above, member) };
        }
    }
}

impl Cleanup for KillCgroup {
    fn run(&self) {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // SAFETY: system calls on strings that end, and on a structure that is valid; none of them
        // allocates.
        unsafe {
            for _ in 0..MAX_REMOVE_ATTEMPTS {
                // Repeated: a child that was being created may have been missed and would live.
                write(&self.kill, b"1");
                self.rt_groups.iter().for_each(|group| release(group));
                let mut is_gone = remove(libc::AT_FDCWD, self.directory.as_ptr(), MAX_DEPTH);
                for group in &self.rt_groups {
                    is_gone &= remove(libc::AT_FDCWD, group.directory.as_ptr(), MAX_DEPTH);
                }
                if is_gone {
                    return;
                }
                libc::nanosleep(&raw const pause, std::ptr::null_mut());
            }
        }
    }
}

/// Removes a cgroup and the cgroups below it, which a program may have created. Returns whether the
/// cgroup is gone.
///
/// # Safety
/// Only system calls: see [`Cleanup::run`]. `name` is a C string.
unsafe fn remove(at: libc::c_int, name: *const libc::c_char, depth: u32) -> bool {
    // `getdents64` writes: a number and an offset of eight bytes each, the entry's length of two,
    // its type of one, and its name.
    const LENGTH: usize = 16;
    const KIND: usize = 18;
    const NAME: usize = 19;
    // SAFETY: system calls on a name that ends; the kernel fills the buffer with whole entries,
    // whose names end, and returns how much it has filled.
    unsafe {
        let is_gone = || matches!(*libc::__errno_location(), libc::ENOENT | libc::ENODEV);
        if libc::unlinkat(at, name, libc::AT_REMOVEDIR) == 0 || is_gone() {
            return true;
        }
        if depth == 0 {
            return false;
        }
        let directory =
            libc::openat(at, name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW);
        if directory == -1 {
            return is_gone();
        }
        let mut buffer = [0_u64; 256];
        let bytes = buffer.as_mut_ptr().cast::<u8>();
        loop {
            let filled =
                libc::syscall(libc::SYS_getdents64, directory, bytes, size_of_val(&buffer));
            let Some(filled) = usize::try_from(filled).ok().filter(|&filled| filled > 0) else {
                break;
            };
            let mut entry = 0;
            while entry < filled {
                let of = bytes.add(entry);
                let name = of.add(NAME).cast::<libc::c_char>();
                if *of.add(KIND) == libc::DT_DIR && *name != b'.' as libc::c_char {
                    remove(directory, name, depth - 1);
                }
                entry += usize::from(of.add(LENGTH).cast::<u16>().read_unaligned());
            }
        }
        libc::close(directory);
        libc::unlinkat(at, name, libc::AT_REMOVEDIR) == 0 || is_gone()
    }
}
