//! Text of values that several tables have, and the error of a value without text.

use std::fmt::{self, Write};
use talea_config::write::text;
use talea_core::engine::Affinity;
use talea_core::{CpuSet, Span, Time, Work};

/// Error: a system has a part that no system file can express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritable {
    /// Name of the item.
    pub name: String,
    /// Description of the item, and of the items that a file can express instead.
    pub why: String,
}

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

impl std::error::Error for Unwritable {}

pub(super) fn unwritable<T>(name: &str, why: impl Into<String>) -> Result<T, Unwritable> {
    Err(Unwritable { name: name.to_owned(), why: why.into() })
}

pub(super) fn pair(out: &mut String, name: &str, value: &str) {
    // Writing to a String can't fail.
    let _ = writeln!(out, "{name} = {value}");
}

/// Calls `say` for a value that differs from its default.
pub(super) fn unless<T: PartialEq + Copy>(default: T, value: T, say: impl FnOnce(T)) {
    if value != default {
        say(value);
    }
}

pub(super) fn span(span: Span) -> String {
    format!("\"{span}\"")
}

pub(super) fn work(work: Work) -> String {
    span(Span::from_ns(work.as_ns()))
}

pub(super) fn time(time: Time) -> String {
    span(time.since(Time::ZERO))
}

pub(super) fn list(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    format!("[{}]", numbers.join(", "))
}

/// Returns a bit mask as a list of the numbers of its bits.
pub(super) fn bits(mask: u64) -> String {
    let set: Vec<u32> = (0..u64::BITS).filter(|bit| mask >> bit & 1 == 1).collect();
    list(&set)
}

pub(super) fn cpus(affinity: Affinity) -> String {
    let set: CpuSet = (0..u64::BITS).filter(|cpu| affinity.0 >> cpu & 1 == 1).collect();
    text(&set.to_string())
}
