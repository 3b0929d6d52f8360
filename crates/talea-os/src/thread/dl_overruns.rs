//! Threads that left SCHED_DEADLINE with an overrun, and the time until which each must stay out of
//! the class.
//!
//! Model: an overrun is a property of the thread, not of the process that demoted it. So there is
//! one table per process, and it is mirrored in each file that a caller [registers](persist_to):
//! the next process that manages a thread must know the overruns that the last one caused. What a
//! thread certainly owes is in its slot, in memory and in each file, before it leaves the class. An
//! entry is only lengthened, except by the exit that recorded it as pending, and then to the
//! longest of what was known before, what that exit found, and what others recorded since.
//!
//! | entry | transition |
//! | --- | --- |
//! | none | *pending*: `record_pending`; *recorded*: `record` |
//! | *pending*, until t | *recorded* or none: `settle` |
//! | *recorded*, until t | none: t has passed; *transferred*: the thread has ended |
//! | *transferred* | to the main thread of the ended thread's process, where it is *recorded* |
//!
//! A thread that starts a program (`execve`) replaces its process's main thread and takes its
//! number, and it keeps its overrun. From outside that looks like any other end of a thread. So the
//! overrun of an ended thread is held against its process's main thread until it is paid off. It is
//! not held against the main thread of a later process with the same number: the incarnation of the
//! main thread is recorded and transferred with the overrun. If the incarnation was not readable,
//! no thread inherits.
//!
//! Cost: a query or a change takes the logarithm of the number of entries; a new entry also checks
//! `SCANS_PER_INSERT` others for whether they still stand. A query for a main thread considers
//! each entry of its process, and checks `MAX_PROBES` of them. A check takes one or two dozen
//! system calls. The number of slots is about twice the largest number of threads with an overrun
//! at one time, plus a few.

use super::errors::OpenError;
use super::key::{ThreadIncarnation, ThreadKey};
use super::{Identity, Thread};
use crate::statefile::{StateError, StateFile};
use crate::{Tid, clock};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use talea_core::mutate;
use talea_core::{Monotonic, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Overrun {
    thread: ThreadKey,
    /// Incarnation of the main thread of the thread's process.
    main_incarnation: ThreadIncarnation,
    until: Monotonic,
}

#[derive(Debug)]
struct OverrunTable {
    slots: Vec<Option<Overrun>>,
    /// `index[key]`: slot of the thread with this key.
    index: BTreeMap<ThreadKey, usize>,
    free: Vec<usize>,
    /// Slot of the entry that was last checked for whether it still stands.
    scan_pos: usize,
    /// Pending entries. Each has the longest overrun that was recorded since then for the same
    /// thread.
    pending: Vec<(ThreadKey, Option<Monotonic>)>,
    files: Vec<(u64, StateFile)>,
    last_file: u64,
}

static TABLE: Mutex<OverrunTable> = Mutex::new(OverrunTable {
    slots: Vec::new(),
    index: BTreeMap::new(),
    free: Vec::new(),
    scan_pos: 0,
    pending: Vec::new(),
    files: Vec::new(),
    last_file: 0,
});
/// Number of entries, so that the common case takes no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Initial number of slots of a file. Up to that number no old entries are removed.
const MIN_SLOTS: usize = 16;
/// Number of slots checked before a new one is created. It is more than one, so that old entries
/// disappear faster than new ones are created.
const SCANS_PER_INSERT: usize = 4;
/// Maximum number of threads of one process that are checked for whether they live. The entries of
/// all further threads count.
const MAX_PROBES: usize = 16;

/// Guard that keeps a file up to date. The next process that opens the file finds the last state.
#[derive(Debug)]
pub struct PersistGuard(u64);

/// Mirrors the overruns of threads that left the deadline class in a file at `path`. Reads the
/// overruns that an earlier process of this boot has left in the file.
///
/// # Errors
/// Those of [`StateFile::open_waiting`]. The file is for one process at a time, and a killed
/// process takes a moment to release it.
pub fn persist_to(path: &Path) -> Result<PersistGuard, StateError> {
    const OPEN_TIMEOUT: Span = Span::from_ns(500_000_000);
    let mut file = StateFile::open_waiting(path, OVERRUN_SIZE, MIN_SLOTS, OPEN_TIMEOUT)?;
    let found: Vec<_> =
        (0..file.capacity()).map(|slot| file.get(slot).and_then(Overrun::decode)).collect();
    let used = found.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let mut table = lock();
    let had_slots = !table.slots.is_empty();
    let now = clock::now();
    for (slot, overrun) in found.into_iter().enumerate() {
        let Some(overrun) = mutate!(
            "os-debts-next",
            overrun.filter(|overrun| overrun.until > now),
            overrun.filter(|overrun| overrun.until > now && overrun.until == Monotonic::ZERO)
        ) else {
            continue;
        };
        // An ended thread owes nothing itself, and its number may be another thread's.
        match overrun.status() {
            OverrunStatus::Alive | OverrunStatus::Unknown => table.extend(overrun, Some(slot)),
            OverrunStatus::Transferred(inherited) => table.extend(inherited, Some(slot)),
            OverrunStatus::Over => {}
        }
    }
    // Without slots in memory each entry keeps its slot in the file, or moves up. Otherwise one may
    // have had to move: then all are written behind the others first, so that none is lost if this
    // process is killed here.
    let behind = mutate!(
        "os-debts-grow",
        used.max(table.slots.len()),
        file.capacity().max(used).max(table.slots.len())
    );
    if had_slots {
        for (number, overrun) in table.slots.iter().flatten().enumerate() {
            file.write(behind + number, &overrun.encode())?;
        }
    }
    for slot in 0..file.capacity() {
        mutate!(
            "os-debts-twice",
            match table.slots.get(slot) {
                Some(Some(overrun)) => file.write(slot, &overrun.encode())?,
                _ => file.clear(slot),
            },
            match table.slots.get(slot) {
                Some(Some(overrun)) => file.write(slot, &overrun.encode())?,
                _ if slot < used => file.clear(slot),
                _ => {}
            }
        )
    }
    // Space for all slots, so that a later record need not grow the file.
    if let Some(last) = table.slots.len().checked_sub(1).filter(|&last| last >= file.capacity()) {
        file.write(last, &[])?;
        file.clear(last);
    }
    table.last_file += 1;
    let name = table.last_file;
    table.files.push((name, file));
    Ok(PersistGuard(name))
}

impl Drop for PersistGuard {
    fn drop(&mut self) {
        lock().files.retain(|(name, _)| *name != self.0);
    }
}

/// Returns the time until which the thread must not enter SCHED_DEADLINE. Returns `None` if the
/// thread may enter.
pub(super) fn blocked_until(key: &ThreadKey) -> Option<Monotonic> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut table = lock();
    let others = mutate!(
        "os-debts-exec",
        if key.tid == key.process { table.inherit_from_ended(key) } else { None },
        if key.tid == key.process && key.incarnation.inode == 1 {
            table.inherit_from_ended(key)
        } else {
            None
        }
    );
    let now = clock::now();
    let own = table.find(key);
    if own.is_some_and(|until| until <= now) {
        table.remove(key);
    }
    own.max(others).filter(|&until| until > now)
}

/// Reserves a slot for one more entry. The call may block, so the caller makes it before the part
/// of the exit that must not block.
pub(super) fn reserve_slot() {
    lock().reserve_slot();
}

/// Result of [`record_pending`].
#[derive(Debug)]
pub(super) struct PendingRecord {
    key: ThreadKey,
    /// Entry of the thread before [`record_pending`].
    before: Option<Monotonic>,
    /// Whether [`record_pending`] has recorded a pending entry.
    is_recorded: bool,
}

/// Records, before the demotion, that the thread must stay out of the class until the result of
/// `until`, which gets the previous entry. Only a later time replaces the previous entry.
pub(super) fn record_pending(
    key: ThreadKey,
    until: impl Fn(Option<Monotonic>) -> Option<Monotonic>,
) -> PendingRecord {
    if COUNT.load(Ordering::Relaxed) == 0 && until(None).is_none() {
        return PendingRecord { key, before: None, is_recorded: false };
    }
    let mut table = lock();
    // Before the query: an entry that is removed to make room may be transferred to this thread.
    if !table.index.contains_key(&key) {
        table.reserve_slot();
    }
    let before = mutate!("os-debts-room", table.find(&key), None);
    let until = until(before);
    if until > before {
        table.store(
            Overrun {
                thread: key,
                main_incarnation: ThreadIncarnation::UNKNOWN,
                until: until.expect("later than the previous entry"),
            },
            None,
        );
    }
    let is_recorded = until.is_some();
    if is_recorded {
        table.pending.push((key, None));
    }
    PendingRecord { key, before, is_recorded }
}

/// Replaces the pending entry by the latest of three: the actual overrun, the entry before, and
/// what was recorded meanwhile. Calls `main` only if there is an overrun.
pub(super) fn settle(
    pending_record: &PendingRecord,
    owes: Option<Monotonic>,
    main: impl FnOnce() -> ThreadIncarnation,
) {
    let &PendingRecord { key, before, is_recorded } = pending_record;
    if !is_recorded && owes.is_none() {
        return;
    }
    let main = if owes.is_some() { main() } else { ThreadIncarnation::UNKNOWN };
    let mut table = lock();
    if owes.is_some() && !table.index.contains_key(&key) {
        table.reserve_slot();
    }
    let open = table.pending.iter().position(|(other, _)| is_recorded && *other == key);
    // Only what was recorded as pending is withdrawn.
    let others = mutate!(
        "os-debts-alone",
        match open {
            Some(open) => table.pending.swap_remove(open).1,
            None => table.find(&key),
        },
        match open {
            Some(open) => table.pending.swap_remove(open).1.filter(|_| false),
            None => table.find(&key),
        }
    );
    mutate!(
        "os-debts-provisional",
        match mutate!("os-debts-before", before.max(others).max(owes), others.max(owes)) {
            Some(until) =>
                table.store(Overrun { thread: key, main_incarnation: main, until }, None),
            None => table.remove(&key),
        },
        match before.max(others).max(owes) {
            Some(until) =>
                table.store(Overrun { thread: key, main_incarnation: main, until }, None),
            None => {}
        }
    )
}

/// Records that the thread must stay out of the class until `until`, if no later time is known.
pub(super) fn record(key: ThreadKey, main: ThreadIncarnation, until: Monotonic) {
    lock().extend(Overrun { thread: key, main_incarnation: main, until }, None);
}

fn lock() -> MutexGuard<'static, OverrunTable> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OverrunTable {
    fn find(&self, key: &ThreadKey) -> Option<Monotonic> {
        let slot = *self.index.get(key)?;
        self.slots[slot].map(|overrun| overrun.until)
    }

    fn extend(&mut self, overrun: Overrun, preferred: Option<usize>) {
        // As in [`record_pending`].
        if preferred.is_none() && !self.index.contains_key(&overrun.thread) {
            self.reserve_slot();
        }
        if self.find(&overrun.thread).is_none_or(|until| {
            mutate!("os-debts-shortened", until < overrun.until, until != overrun.until)
        }) {
            self.store(overrun, preferred);
        }
        self.note_pending(overrun);
    }

    /// Records an overrun beside the pending entry of its thread, if there is one.
    fn note_pending(&mut self, overrun: Overrun) {
        if let Some((_, is_recorded)) =
            self.pending.iter_mut().find(|(key, _)| *key == overrun.thread)
        {
            *is_recorded = (*is_recorded).max(Some(overrun.until));
        }
    }

    /// Stores an entry in the slot of its thread. If the thread has no slot, uses the preferred
    /// slot or any free one.
    fn store(&mut self, overrun: Overrun, preferred: Option<usize>) {
        let slot = self.index.get(&overrun.thread).copied().unwrap_or_else(|| {
            let slot = self.take_slot(preferred);
            self.index.insert(overrun.thread, slot);
            COUNT.fetch_add(1, Ordering::Relaxed);
            slot
        });
        self.write(slot, overrun);
    }

    fn take_slot(&mut self, preferred: Option<usize>) -> usize {
        if let Some(slot) = preferred.filter(|&slot| slot >= self.slots.len()) {
            self.free.extend(self.slots.len()..slot);
            self.slots.resize(slot + 1, None);
            return slot;
        }
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        })
    }

    /// Ensures that a slot is free, in memory and in each file.
    fn reserve_slot(&mut self) {
        if self.free.is_empty()
            && mutate!(
                "os-debts-sweep",
                self.slots.len() >= MIN_SLOTS,
                self.slots.len() > usize::MAX / 2
            )
        {
            let now = clock::now();
            for _ in 0..SCANS_PER_INSERT {
                self.scan_pos = (self.scan_pos + 1) % self.slots.len();
                if let Some(overrun) = self.slots[self.scan_pos] {
                    self.refresh(overrun, now);
                }
            }
        }
        if self.free.is_empty() {
            let slot = self.take_slot(None);
            self.free.push(slot);
            for (_, mirror) in &mut self.files {
                // A file that cannot grow does without it.
                drop(mirror.write(slot, &[]));
                mirror.clear(slot);
            }
        }
    }

    fn write(&mut self, slot: usize, mut overrun: Overrun) {
        let old = self.slots[slot].filter(|old| old.thread == overrun.thread);
        if overrun.main_incarnation == ThreadIncarnation::UNKNOWN {
            overrun.main_incarnation =
                old.map_or(ThreadIncarnation::UNKNOWN, |old| old.main_incarnation);
        }
        self.slots[slot] = Some(overrun);
        for (_, mirror) in &mut self.files {
            // Without space in the file the entry ends with this process.
            drop(mirror.write(slot, &overrun.encode()));
        }
    }

    fn remove(&mut self, key: &ThreadKey) {
        let Some(slot) = self.index.remove(key) else { return };
        COUNT.fetch_sub(1, Ordering::Relaxed);
        self.slots[slot] = None;
        self.free.push(slot);
        for (_, mirror) in &mut self.files {
            mirror.clear(slot);
        }
    }

    /// Removes an entry that is paid off. Transfers the entry of an ended thread to the main thread
    /// of its process, if there is one. Returns the time of an entry whose thread could not be
    /// checked.
    fn refresh(&mut self, overrun: Overrun, now: Monotonic) -> Option<Monotonic> {
        match if overrun.until > now { overrun.status() } else { OverrunStatus::Over } {
            OverrunStatus::Alive => {}
            OverrunStatus::Unknown => return Some(overrun.until),
            OverrunStatus::Transferred(inherited) if self.index.contains_key(&inherited.thread) => {
                mutate!("os-debts-stale", self.extend(inherited, None));

                self.remove(&overrun.thread);
            }
            // In place: the entry exists at every moment.
            OverrunStatus::Transferred(inherited) => {
                let slot = self.index.remove(&overrun.thread).expect("each entry is indexed");
                self.index.insert(inherited.thread, slot);
                self.write(slot, inherited);
                self.note_pending(inherited);
            }
            OverrunStatus::Over => self.remove(&overrun.thread),
        }
        None
    }

    /// Transfers the overruns of ended threads to the main thread of their process. Returns the
    /// latest time of the entries that were not checked or could not be checked.
    fn inherit_from_ended(&mut self, main: &ThreadKey) -> Option<Monotonic> {
        let first = ThreadKey {
            tid: Tid::new(1).expect("a number"),
            incarnation: ThreadIncarnation::UNKNOWN,
            ..*main
        };
        let process =
            self.index.range(first..).take_while(|(other, _)| other.process == main.process);
        let others = process.filter(|(other, _)| other.tid != main.tid);
        let others: Vec<Overrun> = others.filter_map(|(_, &slot)| self.slots[slot]).collect();
        let now = clock::now();
        let (asked, rest) = others.split_at(others.len().min(MAX_PROBES));
        let unknown = asked.iter().filter_map(|&overrun| self.refresh(overrun, now)).max();
        mutate!(
            "os-debts-crowd",
            unknown.max(rest.iter().map(|overrun| overrun.until).max()),
            unknown.max(rest.iter().skip(usize::MAX).map(|overrun| overrun.until).max())
        )
    }
}

const OVERRUN_SIZE: usize = 56;

impl Overrun {
    fn encode(self) -> [u8; OVERRUN_SIZE] {
        let Overrun {
            thread: ThreadKey { process, tid, incarnation: mark },
            main_incarnation: main,
            until,
        } = self;
        let (process, tid) = (process.as_raw() as u64, tid.as_raw() as u64);
        let words = [process, tid, mark.inode, mark.start, main.inode, main.start, until.as_ns()];
        let mut bytes = [0; OVERRUN_SIZE];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Overrun> {
        let mut words = bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_ne_bytes(word));
        let mut word = || words.next();
        let tid = |word: u64| i32::try_from(word).ok().and_then(Tid::new);
        let (process, tid) = (tid(word()?)?, tid(word()?)?);
        let mark = ThreadIncarnation { inode: word()?, start: word()? };
        let main = ThreadIncarnation { inode: word()?, start: word()? };
        Some(Overrun {
            thread: ThreadKey { process, tid, incarnation: mark },
            main_incarnation: main,
            until: Monotonic::from_ns(word()?),
        })
    }

    /// Returns the status of an entry.
    fn status(&self) -> OverrunStatus {
        let ThreadKey {
            process,
            tid,
            incarnation: ThreadIncarnation { inode, start: start_ticks },
        } = self.thread;
        match Thread::reopen(&Identity { tid, inode, start_ticks }) {
            Err(error) if has_ended(&error) && tid == process => {
                mutate!("os-debts-dead", OverrunStatus::Over, OverrunStatus::Alive)
            }
            Err(error) if has_ended(&error) => match Thread::open(process) {
                Ok(main)
                    if mutate!(
                        "os-debts-inherited",
                        main.tgid() == process
                            && self.main_incarnation.identifies(main.key().incarnation),
                        main.tgid() == process
                            && tid == process
                            && self.main_incarnation.identifies(main.key().incarnation)
                    ) =>
                {
                    let key = main.key();
                    OverrunStatus::Transferred(Overrun {
                        thread: key,
                        main_incarnation: key.incarnation,
                        ..*self
                    })
                }
                Ok(_) => OverrunStatus::Over,
                Err(error) if has_ended(&error) => OverrunStatus::Over,
                Err(_) => OverrunStatus::Unknown,
            },
            Ok(_) => OverrunStatus::Alive,
            Err(_) => OverrunStatus::Unknown,
        }
    }
}

/// Status of an entry that is not paid off.
#[derive(Debug)]
enum OverrunStatus {
    /// The thread lives.
    Alive,
    /// The thread has ended, and the main thread of its process inherits the entry.
    Transferred(Overrun),
    /// The thread and the main thread of its process have ended.
    Over,
    /// The threads could not be checked.
    Unknown,
}

/// Whether the thread with the number of the entry is not the thread of the entry.
fn has_ended(error: &OpenError) -> bool {
    matches!(error, OpenError::Gone | OpenError::OtherThread | OpenError::KernelThread)
}

#[cfg(test)]
pub(super) mod tests;
