//! Cases of practitioners (`tests/cases`): analyses, simulations and imports.
//!
//! The name of a test begins with the name of its file.

use crate::harness::{Ended, Scratch, json, run};
use serde_json::Value;

/// Returns the path of a case.
pub(crate) fn case(name: &str) -> String {
    format!("{}/../../tests/cases/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn command(name: &str, arguments: &[&str]) -> Ended {
    let file = case(name);
    let (command, options) = arguments.split_first().expect("a command");
    run(&Scratch::new(), &[&[*command, &file][..], options].concat())
}

fn tasks(answer: &Value) -> Vec<Value> {
    answer["roots"][0]["tasks"].as_array().expect("tasks").clone()
}

fn ms(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no time")) / 1e6
}

/// Returns the bounds of a file in milliseconds; `None` for a task that is not proved.
fn bounds(name: &str) -> Vec<(String, Option<f64>)> {
    let ended = command(name, &["analyze", "--json"]);
    let bound = |task: &Value| (task["verdict"] == "proved").then(|| ms(&task["bound_ns"]));
    let named = |task: &Value| (task["name"].as_str().expect("a name").to_owned(), bound(task));
    tasks(&json(&ended.out)).iter().map(named).collect()
}

/// Asserts that each task of a file is proved, with these bounds in milliseconds at most.
fn is_proved(name: &str, expected: &[f64]) {
    let found = bounds(name);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((task, bound), expected) in found.iter().zip(expected) {
        assert!(bound.is_some_and(|bound| bound <= *expected), "{task}: {bound:?}, {expected}");
    }
}

/// Imports a file of rt-app.
fn imported(name: &str) -> String {
    let ended = command(name, &["import"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    ended.out
}

/// Simulates an imported file.
fn simulated(text: &str) -> Vec<Value> {
    let scratch = Scratch::new();
    scratch.file("imported.toml", text);
    let ended = run(&scratch, &["simulate", "imported.toml", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    tasks(&json(&ended.out))
}

#[test]
fn offset_zero_toml_is_proved_by_the_schedule_of_its_phases() {
    is_proved("reports/offset-zero.toml", &[3.0, 7.0]);
    // A common shift of all offsets changes no verdict.
    let scratch = Scratch::new();
    let text = std::fs::read_to_string(case("reports/offset-zero.toml")).expect("the case");
    for offset in ["1ns", "1ms", "5ms"] {
        let shifted = text.replace("offset = \"0\"", &format!("offset = \"{offset}\""));
        scratch.file("shifted.toml", &shifted);
        let ended = run(&scratch, &["analyze", "shifted.toml", "--json"]);
        for task in tasks(&json(&ended.out)) {
            assert_eq!(task["verdict"], "proved", "{offset}: {task}");
        }
    }
}

#[test]
fn offsets_order_toml_is_feasible_with_its_phases() {
    is_proved("reports/offsets-order.toml", &[1.0, 2.0, 6.0, 9.0, 14.0, 30.0]);
}

#[test]
fn resource_none_top_toml_bounds_the_task_that_locks_nothing() {
    let found = bounds("reports/resource-none-top.toml");
    assert!(found[0].0 == "top" && found[0].1.is_some_and(|bound| bound <= 10.0), "{found:?}");
}

#[test]
fn jitter_beyond_period_toml_has_a_bound_of_its_bursts() {
    // The first one of two jobs that are released together, 18 ms after its arrival.
    is_proved("reports/jitter-beyond-period.toml", &[21.0]);
}

#[test]
fn pinned_and_free_fp_toml_has_bounds_of_pinned_tasks_and_of_those_that_migrate() {
    let found = bounds("reports/pinned-and-free-fp.toml");
    let has_bound = |task: &str| found.iter().any(|(name, bound)| name == task && bound.is_some());
    let proved = found.iter().filter(|(_, bound)| bound.is_some()).count();
    println!("{proved} of {} tasks are proved", found.len());
    assert!(proved >= 13, "{found:?}");
    // `t01` is pinned to CPU 1, `t06` to CPU 0, and `t10` migrates.
    assert!(["t01", "t06", "t10"].into_iter().all(has_bound), "{found:?}");
}

#[test]
fn late_deadlines_smp_toml_has_the_tardiness_of_devi_and_anderson() {
    is_proved("reports/late-deadlines-smp.toml", &[16.0; 3]);
}

#[test]
fn deadline_smp_json_is_imported_and_proved() {
    let text = imported("reports/deadline-smp.json");
    let scratch = Scratch::new();
    scratch.file("imported.toml", &text);
    let ended = run(&scratch, &["analyze", "imported.toml", "--json"]);
    let found = tasks(&json(&ended.out));
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|task| task["verdict"] == "proved"), "{found:?}");
    assert!(simulated(&text).iter().all(|task| task["completed"] == 125 && task["late"] == 0));
}

#[test]
fn deadline_smp_by_hand_toml_is_proved_on_its_reservations() {
    is_proved("reports/deadline-smp-by-hand.toml", &[16.0; 3]);
}

#[test]
fn deadline_no_cpus_json_is_refused_with_the_assumption_of_one_cpu() {
    let ended = command("reports/deadline-no-cpus.json", &["import"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    for words in ["the file names no CPUs, and one is assumed", "`--cpus 2`"] {
        assert!(ended.err.contains(words), "{words}: {}", ended.err);
    }
    // The remedy helps.
    let ended = command("reports/deadline-no-cpus.json", &["import", "--cpus", "2"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
}

#[test]
fn dl_period_default_json_has_the_runtime_as_period() {
    let text = imported("reports/dl-period-default.json");
    for line in ["budget = \"5ms\"\n", "period = \"5ms\"\n"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(simulated(&text)[0]["completed"] == 100);
}

#[test]
fn fair_slice_json_notes_that_a_slice_is_left_out() {
    let text = imported("reports/fair-slice.json");
    assert!(text.contains("# Note: `dl-runtime` of a fair thread is left out"), "{text}");
}

#[test]
fn taskgroup_in_phase_json_notes_that_the_group_is_left_out() {
    let text = imported("reports/taskgroup-in-phase.json");
    assert!(text.contains("# Note: `taskgroup` is left out"), "{text}");
}

#[test]
fn shared_timer_json_has_one_timer_for_both_threads() {
    let text = imported("reports/shared-timer.json");
    assert!(text.contains("# Note: the timer `tick` is shared"), "{text}");
    let found = simulated(&text);
    // In a second, each thread has one of two expiries, and both share the first one.
    let arrived: Vec<_> = found.iter().map(|task| task["arrived"].as_u64()).collect();
    assert_eq!(arrived, [Some(51), Some(50)]);
}

#[test]
fn timer_only_phase_json_has_arrivals_that_are_as_far_apart_as_the_timer_says() {
    let text = imported("reports/timer-only-phase.json");
    assert!(text.contains("arrivals = [\"1200ms\", \"2400ms\", \"3600ms\", \"4800ms\"]"), "{text}");
    assert_eq!(simulated(&text)[0]["completed"], 4);
}

/// Asserts the late jobs of the groups B, D and A of SF3P's Table II, in thousandths.
fn is_table_ii(name: &str, expected: [u64; 3]) {
    let ended = command(&format!("papers/{name}"), &["simulate", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let answer = json(&ended.out);
    for (group, expected) in ["B", "D", "A"].into_iter().zip(expected) {
        let (mut due, mut late) = (0, 0);
        for task in tasks(&answer)
            .iter()
            .filter(|task| task["name"].as_str().expect("a name").starts_with(group))
        {
            due += answer["duration_ns"].as_u64().expect("a time")
                / task["period_ns"].as_u64().expect("a time");
            late += task["late"].as_u64().expect("a number");
        }
        let thousandths = (1_000 * late + due / 2) / due;
        assert_eq!(thousandths, expected, "{group}");
    }
}

#[test]
fn fms_c1_avg_toml_has_no_late_job() {
    is_table_ii("fms-c1-avg.toml", [0; 3]);
}

#[test]
fn fms_c2_avg_toml_has_no_late_job() {
    is_table_ii("fms-c2-avg.toml", [0; 3]);
}

#[test]
fn fms_c3_avg_toml_has_no_late_job() {
    is_table_ii("fms-c3-avg.toml", [0; 3]);
}

#[test]
fn fms_c1_worst_toml_has_the_late_jobs_of_table_ii() {
    is_table_ii("fms-c1-worst.toml", [0, 286, 0]);
}

#[test]
fn fms_c2_worst_toml_has_the_late_jobs_of_table_ii() {
    is_table_ii("fms-c2-worst.toml", [225, 254, 0]);
}

#[test]
fn fms_c3_worst_toml_has_the_late_jobs_of_table_ii() {
    is_table_ii("fms-c3-worst.toml", [51, 63, 122]);
}

#[test]
fn dag1_toml_has_bounds_of_a_graph_beside_a_task() {
    is_proved("papers/dag1.toml", &[100.0, 100.0, 100.0, 20.0]);
}

#[test]
fn yasmin_default_toml_has_bounds_with_migration_at_job_boundaries() {
    is_proved("papers/yasmin_default.toml", &[10.0, 20.0, 50.0]);
}

#[test]
fn acc1_toml_has_bounds_with_an_accelerator() {
    is_proved("papers/acc1.toml", &[50.0, 60.0, 100.0]);
}

#[test]
fn acc_5193_toml_orders_holders_of_one_inherited_key_by_the_documented_rule() {
    let scratch = Scratch::new();
    let file = case("papers/acc-5193.toml");
    let ended = run(&scratch, &["simulate", &file, "--csv", "jobs.csv"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let jobs = std::fs::read_to_string(scratch.path().join("jobs.csv")).expect("jobs");
    let expected = std::fs::read_to_string(case("papers/acc-5193.csv")).expect("the case");
    assert_eq!(jobs, expected);
    // Which holder runs is the first of the order of section 1 of the model.
    let model = std::fs::read_to_string(case("../../docs/model.md")).expect("the model");
    assert!(model.contains("| two holders that inherit one key | they are equals"));
}

#[test]
fn l6_srv_in_tdma_toml_is_refused_because_a_time_partition_has_no_reservation() {
    for verb in ["analyze", "simulate", "execute"] {
        let ended = command("papers/srv_in_tdma.toml", &[verb]);
        assert_eq!(ended.code, Some(2), "{}{}", ended.out, ended.err);
        let said = format!("{}{}", ended.out, ended.err);
        for words in [
            "`s` can't be scheduled like this",
            "a reservation must be in the system partition; a time partition has its slots",
            "put the server beside the table, and give it a priority",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}
