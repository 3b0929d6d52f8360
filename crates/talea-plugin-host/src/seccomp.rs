//! Seccomp filter: a list of the system calls that a plugin may make.
//!
//! All others fail with EPERM. Files may be opened for reading only, and the plugin may signal only
//! its own process (`abort` does that). That excludes files that signal their owner (`F_SETOWN`),
//! which the kernel allows towards every process of the same user, and so towards a daemon that is
//! not root. Descriptors cannot be sent: the daemon would have to close them, and closing some
//! files blocks forever.
//!
//! Reference: `Documentation/userspace-api/seccomp_filter.rst`. Arguments that are pointers refer
//! to memory that the filter cannot read, so only numbers are checked.

use std::io;

/// Calls that are allowed with any arguments.
const ALLOWED: &[libc::c_long] = &[
    // The socket, standard error, and files that are open.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_ppoll,
    // Memory. Making it executable is what loading an object means.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // Time, waiting, randomness.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_getrandom,
    // Properties of the process itself.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getcpu,
    libc::SYS_sched_getaffinity,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Calls allowed with any arguments that only this architecture has.
#[cfg(target_arch = "x86_64")]
const ALLOWED_ON_ARCH: &[libc::c_long] = &[
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_ON_ARCH: &[libc::c_long] = &[];

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;
#[cfg(target_arch = "riscv64")]
const ARCH: u32 = 0xC000_00F3;

// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// Returns the offset of the low half of argument `index`, on a little-endian machine.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}
#[cfg(target_endian = "big")]
compile_error!("the low half of an argument lies elsewhere on a big-endian machine");

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const ALLOW: libc::sock_filter = plain(RETURN, libc::SECCOMP_RET_ALLOW);
const REFUSE: libc::sock_filter = plain(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);

const fn plain(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

const fn branch(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Builds the filter program: one comparison per call, then the few calls that depend on an
/// argument.
fn program() -> Vec<libc::sock_filter> {
    // A call of another ABI has other numbers and is never legitimate, so it ends the process.
    let mut code = vec![
        plain(LOAD, ARCHITECTURE),
        branch(IF_EQUAL, ARCH, 1, 0),
        plain(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        plain(LOAD, NUMBER),
    ];
    for &call in ALLOWED.iter().chain(ALLOWED_ON_ARCH) {
        code.extend([branch(IF_EQUAL, call as u32, 0, 1), ALLOW]);
    }
    // fcntl: copies and flags; not owners, signals, leases, locks.
    let commands = [
        libc::F_DUPFD,
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
    ];
    code.extend([
        branch(IF_EQUAL, libc::SYS_fcntl as u32, 0, 2 + 2 * commands.len() as u8),
        plain(LOAD, argument(1)),
    ]);
    for command in commands {
        code.extend([branch(IF_EQUAL, command as u32, 0, 1), ALLOW]);
    }
    code.push(REFUSE);
    // openat: reading only.
    let writing =
        (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND) as u32;
    code.extend([
        branch(IF_EQUAL, libc::SYS_openat as u32, 0, 4),
        plain(LOAD, argument(2)),
        branch(IF_ANY_BIT, writing, 1, 0),
        ALLOW,
        REFUSE,
    ]);
    // tgkill: only itself.
    code.extend([
        branch(IF_EQUAL, libc::SYS_tgkill as u32, 0, 3),
        plain(LOAD, argument(0)),
        branch(IF_EQUAL, std::process::id(), 0, 1),
        ALLOW,
        REFUSE,
    ]);
    code
}

/// Installs the filter in this process, permanently. Needs `PR_SET_NO_NEW_PRIVS`.
pub(crate) fn install() -> io::Result<()> {
    let mut code = program();
    let program = libc::sock_fprog { len: code.len() as libc::c_ushort, filter: code.as_mut_ptr() };
    // SAFETY: `program` describes `code`, which lives until the call has returned; the kernel
    // copies it.
    let answer = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0u32, &raw const program)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
