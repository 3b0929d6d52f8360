//! Files and paths: the daemon reads nothing that other users could have written, and no other
//! process replaces the daemon.

use super::fixture::{Fixture, MALLORY, outcome, set_mode};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use talea_kernel_tests::{Bench, Daemon, config, eventually, needs_root};

/// Returns paths to copies of a file that another user could change, each with a description.
fn doubtful(bench: &Bench, content: &Path, name: &str) -> Vec<(&'static str, PathBuf)> {
    let home = bench.path("doubtful");
    fs::create_dir_all(&home).expect("a folder");
    let folder = |folder: &str, mode: u32, owner: Option<u32>| {
        let path = home.join(folder);
        fs::create_dir_all(&path).expect("a folder");
        chown(&path, owner, None).expect("chown");
        set_mode(&path, mode);
        path
    };
    let copy = |folder: &Path, mode: u32, owner: Option<u32>| {
        let path = folder.join(name);
        fs::copy(content, &path).expect("a copy");
        chown(&path, owner, None).expect("chown");
        set_mode(&path, mode);
        path
    };
    let link = |path: PathBuf, to: &Path, owner: Option<u32>| {
        symlink(to, &path).expect("a link");
        std::os::unix::fs::lchown(&path, owner, None).expect("chown");
        path
    };
    let (theirs, safe) = (folder("theirs", 0o755, Some(MALLORY)), folder("safe", 0o755, None));
    let good = copy(&safe, 0o644, None);
    let open = folder("open", 0o777, None);
    let sticky = folder("sticky", 0o1777, None);
    let nested = open.join("nested");
    fs::create_dir_all(&nested).expect("a folder");
    let pipe = safe.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o644.into(), 0)
        .expect("a pipe");
    vec![
        ("a file of another user", copy(&folder("a", 0o755, None), 0o644, Some(MALLORY))),
        ("a file that all users may write", copy(&folder("b", 0o755, None), 0o646, None)),
        ("a file that its group may write", copy(&folder("c", 0o755, None), 0o664, None)),
        ("a file in a folder of another user", copy(&theirs, 0o644, None)),
        ("a file in a folder that all users may write", copy(&open, 0o644, None)),
        ("a file below such a folder", copy(&nested, 0o644, None)),
        (
            "a file in a folder that its group may write",
            copy(&folder("d", 0o775, None), 0o644, None),
        ),
        (
            "a link of another user in a sticky folder",
            link(sticky.join("link"), &good, Some(MALLORY)),
        ),
        ("a good file through a folder of another user", link(theirs.join("link"), &good, None)),
        ("a link to a file of another user", link(safe.join("out"), &theirs.join(name), None)),
        (
            "a link through a link of another user",
            link(safe.join("chain"), &sticky.join("link"), None),
        ),
        ("links in a circle", link(safe.join("circle"), &safe.join("circle"), None)),
        ("a path with steps up", theirs.join("..").join("theirs").join(name)),
        ("a pipe", pipe),
        ("a folder", safe),
        ("a device", PathBuf::from("/dev/zero")),
        ("nothing", home.join("nothing")),
    ]
}

#[test]
fn r26_no_daemon_starts_with_a_configuration_that_others_could_have_written() {
    needs_root!();
    let bench = Bench::new("attack-config");
    let content = bench.write("good.toml", &config::open());
    for (what, path) in doubtful(&bench, &content, "talead.toml") {
        let Err(failed) = Daemon::launch(&bench, &path, &[]) else {
            panic!("a daemon runs with {what}, {}", path.display());
        };
        assert_eq!(failed.code, Some(2), "{what}: {}", failed.said);
        assert!(!failed.said.contains("panicked"), "{what}: {}", failed.said);
    }
    Daemon::launch(&bench, &content, &[]).expect("and with the file itself it starts");
}

#[test]
fn r26_a_running_daemon_loads_no_configuration_that_others_could_have_written() {
    needs_root!();
    let fixture = Fixture::new("attack-reload");
    let config = fixture.bench.path("talead.toml");
    let closed = fixture.bench.write("closed.toml", config::PLUGINS);
    let good = fs::read_to_string(&config).expect("the configuration");
    let refused = |round: usize| {
        fixture.daemon.signal(Signal::HUP);
        eventually("the reload is refused", || {
            fixture.daemon.log().matches("the new configuration is invalid").count() > round
        });
    };
    // This configuration would exclude all users if the daemon loaded it.
    for (round, (what, path)) in
        doubtful(&fixture.bench, &closed, "talead.toml").into_iter().enumerate()
    {
        fs::remove_file(&config).expect("remove");
        symlink(&path, &config).expect("a link");
        refused(round);
        let service = fixture.measure(|| std::thread::sleep(std::time::Duration::from_millis(5)));
        println!("{what}: {service}");
    }
    fs::remove_file(&config).expect("remove");
    fs::write(&config, good).expect("write");
    set_mode(&config, 0o644);
    fixture.daemon.signal(Signal::HUP);
    fixture.daemon.wait_for_line("was reloaded").expect("a living daemon");
    fixture.under(|| ());
}

#[test]
fn r26_no_daemon_starts_with_a_plugin_that_others_could_have_written() {
    needs_root!();
    let bench = Bench::new("attack-module");
    let content = bench.plugin("examples/plugin-least-loaded/least_loaded.c");
    for (what, path) in doubtful(&bench, &content, "least_loaded.so") {
        let config = format!(
            "{}\n[[plugin]]\nname = \"foreign\"\nkind = \"foreign\"\nmodule = \"{}\"\ncpus = \"0\"\n\
             priorities = \"1-9\"\n",
            config::open(),
            path.display()
        );
        let config = bench.write("talead.toml", &config);
        match Daemon::launch(&bench, &config, &[]) {
            Err(failed) => {
                assert!(matches!(failed.code, Some(1 | 2)), "{what}: {}", failed.said);
                assert!(!failed.said.contains("panicked"), "{what}: {}", failed.said);
            }
            Ok(_) => panic!("a daemon runs with {what}, {}", path.display()),
        }
    }
}

#[test]
fn retif_s13_no_other_process_takes_the_daemons_place() {
    needs_root!();
    let fixture = Fixture::new("attack-second");
    let socket = fixture.daemon.socket().to_owned();
    let inode = || fs::symlink_metadata(&socket).expect("the socket").ino();
    let before = inode();
    let other = fixture.bench.path("other").display().to_string();
    let alias = fixture.bench.path("alias");
    symlink(socket.parent().expect("a folder"), &alias).expect("a link");
    let alias = alias.join("socket").display().to_string();
    fixture.under(|| {
        for arguments in [
            vec![],
            // The same state with another socket, and the same socket by another name.
            vec!["--socket", other.as_str()],
            vec!["--socket", alias.as_str()],
            vec!["--socket", alias.as_str(), "--state-dir", other.as_str()],
        ] {
            let (code, said) = outcome(fixture.daemon.command(&arguments));
            assert_eq!(code, Some(1), "{arguments:?}: {said}");
            assert_eq!(inode(), before, "the socket was replaced");
        }
    });
}

#[test]
fn r26_the_files_of_the_daemon_are_neither_readable_nor_writable_by_others() {
    needs_root!();
    let fixture = Fixture::new("attack-state");
    let mallory = fixture.test_clients(MALLORY);
    let client = mallory.connect(&fixture.daemon);
    fixture.take_stock();
    let home = fixture.daemon.socket().parent().expect("a folder").to_owned();
    let mut secrets = 0;
    for entry in fs::read_dir(&home).expect("the state") {
        let path = entry.expect("an entry").path();
        let meta = path.symlink_metadata().expect("metadata");
        assert_eq!(meta.uid(), 0, "{}", path.display());
        // One file has the tokens; a process that can open the other can hold its lock and keep the
        // next daemon out.
        if meta.is_file() {
            assert_eq!(meta.mode() & 0o077, 0, "{} has mode {:o}", path.display(), meta.mode());
            let message = client.encode(&talea_proto::Request::Status);
            let said = mallory.order(&format!("send-parcel 0 {message} 0 file {}", path.display()));
            assert_eq!(said, "errno 13", "{}", path.display());
            secrets += 1;
        }
    }
    assert!(secrets > 0, "there is a state file");
    // A state file that another user has prepared is refused.
    let trap = fixture.bench.path("trap");
    fs::create_dir(&trap).expect("a folder");
    for (mode, owner) in [(0o644, MALLORY), (0o666, 0)] {
        let file = trap.join("state");
        fs::copy(home.join("state"), &file).expect("a copy");
        chown(&file, Some(owner), None).expect("chown");
        set_mode(&file, mode);
        let (door, trap) = (trap.join("socket").display().to_string(), trap.display().to_string());
        let (code, said) =
            outcome(fixture.daemon.command(&["--socket", &door, "--state-dir", &trap]));
        assert_eq!(code, Some(1), "state of {owner} with mode {mode:o}: {said}");
        let _ = fs::remove_file(&file);
    }
    fixture.is_unharmed();
}

#[test]
fn r26_no_daemon_uses_a_state_folder_that_others_could_have_prepared() {
    needs_root!();
    let bench = Bench::new("attack-state-folder");
    let config = bench.write("talead.toml", &config::open());
    let secret = bench.write("secret", "of root's");
    let door = bench.path("door").display().to_string();
    let folder = |name: &str, mode: u32, owner: u32| {
        let path = bench.path(name);
        fs::create_dir(&path).expect("a folder");
        chown(&path, Some(owner), None).expect("chown");
        set_mode(&path, mode);
        path
    };
    let safe = folder("safe", 0o755, 0);
    symlink(&secret, safe.join("state")).expect("a link");
    let link = bench.path("link");
    symlink(folder("good", 0o755, 0), &link).expect("a link");
    std::os::unix::fs::lchown(&link, Some(MALLORY), None).expect("chown");
    for (what, home) in [
        ("a folder of another user", folder("theirs", 0o755, MALLORY)),
        ("a folder that all users may write", folder("open", 0o777, 0)),
        ("a folder that its group may write", folder("grouped", 0o775, 0)),
        ("a link of another user to a good folder", link),
        ("a link in the place of the state file", safe),
    ] {
        let mut command = Daemon::unstarted(&config, &home).command(&["--socket", &door]);
        command.stdout(std::process::Stdio::null());
        let (code, said) = outcome(command);
        assert_eq!(code, Some(1), "{what}: {said}");
        assert!(!said.contains("panicked"), "{what}: {said}");
    }
    assert_eq!(fs::read_to_string(&secret).expect("the secret"), "of root's");
}
