//! From times to numbers: response times, misses, and which misses the machine itself is to blame for.

use super::holes::Hole;
use super::job::{Block, DEADLINE, RUNTIME};
use talea_core::{Span, Time, Work};

/// What became of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Met,
    Missed,
    /// Missed, and without the holes that the monitor saw it would have been met.
    MissedInHole,
}

/// One run in numbers.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) median: Span,
    pub(super) p99: Span,
    pub(super) max: Span,
    /// One a block.
    pub(super) fates: Vec<Fate>,
    /// Of the blocks that no hole excuses: those that were met if none had computed longer than declared.
    pub(super) overrun: usize,
    /// The most that one of them has computed.
    pub(super) most: Work,
}

impl Verdict {
    /// Judges a run; `holes` in order of time.
    pub(super) fn of(blocks: &[Block], holes: &[Hole]) -> Verdict {
        let mut sorted: Vec<Span> = blocks.iter().map(Block::response).collect();
        sorted.sort_unstable();
        let mut verdict = Verdict {
            median: quantile(&sorted, 50),
            p99: quantile(&sorted, 99),
            max: sorted.last().copied().unwrap_or(Span::ZERO),
            fates: Vec::with_capacity(blocks.len()),
            overrun: 0,
            most: Work::ZERO,
        };
        for k in 0..blocks.len() {
            let fate = fate(blocks, k, holes);
            verdict.fates.push(fate);
            let jam = &blocks[jam(blocks, k)..=k];
            if fate == Fate::Missed && less(blocks[k].response(), overrun(jam)) <= DEADLINE {
                verdict.overrun += 1;
                verdict.most = jam.iter().map(|block| block.computed).fold(verdict.most, Ord::max);
            }
        }
        verdict
    }

    /// Blocks that were late, for whatever reason.
    pub(super) fn missed(&self) -> usize {
        self.fates.iter().filter(|&&fate| fate != Fate::Met).count()
    }

    /// Those of them that the monitor excuses.
    pub(super) fn in_holes(&self) -> usize {
        self.fates.iter().filter(|&&fate| fate == Fate::MissedInHole).count()
    }
}

/// The smallest value that `percent` of all values don't exceed.
fn quantile(sorted: &[Span], percent: usize) -> Span {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(Span::ZERO)
}

fn fate(blocks: &[Block], k: usize, holes: &[Hole]) -> Fate {
    let block = &blocks[k];
    if block.response() <= DEADLINE {
        return Fate::Met;
    }
    let lost = standstill(holes, blocks[jam(blocks, k)].release, block.completion);
    if less(block.response(), lost) <= DEADLINE { Fate::MissedInHole } else { Fate::Missed }
}

/// A block also waits for the ones before it: the first block of the jam that block `k` stands in.
fn jam(blocks: &[Block], k: usize) -> usize {
    let free = (1..=k).rev().find(|&k| blocks[k - 1].completion <= blocks[k].release);
    free.unwrap_or(0)
}

/// What is left of `span` without `part`.
fn less(span: Span, part: Span) -> Span {
    span.checked_sub(part).unwrap_or(Span::ZERO)
}

/// How much longer blocks computed than declared.
fn overrun(blocks: &[Block]) -> Span {
    let excess = blocks.iter().map(|block| block.computed.checked_sub(RUNTIME).unwrap_or(Work::ZERO));
    excess.fold(Span::ZERO, |sum, work| sum + Span::from_ns(work.as_ns()))
}

/// How long the CPU stood still between two instants.
fn standstill(holes: &[Hole], from: Time, to: Time) -> Span {
    let first = holes.partition_point(|hole| hole.to <= from);
    holes[first..]
        .iter()
        .take_while(|hole| hole.from < to)
        .fold(Span::ZERO, |sum, hole| sum + hole.to.min(to).since(hole.from.max(from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Time {
        Time::from_ns(ms * MS)
    }

    fn block(release: u64, completion: u64) -> Block {
        Block { release: at(release), completion: at(completion), computed: Work::from_ns(2 * MS) }
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let blocks: Vec<_> = (1..=200).map(|k| block(k * 10, k * 10 + 1 + k % 5)).collect();
        let verdict = Verdict::of(&blocks, &[]);
        assert_eq!(verdict.median, Span::from_ns(3 * MS));
        assert_eq!(verdict.p99, Span::from_ns(5 * MS));
        assert_eq!(verdict.max, Span::from_ns(5 * MS));
        assert_eq!(Verdict::of(&[], &[]).median, Span::ZERO);
    }

    #[test]
    fn a_block_that_is_done_when_the_next_is_due_has_met_its_deadline() {
        let verdict = Verdict::of(&[block(0, 10), block(10, 21)], &[]);
        assert_eq!(verdict.fates, [Fate::Met, Fate::Missed]);
        assert_eq!((verdict.missed(), verdict.in_holes()), (1, 0));
    }

    #[test]
    fn a_hole_excuses_only_as_much_as_it_lasted() {
        let hole = [Hole { from: at(2), to: at(12) }];
        assert_eq!(Verdict::of(&[block(0, 14)], &hole).fates, [Fate::MissedInHole]);
        assert_eq!(Verdict::of(&[block(0, 21)], &hole).fates, [Fate::Missed]);
        let elsewhere = [Hole { from: at(30), to: at(50) }];
        assert_eq!(Verdict::of(&[block(0, 14)], &elsewhere).fates, [Fate::Missed]);
    }

    #[test]
    fn what_computes_longer_than_declared_is_told_from_what_had_to_wait() {
        // The second waits for the first, which computed 5 ms more than declared; nobody knows what delayed the last.
        let mut blocks = [block(0, 14), block(10, 21), block(50, 64)];
        blocks[0].computed = Work::from_ns(9 * MS);
        let verdict = Verdict::of(&blocks, &[]);
        assert_eq!((verdict.missed(), verdict.overrun, verdict.most), (3, 2, Work::from_ns(9 * MS)));
        let hole = [Hole { from: at(2), to: at(12) }];
        assert_eq!(Verdict::of(&blocks, &hole).overrun, 0);
    }

    #[test]
    fn many_short_holes_excuse_as_much_as_one() {
        let holes: Vec<_> = (1..=8).map(|k| Hole { from: at(2 * k), to: at(2 * k + 1) }).collect();
        assert_eq!(Verdict::of(&[block(0, 18)], &holes).fates, [Fate::MissedInHole]);
        assert_eq!(Verdict::of(&[block(0, 19)], &holes).fates, [Fate::Missed]);
    }

    #[test]
    fn a_hole_also_excuses_the_jam_behind_it() {
        // 25 ms of standstill during the first block; the next two catch up.
        let hole = [Hole { from: at(1), to: at(26) }];
        let blocks = [block(0, 27), block(10, 29), block(20, 31), block(30, 33)];
        use Fate::{Met, MissedInHole};
        assert_eq!(Verdict::of(&blocks, &hole).fates, [MissedInHole, MissedInHole, MissedInHole, Met]);
    }
}
