//! Reasons why partitions of CPUs cannot be created or undone.

use std::fmt;
use std::io;
use std::path::PathBuf;
use talea_core::CpuSet;

/// Reason why partitions cannot be created.
#[derive(Debug)]
pub enum PartitionError {
    /// No cpuset hierarchy is mounted.
    NoCpuset,
    /// Only cgroup v1 is mounted, and it was not allowed.
    Version1NotAllowed,
    /// The set is empty or has a CPU that is not online.
    NoSuchCpus(Box<CpuSet>),
    /// No CPU would remain for all other threads.
    NothingLeft,
    /// Other software changed load balancing before. Its configuration is left alone.
    Foreign {
        /// File that shows the change.
        path: PathBuf,
    },
    /// A journal exists: another process has partitions, or a crash left them. [`super::undo`]
    /// removes them.
    Exists {
        /// The journal.
        journal: PathBuf,
    },
    /// The kernel accepted all writes, but a CPU still shares its root domain. Another cpuset that
    /// balances overlaps the CPU's cpuset (on cgroup v1, containers have such sets).
    Shared {
        /// CPU that shares its root domain.
        cpu: u32,
        /// Root domain of the CPU.
        domain: Box<CpuSet>,
    },
    /// The kernel did not create a valid partition, such as `root invalid (Cpu list is not
    /// exclusive)`.
    Invalid {
        /// State that the kernel reports.
        state: String,
    },
    /// The kernel refused a write. `EBUSY` means that existing deadline threads would not fit.
    Os {
        /// File of the refused write.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartitionError::NoCpuset => f.write_str("no cpuset hierarchy is mounted"),
            PartitionError::Version1NotAllowed => f.write_str(
                "cpusets are of cgroup v1 here, where a partition switches load balancing off for all threads; it \
                 must be allowed explicitly",
            ),
            PartitionError::NoSuchCpus(cpus) if cpus.is_empty() => f.write_str("the set of CPUs is empty"),
            PartitionError::NoSuchCpus(cpus) => write!(f, "not all of CPUs {cpus} are online"),
            PartitionError::NothingLeft => f.write_str("no CPU would be left for other threads"),
            PartitionError::Foreign { path } => {
                write!(f, "other software, or an earlier Talea whose journal is lost, has divided the CPUs already: see {}", path.display())
            }
            PartitionError::Exists { journal } => {
                write!(f, "partitions exist already or were left by a crash: see {}", journal.display())
            }
            PartitionError::Shared { cpu, domain } => write!(
                f,
                "CPU {cpu} still shares a root domain with CPUs {domain}: another cpuset that balances its load \
                 overlaps it (sched_load_balance)"
            ),
            PartitionError::Invalid { state } => write!(f, "the kernel made no valid partition: {state}"),
            PartitionError::Os { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for PartitionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PartitionError::Os { error, .. } => Some(error),
            _ => None,
        }
    }
}
