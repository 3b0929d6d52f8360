//! Search for a late job of a task whose bound exceeds its deadline.
//!
//! The simulator runs the root as described, with worst-case costs. An observed miss refutes the
//! task. A run without a miss proves nothing, because another run may miss. Other arrivals are then
//! searched that the description also allows, if the description gives no phases or the bound is
//! exact (then it is a response from the given phases). A job that has not ended at the end of the
//! run and was due before is late as well.

use super::progress::Progress;
use crate::event_count::{estimated_events, separation};
use crate::run_summary::short;
use crate::witness::{LateJob, Witness};
use serde::Serialize;
use std::fmt;
use std::rc::Rc;
use talea_core::engine::{Engine, MAX_RUN, NodeSpec, TaskId, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, CostMode, Source};
use talea_core::{Span, Time};
use talea_sim::{Completion, Simulation, Sink};
use talea_system::Root;
use talea_system::what_if::Change;

/// Late job of a task.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Miss {
    /// Whether the arrivals are those of the description. Otherwise a search found the arrivals,
    /// and a witness file records them.
    as_described: bool,
    /// Number of the job, from 0.
    job: u64,
    release_ns: u64,
    deadline_ns: u64,
    /// Completion of the job; `None` if the job has not ended at the end of the run.
    end_ns: Option<u64>,
    /// Time from the job's deadline to its end, or to the end of the run.
    late_ns: u64,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.as_described { "" } else { " and searched arrivals" };
        let (job, release, late) = (self.job, short(self.release_ns), short(self.late_ns));
        write!(f, "simulated with worst-case costs{how}, job {job}, released at {release}, ")?;
        match self.end_ns {
            Some(end) => write!(f, "ends at {}, {late} late", short(end)),
            None => write!(
                f,
                "has not ended at {}, {late} late",
                short(self.deadline_ns + self.late_ns)
            ),
        }
    }
}

/// First late job of each task.
struct FirstMisses {
    found: Vec<Option<Miss>>,
    as_described: bool,
}

impl Sink for FirstMisses {
    fn on_completion(&mut self, job: &Completion) {
        let first = &mut self.found[job.task.0 as usize];
        if job.is_late() && first.is_none() {
            *first = Some(Miss {
                as_described: self.as_described,
                job: job.job,
                release_ns: job.release.as_ns(),
                deadline_ns: job.deadline.as_ns(),
                end_ns: Some(job.end.as_ns()),
                late_ns: job.end.since(job.deadline).as_ns(),
            });
        }
    }
}

impl FirstMisses {
    /// Adds, for each task without a late job, a job that was due before the end of the run and has
    /// not ended. An endless job is never due.
    fn add_unfinished(&mut self, root: &Root, machine: &Engine, until: Time) {
        for ((task, first), source) in (0..).zip(&mut self.found).zip(&root.sources) {
            let mut jobs = machine.unfinished(TaskId(task));
            if first.is_none()
                && !source.is_endless()
                && let Some(job) = mutate!(
                    "analyze-never-ends",
                    jobs.find(|job| job.deadline < until),
                    jobs.find(|job| job.deadline < until && job.deadline < job.release)
                )
            {
                *first = Some(Miss {
                    as_described: self.as_described,
                    job: job.number,
                    release_ns: job.release.as_ns(),
                    deadline_ns: job.deadline.as_ns(),
                    end_ns: None,
                    late_ns: until.since(job.deadline).as_ns(),
                });
            }
        }
    }
}

/// Returns the first job of each task that is late within `duration`.
pub(super) fn misses(
    root: &Root,
    duration: Span,
    seed: u64,
    progress: &mut Progress,
) -> anyhow::Result<Vec<Option<Miss>>> {
    run(root, duration, seed, true, progress)
}

/// Number of jobs that are simulated between two progress updates.
const JOBS_PER_CHUNK: u64 = 100_000;

fn run(
    root: &Root,
    duration: Span,
    seed: u64,
    as_described: bool,
    progress: &mut Progress,
) -> anyhow::Result<Vec<Option<Miss>>> {
    let machine =
        root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.kind))?;
    let world = Simulation::new(machine, root.tree.cpus, &root.workload(seed));
    let mut first = FirstMisses { found: vec![None; root.tasks.len()], as_described };
    let mut world = world.with_cost_mode(CostMode::Worst).with_environment(&root.surroundings);
    let until = Time::ZERO + duration;
    let piece =
        duration.as_ns() / (estimated_events(root, duration.as_ns()) / JOBS_PER_CHUNK + 1) + 1;
    while world.now() < until {
        progress.simulated(&root.name, world.now().since(Time::ZERO), duration);
        world.run(until.min(world.now() + Span::from_ns(piece)), &mut first);
    }
    first.add_unfinished(root, world.engine(), until);
    Ok(first.found)
}

/// Late job, with the root and the arrivals with which the job is late.
pub(super) struct FoundMiss {
    pub(super) miss: Miss,
    /// Root of the late job. It is shared, because several tasks may be late in the same run.
    pub(super) root: Rc<Root>,
    pub(super) seed: u64,
}

impl FoundMiss {
    /// Returns the content of a witness file.
    pub(super) fn witness(
        &self,
        file: &str,
        what_if: &[Change],
        task: usize,
    ) -> anyhow::Result<Witness> {
        let Miss { job, release_ns, deadline_ns, end_ns, as_described: _, late_ns: _ } = self.miss;
        let late =
            LateJob { task: self.root.tasks[task].clone(), job, release_ns, deadline_ns, end_ns };
        Witness::record(file, what_if, &self.root, self.seed, late)
    }
}

/// Whether the file gives the phases of the jobs. Then the search tries no others. A table is made
/// for the phases of its tasks.
pub(super) fn has_phases(root: &Root) -> bool {
    let is_table = |body: &NodeSpec| {
        let NodeSpec::Scheduler(spec) = body else { return false };
        matches!(spec.policy, PolicySpec::Table { .. })
    };
    root.phases_known
        || root.tree.get(Tree::ROOT).is_some_and(|node| is_table(&node.spec))
        || root.sources.iter().any(|source| match &source.arrivals {
            Arrivals::Periodic { offset, .. }
            | Arrivals::Sporadic { offset, .. }
            | Arrivals::Curve { offset, .. } => !offset.is_zero(),
            Arrivals::List(_) | Arrivals::Observed(_) => false,
        })
}

/// Number of phases that are tried for a task.
const MAX_PHASES: usize = 200;
/// Number of jobs that are simulated in total for all tasks of a root: less than a second.
const MAX_SIMULATED_JOBS: u64 = 1_000_000;

/// Fails if a proved task is late in a simulation, because analysis and simulator then contradict
/// each other.
pub(super) fn check_consistency(
    root: &Root,
    proved: &[bool],
    misses: &[Option<Miss>],
) -> anyhow::Result<()> {
    let mut all = root.tasks.iter().zip(proved).zip(misses);
    match all
        .find_map(|((task, &is_proved), miss)| miss.filter(|_| is_proved).map(|miss| (task, miss)))
    {
        None => Ok(()),
        Some((task, miss)) => Err(anyhow::anyhow!(
            "{task} is proved to meet its deadline, but: {miss}. Analysis and simulator contradict each other, which is a defect of this program: please report it, with the file"
        )),
    }
}

/// Result of a search.
pub(super) struct MissSearch {
    /// Tasks with a late job, each with this job.
    pub(super) found: Vec<(usize, FoundMiss)>,
    /// Tasks for which the search tried at most the synchronous release, because more attempts
    /// would take too long.
    pub(super) too_long: Vec<usize>,
}

/// Returns a duration with [`MAX_SIMULATED_JOBS`] jobs, if this duration is longer than the file's.
/// Under overload, tardiness grows with the length of the run.
pub(super) fn extended_duration(root: &Root, duration: Span) -> Option<Span> {
    let within = estimated_events(root, duration.as_ns()).max(1);
    let longer = u128::from(duration.as_ns()) * u128::from(MAX_SIMULATED_JOBS) / u128::from(within);
    let longer = Span::from_ns(u64::try_from(longer).unwrap_or(u64::MAX).min(MAX_RUN.as_ns()));
    (longer > duration).then_some(longer)
}

/// Searches for arrivals with which a job of a task in `late` is late. `late` pairs each task with
/// its longest possible response.
///
/// All tasks are first released at once, then as densely as allowed, with maximal jitter for the
/// first job and minimal jitter for the others. A task itself is released with the others, or so
/// that one of its deadlines is one of another task's (the phases of M. Spuri, INRIA RR-2772,
/// 1996). If the file gives phases, each task keeps its own, and the first job has its maximal
/// jitter. Tasks whose phase the file leaves free are then released with the first job of each task
/// in `late`. The synchronous release is one run for all tasks; the remaining tasks share the
/// remaining number of simulated jobs equally. A task in `proved` must not be late in any of these
/// runs.
pub(super) fn search(
    root: &Root,
    late: &[(usize, Span)],
    proved: &[bool],
    seed: u64,
    progress: &mut Progress,
) -> anyhow::Result<MissSearch> {
    let (mut found, mut too_long) = (Vec::new(), Vec::new());
    let Some(longest) = late.iter().map(|&(_, longest)| longest).max() else {
        return Ok(MissSearch { found, too_long });
    };
    let mut left = MAX_SIMULATED_JOBS;
    let mut open = late.to_vec();
    // A task that would take too long with the longest response is tried below with its own.
    let together = Others::Together;
    if let Some((misses, changed)) = attempt(root, longest, together, seed, &mut left, progress)? {
        check_consistency(root, proved, &misses)?;
        open.retain(|&(task, _)| {
            let miss = misses[task]
                .map(|miss| (task, FoundMiss { miss, root: Rc::clone(&changed), seed }));
            let stays = miss.is_none();
            found.extend(miss);
            stays
        });
    }
    for (done, &(task, longest)) in open.iter().enumerate() {
        progress.tried(&root.tasks[task]);
        let mut share = left / (open.len() - done) as u64;
        left -= share;
        let own = latest_first_release(&root.sources[task]).filter(|_| has_phases(root));
        let is_bound = own.is_some();
        let takes_too_long = estimated_events(root, longest.as_ns().saturating_mul(2)) > share;
        if takes_too_long && !is_bound {
            too_long.push(task);
        }
        if !takes_too_long {
            let all = if let Some(release) = own {
                vec![Others::At(release)]
            } else {
                let phases = phases(root, task, longest).into_iter();
                phases.map(|phase| Others::Except(task, phase)).collect()
            };
            for others in all {
                let tried = attempt(root, longest, others, seed, &mut share, progress)?;
                let Some((misses, root)) = tried else { break };
                check_consistency(&root, proved, &misses)?;
                if let Some(miss) = misses[task] {
                    found.push((task, FoundMiss { miss, root, seed }));
                    break;
                }
            }
        }
        left += share;
    }
    Ok(MissSearch { found, too_long })
}

type Attempt = (Vec<Option<Miss>>, Rc<Root>);

/// First releases of the tasks whose phases are free.
#[derive(Clone, Copy)]
enum Others {
    /// All at once, with the last task of a given phase.
    Together,
    /// At an instant.
    At(u64),
    /// All but one task at once, and that task later by a phase.
    Except(usize, u64),
}

/// Runs the densest arrivals, with the first releases of `others`. Returns `None` if the run
/// exceeds the `left` number of simulated jobs.
fn attempt(
    root: &Root,
    longest: Span,
    others: Others,
    seed: u64,
    left: &mut u64,
    progress: &mut Progress,
) -> anyhow::Result<Option<Attempt>> {
    let own = |source: &Source| if has_phases(root) { latest_first_release(source) } else { None };
    let begins = root.sources.iter().map(|source| own(source).unwrap_or(jitter(source).as_ns()));
    let most = begins.max().unwrap_or(0);
    let (free, last, phase) = match others {
        Others::Together => (most, None, 0),
        Others::At(instant) => (mutate!("analyze-witness-free", instant, most), None, 0),
        Others::Except(task, phase) => (most, Some(task), phase),
    };
    let until = most.saturating_add(phase).saturating_add(longest.as_ns().saturating_mul(2));
    let begin = |(at, source): (usize, &Source)| {
        let delay = if last == Some(at) { phase } else { 0 };
        own(source).unwrap_or(free.saturating_add(delay))
    };
    let begins: Vec<u64> = root.sources.iter().enumerate().map(begin).collect();
    let earliest = begins.iter().min().copied().unwrap_or(0);
    let Some(rest) = mutate!(
        "analyze-witness-limit",
        left.checked_sub(estimated_events(root, until.saturating_sub(earliest))),
        Some(left.saturating_sub(earliest))
    ) else {
        return Ok(None);
    };
    *left = rest;
    let mut changed = root.clone();
    for (source, begin) in changed.sources.iter_mut().zip(begins) {
        densest_arrivals(source, begin, until);
    }
    let misses = run(&changed, Span::from_ns(until), seed, false, progress)?;
    Ok(Some((misses, Rc::new(changed))))
}

/// Returns the latest arrival of the first job, if the source determines it.
fn latest_first_release(source: &Source) -> Option<u64> {
    match source.arrivals {
        Arrivals::Periodic { offset, jitter, .. } => {
            Some(offset.as_ns().saturating_add(jitter.as_ns()))
        }
        Arrivals::Sporadic { offset, extra_separation: Span::ZERO, .. }
        | Arrivals::Curve { offset, extra_delay: Span::ZERO, .. } => Some(offset.as_ns()),
        _ => None,
    }
}

fn jitter(source: &Source) -> Span {
    match source.arrivals {
        Arrivals::Periodic { jitter, .. } => jitter,
        _ => Span::ZERO,
    }
}

/// Replaces the arrivals by the densest allowed ones from `at` on. The first job has its maximal
/// jitter.
fn densest_arrivals(source: &mut Source, at: u64, until: u64) {
    if let Arrivals::Curve { offset, extra_delay, .. } = &mut source.arrivals {
        (*offset, *extra_delay) = (Span::from_ns(at), Span::ZERO);
        return;
    }
    let Some(distance) = separation(source) else { return };
    let first = at - jitter(source).as_ns().min(at);
    let times =
        (0..).map(|job: u64| first + job * distance.max(1)).take_while(|&nominal| nominal < until);
    let seen = times.map(|nominal| (Time::from_ns(nominal), Time::from_ns(nominal.max(at))));
    source.arrivals = Arrivals::Observed(seen.collect());
}

/// Returns the phases to try for a task, relative to the release of the others.
fn phases(root: &Root, number: usize, longest: Span) -> Vec<u64> {
    let mut found = vec![0];
    let specs: Vec<_> = (root.tree.nodes())
        .filter_map(|(_, node)| match &node.spec {
            NodeSpec::Task(spec) => Some(spec),
            NodeSpec::Scheduler(_) => None,
        })
        .collect();
    let own = (specs[number].deadline.as_ns(), jitter(&root.sources[number]).as_ns());
    for (at, spec) in specs.iter().enumerate().filter(|&(at, _)| at != number) {
        let Some(period) = separation(&root.sources[at]).filter(|&period| period > 0) else {
            continue;
        };
        let early = jitter(&root.sources[at]).as_ns();
        for job in 0..MAX_PHASES as u64 {
            // Aligned: the other task's nominal arrival, or its deadline, with the task's own. The
            // next nanosecond covers ties that favour the task.
            let nominal = i128::from(job * period) - i128::from(early) + i128::from(own.1);
            let due = nominal + i128::from(spec.deadline.as_ns()) - i128::from(own.0);
            let both = [nominal, nominal + 1, due, due + 1];
            found.extend(both.iter().filter_map(|&phase| u64::try_from(phase).ok()));
            if nominal.min(due) > i128::from(longest.as_ns()) {
                break;
            }
        }
    }
    found.retain(|phase| {
        mutate!(
            "analyze-witness-phases",
            *phase < longest.as_ns(),
            *phase == 0 && !longest.is_zero()
        )
    });
    found.sort_unstable();
    found.dedup();
    found.truncate(MAX_PHASES);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns two tasks, of which the second ends within 9 ms only if its arrival is not
    /// synchronous. The file gives no phases.
    fn root() -> Root {
        let text = "duration = \"1s\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n".to_owned();
        let task = |name: &str, rest: &str| {
            format!("[[task]]\nname = \"{name}\"\nperiod = \"20ms\"\n{rest}\n")
        };
        let text = text
            + &task("high", "priority = 2\ncost = \"5ms\"\nseparation_max = \"27ms\"")
            + &task(
                "low",
                "priority = 1\ncost = \"5ms\"\ndeadline = \"9ms\"\nseparation_max = \"29ms\"",
            );
        let system = talea_system::read(&text, "the test's own", &()).expect("a sound system");
        system.roots.into_iter().next().expect("a root")
    }

    #[test]
    fn a_run_above_the_limit_is_not_simulated_and_costs_nothing() {
        let (root, longest) = (root(), Span::from_ns(20_000_000));
        // Slightly more than 40 ms: two or three jobs of each of two tasks, and three nodes.
        let cost = estimated_events(&root, 40_000_000);
        assert_eq!(cost, 9);
        let mut left = cost - 1;
        assert!(
            attempt(&root, longest, Others::Together, 1, &mut left, &mut Progress::silent())
                .expect("a machine")
                .is_none()
        );
        assert_eq!(left, cost - 1);
        let mut left = cost + 5;
        let (misses, _) =
            attempt(&root, longest, Others::Together, 1, &mut left, &mut Progress::silent())
                .expect("a machine")
                .expect("a run");
        assert_eq!(left, 5);
        assert!(misses[0].is_none() && misses[1].is_some_and(|miss| miss.late_ns == 1_000_000));
    }

    #[test]
    fn a_task_that_needs_its_whole_share_leaves_the_others_theirs() {
        let root = root();
        // More than a million jobs for the first task, which can never be late: none of them is
        // tried.
        let late = [(0, Span::from_ns(30_000_000_000_000)), (1, Span::from_ns(20_000_000))];
        let MissSearch { found, too_long } =
            search(&root, &late, &[false; 2], 1, &mut Progress::silent()).expect("machines");
        assert_eq!(too_long, [0]);
        assert_eq!(found.iter().map(|&(task, _)| task).collect::<Vec<_>>(), [1]);
    }

    /// Returns a task with utilization 1, and a task of lower priority that is due at 20 ms.
    fn starved() -> Root {
        let text = "duration = \"1s\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n\
                    [[task]]\nname = \"hog\"\npriority = 9\nperiod = \"10ms\"\ncost = \"10ms\"\n\
                    [[task]]\nname = \"low\"\npriority = 1\nperiod = \"20ms\"\ncost = \"5ms\"\n";
        let system = talea_system::read(text, "the test's own", &()).expect("a sound system");
        system.roots.into_iter().next().expect("a root")
    }

    #[test]
    fn a_job_that_never_ends_is_late_as_soon_as_its_deadline_has_passed() {
        let root = starved();
        let due = Span::from_ns(20_000_000);
        let misses = |root: &Root, until| misses(root, until, 1, &mut Progress::silent());
        let at_its_end = misses(&root, due).expect("a machine");
        assert!(at_its_end.iter().all(Option::is_none), "due as the run ends");
        let after = misses(&root, due + Span::from_ns(1)).expect("a machine");
        assert!(after[0].is_none());
        let miss = after[1].expect("late");
        assert_eq!((miss.job, miss.end_ns, miss.late_ns), (0, None, 1));
        assert!(
            miss.to_string().ends_with("released at 0ns, has not ended at 20ms, 1ns late"),
            "{miss}"
        );
        // An endless job is not due.
        let mut endless = root;
        endless.sources[1].cost =
            talea_core::workload::Cost::Constant(talea_core::workload::ENDLESS_COST);
        assert!(endless.sources[1].is_endless());
        assert!(misses(&endless, due + due).expect("a machine").iter().all(Option::is_none));
    }

    #[test]
    fn a_long_run_reports_progress_with_the_same_result() {
        let said = Rc::new(std::cell::RefCell::new(Vec::new()));
        let lines = Rc::clone(&said);
        let mut progress =
            Progress::immediate(move |what| lines.borrow_mut().push(what.to_string()));
        // 100 jobs per second.
        let long = Span::from_ns(3 * JOBS_PER_CHUNK * 10_000_000);
        let misses = misses(&starved(), long, 1, &mut progress).expect("a machine");
        let late = misses[1].expect("late").late_ns;
        assert_eq!(
            late,
            long.as_ns() - 20_000_000,
            "from the first deadline to the end of the run"
        );
        let said = said.borrow();
        assert!(said.len() > 3 && said[0] == "cpu: 0ns of 3000s simulated", "{said:?}");
    }

    #[test]
    fn a_late_job_of_a_proved_task_is_a_defect() {
        let late = [(1, Span::from_ns(20_000_000))];
        let search = |proved| search(&root(), &late, proved, 1, &mut Progress::silent());
        assert!(search(&[true, false]).is_ok());
        let said = search(&[true, true]).err().expect("it is late").to_string();
        assert!(said.contains("low is proved") && said.contains("contradict each other"), "{said}");
    }
}
