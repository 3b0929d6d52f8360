//! The scheduler machine under a simulated clock.
//!
//! Model: a [`Workload`] says when jobs arrive and what they cost, all from a seed; a [`World`] has
//! CPUs that work at full speed; time jumps from one event to the next. The loop is the twin of the
//! executor's: the same events go into the same machine, and the same orders come out. What happens
//! is told to a [`Sink`], and nothing is kept that no sink asks for.
#![forbid(unsafe_code)]

pub mod dice;
mod draw;
pub mod generate;
pub mod schedule;
pub mod sink;
mod spoil;
mod stream;
pub mod tally;
pub mod trace;
mod world;

pub use draw::{Drawn, draw};
pub use schedule::{Schedule, Segment};
pub use sink::{Completion, Counters, Jobs, Sink};
pub use spoil::Overheads;
pub use talea_core::workload::{
    Act, Arrivals, Case, Cost, Hole, Mark, Source, Surroundings, Workload,
};
pub use tally::Tally;
pub use world::{Outcome, World};
