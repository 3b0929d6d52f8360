//! Plugins: one file each, implementing ReTiF's Table 4 as pure functions, and the closed list of
//! all plugins.
//!
//! A plugin decides whether it can serve a task, where, and at what charge ([`Plugin::ask`]). It
//! keeps the data that it needs of its tasks ([`Plugin::add_spec`], [`Plugin::remove_spec`]), and
//! returns the kernel attributes for each of them. It never makes a system call. The obligations
//! between plugins are in the shared ledger: see [`crate::plugin_set`]. To add a plugin: a file, a
//! variant of `talea_core::setup::PluginKind`, a variant here, and every place that the compiler
//! then reports; [`fp`] is the shortest example.

pub(crate) mod base;
pub(crate) mod edf;
pub(crate) mod foreign;
pub(crate) mod fp;
pub(crate) mod place;
pub(crate) mod rm;

use crate::exact_test::{ExactTestBudget, NotProved, TestDepth};
use crate::ledger::{Place, View};
use crate::placements::SlotsByPlace;
use crate::plugin::{PluginRequest, Verdict};
use base::{HigherPriorityTask, PlacedSpec, PluginBase, desired_notes, rejection, validate};
use edf::Edf;
use foreign::Foreign;
use fp::Fp;
use rm::Rm;
use talea_core::{Charge, CpuSet, Params, Policy, Span, Work};
use talea_proto::Field;
use talea_proto::message::{Mechanism, Notes};
use talea_proto::refusal::RejectionReason;

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
    /// Iterates over the specs at `place`, without the spec to be replaced. Those of a set are not
    /// at its single CPUs: the tests that list specs need only those that outrank `rm` or have the
    /// deadline class.
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
            // A set outranks no `rm` plugin.
            Place::Set(_) => (None, None),
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
    pub(crate) fn base(&self) -> &PluginBase {
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
