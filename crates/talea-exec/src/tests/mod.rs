//! The loop without threads: workers are numbers, time is whatever happens next.

mod fake;
mod loops;
mod programs;
mod rich;
