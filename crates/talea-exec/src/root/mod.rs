//! The body of the dispatchers' loop: one root, its machine, its mechanism. No thread and no clock
//! in it.
//!
//! One step, as in the simulator: what ran; what has ended; what has come; then orders until there
//! are no more, and the mechanism is told what they change. Dispatchers, and workers that have
//! finished or whose jobs come, take turns with it, under a lock; whoever steps obeys for all CPUs.
//!
//! What a worker consumes is charged by the difference of its CPU clock to what was told last,
//! whenever that is told. So nothing is lost that it does after it was stopped on another CPU, or
//! between two jobs: it is charged when it next runs.
//!
//! [`desk`]: the pieces of a job and what it does between them; [`alarm`]: who is awake when;
//! [`doze`]: workers that look after their own arrivals.

mod alarm;
mod desk;
mod doze;

use crate::flow::Flow;
use crate::load::{Cursor, Load};
use crate::mailbox::Mail;
use crate::mechanism::{After, Mechanism};
use crate::record::{Entry, Log, What};
use crate::stretch::{Stretch, Stretches};
use crate::tally::Tally;
use alarm::{Lead, Nap};
use desk::Desk;
use doze::Dozers;
use std::sync::Arc;
use talea_core::heap::Heap;
use talea_core::machine::{
    ChannelId, Condition, Cpu, Event, Handled, Machine, Note, Order, TaskId,
};
use talea_core::mutate;
use talea_core::workload::script::Script;
use talea_core::{Span, Time, Work};

/// What is left of a budget and is shorter than this is charged at once: to sleep for it costs more
/// than it is.
pub(crate) const LEAST: Span = Span::from_ns(4_000);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Doing {
    task: TaskId,
    job: u64,
    version: u32,
}

/// Who steps a root: the dispatcher of a CPU, or a worker that runs there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stepper {
    pub(crate) cpu: usize,
    pub(crate) worker: Option<TaskId>,
}

/// One root at work.
#[derive(Debug)]
pub(crate) struct Root<M> {
    machine: Machine,
    mechanism: M,
    loads: Vec<Cursor>,
    /// The next arrival of each task.
    arrivals: Heap,
    /// Those of them that the dispatcher is to be awake for.
    alarms: Heap,
    dozers: Dozers,
    /// By CPU: as the mechanism was told.
    running: Vec<Option<Doing>>,
    /// By CPU: as ordered in this step.
    wanted: Vec<Option<Doing>>,
    /// By task: the job that has begun and not ended.
    jobs: Vec<Option<u64>>,
    /// By task: what lies on its worker's desk.
    desks: Vec<Desk>,
    /// By task: what its jobs do beside working.
    scripts: Vec<Option<Script>>,
    /// By channel: what jobs that tell it themselves have moved; shorter than the list of channels
    /// where none do.
    flows: Vec<Arc<Flow>>,
    /// By task: those that it is an end of.
    ends: Vec<Vec<ChannelId>>,
    /// Tasks that have suspended themselves, by the end of that.
    wakes: Heap,
    /// What becomes of battery, mode and mask, in order, and how far that has come.
    changes: Vec<(Time, Condition)>,
    changed: usize,
    /// By task: its clock, as the machine knows it.
    told: Vec<Work>,
    /// By CPU: when its dispatcher will be awake at the latest.
    armed: Vec<Time>,
    /// By CPU.
    naps: Vec<Nap>,
    /// By CPU.
    leads: Vec<Lead>,
    /// By CPU: in this step next to nothing was left of its budget, and was charged.
    rounded: Vec<bool>,
    now: Time,
    entries: u64,
    refused: u64,
    /// By task.
    tallies: Vec<Tally>,
    /// When dispatchers were awake late, or workers in their places.
    late: Stretches,
    stopped: bool,
    closed: bool,
}

impl<M: Mechanism> Root<M> {
    /// A root at time zero.
    ///
    /// # Panics
    /// If there is not one load for each task of the machine. `changes` are in order of time.
    pub(crate) fn new(
        mut machine: Machine,
        cpus: usize,
        mut mechanism: M,
        loads: Vec<Load>,
        changes: Vec<(Time, Condition)>,
        flows: Vec<Arc<Flow>>,
    ) -> Result<Self, M::Error> {
        let tasks = machine.tasks();
        assert_eq!(tasks, loads.len(), "one load for each task");
        let told =
            (0..tasks).map(|task| mechanism.used(TaskId(task as u32))).collect::<Result<_, _>>()?;
        // What lies there from a run before.
        machine.keep_tokens(&flows.iter().map(|flow| flow.visible()).collect::<Vec<u32>>());
        let script = |(task, load): (u32, &Load)| {
            if load.tells {
                return None;
            }
            let (inputs, outputs): (Vec<_>, Vec<_>) =
                (machine.inputs(TaskId(task)).collect(), machine.outputs(TaskId(task)).collect());
            Script::new(&load.marks, &inputs, &outputs)
        };
        let mut ends = vec![Vec::new(); tasks];
        for (flow, channel) in flows.iter().zip((0..).map(ChannelId)) {
            mutate!(
                "exec-desk-ends",
                flow.ends().for_each(|task| ends[task.0 as usize].push(channel)),
                flow.ends().take(1).for_each(|task| ends[task.0 as usize].push(channel))
            );
        }
        let mut root = Root {
            ends,
            scripts: (0..).zip(&loads).map(script).collect(),
            machine,
            mechanism,
            loads: loads.into_iter().map(Cursor::new).collect(),
            arrivals: Heap::new(tasks),
            alarms: Heap::new(tasks),
            dozers: Dozers::new(tasks),
            running: vec![None; cpus],
            wanted: vec![None; cpus],
            jobs: vec![None; tasks],
            desks: vec![Desk::Empty; tasks],
            wakes: Heap::new(tasks),
            changes,
            changed: 0,
            flows,
            told,
            armed: vec![Time::ZERO; cpus],
            naps: vec![Nap::NONE; cpus],
            leads: vec![Lead::NONE; cpus],
            rounded: vec![false; cpus],
            now: Time::ZERO,
            entries: 0,
            refused: 0,
            tallies: vec![Tally::default(); tasks],
            late: Stretches::new(),
            stopped: false,
            closed: false,
        };
        for task in 0..tasks as u32 {
            root.expect(TaskId(task));
        }
        Ok(root)
    }

    /// No step changes anything any more.
    pub(crate) fn close(&mut self) {
        if !std::mem::replace(&mut self.closed, true) {
            self.mechanism.leave();
        }
    }

    /// The dispatcher of `cpu`, or a worker in its place, which was to be awake at `due`, is awake.
    pub(crate) fn awake(&mut self, cpu: usize, due: Time, now: Time) {
        self.late.put(Stretch { cpu: cpu as u32, from: due, to: now, by: now.since(due) });
    }

    /// When dispatchers were awake late, or workers in their places.
    pub(crate) fn late(&self) -> &[Stretch] {
        self.late.all()
    }

    /// What the worker that has just stepped has yet to do when it has given back the lock.
    pub(crate) fn after(&mut self) -> After {
        let after = self.mechanism.after();
        After { call: after.call.filter(|&task| !self.dozers.is_up(task)), ..after }
    }

    /// When it was last stepped.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Whether somebody has to look after what is consumed on any of its CPUs.
    pub(crate) fn is_metered(&self) -> bool {
        (0..self.running.len() as u32).any(|cpu| self.machine.is_metered(Cpu(cpu)))
    }

    /// By task: what became of its jobs.
    pub(crate) fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// Jobs for which there was no room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// The run is over: what lies in its channels is left in the flows, for another run.
    pub(crate) fn leave_flows(&self) {
        for (at, flow) in self.flows.iter().enumerate() {
            flow.leave(self.machine.unclaimed(ChannelId(at as u32)));
        }
    }

    /// The mechanism, when the run is over.
    pub(crate) fn mechanism(&self) -> &M {
        &self.mechanism
    }

    fn put(&mut self, log: &mut Log, what: What) {
        log.put(Entry { number: self.entries, now: self.now, what });
        self.entries += 1;
    }

    fn tell(&mut self, log: &mut Log, event: Event) -> Handled {
        self.put(log, What::Told(event));
        self.machine.handle(self.now, event)
    }

    /// Whether it was stopped, and all that had come is done.
    pub(crate) fn is_done(&self) -> bool {
        let tasks = (0..self.jobs.len() as u32).map(TaskId);
        self.stopped && tasks.into_iter().all(|task| self.machine.unfinished(task).next().is_none())
    }

    /// One instant, by the dispatcher of a CPU or a worker there, who has read this mail.
    pub(crate) fn step(
        &mut self,
        who: Stepper,
        clock: Time,
        mail: &Mail,
        log: &mut Log,
    ) -> Result<(), M::Error> {
        if self.closed {
            return Ok(());
        }
        // Two CPUs may read the clock in the other order than they got the lock.
        self.now = self.now.max(clock);
        self.mechanism.at(self.now, who.worker);
        mutate!(
            "exec-doze-renew",
            {
                self.dozers.renew();
            },
            {}
        );

        self.put(log, What::Step);
        self.rounded.fill(false);
        mutate!(
            "exec-loop-charge",
            for cpu in 0..self.running.len() {
                self.charge(cpu, log)?;
            },
            if mail.ended.is_empty() {
                for cpu in 0..self.running.len() {
                    self.charge(cpu, log)?;
                }
            }
        );
        mutate!(
            "exec-doze-late",
            {
                self.catch_up(log);
            },
            {}
        );

        for &task in &mail.ended {
            self.mechanism.ended(task)?;
            self.reach(task, log);
        }
        self.see_quiet(log)?;
        self.go_on(log);
        for &event in mail.said.iter().filter(|&&event| event != Event::Stopped) {
            let _ = self.tell(log, event);
        }
        for &(task, count) in &mail.asked {
            self.ask(task, count, log);
        }
        // Whoever has asked for a job and then stops it has asked before.
        if mail.said.contains(&Event::Stopped) {
            self.stopped = true;
            let _ = self.tell(log, Event::Stopped);
        }
        while let Some((at, task)) = self.arrivals.first()
            && at <= self.now.as_ns()
        {
            self.arrive(TaskId(task), log);
        }
        self.see_woken(log)?;
        loop {
            while let Some(order) = self.machine.poll(self.now) {
                self.put(log, What::Ordered(order));
                let (cpu, doing) = match order {
                    Order::Run { cpu, task, job, version } => {
                        (cpu, Some(Doing { task, job, version }))
                    }
                    Order::Idle { cpu } => (cpu, None),
                };
                self.wanted[cpu.0 as usize] = doing;
            }
            self.put(log, What::Polled);
            self.see_refused();
            let began = self.begin(log);
            if !self.round_up(log) && !began {
                break;
            }
        }
        self.obey(who)
    }

    /// The next job of `task` has come.
    fn arrive(&mut self, task: TaskId, log: &mut Log) {
        let cursor = &mut self.loads[task.0 as usize];
        let arrival = cursor.next().expect("an arrival that was waited for");
        cursor.advance();
        if self.tell(log, Event::Arrived { task, arrival: arrival.nominal }) == Handled::Refused {
            self.refused += 1;
        }
        self.is_told(task);
        self.expect(task);
    }

    /// Jobs that a graph has activated, and for which there was no room.
    fn see_refused(&mut self) {
        while let Some(note) = self.machine.poll_note() {
            self.refused += u64::from(matches!(note, Note::Refused { .. }));
        }
    }

    /// So many jobs of `task`, which somebody wants now. When there is no room for one, there is
    /// none for those behind it.
    fn ask(&mut self, task: TaskId, count: u32, log: &mut Log) {
        for done in 0..count {
            let now = self.now;
            if self.tell(log, Event::Arrived { task, arrival: now }) != Handled::Done {
                self.refused += u64::from(count - done);
                break;
            }
        }
    }

    /// Jobs of those who don't tell their ends, and were seen to have nothing to do, are over.
    fn see_quiet(&mut self, log: &mut Log) -> Result<(), M::Error> {
        for cpu in 0..self.running.len() {
            let Some(task) = self.mechanism.quiet(Cpu(cpu as u32)) else { continue };
            let has = self.running[cpu].is_some_and(|doing| doing.task == task);
            if has && self.desks[task.0 as usize] == Desk::Taken {
                self.mechanism.ended(task)?;
                self.reach(task, log);
            }
        }
        Ok(())
    }

    /// Whoever was seen to want a CPU has a new job.
    fn see_woken(&mut self, log: &mut Log) -> Result<(), M::Error> {
        while let Some(task) = self.mechanism.woke() {
            if self.tell(log, Event::Arrived { task, arrival: self.now }) == Handled::Refused {
                self.refused += 1;
                self.mechanism.ended(task)?;
            }
        }
        Ok(())
    }

    /// Tells what the task on `cpu` has consumed, if anybody wants to know.
    fn charge(&mut self, cpu: usize, log: &mut Log) -> Result<(), M::Error> {
        let at = Cpu(cpu as u32);
        let Some(doing) = self.running[cpu].filter(|_| self.machine.is_metered(at)) else {
            return Ok(());
        };
        let used = self.mechanism.used(doing.task)?;
        let told = &mut self.told[doing.task.0 as usize];
        // What was rounded up before may be more than what was used.
        let work = used.checked_sub(*told).unwrap_or(Work::ZERO);
        if !work.is_zero() {
            *told = used;
            self.learn(cpu, work);
            let _ = self.tell(log, Event::Ran { cpu: at, work });
        }
        Ok(())
    }

    /// Charges budgets of which next to nothing is left, once a CPU and step; whether there were
    /// any. A server that goes on at once with a new budget, or a round of quanta, would be charged
    /// for ever if all of them are that short.
    fn round_up(&mut self, log: &mut Log) -> bool {
        let mut any = false;
        for cpu in 0..self.running.len() {
            let at = Cpu(cpu as u32);
            let left = match self.wanted[cpu] {
                Some(_) if !self.rounded[cpu] => {
                    self.machine.budget_end(at).as_ns().saturating_sub(self.now.as_ns())
                }
                _ => continue,
            };
            if left < LEAST.as_ns()
                && let Some(doing) = self.wanted[cpu]
            {
                self.rounded[cpu] = true;
                let work = Work::from_ns(left.max(1));
                self.told[doing.task.0 as usize] += work;
                let _ = self.tell(log, Event::Ran { cpu: at, work });
                any = true;
            }
        }
        any
    }

    /// Has the mechanism do what this step has changed: on the other CPUs first, where workers run
    /// meanwhile; on that of the one who steps nobody does before it sleeps. A worker that is to go
    /// to another CPU goes there last, to one that is free: behind whoever still runs there it
    /// could stop nobody.
    fn obey(&mut self, who: Stepper) -> Result<(), M::Error> {
        let (cpus, me) = (self.running.len(), who.cpu);
        let goes =
            |doing: &Option<Doing>| doing.is_some_and(|doing| Some(doing.task) == who.worker);
        let away = mutate!(
            "exec-office-away",
            self.wanted.iter().position(goes).filter(|&cpu| cpu != me),
            self.wanted.iter().position(goes).filter(|_| false)
        );
        for cpu in (me + 1..cpus).chain(0..=me).filter(|&cpu| Some(cpu) != away) {
            if self.running[cpu] != self.wanted[cpu] || self.has_piece(self.wanted[cpu]) {
                self.enter(cpu)?;
                self.vacate(cpu)?;
            }
        }
        if let Some(cpu) = away {
            self.vacate(cpu)?;
            self.enter(cpu)?;
        }
        for cpu in 0..cpus {
            if self.running[cpu] != self.wanted[cpu] && self.wanted[cpu].is_none() {
                self.mechanism.rest(Cpu(cpu as u32))?;
            }
        }
        self.running.copy_from_slice(&self.wanted);
        self.mechanism.settle()
    }
}
