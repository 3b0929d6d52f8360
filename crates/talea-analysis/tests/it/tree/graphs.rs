//! Graphs with dedicated CPUs: no node completes after its bound, and an unsuitable graph has no
//! bound.

use crate::rng::{rng, rounds};
use talea_analysis::multi::graham;
use talea_analysis::tree::{PRECEDENCE, Reason, RootModel};
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost, CostMode, Source};
use talea_core::{Span, Time, Work};
use talea_sim::rng::Rng;
use talea_sim::{Jobs, Simulation, Workload};

/// Returns a root of one to three CPUs with one graph, its period and deadline.
fn random_tree(rng: &mut Rng) -> (Tree, Vec<Source>, (u64, u64)) {
    let policies = [
        PolicySpec::Edf,
        PolicySpec::FixedPriority,
        PolicySpec::RateMonotonic,
        PolicySpec::Fifo,
        PolicySpec::RoundRobin { quantum: Work::from_ns(2) },
    ];
    let cpus = rng.between(1, 3) as u32;
    // Round robin is for one CPU.
    let policy = rng.below(if cpus == 1 { 5 } else { 4 });
    let mut root = SchedulerSpec::new("root", policies[policy as usize].clone());
    root.preemptive = rng.below(3) > 0;
    let mut tree = Tree::new(cpus, root);
    let (period, deadline) = (rng.between(15, 60), rng.between(10, 60));
    let cost = |rng: &mut Rng| Cost::Uniform {
        min: Work::from_ns(1),
        max: Work::from_ns(rng.between(1, 6)),
    };
    let (mut nodes, mut sources) = (Vec::new(), Vec::new());
    for _ in 0..rng.between(1, 2) {
        let mut spec = TaskSpec::new("root", Span::from_ns(period));
        spec.deadline = Span::from_ns(deadline);
        nodes.push(tree.task(Tree::ROOT, spec));
        let arrivals = Arrivals::Periodic {
            offset: Span::from_ns(rng.below(9)),
            period: Span::from_ns(period),
            jitter: Span::from_ns(rng.below(4)),
        };
        sources.push(Source { arrivals, cost: cost(rng) });
    }
    let roots = nodes.len();
    for _ in 0..rng.between(1, 7) {
        let node = tree.task(Tree::ROOT, TaskSpec::node("node"));
        sources.push(Source::activated(cost(rng)));
        let mut from: Vec<usize> = (0..nodes.len()).filter(|_| rng.below(3) == 0).collect();
        if from.is_empty() {
            from.push(rng.below(nodes.len() as u64) as usize);
        }
        // Joined at the first.
        if nodes.len() == roots {
            from = (0..roots).collect();
        }
        for one in from {
            tree.channel(nodes[one], node, rng.below(2) as u32 * 4);
        }
        nodes.push(node);
    }
    for channel in &mut tree.channels {
        channel.tokens = if channel.size > 0 && rng.below(5) == 0 { 2 } else { 1 };
    }
    (tree, sources, (period, deadline))
}

#[test]
fn no_node_of_a_graph_with_dedicated_cpus_completes_after_its_bound() {
    let mut rng = rng(23);
    let (mut reached, mut known) = (0, 0);
    for _ in 0..rounds(1_500) {
        let (tree, sources, (period, deadline)) = random_tree(&mut rng);
        let answers = RootModel::new(&tree, &sources).bounds();
        let mut longest = vec![Span::ZERO; sources.len()];
        for (seed, case) in [(1, CostMode::Worst), (2, CostMode::Sampled), (3, CostMode::Best)] {
            let workload = Workload { sources: sources.clone(), seed };
            let world = Simulation::new(tree.build().expect("a tree"), tree.cpus, &workload);
            let mut jobs = Jobs::default();
            world.with_cost_mode(case).run(Time::from_ns(600), &mut jobs);
            for job in &jobs.ended {
                // Nominal, of the latest root.
                let since = Span::from_ns(job.end.as_ns() + deadline - job.deadline.as_ns());
                let of = &mut longest[job.task.0 as usize];
                *of = since.max(*of);
            }
        }
        for (answer, longest) in answers.iter().zip(&longest) {
            match &answer.bound {
                Ok(bound) => {
                    assert!(
                        longest <= bound,
                        "{longest} and {bound} of {:?}: {tree:?} {sources:?}",
                        answer.node
                    );
                    assert_eq!(answer.test.name, graham::INFO.name);
                    assert!(*bound <= Span::from_ns(period));
                    (known, reached) = (known + 1, reached + u64::from(longest == bound));
                }
                Err(no) => assert_eq!(no.reason, Reason::Graph),
            }
        }
    }
    assert!(known > 2 * rounds(1_500) && reached > known / 20, "{reached} of {known}");
}

/// Checks the bound of a fork-join on two CPUs. The library tests Graham's own example of 1969,
/// figure 2.
#[test]
fn a_fork_join_is_bounded_from_its_arrival_and_an_unrelated_task_delays_it() {
    let mut tree = Tree::new(2, SchedulerSpec::new("cpus", PolicySpec::Edf));
    let fork = tree.task(Tree::ROOT, TaskSpec::new("fork", Span::from_ns(40)));
    let mut sources = vec![Source::periodic(Span::from_ns(40), Work::from_ns(2))];
    let join = tree.task(Tree::ROOT, TaskSpec::node("join"));
    sources.push(Source::activated(Cost::Constant(Work::from_ns(3))));
    for _ in 0..3 {
        let branch = tree.task(Tree::ROOT, TaskSpec::node("branch"));
        sources.push(Source::activated(Cost::Constant(Work::from_ns(10))));
        tree.channel(fork, branch, 0);
        tree.channel(branch, join, 0);
    }
    let answers = RootModel::new(&tree, &sources).bounds();
    let bounds: Vec<_> =
        answers.iter().map(|answer| answer.bound.clone().map(Span::as_ns)).collect();
    // vol 35: 2 + 33/2, 15 + 20/2, 12 + 23/2.
    assert_eq!(bounds, [Ok(18), Ok(25), Ok(23), Ok(23), Ok(23)]);
    assert!(
        answers.iter().all(|answer| answer.deadline == Span::from_ns(40) && answer.is_proved())
    );
    tree.task(Tree::ROOT, TaskSpec::new("unrelated", Span::from_ns(40)));
    sources.push(Source::periodic(Span::from_ns(40), Work::from_ns(1)));
    let answers = RootModel::new(&tree, &sources).bounds();
    let bounds: Vec<_> =
        answers.iter().map(|answer| answer.bound.clone().map(Span::as_ns)).collect();
    // fork alone with one other task; 15 + 21/2, 12 + 21/2, 1 + 35/2.
    assert_eq!(bounds, [Ok(2), Ok(25), Ok(22), Ok(22), Ok(22), Ok(18)]);
    assert!(answers.iter().all(|answer| answer.test.name == PRECEDENCE.name));
}
