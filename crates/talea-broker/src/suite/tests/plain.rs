//! The plain twin: takes the task on first, then looks with exact fractions whether all that was promised still holds.
//!
//! It knows what the kernel priorities came out as, and recomputes everything else from the list of specs.

use super::*;
use std::collections::BTreeMap;
use talea_analysis::{Demand, edf as edf_test, rm as rm_test};

/// Where an offer is: these machines have one domain at most.
pub(super) fn place_of(offer: &Offer) -> Place {
    offer.cpu.map_or(Place::Domain(0), Place::Cpu)
}

/// Where `plugin` should put the task, if anywhere.
pub(super) fn expected(rig: &Rig, plugin: u32, ask: &Ask<'_>, leaving: Option<Slot>) -> Option<Place> {
    let mut places: Vec<Option<u32>> = match rig.suite.plugins[plugin as usize].domain() {
        Some(_) => vec![None],
        None => rig.suite.cpus_for(plugin, ask).iter().map(Some).collect(),
    };
    let books = Books::of(rig, leaving);
    places.sort_by_key(|cpu| {
        let Some(cpu) = *cpu else { return (false, Charge::ZERO, 0, 0, 0) };
        let wished = !ask.wished.is_empty() && !ask.wished.contains(cpu);
        match rig.setup.plugins[plugin as usize].kind {
            PluginKind::Fp(_) | PluginKind::Rr(_) => {
                (wished, Charge::ZERO, books.specs(cpu, Some(plugin)), books.specs(cpu, None), cpu)
            }
            _ => (wished, books.load(cpu), books.specs(cpu, None), 0, cpu),
        }
    });
    let place = places.into_iter().find(|&cpu| admissible(rig, plugin, ask, leaving, cpu))?;
    Some(place.map_or(Place::Domain(0), Place::Cpu))
}

/// Whether the task with its least runtime can be taken on there.
pub(super) fn admissible(
    rig: &Rig,
    plugin: u32,
    ask: &Ask<'_>,
    leaving: Option<Slot>,
    cpu: Option<u32>,
) -> bool {
    let mut after = rig.clone();
    let charge = ask.params.runtime.and_then(|q| ask.params.charge_of(q)).unwrap_or(Charge::ZERO);
    let offer = Offer { cpu, runtime: ask.params.runtime, charge, notes: Notes::default(), priority: 0 };
    match leaving {
        Some(slot) => after.suite.replace(slot, plugin, ask, &offer, None),
        None => after.suite.admit(plugin, Slot(after.next), ask, &offer),
    }
    let books = Books::of(&after, None);
    let here = |claim: &&Claim| cpu.is_none_or(|cpu| claim.place == Place::Cpu(cpu));
    let own = match &rig.setup.plugins[plugin as usize].kind {
        PluginKind::Edf(options) => {
            let share = rig.machine.deadline_share.min(Charge::ONE);
            let cap = options.threshold.map_or(share, |threshold| threshold.min(share));
            if cpu.is_some() {
                edf_test::partitioned(&demands(books.claims.iter().filter(here)), cap)
            } else {
                let global = books.claims.iter().filter(|claim| matches!(claim.place, Place::Domain(_)));
                let count = rig.machine.cpus.len();
                edf_test::global(&demands(global), count, cap)
                    && edf_test::partitioned(&demands(books.claims.iter()), cap.times(count))
            }
        }
        PluginKind::Rm(options) => {
            let cpu = cpu.unwrap();
            match options.test {
                _ if ask.params.runtime.is_none() => true,
                RmTest::Necessary => {
                    edf_test::partitioned(&demands(books.claims.iter().filter(here)), Charge::ONE)
                        && (rig.suite.ledger.domain_of(cpu).is_none()
                            || edf_test::partitioned(
                                &demands(books.claims.iter()),
                                Charge::ONE.times(rig.machine.cpus.len()),
                            ))
                }
                test => {
                    books.classes(&after, plugin, cpu, false).is_none_or(|classes| passes(test, &classes))
                }
            }
        }
        _ => true,
    };
    own && (0..rig.suite.len() as u32).all(|rm| {
        let PluginKind::Rm(options) = &rig.setup.plugins[rm as usize].kind else { return true };
        let cpus = rig.setup.plugins[rm as usize].cpus;
        rm == plugin
            || options.test == RmTest::Necessary
            || cpus.iter().filter(|c| cpu.is_none_or(|cpu| *c == cpu)).all(|c| {
                !outranks(rig, plugin, rm, c)
                    || books.is_voided(rig, rm, c)
                    || books.classes(&after, rm, c, true).is_none_or(|classes| passes(options.test, &classes))
            })
    })
}

fn passes(test: RmTest, classes: &[Demand]) -> bool {
    match test {
        RmTest::Necessary => rm_test::necessary(classes),
        RmTest::LiuLayland => rm_test::liu_layland(classes),
        RmTest::Hyperbolic => rm_test::hyperbolic(classes),
    }
}

fn demands<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<Demand> {
    claims.map(Claim::demand).collect()
}

/// Whether `plugin` may run above the tasks of `rm` on `cpu`.
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
    here && plugin != rm && (setups[plugin as usize].band.is_none() || bounds(plugin).1 >= bounds(rm).0)
}

/// All claims, lingering ones included, and what the specs are.
struct Books {
    claims: Vec<Claim>,
    specs: Vec<(Slot, Claim)>,
}

impl Books {
    fn of(rig: &Rig, leaving: Option<Slot>) -> Books {
        let slots = rig.slots().into_iter().filter(|slot| Some(*slot) != leaving);
        let specs: Vec<_> = slots.map(|slot| (slot, rig.suite.at(slot).claim)).collect();
        let lingering = rig.suite.ledger.lingerers().into_iter().map(|(_, claim)| claim);
        Books { claims: specs.iter().map(|(_, claim)| *claim).chain(lingering).collect(), specs }
    }

    fn load(&self, cpu: u32) -> Charge {
        let sum = |place: &dyn Fn(Place) -> bool| {
            let here = self.claims.iter().filter(|claim| place(claim.place));
            here.fold(Charge::ZERO, |sum, claim| sum.saturating_add(claim.charge))
        };
        // A domain's part is the same for all CPUs, as there is one domain at most.
        sum(&|place| place == Place::Cpu(cpu))
    }

    fn specs(&self, cpu: u32, plugin: Option<u32>) -> u32 {
        let here = |claim: &Claim| claim.place == Place::Cpu(cpu) && plugin.is_none_or(|p| p == claim.plugin);
        self.specs.iter().filter(|(_, claim)| here(claim)).count() as u32
    }

    fn above(&self, rig: &Rig, rm: u32, cpu: u32) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(move |claim| {
            let here = matches!(claim.place, Place::Domain(_)) || claim.place == Place::Cpu(cpu);
            here && outranks(rig, claim.plugin, rm, cpu)
        })
    }

    fn is_voided(&self, rig: &Rig, rm: u32, cpu: u32) -> bool {
        self.above(rig, rm, cpu).any(|claim| claim.voids)
    }

    /// The classes of `rm` on `cpu`: all known ones, or those of the levels above the first that is spoilt.
    fn classes(&self, rig: &Rig, rm: u32, cpu: u32, promised: bool) -> Option<Vec<Demand>> {
        let mut by_level: BTreeMap<u8, (Vec<Demand>, bool)> = BTreeMap::new();
        for (slot, claim) in &self.specs {
            if claim.plugin == rm && claim.place == Place::Cpu(cpu) {
                let (level, spoilt) = by_level.entry(rig.suite.placed(*slot).priority).or_default();
                let span = rig.suite.at(*slot).params.density_span().unwrap();
                level.push(Demand { work: claim.work.into(), within: span });
                *spoilt |= claim.voids;
            }
        }
        let levels = by_level.into_values().rev().take_while(|(_, spoilt)| !(promised && *spoilt));
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
                classes.iter_mut().find(|class| class.within == shortest).unwrap().work += doubled.work;
            }
        }
        Some(classes)
    }
}
