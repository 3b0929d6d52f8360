//! Upgrade of Debian's package `talead` by dpkg, while a user holds a grant.

use crate::scene::{Scene, done, policy};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Package with the installed files of the daemon.
const PACKAGE: &str = "/usr/lib/talea/talead.deb";
const VERSION: &str = concat!("\nVersion: ", env!("CARGO_PKG_VERSION"), "\n");

/// Adds the installed files to dpkg's data base, as those of an earlier version: installing that
/// version, too, would take half a minute.
fn register_earlier_version() {
    let control = std::env::temp_dir().join("control");
    done(Command::new("dpkg-deb").args(["--control", PACKAGE]).arg(&control));
    let fields = fs::read_to_string(control.join("control")).expect("fields");
    let earlier = fields.trim_end().replacen(VERSION, "\nVersion: 0.0.1\n", 1);
    assert_ne!(earlier, fields.trim_end());
    let status = fs::read_to_string("/var/lib/dpkg/status").expect("a data base");
    let status = format!("{status}{earlier}\nStatus: install ok installed\n\n");
    fs::write("/var/lib/dpkg/status", status).expect("writable");
    let info = Path::new("/var/lib/dpkg/info");
    fs::write(info.join("talead.list"), "/.\n").expect("writable");
    for script in ["prerm", "postinst", "postrm"] {
        let to = info.join(format!("talead.{script}"));
        fs::copy(control.join(script), to).expect("a script");
    }
}

#[test]
fn an_upgrade_restarts_the_daemon_and_keeps_a_deadline_grant() {
    if !Path::new(PACKAGE).exists() {
        return println!("skipped: needs dpkg-dev on the host");
    }
    let scene = Scene::new("");
    register_earlier_version();
    let granted = scene.granted(&["--runtime", "2ms", "--period", "20ms"]);
    let grants = || -> Vec<_> {
        let parts = ["spec", "tid", "uid", "given", "kernel", "held"];
        scene.grants().iter().map(|grant| parts.map(|part| grant[part].clone())).collect()
    };
    let (old, before, given) = (scene.daemon(), grants(), policy(granted.tid()));
    assert!(given.is_deadline(), "{given:?}");
    // The guest lacks diff and ldconfig, which this package does not need. The scene has changed
    // the configuration, as an administrator does.
    let log = std::env::temp_dir().join("dpkg.log");
    let file = fs::File::create(&log).expect("a log");
    let mut dpkg = Command::new("dpkg");
    dpkg.args(["--force-bad-path", "--force-confold", "--install", PACKAGE]);
    dpkg.stdin(Stdio::null()).stdout(file.try_clone().expect("a descriptor")).stderr(file);
    let mut dpkg = dpkg.spawn().expect("dpkg");
    let status = loop {
        assert_eq!(policy(granted.tid()), given, "the upgrade changes no thread");
        if let Some(status) = dpkg.try_wait().expect("a child") {
            break status;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = fs::read_to_string(log).expect("a log");
    assert!(status.success(), "{status}: {said}");
    assert_ne!(scene.daemon(), old, "the package restarts the daemon: {said}");
    assert_eq!(grants(), before);
    assert_eq!(policy(granted.tid()), given);
}
