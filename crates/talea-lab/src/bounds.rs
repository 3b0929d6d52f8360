//! Bounds beside simulated responses. No response may exceed its bound. The ratio of the two is the
//! tightness of the bound.
//!
//! The bounds are those of [`talea_analysis::tree`]. Each system is simulated once, so that a bound
//! which no response reaches may still be exact. An incomplete job counts with its waiting time so
//! far.

use talea_analysis::tree::{RootModel, TaskBound};
use talea_core::engine::{NodeSpec, TaskId, Tree};
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_sim::{Counters, Simulation, Workload};
use talea_study::batch;
use talea_study::exit::Exit;
use talea_study::output::{self, Table, count};
use talea_study::run_summary::short;

/// System on one CPU, and the end of its simulation.
pub(super) struct Case {
    name: String,
    tree: Tree,
    workload: Workload,
    until: Time,
    /// Tasks with a printed row. The check covers the bounds of all tasks.
    shown: Vec<usize>,
}

impl Case {
    pub(super) fn new(name: String, tree: Tree, workload: Workload, until: Time) -> Case {
        let shown = (0..workload.sources.len()).collect();
        Case { name, tree, workload, until, shown }
    }

    /// Restricts the printed rows to these tasks.
    pub(super) fn showing(mut self, tasks: &[usize]) -> Case {
        self.shown = tasks.to_vec();
        self
    }
}

/// Bound and longest simulated response of one task.
pub(super) struct BoundRow {
    pub(super) name: String,
    answer: TaskBound,
    /// Reason why the task has no bound.
    why: Option<String>,
    /// Longest simulated response.
    pub(super) longest: Span,
}

impl BoundRow {
    pub(super) fn bound(&self) -> Option<Span> {
        self.answer.bound.as_ref().ok().copied()
    }

    pub(super) fn is_exceeded(&self) -> bool {
        mutate!(
            "lab-bounds-exceeded",
            self.bound().is_some_and(|bound| self.longest > bound),
            self.bound().is_some_and(|bound| self.longest > bound + bound)
        )
    }

    /// Returns the longest simulated response in thousandths of the bound. Returns `None` without a
    /// job or without a bound.
    fn tightness(&self) -> Option<u64> {
        let bound = self.bound().filter(|_| !self.longest.is_zero())?.as_ns().max(1);
        u64::try_from(u128::from(self.longest.as_ns()) * 1_000 / u128::from(bound)).ok()
    }
}

/// Returns the bounds and the longest responses of the tasks of a system.
pub(super) fn rows(case: &Case) -> Vec<BoundRow> {
    let answers = RootModel::new(&case.tree, &case.workload.sources).bounds();
    let longest = simulated(case);
    let name = |node| match case.tree.get(node).map(|node| &node.spec) {
        Some(NodeSpec::Task(spec)) => spec.name.clone(),
        Some(NodeSpec::Scheduler(spec)) => spec.name.clone(),
        None => String::new(),
    };
    let why = |answer: &TaskBound| {
        let no = answer.bound.as_ref().err()?;
        let at =
            if no.node == answer.node { String::new() } else { format!("{}: ", name(no.node)) };
        Some(format!("{at}{}", no.reason.text()))
    };
    let both = answers.into_iter().zip(longest);
    both.map(|(answer, longest)| BoundRow {
        name: name(answer.node),
        why: why(&answer),
        answer,
        longest,
    })
    .collect()
}

fn simulated(case: &Case) -> Vec<Span> {
    let engine = case.tree.build().expect("a sound system");
    let mut counters = Counters::new(case.workload.sources.len());
    let mut world = Simulation::new(engine, 1, &case.workload);
    world.run(case.until, &mut counters);
    let waited = |task: u32| {
        let jobs = world.engine().unfinished(TaskId(task));
        jobs.filter(|job| job.release <= case.until).map(|job| case.until.since(job.release)).max()
    };
    let longest = counters.tasks.iter().map(|task| task.worst);
    (0..).zip(longest).map(|(task, worst)| worst.max(waited(task).unwrap_or(Span::ZERO))).collect()
}

fn percent(thousandths: u64) -> String {
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

/// Prints the table. The exit code is a failure if a response exceeds its bound.
pub(super) fn report(what: &str, cases: &[Case]) -> anyhow::Result<Exit> {
    let found =
        batch::run(&format!("{what}: bounds and runs"), cases.len(), |number| rows(&cases[number]));
    let mut table =
        Table::new("SYSTEM | TASK | >DEADLINE | >BOUND | >SIMULATED | >TIGHTNESS | TEST");
    let (mut bounds, mut exceeded, mut tight) = (0, Vec::new(), Vec::new());
    for (case, rows) in cases.iter().zip(&found) {
        for (task, row) in rows.iter().enumerate() {
            bounds += usize::from(row.bound().is_some());
            tight.extend(row.tightness());
            if row.is_exceeded() {
                exceeded.push(format!("{}, {}", case.name, row.name));
            }
            if !case.shown.contains(&task) {
                continue;
            }
            table.row(vec![
                case.name.clone(),
                row.name.clone(),
                short(row.answer.deadline.as_ns()),
                row.bound().map_or_else(|| "-".to_owned(), |bound| short(bound.as_ns())),
                short(row.longest.as_ns()),
                row.tightness().map_or_else(|| "-".to_owned(), percent),
                row.why.clone().unwrap_or_else(|| row.answer.test.name.to_owned()),
            ]);
        }
    }
    output::print(&table.render())?;
    output::print(&summary(bounds, &tight, &exceeded))?;
    Ok(if exceeded.is_empty() { Exit::Ok } else { Exit::Failure })
}

fn summary(bounds: usize, tight: &[u64], exceeded: &[String]) -> String {
    let (least, most) = (tight.iter().min().copied(), tight.iter().max().copied());
    let range =
        format!("tightness {} to {}", percent(least.unwrap_or(0)), percent(most.unwrap_or(0)));
    if exceeded.is_empty() {
        return format!(
            "{}, none exceeded by a simulated response; {range}\n",
            count(bounds, "bound")
        );
    }
    let lines = exceeded
        .iter()
        .map(|who| format!("exceeded: {who}: a simulated response is longer than its bound\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_analysis::test_info::TestKind;
    use talea_core::engine::NodeId;

    #[test]
    fn a_response_beyond_its_bound_is_an_exceeded_bound_and_one_at_it_is_not() {
        let answer = TaskBound {
            node: NodeId(1),
            deadline: Span::from_ns(9),
            bound: Ok(Span::from_ns(8)),
            kind: TestKind::Sufficient,
            test: &talea_analysis::tree::INFO,
        };
        let row = |longest| BoundRow {
            name: "task".to_owned(),
            answer: answer.clone(),
            why: None,
            longest: Span::from_ns(longest),
        };
        assert_eq!([0, 8, 9].map(|longest| row(longest).is_exceeded()), [false, false, true]);
        assert_eq!(
            [0, 6, 8].map(|longest| row(longest).tightness()),
            [None, Some(750), Some(1_000)]
        );
        assert_eq!(
            summary(1, &[750], &[]),
            "1 bound, none exceeded by a simulated response; tightness 75.0 % to 75.0 %\n"
        );
        let said = summary(1, &[], &["base, A".to_owned()]);
        assert_eq!(said, "exceeded: base, A: a simulated response is longer than its bound\n");
    }

    #[test]
    fn a_job_that_never_ends_counts_with_the_time_that_it_has_waited() {
        use talea_core::Work;
        use talea_core::engine::{SchedulerSpec, TaskSpec};
        use talea_core::sched::PolicySpec;
        use talea_sim::Source;
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
        let mut workload = Workload::default();
        for (priority, cost) in [(2, 10), (1, 1)] {
            let mut spec = TaskSpec::new("task", Span::from_ns(10));
            spec.priority = priority;
            tree.task(Tree::ROOT, spec);
            workload.sources.push(Source::periodic(Span::from_ns(10), Work::from_ns(cost)));
        }
        let case = Case::new("starved".to_owned(), tree, workload, Time::from_ns(500));
        assert_eq!(rows(&case)[1].longest, Span::from_ns(500));
        assert_eq!(rows(&case)[1].bound(), None);
    }
}
