//! Users that lock others out: silent connections, subordinate users, churn, no descriptors, log
//! lines.
//!
//! Numbers in the names are those of the findings of the review: 4 silent connections, 5
//! subordinate users, 9 log lines, 12 endless connects and disconnects, 17 levels, 18 descriptors.

use crate::attacker::test_clients;
use crate::tasks::{periodic, ranked, with};
use rustix::process::Signal;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::process::Command;
use talea_core::CpuSet;
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Client, Daemon, config, eventually, kernel, needs, needs_root,
};
use talea_os::sched::{self, Attr, Policy};
use talea_proto::{Code, Owner, Reply, Request, Task, ThreadRef, VERSION};

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
    // Three users without a rule could hold all places.
    let quota = "sessions = 96\nsessions_per_user = 32\n";
    let daemon = Daemon::start(&bench, &serving(&[ALICE, BOB], quota));
    let (alice, bob, root) = (Agent::user(ALICE), Agent::user(BOB), Agent::root());
    let holder = bob.connect(&daemon);
    holder.create(Task { owner: Owner::Process, ..with("fp", ranked(6)) });
    holder.close();
    let observer = root.connect(&daemon);
    eventually("the holder of a grant has no connection", || observer.status().sessions == 1);
    let hostile: Vec<Agent> = (0..4).map(|n| Agent::user(HOSTILE + n)).collect();
    let mut welcome = 0;
    for agent in &hostile {
        for _ in 0..32 {
            let said = agent.order(&format!("connect {}", daemon.socket().display()));
            let Ok(index) = said.parse() else { continue };
            let client = agent.client_at(index);
            let sent = client.send_bytes(&hello()) == "sent";
            let is_welcome = matches!(client.receive(), Some((_, Reply::Welcome { .. })));
            welcome += u32::from(sent && is_welcome);
        }
    }
    assert_eq!(welcome, 64);
    // A served user has the other places.
    let clients: Vec<Client> = (0..31).map(|_| alice.connect(&daemon)).collect();
    assert!(!is_welcome(&alice.connect_silently(&daemon)), "all places are taken");
    // Root and the holder of a grant have reserves.
    assert_eq!(root.connect(&daemon).status().sessions, 97);
    let reserved = [bob.connect(&daemon), bob.connect(&daemon)];
    assert!(!is_welcome(&bob.connect_silently(&daemon)), "it has connections");
    assert_eq!(reserved[1].status().sessions, 99);
    assert_eq!(clients.len(), 31);
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

#[test]
fn attack_17_one_user_leaves_priority_levels_to_others() {
    needs_root!();
    let bench = Bench::new("attack-17");
    let config = "[daemon]\naccess = \"off\"\n[daemon.quota]\nlevels_per_user = 20\n[[plugin]]\n\
                  name = \"fp\"\nkind = \"fp\"\ncpus = \"all\"\npriorities = \"20-49\"\n\
                  levels = \"common\"\nrefuse_sharing = true\n";
    let daemon = Daemon::start(&bench, config);
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let (hostile, honest) = (alice.connect(&daemon), bob.connect(&daemon));
    // As many idle grants as there are levels.
    let granted = (1..=30).filter(|&priority| {
        match hostile.ask(&Request::Create(with("fp", ranked(priority)))) {
            Reply::Granted(_) => true,
            Reply::Refused(refusal) => {
                assert_eq!((refusal.code, refusal.limit), (Code::Quota, 20));
                false
            }
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(granted.count(), 20);
    for priority in 41..=50 {
        honest.create(with("fp", ranked(priority)));
    }
}

/// Rounds of the event loop in which a client connects, says hello and asks.
#[derive(Debug)]
struct Rounds {
    median: u64,
    p99: u64,
    failed: u64,
}

impl Rounds {
    /// Measures `count` connections of the agent.
    fn measure(agent: &Agent, daemon: &Daemon, count: u64) -> Rounds {
        let hex = talea_kernel_tests::agent::hex;
        let mut status = [0; 64];
        let length = Request::Status.encode(2, &mut status);
        let (socket, status) = (daemon.socket().display(), hex(&status[..length]));
        let said = agent.order(&format!("probe {socket} {count} {} {status}", hex(&hello())));
        let number = |word: &str| word.parse().unwrap_or_else(|_| panic!("{said}"));
        let numbers: Vec<u64> = said.split(' ').map(number).collect();
        Rounds { median: numbers[0], p99: numbers[1], failed: numbers[3] }
    }

    /// Checks the rounds of an honest client beside `others` users against its quiet ones.
    #[track_caller]
    fn check(&self, what: &str, quiet: &Rounds, others: usize) {
        assert_eq!((quiet.failed, self.failed), (0, 0), "{what}: some were not served: {self:?}");
        assert!(self.median <= 10 * quiet.median, "{what}: {self:?}, quiet {quiet:?}");
        // At worst each other user has a turn before.
        let most = (10 * quiet.p99).max(quiet.p99 + others as u64);
        assert!(self.p99 <= most, "{what}: {self:?}, quiet {quiet:?}");
    }
}

/// Returns the users of all connections, in the order in which the daemon has added them.
fn sessions(root: &Client) -> Vec<u32> {
    let (mut from, mut users) = (0, Vec::new());
    while let Reply::Session(info) = root.ask(&Request::NextSession(from)) {
        users.push(info.uid);
        from = info.session + 1;
    }
    users
}

#[test]
fn attack_12_a_full_backlog_of_one_user_delays_no_other_user() {
    needs_root!();
    let bench = Bench::new("attack-12");
    let quota = "sessions_per_user = 400\n";
    let daemon = Daemon::start(&bench, &serving(&[ALICE, BOB], quota));
    let (alice, bob, root) = (Agent::user(ALICE), Agent::user(BOB), Agent::root());
    let observer = root.connect(&daemon);
    observer.status();
    // While the daemon stands still, one user fills its backlog of 64 connections but for two;
    // another user and root connect last.
    daemon.signal(Signal::STOP);
    let socket = daemon.socket().display().to_string();
    assert_eq!(alice.order(&format!("connect-many {socket} 62")), "62");
    let clients = [bob.connect_silently(&daemon), root.connect_silently(&daemon)];
    daemon.signal(Signal::CONT);
    for client in &clients {
        assert!(is_welcome(client));
    }
    alice.order(&format!("flood-all 1 {}", talea_kernel_tests::agent::hex(&hello())));
    let mut order = Vec::new();
    eventually("all of them are added", || {
        order = sessions(&observer);
        order.len() == 65
    });
    let place = |uid| order.iter().rposition(|&user| user == uid).expect("it is added");
    println!("of 65 connections, root is number {}, the other user {}", place(0), place(BOB));
    assert!(place(BOB) < 48 && place(0) < 48, "{} and {}", place(BOB), place(0));
}

#[test]
fn attack_12_endless_connects_of_one_user_are_held_to_its_rate() {
    needs_root!();
    let bench = Bench::new("attack-12-rate");
    let quota = "requests_per_second = 400\nburst = 100\n";
    let daemon = Daemon::start(&bench, &serving(&[ALICE, BOB], quota));
    let (alice, bob, root) = (Agent::user(ALICE), Agent::user(BOB), Agent::root());
    let observer = root.connect(&daemon);
    let socket = daemon.socket().display().to_string();
    let newest = || {
        let client = root.connect(&daemon);
        let Reply::Session(info) = client.ask(&Request::NextSession(0)) else { panic!("root") };
        let (mut from, mut newest) = (0, info.session);
        while let Reply::Session(info) = observer.ask(&Request::NextSession(from)) {
            (newest, from) = (info.session, info.session + 1);
        }
        client.close();
        newest
    };
    // The hello makes each of them a connection that the daemon has to add.
    let hello = talea_kernel_tests::agent::hex(&hello());
    // Both times together no more than its burst permits.
    let probe = || Rounds::measure(&bob, &daemon, 5);
    // The kernel distributes CPU time between the users; this is about the daemon.
    sched::set(kernel::tid(bob.os_pid()), &Attr::plain(Policy::Fifo(1))).expect("root may");
    let quiet = probe();
    let before = newest();
    alice.begin(&format!("churn {socket} 1000 {hello}"));
    std::thread::sleep(std::time::Duration::from_millis(200));
    let probed = probe();
    let made: u64 = alice.finish().parse().expect("a number");
    let added = newest() - before;
    println!("{made} connects, {added} of them added; another user: {probed:?}, quiet {quiet:?}");
    assert!(made > 1_000, "it was churn: {made}");
    // A burst of 25, 100 a second, the other user's and root's, and twice as much.
    assert!(added < 300, "{added} of {made} connections were added");
    probed.check("connects of another user", &quiet, 1);
}

/// Starts a daemon with this limit of descriptors.
fn daemon_with_descriptors(bench: &Bench, config: &str, limit: u32) -> Daemon {
    let config = bench.write("talead.toml", config);
    let mut daemon = Daemon::unstarted(&config, &bench.path("state"));
    let plain = daemon.command(&[]);
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={limit}:{limit}")).arg("--").arg(plain.get_program());
    command.args(plain.get_args());
    command.env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS").env_remove("JOURNAL_STREAM");
    daemon.run_command(command).unwrap_or_else(|failed| panic!("{failed:?}"));
    daemon
}

#[test]
fn attack_18_without_free_descriptors_root_asks_and_stops() {
    needs_root!();
    let bench = Bench::new("attack-18");
    let mut daemon = daemon_with_descriptors(&bench, &serving(&[ALICE, BOB, HOSTILE], ""), 96);
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let client = alice.connect(&daemon);
    let specs = [5, 6, 7].map(|priority| client.create(with("fp", ranked(priority))).spec);
    let holder = bob.connect(&daemon);
    let owned = Task { owner: Owner::Process, ..with("fp", ranked(6)) };
    holder.create(owned);
    holder.close();
    eventually("it has no connection", || client.status().sessions == 1);
    // One user uses up the descriptors.
    let hostile = Agent::user(HOSTILE);
    let socket = daemon.socket().display().to_string();
    let descriptors = format!("/proc/{}/fd", daemon.pid());
    eventually("at most one descriptor is free, and a connection was rejected", || {
        hostile.order(&format!("connect-many {socket} 10"));
        hostile.order(&format!("flood-all 1 {}", talea_kernel_tests::agent::hex(&hello())));
        // Connections that wait for their turn do not count. One descriptor may be about to become
        // a spare again.
        (0..5).all(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            std::fs::read_dir(&descriptors).is_ok_and(|open| open.count() >= 95)
        }) && daemon.log().contains("connections are rejected")
    });
    // An attach by thread id keeps a descriptor. The refusal says what is missing.
    let attach = |spec| {
        let tid = alice.thread();
        client.ask(&Request::Attach { spec, thread: ThreadRef::OwnTid(tid as u32) })
    };
    let said = specs.map(attach);
    for reply in &said[1..] {
        match reply {
            Reply::Refused(refusal) => {
                assert_eq!((refusal.code, refusal.errno), (Code::Kernel, 24), "{refusal:?}");
            }
            other => panic!("there was at most one descriptor: {other:?}"),
        }
    }
    // A user with grants and without a connection, and root, are served.
    bob.connect(&daemon).status();
    let root = Agent::root();
    let status = root.connect(&daemon).status();
    assert!(status.sessions > 20, "{status:?}");
    assert_eq!(daemon.stop(&["--release"]), (Some(0), String::new()));
    assert!(daemon.wait().success());
}

/// Users that connect, send a file whose close hangs, and leave: neither a limit on their
/// connections nor one on their reads stops them.
#[test]
fn attack_26_root_asks_and_stops_while_files_that_hang_wait_to_be_closed() {
    needs_root!();
    needs!("FUSE", std::path::Path::new("/dev/fuse").exists());
    let bench = Bench::new("attack-26");
    let quota = "sessions = 64\nsessions_per_user = 16\n";
    let config = serving(&[ALICE, BOB, OWNER], quota);
    let mut daemon = daemon_with_descriptors(&bench, &config, 512);
    let (alice, root) = (Agent::user(ALICE), Agent::root());
    let known = alice.connect(&daemon);
    let socket = daemon.socket().display().to_string();
    let hello = talea_kernel_tests::agent::hex(&hello());
    let attack = |name: &str| {
        let file = bench.write(name, "").display().to_string();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--"]).arg(test_clients(&bench));
        let attacker = Agent::start(command, 0);
        for uid in [BOB, OWNER, HOSTILE] {
            let role = format!("start {uid} leaving {socket} {uid} {hello} {file}");
            assert_eq!(attacker.order(&role), "started");
        }
        attacker
    };
    let mode = || std::fs::metadata(daemon.socket()).expect("a socket").permissions().mode();
    let before = mode();
    let attacker = attack("hung");
    eventually("only root can connect", || mode() & 0o022 == 0);
    // Each connect would have to wait behind those of the attackers.
    for _ in 0..30 {
        let client = root.connect(&daemon);
        client.status();
        client.close();
        known.status();
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // With its program the file system ends, and with it the attack.
    drop(attacker);
    let bob = Agent::user(BOB);
    eventually("a new client is served", || {
        let said = bob.order(&format!("connect {socket}"));
        said.parse().is_ok_and(|index| is_welcome(&bob.client_at(index)))
    });
    assert_eq!(mode(), before);
    let attacker = attack("hung-again");
    eventually("only root can connect", || mode() & 0o022 == 0);
    assert_eq!(daemon.stop(&["--release"]), (Some(0), String::new()));
    // The process ends when its files are closed.
    drop(attacker);
    assert!(daemon.wait().success());
}

/// Lookups of user names that do not end, because the daemon's `/etc/passwd` is a pipe without a
/// writer.
#[test]
fn attack_13_a_reload_that_waits_for_the_user_database_delays_no_answer() {
    needs_root!();
    let bench = Bench::new("reload-waits");
    let rule = "[[rule]]\ndomain = \"root\"\nallow_unbounded = true\n";
    let config = format!("{}{rule}", serving(&[ALICE], ""));
    let daemon = daemon_with_subuid(&bench, &config, "");
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let pipe = bench.path("passwd");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o644))
        .expect("a pipe");
    let mounts = format!("--mount=/proc/{}/ns/mnt", daemon.pid());
    let mount = Command::new("nsenter")
        .args([&mounts, "mount", "--bind"])
        .args([&pipe, std::path::Path::new("/etc/passwd")])
        .status();
    assert!(mount.expect("nsenter").success());
    daemon.reload(&config);
    let reading = format!("/proc/{}/task", daemon.pid());
    eventually("a thread reads the configuration", || {
        let tasks = std::fs::read_dir(&reading).expect("a living daemon").flatten();
        let mut names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")));
        names.any(|name| name.is_ok_and(|name| name == "talea-reload\n"))
    });
    for _ in 0..10 {
        client.status();
    }
    assert!(!daemon.log().contains("was reloaded"), "{}", daemon.log());
    // With an answer, the reload ends. Each lookup opens the file.
    let users = std::fs::read("/etc/passwd").expect("users");
    eventually("the configuration is read", || {
        // Without a reader the open fails.
        let writer = std::fs::OpenOptions::new()
            .write(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open(&pipe);
        if let Ok(mut writer) = writer {
            let _ = writer.write_all(&users);
        }
        daemon.log().contains("was reloaded")
    });
    client.create(with("fp", ranked(5)));
}

/// Hostile users beside an honest client and root: eight users that no rule serves with 128 silent
/// connections each, 32 subordinate users that a rule serves, and four users that connect
/// endlessly.
///
/// The kernel distributes CPU time, and so many processes delay all threads. The daemon and its
/// clients therefore precede the others, each on a CPU of its own. `TALEA_MEASURE` sets the number
/// of connections; the figures are printed.
#[test]
fn attack_4_5_12_all_of_them_at_once_lock_out_neither_a_client_nor_root() {
    needs_root!();
    needs!("/etc/subuid", std::fs::metadata("/etc/subuid").is_ok());
    let bench = Bench::new("attack-4-5-12");
    let churners: Vec<u32> = (0..4).map(|n| HOSTILE + 100 + n).collect();
    let served: Vec<u32> = [BOB, OWNER].into_iter().chain(churners.iter().copied()).collect();
    let subordinates: Vec<u32> = (0..32).map(|n| SUBORDINATE + n).collect();
    let served: Vec<u32> = served.into_iter().chain(subordinates.iter().copied()).collect();
    let subuid = format!("{OWNER}:{SUBORDINATE}:65536\n");
    let daemon = daemon_with_subuid(&bench, &serving(&served, ""), &subuid);
    let (bob, root) = (Agent::user(BOB), Agent::root());
    let precede = |pid: i32, cpu: u32| {
        let tid = kernel::tid(pid);
        sched::set_affinity(tid, &CpuSet::single(cpu)).expect("our process");
        sched::set(tid, &Attr::plain(Policy::Fifo(1))).expect("our process");
    };
    let cpus: Vec<u32> = kernel::cpus().iter().collect();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    precede(daemon.pid(), first);
    precede(bob.os_pid(), last);
    precede(root.os_pid(), last);
    let set = std::env::var("TALEA_MEASURE").ok().and_then(|text| text.parse::<u64>().ok());
    let count = set.unwrap_or(50);
    let socket = daemon.socket().display().to_string();
    let hex = talea_kernel_tests::agent::hex;
    let measure = |when: &str| {
        let [of_client, of_root] = [&bob, &root].map(|agent| {
            // A stall of the computer in one of them delays a client for many rounds.
            let measured = [(); 3].map(|()| Rounds::measure(agent, &daemon, count));
            measured.into_iter().min_by_key(|rounds| rounds.p99).expect("three")
        });
        println!("{when}: connects of a client {of_client:?}, of root {of_root:?}");
        [("connects of a client", of_client), ("of root", of_root)]
    };
    let quiet = measure("quiet");
    let ms = 800 + count * 40;
    let silent: Vec<Agent> = (0..8).map(|n| Agent::user(HOSTILE + n)).collect();
    let others: Vec<Agent> = subordinates.iter().map(|&uid| Agent::user(uid)).collect();
    let churn: Vec<Agent> = churners.iter().map(|&uid| Agent::user(uid)).collect();
    for agent in &silent {
        agent.begin(&format!("hold {socket} 128 {ms}"));
    }
    for (number, agent) in others.iter().enumerate() {
        if number % 2 == 0 {
            agent.begin(&format!("hold {socket} 32 {ms}"));
        } else {
            agent.begin(&format!("churn {socket} {ms} {}", hex(&hello())));
        }
    }
    for agent in &churn {
        agent.begin(&format!("churn {socket} {ms} {}", hex(&hello())));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    let busy = measure("beside 44 hostile users");
    let made = |agents: &[Agent]| -> u64 {
        agents.iter().map(|agent| agent.finish().parse::<u64>().expect("a number")).sum()
    };
    println!(
        "connections of silent users {}, of subordinate users {}, of others {}",
        made(&silent),
        made(&others),
        made(&churn)
    );
    for ((what, busy), (_, quiet)) in busy.iter().zip(&quiet) {
        busy.check(what, quiet, silent.len() + others.len() + churn.len());
    }
}
