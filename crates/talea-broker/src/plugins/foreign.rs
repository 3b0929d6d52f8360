//! Foreign plugin: a shared object in a process of its own; its answers are checked against its
//! bounds (R18).
//!
//! The driver makes the call. The answer names a placement and a budget, which must be within the
//! limits of the administrator and the client. Any other answer violates the protocol and takes
//! the plugin out of service. The broker computes the charge and protects the guarantees of other
//! plugins.
//!
//! | answer | bounds |
//! | --- | --- |
//! | verdict | 1, 0 or -1 |
//! | CPU | one of those of the call |
//! | CPU of FIFO and RR | also all CPUs of the instance, unless it outranks `rm` |
//! | CPU in the deadline class over a root domain | all of them |
//! | level | the band of the instance; no level in the deadline class |
//! | runtime Q^a | Q ≤ Q^a ≤ Q^d; in the deadline class also 1024 ns ≤ Q^a ≤ D |
//! | period, deadline | deadline class: at most those of the task; D ≤ T; T within the kernel's bounds |
//! | Σ Q^a/T of its own tasks | the share that the kernel admits to the deadline class |
//!
//! The access rules may reduce Q^a, but not below Q. A plugin does not know the tasks of others and
//! the zero-lag holds. If only these exceed the share, the broker rejects the task, and the plugin
//! has violated nothing.

use super::base::{
    HigherPriorityTask, PlacedSpec, PluginBase, claim, desired_notes, no_cpu_rejection, rejection,
    validate, with_terms,
};
use super::edf::{Confinement, check_kernel_limits, domain_of};
use super::rm::Rm;
use super::{Plugin, PluginContext, edf, fp};
use crate::exact_test::TestDepth;
use crate::input::{ForeignAnswer, Platform};
use crate::ledger::{Claim, Ledger, Place};
use crate::plugin::{BoundsViolation, DeadlineTerms, Offer, PluginRequest, Verdict};
use talea_core::mutate;
use talea_core::setup::Band;
use talea_core::{Charge, CpuSet, Params, Policy, Priority, Span, Work};
use talea_proto::message::{Mechanism, Notes};
use talea_proto::refusal::RejectionReason;
use talea_proto::{Field, Rejection};

/// Minimum runtime of the deadline class in Linux.
const RUNTIME_MIN: Work = Work::from_ns(1024);

/// A foreign plugin.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    /// Common part of all plugins.
    pub(crate) base: PluginBase,
    class: Class,
    /// Time-out of a call.
    pub(crate) timeout: Span,
}

/// Kernel class of a plugin's threads.
#[derive(Clone, Debug)]
pub(crate) enum Class {
    /// `SCHED_FIFO` with these priorities.
    Fifo(Band),
    /// `SCHED_RR` with these priorities.
    Rr(Band),
    /// `SCHED_DEADLINE`.
    Deadline(DeadlineClass),
}

/// Bounds of an instance in the deadline class.
#[derive(Clone, Debug)]
pub(crate) struct DeadlineClass {
    confinement: Confinement,
    /// Domain in the ledger, for global confinement.
    domain: Option<u32>,
    /// Share that the kernel admits on each CPU.
    share: Charge,
    period: (Span, Span),
    granularity: Span,
}

impl DeadlineClass {
    /// Creates the bounds for this platform.
    pub(crate) fn new(
        confinement: Option<Confinement>,
        platform: &Platform,
        ledger: &Ledger,
    ) -> DeadlineClass {
        DeadlineClass {
            domain: domain_of(confinement, ledger),
            confinement: confinement.unwrap_or(Confinement::Neither),
            share: platform.deadline_share,
            period: platform.deadline_period,
            granularity: platform.granularity,
        }
    }
}

/// Reason why an answer is not accepted.
enum Unusable {
    /// The task is rejected; the plugin is not to blame.
    Rejected(Rejection),
    /// The answer is outside the plugin's bounds.
    Violation(BoundsViolation),
}

impl From<Rejection> for Unusable {
    fn from(no: Rejection) -> Unusable {
        Unusable::Rejected(no)
    }
}

/// Returns the violation of an answer that names a part of the CPUs only.
fn not_all(answer: &ForeignAnswer, cpus: &CpuSet) -> Unusable {
    violation(format!("CPUs {}, which are not all of {cpus}", answer.cpus))
}

fn violation(what: String) -> Unusable {
    Unusable::Violation(BoundsViolation(what))
}

impl Foreign {
    /// Creates the plugin with its class and time-out.
    pub(crate) fn new(base: PluginBase, class: Class, timeout: Span) -> Foreign {
        Foreign { base, class, timeout }
    }

    /// Whether the plugin's threads have the deadline class.
    pub(crate) fn is_deadline(&self) -> bool {
        matches!(self.class, Class::Deadline(_))
    }

    /// Returns the domain of the plugin's claims; `None` if they are on single CPUs.
    pub(crate) fn domain(&self) -> Option<u32> {
        match &self.class {
            Class::Deadline(class) => class.domain,
            Class::Fifo(_) | Class::Rr(_) => None,
        }
    }

    /// Returns the verdict of an answer, or the violation of the plugin's bounds. `is_current` says
    /// whether the plugin knew all its present tasks.
    pub(crate) fn check_answer(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
        answer: &ForeignAnswer,
        is_current: bool,
    ) -> Result<Verdict, BoundsViolation> {
        match self.offer(context, ask, answer, is_current) {
            Ok(offer) if answer.verdict == 0 => Ok(Verdict::Partial(offer)),
            Ok(offer) => Ok(Verdict::Ok(offer)),
            Err(Unusable::Rejected(no)) => Ok(Verdict::No(no)),
            Err(Unusable::Violation(violation)) => Err(violation),
        }
    }

    fn offer(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
        answer: &ForeignAnswer,
        is_current: bool,
    ) -> Result<Offer, Unusable> {
        validate(ask.params)?;
        let cpus = self.permitted_cpus(context, ask)?;
        let partial = match answer.verdict {
            1 => Notes::default(),
            0 => Notes::PARTIAL,
            -1 => return Err(rejection(RejectionReason::Foreign, Field::Plugin, 0, 0, 0).into()),
            other => {
                return Err(violation(format!("verdict {other}, which is not 1, 0 or -1")));
            }
        };
        let place = self.check_place(context, ask, answer, &cpus)?;
        let (priority, terms) = match &self.class {
            Class::Deadline(class) => (0, Some(check_terms(class, ask.params, answer)?)),
            Class::Fifo(_) | Class::Rr(_) => {
                (self.check_level(answer.priority).map_err(Unusable::Violation)?, None)
            }
        };
        let mut params = with_terms(ask.params, terms);
        params.runtime = self.check_runtime(ask, &params, answer.runtime_ns)?;
        let cpu = place.cpu();
        let offer = Offer {
            cpu,
            runtime: params.runtime,
            charge: params.runtime.and_then(|q| params.charge_of(q)).unwrap_or(Charge::ZERO),
            notes: Notes::NOT_PROVED
                .with(if self.is_deadline() {
                    Notes::default()
                } else {
                    Notes::BUDGET_NOT_ENFORCED
                })
                .with(desired_notes(ask.params, params.runtime))
                .with(self.base.preference_notes(ask, cpu))
                .with(partial),
            priority,
            terms,
        };
        if let Class::Deadline(class) = &self.class {
            let claim = claim(self.base.index, place, &params, &offer, true);
            self.check_bandwidth(context, class, &claim, is_current)?;
            check_beside(context, class, &claim, ask)?;
        }
        let candidate = fp::candidate(self.base.index, place, &params);
        let kept = check_guarantees(context, &candidate);
        match kept {
            Err(no) if !ask.ignore_admission => Err(no.into()),
            Err(_) => Ok(Offer { notes: offer.notes.with(Notes::ADMISSION_IGNORED), ..offer }),
            Ok(()) => Ok(offer),
        }
    }

    /// Returns the CPUs of a question, which replaces the spec `leaving`. A deadline thread cannot
    /// leave its root domain, so an attached thread stays on its CPU.
    pub(crate) fn cpus_for(&self, ask: &PluginRequest<'_>, leaving: Option<&PlacedSpec>) -> CpuSet {
        let cpus = self.base.cpus_for(ask);
        let place = leaving.filter(|entry| entry.attached).map(|entry| entry.claim.place);
        match place {
            Some(Place::Cpu(cpu)) if self.is_deadline() && self.base.cpus.contains(cpu) => {
                mutate!("plugin-foreign-stays", cpus.intersection(&CpuSet::single(cpu)), cpus)
            }
            _ => cpus,
        }
    }

    /// Returns the CPUs on which the task may be placed.
    fn permitted_cpus(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
    ) -> Result<CpuSet, Rejection> {
        let Class::Deadline(class) = &self.class else { return self.base.fifo_cpus_for(ask) };
        check_kernel_limits(class.period, ask.params)?;
        let cpus = self.cpus_for(ask, context.leaving);
        match class.confinement {
            Confinement::Neither => {
                Err(rejection(RejectionReason::Unsupported, Field::Cpus, 0, 0, 0))
            }
            // The kernel may run the task on any CPU of the domain, so all must be acceptable.
            Confinement::Global(_) => self.base.check_all_cpus(ask).map(|()| cpus),
            _ if cpus.is_empty() => Err(no_cpu_rejection(ask, &self.base.cpus)),
            Confinement::Pinned(_) => Ok(cpus),
        }
    }

    /// Whether the plugin may place a task on all its CPUs: under FIFO or RR, if it outranks no
    /// `rm` plugin on them. A task that migrates can bring work that it could not do on another CPU
    /// in time, and the bounds of `rm` do not include such work.
    pub(crate) fn may_name_set(&self, plugins: &[Plugin]) -> bool {
        let PluginBase { index, ref cpus, .. } = self.base;
        let outranks =
            |rm: &Rm| cpus.iter().any(|cpu| rm.is_outranked(cpu, index, Place::Cpu(cpu)));
        !self.is_deadline()
            && cpus.len() > 1
            && mutate!(
                "plugin-set-outranks",
                !plugins.iter().filter_map(Plugin::as_rm).any(outranks),
                true
            )
    }

    /// Returns the place of an answer that names several CPUs under FIFO or RR.
    fn check_set(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
        answer: &ForeignAnswer,
        cpus: &CpuSet,
    ) -> Result<Place, Unusable> {
        if mutate!("plugin-set-whole", answer.cpus != *cpus, false) {
            return Err(not_all(answer, cpus));
        }
        self.base.check_all_cpus(ask)?;
        if context.view.ledger.set(self.base.index).is_empty() {
            let charge = ask.params.runtime.and_then(|runtime| ask.params.charge_of(runtime));
            let (reason, asked) =
                (RejectionReason::WouldBreakOthers, charge.map_or(0, Charge::ppm));
            return Err(rejection(reason, Field::Utilization, asked, 0, 0).into());
        }
        Ok(Place::Set(self.base.index))
    }

    /// Returns the place that an answer names.
    fn check_place(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
        answer: &ForeignAnswer,
        cpus: &CpuSet,
    ) -> Result<Place, Unusable> {
        if let Some(domain) = self.domain() {
            let whole = answer.cpus.is_empty() || answer.cpus == *cpus;
            return if mutate!("plugin-foreign-domain", whole, true) {
                Ok(Place::Domain(domain))
            } else {
                Err(not_all(answer, cpus))
            };
        }
        if answer.cpus.len() > 1 && !self.is_deadline() {
            return self.check_set(context, ask, answer, cpus);
        }
        let named = u32::try_from(answer.cpu).ok();
        let inside = mutate!(
            "plugin-foreign-cpu",
            named.filter(|&cpu| cpus.contains(cpu)),
            named.filter(|&cpu| cpu < 1024)
        );
        let Some(cpu) = inside else {
            return Err(violation(format!("CPU {}, which is not in {cpus}", answer.cpu)));
        };
        let alone = answer.cpus.is_empty() || answer.cpus == CpuSet::single(cpu);
        if mutate!("plugin-foreign-alone", alone, true) {
            return Ok(Place::Cpu(cpu));
        }
        Err(violation(format!("CPUs {}, which are not CPU {cpu} alone", answer.cpus)))
    }

    /// Returns a level that the plugin names, or the violation of its band.
    pub(crate) fn check_level(&self, level: i32) -> Result<u8, BoundsViolation> {
        let (Class::Fifo(Band { low, high }) | Class::Rr(Band { low, high })) = self.class else {
            return Err(BoundsViolation(format!("priority {level} in the deadline class")));
        };
        let inside = mutate!(
            "plugin-foreign-band",
            u8::try_from(level).ok().filter(|p| (low.0..=high.0).contains(p)),
            u8::try_from(level).ok()
        );
        inside.ok_or_else(|| {
            BoundsViolation(format!("priority {level}, which is not in {}-{}", low.0, high.0))
        })
    }

    /// Returns Q^a of an answer that grants `granted_ns`, as far as the access rules allow and at
    /// least Q. `params` has the period and the deadline of the answer.
    fn check_runtime(
        &self,
        ask: &PluginRequest<'_>,
        params: &Params,
        granted_ns: u64,
    ) -> Result<Option<Work>, Unusable> {
        let least = params.runtime;
        let granted = match (granted_ns, least) {
            (0, None) if !self.is_deadline() => return Ok(None),
            (0, None) => return Err(violation("no runtime for the deadline class".to_owned())),
            (0, Some(least)) => least,
            (granted_ns, _) => Work::from_ns(granted_ns),
        };
        let outside = |what: &str| {
            violation(format!("a runtime of {}, which is {what}", Span::from_ns(granted.as_ns())))
        };
        let span = params.density_span();
        if self.is_deadline() {
            let span = span.map_or(Work::ZERO, |span| Work::from_ns(span.as_ns()));
            let fits = (RUNTIME_MIN..=span).contains(&granted);
            if !mutate!("plugin-foreign-deadline-runtime", fits, true) {
                return Err(outside("not between 1024 ns and the deadline"));
            }
        }
        let least = match least {
            Some(least) => least,
            None if self.is_deadline() => RUNTIME_MIN,
            None => return Err(outside("for a task that declares none")),
        };
        let most = params.desired.or(params.runtime).unwrap_or(granted);
        if !mutate!("plugin-foreign-runtime", (least..=most).contains(&granted), true) {
            return Err(outside("not between the runtime and the desired runtime"));
        }
        let by_share = ask.cap.charge.zip(span).map(|(charge, span)| charge.of(span));
        let most = [ask.cap.runtime, by_share].into_iter().flatten().fold(granted, Work::min);
        Ok(Some(mutate!("plugin-foreign-cap", most.max(least), granted)))
    }

    /// Checks that the kernel would admit the claim.
    fn check_bandwidth(
        &self,
        context: &PluginContext<'_>,
        class: &DeadlineClass,
        claim: &Claim,
        is_current: bool,
    ) -> Result<(), Unusable> {
        let width = match claim.place {
            Place::Cpu(_) | Place::Set(_) => 1,
            Place::Domain(domain) => context.view.ledger.domain(domain).count,
        };
        let limit = class.share.times(width);
        let exceeds = |sum: Charge| sum.saturating_add(claim.bandwidth()) > limit;
        let own = context.at(claim.place).filter(|entry| entry.claim.plugin == self.base.index);
        let (own, count) = own.fold((Charge::ZERO, 0_u32), |(sum, count), entry| {
            (sum.saturating_add(entry.claim.bandwidth()), count + 1)
        });
        // Each term is rounded up by less than one unit, and the kernel rounds down.
        let own = own.saturating_sub(Charge::from_bits(u128::from(count) + 2));
        if mutate!("plugin-foreign-own-share", is_current && exceeds(own), false) {
            let sum = own.saturating_add(claim.bandwidth());
            return Err(violation(format!(
                "tasks of {sum} of a CPU, and the kernel admits {limit}"
            )));
        }
        let all = context.view.bandwidth(claim.place);
        if mutate!("plugin-foreign-share", exceeds(all), false) {
            let no = rejection(
                RejectionReason::NoRoom,
                Field::Utilization,
                claim.bandwidth().ppm(),
                limit.ppm(),
                limit.saturating_sub(all).ppm_down(),
            );
            return Err(Rejection { cpu: claim.place.cpu(), ..no }.into());
        }
        Ok(())
    }

    /// Returns the kernel policy of a spec.
    pub(crate) fn policy(&self, entry: &PlacedSpec) -> Policy {
        match self.class {
            Class::Fifo(_) => Policy::Fifo(Priority(entry.priority)),
            Class::Rr(_) => Policy::Rr(Priority(entry.priority)),
            Class::Deadline(_) => edf::policy(entry),
        }
    }

    /// Returns the kernel mechanism and its enforcement granularity.
    pub(crate) fn mechanism(&self) -> (Mechanism, Span) {
        match &self.class {
            Class::Fifo(_) => (Mechanism::Fifo, Span::ZERO),
            Class::Rr(_) => (Mechanism::Rr, Span::ZERO),
            Class::Deadline(class) => {
                let mechanism = match class.domain {
                    Some(_) => Mechanism::DeadlineGlobal,
                    None => Mechanism::DeadlinePinned,
                };
                (mechanism, class.granularity)
            }
        }
    }
}

/// Returns the deadline and the period of an answer.
fn check_terms(
    class: &DeadlineClass,
    params: &Params,
    answer: &ForeignAnswer,
) -> Result<DeadlineTerms, Unusable> {
    let chosen = |ns: u64| (ns > 0).then(|| Span::from_ns(ns));
    let Some(period) = chosen(answer.period_ns).or(params.period) else {
        return Err(violation("no period for the deadline class".to_owned()));
    };
    let own = params.deadline.map_or(period, |deadline| deadline.min(period));
    let deadline = chosen(answer.deadline_ns).unwrap_or(own);
    let (low, high) = class.period;
    let within = (low..=high).contains(&period)
        && params.period.is_none_or(|declared| period <= declared)
        && deadline <= own;
    if mutate!("plugin-foreign-terms", within, true) {
        return Ok(DeadlineTerms { deadline, period });
    }
    Err(violation(format!(
        "a deadline of {deadline} and a period of {period}, which are not within those of the task \
         and of the kernel"
    )))
}

/// Checks that the deadline-class tasks of other plugins keep their guarantee: all densities at the
/// place are within the kernel's share.
fn check_beside(
    context: &PluginContext<'_>,
    class: &DeadlineClass,
    claim: &Claim,
    ask: &PluginRequest<'_>,
) -> Result<(), Rejection> {
    let other = |entry: &PlacedSpec| entry.claim.deadline && entry.claim.plugin != claim.plugin;
    if ask.ignore_admission || !context.at(claim.place).any(other) {
        return Ok(());
    }
    let share = class.share.min(Charge::ONE);
    let fits = match claim.place {
        Place::Cpu(cpu) => context.view.fits(cpu, claim, share),
        Place::Domain(domain) => context.view.fits_globally(domain, claim, share),
        Place::Set(_) => unreachable!("a deadline task is on no set"),
    };
    if mutate!("plugin-foreign-beside", fits, true) {
        return Ok(());
    }
    let (asked, limit) = (claim.charge.ppm(), share.ppm());
    let reason = RejectionReason::WouldBreakOthers;
    let no = rejection(reason, Field::Utilization, asked, limit, 0);
    Err(Rejection { cpu: claim.place.cpu(), ..no })
}

/// Checks that every guarantee of `rm` plugins still holds with `candidate`.
fn check_guarantees(
    context: &PluginContext<'_>,
    candidate: &HigherPriorityTask,
) -> Result<(), Rejection> {
    let borne = match context.check_guarantees(candidate, TestDepth::Bounds) {
        Err(broken) if broken.undecided => context.check_guarantees(candidate, TestDepth::Exact),
        said => said,
    };
    borne.map_err(|broken| fp::guarantee_rejection(context, candidate, &broken))
}
