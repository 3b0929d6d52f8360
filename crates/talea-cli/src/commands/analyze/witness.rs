//! A job that comes too late: what a bound beyond a deadline may be about.
//!
//! The simulator runs the root as it is described, all costs at their worst. What it misses is
//! missed; what it does not miss says nothing, since another run may: then arrivals are looked for
//! that the description allows, too, as long as it says nothing of phases, or where the bound is
//! exact, which is a response from the phases that it gives. A job that has not ended when a run
//! does, and was due before, is late as well.

use super::Progress;
use crate::commands::simulate::short;
use crate::witness::{Late, Witness};
use serde::Serialize;
use std::fmt;
use std::rc::Rc;
use talea_core::machine::{Body, LONGEST, Machine, Node, TaskId, Tree};
use talea_core::mutate;
use talea_core::sched::Policy;
use talea_core::workload::{Arrivals, Case, Source};
use talea_core::{Span, Time};
use talea_sim::{Completion, Sink, World};
use talea_system::system::Root;
use talea_system::system::what_if::Change;

/// A late job.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Miss {
    /// Whether it comes as the system is described; else the arrivals were searched for, and a
    /// witness file has them.
    as_described: bool,
    /// From 0.
    job: u64,
    release_ns: u64,
    deadline_ns: u64,
    /// None: it has not ended when the run does.
    end_ns: Option<u64>,
    /// From its deadline to its end, or to that of the run.
    late_ns: u64,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.as_described { "" } else { " and arrivals that were looked for" };
        let (job, release, late) = (self.job, short(self.release_ns), short(self.late_ns));
        write!(
            f,
            "simulated with all costs at their worst{how}, job {job}, released at {release}, "
        )?;
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

/// The first late job of each task.
struct First {
    found: Vec<Option<Miss>>,
    as_described: bool,
}

impl Sink for First {
    fn completed(&mut self, job: &Completion) {
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

impl First {
    /// Of tasks of which no job has ended late: one that was due before the run's end and has not
    /// ended at all. What is without end is never due.
    fn unfinished(&mut self, root: &Root, machine: &Machine, until: Time) {
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

/// Of each task the first job that is late within `duration`.
pub(super) fn misses(
    root: &Root,
    duration: Span,
    seed: u64,
    progress: &mut Progress,
) -> anyhow::Result<Vec<Option<Miss>>> {
    run(root, duration, seed, true, progress)
}

/// So many jobs are simulated between two looks at the clock.
const PIECE: u64 = 100_000;

fn run(
    root: &Root,
    duration: Span,
    seed: u64,
    as_described: bool,
    progress: &mut Progress,
) -> anyhow::Result<Vec<Option<Miss>>> {
    let machine =
        root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.why))?;
    let world = World::new(machine, root.tree.cpus, &root.workload(seed));
    let mut first = First { found: vec![None; root.tasks.len()], as_described };
    let mut world = world.with_case(Case::Worst).within(&root.surroundings);
    let until = Time::ZERO + duration;
    let piece = duration.as_ns() / (jobs(root, duration.as_ns()) / PIECE + 1) + 1;
    while world.now() < until {
        progress.simulated(&root.name, world.now().since(Time::ZERO), duration);
        world.run(until.min(world.now() + Span::from_ns(piece)), &mut first);
    }
    first.unfinished(root, world.machine(), until);
    Ok(first.found)
}

/// A late job with the root in which it is late: as described, or with other arrivals.
pub(super) struct Found {
    pub(super) miss: Miss,
    /// Many may be late in one.
    pub(super) root: Rc<Root>,
    pub(super) seed: u64,
}

impl Found {
    /// As a file has it.
    pub(super) fn witness(
        &self,
        file: &str,
        what_if: &[Change],
        task: usize,
    ) -> anyhow::Result<Witness> {
        let Miss { job, release_ns, deadline_ns, end_ns, as_described: _, late_ns: _ } = self.miss;
        let late =
            Late { task: self.root.tasks[task].clone(), job, release_ns, deadline_ns, end_ns };
        Witness::of(file, what_if, &self.root, self.seed, late)
    }
}

/// Whether the file says at which phases jobs come: then no others are tried. A table is made for
/// them.
pub(super) fn has_phases(root: &Root) -> bool {
    let is_table = |body: &Body| matches!(body, Body::Scheduler(of) if matches!(of.policy, Policy::Table { .. }));
    root.tree.get(Tree::ROOT).is_some_and(|node| is_table(&node.body))
        || root.sources.iter().any(|source| match &source.arrivals {
            Arrivals::Periodic { offset, .. } | Arrivals::Sporadic { offset, .. } => {
                !offset.is_zero()
            }
            Arrivals::List(_) | Arrivals::Seen(_) => false,
        })
}

/// So many arrivals are tried for a task.
const TRIES: usize = 200;
/// So much is simulated for all tasks of a root together: less than a second.
const JOBS: u64 = 1_000_000;

/// What is proved is never late, whatever is simulated: else neither is to be believed.
pub(super) fn hold(root: &Root, proved: &[bool], misses: &[Option<Miss>]) -> anyhow::Result<()> {
    let mut all = root.tasks.iter().zip(proved).zip(misses);
    match all
        .find_map(|((task, &is_proved), miss)| miss.filter(|_| is_proved).map(|miss| (task, miss)))
    {
        None => Ok(()),
        Some((task, miss)) => Err(anyhow::anyhow!(
            "{task} is proved to meet its deadline, and yet: {miss}. Analysis and simulator can't both be right, which is a defect of \
             this program: please report it, with the file"
        )),
    }
}

/// What a search has found.
pub(super) struct Search {
    /// Tasks with a late job.
    pub(super) found: Vec<(usize, Found)>,
    /// Of these nothing but everything at once was tried, if that: the rest would take too long.
    pub(super) too_long: Vec<usize>,
}

/// So long a run as described has as much in it as a search may take, if that is longer than its
/// file says: where more is asked for than there is, somebody gets later and later.
pub(super) fn long_run(root: &Root, duration: Span) -> Option<Span> {
    let within = jobs(root, duration.as_ns()).max(1);
    let longer = u128::from(duration.as_ns()) * u128::from(JOBS) / u128::from(within);
    let longer = Span::from_ns(u64::try_from(longer).unwrap_or(u64::MAX).min(LONGEST.as_ns()));
    (longer > duration).then_some(longer)
}

/// Looks for arrivals with which a job of one of `late` is late, which are tasks and how long a
/// response of theirs may take: everything at once and then as often as it may come, jitter first
/// at its most and then at its least; a task itself at once with the others, or so that a deadline
/// of its is one of another's (the phases of M. Spuri, INRIA RR-2772, 1996). Where the file says at
/// which phases jobs come, each task keeps its own, and the first job is as late as it may be.
/// Everything at once is one run for all of them; of what is left to be simulated then each has the
/// same share. Those that are `proved` must not be late in any of it.
pub(super) fn search(
    root: &Root,
    late: &[(usize, Span)],
    proved: &[bool],
    seed: u64,
    progress: &mut Progress,
) -> anyhow::Result<Search> {
    let (mut found, mut too_long) = (Vec::new(), Vec::new());
    let Some(longest) = late.iter().map(|&(_, longest)| longest).max() else {
        return Ok(Search { found, too_long });
    };
    let mut left = JOBS;
    let mut open = late.to_vec();
    // One that would take too long with the longest response is tried with each task's own below.
    if let Some((misses, changed)) = attempt(root, longest, None, seed, &mut left, progress)? {
        hold(root, proved, &misses)?;
        open.retain(|&(task, _)| {
            let miss =
                misses[task].map(|miss| (task, Found { miss, root: Rc::clone(&changed), seed }));
            let stays = miss.is_none();
            found.extend(miss);
            stays
        });
    }
    for (done, &(task, longest)) in open.iter().enumerate() {
        progress.tried(&root.tasks[task]);
        let mut share = left / (open.len() - done) as u64;
        left -= share;
        let is_bound = has_phases(root) && first(&root.sources[task]).is_some();
        let takes_too_long = jobs(root, longest.as_ns().saturating_mul(2)) > share;
        if takes_too_long && !is_bound {
            too_long.push(task);
        }
        if !is_bound && !takes_too_long {
            for phase in phases(root, task, longest) {
                let later = Some((task, phase));
                let tried = attempt(root, longest, later, seed, &mut share, progress)?;
                let Some((misses, root)) = tried else { break };
                hold(&root, proved, &misses)?;
                if let Some(miss) = misses[task] {
                    found.push((task, Found { miss, root, seed }));
                    break;
                }
            }
        }
        left += share;
    }
    Ok(Search { found, too_long })
}

type Attempt = (Vec<Option<Miss>>, Rc<Root>);

/// One run with everything at once, but for a task that comes later; `None` where that is more than
/// is `left` to be simulated.
fn attempt(
    root: &Root,
    longest: Span,
    later: Option<(usize, u64)>,
    seed: u64,
    left: &mut u64,
    progress: &mut Progress,
) -> anyhow::Result<Option<Attempt>> {
    let own = |source: &Source| if has_phases(root) { first(source) } else { None };
    let begins = root.sources.iter().map(|source| own(source).unwrap_or(jitter(source).as_ns()));
    let most = begins.max().unwrap_or(0);
    let phase = later.map_or(0, |(_, phase)| phase);
    let until = most.saturating_add(phase).saturating_add(longest.as_ns().saturating_mul(2));
    let begin = |(at, source): (usize, &Source)| {
        let delay = later.filter(|&(task, _)| task == at).map_or(0, |(_, phase)| phase);
        own(source).unwrap_or(most.saturating_add(delay))
    };
    let begins: Vec<u64> = root.sources.iter().enumerate().map(begin).collect();
    let earliest = begins.iter().min().copied().unwrap_or(0);
    let Some(rest) = mutate!(
        "analyze-witness-limit",
        left.checked_sub(jobs(root, until.saturating_sub(earliest))),
        Some(left.saturating_sub(earliest))
    ) else {
        return Ok(None);
    };
    *left = rest;
    let mut changed = root.clone();
    for (source, begin) in changed.sources.iter_mut().zip(begins) {
        together(source, begin, until);
    }
    let misses = run(&changed, Span::from_ns(until), seed, false, progress)?;
    Ok(Some((misses, Rc::new(changed))))
}

/// About how much happens until then: jobs, slots, refills and quanta; building the machine takes
/// about one for each node.
fn jobs(root: &Root, until: u64) -> u64 {
    let of = |source: &Source| distance(source).map_or(1, |distance| until / distance.max(1) + 1);
    let jobs =
        root.sources.iter().map(of).fold(root.tree.nodes().count() as u64, u64::saturating_add);
    let of = |node: &Node| match &node.body {
        Body::Task(_) => 0,
        Body::Scheduler(spec) => {
            let every =
                |every: u64, count: usize| (until / every.max(1)).saturating_mul(count as u64);
            let turns = match &spec.policy {
                Policy::RoundRobin { quantum } => every(quantum.as_ns(), 1),
                Policy::Partitions { frame, slots, .. } => every(frame.as_ns(), slots.len()),
                Policy::Table { hyperperiod, entries } => every(hyperperiod.as_ns(), entries.len()),
                _ => 0,
            };
            turns.saturating_add(spec.reservation.map_or(0, |of| every(of.period.as_ns(), 1)))
        }
    };
    root.tree.nodes().map(|(_, node)| of(node)).fold(jobs, u64::saturating_add)
}

/// When the first job is seen at the latest, of a source that has a say in that.
fn first(source: &Source) -> Option<u64> {
    match source.arrivals {
        Arrivals::Periodic { offset, jitter, .. } => {
            Some(offset.as_ns().saturating_add(jitter.as_ns()))
        }
        Arrivals::Sporadic { offset, slack: Span::ZERO, .. } => Some(offset.as_ns()),
        _ => None,
    }
}

fn jitter(source: &Source) -> Span {
    match source.arrivals {
        Arrivals::Periodic { jitter, .. } => jitter,
        _ => Span::ZERO,
    }
}

fn distance(source: &Source) -> Option<u64> {
    match source.arrivals {
        Arrivals::Periodic { period, .. } => Some(period.as_ns()),
        Arrivals::Sporadic { separation, .. } => Some(separation.as_ns()),
        Arrivals::List(_) | Arrivals::Seen(_) => None,
    }
}

/// As dense as can be from `at` on, where a job that has waited for as long as its jitter is seen.
fn together(source: &mut Source, at: u64, until: u64) {
    let Some(distance) = distance(source) else { return };
    let first = at - jitter(source).as_ns().min(at);
    let times =
        (0..).map(|job: u64| first + job * distance.max(1)).take_while(|&nominal| nominal < until);
    let seen = times.map(|nominal| (Time::from_ns(nominal), Time::from_ns(nominal.max(at))));
    source.arrivals = Arrivals::Seen(seen.collect());
}

/// When the task comes after everybody else.
fn phases(root: &Root, number: usize, longest: Span) -> Vec<u64> {
    let mut found = vec![0];
    let specs: Vec<_> = (root.tree.nodes())
        .filter_map(|(_, node)| match &node.body {
            Body::Task(spec) => Some(spec),
            Body::Scheduler(_) => None,
        })
        .collect();
    let own = (specs[number].deadline.as_ns(), jitter(&root.sources[number]).as_ns());
    for (at, spec) in specs.iter().enumerate().filter(|&(at, _)| at != number) {
        let Some(period) = distance(&root.sources[at]).filter(|&period| period > 0) else {
            continue;
        };
        let early = jitter(&root.sources[at]).as_ns();
        for job in 0..TRIES as u64 {
            // The other's nominal arrival, and its deadline, are the task's own; or just before,
            // where ties go to the task.
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
    found.truncate(TRIES);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One after the other within 9 ms, and nobody says when they come.
    fn root() -> Root {
        let text = "duration = \"1s\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n".to_owned();
        let task = |name: &str, rest: &str| {
            format!("[[task]]\nname = \"{name}\"\nperiod = \"20ms\"\n{rest}\n")
        };
        let text = text
            + &task("high", "priority = 2\ncost = \"5ms\"\nslack = \"7ms\"")
            + &task("low", "priority = 1\ncost = \"5ms\"\ndeadline = \"9ms\"\nslack = \"9ms\"");
        let system =
            talea_system::system::read(&text, "the test's own", &()).expect("a sound system");
        system.roots.into_iter().next().expect("a root")
    }

    #[test]
    fn what_would_take_too_long_is_not_simulated_and_costs_nothing() {
        let (root, longest) = (root(), Span::from_ns(20_000_000));
        // 40 ms and a moment: two or three jobs of each of two tasks, and three nodes.
        let cost = jobs(&root, 40_000_000);
        assert_eq!(cost, 9);
        let mut left = cost - 1;
        assert!(
            attempt(&root, longest, None, 1, &mut left, &mut Progress::quiet())
                .expect("a machine")
                .is_none()
        );
        assert_eq!(left, cost - 1);
        let mut left = cost + 5;
        let (misses, _) = attempt(&root, longest, None, 1, &mut left, &mut Progress::quiet())
            .expect("a machine")
            .expect("a run");
        assert_eq!(left, 5);
        assert!(misses[0].is_none() && misses[1].is_some_and(|miss| miss.late_ns == 1_000_000));
    }

    #[test]
    fn a_task_that_takes_its_whole_share_leaves_the_others_theirs() {
        let root = root();
        // More than a million jobs for the first, which can never be late: nothing of it is tried.
        let late = [(0, Span::from_ns(30_000_000_000_000)), (1, Span::from_ns(20_000_000))];
        let Search { found, too_long } =
            search(&root, &late, &[false; 2], 1, &mut Progress::quiet()).expect("machines");
        assert_eq!(too_long, [0]);
        assert_eq!(found.iter().map(|&(task, _)| task).collect::<Vec<_>>(), [1]);
    }

    /// A task that takes all, and one below it that is due at 20 ms.
    fn starved() -> Root {
        let text = "duration = \"1s\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n\
                    [[task]]\nname = \"hog\"\npriority = 9\nperiod = \"10ms\"\ncost = \"10ms\"\n\
                    [[task]]\nname = \"low\"\npriority = 1\nperiod = \"20ms\"\ncost = \"5ms\"\n";
        let system =
            talea_system::system::read(text, "the test's own", &()).expect("a sound system");
        system.roots.into_iter().next().expect("a root")
    }

    #[test]
    fn a_job_that_never_ends_is_late_as_soon_as_its_deadline_has_passed() {
        let root = starved();
        let due = Span::from_ns(20_000_000);
        let misses = |root: &Root, until| misses(root, until, 1, &mut Progress::quiet());
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
        // What is wanted without end is not due.
        let mut endless = root;
        endless.sources[1].cost =
            talea_core::workload::Cost::Constant(talea_core::workload::ENDLESS);
        assert!(endless.sources[1].is_endless());
        assert!(misses(&endless, due + due).expect("a machine").iter().all(Option::is_none));
    }

    #[test]
    fn a_long_run_says_how_far_it_is_and_ends_as_it_would_in_one_piece() {
        let said = Rc::new(std::cell::RefCell::new(Vec::new()));
        let heard = Rc::clone(&said);
        let mut progress = Progress::eager(move |what| heard.borrow_mut().push(what.to_string()));
        // 100 jobs in a second of it.
        let long = Span::from_ns(3 * PIECE * 10_000_000);
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
    fn what_is_called_proved_and_is_late_is_a_defect_and_no_answer() {
        let late = [(1, Span::from_ns(20_000_000))];
        let search = |proved| search(&root(), &late, proved, 1, &mut Progress::quiet());
        assert!(search(&[true, false]).is_ok());
        let said = search(&[true, true]).err().expect("it is late").to_string();
        assert!(said.contains("low is proved") && said.contains("can't both be right"), "{said}");
    }
}
