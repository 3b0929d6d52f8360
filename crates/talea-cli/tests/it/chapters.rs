//! The chapters on generated sets, sweeps, imports and analysis, and the tutorial of a system: the
//! test writes their files, runs their commands and compares the output.
//!
//! A fence of a file has its name after the language; the output follows its command. A command
//! succeeds, or ends with `; echo $?`, which prints its exit code. `TALEA_BLESS=1` rewrites the
//! output.

use crate::harness::{Scratch, compare, run};
use std::fmt::Write;
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
            let (command, shows_code) = match command.strip_suffix("; echo $?") {
                Some(command) => (command, true),
                None => (command, false),
            };
            // A quoted word has no space.
            let command = command.replace('\'', "");
            let words: Vec<&str> = command.split_whitespace().collect();
            let ended = run(&scratch, &words);
            let code = ended.code.expect("an exit code");
            assert!(code == 0 || shows_code, "{name}: {command}: {code}: {}", ended.err);
            while lines.peek().is_some_and(|line| *line != "```") {
                lines.next();
            }
            out.push_str(&ended.out);
            if shows_code {
                writeln!(out, "{code}").expect("a string grows");
            }
            commands += 1;
        }
    }
    assert!(commands > 0, "{name} shows a command");
    out
}

#[test]
fn the_chapters_print_what_the_commands_print() {
    for name in [
        "generate.md",
        "sweep.md",
        "import.md",
        "analysis.md",
        "chains.md",
        "modes.md",
        "tutorial-system.md",
    ] {
        compare(&chapter(name), &played(name));
    }
}
