//! The plugins as one: each is asked by itself, all of them share the books.
//!
//! Whoever owns the broker's sessions asks ([`Suite::ask`] changes nothing), takes an offer up
//! ([`Suite::admit`]), or gives it back; specs are named by their slot. What plugins on the same
//! CPU owe to each other (checklist R31):
//!
//! - every plugin's charges are in one ledger, so the load of a CPU is everybody's load, and `edf`
//!   keeps the sum of everything within U^thr;
//! - whatever runs above an `rm` plugin's tasks there counts as interference in its tests, and may
//!   not break what those have been promised (`plugins/rm.rs` says precisely what that is).
//!
//! Who outranks whom is a matter of bands, fixed at the start: the deadline class outranks all;
//! another plugin outranks `rm` on a CPU if its highest level there is not below `rm`'s lowest.
//! Where two bands meet in exactly one level, as 50-99 and 1-50 in ReTiF's Listing 2, the lower one
//! gives it up on the CPUs that both serve.
//!
//! Every operation is O(CPUs + log n + threads whose kernel priority really moves) for n specs,
//! plus a factor for `rm` plugins that share a CPU with others.
//!
//! Invariant: the books equal the sum over the specs and what lingers (`audit`, in tests).

mod build;
#[cfg(test)]
mod tests;

use self::build::{build, confinements, face};
use crate::exact::Tries;
use crate::input::{ForeignAnswer, Machine};
use crate::ledger::{Claim, Ledger, Place, View};
use crate::plugin::{Ask, Clip, Offer, Verdict};
use crate::plugins::edf::Confinement;
use crate::plugins::place::worst_fit;
use crate::plugins::{Core, Entry, Plugin, World, claim, no};
use crate::residents::Residents;
use talea_core::mutate;
use talea_core::setup::{Band, PluginKind, Setup};
use talea_core::{Attr, Charge, CpuSet, Priority, Span, Time, Work};
use talea_proto::message::{CpuInfo, Mechanism, Name, Notes, PluginInfo};
use talea_proto::record::Record;
use talea_proto::refusal::Reason;
use talea_proto::{Field, PLUGINS_MAX};

/// Index of a spec in the broker's slab, and its slot in the state file; reused after release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// A foreign plugin's answer that lies outside what it may say: the end of a sentence that begins
/// "it named".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lie(pub String);

/// Where a spec is and what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Index of the plugin.
    pub plugin: u32,
    /// The CPU; `None` for a whole domain.
    pub cpu: Option<u32>,
    /// Q^a.
    pub runtime: Option<Work>,
    /// What it costs.
    pub charge: Charge,
    /// The kernel priority now; 0 for the deadline class.
    pub priority: u8,
    /// How the kernel enforces it.
    pub mechanism: Mechanism,
    /// How coarsely budgets are enforced; zero where they are enforced exactly, or not at all (see
    /// the notes).
    pub grain: Span,
    /// What the holder should know, as of now.
    pub notes: Notes,
}

/// What the suite says about a plugin without asking it.
#[derive(Clone, Debug)]
struct Face {
    name: Name,
    kind: &'static str,
    cpus: CpuSet,
    band: Option<Band>,
    specs: u32,
    out_of_service: bool,
}

/// All plugins, in order of precedence, and what they have given out.
#[derive(Clone, Debug)]
pub struct Suite {
    faces: Vec<Face>,
    plugins: Vec<Plugin>,
    /// The `rm` plugins among them.
    rms: Vec<u32>,
    ledger: Ledger,
    entries: Vec<Option<Entry>>,
    residents: Residents,
    /// Slots whose kernel priority has changed since the last drain, some of them more than once.
    moved: Vec<u32>,
    epoch: u64,
}

impl Suite {
    /// Sets the plugins up. An error names the plugin and what it lacks, and must keep the daemon
    /// from starting (ReTiF JSA 2021, section 3.4).
    pub fn new(setup: &Setup, machine: &Machine) -> Result<Suite, String> {
        if setup.plugins.len() > PLUGINS_MAX {
            return Err(format!(
                "{} plugins are more than the {PLUGINS_MAX} there may be",
                setup.plugins.len()
            ));
        }
        let mut faces: Vec<Face> = Vec::new();
        for plugin in &setup.plugins {
            let face =
                face(plugin, machine).map_err(|why| format!("plugin {:?}: {why}", plugin.name))?;
            if faces.iter().any(|other| other.name == face.name) {
                return Err(format!("plugin {:?}: there are two of this name", plugin.name));
            }
            faces.push(face);
        }
        let confinements = confinements(setup, machine)?;
        let mut domains: Vec<CpuSet> = Vec::new();
        for confinement in confinements.iter().flatten() {
            match confinement {
                Confinement::Global(cpus) if !domains.contains(cpus) => domains.push(*cpus),
                _ => {}
            }
        }
        let cpus =
            faces.iter().filter_map(|face| face.cpus.iter().last()).max().map_or(0, |cpu| cpu + 1);
        let rm = setup.plugins.iter().filter(|plugin| matches!(plugin.kind, PluginKind::Rm(_)));
        let rm = rm.fold(CpuSet::EMPTY, |all, plugin| all.union(&plugin.cpus));
        let ledger = Ledger::new(faces.len(), cpus, &domains, &rm);
        let built =
            (0..faces.len()).map(|i| build(i, &faces, setup, machine, confinements[i], &ledger));
        let plugins: Vec<Plugin> = built.collect();
        let rms = plugins.iter().enumerate().filter(|(_, plugin)| plugin.as_rm().is_some());
        let rms = rms.map(|(i, _)| i as u32).collect();
        let residents = Residents::new(cpus, domains.len());
        let (entries, moved) = (Vec::new(), Vec::new());
        Ok(Suite { faces, plugins, rms, ledger, entries, residents, moved, epoch: 0 })
    }

    /// How many plugins there are.
    pub fn len(&self) -> usize {
        self.plugins.len()
    }

    /// Whether there is no plugin at all.
    pub fn is_empty(&self) -> bool {
        self.plugins.is_empty()
    }

    /// The plugin of this name.
    pub fn find(&self, name: &Name) -> Option<u32> {
        self.faces.iter().position(|face| face.name == *name).map(|index| index as u32)
    }

    /// One plugin in numbers.
    pub fn info(&self, plugin: u32) -> PluginInfo {
        let face = &self.faces[plugin as usize];
        PluginInfo {
            index: plugin,
            name: face.name,
            kind: Name::new(face.kind).expect("a kind's word is a name"),
            cpus: face.cpus,
            band: face.band.map_or((0, 0), |band| (band.low.0, band.high.0)),
            specs: face.specs,
            out_of_service: face.out_of_service,
        }
    }

    /// A plugin on its `index`-th CPU, lowest first. A plugin that serves a whole domain shows the
    /// domain's specs and free share on each of its CPUs.
    pub fn cpu(&self, plugin: u32, index: u32) -> Option<CpuInfo> {
        let cpu = self.faces[plugin as usize].cpus.iter().nth(index as usize)?;
        let built = &self.plugins[plugin as usize];
        self.look(None, |world| {
            let place = built.domain().map_or(Place::Cpu(cpu), Place::Domain);
            Some(CpuInfo {
                cpu,
                free: built.free(world, cpu),
                used: world.view.load(cpu),
                specs: world.view.specs_of(plugin, place),
            })
        })
    }

    /// Whether the plugin must be asked outside this process.
    pub fn is_foreign(&self, plugin: u32) -> bool {
        matches!(self.plugins[plugin as usize], Plugin::Foreign(_))
    }

    /// How long a foreign plugin's answer may take; zero for the others.
    pub fn timeout(&self, plugin: u32) -> Span {
        match &self.plugins[plugin as usize] {
            Plugin::Foreign(foreign) => foreign.timeout,
            _ => Span::ZERO,
        }
    }

    /// Changes whenever an answer might.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The CPUs on which `plugin` may place this request.
    pub fn cpus_for(&self, plugin: u32, ask: &Ask<'_>) -> CpuSet {
        self.plugins[plugin as usize].cpus_for(ask)
    }

    /// What a built-in plugin says; `leaving` is judged as if it were gone. Nothing is changed. A
    /// foreign plugin must be asked by the driver, and its answer goes to [`Suite::judge`].
    pub fn ask(&self, plugin: u32, ask: &Ask<'_>, leaving: Option<Slot>) -> Verdict {
        if self.faces[plugin as usize].out_of_service {
            return Verdict::No(no(Reason::OutOfService, Field::Plugin, 0, 0, 0));
        }
        self.look_with(leaving, ask.tries, |world| self.plugins[plugin as usize].ask(world, ask))
    }

    /// What a foreign plugin's answer amounts to: clamped to its CPUs and its band, or a lie.
    pub fn judge(
        &self,
        plugin: u32,
        ask: &Ask<'_>,
        answer: &ForeignAnswer,
        leaving: Option<Slot>,
    ) -> Result<Verdict, Lie> {
        if self.faces[plugin as usize].out_of_service {
            return Ok(Verdict::No(no(Reason::OutOfService, Field::Plugin, 0, 0, 0)));
        }
        match &self.plugins[plugin as usize] {
            Plugin::Foreign(foreign) => {
                self.look_with(leaving, ask.tries, |world| foreign.judge(world, ask, answer))
            }
            _ => Ok(self.ask(plugin, ask, leaving)),
        }
    }

    /// Takes an offer up, as it is: no test.
    ///
    /// # Panics
    /// If the slot is taken.
    pub fn admit(&mut self, plugin: u32, slot: Slot, ask: &Ask<'_>, offer: &Offer) {
        let entry = self.entry(plugin, ask, offer);
        self.enter(slot, entry);
    }

    /// Replaces a spec in one step; it may move to another plugin. What its thread is given changes
    /// too: whoever replaces, applies, so the spec itself does not show up in
    /// [`Suite::drain_moved`] for that.
    ///
    /// `free_at` is the zero-lag time of the old reservation, if a thread has it. What the new one
    /// does not take over on the same place lingers until then: the spec may use its own share anew
    /// at once, nobody else may.
    pub fn replace(
        &mut self,
        slot: Slot,
        plugin: u32,
        ask: &Ask<'_>,
        offer: &Offer,
        free_at: Option<Time>,
    ) {
        let old = *self.at(slot);
        let new = Entry { attached: old.attached, ..self.entry(plugin, ask, offer) };
        self.epoch += 1;
        if old.claim.plugin == plugin && self.plugins[plugin as usize].exchange(&old, &new) {
            self.give(&old.claim);
            self.take(&new.claim);
            self.entries[slot.0 as usize] = Some(Entry { given: old.given, seat: old.seat, ..new });
            return;
        }
        self.leave(slot, free_at, Some(&new.claim));
        self.enter(slot, Entry { attached: false, ..new });
        if old.attached {
            self.attached(slot, true);
        }
    }

    /// Gives a spec back. `free_at` is the zero-lag time of an attached `edf` spec, until which its
    /// charge stays (checklist R36); `None` means now.
    ///
    /// # Panics
    /// If there is no such spec.
    pub fn release(&mut self, slot: Slot, free_at: Option<Time>) {
        self.leave(slot, free_at, None);
    }

    /// What a thread of this spec is given now.
    pub fn attr(&self, slot: Slot) -> Attr {
        let entry = self.at(slot);
        let plugin = &self.plugins[entry.claim.plugin as usize];
        let cpus = match entry.claim.place {
            Place::Cpu(cpu) => CpuSet::single(cpu),
            Place::Domain(domain) => self.ledger.domain(domain).cpus,
        };
        Attr {
            policy: plugin.policy(entry),
            reset_on_fork: mutate!("kernel-reset-on-fork", true, false),
            cpus,
        }
    }

    /// Where the spec is and what it has now.
    pub fn placed(&self, slot: Slot) -> Placed {
        self.placed_with(slot, |plugin, entry| self.look(None, |world| plugin.notes(world, entry)))
    }

    /// As [`Suite::placed`] right after `offer` was taken up, when nothing of what was there before
    /// it lingers: it was made for the books as they are now, so what it says need not be found out
    /// again.
    pub fn placed_on(&self, slot: Slot, offer: &Offer) -> Placed {
        if self.is_foreign(self.at(slot).claim.plugin) {
            return self.placed(slot);
        }
        let placed = self.placed_with(slot, |_, _| offer.notes);
        debug_assert_eq!(placed, self.placed(slot), "an offer that was not kept");
        placed
    }

    fn placed_with(&self, slot: Slot, notes: impl FnOnce(&Plugin, &Entry) -> Notes) -> Placed {
        let entry = self.at(slot);
        let plugin = &self.plugins[entry.claim.plugin as usize];
        let (mechanism, grain) = plugin.mechanism();
        Placed {
            plugin: entry.claim.plugin,
            cpu: cpu_of(entry.claim.place),
            runtime: entry.runtime,
            charge: entry.claim.charge,
            priority: plugin.priority(entry),
            mechanism,
            grain,
            notes: notes(plugin, entry),
        }
    }

    /// Tells whether a thread has what [`Suite::attr`] says now; only such specs show up in
    /// [`Suite::drain_moved`].
    pub fn attached(&mut self, slot: Slot, attached: bool) {
        let mut entry = *self.at(slot);
        let plugin = &mut self.plugins[entry.claim.plugin as usize];
        if entry.attached != attached {
            plugin.attach(&entry, slot.0, attached);
        }
        entry.attached = attached;
        entry.given = plugin.priority(&entry);
        self.entries[slot.0 as usize] = Some(entry);
    }

    /// Puts into `moved` the attached specs whose attributes are not what they were at the last
    /// drain (or when they were attached), in no particular order; what changed and changed back is
    /// not among them.
    pub fn drain_moved(&mut self, moved: &mut Vec<Slot>) {
        moved.clear();
        for slot in self.moved.drain(..) {
            let Some(entry) = self.entries.get_mut(slot as usize).and_then(Option::as_mut) else {
                continue;
            };
            let priority = self.plugins[entry.claim.plugin as usize].priority(entry);
            if entry.attached && entry.given != priority {
                entry.given = priority;
                moved.push(Slot(slot));
            }
        }
    }

    /// Gives back the charges that lingered until `now`.
    pub fn expire(&mut self, now: Time) {
        while let Some(claim) = self.ledger.expired(now) {
            self.epoch += 1;
            self.overshadow(&claim, false);
        }
    }

    /// When [`Suite::expire`] next has something to do.
    pub fn next_expiry(&self) -> Option<Time> {
        self.ledger.next_expiry()
    }

    /// Takes over what an earlier daemon granted, without a test. Where the record's CPU is no
    /// longer one that the plugin places on, the least loaded of its CPUs is taken; compare
    /// [`Suite::attr`] with what the thread has.
    ///
    /// # Panics
    /// If the slot is taken.
    pub fn adopt(&mut self, plugin: u32, slot: Slot, record: &Record) {
        let built = &self.plugins[plugin as usize];
        let cpu = match (built.domain(), record.cpu) {
            (Some(_), _) => None,
            (None, Some(cpu)) if built.cpus().contains(cpu) => Some(cpu),
            (None, _) => self.look(None, |world| {
                let load = |cpu| (world.view.load(cpu), world.view.specs(cpu), cpu);
                worst_fit(built.cpus(), &CpuSet::EMPTY, load).next()
            }),
        };
        let task = &record.task;
        let wished = if task.cpus_mandatory { CpuSet::EMPTY } else { task.cpus };
        let (allowed, clip) = (CpuSet::EMPTY, Clip::default());
        let ask = Ask {
            params: &task.params,
            allowed,
            wished,
            ignore_admission: task.ignore_admission,
            clip,
            tries: None,
        };
        let mut notes = built.lasting_notes(&task.params, record.runtime);
        if let Some(cpu) = cpu {
            notes = notes.with(Core::wish_notes(&ask, cpu));
        }
        if task.ignore_admission {
            // Whether the test failed then is not on record; to think so promises nobody too much.
            notes = notes.with(Notes::ADMISSION_IGNORED);
        }
        let band = self.faces[plugin as usize]
            .band
            .unwrap_or(Band { low: Priority(0), high: Priority(0) });
        let priority = record.priority.clamp(band.low.0, band.high.0);
        let offer = Offer { cpu, runtime: record.runtime, charge: record.charge, notes, priority };
        let entry = self.entry(plugin, &ask, &offer);
        self.enter(slot, entry);
    }

    /// Takes a foreign plugin out of service; what it has accepted keeps its attributes.
    pub fn out_of_service(&mut self, plugin: u32) {
        self.epoch += 1;
        self.faces[plugin as usize].out_of_service = true;
    }

    // ---- inside ----

    fn at(&self, slot: Slot) -> &Entry {
        self.entries.get(slot.0 as usize).and_then(Option::as_ref).expect("no spec in this slot")
    }

    /// Shows the books to a question.
    fn look<R>(&self, leaving: Option<Slot>, question: impl FnOnce(&World<'_>) -> R) -> R {
        self.look_with(leaving, None, question)
    }

    /// The same with the exact tests that are left to its request.
    fn look_with<R>(
        &self,
        leaving: Option<Slot>,
        tries: Option<&Tries>,
        question: impl FnOnce(&World<'_>) -> R,
    ) -> R {
        let own = Tries::default();
        let leaving_entry = leaving.map(|slot| self.at(slot));
        let claims = |visit: &mut dyn FnMut(&Claim)| {
            for (i, entry) in self.entries.iter().enumerate() {
                if let Some(entry) = entry.as_ref().filter(|_| leaving != Some(Slot(i as u32))) {
                    visit(&entry.claim);
                }
            }
        };
        let leaving = leaving_entry.map(|entry| &entry.claim);
        let view = View { ledger: &self.ledger, leaving, claims: &claims };
        question(&World {
            view,
            leaving: leaving_entry,
            plugins: &self.plugins,
            entries: &self.entries,
            residents: &self.residents,
            tries: tries.unwrap_or(&own),
        })
    }

    fn entry(&self, plugin: u32, ask: &Ask<'_>, offer: &Offer) -> Entry {
        let built = &self.plugins[plugin as usize];
        let place = match (offer.cpu, built.domain()) {
            (Some(cpu), None) => Place::Cpu(cpu),
            (None, Some(domain)) => Place::Domain(domain),
            (cpu, _) => panic!("plugin {plugin} did not offer {cpu:?}"),
        };
        let deadline = matches!(built, Plugin::Edf(_));
        let passing = Notes::LEVEL_SHARED.with(Notes::COMMON_LEVELS).with(Notes::NOT_PROVED);
        Entry {
            claim: claim(plugin, place, ask.params, offer, deadline),
            params: *ask.params,
            runtime: offer.runtime,
            notes: Notes(offer.notes.0 & !passing.0),
            priority: offer.priority,
            attached: false,
            given: 0,
            seat: 0,
        }
    }

    fn enter(&mut self, slot: Slot, entry: Entry) {
        let index = slot.0 as usize;
        if self.entries.len() <= index {
            self.entries.resize(index + 1, None);
        }
        assert!(self.entries[index].is_none(), "slot {index} is taken");
        self.epoch += 1;
        self.plugins[entry.claim.plugin as usize].enter(&entry, &mut self.moved);
        self.faces[entry.claim.plugin as usize].specs += 1;
        self.take(&entry.claim);
        let seat = self.residents.put(entry.claim.place, slot.0);
        self.entries[index] = Some(Entry { seat, ..entry });
    }

    /// The spec leaves; of its charge what `successor` does not take over on the same place stays
    /// until `free_at`.
    fn leave(&mut self, slot: Slot, free_at: Option<Time>, successor: Option<&Claim>) {
        if self.at(slot).attached {
            self.attached(slot, false);
        }
        let entry = self.entries[slot.0 as usize].take().expect("no spec in this slot");
        if let Some(other) = self.residents.take(entry.claim.place, entry.seat) {
            self.entries[other as usize].as_mut().expect("who sits there is there").seat =
                entry.seat;
        }
        self.epoch += 1;
        self.plugins[entry.claim.plugin as usize].leave(&entry, &mut self.moved);
        self.faces[entry.claim.plugin as usize].specs -= 1;
        let claim = entry.claim;
        self.overshadow(&claim, false);
        let rest = free_at
            .filter(|_| claim.work > 0)
            .and_then(|at| Some((at, remainder(&claim, successor)?)));
        match rest {
            Some((at, rest)) => {
                self.ledger.linger(&claim, &rest, at);
                self.overshadow(&rest, true);
            }
            None => self.ledger.give(&claim),
        }
    }

    fn take(&mut self, claim: &Claim) {
        self.ledger.take(claim);
        self.overshadow(claim, true);
    }

    fn give(&mut self, claim: &Claim) {
        self.ledger.give(claim);
        self.overshadow(claim, false);
    }

    /// Tells the `rm` plugins that `claim` outranks of its coming or going.
    fn overshadow(&mut self, claim: &Claim, comes: bool) {
        // What lies on a domain is in the ledger's own classes.
        let Place::Cpu(cpu) = claim.place else { return };
        for &rm in &self.rms {
            let rm = self.plugins[rm as usize].as_rm_mut().expect("it is one of them");
            if rm.is_outranked(cpu, claim.plugin, claim.place) {
                rm.overshadow(claim, comes);
            }
        }
    }
}

/// What of `claim` stays for a while when `successor` takes its place: all of it, less what the
/// successor takes on the same CPU or domain.
fn remainder(claim: &Claim, successor: Option<&Claim>) -> Option<Claim> {
    let Some(successor) = successor.filter(|successor| successor.place == claim.place) else {
        return Some(*claim);
    };
    let work = if successor.span == claim.span {
        claim.work.saturating_sub(successor.work)
    } else {
        // Rounded up: rather a nanosecond too much than any too early.
        let part = claim.charge.saturating_sub(successor.charge);
        if part == Charge::ZERO { 0 } else { part.of(Span::from_ns(claim.span)).as_ns() + 1 }
    };
    let charge = Charge::ratio(work, claim.span);
    let rate = claim.rate.saturating_sub(successor.bandwidth());
    (work > 0).then_some(Claim { charge, work, rate, ..*claim })
}

fn cpu_of(place: Place) -> Option<u32> {
    match place {
        Place::Cpu(cpu) => Some(cpu),
        Place::Domain(_) => None,
    }
}
