//! The plain twin: takes the task on first, then looks with exact fractions whether all that was
//! promised still holds.
//!
//! It knows what the kernel priorities came out as, and recomputes everything else from the list of
//! specs.

use super::*;
use crate::exact::Depth;
use std::collections::BTreeMap;
use talea_analysis::{Demand, edf as edf_test, rm as rm_test};

/// Where an offer is: these machines have one domain at most.
pub(super) fn place_of(offer: &Offer) -> Place {
    offer.cpu.map_or(Place::Domain(0), Place::Cpu)
}

/// Where `plugin` should put the task, if anywhere.
pub(super) fn expected(
    rig: &Rig,
    plugin: u32,
    ask: &Ask<'_>,
    leaving: Option<Slot>,
) -> Option<Place> {
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
    // Wherever the sums say yes comes before wherever only the lists do.
    let found = [Depth::Bounds, Depth::Exact].into_iter().find_map(|depth| {
        places.iter().copied().find(|&cpu| admissible(rig, plugin, ask, leaving, cpu, depth))
    });
    found.map(|place| place.map_or(Place::Domain(0), Place::Cpu))
}

/// Whether the task with its least runtime can be taken on there.
pub(super) fn admissible(
    rig: &Rig,
    plugin: u32,
    ask: &Ask<'_>,
    leaving: Option<Slot>,
    cpu: Option<u32>,
    depth: Depth,
) -> bool {
    let mut after = rig.clone();
    let charge = ask.params.runtime.and_then(|q| ask.params.charge_of(q)).unwrap_or(Charge::ZERO);
    let offer =
        Offer { cpu, runtime: ask.params.runtime, charge, notes: Notes::default(), priority: 0 };
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
                    || (depth == Depth::Exact
                        && in_every_window(books.claims.iter().filter(here), cap))
            } else {
                let global =
                    books.claims.iter().filter(|claim| matches!(claim.place, Place::Domain(_)));
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
                test => books.passes(&after, plugin, cpu, (test, depth), false),
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
                    || books.passes(&after, rm, c, (options.test, depth), true)
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

/// A task with its own numbers, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Plain {
    work: u64,
    period: u64,
    deadline: u64,
    /// Jobs that may be there at the beginning beside the first.
    more: u64,
}

impl Plain {
    fn of(claim: &Claim) -> Plain {
        let more = u64::from(matches!(claim.place, Place::Domain(_)));
        Plain { work: claim.work, period: claim.period, deadline: claim.span, more }
    }
}

/// The textbook: the least w = C + Σ ⌈w/T⌉·C over all others is within D.
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

/// The textbook: at every deadline of two hyperperiods no more is due than is there; and Σ Q/T of
/// all within `cap`.
fn in_every_window<'a>(claims: impl Iterator<Item = &'a Claim> + Clone, cap: Charge) -> bool {
    let known = |claim: &&Claim| claim.work > 0;
    let rates: Vec<Demand> = claims
        .clone()
        .filter(known)
        .map(|claim| Demand { work: claim.work.into(), within: Span::from_ns(claim.period) })
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
    here && plugin != rm
        && (setups[plugin as usize].band.is_none() || bounds(plugin).1 >= bounds(rm).0)
}

/// All claims, lingering ones included, and what the specs are.
pub(super) struct Books {
    claims: Vec<Claim>,
    specs: Vec<(Slot, Claim)>,
}

impl Books {
    pub(super) fn of(rig: &Rig, leaving: Option<Slot>) -> Books {
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

    fn is_voided(&self, rig: &Rig, rm: u32, cpu: u32) -> bool {
        self.above(rig, rm, cpu).any(|claim| claim.voids)
    }

    /// Whether the tasks of `rm` on `cpu` that count pass its test, as far as one is to look.
    fn passes(&self, rig: &Rig, rm: u32, cpu: u32, test: (RmTest, Depth), promised: bool) -> bool {
        let (test, depth) = test;
        self.classes(rig, rm, cpu, promised).is_none_or(|classes| passes(test, &classes))
            || (test, depth) == (RmTest::Exact, Depth::Exact)
                && self.all_in_time(rig, rm, cpu, promised)
    }

    /// Whether each task of `rm` on `cpu` that counts is in time as the last of its level.
    pub(super) fn all_in_time(&self, rig: &Rig, rm: u32, cpu: u32, promised: bool) -> bool {
        let mut by_level: BTreeMap<u8, (Vec<Plain>, bool)> = BTreeMap::new();
        for (slot, claim) in &self.specs {
            if claim.plugin == rm && claim.place == Place::Cpu(cpu) {
                let (level, spoilt) = by_level.entry(rig.suite.placed(*slot).priority).or_default();
                level.extend((claim.work > 0).then(|| Plain::of(claim)));
                *spoilt |= claim.voids;
            }
        }
        let mut above: Vec<Plain> =
            self.above(rig, rm, cpu).filter(|claim| claim.work > 0).map(Plain::of).collect();
        for (level, spoilt) in by_level.into_values().rev() {
            if promised && spoilt {
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

    /// The classes of `rm` on `cpu`: all known ones, or those of the levels above the first that is
    /// spoilt.
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
                classes.iter_mut().find(|class| class.within == shortest).unwrap().work +=
                    doubled.work;
            }
        }
        Some(classes)
    }
}
