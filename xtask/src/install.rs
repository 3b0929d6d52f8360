//! `cargo xtask install --prefix DIR [--destdir DIR] [--sysconfdir DIR] [--profile NAME]`.
//!
//! Builds and copies: programs, libraries under their SONAMEs, headers, pkg-config files, man
//! pages, the manual, completions, service units, a sample configuration, the demonstration.
//! `--destdir` is put in front of every path, for packagers. A configuration that is there is never
//! overwritten.

use crate::shell::{self, cargo, program, root};
use anyhow::{Context, Result, bail};
use lexopt::{Arg, Parser, ValueExt};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
cargo xtask install --prefix DIR [--destdir DIR] [--sysconfdir DIR] [--profile NAME]

  --prefix DIR      where the installed system has it, such as /usr/local
  --destdir DIR     put in front of every path: for packagers
  --sysconfdir DIR  where the configuration lies [PREFIX/etc; /etc for /usr]
  --profile NAME    how to build [release]
";

struct Install {
    prefix: PathBuf,
    sysconfdir: PathBuf,
    destdir: PathBuf,
    profile: String,
}

/// Runs the command.
pub(crate) fn run(args: &mut Parser) -> Result<ExitCode> {
    let Some(install) = Install::parse(args)? else {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    };
    install.build()?;
    install.programs()?;
    install.libraries()?;
    install.documents()?;
    install.services()?;
    install.demonstration()?;
    println!("installed below {}", install.place(&install.prefix).display());
    Ok(ExitCode::SUCCESS)
}

impl Install {
    /// `None`: help was asked for.
    fn parse(args: &mut Parser) -> Result<Option<Install>> {
        let (mut prefix, mut sysconfdir) = (None, None);
        let (mut destdir, mut profile) = (PathBuf::new(), "release".to_owned());
        while let Some(arg) = args.next()? {
            match arg {
                Arg::Long("prefix") => prefix = Some(PathBuf::from(args.value()?)),
                Arg::Long("sysconfdir") => sysconfdir = Some(PathBuf::from(args.value()?)),
                Arg::Long("destdir") => destdir = args.value()?.into(),
                Arg::Long("profile") => profile = args.value()?.string()?,
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                other => bail!("{}\n\n{USAGE}", other.unexpected()),
            }
        }
        let prefix = prefix.context("--prefix DIR says where to, such as /usr/local")?;
        // The system's own prefix has its configuration beside it.
        let beside = if prefix == Path::new("/usr") { "/etc".into() } else { prefix.join("etc") };
        let sysconfdir = sysconfdir.unwrap_or(beside);
        if !prefix.is_absolute() || !sysconfdir.is_absolute() {
            bail!("paths must be absolute: services are started from elsewhere");
        }
        Ok(Some(Install { prefix, sysconfdir, destdir, profile }))
    }

    /// Where a path of the installed system lies now.
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
        let packages = ["talea-cli", "talea-daemon", "talea-plugin-host", "talea-capi"];
        let mut build = cargo(&["build", "--locked", "--profile", &self.profile]);
        if self.sysconfdir != Path::new("/etc") {
            // Else `talead` and `talea doctor` would look where nothing was installed.
            build.env("TALEA_CONFIG", self.config());
        }
        for name in packages {
            build.args(["-p", name]);
        }
        must(build)?;
        // The same code once more: programs that were linked with the original ask for its name.
        let mut retif =
            cargo(&["build", "--locked", "--profile", &self.profile, "-p", "talea-capi"]);
        retif.env("TALEA_SONAME", "libretif.so.0").arg("--target-dir").arg(retif_dir());
        must(retif)
    }

    fn programs(&self) -> Result<()> {
        let built = self.target(&shell::target_dir());
        self.copy(&built.join("talea"), "bin/talea", 0o755)?;
        self.copy(&built.join("talead"), "sbin/talead", 0o755)?;
        self.copy(&built.join("talea-plugin-host"), "libexec/talea/talea-plugin-host", 0o755)
    }

    fn libraries(&self) -> Result<()> {
        let talea = self.target(&shell::target_dir()).join("libtalea.so");
        let retif = self.target(&retif_dir()).join("libtalea.so");
        for (built, name) in [(talea, "talea"), (retif, "retif")] {
            self.copy(&built, &format!("lib/lib{name}.so.0"), 0o755)?;
            self.link(&format!("lib{name}.so.0"), &format!("lib/lib{name}.so"))?;
            let header = format!("include/{name}.h");
            self.copy(&root().join("crates/talea-capi").join(&header), &header, 0o644)?;
            let described = format!("crates/talea-capi/pkgconfig/{name}.pc.in");
            self.fill(&described, &self.prefix.join(format!("lib/pkgconfig/{name}.pc")))?;
        }
        for header in ["include/yasmin.h", "include/yasmin_constants.h"] {
            self.copy(&root().join("crates/talea-capi").join(header), header, 0o644)?;
        }
        // For programs that carry it with them; it has every interface.
        let archive = self.target(&shell::target_dir()).join("libtalea.a");
        self.copy(&archive, "lib/libtalea.a", 0o644)?;
        // The original installs its header one level deeper.
        self.link("../retif.h", "include/lib/retif.h")?;
        let plugin = root().join("crates/talea-plugin-host/include/talea_plugin.h");
        self.copy(&plugin, "include/talea_plugin.h", 0o644)
    }

    fn documents(&self) -> Result<()> {
        for page in Install::files("docs/man")? {
            let section = page.rsplit('.').next().context("a man page without a section")?;
            let to = format!("share/man/man{section}/{page}");
            self.copy(&root().join("docs/man").join(&page), &to, 0o644)?;
        }
        let talea = self.target(&shell::target_dir()).join("talea");
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
        // Where the links in the README lead.
        for folder in ["docs", "docs/manual", "docs/decisions"] {
            for name in Install::files(folder)? {
                let file = format!("{folder}/{name}");
                self.copy(&root().join(&file), &format!("share/doc/talea/{file}"), 0o644)?;
            }
        }
        Ok(())
    }

    /// The plain files of a folder of the tree.
    fn files(folder: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(root().join(folder)).with_context(|| folder.to_owned())? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                let name = entry.file_name().into_string();
                names.push(name.ok().context("a name that is no text")?);
            }
        }
        Ok(names)
    }

    fn services(&self) -> Result<()> {
        for unit in ["talead.service", "talead.socket"] {
            self.fill(
                &format!("etc/systemd/{unit}"),
                &self.prefix.join("lib/systemd/system").join(unit),
            )?;
        }
        self.fill(
            "etc/systemd/talea.sysusers.conf",
            &self.prefix.join("lib/sysusers.d/talea.conf"),
        )?;
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
        let lib = format!("-L{}", self.place(&self.prefix.join("lib")).display());
        let include = format!("-I{}", self.place(&self.prefix.join("include")).display());
        let with =
            ["-DWITH_TALEA", &include, &lib, "-ltalea", "-Wl,-rpath,$ORIGIN:$ORIGIN/../../../lib"];
        for (name, sources, more) in [
            ("convolver", &job[..], &[][..]),
            ("convolver-talea", &job[..], &with[..]),
            ("load", &["load.c"][..], &[][..]),
        ] {
            let mut cc = program("cc", &["-std=gnu11", "-O2", "-o"]);
            cc.arg(demo.join(name)).args(sources).args(more).arg("-lm").current_dir(&source);
            must(cc).context("the demonstration's job is a C program; a C compiler is needed")?;
        }
        self.copy(&source.join("talea.wav"), "libexec/talea/demo/talea.wav", 0o644)
    }

    /// Copies a file to a place below the prefix.
    fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<()> {
        let to = self.place(&self.prefix.join(to));
        fs::create_dir_all(to.parent().context("a directory")?)?;
        // A program that runs keeps its old file.
        if to.exists() {
            fs::remove_file(&to)?;
        }
        fs::copy(from, &to)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
        Ok(fs::set_permissions(&to, Permissions::from_mode(mode))?)
    }

    fn link(&self, to: &str, name: &str) -> Result<()> {
        let at = self.place(&self.prefix.join(name));
        fs::create_dir_all(at.parent().context("a directory")?)?;
        if at.symlink_metadata().is_ok() {
            fs::remove_file(&at)?;
        }
        symlink(to, &at).with_context(|| at.display().to_string())
    }

    /// A file of the tree with its `@words@` filled in.
    fn fill(&self, from: &str, to: &Path) -> Result<()> {
        let text = fs::read_to_string(root().join(from)).with_context(|| from.to_owned())?;
        let path = |path: &Path| path.display().to_string();
        let text = text
            .replace("@prefix@", &path(&self.prefix))
            .replace("@sbindir@", &path(&self.prefix.join("sbin")))
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

/// Beside the other, so that neither build undoes the other's.
fn retif_dir() -> PathBuf {
    shell::target_dir().join("retif")
}

fn must(command: Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    if shell::stream(command, |line| println!("{line}"))? { Ok(()) } else { bail!("{name} failed") }
}
