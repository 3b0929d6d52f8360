//! Job queue of one task by the engine's rules, for a worker that runs one job after the other.

use crate::load::{Arrival, Arrivals, Cursor};
use std::collections::VecDeque;
use talea_core::engine::TaskSpec;
use talea_core::mutate;
use talea_core::{Span, Time};

/// Release rule of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseRule {
    /// Minimum distance of releases; `None` if there is no minimum.
    separation: Option<Span>,
    deadline: Span,
    /// Capacity of the backlog behind the current job.
    capacity: usize,
}

impl ReleaseRule {
    pub(crate) fn for_task(task: &TaskSpec) -> ReleaseRule {
        let separation = task.enforced.then_some(task.period);
        ReleaseRule {
            separation,
            deadline: task.deadline,
            capacity: task.backlog.capacity as usize,
        }
    }

    /// Returns the smallest distance between two ready times before `end` if no job is refused.
    /// Returns `None` if there are no two. A job that is observed late may run when it is observed.
    /// The separation of its successor counts from its release.
    pub(crate) fn min_distance(&self, arrivals: &Arrivals, end: Time) -> Option<Span> {
        match arrivals {
            Arrivals::Periodic { period, .. } => {
                Some(self.separation.map_or(*period, |least| least.max(*period)))
            }
            Arrivals::List(list) => {
                let mut earliest = Time::ZERO;
                let ready = list.iter().map(|arrival| {
                    mutate!(
                        "exec-native-nearest",
                        arrival.observed.max(self.release(arrival, &mut earliest)),
                        self.release(arrival, &mut earliest)
                    )
                });
                let ready: Vec<Time> = ready.take_while(|&ready| ready < end).collect();
                ready.windows(2).map(|two| two[1].since(two[0])).min()
            }
            Arrivals::OnDemand => None,
        }
    }

    /// Returns the release of an arrival, and updates the earliest release of its successor.
    fn release(&self, arrival: &Arrival, earliest: &mut Time) -> Time {
        let release = arrival.nominal.max(*earliest);
        if let Some(separation) = self.separation {
            *earliest = release.saturating_add(separation);
        }
        release
    }
}

/// Job that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingJob {
    pub(crate) number: u64,
    pub(crate) arrival: Arrival,
    pub(crate) release: Time,
    pub(crate) deadline: Time,
}

impl PendingJob {
    /// Returns the time from which the job may run.
    pub(crate) fn ready(&self) -> Time {
        self.arrival.observed.max(self.release)
    }
}

/// Jobs of one task that have arrived and not started.
#[derive(Debug)]
pub(crate) struct JobQueue {
    rule: ReleaseRule,
    pub(crate) cursor: Cursor,
    waiting: VecDeque<PendingJob>,
    number: u64,
    earliest_release: Time,
    /// Refused arrivals, up to the room for them.
    pub(crate) refused: Vec<Arrival>,
    pub(crate) refusals: u64,
}

impl JobQueue {
    /// Creates a queue that records up to `room` refusals.
    pub(crate) fn new(rule: ReleaseRule, cursor: Cursor, room: usize) -> JobQueue {
        JobQueue {
            waiting: VecDeque::with_capacity(rule.capacity + 1),
            rule,
            cursor,
            number: 0,
            earliest_release: Time::ZERO,
            refused: Vec::with_capacity(room),
            refusals: 0,
        }
    }

    /// Admits the arrivals during a job that ran until `now`. Each one waits behind the job, or is
    /// refused.
    pub(crate) fn admit_until(&mut self, now: Time) {
        while let Some(arrival) = self.cursor.next().filter(|arrival| arrival.observed < now) {
            self.cursor.advance();
            if mutate!(
                "exec-native-queue",
                self.waiting.len() < self.rule.capacity,
                self.waiting.len() <= self.rule.capacity
            ) {
                self.admit(arrival);
            } else {
                self.refusals += 1;
                if self.refused.len() < self.refused.capacity() {
                    self.refused.push(arrival);
                }
            }
        }
    }

    fn admit(&mut self, arrival: Arrival) {
        let release = self.rule.release(&arrival, &mut self.earliest_release);
        let deadline = release.saturating_add(self.rule.deadline);
        self.waiting.push_back(PendingJob { number: self.number, arrival, release, deadline });
        self.number += 1;
    }

    /// Returns the next job, which may not have arrived yet. Called while no other job is running.
    pub(crate) fn next(&mut self) -> Option<PendingJob> {
        if self.waiting.is_empty()
            && let Some(arrival) = self.cursor.next()
        {
            self.cursor.advance();
            self.admit(arrival);
        }
        self.waiting.pop_front()
    }

    /// Returns the jobs that have arrived and not started.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &PendingJob> {
        self.waiting.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Load;
    use talea_core::engine::{Backlog, Engine, Event, Handled, Order, SchedulerSpec, TaskId, Tree};
    use talea_core::rng::Rng;
    use talea_core::sched::PolicySpec;

    fn at(us: u64) -> Time {
        Time::from_ns(us * 1_000)
    }

    /// Release, deadline, start and end of each job, and the refused arrivals.
    type QueueResult = (Vec<(Time, Time, Time, Time)>, Vec<Arrival>);

    /// Runs jobs of equal cost as a worker does.
    fn run_queue(task: &TaskSpec, arrivals: &[Arrival], cost: Span, end: Time) -> QueueResult {
        let cursor = Cursor::new(Load::new(arrivals.to_vec(), Vec::new()));
        let mut queue = JobQueue::new(ReleaseRule::for_task(task), cursor, 100);
        let (mut done, mut now) = (Vec::new(), Time::ZERO);
        while let Some(job) = queue.next() {
            assert_eq!(job.number, done.len() as u64);
            let begin = job.ready().max(now);
            now = begin + cost;
            if begin >= end || now >= end {
                break;
            }
            done.push((job.release, job.deadline, begin, now));
            queue.admit_until(now);
        }
        queue.admit_until(end);
        (done, queue.refused)
    }

    /// Runs jobs of equal cost as the engine does, alone on its CPU.
    fn run_engine(engine: &mut Engine, arrivals: &[Arrival], cost: Span, end: Time) -> QueueResult {
        let task = TaskId(0);
        let (mut done, mut refused) = (Vec::new(), Vec::new());
        let mut list = arrivals.iter().peekable();
        let mut runs: Option<Time> = None;
        loop {
            let ends = runs.map_or(Time::NEVER, |begin| begin + cost);
            let comes = list.peek().map_or(Time::NEVER, |arrival| arrival.observed);
            let now = ends.min(comes).min(engine.next_timer());
            if now >= end {
                return (done, refused);
            }
            if ends == now
                && let Some((job, begin)) = engine.job(task).zip(runs.take())
            {
                done.push((job.release, job.deadline, begin, now));
                let _ = engine.handle(now, Event::Completed { task });
            }
            while let Some(arrival) = list.next_if(|arrival| arrival.observed == now) {
                let arrived = Event::Arrived { task, arrival: arrival.nominal };
                if engine.handle(now, arrived) == Handled::Refused {
                    refused.push(*arrival);
                }
            }
            while let Some(order) = engine.poll(now) {
                match order {
                    Order::Run { .. } => runs = runs.or(Some(now)),
                    Order::Idle { .. } => runs = None,
                }
            }
        }
    }

    #[test]
    fn jobs_are_released_due_and_refused_as_in_the_engine() {
        let mut rng = Rng::new(7);
        let mut random = |most: u64| rng.below(most);
        let (mut jobs, mut refusals) = (0, 0);
        for round in 0..300 {
            let mut spec = TaskSpec::new("a", Span::from_ns(10_000));
            spec.deadline = Span::from_ns(1_000 + 1_000 * random(20));
            spec.enforced = round % 2 == 0;
            spec.backlog = Backlog { capacity: random(4) as u32 };
            let (mut seen, mut arrivals) = (0, Vec::new());
            for _ in 0..20 {
                seen += 1 + random(20);
                arrivals
                    .push(Arrival { observed: at(seen), nominal: at(seen - random(2).min(seen)) });
            }
            // Between two instants of arrivals: at one instant the order is up to the engine.
            let cost = Span::from_ns(500 + 1_000 * random(25));
            let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
            tree.task(Tree::ROOT, spec.clone());
            let mut engine = tree.build().expect("a valid tree");
            let end = Time::from_ns(100_250);
            let (expected, mine) = (
                run_engine(&mut engine, &arrivals, cost, end),
                run_queue(&spec, &arrivals, cost, end),
            );
            assert_eq!(mine, expected, "round {round}: {spec:?} {arrivals:?} {cost}");
            jobs += mine.0.len();
            refusals += mine.1.len();
        }
        assert!(jobs > 500 && refusals > 100, "{jobs} jobs, {refusals} refused");
    }

    #[test]
    fn the_minimum_distance_is_that_of_jobs_before_the_end() {
        let rule = |enforced| {
            ReleaseRule::for_task(&TaskSpec { enforced, ..TaskSpec::new("a", Span::from_ns(10)) })
        };
        let one =
            |seen: u64| Arrival { observed: Time::from_ns(seen), nominal: Time::from_ns(seen) };
        let list = Arrivals::List(vec![one(0), one(12), one(30), one(31)]);
        assert_eq!(rule(false).min_distance(&list, Time::from_ns(31)), Some(Span::from_ns(12)));
        assert_eq!(rule(false).min_distance(&list, Time::from_ns(32)), Some(Span::from_ns(1)));
        // The last one is released at 40.
        assert_eq!(rule(true).min_distance(&list, Time::from_ns(32)), Some(Span::from_ns(12)));
        assert_eq!(rule(true).min_distance(&list, Time::from_ns(41)), Some(Span::from_ns(10)));
        assert_eq!(rule(false).min_distance(&list, Time::from_ns(12)), None);
        assert_eq!(rule(false).min_distance(&Arrivals::OnDemand, Time::NEVER), None);
        // Released at 0 and 10; one of them is observed late.
        let late = |seen, nominal| Arrival {
            observed: Time::from_ns(seen),
            nominal: Time::from_ns(nominal),
        };
        let list = Arrivals::List(vec![late(5, 0), late(10, 10)]);
        assert_eq!(rule(true).min_distance(&list, Time::from_ns(32)), Some(Span::from_ns(5)));
        let every = Arrivals::Periodic { first: Time::ZERO, period: Span::from_ns(12) };
        assert_eq!(rule(true).min_distance(&every, Time::NEVER), Some(Span::from_ns(12)));
    }
}
