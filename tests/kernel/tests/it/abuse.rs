//! Clients that violate the protocol: the daemon survives, disconnects them, and serves the others.

use crate::tasks::{periodic, with};
use std::process::Command;
use talea_core::rng::Rng;
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Client, Daemon, config, eventually, kernel, needs_root,
};
use talea_proto::{Code, MESSAGE_MAX, Request, VERSION};

/// Creates a grant, attaches a thread and releases the grant; checks the thread in the kernel.
fn is_served(client: &Client) {
    let tid = client.agent.thread();
    let granted = client.create(with("rm", periodic(10)));
    client.attach(granted.spec, tid);
    assert!(kernel::policy(tid).is_realtime());
    client.done(&Request::Release(granted.spec));
    assert!(kernel::is_ordinary(tid));
    client.agent.end_thread(tid);
}

#[test]
fn retif_d1_d6_malformed_messages_are_refused_or_disconnected_and_harm_no_other_client() {
    needs_root!();
    let bench = Bench::new("garbage");
    let daemon = Daemon::start(&bench, &config::open());
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let honest = bob.connect(&daemon);
    let mut random = Rng::new(1);
    let mut hello = [0; MESSAGE_MAX];
    let length = Request::Hello { min: VERSION, max: VERSION }.encode(1, &mut hello);
    for round in 0..200 {
        let client =
            if round % 2 == 0 { alice.connect(&daemon) } else { alice.connect_silently(&daemon) };
        let size =
            [1, 2, 7, 8, 9, 16, 80, 216, 217, 4_096, MESSAGE_MAX, MESSAGE_MAX + 1][round % 12];
        let mut bytes: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
        if round % 3 == 0 && size >= 8 {
            // A right header with nonsense behind it.
            bytes[..8].copy_from_slice(&hello[..8]);
            bytes[0] = (random.next() % 24) as u8;
        }
        if round % 5 == 0 && size >= length {
            bytes[..length].copy_from_slice(&hello[..length]);
        }
        if client.send_bytes(&bytes) == "sent" {
            // An answer or a hang-up; never silence.
            let _ = client.receive();
        }
        client.close();
        if round % 20 == 0 {
            is_served(&honest);
        }
    }
    is_served(&honest);
    assert_eq!(honest.status().specs, 0, "no phantom task");
}

#[test]
fn retif_d6_a_truncated_message_is_refused() {
    needs_root!();
    let bench = Bench::new("half");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let mut bytes = [0; MESSAGE_MAX];
    let length = Request::Create(with("rm", periodic(10))).encode(77, &mut bytes);
    for end in [8, 9, length / 2, length - 1] {
        assert_eq!(client.send_bytes(&bytes[..end]), "sent");
        let (seq, reply) = client.receive().expect("an answer");
        assert_eq!(seq, 77);
        let talea_proto::Reply::Refused(refusal) = reply else { panic!("{reply:?}") };
        assert_eq!(refusal.code, Code::Malformed);
    }
    // The two halves never become one.
    assert_eq!(client.status().specs, 0);
    is_served(&client);
}

#[test]
fn retif_d2_a_client_that_does_not_read_is_disconnected_and_blocks_no_other_client() {
    needs_root!();
    let bench = Bench::new("d2");
    let daemon = Daemon::start(&bench, &config::open());
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let honest = bob.connect(&daemon);
    let flooder = alice.connect(&daemon);
    let held = flooder.create(with("rm", periodic(10)));
    let message = flooder.encode(&Request::Status);
    // Until the daemon disconnects: a full queue of unread answers, within its rate.
    eventually("the daemon has enough", || {
        alice.order(&format!("flood {} 1000 {message}", flooder.index()));
        let status = honest.status();
        status.sessions == 1
    });
    is_served(&honest);
    assert_eq!(honest.status().specs, 0, "what it held is back");
    let root = Agent::root();
    assert_eq!(root.connect(&daemon).refused(&Request::Query(held.spec)).code, Code::NoSuchSpec);
}

#[test]
fn retif_d1_clients_that_close_before_the_answer_raise_no_signal() {
    needs_root!();
    let bench = Bench::new("d1");
    let daemon = Daemon::start(&bench, &config::open());
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let honest = bob.connect(&daemon);
    for _ in 0..200 {
        let client = alice.connect_silently(&daemon);
        client.send(&Request::Hello { min: VERSION, max: VERSION });
        client.send(&Request::Create(with("rm", periodic(10))));
        client.close();
    }
    is_served(&honest);
    eventually("nothing is left", || {
        let status = honest.status();
        (status.specs, status.sessions) == (0, 1)
    });
}

#[test]
fn retif_d3_without_free_descriptors_connections_are_refused_without_spinning() {
    needs_root!();
    let bench = Bench::new("d3");
    let file = bench.write("talead.toml", &config::open());
    let mut daemon = Daemon::unstarted(&file, &bench.path("state"));
    let plain = daemon.command(&[]);
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 48; exec \"$@\"", "sh"])
        .arg(plain.get_program())
        .args(plain.get_args());
    daemon.run_command(command).expect("a daemon");
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let honest = bob.connect(&daemon);
    let attacker =
        |count: u32| alice.order(&format!("connect-many {} {count}", daemon.socket().display()));
    // All of them connect; the daemon closes those for which it has no descriptor.
    attacker(200);
    daemon.wait_for_line("connections are rejected").expect("a living daemon");
    let worker = bob.thread();
    // The daemon still has to close the connections in its backlog, one after the other.
    eventually("no connection is pending", || {
        let before = honest.status().wakeups;
        bob.order(&format!("periods {worker} 1 50000"));
        honest.status().wakeups - before <= 3
    });
    let before = honest.status().wakeups;
    bob.order(&format!("periods {worker} 5 100000"));
    let woken = honest.status().wakeups - before;
    assert!(woken <= 20, "{woken} wake-ups in half a second without a connection");
    let granted = honest.create(with("rm", periodic(10)));
    honest.done(&Request::Release(granted.spec));
    // Room again: connections are accepted again.
    alice.order("close-all");
    eventually("a new client is accepted", || {
        let new_client = Agent::user(BOB);
        let client = new_client.connect_silently(&daemon);
        let said = alice.order("pid");
        assert!(!said.is_empty());
        client.send_bytes(&hello()) == "sent" && client.receive().is_some()
    });
    is_served(&honest);
}

fn hello() -> Vec<u8> {
    let mut bytes = [0; MESSAGE_MAX];
    let length = Request::Hello { min: VERSION, max: VERSION }.encode(1, &mut bytes);
    bytes[..length].to_vec()
}

#[test]
fn retif_d4_quotas_hold_for_connections_and_specs() {
    needs_root!();
    let bench = Bench::new("d4");
    let quota =
        "[daemon]\naccess = \"off\"\n[daemon.quota]\nsessions_per_user = 5\nspecs_per_user = 7\n";
    let daemon = Daemon::start(&bench, &format!("{quota}{}", config::PLUGINS));
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let clients: Vec<Client> = (0..5).map(|_| alice.connect(&daemon)).collect();
    let sixth = alice.connect_silently(&daemon);
    let refusal = sixth.refused(&Request::Hello { min: VERSION, max: VERSION });
    assert_eq!((refusal.code, refusal.asked, refusal.limit), (Code::Quota, 6, 5));
    assert_eq!(sixth.receive(), None);
    for number in 0..7 {
        clients[number % 5].create(with("rm", periodic(10)));
    }
    let refusal = clients[0].refused(&Request::Create(with("rm", periodic(10))));
    assert_eq!((refusal.code, refusal.asked, refusal.limit), (Code::Quota, 8, 7));
    // One user's quota is one user's.
    is_served(&bob.connect(&daemon));
    clients[4].close();
    eventually("a place is free", || {
        let client = alice.connect_silently(&daemon);
        matches!(
            client.ask(&Request::Hello { min: VERSION, max: VERSION }),
            talea_proto::Reply::Welcome { .. }
        )
    });
}

#[test]
fn retif_d4_d5_a_thousand_flooding_connections_leave_an_honest_client_served() {
    needs_root!();
    let bench = Bench::new("flood");
    let quota =
        "[daemon]\naccess = \"off\"\n[daemon.quota]\nsessions_per_user = 1000\nsessions = 1010\n";
    let daemon = Daemon::start(&bench, &format!("{quota}{}", config::PLUGINS));
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let honest = bob.connect(&daemon);
    assert_eq!(alice.order(&format!("connect-many {} 1000", daemon.socket().display())), "1000");
    let hello: String = talea_kernel_tests::agent::hex(&hello());
    // Everything on every connection at once, as fast as one process can, for a second.
    alice.begin(&format!("flood-all 1000 {hello}"));
    for _ in 0..50 {
        is_served(&honest);
    }
    let sent: u64 = alice.finish().parse().expect("a number");
    assert!(sent > 1_000, "it was a flood: {sent}");
    is_served(&honest);
    let status = honest.status();
    assert_eq!(status.specs, 0);
    alice.kill();
    eventually("the flooder's connections are gone", || honest.status().sessions == 1);
    is_served(&honest);
}

#[test]
fn retif_d4_a_client_above_the_request_rate_waits_and_others_do_not() {
    needs_root!();
    let bench = Bench::new("rate");
    let quota =
        "[daemon]\naccess = \"off\"\n[daemon.quota]\nrequests_per_second = 20\nburst = 10\n";
    let daemon = Daemon::start(&bench, &format!("{quota}{}", config::PLUGINS));
    let (alice, root) = (Agent::user(ALICE), Agent::root());
    let flooder = alice.connect(&daemon);
    let honest = root.connect(&daemon);
    for _ in 0..30 {
        flooder.send(&Request::Status);
    }
    daemon.wait_for_line("exceeds the request rate").expect("a living daemon");
    // Root is exempt; and the flooder's requests are kept in its own socket, not in the daemon.
    let answered = honest.status().requests;
    for _ in 0..30 {
        honest.status();
    }
    assert!(answered < 60);
    // Late, but each is answered, once and in order.
    for seq in 2..=31 {
        assert_eq!(flooder.receive().expect("an answer").0, seq);
    }
}

#[test]
fn retif_m3_m4_indexes_that_do_not_exist_are_the_end_of_the_list() {
    needs_root!();
    let bench = Bench::new("m3");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for index in [4, 5, 1024, u32::MAX, u32::MAX / 2] {
        assert_eq!(client.ask(&Request::Plugin(index)), talea_proto::Reply::End);
        for plugin in [0, 3, index] {
            assert_eq!(
                client.ask(&Request::PluginCpu { plugin, index: u32::MAX }),
                talea_proto::Reply::End
            );
        }
        assert_eq!(
            client.ask(&Request::NextSpec(talea_proto::SpecId(u64::MAX))),
            talea_proto::Reply::End
        );
        assert_eq!(client.ask(&Request::NextSession(u64::MAX)), talea_proto::Reply::End);
    }
}
