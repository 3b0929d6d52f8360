//! Restarts: the daemon stops or is killed, and another daemon continues.

use crate::tasks::{owned_by, periodic, ranked, reserved, with};
use rustix::process::Signal;
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Daemon, config, eventually, kernel, needs_root,
};
use talea_proto::{Code, Owner, Reply, Request};

#[test]
fn retif_10_5_a_killed_daemon_loses_no_grant_of_a_living_client() {
    needs_root!();
    let bench = Bench::new("kill9");
    let mut daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let mut grants = Vec::new();
    for (plugin, task) in
        [("rm", periodic(10)), ("rr", ranked(5)), ("fp", ranked(5)), ("edf", reserved(10, 1_000))]
    {
        for owner in [Owner::Session, Owner::Process, Owner::Thread] {
            let tid = alice.thread();
            let before = (kernel::attr(tid), kernel::affinity(tid));
            let granted = client.create(owned_by(owner, with(plugin, task)));
            client.attach(granted.spec, tid);
            grants.push((granted, tid, kernel::attr(tid), before));
        }
    }
    let unattached = client.create(with("rm", periodic(10)));
    let count = grants.len() as u32 + 1;
    for round in 1..=5 {
        daemon.kill();
        for (_, tid, attr, _) in &grants {
            assert_eq!(
                kernel::attr(*tid),
                *attr,
                "threads keep what they have while there is no daemon"
            );
        }
        daemon.restart();
        assert!(
            daemon.log().contains(&format!("adopted {count} of {count} grants")),
            "{}",
            daemon.log()
        );
        for (_, tid, attr, _) in &grants {
            assert_eq!(kernel::attr(*tid), *attr, "round {round}");
        }
        // What is reserved stays reserved: the same task again is judged with it.
        let fresh = alice.connect(&daemon);
        assert_eq!(fresh.status().specs, count);
        assert_eq!(fresh.status().adopted, count);
        // Another user can't claim, even with the token; the owner can, with the token.
        let bob = Agent::user(BOB);
        let (granted, ..) = &grants[0];
        match bob.connect(&daemon).claim(granted.spec, granted.token) {
            Reply::Refused(refusal) => assert_eq!(refusal.code, Code::NoSuchSpec),
            other => panic!("{other:?}"),
        }
        for granted in grants.iter().map(|(granted, ..)| granted).chain([&unattached]) {
            match fresh.claim(granted.spec, granted.token) {
                Reply::Granted(again) => {
                    assert_eq!((again.spec, again.cpu), (granted.spec, granted.cpu));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let last = alice.connect(&daemon);
    for (granted, tid, _, before) in grants {
        assert!(matches!(last.claim(granted.spec, granted.token), Reply::Granted(_)));
        last.done(&Request::Release(granted.spec));
        assert_eq!(
            (kernel::attr(tid), kernel::affinity(tid)),
            before,
            "back to before the first daemon"
        );
    }
}

#[test]
fn retif_10_5_a_signal_keeps_all_grants_and_a_restart_continues() {
    needs_root!();
    let bench = Bench::new("sigterm");
    let mut daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let tid = alice.thread();
    let granted = client.create(with("rm", periodic(10)));
    client.attach(granted.spec, tid);
    let attr = kernel::attr(tid);
    for signal in [Signal::TERM, Signal::INT] {
        daemon.signal(signal);
        assert!(daemon.wait().success());
        assert_eq!(kernel::attr(tid), attr);
        assert!(!daemon.socket().exists(), "an orderly end takes the socket away");
        daemon.restart();
        assert_eq!(kernel::attr(tid), attr);
    }
}

#[test]
fn retif_10_5_stop_with_release_restores_everything() {
    needs_root!();
    let bench = Bench::new("release");
    let mut daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let mut threads = Vec::new();
    for owner in [Owner::Session, Owner::Process, Owner::Thread] {
        for task in [with("rm", periodic(10)), with("edf", reserved(10, 500))] {
            let tid = alice.thread();
            let before = (kernel::attr(tid), kernel::affinity(tid));
            let granted = client.create(owned_by(owner, task));
            client.attach(granted.spec, tid);
            threads.push((tid, before));
        }
    }
    let (code, said) = daemon.stop(&["--release"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(daemon.wait().success());
    for (tid, before) in threads {
        assert_eq!((kernel::attr(tid), kernel::affinity(tid)), before);
    }
    daemon.restart();
    assert!(!daemon.log().contains("adopted"), "no grant was left to adopt");
}

#[test]
fn retif_10_5_grants_without_an_owner_are_released_by_the_next_daemon() {
    needs_root!();
    let bench = Bench::new("orphans");
    let mut daemon = Daemon::start(&bench, &config::open());
    let (alice, worker) = (Agent::user(ALICE), Agent::user(ALICE));
    let client = alice.connect(&daemon);
    let mut threads = Vec::new();
    for owner in [Owner::Session, Owner::Process, Owner::Thread] {
        let tid = worker.thread();
        let granted = client.create(owned_by(owner, with("rm", periodic(10))));
        client.attach(granted.spec, tid);
        threads.push(tid);
    }
    daemon.kill();
    alice.kill();
    for &tid in &threads {
        assert!(kernel::policy(tid).is_realtime());
    }
    daemon.restart();
    assert!(kernel::is_ordinary(threads[0]), "its session and its process are gone");
    assert!(kernel::is_ordinary(threads[1]), "its process is gone");
    assert!(kernel::policy(threads[2]).is_realtime(), "its own thread lives");
    worker.end_thread(threads[2]);
    let root = Agent::root();
    let watcher = root.connect(&daemon);
    eventually("the last one ends with its thread", || watcher.status().specs == 0);
}

#[test]
fn retif_10_5_a_hundred_daemon_kills_under_load_lose_and_leak_nothing() {
    needs_root!();
    let bench = Bench::new("kills");
    let mut daemon = Daemon::start(&bench, &config::open());
    let bandwidth = kernel::deadline_bandwidth();
    let alice = Agent::user(ALICE);
    let kept_thread = alice.thread();
    let client = alice.connect(&daemon);
    let kept = client.create(owned_by(Owner::Process, with("rm", periodic(10))));
    client.attach(kept.spec, kept_thread);
    let attr = kernel::attr(kept_thread);
    let mut passing = Vec::new();
    for round in 0..20 {
        // A client is always in the middle of something: killed after 0, 1, 2 … of these requests
        // were sent.
        let client = alice.connect(&daemon);
        let tid = alice.thread();
        let granted = client.create(with(if round % 2 == 0 { "edf" } else { "fp" }, {
            let mut task = reserved(10, 200);
            task.params.priority = Some(talea_core::Priority(3));
            task
        }));
        if round % 3 > 0 {
            client.attach(granted.spec, tid);
        }
        if round % 3 > 1 {
            client.send(&Request::Release(granted.spec));
        }
        passing.push(tid);
        daemon.kill();
        assert_eq!(kernel::attr(kept_thread), attr);
        daemon.restart();
        assert_eq!(kernel::attr(kept_thread), attr, "round {round}: {}", daemon.log());
        let fresh = alice.connect(&daemon);
        // In every state of the killed client, the ledger agrees with the kernel.
        let mut real_time = 0;
        for &tid in &passing {
            real_time += u32::from(!kernel::is_ordinary(tid));
        }
        assert_eq!(fresh.status().attached, real_time + 1);
    }
    // The sessions' grants live as long as their process; its end gives all of them back.
    alice.kill();
    let root = Agent::root();
    let watcher = root.connect(&daemon);
    eventually("everything is back", || watcher.status().specs == 0);
    if let Some(before) = bandwidth {
        eventually("the kernel's bandwidth is balanced", || {
            (kernel::deadline_bandwidth().expect("readable") - before).abs() < 64
        });
    }
}

#[test]
fn r6_a_client_of_a_killed_daemon_is_notified_at_once() {
    needs_root!();
    let bench = Bench::new("r6");
    let mut daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    // Stopped in the middle of the call, so that it never answers.
    daemon.signal(Signal::STOP);
    client.send(&Request::Create(with("rm", periodic(10))));
    daemon.kill();
    assert_eq!(client.receive(), None);
    assert!(client.send_bytes(&[1, 2, 3]).starts_with("errno"), "and no signal has ended it");
}

#[test]
fn retif_s13_a_second_instance_names_the_first_and_changes_nothing() {
    needs_root!();
    let bench = Bench::new("s13");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let granted = client.create(with("rm", periodic(10)));
    for arguments in
        [vec![], vec!["--socket".to_owned(), bench.path("other").display().to_string()]]
    {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        // Not Daemon::launch: its second `--socket` must win over the first.
        let output = daemon.command(&arguments).output().expect("talead");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        if arguments.is_empty() {
            assert!(said.contains(&daemon.pid().to_string()), "{said}");
        }
        assert!(said.contains("in use") || said.contains("held by another instance"), "{said}");
    }
    assert_eq!(client.query(granted.spec).granted.spec, granted.spec);
    alice.connect(&daemon);
}
