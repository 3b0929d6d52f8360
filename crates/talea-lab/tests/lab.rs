//! The laboratory, small: everything that it measures it can measure, and it says so in numbers and
//! pictures.
//!
//! What is measured is not judged here: numbers this small say nothing.
#![forbid(unsafe_code)]

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

macro_rules! needs {
    ($what:expr, $have:expr) => {
        if !$have {
            assert!(
                std::env::var_os("TALEA_KERNEL_TESTS").is_none_or(|v| v != "required"),
                "{} is missing",
                $what
            );
            eprintln!("skipped: needs {}", $what);
            return;
        }
    };
}

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs `talea-lab …`; the daemon lies beside it when the workspace has been built.
fn lab(arguments: &[&str]) -> Output {
    let output =
        Command::new(env!("CARGO_BIN_EXE_talea-lab")).args(arguments).output().expect("talea-lab");
    // What must be reached may be missed by numbers this small; then the exit code says so, and
    // nothing else may be wrong.
    let out = String::from_utf8_lossy(&output.stdout);
    let expected = if out.contains("FAIL") || out.contains("\"passed\": false") { 7 } else { 0 };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(expected), "{arguments:?}: {said}");
    output
}

fn talead_is_built() -> bool {
    PathBuf::from(env!("CARGO_BIN_EXE_talea-lab")).with_file_name("talead").is_file()
}

#[test]
fn r34_every_operation_of_every_plugin_is_measured_beside_its_baseline() {
    needs!("root", root());
    needs!("talead beside talea-lab (cargo build --workspace)", talead_is_built());
    let output = lab(&["ipc", "--quick", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = answer["rows"].as_array().expect("rows");
    let per_plugin = |kind: &str| rows.iter().filter(|row| row["plugin"] == kind).count();
    for kind in ["edf", "rm", "fp", "rr"] {
        assert!(per_plugin(kind) >= 8 && per_plugin(kind) == per_plugin("edf"), "{kind}");
    }
    for row in rows {
        for operation in ["raw", "create", "change", "attach", "detach", "release", "direct"] {
            assert!(row[operation]["median_ns"].as_u64() > Some(0), "{operation} in {row:#}");
        }
    }
    assert_eq!(answer["reapplication"]["attached"], 20);
    assert!(answer["thresholds"].as_array().is_some_and(|thresholds| thresholds.len() > 10));
}

#[test]
fn r33_a_grant_costs_nothing_in_each_period() {
    needs!("root", root());
    needs!("talead beside talea-lab (cargo build --workspace)", talead_is_built());
    let output = lab(&["wakeup", "--seconds", "1", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["attached"]["count"], 500, "{answer:#}");
    assert_eq!(answer["by_hand"]["count"], 500, "{answer:#}");
    // Five inspections a second, for any number of periods.
    let periods = answer["periods"].as_u64().expect("a number");
    let woken = answer["daemon_wakeups"].as_u64().expect("a number");
    assert!(periods >= 500 && woken <= 20, "{answer:#}");
}

#[test]
fn r34_the_papers_figures_are_drawn() {
    needs!("root", root());
    needs!("talead beside talea-lab (cargo build --workspace)", talead_is_built());
    let out = std::env::temp_dir().join(format!("talea-lab-test-{}", std::process::id()));
    let place = out.to_str().expect("a plain path");
    for (figure, lines) in [("fig3", 12), ("fig4", 8), ("fig5", 6)] {
        lab(&["retif", figure, "--quick", "--out", place]);
        let plot = std::fs::read_to_string(out.join(format!("{figure}.svg"))).expect("a plot");
        assert_eq!(plot.matches("stroke-linejoin").count(), lines, "{figure}");
        let data = std::fs::read(out.join(format!("{figure}.json"))).expect("data");
        let data: Value = serde_json::from_slice(&data).expect("JSON");
        assert!(data["points"].as_array().is_some_and(|points| points.len() >= 6), "{figure}");
    }
    std::fs::remove_dir_all(&out).expect("ours");
}

#[test]
fn the_exploration_of_yasmin_is_a_table_a_plot_and_its_data() {
    let out = std::env::temp_dir().join(format!("talea-lab-yasmin-{}", std::process::id()));
    let output = lab(&["yasmin", "fig5", "--out", out.to_str().expect("a plain path")]);
    let table = String::from_utf8(output.stdout).expect("text");
    for policy in ["G-EDF", "G-DM", "P-EDF", "P-DM"] {
        assert_eq!(table.lines().filter(|line| line.contains(policy)).count(), 6, "{policy}");
    }
    assert!(table.contains("With --live it is flown here"));
    let plot = std::fs::read_to_string(out.join("yasmin-fig5.svg")).expect("a plot");
    assert_eq!(plot.matches("<circle").count(), 24);
    let data = std::fs::read(out.join("yasmin-fig5.json")).expect("data");
    let data: Value = serde_json::from_slice(&data).expect("JSON");
    let rows = data["configurations"].as_array().expect("configurations");
    assert_eq!(rows.len(), 24);
    for row in rows {
        let late = row["frames_late"].as_u64().expect("a number")
            + row["messages_late"].as_u64().expect("one");
        assert_eq!(late == 0, row["versions"] == "both", "{row:#}");
    }
    std::fs::remove_dir_all(&out).expect("ours");
}
