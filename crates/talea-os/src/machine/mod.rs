//! What this machine is and which of the kernel's real-time mechanisms it lets us use.
//!
//! Model: plain data, read once. Almost everything comes from files, so a machine can also be read
//! from a directory of copies ([`Machine::from_dir`]); what only a system call can tell is in
//! [`Calls`]. What can't be read is `None`: unknown is not the same as absent.

mod books;
mod cgroups;
mod domains;
mod limits;
mod source;

pub use books::{DlBook, dl_books};
pub use cgroups::{Cgroups, Hierarchy, RtGroup};
pub use domains::Domain;
pub use limits::Limits;

use crate::dropcaps::CapSet;
use crate::thread::has_thread_pidfds;
use crate::{Tid, proc};
use source::Source;
use std::io;
use std::path::Path;
use talea_core::{Charge, CpuSet, Span, Work};

/// Facts about a machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Kernel version as numbers, such as (6, 18).
    pub kernel: (u32, u32),
    /// As `uname -r` prints it.
    pub release: String,
    /// Fully preemptible: timerfd, POSIX timers and perf signals starve behind FIFO threads there.
    pub preempt_rt: bool,
    /// CPUs that run now.
    pub online: CpuSet,
    /// CPUs that the scheduler leaves alone (`isolcpus`, isolated partitions).
    pub isolated: CpuSet,
    /// What all real-time threads together may use.
    pub rt_limit: Option<RtLimit>,
    /// Shortest and longest period of a deadline thread.
    pub deadline_periods: (Span, Span),
    /// What each CPU's fair server takes from the deadline class; zero where there is none.
    pub fair_server: Charge,
    /// Where the scheduler balances and where SCHED_DEADLINE admits.
    pub domains: Vec<Domain>,
    /// Control groups that matter to scheduling.
    pub cgroups: Cgroups,
    /// Whether budgets of deadline threads are policed exactly and not at the tick; `None`: not
    /// readable.
    pub hrtick: Option<bool>,
    /// Length of a timer tick.
    pub tick: Option<Span>,
    /// Such as `tsc`.
    pub clocksource: Option<String>,
    /// Kernel lockdown mode, such as `none` or `integrity`.
    pub lockdown: Option<String>,
    /// What this process may do.
    pub capabilities: CapSet,
    /// Resource limits of this process.
    pub limits: Limits,
    /// What only calls can tell.
    pub calls: Calls,
}

/// The kernel's bound on real-time threads: `runtime` in every `period`; no runtime means no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtLimit {
    /// `sched_rt_runtime_us`; `None` for -1, which also switches deadline admission off.
    pub runtime: Option<Work>,
    /// `sched_rt_period_us`.
    pub period: Span,
}

/// What only system calls can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Pidfds can name threads (Linux 6.9): else identity rests on start times and a thread's own
    /// end is no event.
    pub thread_pidfds: bool,
    /// Resolution of the coarse clock: one tick.
    pub tick: Option<Span>,
}

impl Calls {
    fn ask() -> Calls {
        Calls { thread_pidfds: has_thread_pidfds(), tick: coarse_resolution() }
    }
}

impl Machine {
    /// Reads the running machine.
    pub fn probe() -> io::Result<Machine> {
        Machine::read(&Source::live(), Calls::ask())
    }

    /// Reads copies of `/proc`, `/sys` and `/boot` below `root`; `calls` stands for the system
    /// calls.
    pub fn from_dir(root: &Path, calls: Calls) -> io::Result<Machine> {
        Machine::read(&Source::below(root), calls)
    }

    fn read(source: &Source, calls: Calls) -> io::Result<Machine> {
        let release = source.text("/proc/sys/kernel/osrelease")?;
        let kernel = version(&release)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unknown kernel release"))?;
        let version_line = source.text("/proc/sys/kernel/version").unwrap_or_default();
        let online = source.cpus("/sys/devices/system/cpu/online").ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the list of online CPUs can't be read")
        })?;
        let isolated = source.cpus("/sys/devices/system/cpu/isolated").unwrap_or_default();
        let cgroups = Cgroups::read(source);
        let status = source.bytes("/proc/self/status").unwrap_or_default();
        let capabilities = proc::field(&status, "CapEff")
            .and_then(|mut words| u64::from_str_radix(words.next()?, 16).ok())
            .map_or(CapSet::default(), CapSet);
        let us =
            |path: &str| source.number(path).and_then(|us| Span::from_us(u64::try_from(us).ok()?));
        Ok(Machine {
            kernel,
            preempt_rt: version_line.contains("PREEMPT_RT")
                || source.number("/sys/kernel/realtime") == Some(1),
            rt_limit: rt_limit(source),
            deadline_periods: (
                us("/proc/sys/kernel/sched_deadline_period_min_us")
                    .unwrap_or(Span::from_ns(100_000)),
                us("/proc/sys/kernel/sched_deadline_period_max_us")
                    .unwrap_or(Span::from_ns(4_194_304_000)),
            ),
            fair_server: fair_server(source, kernel, &online),
            domains: domains::read(source, &cgroups, &online, &isolated),
            hrtick: hrtick(source),
            tick: calls.tick,
            clocksource: source
                .text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .ok(),
            lockdown: source
                .text("/sys/kernel/security/lockdown")
                .ok()
                .and_then(|text| chosen(&text)),
            capabilities,
            limits: Limits::read(source),
            release,
            online,
            isolated,
            cgroups,
            calls,
        })
    }

    /// What the kernel admits per CPU of a domain to SCHED_DEADLINE; `None` when it does not test
    /// at all (`sched_rt_runtime_us` is -1).
    pub fn deadline_share(&self) -> Option<Charge> {
        let limit = self.rt_limit?;
        let whole = Charge::new(limit.runtime?, limit.period);
        Some(whole.checked_sub(self.fair_server).unwrap_or(Charge::ZERO))
    }

    /// Whether all online CPUs are one root domain, so that an unpinned deadline thread may use any
    /// of them.
    pub fn is_one_domain(&self) -> bool {
        matches!(&self.domains[..], [only] if only.cpus == self.online)
    }

    /// The root domain that `cpu` belongs to.
    pub fn domain_of(&self, cpu: u32) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.cpus.contains(cpu))
    }

    /// Whether a fair server may take a CPU from FIFO threads (Linux 6.12 and later).
    pub fn has_fair_server(&self) -> bool {
        self.fair_server != Charge::ZERO
    }
}

/// The group that decides whether `tid` may have a real-time policy; `None` where groups don't.
pub fn rt_group_of(tid: Tid) -> Option<RtGroup> {
    let source = Source::live();
    cgroups::rt_group(&source, &cgroups::mounts(&source), &format!("/proc/{tid}/cgroup"))
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn rt_limit(source: &Source) -> Option<RtLimit> {
    let runtime = source.number("/proc/sys/kernel/sched_rt_runtime_us")?;
    let period = source.number("/proc/sys/kernel/sched_rt_period_us")?;
    Some(RtLimit {
        runtime: u64::try_from(runtime).ok().and_then(Work::from_us),
        period: u64::try_from(period)
            .ok()
            .and_then(Span::from_us)
            .filter(|span| !span.is_zero())?,
    })
}

/// The largest share that any CPU's fair server has: 50 ms in 1 s unless debugfs says otherwise.
fn fair_server(source: &Source, kernel: (u32, u32), online: &CpuSet) -> Charge {
    if kernel < (6, 12) {
        return Charge::ZERO;
    }
    let told = |cpu: u32| {
        let number = |name: &str| {
            source
                .number(&format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}/{name}"))
                .and_then(|ns| u64::try_from(ns).ok())
        };
        let period = number("period").filter(|&ns| ns > 0)?;
        Some(Charge::new(Work::from_ns(number("runtime")?), Span::from_ns(period)))
    };
    online.iter().filter_map(told).max().unwrap_or(Charge::ratio(5, 100))
}

/// On by itself from 7.x, before that a feature that debugfs can switch on.
fn hrtick(source: &Source) -> Option<bool> {
    let features = source.text("/sys/kernel/debug/sched/features").ok()?;
    let has = |name: &str| features.split_ascii_whitespace().any(|word| word == name);
    if has("HRTICK_DL") {
        return Some(true);
    }
    // Kernels without a switch of its own for deadline threads follow the general one.
    Some(has("HRTICK") && !has("NO_HRTICK_DL"))
}

/// The word in brackets of a line such as `none [integrity] confidentiality`.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

fn coarse_resolution() -> Option<Span> {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    let failed = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut resolution) };
    (failed == 0 && resolution.tv_sec == 0).then(|| Span::from_ns(resolution.tv_nsec as u64))
}
