//! External policies and servers, which know only a trait of the engine (L8, L19, S19, Y21).

use crate::harness::{Log, cost, listed, run, span, task, work};
use crate::servers::served;
use crate::soak;
use std::cell::RefCell;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{Child, Phase, Policy, PolicySpec, ReadyChild, Resched};
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Time};
use talea_sim::rng::Rng;

/// The example `policy-llf`, unchanged.
#[path = "../../../../examples/policy-llf/src/lib.rs"]
#[allow(unreachable_pub, missing_docs, reason = "it is a crate of its own")]
mod llf;

const MS: u64 = 1_000_000;

fn dear(name: &str, deadline: u64, cost: u64) -> TaskSpec {
    TaskSpec { cost: Some(work(cost)), ..task(name, deadline) }
}

#[test]
fn l8_y21_s19_least_laxity_in_a_server_in_a_band_keeps_the_invariants() {
    // A control task above a band of two servers; one of them uses least laxity. Audited after
    // every instant.
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
    tree.task(Tree::ROOT, TaskSpec { priority: 50, ..task("control", 10 * MS) });
    let band = tree.scheduler(Tree::ROOT, SchedulerSpec::new("band", PolicySpec::Edf));
    let mut vision =
        SchedulerSpec::new("vision", PolicySpec::Custom { name: "llf", make: llf::make });
    vision.reservation =
        Some(Reservation::new(ServerKind::Deferrable, work(8 * MS), span(10 * MS)));
    let vision = tree.scheduler(band, vision);
    tree.task(vision, dear("left", 40 * MS, 6 * MS));
    tree.task(vision, dear("right", 20 * MS, 6 * MS));
    let log = run(
        &tree,
        &[listed(&[0, 10 * MS], cost(MS)), listed(&[0], cost(6 * MS)), listed(&[0], cost(6 * MS))],
        100 * MS,
    );
    assert_eq!(log.ends(0), [MS, 11 * MS]);
    // `right` must start by 14, `left` by 34. The budget of 8 is exhausted at 9 and refilled at 10.
    assert_eq!((log.ends(2), log.ends(1)), (vec![7 * MS], vec![15 * MS]));
}

/// Policy of shifts: another child comes first in each period. The policy requests all timing from
/// the engine.
#[derive(Debug)]
struct Shifts {
    ready: Vec<bool>,
    first: Child,
    next: Time,
}

const SHIFT: Span = Span::from_ns(10);

impl Shifts {
    /// Returns the rank of a child. The child with the lowest rank is first.
    fn rank(&self, child: Child) -> u32 {
        let count = self.ready.len() as u32;
        (child + count - self.first) % count
    }
}

impl Policy for Shifts {
    fn ready(&mut self, _: Time, entry: &ReadyChild) -> Resched {
        self.ready[entry.child as usize] = true;
        Resched::Pick
    }
    fn finished(&mut self, _: Time, child: Child) -> Resched {
        self.ready[child as usize] = false;
        Resched::Pick
    }
    fn update(&mut self, _: Time, _: &ReadyChild) -> Resched {
        Resched::Pick
    }
    fn head(&self, _: Time) -> Option<Child> {
        (0..self.ready.len() as Child)
            .filter(|&child| self.ready[child as usize])
            .min_by_key(|&child| self.rank(child))
    }
    fn before(&self, _: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        self.rank(a.child) < self.rank(b.child)
    }
    fn next_wakeup(&self) -> Option<(Time, Phase)> {
        Some((self.next, Phase::Starts))
    }
    fn wake(&mut self, _: Time, _: Phase) -> Resched {
        self.first = (self.first + 1) % self.ready.len() as Child;
        self.next += SHIFT;
        Resched::Pick
    }
}

#[test]
fn l8_an_external_policy_is_woken_at_its_requested_times() {
    let make = |children| {
        let (ready, next) = (vec![false; children], Time::ZERO + SHIFT);
        Box::new(Shifts { ready, first: 0, next }) as Box<dyn Policy + Send>
    };
    let policy = PolicySpec::Custom { name: "shifts", make };
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy.clone()));
    for name in ["a", "b", "c"] {
        tree.task(Tree::ROOT, task(name, 1_000));
    }
    let log: Log =
        run(&tree, &[listed(&[0], cost(15)), listed(&[0], cost(15)), listed(&[12], cost(5))], 100);
    // a to 10, b to 20, c to 25; in c's shift a follows: to 30; then a's own shift; b last.
    assert_eq!(log.runs, [(0, 0, 0), (10, 0, 1), (20, 0, 2), (25, 0, 0), (30, 0, 1)]);
    assert_eq!((log.ends(0), log.ends(1), log.ends(2)), (vec![30], vec![35], vec![25]));
    // With several CPUs its copies would not be woken.
    let mut two = Tree::new(2, SchedulerSpec::new("cpus", policy));
    two.task(Tree::ROOT, task("a", 1_000));
    assert!(two.build().expect_err("refused").kind.to_string().contains("`shifts` serves one CPU"));
}

/// The example `server-saver`: a deferrable server with a bonus.
#[path = "../../../../examples/server-saver/src/lib.rs"]
#[allow(unreachable_pub, missing_docs, reason = "it is a crate of its own")]
mod saver;

pub(crate) const SAVER: ServerKind = ServerKind::Custom { name: "saver", make: saver::make };

#[test]
fn l5_l19_an_external_server_matches_its_hand_table() {
    let of = Reservation::new(SAVER, work(4), span(20));
    assert_eq!(served(of, &[(0, 10)]), [(0, 4), (20, 24), (40, 42)], "exhausted");
    assert_eq!(served(of, &[(15, 8)]), [(15, 19), (20, 24)], "a late wake-up");
    assert_eq!(
        served(of, &[(18, 2), (20, 10)]),
        [(18, 26), (40, 44)],
        "back to back: two are saved"
    );
    assert_eq!(
        served(of, &[(0, 1), (10, 5)]),
        [(0, 1), (10, 13), (20, 22)],
        "an idle interval in the middle"
    );
    assert_eq!(
        served(of, &[(50, 20)]),
        [(50, 58), (60, 64), (80, 84), (100, 104)],
        "a bonus of Q, not more"
    );
    assert_eq!(served(Reservation { offset: span(7), ..of }, &[(0, 4)]), [(7, 11)]);
}

#[test]
fn l5_l19_an_external_server_supplies_its_budget_and_no_more() {
    let mut rng = Rng::new(19);
    for case in 0..soak::many(200, 20_000) {
        let (budget, period) = (rng.between(1, 4), rng.between(5, 12));
        let of = Reservation::new(SAVER, work(budget), span(period));
        let mut at = 0;
        let jobs: Vec<(u64, u64)> = (0..rng.between(1, 12))
            .map(|_| {
                at += rng.below(9);
                (at, rng.between(1, 6))
            })
            .collect();
        let spans = served(of, &jobs);
        let ran = |from: u64, to: u64| -> u64 {
            spans.iter().map(|span| span.1.min(to).saturating_sub(span.0.max(from))).sum()
        };
        let mut saved = 0;
        for begin in (0..150).step_by(period as usize) {
            let end = begin + period;
            assert!(
                ran(begin, end) <= budget + saved,
                "case {case}, from {begin}: {spans:?}, {jobs:?}"
            );
            saved = (budget + saved - ran(begin, end)).min(budget);
            // A client that waits at the start of a period receives the whole budget in it, or all
            // that it requests.
            let asked: u64 = jobs.iter().filter(|job| job.0 <= begin).map(|job| job.1).sum();
            let owed = asked.saturating_sub(ran(0, begin)).min(budget);
            assert!(ran(begin, end) >= owed, "case {case}, from {begin}: {spans:?}, {jobs:?}");
        }
    }
}

std::thread_local! {
    /// Jobs of the children reported to a [`Recorder`].
    static RECORDED: RefCell<Vec<(Child, u32)>> = const { RefCell::new(Vec::new()) };
}

/// Policy that prefers the child with the lowest number.
#[derive(Debug)]
struct Recorder(Vec<bool>);

impl Policy for Recorder {
    fn ready(&mut self, now: Time, entry: &ReadyChild) -> Resched {
        self.0[entry.child as usize] = true;
        self.update(now, entry)
    }
    fn finished(&mut self, _: Time, child: Child) -> Resched {
        self.0[child as usize] = false;
        Resched::Pick
    }
    fn update(&mut self, _: Time, entry: &ReadyChild) -> Resched {
        RECORDED.with_borrow_mut(|recorded| recorded.push((entry.child, entry.job)));
        Resched::Pick
    }
    fn head(&self, _: Time) -> Option<Child> {
        self.0.iter().position(|&ready| ready).map(|child| child as Child)
    }
    fn before(&self, _: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        a.child < b.child
    }
}

#[test]
fn s19_jobs_are_numbered_and_a_server_has_a_new_number_for_each_deadline() {
    let make = |children| Box::new(Recorder(vec![false; children])) as Box<dyn Policy + Send>;
    let mut tree =
        Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Custom { name: "listens", make }));
    let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
    server.reservation = Some(Reservation::new(ServerKind::HardCbs, work(2), span(10)));
    let server = tree.scheduler(Tree::ROOT, server);
    tree.task(server, task("inside", 100));
    tree.task(Tree::ROOT, task("beside", 100));
    run(&tree, &[listed(&[0], cost(5)), listed(&[3, 4, 20], cost(1))], 100);
    let of = |child| -> Vec<u32> {
        let mut jobs = RECORDED.with_borrow(|recorded| {
            recorded.iter().filter(|of| of.0 == child).map(|of| of.1).collect::<Vec<_>>()
        });
        jobs.dedup();
        jobs
    };
    assert_eq!(of(1), [0, 1, 2]);
    let budgets = of(0);
    assert_eq!(budgets.len(), 3, "5 of work in budgets of 2: {budgets:?}");
    assert!(budgets.is_sorted_by(|a, b| a + 1 == *b), "{budgets:?}");
}
