//! Choice of the plugin and the CPU of a task, and requests that are refused at once.

use crate::tasks::{ms, periodic, ranked, reserved, with, work_us};
use talea_core::{CpuSet, Params, Span};
use talea_kernel_tests::{ALICE, Agent, Bench, Client, Daemon, config, kernel, needs, needs_root};
use talea_os::sched::Policy;
use talea_proto::message::Notes;
use talea_proto::{Code, Field, Reply, Request, Task};

#[test]
fn r10_a_named_plugin_is_the_only_one_asked() {
    needs_root!();
    let bench = Bench::new("r10");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let names = |plugin: u32| match client.ask(&Request::Plugin(plugin)) {
        Reply::Plugin(info) => info.name.as_str().to_owned(),
        other => panic!("{other:?}"),
    };
    for plugin in ["rm", "rr", "fp"] {
        let mut task = with(plugin, periodic(10));
        task.params.priority = Some(talea_core::Priority(7));
        assert_eq!(names(client.create(task).plugin), plugin);
    }
    // A plugin that can't serve it is not replaced by one that can.
    let refusal = client.refused(&Request::Create(with("rm", ranked(7))));
    assert_eq!(refusal.code, Code::NoPlugin);
    assert_eq!(refusal.answers.len(), 1);
    let refusal = client.refused(&Request::Create(with("nonesuch", periodic(10))));
    assert_eq!((refusal.code, refusal.field), (Code::UnknownPlugin, Field::Plugin));
}

#[test]
fn r12_what_the_kernel_would_refuse_is_refused_at_create() {
    needs_root!();
    let bench = Bench::new("r12");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let edf = |period: Span, runtime_ns: u64, deadline: Option<Span>| {
        let params = Params {
            period: Some(period),
            runtime: Some(talea_core::Work::from_ns(runtime_ns)),
            deadline,
            ..Params::default()
        };
        with("edf", Task { params, ..Task::default() })
    };
    for (what, task) in [
        ("a deadline beyond the period", edf(ms(10), 1_000_000, Some(ms(20)))),
        ("a runtime below 1,024 ns", edf(ms(10), 1_000, None)),
        ("a period below 100 us", edf(Span::from_ns(50_000), 5_000, None)),
        ("a period above 4.2 s", edf(ms(5_000), 1_000_000, None)),
        ("a runtime beyond the period", edf(ms(10), 11_000_000, None)),
    ] {
        let refusal = client.refused(&Request::Create(task));
        assert!(matches!(refusal.code, Code::NoPlugin | Code::Malformed), "{what}: {refusal:?}");
    }
    assert_eq!(client.status().specs, 0);
    // And what is accepted is never refused at attach, at the very edges either.
    for task in [
        edf(ms(10), 1_024, None),
        edf(Span::from_ns(100_000), 5_000, None),
        edf(Span::from_ns(4_194_304_000), 1_000_000, None),
        edf(ms(10), 1_000_000, Some(ms(2))),
    ] {
        let granted = client.create(task);
        let tid = alice.thread();
        client.attach(granted.spec, tid);
        assert!(kernel::policy(tid).is_deadline());
        client.done(&Request::Release(granted.spec));
    }
}

#[test]
fn r12_retif_w12_an_impossible_task_is_no_task_of_the_lowest_priority() {
    needs_root!();
    let bench = Bench::new("w12");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let mut task = reserved(10, 20_000);
    task.params.priority = Some(talea_core::Priority(1));
    let refusal = client.refused(&Request::Create(task));
    assert_eq!((refusal.code, refusal.field), (Code::Malformed, Field::Runtime));
    assert_eq!((refusal.asked, refusal.limit), (20_000_000, 10_000_000));
}

/// Returns, for each CPU of a plugin, its number of specs and the charge of all plugins in ppm.
fn per_cpu(client: &Client, plugin: u32) -> Vec<(u32, u64)> {
    (0..)
        .map_while(|index| match client.ask(&Request::PluginCpu { plugin, index }) {
            Reply::PluginCpu(info) => Some((info.specs, info.used.ppm())),
            _ => None,
        })
        .collect()
}

#[test]
fn r13_retif_w7_the_least_loaded_cpu_is_really_the_least_loaded() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("r13");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    // 50 %, then 20 + 20 beside it on the empty CPU, then 30 onto the one with 40.
    let place = |runtime_us: u64| {
        let granted = client.create(with("rm", reserved(10, runtime_us)));
        let tid = alice.thread();
        client.attach(granted.spec, tid);
        let cpu = granted.cpu.expect("rm places on one CPU");
        assert_eq!(kernel::affinity(tid), CpuSet::single(cpu));
        (cpu, granted.spec)
    };
    let (first, _) = place(5_000);
    let (second, _) = place(2_000);
    let (third, _) = place(2_000);
    let (fourth, _) = place(500);
    assert_ne!(first, second);
    assert_eq!(second, third);
    assert_eq!(fourth, second);
    let used: Vec<u64> = per_cpu(&client, 1).iter().map(|&(_, used)| used).collect();
    assert!(used.iter().all(|&used| used <= 1_000_000), "no CPU is overloaded: {used:?}");
}

#[test]
fn r14_ignoring_the_test_needs_permission_and_the_kernel_still_decides() {
    needs_root!();
    let bench = Bench::new("r14");
    let rules = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"rm\"\nignore_adm_test = true\n\
         [[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"edf\"\nmax_utilization = 10.0\n"
    );
    let daemon = Daemon::start(&bench, &config::with_rules(&rules));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let over = |plugin: &str| {
        let mut task = with(plugin, reserved(10, 9_000));
        task.ignore_admission = true;
        task
    };
    let cpus = kernel::cpus().len();
    let mut overloaded = false;
    for _ in 0..=cpus {
        let granted = client.create(over("rm"));
        overloaded |= granted.notes.contains(Notes::ADMISSION_IGNORED);
        let tid = alice.thread();
        client.attach(granted.spec, tid);
        assert!(kernel::policy(tid).is_realtime());
        assert_eq!(granted.runtime, Some(work_us(9_000)), "Q, not more");
    }
    assert!(overloaded, "more tasks of 90 % than CPUs fail every test");
    let refusal = client.refused(&Request::Create(over("edf")));
    let denied = refusal.code != Code::NoPlugin || !refusal.answers.is_empty();
    assert!(denied, "{refusal:?}");
}

#[test]
fn r31_plugins_on_the_same_cpus_account_for_each_other() {
    needs_root!();
    let bench = Bench::new("r31");
    let rm = |name: &str, band: &str| {
        format!(
            "[[plugin]]\nname = \"{name}\"\nkind = \"rm\"\ncpus = \"0\"\npriorities = \"{band}\"\n\
             test = \"necessary\"\n"
        )
    };
    let config =
        format!("[daemon]\naccess = \"off\"\n{}{}", rm("one", "60-69"), rm("two", "50-59"));
    let daemon = Daemon::start(&bench, &config);
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let first = client.create(with("one", reserved(10, 6_000)));
    let refusal = client.refused(&Request::Create(with("two", reserved(10, 6_000))));
    assert_eq!(refusal.code, Code::NoPlugin, "120 % of one CPU");
    let second = client.create(with("two", reserved(10, 3_000)));
    let used = per_cpu(&client, 0)[0].1;
    assert_eq!(used, per_cpu(&client, 1)[0].1, "both see the same ledger");
    assert!((900_000..=900_002).contains(&used), "60 % and 30 %, rounded up: {used}");
    client.done(&Request::Release(first.spec));
    client.done(&Request::Release(second.spec));
    client.create(with("two", reserved(10, 9_000)));
}

#[test]
fn r35_cpus_may_be_required_or_preferred() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("r35");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let on = |cpu: u32, mandatory: bool, task: Task| Task {
        cpus: CpuSet::single(cpu),
        cpus_mandatory: mandatory,
        ..task
    };
    for cpu in [1, 1, 0] {
        let granted = client.create(on(cpu, true, with("fp", ranked(5))));
        assert_eq!(granted.cpu, Some(cpu));
        let tid = alice.thread();
        client.attach(granted.spec, tid);
        assert_eq!(kernel::affinity(tid), CpuSet::single(cpu));
    }
    // 90 % are on CPU 0: the next 90 % can't be there.
    let full = client.create(on(0, true, with("rm", reserved(10, 9_000))));
    let refusal = client.refused(&Request::Create(on(0, true, with("rm", reserved(10, 9_000)))));
    assert_eq!(refusal.code, Code::NoPlugin);
    let elsewhere = client.create(on(0, false, with("rm", reserved(10, 9_000))));
    assert_ne!(elsewhere.cpu, full.cpu);
    assert!(elsewhere.notes.contains(Notes::PREFERRED_CPUS_IGNORED));
    let absent = client.refused(&Request::Create(on(1_000, true, with("rm", periodic(10)))));
    assert_eq!((absent.code, absent.field), (Code::Malformed, Field::Cpus));
}

#[test]
fn r8_a_desired_runtime_is_granted_as_far_as_there_is_room() {
    needs_root!();
    let bench = Bench::new("r8");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let mut task = with("edf", reserved(10, 1_000));
    task.params.desired = Some(work_us(2_000));
    let granted = client.create(task);
    assert_eq!(granted.runtime, Some(work_us(2_000)));
    let tid = alice.thread();
    client.attach(granted.spec, tid);
    let Policy::Deadline { runtime, period, .. } = kernel::policy(tid) else {
        panic!("{:?}", kernel::policy(tid));
    };
    assert_eq!((runtime, period), (work_us(2_000), ms(10)), "the kernel has Q^a");
    assert_eq!(client.query(granted.spec).granted.runtime, Some(work_us(2_000)));
}
