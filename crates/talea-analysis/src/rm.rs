//! Tests for rate-monotonic (deadline-monotonic) priorities on one CPU, and the mapping of a real
//! CPU to the model of these tests.
//!
//! All tests decide *classes*: demands with distinct spans, ordered by span, the shortest most
//! urgent. Four arguments turn the tasks of a CPU into classes. Priorities are preemptive, and
//! tasks are independent and keep to their parameters. The span of a task is min(T, D). Let period
//! and deadline of a set both be shortened to the span. If the shortened set is schedulable, so is
//! the unshortened set, because the interference ⌈t/T⌉·Q only grows when T shrinks.
//!
//! 1. *One span, one task.* Tasks of equal span may be tested as one task with the sum of their
//!    work. At a synchronous release, the worst case (Liu and Layland 1973, theorem 1), their
//!    interference on less urgent tasks is Σ ⌈t/T⌉·Q_i = ⌈t/T⌉·ΣQ_i. The last of them completes
//!    when the sum completes. This is sharper than counting the tasks one by one, because 1 + ΣU_i
//!    ≤ Π(1 + U_i), and equal for sets with distinct spans.
//! 2. *One kernel level, one span.* Neighbouring spans that share a kernel priority are tested with
//!    their shortest span. Shorter spans are safe, as stated above. Among equal spans the order is
//!    free. Let the kernel choose any order within a level (FIFO, round robin). A job of the level
//!    completes no later than the backlog of its level and of all levels above. That is the
//!    completion time of argument 1.
//! 3. *Tasks that outrank all classes.* A task that runs above all classes, whatever its own
//!    parameters, is tested with its span shortened to the shortest class. Only its interference
//!    counts here. The order among these tasks does not matter to less urgent tasks, so they may be
//!    assumed rate monotonic too. Tasks with a shorter span keep their span.
//! 4. *Tasks that may migrate from another CPU.* A task under global EDF may have started a job
//!    elsewhere when the relevant window begins. So at most (⌈t/T⌉ + 1)·Q ≤ ⌈t/T⌉·2Q of its work
//!    can execute here, as long as the task meets its own deadlines. The task outranks all classes
//!    as in argument 3, with twice its work.
//!
//! Arguments 2 and 3 only shorten spans, and any grouping of neighbours is sound. So an accepted
//! set stays schedulable when a member leaves and the grouping becomes finer. This holds even if a
//! test of the finer grouping alone would refuse.

mod hyperbolic;
mod liu_layland;
mod necessary;
#[cfg(test)]
mod tests;

pub use hyperbolic::{INFO as HYPERBOLIC, hyperbolic};
pub use liu_layland::{INFO as LIU_LAYLAND, liu_layland};
pub use necessary::{INFO as NECESSARY, necessary};

use crate::Demand;
use alloc::vec::Vec;
use talea_core::Span;

/// Returns the classes of a CPU (arguments 1 to 3). `levels` holds the demands of its kernel
/// levels, most urgent first; the demands `above` outrank all of them. A demand without work is not
/// a class.
///
/// # Panics
/// If `levels` is out of order: the longest span of a level must be shorter than the shortest span
/// of the next level.
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

/// Merges demands of equal span (argument 1 of this module), shortest first. Demands without work
/// are dropped.
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
