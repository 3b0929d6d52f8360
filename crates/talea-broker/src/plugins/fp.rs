//! Fixed priorities on `SCHED_FIFO` (`fp`) and `SCHED_RR` (`rr`). ReTiF (JSA 2021) section 5.3.
//!
//! The requested priority is mandatory, its order is kept (see [`crate::levels`]), its number is
//! not: the plugin's band may lie elsewhere. The order is that of a CPU, or of all of them (`levels
//! = "common"`): then an application that moves its threads between CPUs finds above and below them
//! there whom it has left where it was. A task goes to the CPU with the fewest tasks of this
//! plugin, then the fewest of all, then the lowest number. There is no admission test, so nothing
//! here is ever proved; but a declared runtime and period are entered in the shared books, and a
//! task that would break what an `rm` plugin has promised below it goes elsewhere or is refused
//! (checklist R31). A task that declares no runtime can't be weighed: it is taken, and the `rm`
//! tasks below it are told that nothing is proved any more.

use super::{Core, Entry, Outranking, World, desired_notes, missing, no};
use crate::exact::{Broken, Depth, Open, keep_telling};
use crate::ledger::Place;
use crate::levels::{Levels, Member, Run};
use crate::plugin::{Ask, Offer, Verdict};
use crate::plugins::place::worst_fit;
use talea_core::mutate;
use talea_core::setup::{Band, FpLevels, FpOptions};
use talea_core::{Charge, Params, Policy, Priority, Span};
use talea_proto::message::{Mechanism, Notes};
use talea_proto::refusal::Reason;
use talea_proto::{Field, No};

/// Which kernel class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// `SCHED_FIFO`.
    Fifo,
    /// `SCHED_RR`.
    Rr,
}

/// The plugin.
#[derive(Clone, Debug)]
pub(crate) struct Fp {
    /// What all plugins are made of.
    pub(crate) core: Core,
    class: Class,
    options: FpOptions,
    /// By CPU number, or of all of them; `None` where the plugin is not.
    levels: Vec<Option<Levels>>,
}

impl Fp {
    /// `band` says which levels there are on each CPU.
    pub(crate) fn new(
        core: Core,
        class: Class,
        options: FpOptions,
        band: impl Fn(u32) -> Band,
    ) -> Fp {
        let levels = match options.levels {
            FpLevels::Each => {
                let cpus = core.cpus.iter().last().map_or(0, |cpu| cpu + 1);
                (0..cpus)
                    .map(|cpu| core.cpus.contains(cpu).then(|| Levels::new(band(cpu))))
                    .collect()
            }
            FpLevels::Common => vec![core.cpus.iter().map(band).reduce(common).map(Levels::new)],
        };
        Fp { core, class, options, levels }
    }

    fn row(&self, place: Place) -> usize {
        let Place::Cpu(cpu) = place else { unreachable!("fixed priorities are placed on CPUs") };
        match self.options.levels {
            FpLevels::Each => cpu as usize,
            FpLevels::Common => 0,
        }
    }

    fn at(&self, place: Place) -> &Levels {
        self.levels[self.row(place)].as_ref().expect("a CPU of this plugin")
    }

    fn at_mut(&mut self, place: Place) -> &mut Levels {
        let row = self.row(place);
        self.levels[row].as_mut().expect("a CPU of this plugin")
    }

    /// Can it serve this, where, at what cost?
    pub(crate) fn ask(&self, world: &World<'_>, ask: &Ask<'_>) -> Verdict {
        let Some(priority) = ask.params.priority else { return missing(Field::Priority) };
        if mutate!("plugin-fp-range", !(1..=99).contains(&priority.0), false) {
            let nearest = priority.0.clamp(1, 99).into();
            return Verdict::No(no(
                Reason::OutOfRange,
                Field::Priority,
                priority.0.into(),
                nearest,
                nearest,
            ));
        }
        let cpus = match self.core.fifo_cpus_for(ask) {
            Ok(cpus) => cpus,
            Err(no) => return Verdict::No(no),
        };
        let key = key(priority);
        let view = &world.view;
        let load = |cpu| (view.specs_of(self.core.index, Place::Cpu(cpu)), view.specs(cpu), cpu);
        let (mut refused, mut ignoring): (Option<No>, Option<Offer>) = (None, None);
        let mut open = Open::default();
        for cpu in worst_fit(cpus, &ask.wished, load) {
            let place = Place::Cpu(cpu);
            let levels = self.at(place);
            let leaving = self.leaving(world, place);
            if mutate!("plugin-fp-sharing", self.options.refuse_sharing, false)
                && levels.must_share(key, leaving.as_ref())
            {
                let (asked, limit) = (levels.distinct() as u64 + 1, levels.size() as u64);
                let no = no(Reason::NoLevel, Field::Levels, asked, limit, limit);
                refused.get_or_insert(No { cpu: Some(cpu), ..no });
                continue;
            }
            let coming = coming(self.core.index, place, ask.params);
            let Err(broken) = world.bear(&coming, Depth::Bounds) else {
                return Verdict::Ok(self.offer(world, ask, cpu, key));
            };
            if broken.open {
                open.push(cpu);
            }
            ignoring = ignoring.or_else(|| Some(self.offer(world, ask, cpu, key)));
            refused.get_or_insert_with(|| would_break(world, &coming, &broken));
        }
        for cpu in open.cpus() {
            let coming = coming(self.core.index, Place::Cpu(cpu), ask.params);
            match world.bear(&coming, Depth::Exact) {
                Ok(()) => return Verdict::Ok(self.offer(world, ask, cpu, key)),
                Err(broken) => keep_telling(&mut refused, would_break(world, &coming, &broken)),
            }
        }
        match ignoring.filter(|_| ask.ignore_admission) {
            Some(offer) => {
                Verdict::Ok(Offer { notes: offer.notes.with(Notes::ADMISSION_IGNORED), ..offer })
            }
            None => Verdict::No(refused.expect("a plugin has at least one CPU")),
        }
    }

    fn leaving(&self, world: &World<'_>, place: Place) -> Option<Member> {
        let ours = |entry: &&Entry| {
            entry.claim.plugin == self.core.index
                && mutate!(
                    "plugin-fp-common",
                    self.row(entry.claim.place) == self.row(place),
                    entry.claim.place == place
                )
        };
        world.leaving.filter(ours).map(member)
    }

    fn offer(&self, world: &World<'_>, ask: &Ask<'_>, cpu: u32, key: u64) -> Offer {
        let runtime = ask.params.runtime;
        let place = Place::Cpu(cpu);
        let levels = self.at(place);
        let leaving = self.leaving(world, place);
        let coming = Member { key, work: 0, unproved: true };
        let after = levels.after(leaving.as_ref(), Some(&coming));
        let shared = after.newcomer().is_some_and(Run::is_shared);
        Offer {
            cpu: Some(cpu),
            runtime,
            charge: runtime.and_then(|q| ask.params.charge_of(q)).unwrap_or(Charge::ZERO),
            notes: Notes::NOT_PROVED
                .with(Notes::BUDGET_NOT_ENFORCED)
                .with(desired_notes(ask.params, runtime))
                .with(Core::wish_notes(ask, cpu))
                .with(self.standing(shared)),
            priority: 0,
        }
    }

    /// The spec is this plugin's from here on.
    pub(crate) fn enter(&mut self, entry: &Entry, moved: &mut Vec<u32>) {
        self.at_mut(entry.claim.place).insert(&member(entry), moved);
    }

    /// The spec is no longer this plugin's.
    pub(crate) fn leave(&mut self, entry: &Entry, moved: &mut Vec<u32>) {
        self.at_mut(entry.claim.place).remove(&member(entry), moved);
    }

    /// `new` takes the place of `old` if both have the same CPU and priority.
    pub(crate) fn exchange(&mut self, old: &Entry, new: &Entry) -> bool {
        let same = old.claim.place == new.claim.place && member(old).key == member(new).key;
        if same {
            self.at_mut(old.claim.place).exchange(&member(old), &member(new));
        }
        same
    }

    /// A thread has the attributes of the spec, or no longer.
    pub(crate) fn attach(&mut self, entry: &Entry, slot: u32, attached: bool) {
        self.at_mut(entry.claim.place).attach(member(entry).key, slot, attached);
    }

    /// The kernel priority now.
    pub(crate) fn priority(&self, entry: &Entry) -> u8 {
        self.at(entry.claim.place).level(member(entry).key)
    }

    /// The kernel's policy now.
    pub(crate) fn policy(&self, entry: &Entry) -> Policy {
        let priority = Priority(self.priority(entry));
        match self.class {
            Class::Fifo => Policy::Fifo(priority),
            Class::Rr => mutate!("plugin-rr-class", Policy::Rr(priority), Policy::Fifo(priority)),
        }
    }

    /// How the kernel enforces it.
    pub(crate) fn mechanism(&self) -> Mechanism {
        match self.class {
            Class::Fifo => Mechanism::Fifo,
            Class::Rr => Mechanism::Rr,
        }
    }

    /// What the holder should know beyond what stays true.
    pub(crate) fn notes(&self, entry: &Entry) -> Notes {
        let levels = self.at(entry.claim.place);
        self.standing(levels.runs()[levels.run_of(member(entry).key)].is_shared())
    }

    /// What is to be known of a level: whether others share it, and whether its order is that of
    /// all CPUs.
    fn standing(&self, is_shared: bool) -> Notes {
        let shared = if is_shared { Notes::LEVEL_SHARED } else { Notes::default() };
        match self.options.levels {
            FpLevels::Each => shared,
            FpLevels::Common => shared.with(Notes::COMMON_LEVELS),
        }
    }
}

/// The levels that there are on both of two CPUs. What another plugin has of either lies at an end
/// of the band (`narrowed`).
fn common(one: Band, other: Band) -> Band {
    let (low, high) = (one.low.0.max(other.low.0), one.high.0.min(other.high.0));
    Band { low: Priority(low), high: Priority(high) }
}

fn key(priority: Priority) -> u64 {
    u64::from(mutate!("plugin-fp-order", 100 - priority.0, priority.0))
}

fn member(entry: &Entry) -> Member {
    // An adopted record may lack the priority; then the least urgent one serves.
    let priority = entry.params.priority.filter(|p| (1..=99).contains(&p.0)).unwrap_or(Priority(1));
    Member { key: key(priority), work: 0, unproved: true }
}

/// A task of plugin `plugin` in the eyes of the `rm` tasks below it.
pub(crate) fn coming(plugin: u32, place: Place, params: &Params) -> Outranking {
    let known = params.runtime.zip(params.density_span());
    let (work, span) = known.map_or((0, 1), |(work, span)| (work.as_ns(), span.as_ns()));
    let period = params.period.map_or(span, Span::as_ns);
    Outranking { plugin, place, work, span, period }
}

/// The "no" for a task that would break what others have been promised, with the share that would
/// not.
pub(crate) fn would_break(world: &World<'_>, coming: &Outranking, broken: &Broken) -> No {
    let share = |work: u64| Charge::ratio(work, coming.span);
    let fits = share(world.bearable(coming).min(coming.span)).ppm_down();
    let asked = share(coming.work).ppm();
    let cpu = match coming.place {
        Place::Cpu(cpu) => Some(cpu),
        Place::Domain(_) => None,
    };
    let no = no(Reason::WouldBreakOthers, Field::Utilization, asked, fits, fits);
    No { cpu, witness: broken.witness, ..no }
}
