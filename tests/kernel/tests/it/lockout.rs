//! Users that lock others out: silent connections, subordinate users, churn, no descriptors, log
//! lines.
//!
//! Numbers in the names are those of the findings of the review: 4 silent connections, 5
//! subordinate users, 9 log lines, 12 endless connects and disconnects, 17 levels, 18 descriptors.

use crate::tasks::{periodic, ranked, with};
use std::process::Command;
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Client, Daemon, config, eventually, needs, needs_root,
};
use talea_proto::{Code, Reply, Request, VERSION};

/// First of many users that exist on no machine.
const HOSTILE: u32 = 61_000;
/// Owner of subordinate users in a test.
const OWNER: u32 = 60_004;
/// First subordinate user of [`OWNER`] in a test.
const SUBORDINATE: u32 = 200_000;

/// Returns a configuration in which a rule serves each of these users.
fn serving(users: &[u32], quota: &str) -> String {
    let rule = |uid: &u32| format!("[[rule]]\ndomain = \"#{uid}\"\nallow_unbounded = true\n");
    let rules: String = users.iter().map(rule).collect();
    format!("[daemon.quota]\n{quota}{}", config::with_rules(&rules))
}

/// Returns whether the daemon welcomes this connection.
fn is_welcome(client: &Client) -> bool {
    client.send(&Request::Hello { min: VERSION, max: VERSION });
    matches!(client.receive(), Some((_, Reply::Welcome { .. })))
}

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

#[test]
fn attack_4_users_without_a_rule_leave_places_to_others() {
    needs_root!();
    let bench = Bench::new("attack-4-pool");
    // Two users without a rule could hold all places.
    let quota = "sessions = 64\nsessions_per_user = 32\nsessions_without_rule = 16\n";
    let daemon = Daemon::start(&bench, &serving(&[ALICE, BOB], quota));
    let hostile: Vec<Agent> = (0..4).map(|n| Agent::user(HOSTILE + n)).collect();
    let mut welcome = 0;
    for agent in &hostile {
        for _ in 0..32 {
            let said = agent.order(&format!("connect {}", daemon.socket().display()));
            let Ok(index) = said.parse() else { continue };
            let client = agent.client_at(index);
            let sent = client.send_bytes(&hello()) == "sent";
            welcome +=
                u32::from(sent && matches!(client.receive(), Some((_, Reply::Welcome { .. }))));
        }
    }
    assert_eq!(welcome, 16);
    // Served users have the other places, to their own limit.
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let clients: Vec<Client> = (0..32).map(|_| alice.connect(&daemon)).collect();
    clients[0].create(with("fp", ranked(5)));
    // All places are taken but for the reserves.
    let others: Vec<Client> = (0..16).map(|_| bob.connect(&daemon)).collect();
    assert!(!is_welcome(&bob.connect_silently(&daemon)));
    others[0].create(with("fp", ranked(5)));
    assert!(!is_welcome(&bob.connect_silently(&daemon)), "it has connections");
    let root = Agent::root();
    assert_eq!(root.connect(&daemon).status().sessions, 65);
}

fn hello() -> Vec<u8> {
    let mut bytes = [0; 64];
    let length = Request::Hello { min: VERSION, max: VERSION }.encode(1, &mut bytes);
    bytes[..length].to_vec()
}

/// Starts a daemon that sees this text as `/etc/subuid`.
fn daemon_with_subuid(bench: &Bench, config: &str, subuid: &str) -> Daemon {
    let config = bench.write("talead.toml", config);
    let ranges = bench.write("subuid", subuid);
    let mut daemon = Daemon::unstarted(&config, &bench.path("state"));
    let plain = daemon.command(&[]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/subuid && exec \"$@\""]);
    command.arg(ranges).arg(plain.get_program()).args(plain.get_args());
    command.env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS").env_remove("JOURNAL_STREAM");
    daemon.run_command(command).unwrap_or_else(|failed| panic!("{failed:?}"));
    daemon
}

#[test]
fn attack_5_subordinate_users_take_no_more_than_their_owner() {
    needs_root!();
    needs!("/etc/subuid", std::fs::metadata("/etc/subuid").is_ok());
    let bench = Bench::new("attack-5");
    // Every user is served, as with a group that subordinate users keep.
    let rule = "[[rule]]\ndomain = \"-\"\nallow_unbounded = true\n";
    let quota = "specs = 64\nspecs_per_user = 16\nsessions_per_user = 8\n";
    let config = format!("[daemon.quota]\n{quota}{}", config::with_rules(rule));
    let subuid = format!("{OWNER}:{SUBORDINATE}:65536\n");
    let daemon = daemon_with_subuid(&bench, &config, &subuid);
    let agents: Vec<Agent> =
        (0..8).map(|n| Agent::user(if n == 0 { OWNER } else { SUBORDINATE + n })).collect();
    let clients: Vec<Client> = agents.iter().map(|agent| agent.connect(&daemon)).collect();
    let mut granted = 0;
    for client in &clients {
        for _ in 0..8 {
            match client.ask(&Request::Create(with("fp", ranked(5)))) {
                Reply::Granted(_) => granted += 1,
                Reply::Refused(refusal) => assert_eq!(refusal.code, Code::Quota),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(granted, 16);
    assert!(!is_welcome(&agents[3].connect_silently(&daemon)), "eight connections in total");
    // Another user has what the quota promises.
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for _ in 0..16 {
        client.create(with("fp", ranked(5)));
    }
    assert_eq!(client.status().specs, 32);
    // Each of them sees its own specs only.
    let Reply::Spec(info) = clients[0].ask(&Request::NextSpec(talea_proto::SpecId(1))) else {
        panic!("the owner has specs");
    };
    assert_eq!(info.uid, OWNER);
    assert_eq!(clients[7].ask(&Request::NextSpec(talea_proto::SpecId(1))), Reply::End);
}

#[test]
fn attack_9_reconnecting_writes_no_more_log_lines() {
    needs_root!();
    let bench = Bench::new("attack-9");
    let daemon = Daemon::start(&bench, &serving(&[ALICE], ""));
    let agents: Vec<Agent> = (0..3).map(|n| Agent::user(HOSTILE + n)).collect();
    let begun = std::time::Instant::now();
    let mut refused = 0u32;
    while begun.elapsed() < std::time::Duration::from_secs(2) {
        for agent in &agents {
            let client = agent.connect(&daemon);
            let said = client.refused(&Request::Create(with("rm", periodic(10))));
            assert_eq!(said.code, Code::NotAllowed);
            client.close();
            refused += 1;
        }
    }
    let windows = begun.elapsed().as_secs() as usize + 2;
    eventually("the suppressed lines are counted", || {
        daemon.log().contains("log lines were suppressed in one second")
    });
    let log = daemon.said_since_start();
    let lines = log.iter().filter(|line| line.contains("refused process")).count();
    println!("{refused} refusals, {lines} lines in {windows} seconds");
    assert!(refused > 200, "it was no flood: {refused}");
    assert!(lines <= 20 * windows && lines >= 20, "{lines} lines in {windows} seconds");
    let counted: u32 = log
        .iter()
        .filter_map(|line| line.split_once(" log lines were suppressed").map(|parts| parts.0))
        .filter_map(|line| line.split_whitespace().find_map(|word| word.parse::<u32>().ok()))
        .sum();
    assert!(counted > 0 && counted as usize + lines <= refused as usize, "{counted} suppressed");
}
