//! Sums over the classes of one CPU: the plugin's own levels and the tasks that outrank them.

use super::Rm;
use super::change::{Change, HigherWork, Sums};
use crate::levels::LevelsAfter;
use crate::plugins::PluginContext;
use crate::rm_bounds::{BoundVerdict, RmSum, compare_with_bound, decide_exactly};
use crate::span_tree::{SpanTree, Total};
use talea_analysis::Demand;
use talea_core::Span;

impl Rm {
    /// Returns the classes of `cpu` after `change`, which changes the levels to `after`; `None` if
    /// there is no class to test.
    pub(super) fn sums(
        &self,
        context: &PluginContext<'_>,
        cpu: u32,
        change: &Change<'_>,
        after: &LevelsAfter<'_>,
    ) -> Option<Sums> {
        let at = self.at(cpu);
        let mut runs = after.runs().take_while(|run| !(change.promised && run.unproved > 0));
        let first = *runs.find(|run| run.work > 0)?;
        let (mut rest, mut work, mut mine) = (RmSum::EMPTY, first.work, None);
        for (tree, domain) in [(&at.above, false), (context.view.ledger.domain_classes(cpu), true)]
        {
            let (gone, come) = change.of(domain);
            if tree.is_empty() && come.is_none() {
                continue;
            }
            let (below, apart) = sums_above(tree, first.first, gone, come);
            rest = rest.combined(below.sum);
            mine = mine.or(apart);
            work += tree.total().work + come.map_or(0, |(_, work)| work);
            work -=
                gone.map_or(0, |(_, work)| work) + below.work + apart.map_or(0, |(_, work)| work);
        }
        // The run concerned: that of the new task, or the first one, which includes the higher
        // tasks without a class of their own.
        let own = change.candidate.and(after.new_run()).map(|run| run.first);
        let mine_at = own.or(change.above_coming.filter(|_| mine.is_none()).map(|_| first.first));
        if mine_at == Some(first.first) {
            mine = Some((first.first, work));
        } else {
            rest = rest.combined(RmSum::class(work, first.first));
        }
        // The guarantee may end in the middle.
        let whole = !change.promised
            || (at.levels.all_proved() && after.new_run().is_none_or(|run| run.unproved == 0));
        if whole
            && first.first == after.runs().next().map_or(0, |run| run.first)
            && let Some(others) = after.sum_of_others()
        {
            let new_run = after.new_run().filter(|run| run.first != first.first);
            let mut class = None;
            match new_run {
                Some(run) if mine_at == Some(run.first) => {
                    (mine, class) = (Some((run.first, run.work)), Some(run.class));
                }
                Some(run) => rest = rest.combined(run.class),
                None => {}
            }
            return Some(Sums { rest: rest.combined(others), mine: mine.unwrap_or((1, 0)), class });
        }
        // Four independent chains, which a processor executes in parallel.
        let mut rests = [rest, RmSum::EMPTY, RmSum::EMPTY, RmSum::EMPTY];
        let mut class = None;
        for (run, chain) in runs.zip((0..4).cycle()) {
            if mine_at == Some(run.first) {
                (mine, class) = (Some((run.first, run.work)), Some(run.class));
            } else {
                rests[chain] = rests[chain].combined(run.class);
            }
        }
        let rest = rests.into_iter().fold(RmSum::EMPTY, RmSum::combined);
        Some(Sums { rest, mine: mine.unwrap_or((1, 0)), class })
    }

    /// Whether the classes after `change`, with the sum `sum`, pass the test, exactly.
    pub(super) fn holds(
        &self,
        context: &PluginContext<'_>,
        cpu: u32,
        change: &Change<'_>,
        sum: &RmSum,
    ) -> bool {
        match compare_with_bound(self.options.test, sum) {
            BoundVerdict::Yes => true,
            BoundVerdict::No => false,
            BoundVerdict::Undecided => {
                decide_exactly(self.options.test, &self.listed(context, cpu, change))
            }
        }
    }

    /// Returns the list of the classes that [`Rm::sums`] adds up.
    fn listed(&self, context: &PluginContext<'_>, cpu: u32, change: &Change<'_>) -> Vec<Demand> {
        let at = self.at(cpu);
        let after = at.levels.after(change.leaving, change.candidate);
        let runs = after.runs().take_while(|run| !(change.promised && run.unproved > 0));
        let mut own =
            runs.filter(|run| run.work > 0).map(|run| (run.first, run.work)).collect::<Vec<_>>();
        let Some(&(shortest, _)) = own.first() else { return vec![] };
        let mut apart = vec![];
        for (tree, domain) in [(&at.above, false), (context.view.ledger.domain_classes(cpu), true)]
        {
            let (gone, come) = change.of(domain);
            let mut each = |span: u64, work: u128| {
                if span < shortest { apart.push((span, work)) } else { own[0].1 += work }
            };
            let mut come = come;
            tree.each(&mut |span, work| {
                let gone = gone.filter(|&(s, _)| s == span).map_or(0, |(_, work)| work);
                let come = come.take_if(|&mut (s, _)| s == span).map_or(0, |(_, work)| work);
                each(span, work - gone + come);
            });
            if let Some((span, work)) = come {
                each(span, work);
            }
        }
        let demand = |(span, work)| Demand { work, within: Span::from_ns(span) };
        apart.into_iter().chain(own).map(demand).filter(|demand| demand.work > 0).collect()
    }
}

/// Returns the classes of `tree` shorter than `shortest`, without `gone` and with `come`. The class
/// of `come` is returned separately.
fn sums_above(
    tree: &SpanTree,
    shortest: u64,
    gone: Option<HigherWork>,
    come: Option<HigherWork>,
) -> (Total, Option<HigherWork>) {
    let mut changed =
        [gone, come].map(|change| change.map(|(span, _)| span).filter(|&span| span < shortest));
    changed.sort_unstable();
    let mut total = Total::EMPTY;
    let mut from = 0;
    for span in changed.into_iter().flatten() {
        if from <= span {
            total = total.combined(tree.within(from..span));
            from = span + 1;
        }
    }
    total = total.combined(tree.within(from..shortest));
    let at = |change: Option<HigherWork>, span: u64| {
        change.filter(|&(s, _)| s == span).map_or(0, |(_, work)| work)
    };
    let work = |span: u64| tree.work_of(span) - at(gone, span) + at(come, span);
    let apart = come.filter(|&(span, _)| span < shortest).map(|(span, _)| (span, work(span)));
    if let Some((span, _)) =
        gone.filter(|&(span, _)| span < shortest && apart.is_none_or(|(s, _)| s != span))
    {
        total = total.combined(Total::class(work(span), span));
    }
    (total, apart)
}
