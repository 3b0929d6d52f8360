//! How files begin, how long they may be, and what may not be written in them.

use crate::{none, read, sources};
use std::path::Path;

/// Above this a file holds more than one idea.
const LINES: usize = 800;

/// Longer files, with the length that they may not exceed. The list only ever shrinks.
const LONG: &[(&str, usize)] = &[];

#[test]
fn no_file_grows_beyond_one_idea() {
    let mut findings = Vec::new();
    for path in sources(&["rs", "c", "h", "py"]) {
        let name = path.to_string_lossy().into_owned();
        let lines = read(&path).lines().count();
        let limit = LONG.iter().find(|(long, _)| *long == name).map_or(LINES, |&(_, limit)| limit);
        if lines > limit {
            findings.push(format!("{name}: {lines} lines, at most {limit}"));
        }
    }
    for (name, _) in LONG {
        if read(Path::new(name)).lines().count() <= LINES {
            findings.push(format!("{name}: short enough now, drop it from the list"));
        }
    }
    none(&findings);
}

#[test]
fn every_file_opens_with_what_it_is() {
    let starts = |path: &Path, opening: &[&str]| {
        let text = read(path);
        let first = text.lines().next().unwrap_or_default().to_owned();
        let sound = opening.iter().any(|start| first.starts_with(start));
        (!sound).then(|| format!("{}: opens with {first:?}", path.display()))
    };
    let mut findings: Vec<_> =
        sources(&["rs"]).iter().filter_map(|path| starts(path, &["//! "])).collect();
    findings.extend(sources(&["c", "h"]).iter().filter_map(|path| starts(path, &["/*", "//"])));
    none(&findings);
}

/// Split so that this file does not find itself.
const NEVER: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "an issue, not a note"),
    (concat!("FIX", "ME"), "an issue, not a note"),
    (concat!("XX", "X"), "an issue, not a note"),
    (concat!("(being", " built"), "not in the tree before it is built"),
    (concat!("(being", " written"), "not in the tree before it is written"),
    (concat!("#[ign", "ore"), "a test that never runs says nothing; skip loudly with a reason"),
    (concat!("#[should_", "panic"), "say what must be refused and check the refusal"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/tm", "p/t/"), "a path of one machine"),
    (concat!("dbg", "!("), "left from debugging"),
];

#[test]
fn nothing_is_written_that_the_house_forbids() {
    let mut findings = Vec::new();
    for path in sources(&["rs", "c", "h", "py", "md", "toml", "sh", "conf", "service", "socket"]) {
        for (number, line) in read(&path).lines().enumerate() {
            for (words, why) in NEVER {
                if line.contains(words) {
                    findings.push(format!("{}:{}: {words:?}: {why}", path.display(), number + 1));
                }
            }
        }
    }
    none(&findings);
}
