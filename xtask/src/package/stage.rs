//! The installed files below a folder, with the debug information in files of its own.

use crate::install::Install;
use crate::shell::{self, output, program};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Version of all packages.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Installed files of a kind of package.
pub(super) struct Stage {
    /// Folder that receives the packages.
    pub(super) packages: PathBuf,
    /// Folder for intermediate files of this kind of package.
    pub(super) work: PathBuf,
    /// Files below the root of the installed system.
    pub(super) files: PathBuf,
    /// Files with debug information, below the root of the installed system.
    pub(super) debug: PathBuf,
    /// Folder of the libraries in the installed system.
    pub(super) libdir: PathBuf,
    /// Whether the packages are for users: compressed well, and with debug information apart.
    pub(super) is_release: bool,
    /// Time of the sources, in seconds since 1970: that of the last commit.
    pub(super) time: String,
}

impl Stage {
    /// Installs below `target/package/KIND` and strips the files.
    pub(super) fn install(kind: &str, profile: &str) -> Result<Stage> {
        for tool in ["strip", "objcopy", "readelf"] {
            if !shell::has(tool) {
                bail!("{tool} is missing: apt-get install binutils");
            }
        }
        let packages = shell::target_dir().join("package");
        let work = packages.join(kind);
        drop(fs::remove_dir_all(&work));
        let (files, debug) = (work.join("files"), work.join("debug"));
        let libdir = match kind {
            "deb" => Path::new("/usr/lib").join(multiarch()?),
            _ => "/usr/lib".into(),
        };
        let install = Install {
            prefix: "/usr".into(),
            sysconfdir: "/etc".into(),
            libdir: libdir.clone(),
            destdir: files.clone(),
            profile: profile.to_owned(),
        };
        install.all()?;
        let is_release = profile == "release";
        let stage = Stage { packages, work, files, debug, libdir, is_release, time: time() };
        for file in list(&stage.files)? {
            stage.strip(&stage.files.join(file))?;
        }
        Ok(stage)
    }

    /// Takes files that are installed below `files`, for packages in the folder `packages`.
    pub(super) fn of(files: &Path, packages: &Path) -> Result<Stage> {
        drop(fs::remove_dir_all(packages));
        fs::create_dir_all(packages)?;
        Ok(Stage {
            packages: packages.to_owned(),
            work: packages.join("work"),
            files: files.to_owned(),
            debug: packages.join("debug"),
            libdir: "/usr/lib".into(),
            is_release: false,
            time: time(),
        })
    }

    /// Removes the debug information of a program, library or archive; keeps that of a release,
    /// except of archives.
    pub(super) fn strip(&self, file: &Path) -> Result<()> {
        if file.is_symlink() {
            return Ok(());
        }
        if file.extension().is_some_and(|extension| extension == "a") {
            return run("strip", &["--strip-debug"], &[file]);
        }
        let mut magic = [0; 4];
        let mut opened = fs::File::open(file)?;
        if std::io::Read::read(&mut opened, &mut magic)? < 4 || magic != *b"\x7fELF" {
            return Ok(());
        }
        if self.is_release {
            self.keep_debug(file)?;
        }
        run("strip", &["--strip-unneeded", "--remove-section=.comment"], &[file])
    }

    /// Copies the debug information to a file that is named after the build id.
    fn keep_debug(&self, file: &Path) -> Result<()> {
        let notes = output(program("readelf", &["-n", &file.display().to_string()]));
        let id = notes.as_deref().and_then(|notes| notes.split("Build ID: ").nth(1));
        let id = id.and_then(|rest| rest.split_whitespace().next());
        let id = id.with_context(|| format!("{} has no build id", file.display()))?;
        let (folder, name) = id.split_at(2);
        let to = self.debug.join("usr/lib/debug/.build-id").join(folder);
        fs::create_dir_all(&to)?;
        let to = to.join(format!("{name}.debug"));
        // The renamed copy of the library has the build id of the library.
        if !to.exists() {
            run("objcopy", &["--only-keep-debug", "--compress-debug-sections"], &[file, &to])?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o644))?;
        }
        Ok(())
    }
}

/// Runs a program with these words and paths.
pub(super) fn run(name: &str, words: &[&str], paths: &[&Path]) -> Result<()> {
    let mut command = program(name, words);
    command.args(paths);
    if !shell::stream(command, |line| println!("{line}"))? {
        bail!("{name} failed");
    }
    Ok(())
}

/// Returns the regular files and links below a folder, relative to it, sorted.
pub(super) fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| next.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder)?.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn multiarch() -> Result<String> {
    let said = output(program("dpkg-architecture", &["-qDEB_HOST_MULTIARCH"]));
    let said = said.context("dpkg-architecture is missing: apt-get install dpkg-dev")?;
    Ok(said.trim().to_owned())
}

fn time() -> String {
    let said = output(program("git", &["log", "-1", "--format=%ct"]));
    said.map_or_else(|| "0".to_owned(), |said| said.trim().to_owned())
}
