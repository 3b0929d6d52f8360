//! `talea-governor`: governs the control groups of one root of a deployed system, without end.
//!
//! Model: the process that deploys a system creates a control group for each task and starts the
//! programs in them. This process freezes and thaws the groups by the orders of the engine, as
//! `talea execute` does with the programs that it starts. It may be killed and started again at any
//! instant. [`talea_os::cgroup::handover`] has the states of a group between two governors.
//!
//! At SIGHUP the governor reads its file again, and the root switches to the new tree by
//! [`talea_core::engine::SwitchRule`]. The file must have the same tasks; otherwise the old one
//! remains in force.
//!
//! A program is started so: the starter writes 1 to `cgroup.freeze` of the empty group; a child
//! sets its CPU and its policy and enters the group. The child stops there, and executes the
//! program at the first order of the engine.
//!
//! | module | contents |
//! | --- | --- |
//! | `options` | the command line |
//! | `plan` | the root and its groups, and what is refused |
//! | `govern` | the run, signals and events |
//! | `stats` | statistics in JSON |
//!
//! Exit codes: 0 after SIGTERM or SIGINT, 1 if the run failed, 3 if there is nothing that it can
//! govern.
#![forbid(unsafe_code)]

mod govern;
mod options;
mod plan;
mod stats;

use options::Command;
use std::process::ExitCode;
use talea_os::cgroup::handover;

/// Exit code of a run that failed.
const FAILED: u8 = 1;
/// Exit code of a refusal.
const REFUSED: u8 = 3;

fn main() -> ExitCode {
    let (result, code) = match options::parse(std::env::args_os().skip(1)) {
        Ok(Command::Govern(options)) => match govern::prepare(options) {
            Ok(prepared) => (govern::run(&prepared), FAILED),
            Err(error) => (Err(error), REFUSED),
        },
        Ok(Command::Release(groups)) => {
            let released = groups.iter().try_for_each(|group| handover::release(group));
            (released.map_err(Into::into), REFUSED)
        }
        Ok(Command::Print(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(error) => (Err(error), REFUSED),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("talea-governor: {error:#}");
            ExitCode::from(code)
        }
    }
}
