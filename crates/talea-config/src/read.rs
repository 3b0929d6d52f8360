//! Reader of the daemon's configuration file: TOML to a checked setup, or to all its errors.
//!
//! Model: the reader checks the syntax first, then each table by itself, then relations between
//! tables. The reader reports a line with a syntax error once, and suppresses errors that only
//! follow from that line. A file with an error yields no setup.
//!
//! The module [`crate::keys`] lists the keys, and `docs/manual/configuration.md` defines them. The
//! reference is ReTiF (JSA 2021), sections 3.5 and 4.

use crate::key::FileSection;
use crate::keys::Section;
use crate::setup::Loaded;
use crate::source::{FILE_MAX, Findings, Source, words};
use crate::table::{Field, Table};
use crate::target::{Names, Target};
use crate::{Diagnostic, checks, daemon, plugin, rule, syntax};
use std::ops::Range;
use talea_core::setup::{Root, Setup};
use toml::de::{DeTable, DeValue};

/// Reads a configuration from bytes that may be no UTF-8 text. For UTF-8 text the result equals
/// that of [`read`].
///
/// # Errors
/// All diagnostics, in file order. At least one is an error.
pub fn read_bytes(
    bytes: &[u8],
    origin: &str,
    names: &dyn Names,
    target: &Target,
) -> Result<Loaded, Vec<Diagnostic>> {
    // Cut first: what is too large is not looked at. The cut may split a character, which then is
    // no error.
    let error = match std::str::from_utf8(&bytes[..bytes.len().min(FILE_MAX + 1)]) {
        Ok(text) => return read(text, origin, names, target),
        Err(_) if bytes.len() > FILE_MAX => {
            return read(&"#".repeat(FILE_MAX + 1), origin, names, target);
        }
        Err(error) => error,
    };
    let good = error.valid_up_to();
    let shown = String::from_utf8_lossy(bytes);
    let source = Source::new(origin, &shown);
    let mut findings = Findings::new(&source);
    findings.error(
        &(good..good + '\u{fffd}'.len_utf8()),
        words(
            format!("byte {:#04x} is not UTF-8 text", bytes[good]),
            "TOML files are UTF-8",
            "save the file as UTF-8; names in another encoding can be replaced by \"#number\"",
        ),
    );
    Err(findings.finish())
}

/// Reads a configuration. `origin` is the name of the file in diagnostics and in
/// [`talea_core::setup::Rule::origin`].
///
/// # Errors
/// All diagnostics, in file order. At least one is an error.
pub fn read(
    text: &str,
    origin: &str,
    names: &dyn Names,
    target: &Target,
) -> Result<Loaded, Vec<Diagnostic>> {
    if text.len() > FILE_MAX {
        let source = Source::new(origin, "");
        let mut findings = Findings::new(&source);
        let what = format!("the file is larger than {FILE_MAX} bytes");
        findings.error(
            &(0..0),
            words(what, "no configuration is; is this the right file?", "name another file"),
        );
        return Err(findings.finish());
    }
    let source = Source::new(origin, text);
    let mut findings = Findings::new(&source);
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        let remedy = "start from the sample file `talead.toml`, or write one [[plugin]]";
        findings.error(
            &(0..0),
            words("the file is empty", "a daemon without plugins serves no request", remedy),
        );
        return Err(findings.finish());
    }
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    let headers_hold = syntax::report(syntax_errors, document.get_ref(), &mut findings);
    let loaded = headers_hold.then(|| tables(document.get_ref(), names, target, &mut findings));
    let failed = findings.has_errors();
    let found = findings.finish();
    match loaded {
        Some(loaded) if !failed => Ok(Loaded { warnings: found, ..loaded }),
        _ => Err(found),
    }
}

/// Returns the contents of the whole file, which are meaningful only if `findings` has no error.
fn tables(
    document: &DeTable<'_>,
    names: &dyn Names,
    target: &Target,
    findings: &mut Findings<'_>,
) -> Loaded {
    let top = Table::new(Section::Top, document, 0..0, findings);
    let daemon = match top.take("daemon") {
        None => daemon::DaemonPart::default(),
        Some(Field { value: DeValue::Table(table), at, .. }) => {
            daemon::read(&Table::new(Section::Daemon, table, at, findings), names, findings)
        }
        Some(field) => {
            brackets(&field, "write [daemon] in single brackets, once", findings);
            daemon::DaemonPart::default()
        }
    };
    let plugin_tables = list(&top, "plugin", Section::Plugin, plugin::PLUGINS_MAX, findings);
    if plugin_tables.is_empty() && !findings.has_broken_lines() && !findings.has_errors() {
        let remedy = "add one: a line `[[plugin]]`, then `name`, `kind`, `cpus` and, except for edf, `priorities`";
        findings.error(
            &(0..0),
            words("there is no plugin", "a daemon without plugins serves no request", remedy),
        );
    }
    let mut declared: Vec<(String, Range<usize>)> = Vec::new();
    let mut plugins = Vec::new();
    for table in &plugin_tables {
        if let Some(Field { value: DeValue::String(name), at, .. }) = table.take("name") {
            declared.push((name.to_string(), at));
        }
        plugins.extend(plugin::read(table, target, findings));
    }
    checks::unique_names(&declared, findings);
    let complete = plugins.len() == plugin_tables.len();
    let known: Vec<String> = declared.into_iter().map(|(name, _)| name).collect();
    let mut rules = Vec::new();
    for table in &list(&top, "rule", Section::Rule, rule::RULES_MAX, findings) {
        rules.extend(rule::read(table, &known, names, target, findings));
    }
    checks::plugin_pairs(&plugins, findings);
    checks::unservable(&plugins, target, findings);
    checks::contradictions(&rules, findings);
    if complete {
        checks::idle_rules(&daemon, &plugins, &rules, findings);
    }
    if rules.is_empty()
        && daemon.root == Root::Ruled
        && daemon.access == talea_core::setup::Access::Rules
    {
        let at = top.take("daemon").and_then(|field| match field.value {
            DeValue::Table(table) => {
                table.get_key_value("root").map(|(key, value)| key.span().start..value.span().end)
            }
            _ => None,
        });
        let remedy = "add a [[rule]], or leave root unrestricted";
        let text = words("no user is served", "there are no rules, and root needs one too", remedy);
        if !findings.has_errors() {
            findings.warning(&at.unwrap_or(0..0), text);
        }
    }
    let origin = findings.source.origin;
    Loaded {
        daemon: daemon.daemon,
        plugin_origins: plugins.iter().map(|p| format!("{origin}:{}", p.line)).collect(),
        setup: Setup {
            plugins: plugins.into_iter().map(|p| p.setup).collect(),
            rules: rules.into_iter().map(|r| r.rule).collect(),
            access: daemon.access,
            root: daemon.root,
            groups: daemon.groups,
            quota: daemon.quota,
            front_ends: daemon.front_ends,
            subordinate_users: Vec::new(),
        },
        warnings: Vec::new(),
    }
}

/// Returns the tables of the list `name`.
fn list<'a>(
    top: &Table<'a, Section>,
    name: &str,
    section: Section,
    most: usize,
    findings: &mut Findings<'_>,
) -> Vec<Table<'a, Section>> {
    let Some(field) = top.take(name) else { return Vec::new() };
    let DeValue::Array(items) = field.value else {
        brackets(
            &field,
            "write [[plugin]] and [[rule]] in double brackets, once for each",
            findings,
        );
        return Vec::new();
    };
    let mut tables = Vec::new();
    for item in items {
        match item.get_ref() {
            DeValue::Table(table) if tables.len() < most => {
                tables.push(Table::new(section, table, item.span(), findings));
            }
            DeValue::Table(_) => {
                let what = format!("there are more than {most} of {}", section.header());
                let why = "what the daemon may be made to hold is bounded";
                findings.error(&item.span(), words(what, why, "merge some of them"));
                break;
            }
            _ => {
                let what = format!("an element of `{name}` is not a table");
                let remedy =
                    format!("write {} in double brackets, once for each", section.header());
                findings.error(&item.span(), words(what, field.key.reason(), remedy));
            }
        }
    }
    tables
}

/// Reports a table that is written in another form.
fn brackets(field: &Field<'_, Section>, remedy: &str, findings: &mut Findings<'_>) {
    let what = format!("`{}` is not written as {}", field.key.name, field.key.example);
    findings.error(&field.key_at, words(what, field.key.reason(), remedy));
}
