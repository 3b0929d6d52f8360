//! Simulation: the scheduler engine under a simulated clock.
//!
//! Model: a [`Workload`] defines arrivals and costs of jobs from a seed. A [`Simulation`] has CPUs
//! of full speed, and time advances from event to event. The executor has the same loop: the same
//! events enter the same engine, and the same orders result. The simulation reports events to a
//! [`Sink`], and only sinks store them.
#![forbid(unsafe_code)]

pub mod generate;
pub mod histogram;
mod interference;
mod job_lists;
mod job_source;
pub mod schedule;
mod simulation;

pub use histogram::Histogram;
pub use interference::Overheads;
pub use job_lists::{JobList, JobStream, generate_jobs, stream_jobs};
pub use schedule::Schedule;
pub use simulation::{Outcome, Simulation};
pub use talea_core::sink::{Completion, Counters, Jobs, Segment, Sink};
pub use talea_core::workload::{
    Arrivals, Cost, CostMode, Environment, JobStep, Source, Stall, StepAction, Workload,
};
pub use talea_core::{rng, sink};
