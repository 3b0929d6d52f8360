//! Types of the `--json` output: stable names, units in the names, `null` for unknown values.
//!
//! The output has codes as the words of the protocol, so that scripts do not depend on numbers of
//! the wire format.

use crate::grant_text;
use crate::kernel::ThreadState;
use serde::Serialize;
use talea_core::Span;
use talea_core::{CpuSet, Policy};
use talea_proto::message::{DetachCause, PluginInfo, Status};
use talea_proto::refusal::{PluginVerdict, Witness};
use talea_proto::{Field, Granted, Owner, PluginAnswer, Refusal, SpecInfo, Task};

/// Declared parameters of a task.
#[derive(Serialize, Debug)]
pub(crate) struct TaskJson {
    period_ns: Option<u64>,
    runtime_ns: Option<u64>,
    desired_ns: Option<u64>,
    deadline_ns: Option<u64>,
    priority: Option<u8>,
    plugin: Option<String>,
    cpus: Option<String>,
    cpus_mandatory: bool,
    ignore_admission: bool,
    owner: &'static str,
}

impl From<&Task> for TaskJson {
    fn from(task: &Task) -> TaskJson {
        TaskJson {
            period_ns: task.params.period.map(talea_core::Span::as_ns),
            runtime_ns: task.params.runtime.map(talea_core::Work::as_ns),
            desired_ns: task.params.desired.map(talea_core::Work::as_ns),
            deadline_ns: task.params.deadline.map(talea_core::Span::as_ns),
            priority: task.params.priority.map(|priority| priority.0),
            plugin: task.plugin.map(|name| name.as_str().to_owned()),
            cpus: list(&task.cpus),
            cpus_mandatory: task.cpus_mandatory,
            ignore_admission: task.ignore_admission,
            owner: match task.owner {
                Owner::Session => "session",
                Owner::Process => "process",
                Owner::Thread => "thread",
            },
        }
    }
}

/// Parameters of a grant.
#[derive(Serialize, Debug)]
pub(crate) struct GrantJson {
    spec: u64,
    plugin: String,
    cpu: Option<u32>,
    runtime_ns: Option<u64>,
    charge_ppm: u64,
    priority: Option<u8>,
    mechanism: &'static str,
    granularity_ns: u64,
    notes: Vec<&'static str>,
}

impl GrantJson {
    /// Builds the JSON of a grant with the name of the plugin.
    pub(crate) fn new(granted: &Granted, plugin: &str) -> GrantJson {
        GrantJson {
            spec: granted.spec.0,
            plugin: plugin.to_owned(),
            cpu: granted.cpu,
            runtime_ns: granted.runtime.map(talea_core::Work::as_ns),
            charge_ppm: grant_text::ppm(granted.charge),
            priority: Some(granted.priority).filter(|&priority| priority > 0),
            mechanism: grant_text::mechanism_name(granted.mechanism),
            granularity_ns: granted.granularity.as_ns(),
            notes: grant_text::note_names(granted.notes),
        }
    }
}

/// Policy of a thread.
#[derive(Serialize, Debug, PartialEq)]
pub(crate) struct PolicyJson {
    policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    nice: Option<i8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    period_ns: Option<u64>,
}

impl From<&Policy> for PolicyJson {
    fn from(policy: &Policy) -> PolicyJson {
        let mut json = PolicyJson {
            policy: "other",
            nice: None,
            priority: None,
            runtime_ns: None,
            deadline_ns: None,
            period_ns: None,
        };
        match *policy {
            Policy::Other { nice } => json.nice = Some(nice),
            Policy::Batch { nice } => (json.policy, json.nice) = ("batch", Some(nice)),
            Policy::Idle => json.policy = "idle",
            Policy::Fifo(priority) => (json.policy, json.priority) = ("fifo", Some(priority.0)),
            Policy::Rr(priority) => (json.policy, json.priority) = ("rr", Some(priority.0)),
            Policy::Deadline { runtime, deadline, period } => {
                json.policy = "deadline";
                json.runtime_ns = Some(runtime.as_ns());
                json.deadline_ns = Some(deadline.as_ns());
                json.period_ns = Some(period.as_ns());
            }
        }
        json
    }
}

/// All data of a grant.
#[derive(Serialize, Debug)]
pub(crate) struct SpecJson {
    #[serde(flatten)]
    grant: GrantJson,
    task: TaskJson,
    uid: u32,
    pid: u32,
    tid: Option<u32>,
    /// Policy that the broker set.
    given: Option<PolicyJson>,
    /// Current policy in the kernel.
    kernel: Option<PolicyJson>,
    /// Current affinity in the kernel, if it is not that of the grant.
    kernel_cpus: Option<String>,
    /// Whether policy and affinity are as set; `null` without a thread, or if the kernel's policy
    /// is not readable.
    held: Option<bool>,
    /// Number of times that the thread exceeded its budget since its limit began.
    overruns: u64,
    /// Time of the last overrun in nanoseconds on `CLOCK_MONOTONIC`. `null` if there was none.
    last_overrun_ns: Option<u64>,
    /// Whether the thread waits at ordinary priority for its next refill.
    throttled: bool,
    /// Reason why the daemon has detached the thread.
    detached: Option<&'static str>,
}

impl SpecJson {
    /// Builds the JSON with the current state of the thread in the kernel.
    pub(crate) fn new(spec: &SpecInfo, kernel: Option<&ThreadState>) -> SpecJson {
        let given = spec.attr.as_ref().map(|attr| attr.policy);
        SpecJson {
            grant: GrantJson::new(&spec.granted, spec.plugin_name.as_str()),
            task: TaskJson::from(&spec.task),
            uid: spec.uid,
            pid: spec.pid,
            tid: spec.tid,
            given: given.as_ref().map(PolicyJson::from),
            kernel: kernel.map(|now| PolicyJson::from(&now.policy)),
            kernel_cpus: (spec.attr.as_ref().zip(kernel))
                .and_then(|(given, now)| now.other_cpus(given))
                .map(|cpus| cpus.to_string()),
            held: spec.attr.as_ref().zip(kernel).map(|(given, now)| now.holds(given)),
            overruns: spec.overruns.count,
            last_overrun_ns: Some(spec.overruns.last_ns).filter(|&ns| ns != 0),
            throttled: spec.overruns.is_throttled,
            detached: spec.detached.map(|cause| match cause {
                DetachCause::Credentials => "credentials",
                DetachCause::Affinity => "affinity",
                DetachCause::Policy => "policy",
                DetachCause::Starvation => "starvation",
                DetachCause::Offline => "offline",
            }),
        }
    }
}

/// Answer of one plugin.
#[derive(Serialize, Debug)]
pub(crate) struct AnswerJson {
    plugin: String,
    verdict: &'static str,
    cpu: Option<u32>,
    charge_ppm: Option<u64>,
    notes: Vec<&'static str>,
    reason: Option<&'static str>,
    field: Option<&'static str>,
    asked: Option<u64>,
    limit: Option<u64>,
    fits: Option<u64>,
    unit: Option<&'static str>,
    /// Reason for a possible deadline miss, from an exact test.
    witness: Option<WitnessJson>,
    text: String,
}

/// Reason for a possible deadline miss.
#[derive(Serialize, Debug)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum WitnessJson {
    /// A task would end after its deadline. `response_ns` is `null` if the response grows without
    /// limit.
    Late { own: bool, period_ns: u64, deadline_ns: u64, response_ns: Option<u64> },
    /// The demand in a window exceeds the supply.
    Demand { at_ns: u64, demand_ns: u64, supply_ns: u64 },
    /// The request fits when the kernel no longer counts the bandwidth of ended grants.
    Held { free_in_ns: u64 },
}

impl From<Witness> for WitnessJson {
    fn from(witness: Witness) -> WitnessJson {
        match witness {
            Witness::DeadlineMiss { own, period, deadline, response } => WitnessJson::Late {
                own,
                period_ns: period.as_ns(),
                deadline_ns: deadline.as_ns(),
                response_ns: response.map(Span::as_ns),
            },
            Witness::Demand { at, demand, supply } => WitnessJson::Demand {
                at_ns: at.as_ns(),
                demand_ns: demand.as_ns(),
                supply_ns: supply.as_ns(),
            },
            Witness::Held { free_in } => WitnessJson::Held { free_in_ns: free_in.as_ns() },
        }
    }
}

impl From<&PluginAnswer> for AnswerJson {
    fn from(answer: &PluginAnswer) -> AnswerJson {
        let mut json = AnswerJson {
            plugin: answer.name.as_str().to_owned(),
            verdict: "ok",
            cpu: None,
            charge_ppm: None,
            notes: Vec::new(),
            reason: None,
            field: None,
            asked: None,
            limit: None,
            fits: None,
            unit: None,
            witness: None,
            text: grant_text::said(answer),
        };
        match answer.verdict {
            PluginVerdict::Ok { cpu, charge, notes }
            | PluginVerdict::Partial { cpu, charge, notes } => {
                if matches!(answer.verdict, PluginVerdict::Partial { .. }) {
                    json.verdict = "partial";
                }
                json.cpu = cpu;
                json.charge_ppm = Some(grant_text::ppm(charge));
                json.notes = grant_text::note_names(notes);
            }
            PluginVerdict::No(no) => {
                json.verdict = "no";
                json.cpu = no.cpu;
                json.reason = Some(no.reason.stable_name());
                json.field = Some(no.field.stable_name());
                json.asked = Some(no.asked);
                json.limit = Some(no.limit);
                json.fits = Some(no.fits).filter(|&fits| fits > 0);
                json.unit = unit(no.field);
                json.witness = no.witness.map(WitnessJson::from);
            }
            PluginVerdict::Denied { code, field, asked, limit } => {
                json.verdict = "denied";
                json.reason = Some(code.stable_name());
                json.field = Some(field.stable_name());
                json.asked = Some(asked);
                json.limit = Some(limit);
                json.unit = unit(field);
            }
        }
        json
    }
}

/// Refusal with its numbers.
#[derive(Serialize, Debug)]
pub(crate) struct RefusalJson {
    code: &'static str,
    field: &'static str,
    asked: u64,
    limit: u64,
    unit: Option<&'static str>,
    errno: Option<i32>,
    index: u32,
    rule: Option<String>,
    answers: Vec<AnswerJson>,
    text: String,
}

impl From<&Refusal> for RefusalJson {
    fn from(refusal: &Refusal) -> RefusalJson {
        RefusalJson {
            code: refusal.code.stable_name(),
            field: refusal.field.stable_name(),
            asked: refusal.asked,
            limit: refusal.limit,
            unit: unit(refusal.field),
            errno: Some(refusal.errno).filter(|&errno| errno != 0),
            index: refusal.index,
            rule: refusal.rule.clone(),
            answers: refusal.answers.iter().map(AnswerJson::from).collect(),
            text: grant_text::refusal(refusal),
        }
    }
}

/// Plugin with its CPUs.
#[derive(Serialize, Debug)]
pub(crate) struct PluginJson {
    name: String,
    kind: String,
    cpus: String,
    priority_min: Option<u8>,
    priority_max: Option<u8>,
    specs: u32,
    out_of_service: bool,
    per_cpu: Vec<CpuJson>,
}

/// State of a plugin on one CPU.
#[derive(Serialize, Debug)]
pub(crate) struct CpuJson {
    cpu: u32,
    free_ppm: u64,
    used_ppm: u64,
    specs: u32,
}

impl PluginJson {
    /// Builds the JSON of a plugin with its state on each of its CPUs.
    pub(crate) fn new(plugin: &PluginInfo, cpus: &[talea_proto::message::CpuInfo]) -> PluginJson {
        let band = Some(plugin.band).filter(|&band| band != (0, 0));
        PluginJson {
            name: plugin.name.as_str().to_owned(),
            kind: plugin.kind.as_str().to_owned(),
            cpus: plugin.cpus.to_string(),
            priority_min: band.map(|(low, _)| low),
            priority_max: band.map(|(_, high)| high),
            specs: plugin.specs,
            out_of_service: plugin.out_of_service,
            per_cpu: cpus
                .iter()
                .map(|cpu| CpuJson {
                    cpu: cpu.cpu,
                    free_ppm: grant_text::ppm(cpu.free),
                    used_ppm: grant_text::ppm(cpu.used),
                    specs: cpu.specs,
                })
                .collect(),
        }
    }
}

/// Counters of the daemon.
#[derive(Serialize, Debug)]
pub(crate) struct StatusJson {
    instance: String,
    pid: u32,
    uptime_ns: u64,
    sessions: u32,
    specs: u32,
    attached: u32,
    requests: u64,
    refused: u64,
    adopted: u32,
    rules: u32,
    wakeups: u64,
    plugins: Vec<PluginJson>,
}

impl StatusJson {
    /// Builds the JSON of the daemon's counters with the daemon's plugins.
    pub(crate) fn new(status: &Status, plugins: Vec<PluginJson>) -> StatusJson {
        StatusJson {
            // As text: 64-bit numbers do not survive every JSON reader.
            instance: format!("{:016x}", status.instance),
            pid: status.pid,
            uptime_ns: status.uptime_ns,
            sessions: status.sessions,
            specs: status.specs,
            attached: status.attached,
            requests: status.requests,
            refused: status.refused,
            adopted: status.adopted,
            rules: status.rules,
            wakeups: status.wakeups,
            plugins,
        }
    }
}

fn list(cpus: &CpuSet) -> Option<String> {
    (!cpus.is_empty()).then(|| cpus.to_string())
}

fn unit(field: Field) -> Option<&'static str> {
    match field {
        Field::Period | Field::Runtime | Field::Desired | Field::Deadline => Some("ns"),
        Field::Utilization => Some("ppm"),
        _ => None,
    }
}
