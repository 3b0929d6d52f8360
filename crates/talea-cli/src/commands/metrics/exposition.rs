//! Text formats of Prometheus (version 0.0.4) and of OpenMetrics (version 1.0).
//!
//! The formats differ in the name of a counter's family, which ends in `_total` in the first one
//! only, and in the last line.
//!
//! *Cardinality.* A family has at most [`MAX_SERIES`] series. Its last one has the label `other`
//! and the sum of all further ones.

use std::fmt::Write;

/// Maximum number of series of a family, so that all families together have at most 200.
pub(super) const MAX_SERIES: usize = 24;

/// First word of every name.
const PREFIX: &str = "talea";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Prometheus,
    OpenMetrics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Value that goes up and down.
    Gauge,
    /// Count that only rises while the daemon runs.
    Counter,
}

/// Series of a family: the values of its labels, and its value.
pub(super) type Series = (Vec<String>, f64);

/// Text under construction.
pub(super) struct Exposition {
    format: Format,
    text: String,
}

impl Exposition {
    pub(super) fn new(format: Format) -> Exposition {
        Exposition { format, text: String::new() }
    }

    /// Adds a family of one series without labels.
    pub(super) fn one(&mut self, kind: Kind, name: &str, help: &str, value: f64) {
        self.labelled(kind, name, help, &[], vec![(Vec::new(), value)]);
    }

    /// Adds a family. Without a series, the family is omitted.
    pub(super) fn labelled(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        labels: &[&str],
        mut series: Vec<Series>,
    ) {
        if series.is_empty() {
            return;
        }
        if series.len() > MAX_SERIES {
            let rest: f64 = series.drain(MAX_SERIES - 1..).map(|(_, value)| value).sum();
            series.push((vec!["other".to_owned(); labels.len()], rest));
        }
        let suffix = if kind == Kind::Counter { "_total" } else { "" };
        let word = if kind == Kind::Counter { "counter" } else { "gauge" };
        self.head(name, suffix, word, help);
        for (values, value) in series {
            let pairs = labels.iter().copied().zip(values.iter().map(String::as_str));
            self.sample(&format!("{name}{suffix}"), pairs, value);
        }
    }

    /// Adds a histogram: `counts` has a count for each bucket, and one beyond the last bound.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        bounds: &[f64],
        counts: &[u64],
        sum: f64,
    ) {
        self.head(name, "", "histogram", help);
        let mut total = 0;
        let bounds = bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(counts) {
            total += count;
            self.sample(&format!("{name}_bucket"), [("le", &*bound)], total as f64);
        }
        self.sample(&format!("{name}_sum"), [], sum);
        self.sample(&format!("{name}_count"), [], total as f64);
    }

    /// Returns the text.
    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn head(&mut self, name: &str, suffix: &str, kind: &str, help: &str) {
        let suffix = if self.format == Format::Prometheus { suffix } else { "" };
        let name = format!("{PREFIX}_{name}{suffix}");
        // Writing to a String can't fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample<'a>(
        &mut self,
        name: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        value: f64,
    ) {
        let pairs =
            labels.into_iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value)));
        let pairs = pairs.collect::<Vec<_>>().join(",");
        let braces = if pairs.is_empty() { String::new() } else { format!("{{{pairs}}}") };
        let _ = writeln!(self.text, "{PREFIX}_{name}{braces} {value}");
    }
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}
