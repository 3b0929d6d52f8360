//! Facts that the checks evaluate, read once.

use super::front_ends::Published;
use super::leftovers::{self, Leftovers};
use crate::broker_client::{BrokerClient, Options, Refused, Unreachable};
use crate::commands::explain::refusal;
use crate::commands::front_ends::FrontEndCalls;
use std::path::PathBuf;
use talea_core::{CpuSet, Params, Span, Work};
use talea_daemon::start;
use talea_os::sched::{self, Attr, Policy};
use talea_os::sysinfo::{DlBandwidth, SystemInfo, dl_bandwidth};
use talea_os::{Tid, proc};
use talea_proto::{Refusal, Task};
use talea_study::exit::CommandError;

/// Observed facts.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// System information, with this process's limits and control groups.
    pub(super) machine: SystemInfo,
    /// Effective user id.
    pub(super) uid: u32,
    /// Whether this process is in the initial user namespace.
    pub(super) initial_user_namespace: bool,
    /// Whether a seccomp filter is in force.
    pub(super) has_seccomp_filter: bool,
    /// CPUs that this process may use.
    pub(super) affinity: CpuSet,
    /// Result of a request of SCHED_FIFO for a thread of this process.
    pub(super) fifo: Result<(), i32>,
    /// Result of a request of SCHED_DEADLINE for a thread of this process.
    pub(super) deadline: Result<(), i32>,
    /// The kernel's deadline bandwidth accounting.
    pub(super) dl_bandwidth: Option<Vec<DlBandwidth>>,
    /// Total bandwidth of all live deadline threads, in units of 2^-20 CPUs.
    pub(super) deadline_threads: i64,
    /// Value of `TALEA_DISABLE`, if it is set.
    pub(super) disabled: Option<String>,
    /// State of the daemon.
    pub(super) daemon: Daemon,
    /// State of the configuration.
    pub(super) configuration: Configuration,
    /// Calls over D-Bus.
    pub(super) front_end_calls: FrontEndCalls,
    /// Values that programs read over D-Bus.
    pub(super) published: Published,
    /// State that earlier brokers, runs and applications left.
    pub(super) leftovers: Vec<Leftovers>,
}

/// State of the daemon, and its answer to this user.
#[derive(Clone, Debug)]
pub(super) enum Daemon {
    /// The daemon replies.
    Answers {
        /// Process number of the daemon.
        pid: u32,
        /// Refusal of a small request. `None` if the daemon would grant the request.
        refusal: Option<Box<Refusal>>,
    },
    /// There is no daemon.
    Missing(String),
    /// There is a daemon, but it does not work.
    Trouble(String),
}

/// State of the daemon's configuration file.
#[derive(Clone, Debug)]
pub(super) enum Configuration {
    /// There is no file.
    Missing(PathBuf),
    /// The file is valid.
    Sound(PathBuf),
    /// The file is invalid, with the reason.
    Broken(PathBuf, String),
}

impl Facts {
    /// Reads all facts.
    pub(super) fn read(options: &Options) -> anyhow::Result<Facts> {
        let machine = SystemInfo::probe()?;
        let daemon = ask_daemon(options);
        let (fifo, deadline) = try_policies();
        let leftovers = match daemon {
            // The daemon restores its own threads. Shields do not belong to it.
            Daemon::Answers { .. } => leftovers::shields(),
            Daemon::Missing(_) | Daemon::Trouble(_) => leftovers::find_leftovers(options),
        };
        Ok(Facts {
            uid: rustix::process::geteuid().as_raw(),
            initial_user_namespace: initial_user_namespace(),
            has_seccomp_filter: has_seccomp_filter(),
            affinity: sched::get_affinity(Tid::current())?,
            fifo,
            deadline,
            dl_bandwidth: dl_bandwidth(),
            deadline_threads: deadline_threads(),
            disabled: crate::broker_client::disabled(),
            daemon,
            configuration: configuration(options),
            front_end_calls: FrontEndCalls::read(options),
            published: Published::read(),
            leftovers,
            machine,
        })
    }
}

/// Whether this is the initial user namespace, which maps every id to itself. An unreadable map
/// (`/proc` is hidden) counts as the initial one.
fn initial_user_namespace() -> bool {
    let Ok(map) = std::fs::read_to_string("/proc/self/uid_map") else { return true };
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

fn has_seccomp_filter() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() == "2")
}

/// Requests both policies on a thread that ends immediately, so that nothing remains.
///
/// The request is minimal: FIFO 1, and a thousandth of a CPU.
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

/// Sums the bandwidth of all visible threads.
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
                // Rounded down to 2^-20, as the kernel does.
                let share = (u128::from(runtime.as_ns()) << 20) / u128::from(period.as_ns().max(1));
                sum += i64::try_from(share).unwrap_or(0);
            }
        }
    }
    sum
}

fn ask_daemon(options: &Options) -> Daemon {
    let mut link = match BrokerClient::daemon(options) {
        Ok(link) => link,
        Err(error) if error.is::<Unreachable>() => return Daemon::Missing(format!("{error:#}")),
        Err(error) if matches!(error.downcast_ref(), Some(CommandError::Usage(_))) => {
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
    // A hundredth of a CPU: every rule that allows anything allows this.
    let params = Params {
        period: Some(Span::from_ns(10_000_000)),
        runtime: Some(Work::from_ns(100_000)),
        ..Params::default()
    };
    let own = match talea_os::Thread::open(Tid::of_process()) {
        Ok(own) => own,
        Err(error) => return Daemon::Trouble(error.to_string()),
    };
    match link.explain(&Task { params, ..Task::default() }, &own) {
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
