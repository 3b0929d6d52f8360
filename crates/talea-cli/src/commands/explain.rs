//! `talea explain`: shows every plugin's answer to a request, and what would fit. The command
//! changes nothing.

use crate::args::ExplainArgs;
use crate::args::task::TaskRequest;
use crate::broker_client::{BrokerClient, Explanation, Options};
use crate::grant_text;
use crate::json::{AnswerJson, RefusalJson, TaskJson};
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write;
use talea_os::{Thread, Tid};
use talea_proto::message::Name;
use talea_proto::refusal::PluginVerdict;
use talea_proto::{Code, Field, Owner, Refusal};
use talea_study::exit::{Exit, usage};
use talea_study::output::{Table, Tone, colored, paint, print, print_json};

#[derive(Serialize)]
struct ExplainReport {
    task: TaskJson,
    /// Plugin that would serve the request.
    chosen: Option<String>,
    answers: Vec<AnswerJson>,
    refusal: Option<RefusalJson>,
    decided_by: String,
}

pub(crate) fn run(options: &Options, args: &ExplainArgs) -> anyhow::Result<Exit> {
    let TaskRequest::Grant { task, kind } = args.task.to_request(Owner::Session) else {
        return Err(usage(
            "an ordinary thread (-P o:…) needs no grant; there is nothing to explain",
        ));
    };
    let mut link = BrokerClient::open(options)?;
    // A program that `talea run` starts here has the CPUs, group and limits of this process.
    let own = Thread::open(Tid::of_process()).context("cannot hold this process")?;
    let task = link.choose_plugin(task, kind, &own)?;
    let explained = link.explain(&task, &own)?;
    if args.output.json {
        print_json(&ExplainReport {
            task: TaskJson::from(&task),
            chosen: chosen(&explained).map(|name| name.as_str().to_owned()),
            answers: explained.answers.iter().map(AnswerJson::from).collect(),
            refusal: explained.refusal.as_deref().map(RefusalJson::from),
            decided_by: link.describe(),
        })?;
    } else {
        print(&text(&explained, colored()))?;
        if options.verbose {
            print(&format!("{}\n", link.describe()))?;
        }
    }
    Ok(exit_of(&explained))
}

fn chosen(explained: &Explanation) -> Option<Name> {
    let index = usize::try_from(explained.chosen?).ok()?;
    explained.answers.get(index).map(|answer| answer.name)
}

fn text(explained: &Explanation, color: bool) -> String {
    let mut text = String::new();
    // Writing to a String can't fail.
    let _ = if let Some(name) = chosen(explained) {
        writeln!(text, "{}: {name} would serve it", paint("Would be granted", Tone::Good, color))
    } else {
        // The table below shows the answer of each plugin.
        let refusal = refusal(explained);
        writeln!(text, "{}. {}", paint("Would not be granted", Tone::Bad, color), refusal.head())
    };
    if explained.answers.is_empty() {
        return text;
    }
    let mut table = Table::new("PLUGIN | ANSWER | >CPU | >COST | WHY");
    for answer in &explained.answers {
        let (cpu, cost) = match answer.verdict {
            PluginVerdict::Ok { cpu, charge, .. } | PluginVerdict::Partial { cpu, charge, .. } => (
                cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
                grant_text::charge(charge),
            ),
            PluginVerdict::No(_) | PluginVerdict::Denied { .. } => ("-".to_owned(), "-".to_owned()),
        };
        table.row(vec![
            answer.name.as_str().to_owned(),
            grant_text::verdict(&answer.verdict).to_owned(),
            cpu,
            cost,
            grant_text::said(answer),
        ]);
    }
    text.push_str(&table.render());
    text
}

/// Returns the exit code that the explained request would have.
fn exit_of(explained: &Explanation) -> Exit {
    if explained.chosen.is_some() { Exit::Ok } else { Exit::from_refusal(&refusal(explained)) }
}

/// Returns the refusal that the explained request would get.
pub(super) fn refusal(explained: &Explanation) -> Refusal {
    explained.refusal.as_deref().cloned().unwrap_or_else(|| Refusal {
        code: Code::NoPlugin,
        field: Field::Request,
        asked: 0,
        limit: 0,
        errno: 0,
        index: 0,
        rule: None,
        answers: explained.answers.clone(),
    })
}
