//! The processor demand test for what is pinned to a CPU, where the sum of densities is over U^thr.
//!
//! Q / min(T, D) counts every job as if it came again after D, so with D < T the sum refuses sets
//! that fit. What the deadlines need is that in no window more is due than is there
//! (`talea_analysis::uni::qpa`):
//!
//! > h(t) = Σ_{D_j ≤ t} (⌊(t − D_j)/T_j⌋ + 1)·Q_j ≤ U^thr·t for all t.
//!
//! *What is there.* The deadline class outranks all others, so the whole CPU is its own but for
//! what the kernel keeps back: a server of the same class for ordinary threads (50 ms in every
//! second since 6.12), which is due at the end of its period like anybody else and so asks for at
//! most 5 % of any window. U^thr is no more than the kernel's share, so that both fit under EDF;
//! what is between them is for overheads. With the supply scaled like this the test agrees with the
//! sum: h(t) ≤ t·ΣQ/min(T, D), so what the sum accepts is accepted. The fast search works in whole
//! nanoseconds, costs divided by U^thr and rounded up; where that leaves it open whether h(t)
//! exceeds U^thr·t or just reaches it, fractions decide.
//!
//! *What is due.* A task with D < T is under a hard CBS: the kernel gives it Q by the deadline D
//! after its activation, then nothing until T is over, and when it wakes within D cuts what is left
//! to the density Q/D (`docs/model.md`, servers). So at most one Q is due per T, no sooner than D
//! after its activation: h. Where budgets are enforced coarsely (the answer names the grain) an
//! overrun is paid back later; like the sum, the test counts what is declared.
//!
//! *What others have given out.* Tasks of other plugins run below and take nothing from the
//! deadline class; what `rm` has promised it guards itself. But everything on the CPU must go on
//! fitting into U^thr in the long run: Σ Q/T over all.
//!
//! Not for a whole domain: there the test is the global one. And a desired runtime grows only as
//! far as the sum of densities lets it: what only the demand test admits is granted Q.

use super::Edf;
use crate::exact::{Exactly, STEPS_MAX, TASKS_MAX};
use crate::ledger::{Claim, Place};
use crate::plugins::World;
use talea_analysis::uni::HORIZON;
use talea_analysis::uni::qpa::{self, Finding};
use talea_analysis::{Demand, Sporadic, edf};
use talea_core::mutate;
use talea_core::{Charge, Span, Work};
use talea_proto::refusal::Witness;

impl Edf {
    /// Whether the demand test could accept `coming`, as far as the long run tells.
    pub(super) fn may_fit(&self, world: &World<'_>, coming: &Claim) -> bool {
        match coming.place {
            Place::Cpu(cpu) => world.view.may_fit(
                cpu,
                coming,
                mutate!("plugin-edf-demand-long-run", self.threshold, Charge::ONE.times(9)),
            ),
            Place::Domain(_) => false,
        }
    }

    /// What the demand on the CPU of `coming` says.
    pub(super) fn demanded(&self, world: &World<'_>, coming: &Claim) -> Exactly {
        let place = coming.place;
        if world.residents.at(place).len() > TASKS_MAX || !world.tries.take() {
            return Exactly::Untried;
        }
        let Some(lingering) = world.view.ledger.lingering_at(place) else {
            return Exactly::Untried;
        };
        let here = world.at(place).map(|entry| &entry.claim).chain(lingering).chain([coming]);
        let tasks: Vec<Sporadic> =
            here.filter(|claim| claim.deadline && claim.work > 0).map(Claim::sporadic).collect();
        let scaled: Option<Vec<Sporadic>> = tasks
            .iter()
            .map(|task| {
                scaled(task, mutate!("plugin-edf-demand-share", self.threshold, Charge::ONE))
            })
            .collect();
        let Some(scaled) = scaled.filter(|tasks| tasks.len() <= TASKS_MAX) else {
            return Exactly::Untried;
        };
        let at = match world.tries.test(|scratch| qpa::find(&scaled, scratch)) {
            Ok(Finding::Fits) => return Exactly::Fits,
            Ok(Finding::Exceeds { at, .. }) => Some(at),
            Ok(Finding::Alone { task }) => Some(tasks[task].deadline),
            Ok(Finding::Overload) => None,
            Err(_) => return Exactly::Untried,
        };
        match at.and_then(|at| witness(&tasks, at.as_ns(), self.threshold)) {
            Some(witness) => Exactly::Misses(Some(witness)),
            None => {
                mutate!(
                    "plugin-edf-demand-rounding",
                    settle(&tasks, self.threshold),
                    Exactly::Misses(None)
                )
            }
        }
    }
}

/// The same with fractions, where rounding has decided: the walk of `talea_analysis::supply::edf`
/// from the last instant that matters where ΣQ/T is no more than `share`, the longest deadline
/// after a hyperperiod.
fn settle(tasks: &[Sporadic], share: Charge) -> Exactly {
    let rates: Vec<Demand> = tasks.iter().map(|task| Demand::new(task.cost, task.period)).collect();
    if !edf::partitioned(&rates, share) {
        // In the long run, then: no window shows it.
        return Exactly::Misses(None);
    }
    let latest = tasks.iter().map(|task| task.deadline.as_ns()).max().unwrap_or(0);
    let all = tasks.iter().try_fold(1u64, |all, task| common(all, task.period.as_ns()));
    let Some(mut at) = all.and_then(|all| all.checked_add(latest)) else { return Exactly::Untried };
    for _ in 0..STEPS_MAX / (4 * tasks.len() as u64 + 1) {
        let due = due(tasks, at);
        if due == 0 {
            return Exactly::Fits;
        }
        // The least window that has so much.
        match (due << 64).div_ceil(share.bits()) {
            time if time <= u128::from(at) => at = time as u64 - 1,
            _ => return Exactly::Misses(witness(tasks, at, share)),
        }
    }
    Exactly::Untried
}

/// The least common multiple, if it is within the range of the analysis.
fn common(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while x != 0 {
        (x, y) = (y % x, x);
    }
    (a / y).checked_mul(b).filter(|&all| all <= HORIZON)
}

/// h(t): no more than ΣQ/T·t + ΣQ, so below 2^64 within the horizon.
fn due(tasks: &[Sporadic], at: u64) -> u128 {
    let jobs = |task: &Sporadic| match at.checked_sub(task.deadline.as_ns()) {
        Some(rest) => rest / task.period.as_ns() + 1,
        None => 0,
    };
    tasks.iter().map(|task| u128::from(jobs(task)) * u128::from(task.cost.as_ns())).sum()
}

/// The task as it looks where only `share` of the CPU is there: its cost grows instead, rounded up.
fn scaled(task: &Sporadic, share: Charge) -> Option<Sporadic> {
    // A whole CPU is 2^64; a cost shifted by as much fits into twice the bits.
    let bits = Some(share.bits()).filter(|&bits| bits > 0)?;
    let cost = (u128::from(task.cost.as_ns()) << 64).div_ceil(bits);
    Some(Sporadic { cost: Work::from_ns(u64::try_from(cost).ok()?), ..*task })
}

/// The window up to the last deadline that is not after `at`, if more is due in it than there is.
fn witness(tasks: &[Sporadic], at: u64, share: Charge) -> Option<Witness> {
    let last = |task: &Sporadic| {
        let deadline = task.deadline.as_ns();
        Some(at.checked_sub(deadline)? / task.period.as_ns() * task.period.as_ns() + deadline)
    };
    let at = tasks.iter().filter_map(last).max()?;
    let demand = Work::from_ns(u64::try_from(due(tasks, at)).ok()?);
    // Work comes in whole nanoseconds: more than the whole part of U^thr·t is more than that.
    let (at, supply) = (Span::from_ns(at), share.of(Span::from_ns(at)));
    (demand > supply).then_some(Witness::Demand { at, demand, supply })
}
