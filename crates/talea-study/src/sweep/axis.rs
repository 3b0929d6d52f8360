//! Axes of a grid: a name and its values.
//!
//! Grammar: `VALUE,VALUE,…`, where each value may be a range `FROM..TO/STEP` of numbers or
//! durations. Both ends are included as far as the steps reach. A step of 1 may be omitted between
//! whole numbers. Commas within brackets, braces and quotes belong to a value. Ranges are computed
//! in integers, so that `0.1..1/0.1` ends at 1.

use crate::options::parts;
use talea_config::duration::parse_span;
use talea_core::Span;
use talea_sim::generate::decimal;

/// Maximum number of values of one axis.
const MAX_VALUES: u64 = 10_000;

/// Target that an axis changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AxisTarget {
    /// A key of the file.
    Key(String),
    /// The policy of every root.
    Policy,
    /// The number of generated tasks.
    Tasks,
    /// The sum of the utilizations of the generated tasks.
    Utilization,
}

impl AxisTarget {
    /// Returns the name of the target in options and reports.
    pub fn word(&self) -> &str {
        match self {
            AxisTarget::Key(key) => key,
            AxisTarget::Policy => "policy",
            AxisTarget::Tasks => "tasks",
            AxisTarget::Utilization => "utilization",
        }
    }
}

/// Axis of a grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Value that the axis changes.
    pub target: AxisTarget,
    /// Values of the axis, at least one.
    pub values: Vec<String>,
}

impl Axis {
    /// Parses `KEY=VALUES`.
    pub fn key(text: &str) -> Result<Axis, String> {
        let (key, list) = text.split_once('=').ok_or("write it like task.video.cost=1ms,2ms")?;
        let key = key.trim();
        if key.is_empty() || key.split('.').any(str::is_empty) {
            return Err(format!("`{key}` is not the path of a key, such as task.video.cost"));
        }
        Ok(Axis { target: AxisTarget::Key(key.to_owned()), values: values(list)? })
    }

    /// Parses the list of a target with its own option.
    pub fn of(target: AxisTarget, list: &str) -> Result<Axis, String> {
        Ok(Axis { target, values: values(list)? })
    }

    /// Returns the name of the axis in reports.
    pub fn name(&self) -> &str {
        self.target.word()
    }

    /// Returns the option that sets one value.
    pub fn option(&self, value: &str) -> String {
        match &self.target {
            AxisTarget::Key(key) => format!("--set {key}={value}"),
            _ => format!("--{} {value}", self.name()),
        }
    }

    /// Returns the values as numbers if all of them are numbers. Durations are in milliseconds.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        self.values.iter().map(|value| number(value)).collect()
    }
}

#[allow(clippy::cast_precision_loss, reason = "plotted")]
fn number(value: &str) -> Option<f64> {
    if let Ok(number) = value.parse::<f64>() {
        return number.is_finite().then_some(number);
    }
    parse_span(value).ok().map(|span| span.as_ns() as f64 / 1e6)
}

/// Returns all values of a list.
pub fn values(list: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for piece in split_values(list) {
        let piece = piece.trim();
        if piece.is_empty() {
            return Err(format!("there is an empty value in `{list}`"));
        }
        match range(piece)? {
            Some(range) => found.extend(range),
            None => found.push(piece.to_owned()),
        }
        if found.len() as u64 > MAX_VALUES {
            return Err(format!("there are more than {MAX_VALUES} values"));
        }
    }
    for (at, value) in found.iter().enumerate() {
        if found[..at].contains(value) {
            return Err(format!("`{value}` is there twice"));
        }
    }
    Ok(found)
}

/// Splits at commas outside of brackets, braces and quotes.
fn split_values(list: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut start) = (0_u32, None, 0);
    let mut found = Vec::new();
    for (at, c) in list.char_indices() {
        match (quoted, c) {
            (Some(mark), _) if c == mark => quoted = None,
            (None, '"' | '\'') => quoted = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                found.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&list[start..]);
    found
}

/// Returns the values of `FROM..TO/STEP`. Returns `None` if the text is no range.
fn range(piece: &str) -> Result<Option<Vec<String>>, String> {
    let Some((from, rest)) =
        piece.split_once("..").filter(|_| !piece.contains(['"', '\'', '[', '{']))
    else {
        return Ok(None);
    };
    let (to, step) = match rest.split_once('/') {
        Some((to, step)) => (to, Some(step)),
        None => (rest, None),
    };
    let is_number =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let wrong = |why: &str| format!("`{piece}` is no range: {why}");
    let whole = |text: &str| text.parse::<u64>().ok();
    if let (Some(first), Some(last), Some(step)) =
        (whole(from), whole(to), whole(step.unwrap_or("1")))
    {
        let all = steps(first, last, step).map_err(|why| wrong(&why))?;
        return Ok(Some(all.map(|n| n.to_string()).collect()));
    }
    if is_number(from) && is_number(to) {
        let step = step.ok_or_else(|| wrong("it needs a step, such as 0.1..1/0.1"))?;
        let part = |text| parts(text).map_err(|why| wrong(&why));
        let all = steps(part(from)?, part(to)?, part(step)?).map_err(|why| wrong(&why))?;
        return Ok(Some(all.map(decimal).collect()));
    }
    let span = |text| parse_span(text).map(Span::as_ns).map_err(|why| wrong(&why.to_string()));
    let step = step.ok_or_else(|| wrong("it needs a step, such as 1ms..5ms/1ms"))?;
    let all = steps(span(from)?, span(to)?, span(step)?).map_err(|why| wrong(&why))?;
    Ok(Some(all.map(|ns| Span::from_ns(ns).to_string()).collect()))
}

fn steps(from: u64, to: u64, step: u64) -> Result<impl Iterator<Item = u64>, String> {
    if step == 0 {
        return Err("its step is 0".to_owned());
    }
    let Some(length) = to.checked_sub(from) else {
        return Err("it ends before it begins".to_owned());
    };
    if length / step >= MAX_VALUES {
        return Err(format!("it has more than {MAX_VALUES} values"));
    }
    Ok((0..=length / step).map(move |n| from + n * step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_values() {
        let is = |list: &str, expected: &[&str]| {
            assert_eq!(values(list).expect(list), expected, "{list}");
        };
        is("edf,rm", &["edf", "rm"]);
        is("0.1..0.5/0.1", &["0.1", "0.2", "0.3", "0.4", "0.5"]);
        is("0.5..0.99/0.2,1", &["0.5", "0.7", "0.9", "1"]);
        is("1..3", &["1", "2", "3"]);
        is("2000..9000/3500", &["2000", "5500", "9000"]);
        is("1ms..2ms/500us, 9s", &["1ms", "1500us", "2ms", "9s"]);
        is(
            "{ min = \"1ms\", max = \"2ms\" },\"3ms\"",
            &["{ min = \"1ms\", max = \"2ms\" }", "\"3ms\""],
        );
        is("[\"1ms\", \"2ms\"]", &["[\"1ms\", \"2ms\"]"]);
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_reason() {
        let why = |list: &str| values(list).expect_err(list);
        for (list, part) in [
            ("", "empty value"),
            ("1,,2", "empty value"),
            ("2..1", "ends before it begins"),
            ("0.1..1", "needs a step"),
            ("1ms..2ms", "needs a step"),
            ("1ms..2ms/0", "step is 0"),
            ("1ms..2/1ms", "no unit"),
            ("1..100000", "more than 10000"),
            ("a..b/c", "no range"),
            ("1,2,1", "twice"),
        ] {
            assert!(why(list).contains(part), "{list}: {}", why(list));
        }
        assert!(
            Axis::key("cost").is_err()
                && Axis::key("=1").is_err()
                && Axis::key("task..cost=1").is_err()
        );
    }

    #[test]
    fn numbers_are_distinguished_from_words() {
        let numbers = |list| Axis::of(AxisTarget::Tasks, list).expect("a list").numbers();
        assert_eq!(numbers("1,2.5"), Some(vec![1.0, 2.5]));
        assert_eq!(numbers("1ms,500us"), Some(vec![1.0, 0.5]));
        assert_eq!(numbers("edf,1"), None);
    }
}
