//! Tests of the analysis against other tools, against reference models, against each other and
//! against the simulator.
#![forbid(unsafe_code)]

mod amc;
mod assignment;
mod catalogue;
mod curves;
mod dominance;
mod edf;
mod edf_in_fp;
mod edf_vd;
mod extremes;
mod fp;
mod fp_levels;
mod multi;
mod nonpreemptive;
mod offline;
mod oracle;
mod plain;
mod protocols;
mod replay;
mod rng;
mod sandwich;
mod sections;
mod supply;
mod tree;
