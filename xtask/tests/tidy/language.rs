//! Language of code, comments and documents: banned words, width, openings of doc comments, old
//! names.
//!
//! `docs/glossary.md` has the terms to use instead. Each rule is a function from a file to its
//! findings.
//!
//! | rule | files | exceptions |
//! | --- | --- | --- |
//! | [`Rule::Word`] | all | quotations in comments and Markdown; the user name `nobody` |
//! | [`Rule::Width`] | Rust, C | characters inside string literals; URLs; table rows in comments |
//! | [`Rule::Opening`] | Rust, C | headings |
//!
//! Absent on purpose: a parser. The scanner distinguishes code, comments and string literals. So
//! the rules for comments apply to messages, and a quotation mark in code starts no quotation.

use crate::{none, read, sources};
use std::path::Path;

/// Extensions of the checked files.
const EXTENSIONS: [&str; 10] =
    ["rs", "c", "h", "py", "md", "toml", "sh", "conf", "service", "socket"];

/// Files that must contain banned words or old names: the rules, and a table of mdbook.
const EXEMPT: [&str; 3] =
    ["xtask/tests/tidy/language.rs", "xtask/tests/tidy/old_names.txt", "docs/book.toml"];

/// Maximum number of columns of a line of Rust or C.
const MAX_COLUMNS: usize = 100;

/// Banned words, each with the term of the glossary that replaces the word in every use.
#[rustfmt::skip]
const BANNED: &[(&str, &str)] = &[
    // Persons in the place of a thing of the code.
    ("whoever", "name the thread, task, process or client"),
    ("whomever", "name the thread, task, process or client"),
    ("whom", "name the thread, task, process or client"),
    ("nobody", "no thread, no task, no client"),
    ("somebody", "another thread, a client"),
    ("someone", "another thread, a client"),
    ("anybody", "any thread, any client"),
    ("anyone", "any thread, any client"),
    ("everybody", "every thread, all clients"),
    ("everyone", "every thread, all clients"),
    ("told", "notified, delivered, reported, given"),
    // Metaphors.
    ("actor", "program"), ("actors", "programs"),
    ("bell", "event count"), ("bells", "event counts"),
    ("bequeath", "inherit"), ("forebear", "ancestor"),
    ("heir", "child, descendant"), ("heirs", "children, descendants"),
    ("bitten", "fired"),
    ("book", "ledger, charge, journal"), ("books", "ledger, bandwidth accounting, journal"),
    ("booked", "reserved, charged, recorded"), ("booking", "reservation"),
    ("brush", "perturb"), ("brushed", "perturbed"),
    ("cage", "group"), ("caged", "in a group"),
    ("courtesy", "name the reason"), ("stubborn", "nonpreemptive, or name the reason"),
    ("crew", "threads"), ("troupe", "programs"),
    ("dearest", "most expensive"),
    ("debtor", "thread key"),
    ("desk", "segment"), ("desks", "segments"),
    ("diary", "log"), ("diaries", "logs"),
    ("dice", "rng"),
    ("doze", "release timer"), ("dozer", "release timer"), ("dozers", "release timers"),
    ("dozes", "sleeps by its release timer"), ("dozing", "asleep by its release timer"),
    ("ear", "listener"), ("ears", "listeners"),
    ("fate", "exit, result"), ("fates", "exits, results"),
    ("farewell", "exit grace"), ("glimpse", "snapshot"),
    ("grade", "level"), ("grades", "levels"), ("graded", "by level"),
    ("hole", "stall"), ("holes", "stalls"),
    ("keeper", "reaper, monitor"), ("keepers", "reapers, monitors"),
    ("kid", "child"), ("kids", "children"),
    ("lane", "run queue"), ("lanes", "run queues"),
    ("nap", "sleep"), ("naps", "sleeps"), ("napping", "asleep"),
    ("newcomer", "new child"), ("newcomers", "new children"),
    ("office", "root state"),
    ("rites", "cleanup"),
    ("seat", "running"), ("seats", "running"),
    ("spoil", "interference"), ("spoils", "interference"), ("spoiled", "interfered with"),
    ("stranger", "foreign thread"), ("strangers", "foreign threads"),
    ("strayed", "policy changed"),
    ("twin", "reference model"), ("twins", "reference models"),
    ("warden", "policy monitor"),
    ("wish", "preference, request"), ("wishes", "preferences"), ("wished", "requested"),
];

/// Banned phrases, each with its replacement.
const BANNED_PHRASES: &[(&str, &str)] = &[("for ever", "forever")];

/// First words that make a doc comment a fragment, which defines nothing.
const FRAGMENT_OPENERS: &[&str] = &[
    "And", "As", "By", "For", "From", "Of", "Or", "So", "That", "The same", "To", "Until", "What",
    "Where", "Which", "Who", "Whoever", "Whom", "Whose", "With",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Word,
    Width,
    Opening,
}

/// Violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) line: usize,
    pub(crate) rule: Rule,
    pub(crate) message: String,
}

#[test]
fn no_banned_word_is_used() {
    check(Rule::Word);
}

#[test]
fn no_line_is_wider_than_the_limit() {
    check(Rule::Width);
}

#[test]
fn no_doc_comment_opens_with_a_fragment() {
    check(Rule::Opening);
}

/// Renamed identifiers that must not return, one `PATH IDENTIFIER` per line.
const OLD_NAMES: &str = include_str!("old_names.txt");

#[test]
fn no_old_name_is_used() {
    none(&old_names_in(|path| Some(read(path))));
}

/// Returns the uses of old names in the files that `read` returns.
pub(crate) fn old_names_in(read: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    let rows: Vec<_> = OLD_NAMES
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split_once(' ').expect("PATH IDENTIFIER"))
        .collect();
    let mut findings = Vec::new();
    for path in sources(&["rs", "c", "h"]) {
        let old: Vec<_> = rows
            .iter()
            .filter(|(under, _)| path.starts_with(under))
            .map(|&(_, name)| name)
            .collect();
        if old.is_empty() {
            continue;
        }
        for (number, line) in read(&path).unwrap_or_default().lines().enumerate() {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            for name in line.split(|c| !is_part(c)).filter(|name| old.contains(name)) {
                findings.push(format!("{}:{}: old name `{name}`", path.display(), number + 1));
            }
        }
    }
    findings
}

/// Fails if a file violates the rule, and names every place.
fn check(rule: Rule) {
    let mut problems = Vec::new();
    for path in sources(&EXTENSIONS) {
        let findings = findings_in(&path, &read(&path));
        for finding in findings.into_iter().filter(|finding| finding.rule == rule) {
            problems.push(format!("{}:{}: {}", path.display(), finding.line, finding.message));
        }
    }
    none(&problems);
}

/// Returns all violations of a file, in the order of its lines.
pub(crate) fn findings_in(path: &Path, text: &str) -> Vec<Finding> {
    let name = path.to_string_lossy();
    if EXEMPT.contains(&&*name) {
        return Vec::new();
    }
    let extension = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
    let is_code = ["rs", "c", "h"].contains(&extension);
    let is_markdown = extension == "md";
    let mut classes =
        if is_code { classify(text, extension == "rs") } else { Vec::new() }.into_iter();
    let mut findings = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    let mut last_doc = None;
    while let Some((index, line)) = lines.next() {
        let line_classes = classes.next().unwrap_or_default();
        let mut report = |rule, message| findings.push(Finding { line: index + 1, rule, message });
        let mut chars: Vec<char> = without_old_terms(&name, line).chars().collect();
        blank_quotations(&mut chars, |at| {
            line_classes.get(at).map_or(is_markdown, |class| *class == Class::Comment)
        });
        for (word, instead) in banned_words(&chars) {
            report(Rule::Word, format!("`{word}`: {instead}"));
        }
        if is_code {
            let columns = columns(line, &line_classes);
            if columns > MAX_COLUMNS {
                report(Rule::Width, format!("{columns} columns, at most {MAX_COLUMNS}"));
            }
            let marker = doc_marker(line, &line_classes);
            if let Some(marker) = marker.filter(|_| marker != last_doc) {
                let next = lines.peek().map_or("", |(_, next)| next);
                if let Some(opener) = fragment_opener(line, marker, next) {
                    report(Rule::Opening, format!("a doc comment opens with `{opener}`"));
                }
            }
            last_doc = marker.filter(|marker| *marker != "/**");
        }
    }
    findings
}

/// Removes old terms from a line. The changelog lists old terms in a table, the glossary in the
/// last column of its tables.
fn without_old_terms<'line>(file: &str, line: &'line str) -> &'line str {
    match file {
        "CHANGELOG.md" if line.starts_with('|') => "",
        "docs/glossary.md" if line.starts_with('|') => {
            let cells = line.trim_end().trim_end_matches('|');
            cells.rsplit_once('|').map_or("", |(cells, _)| cells)
        }
        _ => line,
    }
}

/// Returns the number of columns of a line of code that count for the width.
fn columns(line: &str, classes: &[Class]) -> usize {
    let is_row = line.trim_start().trim_start_matches(['/', '!', '*', ' ']).starts_with('|')
        && classes.last() == Some(&Class::Comment);
    if is_row || line.contains("://") {
        return 0;
    }
    line.chars().count() - classes.iter().filter(|class| **class == Class::String).count()
}

/// Returns the marker of a doc comment in a line; `None` for a line without a doc comment.
fn doc_marker(line: &str, classes: &[Class]) -> Option<&'static str> {
    let text = line.trim_start();
    let is_comment = classes.get(line.len() - text.len()) == Some(&Class::Comment);
    let mut markers = ["///", "//!", "/**"].into_iter();
    markers.find(|marker| is_comment && text.starts_with(marker) && !text.starts_with("////"))
}

/// Returns the fragment opener of a doc comment; `None` if the comment has no such opener. `next`
/// is the line below the comment's marker.
fn fragment_opener(line: &str, marker: &str, next: &str) -> Option<&'static str> {
    let mut head = line.trim_start()[marker.len()..].trim();
    if head.is_empty() && marker == "/**" {
        head = next.trim_start().trim_start_matches('*').trim();
    }
    FRAGMENT_OPENERS.iter().copied().find(|opener| opens_with(head, opener))
}

fn opens_with(text: &str, words: &str) -> bool {
    text.strip_prefix(words)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-'))
}

/// Replaces quotations in prose by spaces.
fn blank_quotations(chars: &mut [char], is_prose: impl Fn(usize) -> bool) {
    let closing = |open| if open == '“' { '”' } else { open };
    let mut i = 0;
    while i < chars.len() {
        let open = chars[i];
        if matches!(open, '"' | '“') && is_prose(i) {
            let end = (i + 1..chars.len()).find(|&end| chars[end] == closing(open));
            if let Some(end) = end.filter(|&end| is_prose(end)) {
                chars[i..=end].fill(' ');
                i = end;
            }
        }
        i += 1;
    }
}

/// Returns the banned words and phrases of a line, each with its replacement. Identifiers are split
/// at underscores and at capitals.
fn banned_words(chars: &[char]) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    let mut start = 0;
    for end in 1..=chars.len() {
        if end < chars.len() && !is_boundary(chars, end) {
            continue;
        }
        let word: String = chars[start..end].iter().flat_map(|c| c.to_lowercase()).collect();
        let quote = |at: Option<usize>| {
            at.and_then(|at| chars.get(at)).is_some_and(|c| matches!(c, '"' | '`'))
        };
        let is_user_name = word == "nobody" && quote(start.checked_sub(1)) && quote(Some(end));
        found.extend(BANNED.iter().filter(|(banned, _)| *banned == word && !is_user_name));
        start = end;
    }
    let line: String = chars.iter().flat_map(|c| c.to_lowercase()).collect();
    for &(phrase, instead) in BANNED_PHRASES {
        let outside = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
        let whole = line.match_indices(phrase).filter(|(at, _)| {
            let rest = &line[at + phrase.len()..];
            outside(line[..*at].chars().next_back()) && outside(rest.chars().next())
        });
        found.extend(whole.map(|_| (phrase, instead)));
    }
    found
}

/// Whether a word ends before `chars[at]`: `is|_|told`, `Nobody|Else`, `DL|Book`.
fn is_boundary(chars: &[char], at: usize) -> bool {
    let (before, after) = (chars[at - 1], chars[at]);
    if !before.is_alphabetic() || !after.is_alphabetic() {
        return true;
    }
    let next_is_lower = chars.get(at + 1).is_some_and(|next| next.is_lowercase());
    after.is_uppercase() && (before.is_lowercase() || next_is_lower)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Code,
    Comment,
    /// The character is inside a string literal, without its quotation marks.
    String,
}

/// Returns the class of each character of each line of Rust or C.
fn classify(text: &str, is_rust: bool) -> Vec<Vec<Class>> {
    let chars: Vec<char> = text.chars().collect();
    let mut classes = vec![Class::Code; chars.len()];
    let is_at = |at: usize, marker: &str| {
        marker.chars().enumerate().all(|(n, c)| chars.get(at + n) == Some(&c))
    };
    let mut i = 0;
    while i < chars.len() {
        let (start, class) =
            (i, if is_at(i, "//") || is_at(i, "/*") { Class::Comment } else { Class::String });
        if is_at(i, "//") {
            while i < chars.len() && chars[i] != '\n' {
                i += 1;
            }
        } else if is_at(i, "/*") {
            // Comments nest in Rust.
            let mut depth = 0;
            loop {
                if is_at(i, "/*") && (is_rust || depth == 0) {
                    (depth, i) = (depth + 1, i + 2);
                } else if is_at(i, "*/") {
                    (depth, i) = (depth - 1, i + 2);
                } else {
                    i += 1;
                }
                if depth == 0 || i >= chars.len() {
                    break;
                }
            }
        } else if let Some(hashes) = raw_string(&chars, i).filter(|_| is_rust) {
            let closing = format!("\"{}", "#".repeat(hashes));
            i += hashes + 2;
            while i < chars.len() && !is_at(i, &closing) {
                i += 1;
            }
        } else if chars[i] == '"' {
            i += 1;
            while i < chars.len() && chars[i] != '"' {
                i += if chars[i] == '\\' { 2 } else { 1 };
            }
        } else if chars[i] == '\'' && (is_at(i + 1, "\\") || chars.get(i + 2) == Some(&'\'')) {
            // A character, unlike a lifetime: it may be a quotation mark.
            i += if is_at(i + 1, "\\") { 3 } else { 2 };
            while i < chars.len() && chars[i] != '\'' {
                i += 1;
            }
            i += 1;
            continue;
        } else {
            i += 1;
            continue;
        }
        let end = i.min(chars.len());
        let inside = if class == Class::String { start + 1 } else { start };
        classes[inside.min(end)..end].fill(class);
        if class == Class::String {
            i = end + 1;
        }
    }
    let mut lines = Vec::new();
    let mut rest = &classes[..];
    for line in text.split('\n') {
        let (this, next) = rest.split_at(line.chars().count());
        lines.push(this.to_vec());
        rest = next.get(1..).unwrap_or_default();
    }
    lines
}

/// Returns the number of hashes of a raw string literal that starts at `at`: `r"`, `r#"`, `br##"`.
fn raw_string(chars: &[char], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map(|at| chars[at]);
    let starts = chars[at] == 'r'
        && before.is_none_or(|c| !c.is_alphanumeric() && c != '_' || matches!(c, 'b' | 'c'));
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    (starts && chars.get(at + 1 + hashes) == Some(&'"')).then_some(hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(name: &str, text: &str) -> Vec<(usize, Rule)> {
        findings_in(Path::new(name), text).iter().map(|found| (found.line, found.rule)).collect()
    }

    #[test]
    fn words_are_found_in_names_comments_and_messages() {
        let text = "fn is_told() {}\nstruct NobodyElse;\n// Whoever.\nlet a = \"for ever\";\n";
        let lines: Vec<_> = rules("a.rs", text).iter().map(|&(line, _)| line).collect();
        assert_eq!(lines, [1, 2, 3, 4]);
        assert_eq!(rules("a.rs", "let upgraded = whomsoever(labelled, snapshot);\n"), []);
    }

    #[test]
    fn quotations_and_the_user_name_are_no_findings() {
        assert_eq!(rules("a.rs", "// It prints \"nobody is told\".\n"), []);
        assert_eq!(rules("a.rs", "let user = \"nobody\"; // user `nobody`\n"), []);
        assert_eq!(rules("a.md", "The message \"somebody\" and “someone”.\n"), []);
        assert_eq!(rules("a.rs", "let text = \"says nobody\";\n").len(), 1);
        assert_eq!(rules("a.rs", "let c = '\"'; // told\n").len(), 1);
    }

    #[test]
    fn string_literals_have_no_width() {
        let long = "x".repeat(120);
        assert_eq!(rules("a.rs", &format!("let a = \"{long}\";\n")), []);
        assert_eq!(rules("a.rs", &format!("let a = r#\"{long}\n{long}\"#;\n")), []);
        assert_eq!(rules("a.rs", &format!("// {long}\n")), [(1, Rule::Width)]);
        assert_eq!(rules("a.rs", &format!("// https://{long}\n")), []);
        assert_eq!(rules("a.md", &long), []);
    }

    #[test]
    fn only_the_first_line_of_a_doc_comment_is_its_opening() {
        let text = "//! Model.\n//! Of each.\n\n/// Of each node.\nstruct A;\n";
        assert_eq!(rules("a.rs", text), [(4, Rule::Opening)]);
        assert_eq!(rules("a.h", "/**\n * Which one.\n */\n"), [(1, Rule::Opening)]);
        assert_eq!(rules("a.rs", "/// Format of a record.\n/// Whether it is idle.\n"), []);
        assert_eq!(rules("a.rs", "/// The same, backwards.\n"), [(1, Rule::Opening)]);
    }
}
