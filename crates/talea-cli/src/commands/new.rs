//! `talea new`: creates a project with a working policy.
//!
//! The policy is a renamed copy of `examples/policy-llf`. That example is built and tested with the
//! workspace, so the copy compiles. The project depends on Talea's source tree by path.

use crate::args::{NewArgs, NewKind};
use anyhow::{Context, bail};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use talea_study::exit::{Exit, usage};
use talea_study::output::print;
use talea_system::keys::POLICIES;

/// Name and type of the policy in the example.
const EXAMPLE: (&str, &str) = ("llf", "Llf");

/// Files of the example that contain no paths.
const FILES: [(&str, &str); 4] = [
    ("src/lib.rs", include_str!("../../../../examples/policy-llf/src/lib.rs")),
    ("src/main.rs", include_str!("../../../../examples/policy-llf/src/main.rs")),
    ("system.toml", include_str!("../../../../examples/policy-llf/system.toml")),
    ("tests/policy.rs", include_str!("../../../../examples/policy-llf/tests/policy.rs")),
];

pub(crate) fn run(args: &NewArgs) -> anyhow::Result<Exit> {
    match args.kind {
        NewKind::Policy => policy(args),
    }
}

fn policy(args: &NewArgs) -> anyhow::Result<Exit> {
    check(&args.name)
        .map_err(|why| usage(format!("{:?} can't be the name of a policy: {why}", args.name)))?;
    let package = format!("policy-{}", args.name);
    let folder = args.dir.clone().unwrap_or_else(|| PathBuf::from(&package));
    let source = match &args.source {
        Some(source) if is_source(source) => source.clone(),
        Some(source) => {
            bail!("{} is not Talea's source tree: it has no crates/talea-core", source.display())
        }
        None => find_source()
            .context("Talea's source tree is not above this folder; name it with --source DIR")?,
    };
    let source =
        source.canonicalize().with_context(|| format!("cannot resolve {}", source.display()))?;
    match std::fs::read_dir(&folder) {
        Ok(entries) => {
            if entries.count() > 0 {
                bail!("{} is not empty; name another folder with --dir", folder.display());
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", folder.display()));
        }
    }
    let mut written = String::new();
    let mut write = |name: &str, text: &str| {
        let path = folder.join(name);
        let above = path.parent().unwrap_or(&folder);
        std::fs::create_dir_all(above)
            .with_context(|| format!("cannot make {}", above.display()))?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        let _ = writeln!(written, "  {}", path.display());
        anyhow::Ok(())
    };
    write("Cargo.toml", &manifest(&package, &source))?;
    write("README.md", &readme(&args.name))?;
    for (name, text) in FILES {
        write(name, &renamed(name, text, &args.name))?;
    }
    // The lock file of the workspace: no registry is needed.
    for name in ["Cargo.lock", "rust-toolchain.toml"] {
        if let Ok(text) = std::fs::read_to_string(source.join(name)) {
            write(name, &text)?;
        }
    }
    let folder = folder.display();
    print(&format!("{written}Next: cd {folder} && cargo test && cargo run -- system.toml\n"))?;
    Ok(Exit::Ok)
}

/// Checks the name of a policy and returns the reason if it is invalid.
fn check(name: &str) -> Result<(), String> {
    let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_shaped = name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with('-');
    if name.len() > 40 || !is_shaped || !name.chars().all(is_fine) || name.contains("--") {
        return Err("write up to 40 small letters, digits and single dashes, a letter first".into());
    }
    if POLICIES.contains(&name) {
        return Err("Talea has one of that name".into());
    }
    Ok(())
}

fn is_source(folder: &Path) -> bool {
    ["talea-core", "talea-sim", "talea-system"]
        .iter()
        .all(|name| folder.join("crates").join(name).join("Cargo.toml").is_file())
}

/// Finds the source tree above the current folder or above this program.
fn find_source() -> Option<PathBuf> {
    let here = std::env::current_dir().ok();
    let program = std::env::current_exe().ok();
    let around =
        |path: &PathBuf| path.ancestors().find(|folder| is_source(folder)).map(Path::to_path_buf);
    here.iter().chain(program.iter()).find_map(around)
}

/// Converts `short-job-first` to `ShortJobFirst`.
fn camel(name: &str) -> String {
    name.split('-')
        .flat_map(|word| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters)
        })
        .collect()
}

/// Returns a file of the example with the policy's name replaced.
fn renamed(file: &str, text: &str, name: &str) -> String {
    let mut out = String::new();
    if file == "src/lib.rs" {
        let _ = writeln!(
            out,
            "//! `{name}`, a scheduling policy, initially a copy of least laxity first.\n//!"
        );
    }
    let words = [
        ("policy_llf", format!("policy_{}", name.replace('-', "_"))),
        (EXAMPLE.1, format!("{}Policy", camel(name))),
        (EXAMPLE.0, name.to_owned()),
    ];
    for line in text.lines() {
        // Tests of the example carry row ids in their names.
        let line = match line.strip_prefix("fn ") {
            Some(rest) => format!("fn {}", without_row_ids(rest)),
            None => line.to_owned(),
        };
        out.push_str(&replace_words(&line, &words));
        out.push('\n');
    }
    out
}

/// Replaces words in one pass. At the same position the first word in the list wins. Inserted text
/// is not searched again, because a new name may contain the old one.
fn replace_words(text: &str, words: &[(&str, String)]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if let Some((old, new)) = words.iter().find(|(old, _)| rest.starts_with(old)) {
            out.push_str(new);
            rest = &rest[old.len()..];
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    out
}

/// Converts `l8_s19_it_is_so` to `it_is_so`.
fn without_row_ids(name: &str) -> &str {
    let is_row = |word: &str| {
        word.strip_prefix(|c: char| c.is_ascii_lowercase())
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut rest = name;
    while let Some((_, after)) = rest.split_once('_').filter(|(word, _)| is_row(word)) {
        rest = after;
    }
    rest
}

fn manifest(package: &str, source: &Path) -> String {
    let mut out = format!(
        "[package]\nname = \"{package}\"\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n[dependencies]\n"
    );
    for name in ["talea-core", "talea-sim", "talea-system"] {
        let path = source.join("crates").join(name).display().to_string();
        let _ = writeln!(out, "{name} = {{ path = {path:?} }}");
    }
    out.push_str("\n# Independent of an enclosing workspace.\n[workspace]\n");
    out
}

fn readme(name: &str) -> String {
    format!(
        "# {name}\n\nA scheduling policy that system files name `{name}`.\n\n\
         * `src/lib.rs` is the policy. The documentation of `talea_core::sched` explains the trait: which nodes may be children \
         (`admit`), which are ready (`ready`, `update`, `finished`), which one is first (`head`, `before`, `charge`), and when to be called again (`allowance`, `next_wakeup`, `wake`).\n\
         * `src/main.rs` registers it, reads a system file and simulates it: `cargo run -- system.toml`.\n\
         * `tests/policy.rs` holds it to the contract of all policies, and to what is known of the policy that it begins as, \
         least laxity first. When you change the policy those tests fail, and yours take their places. Keep the one of the \
         contract, and the one that compares it with its definition: they find mistakes.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_name_that_holds_the_old_one_is_put_in_once() {
        let text = "use policy_llf::make;\nstruct Llf;\nfn l8_it_is_llf() {}\n";
        let is = |name: &str, expected: &str| {
            assert_eq!(renamed("tests/policy.rs", text, name), expected);
        };
        is("my-llf", "use policy_my_llf::make;\nstruct MyLlfPolicy;\nfn it_is_my-llf() {}\n");
        is("llf2", "use policy_llf2::make;\nstruct Llf2Policy;\nfn it_is_llf2() {}\n");
    }
}
