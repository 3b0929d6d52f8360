//! `talea list`: lists the grants, with the threads' current policies.

use crate::args::ListArgs;
use crate::broker_client::{BrokerClient, Options};
use crate::grant_text;
use crate::json::SpecJson;
use crate::kernel::ThreadState;
use crate::user_names::UserNames;
use serde::Serialize;
use talea_proto::SpecInfo;
use talea_proto::message::Notes;
use talea_study::exit::Exit;
use talea_study::output::{Table, print, print_json};

const HEADINGS: [&str; 9] =
    [">SPEC", "PLUGIN", ">CPU", ">RUNTIME", ">PERIOD", ">COST", "USER", ">THREAD", "KERNEL"];

#[derive(Serialize)]
struct ListReport {
    specs: Vec<SpecJson>,
}

pub(crate) fn run(options: &Options, args: &ListArgs) -> anyhow::Result<Exit> {
    let specs = BrokerClient::open(options)?.specs()?;
    if args.output.json {
        let specs = specs.iter().map(|spec| SpecJson::new(spec, kernel(spec).as_ref())).collect();
        print_json(&ListReport { specs })?;
        return Ok(Exit::Ok);
    }
    if specs.is_empty() {
        print(if args.no_legend { "" } else { "nothing is granted\n" })?;
        return Ok(Exit::Ok);
    }
    let mut table = if args.no_legend { Table::bare(&HEADINGS) } else { Table::of(&HEADINGS) };
    let mut users = UserNames::default();
    for spec in &specs {
        table.row(row(spec, &mut users));
    }
    print(&table.render())?;
    Ok(Exit::Ok)
}

fn row(spec: &SpecInfo, users: &mut UserNames) -> Vec<String> {
    let dash = || "-".to_owned();
    vec![
        spec.granted.spec.0.to_string(),
        spec.plugin_name.as_str().to_owned(),
        spec.granted.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
        spec.granted.runtime.map_or_else(dash, |runtime| runtime.to_string()),
        spec.task.params.period.map_or_else(dash, |period| period.to_string()),
        grant_text::charge(spec.granted.charge),
        users.name(spec.uid),
        spec.tid.map_or_else(dash, |tid| tid.to_string()),
        kernel_column(spec),
    ]
}

/// Returns the current policy of the spec's thread, with a remark if it or the affinity is not the
/// granted one, or the reason why the daemon has detached the thread.
fn kernel_column(spec: &SpecInfo) -> String {
    let text = match (kernel(spec), &spec.attr) {
        (Some(now), Some(_)) if spec.overruns.is_throttled => {
            format!("{} (throttled)", grant_text::policy(&now.policy))
        }
        (Some(now), Some(given)) => {
            let policy = grant_text::policy(&now.policy);
            match now.other_cpus(given) {
                _ if now.policy != given.policy => {
                    format!("{policy} (not held: granted {})", grant_text::attr(given))
                }
                Some(cpus) => format!("{policy} (not held: {})", grant_text::cpus(&cpus)),
                None => policy,
            }
        }
        // The thread sleeps in another root domain: see grant_text::caveat.
        (Some(now), None) => {
            format!("{} (not held: until it wakes)", grant_text::policy(&now.policy))
        }
        (None, _) if spec.tid.is_some() => "?".to_owned(),
        (None, _) => spec.detached.map_or("-", grant_text::detached).to_owned(),
    };
    let is_unlimited = spec.granted.notes.contains(Notes::UNLIMITED) && spec.tid.is_some();
    let text = if is_unlimited { format!("{text}, unlimited") } else { text };
    match spec.overruns.count {
        0 => text,
        1 => format!("{text}, 1 overrun"),
        count => format!("{text}, {count} overruns"),
    }
}

/// Returns the current state of the spec's thread; `None` without a thread, or if it is not
/// readable.
pub(super) fn kernel(spec: &SpecInfo) -> Option<ThreadState> {
    ThreadState::of(spec.tid?)
}
