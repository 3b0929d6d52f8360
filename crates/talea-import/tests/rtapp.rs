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

/// Returns the system of FIFO threads, on one CPU for 200 ms or as many seconds as `duration` says.
fn fifo(duration: u32, threads: &str) -> System {
    read(&import(
        &format!(
            "{{\"global\": {{\"duration\": {duration}, \"default_policy\": \"SCHED_FIFO\"}}, \"tasks\": {{{threads}}}}}"
        ),
        None,
    ))
}

/// Each use of a shared timer moves its expiry, so each of two threads has every second one.
#[test]
fn s22_threads_that_name_one_timer_share_its_expiries() {
    let thread = |name: &str, priority: u8, timer: &str| {
        format!(
            "\"{name}\": {{\"priority\": {priority}, \"run\": 1000, \"timer\": {{\"ref\": \"{timer}\", \"period\": 10000, \
             \"mode\": \"absolute\"}}}}"
        )
    };
    let shared = fifo(1, &[thread("a", 20, "tick"), thread("b", 10, "tick")].join(","));
    assert_eq!(ends(&shared, "a")[..4], [1_000, 11_000, 31_000, 51_000]);
    assert_eq!(ends(&shared, "b")[..4], [2_000, 21_000, 41_000, 61_000]);
    // The more urgent one uses it first, wherever it stands.
    let turned = fifo(1, &[thread("b", 10, "tick"), thread("a", 20, "tick")].join(","));
    assert_eq!(ends(&turned, "a")[..2], [1_000, 11_000]);
    let own = fifo(1, &[thread("a", 20, "uniqueA"), thread("b", 10, "uniqueA")].join(","));
    assert_eq!(ends(&own, "b")[..3], [2_000, 12_000, 22_000]);
    let alone = fifo(1, &thread("a", 20, "tick"));
    assert_eq!(ends(&alone, "a")[..3], [1_000, 11_000, 21_000]);
    let copies = fifo(1, &thread("a", 20, "tick").replace("\"run\"", "\"instance\": 2, \"run\""));
    assert_eq!(ends(&copies, "a1")[..3], [2_000, 21_000, 41_000]);
}

/// rt-app walks from event to event: a boundary of a phase or of a loop is none of a job.
#[test]
fn s22_a_phase_or_a_loop_is_no_boundary_of_a_job() {
    let timer = |period: u32| format!("\"timer\": {{\"ref\": \"unique\", \"period\": {period}}}");
    let phases = |text: &str| one(&format!("\"phases\": {{{text}}}"));
    let apart = format!("\"a\": {{{}}}, \"b\": {{\"run\": 2000}}", timer(50_000));
    let together = format!("{}, \"run\": 2000", timer(50_000));
    assert_eq!(ends(&phases(&apart), "t")[..3], [52_000, 102_000, 152_000]);
    assert_eq!(ends(&one(&together), "t"), ends(&phases(&apart), "t"));
    // The part behind the last timer belongs to the next loop.
    let around = format!("\"run\": 1000, {}, \"run1\": 3000", timer(50_000));
    assert_eq!(ends(&one(&around), "t")[..3], [1_000, 54_000, 104_000]);
    // A timer without work leaves an arrival out.
    let every_fifth = format!(
        "\"a\": {{\"run\": 1000, {}}}, \"b\": {{\"loop\": 4, {}}}",
        timer(6_000),
        timer(6_000)
    );
    let system = phases(&every_fifth);
    assert_eq!(ends(&system, "t")[..3], [1_000, 31_000, 61_000]);
    assert_eq!(system.roots[0].workload(1).sources.len(), 1);
    // One timer with two periods.
    let uneven = format!(
        "\"a\": {{\"run\": 1000, {}}}, \"b\": {{\"run\": 2000, {}}}",
        timer(10_000),
        timer(30_000)
    );
    assert_eq!(ends(&phases(&uneven), "t")[..4], [1_000, 12_000, 41_000, 52_000]);
    // Period 0 is rt-app's default: the timer never waits.
    let zero = format!("\"run\": 1000, {}, \"run1\": 500, {}", timer(0), timer(10_000));
    assert_eq!(ends(&one(&zero), "t")[..2], [1_500, 11_500]);
}

/// A value that equals the default, or stands in a phase, is the same as none.
#[test]
fn s22_a_value_that_equals_the_default_or_stands_in_a_phase_is_the_same_value() {
    let same = |one: &str, other: &str| {
        let file = |thread: &str| format!("{{\"tasks\": {{\"t\": {{{thread}}}}}}}");
        let plain = |text: String| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(plain(import(&file(one), None)), plain(import(&file(other), None)), "{one}");
    };
    let work = format!("\"run\": 1000, {TIMER}");
    let phase = |properties: &str| format!("\"phases\": {{\"p\": {{{properties} {work}}}}}");
    for properties in [
        "\"policy\": \"SCHED_FIFO\", \"priority\": 20,",
        "\"policy\": \"SCHED_DEADLINE\", \"dl-runtime\": 2000, \"dl-period\": 9000,",
        "\"cpus\": [0],",
        "\"taskgroup\": \"/a\",",
        "\"util_min\": 5,",
    ] {
        same(&format!("{properties} {work}"), &phase(properties));
        same(&format!("{properties} {work}"), &format!("{properties} {}", phase(properties)));
    }
    for default in [
        "\"policy\": \"SCHED_OTHER\",",
        "\"priority\": 0,",
        "\"delay\": 0,",
        "\"loop\": -1,",
        "\"instance\": 1,",
    ] {
        same(&work, &format!("{default} {work}"));
    }
    let deadline = "\"policy\": \"SCHED_DEADLINE\", \"dl-runtime\": 5000";
    same(&format!("{deadline}, {work}"), &format!("{deadline}, \"dl-period\": 5000, {work}"));
    same(
        &format!("{deadline}, \"dl-period\": 9000, {work}"),
        &format!("{deadline}, \"dl-period\": 9000, \"dl-deadline\": 9000, \"priority\": 0, {work}"),
    );
    // In a second phase, what the first has.
    let two = format!(
        "\"phases\": {{\"p\": {{{work}}}, \"q\": {{\"policy\": \"SCHED_OTHER\", {work}}}}}"
    );
    same(&work, &two);
}

#[test]
fn s22_what_is_left_out_has_a_note() {
    let notes = |thread: &str| {
        import(&format!("{{\"tasks\": {{\"t\": {{{thread}, \"run\": 1000, {TIMER}}}}}}}"), None)
    };
    let has = |thread: &str, note: &str| {
        let text = notes(thread);
        assert!(
            text.lines().any(|line| line.starts_with("# Note: ") && line.contains(note)),
            "{text}"
        );
    };
    has("\"dl-runtime\": 100000", "it is the slice of the thread");
    has("\"dl-period\": 100000", "it has no effect");
    has("\"membind_nodes\": [0]", "memory is as near");
    has("\"timer0\": {\"ref\": \"x\"}", "it never waits");
    let deadline = "\"policy\": \"SCHED_DEADLINE\", \"dl-runtime\": 5000";
    has(&format!("{deadline}, \"priority\": 7"), "it has none");
    let text = import(
        &format!(
            "{{\"tasks\": {{\"t\": {{\"run\": 1, {TIMER}}}, \"u\": {{\"instance\": 0, \"run\": 1}}}}}}"
        ),
        None,
    );
    assert!(text.contains("# Note: a thread with 0 instances is left out"), "{text}");
    assert_eq!(read(&text).roots[0].tasks, ["t"]);
}

/// Reservations of the deadline class alone are global EDF, as in the kernel.
#[test]
fn s22_the_deadline_class_on_several_cpus_is_one_edf_root_of_reservations() {
    let thread = "\"w\": {\"instance\": 3, \"cpus\": [0, 1], \"dl-runtime\": 4000, \"dl-period\": 16000, \"run\": 3000,";
    let file = format!(
        "{{\"global\": {{\"duration\": 1, \"default_policy\": \"SCHED_DEADLINE\"}}, \"tasks\": {{{thread} {}}}}}}}",
        TIMER.replace("10000", "16000")
    );
    let system = read(&import(&file, None));
    assert_eq!(system.roots.iter().map(|root| root.tree.cpus).collect::<Vec<_>>(), [2]);
    assert_eq!(["w0", "w1", "w2"].map(|name| ends(&system, name)[0]), [3_000, 3_000, 6_000]);
}

/// A thread that waits runs when another wakes it, in the middle of that thread's job.
#[test]
fn s22_a_thread_that_resumes_another_in_its_job_activates_it_there() {
    let threads = |high: u8| {
        format!(
            "\"a\": {{\"priority\": 20, \"run\": 1000, \"resume\": \"b\", \"run1\": 2000, {TIMER}}},
             \"b\": {{\"priority\": {high}, \"suspend\", \"run\": 4000}}"
        )
    };
    let after = fifo(1, &threads(10));
    assert_eq!(
        [ends(&after, "a.1")[1], ends(&after, "a.2")[1], ends(&after, "b")[1]],
        [11_000, 13_000, 17_000]
    );
    let at_once = fifo(1, &threads(30));
    assert_eq!([ends(&at_once, "b")[1], ends(&at_once, "a.2")[1]], [15_000, 17_000]);
    assert_eq!(ends(&after, "b").len(), 100);
    // Under a lock, at its end.
    let locked = threads(30).replace(
        "\"resume\": \"b\", \"run1\": 2000",
        "\"lock\": \"m\", \"resume\": \"b\", \"run1\": 2000, \"unlock\": \"m\"",
    );
    assert_eq!(ends(&fifo(1, &locked), "b")[0], 7_000);
}

/// Two threads that hand work to each other within a period, as through a queue with a mutex.
#[test]
fn s22_waits_and_signals_of_two_threads_are_channels_in_their_order() {
    let threads = format!(
        "\"tick\": {{\"priority\": 30, \"resume\": \"decoder\", {TIMER}}},
         \"decoder\": {{\"priority\": 20, \"suspend\", \"run\": 1000, \"lock\": \"m\", \"sync\": {{\"ref\": \"q\",
         \"mutex\": \"m\"}}, \"unlock\": \"m\", \"run1\": 150}},
         \"device\": {{\"priority\": 10, \"lock\": \"m\", \"wait\": {{\"ref\": \"q\", \"mutex\": \"m\"}}, \"unlock\": \"m\",
         \"run\": 300, \"lock1\": \"m\", \"signal\": \"q\", \"unlock1\": \"m\"}}"
    );
    let system = fifo(1, &threads);
    let end = |name: &str| ends(&system, name)[1];
    assert_eq!([end("decoder.1"), end("device"), end("decoder.2")], [11_000, 11_300, 11_450]);
    // A semaphore does the same.
    let posts = threads
        .replace("\"resume\": \"decoder\"", "\"sem_post\": \"s\"")
        .replace("\"suspend\"", "\"sem_wait\": \"s\"");
    assert_eq!(ends(&fifo(1, &posts), "decoder.2")[1], 11_450);
    // `broad` and `resume` wake all that wait.
    let all = format!(
        "\"tick\": {{\"priority\": 30, \"run\": 100, \"broad\": \"c\", {TIMER}}},
         \"u\": {{\"priority\": 20, \"instance\": 2, \"suspend\": \"c\", \"run\": 1000}}"
    );
    let system = fifo(1, &all);
    assert_eq!([ends(&system, "u0")[1], ends(&system, "u1")[1]], [11_100, 12_100]);
}

/// Behind a barrier each thread continues when the last one has reached it.
#[test]
fn s22_a_barrier_is_channels_from_each_part_to_each() {
    let thread = |name: &str, priority: u8, run: u32, timer: &str| {
        format!(
            "\"{name}\": {{\"priority\": {priority}, \"run\": {run}, \"barrier\": \"x\", \"run1\": 500{timer}}}"
        )
    };
    let timer = format!(", {TIMER}");
    let timed = [thread("m", 30, 1_000, &timer), thread("n", 20, 2_000, &timer)].join(",");
    let system = fifo(1, &timed);
    let second = |name: &str| ends(&system, name)[1];
    assert_eq!(["m.1", "n.1", "m.2", "n.2"].map(second), [11_000, 13_000, 13_500, 14_000]);
    // Without timers the rounds follow each other; a sleep in front of a barrier counts.
    let sleeps = "\"s\": {\"priority\": 10, \"sleep\": 9000, \"barrier\": \"x\", \"run\": 1000}";
    let free = fifo(1, &[thread("m", 30, 1_000, "").as_str(), sleeps].join(","));
    // `s` begins to sleep when `m` has reached the barrier.
    let near = |name: &str, end: u64| {
        let found = ends(&free, name)[0];
        assert!((end..end + 3).contains(&found), "{name}: {found}");
    };
    near("m.1", 1_000);
    near("m.2", 11_500);
    near("s.2", 21_500);
    near("m.3", 23_000);
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
    let class = "\"policy\": \"SCHED_DEADLINE\", \"dl-runtime\": 5, \"dl-period\": 1000000";
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
    // Many copies of a long thread, and many threads with a list each.
    let runs = "\"run\": 1, ".repeat(5_000);
    let thread =
        format!("\"instance\": 10000, {runs} \"timer\": {{\"ref\": \"tick\", \"period\": 10000}}");
    let found = complaints(format!("{{\"tasks\": {{\"t\": {{{thread}}}}}}}").as_bytes());
    assert!(found[0].what.contains("have more than 20000 events"), "{found:?}");
    let thread = "\"t\":{\"run\":1,\"timer\":{\"ref\":\"unique\",\"period\":500},\"run1\":1}";
    let file = format!(
        "{{\"global\":{{\"duration\":4}},\"tasks\":{{{}}}}}",
        vec![thread; 5_000].join(",")
    );
    assert!(complaints(file.as_bytes())[0].what.contains("is larger than 1048576 bytes"));
    assert!(!complaints(" ".repeat(2 << 20).as_bytes()).is_empty());
    assert!(!complaints("[".repeat(1 << 19).as_bytes()).is_empty());
}
