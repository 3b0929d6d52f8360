//! Starts an untrusted program in a sandbox.
//!
//! Model: the child gets one descriptor from this process (number 3), no environment, no other
//! descriptor, a user of its own, and resource limits. It cannot gain privileges (`NO_NEW_PRIVS`),
//! and dies with this process. Optionally a seccomp filter refuses the calls by which it could
//! reach other processes or the network.
//!
//! Everything between fork and exec is async-signal-safe: system calls on data prepared before.

pub(crate) mod seccomp;

use crate::Tid;
use crate::sys::{check, check_long};
use crate::thread::open_process;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use talea_core::Span;

/// Time limit within which the kernel must end a killed child.
const KILL_TIMEOUT: Span = Span::from_ns(200_000_000);
/// Number of the child's descriptor.
pub const CHILD_FD: i32 = 3;

/// Restrictions of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// User and group of the child. `None` keeps those of this process, which is the only choice
    /// without privileges.
    pub user: Option<(u32, u32)>,
    /// Limit of the address space in bytes: RLIMIT_AS.
    pub memory: u64,
    /// Limit of the number of descriptors: RLIMIT_NOFILE.
    pub files: u64,
    /// Limit of the CPU time, rounded up to seconds: RLIMIT_CPU. `None` stands for no limit.
    pub cpu: Option<Span>,
    /// Whether the kernel refuses the child the calls that reach other processes or the network.
    /// Only some architectures have the filter: see [`has_seccomp`].
    pub seccomp: bool,
}

impl Default for Sandbox {
    fn default() -> Sandbox {
        Sandbox { user: None, memory: 256 << 20, files: 64, cpu: None, seccomp: has_seccomp() }
    }
}

/// Whether the filter exists for this architecture.
pub const fn has_seccomp() -> bool {
    seccomp::SUPPORTED
}

/// Sandboxed child. Dropping the value kills and collects the child.
#[derive(Debug)]
pub struct Child {
    inner: std::process::Child,
    pidfd: OwnedFd,
    pid: Tid,
}

/// Starts `exe` with `args` and with `fd` as its descriptor 3, confined by `sandbox`. The child's
/// standard error goes to `stderr`.
///
/// `PDEATHSIG` follows the calling *thread*, so the calling thread must live at least as long as
/// the child is to live.
pub fn spawn_sandboxed(
    exe: &Path,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    fd: OwnedFd,
    stderr: Stdio,
    sandbox: &Sandbox,
) -> io::Result<Child> {
    let sandbox = *sandbox;
    let parent = Tid::of_process();
    let mut command = Command::new(exe);
    command
        .args(args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr);
    #[cfg(mutate)]
    if let Some(point) = std::env::var_os(talea_core::mutation::VARIABLE) {
        command.env(talea_core::mutation::VARIABLE, point);
    }
    let raw = fd.as_raw_fd();
    // SAFETY: the closure runs between fork and exec and only makes system calls; `fd` outlives
    // spawn below.
    unsafe { command.pre_exec(move || confine(raw, parent, &sandbox)) };
    let child = command.spawn()?;
    drop(fd);
    let pid = Tid::new(child.id() as i32).expect("a child has a positive pid");
    // Not collected yet, so the number is still its own.
    match open_process(pid) {
        Ok(pidfd) => Ok(Child { inner: child, pidfd, pid }),
        Err(error) => {
            let mut child = child;
            drop(child.kill());
            drop(child.wait());
            Err(error)
        }
    }
}

/// Confines the calling child before exec. The order matters: groups before user, user before
/// PDEATHSIG (a change of users clears it), the filter last.
fn confine(fd: i32, parent: Tid, sandbox: &Sandbox) -> io::Result<()> {
    for (resource, value) in [
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_AS, sandbox.memory),
        (libc::RLIMIT_NOFILE, sandbox.files),
        (libc::RLIMIT_RTPRIO, 0),
        (libc::RLIMIT_MEMLOCK, 0),
    ] {
        limit(resource, value)?;
    }
    if let Some(cpu) = sandbox.cpu {
        limit(libc::RLIMIT_CPU, cpu.as_ns().div_ceil(1_000_000_000))?;
    }
    // The child must not inherit a real-time policy, a nice value or blocked signals.
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: a valid structure, integers, and a set that sigemptyset initialises before it is
    // used.
    unsafe {
        check(libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary))?;
        // Refused if this process started with a higher nice value; the child then keeps it.
        libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        check(libc::sigemptyset(none.as_mut_ptr()))?;
        check(libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()))?;
    }
    if fd == CHILD_FD {
        // SAFETY: clears close-on-exec of a descriptor that the caller gave us.
        check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) })?;
    } else {
        // SAFETY: the child has its own table, in which nothing that still runs uses 3: what was
        // there in the parent is not needed any more, and the pipe on which the standard library
        // reports a failed exec has its writing end above it, because 0 to 2 are always open and
        // its reading end comes first.
        check(unsafe { libc::dup2(fd, CHILD_FD) })?;
    }
    // Descriptors without close-on-exec are marked here; 3 is the last that exec keeps.
    // SAFETY: integers.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            CHILD_FD + 1,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    })?;
    drop_privileges(parent, sandbox)
}

fn drop_privileges(parent: Tid, sandbox: &Sandbox) -> io::Result<()> {
    if let Some((uid, gid)) = sandbox.user {
        // Raw system calls: those of the C library synchronise all threads, and after fork there is
        // only this one.
        // SAFETY: integers, and an empty list.
        unsafe {
            check_long(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()))?;
            check_long(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
            check_long(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
        }
    }
    // SAFETY: integers.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
        // The parent may have died before the line above.
        if libc::getppid() != parent.as_raw() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
    }
    if sandbox.seccomp { seccomp::install() } else { Ok(()) }
}

fn limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: one valid structure each way.
    unsafe {
        check(libc::getrlimit(resource, &raw mut limit))?;
        let value = value.min(limit.rlim_max);
        limit = libc::rlimit { rlim_cur: value, rlim_max: value };
        check(libc::setrlimit(resource, &raw const limit))?;
    }
    Ok(())
}

impl Child {
    /// Returns the process number of the child.
    pub fn pid(&self) -> Tid {
        self.pid
    }

    /// Sends SIGKILL to the child.
    pub fn kill(&mut self) -> io::Result<()> {
        self.inner.kill()
    }

    /// Kills the child and returns its exit status. Returns `None` for a child that does not end
    /// within `KILL_TIMEOUT`. Such a child blocks in the kernel, in a file system that does not
    /// answer, and ends when the file system answers.
    pub fn kill_and_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.inner.kill()?;
        let mut poll =
            [libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        let end = crate::clock::now() + KILL_TIMEOUT;
        loop {
            let left = end.saturating_since(crate::clock::now()).as_ns().div_ceil(1_000_000);
            // SAFETY: one valid element.
            match check(unsafe { libc::poll(poll.as_mut_ptr(), 1, left as libc::c_int) }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => return self.inner.try_wait(),
            }
        }
    }

    /// Returns the exit status of the child, or `None` while the child runs.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.inner.try_wait()
    }

    /// Waits for the end of the child.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.inner.wait()
    }
}

/// Returns an exit status in words, such as `exited with code 1` or `was killed by signal 9`.
pub fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.kill_and_wait());
    }
}

/// Access to a descriptor that becomes readable when the child ends.
impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}
