//! Plots of demand and supply agree with the bounds.

use super::random_trees::{Family, random_tree};
use crate::rng::{rng, rounds};
use talea_analysis::tree::{DemandPlot, RootModel};
use talea_core::engine::{NodeId, NodeSpec, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::Source;
use talea_core::{Span, Work};

/// Returns the value of a step curve at a time.
fn step(curve: &[(Span, Work)], at: Span) -> Work {
    curve.iter().take_while(|(from, _)| *from <= at).last().map_or(Work::ZERO, |(_, work)| *work)
}

fn sound(picture: &DemandPlot) {
    for curve in [&picture.supply, &picture.demand] {
        assert!(
            curve.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1),
            "{picture:?}"
        );
    }
    assert_eq!(step(&picture.demand, picture.mark), picture.demand_at_mark, "{picture:?}");
    for two in picture.supply.windows(2) {
        let (time, work) =
            (two[1].0.as_ns() - two[0].0.as_ns(), two[1].1.as_ns() - two[0].1.as_ns());
        assert!(work <= time, "no more is supplied than time goes by: {picture:?}");
    }
    let before =
        picture.supply.iter().rfind(|(at, _)| *at <= picture.mark).expect("a corner at zero");
    let after =
        picture.supply.iter().find(|(at, _)| *at >= picture.mark).expect("drawn beyond the mark");
    assert!(before.1 <= picture.supply_at_mark && picture.supply_at_mark <= after.1, "{picture:?}");
}

#[test]
fn a_task_is_plotted_as_late_if_its_bound_exceeds_its_deadline() {
    let mut rng = rng(53);
    let (mut tasks, mut late, mut levels) = (0, 0, 0);
    for family in
        [Family::Mixed, Family::Partitions, Family::NonPreemptive, Family::Band, Family::Flat]
    {
        for _ in 0..rounds(300) {
            let system = random_tree(&mut rng, family);
            let mut roots = RootModel::new(&system.tree, &system.workload.sources);
            roots.steps = 1 << 15;
            let answers = roots.bounds();
            for picture in roots.demand_plots() {
                sound(&picture);
                let Some(answer) = answers.iter().find(|answer| answer.node == picture.subject)
                else {
                    levels += 1;
                    continue;
                };
                let Ok(bound) = answer.bound else { continue };
                let parent =
                    system.tree.get(answer.node).and_then(|node| node.parent).expect("a parent");
                let queue = matches!(&system.tree.get(parent).expect("it is there").spec,
                    NodeSpec::Scheduler(spec) if matches!(spec.policy, PolicySpec::Fifo));
                let is_late = bound > answer.deadline;
                // In a queue the bound knows better who came before.
                assert!(
                    picture.is_exceeded() == is_late || (queue && !is_late),
                    "{picture:?} {answer:?}"
                );
                tasks += 1;
                late += u32::from(is_late);
            }
        }
    }
    println!("{tasks} tasks, {late} of them late, {levels} levels and servers");
    assert!(tasks > 500 && late > 50 && levels > 300);
}

#[test]
fn lehoczky_1990_a_later_job_of_the_busy_window_is_plotted_if_its_response_is_longer() {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
    let mut sources = Vec::new();
    for (priority, cost, period, deadline) in [(2, 26, 70, 70), (1, 62, 100, 115)] {
        let mut spec = TaskSpec::new("task", Span::from_ns(period));
        spec.priority = priority;
        spec.deadline = Span::from_ns(deadline);
        sources.push(Source::periodic(Span::from_ns(period), Work::from_ns(cost)));
        tree.task(Tree::ROOT, spec);
    }
    // The first response is 114, and the fifth 118, from 400 to 518.
    let roots = RootModel::new(&tree, &sources);
    assert_eq!(roots.bounds()[1].bound, Ok(Span::from_ns(118)));
    let picture = &roots.demand_plots()[0];
    assert!(picture.is_exceeded());
    assert_eq!((picture.mark.as_ns() - 118) % 100, 0, "{picture:?}");
    assert_eq!(
        picture.due.as_ns() - picture.mark.as_ns() % 100,
        picture.mark.as_ns() / 100 * 100 + 115 - 118
    );
}

#[test]
fn every_supply_owner_is_plotted_with_its_tightest_subject() {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
    let mut sources = Vec::new();
    let ns = Span::from_ns;
    let mut add = |tree: &mut Tree, parent, priority, (cost, period): (u64, u64)| {
        let mut spec = TaskSpec::new("task", ns(period));
        spec.priority = priority;
        sources.push(Source::periodic(ns(period), Work::from_ns(cost)));
        tree.task(parent, spec)
    };
    let first = add(&mut tree, Tree::ROOT, 9, (2, 10));
    let second = add(&mut tree, Tree::ROOT, 8, (7, 20));
    let mut band = SchedulerSpec::new("band", PolicySpec::Edf);
    band.overrides.priority = Some(1);
    let band: NodeId = tree.scheduler(Tree::ROOT, band);
    for _ in 0..2 {
        add(&mut tree, band, 1, (6, 60));
    }
    let pictures = RootModel::new(&tree, &sources).demand_plots();
    let [picture] = &pictures[..] else { panic!("one CPU: {pictures:?}") };
    // 2 of 10; 9 of 20; of the band 12 of the 27 that are left at 60.
    assert_ne!(picture.subject, first);
    assert_eq!(
        (picture.node, picture.subject, picture.mark, picture.due),
        (Tree::ROOT, second, ns(9), ns(20))
    );
    assert_eq!(
        (picture.demand_at_mark, picture.supply_at_mark),
        (Work::from_ns(9), Work::from_ns(9))
    );
}
