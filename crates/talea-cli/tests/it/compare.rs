//! `talea compare`: bound, simulation and real threads.
//!
//! CPU stalls make a run inconclusive; such a run is repeated. A contradiction is a failure.

use crate::execute::SYSTEM;
use crate::harness::{Ended, Scratch, json, run};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use talea_core::{CpuSet, Span};
use talea_kernel_tests::{Bench, Runs, kernel, needs, needs_root};
use talea_os::sched::{Attr, Policy};
use talea_os::{Tid, clock, sched};

/// Compares until the result is conclusive.
pub(crate) fn compared(scratch: &Scratch, arguments: &[&str]) -> Ended {
    compared_in(&mut Runs::at_least(1), scratch, arguments).expect("one conclusive run")
}

/// Compares as one of the runs of a test. Returns the result if it is conclusive.
pub(crate) fn compared_in(runs: &mut Runs, scratch: &Scratch, arguments: &[&str]) -> Option<Ended> {
    runs.repeat(|| compared_once(scratch, arguments))
}

/// Compares once. Returns the result if it is conclusive.
pub(crate) fn compared_once(scratch: &Scratch, arguments: &[&str]) -> Option<Ended> {
    let ended = run(scratch, &[&["compare"], arguments].concat());
    let Ended { code, out, err } = &ended;
    assert!(matches!(code, Some(0 | 6)), "{arguments:?}: {code:?}\n{out}{err}");
    (ended.code == Some(0)).then_some(ended)
}

#[test]
fn s18_l12_real_responses_are_within_bounds_and_simulated_ranges() {
    needs_root!();
    let _bench = Bench::new("cli_compare");
    let scratch = Scratch::new();
    scratch.file("system.toml", SYSTEM);
    let ended = compared(
        &scratch,
        &["system.toml", "--duration", "400ms", "--json", "--repeat", "2", "--html", "page.html"],
    );
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(answer["runs"].as_array().map(Vec::len), Some(2));
    for task in answer["roots"][0]["tasks"].as_array().expect("tasks") {
        let ns = |name: &str| task[name].as_u64();
        let (bound, simulated) =
            (ns("bound_ns").expect("a bound"), ns("simulated_max_ns").expect("a run"));
        assert!(simulated <= bound, "{task}");
        let measured = ns("measured_max_ns").expect("jobs that count");
        assert!(measured <= bound + bound / 10 + 2_000_000, "{task}");
        assert!(
            ns("measured_median_ns") <= Some(measured) && ns("measured_p99_ns") <= Some(measured)
        );
    }
    // Dispatchers use CPU time, and less than jobs do.
    let overhead = answer["runs"][0]["roots"][0]["scheduler_ppm"].as_u64().expect("an overhead");
    assert!(overhead > 0 && overhead < 200_000, "{overhead}");
    let page = std::fs::read_to_string(scratch.path().join("page.html")).expect("a page");
    for word in ["cpu0, simulated", "cpu0, measured", "simulated late"] {
        assert!(page.contains(word), "{word}");
    }
    // The page's own script, if node is installed.
    scratch.file("stage.js", include_str!("stage.js"));
    let played = std::process::Command::new("node")
        .args([scratch.path().join("stage.js"), scratch.path().join("page.html")])
        .output();
    if let Ok(played) = played {
        assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stderr));
    }
}

#[test]
fn l21_two_cpus_have_two_tables_and_both_hold() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("cli_compare_two");
    let scratch = Scratch::new();
    let mut text = "duration = \"400ms\"\n".to_owned();
    for (cpu, frame) in [("left", 20), ("right", 14)] {
        let _ = write!(
            text,
            "[[scheduler]]\nname = \"{cpu}\"\npolicy = \"partitions\"\nframe = \"{frame}ms\"\n\
             [[scheduler.slot]]\nowner = \"{cpu}-a\"\nlength = \"6ms\"\n\
             [[scheduler.slot]]\nowner = \"{cpu}-b\"\nlength = \"6ms\"\n"
        );
        for part in ["a", "b"] {
            let _ = write!(
                text,
                "[[scheduler]]\nname = \"{cpu}-{part}\"\nin = \"{cpu}\"\npolicy = \"edf\"\n[[task]]\n\
                 name = \"{cpu}-{part}-task\"\nin = \"{cpu}-{part}\"\nperiod = \"{}ms\"\ncost = \"7ms\"\n",
                4 * frame
            );
        }
    }
    scratch.file("two.toml", &text);
    let ended = compared(&scratch, &["two.toml", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(answer["roots"].as_array().map(Vec::len), Some(2));
}

#[test]
fn l11_every_shipped_system_is_executed_without_contradiction() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("cli_compare_shipped");
    let scratch = Scratch::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/systems");
    let mut compared_files = 0;
    let mut runs = Runs::at_least(8);
    for entry in std::fs::read_dir(folder).expect("examples") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("text");
        if !text.contains("[[scheduler]]") {
            continue;
        }
        let name = path.to_str().expect("UTF-8");
        if text.contains("cpus = 4") && kernel::cpus().len() < 4 {
            let refused = run(&scratch, &["compare", name]);
            assert_eq!(refused.code, Some(3), "{}", refused.err);
            continue;
        }
        if compared_in(&mut runs, &scratch, &[name, "--duration", "400ms"]).is_none() {
            println!("{name}: inconclusive");
        }
        compared_files += 1;
    }
    assert!(compared_files >= 11);
}

/// Takes slices of its CPU above all priorities, like a hypervisor. Each slice is too short for the
/// stall monitor.
struct CpuThief {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CpuThief {
    const SLICE: Span = Span::from_ns(120_000);
    const PAUSE: Span = Span::from_ns(600_000);
    /// Time limit that is independent of the test.
    const TIME_LIMIT: Span = Span::from_ns(20_000_000_000);

    fn on(cpu: u32) -> CpuThief {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let end = clock::now() + CpuThief::TIME_LIMIT;
            sched::set_affinity(Tid::current(), &CpuSet::single(cpu)).expect("its CPU");
            let policy = Policy::Fifo(99);
            sched::set(Tid::current(), &Attr::plain(policy)).expect("the highest priority");
            while !stopped.load(Ordering::Relaxed) && clock::now() < end {
                clock::sleep_until(clock::now() + CpuThief::PAUSE);
                let until = clock::now() + CpuThief::SLICE;
                while clock::now() < until {}
            }
        });
        CpuThief { stop, thread: Some(thread) }
    }
}

impl Drop for CpuThief {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(
            std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()),
            "the thread panicked"
        );
    }
}

#[test]
fn l11_cpu_time_lost_in_slices_contradicts_nothing() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("cli_compare_slices");
    let scratch = Scratch::new();
    // A job that has a millisecond to spare in its entry; the next entry comes 20 ms later.
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/systems/table.toml");
    let thread = CpuThief::on(kernel::cpus().iter().next().expect("a CPU"));
    let ended = run(&scratch, &["compare", table.to_str().expect("UTF-8"), "--json"]);
    drop(thread);
    assert_eq!(ended.code, Some(6), "{}{}", ended.out, ended.err);
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    let found = &answer["runs"][0]["roots"][0];
    assert_eq!(found["agrees"], true, "{}{}", ended.out, ended.err);
    let count = |of: &str| found[of].as_u64().expect("a number");
    assert!(count("excluded") * 20 > count("jobs"), "{found}");
}

#[test]
fn without_priorities_the_report_says_so() {
    needs_root!();
    let _bench = Bench::new("cli_compare_gates");
    let scratch = Scratch::new();
    scratch.file("system.toml", SYSTEM);
    let ended =
        run(&scratch, &["compare", "system.toml", "--mechanism", "signal", "--html", "page.html"]);
    // The kernel schedules ordinary threads, so every verdict is valid.
    assert!(matches!(ended.code, Some(0 | 1 | 6)), "{}", ended.err);
    assert!(ended.out.contains("guarantee nothing"), "{}", ended.out);
    let page = std::fs::read_to_string(scratch.path().join("page.html")).expect("a page");
    assert!(
        page.contains("without real-time priorities") && page.contains("measured (best effort)")
    );
}

#[test]
fn l20_a_file_with_a_program_is_compared_by_what_holds_independent_of_the_program() {
    needs_root!();
    needs!("groups in cgroup v2", talea_os::cgroup::mount_point().is_some());
    let _bench = Bench::new("cli_compare_programs");
    let scratch = Scratch::new();
    // A program without limit, in the server, between two tasks.
    let boxed = SYSTEM.replace(
        "\"requests\"",
        "\"hog\"\nprogram = [\"sha1sum\", \"/dev/zero\"]\nuser = \"root\"",
    );
    scratch.file("boxed.toml", &boxed);
    let answer = json(&compared(&scratch, &["boxed.toml", "--json"]).out);
    let root = &answer["roots"][0];
    assert_eq!((&root["programs"][0], &root["programs_are_held"]), (&"hog".into(), &true.into()));
    assert_eq!(answer["runs"][0]["roots"][0]["mechanism"], "priority and freeze");
    let bound = |at: usize| root["tasks"][at]["bound_within_reason_ns"].as_u64();
    assert!(bound(0).is_some() && bound(1).is_none() && bound(2).is_some(), "{root}");
    // No job of the other tasks is excluded because of the program, nor checked against a
    // simulation of it.
    assert_eq!(answer["runs"][0]["roots"][0]["instants"], 0);
    // Without a server above it, its CPU time is unlimited.
    let free = boxed.replace("in = \"net\"", "in = \"cpu0\"\npriority = 5");
    scratch.file("free.toml", &free);
    let report = compared(&scratch, &["free.toml", "--duration", "200ms"]);
    assert!(
        report.out.contains("hog is a program") && report.out.contains("no server limits it"),
        "{}",
        report.out
    );
    let gone = boxed.replace("sha1sum", "no-such-program-anywhere");
    scratch.file("gone.toml", &gone);
    let refused = run(&scratch, &["compare", "gone.toml"]);
    assert_eq!(refused.code, Some(3), "{}", refused.err);
}
