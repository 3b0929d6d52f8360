//! Initial file systems of the guests.

use super::{Built, services};
use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Packs the file system `name` of a guest without systemd below `dir`: a first process, the tests,
/// the programs that the tests start, and the libraries of all. Returns the archive.
pub(super) fn pack(name: &str, built: &Built, programs: &[PathBuf], dir: &Path) -> Result<PathBuf> {
    let root = empty(dir.join(name))?;
    for folder in ["bin", "dev", "proc", "sys", "tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    add(&root, &built.init, "init")?;
    add(&root, &built.tests, "tests")?;
    for program in programs {
        let name = program.file_name().context("a name")?.to_string_lossy();
        add(&root, program, &format!("bin/{name}"))?;
    }
    let archive = dir.join(format!("{name}.cpio"));
    write(&root, fs::File::create(&archive)?)?;
    Ok(archive)
}

/// Packs the file system of a guest with systemd below `dir`: the archive of the user space, then
/// the files of an installation, the tests and the unit that starts the tests. The kernel unpacks
/// an archive behind another one into the same tree. Returns the archive.
pub(super) fn pack_services(
    userland: &Path,
    installed: &Path,
    init: &Path,
    tests: &Path,
    dir: &Path,
) -> Result<PathBuf> {
    let root = empty(dir.join("services-root"))?;
    for folder in services::INSTALLED {
        copy(&installed.join(folder), &root.join(folder))?;
    }
    for (name, text) in services::FILES {
        let path = root.join(name);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        fs::write(path, text)?;
    }
    add(&root, init, "init")?;
    add(&root, tests, "tests")?;
    for program in services::PROGRAMS {
        let program = root.join(program);
        strip(&program)?;
        add_libraries(&root, &program)?;
    }
    // Links of the user space, into which the kernel must unpack the libraries.
    for name in ["lib", "lib64"] {
        if root.join(name).is_dir() {
            copy(&root.join(name), &root.join("usr").join(name))?;
            fs::remove_dir_all(root.join(name))?;
        }
    }
    let archive = dir.join("services.cpio");
    let mut file = fs::File::create(&archive)?;
    std::io::copy(&mut fs::File::open(userland)?, &mut file)?;
    write(&root, file)?;
    Ok(archive)
}

/// Makes an empty folder at `path`.
fn empty(path: PathBuf) -> Result<PathBuf> {
    if path.exists() {
        fs::remove_dir_all(&path)?;
    }
    fs::create_dir_all(&path)?;
    Ok(path)
}

/// Adds a program without its debug information, and the libraries that the program needs.
fn add(root: &Path, program: &Path, name: &str) -> Result<()> {
    let to = root.join(name);
    fs::copy(program, &to).with_context(|| program.display().to_string())?;
    strip(&to)?;
    add_libraries(root, program)
}

fn add_libraries(root: &Path, program: &Path) -> Result<()> {
    for library in libraries(program)? {
        let to = root.join(library.strip_prefix("/").unwrap_or(&library));
        fs::create_dir_all(to.parent().context("a folder")?)?;
        fs::copy(&library, &to).with_context(|| library.display().to_string())?;
    }
    Ok(())
}

/// Removes debug information, which is four fifths of a program and must be unpacked by the guest.
fn strip(program: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg(program);
    shell::output(strip).with_context(|| format!("strip {}", program.display()))?;
    Ok(())
}

/// Copies a file or a folder.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let context = || from.display().to_string();
    if !from.is_dir() {
        fs::create_dir_all(to.parent().context("a folder")?)?;
        return fs::copy(from, to).map(drop).with_context(context);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(context)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Appends an archive of all files below `root` to `archive`.
pub(super) fn write(root: &Path, archive: fs::File) -> Result<()> {
    let names = names(root)?;
    let mut cpio = Command::new("cpio");
    cpio.args(["--create", "--format", "newc", "--quiet", "--owner=+0:+0"]).current_dir(root);
    let mut cpio = cpio.stdin(Stdio::piped()).stdout(archive).spawn().context("cpio")?;
    std::io::Write::write_all(
        &mut cpio.stdin.take().context("a pipe")?,
        names.join("\n").as_bytes(),
    )?;
    if !cpio.wait()?.success() {
        bail!("cpio failed");
    }
    Ok(())
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
            let entry = entry?;
            let path = entry.path();
            let name = path.strip_prefix(root)?.to_str().context("a name in UTF-8")?;
            names.push(name.to_owned());
            if entry.file_type()?.is_dir() {
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
