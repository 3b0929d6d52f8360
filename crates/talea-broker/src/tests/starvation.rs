//! Threads that leave ordinary threads no CPU time.

use super::stage::{MS, Words, by, setup, timed, urgent, world, world_of};
use crate::LogEvent;
use crate::input::SessionId;
use crate::sim::{Simulation, Target};
use crate::starvation::is_fifo;
use talea_core::setup::{Access, Bound, Domain, Rule};
use talea_core::{CpuSet, Span, Work};
use talea_proto::message::{DetachCause, SpecId};
use talea_proto::{Code, Granted, Reply, Request, Task, ThreadRef};

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
fn the_machine_is_surveyed_for_served_clients_only() {
    let mut rules = setup(&["fp"], 1);
    rules.access = Access::Rules;
    rules.rules = vec![Rule {
        domain: Domain::User(1000),
        plugin: None,
        bound: Bound::AllowUnbounded(true),
        origin: String::new(),
    }];
    let mut world = world_of(rules, 1);
    let (alice, bob, root) = (world.connect(1000), world.connect(1001), world.connect(0));
    let is_served = [alice, bob, root].map(|session| world.broker.is_served(session));
    assert_eq!(is_served, [true, false, true]);
    let silent = world.open_connection(world.tid_of(alice), 1000, &[]);
    assert!(!world.broker.is_served(silent), "it has not said hello");
    assert!(!world.broker.is_served(SessionId(99)));
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
    world.done(alice, Request::Release(quiet.spec));
    world.done(alice, Request::Release(hog.spec));
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

/// Threads of one user that relieve each other on CPU 1.
struct Rotation {
    sessions: [SessionId; 2],
    specs: [SpecId; 2],
    /// Whether a relieved thread exits; otherwise it is detached.
    exits: bool,
    /// `running[i]`: last thread of spec `i`.
    running: [Option<u32>; 2],
    next: u32,
    longest: u64,
    total: u64,
    lasting: u64,
}

impl Rotation {
    fn new(world: &mut Simulation, uid: u32, exits: bool) -> Rotation {
        let task = Task { cpus: CpuSet::single(1), cpus_mandatory: true, ..by(urgent(5), "fp") };
        let sessions = [world.connect(uid), world.connect(uid)];
        let specs = sessions.map(|session| world.create(session, task).spec);
        let running = [None, None];
        let (next, longest, total, lasting) = (2_000, 0, 0, 0);
        Rotation { sessions, specs, exits, running, next, longest, total, lasting }
    }

    /// Attaches a new thread to spec `i`, unless an attach waits.
    fn attach(&mut self, world: &mut Simulation, i: usize) {
        let (session, spec) = (self.sessions[i], self.specs[i]);
        let connection = world.connections.get_mut(&session).expect("open");
        connection.replies.clear();
        if !connection.outstanding.is_empty() {
            return;
        }
        let uid = connection.uid;
        self.next += 1;
        world.kernel.spawn(self.next, uid);
        world.canaries.consumed.insert(self.next, Work::ZERO);
        let request = Request::Attach { spec, thread: ThreadRef::Pidfd };
        world.send(session, request, Some(Target::Thread(self.next)));
        self.running[i] = Some(self.next);
        world.run_until_idle();
    }

    /// Ends the turn of the thread of spec `i`.
    fn relieve(&mut self, world: &mut Simulation, i: usize) {
        if self.exits {
            let Some(tid) = self.running[i].take() else { return };
            world.kernel.end_process(tid, world.now);
        } else if world.connections[&self.sessions[i]].outstanding.is_empty() {
            world.send(self.sessions[i], Request::Detach(self.specs[i]), None);
        }
        world.run_until_idle();
    }

    /// Returns the threads that are FIFO threads now.
    fn urgent(&self, world: &Simulation) -> Vec<u32> {
        let is_urgent = |tid: &u32| {
            world.kernel.threads.get(tid).is_some_and(|thread| is_fifo(thread.attr.policy))
        };
        self.running.into_iter().flatten().filter(is_urgent).collect()
    }

    /// Relieves the running thread every 30 ms. Another thread consumes `other` per cent.
    fn run(&mut self, world: &mut Simulation, milliseconds: u64, other: (u32, u64)) {
        for turn in 0..(milliseconds / 30) as usize {
            // Neither a check nor an inspection comes between the two.
            self.attach(world, turn % 2);
            self.relieve(world, (turn + 1) % 2);
            for _ in 0..3 {
                let running: Vec<(u32, u64)> =
                    self.urgent(world).into_iter().map(|tid| (tid, 100 - other.1)).collect();
                let is_starved = !running.is_empty();
                let starved = if is_starved { CpuSet::single(1) } else { CpuSet::EMPTY };
                world.canaries.starved = starved;
                let all: Vec<(u32, u64)> = running.into_iter().chain([other]).collect();
                run(world, 10, &all);
                self.lasting = if is_starved { self.lasting + 10 } else { 0 };
                self.longest = self.longest.max(self.lasting);
                self.total += if is_starved { 10 } else { 0 };
            }
        }
    }
}

#[test]
fn attack_13_threads_that_relieve_each_other_are_demoted_like_one() {
    for exits in [false, true] {
        let mut world = world();
        let bob = world.connect(1001);
        let honest = attach(&mut world, bob, 501, by(urgent(9), "fp"), 1);
        let mut rotation = Rotation::new(&mut world, 1000, exits);
        rotation.run(&mut world, 20_000, (501, 5));
        let (longest, total) = (rotation.longest, rotation.total);
        println!("exits: {exits}: starved for {total} ms of 20 s, at most {longest} ms at once");
        assert!(longest <= 1_000, "exits: {exits}: starved for {longest} ms at once");
        assert!(total <= 6_000, "exits: {exits}: starved for {total} ms of 20 s");
        assert!(is_attached(&mut world, bob, honest.spec), "exits: {exits}");
    }
}

#[test]
fn attack_13_each_demotion_doubles_the_delay_of_the_next_attach() {
    let mut world = world();
    let alice = world.connect(1000);
    let hog = attach(&mut world, alice, 501, by(urgent(5), "fp"), 1);
    let elsewhere = attach(&mut world, alice, 502, by(urgent(5), "fp"), 0);
    let demote = |world: &mut Simulation| {
        world.canaries.starved = CpuSet::single(1);
        for _ in 0..100 {
            run(world, 10, &[(501, 100)]);
            if !is_attached(world, alice, hog.spec) {
                world.canaries.starved = CpuSet::EMPTY;
                run(world, 60, &[]);
                return;
            }
        }
        panic!("the hog is not demoted");
    };
    demote(&mut world);
    // A short delay: the attach waits.
    let before = world.now;
    assert_eq!(world.attach(alice, hog.spec, 501), Reply::Done);
    let waited = world.now.saturating_since(before).as_ns() / MS;
    assert!((250..=400).contains(&waited), "{waited} ms");
    demote(&mut world);
    let Reply::Refused(refusal) = world.attach(alice, hog.spec, 501) else {
        panic!("a longer delay");
    };
    assert_eq!((refusal.code, refusal.errno), (Code::Starvation, 0));
    assert!((600 * MS..=800 * MS).contains(&refusal.limit), "{refusal:?}");
    // Another CPU, and another policy, are not concerned.
    world.done(alice, Request::Detach(elsewhere.spec));
    assert_eq!(world.attach(alice, elsewhere.spec, 502), Reply::Done);
    let there = Task { cpus: CpuSet::single(1), cpus_mandatory: true, ..by(urgent(5), "fp") };
    let change = Request::Change { spec: elsewhere.spec, task: there };
    assert_eq!(world.refused(alice, change.clone()).code, Code::Starvation);
    let kept = world.query(alice, elsewhere.spec).expect("the spec stays");
    assert_eq!((kept.tid, kept.granted.cpu), (Some(502), Some(0)));
    // The delay ends.
    run(&mut world, 800, &[]);
    assert_eq!(world.attach(alice, hog.spec, 501), Reply::Done);
    assert!(matches!(world.call(alice, change), Reply::Granted(_)));
    // After a quiet time the delay is as short as at first.
    run(&mut world, 62_000, &[(501, 50)]);
    demote(&mut world);
    assert_eq!(world.attach(alice, hog.spec, 501), Reply::Done);
}

#[test]
fn attack_13_sleeping_threads_that_take_over_are_demoted_with_their_user() {
    let mut world = world();
    let (alice, bob) = (world.connect(1000), world.connect(1001));
    let specs: Vec<SpecId> =
        (0..60).map(|i| attach(&mut world, alice, 600 + i, by(urgent(5), "fp"), 1).spec).collect();
    let honest = attach(&mut world, bob, 501, by(urgent(9), "fp"), 1);
    let mut starved = 0;
    // The first of them computes. When it is demoted, the canary runs, and the next one follows.
    for _ in 0..1_000 {
        let attached = |world: &mut Simulation| {
            (0..60).find(|&i| is_fifo(world.kernel.threads[&(600 + i)].attr.policy))
        };
        let Some(i) = attached(&mut world) else { break };
        world.canaries.starved = CpuSet::single(1);
        while is_fifo(world.kernel.threads[&(600 + i)].attr.policy) {
            run(&mut world, 10, &[(600 + i, 100), (501, 2)]);
            starved += 10;
        }
        world.canaries.starved = CpuSet::EMPTY;
        run(&mut world, 60, &[(501, 2)]);
    }
    println!("starved for {starved} ms");
    assert!(starved <= 3_000, "starved for {starved} ms");
    assert!(specs.iter().all(|&spec| !is_attached(&mut world, alice, spec)));
    assert!(is_attached(&mut world, bob, honest.spec));
}
