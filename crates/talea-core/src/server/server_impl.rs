//! Servers at run time: the construction of each [`ServerKind`], and static dispatch.

use super::{Reservation, Server, ServerKind};
use super::{cbs, deferrable, polling, sporadic};
use crate::{Time, Work, mutate};
use alloc::boxed::Box;

impl Reservation {
    pub(crate) fn build(&self) -> ServerImpl {
        let deferrable = || ServerImpl::Deferrable(deferrable::Deferrable::new(self));
        match self.kind {
            ServerKind::Polling => ServerImpl::Polling(polling::Polling::new(self)),
            ServerKind::Deferrable => deferrable(),
            ServerKind::Sporadic => ServerImpl::Sporadic(Box::new(sporadic::Sporadic::new(self))),
            ServerKind::HardCbs => ServerImpl::Cbs(cbs::Cbs::new(self, cbs::Overrun::Throttle)),
            ServerKind::SoftCbs => {
                ServerImpl::Cbs(cbs::Cbs::new(self, cbs::Overrun::PostponeDeadline))
            }
            ServerKind::Custom { make, .. } => {
                mutate!("core-server-outside", ServerImpl::Custom(make(self)), deferrable())
            }
        }
    }
}

/// A server at run time.
#[derive(Debug)]
pub(crate) enum ServerImpl {
    Polling(polling::Polling),
    Deferrable(deferrable::Deferrable),
    Sporadic(Box<sporadic::Sporadic>),
    Cbs(cbs::Cbs),
    Custom(Box<dyn Server + Send>),
}

macro_rules! forward {
    ($self:ident, $server:ident => $call:expr) => {
        match $self {
            ServerImpl::Polling($server) => $call,
            ServerImpl::Deferrable($server) => $call,
            ServerImpl::Sporadic($server) => $call,
            ServerImpl::Cbs($server) => $call,
            ServerImpl::Custom($server) => $call,
        }
    };
}

impl Server for ServerImpl {
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
