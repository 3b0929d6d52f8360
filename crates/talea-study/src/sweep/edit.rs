//! Edits of a system file at a path.
//!
//! Model: a path is a sequence of keys with dots, named as in the manual of system files:
//! `duration`, `task.video.cost`, `scheduler.cpu0.slot.vision.length`. One of several tables is
//! selected by its `name` (a slot by its `owner`), by a prefix of several names with `*`, or by its
//! number from 0; names take precedence over numbers. A missing key is added; the reader of the
//! file checks whether that is valid. Lines keep their numbers, so that error positions fit the
//! original.

use talea_config::duration::parse_span;
use talea_core::Span;
use talea_core::mutate;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, Value};

/// Keys that name one of several tables.
const NAMES: [&str; 4] = ["name", "owner", "resource", "task"];

/// Parses `text` as a TOML value, or else as a string (`1ms` needs no quotes). In files zero has no
/// unit, so `0ms`, as in a range, becomes `"0"`.
fn value(text: &str) -> Value {
    if text != "0" && parse_span(text).is_ok_and(Span::is_zero) {
        return Value::from("0");
    }
    text.parse().unwrap_or_else(|_| Value::from(text))
}

/// Location in a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Keys of the path. The key of an array of tables has the index of the selected table.
    steps: Vec<(String, Option<usize>)>,
    /// Whether a number selects a table of the file; in another file the number means another
    /// table.
    pub is_numbered: bool,
}

impl Place {
    fn then(&self, key: &str, number: Option<usize>) -> Place {
        let mut place = self.clone();
        place.steps.push((key.to_owned(), number));
        place
    }

    /// Whether `self` and `other` are the same location.
    pub fn is_same(&self, other: &Place) -> bool {
        self.steps == other.steps
    }
}

/// Returns the locations of `path`.
pub fn places(document: &DocumentMut, path: &str) -> Vec<Place> {
    within(document.as_table(), path, &Place::default())
}

fn within(table: &Table, path: &str, above: &Place) -> Vec<Place> {
    let Some((key, rest)) = path.split_once('.') else {
        // A value does not replace a table.
        let is_table = matches!(table.get(path), Some(Item::Table(_) | Item::ArrayOfTables(_)));
        return if is_table { Vec::new() } else { vec![above.then(path, None)] };
    };
    match table.get(key) {
        Some(Item::Table(inner)) => within(inner, rest, &above.then(key, None)),
        Some(Item::ArrayOfTables(list)) => some_of(list, key, rest, above),
        _ => Vec::new(),
    }
}

/// Returns the locations of `path` in one of several tables. Names may contain dots, so every dot
/// may end the name, and the first match wins. A name that looks like a number is a name.
fn some_of(list: &ArrayOfTables, key: &str, path: &str, above: &Place) -> Vec<Place> {
    for by_number in [false, true] {
        for (dot, _) in path.match_indices('.') {
            let (wanted, rest) = (&path[..dot], &path[dot + 1..]);
            let found: Vec<Place> = list
                .iter()
                .enumerate()
                .filter(|(at, table)| {
                    if by_number { wanted.parse() == Ok(*at) } else { is_called(table, wanted) }
                })
                .flat_map(|(at, table)| {
                    let mut place = above.then(key, Some(at));
                    // Inside of a named table the number is unambiguous.
                    place.is_numbered |= by_number && above.steps.is_empty();
                    within(table, rest, &place)
                })
                .collect();
            if !found.is_empty() {
                return found;
            }
        }
    }
    Vec::new()
}

fn is_called(table: &Table, wanted: &str) -> bool {
    let name = NAMES.iter().find_map(|key| table.get(key).and_then(Item::as_str));
    match (name, wanted.strip_suffix('*')) {
        (Some(name), Some(start)) => name.starts_with(start),
        (Some(name), None) => name == wanted,
        (None, _) => false,
    }
}

/// Sets `text` at `place`. Without such a location the document stays unchanged.
pub fn set(document: &mut DocumentMut, place: &Place, text: &str) {
    let Some(((last, _), above)) = place.steps.split_last() else { return };
    let mut table = document.as_table_mut();
    for (key, number) in above {
        table = match (table.get_mut(key), number) {
            (Some(Item::Table(inner)), None) => inner,
            (Some(Item::ArrayOfTables(list)), Some(number)) => match list.get_mut(*number) {
                Some(inner) => inner,
                None => return,
            },
            _ => return,
        };
    }
    let value = value(text);
    if let Some(Item::Value(old)) = table.get_mut(last) {
        let decor = old.decor().clone();
        // A string stays a string: `0` for `"4ms"` is a duration.
        let is_bare = matches!(value, Value::Integer(_) | Value::Float(_));
        *old = if is_bare && old.is_str() { value.to_string().trim().into() } else { value };
        *old.decor_mut() = decor;
    } else {
        table.insert(last, Item::Value(value));
    }
}

/// Returns the locations of the policies of all roots.
pub fn policies(document: &DocumentMut) -> Vec<Place> {
    let Some(Item::ArrayOfTables(list)) = document.get("scheduler") else { return Vec::new() };
    let roots = list.iter().enumerate().filter(|(_, table)| {
        mutate!("sweep-policy", !table.contains_key("in"), table.contains_key("in"))
    });
    roots.map(|(at, _)| Place::default().then("scheduler", Some(at)).then("policy", None)).collect()
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
        let found = places(&document, path);
        for place in &found {
            set(&mut document, place, text);
        }
        let text = document.to_string();
        let new: Vec<String> = text
            .lines()
            .filter(|line| !FILE.lines().any(|old| old == *line))
            .map(str::to_owned)
            .collect();
        (found.len(), new)
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
        for nowhere in
            ["task.w.cost", "task.cost", "task", "stall.0.start", "duration.x", "task.7.cost"]
        {
            is(nowhere, "1", 0, &[]);
        }
    }

    #[test]
    fn roots_are_the_schedulers_without_a_parent() {
        let document = FILE.parse().expect("TOML");
        assert!(policies(&document)[0].is_same(&places(&document, "scheduler.cpu0.policy")[0]));
        assert_eq!(policies(&document).len(), 1);
    }

    #[test]
    fn a_name_that_looks_like_a_number_is_a_name() {
        let file =
            "[[task]]\nname = \"1\"\ncost = \"1ms\"\n\n[[task]]\nname = \"0\"\ncost = \"2ms\"\n";
        let document: DocumentMut = file.parse().expect("TOML");
        let found = places(&document, "task.1.cost");
        assert!(found.len() == 1 && !found[0].is_numbered, "{found:?}");
        assert!(found[0].is_same(&places(&document, "task.1*.cost")[0]));
        assert!(places(&FILE.parse().expect("TOML"), "task.1.cost")[0].is_numbered);
    }
}
