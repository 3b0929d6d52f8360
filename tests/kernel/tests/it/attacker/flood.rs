//! Overload: too many connections, requests and exits at once, and no free descriptors.

use super::fixture::{Fixture, MALLORY, QUIET, figure, small};
use std::process::Command;
use std::time::Duration;
use talea_core::CpuSet;
use talea_kernel_tests::{Agent, Bench, Daemon, config, eventually, kernel, needs_root};
use talea_proto::{Reply, Request, Task, ThreadRef, VERSION};

/// Quotas for a thousand connections of one user.
const ROOMY: &str = "[daemon.quota]\nsessions_per_user = 1200\nsessions = 2000\n";

/// Runs a swarm that does `kind` on `count` connections for a while; returns its counts.
fn swarm(fixture: &Fixture, count: u32, kind: &str) -> String {
    let test_clients = fixture.test_clients(MALLORY);
    let socket = fixture.daemon.socket().display();
    assert_eq!(
        test_clients.order(&format!("start swarm swarm {socket} {count} {kind}")),
        "started",
        "{kind}"
    );
    std::thread::sleep(Duration::from_millis(600));
    let said = test_clients.order("stop swarm");
    println!("{count} × {kind}: {said}");
    said
}

#[test]
fn retif_d3_d4_a_thousand_flooding_connections_get_the_quota_and_no_more() {
    needs_root!();
    let fixture = Fixture::new("attack-flood");
    for kind in ["status", "garbage", "create", "attach"] {
        fixture.under(|| {
            let said = swarm(&fixture, 1000, kind);
            assert!(figure(&said, "sent") > 0, "{said}");
        });
    }
}

#[test]
fn retif_d4_a_thousand_connections_that_ask_for_groups_get_the_quota_and_no_more() {
    needs_root!();
    let fixture = Fixture::new("attack-groups");
    // One message, 64 specs: paid for as 64 requests.
    fixture.under(|| {
        let said = swarm(&fixture, 1000, "group");
        assert!(figure(&said, "sent") > 0, "{said}");
    });
}

#[test]
fn retif_d3_d5_a_thousand_flooding_connections_within_the_quota_are_held_to_the_rate() {
    needs_root!();
    let fixture = Fixture::with("attack-flood-within", &(config::open() + ROOMY));
    for kind in ["status", "attach"] {
        fixture.under(|| {
            let said = swarm(&fixture, 1000, kind);
            assert_eq!(figure(&said, "alive"), 1000, "{said}");
        });
    }
}

#[test]
fn retif_d5_a_thousand_idle_connections_cost_nothing() {
    needs_root!();
    let fixture = Fixture::with("attack-idle", &(config::open() + ROOMY));
    fixture.under(|| {
        let said = swarm(&fixture, 1000, "idle");
        assert_eq!((figure(&said, "alive"), figure(&said, "hangups")), (1000, 0), "{said}");
    });
}

#[test]
fn retif_d3_endless_connects_and_disconnects_keep_no_other_client_out() {
    needs_root!();
    let fixture = Fixture::new("attack-visits");
    fixture.under(|| {
        let said = swarm(&fixture, 64, "visit");
        assert!(figure(&said, "opened") > 100, "{said}");
    });
}

#[test]
fn retif_d2_a_client_that_never_reads_is_disconnected() {
    needs_root!();
    let fixture = Fixture::new("attack-mute");
    fixture.under(|| {
        let said = swarm(&fixture, 20, "mute");
        assert!(figure(&said, "hangups") > 0, "{said}");
    });
}

#[test]
fn retif_d1_clients_killed_in_the_middle_of_a_call_harm_no_other_client() {
    needs_root!();
    let fixture = Fixture::new("attack-kills");
    let mut round = 0u32;
    fixture.under(|| {
        let mallory = Fixture::mallory();
        let client = mallory.connect(&fixture.daemon);
        let tid = mallory.thread();
        let grant = client.create(small());
        if round.is_multiple_of(2) {
            client.attach(grant.spec, tid);
        }
        let thread = ThreadRef::Tid(tid as u32);
        // The request in progress when the client dies.
        match round % 5 {
            0 => drop(client.send(&Request::Change { spec: grant.spec, task: small() })),
            1 => drop(client.send(&Request::Attach { spec: grant.spec, thread })),
            2 => drop(client.send(&Request::Detach(grant.spec))),
            3 => drop(mallory.order(&format!(
                "flood {} 200 {}",
                client.index(),
                client.encode(&Request::Status)
            ))),
            _ => drop(client.send_bytes(&[2, 0, 1])),
        }
        mallory.kill();
        round += 1;
        eventually("its thread is gone", || !kernel::exists(tid));
    });
    println!("{round} clients were killed in the middle of a call");
}

#[test]
fn r29_a_connection_that_ends_with_hundreds_of_grants_delays_no_other_client() {
    needs_root!();
    let fixture = Fixture::new("attack-mass");
    let (mallory, worker) = (Fixture::mallory(), Fixture::mallory());
    // Threads that outlive the connection: the daemon has to restore each of them.
    let threads: Vec<i32> = (0..300).map(|_| worker.thread()).collect();
    let elsewhere = Task { cpus: others(), cpus_mandatory: true, ..small() };
    for goodbye in ["close", "groups"] {
        fixture.under(|| {
            let client = mallory.connect(&fixture.daemon);
            for &tid in &threads {
                let grant = client.create(elsewhere);
                let said = client.try_attach(grant.spec, tid);
                assert_eq!(said, Reply::Done);
            }
            if goodbye == "groups" {
                // And once with as many grants in one message.
                for _ in 0..4 {
                    let group = client.ask(&Request::CreateGroup(vec![elsewhere; 64]));
                    assert!(matches!(group, Reply::GrantedGroup(_)), "{group:?}");
                }
            }
            client.close();
            eventually("all of them are ordinary again", || {
                threads.iter().all(|&tid| kernel::is_ordinary(tid))
            });
        });
    }
}

/// Returns every CPU but the daemon's, or all CPUs if there is no other.
fn others() -> CpuSet {
    let others = kernel::cpus().difference(&CpuSet::single(0));
    if others.is_empty() { kernel::cpus() } else { others }
}

/// Starts a daemon with this limit of descriptors.
fn starved(bench: &Bench, descriptors: u32) -> Daemon {
    let config = bench.write("talead.toml", &(config::open() + QUIET));
    let mut daemon = Daemon::unstarted(&config, &bench.path("state"));
    let plain = daemon.command(&[]);
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={descriptors}:{descriptors}")).arg("--");
    command.arg(plain.get_program()).args(plain.get_args());
    command.env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS").env_remove("JOURNAL_STREAM");
    daemon.run_command(command).unwrap_or_else(|failed| panic!("{failed:?}"));
    daemon
}

#[test]
fn retif_d3_without_descriptors_connected_clients_are_served_and_others_are_refused_at_once() {
    needs_root!();
    let bench = Bench::new("attack-starved");
    let daemon = starved(&bench, 64);
    let mut fixture = Fixture::around(bench, daemon);
    // A descriptor can't come along where there is no room for it.
    fixture.attaching = false;
    let cpu_time = || {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", fixture.daemon.pid())).expect("stat");
        let after_name = stat.rsplit(')').next().expect("fields");
        after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<u64>().expect("ticks"))
            .sum::<u64>()
    };
    fixture.under(|| {
        let test_clients = fixture.test_clients(MALLORY);
        let socket = fixture.daemon.socket().display();
        assert_eq!(test_clients.order(&format!("start swarm swarm {socket} 200 guest")), "started");
        // Refused clients reconnect or stay away.
        eventually("the descriptors are used up", || fixture.descriptors_now() >= 60);
        // A thread named by number needs a descriptor of the daemon's own: refused with the reason,
        // not hung.
        let late = Agent::user(MALLORY);
        let begun = std::time::Instant::now();
        let said = late.order(&format!("connect {socket}"));
        if let Ok(index) = said.parse() {
            let client = late.client_at(index);
            client.send_bytes(&[0]);
            assert_eq!(client.receive().map(|(_, reply)| matches!(reply, Reply::Granted(_))), None);
        }
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "turned away after {:?}",
            begun.elapsed()
        );
        let before = cpu_time();
        std::thread::sleep(Duration::from_millis(300));
        let spent = (cpu_time() - before) * 10;
        println!("{} and {spent} ms of CPU time in 300 ms", test_clients.order("stop swarm"));
        assert!(spent <= 200, "it spins: {spent} ms of 300");
    });
    // All clients have disconnected: there is room again.
    let client_agent = Agent::user(MALLORY);
    eventually("there is room again", || {
        let index = client_agent.order(&format!("connect {}", fixture.daemon.socket().display()));
        let client = client_agent.client_at(index.parse().expect("a connection"));
        let mut hello = [0; 64];
        let length = Request::Hello { min: VERSION, max: VERSION }.encode(1, &mut hello);
        client.send_bytes(&hello[..length]);
        matches!(client.receive(), Some((_, Reply::Welcome { .. })))
    });
    drop(client_agent);
    fixture.is_unharmed();
}
