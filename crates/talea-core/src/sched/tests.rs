//! Contract tests: the built-in policies keep the contract, and the check detects every violation.

use super::contract::{Order, check, check_order};
use super::*;
use alloc::vec;

fn suite(policy: &PolicySpec, order: Option<Order>) {
    assert_eq!(check_order(policy, order), Ok(()));
}

#[test]
fn s19_policies_that_order_by_a_number_keep_the_contract() {
    suite(&PolicySpec::Edf, Some(|of| (of.criteria.deadline.as_ns(), 0, of.child)));
    suite(&PolicySpec::RateMonotonic, Some(|of| (of.criteria.period.as_ns(), 0, of.child)));
    suite(
        &PolicySpec::DeadlineMonotonic,
        Some(|of| (of.criteria.relative_deadline.as_ns(), 0, of.child)),
    );
    suite(
        &PolicySpec::CriticalityMonotonic,
        Some(|of| (255 - u64::from(of.criteria.criticality), 0, of.child)),
    );
    suite(&PolicySpec::Fifo, Some(|of| (of.criteria.arrival.as_ns(), 0, of.child)));
}

#[test]
fn l2_fixed_priorities_equal_a_scan_of_the_levels_and_keep_their_queues() {
    suite(
        &PolicySpec::FixedPriority,
        Some(|of| {
            let level = 2 * (255 - u64::from(of.criteria.priority)) + u64::from(of.criteria.yields);
            (level, of.ready_seq, of.child)
        }),
    );
}

#[test]
fn s19_round_robin_and_partitions_keep_the_contract() {
    suite(&PolicySpec::RoundRobin { quantum: Work::from_ns(3) }, None);
    let slot =
        |start, end, owner| Slot { start: Span::from_ns(start), end: Span::from_ns(end), owner };
    for lending in [false, true] {
        let slots = vec![slot(0, 3, 1), slot(3, 4, 0), slot(6, 9, 1)];
        suite(&PolicySpec::Partitions { frame: Span::from_ns(10), slots, lending }, None);
    }
}

/// Earliest deadline first with a selectable defect.
#[derive(Debug)]
struct Mistaken {
    ready: Vec<Option<ReadyChild>>,
    mistake: Mistake,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// Returns [`Resched::Keep`] for every ready or updated child.
    Keeps,
    /// Does not remove finished children.
    Remembers,
    /// Ignores changed criteria.
    Ignores,
    /// Has an order opposite to its head.
    Reverses,
    /// Has no head if several children are ready.
    Hides,
    /// Admits no child.
    Refuses,
    /// Admits some children.
    Chooses,
    /// Uses recorded criteria instead of the entries in the question.
    Recalls,
    /// Orders unknown children first.
    Guesses,
    /// Requests a wakeup immediately, always.
    Insists,
    /// Does not report that the head's allowance has become limited.
    Silent,
}

impl Policy for Mistaken {
    fn admit(&mut self, info: &ChildInfo<'_>) -> Result<(), String> {
        let is_refused = match self.mistake {
            Mistake::Refuses => true,
            Mistake::Chooses => info.cost > Some(Work::from_ns(2)),
            _ => false,
        };
        if is_refused { Err("no".into()) } else { Ok(()) }
    }
    fn ready(&mut self, now: Time, entry: &ReadyChild) -> Resched {
        let before = self.head(now);
        self.ready[entry.child as usize] = Some(*entry);
        if self.mistake == Mistake::Silent {
            return Resched::when(self.head(now) != before || before == Some(entry.child));
        }
        Resched::when(self.mistake != Mistake::Keeps)
    }
    fn finished(&mut self, _: Time, child: Child) -> Resched {
        if self.mistake != Mistake::Remembers {
            self.ready[child as usize] = None;
        }
        Resched::Pick
    }
    fn update(&mut self, now: Time, entry: &ReadyChild) -> Resched {
        if self.mistake == Mistake::Ignores { Resched::Keep } else { self.ready(now, entry) }
    }
    fn head(&self, _: Time) -> Option<Child> {
        let ready = self.ready.iter().flatten();
        if self.mistake == Mistake::Hides && ready.clone().count() > 1 {
            return None;
        }
        ready.min_by_key(|of| (of.criteria.deadline, of.child)).map(|of| of.child)
    }
    fn before(&self, _: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        let recorded = |who: &ReadyChild| self.ready[who.child as usize];
        if self.mistake == Mistake::Recalls {
            let key = |who| recorded(who).map_or(Time::NEVER, |of| of.criteria.deadline);
            return (key(a), a.child) < (key(b), b.child);
        }
        if self.mistake == Mistake::Guesses && recorded(a).is_none() {
            return true;
        }
        let is_before = (a.criteria.deadline, a.child) < (b.criteria.deadline, b.child);
        is_before != (self.mistake == Mistake::Reverses)
    }
    fn needs_accounting(&self) -> bool {
        self.mistake == Mistake::Silent
    }
    fn allowance(&self, _: Time, _: Child) -> Option<Work> {
        let has_others = self.ready.iter().flatten().count() > 1;
        (self.mistake == Mistake::Silent && has_others).then_some(Work::from_ns(1))
    }
    fn next_wakeup(&self) -> Option<(Time, Phase)> {
        (self.mistake == Mistake::Insists).then_some((Time::ZERO, Phase::Starts))
    }
}

fn mistaken(children: usize, mistake: Mistake) -> Box<dyn Policy + Send> {
    Box::new(Mistaken { ready: vec![None; children], mistake })
}

#[test]
fn l8_the_contract_names_the_rule_that_an_external_policy_breaks() {
    let check = |make: PolicyFactory| check(&PolicySpec::Custom { name: "own", make });
    assert_eq!(check(|n| mistaken(n, Mistake::None)), Ok(()));
    assert_eq!(check(|n| mistaken(n, Mistake::Chooses)), Ok(()));
    let wrong: [(PolicyFactory, &str); 10] = [
        (|n| mistaken(n, Mistake::Recalls), "that does not know"),
        (|n| mistaken(n, Mistake::Guesses), "come before each other"),
        (|n| mistaken(n, Mistake::Keeps), "returned Keep, but its head has changed"),
        (|n| mistaken(n, Mistake::Remembers), "is not ready"),
        (|n| mistaken(n, Mistake::Ignores), "comes before the head"),
        (|n| mistaken(n, Mistake::Reverses), "comes before the head"),
        (|n| mistaken(n, Mistake::Hides), "a ready child and no head"),
        (|n| mistaken(n, Mistake::Refuses), "does not admit a child with a cost: no"),
        (|n| mistaken(n, Mistake::Silent), "the allowance of its head"),
        (|n| mistaken(n, Mistake::Insists), "requests the same wakeup again"),
    ];
    for (make, expected) in wrong {
        let why = check(make).expect_err(expected);
        assert!(why.starts_with("own") && why.contains(expected), "{expected}: {why}");
    }
}
