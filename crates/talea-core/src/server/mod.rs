//! Servers: algorithms that keep a reservation, a budget of CPU time in every period.
//!
//! A server controls the eligibility of one node of the tree. With budget, the node takes part in
//! its parent's order, with the server's deadline. Without budget, the node is not eligible until a
//! refill (L3C section 4.1: hard reservations as containers). The node's own policy decides which
//! client uses the budget. Budgets are hard, except in the soft CBS.
//!
//! [`ServerKind`] lists the algorithms, one file each. An external server (L3C section 4.1: custom
//! reservation types; L5, L19) implements [`Server`] and is a [`ServerKind::Custom`]. The test
//! of the example `examples/server-saver` registers an external server by name for system files.

mod cbs;
mod deferrable;
pub mod meter;
mod polling;
mod server_impl;
mod sporadic;

use crate::{Span, Time, Work};
use alloc::boxed::Box;
use core::fmt;
pub(crate) use server_impl::ServerImpl;

/// Algorithm of a reservation.
#[derive(Clone, Copy, Debug)]
pub enum ServerKind {
    /// Polling server, with a refill at each period. Without a pending client, the server loses the
    /// budget.
    Polling,
    /// Deferrable server, with a refill at each period. The server keeps the budget until the next
    /// refill.
    Deferrable,
    /// Sporadic server: used budget returns one period after the instant from which it could be
    /// used.
    Sporadic,
    /// Constant bandwidth server with a moving deadline. An exhausted server is throttled until its
    /// next period.
    HardCbs,
    /// Constant bandwidth server that continues immediately with a later deadline.
    SoftCbs,
    /// An external algorithm.
    Custom {
        /// Name in system files.
        name: &'static str,
        /// Constructor.
        make: ServerFactory,
    },
}

impl ServerKind {
    /// Returns the name in system files.
    pub fn name(&self) -> &'static str {
        match self {
            ServerKind::Polling => "polling",
            ServerKind::Deferrable => "deferrable",
            ServerKind::Sporadic => "sporadic",
            ServerKind::HardCbs => "cbs",
            ServerKind::SoftCbs => "soft-cbs",
            ServerKind::Custom { name, .. } => name,
        }
    }
}

/// Compares kinds by name, because addresses of functions are no identity.
impl PartialEq for ServerKind {
    fn eq(&self, other: &ServerKind) -> bool {
        self.name() == other.name()
    }
}

impl Eq for ServerKind {}

/// Constructor of an external server for a reservation.
pub type ServerFactory = fn(of: &Reservation) -> Box<dyn Server + Send>;

/// Guarantee of a node: `budget` of CPU time in every `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Algorithm of the server.
    pub kind: ServerKind,
    /// Q: budget of each period.
    pub budget: Work,
    /// T: period, at least `budget`.
    pub period: Span,
    /// D: deadline of the budget, `budget..=period`. `None` means the period.
    pub deadline: Option<Span>,
    /// Start of the first period.
    pub offset: Span,
}

impl Reservation {
    /// Returns a reservation of Q every T, from time zero, with D = T.
    pub fn new(kind: ServerKind, budget: Work, period: Span) -> Reservation {
        Reservation { kind, budget, period, deadline: None, offset: Span::ZERO }
    }

    /// Returns D, or T if no deadline is given.
    pub fn relative_deadline(&self) -> Span {
        self.deadline.unwrap_or(self.period)
    }
}

/// A server at run time, which allocates nothing after construction.
///
/// Clients are *pending* from [`wake`](Server::wake) to [`idle`](Server::idle).
pub trait Server: fmt::Debug {
    /// Notifies that the first client has become ready.
    fn wake(&mut self, now: Time);
    /// Notifies that no client is ready any more.
    fn idle(&mut self, now: Time);
    /// Charges `used`, at most [`budget`](Server::budget), to the budget.
    fn charge(&mut self, now: Time, used: Work);
    /// Notifies that the budget is exhausted, with or without pending clients.
    fn exhausted(&mut self, now: Time);
    /// Performs the refill that is due.
    fn refill(&mut self, now: Time);
    /// Returns the CPU time that clients may consume now. Zero means that no client may run.
    fn budget(&self, now: Time) -> Work;
    /// Returns the time of the next refill; `None` if no refill is scheduled.
    fn next_refill(&self, now: Time) -> Option<Time>;
    /// Returns the deadline of the current budget.
    fn deadline(&self) -> Time;
}
