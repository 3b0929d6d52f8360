//! Metrics of small and large machines, read strictly in both formats.

use super::exposition::MAX_SERIES;
use super::*;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use talea_core::CpuSet;
use talea_proto::message::Name;

/// Returns the state of a large machine.
fn state(plugins: u32, cpus: u32, users: u32) -> State {
    let status = Status {
        instance: 1,
        pid: 2,
        uptime_ns: 1_500_000_000,
        plugins,
        sessions: 3,
        specs: 4,
        attached: 5,
        requests: 6,
        refused: 7,
        adopted: 8,
        rules: 9,
        wakeups: 10,
    };
    let mut counters = Counters { grants: 11, ..Counters::default() };
    counters.refusals[Code::Quota as usize] = 7;
    for ns in [5_000, 20_000, 2_000_000_000] {
        counters.request_times.add(ns);
    }
    let plugin = |index: u32| PluginInfo {
        index,
        name: Name::new(&format!("p{index}")).expect("a name"),
        kind: Name::new("fp").expect("a name"),
        cpus: CpuSet::EMPTY,
        band: (1, 2),
        specs: 1,
        out_of_service: index == 0,
    };
    let cpu = |cpu| CpuInfo { cpu, free: Charge::ratio(1, 2), used: Charge::ratio(1, 4), specs: 1 };
    let plugins = (0..plugins).map(|index| (plugin(index), (0..cpus).map(cpu).collect()));
    let users = (0..users).map(|uid| (format!("user \"{uid:04}\"\\"), Charge::ratio(1, 8)));
    State { status, counters, plugins: plugins.collect(), users: users.collect() }
}

/// Value of each series by its name with labels, after a strict reading.
fn read(text: &str, format: Format) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let (mut families, mut family, mut kind) = (BTreeSet::new(), String::new(), String::new());
    for line in text.lines().take_while(|line| *line != "# EOF") {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect("a text");
            assert!(words.ends_with('.') && families.insert(name.to_owned()), "{line}");
            assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'), "{line}");
            family = name.to_owned();
        } else if let Some(types) = line.strip_prefix("# TYPE ") {
            let (name, word) = types.split_once(' ').expect("a type");
            assert_eq!(name, family, "{line}");
            kind = word.to_owned();
        } else {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            let metric = name.split('{').next().expect("a name");
            let expected: &[&str] = match (&*kind, format) {
                ("counter", Format::OpenMetrics) => &["_total"],
                ("counter" | "gauge", _) => &[""],
                ("histogram", _) => &["_bucket", "_sum", "_count"],
                other => panic!("{other:?}"),
            };
            assert!(expected.iter().any(|end| *metric == family.clone() + end), "{line}");
            assert_eq!(kind == "counter", metric.ends_with("_total"), "{line}");
            let value = value.parse().expect("a number");
            assert!(found.insert(name.to_owned(), value).is_none(), "twice: {line}");
        }
    }
    assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
    found
}

#[test]
fn both_formats_have_the_same_series() {
    let state = state(2, 2, 2);
    let [classic, open] =
        [Format::Prometheus, Format::OpenMetrics].map(|format| read(&state.expose(format), format));
    assert_eq!(classic, open);
    for (name, value) in [
        ("talea_uptime_seconds", 1.5),
        ("talea_granted_total", 11.0),
        ("talea_refused_total{reason=\"quota\"}", 7.0),
        ("talea_refused_total{reason=\"busy\"}", 0.0),
        ("talea_free_cpus{plugin=\"p1\",cpu=\"0\"}", 0.5),
        ("talea_granted_cpus{cpu=\"1\"}", 0.25),
        ("talea_user_granted_cpus{user=\"user \\\"0001\\\"\\\\\"}", 0.125),
        ("talea_plugin_outage{plugin=\"p0\"}", 1.0),
        ("talea_request_seconds_bucket{le=\"0.00001\"}", 1.0),
        ("talea_request_seconds_bucket{le=\"0.1\"}", 2.0),
        ("talea_request_seconds_bucket{le=\"+Inf\"}", 3.0),
        ("talea_request_seconds_count", 3.0),
        ("talea_request_seconds_sum", 2.000_025),
    ] {
        assert_eq!(classic.get(name), Some(&value), "{name}: {classic:#?}");
    }
}

#[test]
fn a_large_machine_has_at_most_200_series_and_the_last_ones_are_added_up() {
    let state = state(32, 1024, 500);
    let found = read(&state.expose(Format::Prometheus), Format::Prometheus);
    assert!(found.len() <= 200, "{}", found.len());
    let of = |family: &str| {
        let all: Vec<f64> = (found.iter())
            .filter_map(|(name, value)| name.starts_with(&format!("{family}{{")).then_some(*value))
            .collect();
        (all.len(), all.iter().sum::<f64>())
    };
    assert_eq!(of("talea_granted_cpus"), (MAX_SERIES, 1024.0 / 4.0));
    assert_eq!(of("talea_free_cpus"), (MAX_SERIES, 32.0 * 1024.0 / 2.0));
    assert_eq!(of("talea_user_granted_cpus"), (MAX_SERIES, 500.0 / 8.0));
    assert!(found.contains_key("talea_free_cpus{plugin=\"other\",cpu=\"other\"}"));
}

/// Exit code of [`OPENMETRICS_PARSER`] without its library.
const NO_PARSER: i32 = 77;
/// Reads a text by the reference parser of OpenMetrics.
const OPENMETRICS_PARSER: &str = "
import sys
try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError:
    sys.exit(77)
families = list(text_string_to_metric_families(sys.stdin.read()))
sys.exit(0 if families else 'no family')
";

/// Passes a text to a program that must accept it. Returns `false` if the program is missing.
fn is_accepted(program: &str, arguments: &[&str], text: &str) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else { return false };
    let mut input = child.stdin.take().expect("piped");
    // A program that ends early has said why.
    let _ = input.write_all(text.as_bytes());
    drop(input);
    let ended = child.wait_with_output().expect("a child");
    if ended.status.code() == Some(NO_PARSER) {
        return false;
    }
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(ended.status.success(), "{program}: {}\n{said}{text}", ended.status);
    true
}

/// Outputs of states of different sizes, from an empty one to more than the bound of series.
fn outputs(format: Format) -> impl Iterator<Item = String> {
    let sizes = [(0, 0, 0), (1, 1, 1), (2, 2, 2), (32, 1024, 500)];
    sizes.into_iter().map(move |(plugins, cpus, users)| state(plugins, cpus, users).expose(format))
}

#[test]
fn promtool_accepts_every_output() {
    let check = ["check", "metrics"];
    if !outputs(Format::Prometheus).all(|text| is_accepted("promtool", &check, &text)) {
        println!("skipped: needs promtool (Debian package prometheus)");
    }
}

#[test]
fn the_parser_of_openmetrics_accepts_every_output() {
    let parse = ["-c", OPENMETRICS_PARSER];
    if !outputs(Format::OpenMetrics).all(|text| is_accepted("/usr/bin/python3", &parse, &text)) {
        println!("skipped: needs python3-prometheus-client");
    }
}

#[test]
fn the_manual_names_only_series_that_exist() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/administrators.md");
    let manual = std::fs::read_to_string(path).expect("the manual");
    let found = read(&state(1, 1, 1).expose(Format::Prometheus), Format::Prometheus);
    let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
    let named = manual.match_indices("talea_").map(|(at, _)| {
        let rest = &manual[at..];
        &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())]
    });
    let named: BTreeSet<&str> = named.collect();
    assert!(named.len() > 12, "{named:?}");
    for name in named {
        let is_series = |series: &String| {
            let metric = series.split('{').next().unwrap_or_default();
            metric == name || metric == format!("{name}_bucket")
        };
        assert!(found.keys().any(is_series), "{name} is no series");
    }
}
