//! Configuration: the rules by which the tasks run, separate from the tasks.

use std::path::PathBuf;
use std::time::Duration;
use talea_core::engine::{Migration, SchedulerSpec, Selection};
use talea_core::mutate;
use talea_core::sched::{PolicyFactory, PolicySpec};
use talea_system::Registry;

/// Mapping of tasks to CPUs (YASMIN section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// Every CPU of the application: each job runs where there is room.
    #[default]
    Global,
    /// The [cores](crate::Task::cores) of each task: each job runs where there is room among these.
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
    /// If the policy needs the costs of jobs, versions must [declare them](crate::Version::cost).
    /// The policy of `examples/policy-edf-us` is an example.
    Custom {
        /// Name of the policy in a system file, different from the names of Talea's policies.
        /// Readers of the file register the policy under this name.
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
    /// The process's own right, if the process has one. Otherwise the daemon's grants, or no right.
    #[default]
    Any,
    /// The process's own right (`CAP_SYS_NICE`, or `RLIMIT_RTPRIO` up to 94), or no right.
    Own,
    /// Grants of `talead`, or no right.
    ///
    /// On several CPUs the daemon charges every task on each CPU of its jobs. The plugin must keep
    /// one order of priorities for all these CPUs (`levels = "common"` in its configuration).
    Daemon,
    /// No right: the threads are ordinary threads, and nothing is guaranteed.
    Unused,
}

/// Request to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Socket of the daemon. `None` stands for `TALEA_SOCKET`, or the default socket.
    pub socket: Option<PathBuf>,
    /// Plugin of the daemon, which must be one of fixed priorities. `None` stands for the first
    /// plugin that accepts.
    pub plugin: Option<String>,
    /// Priority to request for the jobs, 1 to 97. The dispatchers get the next higher priority, and
    /// the watchdog the one above. The daemon maps these priorities to kernel priorities and keeps
    /// their order.
    pub priority: u8,
}

impl Default for Daemon {
    /// Returns the request to the system's daemon, for any plugin and priority 50.
    fn default() -> Daemon {
        Daemon { socket: None, plugin: None, priority: 50 }
    }
}

/// Way in which a dispatcher waits for a timed event (YASMIN section 3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitMode {
    /// The dispatcher sleeps.
    #[default]
    Sleep,
    /// The dispatcher sleeps, and spins at the end for at most this time.
    ///
    /// A spinning dispatcher is on time, and all other threads lose the CPU meanwhile. So that
    /// other threads get a CPU, the dispatcher never spins for more than a millisecond, nor for
    /// more than half of the wait.
    Spin(Duration),
}

/// Configuration of an application.
#[derive(Clone, Debug)]
pub struct Config {
    /// Mapping of tasks to CPUs.
    pub mapping: Mapping,
    /// Order of tasks.
    pub priorities: Priorities,
    /// Whether a job may be preempted by a job that precedes it in the order.
    pub preemptive: bool,
    /// Rule by which the version of a job is selected.
    pub selection: Selection,
    /// Whether a job that waits for an accelerator lends its urgency to the holder (YASMIN section
    /// 3.2).
    pub inheritance: bool,
    /// Way in which the dispatchers wait.
    pub wait_mode: WaitMode,
    /// Whether the runtime locks the memory of the whole process at the start, to avoid page faults
    /// (YASMIN section 3.5). Only memory that the process may lock is locked (`CAP_IPC_LOCK`,
    /// `RLIMIT_MEMLOCK`). The memory stays locked.
    pub lock_memory: bool,
    /// Whether data that have activated no job are retained from a stop to the next start. Retained
    /// data activate jobs at the new time zero. Otherwise channels are empty at each start.
    pub retain_channels: bool,
    /// CPUs of the application, as the kernel numbers them. If empty, the application uses the
    /// first CPU that this process may use.
    pub cpus: Vec<u32>,
    /// Whether the runtime clears the CPUs of foreign threads and interrupts during the run, as far
    /// as this kernel allows (YASMIN sections 3.3 and 3.5, "shielded processors").
    ///
    /// At least one CPU must remain for the foreign threads. The shield needs root, whichever right
    /// to priorities is used. Without root the application runs unshielded and prints that once,
    /// and its [`Report`](crate::Report) has the reason. The runtime restores all settings at the
    /// end.
    pub shield: bool,
    /// Source of the right to real-time priorities.
    pub rights: Rights,
    /// Request to the daemon for real-time priorities.
    pub daemon: Daemon,
    /// Whether the start fails without real-time priorities, or without the shield if a shield is
    /// requested.
    ///
    /// Otherwise a process without these rights runs the application as well as it can. The process
    /// prints that once to standard error, and the [`Report`](crate::Report) has the reason.
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
    /// Returns the specification of the root and its migration rule: tasks migrate only at job
    /// boundaries, as in YASMIN.
    pub(crate) fn root(&self) -> (SchedulerSpec, Migration) {
        let policy = match self.priorities {
            Priorities::Edf => PolicySpec::Edf,
            Priorities::RateMonotonic => PolicySpec::RateMonotonic,
            Priorities::DeadlineMonotonic => PolicySpec::DeadlineMonotonic,
            Priorities::User => PolicySpec::FixedPriority,
            Priorities::Custom { name, make } => {
                mutate!("runtime-custom", PolicySpec::Custom { name, make }, PolicySpec::Edf)
            }
        };
        let mut root = SchedulerSpec::new(ROOT, policy);
        root.preemptive = self.preemptive;
        (root, Migration::JobBoundaries)
    }

    /// Returns the policies of the application's system file: Talea's and the custom one. If a
    /// custom policy has the name of a policy of Talea, returns that name.
    pub(crate) fn registry(&self) -> Result<Registry, &'static str> {
        let known = Registry::new();
        match self.priorities {
            Priorities::Custom { name, .. } if known.has_policy(name) => Err(name),
            Priorities::Custom { name, make } => Ok(known.policy(name, make)),
            _ => Ok(known),
        }
    }
}
