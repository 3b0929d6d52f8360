//! `--sensitivity`: how far each cost, all costs and each period can change while every deadline
//! remains proved.
//!
//! The module bisects the changes of `--what-if`, each time with the whole analysis. The tests of
//! trees are not proved sustainable as a whole (a catalogue entry says for which systems they are).
//! So the analysis accepts the value found and not the next one in the granularity, but it may
//! accept a value further out.

use super::args::AnalyzeArgs;
use super::model::model_of;
use super::names::name_of;
use super::progress::Progress;
use crate::exit::Exit;
use crate::output::{Table, note, print, print_json};
use crate::run_summary::short;
use serde::Serialize;
use std::fmt::Write;
use talea_core::engine::NodeSpec;
use talea_system::System;
use talea_system::what_if::Change;

/// Factor of one. Factors are integers in thousandths.
const FACTOR_ONE: u64 = 1_000;
/// Upper limit of the search.
const MAX_FACTOR: u64 = 1_000 * FACTOR_ONE;

#[derive(Serialize)]
struct SensitivityReport {
    file: String,
    what_if: Vec<String>,
    /// Whether all tasks are proved without changes.
    proved: bool,
    /// The largest factor on all costs at once, in thousandths.
    all_costs_thousandths: Option<u64>,
    tasks: Vec<TaskSensitivity>,
}

#[derive(Serialize)]
struct TaskSensitivity {
    name: String,
    cost_ns: u64,
    /// Largest factor on the task's cost, in thousandths; `None` if no cost is proved.
    cost_thousandths: Option<u64>,
    period_ns: u64,
    /// Smallest factor on the task's period, in thousandths.
    period_thousandths: Option<u64>,
}

/// Prints how far costs and periods can change while every deadline remains proved.
///
/// # Errors
/// If the result cannot be written.
pub fn show(args: &AnalyzeArgs, system: &System) -> anyhow::Result<Exit> {
    let mut lines = Vec::new();
    for root in &system.roots {
        let specs = root.tree.nodes().filter_map(|(_, node)| match &node.spec {
            NodeSpec::Task(spec) => Some(spec),
            NodeSpec::Scheduler(_) => None,
        });
        // An endless job has neither a cost nor a period to change.
        for (spec, source) in specs.zip(&root.sources).filter(|(_, source)| !source.is_endless()) {
            lines.push((spec.name.clone(), source.cost.max().as_ns(), spec.period.as_ns()));
        }
    }
    let proved = are_proved(system);
    let mut progress = Progress::new();
    let all_costs = max_factor(system, "cost(*)", proved, &mut progress)?;
    let mut tasks = Vec::new();
    for (name, cost_ns, period_ns) in lines {
        let cost_thousandths = max_factor(system, &format!("cost({name})"), proved, &mut progress)?;
        let period_thousandths =
            min_factor(system, &format!("period({name})"), proved, &mut progress)?;
        tasks.push(TaskSensitivity {
            name,
            cost_ns,
            cost_thousandths,
            period_ns,
            period_thousandths,
        });
    }
    progress.finish_line();
    let answer = SensitivityReport {
        file: args.file.display().to_string(),
        what_if: args.what_if.iter().map(ToString::to_string).collect(),
        proved,
        all_costs_thousandths: all_costs,
        tasks,
    };
    if args.output.json {
        print_json(&answer)?;
    } else {
        print(&text(&answer))?;
        if !proved {
            note(&match first_without_a_test(system) {
                Some(why) => format!("not every deadline is proved, whatever the factor: {why}"),
                None => "not every deadline is proved without a change: a factor above 1 on a period, or below 1 on a cost, is needed"
                    .to_owned(),
            });
        }
    }
    Ok(if proved { Exit::Ok } else { Exit::Failure })
}

/// Returns the first task without a test, with the reason.
fn first_without_a_test(system: &System) -> Option<String> {
    system.roots.iter().find_map(|root| {
        let roots = model_of(root);
        roots.bounds().into_iter().find_map(|answer| match answer.bound {
            Err(no) if no.reason.is_structural() => {
                Some(format!("{}: {}", name_of(&root.tree, no.node), no.reason.text()))
            }
            _ => None,
        })
    })
}

fn are_proved(system: &System) -> bool {
    system.roots.iter().all(|root| {
        let roots = model_of(root);
        roots.are_proved()
    })
}

/// Whether all tasks are proved with a factor. An impossible change counts as not proved.
fn are_proved_with(system: &System, what: &str, thousandths: u64) -> anyhow::Result<bool> {
    let text = format!("{what}*{}.{:03}", thousandths / FACTOR_ONE, thousandths % FACTOR_ONE);
    let change = Change::parse(&text)?;
    let mut changed = system.clone();
    if change.make(&mut changed).is_err() {
        return Ok(false);
    }
    Ok(changed.roots.iter().all(|root| root.tree.check().is_ok()) && are_proved(&changed))
}

/// Returns the largest factor with which all tasks are proved.
fn max_factor(
    system: &System,
    what: &str,
    proved: bool,
    progress: &mut Progress,
) -> anyhow::Result<Option<u64>> {
    let mut accepts = |factor: u64| {
        progress.tried(what);
        are_proved_with(system, what, factor)
    };
    let (mut good, mut bad) = if proved {
        let (mut good, mut bad) = (FACTOR_ONE, 2 * FACTOR_ONE);
        while accepts(bad)? {
            (good, bad) = (bad, 2 * bad);
            if good >= MAX_FACTOR {
                return Ok(Some(good));
            }
        }
        (good, bad)
    } else {
        if !accepts(1)? {
            return Ok(None);
        }
        (1, FACTOR_ONE)
    };
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if accepts(middle)? { good = middle } else { bad = middle }
    }
    Ok(Some(good))
}

/// Returns the smallest factor with which all tasks are proved.
fn min_factor(
    system: &System,
    what: &str,
    proved: bool,
    progress: &mut Progress,
) -> anyhow::Result<Option<u64>> {
    let mut accepts = |factor: u64| {
        progress.tried(what);
        are_proved_with(system, what, factor)
    };
    let (mut bad, mut good) = if proved {
        if accepts(1)? {
            return Ok(Some(1));
        }
        (1, FACTOR_ONE)
    } else {
        let (mut bad, mut good) = (FACTOR_ONE, 2 * FACTOR_ONE);
        while !accepts(good)? {
            (bad, good) = (good, 2 * good);
            if bad >= MAX_FACTOR {
                return Ok(None);
            }
        }
        (bad, good)
    };
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        if accepts(middle)? { good = middle } else { bad = middle }
    }
    Ok(Some(good))
}

fn factor(thousandths: Option<u64>) -> String {
    thousandths.map_or_else(
        || "-".to_owned(),
        |parts| format!("{}.{:03}", parts / FACTOR_ONE, parts % FACTOR_ONE),
    )
}

/// Multiplies a value by a factor. Costs are rounded down and periods up, so that the printed value
/// is proved.
fn scaled(value: u64, thousandths: Option<u64>, up: bool) -> String {
    let Some(parts) = thousandths else { return "-".to_owned() };
    let product = u128::from(value) * u128::from(parts);
    let one = u128::from(FACTOR_ONE);
    let value = if up { product.div_ceil(one) } else { product / one };
    short(u64::try_from(value).unwrap_or(u64::MAX))
}

fn text(answer: &SensitivityReport) -> String {
    let mut out = String::new();
    // Writing to a String can't fail.
    for change in &answer.what_if {
        let _ = writeln!(out, "what if {change}");
    }
    let _ = writeln!(out, "all costs: times {}", factor(answer.all_costs_thousandths));
    let mut table = Table::new("task | >cost | >times | >up to | >period | >times | >down to");
    for task in &answer.tasks {
        table.row(vec![
            task.name.clone(),
            short(task.cost_ns),
            factor(task.cost_thousandths),
            scaled(task.cost_ns, task.cost_thousandths, false),
            short(task.period_ns),
            factor(task.period_thousandths),
            scaled(task.period_ns, task.period_thousandths, true),
        ]);
    }
    out.push_str(&table.render());
    out.push_str(
        "each factor alone, every deadline proved; in steps of 0.001; a deadline equal to the period scales with it\n\
         after Bini, Di Natale and Buttazzo, Real-Time Systems 39(1-3), 2008\n",
    );
    out
}
