//! Starts an untrusted program in a sandbox.
//!
//! Model: the child gets one descriptor from this process (number 3), no environment, no other
//! descriptor, a user of its own, and resource limits. It cannot gain privileges (`NO_NEW_PRIVS`),
//! and dies with this process. Optionally a seccomp filter refuses the calls by which it could
//! reach other processes or the network.
//!
//! Everything between fork and exec is async-signal-safe: system calls on data prepared before.
//!
//! A child closes its copies of this process's descriptors, and such a close may block: in a file
//! system that does not answer, for a file that a client has sent. So a process that receives files
//! reserves the lowest numbers before ([`reserve_descriptors`]). Then a thread forks the child,
//! with a table of its own that has only these numbers (`CLOSE_RANGE_UNSHARE`). The kernel copies a
//! table in words of 64 descriptors, so it copies no other descriptor: no copy is to be closed.

pub(crate) mod seccomp;

use crate::Tid;
use crate::capabilities::{CapSet, keep_only};
use crate::sys::{check, check_long};
use crate::thread::open_process;
use rustix::io::{DupFlags, dup3};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use talea_core::{Span, mutate};

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
    /// Ends the thread that has started the child, if it is another one than the caller's.
    _parent: Option<Sender<()>>,
}

/// Number of the lowest descriptors that a table of its own has.
const RESERVED_NUMBERS: i32 = 64;

/// Descriptors that never block: the first two numbers are those of a child's descriptors while it
/// starts.
static RESERVED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// Reserves the unused numbers below 64 for later children. Descriptors below them must not block
/// when they are closed, so a process calls this before it receives any.
///
/// # Errors
/// The kernel's error.
pub fn reserve_descriptors() -> io::Result<()> {
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    while reserved.last().is_none_or(|last| last.as_raw_fd() < RESERVED_NUMBERS - 1) {
        reserved.push(File::open("/dev/null")?.into());
    }
    Ok(())
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
    let raw = fd.as_raw_fd();
    let child = command(exe, args, raw, stderr, sandbox).spawn()?;
    drop(fd);
    Child::new(child, None)
}

/// Variant of [`spawn_sandboxed`] without arguments whose child gets no copy of another descriptor
/// of this process, if the process has called [`reserve_descriptors`]. The child dies with the
/// returned value.
pub fn spawn_apart(
    exe: &Path,
    fd: OwnedFd,
    stderr: OwnedFd,
    sandbox: &Sandbox,
) -> io::Result<Child> {
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_reserved = |numbers: &[OwnedFd; 2]| numbers[1].as_raw_fd() < RESERVED_NUMBERS;
    let numbers = reserved.first_chunk_mut().filter(|numbers| is_reserved(numbers));
    let Some(numbers) = numbers.filter(|_| mutate!("os-spawn-apart", true, false)) else {
        return spawn_sandboxed(exe, [""; 0], fd, stderr.into(), sandbox);
    };
    dup3(&fd, &mut numbers[0], DupFlags::CLOEXEC)?;
    dup3(&stderr, &mut numbers[1], DupFlags::CLOEXEC)?;
    let (exe, sandbox) = (exe.to_owned(), *sandbox);
    let [fd_number, stderr_number] = [&numbers[0], &numbers[1]].map(AsRawFd::as_raw_fd);
    let (send, started) = channel();
    let (parent, child_ended) = channel::<()>();
    let thread = std::thread::Builder::new().name("talea-spawn".to_owned()).spawn(move || {
        // SAFETY: integers. The thread gets a table of its own, with copies of the lowest
        // descriptors; nothing else that runs in this thread uses a descriptor.
        let unshared = check_long(unsafe {
            libc::syscall(
                libc::SYS_close_range,
                RESERVED_NUMBERS,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_UNSHARE,
            )
        });
        let result = unshared.and_then(|_| {
            // SAFETY: the copy belongs to this table, and so to this thread.
            let stderr = unsafe { OwnedFd::from_raw_fd(stderr_number) };
            command(&exe, [""; 0], fd_number, stderr.into(), &sandbox).spawn()
        });
        let is_started = result.is_ok();
        let _ = send.send(result);
        if is_started {
            // The parent of the child needs neither rights nor descriptors.
            let _ = keep_only(CapSet::of(&[]));
            // SAFETY: integers; the table is this thread's.
            unsafe { libc::syscall(libc::SYS_close_range, CHILD_FD, libc::c_uint::MAX, 0) };
            let _ = child_ended.recv();
        }
    });
    let result = thread.and_then(|_| started.recv().map_err(io::Error::other)?);
    // Otherwise this process would keep the child's ends open.
    let null = File::open("/dev/null")?;
    for number in numbers {
        dup3(&null, number, DupFlags::CLOEXEC)?;
    }
    Child::new(result?, Some(parent))
}

/// Returns the command that starts a confined child with descriptor `fd`.
fn command(
    exe: &Path,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    fd: i32,
    stderr: Stdio,
    sandbox: &Sandbox,
) -> Command {
    let (sandbox, parent) = (*sandbox, Tid::of_process());
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
    // SAFETY: the closure runs between fork and exec and only makes system calls; `fd` is open
    // until the caller has spawned.
    unsafe { command.pre_exec(move || confine(fd, parent, &sandbox)) };
    command
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
    fn new(mut inner: std::process::Child, parent: Option<Sender<()>>) -> io::Result<Child> {
        let pid = Tid::new(inner.id() as i32).expect("a child has a positive pid");
        // Not collected yet, so the number is still its own.
        match open_process(pid) {
            Ok(pidfd) => Ok(Child { inner, pidfd, pid, _parent: parent }),
            Err(error) => {
                drop(inner.kill());
                drop(inner.wait());
                Err(error)
            }
        }
    }

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
