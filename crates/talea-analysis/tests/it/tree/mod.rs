//! Bounds of whole trees: against the simulator over every kind of node, published examples, and
//! counterexamples to earlier versions.

mod absorbing_slots;
mod assignment;
mod chains;
mod counterexamples;
mod demand_plots;
mod federated;
mod flat;
mod graphs;
mod interference;
mod lost_time;
mod phases;
mod precedence;
mod published;
mod published_chains;
mod random_trees;
mod reasons;
mod simulated;
mod suspension;
mod tardiness;
mod transitions;
