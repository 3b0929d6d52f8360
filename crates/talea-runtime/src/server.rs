//! Servers: a budget of CPU time every period, for tasks whose jobs come when somebody wants them.
//!
//! YASMIN leaves them to future work ("recurring servers"). Here they are the scheduler machine's
//! own (docs/model.md, section 6): a job that somebody activates has what is left of its server's
//! budget, and however many are activated, the others lose no more than that.

use std::time::Duration;
use talea_core::machine::{Affinity, SchedulerSpec};
use talea_core::sched::Policy;
use talea_core::server::{Kind, Reservation};
use talea_core::{Span, Work};

/// A server of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub(crate) u32);

/// What is declared of a server.
#[derive(Clone, Debug)]
pub struct Server {
    pub(crate) name: String,
    reservation: Reservation,
    priority: Option<u8>,
    /// Which CPU of the application, where tasks are partitioned.
    pub(crate) core: u32,
    /// Which of them, where there are clusters.
    pub(crate) cores: Affinity,
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Server {
    fn new(name: &str, kind: Kind, budget: Duration, period: Duration) -> Server {
        let (budget, period) = (Work::from_ns(ns(budget)), Span::from_ns(ns(period)));
        let reservation = Reservation { kind, budget, period, deadline: None, offset: Span::ZERO };
        Server { name: name.to_owned(), reservation, priority: None, core: 0, cores: Affinity::ANY }
    }

    /// Its budget is there at the begin of each period and kept to its end: who is activated at any
    /// time is served at once.
    pub fn deferrable(name: &str, budget: Duration, period: Duration) -> Server {
        Server::new(name, Kind::Deferrable, budget, period)
    }

    /// Its budget is there at the begin of each period, and lost if nobody wants it then.
    pub fn polling(name: &str, budget: Duration, period: Duration) -> Server {
        Server::new(name, Kind::Polling, budget, period)
    }

    /// What is used comes back a period later: the others never lose more than to a periodic task.
    pub fn sporadic(name: &str, budget: Duration, period: Duration) -> Server {
        Server::new(name, Kind::Sporadic, budget, period)
    }

    /// A constant bandwidth server, for [`Priorities::Edf`](crate::Priorities::Edf): no more than
    /// budget / period of a CPU, at a deadline that moves with what is used.
    pub fn bandwidth(name: &str, budget: Duration, period: Duration) -> Server {
        Server::new(name, Kind::HardCbs, budget, period)
    }

    /// For [`Priorities::User`](crate::Priorities::User): where all of its tasks stand among the
    /// others; otherwise each where it would.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Server {
        self.priority = Some(priority);
        self
    }

    /// For [`Mapping::Partitioned`](crate::Mapping::Partitioned): which of the application's CPUs,
    /// from 0, its tasks share.
    #[must_use]
    pub fn core(mut self, core: u32) -> Server {
        self.core = core;
        self
    }

    /// For [`Mapping::Clustered`](crate::Mapping::Clustered): which of the application's CPUs, from
    /// 0.
    #[must_use]
    pub fn cores(mut self, cores: impl IntoIterator<Item = u32>) -> Server {
        let bits = cores.into_iter().map(|core| 1_u64.checked_shl(core).unwrap_or(0));
        self.cores = Affinity(bits.fold(0, |all, bit| all | bit));
        self
    }

    /// As the machine knows it; its tasks follow each other by `policy`.
    pub(crate) fn of_machine(&self, policy: Policy, affinity: Affinity) -> SchedulerSpec {
        let mut spec = SchedulerSpec::new(&self.name, policy);
        spec.reservation = Some(self.reservation);
        spec.own.priority = self.priority;
        spec.affinity = affinity;
        spec
    }
}
