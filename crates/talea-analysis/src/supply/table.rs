//! Supply of the slots of one partition in a table: exact, for any number and position of slots.
//!
//! The supply of a static, cyclic partition is that of A. K. Mok, X. Feng and D. Chen, "Resource
//! partition for real-time systems", RTAS 2001, section 3: the least over all windows of a length.
//! Only windows that begin at the end of a slot matter. A window that begins elsewhere in a slot
//! has more supply, and a window that begins in a gap reaches further.
//!
//! Assumptions:
//! 1. The frame repeats forever. The slots are disjoint, inside the frame, and in order.
//! 2. Only the slots of the partition count, without lent time.
//!
//! *Exact*: for each length some window supplies no more than the bound. The windows of different
//! lengths differ. So a test that evaluates one window with different lengths (response times) is
//! sufficient only.

use super::{Rate, Supply, Tightness, span};
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::sched::{Child, Slot};
use talea_core::{Span, Work};

/// Supply of the slots of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    frame: Span,
    /// Begin and end of each slot, with contiguous slots merged. The last slot may end beyond the
    /// frame, in the first slot of the next frame.
    slots: Vec<(u64, u64)>,
    /// Supply per frame.
    total: u64,
}

impl Table {
    /// Creates the supply of the slots of `owner` in a table.
    ///
    /// # Panics
    /// If the slots are not sorted, disjoint and inside the frame.
    /// [`talea_core::engine::Tree::check`] ensures this order.
    pub fn new(frame: Span, slots: &[Slot], owner: Child) -> Table {
        let mut own: Vec<(u64, u64)> = Vec::new();
        let mut free = Span::ZERO;
        for slot in slots {
            assert!(
                free <= slot.start && slot.start < slot.end && slot.end <= frame,
                "slots in order in the frame"
            );
            free = slot.end;
            if slot.owner != owner {
                continue;
            }
            match own.last_mut() {
                Some(last) if last.1 == slot.start.as_ns() => last.1 = slot.end.as_ns(),
                _ => own.push((slot.start.as_ns(), slot.end.as_ns())),
            }
        }
        let total = own.iter().map(|(start, end)| end - start).sum();
        // A slot across the end of the frame.
        if own.len() > 1 && own[0].0 == 0 && own[own.len() - 1].1 == frame.as_ns() {
            let first = own.remove(0);
            if let Some(last) = own.last_mut() {
                last.1 += first.1;
            }
        }
        Table { frame, slots: own, total }
    }

    /// Returns the time for `work` in a window that begins at the end of slot `after`.
    fn time_after(&self, after: usize, work: u64) -> Option<u128> {
        let frames = u128::from((work - 1) / self.total) * u128::from(self.frame.as_ns());
        let mut left = (work - 1) % self.total + 1;
        let begin = self.slots[after].1;
        for at in after + 1..=after + self.slots.len() {
            let (start, end) = self.slots[at % self.slots.len()];
            let round =
                if mutate!("supply-table-wrap", at < self.slots.len(), at <= self.slots.len()) {
                    0
                } else {
                    self.frame.as_ns()
                };
            let length = end - start;
            if left <= length {
                return Some(u128::from(start + round + left - begin) + frames);
            }
            left -= length;
        }
        None
    }
}

impl Supply for Table {
    fn time_for(&self, work: Work) -> Option<Span> {
        if work.is_zero() {
            return Some(Span::ZERO);
        }
        if self.total == self.frame.as_ns() {
            return span(work.as_ns().into());
        }
        let each = (0..self.slots.len()).map(|after| self.time_after(after, work.as_ns()));
        each.max()?.and_then(span)
    }

    fn rate(&self) -> Option<Rate> {
        Some(Rate { work: Work::from_ns(self.total), every: self.frame })
    }

    fn tightness(&self) -> Tightness {
        mutate!("supply-reached", Tightness::ForEachLength, Tightness::ByOnePattern)
    }
}
