//! From times to numbers: response times, misses, and which misses the machine itself is to blame
//! for.

use super::job::{Block, DEADLINE, RUNTIME};
use talea_core::mutate;
use talea_core::{Span, Time, Work};
use talea_exec::Hole;

/// What became of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Met,
    /// Missed, and without the holes that the monitor saw it would have been met.
    MissedInHole,
    /// Missed, and it would have been met if, besides, no block had computed for longer than
    /// declared.
    MissedOverrun,
    /// Missed, and neither explains it.
    Missed,
}

/// One run in numbers.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) median: Span,
    pub(super) p99: Span,
    pub(super) max: Span,
    /// One a block.
    pub(super) fates: Vec<Fate>,
    /// The most that a block has computed, holes within it left out as far as they are known.
    pub(super) most: Work,
}

impl Verdict {
    /// Judges a run; `holes` in order of time.
    pub(super) fn of(blocks: &[Block], holes: &[Hole]) -> Verdict {
        let mut sorted: Vec<Span> = blocks.iter().map(Block::response).collect();
        sorted.sort_unstable();
        let (fates, most) = judge(blocks, holes);
        Verdict {
            median: quantile(&sorted, 50),
            p99: quantile(&sorted, 99),
            max: sorted.last().copied().unwrap_or(Span::ZERO),
            fates,
            most,
        }
    }

    /// How many met this fate.
    pub(super) fn count(&self, fate: Fate) -> usize {
        self.fates.iter().filter(|&&other| other == fate).count()
    }

    /// Blocks that were late, for whatever reason.
    pub(super) fn missed(&self) -> usize {
        self.fates.len() - self.count(Fate::Met)
    }

    /// Those of them that the monitor excuses.
    pub(super) fn in_holes(&self) -> usize {
        self.count(Fate::MissedInHole)
    }
}

/// The smallest value that `percent` of all values don't exceed.
fn quantile(sorted: &[Span], percent: usize) -> Span {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(Span::ZERO)
}

/// Runs the blocks again, in thought, without what was lost: a block begins when it is released and
/// the one before it has ended, so that what a hole took from a busy period is excused, and what
/// idle time made good is not excused twice.
fn judge(blocks: &[Block], holes: &[Hole]) -> (Vec<Fate>, Work) {
    let mut most = Work::ZERO;
    let (mut ended, mut without_holes, mut without_both) = (Time::ZERO, Time::ZERO, Time::ZERO);
    let fates = blocks.iter().map(|block| {
        let began = block.release.max(ended);
        let took = block.completion.since(began.min(block.completion));
        let lost = standstill(holes, began, block.completion);
        // The kernel's clock of the thread runs on in a hole that nobody told it of.
        let computed =
            block.computed.checked_sub(Work::from_ns(lost.as_ns())).unwrap_or(Work::ZERO);
        let overrun = computed.checked_sub(RUNTIME).unwrap_or(Work::ZERO);
        most = most.max(computed);
        ended = block.completion;
        let took = less(took, lost);
        without_holes =
            mutate!("demo-judge-idle", block.release.max(without_holes), without_holes) + took;
        without_both = block.release.max(without_both) + less(took, Span::from_ns(overrun.as_ns()));
        let is_met = |end: Time| end.since(block.release) <= DEADLINE;
        match () {
            () if is_met(block.completion) => Fate::Met,
            () if is_met(without_holes) => Fate::MissedInHole,
            () if is_met(without_both) => Fate::MissedOverrun,
            () => Fate::Missed,
        }
    });
    (fates.collect(), most)
}

/// What is left of `span` without `part`.
fn less(span: Span, part: Span) -> Span {
    span.checked_sub(part).unwrap_or(Span::ZERO)
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

    fn hole(from: Time, to: Time) -> Hole {
        Hole { cpu: 0, from, to }
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
        let holes = [hole(at(2), at(12))];
        assert_eq!(Verdict::of(&[block(0, 14)], &holes).fates, [Fate::MissedInHole]);
        assert_eq!(Verdict::of(&[block(0, 21)], &holes).fates, [Fate::Missed]);
        let elsewhere = [hole(at(30), at(50))];
        assert_eq!(Verdict::of(&[block(0, 14)], &elsewhere).fates, [Fate::Missed]);
    }

    #[test]
    fn what_computes_longer_than_declared_is_told_from_what_had_to_wait() {
        use Fate::{Missed, MissedInHole, MissedOverrun};
        // The second waits for the first, which computed 5 ms more than declared; nobody knows what
        // delayed the last.
        let mut blocks = [block(0, 14), block(10, 21), block(50, 64)];
        blocks[0].computed = Work::from_ns(9 * MS);
        let verdict = Verdict::of(&blocks, &[]);
        assert_eq!(verdict.fates, [MissedOverrun, MissedOverrun, Missed]);
        assert_eq!((verdict.missed(), verdict.most), (3, Work::from_ns(9 * MS)));
        // The thread's clock has counted the hole.
        let holes = [hole(at(2), at(12))];
        let verdict = Verdict::of(&blocks, &holes);
        assert_eq!(verdict.fates, [MissedInHole, MissedInHole, Missed]);
        assert_eq!(verdict.most, Work::from_ns(2 * MS));
        // Neither alone explains it.
        let mut late = [block(0, 13)];
        late[0].computed = Work::from_ns(8 * MS);
        assert_eq!(Verdict::of(&late, &[hole(at(1), at(3))]).fates, [MissedOverrun]);
        late[0].computed = Work::from_ns(5 * MS);
        assert_eq!(Verdict::of(&late, &[hole(at(1), at(3))]).fates, [Missed]);
    }

    #[test]
    fn what_idle_time_made_good_is_not_excused_again() {
        // Without the hole the first ends at 2, and the second has 10 ms of its own until it is
        // kept off the CPU.
        let holes = [hole(at(1), at(21))];
        let blocks = [block(0, 22), block(10, 36), block(20, 38), block(30, 40)];
        use Fate::{Met, Missed, MissedInHole};
        assert_eq!(Verdict::of(&blocks, &holes).fates, [MissedInHole, Missed, MissedInHole, Met]);
    }

    #[test]
    fn many_short_holes_excuse_as_much_as_one() {
        let holes: Vec<_> = (1..=8).map(|k| hole(at(2 * k), at(2 * k + 1))).collect();
        assert_eq!(Verdict::of(&[block(0, 18)], &holes).fates, [Fate::MissedInHole]);
        assert_eq!(Verdict::of(&[block(0, 19)], &holes).fates, [Fate::Missed]);
    }

    #[test]
    fn a_hole_also_excuses_the_jam_behind_it() {
        // 25 ms of standstill during the first block; the next two catch up.
        let holes = [hole(at(1), at(26))];
        let blocks = [block(0, 27), block(10, 29), block(20, 31), block(30, 33)];
        use Fate::{Met, MissedInHole};
        assert_eq!(
            Verdict::of(&blocks, &holes).fates,
            [MissedInHole, MissedInHole, MissedInHole, Met]
        );
    }
}
