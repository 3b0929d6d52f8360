//! Grid of simulations: axes, edited files, measurements, and their presentation.
//!
//! Model: a point of the grid gives every [`axis`] a value. The values are written into the texts
//! of the system file ([`edit`]), which are read from disk once. A run is a point, a seed and a
//! generated set. Runs are independent, so any number of threads may execute them in any order;
//! sums are computed in the order of the grid.

pub mod axis;
pub mod edit;
pub mod measure;
pub mod show;
