//! What a parent may order its children by.
//!
//! SF3P (RSP 2014) section V-A: every runnable, task or scheduler, carries *criteria*; a scheduler
//! shows those of the child at the head of its ready list. Two additions, both argued in
//! docs/model.md: criticality (L3C, RTNS 2017, section 2) and [`Own`] values, which let a whole
//! group stand at one priority.

use crate::mutate;
use crate::{Span, Time};

/// The criteria of one runnable at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Criteria {
    /// Absolute deadline of the job or of the server's budget.
    pub deadline: Time,
    /// Nominal arrival of the job.
    pub arrival: Time,
    /// T: period or separation of the task.
    pub period: Span,
    /// D: relative deadline of the task.
    pub relative_deadline: Span,
    /// 0..=255, larger is more urgent (L3C's 256 levels).
    pub priority: u8,
    /// Larger is more critical.
    pub criticality: u8,
    /// Stands behind the others of its priority, whenever it came: what belongs to a time partition
    /// yields to the system partition TP_0 (L3C section 2.2).
    pub yields: bool,
}

impl Criteria {
    /// Later, longer and less urgent than any other.
    pub const LEAST: Criteria = Criteria {
        deadline: Time::NEVER,
        arrival: Time::NEVER,
        period: Span::from_ns(u64::MAX),
        relative_deadline: Span::from_ns(u64::MAX),
        priority: 0,
        criticality: 0,
        yields: false,
    };

    /// Earlier, shorter and more urgent than any other.
    pub(crate) const MOST: Criteria = Criteria {
        deadline: Time::ZERO,
        arrival: Time::ZERO,
        period: Span::ZERO,
        relative_deadline: Span::ZERO,
        priority: u8::MAX,
        criticality: u8::MAX,
        yields: false,
    };

    /// Of each value the more urgent: what a holder shows that has inherited `other`, whatever the
    /// policy orders by (docs/model.md, sections 7 and 10).
    #[must_use]
    pub fn most_urgent(&self, other: &Criteria) -> Criteria {
        Criteria {
            deadline: self.deadline.min(other.deadline),
            arrival: self.arrival.min(other.arrival),
            period: self.period.min(other.period),
            relative_deadline: self.relative_deadline.min(other.relative_deadline),
            priority: self.priority.max(other.priority),
            criticality: self.criticality.max(other.criticality),
            yields: self.yields && other.yields,
        }
    }
}

/// What a scheduler shows instead of its head's criteria.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// See [`Criteria::priority`].
    pub priority: Option<u8>,
    /// See [`Criteria::criticality`].
    pub criticality: Option<u8>,
    /// See [`Criteria::period`].
    pub period: Option<Span>,
    /// See [`Criteria::relative_deadline`].
    pub relative_deadline: Option<Span>,
    /// See [`Criteria::yields`]; a time-partition table always does.
    pub yields: bool,
}

impl Own {
    /// `of` with the own values laid over it.
    pub(crate) fn over(&self, of: &Criteria) -> Criteria {
        Criteria {
            deadline: of.deadline,
            arrival: of.arrival,
            period: self.period.unwrap_or(of.period),
            relative_deadline: self.relative_deadline.unwrap_or(of.relative_deadline),
            priority: mutate!("core-band-own", self.priority.unwrap_or(of.priority), of.priority),
            criticality: self.criticality.unwrap_or(of.criticality),
            yields: self.yields || of.yields,
        }
    }
}
