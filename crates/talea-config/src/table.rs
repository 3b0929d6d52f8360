//! Reader of one table of a file, key by key, which reports unknown keys.

use crate::diagnostic::quoted;
use crate::duration::SpanError;
use crate::key::{FileSection, Form, Key};
use crate::source::{Findings, words};
use crate::suggest;
use std::ops::Range;
use talea_core::Span;
use talea_core::mutate;
use toml::de::{DeTable, DeValue};

/// Table that is being read.
#[derive(Debug)]
pub struct Table<'a, S> {
    /// Section that the table is read as.
    pub section: S,
    entries: &'a DeTable<'a>,
    /// Position of the header, or of the braces of an inline table.
    pub at: Range<usize>,
    /// Known keys that resemble an unknown key. The reader does not also report them as missing.
    meant: Vec<&'static str>,
}

/// Value with its position and that of its key.
#[derive(Clone, Debug)]
pub struct Field<'a, S: 'static> {
    /// Entry of the list of keys.
    pub key: &'static Key<S>,
    /// Position of the key.
    pub key_at: Range<usize>,
    /// Position of the value.
    pub at: Range<usize>,
    /// The value.
    pub value: &'a DeValue<'a>,
}

/// Text value with its position.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// The text without escapes.
    pub text: &'a str,
    /// Position with the quotes.
    pub at: Range<usize>,
    /// Whether the bytes between the quotes equal the text, so that offsets are valid in the file.
    plain: bool,
}

impl Piece<'_> {
    /// Returns the position of the bytes `inside` of the text. If the text has escapes, returns the
    /// position of the whole value.
    pub fn part(&self, inside: Range<usize>) -> Range<usize> {
        if self.plain {
            self.at.start + 1 + inside.start..self.at.start + 1 + inside.end
        } else {
            self.at.clone()
        }
    }
}

impl<'a, S: FileSection> Table<'a, S> {
    /// Creates the reader of `entries` as a table of `section`, and reports unknown keys.
    pub fn new(
        section: S,
        entries: &'a DeTable<'a>,
        at: Range<usize>,
        findings: &mut Findings<'_>,
    ) -> Table<'a, S> {
        let mut meant = Vec::new();
        for (key, value) in entries {
            let name: &str = key.get_ref();
            mutate!(
                "config-unknown-key",
                if section.key(name).is_some() {
                    continue;
                },
                if section.key(name).is_some() || name.len() > 1 {
                    continue;
                }
            );
            if findings.is_full() {
                findings.count_errors(1);
            } else {
                meant.extend(unknown(section, name, value.get_ref(), &key.span(), findings));
            }
        }
        Table { section, entries, at, meant }
    }

    /// Returns the value of `name`, if the table has it.
    pub fn take(&self, name: &str) -> Option<Field<'a, S>> {
        let key = self.section.key(name).expect("the reader asks only for listed keys");
        let (found, value) = self.entries.get_key_value(name)?;
        Some(Field { key, key_at: found.span(), at: value.span(), value: value.get_ref() })
    }

    /// Returns all known keys of the table, in file order.
    pub fn fields(&self) -> Vec<Field<'a, S>> {
        let mut fields: Vec<Field<'a, S>> = self
            .section
            .keys()
            .filter_map(|key| self.entries.contains_key(key.name).then(|| self.take(key.name))?)
            .collect();
        fields.sort_by_key(|field| field.key_at.start);
        fields
    }

    /// Whether `name` is certainly missing. A missing key is not certain if some lines could not be
    /// read, or if an unknown key resembles `name`.
    pub fn lacks(&self, name: &str, findings: &Findings<'_>) -> bool {
        !self.entries.contains_key(name)
            && !findings.has_broken_lines()
            && !self.meant.contains(&name)
    }

    /// Returns the value of a required key ([`Table::take`]). Reports an error if the table
    /// certainly lacks the key ([`Table::lacks`]).
    pub fn require(&self, name: &str, findings: &mut Findings<'_>) -> Option<Field<'a, S>> {
        let field = self.take(name);
        if field.is_none() && self.lacks(name, findings) {
            let key = self.section.key(name).expect("the reader asks only for listed keys");
            findings.error(
                &self.at,
                words(
                    format!("{} has no `{name}`", self.section.header()),
                    key.reason(),
                    match key.form {
                        Form::Table => format!("add a table {}", key.example),
                        _ => format!("add a line such as `{name} = {}`", key.example),
                    },
                ),
            );
        }
        field
    }
}

/// Reports an unknown key. Returns the known key that it resembles, if any.
fn unknown<S: FileSection>(
    section: S,
    name: &str,
    value: &DeValue<'_>,
    at: &Range<usize>,
    findings: &mut Findings<'_>,
) -> Option<&'static str> {
    let elsewhere = S::file().iter().find(|key| key.name == name && key.section != section);
    let near = suggest::nearest(name, section.keys().map(|key| key.name));
    let remedy = match (near, elsewhere) {
        (_, Some(key)) => format!("`{name}` belongs to {}", key.section.header()),
        (Some(near), None) => format!("did you mean `{near}`?"),
        (None, None) => {
            let all: Vec<&str> = section.keys().map(|key| key.name).collect();
            format!("known here: {}", all.join(", "))
        }
    };
    let what = match (section.is_top(), value) {
        (true, DeValue::Table(_) | DeValue::Array(_)) => format!("unknown table {}", quoted(name)),
        (true, _) => format!("unknown key {} at the top of the file", quoted(name)),
        (false, _) => format!("unknown key {} in {}", quoted(name), section.header()),
    };
    findings.error(at, words(what, "an unknown key would be ignored silently", remedy));
    near
}

impl<'a, S: FileSection> Field<'a, S> {
    /// Reports that the value has the wrong type.
    pub fn mistyped(&self, findings: &mut Findings<'_>) {
        let given = match self.value {
            DeValue::String(_) => "text in quotes",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a decimal number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let name = self.key.name;
        let mut remedy = match self.key.form {
            Form::Word(list) => format!("write one of {}", suggest::list(list.iter().copied())),
            Form::Table => format!("write a table {}", self.key.example),
            _ => format!("write it like `{name} = {}`", self.key.example),
        };
        let mut why = self.key.reason();
        if let (Form::Decimal, DeValue::String(text)) = (self.key.form, self.value)
            && let Some(decimal) = decimal_in(text)
        {
            remedy = format!("write it without quotes: `{name} = {decimal}`");
        }
        if self.key.form == Form::Duration {
            why = "a number without a unit could be any of ns, us, ms or s".into();
            if let DeValue::Integer(number) = self.value {
                let number = number.as_str();
                remedy = format!(
                    "write it with its unit: `{name} = \"{number}us\"` or `{name} = \"{number}ms\"`"
                );
            }
        }
        let what = format!("`{name}` must be {}, not {given}", self.key.form.describe());
        findings.error(&self.at, words(what, why, remedy));
    }

    /// Reads a text.
    pub fn text(&self, findings: &mut Findings<'_>) -> Option<Piece<'a>> {
        let DeValue::String(text) = self.value else {
            self.mistyped(findings);
            return None;
        };
        let inner = findings.source.text.get(self.at.start + 1..self.at.end.saturating_sub(1));
        Some(Piece { text, at: self.at.clone(), plain: inner == Some(text.as_ref()) })
    }

    /// Reads a list of texts.
    pub fn texts(&self, findings: &mut Findings<'_>) -> Option<Vec<Piece<'a>>> {
        let DeValue::Array(items) = self.value else {
            self.mistyped(findings);
            return None;
        };
        items
            .iter()
            .map(|item| {
                Field { at: item.span(), value: item.get_ref(), ..self.clone() }.text(findings)
            })
            .collect()
    }

    /// Reads one of the words of the key's form, and returns its value in `values`.
    pub fn word<T: Copy>(
        &self,
        values: &[(&'static str, T)],
        findings: &mut Findings<'_>,
    ) -> Option<T> {
        let piece = self.text(findings)?;
        if let Some((_, value)) = values.iter().find(|(word, _)| *word == piece.text) {
            return Some(*value);
        }
        let list = || values.iter().map(|(word, _)| *word);
        let remedy = match suggest::nearest(piece.text, list()) {
            Some(near) => {
                format!("did you mean \"{near}\"? The words are {}", suggest::list(list()))
            }
            None => format!("write one of {}", suggest::list(list())),
        };
        let what = format!("{} is not a value of `{}`", quoted(piece.text), self.key.name);
        findings.error(&self.at, words(what, self.key.reason(), remedy));
        None
    }

    /// Reads a whole number within `least..=most`.
    pub fn integer(&self, least: u32, most: u32, findings: &mut Findings<'_>) -> Option<u32> {
        let value = self.whole_number(least.into(), most.into(), findings)?;
        Some(value as u32)
    }

    /// Variant of [`Field::integer`] for a range with negative numbers.
    pub fn signed_integer(
        &self,
        least: i32,
        most: i32,
        findings: &mut Findings<'_>,
    ) -> Option<i32> {
        let value = self.whole_number(least.into(), most.into(), findings)?;
        Some(value as i32)
    }

    fn whole_number(&self, least: i64, most: i64, findings: &mut Findings<'_>) -> Option<i64> {
        let DeValue::Integer(number) = self.value else {
            self.mistyped(findings);
            return None;
        };
        let value = i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX);
        match i64::try_from(value) {
            Ok(value) if (least..=most).contains(&value) => Some(value),
            _ => {
                let what = format!("`{}` must be {}", self.key.name, self.key.range);
                let near = if value < i128::from(least) { least } else { most };
                let remedy = format!("the nearest that works is `{} = {near}`", self.key.name);
                findings.error(&self.at, words(what, self.key.reason(), remedy));
                None
            }
        }
    }

    /// Reads a list of whole numbers within `least..=most`.
    pub fn integers(&self, least: u32, most: u32, findings: &mut Findings<'_>) -> Option<Vec<u32>> {
        let DeValue::Array(items) = self.value else {
            self.mistyped(findings);
            return None;
        };
        items
            .iter()
            .map(|item| {
                if !matches!(item.get_ref(), DeValue::Integer(_)) {
                    let name = self.key.name;
                    let what = format!("`{name}` holds something that is not a whole number");
                    let remedy = format!("write it like `{name} = {}`", self.key.example);
                    findings.error(&item.span(), words(what, self.key.reason(), remedy));
                    return None;
                }
                let item = Field { at: item.span(), value: item.get_ref(), ..self.clone() };
                item.integer(least, most, findings)
            })
            .collect()
    }

    /// Reads `true` or `false`.
    pub fn boolean(&self, findings: &mut Findings<'_>) -> Option<bool> {
        let value = self.value.as_bool();
        if value.is_none() {
            self.mistyped(findings);
        }
        value
    }

    /// Reads a duration, which may be zero. Zero needs no unit.
    pub fn duration_or_zero(&self, findings: &mut Findings<'_>) -> Option<Span> {
        let is_zero = |text: &str| {
            text == "0" || crate::duration::parse_span(text).is_ok_and(|span: Span| span.is_zero())
        };
        match self.value {
            DeValue::String(text) if is_zero(text.as_ref()) => Some(Span::ZERO),
            _ => self.duration(findings),
        }
    }

    /// Reads a duration above zero.
    pub fn duration(&self, findings: &mut Findings<'_>) -> Option<Span> {
        if !matches!(self.value, DeValue::String(_)) {
            self.mistyped(findings);
            return None;
        }
        let piece = self.text(findings)?;
        let name = self.key.name;
        match crate::duration::parse_span(piece.text) {
            Ok(span) if span.is_zero() => {
                let what = format!("`{name}` is zero");
                let remedy = format!(
                    "write a duration above zero, such as {}, or leave the line out",
                    self.key.example
                );
                findings.error(
                    &self.at,
                    words(what, "a bound of zero allows nothing or says nothing", remedy),
                );
                None
            }
            Ok(span) if S::MAX_SPAN.is_some_and(|longest| span > longest) => {
                let what = format!("`{name}` is longer than 73 years");
                let why = "sums of times must fit into 64 bits";
                findings.error(&self.at, words(what, why, "write a shorter one"));
                None
            }
            Ok(span) => Some(span),
            Err(error) => {
                let what = format!("{} is not a duration", quoted(piece.text));
                let remedy = match &error {
                    SpanError::NoUnit(number) => {
                        format!("write `{name} = \"{number}us\"` or `{name} = \"{number}ms\"`")
                    }
                    SpanError::Blank(tight) => format!("write `{name} = \"{tight}\"`"),
                    _ => format!("write it like `{name} = {}`", self.key.example),
                };
                findings.error(&self.at, words(what, error.to_string(), remedy));
                None
            }
        }
    }

    /// Reads a utilisation above zero, from the digits of the file.
    pub fn charge(&self, findings: &mut Findings<'_>) -> Option<talea_core::Charge> {
        let (name, example) = (self.key.name, self.key.example);
        let read = match self.value {
            DeValue::Float(number) => crate::decimal::parse_charge(number.as_str()),
            DeValue::Integer(number) if number.radix() == 10 => {
                crate::decimal::parse_charge(number.as_str())
            }
            _ => {
                self.mistyped(findings);
                return None;
            }
        };
        let (what, why) = match read {
            Ok(charge) if charge > talea_core::Charge::ZERO => return Some(charge),
            Ok(_) => (format!("`{name}` is zero"), "nothing at all would fit".to_owned()),
            Err(why) => (format!("`{name}` is not a utilisation"), why.to_string()),
        };
        let remedy = format!(
            "write a decimal above zero, such as `{name} = {example}`; 1.0 is one whole CPU"
        );
        findings.error(&self.at, words(what, why, remedy));
        None
    }
}

/// Returns the decimal that a text probably means: `0.5`, or `50%` of a CPU.
fn decimal_in(text: &str) -> Option<String> {
    use crate::decimal::{parse_charge, write_charge};
    let text = text.trim();
    let Some(percent) = text.strip_suffix('%') else {
        return parse_charge(text).is_ok().then(|| text.to_owned());
    };
    let percent: u32 = percent.trim().parse().ok().filter(|percent| *percent <= 100_000)?;
    write_charge(parse_charge(&format!("{}.{:02}", percent / 100, percent % 100)).ok()?)
}
