//! Processor demand test for the tasks pinned to a CPU, if the sum of densities exceeds U^thr.
//!
//! Q / min(T, D) counts every job as if it recurred after D, so with D < T the sum rejects feasible
//! sets. The deadlines are met if in no window the demand exceeds the supply
//! (`talea_analysis::uni::qpa`):
//!
//! > h(t) = Σ_{D_j ≤ t} (⌊(t − D_j)/T_j⌋ + 1)·Q_j ≤ U^thr·t for all t.
//!
//! *Supply.* The deadline class outranks all others, so it has the whole CPU except the kernel's
//! reserve: a server of the same class for ordinary threads (50 ms in every second since 6.12),
//! whose deadline is the end of its period, so its demand is at most 5 % of any window. U^thr is at
//! most the kernel's share, so both fit under EDF; the difference covers overheads. With the supply
//! scaled like this the test agrees with the sum: h(t) ≤ t·ΣQ/min(T, D), so every set accepted by
//! the sum is accepted. The fast search uses whole nanoseconds, with costs divided by U^thr and
//! rounded up. If that leaves it undecided whether h(t) exceeds U^thr·t or equals it, exact
//! fractions decide.
//!
//! *Demand.* A task with D < T is under a hard CBS: the kernel supplies Q by the deadline D after
//! its activation, then nothing until T is over, and reduces the rest to the density Q/D when it
//! wakes within D (`docs/model.md`, servers). So at most one Q is due per T, and not before D after
//! its activation: h. With a coarse enforcement granularity an overrun is compensated later; like
//! the sum, the test counts the declared runtime.
//!
//! *Other plugins.* Their tasks have lower priorities and take nothing from the deadline class;
//! `rm` protects its own guarantees. But all tasks of the CPU together must fit into U^thr in the
//! long run: Σ Q/T over all.
//!
//! The test does not apply to a whole root domain, which has the global test. A desired runtime
//! grows only as far as the sum of densities allows: a task admitted only by the demand test is
//! granted Q.

use super::Edf;
use crate::exact_test::{ExactResult, MAX_STEPS, MAX_TASKS};
use crate::ledger::{Claim, Place};
use crate::plugins::PluginContext;
use talea_analysis::uni::HORIZON_NS;
use talea_analysis::uni::qpa::{self, Finding};
use talea_analysis::{Demand, Sporadic, edf};
use talea_core::mutate;
use talea_core::{Charge, Span, Work};
use talea_proto::refusal::Witness;

impl Edf {
    /// Whether the demand test could accept `candidate`, judged by the long-run utilization; false
    /// on a root domain.
    pub(super) fn may_fit(&self, context: &PluginContext<'_>, candidate: &Claim) -> bool {
        match candidate.place {
            Place::Cpu(cpu) => context.view.may_fit(
                cpu,
                candidate,
                mutate!("plugin-edf-demand-long-run", self.threshold, Charge::ONE.times(9)),
            ),
            Place::Domain(_) | Place::Set(_) => false,
        }
    }

    /// Runs the demand test on the CPU of `candidate`.
    pub(super) fn demand_test(
        &self,
        context: &PluginContext<'_>,
        candidate: &Claim,
    ) -> ExactResult {
        let place = candidate.place;
        if context.placements.at(place).len() > MAX_TASKS || !context.exact_tests.consume() {
            return ExactResult::Untried;
        }
        let Some(zero_lag_holds) = context.view.ledger.zero_lag_holds_at(place) else {
            return ExactResult::Untried;
        };
        let here =
            context.at(place).map(|entry| &entry.claim).chain(zero_lag_holds).chain([candidate]);
        let tasks: Vec<Sporadic> =
            here.filter(|claim| claim.deadline && claim.work_ns > 0).map(Claim::sporadic).collect();
        let scaled: Option<Vec<Sporadic>> = tasks
            .iter()
            .map(|task| {
                scaled(task, mutate!("plugin-edf-demand-share", self.threshold, Charge::ONE))
            })
            .collect();
        let Some(scaled) = scaled.filter(|tasks| tasks.len() <= MAX_TASKS) else {
            return ExactResult::Untried;
        };
        let at = match context.exact_tests.run(|scratch| qpa::find(&scaled, scratch)) {
            Ok(Finding::Fits) => return ExactResult::Fits,
            Ok(Finding::Exceeds { at, .. }) => Some(at),
            Ok(Finding::Alone { task }) => Some(tasks[task].deadline),
            Ok(Finding::Overload) => None,
            Err(_) => return ExactResult::Untried,
        };
        match at.and_then(|at| witness(&tasks, at.as_ns(), self.threshold)) {
            Some(witness) => ExactResult::Misses(Some(witness)),
            None => {
                mutate!(
                    "plugin-edf-demand-rounding",
                    decide_exactly(&tasks, self.threshold),
                    ExactResult::Misses(None)
                )
            }
        }
    }
}

/// Decides with exact fractions: the walk of `talea_analysis::supply::edf`, starting at the last
/// relevant time if ΣQ/T is at most `share`, the longest deadline after a hyperperiod.
fn decide_exactly(tasks: &[Sporadic], share: Charge) -> ExactResult {
    let rates: Vec<Demand> = tasks.iter().map(|task| Demand::new(task.cost, task.period)).collect();
    if !edf::partitioned(&rates, share) {
        // The overload is in the long run: no window is a witness.
        return ExactResult::Misses(None);
    }
    let latest = tasks.iter().map(|task| task.deadline.as_ns()).max().unwrap_or(0);
    let all = tasks.iter().try_fold(1u64, |all, task| lcm_within_horizon(all, task.period.as_ns()));
    let Some(mut at) = all.and_then(|all| all.checked_add(latest)) else {
        return ExactResult::Untried;
    };
    for _ in 0..MAX_STEPS / (4 * tasks.len() as u64 + 1) {
        let demand_bound = demand_bound(tasks, at);
        if demand_bound == 0 {
            return ExactResult::Fits;
        }
        // Shortest window with enough supply.
        match (demand_bound << 64).div_ceil(share.bits()) {
            time if time <= u128::from(at) => at = time as u64 - 1,
            _ => return ExactResult::Misses(witness(tasks, at, share)),
        }
    }
    ExactResult::Untried
}

/// Returns the least common multiple, or `None` if it exceeds the range of the analysis.
fn lcm_within_horizon(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while x != 0 {
        (x, y) = (y % x, x);
    }
    (a / y).checked_mul(b).filter(|&all| all <= HORIZON_NS)
}

/// Returns h(t), at most ΣQ/T·t + ΣQ, so below 2^64 within the horizon.
fn demand_bound(tasks: &[Sporadic], at: u64) -> u128 {
    let jobs = |task: &Sporadic| match at.checked_sub(task.deadline.as_ns()) {
        Some(rest) => rest / task.period.as_ns() + 1,
        None => 0,
    };
    tasks.iter().map(|task| u128::from(jobs(task)) * u128::from(task.cost.as_ns())).sum()
}

/// Returns the task scaled for a CPU of speed `share`: its cost grows, rounded up. Returns `None`
/// if the cost does not fit or the share is zero.
fn scaled(task: &Sporadic, share: Charge) -> Option<Sporadic> {
    // A whole CPU is 2^64; a shifted cost fits into twice the bits.
    let bits = Some(share.bits()).filter(|&bits| bits > 0)?;
    let cost = (u128::from(task.cost.as_ns()) << 64).div_ceil(bits);
    Some(Sporadic { cost: Work::from_ns(u64::try_from(cost).ok()?), ..*task })
}

/// Returns the window up to the last deadline not after `at`, if its demand exceeds its supply.
fn witness(tasks: &[Sporadic], at: u64, share: Charge) -> Option<Witness> {
    let last = |task: &Sporadic| {
        let deadline = task.deadline.as_ns();
        Some(at.checked_sub(deadline)? / task.period.as_ns() * task.period.as_ns() + deadline)
    };
    let at = tasks.iter().filter_map(last).max()?;
    let demand = Work::from_ns(u64::try_from(demand_bound(tasks, at)).ok()?);
    // Work is an integer: it exceeds U^thr·t if it exceeds its integer part.
    let (at, supply) = (Span::from_ns(at), share.of(Span::from_ns(at)));
    (demand > supply).then_some(Witness::Demand { at, demand, supply })
}
