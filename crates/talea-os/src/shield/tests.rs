//! Shields of a simulated machine, with threads that start, end and are moved by other processes;
//! the owner is killed after every change.

use super::journal::{Journal, Owner};
use super::ops::{AffinityTarget, SystemOps};
use super::{Evacuation, UnmovedKind, UnmovedReason};
use crate::Tid;
use crate::proc::Stat;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use talea_core::CpuSet;

const BOOT: [u8; 16] = [7; 16];
/// Start tick of the shields in these tests.
const START_TICKS: u64 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Thread {
    process: i32,
    parent: i32,
    start: u64,
    is_bound: bool,
    is_real_time: bool,
    may_use: CpuSet,
    /// CPUs of the thread's cpuset.
    within: CpuSet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Interrupt {
    may_use: CpuSet,
    goes: u32,
    is_managed: bool,
    /// Whether the interrupt occurs all the time.
    comes: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct World {
    threads: BTreeMap<i32, Thread>,
    interrupts: BTreeMap<u32, Interrupt>,
    others: BTreeMap<bool, CpuSet>,
}

/// Simulated machine. After a given number of changes it can simulate a kill.
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
            // Without output by the panic hook.
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

impl SystemOps for Fake {
    fn for_each_thread(&self, visit: &mut dyn FnMut(Tid, Tid, &Stat)) {
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

    fn read_mask(&self, target: AffinityTarget) -> io::Result<CpuSet> {
        let world = self.world.borrow();
        let interrupt = |number| world.interrupts.get(&number).ok_or_else(gone);
        match target {
            AffinityTarget::NewInterrupts => Ok(world.others[&false]),
            AffinityTarget::UnboundWorkers => Ok(world.others[&true]),
            AffinityTarget::Interrupt(number) => interrupt(number).map(|one| one.may_use),
            AffinityTarget::EffectiveInterrupt(number) => {
                interrupt(number).map(|one| CpuSet::single(one.goes))
            }
        }
    }

    fn write_mask(&self, target: AffinityTarget, cpus: &CpuSet) -> io::Result<()> {
        self.change();
        let mut world = self.world.borrow_mut();
        match target {
            AffinityTarget::NewInterrupts => _ = world.others.insert(false, *cpus),
            AffinityTarget::UnboundWorkers => _ = world.others.insert(true, *cpus),
            AffinityTarget::Interrupt(number) | AffinityTarget::EffectiveInterrupt(number) => {
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

    fn sleep_1_ms(&self) {}
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

/// Returns a machine with four CPUs, of which 2 and 3 are shielded.
fn world() -> World {
    let threads = [
        (1, thread(1, "0-3")),
        (2, Thread { is_bound: true, ..thread(2, "2") }),
        (3, thread(3, "0")),
        (4, thread(4, "1,3")),
        (5, thread(4, "2-3")),
        (6, Thread { is_real_time: true, ..thread(6, "2-3") }),
        (7, Thread { is_real_time: true, ..thread(7, "1-2") }),
        // Its cpuset has no other CPU.
        (8, Thread { within: set("2"), ..thread(8, "2") }),
        // Its cpuset has fewer CPUs than requested.
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

/// Journal file of one test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        Place(std::env::temp_dir().join(format!("talea-shield-{}-{name}", std::process::id())))
    }

    fn begin(&self, ops: &dyn SystemOps, owner: i32) -> Result<Journal, Owner> {
        let owner = Owner { thread: Tid::new(owner).expect("one"), start_ticks: START_TICKS };
        Journal::start(&self.0, ops, owner, BOOT).expect("a file")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn evacuation<'a>(ops: &'a Fake, journal: &'a Journal) -> Evacuation<'a> {
    Evacuation { ops, journal, cpus: set("2-3"), rest: set("0-1") }
}

#[test]
fn y17_all_movable_objects_are_moved_and_the_others_are_reported_with_a_reason() {
    let (place, fake) = (Place::new("moves"), Fake::new(world()));
    let journal = place.begin(&fake, 999).expect("no other owner");
    let evacuation = evacuation(&fake, &journal);
    let report = evacuation.run();
    let unmoved = evacuation.list_users(&report.unmoved);
    let may_use = |number: i32| fake.world.borrow().threads[&number].may_use.to_string();
    let now: Vec<String> = (1..=9).map(may_use).collect();
    assert_eq!(now, ["0-1", "2", "0", "1", "0-1", "2-3", "1", "2", "1"]);
    let goes: Vec<u32> = fake.world.borrow().interrupts.values().map(|one| one.goes).collect();
    assert_eq!(goes, [0, 0, 0, 3, 2]);
    assert_eq!((report.threads, report.interrupts), (5, 3));
    let reasons: Vec<(i64, UnmovedReason)> = unmoved
        .iter()
        .map(|unmoved| match &unmoved.kind {
            UnmovedKind::Thread { tid, .. } => (i64::from(tid.as_raw()), unmoved.reason),
            UnmovedKind::Interrupt { number, .. } => (-i64::from(*number), unmoved.reason),
            UnmovedKind::UnboundWorkers => (0, unmoved.reason),
        })
        .collect();
    let expected = [
        (-23, UnmovedReason::Refused(libc::EIO)),
        (-24, UnmovedReason::MovesLater),
        (2, UnmovedReason::CpuBound),
        (6, UnmovedReason::RealTime),
        (8, UnmovedReason::Refused(libc::EINVAL)),
    ];
    assert_eq!(reasons, expected);
    journal.undo(&fake);
    assert_eq!(*fake.world.borrow(), world());
    // Restoring twice changes nothing.
    assert_eq!(journal.undo(&fake).skipped, 0);
    assert_eq!(*fake.world.borrow(), world());
}

#[test]
fn y17_changes_by_other_processes_stay_and_new_threads_get_their_parents_affinity() {
    let (place, fake) = (Place::new("others"), Fake::new(world()));
    let journal = place.begin(&fake, 999).expect("no other owner");
    evacuation(&fake, &journal).run();
    let mut expected = world();
    {
        let mut world = fake.world.borrow_mut();
        world.threads.remove(&4);
        expected.threads.remove(&4);
        // The same number, another thread: no ancestor in the journal, so it counts as orphaned.
        world.threads.insert(7, Thread { start: START_TICKS + 3, ..thread(7, "1") });
        expected.threads.insert(7, Thread { start: START_TICKS + 3, ..thread(7, "1,3") });
        for to in [&mut *world, &mut expected] {
            to.threads.get_mut(&5).expect("it is there").may_use = set("1");
            to.interrupts.get_mut(&22).expect("it is there").may_use = set("1");
            to.interrupts.get_mut(&22).expect("it is there").goes = 1;
            to.others.insert(true, set("0"));
        }
        // A thread of process 1, a child of process 1, a thread that requested this affinity
        // itself, and a real-time one.
        let new =
            |process, may_use: &str| Thread { start: START_TICKS + 5, ..thread(process, may_use) };
        world.threads.insert(30, new(1, "0-1"));
        expected.threads.insert(30, new(1, "0-3"));
        world.threads.insert(31, new(31, "0-1"));
        expected.threads.insert(31, new(31, "0-3"));
        for to in [&mut *world, &mut expected] {
            to.threads.insert(32, new(32, "0"));
            to.threads.insert(33, Thread { is_real_time: true, ..new(33, "0-1") });
            // Started before the shield, with an affinity of its own.
            to.threads.insert(34, thread(34, "0-1"));
        }
    }
    let restored = journal.undo(&fake);
    assert_eq!(*fake.world.borrow(), expected, "{restored:?}");
    assert_eq!((restored.skipped, restored.ended, restored.inherited), (3, 2, 3), "{restored:?}");
}

#[test]
fn y17_shield_leaves_pinned_and_unmovable_threads_alone() {
    let (place, fake) = (Place::new("pinned"), Fake::new(world()));
    // These had the applied affinity of process 1 before the shield.
    for (number, of, parent) in [(40, 40, 1), (43, 43, 1), (44, 43, 1)] {
        fake.world.borrow_mut().threads.insert(number, Thread { parent, ..thread(of, "0-1") });
    }
    fake.world.borrow_mut().threads.get_mut(&44).expect("it is there").may_use = set("0-3");
    let mut expected = fake.world.borrow().clone();
    let journal = place.begin(&fake, 999).expect("no other owner");
    evacuation(&fake, &journal).run();
    let new = |process, parent, may_use: &str| Thread {
        start: START_TICKS + 5,
        parent,
        ..thread(process, may_use)
    };
    // A thread of the pinned process, a child, and a grandchild.
    for (number, of, parent) in [(50, 40, 1), (51, 51, 40), (52, 52, 51)] {
        fake.world.borrow_mut().threads.insert(number, new(of, parent, "0-1"));
        expected.threads.insert(number, new(of, parent, "0-1"));
    }
    // A child and a grandchild of a process with a moved thread; a process started from outside the
    // namespace; and orphans.
    let children =
        [(53, 53, 43, "0-1", "0-3"), (54, 54, 53, "0-1", "0-3"), (55, 55, 0, "0-1", "0-1")];
    let orphans = [(56, 56, 1, "1", "1,3"), (57, 57, 500, "1", "1,3")];
    for (number, of, parent, now, then) in children.into_iter().chain(orphans) {
        fake.world.borrow_mut().threads.insert(number, new(of, parent, now));
        expected.threads.insert(number, new(of, parent, then));
    }
    // A moved thread that another process has since moved to an affinity applied elsewhere.
    fake.world.borrow_mut().threads.get_mut(&44).expect("it is there").may_use = set("1");
    expected.threads.get_mut(&44).expect("it is there").may_use = set("1");
    let restored = journal.undo(&fake);
    assert_eq!(*fake.world.borrow(), expected, "{restored:?}");
    assert_eq!((restored.skipped, restored.inherited), (1, 4), "{restored:?}");
}

#[test]
fn y17_orphans_stay_if_the_shield_moved_none() {
    let (place, fake) = (Place::new("init"), Fake::new(world()));
    // A machine whose boot configuration already keeps everything else off the shielded CPUs.
    fake.world.borrow_mut().threads.get_mut(&1).expect("it is there").may_use = set("1");
    let journal = place.begin(&fake, 999).expect("no other owner");
    evacuation(&fake, &journal).run();
    let service = Thread { start: START_TICKS + 5, ..thread(60, "1") };
    fake.world.borrow_mut().threads.insert(60, service.clone());
    journal.undo(&fake);
    assert_eq!(fake.world.borrow().threads[&60], service);
}

#[test]
fn y17_a_shield_is_restored_after_a_cpu_has_gone_offline() {
    for offline in ["0", "1", "2"] {
        let (place, fake) = (Place::new("offline"), Fake::new(world()));
        let journal = place.begin(&fake, 999).expect("no other owner");
        evacuation(&fake, &journal).run();
        let new = Thread { start: START_TICKS + 5, ..thread(30, "0-1") };
        fake.world.borrow_mut().threads.insert(30, new.clone());
        // Another process's change is recognised without the offline CPU.
        fake.world.borrow_mut().threads.get_mut(&9).expect("it is there").may_use = set("2-3");
        fake.online.set(set("0-3").difference(&set(offline)));
        let restored = journal.undo(&fake);
        fake.online.set(set("0-3"));
        let mut expected = world();
        expected.threads.insert(30, Thread { may_use: set("0-3"), ..new });
        expected.threads.get_mut(&9).expect("it is there").may_use = set("2-3");
        if offline == "1" {
            // Nothing remains of these applied affinities: the kernel has moved the threads
            // elsewhere.
            for number in [4, 7] {
                expected.threads.get_mut(&number).expect("it is there").may_use = set("1");
            }
        }
        assert_eq!(*fake.world.borrow(), expected, "without CPU {offline}: {restored:?}");
    }
}

#[test]
fn y17_a_shield_killed_after_any_change_is_restored_by_the_next() {
    let mut kills = 0;
    for killed_after in 0.. {
        let place = Place::new("killed");
        let fake = Fake { kills: true, ..Fake::new(world()) };
        let journal = place.begin(&fake, 999).expect("no other owner");
        fake.changes_left.set(killed_after);
        let whole = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            evacuation(&fake, &journal).run();
            // The owner may also be killed while it restores.
            journal.undo(&fake);
        }));
        kills += u32::from(whole.is_err());
        fake.changes_left.set(u32::MAX);
        // The killed owner does not exist any more.
        let next = place.begin(&fake, 998).expect("no living owner");
        let mut found = fake.world.borrow().clone();
        // Interrupts killed in between may be delivered to any CPU of their mask.
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
fn y17_there_is_one_shield_at_a_time_and_a_journal_of_another_boot_is_ignored() {
    let (place, fake) = (Place::new("one"), Fake::new(world()));
    fake.world.borrow_mut().threads.insert(999, Thread { start: START_TICKS, ..thread(999, "0") });
    let journal = place.begin(&fake, 999).expect("no other owner");
    evacuation(&fake, &journal).run();
    let before = fake.world.borrow().clone();
    assert_eq!(place.begin(&fake, 998).expect_err("it lives").thread.as_raw(), 999);
    assert_eq!(*fake.world.borrow(), before);
    // A reaper finds the journal of its own owner only.
    let owner = |number| Owner { thread: Tid::new(number).expect("one"), start_ticks: START_TICKS };
    assert!(Journal::reopen(&place.0, owner(998), BOOT).expect("a file").is_none());
    assert!(Journal::reopen(&place.0, owner(999), BOOT).expect("a file").is_some());
    fake.world.borrow_mut().threads.remove(&999);
    let next = place.begin(&fake, 998).expect("no living owner");
    assert!(Journal::reopen(&place.0, owner(999), BOOT).expect("a file").is_none());
    // A journal of another boot is ignored.
    let before = world();
    assert_eq!(*fake.world.borrow(), before);
    evacuation(&fake, &next).run();
    let before = fake.world.borrow().clone();
    assert!(Journal::start(&place.0, &fake, owner(997), [8; 16]).expect("a file").is_ok());
    assert_eq!(*fake.world.borrow(), before);
}

/// Starts a process that locks the file, and whose main thread has ended while another one lives.
/// The kernel shows a killed process that blocks in a close in the same way.
fn lock_by_orphan(path: &Path) -> Tid {
    extern "C" fn sleep_forever(_: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: integers. The kernel keeps this setting for each thread.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
        loop {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        }
    }
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("a path");
    // SAFETY: the child only makes system calls and starts a thread that does the same.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a string that ends, integers, and a thread without arguments.
        unsafe {
            let file = libc::open(path.as_ptr(), libc::O_RDWR);
            libc::flock(file, libc::LOCK_EX);
            let mut thread = std::mem::zeroed();
            libc::pthread_create(
                &raw mut thread,
                std::ptr::null(),
                sleep_forever,
                std::ptr::null_mut(),
            );
            libc::syscall(libc::SYS_exit, 0);
        }
    }
    let child = Tid::new(child).expect("a child");
    while !crate::proc::stat(child).expect("not collected").has_ended() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child
}

#[test]
fn y17_a_killed_process_that_cannot_end_keeps_no_shield_from_starting() {
    let (place, fake) = (Place::new("orphan"), Fake::new(world()));
    let journal = place.begin(&fake, 999).expect("no other owner");
    evacuation(&fake, &journal).run();
    assert_ne!(*fake.world.borrow(), world());
    let orphan = lock_by_orphan(&place.0);
    // Its owner has ended: the next one restores its changes.
    let next = place.begin(&fake, 998).expect("no living owner");
    assert_eq!(*fake.world.borrow(), world());
    fake.world.borrow_mut().threads.insert(998, Thread { start: START_TICKS, ..thread(998, "0") });
    let other = lock_by_orphan(&place.0);
    // A living owner keeps its file, so that its later changes are not lost.
    assert_eq!(place.begin(&fake, 997).expect_err("it lives").thread.as_raw(), 998);
    assert!(next.is_at(&place.0));
    for pid in [orphan, other] {
        // SAFETY: our children, which are collected here.
        unsafe {
            libc::kill(pid.as_raw(), libc::SIGKILL);
            libc::waitpid(pid.as_raw(), std::ptr::null_mut(), 0);
        }
    }
}
