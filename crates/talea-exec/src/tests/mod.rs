//! The loop without threads: workers are numbers, time is whatever happens next.

mod doze;
mod fake;
mod loops;
mod programs;
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

/// Of a dispatcher: by so much it is late.
fn in_time() -> Span {
    Span::ZERO
}
