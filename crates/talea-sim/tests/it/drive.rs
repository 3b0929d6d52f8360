//! A driver that is worse than the simulator: it is late, its CPUs have holes, jobs suspend
//! themselves. It writes down what it tells the machine and what it is told, as the executor does.

use talea_core::Time;
use talea_core::Work;
use talea_core::machine::{Cpu, Event, Machine, Order, TaskId, Tree};
use talea_sim::dice::Dice;

/// What passes between a driver and the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    Told(Time, Event),
    Ordered(Time, Order),
    /// No more orders at this instant.
    Done(Time),
}

pub(crate) struct Drive {
    machine: Machine,
    pub(crate) log: Vec<Passed>,
    dice: Dice,
    running: Vec<Option<usize>>,
    /// Done and not yet reported, by CPU.
    done: Vec<u64>,
    /// What is left of the job under way and its number, by task.
    left: Vec<Option<(u64, u64)>>,
    wakes: Vec<Option<u64>>,
}

impl Drive {
    pub(crate) fn new(tree: &Tree, seed: u64) -> Drive {
        let machine = tree.build().unwrap_or_else(|wrong| panic!("{wrong:?}"));
        let (cpus, tasks) = (tree.cpus as usize, machine.tasks());
        Drive {
            machine,
            log: vec![],
            dice: Dice::new(seed),
            running: vec![None; cpus],
            done: vec![0; cpus],
            left: vec![None; tasks],
            wakes: vec![None; tasks],
        }
    }

    fn tell(&mut self, now: u64, event: Event) {
        self.log.push(Passed::Told(Time::from_ns(now), event));
        let _ = self.machine.handle(Time::from_ns(now), event);
    }

    /// So many ticks, with jobs that arrive at random; an audit after every instant at which
    /// anything is said.
    pub(crate) fn run(&mut self, ticks: u64) {
        for now in 0..ticks {
            self.progress();
            let is_due = self.machine.next_wakeup().is_some_and(|at| at <= Time::from_ns(now));
            let ended = (0..self.running.len()).any(|cpu| self.has_ended(cpu));
            let comes = self.dice.below(4) == 0;
            // A timer may come late.
            if now == 0
                || ended
                || comes
                || self.wakes.contains(&Some(now))
                || (is_due && self.dice.below(4) > 0)
            {
                self.instant(now, comes);
            }
        }
    }

    fn progress(&mut self) {
        for cpu in 0..self.running.len() {
            let is_hole = self.dice.below(8) == 0;
            if let Some(task) = self.running[cpu]
                && let Some((left, _)) = &mut self.left[task]
                && *left > 0
                && !is_hole
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
            if self.machine.is_metered(Cpu(cpu as u32)) {
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
            } else if self.dice.below(12) == 0 {
                self.wakes[task] = Some(now + self.dice.between(1, 5));
                self.tell(now, Event::Blocked { task: id });
            }
        }
        if comes {
            for _ in 0..self.dice.between(1, 2) {
                let task = TaskId(self.dice.below(self.left.len() as u64) as u32);
                let arrival = Time::from_ns(now.saturating_sub(self.dice.below(3)));
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
        while let Some(order) = self.machine.poll(at) {
            self.log.push(Passed::Ordered(at, order));
            match order {
                Order::Idle { cpu } => {
                    assert!(!starts, "who stops is told before who starts");
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
                        self.left[task] = Some((self.dice.between(1, 6), job));
                    }
                }
            }
        }
        self.log.push(Passed::Done(at));
        self.machine.audit(at).unwrap_or_else(|why| panic!("at {now}: {why}"));
    }
}

/// Tells a fresh machine the same; what passes then.
pub(crate) fn replay(tree: &Tree, log: &[Passed]) -> Vec<Passed> {
    let mut machine = tree.build().expect("a tree");
    let mut again = vec![];
    for passed in log {
        match *passed {
            Passed::Told(now, event) => {
                again.push(*passed);
                let _ = machine.handle(now, event);
            }
            Passed::Ordered(..) => {}
            Passed::Done(now) => {
                while let Some(order) = machine.poll(now) {
                    again.push(Passed::Ordered(now, order));
                }
                again.push(*passed);
            }
        }
    }
    again
}
