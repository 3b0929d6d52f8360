//! Shields of a machine that is not this one, with threads that come, go and are moved by others;
//! and killed at every point.

use super::books::{Books, Owner};
use super::ground::{Ground, Knob};
use super::{Clear, What, Why};
use crate::Tid;
use crate::proc::Stat;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use talea_core::CpuSet;

const BOOT: [u8; 16] = [7; 16];
/// When shields of these tests begin.
const BEGUN: u64 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Thread {
    process: i32,
    parent: i32,
    start: u64,
    is_bound: bool,
    is_real_time: bool,
    may_use: CpuSet,
    /// Its cpuset.
    within: CpuSet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Interrupt {
    may_use: CpuSet,
    goes: u32,
    is_managed: bool,
    /// It comes all the time.
    comes: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct World {
    threads: BTreeMap<i32, Thread>,
    interrupts: BTreeMap<u32, Interrupt>,
    others: BTreeMap<bool, CpuSet>,
}

/// A machine; it stops doing what it is told after some changes, as for one that was killed.
struct Fake {
    world: RefCell<World>,
    online: Cell<CpuSet>,
    changes_left: Cell<u32>,
    kills: bool,
}

struct Killed;

fn set(list: &str) -> CpuSet {
    CpuSet::parse(list).expect("a list")
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

impl Fake {
    fn new(world: World) -> Fake {
        Fake {
            world: RefCell::new(world),
            online: Cell::new(set("0-3")),
            changes_left: Cell::new(u32::MAX),
            kills: false,
        }
    }

    fn change(&self) {
        match self.changes_left.get().checked_sub(1) {
            Some(left) => self.changes_left.set(left),
            // Without a word of the panic hook's.
            None if self.kills => std::panic::resume_unwind(Box::new(Killed)),
            None => {}
        }
    }

    fn settle(interrupt: &mut Interrupt) {
        if interrupt.comes && !interrupt.may_use.contains(interrupt.goes) {
            interrupt.goes = interrupt.may_use.iter().next().expect("somewhere");
        }
    }
}

impl Ground for Fake {
    fn each(&self, visit: &mut dyn FnMut(Tid, Tid, &Stat)) {
        let all: Vec<i32> = self.world.borrow().threads.keys().copied().collect();
        for number in all {
            let process = self.world.borrow().threads[&number].process;
            let (process, tid) = (Tid::new(process).expect("one"), Tid::new(number).expect("one"));
            visit(process, tid, &self.stat(process, tid).expect("it is there"));
        }
    }

    fn stat(&self, _: Tid, tid: Tid) -> io::Result<Stat> {
        let world = self.world.borrow();
        let thread = world.threads.get(&tid.as_raw()).ok_or_else(gone)?;
        let flags = if thread.is_bound { 0x0400_0000 } else { 0 };
        Ok(Stat { state: b'S', parent: thread.parent, flags, start_ticks: thread.start, cpu: 0 })
    }

    fn affinity(&self, tid: Tid) -> io::Result<CpuSet> {
        let may_use = self.world.borrow().threads.get(&tid.as_raw()).map(|thread| thread.may_use);
        may_use.map(|cpus| cpus.intersection(&self.online.get())).ok_or_else(gone)
    }

    fn online(&self) -> CpuSet {
        self.online.get()
    }

    fn set_affinity(&self, tid: Tid, cpus: &CpuSet) -> io::Result<()> {
        self.change();
        let mut world = self.world.borrow_mut();
        let thread = world.threads.get_mut(&tid.as_raw()).ok_or_else(gone)?;
        let cpus = cpus.intersection(&thread.within);
        if thread.is_bound || cpus.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        thread.may_use = cpus;
        Ok(())
    }

    fn is_real_time(&self, tid: Tid) -> bool {
        self.world.borrow().threads.get(&tid.as_raw()).is_some_and(|thread| thread.is_real_time)
    }

    fn read(&self, knob: Knob) -> io::Result<CpuSet> {
        let world = self.world.borrow();
        let interrupt = |number| world.interrupts.get(&number).ok_or_else(gone);
        match knob {
            Knob::NewInterrupts => Ok(world.others[&false]),
            Knob::Workers => Ok(world.others[&true]),
            Knob::Interrupt(number) => interrupt(number).map(|one| one.may_use),
            Knob::Effective(number) => interrupt(number).map(|one| CpuSet::single(one.goes)),
        }
    }

    fn turn(&self, knob: Knob, cpus: &CpuSet) -> io::Result<()> {
        self.change();
        let mut world = self.world.borrow_mut();
        match knob {
            Knob::NewInterrupts => _ = world.others.insert(false, *cpus),
            Knob::Workers => _ = world.others.insert(true, *cpus),
            Knob::Interrupt(number) | Knob::Effective(number) => {
                let interrupt = world.interrupts.get_mut(&number).ok_or_else(gone)?;
                if interrupt.is_managed {
                    return Err(io::Error::from_raw_os_error(libc::EIO));
                }
                interrupt.may_use = *cpus;
                Fake::settle(interrupt);
            }
        }
        Ok(())
    }

    fn interrupts(&self) -> Vec<u32> {
        self.world.borrow().interrupts.keys().copied().collect()
    }

    fn pause(&self) {}
}

fn thread(process: i32, may_use: &str) -> Thread {
    Thread {
        process,
        parent: 1,
        start: 10,
        is_bound: false,
        is_real_time: false,
        may_use: set(may_use),
        within: set("0-3"),
    }
}

fn interrupt(may_use: &str, goes: u32) -> Interrupt {
    Interrupt { may_use: set(may_use), goes, is_managed: false, comes: true }
}

/// Four CPUs, of which 2 and 3 are shielded.
fn world() -> World {
    let threads = [
        (1, thread(1, "0-3")),
        (2, Thread { is_bound: true, ..thread(2, "2") }),
        (3, thread(3, "0")),
        (4, thread(4, "1,3")),
        (5, thread(4, "2-3")),
        (6, Thread { is_real_time: true, ..thread(6, "2-3") }),
        (7, Thread { is_real_time: true, ..thread(7, "1-2") }),
        // Nothing is left for it in its cpuset.
        (8, Thread { within: set("2"), ..thread(8, "2") }),
        // Its cpuset has less than it is told.
        (9, Thread { within: set("1-3"), ..thread(9, "3") }),
    ];
    let interrupts = [
        (20, interrupt("0-3", 3)),
        (21, interrupt("0-1", 0)),
        (22, interrupt("2", 2)),
        (23, Interrupt { is_managed: true, ..interrupt("3", 3) }),
        (24, Interrupt { comes: false, ..interrupt("0-3", 2) }),
    ];
    World {
        threads: threads.into(),
        interrupts: interrupts.into(),
        others: [(false, set("0-3")), (true, set("0-3"))].into(),
    }
}

/// A file of one test's own.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        Place(std::env::temp_dir().join(format!("talea-shield-{}-{name}", std::process::id())))
    }

    fn begin(&self, ground: &dyn Ground, owner: i32) -> Result<Books, Owner> {
        let owner = Owner { parent: Tid::new(owner).expect("one"), start: BEGUN };
        Books::begin(&self.0, ground, owner, BOOT).expect("a file")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn clear<'a>(ground: &'a Fake, books: &'a Books) -> Clear<'a> {
    Clear { ground, books, cpus: set("2-3"), rest: set("0-1") }
}

#[test]
fn y17_whatever_can_be_moved_is_and_the_rest_is_told_with_its_reason() {
    let (place, fake) = (Place::new("moves"), Fake::new(world()));
    let books = place.begin(&fake, 999).expect("nobody has one");
    let clear = clear(&fake, &books);
    let cleared = clear.all();
    let left = clear.look(&cleared.left);
    let may_use = |number: i32| fake.world.borrow().threads[&number].may_use.to_string();
    let now: Vec<String> = (1..=9).map(may_use).collect();
    assert_eq!(now, ["0-1", "2", "0", "1", "0-1", "2-3", "1", "2", "1"]);
    let goes: Vec<u32> = fake.world.borrow().interrupts.values().map(|one| one.goes).collect();
    assert_eq!(goes, [0, 0, 0, 3, 2]);
    assert_eq!((cleared.threads, cleared.interrupts), (5, 3));
    let told: Vec<(i64, Why)> = left
        .iter()
        .map(|left| match &left.what {
            What::Thread { tid, .. } => (i64::from(tid.as_raw()), left.why),
            What::Interrupt { number, .. } => (-i64::from(*number), left.why),
            What::Workers => (0, left.why),
        })
        .collect();
    let expected = [
        (-23, Why::Refused(libc::EIO)),
        (-24, Why::Follows),
        (2, Why::Bound),
        (6, Why::Promised),
        (8, Why::Refused(libc::EINVAL)),
    ];
    assert_eq!(told, expected);
    books.undo(&fake);
    assert_eq!(*fake.world.borrow(), world());
    // Once more changes nothing.
    assert_eq!(books.undo(&fake).left, 0);
    assert_eq!(*fake.world.borrow(), world());
}

#[test]
fn y17_what_others_change_meanwhile_is_left_and_new_threads_get_what_their_parents_had() {
    let (place, fake) = (Place::new("others"), Fake::new(world()));
    let books = place.begin(&fake, 999).expect("nobody has one");
    clear(&fake, &books).all();
    let mut expected = world();
    {
        let mut world = fake.world.borrow_mut();
        world.threads.remove(&4);
        expected.threads.remove(&4);
        // The same number, another thread: no kin, and so an orphan.
        world.threads.insert(7, Thread { start: BEGUN + 3, ..thread(7, "1") });
        expected.threads.insert(7, Thread { start: BEGUN + 3, ..thread(7, "1,3") });
        for to in [&mut *world, &mut expected] {
            to.threads.get_mut(&5).expect("it is there").may_use = set("1");
            to.interrupts.get_mut(&22).expect("it is there").may_use = set("1");
            to.interrupts.get_mut(&22).expect("it is there").goes = 1;
            to.others.insert(true, set("0"));
        }
        // Of process 1, of one that process 1 began, of one that asked for these itself, and a
        // real-time one.
        let new = |process, may_use: &str| Thread { start: BEGUN + 5, ..thread(process, may_use) };
        world.threads.insert(30, new(1, "0-1"));
        expected.threads.insert(30, new(1, "0-3"));
        world.threads.insert(31, new(31, "0-1"));
        expected.threads.insert(31, new(31, "0-3"));
        for to in [&mut *world, &mut expected] {
            to.threads.insert(32, new(32, "0"));
            to.threads.insert(33, Thread { is_real_time: true, ..new(33, "0-1") });
            // There before, and where it wants to be.
            to.threads.insert(34, thread(34, "0-1"));
        }
    }
    let restored = books.undo(&fake);
    assert_eq!(*fake.world.borrow(), expected, "{restored:?}");
    assert_eq!((restored.left, restored.ended, restored.inherited), (3, 2, 3), "{restored:?}");
}

#[test]
fn y17_whoever_was_pinned_before_a_shield_and_whom_it_makes_stay_where_they_are() {
    let (place, fake) = (Place::new("pinned"), Fake::new(world()));
    // What the shield makes of process 1 and many others they had been told before.
    for (number, of, parent) in [(40, 40, 1), (43, 43, 1), (44, 43, 1)] {
        fake.world.borrow_mut().threads.insert(number, Thread { parent, ..thread(of, "0-1") });
    }
    fake.world.borrow_mut().threads.get_mut(&44).expect("it is there").may_use = set("0-3");
    let mut expected = fake.world.borrow().clone();
    let books = place.begin(&fake, 999).expect("nobody has one");
    clear(&fake, &books).all();
    let new = |process, parent, may_use: &str| Thread {
        start: BEGUN + 5,
        parent,
        ..thread(process, may_use)
    };
    // A thread of the pinned one, a child, and a child of that one's.
    for (number, of, parent) in [(50, 40, 1), (51, 51, 40), (52, 52, 51)] {
        fake.world.borrow_mut().threads.insert(number, new(of, parent, "0-1"));
        expected.threads.insert(number, new(of, parent, "0-1"));
    }
    // A child of one of whose threads was moved, and a child of that one's; one that somebody from
    // outside began; and orphans.
    let heirs = [(53, 53, 43, "0-1", "0-3"), (54, 54, 53, "0-1", "0-3"), (55, 55, 0, "0-1", "0-1")];
    let orphans = [(56, 56, 1, "1", "1,3"), (57, 57, 500, "1", "1,3")];
    for (number, of, parent, now, then) in heirs.into_iter().chain(orphans) {
        fake.world.borrow_mut().threads.insert(number, new(of, parent, now));
        expected.threads.insert(number, new(of, parent, then));
    }
    // One that was moved, and that somebody has moved since to where another one is.
    fake.world.borrow_mut().threads.get_mut(&44).expect("it is there").may_use = set("1");
    expected.threads.get_mut(&44).expect("it is there").may_use = set("1");
    let restored = books.undo(&fake);
    assert_eq!(*fake.world.borrow(), expected, "{restored:?}");
    assert_eq!((restored.left, restored.inherited), (1, 4), "{restored:?}");
}

#[test]
fn y17_where_no_orphan_can_have_been_moved_none_is_moved_back() {
    let (place, fake) = (Place::new("init"), Fake::new(world()));
    // As of a machine on which everything but the application is told at boot where to run.
    fake.world.borrow_mut().threads.get_mut(&1).expect("it is there").may_use = set("1");
    let books = place.begin(&fake, 999).expect("nobody has one");
    clear(&fake, &books).all();
    let service = Thread { start: BEGUN + 5, ..thread(60, "1") };
    fake.world.borrow_mut().threads.insert(60, service.clone());
    books.undo(&fake);
    assert_eq!(fake.world.borrow().threads[&60], service);
}

#[test]
fn y17_a_shield_during_which_a_cpu_goes_off_line_is_put_back() {
    for offline in ["0", "1", "2"] {
        let (place, fake) = (Place::new("offline"), Fake::new(world()));
        let books = place.begin(&fake, 999).expect("nobody has one");
        clear(&fake, &books).all();
        let new = Thread { start: BEGUN + 5, ..thread(30, "0-1") };
        fake.world.borrow_mut().threads.insert(30, new.clone());
        // Somebody else's change is told from the CPU that has gone.
        fake.world.borrow_mut().threads.get_mut(&9).expect("it is there").may_use = set("2-3");
        fake.online.set(set("0-3").difference(&set(offline)));
        let restored = books.undo(&fake);
        fake.online.set(set("0-3"));
        let mut expected = world();
        expected.threads.insert(30, Thread { may_use: set("0-3"), ..new });
        expected.threads.get_mut(&9).expect("it is there").may_use = set("2-3");
        if offline == "1" {
            // Of what was made of these nothing is left: the kernel has put them somewhere else.
            for number in [4, 7] {
                expected.threads.get_mut(&number).expect("it is there").may_use = set("1");
            }
        }
        assert_eq!(*fake.world.borrow(), expected, "without CPU {offline}: {restored:?}");
    }
}

#[test]
fn y17_a_shield_that_is_killed_after_any_number_of_changes_is_put_back_by_the_next() {
    let mut kills = 0;
    for killed_after in 0.. {
        let place = Place::new("killed");
        let fake = Fake { kills: true, ..Fake::new(world()) };
        let books = place.begin(&fake, 999).expect("nobody has one");
        fake.changes_left.set(killed_after);
        let whole = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            clear(&fake, &books).all();
            // And so is one that is killed while it puts things back.
            books.undo(&fake);
        }));
        kills += u32::from(whole.is_err());
        fake.changes_left.set(u32::MAX);
        // The one that was killed is not there any more.
        let next = place.begin(&fake, 998).expect("nobody who lives has one");
        let mut found = fake.world.borrow().clone();
        // Who is not where it was may be there: interrupts that are killed amid are where they may
        // be.
        found.interrupts.values_mut().for_each(|one| one.goes = 0);
        let mut expected = world();
        expected.interrupts.values_mut().for_each(|one| one.goes = 0);
        assert_eq!(found, expected, "killed after {killed_after} changes");
        drop(next);
        if whole.is_ok() {
            break;
        }
    }
    assert!(kills > 15, "{kills}");
}

#[test]
fn y17_there_is_one_shield_at_a_time_and_another_boots_books_are_nobodys() {
    let (place, fake) = (Place::new("one"), Fake::new(world()));
    fake.world.borrow_mut().threads.insert(999, Thread { start: BEGUN, ..thread(999, "0") });
    let books = place.begin(&fake, 999).expect("nobody has one");
    clear(&fake, &books).all();
    let before = fake.world.borrow().clone();
    assert_eq!(place.begin(&fake, 998).expect_err("it lives").parent.as_raw(), 999);
    assert_eq!(*fake.world.borrow(), before);
    // Its keeper finds its own, and not another one's.
    let owner = |number| Owner { parent: Tid::new(number).expect("one"), start: BEGUN };
    assert!(Books::reopen(&place.0, owner(998), BOOT).expect("a file").is_none());
    assert!(Books::reopen(&place.0, owner(999), BOOT).expect("a file").is_some());
    fake.world.borrow_mut().threads.remove(&999);
    let next = place.begin(&fake, 998).expect("nobody who lives has one");
    assert!(Books::reopen(&place.0, owner(999), BOOT).expect("a file").is_none());
    // Those of another boot say nothing about this one.
    let before = world();
    assert_eq!(*fake.world.borrow(), before);
    clear(&fake, &next).all();
    let before = fake.world.borrow().clone();
    assert!(Books::begin(&place.0, &fake, owner(997), [8; 16]).expect("a file").is_ok());
    assert_eq!(*fake.world.borrow(), before);
}
