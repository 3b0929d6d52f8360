//! Cost of Talea for processes that do not use it: none.

use crate::tasks::{periodic, ranked, reserved, with};
use talea_kernel_tests::{ALICE, Agent, BOB, Bench, Daemon, config, kernel, needs_root};
use talea_proto::Request;

/// Largest cost of a request in empty exchanges of messages, in a build without optimization. It is
/// about 14; a request that costs three times as much makes it 46.
const MAX_REQUEST: u64 = 28;

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

/// CPU time of a thread in nanoseconds.
fn used(tid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).expect("schedstat");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// CPU time in which a thread receives a message and sends one, in nanoseconds.
fn empty_exchange() -> u64 {
    const COUNT: u64 = 400;
    let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().expect("two sockets");
    let echo = std::thread::spawn(move || {
        let begin = talea_os::clock::thread_cpu_time().as_ns();
        let mut buffer = [0; 256];
        for _ in 0..COUNT {
            let length = theirs.recv(&mut buffer).expect("a message");
            theirs.send(&buffer[..length]).expect("a reader");
        }
        (talea_os::clock::thread_cpu_time().as_ns() - begin) / COUNT
    });
    let mut buffer = [0; 256];
    for _ in 0..COUNT {
        ours.send(&[7; 100]).expect("a reader");
        ours.recv(&mut buffer).expect("a message");
    }
    echo.join().expect("no panic")
}

#[test]
fn r34_a_request_costs_the_daemon_few_empty_exchanges() {
    const PAIRS: u64 = 100;
    needs_root!();
    let bench = Bench::new("r34");
    let daemon = Daemon::start(&bench, &config::open());
    let client = talea_client::Client::builder().path(daemon.socket()).connect();
    let client = client.expect("a connection");
    let spec = talea_client::Spec::builder().priority(5).plugin("fp").build().expect("a spec");
    let request = || {
        let before = used(daemon.pid());
        for _ in 0..PAIRS {
            let grant = client.create(&spec).expect("an answer").expect("a grant");
            grant.release().expect("an answer").expect("it was granted");
        }
        (used(daemon.pid()) - before) / (2 * PAIRS)
    };
    // Other load lengthens both. The smallest values are those without it.
    let (mut ours, mut empty) = (u64::MAX, u64::MAX);
    for _ in 0..8 {
        empty = empty.min(empty_exchange());
        ours = ours.min(request());
    }
    println!("a request costs {ours} ns, an empty exchange {empty} ns");
    assert!(ours < MAX_REQUEST * empty, "{ours} ns, an empty exchange {empty} ns");
}
