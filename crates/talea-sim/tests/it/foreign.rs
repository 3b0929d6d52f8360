//! External policies and servers meet the requirements of the built-in ones.
//!
//! An external policy agrees with the reference model (Y21). An external server keeps its contract
//! for every small demand (L19).

use crate::agrees::{Family, Generator, PLAIN};
use crate::outside::SAVER;
use crate::reference::server::Kind as Model;
use crate::supply::{Supply, at_most, exhaustive_with};
use crate::{bridge, soak};
use talea_core::Time;
use talea_core::engine::{NodeId, NodeSpec, Tree};
use talea_core::sched::{Child, Policy, PolicySpec, ReadyChild, Resched};

/// EDF as an external author might write it, with a list.
#[derive(Debug)]
struct ListEdf(Vec<(Time, Child)>);

impl Policy for ListEdf {
    fn ready(&mut self, _: Time, entry: &ReadyChild) -> Resched {
        self.0.push((entry.criteria.deadline, entry.child));
        Resched::Pick
    }
    fn finished(&mut self, _: Time, child: Child) -> Resched {
        self.0.retain(|&(_, other)| other != child);
        Resched::Pick
    }
    fn update(&mut self, now: Time, entry: &ReadyChild) -> Resched {
        let _ = self.finished(now, entry.child);
        self.ready(now, entry)
    }
    fn head(&self, _: Time) -> Option<Child> {
        self.0.iter().min().map(|&(_, child)| child)
    }
    fn before(&self, _: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        (a.criteria.deadline, a.child) < (b.criteria.deadline, b.child)
    }
}

const LIST_EDF: PolicySpec = PolicySpec::Custom {
    name: "plainly",
    make: |children| Box::new(ListEdf(Vec::with_capacity(children))),
};

/// Replaces every EDF policy of a tree by [`ListEdf`].
fn replace(tree: &mut Tree) {
    for id in tree.nodes().map(|(id, _)| id).collect::<Vec<_>>() {
        if let Some(NodeSpec::Scheduler(spec)) = tree.get_mut(id).map(|node| &mut node.spec)
            && matches!(spec.policy, PolicySpec::Edf)
        {
            spec.policy = LIST_EDF;
        }
    }
}

#[test]
fn y21_an_external_policy_agrees_with_the_reference_model_wherever_the_built_in_one_does() {
    let families = [
        Family { ..PLAIN },
        Family { preemptive: false, ..PLAIN },
        Family { at_root: false, ..PLAIN },
        Family { cpus: 2, ..PLAIN },
        Family { cpus: 3, bound: true, ..PLAIN },
        Family { cpus: 2, preemptive: false, ..PLAIN },
        Family { server: Some(Model::HardCbs), ..PLAIN },
    ];
    for family in families {
        for case in 0..soak::many(200, 20_000) {
            let generator = Generator::new(family, soak::seed(case));
            let until = generator.horizon;
            let system = generator.system();
            let engine = bridge::simulate_with(&system, until, replace);
            assert_eq!(system.run(until), engine, "{family:?}, case {case}: {system:#?}");
        }
    }
}

/// Replaces the server of the harness by the external server.
fn saver(tree: &mut Tree) {
    if let Some(NodeSpec::Scheduler(spec)) = tree.get_mut(NodeId(1)).map(|node| &mut node.spec)
        && let Some(reservation) = &mut spec.reservation
    {
        reservation.kind = SAVER;
    }
}

#[test]
fn l19_an_external_server_supplies_its_contract_for_every_small_demand() {
    let mut worst = 0;
    exhaustive_with(Model::Deferrable, false, saver, |of, supply: &Supply| {
        let mut left = 0;
        for at in 0..supply.ran.len() {
            if (at as u64).is_multiple_of(of.period) {
                left = of.budget + left.min(of.budget);
            }
            if supply.ran[at] != (supply.pending[at] && left > 0) {
                return Err(format!("at {at}"));
            }
            left -= u64::from(supply.ran[at]);
        }
        for periods in 1..=3 {
            at_most(supply, periods * of.period, (periods + 2) * of.budget)?;
        }
        worst = worst.max(supply.most(of.period as usize) / of.budget);
        Ok(())
    });
    assert_eq!(worst, 3, "a bonus late in one period, and a whole budget early in the next");
}
