//! Report of `talea run --report FILE`.

use super::threads::{ThreadReport, Threads};
use crate::args::RunArgs;
use crate::json::{GrantJson, TaskJson};
use serde::Serialize;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use talea_os::Tid;
use talea_proto::{Granted, Task};

/// Report of a finished run.
#[derive(Serialize)]
pub(super) struct Report {
    command: Vec<String>,
    pid: i32,
    task: TaskJson,
    grant: GrantJson,
    /// Threads other than the main thread that lived long enough to be detected.
    threads: Vec<ThreadReport>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    wall_ns: u64,
}

impl Report {
    #[expect(
        clippy::too_many_arguments,
        reason = "one place, one use; a struct would only repeat this one"
    )]
    pub(super) fn new(
        args: &RunArgs,
        task: &Task,
        granted: &Granted,
        plugin: &str,
        main: Tid,
        threads: &Threads,
        status: ExitStatus,
        wall: Duration,
    ) -> Report {
        Report {
            command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            pid: main.as_raw(),
            task: TaskJson::from(task),
            grant: GrantJson::new(granted, plugin),
            threads: threads.others().cloned().collect(),
            exit_code: status.code(),
            signal: status.signal(),
            wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}
