//! Rules of a configuration file for two real users.

use crate::tasks::{ms, periodic, ranked, reserved, with, work_us};
use rustix::process::Signal;
use std::os::unix::process::CommandExt;
use std::process::Command;
use talea_kernel_tests::{ALICE, Agent, BOB, Bench, Client, Daemon, config, kernel, needs_root};
use talea_proto::refusal::PluginVerdict;
use talea_proto::{Code, Field, Refusal, Request, Task};

/// Returns the code and the field with which the rules have refused, from the refusal or from a
/// plugin's answer.
fn denial(refusal: &Refusal) -> Option<(Code, Field)> {
    let rule = |code| matches!(code, Code::NotAllowed | Code::RuleBound | Code::RuleOmission);
    if rule(refusal.code) {
        return Some((refusal.code, refusal.field));
    }
    refusal.answers.iter().find_map(|answer| match answer.verdict {
        PluginVerdict::Denied { code, field, .. } => Some((code, field)),
        _ => None,
    })
}

fn is_denied(client: &Client, task: Task, expected: Code, field: Field) {
    let refusal = client.refused(&Request::Create(task));
    assert_eq!(denial(&refusal), Some((expected, field)), "{task:?}: {refusal:?}");
}

#[test]
fn r20_no_rule_no_service() {
    needs_root!();
    let bench = Bench::new("r20");
    let rules =
        format!("[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"rm\"\nmax_utilization = 1.0\n");
    let daemon = Daemon::start(&bench, &config::with_rules(&rules));
    let (alice, bob, root) = (Agent::user(ALICE), Agent::user(BOB), Agent::root());
    let (of_alice, of_bob, of_root) =
        (alice.connect(&daemon), bob.connect(&daemon), root.connect(&daemon));
    let task = reserved(10, 1_000);
    let granted = of_alice.create(with("rm", task));
    let refusal = of_bob.refused(&Request::Create(with("rm", task)));
    assert_eq!(refusal.code, Code::NotAllowed, "{refusal:?}");
    // A rule on one plugin grants nothing on another.
    is_denied(&of_alice, with("edf", task), Code::NotAllowed, Field::Request);
    of_root.create(with("edf", task));
    // The kernel state is the result.
    let tid = alice.thread();
    of_alice.attach(granted.spec, tid);
    assert!(kernel::policy(tid).is_realtime());
}

#[test]
fn r20_without_any_rule_only_root_is_served_and_not_even_root_where_it_is_ruled() {
    needs_root!();
    let bench = Bench::new("r20-empty");
    let task = with("rm", periodic(10));
    {
        let daemon = Daemon::start(&bench, config::PLUGINS);
        let (alice, root) = (Agent::user(ALICE), Agent::root());
        let refusal = alice.connect(&daemon).refused(&Request::Create(task));
        assert_eq!(refusal.code, Code::NotAllowed);
        root.connect(&daemon).create(task);
    }
    let daemon = Daemon::start(&bench, &format!("[daemon]\nroot = \"ruled\"\n{}", config::PLUGINS));
    let root = Agent::root();
    assert_eq!(root.connect(&daemon).refused(&Request::Create(task)).code, Code::NotAllowed);
}

#[test]
fn r21_each_property_binds_from_both_sides() {
    needs_root!();
    let bench = Bench::new("r21");
    let rules = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"rm\"\nmax_utilization = 0.3\nmax_runtime = \"2ms\"\n\
         min_period = \"5ms\"\nmax_period = \"100ms\"\nmin_deadline = \"4ms\"\nmax_deadline = \"90ms\"\n\
         [[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"fp\"\nmin_priority = 10\nmax_priority = 20\n\
         [[rule]]\ndomain = \"#{BOB}\"\nplugin = \"rm\"\nignore_adm_test = true\n"
    );
    let daemon = Daemon::start(&bench, &config::with_rules(&rules));
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let client = alice.connect(&daemon);
    let rm = |period_ms, runtime_us, deadline_ms: Option<u64>| {
        let mut task = with("rm", reserved(period_ms, runtime_us));
        task.params.deadline = Some(ms(deadline_ms.unwrap_or(period_ms.min(90))));
        task
    };
    let passes = |task: Task| {
        let granted = client.create(task);
        client.done(&Request::Release(granted.spec));
    };
    passes(rm(100, 2_000, None));
    is_denied(&client, rm(100, 2_001, None), Code::RuleBound, Field::Runtime);
    passes(rm(5, 500, None));
    is_denied(&client, rm(4, 400, None), Code::RuleBound, Field::Period);
    is_denied(&client, rm(101, 500, None), Code::RuleBound, Field::Period);
    passes(rm(10, 500, Some(4)));
    is_denied(&client, rm(10, 500, Some(3)), Code::RuleBound, Field::Deadline);
    is_denied(&client, rm(100, 500, Some(91)), Code::RuleBound, Field::Deadline);
    let first = client.create(rm(10, 2_000, None));
    is_denied(&client, rm(10, 1_001, None), Code::RuleBound, Field::Utilization);
    let second = client.create(rm(10, 999, None));
    client.done(&Request::Release(first.spec));
    client.done(&Request::Release(second.spec));
    passes(rm(10, 2_000, None));
    for (priority, field) in
        [(9, Some(Field::Priority)), (10, None), (20, None), (21, Some(Field::Priority))]
    {
        match field {
            None => passes(with("fp", ranked(priority))),
            Some(field) => is_denied(&client, with("fp", ranked(priority)), Code::RuleBound, field),
        }
    }
    let ignoring = Task { ignore_admission: true, ..with("rm", reserved(10, 1_000)) };
    // Without a rule that allows it, the flag is denied.
    let without_leave = Task { ignore_admission: true, ..rm(10, 1_000, None) };
    is_denied(&client, without_leave, Code::NotAllowed, Field::IgnoreAdmission);
    bob.connect(&daemon).create(ignoring);
}

#[test]
fn r22_a_request_without_a_bounded_parameter_is_refused() {
    needs_root!();
    let bench = Bench::new("r22");
    let bounds = "max_utilization = 0.5\nmax_runtime = \"1ms\"\n";
    let rules = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\n{bounds}[[rule]]\ndomain = \"#{BOB}\"\n{bounds}allow_unbounded = true\n"
    );
    let daemon = Daemon::start(&bench, &config::with_rules(&rules));
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let (bound, freed) = (alice.connect(&daemon), bob.connect(&daemon));
    for task in [with("rm", periodic(10)), with("fp", ranked(5)), with("rr", ranked(5)), ranked(99)]
    {
        let refusal = bound.refused(&Request::Create(task));
        assert_eq!(denial(&refusal).map(|(code, _)| code), Some(Code::RuleOmission), "{refusal:?}");
        freed.create(task);
    }
    bound.create(with("rm", reserved(10, 1_000)));
}

#[test]
fn r23_groups_count_as_the_kernel_says() {
    needs_root!();
    const GROUP: u32 = 60_077;
    let bench = Bench::new("r23");
    let rules =
        format!("[[rule]]\ndomain = \"@#{GROUP}\"\nplugin = \"rm\"\nmin_period = \"1ms\"\n");
    let member = || {
        // Only this program of util-linux sets supplementary groups from outside.
        let mut command = Command::new("setpriv");
        command.args([
            format!("--reuid={ALICE}"),
            format!("--regid={ALICE}"),
            format!("--groups={GROUP}"),
            "--".to_owned(),
        ]);
        command.arg(talea_kernel_tests::bench::program("talea-test-agent"));
        Agent::start(command, 0)
    };
    let task = with("rm", periodic(10));
    {
        let daemon = Daemon::start(&bench, &config::with_rules(&rules));
        let (outsider, supplementary) = (Agent::user(ALICE), member());
        assert_eq!(
            outsider.connect(&daemon).refused(&Request::Create(task)).code,
            Code::NotAllowed
        );
        supplementary.connect(&daemon).create(task);
    }
    // The paper's reading: only the effective group.
    let effective = format!("[daemon]\ngroups = \"effective\"\n{}{rules}", config::PLUGINS);
    let daemon = Daemon::start(&bench, &effective);
    let supplementary = member();
    assert_eq!(
        supplementary.connect(&daemon).refused(&Request::Create(task)).code,
        Code::NotAllowed
    );
    let mut command = Command::new(talea_kernel_tests::bench::program("talea-test-agent"));
    command.uid(ALICE).gid(GROUP);
    let primary = Agent::start(command, 0);
    primary.connect(&daemon).create(task);
}

#[test]
fn r24_the_sum_of_a_subject_is_exact_across_client_exits() {
    needs_root!();
    let bench = Bench::new("r24");
    let rules =
        format!("[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"rm\"\nmax_utilization = 0.6\n");
    let daemon = Daemon::start(&bench, &config::with_rules(&rules));
    for round in 0..20 {
        let alice = Agent::user(ALICE);
        let client = alice.connect(&daemon);
        // Exactly the bound, in sixths that no decimal fraction holds, each time.
        for _ in 0..6 {
            let granted = client.create(with("rm", reserved(10, 1_000)));
            if round % 2 == 0 {
                client.attach(granted.spec, alice.thread());
            }
        }
        is_denied(&client, with("rm", reserved(1_000, 1)), Code::RuleBound, Field::Utilization);
        alice.kill();
        let root = Agent::root();
        let watcher = root.connect(&daemon);
        talea_kernel_tests::eventually("the grants of a killed client are back", || {
            watcher.status().specs == 0
        });
    }
}

#[test]
fn r27_reload_binds_living_sessions_and_changes_no_grant() {
    needs_root!();
    let bench = Bench::new("r27");
    let rule = |runtime: &str| {
        format!("[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"rm\"\nmax_runtime = \"{runtime}\"\n")
    };
    let daemon = Daemon::start(&bench, &config::with_rules(&rule("5ms")));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let granted = client.create(with("rm", reserved(50, 5_000)));
    let tid = alice.thread();
    client.attach(granted.spec, tid);
    let before = kernel::attr(tid);
    daemon.reload(&config::with_rules(&rule("1ms")));
    daemon.wait_for_line("was reloaded").expect("a living daemon");
    is_denied(&client, with("rm", reserved(50, 5_000)), Code::RuleBound, Field::Runtime);
    is_denied(&client, with("rm", reserved(50, 1_001)), Code::RuleBound, Field::Runtime);
    client.create(with("rm", reserved(50, 1_000)));
    assert_eq!(kernel::attr(tid), before);
    assert_eq!(client.query(granted.spec).granted.runtime, Some(work_us(5_000)));
    // A file with an error changes nothing, and neither does one that others may write.
    daemon.reload("[[plugin]]\nname = 7\n");
    daemon.wait_for_line("the old one stays").expect("a living daemon");
    client.create(with("rm", reserved(50, 1_000)));
    is_denied(&client, with("rm", reserved(50, 1_001)), Code::RuleBound, Field::Runtime);
    daemon.signal(Signal::HUP);
}
