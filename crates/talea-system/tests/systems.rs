//! System files: the shipped ones say what the papers say.

use std::collections::BTreeMap;
use std::path::Path;
use talea_core::Time;
use talea_sim::{Counters, World};
use talea_system::system::{self, Include, System};

/// Files beside each other in `examples/systems`.
struct Shipped;

impl Include for Shipped {
    fn text(&self, _from: &str, path: &str) -> Result<(String, String), String> {
        let text = shipped(path).ok_or("no such file")?;
        Ok((path.to_owned(), text))
    }
}

#[allow(clippy::disallowed_methods, reason = "a test reads its own examples")]
fn shipped(name: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/systems");
    std::fs::read_to_string(folder.join(name)).ok()
}

fn read(name: &str) -> System {
    let text = shipped(name).unwrap_or_else(|| panic!("{name} is there"));
    system::read(&text, name, &Shipped).unwrap_or_else(|found| panic!("{name}: {found:#?}"))
}

/// Late jobs in thousandths, per scheduler that the tasks stand in directly, after the file's duration.
fn misses(system: &System) -> BTreeMap<String, u64> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for root in &system.roots {
        let machine = root.tree.build().expect("a sound tree");
        let nodes: Vec<_> = (0..root.tasks.len())
            .map(|task| machine.node_of(talea_core::machine::TaskId(task as u32)))
            .collect();
        let mut world = World::new(machine, root.tree.cpus, &root.workload(system.seed));
        let mut counters = Counters::new(root.tasks.len());
        let end = Time::ZERO + system.duration;
        world.run(end, &mut counters);
        for (task, node) in nodes.iter().enumerate() {
            let (_, above) = root.tree.above(*node).next().expect("a scheduler");
            let count = counters.tasks[task];
            // Jobs that are due and have not ended.
            let deadline = match root.tree.get(*node).map(|node| &node.body) {
                Some(talea_core::machine::Body::Task(spec)) => spec.deadline,
                _ => unreachable!("a task"),
            };
            let due = count.arrived - u64::from(deadline > system.duration);
            let sum = sums.entry(above.name.clone()).or_default();
            sum.0 += count.late + due.saturating_sub(count.completed);
            sum.1 += count.arrived;
        }
    }
    sums.into_iter().map(|(name, (late, all))| (name, (late * 2_000 + all) / (2 * all))).collect()
}

#[test]
fn s11_table_2_the_flight_management_misses_what_the_paper_says_it_must() {
    let per_mille = |name: &str| {
        let misses = misses(&read(name));
        [misses["B"], misses["D"], misses["A"]]
    };
    for config in ["c1", "c2", "c3"] {
        assert_eq!(per_mille(&format!("fms-{config}-average.toml")), [0, 0, 0], "{config} at average cost");
    }
    // checklists/sf3p.md, 1.6: C1 0/92.5/0; C2 88.9/92.5/0; C3 1.7/7.5/56.7.
    assert_eq!(per_mille("fms-c1-worst.toml"), [0, 925, 0]);
    assert_eq!(per_mille("fms-c2-worst.toml"), [889, 925, 0]);
    assert_eq!(per_mille("fms-c3-worst.toml"), [17, 75, 567]);
}
