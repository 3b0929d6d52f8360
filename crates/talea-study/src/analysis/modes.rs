//! Analysis of a system with modes: each mode, and each transition from one mode to another.

use super::chains::ChainAnalysis;
use super::model::model_of;
use super::names::name_of;
use super::report::{AnalysisReport, RootAnalysis};
use super::verdict::Verdict;
use super::{Analysis, Progress, analyze_with};
use crate::output::{Table, Tone, paint};
use crate::run_summary::short_bound;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use talea_analysis::tree::TaskBound;
use talea_analysis::tree::transition::switch_bound;
use talea_core::mutate;
use talea_system::what_if::Change;
use talea_system::{Mode, Root, System};

/// Report about all modes of a system and the transitions between them.
#[derive(Serialize)]
pub struct ModesReport {
    file: String,
    what_if: Vec<String>,
    proved: bool,
    modes: Vec<ModeAnalysis>,
    transitions: Vec<Transition>,
}

/// Analysis of one mode.
#[derive(Serialize)]
struct ModeAnalysis {
    name: String,
    initial: bool,
    fallback: bool,
    proved: bool,
    roots: Vec<RootAnalysis>,
    chains: Vec<ChainAnalysis>,
    /// Text of the analysis.
    #[serde(skip)]
    text: [String; 2],
}

/// Transition from one mode to another.
#[derive(Serialize)]
struct Transition {
    from: String,
    to: String,
    verdict: Verdict,
    roots: Vec<RootTransition>,
}

/// Transition of one root.
#[derive(Serialize)]
struct RootTransition {
    root: String,
    /// Instant of the switch: `end of frame` or `idle instant`.
    switch_at: &'static str,
    /// Longest time from the request to the switch.
    delay_ns: u64,
    verdict: Verdict,
    /// Reason why the transition is not proved.
    why: Option<String>,
    tasks: Vec<TaskTransition>,
}

/// Response of a task across a transition.
#[derive(Serialize)]
struct TaskTransition {
    name: String,
    /// Modes in which the task runs: `old`, `new` or `both`.
    runs_in: &'static str,
    /// Longest response of a job that arrives before or after the switch.
    bound_ns: Option<u64>,
}

/// Mode with the bounds of its roots.
struct Analysed<'a> {
    mode: &'a Mode,
    bounds: Vec<Vec<TaskBound>>,
    proved: bool,
}

impl ModesReport {
    /// Analyses the modes of a system that was read from `file`, each changed by `what_if`.
    ///
    /// # Errors
    /// If a simulation for a witness cannot be made, or contradicts a proof.
    pub fn of(file: &Path, what_if: &[Change], system: &System) -> anyhow::Result<ModesReport> {
        let mut progress = Progress::new();
        let (mut modes, mut analysed) = (Vec::new(), Vec::new());
        for mode in &system.modes {
            let Analysis { report, bounds, .. } =
                analyze_with(file, Vec::new(), &mode.system, &mut progress)?;
            let text = [false, true].map(|color| report.text(color));
            let AnalysisReport { proved, roots, chains, .. } = report;
            analysed.push(Analysed { mode, bounds, proved });
            modes.push(ModeAnalysis {
                name: mode.name.clone(),
                initial: mode.initial,
                fallback: mode.fallback,
                proved,
                roots,
                chains,
                text,
            });
        }
        let mut transitions = Vec::new();
        for old in &analysed {
            let others = analysed.iter().filter(|new| new.mode.name != old.mode.name);
            transitions.extend(others.map(|new| transition(old, new)));
        }
        let is_proved = |of: &Transition| of.verdict == Verdict::Proved;
        Ok(ModesReport {
            file: file.display().to_string(),
            what_if: what_if.iter().map(ToString::to_string).collect(),
            proved: modes.iter().all(|mode| mode.proved) && transitions.iter().all(is_proved),
            modes,
            transitions,
        })
    }

    /// Whether every deadline is proved, in every mode and across every transition.
    pub fn is_proved(&self) -> bool {
        self.proved
    }

    /// Returns the report as text for a terminal.
    pub fn text(&self, color: bool) -> String {
        let mut out = String::new();
        // Writing to a String can't fail.
        for change in &self.what_if {
            let _ = writeln!(out, "what if {change}");
        }
        for mode in &self.modes {
            let roles = match (mode.initial, mode.fallback) {
                (true, true) => " (initial, fallback)",
                (true, false) => " (initial)",
                (false, true) => " (fallback)",
                (false, false) => "",
            };
            let _ = writeln!(out, "mode {}{roles}", mode.name);
            out.push_str(&mode.text[usize::from(color)]);
        }
        let mut table =
            Table::new("from | to | root | switch at | >delay | task | runs in | >bound | verdict");
        let mut reasons = String::new();
        for of in &self.transitions {
            for root in &of.roots {
                let (word, tone) = root.verdict.word();
                let mut first = vec![
                    of.from.clone(),
                    of.to.clone(),
                    root.root.clone(),
                    root.switch_at.to_owned(),
                    short_bound(root.delay_ns),
                ];
                for task in &root.tasks {
                    let mut row = std::mem::replace(&mut first, vec![String::new(); 5]);
                    let bound = task.bound_ns.map_or_else(|| "-".to_owned(), short_bound);
                    row.extend([task.name.clone(), task.runs_in.into(), bound, word.to_owned()]);
                    table.row(row);
                }
                if let Some(why) = &root.why {
                    let word = paint(word, tone, color);
                    let _ =
                        writeln!(reasons, "{word}: {} to {}: {}: {why}", of.from, of.to, root.root);
                }
            }
        }
        let open = self.transitions.iter().filter(|of| of.verdict != Verdict::Proved).count();
        let outcome = match open {
            0 => paint("every deadline is met across each", Tone::Good, color),
            open => paint(&format!("{open} not proved"), Tone::Bad, color),
        };
        let _ = writeln!(out, "transitions: {outcome}");
        out.push_str(&table.render());
        out.push_str(&reasons);
        out
    }
}

fn transition(old: &Analysed<'_>, new: &Analysed<'_>) -> Transition {
    let mut chains = old.mode.system.chains.iter().chain(&new.mode.system.chains);
    let required = chains.find(|of| of.reaction.is_some() || of.age.is_some());
    let roots: Vec<RootTransition> = (0..old.bounds.len())
        .map(|at| {
            let mut root = root_transition(old, new, at);
            if let (Some(chain), None) = (required, &root.why) {
                root.verdict = Verdict::Unknown;
                root.why = Some(format!("no latency across a switch is known: {}", chain.name));
            }
            root
        })
        .collect();
    let is_proved = roots.iter().all(|root| root.verdict == Verdict::Proved);
    Transition {
        from: old.mode.name.clone(),
        to: new.mode.name.clone(),
        verdict: if is_proved { Verdict::Proved } else { Verdict::Unknown },
        roots,
    }
}

/// Returns the transition of root `at`. All modes have the same roots in the same order.
fn root_transition(old: &Analysed<'_>, new: &Analysed<'_>, at: usize) -> RootTransition {
    let root = &old.mode.system.roots[at];
    let switch = switch_bound(&model_of(root), &old.bounds[at]);
    let is_clean = switch.is_clean.is_ok();
    let is_met = old.proved && new.proved;
    let why = match &switch.is_clean {
        Err(no) => Some(format!("{}: {}", name_of(&root.tree, no.node), no.why)),
        Ok(()) if !is_met => Some("a deadline of one of the modes is not proved".to_owned()),
        Ok(()) => None,
    };
    let verdict = mutate!("analyze-transition", why.is_none(), is_met);
    RootTransition {
        root: root.name.clone(),
        switch_at: switch.rule.major_frame().map_or("idle instant", |_| "end of frame"),
        delay_ns: switch.delay.as_ns(),
        verdict: if verdict { Verdict::Proved } else { Verdict::Unknown },
        why,
        tasks: task_transitions(
            [(root, &old.bounds[at]), (&new.mode.system.roots[at], &new.bounds[at])],
            is_clean,
        ),
    }
}

/// Returns the tasks of both modes. If no job is pending at a switch, each keeps its bounds.
fn task_transitions(
    [(old, old_bounds), (new, new_bounds)]: [(&Root, &Vec<TaskBound>); 2],
    is_clean: bool,
) -> Vec<TaskTransition> {
    let ns = |bound: &TaskBound| {
        bound.bound.as_ref().ok().map(|bound| bound.as_ns()).filter(|_| is_clean)
    };
    let place = |of: &Root, name: &str| of.tasks.iter().position(|task| task == name);
    let of_old = old.tasks.iter().zip(old_bounds).map(|(name, bound)| {
        let (runs_in, bound_ns) = match place(new, name) {
            None => ("old", ns(bound)),
            Some(at) => {
                let both = ns(bound).zip(ns(&new_bounds[at]));
                (
                    "both",
                    both.map(|(old, new)| mutate!("analyze-transition-both", old.max(new), old)),
                )
            }
        };
        TaskTransition { name: name.clone(), runs_in, bound_ns }
    });
    let of_new = new.tasks.iter().zip(new_bounds).filter(|(name, _)| place(old, name).is_none());
    let of_new = of_new.map(|(name, bound)| TaskTransition {
        name: name.clone(),
        runs_in: "new",
        bound_ns: ns(bound),
    });
    of_old.chain(of_new).collect()
}
