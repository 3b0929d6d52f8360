//! Tests that the installed tree is usable: programs run, pkg-config finds the libraries, and C
//! programs link to their SONAMEs.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs the tree, in the profile that the tests have built already. Returns the folder of the
/// tree.
fn installed() -> PathBuf {
    let dest = Path::new(env!("CARGO_TARGET_TMPDIR")).join("install");
    drop(std::fs::remove_dir_all(&dest));
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        // With the usual place of the configuration, which is built in: another would be a build of
        // its own.
        .args([
            "install",
            "--prefix",
            "/opt/talea",
            "--sysconfdir",
            "/etc",
            "--profile",
            "dev",
            "--destdir",
        ])
        .arg(&dest)
        .output()
        .expect("xtask");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", said(&output.stdout), said(&output.stderr));
    dest
}

fn said(command: &mut Command) -> String {
    let output = command.output().expect("a program");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn what_is_installed_can_be_used() {
    let dest = installed();
    let prefix = dest.join("opt/talea");
    for name in ["bin/talea", "sbin/talead"] {
        assert!(
            said(Command::new(prefix.join(name)).arg("--version"))
                .contains(env!("CARGO_PKG_VERSION")),
            "{name}"
        );
    }
    assert!(!prefix.join("bin/talea-lab").exists(), "a program of the source tree");
    for name in [
        "libexec/talea/talea-plugin-host",
        "libexec/talea/demo/convolver",
        "libexec/talea/demo/talea.wav",
        "share/man/man1/talea-run.1",
        "share/man/man5/talead.toml.5",
        "share/man/man8/talead.8",
        "share/doc/talea/README.md",
        "share/doc/talea/docs/demo.svg",
        "share/doc/talea/docs/manual/configuration.md",
        "lib/libtalea.a",
        "share/bash-completion/completions/talea",
        "share/zsh/site-functions/_talea",
        "share/fish/vendor_completions.d/talea.fish",
        "include/lib/retif.h",
        "include/yasmin.h",
        "include/yasmin_constants.h",
        "include/talea_plugin.h",
        "include/talea_sched.h",
        "lib/systemd/system/talead.socket",
        "lib/systemd/system/talead-plugin.socket",
        "lib/systemd/system/talead-plugin@.service",
        "lib/sysusers.d/talea.conf",
        "lib/sysusers.d/talea-rtkit.conf",
        "lib/systemd/system/talea-rtkit.service",
        "lib/systemd/system/talea-deploy.service",
        "sbin/talea-deployd",
        "share/man/man8/talea-deployd.8",
        "libexec/talea/talea-rtkit",
        "share/dbus-1/system.d/org.freedesktop.RealtimeKit1.conf",
        "share/dbus-1/system-services/org.freedesktop.RealtimeKit1.service",
        "share/man/man8/talea-rtkit.8",
    ] {
        assert!(prefix.join(name).is_file(), "{name} is missing");
    }
    let unit =
        std::fs::read_to_string(prefix.join("lib/systemd/system/talead.service")).expect("a unit");
    assert!(
        unit.contains("ExecStart=/opt/talea/sbin/talead --config /etc/talea/talead.toml"),
        "{unit}"
    );
    assert!(!unit.contains("dir@"), "a place was not filled in: {unit}");
    said(
        Command::new(prefix.join("bin/talea")).arg("check").arg(dest.join("etc/talea/talead.toml")),
    );
    links(&dest, &prefix);
    carries(&dest, &prefix);
}

#[test]
fn the_help_is_given_and_a_misspelt_option_is_named() {
    let install = |word: &str| {
        Command::new(env!("CARGO_BIN_EXE_xtask")).args(["install", word]).output().expect("xtask")
    };
    let help = install("--help");
    assert!(
        help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--destdir DIR")
    );
    let wrong = install("--prefiks");
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        !wrong.status.success() && said.contains("--prefiks") && said.contains("--prefix DIR"),
        "{said}"
    );
}

/// Checks a program that contains the static library.
fn carries(dest: &Path, prefix: &Path) {
    let flags = said(
        Command::new("pkg-config")
            .args(["--static", "--cflags", "--libs", "talea"])
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", dest),
    );
    let program = dest.join("carries");
    let flags = flags.replace("-ltalea", "-l:libtalea.a");
    said(
        Command::new("cc")
            .arg(dest.join("talea.c"))
            .arg("-o")
            .arg(&program)
            .args(flags.split_whitespace()),
    );
    said(&mut Command::new(&program));
}

/// Checks a program for each library, linked with the flags of the library's pkg-config file.
fn links(dest: &Path, prefix: &Path) {
    for (name, symbol, soname) in
        [("talea", "talea_version", "libtalea.so.0"), ("retif", "rtf_connect", "libretif.so.0")]
    {
        let flags = said(
            Command::new("pkg-config")
                .args(["--cflags", "--libs", name])
                .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
                .env("PKG_CONFIG_SYSROOT_DIR", dest),
        );
        let source = dest.join(format!("{name}.c"));
        let body = format!("void *volatile f = (void *){symbol}; return f == 0;");
        let text = format!("#include <{name}.h>\nint main(void) {{ {body} }}\n");
        std::fs::write(&source, text).expect("a source");
        let program = dest.join(name);
        said(
            Command::new("cc").arg(&source).arg("-o").arg(&program).args(flags.split_whitespace()),
        );
        let dynamic = std::fs::read(&program).expect("a program");
        assert!(
            dynamic.windows(soname.len()).any(|part| part == soname.as_bytes()),
            "{name} does not ask for {soname}"
        );
        said(Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib")));
    }
}

#[test]
fn a_configuration_that_is_there_stays() {
    let dest = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kept");
    let config = dest.join("etc/talea/talead.toml");
    std::fs::create_dir_all(config.parent().expect("a directory")).expect("a directory");
    std::fs::write(&config, "# mine\n").expect("a file");
    let mut install = Command::new(env!("CARGO_BIN_EXE_xtask"));
    install.args(["install", "--prefix", "/usr", "--profile", "dev", "--destdir"]).arg(&dest);
    assert!(said(&mut install).contains("/etc/talea/talead.toml stays as it is"));
    assert_eq!(std::fs::read_to_string(&config).expect("a file"), "# mine\n");
}
