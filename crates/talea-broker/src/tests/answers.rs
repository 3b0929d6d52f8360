//! Tests of answers that depend on the thread and the machine: zero-lag holds, affinities, control
//! groups, limits, ungranted threads. `explain` returns the answer of the request that it explains.

use super::stage::{MS, Words, by, owned, setup, timed, urgent, world, world_of};
use crate::input::Platform;
use crate::sim::{Rng, Simulation, Target};
use talea_core::{CpuSet, Policy, Priority, Span, Work};
use talea_proto::message::Notes;
use talea_proto::refusal::{PluginVerdict, RejectionReason, Witness};
use talea_proto::{Code, Owner, Refusal, Reply, Request, Task, ThreadRef};

fn reason(refusal: &Refusal, plugin: usize) -> RejectionReason {
    match refusal.answers[plugin].verdict {
        PluginVerdict::No(no) => no.reason,
        other => panic!("{other:?}"),
    }
}

/// Returns the task for a thread of this request.
fn meant(task: Task) -> Task {
    Task { thread: Some(ThreadRef::Pidfd), ..task }
}

fn explain(world: &mut Simulation, session: crate::SessionId, task: Task, tid: u32) -> Reply {
    world.call_about(session, Request::Explain(meant(task)), Some(Target::Thread(tid)))
}

/// Creates a thread with this mask in the process of the connection.
fn masked(world: &mut Simulation, session: crate::SessionId, tid: u32, cpus: CpuSet) {
    let (pid, mut own) = (world.tid_of(session), world.kernel.ordinary());
    own.cpus = cpus;
    world.kernel.spawn_thread(tid, pid, own);
}

#[test]
fn a_hold_of_more_than_a_second_is_named_and_other_plugins_are_asked_at_once() {
    for (period_us, waits) in [(900_000, true), (4_000_000, false)] {
        let mut world = world_of(setup(&["edf", "rm"], 1), 1);
        let client = world.connect(1000);
        let task = timed(period_us * 8 / 10, period_us);
        let tid = world.tid_of(client);
        let spec = world.attached(client, by(task, "edf"), tid).spec;
        world.done(client, Request::Release(spec));
        let ended = world.now;
        let Reply::Explained { chosen, answers, .. } =
            world.call(client, Request::Explain(by(task, "edf")))
        else {
            panic!("explained")
        };
        assert_eq!(chosen.is_some(), waits, "{answers:?}");
        let waited = world.now.since(ended).as_ns() / MS;
        assert_eq!(waited, if waits { 900 } else { 0 });
        if waits {
            world.create(client, by(task, "edf"));
            continue;
        }
        world.advance(Span::from_ns(1_500 * MS));
        let refusal = world.refused(client, Request::Create(by(task, "edf")));
        let PluginVerdict::No(no) = refusal.answers[0].verdict else { panic!("no") };
        let left = Span::from_ns(2_500 * MS);
        assert_eq!(no.witness, Some(Witness::Held { free_in: left }), "{refusal}");
        assert!(refusal.to_string().contains("repeat the request in 2500ms"), "{refusal}");
        world.advance(left);
        world.create(client, by(task, "edf"));
    }
}

#[test]
fn a_request_that_waits_delays_no_other_and_ends_with_its_connection_or_the_daemon() {
    for what in ["granted", "hangs up", "stop"] {
        let mut world = world();
        let (client, other) = (world.connect(1000), world.connect(1000));
        let task = Task {
            cpus: CpuSet::single(0),
            cpus_mandatory: true,
            ..by(timed(60_000, 100_000), "edf")
        };
        let tid = world.tid_of(client);
        let spec = world.attached(client, task, tid).spec;
        world.done(client, Request::Release(spec));
        let group = Request::CreateGroup(vec![by(urgent(5), "fp"), task]);
        world.send(client, group, None);
        world.run_until_idle();
        let answered = |world: &Simulation| world.connections[&client].outstanding.is_empty();
        assert!(!answered(&world));
        world.create(other, by(timed(10_000, 100_000), "rm"));
        match what {
            "granted" => {
                world.advance(Span::from_ns(100 * MS));
                world.run_until_idle();
                assert!(answered(&world));
                assert_eq!(world.broker.specs(), 3);
            }
            "hangs up" => {
                world.close_connection(client);
                world.run_until_idle();
                assert_eq!(world.broker.specs(), 1, "the group's first task is released");
                assert_eq!(world.broker.next_wakeup(), None);
            }
            _ => {
                let root = world.connect(0);
                world.call(root, Request::Stop { release: true });
                assert!(answered(&world) && world.exited);
            }
        }
        world.check_idle(false);
    }
}

#[test]
fn a_mask_restricts_the_placement_at_create_and_at_attach() {
    for plugin in ["fp", "rm", "edf"] {
        let task = match plugin {
            "fp" => by(urgent(5), "fp"),
            other => by(timed(1_000, 10_000), other),
        };
        let mut world = world();
        let client = world.connect(1000);
        masked(&mut world, client, 500, CpuSet::single(1));
        // At attach: the spec is on CPU 0, because the thread was not known at create.
        let spec = world.create(client, task).spec;
        assert_eq!(world.attach(client, spec, 500), Reply::Done, "{plugin}");
        assert_eq!(world.attr_of(500).cpus, CpuSet::single(1));
        assert_eq!(world.query(client, spec).map(|info| info.granted.cpu), Some(Some(1)));
        // A change stays inside.
        let more = Task { cpus: CpuSet::single(0), ..task };
        match world.call(client, Request::Change { spec, task: more }) {
            Reply::Granted(granted) => assert_eq!(granted.cpu, Some(1)),
            other => panic!("{other:?}"),
        }
        // Mandatory CPUs of a task that names its thread must not contradict the mask.
        let only = Task { cpus_mandatory: true, ..more };
        let create = Request::Create(meant(only));
        let said = world.call_about(client, create, Some(Target::Thread(500)));
        assert!(matches!(said, Reply::Refused(refusal) if refusal.code == Code::NoPlugin));
        world.done(client, Request::Release(spec));
        // At create: the task names the thread.
        let create = Request::Create(meant(task));
        match world.call_about(client, create, Some(Target::Thread(500))) {
            Reply::Granted(granted) => assert_eq!(granted.cpu, Some(1)),
            other => panic!("{other:?}"),
        }
        world.check_idle(false);
    }
}

#[test]
fn a_mask_outside_the_plugins_cpus_is_named_in_the_refusal() {
    let mut small = setup(&["rm", "fp"], 2);
    for plugin in &mut small.plugins {
        plugin.cpus = CpuSet::single(0);
    }
    let mut world = world_of(small, 4);
    let client = world.connect(1000);
    masked(&mut world, client, 500, CpuSet::parse("1,3").expect("a list"));
    let spec = world.create(client, urgent(5)).spec;
    let Reply::Refused(refusal) = world.attach(client, spec, 500) else { panic!("refused") };
    assert_eq!(reason(&refusal, 1), RejectionReason::OutsideMask);
    assert!(refusal.to_string().contains("the thread may use only CPUs 1,3"), "{refusal}");
    world.check_idle(false);
    assert_eq!(world.query(client, spec).map(|info| info.tid), Some(None), "the spec stays");
    match explain(&mut world, client, urgent(5), 500) {
        Reply::Explained { chosen: None, refusal: Some(said), .. } => {
            assert_eq!(said.answers, refusal.answers);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn isolated_cpus_are_open_to_a_thread_that_was_never_restricted() {
    let platform = Platform { default_cpus: CpuSet::first(2), ..Platform::declared(4) };
    let mut isolated = setup(&["fp"], 4);
    isolated.plugins[0].cpus = CpuSet::parse("2-3").expect("a list");
    let mut world = Simulation::new(isolated, platform, true, Rng::Seed(1));
    let client = world.connect(1000);
    masked(&mut world, client, 500, CpuSet::first(2));
    let spec = world.create(client, urgent(5)).spec;
    assert_eq!(world.attach(client, spec, 500), Reply::Done);
    assert_eq!(world.attr_of(500).cpus, CpuSet::single(2));
}

#[test]
fn a_group_without_runtime_and_a_time_limit_leave_only_the_deadline_class() {
    for limited in [false, true] {
        let mut world = world();
        let client = world.connect(1000);
        let tid = world.tid_of(client);
        let thread = world.kernel.threads.get_mut(&tid).expect("the thread exists");
        if limited {
            thread.rt_time = Some(Work::from_ns(500_000));
        } else {
            thread.fifo = false;
        }
        let expected =
            if limited { RejectionReason::TimeLimit } else { RejectionReason::NoRealTimeGroup };
        // A task with a runtime moves from `rm` to `edf` at attach.
        let spec = world.create(client, by(timed(1_000, 10_000), "rm")).spec;
        let Reply::Refused(refusal) = world.attach(client, spec, tid) else { panic!("refused") };
        assert_eq!(reason(&refusal, 0), expected);
        match explain(&mut world, client, timed(1_000, 10_000), tid) {
            Reply::Explained { chosen: Some(0), answers, .. } => {
                assert!(
                    matches!(answers[1].verdict, PluginVerdict::No(no) if no.reason == expected)
                );
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(world.attr_of(tid), world.kernel.ordinary());
    }
}

#[test]
fn deadline_threads_without_a_grant_are_charged_and_others_noted() {
    let mut world = Simulation::new(
        {
            let mut global = setup(&["edf", "rm", "fp"], 2);
            if let talea_core::setup::PluginKind::Edf(options) = &mut global.plugins[0].kind {
                options.confine = talea_core::setup::Confine::Global;
            }
            global
        },
        Platform::declared(2),
        false,
        Rng::Seed(1),
    );
    let client = world.connect(1000);
    for tid in [500, 501] {
        masked(&mut world, client, tid, CpuSet::first(2));
        world.kernel.threads.get_mut(&tid).expect("the thread exists").attr.policy =
            Policy::Deadline {
                runtime: Work::from_ns(80 * MS),
                deadline: Span::from_ns(100 * MS),
                period: Span::from_ns(100 * MS),
            };
    }
    let task = timed(40_000, 100_000);
    let refusal = world.refused(client, Request::Create(task));
    for plugin in 0..2 {
        assert_eq!(reason(&refusal, plugin), RejectionReason::NoRoomBesideUngranted, "{refusal}");
    }
    world.kernel.end_thread(500, world.now);
    world.kernel.end_thread(501, world.now);
    // The kernel still counts them, which only the attach shows: it waits.
    let (tid, asked) = (world.tid_of(client), world.now);
    world.attached(client, task, tid);
    assert_eq!(world.now.since(asked), Span::from_ns(100 * MS));
    masked(&mut world, client, 502, CpuSet::single(1));
    world.kernel.threads.get_mut(&502).expect("the thread exists").attr.policy =
        Policy::Fifo(Priority(90));
    let below =
        world.create(client, Task { cpus: CpuSet::single(1), cpus_mandatory: true, ..urgent(5) });
    assert!(below.notes.contains(Notes::UNGRANTED_ABOVE));
    let beside =
        world.create(client, Task { cpus: CpuSet::single(0), cpus_mandatory: true, ..urgent(5) });
    assert!(!beside.notes.contains(Notes::UNGRANTED_ABOVE));
}

#[test]
fn r36_an_adopting_daemon_holds_only_what_the_kernel_still_counts() {
    for (pause_ms, waited_ms) in [(0, 2_000), (500, 2_000), (2_000, 0)] {
        let mut world = world_of(setup(&["edf"], 1), 1);
        let client = world.connect(1000);
        let task = owned(timed(1_600_000, 2_000_000), Owner::Thread);
        masked(&mut world, client, 500, CpuSet::first(1));
        world.attached(client, task, 500);
        world.kernel.end_thread(500, world.now);
        // The daemon has ended before the thread, and no broker runs until the next request.
        world.now = world.now.saturating_add(Span::from_ns(pause_ms * MS));
        world.restart();
        world.run_until_idle();
        let client = world.connect(1000);
        match world.call(client, Request::Create(task)) {
            Reply::Granted(_) => assert_eq!(waited_ms, 0),
            Reply::Refused(refusal) => {
                let PluginVerdict::No(no) = refusal.answers[0].verdict else { panic!("no") };
                let free_in = Span::from_ns(waited_ms * MS);
                assert_eq!(no.witness, Some(Witness::Held { free_in }), "{refusal}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_reserved_cpu_takes_no_other_task_and_the_refusal_names_the_executor() {
    let mut world = world();
    let (executor, client) = (world.connect(0), world.connect(1000));
    let whole = |cpu: u32| Task {
        cpus: CpuSet::single(cpu),
        cpus_mandatory: true,
        exclusive: true,
        owner: Owner::Process,
        ..timed(1_000_000, 1_000_000)
    };
    let before = world.create(client, by(urgent(5), "fp"));
    assert_eq!(before.cpu, Some(0));
    let reserved = world.create(executor, by(whole(0), "rm")).spec;
    for restarted in [false, true] {
        let client = if restarted {
            world.restart();
            world.run_until_idle();
            world.connect(1000)
        } else {
            client
        };
        for task in [by(urgent(9), "fp"), timed(1_000, 10_000)] {
            assert_eq!(world.create(client, task).cpu, Some(1));
            let there = Task { cpus: CpuSet::single(0), cpus_mandatory: true, ..task };
            let refusal = world.refused(client, Request::Create(there));
            let pid = world.kernel.processes.keys().next().copied().expect("the executor");
            let by_it = |no: talea_proto::Rejection| {
                no.reason == RejectionReason::Reserved && no.asked == u64::from(pid)
            };
            let named = refusal
                .answers
                .iter()
                .any(|answer| matches!(answer.verdict, PluginVerdict::No(no) if by_it(no)));
            assert!(named, "{refusal}");
        }
        if !restarted {
            // A grant from before the reservation may change its terms.
            let change = Request::Change { spec: before.spec, task: by(urgent(7), "fp") };
            assert!(matches!(world.call(client, change), Reply::Granted(_)));
        }
    }
    let root = world.connect(0);
    world.done(root, Request::Release(reserved));
    let there = Task { cpus: CpuSet::single(0), cpus_mandatory: true, ..urgent(3) };
    let client = world.connect(1000);
    world.create(client, there);
}

/// A random thread and a random task in a random world: `explain` for the thread, and a create and
/// an attach of it, give the same answer.
#[test]
fn explain_gives_the_answer_of_the_request_in_a_thousand_random_worlds() {
    let (mut granted, mut refused) = (0, 0);
    for seed in 0..1_000 {
        let mut rng = Rng::Seed(seed);
        let cpus = rng.pick(&[1, 2, 4]);
        let mut plugins = setup(&["edf", "rm", "fp", "rr"], cpus);
        let pinned = rng.chance(500);
        if let talea_core::setup::PluginKind::Edf(options) = &mut plugins.plugins[0].kind
            && !pinned
        {
            options.confine = talea_core::setup::Confine::Global;
        }
        let mut world = Simulation::new(plugins, Platform::declared(cpus), pinned, Rng::Seed(seed));
        let (client, other) = (world.connect(1000), world.connect(1000));
        let share = |rng: &mut Rng| {
            let period = rng.pick(&[10, 50, 100, 400, 2_000]) * 1_000;
            (period * rng.pick(&[5, 10, 30, 60, 80]) / 100, period)
        };
        // Threads without a grant, as far as the kernel admits them.
        for tid in 600..600 + rng.below(3) as u32 {
            let (runtime, period) = share(&mut rng);
            let domain = if pinned { CpuSet::single(0) } else { CpuSet::first(cpus) };
            masked(&mut world, client, tid, domain);
            let facts = world.kernel.open(tid).expect("the thread exists");
            let attr = talea_core::Attr {
                policy: Policy::Deadline {
                    runtime: Work::from_ns(runtime * 1_000),
                    deadline: Span::from_ns(period * 1_000),
                    period: Span::from_ns(period * 1_000),
                },
                reset_on_fork: false,
                cpus: domain,
            };
            if world.kernel.set(facts.thread, &attr, world.now, None).is_ok() {
                world.kernel.threads.get_mut(&tid).expect("the thread exists").own = attr;
            }
            world.kernel.close(facts.thread);
        }
        // Grants, of which some have ended.
        for tid in 500..500 + rng.below(4) as u32 {
            let (runtime, period) = share(&mut rng);
            // Of another process: a thread of the same one could have inherited its mask from them.
            masked(&mut world, other, tid, CpuSet::first(cpus));
            let task = owned(timed(runtime, period), Owner::Thread);
            let Reply::Granted(spec) = world.call(client, Request::Create(task)) else { continue };
            world.attach(client, spec.spec, tid);
            if rng.chance(500) {
                world.kernel.end_thread(tid, world.now);
                world.run_until_idle();
            }
        }
        let words = [1 + rng.below((1 << cpus) - 1)];
        let mask = CpuSet::from_words(std::array::from_fn(|i| words.get(i).copied().unwrap_or(0)));
        masked(&mut world, client, 700, mask);
        let thread = world.kernel.threads.get_mut(&700).expect("the thread exists");
        thread.fifo = !rng.chance(200);
        thread.rt_time = rng.chance(200).then(|| Work::from_ns(rng.below(50 * MS)));
        let (runtime, period) = share(&mut rng);
        let mut task = match rng.below(4) {
            0 => urgent(1 + rng.below(90) as u8),
            1 => Task {
                params: talea_core::Params {
                    priority: Some(Priority(7)),
                    ..timed(runtime, period).params
                },
                ..Task::default()
            },
            _ => timed(runtime, period),
        };
        task.owner = Owner::Thread;
        let Reply::Explained { chosen, answers, refusal } = explain(&mut world, client, task, 700)
        else {
            panic!("{seed}: explained")
        };
        let named = rng.chance(500);
        let create = Request::Create(if named { meant(task) } else { task });
        let run = match world.call_about(client, create, named.then_some(Target::Thread(700))) {
            Reply::Granted(granted) => world.attach(client, granted.spec, 700),
            refused => refused,
        };
        match (chosen, run) {
            (Some(_), Reply::Done) => {
                granted += 1;
                assert!(world.attr_of(700).cpus.is_subset(&mask), "{seed}: outside of the mask");
            }
            (None, Reply::Refused(said)) => {
                refused += 1;
                let refusal = refusal.expect("a refusal");
                assert_eq!(said.code, refusal.code, "{seed}");
            }
            (chosen, run) => panic!("{seed}: {chosen:?} {answers:?}, but {run:?}"),
        }
        world.check_idle(false);
    }
    assert!(granted > 200 && refused > 200, "{granted} granted, {refused} refused");
}
