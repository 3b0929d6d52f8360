//! Scheduling calls of other programs, which wait for a result: seccomp user notification.
//!
//! Model: a process installs a filter in itself ([`Listener::install`]) and passes the listener to
//! its supervisor. All programs and threads that it starts later inherit the filter. The calls that
//! set a policy, a priority or a nice value then stop in the kernel. The supervisor reads the call
//! ([`Listener::next`]), acts by itself and answers.
//!
//! | state of a call | transition |
//! | --- | --- |
//! | waiting | `next` returns it; from then on only a fatal signal ends the wait |
//! | received | [`Listener::answer`] ends it with a result, or the kernel executes the call |
//! | without a supervisor | the kernel ends it with `ENOSYS`, as every later call |
//!
//! Arguments that are in the memory of the program are copied once. The program may change them
//! afterwards, without effect: the supervisor acts on its copy. Only [`Answer::Continue`] lets the
//! kernel read them again, and the kernel then decides by the program's own rights.
//!
//! A call of another ABI of the processor (x32, 32 bits) has other numbers and passes the filter.
//!
//! Reference: `seccomp_unotify(2)`, `seccomp(2)`.

use crate::Tid;
use crate::proc;
use crate::sched::{Attr, DEADLINE_RUNTIME_MIN_NS, Policy};
use crate::spawn::seccomp::{ALLOW, ARCH, AT_ARCH, AT_NUMBER, EQUAL, LOAD, RETURN};
use crate::sys::{check, check_long, errno, is};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use talea_core::mutate;

const CALLS: [libc::c_long; 4] = [
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_setpriority,
];

/// Length of the program around the calls: architecture (2), number (1), two actions (2).
const LENGTH: usize = 5 + CALLS.len();

const PROGRAM: [libc::sock_filter; LENGTH] = program();

const fn program() -> [libc::sock_filter; LENGTH] {
    const fn statement(code: u16, k: u32) -> libc::sock_filter {
        libc::sock_filter { code, jt: 0, jf: 0, k }
    }
    const PASS: usize = LENGTH - 2;
    const NOTIFY: usize = LENGTH - 1;
    let mut program = [statement(RETURN, ALLOW); LENGTH];
    program[0] = statement(LOAD, AT_ARCH);
    program[1] = libc::sock_filter { code: EQUAL, jt: 0, jf: (PASS - 2) as u8, k: ARCH };
    program[2] = statement(LOAD, AT_NUMBER);
    let mut i = 0;
    while i < CALLS.len() {
        let jt = (NOTIFY - (3 + i) - 1) as u8;
        program[3 + i] = libc::sock_filter { code: EQUAL, jt, jf: 0, k: CALLS[i] as u32 };
        i += 1;
    }
    program[NOTIFY] = statement(RETURN, libc::SECCOMP_RET_USER_NOTIF);
    program
}

/// Receiver of the calls of all threads below one filter.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call returns 0.
    Success,
    /// The call fails with this error number.
    Failure(i32),
    /// The kernel executes the call, with the rights of the program.
    Continue,
}

impl Listener {
    /// Installs the filter in the calling thread, which can gain no privileges from then on
    /// (`NO_NEW_PRIVS`).
    ///
    /// `EBUSY`: another supervisor already receives calls of this thread. `ENOSYS`: there is no
    /// filter for this architecture.
    pub fn install() -> io::Result<Listener> {
        if ARCH == 0 {
            return Err(errno(libc::ENOSYS));
        }
        let program = libc::sock_fprog { len: LENGTH as u16, filter: PROGRAM.as_ptr().cast_mut() };
        let flags =
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
        // SAFETY: integers; the kernel copies `len` instructions from a constant.
        let fd = unsafe {
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
            let mode = libc::SECCOMP_SET_MODE_FILTER;
            check_long(libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program))?
        };
        // SAFETY: the kernel has just created the descriptor for this process.
        Ok(Listener(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Creates the listener from a descriptor of [`Listener::install`] of another process.
    pub fn from_fd(fd: OwnedFd) -> Listener {
        Listener(fd)
    }

    /// Receives the next call. Waits for it, unless [`AsFd::as_fd`] is readable. Returns `None` if
    /// the calling thread has ended meanwhile.
    pub fn next(&self) -> io::Result<Option<Call>> {
        // SAFETY: all-zero is a valid value of the structure, and the kernel requires zeroes.
        let mut found: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the number of the request contains the size of the structure, so a kernel with
        // another structure refuses the request; otherwise the kernel fills `found`.
        let received = check(unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut found)
        });
        match received {
            Ok(_) => Ok(Some(Call {
                id: found.id,
                caller: i32::try_from(found.pid).ok().and_then(Tid::new),
                number: found.data.nr.into(),
                args: found.data.args,
            })),
            Err(error) if is(&error, libc::ENOENT) || is(&error, libc::EINTR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the calling thread still waits. Then everything that was read about the thread by
    /// its number before is about this thread.
    pub fn is_waiting(&self, call: &Call) -> bool {
        // SAFETY: the kernel reads one integer.
        check(unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const call.id)
        })
        .is_ok()
    }

    /// Ends a call. A thread that has ended meanwhile needs no answer.
    pub fn answer(&self, call: &Call, answer: Answer) -> io::Result<()> {
        let (error, flags) = match answer {
            Answer::Success => (0, 0),
            Answer::Failure(number) => (-number, 0),
            Answer::Continue => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        };
        let reply = libc::seccomp_notif_resp { id: call.id, val: 0, error, flags };
        // SAFETY: the number of the request contains the size of the structure, which the kernel
        // only reads.
        let sent = check(unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const reply)
        });
        match sent {
            Err(error) if !is(&error, libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Access to a descriptor that is readable while a call waits.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Received call of a thread that waits for the result.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    id: u64,
    /// Calling thread. `None` if it is not visible in this PID namespace.
    caller: Option<Tid>,
    number: libc::c_long,
    args: [u64; 6],
}

/// Effect that a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A real-time policy.
    RealTime(Policy),
    /// A real-time policy with a property that no grant has.
    Unsupported(&'static str),
    /// Another priority of the present policy.
    Priority(i32),
    /// A policy without real time.
    Ordinary {
        /// The policy. A nice value that the call does not have is 0.
        policy: Policy,
        /// Whether the thread keeps its present nice value.
        keeps_nice: bool,
    },
    /// A nice value.
    Nice(i32),
    /// A call that is none of these: the kernel executes or refuses it.
    Kernel,
}

/// Bytes of `struct sched_attr` in its first version.
const ATTR_FIRST: usize = 48;
/// Bit of `sched_setscheduler` that is no part of the policy.
const RESET_ON_FORK: i32 = libc::SCHED_RESET_ON_FORK;
/// Highest bit of a time of a deadline thread, which the kernel refuses.
const SIGN: u64 = 1 << 63;

impl Call {
    /// Returns the calling thread. `None` if it is not visible in this PID namespace.
    pub fn caller(&self) -> Option<Tid> {
        self.caller
    }

    /// Returns the thread that the call is about. A number in the call is one of the caller's PID
    /// namespace. In a namespace below that of this process, it must be a thread of the caller's
    /// process.
    pub fn target(&self) -> io::Result<Tid> {
        let caller = self.caller.ok_or_else(|| errno(libc::ESRCH))?;
        let argument = usize::from(self.number == libc::SYS_setpriority);
        let number = self.args[argument] as i32;
        if number == 0 {
            return Ok(caller);
        }
        let status = proc::status(caller)?;
        if mutate!("os-calls-namespace", status.ns_tids.len() <= 1, true) {
            return Tid::new(number).ok_or_else(|| errno(libc::ESRCH));
        }
        let is_named =
            |tid: &Tid| proc::status(*tid).is_ok_and(|found| found.ns_tids.last() == Some(&number));
        let threads = proc::threads_of(status.tgid)?;
        threads.into_iter().find(is_named).ok_or_else(|| errno(libc::ESRCH))
    }

    /// Returns the effect that the call asks for. Reads the memory of the caller. A call with an
    /// argument that is not readable is [`Wanted::Kernel`].
    pub fn wanted(&self) -> Wanted {
        let memory = || File::open(format!("/proc/{}/mem", self.caller?)).ok();
        self.wanted_with(|address, buffer| {
            memory().is_some_and(|memory| memory.read_exact_at(buffer, address).is_ok())
        })
    }

    fn wanted_with(&self, read: impl Fn(u64, &mut [u8]) -> bool) -> Wanted {
        let number = |address: u64| {
            let mut bytes = [0; 4];
            read(address, &mut bytes).then(|| i32::from_ne_bytes(bytes))
        };
        let args = &self.args;
        match self.number {
            libc::SYS_sched_setscheduler => match number(args[2]) {
                Some(priority) => of_scheduler(args[1] as i32 & !RESET_ON_FORK, priority),
                None => Wanted::Kernel,
            },
            libc::SYS_sched_setparam => number(args[1]).map_or(Wanted::Kernel, Wanted::Priority),
            libc::SYS_sched_setattr if args[2] as u32 == 0 => {
                let size = match number(args[1]) {
                    Some(0) => ATTR_FIRST,
                    Some(size) if size as usize >= ATTR_FIRST => Attr::BYTES.min(size as usize),
                    _ => return Wanted::Kernel,
                };
                let mut bytes = [0; Attr::BYTES];
                if read(args[1], &mut bytes[..size]) { of_attr(&bytes) } else { Wanted::Kernel }
            }
            libc::SYS_setpriority if args[0] as i32 == libc::PRIO_PROCESS as i32 => {
                Wanted::Nice((args[2] as i32).clamp(-20, 19))
            }
            _ => Wanted::Kernel,
        }
    }
}

/// Returns the effect of `sched_setscheduler`.
fn of_scheduler(policy: i32, priority: i32) -> Wanted {
    let level = u8::try_from(priority).ok().filter(|level| (1..=99).contains(level));
    match (policy, level) {
        (libc::SCHED_FIFO, Some(level)) => Wanted::RealTime(Policy::Fifo(level)),
        (libc::SCHED_RR, Some(level)) => Wanted::RealTime(Policy::Rr(level)),
        (_, None) if priority == 0 => {
            let ordinary = match policy {
                libc::SCHED_OTHER => Policy::NORMAL,
                libc::SCHED_BATCH => Policy::Batch { nice: 0 },
                libc::SCHED_IDLE => Policy::Idle,
                _ => return Wanted::Kernel,
            };
            Wanted::Ordinary { policy: ordinary, keeps_nice: true }
        }
        _ => Wanted::Kernel,
    }
}

/// Returns the effect of `sched_setattr`. Parameters that the kernel refuses for every caller are
/// left to the kernel, so that the error number is its own.
fn of_attr(bytes: &[u8; Attr::BYTES]) -> Wanted {
    const RECLAIM: u64 = 0x02;
    const DL_OVERRUN: u64 = 0x04;
    const UTIL_CLAMP: u64 = 0x60;
    const KNOWN: u64 = 0x01 | RECLAIM | DL_OVERRUN | UTIL_CLAMP;
    let flags = u64::from_ne_bytes(bytes[8..16].try_into().expect("eight bytes"));
    let priority = u32::from_ne_bytes(bytes[20..24].try_into().expect("four bytes"));
    let Some(Attr { policy, .. }) = Attr::from_bytes(bytes) else { return Wanted::Kernel };
    // The flags that keep the present policy or parameters are not among the known ones.
    if flags & !KNOWN != 0 || priority != u32::from(policy.priority()) {
        return Wanted::Kernel;
    }
    let policy = match policy {
        Policy::Other { .. } | Policy::Batch { .. } | Policy::Ext { .. } | Policy::Idle => {
            return Wanted::Ordinary { policy, keeps_nice: policy == Policy::Idle };
        }
        Policy::Fifo(_) | Policy::Rr(_) => policy,
        Policy::Deadline { runtime, deadline, period } => {
            let period = if period.is_zero() { deadline } else { period };
            let is_valid = (deadline.as_ns() | period.as_ns()) & SIGN == 0
                && runtime.as_ns() >= DEADLINE_RUNTIME_MIN_NS
                && runtime.as_ns() <= deadline.as_ns()
                && deadline <= period;
            if !mutate!("os-calls-valid", is_valid, true) {
                return Wanted::Kernel;
            }
            Policy::Deadline { runtime, deadline, period }
        }
    };
    match flags {
        _ if flags & UTIL_CLAMP != 0 => Wanted::Unsupported("a utilization clamp"),
        _ if flags & RECLAIM != 0 => Wanted::Unsupported("SCHED_FLAG_RECLAIM"),
        _ if flags & DL_OVERRUN != 0 => Wanted::Unsupported("SCHED_FLAG_DL_OVERRUN"),
        _ => Wanted::RealTime(policy),
    }
}

#[cfg(test)]
mod tests;
