//! Fixed priorities on `SCHED_FIFO` (`fp`) and `SCHED_RR` (`rr`). ReTiF (JSA 2021) section 5.3.
//!
//! The requested priority is mandatory. Its order is kept (see [`crate::levels`]), its number is
//! not, because the plugin's band may differ. The order is per CPU, or common to all CPUs (`levels
//! = "common"`): then an application that moves its threads between CPUs keeps their order. A task
//! is placed on the CPU with the fewest tasks of this plugin, then the fewest tasks in total, then
//! the lowest number.
//!
//! There is no admission test, so no guarantee is proved here. A declared runtime and period are
//! entered in the ledger, and a task that would break a guarantee of a lower `rm` plugin is placed
//! elsewhere or rejected (R31). A task without a runtime cannot be tested: it is accepted, and the
//! `rm` tasks below it become "not proved".

use super::PluginContext;
use super::base::{
    HigherPriorityTask, PlacedSpec, PluginBase, desired_notes, missing_parameter, rejection,
};
use crate::exact_test::{NotProved, TestDepth, UndecidedCpus, keep_most_informative};
use crate::ledger::Place;
use crate::levels::{LevelRun, Levels, Member};
use crate::plugin::{Offer, PluginRequest, Verdict};
use crate::plugins::place::worst_fit;
use talea_core::mutate;
use talea_core::setup::{Band, FpLevels, FpOptions};
use talea_core::{Charge, Params, Policy, Priority, Span};
use talea_proto::message::{Mechanism, Notes};
use talea_proto::refusal::RejectionReason;
use talea_proto::{Field, Rejection};

/// Kernel scheduling class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// `SCHED_FIFO`.
    Fifo,
    /// `SCHED_RR`.
    Rr,
}

/// The plugins `fp` and `rr`.
#[derive(Clone, Debug)]
pub(crate) struct Fp {
    /// Common part of all plugins.
    pub(crate) base: PluginBase,
    class: Class,
    options: FpOptions,
    /// `levels[cpu]`: order of one CPU, or `levels[0]`: common order; `None` for other CPUs.
    levels: Vec<Option<Levels>>,
}

impl Fp {
    /// Creates the plugin; `band` returns the band on each CPU.
    pub(crate) fn new(
        base: PluginBase,
        class: Class,
        options: FpOptions,
        band: impl Fn(u32) -> Band,
    ) -> Fp {
        let levels = match options.levels {
            FpLevels::Each => {
                let cpus = base.cpus.iter().last().map_or(0, |cpu| cpu + 1);
                (0..cpus)
                    .map(|cpu| base.cpus.contains(cpu).then(|| Levels::new(band(cpu))))
                    .collect()
            }
            FpLevels::Common => {
                vec![base.cpus.iter().map(band).reduce(common_band).map(Levels::new)]
            }
        };
        Fp { base, class, options, levels }
    }

    fn row(&self, place: Place) -> usize {
        let Place::Cpu(cpu) = place else { unreachable!("fixed priorities are placed on CPUs") };
        match self.options.levels {
            FpLevels::Each => cpu as usize,
            FpLevels::Common => 0,
        }
    }

    fn at(&self, place: Place) -> &Levels {
        self.levels[self.row(place)].as_ref().expect("the CPU belongs to this plugin")
    }

    fn at_mut(&mut self, place: Place) -> &mut Levels {
        let row = self.row(place);
        self.levels[row].as_mut().expect("the CPU belongs to this plugin")
    }

    /// Returns the verdict for a request.
    pub(crate) fn ask(&self, context: &PluginContext<'_>, ask: &PluginRequest<'_>) -> Verdict {
        let Some(priority) = ask.params.priority else { return missing_parameter(Field::Priority) };
        if mutate!("plugin-fp-range", !(1..=99).contains(&priority.0), false) {
            let nearest = priority.0.clamp(1, 99).into();
            return Verdict::No(rejection(
                RejectionReason::OutOfRange,
                Field::Priority,
                priority.0.into(),
                nearest,
                nearest,
            ));
        }
        let cpus = match self.base.fifo_cpus_for(ask) {
            Ok(cpus) => cpus,
            Err(no) => return Verdict::No(no),
        };
        let key = key(priority);
        let view = &context.view;
        let load = |cpu| (view.specs_of(self.base.index, Place::Cpu(cpu)), view.specs(cpu), cpu);
        let (mut refused, mut ignoring): (Option<Rejection>, Option<Offer>) = (None, None);
        let mut undecided = UndecidedCpus::default();
        for cpu in worst_fit(cpus, &ask.preferred, load) {
            let place = Place::Cpu(cpu);
            let levels = self.at(place);
            let leaving = self.leaving(context, place);
            if mutate!("plugin-fp-sharing", self.options.refuse_sharing, false)
                && levels.must_share(key, leaving.as_ref())
            {
                let (asked, limit) = (levels.distinct() as u64 + 1, levels.size() as u64);
                let no = rejection(RejectionReason::NoLevel, Field::Levels, asked, limit, limit);
                refused.get_or_insert(Rejection { cpu: Some(cpu), ..no });
                continue;
            }
            let candidate = candidate(self.base.index, place, ask.params);
            let Err(broken) = context.check_guarantees(&candidate, TestDepth::Bounds) else {
                return Verdict::Ok(self.offer(context, ask, cpu, key));
            };
            if broken.undecided {
                undecided.push(cpu);
            }
            ignoring = ignoring.or_else(|| Some(self.offer(context, ask, cpu, key)));
            refused.get_or_insert_with(|| guarantee_rejection(context, &candidate, &broken));
        }
        for cpu in undecided.cpus() {
            let candidate = candidate(self.base.index, Place::Cpu(cpu), ask.params);
            match context.check_guarantees(&candidate, TestDepth::Exact) {
                Ok(()) => return Verdict::Ok(self.offer(context, ask, cpu, key)),
                Err(broken) => keep_most_informative(
                    &mut refused,
                    guarantee_rejection(context, &candidate, &broken),
                ),
            }
        }
        match ignoring.filter(|_| ask.ignore_admission) {
            Some(offer) => {
                Verdict::Ok(Offer { notes: offer.notes.with(Notes::ADMISSION_IGNORED), ..offer })
            }
            None => Verdict::No(refused.expect("a plugin has at least one CPU")),
        }
    }

    fn leaving(&self, context: &PluginContext<'_>, place: Place) -> Option<Member> {
        let ours = |entry: &&PlacedSpec| {
            entry.claim.plugin == self.base.index
                && mutate!(
                    "plugin-fp-common",
                    self.row(entry.claim.place) == self.row(place),
                    entry.claim.place == place
                )
        };
        context.leaving.filter(ours).map(member)
    }

    fn offer(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
        cpu: u32,
        key: u64,
    ) -> Offer {
        let runtime = ask.params.runtime;
        let place = Place::Cpu(cpu);
        let levels = self.at(place);
        let leaving = self.leaving(context, place);
        let candidate = Member { key, work: 0, unproved: true };
        let after = levels.after(leaving.as_ref(), Some(&candidate));
        let shared = after.new_run().is_some_and(LevelRun::is_shared);
        Offer {
            cpu: Some(cpu),
            runtime,
            charge: runtime.and_then(|q| ask.params.charge_of(q)).unwrap_or(Charge::ZERO),
            notes: Notes::NOT_PROVED
                .with(Notes::BUDGET_NOT_ENFORCED)
                .with(desired_notes(ask.params, runtime))
                .with(self.base.preference_notes(ask, Some(cpu)))
                .with(self.level_notes(shared)),
            priority: 0,
            terms: None,
        }
    }

    /// Adds a spec to this plugin.
    pub(crate) fn add_spec(&mut self, entry: &PlacedSpec, moved: &mut Vec<u32>) {
        self.at_mut(entry.claim.place).insert(&member(entry), moved);
    }

    /// Removes a spec from this plugin.
    pub(crate) fn remove_spec(&mut self, entry: &PlacedSpec, moved: &mut Vec<u32>) {
        self.at_mut(entry.claim.place).remove(&member(entry), moved);
    }

    /// Replaces `old` by `new` if both have the same CPU and priority; returns whether it did.
    pub(crate) fn exchange(&mut self, old: &PlacedSpec, new: &PlacedSpec) -> bool {
        let same = old.claim.place == new.claim.place && member(old).key == member(new).key;
        if same {
            self.at_mut(old.claim.place).exchange(&member(old), &member(new));
        }
        same
    }

    /// Records whether a thread has the attributes of the spec.
    pub(crate) fn attach(&mut self, entry: &PlacedSpec, slot: u32, attached: bool) {
        self.at_mut(entry.claim.place).attach(member(entry).key, slot, attached);
    }

    /// Returns the current kernel priority.
    pub(crate) fn priority(&self, entry: &PlacedSpec) -> u8 {
        self.at(entry.claim.place).level(member(entry).key)
    }

    /// Returns the current kernel policy.
    pub(crate) fn policy(&self, entry: &PlacedSpec) -> Policy {
        let priority = Priority(self.priority(entry));
        match self.class {
            Class::Fifo => Policy::Fifo(priority),
            Class::Rr => mutate!("plugin-rr-class", Policy::Rr(priority), Policy::Fifo(priority)),
        }
    }

    /// Returns the kernel mechanism.
    pub(crate) fn mechanism(&self) -> Mechanism {
        match self.class {
            Class::Fifo => Mechanism::Fifo,
            Class::Rr => Mechanism::Rr,
        }
    }

    /// Returns the variable notes.
    pub(crate) fn notes(&self, entry: &PlacedSpec) -> Notes {
        let levels = self.at(entry.claim.place);
        self.level_notes(levels.runs()[levels.run_of(member(entry).key)].is_shared())
    }

    /// Returns the notes of a level: whether it is shared, and whether its order spans all CPUs.
    fn level_notes(&self, is_shared: bool) -> Notes {
        let shared = if is_shared { Notes::LEVEL_SHARED } else { Notes::default() };
        match self.options.levels {
            FpLevels::Each => shared,
            FpLevels::Common => shared.with(Notes::COMMON_LEVELS),
        }
    }
}

/// Returns the levels common to two CPUs. Levels withheld for another plugin are at an end of the
/// band (`narrowed`).
fn common_band(one: Band, other: Band) -> Band {
    let (low, high) = (one.low.0.max(other.low.0), one.high.0.min(other.high.0));
    Band { low: Priority(low), high: Priority(high) }
}

fn key(priority: Priority) -> u64 {
    u64::from(mutate!("plugin-fp-order", 100 - priority.0, priority.0))
}

fn member(entry: &PlacedSpec) -> Member {
    // An adopted record may lack the priority; then the lowest one is used.
    let priority = entry.params.priority.filter(|p| (1..=99).contains(&p.0)).unwrap_or(Priority(1));
    Member { key: key(priority), work: 0, unproved: true }
}

/// Returns a task of plugin `plugin` as interference for the `rm` tasks below it.
pub(crate) fn candidate(plugin: u32, place: Place, params: &Params) -> HigherPriorityTask {
    let known = params.runtime.zip(params.density_span());
    let (work, span) = known.map_or((0, 1), |(work, span)| (work.as_ns(), span.as_ns()));
    let period = params.period.map_or(span, Span::as_ns);
    HigherPriorityTask { plugin, place, work_ns: work, span_ns: span, period_ns: period }
}

/// Returns the rejection of a task that would break guarantees, with the share that would not.
pub(crate) fn guarantee_rejection(
    context: &PluginContext<'_>,
    candidate: &HigherPriorityTask,
    broken: &NotProved,
) -> Rejection {
    let share = |work: u64| Charge::ratio(work, candidate.span_ns);
    let fits = share(context.spare_work(candidate).min(candidate.span_ns)).ppm_down();
    let asked = share(candidate.work_ns).ppm();
    let no = rejection(RejectionReason::WouldBreakOthers, Field::Utilization, asked, fits, fits);
    Rejection { cpu: candidate.place.cpu(), witness: broken.witness, ..no }
}
