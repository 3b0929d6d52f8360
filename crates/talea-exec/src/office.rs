//! Where the machine of a root stands, and who may step it: the dispatchers of its CPUs, and a worker that has just finished.
//!
//! A wake of the dispatcher costs several times what a step does. So a worker whose piece is over takes the lock and steps the
//! machine itself, as the dispatcher would; that one sleeps on, and is rung for only where it has to look sooner than it
//! meant to. A job costs one wake of the dispatcher then, that of its arrival.
//!
//! The worker stands below the dispatcher. Where that one wakes meanwhile, the lock lends the worker its priority. Nobody is
//! stopped who has the lock or waits for it ([`unstopped`]): a thread that sleeps behind its gate with it would never be let go.
//! All that needs priorities, and a root with one CPU; elsewhere, and where what runs is metered (whoever looks
//! after a budget must know when the look is due), the worker leaves a letter and rings, and the dispatcher steps.

use crate::dispatcher::Timeline;
use crate::mailbox::Mail;
use crate::mechanism::Mechanism;
use crate::record::Log;
use crate::root::Root;
use crate::stage::Stage;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_core::Time;
use talea_core::machine::TaskId;
use talea_os::gate::unstopped;
use talea_os::pilock::PiLock;

/// A root, and what those who step it share; behind one lock.
#[derive(Debug)]
pub(crate) struct Office<M: Mechanism> {
    pub(crate) root: Root<M>,
    /// By CPU.
    logs: Vec<Log>,
    /// What is read in a step; empty between two.
    mail: Mail,
    /// What the kernel refused a worker that stepped.
    failed: Option<M::Error>,
    /// Steps that workers made.
    pub(crate) by_workers: u64,
}

impl<M: Mechanism> Office<M> {
    /// `room` entries of a record for each of so many CPUs.
    pub(crate) fn new(root: Root<M>, cpus: usize, tasks: usize, room: usize) -> Office<M> {
        let logs = (0..cpus).map(|_| Log::new(room)).collect();
        Office { root, logs, mail: Mail::new(tasks), failed: None, by_workers: 0 }
    }

    /// One instant on `cpu`: what lies in its mailbox, and what `who` steps has to say itself.
    pub(crate) fn step(
        &mut self,
        cpu: usize,
        now: Time,
        stage: &Stage,
        who: Option<TaskId>,
    ) -> Result<(), M::Error> {
        stage.cpus[cpu].mailbox.take(&stage.slots, &mut self.mail);
        self.mail.ended.extend(who);
        let stepped = self.root.step(cpu, now, &self.mail, &mut self.logs[cpu]);
        self.mail.clear();
        if self.root.is_done() {
            stage.call_off();
        }
        stepped
    }

    /// The run is over for this root: no step changes anything any more. When the last one was.
    pub(crate) fn close(&mut self) -> Result<Time, M::Error> {
        self.root.close();
        self.failed.take().map_or(Ok(self.root.now()), Err)
    }

    /// The records, when the run is over.
    pub(crate) fn take_logs(&mut self) -> Vec<Log> {
        std::mem::take(&mut self.logs)
    }
}

/// What a worker needs to step the machine itself.
#[derive(Debug)]
pub(crate) struct Counter<M: Mechanism> {
    office: Arc<PiLock<Office<M>>>,
    time: Timeline,
}

impl<M: Mechanism> Counter<M> {
    pub(crate) fn new(office: Arc<PiLock<Office<M>>>, time: Timeline) -> Counter<M> {
        Counter { office, time }
    }

    /// The piece of the calling worker is over: whether the machine knows. If not, the dispatcher is to be told.
    pub(crate) fn finish(&self, task: TaskId, stage: &Stage) -> bool {
        unstopped(|| self.step(task, stage))
    }

    fn step(&self, task: TaskId, stage: &Stage) -> bool {
        let mut office = self.office.lock();
        let now = self.time.now();
        // What ends after the run is not of the run.
        if stage.over.load(Ordering::Acquire) || now >= self.time.until || office.root.is_metered() {
            return false;
        }
        office.by_workers += 1;
        if let Err(error) = office.step(0, now, stage, Some(task)) {
            office.failed = Some(error);
            stage.call_all_off();
            return true;
        }
        let is_soon_enough = office.root.sleeps_on();
        drop(office);
        if !is_soon_enough {
            stage.cpus[0].mailbox.bell.ring();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// What the two share: behind the lock, when the next thing is to be looked at and when the dispatcher will be awake; and its
    /// bell, in terms of the model checker. Nothing comes by itself here: a time that nobody rings for is never.
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

    /// As `finish` does: a step that wants a look at `at`, and a bell where the dispatcher would come too late.
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
            // As `drive` does: hear, take the lock, step, set the alarm, give it back, sleep. It is over when the alarm is the
            // earliest that anybody wants; one that is slept over is a deadlock, which is found.
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
}
