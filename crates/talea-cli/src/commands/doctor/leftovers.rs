//! State that killed processes left: real-time threads of a dead broker, the cpuset partitions in
//! which it pinned them, shields, and programs of killed runs.
//!
//! Model: the state file lists the grants. The kernel knows which of those threads still live and
//! are real-time. Threads of a live broker or of a live `talea run` are not left over. For the
//! repair, a broker starts in this process, adopts the grants and releases them.

use crate::broker_client::{BrokerClient, Options, Refused, state_file};
use anyhow::Context;
use std::path::{Path, PathBuf};
use talea_daemon::Daemon;
use talea_daemon::partitions::{self, Repair};
use talea_os::statefile::StateError;
use talea_os::thread::Identity;
use talea_os::{Thread, Tid, cgroup, proc, sched, shield};
use talea_proto::record::{Record, RecordThread};
use talea_proto::{Code, SpecId};

/// State that a dead broker, run or application left.
#[derive(Clone, Debug)]
pub(super) enum Leftovers {
    /// Cpuset partitions that a dead broker left, without threads.
    Partitions,
    /// Shield of an application that was killed.
    Shield,
    /// Programs of killed runs, with the number of the runs.
    Programs(usize),
    /// Real-time threads without a live owner.
    Threads(Vec<String>),
    /// State that this process cannot read, with the reason.
    Hidden(String),
}

/// Real-time thread without a live owner.
struct LeftThread {
    spec: SpecId,
    tid: u32,
}

impl LeftThread {
    fn name(&self) -> String {
        let name = crate::kernel::name_of(self.tid).unwrap_or_default();
        format!("thread {} ({name}, spec {})", self.tid, self.spec.0)
    }
}

/// Returns all leftovers. The search for each kind is independent of the others.
pub(super) fn find_leftovers(options: &Options) -> Vec<Leftovers> {
    let mut found = Vec::new();
    match left_threads(options) {
        Ok(left) if left.is_empty() => {}
        Ok(left) => found.push(Leftovers::Threads(left.iter().map(LeftThread::name).collect())),
        Err(error) => found.push(Leftovers::Hidden(format!("{error:#}"))),
    }
    // With threads in them, the partitions are removed together with the threads.
    if found.is_empty() && partitions_are_left(options) {
        found.push(Leftovers::Partitions);
    }
    found.extend(shields());
    match cgroup::leftover().len() {
        0 => {}
        runs => found.push(Leftovers::Programs(runs)),
    }
    found
}

/// Returns the shields that applications left. These do not depend on a broker.
pub(super) fn shields() -> Vec<Leftovers> {
    if shield::has_leftover() { vec![Leftovers::Shield] } else { Vec::new() }
}

/// Restores all leftovers and returns one line for each.
pub(super) fn repair(options: &Options) -> anyhow::Result<Vec<String>> {
    let mut lines = end_programs().unwrap_or_else(|error| vec![format!("{error:#}")]);
    lines.extend(restore_shield());
    if BrokerClient::daemon(options).is_ok() {
        lines.push("nothing to repair: a daemon is running and manages its grants".to_owned());
        return Ok(lines);
    }
    let left = left_threads(options)
        .context("cannot read the state of the broker (only root, or the daemon's user, can)")?;
    if !left.is_empty() {
        let mut link = BrokerClient::for_repair(options)?;
        let restore = |left: LeftThread| match link.release(left.spec) {
            Ok(()) => format!("{}: restored", left.name()),
            // The broker released it during its start, because its owner or its plugin is gone.
            Err(error) if is_unknown(&error) => format!("{}: restored", left.name()),
            Err(error) => format!("{}: {error:#}", left.name()),
        };
        lines.extend(left.into_iter().map(restore));
    }
    // Only now, because a partition is removed when no thread is pinned there any more.
    lines.extend(undo_partitions(options)?);
    if lines.is_empty() {
        lines.push("nothing to repair: no thread was left real-time".to_owned());
    }
    Ok(lines)
}

/// Whether the broker does not know the spec.
fn is_unknown(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|Refused(refusal)| refusal.code == Code::NoSuchSpec)
}

/// Ends the programs of a `talea execute` that was killed together with its reaper.
fn end_programs() -> anyhow::Result<Vec<String>> {
    let ended = cgroup::remove_leftover()
        .context("cannot end the programs of a run that was killed (only root can)")?;
    Ok(ended.iter().map(|path| format!("{}: its programs were ended", path.display())).collect())
}

/// Restores the affinities that an application changed before it was killed together with its
/// reaper.
///
/// If this process lacks the right to do so, the other repairs still run.
fn restore_shield() -> Option<String> {
    let restored = match shield::recover() {
        Ok(restored) => restored?,
        Err(error) => {
            return Some(format!("a shield: cannot be restored (only root can): {error}"));
        }
    };
    let shield::Restored { restored, skipped: left, inherited, .. } = restored;
    Some(format!(
        "a shield: {restored} threads and interrupts restored, {inherited} that started meanwhile as well, {left} left unchanged because another process changed them"
    ))
}

/// Whether there is a journal of partitions that no live broker holds.
fn partitions_are_left(options: &Options) -> bool {
    let state = state_path(options);
    state.is_ok_and(|path| path.is_some_and(|path| partitions::journal_path(&path).exists()))
}

fn undo_partitions(options: &Options) -> anyhow::Result<Option<String>> {
    let Some(path) = state_path(options)? else { return Ok(None) };
    let journal = partitions::journal_path(&path);
    if !journal.try_exists().with_context(|| format!("cannot look for {}", journal.display()))? {
        return Ok(None);
    }
    // Held so that no broker starts in between.
    let state = Daemon::open_state(&path).map_err(|error| anyhow::anyhow!("{error}"))?;
    match partitions::repair(&state, &journal) {
        Ok(Repair::Nothing) => Ok(None),
        Ok(Repair::Undone) => Ok(Some("cpuset partitions: undone".to_owned())),
        Ok(Repair::InUse) => {
            Ok(Some("cpuset partitions: kept, deadline threads still live in them".to_owned()))
        }
        Err(error) => Ok(Some(format!("cpuset partitions: {error}"))),
    }
}

/// Returns the path of the state file. Returns `None` if its directory does not exist. Creates
/// neither the file nor the directory.
fn state_path(options: &Options) -> anyhow::Result<Option<PathBuf>> {
    // The check of the configuration reports an invalid one.
    let daemon = options.daemon_setup().unwrap_or_default();
    if !Path::new(&daemon.state_directory).exists() {
        return Ok(None);
    }
    state_file(&daemon).map(Some)
}

fn left_threads(options: &Options) -> anyhow::Result<Vec<LeftThread>> {
    let Some(path) = state_path(options)? else { return Ok(Vec::new()) };
    // Opening would create the file.
    if !path.try_exists().with_context(|| format!("cannot look for {}", path.display()))? {
        return Ok(Vec::new());
    }
    let state = match Daemon::open_state(&path) {
        Ok(state) => state,
        Err(StateError::InUse { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(anyhow::anyhow!("{error}")),
    };
    let records = state.records().filter_map(|(_, bytes)| Record::decode(bytes));
    Ok(records
        .filter(|record| !is_watched(record))
        .filter_map(|record| still_real_time(&record))
        .collect())
}

/// Whether the process that requested the grant is still alive, like `talea run` beside its
/// program.
fn is_watched(record: &Record) -> bool {
    let asker = i32::try_from(record.pid).ok().and_then(Tid::new);
    asker
        .and_then(|pid| proc::stat(pid).ok())
        .is_some_and(|stat| stat.start_ticks == record.pid_start && !stat.has_ended())
}

fn still_real_time(record: &Record) -> Option<LeftThread> {
    let RecordThread { tid, start, inode, .. } = record.thread?;
    let identity = Identity { tid: Tid::new(i32::try_from(tid).ok()?)?, inode, start_ticks: start };
    let thread = Thread::reopen(&identity).ok()?;
    let attr = sched::get(thread.tid()).ok()?;
    (attr.policy.is_realtime() && thread.is_alive())
        .then_some(LeftThread { spec: record.spec, tid })
}
