//! Numbers and stable names of codes, fields and reasons.
//!
//! Programs rely on both: a name or a number never changes its meaning.

use super::{Code, Field, RejectionReason};

const _: () = assert!((Code::ALL[Code::ALL.len() - 1] as usize) < crate::counters::CODES);

impl Code {
    /// All codes, in order of their numbers.
    pub const ALL: [Code; 24] = [
        Code::NotAllowed,
        Code::RuleBound,
        Code::RuleOmission,
        Code::NoPlugin,
        Code::UnknownPlugin,
        Code::NoSuchSpec,
        Code::NotOwner,
        Code::NoSuchThread,
        Code::ForeignThread,
        Code::ThreadTaken,
        Code::SpecTaken,
        Code::NotAttached,
        Code::Kernel,
        Code::Quota,
        Code::Malformed,
        Code::Version,
        Code::BadToken,
        Code::NotRoot,
        Code::TidNotAccepted,
        Code::Stopping,
        Code::Busy,
        Code::NotRecorded,
        Code::Starvation,
        Code::NotFrontEnd,
    ];

    /// Returns the code with this number on the wire and in C.
    pub fn from_number(number: u16) -> Option<Code> {
        Code::ALL.into_iter().find(|known| *known as u16 == number)
    }

    /// Returns the name that programs can rely on.
    pub fn stable_name(self) -> &'static str {
        match self {
            Code::NotAllowed => "not-allowed",
            Code::RuleBound => "rule-bound",
            Code::RuleOmission => "rule-omission",
            Code::NoPlugin => "no-plugin",
            Code::UnknownPlugin => "unknown-plugin",
            Code::NoSuchSpec => "no-such-spec",
            Code::NotOwner => "not-owner",
            Code::NoSuchThread => "no-such-thread",
            Code::ForeignThread => "foreign-thread",
            Code::ThreadTaken => "thread-taken",
            Code::SpecTaken => "spec-taken",
            Code::NotAttached => "not-attached",
            Code::Kernel => "kernel",
            Code::Quota => "quota",
            Code::Malformed => "malformed",
            Code::Version => "version",
            Code::BadToken => "bad-token",
            Code::NotRoot => "not-root",
            Code::TidNotAccepted => "tid-not-accepted",
            Code::Stopping => "stopping",
            Code::Busy => "busy",
            Code::NotRecorded => "not-recorded",
            Code::Starvation => "starvation",
            Code::NotFrontEnd => "not-front-end",
        }
    }
}

impl Field {
    /// All fields, in order of their numbers.
    pub const ALL: [Field; 18] = [
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
        Field::Nice,
    ];

    /// Returns the field with this number on the wire and in C.
    pub fn from_number(number: u16) -> Option<Field> {
        Field::ALL.into_iter().find(|known| *known as u16 == number)
    }

    /// Returns the name that programs can rely on.
    pub fn stable_name(self) -> &'static str {
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
            Field::Nice => "nice",
        }
    }
}

impl RejectionReason {
    /// All reasons, in order of their numbers.
    pub const ALL: [RejectionReason; 16] = [
        RejectionReason::Missing,
        RejectionReason::OutOfRange,
        RejectionReason::Contradiction,
        RejectionReason::NoRoom,
        RejectionReason::NoCpu,
        RejectionReason::NoLevel,
        RejectionReason::WouldBreakOthers,
        RejectionReason::Unsupported,
        RejectionReason::OutOfService,
        RejectionReason::Foreign,
        RejectionReason::OutsideMask,
        RejectionReason::NoRealTimeGroup,
        RejectionReason::TimeLimit,
        RejectionReason::NoRoomBesideUngranted,
        RejectionReason::Reserved,
        RejectionReason::Offline,
    ];

    /// Returns the reason with this number on the wire and in C.
    pub fn from_number(number: u16) -> Option<RejectionReason> {
        RejectionReason::ALL.into_iter().find(|known| *known as u16 == number)
    }

    /// Returns the name that programs can rely on.
    pub fn stable_name(self) -> &'static str {
        match self {
            RejectionReason::Missing => "missing",
            RejectionReason::OutOfRange => "out-of-range",
            RejectionReason::Contradiction => "contradiction",
            RejectionReason::NoRoom => "no-room",
            RejectionReason::NoCpu => "no-cpu",
            RejectionReason::NoLevel => "no-level",
            RejectionReason::WouldBreakOthers => "would-break-others",
            RejectionReason::Unsupported => "unsupported",
            RejectionReason::OutOfService => "out-of-service",
            RejectionReason::Foreign => "foreign",
            RejectionReason::OutsideMask => "outside-mask",
            RejectionReason::NoRealTimeGroup => "no-real-time-group",
            RejectionReason::TimeLimit => "time-limit",
            RejectionReason::NoRoomBesideUngranted => "no-room-beside-ungranted",
            RejectionReason::Reserved => "reserved",
            RejectionReason::Offline => "offline",
        }
    }
}
