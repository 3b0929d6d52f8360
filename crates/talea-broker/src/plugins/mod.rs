//! The plugins, a file each: ReTiF's Table 4 as pure questions, and the list that names them all.
//!
//! A plugin says whether it can serve a task, where, and what that costs ([`Plugin::ask`]); keeps
//! what it needs of the tasks it has got ([`Plugin::enter`], [`Plugin::leave`]); and names the
//! kernel's attributes for each of them. It never makes a system call, and what plugins owe to each
//! other is in the books that they share: see [`crate::suite`]. To add one: a file, a variant of
//! `talea_core::setup::PluginKind`, a variant here, and what the compiler then asks for; [`fp`] is
//! the shortest to start from.

pub(crate) mod edf;
pub(crate) mod foreign;
pub(crate) mod fp;
pub(crate) mod place;
pub(crate) mod rm;

use crate::exact::{Broken, Depth, Tries};
use crate::ledger::{Claim, Place, View};
use crate::plugin::{Ask, Offer, Verdict};
use crate::residents::Residents;
use edf::Edf;
use foreign::Foreign;
use fp::Fp;
use rm::Rm;
use talea_core::setup::Band;
use talea_core::{Charge, CpuSet, Params, Policy, Span, Work};
use talea_proto::message::{Mechanism, Notes};
use talea_proto::refusal::Reason;
use talea_proto::{Field, No};

/// An accepted spec, as the suite and its plugins keep it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// What it takes.
    pub(crate) claim: Claim,
    /// What was asked.
    pub(crate) params: Params,
    /// Q^a.
    pub(crate) runtime: Option<Work>,
    /// What will stay true of it; the rest is found out when somebody asks.
    pub(crate) notes: Notes,
    /// The priority that a foreign plugin named; else 0.
    pub(crate) priority: u8,
    /// Whether a thread has its attributes.
    pub(crate) attached: bool,
    /// The kernel priority that the thread has, as far as the suite has been told.
    pub(crate) given: u8,
    /// Its seat among those at its place.
    pub(crate) seat: u32,
}

/// What all plugins are made of.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    /// Its index, in order of precedence.
    pub(crate) index: u32,
    /// Where it may place tasks.
    pub(crate) cpus: CpuSet,
    /// Whether FIFO and RR are open on this machine.
    pub(crate) fifo: bool,
}

impl Core {
    /// The CPUs that are left after the client's condition.
    pub(crate) fn cpus_for(&self, ask: &Ask<'_>) -> CpuSet {
        if ask.allowed.is_empty() { self.cpus } else { self.cpus.intersection(&ask.allowed) }
    }

    /// The CPUs for a task under a FIFO or RR policy, or why there are none.
    pub(crate) fn fifo_cpus_for(&self, ask: &Ask<'_>) -> Result<CpuSet, No> {
        if !self.fifo {
            return Err(no(Reason::Unsupported, Field::Request, 0, 0, 0));
        }
        let cpus = self.cpus_for(ask);
        if cpus.is_empty() { Err(no_cpu(ask, &self.cpus)) } else { Ok(cpus) }
    }

    /// Whether a wish for CPUs is not met by `cpu`.
    pub(crate) fn wish_notes(ask: &Ask<'_>, cpu: u32) -> Notes {
        if ask.wished.is_empty() || ask.wished.contains(cpu) {
            Notes::default()
        } else {
            Notes::CPU_WISH_IGNORED
        }
    }
}

/// A task that would run above others on their CPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outranking {
    /// Index of its plugin.
    pub(crate) plugin: u32,
    /// Where it would be.
    pub(crate) place: Place,
    /// Its work in nanoseconds; 0 when unknown.
    pub(crate) work: u64,
    /// min(T, D) in nanoseconds.
    pub(crate) span: u64,
    /// T in nanoseconds.
    pub(crate) period: u64,
}

/// What a question may look at: the books without the spec being replaced, and the other plugins.
#[derive(Clone, Copy)]
pub(crate) struct World<'a> {
    /// The books.
    pub(crate) view: View<'a>,
    /// The spec that is judged as if it were gone.
    pub(crate) leaving: Option<&'a Entry>,
    /// All plugins, by index.
    pub(crate) plugins: &'a [Plugin],
    /// All specs, by slot.
    pub(crate) entries: &'a [Option<Entry>],
    /// Which of them are where.
    pub(crate) residents: &'a Residents,
    /// The exact tests that may still be tried.
    pub(crate) tries: &'a Tries,
}

impl<'a> World<'a> {
    /// The specs at `place`, as the question sees them.
    pub(crate) fn at(&self, place: Place) -> impl Iterator<Item = &'a Entry> {
        let (entries, leaving) = (self.entries, self.leaving);
        let here =
            self.residents.at(place).iter().filter_map(|&slot| entries[slot as usize].as_ref());
        here.filter(move |entry| !leaving.is_some_and(|leaving| std::ptr::eq(leaving, *entry)))
    }

    /// Whether every guarantee that `rm` plugins have given still holds beside `coming`; what is
    /// open was not found broken by anything else.
    pub(crate) fn bear(&self, coming: &Outranking, depth: Depth) -> Result<(), Broken> {
        let mut verdict = Ok(());
        if coming.work == 0 {
            return verdict;
        }
        for (rm, cpu) in self.below(coming) {
            match rm.bears(self, cpu, coming, depth) {
                Ok(()) => {}
                Err(open) if open.open => verdict = Err(open),
                broken => return broken,
            }
        }
        verdict
    }

    /// The most work, in nanoseconds, that a task like `coming` could have so that [`World::bear`]
    /// holds by sums alone; rounded down.
    pub(crate) fn bearable(&self, coming: &Outranking) -> u64 {
        let rooms = self.below(coming).map(|(rm, cpu)| rm.bearable(self, cpu, coming));
        u64::try_from(rooms.min().unwrap_or(u128::MAX)).unwrap_or(u64::MAX)
    }

    fn below(&self, coming: &Outranking) -> impl Iterator<Item = (&'a Rm, u32)> {
        let (single, domain) = match coming.place {
            Place::Cpu(cpu) => (Some(cpu), None),
            Place::Domain(domain) => (None, Some(self.view.ledger.domain(domain))),
        };
        let coming = *coming;
        self.plugins.iter().filter_map(Plugin::as_rm).flat_map(move |rm| {
            let cpus =
                single.into_iter().chain(domain.into_iter().flat_map(|domain| domain.cpus.iter()));
            cpus.filter(move |&cpu| rm.is_outranked(cpu, coming.plugin, coming.place))
                .map(move |cpu| (rm, cpu))
        })
    }
}

/// The closed list.
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
    fn core(&self) -> &Core {
        match self {
            Plugin::Edf(edf) => &edf.core,
            Plugin::Rm(rm) => &rm.core,
            Plugin::Fp(fp) => &fp.core,
            Plugin::Foreign(foreign) => &foreign.core,
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

    /// Where it may place tasks.
    pub(crate) fn cpus(&self) -> CpuSet {
        self.core().cpus
    }

    /// The CPUs on which it may place this request.
    pub(crate) fn cpus_for(&self, ask: &Ask<'_>) -> CpuSet {
        self.core().cpus_for(ask)
    }

    /// Accept, or change: can it serve this, where, at what cost?
    pub(crate) fn ask(&self, world: &World<'_>, ask: &Ask<'_>) -> Verdict {
        if let Err(no) = sound(ask.params) {
            return Verdict::No(no);
        }
        match self {
            Plugin::Edf(edf) => edf.ask(world, ask),
            Plugin::Rm(rm) => rm.ask(world, ask),
            Plugin::Fp(fp) => fp.ask(world, ask),
            // It is asked by the driver and judged by the suite.
            Plugin::Foreign(_) => Verdict::No(no(Reason::Foreign, Field::Plugin, 0, 0, 0)),
        }
    }

    /// Where a global claim of this plugin lies.
    pub(crate) fn domain(&self) -> Option<u32> {
        match self {
            Plugin::Edf(edf) => edf.domain(),
            _ => None,
        }
    }

    /// Schedule: the spec is this plugin's from here on. `moved` gets the slots whose kernel
    /// priority changes.
    pub(crate) fn enter(&mut self, entry: &Entry, moved: &mut Vec<u32>) {
        match self {
            Plugin::Rm(rm) => rm.enter(entry, moved),
            Plugin::Fp(fp) => fp.enter(entry, moved),
            Plugin::Edf(_) | Plugin::Foreign(_) => {}
        }
    }

    /// Release: the spec is no longer this plugin's.
    pub(crate) fn leave(&mut self, entry: &Entry, moved: &mut Vec<u32>) {
        match self {
            Plugin::Rm(rm) => rm.leave(entry, moved),
            Plugin::Fp(fp) => fp.leave(entry, moved),
            Plugin::Edf(_) | Plugin::Foreign(_) => {}
        }
    }

    /// `new` takes the place of `old` if no kernel priority depends on the difference.
    pub(crate) fn exchange(&mut self, old: &Entry, new: &Entry) -> bool {
        match self {
            Plugin::Rm(rm) => rm.exchange(old, new),
            Plugin::Fp(fp) => fp.exchange(old, new),
            Plugin::Edf(_) | Plugin::Foreign(_) => false,
        }
    }

    /// A thread has the attributes of the spec, or no longer.
    pub(crate) fn attach(&mut self, entry: &Entry, slot: u32, attached: bool) {
        match self {
            Plugin::Rm(rm) => rm.attach(entry, slot, attached),
            Plugin::Fp(fp) => fp.attach(entry, slot, attached),
            Plugin::Edf(_) | Plugin::Foreign(_) => {}
        }
    }

    /// The kernel priority now; 0 for the deadline class.
    pub(crate) fn priority(&self, entry: &Entry) -> u8 {
        match self {
            Plugin::Edf(_) => 0,
            Plugin::Rm(rm) => rm.priority(entry),
            Plugin::Fp(fp) => fp.priority(entry),
            Plugin::Foreign(_) => entry.priority,
        }
    }

    /// The kernel's policy now.
    pub(crate) fn policy(&self, entry: &Entry) -> Policy {
        match self {
            Plugin::Edf(_) => edf::policy(entry),
            Plugin::Rm(rm) => Policy::Fifo(talea_core::Priority(rm.priority(entry))),
            Plugin::Fp(fp) => fp.policy(entry),
            Plugin::Foreign(foreign) => foreign.policy(entry),
        }
    }

    /// How the kernel enforces it, and how coarsely it polices budgets.
    pub(crate) fn mechanism(&self) -> (Mechanism, Span) {
        match self {
            Plugin::Edf(edf) => edf.mechanism(),
            Plugin::Rm(_) => (Mechanism::Fifo, Span::ZERO),
            Plugin::Fp(fp) => (fp.mechanism(), Span::ZERO),
            Plugin::Foreign(foreign) => (foreign.mechanism(), Span::ZERO),
        }
    }

    /// What the holder should know, as of now.
    pub(crate) fn notes(&self, world: &World<'_>, entry: &Entry) -> Notes {
        entry.notes.with(match self {
            Plugin::Edf(_) => edf::notes(world, entry),
            Plugin::Rm(rm) => rm.notes(world, entry),
            Plugin::Fp(fp) => Notes::NOT_PROVED.with(fp.notes(entry)),
            Plugin::Foreign(_) => Notes::NOT_PROVED,
        })
    }

    /// The notes that stay true of a task of these parameters.
    pub(crate) fn lasting_notes(&self, params: &Params, runtime: Option<Work>) -> Notes {
        desired_notes(params, runtime).with(match self {
            Plugin::Edf(_) => Notes::default(),
            Plugin::Rm(_) => rm::lasting_notes(params),
            Plugin::Fp(_) | Plugin::Foreign(_) => Notes::BUDGET_NOT_ENFORCED,
        })
    }

    /// What it could still give out on a CPU: an upper bound for a task with a span of its own.
    pub(crate) fn free(&self, world: &World<'_>, cpu: u32) -> Charge {
        match self {
            Plugin::Edf(edf) => edf.free(world, cpu),
            Plugin::Rm(rm) => rm.free(world, cpu),
            Plugin::Fp(_) | Plugin::Foreign(_) => Charge::ONE.saturating_sub(world.view.load(cpu)),
        }
    }
}

/// The claim of a task with `runtime` in plugin `plugin` at `place`.
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
        work: known.map_or(0, |(work, _)| work.as_ns()),
        span: known.map_or(1, |(_, span)| span.as_ns()),
        period: rate.map_or(1, |(_, period)| period.as_ns()),
        rate: rate.map_or(Charge::ZERO, |(work, period)| Charge::new(work, period)),
        deadline,
        voids: known.is_none() || offer.notes.contains(Notes::ADMISSION_IGNORED),
    }
}

/// A "no" without a CPU.
pub(crate) fn no(reason: Reason, field: Field, asked: u64, limit: u64, fits: u64) -> No {
    No { reason, field, cpu: None, asked, limit, fits, witness: None }
}

/// A mandatory parameter is missing.
pub(crate) fn missing(field: Field) -> Verdict {
    Verdict::No(no(Reason::Missing, field, 0, 0, 0))
}

/// None of the plugin's CPUs is acceptable: the first one asked for, and the first one that could
/// be had.
pub(crate) fn no_cpu(ask: &Ask<'_>, cpus: &CpuSet) -> No {
    let first = |set: &CpuSet| set.iter().next().unwrap_or(0).into();
    no(Reason::NoCpu, Field::Cpus, first(&ask.allowed), first(cpus), first(cpus))
}

/// The longest time that a plugin reckons with, in nanoseconds: 292 years.
const LONGEST: u64 = i64::MAX as u64;

/// Whether the parameters make sense together, whoever serves them (facts W12).
pub(crate) fn sound(params: &Params) -> Result<(), No> {
    let times = [
        (Field::Period, params.period.map(Span::as_ns)),
        (Field::Runtime, params.runtime.map(Work::as_ns)),
        (Field::Desired, params.desired.map(Work::as_ns)),
        (Field::Deadline, params.deadline.map(Span::as_ns)),
    ];
    for (field, ns) in times {
        match ns {
            Some(0) => return Err(no(Reason::OutOfRange, field, 0, 1, 1)),
            Some(ns) if ns > LONGEST => {
                return Err(no(Reason::OutOfRange, field, ns, LONGEST, LONGEST));
            }
            _ => {}
        }
    }
    if let (Some(runtime), Some(span)) = (params.runtime, params.density_span()) {
        let (runtime, span) = (runtime.as_ns(), span.as_ns());
        if runtime > span {
            return Err(no(Reason::Contradiction, Field::Runtime, runtime, span, span));
        }
    }
    match (params.runtime, params.desired) {
        (Some(runtime), Some(desired)) if desired < runtime => {
            let (desired, runtime) = (desired.as_ns(), runtime.as_ns());
            Err(no(Reason::Contradiction, Field::Desired, desired, runtime, runtime))
        }
        _ => Ok(()),
    }
}

/// The note for whoever wanted more runtime than he gets.
pub(crate) fn desired_notes(params: &Params, runtime: Option<Work>) -> Notes {
    let less =
        params.desired.is_some_and(|desired| runtime.is_some_and(|runtime| runtime < desired));
    if less { Notes::BELOW_DESIRED } else { Notes::default() }
}

/// A band on one CPU: a plugin whose highest level is another's lowest gives that level up there,
/// so that who outranks whom is never left to the order of arrival (ReTiF's Listing 2 has such a
/// pair: 50-99 above 1-50).
pub(crate) fn narrowed(band: Band, others: impl Iterator<Item = Band>) -> Band {
    let met = |other: Band| other.low == band.high && other.high.outranks(band.high);
    let mut others = others;
    if band.high.outranks(band.low) && others.any(met) {
        return Band { low: band.low, high: talea_core::Priority(band.high.0 - 1) };
    }
    band
}
