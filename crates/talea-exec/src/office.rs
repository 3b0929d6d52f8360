//! Where the machine of a root stands, and who may step it: the dispatchers of its CPUs, and a
//! worker that has just finished or whose job comes.
//!
//! A wake of the dispatcher costs several times what a step does. So a worker whose piece is over
//! takes the lock and steps the machine itself, as the dispatcher would; that one sleeps on, and is
//! rung for only where it has to look sooner than it meant to. A job costs one wake of the
//! dispatcher then, that of its arrival; or none, where its worker is awake for that itself
//! ([`root::doze`](crate::root)).
//!
//! The worker stands below the dispatcher. Where one wakes meanwhile, the lock lends the worker its
//! priority. Nobody is stopped who has the lock ([`unstopped`]): a thread that sleeps behind its
//! gate with it would never be let go. Nor does a worker wait for it: the dispatcher of another
//! CPU, who has it, may be about to stop that very worker, which would then have the lock and not
//! the CPU. All that needs priorities; without them, where the lock is taken, and where what runs
//! is metered (whoever looks after a budget must know when the look is due), the worker leaves a
//! letter and rings, and the dispatcher steps.
//!
//! The machine asks policies and choosers that are somebody else's. If one of them panics, nobody
//! knows any more what the machine holds: the root is closed in that step, the run is over, and
//! what was said is told as its failure. The program's panic hook runs before that, with the lock
//! held: one that waits for a worker that is stopped waits for ever.

use crate::dispatcher::Timeline;
use crate::mailbox::Mail;
use crate::mechanism::Mechanism;
use crate::panics;
use crate::record::Log;
use crate::root::{Root, Stepper};
use crate::stage::Stage;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_core::Time;
use talea_core::machine::TaskId;
use talea_core::mutate;
use talea_os::gate::unstopped;
use talea_os::pilock::{PiGuard, PiLock};

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
    /// What was said by whoever panicked in a step.
    fell: Option<String>,
    /// By CPU.
    pub(crate) steps: Vec<Steps>,
}

/// Steps that workers made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Steps {
    /// Who had finished.
    pub(crate) finished: u64,
    /// Whose jobs came.
    pub(crate) came: u64,
}

impl<M: Mechanism> Office<M> {
    /// `room` entries of a record for each of so many CPUs.
    pub(crate) fn new(root: Root<M>, cpus: usize, tasks: usize, room: usize) -> Office<M> {
        let logs = (0..cpus).map(|_| Log::new(room)).collect();
        let (failed, fell) = (None, None);
        Office {
            root,
            logs,
            mail: Mail::new(tasks),
            failed,
            fell,
            steps: vec![Steps::default(); cpus],
        }
    }

    /// One instant: what lies in the mailbox of the CPU, and whose piece is over besides. Whether
    /// the machine still stands.
    pub(crate) fn step(
        &mut self,
        who: Stepper,
        ended: Option<TaskId>,
        now: Time,
        stage: &Stage,
    ) -> Result<bool, M::Error> {
        stage.cpus[who.cpu].mailbox.take(&stage.slots, &mut self.mail);
        self.mail.ended.extend(ended);
        let (root, mail, log) = (&mut self.root, &self.mail, &mut self.logs[who.cpu]);
        let stepped = catch_unwind(AssertUnwindSafe(|| root.step(who, now, mail, log)));
        self.mail.clear();
        let stepped = match stepped {
            Ok(stepped) => stepped.map(|()| self.fell.is_none()),
            Err(panic) => {
                mutate!(
                    "exec-office-falls",
                    self.fell.get_or_insert(panics::said(panic)),
                    std::panic::resume_unwind(panic)
                );
                self.root.close();
                mutate!(
                    "exec-office-alone",
                    {
                        stage.call_all_off();
                    },
                    {}
                );

                return Ok(false);
            }
        };
        if self.root.is_done() {
            stage.call_off();
        }
        stepped
    }

    /// What was said by whoever panicked in a step: the machine, a policy, or what chooses
    /// versions.
    pub(crate) fn fell(&self) -> Option<&str> {
        self.fell.as_deref()
    }

    /// The run is over for this root at `end`: no step changes anything any more. When the last one
    /// was.
    pub(crate) fn close(&mut self, end: Time) -> Result<Time, M::Error> {
        self.root.conclude(end, &mut self.logs[0]);
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

    /// The piece of the calling worker is over: until when it sleeps at most, on the machine's
    /// clock. Nothing, if the machine does not know: then the dispatcher is to be told.
    pub(crate) fn finish(&self, task: TaskId, stage: &Stage) -> Option<Time> {
        unstopped(|| {
            let office = self.office.try_lock()?;
            let now = self.time.now();
            // What ends after the run is not of the run.
            let is_over = stage.over.load(Ordering::Acquire) || now >= self.time.until;
            (!is_over
                && mutate!(
                    "exec-office-letter",
                    !office.root.is_metered(),
                    office.root.is_metered()
                ))
            .then(|| self.step(office, now, stage, task, Some(task)))
        })
    }

    /// The time has come until which the calling worker, which waits for a job, has slept: until
    /// when it sleeps now.
    pub(crate) fn come(&self, task: TaskId, stage: &Stage) -> Time {
        unstopped(|| {
            let woken = self.time.now();
            let mut office = self.office.lock();
            let now = self.time.now();
            let is_over = stage.over.load(Ordering::Acquire) || now >= self.time.until;
            if is_over || !office.root.comes(task, woken) {
                return Time::NEVER;
            }
            self.step(office, now, stage, task, None)
        })
    }

    /// A step by the worker of `task`, and until when that sleeps if it is not called.
    fn step(
        &self,
        mut office: PiGuard<'_, Office<M>>,
        now: Time,
        stage: &Stage,
        task: TaskId,
        ended: Option<TaskId>,
    ) -> Time {
        // Nobody moves it before it is done.
        let cpu = stage.slots[task.0 as usize].cpu.load(Ordering::Acquire) as usize;
        let steps = &mut office.steps[cpu];
        *(if ended.is_some() { &mut steps.finished } else { &mut steps.came }) += 1;
        let who = Stepper { cpu, worker: Some(task) };
        let alarm = match office.step(who, ended, now, stage) {
            Ok(true) => office.root.doze(task),
            Ok(false) => return Time::NEVER,
            Err(error) => Err(error),
        };
        let alarm = match alarm {
            Ok(alarm) => alarm,
            Err(error) => {
                office.failed = Some(error);
                stage.call_all_off();
                return Time::NEVER;
            }
        };
        let mut late = 0_u64;
        office.root.alert(cpu, |other| late |= 1 << other);
        let after = office.root.after();
        drop(office);
        after.finish(stage);
        for (_, other) in stage
            .cpus
            .iter()
            .enumerate()
            .filter(|&(other, _)| late >> other & 1 == mutate!("exec-office-ring", 1, 2))
        {
            other.mailbox.bell.ring();
        }
        alarm.map_or(Time::NEVER, |at| self.time.of_machine(at))
    }
}

#[cfg(test)]
mod tests;
