//! Earliest deadline first on `SCHED_DEADLINE`. ReTiF (JSA 2021) section 5.1; ISORC 2020, Eq. 2.
//!
//! Period and runtime are mandatory, the deadline defaults to the period. The load is Q / min(T, D)
//! (Eq. 1), summed over the charges of *all* plugins on a CPU; a task is accepted if the sum is
//! within U^thr (Eq. 3). If that holds on no tried CPU, but Σ Q/T fits, the demand test decides
//! (`demand.rs`), on at most [`MAX_EXACT_TESTS`](crate::exact_test::MAX_EXACT_TESTS) CPUs. A
//! desired runtime is granted as far as U^thr, the access rules and the guarantees of lower `rm`
//! plugins allow: Q^a = max(Q, min(Q^d, free · min(T, D))); the ledger counts Q^a.
//!
//! *U^thr* is by default the maximum share that the kernel admits (on current kernels 95 % minus
//! the fair server's 5 %), and never more: a task accepted here is not refused at attach. The
//! kernel counts Q / T, which is at most Q / min(T, D).
//!
//! *Confinement.* SCHED_DEADLINE runs a thread anywhere in its root domain, so a task stays on one
//! CPU only if that CPU is a root domain of its own: a cpuset partition. If the plugin's CPUs
//! cannot be partitioned but are exactly a root domain, the domain is charged as a whole under the
//! global test of Goossens, Funk and Baruah, U_sum ≤ m·U^thr − (m−1)·U_max. Otherwise the plugin
//! rejects every task.
//!
//! *Ignored tests.* A task that may ignore the test is accepted with Q, unless the kernel's own sum
//! would exceed its share: the kernel would refuse it at attach, so it is rejected now, with the
//! kernel's share as the limit.
//!
//! *Kernel limits* are checked at create (R12): Q ≥ 1024 ns, D ≤ T, T within the machine's bounds.

mod demand;

use super::PluginContext;
use super::base::{
    PlacedSpec, PluginBase, claim, desired_notes, missing_parameter, no_cpu_rejection, rejection,
};
use super::fp::{candidate, guarantee_rejection};
use super::place::worst_fit;
use crate::exact_test::{NotProved, TestDepth, UndecidedCpus, keep_most_informative};
use crate::input::Platform;
use crate::ledger::{Claim, Ledger, Place};
use crate::plugin::{Offer, PluginRequest, Verdict};
use talea_core::mutate;
use talea_core::setup::{Confine, EdfOptions};
use talea_core::{Charge, CpuSet, Params, Policy, Span, Work};
use talea_proto::message::{Mechanism, Notes};
use talea_proto::refusal::RejectionReason;
use talea_proto::{Field, Rejection};

/// Minimum runtime in Linux, in nanoseconds.
const RUNTIME_MIN: u64 = 1024;

/// Confinement of the plugin's tasks by the kernel's root domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// One of these CPUs per task.
    Pinned(CpuSet),
    /// A whole root domain.
    Global(CpuSet),
    /// Neither is possible on this machine.
    Neither,
}

impl Confinement {
    /// Returns the confinement possible for a plugin on `cpus`.
    pub(crate) fn of(confine: Confine, cpus: &CpuSet, platform: &Platform) -> Confinement {
        // A root domain of a single CPU confines without a partition.
        let single = platform.root_domains.iter().filter(|domain| domain.len() == 1);
        let single = single.fold(CpuSet::EMPTY, |all, domain| all.union(domain));
        let own = match confine {
            Confine::Auto => platform.partitionable.union(&single),
            Confine::Partition => {
                platform.partitionable.union(&platform.partitionable_opt_in).union(&single)
            }
            Confine::Global => CpuSet::EMPTY,
        };
        let own = own.intersection(cpus);
        let whole = mutate!(
            "plugin-edf-confinement",
            confine != Confine::Partition && platform.root_domains.contains(cpus),
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

/// Returns the ledger's domain of a confinement; `None` if it pins each task to a CPU.
pub(crate) fn domain_of(confinement: Option<Confinement>, ledger: &Ledger) -> Option<u32> {
    match confinement {
        Some(Confinement::Global(cpus)) => ledger.find_domain(&cpus),
        _ => None,
    }
}

/// The plugin `edf`.
#[derive(Clone, Debug)]
pub(crate) struct Edf {
    /// Common part of all plugins.
    pub(crate) base: PluginBase,
    confinement: Confinement,
    /// Domain in the ledger, for global confinement.
    domain: Option<u32>,
    /// Threshold U^thr of each CPU.
    threshold: Charge,
    /// Share that the kernel admits on each CPU.
    share: Charge,
    period: (Span, Span),
    granularity: Span,
}

impl Edf {
    /// Creates the plugin for this platform; `domain` is the ledger's index of the plugin's CPUs
    /// for global confinement.
    pub(crate) fn new(
        base: PluginBase,
        options: &EdfOptions,
        confinement: Confinement,
        domain: Option<u32>,
        platform: &Platform,
    ) -> Edf {
        let share = platform.deadline_share;
        let most = share.min(Charge::ONE);
        Edf {
            base,
            confinement,
            domain,
            threshold: mutate!(
                "plugin-edf-threshold",
                options.threshold.map_or(most, |threshold| threshold.min(most)),
                most
            ),
            share,
            period: platform.deadline_period,
            granularity: platform.granularity,
        }
    }

    /// Returns the domain of the plugin's global claims; `None` if the plugin pins its tasks.
    pub(crate) fn domain(&self) -> Option<u32> {
        self.domain
    }

    /// Returns the kernel mechanism and its enforcement granularity.
    pub(crate) fn mechanism(&self) -> (Mechanism, Span) {
        let mechanism = match self.confinement {
            Confinement::Global(_) => Mechanism::DeadlineGlobal,
            _ => Mechanism::DeadlinePinned,
        };
        (mechanism, self.granularity)
    }

    /// Returns the verdict for a request.
    pub(crate) fn ask(&self, context: &PluginContext<'_>, ask: &PluginRequest<'_>) -> Verdict {
        if ask.params.period.is_none() {
            return missing_parameter(Field::Period);
        }
        if ask.params.runtime.is_none() {
            return missing_parameter(Field::Runtime);
        }
        let said = match self.confinement {
            Confinement::Neither => {
                Err(rejection(RejectionReason::Unsupported, Field::Cpus, 0, 0, 0))
            }
            _ => check_kernel_limits(self.period, ask.params),
        };
        let said = said.and_then(|()| match self.confinement {
            Confinement::Pinned(own) => self.ask_pinned(context, ask, &own),
            Confinement::Global(_) | Confinement::Neither => self.ask_global(context, ask),
        });
        match said {
            Ok(offer) => Verdict::Ok(offer),
            Err(no) => Verdict::No(no),
        }
    }

    fn ask_pinned(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
        own: &CpuSet,
    ) -> Result<Offer, Rejection> {
        let cpus = self.base.cpus_for(ask).intersection(own);
        if cpus.is_empty() {
            return Err(no_cpu_rejection(ask, own));
        }
        // A deadline thread cannot leave its root domain (EBUSY), and a sleeping one is not
        // admitted elsewhere: an attached thread stays on its CPU. To move it, the client must
        // detach it first.
        let cpus = match current_cpu(context).filter(|&cpu| own.contains(cpu)) {
            Some(current_cpu) if !cpus.contains(current_cpu) => {
                let current = CpuSet::single(current_cpu);
                return Err(if ask.thread.covers(&current) {
                    no_cpu_rejection(ask, &current)
                } else {
                    Rejection::outside_mask(&ask.thread.cpus)
                });
            }
            Some(current_cpu) => CpuSet::single(current_cpu),
            None => cpus,
        };
        let load = |cpu| (context.view.load(cpu), context.view.specs(cpu), cpu);
        let (mut refused, mut undecided): (Option<Rejection>, UndecidedCpus) =
            (None, UndecidedCpus::default());
        for cpu in worst_fit(cpus, &ask.preferred, load) {
            match self.try_at(context, ask, Place::Cpu(cpu), TestDepth::Bounds) {
                Ok(offer) => return Ok(offer),
                Err((no, is_open)) => {
                    keep_most_informative(&mut refused, no);
                    if is_open {
                        undecided.push(cpu);
                    }
                }
            }
        }
        for cpu in undecided.cpus() {
            match self.try_at(context, ask, Place::Cpu(cpu), TestDepth::Exact) {
                Ok(offer) => return Ok(offer),
                Err((no, _)) => keep_most_informative(&mut refused, no),
            }
        }
        if mutate!("plugin-edf-ignore-admission", ask.ignore_admission, false) {
            refused = None;
            for cpu in worst_fit(cpus, &ask.preferred, load) {
                match self.offer_untested(context, ask, Place::Cpu(cpu)) {
                    Ok(offer) => return Ok(offer),
                    Err(no) => {
                        refused.get_or_insert(no);
                    }
                }
            }
        }
        Err(refused.expect("the plugin has at least one CPU"))
    }

    fn ask_global(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
    ) -> Result<Offer, Rejection> {
        // The kernel may run the task on any CPU of the domain, so all of them must be acceptable.
        self.base.check_all_cpus(ask)?;
        let place = Place::Domain(self.domain.expect("a global plugin has a domain"));
        let said = match self.try_at(context, ask, place, TestDepth::Bounds) {
            Err((_, true)) => self.try_at(context, ask, place, TestDepth::Exact),
            said => said,
        };
        match said {
            Err(_) if ask.ignore_admission => self.offer_untested(context, ask, place),
            said => said.map_err(|(no, _)| no),
        }
    }

    /// Returns the offer for `place`; or the rejection, and whether an exact test might accept.
    fn try_at(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
        place: Place,
        depth: TestDepth,
    ) -> Result<Offer, (Rejection, bool)> {
        let least = ask.params.runtime.expect("the runtime was checked before");
        let offer = self.offer(context, ask, place, least);
        let claim = self.claim(ask, place, &offer);
        if !self.fits(context, &claim) {
            let is_open = self.may_fit(context, &claim);
            let said = match depth {
                TestDepth::Exact if mutate!("plugin-edf-demand-skipped", is_open, false) => {
                    self.demand_test(context, &claim).settled()
                }
                _ => Err(NotProved { undecided: is_open, witness: None }),
            };
            if let Err(NotProved { undecided, witness }) = said {
                let (asked, limit) = (offer.charge.ppm(), self.threshold.ppm());
                let fits = self.free_at(context, place).ppm_down();
                let no = rejection(RejectionReason::NoRoom, Field::Utilization, asked, limit, fits);
                return Err((Rejection { cpu: offer.cpu, witness, ..no }, undecided));
            }
        }
        let candidate = candidate(self.base.index, place, ask.params);
        if let Err(broken) = context.check_guarantees(&candidate, depth) {
            return Err((
                Rejection { cpu: offer.cpu, ..guarantee_rejection(context, &candidate, &broken) },
                broken.undecided,
            ));
        }
        match self.elastic(context, ask, place, least) {
            runtime if mutate!("plugin-edf-desired", runtime == least, runtime >= least) => {
                Ok(offer)
            }
            runtime => Ok(self.offer(context, ask, place, runtime)),
        }
    }

    /// Returns Q^a: the desired runtime as far as possible.
    fn elastic(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
        place: Place,
        least: Work,
    ) -> Work {
        let params = ask.params;
        let Some(desired) = params.desired.filter(|&desired| desired > least) else { return least };
        let span = params.density_span().expect("the period is declared");
        let by_rules = ask.cap.charge.map_or(desired, |charge| charge.of(span));
        let by_rules = by_rules.min(ask.cap.runtime.unwrap_or(desired));
        let most = desired.min(by_rules).min(Work::from_ns(span.as_ns()));
        // The free share and the spare work of lower plugins are rounded down, the first by less
        // than a nanosecond, the second by less than `slack`; the granted runtime must pass the
        // tests.
        let free = self.free_at(context, place).of(span);
        let spare = context.spare_work(&candidate(self.base.index, place, params));
        let (one, slack) = (Work::from_ns(1), (span.as_ns() >> 50) + 1);
        for (free, spare) in [
            (free + one, spare.saturating_add(1)),
            (free, spare),
            (free, spare.saturating_sub(slack)),
        ] {
            let runtime = most.min(free).min(Work::from_ns(spare));
            let elastic = Params { runtime: Some(runtime), ..*params };
            let claim = self.claim(ask, place, &self.offer(context, ask, place, runtime));
            let fits = runtime > least && self.fits(context, &claim);
            if fits
                && context
                    .check_guarantees(
                        &candidate(self.base.index, place, &elastic),
                        TestDepth::Bounds,
                    )
                    .is_ok()
            {
                return runtime;
            }
        }
        least
    }

    fn offer_untested(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
        place: Place,
    ) -> Result<Offer, Rejection> {
        let offer = self.offer(
            context,
            ask,
            place,
            ask.params.runtime.expect("the runtime was checked before"),
        );
        let claim = self.claim(ask, place, &offer);
        let width = match place {
            Place::Cpu(_) | Place::Set(_) => 1,
            Place::Domain(domain) => context.view.ledger.domain(domain).count,
        };
        let limit = self.share.times(width);
        let sum = context.view.bandwidth(place);
        if mutate!("plugin-edf-kernel-share", sum.saturating_add(claim.bandwidth()) > limit, false)
        {
            let fits = limit.saturating_sub(sum).ppm_down();
            let no = rejection(
                RejectionReason::NoRoom,
                Field::Utilization,
                claim.bandwidth().ppm(),
                limit.ppm(),
                fits,
            );
            return Err(Rejection { cpu: offer.cpu, ..no });
        }
        let notes = offer.notes.with(Notes::ADMISSION_IGNORED).with(Notes::NOT_PROVED);
        Ok(Offer { notes: notes.with(desired_notes(ask.params, offer.runtime)), ..offer })
    }

    fn fits(&self, context: &PluginContext<'_>, claim: &Claim) -> bool {
        match claim.place {
            Place::Cpu(cpu) => context.view.fits(cpu, claim, self.threshold),
            Place::Domain(domain) => context.view.fits_globally(domain, claim, self.threshold),
            Place::Set(_) => unreachable!("`edf` names no set"),
        }
    }

    fn free_at(&self, context: &PluginContext<'_>, place: Place) -> Charge {
        let view = &context.view;
        match place {
            Place::Cpu(cpu) => self.threshold.saturating_sub(view.total(cpu)),
            Place::Set(_) => unreachable!("`edf` names no set"),
            Place::Domain(domain) => {
                let count = view.ledger.domain(domain).count;
                let room = self.threshold.times(count);
                let (sum, densest) = (view.domain_total(domain), view.densest(domain));
                // While the new task is not the densest: m·thr − (m−1)·U_max − U_sum; else (m·thr −
                // U_sum) / m.
                let beside = room.saturating_sub(sum).saturating_sub(densest.times(count - 1));
                let as_densest =
                    Charge::from_bits(room.saturating_sub(sum).bits() / u128::from(count));
                let global = if beside <= densest { beside } else { as_densest };
                global.min(room.saturating_sub(view.everything(domain)))
            }
        }
    }

    /// Returns the charge that could still be granted on `cpu`, or on the whole domain.
    pub(crate) fn free(&self, context: &PluginContext<'_>, cpu: u32) -> Charge {
        match self.confinement {
            Confinement::Pinned(own) if own.contains(cpu) => self.free_at(context, Place::Cpu(cpu)),
            Confinement::Global(_) => self.free_at(
                context,
                Place::Domain(self.domain.expect("a global plugin has a domain")),
            ),
            _ => Charge::ZERO,
        }
    }

    fn offer(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
        place: Place,
        runtime: Work,
    ) -> Offer {
        let cpu = place.cpu();
        Offer {
            cpu,
            runtime: Some(runtime),
            charge: ask.params.charge_of(runtime).expect("the period is declared"),
            notes: desired_notes(ask.params, Some(runtime))
                .with(self.base.preference_notes(ask, cpu))
                .with(proof_notes(context, place)),
            priority: 0,
            terms: None,
        }
    }

    fn claim(&self, ask: &PluginRequest<'_>, place: Place, offer: &Offer) -> Claim {
        claim(self.base.index, place, ask.params, offer, true)
    }
}

/// Checks the kernel's limits on the parameters of the deadline class (R12). `low` and `high` bound
/// the period.
pub(crate) fn check_kernel_limits(
    (low, high): (Span, Span),
    params: &Params,
) -> Result<(), Rejection> {
    let (Some(period), Some(runtime)) = (params.period, params.runtime) else { return Ok(()) };
    if period < low || period > high {
        let nearest = if period < low { low } else { high }.as_ns();
        return Err(rejection(
            RejectionReason::OutOfRange,
            Field::Period,
            period.as_ns(),
            nearest,
            nearest,
        ));
    }
    if runtime.as_ns() < mutate!("plugin-edf-kernel-limits", RUNTIME_MIN, 1) {
        return Err(rejection(
            RejectionReason::OutOfRange,
            Field::Runtime,
            runtime.as_ns(),
            RUNTIME_MIN,
            RUNTIME_MIN,
        ));
    }
    match params.deadline {
        Some(deadline) if deadline > period => {
            let period = period.as_ns();
            Err(rejection(
                RejectionReason::Contradiction,
                Field::Deadline,
                deadline.as_ns(),
                period,
                period,
            ))
        }
        _ => Ok(()),
    }
}

/// Returns the CPU of the attached thread whose spec is changed; `None` if there is no such thread,
/// or if it uses a whole domain.
fn current_cpu(context: &PluginContext<'_>) -> Option<u32> {
    context.leaving.filter(|entry| entry.attached)?.claim.place.cpu()
}

/// Returns the variable notes: whether an ignored test makes guarantees unprovable.
pub(crate) fn notes(context: &PluginContext<'_>, entry: &PlacedSpec) -> Notes {
    proof_notes(context, entry.claim.place)
}

fn proof_notes(context: &PluginContext<'_>, place: Place) -> Notes {
    if context.view.is_unproved(place) { Notes::NOT_PROVED } else { Notes::default() }
}

/// Returns the kernel policy of a spec of this plugin.
pub(crate) fn policy(entry: &PlacedSpec) -> Policy {
    // An adopted record may lack a parameter; then the kernel refuses the attributes.
    let period = entry.params.period.unwrap_or(Span::ZERO);
    Policy::Deadline {
        runtime: entry.runtime.unwrap_or(Work::ZERO),
        deadline: entry.params.deadline.unwrap_or(period),
        period,
    }
}
