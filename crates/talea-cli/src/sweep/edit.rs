//! A value put into a system file where its path says.
//!
//! Model: a path is keys between dots, as the manual of system files names them: `duration`, `task.video.cost`,
//! `scheduler.cpu0.slot.vision.length`. Of tables that come several times one is chosen by its `name` (a slot by its
//! `owner`), by the beginning of several names with `*`, or by its number from 0. What is not there yet is added; whether
//! it may be is for the reader of the file to say. Lines keep their numbers, so that its complaints fit the original.

use talea_core::Span;
use talea_system::duration::parse_span;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, Value};

/// Which keys name one of several tables.
const NAMES: [&str; 4] = ["name", "owner", "resource", "task"];

/// `text` as a value: as TOML reads it, or else as a text (`1ms` need not be quoted). Nothing has no unit in files: `0ms`,
/// as a range may begin with, is `"0"`.
fn value(text: &str) -> Value {
    if text != "0" && parse_span(text).is_ok_and(Span::is_zero) {
        return Value::from("0");
    }
    text.parse().unwrap_or_else(|_| Value::from(text))
}

/// Puts `text` at `path`; in how many places. The document stays as it is where there is none.
pub(crate) fn set(document: &mut DocumentMut, path: &str, text: &str) -> usize {
    within(document.as_table_mut(), path, &value(text))
}

fn within(table: &mut Table, path: &str, value: &Value) -> usize {
    let Some((key, rest)) = path.split_once('.') else {
        match table.get_mut(path) {
            Some(Item::Value(old)) => {
                let decor = old.decor().clone();
                // A text stays one: `0` for `"4ms"` is a duration.
                let is_bare = matches!(value, Value::Integer(_) | Value::Float(_));
                *old = if is_bare && old.is_str() { value.to_string().trim().into() } else { value.clone() };
                *old.decor_mut() = decor;
            }
            // A table is not replaced by a value.
            Some(Item::Table(_) | Item::ArrayOfTables(_)) => return 0,
            _ => _ = table.insert(path, Item::Value(value.clone())),
        }
        return 1;
    };
    match table.get_mut(key) {
        Some(Item::Table(inner)) => within(inner, rest, value),
        Some(Item::ArrayOfTables(list)) => one_of(list, rest, value),
        _ => 0,
    }
}

/// Names may hold dots, so every dot may be the one after the name; the first that leads somewhere is.
fn one_of(list: &mut ArrayOfTables, path: &str, value: &Value) -> usize {
    for (dot, _) in path.match_indices('.') {
        let (name, rest) = (&path[..dot], &path[dot + 1..]);
        let chosen: Vec<usize> = (0..list.len()).filter(|&at| is_called(list, at, name)).collect();
        let mut places = 0;
        for at in chosen {
            places += list.get_mut(at).map_or(0, |table| within(table, rest, value));
        }
        if places > 0 {
            return places;
        }
    }
    0
}

fn is_called(list: &ArrayOfTables, at: usize, wanted: &str) -> bool {
    let Some(table) = list.get(at) else { return false };
    let name = NAMES.iter().find_map(|key| table.get(key).and_then(Item::as_str));
    match (name, wanted.strip_suffix('*')) {
        (Some(name), Some(start)) => name.starts_with(start),
        (Some(name), None) if name == wanted => true,
        _ => wanted.parse() == Ok(at),
    }
}

/// The paths of the policies of all roots.
pub(crate) fn policies(document: &DocumentMut) -> Vec<String> {
    let Some(Item::ArrayOfTables(list)) = document.get("scheduler") else { return Vec::new() };
    let roots = list.iter().enumerate().filter(|(_, table)| !table.contains_key("in"));
    roots.map(|(at, _)| format!("scheduler.{at}.policy")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "duration = \"1s\" # short\n\n[[scheduler]]\nname = \"cpu0\"\npolicy = \"partitions\"\n\n\
                        [[scheduler.slot]]\nowner = \"a.b\"\nlength = \"2ms\"\n\n[[scheduler]]\nname = \"a.b\"\nin = \
                        \"cpu0\"\npolicy = \"edf\"\n\n[[task]]\nname = \"v.1\"\ncost = \"1ms\"\n\n[[task]]\nname = \
                        \"v.2\"\ncost = \"1ms\"\n\n[overheads]\nswitch = \"1us\"\n";

    fn changed(path: &str, text: &str) -> (usize, Vec<String>) {
        let mut document: DocumentMut = FILE.parse().expect("TOML");
        let places = set(&mut document, path, text);
        let text = document.to_string();
        let new: Vec<String> =
            text.lines().filter(|line| !FILE.lines().any(|old| old == *line)).map(str::to_owned).collect();
        (places, new)
    }

    #[test]
    fn values_are_put_where_the_path_says() {
        let is = |path: &str, text: &str, places: usize, lines: &[&str]| {
            assert_eq!(
                changed(path, text),
                (places, lines.iter().map(|line| (*line).to_owned()).collect()),
                "{path}"
            );
        };
        is("duration", "2s", 1, &["duration = \"2s\" # short"]);
        is("task.v.1.cost", "7ms", 1, &["cost = \"7ms\""]);
        is("task.v*.cost", "7ms", 2, &["cost = \"7ms\"", "cost = \"7ms\""]);
        is("task.1.offset", "7ms", 1, &["offset = \"7ms\""]);
        is("scheduler.cpu0.slot.a.b.length", "7ms", 1, &["length = \"7ms\""]);
        is("scheduler.a.b.policy", "\"rm\"", 1, &["policy = \"rm\""]);
        is("scheduler.cpu0.cpus", "2", 1, &["cpus = 2"]);
        is("task.1.jitter", "0ms", 1, &["jitter = \"0\""]);
        is("overheads.switch", "0", 1, &["switch = \"0\""]);
        is(
            "task.v.1.cost",
            "{ min = \"1ms\", max = \"2ms\" }",
            1,
            &["cost = { min = \"1ms\", max = \"2ms\" }"],
        );
        for nowhere in ["task.w.cost", "task.cost", "task", "hole.0.start", "duration.x", "task.7.cost"] {
            is(nowhere, "1", 0, &[]);
        }
    }

    #[test]
    fn roots_are_the_schedulers_that_stand_in_none() {
        assert_eq!(policies(&FILE.parse().expect("TOML")), ["scheduler.0.policy"]);
    }
}
