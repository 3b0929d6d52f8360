//! Tests of the broker: each request and outcome, each kind of owner, and random clients on a
//! simulated kernel.

mod acting;
mod adopt;
mod answers;
mod budget_limits;
mod calls;
mod change;
mod choice;
mod drift;
mod foreign;
mod foreign_terms;
mod growth;
mod later;
mod limits;
mod moves;
mod nice;
mod offline;
mod owners;
mod params;
mod records;
mod rule_shares;
mod simulation;
mod stage;
mod starvation;
mod threads;
mod trail;
mod whose;
