//! Bounds of whole trees: against the simulator over every kind of node, and published examples.

mod absorbed;
mod made;
mod pictures;
mod published;
mod simulated;
