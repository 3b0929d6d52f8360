//! Which jobs of one task come, by the machine's rules, for a worker that does one after the other.

use crate::load::{Arrival, Arrivals, Cursor};
use std::collections::VecDeque;
use talea_core::machine::TaskSpec;
use talea_core::mutate;
use talea_core::{Span, Time};

/// What the machine would do with arrivals of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Jobs are released at least so far apart.
    separation: Option<Span>,
    deadline: Span,
    /// Jobs that may wait behind the one under way.
    capacity: usize,
}

impl Rule {
    pub(crate) fn of(task: &TaskSpec) -> Rule {
        let separation = task.enforced.then_some(task.period);
        Rule { separation, deadline: task.deadline, capacity: task.backlog.capacity as usize }
    }

    /// The shortest distance at which two jobs may run that are there before `end`, if none is
    /// refused; nothing, where there are no two. One that is seen late may run when it is seen, and
    /// its successor's separation counts from its release.
    pub(crate) fn nearest(&self, arrivals: &Arrivals, end: Time) -> Option<Span> {
        match arrivals {
            Arrivals::Every { period, .. } => {
                Some(self.separation.map_or(*period, |least| least.max(*period)))
            }
            Arrivals::List(list) => {
                let mut earliest = Time::ZERO;
                let ready = list.iter().map(|arrival| {
                    mutate!(
                        "exec-native-nearest",
                        arrival.seen.max(self.release(arrival, &mut earliest)),
                        self.release(arrival, &mut earliest)
                    )
                });
                let ready: Vec<Time> = ready.take_while(|&ready| ready < end).collect();
                ready.windows(2).map(|two| two[1].since(two[0])).min()
            }
            Arrivals::Asked => None,
        }
    }

    /// When an arrival is released, and from when on its successor can be.
    fn release(&self, arrival: &Arrival, earliest: &mut Time) -> Time {
        let release = arrival.nominal.max(*earliest);
        if let Some(separation) = self.separation {
            *earliest = release.saturating_add(separation);
        }
        release
    }
}

/// A job that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Come {
    pub(crate) number: u64,
    pub(crate) arrival: Arrival,
    pub(crate) release: Time,
    pub(crate) deadline: Time,
}

impl Come {
    /// When it may run.
    pub(crate) fn ready(&self) -> Time {
        self.arrival.seen.max(self.release)
    }
}

/// Those of one task that have come and not begun.
#[derive(Debug)]
pub(crate) struct Queue {
    rule: Rule,
    pub(crate) cursor: Cursor,
    waiting: VecDeque<Come>,
    number: u64,
    earliest: Time,
    /// Those for which there was no room, as far as there was room to note them.
    pub(crate) refused: Vec<Arrival>,
    pub(crate) refusals: u64,
}

impl Queue {
    /// `room`: refusals that are noted.
    pub(crate) fn new(rule: Rule, cursor: Cursor, room: usize) -> Queue {
        Queue {
            waiting: VecDeque::with_capacity(rule.capacity + 1),
            rule,
            cursor,
            number: 0,
            earliest: Time::ZERO,
            refused: Vec::with_capacity(room),
            refusals: 0,
        }
    }

    /// A job was under way until `now`: who has come meanwhile stands behind it, or has no room.
    pub(crate) fn come_until(&mut self, now: Time) {
        while let Some(arrival) = self.cursor.next().filter(|arrival| arrival.seen < now) {
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
        let release = self.rule.release(&arrival, &mut self.earliest);
        let deadline = release.saturating_add(self.rule.deadline);
        self.waiting.push_back(Come { number: self.number, arrival, release, deadline });
        self.number += 1;
    }

    /// The next job, which may be one that has not come yet: nobody else is under way.
    pub(crate) fn next(&mut self) -> Option<Come> {
        if self.waiting.is_empty()
            && let Some(arrival) = self.cursor.next()
        {
            self.cursor.advance();
            self.admit(arrival);
        }
        self.waiting.pop_front()
    }

    /// Those that have come and not begun.
    pub(crate) fn left(&self) -> impl Iterator<Item = &Come> {
        self.waiting.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Load;
    use talea_core::machine::{
        Backlog, Event, Handled, Machine, Order, SchedulerSpec, TaskId, Tree,
    };
    use talea_core::sched::Policy;

    fn at(us: u64) -> Time {
        Time::from_ns(us * 1_000)
    }

    /// By job: release, deadline, begin and end; and the arrivals that were refused.
    type Told = (Vec<(Time, Time, Time, Time)>, Vec<Arrival>);

    /// As a worker does with jobs that cost so much each.
    fn ours(task: &TaskSpec, arrivals: &[Arrival], cost: Span, end: Time) -> Told {
        let cursor = Cursor::new(Load::new(arrivals.to_vec(), Vec::new()));
        let mut queue = Queue::new(Rule::of(task), cursor, 100);
        let (mut done, mut now) = (Vec::new(), Time::ZERO);
        while let Some(come) = queue.next() {
            assert_eq!(come.number, done.len() as u64);
            let begin = come.ready().max(now);
            now = begin + cost;
            if begin >= end || now >= end {
                break;
            }
            done.push((come.release, come.deadline, begin, now));
            queue.come_until(now);
        }
        queue.come_until(end);
        (done, queue.refused)
    }

    /// As the machine does, alone on its CPU.
    fn machines(machine: &mut Machine, arrivals: &[Arrival], cost: Span, end: Time) -> Told {
        let task = TaskId(0);
        let (mut done, mut refused) = (Vec::new(), Vec::new());
        let mut list = arrivals.iter().peekable();
        let mut runs: Option<Time> = None;
        loop {
            let ends = runs.map_or(Time::NEVER, |begin| begin + cost);
            let comes = list.peek().map_or(Time::NEVER, |arrival| arrival.seen);
            let now = ends.min(comes).min(machine.next_timer());
            if now >= end {
                return (done, refused);
            }
            if ends == now
                && let Some((job, begin)) = machine.job(task).zip(runs.take())
            {
                done.push((job.release, job.deadline, begin, now));
                let _ = machine.handle(now, Event::Completed { task });
            }
            while let Some(arrival) = list.next_if(|arrival| arrival.seen == now) {
                let arrived = Event::Arrived { task, arrival: arrival.nominal };
                if machine.handle(now, arrived) == Handled::Refused {
                    refused.push(*arrival);
                }
            }
            while let Some(order) = machine.poll(now) {
                match order {
                    Order::Run { .. } => runs = runs.or(Some(now)),
                    Order::Idle { .. } => runs = None,
                }
            }
        }
    }

    #[test]
    fn jobs_are_released_due_and_refused_as_the_machine_has_it() {
        let mut seed = 7_u64;
        let mut dice = |most: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % most
        };
        let (mut jobs, mut refusals) = (0, 0);
        for round in 0..300 {
            let mut spec = TaskSpec::new("a", Span::from_ns(10_000));
            spec.deadline = Span::from_ns(1_000 + 1_000 * dice(20));
            spec.enforced = round % 2 == 0;
            spec.backlog = Backlog { capacity: dice(4) as u32 };
            let (mut seen, mut arrivals) = (0, Vec::new());
            for _ in 0..20 {
                seen += 1 + dice(20);
                arrivals.push(Arrival { seen: at(seen), nominal: at(seen - dice(2).min(seen)) });
            }
            // Between two instants of arrivals: at one instant the machine's order is its own
            // matter.
            let cost = Span::from_ns(500 + 1_000 * dice(25));
            let mut tree = Tree::new(1, SchedulerSpec::new("cpu", Policy::FixedPriority));
            tree.task(Tree::ROOT, spec.clone());
            let mut machine = tree.build().expect("a sound tree");
            let end = Time::from_ns(100_250);
            let (expected, mine) =
                (machines(&mut machine, &arrivals, cost, end), ours(&spec, &arrivals, cost, end));
            assert_eq!(mine, expected, "round {round}: {spec:?} {arrivals:?} {cost}");
            jobs += mine.0.len();
            refusals += mine.1.len();
        }
        assert!(jobs > 500 && refusals > 100, "{jobs} jobs, {refusals} refused");
    }

    #[test]
    fn the_nearest_two_jobs_are_those_that_come_before_the_end() {
        let rule =
            |enforced| Rule::of(&TaskSpec { enforced, ..TaskSpec::new("a", Span::from_ns(10)) });
        let one = |seen: u64| Arrival { seen: Time::from_ns(seen), nominal: Time::from_ns(seen) };
        let list = Arrivals::List(vec![one(0), one(12), one(30), one(31)]);
        assert_eq!(rule(false).nearest(&list, Time::from_ns(31)), Some(Span::from_ns(12)));
        assert_eq!(rule(false).nearest(&list, Time::from_ns(32)), Some(Span::from_ns(1)));
        // The last one is released at 40.
        assert_eq!(rule(true).nearest(&list, Time::from_ns(32)), Some(Span::from_ns(12)));
        assert_eq!(rule(true).nearest(&list, Time::from_ns(41)), Some(Span::from_ns(10)));
        assert_eq!(rule(false).nearest(&list, Time::from_ns(12)), None);
        assert_eq!(rule(false).nearest(&Arrivals::Asked, Time::NEVER), None);
        // Released at 0 and 10, and one of them is seen late.
        let late =
            |seen, nominal| Arrival { seen: Time::from_ns(seen), nominal: Time::from_ns(nominal) };
        let list = Arrivals::List(vec![late(5, 0), late(10, 10)]);
        assert_eq!(rule(true).nearest(&list, Time::from_ns(32)), Some(Span::from_ns(5)));
        let every = Arrivals::Every { first: Time::ZERO, period: Span::from_ns(12) };
        assert_eq!(rule(true).nearest(&every, Time::NEVER), Some(Span::from_ns(12)));
    }
}
