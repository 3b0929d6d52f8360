//! Journal of the affinities that a shield changes, written before each change, readable by a
//! reaper.
//!
//! File format: a fixed-size record with the owner (boot id, reaper's parent thread, start time),
//! then a record per change: what, its affinity before, and the affinity that we applied. Each
//! record is one write, so a killed writer leaves a whole record or none that counts. Records name
//! threads by number and start time, interrupts by number, and contain no paths, so a reader can
//! change nothing else.
//!
//! Restoring goes backwards over the records:
//!
//! | object | found now | action |
//! | --- | --- | --- |
//! | thread | ended, or another thread with its number | counted as ended |
//! | thread | the applied affinity, as far as its CPUs are online | set the affinity before |
//! | thread | the affinity before | none |
//! | thread | another affinity | none: changed by another process since; counted as skipped |
//! | interrupt | the applied mask, delivered to another CPU than before | *return*, see below |
//! | mask | the applied mask, or that of an interrupted `restoring` | write the mask before |
//! | mask | the mask before | none |
//! | mask | another mask | none; counted as skipped |
//! | mask | unreadable | counted as ended: its device is gone |
//!
//! An interrupt *returns* in two steps: mark the record `restoring` and set the mask to its
//! previous CPU; wait up to [`INTERRUPT_WAIT_MS`] until it is delivered there. Its mask is then
//! restored as any other.
//!
//! The kernel never reports offline CPUs, so the applied affinity of a thread is compared without
//! them.
//!
//! A process locks the file while it starts or restores a journal. A killed process that cannot end
//! may keep the lock, so the next process takes it over ([`file_lock`]), which replaces the file. A
//! living owner appends to the file that it has open: then the file stays, and no lock is needed to
//! report the owner.

use super::ops::{AffinityTarget, SystemOps};
use crate::file_lock::{self, Lock};
use crate::files::{Problem, Untrusted};
use crate::{Tid, clock};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;
use talea_core::CpuSet;
use talea_core::cpus::MAX_CPUS;
use talea_core::mutate;

const MASK_WORDS: usize = MAX_CPUS / 64;
/// Size of each record in words.
const RECORD_WORDS: usize = 8 + 2 * MASK_WORDS;
const RECORD_BYTES: usize = 8 * RECORD_WORDS;
/// Magic number of the file format.
const MAGIC: u64 = u64::from_ne_bytes(*b"talea-s1");
/// Time limit in milliseconds within which interrupts must occur on their previous CPU.
const INTERRUPT_WAIT_MS: u32 = 50;
/// Interval between two attempts to lock a file that a living process restores.
const LOCK_RETRY: Duration = Duration::from_millis(5);

type Record = [u64; RECORD_WORDS];

/// Owner of a shield: the parent thread of its reaper, with the start time of that thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) thread: Tid,
    pub(super) start_ticks: u64,
}

/// Object whose affinity was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Affinity of a thread.
    Thread {
        process: Tid,
        tid: Tid,
        start: u64,
        /// Whether the affinity before the change contained all CPUs of the machine.
        anywhere: bool,
    },
    /// Affinity mask of an object that is not a thread.
    Mask(AffinityTarget),
}

/// Record of one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) change: Change,
    /// CPU to which the interrupt was delivered before the change. The kernel does not choose this
    /// CPU again by itself.
    pub(super) previous_cpu: Option<u32>,
    /// Whether restoring of the interrupt has begun, which takes two steps.
    pub(super) restoring: bool,
    pub(super) before: CpuSet,
    pub(super) applied: CpuSet,
}

/// Result of restoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Number of objects restored.
    pub restored: u32,
    /// Number of objects that another process has changed since then. They are left unchanged.
    pub skipped: u32,
    /// Number of threads that have ended.
    pub ended: u32,
    /// Number of threads created while the shield was active that had inherited a changed affinity.
    /// Each got the affinity that its parent had before the shield.
    pub inherited: u32,
}

/// Open journal file.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
}

fn tid_from_word(word: u64) -> Option<Tid> {
    Tid::new(i32::try_from(word).ok()?)
}

fn word_from_tid(tid: Tid) -> u64 {
    u64::from(tid.as_raw().unsigned_abs())
}

impl Entry {
    fn to_record(self) -> Record {
        let mut page = [0; RECORD_WORDS];
        match self.change {
            Change::Thread { process, tid, start, anywhere } => {
                page[..5].copy_from_slice(&[
                    1,
                    word_from_tid(tid),
                    word_from_tid(process),
                    start,
                    u64::from(anywhere),
                ]);
            }
            Change::Mask(AffinityTarget::NewInterrupts) => page[0] = 2,
            Change::Mask(AffinityTarget::UnboundWorkers) => page[0] = 3,
            Change::Mask(
                AffinityTarget::Interrupt(number) | AffinityTarget::EffectiveInterrupt(number),
            ) => {
                page[..2].copy_from_slice(&[4, u64::from(number)]);
            }
        }
        page[5] = self.previous_cpu.map_or(0, |cpu| u64::from(cpu) + 1);
        page[6] = u64::from(self.restoring);
        page[8..8 + MASK_WORDS].copy_from_slice(self.before.words());
        page[8 + MASK_WORDS..].copy_from_slice(self.applied.words());
        page
    }

    fn from_record(page: &Record) -> Option<Entry> {
        let what = match page[0] {
            1 => Change::Thread {
                process: tid_from_word(page[2])?,
                tid: tid_from_word(page[1])?,
                start: page[3],
                anywhere: page[4] != 0,
            },
            2 => Change::Mask(AffinityTarget::NewInterrupts),
            3 => Change::Mask(AffinityTarget::UnboundWorkers),
            4 => Change::Mask(AffinityTarget::Interrupt(u32::try_from(page[1]).ok()?)),
            _ => return None,
        };
        let set = |from: usize| {
            let mut words = [0; MASK_WORDS];
            words.copy_from_slice(&page[from..from + MASK_WORDS]);
            CpuSet::from_words(words)
        };
        Some(Entry {
            change: what,
            previous_cpu: page[5].checked_sub(1).and_then(|cpu| u32::try_from(cpu).ok()),
            restoring: page[6] != 0,
            before: set(8),
            applied: set(8 + MASK_WORDS),
        })
    }
}

impl Owner {
    fn is_alive(&self, ops: &dyn SystemOps) -> bool {
        // The process is irrelevant: `/proc` finds threads by their own number, too.
        let stat = ops.stat(self.thread, self.thread);
        stat.is_ok_and(|stat| stat.start_ticks == self.start_ticks && !stat.has_ended())
    }
}

impl Journal {
    /// Opens and locks the file. Returns the owner in place of the journal if the owner lives.
    /// Creates the file if `make` is set; otherwise returns `None` if the file does not exist.
    fn open(
        path: &Path,
        make: bool,
        ops: &dyn SystemOps,
        boot: [u8; 16],
    ) -> io::Result<Option<Result<Journal, Owner>>> {
        loop {
            let mut options = File::options();
            options.read(true).write(true).create(make).mode(0o600);
            options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
            let file = match options.open(path) {
                Err(error) if !make && error.kind() == io::ErrorKind::NotFound => return Ok(None),
                file => file?,
            };
            // Its records change affinities of the whole machine: no other user may have written
            // them.
            match crate::files::check_trusted(path) {
                // The previous owner has removed it meanwhile.
                Err(Untrusted { problem: Problem::Os(error), .. })
                    if error.kind() == io::ErrorKind::NotFound =>
                {
                    continue;
                }
                checked => {
                    checked.map_err(|untrusted| {
                        io::Error::new(io::ErrorKind::PermissionDenied, untrusted)
                    })?;
                }
            }
            let journal = Journal { file };
            if let Some(owner) = journal.owner(boot).filter(|owner| owner.is_alive(ops)) {
                return Ok(Some(Err(owner)));
            }
            let locked = file_lock::lock(path, journal.file)?;
            if let Lock::Held(_) = locked {
                std::thread::sleep(LOCK_RETRY);
            }
            if let Some(journal) = locked.taken().map(|file| Journal { file })
                && journal.is_at(path)
            {
                // Another process may have become the owner before the lock.
                let owner = journal.owner(boot).filter(|owner| owner.is_alive(ops));
                return Ok(Some(owner.map_or(Ok(journal), Err)));
            }
        }
    }

    /// Whether the open file is still at `path`. The previous owner may have removed the file and
    /// another process created a new one.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let (Ok(found), Ok(own)) = (path.symlink_metadata(), self.file.metadata()) else {
            return false;
        };
        (own.dev(), own.ino()) == (found.dev(), found.ino())
    }

    /// Opens and locks the journal of this owner for its reaper. Returns `None` if the journal was
    /// restored already. Allocates nothing. Other processes wait until the reaper ends.
    pub(super) fn reopen(path: &Path, owner: Owner, boot: [u8; 16]) -> io::Result<Option<Journal>> {
        let journal = Journal::open_existing(path)?;
        flock(&journal.file, FlockOperation::LockExclusive)?;
        Ok((journal.is_at(path) && journal.owner(boot) == Some(owner)).then_some(journal))
    }

    fn open_existing(path: &Path) -> io::Result<Journal> {
        Ok(Journal {
            file: File::options()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NOFOLLOW)
                .open(path)?,
        })
    }

    /// Starts an empty journal of this owner, after restoring the journal of a dead owner. Returns
    /// the other owner if it lives.
    pub(super) fn start(
        path: &Path,
        ops: &dyn SystemOps,
        owner: Owner,
        boot: [u8; 16],
    ) -> io::Result<Result<Journal, Owner>> {
        let opened =
            Journal::open(path, true, ops, boot)?.ok_or_else(|| crate::sys::errno(libc::ENOENT))?;
        let journal = match opened {
            Ok(journal) => journal,
            Err(owner) => return Ok(Err(owner)),
        };
        if journal.owner(boot).is_some() {
            journal.undo(ops);
        }
        journal.file.set_len(0)?;
        journal.write_owner(owner, boot)?;
        flock(&journal.file, FlockOperation::Unlock)?;
        Ok(Ok(journal))
    }

    /// Writes the owner's record.
    fn write_owner(&self, owner: Owner, boot: [u8; 16]) -> io::Result<()> {
        let mut page = [0; RECORD_WORDS];
        page[0] = MAGIC;
        for (word, bytes) in page[1..3].iter_mut().zip(boot.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().map_err(io::Error::other)?);
        }
        page[3..5].copy_from_slice(&[word_from_tid(owner.thread), owner.start_ticks]);
        self.write_record(0, &page)
    }

    /// Restores the journal of a dead owner and removes the file. Returns `None` if there is no
    /// journal or its owner lives.
    pub(super) fn recover(path: &Path, ops: &dyn SystemOps) -> io::Result<Option<Restored>> {
        let boot = clock::boot_id()?;
        let Some(Ok(journal)) = Journal::open(path, false, ops, boot)? else { return Ok(None) };
        let restored = journal.owner(boot).map(|_| journal.undo(ops));
        std::fs::remove_file(path)?;
        Ok(restored)
    }

    /// Whether there is a journal of a dead owner with changes. An owner that was killed before it
    /// had a reaper has no changes.
    pub(super) fn has_leftover(path: &Path, ops: &dyn SystemOps) -> bool {
        let (Ok(boot), Ok(journal)) = (clock::boot_id(), Journal::open_existing(path)) else {
            return false;
        };
        journal.len() > 0 && journal.owner(boot).is_some_and(|owner| !owner.is_alive(ops))
    }

    /// Returns the owner if the journal is of this boot.
    fn owner(&self, boot: [u8; 16]) -> Option<Owner> {
        let page = self.read_record(0)?;
        let is_of = |word: u64, bytes: &[u8]| word.to_ne_bytes() == bytes;
        if page[0] != MAGIC || !is_of(page[1], &boot[..8]) || !is_of(page[2], &boot[8..]) {
            return None;
        }
        Some(Owner { thread: tid_from_word(page[3])?, start_ticks: page[4] })
    }

    pub(super) fn read_record(&self, at: u64) -> Option<Record> {
        let mut bytes = [0; RECORD_BYTES];
        self.file.read_exact_at(&mut bytes, at * RECORD_BYTES as u64).ok()?;
        let mut page = [0; RECORD_WORDS];
        for (word, eight) in page.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut own = [0; 8];
            own.copy_from_slice(eight);
            *word = u64::from_ne_bytes(own);
        }
        Some(page)
    }

    /// Writes a record in one system call.
    fn write_record(&self, at: u64, page: &Record) -> io::Result<()> {
        let mut bytes = [0; RECORD_BYTES];
        for (eight, word) in bytes.chunks_exact_mut(8).zip(page) {
            eight.copy_from_slice(&word.to_ne_bytes());
        }
        self.file.write_all_at(&bytes, at * RECORD_BYTES as u64)
    }

    /// Returns the number of changes.
    pub(super) fn len(&self) -> u64 {
        let length = self.file.metadata().map_or(0, |meta| meta.len());
        (length / RECORD_BYTES as u64).saturating_sub(1)
    }

    pub(super) fn entry(&self, at: u64) -> Option<Entry> {
        Entry::from_record(&self.read_record(at + 1)?)
    }

    /// Appends a change and returns its number.
    pub(super) fn append(&self, entry: &Entry) -> io::Result<u64> {
        let at = self.len();
        self.write_record(at + 1, &entry.to_record()).map(|()| at)
    }

    /// Replaces a change.
    pub(super) fn update(&self, at: u64, entry: &Entry) -> io::Result<()> {
        self.write_record(at + 1, &entry.to_record())
    }

    /// Restores all objects as the table of the module head says. Allocates nothing, because a
    /// reaper calls the function, too. Idempotent.
    ///
    /// An interrupt returns to its previous CPU: it is first restricted to that CPU, then gets its
    /// mask back. The kernel moves an interrupt when the interrupt occurs, and never otherwise. An
    /// interrupt that does not occur within [`INTERRUPT_WAIT_MS`] stays on its CPU, with its mask
    /// restored.
    pub(super) fn undo(&self, ops: &dyn SystemOps) -> Restored {
        let mut restored = Restored::default();
        let online = ops.online();
        for at in (0..self.len()).rev() {
            let Some(entry) = self.entry(at) else { continue };
            match entry.change {
                _ if mutate!(
                    "os-shield-keeps-pinned",
                    false,
                    matches!(entry.change, Change::Thread { anywhere: false, .. })
                ) => {}
                Change::Thread { process, tid, start, .. } => {
                    let thread = (process, tid, start);
                    mutate!(
                        "os-shield-gives-nothing-back",
                        restore_thread(ops, &entry, thread, &online, &mut restored)
                    );
                }
                Change::Mask(target) if is_interrupt_moved(ops, &entry, target) => {
                    // Without this record a successor after a kill would find neither the mask
                    // before nor the applied one.
                    let _ = self.update(at, &Entry { restoring: true, ..entry });
                    let _ =
                        entry.previous_cpu.map(|cpu| ops.write_mask(target, &CpuSet::single(cpu)));
                }
                Change::Mask(_) => {}
            }
        }
        mutate!("os-shield-children", self.restore_inherited(ops, &online, &mut restored));

        self.wait_for_interrupts(ops);
        for at in (0..self.len()).rev() {
            if let Some(entry) = self.entry(at)
                && let Change::Mask(target) = entry.change
            {
                restore_mask(ops, &entry, target, &mut restored);
            }
        }
        restored
    }

    /// Waits until the interrupts have moved to their previous CPUs, for at most
    /// [`INTERRUPT_WAIT_MS`].
    fn wait_for_interrupts(&self, ops: &dyn SystemOps) {
        for _ in 0..INTERRUPT_WAIT_MS {
            let is_moving = |at| {
                self.entry(at).is_some_and(|entry| match entry.change {
                    Change::Mask(target) => {
                        entry.restoring && is_interrupt_moved(ops, &entry, target)
                    }
                    Change::Thread { .. } => false,
                })
            };
            if !(0..self.len()).any(is_moving) {
                return;
            }
            ops.sleep_1_ms();
        }
    }
}

/// Whether an interrupt still has the applied mask but is delivered to another CPU than before.
fn is_interrupt_moved(ops: &dyn SystemOps, entry: &Entry, target: AffinityTarget) -> bool {
    let (AffinityTarget::Interrupt(number), Some(cpu)) = (target, entry.previous_cpu) else {
        return false;
    };
    let is_ours = ops.read_mask(target).is_ok_and(|found| found == applied_mask(entry));
    is_ours
        && ops
            .read_mask(AffinityTarget::EffectiveInterrupt(number))
            .is_ok_and(|goes| goes != CpuSet::single(cpu))
}

/// Returns the mask that the shield or the restoring wrote last.
fn applied_mask(entry: &Entry) -> CpuSet {
    match entry.previous_cpu {
        Some(cpu) if entry.restoring => CpuSet::single(cpu),
        _ => entry.applied,
    }
}

fn restore_mask(
    ops: &dyn SystemOps,
    entry: &Entry,
    target: AffinityTarget,
    restored: &mut Restored,
) {
    match ops.read_mask(target) {
        // A process killed between the record and the write has recorded `restoring` but not
        // written the mask.
        Ok(found)
            if found == applied_mask(entry) || (entry.restoring && found == entry.applied) =>
        {
            match ops.write_mask(target, &entry.before) {
                Ok(()) => restored.restored += 1,
                Err(_) => restored.skipped += 1,
            }
        }
        Ok(found) => restored.skipped += u32::from(found != entry.before),
        // Its device is gone.
        Err(_) => restored.ended += 1,
    }
}

/// Returns the affinity to restore. A thread that could run on all CPUs had no restriction, so it
/// must be allowed on CPUs that come online later.
pub(super) fn affinity_to_restore(entry: &Entry) -> CpuSet {
    match entry.change {
        Change::Thread { anywhere: true, .. } => CpuSet::first(MAX_CPUS as u32),
        _ => entry.before,
    }
}

fn restore_thread(
    ops: &dyn SystemOps,
    entry: &Entry,
    (process, tid, start): (Tid, Tid, u64),
    online: &CpuSet,
    restored: &mut Restored,
) {
    let is_it = |stat: crate::proc::Stat| stat.start_ticks == start && !stat.has_ended();
    if !ops.stat(process, tid).is_ok_and(is_it) {
        restored.ended += 1;
        return;
    }
    let is_ours = |found: &CpuSet| {
        mutate!("os-shield-takes-back", has_applied_affinity(entry, found, online), true)
    };
    match ops.affinity(tid) {
        Ok(found) if is_ours(&found) => match ops.set_affinity(tid, &affinity_to_restore(entry)) {
            Ok(()) => restored.restored += 1,
            Err(_) => restored.skipped += 1,
        },
        Ok(found) => restored.skipped += u32::from(found != entry.before.intersection(online)),
        Err(_) => restored.ended += 1,
    }
}

/// Whether a thread has the applied affinity. The comparison omits offline CPUs, because the kernel
/// reports only online CPUs.
pub(super) fn has_applied_affinity(entry: &Entry, found: &CpuSet, online: &CpuSet) -> bool {
    let visible = entry.applied.intersection(online);
    *found == entry.applied
        || (!found.is_empty() && *found == mutate!("os-shield-off-line", visible, entry.applied))
}
