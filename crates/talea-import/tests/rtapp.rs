//! Import of rt-app's JSON. An imported task runs as rt-app would run it alone. A construct that a
//! task cannot express is refused with its position.

#[path = "../../talea-config/tests/common/table.rs"]
mod table;

use table::Entry;
use talea_config::{Diagnostic, diagnostic};
use talea_core::Time;
use talea_import::{File, rtapp};
use talea_sim::{Jobs, Simulation};
use talea_system::{self as system, System};

fn import(text: &str, cpus: Option<u32>) -> String {
    rtapp(File { origin: "load.json", text }, cpus)
        .unwrap_or_else(|found| panic!("{}", diagnostic::render(&found, false)))
}

fn read(text: &str) -> System {
    system::read(text, "imported", &())
        .unwrap_or_else(|found| panic!("{}\n{text}", diagnostic::render(&found, false)))
}

/// Returns the completion times of the jobs of a task, in microseconds.
fn ends(system: &System, name: &str) -> Vec<u64> {
    let (root, task) = system
        .roots
        .iter()
        .find_map(|root| Some((root, root.tasks.iter().position(|task| task == name)?)))
        .expect("a task of this name");
    let mut jobs = Jobs::default();
    let machine = root.tree.build().expect("a tree");
    let load = root.workload(system.seed);
    Simulation::new(machine, root.tree.cpus, &load).run(Time::ZERO + system.duration, &mut jobs);
    let ended = jobs.ended.iter().filter(|job| job.task.0 as usize == task);
    ended.map(|job| job.end.as_ns() / 1_000).collect()
}

/// Returns the system of a workload with one FIFO thread and a duration of 1 s.
fn one(thread: &str) -> System {
    let start =
        "{\"global\": {\"duration\": 1, \"default_policy\": \"SCHED_FIFO\"}, \"tasks\": {\"t\": {";
    read(&import(&format!("{start}{thread}}}}}}}"), None))
}

const TIMER: &str = "\"timer\": {\"ref\": \"unique\", \"period\": 10000, \"mode\": \"absolute\"}";

#[test]
fn repeated_and_suffixed_keys_are_events_in_the_order_of_the_file() {
    let system = one(&format!(
        "\"run\": 1000, \"sleep\": 2000, \"run\": 500, \"sleep0\": 1000, \"run1\": 250, {TIMER}"
    ));
    let ends = ends(&system, "t");
    assert_eq!(ends.len(), 100);
    assert_eq!(ends[..3], [4_750, 14_750, 24_750]);
}

#[test]
fn phases_and_loops_are_costs_one_after_the_other() {
    let phases = format!(
        "\"phases\": {{\"light\": {{\"loop\": 2, \"run\": 1000, {TIMER}}}, \"heavy\": {{\"run\": 4000, {TIMER}}}}}"
    );
    let ends = ends(&one(&phases), "t");
    assert_eq!(ends[..7], [1_000, 11_000, 24_000, 31_000, 41_000, 54_000, 61_000]);
}

#[test]
fn a_thread_that_ends_has_so_many_jobs_and_a_delay_is_their_offset() {
    let ends = ends(&one(&format!("\"loop\": 3, \"delay\": 5000, \"run\": 1000, {TIMER}")), "t");
    assert_eq!(ends, [6_000, 16_000, 26_000]);
}

#[test]
fn a_timer_in_front_waits_for_a_period_first_and_two_in_a_loop_are_two_jobs() {
    assert_eq!(ends(&one(&format!("{TIMER}, \"run\": 1000")), "t")[..2], [11_000, 21_000]);
    let two = format!("\"run\": 1000, {TIMER}, \"run2\": 3000, \"timer2\": {}", &TIMER[9..]);
    assert_eq!(ends(&one(&two), "t")[..4], [1_000, 13_000, 21_000, 33_000]);
}

#[test]
fn the_last_phase_may_go_on_for_ever() {
    let phases = format!(
        "\"phases\": {{\"a\": {{\"loop\": 2, \"run\": 1000, {TIMER}}}, \"b\": {{\"loop\": -1, \"run\": 2000, {TIMER}}}}}"
    );
    let ends = ends(&one(&phases), "t");
    assert_eq!((ends.len(), &ends[..4]), (100, &[1_000, 11_000, 22_000, 32_000][..]));
    assert_eq!(ends[99], 992_000);
}

/// In rt-app a run or a sleep begins when the thread reaches it.
#[test]
fn a_thread_without_timers_is_one_job_that_suspends_itself() {
    let start = "{\"global\": {\"duration\": 1, \"default_policy\": \"SCHED_FIFO\"}, \"tasks\": {";
    let low = "\"low\": {\"priority\": 5, \"loop\": 3, \"run\": 1000, \"sleep\": 2000}";
    let high = format!(
        "\"high\": {{\"priority\": 50, \"loop\": 1, \"delay\": 3500, \"run\": 1000, {TIMER}}}"
    );
    let system = read(&import(&format!("{start}{low}, {high}}}}}"), None));
    // Alone it would run at 0, 3 and 6 ms; from 3.5 to 4.5 the other one runs, so that its second
    // sleep begins at 5.
    assert_eq!(ends(&system, "low"), [8_000]);
    assert_eq!(ends(&system, "high"), [4_500]);
}

#[test]
fn locks_are_critical_sections_and_inherit_if_the_file_says_so() {
    let file = |pi: bool| {
        format!(
            "{{\"global\": {{\"duration\": 1, \"pi_enabled\": {pi}, \"default_policy\": \"SCHED_FIFO\"}}, \"tasks\": {{
            \"low\": {{\"priority\": 1, \"loop\": 1, \"lock\": \"m\", \"run\": 4000, \"unlock\": \"m\", {TIMER}}},
            \"mid\": {{\"priority\": 2, \"loop\": 1, \"delay\": 2000, \"run\": 5000, {TIMER}}},
            \"high\": {{\"priority\": 3, \"loop\": 1, \"delay\": 1000, \"lock\": \"m\", \"run\": 1000, \"unlock\": \"m\",
            {TIMER}}}}}}}"
        )
    };
    let system = |pi| read(&import(&file(pi), None));
    assert_eq!(ends(&system(true), "high"), [5_000], "as soon as low has given it back");
    assert_eq!(ends(&system(false), "high"), [10_000], "after mid and low");
}

#[test]
fn classes_are_a_tree_deadline_above_fixed_priorities_above_the_fair_class() {
    let thread = |name: &str, rest: &str| {
        format!("\"{name}\": {{{rest}, \"loop\": 1, \"run\": 4000, {TIMER}}}")
    };
    let threads = [
        thread("other", "\"policy\": \"SCHED_OTHER\""),
        thread("fifo", "\"policy\": \"SCHED_FIFO\", \"priority\": 30"),
        thread("rr", "\"policy\": \"SCHED_RR\", \"priority\": 40"),
        thread("dl", "\"policy\": \"SCHED_DEADLINE\", \"dl-runtime\": 4000, \"dl-period\": 10000"),
    ];
    let text = import(
        &format!("{{\"global\": {{\"duration\": 1}}, \"tasks\": {{{}}}}}", threads.join(", ")),
        None,
    );
    let system = read(&text);
    let last = ["dl", "rr", "fifo", "other"].map(|name| ends(&system, name)[0]);
    assert_eq!(last, [4_000, 8_000, 12_000, 16_000], "{text}");
}

#[test]
fn instances_cpus_and_the_size_of_the_machine_are_kept() {
    let thread = |name: &str, cpus: &str| {
        format!(
            "\"{name}\": {{\"policy\": \"SCHED_FIFO\", \"instance\": 2, \"cpus\": {cpus}, \"run\": 4000, {TIMER}}}"
        )
    };
    let file = |threads: &[String]| {
        format!("{{\"global\": {{\"duration\": 1}}, \"tasks\": {{{}}}}}", threads.join(", "))
    };
    // Pinned: a root for each CPU.
    let pinned = read(&import(&file(&[thread("a", "[0]"), thread("b", "[1]")]), None));
    assert_eq!(pinned.roots.iter().map(|root| root.tree.cpus).collect::<Vec<_>>(), [1, 1]);
    assert_eq!([ends(&pinned, "a1")[0], ends(&pinned, "b1")[0]], [8_000, 8_000]);
    // Not pinned: one for all.
    let shared = read(&import(&file(&[thread("a", "[0, 2]"), thread("b", "[1]")]), Some(4)));
    assert_eq!(shared.roots.iter().map(|root| root.tree.cpus).collect::<Vec<_>>(), [4]);
    assert_eq!([ends(&shared, "a1")[0], ends(&shared, "b1")[0]], [4_000, 8_000]);
}

#[test]
fn two_threads_of_one_name_are_two_tasks() {
    let thread = format!("\"t\": {{\"policy\": \"SCHED_FIFO\", \"run\": 1000, {TIMER}}}");
    let system = read(&import(&format!("{{\"tasks\": {{{thread}, {thread}}}}}"), None));
    assert_eq!(system.roots[0].tasks, ["t", "t.2"]);
}

#[test]
fn what_is_held_differently_is_said() {
    let thread = "\"t\": {\"priority\": 5, \"runtime\": 1000, \"timer\": {\"ref\": \"unique\", \"period\": 10000}}";
    let text = import(&format!("{{\"tasks\": {{{thread}}}}}"), None);
    for note in [
        "relative timers",
        "the fair class",
        "nice values",
        "`runtime` is CPU time",
        "names no CPUs",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with("# Note: ") && line.contains(note)),
            "{note}:\n{text}"
        );
    }
}

/// Features without an equivalent are reported, because results would differ.
#[test]
fn ends_queues_locks_and_groups_that_differ_are_said_too() {
    let notes = |threads: &str| {
        let text = import(
            &format!(
                "{{\"global\": {{\"default_policy\": \"SCHED_FIFO\"}}, \"tasks\": {{{threads}}}}}"
            ),
            None,
        );
        text.lines()
            .filter(|line| line.starts_with("# Note: "))
            .map(str::to_owned)
            .collect::<String>()
    };
    let timed = |rest: &str| format!("\"t\": {{{rest}, \"run\": 1000, {TIMER}}}");
    let ends = "ends after more than 10 s";
    assert!(notes(&timed("\"loop\": 1001")).contains(ends));
    assert!(!notes(&timed("\"loop\": 1000")).contains(ends));
    assert!(notes("\"t\": {\"loop\": 11, \"run\": 1000000}").contains(ends));
    assert!(!notes("\"t\": {\"loop\": 10, \"run\": 1000000}").contains(ends));
    let queue = "share a queue";
    let round = |priority: u8, cpus: &str| {
        let thread = format!(
            "\"u\": {{\"policy\": \"SCHED_RR\", \"priority\": {priority}, \"cpus\": {cpus}"
        );
        format!("{}, {thread}, \"run\": 1000, {TIMER}}}", timed("\"priority\": 10, \"cpus\": [0]"))
    };
    assert!(notes(&round(10, "[0]")).contains(queue));
    assert!(!notes(&round(11, "[0]")).contains(queue));
    assert!(!notes(&round(10, "[1]")).contains(queue));
    let lock = "given back at once";
    assert!(notes(&timed("\"lock\": \"m\", \"unlock\": \"m\"")).contains(lock));
    assert!(!notes(&timed("\"lock\": \"m\", \"run1\": 5, \"unlock\": \"m\"")).contains(lock));
    assert!(notes(&timed("\"taskgroup\": \"/a\"")).contains("groups of threads"));
    assert!(notes(&timed("\"nodes_membind\": [0]")).contains("memory is as near"));
}

#[test]
fn threads_beyond_a_limit_are_refused_with_the_limit() {
    let is = |thread: &str, part: &str| {
        let found = complaints(format!("{{\"tasks\": {{\"t\": {{{thread}}}}}}}").as_bytes());
        assert!(found.len() == 1 && found[0].what.contains(part), "{found:?}");
    };
    is("\"run\": 1", "more than 200000 things");
    is(
        "\"loop\": 1, \"phases\": {\"a\": {\"lock\": \"m\", \"run\": 1}, \"b\": {\"loop\": 100000, \"sleep\": \
         2592000000000}, \"c\": {\"run\": 1, \"unlock\": \"m\"}}",
        "more than 584 years",
    );
}

fn entries() -> Vec<Entry> {
    table::entries(include_str!("malformed/rtapp.txt"))
}

fn complaints(file: &[u8]) -> Vec<Diagnostic> {
    let text = std::str::from_utf8(file).expect("text");
    rtapp(File { origin: "load.json", text }, None).err().unwrap_or_default()
}

#[test]
fn s22_every_workload_that_can_not_be_held_is_refused_with_place_reason_and_remedy() {
    let entries = entries();
    table::check(&entries, complaints);
    assert!(entries.iter().filter(|entry| !entry.expected.is_empty()).count() >= 40);
}

/// Endless or frequent loops without work, which would be written without end.
#[test]
fn loops_and_sizes_are_bounded() {
    for thread in [
        "\"run\": 1, \"sleep\": 1",
        "\"loop\": 1000000000, \"lock\": \"m\", \"unlock\": \"m\", \"run\": 0, \"run1\": 1",
        "\"phases\": {\"a\": {\"loop\": 1000000000, \"lock\": \"m\", \"unlock\": \"m\"}, \"b\": {\"run\": 1}}",
        "\"phases\": {\"a\": {\"loop\": -1, \"lock\": \"m\", \"unlock\": \"m\"}}",
        "\"phases\": {\"a\": {\"loop\": 999999999, \"run\": 1, \"timer\": {\"ref\": \"t\", \"period\": 1}}, \"b\": {\"run\": \
         2, \"timer\": {\"ref\": \"t\", \"period\": 1}}}",
        "\"loop\": 1000000000, \"run\": 1, \"timer\": {\"ref\": \"t\", \"period\": 1}",
    ] {
        let file = format!("{{\"tasks\": {{\"t\": {{{thread}}}}}}}");
        assert!(!complaints(file.as_bytes()).is_empty(), "{thread}");
    }
    // Ten thousand copies, each with a list of ten thousand times: what is written stops at the
    // size of a file.
    let class = "\"policy\": \"SCHED_DEADLINE\", \"dl-runtime\": 5, \"dl-period\": 10";
    let thread = format!("{class}, \"instance\": 10000, \"loop\": 10000, \"run\": 1, {TIMER}");
    let found = complaints(format!("{{\"tasks\": {{\"t\": {{{thread}}}}}}}").as_bytes());
    assert!(
        found.iter().any(|found| found.what.contains("is larger than 1048576 bytes")),
        "{found:?}"
    );
    // As many threads of one name.
    let threads = vec!["\"t\":{\"run\":1,\"loop\":1}"; 10_000].join(",");
    let file =
        format!("{{\"global\":{{\"default_policy\":\"SCHED_FIFO\"}},\"tasks\":{{{threads}}}}}");
    let _ = complaints(file.as_bytes());
    assert!(!complaints(" ".repeat(2 << 20).as_bytes()).is_empty());
    assert!(!complaints("[".repeat(1 << 19).as_bytes()).is_empty());
}
