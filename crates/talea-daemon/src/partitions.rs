//! Cpuset partitions for the `edf` plugins that request them.
//!
//! Model: with `confine = "partition"` in the configuration, the administrator requests that each
//! CPU of that plugin becomes a root domain of its own. On cgroup v1 this switches off load
//! balancing for the whole system, so it is never done without this key. The partitions are made
//! before the broker reads the platform; the broker treats them as a fact.
//!
//! Absent on purpose: partitions on cgroup v2. There only whole processes can enter a partition,
//! and they must leave their own groups. The daemon must not move a client's process
//! (docs/decisions/0005-no-partitions-on-v2.md). Partitions made by the administrator are used as
//! they are.
//!
//! Lifetime. Partitions are kept as long as a thread needs them. A daemon that stops while deadline
//! threads exist under its grants leaves the partitions with the grants, and the next daemon adopts
//! both. Partitions are undone when the daemon stops without such a thread, when a daemon starts
//! whose configuration does not request them, and by `talea doctor --repair`. A journal beside the
//! state file lists what to undo, independent of the process that wrote it. The lock on the state
//! file also protects the journal.
//!
//! Rights. The directory of the cpusets has no write permission, not even for its owner. Creating
//! and removing a cpuset requires CAP_DAC_OVERRIDE, which the daemon must not keep. Therefore a
//! helper keeps it: the same program, started once more before the capabilities are dropped. The
//! helper waits for one byte, then undoes what the journal lists.
//!
//! Trap: each of these changes makes the kernel recompute its deadline bandwidth accounting. The
//! result is wrong if a deadline thread has left within its last period. So every change waits
//! until the last such thread is past its period.

use crate::log::Log;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use talea_core::setup::{Confine, Setup};
use talea_core::{CpuSet, Monotonic, Policy, Span};
use talea_os::capabilities::{CapSet, Capability, keep_only};
use talea_os::partition::{self, CgroupV1};
use talea_os::signals::{Signal, Signals};
use talea_os::statefile::StateFile;
use talea_os::sysinfo::{Hierarchy, SystemInfo};
use talea_os::{Thread, Tid, clock, sched, thread};
use talea_proto::record::Record;

/// Name of the journal in the state directory.
pub const JOURNAL: &str = "partitions";
/// Margin for the inaccuracy of the kernel's timers.
const MARGIN: Span = Span::from_ns(50_000_000);

/// Partitions made by the daemon.
#[derive(Debug)]
pub struct Partitions {
    cpus: CpuSet,
    helper: Child,
}

/// Command-line word that starts `talead` as the helper.
pub const HELPER: &str = "undo-partitions";
/// Byte that starts the helper's work.
const UNDO: u8 = b'u';

/// Runs the helper: waits for the command to undo what `journal` lists, or for the end of the
/// daemon.
///
/// # Errors
/// The reason why the partitions could not be undone.
pub fn run_helper(journal: &Path) -> Result<(), String> {
    // The daemon chooses the time, even if a service manager signals all processes.
    let _held_back = Signals::new(&[Signal::Term, Signal::Int, Signal::Hup])
        .map_err(|error| error.to_string())?;
    let rights = [Capability::DacOverride, Capability::SysNice];
    keep_only(CapSet::of(&rights)).map_err(|error| format!("dropping capabilities: {error}"))?;
    let mut word = [0];
    match io::stdin().read(&mut word) {
        Ok(1) if word[0] == UNDO => {
            partition::undo(journal).map(drop).map_err(|error| error.to_string())
        }
        // A killed daemon leaves the partitions to the next daemon.
        _ => Ok(()),
    }
}

fn start_helper(journal: &Path) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("talead").arg(HELPER).arg(journal).env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
}

/// Returns the path of the journal that belongs to a state file.
pub fn journal_path(state: &Path) -> PathBuf {
    state.with_file_name(JOURNAL)
}

/// Returns the CPUs that need a root domain each: those of every plugin that requests it.
fn requested_cpus(setup: &Setup) -> CpuSet {
    let asks = setup.plugins.iter();
    let asks = asks.filter(|plugin| plugin.kind.confine() == Some(Confine::Partition));
    asks.fold(CpuSet::EMPTY, |all, plugin| all.union(&plugin.cpus))
}

fn has_own_domain(machine: &SystemInfo, cpu: u32) -> bool {
    machine.domain_of(cpu).is_some_and(|domain| domain.cpus.len() == 1)
}

/// Makes, keeps or undoes partitions, as `setup` requests. The function updates `machine` to the
/// resulting state; `state` is the open state file. Returns the partitions with their helper;
/// `None` if there is no partition or no helper.
///
/// A failure is logged and does not prevent the start: the plugin then rejects every task, with the
/// reason.
pub fn prepare(
    setup: &Setup,
    machine: &mut SystemInfo,
    state: &StateFile,
    journal: &Path,
    log: &Log,
) -> Option<Partitions> {
    let begun = match partition::journalled_cpus(journal) {
        Ok(begun) => begun,
        Err(error) => {
            log.error(format_args!(
                "the journal of cpuset partitions of an earlier daemon is unreadable: {error}"
            ));
            return None;
        }
    };
    let ours = begun.unwrap_or_default();
    let mut wanted = requested_cpus(setup).intersection(&machine.online);
    if let Hierarchy::V2(_) = machine.cgroups.cpuset
        && wanted.iter().any(|cpu| !has_own_domain(machine, cpu))
    {
        log.error(format_args!(
            "no cpuset partitions of CPUs {wanted}: on cgroup v2 only whole processes enter a partition, and leave \
             their own group; the administrator must make the partitions and start the programs in \
             them (man talead.toml, `confine`)"
        ));
        wanted = CpuSet::EMPTY;
    }
    // CPUs that the administrator has partitioned need no partition of the daemon.
    wanted =
        wanted.iter().filter(|&cpu| ours.contains(cpu) || !has_own_domain(machine, cpu)).collect();
    if !wanted.is_empty() && wanted == ours && wanted.iter().all(|cpu| has_own_domain(machine, cpu))
    {
        return with_helper(wanted, journal, log);
    }
    if begun.is_none() && wanted.is_empty() {
        return None;
    }
    // A deadline thread may have exited together with the earlier daemon.
    clock::sleep_until(clock::now().saturating_add(max_deadline_period(state)));
    if let Err(error) = partition::undo(journal) {
        log.error(format_args!(
            "the cpuset partitions of an earlier daemon cannot be undone: {error}"
        ));
        return None;
    }
    let mut made = None;
    if !wanted.is_empty() {
        let (cpuset, online) = (&machine.cgroups.cpuset, &machine.online);
        match partition::create(cpuset, online, &wanted, CgroupV1::Allow, journal) {
            Ok(_) => made = with_helper(wanted, journal, log),
            Err(error) => log.error(format_args!("no cpuset partitions of CPUs {wanted}: {error}")),
        }
    }
    match SystemInfo::probe() {
        Ok(now) => *machine = now,
        Err(error) => log.error(format_args!("probing this machine again failed: {error}")),
    }
    made
}

/// Starts the helper. Without a helper the daemon cannot undo the partitions at its end; the next
/// start or a repair does.
fn with_helper(cpus: CpuSet, journal: &Path, log: &Log) -> Option<Partitions> {
    match start_helper(journal) {
        Ok(helper) => Some(Partitions { cpus, helper }),
        Err(error) => {
            log.error(format_args!(
                "the helper for cpuset partitions failed to start, so the partitions remain when the daemon stops: {error}"
            ));
            None
        }
    }
}

/// Returns the longest period of a recorded deadline thread plus a margin; zero if there is none.
fn max_deadline_period(state: &StateFile) -> Span {
    let records = state.records().filter_map(|(_, bytes)| Record::decode(bytes));
    let periods = records.filter_map(|record| match record.thread?.applied.policy {
        Policy::Deadline { period, .. } => Some(period),
        _ => None,
    });
    periods.max().map_or(Span::ZERO, |period| period + MARGIN)
}

impl Partitions {
    /// Returns the CPUs with a root domain each.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Undoes all partitions. The last deadline thread leaves the kernel's accounting at `quiet`.
    pub(crate) fn undo(mut self, quiet: Option<Monotonic>, log: &Log) {
        if let Some(quiet) = quiet {
            clock::sleep_until(quiet.saturating_add(MARGIN));
        }
        let mut command = || -> io::Result<bool> {
            if let Some(mut line) = self.helper.stdin.take() {
                line.write_all(&[UNDO])?;
            }
            Ok(self.helper.wait()?.success())
        };
        match command() {
            Ok(true) => {}
            // The helper has already reported the reason.
            Ok(false) => log.error("the cpuset partitions could not be undone; run `talea doctor --repair` to retry"),
            Err(error) => log.error(format_args!(
                "the cpuset partitions cannot be undone, because their helper has exited: {error}; run \
                 `talea doctor --repair`"
            )),
        }
    }
}

/// Result of a repair of partitions left by an earlier daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// No partitions exist.
    Nothing,
    /// The partitions are undone.
    Undone,
    /// Deadline threads still use the partitions; restore those threads first.
    InUse,
}

/// Undoes the partitions of a daemon that has ended. `state` is its open state file, whose lock
/// also protects the journal.
///
/// # Errors
/// The partitions that cannot be undone, with the reason.
pub fn repair(state: &StateFile, journal: &Path) -> Result<Repair, String> {
    if partition::journalled_cpus(journal).map_err(|error| error.to_string())?.is_none() {
        return Ok(Repair::Nothing);
    }
    let mut records = state.records().filter_map(|(_, bytes)| Record::decode(bytes));
    if records.any(|record| is_in_deadline_class(&record)) {
        return Ok(Repair::InUse);
    }
    // Threads that were restored a moment ago have no record any more: wait for the longest
    // possible period.
    let longest = SystemInfo::probe()
        .map_or(Span::from_ns(4_194_304_000), |machine| machine.deadline_periods.1);
    clock::sleep_until(clock::now().saturating_add(longest).saturating_add(MARGIN));
    partition::undo(journal).map_err(|error| error.to_string())?;
    Ok(Repair::Undone)
}

fn is_in_deadline_class(record: &Record) -> bool {
    let Some(recorded) = record.thread else { return false };
    let Some(tid) = i32::try_from(recorded.tid).ok().and_then(Tid::new) else { return false };
    let identity = thread::Identity { tid, inode: recorded.inode, start_ticks: recorded.start };
    let Ok(thread) = Thread::reopen(&identity) else { return false };
    sched::get(thread.tid()).is_ok_and(|attr| attr.policy.is_deadline()) && thread.is_alive()
}
