//! `talea simulate --trace`: the trace contains the simulation, in Perfetto's published schema.
//!
//! A strict decoder with the schema from `subset.proto` always runs. If there is a Python with the
//! `perfetto` package, or `protoc`, these check the trace against the whole schema and the subset
//! as well. `TALEA_PROTO=required` makes it an error that there is neither; as a path it names the
//! Python.

mod decode;

use crate::browser::RICH;
use crate::harness::{Scratch, run};
use decode::Schema;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Two roots, one with two CPUs and an overload; refusals and migrations.
pub(crate) const ROOTS: &str = "\
duration = \"400ms\"

[[scheduler]]
name = \"pair\"
policy = \"edf\"
cpus = 2

[[scheduler]]
name = \"alone\"
policy = \"fp\"

[[scheduler]]
name = \"net\"
in = \"alone\"
server = \"cbs\"
budget = \"1ms\"
period = \"10ms\"

[[task]]
name = \"big\"
count = 3
in = \"pair\"
period = \"7ms\"
cost = { min = \"3ms\", max = \"6ms\" }
backlog = 1

[[task]]
name = \"requests\"
in = \"net\"
period = \"5ms\"
cost = \"0.7ms\"

[[task]]
name = \"rest\"
in = \"alone\"
period = \"20ms\"
cost = \"5ms\"
";

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Events of a track, in Perfetto's order.
#[derive(Default)]
struct Track {
    name: String,
    parent: Option<u64>,
    is_counter: bool,
    /// Start, end, name, and annotations of the end and of the start.
    slices: Vec<Slice>,
    /// Time, category, name, job.
    instants: Vec<(u64, String, String, Option<u64>)>,
    counts: Vec<(u64, u64)>,
}

struct Slice {
    start: u64,
    end: u64,
    name: String,
    job: Option<u64>,
    response: Option<u64>,
}

/// Names of a sequence, by field and number.
type Interned = BTreeMap<(String, u64), String>;

fn annotations(event: &Value, names: &Interned) -> BTreeMap<String, u64> {
    let list = event["debug_annotations"].as_array().cloned().unwrap_or_default();
    let name = |one: &Value| {
        names[&("debug_annotation_names".to_owned(), number(&one["name_iid"]))].clone()
    };
    list.iter().map(|one| (name(one), number(&one["uint_value"]))).collect()
}

/// Reads a trace like Perfetto, and checks clock, sequences, names, that tracks are described
/// before their use, and that slices nest and end.
fn tracks(bytes: &[u8]) -> BTreeMap<u64, Track> {
    let schema = Schema::read(include_str!("subset.proto"));
    let trace = schema.decode("Trace", bytes).expect("a trace");
    let packets = trace["packet"].as_array().expect("packets");
    let clock = &packets[0]["clock_snapshot"];
    assert_eq!(clock["primary_trace_clock"], "BUILTIN_CLOCK_MONOTONIC");
    assert_eq!(clock["clocks"], serde_json::json!([{ "clock_id": 3, "timestamp": 0 }]));
    let mut tracks: BTreeMap<u64, Track> = BTreeMap::new();
    let mut interned: BTreeMap<u64, Interned> = BTreeMap::new();
    let mut events = Vec::new();
    for packet in &packets[1..] {
        let sequence = number(&packet["trusted_packet_sequence_id"]);
        let flags = packet["sequence_flags"].as_u64().unwrap_or(0);
        if !interned.contains_key(&sequence) {
            assert_eq!(flags, 3, "a sequence begins with a clear state");
            assert_eq!(
                packet["trace_packet_defaults"]["timestamp_clock_id"], 3,
                "the clock of the snapshot"
            );
        }
        let names = interned.entry(sequence).or_default();
        for (field, entries) in packet["interned_data"].as_object().into_iter().flatten() {
            for entry in entries.as_array().expect("a list") {
                let key = (field.clone(), number(&entry["iid"]));
                assert!(key.1 > 0, "0 is no number of a name");
                let before = names.insert(key, entry["name"].as_str().expect("a name").to_owned());
                assert!(before.is_none(), "interned twice");
            }
        }
        if let Some(described) = packet.get("track_descriptor") {
            let parent = described["parent_uuid"].as_u64();
            assert!(parent.is_none_or(|parent| tracks.contains_key(&parent)), "{described}");
            let name = described["name"].as_str().or(described["process"]["process_name"].as_str());
            let track = Track {
                name: name.expect("a name").to_owned(),
                parent,
                is_counter: described["counter"]["unit"] == "UNIT_TIME_NS",
                ..Track::default()
            };
            assert!(tracks.insert(number(&described["uuid"]), track).is_none(), "described twice");
        }
        if let Some(event) = packet.get("track_event") {
            assert_eq!(flags, 2, "means nothing without its names");
            assert!(tracks.contains_key(&number(&event["track_uuid"])), "{event}");
            events.push((number(&packet["timestamp"]), sequence, event));
        }
    }
    // Stable: events at the same time keep their position in the file.
    events.sort_by_key(|(at, ..)| *at);
    let mut open: BTreeMap<u64, (u64, String, Option<u64>)> = BTreeMap::new();
    for (at, sequence, event) in events {
        let names = &interned[&sequence];
        let uuid = number(&event["track_uuid"]);
        let track = tracks.get_mut(&uuid).expect("checked before");
        let also = annotations(event, names);
        let name = || names[&("event_names".to_owned(), number(&event["name_iid"]))].clone();
        let category =
            || names[&("event_categories".to_owned(), number(&event["category_iids"][0]))].clone();
        let kind = event["type"].as_str().expect("a type");
        assert_eq!(kind == "TYPE_COUNTER", track.is_counter, "{event}");
        match kind {
            "TYPE_SLICE_BEGIN" => {
                let job = also.get("job").copied();
                let before = open.insert(uuid, (at, name(), job));
                assert!(before.is_none(), "{} at {at}: two at once", track.name);
                assert!(["run", "slot"].contains(&category().as_str()));
            }
            "TYPE_SLICE_END" => {
                let (start, name, job) = open.remove(&uuid).expect("a slice to end");
                let response = also.get("response_ns").copied();
                track.slices.push(Slice { start, end: at, name, job, response });
            }
            "TYPE_INSTANT" => {
                track.instants.push((at, category(), name(), also.get("job").copied()));
            }
            "TYPE_COUNTER" => track.counts.push((at, number(&event["counter_value"]))),
            _ => panic!("{event}"),
        }
    }
    assert!(open.is_empty(), "{} slices never end", open.len());
    tracks
}

/// Checks the trace with the available tools, and returns their number.
fn validate(scratch: &Scratch, trace: &Path) -> u32 {
    let wanted = std::env::var("TALEA_PROTO").unwrap_or_default();
    let subset = scratch.file("subset.proto", include_str!("subset.proto"));
    let script = scratch.file("whole.py", include_str!("whole.py"));
    let python = if wanted.is_empty() || wanted == "required" { "python3" } else { &wanted };
    let mut said = 0;
    let mut asked = Command::new(python);
    asked.args(["-c", "import perfetto.protos.perfetto.trace.perfetto_trace_pb2"]);
    if asked.output().is_ok_and(|output| output.status.success()) {
        let ended =
            Command::new(python).arg(script).arg(&subset).arg(trace).output().expect("Python");
        let (out, err) =
            (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success(), "{out}{err}");
        said += 1;
    }
    if Command::new("protoc").arg("--version").output().is_ok_and(|output| output.status.success())
    {
        let ended = Command::new("protoc")
            .current_dir(scratch.path())
            .args(["--decode=perfetto.protos.Trace", "subset.proto"])
            .stdin(std::fs::File::open(trace).expect("the trace"))
            .output()
            .expect("protoc");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let text = String::from_utf8(ended.stdout).expect("text");
        // protoc prints unknown fields by number.
        let unknown =
            text.lines().find(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
        assert_eq!(unknown, None);
        assert!(text.lines().any(|line| line.trim() == "type: TYPE_SLICE_BEGIN"));
        said += 1;
    }
    if said == 0 {
        assert_ne!(
            wanted, "required",
            "TALEA_PROTO=required, but neither python3 with perfetto nor protoc is here"
        );
        eprintln!(
            "skipped in part: needs protoc, or a Python with the perfetto package, for the whole schema"
        );
    }
    said
}

/// Simulates and compares: every job of the CSV has its slices, every number of the table its
/// instants.
fn compare(system: &str) -> (BTreeMap<u64, Track>, Value) {
    let scratch = Scratch::new();
    let path = scratch.file("system.toml", system);
    let found = compare_file(&scratch, &path, &[]);
    validate(&scratch, &scratch.path().join("out.pftrace"));
    found
}

fn compare_file(scratch: &Scratch, path: &Path, more: &[&str]) -> (BTreeMap<u64, Track>, Value) {
    let args = ["simulate", "--json", "--csv", "jobs.csv", "--trace", "out.pftrace"];
    let args: Vec<&str> = args.iter().chain(more).copied().chain(path.to_str()).collect();
    let ended = run(scratch, &args);
    // 1: an expectation does not hold, which does not matter for the trace.
    assert!(matches!(ended.code, Some(0 | 1)), "{}", ended.err);
    let answer: Value = serde_json::from_str(&ended.out).expect("JSON");
    let csv = std::fs::read_to_string(scratch.path().join("jobs.csv")).expect("jobs");
    let tracks = tracks(&std::fs::read(scratch.path().join("out.pftrace")).expect("the trace"));
    for root in answer["roots"].as_array().expect("roots") {
        let name = root["name"].as_str().expect("a name");
        let mut processes =
            tracks.iter().filter(|(_, track)| track.parent.is_none() && track.name == name);
        let (Some((&process, _)), None) = (processes.next(), processes.next()) else {
            panic!("{name}")
        };
        let children: Vec<&Track> =
            tracks.values().filter(|track| track.parent == Some(process)).collect();
        let cpus: Vec<&&Track> =
            children.iter().filter(|track| track.name.starts_with("CPU ")).collect();
        assert_eq!(cpus.len() as u64, number(&root["cpus"]));
        for task in root["tasks"].as_array().expect("tasks") {
            let name = task["name"].as_str().expect("a name");
            let track = children.iter().find(|track| track.name == name).expect(name);
            let count = |what: &str| {
                track.instants.iter().filter(|(_, _, name, _)| name == what).count() as u64
            };
            assert_eq!(count("arrival"), number(&task["arrived"]), "{name}");
            assert_eq!(count("refused"), number(&task["refused"]), "{name}");
            assert_eq!(count("deadline missed"), number(&task["late"]), "{name}");
            // Every completed job, with its end and its response.
            let ended: BTreeSet<(u64, u64, u64)> =
                track.slices.iter().filter_map(|s| Some((s.job?, s.end, s.response?))).collect();
            let jobs: BTreeSet<(u64, u64, u64)> = csv
                .lines()
                .map(|line| line.split(',').collect::<Vec<_>>())
                .filter(|cells| cells[0] == name)
                .map(|cells| {
                    let [job, release, end] =
                        [1, 2, 4].map(|at| cells[at].parse::<u64>().expect("a number"));
                    (job, end, end - release)
                })
                .collect();
            assert_eq!(jobs.len() as u64, number(&task["completed"]));
            assert_eq!(ended, jobs, "{name}");
            // Its execution time on its track equals that on the CPUs.
            let length = |slices: &mut dyn Iterator<Item = &Slice>| {
                slices.map(|s| s.end - s.start).sum::<u64>()
            };
            let on_cpus =
                length(&mut cpus.iter().flat_map(|cpu| &cpu.slices).filter(|s| s.name == name));
            assert_eq!(length(&mut track.slices.iter()), on_cpus, "{name}");
            assert!(track.slices.iter().all(|slice| slice.name == name && slice.job.is_some()));
        }
    }
    (tracks, answer)
}

fn named<'a>(tracks: &'a BTreeMap<u64, Track>, name: &str) -> &'a Track {
    tracks.values().find(|track| track.name == name).expect(name)
}

#[test]
fn s20_l22_a_trace_for_perfetto_is_the_simulation_slots_and_budgets_too() {
    let (tracks, answer) = compare(RICH);
    let slots = &named(&tracks, "slots of partitions").slices;
    assert_eq!(slots.len(), 2 * 50, "two slots in each of 50 frames");
    for (k, slot) in slots.iter().enumerate() {
        let owner = ["vision", "control"][k % 2];
        assert_eq!(
            (slot.start, slot.end, slot.name.as_str()),
            (k as u64 * 20_000_000, (k as u64 + 1) * 20_000_000, owner)
        );
    }
    let counts = &named(&tracks, "budget of network").counts;
    assert!(counts.iter().all(|&(_, left)| left <= 1_000_000));
    assert!(counts.is_sorted_by_key(|&(at, _)| at));
    // The budget of a deferrable server falls only while its clients run; a refill is a jump at one
    // instant.
    let falls: u64 = counts.windows(2).map(|pair| pair[0].1.saturating_sub(pair[1].1)).sum();
    let ran: u64 =
        named(&tracks, "requests").slices.iter().map(|slice| slice.end - slice.start).sum();
    assert_eq!(falls, ran);
    let rises = counts.windows(2).filter(|pair| pair[0].1 < pair[1].1);
    assert!(rises.clone().count() > 10);
    assert!(rises.clone().all(|pair| pair[0].0 == pair[1].0 && pair[1].0 % 50_000_000 == 0));
    assert!(number(&answer["roots"][0]["tasks"][0]["completed"]) > 0);
}

#[test]
fn s20_l22_a_trace_has_a_process_for_each_root_and_every_miss() {
    let (tracks, answer) = compare(ROOTS);
    let sum = |root: usize, what: &str| -> u64 {
        let tasks = answer["roots"][root]["tasks"].as_array().expect("tasks");
        tasks.iter().map(|task| number(&task[what])).sum()
    };
    assert!(sum(0, "late") > 0 && sum(0, "refused") > 0, "an overload to be seen: {answer}");
    let migrated = (0..3).any(|task| {
        let cpus: BTreeSet<&str> = ["CPU 0", "CPU 1"]
            .into_iter()
            .filter(|cpu| {
                named(&tracks, cpu).slices.iter().any(|slice| slice.name == format!("big{task}"))
            })
            .collect();
        cpus.len() == 2
    });
    assert!(migrated, "a task used both CPUs");
}

/// `move` migrates to CPU 0 at the instant at which CPU 1 dispatches `pinned`; and one budget is
/// used through another.
#[test]
fn s20_l22_a_trace_shows_migrations_and_every_used_budget() {
    let (tracks, _) = compare(
        "duration = \"100ms\"\n\
         [[scheduler]]\nname = \"pair\"\npolicy = \"edf\"\ncpus = 2\n\
         [[scheduler]]\nname = \"alone\"\npolicy = \"fp\"\n\
         [[scheduler]]\nname = \"outer\"\nin = \"alone\"\nserver = \"deferrable\"\nbudget = \"6ms\"\nperiod = \"20ms\"\n\
         [[scheduler]]\nname = \"inner\"\nin = \"outer\"\nserver = \"deferrable\"\nbudget = \"2ms\"\nperiod = \"10ms\"\n\
         [[task]]\nname = \"first\"\nin = \"pair\"\naffinity = \"0\"\nperiod = \"50ms\"\ndeadline = \"10ms\"\ncost = \"5ms\"\n\
         [[task]]\nname = \"move\"\nin = \"pair\"\nperiod = \"50ms\"\ncost = \"10ms\"\n\
         [[task]]\nname = \"pinned\"\nin = \"pair\"\naffinity = \"1\"\nperiod = \"50ms\"\noffset = \"5ms\"\n\
         deadline = \"10ms\"\ncost = \"5ms\"\n\
         [[task]]\nname = \"requests\"\nin = \"inner\"\nperiod = \"10ms\"\ncost = \"1.5ms\"\n",
    );
    let moved: Vec<(u64, u64)> =
        named(&tracks, "move").slices.iter().map(|s| (s.start, s.end)).collect();
    let ms = |from: u64, to: u64| (from * 1_000_000, to * 1_000_000);
    assert_eq!(moved, [ms(0, 5), ms(5, 10), ms(50, 55), ms(55, 60)]);
    let ran: u64 =
        named(&tracks, "requests").slices.iter().map(|slice| slice.end - slice.start).sum();
    for server in ["outer", "inner"] {
        let counts = &named(&tracks, &format!("budget of {server}")).counts;
        let falls: u64 = counts.windows(2).map(|pair| pair[0].1.saturating_sub(pair[1].1)).sum();
        assert_eq!(falls, ran, "{server}");
        // It has a corner where the client stops, at 1.5 and at 11.5 ms, and not only at a refill.
        let left = if server == "outer" { 3_000_000 } else { 500_000 };
        assert!(counts.contains(&(11_500_000, left)), "{server}: {counts:?}");
    }
}

/// Jobs of the source without a token, on the track of the sink: at the ends of the second, the
/// fourth, and so on.
#[test]
fn y9_y10_a_trace_shows_tasks_that_were_not_activated() {
    let system = "duration = \"100ms\"\n[[scheduler]]\nname = \"p\"\npolicy = \"edf\"\n\
        [[task]]\nname = \"source\"\nperiod = \"10ms\"\ncost = \"1ms\"\n[[task]]\nname = \"sink\"\ncost = \"1ms\"\n\
        [[channel]]\nfrom = \"source\"\nto = \"sink\"\nsize = 4\npush = [1, 0]\n";
    let (tracks, _) = compare(system);
    let of = |name: &str| {
        let instants =
            named(&tracks, name).instants.iter().filter(|(_, _, what, _)| what == "not activated");
        instants.map(|(at, category, ..)| (*at, category.clone())).collect::<Vec<_>>()
    };
    let expected: Vec<_> =
        (0..5).map(|k| (11_000_000 + 20_000_000 * k, "note".to_owned())).collect();
    assert_eq!((of("sink"), of("source")), (expected, Vec::new()));
}

/// Counts still agree, and budgets stay within their limits.
#[test]
fn s20_l22_a_trace_with_stalls_and_overheads_is_consistent() {
    let system = format!(
        "{ROOTS}\n[overheads]\nrelease = \"5us\"\ndecision = \"10us\"\nmigration = \"50us\"\n\n\
         [[stall]]\nin = \"alone\"\nstart = \"30ms\"\nlength = \"12ms\"\n"
    );
    let (tracks, _) = compare(&system);
    let counts = &named(&tracks, "budget of net").counts;
    assert!(counts.len() > 10 && counts.iter().all(|&(_, left)| left <= 1_000_000));
}

/// Graphs, off-line tables, versions, resources and affinities of the examples.
#[test]
fn s20_l22_the_traces_of_all_examples_agree_with_their_tables() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/systems");
    let (mut seen, mut with_slots) = (0, 0);
    for entry in std::fs::read_dir(folder).expect("examples") {
        let path = entry.expect("an entry").path();
        // Included parts are no systems.
        if !std::fs::read_to_string(&path).is_ok_and(|text| text.contains("[[scheduler]]")) {
            continue;
        }
        let (tracks, _) = compare_file(&Scratch::new(), &path, &["--for", "300ms"]);
        seen += 1;
        with_slots += u32::from(tracks.values().any(|track| track.name.starts_with("slots of ")));
    }
    assert!(seen >= 6 && with_slots >= 2, "{seen} examples, {with_slots} with slots");
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_by_byte() {
    let scratch = Scratch::new();
    scratch.file("system.toml", ROOTS);
    let mut traces = Vec::new();
    for (seed, name) in [("1", "a"), ("1", "b"), ("2", "c")] {
        let ended = run(&scratch, &["simulate", "system.toml", "--seed", seed, "--trace", name]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        traces.push(std::fs::read(scratch.path().join(name)).expect("a trace"));
    }
    assert_eq!(traces[0], traces[1]);
    assert_ne!(traces[0], traces[2]);
}

#[test]
fn a_trace_that_cannot_be_written_is_said() {
    let scratch = Scratch::new();
    scratch.file("system.toml", ROOTS);
    let ended = run(&scratch, &["simulate", "system.toml", "--trace", "no/such/folder"]);
    assert_ne!(ended.code, Some(0));
    assert!(ended.err.contains("cannot write no/such/folder"), "{}", ended.err);
    if Path::new("/dev/full").exists() {
        let ended = run(&scratch, &["simulate", "system.toml", "--trace", "/dev/full"]);
        assert_ne!(ended.code, Some(0));
        assert!(ended.err.contains("cannot write /dev/full"), "{}", ended.err);
    }
}
