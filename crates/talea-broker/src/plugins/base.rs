//! Common part of all plugins: the data of an accepted spec, the choice of CPUs, and rejections.

use crate::ledger::{Claim, Place};
use crate::plugin::{DeadlineTerms, Offer, PluginRequest, Verdict};
use talea_core::setup::Band;
use talea_core::{Charge, CpuSet, Params, Span, Work, mutate};
use talea_proto::message::Notes;
use talea_proto::refusal::RejectionReason;
use talea_proto::{Field, Rejection};

/// Accepted spec in the plugin set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedSpec {
    /// Ledger entry of the spec.
    pub(crate) claim: Claim,
    /// Requested parameters.
    pub(crate) params: Params,
    /// Accepted runtime Q^a; `None` if the task declares no runtime.
    pub(crate) runtime: Option<Work>,
    /// Permanent notes; the others are computed on demand.
    pub(crate) notes: Notes,
    /// Priority assigned by a foreign plugin; otherwise 0.
    pub(crate) priority: u8,
    /// Whether a thread has the attributes of the spec.
    pub(crate) attached: bool,
    /// Kernel priority that the thread has, as far as known.
    pub(crate) applied: u8,
    /// Index of the spec in the list of its place.
    pub(crate) place_index: u32,
}

/// Common part of all plugins.
#[derive(Clone, Debug)]
pub(crate) struct PluginBase {
    /// Index of the plugin, in order of precedence.
    pub(crate) index: u32,
    /// CPUs on which the plugin may place tasks.
    pub(crate) cpus: CpuSet,
    /// Whether FIFO and RR are available on this machine.
    pub(crate) fifo: bool,
}

impl PluginBase {
    /// Returns the plugin's CPUs that the client accepts, that the thread may use, that are on-line
    /// and that no executor has reserved.
    pub(crate) fn cpus_for(&self, ask: &PluginRequest<'_>) -> CpuSet {
        let cpus =
            if ask.allowed.is_empty() { self.cpus } else { self.cpus.intersection(&ask.allowed) };
        let mask = &ask.thread.cpus;
        let inside = if mask.is_empty() { cpus } else { cpus.intersection(mask) };
        let inside = inside.difference(&ask.thread.reserved);
        let inside = mutate!("offline-place", inside.difference(&ask.thread.offline), inside);
        mutate!("plugin-mask", inside, cpus)
    }

    /// Checks that the task may run on every CPU of the plugin.
    pub(crate) fn check_all_cpus(&self, ask: &PluginRequest<'_>) -> Result<(), Rejection> {
        if !ask.allowed.is_empty() && !self.cpus.is_subset(&ask.allowed) {
            return Err(no_cpu_rejection(ask, &self.cpus.difference(&ask.allowed)));
        }
        if let Some(cpu) = self.cpus.intersection(&ask.thread.reserved).iter().next() {
            return Err(reserved_rejection(ask, cpu));
        }
        if let Some(cpu) = self.cpus.intersection(&ask.thread.offline).iter().next() {
            return Err(offline_rejection(cpu));
        }
        if !ask.thread.covers(&self.cpus) {
            return Err(Rejection::outside_mask(&ask.thread.cpus));
        }
        Ok(())
    }

    /// Returns the CPUs for a task under a FIFO or RR policy, or the rejection if there are none.
    pub(crate) fn fifo_cpus_for(&self, ask: &PluginRequest<'_>) -> Result<CpuSet, Rejection> {
        if !self.fifo {
            return Err(rejection(RejectionReason::Unsupported, Field::Request, 0, 0, 0));
        }
        if !ask.thread.fifo {
            return Err(rejection(RejectionReason::NoRealTimeGroup, Field::Thread, 0, 0, 0));
        }
        let (needs, limit) = (ask.params.runtime, ask.thread.rt_time.map_or(0, Work::as_ns));
        if !mutate!("plugin-time-limit", ask.thread.has_time_for(needs), true) {
            let needs = needs.map_or(0, Work::as_ns);
            return Err(rejection(RejectionReason::TimeLimit, Field::Thread, needs, limit, 0));
        }
        let cpus = self.cpus_for(ask);
        if cpus.is_empty() { Err(no_cpu_rejection(ask, &self.cpus)) } else { Ok(cpus) }
    }

    /// Returns the note for a placement on `cpu`, or else on all CPUs of the plugin, outside the
    /// preferred CPUs.
    pub(crate) fn preference_notes(&self, ask: &PluginRequest<'_>, cpu: Option<u32>) -> Notes {
        let inside = |cpu| ask.preferred.contains(cpu);
        if ask.preferred.is_empty()
            || cpu.map_or_else(|| self.cpus.is_subset(&ask.preferred), inside)
        {
            Notes::default()
        } else {
            Notes::PREFERRED_CPUS_IGNORED
        }
    }
}

/// Task with a higher kernel priority than others on its CPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HigherPriorityTask {
    /// Index of the task's plugin.
    pub(crate) plugin: u32,
    /// Place of the task.
    pub(crate) place: Place,
    /// Work in nanoseconds; 0 if unknown.
    pub(crate) work_ns: u64,
    /// Shorter of period and deadline, min(T, D), in nanoseconds.
    pub(crate) span_ns: u64,
    /// Period T in nanoseconds.
    pub(crate) period_ns: u64,
}

/// Returns the parameters with the deadline and the period that a foreign plugin has chosen.
pub(crate) fn with_terms(params: &Params, terms: Option<DeadlineTerms>) -> Params {
    let Some(DeadlineTerms { deadline, period }) = terms else { return *params };
    Params { deadline: Some(deadline), period: Some(period), ..*params }
}

/// Returns the claim of a task with `offer` in plugin `plugin` at `place`.
pub(crate) fn claim(
    plugin: u32,
    place: Place,
    params: &Params,
    offer: &Offer,
    deadline: bool,
) -> Claim {
    let known = offer.runtime.zip(params.density_span()).filter(|(_, span)| !span.is_zero());
    let period = params.period.filter(|period| !period.is_zero());
    let rate = known.map(|(work, span)| (work, period.unwrap_or(span)));
    Claim {
        plugin,
        place,
        charge: offer.charge,
        work_ns: known.map_or(0, |(work, _)| work.as_ns()),
        span_ns: known.map_or(1, |(_, span)| span.as_ns()),
        period_ns: rate.map_or(1, |(_, period)| period.as_ns()),
        rate: rate.map_or(Charge::ZERO, |(work, period)| Charge::new(work, period)),
        deadline,
        unproved: known.is_none() || offer.notes.contains(Notes::ADMISSION_IGNORED),
    }
}

/// Returns a rejection without a CPU.
pub(crate) fn rejection(
    reason: RejectionReason,
    field: Field,
    asked: u64,
    limit: u64,
    fits: u64,
) -> Rejection {
    Rejection { reason, field, cpu: None, asked, limit, fits, witness: None }
}

/// Returns the rejection for a missing mandatory parameter.
pub(crate) fn missing_parameter(field: Field) -> Verdict {
    Verdict::No(rejection(RejectionReason::Missing, field, 0, 0, 0))
}

/// Returns the rejection for a request that accepts none of the plugin's CPUs: the first requested
/// CPU and the first available one, or the mask of the thread if that is the reason.
pub(crate) fn no_cpu_rejection(ask: &PluginRequest<'_>, cpus: &CpuSet) -> Rejection {
    let open = if ask.allowed.is_empty() { *cpus } else { ask.allowed.intersection(cpus) };
    let mask = &ask.thread.cpus;
    let usable = if mask.is_empty() { open } else { open.intersection(mask) };
    if let Some(cpu) = usable.intersection(&ask.thread.reserved).iter().next() {
        return reserved_rejection(ask, cpu);
    }
    if let Some(cpu) = usable.intersection(&ask.thread.offline).iter().next() {
        return offline_rejection(cpu);
    }
    if !open.is_empty() {
        return Rejection::outside_mask(&ask.thread.cpus);
    }
    let first = |set: &CpuSet| set.iter().next().unwrap_or(0).into();
    rejection(RejectionReason::NoCpu, Field::Cpus, first(&ask.allowed), first(cpus), first(cpus))
}

/// Returns the rejection for a CPU that an executor has reserved.
pub(crate) fn reserved_rejection(ask: &PluginRequest<'_>, cpu: u32) -> Rejection {
    let executor = ask.thread.executor.into();
    rejection(RejectionReason::Reserved, Field::Cpus, executor, cpu.into(), 0)
}

/// Returns the rejection for a CPU that is off-line.
pub(crate) fn offline_rejection(cpu: u32) -> Rejection {
    rejection(RejectionReason::Offline, Field::Cpus, 0, cpu.into(), 0)
}

/// Maximum time in a plugin's calculations, in nanoseconds: 292 years.
const MAX_TIME_NS: u64 = i64::MAX as u64;

/// Checks the consistency of the parameters, independent of the plugin.
pub(crate) fn validate(params: &Params) -> Result<(), Rejection> {
    let times = [
        (Field::Period, params.period.map(Span::as_ns)),
        (Field::Runtime, params.runtime.map(Work::as_ns)),
        (Field::Desired, params.desired.map(Work::as_ns)),
        (Field::Deadline, params.deadline.map(Span::as_ns)),
    ];
    for (field, ns) in times {
        match ns {
            Some(0) => return Err(rejection(RejectionReason::OutOfRange, field, 0, 1, 1)),
            Some(ns) if ns > MAX_TIME_NS => {
                return Err(rejection(
                    RejectionReason::OutOfRange,
                    field,
                    ns,
                    MAX_TIME_NS,
                    MAX_TIME_NS,
                ));
            }
            _ => {}
        }
    }
    if let (Some(runtime), Some(span)) = (params.runtime, params.density_span()) {
        let (runtime, span) = (runtime.as_ns(), span.as_ns());
        if runtime > span {
            return Err(rejection(
                RejectionReason::Contradiction,
                Field::Runtime,
                runtime,
                span,
                span,
            ));
        }
    }
    match (params.runtime, params.desired) {
        (Some(runtime), Some(desired)) if desired < runtime => {
            let (desired, runtime) = (desired.as_ns(), runtime.as_ns());
            Err(rejection(
                RejectionReason::Contradiction,
                Field::Desired,
                desired,
                runtime,
                runtime,
            ))
        }
        _ => Ok(()),
    }
}

/// Returns the note for a runtime below the desired one.
pub(crate) fn desired_notes(params: &Params, runtime: Option<Work>) -> Notes {
    let less =
        params.desired.is_some_and(|desired| runtime.is_some_and(|runtime| runtime < desired));
    if less { Notes::BELOW_DESIRED } else { Notes::default() }
}

/// Returns the band of a plugin on one CPU. If its highest level is the lowest level of another
/// plugin, it loses that level, so that precedence does not depend on the order of arrival (ReTiF's
/// Listing 2 has such a pair: 50-99 above 1-50).
pub(crate) fn narrowed(band: Band, others: impl Iterator<Item = Band>) -> Band {
    let met = |other: Band| other.low == band.high && other.high.outranks(band.high);
    let mut others = others;
    if band.high.outranks(band.low) && others.any(met) {
        return Band { low: band.low, high: talea_core::Priority(band.high.0 - 1) };
    }
    band
}
