//! Tests of the import of SF3P's XML. SF3P's six examples run as in their hand tables (S1). The
//! import refuses a construct that a system file cannot express, with its position (S22).

#[path = "../../talea-config/tests/common/table.rs"]
mod table;

use table::Entry;
use talea_config::{Diagnostic, diagnostic};
use talea_core::Time;
use talea_import::{File, sf3p};
use talea_sim::{Jobs, Simulation};
use talea_system::{self as system, System};

const MS: u64 = 1_000_000;

fn import(name: &str, text: &str) -> String {
    sf3p(File { origin: name, text })
        .unwrap_or_else(|found| panic!("{}", diagnostic::render(&found, false)))
}

fn read(text: &str) -> System {
    system::read(text, "imported", &())
        .unwrap_or_else(|found| panic!("{}", diagnostic::render(&found, false)))
}

/// Returns the completion times of each worker's jobs in the file's duration, in milliseconds.
/// Checks that no job is late.
fn ends(name: &str, text: &str) -> Vec<Vec<u64>> {
    let system = read(&import(name, text));
    assert_eq!(system.duration.as_ns(), 1_000 * MS, "{name}");
    let [root] = &system.roots[..] else { panic!("{name} has one CPU") };
    let mut jobs = Jobs::default();
    let load = root.workload(system.seed);
    Simulation::new(root.tree.build().expect("a tree"), 1, &load)
        .run(Time::ZERO + system.duration, &mut jobs);
    // In the order of the file, whatever tree they stand in.
    let mut found = vec![Vec::new(); root.tasks.len()];
    for job in &jobs.ended {
        assert!(!job.is_late(), "{name}: {job:?}");
        let number = root.tasks[job.task.0 as usize].trim_start_matches("worker").parse::<usize>();
        found[number.expect("a number")].push(job.end.as_ns() / MS);
    }
    found
}

fn every(period: u64, first: u64, jobs: u64) -> Vec<u64> {
    (0..jobs).map(|job| first + job * period).collect()
}

#[test]
fn s1_s18_s23_the_six_examples_end_when_their_hand_tables_say() {
    assert_eq!(
        ends("edf.xml", include_str!("sf3p/edf.xml")),
        [every(100, 40, 10), every(100, 60, 10), every(100, 20, 10)]
    );
    let in_turn = [every(71, 40, 14), every(71, 21, 14), every(71, 59, 14)];
    assert_eq!(ends("fifo.xml", include_str!("sf3p/fifo.xml")), in_turn);
    assert_eq!(ends("fixedpriority.xml", include_str!("sf3p/fixedpriority.xml")), in_turn);
    assert_eq!(
        ends("fixedprioritytop.xml", include_str!("sf3p/fixedprioritytop.xml")),
        [every(51, 18, 20), every(51, 9, 20), every(51, 27, 20), every(51, 36, 19)]
    );
    let tdma = ends("tdma.xml", include_str!("sf3p/tdma.xml"));
    assert_eq!(
        [&tdma[0][..3], &tdma[1][..3], &tdma[2][..3]],
        [[19, 100, 231], [44, 119, 194], [69, 144, 219]]
    );
    let top = ends("tdmatop.xml", include_str!("sf3p/tdmatop.xml"));
    assert_eq!([&top[0][..2], &top[1][..2]], [[18, 68], [9, 59]]);
    assert_eq!([&top[2][..2], &top[3][..2]], [[34, 84], [43, 93]]);
}

const AROUND: (&str, &str) =
    ("<simulation><runnable type=\"scheduler\" algorithm=\"FIFO\">", "</runnable></simulation>");

fn with(worker: &str) -> String {
    import("one.xml", &format!("{}{worker}{}", AROUND.0, AROUND.1))
}

#[test]
fn s14_jitter_offset_and_aperiodic_workers_are_held() {
    let text = with(
        "<runnable type=\"worker\" periodicity=\"periodic_jitter\" task=\"busy_wait\"><period value=\"10\" \
         units=\"ms\"/><jitter value=\"900\" units=\"us\"/><offset value=\"0\" units=\"sec\"/><wcet value=\"1\" \
         units=\"ms\"/></runnable><runnable type=\"worker\" periodicity=\"aperiodic\" task=\"busy_wait\"><release_time \
         value=\"7\" units=\"ms\"/><release_time value=\"0\" units=\"ms\"/><wcet value=\"1\" units=\"ms\"/></runnable>",
    );
    for line in [
        "jitter = \"900us\"",
        "offset = \"0\"",
        "deadline = \"100ms\"",
        "arrivals = [\"0\", \"7ms\"]",
        "# Note: a worker without a <relative_deadline> has SF3P's, 100 ms",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
    }
    read(&text);
}

/// Defect D8: SF3P's own reading of the file below orders by 100 ms for both.
#[test]
fn sf3p_d8_rate_monotonic_orders_by_the_period_of_the_worker_and_says_so() {
    let worker = |period: u64| {
        format!(
            "<runnable type=\"worker\" periodicity=\"periodic\" task=\"busy_wait\"><period value=\"{period}\" \
             units=\"ms\"/><wcet value=\"1\" units=\"ms\"/></runnable>"
        )
    };
    let text = format!(
        "<simulation><runnable type=\"scheduler\" algorithm=\"RateMonotonic\">{}{}</runnable></simulation>",
        worker(50),
        worker(10)
    );
    let text = import("rm.xml", &text);
    assert!(
        text.contains("policy = \"rm\"") && text.contains("# Note: RateMonotonic orders by"),
        "{text}"
    );
}

/// A scheduler in between does not hide the criteria of a worker.
#[test]
fn who_orders_by_a_period_or_a_deadline_asks_at_any_distance() {
    let under = |algorithm: &str, criteria: &str| {
        format!(
            "<simulation><runnable type=\"scheduler\" algorithm=\"{algorithm}\"><runnable type=\"scheduler\" \
             algorithm=\"FIFO\"><runnable type=\"worker\" periodicity=\"periodic\" task=\"busy_wait\"><period \
             value=\"100\" units=\"ms\"/><wcet value=\"1\" units=\"ms\"/><relative_deadline value=\"60\" \
             units=\"ms\"/>{criteria}</runnable></runnable></runnable></simulation>"
        )
    };
    let period = "<criteria type=\"inclusive\"><period value=\"20\" units=\"ms\"/></criteria>";
    let found = complaints(under("RateMonotonic", period).as_bytes());
    assert!(
        found.len() == 1 && found[0].what.contains("scheduled by a period of 20ms"),
        "{found:?}"
    );
    assert_eq!(complaints(under("FIFO", period).as_bytes()), [], "no scheduler reads it");
    let text = import("edf.xml", &under("EDF", ""));
    assert!(text.contains("# Note: EDF orders by the workers' deadlines"), "{text}");
    let same =
        "<criteria type=\"inclusive\"><relative_deadline value=\"60\" units=\"ms\"/></criteria>";
    assert!(!import("edf.xml", &under("EDF", same)).contains("# Note: "));
}

fn entries() -> Vec<Entry> {
    table::entries(include_str!("malformed/sf3p.txt"))
}

fn complaints(file: &[u8]) -> Vec<Diagnostic> {
    let text = std::str::from_utf8(file).expect("text");
    sf3p(File { origin: "sf3p.xml", text }).err().unwrap_or_default()
}

#[test]
fn s22_sf3p_d6_d10_every_malformed_file_is_refused_with_place_reason_and_remedy() {
    let entries = entries();
    table::check(&entries, complaints);
    assert!(entries.iter().filter(|entry| !entry.expected.is_empty()).count() >= 30);
}

/// Neither elements in elements nor large files break anything.
#[test]
fn depth_and_size_are_bounded() {
    let open = "<runnable type=\"scheduler\" algorithm=\"EDF\">";
    for depth in [10, 200, 20_000] {
        let text = format!(
            "<simulation>{}{}</simulation>",
            open.repeat(depth),
            "</runnable>".repeat(depth)
        );
        assert!(!complaints(text.as_bytes()).is_empty());
    }
    assert!(!complaints(" ".repeat(2 << 20).as_bytes()).is_empty());
    assert!(!complaints("<a>".repeat(100_000).as_bytes()).is_empty());
    let bomb =
        "<!DOCTYPE a [<!ENTITY b \"ha\"><!ENTITY c \"&b;&b;\">]><simulation>&c;</simulation>";
    assert!(!complaints(bomb.as_bytes()).is_empty());
}
