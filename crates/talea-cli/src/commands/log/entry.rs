//! A record of the audit trail.

use crate::user_names::UserNames;
use serde_json::{Map, Value};
use std::fmt::Write;
use talea_core::Span;
use talea_system::diagnostic::harmless;

/// A record of the audit trail, with its line.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Entry {
    line: String,
    fields: Map<String, Value>,
    number: u64,
}

impl Entry {
    /// Parses a line; `None` if it is not a complete record.
    pub(in crate::commands) fn parse(line: &str) -> Option<Entry> {
        let fields: Map<String, Value> = serde_json::from_str(line).ok()?;
        let number = fields.get("seq")?.as_u64()?;
        let has = |key: &str| fields.get(key).is_some_and(Value::is_string);
        (has("time") && has("event")).then_some(())?;
        Some(Entry { line: line.to_owned(), fields, number })
    }

    /// Returns the number of the record among those of its subject.
    pub(in crate::commands) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the line as it is stored.
    pub(in crate::commands) fn line(&self) -> &str {
        &self.line
    }

    /// Returns the time in UTC.
    pub(in crate::commands) fn time(&self) -> &str {
        self.word("time").unwrap_or_default()
    }

    /// Returns the name of the event.
    pub(in crate::commands) fn event(&self) -> &str {
        self.word("event").unwrap_or_default()
    }

    /// Returns the user, if the record is about one.
    pub(in crate::commands) fn uid(&self) -> Option<u32> {
        self.value("uid").and_then(|uid| u32::try_from(uid).ok())
    }

    /// Returns the user of the request, if it is another one.
    pub(in crate::commands) fn by(&self) -> Option<u32> {
        self.value("by").and_then(|by| u32::try_from(by).ok())
    }

    /// Returns the number of equal events that the record stands for.
    pub(in crate::commands) fn count(&self) -> usize {
        self.value("count").and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
    }

    /// Returns the text of a field.
    pub(in crate::commands) fn word(&self, key: &str) -> Option<&str> {
        self.fields.get(key)?.as_str()
    }

    /// Returns the integer of a field.
    pub(in crate::commands) fn integer(&self, key: &str) -> Option<i64> {
        self.fields.get(key)?.as_i64()
    }

    fn value(&self, key: &str) -> Option<u64> {
        self.fields.get(key)?.as_u64()
    }

    /// Returns the record as one line of text.
    pub(in crate::commands) fn text(&self, users: &mut UserNames) -> String {
        let user = self.uid().map_or_else(|| "-".to_owned(), |uid| users.name(uid));
        let mut text = format!("{}  {:8}  {user:12}", self.time(), self.event());
        let mut parts: Vec<String> = Vec::new();
        if let Some(pid) = self.value("pid") {
            parts.push(format!("process {pid}"));
        }
        for (key, word) in [
            ("tid", "thread"),
            ("spec", "spec"),
            ("request", "request"),
            ("plugin", "plugin"),
            ("cpu", "CPU"),
            ("version", "version"),
        ] {
            if let Some(value) = self.shown(key) {
                parts.push(format!("{word} {value}"));
            }
        }
        parts.extend(self.reason());
        if let Some(rule) = self.word("rule") {
            parts.push(format!("rule {rule}"));
        }
        if let Some(by) = self.by() {
            parts.push(format!("by {}", users.name(by)));
        }
        if let Some(count) = self.value("count") {
            let last = self.word("last").unwrap_or_default();
            parts.push(format!("{count} times until {last}"));
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "  {}", parts.join(", "));
        text.trim_end().chars().map(harmless).collect()
    }

    /// Returns a number or a text as it is shown.
    fn shown(&self, key: &str) -> Option<String> {
        match self.fields.get(key)? {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    /// Returns why the event happened, or what was seen.
    fn reason(&self) -> Vec<String> {
        let mut parts = Vec::new();
        if let Some(code) = self.word("code") {
            let field = self.word("field").filter(|field| *field != "request");
            parts.push(field.map_or_else(|| code.to_owned(), |field| format!("{code} ({field})")));
        }
        if let (Some(asked), Some(limit)) = (self.value("asked"), self.value("limit")) {
            parts.push(format!("asked {asked}, limit {limit}"));
        }
        if let Some(errno) = self.integer("errno") {
            let errno = i32::try_from(errno).unwrap_or(0);
            parts.push(std::io::Error::from_raw_os_error(errno).to_string());
        }
        let span = |key: &str| self.value(key).map(Span::from_ns);
        if let (Some(consumed), Some(budget), Some(period)) =
            (span("consumed_ns"), span("budget_ns"), span("period_ns"))
        {
            parts.push(format!("consumed {consumed} of {budget} in {period}"));
        }
        if let Some(ids) = self.fields.get("seen_uids") {
            parts.push(format!("user ids {ids}"));
        }
        if let (Some(policy), Some(cpus)) = (self.word("seen_policy"), self.word("seen_cpus")) {
            parts.push(format!("had {policy} on CPUs {cpus}"));
        }
        parts.extend(self.word("cause").map(str::to_owned));
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_of_text_without_control_characters() {
        let line = concat!(
            r#"{"seq":7,"time":"2026-11-28T07:00:00.000001Z","event":"refusal","uid":4294967294,"#,
            r#""pid":17,"pid_start":4711,"count":3,"last":"2026-11-28T07:00:00.900000Z","spec":5,"#,
            r#""plugin":"a\u001b[2Jb","rule":"talead.toml:12","request":"create","#,
            r#""code":"rule-bound","field":"period","asked":1,"limit":2}"#
        );
        let entry = Entry::parse(line).expect("a record");
        assert_eq!((entry.number(), entry.uid()), (7, Some(4_294_967_294)));
        assert_eq!(
            entry.text(&mut UserNames::default()),
            "2026-11-28T07:00:00.000001Z  refusal   4294967294    process 17, spec 5, request \
             create, plugin a\u{fffd}[2Jb, rule-bound (period), asked 1, limit 2, rule \
             talead.toml:12, 3 times until 2026-11-28T07:00:00.900000Z"
        );
        for torn in [&line[..line.len() - 1], "", "{}", r#"{"seq":1}"#, "[1]"] {
            assert!(Entry::parse(torn).is_none(), "{torn:?}");
        }
    }
}
