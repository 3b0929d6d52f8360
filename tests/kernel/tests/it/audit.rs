//! Audit trail of a live daemon: complete under floods, bounded, and never a reason to wait.

use crate::tasks::{periodic, with};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Client, Daemon, config, eventually, kernel, needs, needs_root,
};
use talea_proto::{Reply, Request, SpecId};

/// A limit on requests that no test reaches.
const UNLIMITED: &str = "[daemon]\naccess = \"off\"\n[daemon.quota]\n\
                         requests_per_second = 1000000\nburst = 1000000\n";

fn unlimited() -> String {
    format!("{UNLIMITED}{}", config::PLUGINS)
}

/// The files of the trail.
struct Trail(PathBuf);

impl Trail {
    fn of(bench: &Bench) -> Trail {
        Trail(bench.path("state").join("audit"))
    }

    /// Returns the complete lines of each stream, and the number of damaged lines.
    fn read(&self) -> (BTreeMap<String, Vec<String>>, usize) {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        paths.sort();
        let (mut streams, mut damaged) = (BTreeMap::<String, Vec<String>>::new(), 0);
        for path in paths {
            let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8");
            let stream = name.split('.').next().expect("a name").to_owned();
            // The daemon may remove the file meanwhile.
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            for line in text.split('\n').filter(|line| !line.is_empty()) {
                if line.starts_with("{\"seq\":") && line.ends_with('}') {
                    streams.entry(stream.clone()).or_default().push(line.to_owned());
                } else {
                    damaged += 1;
                }
            }
        }
        (streams, damaged)
    }

    fn lines(&self, stream: &str) -> Vec<String> {
        self.read().0.remove(stream).unwrap_or_default()
    }

    /// Returns the number of events of these lines.
    fn sum(&self, stream: &str, event: &str) -> u64 {
        let wanted = format!("\"event\":\"{event}\"");
        let lines = self.lines(stream);
        lines.iter().filter(|line| line.contains(&wanted)).map(|line| count(line)).sum()
    }

    /// Returns the space of all files on disk, in bytes.
    fn bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.blocks() * 512).sum()
    }
}

/// Returns a number of a line.
fn number(line: &str, key: &str) -> Option<u64> {
    let (_, rest) = line.split_once(&format!("\"{key}\":"))?;
    rest.split([',', '}']).next()?.parse().ok()
}

fn count(line: &str) -> u64 {
    number(line, "count").unwrap_or(1)
}

fn stream(uid: u32) -> String {
    format!("uid-{uid}")
}

/// Sends a request on every connection of the agent and waits for the replies, for `time`. Returns
/// the number of replies.
fn ask_all(agent: &Agent, client: &Client, request: &Request, time: Duration) -> u64 {
    let message = client.encode(request);
    let answered = agent.order(&format!("ask-all {} {message}", time.as_millis()));
    answered.parse().unwrap_or_else(|_| panic!("{answered}"))
}

#[test]
fn audit_a_flood_leaves_a_complete_bounded_trail_and_all_records_of_others() {
    needs_root!();
    let bench = Bench::new("audit-flood");
    let daemon = Daemon::start(&bench, &unlimited());
    let trail = Trail::of(&bench);
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let honest = bob.connect(&daemon);
    let tid = bob.thread();
    let granted = honest.create(with("rm", periodic(10)));
    honest.attach(granted.spec, tid);
    let clients: Vec<Client> = (0..32).map(|_| alice.connect(&daemon)).collect();
    let time = Duration::from_secs(2);
    let refused = ask_all(&alice, &clients[0], &Request::Query(SpecId(1 << 40)), time);
    println!("{refused} refusals, {} per second", refused / time.as_secs());
    assert!(refused > 1_000, "it was a flood: {refused}");
    // Specs until the quota, then refusals.
    let create = Request::Create(with("fp", crate::tasks::ranked(5)));
    let created = ask_all(&alice, &clients[0], &create, time);
    let held = honest.status().specs - 1;
    println!("{created} requests to create, {} per second", created / time.as_secs());
    // While the flood continues, the other user ends the grant.
    honest.done(&Request::Release(granted.spec));
    let alices = stream(ALICE);
    eventually("every refusal is on the trail", || {
        let (refusals, grants) = (trail.sum(&alices, "refusal"), trail.sum(&alices, "grant"));
        (refusals, grants) == (refused + created - u64::from(held), u64::from(held))
    });
    drop(clients);
    alice.order("close-all");
    eventually("every end is on the trail", || trail.sum(&alices, "release") == u64::from(held));
    let events: Vec<String> = trail.lines(&stream(BOB));
    let of_bob = |event: &str| {
        let wanted = format!("\"event\":\"{event}\"");
        let mut found = events.iter().filter(|line| line.contains(&wanted));
        let line = found.next().unwrap_or_else(|| panic!("no {event} in {events:#?}"));
        assert_eq!(found.next(), None, "one {event}");
        assert_eq!(number(line, "pid"), Some(bob.os_pid() as u64), "{line}");
        assert!(number(line, "pid_start") > Some(0), "{line}");
        line
    };
    of_bob("grant");
    of_bob("release");
    for event in ["attach", "detach"] {
        let line = of_bob(event);
        assert_eq!(number(line, "tid"), Some(tid as u64), "{line}");
        let identity = number(line, "tid_start").or(number(line, "tid_inode"));
        assert!(identity > Some(0), "{line}");
    }
    let (streams, damaged) = trail.read();
    assert_eq!(damaged, 0);
    for (name, lines) in &streams {
        let numbers: Vec<u64> = lines.iter().filter_map(|line| number(line, "seq")).collect();
        let expected: Vec<u64> = (1..=lines.len() as u64).collect();
        assert_eq!(numbers, expected, "{name} has no gap");
    }
    assert!(!streams["daemon"].iter().any(|line| line.contains("\"lost\"")), "nothing is lost");
    // At most 128 single records and 128 counts in each second.
    let most = 256 * 500 * 20;
    assert!(trail.bytes() <= most, "{} bytes", trail.bytes());
    println!("{} bytes on disk", trail.bytes());
}

#[test]
fn audit_a_killed_daemon_leaves_a_readable_trail_and_its_end_is_marked() {
    needs_root!();
    let bench = Bench::new("audit-kill");
    let mut daemon = Daemon::start(&bench, &unlimited());
    let trail = Trail::of(&bench);
    let first_of_bob = {
        let bob = Agent::user(BOB);
        let client = bob.connect(&daemon);
        client.create(with("rm", periodic(10)));
        eventually("the grant is on the trail", || trail.lines(&stream(BOB)).len() == 1);
        trail.lines(&stream(BOB)).remove(0)
    };
    let rounds = 5;
    for round in 0..rounds {
        let alice = Agent::user(ALICE);
        let clients: Vec<Client> = (0..8).map(|_| alice.connect(&daemon)).collect();
        let message = clients[0].encode(&Request::Create(with("fp", crate::tasks::ranked(5))));
        alice.begin(&format!("ask-all 5000 {message}"));
        let before = trail.lines(&stream(ALICE)).len();
        eventually("the flood is on the trail", || trail.lines(&stream(ALICE)).len() > before + 2);
        // At any time within the recorder's period.
        std::thread::sleep(Duration::from_millis(23 * round as u64));
        daemon.kill();
        alice.kill();
        daemon.restart();
    }
    let is_start = |line: &String| line.contains("\"event\":\"start\"");
    let starts = || trail.lines("daemon").into_iter().filter(is_start).collect::<Vec<String>>();
    eventually("each start is on the trail", || starts().len() == rounds + 1);
    let (streams, damaged) = trail.read();
    assert!(damaged <= rounds, "{damaged} lines");
    assert_eq!(streams[&stream(BOB)][0], first_of_bob);
    for (name, lines) in &streams {
        let numbers: Vec<u64> = lines.iter().filter_map(|line| number(line, "seq")).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{name}: {numbers:?}");
    }
    let is_marked = |line: &String| line.contains("\"cause\":\"no-stop-recorded\"");
    let marks: Vec<bool> = starts().iter().map(is_marked).collect();
    assert_eq!(marks, [false, true, true, true, true, true], "{:#?}", starts());
    // An orderly stop is no mark.
    daemon.terminate();
    daemon.restart();
    eventually("the start is on the trail", || starts().len() == rounds + 2);
    let own = trail.lines("daemon");
    assert!(own[own.len() - 2].contains("\"event\":\"stop\""), "{own:#?}");
    assert!(!is_marked(&own[own.len() - 1]), "{own:#?}");
}

/// A small file system for the trail, until it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: &Path) -> Option<SmallDisk> {
        std::fs::create_dir_all(path).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs"]).arg(path);
        mount.status().is_ok_and(|status| status.success()).then(|| SmallDisk(path.to_owned()))
    }

    fn fill(&self) {
        let mut size = 64 << 10;
        let filler = self.0.join("filler");
        while std::fs::write(&filler, vec![1; size]).is_err() {
            size -= 4_096;
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("filler")).expect("the filler");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a daemon that has not ended keeps the directory open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn audit_a_full_disk_delays_no_request_and_the_number_of_lost_events_is_recorded() {
    needs_root!();
    let bench = Bench::new("audit-full");
    let trail = Trail::of(&bench);
    let disk = SmallDisk::mount(&trail.0);
    needs!("a file system of its own", disk.is_some());
    let disk = disk.expect("it was just checked");
    let daemon = Daemon::start(&bench, &unlimited());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    client.refused(&Request::Query(SpecId(1 << 40)));
    let alices = stream(ALICE);
    eventually("the first refusal is on the trail", || trail.sum(&alices, "refusal") == 1);
    disk.fill();
    let tid = alice.thread();
    let rounds = 300;
    for _ in 0..rounds {
        let granted = client.create(with("rm", periodic(10)));
        client.attach(granted.spec, tid);
        assert!(kernel::policy(tid).is_realtime());
        client.done(&Request::Release(granted.spec));
    }
    daemon.wait_for_line("audit trail").expect("a line about the trail");
    let events = |trail: &Trail| -> u64 {
        ["grant", "attach", "detach", "release", "refusal"]
            .map(|event| trail.sum(&alices, event))
            .iter()
            .sum()
    };
    let caused = 1 + 4 * rounds;
    std::thread::sleep(Duration::from_millis(1_500));
    disk.free();
    eventually("every event is recorded or counted as lost", || {
        let lost = trail.sum("daemon", "lost");
        lost > 0 && events(&trail) + lost == caused
    });
    // It goes on.
    client.refused(&Request::Query(SpecId(1 << 40)));
    eventually("a new refusal is on the trail", || trail.sum(&alices, "refusal") == 2);
}

#[test]
fn audit_overruns_and_demotions_are_recorded_with_their_cause() {
    needs_root!();
    let bench = Bench::new("audit-overrun");
    let demoting =
        unlimited().replace("kind = \"rm\"\n", "kind = \"rm\"\non_overrun = \"demote\"\n");
    let daemon = Daemon::start(&bench, &demoting);
    needs!("limits of FIFO threads", talea_os::task_clock::check_permission().is_ok());
    let trail = Trail::of(&bench);
    let (alice, root) = (Agent::user(ALICE), Agent::root());
    let (client, administrator) = (alice.connect(&daemon), root.connect(&daemon));
    let tid = alice.thread();
    let granted = client.create(with("rm", crate::tasks::reserved(100, 5_000)));
    client.attach(granted.spec, tid);
    alice.order(&format!("work {tid} 60"));
    let alices = stream(ALICE);
    eventually("the demotion is on the trail", || trail.sum(&alices, "demotion") == 1);
    let lines = trail.lines(&alices);
    let find = |text: &str| lines.iter().find(|line| line.contains(text));
    let overrun = find("\"event\":\"overrun\"").unwrap_or_else(|| panic!("{lines:#?}"));
    assert_eq!(number(overrun, "budget_ns"), Some(5_000_000), "{overrun}");
    assert_eq!(number(overrun, "period_ns"), Some(100_000_000), "{overrun}");
    assert!(number(overrun, "consumed_ns") >= Some(4_900_000), "{overrun}");
    assert_eq!(number(overrun, "tid"), Some(tid as u64), "{overrun}");
    assert!(find("\"cause\":\"overrun\"").is_some(), "{lines:#?}");
    // An administrator ends the grant.
    client.attach(granted.spec, tid);
    administrator.done(&Request::Release(granted.spec));
    eventually("the release is on the trail", || trail.sum(&alices, "release") == 1);
    let lines = trail.lines(&alices);
    let by_root = lines.iter().filter(|line| {
        line.contains("\"cause\":\"administrator\"") && number(line, "by") == Some(0)
    });
    assert_eq!(by_root.count(), 2, "a demotion and a release: {lines:#?}");
}

/// Returns the CPU time of all threads of a process in nanoseconds.
fn cpu_time(pid: i32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let of_task = |path: PathBuf| -> u64 {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
    };
    tasks.flatten().map(|task| of_task(task.path())).sum()
}

/// Prints what a request costs with and without the trail, in turns. `TALEA_MEASURE` sets the
/// number of rounds; `docs/manual/audit.md` contains the results.
#[test]
fn audit_the_cost_of_a_record_is_measured() {
    needs_root!();
    let rounds = std::env::var("TALEA_MEASURE").ok().and_then(|text| text.parse().ok());
    let (rounds, time) = (rounds.unwrap_or(1), Duration::from_millis(500));
    let mut costs: BTreeMap<(&str, bool), Vec<u64>> = BTreeMap::new();
    for round in 0..2 * rounds {
        let is_recorded = round % 2 == 0;
        let bench = Bench::new("audit-cost");
        let size = if is_recorded { "audit_mib = 64\n" } else { "audit_mib = 0\n" };
        let text = unlimited().replacen("[daemon]\n", &format!("[daemon]\n{size}"), 1);
        let daemon = Daemon::start(&bench, &text);
        let alice = Agent::user(ALICE);
        let clients: Vec<Client> = (0..8).map(|_| alice.connect(&daemon)).collect();
        let granted = clients[0].create(with("rm", periodic(10)));
        for (name, request) in [
            ("status", Request::Status),
            ("refusal", Request::Query(SpecId(1 << 40))),
            ("change", Request::Change { spec: granted.spec, task: with("rm", periodic(20)) }),
        ] {
            let clients = if name == "change" { &clients[..1] } else { &clients[..] };
            let before = cpu_time(daemon.pid());
            let begun = Instant::now();
            let answered = if clients.len() == 1 {
                let message = clients[0].encode(&request);
                let mut answered = 0;
                while begun.elapsed() < time {
                    alice.order(&format!("response-times 0 1000 0 {message}"));
                    answered += 1_000;
                }
                answered
            } else {
                ask_all(&alice, &clients[0], &request, time)
            };
            // The recorder ends its work.
            std::thread::sleep(Duration::from_millis(1_300));
            let cost = (cpu_time(daemon.pid()) - before) / answered.max(1);
            costs.entry((name, is_recorded)).or_default().push(cost);
        }
        assert!(matches!(clients[0].ask(&Request::Status), Reply::Status(_)));
        daemon.signal(Signal::HUP);
    }
    for ((name, is_recorded), mut costs) in costs {
        costs.sort_unstable();
        let what = if is_recorded { "with" } else { "without" };
        println!(
            "{name} {what} the trail: {} ns of CPU time, median of {costs:?}",
            costs[costs.len() / 2]
        );
    }
}
