//! Flight management software in three configurations: Table 2.
//!
//! The paper does not state the periods and costs of that software; those in `examples/systems` are
//! similar.

use super::due_jobs::{DueJobs, RUN};
use crate::bounds::Case;
use talea_core::Span;
use talea_core::engine::{NodeSpec, TaskId};
use talea_sim::{Completion, Simulation, Sink};
use talea_study::exit::Exit;
use talea_study::output::{self, Table};
use talea_system::{self as system, Include, System};

/// Shipped files, which are embedded in the program.
struct EmbeddedFiles;

const FILES: [(&str, &str); 12] = [
    ("fms-c1-average.toml", include_str!("../../../../examples/systems/fms-c1-average.toml")),
    ("fms-c2-average.toml", include_str!("../../../../examples/systems/fms-c2-average.toml")),
    ("fms-c3-average.toml", include_str!("../../../../examples/systems/fms-c3-average.toml")),
    ("fms-c1-worst.toml", include_str!("../../../../examples/systems/fms-c1-worst.toml")),
    ("fms-c2-worst.toml", include_str!("../../../../examples/systems/fms-c2-worst.toml")),
    ("fms-c3-worst.toml", include_str!("../../../../examples/systems/fms-c3-worst.toml")),
    ("fms-tasks-average.toml", include_str!("../../../../examples/systems/fms-tasks-average.toml")),
    ("fms-tasks-worst.toml", include_str!("../../../../examples/systems/fms-tasks-worst.toml")),
    ("live-c1.toml", include_str!("live/fms-c1.toml")),
    ("live-c2.toml", include_str!("live/fms-c2.toml")),
    ("live-c3.toml", include_str!("live/fms-c3.toml")),
    ("live-tasks.toml", include_str!("live/fms-tasks.toml")),
];

impl Include for EmbeddedFiles {
    fn text(&self, _from: &str, path: &str) -> Result<(String, String), String> {
        let found = FILES.iter().find(|(name, _)| *name == path).ok_or("no such file")?;
        Ok((path.to_owned(), found.1.to_owned()))
    }
}

/// Reads a shipped file.
pub(super) fn shipped(name: &str) -> anyhow::Result<System> {
    let text = EmbeddedFiles.text("", name).map_err(anyhow::Error::msg)?.1;
    system::read(&text, name, &EmbeddedFiles).map_err(|found| anyhow::anyhow!("{}", found[0]))
}

/// Simulates a shipped file. Returns the late jobs of each criticality in percent, as [`DueJobs`]
/// counts them.
fn group(name: &str) -> anyhow::Result<[f64; 3]> {
    let system = shipped(name)?;
    let root = &system.roots[0];
    let engine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
    let nodes: Vec<_> =
        (0..root.tasks.len()).map(|task| engine.node_of(TaskId(task as u32))).collect();
    let mut in_time = ByTask(vec![DueJobs::default(); root.tasks.len()]);
    let mut world = Simulation::new(engine, 1, &root.workload(system.seed));
    world.run(RUN + Span::from_ns(1), &mut in_time);
    let mut groups = [DueJobs::default(); 3];
    for (task, node) in nodes.iter().enumerate() {
        let above = root.tree.ancestors(*node).next().map_or("", |(_, spec)| spec.name.as_str());
        let Some(group) = ["B", "D", "A"].iter().position(|name| *name == above) else { continue };
        let Some(NodeSpec::Task(spec)) = root.tree.get(*node).map(|node| &node.spec) else {
            continue;
        };
        groups[group].jobs += RUN.as_ns() / spec.period.as_ns();
        groups[group].in_time += in_time.0[task].in_time;
    }
    Ok(groups.map(DueJobs::late_percent))
}

struct ByTask(Vec<DueJobs>);

impl Sink for ByTask {
    fn on_completion(&mut self, job: &Completion) {
        self.0[job.task.0 as usize].on_completion(job);
    }
}

/// `PAPER[configuration]`: late jobs of B, D and A at worst cost in the paper, in percent.
pub(super) const PAPER: [[u32; 3]; 3] = [[0, 28, 0], [22, 23, 0], [5, 7, 12]];

/// Configurations: part of their files' names, and description.
pub(super) const CONFIGURATIONS: [(&str, &str); 3] =
    [("c1", "C1: table, fp, edf"), ("c2", "C2: table, edf"), ("c3", "C3: edf")];

/// Returns the three configurations, each with both costs.
pub(super) fn configurations() -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (config, what) in CONFIGURATIONS {
        for cost in ["average", "worst"] {
            let system = shipped(&format!("fms-{config}-{cost}.toml"))?;
            let root = &system.roots[0];
            let name = format!("{what}, {cost} cost");
            cases.push(Case::new(name, root.tree.clone(), root.workload(system.seed), RUN));
        }
    }
    Ok(cases)
}

/// Prints the late jobs of the configurations beside those of the paper.
pub(super) fn table2() -> anyhow::Result<Exit> {
    let mut table =
        Table::new("CONFIGURATION | COST | >B late % | >D late % | >A late % | PAPER B/D/A");
    for (config, what) in CONFIGURATIONS {
        for cost in ["average", "worst"] {
            let late = group(&format!("fms-{config}-{cost}.toml"))?;
            let paper = match (cost, config) {
                ("average", _) => [0; 3],
                (_, "c1") => PAPER[0],
                (_, "c2") => PAPER[1],
                _ => PAPER[2],
            };
            let mut row = vec![what.to_owned(), cost.to_owned()];
            row.extend(late.iter().map(|late| format!("{late:.1}")));
            row.push(paper.map(|percent| percent.to_string()).join("/"));
            table.row(row);
        }
    }
    output::print(&table.render())?;
    output::print(
        "The paper does not print its periods and costs. Those of the examples are fitted to its rates, within 3 points.\n",
    )?;
    Ok(Exit::Ok)
}
