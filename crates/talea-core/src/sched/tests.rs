//! The built-in policies keep the contract, and the check of the contract sees who does not.

use super::contract::{Order, check, check_order};
use super::*;
use alloc::vec;

fn suite(policy: &Policy, order: Option<Order>) {
    assert_eq!(check_order(policy, order), Ok(()));
}

#[test]
fn s19_policies_that_order_by_a_number_keep_the_contract() {
    suite(&Policy::Edf, Some(|of| (of.criteria.deadline.as_ns(), 0, of.child)));
    suite(&Policy::RateMonotonic, Some(|of| (of.criteria.period.as_ns(), 0, of.child)));
    suite(
        &Policy::DeadlineMonotonic,
        Some(|of| (of.criteria.relative_deadline.as_ns(), 0, of.child)),
    );
    suite(
        &Policy::CriticalityMonotonic,
        Some(|of| (255 - u64::from(of.criteria.criticality), 0, of.child)),
    );
    suite(&Policy::Fifo, Some(|of| (of.criteria.arrival.as_ns(), 0, of.child)));
}

#[test]
fn l2_fixed_priorities_find_the_highest_level_as_a_scan_does_and_keep_its_queue() {
    suite(
        &Policy::FixedPriority,
        Some(|of| {
            let level = 2 * (255 - u64::from(of.criteria.priority)) + u64::from(of.criteria.yields);
            (level, of.since, of.child)
        }),
    );
}

#[test]
fn s19_round_robin_and_partitions_keep_the_contract() {
    suite(&Policy::RoundRobin { quantum: Work::from_ns(3) }, None);
    let slot =
        |start, end, owner| Slot { start: Span::from_ns(start), end: Span::from_ns(end), owner };
    for lending in [false, true] {
        let slots = vec![slot(0, 3, 1), slot(3, 4, 0), slot(6, 9, 1)];
        suite(&Policy::Partitions { frame: Span::from_ns(10), slots, lending }, None);
    }
}

/// Earliest deadline first with a mistake of choice.
#[derive(Debug)]
struct Mistaken {
    ready: Vec<Option<Entry>>,
    what: Mistake,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// It says Keep whatever happens.
    Keeps,
    /// It forgets who has finished.
    Remembers,
    /// It does not look at changes.
    Ignores,
    /// The order of who waits is not that of the head.
    Reverses,
    /// It has no head where several are ready.
    Hides,
    /// It takes nobody.
    Refuses,
    /// It takes some.
    Chooses,
    /// It looks at what it was told, and not at what it is asked about.
    Recalls,
    /// Whom it was not told of comes before everybody.
    Guesses,
    /// It wants to be woken at once, always.
    Insists,
    /// It does not say that the head may no longer run for as long as it likes.
    Silent,
}

impl Scheduler for Mistaken {
    fn admit(&mut self, who: &Newcomer<'_>) -> Result<(), String> {
        let is_refused = match self.what {
            Mistake::Refuses => true,
            Mistake::Chooses => who.cost > Some(Work::from_ns(2)),
            _ => false,
        };
        if is_refused { Err("no".into()) } else { Ok(()) }
    }
    fn ready(&mut self, now: Time, who: &Entry) -> Resched {
        let before = self.head(now);
        self.ready[who.child as usize] = Some(*who);
        if self.what == Mistake::Silent {
            return Resched::when(self.head(now) != before || before == Some(who.child));
        }
        Resched::when(self.what != Mistake::Keeps)
    }
    fn finished(&mut self, _: Time, who: Child) -> Resched {
        if self.what != Mistake::Remembers {
            self.ready[who as usize] = None;
        }
        Resched::Pick
    }
    fn update(&mut self, now: Time, who: &Entry) -> Resched {
        if self.what == Mistake::Ignores { Resched::Keep } else { self.ready(now, who) }
    }
    fn head(&self, _: Time) -> Option<Child> {
        let ready = self.ready.iter().flatten();
        if self.what == Mistake::Hides && ready.clone().count() > 1 {
            return None;
        }
        ready.min_by_key(|of| (of.criteria.deadline, of.child)).map(|of| of.child)
    }
    fn before(&self, _: Time, a: &Entry, b: &Entry) -> bool {
        let told = |who: &Entry| self.ready[who.child as usize];
        if self.what == Mistake::Recalls {
            let key = |who| told(who).map_or(Time::NEVER, |of| of.criteria.deadline);
            return (key(a), a.child) < (key(b), b.child);
        }
        if self.what == Mistake::Guesses && told(a).is_none() {
            return true;
        }
        let is_before = (a.criteria.deadline, a.child) < (b.criteria.deadline, b.child);
        is_before != (self.what == Mistake::Reverses)
    }
    fn metered(&self) -> bool {
        self.what == Mistake::Silent
    }
    fn allowance(&self, _: Time, _: Child) -> Option<Work> {
        let has_others = self.ready.iter().flatten().count() > 1;
        (self.what == Mistake::Silent && has_others).then_some(Work::from_ns(1))
    }
    fn next_wakeup(&self) -> Option<(Time, Part)> {
        (self.what == Mistake::Insists).then_some((Time::ZERO, Part::Starts))
    }
}

fn mistaken(children: usize, what: Mistake) -> Box<dyn Scheduler + Send> {
    Box::new(Mistaken { ready: vec![None; children], what })
}

#[test]
fn l8_the_contract_tells_a_policy_from_outside_what_it_does_not_keep() {
    let check = |make: Maker| check(&Policy::Custom { name: "own", make });
    assert_eq!(check(|n| mistaken(n, Mistake::None)), Ok(()));
    assert_eq!(check(|n| mistaken(n, Mistake::Chooses)), Ok(()));
    let wrong: [(Maker, &str); 10] = [
        (|n| mistaken(n, Mistake::Recalls), "that was not told of"),
        (|n| mistaken(n, Mistake::Guesses), "come before each other"),
        (|n| mistaken(n, Mistake::Keeps), "said Keep, but its head is another one"),
        (|n| mistaken(n, Mistake::Remembers), "is not ready"),
        (|n| mistaken(n, Mistake::Ignores), "comes before the head"),
        (|n| mistaken(n, Mistake::Reverses), "comes before the head"),
        (|n| mistaken(n, Mistake::Hides), "a ready child and no head"),
        (|n| mistaken(n, Mistake::Refuses), "does not take a child with a cost: no"),
        (|n| mistaken(n, Mistake::Silent), "the allowance of its head"),
        (|n| mistaken(n, Mistake::Insists), "wants to be woken then again"),
    ];
    for (make, expected) in wrong {
        let why = check(make).expect_err(expected);
        assert!(why.starts_with("own") && why.contains(expected), "{expected}: {why}");
    }
}
