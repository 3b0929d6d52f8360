//! The set of plugins: each one is asked separately, and all share one ledger.
//!
//! The broker asks a plugin ([`PluginSet::ask`] changes nothing), reserves its offer
//! ([`PluginSet::admit`]) and releases it. Specs are identified by their slot. Plugins on the same
//! CPU have obligations to each other (R31):
//!
//! - The ledger has the charges of all plugins. The load of a CPU includes them all, and `edf`
//!   keeps the total within U^thr.
//! - A task of higher kernel priority than an `rm` plugin's tasks counts as interference in its
//!   tests. It must not break the guarantees of the `rm` plugin (defined in `plugins/rm.rs`).
//!
//! Precedence between plugins depends on their bands and is fixed at the start. The deadline class
//! outranks all others. Another plugin outranks `rm` on a CPU if its highest level there is not
//! below `rm`'s lowest. If two bands share exactly one level, as 50-99 and 1-50 in ReTiF's Listing
//! 2, the lower band loses it on the CPUs that both serve.
//!
//! Every operation is O(CPUs + log n + threads with a changed kernel priority) for n specs, plus a
//! factor for `rm` plugins that share a CPU with others.
//!
//! Invariant: the ledger equals the sum over the specs and the zero-lag holds (`audit`, in tests).

mod build;
#[cfg(test)]
mod tests;

use self::build::{PluginSummary, build, confinements, summarize};
use crate::exact_test::ExactTestBudget;
use crate::input::{ForeignAnswer, Platform};
use crate::ledger::{Claim, Ledger, Place, View};
use crate::placements::SlotsByPlace;
use crate::plugin::{
    BoundsViolation, DeadlineTerms, Offer, PluginRequest, RuntimeCap, ThreadScope, Verdict,
};
use crate::plugins::base::{PlacedSpec, claim, rejection, with_terms};
use crate::plugins::edf::Confinement;
use crate::plugins::place::worst_fit;
use crate::plugins::{Plugin, PluginContext};
use crate::ungranted::RealTimeThread;
use talea_core::mutate;
use talea_core::setup::{Band, PluginKind, Setup};
use talea_core::{Attr, Charge, CpuSet, Monotonic, Policy, Priority, Span, Work};
use talea_proto::message::{CpuInfo, Mechanism, Name, Notes, PluginInfo};
use talea_proto::record::Record;
use talea_proto::refusal::RejectionReason;
use talea_proto::{Field, PLUGINS_MAX, Rejection};

/// Index of a spec in the broker's slab and in the state file; reused after release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpecSlot(pub u32);

/// Placement and attributes of a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Index of the plugin.
    pub plugin: u32,
    /// CPU of the placement; `None` for all CPUs of the plugin.
    pub cpu: Option<u32>,
    /// Accepted runtime Q^a; `None` if the task declares no runtime.
    pub runtime: Option<Work>,
    /// Charge of the spec.
    pub charge: Charge,
    /// Current kernel priority; 0 for the deadline class.
    pub priority: u8,
    /// Kernel mechanism that enforces the grant.
    pub mechanism: Mechanism,
    /// Enforcement granularity of the budget; zero if budgets are enforced exactly, or not at all
    /// (see the notes).
    pub granularity: Span,
    /// Current remarks for the holder.
    pub notes: Notes,
}

/// All plugins, in order of precedence, and their reservations.
#[derive(Clone, Debug)]
pub struct PluginSet {
    summaries: Vec<PluginSummary>,
    plugins: Vec<Plugin>,
    /// Indices of the `rm` plugins.
    rms: Vec<u32>,
    ledger: Ledger,
    specs: Vec<Option<PlacedSpec>>,
    placements: SlotsByPlace,
    /// Slots with a changed kernel priority since the last drain, possibly repeated.
    moved: Vec<u32>,
    epoch: u64,
    /// `ungranted_fifo[cpu]`: highest priority of the FIFO and RR threads without a grant that may
    /// use `cpu`; 0 if there is none.
    ungranted_fifo: Vec<u8>,
    /// Whether deadline threads without a grant exist.
    has_ungranted: bool,
}

impl PluginSet {
    /// Sets up the plugins. An error names the plugin and the reason, and must prevent the start of
    /// the daemon (ReTiF JSA 2021, section 3.4).
    pub fn new(setup: &Setup, platform: &Platform) -> Result<PluginSet, String> {
        if setup.plugins.len() > PLUGINS_MAX {
            return Err(format!(
                "{} plugins are configured; the maximum is {PLUGINS_MAX}",
                setup.plugins.len()
            ));
        }
        let mut summaries: Vec<PluginSummary> = Vec::new();
        for plugin in &setup.plugins {
            let summary = summarize(plugin, platform)
                .map_err(|why| format!("plugin {:?}: {why}", plugin.name))?;
            if summaries.iter().any(|other| other.name == summary.name) {
                return Err(format!(
                    "plugin {:?}: the name is used twice; rename one of the plugins",
                    plugin.name
                ));
            }
            summaries.push(summary);
        }
        let confinements = confinements(setup, platform)?;
        let mut domains: Vec<CpuSet> = Vec::new();
        for confinement in confinements.iter().flatten() {
            match confinement {
                Confinement::Global(cpus) if !domains.contains(cpus) => domains.push(*cpus),
                _ => {}
            }
        }
        let cpus = summaries
            .iter()
            .filter_map(|summary| summary.cpus.iter().last())
            .max()
            .map_or(0, |cpu| cpu + 1);
        let rm = setup.plugins.iter().filter(|plugin| matches!(plugin.kind, PluginKind::Rm(_)));
        let rm = rm.fold(CpuSet::EMPTY, |all, plugin| all.union(&plugin.cpus));
        // The last account is that of deadline threads without a grant.
        let mut ledger = Ledger::new(summaries.len() + 1, cpus, &domains, &rm);
        let built = (0..summaries.len())
            .map(|i| build(i, &summaries, setup, platform, confinements[i], &ledger));
        let plugins: Vec<Plugin> = built.collect();
        let rms = plugins.iter().enumerate().filter(|(_, plugin)| plugin.as_rm().is_some());
        let rms = rms.map(|(i, _)| i as u32).collect();
        for (plugin, built) in plugins.iter().enumerate() {
            if let Plugin::Foreign(foreign) = built
                && foreign.may_name_set(&plugins)
            {
                ledger.allow_set(plugin as u32, &foreign.base.cpus);
            }
        }
        let placements = SlotsByPlace::new(cpus, domains.len(), plugins.len());
        let (specs, moved) = (Vec::new(), Vec::new());
        Ok(PluginSet {
            summaries,
            plugins,
            rms,
            ledger,
            specs,
            placements,
            moved,
            epoch: 0,
            ungranted_fifo: vec![0; cpus as usize],
            has_ungranted: false,
        })
    }

    /// Returns the name of a plugin; `None` if there is no plugin of this index.
    pub(crate) fn name(&self, plugin: u32) -> Option<Name> {
        self.summaries.get(plugin as usize).map(|summary| summary.name)
    }

    /// Returns the number of plugins.
    pub fn len(&self) -> usize {
        self.plugins.len()
    }

    /// Whether there is no plugin.
    pub fn is_empty(&self) -> bool {
        self.plugins.is_empty()
    }

    /// Returns the index of the plugin of this name, if there is one.
    pub fn find(&self, name: &Name) -> Option<u32> {
        self.summaries.iter().position(|summary| summary.name == *name).map(|index| index as u32)
    }

    /// Returns the description of a plugin.
    pub fn info(&self, plugin: u32) -> PluginInfo {
        let summary = &self.summaries[plugin as usize];
        PluginInfo {
            index: plugin,
            name: summary.name,
            kind: Name::new(summary.kind).expect("the name of a kind is valid"),
            cpus: summary.cpus,
            band: summary.band.map_or((0, 0), |band| (band.low.0, band.high.0)),
            specs: summary.specs,
            out_of_service: summary.out_of_service,
        }
    }

    /// Returns the usage of a plugin on its `index`-th CPU, lowest first; `None` if it has fewer
    /// CPUs. A plugin that serves a whole root domain reports the domain's specs and free share for
    /// each of its CPUs.
    pub fn cpu_info(&self, plugin: u32, index: u32) -> Option<CpuInfo> {
        let cpu = self.summaries[plugin as usize].cpus.iter().nth(index as usize)?;
        let built = &self.plugins[plugin as usize];
        self.with_context(None, |context| {
            let place = built.domain().map_or(Place::Cpu(cpu), Place::Domain);
            Some(CpuInfo {
                cpu,
                free: built.free(context, cpu),
                used: context.view.load(cpu),
                specs: context.view.specs_of(plugin, place),
            })
        })
    }

    /// Whether the plugin runs in another process.
    pub fn is_foreign(&self, plugin: u32) -> bool {
        matches!(self.plugins[plugin as usize], Plugin::Foreign(_))
    }

    /// Returns the time-out of a foreign plugin; zero for the others.
    pub fn timeout(&self, plugin: u32) -> Span {
        match &self.plugins[plugin as usize] {
            Plugin::Foreign(foreign) => foreign.timeout,
            _ => Span::ZERO,
        }
    }

    /// Returns the epoch of the ledger, which changes whenever the answer of a plugin may change.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the CPUs on which `plugin` may place this request in place of the spec `leaving`.
    pub fn cpus_for(
        &self,
        plugin: u32,
        ask: &PluginRequest<'_>,
        leaving: Option<SpecSlot>,
    ) -> CpuSet {
        match &self.plugins[plugin as usize] {
            Plugin::Foreign(foreign) => foreign.cpus_for(ask, leaving.map(|slot| self.at(slot))),
            built => built.cpus_for(ask),
        }
    }

    /// Asks a built-in plugin as if `leaving` were released, and changes nothing. The driver calls
    /// foreign plugins, and their answers go to [`PluginSet::check_answer`].
    pub fn ask(&self, plugin: u32, ask: &PluginRequest<'_>, leaving: Option<SpecSlot>) -> Verdict {
        if self.summaries[plugin as usize].out_of_service {
            return Verdict::No(rejection(RejectionReason::OutOfService, Field::Plugin, 0, 0, 0));
        }
        let verdict = self.with_context_and_tests(leaving, ask.exact_tests, |context| {
            self.plugins[plugin as usize].ask(context, ask)
        });
        self.beside_ungranted(plugin, verdict)
    }

    /// Adds the threads without a grant to a verdict: as a note, or as the reason of a rejection.
    fn beside_ungranted(&self, plugin: u32, verdict: Verdict) -> Verdict {
        let noted = |offer: Offer| {
            let note = self.ungranted_note(plugin, offer.cpu);
            Offer { notes: offer.notes.with(note), ..offer }
        };
        match verdict {
            Verdict::Ok(offer) => Verdict::Ok(noted(offer)),
            Verdict::Partial(offer) => Verdict::Partial(noted(offer)),
            Verdict::No(no) if no.reason == RejectionReason::NoRoom && self.has_ungranted => {
                Verdict::No(Rejection { reason: RejectionReason::NoRoomBesideUngranted, ..no })
            }
            no @ Verdict::No(_) => no,
        }
    }

    fn ungranted_note(&self, plugin: u32, cpu: Option<u32>) -> Notes {
        let cpus = self.cpus_at(plugin, cpu);
        let urgent = cpus.iter().filter_map(|cpu| self.ungranted_fifo.get(cpu as usize)).max();
        let band = self.summaries[plugin as usize].band;
        let above = urgent.zip(band).is_some_and(|(&urgent, band)| urgent > band.low.0);
        if above { Notes::UNGRANTED_ABOVE } else { Notes::default() }
    }

    /// Returns the CPUs of a placement: `cpu`, or the set of the plugin. Empty for a root domain.
    pub(crate) fn cpus_at(&self, plugin: u32, cpu: Option<u32>) -> CpuSet {
        cpu.map_or_else(|| *self.ledger.set(plugin), CpuSet::single)
    }

    /// Whether deadline threads without a grant are charged.
    pub fn has_ungranted(&self) -> bool {
        self.has_ungranted
    }

    /// Returns the CPUs as places of the ledger.
    pub(crate) fn places_of(&self, cpus: &CpuSet) -> Vec<Place> {
        self.ledger.places_of(cpus)
    }

    /// Records the FIFO and RR threads without a grant.
    pub(crate) fn note_ungranted_fifo(&mut self, threads: &[RealTimeThread]) {
        self.ungranted_fifo.fill(0);
        for thread in threads {
            let (Policy::Fifo(priority) | Policy::Rr(priority)) = thread.policy else { continue };
            for cpu in &thread.cpus {
                if let Some(highest) = self.ungranted_fifo.get_mut(cpu as usize) {
                    *highest = (*highest).max(priority.0);
                }
            }
        }
    }

    /// Replaces the claims of the deadline threads without a grant; `claims` is sorted.
    pub(crate) fn replace_ungranted(&mut self, claims: &[Claim]) {
        if self.ledger.ungranted() == claims {
            return;
        }
        self.epoch += 1;
        self.has_ungranted = !claims.is_empty();
        for claim in self.ledger.remove_ungranted() {
            self.update_interference(&claim, false);
        }
        for claim in mutate!("ledger-ungranted", claims, &[]) {
            self.ledger.hold(claim, Monotonic::NEVER);
            self.update_interference(claim, true);
        }
    }

    /// Releases the zero-lag holds that end at `until` or before, and returns them in order.
    pub(crate) fn take_holds(&mut self, until: Monotonic) -> Vec<(Monotonic, Claim)> {
        let mut holds = Vec::new();
        while let Some((at, claim)) = self.ledger.pop_expired(until) {
            self.update_interference(&claim, false);
            holds.push((at, claim));
        }
        holds
    }

    /// Reverses [`PluginSet::take_holds`].
    pub(crate) fn put_holds_back(&mut self, holds: &[(Monotonic, Claim)]) {
        for (at, claim) in holds {
            self.ledger.hold(claim, *at);
            self.update_interference(claim, true);
        }
    }

    /// Returns the verdict of a foreign plugin's answer, or the violation of its bounds. Asks a
    /// built-in plugin instead.
    pub fn check_answer(
        &self,
        plugin: u32,
        ask: &PluginRequest<'_>,
        answer: &ForeignAnswer,
        leaving: Option<SpecSlot>,
    ) -> Result<Verdict, BoundsViolation> {
        if self.summaries[plugin as usize].out_of_service {
            return Ok(Verdict::No(rejection(
                RejectionReason::OutOfService,
                Field::Plugin,
                0,
                0,
                0,
            )));
        }
        match &self.plugins[plugin as usize] {
            Plugin::Foreign(foreign) => {
                let is_current = answer.epoch == self.epoch;
                let verdict = self.with_context_and_tests(leaving, ask.exact_tests, |context| {
                    foreign.check_answer(context, ask, answer, is_current)
                });
                verdict.map(|verdict| self.beside_ungranted(plugin, verdict))
            }
            _ => Ok(self.ask(plugin, ask, leaving)),
        }
    }

    /// Reserves an offer without a test.
    ///
    /// # Panics
    /// If the slot is in use.
    pub fn admit(&mut self, plugin: u32, slot: SpecSlot, ask: &PluginRequest<'_>, offer: &Offer) {
        let entry = self.entry(plugin, ask, offer);
        self.add_spec(slot, entry);
    }

    /// Replaces a spec in one step; it may move to another plugin. The caller applies the new
    /// attributes to its thread, so the spec does not appear in [`PluginSet::drain_moved`] for this
    /// change.
    ///
    /// `free_at` is the zero-lag time of the old reservation, if a thread uses the reservation. The
    /// ledger holds the part that the new reservation does not take over on the same place until
    /// then. So the spec may reuse its own share at once, and other specs may not.
    pub fn replace(
        &mut self,
        slot: SpecSlot,
        plugin: u32,
        ask: &PluginRequest<'_>,
        offer: &Offer,
        free_at: Option<Monotonic>,
    ) {
        let old = *self.at(slot);
        let new = PlacedSpec { attached: old.attached, ..self.entry(plugin, ask, offer) };
        self.epoch += 1;
        if old.claim.plugin == plugin && self.plugins[plugin as usize].exchange(&old, &new) {
            self.unreserve(&old.claim);
            self.reserve(&new.claim);
            self.specs[slot.0 as usize] =
                Some(PlacedSpec { applied: old.applied, place_index: old.place_index, ..new });
            return;
        }
        self.remove_spec(slot, free_at, Some(&new.claim));
        self.add_spec(slot, PlacedSpec { attached: false, ..new });
        if old.attached {
            self.set_attached(slot, true);
        }
    }

    /// Releases a spec. `free_at` is the zero-lag time of an attached `edf` spec, until which the
    /// ledger holds its charge (R36); `None` means now.
    ///
    /// # Panics
    /// If the slot is empty.
    pub fn release(&mut self, slot: SpecSlot, free_at: Option<Monotonic>) {
        self.remove_spec(slot, free_at, None);
    }

    /// Returns the attributes that a thread of this spec must have now.
    pub fn attr(&self, slot: SpecSlot) -> Attr {
        let entry = self.at(slot);
        let plugin = &self.plugins[entry.claim.plugin as usize];
        Attr {
            policy: plugin.policy(entry),
            reset_on_fork: mutate!("kernel-reset-on-fork", true, false),
            cpus: self.ledger.cpus_of(entry.claim.place),
        }
    }

    /// Returns the placement of a spec.
    pub fn placement(&self, slot: SpecSlot) -> Placement {
        self.placement_with(slot, |plugin, entry| {
            self.with_context(None, |context| plugin.notes(context, entry))
        })
    }

    /// Returns the placement directly after `offer` was accepted, without a zero-lag hold of an
    /// older spec. The offer was made for the current ledger, so its notes need not be computed
    /// again.
    pub fn placement_from_offer(&self, slot: SpecSlot, offer: &Offer) -> Placement {
        if self.is_foreign(self.at(slot).claim.plugin) {
            return self.placement(slot);
        }
        let placed = self.placement_with(slot, |_, _| offer.notes);
        debug_assert_eq!(placed, self.placement(slot), "the placement differs from the offer");
        placed
    }

    fn placement_with(
        &self,
        slot: SpecSlot,
        notes: impl FnOnce(&Plugin, &PlacedSpec) -> Notes,
    ) -> Placement {
        let entry = self.at(slot);
        let plugin = &self.plugins[entry.claim.plugin as usize];
        let (mechanism, granularity) = plugin.mechanism();
        Placement {
            plugin: entry.claim.plugin,
            cpu: entry.claim.place.cpu(),
            runtime: entry.runtime,
            charge: entry.claim.charge,
            priority: plugin.priority(entry),
            mechanism,
            granularity,
            notes: notes(plugin, entry)
                .with(self.ungranted_note(entry.claim.plugin, entry.claim.place.cpu())),
        }
    }

    /// Records whether a thread has the attributes of [`PluginSet::attr`]; only such specs appear
    /// in [`PluginSet::drain_moved`].
    pub fn set_attached(&mut self, slot: SpecSlot, attached: bool) {
        let mut entry = *self.at(slot);
        let plugin = &mut self.plugins[entry.claim.plugin as usize];
        if entry.attached != attached {
            plugin.attach(&entry, slot.0, attached);
        }
        entry.attached = attached;
        entry.applied = plugin.priority(&entry);
        self.specs[slot.0 as usize] = Some(entry);
    }

    /// Fills `moved` with the attached specs whose attributes differ from those at the last drain
    /// (or at the attach), in no particular order. A change that was reverted does not appear.
    pub fn drain_moved(&mut self, moved: &mut Vec<SpecSlot>) {
        moved.clear();
        for slot in self.moved.drain(..) {
            let Some(entry) = self.specs.get_mut(slot as usize).and_then(Option::as_mut) else {
                continue;
            };
            let priority = self.plugins[entry.claim.plugin as usize].priority(entry);
            if entry.attached && entry.applied != priority {
                entry.applied = priority;
                moved.push(SpecSlot(slot));
            }
        }
    }

    /// Returns the deadline and the period of a foreign plugin's spec in the deadline class.
    pub fn terms(&self, slot: SpecSlot) -> Option<DeadlineTerms> {
        match self.attr(slot).policy {
            Policy::Deadline { deadline, period, .. } => Some(DeadlineTerms { deadline, period }),
            _ => None,
        }
    }

    /// Returns a level that a foreign plugin names, or the violation of its band.
    pub fn check_level(&self, plugin: u32, level: i32) -> Result<u8, BoundsViolation> {
        match &self.plugins[plugin as usize] {
            Plugin::Foreign(foreign) => foreign.check_level(level),
            _ => Err(BoundsViolation("a level of a plugin from within".to_owned())),
        }
    }

    /// Sets the level of a foreign plugin's spec, which then appears in
    /// [`PluginSet::drain_moved`].
    ///
    /// # Panics
    /// If the slot is empty.
    pub fn set_level(&mut self, slot: SpecSlot, level: u8) {
        let entry = self.specs[slot.0 as usize].as_mut().expect("the slot is empty");
        entry.priority = level;
        mutate!("plugin-rank-applied", self.moved.push(slot.0));
    }

    /// Releases the zero-lag holds that end at `now` or before.
    pub fn release_expired(&mut self, now: Monotonic) {
        while let Some(claim) = self.ledger.release_expired(now) {
            self.epoch += 1;
            self.update_interference(&claim, false);
        }
    }

    /// Returns the time of the next [`PluginSet::release_expired`] with an effect, if there is one.
    pub fn next_expiry(&self) -> Option<Monotonic> {
        self.ledger.next_expiry()
    }

    /// Adopts a grant of an earlier daemon, without a test. If the plugin no longer places tasks on
    /// the recorded CPU or set, the function selects the plugin's least loaded CPU. The caller must
    /// compare [`PluginSet::attr`] with the thread's attributes.
    ///
    /// # Panics
    /// If the slot is in use.
    pub fn adopt(&mut self, plugin: u32, slot: SpecSlot, record: &Record) {
        let built = &self.plugins[plugin as usize];
        let cpu = match (built.domain(), record.cpu) {
            (Some(_), _) => None,
            (None, Some(cpu)) if built.cpus().contains(cpu) => Some(cpu),
            (None, None) if !self.ledger.set(plugin).is_empty() => None,
            (None, _) => self.with_context(None, |context| {
                let load = |cpu| (context.view.load(cpu), context.view.specs(cpu), cpu);
                worst_fit(built.cpus(), &CpuSet::EMPTY, load).next()
            }),
        };
        let task = &record.task;
        let preferred = if task.cpus_mandatory { CpuSet::EMPTY } else { task.cpus };
        let (allowed, cap) = (CpuSet::EMPTY, RuntimeCap::default());
        let ask = PluginRequest {
            params: &task.params,
            allowed,
            preferred,
            ignore_admission: task.ignore_admission,
            cap,
            exact_tests: None,
            thread: ThreadScope::default(),
        };
        let mut notes = built.lasting_notes(&task.params, record.runtime);
        notes = notes.with(built.base().preference_notes(&ask, cpu));
        if task.ignore_admission {
            // The record does not contain the result of the test; assuming a failure promises no
            // client too much.
            notes = notes.with(Notes::ADMISSION_IGNORED);
        }
        let band = self.summaries[plugin as usize]
            .band
            .unwrap_or(Band { low: Priority(0), high: Priority(0) });
        let priority = record.priority.clamp(band.low.0, band.high.0);
        let offer = Offer {
            cpu,
            runtime: record.runtime,
            charge: record.charge,
            notes,
            priority,
            terms: record.terms,
        };
        let entry = self.entry(plugin, &ask, &offer);
        self.add_spec(slot, entry);
    }

    /// Takes a foreign plugin out of service; its specs keep their attributes.
    pub fn out_of_service(&mut self, plugin: u32) {
        self.epoch += 1;
        self.summaries[plugin as usize].out_of_service = true;
    }

    /// Takes a foreign plugin into service again.
    pub fn into_service(&mut self, plugin: u32) {
        self.epoch += 1;
        self.summaries[plugin as usize].out_of_service = false;
    }

    /// Notes that CPUs went off-line or came back: earlier evaluations are outdated.
    pub fn cpus_changed(&mut self) {
        self.epoch += 1;
    }

    // ---- internals ----

    fn at(&self, slot: SpecSlot) -> &PlacedSpec {
        self.specs.get(slot.0 as usize).and_then(Option::as_ref).expect("the slot is empty")
    }

    /// Evaluates a function on the ledger.
    fn with_context<R>(
        &self,
        leaving: Option<SpecSlot>,
        question: impl FnOnce(&PluginContext<'_>) -> R,
    ) -> R {
        self.with_context_and_tests(leaving, None, question)
    }

    /// Evaluates a function on the ledger with the exact tests left for its request.
    fn with_context_and_tests<R>(
        &self,
        leaving: Option<SpecSlot>,
        exact_tests: Option<&ExactTestBudget>,
        question: impl FnOnce(&PluginContext<'_>) -> R,
    ) -> R {
        let own = ExactTestBudget::default();
        let leaving_entry = leaving.map(|slot| self.at(slot));
        let claims = |visit: &mut dyn FnMut(&Claim)| {
            for (i, entry) in self.specs.iter().enumerate() {
                if let Some(entry) = entry.as_ref().filter(|_| leaving != Some(SpecSlot(i as u32)))
                {
                    visit(&entry.claim);
                }
            }
        };
        let leaving = leaving_entry.map(|entry| &entry.claim);
        let view = View { ledger: &self.ledger, leaving, claims: &claims };
        question(&PluginContext {
            view,
            leaving: leaving_entry,
            plugins: &self.plugins,
            specs: &self.specs,
            placements: &self.placements,
            exact_tests: exact_tests.unwrap_or(&own),
        })
    }

    fn entry(&self, plugin: u32, ask: &PluginRequest<'_>, offer: &Offer) -> PlacedSpec {
        let built = &self.plugins[plugin as usize];
        let place = match (offer.cpu, built.domain()) {
            (Some(cpu), None) => Place::Cpu(cpu),
            (None, Some(domain)) => Place::Domain(domain),
            (None, None) if !self.ledger.set(plugin).is_empty() => Place::Set(plugin),
            (cpu, _) => panic!("plugin {plugin} offered the invalid CPU {cpu:?}"),
        };
        let deadline = built.is_deadline();
        let params = with_terms(ask.params, offer.terms);
        let passing = Notes::LEVEL_SHARED
            .with(Notes::COMMON_LEVELS)
            .with(Notes::NOT_PROVED)
            .with(Notes::UNGRANTED_ABOVE);
        PlacedSpec {
            claim: claim(plugin, place, &params, offer, deadline),
            params,
            runtime: offer.runtime,
            notes: Notes(offer.notes.0 & !passing.0),
            priority: offer.priority,
            attached: false,
            applied: 0,
            place_index: 0,
        }
    }

    fn add_spec(&mut self, slot: SpecSlot, entry: PlacedSpec) {
        let index = slot.0 as usize;
        if self.specs.len() <= index {
            self.specs.resize(index + 1, None);
        }
        assert!(self.specs[index].is_none(), "slot {index} is in use");
        self.epoch += 1;
        self.plugins[entry.claim.plugin as usize].add_spec(&entry, &mut self.moved);
        self.summaries[entry.claim.plugin as usize].specs += 1;
        self.reserve(&entry.claim);
        let place_index = self.placements.insert(entry.claim.place, slot.0);
        self.specs[index] = Some(PlacedSpec { place_index, ..entry });
    }

    /// Removes a spec. The ledger holds the part of its charge that `successor` does not take over
    /// on the same place, until `free_at`.
    fn remove_spec(
        &mut self,
        slot: SpecSlot,
        free_at: Option<Monotonic>,
        successor: Option<&Claim>,
    ) {
        if self.at(slot).attached {
            self.set_attached(slot, false);
        }
        let entry = self.specs[slot.0 as usize].take().expect("the slot is empty");
        if let Some(other) = self.placements.remove(entry.claim.place, entry.place_index) {
            self.specs[other as usize]
                .as_mut()
                .expect("the last slot of a place has a spec")
                .place_index = entry.place_index;
        }
        self.epoch += 1;
        self.plugins[entry.claim.plugin as usize].remove_spec(&entry, &mut self.moved);
        self.summaries[entry.claim.plugin as usize].specs -= 1;
        let claim = entry.claim;
        self.update_interference(&claim, false);
        let rest = free_at
            .filter(|_| claim.work_ns > 0)
            .and_then(|at| Some((at, remainder(&claim, successor)?)));
        match rest {
            Some((at, rest)) => {
                self.ledger.hold_until(&claim, &rest, at);
                self.update_interference(&rest, true);
            }
            None => self.ledger.release(&claim),
        }
    }

    fn reserve(&mut self, claim: &Claim) {
        self.ledger.reserve(claim);
        self.update_interference(claim, true);
    }

    fn unreserve(&mut self, claim: &Claim) {
        self.ledger.release(claim);
        self.update_interference(claim, false);
    }

    /// Updates the interference of `claim` in the `rm` plugins that the claim outranks.
    fn update_interference(&mut self, claim: &Claim, comes: bool) {
        // Claims on a domain are in the ledger's own span trees, and a set outranks no `rm` plugin.
        let Place::Cpu(cpu) = claim.place else { return };
        for &rm in &self.rms {
            let rm = self.plugins[rm as usize].as_rm_mut().expect("`rms` has only `rm` plugins");
            if rm.is_outranked(cpu, claim.plugin, claim.place) {
                rm.update_interference(claim, comes);
            }
        }
    }
}

/// Returns the part of `claim` to be held: all of it, minus the part that the successor takes over
/// on the same CPU or domain. Returns `None` if nothing remains.
fn remainder(claim: &Claim, successor: Option<&Claim>) -> Option<Claim> {
    let Some(successor) = successor.filter(|successor| successor.place == claim.place) else {
        return Some(*claim);
    };
    let work = if successor.span_ns == claim.span_ns {
        claim.work_ns.saturating_sub(successor.work_ns)
    } else {
        // Rounded up: a nanosecond too much is safe, a nanosecond too early is not.
        let part = claim.charge.saturating_sub(successor.charge);
        if part == Charge::ZERO { 0 } else { part.of(Span::from_ns(claim.span_ns)).as_ns() + 1 }
    };
    let charge = Charge::ratio(work, claim.span_ns);
    let rate = claim.rate.saturating_sub(successor.bandwidth());
    (work > 0).then_some(Claim { charge, work_ns: work, rate, ..*claim })
}
