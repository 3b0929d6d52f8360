//! Every verdict, with the facts of other computers.

use super::check::Status;
use super::facts::{Configuration, Daemon, Facts};
use super::front_ends::Published;
use super::leftovers::Leftovers;
use super::{all, exit, text};
use crate::commands::front_ends::FrontEndCalls;
use crate::commands::log::Entry;
use std::path::PathBuf;
use talea_core::{Charge, CpuSet, Span, Work};
use talea_os::capabilities::{CapSet, Capability};
use talea_os::sysinfo::{
    DlBandwidth, Domain, Hierarchy, Kernel, Limits, RtGroup, RtLimit, SyscallSupport, SystemInfo,
};
use talea_proto::message::Name;
use talea_proto::refusal::PluginText;
use talea_proto::refusal::PluginVerdict;
use talea_proto::{Code, Field, PluginAnswer, Refusal};
use talea_study::exit::Exit;

/// Returns the facts of a computer without problems, with a daemon, read by root.
fn sound() -> Facts {
    let cpus = CpuSet::first(4);
    let machine = SystemInfo {
        kernel: Kernel {
            version: (6, 18),
            release: "6.18.0".to_owned(),
            preempt_rt: true,
            clocksource: Some("tsc".to_owned()),
            lockdown: None,
        },
        online: cpus,
        present: cpus,
        isolated: CpuSet::EMPTY,
        rt_limit: Some(RtLimit {
            runtime: Some(Work::from_ns(950_000_000)),
            period: Span::from_ns(1_000_000_000),
        }),
        deadline_periods: (Span::from_ns(100_000), Span::from_ns(4_194_304_000)),
        fair_server: Charge::ratio(5, 100),
        domains: vec![Domain { cpus, balanced: true }],
        cgroups: talea_os::sysinfo::Cgroups {
            cpu: Hierarchy::V2("/sys/fs/cgroup".to_owned()),
            cpuset: Hierarchy::V2("/sys/fs/cgroup".to_owned()),
            rt_group: None,
        },
        hrtick: Some(true),
        tick: Some(Span::from_ns(4_000_000)),
        capabilities: CapSet::of(&[Capability::SysNice, Capability::IpcLock, Capability::SysAdmin]),
        limits: Limits {
            rt_priority: Some(0),
            rt_time_us: Some(u64::MAX),
            nice: Some(0),
            memlock: Some(8 << 20),
            files: Some(1024),
        },
        syscalls: SyscallSupport { thread_pidfds: true, tick: Some(Span::from_ns(4_000_000)) },
    };
    Facts {
        machine,
        uid: 0,
        initial_user_namespace: true,
        has_seccomp_filter: false,
        affinity: cpus,
        fifo: Ok(()),
        deadline: Ok(()),
        // Four fair servers of 5 %, rounded as by the kernel.
        dl_bandwidth: Some(vec![DlBandwidth { cpu: 0, limit: 996_147, total: 4 * 52_428 }]),
        deadline_threads: 0,
        disabled: None,
        daemon: Daemon::Answers { pid: 1, refusal: None },
        configuration: Configuration::Sound(PathBuf::from("/etc/talea/talead.toml")),
        front_end_calls: FrontEndCalls::default(),
        published: Published::default(),
        leftovers: Vec::new(),
    }
}

/// Returns the facts of the same computer, for a user without rights.
fn user() -> Facts {
    let mut facts = sound();
    facts.uid = 1000;
    facts.machine.capabilities = CapSet::default();
    facts.machine.limits.memlock = Some(u64::MAX);
    (facts.fifo, facts.deadline) = (Err(libc::EPERM), Err(libc::EPERM));
    facts
}

fn refusal(code: Code) -> Refusal {
    Refusal {
        code,
        field: Field::Request,
        asked: 0,
        limit: 0,
        errno: 0,
        index: 0,
        rule: None,
        answers: Vec::new(),
    }
}

/// Returns all checks that are not ok, as `id: status`.
fn findings(facts: &Facts) -> Vec<String> {
    let checks = all(facts);
    let odd = checks.iter().filter(|check| check.status != Status::Ok);
    odd.map(|check| format!("{}: {}", check.id, check.status.word())).collect()
}

/// Asserts that `change` of the base's facts leads to exactly these findings.
#[track_caller]
fn gives(base: fn() -> Facts, change: impl FnOnce(&mut Facts), expected: &[&str]) -> Facts {
    let mut facts = base();
    change(&mut facts);
    assert_eq!(findings(&facts), expected);
    facts
}

#[test]
fn a_computer_without_problems_has_no_findings_for_root_nor_for_a_user() {
    gives(sound, |_| {}, &[]);
    gives(user, |_| {}, &[]);
    assert!(
        text(&all(&sound()), false, false).ends_with("\nnothing prevents real-time scheduling\n")
    );
}

#[test]
fn every_check_has_a_name_of_its_own_and_every_finding_a_fix() {
    let broken = gives(
        user,
        |facts| {
            facts.daemon = Daemon::Missing("no daemon".to_owned());
            facts.initial_user_namespace = false;
        },
        &[
            "capabilities: warn",
            "user-namespace: fail",
            "try-fifo: warn",
            "try-deadline: warn",
            "daemon: fail",
        ],
    );
    let checks = all(&broken);
    let mut ids: Vec<&str> = checks.iter().map(|check| check.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), checks.len());
    for check in checks {
        assert_eq!(check.fix.is_some(), check.status != Status::Ok, "{}", check.id);
        assert!(!check.finding.is_empty() && !check.meaning.is_empty(), "{}", check.id);
    }
}

#[test]
fn root_of_a_user_namespace_has_no_rights_that_count() {
    let inside = |facts: &mut Facts| {
        facts.initial_user_namespace = false;
        (facts.fifo, facts.deadline) = (Err(libc::EPERM), Err(libc::EPERM));
    };
    gives(sound, inside, &[]);
    let alone = |facts: &mut Facts| {
        inside(facts);
        facts.daemon = Daemon::Missing("no daemon".to_owned());
    };
    let expected = [
        "capabilities: warn",
        "user-namespace: fail",
        "try-fifo: warn",
        "try-deadline: warn",
        "daemon: fail",
    ];
    gives(sound, alone, &expected);
}

#[test]
fn limits_are_checked_by_their_effect_on_real_time_threads() {
    gives(sound, |facts| facts.machine.limits.rt_time_us = Some(200_000), &["rlimit-rttime: warn"]);
    gives(user, |facts| facts.machine.limits.memlock = Some(64 << 10), &["rlimit-memlock: warn"]);
    gives(user, |facts| facts.machine.limits.rt_priority = Some(95), &[]);
}

#[test]
fn a_control_group_without_runtime_is_named_as_the_cause() {
    let refuses = |facts: &mut Facts| {
        facts.machine.cgroups.cpu = Hierarchy::V1("/sys/fs/cgroup/cpu".to_owned());
        facts.machine.cgroups.rt_group = Some(RtGroup {
            path: "/shell".to_owned(),
            runtime: Some(Work::ZERO),
            period: Span::from_ns(1_000_000_000),
        });
        facts.fifo = Err(libc::EPERM);
    };
    let facts = gives(sound, refuses, &["try-fifo: fail", "rt-group: fail"]);
    let shown = text(&all(&facts), false, false);
    assert!(shown.contains("echo 100000 > /sys/fs/cgroup/cpu/shell/cpu.rt_runtime_us"), "{shown}");
    assert!(shown.contains("because the control group has no real-time runtime"), "{shown}");
}

#[test]
fn a_throttled_group_is_a_warning_and_the_root_group_is_not() {
    let bounded = |path: &'static str| {
        move |facts: &mut Facts| {
            facts.machine.cgroups.rt_group = Some(RtGroup {
                path: path.to_owned(),
                runtime: Some(Work::from_ns(100_000_000)),
                period: Span::from_ns(1_000_000_000),
            });
        }
    };
    gives(sound, bounded("/audio"), &["rt-group: warn"]);
    gives(sound, bounded("/"), &[]);
}

#[test]
fn a_seccomp_filter_is_the_cause_only_with_the_right() {
    let filtered = |facts: &mut Facts| {
        facts.has_seccomp_filter = true;
        (facts.fifo, facts.deadline) = (Err(libc::EPERM), Err(libc::EPERM));
    };
    let facts = gives(sound, filtered, &["try-fifo: fail", "try-deadline: fail"]);
    assert!(text(&all(&facts), false, false).contains("seccomp filter refuses the call"));
    gives(user, filtered, &[]);
}

#[test]
fn an_affinity_that_cuts_its_root_domain_is_why_deadline_is_refused() {
    let pinned = |facts: &mut Facts| {
        facts.affinity = CpuSet::single(1);
        facts.deadline = Err(libc::EPERM);
    };
    gives(sound, pinned, &["affinity: warn", "try-deadline: fail"]);
}

#[test]
fn kernel_settings_are_checked() {
    gives(sound, |facts| facts.machine.kernel.version = (5, 15), &["kernel: fail"]);
    gives(sound, |facts| facts.machine.syscalls.thread_pidfds = false, &["thread-pidfds: warn"]);
    gives(sound, |facts| facts.machine.hrtick = Some(false), &["budget-granularity: warn"]);
    gives(sound, |facts| facts.machine.hrtick = None, &[]);
    gives(sound, |facts| facts.machine.kernel.preempt_rt = false, &[]);
    gives(
        sound,
        |facts| facts.machine.kernel.clocksource = Some("hpet".to_owned()),
        &["clock-source: warn"],
    );
    let limit = |runtime| {
        move |facts: &mut Facts| facts.machine.rt_limit.as_mut().unwrap().runtime = runtime
    };
    gives(sound, limit(None), &["rt-runtime: warn"]);
    gives(sound, limit(Some(Work::ZERO)), &["rt-runtime: fail"]);
}

#[test]
fn cpus_without_load_balancing_are_found() {
    let split = |facts: &mut Facts| {
        facts.machine.domains = vec![
            Domain { cpus: CpuSet::first(2), balanced: true },
            Domain { cpus: CpuSet::parse("2-3").unwrap(), balanced: false },
        ];
        facts.dl_bandwidth = None;
    };
    gives(sound, split, &["root-domains: warn"]);
}

#[test]
fn the_kernels_bandwidth_accounting_is_compared_with_the_live_threads() {
    let total =
        |total| move |facts: &mut Facts| facts.dl_bandwidth.as_mut().unwrap()[0].total = total;
    let servers = 4 * 52_428;
    gives(sound, total(servers + (1 << 20) / 4), &["bandwidth-accounting: warn"]);
    gives(sound, total(-5), &["bandwidth-accounting: warn"]);
    let held = |facts: &mut Facts| {
        facts.deadline_threads = (1 << 20) / 5;
        facts.dl_bandwidth.as_mut().unwrap()[0].total = servers + (1 << 20) / 5;
    };
    gives(sound, held, &[]);
    gives(sound, |facts| facts.dl_bandwidth = None, &[]);
    gives(sound, |facts| facts.deadline = Err(libc::EBUSY), &["try-deadline: warn"]);
}

#[test]
fn a_missing_daemon_is_a_warning_for_root_and_a_failure_for_others() {
    let missing = |facts: &mut Facts| facts.daemon = Daemon::Missing("no daemon".to_owned());
    gives(sound, missing, &["daemon: warn"]);
    gives(
        user,
        missing,
        &["capabilities: warn", "try-fifo: warn", "try-deadline: warn", "daemon: fail"],
    );
    let trouble = |facts: &mut Facts| facts.daemon = Daemon::Trouble("does not answer".to_owned());
    gives(sound, trouble, &["daemon: fail"]);
}

#[test]
fn rules_are_checked_for_this_user() {
    let says = |code| {
        let refusal = Some(Box::new(refusal(code)));
        move |facts: &mut Facts| facts.daemon = Daemon::Answers { pid: 1, refusal }
    };
    let facts = gives(user, says(Code::NotAllowed), &["rules: fail"]);
    assert!(text(&all(&facts), false, false).contains("domain = \"#1000\""));
    gives(user, says(Code::NoPlugin), &["rules: warn"]);
    let denied = |facts: &mut Facts| {
        let mut refusal = refusal(Code::NoPlugin);
        let verdict = PluginVerdict::Denied {
            code: Code::NotAllowed,
            field: Field::Request,
            asked: 0,
            limit: 0,
        };
        refusal.answers = vec![PluginAnswer {
            plugin: 0,
            name: Name::new("edf").unwrap(),
            verdict,
            text: PluginText::NONE,
        }];
        facts.daemon = Daemon::Answers { pid: 1, refusal: Some(Box::new(refusal)) };
    };
    let facts = gives(user, denied, &["rules: fail"]);
    let shown = text(&all(&facts), false, false);
    assert!(shown.contains("deny you every plugin.\n"), "one line a finding: {shown}");
}

#[test]
fn configuration_environment_and_leftovers_are_reported() {
    let broken = Configuration::Broken(PathBuf::from("x"), "x:1:1: wrong".to_owned());
    gives(sound, |facts| facts.configuration = broken, &["configuration: fail"]);
    let missing =
        |facts: &mut Facts| facts.configuration = Configuration::Missing(PathBuf::from("x"));
    // A daemon that answers has a configuration elsewhere.
    gives(sound, missing, &[]);
    let alone = |facts: &mut Facts| {
        missing(facts);
        facts.daemon = Daemon::Missing("no daemon".to_owned());
    };
    gives(sound, alone, &["configuration: warn", "daemon: warn"]);
    gives(
        sound,
        |facts| facts.disabled = Some("TALEA_DISABLE is set to 1".to_owned()),
        &["talea-disable: warn"],
    );
    let left = Leftovers::Threads(vec!["thread 7 (x, spec 1)".to_owned()]);
    gives(sound, |facts| facts.leftovers = vec![left], &["leftovers: warn"]);
    gives(sound, |facts| facts.leftovers = vec![Leftovers::Shield], &["leftovers: warn"]);
    let both = |facts: &mut Facts| {
        facts.leftovers = vec![Leftovers::Hidden("x".to_owned()), Leftovers::Shield];
    };
    gives(sound, both, &["leftovers: warn"]);
    gives(sound, |facts| facts.leftovers = vec![Leftovers::Hidden("not for you".to_owned())], &[]);
}

#[test]
fn meaning_and_fix_are_shown_if_there_is_something_to_do() {
    let mut facts = sound();
    facts.machine.kernel.clocksource = Some("hpet".to_owned());
    let brief = text(&all(&facts), false, false);
    assert_eq!(brief.matches("fix:").count(), 1);
    assert_eq!(brief.lines().count(), all(&facts).len() + 2 + 2);
    assert!(brief.ends_with("\nnothing fails; 1 warning\n"), "{brief}");
    let verbose = text(&all(&facts), true, false);
    assert_eq!(verbose.lines().count(), 2 * all(&facts).len() + 1 + 2);
    assert!(text(&all(&facts), false, true).contains("\x1b[33mwarn\x1b[0m"));
}

#[test]
fn attack_7_a_repair_that_leaves_anything_fails() {
    let (nothing, mut left) = (sound(), sound());
    left.leftovers = vec![Leftovers::Shield];
    assert_eq!(exit(0, true, &nothing), Exit::Ok);
    assert_eq!(exit(0, true, &left), Exit::Failure);
    assert_eq!(exit(0, false, &left), Exit::Ok, "looking for leftovers is no repair");
    assert_eq!(exit(1, true, &nothing), Exit::Failure);
}

#[test]
fn a_refused_call_over_dbus_is_a_warning_with_user_limit_and_remedy() {
    let record = |event: &str, by: u32, rest: &str| {
        let line = format!(
            r#"{{"seq":1,"time":"2026-11-28T07:00:00.000001Z","event":"{event}","uid":4294967294,"by":{by},"pid":17{rest}}}"#
        );
        Entry::parse(&line).expect("a record")
    };
    let bound = r#","count":3,"last":"2026-11-28T07:00:01.000001Z","code":"rule-bound","field":"utilization","asked":1200000,"limit":1000000,"rule":"talead.toml:24""#;
    let missing = r#","code":"not-allowed""#;
    let entries = [
        record("attach", 60_010, ""),
        record("nice", 60_010, ""),
        // A request of the superuser for the user is no call over D-Bus.
        record("attach", 0, ""),
        record("refusal", 0, missing),
        record("refusal", 60_010, missing),
        record("refusal", 60_010, bound),
    ];
    let found = |entries: &[Entry]| {
        let mut facts = sound();
        facts.front_end_calls = FrontEndCalls::of(entries);
        let checks = all(&facts);
        checks.into_iter().find(|check| check.id == "front-ends").expect("a check")
    };
    let check = found(&entries);
    assert_eq!(check.status, Status::Warn);
    for part in ["2 grants over D-Bus", "4 refusals", "4294967294", "process 17", "asked 1200000"] {
        assert!(check.finding.contains(part), "{part}: {}", check.finding);
    }
    let fix = check.fix.expect("a remedy");
    // Each limit has its remedy.
    for part in ["talead.toml:24", "--runtime-us", "[[rule]]"] {
        assert!(fix.contains(part), "{part}: {fix}");
    }
    let again = [&entries[..], &entries[4..5]].concat();
    let finding = found(&again).finding;
    assert!(finding.contains("5 refusals"), "{finding}");
    assert_eq!(finding.matches("not-allowed").count(), 1, "{finding}");
    let check = found(&entries[..5]);
    assert!(check.fix.expect("a remedy").contains("[[rule]]"), "{}", check.finding);
    let check = found(&entries[..4]);
    assert_eq!((check.status, check.fix), (Status::Ok, None), "{}", check.finding);
}

#[test]
fn values_of_the_portal_are_compared_with_those_of_the_name() {
    let values = |limit: u32, priority: u32| {
        format!("MaxRealtimePriority={priority} MinNiceLevel=-15 RTTimeUSecMax={limit}")
    };
    let (own, zero) = (values(200_000, 20), values(0, 20));
    for (realtimekit, portal, expected) in [
        (&own[..], &own[..], &[][..]),
        (&own, "no-owner", &[]),
        (&own, "no such\u{1b}[2J bus", &[]),
        ("no-owner", "no-owner", &["realtimekit: warn"]),
        ("timed out", "no-owner", &["realtimekit: warn"]),
        (&own, &zero, &["portal: fail"]),
        ("no-owner", &zero, &["realtimekit: warn", "portal: fail"]),
        (&own, "MinNiceLevel=-15", &["portal: fail"]),
        (&own, &values(200_000, 10), &["portal: warn"]),
    ] {
        let lines = format!("realtimekit {realtimekit}\nportal {portal}\nanother line\n");
        let facts = gives(sound, |facts| facts.published = Published::parse(&lines), expected);
        let shown = text(&all(&facts), true, false);
        assert!(!shown.contains('\u{1b}'), "{shown}");
        let names_the_remedy = shown.contains("restart xdg-desktop-portal");
        assert_eq!(names_the_remedy, expected.iter().any(|id| id.starts_with("portal")));
    }
    assert_eq!(Published::parse(""), Published::default());
    gives(sound, |facts| facts.published = Published::parse(""), &[]);
}
