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

/// [`PLUGINS`], open to everybody.
pub fn open() -> String {
    format!("[daemon]\naccess = \"off\"\n{PLUGINS}")
}

/// The same, where `fp` and `rr` keep one order of levels for all CPUs.
pub fn common_levels() -> String {
    let common = |kind: &str, text: &str| {
        let line = format!("kind = \"{kind}\"\n");
        text.replace(&line, &format!("{line}levels = \"common\"\n"))
    };
    common("fp", &common("rr", &open()))
}

/// [`PLUGINS`] with these rules.
pub fn with_rules(rules: &str) -> String {
    format!("{PLUGINS}\n{rules}")
}
