//! What the demonstration says in the end: a table, files, or JSON.

use super::job::RUNTIME;
use super::judge::{Fate, Verdict};
use super::show::{Outcome, Run, Seen};
use super::{page, picture};
use crate::output::{Table, count};
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use talea_core::Span;
use talea_exec::Hole;

/// The files that were written.
pub(super) struct Written {
    picture: PathBuf,
    page: PathBuf,
    times: Vec<PathBuf>,
}

/// Writes picture, page and raw times.
pub(super) fn write(outcome: &Outcome, out: &Path) -> anyhow::Result<Written> {
    let save = |name: &str, text: String| {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        anyhow::Ok(path)
    };
    let mut times = Vec::new();
    for run in &outcome.runs {
        if let Ok(seen) = &run.seen {
            times.push(save(&format!("{}.csv", run.way.name()), csv(seen))?);
        }
    }
    Ok(Written {
        picture: save("demo.svg", picture::svg(outcome))?,
        page: save("demo.html", page::html(outcome))?,
        times,
    })
}

fn csv(seen: &Seen) -> String {
    let mut text = String::from("block,release_ns,completion_ns,response_ns,computed_ns,fate\n");
    for (k, (block, fate)) in seen.blocks.iter().zip(&seen.verdict.fates).enumerate() {
        let (release, completion) = (block.release.as_ns(), block.completion.as_ns());
        let (response, computed) = (block.response().as_ns(), block.computed.as_ns());
        let _ = writeln!(text, "{k},{release},{completion},{response},{computed},{fate:?}");
    }
    text
}

/// `0 of 800`, and how many of them the machine is to blame for.
pub(super) fn missed(seen: &Seen) -> String {
    let verdict = &seen.verdict;
    let mut text = format!("{} of {}", verdict.missed(), seen.blocks.len());
    if verdict.in_holes() > 0 {
        let _ = write!(text, " ({} in holes)", verdict.in_holes());
    }
    text
}

fn longest(holes: &[Hole]) -> Span {
    holes.iter().map(Hole::length).max().unwrap_or(Span::ZERO)
}

fn in_all(holes: &[Hole]) -> Span {
    holes.iter().fold(Span::ZERO, |sum, hole| sum + hole.length())
}

/// What a run under a grant missed, and who is to blame; nothing where nothing was missed.
fn late(title: &str, verdict: &Verdict) -> String {
    let in_holes = verdict.in_holes();
    let (overrun, delayed) = (verdict.count(Fate::MissedOverrun), verdict.count(Fate::Missed));
    let mut text = String::new();
    // Writing to a String can't fail.
    if in_holes > 0 {
        let _ = writeln!(
            text,
            "late {title}: {} in holes: a monitor of its own saw the whole CPU stand still meanwhile",
            count(in_holes, "block")
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
            "late {title}: {} by something that neither holes nor computing explain: who else is as urgent? \
             (ps -eLo rtprio,tid,comm --sort=-rtprio)",
            count(delayed, "block")
        );
    }
    text
}

/// For people.
pub(super) fn text(outcome: &Outcome, written: &Written) -> String {
    let mut table =
        Table::new(&["RUN", ">MEDIAN", ">P99", ">MAX", ">MISSED", "THE KERNEL SAYS", "HOLES"]);
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
        .filter_map(|run| Some((run.way, run.seen.as_ref().ok()?.grant.as_ref()?)));
    for (way, grant) in granted {
        let _ = writeln!(text, "granted {}: {grant}", way.title());
    }
    if let Some(why) = outcome.why().filter(|_| outcome.runs.iter().any(|run| run.seen.is_ok())) {
        let _ = writeln!(text, "why: {why}");
    }
    for run in &outcome.runs {
        if let Ok(seen) = &run.seen
            && seen.grant.is_some()
        {
            text.push_str(&late(run.way.title(), &seen.verdict));
        }
    }
    if let Some(missing) = &outcome.missing {
        let _ = writeln!(text, "missing here: {missing}");
    }
    for run in &outcome.runs {
        if let Err(why) = &run.seen {
            let _ = writeln!(text, "not shown, {}: {why}", run.way.title());
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
    let title = run.way.title().to_owned();
    let Ok(seen) = &run.seen else {
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
    let holes = match &seen.holes {
        None => "not watched".to_owned(),
        Some(holes) if holes.is_empty() => "none".to_owned(),
        Some(holes) => format!(
            "{} in all, up to {}",
            picture::ms(in_all(holes).as_ns()),
            picture::ms(longest(holes).as_ns())
        ),
    };
    vec![
        title,
        picture::ms(seen.verdict.median.as_ns()),
        picture::ms(seen.verdict.p99.as_ns()),
        picture::ms(seen.verdict.max.as_ns()),
        missed(seen),
        seen.policy.clone(),
        holes,
    ]
}

/// For programs.
#[derive(Serialize)]
pub(super) struct Answer {
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
    seen: Option<SeenJson>,
}

#[derive(Serialize)]
struct SeenJson {
    blocks: usize,
    median_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    missed: usize,
    missed_in_holes: usize,
    missed_by_overrun: usize,
    most_computed_ns: u64,
    policy: String,
    granted: Option<String>,
    holes: Option<usize>,
    longest_hole_ns: Option<u64>,
    holes_ns: Option<u64>,
}

impl Answer {
    /// From everything that was seen.
    pub(super) fn new(outcome: &Outcome, written: &Written) -> Answer {
        Answer {
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
            run: run.way.name(),
            not_shown: run.seen.as_ref().err().cloned(),
            seen: run.seen.as_ref().ok().map(|seen| SeenJson {
                blocks: seen.blocks.len(),
                median_ns: seen.verdict.median.as_ns(),
                p99_ns: seen.verdict.p99.as_ns(),
                max_ns: seen.verdict.max.as_ns(),
                missed: seen.verdict.missed(),
                missed_in_holes: seen.verdict.in_holes(),
                missed_by_overrun: seen.verdict.count(Fate::MissedOverrun),
                most_computed_ns: seen.verdict.most.as_ns(),
                policy: seen.policy.clone(),
                granted: seen.grant.clone(),
                holes: seen.holes.as_ref().map(Vec::len),
                longest_hole_ns: seen.holes.as_ref().map(|holes| longest(holes).as_ns()),
                holes_ns: seen.holes.as_ref().map(|holes| in_all(holes).as_ns()),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::Work;

    fn verdict(fates: &[Fate]) -> Verdict {
        let none = Span::ZERO;
        Verdict {
            median: none,
            p99: none,
            max: none,
            fates: fates.to_vec(),
            most: Work::from_ns(7_400_000),
        }
    }

    #[test]
    fn what_a_grant_did_not_prevent_is_said_with_whom_to_blame() {
        use Fate::{Met, Missed, MissedInHole, MissedOverrun};
        assert_eq!(late("x", &verdict(&[Met, Met])), "");
        let excused = late("x", &verdict(&[Met, MissedInHole]));
        assert!(
            excused.starts_with("late x: 1 block in holes") && excused.lines().count() == 1,
            "{excused}"
        );
        let both = late("x", &verdict(&[Missed, MissedInHole, Missed]));
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
