//! A tarball of the installed files with an installer, for systems without Debian's packages.

use super::stage::{Stage, VERSION, list, run};
use crate::shell::{output, program, root};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;

/// Builds `talea-VERSION-ARCHITECTURE.tar.gz` and its checksum in `target/package`.
pub(super) fn build(stage: &Stage) -> Result<ExitCode> {
    let name = format!("talea-{VERSION}-{}", std::env::consts::ARCH);
    let tree = stage.work.join(&name);
    fs::create_dir_all(&tree)?;
    fs::rename(&stage.files, tree.join("files"))?;
    let mut paths = String::new();
    for path in list(&tree.join("files"))? {
        // Files with these names belong to rtkit's package, or need it to be gone.
        if ["rtkit", "RealtimeKit1"].iter().any(|name| path.display().to_string().contains(name)) {
            fs::remove_file(tree.join("files").join(&path))?;
            continue;
        }
        let _ = writeln!(paths, "{}", path.display());
    }
    fs::write(tree.join("MANIFEST"), paths)?;
    for file in ["install.sh", "uninstall.sh", "README"] {
        fs::copy(root().join("etc/dist").join(file), tree.join(file))?;
        let mode = if file == "README" { 0o644 } else { 0o755 };
        fs::set_permissions(tree.join(file), fs::Permissions::from_mode(mode))?;
    }
    let archive = stage.packages.join(format!("{name}.tar.gz"));
    let time = format!("--mtime=@{}", stage.time);
    let work = stage.work.to_str().context("UTF-8")?;
    let words = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", &time, "-C", work];
    let mut tar = program("tar", &words);
    let gzip = if stage.is_release { "gzip -9n" } else { "gzip -1n" };
    tar.args(["-I", gzip]).arg("-cf").arg(&archive).arg(&name);
    anyhow::ensure!(crate::shell::stream(tar, |line| println!("{line}"))?, "tar failed");
    let sums = output({
        let mut sums = program("sha256sum", &[]);
        sums.current_dir(&stage.packages).arg(format!("{name}.tar.gz"));
        sums
    });
    fs::write(stage.packages.join("SHA256SUMS"), sums.context("sha256sum failed")?)?;
    run("ls", &["-l"], &[&archive])?;
    Ok(ExitCode::SUCCESS)
}
