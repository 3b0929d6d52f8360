//! Report of the demonstration: a table, files, or JSON.

use super::evaluate::{BlockResult, Verdict};
use super::job::RUNTIME;
use super::run::{Outcome, Run, RunMeasurement};
use super::{page, picture};
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use talea_core::{Monotonic, Span};
use talea_exec::Stall;
use talea_study::output::{Table, count};

/// Paths of the written files.
pub(super) struct Written {
    picture: PathBuf,
    page: PathBuf,
    times: Vec<PathBuf>,
}

/// Writes the picture, the page and the raw times.
pub(super) fn write(outcome: &Outcome, out: &Path) -> anyhow::Result<Written> {
    let save = |name: &str, text: String| {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        anyhow::Ok(path)
    };
    let mut times = Vec::new();
    for run in &outcome.runs {
        if let Ok(measurement) = &run.measurement {
            times.push(save(&format!("{}.csv", run.variant.name()), csv(measurement))?);
        }
    }
    Ok(Written {
        picture: save("demo.svg", picture::svg(outcome))?,
        page: save("demo.html", page::html(outcome))?,
        times,
    })
}

fn csv(measurement: &RunMeasurement) -> String {
    let mut text = String::from("block,release_ns,completion_ns,response_ns,computed_ns,result\n");
    for (k, (block, result)) in
        measurement.blocks.iter().zip(&measurement.verdict.results).enumerate()
    {
        let (release, completion) = (block.release.as_ns(), block.completion.as_ns());
        let (response, computed) = (block.response().as_ns(), block.computed.as_ns());
        let _ = writeln!(text, "{k},{release},{completion},{response},{computed},{result:?}");
    }
    text
}

fn longest(stalls: &[Stall<Monotonic>]) -> Span {
    stalls.iter().map(Stall::<Monotonic>::length).max().unwrap_or(Span::ZERO)
}

fn total_length(stalls: &[Stall<Monotonic>]) -> Span {
    stalls.iter().fold(Span::ZERO, |sum, stall| sum + stall.length())
}

/// Describes the misses of a run under a grant and their causes. Returns an empty text if there are
/// none.
fn late(title: &str, verdict: &Verdict) -> String {
    let in_stalls = verdict.in_stalls();
    let overrun = verdict.count(BlockResult::MissedOverrun);
    let delayed = verdict.count(BlockResult::Missed);
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    if in_stalls > 0 {
        let _ = writeln!(
            text,
            "late {title}: {} in stalls: a monitor of its own saw the whole CPU stand still meanwhile",
            count(in_stalls, "block")
        );
    }
    if overrun > 0 {
        let _ = writeln!(
            text,
            "late {title}: {} by computing up to {} where {} were declared: a slow CPU or busy memory",
            count(overrun, "block"),
            picture::ms(verdict.most.as_ns()),
            picture::ms(RUNTIME.as_ns())
        );
    }
    if delayed > 0 {
        let _ = writeln!(
            text,
            "late {title}: {} by something that neither stalls nor computing explain: who else is as urgent? \
             (ps -eLo rtprio,tid,comm --sort=-rtprio)",
            count(delayed, "block")
        );
    }
    text
}

/// Renders the report as text.
pub(super) fn text(outcome: &Outcome, written: &Written) -> String {
    let mut table = Table::new("RUN | >MEDIAN | >P99 | >MAX | >MISSED | THE KERNEL SAYS | STALLS");
    for run in &outcome.runs {
        table.row(row(run));
    }
    let mut text = format!(
        "\n10 ms of sound every 10 ms, {} of computing each, on CPU {} beside {}{}\n\n{}\n",
        picture::ms(outcome.size.block.as_ns()),
        outcome.cpu,
        picture::busy(outcome.load),
        outcome.user.map(|user| format!(", as user {user}")).unwrap_or_default(),
        table.render()
    );
    let granted = outcome
        .runs
        .iter()
        .filter_map(|run| Some((run.variant, run.measurement.as_ref().ok()?.grant.as_ref()?)));
    for (variant, grant) in granted {
        let _ = writeln!(text, "granted {}: {grant}", variant.title());
    }
    if let Some(why) =
        outcome.why().filter(|_| outcome.runs.iter().any(|run| run.measurement.is_ok()))
    {
        let _ = writeln!(text, "why: {why}");
    }
    for run in &outcome.runs {
        if let Ok(measurement) = &run.measurement
            && measurement.grant.is_some()
        {
            text.push_str(&late(run.variant.title(), &measurement.verdict));
        }
    }
    if let Some(missing) = &outcome.missing {
        let _ = writeln!(text, "missing here: {missing}");
    }
    for run in &outcome.runs {
        if let Err(why) = &run.measurement {
            let _ = writeln!(text, "not shown, {}: {why}", run.variant.title());
        }
    }
    if !outcome.same_sound() {
        text.push_str("the runs did not compute the same sound\n");
    }
    if outcome.left.is_empty() {
        text.push_str("left behind: nothing\n");
    }
    for what in &outcome.left {
        let _ = writeln!(text, "left behind: {what}");
    }
    let _ =
        writeln!(text, "picture: {}\npage: {}", written.picture.display(), written.page.display());
    text
}

fn row(run: &Run) -> Vec<String> {
    let title = run.variant.title().to_owned();
    let Ok(measurement) = &run.measurement else {
        return vec![
            title,
            "-".into(),
            "-".into(),
            "-".into(),
            "-".into(),
            "not shown".into(),
            "-".into(),
        ];
    };
    let stalls = match &measurement.stalls {
        None => "not watched".to_owned(),
        Some(stalls) if stalls.is_empty() => "none".to_owned(),
        Some(stalls) => format!(
            "{} in all, up to {}",
            picture::ms(total_length(stalls).as_ns()),
            picture::ms(longest(stalls).as_ns())
        ),
    };
    vec![
        title,
        picture::ms(measurement.verdict.median.as_ns()),
        picture::ms(measurement.verdict.p99.as_ns()),
        picture::ms(measurement.verdict.max.as_ns()),
        page::missed(measurement),
        measurement.policy.clone(),
        stalls,
    ]
}

/// Report as JSON.
#[derive(Serialize)]
pub(super) struct DemoReport {
    cpu: u32,
    load: u32,
    block_work_ns: u64,
    microphones: u32,
    user: Option<u32>,
    complete: bool,
    missing: Option<String>,
    why: Option<String>,
    left_behind: Vec<String>,
    runs: Vec<RunJson>,
    picture: PathBuf,
    page: PathBuf,
    times: Vec<PathBuf>,
}

#[derive(Serialize)]
struct RunJson {
    run: &'static str,
    not_shown: Option<String>,
    #[serde(flatten)]
    measurement: Option<MeasurementJson>,
}

#[derive(Serialize)]
struct MeasurementJson {
    blocks: usize,
    median_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    missed: usize,
    missed_in_stalls: usize,
    missed_by_overrun: usize,
    most_computed_ns: u64,
    policy: String,
    granted: Option<String>,
    stalls: Option<usize>,
    longest_stall_ns: Option<u64>,
    stalls_ns: Option<u64>,
}

impl DemoReport {
    /// Builds the report from the results of all runs.
    pub(super) fn new(outcome: &Outcome, written: &Written) -> DemoReport {
        DemoReport {
            cpu: outcome.cpu,
            load: outcome.load,
            block_work_ns: outcome.size.block.as_ns(),
            microphones: outcome.size.microphones,
            user: outcome.user,
            complete: outcome.is_complete(),
            missing: outcome.missing.clone(),
            why: outcome.why(),
            left_behind: outcome.left.clone(),
            runs: outcome.runs.iter().map(RunJson::new).collect(),
            picture: written.picture.clone(),
            page: written.page.clone(),
            times: written.times.clone(),
        }
    }
}

impl RunJson {
    fn new(run: &Run) -> RunJson {
        RunJson {
            run: run.variant.name(),
            not_shown: run.measurement.as_ref().err().cloned(),
            measurement: run.measurement.as_ref().ok().map(|measurement| MeasurementJson {
                blocks: measurement.blocks.len(),
                median_ns: measurement.verdict.median.as_ns(),
                p99_ns: measurement.verdict.p99.as_ns(),
                max_ns: measurement.verdict.max.as_ns(),
                missed: measurement.verdict.missed(),
                missed_in_stalls: measurement.verdict.in_stalls(),
                missed_by_overrun: measurement.verdict.count(BlockResult::MissedOverrun),
                most_computed_ns: measurement.verdict.most.as_ns(),
                policy: measurement.policy.clone(),
                granted: measurement.grant.clone(),
                stalls: measurement.stalls.as_ref().map(Vec::len),
                longest_stall_ns: measurement.stalls.as_ref().map(|stalls| longest(stalls).as_ns()),
                stalls_ns: measurement.stalls.as_ref().map(|stalls| total_length(stalls).as_ns()),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::Work;

    fn verdict(results: &[BlockResult]) -> Verdict {
        let none = Span::ZERO;
        Verdict {
            median: none,
            p99: none,
            max: none,
            results: results.to_vec(),
            most: Work::from_ns(7_400_000),
        }
    }

    #[test]
    fn misses_under_a_grant_are_reported_with_their_causes() {
        use BlockResult::{Met, Missed, MissedInStall, MissedOverrun};
        assert_eq!(late("x", &verdict(&[Met, Met])), "");
        let excused = late("x", &verdict(&[Met, MissedInStall]));
        assert!(
            excused.starts_with("late x: 1 block in stalls") && excused.lines().count() == 1,
            "{excused}"
        );
        let both = late("x", &verdict(&[Missed, MissedInStall, Missed]));
        assert!(both.contains("2 blocks by something that neither"), "{both}");
        assert_eq!(both.lines().count(), 2, "{both}");
        let slow = late("x", &verdict(&[MissedOverrun, Missed]));
        assert!(
            slow.contains("1 block by computing up to 7.4 ms where 4.0 ms were declared"),
            "{slow}"
        );
        assert!(slow.contains("1 block by something that neither"), "{slow}");
    }
}
