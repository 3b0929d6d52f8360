//! Supply of each server to its clients.

use super::bounds::Bounds;
use super::node_supply::{NodeSupply, is_overload};
use super::task_bound::{NoBound, Reason};
use crate::supply::{InterferenceCurve, Leftover, Server, Supply};
use talea_core::Span;
use talea_core::engine::{NodeId, NodeSpec};
use talea_core::mutate;
use talea_core::server::ServerKind;

impl Bounds<'_> {
    /// Returns the supply of the server at `node` to its clients.
    pub(super) fn server_supply(&mut self, node: NodeId) -> Result<NodeSupply, NoBound> {
        if let Some(found) = self.server_supplies.get(&node) {
            return found.clone();
        }
        let found = self.build_server_supply(node);
        self.server_supplies.insert(node, found.clone());
        found
    }

    fn build_server_supply(&mut self, node: NodeId) -> Result<NodeSupply, NoBound> {
        let no = |reason| NoBound { node, reason };
        let NodeSpec::Scheduler(spec) = self.model.node_spec(node) else {
            return Err(no(Reason::Starved));
        };
        let Some(mut of) = spec.reservation else { return Err(no(Reason::Starved)) };
        if matches!(of.kind, ServerKind::Custom { .. }) {
            return Err(no(Reason::CustomServer));
        }
        let context = self.context(node)?;
        if of.kind == ServerKind::SoftCbs {
            // Time consumed early delays its deadline, which may be far away when the next client
            // arrives.
            if context.level.is_some() {
                return Err(no(Reason::SoftCbs));
            }
            // Without deadlines it postpones instead of waiting: its clients receive no less.
            of.kind = ServerKind::HardCbs;
        }
        if context.blocking > 0 {
            return Err(no(Reason::ServerNotPreemptive));
        }
        if context.level.is_some() {
            let mut within = self.level_meets_deadlines(&context)?.then(|| of.relative_deadline());
            // Bound that holds for any deadlines of the other competitors.
            let mut above = context.above.clone();
            self.collect_competitors(node, &context, &mut above)?;
            let level =
                Leftover::new(&context.supply, &above, self.model.iteration_limit(above.len()));
            let all = [
                above.as_slice(),
                &[InterferenceCurve { cost: of.budget, period: of.period, jitter: Span::ZERO }],
            ]
            .concat();
            if !is_overload(&all, &context.supply)
                && let Some(last) = level.time_for(of.budget)
            {
                within = Some(within.map_or(last, |within| within.min(last)));
            }
            let server = within.and_then(|within| Server::new(&of, within));
            return server.map(NodeSupply::Server).ok_or(no(Reason::Starved));
        }
        let mut all = context.above.clone();
        all.push(InterferenceCurve { cost: of.budget, period: of.period, jitter: Span::ZERO });
        if is_overload(&all, &context.supply) {
            return Err(no(Reason::Starved));
        }
        let level = Leftover::new(
            &context.supply,
            &context.above,
            self.model.iteration_limit(context.above.len()),
        );
        let within = mutate!(
            "tree-starved",
            level.time_for(of.budget).filter(|&within| within <= of.period),
            level.time_for(of.budget).map(|within| within.min(of.period))
        );
        let within = within.ok_or(no(Reason::Starved))?;
        Ok(match context.supply.cpu_loss() {
            // The server is served in time despite the loss; the loss itself is charged to its
            // clients (module [`super`]).
            Some(_) => {
                let rounds = self.model.iteration_limit(context.above.len());
                NodeSupply::NestedServer { of, above: context.above, rounds }
            }
            None => NodeSupply::Server(Server::new(&of, within).ok_or(no(Reason::Starved))?),
        })
    }
}
