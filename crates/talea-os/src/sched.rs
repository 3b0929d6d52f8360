//! Scheduling attributes of one thread, as values.
//!
//! Model: `sched_setattr(2)` and `sched_getattr(2)` with a 56-byte `sched_attr` (Linux 5.3 layout),
//! affinity by `sched_setaffinity(2)`. Attributes that were read can be written back unchanged:
//! flags and slices that Talea does not use are kept in [`Extra`].
//!
//! These calls name a thread by its number and are therefore only safe on threads that cannot end
//! meanwhile: the caller's own, or those guarded by [`crate::Thread`].
//!
//! Reference: `sched(7)`, `Documentation/scheduler/sched-deadline.rst`.

use crate::Tid;
use crate::sys::{check, check_long};
use std::io;
use talea_core::{CpuSet, Priority, Span, Work};

/// Shortest runtime that the kernel accepts for a deadline thread, in nanoseconds.
pub const DEADLINE_RUNTIME_MIN_NS: u64 = 1024;

/// A kernel scheduling policy with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER` with a nice value of -20..=19; a lower value gives more CPU time.
    Other {
        /// Nice value.
        nice: i32,
    },
    /// `SCHED_BATCH`.
    Batch {
        /// Nice value.
        nice: i32,
    },
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_FIFO` at a priority of 1..=99, 99 most urgent.
    Fifo(u8),
    /// `SCHED_RR` at a priority of 1..=99, 99 most urgent.
    Rr(u8),
    /// `SCHED_DEADLINE`: `runtime` in every `period`, within `deadline` of the start of the period.
    /// `runtime` ≤ `deadline` ≤ `period`.
    Deadline {
        /// Budget of each period, at least [`DEADLINE_RUNTIME_MIN_NS`].
        runtime: Work,
        /// Relative deadline.
        deadline: Span,
        /// Period of the refills: 100 µs to 4.19 s, unless the administrator changed the bounds.
        period: Span,
    },
    /// `SCHED_EXT` (Linux 6.12 and later, where configured).
    Ext {
        /// Nice value.
        nice: i32,
    },
}

impl Policy {
    /// Policy of ordinary time sharing.
    pub const NORMAL: Policy = Policy::Other { nice: 0 };

    /// Whether the kernel runs threads of this policy before every time-sharing thread.
    pub fn is_realtime(self) -> bool {
        matches!(self, Policy::Fifo(_) | Policy::Rr(_) | Policy::Deadline { .. })
    }

    /// Whether the policy is `SCHED_DEADLINE`.
    pub fn is_deadline(self) -> bool {
        matches!(self, Policy::Deadline { .. })
    }
}

/// `SCHED_EXT` counts as the ordinary policy.
impl From<Policy> for talea_core::Policy {
    fn from(policy: Policy) -> talea_core::Policy {
        let nice = |nice: i32| nice.clamp(-20, 19) as i8;
        match policy {
            Policy::Other { nice: value } | Policy::Ext { nice: value } => {
                talea_core::Policy::Other { nice: nice(value) }
            }
            Policy::Batch { nice: value } => talea_core::Policy::Batch { nice: nice(value) },
            Policy::Idle => talea_core::Policy::Idle,
            Policy::Fifo(priority) => talea_core::Policy::Fifo(Priority(priority)),
            Policy::Rr(priority) => talea_core::Policy::Rr(Priority(priority)),
            Policy::Deadline { runtime, deadline, period } => {
                talea_core::Policy::Deadline { runtime, deadline, period }
            }
        }
    }
}

impl From<talea_core::Policy> for Policy {
    fn from(policy: talea_core::Policy) -> Policy {
        match policy {
            talea_core::Policy::Other { nice } => Policy::Other { nice: nice.into() },
            talea_core::Policy::Batch { nice } => Policy::Batch { nice: nice.into() },
            talea_core::Policy::Idle => Policy::Idle,
            talea_core::Policy::Fifo(priority) => Policy::Fifo(priority.0),
            talea_core::Policy::Rr(priority) => Policy::Rr(priority.0),
            talea_core::Policy::Deadline { runtime, deadline, period } => {
                Policy::Deadline { runtime, deadline, period }
            }
        }
    }
}

/// Parts of a kernel attribute that Talea only reads and writes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// `SCHED_FLAG_RECLAIM` and `SCHED_FLAG_DL_OVERRUN` of a deadline thread.
    deadline_flags: u64,
    /// Slice of a time-sharing thread (Linux 6.12 and later). It is 0 where the kernel does not
    /// report the slice.
    slice_ns: u64,
}

/// Attributes that one `sched_setattr` call sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Policy with its parameters.
    pub policy: Policy,
    /// Whether children start as ordinary threads. A deadline thread without this flag cannot
    /// create children.
    pub reset_on_fork: bool,
    /// Attributes that are written back unchanged.
    pub extra: Extra,
}

impl Attr {
    /// Returns the attributes for `policy` as Talea grants it: children never inherit a real-time
    /// policy.
    pub fn grant(policy: Policy) -> Attr {
        Attr { policy, reset_on_fork: true, extra: Extra::default() }
    }

    /// Returns the attributes for `policy` without `reset_on_fork`, as a thread that was never
    /// configured has them.
    pub fn plain(policy: Policy) -> Attr {
        Attr { policy, reset_on_fork: false, extra: Extra::default() }
    }

    /// Returns the attributes with this slice of a time-sharing thread, 0.1 to 100 ms (Linux 6.12
    /// and later).
    #[must_use]
    pub fn with_slice(self, slice: Span) -> Attr {
        Attr { extra: Extra { slice_ns: slice.as_ns(), ..self.extra }, ..self }
    }

    /// Length of [`Attr::to_bytes`].
    pub const BYTES: usize = size_of::<Raw>();

    /// Encodes the attributes in the kernel's layout, for a file on the same machine.
    pub fn to_bytes(&self) -> [u8; Attr::BYTES] {
        let raw = Raw::from(self);
        let mut out = [0; Attr::BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &raw.size.to_ne_bytes());
        put(4, &raw.policy.to_ne_bytes());
        put(8, &raw.flags.to_ne_bytes());
        put(16, &raw.nice.to_ne_bytes());
        put(20, &raw.priority.to_ne_bytes());
        put(24, &raw.runtime.to_ne_bytes());
        put(32, &raw.deadline.to_ne_bytes());
        put(40, &raw.period.to_ne_bytes());
        out
    }

    /// Decodes the result of [`Attr::to_bytes`]. Returns `None` for a policy or priority that does
    /// not exist.
    pub fn from_bytes(bytes: &[u8; Attr::BYTES]) -> Option<Attr> {
        let word =
            |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long =
            |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let raw = Raw {
            size: word(0),
            policy: word(4),
            flags: long(8),
            nice: word(16) as i32,
            priority: word(20),
            runtime: long(24),
            deadline: long(32),
            period: long(40),
            util_min: 0,
            util_max: 0,
        };
        raw.to_attr()
    }
}

/// `struct sched_attr`, 56 bytes. The kernel writes utilization clamps only under flags that Talea
/// never sets, so a thread keeps its clamps.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Raw {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
    util_min: u32,
    util_max: u32,
}

const _: () = assert!(size_of::<Raw>() == 56);

const SCHED_EXT: i32 = 7;
const FLAG_RESET_ON_FORK: u64 = 0x01;
const FLAG_RECLAIM: u64 = 0x02;
const FLAG_DL_OVERRUN: u64 = 0x04;

impl Policy {
    /// Returns the kernel's number of the policy, as `sched_getscheduler(2)` returns it.
    pub fn number(self) -> i32 {
        match self {
            Policy::Other { .. } => libc::SCHED_OTHER,
            Policy::Batch { .. } => libc::SCHED_BATCH,
            Policy::Idle => libc::SCHED_IDLE,
            Policy::Fifo(_) => libc::SCHED_FIFO,
            Policy::Rr(_) => libc::SCHED_RR,
            Policy::Deadline { .. } => libc::SCHED_DEADLINE,
            Policy::Ext { .. } => SCHED_EXT,
        }
    }

    /// Returns the priority of `sched_getparam(2)`, or 0 where the policy has none.
    pub fn priority(self) -> u8 {
        match self {
            Policy::Fifo(priority) | Policy::Rr(priority) => priority,
            _ => 0,
        }
    }
}

impl Raw {
    fn to_attr(self) -> Option<Attr> {
        let priority = u8::try_from(self.priority).ok().filter(|p| (1..=99).contains(p));
        let mut extra = Extra::default();
        let policy = match self.policy as i32 {
            libc::SCHED_OTHER => Policy::Other { nice: self.nice },
            libc::SCHED_BATCH => Policy::Batch { nice: self.nice },
            SCHED_EXT => Policy::Ext { nice: self.nice },
            libc::SCHED_IDLE => Policy::Idle,
            libc::SCHED_FIFO => Policy::Fifo(priority?),
            libc::SCHED_RR => Policy::Rr(priority?),
            libc::SCHED_DEADLINE => {
                extra.deadline_flags = self.flags & (FLAG_RECLAIM | FLAG_DL_OVERRUN);
                Policy::Deadline {
                    runtime: Work::from_ns(self.runtime),
                    deadline: Span::from_ns(self.deadline),
                    period: Span::from_ns(self.period),
                }
            }
            _ => return None,
        };
        if matches!(policy, Policy::Other { .. } | Policy::Batch { .. }) {
            extra.slice_ns = self.runtime;
        }
        Some(Attr { policy, reset_on_fork: self.flags & FLAG_RESET_ON_FORK != 0, extra })
    }
}

impl From<&Attr> for Raw {
    fn from(attr: &Attr) -> Raw {
        let mut raw = Raw { size: size_of::<Raw>() as u32, ..Raw::default() };
        if attr.reset_on_fork {
            raw.flags |= FLAG_RESET_ON_FORK;
        }
        match attr.policy {
            Policy::Other { nice } | Policy::Batch { nice } => {
                raw.nice = nice;
                raw.runtime = attr.extra.slice_ns;
            }
            Policy::Ext { nice } => raw.nice = nice,
            Policy::Idle | Policy::Fifo(_) | Policy::Rr(_) => {}
            Policy::Deadline { runtime, deadline, period } => {
                raw.runtime = runtime.as_ns();
                raw.deadline = deadline.as_ns();
                raw.period = period.as_ns();
                raw.flags |= attr.extra.deadline_flags;
            }
        }
        raw.policy = attr.policy.number() as u32;
        raw.priority = attr.policy.priority().into();
        raw
    }
}

/// Reads the attributes of `tid`. `EINVAL` also stands for a policy that Talea does not know.
///
/// The kernel reads policy and priority one after the other. A read during a change may return a
/// pair that no thread can have; it is repeated.
pub fn get(tid: Tid) -> io::Result<Attr> {
    const READS: usize = 4;
    for _ in 0..READS {
        if let Some(attr) = get_raw(tid)?.to_attr() {
            return Ok(attr);
        }
    }
    Err(crate::sys::errno(libc::EINVAL))
}

fn get_raw(tid: Tid) -> io::Result<Raw> {
    let mut raw = Raw::default();
    // SAFETY: the kernel writes at most the size passed, which is that of `raw`.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            tid.as_raw(),
            &raw mut raw,
            size_of::<Raw>() as u32,
            0u32,
        )
    })?;
    Ok(raw)
}

/// Sets the attributes of `tid`.
///
/// `EPERM`: no right, or a deadline thread that may not run on its whole root domain, or a
/// real-time policy in a control group without real-time runtime. `EBUSY`: the kernel's own
/// admission refuses. `EINVAL`: parameters out of range. `ESRCH`: no such thread.
pub fn set(tid: Tid, attr: &Attr) -> io::Result<()> {
    let raw = Raw::from(attr);
    // SAFETY: the kernel reads `raw.size` bytes, the size of `raw`.
    check_long(unsafe {
        libc::syscall(libc::SYS_sched_setattr, tid.as_raw(), &raw const raw, 0u32)
    })?;
    Ok(())
}

/// Returns the active CPUs in the affinity of `tid`.
pub fn get_affinity(tid: Tid) -> io::Result<CpuSet> {
    let mut words = [0u64; talea_core::cpus::MAX_CPUS / 64];
    // SAFETY: the kernel writes at most `size_of_val(&words)` bytes into `words`.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            tid.as_raw(),
            size_of_val(&words),
            words.as_mut_ptr(),
        )
    })?;
    Ok(CpuSet::from_words(words))
}

/// Restricts `tid` to `cpus`. The kernel uses the intersection of `cpus` with the thread's cpuset.
///
/// `EINVAL`: that intersection is empty. `EBUSY`: a deadline thread must keep its whole root
/// domain.
pub fn set_affinity(tid: Tid, cpus: &CpuSet) -> io::Result<()> {
    let words = cpus.words();
    // SAFETY: the kernel reads `size_of_val(words)` bytes from `words`.
    check_long(unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, tid.as_raw(), size_of_val(words), words.as_ptr())
    })?;
    Ok(())
}

/// Returns the time slice of SCHED_RR threads, which is one value for the whole machine.
pub fn quantum() -> io::Result<Span> {
    let text = std::fs::read_to_string("/proc/sys/kernel/sched_rr_timeslice_ms")?;
    let ms: u64 = text.trim().parse().map_err(|_| crate::sys::errno(libc::EINVAL))?;
    Ok(Span::from_ns(ms.saturating_mul(1_000_000)))
}

/// Returns the nice value of `tid`, even while a real-time policy hides it.
pub fn get_nice(tid: Tid) -> io::Result<i32> {
    // SAFETY: takes two integers. The raw call returns 20 - nice, so that -1 always means an error.
    let biased = check_long(unsafe {
        libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid.as_raw())
    })?;
    Ok(20 - biased as i32)
}

/// Sets the nice value of `tid`, -20..=19. The kernel clamps other values.
pub fn set_nice(tid: Tid, nice: i32) -> io::Result<()> {
    // SAFETY: takes three integers.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid.as_raw() as libc::id_t, nice) })?;
    Ok(())
}
