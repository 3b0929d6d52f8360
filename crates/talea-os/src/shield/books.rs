//! What was turned, written down before it is turned, in a form that a keeper can read.
//!
//! Model: a file of one page for the shield (whose it is, since when, which CPUs), and an entry a
//! change: what, as it was, and as we made it. An entry is written at once, so that a killed writer
//! leaves a whole one or none that counts. Undoing goes backwards, and takes back only what still
//! is as we made it: what somebody else has changed since is theirs.
//!
//! CPUs that have gone off-line meanwhile are in no answer of the kernel's: what we have made of a
//! thread is looked for without them.
//!
//! Entries name threads by number and start, interrupts by number, and no paths: whoever reads them
//! turns nothing else.

use super::ground::{Ground, Knob};
use crate::files::{Problem, Untrusted};
use crate::{Tid, clock};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use talea_core::CpuSet;
use talea_core::cpus::MAX_CPUS;
use talea_core::mutate;

const MASK: usize = MAX_CPUS / 64;
/// Words of an entry, and of the page before all.
const WORDS: usize = 8 + 2 * MASK;
const BYTES: usize = 8 * WORDS;
/// The form of the file.
const MAGIC: u64 = u64::from_ne_bytes(*b"talea-s1");
/// How many milliseconds interrupts have to come.
const ARRIVAL: u32 = 50;

type Page = [u64; WORDS];

/// Whose a shield is: the parent of its keeper, a thread of the process, and when that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) parent: Tid,
    pub(super) start: u64,
}

/// What was turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    /// Where a thread may run.
    Thread {
        process: Tid,
        tid: Tid,
        start: u64,
        /// It was any CPU there is.
        anywhere: bool,
    },
    /// Something else.
    Knob(Knob),
}

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) what: Turned,
    /// An interrupt: where it went, which its kernel will not choose again by itself.
    pub(super) went: Option<u32>,
    /// It is being put back, in two steps.
    pub(super) returning: bool,
    pub(super) was: CpuSet,
    pub(super) now: CpuSet,
}

/// What came of putting back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// As they were.
    pub restored: u32,
    /// Changed by somebody else meanwhile, and left alone.
    pub left: u32,
    /// Threads that have ended.
    pub ended: u32,
    /// Threads that began meanwhile with the CPUs that we had left to their parents, and got what
    /// these had.
    pub inherited: u32,
}

/// The file, open.
#[derive(Debug)]
pub(super) struct Books {
    file: File,
}

fn tid_of(word: u64) -> Option<Tid> {
    Tid::new(i32::try_from(word).ok()?)
}

fn word_of(tid: Tid) -> u64 {
    u64::from(tid.as_raw().unsigned_abs())
}

impl Entry {
    fn page(&self) -> Page {
        let mut page = [0; WORDS];
        match self.what {
            Turned::Thread { process, tid, start, anywhere } => {
                page[..5].copy_from_slice(&[
                    1,
                    word_of(tid),
                    word_of(process),
                    start,
                    u64::from(anywhere),
                ]);
            }
            Turned::Knob(Knob::NewInterrupts) => page[0] = 2,
            Turned::Knob(Knob::Workers) => page[0] = 3,
            Turned::Knob(Knob::Interrupt(number) | Knob::Effective(number)) => {
                page[..2].copy_from_slice(&[4, u64::from(number)]);
            }
        }
        page[5] = self.went.map_or(0, |cpu| u64::from(cpu) + 1);
        page[6] = u64::from(self.returning);
        page[8..8 + MASK].copy_from_slice(self.was.words());
        page[8 + MASK..].copy_from_slice(self.now.words());
        page
    }

    fn of(page: &Page) -> Option<Entry> {
        let what = match page[0] {
            1 => Turned::Thread {
                process: tid_of(page[2])?,
                tid: tid_of(page[1])?,
                start: page[3],
                anywhere: page[4] != 0,
            },
            2 => Turned::Knob(Knob::NewInterrupts),
            3 => Turned::Knob(Knob::Workers),
            4 => Turned::Knob(Knob::Interrupt(u32::try_from(page[1]).ok()?)),
            _ => return None,
        };
        let set = |from: usize| {
            let mut words = [0; MASK];
            words.copy_from_slice(&page[from..from + MASK]);
            CpuSet::from_words(words)
        };
        Some(Entry {
            what,
            went: page[5].checked_sub(1).and_then(|cpu| u32::try_from(cpu).ok()),
            returning: page[6] != 0,
            was: set(8),
            now: set(8 + MASK),
        })
    }
}

impl Owner {
    fn lives(&self, ground: &dyn Ground) -> bool {
        // Whose process it is does not matter: threads are found by their own number, too.
        let stat = ground.stat(self.parent, self.parent);
        stat.is_ok_and(|stat| stat.start_ticks == self.start && !stat.has_ended())
    }
}

impl Books {
    /// Opens the file, made if `make`, for nobody else but this thread; nothing where it is not
    /// there.
    fn open(path: &Path, make: bool) -> io::Result<Option<Books>> {
        loop {
            let mut options = File::options();
            options.read(true).write(true).create(make).mode(0o600);
            options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
            let file = match options.open(path) {
                Err(error) if !make && error.kind() == io::ErrorKind::NotFound => return Ok(None),
                file => file?,
            };
            // Its entries move threads of the machine: nobody else may have put them there.
            match crate::files::check_trusted(path) {
                // Whoever had it has removed it meanwhile.
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
            flock(&file, FlockOperation::LockExclusive)?;
            let books = Books { file };
            if books.are_at(path) {
                return Ok(Some(books));
            }
        }
    }

    /// Whoever had the file may have removed it, and somebody made another one.
    fn are_at(&self, path: &Path) -> bool {
        let (Ok(found), Ok(own)) = (path.symlink_metadata(), self.file.metadata()) else {
            return false;
        };
        (own.dev(), own.ino()) == (found.dev(), found.ino())
    }

    /// For the keeper of this owner; nothing if somebody has put everything back already. Allocates
    /// nothing, and others wait until it ends.
    pub(super) fn reopen(path: &Path, owner: Owner, boot: [u8; 16]) -> io::Result<Option<Books>> {
        let books = Books::seen(path)?;
        flock(&books.file, FlockOperation::LockExclusive)?;
        Ok((books.are_at(path) && books.owner(boot) == Some(owner)).then_some(books))
    }

    fn seen(path: &Path) -> io::Result<Books> {
        Ok(Books {
            file: File::options()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NOFOLLOW)
                .open(path)?,
        })
    }

    /// Empty ones of this owner, after what a dead one has left was put back; or the process that
    /// has them.
    pub(super) fn begin(
        path: &Path,
        ground: &dyn Ground,
        owner: Owner,
        boot: [u8; 16],
    ) -> io::Result<Result<Books, Owner>> {
        let books = Books::open(path, true)?.ok_or_else(|| crate::sys::errno(libc::ENOENT))?;
        if let Some(found) = books.owner(boot) {
            if found.lives(ground) {
                return Ok(Err(found));
            }
            books.undo(ground);
        }
        books.file.set_len(0)?;
        books.sign(owner, boot)?;
        flock(&books.file, FlockOperation::Unlock)?;
        Ok(Ok(books))
    }

    /// Says whose they are.
    fn sign(&self, owner: Owner, boot: [u8; 16]) -> io::Result<()> {
        let mut page = [0; WORDS];
        page[0] = MAGIC;
        for (word, bytes) in page[1..3].iter_mut().zip(boot.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().map_err(io::Error::other)?);
        }
        page[3..5].copy_from_slice(&[word_of(owner.parent), owner.start]);
        self.put(0, &page)
    }

    /// Puts back what a dead owner has left, and removes the file; nothing where there is none, or
    /// a living one.
    pub(super) fn sweep(path: &Path, ground: &dyn Ground) -> io::Result<Option<Restored>> {
        let boot = clock::boot_id()?;
        let Some(books) = Books::open(path, false)? else { return Ok(None) };
        let found = books.owner(boot);
        if found.is_some_and(|owner| owner.lives(ground)) {
            return Ok(None);
        }
        let restored = found.map(|_| books.undo(ground));
        std::fs::remove_file(path)?;
        Ok(restored)
    }

    /// Whether there are any of a dead owner, who has moved something: one that was killed before
    /// it had a keeper has not.
    pub(super) fn are_left(path: &Path, ground: &dyn Ground) -> bool {
        let (Ok(boot), Ok(books)) = (clock::boot_id(), Books::seen(path)) else { return false };
        books.entries() > 0 && books.owner(boot).is_some_and(|owner| !owner.lives(ground))
    }

    /// Whose they are, if they are of this boot.
    fn owner(&self, boot: [u8; 16]) -> Option<Owner> {
        let page = self.page(0)?;
        let is_of = |word: u64, bytes: &[u8]| word.to_ne_bytes() == bytes;
        if page[0] != MAGIC || !is_of(page[1], &boot[..8]) || !is_of(page[2], &boot[8..]) {
            return None;
        }
        Some(Owner { parent: tid_of(page[3])?, start: page[4] })
    }

    pub(super) fn page(&self, at: u64) -> Option<Page> {
        let mut bytes = [0; BYTES];
        self.file.read_exact_at(&mut bytes, at * BYTES as u64).ok()?;
        let mut page = [0; WORDS];
        for (word, eight) in page.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut own = [0; 8];
            own.copy_from_slice(eight);
            *word = u64::from_ne_bytes(own);
        }
        Some(page)
    }

    /// In one write.
    fn put(&self, at: u64, page: &Page) -> io::Result<()> {
        let mut bytes = [0; BYTES];
        for (eight, word) in bytes.chunks_exact_mut(8).zip(page) {
            eight.copy_from_slice(&word.to_ne_bytes());
        }
        self.file.write_all_at(&bytes, at * BYTES as u64)
    }

    /// How many entries there are.
    pub(super) fn entries(&self) -> u64 {
        let length = self.file.metadata().map_or(0, |meta| meta.len());
        (length / BYTES as u64).saturating_sub(1)
    }

    pub(super) fn entry(&self, at: u64) -> Option<Entry> {
        Entry::of(&self.page(at + 1)?)
    }

    /// A further one; its number.
    pub(super) fn add(&self, entry: &Entry) -> io::Result<u64> {
        let at = self.entries();
        self.put(at + 1, &entry.page()).map(|()| at)
    }

    /// Says it anew.
    pub(super) fn correct(&self, at: u64, entry: &Entry) -> io::Result<()> {
        self.put(at + 1, &entry.page())
    }

    /// Puts everything back. Allocates nothing: a keeper does it, too. Done twice it does nothing.
    ///
    /// An interrupt goes where it went: first there and nowhere else, then wherever it might. The
    /// kernel moves it when it comes, and by itself never; one that does not come within
    /// [`ARRIVAL`] stays where it is, and may go anywhere.
    pub(super) fn undo(&self, ground: &dyn Ground) -> Restored {
        let mut restored = Restored::default();
        let online = ground.online();
        for at in (0..self.entries()).rev() {
            let Some(entry) = self.entry(at) else { continue };
            match entry.what {
                Turned::Thread { process, tid, start, .. } => {
                    mutate!(
                        "os-shield-gives-nothing-back",
                        {
                            give_back(
                                ground,
                                &entry,
                                (process, tid, start),
                                &online,
                                &mut restored,
                            );
                        },
                        {
                            if restored.left == u32::MAX {
                                give_back(
                                    ground,
                                    &entry,
                                    (process, tid, start),
                                    &online,
                                    &mut restored,
                                );
                            }
                        }
                    );
                }
                Turned::Knob(knob) if is_elsewhere(ground, &entry, knob) => {
                    // Whoever goes on after a kill finds neither what was nor what we had made of
                    // it.
                    let _ = self.correct(at, &Entry { returning: true, ..entry });
                    let _ = entry.went.map(|cpu| ground.turn(knob, &CpuSet::single(cpu)));
                }
                Turned::Knob(_) => {}
            }
        }
        mutate!(
            "os-shield-children",
            {
                self.bequeath(ground, &online, &mut restored);
            },
            {}
        );

        self.arrive(ground);
        for at in (0..self.entries()).rev() {
            if let Some(entry) = self.entry(at)
                && let Turned::Knob(knob) = entry.what
            {
                turn_back(ground, &entry, knob, &mut restored);
            }
        }
        restored
    }

    /// Waits for interrupts to come.
    fn arrive(&self, ground: &dyn Ground) {
        for _ in 0..ARRIVAL {
            let is_under_way = |at| {
                self.entry(at).is_some_and(|entry| match entry.what {
                    Turned::Knob(knob) => entry.returning && is_elsewhere(ground, &entry, knob),
                    Turned::Thread { .. } => false,
                })
            };
            if !(0..self.entries()).any(is_under_way) {
                return;
            }
            ground.pause();
        }
    }
}

/// Whether an interrupt that is still as we made it really goes somewhere else than before.
fn is_elsewhere(ground: &dyn Ground, entry: &Entry, knob: Knob) -> bool {
    let (Knob::Interrupt(number), Some(cpu)) = (knob, entry.went) else { return false };
    let is_ours = ground.read(knob).is_ok_and(|found| found == made(entry));
    is_ours && ground.read(Knob::Effective(number)).is_ok_and(|goes| goes != CpuSet::single(cpu))
}

/// What we have made of something, as far as we had come.
fn made(entry: &Entry) -> CpuSet {
    match entry.went {
        Some(cpu) if entry.returning => CpuSet::single(cpu),
        _ => entry.now,
    }
}

fn turn_back(ground: &dyn Ground, entry: &Entry, knob: Knob, restored: &mut Restored) {
    match ground.read(knob) {
        // One that was killed before it could turn it further had only said that it would.
        Ok(found) if found == made(entry) || (entry.returning && found == entry.now) => {
            match ground.turn(knob, &entry.was) {
                Ok(()) => restored.restored += 1,
                Err(_) => restored.left += 1,
            }
        }
        Ok(found) => restored.left += u32::from(found != entry.was),
        // Its device is gone.
        Err(_) => restored.ended += 1,
    }
}

/// Who could run on all CPUs that there were had asked for none, and is not to be kept from further
/// ones.
pub(super) fn wanted(entry: &Entry) -> CpuSet {
    match entry.what {
        Turned::Thread { anywhere: true, .. } => CpuSet::first(MAX_CPUS as u32),
        _ => entry.was,
    }
}

fn give_back(
    ground: &dyn Ground,
    entry: &Entry,
    (process, tid, start): (Tid, Tid, u64),
    online: &CpuSet,
    restored: &mut Restored,
) {
    let is_it = |stat: crate::proc::Stat| stat.start_ticks == start && !stat.has_ended();
    if !ground.stat(process, tid).is_ok_and(is_it) {
        restored.ended += 1;
        return;
    }
    mutate!(
        "os-shield-takes-back",
        match ground.affinity(tid) {
            Ok(found) if is_ours(entry, &found, online) =>
                match ground.set_affinity(tid, &wanted(entry)) {
                    Ok(()) => restored.restored += 1,
                    Err(_) => restored.left += 1,
                },
            Ok(found) => restored.left += u32::from(found != entry.was.intersection(online)),
            Err(_) => restored.ended += 1,
        },
        match ground.affinity(tid) {
            Ok(_) => match ground.set_affinity(tid, &wanted(entry)) {
                Ok(()) => restored.restored += 1,
                Err(_) => restored.left += 1,
            },
            Ok(found) => restored.left += u32::from(found != entry.was.intersection(online)),
            Err(_) => restored.ended += 1,
        }
    )
}

/// Whether a thread's CPUs are what we have made of them: the kernel tells of those only that are
/// on-line.
pub(super) fn is_ours(entry: &Entry, found: &CpuSet, online: &CpuSet) -> bool {
    *found == entry.now || (!found.is_empty() && *found == entry.now.intersection(online))
}
