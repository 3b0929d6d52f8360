//! By which rules the tasks run; nothing of it is in the tasks.

use std::path::PathBuf;
use std::time::Duration;
use talea_core::machine::{Migration, SchedulerSpec, Selection};
use talea_core::mutate;
use talea_core::sched::{Maker, Policy};
use talea_system::system::Registry;

/// Where tasks may run (YASMIN section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// On every CPU of the application, each job where there is room.
    #[default]
    Global,
    /// Each task on its [cores](crate::Task::cores), each job where there is room among these.
    Clustered,
    /// Each task on its core ([`Task::core`](crate::Task::core)) alone.
    Partitioned,
}

/// Who goes first (YASMIN section 3.3).
#[derive(Clone, Copy, Debug, Default)]
pub enum Priorities {
    /// The earliest absolute deadline.
    #[default]
    Edf,
    /// The shortest period.
    RateMonotonic,
    /// The shortest relative deadline.
    DeadlineMonotonic,
    /// The largest [`Task::priority`](crate::Task::priority).
    User,
    /// As somebody else's policy says: whatever implements
    /// [`Scheduler`](talea_core::sched::Scheduler). Where it needs to know what jobs cost, versions
    /// must [say so](crate::Version::cost). `examples/policy-edf-us` is one.
    Custom {
        /// What a system file calls it. It must be none of Talea's own names; whoever reads the
        /// file registers it under this one.
        name: &'static str,
        /// How it is made.
        make: Maker,
    },
}

impl PartialEq for Priorities {
    /// Policies of somebody else are known by their names.
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

/// Whose right to real-time priorities it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rights {
    /// The process's own, if it has it; else the daemon's; else none.
    #[default]
    Any,
    /// The process's own (`CAP_SYS_NICE`, or `RLIMIT_RTPRIO` up to 94); else none.
    Own,
    /// Those that `talead` gives; else none. On several CPUs every task is booked on each CPU that
    /// its jobs may run on, and the plugin has to keep one order of priorities for all of them
    /// (`levels = "common"` in its configuration).
    Daemon,
    /// None: its threads are ordinary ones, and nothing is promised.
    Unused,
}

/// What is asked of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Where it listens; otherwise where `TALEA_SOCKET` says, or where daemons do.
    pub socket: Option<PathBuf>,
    /// Which of its plugins, one of fixed priorities; otherwise the first that takes it.
    pub plugin: Option<String>,
    /// The priority to ask for, 1 to 97, for the application's jobs; its dispatchers have the next
    /// higher one, and its watchdog the one above that. What they become in the kernel is the
    /// daemon's to say; their order is kept.
    pub priority: u8,
}

impl Default for Daemon {
    /// The system's daemon, any plugin, priority 50.
    fn default() -> Daemon {
        Daemon { socket: None, plugin: None, priority: 50 }
    }
}

/// How a dispatcher waits for what it knows to be due (YASMIN section 3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Asleep.
    #[default]
    Sleep,
    /// Asleep at first, and at the end awake, looking at the clock, for so long at most: it is
    /// there sooner, and the CPU is lost to everybody else meanwhile. Never for more than a
    /// millisecond, nor for more than half of the wait, so that others have a CPU at all.
    Spin(Duration),
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where.
    pub mapping: Mapping,
    /// Who first.
    pub priorities: Priorities,
    /// Whether a job may be interrupted by one that goes first.
    pub preemptive: bool,
    /// Which version a job is done in.
    pub selection: Selection,
    /// Whether a job that waits for an accelerator lends its urgency to whoever holds it (YASMIN
    /// section 3.2).
    pub inheritance: bool,
    /// How its dispatchers wait.
    pub waiting: Waiting,
    /// Whether the memory of the whole process is locked at the start, as far as it may be
    /// (`CAP_IPC_LOCK`, `RLIMIT_MEMLOCK`), so that no page is missing when it matters (YASMIN
    /// section 3.5). It stays locked.
    pub locks_memory: bool,
    /// Whether what lies in its channels when it is stopped, and has activated nobody, is there
    /// when it is started again: it then activates whom it has to at the new time zero. Otherwise
    /// channels are empty at each start.
    pub keeps_channels: bool,
    /// The machine's CPUs, as the kernel counts them; empty: the first that this process may use.
    pub cpus: Vec<u32>,
    /// Whether these are cleared of everybody else's threads and interrupts for the time of the
    /// run, as far as this kernel allows (YASMIN sections 3.3 and 3.5, "shielded processors"); at
    /// least one CPU must be left for them. It takes root, whoever gives the priorities: without,
    /// the application runs unshielded, says so once, and its [`Report`](crate::Report) says so.
    /// Everything is put back at the end.
    pub shield: bool,
    /// Whose right to real-time priorities it uses.
    pub rights: Rights,
    /// How the daemon is asked for them.
    pub daemon: Daemon,
    /// Whether to insist on real-time priorities, and on the shield if one is wanted; otherwise a
    /// process that is given no right to them runs as well as it can, says so on standard error,
    /// once, and its [`Report`](crate::Report) says so.
    pub insist: bool,
}

impl Default for Config {
    /// Global preemptive EDF on one CPU, the first version that can be had.
    fn default() -> Config {
        Config {
            mapping: Mapping::default(),
            priorities: Priorities::default(),
            preemptive: true,
            selection: Selection::default(),
            inheritance: true,
            waiting: Waiting::default(),
            locks_memory: true,
            keeps_channels: false,
            cpus: Vec::new(),
            shield: false,
            rights: Rights::default(),
            daemon: Daemon::default(),
            insist: false,
        }
    }
}

/// What a system file calls the root.
pub(crate) const ROOT: &str = "application";

impl Config {
    /// The root that it says, and when jobs may move to another CPU: never while they run, as in
    /// YASMIN.
    pub(crate) fn root(&self) -> (SchedulerSpec, Migration) {
        let policy = mutate!(
            "runtime-custom",
            match self.priorities {
                Priorities::Edf => Policy::Edf,
                Priorities::RateMonotonic => Policy::RateMonotonic,
                Priorities::DeadlineMonotonic => Policy::DeadlineMonotonic,
                Priorities::User => Policy::FixedPriority,
                Priorities::Custom { name, make } => Policy::Custom { name, make },
            },
            match self.priorities {
                Priorities::Edf => Policy::Edf,
                Priorities::RateMonotonic => Policy::RateMonotonic,
                Priorities::DeadlineMonotonic => Policy::DeadlineMonotonic,
                Priorities::User => Policy::FixedPriority,
                Priorities::Custom { .. } => Policy::Edf,
            }
        );
        let mut root = SchedulerSpec::new(ROOT, policy);
        root.preemptive = self.preemptive;
        (root, Migration::JobBoundaries)
    }

    /// What its system file names beside what every reader knows, or the name that would mean two
    /// things.
    pub(crate) fn registry(&self) -> Result<Registry, &'static str> {
        let known = Registry::new();
        match self.priorities {
            Priorities::Custom { name, .. } if known.has_policy(name) => Err(name),
            Priorities::Custom { name, make } => Ok(known.policy(name, make)),
            _ => Ok(known),
        }
    }
}
