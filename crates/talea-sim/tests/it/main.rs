//! The simulator against external schedules and figures, and against a reference model.
#![forbid(unsafe_code)]

mod acquisition;
mod activation;
mod agrees;
mod allocations;
mod bridge;
mod ceilings;
mod charts;
mod costs;
mod drive;
mod effort;
mod examples;
mod far;
mod foreign;
mod graphs;
mod harness;
mod invariants;
mod l3c;
mod mixtures;
mod outside;
mod overheads;
mod partitions;
mod reference;
mod restart;
mod rulings;
mod schedules;
mod sections;
mod servers;
mod sharing;
mod signals;
mod soak;
mod supply;
mod tables;
mod versions;
