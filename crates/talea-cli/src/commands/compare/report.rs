//! Report of a comparison: per task, per run, and as one verdict.

use super::program_bounds::programs_are_held;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use talea_analysis::tree::ChainLatencies;
use talea_core::Span;
use talea_core::chain::LatencyKind;
use talea_study::compare::Tolerance;
use talea_study::compare::chains::ChainFindings;
use talea_study::compare::check::{Findings, JobInstant};
use talea_study::compare::job_times::JobId;
use talea_study::compare::model::Model;
use talea_study::exit::Exit;
use talea_study::live_run::{KernelCheck, LiveRun, LoadEstimate};
use talea_study::output::{Table, Tone, count, paint};
use talea_study::run_summary::{self, ChainSummary, short, short_bound};
use talea_system::Root;

#[derive(Serialize)]
pub(super) struct CompareReport {
    file: String,
    duration_ns: u64,
    seed: u64,
    /// Tolerated difference of a response. `tolerance_permille` is the part of the response that is
    /// added.
    tolerance_ns: u64,
    tolerance_permille: u64,
    verdict: Verdict,
    roots: Vec<RootComparison>,
    chains: Vec<ChainComparison>,
    runs: Vec<RunReport>,
}

/// Comparison of one chain.
#[derive(Serialize)]
pub(super) struct ChainComparison {
    name: String,
    reaction: LatencyComparison,
    age: LatencyComparison,
    /// Number of measured outputs that count, and of those that a stall may have delayed.
    outputs: u64,
    excluded: u64,
    /// Contradiction, as a sentence.
    finding: Option<String>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "names of JSON with their unit")]
struct LatencyComparison {
    bound_ns: Option<u64>,
    /// Bound with two percent longer costs and some time for each order.
    bound_within_reason_ns: Option<u64>,
    simulated_max_ns: Option<u64>,
    measured_max_ns: Option<u64>,
}

impl ChainComparison {
    pub(super) fn of(
        simulated: &ChainSummary,
        bounds: [Option<ChainLatencies>; 2],
        found: &ChainFindings,
    ) -> ChainComparison {
        let latency = |bound: fn(ChainLatencies) -> Span, simulated, measured: Option<Span>| {
            let [nominal, tolerant] = bounds.map(|of| of.map(|of| bound(of).as_ns()));
            LatencyComparison {
                bound_ns: nominal,
                bound_within_reason_ns: tolerant,
                simulated_max_ns: simulated,
                measured_max_ns: measured.map(Span::as_ns),
            }
        };
        let finding = found.first_violation.map(|(kind, over)| {
            let what = match kind {
                LatencyKind::Reaction => "a reaction",
                LatencyKind::Age => "an age",
            };
            let all_of_them = count(found.violations as usize, "latency above it");
            let over = short(over.as_ns());
            format!("{what} exceeded its bound and the tolerance by {over} ({all_of_them})")
        });
        ChainComparison {
            name: simulated.name.clone(),
            reaction: latency(|of| of.reaction, simulated.reaction_max_ns, found.reaction),
            age: latency(|of| of.age, simulated.age_max_ns, found.age),
            outputs: found.outputs,
            excluded: found.excluded,
            finding,
        }
    }
}

/// Verdict of a comparison.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Agree,
    Differ,
    Inconclusive,
}

impl Verdict {
    pub(super) fn exit(self) -> Exit {
        match self {
            Verdict::Agree => Exit::Ok,
            Verdict::Differ => Exit::Failure,
            Verdict::Inconclusive => Exit::Inconclusive,
        }
    }

    pub(super) fn word(self) -> (&'static str, Tone) {
        match self {
            Verdict::Agree => ("agree", Tone::Good),
            Verdict::Differ => ("differ", Tone::Bad),
            Verdict::Inconclusive => ("inconclusive", Tone::Doubtful),
        }
    }
}

#[derive(Serialize)]
pub(super) struct RootComparison {
    name: String,
    verdict: Verdict,
    /// Number of jobs in all runs.
    jobs: u64,
    excluded: u64,
    perturbed: u64,
    tasks: Vec<TaskComparison>,
    /// Tasks that are programs. Programs release their own jobs, so the comparison checks the root
    /// against bounds only, not against simulated times.
    programs: Vec<String>,
    /// Whether each program has a server above it. Otherwise there are no bounds.
    programs_are_held: bool,
    /// Contradictions, as sentences.
    findings: Vec<String>,
}

#[derive(Serialize)]
struct TaskComparison {
    name: String,
    deadline_ns: u64,
    bound_ns: Option<u64>,
    /// Bound with two percent longer costs and some time for each order, for the check of real
    /// responses. `None` if there is no such bound.
    bound_within_reason_ns: Option<u64>,
    simulated_max_ns: Option<u64>,
    measured_max_ns: Option<u64>,
    measured_p99_ns: Option<u64>,
    measured_median_ns: Option<u64>,
    /// Number of measured jobs that count.
    jobs: u64,
    simulated_late: u64,
    measured_late: u64,
}

/// Report of one real run.
#[derive(Serialize)]
pub(super) struct RunReport {
    pub(super) real_time: bool,
    interrupted: bool,
    stalls: usize,
    longest_stall_ns: u64,
    roots: Vec<RunRootReport>,
}

#[derive(Serialize)]
struct RunRootReport {
    mechanism: String,
    /// Reason for the mechanism.
    mechanism_why: String,
    jobs: u64,
    excluded: u64,
    /// Whether at most a twentieth of the jobs is excluded, and at most half is excluded or
    /// perturbed.
    conclusive: bool,
    agrees: bool,
    /// Number of starts and ends that were checked against the simulated order.
    instants: u64,
    /// CPU time of the dispatchers, and of workers outside of their jobs, in millionths of the
    /// root's CPUs (SF3P: scheduler overhead).
    scheduler_ppm: u64,
    /// Time for which jobs had a CPU and did not execute (SF3P: non-scheduler overhead), in
    /// millionths of the root's CPUs.
    other_ppm: u64,
    /// CPU time of the dispatchers, and of workers outside of their jobs, per job.
    per_job_ns: u64,
    /// Check against `sched_switch` events. `None` if the kernel does not report them.
    kernel: Option<KernelCheck>,
    /// Number of orders that were violated for longer than the tolerance although the CPU was free.
    /// These violations are defects of Talea, and no stall excuses them.
    faults: usize,
    /// Whether a contradiction is inconclusive, because the CPUs executed much less than expected
    /// beyond all detected stalls.
    cpu_time_lost: bool,
}

impl RunReport {
    pub(super) fn of(
        measured: &LiveRun,
        found: &[Findings],
        estimates: &[LoadEstimate],
    ) -> RunReport {
        let report = &measured.report;
        let roots = report.roots.iter().zip(found).zip(estimates).map(|((real, found), sketch)| {
            let cpus = real.dispatchers.len().max(1) as u128;
            let whole = (u128::from(report.length.as_ns()) * cpus).max(1);
            let ppm = |ns: u64| (u128::from(ns) * 1_000_000 / whole) as u64;
            let used = real.scheduling().as_ns();
            let stretched = real.total_lost_time().as_ns();
            let busy: u64 = sketch.busy.iter().map(|busy| busy.as_ns()).sum();
            RunRootReport {
                mechanism: real.mechanism.kind.to_string(),
                mechanism_why: real.mechanism.reason.clone(),
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
                cpu_time_lost: stretched > MIN_LOST_TIME_NS + busy / 100 * LOST_TIME_PERCENT,
            }
        });
        RunReport {
            real_time: measured.is_real,
            interrupted: measured.interrupted,
            stalls: report.stalls.len(),
            longest_stall_ns: report
                .stalls
                .iter()
                .map(|stall| stall.length().as_ns())
                .max()
                .unwrap_or(0),
            roots: roots.collect(),
        }
    }
}

/// Tolerated lost time, in percent of a root's load. It exceeds the cost of context switches,
/// interrupts and short stalls on an undisturbed computer.
const LOST_TIME_PERCENT: u64 = 3;
const MIN_LOST_TIME_NS: u64 = 2_000_000;

impl RootComparison {
    pub(super) fn of(
        root: &Root,
        model: &Model,
        simulated: &run_summary::RootSummary,
        findings: &[Findings],
    ) -> RootComparison {
        let mut tasks = Vec::new();
        for (at, name) in root.tasks.iter().enumerate() {
            let mut responses: Vec<u64> = findings
                .iter()
                .flat_map(|found| &found.responses[at])
                .map(|span| span.as_ns())
                .collect();
            responses.sort_unstable();
            // The value that `thousandths` of all do not exceed.
            let quantile = |thousandths: usize| {
                let rank = (responses.len() * thousandths).div_ceil(1_000).max(1);
                responses.get(rank - 1).copied()
            };
            let (bound, simulated) = (model.bounds[at], &simulated.tasks[at]);
            tasks.push(TaskComparison {
                name: name.clone(),
                deadline_ns: simulated.deadline_ns,
                bound_ns: bound.nominal.map(Span::as_ns),
                bound_within_reason_ns: bound.tolerant.map(Span::as_ns),
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
        RootComparison {
            name: root.name.clone(),
            verdict: Verdict::Inconclusive,
            jobs: findings.iter().map(|found| found.jobs).sum(),
            excluded: findings.iter().map(|found| found.excluded).sum(),
            perturbed: findings.iter().map(|found| found.perturbed).sum(),
            tasks,
            programs: programs.map(|(task, _)| task.clone()).collect(),
            programs_are_held: programs_are_held(root),
            findings: findings.iter().flat_map(|found| describe_findings(root, found)).collect(),
        }
    }
}

/// Describes the contradictions.
fn describe_findings(root: &Root, found: &Findings) -> Vec<String> {
    let name = |(task, job): JobId| {
        format!("job {job} of {}", root.tasks.get(task.0 as usize).map_or("?", String::as_str))
    };
    let instant = |of: JobInstant| match of {
        JobInstant::Begin(job) => format!("the begin of {}", name(job)),
        JobInstant::End(job) => format!("the end of {}", name(job)),
    };
    let mut all = Vec::new();
    if let Some(turned) = found.first_inversion {
        all.push(format!(
            "{} followed {} after {}, which in every simulation is at least {} later ({} in total)",
            instant(turned.earlier),
            short(turned.by.as_ns()),
            instant(turned.later),
            short(turned.apart.as_ns()),
            count(found.inversions as usize, "inversion"),
        ));
    }
    if let Some((job, by)) = found.first_out_of_range {
        let by = short(by.as_ns());
        let all_of_them = count(found.out_of_range as usize, "job");
        all.push(format!(
            "{} ended {by} outside of the range of the simulations ({all_of_them} in total)",
            name(job)
        ));
    }
    for out in found.kernel.iter().flat_map(|checked| &checked.unordered).take(1) {
        let name = root.tasks.get(out.task.0 as usize).map_or("?", String::as_str);
        let (at, length) = (short(out.from.as_ns()), short(out.length().as_ns()));
        all.push(format!("{name} ran for {length} at {at} without an order"));
    }
    for fault in found.kernel.iter().flat_map(|checked| &checked.faults).take(1) {
        let name = fault
            .task
            .and_then(|task| root.tasks.get(task.0 as usize))
            .map_or("a task", String::as_str);
        let (by, at) = (short(fault.length().as_ns()), short(fault.from.as_ns()));
        let all_of_them = found.kernel.as_ref().map_or(0, |checked| checked.faults.len());
        all.push(format!(
            "{name} was scheduled at {at} but did not run for {by}: its CPU was idle or ran another thread of Talea ({} in total)",
            count(all_of_them, "order")
        ));
    }
    if let Some((job, over)) = found.first_bound_violation {
        let (over, all_of_them) =
            (short(over.as_ns()), count(found.bound_violations as usize, "job"));
        all.push(format!(
            "{} took {over} more than its bound and the tolerance ({all_of_them} in total)",
            name(job)
        ));
    }
    all
}

impl CompareReport {
    pub(super) fn new(
        file: &Path,
        duration: Span,
        seed: u64,
        tolerance: Tolerance,
        (mut roots, chains): (Vec<RootComparison>, Vec<ChainComparison>),
        runs: Vec<RunReport>,
    ) -> CompareReport {
        for (number, root) in roots.iter_mut().enumerate() {
            root.verdict = verdict(runs.iter().map(|run| (&run.roots[number], run.interrupted)));
        }
        let has = |wanted| roots.iter().any(|root| root.verdict == wanted);
        let differs = has(Verdict::Differ) || chains.iter().any(|chain| chain.finding.is_some());
        let verdict = match (differs, has(Verdict::Inconclusive)) {
            (true, _) => Verdict::Differ,
            (_, true) => Verdict::Inconclusive,
            _ => Verdict::Agree,
        };
        CompareReport {
            file: file.display().to_string(),
            duration_ns: duration.as_ns(),
            seed,
            tolerance_ns: tolerance.min.as_ns(),
            tolerance_permille: tolerance.permille,
            verdict,
            roots,
            chains,
            runs,
        }
    }

    pub(super) fn exit(&self) -> Exit {
        self.verdict.exit()
    }
}

/// Combines the runs of one root. One conclusive contradiction outweighs any number of agreeing
/// runs.
fn verdict<'a>(runs: impl Iterator<Item = (&'a RunRootReport, bool)>) -> Verdict {
    let mut verdict = Verdict::Inconclusive;
    for (run, interrupted) in runs {
        if interrupted {
            continue;
        }
        // Stalls are not the cause of a fault, however many jobs they excluded.
        if run.faults > 0 {
            return Verdict::Differ;
        }
        if !run.conclusive {
            continue;
        }
        match (run.agrees, run.cpu_time_lost) {
            (true, _) => verdict = Verdict::Agree,
            (false, true) => {}
            (false, false) => return Verdict::Differ,
        }
    }
    verdict
}

const COLUMNS: [&str; 10] = [
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

impl TaskComparison {
    fn exceeds(&self, bound_ns: u64) -> bool {
        self.measured_max_ns.is_some_and(|measured| measured > bound_ns)
    }
}

fn cells(task: &TaskComparison) -> Vec<String> {
    let span = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), short);
    let bound = match (task.bound_ns, task.bound_within_reason_ns) {
        (Some(bound), None) => format!("~{}", short_bound(bound)),
        // The measured maximum lies between both bounds.
        (Some(bound), Some(most)) if task.exceeds(bound) => {
            format!("{}..{}", short_bound(bound), short_bound(most))
        }
        (bound, _) => bound.map_or_else(|| "-".to_owned(), short_bound),
    };
    vec![
        task.name.clone(),
        talea_study::run_summary::deadline(task.deadline_ns),
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

/// Returns the table of all roots for the head of a page.
pub(super) fn rows(answer: &CompareReport) -> Vec<Vec<String>> {
    let title = |title: &&str| title.trim_start_matches('>').to_owned();
    let titles = std::iter::once("root".to_owned()).chain(COLUMNS.iter().map(title)).collect();
    let line = |root: &RootComparison, task: &TaskComparison| {
        std::iter::once(root.name.clone()).chain(cells(task)).collect::<Vec<_>>()
    };
    let lines =
        answer.roots.iter().flat_map(|root| root.tasks.iter().map(move |task| line(root, task)));
    std::iter::once(titles).chain(lines).collect()
}

/// Formats the chains as a table, with their contradictions.
fn chain_lines(chains: &[ChainComparison], color: bool) -> String {
    if chains.is_empty() {
        return String::new();
    }
    let span = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), short);
    let mut table =
        Table::new("chain | latency | >bound | >simulated | >measured | >outputs | >excluded");
    for chain in chains {
        for (what, latency) in [("reaction", &chain.reaction), ("age", &chain.age)] {
            table.row(vec![
                chain.name.clone(),
                what.to_owned(),
                latency.bound_ns.map_or_else(|| "-".to_owned(), short_bound),
                span(latency.simulated_max_ns),
                span(latency.measured_max_ns),
                chain.outputs.to_string(),
                chain.excluded.to_string(),
            ]);
        }
    }
    let mut out = table.render();
    for chain in chains {
        if let Some(finding) = &chain.finding {
            let _ =
                writeln!(out, "{}: {}: {finding}", paint("differ", Tone::Bad, color), chain.name);
        }
    }
    out
}

pub(super) fn text(answer: &CompareReport, color: bool) -> String {
    let mut out = String::new();
    let runs = count(answer.runs.len(), "run");
    for (number, root) in answer.roots.iter().enumerate() {
        let (word, tone) = root.verdict.word();
        // Writing to a String can't fail.
        let _ = writeln!(
            out,
            "{}, {runs} of {}: bound, simulation and threads {}",
            root.name,
            Span::from_ns(answer.duration_ns),
            paint(word, tone, color)
        );
        let mut table = Table::of(&COLUMNS);
        for task in &root.tasks {
            table.row(cells(task));
        }
        out.push_str(&table.render());
        let any = |is: fn(&TaskComparison) -> bool| root.tasks.iter().any(is);
        if any(|task| task.bound_ns.is_some() && task.bound_within_reason_ns.is_none()) {
            let _ = writeln!(out, "~ no bound with costs two percent longer: not checked");
        }
        if any(|task| {
            task.bound_within_reason_ns.is_some()
                && task.bound_ns.is_some_and(|ns| task.exceeds(ns))
        }) {
            let _ = writeln!(
                out,
                ".. as described, and with costs two percent longer and some time for each order"
            );
        }
        if !root.programs.is_empty() {
            let held = if root.programs_are_held {
                "the others are checked against their bounds"
            } else {
                "no server limits it, so no bound holds"
            };
            for program in &root.programs {
                let what = "its jobs last from its wake-up until it blocks";
                let _ = writeln!(out, "{program} is a program: {what}; {held}");
            }
        }
        for finding in &root.findings {
            let _ = writeln!(out, "{}: {finding}", paint("differs", Tone::Bad, color));
        }
        let _ = writeln!(
            out,
            "{} of {} excluded: their CPU was stalled; {} perturbed, checked against bounds only",
            root.excluded,
            count(root.jobs as usize, "job"),
            root.perturbed
        );
        for run in &answer.runs {
            let of = &run.roots[number];
            let lost = if of.cpu_time_lost { "; CPU time lost" } else { "" };
            let _ = writeln!(
                out,
                "mechanism {}: {}; scheduler overhead {} ({} per job), other {}; without an order {}{lost}",
                of.mechanism,
                of.mechanism_why,
                run_summary::percent(of.scheduler_ppm),
                short(of.per_job_ns),
                run_summary::percent(of.other_ppm),
                of.kernel.as_ref().map_or_else(
                    || "unknown: the kernel reports no sched_switch events".to_owned(),
                    |checked| format!(
                        "at most {}, orders violated for at most {}, in {} of workers",
                        short(checked.longest_ns),
                        short(checked.unobeyed_ns),
                        count(checked.stays, "run interval")
                    ),
                ),
            );
        }
    }
    out.push_str(&chain_lines(&answer.chains, color));
    let stalls: usize = answer.runs.iter().map(|run| run.stalls).sum();
    if let Some(longest) =
        answer.runs.iter().map(|run| run.longest_stall_ns).max().filter(|_| stalls > 0)
    {
        let stalls = count(stalls, "CPU stall");
        let _ = writeln!(out, "{stalls}; the longest {}", short(longest));
    }
    if answer.runs.iter().any(|run| !run.real_time) {
        let what =
            "best effort: threads had no real-time priorities, so these figures guarantee nothing";
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
    fn a_violated_order_differs_also_with_many_excluded_jobs() {
        let run = |conclusive, agrees, cpu_time_lost, faults| RunRootReport {
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
            cpu_time_lost,
        };
        let of = |runs: &[RunRootReport]| verdict(runs.iter().map(|run| (run, false)));
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
    fn a_bound_is_shown_with_its_tolerant_bound() {
        let cell = |bound_ns, within, measured_max_ns| {
            let (name, millis) = ("a".to_owned(), |ms: u64| ms * 1_000_000);
            let task = TaskComparison {
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
