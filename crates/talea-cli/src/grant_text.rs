//! Sentences for grants and attributes, and the layout of refusals. The sentences of refusals are
//! in `talea-proto`.
//!
//! All commands use the same form: requested value, bound, value that would fit. Every number comes
//! from the broker's answer.

use std::fmt::Write;
use talea_core::{Attr, Charge, CpuSet, Policy};
use talea_proto::message::{Caveat, DetachCause, Mechanism, Notes};
use talea_proto::refusal::PluginVerdict;
use talea_proto::{Granted, PluginAnswer, Refusal, Task};

/// Formats millionths of a CPU as a percentage with two digits, rounded to the nearest. The
/// ledger's rounding is below this precision.
pub(crate) fn share(ppm: u64) -> String {
    let hundredths = ppm.saturating_add(50) / 100;
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

/// Converts a charge to millionths of a CPU, rounded to the nearest.
pub(crate) fn ppm(charge: Charge) -> u64 {
    let whole = charge.bits().saturating_mul(1_000_000).saturating_add(1 << 63) >> 64;
    u64::try_from(whole).unwrap_or(u64::MAX)
}

/// Formats a charge as a percentage of one CPU.
pub(crate) fn charge(charge: Charge) -> String {
    share(ppm(charge))
}

/// Formats one plugin's answer in a line.
pub(crate) fn said(answer: &PluginAnswer) -> String {
    match &answer.verdict {
        PluginVerdict::Ok { notes, .. } | PluginVerdict::Partial { notes, .. } => {
            notes_line(*notes)
        }
        PluginVerdict::No(_) | PluginVerdict::Denied { .. } => answer.said().to_string(),
    }
}

/// Returns one word for a plugin's answer.
pub(crate) fn verdict(said: &PluginVerdict) -> &'static str {
    match said {
        PluginVerdict::Ok { .. } => "yes",
        PluginVerdict::Partial { .. } => "in part",
        PluginVerdict::No(_) => "no",
        PluginVerdict::Denied { .. } => "denied",
    }
}

/// Formats a refusal in one or several lines.
pub(crate) fn refusal(refusal: &Refusal) -> String {
    let mut text = refusal.head().to_string();
    let width = refusal.answers.iter().map(|answer| answer.name.as_str().len()).max().unwrap_or(0);
    for answer in &refusal.answers {
        let _ = write!(text, "\n  {:width$}  {}", answer.name.as_str(), said(answer));
    }
    text
}

const NOTES: [(Notes, &str, &str); 12] = [
    (Notes::NOT_PROVED, "not_proved", "not proved: a runtime is missing, in this or another grant"),
    (Notes::ADMISSION_IGNORED, "admission_ignored", "the test failed and was ignored on request"),
    (Notes::BELOW_DESIRED, "below_desired", "less than the desired runtime"),
    (Notes::LEVEL_SHARED, "level_shared", "shares its kernel priority with others"),
    (Notes::PARTIAL, "partial", "in part: a recommended parameter is missing"),
    (Notes::PREFERRED_CPUS_IGNORED, "preferred_cpus_ignored", "not on the preferred CPUs"),
    (Notes::BUDGET_NOT_ENFORCED, "budget_not_enforced", "the runtime is not enforced"),
    (Notes::COMMON_LEVELS, "common_levels", "one priority order for all CPUs of the plugin"),
    (
        Notes::UNGRANTED_ABOVE,
        "ungranted_above",
        "real-time threads without a grant have a higher priority on this CPU",
    ),
    (Notes::UNLIMITED, "unlimited", "unlimited: no runtime, period or rule limits its CPU time"),
    (
        Notes::PENDING_WAKEUP,
        "pending_wakeup",
        "the thread sleeps in another root domain; it gets its deadline when it wakes",
    ),
    (Notes::FRONT_END, "front_end", "a front end (D-Bus) made the request"),
];

/// Returns the notes as stable names for JSON.
pub(crate) fn note_names(notes: Notes) -> Vec<&'static str> {
    NOTES.iter().filter(|(bit, ..)| notes.contains(*bit)).map(|&(_, name, _)| name).collect()
}

/// Describes the caveat of an operation that succeeded in part.
pub(crate) fn caveat(caveat: Caveat) -> String {
    match caveat {
        Caveat::PendingWakeup => {
            "the thread sleeps in another root domain; it gets its deadline when it wakes"
                .to_owned()
        }
        Caveat::AffinityWidened => {
            "none of the thread's old CPUs can be used any more; it may use all".to_owned()
        }
        Caveat::PolicyLost { errno } => format!(
            "the kernel no longer grants the policy that the thread had before ({}); it is an ordinary thread",
            std::io::Error::from_raw_os_error(errno)
        ),
    }
}

/// Returns the notes as sentences.
pub(crate) fn notes(notes: Notes) -> Vec<&'static str> {
    NOTES.iter().filter(|(bit, ..)| notes.contains(*bit)).map(|&(.., sentence)| sentence).collect()
}

fn notes_line(bits: Notes) -> String {
    notes(bits).join("; ")
}

/// Describes how the kernel enforces a grant on `cpu`, or else on several CPUs.
fn mechanism(mechanism: Mechanism, cpu: Option<u32>) -> &'static str {
    match mechanism {
        Mechanism::Fifo if cpu.is_none() => "SCHED_FIFO on all CPUs of the plugin",
        Mechanism::Rr if cpu.is_none() => "SCHED_RR on all CPUs of the plugin",
        Mechanism::Fifo => "SCHED_FIFO on one CPU",
        Mechanism::Rr => "SCHED_RR on one CPU",
        Mechanism::DeadlinePinned => "SCHED_DEADLINE on one CPU (cpuset partition)",
        Mechanism::DeadlineGlobal => "SCHED_DEADLINE over its whole root domain",
    }
}

/// Returns the stable name of a mechanism for JSON.
pub(crate) fn mechanism_name(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Fifo => "fifo",
        Mechanism::Rr => "rr",
        Mechanism::DeadlinePinned => "deadline-pinned",
        Mechanism::DeadlineGlobal => "deadline-global",
    }
}

/// Describes a grant in one line.
pub(crate) fn granted(granted: &Granted, plugin: &str, task: &Task) -> String {
    let mut text = format!("{plugin}, {}", mechanism(granted.mechanism, granted.cpu));
    if let Some(cpu) = granted.cpu {
        let _ = write!(text, ", CPU {cpu}");
    }
    if granted.priority > 0 {
        let _ = write!(text, ", priority {}", granted.priority);
    }
    if let Some(runtime) = granted.runtime {
        let _ = write!(text, ", {runtime}");
        if let Some(period) = task.params.period {
            let _ = write!(text, " every {period}");
        }
        if let Some(deadline) = task.params.deadline {
            let _ = write!(text, " within {deadline}");
        }
    } else if let Some(period) = task.params.period {
        let _ = write!(text, ", every {period}");
    }
    if granted.charge > Charge::ZERO {
        let _ = write!(text, ", {} of a CPU", charge(granted.charge));
    }
    text
}

/// Formats a thread's policy in the style of `ps` and `chrt`: `FIFO 42`, `DL 2ms/10ms`.
pub(crate) fn policy(policy: &Policy) -> String {
    match policy {
        Policy::Other { nice: 0 } => "OTHER".to_owned(),
        Policy::Other { nice } => format!("OTHER nice {nice}"),
        Policy::Batch { .. } => "BATCH".to_owned(),
        Policy::Idle => "IDLE".to_owned(),
        Policy::Fifo(priority) => format!("FIFO {}", priority.0),
        Policy::Rr(priority) => format!("RR {}", priority.0),
        Policy::Deadline { runtime, deadline, period } if deadline == period => {
            format!("DL {runtime}/{period}")
        }
        Policy::Deadline { runtime, deadline, period } => {
            format!("DL {runtime}/{deadline}/{period}")
        }
    }
}

/// Formats the attributes that a grant set.
pub(crate) fn attr(attr: &Attr) -> String {
    policy(&attr.policy)
}

/// Formats CPUs as a short text.
pub(crate) fn cpus(cpus: &CpuSet) -> String {
    format!("{} {cpus}", if cpus.len() == 1 { "CPU" } else { "CPUs" })
}

/// Returns the reason why the daemon has detached a thread.
pub(crate) fn detached(cause: DetachCause) -> &'static str {
    match cause {
        DetachCause::Credentials => "detached: credentials changed",
        DetachCause::Affinity => "detached: place changed",
        DetachCause::Policy => "detached: policy changed",
        DetachCause::Starvation => "detached: CPU starved",
        DetachCause::Offline => "detached: CPU off-line",
    }
}
