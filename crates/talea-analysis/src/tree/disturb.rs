//! How much a band can disturb what lies below it, and slots that absorb it (L3C, RTNS 2017, sections 3 and 4.1 G).
//!
//! A band, a server or a task above time partitions takes of their slots what its curves say. So a partition with C of work
//! in every slot has it as long as a slot holds C and what the band takes within the slot's length; what
//! it takes beyond is the partition's loss. [`interference`] is that bound for any window; [`absorb`] finds the least slot, and
//! [`stretch`] a table in which every slot holds what it held before the band was there.
//!
//! Assumptions: those of [`super`]; the band's curves are bounds for windows that begin when nothing of the band pends, and
//! one nanosecond of a slot is as good as another.

use crate::supply::Curve;
use crate::supply::curve::all_within;
use crate::uni::HORIZON;
use alloc::vec::Vec;
use talea_core::sched::Slot;
use talea_core::{Span, Work};

/// The most that `band` takes within any window of this length, of a CPU that it has whenever it wants.
///
/// A window that begins while the band pends holds no more than the one that begins as it began to, so that the bound is good
/// for any; and never more than the window.
pub fn interference(band: &[Curve], window: Span) -> Work {
    Work::from_ns(all_within(band, window.as_ns()).min(window.as_ns()))
}

/// The least slot in which `work` is done although `band` interferes; `None` where the band leaves too little in the long run.
///
/// It is the response time of `work` below the band: the slot's end may not come before.
pub fn absorb(work: Work, band: &[Curve]) -> Option<Span> {
    let mut slot = work.as_ns();
    // Each round ends more jobs of the band, or is the last; what grows beyond the horizon never fits.
    for _ in 0..1 << 20 {
        let next = work.as_ns().saturating_add(all_within(band, slot));
        if next <= slot {
            return Some(Span::from_ns(slot));
        }
        if next > HORIZON {
            return None;
        }
        slot = next;
    }
    None
}

/// A table in the same frame whose slots hold, below `band`, what `slots` hold without it: in the same order, each begun no
/// earlier than before, and later only to make room. `Err`: the frame that they would need.
///
/// # Errors
/// A longer frame that is enough, or `None` where no frame is, because the band leaves too little in the long run.
pub fn stretch(frame: Span, slots: &[Slot], band: &[Curve]) -> Result<Vec<Slot>, Option<Span>> {
    let mut free = Span::ZERO;
    let mut stretched = Vec::with_capacity(slots.len());
    for slot in slots {
        let length = slot.end.checked_sub(slot.start).unwrap_or(Span::ZERO);
        let start = slot.start.max(free);
        free = start + absorb(Work::from_ns(length.as_ns()), band).ok_or(None)?;
        stretched.push(Slot { start, end: free, owner: slot.owner });
    }
    if free <= frame { Ok(stretched) } else { Err(Some(free)) }
}
