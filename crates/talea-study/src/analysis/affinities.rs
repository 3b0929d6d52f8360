//! `--synthesize affinities`: the system file with affinities for the tasks of flat roots.

use super::args::AnalyzeArgs;
use super::names::name_of;
use crate::exit::Exit;
use crate::output::{note, print, print_json};
use serde::Serialize;
use std::fmt::Write;
use talea_analysis::tree::{AffinityAssignment, RootModel, assign_affinities};
use talea_core::CpuSet;
use talea_core::engine::{NodeId, Tree};
use talea_system::{Root, System};

#[derive(Serialize)]
struct AffinitiesReport {
    file: String,
    what_if: Vec<String>,
    found: bool,
    roots: Vec<RootAffinities>,
}

#[derive(Serialize)]
struct RootAffinities {
    name: String,
    /// Affinities of the tasks, in the order of the file.
    affinities: Vec<AffinityOf>,
    why_not: Option<String>,
}

#[derive(Serialize)]
struct AffinityOf {
    name: String,
    affinity: String,
    /// Affinity in the file.
    before: String,
}

/// Writes `system` with affinities that serve every task, or says which tasks none serves.
pub(super) fn affinities(args: &AnalyzeArgs, system: &System) -> anyhow::Result<Exit> {
    let mut changed = system.clone();
    let roots: Vec<RootAffinities> = changed.roots.iter_mut().map(assign).collect();
    let found = roots.iter().all(|root| root.why_not.is_none());
    let file = args.file.display().to_string();
    let what_if: Vec<String> = args.what_if.iter().map(ToString::to_string).collect();
    if args.output.json {
        print_json(&AffinitiesReport { file, what_if, found, roots })?;
    } else {
        for root in &roots {
            if let Some(why) = &root.why_not {
                note(&format!("{}: no affinities: {why}", root.name));
            }
        }
        if found {
            let mut text = String::new();
            // Writing to a String can't fail.
            for change in &what_if {
                let _ = writeln!(text, "# what if {change}");
            }
            for changed in roots.iter().flat_map(|root| &root.affinities) {
                if changed.affinity != changed.before {
                    let AffinityOf { name, affinity, before } = changed;
                    let _ = writeln!(text, "# affinity of {name}: {affinity}, was {before}");
                }
            }
            text.push_str(&talea_system::write(&changed)?);
            print(&text)?;
        }
    }
    Ok(if found { Exit::Ok } else { Exit::Failure })
}

/// Gives the tasks of `root` their affinities. A root with proved deadlines stays as it is.
fn assign(root: &mut Root) -> RootAffinities {
    let model = RootModel::with_environment(&root.tree, &root.sources, &root.surroundings)
        .with_phases_known(root.phases_known);
    let name = root.name.clone();
    let tree = &root.tree;
    let names = |nodes: &[NodeId]| -> String {
        nodes.iter().map(|&node| name_of(tree, node)).collect::<Vec<_>>().join(", ")
    };
    let why_not = match assign_affinities(&model) {
        AffinityAssignment::Found(found) => {
            let tasks = found.nodes().filter(|&(node, _)| node != Tree::ROOT);
            let affinities = tasks
                .map(|(node, _)| AffinityOf {
                    name: name_of(tree, node).to_owned(),
                    affinity: cpus(&found, node),
                    before: cpus(tree, node),
                })
                .collect();
            root.tree = found;
            return RootAffinities { name, affinities, why_not: None };
        }
        _ if model.are_proved() => {
            return RootAffinities { name, affinities: Vec::new(), why_not: None };
        }
        AffinityAssignment::Stuck(nodes) => format!(
            "no CPUs are left on which {} is proved; other affinities may be proved",
            names(&nodes)
        ),
        AffinityAssignment::NotFound => {
            "each graph is proved on its CPUs alone, but not beside the others: accelerators or migration at job boundaries connect the CPUs".to_owned()
        }
        AffinityAssignment::Uncovered(node) => format!(
            "{}: the search covers roots of up to 64 CPUs whose children are tasks, without a server or a table",
            names(&[node])
        ),
    };
    RootAffinities { name, affinities: Vec::new(), why_not: Some(why_not) }
}

/// Returns the CPUs of a node as text.
fn cpus(tree: &Tree, node: NodeId) -> String {
    let affinity = tree.get(node).map_or(u64::MAX, |node| node.affinity().0);
    (0..tree.cpus).filter(|&cpu| affinity >> cpu & 1 == 1).collect::<CpuSet>().to_string()
}
