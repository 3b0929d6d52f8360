//! Bounds of whole trees: against the simulator over every kind of node, published examples, and
//! cases that once were wrong.

mod absorbed;
mod counterexamples;
mod graphs;
mod lost;
mod made;
mod pictures;
mod published;
mod simulated;
mod taken;
