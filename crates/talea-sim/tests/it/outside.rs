//! What others write: policies and servers that know nothing of the machine but a trait (L8, L19,
//! S19, Y21).

use crate::lab::{Log, cost, listed, run, span, task, work};
use crate::servers::served;
use crate::soak;
use talea_core::machine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{Child, Entry, Part, Policy, Resched, Scheduler};
use talea_core::server::{Kind, Reservation};
use talea_core::{Span, Time};
use talea_sim::dice::Dice;

/// The example, as it is.
#[path = "../../../../examples/policy-llf/src/lib.rs"]
#[allow(unreachable_pub, missing_docs, reason = "it is a crate of its own")]
mod llf;

const MS: u64 = 1_000_000;

fn dear(name: &str, deadline: u64, cost: u64) -> TaskSpec {
    TaskSpec { cost: Some(work(cost)), ..task(name, deadline) }
}

#[test]
fn l8_y21_s19_least_laxity_in_a_server_in_a_band_keeps_the_invariants() {
    // A control task above a band of two servers; in one of them least laxity orders. Audited after
    // every instant.
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", Policy::FixedPriority));
    tree.task(Tree::ROOT, TaskSpec { priority: 50, ..task("control", 10 * MS) });
    let band = tree.scheduler(Tree::ROOT, SchedulerSpec::new("band", Policy::Edf));
    let mut vision = SchedulerSpec::new("vision", Policy::Custom { name: "llf", make: llf::make });
    vision.reservation = Some(Reservation::new(Kind::Deferrable, work(8 * MS), span(10 * MS)));
    let vision = tree.scheduler(band, vision);
    tree.task(vision, dear("left", 40 * MS, 6 * MS));
    tree.task(vision, dear("right", 20 * MS, 6 * MS));
    let log = run(
        &tree,
        &[listed(&[0, 10 * MS], cost(MS)), listed(&[0], cost(6 * MS)), listed(&[0], cost(6 * MS))],
        100 * MS,
    );
    assert_eq!(log.ends(0), [MS, 11 * MS]);
    // `right` must begin by 14, `left` by 34. The budget of 8 is used up at 9 and comes again at
    // 10.
    assert_eq!((log.ends(2), log.ends(1)), (vec![7 * MS], vec![15 * MS]));
}

/// Shifts: every so often another child comes first. All that it needs of time it asks of the
/// frame.
#[derive(Debug)]
struct Shifts {
    ready: Vec<bool>,
    first: Child,
    next: Time,
}

const SHIFT: Span = Span::from_ns(10);

impl Shifts {
    /// Lower is earlier.
    fn rank(&self, child: Child) -> u32 {
        let count = self.ready.len() as u32;
        (child + count - self.first) % count
    }
}

impl Scheduler for Shifts {
    fn ready(&mut self, _: Time, who: &Entry) -> Resched {
        self.ready[who.child as usize] = true;
        Resched::Pick
    }
    fn finished(&mut self, _: Time, who: Child) -> Resched {
        self.ready[who as usize] = false;
        Resched::Pick
    }
    fn update(&mut self, _: Time, _: &Entry) -> Resched {
        Resched::Pick
    }
    fn head(&self, _: Time) -> Option<Child> {
        (0..self.ready.len() as Child)
            .filter(|&who| self.ready[who as usize])
            .min_by_key(|&who| self.rank(who))
    }
    fn before(&self, _: Time, a: &Entry, b: &Entry) -> bool {
        self.rank(a.child) < self.rank(b.child)
    }
    fn next_wakeup(&self) -> Option<(Time, Part)> {
        Some((self.next, Part::Starts))
    }
    fn wake(&mut self, _: Time, _: Part) -> Resched {
        self.first = (self.first + 1) % self.ready.len() as Child;
        self.next += SHIFT;
        Resched::Pick
    }
}

#[test]
fn l8_a_second_policy_from_outside_is_woken_when_it_asks_to_be() {
    let make = |children| {
        let (ready, next) = (vec![false; children], Time::ZERO + SHIFT);
        Box::new(Shifts { ready, first: 0, next }) as Box<dyn Scheduler + Send>
    };
    let policy = Policy::Custom { name: "shifts", make };
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy.clone()));
    for name in ["a", "b", "c"] {
        tree.task(Tree::ROOT, task(name, 1_000));
    }
    let log: Log =
        run(&tree, &[listed(&[0], cost(15)), listed(&[0], cost(15)), listed(&[12], cost(5))], 100);
    // a to 10, b to 20, c to 25, and in c's shift a comes after it: to 30; then a's own; b at last.
    assert_eq!(log.runs, [(0, 0, 0), (10, 0, 1), (20, 0, 2), (25, 0, 0), (30, 0, 1)]);
    assert_eq!((log.ends(0), log.ends(1), log.ends(2)), (vec![30], vec![35], vec![25]));
    // With several CPUs nobody would wake its copies.
    let mut two = Tree::new(2, SchedulerSpec::new("cpus", policy));
    two.task(Tree::ROOT, task("a", 1_000));
    assert!(two.build().expect_err("refused").why.to_string().contains("`shifts` serves one CPU"));
}

/// The other example: deferrable, with a bonus.
#[path = "../../../../examples/server-saver/src/lib.rs"]
#[allow(unreachable_pub, missing_docs, reason = "it is a crate of its own")]
mod saver;

pub(crate) const SAVER: Kind = Kind::Custom { name: "saver", make: saver::make };

#[test]
fn l5_l19_a_server_from_outside_keeps_its_hand_table() {
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
        "an idle spell in the middle"
    );
    assert_eq!(
        served(of, &[(50, 20)]),
        [(50, 58), (60, 64), (80, 84), (100, 104)],
        "a bonus of Q, not more"
    );
    assert_eq!(served(Reservation { offset: span(7), ..of }, &[(0, 4)]), [(7, 11)]);
}

#[test]
fn l5_l19_a_server_from_outside_gives_what_it_promises_and_no_more() {
    let mut dice = Dice::new(19);
    for case in 0..soak::many(200, 20_000) {
        let (budget, period) = (dice.between(1, 4), dice.between(5, 12));
        let of = Reservation::new(SAVER, work(budget), span(period));
        let mut at = 0;
        let jobs: Vec<(u64, u64)> = (0..dice.between(1, 12))
            .map(|_| {
                at += dice.below(9);
                (at, dice.between(1, 6))
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
            // Whoever waits at the begin of a period has the whole budget in it, or all that he
            // asks.
            let asked: u64 = jobs.iter().filter(|job| job.0 <= begin).map(|job| job.1).sum();
            let owed = asked.saturating_sub(ran(0, begin)).min(budget);
            assert!(ran(begin, end) >= owed, "case {case}, from {begin}: {spans:?}, {jobs:?}");
        }
    }
}

std::thread_local! {
    /// Which jobs of which child a [`Listens`] was told of.
    static TOLD: std::cell::RefCell<Vec<(Child, u32)>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// The lowest number first.
#[derive(Debug)]
struct Listens(Vec<bool>);

impl Scheduler for Listens {
    fn ready(&mut self, now: Time, who: &Entry) -> Resched {
        self.0[who.child as usize] = true;
        self.update(now, who)
    }
    fn finished(&mut self, _: Time, who: Child) -> Resched {
        self.0[who as usize] = false;
        Resched::Pick
    }
    fn update(&mut self, _: Time, who: &Entry) -> Resched {
        TOLD.with_borrow_mut(|told| told.push((who.child, who.job)));
        Resched::Pick
    }
    fn head(&self, _: Time) -> Option<Child> {
        self.0.iter().position(|&ready| ready).map(|child| child as Child)
    }
    fn before(&self, _: Time, a: &Entry, b: &Entry) -> bool {
        a.child < b.child
    }
}

#[test]
fn s19_a_job_has_a_number_and_a_server_another_one_with_each_deadline() {
    let make = |children| Box::new(Listens(vec![false; children])) as Box<dyn Scheduler + Send>;
    let mut tree =
        Tree::new(1, SchedulerSpec::new("cpu", Policy::Custom { name: "listens", make }));
    let mut server = SchedulerSpec::new("server", Policy::Fifo);
    server.reservation = Some(Reservation::new(Kind::HardCbs, work(2), span(10)));
    let server = tree.scheduler(Tree::ROOT, server);
    tree.task(server, task("inside", 100));
    tree.task(Tree::ROOT, task("beside", 100));
    run(&tree, &[listed(&[0], cost(5)), listed(&[3, 4, 20], cost(1))], 100);
    let of = |child| -> Vec<u32> {
        let mut jobs = TOLD.with_borrow(|told| {
            told.iter().filter(|of| of.0 == child).map(|of| of.1).collect::<Vec<_>>()
        });
        jobs.dedup();
        jobs
    };
    assert_eq!(of(1), [0, 1, 2]);
    let budgets = of(0);
    assert_eq!(budgets.len(), 3, "5 of work in budgets of 2: {budgets:?}");
    assert!(budgets.is_sorted_by(|a, b| a + 1 == *b), "{budgets:?}");
}
