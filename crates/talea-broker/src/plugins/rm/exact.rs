//! Exact test of one CPU: the response time of every level's last task, from the list of all
//! relevant tasks.
//!
//! The sums use classes of equal spans. The exact test uses the declared parameters: own periods,
//! deadlines min(T, D), and `talea_analysis::uni::fp_levels`:
//!
//! - Each kernel level serves its tasks first come, first served, so each of them may be the last;
//!   tasks of one level delay each other, for any spans.
//! - Tasks that outrank this plugin here are above all levels, in no order: their own deadlines are
//!   not tested here. Pinned ones demand ⌈t/T⌉·Q within t. Those under global EDF demand one job
//!   more, which may have begun on another CPU (argument 4 in `talea_analysis::rm`): a release
//!   jitter of T.
//!
//! *Dominance.* Every set accepted by the hyperbolic bound is accepted: shorter spans only add
//! jobs, and (⌈t/T⌉ + 1)·Q is at most the 2·⌈t/T⌉·Q of the sums. *Removal.* A removed task takes
//! its work with it, and if a level is split for it, its tasks still meet their deadlines
//! (`fp_levels`): guarantees are preserved.

use super::Rm;
use super::change::Change;
use crate::exact_test::{ExactResult, MAX_TASKS};
use crate::ledger::{Claim, Place};
use crate::levels::LevelsAfter;
use crate::plugins::PluginContext;
use talea_analysis::Sporadic;
use talea_analysis::uni::fp_levels::{LateLevel, first_late_level};
use talea_core::mutate;
use talea_core::setup::RmTest;
use talea_core::{Span, Work};
use talea_proto::refusal::Witness;

impl Rm {
    /// Tests the response times on `cpu` after `change`, which changes the levels to `after`.
    pub(super) fn exact_test(
        &self,
        context: &PluginContext<'_>,
        cpu: u32,
        change: &Change<'_>,
        after: &LevelsAfter<'_>,
    ) -> ExactResult {
        if self.options.test != RmTest::Exact || !context.exact_tests.consume() {
            return ExactResult::Untried;
        }
        let Some(TaskList { tasks, above, ends }) = self.list(context, cpu, change, after) else {
            return ExactResult::Untried;
        };
        match context.exact_tests.run(|scratch| first_late_level(&tasks, above, &ends, scratch)) {
            Ok(None) => ExactResult::Fits,
            Ok(Some(late)) => {
                let from = if late.level == 0 { above } else { ends[late.level - 1] };
                ExactResult::Misses(Some(witness(&tasks[from..ends[late.level]], &late, change)))
            }
            Err(_) => ExactResult::Untried,
        }
    }

    /// Lists all relevant tasks; `None` if there are too many.
    fn list(
        &self,
        context: &PluginContext<'_>,
        cpu: u32,
        change: &Change<'_>,
        after: &LevelsAfter<'_>,
    ) -> Option<TaskList> {
        let domain = context.view.ledger.domain_of(cpu).map(Place::Domain);
        let places = || [Some(Place::Cpu(cpu)), domain].into_iter().flatten();
        let known: usize = places().map(|place| context.placements.at(place).len()).sum();
        let max_tasks = mutate!("plugin-exact-tasks", MAX_TASKS, 10 * MAX_TASKS);
        if known > max_tasks {
            return None;
        }
        let (mut tasks, mut own) = (Vec::with_capacity(known + 1), Vec::with_capacity(known + 1));
        let mut outranks = |claim: &Claim| {
            if claim.work_ns > 0 && self.is_outranked(cpu, claim.plugin, claim.place) {
                tasks.push(interfering(claim.sporadic(), claim.place));
            }
        };
        for place in places() {
            for entry in context.at(place) {
                let claim = &entry.claim;
                if claim.plugin != self.base.index {
                    mutate!("plugin-rm-exact-above", outranks(claim));
                } else if claim.work_ns > 0 {
                    own.push(claim.sporadic());
                }
            }
            context.view.ledger.zero_lag_holds_at(place)?.for_each(&mut outranks);
        }
        if let Some(candidate) = change.above_coming.filter(|candidate| {
            mutate!("plugin-rm-exact-promise", candidate.work_ns > 0, candidate.work_ns == 0)
        }) {
            let (work, period) =
                (Work::from_ns(candidate.work_ns), Span::from_ns(candidate.period_ns));
            tasks.push(interfering(
                Sporadic::new(work, period, Span::from_ns(candidate.span_ns)),
                candidate.place,
            ));
        }
        if let Some(candidate) = change.candidate {
            let work = Work::from_ns(u64::try_from(candidate.work).unwrap_or(u64::MAX));
            own.push(Sporadic::new(work, change.period, Span::from_ns(candidate.key)));
        }
        if tasks.len() + own.len() > max_tasks {
            return None;
        }
        own.sort_unstable_by_key(|task| task.deadline);
        let (above, mut ends) = (tasks.len(), Vec::new());
        let (mut own, mut runs) = (own.into_iter().peekable(), after.runs().peekable());
        while runs.next().is_some_and(|run| !(change.promised && run.unproved > 0)) {
            let next = runs.peek().map(|run| run.first);
            let before = tasks.len();
            let is_here = |task: &Sporadic| next.is_none_or(|next| task.deadline.as_ns() < next);
            while let Some(task) = own.next_if(is_here) {
                tasks.push(task);
            }
            if tasks.len() > before {
                ends.push(tasks.len());
            }
        }
        Some(TaskList { tasks, above, ends })
    }
}

/// Tasks of a CPU for the test: those above all levels, then level by level.
struct TaskList {
    tasks: Vec<Sporadic>,
    above: usize,
    ends: Vec<usize>,
}

/// Returns the task as interference: under global EDF a job may have begun on another CPU.
fn interfering(task: Sporadic, place: Place) -> Sporadic {
    match place {
        Place::Cpu(_) | Place::Set(_) => task,
        Place::Domain(_) => {
            mutate!("plugin-rm-exact-carry", Sporadic { jitter: task.period, ..task }, task)
        }
    }
}

/// Returns the witness for a level: its task with the shortest deadline, or the new task if it has
/// that deadline.
fn witness(level: &[Sporadic], late: &LateLevel, change: &Change<'_>) -> Witness {
    let shortest = level[0];
    let own = mutate!(
        "plugin-rm-witness",
        change.candidate.is_some_and(|candidate| candidate.key == shortest.deadline.as_ns()),
        change.candidate.is_some_and(|_| false)
    );
    Witness::DeadlineMiss {
        own,
        period: if own { change.period } else { shortest.period },
        deadline: shortest.deadline,
        response: late.response,
    }
}
