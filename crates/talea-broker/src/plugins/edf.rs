//! Earliest deadline first on `SCHED_DEADLINE`. ReTiF (JSA 2021) section 5.1; ISORC 2020, Eq. 2.
//!
//! Period and runtime are mandatory, the deadline defaults to the period. The load is Q / min(T, D)
//! (Eq. 1), summed over *all* plugins' charges on a CPU, and a task is accepted where that stays
//! within U^thr (Eq. 3). Where it does so on no CPU that is tried, but Σ Q/T does, the demand test
//! decides (`demand.rs`), on no more than [`TRIES_MAX`](crate::exact::TRIES_MAX) of them. A desired
//! runtime is granted as far as U^thr, the rules' bounds and what `rm` plugins below have promised
//! allow: Q^a = max(Q, min(Q^d, free · min(T, D))), and the books count Q^a (facts W8).
//!
//! *U^thr* is by default the largest share that the kernel itself admits (on current kernels 95 %
//! less the fair server's 5 %), and never more: what is accepted here is then never refused at
//! attach. The kernel counts Q / T, which is at most our Q / min(T, D).
//!
//! *Confinement* (design, section 9). SCHED_DEADLINE runs a thread anywhere in its root domain, so
//! a task stays on one CPU only if that CPU is a root domain of its own: a cpuset partition. Where
//! the plugin's CPUs can't be partitioned but are exactly a root domain, the domain is charged as a
//! whole under the global test of Goossens, Funk and Baruah, U_sum ≤ m·U^thr − (m−1)·U_max.
//! Elsewhere the plugin declines everything.
//!
//! *Ignored tests.* A task that may ignore the test is accepted with Q, unless the kernel's own sum
//! would be over its share: that it would refuse at attach, so the answer is a refusal now, with
//! the kernel's share as the limit.
//!
//! *Limits of the kernel* are told at create (checklist R12): Q ≥ 1024 ns, D ≤ T, T within the
//! machine's bounds.

mod demand;

use super::fp::{coming, would_break};
use super::place::worst_fit;
use super::{Core, Entry, World, claim, desired_notes, missing, no, no_cpu};
use crate::exact::{Broken, Depth, Open, keep_telling};
use crate::input::Machine;
use crate::ledger::{Claim, Place};
use crate::plugin::{Ask, Offer, Verdict};
use talea_core::mutate;
use talea_core::setup::{Confine, EdfOptions};
use talea_core::{Charge, CpuSet, Params, Policy, Span, Work};
use talea_proto::message::{Mechanism, Notes};
use talea_proto::refusal::Reason;
use talea_proto::{Field, No};

/// Linux takes no shorter runtime, in nanoseconds.
const RUNTIME_MIN: u64 = 1024;

/// How the plugin meets the kernel's root domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// One CPU a task, on these.
    Pinned(CpuSet),
    /// A whole root domain.
    Global(CpuSet),
    /// Neither can be had here.
    Neither,
}

impl Confinement {
    /// What this machine offers a plugin on `cpus`.
    pub(crate) fn of(confine: Confine, cpus: &CpuSet, machine: &Machine) -> Confinement {
        // A domain of a single CPU confines as it is.
        let single = machine.root_domains.iter().filter(|domain| domain.len() == 1);
        let single = single.fold(CpuSet::EMPTY, |all, domain| all.union(domain));
        let own = match confine {
            Confine::Auto => machine.partitionable.union(&single),
            Confine::Partition => {
                machine.partitionable.union(&machine.partitionable_opt_in).union(&single)
            }
            Confine::Global => CpuSet::EMPTY,
        };
        let own = own.intersection(cpus);
        let whole = mutate!(
            "plugin-edf-confinement",
            confine != Confine::Partition && machine.root_domains.contains(cpus),
            confine != Confine::Partition
        );
        if own == *cpus {
            Confinement::Pinned(own)
        } else if whole {
            Confinement::Global(*cpus)
        } else if own.is_empty() {
            Confinement::Neither
        } else {
            Confinement::Pinned(own)
        }
    }
}

/// The plugin.
#[derive(Clone, Debug)]
pub(crate) struct Edf {
    /// What all plugins are made of.
    pub(crate) core: Core,
    confinement: Confinement,
    /// The domain in the ledger, when global.
    domain: Option<u32>,
    /// U^thr.
    threshold: Charge,
    /// What the kernel admits on each CPU.
    share: Charge,
    period: (Span, Span),
    grain: Span,
}

impl Edf {
    /// On this machine; `domain` is the ledger's index of the plugin's CPUs when it is global.
    pub(crate) fn new(
        core: Core,
        options: &EdfOptions,
        confinement: Confinement,
        domain: Option<u32>,
        machine: &Machine,
    ) -> Edf {
        let share = machine.deadline_share;
        let most = share.min(Charge::ONE);
        Edf {
            core,
            confinement,
            domain,
            threshold: mutate!(
                "plugin-edf-threshold",
                options.threshold.map_or(most, |threshold| threshold.min(most)),
                most
            ),
            share,
            period: machine.deadline_period,
            grain: machine.grain,
        }
    }

    /// Where its global claims lie.
    pub(crate) fn domain(&self) -> Option<u32> {
        self.domain
    }

    /// How the kernel enforces it, and how coarsely.
    pub(crate) fn mechanism(&self) -> (Mechanism, Span) {
        let mechanism = match self.confinement {
            Confinement::Global(_) => Mechanism::DeadlineGlobal,
            _ => Mechanism::DeadlinePinned,
        };
        (mechanism, self.grain)
    }

    /// Can it serve this, where, at what cost?
    pub(crate) fn ask(&self, world: &World<'_>, ask: &Ask<'_>) -> Verdict {
        if ask.params.period.is_none() {
            return missing(Field::Period);
        }
        if ask.params.runtime.is_none() {
            return missing(Field::Runtime);
        }
        let said = match self.confinement {
            Confinement::Neither => Err(no(Reason::Unsupported, Field::Cpus, 0, 0, 0)),
            _ => self.within_the_kernel_s_limits(ask.params),
        };
        let said = said.and_then(|()| match self.confinement {
            Confinement::Pinned(own) => self.ask_pinned(world, ask, &own),
            Confinement::Global(_) | Confinement::Neither => self.ask_global(world, ask),
        });
        match said {
            Ok(offer) => Verdict::Ok(offer),
            Err(no) => Verdict::No(no),
        }
    }

    fn within_the_kernel_s_limits(&self, params: &Params) -> Result<(), No> {
        let (Some(period), Some(runtime)) = (params.period, params.runtime) else { return Ok(()) };
        let (low, high) = self.period;
        if period < low || period > high {
            let nearest = if period < low { low } else { high }.as_ns();
            return Err(no(Reason::OutOfRange, Field::Period, period.as_ns(), nearest, nearest));
        }
        if runtime.as_ns() < RUNTIME_MIN {
            return Err(no(
                Reason::OutOfRange,
                Field::Runtime,
                runtime.as_ns(),
                RUNTIME_MIN,
                RUNTIME_MIN,
            ));
        }
        match params.deadline {
            Some(deadline) if deadline > period => {
                let period = period.as_ns();
                Err(no(Reason::Contradiction, Field::Deadline, deadline.as_ns(), period, period))
            }
            _ => Ok(()),
        }
    }

    fn ask_pinned(&self, world: &World<'_>, ask: &Ask<'_>, own: &CpuSet) -> Result<Offer, No> {
        let cpus = self.core.cpus_for(ask).intersection(own);
        if cpus.is_empty() {
            return Err(no_cpu(ask, own));
        }
        // A living deadline thread can't leave its root domain (EBUSY), and one that sleeps
        // elsewhere is not admitted: a thread stays where it is. Who wants it elsewhere detaches it
        // first.
        let cpus = match home(world).filter(|&cpu| own.contains(cpu)) {
            Some(home) if !cpus.contains(home) => return Err(no_cpu(ask, &CpuSet::single(home))),
            Some(home) => CpuSet::single(home),
            None => cpus,
        };
        let load = |cpu| (world.view.load(cpu), world.view.specs(cpu), cpu);
        let (mut refused, mut open): (Option<No>, Open) = (None, Open::default());
        for cpu in worst_fit(cpus, &ask.wished, load) {
            match self.try_at(world, ask, Place::Cpu(cpu), Depth::Bounds) {
                Ok(offer) => return Ok(offer),
                Err((no, is_open)) => {
                    keep_telling(&mut refused, no);
                    if is_open {
                        open.push(cpu);
                    }
                }
            }
        }
        for cpu in open.cpus() {
            match self.try_at(world, ask, Place::Cpu(cpu), Depth::Exact) {
                Ok(offer) => return Ok(offer),
                Err((no, _)) => keep_telling(&mut refused, no),
            }
        }
        if mutate!("plugin-edf-ignore-admission", ask.ignore_admission, false) {
            refused = None;
            for cpu in worst_fit(cpus, &ask.wished, load) {
                match self.try_ignoring(world, ask, Place::Cpu(cpu)) {
                    Ok(offer) => return Ok(offer),
                    Err(no) => {
                        refused.get_or_insert(no);
                    }
                }
            }
        }
        Err(refused.expect("there is at least one CPU"))
    }

    fn ask_global(&self, world: &World<'_>, ask: &Ask<'_>) -> Result<Offer, No> {
        // The kernel will run it on any CPU of the domain, so all of them must be acceptable.
        if !ask.allowed.is_empty() && !self.core.cpus.is_subset(&ask.allowed) {
            return Err(no_cpu(ask, &self.core.cpus.difference(&ask.allowed)));
        }
        let place = Place::Domain(self.domain.expect("a global plugin has a domain"));
        let said = match self.try_at(world, ask, place, Depth::Bounds) {
            Err((_, true)) => self.try_at(world, ask, place, Depth::Exact),
            said => said,
        };
        match said {
            Err(_) if ask.ignore_admission => self.try_ignoring(world, ask, place),
            said => said.map_err(|(no, _)| no),
        }
    }

    /// The offer for `place`; or why there is none, and whether an exact test might say otherwise.
    fn try_at(
        &self,
        world: &World<'_>,
        ask: &Ask<'_>,
        place: Place,
        depth: Depth,
    ) -> Result<Offer, (No, bool)> {
        let least = ask.params.runtime.expect("checked before");
        let offer = self.offer(world, ask, place, least);
        let claim = self.claim(ask, place, &offer);
        if !self.fits(world, &claim) {
            let is_open = self.may_fit(world, &claim);
            let said = mutate!(
                "plugin-edf-demand-skipped",
                match depth {
                    Depth::Exact if is_open => self.demanded(world, &claim).settled(),
                    _ => Err(Broken { open: is_open, witness: None }),
                },
                match depth {
                    Depth::Exact if is_open && least.is_zero() =>
                        self.demanded(world, &claim).settled(),
                    _ => Err(Broken { open: is_open, witness: None }),
                }
            );
            if let Err(Broken { open, witness }) = said {
                let (asked, limit) = (offer.charge.ppm(), self.threshold.ppm());
                let fits = self.free_at(world, place).ppm_down();
                let no = no(Reason::NoRoom, Field::Utilization, asked, limit, fits);
                return Err((No { cpu: offer.cpu, witness, ..no }, open));
            }
        }
        let coming = coming(self.core.index, place, ask.params);
        if let Err(broken) = world.bear(&coming, depth) {
            return Err((
                No { cpu: offer.cpu, ..would_break(world, &coming, &broken) },
                broken.open,
            ));
        }
        match self.elastic(world, ask, place, least) {
            runtime if mutate!("plugin-edf-desired", runtime == least, runtime >= least) => {
                Ok(offer)
            }
            runtime => Ok(self.offer(world, ask, place, runtime)),
        }
    }

    /// Q^a: as much of the desired runtime as there is.
    fn elastic(&self, world: &World<'_>, ask: &Ask<'_>, place: Place, least: Work) -> Work {
        let params = ask.params;
        let Some(desired) = params.desired.filter(|&desired| desired > least) else { return least };
        let span = params.density_span().expect("the period is declared");
        let by_rules = ask.clip.charge.map_or(desired, |charge| charge.of(span));
        let by_rules = by_rules.min(ask.clip.runtime.unwrap_or(desired));
        let most = desired.min(by_rules).min(Work::from_ns(span.as_ns()));
        // What is free and what others bear is computed rounded down, the one by less than a
        // nanosecond, the other by less than `slack`; what is granted in the end is what passes the
        // tests.
        let free = self.free_at(world, place).of(span);
        let bearable = world.bearable(&coming(self.core.index, place, params));
        let (one, slack) = (Work::from_ns(1), (span.as_ns() >> 50) + 1);
        for (free, bearable) in [
            (free + one, bearable.saturating_add(1)),
            (free, bearable),
            (free, bearable.saturating_sub(slack)),
        ] {
            let runtime = most.min(free).min(Work::from_ns(bearable));
            let elastic = Params { runtime: Some(runtime), ..*params };
            let claim = self.claim(ask, place, &self.offer(world, ask, place, runtime));
            let fits = runtime > least && self.fits(world, &claim);
            if fits && world.bear(&coming(self.core.index, place, &elastic), Depth::Bounds).is_ok()
            {
                return runtime;
            }
        }
        least
    }

    fn try_ignoring(&self, world: &World<'_>, ask: &Ask<'_>, place: Place) -> Result<Offer, No> {
        let offer = self.offer(world, ask, place, ask.params.runtime.expect("checked before"));
        let claim = self.claim(ask, place, &offer);
        let width = match place {
            Place::Cpu(_) => 1,
            Place::Domain(domain) => world.view.ledger.domain(domain).count,
        };
        let limit = self.share.times(width);
        let sum = world.view.bandwidth(place);
        if mutate!("plugin-edf-kernel-share", sum.saturating_add(claim.bandwidth()) > limit, false)
        {
            let fits = limit.saturating_sub(sum).ppm_down();
            let no =
                no(Reason::NoRoom, Field::Utilization, claim.bandwidth().ppm(), limit.ppm(), fits);
            return Err(No { cpu: offer.cpu, ..no });
        }
        let notes = offer.notes.with(Notes::ADMISSION_IGNORED).with(Notes::NOT_PROVED);
        Ok(Offer { notes: notes.with(desired_notes(ask.params, offer.runtime)), ..offer })
    }

    fn fits(&self, world: &World<'_>, claim: &Claim) -> bool {
        match claim.place {
            Place::Cpu(cpu) => world.view.fits(cpu, claim, self.threshold),
            Place::Domain(domain) => world.view.fits_globally(domain, claim, self.threshold),
        }
    }

    fn free_at(&self, world: &World<'_>, place: Place) -> Charge {
        let view = &world.view;
        match place {
            Place::Cpu(cpu) => self.threshold.saturating_sub(view.total(cpu)),
            Place::Domain(domain) => {
                let count = view.ledger.domain(domain).count;
                let room = self.threshold.times(count);
                let (sum, densest) = (view.domain_total(domain), view.densest(domain));
                // As long as the newcomer is not the densest: m·thr − (m−1)·U_max − U_sum; else
                // (m·thr − U_sum) / m.
                let beside = room.saturating_sub(sum).saturating_sub(densest.times(count - 1));
                let as_densest =
                    Charge::from_bits(room.saturating_sub(sum).bits() / u128::from(count));
                let global = if beside <= densest { beside } else { as_densest };
                global.min(room.saturating_sub(view.everything(domain)))
            }
        }
    }

    /// What it could still give out on `cpu`, or on the whole domain.
    pub(crate) fn free(&self, world: &World<'_>, cpu: u32) -> Charge {
        match self.confinement {
            Confinement::Pinned(own) if own.contains(cpu) => self.free_at(world, Place::Cpu(cpu)),
            Confinement::Global(_) => self
                .free_at(world, Place::Domain(self.domain.expect("a global plugin has a domain"))),
            _ => Charge::ZERO,
        }
    }

    fn offer(&self, world: &World<'_>, ask: &Ask<'_>, place: Place, runtime: Work) -> Offer {
        let (cpu, wish) = match place {
            Place::Cpu(cpu) => (Some(cpu), Core::wish_notes(ask, cpu)),
            Place::Domain(_) => {
                let met = ask.wished.is_empty() || self.core.cpus.is_subset(&ask.wished);
                (None, if met { Notes::default() } else { Notes::CPU_WISH_IGNORED })
            }
        };
        Offer {
            cpu,
            runtime: Some(runtime),
            charge: ask.params.charge_of(runtime).expect("the period is declared"),
            notes: desired_notes(ask.params, Some(runtime)).with(wish).with(spoilt(world, place)),
            priority: 0,
        }
    }

    fn claim(&self, ask: &Ask<'_>, place: Place, offer: &Offer) -> Claim {
        claim(self.core.index, place, ask.params, offer, true)
    }
}

/// The CPU of the attached thread whose spec is changed.
fn home(world: &World<'_>) -> Option<u32> {
    match world.leaving.filter(|entry| entry.attached)?.claim.place {
        Place::Cpu(cpu) => Some(cpu),
        Place::Domain(_) => None,
    }
}

/// What the holder should know beyond what stays true: whether an ignored test spoils its
/// neighbourhood.
pub(crate) fn notes(world: &World<'_>, entry: &Entry) -> Notes {
    spoilt(world, entry.claim.place)
}

fn spoilt(world: &World<'_>, place: Place) -> Notes {
    if world.view.voided(place) { Notes::NOT_PROVED } else { Notes::default() }
}

/// The kernel's policy for a spec of this plugin.
pub(crate) fn policy(entry: &Entry) -> Policy {
    // An adopted record may lack a parameter; the kernel then says what it thinks of it.
    let period = entry.params.period.unwrap_or(Span::ZERO);
    Policy::Deadline {
        runtime: entry.runtime.unwrap_or(Work::ZERO),
        deadline: entry.params.deadline.unwrap_or(period),
        period,
    }
}
