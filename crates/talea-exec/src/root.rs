//! The body of the dispatchers' loop: one root, its machine, its mechanism. No thread and no clock in it.
//!
//! One step, as in the simulator: what ran; what has ended; what has come; then orders until there are no more, and the
//! mechanism is told what they change. The dispatchers of a root with several CPUs take turns with it, under a lock;
//! whoever steps obeys for all of them.
//!
//! What a worker consumes is charged by the difference of its CPU clock to what was told last, whenever that is told. So
//! nothing is lost that it does after it was stopped on another CPU, or between two jobs: it is charged when it next runs.
//!
//! Who wakes when: the CPU whose budget is used up looks after that itself, because a dispatcher finds the clock of a
//! worker on its own CPU standing still, and stops it at once. Arrivals and the machine's timers belong to whoever is
//! awake first: a dispatcher leaves them alone while another one is going to be awake by then.

use crate::load::{Cursor, Load};
use crate::mechanism::Mechanism;
use crate::record::{Entry, Log, What};
use crate::work::Job;
use talea_core::heap::Heap;
use talea_core::machine::{Cpu, Event, Handled, Machine, Order, TaskId};
use talea_core::{Span, Time, Work};

/// What is left of a budget and is shorter than this is charged at once: to sleep for it costs more than it is.
pub(crate) const LEAST: Span = Span::from_ns(4_000);
/// A worker that is about to use up its budget is left alone for at least this long, and for longer while it gets nothing
/// done in it: a timer that is too short fires before the worker has its CPU.
const SHORTEST: Span = Span::from_ns(5_000);
/// But never for longer than this: by so much a budget may be overrun. More than any way to a worker takes.
const LONGEST: Span = Span::from_ns(320_000);

/// How a dispatcher sleeps while a budget is used on its CPU.
#[derive(Clone, Copy, Debug)]
struct Nap {
    /// What the budget had left when the nap began; none: nothing is metered.
    before: Option<Span>,
    /// The shortest sleep.
    least: Span,
    /// When it wants to look again.
    alarm: Time,
}

impl Nap {
    const NONE: Nap = Nap { before: None, least: SHORTEST, alarm: Time::NEVER };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Doing {
    task: TaskId,
    job: u64,
}

/// One root at work.
#[derive(Debug)]
pub(crate) struct Root<M> {
    machine: Machine,
    mechanism: M,
    loads: Vec<Cursor>,
    /// The next arrival of each task.
    arrivals: Heap,
    /// By CPU: as the mechanism was told.
    running: Vec<Option<Doing>>,
    /// By CPU: as ordered in this step.
    wanted: Vec<Option<Doing>>,
    /// By task: the job that its worker has.
    under_way: Vec<Option<u64>>,
    /// By task: its clock, as the machine knows it.
    told: Vec<Work>,
    /// By CPU: when its dispatcher will be awake at the latest.
    armed: Vec<Time>,
    /// By CPU.
    naps: Vec<Nap>,
    /// By CPU: in this step next to nothing was left of its budget, and was charged.
    rounded: Vec<bool>,
    now: Time,
    entries: u64,
    refused: u64,
    closed: bool,
}

impl<M: Mechanism> Root<M> {
    /// A root at time zero.
    ///
    /// # Panics
    /// If there is not one load for each task of the machine.
    pub(crate) fn new(
        machine: Machine,
        cpus: usize,
        mut mechanism: M,
        loads: Vec<Load>,
    ) -> Result<Self, M::Error> {
        let tasks = machine.tasks();
        assert_eq!(tasks, loads.len(), "one load for each task");
        let told = (0..tasks).map(|task| mechanism.used(TaskId(task as u32))).collect::<Result<_, _>>()?;
        let mut root = Root {
            machine,
            mechanism,
            loads: loads.into_iter().map(Cursor::new).collect(),
            arrivals: Heap::new(tasks),
            running: vec![None; cpus],
            wanted: vec![None; cpus],
            under_way: vec![None; tasks],
            told,
            armed: vec![Time::ZERO; cpus],
            naps: vec![Nap::NONE; cpus],
            rounded: vec![false; cpus],
            now: Time::ZERO,
            entries: 0,
            refused: 0,
            closed: false,
        };
        for task in 0..tasks as u32 {
            root.expect(TaskId(task));
        }
        Ok(root)
    }

    fn expect(&mut self, task: TaskId) {
        match self.loads[task.0 as usize].next() {
            Some(arrival) => self.arrivals.set(task.0, arrival.seen.as_ns()),
            None => _ = self.arrivals.remove(task.0),
        }
    }

    /// No step changes anything any more.
    pub(crate) fn close(&mut self) {
        if !std::mem::replace(&mut self.closed, true) {
            self.mechanism.leave();
        }
    }

    /// Jobs for which there was no room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
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

    /// One instant, by the dispatcher of `me`: `ended` are the tasks whose workers have told that their job is over.
    pub(crate) fn step(
        &mut self,
        me: usize,
        clock: Time,
        ended: &[TaskId],
        log: &mut Log,
    ) -> Result<(), M::Error> {
        if self.closed {
            return Ok(());
        }
        // Two CPUs may read the clock in the other order than they got the lock.
        self.now = self.now.max(clock);
        self.put(log, What::Step);
        self.rounded.fill(false);
        for cpu in 0..self.running.len() {
            self.charge(cpu, log)?;
        }
        for &task in ended {
            self.under_way[task.0 as usize] = None;
            self.mechanism.ended(task)?;
            let _ = self.tell(log, Event::Completed { task });
        }
        while let Some((at, task)) = self.arrivals.first()
            && at <= self.now.as_ns()
        {
            let task = TaskId(task);
            let cursor = &mut self.loads[task.0 as usize];
            let arrival = cursor.next().expect("an arrival that was waited for");
            cursor.advance();
            if self.tell(log, Event::Arrived { task, arrival: arrival.nominal }) == Handled::Refused {
                self.refused += 1;
            }
            self.expect(task);
        }
        loop {
            while let Some(order) = self.machine.poll(self.now) {
                self.put(log, What::Ordered(order));
                let (cpu, doing) = match order {
                    Order::Run { cpu, task, job, .. } => (cpu, Some(Doing { task, job })),
                    Order::Idle { cpu } => (cpu, None),
                };
                self.wanted[cpu.0 as usize] = doing;
            }
            self.put(log, What::Polled);
            if !self.round_up(log) {
                break;
            }
        }
        self.obey(me)
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
            let _ = self.tell(log, Event::Ran { cpu: at, work });
        }
        Ok(())
    }

    /// Charges budgets of which next to nothing is left, once a CPU and step; whether there were any. A server that goes on
    /// at once with a new budget, or a round of quanta, would be charged for ever if all of them are that short.
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

    /// Has the mechanism do what this step has changed: on the other CPUs first, where workers run meanwhile; on that of the
    /// dispatcher nobody does before it sleeps.
    fn obey(&mut self, me: usize) -> Result<(), M::Error> {
        let cpus = self.running.len();
        for cpu in (me + 1..cpus).chain(0..=me) {
            if self.running[cpu] != self.wanted[cpu] {
                self.turn_over(cpu)?;
            }
        }
        for cpu in 0..cpus {
            if self.running[cpu] != self.wanted[cpu] && self.wanted[cpu].is_none() {
                self.mechanism.rest(Cpu(cpu as u32))?;
            }
        }
        self.running.copy_from_slice(&self.wanted);
        Ok(())
    }

    /// `cpu` goes over to whoever is to have it.
    fn turn_over(&mut self, cpu: usize) -> Result<(), M::Error> {
        let (at, from, to) = (Cpu(cpu as u32), self.running[cpu], self.wanted[cpu]);
        if let Some(Doing { task, job }) = to {
            let under_way = &mut self.under_way[task.0 as usize];
            if *under_way == Some(job) {
                self.mechanism.resume(at, task)?;
            } else {
                *under_way = Some(job);
                let cost = self.loads[task.0 as usize].cost();
                self.mechanism.begin(at, task, Job { number: job, cost })?;
            }
        }
        if let Some(from) = from
            && self.under_way[from.task.0 as usize] == Some(from.job)
            && !self.wanted.contains(&Some(from))
        {
            self.mechanism.stop(at, from.task, to.is_some())?;
        }
        Ok(())
    }

    /// When the dispatcher of `cpu`, which has just stepped and is about to sleep at `clock`, has to be awake again. `ring`
    /// is called for others that have to look sooner than they meant to.
    pub(crate) fn arm(&mut self, cpu: usize, clock: Time, mut ring: impl FnMut(usize)) -> Time {
        let arrival = self.arrivals.first().map_or(Time::NEVER, |(at, _)| Time::from_ns(at));
        let general = self.machine.next_timer().min(arrival);
        let mut first = Time::NEVER;
        for other in (0..self.armed.len()).filter(|&other| other != cpu) {
            if self.machine.budget_end(Cpu(other as u32)) < self.armed[other] {
                // It will be awake at once.
                self.armed[other] = self.now;
                ring(other);
            }
            first = first.min(self.armed[other]);
        }
        let own = self.budget_alarm(cpu, clock);
        self.armed[cpu] = if first <= general { own } else { own.min(general) };
        self.armed[cpu]
    }

    /// When the budget that is being used on `cpu` is to be looked at again.
    fn budget_alarm(&mut self, cpu: usize, clock: Time) -> Time {
        let end = self.machine.budget_end(Cpu(cpu as u32));
        if end == Time::NEVER {
            self.naps[cpu] = Nap::NONE;
            return end;
        }
        // The machine counts from the step, but the worker gets its CPU only now: without this the next look would find
        // the less of the budget used the longer a step takes.
        let clock = clock.max(self.now);
        let left = end.since(self.now.min(end));
        let nap = &mut self.naps[cpu];
        match nap.before {
            // The same budget, looked at because of something else: that says nothing about the nap.
            Some(before) if left <= before && clock < nap.alarm => {}
            // Less than half of the nap was of use.
            Some(before) if left <= before && left.as_ns() + nap.least.as_ns() / 2 > before.as_ns() => {
                nap.least = (nap.least + nap.least).min(LONGEST);
                nap.before = Some(left);
            }
            _ => {
                nap.least = SHORTEST;
                nap.before = Some(left);
            }
        }
        nap.alarm = clock.saturating_add(left.max(nap.least));
        nap.alarm
    }
}
