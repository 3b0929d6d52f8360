//! `cargo xtask install --prefix DIR [--destdir DIR] [--sysconfdir DIR] [--libdir DIR] [--profile
//! NAME]`.
//!
//! The command builds and copies programs, libraries under their SONAMEs, headers, pkg-config
//! files, man pages, the manual, completions, service units, a sample configuration and the
//! demonstration. `--destdir` is a prefix of every path, for packagers. The command never
//! overwrites an existing configuration.

use crate::shell::{self, cargo, program, root};
use anyhow::{Context, Result, bail};
use lexopt::{Arg, Parser, ValueExt};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
cargo xtask install --prefix DIR [--destdir DIR] [--sysconfdir DIR] [--libdir DIR] [--profile NAME]

  --prefix DIR      the folder of the installed system, such as /usr/local
  --destdir DIR     a prefix of every path, for packagers
  --sysconfdir DIR  the folder of the configuration [PREFIX/etc; /etc for /usr]
  --libdir DIR      the folder of the libraries [PREFIX/lib]
  --profile NAME    the profile of the build [release]
";

pub(crate) struct Install {
    pub(crate) prefix: PathBuf,
    pub(crate) sysconfdir: PathBuf,
    pub(crate) libdir: PathBuf,
    pub(crate) destdir: PathBuf,
    pub(crate) profile: String,
}

/// Runs the install command.
pub(crate) fn run(args: &mut Parser) -> Result<ExitCode> {
    let Some(install) = Install::parse(args)? else {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    };
    install.all()?;
    println!("installed below {}", install.place(&install.prefix).display());
    Ok(ExitCode::SUCCESS)
}

impl Install {
    /// Reads the arguments. Returns `None` if they ask for help.
    fn parse(args: &mut Parser) -> Result<Option<Install>> {
        let (mut prefix, mut sysconfdir, mut libdir) = (None, None, None);
        let (mut destdir, mut profile) = (PathBuf::new(), "release".to_owned());
        while let Some(arg) = args.next()? {
            match arg {
                Arg::Long("prefix") => prefix = Some(PathBuf::from(args.value()?)),
                Arg::Long("sysconfdir") => sysconfdir = Some(PathBuf::from(args.value()?)),
                Arg::Long("libdir") => libdir = Some(PathBuf::from(args.value()?)),
                Arg::Long("destdir") => destdir = args.value()?.into(),
                Arg::Long("profile") => profile = args.value()?.string()?,
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                other => bail!("{}\n\n{USAGE}", other.unexpected()),
            }
        }
        let prefix = prefix.context("--prefix DIR is missing, such as --prefix /usr/local")?;
        // The configuration of the prefix /usr is in /etc.
        let beside = if prefix == Path::new("/usr") { "/etc".into() } else { prefix.join("etc") };
        let sysconfdir = sysconfdir.unwrap_or(beside);
        let libdir = libdir.unwrap_or_else(|| prefix.join("lib"));
        if ![&prefix, &sysconfdir, &libdir].iter().all(|path| path.is_absolute()) {
            bail!("paths must be absolute: services start in another folder");
        }
        Ok(Some(Install { prefix, sysconfdir, libdir, destdir, profile }))
    }

    /// Builds and copies everything.
    pub(crate) fn all(&self) -> Result<()> {
        self.build()?;
        self.programs()?;
        self.libraries()?;
        self.documents()?;
        self.services()?;
        self.demonstration()
    }

    /// Returns a path in the folder of the libraries.
    fn library(&self, name: &str) -> PathBuf {
        self.libdir.join(name)
    }

    /// Returns the path below `destdir` for a path of the installed system.
    fn place(&self, path: &Path) -> PathBuf {
        if self.destdir.as_os_str().is_empty() {
            path.to_owned()
        } else {
            self.destdir.join(path.strip_prefix("/").unwrap_or(path))
        }
    }

    fn target(&self, dir: &Path) -> PathBuf {
        dir.join(if self.profile == "dev" { "debug" } else { &self.profile })
    }

    fn config(&self) -> PathBuf {
        self.sysconfdir.join("talea/talead.toml")
    }

    fn build(&self) -> Result<()> {
        let packages = [
            "talea-cli",
            "talea-daemon",
            "talea-deployd",
            "talea-governor",
            "talea-plugin-host",
            "talea-rtkit",
            "talea-capi",
        ];
        let mut build = cargo(&["build", "--locked", "--profile", &self.profile]);
        if self.sysconfdir != Path::new("/etc") {
            // Otherwise `talead` and `talea doctor` would read /etc/talea.
            build.env("TALEA_CONFIG", self.config());
        }
        for name in packages {
            build.args(["-p", name]);
        }
        must(build)
    }

    fn programs(&self) -> Result<()> {
        let built = self.target(&shell::target_dir());
        self.copy(&built.join("talea"), "bin/talea", 0o755)?;
        self.copy(&built.join("talead"), "sbin/talead", 0o755)?;
        self.copy(&built.join("talea-deployd"), "sbin/talea-deployd", 0o755)?;
        self.copy(&built.join("talea-rtkit"), "libexec/talea/talea-rtkit", 0o755)?;
        for internal in ["talea-governor", "talea-plugin-host"] {
            self.copy(&built.join(internal), &format!("libexec/talea/{internal}"), 0o755)?;
        }
        Ok(())
    }

    fn libraries(&self) -> Result<()> {
        let built = self.target(&shell::target_dir()).join("libtalea.so");
        self.copy_to(&built, &self.library("libtalea.so.0"), 0o644)?;
        // Programs that were linked with the original ask for its SONAME.
        let library = fs::read(&built).with_context(|| built.display().to_string())?;
        let retif = self.place(&self.library("libretif.so.0"));
        self.copy_to(&built, &self.library("libretif.so.0"), 0o644)?;
        fs::write(&retif, renamed(library)?).with_context(|| retif.display().to_string())?;
        for name in ["talea", "retif"] {
            self.link(&format!("lib{name}.so.0"), &self.library(&format!("lib{name}.so")))?;
            let header = format!("include/{name}.h");
            self.copy(&root().join("crates/talea-capi").join(&header), &header, 0o644)?;
            let described = format!("crates/talea-capi/pkgconfig/{name}.pc.in");
            self.fill(&described, &self.library(&format!("pkgconfig/{name}.pc")))?;
        }
        for header in ["include/yasmin.h", "include/yasmin_constants.h"] {
            self.copy(&root().join("crates/talea-capi").join(header), header, 0o644)?;
        }
        // The archive, for programs that include the library; it has every interface.
        let archive = self.target(&shell::target_dir()).join("libtalea.a");
        self.copy_to(&archive, &self.library("libtalea.a"), 0o644)?;
        // The original installs its header one level deeper.
        self.link("../retif.h", &self.prefix.join("include/lib/retif.h"))?;
        let plugin = root().join("crates/talea-plugin-host/include/talea_plugin.h");
        self.copy(&plugin, "include/talea_plugin.h", 0o644)?;
        let sched = root().join("crates/talea-object/include/talea_sched.h");
        self.copy(&sched, "include/talea_sched.h", 0o644)
    }

    fn documents(&self) -> Result<()> {
        let talea = self.target(&shell::target_dir()).join("talea");
        // The program writes its own pages; the tree has the others. Not in the target folder: two
        // installations may run at the same time.
        let pages = std::env::temp_dir().join(format!("talea-man-{}", std::process::id()));
        fs::create_dir_all(&pages)?;
        let mut write_pages = Command::new(&talea);
        write_pages.args(["man", "--dir"]).arg(&pages);
        must(write_pages)?;
        for folder in [&pages, &root().join("docs/man")] {
            for page in Install::files(folder)? {
                let section = page.rsplit('.').next().context("a man page without a section")?;
                let to = format!("share/man/man{section}/{page}");
                self.copy(&folder.join(&page), &to, 0o644)?;
            }
        }
        fs::remove_dir_all(&pages)?;
        for (shell, path) in [
            ("bash", "share/bash-completion/completions/talea"),
            ("zsh", "share/zsh/site-functions/_talea"),
            ("fish", "share/fish/vendor_completions.d/talea.fish"),
        ] {
            let mut completions = Command::new(&talea);
            completions.args(["completions", shell]);
            let text =
                shell::output(completions).with_context(|| format!("completions for {shell}"))?;
            self.write(&self.prefix.join(path), &text)?;
        }
        for name in
            ["README.md", "ARCHITECTURE.md", "LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"]
        {
            self.copy(&root().join(name), &format!("share/doc/talea/{name}"), 0o644)?;
        }
        // Targets of the links in the README.
        for folder in ["docs", "docs/decisions", "docs/internals", "docs/manual"] {
            for name in Install::files(&root().join(folder))? {
                let file = format!("{folder}/{name}");
                self.copy(&root().join(&file), &format!("share/doc/talea/{file}"), 0o644)?;
            }
        }
        Ok(())
    }

    /// Returns the names of the regular files in a folder.
    fn files(folder: &Path) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                let name = entry.file_name().into_string();
                names.push(name.ok().context("a name in UTF-8")?);
            }
        }
        Ok(names)
    }

    fn services(&self) -> Result<()> {
        for unit in [
            "talead.service",
            "talead.socket",
            "talead-plugin.socket",
            "talead-plugin@.service",
            "talea-deploy.service",
            "talea-rtkit.service",
        ] {
            self.fill(
                &format!("etc/systemd/{unit}"),
                &self.prefix.join("lib/systemd/system").join(unit),
            )?;
        }
        for name in ["talea", "talea-rtkit"] {
            self.fill(
                &format!("etc/systemd/{name}.sysusers.conf"),
                &self.prefix.join(format!("lib/sysusers.d/{name}.conf")),
            )?;
        }
        for (extension, folder) in [("conf", "system.d"), ("service", "system-services")] {
            let name = format!("org.freedesktop.RealtimeKit1.{extension}");
            let to = format!("share/dbus-1/{folder}/{name}");
            self.copy(&root().join("etc/dbus").join(&name), &to, 0o644)?;
        }
        let config = self.config();
        if self.place(&config).exists() {
            println!("{} stays as it is", config.display());
            return Ok(());
        }
        self.fill("etc/talead.toml", &config)
    }

    fn demonstration(&self) -> Result<()> {
        let source = root().join("examples/convolver");
        let demo = self.place(&self.prefix.join("libexec/talea/demo"));
        fs::create_dir_all(&demo)?;
        let job = ["convolver.c", "room.c", "fft.c", "wav.c"];
        let lib = format!("-L{}", self.place(&self.libdir).display());
        let include = format!("-I{}", self.place(&self.prefix.join("include")).display());
        let mut with = vec!["-DWITH_TALEA", &include, &lib, "-ltalea"];
        // The loader searches the folders of /usr by itself.
        if self.prefix != Path::new("/usr") {
            with.push("-Wl,-rpath,$ORIGIN:$ORIGIN/../../../lib");
        }
        for (name, sources, more) in [
            ("convolver", &job[..], &[][..]),
            ("convolver-talea", &job[..], &with[..]),
            ("load", &["load.c"][..], &[][..]),
        ] {
            let mut cc = program("cc", &["-std=gnu11", "-O2", "-o"]);
            cc.arg(demo.join(name)).args(sources).args(more).arg("-lm").current_dir(&source);
            must(cc).context("the demonstration needs a C compiler")?;
        }
        self.copy(&source.join("talea.wav"), "libexec/talea/demo/talea.wav", 0o644)
    }

    /// Copies a file of the tree to the path `to` below the prefix.
    fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<()> {
        self.copy_to(from, &self.prefix.join(to), mode)
    }

    /// Copies a file of the tree to the path `to` of the installed system.
    fn copy_to(&self, from: &Path, to: &Path, mode: u32) -> Result<()> {
        let to = self.place(to);
        fs::create_dir_all(to.parent().context("a directory")?)?;
        // A running program keeps its old file.
        if to.exists() {
            fs::remove_file(&to)?;
        }
        fs::copy(from, &to)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
        Ok(fs::set_permissions(&to, Permissions::from_mode(mode))?)
    }

    fn link(&self, to: &str, name: &Path) -> Result<()> {
        let at = self.place(name);
        fs::create_dir_all(at.parent().context("a directory")?)?;
        if at.symlink_metadata().is_ok() {
            fs::remove_file(&at)?;
        }
        symlink(to, &at).with_context(|| at.display().to_string())
    }

    /// Writes a file of the tree to `to`, with values in place of the `@words@` of the file.
    fn fill(&self, from: &str, to: &Path) -> Result<()> {
        let text = fs::read_to_string(root().join(from)).with_context(|| from.to_owned())?;
        let path = |path: &Path| path.display().to_string();
        let text = text
            .replace("@prefix@", &path(&self.prefix))
            .replace("@sbindir@", &path(&self.prefix.join("sbin")))
            .replace("@libdir@", &path(&self.libdir))
            .replace("@sysconfdir@", &path(&self.sysconfdir))
            .replace("@version@", env!("CARGO_PKG_VERSION"));
        self.write(to, &text)
    }

    fn write(&self, to: &Path, text: &str) -> Result<()> {
        let to = self.place(to);
        fs::create_dir_all(to.parent().context("a directory")?)?;
        fs::write(&to, text).with_context(|| to.display().to_string())?;
        Ok(fs::set_permissions(&to, Permissions::from_mode(0o644))?)
    }
}

/// Replaces the SONAME of `libtalea.so` by the SONAME of the original ReTiF library. Both names
/// have the same length. Only the string table of the dynamic section has the name between two zero
/// bytes.
fn renamed(mut library: Vec<u8>) -> Result<Vec<u8>> {
    const TALEA: &[u8] = b"\0libtalea.so.0\0";
    const RETIF: &[u8; TALEA.len()] = b"\0libretif.so.0\0";
    let is_name = |at: &usize| library[*at..].starts_with(TALEA);
    let places: Vec<_> = (0..library.len()).filter(is_name).collect();
    let [at] = places[..] else {
        bail!("libtalea.so has its SONAME {} times, not once", places.len());
    };
    library[at..at + RETIF.len()].copy_from_slice(RETIF);
    Ok(library)
}

fn must(command: Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    if shell::stream(command, |line| println!("{line}"))? { Ok(()) } else { bail!("{name} failed") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soname_is_replaced_where_it_stands_once() {
        let library = b"code\0libtalea.so.0\0more libtalea.so.0".to_vec();
        let renamed = renamed(library.clone()).expect("one name");
        assert_eq!(renamed, b"code\0libretif.so.0\0more libtalea.so.0");
        assert!(super::renamed([&library[..], b"\0libtalea.so.0\0"].concat()).is_err());
        assert!(super::renamed(b"none".to_vec()).is_err());
    }
}
