//! Plugins: one file each, implementing ReTiF's Table 4 as pure functions, and the closed list of
//! all plugins.
//!
//! A plugin decides whether it can serve a task, where, and at what charge ([`Plugin::ask`]). It
//! keeps the data that it needs of its tasks ([`Plugin::add_spec`], [`Plugin::remove_spec`]), and
//! returns the kernel attributes for each of them. It never makes a system call. The obligations
//! between plugins are in the shared ledger: see [`crate::plugin_set`]. To add a plugin: a file, a
//! variant of `talea_core::setup::PluginKind`, a variant here, and every place that the compiler
//! then reports; [`fp`] is the shortest example.

pub(crate) mod edf;
pub(crate) mod foreign;
pub(crate) mod fp;
pub(crate) mod place;
pub(crate) mod rm;

use crate::exact_test::{ExactTestBudget, NotProved, TestDepth};
use crate::ledger::{Claim, Place, View};
use crate::placements::SlotsByPlace;
use crate::plugin::{DeadlineTerms, Offer, PluginRequest, Verdict};
use edf::Edf;
use foreign::Foreign;
use fp::Fp;
use rm::Rm;
use talea_core::mutate;
use talea_core::setup::Band;
use talea_core::{Charge, CpuSet, Params, Policy, Span, Work};
use talea_proto::message::{Mechanism, Notes};
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

    /// Returns the note for a placement outside the preferred CPUs.
    pub(crate) fn preference_notes(ask: &PluginRequest<'_>, cpu: u32) -> Notes {
        if ask.preferred.is_empty() || ask.preferred.contains(cpu) {
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

/// Data for an admission test: the ledger without the spec to be replaced, and all plugins.
#[derive(Clone, Copy)]
pub(crate) struct PluginContext<'a> {
    /// View of the ledger.
    pub(crate) view: View<'a>,
    /// Spec treated as released.
    pub(crate) leaving: Option<&'a PlacedSpec>,
    /// `plugins[p]`: plugin `p`.
    pub(crate) plugins: &'a [Plugin],
    /// `specs[slot]`: spec in `slot`.
    pub(crate) specs: &'a [Option<PlacedSpec>],
    /// Slots of the specs at each place.
    pub(crate) placements: &'a SlotsByPlace,
    /// Exact tests left for the request.
    pub(crate) exact_tests: &'a ExactTestBudget,
}

impl<'a> PluginContext<'a> {
    /// Iterates over the specs at `place`, without the spec to be replaced.
    pub(crate) fn at(&self, place: Place) -> impl Iterator<Item = &'a PlacedSpec> {
        let (specs, leaving) = (self.specs, self.leaving);
        let here =
            self.placements.at(place).iter().filter_map(|&slot| specs[slot as usize].as_ref());
        here.filter(move |entry| !leaving.is_some_and(|leaving| std::ptr::eq(leaving, *entry)))
    }

    /// Checks that every guarantee of `rm` plugins still holds with `candidate`. An undecided
    /// result means that no other guarantee is broken.
    pub(crate) fn check_guarantees(
        &self,
        candidate: &HigherPriorityTask,
        depth: TestDepth,
    ) -> Result<(), NotProved> {
        let mut verdict = Ok(());
        if candidate.work_ns == 0 {
            return verdict;
        }
        for (rm, cpu) in self.below(candidate) {
            match rm.check_guarantee(self, cpu, candidate, depth) {
                Ok(()) => {}
                Err(undecided) if undecided.undecided => verdict = Err(undecided),
                broken => return broken,
            }
        }
        verdict
    }

    /// Returns the maximum work, in nanoseconds, of a task like `candidate` so that
    /// [`PluginContext::check_guarantees`] passes by sums alone; rounded down.
    pub(crate) fn spare_work(&self, candidate: &HigherPriorityTask) -> u64 {
        let rooms = self.below(candidate).map(|(rm, cpu)| rm.spare_work(self, cpu, candidate));
        u64::try_from(rooms.min().unwrap_or(u128::MAX)).unwrap_or(u64::MAX)
    }

    fn below(&self, candidate: &HigherPriorityTask) -> impl Iterator<Item = (&'a Rm, u32)> {
        let (single, domain) = match candidate.place {
            Place::Cpu(cpu) => (Some(cpu), None),
            Place::Domain(domain) => (None, Some(self.view.ledger.domain(domain))),
        };
        let candidate = *candidate;
        self.plugins.iter().filter_map(Plugin::as_rm).flat_map(move |rm| {
            let cpus =
                single.into_iter().chain(domain.into_iter().flat_map(|domain| domain.cpus.iter()));
            cpus.filter(move |&cpu| rm.is_outranked(cpu, candidate.plugin, candidate.place))
                .map(move |cpu| (rm, cpu))
        })
    }
}

/// Closed list of all plugins.
#[derive(Clone, Debug)]
pub(crate) enum Plugin {
    /// `edf`.
    Edf(Edf),
    /// `rm`.
    Rm(Box<Rm>),
    /// `fp` and `rr`.
    Fp(Fp),
    /// A shared object in a process of its own.
    Foreign(Foreign),
}

impl Plugin {
    fn base(&self) -> &PluginBase {
        match self {
            Plugin::Edf(edf) => &edf.base,
            Plugin::Rm(rm) => &rm.base,
            Plugin::Fp(fp) => &fp.base,
            Plugin::Foreign(foreign) => &foreign.base,
        }
    }

    pub(crate) fn as_rm(&self) -> Option<&Rm> {
        match self {
            Plugin::Rm(rm) => Some(rm),
            _ => None,
        }
    }

    pub(crate) fn as_rm_mut(&mut self) -> Option<&mut Rm> {
        match self {
            Plugin::Rm(rm) => Some(rm),
            _ => None,
        }
    }

    /// Returns the CPUs on which the plugin may place tasks.
    pub(crate) fn cpus(&self) -> CpuSet {
        self.base().cpus
    }

    /// Whether the plugin's threads have the deadline class.
    pub(crate) fn is_deadline(&self) -> bool {
        match self {
            Plugin::Edf(_) => true,
            Plugin::Foreign(foreign) => foreign.is_deadline(),
            Plugin::Rm(_) | Plugin::Fp(_) => false,
        }
    }

    /// Returns the CPUs on which the plugin may place this request.
    pub(crate) fn cpus_for(&self, ask: &PluginRequest<'_>) -> CpuSet {
        self.base().cpus_for(ask)
    }

    /// Returns the verdict for a request (`accept` and `change`).
    pub(crate) fn ask(&self, context: &PluginContext<'_>, ask: &PluginRequest<'_>) -> Verdict {
        if let Err(no) = validate(ask.params) {
            return Verdict::No(no);
        }
        match self {
            Plugin::Edf(edf) => edf.ask(context, ask),
            Plugin::Rm(rm) => rm.ask(context, ask),
            Plugin::Fp(fp) => fp.ask(context, ask),
            // The driver calls a foreign plugin and the plugin set checks its answer.
            Plugin::Foreign(_) => {
                Verdict::No(rejection(RejectionReason::Foreign, Field::Plugin, 0, 0, 0))
            }
        }
    }

    /// Returns the domain of global claims of this plugin; `None` if its claims are on single CPUs.
    pub(crate) fn domain(&self) -> Option<u32> {
        match self {
            Plugin::Edf(edf) => edf.domain(),
            Plugin::Foreign(foreign) => foreign.domain(),
            _ => None,
        }
    }

    /// Adds a spec to this plugin (`schedule`). `moved` gets the slots with a changed kernel
    /// priority.
    pub(crate) fn add_spec(&mut self, entry: &PlacedSpec, moved: &mut Vec<u32>) {
        match self {
            Plugin::Rm(rm) => rm.add_spec(entry, moved),
            Plugin::Fp(fp) => fp.add_spec(entry, moved),
            Plugin::Edf(_) | Plugin::Foreign(_) => {}
        }
    }

    /// Removes a spec from this plugin (`release`).
    pub(crate) fn remove_spec(&mut self, entry: &PlacedSpec, moved: &mut Vec<u32>) {
        match self {
            Plugin::Rm(rm) => rm.remove_spec(entry, moved),
            Plugin::Fp(fp) => fp.remove_spec(entry, moved),
            Plugin::Edf(_) | Plugin::Foreign(_) => {}
        }
    }

    /// Replaces `old` by `new` if no kernel priority depends on the difference; returns whether it
    /// did.
    pub(crate) fn exchange(&mut self, old: &PlacedSpec, new: &PlacedSpec) -> bool {
        match self {
            Plugin::Rm(rm) => rm.exchange(old, new),
            Plugin::Fp(fp) => fp.exchange(old, new),
            Plugin::Edf(_) | Plugin::Foreign(_) => false,
        }
    }

    /// Records whether a thread has the attributes of the spec.
    pub(crate) fn attach(&mut self, entry: &PlacedSpec, slot: u32, attached: bool) {
        match self {
            Plugin::Rm(rm) => rm.attach(entry, slot, attached),
            Plugin::Fp(fp) => fp.attach(entry, slot, attached),
            Plugin::Edf(_) | Plugin::Foreign(_) => {}
        }
    }

    /// Returns the current kernel priority; 0 for the deadline class.
    pub(crate) fn priority(&self, entry: &PlacedSpec) -> u8 {
        match self {
            Plugin::Edf(_) => 0,
            Plugin::Rm(rm) => rm.priority(entry),
            Plugin::Fp(fp) => fp.priority(entry),
            Plugin::Foreign(_) => entry.priority,
        }
    }

    /// Returns the current kernel policy.
    pub(crate) fn policy(&self, entry: &PlacedSpec) -> Policy {
        match self {
            Plugin::Edf(_) => edf::policy(entry),
            Plugin::Rm(rm) => Policy::Fifo(talea_core::Priority(rm.priority(entry))),
            Plugin::Fp(fp) => fp.policy(entry),
            Plugin::Foreign(foreign) => foreign.policy(entry),
        }
    }

    /// Returns the kernel mechanism and its enforcement granularity.
    pub(crate) fn mechanism(&self) -> (Mechanism, Span) {
        match self {
            Plugin::Edf(edf) => edf.mechanism(),
            Plugin::Rm(_) => (Mechanism::Fifo, Span::ZERO),
            Plugin::Fp(fp) => (fp.mechanism(), Span::ZERO),
            Plugin::Foreign(foreign) => foreign.mechanism(),
        }
    }

    /// Returns the current remarks for the holder.
    pub(crate) fn notes(&self, context: &PluginContext<'_>, entry: &PlacedSpec) -> Notes {
        entry.notes.with(match self {
            Plugin::Edf(_) => edf::notes(context, entry),
            Plugin::Rm(rm) => rm.notes(context, entry),
            Plugin::Fp(fp) => Notes::NOT_PROVED.with(fp.notes(entry)),
            Plugin::Foreign(_) => Notes::NOT_PROVED,
        })
    }

    /// Returns the permanent notes of a task of these parameters.
    pub(crate) fn lasting_notes(&self, params: &Params, runtime: Option<Work>) -> Notes {
        desired_notes(params, runtime).with(match self {
            Plugin::Edf(_) => Notes::default(),
            Plugin::Rm(_) => rm::lasting_notes(params),
            Plugin::Foreign(foreign) if foreign.is_deadline() => Notes::default(),
            Plugin::Fp(_) | Plugin::Foreign(_) => Notes::BUDGET_NOT_ENFORCED,
        })
    }

    /// Returns the charge that could still be granted on a CPU: an upper bound for a task with a
    /// span of its own.
    pub(crate) fn free(&self, context: &PluginContext<'_>, cpu: u32) -> Charge {
        match self {
            Plugin::Edf(edf) => edf.free(context, cpu),
            Plugin::Rm(rm) => rm.free(context, cpu),
            Plugin::Fp(_) | Plugin::Foreign(_) => {
                Charge::ONE.saturating_sub(context.view.load(cpu))
            }
        }
    }
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
