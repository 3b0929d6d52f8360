//! Recognition of the form of a text.
//!
//! | content | form |
//! | --- | --- |
//! | XML with the root element `simulation` | SF3P |
//! | a JSON object, also with comments | rt-app |
//! | lines with a range of priorities in the second or third column, or headings with `!` | ReTiF |
//! | lines with a rule's property in the third column | ReTiF |
//! | YAML with a section `plugins` | ReTiF |
//! | YAML with `scheduling policy` or `preemption model` | POET |
//! | YAML with `major_frame` | a653rs-linux |
//!
//! Other contents are refused with the reason. The importers check the content in detail.

use clap::ValueEnum;
use std::fmt;

/// Form of another program's files.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Plugins and rules of ReTiF (JSA 2021, Listings 2 and 3), or the YAML of its daemon.
    Retif,
    /// A simulation of SF3P (RSP 2014), in XML.
    Sf3p,
    /// A workload of rt-app 1.0, in JSON.
    RtApp,
    /// A task set of POET (Prosa), in YAML.
    Poet,
    /// A partition schedule of a653rs-linux (ARINC 653), in YAML.
    A653,
}

impl Form {
    /// Returns a sentence with all forms.
    pub(super) fn overview() -> String {
        "Known forms: sf3p (XML with <simulation>), rt-app (a JSON object), retif (lines of name, \
         module, priorities and CPUs; lines of rules; YAML with plugins), poet (YAML with \
         `scheduling policy`), a653 (YAML with `major_frame`). --from FORM selects one"
            .to_owned()
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Retif => "retif",
            Form::Sf3p => "sf3p",
            Form::RtApp => "rt-app",
            Form::Poet => "poet",
            Form::A653 => "a653",
        })
    }
}

/// Recognised content of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// ReTiF's plugins, or plugins and rules in one file.
    RetifPlugins,
    /// ReTiF's rules in a file of their own.
    RetifRules,
    /// An SF3P simulation.
    Sf3p,
    /// An rt-app workload.
    RtApp,
    /// A task set of POET.
    Poet,
    /// A configuration of a653rs-linux.
    A653,
}

impl Content {
    /// Returns the form.
    pub(super) fn form(self) -> Form {
        match self {
            Content::RetifPlugins | Content::RetifRules => Form::Retif,
            Content::Sf3p => Form::Sf3p,
            Content::RtApp => Form::RtApp,
            Content::Poet => Form::Poet,
            Content::A653 => Form::A653,
        }
    }
}

/// Recognises the content of a text.
///
/// # Errors
/// The reason why the form is unknown, as a sentence without a full stop.
pub(super) fn recognise(text: &str) -> Result<Content, String> {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    if text.is_empty() {
        return Err("the file is empty".to_owned());
    }
    if text.starts_with('<') {
        return match root_element(text) {
            Some("simulation") => Ok(Content::Sf3p),
            Some(name) => Err(format!("the form of XML with the root element <{name}> is unknown")),
            None => Err("this XML has no root element".to_owned()),
        };
    }
    if after_comments(text).starts_with('{') {
        return Ok(Content::RtApp);
    }
    lines(text)
}

/// Returns the name of an XML text's root element.
fn root_element(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let end = if rest.starts_with("<?") {
            "?>"
        } else if rest.starts_with("<!--") {
            "-->"
        } else if rest.starts_with("<!") {
            ">"
        } else {
            break;
        };
        rest = &rest[rest.find(end)? + end.len()..];
    }
    let name = rest.strip_prefix('<')?;
    let end = name.find(|c: char| c.is_whitespace() || matches!(c, '>' | '/'))?;
    (end > 0).then(|| &name[..end])
}

/// Returns a text without its leading comments, as workgen's JSON may have them.
fn after_comments(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let end = if rest.starts_with("//") {
            "\n"
        } else if rest.starts_with("/*") {
            "*/"
        } else {
            return rest;
        };
        let Some(at) = rest[2..].find(end) else { return "" };
        rest = &rest[2 + at + end.len()..];
    }
}

/// Whether a column is a range of priorities.
fn is_band(column: &str) -> bool {
    column.bytes().any(|b| b.is_ascii_digit())
        && column.bytes().all(|b| b.is_ascii_digit() || b == b'-')
}

/// Recognises a text that consists of lines: ReTiF's listings, its YAML, or TOML.
fn lines(text: &str) -> Result<Content, String> {
    let content = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim_end())
        .filter(|line| !line.trim().is_empty());
    let (mut is_first, mut is_yaml, mut has_rules) = (true, false, false);
    for line in content {
        let columns: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with('[') || columns.get(1) == Some(&"=") {
            return Err("this is TOML, which Talea reads without an import".to_owned());
        }
        if ["scheduling policy:", "preemption model:"].iter().any(|key| line.starts_with(key)) {
            return Ok(Content::Poet);
        }
        if line.starts_with("major_frame:") {
            return Ok(Content::A653);
        }
        if is_first {
            let key = line.split(':').next().unwrap_or_default();
            let has_key = line.contains(':') && !key.contains(char::is_whitespace);
            is_yaml = line == "---" || (has_key && !key.starts_with('!'));
            is_first = false;
        }
        if is_yaml && line.trim_start().starts_with("plugins:") {
            return Ok(Content::RetifPlugins);
        }
        if !is_yaml {
            let is_plugin = columns.iter().skip(1).take(2).any(|column| is_band(column));
            if is_plugin || columns[0].starts_with('!') {
                return Ok(Content::RetifPlugins);
            }
            has_rules |= columns.get(2).is_some_and(|property| property.contains('_'));
        }
    }
    match (is_yaml, has_rules) {
        (true, _) => Err("the form of YAML without a section `plugins` is unknown".to_owned()),
        (false, true) => Ok(Content::RetifRules),
        (false, false) => Err("the form of this text is unknown".to_owned()),
    }
}
