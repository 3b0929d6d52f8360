//! `talea explain`: what every plugin says to a request, and what would fit. Nothing is changed.

use crate::args::ExplainArgs;
use crate::args::task::Wanted;
use crate::exit::Exit;
use crate::json::{AnswerJson, RefusalJson, TaskJson};
use crate::link::{Explained, Link, Misuse, Options};
use crate::output::{Table, Tone, colored, paint, print, print_json};
use crate::words;
use serde::Serialize;
use std::fmt::Write;
use talea_proto::message::Name;
use talea_proto::refusal::Said;
use talea_proto::{Code, Field, Owner, Refusal};

#[derive(Serialize)]
struct Answer {
    task: TaskJson,
    /// The plugin that would serve it.
    chosen: Option<String>,
    answers: Vec<AnswerJson>,
    refusal: Option<RefusalJson>,
    decided_by: String,
}

pub(crate) fn run(options: &Options, args: &ExplainArgs) -> anyhow::Result<Exit> {
    let Wanted::Grant { task, kind } = args.task.wanted(Owner::Session) else {
        return Err(Misuse(
            "an ordinary thread (-P o:…) needs no grant; there is nothing to explain".into(),
        )
        .into());
    };
    let mut link = Link::open(options)?;
    let task = link.choose(task, kind)?;
    let explained = link.explain(&task)?;
    if args.output.json {
        print_json(&Answer {
            task: TaskJson::from(&task),
            chosen: chosen(&explained).map(|name| name.as_str().to_owned()),
            answers: explained.answers.iter().map(AnswerJson::from).collect(),
            refusal: explained.refusal.as_deref().map(RefusalJson::from),
            decided_by: link.who(),
        })?;
    } else {
        print(&text(&explained, colored()))?;
        if options.verbose {
            print(&format!("{}\n", link.who()))?;
        }
    }
    Ok(exit_of(&explained))
}

fn chosen(explained: &Explained) -> Option<Name> {
    let index = usize::try_from(explained.chosen?).ok()?;
    explained.answers.get(index).map(|answer| answer.name)
}

fn text(explained: &Explained, color: bool) -> String {
    let mut text = String::new();
    // Writing to a String can't fail.
    let _ = if let Some(name) = chosen(explained) {
        writeln!(text, "{}: {name} would serve it", paint("Would be granted", Tone::Good, color))
    } else {
        // What each plugin says follows in the table.
        let refusal = refusal(explained);
        writeln!(text, "{}. {}", paint("Would not be granted", Tone::Bad, color), refusal.head())
    };
    if explained.answers.is_empty() {
        return text;
    }
    let mut table = Table::new(&["PLUGIN", "ANSWER", ">CPU", ">COST", "WHY"]);
    for answer in &explained.answers {
        let (cpu, cost) = match answer.verdict {
            Said::Ok { cpu, charge, .. } | Said::Partial { cpu, charge, .. } => {
                (cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()), words::charge(charge))
            }
            Said::No(_) | Said::Denied { .. } => ("-".to_owned(), "-".to_owned()),
        };
        table.row(vec![
            answer.name.as_str().to_owned(),
            words::verdict(&answer.verdict).to_owned(),
            cpu,
            cost,
            words::said(&answer.verdict),
        ]);
    }
    text.push_str(&table.render());
    text
}

/// As the request itself would end.
fn exit_of(explained: &Explained) -> Exit {
    if explained.chosen.is_some() { Exit::Ok } else { Exit::of(&refusal(explained)) }
}

/// What the request itself would be answered.
pub(super) fn refusal(explained: &Explained) -> Refusal {
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
