//! A shared object in a process of its own: its answers, held against its bounds (checklist R18).
//!
//! The question travels by the driver. What comes back names a CPU and a kernel priority; both must
//! lie where the administrator and the client allow, or it is a lie and the plugin is no longer
//! believed. The charge is ours to compute, and what other plugins have promised is ours to defend.

use super::{Core, Entry, World, desired_notes, fp, no, sound};
use crate::exact::Depth;
use crate::input::ForeignAnswer;
use crate::ledger::Place;
use crate::plugin::{Ask, Offer, Verdict};
use crate::suite::Lie;
use talea_core::mutate;
use talea_core::setup::{Band, ForeignClass};
use talea_core::{Charge, Policy, Priority, Span};
use talea_proto::Field;
use talea_proto::message::{Mechanism, Notes};
use talea_proto::refusal::Reason;

/// The plugin.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    /// What all plugins are made of.
    pub(crate) core: Core,
    band: Band,
    class: ForeignClass,
    /// How long an answer may take.
    pub(crate) timeout: Span,
}

impl Foreign {
    /// With its band, kernel class and patience.
    pub(crate) fn new(core: Core, band: Band, class: ForeignClass, timeout: Span) -> Foreign {
        Foreign { core, band, class, timeout }
    }

    /// What an answer amounts to.
    pub(crate) fn judge(
        &self,
        world: &World<'_>,
        ask: &Ask<'_>,
        answer: &ForeignAnswer,
    ) -> Result<Verdict, Lie> {
        if let Err(no) = sound(ask.params) {
            return Ok(Verdict::No(no));
        }
        let cpus = match self.core.fifo_cpus_for(ask) {
            Ok(cpus) => cpus,
            Err(no) => return Ok(Verdict::No(no)),
        };
        let partial = match answer.verdict {
            1 => Notes::default(),
            0 => Notes::PARTIAL,
            -1 => return Ok(Verdict::No(no(Reason::Foreign, Field::Plugin, 0, 0, 0))),
            other => return Err(Lie(format!("verdict {other}, which is none of 1, 0 and -1"))),
        };
        let cpu = mutate!(
            "plugin-foreign-cpu",
            u32::try_from(answer.cpu).ok().filter(|&cpu| cpus.contains(cpu)),
            u32::try_from(answer.cpu).ok()
        );
        let Some(cpu) = cpu else {
            return Err(Lie(format!("CPU {}, which is none of {cpus}", answer.cpu)));
        };
        let Band { low, high } = self.band;
        let priority = mutate!(
            "plugin-foreign-band",
            u8::try_from(answer.priority).ok().filter(|p| (low.0..=high.0).contains(p)),
            u8::try_from(answer.priority).ok()
        );
        let Some(priority) = priority else {
            return Err(Lie(format!(
                "priority {}, which is not in {}-{}",
                answer.priority, low.0, high.0
            )));
        };
        let coming = fp::coming(self.core.index, Place::Cpu(cpu), ask.params);
        let borne = match world.bear(&coming, Depth::Bounds) {
            Err(broken) if broken.open => world.bear(&coming, Depth::Exact),
            said => said,
        };
        if let Err(broken) = &borne
            && !ask.ignore_admission
        {
            return Ok(Verdict::No(fp::would_break(world, &coming, broken)));
        }
        let runtime = ask.params.runtime;
        let offer = Offer {
            cpu: Some(cpu),
            runtime,
            charge: runtime.and_then(|q| ask.params.charge_of(q)).unwrap_or(Charge::ZERO),
            notes: Notes::NOT_PROVED
                .with(Notes::BUDGET_NOT_ENFORCED)
                .with(desired_notes(ask.params, runtime))
                .with(Core::wish_notes(ask, cpu))
                .with(if borne.is_ok() { Notes::default() } else { Notes::ADMISSION_IGNORED })
                .with(partial),
            priority,
        };
        Ok(if partial == Notes::PARTIAL { Verdict::Partial(offer) } else { Verdict::Ok(offer) })
    }

    /// The kernel's policy.
    pub(crate) fn policy(&self, entry: &Entry) -> Policy {
        match self.class {
            ForeignClass::Fifo => Policy::Fifo(Priority(entry.priority)),
            ForeignClass::Rr => Policy::Rr(Priority(entry.priority)),
        }
    }

    /// How the kernel enforces it.
    pub(crate) fn mechanism(&self) -> Mechanism {
        match self.class {
            ForeignClass::Fifo => Mechanism::Fifo,
            ForeignClass::Rr => Mechanism::Rr,
        }
    }
}
