//! Runs of described systems and their results: what the commands of `talea` and the experiments
//! of `talea-lab` share.
//!
//! Model: [`run_summary`] has the results of a simulation and of a real run in one form.
//! [`live_run`] executes a system on threads. [`compare`] compares such a run with its model.
//! [`analysis`] bounds the responses of a system, and searches for its parameters. [`report`] draws
//! a run as a page, an SVG or a trace. [`sweep`] repeats simulations over a grid. [`witness`]
//! stores a late job with the arrivals that cause it.
//!
//! Absent on purpose: commands, and the broker.
#![forbid(unsafe_code)]

pub mod analysis;
mod answer;
pub mod batch;
pub mod compare;
pub mod event_count;
pub mod exit;
pub mod limit;
pub mod live_run;
pub mod options;
pub mod output;
pub mod plot;
pub mod report;
pub mod run_summary;
pub mod svg;
pub mod sweep;
pub mod system_file;
pub mod validity;
pub mod witness;
