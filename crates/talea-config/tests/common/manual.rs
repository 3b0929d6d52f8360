//! Tables of keys in the manual, from a list of keys.
#![allow(clippy::disallowed_methods, reason = "the manual is a file")]

use std::fmt::Write;
use talea_config::key::FileSection;

fn cell(text: &str) -> String {
    let plain =
        text.starts_with('"') || text.parse::<u64>().is_ok() || matches!(text, "true" | "false");
    if plain && !text.contains(' ') { format!("`{text}`") } else { text.to_owned() }
}

/// Returns the tables of the manual, from the list.
fn tables(section: impl FileSection) -> String {
    let mut out = String::from(
        "| key | value | default | range | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for key in section.keys() {
        let only = match key.kinds {
            [] => String::new(),
            kinds => {
                format!(
                    " Only {}.",
                    kinds.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ")
                )
            }
        };
        let (form, default) = (key.form.cell(), cell(key.default));
        let _ = writeln!(
            out,
            "| `{}` | {form} | {default} | {} | {}{only} |",
            key.name, key.range, key.meaning
        );
    }
    out
}

/// Compares the tables of a chapter with the list. `TALEA_UPDATE=1` rewrites them.
pub(crate) fn has_every_key(chapter: &str, sections: &[impl FileSection]) {
    let path = format!("{}/../../docs/manual/{chapter}", env!("CARGO_MANIFEST_DIR"));
    let stored = std::fs::read_to_string(&path).expect("the manual");
    let mut fresh = String::new();
    let mut rest = stored.as_str();
    for &section in sections {
        let start = format!("<!-- keys of {} -->\n", section.header());
        let (before, after) =
            rest.split_once(&start).unwrap_or_else(|| panic!("the manual lacks {start}"));
        let (_, after) = after.split_once("<!-- end of keys -->").expect("an end to the table");
        fresh.push_str(before);
        fresh.push_str(&start);
        fresh.push_str(&tables(section));
        fresh.push_str("<!-- end of keys -->");
        rest = after;
    }
    fresh.push_str(rest);
    if std::env::var_os("TALEA_UPDATE").is_some_and(|v| v == "1") {
        std::fs::write(&path, &fresh).expect("the manual can be written");
    }
    assert_eq!(fresh, stored, "{path} is not fresh; TALEA_UPDATE=1 rewrites its tables");
}
