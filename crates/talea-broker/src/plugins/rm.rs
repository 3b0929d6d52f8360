//! Rate monotonic on `SCHED_FIFO`; deadline monotonic if D < T. ReTiF (JSA 2021) section 5.2.
//!
//! The period is mandatory, the runtime recommended. The plugin serves a task without a runtime
//! partially: every test ignores the task. Such a task and the tasks at or below its kernel level
//! are "not proved". The urgency is min(T, D), smaller is more urgent; [`crate::levels`] assigns
//! kernel priorities. The plugin places a task on the least loaded CPU (charges of all plugins,
//! then number of specs, then CPU number). The tests are not monotone in the load, so the plugin
//! also tries the next CPUs, up to a fixed number.
//!
//! *Admission.* On one CPU, the classes of `talea_analysis::rm`:
//!
//! - Every kernel level is one class: all its work within its shortest span.
//! - Tasks of the deadline class outrank this plugin, as do tasks of plugins whose band reaches as
//!   high as this one. If the span of such a task is shorter than the shortest class of this
//!   plugin, the task counts in a class of its span. Otherwise the task's work counts in that
//!   shortest class. Tasks under global EDF count with twice their work on every CPU of their
//!   domain, separate from pinned tasks of equal span.
//!
//! `hyperbolic` and `liu-layland` test these classes. `exact` first uses the hyperbolic bound on
//! all tried CPUs. If no CPU passes, `exact` tests the complete list of tasks (`exact.rs`), on at
//! most [`MAX_EXACT_TESTS`](crate::exact_test::MAX_EXACT_TESTS) CPUs. `necessary` tests whether the
//! plain charges on the CPU (and on its domain, if any) are within one CPU (the domain's CPUs).
//! `necessary` proves nothing, so its tasks are always "not proved" and oblige no other plugin.
//!
//! *Obligations of other plugins* (R31). The guarantee of a CPU covers the levels above the first
//! one with an unknown runtime or an ignored test. The CPU has no guarantee while such a task
//! outranks this plugin. A task of another plugin that would outrank this one must keep the
//! guaranteed levels provable ([`Rm::check_guarantee`]). [`Rm::notes`] computes on demand whether a
//! task is proved; the plugin never stores the result.
//!
//! *Assumptions*: tasks comply with their declared parameters. Deadline-class tasks arrive at most
//! once per T, so that their kernel budgets are full at each arrival. The plugin releases the
//! charge of its own removed task at once. So for the length of a job, both this task and its
//! successor may delay lower tasks (mode changes are ReTiF's open point, section 7.5).
//!
//! A request costs O(CPUs + log n), and up to 99 more if a task is not proved; an insertion costs
//! O(log n + changed threads), for n tasks. An exact test costs more, and is bounded
//! ([`crate::exact_test`]).

mod change;
mod exact;
mod sums;

use self::change::{Change, Sums, weight};
use super::PluginContext;
use super::base::{
    HigherPriorityTask, PlacedSpec, PluginBase, claim, desired_notes, missing_parameter, rejection,
};
use super::fp::guarantee_rejection;
use super::place::worst_fit;
use crate::exact_test::{ExactResult, NotProved, TestDepth, UndecidedCpus, keep_most_informative};
use crate::ledger::{Claim, Place};
use crate::levels::{Levels, LevelsAfter, Member};
use crate::plugin::{Offer, PluginRequest, Verdict};
use crate::rm_bounds::spare_work;
use crate::span_tree::SpanTree;
use talea_core::mutate;
use talea_core::setup::{Band, RmOptions, RmTest};
use talea_core::{Charge, Params, Span};
use talea_proto::message::Notes;
use talea_proto::refusal::RejectionReason;
use talea_proto::{Field, Rejection};

/// The plugin `rm`.
#[derive(Clone, Debug)]
pub(crate) struct Rm {
    /// Common part of all plugins.
    pub(crate) base: PluginBase,
    options: RmOptions,
    /// `cpus[cpu]`: state of the plugin on `cpu`; `None` for other CPUs.
    cpus: Vec<Option<RmCpu>>,
}

/// State of the plugin on one CPU.
#[derive(Clone, Debug)]
struct RmCpu {
    levels: Levels,
    /// Pinned tasks of other plugins that outrank this one, by span.
    above: SpanTree,
    /// Number of those tasks that are unproved.
    unproved: u32,
    /// Sum of Q/T of this plugin's tasks and of the tasks that outrank them, and the number of
    /// these tasks. Each term is rounded up by less than 2^-64.
    rate_sum: (Charge, u32),
    /// Plugins that outrank this one, one bit each. The deadline class over the whole domain always
    /// outranks.
    outranked_by: u64,
}

impl RmCpu {
    /// Counts a claim of this plugin, or of one that outranks it, when it is added or removed.
    fn count(&mut self, claim: &Claim, comes: bool) {
        let (sum, count) = self.rate_sum;
        self.rate_sum = if comes {
            (sum.saturating_add(claim.rate), count + 1)
        } else {
            (sum.checked_sub(claim.rate).expect("a removed rate was never added"), count - 1)
        };
    }

    /// Whether ΣU may be at most 1 without `leaving` and with `candidate`, as far as rounding
    /// allows to decide.
    fn may_hold(&self, leaving: Option<&Claim>, candidate: Charge) -> bool {
        let (sum, count) = self.rate_sum;
        let sum = sum
            .saturating_sub(leaving.map_or(Charge::ZERO, |claim| claim.rate))
            .saturating_add(candidate);
        sum.saturating_sub(Charge::from_bits(u128::from(count) + 1)) <= Charge::ONE
    }
}

impl Rm {
    /// Creates the plugin; `band` returns the band on each CPU, `outranked_by` the plugins that may
    /// outrank this one there.
    pub(crate) fn new(
        base: PluginBase,
        options: RmOptions,
        band: impl Fn(u32) -> Band,
        outranked_by: impl Fn(u32) -> u64,
    ) -> Rm {
        let at = |cpu| RmCpu {
            levels: Levels::with_sums(band(cpu)),
            above: SpanTree::default(),
            unproved: 0,
            rate_sum: (Charge::ZERO, 0),
            outranked_by: outranked_by(cpu),
        };
        let last = base.cpus.iter().last().map_or(0, |cpu| cpu + 1);
        let cpus = (0..last).map(|cpu| base.cpus.contains(cpu).then(|| at(cpu))).collect();
        Rm { base, options, cpus }
    }

    fn at(&self, cpu: u32) -> &RmCpu {
        self.cpus[cpu as usize].as_ref().expect("the CPU belongs to this plugin")
    }

    fn place(&self, place: Place) -> &RmCpu {
        let Place::Cpu(cpu) = place else { unreachable!("fixed priorities are placed on CPUs") };
        self.at(cpu)
    }

    fn place_mut(&mut self, place: Place) -> &mut RmCpu {
        let Place::Cpu(cpu) = place else { unreachable!("fixed priorities are placed on CPUs") };
        self.cpus[cpu as usize].as_mut().expect("the CPU belongs to this plugin")
    }

    // ---- interference ----

    /// Whether a task of `plugin` at `place` would outrank this plugin on `cpu`.
    pub(crate) fn is_outranked(&self, cpu: u32, plugin: u32, place: Place) -> bool {
        let at = self.cpus.get(cpu as usize).and_then(Option::as_ref);
        at.is_some_and(|at| {
            matches!(place, Place::Domain(_))
                || mutate!(
                    "ledger-shared",
                    at.outranked_by & (1 << plugin) != 0,
                    at.outranked_by & (1 << plugin) == u64::MAX
                )
        })
    }

    /// Adds or removes a pinned task that outranks this plugin.
    pub(crate) fn update_interference(&mut self, claim: &Claim, comes: bool) {
        let at = self.place_mut(claim.place);
        match (comes, claim.work_ns) {
            (_, 0) => {}
            (true, work) => at.above.add(claim.span_ns, work.into()),
            (false, work) => at.above.remove(claim.span_ns, work.into()),
        }
        let by = u32::from(claim.unproved);
        at.unproved = if comes { at.unproved + by } else { at.unproved - by };
        at.count(claim, comes);
    }

    fn outranks_us(&self, cpu: u32, claim: &Claim, context: &PluginContext<'_>) -> bool {
        context.view.ledger.cpus_of(claim.place).contains(cpu)
            && self.is_outranked(cpu, claim.plugin, claim.place)
    }

    /// Whether an unproved task outranks this plugin on `cpu`, so that nothing is provable.
    fn is_unproved_above(&self, context: &PluginContext<'_>, cpu: u32) -> bool {
        let leaving =
            context.view.leaving.filter(|claim| claim.unproved && claim.place == Place::Cpu(cpu));
        let leaving =
            leaving.is_some_and(|claim| self.is_outranked(cpu, claim.plugin, claim.place));
        let domain = context.view.ledger.domain_of(cpu);
        mutate!("plugin-rm-voided", self.at(cpu).unproved > u32::from(leaving), false)
            || domain.is_some_and(|d| context.view.is_unproved(Place::Domain(d)))
    }

    // ---- the tests ----

    /// Checks that the guarantee on `cpu` still holds with `candidate` above.
    pub(crate) fn check_guarantee(
        &self,
        context: &PluginContext<'_>,
        cpu: u32,
        candidate: &HigherPriorityTask,
        depth: TestDepth,
    ) -> Result<(), NotProved> {
        let leaving = self.leaving(context, cpu);
        let Some((change, sums)) = self.promise(context, cpu, candidate, leaving.as_ref()) else {
            return Ok(());
        };
        if self.holds(context, cpu, &change, &sums.all()) {
            return Ok(());
        }
        if self.options.test != RmTest::Exact || depth == TestDepth::Bounds {
            return Err(NotProved { undecided: self.options.test == RmTest::Exact, witness: None });
        }
        self.exact_test(context, cpu, &change, &self.at(cpu).levels.after(leaving.as_ref(), None))
            .settled()
    }

    /// Returns the maximum work of a task like `candidate` so that [`Rm::check_guarantee`] passes
    /// by the sums; rounded down.
    pub(crate) fn spare_work(
        &self,
        context: &PluginContext<'_>,
        cpu: u32,
        candidate: &HigherPriorityTask,
    ) -> u128 {
        let leaving = self.leaving(context, cpu);
        let Some((_, sums)) = self.promise(context, cpu, candidate, leaving.as_ref()) else {
            return u128::MAX;
        };
        let weight = weight(candidate.place);
        let others = sums.mine.1 - u128::from(candidate.work_ns) * weight;
        spare_work(self.options.test, &sums.rest, sums.mine.0).saturating_sub(others) / weight
    }

    /// Returns the guaranteed classes on `cpu` with `candidate` above; `None` if there is no
    /// guarantee.
    fn promise<'a>(
        &self,
        context: &PluginContext<'a>,
        cpu: u32,
        candidate: &'a HigherPriorityTask,
        leaving: Option<&'a Member>,
    ) -> Option<(Change<'a>, Sums)> {
        if mutate!(
            "plugin-rm-promise",
            self.options.test == RmTest::Necessary || self.is_unproved_above(context, cpu),
            true
        ) {
            return None;
        }
        let above_leaving =
            context.view.leaving.filter(|claim| self.outranks_us(cpu, claim, context));
        let change = Change {
            leaving,
            above_leaving,
            above_coming: Some(candidate),
            promised: true,
            ..Change::default()
        };
        let sums = self.sums(context, cpu, &change, &self.at(cpu).levels.after(leaving, None))?;
        Some((change, sums))
    }

    // ---- requests ----

    /// Returns the verdict for a request.
    pub(crate) fn ask(&self, context: &PluginContext<'_>, ask: &PluginRequest<'_>) -> Verdict {
        let params = ask.params;
        if params.period.is_none() {
            return missing_parameter(Field::Period);
        }
        let cpus = match self.base.fifo_cpus_for(ask) {
            Ok(cpus) => cpus,
            Err(no) => return Verdict::No(no),
        };
        let candidate = member(
            params,
            params.runtime.map_or(0, |q| q.as_ns().into()),
            params.runtime.is_none(),
        );
        let load = |cpu| (context.view.load(cpu), context.view.specs(cpu), cpu);
        let (mut refused, mut ignoring): (Option<Rejection>, Option<u32>) = (None, None);
        let mut undecided = UndecidedCpus::default();
        for cpu in worst_fit(cpus, &ask.preferred, load) {
            let levels = &self.at(cpu).levels;
            let leaving = self.leaving(context, cpu);
            if mutate!("plugin-rm-sharing", self.options.refuse_sharing, false)
                && levels.must_share(candidate.key, leaving.as_ref())
            {
                let (asked, limit) = (levels.distinct() as u64 + 1, levels.size() as u64);
                let no = rejection(RejectionReason::NoLevel, Field::Levels, asked, limit, limit);
                refused.get_or_insert(Rejection { cpu: Some(cpu), ..no });
                continue;
            }
            let after = levels.after(leaving.as_ref(), Some(&candidate));
            match self.try_on(
                context,
                ask,
                cpu,
                &candidate,
                leaving.as_ref(),
                &after,
                TestDepth::Bounds,
            ) {
                Ok(charge) => return self.offer(context, ask, cpu, &candidate, &after, charge),
                Err((no, is_open)) => {
                    ignoring.get_or_insert(cpu);
                    keep_most_informative(&mut refused, no);
                    if is_open {
                        undecided.push(cpu);
                    }
                }
            }
        }
        for cpu in undecided.cpus() {
            let leaving = self.leaving(context, cpu);
            let after = self.at(cpu).levels.after(leaving.as_ref(), Some(&candidate));
            match self.try_on(
                context,
                ask,
                cpu,
                &candidate,
                leaving.as_ref(),
                &after,
                TestDepth::Exact,
            ) {
                Ok(charge) => return self.offer(context, ask, cpu, &candidate, &after, charge),
                Err((no, _)) => keep_most_informative(&mut refused, no),
            }
        }
        match ignoring.filter(|_| ask.ignore_admission) {
            Some(cpu) => {
                let (leaving, candidate) =
                    (self.leaving(context, cpu), Member { unproved: true, ..candidate });
                let after = self.at(cpu).levels.after(leaving.as_ref(), Some(&candidate));
                let charge = ask.params.runtime.and_then(|q| ask.params.charge_of(q));
                self.offer(context, ask, cpu, &candidate, &after, charge.unwrap_or(Charge::ZERO))
            }
            None => Verdict::No(refused.expect("a plugin has at least one CPU")),
        }
    }

    fn leaving(&self, context: &PluginContext<'_>, cpu: u32) -> Option<Member> {
        let ours = |entry: &&PlacedSpec| {
            entry.claim.plugin == self.base.index && entry.claim.place == Place::Cpu(cpu)
        };
        context.leaving.filter(ours).map(of_entry)
    }

    /// Tests `candidate` on `cpu` and returns its charge there; or the rejection, and whether an
    /// exact test might accept.
    #[expect(
        clippy::too_many_arguments,
        reason = "the request, its hypothetical change, and the depth of the test"
    )]
    fn try_on(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
        cpu: u32,
        candidate: &Member,
        leaving: Option<&Member>,
        after: &LevelsAfter<'_>,
        depth: TestDepth,
    ) -> Result<Charge, (Rejection, bool)> {
        let params = ask.params;
        let (Some(runtime), Some(period)) = (params.runtime, params.period) else {
            return Ok(Charge::ZERO);
        };
        let charge = params.charge_of(runtime).expect("the period is declared");
        let refusal = |fits: u64, limit: u64| Rejection {
            cpu: Some(cpu),
            ..rejection(RejectionReason::NoRoom, Field::Utilization, charge.ppm(), limit, fits)
        };
        if self.options.test == RmTest::Necessary {
            if !self.is_possible(context, cpu, params, charge) {
                let free = self.free(context, cpu).ppm_down();
                return Err((refusal(free, Charge::ONE.ppm()), false));
            }
        } else {
            let above_leaving =
                context.view.leaving.filter(|claim| self.outranks_us(cpu, claim, context));
            let change = Change {
                leaving,
                candidate: Some(candidate),
                period,
                above_leaving,
                ..Change::default()
            };
            let sums = self.sums(context, cpu, &change, after).expect("the new task has work");
            let said = if mutate!(
                "plugin-rm-exact-first",
                self.holds(context, cpu, &change, &sums.all()),
                self.options.test != RmTest::Exact
                    && self.holds(context, cpu, &change, &sums.all())
            ) {
                Ok(())
            } else {
                let gone = context.view.leaving.filter(|claim| self.counts(cpu, claim));
                let undecided = self.options.test == RmTest::Exact
                    && self.at(cpu).may_hold(gone, Charge::new(runtime, period));
                match depth {
                    TestDepth::Exact if mutate!("plugin-rm-exact-skipped", undecided, false) => {
                        self.exact_test(context, cpu, &change, after).settled()
                    }
                    _ => Err(NotProved { undecided, witness: None }),
                }
            };
            if let Err(NotProved { undecided, witness }) = said {
                let others = sums.mine.1 - candidate.work;
                let most =
                    spare_work(self.options.test, &sums.rest, sums.mine.0).saturating_sub(others);
                let span = params.density_span().expect("the period is declared").as_ns();
                let most = u64::try_from(most).unwrap_or(u64::MAX).min(span);
                let fits = Charge::ratio(most, span).ppm_down();
                return Err((Rejection { witness, ..refusal(fits, fits) }, undecided));
            }
        }
        let outranking = super::fp::candidate(self.base.index, Place::Cpu(cpu), params);
        match context.check_guarantees(&outranking, depth) {
            Ok(()) => Ok(charge),
            Err(broken) => {
                Err((guarantee_rejection(context, &outranking, &broken), broken.undecided))
            }
        }
    }

    /// Whether the claim is counted in [`RmCpu::rate_sum`] on `cpu`.
    fn counts(&self, cpu: u32, claim: &Claim) -> bool {
        claim.place == Place::Cpu(cpu)
            && (claim.plugin == self.base.index
                || self.is_outranked(cpu, claim.plugin, claim.place))
    }

    /// Evaluates ReTiF's necessary test: the charges of the CPU within one CPU, and those of its
    /// domain within the domain's CPUs.
    fn is_possible(
        &self,
        context: &PluginContext<'_>,
        cpu: u32,
        params: &Params,
        charge: Charge,
    ) -> bool {
        let place = Place::Cpu(cpu);
        let offer = Offer {
            cpu: Some(cpu),
            runtime: params.runtime,
            charge,
            notes: Notes::default(),
            priority: 0,
            terms: None,
        };
        let claim = claim(self.base.index, place, params, &offer, false);
        let ledger = context.view.ledger;
        context.view.fits(cpu, &claim, Charge::ONE)
            && ledger.domain_of(cpu).is_none_or(|domain| {
                context.view.fits_beside(
                    domain,
                    &claim,
                    Charge::ONE.times(ledger.domain(domain).count),
                )
            })
    }

    fn offer(
        &self,
        context: &PluginContext<'_>,
        ask: &PluginRequest<'_>,
        cpu: u32,
        candidate: &Member,
        after: &LevelsAfter<'_>,
        charge: Charge,
    ) -> Verdict {
        let params = ask.params;
        let ignored = candidate.unproved && params.runtime.is_some();
        let run = after.new_run().expect("the new task has a run");
        let shared = run.is_shared();
        // A walk through all higher levels, unless there is no unproved task.
        let all_proved = run.unproved == 0 && self.at(cpu).levels.all_proved();
        let above = || after.runs().take_while(|above| above.first <= run.first);
        let unproved = (!all_proved && above().any(|run| run.unproved > 0))
            || self.options.test == RmTest::Necessary
            || self.is_unproved_above(context, cpu);
        let when = |yes: bool, note| if yes { note } else { Notes::default() };
        let offer = Offer {
            cpu: Some(cpu),
            runtime: params.runtime,
            charge,
            notes: lasting_notes(params)
                .with(self.base.preference_notes(ask, Some(cpu)))
                .with(when(ignored, Notes::ADMISSION_IGNORED))
                .with(when(shared, Notes::LEVEL_SHARED))
                .with(when(unproved, Notes::NOT_PROVED)),
            priority: 0,
            terms: None,
        };
        if params.runtime.is_some() { Verdict::Ok(offer) } else { Verdict::Partial(offer) }
    }

    /// Returns the charge that could still be granted on `cpu` to a task with a span of its own.
    pub(crate) fn free(&self, context: &PluginContext<'_>, cpu: u32) -> Charge {
        if self.options.test == RmTest::Necessary {
            let own = Charge::ONE.saturating_sub(context.view.total(cpu));
            let ledger = context.view.ledger;
            let domain = ledger.domain_of(cpu).map(|domain| {
                Charge::ONE
                    .times(ledger.domain(domain).count)
                    .saturating_sub(context.view.everything(domain))
            });
            return domain.map_or(own, |domain| own.min(domain));
        }
        // Any span gives the same result: only ratios matter.
        let span = 1_000_000_000;
        let after = self.at(cpu).levels.after(None, None);
        let rest = match self.sums(context, cpu, &Change::default(), &after) {
            Some(sums) => sums.all(),
            None => self
                .at(cpu)
                .above
                .total()
                .sum
                .combined(context.view.ledger.domain_classes(cpu).total().sum),
        };
        Charge::ratio(spare_work(self.options.test, &rest, span) as u64, span)
    }

    // ---- accepted specs ----

    /// Adds a spec to this plugin.
    pub(crate) fn add_spec(&mut self, entry: &PlacedSpec, moved: &mut Vec<u32>) {
        let at = self.place_mut(entry.claim.place);
        at.levels.insert(&of_entry(entry), moved);
        at.count(&entry.claim, true);
    }

    /// Removes a spec from this plugin.
    pub(crate) fn remove_spec(&mut self, entry: &PlacedSpec, moved: &mut Vec<u32>) {
        let at = self.place_mut(entry.claim.place);
        at.levels.remove(&of_entry(entry), moved);
        at.count(&entry.claim, false);
    }

    /// Replaces `old` by `new` if both have the same CPU and urgency; returns whether it did.
    pub(crate) fn exchange(&mut self, old: &PlacedSpec, new: &PlacedSpec) -> bool {
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

    /// Records whether a thread has the attributes of the spec.
    pub(crate) fn attach(&mut self, entry: &PlacedSpec, slot: u32, attached: bool) {
        self.place_mut(entry.claim.place).levels.attach(of_entry(entry).key, slot, attached);
    }

    /// Returns the current kernel priority.
    pub(crate) fn priority(&self, entry: &PlacedSpec) -> u8 {
        self.place(entry.claim.place).levels.level(of_entry(entry).key)
    }

    /// Returns the variable notes.
    pub(crate) fn notes(&self, context: &PluginContext<'_>, entry: &PlacedSpec) -> Notes {
        let Place::Cpu(cpu) = entry.claim.place else {
            unreachable!("fixed priorities are placed on CPUs")
        };
        let at = self.at(cpu);
        let index = at.levels.run_of(of_entry(entry).key);
        let runs = &at.levels.runs()[..=index];
        let shared = if runs[index].is_shared() { Notes::LEVEL_SHARED } else { Notes::default() };
        let proved = self.options.test != RmTest::Necessary
            && runs.iter().all(|run| run.unproved == 0)
            && !self.is_unproved_above(context, cpu)
            && {
                // The guarantee includes this task; if it does not hold as a whole, the late task
                // is unknown.
                let change = Change { promised: true, ..Change::default() };
                let after = at.levels.after(None, None);
                let sums = self.sums(context, cpu, &change, &after);
                sums.is_none_or(|sums| {
                    self.holds(context, cpu, &change, &sums.all())
                        || self.exact_test(context, cpu, &change, &after) == ExactResult::Fits
                })
            };
        shared.with(if proved { Notes::default() } else { Notes::NOT_PROVED })
    }
}

#[cfg(test)]
impl Rm {
    /// Checks that this plugin equals `other`, built from the same members: the same classes and
    /// the same order.
    pub(crate) fn audit(&self, other: &Rm) {
        for (one, other) in self.cpus.iter().zip(&other.cpus) {
            let (Some(one), Some(other)) = (one, other) else { continue };
            one.levels.check();
            assert_eq!(one.above.total(), other.above.total());
            assert_eq!(
                (one.unproved, one.levels.distinct()),
                (other.unproved, other.levels.distinct())
            );
            assert_eq!(one.rate_sum, other.rate_sum);
        }
    }
}

fn member(params: &Params, work: u128, unproved: bool) -> Member {
    // An adopted record may lack the period; then the task is the least urgent one.
    let key = params.density_span().map_or(i64::MAX as u64, Span::as_ns);
    Member { key, work, unproved }
}

fn of_entry(entry: &PlacedSpec) -> Member {
    member(&entry.params, entry.claim.work_ns.into(), entry.claim.unproved)
}

/// Returns the permanent notes of a task of these parameters.
pub(crate) fn lasting_notes(params: &Params) -> Notes {
    let partial = if params.runtime.is_none() { Notes::PARTIAL } else { Notes::default() };
    Notes::BUDGET_NOT_ENFORCED.with(partial).with(desired_notes(params, params.runtime))
}
