//! `talea compare --deployed`: compares bound and simulation with a system that is in force.
//!
//! Model: a governor counts the jobs of its programs, and the kernel the CPU time of their control
//! groups. The counters are read before and after the measurement. They have no times of single
//! jobs, so a CPU stall excludes no job: it makes a late job or a long response inconclusive. The
//! longest response is that since the governor began. If it did not grow, a contradiction is older
//! than the measurement, and inconclusive.
//!
//! Linux schedules the programs of a root without a governor. There no process observes when a job
//! begins or ends, so only the CPU time is compared.

use super::report::Verdict;
use super::simulate::simulate;
use crate::commands::deploy::DaemonArgs;
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use talea_core::engine::{MAX_RUN, NodeSpec};
use talea_core::workload::Source;
use talea_core::{Monotonic, Span, Time, Work, mutate};
use talea_deploy::text::message::StatusText;
use talea_deploy::{FileHash, Generation};
use talea_exec::StoppedTime;
use talea_exec::stalls::{Monitor, ProbeConfig, Stall};
use talea_os::Tid;
use talea_os::cgroup::{Cgroup, program_group};
use talea_sim::rng::root_seed;
use talea_study::compare::Tolerance;
use talea_study::compare::model::{Bound, MAX_COST_PERMILLE, model};
use talea_study::exit::{Exit, not_executable};
use talea_study::live_run::SourceTexts;
use talea_study::options::Output;
use talea_study::output::{Table, Tone, colored, count, paint};
use talea_study::run_summary::{self, TaskSummary, short, short_bound};
use talea_system::{Registry, Root};

/// Priority of the monitors of stalls: above the governors.
const MONITOR_PRIORITY: u8 = 99;
/// Time within which a governor writes its statistics.
const STATISTICS_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_PERIOD: Duration = Duration::from_millis(1);
/// Reason why a root without a governor has no responses.
const NOT_MEASURED: &str =
    "jobs and responses: Linux schedules these programs, and no process observes their jobs";

/// Measurement of the deployment in force.
pub(super) struct Measurement<'a> {
    /// The system file.
    pub(super) file: &'a Path,
    pub(super) duration: Option<Span>,
    pub(super) seed: Option<u64>,
    pub(super) tolerance: Tolerance,
    pub(super) daemon: &'a DaemonArgs,
    pub(super) output: &'a Output,
}

/// Statistics of a governor, of which the comparison needs a part.
#[derive(Deserialize)]
struct Statistics {
    zero_ns: u64,
    tasks: Vec<TaskStatistics>,
}

#[derive(Deserialize)]
struct TaskStatistics {
    name: String,
    jobs: u64,
    late: u64,
    max_response_ns: u64,
    total_response_ns: u64,
    stopped_busy_ns: u64,
    max_stopped_busy_ns: u64,
    policy_changed: Option<String>,
}

/// Counters of a deployment at one instant.
struct Counters {
    /// `statistics[root]`: those of its governor.
    statistics: Vec<Option<Statistics>>,
    /// Process, number of restarts and CPU time of each program that runs.
    programs: BTreeMap<String, (u32, u64, Work)>,
}

#[derive(Serialize)]
struct DeployedReport {
    file: String,
    /// Number of the generation in force.
    generation: u64,
    duration_ns: u64,
    /// Tolerated difference of a response. `tolerance_permille` is the part of the response that is
    /// added.
    tolerance_ns: u64,
    tolerance_permille: u64,
    verdict: Verdict,
    roots: Vec<DeployedRoot>,
}

#[derive(Serialize)]
struct DeployedRoot {
    name: String,
    cpus: String,
    verdict: Verdict,
    /// Values that are not measured, and the reason.
    not_measured: Option<&'static str>,
    stalls: usize,
    longest_stall_ns: u64,
    tasks: Vec<DeployedTask>,
    /// Contradictions, as sentences.
    findings: Vec<String>,
    /// Reasons why the counters say nothing, as sentences.
    doubts: Vec<String>,
}

/// Comparison of a task. Counters are those of the measurement, except for the longest response.
#[derive(Debug, Serialize)]
struct DeployedTask {
    name: String,
    deadline_ns: u64,
    bound_ns: Option<u64>,
    /// Bound with two percent longer costs and some time for each order.
    bound_within_reason_ns: Option<u64>,
    simulated_max_ns: Option<u64>,
    /// Longest response since the governor began.
    measured_max_ns: Option<u64>,
    measured_mean_ns: Option<u64>,
    jobs: Option<u64>,
    late: Option<u64>,
    cpu_time_ns: Option<u64>,
    /// CPU time that the cost and the period of the file allow. `None` for a program without a
    /// period.
    cpu_time_limit_ns: Option<u64>,
}

/// Compares the counters of the deployment in force.
pub(super) fn run(args: &Measurement<'_>) -> anyhow::Result<Exit> {
    let (system, texts) = SourceTexts::load(args.file, &Registry::default())?;
    let generation = args.daemon.in_force()?;
    let generation = generation
        .ok_or_else(|| not_executable("no generation is in force; run talea deploy apply"))?;
    let hash = FileHash::of(texts.0.iter().map(|(_, text)| text.as_str()));
    if hash != generation.hash() {
        let file = args.file.display();
        return Err(not_executable(format!(
            "generation {} is in force, of another text; talea deploy diff {file} shows the \
             difference",
            generation.number()
        )));
    }
    let duration = args.duration.unwrap_or(system.duration);
    let seed = args.seed.unwrap_or(system.seed);
    let end = Time::ZERO + duration;
    let of = |(number, root): (usize, &Root)| model(root, root_seed(seed, number), end);
    let models = system.roots.iter().enumerate().map(of).collect::<anyhow::Result<Vec<_>>>()?;
    let outlines = run_summary::outlines(&system)?;
    let simulated = simulate(&system, &outlines, seed, duration)?;
    let before = Counters::read(args, &generation)?;
    let start = |cpu| Monitor::start(cpu, MONITOR_PRIORITY, ProbeConfig::FOR_RUNS);
    let monitors: Vec<Vec<Monitor>> =
        generation.roots().iter().map(|root| root.cpus.iter().map(start).collect()).collect();
    std::thread::sleep(Duration::from_nanos(duration.as_ns()));
    let after = Counters::read(args, &generation)?;
    let tolerance = args.tolerance;
    let mut roots = Vec::new();
    for (number, (root, monitors)) in system.roots.iter().zip(monitors).enumerate() {
        let stop = |monitor: Monitor| monitor.stop().context("a monitor of stalls");
        let stalls = monitors.into_iter().map(stop).collect::<anyhow::Result<Vec<_>>>()?.concat();
        let statistics = [&before, &after].map(|of| of.statistics[number].as_ref());
        let mut found = DeployedRoot::new(&root.name, &generation.roots()[number].cpus, &stalls);
        found.not_measured = statistics[1].is_none().then_some(NOT_MEASURED);
        let periods = periods(root);
        for (task, name) in root.tasks.iter().enumerate() {
            let evidence = Evidence {
                source: &root.sources[task],
                period: periods[task],
                bound: models[number].bounds[task],
                simulated: &simulated[number].0.tasks[task],
                statistics: statistics.map(|of| of?.tasks.iter().find(|of| of.name == *name)),
                is_one_run: is_one_run(statistics),
                programs: [&before, &after].map(|of| of.programs.get(name).copied()),
                duration,
                tolerance,
            };
            found.add(name, &evidence);
        }
        found.settle();
        roots.push(found);
    }
    let report = DeployedReport {
        file: args.file.display().to_string(),
        generation: generation.number(),
        duration_ns: duration.as_ns(),
        tolerance_ns: tolerance.min.as_ns(),
        tolerance_permille: tolerance.permille,
        verdict: verdict(&roots),
        roots,
    };
    args.output.print(&report, || text(&report, colored()))?;
    Ok(report.verdict.exit())
}

/// Returns the period of each task.
fn periods(root: &Root) -> Vec<Span> {
    let period = |spec: &NodeSpec| match spec {
        NodeSpec::Task(spec) => Some(spec.period),
        NodeSpec::Scheduler(_) => None,
    };
    root.tree.nodes().filter_map(|(_, node)| period(&node.spec)).collect()
}

/// Whether both statistics are those of one governor.
fn is_one_run(statistics: [Option<&Statistics>; 2]) -> bool {
    let [before, after] = statistics.map(|of| of.map(|of| of.zero_ns));
    before == after
}

impl Counters {
    fn read(args: &Measurement<'_>, generation: &Generation) -> anyhow::Result<Counters> {
        let status = args.daemon.status()?;
        let in_force = status.in_force.as_ref().map(|of| of.number);
        if in_force != Some(generation.number()) {
            return Err(not_executable("another generation is in force now; compare again"));
        }
        let mut statistics = Vec::new();
        for number in 0..generation.roots().len() {
            let governor = generation
                .tasks()
                .iter()
                .find(|task| task.root == number && task.governed.is_some());
            statistics.push(match governor {
                Some(governor) => {
                    Some(statistics_of(&status, &governor.name, &args.daemon.statistics())?)
                }
                None => None,
            });
        }
        let mut programs = BTreeMap::new();
        for task in &status.tasks {
            let Some(pid) = task.pid.and_then(|pid| Tid::new(pid as i32)) else { continue };
            let group = program_group::of_process(pid).and_then(Cgroup::open);
            // A program may end at any instant.
            let Ok(used) = group.and_then(|group| group.used()) else { continue };
            programs.insert(task.name.clone(), (pid.as_raw() as u32, task.restarts, used));
        }
        Ok(Counters { statistics, programs })
    }
}

/// Requests the statistics of a governor.
fn statistics_of(status: &StatusText, governor: &str, folder: &Path) -> anyhow::Result<Statistics> {
    let task = status.tasks.iter().find(|task| task.name == governor);
    let no_governor = || not_executable(format!("{governor} does not run; compare again"));
    let pid = task.and_then(|task| task.pid).and_then(|pid| Pid::from_raw(pid as i32));
    let pid = pid.ok_or_else(no_governor)?;
    let words = std::fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero()))?;
    let mut words = words.split('\0').skip_while(|word| *word != "--stats").skip(1);
    // Only a file of the daemon is removed, whatever process has the number now.
    let name = words.next().and_then(|path| Path::new(path).file_name());
    let file = folder.join(name.ok_or_else(no_governor)?);
    // The file appears with its whole text.
    let _ = std::fs::remove_file(&file);
    kill_process(pid, Signal::USR1).map_err(|_| no_governor())?;
    let end = Instant::now() + STATISTICS_TIMEOUT;
    while !file.exists() {
        if Instant::now() > end {
            return Err(not_executable(format!(
                "{governor} writes no statistics to {}; look at the journal of talea-deploy",
                file.display()
            )));
        }
        std::thread::sleep(POLL_PERIOD);
    }
    let text = std::fs::read_to_string(&file).context(file.display().to_string())?;
    serde_json::from_str(&text).context(file.display().to_string())
}

/// Data about one task.
struct Evidence<'a> {
    source: &'a Source,
    period: Span,
    bound: Bound,
    simulated: &'a TaskSummary,
    /// Statistics before and after the measurement.
    statistics: [Option<&'a TaskStatistics>; 2],
    is_one_run: bool,
    /// Process, restarts and CPU time before and after the measurement.
    programs: [Option<(u32, u64, Work)>; 2],
    duration: Span,
    tolerance: Tolerance,
}

/// Returns the CPU time that cost and period allow within `duration`: that of a job which is in
/// progress at its start, and of one which begins at its end, in addition.
fn cpu_time_limit(source: &Source, period: Span, duration: Span) -> Option<u64> {
    if source.is_endless() || period >= MAX_RUN || period.is_zero() {
        return None;
    }
    let jobs = duration.as_ns() / period.as_ns() + 2;
    let total = source.cost.max().as_ns().saturating_mul(jobs);
    Some(total.saturating_add(total / 1_000 * MAX_COST_PERMILLE))
}

impl DeployedRoot {
    fn new(name: &str, cpus: &talea_core::CpuSet, stalls: &[Stall<Monotonic>]) -> DeployedRoot {
        DeployedRoot {
            name: name.to_owned(),
            cpus: cpus.to_string(),
            verdict: Verdict::Agree,
            not_measured: None,
            stalls: stalls.len(),
            longest_stall_ns: stalls.iter().map(|of| of.length().as_ns()).max().unwrap_or(0),
            tasks: Vec::new(),
            findings: Vec::new(),
            doubts: Vec::new(),
        }
    }

    /// Adds a task with what its counters contradict.
    fn add(&mut self, name: &str, evidence: &Evidence<'_>) {
        let simulated = evidence.simulated;
        let mut task = DeployedTask {
            name: name.to_owned(),
            deadline_ns: simulated.deadline_ns,
            bound_ns: evidence.bound.nominal.map(Span::as_ns),
            bound_within_reason_ns: evidence.bound.tolerant.map(Span::as_ns),
            simulated_max_ns: simulated.response_max_ns,
            measured_max_ns: None,
            measured_mean_ns: None,
            jobs: None,
            late: None,
            cpu_time_ns: None,
            cpu_time_limit_ns: cpu_time_limit(evidence.source, evidence.period, evidence.duration),
        };
        match evidence.programs {
            [Some((first, restarts, before)), Some((last, again, after))]
                if first == last && restarts == again =>
            {
                let used = after.checked_sub(before).unwrap_or(Work::ZERO).as_ns();
                task.cpu_time_ns = Some(used);
                if let Some(limit) = task.cpu_time_limit_ns.filter(|&limit| used > limit) {
                    self.findings.push(format!(
                        "{name} used {} of CPU time; its cost and its period allow {}",
                        short(used),
                        short(limit)
                    ));
                }
            }
            _ => self.doubts.push(format!("{name} did not run all the time")),
        }
        match evidence.statistics {
            // Linux schedules the root, and counts no jobs.
            [None, None] if self.not_measured.is_some() => {}
            [Some(before), Some(after)] if evidence.is_one_run => {
                let expects_job = evidence.duration.as_ns() / 2 > evidence.period.as_ns();
                self.check_jobs(&mut task, [before, after], expects_job, evidence.tolerance);
            }
            [Some(_), Some(_)] => self.doubts.push("another governor runs than before".to_owned()),
            _ => self.doubts.push(format!("the governor has no statistics of {name}")),
        }
        self.tasks.push(task);
    }

    /// Checks the counters of a governor.
    fn check_jobs(
        &mut self,
        task: &mut DeployedTask,
        [before, after]: [&TaskStatistics; 2],
        expects_job: bool,
        tolerance: Tolerance,
    ) {
        let name = task.name.clone();
        let (jobs, late) = (after.jobs - before.jobs, after.late - before.late);
        let total = after.total_response_ns - before.total_response_ns;
        let longest = after.max_response_ns;
        (task.jobs, task.late) = (Some(jobs), Some(late));
        if mutate!("cli-compare-deployed-empty", jobs == 0 && expects_job, false) {
            self.doubts.push(format!("{name} completed no job"));
        }
        task.measured_mean_ns = total.checked_div(jobs);
        task.measured_max_ns = (after.jobs > 0).then_some(longest);
        let is_proved = task.bound_ns.is_some_and(|bound| bound <= task.deadline_ns);
        if late > 0 && is_proved {
            let late = count(late as usize, "job");
            self.contradict(format!("{name}: {late} late, and its bound is below its deadline"));
        }
        let limit = task
            .bound_within_reason_ns
            .map(|bound| bound.saturating_add(tolerance.of(Span::from_ns(bound)).as_ns()));
        if let Some(limit) = limit.filter(|&limit| longest > limit) {
            let over = short(longest - limit);
            if longest > before.max_response_ns {
                let what = "took more than its bound and the tolerance";
                self.contradict(format!("a job of {name} {what}, by {over}"));
            } else {
                let what =
                    "exceeds its bound and the tolerance, and is older than this measurement";
                self.doubts.push(format!("the longest response of {name} {what}"));
            }
        }
        let stopped = after.stopped_busy_ns - before.stopped_busy_ns;
        if stopped > StoppedTime::TOLERANCE.as_ns()
            && after.max_stopped_busy_ns > StoppedTime::TOLERANCE.as_ns()
            && after.max_stopped_busy_ns > before.max_stopped_busy_ns
        {
            let longest = short(after.max_stopped_busy_ns);
            self.contradict(format!("{name} ran for {longest} while it was stopped"));
        }
        if let Some(what) = &after.policy_changed
            && before.policy_changed.as_ref() != Some(what)
        {
            self.findings.push(format!("{name}: {what}"));
        }
    }

    /// Adds a contradiction that a CPU stall can cause.
    fn contradict(&mut self, what: String) {
        if mutate!("cli-compare-deployed-stalls", self.stalls > 0, false) {
            self.doubts.push(format!("{what}; a CPU stall may have caused it"));
        } else {
            self.findings.push(what);
        }
    }

    /// Sets the verdict.
    fn settle(&mut self) {
        self.doubts.dedup();
        self.verdict = match (self.findings.is_empty(), self.doubts.is_empty()) {
            (false, _) => Verdict::Differ,
            (true, false) => Verdict::Inconclusive,
            (true, true) => Verdict::Agree,
        };
    }
}

/// Returns the worst verdict.
fn verdict(roots: &[DeployedRoot]) -> Verdict {
    let has = |wanted| roots.iter().any(|root| root.verdict == wanted);
    match (has(Verdict::Differ), has(Verdict::Inconclusive)) {
        (true, _) => Verdict::Differ,
        (_, true) => Verdict::Inconclusive,
        _ => Verdict::Agree,
    }
}

fn text(report: &DeployedReport, color: bool) -> String {
    let mut out = String::new();
    let length = Span::from_ns(report.duration_ns);
    for root in &report.roots {
        let (word, tone) = root.verdict.word();
        // Writing to a String can't fail.
        let _ = writeln!(
            out,
            "{} on CPU {}, generation {} for {length}: bound, simulation and counters {}",
            root.name,
            root.cpus,
            report.generation,
            paint(word, tone, color)
        );
        let mut table = Table::new(
            "task | >deadline | >bound | >simulated | >measured | >mean | >jobs | >late | \
             >CPU time | >allowed",
        );
        let span = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), short);
        let number = |of: Option<u64>| of.map_or_else(|| "-".to_owned(), |of| of.to_string());
        for task in &root.tasks {
            table.row(vec![
                task.name.clone(),
                run_summary::deadline(task.deadline_ns),
                task.bound_ns.map_or_else(|| "-".to_owned(), short_bound),
                span(task.simulated_max_ns),
                span(task.measured_max_ns),
                span(task.measured_mean_ns),
                number(task.jobs),
                number(task.late),
                span(task.cpu_time_ns),
                span(task.cpu_time_limit_ns),
            ]);
        }
        out.push_str(&table.render());
        if let Some(what) = root.not_measured {
            let _ = writeln!(out, "not measured: {what}");
        }
        for (word, tone, all) in
            [("differs", Tone::Bad, &root.findings), ("inconclusive", Tone::Doubtful, &root.doubts)]
        {
            for finding in all {
                let _ = writeln!(out, "{}: {finding}", paint(word, tone, color));
            }
        }
        if root.stalls > 0 {
            let stalls = count(root.stalls, "CPU stall");
            let longest = short(root.longest_stall_ns);
            let _ = writeln!(out, "{stalls}; the longest {longest}");
        }
    }
    let _ = writeln!(
        out,
        "measured: the longest response since the governor began; tolerance {} and {}.{} % of a \
         response",
        Span::from_ns(report.tolerance_ns),
        report.tolerance_permille / 10,
        report.tolerance_permille % 10
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::workload::{Arrivals, Cost};

    const MS: u64 = 1_000_000;

    fn statistics(jobs: u64, late: u64, longest_ms: u64) -> TaskStatistics {
        TaskStatistics {
            name: "a".to_owned(),
            jobs,
            late,
            max_response_ns: longest_ms * MS,
            total_response_ns: jobs * MS,
            stopped_busy_ns: 0,
            max_stopped_busy_ns: 0,
            policy_changed: None,
        }
    }

    fn task(bound_ms: u64) -> DeployedTask {
        DeployedTask {
            name: "a".to_owned(),
            deadline_ns: 20 * MS,
            bound_ns: Some(bound_ms * MS),
            bound_within_reason_ns: Some(bound_ms * MS),
            simulated_max_ns: None,
            measured_max_ns: None,
            measured_mean_ns: None,
            jobs: None,
            late: None,
            cpu_time_ns: None,
            cpu_time_limit_ns: None,
        }
    }

    fn checked(
        stalls: &[Stall<Monotonic>],
        bound_ms: u64,
        before: &TaskStatistics,
        after: &TaskStatistics,
    ) -> (Verdict, usize, usize) {
        let mut root = DeployedRoot::new("cpu", &talea_core::CpuSet::single(0), stalls);
        let tolerance = Tolerance { min: Span::from_ns(MS), permille: 0 };
        root.check_jobs(&mut task(bound_ms), [before, after], true, tolerance);
        root.settle();
        (root.verdict, root.findings.len(), root.doubts.len())
    }

    #[test]
    fn d36_a_contradiction_within_the_measurement_differs_unless_the_cpu_was_stalled() {
        let at = Monotonic::from_ns(MS);
        let stall = Stall { cpu: 0, from: at, to: at + Span::from_ns(MS) };
        let (before, late) = (statistics(5, 0, 10), statistics(9, 1, 22));
        assert_eq!(
            checked(&[], 10, &before, &statistics(9, 0, 11)),
            (Verdict::Agree, 0, 0),
            "within the tolerance"
        );
        assert_eq!(checked(&[], 10, &before, &late), (Verdict::Differ, 2, 0));
        assert_eq!(checked(&[stall], 10, &before, &late), (Verdict::Inconclusive, 0, 2));
        // A program that hangs agrees with nothing.
        assert_eq!(checked(&[], 10, &before, &before), (Verdict::Inconclusive, 0, 1));
        // A bound above the deadline proves nothing about late jobs.
        assert_eq!(checked(&[], 30, &before, &late), (Verdict::Agree, 0, 0));
        // The longest response did not grow.
        let old = statistics(5, 3, 22);
        assert_eq!(checked(&[], 10, &old, &statistics(9, 3, 22)), (Verdict::Inconclusive, 0, 1));
    }

    #[test]
    fn d36_a_program_may_use_the_cost_of_each_period_and_of_two_jobs_more() {
        let source = Source {
            arrivals: Arrivals::Periodic {
                offset: Span::ZERO,
                period: Span::from_ns(10 * MS),
                jitter: Span::ZERO,
            },
            cost: Cost::Constant(Work::from_ns(MS)),
        };
        let limit = |source, period| cpu_time_limit(source, period, Span::from_ns(1_000 * MS));
        let expected = 102 * MS + 102 * MS / 1_000 * MAX_COST_PERMILLE;
        assert_eq!(limit(&source, Span::from_ns(10 * MS)), Some(expected));
        assert_eq!(limit(&Source::endless(), MAX_RUN), None);
    }
}
