//! Import of partition schedules of a653rs-linux: windows, and every malformed file.

#[path = "../../talea-config/tests/common/table.rs"]
mod table;

use table::Entry;
use talea_core::engine::NodeSpec;
use talea_core::sched::PolicySpec;
use talea_import::{File, a653};
use talea_system::{self as system, Diagnostic, diagnostic};

const SCHEDULE: &str = include_str!("../../../fuzz/seeds/import_a653/two_periods");

#[test]
fn each_window_of_the_frame_is_a_slot() {
    let toml = a653(File { origin: "schedule.yaml", text: SCHEDULE })
        .unwrap_or_else(|found| panic!("{}", diagnostic::render(&found, false)));
    let system = system::read(&toml, "imported", &()).unwrap_or_else(|found| panic!("{found:#?}"));
    let root = &system.roots[0];
    let mut policies = root.tree.nodes().filter_map(|(_, node)| match &node.spec {
        NodeSpec::Scheduler(spec) => Some(&spec.policy),
        NodeSpec::Task(_) => None,
    });
    let Some(PolicySpec::Partitions { frame, slots, lending: false }) = policies.next() else {
        panic!("a table of partitions: {toml}");
    };
    let ms = |span: talea_core::Span| span.as_ns() / 1_000_000;
    let slots: Vec<_> =
        slots.iter().map(|slot| (ms(slot.start), ms(slot.end), slot.owner)).collect();
    assert_eq!((ms(*frame), slots), (40, vec![(0, 5, 0), (5, 15, 1), (20, 25, 0)]));
    let programs: Vec<_> = root.programs.iter().flatten().map(|words| words.join(" ")).collect();
    assert_eq!(programs, ["sample", "filter"]);
    assert_eq!(root.tasks, ["sample", "filter.2"]);
    assert!(toml.contains("# Note: `channel` is not imported"), "{toml}");
    assert!(toml.contains("# Note: `sockets` is not imported"), "{toml}");
}

fn entries() -> Vec<Entry> {
    table::entries(include_str!("malformed/a653.txt"))
}

fn complaints(file: &[u8]) -> Vec<Diagnostic> {
    let text = std::str::from_utf8(file).expect("text");
    a653(File { origin: "schedule.yaml", text }).err().unwrap_or_default()
}

#[test]
fn every_malformed_schedule_is_refused_with_place_reason_and_remedy() {
    let entries = entries();
    table::check(&entries, complaints);
    assert!(entries.iter().all(|entry| !entry.expected.is_empty()) && entries.len() >= 12);
}
