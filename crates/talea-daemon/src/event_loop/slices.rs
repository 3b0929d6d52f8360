//! Slices of the inspections of threads and of the checks of canaries.
//!
//! An inspection reads the attributes of hundreds of threads, and a check the CPU times of all FIFO
//! and RR threads on silent CPUs, which the kernel shows in a file per thread. A thousand threads
//! take milliseconds, and the loop runs above most of them. So this work has *slices* of [`SLICE`],
//! which take one part in [`COST_SHARE`] of the daemon's time: half of what refills the budget of the
//! loop. The first slice of an inspection follows the broker's order at once, and suffices for some
//! dozen threads.

use std::collections::VecDeque;
use talea_broker::ThreadId;
use talea_core::{CpuSet, Monotonic, Span, Work, mutate};
use talea_os::clock;

/// Interval between the starts of two slices in multiples of the cost of one.
const COST_SHARE: u64 = 20;
/// Maximum duration of a slice.
const SLICE: Span = Span::from_ns(200_000);

/// Work in progress, and the earliest time of its next slice.
#[derive(Debug, Default)]
pub(super) struct Slices {
    check: Option<Check>,
    /// Number of threads that remain to be inspected.
    uninspected: u32,
    not_before: Monotonic,
}

/// A check of canaries.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) silent: CpuSet,
    pub(super) consumed: Vec<(ThreadId, Work)>,
    unread: VecDeque<ThreadId>,
}

/// One step of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Read the CPU time of this thread, for [`Slices::add`].
    Read(ThreadId),
    /// Inspect the next thread.
    Inspect,
}

/// A slice that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    begun: Monotonic,
    now: Monotonic,
}

impl Slices {
    /// Begins an inspection of this many threads, in place of an earlier one.
    pub(super) fn begin_inspection(&mut self, threads: u32) {
        self.uninspected = threads;
    }

    /// Begins a check with these FIFO and RR threads on the silent CPUs.
    pub(super) fn begin_check(&mut self, silent: CpuSet, unread: VecDeque<ThreadId>) {
        self.check = Some(Check { silent, consumed: Vec::new(), unread });
    }

    /// Returns the time of the next slice; `None` without work.
    #[inline]
    pub(super) fn next_due(&self) -> Option<Monotonic> {
        (self.uninspected > 0 || self.check.is_some()).then_some(self.not_before)
    }

    /// Begins a slice.
    pub(super) fn begin_slice() -> Slice {
        let now = clock::now();
        Slice { begun: now, now }
    }

    /// Returns the next step of the slice; `None` at its end.
    pub(super) fn next_step(&mut self, slice: &mut Slice) -> Option<Step> {
        slice.now = clock::now();
        let cost = slice.now.saturating_since(slice.begun);
        let pause = Span::from_ns(cost.as_ns().saturating_mul(COST_SHARE));
        self.not_before = slice.begun.saturating_add(pause);
        if mutate!("daemon-slices", cost >= SLICE, false) {
            return None;
        }
        if let Some(thread) = self.check.as_mut().and_then(|check| check.unread.pop_front()) {
            return Some(Step::Read(thread));
        }
        self.uninspected = self.uninspected.checked_sub(1)?;
        Some(Step::Inspect)
    }

    /// Adds the CPU time of a thread to the check.
    pub(super) fn add(&mut self, thread: ThreadId, consumed: Work) {
        if let Some(check) = &mut self.check {
            check.consumed.push((thread, consumed));
        }
    }

    /// Ends the check and returns it, if all of its threads are read.
    pub(super) fn take_check(&mut self) -> Option<Check> {
        self.check.take_if(|check| check.unread.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_on_many_threads_takes_several_slices_and_covers_each_thread_once() {
        let mut slices = Slices::default();
        let threads: VecDeque<ThreadId> = (0..40).map(ThreadId).collect();
        slices.begin_inspection(40);
        slices.begin_check(CpuSet::single(1), threads.clone());
        let (mut read, mut inspected, mut count) = (Vec::new(), 0, 0);
        while slices.next_due().is_some() {
            let mut slice = Slices::begin_slice();
            while let Some(step) = slices.next_step(&mut slice) {
                let end = clock::now().saturating_add(Span::from_ns(SLICE.as_ns() / 4));
                while clock::now() < end {}
                match step {
                    Step::Read(thread) => slices.add(thread, Work::from_ns(thread.0)),
                    Step::Inspect => inspected += 1,
                }
            }
            read.extend(slices.take_check().map(|check| check.consumed).into_iter().flatten());
            count += 1;
            if let Some(next) = slices.next_due() {
                let pause = Span::from_ns(SLICE.as_ns() * COST_SHARE);
                assert!(next >= slice.begun.saturating_add(pause), "a pause follows");
            }
        }
        assert!(count >= 20, "{count} slices");
        assert_eq!(inspected, 40);
        assert_eq!(read, threads.iter().map(|&id| (id, Work::from_ns(id.0))).collect::<Vec<_>>());
    }
}
