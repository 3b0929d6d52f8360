//! `talea replay`: replays a recorded run and compares the orders.

use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use talea_core::engine::{Engine, Order};
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_exec::RecordKind;
use talea_exec::replay::{Divergence, replay_to_sink};
use talea_os::bounded_read::read_text_bounded;
use talea_study::exit::{Exit, Unreadable, usage};
use talea_study::live_run::Recording;
use talea_study::options::Output;
use talea_study::output::{Tone, colored, count, paint};
use talea_system::Root;

/// Feed a recorded run to a new scheduling engine and compare its orders.
///
/// FILE is a recording of talea execute --record; it contains the description of the system. The
/// engine depends only on its recorded inputs, so a real run can be examined again anywhere, any
/// number of times. SF3P's four invariants are checked after each step. Ends with 1 at the first
/// order that differs, and if an invariant does not hold.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: talea execute system.toml --record run.txt && talea replay run.txt"
)]
pub(crate) struct ReplayArgs {
    /// The recording.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    objects: crate::objects::ObjectArgs,
    #[command(flatten)]
    limit: talea_study::limit::LimitArgs,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct ReplayReport {
    file: String,
    same: bool,
    roots: Vec<RootReplay>,
}

#[derive(Serialize)]
struct RootReplay {
    name: String,
    /// Number of entries of the record.
    entries: usize,
    /// Number of orders that were equal in the comparison.
    orders: usize,
    difference: Option<DivergenceJson>,
    /// Number of checks of SF3P's invariants: one whenever the engine had no more orders.
    audits: usize,
    /// First violation of one of SF3P's invariants, as a sentence.
    violation: Option<String>,
}

/// Audits of the engine, one whenever the engine has no more orders.
#[derive(Default)]
struct Auditor {
    audits: usize,
    violation: Option<String>,
}

impl Auditor {
    fn audit(&mut self, machine: &Engine, now: Time) {
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

/// First order that differs from the record.
#[derive(Serialize)]
struct DivergenceJson {
    /// Index of the entry in the root's record, from 0.
    entry: usize,
    at_ns: u64,
    recorded: String,
    replayed: String,
}

pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let _watch = args.limit.watch(args.output.json)?;
    use anyhow::Context;
    let path = args.file.display();
    let content = read_text_bounded(&args.file, Recording::MAX_BYTES)
        .with_context(|| Unreadable::file(&args.file))?;
    let recording = Recording::read(&content).map_err(|why| usage(format!("{path}: {why}")))?;
    let system = recording.texts.system(&args.objects.registry()?)?;
    if system.roots.len() != recording.roots.len() {
        let (described, recorded) = (system.roots.len(), recording.roots.len());
        let described = count(described, "root");
        return Err(usage(format!("{path}: {described} described, {recorded} recorded")));
    }
    let mut roots = Vec::new();
    for (root, (_, record)) in system.roots.iter().zip(&recording.roots) {
        let mut machine =
            root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.kind))?;
        let is_order =
            |entry: &&talea_exec::RecordEntry| matches!(entry.kind, RecordKind::Order(_));
        let mut auditor = Auditor::default();
        let audit = |(): &mut (), machine: &Engine, now| auditor.audit(machine, now);
        let replayed = replay_to_sink(&mut machine, record, &mut (), audit);
        let (orders, difference) = match replayed {
            Ok(orders) => (orders, None),
            Err(difference) => {
                let same = record[..difference.at].iter().filter(is_order).count();
                (same, Some(divergence_json(root, &difference)))
            }
        };
        roots.push(RootReplay {
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
    let answer = ReplayReport { file: path.to_string(), same, roots };
    args.output.print(&answer, || text(&answer, colored()))?;
    Ok(if same && is_sound { Exit::Ok } else { Exit::Failure })
}

fn divergence_json(root: &Root, difference: &Divergence) -> DivergenceJson {
    let recorded = difference.recorded.map_or_else(
        || "nothing".to_owned(),
        |entry| match entry.kind {
            RecordKind::Order(order) => describe_order(root, order),
            RecordKind::Polled => "no more orders".to_owned(),
            RecordKind::Step => "a time that decreases, or is too late".to_owned(),
            RecordKind::Event(event) => {
                format!("{event:?}, which the engine does not accept there")
            }
        },
    );
    DivergenceJson {
        entry: difference.at,
        at_ns: difference.recorded.map_or(0, |entry| entry.now.as_ns()),
        recorded,
        replayed: difference
            .replayed
            .map_or_else(|| "no more orders".to_owned(), |order| describe_order(root, order)),
    }
}

fn describe_order(root: &Root, order: Order) -> String {
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

fn text(answer: &ReplayReport, color: bool) -> String {
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
