//! Report of an analysis: verdicts of tasks and chains, as JSON and as text.

use super::chains::{self, ChainAnalysis};
use super::names::name_of;
use super::verdict::{Verdict, kind_name};
use super::witness::Miss;
use crate::output::{Table, Tone, count, paint};
use crate::run_summary::{short, short_bound};
use serde::Serialize;
use std::fmt::Write;
use talea_analysis::tree::{Reason, TaskBound};
use talea_core::engine::Tree;
use talea_core::{Span, mutate};

/// Report of an analysis.
#[derive(Serialize)]
pub struct AnalysisReport {
    pub(super) file: String,
    pub(super) what_if: Vec<String>,
    pub(super) proved: bool,
    pub(super) roots: Vec<RootAnalysis>,
    pub(super) chains: Vec<ChainAnalysis>,
}

#[derive(Serialize)]
pub(super) struct RootAnalysis {
    pub(super) name: String,
    pub(super) cpus: u32,
    pub(super) proved: bool,
    pub(super) tasks: Vec<TaskAnalysis>,
}

#[derive(Serialize)]
pub(super) struct TaskAnalysis {
    pub(super) name: String,
    /// Relative deadline; `None` for a job without an end.
    pub(super) deadline_ns: Option<u64>,
    pub(super) bound_ns: Option<u64>,
    /// Deadline minus bound.
    pub(super) slack_ns: Option<u64>,
    pub(super) verdict: Verdict,
    /// Name of the test that gives the bound; `None` if no test is known.
    pub(super) test: Option<&'static str>,
    pub(super) kind: Option<&'static str>,
    pub(super) paper: Option<&'static str>,
    /// Reason why the task is not proved; `None` if it is proved.
    pub(super) why: Option<String>,
    /// Change that would settle an unknown verdict; `None` for another verdict.
    pub(super) settled_by: Option<&'static str>,
    pub(super) witness: Option<Miss>,
}

impl TaskAnalysis {
    /// Creates the result of one task from its bound. Only an observed miss refutes the task,
    /// because an exact bound says how late a job *can* be, not that a job is late.
    pub(super) fn new(
        tree: &Tree,
        answer: &TaskBound,
        miss: Option<Miss>,
        name: &str,
    ) -> TaskAnalysis {
        let bound = answer.bound.as_ref().ok().copied();
        let verdict = match (&miss, answer.is_proved()) {
            _ if !answer.has_deadline() => Verdict::None,
            // If the task were proved, `check_consistency` would have failed.
            (Some(_), _) => Verdict::Refuted,
            (None, true) => Verdict::Proved,
            (None, false) if mutate!("analyze-exact", false, answer.bound.is_ok()) => {
                Verdict::Refuted
            }
            (None, false) => mutate!("analyze-refuted", Verdict::Unknown, Verdict::Proved),
        };
        let why = match &answer.bound {
            Ok(_) if answer.is_proved() => None,
            Ok(bound) => {
                let exactly = if answer.is_refuted() { "can be" } else { "may be up to" };
                Some(format!(
                    "a response {exactly} {bound}, {} after the deadline",
                    saturating_difference(*bound, answer.deadline)
                ))
            }
            Err(no) => {
                let at = if no.node == answer.node {
                    String::new()
                } else {
                    format!("{}: ", name_of(tree, no.node))
                };
                Some(format!("{at}{}", no.reason.text()))
            }
        };
        // A simulation that is longer refutes at most; it proves nothing about other arrivals.
        let settled_by = match &answer.bound {
            _ if verdict != Verdict::Unknown => None,
            Err(no) => Some(no.reason.settled_by()),
            Ok(_) if answer.is_refuted() => Some("arrivals that attain the bound, by `--witness`"),
            Ok(_) => Some(
                "an `offset` for each task if the phases are known, or smaller costs; a longer simulation can only refute",
            ),
        };
        let has = |span: u64| answer.has_deadline().then_some(span);
        let is_tested = match &answer.bound {
            Ok(_) => true,
            Err(no) => matches!(no.reason, Reason::Overload | Reason::Starved),
        };
        let test = is_tested.then_some(answer.test);
        TaskAnalysis {
            name: name.to_owned(),
            deadline_ns: has(answer.deadline.as_ns()),
            bound_ns: bound.map(Span::as_ns),
            slack_ns: bound.and_then(|bound| answer.deadline.checked_sub(bound)).map(Span::as_ns),
            verdict,
            test: test.map(|test| test.name),
            kind: test.map(|_| kind_name(answer.kind)),
            paper: test.map(|test| test.paper),
            why,
            settled_by,
            witness: miss,
        }
    }

    /// Whether the task has a deadline that is not proved.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.verdict, Verdict::Proved | Verdict::None)
    }
}

fn saturating_difference(a: Span, b: Span) -> Span {
    a.checked_sub(b).unwrap_or(Span::ZERO)
}

impl AnalysisReport {
    /// Whether every deadline and every latency of a chain is proved.
    pub fn is_proved(&self) -> bool {
        self.proved
    }

    /// Whether a job is known to be late.
    pub fn is_refuted(&self) -> bool {
        let mut tasks = self.roots.iter().flat_map(|root| &root.tasks);
        tasks.any(|task| task.verdict == Verdict::Refuted)
    }

    /// Returns the report as text for a terminal.
    pub fn text(&self, color: bool) -> String {
        text(self, color)
    }
}

fn text(answer: &AnalysisReport, color: bool) -> String {
    let mut out = String::new();
    // Writing to a String can't fail.
    for change in &answer.what_if {
        let _ = writeln!(out, "what if {change}");
    }
    for root in &answer.roots {
        let open = root.tasks.iter().filter(|task| task.is_open()).count();
        let outcome = match open {
            0 => paint("every deadline is met", Tone::Good, color),
            open => paint(&format!("{} not proved", count(open, "task")), Tone::Bad, color),
        };
        let _ = writeln!(out, "{} on {}: {outcome}", root.name, count(root.cpus as usize, "CPU"));
        let mut table = Table::new("task | >deadline | >bound | >slack | verdict | test | kind");
        let span = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), short);
        for task in &root.tasks {
            table.row(vec![
                task.name.clone(),
                span(task.deadline_ns),
                task.bound_ns.map_or_else(|| "-".to_owned(), short_bound),
                span(task.slack_ns),
                task.verdict.word().0.to_owned(),
                task.test.unwrap_or("-").to_owned(),
                task.kind.unwrap_or("-").to_owned(),
            ]);
        }
        out.push_str(&table.render());
        for task in &root.tasks {
            let Some(why) = &task.why else { continue };
            let (word, tone) = task.verdict.word();
            let _ = writeln!(out, "{}: {}: {why}", paint(word, tone, color), task.name);
            if let Some(miss) = &task.witness {
                let _ = writeln!(out, "  {miss}");
            }
            if let Some(settled_by) = task.settled_by {
                let _ = writeln!(out, "  to settle it: {settled_by}");
            }
        }
        let mut papers: Vec<(&str, &str)> =
            root.tasks.iter().filter_map(|task| Some((task.test?, task.paper?))).collect();
        papers.sort_unstable();
        papers.dedup();
        for (test, paper) in papers {
            let _ = writeln!(out, "{test}: {paper}");
        }
    }
    out.push_str(&chains::text(&answer.chains, color));
    out
}
