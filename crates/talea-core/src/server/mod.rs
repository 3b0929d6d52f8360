//! Servers: the algorithms that keep a reservation, a budget of CPU time every period.
//!
//! A server gates one node of the tree: while it has budget, the node takes part in its parent's
//! order with the server's deadline; when the budget is gone the node is not eligible until a
//! refill (L3C section 4.1: hard reservations as containers). Which of its clients uses the budget
//! is the node's own policy. Budgets are hard, except in the soft CBS.
//!
//! [`Kind`] is the list, a file each. One from outside (L3C section 4.1: custom reservation types;
//! L5, L19) implements [`Server`] like the others and is [`Kind::Custom`]; `examples/server-saver`
//! is one, in a program that knows it by name in system files.

mod cbs;
mod deferrable;
mod polling;
mod sporadic;

use crate::mutate;
use crate::{Span, Time, Work};
use alloc::boxed::Box;
use core::fmt;

/// Which algorithm keeps the reservation.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Full at each period, and what is not wanted then is lost.
    Polling,
    /// Full at each period, kept until the next one.
    Deferrable,
    /// Every piece comes back one period after it was taken up.
    Sporadic,
    /// Constant bandwidth server: a deadline that moves; waits for it when exhausted.
    HardCbs,
    /// The same, but goes on at once with a later deadline.
    SoftCbs,
    /// From outside this crate.
    Custom {
        /// What a system file calls it.
        name: &'static str,
        /// How it is made.
        make: Maker,
    },
}

impl Kind {
    /// What a system file calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Polling => "polling",
            Kind::Deferrable => "deferrable",
            Kind::Sporadic => "sporadic",
            Kind::HardCbs => "cbs",
            Kind::SoftCbs => "soft-cbs",
            Kind::Custom { name, .. } => name,
        }
    }
}

/// By name: the addresses of functions are no identity.
impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Kind {}

/// Makes a server from outside that keeps a reservation.
pub type Maker = fn(of: &Reservation) -> Box<dyn Server + Send>;

/// What a node is promised: `budget` of CPU time in every `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Which algorithm keeps it.
    pub kind: Kind,
    /// Q.
    pub budget: Work,
    /// T; at least `budget`.
    pub period: Span,
    /// D: within which the budget is to be had, `budget..=period`. `None`: the period.
    pub deadline: Option<Span>,
    /// When the first period begins.
    pub offset: Span,
}

impl Reservation {
    /// Q every T, from the start, with D = T.
    pub fn new(kind: Kind, budget: Work, period: Span) -> Reservation {
        Reservation { kind, budget, period, deadline: None, offset: Span::ZERO }
    }

    /// D, or T when none is given.
    pub fn relative_deadline(&self) -> Span {
        self.deadline.unwrap_or(self.period)
    }

    pub(crate) fn build(&self) -> Built {
        mutate!(
            "core-server-outside",
            match self.kind {
                Kind::Polling => Built::Polling(polling::Polling::new(self)),
                Kind::Deferrable => Built::Deferrable(deferrable::Deferrable::new(self)),
                Kind::Sporadic => Built::Sporadic(Box::new(sporadic::Sporadic::new(self))),
                Kind::HardCbs => Built::Cbs(cbs::Cbs::new(self, cbs::Exhausted::Waits)),
                Kind::SoftCbs => Built::Cbs(cbs::Cbs::new(self, cbs::Exhausted::Postpones)),
                Kind::Custom { make, .. } => Built::Custom(make(self)),
            },
            match self.kind {
                Kind::Polling => Built::Polling(polling::Polling::new(self)),
                Kind::Deferrable => Built::Deferrable(deferrable::Deferrable::new(self)),
                Kind::Sporadic => Built::Sporadic(Box::new(sporadic::Sporadic::new(self))),
                Kind::HardCbs => Built::Cbs(cbs::Cbs::new(self, cbs::Exhausted::Waits)),
                Kind::SoftCbs => Built::Cbs(cbs::Cbs::new(self, cbs::Exhausted::Postpones)),
                Kind::Custom { .. } => Built::Deferrable(deferrable::Deferrable::new(self)),
            }
        )
    }
}

/// A server at work: what happens to it, and what it answers when it is asked. After construction
/// nothing allocates.
///
/// Clients are *pending* from [`wake`](Server::wake) to [`idle`](Server::idle).
pub trait Server: fmt::Debug {
    /// The first client has become ready.
    fn wake(&mut self, now: Time);
    /// The last client has nothing left to run.
    fn idle(&mut self, now: Time);
    /// Clients have consumed `used`, at most [`budget`](Server::budget).
    fn charge(&mut self, now: Time, used: Work);
    /// The budget has been consumed to the end, whether or not clients are still pending.
    fn exhausted(&mut self, now: Time);
    /// The refill asked for is due.
    fn refill(&mut self, now: Time);
    /// What clients may consume before something must happen; zero: none may run.
    fn budget(&self, now: Time) -> Work;
    /// When the next refill is due.
    fn next_refill(&self, now: Time) -> Option<Time>;
    /// Until when the budget is to be had.
    fn deadline(&self) -> Time;
}

#[derive(Debug)]
pub(crate) enum Built {
    Polling(polling::Polling),
    Deferrable(deferrable::Deferrable),
    Sporadic(Box<sporadic::Sporadic>),
    Cbs(cbs::Cbs),
    Custom(Box<dyn Server + Send>),
}

macro_rules! forward {
    ($self:ident, $server:ident => $call:expr) => {
        match $self {
            Built::Polling($server) => $call,
            Built::Deferrable($server) => $call,
            Built::Sporadic($server) => $call,
            Built::Cbs($server) => $call,
            Built::Custom($server) => $call,
        }
    };
}

impl Server for Built {
    fn wake(&mut self, now: Time) {
        forward!(self, server => server.wake(now));
    }

    fn idle(&mut self, now: Time) {
        forward!(self, server => server.idle(now));
    }

    fn charge(&mut self, now: Time, used: Work) {
        forward!(self, server => server.charge(now, used));
    }

    fn exhausted(&mut self, now: Time) {
        forward!(self, server => server.exhausted(now));
    }

    fn refill(&mut self, now: Time) {
        forward!(self, server => server.refill(now));
    }

    fn budget(&self, now: Time) -> Work {
        forward!(self, server => server.budget(now))
    }

    fn next_refill(&self, now: Time) -> Option<Time> {
        forward!(self, server => server.next_refill(now))
    }

    fn deadline(&self) -> Time {
        forward!(self, server => server.deadline())
    }
}
