//! Chains: their tasks, and the communication between these.

use super::plan::unknown;
use crate::draft::{ChainDraft, Draft, Named};
use crate::system::{Chain, ChainTask, Root};
use std::collections::{BTreeMap, BTreeSet};
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};
use talea_core::chain::Link;
use talea_core::engine::{ChannelId, ChannelSpec, NodeId, NodeSpec};
use talea_core::workload::{Cost, StepAction};

/// Returns the name of a chain without a name of its own.
pub(crate) fn default_name<'n>(tasks: impl Iterator<Item = &'n str>) -> String {
    tasks.collect::<Vec<_>>().join(" -> ")
}

/// Returns the chains whose tasks are known.
pub(super) fn chains(draft: &Draft, built: &[Root], findings: &mut [Findings<'_>]) -> Vec<Chain> {
    if draft.chains.is_empty() {
        return Vec::new();
    }
    let mut by_name: BTreeMap<&str, ChainTask> = BTreeMap::new();
    for (root, tasks) in built.iter().map(|root| &root.tasks).enumerate() {
        by_name.extend(
            tasks.iter().enumerate().map(|(task, name)| (name.as_str(), ChainTask { root, task })),
        );
    }
    let mut names = BTreeSet::new();
    let mut chains = Vec::new();
    for of in &draft.chains {
        let Some(chain) = chain(draft, of, built, &by_name, findings) else { continue };
        if !names.insert(chain.name.clone()) {
            let at = of.name.as_ref().map_or(&of.place.at, |name| &name.at);
            let what = format!("two chains are called {}", quoted(&chain.name));
            let why = "reports name a chain";
            findings[of.place.file].error(at, words(what, why, "give one of them another `name`"));
        }
        chains.push(chain);
    }
    chains
}

fn chain(
    draft: &Draft,
    of: &ChainDraft,
    built: &[Root],
    by_name: &BTreeMap<&str, ChainTask>,
    findings: &mut [Findings<'_>],
) -> Option<Chain> {
    let mut tasks = Vec::new();
    for named in &of.tasks {
        let Some(&task) = by_name.get(named.name.as_str()) else {
            if draft.broken.iter().all(|broken| broken.name != named.name) {
                unknown(named, "task", by_name.keys().copied(), findings);
            }
            return None;
        };
        if built[task.root].programs[task.task].is_some() {
            let what = format!("{} is a program and stands in a chain", quoted(&named.name));
            let why = "Talea does not observe what a program passes on";
            let remedy = "leave the chain out, or the line `program`";
            findings[named.file].error(&named.at, words(what, why, remedy));
            return None;
        }
        tasks.push(task);
    }
    let hops = tasks.windows(2).zip(&of.tasks[1..]);
    let links = hops
        .map(|(two, named)| link(built, (two[0], two[1]), named, findings))
        .collect::<Option<Vec<_>>>()?;
    let name = match &of.name {
        Some(named) => named.name.clone(),
        None => default_name(of.tasks.iter().map(|named| named.name.as_str())),
    };
    Some(Chain { name, tasks, links, reaction: of.reaction, age: of.age, line: of.line })
}

/// Returns the communication between two tasks: by a channel if there is one from the first to the
/// second, otherwise by a register.
fn link(
    built: &[Root],
    (from, to): (ChainTask, ChainTask),
    named: &Named,
    findings: &mut [Findings<'_>],
) -> Option<Link> {
    if from.root != to.root {
        return Some(Link::Register);
    }
    let root = &built[from.root];
    let nodes: Vec<NodeId> = root
        .tree
        .nodes()
        .filter(|(_, node)| matches!(node.spec, NodeSpec::Task(_)))
        .map(|(id, _)| id)
        .collect();
    let ends = (nodes[from.task], nodes[to.task]);
    let mut channels = (0..).map(ChannelId).zip(&root.tree.channels);
    let Some((id, channel)) = channels.find(|(_, of)| (of.from, of.to) == ends) else {
        return Some(Link::Register);
    };
    if !moves_one_token(root, (from.task, to.task), id, channel) {
        let what = format!("a chain passes through a channel to {}", quoted(&named.name));
        let why = "each job of the two tasks must push and pop one token there";
        let remedy = "remove `tokens`, `push` and `pop` of the channel, or the chain";
        findings[named.file].error(&named.at, words(what, why, remedy));
        return None;
    }
    Some(Link::Channel)
}

/// Whether each job pushes one token and each job of the other task pops it.
fn moves_one_token(
    root: &Root,
    (from, to): (usize, usize),
    id: ChannelId,
    channel: &ChannelSpec,
) -> bool {
    let is_one = |task: usize, is_move: &dyn Fn(&StepAction) -> Option<bool>| {
        root.sources[task].cost.by_version().into_iter().all(|cost| match cost {
            Cost::WithSteps { steps, .. } => {
                steps.iter().filter_map(|step| is_move(&step.action)).all(|is_one| is_one)
            }
            _ => true,
        })
    };
    let ones = |counts: &[u32]| counts.iter().all(|&count| count == 1);
    channel.tokens == 1
        && is_one(from, &|action| match action {
            StepAction::Push(of, counts) if *of == id => Some(ones(counts)),
            _ => None,
        })
        && is_one(to, &|action| match action {
            StepAction::Pop(of, counts) if *of == id => Some(ones(counts)),
            _ => None,
        })
}
