//! Edge-triggered epoll for a single busy connection: no request of it stays unread.

use rustix::process::Signal;
use std::path::Path;
use std::time::Duration;
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Client, Daemon, config, eventually, kernel, needs_root,
};
use talea_os::proc;
use talea_proto::{Reply, Request};

/// Bit of edge triggering in the `events:` of an epoll entry (`EPOLLET`).
const EDGE: u32 = 1 << 31;

/// Whether a connection of the daemon is edge-triggered, from the kernel's list of its epoll sets.
fn watches_arrivals(daemon: &Daemon) -> bool {
    let home = format!("/proc/{}", daemon.pid());
    let link =
        |fd: &str| std::fs::read_link(Path::new(&home).join("fd").join(fd)).unwrap_or_default();
    let sets = std::fs::read_dir(format!("{home}/fd")).expect("descriptors");
    let names =
        sets.map(|entry| entry.expect("a descriptor").file_name().into_string().expect("a number"));
    names.filter(|fd| link(fd).to_string_lossy().contains("[eventpoll]")).any(|set| {
        let text =
            std::fs::read_to_string(format!("{home}/fdinfo/{set}")).expect("a set's account");
        text.lines().any(|line| {
            let mut words = line.split_ascii_whitespace();
            let (Some("tfd:"), Some(fd), Some("events:"), Some(events)) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                return false;
            };
            let events = u32::from_str_radix(events, 16).expect("a mask");
            events & EDGE != 0 && link(fd).to_string_lossy().starts_with("socket:")
        })
    })
}

/// Sends requests until the daemon uses edge triggering; returns `false` if it never does.
fn becomes_alone(client: &Client, daemon: &Daemon) -> bool {
    (0..50).any(|_| {
        for _ in 0..32 {
            client.status();
        }
        watches_arrivals(daemon)
    })
}

#[test]
fn a_single_busy_connection_is_edge_triggered_until_it_is_idle() {
    needs_root!();
    let bench = Bench::new("arrivals");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    assert!(!watches_arrivals(&daemon), "no client has sent more than hello");
    assert!(becomes_alone(&client, &daemon));
    eventually("who is quiet is watched as before", || !watches_arrivals(&daemon));
    let before = client.status().wakeups;
    // Ten beats in which nothing happens, so there is nothing to wait for.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(client.status().wakeups - before, 1, "the beat goes on");
}

#[test]
fn a_connection_beside_an_active_one_is_level_triggered() {
    needs_root!();
    let bench = Bench::new("beside");
    let daemon = Daemon::start(&bench, &config::open());
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let (first, second) = (alice.connect(&daemon), bob.connect(&daemon));
    assert!(becomes_alone(&first, &daemon));
    second.status();
    assert!(!watches_arrivals(&daemon));
    assert!(becomes_alone(&second, &daemon));
    // Its end is noticed, too.
    second.close();
    eventually("an end is noticed", || first.status().sessions == 1);
}

/// Sends three requests that the daemon can only detect as one arrival, and checks the answers.
fn ask_ahead(client: &Client, daemon: &Daemon) {
    daemon.signal(Signal::STOP);
    eventually("the daemon stops", || {
        proc::stat(kernel::tid(daemon.pid())).expect("a daemon").state == b'T'
    });
    let asked = [(); 3].map(|()| client.send(&Request::Status));
    daemon.signal(Signal::CONT);
    for seq in asked {
        let (answered, said) = client.receive().expect("an answer");
        assert_eq!(answered, seq, "answers come in the order of the requests");
        assert!(matches!(said, Reply::Status(_)), "{said:?}");
    }
}

#[test]
fn requests_sent_ahead_of_the_answers_are_all_answered() {
    needs_root!();
    let bench = Bench::new("ahead");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    // A stall of this machine, or a poll timer, may come between: then it was not watched for
    // arrivals when it asked.
    let asked_ahead = (0..100).take_while(|_| {
        let alone = becomes_alone(&client, &daemon);
        if alone {
            ask_ahead(&client, &daemon);
        }
        alone
    });
    let times = asked_ahead.count();
    assert!(
        (8..100).contains(&times),
        "it takes eight observations to learn that a client sends ahead, and took {times}"
    );
}
