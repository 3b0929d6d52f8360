//! Criteria by which a parent may order its children.
//!
//! Every runnable, task or scheduler, carries *criteria* (SF3P, RSP 2014, section V-A). A scheduler
//! presents the criteria of the child at the head of its policy. docs/model.md argues for two
//! additions. These are criticality (L3C, RTNS 2017, section 2), and [`Overrides`], by which a
//! scheduler presents one priority for all its children.

use crate::mutate;
use crate::{Span, Time};

/// Criteria of one runnable at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Criteria {
    /// Absolute deadline of the job or of the server's budget.
    pub deadline: Time,
    /// Nominal arrival of the job.
    pub arrival: Time,
    /// T: period or separation of the task, or period of the scheduler's reservation.
    pub period: Span,
    /// D: relative deadline of the task.
    pub relative_deadline: Span,
    /// Priority, 0..=255; larger is more urgent (L3C's 256 levels).
    pub priority: u8,
    /// Criticality level; larger is more critical.
    pub criticality: u8,
    /// Whether the runnable is ordered behind the others of its priority, regardless of arrival.
    ///
    /// A time partition has this mark beside the system partition TP_0 (L3C section 2.2).
    pub yields: bool,
}

impl Criteria {
    /// Criteria less urgent than any others.
    pub const LEAST: Criteria = Criteria {
        deadline: Time::NEVER,
        arrival: Time::NEVER,
        period: Span::from_ns(u64::MAX),
        relative_deadline: Span::from_ns(u64::MAX),
        priority: 0,
        criticality: 0,
        yields: false,
    };

    /// Criteria more urgent than any others.
    pub(crate) const MOST: Criteria = Criteria {
        deadline: Time::ZERO,
        arrival: Time::ZERO,
        period: Span::ZERO,
        relative_deadline: Span::ZERO,
        priority: u8::MAX,
        criticality: u8::MAX,
        yields: false,
    };

    /// Returns the more urgent value of each field: the criteria of a holder that has inherited
    /// `other`.
    ///
    /// The result is valid for any policy (docs/model.md, sections 7 and 10).
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

/// Values that a scheduler presents instead of its head's criteria.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Replaces [`Criteria::priority`].
    pub priority: Option<u8>,
    /// Replaces [`Criteria::criticality`].
    pub criticality: Option<u8>,
    /// Replaces [`Criteria::period`].
    pub period: Option<Span>,
    /// Replaces [`Criteria::relative_deadline`].
    pub relative_deadline: Option<Span>,
    /// Sets [`Criteria::yields`]. A time-partition table always sets the criterion.
    pub yields: bool,
}

impl Overrides {
    /// Returns `of` with the overrides applied.
    pub(crate) fn apply_to(&self, of: &Criteria) -> Criteria {
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
