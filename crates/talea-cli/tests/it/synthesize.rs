//! `talea analyze` with a search: interference, slots, budgets and sensitivity.

use crate::harness::{Scratch, run};
use serde_json::Value;

/// Two partitions below a band with one server and a task of TP_0, with spare time in the frame.
const BAND: &str = r#"
duration = "2s"

[[scheduler]]
name = "cpu0"
policy = "fp"

[[scheduler]]
name = "band"
in = "cpu0"
policy = "edf"
priority = 250

[[scheduler]]
name = "echo"
in = "band"
server = "deferrable"
budget = "1ms"
period = "50ms"

[[scheduler]]
name = "partitions"
in = "cpu0"
policy = "partitions"
frame = "50ms"

[[scheduler.slot]]
owner = "vision"
length = "20ms"

[[scheduler.slot]]
owner = "control"
length = "20ms"

[[scheduler]]
name = "vision"
in = "partitions"
policy = "fp"

[[scheduler]]
name = "control"
in = "partitions"
policy = "fp"

[[task]]
name = "requests"
in = "echo"
period = "100ms"
deadline = "150ms"
cost = "0.65ms"

[[task]]
name = "handler"
in = "cpu0"
priority = 200
period = "100ms"
deadline = "5ms"
cost = "2ms"

[[task]]
name = "camera"
in = "vision"
priority = 50
period = "50ms"
cost = "18ms"

[[task]]
name = "loop"
in = "control"
priority = 50
period = "50ms"
offset = "20ms"
cost = "18ms"
"#;

const MS: u64 = 1_000_000;

fn json(scratch: &Scratch, arguments: &[&str]) -> (Option<i32>, Value) {
    let ended = run(scratch, &[&["analyze", "band.toml", "--json"], arguments].concat());
    (
        ended.code,
        serde_json::from_str(&ended.out)
            .unwrap_or_else(|_| panic!("JSON: {}{}", ended.out, ended.err)),
    )
}

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("band.toml", BAND);
    scratch
}

#[test]
fn l12_the_interference_of_a_band_is_one_command() {
    let scratch = scratch();
    let (code, answer) =
        json(&scratch, &["--interference", "echo", "--within", "49ms", "--within", "60ms"]);
    assert_eq!(code, Some(0));
    let band = &answer["bands"][0];
    let windows: Vec<u64> = band["windows"]
        .as_array()
        .expect("windows")
        .iter()
        .filter_map(|one| one["taken_ns"].as_u64())
        .collect();
    // Late in one period, early in the next, and once more from 51 ms on.
    assert_eq!(windows, [2 * MS, 3 * MS]);
    for slot in band["slots"].as_array().expect("slots") {
        assert_eq!(slot["taken_ns"].as_u64(), Some(2 * MS), "{slot}");
        assert_eq!(slot["absorbed_by_ns"].as_u64(), Some(22 * MS), "{slot}");
    }
    // L3C 4.1 H: the band disturbs neither higher-priority tasks nor a partition of higher
    // priority.
    let urgent = BAND.replace("priority = 50", "priority = 251");
    scratch.file("band.toml", &urgent);
    let (_, answer) = json(&scratch, &["--interference", "echo"]);
    for slot in answer["bands"][0]["slots"].as_array().expect("slots") {
        assert_eq!(slot["taken_ns"].as_u64(), Some(0), "{slot}");
    }
}

#[test]
fn l12_slots_absorb_the_band_and_the_table_is_run() {
    let scratch = scratch();
    let (code, answer) = json(&scratch, &["--synthesize", "partitions"]);
    assert_eq!(code, Some(0));
    let table = &answer["tables"][0];
    let slots: Vec<_> = table["slots"].as_array().expect("slots").iter().collect();
    let ns = |slot: &Value, what: &str| slot[what].as_u64().expect("a number");
    // 20 ms of work, 2 of the handler and 2 of the band.
    assert_eq!(
        slots.iter().map(|slot| ns(slot, "length_ns")).collect::<Vec<_>>(),
        [24 * MS, 24 * MS]
    );
    assert_eq!(
        (&table["verified"]["proved"], &table["verified"]["proved_before"]),
        (&Value::from(4), &Value::from(2))
    );
    // The printed slots replace the file's, and the resulting file misses no deadline.
    let text = run(&scratch, &["analyze", "band.toml", "--synthesize", "partitions"]).out;
    let printed = text.split("in place of the slots of partitions:").nth(1).expect("slots");
    let printed = printed.split("verified").next().expect("slots");
    let from = BAND.find("[[scheduler.slot]]").expect("slots");
    let to = BAND.find("[[scheduler]]\nname = \"vision\"").expect("partitions");
    let changed = format!("{}{printed}\n{}\n[[expect]]\nmisses = 0\n", &BAND[..from], &BAND[to..]);
    scratch.file("changed.toml", &changed);
    let ended = run(&scratch, &["analyze", "changed.toml"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    assert_eq!(run(&scratch, &["simulate", "changed.toml"]).code, Some(0));
    // Without spare time, a sufficient frame is proposed.
    scratch.file("band.toml", &BAND.replace("frame = \"50ms\"", "frame = \"40ms\""));
    let (code, answer) = json(&scratch, &["--synthesize", "partitions"]);
    assert_eq!((code, answer["tables"][0]["frame_needed_ns"].as_u64()), (Some(1), Some(48 * MS)));
}

#[test]
fn the_least_budget_is_enough_and_a_nanosecond_less_is_not() {
    let scratch = scratch();
    let wide = BAND
        .replace("frame = \"50ms\"", "frame = \"60ms\"")
        .replace("length = \"20ms\"", "length = \"29ms\"");
    let wide = wide
        .replace("period = \"50ms\"\ncost", "period = \"120ms\"\ncost")
        .replace("period = \"50ms\"\noffset", "period = \"120ms\"\noffset");
    scratch.file("band.toml", &wide);
    let (code, answer) = json(&scratch, &["--synthesize", "server"]);
    assert_eq!(code, Some(0), "{answer}");
    let after = answer["servers"][0]["after"]["budget_ns"].as_u64().expect("a budget");
    // Two budgets within 150 ms, at the latest.
    assert_eq!(after, 325_000);
    let verdict = |budget: u64| {
        let change = format!("budget(echo)={budget}ns");
        run(&scratch, &["analyze", "band.toml", "--what-if", &change]).code
    };
    assert_eq!((verdict(after), verdict(after - 1)), (Some(0), Some(1)));
    // A budget that suffices for its clients and is too much for others is not proposed.
    scratch.file(
        "band.toml",
        "[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n\n[[scheduler]]\nname = \"net\"\nin = \"cpu\"\nserver = \"deferrable\"\n\
         priority = 9\nbudget = \"1ms\"\nperiod = \"10ms\"\n\n[[task]]\nname = \"client\"\nin = \"net\"\nperiod = \"20ms\"\ncost = \"5ms\"\n\n\
         [[task]]\nname = \"other\"\nin = \"cpu\"\npriority = 1\nperiod = \"10ms\"\ncost = \"6ms\"\n",
    );
    let (code, answer) = json(&scratch, &["--synthesize", "server", "--period", "10ms"]);
    let why = answer["servers"][0]["periods"][0]["why_not"].as_str().expect("a reason");
    assert!(
        code == Some(1) && why.contains("would be enough, and other would not be proved any more"),
        "{why}"
    );
    scratch.file("band.toml", &wide);
    // A group without a server gets one, for the period with the smallest utilisation.
    let (code, answer) = json(
        &scratch,
        &["--synthesize", "server", "--server", "band", "--period", "20ms", "--period", "40ms"],
    );
    assert_eq!(code, Some(0), "{answer}");
    let server = &answer["servers"][0];
    assert_eq!(server["kind"], "sporadic");
    assert!(
        server["before"].is_null() && server["after"]["period_ns"].as_u64().is_some(),
        "{server}"
    );
}

#[test]
fn a_factor_is_the_last_of_its_granularity_that_is_proved() {
    let scratch = scratch();
    let wide = BAND.replace("cost = \"18ms\"", "cost = \"7ms\"");
    scratch.file("band.toml", &wide);
    let (code, answer) = json(&scratch, &["--sensitivity"]);
    assert_eq!(code, Some(0), "{answer}");
    let verdict = |what: &str, factor: u64| {
        let change = format!("{what}*{}.{:03}", factor / 1_000, factor % 1_000);
        run(&scratch, &["analyze", "band.toml", "--what-if", &change]).code
    };
    let all = answer["all_costs_thousandths"].as_u64().expect("a factor");
    assert_eq!((verdict("cost(*)", all), verdict("cost(*)", all + 1)), (Some(0), Some(1)));
    for task in answer["tasks"].as_array().expect("tasks") {
        let (name, cost) = (
            task["name"].as_str().expect("a name"),
            task["cost_thousandths"].as_u64().expect("a factor"),
        );
        let what = format!("cost({name})");
        assert!(cost >= all, "one cost alone can grow no less than all together: {task}");
        assert_eq!((verdict(&what, cost), verdict(&what, cost + 1)), (Some(0), Some(1)), "{task}");
        let period = task["period_thousandths"].as_u64().expect("a factor");
        let what = format!("period({name})");
        assert_eq!(
            (verdict(&what, period), verdict(&what, period - 1)),
            (Some(0), Some(1)),
            "{task}"
        );
    }
}

#[test]
fn impossible_requests_are_reported_with_alternatives() {
    let scratch = scratch();
    for (arguments, part) in [
        (&["--interference", "bnad"][..], "did you mean band?"),
        (&["--synthesize", "server", "--server", "ecko"], "did you mean echo?"),
        (&["--synthesize", "server", "--server", "vision"], "with --period"),
        (&["--synthesize", "server", "--server", "cpu0", "--period", "10ms"], "cpu0 is the root"),
        (&["--synthesize", "partitions", "--server", "echo"], "are for --synthesize server"),
        (&["--within", "10ms"], "--interference"),
        (&["--interference", "band", "--sensitivity"], "cannot be used with"),
    ] {
        let ended = run(&scratch, &[&["analyze", "band.toml"], arguments].concat());
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.out);
        assert!(ended.err.contains(part), "{arguments:?}: {}", ended.err);
    }
    scratch.file("band.toml", "[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n\n[[task]]\nname = \"a\"\nperiod = \"10ms\"\ncost = \"1ms\"\n");
    for (what, part) in
        [("server", "there is no server"), ("partitions", "there is no scheduler with policy")]
    {
        let ended = run(&scratch, &["analyze", "band.toml", "--synthesize", what]);
        assert!(ended.code == Some(2) && ended.err.contains(part), "{}", ended.err);
    }
}

/// The second task must be above the first: with the priorities of the file it misses its deadline.
const PRIORITIES: &str = "duration = \"1s\"\n\n[[scheduler]]\nname = \"cpu0\"\npolicy = \"fp\"\n\n[[task]]\nname = \"video\"\nin = \"cpu0\"\npriority = 20\n\
                          period = \"40ms\"\ncost = \"10ms\"\n\n[[task]]\nname = \"audio\"\nin = \"cpu0\"\npriority = 10\nperiod = \"10ms\"\ncost = \"2ms\"\n";

#[test]
fn priorities_are_written_into_the_file_and_a_task_that_none_serves_is_named() {
    let scratch = Scratch::new();
    scratch.file("system.toml", PRIORITIES);
    let search = ["analyze", "system.toml", "--synthesize", "priorities"];
    let ended = run(&scratch, &search);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    assert!(ended.out.starts_with("# priority of video: 1, was 20\n"), "{}", ended.out);
    scratch.file("found.toml", &ended.out);
    assert_eq!(run(&scratch, &["analyze", "system.toml"]).code, Some(1));
    let again = run(&scratch, &["analyze", "found.toml"]);
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
    let json = run(&scratch, &[search.as_slice(), &["--json"]].concat());
    let answer: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(answer["found"], true);
    assert_eq!(answer["roots"][0]["priorities"][1]["name"], "audio");
    assert_eq!(answer["roots"][0]["priorities"][1]["priority"], 2);
    // 2 ms of `audio` before the deadline of `video`, or 10 ms of `video` before that of `audio`.
    for (change, why) in [
        ("cost(video)=35ms", "no order serves all of video, audio"),
        ("cost(audio)=11ms", "no order serves audio"),
    ] {
        let ended = run(&scratch, &[search.as_slice(), &["--what-if", change]].concat());
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{change}");
        assert!(ended.err.contains(why), "{change}: {}", ended.err);
    }
    scratch.file(
        "edf.toml",
        &PRIORITIES.replace("\"fp\"", "\"edf\"").replace("10ms\"\n\n", "39ms\"\n\n"),
    );
    let ended = run(&scratch, &["analyze", "edf.toml", "--synthesize", "priorities"]);
    assert_eq!(ended.code, Some(1), "{}", ended.out);
    assert!(ended.err.contains("no scheduler has `policy = \"fp\"`"), "{}", ended.err);
}
