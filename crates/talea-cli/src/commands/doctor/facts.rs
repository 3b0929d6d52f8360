//! Everything that the checks are about, read once.

use crate::commands::explain::refusal;
use crate::link::{Link, Misuse, Options, Refused, Unreachable};
use std::path::PathBuf;
use talea_core::{CpuSet, Params, Span, Work};
use talea_daemon::start;
use talea_os::machine::{DlBook, Machine, dl_books};
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, proc};
use talea_proto::{Refusal, Task};

/// What was found.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The machine and this process's place in it.
    pub(super) machine: Machine,
    /// Effective user id.
    pub(super) uid: u32,
    /// Whether this is the first user namespace.
    pub(super) initial_user_namespace: bool,
    /// Whether a seccomp filter is in force.
    pub(super) filtered: bool,
    /// Where this process may run.
    pub(super) affinity: CpuSet,
    /// What the kernel said when a thread of ours asked for SCHED_FIFO.
    pub(super) fifo: Result<(), i32>,
    /// The same for SCHED_DEADLINE.
    pub(super) deadline: Result<(), i32>,
    /// The kernel's books of deadline bandwidth.
    pub(super) books: Option<Vec<DlBook>>,
    /// What all living deadline threads hold together, in units of 2^-20 CPUs.
    pub(super) deadline_threads: i64,
    /// `TALEA_DISABLE`, if that is set.
    pub(super) disabled: Option<String>,
    /// The daemon.
    pub(super) daemon: Daemon,
    /// The configuration.
    pub(super) configuration: Configuration,
    /// What an earlier broker left.
    pub(super) leftovers: Vec<Leftovers>,
}

/// Whether there is a daemon, and what it thinks of us.
#[derive(Clone, Debug)]
pub(super) enum Daemon {
    /// It answers.
    Answers {
        /// Its process.
        pid: u32,
        /// What it says to a modest request; `None` when that would be granted.
        refusal: Option<Box<Refusal>>,
    },
    /// There is none.
    Missing(String),
    /// There is one, and something is wrong.
    Trouble(String),
}

/// The administrator's file.
#[derive(Clone, Debug)]
pub(super) enum Configuration {
    /// There is none.
    Missing(PathBuf),
    /// It can be used.
    Sound(PathBuf),
    /// It can't be used, and why.
    Broken(PathBuf, String),
}

/// Of what is gone: grants of a broker, runs, shields.
#[derive(Clone, Debug)]
pub(super) enum Leftovers {
    /// Cpuset partitions without anybody in them.
    Partitions,
    /// A shield of an application that was killed.
    Shield,
    /// Programs of so many runs that were killed.
    Programs(usize),
    /// These threads are real-time and nobody looks after them.
    Threads(Vec<String>),
    /// We may not look.
    Hidden(String),
}

impl Facts {
    /// Reads everything.
    pub(super) fn read(options: &Options) -> anyhow::Result<Facts> {
        let machine = Machine::probe()?;
        let daemon = ask_daemon(options);
        let (fifo, deadline) = try_policies();
        let leftovers = match daemon {
            // It looks after its own, and shields are none of its.
            Daemon::Answers { .. } => super::leftovers::shields(),
            Daemon::Missing(_) | Daemon::Trouble(_) => super::leftovers::find(options),
        };
        Ok(Facts {
            uid: rustix::process::geteuid().as_raw(),
            initial_user_namespace: initial_user_namespace(),
            filtered: filtered(),
            affinity: sched::get_affinity(Tid::current())?,
            fifo,
            deadline,
            books: dl_books(),
            deadline_threads: deadline_threads(),
            disabled: crate::link::disabled(),
            daemon,
            configuration: configuration(options),
            leftovers,
            machine,
        })
    }
}

/// The first user namespace maps every id to itself. Unreadable means a `/proc` that hides it; then
/// nothing is known against it.
fn initial_user_namespace() -> bool {
    let Ok(map) = std::fs::read_to_string("/proc/self/uid_map") else { return true };
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

fn filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() == "2")
}

/// Asks for real on a thread that ends at once: whatever it got is gone with it.
///
/// The least that there is: FIFO 1, and a thousandth of a CPU.
fn try_policies() -> (Result<(), i32>, Result<(), i32>) {
    let attempt = |policy: Policy| {
        let ask = move || {
            sched::set(Tid::current(), &Attr::grant(policy))
                .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
        };
        std::thread::spawn(ask).join().unwrap_or(Err(libc::EIO))
    };
    let period = Span::from_ns(100_000_000);
    let deadline = Policy::Deadline { runtime: Work::from_ns(100_000), deadline: period, period };
    (attempt(Policy::Fifo(1)), attempt(deadline))
}

/// The sum over every thread that can be seen.
fn deadline_threads() -> i64 {
    let mut sum = 0;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process =
            entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Tid::new);
        for tid in
            process.map(|pid| proc::threads_of(pid).unwrap_or_default()).into_iter().flatten()
        {
            if let Ok(Attr { policy: Policy::Deadline { runtime, period, .. }, .. }) =
                sched::get(tid)
            {
                // As the kernel keeps it: rounded down to 2^-20.
                let share = (u128::from(runtime.as_ns()) << 20) / u128::from(period.as_ns().max(1));
                sum += i64::try_from(share).unwrap_or(0);
            }
        }
    }
    sum
}

fn ask_daemon(options: &Options) -> Daemon {
    let mut link = match Link::daemon(options) {
        Ok(link) => link,
        Err(error) if error.is::<Unreachable>() => return Daemon::Missing(format!("{error:#}")),
        Err(error) if error.is::<Misuse>() => {
            return Daemon::Missing(
                "not asked: the configuration, which says where, cannot be used".to_owned(),
            );
        }
        Err(error) => return Daemon::Trouble(format!("{error:#}")),
    };
    let pid = match link.status() {
        Ok(status) => status.pid,
        Err(error) => return Daemon::Trouble(format!("{error:#}")),
    };
    // A hundredth of a CPU: what any rule that lets somebody in at all would allow.
    let params = Params {
        period: Some(Span::from_ns(10_000_000)),
        runtime: Some(Work::from_ns(100_000)),
        ..Params::default()
    };
    match link.explain(&Task { params, ..Task::default() }) {
        Ok(explained) if explained.chosen.is_some() => Daemon::Answers { pid, refusal: None },
        Ok(explained) => Daemon::Answers { pid, refusal: Some(Box::new(refusal(&explained))) },
        Err(error) => match error.downcast::<Refused>() {
            Ok(Refused(refusal)) => Daemon::Answers { pid, refusal: Some(refusal) },
            Err(error) => Daemon::Trouble(format!("{error:#}")),
        },
    }
}

fn configuration(options: &Options) -> Configuration {
    let path = options.config_path().to_owned();
    if !path.exists() {
        return Configuration::Missing(path);
    }
    match start::check(&start::Options { config: path.clone(), ..start::Options::default() }) {
        Ok(_) => Configuration::Sound(path),
        Err(error) => {
            let first = error.to_string().lines().next().unwrap_or_default().to_owned();
            Configuration::Broken(path, first)
        }
    }
}
