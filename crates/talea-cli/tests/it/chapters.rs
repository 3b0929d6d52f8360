//! The chapters on generated sets, sweeps, imports and analysis: the test writes their files, runs
//! their commands and compares the output.
//!
//! A fence of a file has its name after the language; the output follows its command.
//! `TALEA_BLESS=1` rewrites it.

use crate::harness::{Scratch, compare, run};
use std::path::{Path, PathBuf};

fn chapter(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual").join(name)
}

/// Returns the chapter with the current output of its commands.
fn played(name: &str) -> String {
    let text = std::fs::read_to_string(chapter(name)).expect(name);
    let scratch = Scratch::new();
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    let mut commands = 0;
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        if let Some((_, file)) = line.strip_prefix("```").and_then(|fence| fence.split_once(' ')) {
            let mut body = String::new();
            for line in lines.by_ref().take_while(|line| *line != "```") {
                body.push_str(line);
                body.push('\n');
            }
            scratch.file(file, &body);
            out.push_str(&body);
            out.push_str("```\n");
        } else if let Some(command) = line.strip_prefix("$ talea ") {
            let words: Vec<&str> = command.split_whitespace().collect();
            let ended = run(&scratch, &words);
            assert_eq!(ended.code, Some(0), "{name}: {command}: {}", ended.err);
            while lines.peek().is_some_and(|line| *line != "```") {
                lines.next();
            }
            out.push_str(&ended.out);
            commands += 1;
        }
    }
    assert!(commands > 0, "{name} shows a command");
    out
}

#[test]
fn the_chapters_print_what_the_commands_print() {
    for name in ["generate.md", "sweep.md", "import.md", "analysis.md"] {
        compare(&chapter(name), &played(name));
    }
}

#[test]
fn the_chapters_link_to_chapters_that_exist() {
    for name in ["generate.md", "sweep.md", "import.md", "analysis.md"] {
        let text = std::fs::read_to_string(chapter(name)).expect(name);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let page = std::fs::read_to_string(chapter(file))
                .unwrap_or_else(|error| panic!("{name}: {file}: {error}"));
            let is_there = page.lines().filter(|line| line.starts_with('#')).any(|line| {
                let heading = line.trim_start_matches('#').trim().to_lowercase();
                let plain: String = heading
                    .chars()
                    .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'))
                    .collect();
                plain.replace(' ', "-") == anchor
            });
            assert!(anchor.is_empty() || is_there, "{name} links to {target}");
        }
    }
}
