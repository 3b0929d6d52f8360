//! Import of ReTiF's files, as in its papers and its daemon, into Talea's configuration file.
//!
//! The import reads these files:
//! - Listing 2 of ReTiF (JSA 2021) with four columns;
//! - Listing 2 of its forerunner (ISORC 2020) with three columns and with `!` headings;
//! - Listing 3 (rules, in a separate file or among the plugins);
//! - the YAML of the published daemon.
//!
//! Model: a file becomes rows of cells with their positions (`rows`). The rows become lines of
//! Talea's file that keep the position of their cell (`lines`). Talea's own reader reads the result
//! once, and its diagnostics are reported at these positions. So an imported file is a file that
//! loads, if its CPUs and users exist.

mod rows;
mod values;
mod yaml;

use crate::lines::Lines;
use crate::system_file::File;
use rows::{PluginRow, Rows, RuleRow, Which};
use std::cell::RefCell;
use std::collections::HashMap;
use talea_config::diagnostic::{Diagnostic, harmless, quoted};
use talea_config::key::FileSection;
use talea_config::keys::Section;
use talea_config::source::{Findings, Source, words};
use talea_config::suggest;
use talea_config::write::text;
use talea_config::{self as config, Names, Target};
use talea_core::CpuSet;
use talea_core::cpus::MAX_CPUS;

/// Converts ReTiF's plugin file, and its rule file if given, into Talea's configuration.
///
/// Comments at the top of the result describe the differences of Talea's daemon.
///
/// # Errors
/// All diagnostics, with their positions in the imported files.
pub fn retif(plugins: File<'_>, rules: Option<File<'_>>) -> Result<String, Vec<Diagnostic>> {
    let sources = [
        Source::new(plugins.origin, capped(plugins.text)),
        Source::new(
            rules.map_or("rules", |file| file.origin),
            capped(rules.map_or("", |file| file.text)),
        ),
    ];
    let mut findings = [Findings::new(&sources[0]), Findings::new(&sources[1])];
    for (file, found) in [(Some(plugins), 0), (rules, 1)] {
        if file.is_some_and(|file| file.text.len() > config::FILE_MAX) {
            let what = format!("the file is larger than {} bytes", config::FILE_MAX);
            findings[found].error(&(0..0), words(what, "no configuration is", "name another file"));
        }
    }
    let mut all = Rows::default();
    if yaml::is_yaml(sources[0].text) {
        yaml::read(&mut all, &mut findings[0]);
    } else {
        rows::read_plugins(&mut all, &mut findings[0]);
    }
    if rules.is_some() {
        rows::read_rules(&mut all, &mut findings[1]);
    }
    if all.plugins.is_empty() && !findings[0].has_errors() {
        let remedy =
            "write lines of name, module, priorities and CPUs, such as `EDF EDF.so 100-100 0`";
        findings[0].error(
            &(0..0),
            words("there is no plugin in this file", "so there is nothing to import", remedy),
        );
    }
    if let Some(rule) = all.rules.get(config::RULES_MAX) {
        let what = format!("there are more than {} rules", config::RULES_MAX);
        let why = "what the daemon may be made to hold is bounded";
        findings[rule.which as usize]
            .error(&rule.domain.at, words(what, why, "merge some of them"));
        all.rules.truncate(config::RULES_MAX);
    }
    let lines = translate(&all, &sources, rules.is_some(), &mut findings);
    if findings.iter().all(|found| !found.has_errors()) {
        verify(&lines, &mut findings);
    }
    if findings.iter().all(|found| !found.has_errors()) {
        return Ok(lines.text);
    }
    Err(findings.into_iter().flat_map(Findings::finish).filter(Diagnostic::is_error).collect())
}

/// Returns `text`, or an empty text if it is too large.
fn capped(text: &str) -> &str {
    if text.len() > config::FILE_MAX { "" } else { text }
}

fn translate(
    all: &Rows<'_>,
    sources: &[Source<'_>; 2],
    with_rules: bool,
    findings: &mut [Findings<'_>; 2],
) -> Lines<Which> {
    let mut lines: Lines<Which> = Lines::default();
    let plain = |s: &str| -> String { s.chars().map(harmless).collect() };
    let mut from = plain(sources[0].origin);
    if with_rules {
        from = format!("{from} and {}", plain(sources[1].origin));
    }
    lines.say(&format!("# Imported by `talea import --from retif` from {from}."));
    for note in &all.notes {
        lines.say(&format!("# Note: {}", plain(note)));
    }
    if all.rules.is_empty() {
        lines.say("# Note: without rules only root is served; the published daemon checks none and serves all users.");
        lines.say("# Note: `access = \"off\"` does the same here.");
    }
    lines.say("");
    lines.say("[daemon]");
    lines.say("access = \"rules\"");
    lines.say("# The paper matches rules with the effective group only (JSA 2021, section 4.3).");
    lines.say("groups = \"effective\"");
    for plugin in &all.plugins {
        plugin_lines(plugin, &mut lines);
    }
    for rule in &all.rules {
        rule_lines(rule, all, &mut lines, &mut findings[rule.which as usize]);
    }
    lines
}

fn plugin_lines(plugin: &PluginRow<'_>, lines: &mut Lines<Which>) {
    let which = Which::Plugins;
    let module = plugin.module.as_ref().unwrap_or(&plugin.name);
    let known = values::kind(module.text);
    let band = values::band(plugin.band.text);
    lines.say("");
    if known == Some("edf") && band != "100-100" && band != "100" {
        lines.say(
            "# Note: the deadline class has no priorities; those of the original mean nothing.",
        );
    }
    if known.is_none() {
        lines.say(
            "# Note: not one of ReTiF's four plugins. It must be built again for talea_plugin.h.",
        );
    }
    lines.from("[[plugin]]", which, &plugin.name.at);
    lines.from(&format!("name = {}", text(plugin.name.text)), which, &plugin.name.at);
    lines.from(&format!("kind = {}", text(known.unwrap_or("foreign"))), which, &module.at);
    if known.is_none() {
        lines.from(
            &format!("module = {}", text(&values::module_path(module.text))),
            which,
            &module.at,
        );
    }
    lines.from(
        &format!("cpus = {}", text(&values::list(plugin.cpus.text))),
        which,
        &plugin.cpus.at,
    );
    if known == Some("edf") {
        lines.say("# ReTiF's EDF has a CPU for each task: the daemon makes each CPU a root domain (cgroup v1).");
        lines.say("confine = \"partition\"");
    }
    if known != Some("edf") {
        lines.from(&format!("priorities = {}", text(&band)), which, &plugin.band.at);
    }
    if known == Some("rm") {
        lines.say("# The paper's test, which accepts what may miss deadlines; \"exact\" does not.");
        lines.say("test = \"necessary\"");
    }
}

fn rule_lines(
    rule: &RuleRow<'_>,
    all: &Rows<'_>,
    lines: &mut Lines<Which>,
    findings: &mut Findings<'_>,
) {
    if rule.plugin.text != "-"
        && !all.plugins.iter().any(|plugin| plugin.name.text == rule.plugin.text)
    {
        let names = || all.plugins.iter().map(|plugin| plugin.name.text);
        let remedy = match suggest::nearest(rule.plugin.text, names()) {
            Some(near) => format!("did you mean {near}?"),
            None if all.plugins.is_empty() => "declare it, or write - for any".to_owned(),
            None => format!("write one of {}, or - for any", suggest::list(names().take(8))),
        };
        let what = format!("there is no plugin called {}", quoted(rule.plugin.text));
        findings
            .error(&rule.plugin.at, words(what, "this rule would never match a request", remedy));
    }
    let Some(key) = Section::Rule
        .key(rule.property.text)
        .filter(|key| !matches!(key.name, "domain" | "plugin"))
    else {
        let properties = || Section::Rule.keys().skip(2).map(|key| key.name);
        let remedy = match suggest::nearest(rule.property.text, properties()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("write one of {}", suggest::list(properties())),
        };
        let what = format!("{} is not a property", quoted(rule.property.text));
        let why = "the properties are those of ReTiF's Table 5";
        findings.error(&rule.property.at, words(what, why, remedy));
        return;
    };
    let value = match values::property(key, rule.value.text) {
        Ok(value) => value,
        Err((why, remedy)) => {
            let what = format!("{} is not a value of {}", quoted(rule.value.text), key.name);
            findings.error(&rule.value.at, words(what, why, remedy));
            return;
        }
    };
    lines.say("");
    lines.from("[[rule]]", rule.which, &rule.domain.at);
    lines.from(&format!("domain = {}", text(rule.domain.text)), rule.which, &rule.domain.at);
    lines.from(&format!("plugin = {}", text(rule.plugin.text)), rule.which, &rule.plugin.at);
    lines.from(&format!("{} = {value}", key.name), rule.which, &rule.value.at);
}

/// Reads the result for a computer that has every CPU and user. Diagnostics are reported at the
/// position that the line comes from.
fn verify(lines: &Lines<Which>, findings: &mut [Findings<'_>; 2]) {
    let everything = Target::new(CpuSet::first(MAX_CPUS as u32));
    let Err(found) = config::read(&lines.text, "imported", &AnyName::default(), &everything) else {
        return;
    };
    for diagnostic in found.into_iter().filter(Diagnostic::is_error) {
        let (which, at) = lines.origin(diagnostic.line).unwrap_or((Which::Plugins, 0..0));
        let what = with_original_lines(&diagnostic.what, lines, findings);
        let why = with_original_lines(&diagnostic.why, lines, findings);
        findings[which as usize].error(&at, words(what, why, values_alone(&diagnostic.remedy)));
    }
}

/// Replaces `line 11` of the result by the line of the imported file that it comes from.
fn with_original_lines(text: &str, lines: &Lines<Which>, findings: &[Findings<'_>; 2]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("line ") {
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number = after[..digits].parse().ok().map(|number: u32| match lines.origin(number) {
            Some((which, at)) => findings[which as usize].source.line(at.start),
            None => number,
        });
        out.push_str(before);
        out.push_str("line ");
        out.push_str(&number.map_or_else(String::new, |number| number.to_string()));
        rest = &after[digits..];
    }
    out + rest
}

/// Replaces `key = "value"` by `value`: the imported file has no keys, or others.
fn values_alone(text: &str) -> String {
    let mut out = String::new();
    for (number, part) in text.split('`').enumerate() {
        let value = part
            .split_once(" = ")
            .map(|(_, value)| value.trim_matches('"'))
            .filter(|_| number % 2 == 1);
        out.push_str(if number > 0 { "`" } else { "" });
        out.push_str(value.unwrap_or(part));
    }
    out
}

/// Users and groups in which every name exists. Equal names have equal ids.
#[derive(Default)]
struct AnyName {
    ids: RefCell<HashMap<String, u32>>,
}

impl AnyName {
    fn id(&self, name: &str) -> Option<u32> {
        let mut ids = self.ids.borrow_mut();
        // From the top of the range, because files do not use such numbers.
        let next = u32::MAX - 1 - u32::try_from(ids.len()).ok()?;
        Some(*ids.entry(name.to_owned()).or_insert(next))
    }
}

impl Names for AnyName {
    fn user(&self, name: &str) -> Option<u32> {
        self.id(name)
    }

    fn group(&self, name: &str) -> Option<u32> {
        self.id(name)
    }
}

#[cfg(test)]
mod tests;
