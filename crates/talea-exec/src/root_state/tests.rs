//! Wake-ups of dispatchers and workers under loom: no event is missed, whichever thread steps.

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Shared state: behind the lock, the time of the next event and the wake-up time of the
/// dispatcher; and its event count.
///
/// No timer expires here: a time without a notification is never.
struct Shared {
    state: Mutex<(u32, u32)>,
    rung: AtomicU32,
    sleepers: Mutex<()>,
    woken: Condvar,
}

const NEVER: u32 = u32::MAX;

impl Shared {
    fn notify(&self) {
        self.rung.fetch_add(1, Ordering::Release);
        drop(self.sleepers.lock().unwrap());
        self.woken.notify_all();
    }

    fn wait(&self, key: u32) {
        let mut guard = self.sleepers.lock().unwrap();
        while self.rung.load(Ordering::Acquire) == key {
            guard = self.woken.wait(guard).unwrap();
        }
    }
}

/// Steps like `step_on_completion`: an event at `at`, and a notification if the dispatcher would
/// wake too late.
fn finish(shared: &Shared, at: u32) {
    let mut state = shared.state.lock().unwrap();
    state.0 = state.0.min(at);
    let is_soon_enough = state.1 <= state.0;
    drop(state);
    if !is_soon_enough {
        shared.notify();
    }
}

#[test]
fn in_every_interleaving_the_dispatcher_wakes_for_the_earliest_event() {
    let look_ahead = |workers: u32| {
        let none = || AtomicU32::new(0);
        let shared = Arc::new(Shared {
            state: Mutex::new((NEVER, 0)),
            rung: none(),
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
        });
        for at in 1..=workers {
            let shared = Arc::clone(&shared);
            thread::spawn(move || finish(&shared, at));
        }
        // Runs like `dispatcher::run`: read the key, lock, step, set the wake-up time, unlock,
        // wait. The loop ends when the wake-up time is the earliest event; a missed event is a
        // deadlock, which loom reports.
        loop {
            let key = shared.rung.load(Ordering::Acquire);
            let mut state = shared.state.lock().unwrap();
            state.1 = state.0;
            let armed = state.1;
            drop(state);
            if armed == 1 {
                break;
            }
            shared.wait(key);
        }
    };
    loom::model(move || look_ahead(1));
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || look_ahead(2));
}

/// Indices of the event counts.
const DISPATCHER: usize = 0;
const WORKER: usize = 1;

/// One task with a running job, and the arrival of its next one.
#[derive(Default)]
struct NextArrival {
    /// A job has not ended.
    is_busy: bool,
    /// The arrival was delivered.
    is_delivered: bool,
    /// The arrival is in `dispatcher_alarms`.
    is_alarm: bool,
    /// The dispatcher wakes at the arrival.
    is_armed: bool,
}

/// State like [`Shared`], with a clock that shows whether the arrival is due.
struct Timed {
    state: Mutex<NextArrival>,
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

    /// Whether a notification came; otherwise the arrival is due, and `is_armed` was set for it.
    fn wait(&self, who: usize, key: u32, is_armed: bool) -> bool {
        let mut guard = self.sleepers.lock().unwrap();
        loop {
            if self.rung[who].load(Ordering::Acquire) != key {
                return true;
            }
            if is_armed && self.has_come.load(Ordering::Acquire) != 0 {
                return false;
            }
            guard = self.woken.wait(guard).unwrap();
        }
    }

    /// Makes a step: delivers the arrival if it is due, and wakes the worker of the job.
    fn step(&self, state: &mut NextArrival) {
        if self.has_come.load(Ordering::Acquire) != 0 && !state.is_delivered {
            (state.is_delivered, state.is_alarm) = (true, false);
            self.change(&self.rung[WORKER]);
        }
    }

    /// Runs as a worker: its job ends, it arms its release timer if it `may`, and is woken.
    fn work(&self, may: bool) {
        let mut state = self.state.lock().unwrap();
        state.is_busy = false;
        state.is_alarm = !state.is_delivered;
        self.step(&mut state);
        let is_timer_armed = may && !state.is_delivered;
        state.is_alarm &= !is_timer_armed;
        let is_soon_enough = state.is_armed || !state.is_alarm;
        drop(state);
        if !is_soon_enough {
            self.change(&self.rung[DISPATCHER]);
        }
        let mut is_armed = is_timer_armed;
        while !self.wait(WORKER, 0, is_armed) {
            self.step(&mut self.state.lock().unwrap());
            is_armed = false;
        }
    }

    /// Runs like `dispatcher::run`, until the end of the run.
    fn dispatch(&self, is_over: &AtomicU32) {
        loop {
            let key = self.rung[DISPATCHER].load(Ordering::Acquire);
            if is_over.load(Ordering::Acquire) != 0 {
                return;
            }
            let mut state = self.state.lock().unwrap();
            self.step(&mut state);
            state.is_armed = state.is_alarm;
            let is_armed = state.is_armed;
            drop(state);
            self.wait(DISPATCHER, key, is_armed);
        }
    }
}

#[test]
fn s8_in_every_interleaving_a_thread_is_awake_at_each_release() {
    let come = |may: bool| {
        let none = || AtomicU32::new(0);
        // The arrival behind a running job is in no alarm.
        let state =
            Mutex::new(NextArrival { is_busy: true, is_alarm: !may, ..NextArrival::default() });
        let (has_come, rung) = (none(), [none(), none()]);
        let shared =
            Timed { state, has_come, rung, sleepers: Mutex::new(()), woken: Condvar::new() };
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
        // An undelivered arrival leaves the worker asleep: a deadlock, which loom reports.
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
