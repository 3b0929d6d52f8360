//! Configurations that many tests share.

/// The four plugins of the paper, on all CPUs, each with its own band.
pub const PLUGINS: &str = r#"
[[plugin]]
name = "edf"
kind = "edf"
cpus = "all"

[[plugin]]
name = "rm"
kind = "rm"
cpus = "all"
priorities = "60-79"

[[plugin]]
name = "rr"
kind = "rr"
cpus = "all"
priorities = "40-49"

[[plugin]]
name = "fp"
kind = "fp"
cpus = "all"
priorities = "20-39"
"#;

/// Returns [`PLUGINS`] without access rules.
pub fn open() -> String {
    format!("[daemon]\naccess = \"off\"\n{PLUGINS}")
}

/// Returns [`open`] where `fp` and `rr` have one order of levels for all CPUs.
pub fn common_levels() -> String {
    common(&open())
}

/// Returns [`with_rules`] where `fp` and `rr` have one order of levels for all CPUs, as the
/// installed configuration for applications on several CPUs.
pub fn common_levels_with_rules(rules: &str) -> String {
    common(&with_rules(rules))
}

fn common(text: &str) -> String {
    let of = |text: &str, kind: &str| {
        let line = format!("kind = \"{kind}\"\n");
        text.replace(&line, &format!("{line}levels = \"common\"\n"))
    };
    of(&of(text, "fp"), "rr")
}

/// Returns [`PLUGINS`] with these rules.
pub fn with_rules(rules: &str) -> String {
    format!("{PLUGINS}\n{rules}")
}
