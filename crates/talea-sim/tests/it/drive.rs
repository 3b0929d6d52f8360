//! A driver with imperfections: the driver is late, its CPUs stall, and jobs suspend themselves.
//! The driver records events and orders, as the executor does.

use talea_core::Time;
use talea_core::Work;
use talea_core::engine::{Cpu, Engine, Event, Order, TaskId, Tree};
use talea_sim::rng::Rng;

/// Record of one call between driver and engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Input(Time, Event),
    Ordered(Time, Order),
    /// End of the orders of an instant.
    Done(Time),
}

pub(crate) struct Drive {
    engine: Engine,
    pub(crate) log: Vec<Record>,
    rng: Rng,
    running: Vec<Option<usize>>,
    /// `done[cpu]`: consumption that is not yet reported.
    done: Vec<u64>,
    /// `left[t]`: remaining cost of the current job of task `t`, and number of that job.
    left: Vec<Option<(u64, u64)>>,
    wakes: Vec<Option<u64>>,
}

impl Drive {
    pub(crate) fn new(tree: &Tree, seed: u64) -> Drive {
        let engine = tree.build().unwrap_or_else(|wrong| panic!("{wrong:?}"));
        let (cpus, tasks) = (tree.cpus as usize, engine.tasks());
        Drive {
            engine,
            log: vec![],
            rng: Rng::new(seed),
            running: vec![None; cpus],
            done: vec![0; cpus],
            left: vec![None; tasks],
            wakes: vec![None; tasks],
        }
    }

    fn tell(&mut self, now: u64, event: Event) {
        self.log.push(Record::Input(Time::from_ns(now), event));
        let _ = self.engine.handle(Time::from_ns(now), event);
    }

    /// Runs a number of ticks with random arrivals, and audits after every instant with an event.
    pub(crate) fn run(&mut self, ticks: u64) {
        for now in 0..ticks {
            self.progress();
            let is_due = self.engine.next_wakeup().is_some_and(|at| at <= Time::from_ns(now));
            let ended = (0..self.running.len()).any(|cpu| self.has_ended(cpu));
            let comes = self.rng.below(4) == 0;
            // A timer may expire late.
            if now == 0
                || ended
                || comes
                || self.wakes.contains(&Some(now))
                || (is_due && self.rng.below(4) > 0)
            {
                self.instant(now, comes);
            }
        }
    }

    fn progress(&mut self) {
        for cpu in 0..self.running.len() {
            let is_stalled = self.rng.below(8) == 0;
            if let Some(task) = self.running[cpu]
                && let Some((left, _)) = &mut self.left[task]
                && *left > 0
                && !is_stalled
            {
                *left -= 1;
                self.done[cpu] += 1;
            }
        }
    }

    fn has_ended(&self, cpu: usize) -> bool {
        self.running[cpu].is_some_and(|task| self.left[task].is_some_and(|(left, _)| left == 0))
    }

    fn instant(&mut self, now: u64, comes: bool) {
        for cpu in 0..self.running.len() {
            let work = Work::from_ns(std::mem::take(&mut self.done[cpu]));
            if self.engine.is_accounted(Cpu(cpu as u32)) {
                self.tell(now, Event::Ran { cpu: Cpu(cpu as u32), work });
            }
        }
        for cpu in 0..self.running.len() {
            let Some(task) = self.running[cpu] else { continue };
            let id = TaskId(task as u32);
            if self.has_ended(cpu) {
                self.running[cpu] = None;
                self.left[task] = None;
                self.tell(now, Event::Completed { task: id });
            } else if self.rng.below(12) == 0 {
                self.wakes[task] = Some(now + self.rng.between(1, 5));
                self.tell(now, Event::Blocked { task: id });
            }
        }
        if comes {
            for _ in 0..self.rng.between(1, 2) {
                let task = TaskId(self.rng.below(self.left.len() as u64) as u32);
                let arrival = Time::from_ns(now.saturating_sub(self.rng.below(3)));
                self.tell(now, Event::Arrived { task, arrival });
            }
        }
        for task in 0..self.wakes.len() {
            if self.wakes[task].is_some_and(|at| at <= now) {
                self.wakes[task] = None;
                self.tell(now, Event::Woke { task: TaskId(task as u32) });
            }
        }
        self.tell(now, Event::Timer);
        let at = Time::from_ns(now);
        let mut starts = false;
        while let Some(order) = self.engine.poll(at) {
            self.log.push(Record::Ordered(at, order));
            match order {
                Order::Idle { cpu } => {
                    assert!(!starts, "stops precede starts");
                    self.running[cpu.0 as usize] = None;
                }
                Order::Run { cpu, task, job, .. } => {
                    starts = true;
                    let task = task.0 as usize;
                    for other in self.running.iter_mut().filter(|other| **other == Some(task)) {
                        *other = None;
                    }
                    self.running[cpu.0 as usize] = Some(task);
                    if self.left[task].is_none_or(|(_, number)| number != job) {
                        self.left[task] = Some((self.rng.between(1, 6), job));
                    }
                }
            }
        }
        self.log.push(Record::Done(at));
        self.engine.audit(at).unwrap_or_else(|reason| panic!("at {now}: {reason}"));
    }
}

/// Passes the events of `log` to a fresh engine. Returns its record.
pub(crate) fn replay(tree: &Tree, log: &[Record]) -> Vec<Record> {
    let mut engine = tree.build().expect("a tree");
    let mut again = vec![];
    for passed in log {
        match *passed {
            Record::Input(now, event) => {
                again.push(*passed);
                let _ = engine.handle(now, event);
            }
            Record::Ordered(..) => {}
            Record::Done(now) => {
                while let Some(order) = engine.poll(now) {
                    again.push(Record::Ordered(now, order));
                }
                again.push(*passed);
            }
        }
    }
    again
}
