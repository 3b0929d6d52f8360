//! Owners of grants: a grant ends with its owner.

use crate::tasks::{owned_by, periodic, with};
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Daemon, config, eventually, kernel, needs_root,
};
use talea_proto::{Code, Owner, Reply, Request};

#[test]
fn r29_a_grant_lives_as_long_as_its_owner() {
    needs_root!();
    let bench = Bench::new("r29");
    let daemon = Daemon::start(&bench, &config::open());
    let (alice, worker) = (Agent::user(ALICE), Agent::user(ALICE));
    let root = Agent::root();
    let watcher = root.connect(&daemon);
    let grants: Vec<_> = [Owner::Session, Owner::Process, Owner::Thread]
        .map(|owner| {
            let client = alice.connect(&daemon);
            // The threads are another process's, so that they outlive the client.
            let tid = worker.thread();
            let granted = client.create(owned_by(owner, with("rm", periodic(10))));
            client.attach(granted.spec, tid);
            client.close();
            (granted.spec, tid)
        })
        .into();
    let specs = || watcher.status().specs;
    eventually("the session's grant ends with it", || specs() == 2);
    assert!(kernel::is_ordinary(grants[0].1));
    assert!(kernel::policy(grants[1].1).is_realtime());
    assert!(kernel::policy(grants[2].1).is_realtime());
    alice.kill();
    eventually("the process's grant ends with it", || specs() == 1);
    assert!(kernel::is_ordinary(grants[1].1));
    assert!(kernel::policy(grants[2].1).is_realtime());
    worker.end_thread(grants[2].1);
    eventually("the thread's grant ends with it", || specs() == 0);
}

#[test]
fn r29_a_threads_grant_is_released_by_its_user_or_by_root_and_by_no_other_user() {
    needs_root!();
    let bench = Bench::new("r29-release");
    let daemon = Daemon::start(&bench, &config::open());
    let (alice, bob, root) = (Agent::user(ALICE), Agent::user(BOB), Agent::root());
    let grant = || {
        let tid = alice.thread();
        let client = alice.connect(&daemon);
        let granted = client.create(owned_by(Owner::Thread, with("rm", periodic(10))));
        client.attach(granted.spec, tid);
        client.close();
        (granted.spec, tid)
    };
    let (spec, tid) = grant();
    assert_eq!(bob.connect(&daemon).refused(&Request::Release(spec)).code, Code::NoSuchSpec);
    assert!(kernel::policy(tid).is_realtime());
    alice.connect(&daemon).done(&Request::Release(spec));
    assert!(kernel::is_ordinary(tid));
    let (spec, tid) = grant();
    root.connect(&daemon).done(&Request::Release(spec));
    assert!(kernel::is_ordinary(tid));
}

#[test]
fn retif_s12_a_child_that_inherits_the_socket_keeps_nothing_alive() {
    needs_root!();
    let bench = Bench::new("s12");
    let daemon = Daemon::start(&bench, &config::open());
    let (alice, worker) = (Agent::user(ALICE), Agent::user(ALICE));
    let client = alice.connect(&daemon);
    let tid = worker.thread();
    let granted = client.create(with("rm", periodic(10)));
    client.attach(granted.spec, tid);
    let child: i32 =
        alice.order(&format!("inherit {}", client.index())).parse().expect("a process id");
    alice.kill();
    eventually("the grant ends with the process that asked", || kernel::is_ordinary(tid));
    assert!(kernel::exists(child), "and the child still holds the socket");
    let pid = rustix::process::Pid::from_raw(child).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
}

#[test]
fn retif_s14_a_thread_that_ends_is_noticed_and_its_spec_waits_for_another() {
    needs_root!();
    let bench = Bench::new("s14");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let granted = client.create(with("rm", periodic(10)));
    for _ in 0..10 {
        let tid = alice.thread();
        client.attach(granted.spec, tid);
        alice.end_thread(tid);
        eventually("the end of the thread is noticed", || client.query(granted.spec).tid.is_none());
    }
    assert_eq!(client.status().attached, 0);
    let tid = alice.thread();
    client.attach(granted.spec, tid);
    assert!(kernel::policy(tid).is_realtime());
}

#[test]
fn r29_a_hundred_killed_clients_leave_nothing() {
    needs_root!();
    let bench = Bench::new("kills");
    let daemon = Daemon::start(&bench, &config::open());
    let worker = Agent::user(ALICE);
    let tid = worker.thread();
    let root = Agent::root();
    let watcher = root.connect(&daemon);
    let descriptors =
        || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("fds").count();
    let before = descriptors();
    for round in 0..100 {
        let alice = Agent::user(ALICE);
        let client = alice.connect(&daemon);
        // Killed before, between and after each of the steps, and with requests on the way.
        if round % 4 > 0 {
            let granted = client.create(with("rm", periodic(10)));
            if round % 4 > 1 {
                eventually("the thread is free", || {
                    matches!(client.try_attach(granted.spec, tid), Reply::Done)
                });
            }
            if round % 4 > 2 {
                client.send(&Request::Detach(granted.spec));
                client.send(&Request::Create(with("rm", periodic(20))));
            }
        }
        alice.kill();
        eventually("nothing is left of a killed client", || {
            let status = watcher.status();
            (status.specs, status.attached, status.sessions) == (0, 0, 1)
        });
        assert!(kernel::is_ordinary(tid));
    }
    // Unread messages of a killed client are discarded outside of the event loop.
    eventually("every descriptor is closed", || descriptors() == before);
}
