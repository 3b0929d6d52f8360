//! Configuration: the rules by which the tasks run, separate from the tasks.

use std::path::PathBuf;
use std::time::Duration;
use talea_core::engine::{Migration, SchedulerSpec, Selection};
use talea_core::mutate;
use talea_core::sched::{PolicyFactory, PolicySpec};
use talea_system::system::Registry;

/// CPUs of tasks (YASMIN section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// Every CPU of the application, each job where there is room.
    #[default]
    Global,
    /// The [cores](crate::Task::cores) of each task, each job where there is room among these.
    Clustered,
    /// The core of each task ([`Task::core`](crate::Task::core)).
    Partitioned,
}

/// Order of tasks (YASMIN section 3.3).
#[derive(Clone, Copy, Debug, Default)]
pub enum Priorities {
    /// Earliest absolute deadline first.
    #[default]
    Edf,
    /// Shortest period first.
    RateMonotonic,
    /// Shortest relative deadline first.
    DeadlineMonotonic,
    /// Largest [`Task::priority`](crate::Task::priority) first.
    User,
    /// A policy of the application, which implements [`Policy`](talea_core::sched::Policy).
    ///
    /// If it needs the costs of jobs, versions must [declare them](crate::Version::cost).
    /// `examples/policy-edf-us` is one.
    Custom {
        /// Name in a system file. It must not be the name of a policy of Talea; readers of the file
        /// register the policy under it.
        name: &'static str,
        /// Constructor of the policy.
        make: PolicyFactory,
    },
}

impl PartialEq for Priorities {
    /// Compares policies of applications by their names.
    fn eq(&self, other: &Priorities) -> bool {
        match (self, other) {
            (Priorities::Custom { name, .. }, Priorities::Custom { name: other, .. }) => {
                name == other
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl Eq for Priorities {}

/// Source of the right to real-time priorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rights {
    /// The process's own right, if it has it; else the daemon's; else none.
    #[default]
    Any,
    /// The process's own right (`CAP_SYS_NICE`, or `RLIMIT_RTPRIO` up to 94); else none.
    Own,
    /// Grants of `talead`; else none.
    ///
    /// On several CPUs every task is charged on each CPU of its jobs, and the plugin must keep one
    /// order of priorities for all of them (`levels = "common"` in its configuration).
    Daemon,
    /// None: the threads are ordinary ones, and nothing is guaranteed.
    Unused,
}

/// Request to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Socket of the daemon; otherwise `TALEA_SOCKET`, or the default.
    pub socket: Option<PathBuf>,
    /// Plugin of the daemon, one of fixed priorities; otherwise the first that accepts.
    pub plugin: Option<String>,
    /// Priority to request for the jobs, 1 to 97; the dispatchers get the next higher one, and the
    /// watchdog the one above that. The daemon maps them to kernel priorities and keeps their
    /// order.
    pub priority: u8,
}

impl Default for Daemon {
    /// Returns the system's daemon, any plugin, priority 50.
    fn default() -> Daemon {
        Daemon { socket: None, plugin: None, priority: 50 }
    }
}

/// How a dispatcher waits for a timed event (YASMIN section 3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitMode {
    /// It sleeps.
    #[default]
    Sleep,
    /// It sleeps, and spins at the end for at most this time.
    ///
    /// It is on time then, and the CPU is lost to all other threads meanwhile. It never spins for
    /// more than a millisecond, nor for more than half of the wait, so that other threads get a CPU
    /// at all.
    Spin(Duration),
}

/// Configuration of an application.
#[derive(Clone, Debug)]
pub struct Config {
    /// CPUs of tasks.
    pub mapping: Mapping,
    /// Order of tasks.
    pub priorities: Priorities,
    /// Whether a job may be preempted by one that precedes it in the order.
    pub preemptive: bool,
    /// Selection of the version of a job.
    pub selection: Selection,
    /// Whether a job that waits for an accelerator lends its urgency to the holder (YASMIN section
    /// 3.2).
    pub inheritance: bool,
    /// How the dispatchers wait.
    pub wait_mode: WaitMode,
    /// Whether the memory of the whole process is locked at the start, as far as it may be
    /// (`CAP_IPC_LOCK`, `RLIMIT_MEMLOCK`), to avoid page faults (YASMIN section 3.5). It stays
    /// locked.
    pub lock_memory: bool,
    /// Whether data that have activated no job are retained from a stop to the next start. They
    /// then activate jobs at the new time zero. Otherwise channels are empty at each start.
    pub retain_channels: bool,
    /// CPUs, as the kernel numbers them; empty: the first that this process may use.
    pub cpus: Vec<u32>,
    /// Whether the CPUs are cleared of foreign threads and interrupts during the run, as far as
    /// this kernel allows (YASMIN sections 3.3 and 3.5, "shielded processors").
    ///
    /// At least one CPU must be left for them. The shield needs root, whichever right to priorities
    /// is used: without root the application runs unshielded, prints that once, and its
    /// [`Report`](crate::Report) has the reason. Everything is restored at the end.
    pub shield: bool,
    /// Source of the right to real-time priorities.
    pub rights: Rights,
    /// Request to the daemon for them.
    pub daemon: Daemon,
    /// Whether the start fails without real-time priorities, or without the shield if one is
    /// requested.
    ///
    /// Otherwise a process without these rights runs as well as it can, prints that once to
    /// standard error, and its [`Report`](crate::Report) has the reason.
    pub require_real_time: bool,
}

impl Default for Config {
    /// Returns global preemptive EDF on one CPU with the first available version.
    fn default() -> Config {
        Config {
            mapping: Mapping::default(),
            priorities: Priorities::default(),
            preemptive: true,
            selection: Selection::default(),
            inheritance: true,
            wait_mode: WaitMode::default(),
            lock_memory: true,
            retain_channels: false,
            cpus: Vec::new(),
            shield: false,
            rights: Rights::default(),
            daemon: Daemon::default(),
            require_real_time: false,
        }
    }
}

/// Name of the root in a system file.
pub(crate) const ROOT: &str = "application";

impl Config {
    /// Returns the root, and when jobs may migrate: never while they run, as in YASMIN.
    pub(crate) fn root(&self) -> (SchedulerSpec, Migration) {
        let policy = mutate!(
            "runtime-custom",
            match self.priorities {
                Priorities::Edf => PolicySpec::Edf,
                Priorities::RateMonotonic => PolicySpec::RateMonotonic,
                Priorities::DeadlineMonotonic => PolicySpec::DeadlineMonotonic,
                Priorities::User => PolicySpec::FixedPriority,
                Priorities::Custom { name, make } => PolicySpec::Custom { name, make },
            },
            match self.priorities {
                Priorities::Edf => PolicySpec::Edf,
                Priorities::RateMonotonic => PolicySpec::RateMonotonic,
                Priorities::DeadlineMonotonic => PolicySpec::DeadlineMonotonic,
                Priorities::User => PolicySpec::FixedPriority,
                Priorities::Custom { .. } => PolicySpec::Edf,
            }
        );
        let mut root = SchedulerSpec::new(ROOT, policy);
        root.preemptive = self.preemptive;
        (root, Migration::JobBoundaries)
    }

    /// Returns the policies of its system file beside Talea's, or the name that has two meanings.
    pub(crate) fn registry(&self) -> Result<Registry, &'static str> {
        let known = Registry::new();
        match self.priorities {
            Priorities::Custom { name, .. } if known.has_policy(name) => Err(name),
            Priorities::Custom { name, make } => Ok(known.policy(name, make)),
            _ => Ok(known),
        }
    }
}
