//! `talea simulate`: reproducible output, and plots with the simulated jobs.

mod events;
mod jobs;

use crate::harness::{Scratch, run, snapshot};
use std::fs::File;
use std::sync::mpsc;
use std::time::Duration;

/// A tight set beside a server.
const SYSTEM: &str = "\
duration = \"140ms\"

[[scheduler]]
name = \"cpu0\"
policy = \"edf\"

[[scheduler]]
name = \"net\"
in = \"cpu0\"
server = \"cbs\"
budget = \"1ms\"
period = \"10ms\"

[[task]]
name = \"audio\"
in = \"cpu0\"
period = \"5ms\"
cost = \"2ms\"

[[task]]
name = \"video\"
in = \"cpu0\"
period = \"7ms\"
cost = { min = \"1ms\", max = \"3ms\" }

[[task]]
name = \"requests\"
in = \"net\"
period = \"20ms\"
separation_max = \"25ms\"
cost = \"1.5ms\"

[[expect]]
task = \"audio\"
misses = 0
response = \"5ms\"
";

#[test]
fn s20_a_run_is_a_table_and_the_expectations_that_hold() {
    let scratch = Scratch::new();
    scratch.file("system.toml", SYSTEM);
    let ended = run(&scratch, &["simulate", "system.toml"]);
    snapshot("simulate", &ended.transcript());
    assert_eq!(ended.code, Some(0));
    let again = run(&scratch, &["simulate", "system.toml"]);
    assert_eq!(again.out, ended.out, "same seed, same bytes");
    assert_ne!(run(&scratch, &["simulate", "system.toml", "--seed", "2"]).out, ended.out);
}

#[test]
fn s20_l22_json_csv_and_pictures_agree_with_each_other() {
    let scratch = Scratch::new();
    scratch.file("system.toml", SYSTEM);
    let args = [
        "simulate",
        "system.toml",
        "--json",
        "--csv",
        "jobs.csv",
        "--html",
        "run.html",
        "--svg",
        "run.svg",
    ];
    let ended = run(&scratch, &args);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    let tasks = answer["roots"][0]["tasks"].as_array().expect("tasks");
    let completed: u64 = tasks.iter().filter_map(|task| task["completed"].as_u64()).sum();
    // 140 ms contain 28 jobs of 5 ms and 20 of 7 ms, and the last ones end in time.
    assert!(completed >= 48, "{answer}");
    let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).expect(name);
    let csv = read("jobs.csv");
    assert_eq!(csv.lines().count() as u64, completed + 1);
    // The table is computed again from the jobs.
    for task in tasks {
        let name = task["name"].as_str().expect("a name");
        let responses = csv.lines().filter_map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let number = |cell: &str| cell.parse::<u64>().ok();
            (cells[0] == name).then(|| Some(number(cells[4])? - number(cells[2])?))?
        });
        assert_eq!(responses.max(), task["response_max_ns"].as_u64(), "{name}");
    }
    let page = read("run.html");
    let data = page
        .split_once("application/json\">")
        .expect("data")
        .1
        .split_once("</script>")
        .expect("an end")
        .0;
    let data: serde_json::Value = serde_json::from_str(data).expect("the page's data");
    let jobs = data["roots"][0]["jobs"][0].as_array().expect("jobs").len() as u64;
    assert_eq!(jobs, completed);
    // Execution time equals the cost: two milliseconds per audio job.
    let column = |at: usize| data["roots"][0]["segments"][at].as_array().expect("a column").clone();
    let audio: u64 = column(1)
        .iter()
        .zip(column(4))
        .filter(|(task, _)| task.as_u64() == Some(0))
        .filter_map(|(_, length)| length.as_u64())
        .sum();
    assert_eq!(audio, 28 * 2_000_000);
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "the page needs nothing from anywhere"
    );
    assert!(read("run.svg").starts_with("<svg") && read("run.svg").contains(">audio<"));
}

#[test]
fn s18_an_expectation_that_fails_is_exit_code_1_and_a_malformed_file_2() {
    let scratch = Scratch::new();
    scratch.file("system.toml", &SYSTEM.replace("response = \"5ms\"", "response = \"1ms\""));
    let ended = run(&scratch, &["simulate", "system.toml"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.out.contains("fails: audio"), "{}", ended.out);
    scratch.file("system.toml", &SYSTEM.replace("\"edf\"", "\"edv\""));
    let ended = run(&scratch, &["simulate", "system.toml"]);
    snapshot("simulate-malformed", &ended.transcript());
    assert_eq!(ended.code, Some(2));
}

#[test]
fn a_run_may_be_as_long_as_a_file_may_say_and_no_longer() {
    let scratch = Scratch::new();
    let table = "\
[[scheduler]]
name = \"cpu0\"
policy = \"partitions\"
frame = \"2305843009s\"

[[scheduler.slot]]
owner = \"a\"
length = \"2305843009s\"

[[task]]
name = \"a\"
period = \"2305843009s\"
cost = \"10ms\"
";
    scratch.file("part.toml", table);
    assert_eq!(run(&scratch, &["simulate", "part.toml", "--for", "2305843009s"]).code, Some(0));
    for length in ["2305843010s", "9223372036s"] {
        let ended = run(&scratch, &["simulate", "part.toml", "--for", length]);
        assert_eq!(ended.code, Some(2));
        assert!(ended.err.contains("longer than 73 years"), "{}", ended.err);
    }
}

#[test]
fn l11_parts_of_several_files_are_one_system() {
    let scratch = Scratch::new();
    let (above, below) = SYSTEM.split_once("[[task]]").expect("tasks");
    scratch.file("tasks.toml", &format!("[[task]]{below}"));
    scratch.file("whole.toml", SYSTEM);
    scratch.file("system.toml", &format!("include = [\"tasks.toml\"]\n{above}"));
    let parts = run(&scratch, &["simulate", "system.toml"]);
    assert_eq!(parts.code, Some(0), "{}", parts.err);
    assert_eq!(parts.out, run(&scratch, &["simulate", "whole.toml"]).out);
    scratch.file("tasks.toml", "include = [\"system.toml\"]\n");
    assert_eq!(
        run(&scratch, &["simulate", "system.toml"]).code,
        Some(0),
        "each is read once, and nothing hangs"
    );
}

/// The purpose of parts: two teams, each in its own folder, use the same CPU.
#[test]
fn l11_teams_in_folders_of_their_own_include_one_part() {
    let scratch = Scratch::new();
    let task = |name: &str| {
        format!(
            "include = [\"../common.toml\"]\n[[task]]\nname = \"{name}\"\nperiod = \"9ms\"\ncost = \"1ms\"\n"
        )
    };
    for team in ["a", "b"] {
        std::fs::create_dir(scratch.path().join(team)).expect("a folder");
        scratch.file(&format!("{team}/{team}.toml"), &task(team));
    }
    scratch.file("common.toml", "[[scheduler]]\nname = \"cpu0\"\npolicy = \"edf\"\n");
    // Cycles: the file itself is included under another name, and so is a part.
    scratch.file(
        "b/b.toml",
        &task("b").replace("[\"", "[\"./../b/./../system.toml\", \"../a/a.toml\", \""),
    );
    scratch.file("system.toml", "include = [\"a/a.toml\", \"./b/b.toml\"]\nduration = \"90ms\"\n");
    for name in ["system.toml", "./system.toml", "a/../system.toml"] {
        let ended = run(&scratch, &["simulate", name, "--json"]);
        assert_eq!(ended.code, Some(0), "{name}: {}", ended.err);
        let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
        let tasks = answer["roots"][0]["tasks"].as_array().expect("tasks");
        let names: Vec<_> = tasks.iter().filter_map(|task| task["name"].as_str()).collect();
        assert_eq!(names, ["a", "b"], "{name}");
    }
}

/// An include that would block or never end is refused immediately, with its position.
#[test]
fn s22_an_include_that_is_no_regular_file_is_refused_and_not_waited_for() {
    let scratch = Scratch::new();
    let made = std::process::Command::new("mkfifo").arg(scratch.path().join("pipe")).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo is there");
    // Opens the pipe after a minute, so that a blocked reader fails.
    let (_ended, has_ended) = mpsc::channel::<()>();
    let pipe = scratch.path().join("pipe");
    std::thread::spawn(move || {
        if has_ended.recv_timeout(Duration::from_mins(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
            drop(File::options().read(true).write(true).open(pipe));
        }
    });
    std::fs::create_dir(scratch.path().join("folder")).expect("a folder");
    for part in ["pipe", "folder", "/dev/zero", "/dev/null"] {
        scratch.file("system.toml", &format!("seed = 1\ninclude = [\"{part}\"]\n{SYSTEM}"));
        for command in ["simulate", "analyze", "sweep", "execute"] {
            let ended = run(&scratch, &[command, "system.toml"]);
            assert_eq!(ended.code, Some(2), "{command}, {part}: {}", ended.err);
            assert!(ended.err.contains("system.toml:2:12"), "{command}, {part}: {}", ended.err);
            assert!(ended.err.contains("is no regular file"), "{command}, {part}: {}", ended.err);
            assert!(ended.err.contains("name a regular file"), "{command}, {part}: {}", ended.err);
        }
    }
}

/// Warnings go to standard error, not into the output.
#[test]
fn s22_a_child_without_a_slot_is_warned_of() {
    let scratch = Scratch::new();
    let task =
        |name: &str| format!("[[task]]\nname = \"{name}\"\nperiod = \"10ms\"\ncost = \"1ms\"\n");
    let table = "[[scheduler]]\nname = \"p\"\npolicy = \"partitions\"\nframe = \"10ms\"\n\
        [[scheduler.slot]]\nowner = \"a\"\nlength = \"5ms\"\n";
    scratch.file("system.toml", &format!("{table}{}{}", task("a"), task("b")));
    for command in [&["simulate"][..], &["analyze"], &["sweep", "--set", "task.a.cost=1ms"]] {
        let ended = run(&scratch, &[command, &["system.toml", "--json"]].concat());
        assert!(
            ended.err.contains("warning: `b` has no slot in `p`"),
            "{command:?}: {}",
            ended.err
        );
        assert!(ended.err.contains("system.toml:13:8"), "{command:?}: {}", ended.err);
        serde_json::from_str::<serde_json::Value>(&ended.out).expect("JSON and nothing else");
    }
    scratch.file("system.toml", &format!("{table}{}", task("a")));
    let ended = run(&scratch, &["simulate", "system.toml"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
}

/// The page's own script, if node is installed: no error, and every job is drawn.
#[test]
fn the_page_draws_every_job() {
    let Ok(found) = std::process::Command::new("node").arg("--version").output() else {
        eprintln!("skipped: needs node to run the page's script");
        return;
    };
    assert!(found.status.success());
    let scratch = Scratch::new();
    scratch.file("stage.js", include_str!("stage.js"));
    let chain = crate::chains::system("\"10ms\"", false, "");
    for system in [SYSTEM, crate::browser::RICH, crate::perfetto::ROOTS, &chain] {
        scratch.file("system.toml", system);
        assert_eq!(run(&scratch, &["simulate", "system.toml", "--html", "run.html"]).code, Some(0));
        let played = std::process::Command::new("node")
            .args([scratch.path().join("stage.js"), scratch.path().join("run.html")])
            .output()
            .expect("node runs");
        let said = String::from_utf8_lossy(&played.stdout);
        assert!(played.status.success(), "{said}{}", String::from_utf8_lossy(&played.stderr));
        assert!(said.contains("drew every job"), "{said}");
    }
}

#[test]
fn a_job_that_ends_with_the_run_has_ended() {
    let scratch = Scratch::new();
    let head = "duration = \"10ms\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n";
    let task = |rest: &str| format!("{head}[[task]]\nname = \"a\"\nperiod = \"5ms\"\n{rest}");
    for (rest, jobs, late) in [
        ("cost = \"5ms\"\n", 2, 0),
        // Two segments.
        ("cost = \"4ms\"\n[[task.suspension]]\nstart = \"1ms\"\nlength = \"1ms\"\n", 2, 0),
        ("cost = \"5100us\"\n", 1, 2),
    ] {
        scratch.file("full.toml", &task(rest));
        let ended = run(&scratch, &["simulate", "full.toml", "--json", "--csv", "jobs.csv"]);
        let answer: serde_json::Value =
            serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{}", ended.err));
        let of = |name: &str| answer["roots"][0]["tasks"][0][name].as_u64();
        assert_eq!((of("completed"), of("late")), (Some(jobs), Some(late)), "{rest}");
        let csv = std::fs::read_to_string(scratch.path().join("jobs.csv")).expect("jobs");
        assert_eq!(csv.lines().count() as u64, jobs + 1, "{csv}");
    }
}

const MODES: &str = "\
duration = \"1s\"

[[scheduler]]
name = \"cpu0\"
policy = \"edf\"

[[scheduler]]
name = \"cpu1\"
policy = \"partitions\"
frame = \"20ms\"

[[scheduler.slot]]
owner = \"camera\"
length = \"8ms\"

[[task]]
name = \"control\"
in = \"cpu0\"
period = \"10ms\"
cost = { min = \"1ms\", max = \"3ms\" }

[[task]]
name = \"video\"
in = \"cpu0\"
period = \"40ms\"
separation_max = \"45ms\"
cost = \"20ms\"

[[task]]
name = \"camera\"
in = \"cpu1\"
period = \"20ms\"
offset = \"0\"
cost = { min = \"1ms\", max = \"6ms\" }

[[mode]]
name = \"cruise\"

[[mode]]
name = \"landing\"
tasks = [\"control\", \"camera\"]
[[mode.task]]
name = \"control\"
period = \"5ms\"
[[mode.scheduler]]
name = \"cpu1\"
slot = [{ owner = \"camera\", start = \"10ms\", length = \"8ms\" }]
";

#[test]
fn d42_switches_keep_their_bounds_and_all_outputs_have_one_time_line() {
    let scratch = Scratch::new();
    scratch.file("system.toml", MODES);
    let json = |words: &[&str]| -> serde_json::Value {
        let ended = run(&scratch, words);
        assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
        serde_json::from_str(&ended.out).expect("JSON")
    };
    let analysis = json(&["analyze", "system.toml", "--json"]);
    let list = |of: &serde_json::Value| of.as_array().expect("a list").clone();
    let ns = |of: &serde_json::Value| of.as_u64().expect("nanoseconds");
    let requests = [201_000_000, 377_000_000, 640_000_000];
    for seed in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        let run = json(&[
            "simulate",
            "system.toml",
            "--seed",
            seed,
            "--switch",
            "201ms=landing",
            "--switch",
            "377ms=cruise",
            "--switch",
            "640ms=landing",
            "--csv",
            "jobs.csv",
            "--trace",
            "trace",
            "--html",
            "page.html",
            "--json",
        ]);
        let roots = list(&run["roots"]);
        assert_eq!(roots.len(), 8, "{run}");
        for (at, root) in roots.iter().enumerate() {
            let part = &root["part"];
            let mode = ["cruise", "landing"][at % 2];
            assert_eq!(part["mode"], mode, "{run}");
            assert_eq!(part["pending"].as_u64().filter(|_| at % 4 < 3).unwrap_or(0), 0, "{run}");
            if at % 4 > 0 {
                // The transition into this part.
                let request = requests[at % 4 - 1];
                assert_eq!(ns(&part["requested_ns"]), request);
                assert_eq!(part["from_ns"], roots[at - 1]["part"]["to_ns"]);
                let old = ["cruise", "landing"][(at + 1) % 2];
                let transitions = list(&analysis["transitions"]);
                let of = transitions.iter().find(|of| of["from"] == old).expect("a transition");
                let bound = ns(&of["roots"][at / 4]["delay_ns"]);
                assert!(ns(&part["from_ns"]) - request <= bound, "{run}");
            }
            let modes = list(&analysis["modes"]);
            let of = modes.iter().find(|of| of["name"] == mode).expect("a mode");
            let bounds = list(&of["roots"][at / 4]["tasks"]);
            for (task, bound) in list(&root["tasks"]).iter().zip(bounds) {
                assert_eq!(task["name"], bound["name"]);
                let longest = task["response_max_ns"].as_u64().unwrap_or(0);
                assert!(longest <= ns(&bound["bound_ns"]), "{task} > {bound}");
            }
        }
    }
    let jobs = std::fs::read_to_string(scratch.path().join("jobs.csv")).expect("jobs");
    let releases: Vec<u64> = jobs
        .lines()
        .filter(|line| line.starts_with("control,"))
        .map(|line| line.split(',').nth(2).expect("a release").parse().expect("a number"))
        .collect();
    assert!(releases.is_sorted() && releases.len() > 100, "{releases:?}");
    assert!(releases.last() > Some(&900_000_000), "{releases:?}");
    let page = std::fs::read_to_string(scratch.path().join("page.html")).expect("a page");
    assert!(page.contains("cpu1 in landing from 220ms to 380ms, requested at 201ms"));
    for (words, part) in [
        (&["--switch", "1s"][..], "write it like"),
        (&["--switch", "1s=lading"], "did you mean landing"),
        (&["--switch", "2ms=landing", "--switch", "1ms=cruise"], "in the order of time"),
        (&["--mode", "x"], "there are cruise, landing"),
    ] {
        let ended = run(&scratch, &[&["simulate", "system.toml"], words].concat());
        assert_eq!(ended.code, Some(2), "{}", ended.err);
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
}

/// A graph ends before an idle instant, and a later request changes the mode only.
#[test]
fn d42_an_idle_instant_is_after_the_graph_and_the_first_request_decides_the_limit() {
    let scratch = Scratch::new();
    let task = |name: &str, more: &str| format!("[[task]]\nname = \"{name}\"\n{more}\n");
    let modes = "[[mode]]\nname = \"one\"\n[[mode]]\nname = \"two\"\n";
    let root = "duration = \"200ms\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"edf\"\n";
    let switches = |text: &str, requests: &[&str]| -> Vec<(u64, String)> {
        scratch.file("system.toml", text);
        let mut words = vec!["simulate", "system.toml", "--json"];
        words.extend(requests.iter().flat_map(|request| ["--switch", *request]));
        let ended = run(&scratch, &words);
        let report: serde_json::Value =
            serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{}", ended.err));
        let parts = report["roots"].as_array().expect("roots");
        let part = |root: &serde_json::Value| {
            let part = &root["part"];
            (
                part["from_ns"].as_u64().expect("a time"),
                part["mode"].as_str().expect("a mode").to_owned(),
            )
        };
        parts.iter().map(part).collect()
    };
    let a = task("a", "period = \"20ms\"\ncost = \"2ms\"");
    let b = task("b", "period = \"20ms\"\ncost = \"3ms\"");
    let channel = "[[channel]]\nfrom = \"a\"\nto = \"b\"\n";
    let graph = switches(&format!("{root}{a}{b}{channel}{modes}"), &["1ms=two"]);
    assert_eq!(graph, [(0, "one".to_owned()), (5_000_000, "two".to_owned())]);
    // Never idle: the limit is the longest period after the first request.
    let (busy, long) = (
        task("busy", "period = \"10ms\"\ncost = \"8ms\""),
        task("long", "period = \"40ms\"\ncost = \"20ms\""),
    );
    let requests = ["5ms=two", "25ms=one", "44ms=two"];
    let late = switches(&format!("{root}{busy}{long}{modes}"), &requests);
    assert_eq!(late, [(0, "one".to_owned()), (45_000_000, "two".to_owned())]);
}
