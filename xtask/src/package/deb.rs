//! Debian packages, by `dpkg-deb`.
//!
//! `etc/debian` has the fields of each package (`NAME.control`), the files (`NAME.install`, a path
//! or a folder with `/` at its end per line) and the maintainer scripts. Each installed file is in
//! exactly one package.

use super::stage::{Stage, VERSION, list, run};
use crate::shell::{output, program, root};
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Packages, each after those that it depends on.
const PACKAGES: [&str; 5] = ["libtalea0", "libtalea-dev", "talea", "talead", "talea-rtkit"];
/// Package with the debug information.
const DEBUG: &str = "talea-dbgsym";
/// Bound of the installed size of a release in KiB, without the files for developers: 25 MB.
const MAX_INSTALLED_KIB: u64 = 25_000_000 / 1024;
const MAINTAINER: &str = "Talea maintainers <maintainers@talea.invalid>";

/// Builds all packages in `target/package`.
pub(super) fn build(stage: &Stage) -> Result<ExitCode> {
    let mut left = list(&stage.files)?;
    let mut taken = Vec::new();
    for name in PACKAGES {
        for pattern in patterns(stage, name)?.lines() {
            let before = left.len();
            left.retain(|path| {
                let is_of = matches(pattern, path);
                if is_of {
                    taken.push((name, path.clone()));
                }
                !is_of
            });
            if left.len() == before {
                bail!("{name}.install: no file is `{pattern}`, or another package has it");
            }
        }
    }
    if let Some(path) = left.first() {
        bail!("{} files are in no package, such as {}", left.len(), path.display());
    }
    let mut installed_kib = 0;
    for name in PACKAGES {
        let tree = stage.work.join(name);
        for (_, path) in taken.iter().filter(|(of, _)| *of == name) {
            place(&stage.files.join(path), &tree.join(path))?;
        }
        documents(stage, name, &tree)?;
        let size_kib = finish(stage, name, &tree, &text(&format!("{name}.control"))?)?;
        installed_kib += if name.ends_with("-dev") { 0 } else { size_kib };
    }
    println!("installed size: {installed_kib} KiB, without the files for developers");
    if !stage.is_release {
        return Ok(ExitCode::SUCCESS);
    }
    if installed_kib > MAX_INSTALLED_KIB {
        bail!("the installed size exceeds {MAX_INSTALLED_KIB} KiB");
    }
    let tree = stage.work.join(DEBUG);
    for path in list(&stage.debug)? {
        place(&stage.debug.join(&path), &tree.join(&path))?;
    }
    documents(stage, DEBUG, &tree)?;
    let fields = "Section: debug\nPriority: optional\nAuto-Built-Package: debug-symbols\n\
                  Description: debug symbols of Talea\n Debug information of its programs and library.\n";
    finish(stage, DEBUG, &tree, fields)?;
    Ok(ExitCode::SUCCESS)
}

/// Builds one package of the files of a stage, which stay. Returns its path.
pub(super) fn build_one(stage: &Stage, name: &str) -> Result<PathBuf> {
    let tree = stage.work.join(name);
    let patterns = patterns(stage, name)?;
    for path in list(&stage.files)? {
        if patterns.lines().any(|pattern| matches(pattern, &path)) {
            let to = tree.join(&path);
            fs::create_dir_all(to.parent().context("a folder")?)?;
            fs::copy(stage.files.join(&path), &to)?;
            stage.strip(&to)?;
        }
    }
    documents(stage, name, &tree)?;
    finish(stage, name, &tree, &text(&format!("{name}.control"))?)?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
    let package = list(&stage.packages)?.into_iter().find(is_package).context("a package")?;
    Ok(stage.packages.join(package))
}

/// Returns the paths of the files of a package, one per line.
fn patterns(stage: &Stage, name: &str) -> Result<String> {
    let libdir = stage.libdir.to_str().context("UTF-8")?.trim_start_matches('/');
    Ok(text(&format!("{name}.install"))?.replace("@libdir@", libdir))
}

/// Whether a line of `NAME.install` means the file `path`.
fn matches(pattern: &str, path: &Path) -> bool {
    if pattern.ends_with('/') { path.starts_with(pattern) } else { path == Path::new(pattern) }
}

fn text(name: &str) -> Result<String> {
    let path = root().join("etc/debian").join(name);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

fn place(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a folder")?)?;
    fs::rename(from, to).with_context(|| to.display().to_string())
}

/// Writes the copyright and the change log, and compresses them and the manual pages.
fn documents(stage: &Stage, name: &str, tree: &Path) -> Result<()> {
    let folder = tree.join("usr/share/doc").join(name);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("copyright"), text("copyright")?)?;
    let date = output(program("date", &["-uR", "-d", &format!("@{}", stage.time)]));
    let date = date.context("date")?;
    let changes = format!(
        "talea ({VERSION}) unstable; urgency=medium\n\n  * See CHANGELOG.md of the package talea.\n\n -- {MAINTAINER}  {}\n",
        date.trim()
    );
    let changelog = folder.join("changelog");
    fs::write(&changelog, changes)?;
    run("gzip", &["-9n"], &[&changelog])?;
    for page in list(tree)?.iter().filter(|path| path.starts_with("usr/share/man")) {
        run("gzip", &["-9n"], &[&tree.join(page)])?;
    }
    let overrides = root().join("etc/debian").join(format!("{name}.lintian-overrides"));
    if overrides.exists() {
        let to = tree.join("usr/share/lintian/overrides");
        fs::create_dir_all(&to)?;
        fs::copy(overrides, to.join(name))?;
    }
    Ok(())
}

/// Writes the control files of a package and builds it. Returns the installed size in KiB.
fn finish(stage: &Stage, name: &str, tree: &Path, fields: &str) -> Result<u64> {
    let control = tree.join("DEBIAN");
    let files = list(tree)?;
    fs::create_dir_all(&control)?;
    let mut sums = String::new();
    let mut bytes = 0;
    for file in files.iter().filter(|file| !tree.join(file).is_symlink()) {
        let path = tree.join(file);
        bytes += path.metadata()?.len();
        let sum = output(program("md5sum", &[path.to_str().context("UTF-8")?]));
        let sum =
            sum.as_deref().and_then(|sum| sum.split(' ').next()).context("md5sum")?.to_owned();
        let _ = writeln!(sums, "{sum}  {}", file.display());
    }
    fs::write(control.join("md5sums"), sums)?;
    let mut of_etc = String::new();
    for file in files.iter().filter(|file| file.starts_with("etc")) {
        let _ = writeln!(of_etc, "/{}", file.display());
    }
    if !of_etc.is_empty() {
        fs::write(control.join("conffiles"), of_etc)?;
    }
    for script in ["postinst", "prerm", "postrm", "triggers", "shlibs"] {
        let from = root().join("etc/debian").join(format!("{name}.{script}"));
        if from.exists() {
            let to = control.join(script);
            fs::copy(from, &to)?;
            let mode = if matches!(script, "triggers" | "shlibs") { 0o644 } else { 0o755 };
            fs::set_permissions(&to, fs::Permissions::from_mode(mode))?;
        }
    }
    let architecture = output(program("dpkg-architecture", &["-qDEB_HOST_ARCH"]));
    let architecture = architecture.context("dpkg-architecture")?.trim().to_owned();
    let fields =
        fields.replace("@shlibs@", &libraries(stage, tree, &files)?).replace("@version@", VERSION);
    let size_kib = u64::div_ceil(bytes, 1024);
    fs::write(
        control.join("control"),
        format!(
            "Package: {name}\nSource: talea\nVersion: {VERSION}\nArchitecture: {architecture}\n\
             Maintainer: {MAINTAINER}\nInstalled-Size: {size_kib}\n{fields}",
        ),
    )?;
    let package = stage.packages.join(format!("{name}_{VERSION}_{architecture}.deb"));
    let mut dpkg = program("dpkg-deb", &["--root-owner-group"]);
    let compression = if stage.is_release { ["-Zxz", "-z6"] } else { ["-Zgzip", "-z1"] };
    dpkg.args(compression)
        .arg("--build")
        .env("SOURCE_DATE_EPOCH", &stage.time)
        .arg(tree)
        .arg(&package);
    let is_built = crate::shell::stream(dpkg, |line| println!("{line}"))?;
    if !is_built {
        bail!("dpkg-deb failed for {name}");
    }
    Ok(size_kib)
}

/// Returns the packages of the shared libraries that the programs of a package need.
fn libraries(stage: &Stage, tree: &Path, files: &[PathBuf]) -> Result<String> {
    let is_program = |path: &&PathBuf| {
        let path = tree.join(path);
        !path.is_symlink() && fs::read(&path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
    };
    let programs: Vec<&PathBuf> = files.iter().filter(is_program).collect();
    let is_debug = tree.ends_with(DEBUG);
    if programs.is_empty() || is_debug {
        return Ok(String::new());
    }
    // The tool insists on the folder of a source package.
    let source = stage.work.join("shlibs/debian");
    fs::create_dir_all(&source)?;
    fs::write(source.join("control"), "Source: talea\n\nPackage: talea\nArchitecture: any\n")?;
    let own = stage.work.join("libtalea0").join(stage.libdir.strip_prefix("/")?);
    let mut command = program("dpkg-shlibdeps", &["-O", "--ignore-missing-info"]);
    command.current_dir(stage.work.join("shlibs")).arg(format!("-l{}", own.display()));
    command.args(programs.iter().map(|path| tree.join(path)));
    let said = output(command).context("dpkg-shlibdeps failed: apt-get install dpkg-dev")?;
    let said = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(said.context("dpkg-shlibdeps found no library")?.to_owned())
}
