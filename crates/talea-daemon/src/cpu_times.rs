//! CPU times of the FIFO and RR threads on CPUs whose canaries are silent.
//!
//! The kernel shows the CPU time of a thread of another process in a file only. A thousand such
//! threads take several milliseconds, and the loop runs above most of them. So a check of canaries
//! reads the files in *slices* of [`SLICE`], which take one part in [`COST_SHARE`] of the daemon's
//! time: half of what refills the budget of the loop. The broker gets the result after the last
//! slice.

use std::collections::VecDeque;
use talea_broker::ThreadId;
use talea_core::{CpuSet, Monotonic, Span, Work, mutate};
use talea_os::clock;

/// Interval between the starts of two slices in multiples of the cost of one.
const COST_SHARE: u64 = 20;
/// Maximum duration of a slice.
const SLICE: Span = Span::from_ns(200_000);

/// A check in progress, and the earliest time of its next slice.
#[derive(Debug, Default)]
pub(crate) struct CpuTimes {
    in_progress: Option<Check>,
    not_before: Monotonic,
}

#[derive(Debug)]
struct Check {
    silent: CpuSet,
    unread: VecDeque<ThreadId>,
    consumed: Vec<(ThreadId, Work)>,
}

impl CpuTimes {
    /// Begins a check of these threads on the silent CPUs.
    pub(crate) fn begin(&mut self, silent: CpuSet, threads: VecDeque<ThreadId>) {
        self.in_progress = Some(Check { silent, unread: threads, consumed: Vec::new() });
    }

    /// Returns the time of the next slice; `None` without a check in progress.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Monotonic> {
        self.in_progress.as_ref().map(|_| self.not_before)
    }

    /// Reads for one slice by `read`, which returns nothing for a thread that has exited. Returns
    /// the silent CPUs and the CPU times after the last slice.
    pub(crate) fn run_slice(
        &mut self,
        read: impl Fn(ThreadId) -> Option<Work>,
    ) -> Option<(CpuSet, Vec<(ThreadId, Work)>)> {
        let check = self.in_progress.as_mut()?;
        let begun = clock::now();
        let end = begun.saturating_add(mutate!("starvation-slice", SLICE, Span::from_ns(u64::MAX)));
        let mut ended = begun;
        while ended < end
            && let Some(thread) = check.unread.pop_front()
        {
            check.consumed.extend(read(thread).map(|consumed| (thread, consumed)));
            ended = clock::now();
        }
        let cost = ended.since(begun).as_ns();
        self.not_before = begun.saturating_add(Span::from_ns(cost.saturating_mul(COST_SHARE)));
        let check = self.in_progress.take_if(|check| check.unread.is_empty())?;
        Some((check.silent, check.consumed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_of_many_threads_takes_several_slices_and_reads_each_thread_once() {
        let mut times = CpuTimes::default();
        let silent = CpuSet::single(1);
        let threads: VecDeque<ThreadId> = (0..40).map(ThreadId).collect();
        times.begin(silent, threads.clone());
        let read = |thread: ThreadId| {
            let end = clock::now().saturating_add(Span::from_ns(SLICE.as_ns() / 4));
            while clock::now() < end {}
            (thread.0 != 7).then_some(Work::from_ns(thread.0))
        };
        let mut slices = 1;
        let (found, consumed) = loop {
            let begun = clock::now();
            if let Some(result) = times.run_slice(read) {
                break result;
            }
            let next = times.next_due().expect("it is in progress");
            let pause = Span::from_ns(SLICE.as_ns() * COST_SHARE);
            assert!(next >= begun.saturating_add(pause), "a pause follows");
            slices += 1;
        };
        assert!(slices >= 10, "{slices} slices");
        assert_eq!((found, times.next_due()), (silent, None));
        let expected: Vec<ThreadId> = threads.into_iter().filter(|thread| thread.0 != 7).collect();
        assert_eq!(consumed.iter().map(|(thread, _)| *thread).collect::<Vec<_>>(), expected);
        times.begin(CpuSet::EMPTY, VecDeque::new());
        assert_eq!(times.run_slice(read), Some((CpuSet::EMPTY, Vec::new())));
    }
}
