//! Parts of the described systems, with times in microseconds.

use crate::units::US;
use talea_core::engine::TaskSpec;
use talea_core::sched::{PolicySpec, Slot};
use talea_core::{Span, Work};
use talea_sim::{Arrivals, Cost, Source};

/// Returns a span of `us` microseconds.
pub(super) fn span(us: u64) -> Span {
    Span::from_ns(us * US)
}

/// Returns a work of `us` microseconds.
pub(super) fn work(us: u64) -> Work {
    Work::from_ns(us * US)
}

/// Returns a task with an unbounded queue.
pub(super) fn task(name: &str, period_us: u64, deadline_us: u64, priority: u8) -> TaskSpec {
    let mut spec = TaskSpec::new(name, span(period_us));
    spec.deadline = span(deadline_us);
    spec.priority = priority;
    // All requests are served eventually; a bounded queue is another experiment.
    spec.backlog.capacity = 10_000;
    spec
}

/// Returns periodic arrivals of jobs with equal costs.
pub(super) fn periodic(period_us: u64, offset_us: u64, cost_us: u64) -> Source {
    let arrivals =
        Arrivals::Periodic { offset: span(offset_us), period: span(period_us), jitter: Span::ZERO };
    Source { arrivals, cost: Cost::Constant(work(cost_us)) }
}

/// Returns a table of slots of equal length, one per child.
pub(super) fn table(slot_us: u64, slots: u32) -> PolicySpec {
    let at = |number: u32| span(slot_us * u64::from(number));
    let slots: Vec<Slot> =
        (0..slots).map(|owner| Slot { start: at(owner), end: at(owner + 1), owner }).collect();
    PolicySpec::Partitions {
        frame: slots.last().map_or(Span::ZERO, |last| last.end),
        slots,
        lending: false,
    }
}
