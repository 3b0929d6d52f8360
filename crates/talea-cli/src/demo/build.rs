//! Programs of the demonstration: installed, or built from this workspace.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Source of the programs.
pub(super) enum ProgramSource {
    /// Installed programs: `demo` is `PREFIX/libexec/talea/demo`, beside `PREFIX/bin`.
    Installed { bin: PathBuf, demo: PathBuf },
    /// A clone of the repository: its root, the target directory of cargo, and the build profile of
    /// this program.
    Workspace { root: PathBuf, target: PathBuf, profile: String },
}

/// Paths of all files that the demonstration copies to its directory.
pub(super) struct Programs {
    pub(super) talea: PathBuf,
    pub(super) talead: PathBuf,
    pub(super) library: PathBuf,
    /// Path of the job without libtalea.
    pub(super) plain: PathBuf,
    /// Path of the job that declares its demand through libtalea.
    pub(super) declaring: PathBuf,
    pub(super) load: PathBuf,
    pub(super) voice: PathBuf,
}

impl ProgramSource {
    /// Finds the installed programs beside this program, otherwise the clone from which this
    /// program was built.
    pub(super) fn find() -> anyhow::Result<ProgramSource> {
        let exe = std::env::current_exe().context("cannot tell where this program lies")?;
        let bin = exe.parent().context("this program lies nowhere")?;
        let demo = bin.join("../libexec/talea/demo");
        if demo.join("convolver").is_file() {
            return Ok(ProgramSource::Installed { bin: bin.to_owned(), demo });
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let profile = bin.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let (Ok(root), Some(target)) = (root.canonicalize(), bin.parent())
            && root.join("examples/convolver/convolver.c").is_file()
        {
            return Ok(ProgramSource::Workspace {
                root,
                target: target.to_owned(),
                profile: profile.to_owned(),
            });
        }
        bail!(
            "the demonstration's programs are neither installed ({} is missing) nor is there a clone to build them \
             from; run it in a clone: cargo run --release -- demo",
            demo.display()
        )
    }

    /// Returns the default directory of the pictures.
    pub(super) fn default_output(&self) -> PathBuf {
        match self {
            ProgramSource::Installed { .. } => PathBuf::from("talea-demo"),
            ProgramSource::Workspace { target, .. } => target.join("demo"),
        }
    }

    /// Returns the paths of all programs. In a clone it builds the programs.
    pub(super) fn programs(&self) -> anyhow::Result<Programs> {
        match self {
            ProgramSource::Installed { bin, demo } => Ok(Programs {
                talea: bin.join("talea"),
                talead: first(&[bin.join("../sbin/talead"), bin.join("talead")])?,
                library: first(&[bin.join("../lib/libtalea.so.0"), demo.join("libtalea.so.0")])?,
                plain: demo.join("convolver"),
                declaring: demo.join("convolver-talea"),
                load: demo.join("load"),
                voice: demo.join("talea.wav"),
            }),
            ProgramSource::Workspace { root, target, profile } => build(root, target, profile),
        }
    }
}

fn first(places: &[PathBuf]) -> anyhow::Result<PathBuf> {
    places
        .iter()
        .find(|place| place.is_file())
        .cloned()
        .with_context(|| format!("missing: {}", places[0].display()))
}

fn build(root: &Path, target: &Path, profile: &str) -> anyhow::Result<Programs> {
    talea_study::output::note("building the daemon, the library and the job");
    let profile = if profile == "debug" { "dev" } else { profile };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--profile", profile, "--target-dir"]).arg(target);
    // This package is among them, so that all dependencies have the features of this package's own
    // build.
    cargo.args([
        "-p",
        "talea-cli",
        "-p",
        "talea-daemon",
        "-p",
        "talea-capi",
        "-p",
        "talea-plugin-host",
    ]);
    call(cargo.current_dir(root), "cargo build")?;

    let built = target.join(if profile == "dev" { "debug" } else { profile });
    let own = target.join("demo/programs");
    std::fs::create_dir_all(&own).with_context(|| format!("cannot create {}", own.display()))?;
    let source = root.join("examples/convolver");
    let job = ["convolver.c", "room.c", "fft.c", "wav.c"];
    compile(&source, &job, &own.join("convolver"), &[])?;
    compile(&source, &["load.c"], &own.join("load"), &[])?;
    let include = format!("-I{}", root.join("crates/talea-capi/include").display());
    let library = format!("-L{}", built.display());
    // The dynamic linker finds the library beside the program, under its SONAME.
    let talea = ["-DWITH_TALEA", &include, &library, "-ltalea", "-Wl,-rpath,$ORIGIN"];
    compile(&source, &job, &own.join("convolver-talea"), &talea)?;
    Ok(Programs {
        talea: built.join("talea"),
        talead: built.join("talead"),
        library: built.join("libtalea.so"),
        plain: own.join("convolver"),
        declaring: own.join("convolver-talea"),
        load: own.join("load"),
        voice: source.join("talea.wav"),
    })
}

/// Compiles a program and replaces the old one by a rename, because another demonstration may be
/// copying the old program.
fn compile(dir: &Path, sources: &[&str], program: &Path, with: &[&str]) -> anyhow::Result<()> {
    let fresh = program.with_added_extension(std::process::id().to_string());
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-std=gnu11", "-O2", "-Wall", "-o"]).arg(&fresh).args(sources).args(with).arg("-lm");
    call(cc.current_dir(dir), "the C compiler (Debian: apt-get install gcc libc6-dev)")?;
    std::fs::rename(&fresh, program).with_context(|| format!("cannot write {}", program.display()))
}

/// Runs a command until its end. Discards the standard output. The command's messages go to
/// standard error, as progress does.
fn call(command: &mut Command, what: &str) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => bail!("{what} failed: {status}"),
        Err(error) => bail!("{what} cannot be started: {error}"),
    }
}
