//! Initial file system of the guest: a first process, the tests, and the libraries of both.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Packs the file system below `dir`, and returns the archive.
pub(super) fn pack(init: &Path, tests: &Path, dir: &Path) -> Result<PathBuf> {
    let root = dir.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for folder in ["dev", "proc", "sys", "tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    for (program, name) in [(init, "init"), (tests, "tests")] {
        fs::copy(program, root.join(name)).with_context(|| program.display().to_string())?;
        for library in libraries(program)? {
            let to = root.join(library.strip_prefix("/").unwrap_or(&library));
            fs::create_dir_all(to.parent().context("a folder")?)?;
            fs::copy(&library, &to).with_context(|| library.display().to_string())?;
        }
    }
    let archive = dir.join("root.cpio");
    let names = names(&root)?;
    let mut cpio = Command::new("cpio");
    cpio.args(["--create", "--format", "newc", "--quiet"]).current_dir(&root);
    let mut cpio =
        cpio.stdin(Stdio::piped()).stdout(fs::File::create(&archive)?).spawn().context("cpio")?;
    std::io::Write::write_all(
        &mut cpio.stdin.take().context("a pipe")?,
        names.join("\n").as_bytes(),
    )?;
    if !cpio.wait()?.success() {
        bail!("cpio failed");
    }
    Ok(archive)
}

/// Returns the libraries that the dynamic linker loads for a program, and the linker itself.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let mut ldd = Command::new("ldd");
    ldd.arg(program);
    let text = shell::output(ldd).with_context(|| format!("ldd {}", program.display()))?;
    Ok(listed(&text))
}

/// Returns the paths in the output of `ldd`.
fn listed(text: &str) -> Vec<PathBuf> {
    let paths =
        text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(PathBuf::from).collect()
}

/// Returns all files below `root`, each folder before its files.
fn names(root: &Path) -> Result<Vec<String>> {
    let mut open = vec![root.to_owned()];
    let mut names = Vec::new();
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let name = path.strip_prefix(root)?.to_str().context("a name in UTF-8")?;
            names.push(name.to_owned());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_linker_itself_are_found() {
        let text = "\tlinux-vdso.so.1 (0x0)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x1)\n\t/lib64/ld-linux.so.2 (0x2)\n";
        assert_eq!(
            listed(text),
            [PathBuf::from("/lib/x/libc.so.6"), PathBuf::from("/lib64/ld-linux.so.2")]
        );
    }
}
