//! `talea list --dbus`: the programs that asked over D-Bus, and the calls that were refused.
//!
//! Grants come from the broker. A nice value is no grant, so it comes from the audit trail.

use crate::args::ListArgs;
use crate::broker_client::Options;
use crate::commands::front_ends::{FrontEndCalls, NiceValue, RefusedCalls};
use crate::commands::in_force::{kernel, kernel_column};
use crate::grant_text;
use crate::json::{PolicyJson, SpecJson};
use crate::kernel::{name_of, policy_of};
use crate::user_names::UserNames;
use serde::Serialize;
use std::fmt::Write;
use talea_core::Policy;
use talea_proto::message::Notes;
use talea_proto::{SpecInfo, Task};
use talea_study::exit::Exit;
use talea_study::output::{Table, count, print, print_json};

const HEADINGS: [&str; 6] = ["USER", "PROGRAM", "THREAD", "ASKED", "GRANTED", "IN FORCE"];

#[derive(Serialize)]
struct DbusReport {
    specs: Vec<SpecJson>,
    nice_values: Vec<NiceJson>,
    refusals: Vec<RefusedCalls>,
}

/// Nice value of a thread without a grant, beside the kernel's policy.
#[derive(Serialize)]
struct NiceJson {
    #[serde(flatten)]
    given: NiceValue,
    kernel: Option<PolicyJson>,
}

pub(super) fn run(options: &Options, args: &ListArgs, specs: &[SpecInfo]) -> anyhow::Result<Exit> {
    let is_asked = |spec: &&SpecInfo| spec.granted.notes.contains(Notes::FRONT_END);
    let specs: Vec<&SpecInfo> = specs.iter().filter(is_asked).collect();
    let FrontEndCalls { refusals, mut nice_values, .. } = FrontEndCalls::read(options);
    // A grant replaces the nice value of its thread.
    nice_values
        .retain(|given| given.is_alive() && !specs.iter().any(|spec| spec.tid == Some(given.tid)));
    if args.output.json {
        let specs = specs.iter().map(|spec| SpecJson::new(spec, kernel(spec).as_ref())).collect();
        let nice_values = nice_values.into_iter().map(|given| NiceJson {
            kernel: policy_of(given.tid).as_ref().map(PolicyJson::from),
            given,
        });
        print_json(&DbusReport { specs, nice_values: nice_values.collect(), refusals })?;
    } else {
        print(&text(&specs, &nice_values, &refusals, args.no_legend))?;
    }
    Ok(Exit::Ok)
}

fn text(
    specs: &[&SpecInfo],
    nice_values: &[NiceValue],
    refusals: &[RefusedCalls],
    no_legend: bool,
) -> String {
    let mut text = if specs.is_empty() && nice_values.is_empty() {
        let none = "no program has a grant that it asked for over D-Bus\n";
        if no_legend { String::new() } else { none.to_owned() }
    } else {
        let mut table = if no_legend { Table::bare(&HEADINGS) } else { Table::of(&HEADINGS) };
        let mut users = UserNames::default();
        for spec in specs {
            table.row(row(spec, &mut users));
        }
        for given in nice_values {
            table.row(nice_row(given, &mut users));
        }
        table.render()
    };
    if !refusals.is_empty() && !no_legend {
        text.push_str("\nrefused since yesterday, with the last call by each limit:\n");
    }
    for refusal in refusals {
        let (calls, last) = (count(refusal.count, "call"), &refusal.text);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{calls}: {last}\n    fix: {}", refusal.fix);
    }
    text
}

/// Returns the number of a thread or process after its name.
fn named(id: u32) -> String {
    name_of(id).map_or_else(|| id.to_string(), |name| format!("{name} {id}"))
}

fn row(spec: &SpecInfo, users: &mut UserNames) -> Vec<String> {
    let policy = spec.attr.as_ref().map(grant_text::attr);
    vec![
        users.name(spec.uid),
        named(spec.pid),
        spec.tid.map_or_else(|| "-".to_owned(), named),
        asked(&spec.task),
        format!("{} {}", spec.plugin_name.as_str(), policy.as_deref().unwrap_or("-")),
        kernel_column(spec),
    ]
}

fn nice_row(given: &NiceValue, users: &mut UserNames) -> Vec<String> {
    let nice = format!("nice {}", given.nice);
    let now = match policy_of(given.tid) {
        Some(Policy::Other { nice: now } | Policy::Batch { nice: now }) if now == given.nice => {
            nice.clone()
        }
        Some(now) => format!("{} (not held: granted {nice})", grant_text::policy(&now)),
        None => "?".to_owned(),
    };
    let (process, thread) = (named(given.pid), named(given.tid));
    vec![users.name(given.uid), process, thread, nice.clone(), nice, now]
}

/// Formats what the front end requested for the call.
fn asked(task: &Task) -> String {
    let params = &task.params;
    let mut parts: Vec<String> = Vec::new();
    parts.extend(params.priority.map(|priority| format!("priority {}", priority.0)));
    if let (Some(runtime), Some(period)) = (params.runtime, params.period) {
        parts.push(format!("{runtime} every {period}"));
    }
    parts.join(", ")
}
