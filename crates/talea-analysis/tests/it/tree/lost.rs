//! A CPU that loses time now and then: no response is beyond the bound that has it.

use super::made::{Family, Made, made};
use crate::dice::{Dice, dice, rounds};
use talea_analysis::tree::{Reason, Roots};
use talea_core::machine::{Cpu, SchedulerSpec, TaskId, TaskSpec, Tree};
use talea_core::sched::Policy;
use talea_core::server::{Kind, Reservation};
use talea_core::workload::{Cost, Overheads, Source};
use talea_core::{Span, Time, Work};
use talea_sim::{Completion, Counters, Sink, Workload, World};

fn bounds(made: &Made, lost: u64) -> Vec<Option<u64>> {
    let mut roots = Roots::new(&made.tree, &made.workload.sources);
    (roots.overheads, roots.lost, roots.steps) = (made.overheads, Span::from_ns(lost), 1 << 15);
    roots.bounds().into_iter().map(|answer| answer.bound.ok().map(Span::as_ns)).collect()
}

/// How much there is to do, and when there was nothing.
#[derive(Default)]
struct Rests {
    pending: u64,
    at: Vec<u64>,
}

impl Rests {
    fn fewer(&mut self, now: Time) {
        self.pending -= 1;
        if self.pending == 0 {
            self.at.push(now.as_ns());
        }
    }
}

impl Sink for Rests {
    fn arrived(&mut self, _now: Time, _task: TaskId, _nominal: Time) {
        self.pending += 1;
    }

    fn refused(&mut self, now: Time, _task: TaskId) {
        self.fewer(now);
    }

    fn completed(&mut self, job: &Completion) {
        self.fewer(job.end);
    }
}

/// The longest response of each task to arrivals as they are seen, and when nothing was left to do.
fn simulate(made: &Made, workload: &Workload, holes: &[(u64, u64)]) -> (Vec<u64>, Vec<u64>) {
    let machine = made.tree.build().expect("a tree");
    let holes = holes.iter().map(|&(from, to)| (Time::from_ns(from), Time::from_ns(to))).collect();
    let world = World::new(machine, made.tree.cpus, workload).with_overheads(made.overheads);
    let mut seen = (Counters::new(workload.sources.len()), Rests::default());
    world.with_holes(Cpu(0), holes).run(Time::from_ns(700 * made.scale), &mut seen);
    (seen.0.tasks.iter().map(|count| count.worst.as_ns()).collect(), seen.1.at)
}

/// Pieces of `lost` in all, near to each other, and as much again behind up to three times at which
/// nothing was left to do.
fn losses(dice: &mut Dice, made: &Made, lost: u64) -> Vec<(u64, u64)> {
    let first = dice.below(200 * made.scale);
    let mut holes = pieces(dice, lost, first, made.scale);
    for _ in 0..3 {
        let after = holes.last().map_or(0, |hole| hole.1);
        let (_, rests) = simulate(made, &made.workload, &holes);
        let rests: Vec<_> =
            rests.into_iter().filter(|&at| at >= after && at < 600 * made.scale).take(4).collect();
        if rests.is_empty() {
            break;
        }
        let at = rests[dice.below(rests.len() as u64) as usize] + dice.below(3 * made.scale);
        holes.extend(pieces(dice, lost, at, made.scale));
    }
    holes
}

/// Pieces of `lost` in all, near to each other.
fn pieces(dice: &mut Dice, lost: u64, mut at: u64, scale: u64) -> Vec<(u64, u64)> {
    let (mut left, mut holes) = (lost, Vec::new());
    while left > 0 {
        let length = dice.between(1, left);
        holes.push((at, at + length));
        left -= length;
        at += length + dice.below(5 * scale);
    }
    holes
}

/// The same workload, one job of which costs as much more: a clock that does not stand still while
/// the CPU is away.
fn with_a_longer_one(dice: &mut Dice, made: &Made, lost: u64) -> Option<Workload> {
    let drawn = talea_sim::draw(&made.workload, Time::from_ns(700 * made.scale), |_| 1);
    let who = dice.below(drawn.len() as u64) as usize;
    let mut costs = drawn[who].costs.first()?.clone();
    let job = dice.below(costs.len() as u64) as usize;
    costs[job] = Work::from_ns(costs[job].as_ns() + lost);
    let mut workload = made.workload.clone();
    match &mut workload.sources[who].cost {
        Cost::Marked { of, .. } => **of = Cost::List(costs),
        Cost::Versions(_) => return None,
        cost => *cost = Cost::List(costs),
    }
    Some(workload)
}

/// Of a thousand tasks, about how many have a bound.
const PINNED: [(Family, u64); 9] = [
    (Family::Mixed, 540),
    (Family::Partitions, 372),
    (Family::NonPreemptive, 725),
    (Family::Overheads, 841),
    (Family::Resources, 787),
    (Family::ResourcesOverheads, 426),
    (Family::Flat, 996),
    (Family::Band, 658),
    (Family::NonPreemptiveAbove, 123),
];

#[test]
fn s18_no_response_is_beyond_a_bound_that_has_what_the_cpu_loses() {
    let mut dice = dice(60);
    let mut off = Vec::new();
    for (family, pinned) in PINNED {
        let (mut tasks, mut bounded, mut needed) = (0, 0, 0);
        for _ in 0..rounds(400) {
            let made = made(&mut dice, family);
            let lost = dice.between(1, 6 * made.scale);
            let (calm, bounds) = (bounds(&made, 0), bounds(&made, lost));
            tasks += bounds.len() as u64;
            bounded += bounds.iter().flatten().count() as u64;
            for _ in 0..6 {
                let holes = losses(&mut dice, &made, lost);
                let longer = with_a_longer_one(&mut dice, &made, lost);
                let found = simulate(&made, &made.workload, &holes).0;
                let found = [Some(found), longer.map(|workload| simulate(&made, &workload, &[]).0)];
                for (how, found) in
                    found.into_iter().enumerate().filter_map(|(how, found)| Some((how, found?)))
                {
                    for (task, ((longest, bound), calm)) in
                        found.iter().zip(&bounds).zip(&calm).enumerate()
                    {
                        let Some(bound) = bound else { continue };
                        assert!(
                            longest <= bound,
                            "{family:?} {task}: {longest} > {bound}, {lost} lost ({how}) {holes:?}\n{made:?}"
                        );
                        needed += u64::from(calm.is_some_and(|calm| *longest > calm));
                    }
                }
            }
        }
        let share = bounded * 1_000 / tasks;
        println!(
            "{family:?}: {share} of a thousand bounded, {needed} responses beyond the bound without a loss"
        );
        if share.abs_diff(pinned) > 60 || needed == 0 {
            off.push(format!("{family:?}: {share} instead of {pinned}, {needed}"));
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}

/// Tasks alone: priority, period, cost; in tenths of a millisecond.
fn flat(preemptive: bool, policy: Policy, cpus: u32, tasks: &[(u8, u64, u64)]) -> Made {
    let mut tree =
        Tree::new(cpus, SchedulerSpec { preemptive, ..SchedulerSpec::new("cpu", policy) });
    let mut workload = Workload::default();
    for &(priority, period, cost) in tasks {
        let mut spec = TaskSpec::new("task", Span::from_ns(period));
        spec.priority = priority;
        tree.task(Tree::ROOT, spec);
        workload.sources.push(Source::periodic(Span::from_ns(period), Work::from_ns(cost)));
    }
    Made { tree, workload, overheads: Overheads::default(), scale: 1 }
}

#[test]
fn s18_a_loss_counts_once_in_a_window_and_not_in_each_job() {
    let made = flat(true, Policy::FixedPriority, 1, &[(9, 10, 5), (1, 40, 9)]);
    // Nine tenths of the CPU with three more in each job of the lower one: 9 + 2·5, and 12 + 3·5.
    assert_eq!(bounds(&made, 0), [Some(5), Some(19)]);
    assert_eq!(bounds(&made, 3), [Some(8), Some(27)]);
    // A cost of 15 each 20 would be too much beside a half; a loss of ten is not.
    let made = flat(true, Policy::FixedPriority, 1, &[(9, 10, 5), (1, 20, 5)]);
    assert_eq!(bounds(&made, 10), [Some(15), Some(30)]);
}

#[test]
fn s18_a_loss_lets_one_more_begin_where_nobody_is_interrupted() {
    let tasks = [(9, 200, 90), (5, 600, 100), (1, 600, 50)];
    let made = flat(false, Policy::FixedPriority, 1, &tasks);
    assert_eq!(bounds(&made, 0)[2], Some(240));
    assert_eq!(bounds(&made, 9)[2], Some(249));
    // One and a half in the second one, and the first is there again.
    assert_eq!(bounds(&made, 15)[2], Some(345));
    assert_eq!(simulate(&made, &made.workload, &[(95, 110)]).0[2], 345);
}

#[test]
fn s18_the_clients_of_a_server_have_what_it_gives_less_what_is_lost() {
    let ns = Span::from_ns;
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", Policy::FixedPriority));
    let mut spec = SchedulerSpec::new("server", Policy::FixedPriority);
    spec.own.priority = Some(5);
    spec.reservation = Some(Reservation::new(Kind::Deferrable, Work::from_ns(4), ns(10)));
    let server = tree.scheduler(Tree::ROOT, spec);
    tree.task(server, TaskSpec::new("client", ns(40)));
    let sources = [Source::periodic(ns(40), Work::from_ns(4))];
    let mut roots = Roots::new(&tree, &sources);
    let supplied = |roots: &Roots<'_>, window| roots.supplied(server, ns(window)).map(Work::as_ns);
    let bound = |roots: &Roots<'_>| roots.bounds()[0].bound.clone().map(Span::as_ns);
    // Six without, then its four.
    assert_eq!((supplied(&roots, 10), bound(&roots)), (Ok(4), Ok(10)));
    roots.lost = ns(3);
    assert_eq!((supplied(&roots, 10), supplied(&roots, 19), bound(&roots)), (Ok(1), Ok(4), Ok(19)));
    // Its four do not fit into ten any more.
    roots.lost = ns(7);
    assert!(supplied(&roots, 10).is_err_and(|no| no.reason == Reason::Starved));
}

#[test]
fn s18_of_losses_on_several_cpus_nothing_is_known() {
    let made = flat(true, Policy::Edf, 2, &[(1, 10, 2), (1, 10, 2), (1, 10, 2)]);
    let mut roots = Roots::new(&made.tree, &made.workload.sources);
    assert!(roots.bounds().iter().all(|answer| answer.bound.is_ok()));
    roots.lost = Span::from_ns(1);
    let no = |answer: &talea_analysis::tree::Answer| answer.bound.clone().map_err(|no| no.reason);
    assert!(roots.bounds().iter().all(|answer| no(answer) == Err(Reason::Holes)));
}
