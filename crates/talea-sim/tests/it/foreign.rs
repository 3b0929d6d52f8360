//! What comes from outside is held to what the built-in ones are: a policy agrees with the plain
//! twin (Y21), a server keeps to its contract for every small demand (L19).

use crate::agrees::{About, Maker, PLAIN};
use crate::naive::server::Kind as Twin;
use crate::outside::SAVER;
use crate::supply::{Supply, at_most, exhaustive_with};
use crate::{bridge, soak};
use talea_core::Time;
use talea_core::machine::{Body, NodeId, Tree};
use talea_core::sched::{Child, Entry, Policy, Resched, Scheduler};

/// EDF as somebody outside would write it: a list.
#[derive(Debug)]
struct Plainly(Vec<(Time, Child)>);

impl Scheduler for Plainly {
    fn ready(&mut self, _: Time, who: &Entry) -> Resched {
        self.0.push((who.criteria.deadline, who.child));
        Resched::Pick
    }
    fn finished(&mut self, _: Time, who: Child) -> Resched {
        self.0.retain(|&(_, child)| child != who);
        Resched::Pick
    }
    fn update(&mut self, now: Time, who: &Entry) -> Resched {
        let _ = self.finished(now, who.child);
        self.ready(now, who)
    }
    fn head(&self, _: Time) -> Option<Child> {
        self.0.iter().min().map(|&(_, child)| child)
    }
    fn before(&self, _: Time, a: &Entry, b: &Entry) -> bool {
        (a.criteria.deadline, a.child) < (b.criteria.deadline, b.child)
    }
}

const PLAINLY: Policy = Policy::Custom {
    name: "plainly",
    make: |children| Box::new(Plainly(Vec::with_capacity(children))),
};

/// Every EDF of a tree is the one from outside.
fn replace(tree: &mut Tree) {
    for id in tree.nodes().map(|(id, _)| id).collect::<Vec<_>>() {
        if let Some(Body::Scheduler(spec)) = tree.get_mut(id).map(|node| &mut node.body)
            && matches!(spec.policy, Policy::Edf)
        {
            spec.policy = PLAINLY;
        }
    }
}

#[test]
fn y21_a_policy_from_outside_agrees_with_the_plain_twin_wherever_the_built_in_one_does() {
    let families = [
        About { ..PLAIN },
        About { preemptive: false, ..PLAIN },
        About { at_root: false, ..PLAIN },
        About { cpus: 2, ..PLAIN },
        About { cpus: 3, bound: true, ..PLAIN },
        About { cpus: 2, preemptive: false, ..PLAIN },
        About { server: Some(Twin::HardCbs), ..PLAIN },
    ];
    for about in families {
        for case in 0..soak::many(200, 20_000) {
            let maker = Maker::new(about, soak::seed(case));
            let until = maker.horizon;
            let system = maker.system();
            let machine = bridge::simulate_with(&system, until, replace);
            assert_eq!(system.run(until), machine, "{about:?}, case {case}: {system:#?}");
        }
    }
}

/// The server of the harness is the one from outside.
fn saver(tree: &mut Tree) {
    if let Some(Body::Scheduler(spec)) = tree.get_mut(NodeId(1)).map(|node| &mut node.body)
        && let Some(reservation) = &mut spec.reservation
    {
        reservation.kind = SAVER;
    }
}

#[test]
fn l19_a_server_from_outside_gives_what_it_says_for_every_small_demand() {
    let mut worst = 0;
    exhaustive_with(Twin::Deferrable, false, saver, |of, supply: &Supply| {
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
