//! The broker against its rules: each call and outcome, each owner, and a crowd under a fake
//! kernel.

mod adopt;
mod calls;
mod change;
mod choice;
mod foreign;
mod later;
mod limits;
mod moves;
mod owners;
mod params;
mod simulation;
mod stage;
mod threads;
mod whose;
