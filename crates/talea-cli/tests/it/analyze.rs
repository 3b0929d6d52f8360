//! `talea analyze`: proved and refuted tasks, changes with --what-if, and executable tables.

use crate::harness::{Scratch, run, snapshot};

/// A set that just fits, above a server that gets too little CPU time if `video` grows.
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
        serde_json::from_str(&run(&scratch, &["analyze", "system.toml", "--json"]).out)
            .expect("JSON");
    let seen: serde_json::Value =
        serde_json::from_str(&run(&scratch, &["simulate", "system.toml", "--json"]).out)
            .expect("JSON");
    let tasks =
        |answer: &serde_json::Value| answer["roots"][0]["tasks"].as_array().expect("tasks").clone();
    for (bound, seen) in tasks(&bounds).iter().zip(&tasks(&seen)) {
        assert_eq!(bound["name"], seen["name"]);
        let (bound, seen) = (
            bound["bound_ns"].as_u64().expect("a bound"),
            seen["response_max_ns"].as_u64().expect("jobs"),
        );
        assert!(seen > 0 && seen <= bound, "{seen} {bound}");
    }
}

#[test]
fn what_if_a_cost_were_larger_is_refuted_by_a_job() {
    let scratch = Scratch::new();
    scratch.file("system.toml", SYSTEM);
    let ended = run(
        &scratch,
        &[
            "analyze",
            "system.toml",
            "--what-if",
            "cost(video)*2.1",
            "--what-if",
            "period(audio)=4ms",
        ],
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
    // The longest simulated response of `video` is also 10ms, so a late job is shown. The longest
    // one of the server's client is below its bound.
    for (change, verdict) in
        [("deadline(video)=9ms", "refuted"), ("deadline(requests)=31ms", "unknown")]
    {
        let ended = run(&scratch, &["analyze", "system.toml", "--json", "--what-if", change]);
        assert_eq!(ended.code, Some(1), "{change}: {}", ended.out);
        let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
        let tasks = answer["roots"][0]["tasks"].as_array().expect("tasks");
        let late =
            tasks.iter().find(|task| task["verdict"] != "proved").expect("one is not proved");
        assert_eq!(late["verdict"], verdict, "{change}: {late}");
        assert_eq!(late["witness"].is_null(), verdict == "unknown", "{change}: {late}");
        assert!(late["bound_ns"].as_u64() > late["deadline_ns"].as_u64(), "{change}: {late}");
    }
}

#[test]
fn a_stall_is_not_ignored() {
    let scratch = Scratch::new();
    let task = "[[task]]\nname = \"a\"\nin = \"cpu0\"\nperiod = \"10ms\"\ncost = \"1ms\"\n";
    let root = "duration = \"100ms\"\n[[scheduler]]\nname = \"cpu0\"\npolicy = \"edf\"\n";
    for (start, verdict) in [("5ms", "refuted"), ("900ms", "unknown")] {
        let stall = format!("[[stall]]\nstart = \"{start}\"\nlength = \"20ms\"\n");
        scratch.file("system.toml", &format!("{root}{task}{stall}"));
        let ended = run(&scratch, &["analyze", "system.toml"]);
        assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.err);
        assert!(
            ended.out.contains(&format!("{verdict}: a: cpu0: no test known for CPUs with stalls")),
            "{}",
            ended.out
        );
    }
}

#[test]
fn a_miss_that_no_job_shows_is_not_refuted() {
    let scratch = Scratch::new();
    let task = |name: &str, priority: u8, more: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\npriority = {priority}\nperiod = \"20ms\"\ndeadline = \"10ms\"\n{more}cost = \"10ms\"\n"
        )
    };
    let system = |second: &str| {
        format!(
            "[[scheduler]]\nname = \"cpu0\"\npolicy = \"fp\"\n{}{}",
            task("a", 9, ""),
            task("b", 1, second)
        )
    };
    // Neither waits for the other, which the schedule proves where a test follows it; released
    // together, the second one does. A stated zero is a phase, too.
    for (second, code, text) in [
        ("offset = \"10ms\"\n", 0, "every deadline is met"),
        ("offset = \"10ms\"\nenforce = true\n", 1, "unknown: b: a response may be up to 20ms"),
        ("offset = \"0\"\n", 1, "refuted: b: a response can be 20ms"),
        ("", 1, "refuted: b: a response can be 20ms"),
    ] {
        scratch.file("system.toml", &system(second));
        let ended = run(&scratch, &["analyze", "system.toml"]);
        assert_eq!(ended.code, Some(code), "{}{}", ended.out, ended.err);
        assert!(ended.out.contains(text), "{}", ended.out);
    }
}

/// Two CPUs, a chain, and a task with two versions.
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
    let cut =
        why(1, "[[task]]\nname = \"a\"\nperiod = \"20ms\"\noffset = \"15ms\"\ncost = \"10ms\"\n");
    assert!(cut.contains("none is searched") && !cut.contains("there is none"), "{cut}");
    let sporadic = why(
        2,
        "[[task]]\nname = \"a\"\nperiod = \"10ms\"\nseparation_max = \"11ms\"\ncost = \"1ms\"\n",
    );
    assert!(
        sporadic.contains("cpus: no table: a: arrives at times that are unknown before the run"),
        "{sporadic}"
    );
}

#[test]
fn l20_a_program_that_always_wants_the_cpu_has_no_deadline_and_others_have_theirs() {
    let scratch = Scratch::new();
    let program =
        "\n[[task]]\nname = \"hog\"\nin = \"net\"\nprogram = [\"sha1sum\", \"/dev/zero\"]\n";
    // Replaces the server's client.
    let others = SYSTEM.split("[[task]]\nname = \"requests\"").next().expect("a beginning");
    scratch.file("greedy.toml", &format!("{others}{program}"));
    let ended = run(&scratch, &["analyze", "greedy.toml", "--json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    let tasks = answer["roots"][0]["tasks"].as_array().expect("tasks");
    let said: Vec<_> =
        tasks.iter().map(|task| task["verdict"].as_str().expect("a verdict")).collect();
    assert_eq!(said, ["proved", "proved", "none"]);
    assert!(tasks[2]["deadline_ns"].is_null() && tasks[2]["bound_ns"].is_null());
    let ended = run(&scratch, &["simulate", "greedy.toml"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    // A task below one that always wants the CPU has no guarantee.
    let below = "\n[[task]]\nname = \"below\"\nin = \"net\"\npriority = 1\nperiod = \"1s\"\ncost = \"1us\"\n";
    scratch.file("below.toml", &format!("{others}{program}{below}"));
    let ended = run(&scratch, &["analyze", "below.toml"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("hog: its jobs never complete"), "{}", ended.out);
}

/// Builds a root with one policy and these tables below it.
fn below(policy: &str, rest: &str) -> String {
    format!("duration = \"1s\"\n[[scheduler]]\nname = \"cpu0\"\npolicy = \"{policy}\"\n{rest}")
}

#[test]
fn an_overload_that_shows_after_half_an_hour_is_refuted_by_the_job() {
    let scratch = Scratch::new();
    let task = |name: &str, period: &str, cost: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\nperiod = \"{period}\"\ndeadline = \"100ms\"\ncost = \"{cost}\"\n"
        )
    };
    let text = below("edf", &(task("a", "10ms", "5ms") + &task("b", "20ms", "10.001ms")));
    scratch.file("over.toml", &text);
    let ended = run(&scratch, &["analyze", "over.toml", "--witness", "late.json"]);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(
        ended.out.contains("refuted: b") && ended.out.contains("released at 1700s"),
        "{}",
        ended.out
    );
    let ended = run(&scratch, &["simulate", "over.toml", "--witness", "late.json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
}

#[test]
fn budgets_that_hold_alone_and_not_all_at_once_are_called_so() {
    let scratch = Scratch::new();
    let server = |name: &str, parent: &str, contract: &str| {
        format!(
            "[[scheduler]]\nname = \"{name}\"\nin = \"{parent}\"\nserver = \"deferrable\"\n{contract}"
        )
    };
    let text = server(
        "outer",
        "cpu0",
        "priority = 5\nbudget = \"5ms\"\nperiod = \"10ms\"\npolicy = \"fp\"\n",
    ) + &server("inner", "outer", "priority = 9\nbudget = \"5ms\"\nperiod = \"20ms\"\n")
        + "[[task]]\nname = \"a\"\nin = \"inner\"\nperiod = \"60ms\"\ndeadline = \"44ms\"\ncost = \"3ms\"\n"
        + "[[task]]\nname = \"b\"\nin = \"outer\"\npriority = 1\nperiod = \"100ms\"\ncost = \"1ms\"\n";
    scratch.file("nest.toml", &below("fp", &text));
    let ended = run(&scratch, &["analyze", "nest.toml", "--synthesize", "server", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(answer["not_together"], serde_json::json!(["a"]));
    let budget =
        |at: usize| answer["servers"][at]["after"]["budget_ns"].as_u64().expect("a budget");
    let changes =
        [format!("budget(outer)={}ns", budget(0)), format!("budget(inner)={}ns", budget(1))];
    for (changes, code) in [(&changes[..1], 0), (&changes[1..], 0), (&changes[..], 1)] {
        let args = changes.iter().flat_map(|change| ["--what-if", change]);
        let args: Vec<&str> = ["analyze", "nest.toml"].into_iter().chain(args).collect();
        assert_eq!(run(&scratch, &args).code, Some(code), "{changes:?}");
    }
}

#[test]
fn impossible_requests_are_answered_with_the_reason() {
    let scratch = Scratch::new();
    let task = "[[task]]\nname = \"a\"\nperiod = \"10ms\"\ncost = \"2ms\"\n";
    let stall = "[[stall]]\nstart = \"5ms\"\nlength = \"20ms\"\n";
    let empty = "[[scheduler]]\nname = \"s\"\nin = \"cpu0\"\nserver = \"deferrable\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n";
    let of_a = "in = \"cpu0\"\n";
    let huge = "[[scheduler]]\nname = \"s\"\nin = \"cpu0\"\nserver = \"cbs\"\nbudget = \"720575940379279370ns\"\n\
                period = \"1297036692682702866ns\"\n[[task]]\nname = \"c\"\nin = \"s\"\nperiod = \"1080863910568919055ns\"\n\
                cost = \"216172782113783811ns\"\n";
    let stalls = "no test known for CPUs with stalls";
    for (rest, synthesize, said, code) in [
        (format!("{task}{of_a}{stall}"), &["--synthesize", "table"][..], stalls, 1),
        (format!("{task}{of_a}{stall}"), &["--sensitivity"], stalls, 1),
        (format!("{task}{of_a}{empty}"), &["--synthesize", "server"], "it has no clients", 1),
        (huge.to_owned(), &["--synthesize", "server"], "432345564227567622ns", 0),
    ] {
        scratch.file("asked.toml", &below("edf", &rest));
        let args: Vec<&str> = ["analyze", "asked.toml"].iter().chain(synthesize).copied().collect();
        let ended = run(&scratch, &args);
        assert_eq!(ended.code, Some(code), "{synthesize:?}: {}{}", ended.out, ended.err);
        assert!(ended.transcript().contains(said), "{synthesize:?}: {}{}", ended.out, ended.err);
    }
}

#[test]
fn an_unknown_verdict_names_what_would_settle_it() {
    let scratch = Scratch::new();
    for (policy, task, settled_by) in [
        (
            "fifo",
            "period = \"9ms\"\n[[task.suspension]]\nlength = \"1ms\"",
            Some("preemptive schedulers"),
        ),
        ("fp", "period = \"9ms\"\narrivals = [\"1ms\", \"1ms\"]", Some("`enforce = true`")),
        ("fp", "period = \"9ms\"", None),
    ] {
        let root = format!("[[scheduler]]\nname = \"cpu0\"\npolicy = \"{policy}\"\n");
        let task = format!("[[task]]\nname = \"video\"\ncost = \"2ms\"\n{task}\n");
        scratch.file("system.toml", &format!("{root}{task}"));
        let ended = run(&scratch, &["analyze", "system.toml"]);
        let line = ended.out.lines().find_map(|line| line.strip_prefix("  to settle it: "));
        assert_eq!(line.is_some(), settled_by.is_some(), "{}", ended.out);
        assert!(line.is_none_or(|line| line.contains(settled_by.unwrap_or_default())), "{line:?}");
        assert_eq!(ended.code, Some(i32::from(settled_by.is_some())));
    }
}

const MODES: &str = "\
duration = \"1s\"

[[scheduler]]
name = \"cpu0\"
policy = \"fp\"

[[task]]
name = \"control\"
priority = 2
period = \"10ms\"
cost = \"2ms\"

[[task]]
name = \"video\"
priority = 1
period = \"40ms\"
cost = \"10ms\"

[[task]]
name = \"land\"
priority = 1
period = \"20ms\"
cost = \"4ms\"

[[mode]]
name = \"cruise\"
tasks = [\"control\", \"video\"]

[[mode]]
name = \"landing\"
tasks = [\"control\", \"land\"]

[[mode.task]]
name = \"control\"
cost = \"5ms\"
";

#[test]
fn d41_each_mode_and_each_transition_has_a_verdict() {
    let scratch = Scratch::new();
    let analyze = |text: &str, more: &[&str]| {
        scratch.file("system.toml", text);
        let ended = run(&scratch, &[&["analyze", "system.toml", "--json"], more].concat());
        let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
        (ended.code, answer)
    };
    let (code, answer) = analyze(MODES, &[]);
    assert_eq!((code, &answer["proved"]), (Some(0), &true.into()), "{answer}");
    let tasks = |of: &serde_json::Value| {
        let tasks = of["roots"][0]["tasks"].as_array().expect("tasks").iter();
        tasks
            .map(|task| {
                let text = |key: &str| task[key].as_str().unwrap_or_default().to_owned();
                (text("name"), text("runs_in"), task["bound_ns"].as_u64().map(|ns| ns / 1_000_000))
            })
            .collect::<Vec<_>>()
    };
    let row = |name: &str, runs_in: &str, ms| (name.to_owned(), runs_in.to_owned(), Some(ms));
    let transitions = &answer["transitions"];
    // The busy period of cruise: 10 + 2 · 2 ms; that of landing: 4 + 5 ms.
    let delays = [0, 1].map(|at| transitions[at]["roots"][0]["delay_ns"].as_u64());
    assert_eq!(delays, [Some(14_000_000), Some(9_000_000)], "{answer}");
    assert_eq!(
        tasks(&transitions[0]),
        [row("control", "both", 5), row("video", "old", 14), row("land", "new", 9)]
    );
    // A change that one mode cannot make is refused, and not ignored there. The cost of
    // `control` is 2 ms in cruise, and 5 ms in landing.
    for (change, code) in [
        ("cost(control)-3ms", 2),
        ("cost(control)+1ms", 0),
        ("cost(land)+1ms", 0),
        ("cost(land)-9ms", 2),
        ("cost(none)+1ms", 2),
    ] {
        let ended = run(&scratch, &["analyze", "system.toml", "--what-if", change]);
        assert_eq!(ended.code, Some(code), "{change}: {}{}", ended.out, ended.err);
    }
    // A mode alone is what the file would be with its changes.
    let (code, landing) = analyze(MODES, &["--mode", "landing"]);
    assert_eq!(code, Some(0));
    let alone = MODES.split("[[mode]]").next().expect("a file").replace("\"2ms\"", "\"5ms\"");
    let from = alone.find("[[task]]\nname = \"video\"").expect("a task");
    let to = alone.find("[[task]]\nname = \"land\"").expect("a task");
    let (_, described) = analyze(&format!("{}{}", &alone[..from], &alone[to..]), &[]);
    assert_eq!(landing["roots"], described["roots"]);
    // All deadlines are met in each mode, and yet a job may be pending at the switch.
    let late = MODES.replace("cost = \"10ms\"", "cost = \"34.5ms\"\ndeadline = \"80ms\"");
    let late = late.replace("period = \"10ms\"", "period = \"15ms\"");
    let (code, answer) = analyze(&late, &[]);
    assert_eq!((code, &answer["proved"]), (Some(1), &false.into()), "{answer}");
    let modes = answer["modes"].as_array().expect("modes");
    assert!(modes.iter().all(|mode| mode["proved"] == true), "{answer}");
    assert_eq!(answer["transitions"][0]["verdict"], "unknown", "{answer}");
    assert_eq!(answer["transitions"][1]["verdict"], "proved", "{answer}");
}
