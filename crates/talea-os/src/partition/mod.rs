//! CPUs with a root domain each, so that a deadline thread can be pinned.
//!
//! Model: on cgroup v2 a partition root per CPU, which takes the CPU away from everybody else. On
//! cgroup v1 the root set stops balancing and sets below it balance instead: one for each wanted
//! CPU and one for the rest. That changes how every thread of the machine is balanced, so the
//! caller must say that it is wanted.
//!
//! Invariant: every change is written to a journal before it is made. [`undo`] reads the journal
//! and puts everything back, from another process too, after a crash at any point; done twice it
//! does nothing.
//!
//! The kernel rebuilds its deadline books at each of these writes, and gets them wrong when a
//! deadline thread has left within its last period: wait that long first.
//!
//! Reference: `Documentation/admin-guide/cgroup-v1/cpusets.rst`, `cgroup-v2.rst`.

mod journal;

use crate::Tid;
use crate::machine::{Hierarchy, Machine};
use journal::Journal;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use talea_core::CpuSet;

/// Whether cgroup v1 may be used, where it changes balancing for everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version1 {
    /// Refuse.
    Refuse,
    /// The administrator wants it.
    Allow,
}

/// Why there are no partitions.
#[derive(Debug)]
pub enum PartitionError {
    /// No cpuset hierarchy is mounted.
    NoCpuset,
    /// Only cgroup v1 is there, and that was not allowed.
    Version1NotAllowed,
    /// These CPUs are not the machine's, or none was named.
    NoSuchCpus(Box<CpuSet>),
    /// No CPU would be left for everybody else.
    NothingLeft,
    /// Others have changed balancing already: what they set up is left alone.
    Foreign {
        /// The file that shows it.
        path: PathBuf,
    },
    /// A journal is there: partitions exist or were left by a crash. [`undo`] removes them.
    Exists {
        /// The journal.
        journal: PathBuf,
    },
    /// The kernel took everything, and a CPU still shares its domain: another cpuset that balances
    /// overlaps it (on cgroup v1, containers have such sets).
    Shared {
        /// The CPU.
        cpu: u32,
        /// Its domain.
        domain: Box<CpuSet>,
    },
    /// The kernel did not make a valid partition, such as `root invalid (Cpu list is not
    /// exclusive)`.
    Invalid {
        /// The kernel's words.
        state: String,
    },
    /// The kernel refused. `EBUSY` means that living deadline threads would not fit.
    Os {
        /// On what.
        path: PathBuf,
        /// Its answer.
        error: io::Error,
    },
}

/// Partitions that exist. Dropping this leaves them: threads may live in them.
#[derive(Debug)]
pub struct Partitions {
    journal: PathBuf,
    mount: PathBuf,
    version_1: bool,
    cpus: CpuSet,
}

const REST: &str = "talea-rest";
/// How the group of a CPU is called, before its number.
const OF_A_CPU: &str = "talea-cpu";

/// Gives each CPU of `cpus` a root domain of its own. `online` are the machine's CPUs, `cpuset` as
/// [`crate::machine::Machine`] found it. On failure everything is put back.
pub fn create(
    cpuset: &Hierarchy,
    online: &CpuSet,
    cpus: &CpuSet,
    version_1: Version1,
    journal: &Path,
) -> Result<Partitions, PartitionError> {
    if cpus.is_empty() || !cpus.is_subset(online) {
        return Err(PartitionError::NoSuchCpus(Box::new(*cpus)));
    }
    let (mount, is_v1) = match cpuset {
        Hierarchy::Absent => return Err(PartitionError::NoCpuset),
        Hierarchy::V1(_) if version_1 == Version1::Refuse => {
            return Err(PartitionError::Version1NotAllowed);
        }
        Hierarchy::V1(at) => (PathBuf::from(at), true),
        Hierarchy::V2(at) => (PathBuf::from(at), false),
    };
    let mut log = Journal::create(journal)?;
    let made = if is_v1 {
        make_v1(&mut log, &mount, online, cpus)
    } else {
        make_v2(&mut log, &mount, online, cpus)
    };
    if let Err(error) = made.and_then(|()| apart(cpus)) {
        drop(log);
        // What was refused first is the news; a journal that can't be undone now stays for the next
        // try.
        drop(undo(journal));
        return Err(error);
    }
    Ok(Partitions { journal: journal.to_owned(), mount, version_1: is_v1, cpus: *cpus })
}

/// The CPUs for which `journal` says that partitions were begun in this boot; `None` when there is
/// no journal. Whether they are whole is for [`crate::machine::Machine`] to say.
pub fn begun(journal: &Path) -> Result<Option<CpuSet>, PartitionError> {
    let Some(steps) = journal::read(journal)? else { return Ok(None) };
    let name =
        |step: &str| Some(Path::new(step.strip_prefix("dir\t")?).file_name()?.to_str()?.to_owned());
    let cpu = |step: &String| name(step)?.strip_prefix(OF_A_CPU)?.parse().ok();
    let known = |cpu: &u32| (*cpu as usize) < talea_core::cpus::MAX_CPUS;
    Ok(Some(steps.iter().filter_map(cpu).filter(known).fold(CpuSet::EMPTY, |mut all, cpu| {
        all.insert(cpu);
        all
    })))
}

/// Whether each CPU has a domain of its own now.
fn apart(cpus: &CpuSet) -> Result<(), PartitionError> {
    let os = |error| PartitionError::Os { path: "/proc and /sys".into(), error };
    let machine = Machine::probe().map_err(os)?;
    match cpus
        .iter()
        .find_map(|cpu| Some((cpu, machine.domain_of(cpu)?.cpus)).filter(|(_, set)| set.len() > 1))
    {
        Some((cpu, domain)) => Err(PartitionError::Shared { cpu, domain: Box::new(domain) }),
        None => Ok(()),
    }
}

/// Puts back everything that `journal` says was changed. `false` when there is no journal.
pub fn undo(journal: &Path) -> Result<bool, PartitionError> {
    journal::undo(journal)
}

impl Partitions {
    /// The CPUs that have a domain of their own.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Moves a thread into the partition of `cpu`. On cgroup v2 only whole processes can be moved:
    /// `tid` must be a main thread there.
    ///
    /// On cgroup v1 a thread in the root set may as well be pinned by affinity alone.
    pub fn admit(&self, tid: Tid, cpu: u32) -> io::Result<()> {
        self.move_to(&group(&self.mount, cpu), tid)
    }

    /// Moves a thread (on cgroup v2 its process) to the root set.
    pub fn release(&self, tid: Tid) -> io::Result<()> {
        self.move_to(&self.mount, tid)
    }

    fn move_to(&self, group: &Path, tid: Tid) -> io::Result<()> {
        let file = if self.version_1 { "tasks" } else { "cgroup.procs" };
        fs::write(group.join(file), tid.to_string())
    }

    /// Puts everything back; threads inside go to the root set.
    pub fn undo(self) -> Result<(), PartitionError> {
        undo(&self.journal).map(drop)
    }
}

fn group(mount: &Path, cpu: u32) -> PathBuf {
    mount.join(format!("{OF_A_CPU}{cpu}"))
}

/// The sets come first, the root's switch last: until then they overlap the root set and change
/// nothing, so no CPU is ever without a domain.
fn make_v1(
    log: &mut Journal,
    mount: &Path,
    online: &CpuSet,
    cpus: &CpuSet,
) -> Result<(), PartitionError> {
    let switch = mount.join("cpuset.sched_load_balance");
    if read(&switch)? != "1" {
        return Err(PartitionError::Foreign { path: switch });
    }
    let memory = read(&mount.join("cpuset.mems"))?;
    let rest = online.difference(cpus);
    let wanted = cpus.iter().map(|cpu| (group(mount, cpu), CpuSet::single(cpu)));
    let left = (!rest.is_empty()).then(|| (mount.join(REST), rest));
    for (group, set) in wanted.chain(left) {
        log.make_directory(&group)?;
        log.write(&group.join("cpuset.cpus"), &set.to_string())?;
        log.write(&group.join("cpuset.mems"), &memory)?;
    }
    // What was read above: somebody who has switched it off meanwhile must not have it journalled
    // as the way it was.
    log.write_over(&switch, "1", "0")
}

fn make_v2(
    log: &mut Journal,
    mount: &Path,
    online: &CpuSet,
    cpus: &CpuSet,
) -> Result<(), PartitionError> {
    if online.is_subset(cpus) {
        return Err(PartitionError::NothingLeft);
    }
    let enabled = read(&mount.join("cgroup.subtree_control"))?;
    if !enabled.split_ascii_whitespace().any(|word| word == "cpuset") {
        log.enable_cpuset(&mount.join("cgroup.subtree_control"))?;
    }
    for cpu in cpus {
        let group = group(mount, cpu);
        log.make_directory(&group)?;
        log.write(&group.join("cpuset.cpus"), &cpu.to_string())?;
        let switch = group.join("cpuset.cpus.partition");
        log.write(&switch, "root")?;
        let state = read(&switch)?;
        if state != "root" {
            return Err(PartitionError::Invalid { state });
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, PartitionError> {
    fs::read_to_string(path)
        .map(|text| text.trim_end().to_owned())
        .map_err(|error| PartitionError::Os { path: path.to_owned(), error })
}

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartitionError::NoCpuset => f.write_str("no cpuset hierarchy is mounted"),
            PartitionError::Version1NotAllowed => f.write_str(
                "cpusets are of cgroup v1 here, where a partition switches load balancing off for everybody; it \
                 must be allowed explicitly",
            ),
            PartitionError::NoSuchCpus(cpus) if cpus.is_empty() => f.write_str("no CPU was named"),
            PartitionError::NoSuchCpus(cpus) => write!(f, "not all of CPUs {cpus} are online"),
            PartitionError::NothingLeft => f.write_str("no CPU would be left for everybody else"),
            PartitionError::Foreign { path } => {
                write!(f, "somebody else has divided the CPUs already, or an earlier Talea whose journal is lost: see {}", path.display())
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
