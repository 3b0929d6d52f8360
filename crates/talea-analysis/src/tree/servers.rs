//! What the servers of a tree give to their clients.

use super::answer::{NoTest, Reason};
use super::walk::{Walk, is_overload};
use crate::supply::{Curve, Dedicated, Inside, Leftover, Rate, Server, Supply, Table};
use alloc::boxed::Box;
use alloc::vec::Vec;
use talea_core::machine::{Body, NodeId};
use talea_core::mutate;
use talea_core::server::{Kind, Reservation};
use talea_core::{Span, Work};

/// The supplies that there are in a tree.
#[derive(Clone, Debug)]
pub(super) enum Supplied {
    /// The root's CPU.
    Dedicated,
    /// A partition's slots.
    Table(Table),
    /// A server somewhere.
    Server(Server),
    /// A server on a CPU, below these.
    Inside { of: Reservation, above: Vec<Curve>, rounds: u64 },
    /// Such a supply, of which so much may be lost, once in all windows that belong together.
    Less { of: Box<Supplied>, lost: Span },
}

impl Supplied {
    /// With a loss that may happen at any time, in pieces.
    pub(super) fn without(self, lost: Span) -> Supplied {
        Supplied::Less { of: Box::new(self), lost }
    }

    /// What a CPU of one's own may lose; nothing of what is none.
    pub(super) fn lost_by_cpu(&self) -> Option<Span> {
        match self {
            Supplied::Dedicated => Some(Span::ZERO),
            Supplied::Less { of, lost } => Some(of.lost_by_cpu()? + *lost),
            _ => None,
        }
    }
}

impl Supply for Supplied {
    fn time_for(&self, work: Work) -> Option<Span> {
        match self {
            Supplied::Dedicated => Dedicated.time_for(work),
            Supplied::Table(table) => table.time_for(work),
            Supplied::Server(server) => server.time_for(work),
            Supplied::Inside { of, above, rounds } => {
                Inside::served(of, Leftover::new(Dedicated, above, *rounds))?.time_for(work)
            }
            Supplied::Less { .. } if work.is_zero() => Some(Span::ZERO),
            Supplied::Less { of, lost } => {
                of.time_for(Work::from_ns(work.as_ns().saturating_add(lost.as_ns())))
            }
        }
    }

    fn rate(&self) -> Option<Rate> {
        match self {
            Supplied::Dedicated => Dedicated.rate(),
            Supplied::Table(table) => table.rate(),
            Supplied::Server(server) => server.rate(),
            Supplied::Inside { of, .. } => Some(Rate { work: of.budget, every: of.period }),
            Supplied::Less { of, .. } => of.rate(),
        }
    }
}

impl Walk<'_> {
    /// What the clients of the server at `node` have.
    pub(super) fn supply_of(&mut self, node: NodeId) -> Result<Supplied, NoTest> {
        if let Some(found) = self.supplies.get(&node) {
            return found.clone();
        }
        let found = self.find_supply(node);
        self.supplies.insert(node, found.clone());
        found
    }

    fn find_supply(&mut self, node: NodeId) -> Result<Supplied, NoTest> {
        let no = |reason| NoTest { node, reason };
        let Body::Scheduler(spec) = self.body(node) else { return Err(no(Reason::Starved)) };
        let Some(mut of) = spec.reservation else { return Err(no(Reason::Starved)) };
        if matches!(of.kind, Kind::Custom { .. }) {
            return Err(no(Reason::CustomServer));
        }
        let place = self.place(node)?;
        if of.kind == Kind::SoftCbs {
            // What it ran ahead it owes: its deadline may be far away when the next client comes.
            if place.level.is_some() {
                return Err(no(Reason::SoftCbs));
            }
            // Where nobody looks at deadlines it postpones them instead of waiting: its clients
            // have no less.
            of.kind = Kind::HardCbs;
        }
        if place.blocking > 0 {
            return Err(no(Reason::ServerNotPreemptive));
        }
        if place.level.is_some() {
            let mut within = self.level_fits(&place)?.then(|| of.relative_deadline());
            // Whatever the deadlines of the others are.
            let mut above = place.above.clone();
            self.collect_others(node, &place, &mut above)?;
            let level = Leftover::new(&place.supply, &above, self.rounds(above.len()));
            let all = [
                above.as_slice(),
                &[Curve { cost: of.budget, period: of.period, jitter: Span::ZERO }],
            ]
            .concat();
            if !is_overload(&all, &place.supply)
                && let Some(last) = level.time_for(of.budget)
            {
                within = Some(within.map_or(last, |within| within.min(last)));
            }
            let server = within.and_then(|within| Server::new(&of, within));
            return server.map(Supplied::Server).ok_or(no(Reason::Starved));
        }
        let mut all = place.above.clone();
        all.push(Curve { cost: of.budget, period: of.period, jitter: Span::ZERO });
        if is_overload(&all, &place.supply) {
            return Err(no(Reason::Starved));
        }
        let level = Leftover::new(&place.supply, &place.above, self.rounds(place.above.len()));
        let within = mutate!(
            "tree-starved",
            level.time_for(of.budget).filter(|&within| within <= of.period),
            level.time_for(of.budget).map(|within| within.min(of.period))
        );
        let within = within.ok_or(no(Reason::Starved))?;
        Ok(match place.supply.lost_by_cpu() {
            // Served in time whatever is lost: the loss itself is its clients' (head comment of
            // [`super`]).
            Some(_) => {
                let rounds = self.rounds(place.above.len());
                Supplied::Inside { of, above: place.above, rounds }
            }
            None => Supplied::Server(Server::new(&of, within).ok_or(no(Reason::Starved))?),
        })
    }
}
