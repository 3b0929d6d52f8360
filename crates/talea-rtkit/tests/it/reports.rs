//! `talea list --dbus` and `talea doctor` about the programs that ask over D-Bus.

use crate::desktop::{PORTAL, SessionBus};
use crate::live::{has_bus, rules, staged};
use crate::stage::{Bus, Process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use talea_kernel_tests::bench::copy;
use talea_kernel_tests::{ALICE, Agent, BOB, Bench, Daemon, eventually, kernel, needs, needs_root};
use talea_proto::Task;
use talea_proto::message::Name;

fn talea() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_talea-rtkit")).with_file_name("talea")
}

/// Copies `talea` to where users may execute it. Returns it with options that name the daemon.
fn line_of(bench: &Bench, daemon: &Daemon) -> Vec<String> {
    let program = bench.path("talea");
    copy(talea(), &program);
    let trail =
        format!("[daemon]\naudit_directory = \"{}\"\n", bench.path("state/audit").display());
    let config = bench.write("command.toml", &rules().replace("[daemon]\n", &trail));
    let words = [program.as_path(), Path::new("--config"), &config, Path::new("--socket")];
    let words = words.into_iter().chain([daemon.socket()]);
    words.map(|word| word.to_str().expect("UTF-8").to_owned()).collect()
}

/// Runs a command of `talea`.
fn output(command: &mut Command) -> String {
    let output = command.output().expect("talea is run");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn run(line: &[String], words: &[&str]) -> String {
    output(Command::new(&line[0]).args(&line[1..]).args(words))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn list_shows_what_programs_asked_for_what_they_have_and_who_was_refused() {
    needs!("talea", talea().is_file());
    staged!("rtkit-list", bench, daemon, bus, front_end);
    let line = line_of(&bench, &daemon);
    assert!(run(&line, &["list", "--dbus"]).contains("no program has a grant"));
    let (alice, bob) = (bus.caller(&bench, ALICE), bus.caller(&bench, BOB));
    let (hers, his) = (alice.thread(), bob.thread());
    assert_eq!(alice.order(&format!("realtime {hers} 12")), "ok");
    assert_eq!(bob.order(&format!("realtime {his} 5")), "ok");
    for above in [16, 17] {
        let said = alice.order(&format!("realtime {} {above}", alice.thread()));
        assert!(said.contains("AccessDenied"), "{said}");
    }
    // Nice values: the last one counts, a grant replaces it, and it ends with its thread.
    let (nice, later) = (alice.thread(), alice.thread());
    for (thread, value) in [(nice, -4), (nice, -11), (later, -2)] {
        assert_eq!(alice.order(&format!("high {thread} {value}")), "ok");
    }
    assert_eq!(alice.order(&format!("realtime {later} 9")), "ok");
    let ending = bus.caller(&bench, ALICE);
    assert_eq!(ending.order(&format!("high {} -3", ending.thread())), "ok");
    ending.kill();
    // A grant without D-Bus is not in the list.
    let own = Agent::user(ALICE);
    let client = own.connect(&daemon);
    let params = talea_core::Params {
        priority: Some(talea_core::Priority(3)),
        ..talea_core::Params::default()
    };
    let task = Task { params, plugin: Name::new("fp"), ..Task::default() };
    let granted = client.create(task);
    client.attach(granted.spec, own.thread());
    let list = || json(&run(&line, &["list", "--dbus", "--json"]));
    // A thread of the daemon writes the records.
    eventually("the refusals are on the trail", || list()["refusals"][0]["count"] == 2);
    let is_complete = |list: &Value| {
        let specs = list["specs"].as_array().expect("a list");
        assert_eq!(specs.len(), 3, "{list}");
        let of = |tid: i32| specs.iter().find(|spec| spec["tid"] == tid).expect("a grant");
        let (hers_now, his_now) = (of(hers), of(his));
        assert_eq!((&hers_now["uid"], &his_now["uid"]), (&ALICE.into(), &BOB.into()));
        assert_eq!(hers_now["task"]["priority"], 12, "asked");
        assert_eq!(his_now["task"]["runtime_ns"], 2_000_000, "asked");
        assert_eq!(hers_now["given"]["priority"], kernel::priority(hers), "granted");
        assert_eq!(his_now["kernel"]["policy"], "deadline", "in force");
        assert_eq!((&hers_now["held"], &his_now["held"]), (&true.into(), &true.into()));
        let expected = serde_json::json!([{
            "uid": ALICE, "pid": alice.pid(), "tid": nice, "nice": -11,
            "kernel": {"policy": "other", "nice": -11},
        }]);
        assert_eq!(list["nice_values"], expected);
    };
    let seen = list();
    is_complete(&seen);
    assert_eq!(seen["refusals"].as_array().map(Vec::len), Some(1), "{seen}");
    let refusal = &seen["refusals"][0];
    assert_eq!((&refusal["uid"], &refusal["code"]), (&ALICE.into(), &"rule-bound".into()));
    let rule = refusal["rule"].as_str().expect("a rule");
    assert!(rule.starts_with("talead.toml:"), "{rule}");
    assert!(refusal["text"].as_str().is_some_and(|text| text.contains("limit 15")), "{refusal}");
    assert!(refusal["fix"].as_str().is_some_and(|fix| fix.contains(rule)), "{refusal}");
    let text = run(&line, &["list", "--dbus"]);
    println!("{text}");
    let priority = kernel::priority(hers);
    for part in [
        "ASKED",
        "priority 12, 2ms every 10ms",
        &format!("fp FIFO {priority}"),
        "edf DL 2ms/10ms",
        "2 calls: ",
        "fix: a larger bound",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let has_columns = |line: &str| line.matches("nice -11").count() == 3;
    assert!(text.lines().any(has_columns), "asked, granted and in force: {text}");
    daemon.kill();
    daemon.restart();
    is_complete(&list());
}

#[test]
fn doctor_compares_the_values_of_the_portal_with_those_of_the_front_end() {
    needs_root!();
    needs!("talea", talea().is_file());
    needs!("dbus-daemon", has_bus());
    needs!("xdg-desktop-portal", Path::new(PORTAL).exists());
    let bench = Bench::new("rtkit-doctor");
    let daemon = Daemon::start(&bench, &rules());
    let bus = Bus::start(&bench);
    let line = line_of(&bench, &daemon);
    let session = SessionBus::start(&bench, "session", &bus);
    copy(env!("CARGO_BIN_EXE_talea-rtkit"), bench.path("talea-rtkit"));
    let doctor = || {
        let words: Vec<&str> =
            line.iter().map(String::as_str).chain(["doctor", "--json"]).collect();
        let text = output(&mut session.command(&words));
        let check = |id: &str| {
            let report = json(&text);
            let checks = report["checks"].as_array().expect("checks").clone();
            let found = checks.into_iter().find(|check| check["id"] == id).expect("a check");
            (found["status"].as_str().expect("a word").to_owned(), found["finding"].to_string())
        };
        (check("realtimekit"), check("portal"))
    };
    let (name, portal) = doctor();
    assert_eq!((name.0.as_str(), portal.0.as_str()), ("warn", "ok"), "{name:?} {portal:?}");
    // A portal that starts before the name publishes 0 until it starts again.
    let early = session.portal();
    let front_end = bus.front_end(&bench, &daemon, &[]);
    let (name, portal) = doctor();
    assert_eq!((name.0.as_str(), portal.0.as_str()), ("ok", "fail"), "{name:?} {portal:?}");
    assert!(portal.1.contains("RTTimeUSecMax 0"), "{portal:?}");
    drop(early);
    let later: Process = session.portal();
    // The portal serves before it has read the properties.
    eventually("the portal publishes them", || doctor().1.0 == "ok");
    let (name, portal) = doctor();
    assert_eq!(name.0, "ok", "{name:?} {portal:?}");
    assert!(portal.1.contains("RTTimeUSecMax 200000"), "{portal:?}");
    assert_eq!(name.1, portal.1);
    // Other values of the front end do not reach a portal that runs.
    drop(front_end);
    let _front_end = bus.front_end(&bench, &daemon, &["--max-priority", "10"]);
    let (name, portal) = doctor();
    assert_eq!((name.0.as_str(), portal.0.as_str()), ("ok", "warn"), "{name:?} {portal:?}");
    drop(later);
}
