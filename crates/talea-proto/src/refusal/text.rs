//! Refusals as sentences: what was asked, where the bound lies, whose bound it is, what would fit.
//!
//! Every number comes from the refusal itself; nothing is guessed. An amount is written in the unit
//! of its field.

use super::{Answer, Code, Field, No, Reason, Refusal, Said, Witness};
use core::fmt;
use talea_core::Span;

impl Field {
    /// The name that people read.
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
        }
    }

    /// `value` in the unit of this field.
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
            Field::Utilization => share(self.value).fmt(f),
            _ => self.value.fmt(f),
        }
    }
}

/// Millionths of a CPU as a percentage, to the nearest hundredth: charges are rounded up in their
/// last bit, and a fifth of a CPU should still read as 20.00%.
fn share(millionths: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let hundredths = millionths.saturating_add(50) / 100;
        write!(f, "{}.{:02}% of a CPU", hundredths / 100, hundredths % 100)
    })
}

/// `asked` against a bound that lies above or below it.
fn bound(field: Field, asked: u64, limit: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let side = if asked < limit { "at least" } else { "at most" };
        write!(f, "{side} {}", field.amount(limit))
    })
}

/// What a rule says; `rule` is where it was written, if that is known.
fn denial(
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
                write!(f, "{source} does not let you ignore admission tests")
            }
            (Code::RuleBound, _) => write!(
                f,
                "a {name} of {} was asked and {source} allows {}",
                field.amount(asked),
                bound(field, asked, limit)
            ),
            // Declaring one would not help: the plugin does not look at it.
            (Code::RuleOmission, Field::Priority) if asked > 0 => write!(
                f,
                "the plugin hands out a priority of {asked} by itself and {source} allows {} (100 is the deadline \
                 class); name another plugin, or ask the administrator for allow_unbounded",
                bound(field, asked, limit)
            ),
            (Code::RuleOmission, _) => write!(
                f,
                "the request declares no {name}, which {source} bounds to {}; declare it within the bound, or ask \
                 the administrator for allow_unbounded",
                field.amount(limit)
            ),
            (_, Field::IgnoreAdmission) => {
                write!(f, "no access rule lets you ignore admission tests (ignore_adm_test)")
            }
            _ => write!(
                f,
                "no access rule lets you ask for this; the administrator can add a [[rule]] for you"
            ),
        }
    })
}

impl Refusal {
    /// The refusal as a whole, without what each plugin said.
    pub fn head(&self) -> impl fmt::Display {
        fmt::from_fn(|f| self.write_head(f))
    }

    /// Whether access rules keep the asker from every plugin, so that none was even asked.
    pub fn is_denied_everywhere(&self) -> bool {
        let denied = |answer: &Answer| matches!(answer.verdict, Said::Denied { .. });
        !self.answers.is_empty() && self.answers.iter().all(denied)
    }

    fn write_head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { code, field, asked, limit, .. } = *self;
        let name = field.name();
        let (amount, bound_amount) = (field.amount(asked), field.amount(limit));
        match code {
            Code::NotAllowed | Code::RuleBound | Code::RuleOmission => {
                write!(f, "Not allowed: {}.", denial(code, field, asked, limit, self.rule.as_deref()))
            }
            Code::NoPlugin if self.is_denied_everywhere() => {
                f.write_str("Not allowed: the access rules keep you from every plugin.")
            }
            Code::NoPlugin => f.write_str("No plugin can serve the request."),
            Code::UnknownPlugin => f.write_str("There is no plugin of that name; `talea status` lists them."),
            Code::NoSuchSpec => f.write_str("There is no such grant of yours; `talea list` shows them."),
            Code::NotYours => f.write_str("The grant belongs to another user or connection."),
            Code::NoSuchThread => f.write_str("There is no such thread, or it has ended."),
            Code::OthersThread => {
                f.write_str("The thread belongs to another user; only your own threads can be attached.")
            }
            Code::ThreadTaken => f.write_str("The thread is under another grant already; detach it there first."),
            Code::SpecTaken => f.write_str("The grant has a thread already; detach that one first."),
            Code::NotAttached => f.write_str("The grant has no thread."),
            Code::Kernel => write!(f, "The kernel refused with error {}; {}.", self.errno, remedy(self.errno)),
            Code::Quota => write!(
                f,
                "The quota for the {name} is exhausted: this would be {amount}, allowed are {bound_amount}; give something back first."
            ),
            Code::Malformed => malformed(f, self),
            Code::Version => write!(
                f,
                "No common protocol version: you speak {asked}, the daemon speaks {limit}; update the older one."
            ),
            Code::BadToken => f.write_str("The token is not the one that the grant was created with."),
            Code::NotRoot => f.write_str("Only root may ask this."),
            Code::BareTid => f.write_str(
                "To the daemon this number names no thread of your process (another one, or another PID namespace); pass a \
                 pidfd (Linux 6.9).",
            ),
            Code::Stopping => f.write_str("The daemon is stopping; ask again when it is back."),
            Code::Busy => f.write_str("Another request for this grant is under way; ask again when it is answered."),
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
            write!(f, "The message can't be understood ({asked} where {limit} was expected).")
        }
        Field::Request => write!(f, "The request makes no sense ({asked}, known {limit})."),
        Field::Plugin => f.write_str("The plugin name must have 1 to 31 bytes without zeros."),
        Field::Cpus => {
            write!(f, "The CPU set names no CPU of this machine; the highest is {limit}.")
        }
        _ => write!(
            f,
            "The {name} makes no sense: {} was asked, and it must be {}.",
            field.amount(asked),
            bound(field, asked, limit)
        ),
    }?;
    if index > 0 {
        write!(f, " It is about task {index} of the group, counted from 0.")
    } else {
        Ok(())
    }
}

/// What the kernel's most frequent refusals mean here.
fn remedy(errno: i32) -> &'static str {
    match errno {
        1 => {
            "EPERM: a right is missing, the control group has no real-time runtime, or a deadline thread may not use its whole root domain; `talea doctor` says which"
        }
        3 => "ESRCH: the thread has ended",
        11 => {
            "EAGAIN: the thread has run for longer than its last grant let it, and must pay first; ask again"
        }
        16 => "EBUSY: the kernel's own admission test found no bandwidth left",
        22 => "EINVAL: this kernel does not take such parameters",
        _ => "`talea doctor` says what stands in the way",
    }
}

impl fmt::Display for Answer {
    /// As a sentence that starts with the plugin's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plugin {}: {}.", self.name, self.verdict)
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |cpu: Option<u32>| {
            fmt::from_fn(move |f| match cpu {
                Some(cpu) => write!(f, "on CPU {cpu}"),
                None => f.write_str("over its whole domain"),
            })
        };
        match self {
            Said::Ok { cpu, charge, .. } => {
                write!(f, "yes, {} for {}", place(*cpu), share(charge.ppm()))
            }
            Said::Partial { cpu, charge, .. } => {
                write!(
                    f,
                    "in part, {} for {}; a recommended parameter is missing",
                    place(*cpu),
                    share(charge.ppm())
                )
            }
            Said::No(no) => no.fmt(f),
            Said::Denied { code, field, asked, limit } => {
                denial(*code, *field, *asked, *limit, None).fmt(f)
            }
        }
    }
}

impl fmt::Display for No {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let No { reason, field, cpu, asked, limit, fits, witness } = *self;
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
            Reason::Missing => write!(f, "it needs a {name} and the request declares none"),
            Reason::OutOfRange => {
                write!(
                    f,
                    "a {name} of {amount} was asked and it can serve {}",
                    bound(field, asked, limit)
                )
            }
            Reason::Contradiction => write!(
                f,
                "a {name} of {amount} contradicts the rest of the request, with which it must be {}",
                bound(field, asked, limit)
            ),
            Reason::NoRoom => {
                write!(f, "no room{place}: a {name} of {amount} was asked{why}")
            }
            Reason::NoCpu => f.write_str("none of its CPUs is acceptable to the request"),
            Reason::NoLevel => write!(f, "every one of its {limit} priority levels is taken"),
            Reason::WouldBreakOthers => write!(
                f,
                "it would break guarantees that others hold{place}: a {name} of {amount} was asked{why}"
            ),
            Reason::Unsupported => f.write_str(
                "this machine can't do what it needs; the daemon's log and `talea doctor` say what",
            ),
            Reason::OutOfService => f.write_str("it is out of service; the daemon's log says why"),
            Reason::Foreign => f.write_str("its module said no and gives no reason"),
        }?;
        if fits > 0 { write!(f, "; a {name} of {} would fit", field.amount(fits)) } else { Ok(()) }
    }
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Witness::Late { own, period, deadline, response } => {
                if own {
                    f.write_str("this task could end ")?;
                } else {
                    write!(f, "the task with a period of {period} there could end ")?;
                }
                match response {
                    Some(response) => write!(f, "{response} after its release and has {deadline}"),
                    None => write!(f, "ever later after its release and has {deadline}"),
                }
            }
            Witness::Demand { at, demand, supply } => {
                let (demand, supply) =
                    (Span::from_ns(demand.as_ns()), Span::from_ns(supply.as_ns()));
                write!(f, "within {at} there could be {demand} due and there are {supply}")
            }
        }
    }
}

impl core::error::Error for Refusal {}
