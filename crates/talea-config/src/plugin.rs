//! Reader of `[[plugin]]`.

use crate::daemon::absolute;
use crate::diagnostic::quoted;
use crate::keys::{KINDS, Section};
use crate::lexis::{BandError, band_within, name_problem, parse_band};
use crate::source::{Findings, words};
use crate::suggest;
use crate::table::{Field, Table};
use crate::target::Target;
use std::ops::Range;
use talea_core::CpuSet;
pub(super) use talea_core::setup::PLUGINS_MAX;
use talea_core::setup::{
    Band, Confine, EdfOptions, ForeignClass, ForeignOptions, FpLevels, FpOptions, OnOverrun,
    PluginKind, PluginSetup, RmOptions, RmTest,
};
use talea_core::{Charge, Span};

/// Shortest and longest timeout for the replies of a foreign plugin.
const TIMEOUT: (Span, Span) = (Span::from_ns(1_000_000), Span::from_ns(10_000_000_000));
const TIMEOUT_DEFAULT: Span = Span::from_ns(50_000_000);
const ARGUMENT_MAX: usize = 4_096;
/// Number of the highest priorities that the daemon and watchdogs use.
const DAEMON_PRIORITIES: u8 = 2;

pub(super) const CONFINE: [(&str, Confine); 3] =
    [("auto", Confine::Auto), ("partition", Confine::Partition), ("global", Confine::Global)];
pub(super) const TEST: [(&str, RmTest); 4] = [
    ("necessary", RmTest::Necessary),
    ("liu-layland", RmTest::LiuLayland),
    ("hyperbolic", RmTest::Hyperbolic),
    ("exact", RmTest::Exact),
];
pub(super) const ON_OVERRUN: [(&str, OnOverrun); 3] = [
    ("notify", OnOverrun::Notify),
    ("throttle", OnOverrun::Throttle),
    ("demote", OnOverrun::Demote),
];
pub(super) const LEVELS: [(&str, FpLevels); 2] =
    [("each", FpLevels::Each), ("common", FpLevels::Common)];
pub(super) const CLASS: [(&str, ForeignClass); 3] =
    [("fifo", ForeignClass::Fifo), ("rr", ForeignClass::Rr), ("deadline", ForeignClass::Deadline)];

/// Plugin with the positions that later checks report.
pub(super) struct PluginAt {
    pub(super) setup: PluginSetup,
    pub(super) cpus_at: Range<usize>,
    /// Position of the band, or of the CPUs for a plugin without a band.
    pub(super) band_at: Range<usize>,
    pub(super) line: u32,
}

/// Reads one table; `None` after an error.
pub(super) fn read(
    table: &Table<'_, Section>,
    target: &Target,
    findings: &mut Findings<'_>,
) -> Option<PluginAt> {
    let name = table.require("name", findings).and_then(|field| name(&field, findings));
    let kind = table.require("kind", findings).and_then(|field| {
        let words: Vec<(&'static str, &'static str)> =
            KINDS.iter().map(|&word| (word, word)).collect();
        field.word(&words, findings)
    });
    let cpus_field = table.require("cpus", findings);
    let cpus = cpus_field.as_ref().and_then(|field| cpus(field, target, findings));
    let on_overrun = match table.take("on_overrun") {
        Some(field) => field.word(&ON_OVERRUN, findings)?,
        None => OnOverrun::default(),
    };
    // The kind determines which other keys are allowed.
    let kind = kind?;
    for field in table.fields() {
        if !field.key.kinds.is_empty() && !field.key.kinds.contains(&kind) {
            misplaced(&field, kind, findings);
        }
    }
    let options = options(kind, table, findings);
    let is_deadline = options.as_ref().map_or(kind == "edf", PluginKind::is_deadline);
    let band_field = if is_deadline { None } else { table.require("priorities", findings) };
    if let Some(PluginKind::Foreign(foreign)) = &options {
        of_another_class(table, foreign, findings);
    }
    let band = band_field.as_ref().and_then(|field| band(field, target, findings));
    let (name, cpus_field, band_at) =
        (name?, cpus_field?, band_field.as_ref().map(|field| field.at.clone()));
    if !is_deadline && band.is_none() {
        return None;
    }
    Some(PluginAt {
        setup: PluginSetup { name, cpus: cpus?, band, kind: options?, on_overrun },
        band_at: band_at.unwrap_or_else(|| cpus_field.at.clone()),
        cpus_at: cpus_field.at,
        line: findings.source.line(table.at.start),
    })
}

fn options(
    kind: &str,
    table: &Table<'_, Section>,
    findings: &mut Findings<'_>,
) -> Option<PluginKind> {
    let mut refuse_sharing = false;
    if matches!(kind, "rm" | "fp" | "rr")
        && let Some(field) = table.take("refuse_sharing")
    {
        refuse_sharing = field.boolean(findings)?;
    }
    let levels = match table.take("levels") {
        Some(field) if matches!(kind, "fp" | "rr") => field.word(&LEVELS, findings)?,
        _ => FpLevels::default(),
    };
    match kind {
        "edf" => {
            let threshold = match table.take("threshold") {
                Some(field) => Some(threshold(&field, findings)?),
                None => None,
            };
            let confine = match table.take("confine") {
                Some(field) => field.word(&CONFINE, findings)?,
                None => Confine::default(),
            };
            Some(PluginKind::Edf(EdfOptions { threshold, confine }))
        }
        "rm" => {
            let test = match table.take("test") {
                Some(field) => field.word(&TEST, findings)?,
                None => RmTest::default(),
            };
            Some(PluginKind::Rm(RmOptions { test, refuse_sharing }))
        }
        "fp" => Some(PluginKind::Fp(FpOptions { refuse_sharing, levels })),
        "rr" => Some(PluginKind::Rr(FpOptions { refuse_sharing, levels })),
        _ => foreign(table, findings).map(PluginKind::Foreign),
    }
}

/// Reports the keys of a foreign plugin that do not belong to its class.
fn of_another_class(
    table: &Table<'_, Section>,
    options: &ForeignOptions,
    findings: &mut Findings<'_>,
) {
    let is_deadline = options.class == ForeignClass::Deadline;
    let (keys, what, remedy): (&[&str], _, _) = if is_deadline {
        (&["priorities", "on_overrun"], "fixed priorities", "remove it")
    } else if options.confine == Confine::default() {
        return;
    } else {
        (&["confine"], "`class` = \"deadline\"", "remove it, or write `class = \"deadline\"`")
    };
    let fields = table.fields();
    for field in fields.iter().filter(|field| keys.contains(&field.key.name)) {
        let why = "the class of its threads determines which options have an effect";
        let what = format!("`{}` is an option for {what} only", field.key.name);
        findings.error(&field.at, words(what, why, remedy));
    }
}

fn foreign(table: &Table<'_, Section>, findings: &mut Findings<'_>) -> Option<ForeignOptions> {
    let module = table.require("module", findings).and_then(|field| {
        let piece = field.text(findings)?;
        absolute(&field, &piece, 4_096, findings).then(|| piece.text.to_owned())
    });
    let argument = match table.take("argument") {
        None => Some(String::new()),
        Some(field) => field.text(findings).and_then(|piece| {
            let wrong = if piece.text.len() > ARGUMENT_MAX {
                Some(format!("`argument` is longer than {ARGUMENT_MAX} bytes"))
            } else if piece.text.contains('\0') {
                Some("`argument` holds a zero byte".to_owned())
            } else {
                None
            };
            let Some(what) = wrong else { return Some(piece.text.to_owned()) };
            let why = "the module receives it as a C string of bounded length";
            findings.error(&field.at, words(what, why, "pass the path of a file instead"));
            None
        }),
    };
    let timeout = match table.take("timeout") {
        None => Some(TIMEOUT_DEFAULT),
        Some(field) => field.duration(findings).and_then(|span| {
            if (TIMEOUT.0..=TIMEOUT.1).contains(&span) {
                return Some(span);
            }
            let what = format!("a timeout of {span} is outside {} to {}", TIMEOUT.0, TIMEOUT.1);
            let why =
                "shorter ones fail by mere scheduling noise, longer ones keep clients waiting";
            findings.error(&field.at, words(what, why, "write `timeout = \"50ms\"`"));
            None
        }),
    };
    let class = match table.take("class") {
        None => Some(ForeignClass::default()),
        Some(field) => field.word(&CLASS, findings),
    };
    let confine = match table.take("confine") {
        None => Some(Confine::default()),
        Some(field) => field.word(&CONFINE, findings),
    };
    Some(ForeignOptions {
        module: module?,
        argument: argument?,
        timeout: timeout?,
        class: class?,
        confine: confine?,
    })
}

fn name(field: &Field<'_, Section>, findings: &mut Findings<'_>) -> Option<String> {
    let piece = field.text(findings)?;
    match name_problem(piece.text) {
        None => Some(piece.text.to_owned()),
        Some(why) => {
            let what = format!("{} can't be the name of a plugin", quoted(piece.text));
            let remedy = format!("write a short word such as `name = {}`", field.key.example);
            findings.error(&field.at, words(what, why, remedy));
            None
        }
    }
}

/// Reports an option that belongs to another kind.
fn misplaced(field: &Field<'_, Section>, kind: &str, findings: &mut Findings<'_>) {
    let name = field.key.name;
    let (why, remedy) = match (kind, name) {
        ("edf", "priorities") => (
            "the deadline class runs above all priorities and has none of its own".to_owned(),
            "remove the line".to_owned(),
        ),
        _ => (
            format!(
                "`{name}` is an option of {} only",
                suggest::list(field.key.kinds.iter().copied())
            ),
            "remove the line, or change the kind".to_owned(),
        ),
    };
    findings.error(
        &field.key_at,
        words(format!("a plugin of kind \"{kind}\" has no `{name}`"), why, remedy),
    );
}

fn cpus(
    field: &Field<'_, Section>,
    target: &Target,
    findings: &mut Findings<'_>,
) -> Option<CpuSet> {
    let piece = field.text(findings)?;
    if piece.text == "all" {
        return Some(target.cpus);
    }
    let set = match CpuSet::parse(piece.text) {
        Ok(set) => set,
        Err(error) => {
            let at = match error {
                talea_core::cpus::CpuListError::Syntax(at) => {
                    let at = at.min(piece.text.len());
                    let width = piece.text[at..].chars().next().map_or(0, char::len_utf8);
                    piece.part(at..at + width)
                }
                _ => field.at.clone(),
            };
            let what = format!("{} is not a list of CPUs", quoted(piece.text));
            let remedy = if piece.text.eq_ignore_ascii_case("all") || piece.text == "*" {
                "write `cpus = \"all\"`"
            } else {
                "write numbers, ranges and commas like `cpus = \"0-3,5\"`, or `cpus = \"all\"`"
            };
            findings.error(&at, words(what, error.to_string(), remedy));
            return None;
        }
    };
    let missing = set.difference(&target.present);
    if let Some(highest) = missing.iter().last() {
        let (plural, verb) = if missing.len() == 1 { ("", "does") } else { ("s", "do") };
        let what = format!("CPU{plural} {missing} {verb} not exist here");
        let why = format!("this machine has {}", target.present);
        let remedy = format!(
            "write CPUs out of \"{}\" or \"all\"; to check for another machine: `talea check --cpus {}`",
            target.present,
            highest + 1
        );
        findings.error(&field.at, words(what, why, remedy));
        return None;
    }
    Some(set)
}

fn band(field: &Field<'_, Section>, target: &Target, findings: &mut Findings<'_>) -> Option<Band> {
    let piece = field.text(findings)?;
    let (least, most) = (target.priorities.start(), target.priorities.end());
    let why = format!("kernel priorities are {least} (least) to {most} (most urgent)");
    let pair = match parse_band(piece.text) {
        Ok(pair) => pair,
        Err(BandError::Syntax) => {
            let what = format!("{} is not a range of priorities", quoted(piece.text));
            // Other ways to write a range.
            let dashed = piece.text.replace("..", "-").replace(['–', '—', ':', ','], "-");
            let dashed: String = dashed.split_whitespace().collect();
            let meant = parse_band(&dashed)
                .ok()
                .filter(|&pair| band_within(pair, &target.priorities).is_some());
            let shown = meant.map_or("50-89".to_owned(), |(low, high)| format!("{low}-{high}"));
            findings.error(
                &field.at,
                words(what, why, format!("write it like `priorities = \"{shown}\"`")),
            );
            return None;
        }
        Err(BandError::Backwards(low, high)) => {
            let what = format!("the priorities {low}-{high} run backwards");
            let remedy = format!("did you mean `priorities = \"{high}-{low}\"`?");
            findings.error(&field.at, words(what, "the least urgent one comes first", remedy));
            return None;
        }
    };
    let Some(band) = band_within(pair, &target.priorities) else {
        let what = format!("priorities {}-{} are not all there", pair.0, pair.1);
        let fits = (
            pair.0.max(u32::from(*least)),
            pair.1.min(u32::from(*most) - u32::from(DAEMON_PRIORITIES)),
        );
        let remedy = if fits.0 <= fits.1 {
            format!("write `priorities = \"{}-{}\"`", fits.0, fits.1)
        } else {
            "write it like `priorities = \"50-89\"`".to_owned()
        };
        findings.error(&field.at, words(what, why, remedy));
        return None;
    };
    if band.high.0 > most - DAEMON_PRIORITIES {
        findings.warning(
            &field.at,
            words(
                format!("priority {} is handed out", band.high.0),
                "the highest two priorities are those of the daemon and of watchdogs; a thread that never sleeps there \
                 starves them",
                format!("end the band at {}", most - DAEMON_PRIORITIES),
            ),
        );
    }
    Some(band)
}

fn threshold(field: &Field<'_, Section>, findings: &mut Findings<'_>) -> Option<Charge> {
    let charge = field.charge(findings)?;
    if charge <= Charge::ONE {
        return Some(charge);
    }
    let why = "above 1 every set of tasks that passes could be overloaded (ReTiF section 5.1)";
    let remedy = "write a decimal above 0 and up to 1, such as `threshold = 0.9`";
    findings.error(&field.at, words("`threshold` is more than one whole CPU", why, remedy));
    None
}
