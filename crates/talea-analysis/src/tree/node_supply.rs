//! Supplies that exist in a tree.

use crate::supply::{
    Dedicated, InterferenceCurve, Leftover, NestedServer, Rate, Server, Supply, Table,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Work};

/// Supply available at a node.
#[derive(Clone, Debug)]
pub(super) enum NodeSupply {
    /// The root's CPU.
    Dedicated,
    /// Slots of a partition.
    Table(Table),
    /// Server with a known service bound.
    Server(Server),
    /// Server directly on a CPU, below the interference `above`.
    NestedServer { of: Reservation, above: Vec<InterferenceCurve>, rounds: u64 },
    /// Supply `of` less the time `lost`, which is subtracted once per busy period.
    WithLoss { of: Box<NodeSupply>, lost: Span },
}

impl NodeSupply {
    /// Returns this supply with a loss that may occur at any time, in any number of parts.
    pub(super) fn with_loss(self, lost: Span) -> NodeSupply {
        NodeSupply::WithLoss { of: Box::new(self), lost }
    }

    /// Returns the loss of a dedicated CPU; `None` for any other supply.
    pub(super) fn cpu_loss(&self) -> Option<Span> {
        match self {
            NodeSupply::Dedicated => Some(Span::ZERO),
            NodeSupply::WithLoss { of, lost } => Some(of.cpu_loss()? + *lost),
            _ => None,
        }
    }
}

impl Supply for NodeSupply {
    fn time_for(&self, work: Work) -> Option<Span> {
        match self {
            NodeSupply::Dedicated => Dedicated.time_for(work),
            NodeSupply::Table(table) => table.time_for(work),
            NodeSupply::Server(server) => server.time_for(work),
            NodeSupply::NestedServer { of, above, rounds } => {
                NestedServer::served(of, Leftover::new(Dedicated, above, *rounds))?.time_for(work)
            }
            NodeSupply::WithLoss { .. } if work.is_zero() => Some(Span::ZERO),
            NodeSupply::WithLoss { of, lost } => {
                of.time_for(Work::from_ns(work.as_ns().saturating_add(lost.as_ns())))
            }
        }
    }

    fn rate(&self) -> Option<Rate> {
        match self {
            NodeSupply::Dedicated => Dedicated.rate(),
            NodeSupply::Table(table) => table.rate(),
            NodeSupply::Server(server) => server.rate(),
            NodeSupply::NestedServer { of, .. } => Some(Rate { work: of.budget, every: of.period }),
            NodeSupply::WithLoss { of, .. } => of.rate(),
        }
    }
}

/// Whether a server can delay its clients. A soft CBS delays them before its first period, and
/// after a wake-up between D and T.
pub(super) fn can_delay_clients(of: &Reservation) -> bool {
    of.kind != ServerKind::SoftCbs || !of.offset.is_zero() || of.relative_deadline() < of.period
}

/// Whether the long-run demand of `curves` exceeds the rate of `supply`.
pub(super) fn is_overload(curves: &[InterferenceCurve], supply: &impl Supply) -> bool {
    let Some(rate) = supply.rate() else { return false };
    let down =
        |work: Work, every: Span| (u128::from(work.as_ns()) << 63) / u128::from(every.as_ns());
    let asked: u128 = curves.iter().map(|curve| down(curve.cost, curve.period)).sum();
    asked > down(rate.work, rate.every) + 1
}
