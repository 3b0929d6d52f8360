//! Operation counts of the scheduler per job (Y16).
//!
//! The module counts the signals of SF3P's Table I that a job's arrival and completion cause, and
//! the comparisons in the queues of policies, timers and future arrivals.

use super::{
    Cpu, Engine, Event, Global, NodeId, Observer, Order, SchedulerSpec, Signal, TaskId, TaskSpec,
    Tree,
};
use crate::heap::Heap;
use crate::rng::Rng;
use crate::sched::PolicySpec;
use crate::{Span, Time};
use alloc::vec::Vec;

#[derive(Debug, Default)]
struct Signals(u64);

impl Observer for Signals {
    const ENABLED: bool = true;

    fn on_signal(&mut self, _now: Time, _signal: Signal, _node: NodeId) {
        self.0 += 1;
    }
}

impl Engine<Signals> {
    /// Returns the total of all operations so far. Policies must order by a number.
    fn operations(&self) -> u64 {
        let waiting = self.global.as_ref().map_or(0, Global::compared);
        let policies =
            self.schedulers.iter().map(|scheduler| scheduler.policy.compared()).sum::<u64>();
        self.observer.0 + self.timers.compared + waiting + policies
    }
}

/// Engine and its driver, with strictly periodic tasks on CPUs of full speed.
struct Drive {
    engine: Engine<Signals>,
    arrivals: Heap,
    /// `tasks[n]`: (period, cost, remaining cost of the current job, number of that job) of task
    /// `n`.
    tasks: Vec<(u64, u64, u64, Option<u64>)>,
    running: Vec<Option<u32>>,
    now: u64,
    jobs: u64,
    /// Largest number of operations of an instant per job that arrived or completed in the instant.
    worst: u64,
}

impl Drive {
    fn new(tasks: &[(u64, u64)], cpus: u32) -> Drive {
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut arrivals = Heap::new(tasks.len());
        for (task, &(period, _)) in tasks.iter().enumerate() {
            tree.task(Tree::ROOT, TaskSpec::new("task", Span::from_ns(period)));
            arrivals.set(task as u32, 0);
        }
        Drive {
            engine: tree.build_with(Signals::default()).expect("a flat tree"),
            arrivals,
            tasks: tasks.iter().map(|&(period, cost)| (period, cost, 0, None)).collect(),
            running: alloc::vec![None; cpus as usize],
            now: 0,
            jobs: 0,
            worst: 0,
        }
    }

    fn operations(&self) -> u64 {
        self.engine.operations() + self.arrivals.compared
    }

    fn run(&mut self, until: u64) {
        while let Some(next) = self.next().filter(|&next| next < until) {
            let before = self.operations();
            let events = self.instant(next);
            self.worst = self.worst.max((self.operations() - before).div_ceil(events.max(1)));
        }
    }

    fn next(&self) -> Option<u64> {
        let ends =
            self.running.iter().flatten().map(|&task| self.now + self.tasks[task as usize].2);
        ends.chain(self.arrivals.first().map(|(at, _)| at)).min()
    }

    /// Processes an instant. Returns the number of jobs that arrived or completed.
    fn instant(&mut self, now: u64) -> u64 {
        let at = Time::from_ns(now);
        let mut events = 0;
        for cpu in 0..self.running.len() {
            let Some(task) = self.running[cpu] else { continue };
            let state = &mut self.tasks[task as usize];
            state.2 -= now - self.now;
            if state.2 == 0 {
                state.3 = None;
                self.running[cpu] = None;
                let _ = self.engine.handle(at, Event::Completed { task: TaskId(task) });
                (self.jobs, events) = (self.jobs + 1, events + 1);
            }
        }
        self.now = now;
        while let Some((_, task)) = self.arrivals.first().filter(|&(due, _)| due <= now) {
            let _ = self.engine.handle(at, Event::Arrived { task: TaskId(task), arrival: at });
            self.arrivals.set(task, now + self.tasks[task as usize].0);
            events += 1;
        }
        while let Some(order) = self.engine.poll(at) {
            match order {
                Order::Idle { cpu: Cpu(cpu) } => self.running[cpu as usize] = None,
                Order::Run { cpu: Cpu(cpu), task: TaskId(task), job, .. } => {
                    for other in self.running.iter_mut().filter(|other| **other == Some(task)) {
                        *other = None;
                    }
                    self.running[cpu as usize] = Some(task);
                    let state = &mut self.tasks[task as usize];
                    if state.3 != Some(job) {
                        (state.2, state.3) = (state.1, Some(job));
                    }
                }
            }
        }
        events
    }
}

/// Generates periods of 5 to 100 ms and random utilisations. The utilisations sum to `tenths`
/// tenths, and none exceeds one.
fn set(seed: u64, n: u64, tenths: u64) -> Vec<(u64, u64)> {
    let mut rng = Rng::new(seed * 1_000_003 + n * 1_009 + tenths);
    let mut random = |below: u64| rng.below(below);
    let weights: Vec<u64> = (0..n).map(|_| 1 + random(1_000)).collect();
    let sum: u64 = weights.iter().sum();
    let task = |&weight: &u64| {
        let period = 5_000_000 + random(95_000_001);
        (period, (period * weight * tenths / (10 * sum)).clamp(1, period))
    };
    weights.iter().map(task).collect()
}

#[test]
fn y16_operations_per_job_grow_no_faster_than_the_logarithm_of_the_number_of_tasks() {
    for tenths in [2, 6, 10, 14, 18] {
        // Values in hundredths.
        let mut means = Vec::new();
        for n in [20, 40, 80, 120u64] {
            let (mut operations, mut jobs) = (0, 0);
            for seed in 0..5 {
                let mut drive = Drive::new(&set(seed, n, tenths), 2);
                drive.run(1_000_000_000);
                (operations, jobs) = (operations + drive.operations(), jobs + drive.jobs);
                // A job passes through the arrivals, a timer and the policy, and may preempt one
                // that does the same. Each pass compares once or twice per bit of n.
                let bits = u64::from(n.ilog2()) + 1;
                assert!(drive.worst <= 20 + 8 * bits, "{n} tasks, U {tenths}/10: {}", drive.worst);
            }
            assert!(jobs > 5 * n * 10);
            means.push(100 * operations / jobs);
        }
        // Each doubling adds a constant: one bit in each queue that a job passes.
        assert!(means[1] - means[0] < 600 && means[2] - means[1] < 600, "U {tenths}/10: {means:?}");
        assert!(means[3] < 2 * means[0], "U {tenths}/10: {means:?}");
    }
}

#[test]
fn y16_with_all_tasks_ready_four_times_as_many_cost_two_bits_more() {
    let mut per_job = Vec::new();
    for n in [16, 64, 256, 1_024, 4_096u64] {
        // All tasks are released together, and have completed when the last period begins.
        let tasks: Vec<(u64, u64)> = (0..n).map(|task| (4 * n + task * 7 % n, 3)).collect();
        let mut drive = Drive::new(&tasks, 1);
        drive.run(4 * n);
        assert_eq!(drive.jobs, n);
        per_job.push(drive.operations() / n);
    }
    for pair in per_job.windows(2) {
        assert!(pair[1] - pair[0] < 10, "{per_job:?}");
    }
}
