//! The loop without threads: workers are numbers, time is whatever happens next.

mod doze;
mod fake;
mod loops;
mod programs;
mod rich;
