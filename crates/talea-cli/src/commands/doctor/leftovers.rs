//! Threads that a vanished broker left real-time, and the cpuset partitions in which it pinned
//! them; and what killed runs left.
//!
//! Model: the state file says what was granted; the kernel says which of those threads still live
//! and are real-time. What a living broker holds, or a living `talea run` has under its eyes, is
//! not left over. Putting back is the broker's own work: one is started here that takes the grants
//! over, and is told to release them.

use super::facts::Leftovers;
use crate::link::{Link, Options, state_file};
use anyhow::Context;
use std::path::{Path, PathBuf};
use talea_daemon::Server;
use talea_daemon::partitions::{self, Repair};
use talea_os::statefile::StateError;
use talea_os::thread::Identity;
use talea_os::{Thread, Tid, groups, proc, sched, shield};
use talea_proto::SpecId;
use talea_proto::record::{Record, RecordThread};

/// A thread that is real-time and that nobody looks after.
struct Left {
    spec: SpecId,
    tid: u32,
}

impl Left {
    fn name(&self) -> String {
        let name = crate::kernel::name_of(self.tid).unwrap_or_default();
        format!("thread {} ({name}, spec {})", self.tid, self.spec.0)
    }
}

/// What there is; each is looked for whatever became of the others.
pub(super) fn find(options: &Options) -> Vec<Leftovers> {
    let mut found = Vec::new();
    match left(options) {
        Ok(left) if left.is_empty() => {}
        Ok(left) => found.push(Leftovers::Threads(left.iter().map(Left::name).collect())),
        Err(error) => found.push(Leftovers::Hidden(format!("{error:#}"))),
    }
    // They have threads in them otherwise, and are undone with these.
    if found.is_empty() && partitions_are_left(options) {
        found.push(Leftovers::Partitions);
    }
    found.extend(shields());
    match groups::orphans().len() {
        0 => {}
        runs => found.push(Leftovers::Programs(runs)),
    }
    found
}

/// What applications have left, whoever grants.
pub(super) fn shields() -> Vec<Leftovers> {
    if shield::is_left() { vec![Leftovers::Shield] } else { Vec::new() }
}

/// Puts every such thread back, and says what was done.
pub(super) fn repair(options: &Options) -> anyhow::Result<Vec<String>> {
    let mut lines = end_programs()?;
    lines.extend(lower_shield());
    if Link::daemon(options).is_ok() {
        lines.push("nothing to repair: a daemon is running and looks after its grants".to_owned());
        return Ok(lines);
    }
    let left =
        left(options).context("cannot see what was left (only root, or the daemon's user, can)")?;
    if !left.is_empty() {
        let mut link = Link::for_repair(options)?;
        let put_back = |left: Left| match link.release(left.spec) {
            Ok(()) => format!("{}: put back", left.name()),
            Err(error) => format!("{}: {error:#}", left.name()),
        };
        lines.extend(left.into_iter().map(put_back));
    }
    // Only now: a partition is undone when nobody is pinned there any more.
    lines.extend(undo_partitions(options)?);
    if lines.is_empty() {
        lines.push("nothing to repair: no thread was left real-time".to_owned());
    }
    Ok(lines)
}

/// Programs of a `talea execute` that was killed together with whoever would have ended them.
fn end_programs() -> anyhow::Result<Vec<String>> {
    let ended = groups::sweep()
        .context("cannot end the programs of a run that was killed (only root can)")?;
    Ok(ended.iter().map(|path| format!("{}: its programs were ended", path.display())).collect())
}

/// CPUs that an application had cleared of others, and was killed together with its keeper.
///
/// Whoever may not put that back may yet put back other things.
fn lower_shield() -> Option<String> {
    let restored = match shield::sweep() {
        Ok(restored) => restored?,
        Err(error) => {
            return Some(format!("a shield: cannot be put back (only root can): {error}"));
        }
    };
    let shield::Restored { restored, left, inherited, .. } = restored;
    Some(format!(
        "a shield: {restored} threads and interrupts put back, {inherited} that began meanwhile too, {left} left to who changed them"
    ))
}

/// Whether there is a journal of partitions that no living broker holds.
fn partitions_are_left(options: &Options) -> bool {
    let state = state_path(options);
    state.is_ok_and(|path| path.is_some_and(|path| partitions::journal_of(&path).exists()))
}

fn undo_partitions(options: &Options) -> anyhow::Result<Option<String>> {
    let Some(path) = state_path(options)? else { return Ok(None) };
    let journal = partitions::journal_of(&path);
    if !journal.try_exists().with_context(|| format!("cannot look for {}", journal.display()))? {
        return Ok(None);
    }
    // Held meanwhile, so that no broker starts in between.
    let state = Server::open_state(&path).map_err(|error| anyhow::anyhow!("{error}"))?;
    match partitions::repair(&state, &journal) {
        Ok(Repair::Nothing) => Ok(None),
        Ok(Repair::Undone) => Ok(Some("cpuset partitions: undone".to_owned())),
        Ok(Repair::InUse) => {
            Ok(Some("cpuset partitions: kept, deadline threads still live in them".to_owned()))
        }
        Err(error) => Ok(Some(format!("cpuset partitions: {error}"))),
    }
}

/// The state file; `None` where its directory is not there. Looking must not make either.
fn state_path(options: &Options) -> anyhow::Result<Option<PathBuf>> {
    // A configuration that cannot be used is a finding of its own.
    let daemon = options.daemon_setup().unwrap_or_default();
    if !Path::new(&daemon.state_directory).exists() {
        return Ok(None);
    }
    state_file(&daemon).map(Some)
}

fn left(options: &Options) -> anyhow::Result<Vec<Left>> {
    let Some(path) = state_path(options)? else { return Ok(Vec::new()) };
    // Opening makes the file; looking must not.
    if !path.try_exists().with_context(|| format!("cannot look for {}", path.display()))? {
        return Ok(Vec::new());
    }
    let state = match Server::open_state(&path) {
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

/// Whether the process that asked still lives, as a `talea run` does beside its program.
fn is_watched(record: &Record) -> bool {
    let asker = i32::try_from(record.pid).ok().and_then(Tid::new);
    asker
        .and_then(|pid| proc::stat(pid).ok())
        .is_some_and(|stat| stat.start_ticks == record.pid_start)
}

fn still_real_time(record: &Record) -> Option<Left> {
    let RecordThread { tid, start, inode, .. } = record.thread?;
    let identity = Identity { tid: Tid::new(i32::try_from(tid).ok()?)?, inode, start_ticks: start };
    let thread = Thread::reopen(&identity).ok()?;
    let attr = sched::get(thread.tid()).ok()?;
    (attr.policy.is_realtime() && thread.is_alive()).then_some(Left { spec: record.spec, tid })
}
