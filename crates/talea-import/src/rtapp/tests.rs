//! Comparison of the table of keys in the manual with the reader.

use super::read::{EVENTS, GLOBAL, PROPERTIES, THREAD, TOP};
use super::rtapp;
use crate::system_file::File;
use std::collections::BTreeSet;

const MANUAL: &str = include_str!("../../../../docs/manual/import.md");

/// Rows of the table: where, key, text.
fn rows() -> Vec<[&'static str; 3]> {
    let start = MANUAL.find("<!-- keys of rt-app -->").expect("the table");
    let end = MANUAL.find("<!-- end of keys of rt-app -->").expect("its end");
    let lines = MANUAL[start..end].lines().skip(3);
    lines
        .map(|line| {
            let mut cells = line.trim_matches('|').splitn(3, '|').map(str::trim);
            let mut cell = || cells.next().expect("three cells");
            [cell(), cell().trim_matches('`'), cell()]
        })
        .collect()
}

/// Returns the members of `global`, of thread `t` and of thread `u` of a file. The part between the
/// brackets ⟨ and ⟩ has the key.
fn example(place: &str, key: &str) -> [String; 3] {
    const TIMER: &str = r#""timer": {"ref": "unique", "period": 20000}"#;
    const RT: &str = r#""policy": "SCHED_FIFO""#;
    let run = format!(r#""run": 1000, {TIMER}"#);
    let pair = |t: &str, u: &str| [String::new(), t.to_owned(), u.to_owned()];
    let thread = |part: &str| pair(&format!("{part} {run}"), &run);
    let event = |part: &str, u: &str| pair(&format!("{part}, {run}"), u);
    match key {
        "duration" => [r#"⟨"duration": 1,⟩"#.to_owned(), run.clone(), run],
        "default_policy" => [r#"⟨"default_policy": "SCHED_RR",⟩"#.to_owned(), run.clone(), run],
        "pi_enabled" => {
            let t = format!(r#""lock": "m", "run": 9, "unlock": "m", {TIMER}"#);
            [r#"⟨"pi_enabled": true,⟩"#.to_owned(), t, run]
        }
        "instance" => thread(r#"⟨"instance": 3,⟩"#),
        "delay" => thread(r#"⟨"delay": 700,⟩"#),
        "loop" => thread(r#"⟨"loop": 7,⟩"#),
        "phases" => pair(&format!(r#""cpus": [0], ⟨"phases": {{"p": {{{run}}}}}⟩"#), &run),
        "policy" => thread(r#"⟨"policy": "SCHED_RR",⟩"#),
        "priority" => thread(&format!(r#"{RT}, ⟨"priority": 3,⟩"#)),
        "dl-runtime" | "dl-period" | "dl-deadline" => {
            let given: Vec<String> = [("dl-runtime", 2), ("dl-deadline", 4), ("dl-period", 9)]
                .iter()
                .filter(|(other, _)| *other == key || *other != "dl-deadline")
                .map(|(other, ms)| {
                    let member = format!(r#""{other}": {ms}000,"#);
                    if *other == key { format!("⟨{member}⟩") } else { member }
                })
                .collect();
            thread(&format!(r#""policy": "SCHED_DEADLINE", {}"#, given.join(" ")))
        }
        "cpus" => pair(&format!(r#"⟨"cpus": [1],⟩ {RT}, {run}"#), &format!("{RT}, {run}")),
        "nodes_membind" | "membind_nodes" => thread(&format!(r#"⟨"{key}": [0],⟩"#)),
        "taskgroup" => thread(r#"⟨"taskgroup": "/a",⟩"#),
        "run" | "runtime" => event(&format!(r#"⟨"{key}7": 9⟩"#), &run),
        "sleep" => event(r#""run1": 5, ⟨"sleep": 9⟩"#, &run),
        "timer" => pair(r#""run": 1000, ⟨"timer": {"ref": "x", "period": 20000}⟩"#, &run),
        "lock" => event(r#"⟨"lock": "c"⟩, "run1": 5, "unlock": "c""#, &run),
        "unlock" => event(r#""lock": "c", "run1": 5, ⟨"unlock": "c"⟩"#, &run),
        "resume" => event(r#""run1": 5, ⟨"resume": "c"⟩"#, r#""suspend": "c", "run": 5"#),
        "suspend" => event(r#""run1": 5, ⟨"suspend": "c"⟩"#, &format!(r#""resume": "c", {run}"#)),
        "signal" | "broad" => {
            event(&format!(r#""run1": 5, ⟨"{key}": "c"⟩"#), r#""wait": {"ref": "c"}, "run": 5"#)
        }
        "wait" => {
            event(r#""run1": 5, ⟨"wait": {"ref": "c"}⟩"#, &format!(r#""signal": "c", {run}"#))
        }
        "sync" => event(
            r#""run1": 5, ⟨"sync": {"ref": "c", "mutex": "m"}⟩"#,
            r#""wait": {"ref": "c"}, "run": 5, "signal": "c""#,
        ),
        "sem_post" => event(r#""run1": 5, ⟨"sem_post": "c"⟩"#, r#""sem_wait": "c", "run": 5"#),
        "sem_wait" => {
            event(r#""run1": 5, ⟨"sem_wait": "c"⟩"#, &format!(r#""sem_post": "c", {run}"#))
        }
        "barrier" => {
            event(r#""run1": 5, ⟨"barrier": "c"⟩"#, &format!(r#""run1": 5, "barrier": "c", {run}"#))
        }
        "yield" | "fork" => event(&format!(r#"⟨"{key}": "u"⟩"#), &run),
        _ if place == "`global`" => [format!(r#"⟨"{key}": 1,⟩"#), run.clone(), run],
        _ if place == "file" => pair(&run, &run),
        _ if place == "event" => event(&format!(r#"⟨"{key}": 1⟩"#), &run),
        _ => thread(&format!(r#"⟨"{key}": 1,⟩"#)),
    }
}

/// Returns a file with the key and one without it.
fn files(place: &str, key: &str) -> [String; 2] {
    let [global, t, u] = example(place, key);
    let resources = if place == "file" { "⟨\"resources\": {},⟩" } else { "" };
    let text = format!(
        "{{{resources} \"global\": {{{global}}}, \"tasks\": {{\"t\": {{{t}}}, \"u\": {{{u}}}}}}}"
    );
    let (before, rest) = text.split_once('⟨').expect("a key");
    let (it, after) = rest.split_once('⟩').expect("its end");
    [format!("{before}{it}{after}"), format!("{before}{after}")]
}

fn import(text: &str) -> Result<String, String> {
    rtapp(File { origin: "f", text }, None).map_err(|found| format!("{found:?}"))
}

#[test]
fn s22_the_manual_lists_every_key_of_rt_app_once() {
    let listed: Vec<(&str, &str)> =
        rows().into_iter().map(|[place, key, _]| (place, key)).collect();
    let unique: BTreeSet<_> = listed.iter().copied().collect();
    assert_eq!(unique.len(), listed.len(), "a key is listed twice");
    let mut known = BTreeSet::new();
    known.extend(TOP.map(|key| ("file", key)));
    known.extend(GLOBAL.map(|key| ("`global`", key)));
    known.extend(THREAD.map(|key| (if key == "loop" { "thread, phase" } else { "thread" }, key)));
    known.extend(["period", "deadline"].map(|key| ("thread", key)));
    known.extend(PROPERTIES.map(|key| ("thread, phase", key)));
    known.extend(EVENTS.map(|key| ("event", key)));
    assert_eq!(unique, known);
}

/// A key that the table refuses is an error. A key that it leaves out changes nothing but notes.
/// Any other key is imported, and has an effect.
#[test]
fn s22_the_manual_says_what_becomes_of_every_key_of_rt_app() {
    let plain = |text: &str| -> String {
        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    };
    for [place, key, text] in rows() {
        if matches!(key, "global" | "tasks") {
            continue;
        }
        let [file, file_without] = files(place, key);
        let (with, without) = (import(&file), import(&file_without));
        if text.starts_with("refused:") {
            let found = with.expect_err(key);
            assert!(found.contains(key), "{key}: {found}");
            continue;
        }
        let with = with.unwrap_or_else(|found| panic!("{key}: {found}\n{file}"));
        let is_same = without.is_ok_and(|without| plain(&without) == plain(&with));
        assert_eq!(is_same, text.starts_with("left out:"), "{key}: {text}\n{with}");
    }
}
