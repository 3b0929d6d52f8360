//! Users that lock others out: silent connections, subordinate users, churn, no descriptors, log
//! lines.
//!
//! Numbers in the names are those of the findings of the review: 4 silent connections, 5
//! subordinate users, 9 log lines, 12 endless connects and disconnects, 17 levels, 18 descriptors.

use talea_kernel_tests::{ALICE, Agent, BOB, Bench, Client, Daemon, config, needs_root};

#[test]
fn attack_4_a_connection_without_a_hello_is_closed_and_one_with_it_stays() {
    needs_root!();
    let bench = Bench::new("attack-4-hello");
    let daemon = Daemon::start(&bench, &config::open());
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let honest = bob.connect(&daemon);
    let silent: Vec<Client> = (0..5).map(|_| alice.connect_silently(&daemon)).collect();
    // The library's read time-out is ten seconds; the daemon closes before it.
    for client in &silent {
        assert_eq!(client.receive(), None);
    }
    let status = honest.status();
    assert_eq!(status.sessions, 1);
    // No timer remains.
    let worker = bob.thread();
    let before = honest.status().wakeups;
    bob.order(&format!("periods {worker} 3 200000"));
    let woken = honest.status().wakeups - before;
    assert!(woken <= 3, "{woken} wake-ups in 0.6 s without a connection");
}
