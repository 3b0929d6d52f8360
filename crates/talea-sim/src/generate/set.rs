//! A whole set.

use super::dag::{self, Shape};
use super::round::rounded;
use super::uunifast::simplex;
use super::{Bounds, CPU, Deadlines, Impossible, Method, Periods, Shares, TASKS_MAX};
use crate::dice::Dice;
use talea_core::{Span, Work};

/// What sets are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// How many tasks, or graphs.
    pub tasks: usize,
    /// What their utilisations add up to, in parts of a [`CPU`].
    pub total: u64,
    /// Of each task's utilisation: one for all, or one for each.
    pub bounds: Vec<Bounds>,
    /// How utilisations are drawn.
    pub method: Method,
    /// How periods are drawn.
    pub periods: Periods,
    /// How deadlines are drawn.
    pub deadlines: Deadlines,
    /// If the tasks are graphs.
    pub graphs: Option<Graphs>,
}

/// What graphs are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graphs {
    /// The least number of nodes.
    pub nodes_min: usize,
    /// The largest.
    pub nodes_max: usize,
    /// How they are connected.
    pub shape: Shape,
}

/// A task, or a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// T.
    pub period: Span,
    /// D.
    pub deadline: Span,
    /// C; of a graph the sum over its nodes.
    pub cost: Work,
    /// Of a graph, in an order that its edges follow; otherwise none.
    pub nodes: Vec<Node>,
}

/// A node of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// C.
    pub cost: Work,
    /// The nodes that must end before, by number.
    pub after: Vec<usize>,
}

/// Set number `number` of the sets that `seed` stands for. Utilisations, periods, deadlines and
/// graphs have dice of their own: the periods stay the same when the total changes.
///
/// # Errors
/// Says why there is no such set.
pub fn generate(spec: &Spec, seed: u64, number: u64) -> Result<Vec<Task>, Impossible> {
    if spec.tasks == 0 || spec.tasks > TASKS_MAX {
        return Err(Impossible::Tasks(spec.tasks));
    }
    spec.periods.check()?;
    if let Some(graphs) = &spec.graphs {
        graphs.check()?;
    }
    let bounds = match spec.bounds[..] {
        [bound] => vec![bound; spec.tasks],
        _ if spec.bounds.len() == spec.tasks => spec.bounds.clone(),
        _ => return Err(Impossible::BoundsCount { given: spec.bounds.len(), tasks: spec.tasks }),
    };
    let mut dice =
        [0, 1, 2, 3].map(|part| Dice::of(seed, number.wrapping_mul(4).wrapping_add(part)));
    let shares = Shares::new(spec.method, spec.total, &bounds)?.draw(&mut dice[0])?;
    let task = |share: u64| {
        let period = spec.periods.draw(&mut dice[1]);
        let cost = u128::from(share) * u128::from(period.as_ns()) / u128::from(CPU);
        let cost = Work::from_ns((cost as u64).max(1));
        let deadline = spec.deadlines.draw(cost, period, &mut dice[2]);
        let nodes =
            spec.graphs.as_ref().map_or_else(Vec::new, |graphs| graphs.nodes(cost, &mut dice[3]));
        Task { period, deadline, cost, nodes }
    };
    Ok(shares.into_iter().map(task).collect())
}

impl Graphs {
    fn check(&self) -> Result<(), Impossible> {
        let (min, max) = (self.nodes_min, self.nodes_max);
        if min == 0 || min > max || max > TASKS_MAX {
            return Err(Impossible::Nodes { min, max });
        }
        match self.shape {
            Shape::Layered { layers: 0, .. } => Err(Impossible::Layers),
            Shape::Layered { probability, .. } | Shape::ErdosRenyi { probability }
                if probability > 1_000 =>
            {
                Err(Impossible::Probability(probability))
            }
            _ => Ok(()),
        }
    }

    /// A graph; `cost` is shared uniformly among its nodes, 1 ns at least for each.
    fn nodes(&self, cost: Work, dice: &mut Dice) -> Vec<Node> {
        let count =
            dice.between(self.nodes_min as u64, self.nodes_max as u64).min(cost.as_ns()) as usize;
        let drawn = simplex(count, cost.as_ns() as f64, dice);
        let costs =
            rounded(&drawn, cost.as_ns(), &vec![Bounds { min: 1, max: cost.as_ns() }; count]);
        let mut nodes: Vec<Node> = costs
            .iter()
            .map(|&cost| Node { cost: Work::from_ns(cost), after: Vec::new() })
            .collect();
        for (from, to) in dag::edges(count, self.shape, dice) {
            nodes[to].after.push(from);
        }
        nodes
    }
}
