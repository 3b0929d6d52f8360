//! Tests that links between documents lead to files and headings that exist, and that the site and
//! the index of decisions have every page.

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

/// `cargo xtask docs` makes a site of the pages in `docs/SUMMARY.md`.
#[test]
fn every_page_of_docs_is_in_the_summary_once() {
    let summary = read(Path::new("docs/SUMMARY.md"));
    let mut listed: Vec<&str> = targets(&summary).collect();
    listed.sort_unstable();
    let mut pages: Vec<String> = sources(&["md"])
        .iter()
        .filter_map(|path| path.strip_prefix("docs").ok())
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|path| path != "SUMMARY.md")
        .collect();
    pages.sort_unstable();
    assert_eq!(listed, pages);
}

/// A page opens with its title and its status, and the index repeats both.
#[test]
fn every_decision_has_a_status_and_a_row_in_the_index() {
    let folder = Path::new("docs/decisions");
    let mut rows = Vec::new();
    let mut findings = Vec::new();
    for path in sources(&["md"]) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !path.starts_with(folder) || name == "README.md" {
            continue;
        }
        let text = read(&path);
        let title = text.lines().next().and_then(|line| line.strip_prefix("# ")?.split_once(". "));
        let status = text.lines().nth(2).and_then(|line| line.strip_prefix("**Status.** "));
        let known = ["Accepted", "Superseded", "Rejected"];
        match (title, status) {
            (Some((number, title)), Some(status))
                if known.iter().any(|word| status.starts_with(word)) =>
            {
                rows.push(format!("| [{number}]({name}) | {title} | {status} |"));
            }
            _ => findings.push(format!("{}: no title or no status", path.display())),
        }
    }
    none(&findings);
    let index = read(&folder.join("README.md"));
    let listed: Vec<&str> = index.lines().filter(|line| line.starts_with("| [")).collect();
    assert_eq!(listed, rows);
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
