//! `talea sweep`: reproducible grids, and errors that name their axis.

#![allow(clippy::cast_precision_loss, reason = "counts are small")]

use crate::harness::{Scratch, run, snapshot};

const CPU: &str = "duration = \"500ms\"\n\n[[scheduler]]\nname = \"cpu0\"\npolicy = \"edf\"\n";

/// A tight pair, in two files.
const SYSTEM: &str = "duration = \"1s\"\ninclude = [\"tasks.toml\"]\n\n[[scheduler]]\nname = \"cpu0\"\npolicy = \"edf\"\n";
const TASKS: &str = "[[task]]\nname = \"a\"\nperiod = \"5ms\"\ncost = \"2ms\"\n\n[[task]]\nname = \"b\"\nperiod = \
                     \"7ms\"\ncost = \"4ms\" # or more\n";

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("cpu.toml", CPU);
    scratch.file("system.toml", SYSTEM);
    scratch.file("tasks.toml", TASKS);
    scratch
}

#[test]
fn edf_meets_what_rate_monotonic_misses_in_one_table() {
    let scratch = scratch();
    let ended = run(
        &scratch,
        &["sweep", "system.toml", "--policy", "edf,rm", "--set", "task.b.cost=2ms..4ms/1ms"],
    );
    snapshot("sweep", &ended.transcript());
    assert_eq!(ended.code, Some(0));
}

#[test]
fn a_grid_gives_the_same_bytes_on_any_number_of_threads() {
    let scratch = scratch();
    let grid = |threads: &str| {
        let args = [
            "sweep",
            "cpu.toml",
            "--policy",
            "edf,rm",
            "--utilization",
            "0.7..1/0.1",
            "--tasks",
            "5,8",
            "--sets",
            "3",
            "--seeds",
            "1..3",
            "--json",
            "--csv",
            "runs.csv",
            "--svg",
            "grid.svg",
            "--threads",
            threads,
        ];
        let ended = run(&scratch, &args);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).expect(name);
        (ended.out, read("runs.csv"), read("grid.svg"))
    };
    let one = grid("1");
    for threads in ["2", "7"] {
        assert_eq!(grid(threads), one);
    }
    let (json, csv, svg) = one;
    let answer: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let points = answer["points"].as_array().expect("points");
    assert_eq!(points.len(), 2 * 4 * 2);
    assert_eq!(csv.lines().count(), 1 + points.len() * 9);
    assert_eq!(
        svg.matches("stroke-linejoin").count(),
        4,
        "a line for each policy and number of tasks"
    );
    // The aggregates of a point follow from its runs.
    for point in points {
        let values: Vec<&str> = point["values"]
            .as_array()
            .expect("values")
            .iter()
            .filter_map(|value| value.as_str())
            .collect();
        let start = values.join(",") + ",";
        let cells = csv
            .lines()
            .filter(|line| line.starts_with(&start))
            .map(|line| line[start.len()..].split(','));
        let runs: Vec<Vec<f64>> =
            cells.map(|line| line.map(|cell| cell.parse().expect("a number")).collect()).collect();
        assert_eq!(runs.len() as u64, point["runs"].as_u64().expect("runs"));
        let late: f64 = runs.iter().map(|run| 100.0 * (run[3] + run[4]) / run[2]).sum::<f64>()
            / runs.len() as f64;
        assert!((late - point["late_percent"].as_f64().expect("late")).abs() < 1e-9, "{values:?}");
        // EDF on one CPU: no job is late up to a utilisation of 1.
        assert!(values[0] != "edf" || late == 0.0, "{values:?}: {late}");
    }
}

/// A run of a grid equals generate followed by simulate.
#[test]
fn a_run_can_be_repeated_by_hand() {
    let scratch = scratch();
    let sweep = [
        "sweep",
        "cpu.toml",
        "--tasks",
        "6",
        "--utilization",
        "1.5",
        "--sets",
        "2",
        "--seeds",
        "5",
        "--csv",
        "r.csv",
    ];
    assert_eq!(run(&scratch, &sweep).code, Some(0));
    let drawn = [
        "generate",
        "--tasks",
        "6",
        "--utilization",
        "1.5",
        "--sets",
        "2",
        "--seed",
        "5",
        "--out",
        "sets",
        "--duration",
        "500ms",
    ];
    assert_eq!(run(&scratch, &drawn).code, Some(0));
    let ended = run(&scratch, &["simulate", "sets/set-1.toml", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    let tasks = answer["roots"][0]["tasks"].as_array().expect("tasks");
    let sum = |name: &str| tasks.iter().filter_map(|task| task[name].as_u64()).sum::<u64>();
    let csv = std::fs::read_to_string(scratch.path().join("r.csv")).expect("runs");
    let line = csv.lines().nth(2).expect("the second run");
    assert!(
        line.starts_with(&format!(
            "6,1.5,5,1,{},{},{},",
            sum("arrived"),
            sum("late"),
            sum("refused")
        )),
        "{line}"
    );
    assert!(sum("late") > 0, "overload");
}

#[test]
fn keys_of_tables_and_wildcards_are_axes_and_beside_none_the_file_is_one_point() {
    let scratch = scratch();
    let ended = run(&scratch, &["sweep", "system.toml"]);
    assert_eq!(ended.out.lines().count(), 2, "{}", ended.out);
    let args = [
        "sweep",
        "system.toml",
        "--set",
        "task.*.cost={ min = \"1ms\", max = \"2ms\" },1ms",
        "--for",
        "70ms",
    ];
    let ended = run(&scratch, &args);
    assert_eq!((ended.code, ended.out.lines().count()), (Some(0), 3), "{}{}", ended.out, ended.err);
    let ended = run(
        &scratch,
        &[
            "sweep",
            "system.toml",
            "--set",
            "task.b.offset=0ms,1ms",
            "--set",
            "scheduler.cpu0.cpus=1,2",
        ],
    );
    assert_eq!((ended.code, ended.out.lines().count()), (Some(0), 5), "{}{}", ended.out, ended.err);
}

/// Equal roots draw different costs, in this run and in the next.
#[test]
fn roots_do_not_repeat_each_other_over_seeds() {
    let scratch = Scratch::new();
    let root = |name: &str| {
        format!(
            "[[scheduler]]\nname = \"{name}\"\npolicy = \"edf\"\n\n[[task]]\nname = \"t{name}\"\nin = \
             \"{name}\"\nperiod = \"10ms\"\ncost = {{ min = \"1us\", max = \"9ms\" }}\n\n"
        )
    };
    scratch.file("two.toml", &format!("duration = \"1s\"\n\n{}{}", root("a"), root("b")));
    let means = |seed: &str| {
        let ended = run(&scratch, &["simulate", "two.toml", "--seed", seed, "--json"]);
        let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
        [0, 1].map(|root| {
            answer["roots"][root]["tasks"][0]["response_mean_ns"].as_u64().expect("a mean")
        })
    };
    let mut seen: Vec<u64> = ["1", "2", "3"].into_iter().flat_map(means).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 6);
}

/// Included files have their own first scheduler, which is no root.
#[test]
fn the_policy_is_that_of_the_roots_of_all_files() {
    let scratch = scratch();
    let inner = "[[scheduler]]\nname = \"inner\"\nin = \"cpu0\"\npolicy = \"partitions\"\nframe = \"5ms\"\n\n\
                 [[scheduler.slot]]\nowner = \"c\"\nlength = \"1ms\"\n\n[[task]]\nname = \"c\"\nin = \
                 \"inner\"\nperiod = \"9ms\"\ncost = \"1ms\"\n";
    scratch.file("inner.toml", inner);
    scratch.file(
        "outer.toml",
        &SYSTEM.replace("tasks.toml", "inner.toml").replace("\"edf\"", "\"fp\""),
    );
    let ended = run(&scratch, &["sweep", "outer.toml", "--policy", "fp"]);
    assert_eq!((ended.code, ended.out.lines().count()), (Some(0), 2), "{}{}", ended.out, ended.err);
    let ended = run(&scratch, &["sweep", "outer.toml", "--policy", "fp,edf"]);
    assert!(ended.err.starts_with("talea: --policy edf: inner.toml:"), "{}", ended.err);
}

#[test]
fn y9_nodes_of_a_graph_count_from_its_arrival() {
    let scratch = scratch();
    let task =
        |name: &str, rest: &str| format!("\n[[task]]\nname = \"{name}\"\ncost = \"5ms\"\n{rest}");
    let graph = [
        CPU.to_owned(),
        task("a", "period = \"20ms\"\n"),
        task("b", ""),
        task("c", ""),
        "\n[[channel]]\nfrom = \"b\"\nto = \"c\"\n\n[[channel]]\nfrom = \"a\"\nto = \"b\"\n"
            .to_owned(),
    ];
    scratch.file("graph.toml", &graph.concat());
    let ended = run(&scratch, &["sweep", "graph.toml"]);
    assert!(
        ended.out.ends_with("100.0   0.000              0.750\n"),
        "{}{}",
        ended.out,
        ended.err
    );
}

#[test]
fn what_is_wrong_names_its_axis() {
    let scratch = scratch();
    scratch.file("broken.toml", "duration = 1\n");
    let own = "\n[[task]]\nname = \"c\"\nperiod = \"9ms\"\ncost = \"1ms\"\n";
    scratch.file("numbers.toml", &format!("{SYSTEM}{own}"));
    scratch.file("two.toml", &format!("{CPU}\n[[scheduler]]\nname = \"cpu1\"\npolicy = \"edf\"\n"));
    for (options, part) in [
        (
            "system.toml --set task.c.cost=1ms",
            "--set task.c.cost: there is no such place in system.toml",
        ),
        ("system.toml --set task.b.kost=1ms", "--set task.b.kost=1ms: tasks.toml:10:1: error: "),
        (
            "system.toml --set task.b.cost=1ms,2x --policy edf,rm",
            "--set task.b.cost=2x: tasks.toml:9:8: error: `2x`",
        ),
        ("system.toml --policy edf,edx", "--policy edx: system.toml:6:10: error: `edx`"),
        ("system.toml --set task.b.cost", "KEY=VALUES"),
        ("system.toml --set task.b.cost=1ms..2ms", "needs a step"),
        ("system.toml --set task.b.cost=1ms,1ms", "twice"),
        ("system.toml --set task.b.cost=1ms --set task.b.cost=2ms", "an axis twice"),
        (
            "system.toml --policy edf,rm --set scheduler.cpu0.policy=fifo,dm",
            "scheduler.cpu0.policy and policy are axes",
        ),
        (
            "system.toml --set task.a.cost=1ms --set task.0.cost=2ms",
            "task.a.cost and task.0.cost are axes of the same",
        ),
        (
            "system.toml --set task.*.cost=1ms --set task.b.cost=2ms",
            "task.*.cost and task.b.cost are axes of the same",
        ),
        (
            "numbers.toml --set task.0.cost=1ms",
            "numbers.toml and tasks.toml both have a table of this number",
        ),
        ("system.toml --policy edf,", "--policy: there is an empty value"),
        ("system.toml --seeds 1,x", "`x` is no seed"),
        ("system.toml --policy edf,rm --svg x.svg", "--svg needs an axis"),
        ("system.toml --tasks 3", "--utilization"),
        (
            "cpu.toml --tasks 3 --utilization 0.5,4",
            "--utilization 4: utilisations within these bounds",
        ),
        ("cpu.toml --tasks 2.5 --utilization 1", "whole number"),
        ("cpu.toml --tasks 3 --utilization 1 --into cpu1", "no scheduler is called `cpu1`"),
        ("two.toml --tasks 3 --utilization 1", "stands in no scheduler"),
        (
            "cpu.toml --tasks 3 --utilization 1 --sets 1000000 --seeds 1..20",
            "more than 10000000 runs",
        ),
        ("broken.toml --policy edf,rm", "broken.toml:1:12"),
    ] {
        let mut words = vec!["sweep"];
        words.extend(options.split_whitespace());
        let ended = run(&scratch, &words);
        assert_eq!(ended.code, Some(2), "{options}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(part), "{options}: {}", ended.err);
    }
    assert_eq!(run(&scratch, &["sweep", "missing.toml"]).code, Some(2));
}
