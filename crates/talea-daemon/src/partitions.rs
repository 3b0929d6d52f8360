//! Cpuset partitions for the `edf` plugins that ask for them (design, section 9).
//!
//! Model: `confine = "partition"` in the configuration is the administrator's word that each CPU of
//! that plugin shall be a root domain of its own; on cgroup v1 that switches load balancing off for
//! everybody, so nothing else makes one. They are made before the broker is told what the machine
//! is, and from then on they are facts of it like any other.
//!
//! Absent on purpose: partitions on cgroup v2. Nobody who is outside can use their CPUs, and only
//! whole processes can go in, out of their own groups; a client's process is not ours to move
//! (docs/decisions/0005-no-partitions-on-v2.md). Those that the administrator has made are used as
//! they are found.
//!
//! Life. They are kept as long as somebody needs them: a daemon that ends while deadline threads
//! live in its care leaves them, as it leaves the grants, and the next one takes both over. They
//! are undone when the daemon ends with no such thread left, when a daemon starts that does not
//! want them, and by `talea doctor --repair`. What to undo is read from a journal beside the state
//! file, whoever has written it and however that ended. Who holds the state file holds the journal.
//!
//! Rights. The directory in which cpusets are made has no write permission, not even for its owner:
//! making and removing one takes CAP_DAC_OVERRIDE, which the daemon must not keep. So a helper
//! keeps it: this program, started once more before rights are given up. It waits for one byte and
//! undoes what the journal says; it knows nothing else.
//!
//! Trap: the kernel builds its deadline books anew at each of these changes, and gets them wrong
//! when a deadline thread has left within its last period. So every change waits until the last one
//! that we know of is past that.

use crate::log::Log;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use talea_core::setup::{Confine, PluginKind, Setup};
use talea_core::{CpuSet, Policy, Span, Time};
use talea_os::dropcaps::{CapSet, Capability, keep_only};
use talea_os::machine::{Hierarchy, Machine};
use talea_os::partition::{self, Version1};
use talea_os::signals::{Signal, Signals};
use talea_os::statefile::StateFile;
use talea_os::{Thread, Tid, clock, sched, thread};
use talea_proto::record::Record;

/// Name of the journal in the state directory.
pub const JOURNAL: &str = "partitions";
/// The kernel's timers are not exact.
const MARGIN: Span = Span::from_ns(50_000_000);

/// Partitions that are there because of us.
#[derive(Debug)]
pub struct Partitions {
    cpus: CpuSet,
    helper: Child,
}

/// The word on the command line of `talead` by which it becomes the helper.
pub const HELPER: &str = "undo-partitions";
/// What tells it to begin.
const UNDO: u8 = b'u';

/// What the helper does: waits until it is told to undo what `journal` says, or until the daemon
/// has ended.
///
/// # Errors
/// Why it could not be done.
pub fn help(journal: &Path) -> Result<(), String> {
    // The daemon decides when it is time, also where a service manager tells everybody to end.
    let _held_back = Signals::new(&[Signal::Term, Signal::Int, Signal::Hup])
        .map_err(|error| error.to_string())?;
    let rights = [Capability::DacOverride, Capability::SysNice];
    keep_only(CapSet::of(&rights)).map_err(|error| format!("giving up capabilities: {error}"))?;
    let mut word = [0];
    match io::stdin().read(&mut word) {
        Ok(1) if word[0] == UNDO => {
            partition::undo(journal).map(drop).map_err(|error| error.to_string())
        }
        // A killed daemon leaves them to the next one.
        _ => Ok(()),
    }
}

fn start_helper(journal: &Path) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("talead").arg(HELPER).arg(journal).env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
}

/// The journal that belongs to a state file.
pub fn journal_of(state: &Path) -> PathBuf {
    state.with_file_name(JOURNAL)
}

/// Which CPUs shall have a domain each: those of every `edf` plugin that asks for it.
fn wanted(setup: &Setup) -> CpuSet {
    let asks = setup.plugins.iter().filter(|plugin| match &plugin.kind {
        PluginKind::Edf(options) => options.confine == Confine::Partition,
        _ => false,
    });
    asks.fold(CpuSet::EMPTY, |all, plugin| all.union(&plugin.cpus))
}

fn alone(machine: &Machine, cpu: u32) -> bool {
    machine.domain_of(cpu).is_some_and(|domain| domain.cpus.len() == 1)
}

/// Makes, keeps or undoes partitions, as `setup` wants. `machine` is what was found, and afterwards
/// what is there now; `state` is the open state file.
///
/// What can't be had is logged and no reason not to start: the plugin then serves nobody, and says
/// so.
pub fn prepare(
    setup: &Setup,
    machine: &mut Machine,
    state: &StateFile,
    journal: &Path,
    log: &Log,
) -> Option<Partitions> {
    let begun = match partition::begun(journal) {
        Ok(begun) => begun,
        Err(error) => {
            log.error(format_args!(
                "cpuset partitions of an earlier daemon can't be looked at: {error}"
            ));
            return None;
        }
    };
    let ours = begun.unwrap_or_default();
    let mut wanted = wanted(setup).intersection(&machine.online);
    if let Hierarchy::V2(_) = machine.cgroups.cpuset
        && wanted.iter().any(|cpu| !alone(machine, cpu))
    {
        log.error(format_args!(
            "no cpuset partitions of CPUs {wanted}: on cgroup v2 a thread enters one only with its whole process, out of \
             its own group, which is for the administrator to decide; make the partitions and start the programs in \
             them (man talead.toml, `confine`)"
        ));
        wanted = CpuSet::EMPTY;
    }
    // What somebody else has set apart needs nothing from us.
    wanted = wanted.iter().filter(|&cpu| ours.contains(cpu) || !alone(machine, cpu)).collect();
    if !wanted.is_empty() && wanted == ours && wanted.iter().all(|cpu| alone(machine, cpu)) {
        return with_helper(wanted, journal, log);
    }
    if begun.is_none() && wanted.is_empty() {
        return None;
    }
    // Whoever died with the daemon may have done so just now.
    clock::sleep_until(clock::now().saturating_add(longest_period(state)));
    if let Err(error) = partition::undo(journal) {
        log.error(format_args!("cpuset partitions of an earlier daemon can't be undone: {error}"));
        return None;
    }
    let mut made = None;
    if !wanted.is_empty() {
        let (cpuset, online) = (&machine.cgroups.cpuset, &machine.online);
        match partition::create(cpuset, online, &wanted, Version1::Allow, journal) {
            Ok(_) => made = with_helper(wanted, journal, log),
            Err(error) => log.error(format_args!("no cpuset partitions of CPUs {wanted}: {error}")),
        }
    }
    match Machine::probe() {
        Ok(now) => *machine = now,
        Err(error) => log.error(format_args!("this machine can't be looked at again: {error}")),
    }
    made
}

/// Without a helper there is nobody to undo them at the end, which the next start or a repair then
/// does.
fn with_helper(cpus: CpuSet, journal: &Path, log: &Log) -> Option<Partitions> {
    match start_helper(journal) {
        Ok(helper) => Some(Partitions { cpus, helper }),
        Err(error) => {
            log.error(format_args!(
                "cpuset partitions will stay when the daemon ends, it has no helper: {error}"
            ));
            None
        }
    }
}

/// The longest period of a deadline thread on record, with a margin; zero without one.
fn longest_period(state: &StateFile) -> Span {
    let records = state.records().filter_map(|(_, bytes)| Record::decode(bytes));
    let periods = records.filter_map(|record| match record.thread?.given.policy {
        Policy::Deadline { period, .. } => Some(period),
        _ => None,
    });
    periods.max().map_or(Span::ZERO, |period| period + MARGIN)
}

impl Partitions {
    /// The CPUs that have a domain each.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Puts everything back. The last deadline thread has left its share at `quiet`.
    pub(crate) fn undo(mut self, quiet: Option<Time>, log: &Log) {
        if let Some(quiet) = quiet {
            clock::sleep_until(quiet.saturating_add(MARGIN));
        }
        let mut tell = || -> io::Result<bool> {
            if let Some(mut line) = self.helper.stdin.take() {
                line.write_all(&[UNDO])?;
            }
            Ok(self.helper.wait()?.success())
        };
        match tell() {
            Ok(true) => {}
            // It has said itself what was wrong.
            Ok(false) => log.error("cpuset partitions could not be undone; `talea doctor --repair` tries again"),
            Err(error) => log.error(format_args!(
                "cpuset partitions can't be undone, their helper has ended: {error}; `talea doctor --repair` does it"
            )),
        }
    }
}

/// What became of the partitions of a broker that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// There are none.
    Nothing,
    /// They are undone.
    Undone,
    /// Deadline threads still live in them; put those back first.
    InUse,
}

/// Undoes what a broker that is gone has left. `state` is its open state file: whoever holds it is
/// alone with the journal.
///
/// # Errors
/// What can't be undone, and why.
pub fn repair(state: &StateFile, journal: &Path) -> Result<Repair, String> {
    if partition::begun(journal).map_err(|error| error.to_string())?.is_none() {
        return Ok(Repair::Nothing);
    }
    let mut records = state.records().filter_map(|(_, bytes)| Record::decode(bytes));
    if records.any(|record| is_in_deadline_class(&record)) {
        return Ok(Repair::InUse);
    }
    // Those that were put back a moment ago are not on record any more: as long as any could have
    // had.
    let longest =
        Machine::probe().map_or(Span::from_ns(4_194_304_000), |machine| machine.deadline_periods.1);
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
