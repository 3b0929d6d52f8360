//! The laboratory on real threads, small: what it measures it measures, and says so in numbers and
//! pictures. Numbers this small are not judged here, but by order: what must cost more, and what
//! can't be.

use crate::harness::{Ended, Scratch, run, run_program};
use serde_json::Value;
use std::path::Path;
use talea_kernel_tests::{Bench, Runs, needs, needs_root};

fn lab(scratch: &Scratch, arguments: &[&str]) -> String {
    let ended = run(scratch, arguments);
    assert_eq!(ended.code, Some(code_of(&ended.out)), "{arguments:?}: {}{}", ended.out, ended.err);
    ended.out
}

/// Runs `talea`, which lies beside `talea-lab` when the workspace has been built.
fn talea(scratch: &Scratch, arguments: &[&str]) -> Ended {
    run_program(scratch, &Path::new(crate::PROGRAM).with_file_name("talea"), arguments)
}

fn talea_is_built() -> bool {
    Path::new(crate::PROGRAM).with_file_name("talea").is_file()
}

/// Expected exit code of an experiment: its thresholds are in lines of text, or in JSON.
fn code_of(out: &str) -> i32 {
    if out.contains("FAIL") || out.contains("\"passed\": false") { 7 } else { 0 }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn s8_l1_l5_what_the_executor_costs_is_measured_beside_the_same_by_hand() {
    needs_root!();
    let _bench = Bench::new("lab_exec");
    let scratch = Scratch::new();
    let answer: Value =
        serde_json::from_str(&lab(&scratch, &["exec", "--quick", "--json"])).expect("JSON");
    let cost = &answer["cost"];
    for (ours, empty) in cost["one"]
        .as_array()
        .expect("rounds")
        .iter()
        .zip(cost["empty_us"].as_array().expect("rounds"))
    {
        assert!(number(empty) > 0.0 && number(&ours["dispatcher_us"]) > 0.0, "{cost}");
        // One wake a job: never two, and fewer where a worker is awake by itself, or the machine
        // stood still and several came at once.
        let wakes = number(&ours["wakes"]);
        assert!((0.0..1.1).contains(&wakes), "{wakes}");
    }
    let count = |of: &Value| of.as_u64().expect("a count");
    for (number, who) in ["by_hand", "in_a_tree"].into_iter().enumerate() {
        let within = count(&answer["wake"]["stalls"][number]);
        assert!(count(&answer["wake"][who]["count"]) + within >= 190, "{}", answer["wake"]);
    }
    // By the kernel's word, whatever the machine does meanwhile.
    assert_eq!(answer["slots"]["overlaps"], 0, "{}", answer["slots"]);
    let budget = &answer["budget"];
    assert!(
        count(&budget["overrun"]["count"]) + count(&budget["budgets_in_stalls"]) > 20,
        "{budget}"
    );
    let share = number(&answer["budget"]["share_percent"]);
    assert!(share > 1.0 && share < 4.0, "a fiftieth: {share}");
    assert!(answer["thresholds"].as_array().is_some_and(|thresholds| thresholds.len() > 10));
}

#[test]
fn s6_s8_s9_random_sets_are_run_and_drawn() {
    needs_root!();
    let _bench = Bench::new("lab_sf3p_sets");
    let scratch = Scratch::new();
    let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).expect(name);
    // The share of a set is null if its run is inconclusive. Two of three sets must have one.
    let conclusive = Runs::at_least(1).repeat(|| {
        let out = lab(&scratch, &["sf3p", "fig7", "--live", "--sets", "1", "--seconds", "1"]);
        let data: Value = serde_json::from_str(&read("sf3p-fig7-live.json")).expect("JSON");
        let rows = data["rows"].as_array().expect("rows").iter();
        let known = rows.filter(|row| row["other"].is_number()).count();
        (known >= 2).then_some((out, data))
    });
    let (out, data) = conclusive.expect("one conclusive run");
    assert!(out.contains("SCHEDULER %") && out.contains("SF3P here"), "{out}");
    assert!(read("sf3p-fig7-live.svg").contains("SF3P Fig. 7"));
    let rows = data["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 3, "a set under three policies");
    for row in rows {
        assert!(number(&row["cost"]["share"]) > 0.0, "{row}");
        // No more is used than there is (SF3P's defect D13).
        let other = row["other"].as_f64();
        assert!(other.is_none_or(|other| (0.0..1.0).contains(&other)), "{row}");
        assert!(row["jobs"].as_u64() >= row["excluded"].as_u64(), "{row}");
    }
    let refused = run(&scratch, &["sf3p", "fig8"]);
    assert!(refused.code != Some(0) && refused.err.contains("--live"), "{}", refused.err);
}

#[test]
fn s1_l12_the_six_examples_are_held_to_their_simulation_and_to_their_bounds() {
    needs_root!();
    let _bench = Bench::new("lab_sf3p_six");
    let scratch = Scratch::new();
    let six = || lab(&scratch, &["sf3p", "six", "--live", "--seconds", "1"]);
    let said = |out: &str| out.matches("nine of ten are").count();
    // The lab reports an example with too many stalls as inconclusive. Three must be conclusive.
    let conclusive = Runs::at_least(1).repeat(|| Some(six()).filter(|out| said(out) >= 3));
    let out = conclusive.expect("one conclusive run");
    assert_eq!(said(&out) + out.matches(": no run says anything\n").count(), 6, "{out}");
    let data = std::fs::read_to_string(scratch.path().join("sf3p-six-live.json")).expect("data");
    let data: Value = serde_json::from_str(&data).expect("JSON");
    assert_eq!(
        data["thresholds"].as_array().map(Vec::len),
        Some(7),
        "one for each, and one for bounds"
    );
    let rows = data["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 6);
    for row in rows {
        assert!(row["jobs"].as_u64().is_some_and(|jobs| jobs > 20), "{row}");
        let apart = &row["apart"];
        // What a stall has touched is left out; nothing is left where the machine stood still for
        // long.
        if apart["jobs"].as_u64() > Some(0) {
            assert!(number(&apart["median_us"]) <= number(&apart["p90_us"]), "{row}");
            assert!(number(&apart["p90_us"]) <= number(&apart["most_us"]), "{row}");
        }
    }
}

#[test]
fn s10_s11_levels_and_the_flight_management_are_run_and_reported_beside_the_paper() {
    needs_root!();
    let _bench = Bench::new("lab_sf3p_table");
    let scratch = Scratch::new();
    let out = lab(&scratch, &["sf3p", "fig9", "--live", "--sets", "1", "--seconds", "1"]);
    assert!(out.contains("a further level, per job"), "{out}");
    let out = lab(&scratch, &["sf3p", "table2", "--live", "--sets", "1", "--seconds", "1"]);
    assert!(out.contains("0/28/0") && out.contains("late of clear"), "{out}");
    let data = std::fs::read_to_string(scratch.path().join("sf3p-table2-live.json")).expect("data");
    let data: Value = serde_json::from_str(&data).expect("JSON");
    let rows = data["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 6, "three configurations at two costs");
    let late = |config: &str, cost: &str| -> u64 {
        let of =
            rows.iter().find(|row| row["config"] == config && row["cost"] == cost).expect("a run");
        let groups = of["groups"].as_array().expect("B, D, A").iter();
        groups.map(|group| group["late"].as_u64().expect("a number")).sum()
    };
    for config in ["c1", "c2"] {
        // At average cost there is room for all, but for what a stall takes; at worst there is none
        // for D.
        let (average, worst) = (late(config, "average"), late(config, "worst"));
        assert!(average < worst, "{config}: {average} and {worst} late");
    }
}

#[test]
fn y18_the_drone_flies_in_every_kind_of_version_beside_the_simulation_of_its_own_file() {
    let _bench = Bench::new("lab_yasmin_fig5");
    talea_kernel_tests::needs!("two CPUs", talea_kernel_tests::kernel::cpus().iter().count() >= 2);
    let scratch = Scratch::new();
    let out = lab(&scratch, &["yasmin", "fig5", "--live", "--quick"]);
    assert!(out.contains("FRAMES late %") && out.contains("PAPER, late"), "{out}");
    let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).expect(name);
    let data: Value = serde_json::from_str(&read("yasmin-fig5-live.json")).expect("JSON");
    let rows = data["configurations"].as_array().expect("configurations");
    assert_eq!(rows.len(), 6, "two configurations of each kind");
    assert_eq!(read("yasmin-fig5-live.svg").matches("<circle").count(), 6);
    let late = |versions: &str, who: &str| -> u64 {
        let of = rows.iter().filter(|row| row["versions"] == versions);
        of.map(|row| row[who]["frames_late"].as_u64().expect("a count")).sum()
    };
    // What follows from what the functions cost here: neither kind alone keeps up, both together
    // do.
    assert!(late("CPU", "simulated") > 0 && late("GPU", "simulated") > 0, "{data:#}");
    assert_eq!(late("both", "simulated"), 0, "{data:#}");
    // On threads a stalled computer makes any job late, but fewer of those that have slack.
    for alone in ["CPU", "GPU"] {
        assert!(late(alone, "measured") > late("both", "measured"), "{alone}: {data:#}");
    }
    for row in rows {
        let frames = row["measured"]["frames"].as_u64().expect("a count")
            + row["left_out"].as_u64().expect("one");
        assert!((8..=12).contains(&frames), "the camera is on from the third of 14 on: {row:#}");
    }
    // The file that the drone says of itself is one like any other.
    needs!("talea beside talea-lab (cargo build --workspace)", talea_is_built());
    let again = talea(&scratch, &["simulate", "search-and-rescue.toml"]);
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
    assert!(again.out.contains("encode") && again.out.contains("handler"), "{}", again.out);
    needs_root!();
    let compared = || talea(&scratch, &["compare", "search-and-rescue.toml", "--duration", "1s"]);
    // A stall may contradict, or make a run inconclusive; a wrong schedule contradicts each time.
    let agrees =
        Runs::at_least(1).repeat(|| Some(compared()).filter(|ended| ended.code == Some(0)));
    let compared = agrees.expect("bound, simulation and threads agree").out;
    assert!(compared.contains("encode") && compared.contains("handler"), "{compared}");
}

#[test]
fn y18_y22_the_drone_of_an_ordinary_user_is_explored_with_the_daemons_rights_or_reports_none() {
    use std::os::unix::process::CommandExt;
    use talea_kernel_tests::{ALICE, Daemon, config, kernel};
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("lab_yasmin_user");
    let program = bench.path("talea");
    talea_kernel_tests::bench::copy(crate::PROGRAM, &program);
    let folder = bench.path("results");
    std::fs::create_dir(&folder).expect("a folder");
    std::os::unix::fs::chown(&folder, Some(ALICE), Some(ALICE)).expect("root may");
    let explores = |socket: &std::path::Path| {
        let mut command = std::process::Command::new(&program);
        command.args(["yasmin", "fig5", "--live", "--quick", "--out"]).arg(&folder);
        command.env("TALEA_SOCKET", socket).current_dir("/").uid(ALICE).gid(ALICE);
        let output = command.output().expect("it is started");
        let [out, err] =
            [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        assert_eq!(output.status.code(), Some(code_of(&out)), "{out}{err}");
        let data = std::fs::read_to_string(folder.join("yasmin-fig5-live.json")).expect("data");
        let data: Value = serde_json::from_str(&data).expect("JSON");
        (out, data["configurations"].as_array().expect("configurations").clone())
    };
    let rule = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"fp\"\nmax_priority = 52\nallow_unbounded = true\n"
    );
    let mut daemon = Daemon::start(&bench, &config::common_levels_with_rules(&rule));
    let (out, rows) = explores(daemon.socket());
    assert!(
        out.contains("priorities that talead has granted")
            && out.contains("Stalls are not monitored"),
        "{out}"
    );
    assert!(
        rows.iter().all(|row| row["is_real_time"] == true && row["rights"] == "daemon"),
        "{rows:#?}"
    );
    daemon.terminate();
    let (out, rows) = explores(std::path::Path::new("/nonexistent"));
    assert!(out.contains("Flown without real-time priorities, for want of rights"), "{out}");
    assert!(
        rows.iter().all(|row| row["is_real_time"] == false && row["rights"] == "none"),
        "{rows:#?}"
    );
}

#[test]
fn y16_y17_latencies_and_overheads_are_measured_beside_plain_threads() {
    needs_root!();
    let _bench = Bench::new("lab_yasmin_thresholds");
    talea_kernel_tests::needs!("two CPUs", talea_kernel_tests::kernel::cpus().iter().count() >= 2);
    let scratch = Scratch::new();
    let read = |name: &str| -> Value {
        let text = std::fs::read_to_string(scratch.path().join(name)).expect(name);
        serde_json::from_str(&text).expect("JSON")
    };
    let out = lab(&scratch, &["yasmin", "table2", "--quick"]);
    assert!(
        out.contains("talea-runtime") && out.contains("preemption against a futex hand-over"),
        "{out}"
    );
    let data = read("yasmin-table2.json");
    for row in data["rows"].as_array().expect("rows") {
        assert!(number(&row["least"]) <= number(&row["mean"]), "{row}");
        assert!(number(&row["mean"]) <= number(&row["largest"]), "{row}");
    }
    let of = |who: &str| {
        data["rows"].as_array().expect("rows").iter().filter(|row| row["who"] == who).count()
    };
    assert_eq!(of("talea-runtime"), of("FIFO, absolute sleep"), "{data:#}");
    assert!(of("talea-runtime") > 0);
    // A hand-over needs no timer: a thread that waits for one is not faster.
    let median = |what: &str| number(&data["reactions"][what]["summary"]["median_ns"]);
    assert!(median("hand_over") > 0.0 && median("hand_over") < median("preemption"), "{data:#}");
    let out = lab(&scratch, &["yasmin", "fig2", "--quick"]);
    assert!(out.contains("120 tasks") && out.contains("its growth from 20 to 120 tasks"), "{out}");
    let data = read("yasmin-fig2.json");
    for row in data["rows"].as_array().expect("rows") {
        for who in ["ours", "plain"] {
            assert!(
                number(&row[who]["workers"]) > 0.0 && row[who]["jobs"].as_u64() > Some(20),
                "{row}"
            );
        }
        // Each job needs a decision, and a dispatcher makes it.
        assert!(number(&row["ours"]["dispatchers"]) > 0.0, "{row}");
        // Overhead of one job: by CPU time between two jobs of a thread, and by the clock of its
        // dispatcher; plain threads have none.
        for who in ["ours", "plain"] {
            let of = |what: &str| number(&row[who][what]);
            assert!(0.0 < of("between_p99") && of("between_p99") <= of("between_most"), "{row}");
        }
        let step = |who: &str| number(&row[who]["step_most"]);
        assert!(step("ours") > 0.0 && step("plain") == 0.0, "{row}");
    }
    assert!(out.contains("a step, most") && out.contains("at time zero the whole set"), "{out}");
    for picture in ["yasmin-fig2.svg", "yasmin-fig2-utilisation.svg"] {
        let text = std::fs::read_to_string(scratch.path().join(picture)).expect(picture);
        assert!(text.contains("talea-runtime, most expensive job"), "{picture}");
    }
    assert_eq!(data["thresholds"].as_array().map(Vec::len), Some(2));
}
