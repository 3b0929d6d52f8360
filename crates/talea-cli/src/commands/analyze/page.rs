//! `--html`: what the page is told.

use super::Answer;
use super::names::name_of;
use crate::report::{Place, Plot, RootBounds, bounds_html};
use anyhow::Context;
use std::path::Path;
use talea_analysis::tree::Roots;
use talea_core::machine::{Body, NodeId, Tree};
use talea_core::sched::Policy;
use talea_system::system::{Root, System};

pub(super) fn write(path: &Path, system: &System, answer: &Answer) -> anyhow::Result<()> {
    let both = system.roots.iter().zip(&answer.roots);
    let roots: Vec<_> =
        both.map(|(root, answer)| RootBounds { answer, plots: plots(root) }).collect();
    let title = Path::new(&answer.file).file_name().unwrap_or_default().to_string_lossy();
    let page = bounds_html(&format!("{title}, analysed"), &answer.what_if, &roots)?;
    std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))
}

fn plots(root: &Root) -> Vec<Plot> {
    let roots = Roots::within(&root.tree, &root.sources, &root.surroundings);
    let one = |picture: &talea_analysis::tree::Picture| {
        let is_scheduler = |node: NodeId| match root.tree.get(node).map(|node| &node.body) {
            Some(Body::Scheduler(spec)) => spec.reservation.is_none(),
            _ => false,
        };
        let name = |node: NodeId| {
            if node == Tree::ROOT { root.name.as_str() } else { name_of(&root.tree, node) }
        };
        let place = place(&root.tree, picture.node);
        Plot::new(
            picture,
            name(picture.node),
            place,
            name(picture.subject),
            is_scheduler(picture.subject),
        )
    };
    roots.pictures().iter().map(one).collect()
}

fn place(tree: &Tree, node: NodeId) -> Place {
    let is_table = |node: NodeId| {
        let body = tree.get(node).map(|node| &node.body);
        matches!(body, Some(Body::Scheduler(spec)) if matches!(spec.policy, Policy::Partitions { .. }))
    };
    if node == Tree::ROOT {
        Place::Cpu
    } else if tree.get(node).and_then(|node| node.parent).is_some_and(is_table) {
        Place::Partition
    } else {
        Place::Server
    }
}
