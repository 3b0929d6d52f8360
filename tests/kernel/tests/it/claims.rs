//! Claims of the papers about parameters, runtimes, thresholds and sums, checked with the real
//! daemon and read from the kernel.

use crate::tasks::{ms, periodic, ranked, reserved, with, work_us};
use talea_core::{Charge, CpuSet, Params, Priority, Work};
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Client, Daemon, config, eventually, kernel, needs, needs_root,
};
use talea_os::sched::Policy;
use talea_proto::message::{Caveat, Notes};
use talea_proto::refusal::{PluginVerdict, RejectionReason};
use talea_proto::{Code, Field, Refusal, Rejection, Reply, Request, Task};

/// Returns a configuration of an `edf` plugin with these further lines, without access rules.
fn edf(lines: &str) -> String {
    format!(
        "[daemon]\naccess = \"off\"\n[[plugin]]\nname = \"edf\"\nkind = \"edf\"\ncpus = \"all\"\n{lines}\n"
    )
}

/// Returns the rejection by the only plugin of a refusal.
fn no(refusal: &Refusal) -> Rejection {
    match refusal.answers.as_slice() {
        [answer] => match answer.verdict {
            PluginVerdict::No(no) => no,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn denied(refusal: &Refusal) -> (Code, Field) {
    match refusal.answers.as_slice() {
        [answer] => match answer.verdict {
            PluginVerdict::Denied { code, field, .. } => (code, field),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Changes the terms of a spec, which the daemon must accept.
#[track_caller]
fn change(client: &Client, spec: talea_proto::SpecId, task: Task) -> talea_proto::Granted {
    match client.ask(&Request::Change { spec, task }) {
        Reply::Granted(granted) => granted,
        other => panic!("{other:?}"),
    }
}

#[test]
fn r1_every_subset_of_the_parameters_is_served_or_refused_as_table_6_says() {
    needs_root!();
    let bench = Bench::new("r1");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for bits in 0..32u32 {
        let has = |bit: u32| bits & (1 << bit) != 0;
        let params = Params {
            period: has(0).then_some(ms(10)),
            runtime: has(1).then_some(work_us(500)),
            desired: has(2).then_some(work_us(600)),
            deadline: has(3).then_some(ms(8)),
            priority: has(4).then_some(Priority(7)),
        };
        for (plugin, served, missing) in [
            ("edf", has(0) && has(1), if has(0) { Field::Runtime } else { Field::Period }),
            ("rm", has(0), Field::Period),
            ("rr", has(4), Field::Priority),
            ("fp", has(4), Field::Priority),
        ] {
            let task = with(plugin, Task { params, ..Task::default() });
            match client.ask(&Request::Create(task)) {
                Reply::Granted(granted) => {
                    assert!(served, "{plugin}: {params:?}");
                    let partial = granted.notes.contains(Notes::PARTIAL);
                    assert_eq!(
                        partial,
                        plugin == "rm" && !has(1),
                        "only rm recommends: {params:?}"
                    );
                    let elastic = plugin == "edf" && has(2);
                    let runtime = has(1).then(|| if elastic { work_us(600) } else { work_us(500) });
                    assert_eq!(granted.runtime, runtime, "{plugin}: {params:?}");
                    assert_eq!(
                        client.query(granted.spec).task,
                        task,
                        "what was declared is what is known"
                    );
                    client.done(&Request::Release(granted.spec));
                }
                Reply::Refused(refusal) => {
                    assert!(!served, "{plugin}: {params:?}: {refusal:?}");
                    let no = no(&refusal);
                    assert_eq!(
                        (no.reason, no.field),
                        (RejectionReason::Missing, missing),
                        "{plugin}: {params:?}"
                    );
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(client.status().specs, 0);
}

#[test]
fn r1_an_undeclared_deadline_is_the_period_also_for_the_kernel() {
    needs_root!();
    let bench = Bench::new("r1-deadline");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for (declared, expected) in [(None, ms(10)), (Some(ms(10)), ms(10)), (Some(ms(7)), ms(7))] {
        let mut task = with("edf", reserved(10, 500));
        task.params.deadline = declared;
        let granted = client.create(task);
        let tid = alice.thread();
        client.attach(granted.spec, tid);
        let Policy::Deadline { runtime, deadline, period } = kernel::policy(tid) else {
            panic!("{:?}", kernel::policy(tid));
        };
        assert_eq!((runtime, deadline, period), (work_us(500), expected, ms(10)));
        client.done(&Request::Release(granted.spec));
    }
}

#[test]
fn r7_a_thread_that_computes_is_changed_without_an_instant_outside_real_time() {
    needs_root!();
    let bench = Bench::new("r7-running");
    // The thread computes longer than it declares to `rm`, so a limit would throttle it.
    let config =
        config::open().replace("kind = \"rm\"\n", "kind = \"rm\"\non_overrun = \"notify\"\n");
    let daemon = Daemon::start(&bench, &config);
    let (alice, root) = (Agent::user(ALICE), Agent::root());
    // The agent is busy while its thread works: another connection commands.
    let client = root.connect(&daemon);
    let tid = alice.thread();
    let here = |task: Task| Task { cpus: CpuSet::single(0), cpus_mandatory: true, ..task };
    let granted = client.create(here(with("fp", ranked(9))));
    client.attach(granted.spec, tid);
    let (mut changes, mut refused, mut looks) = (0u32, 0u32, 0u32);
    for _ in 0..5 {
        // Bounded, and ordinary threads keep the other CPU and the pauses.
        alice.begin(&format!("work {tid} 20"));
        for task in [
            here(with("rr", ranked(20))),
            // Little: what leaves `edf` stays reserved until its zero-lag time, and rounds may
            // follow each other sooner.
            with("edf", reserved(10, 1_000)),
            here(with("rm", reserved(20, 2_000))),
            with("edf", reserved(20, 2_000)),
            here(with("fp", ranked(50))),
        ] {
            let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
            let granted = loop {
                let seq = client.send(&Request::Change { spec: granted.spec, task });
                // The kernel's policy of the thread during the change.
                for _ in 0..20 {
                    match talea_os::sched::get(kernel::tid(tid)) {
                        Ok(attr) => assert!(attr.policy.is_realtime(), "seen as {:?}", attr.policy),
                        // The kernel reads policy and priority without a lock: FIFO without one is
                        // half of each.
                        Err(error) => assert_eq!(error.raw_os_error(), Some(22), "{error}"),
                    }
                    looks += 1;
                }
                match client.receive().expect("an answer") {
                    (answered, Reply::Granted(_)) => {
                        assert_eq!(answered, seq);
                        break true;
                    }
                    // EAGAIN: a stall of the machine was charged to it, and it must pay before it
                    // comes back to `edf`. That is no change at all, and no other plugin may
                    // return this error.
                    (_, Reply::Refused(no)) if no.errno == 11 => {
                        assert_eq!(task.plugin, with("edf", reserved(10, 1_000)).plugin, "{no:?}");
                        if std::time::Instant::now() > end {
                            break false;
                        }
                    }
                    other => panic!("{task:?}: {other:?}"),
                }
            };
            refused += u32::from(!granted);
            changes += 1;
        }
        let took: u64 = alice.finish().parse().expect("the thread runs to the end of its work");
        assert!(took >= 20_000, "{took} us for 20 ms of work");
        // The kernel must have released its `edf` bandwidth before the next round.
        talea_kernel_tests::eventually("the room is back", || {
            let all = here(with("rm", reserved(20, 13_000)));
            matches!(client.ask(&Request::Explain(all)), Reply::Explained { chosen: Some(_), .. })
        });
    }
    println!("{changes} changes, {refused} of them refused for overruns");
    assert_eq!(changes, 25);
    // The kernel can charge a stall or two of the machine to it.
    assert!(refused <= 3, "{refused} of ten changes to edf were refused for overruns");
    assert!(looks >= 500);
    client.done(&Request::Release(granted.spec));
    assert!(kernel::is_ordinary(tid));
    alice.end_thread(tid);
}

#[test]
fn r8_a_desired_runtime_is_clipped_by_rules_counted_and_changed_on_request_only() {
    needs_root!();
    let bench = Bench::new("r8-rules");
    let rules = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"edf\"\nmax_runtime = \"2ms\"\n\
         [[rule]]\ndomain = \"#{BOB}\"\nplugin = \"edf\"\nmax_utilization = 0.3\n"
    );
    let daemon = Daemon::start(&bench, &config::with_rules(&rules));
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let (of_alice, of_bob) = (alice.connect(&daemon), bob.connect(&daemon));
    let desiring = |runtime_us, desired_us| {
        let mut task = with("edf", reserved(10, runtime_us));
        task.params.desired = Some(work_us(desired_us));
        task
    };
    // A desired runtime beyond max_runtime is clipped; a required one beyond it is denied.
    let granted = of_alice.create(desiring(500, 9_000));
    assert_eq!(granted.runtime, Some(work_us(2_000)));
    assert!(granted.notes.contains(Notes::BELOW_DESIRED));
    let refusal = of_alice.refused(&Request::Create(desiring(2_001, 9_000)));
    assert_eq!(denied(&refusal), (Code::RuleBound, Field::Runtime));
    // Exactly the rest of max_utilization, and nothing for the next one.
    let first = of_bob.create(with("edf", reserved(10, 1_000)));
    let second = of_bob.create(desiring(500, 9_000));
    assert_eq!(second.runtime, Some(work_us(2_000)), "30 % less 10 %");
    let refusal = of_bob.refused(&Request::Create(desiring(100, 9_000)));
    assert_eq!(denied(&refusal), (Code::RuleBound, Field::Utilization));
    let tid = bob.thread();
    of_bob.attach(second.spec, tid);
    // Room comes free: nothing changes until the task asks itself.
    of_bob.done(&Request::Release(first.spec));
    let reserved_now = || match kernel::policy(tid) {
        Policy::Deadline { runtime, .. } => runtime,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (of_bob.query(second.spec).granted.runtime, reserved_now()),
        (Some(work_us(2_000)), work_us(2_000))
    );
    assert_eq!(change(&of_bob, second.spec, desiring(500, 9_000)).runtime, Some(work_us(3_000)));
    assert_eq!(reserved_now(), work_us(3_000), "the kernel has the new Q^a");
}

#[test]
fn r13_retif_w11_the_threshold_of_the_file_is_the_one_that_counts() {
    needs_root!();
    let bench = Bench::new("r13-threshold");
    let daemon = Daemon::start(&bench, &edf("threshold = 0.2"));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let no = no(&client.refused(&Request::Create(reserved(100, 20_001))));
    assert_eq!(
        (no.reason, no.field, no.limit, no.fits),
        (RejectionReason::NoRoom, Field::Utilization, 200_000, 200_000)
    );
    let granted = client.create(reserved(100, 20_000));
    let tid = alice.thread();
    client.attach(granted.spec, tid);
    assert!(kernel::policy(tid).is_deadline(), "exactly the threshold passes");
}

/// Journal of partitions; dropping it undoes what a daemon killed by a failed test has left.
struct Undo(std::path::PathBuf);

impl Drop for Undo {
    fn drop(&mut self) {
        drop(talea_os::partition::undo(&self.0));
    }
}

#[test]
fn r13_deadline_threads_go_to_the_least_loaded_cpu_and_stay_there() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() == 2);
    let bench = Bench::new("r13-edf");
    let _undo = Undo(bench.path("state").join("partitions"));
    let daemon = Daemon::start(&bench, &edf("confine = \"partition\"\nthreshold = 0.8"));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let probe = client.ask(&Request::Create(reserved(10, 5_000)));
    // Where the machine has no cpusets that can be partitioned.
    needs!(
        "a root domain for each CPU",
        matches!(&probe, Reply::Granted(granted) if granted.cpu.is_some())
    );
    let Reply::Granted(first) = probe else { panic!("{probe:?}") };
    let place = |runtime_us: u64| {
        let granted = client.create(reserved(10, runtime_us));
        let tid = alice.thread();
        match client.try_attach(granted.spec, tid) {
            Reply::Done => {}
            // It sleeps in another root domain: the kernel takes it when it wakes up there.
            Reply::DoneWithCaveat(Caveat::PendingWakeup) => {
                eventually("it is real-time when it has run", || {
                    alice.work(tid, 1);
                    kernel::policy(tid).is_deadline()
                });
            }
            other => panic!("{other:?}"),
        }
        let cpu = granted.cpu.expect("it is confined");
        assert!(kernel::policy(tid).is_deadline());
        assert_eq!(kernel::affinity(tid), CpuSet::single(cpu));
        cpu
    };
    // 50 % on one; then 20 + 20 + 20 beside it on the other; then 20 on the first again; then both
    // are at 70 and 60.
    let (one, two) = (first.cpu.expect("it is confined"), place(2_000));
    assert_ne!(one, two);
    assert_eq!([place(2_000), place(2_000), place(2_000)], [two, two, one]);
    let refusal = no(&client.refused(&Request::Create(reserved(10, 2_001))));
    assert_eq!(
        (refusal.reason, refusal.cpu, refusal.fits),
        (RejectionReason::NoRoom, Some(two), 200_000)
    );
    assert_eq!(place(2_000), two, "80 % is the threshold and passes");
}

#[test]
fn r14_an_ignored_test_is_accepted_with_q_and_refused_only_for_the_kernel_s_own_share() {
    needs_root!();
    let bench = Bench::new("r14-edf");
    let rules = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"edf\"\nignore_adm_test = true\n\
         [[rule]]\ndomain = \"#{BOB}\"\nplugin = \"edf\"\nmax_utilization = 4.0\n"
    );
    let plugin = "[[plugin]]\nname = \"edf\"\nkind = \"edf\"\ncpus = \"all\"\nthreshold = 0.1\n";
    let daemon = Daemon::start(&bench, &format!("{plugin}{rules}"));
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let client = alice.connect(&daemon);
    let mut greedy = reserved(10, 3_000);
    greedy.params.desired = Some(work_us(9_000));
    let ignoring = Task { ignore_admission: true, ..greedy };
    // Without the flag the threshold holds; without a rule the flag is denied.
    let refusal = no(&client.refused(&Request::Create(greedy)));
    assert_eq!((refusal.reason, refusal.limit), (RejectionReason::NoRoom, 100_000));
    let refusal = bob.connect(&daemon).refused(&Request::Create(ignoring));
    assert_eq!(
        refusal.answers.first().map(|answer| answer.verdict),
        Some(PluginVerdict::Denied {
            code: Code::NotAllowed,
            field: Field::IgnoreAdmission,
            asked: 1,
            limit: 0
        })
    );
    // As many as the kernel takes: each with Q, though more is desired, and each one really
    // attached.
    let (mut taken, end) = (0u64, loop_limit());
    let refusal = loop {
        match client.ask(&Request::Create(ignoring)) {
            Reply::Granted(granted) => {
                assert_eq!(granted.runtime, Some(work_us(3_000)));
                let notes =
                    Notes::ADMISSION_IGNORED.with(Notes::NOT_PROVED).with(Notes::BELOW_DESIRED);
                assert!(granted.notes.contains(notes), "{granted:?}");
                let tid = alice.thread();
                client.attach(granted.spec, tid);
                assert!(kernel::policy(tid).is_deadline());
                taken += 1;
                assert!(taken < end, "the kernel admits everything");
            }
            Reply::Refused(refusal) => break refusal,
            other => panic!("{other:?}"),
        }
    };
    let no = no(&refusal);
    let share = talea_os::sysinfo::SystemInfo::probe().expect("this machine").deadline_share();
    needs!("kernel admission", share.is_some());
    assert_eq!(
        (no.reason, no.field, no.asked),
        (RejectionReason::NoRoom, Field::Utilization, 300_000)
    );
    assert!(no.fits < 300_000 && taken * 300_000 + no.fits <= no.limit, "{no:?} after {taken}");
    // And it is right: the kernel itself would refuse one more.
    let tid = alice.thread();
    let policy = Policy::Deadline { runtime: work_us(3_000), deadline: ms(10), period: ms(10) };
    let error = talea_os::sched::set(kernel::tid(tid), &talea_os::sched::Attr::grant(policy));
    assert!(error.is_err(), "the kernel had room left");
}

/// Returns a number of tasks of 30 % that is more than any machine of the tests has room for.
fn loop_limit() -> u64 {
    u64::from(kernel::cpus().len()) * 4
}

#[test]
fn r24_a_subject_s_sum_follows_every_change_also_from_plugin_to_plugin() {
    needs_root!();
    let bench = Bench::new("r24-change");
    let rules = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nmax_utilization = 0.5\n\
         [[rule]]\ndomain = \"-\"\nplugin = \"fp\"\nmax_utilization = 0.3\n"
    );
    let daemon = Daemon::start(&bench, &config::with_rules(&rules));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let on = |plugin: &str, runtime_us: u64| {
        let mut task = with(plugin, reserved(10, runtime_us));
        task.params.priority = Some(Priority(9));
        task
    };
    let granted = client.create(on("rm", 2_000));
    let tid = alice.thread();
    client.attach(granted.spec, tid);
    let over = |client: &Client, task: Task| {
        assert_eq!(
            denied(&client.refused(&Request::Create(task))),
            (Code::RuleBound, Field::Utilization)
        );
    };
    let fits = |client: &Client, task: Task| {
        let granted = client.create(task);
        client.done(&Request::Release(granted.spec));
    };
    // That much fits, and a microsecond more does not.
    let exactly = |client: &Client, plugin: &str, runtime_us: u64| {
        over(client, on(plugin, runtime_us + 1));
        fits(client, on(plugin, runtime_us));
    };
    // 20 % held of 50 in total and of 30 on fp.
    exactly(&client, "rm", 3_000);
    exactly(&client, "fp", 3_000);
    // The same 20 % on fp: there only 10 are left.
    change(&client, granted.spec, on("fp", 2_000));
    exactly(&client, "fp", 1_000);
    exactly(&client, "rm", 3_000);
    // Beyond the bound nothing changes, neither in the ledger nor in the kernel.
    let before = kernel::attr(tid);
    for task in [on("fp", 3_001), on("rm", 5_001)] {
        let refusal = client.refused(&Request::Change { spec: granted.spec, task });
        assert_eq!(denied(&refusal), (Code::RuleBound, Field::Utilization));
    }
    assert_eq!(kernel::attr(tid), before);
    // Exactly the bound passes, and the reduced one frees the rest at once.
    change(&client, granted.spec, on("rm", 5_000));
    over(&client, on("rr", 1));
    change(&client, granted.spec, on("rm", 1_000));
    fits(&client, on("rm", 4_000));
    // The next daemon counts the same.
    let mut daemon = daemon;
    daemon.kill();
    daemon.restart();
    let client = alice.connect(&daemon);
    exactly(&client, "rm", 4_000);
    assert!(matches!(client.claim(granted.spec, granted.token), Reply::Granted(_)));
    client.done(&Request::Release(granted.spec));
    fits(&client, on("rm", 5_000));
}

#[test]
fn r24_a_group_s_sum_is_the_same_for_the_next_daemon() {
    needs_root!();
    let bench = Bench::new("r24-group");
    // A user's own group bears the user's number here.
    let rules =
        format!("[[rule]]\ndomain = \"@#{ALICE}\"\nplugin = \"rm\"\nmax_utilization = 0.5\n");
    let mut daemon = Daemon::start(&bench, &config::with_rules(&rules));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let granted = client.create(with("rm", reserved(10, 4_000)));
    client.attach(granted.spec, alice.thread());
    daemon.kill();
    daemon.restart();
    // No client has claimed it, and still it counts.
    let fresh = alice.connect(&daemon);
    let refusal = fresh.refused(&Request::Create(with("rm", reserved(10, 1_001))));
    assert_eq!(denied(&refusal), (Code::RuleBound, Field::Utilization));
    fresh.create(with("rm", reserved(10, 1_000)));
}

#[test]
fn explain_predicts_the_result_of_create() {
    needs_root!();
    let bench = Bench::new("explain");
    let rules = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"rm\"\nmax_runtime = \"2ms\"\n\
         [[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"fp\"\nmax_priority = 30\n"
    );
    let daemon = Daemon::start(&bench, &config::with_rules(&rules));
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    for client in [alice.connect(&daemon), bob.connect(&daemon)] {
        for task in [
            periodic(10),
            reserved(10, 2_000),
            reserved(10, 2_001),
            ranked(30),
            ranked(31),
            with("rr", ranked(5)),
            with("nobody", ranked(5)),
            reserved(10, 11_000),
            Task::default(),
        ] {
            let Reply::Explained { chosen, answers, refusal } = client.ask(&Request::Explain(task))
            else {
                panic!("an explanation");
            };
            match client.ask(&Request::Create(task)) {
                Reply::Granted(granted) => {
                    assert_eq!(answers[chosen.expect("a plugin") as usize].plugin, granted.plugin);
                    client.done(&Request::Release(granted.spec));
                }
                Reply::Refused(no) => assert_eq!((chosen, refusal), (None, Some(no)), "{task:?}"),
                other => panic!("{other:?}"),
            }
        }
    }
    // A refusal names the rule's line.
    let refusal = alice.connect(&daemon).refused(&Request::Create(with("rm", reserved(10, 2_001))));
    assert!(
        refusal.rule.as_deref().is_some_and(|rule| rule.starts_with("talead.toml:")),
        "{refusal:?}"
    );
}

#[test]
fn retif_w8_the_ledger_and_the_kernel_hold_the_granted_bandwidth() {
    needs_root!();
    let bench = Bench::new("w8");
    let daemon = Daemon::start(&bench, &edf(""));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let used = || -> u64 {
        (0..kernel::cpus().len())
            .map(|index| match client.ask(&Request::PluginCpu { plugin: 0, index }) {
                Reply::PluginCpu(info) => info.used.ppm(),
                other => panic!("{other:?}"),
            })
            .sum()
    };
    // The original reserved the required 10 % and granted the desired 60 %.
    let mut task = reserved(10, 1_000);
    task.params.desired = Some(work_us(6_000));
    let granted = client.create(task);
    assert_eq!((granted.runtime, granted.charge), (Some(work_us(6_000)), Charge::ratio(6, 10)));
    assert!((600_000..=600_004).contains(&used()), "{}", used());
    let tid = alice.thread();
    client.attach(granted.spec, tid);
    let Policy::Deadline { runtime, .. } = kernel::policy(tid) else {
        panic!("{:?}", kernel::policy(tid))
    };
    assert_eq!(runtime, Work::from_ns(6_000_000));
    client.done(&Request::Release(granted.spec));
}
