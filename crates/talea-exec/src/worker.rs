//! The other side of the desk: a thread that does the jobs of one task, piece by piece.

use crate::mechanism::{Identity, Mechanism};
use crate::office::Counter;
use crate::stage::{self, Ranks, Stage};
use crate::work::{Body, Job};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use talea_core::machine::TaskId;
use talea_core::{CpuSet, Time};
use talea_os::Tid;
use talea_os::bell::Woken;
use talea_os::sched;
use talea_os::threadclock::ThreadClock;

/// A worker at its desk.
#[derive(Debug)]
pub(crate) struct Worker<'a, M: Mechanism> {
    task: TaskId,
    stage: &'a Stage,
    /// Where it steps the machine itself, if it may.
    counter: &'a OnceLock<Counter<M>>,
    /// How often its bell has rung and was answered.
    heard: u32,
    busy: bool,
}

impl<'a, M: Mechanism> Worker<'a, M> {
    pub(crate) fn new(
        task: TaskId,
        stage: &'a Stage,
        counter: &'a OnceLock<Counter<M>>,
    ) -> Worker<'a, M> {
        Worker { task, stage, counter, heard: 0, busy: false }
    }

    /// Tells that the piece under way is over, if there is one, and waits for the next, of the same
    /// job or another one; `None`: the run is over.
    pub(crate) fn wait_period(&mut self) -> Option<Job> {
        let slot = &self.stage.slots[self.task.0 as usize];
        let counter = self.counter.get();
        let mut alarm = Time::NEVER;
        if std::mem::take(&mut self.busy) {
            let told = counter.and_then(|counter| counter.finish(self.task, self.stage));
            if told.is_none() {
                let cpu = slot.cpu.load(Ordering::Acquire) as usize;
                // On its own CPU the dispatcher has the CPU before this returns.
                self.stage.cpus[cpu].mailbox.post(self.task, &self.stage.slots);
            }
            alarm = told.unwrap_or(Time::NEVER);
        }
        // Who is armed has a counter. If the job that comes is its to run its bell has rung when
        // that returns.
        while let (Woken::Due, Some(counter)) = (slot.wait_until(self.heard, alarm), counter) {
            alarm = counter.come(self.task, self.stage);
        }
        self.heard = self.heard.wrapping_add(1);
        if self.stage.over.load(Ordering::Acquire) {
            return None;
        }
        self.busy = true;
        Some(slot.job())
    }
}

/// Calls the run off if its worker panics; the others would wait for it.
struct Fallen<'a>(&'a Stage);

impl Drop for Fallen<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.call_all_off();
        }
    }
}

/// The life of a worker. `say` is called once, with who it is, when it stands in its place and is
/// about to wait.
pub(crate) fn live<M: Mechanism>(
    task: TaskId,
    stage: &Stage,
    counter: &OnceLock<Counter<M>>,
    ranks: Ranks,
    mut body: Body<'_>,
    say: impl FnOnce(io::Result<Identity>),
) {
    let _fallen = Fallen(stage);
    let enter = || {
        let tid = Tid::current();
        sched::set_affinity(tid, &CpuSet::single(stage.cpus[0].number))?;
        ranks.raised(tid, 0)?;
        stage::warm_up();
        Ok(Identity { tid, clock: ThreadClock::current()? })
    };
    let identity = enter();
    let is_in = identity.is_ok();
    let slot = &stage.slots[task.0 as usize];
    let mut worker = Worker::new(task, stage, counter);
    let work = || {
        say(identity);
        while is_in && let Some(job) = worker.wait_period() {
            body(&job, &stage.over);
        }
    };
    // Fails only where the mask of signals can't be changed, which has no reason to fail.
    slot.gate.within(work).expect("SIGURG lets itself be unblocked");
}
