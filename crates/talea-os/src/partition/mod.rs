//! CPUs with a root domain each, so that a deadline thread can be pinned.
//!
//! Model: on cgroup v2 a partition root per CPU, which removes the CPU from all other cpusets. On
//! cgroup v1 the root set stops balancing and sets below it balance instead: one for each requested
//! CPU and one for the rest. That changes the load balancing of every thread of the machine, so the
//! caller must allow it explicitly.
//!
//! Invariant: every change is written to a journal before it is made. [`undo`] reads the journal
//! and restores everything, from another process too, after a crash at any point; it is idempotent.
//!
//! The kernel rebuilds its deadline bandwidth accounting at each of these writes, and gets it wrong
//! if a deadline thread has left within its last period: wait that long first.
//!
//! Reference: `Documentation/admin-guide/cgroup-v1/cpusets.rst`, `cgroup-v2.rst`.

mod error;
mod journal;

pub use error::PartitionError;

use crate::Tid;
use crate::sysinfo::{Hierarchy, SystemInfo};
use journal::Journal;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use talea_core::CpuSet;

/// Whether cgroup v1 may be used. Partitions in it change load balancing for all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupV1 {
    /// Refuse cgroup v1.
    Refuse,
    /// Use cgroup v1, because the administrator allows it.
    Allow,
}

/// Existing partitions. Dropping the value keeps the partitions, because threads may live in them.
#[derive(Debug)]
pub struct Partitions {
    journal: PathBuf,
    mount: PathBuf,
    version_1: bool,
    cpus: CpuSet,
}

const REST: &str = "talea-rest";
/// Prefix of the name of a CPU's group; the CPU number follows.
const CPU_GROUP_PREFIX: &str = "talea-cpu";

/// Creates a root domain for each CPU of `cpus`. `online` are the machine's CPUs, and `cpuset` is
/// the hierarchy that [`crate::sysinfo::SystemInfo`] found. A failure restores all settings.
pub fn create(
    cpuset: &Hierarchy,
    online: &CpuSet,
    cpus: &CpuSet,
    version_1: CgroupV1,
    journal: &Path,
) -> Result<Partitions, PartitionError> {
    if cpus.is_empty() || !cpus.is_subset(online) {
        return Err(PartitionError::NoSuchCpus(Box::new(*cpus)));
    }
    let (mount, is_v1) = match cpuset {
        Hierarchy::Absent => return Err(PartitionError::NoCpuset),
        Hierarchy::V1(_) if version_1 == CgroupV1::Refuse => {
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
    if let Err(error) = made.and_then(|()| check_separate(cpus)) {
        drop(log);
        // The first refusal is reported; a journal that cannot be undone now remains for the next
        // attempt.
        drop(undo(journal));
        return Err(error);
    }
    Ok(Partitions { journal: journal.to_owned(), mount, version_1: is_v1, cpus: *cpus })
}

/// Returns the CPUs for which `journal` says that partitions were begun in this boot. Returns
/// `None` if there is no journal. [`crate::sysinfo::SystemInfo`] shows whether the partitions are
/// complete.
pub fn journalled_cpus(journal: &Path) -> Result<Option<CpuSet>, PartitionError> {
    let Some(steps) = journal::read(journal)? else { return Ok(None) };
    let name =
        |step: &str| Some(Path::new(step.strip_prefix("dir\t")?).file_name()?.to_str()?.to_owned());
    let cpu = |step: &String| name(step)?.strip_prefix(CPU_GROUP_PREFIX)?.parse().ok();
    let is_valid = |cpu: &u32| (*cpu as usize) < talea_core::cpus::MAX_CPUS;
    Ok(Some(steps.iter().filter_map(cpu).filter(is_valid).fold(CpuSet::EMPTY, |mut all, cpu| {
        all.insert(cpu);
        all
    })))
}

/// Checks that each CPU of `cpus` now has a root domain to itself.
fn check_separate(cpus: &CpuSet) -> Result<(), PartitionError> {
    let os = |error| PartitionError::Os { path: "/proc and /sys".into(), error };
    let machine = SystemInfo::probe().map_err(os)?;
    match cpus
        .iter()
        .find_map(|cpu| Some((cpu, machine.domain_of(cpu)?.cpus)).filter(|(_, set)| set.len() > 1))
    {
        Some((cpu, domain)) => Err(PartitionError::Shared { cpu, domain: Box::new(domain) }),
        None => Ok(()),
    }
}

/// Undoes the changes of this boot that `journal` records, and removes the journal. Does not change
/// a setting that another process has changed since. Returns `false` if there is no journal.
pub fn undo(journal: &Path) -> Result<bool, PartitionError> {
    journal::undo(journal)
}

impl Partitions {
    /// Returns the CPUs that have a root domain to themselves.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Moves a thread into the partition of `cpu`. On cgroup v2 the kernel moves only whole
    /// processes, so `tid` must be a main thread.
    ///
    /// On cgroup v1 a thread in the root set can be pinned by affinity alone.
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

    /// Restores all settings. Threads in the partitions move to the root set.
    pub fn undo(self) -> Result<(), PartitionError> {
        undo(&self.journal).map(drop)
    }
}

fn group(mount: &Path, cpu: u32) -> PathBuf {
    mount.join(format!("{CPU_GROUP_PREFIX}{cpu}"))
}

/// Creates the sets first and switches the root set last. Until the switch the sets overlap the
/// root set and have no effect, so no CPU is ever without a domain.
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
    let rest_set = (!rest.is_empty()).then(|| (mount.join(REST), rest));
    for (group, set) in wanted.chain(rest_set) {
        log.make_directory(&group)?;
        log.write(&group.join("cpuset.cpus"), &set.to_string())?;
        log.write(&group.join("cpuset.mems"), &memory)?;
    }
    // The old value is the one read above: a process that has switched it off meanwhile must not
    // have that journalled as the original value.
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
