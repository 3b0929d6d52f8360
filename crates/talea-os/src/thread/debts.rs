//! Who has left SCHED_DEADLINE in debt, and until when they must stay out of it.
//!
//! Model: a debt is a fact about a thread and not about who has taken it out, so there is one
//! memory for the whole process, and it is mirrored wherever somebody [keeps](keep_in) it: the next
//! process that takes a thread over must know what the last one did. What a thread is certain to
//! owe stands in its slot, here and in each mirror, before it leaves the class. A debt is only ever
//! made longer, except by whoever announced it, to what he found and what others have said since.
//!
//! A thread that starts a program (`execve`) takes the place of its process's main thread, number
//! and all, and its debt along. From outside that looks like any other end of a thread; so what an
//! ended thread owed is held against its process's main thread until it is paid. Not against that
//! of a later process with the same number: what tells main threads apart goes over to whoever
//! takes their place. Where nobody could see what tells it, nobody inherits.
//!
//! Bound: a look or a change costs the logarithm of how many debts there are, and of a new one
//! `LOOKS` others are asked whether they still stand; for a main thread also each debt of its
//! process, of which `PROBES` are asked. To ask one takes one or two dozen system calls. There are
//! about twice as many slots as threads lived in debt at most at a time, and a few.

use super::{Identity, OpenError, Thread};
use crate::statefile::{StateError, StateFile};
use crate::{Tid, clock};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use talea_core::mutate;
use talea_core::{Span, Time};

/// A thread that may owe something, and its process by its main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Debtor {
    pub(super) process: Tid,
    pub(super) tid: Tid,
    pub(super) mark: Mark,
}

/// What tells a thread from a later one with its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    pub(super) inode: u64,
    /// Start time in clock ticks where the inode does not tell, else 0.
    pub(super) start: u64,
}

impl Mark {
    /// Of whom there was no time to look at, or who had ended: nobody.
    const UNKNOWN: Mark = Mark { inode: 0, start: 0 };

    fn is_of(self, other: Mark) -> bool {
        mutate!(
            "os-debts-unknown",
            self != Mark::UNKNOWN
                && mutate!("os-debts-stranger", self == other, self == other || other.inode != 0),
            self == Mark::UNKNOWN || self == other
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Debt {
    debtor: Debtor,
    /// Of the debtor's main thread.
    main: Mark,
    until: Time,
}

#[derive(Debug)]
struct Debts {
    slots: Vec<Option<Debt>>,
    /// Where each debtor's is.
    index: BTreeMap<Debtor, usize>,
    free: Vec<usize>,
    /// The slot that was looked at last for whether its debt still stands.
    looked: usize,
    /// Of whom it is known only what was announced, and what has been said of them since.
    open: Vec<(Debtor, Option<Time>)>,
    mirrors: Vec<(u64, StateFile)>,
    last_mirror: u64,
}

static DEBTS: Mutex<Debts> = Mutex::new(Debts {
    slots: Vec::new(),
    index: BTreeMap::new(),
    free: Vec::new(),
    looked: 0,
    open: Vec::new(),
    mirrors: Vec::new(),
    last_mirror: 0,
});
/// How many there are, so that the common case takes no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Slots that a mirror has from the beginning, and below which no old debt is looked for.
const ROOM: usize = 16;
/// So many slots are looked at before another is made: more than one, so that old debts go faster
/// than new ones come.
const LOOKS: usize = 4;
/// Of so many threads of one process it is asked whether they live; of more, all that they owe
/// counts.
const PROBES: usize = 16;

/// A mirror is kept while this lives; what it held last is found by whoever opens it next.
#[derive(Debug)]
pub struct Kept(u64);

/// Mirrors the debts of threads that left the deadline class in a file of its own at `path`, and
/// learns those that an earlier process of this boot has left there.
///
/// # Errors
/// As [`StateFile::open_waiting`]: the file is for one process at a time, and one that is killed
/// takes a moment to let go.
pub fn keep_in(path: &Path) -> Result<Kept, StateError> {
    const PATIENCE: Span = Span::from_ns(500_000_000);
    let mut file = StateFile::open_waiting(path, DEBT_SIZE, ROOM, PATIENCE)?;
    let found: Vec<_> =
        (0..file.capacity()).map(|slot| file.get(slot).and_then(Debt::decode)).collect();
    let used = found.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let mut debts = lock();
    let had_slots = !debts.slots.is_empty();
    let now = clock::now();
    for (slot, debt) in found.into_iter().enumerate() {
        let Some(debt) = mutate!(
            "os-debts-next",
            debt.filter(|debt| debt.until > now),
            debt.filter(|debt| debt.until > now && debt.until == Time::ZERO)
        ) else {
            continue;
        };
        // Whoever has ended owes nothing itself, and its number may be somebody else's.
        match debt.fate() {
            Fate::Stands | Fate::Unknown => debts.extend(debt, Some(slot)),
            Fate::Passes(heir) => debts.extend(heir, Some(slot)),
            Fate::Over => {}
        }
    }
    // Whoever had no slots finds each where it stood, or further up. Else one may have had to give
    // way: then all are written behind everything first, so that nothing is lost if we are killed
    // here.
    let behind = mutate!(
        "os-debts-grow",
        used.max(debts.slots.len()),
        file.capacity().max(used).max(debts.slots.len())
    );
    if had_slots {
        for (number, debt) in debts.slots.iter().flatten().enumerate() {
            file.write(behind + number, &debt.encode())?;
        }
    }
    for slot in 0..file.capacity() {
        mutate!(
            "os-debts-twice",
            match debts.slots.get(slot) {
                Some(Some(debt)) => file.write(slot, &debt.encode())?,
                _ => file.clear(slot),
            },
            match debts.slots.get(slot) {
                Some(Some(debt)) => file.write(slot, &debt.encode())?,
                _ if slot < used => file.clear(slot),
                _ => {}
            }
        )
    }
    // Whoever is in a hurry finds room here, too.
    if let Some(last) = debts.slots.len().checked_sub(1).filter(|&last| last >= file.capacity()) {
        file.write(last, &[])?;
        file.clear(last);
    }
    debts.last_mirror += 1;
    let name = debts.last_mirror;
    debts.mirrors.push((name, file));
    Ok(Kept(name))
}

impl Drop for Kept {
    fn drop(&mut self) {
        lock().mirrors.retain(|(name, _)| *name != self.0);
    }
}

/// Until when the thread must not enter SCHED_DEADLINE; `None` when it may.
pub(super) fn owing_until(debtor: &Debtor) -> Option<Time> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut debts = lock();
    let others = mutate!(
        "os-debts-exec",
        if debtor.tid == debtor.process { debts.inherit(debtor) } else { None },
        if debtor.tid == debtor.process && debtor.mark.inode == 1 {
            debts.inherit(debtor)
        } else {
            None
        }
    );
    let now = clock::now();
    let own = debts.find(debtor);
    if own.is_some_and(|until| until <= now) {
        debts.forget(debtor);
    }
    own.max(others).filter(|&until| until > now)
}

/// Makes room for one more, which may take a while: so that there is some when it must not.
pub(super) fn make_room() {
    lock().make_room();
}

/// What was said of a thread before it was demoted.
#[derive(Debug)]
pub(super) struct Announced {
    debtor: Debtor,
    /// What was known of it before that.
    before: Option<Time>,
    /// Whether anything was.
    said: bool,
}

/// Remembers that the thread must stay out until what is said of one that owes this already, if
/// that is longer.
pub(super) fn announce(debtor: Debtor, until: impl Fn(Option<Time>) -> Option<Time>) -> Announced {
    if COUNT.load(Ordering::Relaxed) == 0 && until(None).is_none() {
        return Announced { debtor, before: None, said: false };
    }
    let mut debts = lock();
    // Before it is looked for: whoever is swept out for it may leave something to it.
    if !debts.index.contains_key(&debtor) {
        debts.make_room();
    }
    let before = debts.find(&debtor);
    let until = until(before);
    if until > before {
        debts.place(
            Debt { debtor, main: Mark::UNKNOWN, until: until.expect("later than something") },
            None,
        );
    }
    let said = until.is_some();
    if said {
        debts.open.push((debtor, None));
    }
    Announced { debtor, before, said }
}

/// Remembers what the thread owes in fact, beside what it did before and whatever else was said
/// meanwhile; `main` is read when it is anything.
pub(super) fn settle(announced: &Announced, owes: Option<Time>, main: impl FnOnce() -> Mark) {
    let &Announced { debtor, before, said } = announced;
    if !said && owes.is_none() {
        return;
    }
    let main = if owes.is_some() { main() } else { Mark::UNKNOWN };
    let mut debts = lock();
    if owes.is_some() && !debts.index.contains_key(&debtor) {
        debts.make_room();
    }
    let open = debts.open.iter().position(|(other, _)| said && *other == debtor);
    // Nothing is taken back that was not announced.
    let others = mutate!(
        "os-debts-alone",
        match open {
            Some(open) => debts.open.swap_remove(open).1,
            None => debts.find(&debtor),
        },
        match open {
            Some(open) => debts.open.swap_remove(open).1.filter(|_| false),
            None => debts.find(&debtor),
        }
    );
    mutate!(
        "os-debts-provisional",
        match mutate!("os-debts-before", before.max(others).max(owes), others.max(owes)) {
            Some(until) => debts.place(Debt { debtor, main, until }, None),
            None => debts.forget(&debtor),
        },
        match before.max(others).max(owes) {
            Some(until) => debts.place(Debt { debtor, main, until }, None),
            None => {}
        }
    )
}

/// Remembers that the thread must stay out until `until`, if nothing longer is known.
pub(super) fn owe(debtor: Debtor, main: Mark, until: Time) {
    lock().extend(Debt { debtor, main, until }, None);
}

fn lock() -> MutexGuard<'static, Debts> {
    DEBTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Debts {
    fn find(&self, debtor: &Debtor) -> Option<Time> {
        let slot = *self.index.get(debtor)?;
        self.slots[slot].map(|debt| debt.until)
    }

    fn extend(&mut self, debt: Debt, preferred: Option<usize>) {
        // As in [`announce`].
        if preferred.is_none() && !self.index.contains_key(&debt.debtor) {
            self.make_room();
        }
        if self.find(&debt.debtor).is_none_or(|until| {
            mutate!("os-debts-shortened", until < debt.until, until != debt.until)
        }) {
            self.place(debt, preferred);
        }
        self.note(debt);
    }

    /// That this is owed beside what was announced.
    fn note(&mut self, debt: Debt) {
        if let Some((_, said)) = self.open.iter_mut().find(|(debtor, _)| *debtor == debt.debtor) {
            *said = (*said).max(Some(debt.until));
        }
    }

    /// Into its slot, or else the preferred one, or any that is free.
    fn place(&mut self, debt: Debt, preferred: Option<usize>) {
        let slot = self.index.get(&debt.debtor).copied().unwrap_or_else(|| {
            let slot = self.take(preferred);
            self.index.insert(debt.debtor, slot);
            COUNT.fetch_add(1, Ordering::Relaxed);
            slot
        });
        self.write(slot, debt);
    }

    fn take(&mut self, preferred: Option<usize>) -> usize {
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

    /// Has a slot free, here and in each mirror.
    fn make_room(&mut self) {
        if self.free.is_empty()
            && mutate!(
                "os-debts-sweep",
                self.slots.len() >= ROOM,
                self.slots.len() > usize::MAX / 2
            )
        {
            let now = clock::now();
            for _ in 0..LOOKS {
                self.looked = (self.looked + 1) % self.slots.len();
                if let Some(debt) = self.slots[self.looked] {
                    self.pass_on(debt, now);
                }
            }
        }
        if self.free.is_empty() {
            let slot = self.take(None);
            self.free.push(slot);
            for (_, mirror) in &mut self.mirrors {
                // One that can't grow will not have it.
                drop(mirror.write(slot, &[]));
                mirror.clear(slot);
            }
        }
    }

    fn write(&mut self, slot: usize, mut debt: Debt) {
        let old = self.slots[slot].filter(|old| old.debtor == debt.debtor);
        if debt.main == Mark::UNKNOWN {
            debt.main = old.map_or(Mark::UNKNOWN, |old| old.main);
        }
        self.slots[slot] = Some(debt);
        for (_, mirror) in &mut self.mirrors {
            // Without room for it, as without a mirror: it ends with us.
            drop(mirror.write(slot, &debt.encode()));
        }
    }

    fn forget(&mut self, debtor: &Debtor) {
        let Some(slot) = self.index.remove(debtor) else { return };
        COUNT.fetch_sub(1, Ordering::Relaxed);
        self.slots[slot] = None;
        self.free.push(slot);
        for (_, mirror) in &mut self.mirrors {
            mirror.clear(slot);
        }
    }

    /// Forgets what is paid, and makes what an ended thread owes its heir's, if it has one. Until
    /// when somebody owes of whom it can't be known whether that is still so.
    fn pass_on(&mut self, debt: Debt, now: Time) -> Option<Time> {
        match if debt.until > now { debt.fate() } else { Fate::Over } {
            Fate::Stands => {}
            Fate::Unknown => return Some(debt.until),
            Fate::Passes(heir) if self.index.contains_key(&heir.debtor) => {
                mutate!(
                    "os-debts-stale",
                    {
                        self.extend(heir, None);
                    },
                    {}
                );

                self.forget(&debt.debtor);
            }
            // In place: there is no moment at which nobody owes it.
            Fate::Passes(heir) => {
                let slot = self.index.remove(&debt.debtor).expect("it stands somewhere");
                self.index.insert(heir.debtor, slot);
                self.write(slot, heir);
                self.note(heir);
            }
            Fate::Over => self.forget(&debt.debtor),
        }
        None
    }

    /// Has a main thread owe what ended threads of its process do. Until when somebody owes who was
    /// not asked, or could not be.
    fn inherit(&mut self, main: &Debtor) -> Option<Time> {
        let first = Debtor { tid: Tid::new(1).expect("a number"), mark: Mark::UNKNOWN, ..*main };
        let process =
            self.index.range(first..).take_while(|(other, _)| other.process == main.process);
        let others = process.filter(|(other, _)| other.tid != main.tid);
        let others: Vec<Debt> = others.filter_map(|(_, &slot)| self.slots[slot]).collect();
        let now = clock::now();
        let (asked, rest) = others.split_at(others.len().min(PROBES));
        let unknown = asked.iter().filter_map(|&debt| self.pass_on(debt, now)).max();
        mutate!(
            "os-debts-crowd",
            unknown.max(rest.iter().map(|debt| debt.until).max()),
            unknown.max(rest.iter().skip(usize::MAX).map(|debt| debt.until).max())
        )
    }
}

const DEBT_SIZE: usize = 56;

impl Debt {
    fn encode(self) -> [u8; DEBT_SIZE] {
        let Debt { debtor: Debtor { process, tid, mark }, main, until } = self;
        let (process, tid) = (process.as_raw() as u64, tid.as_raw() as u64);
        let words = [process, tid, mark.inode, mark.start, main.inode, main.start, until.as_ns()];
        let mut bytes = [0; DEBT_SIZE];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Debt> {
        let mut words = bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_ne_bytes(word));
        let mut word = || words.next();
        let tid = |word: u64| i32::try_from(word).ok().and_then(Tid::new);
        let (process, tid) = (tid(word()?)?, tid(word()?)?);
        let mark = Mark { inode: word()?, start: word()? };
        let main = Mark { inode: word()?, start: word()? };
        Some(Debt { debtor: Debtor { process, tid, mark }, main, until: Time::from_ns(word()?) })
    }

    /// Whose it is by now.
    fn fate(&self) -> Fate {
        let Debtor { process, tid, mark: Mark { inode, start: start_ticks } } = self.debtor;
        match Thread::reopen(&Identity { tid, inode, start_ticks }) {
            Err(error) if has_ended(&error) && tid == process => {
                mutate!("os-debts-dead", Fate::Over, Fate::Stands)
            }
            Err(error) if has_ended(&error) => match Thread::open(process) {
                Ok(main)
                    if mutate!(
                        "os-debts-heir",
                        main.tgid() == process && self.main.is_of(main.debtor().mark),
                        main.tgid() == process
                            && tid == process
                            && self.main.is_of(main.debtor().mark)
                    ) =>
                {
                    let debtor = main.debtor();
                    Fate::Passes(Debt { debtor, main: debtor.mark, ..*self })
                }
                Ok(_) => Fate::Over,
                Err(error) if has_ended(&error) => Fate::Over,
                Err(_) => Fate::Unknown,
            },
            Ok(_) => Fate::Stands,
            Err(_) => Fate::Unknown,
        }
    }
}

/// What has become of a debt that is not paid.
#[derive(Debug)]
enum Fate {
    /// Its debtor lives.
    Stands,
    /// Its debtor has ended, and the main thread of its process owes it now.
    Passes(Debt),
    /// That has ended, too.
    Over,
    /// Nobody could be looked at.
    Unknown,
}

/// Whether the thread with this number is not the one that is looked for.
fn has_ended(error: &OpenError) -> bool {
    matches!(error, OpenError::Gone | OpenError::Another | OpenError::KernelThread)
}

#[cfg(test)]
pub(super) mod tests;
