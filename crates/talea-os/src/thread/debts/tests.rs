//! What is owed is neither lost nor held against strangers.

use super::*;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::mpsc;

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

impl Dir {
    fn has(&self, debtor: Debtor, until: Time) -> bool {
        self.found().iter().any(|debt| (debt.debtor, debt.until) == (debtor, until))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn ours() -> Debtor {
    Thread::open(Tid::current()).expect("we live").debtor()
}

/// Who does not live, and whom nobody could have become.
pub(crate) fn nobody(inode: u64) -> Debtor {
    let tid = Tid::current();
    Debtor { process: tid, tid, mark: Mark { inode, start: 0 } }
}

/// Of a process whose main thread is ours, if it is none of [`nobody`].
pub(crate) fn owe(debtor: &Debtor, until: Time) {
    super::owe(*debtor, main_mark(debtor), until);
}

fn main_mark(debtor: &Debtor) -> Mark {
    Thread::open(debtor.process).map_or(Mark::UNKNOWN, |main| main.debtor().mark)
}

pub(crate) fn known(debtor: &Debtor) -> Option<Time> {
    lock().find(debtor)
}

/// Exactly this.
pub(crate) fn set(debtor: &Debtor, until: Option<Time>) {
    let mut debts = lock();
    match until {
        Some(until) => debts.place(Debt { debtor: *debtor, main: Mark::UNKNOWN, until }, None),
        None => debts.forget(debtor),
    }
}

fn marked(debtor: Debtor, inode: u64) -> Debtor {
    Debtor { mark: Mark { inode, ..debtor.mark }, ..debtor }
}

/// What must be so whenever nobody is at it.
fn audit() {
    let debts = lock();
    let standing: Vec<_> = debts
        .slots
        .iter()
        .enumerate()
        .filter_map(|(slot, debt)| Some((debt.as_ref()?, slot)))
        .collect();
    assert_eq!(standing.len(), debts.index.len());
    assert_eq!(standing.len(), COUNT.load(Ordering::Relaxed));
    assert!(
        standing.iter().all(|(debt, slot)| debts.index.get(&debt.debtor) == Some(slot)),
        "{debts:?}"
    );
    assert_eq!(standing.len() + debts.free.len(), debts.slots.len());
}

/// Threads that live until the guards are dropped.
fn crowd(count: usize) -> Vec<(Debtor, mpsc::Sender<()>)> {
    let one = || {
        let ((say, heard), (alive, over)) = (mpsc::channel(), mpsc::channel::<()>());
        drop(std::thread::spawn(move || {
            say.send(ours()).expect("a listener");
            let _ = over.recv();
        }));
        (heard.recv().expect("a debtor"), alive)
    };
    (0..count).map(|_| one()).collect()
}

/// A thread of this process that has ended, and the program's main thread.
fn ended() -> (Debtor, Debtor) {
    let of = |tid| Thread::open(tid).expect("a living thread").debtor();
    let ended = std::thread::spawn(move || of(Tid::current())).join().expect("a debtor");
    // It is joined a moment before the kernel calls it ended.
    while Thread::open(ended.tid).is_ok_and(|thread| thread.debtor() == ended) {
        std::thread::yield_now();
    }
    (ended, of(Tid::of_process()))
}

/// The tests share the process's memory, and some count what is in it or ask about its main thread.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_debt_is_over_when_it_is_paid() {
    let _alone = alone();
    let debtor = nobody(u64::MAX - 1);
    owe(&debtor, Time::NEVER);
    assert_eq!(owing_until(&debtor), Some(Time::NEVER));
    assert_eq!(owing_until(&marked(debtor, 3)), None, "another thread owes nothing");
    owe(&debtor, clock::now());
    assert_eq!(owing_until(&debtor), Some(Time::NEVER), "it is only ever made longer");
    set(&debtor, Some(clock::now()));
    assert_eq!(owing_until(&debtor), None);
    owe(&debtor, Time::NEVER);
    set(&debtor, None);
    assert_eq!((owing_until(&debtor), known(&debtor)), (None, None));
}

#[test]
fn whoever_opens_the_file_next_learns_what_living_threads_owe() {
    let _alone = alone();
    let dir = Dir::new("next");
    let debtor = ours();
    // Somebody who will have ended, or never was.
    let gone = marked(Debtor { process: debtor.tid, ..debtor }, debtor.mark.inode ^ 1);
    let kept = keep_in(&dir.file()).expect("a new file");
    owe(&debtor, Time::NEVER);
    owe(&gone, Time::NEVER);
    drop(kept);
    let written = dir.found();
    for debtor in [debtor, gone] {
        assert!(
            written.iter().any(|debt| (debt.debtor, debt.until) == (debtor, Time::NEVER)),
            "{written:?}"
        );
        set(&debtor, None);
    }
    assert_eq!(owing_until(&debtor), None);
    let kept = keep_in(&dir.file()).expect("the same file");
    assert_eq!(owing_until(&debtor), Some(Time::NEVER));
    assert_eq!(known(&gone), None, "that thread does not live");
    set(&debtor, None);
    drop(kept);
    assert!(dir.found().iter().all(|debt| debt.debtor != debtor), "{:?}", dir.found());
}

#[test]
fn an_older_file_shortens_no_debt_and_pushes_none_out() {
    let _alone = alone();
    let (older, other) = (Dir::new("older"), Dir::new("newer"));
    let far = clock::now() + Span::from_ns(3_600_000_000_000);
    let debtor = ours();
    let kept = keep_in(&older.file()).expect("a new file");
    owe(&debtor, far);
    drop(kept);
    set(&debtor, Some(Time::NEVER));
    let both =
        (keep_in(&other.file()).expect("a new file"), keep_in(&older.file()).expect("the older"));
    assert_eq!(owing_until(&debtor), Some(Time::NEVER));
    drop(both);
    set(&debtor, None);
    for dir in [&older, &other] {
        assert!(dir.has(debtor, Time::NEVER), "{:?}", dir.found());
    }
    // In the file its place is the first; here somebody else has all that there are.
    let others = crowd(ROOM + 4);
    for (other, _) in &others {
        owe(other, Time::NEVER);
    }
    drop(keep_in(&older.file()).expect("the older"));
    let found: Vec<_> = older.found().into_iter().map(|debt| debt.debtor).collect();
    let mut all: Vec<_> = others.iter().map(|&(other, _)| other).chain([debtor]).collect();
    assert!(all.iter().all(|debtor| found.contains(debtor)), "{found:?}");
    for debtor in &all {
        set(debtor, None);
    }
    // Each once.
    all.extend(&found);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), found.len());
}

#[test]
fn each_of_several_mirrors_has_every_debt_and_two_processes_share_none() {
    let _alone = alone();
    let (one, other) = (Dir::new("one"), Dir::new("other"));
    let debtor = ours();
    let before = keep_in(&one.file()).expect("a new file");
    owe(&debtor, Time::NEVER);
    let after = keep_in(&other.file()).expect("a new file");
    assert!(matches!(keep_in(&other.file()), Err(StateError::InUse { .. })));
    drop((before, after));
    set(&debtor, None);
    assert!(one.has(debtor, Time::NEVER) && other.has(debtor, Time::NEVER));
}

#[test]
fn what_an_ended_thread_owed_is_held_against_its_main_thread_which_it_may_have_become() {
    let _alone = alone();
    let (ended, main) = ended();
    owe(&main, clock::now());
    assert_eq!(owing_until(&main), None);
    owe(&ended, Time::NEVER);
    assert_eq!(owing_until(&ours()), None, "another thread does not inherit");
    assert_eq!(owing_until(&main), Some(Time::NEVER));
    assert_eq!(known(&ended), None);
    // Beside what it owes itself, the longer of the two.
    let soon = clock::now() + Span::from_ns(3_600_000_000_000);
    set(&main, Some(soon));
    owe(&ended, Time::NEVER);
    assert_eq!((owing_until(&main), known(&ended)), (Some(Time::NEVER), None));
    owe(&ended, soon);
    assert_eq!((owing_until(&main), known(&ended)), (Some(Time::NEVER), None));
    set(&main, None);
    // So it does after a restart.
    let dir = Dir::new("heir");
    let kept = keep_in(&dir.file()).expect("a new file");
    owe(&ended, Time::NEVER);
    drop(kept);
    set(&ended, None);
    drop(keep_in(&dir.file()).expect("the same file"));
    assert_eq!((known(&ended), known(&main)), (None, Some(Time::NEVER)));
    set(&main, None);
    // Living ones owe for themselves, unless there are too many to ask.
    let crowd = crowd(PROBES + 1);
    for (number, (debtor, _)) in crowd.iter().enumerate() {
        assert_eq!(owing_until(&main), None, "{number}");
        owe(debtor, Time::NEVER);
    }
    assert_eq!((owing_until(&main), known(&main)), (Some(Time::NEVER), None));
    for (debtor, _) in &crowd {
        set(debtor, None);
    }
}

#[test]
fn threads_that_come_and_go_in_debt_leave_no_slots() {
    let _alone = alone();
    let soon = clock::now() + Span::from_ns(1);
    let before = lock().slots.len();
    for round in 0..4_000 {
        owe(&nobody(2 * round), soon);
        owe(&nobody(2 * round + 1), Time::NEVER);
    }
    let slots = lock().slots.len();
    assert!(slots <= before.max(64), "{slots} slots, {before} before");
}

#[test]
fn a_debt_that_an_old_one_is_looked_at_before_is_passed_on_and_not_lost() {
    let _alone = alone();
    let (ended, main) = ended();
    let soon = clock::now();
    // The ended one stands before its heir, whose own debt is paid; the table is full of others.
    let before = lock().slots.len();
    owe(&ended, Time::NEVER);
    set(&main, Some(soon));
    let crowd = crowd(ROOM);
    for (other, _) in &crowd {
        owe(other, Time::NEVER);
    }
    // As often as it takes to look at all of them, and once more.
    let rounds = 2 * (lock().slots.len() / LOOKS + 2) as u64;
    for round in 0..rounds {
        owe(&nobody(u64::MAX - 100 - round), Time::NEVER);
        audit();
    }
    assert_eq!((known(&main), known(&ended)), (Some(Time::NEVER), None), "{before} slots before");
    for debtor in crowd.iter().map(|(other, _)| other).chain([&main]) {
        set(debtor, None);
    }
    audit();
}

#[test]
fn whoever_is_remembered_may_inherit_while_room_is_made_for_it() {
    let _alone = alone();
    let (ended, main) = ended();
    let far = clock::now() + Span::from_ns(3_600_000_000_000);
    let crowd = crowd(ROOM);
    for (other, _) in &crowd {
        owe(other, Time::NEVER);
    }
    owe(&ended, far);
    {
        // It is the next to be looked at.
        let mut debts = lock();
        debts.free.clear();
        let kept: Vec<_> = debts.slots.iter().flatten().copied().collect();
        debts.slots = kept.iter().copied().map(Some).collect();
        debts.index = (0..).zip(&kept).map(|(slot, debt)| (debt.debtor, slot)).collect();
        let count = debts.slots.len();
        debts.looked = (debts.index[&ended] + count - 1) % count;
    }
    audit();
    // What it says is less than what it finds itself to owe by then.
    let announced = announce(main, |_| Some(clock::now() + Span::from_ns(1_000_000_000)));
    assert_eq!((announced.before, announced.said, known(&main)), (Some(far), true, Some(far)));
    settle(&announced, None, Mark::default);
    assert_eq!((known(&main), known(&ended)), (Some(far), None));
    audit();
    for debtor in crowd.iter().map(|(other, _)| other).chain([&main]) {
        set(debtor, None);
    }
}

#[test]
fn a_later_process_with_the_same_number_inherits_nothing() {
    let _alone = alone();
    let (ended, main) = ended();
    let other = Mark { inode: main.mark.inode ^ 1, ..main.mark };
    super::owe(ended, other, Time::NEVER);
    assert_eq!((owing_until(&main), known(&ended)), (None, None));
    // Nor after a restart.
    let dir = Dir::new("stranger");
    let kept = keep_in(&dir.file()).expect("a new file");
    super::owe(ended, other, Time::NEVER);
    drop(kept);
    set(&ended, None);
    drop(keep_in(&dir.file()).expect("the same file"));
    assert_eq!((known(&ended), known(&main)), (None, None));
    // Nor anybody from one whose main thread nobody has seen.
    super::owe(ended, Mark::UNKNOWN, Time::NEVER);
    assert_eq!((owing_until(&main), known(&ended)), (None, None));
    // Its own does.
    super::owe(ended, main.mark, Time::NEVER);
    assert_eq!(owing_until(&main), Some(Time::NEVER));
    set(&main, None);
}

#[test]
fn what_somebody_else_has_said_meanwhile_is_not_taken_back() {
    let _alone = alone();
    let debtor = nobody(u64::MAX - 17);
    let at = |ms: u64| clock::now() + Span::from_ns(ms * 1_000_000);
    let (near, far) = (at(60_000), at(3_600_000));
    for owes in [Some(near), None] {
        let announced = announce(debtor, |_| Some(near));
        owe(&debtor, far);
        settle(&announced, owes, Mark::default);
        assert_eq!(known(&debtor), Some(far));
        set(&debtor, None);
    }
    // Also where it is less than what was announced, which nobody owes in the end.
    let announced = announce(debtor, |_| Some(far));
    owe(&debtor, near);
    assert_eq!(known(&debtor), Some(far));
    settle(&announced, None, Mark::default);
    assert_eq!(known(&debtor), Some(near));
    set(&debtor, None);
    assert!(lock().open.is_empty());
}

#[test]
fn a_file_that_is_opened_again_and_again_does_not_grow() {
    let _alone = alone();
    let dir = Dir::new("again");
    let debtor = ours();
    owe(&debtor, Time::NEVER);
    let length = || std::fs::metadata(dir.file()).expect("the file").len();
    drop(keep_in(&dir.file()).expect("a new file"));
    drop(keep_in(&dir.file()).expect("the same file"));
    let first = length();
    for _ in 0..10 {
        drop(keep_in(&dir.file()).expect("the same file"));
    }
    assert_eq!(length(), first);
    assert!(dir.has(debtor, Time::NEVER));
    set(&debtor, None);
}

#[test]
fn what_is_paid_is_forgotten_when_it_is_asked_for() {
    let _alone = alone();
    let debtor = nobody(u64::MAX - 19);
    owe(&debtor, clock::now());
    assert_eq!((owing_until(&debtor), known(&debtor)), (None, None));
    audit();
}
