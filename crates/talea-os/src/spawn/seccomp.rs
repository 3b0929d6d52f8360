//! Seccomp filter: a list of system calls that a sandboxed child must not make.
//!
//! Model: classic BPF over the call's number; a listed call fails with EPERM, all others are
//! allowed. A list of allowed calls would be stronger but would have to name every call of every C
//! library's loader. The child's user has no rights beyond every user's anyway, so this removes
//! access to other processes, new processes, scheduling, the network and opening files for writing.
//!
//! Reference: `seccomp(2)`, `Documentation/userspace-api/seccomp_filter.rst`.

use crate::sys::check;
use std::io;

/// Whether the filter exists for this architecture.
pub(crate) const SUPPORTED: bool = ARCH != 0;

/// Number of the architecture in `struct seccomp_data`.
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCH: u32 = 0xC000_003E;
/// Number of the architecture in `struct seccomp_data`.
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCH: u32 = 0xC000_00B7;
/// 0: this architecture has no filter.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) const ARCH: u32 = 0;

const DENIED: &[libc::c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_clone,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setaffinity,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_memfd_create,
    libc::SYS_openat2,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_truncate,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

/// Flags of `openat` that the child must not use, because it may only read.
const WRITING: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32;

/// Instruction: load a word of `struct seccomp_data`.
pub(crate) const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
/// Instruction: jump if the loaded word equals the constant.
pub(crate) const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
/// Instruction: end with the action of the constant.
pub(crate) const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Offset of the call's number in `struct seccomp_data`.
pub(crate) const AT_NUMBER: u32 = 0;
/// Offset of the architecture in `struct seccomp_data`.
pub(crate) const AT_ARCH: u32 = 4;
/// Offset of the lower half of the third argument, on little-endian machines.
const AT_FLAGS: u32 = 32;
/// Bit of the x32 ABI in the number of a system call.
const X32: u32 = 0x4000_0000;

/// Action: the kernel executes the call.
pub(crate) const ALLOW: u32 = 0x7FFF_0000;
const KILL: u32 = 0x8000_0000;
const fn refuse(errno: i32) -> u32 {
    0x0005_0000 | errno as u32
}

/// Length of the program around the list: architecture (3), number (1), ABI (2), clone3 (2), openat
/// (4), allow (1).
const LENGTH: usize = 13 + 2 * DENIED.len();

const PROGRAM: [libc::sock_filter; LENGTH] = program();

const fn program() -> [libc::sock_filter; LENGTH] {
    const fn statement(code: u16, k: u32) -> libc::sock_filter {
        libc::sock_filter { code, jt: 0, jf: 0, k }
    }
    // Falls through when the test holds, jumps over one instruction otherwise.
    const fn test(code: u16, k: u32) -> libc::sock_filter {
        libc::sock_filter { code, jt: 0, jf: 1, k }
    }
    let mut program = [statement(RETURN, ALLOW); LENGTH];
    program[0] = statement(LOAD, AT_ARCH);
    program[1] = libc::sock_filter { code: EQUAL, jt: 1, jf: 0, k: ARCH };
    // Another ABI has other numbers: the list would not apply.
    program[2] = statement(RETURN, KILL);
    program[3] = statement(LOAD, AT_NUMBER);
    program[4] = test(AT_LEAST, X32);
    program[5] = statement(RETURN, KILL);
    // Its flags are in memory that a filter cannot read; C libraries fall back to clone on ENOSYS.
    program[6] = test(EQUAL, libc::SYS_clone3 as u32);
    program[7] = statement(RETURN, refuse(libc::ENOSYS));
    let mut i = 0;
    while i < DENIED.len() {
        program[8 + 2 * i] = test(EQUAL, DENIED[i] as u32);
        program[9 + 2 * i] = statement(RETURN, refuse(libc::EPERM));
        i += 1;
    }
    // Not openat: over the next three, to the final "allow".
    program[LENGTH - 5] =
        libc::sock_filter { code: EQUAL, jt: 0, jf: 3, k: libc::SYS_openat as u32 };
    program[LENGTH - 4] = statement(LOAD, AT_FLAGS);
    program[LENGTH - 3] = test(ANY_BIT, WRITING);
    program[LENGTH - 2] = statement(RETURN, refuse(libc::EACCES));
    program
}

/// Installs the filter in the calling thread, which must have set NO_NEW_PRIVS. Async-signal-safe.
pub(super) fn install() -> io::Result<()> {
    if !SUPPORTED {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    let program = libc::sock_fprog { len: LENGTH as u16, filter: PROGRAM.as_ptr().cast_mut() };
    let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
    // SAFETY: the kernel copies `len` instructions from a constant.
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program, 0, 0) })?;
    Ok(())
}
