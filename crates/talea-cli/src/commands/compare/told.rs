//! What is said of a comparison: per task, per run, and in one word.

use crate::compare::Tolerance;
use crate::compare::judge::{Findings, Instant};
use crate::compare::lives::Name;
use crate::compare::model::Model;
use crate::exit::Exit;
use crate::measured::{Checked, Measured, Sketch};
use crate::outcome::{self, short};
use crate::output::{Table, Tone, count, paint};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use talea_core::Span;
use talea_system::system::Root;

#[derive(Serialize)]
pub(super) struct Answer {
    file: String,
    duration_ns: u64,
    seed: u64,
    /// By how much a response may differ, and how many thousandths of it more.
    tolerance_ns: u64,
    tolerance_permille: u64,
    verdict: Verdict,
    roots: Vec<RootAnswer>,
    runs: Vec<RunAnswer>,
}

/// In one word.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Agree,
    Differ,
    Inconclusive,
}

#[derive(Serialize)]
pub(super) struct RootAnswer {
    name: String,
    verdict: Verdict,
    /// All runs together.
    jobs: u64,
    excluded: u64,
    brushed: u64,
    tasks: Vec<TaskAnswer>,
    /// Tasks that are programs, whose jobs are their own: the root is held to bounds, not to the
    /// course of a simulation.
    programs: Vec<String>,
    /// A server stands above each of them; otherwise there are no bounds either.
    programs_are_held: bool,
    /// What contradicts, in words.
    findings: Vec<String>,
}

#[derive(Serialize)]
struct TaskAnswer {
    name: String,
    deadline_ns: u64,
    bound_ns: Option<u64>,
    /// The bound with costs two hundredths longer and some time for each order, which is what a
    /// real response is held against; none where there is no bound then.
    bound_within_reason_ns: Option<u64>,
    simulated_max_ns: Option<u64>,
    measured_max_ns: Option<u64>,
    measured_p99_ns: Option<u64>,
    measured_median_ns: Option<u64>,
    /// Measured jobs that count.
    jobs: u64,
    simulated_late: u64,
    measured_late: u64,
}

/// One real run.
#[derive(Serialize)]
pub(super) struct RunAnswer {
    pub(super) real_time: bool,
    interrupted: bool,
    holes: usize,
    longest_hole_ns: u64,
    roots: Vec<RunRoot>,
}

#[derive(Serialize)]
struct RunRoot {
    mechanism: String,
    /// Why by that.
    mechanism_why: String,
    jobs: u64,
    excluded: u64,
    /// More than nineteen twentieths of the jobs count, and half of them in every respect.
    conclusive: bool,
    agrees: bool,
    /// Begins and ends that were held against the order.
    instants: u64,
    /// CPU time of dispatchers, and of workers beside their jobs, in millionths of the root's CPUs
    /// (SF3P: scheduler overhead).
    scheduler_ppm: u64,
    /// Time that belonged to jobs in which nothing was done (SF3P: non-scheduler overhead).
    other_ppm: u64,
    /// CPU time of dispatchers, and of workers beside their jobs, for each job.
    per_job_ns: u64,
    /// What the kernel's switches say to the orders; nothing, where it does not say.
    kernel: Option<Checked>,
    /// Orders that were not obeyed for longer than the tolerance though the CPU was free: faults of
    /// ours, which no hole excuses.
    faults: usize,
    /// The CPUs got so much less done than they should have, beyond all holes that were seen, that
    /// a contradiction says nothing.
    is_stretched: bool,
}

impl RunAnswer {
    pub(super) fn of(measured: &Measured, found: &[Findings], sketches: &[Sketch]) -> RunAnswer {
        let report = &measured.report;
        let roots = report.roots.iter().zip(found).zip(sketches).map(|((real, found), sketch)| {
            let cpus = real.effort.len().max(1) as u128;
            let whole = (u128::from(report.length.as_ns()) * cpus).max(1);
            let ppm = |ns: u64| (u128::from(ns) * 1_000_000 / whole) as u64;
            let used = real.scheduling().as_ns();
            let stretched = real.stretched().as_ns();
            let busy: u64 = sketch.busy.iter().map(|busy| busy.as_ns()).sum();
            RunRoot {
                mechanism: real.chosen.means.to_string(),
                mechanism_why: real.chosen.why.clone(),
                jobs: found.jobs,
                excluded: found.excluded,
                conclusive: found.jobs > 0 && !found.are_inconclusive(),
                agrees: found.agree(),
                instants: found.instants,
                scheduler_ppm: ppm(used),
                other_ppm: ppm(stretched),
                per_job_ns: used.checked_div(found.jobs).unwrap_or(0),
                kernel: found.kernel.clone(),
                faults: found.kernel.as_ref().map_or(0, |checked| checked.faults.len()),
                is_stretched: stretched > LEAST_STRETCH + busy / 100 * MOST_STRETCH,
            }
        });
        RunAnswer {
            real_time: measured.is_real,
            interrupted: measured.interrupted,
            holes: report.holes.len(),
            longest_hole_ns: report
                .holes
                .iter()
                .map(|hole| hole.length().as_ns())
                .max()
                .unwrap_or(0),
            roots: roots.collect(),
        }
    }
}

/// Hundredths of what a root has to do: more than switches, interrupts and short holes take of a
/// machine that has time for us.
const MOST_STRETCH: u64 = 3;
const LEAST_STRETCH: u64 = 2_000_000;

impl RootAnswer {
    pub(super) fn of(
        root: &Root,
        model: &Model,
        simulated: &outcome::RootAnswer,
        findings: &[Findings],
    ) -> RootAnswer {
        let mut tasks = Vec::new();
        for (at, name) in root.tasks.iter().enumerate() {
            let mut responses: Vec<u64> = findings
                .iter()
                .flat_map(|found| &found.responses[at])
                .map(|span| span.as_ns())
                .collect();
            responses.sort_unstable();
            // The value that so many thousandths of all don't exceed.
            let quantile = |thousandths: usize| {
                let rank = (responses.len() * thousandths).div_ceil(1_000).max(1);
                responses.get(rank - 1).copied()
            };
            let (bound, simulated) = (model.bounds[at], &simulated.tasks[at]);
            tasks.push(TaskAnswer {
                name: name.clone(),
                deadline_ns: simulated.deadline_ns,
                bound_ns: bound.exactly.map(Span::as_ns),
                bound_within_reason_ns: bound.within_reason.map(Span::as_ns),
                simulated_max_ns: simulated.response_max_ns,
                measured_max_ns: responses.last().copied(),
                measured_p99_ns: quantile(990),
                measured_median_ns: quantile(500),
                jobs: responses.len() as u64,
                simulated_late: simulated.late,
                measured_late: findings.iter().map(|found| found.late[at]).sum(),
            });
        }
        let programs =
            root.tasks.iter().zip(&root.programs).filter(|(_, program)| program.is_some());
        RootAnswer {
            name: root.name.clone(),
            verdict: Verdict::Inconclusive,
            jobs: findings.iter().map(|found| found.jobs).sum(),
            excluded: findings.iter().map(|found| found.excluded).sum(),
            brushed: findings.iter().map(|found| found.brushed).sum(),
            tasks,
            programs: programs.map(|(task, _)| task.clone()).collect(),
            programs_are_held: super::programs_are_held(root),
            findings: findings.iter().flat_map(|found| words(root, found)).collect(),
        }
    }
}

/// What contradicts.
fn words(root: &Root, found: &Findings) -> Vec<String> {
    let name = |(task, job): Name| {
        format!("job {job} of {}", root.tasks.get(task.0 as usize).map_or("?", String::as_str))
    };
    let instant = |of: Instant| match of {
        Instant::Begin(job) => format!("the begin of {}", name(job)),
        Instant::End(job) => format!("the end of {}", name(job)),
    };
    let mut all = Vec::new();
    if let Some(turned) = found.turned {
        all.push(format!(
            "{} came {} after {}, which in every simulation is at least {} later ({} in all)",
            instant(turned.earlier),
            short(turned.by.as_ns()),
            instant(turned.later),
            short(turned.apart.as_ns()),
            count(found.turns as usize, "turn"),
        ));
    }
    if let Some((job, by)) = found.stray {
        let by = short(by.as_ns());
        let all_of_them = count(found.strays as usize, "job");
        all.push(format!(
            "{} ended {by} outside of what every simulation says ({all_of_them} in all)",
            name(job)
        ));
    }
    for out in found.kernel.iter().flat_map(|checked| &checked.wrong).take(1) {
        let who = root.tasks.get(out.task.0 as usize).map_or("?", String::as_str);
        let (at, length) = (short(out.from.as_ns()), short(out.length().as_ns()));
        all.push(format!(
            "by the kernel's switches {who} ran for {length} at {at} without an order"
        ));
    }
    for fault in found.kernel.iter().flat_map(|checked| &checked.faults).take(1) {
        let who = fault
            .task
            .and_then(|task| root.tasks.get(task.0 as usize))
            .map_or("somebody", String::as_str);
        let (by, at) = (short(fault.by().as_ns()), short(fault.from.as_ns()));
        let all_of_them = found.kernel.as_ref().map_or(0, |checked| checked.faults.len());
        all.push(format!(
            "by the kernel's switches {who} was to run at {at}, and for {by} its CPU was idle or did something else of ours ({} in all)",
            count(all_of_them, "order")
        ));
    }
    if let Some((job, over)) = found.exceeds {
        let (over, all_of_them) = (short(over.as_ns()), count(found.beyond as usize, "job"));
        all.push(format!(
            "{} took {over} more than its bound and the tolerance ({all_of_them} in all)",
            name(job)
        ));
    }
    all
}

impl Answer {
    pub(super) fn new(
        file: &Path,
        duration: Span,
        seed: u64,
        tolerance: Tolerance,
        mut roots: Vec<RootAnswer>,
        runs: Vec<RunAnswer>,
    ) -> Answer {
        for (number, root) in roots.iter_mut().enumerate() {
            root.verdict = verdict(runs.iter().map(|run| (&run.roots[number], run.interrupted)));
        }
        let has = |wanted| roots.iter().any(|root| root.verdict == wanted);
        let verdict = match (has(Verdict::Differ), has(Verdict::Inconclusive)) {
            (true, _) => Verdict::Differ,
            (_, true) => Verdict::Inconclusive,
            _ => Verdict::Agree,
        };
        Answer {
            file: file.display().to_string(),
            duration_ns: duration.as_ns(),
            seed,
            tolerance_ns: tolerance.least.as_ns(),
            tolerance_permille: tolerance.share,
            verdict,
            roots,
            runs,
        }
    }

    pub(super) fn exit(&self) -> Exit {
        match self.verdict {
            Verdict::Agree => Exit::Ok,
            Verdict::Differ => Exit::Failure,
            Verdict::Inconclusive => Exit::Inconclusive,
        }
    }
}

/// Of one root, from all of its runs: a contradiction in a run that says something outweighs any
/// number that agree.
fn verdict<'a>(runs: impl Iterator<Item = (&'a RunRoot, bool)>) -> Verdict {
    let mut verdict = Verdict::Inconclusive;
    for (run, interrupted) in runs {
        if interrupted {
            continue;
        }
        // However much of a run holes have touched: that is not their doing.
        if run.faults > 0 {
            return Verdict::Differ;
        }
        if !run.conclusive {
            continue;
        }
        match (run.agrees, run.is_stretched) {
            (true, _) => verdict = Verdict::Agree,
            (false, true) => {}
            (false, false) => return Verdict::Differ,
        }
    }
    verdict
}

const TITLES: [&str; 10] = [
    "task",
    ">deadline",
    ">bound",
    ">simulated",
    ">measured",
    ">p99",
    ">median",
    ">jobs",
    ">late",
    ">simulated late",
];

impl TaskAnswer {
    fn lies_beyond(&self, bound_ns: u64) -> bool {
        self.measured_max_ns.is_some_and(|measured| measured > bound_ns)
    }
}

fn cells(task: &TaskAnswer) -> Vec<String> {
    let span = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), short);
    let bound = match (task.bound_ns, task.bound_within_reason_ns) {
        (Some(bound), None) => format!("~{}", short(bound)),
        // What was measured lies between.
        (Some(bound), Some(most)) if task.lies_beyond(bound) => {
            format!("{}..{}", short(bound), short(most))
        }
        (bound, _) => span(bound),
    };
    vec![
        task.name.clone(),
        crate::outcome::deadline(task.deadline_ns),
        bound,
        span(task.simulated_max_ns),
        span(task.measured_max_ns),
        span(task.measured_p99_ns),
        span(task.measured_median_ns),
        task.jobs.to_string(),
        task.measured_late.to_string(),
        task.simulated_late.to_string(),
    ]
}

/// The table of all roots for the head of a page.
pub(super) fn rows(answer: &Answer) -> Vec<Vec<String>> {
    let title = |title: &&str| title.trim_start_matches('>').to_owned();
    let titles = std::iter::once("root".to_owned()).chain(TITLES.iter().map(title)).collect();
    let line = |root: &RootAnswer, task: &TaskAnswer| {
        std::iter::once(root.name.clone()).chain(cells(task)).collect::<Vec<_>>()
    };
    let lines =
        answer.roots.iter().flat_map(|root| root.tasks.iter().map(move |task| line(root, task)));
    std::iter::once(titles).chain(lines).collect()
}

pub(super) fn text(answer: &Answer, color: bool) -> String {
    let mut out = String::new();
    let runs = count(answer.runs.len(), "run");
    for (number, root) in answer.roots.iter().enumerate() {
        let (word, tone) = match root.verdict {
            Verdict::Agree => ("agree", Tone::Good),
            Verdict::Differ => ("differ", Tone::Bad),
            Verdict::Inconclusive => ("inconclusive", Tone::Doubtful),
        };
        // Writing to a String can't fail.
        let _ = writeln!(
            out,
            "{}, {runs} of {}: bound, simulation and threads {}",
            root.name,
            Span::from_ns(answer.duration_ns),
            paint(word, tone, color)
        );
        let mut table = Table::new(&TITLES);
        for task in &root.tasks {
            table.row(cells(task));
        }
        out.push_str(&table.render());
        let any = |is: fn(&TaskAnswer) -> bool| root.tasks.iter().any(is);
        if any(|task| task.bound_ns.is_some() && task.bound_within_reason_ns.is_none()) {
            let _ = writeln!(
                out,
                "~ no bound any more with costs two hundredths longer: not held against it"
            );
        }
        if any(|task| {
            task.bound_within_reason_ns.is_some()
                && task.bound_ns.is_some_and(|ns| task.lies_beyond(ns))
        }) {
            let _ = writeln!(
                out,
                ".. as described, and with costs two hundredths longer and some time for each order"
            );
        }
        if !root.programs.is_empty() {
            let held = if root.programs_are_held {
                "the others are held to their bounds, whatever it does"
            } else {
                "no server holds it, so no bound says anything"
            };
            for program in &root.programs {
                let what = "its jobs are from when it wakes until it wants no CPU";
                let _ = writeln!(out, "{program} is a program: {what}; {held}");
            }
        }
        for finding in &root.findings {
            let _ = writeln!(out, "{}: {finding}", paint("differs", Tone::Bad, color));
        }
        let _ = writeln!(
            out,
            "{} of {} were touched by holes and are not counted, {} brushed and held against bounds alone",
            root.excluded,
            count(root.jobs as usize, "job"),
            root.brushed
        );
        for run in &answer.runs {
            let of = &run.roots[number];
            let stretched = if of.is_stretched {
                "; the CPUs got far less done than they should have"
            } else {
                ""
            };
            let _ = writeln!(
                out,
                "mechanism {}: {}; scheduler overhead {} ({} a job), other {}; without an order {}{stretched}",
                of.mechanism,
                of.mechanism_why,
                outcome::percent(of.scheduler_ppm),
                short(of.per_job_ns),
                outcome::percent(of.other_ppm),
                of.kernel.as_ref().map_or_else(
                    || "not known: the kernel does not say who ran".to_owned(),
                    |checked| format!(
                        "at most {}, orders not obeyed for at most {}, by the kernel's {} of workers",
                        short(checked.longest_ns),
                        short(checked.unobeyed_ns),
                        count(checked.stays, "stay")
                    ),
                ),
            );
        }
    }
    let holes: usize = answer.runs.iter().map(|run| run.holes).sum();
    if let Some(longest) =
        answer.runs.iter().map(|run| run.longest_hole_ns).max().filter(|_| holes > 0)
    {
        let holes = count(holes, "hole");
        let _ = writeln!(
            out,
            "{holes}, in which a CPU stood still for everybody; the longest {}",
            short(longest)
        );
    }
    if answer.runs.iter().any(|run| !run.real_time) {
        let what =
            "best effort: threads had no real-time priorities, so these figures promise nothing";
        let _ = writeln!(out, "{}", paint(what, Tone::Doubtful, color));
    }
    let _ = writeln!(
        out,
        "tolerance {} and {}.{} % of a response",
        Span::from_ns(answer.tolerance_ns),
        answer.tolerance_permille / 10,
        answer.tolerance_permille % 10
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_ours_differs_however_much_holes_have_touched() {
        let run = |conclusive, agrees, is_stretched, faults| RunRoot {
            mechanism: String::new(),
            mechanism_why: String::new(),
            jobs: 9,
            excluded: 0,
            conclusive,
            agrees,
            instants: 0,
            scheduler_ppm: 0,
            other_ppm: 0,
            per_job_ns: 0,
            kernel: None,
            faults,
            is_stretched,
        };
        let of = |runs: &[RunRoot]| verdict(runs.iter().map(|run| (run, false)));
        assert_eq!(of(&[run(true, true, false, 0)]), Verdict::Agree);
        assert_eq!(of(&[run(false, true, false, 0)]), Verdict::Inconclusive);
        assert_eq!(of(&[run(true, false, true, 0)]), Verdict::Inconclusive);
        assert_eq!(of(&[run(true, false, false, 0)]), Verdict::Differ);
        assert_eq!(of(&[run(true, true, false, 0), run(false, false, true, 1)]), Verdict::Differ);
        assert_eq!(
            verdict([(&run(false, false, false, 1), true)].into_iter()),
            Verdict::Inconclusive
        );
    }

    #[test]
    fn a_bound_is_shown_as_what_it_was_held_to() {
        let cell = |bound_ns, within, measured_max_ns| {
            let (name, millis) = ("a".to_owned(), |ms: u64| ms * 1_000_000);
            let task = TaskAnswer {
                name,
                deadline_ns: millis(20),
                bound_ns,
                bound_within_reason_ns: within,
                simulated_max_ns: None,
                measured_max_ns,
                measured_p99_ns: None,
                measured_median_ns: None,
                jobs: 0,
                simulated_late: 0,
                measured_late: 0,
            };
            cells(&task).swap_remove(2)
        };
        let ms = |ms: u64| Some(ms * 1_000_000);
        assert_eq!(cell(None, None, ms(3)), "-");
        assert_eq!(cell(ms(10), ms(12), ms(9)), "10ms");
        assert_eq!(cell(ms(10), ms(12), ms(11)), "10ms..12ms");
        assert_eq!(cell(ms(10), None, ms(11)), "~10ms");
    }
}
