//! Threads that leave ordinary threads no CPU time.

use super::stage::{MS, Words, by, setup, timed, urgent, world, world_of};
use crate::LogEvent;
use crate::input::SessionId;
use crate::sim::Simulation;
use talea_core::setup::{Access, Bound, Domain, Rule};
use talea_core::{CpuSet, Span, Work};
use talea_proto::message::{DetachCause, SpecId};
use talea_proto::{Granted, Task};

/// Attaches a new thread under a grant on this CPU.
fn attach(world: &mut Simulation, session: SessionId, tid: u32, task: Task, cpu: u32) -> Granted {
    let uid = world.connections[&session].uid;
    world.kernel.spawn(tid, uid);
    let task = Task { cpus: CpuSet::single(cpu), cpus_mandatory: true, ..task };
    world.attached(session, task, tid)
}

/// Advances the time in steps of 10 ms. Each of `running` consumes its per cent of a CPU.
fn run(world: &mut Simulation, milliseconds: u64, running: &[(u32, u64)]) {
    for _ in 0..milliseconds / 10 {
        for &(tid, per_cent) in running {
            let consumed = world.canaries.consumed.entry(tid).or_default();
            *consumed = consumed.checked_add(Work::from_ns(per_cent * MS / 10)).expect("small");
        }
        world.advance(Span::from_ns(10 * MS));
        world.run_until_idle();
        world.broker.audit();
    }
}

fn is_attached(world: &mut Simulation, session: SessionId, spec: SpecId) -> bool {
    world.query(session, spec).expect("the spec stays").tid.is_some()
}

#[test]
fn attack_13_a_thread_that_starves_its_cpu_is_demoted_within_a_second() {
    let mut world = world();
    let alice = world.connect(1000);
    let hog = attach(&mut world, alice, 501, by(urgent(5), "fp"), 1);
    let quiet = attach(&mut world, alice, 502, by(urgent(9), "fp"), 1);
    let elsewhere = attach(&mut world, alice, 503, by(urgent(9), "rr"), 0);
    let deadline = attach(&mut world, alice, 504, by(timed(1_000, 10_000), "edf"), 1);
    run(&mut world, 1_000, &[(501, 90)]);
    assert_eq!(world.canaries.checked, CpuSet::first(2));
    assert!(is_attached(&mut world, alice, hog.spec), "its CPU is served");
    world.canaries.starved = CpuSet::single(1);
    run(&mut world, 400, &[(501, 100), (503, 100), (504, 10)]);
    assert!(is_attached(&mut world, alice, hog.spec), "not for long");
    run(&mut world, 500, &[(501, 100), (503, 100), (504, 10)]);
    assert!(!is_attached(&mut world, alice, hog.spec));
    let info = world.query(alice, hog.spec).expect("the spec stays");
    assert_eq!(info.detached, Some(DetachCause::Starvation));
    let found = &world.kernel.threads[&501];
    assert_eq!(found.attr, found.own, "the thread is restored");
    let is_logged = |event: &LogEvent| {
        matches!(event, LogEvent::Detached { tid: 501, cause: DetachCause::Starvation, .. })
    };
    assert_eq!(world.log.iter().filter(|&event| is_logged(event)).count(), 1);
    for granted in [&quiet, &elsewhere, &deadline] {
        assert!(is_attached(&mut world, alice, granted.spec), "{granted:?}");
    }
}

#[test]
fn attack_13_any_number_of_hogs_is_demoted_within_a_second() {
    let mut world = world();
    let alice = world.connect(1000);
    let hogs: Vec<Granted> =
        (0..30).map(|i| attach(&mut world, alice, 600 + i, by(urgent(5), "rr"), 1)).collect();
    // Those that are left take the time of those that are demoted.
    let running: Vec<(u32, u64)> = (0..30).map(|i| (600 + i, 50)).collect();
    run(&mut world, 300, &running);
    world.canaries.starved = CpuSet::single(1);
    run(&mut world, 1_000, &running);
    for hog in hogs {
        assert!(!is_attached(&mut world, alice, hog.spec), "{hog:?}");
    }
}

#[test]
fn the_grants_of_the_last_rule_are_demoted_first() {
    let mut rules = setup(&["fp", "rm"], 1);
    rules.access = Access::Rules;
    let rule = |uid| Rule {
        domain: Domain::User(uid),
        plugin: None,
        bound: Bound::AllowUnbounded(true),
        origin: String::new(),
    };
    rules.rules = vec![rule(1000), rule(1001)];
    let mut world = world_of(rules, 1);
    let (first, last, root) = (world.connect(1000), world.connect(1001), world.connect(0));
    let of_root = attach(&mut world, root, 500, by(urgent(5), "fp"), 0);
    let of_first = attach(&mut world, first, 501, by(urgent(5), "fp"), 0);
    let of_last = attach(&mut world, last, 502, by(urgent(5), "fp"), 0);
    let limited = attach(&mut world, last, 503, by(timed(50_000, 100_000), "rm"), 0);
    // Each would have half of the CPU alone.
    let running = [(500, 80), (501, 70), (502, 50), (503, 60)];
    run(&mut world, 300, &running);
    world.canaries.starved = CpuSet::single(0);
    let mut order = Vec::new();
    for _ in 0..300 {
        run(&mut world, 10, &running);
        for (session, spec) in [
            (last, of_last.spec),
            (first, of_first.spec),
            (root, of_root.spec),
            (last, limited.spec),
        ] {
            if !is_attached(&mut world, session, spec) && !order.contains(&spec) {
                order.push(spec);
            }
        }
        if order.len() == 3 {
            // Threads with a limit have more time.
            assert!(is_attached(&mut world, last, limited.spec));
        }
    }
    assert_eq!(order, [of_last.spec, of_first.spec, of_root.spec, limited.spec]);
}

#[test]
fn threads_of_others_are_logged_once_and_no_sleeping_grant_is_demoted() {
    let mut world = world();
    let alice = world.connect(1000);
    let quiet = attach(&mut world, alice, 501, by(urgent(5), "fp"), 1);
    run(&mut world, 300, &[(501, 1)]);
    world.canaries.starved = CpuSet::single(1);
    world.canaries.consumed.insert(501, Work::ZERO);
    run(&mut world, 3_000, &[]);
    assert!(is_attached(&mut world, alice, quiet.spec));
    let count = |world: &Simulation| {
        let of_others = |event: &&LogEvent| matches!(event, LogEvent::StarvedByOthers { cpu: 1 });
        world.log.iter().filter(of_others).count()
    };
    assert_eq!(count(&world), 1);
    // A grant that joins them is demoted.
    let hog = attach(&mut world, alice, 502, by(urgent(5), "fp"), 1);
    run(&mut world, 1_000, &[(502, 100)]);
    assert!(!is_attached(&mut world, alice, hog.spec));
    assert_eq!(count(&world), 1);
    world.canaries.starved = CpuSet::EMPTY;
    run(&mut world, 300, &[]);
    world.done(alice, talea_proto::Request::Release(quiet.spec));
    world.done(alice, talea_proto::Request::Release(hog.spec));
    world.check_idle(false);
}

#[test]
fn intervals_of_a_late_driver_do_not_count() {
    let mut world = world();
    let alice = world.connect(1000);
    let hog = attach(&mut world, alice, 501, by(urgent(5), "fp"), 1);
    run(&mut world, 300, &[(501, 50)]);
    world.canaries.starved = CpuSet::single(1);
    for _ in 0..10 {
        // The whole computer was stalled, or the daemon was stopped.
        world.canaries.consumed.insert(501, Work::from_ns(world.now.as_ns()));
        world.advance(Span::from_ns(900 * MS));
        world.run_until_idle();
    }
    assert!(is_attached(&mut world, alice, hog.spec));
    run(&mut world, 600, &[(501, 100)]);
    assert!(!is_attached(&mut world, alice, hog.spec));
}

#[test]
fn attack_13_a_small_grant_stays_beside_threads_that_starve_its_cpu() {
    let mut world = world();
    let (alice, bob) = (world.connect(1000), world.connect(1001));
    let small = attach(&mut world, alice, 501, by(urgent(5), "fp"), 1);
    // Its task is limited: it computes within its declaration.
    let limited = attach(&mut world, bob, 502, by(timed(700_000, 1_000_000), "rm"), 1);
    world.canaries.starved = CpuSet::single(1);
    // A thread without a grant has the rest, or a limited one.
    run(&mut world, 1_000, &[(501, 2)]);
    run(&mut world, 150, &[(501, 2), (502, 98)]);
    assert!(is_attached(&mut world, alice, small.spec));
    assert!(is_attached(&mut world, bob, limited.spec));
}
