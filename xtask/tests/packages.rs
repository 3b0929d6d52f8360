//! The Debian packages: lintian, and installation, use, removal and purge by `dpkg`; and the
//! tarball with its installer.
//!
//! The Debian packages are installed into a copy of this system that is gone afterwards: an overlay
//! over `/` in a mount namespace of its own.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Script in the mount namespace; `$1` is the folder of the packages.
const SCRIPT: &str = include_str!("packages/life.sh");

/// Builds packages of a kind in the profile that the tests have built already. Returns their
/// folder.
fn built(kind: &str) -> PathBuf {
    run(Command::new(env!("CARGO_BIN_EXE_xtask")).args([kind, "--profile", "dev"]));
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
    target.join("package")
}

/// Runs a program to its successful end. Returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("a program");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{said}\n{errors}");
    said
}

fn has(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Whether a test may go without what is missing here; the test command requires it.
fn is_required() -> bool {
    std::env::var("TALEA_KERNEL_TESTS").is_ok_and(|value| value == "required")
}

#[test]
fn packages_are_installed_used_upgraded_removed_and_purged() {
    let is_root = rustix::process::geteuid().is_root();
    if !(is_root && has("dpkg-shlibdeps") && has("lintian") && has("systemd-sysusers")) {
        assert!(!is_required(), "root, dpkg-shlibdeps, lintian and systemd-sysusers are required");
        return println!("skipped: needs root, dpkg-shlibdeps, lintian and systemd-sysusers");
    }
    let packages = built("deb");
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]);
    for entry in std::fs::read_dir(&packages).expect("packages").flatten() {
        let path = entry.path();
        let name = path.file_name().expect("a name").to_string_lossy();
        // The static library of an unoptimised build would take lintian a minute.
        let is_checked = ["libtalea0_", "talea_", "talead_", "talea-rtkit_"]
            .iter()
            .any(|of| name.starts_with(of));
        if is_checked && name.ends_with(".deb") {
            lintian.arg(&path);
        }
    }
    run(&mut lintian);
    let script = ["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh"];
    let said = run(Command::new("unshare").args(script).arg(&packages));
    assert!(said.contains("scheduling policy: SCHED_FIFO"), "{said}");
    let left = said.split("== left\n").nth(1).and_then(|rest| rest.split("== end").next());
    let is_of_dpkg = |line: &&str| {
        ["./var/lib/dpkg/", "./var/log/", "./var/lib/systemd/", "./var/cache/"]
            .iter()
            .any(|folder| line.starts_with(folder))
    };
    let left: Vec<&str> = left.expect("a list").lines().filter(|line| !is_of_dpkg(line)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_tarball_is_installed_below_a_folder_and_removed() {
    let packages = built("dist");
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dist");
    drop(std::fs::remove_dir_all(&scratch));
    std::fs::create_dir_all(&scratch).expect("a scratch folder");
    run(Command::new("sha256sum").args(["-c", "SHA256SUMS"]).current_dir(&packages));
    let name = format!("talea-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let archive = packages.join(format!("{name}.tar.gz"));
    run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&scratch));
    let (tree, root) = (scratch.join(name), scratch.join("root"));
    let script = |name: &str| run(Command::new(tree.join(name)).arg("--root").arg(&root));
    script("install.sh");
    let config = root.join("etc/talea/talead.toml");
    run(Command::new(root.join("usr/bin/talea")).arg("check").arg(&config));
    std::fs::write(&config, "# of the administrator\n").expect("a configuration");
    assert!(script("install.sh").contains("stays as it is"));
    script("uninstall.sh");
    let left = run(Command::new("find").arg(&root).args(["-type", "f"]));
    assert_eq!(left.trim(), config.display().to_string());
}
