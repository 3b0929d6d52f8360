//! Full disks, killed and hung daemons, and repairs.
//!
//! Numbers in the names are those of the findings of the review: 7 repairs, 8 a full disk, 15
//! clients that do not claim, 19 requests during a restart, 25 a hung daemon.

use crate::tasks::{owned_by, periodic, ranked, with};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use talea_client::{Grant, Spec};
use talea_kernel_tests::{ALICE, Agent, Bench, Daemon, config, eventually, kernel, needs_root};
use talea_proto::message::Token;
use talea_proto::{Code, Owner, Reply, Request};

/// A small file system in memory; unmounted at the end.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    pub(crate) fn mount(at: PathBuf, size: &str) -> SmallDisk {
        std::fs::create_dir_all(&at).expect("a folder");
        let disk = SmallDisk(at);
        disk.run(&["-o", &format!("size={size},mode=0755"), "-t", "tmpfs", "none"]);
        disk
    }

    /// Changes the size of the file system.
    fn resize(&self, size: &str) {
        self.run(&["-o", &format!("remount,size={size}")]);
    }

    fn run(&self, options: &[&str]) {
        let done = Command::new("mount").args(options).arg(&self.0).status().expect("mount");
        assert!(done.success(), "mount {options:?}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn attack_8_a_full_disk_leaves_no_thread_without_an_owner() {
    needs_root!();
    let bench = Bench::new("attack-8");
    let disk = SmallDisk::mount(bench.path("state"), "160k");
    let mut daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let mut threads = Vec::new();
    let refusal = loop {
        assert!(threads.len() < 1000, "the disk is not full");
        match client.ask(&Request::Create(owned_by(Owner::Process, with("rr", ranked(5))))) {
            Reply::Granted(granted) => {
                let tid = alice.thread();
                client.attach(granted.spec, tid);
                threads.push((granted.spec, tid));
            }
            Reply::Refused(refusal) => break refusal,
            other => panic!("{other:?}"),
        }
    };
    let enospc = rustix::io::Errno::NOSPC.raw_os_error();
    assert_eq!((refusal.code, refusal.errno), (Code::NotRecorded, enospc), "{refusal}");
    assert!(daemon.log().contains("the state file cannot grow"), "{}", daemon.log());
    let refusal = client.refused(&Request::CreateGroup(vec![periodic(10); 2]));
    assert_eq!(refusal.code, Code::NotRecorded);
    // Granted specs are served as before: their records have their blocks.
    let (first, tid) = threads[0];
    let change = Request::Change { spec: first, task: with("fp", ranked(3)) };
    assert!(matches!(client.ask(&change), Reply::Granted(_)));
    client.done(&Request::Detach(first));
    client.attach(first, tid);
    let rounds = if std::env::var_os("TALEA_SOAK").is_some() { 100 } else { 4 };
    for round in 1..=rounds {
        daemon.kill();
        daemon.restart();
        let fresh = alice.connect(&daemon);
        let real_time = threads.iter().filter(|(_, tid)| kernel::policy(*tid).is_realtime());
        assert_eq!(real_time.count(), threads.len(), "round {round}");
        for (spec, tid) in &threads {
            assert_eq!(fresh.query(*spec).tid, Some(*tid as u32), "round {round}");
        }
    }
    eprintln!("{} grants on a full disk, {rounds} kills: 0 threads without owner", threads.len());
    // With room, the next request is granted.
    disk.resize("4m");
    let fresh = alice.connect(&daemon);
    fresh.create(with("rr", ranked(5)));
    drop(daemon);
    assert!(threads.iter().all(|(_, tid)| kernel::is_ordinary(*tid)));
}

/// A client that uses the library.
fn library(socket: &Path) -> talea_client::Client {
    let builder = talea_client::Client::builder().path(socket).timeout(Duration::from_secs(20));
    builder.connect().expect("a daemon")
}

/// Returns a small task for `rm`.
fn small() -> Spec {
    let builder = Spec::builder().period(Duration::from_millis(100)).plugin("rm");
    builder.runtime(Duration::from_micros(100)).build().expect("a task")
}

fn create(client: &talea_client::Client) -> Grant {
    client.create(&small()).expect("connected").expect("granted")
}

#[test]
fn attack_15_a_client_that_does_not_claim_leaks_nothing_and_an_idle_one_loses_nothing() {
    needs_root!();
    let bench = Bench::new("attack-15");
    let mut daemon = Daemon::start(&bench, &config::open());
    let (alice, absent) = (Agent::user(ALICE), Agent::user(ALICE));
    let client = alice.connect(&daemon);
    let mut leaked = Vec::new();
    for round in 0..20 {
        let granted = client.create(with("fp", ranked(5)));
        if round % 2 == 0 {
            let tid = alice.thread();
            client.attach(granted.spec, tid);
            leaked.push(tid);
        }
    }
    let kept = absent.thread();
    let line = absent.connect(&daemon);
    let granted = line.create(with("fp", ranked(5)));
    line.attach(granted.spec, kept);
    // Two clients of this process: one asks, one only runs.
    let (asking, running) = (library(daemon.socket()), library(daemon.socket()));
    let first = create(&asking);
    // Without a budget, whose end would show as another policy.
    let unlimited = Spec::builder().period(Duration::from_millis(100)).plugin("rm").build();
    let second = running.create(&unlimited.expect("a task")).expect("connected").expect("granted");
    second.attach_current().expect("connected").expect("attached");
    let own = rustix::thread::gettid().as_raw_pid();
    daemon.kill();
    daemon.restart();
    let fresh = alice.connect(&daemon);
    assert_eq!(fresh.status().specs, 23, "adopted");
    first.info().expect("reconnected").expect("claimed");
    let begun = Instant::now();
    eventually("what is not claimed ends", || fresh.status().specs == 3);
    assert!(begun.elapsed() > Duration::from_secs(3), "a client has time for its claims");
    assert!(leaked.iter().all(|&tid| kernel::is_ordinary(tid)));
    assert!(kernel::policy(kept).is_realtime() && kernel::policy(own).is_realtime());
    second.detach().expect("connected").expect("it was not lost");
    assert!(!second.is_lost());
}

/// Two copies of the library in one process, for example a preloaded one and the program's own: one
/// asks after a restart, the other one has nothing to ask for 8 s.
#[test]
fn attack_15_two_libraries_of_a_process_keep_their_idle_grants() {
    needs_root!();
    let bench = Bench::new("attack-15-libraries");
    let mut daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let connect = |daemon: &Daemon, library, secret| {
        let client = alice.connect(daemon);
        client.done(&Request::Seed(Token::new(library, secret)));
        client
    };
    let clients = [(1, 11), (1, 12), (2, 21)].map(|(library, secret)| {
        let client = connect(&daemon, library, secret);
        let granted = client.create(with("fp", ranked(5)));
        (client, granted)
    });
    let [asking, dropped, idle] = &clients;
    daemon.kill();
    daemon.restart();
    let begun = Instant::now();
    let fresh = connect(&daemon, 1, 13);
    assert!(matches!(fresh.claim(asking.1.spec, asking.1.token), Reply::Granted(_)));
    // What the library does not claim ends, so the time has begun.
    let is_there = |spec| matches!(fresh.ask(&Request::Query(spec)), Reply::Spec(_));
    eventually("what its library does not claim ends", || !is_there(dropped.1.spec));
    std::thread::sleep(Duration::from_secs(8).saturating_sub(begun.elapsed()));
    assert!(is_there(asking.1.spec) && is_there(idle.1.spec));
    let late = connect(&daemon, 2, 22);
    assert!(matches!(late.claim(idle.1.spec, idle.1.token), Reply::Granted(_)));
}

/// Requests of one thread: when they were sent, and how long they took.
type Calls = Vec<(&'static str, Instant, Duration)>;

/// Makes requests through the library until `stop`; every one must succeed.
fn load(socket: &Path, stop: &AtomicBool, failed: &AtomicU32) -> Calls {
    let client = library(socket);
    let mut calls = Calls::new();
    let mut call = |what: &'static str, ask: &mut dyn FnMut() -> Result<(), String>| {
        let sent = Instant::now();
        if let Err(why) = ask() {
            failed.fetch_add(1, Ordering::Relaxed);
            eprintln!("{what} failed: {why}");
        }
        calls.push((what, sent, sent.elapsed()));
    };
    fn text<T>(outcome: talea_client::Outcome<T>) -> Result<T, String> {
        outcome.map_err(|failure| failure.to_string())?.map_err(|refusal| refusal.to_string())
    }
    let kept = create(&client);
    while !stop.load(Ordering::Relaxed) {
        let mut grant = None;
        call("create", &mut || text(client.create(&small())).map(|new| grant = Some(new)));
        let Some(grant) = grant else { continue };
        call("attach", &mut || text(grant.attach_current()));
        call("status", &mut || text(client.status()).map(drop));
        call("change", &mut || text(grant.change(&small())));
        call("detach", &mut || text(grant.detach()));
        let mut group = Vec::new();
        let mut two = || text(client.create_group(&[small(), small()])).map(|new| group = new);
        call("create group", &mut two);
        call("list", &mut || text(client.list()).map(drop));
        for grant in group.into_iter().chain([grant]) {
            let mut grant = Some(grant);
            call("release", &mut || text(grant.take().expect("once").release()));
        }
        call("query", &mut || text(kept.info()).map(drop));
        // A new connection, as a program that starts now.
        call("connect", &mut || {
            let builder = talea_client::Client::builder().path(socket);
            builder.connect().map(drop).map_err(|failure| failure.to_string())
        });
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!kept.is_lost());
    calls
}

/// Returns the middle and the end of a distribution, as text.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let of = |part: usize| times.get(times.len() * part / 100).or(times.last());
    format!("p50 {:?}, p99 {:?}, max {:?}", of(50), of(99), times.last()).replace("Some", "")
}

#[test]
fn attack_19_no_request_through_the_library_fails_while_daemons_are_killed() {
    needs_root!();
    let bench = Bench::new("attack-19");
    let mut daemon = Daemon::start(&bench, &config::open());
    let kills = if std::env::var_os("TALEA_SOAK").is_some() { 1000 } else { 30 };
    let (stop, failed) = (AtomicBool::new(false), AtomicU32::new(0));
    let socket = daemon.socket().to_owned();
    let all = Mutex::new(Calls::new());
    let mut outages: Vec<(Instant, Instant)> = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let calls = load(&socket, &stop, &failed);
                all.lock().expect("calls").extend(calls);
            });
        }
        for kill in 0..kills {
            std::thread::sleep(Duration::from_millis(10 + kill * 7 % 23));
            let begun = Instant::now();
            daemon.kill();
            daemon.restart();
            outages.push((begun, Instant::now()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let calls = all.into_inner().expect("calls");
    let mut met: Vec<Duration> = Vec::new();
    for (_, sent, took) in &calls {
        let after = outages.partition_point(|(_, ready)| ready < sent);
        if outages.get(after).is_some_and(|(begun, _)| *begun <= *sent + *took) {
            met.push(*took);
        }
    }
    eprintln!(
        "{kills} kills, {} requests, {} failed; {} that met a kill: {}; from a kill to the next \
         daemon: {}",
        calls.len(),
        failed.load(Ordering::Relaxed),
        met.len(),
        spread(met.clone()),
        spread(outages.iter().map(|(begun, ready)| *ready - *begun).collect())
    );
    assert_eq!(failed.load(Ordering::Relaxed), 0);
    assert!(met.len() >= kills as usize, "the kills met nothing");
    let root = Agent::root();
    let watcher = root.connect(&daemon);
    eventually("nothing is leaked", || watcher.status().specs == 0);
}

/// Receives the messages of a daemon to its service manager.
struct Manager(UnixDatagram);

impl Manager {
    /// Returns the next message; `None` if none comes within `patience`.
    fn next(&self, patience: Duration) -> Option<String> {
        let mut bytes = [0; 256];
        self.0.set_read_timeout(Some(patience)).expect("a time-out");
        let length = self.0.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).trim().to_owned())
    }
}

#[test]
fn attack_25_a_daemon_that_hangs_gives_no_sign_of_life_and_can_be_replaced() {
    const INTERVAL: Duration = Duration::from_millis(200);
    const PATIENCE: Duration = Duration::from_secs(10);
    needs_root!();
    let bench = Bench::new("attack-25");
    let path = bench.path("notify");
    let manager = Manager(UnixDatagram::bind(&path).expect("a socket"));
    let config = bench.write("talead.toml", &config::open());
    let mut daemon = Daemon::unstarted(&config, &bench.path("state"));
    let start = |daemon: &mut Daemon, interval: Option<Duration>| {
        let mut command = daemon.command(&[]);
        command.env("NOTIFY_SOCKET", &path).env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
        if let Some(interval) = interval {
            command.env("WATCHDOG_USEC", interval.as_micros().to_string());
        }
        daemon.run_command(command).unwrap_or_else(|failed| panic!("no daemon: {failed:?}"));
        assert_eq!(manager.next(PATIENCE).as_deref(), Some("READY=1"));
    };
    start(&mut daemon, Some(INTERVAL));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let tid = alice.thread();
    let granted = client.create(owned_by(Owner::Process, with("fp", ranked(5))));
    client.attach(granted.spec, tid);
    for _ in 0..3 {
        assert_eq!(manager.next(PATIENCE).as_deref(), Some("WATCHDOG=1"));
    }
    daemon.signal(Signal::STOP);
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid()));
    eventually("it is stopped", || state().is_ok_and(|stat| stat.contains(") T ")));
    while manager.next(Duration::from_millis(1)).is_some() {}
    assert_eq!(manager.next(INTERVAL * 3), None, "a hung daemon has sent a sign of life");
    // The manager replaces it.
    daemon.kill();
    start(&mut daemon, None);
    assert!(kernel::policy(tid).is_realtime());
    assert_eq!(alice.connect(&daemon).query(granted.spec).tid, Some(tid as u32));
    assert_eq!(manager.next(INTERVAL * 3), None, "not asked for");
}
