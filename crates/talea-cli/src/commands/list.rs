//! `talea list`: what was granted, and what the kernel says now.

use crate::args::ListArgs;
use crate::exit::Exit;
use crate::json::SpecJson;
use crate::link::{Link, Options};
use crate::output::{Table, print, print_json};
use crate::words;
use serde::Serialize;
use std::collections::BTreeMap;
use talea_core::Policy;
use talea_proto::SpecInfo;

const HEADINGS: [&str; 9] =
    [">SPEC", "PLUGIN", ">CPU", ">RUNTIME", ">PERIOD", ">COST", "USER", ">THREAD", "KERNEL"];

#[derive(Serialize)]
struct Answer {
    specs: Vec<SpecJson>,
}

pub(crate) fn run(options: &Options, args: &ListArgs) -> anyhow::Result<Exit> {
    let specs = Link::open(options)?.specs()?;
    if args.output.json {
        let specs = specs.iter().map(|spec| SpecJson::new(spec, kernel(spec).as_ref())).collect();
        print_json(&Answer { specs })?;
        return Ok(Exit::Ok);
    }
    if specs.is_empty() {
        print(if args.no_legend { "" } else { "nothing is granted\n" })?;
        return Ok(Exit::Ok);
    }
    let mut table = if args.no_legend { Table::bare(&HEADINGS) } else { Table::new(&HEADINGS) };
    let mut users = Users::default();
    for spec in &specs {
        table.row(row(spec, &mut users));
    }
    print(&table.render())?;
    Ok(Exit::Ok)
}

fn row(spec: &SpecInfo, users: &mut Users) -> Vec<String> {
    let dash = || "-".to_owned();
    vec![
        spec.granted.spec.0.to_string(),
        spec.plugin_name.as_str().to_owned(),
        spec.granted.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
        spec.granted.runtime.map_or_else(dash, |runtime| runtime.to_string()),
        spec.task.params.period.map_or_else(dash, |period| period.to_string()),
        words::charge(spec.granted.charge),
        users.name(spec.uid),
        spec.tid.map_or_else(dash, |tid| tid.to_string()),
        held(spec),
    ]
}

/// What the kernel says of the spec's thread, with a word where that is not what was granted.
fn held(spec: &SpecInfo) -> String {
    match (kernel(spec), &spec.attr) {
        (Some(now), Some(given)) if now == given.policy => words::policy(&now),
        (Some(now), Some(given)) => {
            format!("{} (not held: granted {})", words::policy(&now), words::attr(given))
        }
        // It sleeps in another root domain: see words::but.
        (Some(now), None) => format!("{} (not held: until it wakes)", words::policy(&now)),
        (None, _) if spec.tid.is_some() => "?".to_owned(),
        (None, _) => "-".to_owned(),
    }
}

/// The policy that the spec's thread has now; `None` without a thread, or where it can't be seen
/// from here.
pub(super) fn kernel(spec: &SpecInfo) -> Option<Policy> {
    crate::kernel::policy_of(spec.tid?)
}

/// User names, each looked up once.
#[derive(Default)]
pub(super) struct Users(BTreeMap<u32, String>);

impl Users {
    /// The name, or the number where there is none.
    pub(super) fn name(&mut self, uid: u32) -> String {
        let look_up = || match talea_os::users::user_by_id(uid) {
            Ok(Some(user)) => user.name,
            _ => uid.to_string(),
        };
        self.0.entry(uid).or_insert_with(look_up).clone()
    }
}
