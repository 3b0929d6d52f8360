//! Output that is generated from the definitions: help texts, man pages, the manual's chapter,
//! completions.

use crate::harness::{Scratch, compare, run, snapshot};
use std::path::{Path, PathBuf};

const COMMANDS: [&str; 18] = [
    "run", "attach", "release", "list", "show", "explain", "status", "metrics", "check", "import",
    "deploy", "doctor", "execute", "replay", "compare", "sweep", "generate", "new",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_help_of_every_command_is_as_kept() {
    let scratch = Scratch::new();
    snapshot("help", &run(&scratch, &["--help"]).transcript());
    for command in COMMANDS {
        snapshot(&format!("help-{command}"), &run(&scratch, &[command, "--help"]).transcript());
    }
    for verb in ["plan", "apply", "confirm", "status", "diff", "drain", "rollback", "remove"] {
        let help = run(&scratch, &["deploy", verb, "--help"]);
        snapshot(&format!("help-deploy-{verb}"), &help.transcript());
    }
}

#[test]
fn the_manuals_chapter_is_fresh() {
    let scratch = Scratch::new();
    let ended = run(&scratch, &["markdown"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    compare(&root().join("docs/manual/cli.md"), &ended.out);
}

#[test]
fn completions_name_every_command_and_none_that_is_hidden() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish"] {
        let ended = run(&scratch, &["completions", shell]);
        assert_eq!(ended.code, Some(0), "{shell}: {}", ended.err);
        for command in COMMANDS {
            assert!(ended.out.contains(command), "{shell} does not know {command}");
        }
        let mut words = ended.out.split(|c: char| !c.is_ascii_alphanumeric());
        assert!(words.all(|word| word != "launch"), "{shell} offers what is hidden");
    }
}

#[test]
fn every_page_has_the_exit_codes() {
    let scratch = Scratch::new();
    assert_eq!(run(&scratch, &["man", "--dir", "."]).code, Some(0));
    let pages = std::fs::read_dir(scratch.path()).expect("the folder").count();
    assert!(pages > COMMANDS.len(), "a page for each command, and one for all");
    for command in COMMANDS {
        let text = std::fs::read_to_string(scratch.path().join(format!("talea-{command}.1")))
            .expect("a page");
        let last = if command == "run" { "127" } else { "6" };
        assert!(
            text.contains("EXIT STATUS") && text.contains(&format!("\n{last}\n")),
            "talea-{command}.1"
        );
    }
}
