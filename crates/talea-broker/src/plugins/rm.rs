//! Rate monotonic on `SCHED_FIFO`; deadline monotonic when D < T. ReTiF (JSA 2021) section 5.2.
//!
//! The period is mandatory, the runtime recommended: without it the task is served partially, is of
//! no weight in any test, and voids what could be proved for itself and for those at or below its
//! kernel level ("not proved"). Urgency is min(T, D), the smaller the more urgent;
//! [`crate::levels`] makes kernel priorities of it. A task goes to the least loaded CPU (all
//! plugins' charges, then specs, then the number); as the tests are not monotone in load, the next
//! ones are tried too, up to a fixed number.
//!
//! *Admission.* On one CPU, the classes of `talea_analysis::rm`:
//!
//! - every kernel level is one class: all its work within its shortest span;
//! - tasks that outrank this plugin here (the deadline class, and plugins whose band reaches as
//!   high as ours) are classes of their own as far as their spans are shorter than our shortest
//!   class, and add their work to that class otherwise. Tasks under global EDF count with twice
//!   their work on every CPU of their domain, apart from pinned ones of equal span.
//!
//! `hyperbolic` and `liu-layland` ask about these classes. `exact` asks as `hyperbolic` does, and
//! where that says no, the whole list of the CPU (`exact.rs`): first of all CPUs that are tried
//! those on which the bound is enough, then, on no more than [`TRIES_MAX`](crate::exact::TRIES_MAX)
//! of them, the test. `necessary` asks whether the plain charges on the CPU (and on its domain, if
//! any) stay within one CPU (the domain's CPUs), and proves nothing, so its tasks are always "not
//! proved" and bind nobody else.
//!
//! *What others owe to us* (checklist R31). The promise of a CPU is about the levels above the
//! first one that holds an unknown runtime or an ignored test, and there is none while such a task
//! outranks us. A task of another plugin that would outrank us must leave the promised levels
//! provable ([`Rm::bears`]). Whether a task is proved is computed anew whenever somebody asks
//! ([`Rm::notes`]), never remembered.
//!
//! *Assumed*: tasks keep to what they declare; deadline-class tasks are activated no more often
//! than every T, so that their kernel budgets start afresh with each activation. A task that leaves
//! frees its share at once; for a job's length those below may see both it and its successor (mode
//! changes are ReTiF's open point, section 7.5).
//!
//! A question costs O(CPUs + log n), and up to 99 more where something is not proved; an arrival
//! O(log n + threads that move), for n tasks. An exact test is beyond that, and bounded
//! ([`crate::exact`]).

mod exact;
mod sums;

use self::sums::{Change, Sums, domain_classes, weight};
use super::fp::would_break;
use super::place::worst_fit;
use super::{Core, Entry, Outranking, World, desired_notes, missing, no};
use crate::bound::room;
use crate::classes::Classes;
use crate::exact::{Broken, Depth, Exactly, Open, keep_telling};
use crate::ledger::{Claim, Place};
use crate::levels::{After, Levels, Member};
use crate::plugin::{Ask, Offer, Verdict};
use talea_core::mutate;
use talea_core::setup::{Band, RmOptions, RmTest};
use talea_core::{Charge, Params, Span};
use talea_proto::message::Notes;
use talea_proto::refusal::Reason;
use talea_proto::{Field, No};

/// The plugin.
#[derive(Clone, Debug)]
pub(crate) struct Rm {
    /// What all plugins are made of.
    pub(crate) core: Core,
    options: RmOptions,
    /// By CPU number; `None` where the plugin is not.
    cpus: Vec<Option<At>>,
}

/// The plugin on one CPU.
#[derive(Clone, Debug)]
struct At {
    levels: Levels,
    /// Pinned tasks of other plugins that outrank ours, by span.
    above: Classes,
    /// Those of them that void all proofs here.
    voids: u32,
    /// ΣU of ours and of those, each rounded up by less than 2^-64, and how many that is.
    asked: (Charge, u32),
    /// The plugins they may be of: a bit each. The deadline class over the whole domain always
    /// outranks.
    outranked_by: u32,
}

impl At {
    /// A claim of ours, or of one that outranks us, has come or gone.
    fn count(&mut self, claim: &Claim, comes: bool) {
        let (sum, count) = self.asked;
        self.asked = if comes {
            (sum.saturating_add(claim.rate), count + 1)
        } else {
            (sum.checked_sub(claim.rate).expect("a rate given back that was not taken"), count - 1)
        };
    }

    /// Whether ΣU may be at most 1 without `leaving` and with `coming`: as far as rounding lets one
    /// say.
    fn may_hold(&self, leaving: Option<&Claim>, coming: Charge) -> bool {
        let (sum, count) = self.asked;
        let sum = sum
            .saturating_sub(leaving.map_or(Charge::ZERO, |claim| claim.rate))
            .saturating_add(coming);
        sum.saturating_sub(Charge::from_bits(u128::from(count) + 1)) <= Charge::ONE
    }
}

impl Rm {
    /// `band` says which levels there are on each CPU, `outranked_by` which plugins may outrank
    /// this one there.
    pub(crate) fn new(
        core: Core,
        options: RmOptions,
        band: impl Fn(u32) -> Band,
        outranked_by: impl Fn(u32) -> u32,
    ) -> Rm {
        let at = |cpu| At {
            levels: Levels::with_sums(band(cpu)),
            above: Classes::default(),
            voids: 0,
            asked: (Charge::ZERO, 0),
            outranked_by: outranked_by(cpu),
        };
        let last = core.cpus.iter().last().map_or(0, |cpu| cpu + 1);
        let cpus = (0..last).map(|cpu| core.cpus.contains(cpu).then(|| at(cpu))).collect();
        Rm { core, options, cpus }
    }

    fn at(&self, cpu: u32) -> &At {
        self.cpus[cpu as usize].as_ref().expect("a CPU of this plugin")
    }

    fn place(&self, place: Place) -> &At {
        let Place::Cpu(cpu) = place else { unreachable!("fixed priorities are placed on CPUs") };
        self.at(cpu)
    }

    fn place_mut(&mut self, place: Place) -> &mut At {
        let Place::Cpu(cpu) = place else { unreachable!("fixed priorities are placed on CPUs") };
        self.cpus[cpu as usize].as_mut().expect("a CPU of this plugin")
    }

    // ---- what outranks us ----

    /// Whether a task of `plugin` at `place` would outrank ours on `cpu`.
    pub(crate) fn is_outranked(&self, cpu: u32, plugin: u32, place: Place) -> bool {
        let at = self.cpus.get(cpu as usize).and_then(Option::as_ref);
        at.is_some_and(|at| {
            matches!(place, Place::Domain(_))
                || mutate!(
                    "ledger-shared",
                    at.outranked_by & (1 << plugin) != 0,
                    at.outranked_by & (1 << plugin) == u32::MAX
                )
        })
    }

    /// A pinned task that outranks ours has come, or gone.
    pub(crate) fn overshadow(&mut self, claim: &Claim, comes: bool) {
        let at = self.place_mut(claim.place);
        match (comes, claim.work) {
            (_, 0) => {}
            (true, work) => at.above.add(claim.span, work.into()),
            (false, work) => at.above.remove(claim.span, work.into()),
        }
        let by = u32::from(claim.voids);
        at.voids = if comes { at.voids + by } else { at.voids - by };
        at.count(claim, comes);
    }

    fn outranks_us(&self, cpu: u32, claim: &Claim, world: &World<'_>) -> bool {
        let here = match claim.place {
            Place::Cpu(other) => other == cpu,
            Place::Domain(domain) => world.view.ledger.domain(domain).cpus.contains(cpu),
        };
        here && self.is_outranked(cpu, claim.plugin, claim.place)
    }

    /// Whether somebody above voids all proofs on `cpu`.
    fn is_voided(&self, world: &World<'_>, cpu: u32) -> bool {
        let leaving =
            world.view.leaving.filter(|claim| claim.voids && claim.place == Place::Cpu(cpu));
        let leaving =
            leaving.is_some_and(|claim| self.is_outranked(cpu, claim.plugin, claim.place));
        let domain = world.view.ledger.domain_of(cpu);
        mutate!("plugin-rm-voided", self.at(cpu).voids > u32::from(leaving), false)
            || domain.is_some_and(|d| world.view.voided(Place::Domain(d)))
    }

    // ---- the tests ----

    /// Whether what is promised on `cpu` still holds with `coming` above.
    pub(crate) fn bears(
        &self,
        world: &World<'_>,
        cpu: u32,
        coming: &Outranking,
        depth: Depth,
    ) -> Result<(), Broken> {
        let leaving = self.leaving(world, cpu);
        let Some((change, sums)) = self.promise(world, cpu, coming, leaving.as_ref()) else {
            return Ok(());
        };
        if self.holds(world, cpu, &change, &sums.all()) {
            return Ok(());
        }
        if self.options.test != RmTest::Exact || depth == Depth::Bounds {
            return Err(Broken { open: self.options.test == RmTest::Exact, witness: None });
        }
        self.exactly(world, cpu, &change, &self.at(cpu).levels.after(leaving.as_ref(), None))
            .settled()
    }

    /// The most work that a task like `coming` could have so that [`Rm::bears`] holds by the sums;
    /// rounded down.
    pub(crate) fn bearable(&self, world: &World<'_>, cpu: u32, coming: &Outranking) -> u128 {
        let leaving = self.leaving(world, cpu);
        let Some((_, sums)) = self.promise(world, cpu, coming, leaving.as_ref()) else {
            return u128::MAX;
        };
        let weight = weight(coming.place);
        let others = sums.mine.1 - u128::from(coming.work) * weight;
        room(self.options.test, &sums.rest, sums.mine.0).saturating_sub(others) / weight
    }

    /// What is promised on `cpu`, with `coming` above; `None` when nothing is.
    fn promise<'a>(
        &self,
        world: &World<'a>,
        cpu: u32,
        coming: &'a Outranking,
        leaving: Option<&'a Member>,
    ) -> Option<(Change<'a>, Sums)> {
        if mutate!(
            "plugin-rm-promise",
            self.options.test == RmTest::Necessary || self.is_voided(world, cpu),
            true
        ) {
            return None;
        }
        let above_leaving = world.view.leaving.filter(|claim| self.outranks_us(cpu, claim, world));
        let change = Change {
            leaving,
            above_leaving,
            above_coming: Some(coming),
            promised: true,
            ..Change::default()
        };
        let sums = self.sums(world, cpu, &change, &self.at(cpu).levels.after(leaving, None))?;
        Some((change, sums))
    }

    // ---- questions ----

    /// Can it serve this, where, at what cost?
    pub(crate) fn ask(&self, world: &World<'_>, ask: &Ask<'_>) -> Verdict {
        let params = ask.params;
        if params.period.is_none() {
            return missing(Field::Period);
        }
        let cpus = match self.core.fifo_cpus_for(ask) {
            Ok(cpus) => cpus,
            Err(no) => return Verdict::No(no),
        };
        let coming = member(
            params,
            params.runtime.map_or(0, |q| q.as_ns().into()),
            params.runtime.is_none(),
        );
        let load = |cpu| (world.view.load(cpu), world.view.specs(cpu), cpu);
        let (mut refused, mut ignoring): (Option<No>, Option<u32>) = (None, None);
        let mut open = Open::default();
        for cpu in worst_fit(cpus, &ask.wished, load) {
            let levels = &self.at(cpu).levels;
            let leaving = self.leaving(world, cpu);
            if mutate!("plugin-rm-sharing", self.options.refuse_sharing, false)
                && levels.must_share(coming.key, leaving.as_ref())
            {
                let (asked, limit) = (levels.distinct() as u64 + 1, levels.size() as u64);
                let no = no(Reason::NoLevel, Field::Levels, asked, limit, limit);
                refused.get_or_insert(No { cpu: Some(cpu), ..no });
                continue;
            }
            let after = levels.after(leaving.as_ref(), Some(&coming));
            match self.try_on(world, ask, cpu, &coming, leaving.as_ref(), &after, Depth::Bounds) {
                Ok(charge) => return self.offer(world, ask, cpu, &coming, &after, charge),
                Err((no, is_open)) => {
                    ignoring.get_or_insert(cpu);
                    keep_telling(&mut refused, no);
                    if is_open {
                        open.push(cpu);
                    }
                }
            }
        }
        for cpu in open.cpus() {
            let leaving = self.leaving(world, cpu);
            let after = self.at(cpu).levels.after(leaving.as_ref(), Some(&coming));
            match self.try_on(world, ask, cpu, &coming, leaving.as_ref(), &after, Depth::Exact) {
                Ok(charge) => return self.offer(world, ask, cpu, &coming, &after, charge),
                Err((no, _)) => keep_telling(&mut refused, no),
            }
        }
        match ignoring.filter(|_| ask.ignore_admission) {
            Some(cpu) => {
                let (leaving, coming) =
                    (self.leaving(world, cpu), Member { unproved: true, ..coming });
                let after = self.at(cpu).levels.after(leaving.as_ref(), Some(&coming));
                let charge = ask.params.runtime.and_then(|q| ask.params.charge_of(q));
                self.offer(world, ask, cpu, &coming, &after, charge.unwrap_or(Charge::ZERO))
            }
            None => Verdict::No(refused.expect("a plugin has at least one CPU")),
        }
    }

    fn leaving(&self, world: &World<'_>, cpu: u32) -> Option<Member> {
        let ours = |entry: &&Entry| {
            entry.claim.plugin == self.core.index && entry.claim.place == Place::Cpu(cpu)
        };
        world.leaving.filter(ours).map(of_entry)
    }

    /// Whether the tests allow `coming` on `cpu`, and what it costs there; or why not, and whether
    /// an exact test might say otherwise.
    #[expect(
        clippy::too_many_arguments,
        reason = "a question, whom it is about, and how far to go"
    )]
    fn try_on(
        &self,
        world: &World<'_>,
        ask: &Ask<'_>,
        cpu: u32,
        coming: &Member,
        leaving: Option<&Member>,
        after: &After<'_>,
        depth: Depth,
    ) -> Result<Charge, (No, bool)> {
        let params = ask.params;
        let (Some(runtime), Some(period)) = (params.runtime, params.period) else {
            return Ok(Charge::ZERO);
        };
        let charge = params.charge_of(runtime).expect("the period is declared");
        let refusal = |fits: u64, limit: u64| No {
            cpu: Some(cpu),
            ..no(Reason::NoRoom, Field::Utilization, charge.ppm(), limit, fits)
        };
        if self.options.test == RmTest::Necessary {
            if !self.is_possible(world, cpu, params, charge) {
                let free = self.free(world, cpu).ppm_down();
                return Err((refusal(free, Charge::ONE.ppm()), false));
            }
        } else {
            let above_leaving =
                world.view.leaving.filter(|claim| self.outranks_us(cpu, claim, world));
            let change = Change {
                leaving,
                coming: Some(coming),
                period,
                above_leaving,
                ..Change::default()
            };
            let sums = self.sums(world, cpu, &change, after).expect("it has work itself");
            let said = if mutate!(
                "plugin-rm-exact-first",
                self.holds(world, cpu, &change, &sums.all()),
                self.options.test != RmTest::Exact && self.holds(world, cpu, &change, &sums.all())
            ) {
                Ok(())
            } else {
                let gone = world.view.leaving.filter(|claim| self.counts(cpu, claim));
                let open = self.options.test == RmTest::Exact
                    && self.at(cpu).may_hold(gone, Charge::new(runtime, period));
                mutate!(
                    "plugin-rm-exact-skipped",
                    match depth {
                        Depth::Exact if open => self.exactly(world, cpu, &change, after).settled(),
                        _ => Err(Broken { open, witness: None }),
                    },
                    match depth {
                        Depth::Exact if open && cpu > 1_000 =>
                            self.exactly(world, cpu, &change, after).settled(),
                        _ => Err(Broken { open, witness: None }),
                    }
                )
            };
            if let Err(Broken { open, witness }) = said {
                let others = sums.mine.1 - coming.work;
                let most = room(self.options.test, &sums.rest, sums.mine.0).saturating_sub(others);
                let span = params.density_span().expect("the period is declared").as_ns();
                let most = u64::try_from(most).unwrap_or(u64::MAX).min(span);
                let fits = Charge::ratio(most, span).ppm_down();
                return Err((No { witness, ..refusal(fits, fits) }, open));
            }
        }
        let outranking = super::fp::coming(self.core.index, Place::Cpu(cpu), params);
        match world.bear(&outranking, depth) {
            Ok(()) => Ok(charge),
            Err(broken) => Err((would_break(world, &outranking, &broken), broken.open)),
        }
    }

    /// Whether the claim is among those that [`At::asked`] counts on `cpu`.
    fn counts(&self, cpu: u32, claim: &Claim) -> bool {
        claim.place == Place::Cpu(cpu)
            && (claim.plugin == self.core.index
                || self.is_outranked(cpu, claim.plugin, claim.place))
    }

    /// ReTiF's necessary test: the CPU's charges within one CPU, and its domain's within the
    /// domain's CPUs.
    fn is_possible(&self, world: &World<'_>, cpu: u32, params: &Params, charge: Charge) -> bool {
        let place = Place::Cpu(cpu);
        let offer = Offer {
            cpu: Some(cpu),
            runtime: params.runtime,
            charge,
            notes: Notes::default(),
            priority: 0,
        };
        let claim = super::claim(self.core.index, place, params, &offer, false);
        let ledger = world.view.ledger;
        world.view.fits(cpu, &claim, Charge::ONE)
            && ledger.domain_of(cpu).is_none_or(|domain| {
                world.view.fits_beside(
                    domain,
                    &claim,
                    Charge::ONE.times(ledger.domain(domain).count),
                )
            })
    }

    fn offer(
        &self,
        world: &World<'_>,
        ask: &Ask<'_>,
        cpu: u32,
        coming: &Member,
        after: &After<'_>,
        charge: Charge,
    ) -> Verdict {
        let params = ask.params;
        let ignored = coming.unproved && params.runtime.is_some();
        let run = after.newcomer().expect("it has a run");
        let shared = run.is_shared();
        // A walk through all that is above, unless there is nobody to be found.
        let all_proved = run.unproved == 0 && self.at(cpu).levels.all_proved();
        let above = || after.runs().take_while(|above| above.first <= run.first);
        let unproved = (!all_proved && above().any(|run| run.unproved > 0))
            || self.options.test == RmTest::Necessary
            || self.is_voided(world, cpu);
        let when = |yes: bool, note| if yes { note } else { Notes::default() };
        let offer = Offer {
            cpu: Some(cpu),
            runtime: params.runtime,
            charge,
            notes: lasting_notes(params)
                .with(Core::wish_notes(ask, cpu))
                .with(when(ignored, Notes::ADMISSION_IGNORED))
                .with(when(shared, Notes::LEVEL_SHARED))
                .with(when(unproved, Notes::NOT_PROVED)),
            priority: 0,
        };
        if params.runtime.is_some() { Verdict::Ok(offer) } else { Verdict::Partial(offer) }
    }

    /// What it could still give out on `cpu`, to a task with a span of its own.
    pub(crate) fn free(&self, world: &World<'_>, cpu: u32) -> Charge {
        if self.options.test == RmTest::Necessary {
            let own = Charge::ONE.saturating_sub(world.view.total(cpu));
            let ledger = world.view.ledger;
            let domain = ledger.domain_of(cpu).map(|domain| {
                Charge::ONE
                    .times(ledger.domain(domain).count)
                    .saturating_sub(world.view.everything(domain))
            });
            return domain.map_or(own, |domain| own.min(domain));
        }
        // A second is as good as any span here: only ratios matter.
        let span = 1_000_000_000;
        let after = self.at(cpu).levels.after(None, None);
        let rest = match self.sums(world, cpu, &Change::default(), &after) {
            Some(sums) => sums.all(),
            None => self.at(cpu).above.total().sum.and(domain_classes(world, cpu).total().sum),
        };
        Charge::ratio(room(self.options.test, &rest, span) as u64, span)
    }

    // ---- what it has got ----

    /// The spec is this plugin's from here on.
    pub(crate) fn enter(&mut self, entry: &Entry, moved: &mut Vec<u32>) {
        let at = self.place_mut(entry.claim.place);
        at.levels.insert(&of_entry(entry), moved);
        at.count(&entry.claim, true);
    }

    /// The spec is no longer this plugin's.
    pub(crate) fn leave(&mut self, entry: &Entry, moved: &mut Vec<u32>) {
        let at = self.place_mut(entry.claim.place);
        at.levels.remove(&of_entry(entry), moved);
        at.count(&entry.claim, false);
    }

    /// `new` takes the place of `old` if both have the same CPU and urgency.
    pub(crate) fn exchange(&mut self, old: &Entry, new: &Entry) -> bool {
        let (was, is) = (of_entry(old), of_entry(new));
        let same = old.claim.place == new.claim.place && was.key == is.key;
        if same {
            let at = self.place_mut(old.claim.place);
            at.levels.exchange(&was, &is);
            at.count(&old.claim, false);
            at.count(&new.claim, true);
        }
        same
    }

    /// A thread has the attributes of the spec, or no longer.
    pub(crate) fn attach(&mut self, entry: &Entry, slot: u32, attached: bool) {
        self.place_mut(entry.claim.place).levels.attach(of_entry(entry).key, slot, attached);
    }

    /// The kernel priority now.
    pub(crate) fn priority(&self, entry: &Entry) -> u8 {
        self.place(entry.claim.place).levels.level(of_entry(entry).key)
    }

    /// What the holder should know beyond what stays true.
    pub(crate) fn notes(&self, world: &World<'_>, entry: &Entry) -> Notes {
        let Place::Cpu(cpu) = entry.claim.place else {
            unreachable!("fixed priorities are placed on CPUs")
        };
        let at = self.at(cpu);
        let index = at.levels.run_of(of_entry(entry).key);
        let runs = &at.levels.runs()[..=index];
        let shared = if runs[index].is_shared() { Notes::LEVEL_SHARED } else { Notes::default() };
        let proved = self.options.test != RmTest::Necessary
            && runs.iter().all(|run| run.unproved == 0)
            && !self.is_voided(world, cpu)
            && {
                // All that is promised includes it; if that does not hold, nobody knows who would
                // miss.
                let change = Change { promised: true, ..Change::default() };
                let after = at.levels.after(None, None);
                let sums = self.sums(world, cpu, &change, &after);
                sums.is_none_or(|sums| {
                    self.holds(world, cpu, &change, &sums.all())
                        || self.exactly(world, cpu, &change, &after) == Exactly::Fits
                })
            };
        shared.with(if proved { Notes::default() } else { Notes::NOT_PROVED })
    }
}

#[cfg(test)]
impl Rm {
    /// `other` has the same members: so it must have the same classes and the same order.
    pub(crate) fn audit(&self, other: &Rm) {
        for (one, other) in self.cpus.iter().zip(&other.cpus) {
            let (Some(one), Some(other)) = (one, other) else { continue };
            one.levels.check();
            assert_eq!(one.above.total(), other.above.total());
            assert_eq!((one.voids, one.levels.distinct()), (other.voids, other.levels.distinct()));
            assert_eq!(one.asked, other.asked);
        }
    }
}

fn member(params: &Params, work: u128, unproved: bool) -> Member {
    // An adopted record may lack the period; then it is the least urgent.
    let key = params.density_span().map_or(i64::MAX as u64, Span::as_ns);
    Member { key, work, unproved }
}

fn of_entry(entry: &Entry) -> Member {
    member(&entry.params, entry.claim.work.into(), entry.claim.voids)
}

/// What stays true of a task of these parameters.
pub(crate) fn lasting_notes(params: &Params) -> Notes {
    let partial = if params.runtime.is_none() { Notes::PARTIAL } else { Notes::default() };
    Notes::BUDGET_NOT_ENFORCED.with(partial).with(desired_notes(params, params.runtime))
}
