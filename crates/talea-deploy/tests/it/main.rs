//! Tests of the machine in a simulated computer.
//!
//! `TALEA_SEED` repeats one seed, `TALEA_SEEDS` sets the number of seeds of a soak test.

mod changes;
mod drift;
mod exhaustive;
mod faults;
mod governed;
mod observations;
mod plans;
mod restarts;
mod texts;
mod world;
