//! Plugins from outside under the shipped unit: each is a service with a user of its own.

use crate::scene::{ALICE, Scene, Sleeper, done, eventually, journal, run, signal, systemctl};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

const SOCKET: &str = "/run/talead-plugin/socket";

/// Returns the configuration of a plugin from outside, with a rule for every user.
fn foreign(name: &str, object: &str, argument: &str, priorities: &str) -> String {
    format!(
        "[[plugin]]\nname = \"{name}\"\nkind = \"foreign\"\n\
         module = \"/usr/lib/talea/plugins/{object}.so\"\nargument = \"{argument}\"\n\
         timeout = \"2s\"\ncpus = \"all\"\npriorities = \"{priorities}\"\n\
         [[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"{name}\"\nallow_unbounded = true\n"
    )
}

/// Process of a plugin host.
#[derive(Debug)]
struct Process {
    pid: i32,
    uid: u32,
    status: String,
}

/// Returns the processes of all plugin hosts: two of each service.
fn hosts() -> Vec<Process> {
    let mut hosts = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end meanwhile.
        let read = |name| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        if read("comm").trim() != "talea-plugin-ho" {
            continue;
        }
        let status = read("status");
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let uid = uids.and_then(|ids| ids.split_whitespace().next()?.parse().ok());
        hosts.extend(uid.map(|uid| Process { pid, uid, status }));
    }
    hosts
}

#[test]
fn attack_23_plugins_run_as_services_with_users_of_their_own() {
    let two =
        foreign("one", "least_loaded", "", "1-4") + &foreign("two", "least_loaded", "", "5-9");
    let scene = Scene::new(&two);
    let granted = scene.granted(&["--priority", "50", "--plugin", "one"]);
    scene.assert_held(&granted);
    let hosts = hosts();
    let uids: BTreeSet<u32> = hosts.iter().map(|host| host.uid).collect();
    assert_eq!((hosts.len(), uids.len()), (4, 2), "two processes of each service: {hosts:#?}");
    // The range of `DynamicUser=`.
    assert!(uids.iter().all(|uid| (61_184..=65_519).contains(uid)), "{uids:?}");
    for host in &hosts {
        for expected in ["CapPrm:\t0000000000000000", "NoNewPrivs:\t1"] {
            assert!(host.status.contains(expected), "{host:#?}");
        }
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", host.pid));
        assert_eq!(read("oom_score_adj").expect("a host").trim(), "0");
        assert!(read("cgroup").expect("a host").contains("talead-plugin"), "{host:#?}");
    }
    let journal = journal();
    for name in ["one", "two"] {
        let line = format!("plugin `{name}`: its host is a service of its own, as user ");
        assert!(journal.contains(&line), "{journal}");
    }
    assert!(!journal.contains("no Landlock"), "{journal}");
    // Only the daemon's user may connect.
    let connects = run(&mut scene.user(ALICE, Path::new("/init"), &["connect", SOCKET]));
    assert_eq!(connects.err.trim(), "Permission denied (os error 13)", "{connects:?}");
    assert!(UnixStream::connect(SOCKET).is_err(), "a stream is refused, also for root");
    // An orderly end of the daemon ends the services.
    scene.stop();
    eventually("no hosts", || self::hosts().is_empty().then_some(()));
}

/// Returns the answers of the hostile plugin to the calls that its constructor makes.
fn answers() -> Vec<String> {
    let journal = journal();
    let lines = journal.lines().filter_map(|line| line.strip_prefix("plugin `hostile`: "));
    let lines = lines.take_while(|line| !line.starts_with("=="));
    let answers = lines
        .flat_map(|line| line.split("; "))
        .map(|answer| answer.trim_matches([' ', ';']).to_owned());
    answers.filter(|answer| answer.starts_with("can")).collect()
}

/// Returns the names of the calls that succeed among the 44 forbidden and the 4 permitted ones.
fn successes() -> Vec<String> {
    let answers = eventually("48 answers", || Some(answers()).filter(|all| all.len() >= 48));
    println!("{}", answers.join("; "));
    assert_eq!(answers.len(), 48, "{answers:#?}\n{}", journal());
    answers.iter().filter_map(|answer| answer.strip_prefix("can ")).map(str::to_owned).collect()
}

const NEEDS: [&str; 4] = ["memory", "time", "flags of standard error", "libraries"];

#[test]
fn attack_23_a_hostile_plugin_reaches_nothing_from_its_service() {
    let scene = Scene::new(&foreign("hostile", "hostile", "", "1-9"));
    assert_eq!(successes(), NEEDS);
    // Its `accept` tries everything again, and refuses if anything was possible.
    let granted = scene.granted(&["--priority", "50", "--plugin", "hostile"]);
    scene.assert_held(&granted);
}

/// The unit alone, on a kernel without Landlock. In addition the plugin reads its own process, an
/// empty root and `/dev/zero`.
#[test]
fn attack_23_a_hostile_plugin_reaches_nothing_without_landlock() {
    let drop_in = Path::new("/run/systemd/system/talead-plugin@.service.d/no-landlock.conf");
    std::fs::create_dir_all(drop_in.parent().expect("a folder")).expect("writable");
    let filter = "[Service]\nSystemCallFilter=~landlock_create_ruleset:ENOSYS\n";
    std::fs::write(drop_in, filter).expect("writable");
    systemctl(&["daemon-reload"]);
    let scene = Scene::new(&foreign("hostile", "hostile", "", "1-9"));
    let (successes, journal) = (successes(), journal());
    std::fs::remove_file(drop_in).expect("removable");
    systemctl(&["daemon-reload"]);
    drop(scene);
    let says = "this kernel has no Landlock: talead-plugin@.service alone restricts";
    assert!(journal.contains(says), "{journal}");
    let own = ["read /proc/self/stat", "list /proc", "list /", "read /dev/zero"];
    assert_eq!(successes, [&own[..], &NEEDS].concat());
}

#[test]
fn attack_23_a_plugin_that_hangs_is_killed_and_started_again() {
    let scene = Scene::new(&foreign("hangs", "misbehave", "hang", "1-9"));
    let before: BTreeSet<i32> = hosts().iter().map(|host| host.pid).collect();
    assert_eq!(before.len(), 2, "{before:?}");
    // The first answer is good, the second one does not come.
    let _held = scene.granted(&["--priority", "50", "--plugin", "hangs"]);
    let other = Sleeper::new(ALICE);
    let attach = ["attach", &other.tid().to_string(), "--priority", "50", "--plugin", "hangs"];
    let refused = run(&mut scene.talea(ALICE, &attach));
    assert_ne!(refused.code, Some(0), "{refused:?}");
    eventually("new processes", || {
        let now: BTreeSet<i32> = hosts().iter().map(|host| host.pid).collect();
        (now.len() == 2 && now.is_disjoint(&before)).then_some(())
    });
}

#[test]
fn attack_23_a_killed_plugin_is_started_again() {
    let scene = Scene::new(&foreign("killed", "least_loaded", "", "1-9"));
    let before = hosts();
    signal(before[0].pid, Signal::KILL);
    eventually("new processes", || {
        let now = hosts();
        (now.len() == 2 && now.iter().all(|new| before.iter().all(|old| old.pid != new.pid)))
            .then_some(())
    });
    eventually("a grant", || {
        let sleeper = Sleeper::new(ALICE);
        let tid = sleeper.tid().to_string();
        let attach = ["attach", &tid, "--priority", "50", "--plugin", "killed"];
        (run(&mut scene.talea(ALICE, &attach)).code == Some(0)).then_some(())
    });
    assert_eq!(systemctl(&["is-active", "talead-plugin.socket"]), "active");
    // No failed instance is left.
    let failed = done(Command::new("systemctl").args(["list-units", "--failed", "--no-legend"]));
    assert!(!failed.contains("talead-plugin@"), "{failed}");
}
