//! Evaluation of the measured times: response times, deadline misses, and the misses that stalls of
//! the computer caused.

use super::job::{Block, DEADLINE, RUNTIME};
use talea_core::{Monotonic, Span, Work, mutate, quantile};
use talea_exec::Stall;

/// Result of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockResult {
    Met,
    /// The block missed its deadline, and would have met it without the detected stalls.
    MissedInStall,
    /// The block missed its deadline. It would have met the deadline without the detected stalls
    /// if, in addition, no block had exceeded its declared cost.
    MissedOverrun,
    /// The block missed its deadline, and neither stalls nor overruns explain the miss.
    Missed,
}

/// Statistics of one run.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) median: Span,
    pub(super) p99: Span,
    pub(super) max: Span,
    /// `results[k]`: the result of block `k`.
    pub(super) results: Vec<BlockResult>,
    /// Largest CPU time of a block, without the part that is known to be stall time.
    pub(super) most: Work,
}

impl Verdict {
    /// Evaluates a run. `stalls` must be in order of time.
    pub(super) fn of(blocks: &[Block], stalls: &[Stall<Monotonic>]) -> Verdict {
        let mut sorted: Vec<Span> = blocks.iter().map(Block::response).collect();
        sorted.sort_unstable();
        let at = |percent| quantile(&sorted, percent).unwrap_or(Span::ZERO);
        let (results, most) = evaluate_blocks(blocks, stalls);
        Verdict { median: at(50), p99: at(99), max: at(100), results, most }
    }

    /// Returns the number of blocks with this result.
    pub(super) fn count(&self, result: BlockResult) -> usize {
        self.results.iter().filter(|&&other| other == result).count()
    }

    /// Returns the number of blocks that missed their deadline, for any reason.
    pub(super) fn missed(&self) -> usize {
        self.results.len() - self.count(BlockResult::Met)
    }

    /// Returns the number of misses that detected stalls explain.
    pub(super) fn in_stalls(&self) -> usize {
        self.count(BlockResult::MissedInStall)
    }
}

/// Repeats the run arithmetically without the lost time, and classifies each miss.
///
/// A block starts at its release or at the completion of the previous block, whichever is later. So
/// a stall excuses a whole busy period, but a delay that idle time has absorbed is not excused
/// again.
fn evaluate_blocks(blocks: &[Block], stalls: &[Stall<Monotonic>]) -> (Vec<BlockResult>, Work) {
    let mut most = Work::ZERO;
    let mut ended = Monotonic::ZERO;
    let (mut without_stalls, mut without_both) = (ended, ended);
    let results = blocks.iter().map(|block| {
        let began = block.release.max(ended);
        let took = block.completion.since(began.min(block.completion));
        let lost = stall_time(stalls, began, block.completion);
        // The kernel's clock of the thread advances during a stall that the kernel does not detect.
        let computed =
            block.computed.checked_sub(Work::from_ns(lost.as_ns())).unwrap_or(Work::ZERO);
        let overrun = computed.checked_sub(RUNTIME).unwrap_or(Work::ZERO);
        most = most.max(computed);
        ended = block.completion;
        let took = saturating_sub(took, lost);
        without_stalls =
            mutate!("demo-judge-idle", block.release.max(without_stalls), without_stalls) + took;
        without_both =
            block.release.max(without_both) + saturating_sub(took, Span::from_ns(overrun.as_ns()));
        let is_met = |end: Monotonic| end.since(block.release) <= DEADLINE;
        match () {
            () if is_met(block.completion) => BlockResult::Met,
            () if is_met(without_stalls) => BlockResult::MissedInStall,
            () if is_met(without_both) => BlockResult::MissedOverrun,
            () => BlockResult::Missed,
        }
    });
    (results.collect(), most)
}

/// Returns `span` minus `part`, at least zero.
fn saturating_sub(span: Span, part: Span) -> Span {
    span.checked_sub(part).unwrap_or(Span::ZERO)
}

/// Returns the total length of the stalls between two instants.
fn stall_time(stalls: &[Stall<Monotonic>], from: Monotonic, to: Monotonic) -> Span {
    let first = stalls.partition_point(|stall| stall.to <= from);
    stalls[first..]
        .iter()
        .take_while(|stall| stall.from < to)
        .fold(Span::ZERO, |sum, stall| sum + stall.to.min(to).since(stall.from.max(from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ns(ms * MS)
    }

    fn stall(from: Monotonic, to: Monotonic) -> Stall<Monotonic> {
        Stall { cpu: 0, from, to }
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
        assert_eq!(verdict.results, [BlockResult::Met, BlockResult::Missed]);
        assert_eq!((verdict.missed(), verdict.in_stalls()), (1, 0));
    }

    #[test]
    fn a_stall_excuses_only_as_much_as_it_lasted() {
        let stalls = [stall(at(2), at(12))];
        assert_eq!(Verdict::of(&[block(0, 14)], &stalls).results, [BlockResult::MissedInStall]);
        assert_eq!(Verdict::of(&[block(0, 21)], &stalls).results, [BlockResult::Missed]);
        let elsewhere = [stall(at(30), at(50))];
        assert_eq!(Verdict::of(&[block(0, 14)], &elsewhere).results, [BlockResult::Missed]);
    }

    #[test]
    fn a_block_beyond_its_declared_cost_is_distinguished_from_a_delayed_one() {
        use BlockResult::{Missed, MissedInStall, MissedOverrun};
        // The second block waits for the first one, which computed 5 ms more than declared. The
        // cause of the last block's delay is unknown.
        let mut blocks = [block(0, 14), block(10, 21), block(50, 64)];
        blocks[0].computed = Work::from_ns(9 * MS);
        let verdict = Verdict::of(&blocks, &[]);
        assert_eq!(verdict.results, [MissedOverrun, MissedOverrun, Missed]);
        assert_eq!((verdict.missed(), verdict.most), (3, Work::from_ns(9 * MS)));
        // The thread's clock has advanced during the stall.
        let stalls = [stall(at(2), at(12))];
        let verdict = Verdict::of(&blocks, &stalls);
        assert_eq!(verdict.results, [MissedInStall, MissedInStall, Missed]);
        assert_eq!(verdict.most, Work::from_ns(2 * MS));
        // Neither the stall nor the overrun explains the miss alone.
        let mut late = [block(0, 13)];
        late[0].computed = Work::from_ns(8 * MS);
        assert_eq!(Verdict::of(&late, &[stall(at(1), at(3))]).results, [MissedOverrun]);
        late[0].computed = Work::from_ns(5 * MS);
        assert_eq!(Verdict::of(&late, &[stall(at(1), at(3))]).results, [Missed]);
    }

    #[test]
    fn a_delay_that_idle_time_absorbed_is_not_excused_again() {
        // Without the stall the first block completes at 2 ms, and the second one still takes 14
        // ms.
        let stalls = [stall(at(1), at(21))];
        let blocks = [block(0, 22), block(10, 36), block(20, 38), block(30, 40)];
        use BlockResult::{Met, Missed, MissedInStall};
        let results = Verdict::of(&blocks, &stalls).results;
        assert_eq!(results, [MissedInStall, Missed, MissedInStall, Met]);
    }

    #[test]
    fn many_short_stalls_excuse_as_much_as_one() {
        let stalls: Vec<_> = (1..=8).map(|k| stall(at(2 * k), at(2 * k + 1))).collect();
        assert_eq!(Verdict::of(&[block(0, 18)], &stalls).results, [BlockResult::MissedInStall]);
        assert_eq!(Verdict::of(&[block(0, 19)], &stalls).results, [BlockResult::Missed]);
    }

    #[test]
    fn a_stall_also_excuses_its_backlog() {
        // The CPU is stalled for 25 ms during the first block; the next two blocks wait in its
        // backlog.
        let stalls = [stall(at(1), at(26))];
        let blocks = [block(0, 27), block(10, 29), block(20, 31), block(30, 33)];
        use BlockResult::{Met, MissedInStall};
        assert_eq!(
            Verdict::of(&blocks, &stalls).results,
            [MissedInStall, MissedInStall, MissedInStall, Met]
        );
    }
}
