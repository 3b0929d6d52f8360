//! The classes of one CPU, summed up for a test: those of our levels and those of whoever outranks
//! them.

use super::Rm;
use crate::bound::{Answer, Sum, judge, settle};
use crate::classes::{Classes, Total};
use crate::ledger::{Claim, Place};
use crate::levels::{After, Member};
use crate::plugins::{Outranking, World};
use talea_analysis::Demand;
use talea_core::Span;

/// The span and the work of one who outranks.
type Above = (u64, u128);

/// What is different from the books in a question about one CPU.
#[derive(Clone, Copy, Default)]
pub(super) struct Change<'a> {
    pub(super) leaving: Option<&'a Member>,
    pub(super) coming: Option<&'a Member>,
    /// T of that one.
    pub(super) period: Span,
    pub(super) above_leaving: Option<&'a Claim>,
    pub(super) above_coming: Option<&'a Outranking>,
    /// Only what is promised, not all that is known.
    pub(super) promised: bool,
}

/// The classes of a CPU, with the one in question kept apart.
pub(super) struct Sums {
    /// All classes but one.
    pub(super) rest: Sum,
    /// That one: span, and all its work.
    pub(super) mine: (u64, u128),
    /// The same as a class, where somebody has divided already.
    class: Option<Sum>,
}

impl Sums {
    pub(super) fn all(&self) -> Sum {
        self.rest.and(self.class.unwrap_or_else(|| Sum::class(self.mine.1, self.mine.0)))
    }
}

impl Rm {
    /// The classes of `cpu` after `change`, which makes the levels what `after` says; `None` when
    /// there is none that the test would speak about.
    pub(super) fn sums(
        &self,
        world: &World<'_>,
        cpu: u32,
        change: &Change<'_>,
        after: &After<'_>,
    ) -> Option<Sums> {
        let at = self.at(cpu);
        let mut runs = after.runs().take_while(|run| !(change.promised && run.unproved > 0));
        let first = *runs.find(|run| run.work > 0)?;
        let (mut rest, mut work, mut mine) = (Sum::EMPTY, first.work, None);
        for (tree, domain) in [(&at.above, false), (domain_classes(world, cpu), true)] {
            let (gone, come) = change.of(domain);
            if tree.is_empty() && come.is_none() {
                continue;
            }
            let (below, apart) = sums_above(tree, first.first, gone, come);
            rest = rest.and(below.sum);
            mine = mine.or(apart);
            work += tree.total().work + come.map_or(0, |(_, work)| work);
            work -=
                gone.map_or(0, |(_, work)| work) + below.work + apart.map_or(0, |(_, work)| work);
        }
        // The run in question: the newcomer's own, or the first, which takes in whoever outranks it
        // and has no class apart.
        let own = change.coming.and(after.newcomer()).map(|run| run.first);
        let mine_at = own.or(change.above_coming.filter(|_| mine.is_none()).map(|_| first.first));
        if mine_at == Some(first.first) {
            mine = Some((first.first, work));
        } else {
            rest = rest.and(Sum::class(work, first.first));
        }
        // What is promised may end in the middle.
        let whole = !change.promised
            || (at.levels.all_proved() && after.newcomer().is_none_or(|run| run.unproved == 0));
        if whole
            && first.first == after.runs().next().map_or(0, |run| run.first)
            && let Some(others) = after.sum_of_others()
        {
            let newcomer = after.newcomer().filter(|run| run.first != first.first);
            let mut class = None;
            match newcomer {
                Some(run) if mine_at == Some(run.first) => {
                    (mine, class) = (Some((run.first, run.work)), Some(run.class));
                }
                Some(run) => rest = rest.and(run.class),
                None => {}
            }
            return Some(Sums { rest: rest.and(others), mine: mine.unwrap_or((1, 0)), class });
        }
        // In chains that a processor works on at once.
        let mut rests = [rest, Sum::EMPTY, Sum::EMPTY, Sum::EMPTY];
        let mut class = None;
        for (run, chain) in runs.zip((0..4).cycle()) {
            if mine_at == Some(run.first) {
                (mine, class) = (Some((run.first, run.work)), Some(run.class));
            } else {
                rests[chain] = rests[chain].and(run.class);
            }
        }
        let rest = rests.into_iter().fold(Sum::EMPTY, Sum::and);
        Some(Sums { rest, mine: mine.unwrap_or((1, 0)), class })
    }

    /// Whether the classes after `change`, whose sum is `sum`, pass the test, exactly.
    pub(super) fn holds(
        &self,
        world: &World<'_>,
        cpu: u32,
        change: &Change<'_>,
        sum: &Sum,
    ) -> bool {
        match judge(self.options.test, sum) {
            Answer::Yes => true,
            Answer::No => false,
            Answer::Close => settle(self.options.test, &self.listed(world, cpu, change)),
        }
    }

    /// What [`Rm::sums`] stands for, one by one.
    fn listed(&self, world: &World<'_>, cpu: u32, change: &Change<'_>) -> Vec<Demand> {
        let at = self.at(cpu);
        let after = at.levels.after(change.leaving, change.coming);
        let runs = after.runs().take_while(|run| !(change.promised && run.unproved > 0));
        let mut own =
            runs.filter(|run| run.work > 0).map(|run| (run.first, run.work)).collect::<Vec<_>>();
        let Some(&(shortest, _)) = own.first() else { return vec![] };
        let mut apart = vec![];
        for (tree, domain) in [(&at.above, false), (domain_classes(world, cpu), true)] {
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

impl Change<'_> {
    /// Who goes from and who comes to the pinned tasks above, or those of the domain: span and
    /// work.
    fn of(&self, domain: bool) -> (Option<Above>, Option<Above>) {
        let is_domain = |place| matches!(place, Place::Domain(_));
        let gone =
            self.above_leaving.filter(|claim| is_domain(claim.place) == domain && claim.work > 0);
        let come =
            self.above_coming.filter(|coming| is_domain(coming.place) == domain && coming.work > 0);
        (
            gone.map(|claim| (claim.span, u128::from(claim.work) * weight(claim.place))),
            come.map(|coming| (coming.span, u128::from(coming.work) * weight(coming.place))),
        )
    }
}

/// A task under global EDF counts twice: part of it may come over from another CPU.
pub(super) fn weight(place: Place) -> u128 {
    match place {
        Place::Cpu(_) => 1,
        Place::Domain(_) => 2,
    }
}

pub(super) fn domain_classes<'a>(world: &World<'a>, cpu: u32) -> &'a Classes {
    static NONE: Classes = Classes::new();
    let ledger = world.view.ledger;
    ledger.domain_of(cpu).map_or(&NONE, |domain| &ledger.domain(domain).classes)
}

/// The classes of `tree` shorter than `shortest`, without `gone` and with `come`. A class of `come`
/// is kept apart and returned by itself.
fn sums_above(
    tree: &Classes,
    shortest: u64,
    gone: Option<Above>,
    come: Option<Above>,
) -> (Total, Option<Above>) {
    let mut touched =
        [gone, come].map(|change| change.map(|(span, _)| span).filter(|&span| span < shortest));
    touched.sort_unstable();
    let mut total = Total::EMPTY;
    let mut from = 0;
    for span in touched.into_iter().flatten() {
        if from <= span {
            total = total.and(tree.within(from..span));
            from = span + 1;
        }
    }
    total = total.and(tree.within(from..shortest));
    let at = |change: Option<Above>, span: u64| {
        change.filter(|&(s, _)| s == span).map_or(0, |(_, work)| work)
    };
    let work = |span: u64| tree.work_of(span) - at(gone, span) + at(come, span);
    let apart = come.filter(|&(span, _)| span < shortest).map(|(span, _)| (span, work(span)));
    if let Some((span, _)) =
        gone.filter(|&(span, _)| span < shortest && apart.is_none_or(|(s, _)| s != span))
    {
        total = total.and(Total::class(work(span), span));
    }
    (total, apart)
}
