//! The parameters of a task, as options.
//!
//! ReTiF (J. Systems Architecture 2021) section 3: none to all of period, runtime, desired runtime,
//! deadline and priority. What contradicts itself is left for the broker to refuse, so that there
//! is one place for reasons.

use clap::Args;
use talea_core::{CpuSet, Params, Priority, Span, Work};
use talea_proto::message::Name;
use talea_proto::{Owner, Task};
use talea_system::duration::{Reservation, parse_reservation, parse_span};

/// What a task declares.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "What is needed")]
pub(crate) struct TaskArgs {
    /// T: distance between activations, such as 10ms.
    #[arg(long, value_name = "T", value_parser = parse_span)]
    pub(crate) period: Option<Span>,
    /// Q: CPU time that each activation needs, such as 2ms.
    #[arg(long, value_name = "Q", value_parser = work)]
    pub(crate) runtime: Option<Work>,
    /// CPU time that each activation could make use of; at least the runtime.
    #[arg(long, value_name = "QD", value_parser = work)]
    pub(crate) desired: Option<Work>,
    /// D: relative deadline; the period unless said otherwise.
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
    /// CPUs it should rather run on.
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse, conflicts_with = "cpus")]
    pub(crate) prefer_cpus: Option<CpuSet>,
    /// Accept although the plugin's test fails (a rule must allow it).
    #[arg(long)]
    pub(crate) ignore_admission: bool,
    /// The same in one word: d:2ms:10ms (runtime, period), f:80, r:10, or o:0 for an ordinary
    /// thread.
    #[arg(short = 'P', value_name = "POLICY", value_parser = parse_reservation)]
    #[arg(conflicts_with_all = ["period", "runtime", "desired", "deadline", "priority", "plugin"])]
    pub(crate) policy: Option<Reservation>,
}

/// What the options ask for.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of it in a run of the program")]
pub(crate) enum Wanted {
    /// Nothing that a broker gives: an ordinary thread with this nice value.
    Ordinary {
        /// −20 to 19.
        nice: i8,
    },
    /// A grant.
    Grant {
        /// What to ask.
        task: Task,
        /// With `-P`: the kind of plugin that must serve it.
        kind: Option<&'static str>,
    },
}

impl TaskArgs {
    /// The request, for an owner.
    pub(crate) fn wanted(&self, owner: Owner) -> Wanted {
        let cpus = self.cpus.or(self.prefer_cpus).unwrap_or_default();
        let (params, kind) = match self.policy {
            Some(Reservation::Ordinary { nice }) => return Wanted::Ordinary { nice },
            Some(Reservation::RealTime { params, kind }) => (params, Some(kind)),
            None => {
                let params = Params {
                    period: self.period,
                    runtime: self.runtime,
                    desired: self.desired,
                    deadline: self.deadline,
                    priority: self.priority,
                };
                (params, None)
            }
        };
        let task = Task {
            params,
            plugin: self.plugin,
            cpus,
            cpus_mandatory: self.cpus.is_some(),
            ignore_admission: self.ignore_admission,
            owner,
        };
        Wanted::Grant { task, kind }
    }
}

/// A duration with its unit.
pub(crate) fn duration(text: &str) -> Result<talea_core::Span, String> {
    match parse_span(text) {
        Ok(span) if span.is_zero() => Err("it must be longer than nothing".to_owned()),
        Ok(span) => Ok(span),
        Err(error) => Err(error.to_string()),
    }
}

/// How long something runs: as in a system file, not so long that sums of times would not fit into
/// 64 bits.
pub(crate) fn run_length(text: &str) -> Result<talea_core::Span, String> {
    match duration(text)? {
        span if span > talea_core::machine::LONGEST => Err("it is longer than 73 years".to_owned()),
        span => Ok(span),
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
