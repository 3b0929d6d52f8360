//! The shipped unit starts, serves an unprivileged user, and survives kills and hangs.

use crate::scene::{MALLORY, Scene, journal, policy, property, run, signal, systemctl};
use rustix::process::Signal;
use std::time::Instant;
use talea_os::sched::Policy;

/// Number of kills in a row, four times systemd's default limit of starts.
const KILLS: usize = 20;

#[test]
fn attack_25_the_shipped_unit_serves_an_unprivileged_user() {
    let scene = Scene::new("");
    assert_eq!(property("talead.service", "Type"), "notify");
    assert_eq!(property("talead.service", "ActiveState"), "active");
    let pid = scene.daemon();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a daemon");
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("users");
    let uid: u32 = uid.split_whitespace().next().and_then(|id| id.parse().ok()).expect("a user");
    assert!((1..1000).contains(&uid), "systemd-sysusers makes the user: {uid}");
    assert!(std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists(), "cgroup v2");

    let fifo = scene.granted(&["--priority", "30", "--plugin", "fp"]);
    let deadline = scene.granted(&["--runtime", "2ms", "--period", "20ms"]);
    assert!(matches!(policy(fifo.tid()), Policy::Fifo(_)), "{:?}", policy(fifo.tid()));
    assert!(policy(deadline.tid()).is_deadline(), "{:?}", policy(deadline.tid()));
    for sleeper in [&fifo, &deadline] {
        scene.assert_held(sleeper);
    }
    let refused = run(&mut scene.talea(MALLORY, &["explain", "--priority", "30"]));
    assert_ne!(refused.code, Some(0), "{refused:?}");
}

/// Debian's kernels refuse task clocks to CAP_PERFMON if the sysctl exceeds 2. Their default is 3.
#[test]
fn attack_25_the_shipped_unit_enforces_budgets_where_the_kernel_permits() {
    const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
    let before = std::fs::read_to_string(PARANOID).expect("a sysctl");
    let starts_with = |value: &str| {
        std::fs::write(PARANOID, value).expect("root");
        let _scene = Scene::new("");
        journal()
    };
    let refused = starts_with("3");
    let permitted = starts_with("2");
    std::fs::write(PARANOID, before.trim()).expect("root");
    assert!(refused.contains("kernel.perf_event_paranoid is 3"), "{refused}");
    assert!(!permitted.contains("are not enforced"), "{permitted}");
}

#[test]
fn attack_25_systemd_replaces_a_hung_daemon_and_the_grants_survive() {
    let scene = Scene::new("");
    let granted = scene.granted(&["--priority", "30", "--plugin", "fp"]);
    let hung = scene.daemon();
    let begun = Instant::now();
    signal(hung, Signal::STOP);
    scene.wait_for_successor(hung);
    println!("a hung daemon is replaced after {:?}", begun.elapsed());
    assert!(policy(granted.tid()).is_realtime());
    scene.assert_held(&granted);
    assert!(journal().contains("watchdog"), "{}", journal());
}

#[test]
fn attack_25_systemd_restarts_a_killed_daemon_without_a_limit() {
    let scene = Scene::new("");
    let granted = [
        scene.granted(&["--priority", "30", "--plugin", "fp"]),
        scene.granted(&["--runtime", "2ms", "--period", "20ms"]),
    ];
    let mut longest = std::time::Duration::ZERO;
    for _ in 0..KILLS {
        let killed = scene.daemon();
        let begun = Instant::now();
        signal(killed, Signal::KILL);
        scene.wait_for_successor(killed);
        longest = longest.max(begun.elapsed());
        assert!(granted.iter().all(|sleeper| policy(sleeper.tid()).is_realtime()));
    }
    println!("{KILLS} kills; the longest restart took {longest:?}");
    for sleeper in &granted {
        scene.assert_held(sleeper);
    }
    assert_eq!(systemctl(&["is-active", "talead.socket"]), "active");
}
