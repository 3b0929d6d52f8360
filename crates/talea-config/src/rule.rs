//! Reader of `[[rule]]`: a table becomes one rule for each of its properties.

use crate::daemon::{Id, lookup};
use crate::diagnostic::quoted;
use crate::keys::Section;
use crate::plugin::ON_OVERRUN;
use crate::source::{Findings, words};
use crate::suggest;
use crate::table::{Field, Piece, Table};
use crate::target::{Names, Target};
use std::ops::Range;
use talea_core::setup::{Bound, DEADLINE_CLASS, Domain, Rule};
use talea_core::{Charge, Priority, Work};

/// Maximum number of `[[rule]]` tables in one file.
pub const RULES_MAX: usize = 10_000;

/// Rule with its position.
pub(super) struct RuleAt {
    pub(super) rule: Rule,
    pub(super) at: Range<usize>,
}

/// Reads one table. `plugins` are all names that the file declares, valid or not.
pub(super) fn read(
    table: &Table<'_, Section>,
    plugins: &[String],
    names: &dyn Names,
    target: &Target,
    findings: &mut Findings<'_>,
) -> Vec<RuleAt> {
    let domain =
        table.require("domain", findings).and_then(|field| domain(&field, names, findings));
    let plugin = match table.take("plugin") {
        None => Some(None),
        Some(field) => plugin(&field, plugins, findings),
    };
    let mut bounds = Vec::new();
    let mut properties = 0;
    for field in table.fields() {
        if matches!(field.key.name, "domain" | "plugin") {
            continue;
        }
        properties += 1;
        if let Some(bound) = bound(&field, target, findings) {
            bounds.push((bound, field.key_at.start..field.at.end.max(field.key_at.end)));
        }
    }
    if properties == 0 && !findings.has_broken_lines() {
        findings.error(
            &table.at,
            words(
                "this rule bounds nothing",
                "service is granted within bounds; a rule without one would grant everything",
                "add a bound such as `max_utilization = 0.7`",
            ),
        );
    }
    let (Some(domain), Some(plugin)) = (domain, plugin) else { return Vec::new() };
    let origin = |at: &Range<usize>| {
        format!("{}:{}", findings.source.origin, findings.source.line(at.start))
    };
    bounds
        .into_iter()
        .map(|(bound, at)| RuleAt { rule: Rule { domain, plugin, bound, origin: origin(&at) }, at })
        .collect()
}

fn domain(
    field: &Field<'_, Section>,
    names: &dyn Names,
    findings: &mut Findings<'_>,
) -> Option<Domain> {
    let piece = field.text(findings)?;
    if piece.text == "-" {
        return Some(Domain::Global);
    }
    if piece.text.contains(char::is_whitespace) || piece.text == "*" {
        let what = format!("{} is not a domain", quoted(piece.text));
        let remedy = "write a user, \"@group\", \"#1000\", \"@#1000\", or \"-\" for every user";
        findings.error(&field.at, words(what, field.key.reason(), remedy));
        return None;
    }
    let (which, from) = if piece.text.starts_with('@') { (Id::Group, 1) } else { (Id::User, 0) };
    let id = lookup(field, &piece.text[from..], whole_or(&piece, from), which, names, findings)?;
    Some(match which {
        Id::User => Domain::User(id),
        Id::Group => Domain::Group(id),
    })
}

/// Returns the position of the text from byte `from`, or of the whole value if that text is empty.
fn whole_or(piece: &Piece<'_>, from: usize) -> Range<usize> {
    if from == 0 || from >= piece.text.len() {
        piece.at.clone()
    } else {
        piece.part(from..piece.text.len())
    }
}

/// Reads `plugin`. The outer `None` is an error, the inner `None` is any plugin.
#[expect(clippy::option_option, reason = "wrong, any and one are three answers")]
fn plugin(
    field: &Field<'_, Section>,
    plugins: &[String],
    findings: &mut Findings<'_>,
) -> Option<Option<usize>> {
    let piece = field.text(findings)?;
    if piece.text == "-" {
        return Some(None);
    }
    if let Some(index) = plugins.iter().position(|name| name == piece.text) {
        return Some(Some(index));
    }
    // A plugin whose name could not be read may be the one that is meant.
    if findings.has_broken_lines() {
        return None;
    }
    let all = || plugins.iter().map(String::as_str);
    let remedy = match suggest::nearest(piece.text, all()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if plugins.is_empty() => "declare the plugin, or write \"-\" for any".to_owned(),
        None => format!("write {}, or \"-\" for any", suggest::list(all().take(8))),
    };
    let what = format!("there is no plugin called {}", quoted(piece.text));
    findings.error(&field.at, words(what, "this rule would never match a request", remedy));
    None
}

fn bound(
    field: &Field<'_, Section>,
    target: &Target,
    findings: &mut Findings<'_>,
) -> Option<Bound> {
    let level = |findings: &mut Findings<'_>| {
        let most = DEADLINE_CLASS.max(*target.priorities.end());
        let level = field.integer((*target.priorities.start()).into(), most.into(), findings);
        level.map(|level| Priority(level as u8))
    };
    match field.key.name {
        "max_utilization" => {
            let charge = field.charge(findings)?;
            beyond_the_machine(field, charge, target, findings);
            Some(Bound::MaxUtilization(charge))
        }
        "max_runtime" => {
            field.duration(findings).map(|span| Bound::MaxRuntime(Work::from_ns(span.as_ns())))
        }
        "min_period" => field.duration(findings).map(Bound::MinPeriod),
        "max_period" => field.duration(findings).map(Bound::MaxPeriod),
        "min_deadline" => field.duration(findings).map(Bound::MinDeadline),
        "max_deadline" => field.duration(findings).map(Bound::MaxDeadline),
        "min_priority" => level(findings).map(Bound::MinPriority),
        "max_priority" => level(findings).map(Bound::MaxPriority),
        "ignore_adm_test" => field.boolean(findings).map(Bound::IgnoreAdmission),
        "allow_unbounded" => field.boolean(findings).map(Bound::AllowUnbounded),
        "on_overrun" => field.word(&ON_OVERRUN, findings).map(Bound::OnOverrun),
        "min_nice" => {
            field.signed_integer(-20, 19, findings).map(|nice| Bound::MinNice(nice as i8))
        }
        name => unreachable!("`{name}` is listed for [[rule]] but has no meaning here"),
    }
}

/// Reports a utilisation above all CPUs, which bounds nothing. A whole number up to 100 probably is
/// a percentage.
fn beyond_the_machine(
    field: &Field<'_, Section>,
    charge: Charge,
    target: &Target,
    findings: &mut Findings<'_>,
) {
    let cpus = target.cpus.len();
    if charge <= Charge::from_bits((cpus as u128) << 64) {
        return;
    }
    let written = crate::decimal::write_charge(charge).unwrap_or_default();
    let whole = written.strip_suffix(".0").and_then(|digits| digits.parse::<u32>().ok());
    let remedy = match whole.filter(|percent| *percent <= 100) {
        Some(percent) => {
            format!(
                "for {percent} % of one CPU write `max_utilization = {}.{:02}`",
                percent / 100,
                percent % 100
            )
        }
        None => format!("write at most `max_utilization = {cpus}.0`, or leave the line out"),
    };
    let what = format!("`max_utilization` is more than this machine's {cpus} CPUs");
    findings
        .warning(&field.at, words(what, "1.0 is one whole CPU, so this bounds nothing", remedy));
}
