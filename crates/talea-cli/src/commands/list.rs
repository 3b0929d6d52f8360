//! `talea list`: lists the grants, with the threads' current policies.

mod dbus;

use crate::args::ListArgs;
use crate::broker_client::{BrokerClient, Options};
use crate::commands::in_force::{kernel, kernel_column};
use crate::grant_text;
use crate::json::SpecJson;
use crate::user_names::UserNames;
use serde::Serialize;
use talea_proto::SpecInfo;
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
    if args.dbus {
        return dbus::run(options, args, &specs);
    }
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
