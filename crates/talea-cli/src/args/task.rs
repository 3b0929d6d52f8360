//! Parameters of a task as options.
//!
//! ReTiF (J. Systems Architecture 2021) section 3: any subset of period, runtime, desired runtime,
//! deadline and priority. The broker refuses contradictory parameters, so that the reasons are in
//! one place.

use clap::Args;
use talea_config::duration::{Reservation, parse_reservation, parse_span};
use talea_core::{CpuSet, Params, Priority, Span, Work};
use talea_proto::message::Name;
use talea_proto::{Owner, Task};

/// Declared parameters of a task.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "What is needed")]
pub(crate) struct TaskArgs {
    /// T: distance between activations, such as 10ms.
    #[arg(long, value_name = "T", value_parser = parse_span)]
    pub(crate) period: Option<Span>,
    /// Q: CPU time that each activation needs, such as 2ms.
    #[arg(long, value_name = "Q", value_parser = work)]
    pub(crate) runtime: Option<Work>,
    /// CPU time that each activation can use; at least the runtime.
    #[arg(long, value_name = "QD", value_parser = work)]
    pub(crate) desired: Option<Work>,
    /// D: relative deadline; by default the period.
    #[arg(long, value_name = "D", value_parser = parse_span)]
    pub(crate) deadline: Option<Span>,
    /// Static priority, 1 (least) to 99 (most urgent).
    #[arg(long, value_name = "P", value_parser = priority)]
    pub(crate) priority: Option<Priority>,
    /// The only plugin to ask, by its name in the configuration.
    #[arg(long, value_name = "NAME", value_parser = plugin)]
    pub(crate) plugin: Option<Name>,
    /// CPUs it must run on, such as 0-3,5.
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse)]
    pub(crate) cpus: Option<CpuSet>,
    /// CPUs that it should preferably run on.
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse, conflicts_with = "cpus")]
    pub(crate) prefer_cpus: Option<CpuSet>,
    /// Accept although the plugin's test fails (a rule must allow it).
    #[arg(long)]
    pub(crate) ignore_admission: bool,
    /// All parameters in one word: d:2ms:10ms (runtime, period), f:80, r:10, or o:0 for an ordinary
    /// thread.
    #[arg(short = 'P', value_name = "POLICY", value_parser = parse_reservation)]
    #[arg(conflicts_with_all = ["period", "runtime", "desired", "deadline", "priority", "plugin"])]
    pub(crate) policy: Option<Reservation>,
}

/// Request that the options describe.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of it in a run of the program")]
pub(crate) enum TaskRequest {
    /// An ordinary thread with this nice value; needs no broker.
    Ordinary {
        /// −20 to 19.
        nice: i8,
    },
    /// A grant.
    Grant {
        /// Request to the broker.
        task: Task,
        /// Required kind of plugin, if `-P` names one.
        kind: Option<&'static str>,
    },
}

impl TaskArgs {
    /// Returns the request, for a grant with this owner.
    pub(crate) fn to_request(&self, owner: Owner) -> TaskRequest {
        let task = self.to_task(owner);
        match self.policy {
            Some(Reservation::Ordinary { nice }) => TaskRequest::Ordinary { nice },
            Some(Reservation::RealTime { params, kind }) => {
                TaskRequest::Grant { task: Task { params, ..task }, kind: Some(kind) }
            }
            None => TaskRequest::Grant { task, kind: None },
        }
    }

    /// Returns the task without the parameters of `-P`, for a grant with this owner.
    pub(crate) fn to_task(&self, owner: Owner) -> Task {
        let params = Params {
            period: self.period,
            runtime: self.runtime,
            desired: self.desired,
            deadline: self.deadline,
            priority: self.priority,
        };
        let cpus = self.cpus.or(self.prefer_cpus).unwrap_or_default();
        Task {
            params,
            plugin: self.plugin,
            cpus,
            cpus_mandatory: self.cpus.is_some(),
            ignore_admission: self.ignore_admission,
            owner,
            thread: None,
            exclusive: false,
        }
    }
}

fn work(text: &str) -> Result<Work, String> {
    parse_span(text).map(|span| Work::from_ns(span.as_ns())).map_err(|why| why.to_string())
}

fn priority(text: &str) -> Result<Priority, String> {
    match text.parse() {
        Ok(level @ 1..=99) => Ok(Priority(level)),
        _ => Err("real-time priorities are 1 (least) to 99 (most urgent)".to_owned()),
    }
}

fn plugin(text: &str) -> Result<Name, String> {
    Name::new(text).ok_or_else(|| "a plugin's name has 1 to 31 bytes".to_owned())
}
