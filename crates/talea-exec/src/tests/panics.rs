//! Panics of policies of the application.

use super::fake::Fake;
use super::{at, ms, tenths};
use crate::executor::{Executor, StepContext};
use crate::load::{Arrival, Load};
use crate::root_shared::RootShared;
use crate::root_state::RootState;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_core::engine::{SchedulerSpec, TaskId, TaskSpec, Tree};
use talea_core::sched::{Child, Policy, PolicySpec, ReadyChild, Resched};
use talea_core::{CpuSet, Time};

/// Policy that panics when a child becomes ready.
#[derive(Debug)]
struct Panicking;

impl Policy for Panicking {
    fn ready(&mut self, _: Time, entry: &ReadyChild) -> Resched {
        panic!("child {} is one too many", entry.child)
    }
    fn finished(&mut self, _: Time, _: Child) -> Resched {
        Resched::Keep
    }
    fn update(&mut self, _: Time, _: &ReadyChild) -> Resched {
        Resched::Keep
    }
    fn head(&self, _: Time) -> Option<Child> {
        None
    }
    fn before(&self, _: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        a.child < b.child
    }
}

#[test]
fn a_step_that_panics_cancels_every_root_of_the_run() {
    let make = |_| Box::new(Panicking) as _;
    let policy = PolicySpec::Custom { name: "panicking", make };
    let mut tree = Tree::new(1, SchedulerSpec::new("root", policy));
    let _ = tree.task(Tree::ROOT, TaskSpec::new("task", ms(5)));
    let engine = tree.build().expect("a valid tree");
    let arrival = Arrival { observed: at(1), nominal: at(1) };
    let load = Load::new(vec![arrival], vec![tenths(1)]);
    let executor = Executor::new(engine, 1, Fake::new(1), vec![load], Vec::new(), Vec::new());
    let mut state = RootState::new(executor.expect("an executor"), 1, 1, 8);

    let home = CpuSet::single(0);
    let roots = [0, 1].map(|cpu| Arc::new(RootShared::new(&[cpu], 1, false, &home)));
    for root in &roots {
        root.all_roots.set(roots.iter().map(Arc::downgrade).collect()).expect("set once");
    }
    let is_over = || roots.each_ref().map(|root| root.is_over.load(Ordering::Acquire));
    // A worker makes the step, so no dispatcher exits, whose guard also cancels its root.
    let context = StepContext { cpu: 0, worker: Some(TaskId(0)) };
    assert!(matches!(state.step(context, None, at(0), &roots[0]), Ok(true)));
    assert_eq!((is_over(), state.panic_message()), ([false; 2], None));
    assert!(matches!(state.step(context, None, at(1), &roots[0]), Ok(false)));
    assert_eq!(state.panic_message(), Some("child 0 is one too many"));
    assert_eq!(is_over(), [true; 2]);
}
