//! `talea show`: shows all data of one grant.

use super::in_force::kernel;
use crate::args::ShowArgs;
use crate::broker_client::{BrokerClient, Options};
use crate::grant_text;
use crate::json::SpecJson;
use crate::user_names::UserNames;
use talea_core::Span;
use talea_proto::{Owner, SpecId, SpecInfo};
use talea_study::exit::Exit;
use talea_study::output::Table;

pub(crate) fn run(options: &Options, args: &ShowArgs) -> anyhow::Result<Exit> {
    let spec = BrokerClient::open(options)?.query(SpecId(args.spec))?;
    args.output.print(&SpecJson::new(&spec, kernel(&spec).as_ref()), || text(&spec))?;
    Ok(Exit::Ok)
}

fn text(spec: &SpecInfo) -> String {
    let mut table = Table::bare(&["", ""]);
    let mut line = |name: &str, value: String| table.row(vec![name.to_owned(), value]);
    let params = &spec.task.params;
    line("spec", spec.granted.spec.0.to_string());
    line("granted", grant_text::granted(&spec.granted, spec.plugin_name.as_str(), &spec.task));
    for note in grant_text::notes(spec.granted.notes) {
        line("note", note.to_owned());
    }
    let granularity = spec.granted.granularity;
    if granularity > Span::ZERO {
        line("budget granularity", granularity.to_string());
    }
    let mut asked = Vec::new();
    let mut ask = |name: &str, value: Option<String>| {
        asked.extend(value.map(|value| format!("{name} {value}")));
    };
    ask("period", params.period.map(|v| v.to_string()));
    ask("runtime", params.runtime.map(|v| v.to_string()));
    ask("desired", params.desired.map(|v| v.to_string()));
    ask("deadline", params.deadline.map(|v| v.to_string()));
    ask("priority", params.priority.map(|v| v.0.to_string()));
    ask("plugin", spec.task.plugin.map(|v| v.as_str().to_owned()));
    let cpus = (!spec.task.cpus.is_empty()).then(|| spec.task.cpus.to_string());
    ask(if spec.task.cpus_mandatory { "cpus" } else { "preferred cpus" }, cpus);
    line(
        "asked",
        if asked.is_empty() { "nothing in particular".to_owned() } else { asked.join(", ") },
    );
    let owner = match spec.task.owner {
        Owner::Session => "the connection that asked",
        Owner::Process => "the process that asked",
        Owner::Thread => "its thread",
    };
    line("ends with", owner.to_owned());
    line("user", UserNames::default().name(spec.uid));
    line("asked by", format!("process {}", spec.pid));
    match spec.tid {
        None => {
            let why = spec
                .detached
                .map_or(String::new(), |cause| format!(", {}", grant_text::detached(cause)));
            line("thread", format!("none{why}"));
        }
        Some(tid) => {
            let name =
                crate::kernel::name_of(tid).map(|name| format!(" ({name})")).unwrap_or_default();
            line("thread", format!("{tid}{name}"));
            line(
                "given",
                spec.attr.as_ref().map_or_else(
                    || "nothing yet: it sleeps in another root domain".to_owned(),
                    grant_text::attr,
                ),
            );
            let now = kernel(spec).map_or_else(
                || "cannot be seen from here".to_owned(),
                |now| match spec.attr.as_ref().and_then(|given| now.other_cpus(given)) {
                    Some(cpus) => {
                        let policy = grant_text::policy(&now.policy);
                        format!("{policy}, {}", grant_text::cpus(&cpus))
                    }
                    None => grant_text::policy(&now.policy),
                },
            );
            line("kernel says", now);
            let overruns = &spec.overruns;
            if overruns.count > 0 {
                let state = if overruns.is_throttled { ", throttled now" } else { "" };
                line("overruns", format!("{}{state}", overruns.count));
            }
        }
    }
    table.render()
}
