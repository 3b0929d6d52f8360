//! a653rs-linux: partition schedules of ARINC 653, as its hypervisor reads them.
//!
//! Model: a file has a major frame and partitions. A partition has an offset, a duration and a
//! period: it owns a window of that duration at the offset, and again after each period, until the
//! end of the frame (ARINC 653, part 1, partition scheduling). Here the CPU has the policy
//! `partitions`, each window is a slot, and each partition is a scheduler with one task, its image.
//!
//! The reader accepts the subset of YAML that such files use: comments, block mappings, lists with
//! `-`, and scalars on one line. It reads the sections that describe time. The other sections
//! describe devices and ports, which the hypervisor gives to its partitions; a note names each.

use crate::lines::Lines;
use crate::names::Names;
use crate::system_file::{File, system_file};
use std::ops::Range;
use talea_config::diagnostic::{Diagnostic, quoted};
use talea_config::duration::parse_span;
use talea_config::source::{Findings, words};
use talea_config::write::text;
use talea_core::Span;

/// Largest number of windows in a frame.
const WINDOWS_MAX: u64 = 1000;
/// Keys of a partition.
const KEYS: [&str; 6] = ["id", "name", "duration", "offset", "period", "image"];
/// Keys of a partition that describe no time.
const IGNORED_KEYS: [&str; 5] = ["hm_table", "mounts", "devices", "sockets", "env"];
/// Sections that describe no time.
const IGNORED_SECTIONS: [&str; 4] = ["channel", "channels", "hm_init_table", "hm_run_table"];

/// Scalar with its position.
#[derive(Clone)]
struct Value<'t> {
    key: &'t str,
    text: &'t str,
    at: Range<usize>,
}

/// Keys of the file and of each partition.
#[derive(Default)]
struct Document<'t> {
    major_frame: Option<Value<'t>>,
    partitions: Vec<Vec<Value<'t>>>,
    /// Names of sections and keys that were not read.
    ignored: Vec<&'t str>,
}

/// Window of a partition in the frame.
struct Window {
    start: u64,
    length: u64,
    partition: usize,
}

/// Converts a configuration of a653rs-linux into a system file.
///
/// # Errors
/// Diagnostics at positions of the file.
pub fn a653(file: File<'_>) -> Result<String, Vec<Diagnostic>> {
    system_file(file, "a653", |text, lines, notes, findings| {
        let document = read(text, findings);
        if findings.has_errors() {
            return;
        }
        translate(&document, lines, findings);
        for name in &document.ignored {
            let what = "Talea schedules the programs, and gives them no ports and devices";
            notes.push(format!("`{name}` is not imported: {what}"));
        }
        let what = "the image of a partition is its program, with the duration as its cost";
        notes.push(format!("{what}; add the `user` of each program before root runs it"));
    })
}

/// Reads all keys of a file.
fn read<'t>(text: &'t str, findings: &mut Findings<'_>) -> Document<'t> {
    let mut document = Document::default();
    let (mut section, mut start) = ("", 0);
    // Columns of the partitions' dashes and of their keys.
    let (mut dashes, mut keys) = (0, 0);
    for line in text.split_inclusive('\n') {
        let from = start;
        start += line.len();
        let content = without_comment(line).trim_end();
        let body = content.trim_start();
        if body.is_empty() || body == "---" {
            continue;
        }
        let indent = content.len() - body.len();
        let pair = body.trim_start_matches(['-', ' ']);
        let column = content.len() - pair.len();
        let has_dash = body.starts_with('-');
        if indent > 0 || has_dash {
            if section != "partitions" {
                continue;
            }
            if has_dash && (document.partitions.is_empty() || indent <= dashes) {
                (dashes, keys) = (indent, column);
                document.partitions.push(Vec::new());
            }
            // Deeper lines belong to a key that is not read.
            if column > keys {
                continue;
            }
        }
        let at = from + column..from + content.len();
        let Some((key, rest)) = pair.split_once(':') else {
            let remedy = "write `key: value`, or leave it out";
            findings.error(
                &at,
                words(format!("{} has no key", quoted(pair)), "each line has one", remedy),
            );
            continue;
        };
        let value = rest.trim();
        let value_at = from + content.len() - rest.trim_start().len()..from + content.len();
        let bare = value.trim_matches(['"', '\'']);
        let value = Value { key: key.trim_end(), text: bare, at: value_at };
        if indent == 0 && !has_dash {
            section = value.key;
            match section {
                "major_frame" => document.major_frame = Some(value),
                "partitions" => {}
                _ if IGNORED_SECTIONS.contains(&section) => document.ignored.push(section),
                _ => unknown(section, &at, "major_frame, partitions, channel", findings),
            }
        } else if let Some(partition) = document.partitions.last_mut() {
            if partition.iter().any(|other| other.key == value.key) {
                let what = format!("`{}` is stated twice", value.key);
                findings.error(&at, words(what, "one of them would be lost", "leave one out"));
            } else if IGNORED_KEYS.contains(&value.key) {
                if !document.ignored.contains(&value.key) {
                    document.ignored.push(value.key);
                }
            } else if KEYS.contains(&value.key) {
                partition.push(value);
            } else {
                unknown(value.key, &at, &KEYS.join(", "), findings);
            }
        }
    }
    document
}

/// Returns a line without its comment: `#` at the beginning or after a space.
fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with('#') {
        return "";
    }
    line.split(" #").next().unwrap_or_default()
}

fn unknown(key: &str, at: &Range<usize>, known: &str, findings: &mut Findings<'_>) {
    let what = format!("unknown key {}", quoted(key));
    let remedy = format!("write one of {known}");
    findings.error(at, words(what, "a key that is not read would be lost", remedy));
}

/// Writes the system.
fn translate(document: &Document<'_>, lines: &mut Lines, findings: &mut Findings<'_>) {
    let Some(frame) = &document.major_frame else {
        let why = "the windows of all partitions repeat with it";
        findings
            .error(&(0..0), words("`major_frame` is missing", why, "add a line `major_frame:`"));
        return;
    };
    let Some(length) = duration(frame, findings) else { return };
    let mut names = Names::default();
    let cpu = names.give("cpu0", "cpu");
    let (mut windows, mut owners) = (Vec::new(), Vec::new());
    let mut tasks = Vec::new();
    for partition in &document.partitions {
        let Some(task) = partition_of(partition, length, findings) else { continue };
        let number = owners.len();
        owners.push((names.give(task.name.text, "partition"), task.name.at.clone()));
        let mut start = task.offset;
        while start < length.as_ns() {
            windows.push(Window { start, length: task.duration, partition: number });
            start += task.period;
            if windows.len() as u64 > WINDOWS_MAX {
                let what = format!("the frame has more than {WINDOWS_MAX} windows");
                let why = "a table of this length is not read";
                findings.error(&task.name.at, words(what, why, "use longer periods"));
                return;
            }
        }
        tasks.push(task);
    }
    if findings.has_errors() {
        return;
    }
    windows.sort_by_key(|window| window.start);
    check_windows(&windows, length, &owners, findings);
    if owners.is_empty() {
        let why = "without one the CPU is idle";
        findings
            .error(&frame.at, words("there is no partition", why, "add a section `partitions:`"));
    }
    if findings.has_errors() {
        return;
    }
    lines.say(&format!("duration = \"{}\"", Span::from_ns(length.as_ns().saturating_mul(100))));
    lines.say("");
    lines.say("[[scheduler]]");
    lines.say(&format!("name = \"{cpu}\""));
    lines.say("policy = \"partitions\"");
    lines.from(&format!("frame = \"{length}\""), (), &frame.at);
    for window in &windows {
        let (owner, at) = &owners[window.partition];
        lines.from("", (), at);
        lines.from("[[scheduler.slot]]", (), at);
        lines.from(&format!("owner = \"{owner}\""), (), at);
        lines.from(&format!("start = \"{}\"", Span::from_ns(window.start)), (), at);
        lines.from(&format!("length = \"{}\"", Span::from_ns(window.length)), (), at);
    }
    for ((owner, at), task) in owners.iter().zip(&tasks) {
        let name = names.give(task.image.text, "image");
        for line in [
            String::new(),
            "[[scheduler]]".to_owned(),
            format!("name = \"{owner}\""),
            format!("in = \"{cpu}\""),
            "policy = \"fp\"".to_owned(),
            String::new(),
            "[[task]]".to_owned(),
            format!("name = \"{name}\""),
            format!("in = \"{owner}\""),
            format!("offset = \"{}\"", Span::from_ns(task.offset)),
            format!("period = \"{}\"", Span::from_ns(task.period)),
            format!("cost = \"{}\"", Span::from_ns(task.duration)),
        ] {
            lines.from(&line, (), at);
        }
        let program = text(task.image.text);
        lines.from(&format!("program = [{program}]"), (), &task.image.at);
    }
}

/// Reports windows that overlap or exceed the frame. `windows` are in order.
fn check_windows(
    windows: &[Window],
    frame: Span,
    owners: &[(String, Range<usize>)],
    findings: &mut Findings<'_>,
) {
    let frame = frame.as_ns();
    for (number, window) in windows.iter().enumerate() {
        let end = window.start.saturating_add(window.length);
        let (name, at) = &owners[window.partition];
        let next = windows.get(number + 1).filter(|next| next.start < end);
        let what = match next {
            Some(next) => {
                format!("windows of {name} and {} overlap", owners[next.partition].0)
            }
            None if end > frame => format!("a window of {name} exceeds the frame"),
            None => continue,
        };
        let why = "at most one partition has the CPU, and the frame begins again at its end";
        findings.error(at, words(what, why, "choose another offset or a shorter duration"));
    }
}

/// Partition with its times in nanoseconds.
struct Partition<'v, 't> {
    name: &'v Value<'t>,
    image: &'v Value<'t>,
    offset: u64,
    duration: u64,
    period: u64,
}

/// Reads a partition, and checks it against the frame.
fn partition_of<'v, 't>(
    partition: &'v [Value<'t>],
    frame: Span,
    findings: &mut Findings<'_>,
) -> Option<Partition<'v, 't>> {
    let of = |key: &str, findings: &mut Findings<'_>| {
        let found = partition.iter().find(|value| value.key == key);
        if found.is_none() {
            let place = partition.first().map_or(0..0, |value| value.at.clone());
            let what = format!("a partition has no `{key}`");
            let why = "a653rs-linux requires it";
            findings.error(&place, words(what, why, format!("add a line `{key}:`")));
        }
        found
    };
    let (name, image) = (of("name", findings), of("image", findings));
    let times = ["offset", "duration", "period"].map(|key| of(key, findings));
    let [Some(offset_of), Some(duration_of), Some(period_of)] = times else { return None };
    let times = [offset_of, duration_of, period_of].map(|of| duration(of, findings));
    let [Some(offset), Some(length), Some(period)] = times.map(|of| of.map(Span::as_ns)) else {
        return None;
    };
    if !frame.as_ns().is_multiple_of(period) {
        let why = "the windows repeat with the major frame";
        let remedy = "choose a period that divides the major frame";
        let what = "the period does not divide the major frame";
        findings.error(&period_of.at, words(what, why, remedy));
        return None;
    }
    if offset >= period || length > period {
        let what = "the window is not within the period";
        let why = "a partition has one window in each period";
        let remedy = "choose an offset below the period, and at most the period as the duration";
        findings.error(&offset_of.at, words(what, why, remedy));
        return None;
    }
    Some(Partition { name: name?, image: image?, offset, duration: length, period })
}

/// Reads a duration: numbers with units, as `1s 500ms`.
fn duration(value: &Value<'_>, findings: &mut Findings<'_>) -> Option<Span> {
    let parts = value.text.split_whitespace().map(|part| parse_span(part).ok());
    let sum = parts.reduce(|sum, part| sum?.as_ns().checked_add(part?.as_ns()).map(Span::from_ns));
    let found = sum.flatten().filter(|span| !span.is_zero() || value.key == "offset");
    if found.is_none() {
        let what = format!("`{}` is {}", value.key, quoted(value.text));
        let why = "a time has a number and a unit, and only an offset may be zero";
        findings.error(&value.at, words(what, why, "write a time such as `10ms` or `1s 500ms`"));
    }
    found
}
