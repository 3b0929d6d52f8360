//! Nobody sleeps over anything, whoever steps: in terms of the model checker.

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// What the two share: behind the lock, when the next thing is to be looked at and when the
/// dispatcher will be awake; and its bell, in terms of the model checker. Nothing comes by itself
/// here: a time that nobody rings for is never.
struct Shared {
    office: Mutex<(u32, u32)>,
    rung: AtomicU32,
    sleepers: Mutex<()>,
    woken: Condvar,
}

const NEVER: u32 = u32::MAX;

impl Shared {
    fn ring(&self) {
        self.rung.fetch_add(1, Ordering::Release);
        drop(self.sleepers.lock().unwrap());
        self.woken.notify_all();
    }

    fn wait(&self, heard: u32) {
        let mut guard = self.sleepers.lock().unwrap();
        while self.rung.load(Ordering::Acquire) == heard {
            guard = self.woken.wait(guard).unwrap();
        }
    }
}

/// As `finish` does: a step that wants a look at `at`, and a bell where the dispatcher would come
/// too late.
fn finish(shared: &Shared, at: u32) {
    let mut office = shared.office.lock().unwrap();
    office.0 = office.0.min(at);
    let is_soon_enough = office.1 <= office.0;
    drop(office);
    if !is_soon_enough {
        shared.ring();
    }
}

#[test]
fn in_every_interleaving_the_dispatcher_is_awake_when_a_worker_needs_it() {
    let look_ahead = |workers: u32| {
        let none = || AtomicU32::new(0);
        let shared = Arc::new(Shared {
            office: Mutex::new((NEVER, 0)),
            rung: none(),
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
        });
        for at in 1..=workers {
            let shared = Arc::clone(&shared);
            thread::spawn(move || finish(&shared, at));
        }
        // As `drive` does: hear, take the lock, step, set the alarm, give it back, sleep. It is
        // over when the alarm is the earliest that anybody wants; one that is slept over is a
        // deadlock, which is found.
        loop {
            let heard = shared.rung.load(Ordering::Acquire);
            let mut office = shared.office.lock().unwrap();
            office.1 = office.0;
            let armed = office.1;
            drop(office);
            if armed == 1 {
                break;
            }
            shared.wait(heard);
        }
    };
    loom::model(move || look_ahead(1));
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || look_ahead(2));
}

/// Who sleeps by which bell.
const DISPATCHER: usize = 0;
const WORKER: usize = 1;

/// One task whose job is under way, and whose next one comes at a time.
#[derive(Default)]
struct Coming {
    /// A job has not ended.
    is_busy: bool,
    /// The arrival has been told.
    is_told: bool,
    /// It is among what the dispatcher is to be awake for.
    is_alarm: bool,
    /// The dispatcher is awake then.
    is_armed: bool,
}

/// As [`Shared`], with a clock that shows whether the time has come, for everybody who sleeps until
/// then.
struct Timed {
    office: Mutex<Coming>,
    has_come: AtomicU32,
    rung: [AtomicU32; 2],
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Timed {
    fn change(&self, word: &AtomicU32) {
        word.fetch_add(1, Ordering::Release);
        drop(self.sleepers.lock().unwrap());
        self.woken.notify_all();
    }

    /// Whether the bell has rung; otherwise the time has come, for which `is_armed`.
    fn wait(&self, who: usize, heard: u32, is_armed: bool) -> bool {
        let mut guard = self.sleepers.lock().unwrap();
        loop {
            if self.rung[who].load(Ordering::Acquire) != heard {
                return true;
            }
            if is_armed && self.has_come.load(Ordering::Acquire) != 0 {
                return false;
            }
            guard = self.woken.wait(guard).unwrap();
        }
    }

    /// As a step: what is due is told, and whose job it is is called.
    fn step(&self, office: &mut Coming) {
        if self.has_come.load(Ordering::Acquire) != 0 && !office.is_told {
            (office.is_told, office.is_alarm) = (true, false);
            self.change(&self.rung[WORKER]);
        }
    }

    /// As the worker: its job ends, it sleeps until the next one comes if it `may`, and is called.
    fn work(&self, may: bool) {
        let mut office = self.office.lock().unwrap();
        office.is_busy = false;
        office.is_alarm = !office.is_told;
        self.step(&mut office);
        let dozes = may && !office.is_told;
        office.is_alarm &= !dozes;
        let is_soon_enough = office.is_armed || !office.is_alarm;
        drop(office);
        if !is_soon_enough {
            self.change(&self.rung[DISPATCHER]);
        }
        let mut is_armed = dozes;
        while !self.wait(WORKER, 0, is_armed) {
            self.step(&mut self.office.lock().unwrap());
            is_armed = false;
        }
    }

    /// As `drive`, until the bell rings for the end of the run.
    fn dispatch(&self, is_over: &AtomicU32) {
        loop {
            let heard = self.rung[DISPATCHER].load(Ordering::Acquire);
            if is_over.load(Ordering::Acquire) != 0 {
                return;
            }
            let mut office = self.office.lock().unwrap();
            self.step(&mut office);
            office.is_armed = office.is_alarm;
            let is_armed = office.is_armed;
            drop(office);
            self.wait(DISPATCHER, heard, is_armed);
        }
    }
}

#[test]
fn s8_in_every_interleaving_somebody_is_awake_when_a_job_comes() {
    let come = |may: bool| {
        let none = || AtomicU32::new(0);
        // What comes behind a job that is under way is no alarm.
        let office = Mutex::new(Coming { is_busy: true, is_alarm: !may, ..Coming::default() });
        let (has_come, rung) = (none(), [none(), none()]);
        let shared =
            Timed { office, has_come, rung, sleepers: Mutex::new(()), woken: Condvar::new() };
        let (shared, is_over) = (Arc::new(shared), Arc::new(none()));
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.work(may))
        };
        let dispatcher = {
            let (shared, is_over) = (Arc::clone(&shared), Arc::clone(&is_over));
            thread::spawn(move || shared.dispatch(&is_over))
        };
        shared.change(&shared.has_come);
        // One that nobody tells of is a worker that nobody calls: a deadlock, which is found.
        worker.join().unwrap();
        is_over.store(1, Ordering::Release);
        shared.change(&shared.rung[DISPATCHER]);
        dispatcher.join().unwrap();
    };
    for may in [true, false] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(move || come(may));
    }
}
