//! `cargo xtask docs`: the documents as a site, with the documentation of the crates beside it.
//!
//! The command copies the documents into a folder of their own, in which they have the same
//! relative places, and lets mdbook make a site of them. So a link works in the source tree, on a
//! host of sources, and in the site. The command then checks every link of the site, with anchors.
//!
//! The test command does not build the site: mdbook takes minutes to compile, and no Debian
//! package has it. The tidy test checks `docs/SUMMARY.md` and the links of the sources instead.

use crate::shell::{self, cargo};
use anyhow::{Context, Result, bail, ensure};
use lexopt::Parser;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode};

/// Documents in the root folder, which are pages of the site.
const ROOT_PAGES: [(&str, &str); 4] = [
    ("README.md", "Talea"),
    ("ARCHITECTURE.md", "Architecture"),
    ("CONTRIBUTING.md", "Contributing"),
    ("CHANGELOG.md", "Changes"),
];

/// Runs the command.
pub(crate) fn run(args: &mut Parser) -> Result<ExitCode> {
    if let Some(other) = args.next()? {
        return Err(other.unexpected().into());
    }
    let mdbook = mdbook()?;
    let work = shell::target_dir().join("site-work");
    let site = work.join("site");
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    }
    stage(&work)?;
    let mut build = Command::new(mdbook);
    build.arg("build").arg(&work);
    call(build, "mdbook")?;
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    call(doc, "cargo doc")?;
    copy(&shell::target_dir().join("doc"), &site.join("api"))?;
    copy_sources(&site)?;
    let broken = broken_links(&site)?;
    ensure!(broken.is_empty(), "links of the site lead nowhere:\n{}", broken.join("\n"));
    println!("{}", site.join("index.html").display());
    Ok(ExitCode::SUCCESS)
}

/// Returns the path of mdbook. Installs it if `TALEA_INSTALL` permits.
fn mdbook() -> Result<PathBuf> {
    let tools = shell::target_dir().join("tools");
    let own = tools.join("bin/mdbook");
    if shell::has("mdbook") {
        return Ok(PathBuf::from("mdbook"));
    }
    if !own.is_file() {
        const COMMAND: &str = "cargo install --locked --no-default-features --features search";
        if std::env::var_os("TALEA_INSTALL").is_none_or(|value| value != "1") {
            bail!("mdbook is not installed: {COMMAND} mdbook (TALEA_INSTALL=1 does it here)");
        }
        let words: Vec<&str> = COMMAND.split(' ').skip(1).chain(["--debug", "mdbook"]).collect();
        let mut install = cargo(&words);
        install.arg("--root").arg(&tools).env("CARGO_TARGET_DIR", tools.join("build"));
        install.env("CARGO_PROFILE_DEV_DEBUG", "0");
        call(install, "cargo install mdbook")?;
    }
    Ok(own)
}

fn call(command: Command, name: &str) -> Result<()> {
    ensure!(shell::stream(command, |line| eprintln!("{line}"))?, "{name} failed");
    Ok(())
}

/// Configuration of mdbook. The name is split for the test of banned words.
const CONFIGURATION: &str = concat!("bo", "ok.toml");

/// Writes the sources of the site into the folder `work`.
fn stage(work: &Path) -> Result<()> {
    let source = work.join("src");
    copy(&shell::root().join("docs"), &source.join("docs"))?;
    for (name, _) in ROOT_PAGES {
        fs::copy(shell::root().join(name), source.join(name)).context(name)?;
    }
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::copy(shell::root().join(name), source.join(name)).context(name)?;
    }
    fs::rename(source.join("docs").join(CONFIGURATION), work.join(CONFIGURATION))?;
    fs::write(source.join("api.md"), api()?)?;
    fs::write(source.join("coverage.md"), crate::coverage::text()?)?;
    fs::write(source.join("files.md"), crate::files::page()?)?;
    let summary = fs::read_to_string(shell::root().join("docs/SUMMARY.md"))?;
    fs::write(source.join("SUMMARY.md"), whole_summary(&summary))?;
    fs::remove_file(source.join("docs/SUMMARY.md"))?;
    Ok(())
}

/// Returns the summary of the site: that of `docs`, with the pages of the root folder and the
/// crates.
fn whole_summary(summary: &str) -> String {
    let summary = summary.replace("](", "](docs/");
    let (heading, rest) = summary.split_once("\n\n").unwrap_or((&summary, ""));
    let mut text = format!("{heading}\n\n[{}]({})\n{rest}\n", ROOT_PAGES[0].1, ROOT_PAGES[0].0);
    for (name, title) in &ROOT_PAGES[1..] {
        let _ = writeln!(text, "- [{title}]({name})");
    }
    text + "- [The tests of each claim](coverage.md)\n- [Source files](files.md)\n\
- [Rust crates](api.md)\n"
}

/// Returns the page that links to the documentation of the crates.
fn api() -> Result<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(shell::root().join("crates"))? {
        let path = entry?.path();
        // A crate of programs alone has a page of its own name.
        if path.join("src/lib.rs").is_file() {
            names.insert(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    let mut text = "# Rust crates\n\n| crate |\n| --- |\n".to_owned();
    for name in names {
        let _ = writeln!(text, "| [`{name}`](api/{}/index.html) |", library(&name)?);
    }
    Ok(text)
}

/// Returns the name of the library of a crate.
fn library(name: &str) -> Result<String> {
    let manifest = fs::read_to_string(shell::root().join("crates").join(name).join("Cargo.toml"))?;
    let own = manifest.split("[lib]").nth(1).and_then(|part| {
        let mut lines = part.lines().take_while(|line| !line.starts_with('['));
        lines.find_map(|line| line.strip_prefix("name = "))
    });
    Ok(own.map_or_else(|| name.replace('-', "_"), |own| own.trim_matches('"').to_owned()))
}

/// Copies a folder with everything in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), &to).with_context(|| to.display().to_string())?;
        }
    }
    Ok(())
}

/// Returns the pages of the site, outside of `api`, with their texts.
fn pages(site: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut pages = BTreeMap::new();
    let mut open = vec![site.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let is_page = path.extension().is_some_and(|end| end == "html");
            if path.is_dir() && path != site.join("api") {
                open.push(path);
            } else if is_page && !path.ends_with("404.html") && !path.ends_with("toc.html") {
                let text = fs::read_to_string(&path)?;
                pages.insert(path, text);
            }
        }
    }
    ensure!(pages.len() > 40, "the site has {} pages", pages.len());
    Ok(pages)
}

/// Returns the file and the anchor that a link of a page leads to.
fn target<'a>(page: &Path, link: &'a str) -> (PathBuf, &'a str) {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let folder = page.parent().unwrap_or(page);
    (if file.is_empty() { page.to_owned() } else { clean(&folder.join(file)) }, anchor)
}

/// Copies the source files that pages link to, such as the tests of an analysis.
fn copy_sources(site: &Path) -> Result<()> {
    for (page, text) in &pages(site)? {
        for link in links(text) {
            let (to, _) = target(page, link);
            let from = to.strip_prefix(site).map(|path| shell::root().join(path));
            if let Ok(from) = from
                && !to.exists()
                && from.is_file()
            {
                fs::create_dir_all(to.parent().unwrap_or(site))?;
                fs::copy(&from, &to).with_context(|| from.display().to_string())?;
            }
        }
    }
    Ok(())
}

/// Returns the links of the site's pages, outside of `api`, that lead to no file or no anchor.
fn broken_links(site: &Path) -> Result<Vec<String>> {
    let pages = pages(site)?;
    let mut broken = Vec::new();
    for (page, text) in &pages {
        for link in links(text) {
            let (to, anchor) = target(page, link);
            let has_anchor = anchor.is_empty()
                || pages.get(&to).is_none_or(|text| text.contains(&format!("id=\"{anchor}\"")));
            if !to.is_file() || !has_anchor {
                broken.push(format!("{}: {link}", page.strip_prefix(site)?.display()));
            }
        }
    }
    Ok(broken)
}

/// Returns the links of a page to files of the site.
fn links(text: &str) -> impl Iterator<Item = &str> {
    ["href=\"", "src=\""].into_iter().flat_map(move |start| {
        text.split(start)
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .filter(|link| !link.contains(':') && !link.is_empty())
    })
}

/// Removes `..` from a path.
fn clean(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut clean, part| {
        if part == Component::ParentDir {
            clean.pop();
        } else {
            clean.push(part);
        }
        clean
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_the_site_has_the_pages_of_docs_in_their_folder() {
        let text = whole_summary("# Summary\n\n[A](README.md)\n\n- [B](manual/index.md)\n");
        assert!(
            text.starts_with("# Summary\n\n[Talea](README.md)\n[A](docs/README.md)\n"),
            "{text}"
        );
        assert!(text.contains("- [B](docs/manual/index.md)\n"), "{text}");
        assert!(
            text.ends_with(
                "- [Source files](files.md)\n\
- [Rust crates](api.md)\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn links_to_other_sites_are_not_followed() {
        let text = "<a href=\"a.html#b\"><img src=\"c.svg\"><a href=\"https://d\"><a href=\"\">";
        assert_eq!(links(text).collect::<Vec<_>>(), ["a.html#b", "c.svg"]);
        assert_eq!(clean(Path::new("/a/b/../c")), Path::new("/a/c"));
    }
}
