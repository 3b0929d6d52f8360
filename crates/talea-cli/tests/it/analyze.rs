//! `talea analyze` from the outside: what is proved, what is refuted and how, what if, and tables that can be run.

use crate::harness::{Scratch, run, snapshot};

/// A set that just fits, above a server that does not get enough when `video` grows.
const SYSTEM: &str = "\
duration = \"1s\"

[[scheduler]]
name = \"cpu0\"
policy = \"fp\"

[[scheduler]]
name = \"net\"
in = \"cpu0\"
server = \"deferrable\"
priority = 10
budget = \"2ms\"
period = \"20ms\"

[[task]]
name = \"audio\"
in = \"cpu0\"
priority = 30
period = \"5ms\"
cost = \"2ms\"

[[task]]
name = \"video\"
in = \"cpu0\"
priority = 20
period = \"20ms\"
cost = { min = \"1ms\", max = \"6ms\" }

[[task]]
name = \"requests\"
in = \"net\"
period = \"50ms\"
cost = \"1.5ms\"
";

#[test]
fn what_is_proved_has_bounds_and_names_its_tests() {
    let scratch = Scratch::new();
    scratch.file("system.toml", SYSTEM);
    let ended = run(&scratch, &["analyze", "system.toml"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    snapshot("analyze", &ended.transcript());
    // No run of the simulator exceeds a bound.
    let bounds: serde_json::Value =
        serde_json::from_str(&run(&scratch, &["analyze", "system.toml", "--json"]).out).expect("JSON");
    let seen: serde_json::Value =
        serde_json::from_str(&run(&scratch, &["simulate", "system.toml", "--json"]).out).expect("JSON");
    let tasks = |answer: &serde_json::Value| answer["roots"][0]["tasks"].as_array().expect("tasks").clone();
    for (bound, seen) in tasks(&bounds).iter().zip(&tasks(&seen)) {
        assert_eq!(bound["name"], seen["name"]);
        let (bound, seen) =
            (bound["bound_ns"].as_u64().expect("a bound"), seen["response_max_ns"].as_u64().expect("jobs"));
        assert!(seen > 0 && seen <= bound, "{seen} {bound}");
    }
}

#[test]
fn what_if_a_cost_were_larger_is_refuted_by_a_job() {
    let scratch = Scratch::new();
    scratch.file("system.toml", SYSTEM);
    let ended = run(
        &scratch,
        &["analyze", "system.toml", "--what-if", "cost(video)*2.1", "--what-if", "period(audio)=4ms"],
    );
    assert_eq!(ended.code, Some(1), "{}", ended.out);
    snapshot("analyze-what-if", &ended.transcript());
    for (change, part) in [
        ("cost(vidoe)*2", "did you mean video"),
        ("cost(video)", "write it like"),
        ("cots(video)*2", "did you mean cost"),
        ("budget(net)=30ms", "what-if \"budget(net)=30ms\": net: "),
    ] {
        let ended = run(&scratch, &["analyze", "system.toml", "--what-if", change]);
        assert_eq!(ended.code, Some(2), "{change}: {}", ended.err);
        assert!(ended.err.contains(part), "{change}: {}", ended.err);
    }
}

#[test]
fn a_bound_beyond_the_deadline_proves_nothing() {
    let scratch = Scratch::new();
    scratch.file("system.toml", SYSTEM);
    // The longest that the simulator sees is 10ms, too: the job is shown. Of the server's client it sees less than the bound.
    for (change, verdict) in [("deadline(video)=9ms", "refuted"), ("deadline(requests)=31ms", "unknown")] {
        let ended = run(&scratch, &["analyze", "system.toml", "--json", "--what-if", change]);
        assert_eq!(ended.code, Some(1), "{change}: {}", ended.out);
        let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
        let tasks = answer["roots"][0]["tasks"].as_array().expect("tasks");
        let late = tasks.iter().find(|task| task["verdict"] != "proved").expect("one is not proved");
        assert_eq!(late["verdict"], verdict, "{change}: {late}");
        assert_eq!(late["witness"].is_null(), verdict == "unknown", "{change}: {late}");
        assert!(late["bound_ns"].as_u64() > late["deadline_ns"].as_u64(), "{change}: {late}");
    }
}

#[test]
fn a_hole_is_not_left_out_of_account() {
    let scratch = Scratch::new();
    let task = "[[task]]\nname = \"a\"\nin = \"cpu0\"\nperiod = \"10ms\"\ncost = \"1ms\"\n";
    let root = "duration = \"100ms\"\n[[scheduler]]\nname = \"cpu0\"\npolicy = \"edf\"\n";
    for (start, verdict) in [("5ms", "refuted"), ("900ms", "unknown")] {
        let hole = format!("[[hole]]\nstart = \"{start}\"\nlength = \"20ms\"\n");
        scratch.file("system.toml", &format!("{root}{task}{hole}"));
        let ended = run(&scratch, &["analyze", "system.toml"]);
        assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.err);
        assert!(
            ended.out.contains(&format!("{verdict}: a: cpu0: no test known for CPUs with holes")),
            "{}",
            ended.out
        );
    }
}

#[test]
fn what_no_job_does_is_not_refuted() {
    let scratch = Scratch::new();
    let task = |name: &str, priority: u8, offset: Option<&str>| {
        let offset = offset.map_or(String::new(), |offset| format!("offset = \"{offset}\"\n"));
        format!(
            "[[task]]\nname = \"{name}\"\npriority = {priority}\nperiod = \"20ms\"\ndeadline = \"10ms\"\n{offset}cost = \"10ms\"\n"
        )
    };
    let system = |second: Option<&str>| {
        format!(
            "[[scheduler]]\nname = \"cpu0\"\npolicy = \"fp\"\n{}{}",
            task("a", 9, None),
            task("b", 1, second)
        )
    };
    // Neither waits for the other; together the second one does.
    for (second, text) in [
        (Some("10ms"), "unknown: b: a response may be up to 20ms"),
        (None, "refuted: b: a response can be 20ms"),
    ] {
        scratch.file("system.toml", &system(second));
        let ended = run(&scratch, &["analyze", "system.toml"]);
        assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.err);
        assert!(ended.out.contains(text), "{}", ended.out);
    }
}

/// Two CPUs, a chain, an accelerator that both ends of it want.
const TASKS: &str = "\
[[task]]
name = \"detect\"
period = \"40ms\"

[[task.version]]
name = \"slow\"
cost = \"30ms\"

[[task.version]]
name = \"fast\"
cost = \"9ms\"

[[task]]
name = \"control\"
period = \"10ms\"
cost = \"4ms\"

[[task]]
name = \"log\"
period = \"20ms\"
deadline = \"15ms\"
cost = \"7ms\"
";

#[test]
fn y11_a_table_that_was_made_runs_without_a_miss() {
    let scratch = Scratch::new();
    scratch.file(
        "described.toml",
        &format!("[[scheduler]]\nname = \"cpus\"\npolicy = \"edf\"\ncpus = 2\n\n{TASKS}"),
    );
    let made = run(&scratch, &["analyze", "described.toml", "--synthesize", "table"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    snapshot("analyze-table", &made.transcript());
    scratch.file(
        "table.toml",
        &format!("duration = \"400ms\"\n\n{}{TASKS}\n[[expect]]\nmisses = 0\n", made.out),
    );
    let simulated = run(&scratch, &["simulate", "table.toml"]);
    assert_eq!(simulated.code, Some(0), "{}{}", simulated.out, simulated.err);
    assert!(simulated.out.contains("holds: all tasks: 0 jobs late"), "{}", simulated.out);
}

#[test]
fn y11_no_table_has_a_reason() {
    let scratch = Scratch::new();
    let why = |cpus: u32, tasks: &str| {
        scratch.file(
            "system.toml",
            &format!("[[scheduler]]\nname = \"cpus\"\npolicy = \"edf\"\ncpus = {cpus}\n\n{tasks}"),
        );
        let ended = run(&scratch, &["analyze", "system.toml", "--synthesize", "table"]);
        assert_eq!(ended.code, Some(1), "{}", ended.out);
        ended.err
    };
    let crowded = why(1, &TASKS.replace("4ms", "5ms"));
    assert!(crowded.contains("there is none: between 0ns and"), "{crowded}");
    let cut = why(1, "[[task]]\nname = \"a\"\nperiod = \"20ms\"\noffset = \"15ms\"\ncost = \"10ms\"\n");
    assert!(cut.contains("none is looked for") && !cut.contains("there is none"), "{cut}");
    let sporadic = why(2, "[[task]]\nname = \"a\"\nperiod = \"10ms\"\nslack = \"1ms\"\ncost = \"1ms\"\n");
    assert!(
        sporadic.contains("cpus: no table: a: arrives at times that nobody knows beforehand"),
        "{sporadic}"
    );
}

#[test]
fn l20_a_program_that_always_wants_the_cpu_has_no_deadline_and_others_have_theirs() {
    let scratch = Scratch::new();
    let program = "\n[[task]]\nname = \"hog\"\nin = \"net\"\nprogram = [\"sha1sum\", \"/dev/zero\"]\n";
    // In place of the one that was the server's.
    let others = SYSTEM.split("[[task]]\nname = \"requests\"").next().expect("a beginning");
    scratch.file("greedy.toml", &format!("{others}{program}"));
    let ended = run(&scratch, &["analyze", "greedy.toml", "--json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    let tasks = answer["roots"][0]["tasks"].as_array().expect("tasks");
    let said: Vec<_> = tasks.iter().map(|task| task["verdict"].as_str().expect("a verdict")).collect();
    assert_eq!(said, ["proved", "proved", "none"]);
    assert!(tasks[2]["deadline_ns"].is_null() && tasks[2]["bound_ns"].is_null());
    let ended = run(&scratch, &["simulate", "greedy.toml"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    // A task below what always wants the CPU has nothing that it may rely on.
    let below = "\n[[task]]\nname = \"below\"\nin = \"net\"\npriority = 1\nperiod = \"1s\"\ncost = \"1us\"\n";
    scratch.file("below.toml", &format!("{others}{program}{below}"));
    let ended = run(&scratch, &["analyze", "below.toml"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("hog: it wants the CPU without end"), "{}", ended.out);
    // Whose jobs are nobody's but its own is not compared.
    let ended = run(&scratch, &["compare", "greedy.toml"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.out, ended.err);
    assert!(ended.err.contains("hog is a program"), "{}", ended.err);
}
