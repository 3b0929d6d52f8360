//! `talea list --dbus`: the programs that asked over D-Bus, and the calls that were refused.

use crate::args::ListArgs;
use crate::broker_client::Options;
use crate::commands::front_ends::{FrontEndCalls, RefusedCalls};
use crate::commands::in_force::{kernel, kernel_column};
use crate::grant_text;
use crate::json::SpecJson;
use crate::kernel::name_of;
use crate::user_names::UserNames;
use serde::Serialize;
use std::fmt::Write;
use talea_proto::message::Notes;
use talea_proto::{SpecInfo, Task};
use talea_study::exit::Exit;
use talea_study::output::{Table, count, print, print_json};

const HEADINGS: [&str; 6] = ["USER", "PROGRAM", "THREAD", "ASKED", "GRANTED", "IN FORCE"];

#[derive(Serialize)]
struct DbusReport {
    specs: Vec<SpecJson>,
    refusals: Vec<RefusedCalls>,
}

pub(super) fn run(options: &Options, args: &ListArgs, specs: &[SpecInfo]) -> anyhow::Result<Exit> {
    let is_asked = |spec: &&SpecInfo| spec.granted.notes.contains(Notes::FRONT_END);
    let specs: Vec<&SpecInfo> = specs.iter().filter(is_asked).collect();
    let refusals = FrontEndCalls::read(options).refusals;
    if args.output.json {
        let specs = specs.iter().map(|spec| SpecJson::new(spec, kernel(spec).as_ref())).collect();
        print_json(&DbusReport { specs, refusals })?;
    } else {
        print(&text(&specs, &refusals, args.no_legend))?;
    }
    Ok(Exit::Ok)
}

fn text(specs: &[&SpecInfo], refusals: &[RefusedCalls], no_legend: bool) -> String {
    let mut text = if specs.is_empty() {
        let none = "no program has a grant that it asked for over D-Bus\n";
        if no_legend { String::new() } else { none.to_owned() }
    } else {
        let mut table = if no_legend { Table::bare(&HEADINGS) } else { Table::of(&HEADINGS) };
        let mut users = UserNames::default();
        for spec in specs {
            table.row(row(spec, &mut users));
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

fn row(spec: &SpecInfo, users: &mut UserNames) -> Vec<String> {
    let named = |id: u32| match name_of(id) {
        Some(name) => format!("{name} {id}"),
        None => id.to_string(),
    };
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
