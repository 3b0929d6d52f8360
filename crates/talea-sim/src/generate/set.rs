//! Generation of whole task sets.

use super::dag::{self, Shape};
use super::round::rounded;
use super::uunifast::simplex;
use super::{Bounds, CPU, Deadlines, GenerationError, Method, Periods, Shares, TASKS_MAX};
use crate::rng::Rng;
use talea_core::{Span, Work};

/// Specification of random task sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Number of tasks, or of graphs.
    pub tasks: usize,
    /// Total utilisation, in parts of a [`CPU`].
    pub total: u64,
    /// Bounds of utilisations: one for all tasks, or one for each.
    pub bounds: Vec<Bounds>,
    /// Algorithm for utilisations.
    pub method: Method,
    /// Distribution of periods.
    pub periods: Periods,
    /// Distribution of deadlines.
    pub deadlines: Deadlines,
    /// Specification of graphs, if the tasks are graphs.
    pub graphs: Option<Graphs>,
}

/// Specification of random graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graphs {
    /// Smallest number of nodes.
    pub nodes_min: usize,
    /// Largest number of nodes.
    pub nodes_max: usize,
    /// Distribution of edges.
    pub shape: Shape,
}

/// Generated task or graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// T: period.
    pub period: Span,
    /// D: relative deadline.
    pub deadline: Span,
    /// C: cost. For a graph it is the sum over its nodes.
    pub cost: Work,
    /// Nodes of a graph, in topological order; empty for a task.
    pub nodes: Vec<Node>,
}

/// A node of a generated graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// C: cost.
    pub cost: Work,
    /// Numbers of the predecessors.
    pub after: Vec<usize>,
}

/// Generates set number `number` of the sets of `seed`.
///
/// Utilisations, periods, deadlines and graphs have streams of their own: a changed total leaves
/// the periods unchanged.
///
/// # Errors
/// The reason why there is no such set.
pub fn generate(spec: &Spec, seed: u64, number: u64) -> Result<Vec<Task>, GenerationError> {
    if spec.tasks == 0 || spec.tasks > TASKS_MAX {
        return Err(GenerationError::Tasks(spec.tasks));
    }
    spec.periods.check()?;
    if let Some(graphs) = &spec.graphs {
        graphs.check()?;
    }
    let bounds = match spec.bounds[..] {
        [bound] => vec![bound; spec.tasks],
        _ if spec.bounds.len() == spec.tasks => spec.bounds.clone(),
        _ => {
            return Err(GenerationError::BoundsCount {
                given: spec.bounds.len(),
                tasks: spec.tasks,
            });
        }
    };
    let mut rng =
        [0, 1, 2, 3].map(|part| Rng::for_part(seed, number.wrapping_mul(4).wrapping_add(part)));
    let shares = Shares::new(spec.method, spec.total, &bounds)?.draw(&mut rng[0])?;
    let task = |share: u64| {
        let period = spec.periods.draw(&mut rng[1]);
        let cost = u128::from(share) * u128::from(period.as_ns()) / u128::from(CPU);
        let cost = Work::from_ns((cost as u64).max(1));
        let deadline = spec.deadlines.draw(cost, period, &mut rng[2]);
        let nodes =
            spec.graphs.as_ref().map_or_else(Vec::new, |graphs| graphs.nodes(cost, &mut rng[3]));
        Task { period, deadline, cost, nodes }
    };
    Ok(shares.into_iter().map(task).collect())
}

impl Graphs {
    fn check(&self) -> Result<(), GenerationError> {
        let (min, max) = (self.nodes_min, self.nodes_max);
        if min == 0 || min > max || max > TASKS_MAX {
            return Err(GenerationError::Nodes { min, max });
        }
        match self.shape {
            Shape::Layered { layers: 0, .. } => Err(GenerationError::Layers),
            Shape::Layered { probability, .. } | Shape::ErdosRenyi { probability }
                if probability > 1_000 =>
            {
                Err(GenerationError::Probability(probability))
            }
            _ => Ok(()),
        }
    }

    /// Generates a graph; `cost` is distributed uniformly among its nodes, at least 1 ns for each.
    fn nodes(&self, cost: Work, rng: &mut Rng) -> Vec<Node> {
        let count =
            rng.between(self.nodes_min as u64, self.nodes_max as u64).min(cost.as_ns()) as usize;
        let drawn = simplex(count, cost.as_ns() as f64, rng);
        let costs =
            rounded(&drawn, cost.as_ns(), &vec![Bounds { min: 1, max: cost.as_ns() }; count]);
        let mut nodes: Vec<Node> = costs
            .iter()
            .map(|&cost| Node { cost: Work::from_ns(cost), after: Vec::new() })
            .collect();
        for (from, to) in dag::edges(count, self.shape, rng) {
            nodes[to].after.push(from);
        }
        nodes
    }
}
