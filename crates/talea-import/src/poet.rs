//! POET: task sets of the certifying response-time analysis of the Prosa project.
//!
//! Model: a file names a scheduling policy, a preemption model and a task set, in YAML. A task has
//! a cost, a deadline, perhaps a priority, and a period, a minimum separation or the prefix of an
//! arrival curve: a horizon, and pairs of a window and the number of jobs in it. Beyond its horizon
//! the curve repeats. A window of n + 1 jobs is longer than the distance of n jobs, so step (w, n +
//! 1) becomes the minimum distance w − 1, and the horizon that of all jobs in it.
//!
//! The reader accepts the subset of YAML that such files use: comments, block mappings, and lists
//! of integers in block or flow style. One unit of time becomes one nanosecond.

use crate::lines::Lines;
use crate::names::Names;
use crate::system_file::{File, system_file};
use std::ops::Range;
use talea_config::diagnostic::{Diagnostic, quoted};
use talea_config::source::{Findings, words};

/// Largest number that a file of times or jobs may contain.
const NUMBER_MAX: u64 = 1 << 60;
/// Largest number of jobs before a curve repeats.
const JOBS_MAX: u64 = 1000;

/// Value of a key, with the lines that continue it.
struct Value<'t> {
    key: &'t str,
    key_at: Range<usize>,
    parts: Vec<(&'t str, Range<usize>)>,
}

impl<'t> Value<'t> {
    fn at(&self) -> Range<usize> {
        let first = self.parts.first().map_or(self.key_at.clone(), |(_, at)| at.clone());
        let end = self.parts.last().map_or(first.end, |(_, at)| at.end);
        first.start..end
    }

    /// Returns the first number, if it is valid.
    fn first_number(&self) -> Option<u64> {
        let text = self.parts.first()?.0.trim_start_matches(['[', '-', ' ']);
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        text[..digits].parse().ok()
    }

    fn text(&self) -> &'t str {
        match self.parts[..] {
            [(text, _)] => text,
            _ => "",
        }
    }
}

/// Keys of the file and of each task.
#[derive(Default)]
struct Document<'t> {
    top: Vec<Value<'t>>,
    tasks: Vec<Vec<Value<'t>>>,
}

/// Converts a task set of POET into a system file.
///
/// # Errors
/// Diagnostics at positions of the file.
pub fn poet(file: File<'_>) -> Result<String, Vec<Diagnostic>> {
    system_file(file, "poet", |text, lines, notes, findings| {
        let document = read(text, findings);
        if findings.has_errors() {
            return;
        }
        translate(&document, lines, findings);
        let note = "one unit of time is one nanosecond; a run has a hundred of the longest periods";
        notes.push(note.to_owned());
    })
}

/// Reads all keys of a file.
fn read<'t>(text: &'t str, findings: &mut Findings<'_>) -> Document<'t> {
    let mut document = Document::default();
    let mut in_tasks = false;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let from = start;
        start += line.len();
        let content = line.split('#').next().unwrap_or_default();
        let indent = content.len() - content.trim_start().len();
        let content = content.trim();
        if content.is_empty() || content == "---" {
            continue;
        }
        let at = from + indent;
        let Some((key, value)) = content.split_once(':') else {
            let last = if in_tasks {
                document.tasks.last_mut().and_then(|task| task.last_mut())
            } else {
                document.top.last_mut()
            };
            match last {
                Some(value) => value.parts.push((content, at..at + content.len())),
                None => stray(content, at, findings),
            }
            continue;
        };
        let begins_task = key.starts_with('-');
        let key_at = at + key.len() - key.trim_start_matches(['-', ' ']).len();
        let key = key.trim_start_matches(['-', ' ']).trim_end();
        let value_at = at + content.len() - value.trim_start().len();
        let value = value.trim();
        let mut read = Value { key, key_at: key_at..key_at + key.len(), parts: Vec::new() };
        if !value.is_empty() {
            read.parts.push((value, value_at..value_at + value.len()));
        }
        if begins_task && in_tasks {
            document.tasks.push(vec![read]);
        } else if indent == 0 && !begins_task {
            in_tasks = key == "task set";
            document.top.push(read);
        } else if let Some(task) = document.tasks.last_mut().filter(|_| in_tasks) {
            task.push(read);
        } else {
            stray(content, at, findings);
        }
    }
    document
}

fn stray(content: &str, at: usize, findings: &mut Findings<'_>) {
    let what = format!("{} belongs to no key", quoted(content));
    let why = "a task set of POET has `scheduling policy`, `preemption model` and `task set`";
    let remedy = "write it below its key, or leave it out";
    findings.error(&(at..at + content.len()), words(what, why, remedy));
}

/// Returns the value of a key, and reports a missing one.
fn required<'v, 't>(
    values: &'v [Value<'t>],
    key: &str,
    place: &Range<usize>,
    findings: &mut Findings<'_>,
) -> Option<&'v Value<'t>> {
    let found = values.iter().find(|value| value.key == key);
    if found.is_none() {
        let what = format!("`{key}` is missing");
        findings.error(place, words(what, "POET requires it", format!("add a line `{key}:`")));
    }
    found
}

/// Reports keys that are unknown or occur twice.
fn check_keys(values: &[Value<'_>], known: &[&str], findings: &mut Findings<'_>) {
    for (number, value) in values.iter().enumerate() {
        let (what, remedy) = if !known.contains(&value.key) {
            let remedy = format!("write one of `{}`", known.join("`, `"));
            (format!("unknown key {}", quoted(value.key)), remedy)
        } else if values[..number].iter().any(|other| other.key == value.key) {
            (format!("`{}` is stated twice", value.key), "leave one line out".to_owned())
        } else {
            continue;
        };
        findings.error(&value.key_at, words(what, "a key that is not read would be lost", remedy));
    }
}

/// Reads one of several words.
fn word<T: Copy>(value: &Value<'_>, known: &[(&str, T)], findings: &mut Findings<'_>) -> Option<T> {
    let found = known.iter().find(|(word, _)| *word == value.text());
    if found.is_none() {
        let what = format!("`{}` is {}", value.key, quoted(value.text()));
        let names: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        let remedy = format!("write one of {}", names.join(", "));
        findings.error(&value.at(), words(what, "POET knows no other", remedy));
    }
    found.map(|(_, meaning)| *meaning)
}

/// Reads the integers of a value in block or flow style.
fn numbers(value: &Value<'_>, findings: &mut Findings<'_>) -> Option<Vec<u64>> {
    let mut found = Vec::new();
    for (text, at) in &value.parts {
        let mut rest = *text;
        let mut from = at.start;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits > 0 {
                let number = rest[..digits].parse().ok().filter(|&number| number < NUMBER_MAX);
                let Some(number) = number else {
                    return number_error(value, &(from..from + digits), findings);
                };
                found.push(number);
            }
            let next = &rest[digits..];
            let skipped = next.chars().next().map_or(0, char::len_utf8);
            if skipped > 0 && !next.starts_with(['[', ']', ',', '-', ' ']) {
                let at = from + digits;
                return number_error(value, &(at..at + skipped), findings);
            }
            from += digits + skipped;
            rest = &next[skipped..];
        }
    }
    Some(found)
}

fn number_error<T>(value: &Value<'_>, at: &Range<usize>, findings: &mut Findings<'_>) -> Option<T> {
    let what = format!("`{}` is no whole number in range", value.key);
    findings.error(at, words(what, "times and jobs are counted", "write a number from 1 to 2^60"));
    None
}

/// Reads one positive integer.
fn number(value: &Value<'_>, findings: &mut Findings<'_>) -> Option<u64> {
    match numbers(value, findings)?[..] {
        [number] if number > 0 => Some(number),
        _ => number_error(value, &value.at(), findings),
    }
}

const TASK_KEYS: [&str; 7] = [
    "id",
    "worst-case execution time",
    "deadline",
    "priority",
    "period",
    "min interarrival",
    "arrival curve",
];

/// Writes the system.
fn translate(document: &Document<'_>, lines: &mut Lines, findings: &mut Findings<'_>) {
    check_keys(&document.top, &["scheduling policy", "preemption model", "task set"], findings);
    let policy =
        required(&document.top, "scheduling policy", &(0..0), findings).and_then(|value| {
            let policies = [
                ("FP", "fp"),
                ("fixed-priority", "fp"),
                ("EDF", "edf"),
                ("earliest-deadline-first", "edf"),
            ];
            word(value, &policies, findings)
        });
    let preemptive =
        required(&document.top, "preemption model", &(0..0), findings).and_then(|value| {
            let models = [
                ("FP", true),
                ("fully-preemptive", true),
                ("NP", false),
                ("non-preemptive", false),
            ];
            word(value, &models, findings)
        });
    let _ = required(&document.top, "task set", &(0..0), findings);
    let (Some(policy), Some(preemptive)) = (policy, preemptive) else { return };
    // A run of the default length would have millions of jobs.
    let of_arrivals =
        document.tasks.iter().flatten().filter(|value| TASK_KEYS[4..].contains(&value.key));
    let longest = of_arrivals.filter_map(Value::first_number).max();
    let duration = longest.unwrap_or(1).clamp(1, NUMBER_MAX / 100) * 100;
    lines.say(&format!("duration = \"{duration}ns\""));
    lines.say("");
    lines.say("[[scheduler]]");
    lines.say("name = \"cpu0\"");
    lines.say(&format!("policy = \"{policy}\""));
    if !preemptive {
        lines.say("preemptive = false");
    }
    let mut names = Names::default();
    let ranks = ranks(document, findings);
    for task in &document.tasks {
        check_keys(task, &TASK_KEYS, findings);
        let _ = write_task(task, (policy, &ranks), &mut names, lines, findings);
    }
}

/// Returns the priorities of the tasks in order, without duplicates: POET's are any integers.
fn ranks(document: &Document<'_>, findings: &mut Findings<'_>) -> Vec<u64> {
    let of = document.tasks.iter().filter_map(|task| {
        let value = task.iter().find(|value| value.key == "priority")?;
        match numbers(value, findings)?[..] {
            [priority] if !value.text().starts_with('-') => Some(priority),
            _ => number_error(value, &value.at(), findings),
        }
    });
    let mut ranks: Vec<u64> = of.collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

fn write_task(
    task: &[Value<'_>],
    (policy, ranks): (&str, &[u64]),
    names: &mut Names,
    lines: &mut Lines,
    findings: &mut Findings<'_>,
) -> Option<()> {
    let place = task.first()?.key_at.clone();
    let id = required(task, "id", &place, findings)?;
    let cost = required(task, "worst-case execution time", &place, findings)?;
    let deadline = required(task, "deadline", &place, findings)?;
    let name = names.give(&format!("task{}", id.text()), "task");
    lines.from("", (), &id.at());
    lines.from("[[task]]", (), &id.at());
    lines.from(&format!("name = \"{name}\""), (), &id.at());
    let arrivals: Vec<&Value<'_>> =
        task.iter().filter(|value| TASK_KEYS[4..].contains(&value.key)).collect();
    let [arrivals] = arrivals[..] else {
        let what = "a task has not exactly one of `period`, `min interarrival` and `arrival curve`";
        let why = "they describe the same arrivals";
        findings.error(&place, words(what, why, "write one of the three"));
        return None;
    };
    match arrivals.key {
        "arrival curve" => {
            let distances = distances(arrivals, findings)?;
            let list: Vec<String> = distances.iter().map(|at| format!("\"{at}ns\"")).collect();
            let line = format!("curve = {{ distances = [{}] }}", list.join(", "));
            lines.from(&line, (), &arrivals.at());
        }
        key => {
            let period = number(arrivals, findings)?;
            lines.from(&format!("period = \"{period}ns\""), (), &arrivals.at());
            if key == "min interarrival" {
                // Random separations: sporadic, as POET distinguishes the two.
                let line = format!("separation_max = \"{}ns\"", period.saturating_mul(2));
                lines.from(&line, (), &arrivals.at());
            }
        }
    }
    let (cost_ns, deadline_ns) = (number(cost, findings)?, number(deadline, findings)?);
    lines.from(&format!("cost = \"{cost_ns}ns\""), (), &cost.at());
    lines.from(&format!("deadline = \"{deadline_ns}ns\""), (), &deadline.at());
    let priority = task.iter().find(|value| value.key == "priority");
    if policy == "fp" {
        let value = required(task, "priority", &place, findings)?;
        let rank = ranks.binary_search(numbers(value, findings)?.first()?).ok()?;
        lines.from(&format!("priority = {rank}"), (), &value.at());
    } else if let Some(priority) = priority {
        let why = "EDF orders by deadlines";
        let what = "`priority` means nothing under EDF";
        findings.error(&priority.key_at, words(what, why, "leave the line out"));
    }
    Some(())
}

/// Returns the minimum distances that the prefix of an arrival curve states.
fn distances(value: &Value<'_>, findings: &mut Findings<'_>) -> Option<Vec<u64>> {
    let all = numbers(value, findings)?;
    let error = |what: &str, why: &str, remedy: &str, findings: &mut Findings<'_>| {
        findings.error(&value.at(), words(what, why, remedy));
        None
    };
    let steps: Vec<(u64, u64)> = all
        .get(1..)
        .unwrap_or_default()
        .chunks(2)
        .map(|pair| (pair[0], *pair.get(1).unwrap_or(&0)))
        .collect();
    let is_rising = |two: &[(u64, u64)]| two[0].0 < two[1].0 && two[0].1 < two[1].1;
    let (Some(&horizon), Some(&first), Some(&last), true) =
        (all.first(), steps.first(), steps.last(), all.len() % 2 == 1)
    else {
        let remedy = "write it like `[220, [[1, 1], [105, 2]]]`";
        let why = "it has a horizon, and pairs of a window and its jobs";
        return error("this is no arrival curve", why, remedy, findings);
    };
    if first.0 != 1 || first.1 == 0 || !steps.windows(2).all(is_rising) || last.0 >= horizon {
        let why = "windows and jobs rise, from a window of 1 to one below the horizon";
        let remedy = "begin with a window of 1, and sort the steps";
        return error("the steps of the curve are out of order", why, remedy, findings);
    }
    if last.1 > JOBS_MAX {
        let why = "a system file states at most 1000 distances";
        return error("the curve has more than 1000 jobs", why, "shorten its horizon", findings);
    }
    // The k-th distance ends with job k + 1, which the first step with more than k jobs permits.
    let of = |k: u64| steps.iter().find(|step| step.1 > k).map_or(horizon, |step| step.0 - 1);
    Some((1..=last.1).map(of).collect())
}
