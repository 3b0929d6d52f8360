//! Foreign plugin: a shared object in a process of its own; its answers are checked against its
//! bounds (R18).
//!
//! The driver makes the call. The answer names a CPU and a kernel priority, which must be within
//! the limits of the administrator and the client. Any other answer violates the protocol and takes
//! the plugin out of service. The broker computes the charge and protects the guarantees of other
//! plugins.

use super::{PlacedSpec, PluginBase, PluginContext, desired_notes, fp, rejection, validate};
use crate::exact_test::TestDepth;
use crate::input::ForeignAnswer;
use crate::ledger::Place;
use crate::plugin::{Offer, PluginRequest, Verdict};
use crate::plugin_set::BoundsViolation;
use talea_core::mutate;
use talea_core::setup::{Band, ForeignClass};
use talea_core::{Charge, Params, Policy, Priority, Span, Work};
use talea_proto::Field;
use talea_proto::message::{Mechanism, Notes};
use talea_proto::refusal::RejectionReason;

/// A foreign plugin.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    /// Common part of all plugins.
    pub(crate) base: PluginBase,
    band: Band,
    class: ForeignClass,
    /// Time-out of a call.
    pub(crate) timeout: Span,
}

impl Foreign {
    /// Creates the plugin with its band, kernel class and time-out.
    pub(crate) fn new(base: PluginBase, band: Band, class: ForeignClass, timeout: Span) -> Foreign {
        Foreign { base, band, class, timeout }
    }

    /// Returns the verdict of an answer, or the violation of the plugin's bounds.
    pub(crate) fn check_answer(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
        answer: &ForeignAnswer,
    ) -> Result<Verdict, BoundsViolation> {
        if let Err(no) = validate(ask.params) {
            return Ok(Verdict::No(no));
        }
        let cpus = match self.base.fifo_cpus_for(ask) {
            Ok(cpus) => cpus,
            Err(no) => return Ok(Verdict::No(no)),
        };
        let partial = match answer.verdict {
            1 => Notes::default(),
            0 => Notes::PARTIAL,
            -1 => {
                return Ok(Verdict::No(rejection(
                    RejectionReason::Foreign,
                    Field::Plugin,
                    0,
                    0,
                    0,
                )));
            }
            other => {
                return Err(BoundsViolation(format!("verdict {other}, which is not 1, 0 or -1")));
            }
        };
        let cpu = mutate!(
            "plugin-foreign-cpu",
            u32::try_from(answer.cpu).ok().filter(|&cpu| cpus.contains(cpu)),
            u32::try_from(answer.cpu).ok()
        );
        let Some(cpu) = cpu else {
            return Err(BoundsViolation(format!("CPU {}, which is not in {cpus}", answer.cpu)));
        };
        let priority = self.check_level(answer.priority)?;
        let runtime = granted_runtime(ask, answer.runtime_ns)?;
        let params = Params { runtime, ..*ask.params };
        let candidate = fp::candidate(self.base.index, Place::Cpu(cpu), &params);
        let borne = match context.check_guarantees(&candidate, TestDepth::Bounds) {
            Err(broken) if broken.undecided => {
                context.check_guarantees(&candidate, TestDepth::Exact)
            }
            said => said,
        };
        if let Err(broken) = &borne
            && !ask.ignore_admission
        {
            return Ok(Verdict::No(fp::guarantee_rejection(context, &candidate, broken)));
        }
        let offer = Offer {
            cpu: Some(cpu),
            runtime,
            charge: runtime.and_then(|q| ask.params.charge_of(q)).unwrap_or(Charge::ZERO),
            notes: Notes::NOT_PROVED
                .with(Notes::BUDGET_NOT_ENFORCED)
                .with(desired_notes(ask.params, runtime))
                .with(PluginBase::preference_notes(ask, cpu))
                .with(if borne.is_ok() { Notes::default() } else { Notes::ADMISSION_IGNORED })
                .with(partial),
            priority,
        };
        Ok(if partial == Notes::PARTIAL { Verdict::Partial(offer) } else { Verdict::Ok(offer) })
    }

    /// Returns a level that the plugin names, or the violation of its band.
    pub(crate) fn check_level(&self, level: i32) -> Result<u8, BoundsViolation> {
        let Band { low, high } = self.band;
        let inside = mutate!(
            "plugin-foreign-band",
            u8::try_from(level).ok().filter(|p| (low.0..=high.0).contains(p)),
            u8::try_from(level).ok()
        );
        inside.ok_or_else(|| {
            BoundsViolation(format!("priority {level}, which is not in {}-{}", low.0, high.0))
        })
    }

    /// Returns the kernel policy of a spec.
    pub(crate) fn policy(&self, entry: &PlacedSpec) -> Policy {
        match self.class {
            ForeignClass::Fifo => Policy::Fifo(Priority(entry.priority)),
            ForeignClass::Rr => Policy::Rr(Priority(entry.priority)),
        }
    }

    /// Returns the kernel mechanism.
    pub(crate) fn mechanism(&self) -> Mechanism {
        match self.class {
            ForeignClass::Fifo => Mechanism::Fifo,
            ForeignClass::Rr => Mechanism::Rr,
        }
    }
}

/// Returns Q^a of an answer that grants `granted_ns`, as far as the access rules allow and at least
/// Q; or the violation of its bounds, Q and Q^d.
fn granted_runtime(
    ask: &PluginRequest<'_>,
    granted_ns: u64,
) -> Result<Option<Work>, BoundsViolation> {
    let params = ask.params;
    if granted_ns == 0 {
        return Ok(params.runtime);
    }
    let granted = Work::from_ns(granted_ns);
    let bounds = params.runtime.map(|least| (least, params.desired.unwrap_or(least)));
    let bounds = mutate!(
        "plugin-foreign-runtime",
        bounds.filter(|(least, most)| (*least..=*most).contains(&granted)),
        bounds
    );
    let Some((least, _)) = bounds else {
        return Err(BoundsViolation(format!(
            "a runtime of {}, which is not between the runtime and the desired runtime",
            Span::from_ns(granted_ns)
        )));
    };
    let by_share = ask.cap.charge.zip(params.density_span()).map(|(charge, span)| charge.of(span));
    let most = [ask.cap.runtime, by_share].into_iter().flatten().fold(granted, Work::min);
    Ok(Some(mutate!("plugin-foreign-cap", most.max(least), granted)))
}
