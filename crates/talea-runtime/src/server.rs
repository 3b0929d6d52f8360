//! Servers: a budget of CPU time in every period, for tasks that are activated at any time.
//!
//! YASMIN leaves servers to future work ("recurring servers"). Here they are servers of the
//! scheduling engine (docs/model.md, section 6): an activated job has the rest of its server's
//! budget. However many jobs are activated, other tasks lose no more than the budget.

use std::time::Duration;
use talea_core::engine::{Affinity, SchedulerSpec};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Work};

/// Server of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub(crate) u32);

/// Declaration of a server.
#[derive(Clone, Debug)]
pub struct Server {
    pub(crate) name: String,
    reservation: Reservation,
    priority: Option<u8>,
    /// CPU of the server, with partitioned mapping.
    pub(crate) core: u32,
    /// CPUs of the server, with clustered mapping.
    pub(crate) cores: Affinity,
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Server {
    fn new(name: &str, kind: ServerKind, budget: Duration, period: Duration) -> Server {
        let (budget, period) = (Work::from_ns(ns(budget)), Span::from_ns(ns(period)));
        let reservation = Reservation { kind, budget, period, deadline: None, offset: Span::ZERO };
        Server { name: name.to_owned(), reservation, priority: None, core: 0, cores: Affinity::ANY }
    }

    /// Creates a deferrable server. The server has its budget from the start of each period to the
    /// end, so it serves a job at any time.
    pub fn deferrable(name: &str, budget: Duration, period: Duration) -> Server {
        Server::new(name, ServerKind::Deferrable, budget, period)
    }

    /// Creates a polling server. The server has its budget at the start of each period, and loses
    /// the budget if no job is pending.
    pub fn polling(name: &str, budget: Duration, period: Duration) -> Server {
        Server::new(name, ServerKind::Polling, budget, period)
    }

    /// Creates a sporadic server. Used budget returns a period later, and other tasks lose no more
    /// than to a periodic task.
    pub fn sporadic(name: &str, budget: Duration, period: Duration) -> Server {
        Server::new(name, ServerKind::Sporadic, budget, period)
    }

    /// Creates a constant bandwidth server, for [`Priorities::Edf`](crate::Priorities::Edf). The
    /// server gets at most budget / period of a CPU, with a deadline that moves with the used
    /// budget.
    pub fn bandwidth(name: &str, budget: Duration, period: Duration) -> Server {
        Server::new(name, ServerKind::HardCbs, budget, period)
    }

    /// Sets the priority of all tasks of the server, for
    /// [`Priorities::User`](crate::Priorities::User). Without this call each task has its own
    /// priority.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Server {
        self.priority = Some(priority);
        self
    }

    /// Sets the CPU of the server's tasks, from 0, for
    /// [`Mapping::Partitioned`](crate::Mapping::Partitioned).
    #[must_use]
    pub fn core(mut self, core: u32) -> Server {
        self.core = core;
        self
    }

    /// Sets the CPUs of the server's tasks, from 0, for
    /// [`Mapping::Clustered`](crate::Mapping::Clustered).
    #[must_use]
    pub fn cores(mut self, cores: impl IntoIterator<Item = u32>) -> Server {
        let bits = cores.into_iter().map(|core| 1_u64.checked_shl(core).unwrap_or(0));
        self.cores = Affinity(bits.fold(0, |all, bit| all | bit));
        self
    }

    /// Returns the scheduler node of the server, whose tasks `policy` orders.
    pub(crate) fn to_spec(&self, policy: PolicySpec, affinity: Affinity) -> SchedulerSpec {
        let mut spec = SchedulerSpec::new(&self.name, policy);
        spec.reservation = Some(self.reservation);
        spec.overrides.priority = self.priority;
        spec.affinity = affinity;
        spec
    }
}
