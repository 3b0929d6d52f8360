//! Reader of `[[scheduler]]` with its slots and entries.

use super::values::{Field, Table, affinity, byte, list, name, named, optional, work_of};
use crate::draft::{EntryDraft, Place, PolicyDraft, SchedulerDraft, SlotDraft};
use crate::keys::Section;
use crate::keys::{POLICIES, SELECTIONS, SERVERS};
use crate::registry::Registry;
use talea_config::source::{Findings, words};
use talea_core::Span;
use talea_core::engine::{Migration, Selection};
use talea_core::server::{Reservation, ServerKind};

const KINDS: [(&str, ServerKind); 5] = [
    (SERVERS[0], ServerKind::Polling),
    (SERVERS[1], ServerKind::Deferrable),
    (SERVERS[2], ServerKind::Sporadic),
    (SERVERS[3], ServerKind::HardCbs),
    (SERVERS[4], ServerKind::SoftCbs),
];

/// Default weight of a trade-off, in thousandths.
const WEIGHT: u32 = 500;

pub(super) fn scheduler(
    table: &Table<'_>,
    file: usize,
    registry: &Registry,
    findings: &mut Findings<'_>,
) -> Option<SchedulerDraft> {
    let name = name(table, "name", file, findings);
    let parent = optional(table, "in", findings, |field, findings| named(field, file, findings));
    let custom = registry.servers().map(|(name, make)| (name, ServerKind::Custom { name, make }));
    let kinds: Vec<(&str, ServerKind)> = KINDS.into_iter().chain(custom).collect();
    let server =
        optional(table, "server", findings, |field, findings| field.word(&kinds, findings));
    let policies: Vec<(&str, &str)> = POLICIES
        .into_iter()
        .chain(registry.policies().map(|policy| policy.0))
        .map(|word| (word, word))
        .collect();
    let policy = match (table.take("policy"), &server) {
        // Also beside a server that could not be read.
        (None, Ok(Some(_)) | Err(())) => Some("fifo"),
        _ => table.require("policy", findings).and_then(|field| field.word(&policies, findings)),
    };
    let cpus = optional(table, "cpus", findings, |field, findings| field.integer(1, 64, findings));
    let migration = optional(table, "migration", findings, |field, findings| {
        field.word(
            &[("anytime", Migration::Anytime), ("job-boundaries", Migration::JobBoundaries)],
            findings,
        )
    });
    let preemptive = optional(table, "preemptive", findings, Field::boolean);
    let lending = optional(table, "lending", findings, Field::boolean);
    let priority = optional(table, "priority", findings, byte);
    let criticality = optional(table, "criticality", findings, byte);
    let affinity =
        optional(table, "affinity", findings, |field, findings| affinity(field, file, findings));
    let selection = selection(table, registry, findings);
    let inheritance = optional(table, "inheritance", findings, Field::boolean);
    let mut spans = [Ok(None); 7];
    let keys = ["quantum", "frame", "budget", "period", "deadline", "hyperperiod", "offset"];
    for (span, key) in spans.iter_mut().zip(keys) {
        *span = optional(table, key, findings, |field, findings| {
            if key == "offset" {
                field.duration_or_zero(findings)
            } else {
                field.duration(findings)
            }
        });
    }
    let [quantum, frame, budget, period, deadline, hyperperiod, offset] = spans;
    let mut slots = Vec::new();
    for slot in list(table, "slot", Section::Slot, findings) {
        slots.push(self::slot(&slot, file, findings));
    }
    let mut entries = Vec::new();
    for entry in list(table, "entry", Section::Entry, findings) {
        entries.push(self::entry(&entry, file, findings));
    }
    // What belongs to another kind of scheduler would be ignored without a word.
    let (kind, is_server) = (policy?, server.ok()?.is_some());
    for (key, fits, whose) in [
        ("quantum", kind == "rr", "policy `rr`"),
        ("frame", kind == "partitions", "policy `partitions`"),
        ("slot", kind == "partitions", "policy `partitions`"),
        ("lending", kind == "partitions", "policy `partitions`"),
        ("hyperperiod", kind == "table", "policy `table`"),
        ("entry", kind == "table", "policy `table`"),
        ("budget", is_server, "a `server`"),
        ("deadline", is_server, "a `server`"),
        ("offset", is_server, "a `server`"),
        ("period", is_server, "a `server`"),
        ("cpus", parent == Ok(None), "a root"),
        ("migration", parent == Ok(None), "a root"),
        ("selection", parent == Ok(None), "a root"),
        (
            "weight",
            matches!(selection, None | Some(Selection::TradeOff { .. })),
            "selection `trade-off`",
        ),
        ("inheritance", parent == Ok(None), "a root"),
        ("affinity", !matches!(parent, Ok(None)), "a child of a root"),
    ] {
        if let (false, Some(field)) = (fits, table.take(key)) {
            let what = format!("`{key}` belongs to {whose}, and this is none");
            findings.error(
                &field.key_at,
                words(what, "it would be ignored without a word", "leave the line out"),
            );
        }
    }
    let needed: &[&str] = match kind {
        "rr" => &["quantum"],
        "partitions" => &["frame", "slot"],
        "table" => &["hyperperiod", "entry"],
        _ => &[],
    };
    let of_a_server: &[&str] = if is_server { &["budget", "period"] } else { &[] };
    let mut complete = true;
    for key in needed.iter().chain(of_a_server) {
        complete &= table.require(key, findings).is_some();
    }
    if !complete {
        return None;
    }
    let (quantum, frame, hyperperiod) = (quantum.ok()?, frame.ok()?, hyperperiod.ok()?);
    let slots = slots.into_iter().collect::<Option<_>>()?;
    let entries = entries.into_iter().collect::<Option<_>>()?;
    let lending = lending.ok()?.unwrap_or(false);
    let policy = match kind {
        "rr" => PolicyDraft::RoundRobin { quantum: quantum? },
        "partitions" => PolicyDraft::Partitions { frame: frame?, lending, slots },
        "table" => PolicyDraft::Table { hyperperiod: hyperperiod?, entries },
        other => PolicyDraft::Named(other),
    };
    let (budget, period, deadline) = (budget.ok()?, period.ok()?, deadline.ok()?);
    let offset = offset.ok()?.unwrap_or(Span::ZERO);
    let server = match server.ok()? {
        Some(kind) => {
            Some(Reservation { kind, budget: work_of(budget?), period: period?, deadline, offset })
        }
        None => None,
    };
    Some(SchedulerDraft {
        name: name?,
        parent: parent.ok()?,
        policy,
        server,
        cpus: cpus.ok()?.unwrap_or(1),
        migration: migration.ok()?.unwrap_or_default(),
        preemptive: preemptive.ok()?.unwrap_or(true),
        priority: priority.ok()?,
        criticality: criticality.ok()?,
        affinity: affinity.ok()?,
        selection: selection?,
        inheritance: inheritance.ok()?.unwrap_or(true),
    })
}

/// Reads the selection rule of versions of a root.
fn selection(
    table: &Table<'_>,
    registry: &Registry,
    findings: &mut Findings<'_>,
) -> Option<Selection> {
    let weight =
        optional(table, "weight", findings, |field, findings| field.integer(0, 1_000, findings))
            .ok()?;
    let [declared, energy, trade_off, mode, mask] = SELECTIONS;
    let mut words = vec![
        (declared, Selection::Declared),
        (energy, Selection::Energy),
        (trade_off, Selection::TradeOff { weight: weight.unwrap_or(WEIGHT) }),
        (mode, Selection::Mode),
        (mask, Selection::Mask),
    ];
    words.extend(registry.selections().map(|(name, choose)| (name, Selection::User(choose))));
    let read =
        optional(table, "selection", findings, |field, findings| field.word(&words, findings));
    Some(read.ok()?.unwrap_or_default())
}

fn slot(table: &Table<'_>, file: usize, findings: &mut Findings<'_>) -> Option<SlotDraft> {
    let owner = name(table, "owner", file, findings);
    let start = optional(table, "start", findings, Field::duration_or_zero);
    let length = table.require("length", findings).and_then(|field| field.duration(findings));
    let place = Place { file, at: table.at.clone() };
    Some(SlotDraft { owner: owner?, start: start.ok()?, length: length?, place })
}

fn entry(table: &Table<'_>, file: usize, findings: &mut Findings<'_>) -> Option<EntryDraft> {
    let owner = name(table, "owner", file, findings);
    let cpu = optional(table, "cpu", findings, |field, findings| field.integer(0, 63, findings));
    let start = optional(table, "start", findings, Field::duration_or_zero);
    let length = table.require("length", findings).and_then(|field| field.duration(findings));
    let version =
        optional(table, "version", findings, |field, findings| named(field, file, findings));
    let activates = optional(table, "activates", findings, Field::boolean);
    let continues = optional(table, "continues", findings, Field::boolean);
    Some(EntryDraft {
        owner: owner?,
        cpu: cpu.ok()?.unwrap_or(0),
        start: start.ok()?,
        length: length?,
        version: version.ok()?,
        activates: activates.ok()?.unwrap_or(false),
        continues: continues.ok()?.unwrap_or(false),
        place: Place { file, at: table.at.clone() },
    })
}
