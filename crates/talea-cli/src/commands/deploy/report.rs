//! Report of a plan, as JSON and as text.

use super::actions::Action;
use super::missing::Missing;
use serde::Serialize;
use std::fmt::Write;
use talea_deploy::Difference;
use talea_study::analysis::AnalysisReport;
use talea_study::exit::Exit;
use talea_study::output::{Tone, count, paint};

/// Result of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// Every deadline is proved.
    Fits,
    /// Not every deadline is proved, and `--unproved` admits that.
    Unproved,
    /// A job is known to be late.
    DoesNotFit,
    /// Not every deadline is proved.
    NotProved,
    /// This computer cannot give what the system needs.
    CannotBeGiven,
}

impl Outcome {
    pub(super) fn exit(self) -> Exit {
        match self {
            Outcome::Fits | Outcome::Unproved => Exit::Ok,
            Outcome::DoesNotFit => Exit::Failure,
            Outcome::NotProved | Outcome::CannotBeGiven => Exit::Refused,
        }
    }

    fn text(self) -> (&'static str, Tone) {
        match self {
            Outcome::Fits => ("fits: every deadline is proved", Tone::Good),
            Outcome::Unproved => {
                ("admitted without a proof, because of --unproved", Tone::Doubtful)
            }
            Outcome::DoesNotFit => {
                ("does not fit; --witness FILE writes the arrivals of the late job", Tone::Bad)
            }
            Outcome::NotProved => {
                ("refused: not every deadline is proved; --unproved admits that", Tone::Bad)
            }
            Outcome::CannotBeGiven => {
                ("refused: this computer cannot give what the system needs", Tone::Bad)
            }
        }
    }
}

/// Root of a plan.
#[derive(Serialize)]
pub(super) struct RootJson {
    pub(super) name: String,
    /// CPUs of this computer.
    pub(super) cpus: String,
    pub(super) mechanism: String,
    pub(super) mechanism_why: String,
}

/// Tasks by what the change of the generation does to them.
#[derive(Serialize)]
pub(super) struct DifferenceJson {
    pub(super) new: Vec<String>,
    pub(super) restarted: Vec<String>,
    pub(super) adjusted: Vec<String>,
    pub(super) unchanged: Vec<String>,
    pub(super) removed: Vec<String>,
}

impl DifferenceJson {
    /// Whether an apply would do nothing.
    pub(super) fn is_empty(&self) -> bool {
        let changed = [&self.new, &self.restarted, &self.adjusted, &self.removed];
        changed.into_iter().all(Vec::is_empty)
    }
}

impl From<Difference> for DifferenceJson {
    fn from(from: Difference) -> DifferenceJson {
        let Difference { new, restarted, adjusted, unchanged, removed } = from;
        DifferenceJson { new, restarted, adjusted, unchanged, removed }
    }
}

#[derive(Serialize)]
pub(super) struct PlanReport {
    pub(super) file: String,
    /// SHA-256 of the file and of all included ones.
    pub(super) sha256: String,
    /// Number of the generation in force; `None` without one.
    pub(super) in_force: Option<u64>,
    pub(super) difference: DifferenceJson,
    pub(super) outcome: Outcome,
    pub(super) analysis: AnalysisReport,
    pub(super) roots: Vec<RootJson>,
    pub(super) actions: Vec<Action>,
    pub(super) missing: Vec<Missing>,
}

/// Returns the report as text for a terminal.
pub(super) fn text(plan: &PlanReport, color: bool) -> String {
    let mut out = String::new();
    // Writing to a String can't fail.
    let _ = writeln!(out, "{}, SHA-256 {}", plan.file, &plan.sha256[..16]);
    difference_text(&mut out, plan.in_force, &plan.difference);
    let _ = writeln!(out);
    out.push_str(&plan.analysis.text(color));
    let _ = writeln!(out, "\n{}", paint("what apply would do", Tone::Strong, color));
    for root in &plan.roots {
        let RootJson { name, cpus, mechanism, mechanism_why } = root;
        let _ = writeln!(out, "{name} on CPU {cpus}: mechanism {mechanism}: {mechanism_why}");
    }
    for action in &plan.actions {
        let _ = writeln!(out, "- {action}");
    }
    if !plan.missing.is_empty() {
        let _ = writeln!(out, "\n{}", paint("what this computer cannot give", Tone::Strong, color));
        for Missing { of, why, remedy } in &plan.missing {
            let _ = writeln!(out, "- {of}: {why}\n  remedy: {remedy}");
        }
    }
    let (verdict, tone) = plan.outcome.text();
    let _ = writeln!(out, "\n{}", paint(verdict, tone, color));
    out
}

/// Writes what differs from the generation in force.
pub(super) fn difference_text(
    out: &mut String,
    in_force: Option<u64>,
    difference: &DifferenceJson,
) {
    let _ = match in_force {
        None => writeln!(out, "no generation is in force"),
        Some(number) => writeln!(out, "generation {number} is in force"),
    };
    let parts = [
        (&difference.new, "new"),
        (&difference.restarted, "restarted"),
        (&difference.adjusted, "adjusted"),
        (&difference.unchanged, "unchanged"),
        (&difference.removed, "removed"),
    ];
    for (tasks, word) in parts.into_iter().filter(|(tasks, _)| !tasks.is_empty()) {
        let _ = writeln!(out, "{} {word}: {}", count(tasks.len(), "task"), tasks.join(", "));
    }
}
