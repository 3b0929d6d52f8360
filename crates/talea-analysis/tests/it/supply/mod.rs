//! Supplies against their definitions, other tools' results and servers in the simulator.

mod least;
mod oracle;
mod servers;
mod shapes;
mod worst;
