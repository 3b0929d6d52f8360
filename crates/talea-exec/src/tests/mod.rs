//! The executor without threads: workers are numbers, and time advances to the next event.

mod fake;
mod loops;
mod panics;
mod programs;
mod release_timers;
mod rich;

use talea_core::{Span, Time, Work};

fn ms(ms: u64) -> Span {
    Span::from_ns(ms * 1_000_000)
}

fn at(ms: u64) -> Time {
    Time::from_ns(ms * 1_000_000)
}

fn tenths(tenths: u64) -> Work {
    Work::from_ns(tenths * 100_000)
}

/// Lateness of a dispatcher.
fn no_delay() -> Span {
    Span::ZERO
}
