//! Cost of Talea for processes that do not use it: none.

use crate::tasks::{periodic, ranked, reserved, with};
use talea_kernel_tests::{ALICE, Agent, BOB, Bench, Daemon, config, kernel, needs_root};
use talea_proto::Request;

#[test]
fn r33_the_daemon_is_not_woken_by_its_clients_periods() {
    needs_root!();
    let bench = Bench::new("r33");
    let daemon = Daemon::start(&bench, &config::open());
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let client = alice.connect(&daemon);
    let observer = bob.connect(&daemon);
    for (plugin, task) in
        [("rm", periodic(2)), ("rr", ranked(5)), ("fp", ranked(5)), ("edf", reserved(2, 200))]
    {
        let tid = alice.thread();
        let granted = client.create(with(plugin, task));
        client.attach(granted.spec, tid);
        let before = observer.status().wakeups;
        alice.order(&format!("periods {tid} 250 2000"));
        let after = observer.status().wakeups;
        assert!(kernel::policy(tid).is_realtime());
        // The question itself is one wake-up; the others are inspections, five a second.
        assert!(
            (1..=5).contains(&(after - before)),
            "{plugin}: 250 periods have woken the daemon {} times",
            after - before
        );
        client.done(&Request::Release(granted.spec));
    }
}

#[test]
fn r33_an_idle_daemon_with_idle_clients_sleeps() {
    needs_root!();
    let bench = Bench::new("idle");
    let daemon = Daemon::start(&bench, &config::open());
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    assert_eq!(alice.order(&format!("connect-many {} 100", daemon.socket().display())), "100");
    let observer = bob.connect(&daemon);
    let worker = bob.thread();
    // The event loop returns to its priority at most 40 ms after so many connections.
    bob.order(&format!("periods {worker} 1 100000"));
    let before = observer.status().wakeups;
    // Half a second in which nothing happens.
    bob.order(&format!("periods {worker} 5 100000"));
    assert_eq!(observer.status().wakeups - before, 1);
}
