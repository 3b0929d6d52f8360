//! Reference model: it adds the task first, then checks with exact fractions whether all guarantees
//! still hold.
//!
//! The model uses the resulting kernel priorities, and recomputes everything else from the list of
//! specs.

use super::*;
use crate::exact_test::TestDepth;
use std::collections::BTreeMap;
use talea_analysis::{Demand, edf as edf_test, rm as rm_test};

/// Returns the place of an offer: these platforms have at most one domain.
pub(super) fn place_of(offer: &Offer) -> Place {
    offer.cpu.map_or(Place::Domain(0), Place::Cpu)
}

/// Returns the place where `plugin` must place the task, if any.
pub(super) fn expected(
    rig: &Rig,
    plugin: u32,
    ask: &PluginRequest<'_>,
    leaving: Option<SpecSlot>,
) -> Option<Place> {
    let mut places: Vec<Option<u32>> = match rig.plugin_set.plugins[plugin as usize].domain() {
        Some(_) => vec![None],
        None => rig.plugin_set.cpus_for(plugin, ask, None).iter().map(Some).collect(),
    };
    let model = LedgerModel::of(rig, leaving);
    places.sort_by_key(|cpu| {
        let Some(cpu) = *cpu else { return (false, Charge::ZERO, 0, 0, 0) };
        let preferred = !ask.preferred.is_empty() && !ask.preferred.contains(cpu);
        match rig.setup.plugins[plugin as usize].kind {
            PluginKind::Fp(_) | PluginKind::Rr(_) => (
                preferred,
                Charge::ZERO,
                model.specs(cpu, Some(plugin)),
                model.specs(cpu, None),
                cpu,
            ),
            _ => (preferred, model.load(cpu), model.specs(cpu, None), 0, cpu),
        }
    });
    // A place accepted by the sums precedes a place accepted only by the exact tests.
    let found = [TestDepth::Bounds, TestDepth::Exact].into_iter().find_map(|depth| {
        places.iter().copied().find(|&cpu| admissible(rig, plugin, ask, leaving, cpu, depth))
    });
    found.map(|place| place.map_or(Place::Domain(0), Place::Cpu))
}

/// Whether `plugin` can add the task with its minimum runtime on `cpu`, or on the domain if `cpu`
/// is `None`.
pub(super) fn admissible(
    rig: &Rig,
    plugin: u32,
    ask: &PluginRequest<'_>,
    leaving: Option<SpecSlot>,
    cpu: Option<u32>,
    depth: TestDepth,
) -> bool {
    let mut after = rig.clone();
    let charge = ask.params.runtime.and_then(|q| ask.params.charge_of(q)).unwrap_or(Charge::ZERO);
    let offer = Offer {
        cpu,
        runtime: ask.params.runtime,
        charge,
        notes: Notes::default(),
        priority: 0,
        terms: None,
    };
    match leaving {
        Some(slot) => after.plugin_set.replace(slot, plugin, ask, &offer, None),
        None => after.plugin_set.admit(plugin, SpecSlot(after.next), ask, &offer),
    }
    let model = LedgerModel::of(&after, None);
    let here = |claim: &&Claim| cpu.is_none_or(|cpu| claim.place == Place::Cpu(cpu));
    let own = match &rig.setup.plugins[plugin as usize].kind {
        PluginKind::Edf(options) => {
            let share = rig.platform.deadline_share.min(Charge::ONE);
            let cap = options.threshold.map_or(share, |threshold| threshold.min(share));
            if cpu.is_some() {
                edf_test::partitioned(&demands(model.claims.iter().filter(here)), cap)
                    || (depth == TestDepth::Exact
                        && in_every_window(model.claims.iter().filter(here), cap))
            } else {
                let global =
                    model.claims.iter().filter(|claim| matches!(claim.place, Place::Domain(_)));
                let count = rig.platform.cpus.len();
                edf_test::global(&demands(global), count, cap)
                    && edf_test::partitioned(&demands(model.claims.iter()), cap.times(count))
            }
        }
        PluginKind::Rm(options) => {
            let cpu = cpu.unwrap();
            match options.test {
                _ if ask.params.runtime.is_none() => true,
                RmTest::Necessary => {
                    edf_test::partitioned(&demands(model.claims.iter().filter(here)), Charge::ONE)
                        && (rig.plugin_set.ledger.domain_of(cpu).is_none()
                            || edf_test::partitioned(
                                &demands(model.claims.iter()),
                                Charge::ONE.times(rig.platform.cpus.len()),
                            ))
                }
                test => model.passes(&after, plugin, cpu, (test, depth), false),
            }
        }
        _ => true,
    };
    own && (0..rig.plugin_set.len() as u32).all(|rm| {
        let PluginKind::Rm(options) = &rig.setup.plugins[rm as usize].kind else { return true };
        let cpus = rig.setup.plugins[rm as usize].cpus;
        rm == plugin
            || options.test == RmTest::Necessary
            || cpus.iter().filter(|c| cpu.is_none_or(|cpu| *c == cpu)).all(|c| {
                !outranks(rig, plugin, rm, c)
                    || model.is_unproved_above(rig, rm, c)
                    || model.passes(&after, rm, c, (options.test, depth), true)
            })
    })
}

fn passes(test: RmTest, classes: &[Demand]) -> bool {
    match test {
        RmTest::Necessary => rm_test::necessary(classes),
        RmTest::LiuLayland => rm_test::liu_layland(classes),
        RmTest::Hyperbolic | RmTest::Exact => rm_test::hyperbolic(classes),
    }
}

/// Task with its own parameters, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Plain {
    work: u64,
    period: u64,
    deadline: u64,
    /// Number of jobs pending at the beginning beside the first.
    more: u64,
}

impl Plain {
    fn of(claim: &Claim) -> Plain {
        let more = u64::from(matches!(claim.place, Place::Domain(_)));
        Plain { work: claim.work_ns, period: claim.period_ns, deadline: claim.span_ns, more }
    }
}

/// Textbook test: the least w = C + Σ ⌈w/T⌉·C over all others is within D.
fn in_time(task: &Plain, others: &[Plain]) -> bool {
    let mut window = task.work;
    while window <= task.deadline {
        let jobs = |other: &Plain| window.div_ceil(other.period) + other.more;
        let next = task.work + others.iter().map(|other| jobs(other) * other.work).sum::<u64>();
        if next == window {
            return true;
        }
        window = next;
    }
    false
}

/// Textbook test: at every deadline of two hyperperiods the demand is at most the supply; and Σ Q/T
/// of all is within `cap`.
fn in_every_window<'a>(claims: impl Iterator<Item = &'a Claim> + Clone, cap: Charge) -> bool {
    let known = |claim: &&Claim| claim.work_ns > 0;
    let rates: Vec<Demand> = claims
        .clone()
        .filter(known)
        .map(|claim| Demand { work: claim.work_ns.into(), within: Span::from_ns(claim.period_ns) })
        .collect();
    let tasks: Vec<Plain> =
        claims.filter(known).filter(|claim| claim.deadline).map(Plain::of).collect();
    let common = |a: u64, b: u64| (1..=b).map(|k| a * k).find(|all| all.is_multiple_of(b)).unwrap();
    let end = 2 * tasks.iter().fold(1, |all, task| common(all, task.period));
    let due = |at: u64| {
        let jobs =
            |task: &Plain| at.checked_sub(task.deadline).map_or(0, |rest| rest / task.period + 1);
        tasks.iter().map(|task| u128::from(jobs(task) * task.work)).sum::<u128>()
    };
    edf_test::partitioned(&rates, cap)
        && tasks.iter().all(|task| {
            let deadlines =
                (0..).map(|k| task.deadline + k * task.period).take_while(|&at| at <= end);
            deadlines.into_iter().all(|at| due(at) << 64 <= u128::from(at) * cap.bits())
        })
}

fn demands<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<Demand> {
    claims.map(Claim::demand).collect()
}

/// Whether `plugin` may outrank the tasks of `rm` on `cpu`.
pub(super) fn outranks(rig: &Rig, plugin: u32, rm: u32, cpu: u32) -> bool {
    let setups = &rig.setup.plugins;
    let bounds = |index: u32| {
        let Band { low, high } = setups[index as usize].band.unwrap();
        let gives_way = !matches!(setups[index as usize].kind, PluginKind::Foreign(_))
            && low != high
            && setups.iter().enumerate().any(|(i, other)| {
                let met = |band: Band| band.low == high && band.high.0 > high.0;
                i as u32 != index && other.cpus.contains(cpu) && other.band.is_some_and(met)
            });
        (low.0, high.0 - u8::from(gives_way))
    };
    let here = setups[plugin as usize].cpus.contains(cpu);
    here && plugin != rm
        && (setups[plugin as usize].band.is_none() || bounds(plugin).1 >= bounds(rm).0)
}

/// All claims, including zero-lag holds, and the specs.
pub(super) struct LedgerModel {
    claims: Vec<Claim>,
    specs: Vec<(SpecSlot, Claim)>,
}

impl LedgerModel {
    pub(super) fn of(rig: &Rig, leaving: Option<SpecSlot>) -> LedgerModel {
        let slots = rig.slots().into_iter().filter(|slot| Some(*slot) != leaving);
        let specs: Vec<_> = slots.map(|slot| (slot, rig.plugin_set.at(slot).claim)).collect();
        let zero_lag_holds =
            rig.plugin_set.ledger.all_zero_lag_holds().into_iter().map(|(_, claim)| claim);
        LedgerModel {
            claims: specs.iter().map(|(_, claim)| *claim).chain(zero_lag_holds).collect(),
            specs,
        }
    }

    fn load(&self, cpu: u32) -> Charge {
        let sum = |place: &dyn Fn(Place) -> bool| {
            let here = self.claims.iter().filter(|claim| place(claim.place));
            here.fold(Charge::ZERO, |sum, claim| sum.saturating_add(claim.charge))
        };
        // A domain's part is the same for all CPUs, because there is at most one domain.
        sum(&|place| place == Place::Cpu(cpu))
    }

    fn specs(&self, cpu: u32, plugin: Option<u32>) -> u32 {
        let here = |claim: &Claim| {
            claim.place == Place::Cpu(cpu) && plugin.is_none_or(|p| p == claim.plugin)
        };
        self.specs.iter().filter(|(_, claim)| here(claim)).count() as u32
    }

    fn above(&self, rig: &Rig, rm: u32, cpu: u32) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(move |claim| {
            let here = matches!(claim.place, Place::Domain(_)) || claim.place == Place::Cpu(cpu);
            here && outranks(rig, claim.plugin, rm, cpu)
        })
    }

    fn is_unproved_above(&self, rig: &Rig, rm: u32, cpu: u32) -> bool {
        self.above(rig, rm, cpu).any(|claim| claim.unproved)
    }

    /// Whether the relevant tasks of `rm` on `cpu` pass its test, up to the given depth.
    fn passes(
        &self,
        rig: &Rig,
        rm: u32,
        cpu: u32,
        test: (RmTest, TestDepth),
        promised: bool,
    ) -> bool {
        let (test, depth) = test;
        self.classes(rig, rm, cpu, promised).is_none_or(|classes| passes(test, &classes))
            || (test, depth) == (RmTest::Exact, TestDepth::Exact)
                && self.all_in_time(rig, rm, cpu, promised)
    }

    /// Whether each relevant task of `rm` on `cpu` meets its deadline as the last of its level.
    pub(super) fn all_in_time(&self, rig: &Rig, rm: u32, cpu: u32, promised: bool) -> bool {
        let mut by_level: BTreeMap<u8, (Vec<Plain>, bool)> = BTreeMap::new();
        for (slot, claim) in &self.specs {
            if claim.plugin == rm && claim.place == Place::Cpu(cpu) {
                let (level, proof_notes) =
                    by_level.entry(rig.plugin_set.placement(*slot).priority).or_default();
                level.extend((claim.work_ns > 0).then(|| Plain::of(claim)));
                *proof_notes |= claim.unproved;
            }
        }
        let mut above: Vec<Plain> =
            self.above(rig, rm, cpu).filter(|claim| claim.work_ns > 0).map(Plain::of).collect();
        for (level, proof_notes) in by_level.into_values().rev() {
            if promised && proof_notes {
                return true;
            }
            for (last, task) in level.iter().enumerate() {
                let same =
                    level.iter().enumerate().filter(|&(at, _)| at != last).map(|(_, task)| *task);
                if !in_time(task, &above.iter().copied().chain(same).collect::<Vec<_>>()) {
                    return false;
                }
            }
            above.extend(level);
        }
        true
    }

    /// Returns the classes of `rm` on `cpu`: all known ones, or those of the levels above the first
    /// unproved one. Returns `None` if they have no work.
    fn classes(&self, rig: &Rig, rm: u32, cpu: u32, promised: bool) -> Option<Vec<Demand>> {
        let mut by_level: BTreeMap<u8, (Vec<Demand>, bool)> = BTreeMap::new();
        for (slot, claim) in &self.specs {
            if claim.plugin == rm && claim.place == Place::Cpu(cpu) {
                let (level, proof_notes) =
                    by_level.entry(rig.plugin_set.placement(*slot).priority).or_default();
                let span = rig.plugin_set.at(*slot).params.density_span().unwrap();
                level.push(Demand { work: claim.work_ns.into(), within: span });
                *proof_notes |= claim.unproved;
            }
        }
        let levels =
            by_level.into_values().rev().take_while(|(_, proof_notes)| !(promised && *proof_notes));
        let levels: Vec<Vec<Demand>> = levels.map(|(level, _)| level).collect();
        if levels.iter().flatten().all(|demand| demand.work == 0) {
            return None;
        }
        let (global, pinned): (Vec<&Claim>, Vec<&Claim>) =
            self.above(rig, rm, cpu).partition(|claim| matches!(claim.place, Place::Domain(_)));
        let shortest = rm_test::classes(&levels, &[])[0].within;
        let mut classes = rm_test::classes(&levels, &demands(pinned.into_iter()));
        let global = rm_test::merged(demands(global.into_iter()));
        for demand in global {
            let doubled = Demand { work: demand.work * 2, ..demand };
            if demand.within < shortest {
                classes.push(doubled);
            } else {
                classes.iter_mut().find(|class| class.within == shortest).unwrap().work +=
                    doubled.work;
            }
        }
        Some(classes)
    }
}
