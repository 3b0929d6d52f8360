//! Implementations of the commands, one module each. Each function takes the arguments of its
//! command and returns the exit code.

pub(crate) mod analyze;
pub(crate) mod attach;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod deploy;
pub(crate) mod doctor;
pub(crate) mod execute;
pub(crate) mod explain;
mod front_ends;
pub(crate) mod generate;
pub(crate) mod import;
mod in_force;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod new;
pub(crate) mod release;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod simulate;
pub(crate) mod status;
pub(crate) mod sweep;
