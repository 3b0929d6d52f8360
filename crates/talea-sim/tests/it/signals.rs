//! SF3P's Fig. 4: signals between the runnables of a fixed-priority scheduler over EDF and FIFO
//! (S12).

use crate::harness::{cost, listed, task};
use talea_core::Time;
use talea_core::criteria::Overrides;
use talea_core::engine::{NodeId, Observer, SchedulerSpec, Signal, Tree};
use talea_core::sched::PolicySpec;
use talea_sim::{Simulation, Workload};

#[derive(Debug, Default)]
struct Seen(Vec<(u64, Signal, NodeId)>);

impl Observer for Seen {
    const ENABLED: bool = true;

    fn on_signal(&mut self, now: Time, signal: Signal, node: NodeId) {
        self.0.push((now.as_ns(), signal, node));
    }
}

#[test]
fn s12_arrival_update_activation_preemption_and_reactivation_follow_the_figure() {
    let mut tree = Tree::new(1, SchedulerSpec::new("fp", PolicySpec::FixedPriority));
    let [edf, fifo] = [(PolicySpec::Edf, 2), (PolicySpec::Fifo, 1)].map(|(policy, priority)| {
        let mut spec = SchedulerSpec::new("group", policy);
        spec.overrides = Overrides { priority: Some(priority), ..Overrides::default() };
        tree.scheduler(Tree::ROOT, spec)
    });
    let (set_1, set_2) = (tree.task(edf, task("set 1", 100)), tree.task(fifo, task("set 2", 100)));
    let workload =
        Workload { sources: vec![listed(&[3], cost(2)), listed(&[0], cost(5))], seed: 0 };
    let mut simulation =
        Simulation::new(tree.build_with(Seen::default()).expect("a tree"), 1, &workload);
    simulation.run(Time::from_ns(100), &mut ());
    let fp = Tree::ROOT;
    let expected = [
        // A job of set 2 arrives: criteria are propagated upwards, then the CPU is assigned
        // downwards.
        (0, Signal::Ready, set_2),
        (0, Signal::Ready, fifo),
        (0, Signal::Ready, fp),
        (0, Signal::Activate, fp),
        (0, Signal::Activate, fifo),
        (0, Signal::Activate, set_2),
        // A job of set 1 arrives and preempts it.
        (3, Signal::Ready, set_1),
        (3, Signal::Ready, edf),
        (3, Signal::Update, fp),
        (3, Signal::Deactivate, set_2),
        (3, Signal::Deactivate, fifo),
        (3, Signal::Activate, edf),
        (3, Signal::Activate, set_1),
        // It completes, and the other job resumes.
        (5, Signal::Finished, set_1),
        (5, Signal::Finished, edf),
        (5, Signal::Update, fp),
        (5, Signal::Deactivate, set_1),
        (5, Signal::Deactivate, edf),
        (5, Signal::Activate, fifo),
        (5, Signal::Activate, set_2),
        (7, Signal::Finished, set_2),
        (7, Signal::Finished, fifo),
        (7, Signal::Finished, fp),
        (7, Signal::Deactivate, set_2),
        (7, Signal::Deactivate, fifo),
        (7, Signal::Deactivate, fp),
    ];
    assert_eq!(simulation.engine_mut().observer().0, expected);
}
