//! Tests for rate-monotonic (deadline-monotonic) priorities on one CPU, and how real settings
//! become their model.
//!
//! All tests speak about *classes*: demands with distinct spans, ordered by them, the shortest most
//! urgent. Three arguments turn what a CPU really has into classes. Throughout, priorities are
//! preemptive, tasks are independent and keep to what they declare, and a task's span is min(T, D):
//! a set that is schedulable with period and deadline both shortened to it is schedulable as it is,
//! because interference ⌈t/T⌉·Q only grows when T shrinks.
//!
//! 1. *One span, one task.* Tasks of equal span may be judged as one task with the sum of their
//!    work. At a synchronous release, the worst case (Liu and Layland 1973, theorem 1), they
//!    interfere with everybody below as Σ ⌈t/T⌉·Q_i = ⌈t/T⌉·ΣQ_i, and the last of them to end ends
//!    when the sum would. This is sharper than counting them one by one, since 1 + ΣU_i ≤ Π(1 +
//!    U_i), and equal for sets whose spans all differ.
//! 2. *One kernel level, one span.* Neighbouring spans that share a kernel priority are judged as
//!    if all had the shortest of them. Shortening spans is safe as said above; among equal spans
//!    the order is free, and whatever order the kernel picks within a level (FIFO, round robin), a
//!    job of the level ends no later than the backlog of its level and of all above it, which is
//!    when argument 1 lets it end.
//! 3. *Who outranks all.* A task that runs above all classes, whatever its own parameters, is
//!    judged with its span shortened to the shortest class. Only its interference counts here; in
//!    which order such tasks run among each other does not matter to those below, so they may be
//!    taken as rate monotonic too. Those that have a shorter span anyway keep it.
//!
//! 4. *Who may come over from another CPU.* A task under global EDF may have begun a job elsewhere
//!    when the window that matters here begins, so at most (⌈t/T⌉ + 1)·Q ≤ ⌈t/T⌉·2Q of it can be
//!    met here, as long as it meets its own deadlines: it outranks all as in argument 3, with twice
//!    its work.
//!
//! Arguments 2 and 3 only ever shorten spans, and any grouping of neighbours is sound; so a set
//! that was accepted stays schedulable when a member leaves and the grouping becomes finer, even if
//! the finer grouping alone would not have been accepted.

mod hyperbolic;
mod liu_layland;
mod necessary;
#[cfg(test)]
mod tests;

pub use hyperbolic::{CARD as HYPERBOLIC, hyperbolic};
pub use liu_layland::{CARD as LIU_LAYLAND, liu_layland};
pub use necessary::{CARD as NECESSARY, necessary};

use crate::Demand;
use alloc::vec::Vec;
use talea_core::Span;

/// The classes of a CPU whose kernel levels, most urgent first, hold the demands `levels`, while
/// the demands `above` outrank all of them (arguments 1 to 3). A demand without work is no class.
///
/// # Panics
/// If `levels` is out of order: a level's longest span must be shorter than the next level's
/// shortest.
pub fn classes(levels: &[Vec<Demand>], above: &[Demand]) -> Vec<Demand> {
    let mut classes: Vec<Demand> = Vec::new();
    let mut last = Span::ZERO;
    for level in levels {
        let spans = || level.iter().map(|d| d.within);
        let (Some(shortest), Some(longest)) = (spans().min(), spans().max()) else { continue };
        assert!(last < shortest, "levels out of order");
        last = longest;
        classes.push(Demand { work: level.iter().map(|d| d.work).sum(), within: shortest });
    }
    classes.retain(|class| class.work != 0);
    let shortest = classes.first().map(|class| class.within);
    for demand in above {
        let within = shortest.map_or(demand.within, |shortest| shortest.min(demand.within));
        classes.push(Demand { work: demand.work, within });
    }
    merged(classes)
}

/// Demands of equal span as one (argument 1), shortest first; demands without work are left out.
pub fn merged(mut demands: Vec<Demand>) -> Vec<Demand> {
    demands.retain(|demand| demand.work != 0);
    demands.sort_by_key(|demand| demand.within);
    demands.dedup_by(|next, kept| {
        let same = next.within == kept.within;
        if same {
            kept.work += next.work;
        }
        same
    });
    demands
}
