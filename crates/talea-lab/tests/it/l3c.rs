//! L3C's experiments on real threads, in their short form. The claims are the lab's own; CPU stalls
//! make a run inconclusive, and the test repeats it.

use crate::harness::{Scratch, run};
use serde_json::Value;
use talea_kernel_tests::{Bench, Runs, kernel, needs, needs_root};

/// Runs `talea-lab l3c FIGURE --live` until the claims hold, and returns them with their rows, or
/// `None` if the machine cannot run it. `figure` may have options behind it.
fn lived(figure: &str, file: &str, plots: &[&str], rows: &[&str]) -> Option<Value> {
    let scratch = Scratch::new();
    let mut words = vec!["l3c"];
    words.extend(figure.split(' '));
    words.extend(["--live", "--quick", "--out", "."]);
    let conclusive = Runs::at_least(1).repeat(|| {
        let ended = run(&scratch, &words);
        println!("{}{}", ended.out, ended.err);
        (ended.code != Some(6)).then_some(ended)
    });
    let ended = conclusive.expect("one conclusive run");
    // Without programs as tasks the lab measures nothing.
    if ended.code == Some(3) {
        return None;
    }
    let answer: Value = serde_json::from_str(
        &std::fs::read_to_string(scratch.path().join(file)).expect("the file of raw data"),
    )
    .expect("JSON");
    let verdict = answer["verdict"].as_str().expect("a verdict");
    assert_eq!((ended.code, verdict), (Some(0), "holds"), "{}{}", ended.out, ended.err);
    for column in ["PAPER", "BOUND", "SIMULATED", "MEASURED"] {
        assert!(
            ended.out.lines().next().is_some_and(|head| head.contains(column)),
            "{}",
            ended.out
        );
    }
    for plot in plots {
        let plot = std::fs::read_to_string(scratch.path().join(plot)).expect("a plot");
        assert!(plot.starts_with("<svg") && plot.matches("stroke-linejoin").count() >= 2, "{plot}");
    }
    let claims = answer["claims"].as_array().expect("claims");
    for row in rows {
        assert!(claims.iter().any(|claim| claim["row"] == *row), "{row}: {claims:?}");
    }
    Some(answer)
}

fn ns(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no time"))
}

#[test]
fn l7_the_example_of_figure_4_ends_on_real_threads_when_the_simulation_says() {
    needs_root!();
    let _bench = Bench::new("cli_l3c_fig4");
    let answer = lived("fig4", "l3c-fig4-live.json", &["l3c-fig4-live.svg"], &["L7"])
        .expect("no programs in it");
    assert_eq!(answer["rows"].as_array().map(Vec::len), Some(22), "eleven jobs, twice");
}

#[test]
fn l14_figure_5_latency_on_real_threads_is_linear_in_the_slot_and_short_slots_cost_throughput() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("cli_l3c_fig5");
    let plots = ["l3c-fig5-live.svg"];
    let answer = lived("fig5", "l3c-fig5-live.json", &plots, &["L14"]);
    needs!("programs as tasks", answer.is_some());
    let answer = answer.expect("just asked");
    let rows = answer["rows"].as_array().expect("rows");
    let slots: Vec<u64> = rows.iter().map(|row| ns(&row["slot_ms"])).collect();
    assert_eq!(slots, [1, 2, 5, 10, 20, 50]);
    for row in rows.iter().filter(|row| !row["measured_max_ns"].is_null()) {
        // Each request is answered by the server, and a request just after the slot waits for the
        // next slot.
        let slot = ns(&row["slot_ms"]) * 1_000_000;
        assert!(ns(&row["measured_median_ns"]) >= 600_000, "{row}");
        assert!(ns(&row["measured_max_ns"]) >= slot, "{row}");
    }
}

#[test]
fn l15_figure_6_latency_on_real_threads_rises_with_what_is_above_and_stays_below_its_bound() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("cli_l3c_fig6");
    let answer = lived("fig6", "l3c-fig6-live.json", &["l3c-fig6-live.svg"], &["L15"]);
    needs!("programs as tasks", answer.is_some());
    let rows = answer.expect("just asked")["rows"].clone();
    // Without anything above the bound is the service; with half a CPU the one of the oracle, 144.2
    // ms.
    assert_eq!(ns(&rows[0]["bound_ns"]), 1_000_000);
    assert_eq!(ns(&rows[5]["bound_ns"]) / 100_000, 1_442);
}

#[test]
fn l16_l17_l18_figures_7_and_8_bursts_break_on_real_threads_what_a_reservation_keeps() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("cli_l3c_fig7");
    let plots = ["l3c-fig7-live.svg", "l3c-fig8-live.svg"];
    let answer = lived("fig7", "l3c-fig7-8-live.json", &plots, &["L16", "L17", "L18"]);
    needs!("programs as tasks", answer.is_some());
    let answer = answer.expect("just asked");
    assert_eq!(answer["rows"].as_array().map(Vec::len), Some(4));
    // Two burst scenarios: a thousand requests each, beside the normal ones.
    for row in answer["rows"].as_array().expect("rows").iter().skip(2) {
        assert!(row["tasks"][2]["jobs"].as_array().is_some_and(|jobs| jobs.len() > 1_000), "{row}");
    }
}

/// Whether the programs of a deployment are beside `talea-lab`.
fn is_built() -> bool {
    let own = std::path::Path::new(crate::PROGRAM);
    let is_beside = |name: &&str| own.with_file_name(name).is_file();
    ["talea", "talea-deployd", "talea-governor"].iter().all(is_beside)
}

#[test]
fn d33_figures_7_and_8_bursts_break_for_deployed_programs_what_a_reservation_keeps() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("talea-deployd beside talea-lab (cargo build --workspace)", is_built());
    let _bench = Bench::new("cli_l3c_fig7_deployed");
    let plots = ["l3c-fig7-deployed-live.svg", "l3c-fig8-deployed-live.svg"];
    let answer = lived("fig7 --deployed", "l3c-fig7-8-deployed-live.json", &plots, &["D33"]);
    needs!("governed programs", answer.is_some());
    let rows = answer.expect("just asked")["rows"].clone();
    let late = |scenario: usize, task: usize| ns(&rows[scenario]["tasks"][task]["measured_late"]);
    for task in [0, 1] {
        assert!(late(2, task) > 0, "bursts: {rows}");
        assert_eq!([0, 1, 3].map(|scenario| late(scenario, task)), [0; 3], "{rows}");
    }
}

#[test]
fn lab_all_keeps_what_is_done_and_goes_on_where_it_stopped() {
    let scratch = Scratch::new();
    let all = |more: &[&str]| {
        run(&scratch, &[&["all", "--out", "all", "--only", "l3c-fig4"], more].concat())
    };
    let line = |out: &str, name: &str| {
        let found = out.lines().find(|line| line.split_whitespace().next() == Some(name));
        found.unwrap_or_else(|| panic!("no {name}:\n{out}")).to_owned()
    };
    let listed = all(&["--list"]);
    assert!(line(&listed.out, "l3c-fig4-bounds").contains("not yet"), "{}", listed.out);
    // What needs rights and time is left out: it counts as made.
    scratch.file("all/l3c-fig4-live.exit", "0\n");
    let first = all(&["--quick"]);
    assert_eq!(first.code, Some(0), "{}{}", first.out, first.err);
    for name in ["l3c-fig4", "l3c-fig4-bounds"] {
        assert!(
            line(&first.out, name).contains("done") && !line(&first.out, name).contains("kept"),
            "{}",
            first.out
        );
        assert!(scratch.path().join(format!("all/{name}.txt")).is_file());
    }
    let text =
        std::fs::read_to_string(scratch.path().join("all/l3c-fig4.txt")).expect("what it printed");
    assert!(text.contains("(b) RESERVATIONS"), "{text}");
    // One that was interrupted has no end; one that said nothing is asked again.
    std::fs::remove_file(scratch.path().join("all/l3c-fig4.exit")).expect("it was written");
    scratch.file("all/l3c-fig4-bounds.exit", "6\n");
    let second = all(&["--quick"]);
    assert!(!line(&second.out, "l3c-fig4").contains("kept"), "{}", second.out);
    assert!(!line(&second.out, "l3c-fig4-bounds").contains("kept"), "{}", second.out);
    assert!(line(&second.out, "l3c-fig4-live").contains("kept"), "{}", second.out);
    let third = all(&["--quick"]);
    assert!(line(&third.out, "l3c-fig4").contains("kept"), "{}", third.out);
    let nothing = run(&scratch, &["all", "--out", "all", "--only", "unknown"]);
    assert_eq!(nothing.code, Some(2), "{}", nothing.err);
}
