//! Repairs of what a killed broker left: by root, and by the user of an unprivileged daemon.

use crate::harness::{Ended, finish};
use crate::live::Talea;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;
use talea_core::Span;
use talea_kernel_tests::{ALICE, Agent, Bench, Daemon, config, eventually, kernel, needs_root};
use talea_os::{Tid, proc};
use talea_proto::{Owner, Request, Task};

/// User of the unprivileged daemon.
const TALEAD: u32 = 60_050;

/// Broker that grants and is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    RootDaemon,
    UnprivilegedDaemon,
    InProcess,
}

/// Process that repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repairer {
    Root,
    DaemonsUser,
}

/// Returns `plain` as the unit starts it: as the daemon's user, with these capabilities.
fn unprivileged(plain: &Command, capabilities: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={TALEAD}"), &format!("--regid={TALEAD}"), "--clear-groups"]);
    command.args([
        &format!("--inh-caps={capabilities}"),
        &format!("--ambient-caps={capabilities}"),
        &format!("--bounding-set={capabilities}"),
        "--no-new-privs",
        "--",
    ]);
    command.arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir("/");
    command
}

/// Capabilities of the shipped unit.
const SHIPPED: &str = "-all,+sys_nice,+perfmon";

fn task(owner: Owner) -> Task {
    let params = talea_core::Params {
        period: Some(Span::from_ns(10_000_000)),
        ..talea_core::Params::default()
    };
    Task { params, owner, ..Task::default() }
}

/// Grants of one killed broker.
struct Scene<'a> {
    talea: Talea<'a>,
    /// Keeps the threads alive.
    _worker: Agent,
    /// Ended and not collected: a zombie.
    _asker: Option<Agent>,
    left: Vec<i32>,
}

/// Lets a broker grant and kills it, together with the process that asked.
fn scene(bench: &Bench, killed: Killed) -> Scene<'_> {
    let home = bench.path(&format!("{killed:?}"));
    std::fs::create_dir(&home).expect("a folder");
    if killed == Killed::UnprivilegedDaemon {
        chown(&home, Some(TALEAD), Some(TALEAD)).expect("chown");
    }
    let text = format!(
        "[daemon]\naccess = \"off\"\nsocket = \"{0}/socket\"\nstate_directory = \"{0}\"\n{1}",
        home.display(),
        config::PLUGINS
    );
    let file: PathBuf = bench.write(&format!("{killed:?}.toml"), &text);
    let talea = Talea::new(bench, &["--config", file.to_str().expect("UTF-8")]);
    let worker = Agent::user(ALICE);
    if killed == Killed::InProcess {
        let left: Vec<i32> = (0..3).map(|_| worker.thread()).collect();
        for tid in &left {
            let ended = talea.run(&["attach", &tid.to_string(), "--priority", "9"]);
            assert_eq!(ended.code, Some(0), "{}", ended.err);
        }
        return Scene { talea, _worker: worker, _asker: None, left };
    }
    let mut daemon = Daemon::unstarted(&file, &home);
    let plain = daemon.command(&[]);
    let command = match killed {
        Killed::UnprivilegedDaemon => unprivileged(&plain, SHIPPED),
        _ => plain,
    };
    daemon.run_command(command).unwrap_or_else(|failed| panic!("{failed:?}"));
    let asker = Agent::user(ALICE);
    let client = asker.connect(&daemon);
    let mut left = Vec::new();
    for owner in [Owner::Session, Owner::Process, Owner::Thread] {
        let tid = worker.thread();
        let granted = client.create(task(owner));
        client.attach(granted.spec, tid);
        left.push(tid);
    }
    // An untouched grant is no obstacle.
    client.create(task(Owner::Thread));
    client.send(&Request::Status);
    daemon.kill();
    let pid = asker.os_pid();
    kill_process(Pid::from_raw(pid).expect("a pid"), Signal::KILL).expect("kill");
    let tid = Tid::new(pid).expect("a pid");
    eventually("the process has ended", || proc::stat(tid).is_ok_and(|stat| stat.has_ended()));
    Scene { talea, _worker: worker, _asker: Some(asker), left }
}

fn doctor(scene: &Scene, repairer: Repairer, capabilities: &str, arguments: &[&str]) -> Ended {
    let mut plain = scene.talea.command(&[&["doctor"], arguments].concat());
    match repairer {
        Repairer::Root => finish(&mut plain),
        Repairer::DaemonsUser => finish(&mut unprivileged(&plain, capabilities)),
    }
}

#[test]
fn attack_7_a_repair_restores_what_any_broker_left() {
    needs_root!();
    let bench = Bench::new("attack-7");
    for (killed, repairer) in [
        (Killed::RootDaemon, Repairer::Root),
        (Killed::UnprivilegedDaemon, Repairer::DaemonsUser),
        (Killed::InProcess, Repairer::Root),
    ] {
        repairs(&bench, killed, repairer);
    }
}

#[test]
fn attack_7_root_repairs_under_the_shipped_unit() {
    needs_root!();
    let bench = Bench::new("attack-7-root");
    let home = repairs(&bench, Killed::UnprivilegedDaemon, Repairer::Root);
    // Every file still belongs to the daemon's user, whose daemon starts again.
    for entry in std::fs::read_dir(&home).expect("a folder").flatten() {
        let owner = std::os::unix::fs::MetadataExt::uid(&entry.metadata().expect("a file"));
        assert_eq!(owner, TALEAD, "{}", entry.path().display());
    }
}

#[track_caller]
fn repairs(bench: &Bench, killed: Killed, repairer: Repairer) -> PathBuf {
    let scene = scene(bench, killed);
    let case = format!("{killed:?}, repaired by {repairer:?}");
    for &tid in &scene.left {
        assert!(kernel::policy(tid).is_realtime(), "{case}");
    }
    let found = doctor(&scene, repairer, SHIPPED, &[]);
    for tid in &scene.left {
        assert!(found.out.contains(&format!("thread {tid} (")), "{case}: {}", found.out);
    }
    if repairer == Repairer::DaemonsUser {
        // Without the capability the repair fails, and says so by its exit code.
        let failed = doctor(&scene, repairer, "-all", &["--repair"]);
        assert_eq!(failed.code, Some(1), "{case}: {}{}", failed.out, failed.err);
        assert!(scene.left.iter().any(|&tid| kernel::policy(tid).is_realtime()), "{case}");
    }
    let begun = std::time::Instant::now();
    let repaired = doctor(&scene, repairer, SHIPPED, &["--repair"]);
    let took = begun.elapsed();
    for &tid in &scene.left {
        assert!(kernel::is_ordinary(tid), "{case}: {}{}", repaired.out, repaired.err);
    }
    let again = doctor(&scene, repairer, SHIPPED, &["--repair"]);
    assert!(again.out.contains("nothing to repair"), "{case}: {}", again.out);
    // Other findings of doctor depend on this computer.
    assert_eq!(repaired.code, again.code, "{case}: {}{}", repaired.out, repaired.err);
    eprintln!("{case}: {} threads restored in {took:?}", scene.left.len());
    bench.path(&format!("{killed:?}"))
}
