//! Refusals, grants and attributes as sentences.
//!
//! One voice for all commands: what was asked, where the bound lies, what would fit. Every number comes from the
//! broker's answer; nothing is guessed here.

use crate::exit::all_denied;
use std::fmt::Write;
use talea_core::{Attr, Charge, Policy, Span};
use talea_proto::message::{But, Mechanism, Notes};
use talea_proto::refusal::{Reason, Said};
use talea_proto::{Answer, Code, Field, Granted, No, Refusal, Task};

/// The name of a request's part.
pub(crate) fn field(field: Field) -> &'static str {
    match field {
        Field::Request => "request",
        Field::Period => "period",
        Field::Runtime => "runtime",
        Field::Desired => "desired runtime",
        Field::Deadline => "deadline",
        Field::Priority => "priority",
        Field::Utilization => "utilisation",
        Field::IgnoreAdmission => "ignore-admission flag",
        Field::Plugin => "plugin",
        Field::Cpus => "CPU set",
        Field::Specs => "number of grants",
        Field::Sessions => "number of connections",
        Field::Owner => "owner",
        Field::Thread => "thread",
        Field::Levels => "number of priority levels",
        Field::Group => "number of tasks in the group",
        Field::Message => "message",
    }
}

/// A number in the unit of its field.
pub(crate) fn amount(field: Field, value: u64) -> String {
    match field {
        Field::Period | Field::Runtime | Field::Desired | Field::Deadline => Span::from_ns(value).to_string(),
        Field::Utilization => share(value),
        _ => value.to_string(),
    }
}

/// Millionths of a CPU as a percentage with two digits, to the nearest: the books round up by less than anybody sees.
pub(crate) fn share(ppm: u64) -> String {
    let hundredths = ppm.saturating_add(50) / 100;
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

/// A charge in millionths of a CPU, to the nearest.
pub(crate) fn ppm(charge: Charge) -> u64 {
    let whole = charge.bits().saturating_mul(1_000_000).saturating_add(1 << 63) >> 64;
    u64::try_from(whole).unwrap_or(u64::MAX)
}

/// A charge as a percentage of one CPU.
pub(crate) fn charge(charge: Charge) -> String {
    share(ppm(charge))
}

/// A plugin's "no", with what would have fitted.
pub(crate) fn no(no: &No) -> String {
    let name = field(no.field);
    let asked = amount(no.field, no.asked);
    let limit = amount(no.field, no.limit);
    let place = no.cpu.map(|cpu| format!(" on CPU {cpu}")).unwrap_or_default();
    let mut text = match no.reason {
        Reason::Missing => format!("needs a {name}"),
        Reason::OutOfRange if no.asked < no.limit => format!("{name} {asked} is too small; at least {limit}"),
        Reason::OutOfRange => format!("{name} {asked} is too large; at most {limit}"),
        Reason::Contradiction => {
            format!("{name} {asked} contradicts the rest of the request (bound {limit})")
        }
        Reason::NoRoom => format!("no room{place}: {name} {asked} asked, bound {limit}"),
        Reason::NoCpu => "none of its CPUs is acceptable to the request".to_owned(),
        Reason::NoLevel => format!("every one of its {limit} priority levels is taken"),
        Reason::WouldBreakOthers => {
            format!("would break a guarantee given to others{place}: {name} {asked} asked, bound {limit}")
        }
        Reason::Unsupported => "this machine cannot do what it needs; see talea doctor".to_owned(),
        Reason::OutOfService => "out of service; the daemon's log says why".to_owned(),
        Reason::Foreign => "its module said no".to_owned(),
    };
    if no.fits > 0 {
        let _ = write!(text, "; a {name} of {} would fit{place}", amount(no.field, no.fits));
    }
    text
}

/// One plugin's word in a line.
pub(crate) fn said(said: &Said) -> String {
    match said {
        Said::Ok { notes, .. } | Said::Partial { notes, .. } => notes_line(*notes),
        Said::No(reason) => no(reason),
        Said::Denied { code, field, asked, limit } => denied(*code, *field, *asked, *limit),
    }
}

/// One word for one plugin's answer.
pub(crate) fn verdict(said: &Said) -> &'static str {
    match said {
        Said::Ok { .. } => "yes",
        Said::Partial { .. } => "in part",
        Said::No(_) => "no",
        Said::Denied { .. } => "denied",
    }
}

fn denied(code: Code, part: Field, asked: u64, limit: u64) -> String {
    let name = field(part);
    match code {
        Code::NotAllowed | Code::RuleBound if part == Field::IgnoreAdmission => {
            "no rule lets you ignore admission tests (ignore_adm_test)".to_owned()
        }
        Code::RuleOmission if part == Field::Priority && asked > 0 => {
            let side = if asked < limit { "at least" } else { "at most" };
            format!(
                "a rule allows a priority of {side} {limit}, and the plugin hands out {asked} by itself (100 is the \
                 deadline class); name another plugin, or ask for allow_unbounded"
            )
        }
        Code::RuleBound => {
            let side = if asked < limit { "at least" } else { "at most" };
            format!("a rule allows a {name} of {side} {}; asked {}", amount(part, limit), amount(part, asked))
        }
        Code::RuleOmission => {
            format!(
                "a rule bounds the {name}, which the request leaves out; declare it, or ask for allow_unbounded"
            )
        }
        _ => "no rule lets you ask for this".to_owned(),
    }
}

/// A refusal, in one line or several.
pub(crate) fn refusal(refusal: &Refusal) -> String {
    let name = field(refusal.field);
    let asked = amount(refusal.field, refusal.asked);
    let limit = amount(refusal.field, refusal.limit);
    let mut text = match refusal.code {
        Code::NotAllowed if refusal.field == Field::IgnoreAdmission => {
            format!("denied: {}", denied(refusal.code, refusal.field, refusal.asked, refusal.limit))
        }
        Code::NotAllowed => {
            "denied: no access rule lets you ask for this; the administrator can add a [[rule]] for you"
                .to_owned()
        }
        Code::RuleBound | Code::RuleOmission => {
            format!("denied: {}", denied(refusal.code, refusal.field, refusal.asked, refusal.limit))
        }
        Code::NoPlugin if all_denied(refusal) => {
            "denied: the access rules keep you from every plugin".to_owned()
        }
        Code::NoPlugin => "refused: no plugin can serve this".to_owned(),
        Code::UnknownPlugin => "there is no plugin of that name; talea status lists them".to_owned(),
        Code::NoSuchSpec => "there is no such grant of yours; talea list shows them".to_owned(),
        Code::NotYours => "denied: the grant belongs to another user or connection".to_owned(),
        Code::NoSuchThread => "there is no such thread (any more)".to_owned(),
        Code::OthersThread => "denied: the thread belongs to another user".to_owned(),
        Code::ThreadTaken => "the thread is under another grant already; release that one first".to_owned(),
        Code::SpecTaken => "the grant has a thread already".to_owned(),
        Code::NotAttached => "the grant has no thread".to_owned(),
        Code::Kernel => kernel(refusal.errno),
        Code::Quota => format!("denied: your quota for the {name} is {limit} and {asked} are held"),
        Code::Malformed => format!("the {name} makes no sense: {asked}, where the bound is {limit}"),
        Code::Version => format!("the daemon speaks protocol version {limit}, this talea version {asked}"),
        Code::BadToken => "denied: the token is wrong".to_owned(),
        Code::NotRoot => "denied: only root may ask this".to_owned(),
        Code::BareTid => "the daemon lives in another PID namespace and needs a pidfd (Linux 6.9)".to_owned(),
        Code::Stopping => "the daemon is stopping; ask again when it is back".to_owned(),
        Code::Busy => "another request for this grant is under way; ask again".to_owned(),
    };
    if let Some(rule) = &refusal.rule {
        let _ = write!(text, " (rule {rule})");
    }
    let width = refusal.answers.iter().map(|answer| answer.name.as_str().len()).max().unwrap_or(0);
    for Answer { name, verdict, .. } in &refusal.answers {
        let _ = write!(text, "\n  {:width$}  {}", name.as_str(), said(verdict));
    }
    text
}

/// What the kernel's number means for a real-time policy, and who can change it.
pub(crate) fn kernel(errno: i32) -> String {
    match errno {
        libc::EPERM => {
            "the kernel refused (EPERM): a missing right, a control group without real-time runtime, or a \
                        deadline thread that may not use its whole root domain; talea doctor tells which"
                .to_owned()
        }
        libc::EBUSY => {
            "the kernel refused (EBUSY): its own admission test for SCHED_DEADLINE has no room left"
                .to_owned()
        }
        libc::EINVAL => "the kernel refused (EINVAL): parameters that it does not serve".to_owned(),
        libc::ESRCH => "the kernel refused (ESRCH): the thread has ended".to_owned(),
        other => format!("the kernel refused: {}", std::io::Error::from_raw_os_error(other)),
    }
}

const NOTES: [(Notes, &str, &str); 7] = [
    (Notes::NOT_PROVED, "not_proved", "not proved: a runtime is missing, here or beside it"),
    (Notes::ADMISSION_IGNORED, "admission_ignored", "the test failed and was ignored on request"),
    (Notes::BELOW_DESIRED, "below_desired", "less than the desired runtime"),
    (Notes::LEVEL_SHARED, "level_shared", "shares its kernel priority with others"),
    (Notes::PARTIAL, "partial", "in part: a recommended parameter is missing"),
    (Notes::CPU_WISH_IGNORED, "cpu_wish_ignored", "not on the preferred CPUs"),
    (Notes::BUDGET_NOT_ENFORCED, "budget_not_enforced", "the kernel does not enforce the runtime"),
];

/// Notes as stable names for programs.
pub(crate) fn note_names(notes: Notes) -> Vec<&'static str> {
    NOTES.iter().filter(|(bit, ..)| notes.contains(*bit)).map(|&(_, name, _)| name).collect()
}

/// What is not quite as asked although it was done.
pub(crate) fn but(but: But) -> String {
    match but {
        But::Asleep => {
            "the thread sleeps in another root domain; it gets its deadline when it wakes".to_owned()
        }
        But::Wider => "none of the thread's old CPUs can be used any more; it may use all".to_owned(),
        But::Demoted { errno } => format!(
            "the kernel no longer grants the policy that the thread had before ({}); it is an ordinary thread",
            std::io::Error::from_raw_os_error(errno)
        ),
    }
}

/// Notes as sentences, one each.
pub(crate) fn notes(notes: Notes) -> Vec<&'static str> {
    NOTES.iter().filter(|(bit, ..)| notes.contains(*bit)).map(|&(.., sentence)| sentence).collect()
}

fn notes_line(bits: Notes) -> String {
    notes(bits).join("; ")
}

/// How the kernel enforces a grant.
pub(crate) fn mechanism(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Fifo => "SCHED_FIFO on one CPU",
        Mechanism::Rr => "SCHED_RR on one CPU",
        Mechanism::DeadlinePinned => "SCHED_DEADLINE on one CPU (cpuset partition)",
        Mechanism::DeadlineGlobal => "SCHED_DEADLINE over its whole root domain",
    }
}

/// The stable name of a mechanism for programs.
pub(crate) fn mechanism_name(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Fifo => "fifo",
        Mechanism::Rr => "rr",
        Mechanism::DeadlinePinned => "deadline-pinned",
        Mechanism::DeadlineGlobal => "deadline-global",
    }
}

/// What was granted, in one line.
pub(crate) fn granted(granted: &Granted, plugin: &str, task: &Task) -> String {
    let mut text = format!("{plugin}, {}", mechanism(granted.mechanism));
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

/// A thread's policy as `ps` and `chrt` users know it: `FIFO 42`, `DL 2ms/10ms`.
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
        Policy::Deadline { runtime, deadline, period } => format!("DL {runtime}/{deadline}/{period}"),
    }
}

/// What a grant gave a thread.
pub(crate) fn attr(attr: &Attr) -> String {
    policy(&attr.policy)
}
