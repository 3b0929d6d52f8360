//! Test that links between documents lead to files and headings that exist.

use crate::{none, read, root, sources};
use std::path::{Path, PathBuf};

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut findings = Vec::new();
    for path in sources(&["md"]) {
        let text = read(&path);
        for target in targets(&text) {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let folder = path.parent().unwrap_or(Path::new(""));
            let linked = if file.is_empty() { path.clone() } else { clean(&folder.join(file)) };
            if !root().join(&linked).exists() {
                findings.push(format!("{}: no file {target}", path.display()));
            } else if !anchor.is_empty() && !anchors(&read(&linked)).any(|found| found == anchor) {
                findings.push(format!("{}: no heading {target}", path.display()));
            }
        }
    }
    none(&findings);
}

/// Returns the targets of the links of a document, outside of code blocks.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split("](").skip(1).filter_map(|rest| rest.split(')').next()))
}

/// Returns the anchors of the headings of a document, as GitHub derives them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// Removes `..` from a path.
fn clean(path: &Path) -> PathBuf {
    path.iter().fold(PathBuf::new(), |mut clean, part| {
        if part == ".." {
            clean.pop();
        } else if part != "." {
            clean.push(part);
        }
        clean
    })
}
