//! Data of the page of `--html`.

use super::model::model_of;
use super::names::name_of;
use super::report::AnalysisReport;
use crate::report::{Plot, RootBounds, SupplyKind, bounds_html};
use std::path::Path;
use talea_core::engine::{NodeId, NodeSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_system::{Root, System};

pub(super) fn write(path: &Path, system: &System, answer: &AnalysisReport) -> anyhow::Result<()> {
    let both = system.roots.iter().zip(&answer.roots);
    let roots: Vec<_> =
        both.map(|(root, answer)| RootBounds { answer, plots: plots(root) }).collect();
    let title = Path::new(&answer.file).file_name().unwrap_or_default().to_string_lossy();
    let page = bounds_html(&format!("{title}, analysed"), &answer.what_if, &roots)?;
    crate::output::write_file(path, &page)
}

fn plots(root: &Root) -> Vec<Plot> {
    let roots = model_of(root);
    let one = |picture: &talea_analysis::tree::DemandPlot| {
        let is_scheduler = |node: NodeId| match root.tree.get(node).map(|node| &node.spec) {
            Some(NodeSpec::Scheduler(spec)) => spec.reservation.is_none(),
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
    roots.demand_plots().iter().map(one).collect()
}

fn place(tree: &Tree, node: NodeId) -> SupplyKind {
    let is_table = |node: NodeId| {
        let body = tree.get(node).map(|node| &node.spec);
        let Some(NodeSpec::Scheduler(spec)) = body else { return false };
        matches!(spec.policy, PolicySpec::Partitions { .. })
    };
    if node == Tree::ROOT {
        SupplyKind::Cpu
    } else if tree.get(node).and_then(|node| node.parent).is_some_and(is_table) {
        SupplyKind::Partition
    } else {
        SupplyKind::Server
    }
}
