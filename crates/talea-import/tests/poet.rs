//! Import of POET's task sets: curves, both preemption models, and every malformed file.

#[path = "../../talea-config/tests/common/table.rs"]
mod table;

use table::Entry;
use talea_core::engine::NodeSpec;
use talea_core::workload::Arrivals;
use talea_import::{File, poet};
use talea_system::{self as system, Diagnostic, System, diagnostic};

fn read(text: &str) -> System {
    let toml = poet(File { origin: "set.yaml", text })
        .unwrap_or_else(|found| panic!("{}", diagnostic::render(&found, false)));
    system::read(&toml, "imported", &()).unwrap_or_else(|found| panic!("{found:#?}"))
}

const SET: &str = include_str!("../../../fuzz/seeds/import_poet/curves");

#[test]
fn curves_become_distances_and_their_horizon_the_distance_of_all_jobs() {
    let system = read(SET);
    let root = &system.roots[0];
    let distances: Vec<Vec<u64>> = (root.sources.iter())
        .filter_map(|source| match &source.arrivals {
            Arrivals::Curve { distances, .. } => {
                Some((0..6).map(|n| distances.distance(n)).collect())
            }
            _ => None,
        })
        .collect();
    // Two at once, a third 104 later, the fourth 220 after the first.
    assert_eq!(distances, [[0, 0, 104, 220, 220, 324], [0, 40, 90, 130, 180, 220]]);
    assert!(matches!(root.sources[2].arrivals, Arrivals::Sporadic { .. }));
    let mut priorities = Vec::new();
    for (_, node) in root.tree.nodes() {
        match &node.spec {
            NodeSpec::Scheduler(spec) => assert!(!spec.preemptive && spec.policy.name() == "fp"),
            NodeSpec::Task(spec) => priorities.push((spec.priority, spec.deadline.as_ns())),
        }
    }
    assert_eq!(priorities, [(1, 180), (0, 300), (0, 90)]);
    // The same lists in the other style.
    let flow = SET.replace(
        "  arrival curve:\n  - 90\n  - - - 1\n      - 1\n    - - 41\n      - 2\n",
        "  arrival curve: [90,[[1,1],[41,2]]]\n",
    );
    assert_ne!(flow, SET);
    assert_eq!(read(&flow).roots[0].sources, root.sources);
}

fn entries() -> Vec<Entry> {
    table::entries(include_str!("malformed/poet.txt"))
}

fn complaints(file: &[u8]) -> Vec<Diagnostic> {
    let text = std::str::from_utf8(file).expect("text");
    poet(File { origin: "set.yaml", text }).err().unwrap_or_default()
}

#[test]
fn every_malformed_set_is_refused_with_place_reason_and_remedy() {
    let entries = entries();
    table::check(&entries, complaints);
    assert!(entries.iter().all(|entry| !entry.expected.is_empty()) && entries.len() >= 15);
}
