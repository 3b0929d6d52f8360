//! Conversion of ReTiF's values to the words of Talea's configuration.

use talea_config::decimal::{parse_charge, write_charge};
use talea_config::duration::parse_span;
use talea_config::key::{Form, Key};
use talea_config::keys::Section;
use talea_core::Charge;
use talea_core::setup::DEADLINE_CLASS;

/// Returns the plugin kind for ReTiF's module (or bare name), if the module is one of ReTiF's four
/// plugins.
pub(super) fn kind(module: &str) -> Option<&'static str> {
    let file = module.rsplit('/').next().unwrap_or(module).to_ascii_lowercase();
    let stem = file.split(".so").next().unwrap_or_default();
    // Plain as in the papers, or with the prefixes that builds of it carry.
    let bare = ["librtf_", "libretif_", "sched_", "rtf_", "retif_"]
        .iter()
        .find_map(|prefix| stem.strip_prefix(prefix));
    ["edf", "rm", "rr", "fp"].into_iter().find(|kind| *kind == bare.unwrap_or(stem))
}

/// Returns an absolute path for a module. ReTiF's daemon also searches a directory of its own.
pub(super) fn module_path(module: &str) -> String {
    if module.starts_with('/') {
        return module.to_owned();
    }
    let file = module.rsplit('/').next().unwrap_or(module);
    let suffix = if file.contains(".so") { "" } else { ".so" };
    format!("/usr/lib/talea/plugins/{file}{suffix}")
}

/// Returns a list with commas from `1,2`, `1, 2`, or one element on each line after a dash.
pub(super) fn list(text: &str) -> String {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    // Only lines after the first carry the dash of a list; the first starts behind it.
    let items =
        lines.enumerate().map(|(n, line)| if n == 0 { line } else { line.trim_start_matches('-') });
    let items: Vec<String> = items.map(|item| item.replace(char::is_whitespace, "")).collect();
    items.into_iter().filter(|item| !item.is_empty()).collect::<Vec<_>>().join(",")
}

/// Returns a range of priorities as `low-high`, from `50-99`, `50`, or the list `50, 99`.
pub(super) fn band(text: &str) -> String {
    list(text).replacen(',', "-", 1)
}

/// Returns `text` as a value of `key` in TOML, or the fault of the text and a remedy.
pub(super) fn property(key: &Key<Section>, text: &str) -> Result<String, (String, String)> {
    match key.form {
        Form::Decimal => match parse_charge(text) {
            Ok(charge) if charge > Charge::ZERO => {
                Ok(write_charge(charge).expect("what was just read can be written"))
            }
            Ok(_) => Err((
                "it is zero; nothing would fit".to_owned(),
                "write a fraction of a CPU, such as 0.7".to_owned(),
            )),
            Err(why) => Err((why.to_string(), "write a fraction of a CPU, such as 0.7".to_owned())),
        },
        Form::Duration => {
            let remedy = || "write whole microseconds, such as 9000 for 9 ms".to_owned();
            if !text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
                return Err((
                    "durations in this file are plain numbers of microseconds".to_owned(),
                    remedy(),
                ));
            }
            match parse_span(&format!("{text}us")) {
                Ok(span) if span.is_zero() => Err(("it is zero".to_owned(), remedy())),
                Ok(span) => Ok(format!("\"{span}\"")),
                Err(why) => Err((why.to_string(), remedy())),
            }
        }
        Form::Integer => match text.parse() {
            // Table 5's range; 100 is the deadline class in both formats.
            Ok(level @ 1..=DEADLINE_CLASS) => Ok(level.to_string()),
            _ => Err((
                "priorities are 1 (least) to 99 (most urgent), and 100 for the deadline class"
                    .to_owned(),
                "write a number such as 50".to_owned(),
            )),
        },
        _ => match text {
            "true" | "false" => Ok(text.to_owned()),
            _ => Err(("it is neither true nor false".to_owned(), "write true or false".to_owned())),
        },
    }
}
