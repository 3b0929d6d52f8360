//! The simulator against schedules and figures from elsewhere, and against a plain twin.
#![forbid(unsafe_code)]

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
mod gates;
mod graphs;
mod invariants;
mod l3c;
mod lab;
mod mixtures;
mod naive;
mod outside;
mod overheads;
mod partitions;
mod restart;
mod rulings;
mod schedules;
mod servers;
mod sharing;
mod signals;
mod soak;
mod supply;
mod tables;
mod versions;
