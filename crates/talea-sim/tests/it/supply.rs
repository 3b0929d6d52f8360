//! Supply of a server for every small pattern of demand: never above its contract, and never below
//! it while a client waits.
//!
//! The laws are stated independently of the engine and of the reference model.

use crate::bridge;
use crate::reference::server::{Kind, Spec};
use crate::reference::{self, Group, Interference, Node, Order, System, Task};
use crate::soak;
use talea_core::engine::Tree;

/// Served and waiting ticks of a run.
pub(crate) struct Supply {
    pub(crate) ran: Vec<bool>,
    pub(crate) pending: Vec<bool>,
    /// Whether no client was ready at the end of the tick, before new demand.
    emptied: Vec<bool>,
}

fn task(arrivals: Vec<u64>, costs: Vec<u64>, period: u64) -> Node {
    let task = Task {
        period,
        deadline: period,
        priority: 0,
        criticality: 0,
        enforced: false,
        capacity: 64,
        arrivals,
        costs,
        accelerator: None,
        suspends: None,
    };
    Node { parent: Some(0), kind: reference::Kind::Task(task) }
}

fn group(parent: Option<usize>, server: Option<Spec>) -> Node {
    let group = Group { order: Order::Edf, preemptive: true, own_priority: None, server };
    Node { parent, kind: reference::Kind::Group(group) }
}

/// Simulates a server alone on a CPU. `demand[t]` arrives at tick `t`.
fn alone(of: Spec, demand: &[u64], until: u64, change: impl Fn(&mut Tree)) -> Supply {
    let mut client = task(vec![], vec![], 5);
    client.parent = Some(1);
    if let reference::Kind::Task(task) = &mut client.kind {
        for (at, &cost) in demand.iter().enumerate().filter(|&(_, &cost)| cost > 0) {
            task.arrivals.push(at as u64);
            task.costs.push(cost);
        }
        if task.costs.is_empty() {
            task.costs.push(1);
        }
    }
    let nodes = vec![group(None, None), group(Some(0), Some(of)), client];
    let system = System { cpus: 1, bound: false, nodes, interference: Interference::default() };
    let outcome = bridge::simulate_with(&system, until, change);
    let ran: Vec<bool> = outcome.ticks.iter().map(|row| row[0].is_some()).collect();
    let mut left = 0;
    let (mut pending, mut emptied) = (vec![], vec![]);
    for (at, &ran) in ran.iter().enumerate() {
        left += demand.get(at).copied().unwrap_or(0);
        pending.push(left > 0);
        left -= u64::from(ran);
        emptied.push(left == 0);
    }
    Supply { ran, pending, emptied }
}

impl Supply {
    /// Returns the work done in `[from, to)`.
    pub(crate) fn within(&self, from: usize, to: usize) -> u64 {
        self.ran[from.min(self.ran.len())..to.min(self.ran.len())]
            .iter()
            .filter(|&&ran| ran)
            .count() as u64
    }

    /// Returns the largest work in any window of a length.
    pub(crate) fn most(&self, length: usize) -> u64 {
        (0..self.ran.len()).map(|from| self.within(from, from + length)).max().unwrap_or(0)
    }
}

/// Checks a law for every reservation with T up to 5 and every demand pattern. The demand at each
/// tick is 0, 1 or, at every other tick, many units.
fn exhaustive(
    kind: Kind,
    constrained: bool,
    law: impl FnMut(&Spec, &Supply) -> Result<(), String>,
) {
    exhaustive_with(kind, constrained, |_| {}, law);
}

/// Checks a law after a change to the tree, in which node 1 is the server.
pub(crate) fn exhaustive_with(
    kind: Kind,
    constrained: bool,
    change: impl Fn(&mut Tree),
    mut law: impl FnMut(&Spec, &Supply) -> Result<(), String>,
) {
    let ticks = soak::many(7, 12) as u32;
    for period in 2..=5 {
        for deadline in if constrained { 1..=period - 1 } else { period..=period } {
            for budget in 1..=deadline.min(period - 1) {
                for much in [1, 2, budget + 2] {
                    for pattern in 0..1_u64 << ticks {
                        let demand: Vec<u64> =
                            (0..ticks).map(|at| (pattern >> at & 1) * much).collect();
                        let of = Spec { kind, budget, period, deadline, offset: 0 };
                        let supply = alone(of, &demand, 30, &change);
                        if let Err(reason) = law(&of, &supply) {
                            panic!(
                                "{reason}: {of:?}, {demand:?}\nran     {:?}\npending {:?}",
                                supply.ran, supply.pending
                            );
                        }
                    }
                }
            }
        }
    }
}

pub(crate) fn at_most(supply: &Supply, length: u64, most: u64) -> Result<(), String> {
    let found = supply.most(length as usize);
    if found <= most { Ok(()) } else { Err(format!("{found} in {length}, not {most}")) }
}

#[test]
fn l5_a_polling_server_supplies_q_in_any_t_and_serves_clients_that_wait_at_the_poll() {
    exhaustive(Kind::Polling, false, |of, supply| {
        at_most(supply, of.period, of.budget)?;
        for poll in (0..supply.ran.len()).step_by(of.period as usize) {
            let mut open = of.budget;
            for at in poll..(poll + of.period as usize).min(supply.ran.len()) {
                open = if supply.pending[at] { open } else { 0 };
                if supply.ran[at] != (open > 0) {
                    return Err(format!("at {at}"));
                }
                open = if supply.emptied[at] { 0 } else { open.saturating_sub(1) };
            }
        }
        Ok(())
    });
}

#[test]
fn l5_a_deferrable_server_supplies_q_in_each_period_at_once_and_at_most_2q_in_slightly_more_than_t()
{
    let mut worst = 0;
    exhaustive(Kind::Deferrable, false, |of, supply| {
        for period in (0..supply.ran.len()).step_by(of.period as usize) {
            for at in period..(period + of.period as usize).min(supply.ran.len()) {
                let has_budget = supply.within(period, at) < of.budget;
                if supply.ran[at] != (supply.pending[at] && has_budget) {
                    return Err(format!("at {at}"));
                }
            }
        }
        worst = worst.max(supply.most(2 * of.budget as usize) / of.budget);
        at_most(supply, of.period + of.budget, 2 * of.budget)
    });
    assert_eq!(worst, 2, "late in one period and early in the next: 2Q back to back");
}

#[test]
fn l5_a_sporadic_server_supplies_q_in_any_t_and_clients_wait_only_if_all_of_it_is_used() {
    exhaustive(Kind::Sporadic, false, |of, supply| {
        at_most(supply, of.period, of.budget)?;
        for at in 0..supply.ran.len() {
            let out = supply.within((at + 1).saturating_sub(of.period as usize), at);
            if supply.ran[at] != (supply.pending[at] && out < of.budget) {
                return Err(format!("at {at}"));
            }
        }
        Ok(())
    });
}

/// Checks the upper and lower bounds of the supply of a hard CBS. A started budget holds at most
/// Q/D of the time to its deadline, and the next budget begins one period later.
fn hard_law(of: &Spec, supply: &Supply) -> Result<(), String> {
    let Spec { budget, period, deadline, .. } = *of;
    for periods in 1..=3 {
        let most = (periods + 1) * budget - (budget * budget).div_ceil(deadline);
        at_most(supply, periods * period, most)?;
    }
    // A client that waits for this long has received its whole demand.
    let patience = (2 * period - budget) as usize;
    for from in 0..supply.ran.len() - patience {
        if supply.pending[from..from + patience].iter().all(|&is| is)
            && supply.within(from, from + patience) < budget
        {
            return Err(format!("too little from {from}"));
        }
    }
    Ok(())
}

#[test]
fn l5_a_hard_cbs_keeps_its_bandwidth() {
    exhaustive(Kind::HardCbs, false, hard_law);
}

#[test]
fn l5_a_hard_cbs_with_a_short_deadline_keeps_its_bandwidth() {
    exhaustive(Kind::HardCbs, true, hard_law);
}

#[test]
fn l5_a_soft_cbs_alone_serves_every_client_at_once() {
    exhaustive(Kind::SoftCbs, false, |_, supply| {
        if supply.ran == supply.pending { Ok(()) } else { Err("a client waited".into()) }
    });
}

/// In a server of (Q, T, D), jobs of Q with a separation of at least T meet every deadline, even if
/// the budget ends with the job.
#[test]
fn l5_a_cbs_serves_a_sporadic_task_of_its_own_size_in_time() {
    let ticks = soak::many(7, 14) as u32;
    for kind in [Kind::HardCbs, Kind::SoftCbs, Kind::Sporadic] {
        for period in 2..=5_u64 {
            for deadline in 1..=period {
                for budget in 1..=deadline {
                    for pattern in 0..1_u64 << ticks {
                        let mut free = 0;
                        let demand: Vec<u64> = (0..u64::from(ticks))
                            .map(|at| {
                                if pattern >> at & 1 == 0 || at < free {
                                    return 0;
                                }
                                free = at + period;
                                budget
                            })
                            .collect();
                        let supply = alone(
                            Spec { kind, budget, period, deadline, offset: 0 },
                            &demand,
                            24,
                            |_| {},
                        );
                        for (at, _) in demand.iter().enumerate().filter(|&(_, &cost)| cost > 0) {
                            let had = supply.within(at, at + deadline as usize);
                            assert_eq!(
                                had, budget,
                                "{kind:?} {budget} {period} {deadline}: {demand:?} at {at}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Under EDF a server takes at most its bandwidth from others, whatever its clients do (the
/// isolation of Abeni and Buttazzo). A periodic task with the whole rest meets every deadline.
#[test]
fn l5_under_edf_a_periodic_task_with_the_bandwidth_left_by_servers_meets_its_deadlines() {
    let ticks = soak::many(7, 11) as u32;
    for kind in [Kind::Polling, Kind::Sporadic, Kind::HardCbs, Kind::SoftCbs] {
        for (budget, period, cost, every) in
            [(1, 2, 2, 4), (1, 3, 4, 6), (2, 3, 1, 3), (2, 4, 3, 6), (2, 5, 3, 5)]
        {
            for much in [1, 2, 5] {
                for pattern in 0..1_u64 << ticks {
                    let arrivals: Vec<u64> =
                        (0..u64::from(ticks)).filter(|at| pattern >> at & 1 == 1).collect();
                    let spec = Spec { kind, budget, period, deadline: period, offset: 0 };
                    let mut client = task(arrivals, vec![much], 5);
                    client.parent = Some(1);
                    let other = task((0..40).step_by(every as usize).collect(), vec![cost], every);
                    let nodes = vec![group(None, None), group(Some(0), Some(spec)), client, other];
                    let system = System {
                        cpus: 1,
                        bound: false,
                        nodes,
                        interference: Interference::default(),
                    };
                    let ends = bridge::simulate(&system, 40).ends;
                    for (job, &end) in ends[1].iter().enumerate() {
                        assert!(
                            end <= (job as u64 + 1) * every,
                            "{spec:?} {pattern:b} {much} {cost}/{every}: {ends:?}"
                        );
                    }
                    assert!(ends[1].len() as u64 >= 40 / every);
                }
            }
        }
    }
}
