//! A grid of simulations: axes, files with the grid's values in them, what is measured, and how it
//! is shown.
//!
//! Model: a point of the grid gives every [`axis`] a value; the values are written into the texts
//! of the system file ([`edit`]), which are read once and then only read again in memory; a run is
//! a point, a seed and a generated set. Runs know nothing of each other, so that they may be done
//! in any order by any number of threads; sums are made in the order of the grid.

pub(crate) mod axis;
pub(crate) mod edit;
pub(crate) mod measure;
pub(crate) mod show;
