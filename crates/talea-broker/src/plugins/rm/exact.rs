//! The exact test of one CPU: the response time of every level's last task, from the list of all
//! tasks that count.
//!
//! What the sums take for classes of equal spans is taken as it is declared here: own periods,
//! deadlines min(T, D), and `talea_analysis::uni::fp_levels`, in which
//!
//! - each kernel level holds its tasks first come, first served, so every one of them may be its
//!   last; tasks that share a level delay each other, whatever their spans;
//! - tasks that outrank this plugin here are above all levels, in no order: their own deadlines are
//!   not ours to judge. Those that are pinned take ⌈t/T⌉·Q within t, those under global EDF one job
//!   more, which may have begun on another CPU (argument 4 in `talea_analysis::rm`): a release
//!   jitter of T.
//!
//! *Dominance.* What the hyperbolic bound accepts is accepted: shortening spans only adds jobs, and
//! (⌈t/T⌉ + 1)·Q is no more than the twice ⌈t/T⌉·Q of the sums. *Leaving.* Whoever goes takes his
//! work along, and where a level is divided for that, its tasks stay in time (`fp_levels`): what is
//! promised stays promised.

use super::Rm;
use super::sums::Change;
use crate::exact::{Exactly, TASKS_MAX};
use crate::ledger::{Claim, Place};
use crate::levels::After;
use crate::plugins::World;
use talea_analysis::Sporadic;
use talea_analysis::uni::fp_levels::{Late, first_late};
use talea_core::mutate;
use talea_core::setup::RmTest;
use talea_core::{Span, Work};
use talea_proto::refusal::Witness;

impl Rm {
    /// What response times on `cpu` say after `change`, which makes the levels what `after` says.
    pub(super) fn exactly(
        &self,
        world: &World<'_>,
        cpu: u32,
        change: &Change<'_>,
        after: &After<'_>,
    ) -> Exactly {
        if self.options.test != RmTest::Exact || !world.tries.take() {
            return Exactly::Untried;
        }
        let Some(List { tasks, above, ends }) = self.list(world, cpu, change, after) else {
            return Exactly::Untried;
        };
        match world.tries.test(|scratch| first_late(&tasks, above, &ends, scratch)) {
            Ok(None) => Exactly::Fits,
            Ok(Some(late)) => {
                let from = if late.level == 0 { above } else { ends[late.level - 1] };
                Exactly::Misses(Some(witness(&tasks[from..ends[late.level]], &late, change)))
            }
            Err(_) => Exactly::Untried,
        }
    }

    /// All tasks that count; `None` where they are too many.
    fn list(
        &self,
        world: &World<'_>,
        cpu: u32,
        change: &Change<'_>,
        after: &After<'_>,
    ) -> Option<List> {
        let domain = world.view.ledger.domain_of(cpu).map(Place::Domain);
        let places = || [Some(Place::Cpu(cpu)), domain].into_iter().flatten();
        let known: usize = places().map(|place| world.residents.at(place).len()).sum();
        if known > TASKS_MAX {
            return None;
        }
        let (mut tasks, mut own) = (Vec::with_capacity(known + 1), Vec::with_capacity(known + 1));
        let mut outranks = |claim: &Claim| {
            if claim.work > 0 && self.is_outranked(cpu, claim.plugin, claim.place) {
                tasks.push(interfering(claim.sporadic(), claim.place));
            }
        };
        for place in places() {
            for entry in world.at(place) {
                let claim = &entry.claim;
                if claim.plugin != self.core.index {
                    mutate!("plugin-rm-exact-above", outranks(claim), ());
                } else if claim.work > 0 {
                    own.push(claim.sporadic());
                }
            }
            world.view.ledger.lingering_at(place)?.for_each(&mut outranks);
        }
        if let Some(coming) = change
            .above_coming
            .filter(|coming| mutate!("plugin-rm-exact-promise", coming.work > 0, coming.work == 0))
        {
            let (work, period) = (Work::from_ns(coming.work), Span::from_ns(coming.period));
            tasks.push(interfering(
                Sporadic::new(work, period, Span::from_ns(coming.span)),
                coming.place,
            ));
        }
        if let Some(coming) = change.coming {
            let work = Work::from_ns(u64::try_from(coming.work).unwrap_or(u64::MAX));
            own.push(Sporadic::new(work, change.period, Span::from_ns(coming.key)));
        }
        if tasks.len() + own.len() > TASKS_MAX {
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
        Some(List { tasks, above, ends })
    }
}

/// The tasks of a CPU for the test: those above all levels, then level after level.
struct List {
    tasks: Vec<Sporadic>,
    above: usize,
    ends: Vec<usize>,
}

/// Under global EDF a job may have begun elsewhere.
fn interfering(task: Sporadic, place: Place) -> Sporadic {
    match place {
        Place::Cpu(_) => task,
        Place::Domain(_) => {
            mutate!("plugin-rm-exact-carry", Sporadic { jitter: task.period, ..task }, task)
        }
    }
}

/// The task of the level that has the shortest deadline: the newcomer, if it is among those.
fn witness(level: &[Sporadic], late: &Late, change: &Change<'_>) -> Witness {
    let shortest = level[0];
    let own = mutate!(
        "plugin-rm-witness",
        change.coming.is_some_and(|coming| coming.key == shortest.deadline.as_ns()),
        change.coming.is_some_and(|_| false)
    );
    Witness::Late {
        own,
        period: if own { change.period } else { shortest.period },
        deadline: shortest.deadline,
        response: late.response,
    }
}
