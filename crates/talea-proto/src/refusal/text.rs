//! Refusals as sentences: the requested value, the limit, the origin of the limit, and a value that
//! would fit.
//!
//! Every number comes from the refusal itself. An amount is written in the unit of its field.

use super::{
    Code, Field, PluginAnswer, PluginVerdict, Refusal, Rejection, RejectionReason, Witness,
    remedies,
};
use core::fmt;
use talea_core::Span;

impl Field {
    /// Returns the field's name for users.
    pub fn name(self) -> &'static str {
        match self {
            Field::Request => "request",
            Field::Period => "period",
            Field::Runtime => "runtime",
            Field::Desired => "desired runtime",
            Field::Deadline => "deadline",
            Field::Priority => "priority",
            Field::Utilization => "utilization",
            Field::IgnoreAdmission => "ignore-admission flag",
            Field::Plugin => "plugin",
            Field::Cpus => "CPU set",
            Field::Specs => "number of grants",
            Field::Sessions => "number of connections",
            Field::Owner => "owner",
            Field::Thread => "thread",
            Field::Levels => "number of priority levels",
            Field::Group => "number of tasks in a group",
            Field::Message => "message",
            Field::Nice => "nice value",
        }
    }

    /// Returns `value` in the unit of this field.
    pub fn amount(self, value: u64) -> Amount {
        Amount { field: self, value }
    }
}

/// A number with the unit of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    field: Field,
    value: u64,
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field {
            Field::Period | Field::Runtime | Field::Desired | Field::Deadline => {
                Span::from_ns(self.value).fmt(f)
            }
            Field::Utilization => cpu_share(self.value).fmt(f),
            Field::Nice => (20 - i128::from(self.value)).fmt(f),
            _ => self.value.fmt(f),
        }
    }
}

/// Formats millionths of a CPU as a percentage, rounded to the nearest hundredth: charges are
/// rounded up in their last bit, and a fifth of a CPU must still read as 20.00%.
fn cpu_share(millionths: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let hundredths = millionths.saturating_add(50) / 100;
        write!(f, "{}.{:02}% of a CPU", hundredths / 100, hundredths % 100)
    })
}

/// Formats the limit as a lower or an upper bound, depending on `asked`.
fn bound_text(field: Field, asked: u64, limit: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        // The lower nice value has the larger number.
        let is_least = (asked < limit) != (field == Field::Nice);
        let side = if is_least { "at least" } else { "at most" };
        write!(f, "{side} {}", field.amount(limit))
    })
}

/// Describes the denial by an access rule; `rule` is the rule's location, if known.
fn denial_text(
    code: Code,
    field: Field,
    asked: u64,
    limit: u64,
    rule: Option<&str>,
) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let name = field.name();
        let source = fmt::from_fn(move |f| match rule {
            Some(rule) => write!(f, "the access rule at {rule}"),
            None => f.write_str("an access rule"),
        });
        match (code, field) {
            (Code::RuleBound, Field::IgnoreAdmission) => {
                write!(f, "{source} forbids you to ignore admission tests")
            }
            (Code::RuleBound, _) => write!(
                f,
                "a {name} of {} was requested and {source} allows {}",
                field.amount(asked),
                bound_text(field, asked, limit)
            ),
            // Declaring a priority would not help: the plugin ignores it.
            (Code::RuleOmission, Field::Priority) if asked > 0 => write!(
                f,
                "the plugin assigns priority {asked} by itself and {source} allows {} (100 is the deadline \
                 class); name another plugin, or ask the administrator for allow_unbounded",
                bound_text(field, asked, limit)
            ),
            (Code::RuleOmission, _) => write!(
                f,
                "the request declares no {name}, which {source} bounds to {}; declare it within the bound, or ask \
                 the administrator for allow_unbounded",
                field.amount(limit)
            ),
            (_, Field::Nice) => write!(f, "no access rule allows you nice values (min_nice)"),
            (_, Field::IgnoreAdmission) => {
                write!(f, "no access rule allows you to ignore admission tests (ignore_adm_test)")
            }
            _ => write!(
                f,
                "no access rule allows this request; the administrator can add a [[rule]] for you"
            ),
        }
    })
}

impl Refusal {
    /// Returns the refusal as text, without the answers of the plugins.
    pub fn head(&self) -> impl fmt::Display {
        fmt::from_fn(|f| self.write_head(f))
    }

    /// Whether access rules deny every plugin to the client, so that no plugin was asked.
    pub fn is_denied_everywhere(&self) -> bool {
        let denied = |answer: &PluginAnswer| matches!(answer.verdict, PluginVerdict::Denied { .. });
        !self.answers.is_empty() && self.answers.iter().all(denied)
    }

    fn write_head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { code, field, asked, limit, .. } = *self;
        let name = field.name();
        let (amount, bound_amount) = (field.amount(asked), field.amount(limit));
        match code {
            Code::NotAllowed | Code::RuleBound | Code::RuleOmission => {
                write!(f, "Not allowed: {}.", denial_text(code, field, asked, limit, self.rule.as_deref()))
            }
            Code::NoPlugin if self.is_denied_everywhere() => {
                f.write_str("Not allowed: the access rules deny you every plugin.")
            }
            Code::NoPlugin => f.write_str("No plugin can serve the request."),
            Code::UnknownPlugin => f.write_str("No plugin has this name; `talea status` lists the plugins."),
            Code::NoSuchSpec => f.write_str("You have no such grant; `talea list` shows your grants."),
            Code::NotOwner => f.write_str("The grant belongs to another user or connection."),
            Code::NoSuchThread => f.write_str("The thread does not exist or has ended."),
            Code::ForeignThread => {
                f.write_str("The thread belongs to another user; only your own threads can be attached.")
            }
            Code::ThreadTaken => f.write_str("The thread is already attached to another grant; detach it there first."),
            Code::SpecTaken => f.write_str("The grant already has a thread; detach that thread first."),
            Code::NotAttached => f.write_str("The grant has no thread."),
            Code::Kernel => write!(f, "The kernel refused with error {}; {}.", self.errno, remedy(self.errno)),
            Code::Quota => write!(
                f,
                "The quota for the {name} is exhausted: this request needs {amount}, the limit is {bound_amount}; release something first."
            ),
            Code::Malformed => malformed(f, self),
            Code::Version => write!(
                f,
                "No common protocol version: you speak {asked}, the daemon speaks {limit}; update the older one."
            ),
            Code::BadToken => f.write_str("The token does not match the token returned when the grant was created."),
            Code::NotRoot => f.write_str("This request is reserved for root."),
            Code::TidNotAccepted => f.write_str(
                "In the daemon's PID namespace this thread id is not a thread of your process; pass a \
                 pidfd (Linux 6.9).",
            ),
            Code::Stopping => f.write_str("The daemon is stopping; repeat the request after its restart."),
            Code::Busy => f.write_str("Another request for this grant is in progress; repeat the request when it is complete."),
            Code::NotRecorded => write!(
                f,
                "The daemon's state file cannot grow (error {}), so the grant would not survive the daemon; make room in the \
                 daemon's state directory.",
                self.errno
            ),
            Code::Starvation => write!(
                f,
                "Threads of your grants have left ordinary threads no time on this CPU; repeat the request in {}, and declare a \
                 runtime and a period for threads that compute without a pause.",
                Span::from_ns(limit)
            ),
            Code::NotFrontEnd => write!(
                f,
                "User {asked} may not act for user {limit}: list it in `front_ends` of the daemon's configuration; no front end \
                 may act for root."
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_head(f)?;
        for answer in &self.answers {
            write!(f, " {answer}")?;
        }
        Ok(())
    }
}

fn malformed(f: &mut fmt::Formatter<'_>, refusal: &Refusal) -> fmt::Result {
    let Refusal { field, asked, limit, index, .. } = *refusal;
    let name = field.name();
    match field {
        Field::Message => {
            write!(f, "The message cannot be decoded ({asked} where {limit} was expected).")
        }
        Field::Request => write!(f, "The request is invalid: flags {asked}, known flags {limit}."),
        Field::Plugin => {
            f.write_str("The plugin name is invalid; it must have 1 to 31 bytes without zeros.")
        }
        Field::Cpus => {
            write!(f, "The CPU set names no CPU of this machine; the highest is {limit}.")
        }
        _ => write!(
            f,
            "The {name} is invalid: {} was requested, and it must be {}.",
            field.amount(asked),
            bound_text(field, asked, limit)
        ),
    }?;
    if index > 0 {
        write!(f, " This concerns task {index} of the group, counted from 0.")
    } else {
        Ok(())
    }
}

/// Explains the most frequent error numbers of the kernel.
fn remedy(errno: i32) -> &'static str {
    match errno {
        1 => {
            "EPERM: a capability is missing, the control group has no real-time runtime, or a \
             deadline thread may not use its whole root domain; `talea doctor` reports the cause"
        }
        3 => "ESRCH: the thread has ended",
        11 => {
            "EAGAIN: the thread has overrun the budget of its last grant; repeat the request later"
        }
        16 => "EBUSY: the kernel's admission test found no free bandwidth",
        22 => "EINVAL: this kernel does not accept these parameters",
        _ => "`talea doctor` reports missing prerequisites",
    }
}

impl PluginAnswer {
    /// Returns the answer as text without the plugin's name: the verdict, or the reason that the
    /// plugin gives.
    pub fn said(&self) -> impl fmt::Display {
        fmt::from_fn(|f| match self.text.as_str() {
            "" => write!(f, "{}", self.verdict),
            text => write!(f, "its module rejected the task: \"{text}\""),
        })
    }
}

impl fmt::Display for PluginAnswer {
    /// Formats the answer as a sentence that starts with the plugin's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plugin {}: {}.", self.name, self.said())
    }
}

impl fmt::Display for PluginVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |cpu: Option<u32>| {
            fmt::from_fn(move |f| match cpu {
                Some(cpu) => write!(f, "on CPU {cpu}"),
                None => f.write_str("on all its CPUs"),
            })
        };
        match self {
            PluginVerdict::Ok { cpu, charge, .. } => {
                write!(f, "yes, {} for {}", place(*cpu), cpu_share(charge.ppm()))
            }
            PluginVerdict::Partial { cpu, charge, .. } => {
                write!(
                    f,
                    "in part, {} for {}; a recommended parameter is missing",
                    place(*cpu),
                    cpu_share(charge.ppm())
                )
            }
            PluginVerdict::No(no) => no.fmt(f),
            PluginVerdict::Denied { code, field, asked, limit } => {
                denial_text(*code, *field, *asked, *limit, None).fmt(f)
            }
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rejection { reason, field, cpu, asked, limit, fits, witness } = *self;
        let name = field.name();
        let (amount, bound_amount) = (field.amount(asked), field.amount(limit));
        let place = fmt::from_fn(|f| match cpu {
            Some(cpu) => write!(f, " on CPU {cpu}"),
            None => Ok(()),
        });
        let why = fmt::from_fn(|f| match witness {
            Some(witness) => write!(f, "; {witness}"),
            None => write!(f, ", the bound is {bound_amount}"),
        });
        match reason {
            RejectionReason::Missing => {
                write!(f, "the plugin needs a {name} and the request declares none")
            }
            RejectionReason::OutOfRange => {
                write!(
                    f,
                    "a {name} of {amount} was requested and the plugin accepts {}",
                    bound_text(field, asked, limit)
                )
            }
            RejectionReason::Contradiction => write!(
                f,
                "a {name} of {amount} contradicts the rest of the request, which requires {}",
                bound_text(field, asked, limit)
            ),
            RejectionReason::NoRoom => {
                write!(f, "no room{place}: a {name} of {amount} was requested{why}")
            }
            RejectionReason::NoCpu => f.write_str("the request accepts none of the plugin's CPUs"),
            RejectionReason::NoLevel => {
                write!(f, "all {limit} priority levels of the plugin are in use")
            }
            RejectionReason::WouldBreakOthers => write!(
                f,
                "the task would break guarantees of other tasks{place}: a {name} of {amount} was requested{why}"
            ),
            RejectionReason::Unsupported => f.write_str(
                "this machine lacks a feature that the plugin needs; the daemon's log and `talea \
             doctor` name it",
            ),
            RejectionReason::OutOfService => {
                f.write_str("the plugin is out of service; the daemon's log has the reason")
            }
            RejectionReason::Foreign => {
                f.write_str("its module rejected the task and gave no reason")
            }
            RejectionReason::OutsideMask => return self.write_outside_mask(f),
            RejectionReason::NoRealTimeGroup => write!(
                f,
                "the thread's control group has no real-time runtime: {}; remedy: {}",
                remedies::GROUP,
                remedies::GROUP_REMEDY
            ),
            RejectionReason::TimeLimit => write!(
                f,
                "the thread's RLIMIT_RTTIME is {}{}: {}; remedy: {}",
                Span::from_ns(limit),
                fmt::from_fn(|f| match asked {
                    0 => Ok(()),
                    asked => write!(f, ", less than its runtime of {}", Span::from_ns(asked)),
                }),
                remedies::TIME_LIMIT,
                remedies::TIME_LIMIT_REMEDY
            ),
            RejectionReason::Reserved => write!(
                f,
                "an executor (`talea execute`, process {asked}) has reserved CPU {limit}; use other \
                 CPUs, or wait for its end"
            ),
            RejectionReason::Offline => {
                write!(f, "CPU {limit} is off-line; use other CPUs, or bring it back")
            }
            RejectionReason::NoRoomBesideUngranted => write!(
                f,
                "no room{place} beside deadline threads without a grant: a {name} of {amount} was requested{why}"
            ),
        }?;
        if fits > 0 { write!(f, "; a {name} of {} would fit", field.amount(fits)) } else { Ok(()) }
    }
}

impl Rejection {
    fn write_outside_mask(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((cpus, more)) = self.mask() else {
            return f.write_str("the thread may use none of the plugin's CPUs");
        };
        write!(f, "the thread may use only CPUs {cpus}")?;
        if more > 0 {
            write!(f, " and {more} more")?;
        }
        f.write_str(
            " (its affinity or cpuset), which the plugin cannot serve; change it with `taskset -pc`",
        )
    }
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Witness::DeadlineMiss { own, period, deadline, response } => {
                if own {
                    f.write_str("this task could complete ")?;
                } else {
                    write!(f, "the task with a period of {period} could complete ")?;
                }
                match response {
                    Some(response) => {
                        write!(f, "{response} after its release; its deadline is {deadline}")
                    }
                    None => {
                        write!(f, "without bound after its release; its deadline is {deadline}")
                    }
                }
            }
            Witness::Demand { at, demand, supply } => {
                let (demand, supply) =
                    (Span::from_ns(demand.as_ns()), Span::from_ns(supply.as_ns()));
                write!(f, "within {at} the demand could be {demand} and the supply is {supply}")
            }
            Witness::Held { free_in } => write!(
                f,
                "the kernel still counts the bandwidth of an ended grant; repeat the request in {free_in}"
            ),
        }
    }
}

impl core::error::Error for Refusal {}
