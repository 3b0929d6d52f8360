//! Plate K over trees: what is simulated is never beyond the bound, and reaches it where that is said to be exact.

use super::made::{FAMILIES, Family, Made, made};
use crate::dice::{dice, rounds};
use std::collections::BTreeMap;
use talea_analysis::card::Kind;
use talea_analysis::tree::{Answer, Reason, Roots};
use talea_core::machine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::Policy;
use talea_core::server::{Kind as Server, Reservation};
use talea_core::workload::{Arrivals, Cost, Overheads, Source};
use talea_core::{Span, Time, Work};
use talea_sim::{Jobs, Workload, World};

/// What came out of a family.
#[derive(Default)]
struct Tally {
    trees: u64,
    tasks: u64,
    bounded: u64,
    reached: u64,
    exact: u64,
    /// Simulated over bound, in thousandths, summed.
    tightness: u64,
    reasons: BTreeMap<&'static str, u64>,
}

fn simulate(made: &Made, until: u64) -> Vec<(Span, u64)> {
    let machine = made.tree.build().expect("a tree");
    let mut world = World::new(machine, made.tree.cpus, &made.workload).with_overheads(made.overheads);
    let mut jobs = Jobs::default();
    world.run(Time::from_ns(until), &mut jobs);
    let mut found = vec![(Span::ZERO, 0); made.workload.sources.len()];
    for job in &jobs.ended {
        let one = &mut found[job.task.0 as usize];
        *one = (one.0.max(job.response()), one.1 + 1);
    }
    found
}

fn check(made: &Made, tally: &mut Tally) {
    let until = 700;
    let mut roots = Roots::new(&made.tree, &made.workload.sources);
    roots.overheads = made.overheads;
    roots.steps = 1 << 15;
    let answers: Vec<Answer> = roots.bounds();
    let found = simulate(made, until);
    tally.trees += 1;
    let together = made.workload.sources.iter().all(|source| {
        matches!(source.arrivals, Arrivals::Periodic { offset: Span::ZERO, jitter: Span::ZERO, .. })
            && matches!(source.cost, Cost::Constant(_))
    });
    for ((answer, source), (longest, ended)) in answers.iter().zip(&made.workload.sources).zip(found) {
        tally.tasks += 1;
        let bound = match &answer.bound {
            Ok(bound) => *bound,
            Err(no) => {
                *tally.reasons.entry(no.reason.text()).or_default() += 1;
                continue;
            }
        };
        assert!(longest <= bound, "{longest:?} > {answer:?}\n{:#?}\n{:#?}", made.tree, made.workload);
        if let Arrivals::Periodic { offset, period, .. } = source.arrivals {
            // None is still under way that should have ended.
            let due = (until - 1).checked_sub(bound.as_ns() + offset.as_ns());
            let due = due.map_or(0, |due| due / period.as_ns() + 1);
            assert!(ended >= due, "{ended} of {due} ended: {answer:?}\n{:#?}", made.tree);
        }
        tally.bounded += 1;
        tally.reached += u64::from(longest == bound);
        tally.tightness += longest.as_ns() * 1_000 / bound.as_ns().max(1);
        if answer.kind == Kind::Exact && together && answer.test.policy == "FP" && bound.as_ns() < until / 2 {
            assert_eq!(longest, bound, "exact: {answer:?}\n{:#?}\n{:#?}", made.tree, made.workload);
            assert_eq!(answer.is_refuted(), longest > answer.deadline, "a refutation is a miss");
            tally.exact += 1;
        }
    }
}

#[test]
fn no_simulated_response_is_beyond_its_bound() {
    let mut dice = dice(50);
    for family in FAMILIES {
        let mut tally = Tally::default();
        for _ in 0..rounds(1_500) {
            check(&made(&mut dice, family), &mut tally);
        }
        let Tally { trees, tasks, bounded, reached, exact, tightness, reasons } = &tally;
        println!(
            "{family:?}: {trees} trees, {tasks} tasks, {bounded} bounded, {reached} reached ({exact} exact ones), simulated/bound {} per mille",
            tightness / bounded.max(&1)
        );
        for (reason, count) in reasons {
            println!("    {count} {reason}");
        }
        assert!(*bounded > tasks / 3, "{family:?}: bounds are found");
        assert!(family != Family::Flat || *exact > trees / 4, "{family:?}: {exact} exact");
    }
    assert_eq!(Reason::Limit.text(), "the analysis gave up at its limit");
}

/// Nobody knows when some tasks come, and several of their jobs may come at once: in a hard server that is nobody else's concern.
#[test]
fn l12_whatever_is_asked_of_a_hard_server_others_keep_their_bounds() {
    let mut dice = dice(51);
    for family in [Family::Mixed, Family::Band, Family::Overheads] {
        let (mut tally, mut beside) = (Tally::default(), 0);
        for _ in 0..rounds(1_500) {
            let mut made = made(&mut dice, family);
            let mut some = false;
            for source in &mut made.workload.sources {
                if dice.below(3) == 0 {
                    let mut times: Vec<Time> =
                        (0..dice.between(2, 60)).map(|_| Time::from_ns(dice.below(600))).collect();
                    times.push(times[0]);
                    times.sort_unstable();
                    source.arrivals = Arrivals::List(times);
                    some = true;
                }
            }
            let before = tally.bounded;
            check(&made, &mut tally);
            beside += if some { tally.bounded - before } else { 0 };
        }
        println!(
            "{family:?}: {beside} of {} bounded beside tasks of which nobody knows when they come",
            tally.tasks
        );
        assert_eq!(beside > 100, family != Family::Overheads, "{family:?}: {beside}");
    }
}

/// A server of every kind, budget, period and offset, with one client, below one task and above another, or beside them
/// under EDF.
#[test]
fn every_small_server_among_two_tasks() {
    let mut tally = Tally::default();
    for kind in [Server::Polling, Server::Deferrable, Server::Sporadic, Server::HardCbs, Server::SoftCbs] {
        for policy in [Policy::FixedPriority, Policy::Edf] {
            for (period, budget) in
                (2..=4).flat_map(|period| (1..=period).map(move |budget| (period, budget)))
            {
                for (cost, apart, offset) in
                    (1..=2).flat_map(|c| (4..=7).flat_map(move |t| (0..=3).map(move |o| (c, t, o))))
                {
                    let ns = Span::from_ns;
                    let mut tree = Tree::new(1, SchedulerSpec::new("root", policy.clone()));
                    let mut workload = Workload::default();
                    let mut add =
                        |tree: &mut Tree, parent, priority, (cost, period, offset): (u64, u64, u64)| {
                            let mut spec = TaskSpec::new("task", ns(period));
                            spec.priority = priority;
                            spec.backlog.capacity = 1 << 10;
                            tree.task(parent, spec);
                            let arrivals = Arrivals::Periodic {
                                offset: ns(offset),
                                period: ns(period),
                                jitter: Span::ZERO,
                            };
                            workload
                                .sources
                                .push(Source { arrivals, cost: Cost::Constant(Work::from_ns(cost)) });
                        };
                    add(&mut tree, Tree::ROOT, 9, (1, 5, 0));
                    let mut spec = SchedulerSpec::new("server", Policy::FixedPriority);
                    spec.own.priority = Some(5);
                    let mut of = Reservation::new(kind, Work::from_ns(budget), ns(period));
                    of.offset = ns(offset % period);
                    spec.reservation = Some(of);
                    let server = tree.scheduler(Tree::ROOT, spec);
                    add(&mut tree, server, 1, (cost, apart, offset));
                    add(&mut tree, Tree::ROOT, 1, (1, 9, offset / 2));
                    check(&Made { tree, workload, overheads: Overheads::default() }, &mut tally);
                }
            }
        }
    }
    println!(
        "{} trees, {} of {} bounded, {} reached",
        tally.trees, tally.bounded, tally.tasks, tally.reached
    );
    assert!(tally.trees == 2_880 && tally.bounded > 4_000 && tally.reached > 1_000);
}
