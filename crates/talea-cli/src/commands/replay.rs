//! `talea replay`: does a fresh machine order the same?

use crate::args::Output;
use crate::exit::Exit;
use crate::measured::Recording;
use crate::output::{Tone, colored, count, note, paint, print, print_json};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use talea_core::machine::{Machine, Order};
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_exec::What;
use talea_exec::replay::{Difference, Listener, replay_to};
use talea_system::system::Root;

/// Feed a recorded run to a fresh scheduler machine and compare its orders.
///
/// FILE is what talea execute --record has written; the description of the system is in it. The
/// machine depends on nothing but what it is told, so what real threads did once can be looked at
/// again anywhere, as often as you like. SF3P's four invariants are checked after each step. Ends
/// with 1 at the first order that is another one, and if an invariant does not hold.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: talea execute system.toml --record run.txt && talea replay run.txt"
)]
pub(crate) struct ReplayArgs {
    /// The recording.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Answer {
    file: String,
    same: bool,
    roots: Vec<RootAnswer>,
}

#[derive(Serialize)]
struct RootAnswer {
    name: String,
    /// Entries of the record.
    entries: usize,
    /// Orders that were compared, and were the same.
    orders: usize,
    difference: Option<DifferenceAnswer>,
    /// How often SF3P's invariants were checked: whenever the machine had no more orders.
    audits: usize,
    /// The first time that one of SF3P's invariants does not hold, in words.
    violation: Option<String>,
}

/// Audits the machine whenever it has no more orders.
#[derive(Default)]
struct Auditor {
    audits: usize,
    violation: Option<String>,
}

impl Listener for Auditor {
    fn polled(&mut self, machine: &mut Machine, now: Time) {
        mutate!("cli-replay-unaudited", {}, {
            if self.audits > 0 {
                return;
            }
        });
        self.audits += 1;
        if let (None, Err(why)) = (&self.violation, machine.audit(now)) {
            self.violation = Some(format!("at {}: {why}", Span::from_ns(now.as_ns())));
        }
    }
}

/// The first order that is another one.
#[derive(Serialize)]
struct DifferenceAnswer {
    /// Which entry of the root's record, from 0.
    entry: usize,
    at_ns: u64,
    recorded: String,
    replayed: String,
}

pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<Exit> {
    use anyhow::Context;
    let path = args.file.display();
    let content =
        std::fs::read_to_string(&args.file).with_context(|| format!("cannot read {path}"))?;
    let recording = match Recording::read(&content) {
        Ok(recording) => recording,
        Err(why) => {
            note(&format!("{path}: {why}"));
            return Ok(Exit::Usage);
        }
    };
    let system = match recording.texts.system() {
        Ok(system) => system,
        Err(diagnostics) => {
            eprint!("{}", talea_system::diagnostic::render(&diagnostics, false));
            return Ok(Exit::Usage);
        }
    };
    if system.roots.len() != recording.roots.len() {
        let (described, recorded) = (system.roots.len(), recording.roots.len());
        note(&format!("{path}: {} described, {recorded} recorded", count(described, "root")));
        return Ok(Exit::Usage);
    }
    let mut roots = Vec::new();
    for (root, (_, record)) in system.roots.iter().zip(&recording.roots) {
        let mut machine =
            root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.why))?;
        let is_order = |entry: &&talea_exec::Entry| matches!(entry.what, What::Ordered(_));
        let mut auditor = Auditor::default();
        let (orders, difference) = match replay_to(&mut machine, record, &mut auditor) {
            Ok(orders) => (orders, None),
            Err(difference) => {
                let same = record[..difference.at].iter().filter(is_order).count();
                (same, Some(differs(root, &difference)))
            }
        };
        roots.push(RootAnswer {
            name: root.name.clone(),
            entries: record.len(),
            orders,
            difference,
            audits: auditor.audits,
            violation: auditor.violation,
        });
    }
    let same = roots.iter().all(|root| root.difference.is_none());
    let is_sound = roots.iter().all(|root| root.violation.is_none());
    let answer = Answer { file: path.to_string(), same, roots };
    if args.output.json {
        print_json(&answer)?;
    } else {
        print(&text(&answer, colored()))?;
    }
    Ok(if same && is_sound { Exit::Ok } else { Exit::Failure })
}

fn differs(root: &Root, difference: &Difference) -> DifferenceAnswer {
    let recorded = difference.recorded.map_or_else(
        || "nothing".to_owned(),
        |entry| match entry.what {
            What::Ordered(order) => words(root, order),
            What::Polled => "no more orders".to_owned(),
            What::Step => "a time that runs backwards, or is too late".to_owned(),
            What::Told(event) => format!("{event:?}, which this machine can't be told there"),
        },
    );
    DifferenceAnswer {
        entry: difference.at,
        at_ns: difference.recorded.map_or(0, |entry| entry.now.as_ns()),
        recorded,
        replayed: difference
            .replayed
            .map_or_else(|| "no more orders".to_owned(), |order| words(root, order)),
    }
}

fn words(root: &Root, order: Order) -> String {
    match order {
        Order::Run { cpu, task, job, version } => {
            let name = root.tasks.get(task.0 as usize).map_or("?", String::as_str);
            let version =
                if version == 0 { String::new() } else { format!(" in version {version}") };
            format!("CPU {} runs job {job} of {name}{version}", cpu.0)
        }
        Order::Idle { cpu } => format!("CPU {} runs nothing", cpu.0),
    }
}

fn text(answer: &Answer, color: bool) -> String {
    let mut out = String::new();
    for root in &answer.roots {
        // Writing to a String can't fail.
        let _ = match &root.difference {
            None => writeln!(
                out,
                "{}: {}: the same {} in {}, invariants checked {}",
                paint("same", Tone::Good, color),
                root.name,
                count(root.orders, "order"),
                count(root.entries, "line"),
                count(root.audits, "time")
            ),
            Some(difference) => writeln!(
                out,
                "{}: {}: {} the same, then at {}, entry {}:\n  recorded: {}\n  replayed: {}",
                paint("differs", Tone::Bad, color),
                root.name,
                count(root.orders, "order"),
                Span::from_ns(difference.at_ns),
                difference.entry,
                difference.recorded,
                difference.replayed
            ),
        };
        if let Some(violation) = &root.violation {
            let _ = writeln!(
                out,
                "{}: {}: {violation}",
                paint("invariant", Tone::Bad, color),
                root.name
            );
        }
    }
    out
}
