//! `talea log` beside a live daemon: root sees all records, a user the own ones.

use crate::live::Talea;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use talea_kernel_tests::{ALICE, Agent, BOB, Bench, Daemon, config, eventually, needs_root};
use talea_proto::message::Name;
use talea_proto::{Request, SpecId, Task};

/// A user without a grant.
const CAROL: u32 = 60_003;

fn directory(bench: &Bench) -> PathBuf {
    bench.path("state").join("audit")
}

fn urgent() -> Task {
    let params = talea_core::Params {
        priority: Some(talea_core::Priority(5)),
        ..talea_core::Params::default()
    };
    Task { params, plugin: Name::new("fp"), ..Task::default() }
}

#[test]
fn audit_root_sees_all_records_and_a_user_the_own_ones() {
    needs_root!();
    let bench = Bench::new("cli-log");
    let rule = format!("[[rule]]\ndomain = \"#{ALICE}\"\nallow_unbounded = true\n");
    let rule = format!("{rule}[[rule]]\ndomain = \"#{BOB}\"\nallow_unbounded = true\n");
    let daemon = Daemon::start(&bench, &config::with_rules(&rule));
    let talea = Talea::of(&bench, &daemon);
    let directory = directory(&bench);
    let at = directory.to_str().expect("UTF-8");
    let (alice, bob, carol) = (Agent::user(ALICE), Agent::user(BOB), Agent::user(CAROL));
    let (of_alice, of_bob) = (alice.connect(&daemon), bob.connect(&daemon));
    let of_carol = carol.connect(&daemon);
    let tid = alice.thread();
    let granted = of_alice.create(urgent());
    of_alice.attach(granted.spec, tid);
    of_bob.refused(&Request::Attach { spec: SpecId(77), thread: talea_proto::ThreadRef::Tid(1) });
    of_carol.refused(&Request::Create(urgent()));
    let json = |uid: u32, more: &[&str]| -> Vec<serde_json::Value> {
        let arguments = [&["log", "--json", "--dir", at], more].concat();
        let ended = if uid == 0 { talea.run(&arguments) } else { talea.run_as(uid, &arguments) };
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{}", ended.out);
        let parse = |line| serde_json::from_str(line).expect("a JSON object");
        ended.out.lines().map(parse).collect()
    };
    eventually("four records are on the trail", || json(0, &[]).len() == 5);
    let events = |uid: u32, more: &[&str]| -> Vec<(String, Option<u64>)> {
        let event = |record: &serde_json::Value| {
            (record["event"].as_str().expect("a text").to_owned(), record["uid"].as_u64())
        };
        json(uid, more).iter().map(event).collect()
    };
    let expected = |entries: &[(&str, Option<u32>)]| -> Vec<(String, Option<u64>)> {
        entries.iter().map(|(event, uid)| ((*event).to_owned(), uid.map(u64::from))).collect()
    };
    assert_eq!(
        events(0, &[]),
        expected(&[
            ("start", None),
            ("grant", Some(ALICE)),
            ("attach", Some(ALICE)),
            ("refusal", Some(BOB)),
            ("refusal", Some(CAROL))
        ])
    );
    let of_user =
        [("start", None), ("grant", Some(ALICE)), ("attach", Some(ALICE))].map(|entry| entry);
    assert_eq!(events(ALICE, &[]), expected(&of_user));
    assert_eq!(events(BOB, &[]), expected(&[("start", None), ("refusal", Some(BOB))]));
    // The users that no rule serves share a file that only root reads.
    assert_eq!(events(CAROL, &[]), expected(&[("start", None)]));
    // Filters.
    let uid = ALICE.to_string();
    assert_eq!(events(0, &["--uid", &uid, "--event", "attach"]).len(), 1);
    assert_eq!(events(0, &["--event", "grant,refusal"]).len(), 3);
    assert_eq!(events(0, &["--since", "2100-01-01"]).len(), 0);
    assert_eq!(events(0, &["--since", "1h"]).len(), 5);
    // The record names process, thread and rule.
    let attach = &json(0, &["--event", "attach"])[0];
    assert_eq!(attach["pid"].as_u64(), Some(alice.os_pid() as u64));
    assert_eq!(attach["tid"].as_u64(), Some(tid as u64));
    assert!(attach["pid_start"].as_u64() > Some(0), "{attach}");
    let rule = attach["rule"].as_str().expect("a rule");
    assert!(rule.starts_with("talead.toml:"), "{rule}");
    let text = talea.run(&["log", "--dir", at]);
    let line = text.out.lines().nth(4).expect("five lines");
    assert!(line.contains("refusal") && line.contains("not-allowed"), "{line}");
    // Without a trail.
    let missing = talea.run(&["log", "--dir", "/nonexistent"]);
    assert_eq!(missing.code, Some(1), "{}", missing.err);
    assert!(missing.err.contains("/nonexistent"), "{}", missing.err);
}

#[test]
fn audit_follow_prints_new_records_only() {
    needs_root!();
    let bench = Bench::new("cli-follow");
    let daemon = Daemon::start(&bench, &config::open());
    let talea = Talea::of(&bench, &daemon);
    let directory = directory(&bench);
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let arguments = ["log", "--json", "--follow", "--dir", directory.to_str().expect("UTF-8")];
    let mut follower = talea.command(&arguments).stdout(Stdio::piped()).spawn().expect("a child");
    let mut output = BufReader::new(follower.stdout.take().expect("piped"));
    let mut seen = BTreeSet::new();
    // The program may start later than the first records.
    for _ in 0..3 {
        let granted = client.create(urgent());
        client.done(&Request::Release(granted.spec));
        std::thread::sleep(std::time::Duration::from_millis(400));
    }
    for _ in 0..2 {
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        let record: serde_json::Value = serde_json::from_str(&line).expect("a JSON object");
        assert!(seen.insert(record["seq"].as_u64().expect("a number")), "{line}");
    }
    follower.kill().expect("kill");
    follower.wait().expect("wait");
}
