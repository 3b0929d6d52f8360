//! The numbers and the stable words of codes, fields and reasons.
//!
//! Both are promises to programs: a word or a number, once given, keeps its meaning.

use super::{Code, Field, Reason};

impl Code {
    /// All of them, by number.
    pub const ALL: [Code; 21] = [
        Code::NotAllowed,
        Code::RuleBound,
        Code::RuleOmission,
        Code::NoPlugin,
        Code::UnknownPlugin,
        Code::NoSuchSpec,
        Code::NotYours,
        Code::NoSuchThread,
        Code::OthersThread,
        Code::ThreadTaken,
        Code::SpecTaken,
        Code::NotAttached,
        Code::Kernel,
        Code::Quota,
        Code::Malformed,
        Code::Version,
        Code::BadToken,
        Code::NotRoot,
        Code::BareTid,
        Code::Stopping,
        Code::Busy,
    ];

    /// The code with this number on the wire and in C.
    pub fn from_number(number: u16) -> Option<Code> {
        Code::ALL.into_iter().find(|known| *known as u16 == number)
    }

    /// A stable word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Code::NotAllowed => "not-allowed",
            Code::RuleBound => "rule-bound",
            Code::RuleOmission => "rule-omission",
            Code::NoPlugin => "no-plugin",
            Code::UnknownPlugin => "unknown-plugin",
            Code::NoSuchSpec => "no-such-spec",
            Code::NotYours => "not-yours",
            Code::NoSuchThread => "no-such-thread",
            Code::OthersThread => "others-thread",
            Code::ThreadTaken => "thread-taken",
            Code::SpecTaken => "spec-taken",
            Code::NotAttached => "not-attached",
            Code::Kernel => "kernel",
            Code::Quota => "quota",
            Code::Malformed => "malformed",
            Code::Version => "version",
            Code::BadToken => "bad-token",
            Code::NotRoot => "not-root",
            Code::BareTid => "bare-tid",
            Code::Stopping => "stopping",
            Code::Busy => "busy",
        }
    }
}

impl Field {
    /// All of them, by number.
    pub const ALL: [Field; 17] = [
        Field::Request,
        Field::Period,
        Field::Runtime,
        Field::Desired,
        Field::Deadline,
        Field::Priority,
        Field::Utilization,
        Field::IgnoreAdmission,
        Field::Plugin,
        Field::Cpus,
        Field::Specs,
        Field::Sessions,
        Field::Owner,
        Field::Thread,
        Field::Levels,
        Field::Group,
        Field::Message,
    ];

    /// The field with this number on the wire and in C.
    pub fn from_number(number: u16) -> Option<Field> {
        Field::ALL.into_iter().find(|known| *known as u16 == number)
    }

    /// A stable word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Field::Request => "request",
            Field::Period => "period",
            Field::Runtime => "runtime",
            Field::Desired => "desired",
            Field::Deadline => "deadline",
            Field::Priority => "priority",
            Field::Utilization => "utilization",
            Field::IgnoreAdmission => "ignore-admission",
            Field::Plugin => "plugin",
            Field::Cpus => "cpus",
            Field::Specs => "specs",
            Field::Sessions => "sessions",
            Field::Owner => "owner",
            Field::Thread => "thread",
            Field::Levels => "levels",
            Field::Group => "group",
            Field::Message => "message",
        }
    }
}

impl Reason {
    /// All of them, by number.
    pub const ALL: [Reason; 10] = [
        Reason::Missing,
        Reason::OutOfRange,
        Reason::Contradiction,
        Reason::NoRoom,
        Reason::NoCpu,
        Reason::NoLevel,
        Reason::WouldBreakOthers,
        Reason::Unsupported,
        Reason::OutOfService,
        Reason::Foreign,
    ];

    /// The reason with this number on the wire and in C.
    pub fn from_number(number: u16) -> Option<Reason> {
        Reason::ALL.into_iter().find(|known| *known as u16 == number)
    }

    /// A stable word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Missing => "missing",
            Reason::OutOfRange => "out-of-range",
            Reason::Contradiction => "contradiction",
            Reason::NoRoom => "no-room",
            Reason::NoCpu => "no-cpu",
            Reason::NoLevel => "no-level",
            Reason::WouldBreakOthers => "would-break-others",
            Reason::Unsupported => "unsupported",
            Reason::OutOfService => "out-of-service",
            Reason::Foreign => "foreign",
        }
    }
}
