//! The demonstration, small: every run happens, the kernel says what was granted, nothing is left
//! behind.
//!
//! How late blocks are is not judged here: that depends on the machine.
#![forbid(unsafe_code)]

use serde_json::Value;
use std::process::Command;

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

fn demo(arguments: &[&str]) -> (std::process::ExitStatus, Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_talea"))
        .arg("demo")
        .args(arguments)
        .output()
        .expect("talea");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status, json, errors)
}

/// Maximum number of demonstrations until one is conclusive.
const ATTEMPTS: u32 = 5;
/// CPU time that the job declares.
const RUNTIME_NS: u64 = 4_000_000;

/// Whether no job needed more CPU time than it declares. The daemon takes the priority from a
/// thread that does, and on a loaded machine the same work takes longer.
fn is_conclusive(answer: &Value) -> bool {
    let runs = answer["runs"].as_array().expect("runs");
    runs[1..].iter().all(|run| run["most_computed_ns"].as_u64().is_some_and(|ns| ns < RUNTIME_NS))
}

#[test]
fn r5_the_same_job_runs_three_times_and_nothing_is_left_behind() {
    needs!("root", rustix::process::geteuid().is_root());
    let out = std::env::temp_dir().join(format!("talea-demo-test-{}", std::process::id()));
    let place = out.to_str().expect("a plain path");
    let arguments = ["--seconds", "1", "--load", "1", "--json", "--out", place];
    let answer = (0..ATTEMPTS)
        .find_map(|_| {
            let (status, answer, errors) = demo(&arguments);
            assert!(status.success(), "{errors}\n{answer:#}");
            is_conclusive(&answer).then_some(answer)
        })
        .expect("one demonstration whose jobs keep their declaration");

    assert_eq!(answer["complete"], true, "{answer:#}");
    assert_eq!(answer["left_behind"].as_array().map(Vec::len), Some(0), "{answer:#}");
    let runs = answer["runs"].as_array().expect("runs");
    let names: Vec<_> = runs.iter().map(|run| run["run"].as_str().unwrap_or_default()).collect();
    assert_eq!(names, ["today", "libtalea", "talea-run"]);
    for run in runs {
        assert_eq!(run["blocks"], 100, "{run:#}");
        assert!(run["stalls"].is_u64(), "the monitor watched: {run:#}");
    }
    assert_eq!(runs[0]["policy"], "OTHER");
    for run in &runs[1..] {
        let policy = run["policy"].as_str().unwrap_or_default();
        assert!(policy.starts_with("FIFO "), "{run:#}");
        assert!(run["granted"].as_str().is_some_and(|grant| grant.starts_with("rm")), "{run:#}");
    }

    let page = std::fs::read_to_string(out.join("demo.html")).expect("a page");
    assert!(
        page.contains("<svg") && !page.contains("<script") && !page.contains("src="),
        "self-contained"
    );
    assert!(
        std::fs::read_to_string(out.join("demo.svg")).expect("a picture").ends_with("</svg>\n")
    );
    std::fs::remove_dir_all(&out).expect("ours");
}

#[test]
fn a_cpu_that_is_not_there_is_refused_with_those_that_are() {
    let out = std::env::temp_dir().join(format!("talea-demo-cpu-{}", std::process::id()));
    let (status, _, errors) =
        demo(&["--cpu", "1023", "--out", out.to_str().expect("a plain path")]);
    assert_eq!(status.code(), Some(1));
    assert!(errors.contains("may not run on CPU 1023; it may on 0"), "{errors}");
    let _ = std::fs::remove_dir_all(&out);
}
