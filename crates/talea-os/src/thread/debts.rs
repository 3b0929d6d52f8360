//! Who has left SCHED_DEADLINE in debt, and until when they must stay out of it.
//!
//! Model: a debt is a fact about a thread and not about who has taken it out, so there is one memory for the whole process,
//! and it is mirrored wherever somebody [keeps](keep_in) it: the next process that takes a thread over must know what the
//! last one did. A debt stands in its slot, here and in each mirror, before the thread leaves the class: whoever is killed
//! in between leaves one too many, never one too few.
//!
//! Bound: a look or a change costs as much as there are debts; those that are paid are forgotten on the way.

use super::Thread;
use crate::statefile::{StateError, StateFile};
use crate::{Tid, clock};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use talea_core::{Span, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Debt {
    tid: Tid,
    inode: u64,
    until: Time,
}

#[derive(Debug)]
struct Debts {
    slots: Vec<Option<Debt>>,
    mirrors: Vec<(u64, StateFile)>,
    last_mirror: u64,
}

static DEBTS: Mutex<Debts> = Mutex::new(Debts { slots: Vec::new(), mirrors: Vec::new(), last_mirror: 0 });
/// How many there are, so that the common case takes no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A mirror is kept while this lives; what it held last is found by whoever opens it next.
#[derive(Debug)]
pub struct Kept(u64);

/// Mirrors the debts of threads that left the deadline class in a file of its own at `path`, and learns those that an
/// earlier process of this boot has left there.
///
/// # Errors
/// As [`StateFile::open_waiting`]: the file is for one process at a time, and one that is killed takes a moment to let go.
pub fn keep_in(path: &Path) -> Result<Kept, StateError> {
    const ROOM: usize = 16;
    const PATIENCE: Span = Span::from_ns(500_000_000);
    let mut file = StateFile::open_waiting(path, DEBT_SIZE, ROOM, PATIENCE)?;
    let left: Vec<_> = (0..file.capacity()).map(|slot| file.get(slot).and_then(Debt::decode)).collect();
    let mut debts = lock();
    for (slot, debt) in left.into_iter().enumerate() {
        // Whoever has ended owes nothing, and its number may be somebody else's.
        if let Some(debt) = debt.filter(Debt::is_a_living_thread) {
            debts.put(debt, slot);
        }
    }
    // Whoever knew of none before finds each where it stood, so nothing is lost if we are killed here.
    for slot in 0..file.capacity().max(debts.slots.len()) {
        match debts.slots.get(slot) {
            Some(Some(debt)) => file.write(slot, &debt.encode())?,
            _ => file.clear(slot),
        }
    }
    debts.last_mirror += 1;
    let name = debts.last_mirror;
    debts.mirrors.push((name, file));
    debts.forget_paid();
    Ok(Kept(name))
}

impl Drop for Kept {
    fn drop(&mut self) {
        lock().mirrors.retain(|(name, _)| *name != self.0);
    }
}

/// Until when the thread must not enter SCHED_DEADLINE; `None` when it may.
pub(super) fn owing_until(tid: Tid, inode: u64) -> Option<Time> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut debts = lock();
    debts.forget_paid();
    debts.find(tid, inode).and_then(|slot| debts.slots[slot]).map(|debt| debt.until)
}

/// Remembers when a thread may enter the class again, whatever was remembered of it before.
pub(super) fn owe(tid: Tid, inode: u64, until: Time) {
    let mut debts = lock();
    debts.forget_paid();
    debts.put(Debt { tid, inode, until }, 0);
}

/// It owes nothing after all.
pub(super) fn forgive(tid: Tid, inode: u64) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut debts = lock();
    if let Some(slot) = debts.find(tid, inode) {
        debts.set(slot, None);
    }
}

fn lock() -> MutexGuard<'static, Debts> {
    DEBTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Debts {
    fn find(&self, tid: Tid, inode: u64) -> Option<usize> {
        let is_its = |debt: &Debt| (debt.tid, debt.inode) == (tid, inode);
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(is_its))
    }

    /// Into its slot, or else the first free one, from `preferred` on.
    fn put(&mut self, debt: Debt, preferred: usize) {
        let slot = self.find(debt.tid, debt.inode).unwrap_or_else(|| self.free_from(preferred));
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, None);
        }
        self.set(slot, Some(debt));
    }

    fn free_from(&self, first: usize) -> usize {
        let end = self.slots.len().max(first);
        (first..end).find(|&slot| self.slots[slot].is_none()).unwrap_or(end)
    }

    fn set(&mut self, slot: usize, debt: Option<Debt>) {
        let had = std::mem::replace(&mut self.slots[slot], debt);
        match (had, debt) {
            (None, Some(_)) => drop(COUNT.fetch_add(1, Ordering::Relaxed)),
            (Some(_), None) => drop(COUNT.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        for (_, mirror) in &mut self.mirrors {
            match debt {
                // Without room for it, as without a mirror: it ends with us.
                Some(debt) => drop(mirror.write(slot, &debt.encode())),
                None => mirror.clear(slot),
            }
        }
    }

    fn forget_paid(&mut self) {
        let now = clock::now();
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some_and(|debt| debt.until <= now) {
                self.set(slot, None);
            }
        }
        let used = self.slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.slots.truncate(used);
    }
}

const DEBT_SIZE: usize = 24;

impl Debt {
    fn encode(self) -> [u8; DEBT_SIZE] {
        let mut bytes = [0; DEBT_SIZE];
        bytes[..8].copy_from_slice(&(self.tid.as_raw() as u64).to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.inode.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.until.as_ns().to_ne_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Debt> {
        let word = |index: usize| {
            let word = bytes.get(8 * index..8 * index + 8)?;
            Some(u64::from_ne_bytes(word.try_into().ok()?))
        };
        let tid = Tid::new(i32::try_from(word(0)?).ok()?)?;
        Some(Debt { tid, inode: word(1)?, until: Time::from_ns(word(2)?) })
    }

    fn is_a_living_thread(&self) -> bool {
        Thread::open(self.tid).is_ok_and(|thread| thread.inode() == self.inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::DirBuilderExt;
    use std::path::PathBuf;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let path = std::env::temp_dir().join(format!("talea-debts-{}-{name}", std::process::id()));
            std::fs::DirBuilder::new().mode(0o700).create(&path).expect("a new directory");
            Dir(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("debts")
        }

        /// As the next process would find it.
        fn found(&self) -> Vec<Debt> {
            let file = StateFile::open_or_create(&self.file(), DEBT_SIZE, 1).expect("nobody's file");
            file.records().filter_map(|(_, bytes)| Debt::decode(bytes)).collect()
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn ours() -> (Tid, u64) {
        let tid = Tid::current();
        (tid, Thread::open(tid).expect("we live").inode())
    }

    #[test]
    fn a_debt_is_forgotten_when_it_is_paid() {
        let (tid, inode) = (Tid::current(), u64::MAX - 1);
        owe(tid, inode, Time::NEVER);
        assert_eq!(owing_until(tid, inode), Some(Time::NEVER));
        assert_eq!(owing_until(tid, inode - 1), None, "another thread owes nothing");
        owe(tid, inode, clock::now());
        assert_eq!(owing_until(tid, inode), None);
        owe(tid, inode, Time::NEVER);
        forgive(tid, inode);
        assert_eq!(owing_until(tid, inode), None);
    }

    #[test]
    fn whoever_opens_the_file_next_learns_what_living_threads_owe() {
        let dir = Dir::new("next");
        let (tid, inode) = ours();
        let kept = keep_in(&dir.file()).expect("a new file");
        owe(tid, inode, Time::NEVER);
        // Somebody who will have ended, or never was.
        owe(tid, inode ^ 1, Time::NEVER);
        drop(kept);
        let written = dir.found();
        for debt in
            [Debt { tid, inode, until: Time::NEVER }, Debt { tid, inode: inode ^ 1, until: Time::NEVER }]
        {
            assert!(written.contains(&debt), "{written:?}");
            forgive(debt.tid, debt.inode);
        }
        assert_eq!(owing_until(tid, inode), None);
        let kept = keep_in(&dir.file()).expect("the same file");
        assert_eq!(owing_until(tid, inode), Some(Time::NEVER));
        assert_eq!(owing_until(tid, inode ^ 1), None, "that thread does not live");
        forgive(tid, inode);
        drop(kept);
        assert!(dir.found().iter().all(|debt| debt.tid != tid), "{:?}", dir.found());
    }

    #[test]
    fn each_of_several_mirrors_has_every_debt_and_two_processes_share_none() {
        let (one, other) = (Dir::new("one"), Dir::new("other"));
        let (tid, inode) = ours();
        let before = keep_in(&one.file()).expect("a new file");
        owe(tid, inode, Time::NEVER);
        let after = keep_in(&other.file()).expect("a new file");
        assert!(matches!(keep_in(&other.file()), Err(StateError::InUse { .. })));
        drop((before, after));
        forgive(tid, inode);
        let debt = Debt { tid, inode, until: Time::NEVER };
        assert!(one.found().contains(&debt) && other.found().contains(&debt));
    }
}
