//! Deferred orders: threads asleep in another root domain, threads with an overrun.

use super::stage::{MS, Words, by, setup, timed, urgent, world, world_of};
use crate::input::LogEvent;
use talea_core::{CpuSet, Policy, Span};
use talea_proto::message::{Caveat, Notes};
use talea_proto::{Code, Owner, Reply, Request, Task, ThreadRef};

fn on_cpu(cpu: u32, runtime_us: u64) -> Task {
    Task { cpus: CpuSet::single(cpu), cpus_mandatory: true, ..by(timed(runtime_us, 10_000), "edf") }
}

fn is_deadline(world: &crate::sim::Simulation, tid: u32) -> bool {
    matches!(world.attr_of(tid).policy, Policy::Deadline { .. })
}

#[test]
fn r12_a_thread_asleep_in_another_domain_gets_its_deadline_when_it_wakes() {
    let mut world = world();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let spec = world.create(client, on_cpu(1, 1_000)).spec;
    world.kernel.put_to_sleep(tid, 0);
    // The thread may be waiting for this reply, so the reply is sent at once and reports the
    // restriction.
    assert_eq!(world.attach(client, spec, tid), Reply::DoneWithCaveat(Caveat::PendingWakeup));
    assert!(!is_deadline(&world, tid));
    assert_eq!(world.attr_of(tid).cpus, CpuSet::single(1), "the thread moves when it wakes");
    let info = world.query(client, spec).expect("its spec");
    assert_eq!((info.tid, info.attr), (Some(tid), None), "pending attributes are not reported");
    world.check_idle(false);
    // The reservation holds: no other request may use the thread or the capacity.
    let other = world.create(client, on_cpu(0, 1_000)).spec;
    assert!(
        matches!(world.attach(client, other, tid), Reply::Refused(r) if r.code == Code::ThreadTaken)
    );
    world.kernel.wake(tid);
    world.advance(Span::from_ns(2 * MS));
    world.run_until_idle();
    assert!(is_deadline(&world, tid));
    assert!(world.query(client, spec).expect("its spec").attr.is_some());
    assert_eq!(world.broker.next_wakeup(), world.broker.inspection_at, "no retry remains");
    world.done(client, Request::Release(spec));
    world.check_idle(false);
}

/// The thread may be waiting for the reply to its change, so the change is answered at once.
/// Meanwhile the thread is ordinary: neither the old nor the new terms cover a real-time policy on
/// the CPUs where it will wake.
#[test]
fn r7_a_change_of_a_thread_asleep_in_another_domain_takes_effect_when_it_wakes() {
    for then in ["wakes", "is detached", "is changed back", "restart"] {
        let mut setup = setup(&["edf", "fp"], 2);
        setup.plugins[0].cpus = CpuSet::single(0);
        setup.plugins[1].cpus = CpuSet::single(1);
        let mut world = world_of(setup, 2);
        let client = world.connect(1000);
        let pid = world.tid_of(client);
        let own = world.kernel.ordinary();
        world.kernel.spawn_thread(500, pid, own);
        let low = Task { owner: Owner::Thread, ..by(urgent(10), "fp") };
        let spec = world.attached(client, low, 500).spec;
        world.kernel.put_to_sleep(500, 1);
        let change = Request::Change { spec, task: by(timed(1_000, 10_000), "edf") };
        match world.call(client, change) {
            Reply::Granted(granted) => {
                assert!(granted.notes.contains(Notes::PENDING_WAKEUP), "{granted:?}");
                assert_eq!(granted.cpu, Some(0));
            }
            other => panic!("{other:?}"),
        }
        let pending = world.attr_of(500);
        assert_eq!(pending, talea_core::Attr { cpus: CpuSet::single(0), ..own }, "{then}");
        let info = world.query(client, spec).expect("its spec");
        assert_eq!((info.tid, info.attr), (Some(500), None), "pending attributes are not reported");
        world.check_idle(false);
        match then {
            "is detached" => world.done(client, Request::Detach(spec)),
            "is changed back" => {
                let back = Request::Change { spec, task: low };
                match world.call(client, back) {
                    Reply::Granted(granted) => {
                        assert!(!granted.notes.contains(Notes::PENDING_WAKEUP), "{granted:?}");
                    }
                    other => panic!("{other:?}"),
                }
                assert!(matches!(world.attr_of(500).policy, Policy::Fifo(_)));
            }
            _ => {
                if then == "restart" {
                    world.restart();
                    world.run_until_idle();
                }
                // Retries before the wake-up change nothing.
                world.advance(Span::from_ns(20 * MS));
                world.run_until_idle();
                assert_eq!(world.attr_of(500), pending, "{then}");
                world.kernel.wake(500);
                world.advance(Span::from_ns(1_000 * MS));
                world.run_until_idle();
                assert!(is_deadline(&world, 500), "{then}");
            }
        }
        world.check_idle(false);
    }
}

#[test]
fn r12_retries_for_sleeping_threads_back_off_and_are_bounded_per_user() {
    let mut world = world_of(setup(&["edf"], 2), 2);
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    let sleep = |world: &mut crate::sim::Simulation, tid: u32| {
        let own = world.kernel.ordinary();
        world.kernel.spawn_thread(tid, pid, own);
        world.kernel.put_to_sleep(tid, 0);
        let spec = world.create(client, on_cpu(1, 10)).spec;
        assert_eq!(world.attach(client, spec, tid), Reply::DoneWithCaveat(Caveat::PendingWakeup));
    };
    let looks = |world: &mut crate::sim::Simulation, span: Span| {
        let (end, mut looks) = (world.now.saturating_add(span), 0);
        while let Some(at) = world.broker.next_wakeup().filter(|&at| at <= end) {
            world.now = world.now.max(at);
            let inspects = world.broker.inspection_at == Some(at);
            world.handle_input(crate::Input::Timer);
            while world.run_effect() {
                looks += u32::from(!inspects);
            }
            world.run_until_idle();
        }
        world.now = end;
        looks
    };
    sleep(&mut world, 500);
    let first = looks(&mut world, Span::from_ns(10 * MS));
    assert!((2..=4).contains(&first), "{first} retries in its first 10 ms");
    looks(&mut world, Span::from_ns(5_000 * MS));
    let later = looks(&mut world, Span::from_ns(10_000 * MS));
    assert!((9..=11).contains(&later), "{later} retries in ten later seconds");
    for tid in 501..600 {
        sleep(&mut world, tid);
    }
    looks(&mut world, Span::from_ns(20_000 * MS));
    let all = looks(&mut world, Span::from_ns(10_000 * MS));
    assert!(all <= 1_000, "{all} retries for 100 sleeping threads in ten seconds");
    // The threads exit, are detached, are released: no retry remains.
    world.close_connection(client);
    world.run_until_idle();
    // The audit trail has counted the last releases after a second.
    world.advance(Span::from_ns(1_000 * MS));
    assert_eq!(world.broker.next_wakeup(), None);
    assert_eq!(world.leftovers(), Vec::<String>::new());
    world.check_idle(false);
}

#[test]
fn r12_a_sleeping_thread_may_exit_detach_or_outlive_the_daemon() {
    for what in ["ends", "is detached", "is released", "restart", "stop"] {
        let mut world = world();
        let client = world.connect(1000);
        let pid = world.tid_of(client);
        let own = world.kernel.ordinary();
        world.kernel.spawn_thread(500, pid, own);
        world.kernel.put_to_sleep(500, 0);
        let spec = world.create(client, Task { owner: Owner::Thread, ..on_cpu(1, 1_000) }).spec;
        assert_eq!(world.attach(client, spec, 500), Reply::DoneWithCaveat(Caveat::PendingWakeup));
        match what {
            "ends" => {
                world.kernel.end_thread(500, world.now);
                world.run_until_idle();
                assert_eq!(world.broker.specs(), 0);
            }
            "is detached" => world.done(client, Request::Detach(spec)),
            "is released" => world.done(client, Request::Release(spec)),
            "restart" => {
                world.restart();
                world.run_until_idle();
                assert!(!is_deadline(&world, 500));
                world.kernel.wake(500);
                world.advance(Span::from_ns(2 * MS));
                world.run_until_idle();
                assert!(is_deadline(&world, 500), "the next daemon continues the retries");
            }
            _ => {
                let root = world.connect(0);
                assert_eq!(world.call(root, Request::Stop { release: true }), Reply::Done);
                assert!(world.exited);
            }
        }
        world.check_idle(false);
    }
}

#[test]
fn r12_a_change_keeps_an_attached_thread_in_its_domain_or_is_refused() {
    let mut world = world();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let spec = world.attached(client, on_cpu(1, 1_000), tid).spec;
    // CPU 0 has a lower load, but a deadline thread cannot be moved there (EBUSY).
    let more = by(timed(3_000, 10_000), "edf");
    match world.call(client, Request::Change { spec, task: more }) {
        Reply::Granted(granted) => assert_eq!(granted.cpu, Some(1)),
        other => panic!("{other:?}"),
    }
    let refusal = world.refused(client, Request::Change { spec, task: on_cpu(0, 1_000) });
    assert_eq!(refusal.code, Code::NoPlugin);
    assert!(is_deadline(&world, tid));
    // Another plugin may place it on any CPU, and back again only on its current CPU.
    let low = Task { cpus: CpuSet::single(0), cpus_mandatory: true, ..by(urgent(5), "fp") };
    assert!(matches!(world.call(client, Request::Change { spec, task: low }), Reply::Granted(_)));
    match world.call(client, Request::Change { spec, task: more }) {
        Reply::Granted(granted) => assert_eq!(granted.cpu, Some(0)),
        other => panic!("{other:?}"),
    }
    world.check_idle(false);
}

#[test]
fn r12_attach_and_change_wait_for_an_overrun_and_delay_no_other_request() {
    for attach in [true, false] {
        let mut world = world();
        let (client, other) = (world.connect(1000), world.connect(1001));
        let tid = world.tid_of(client);
        let (spec, request) = if attach {
            let spec = world.create(client, on_cpu(0, 1_000)).spec;
            (spec, Request::Attach { spec, thread: ThreadRef::Pidfd })
        } else {
            let spec = world.attached(client, by(urgent(5), "fp"), tid).spec;
            (spec, Request::Change { spec, task: by(timed(1_000, 10_000), "edf") })
        };
        let before = world.attr_of(tid);
        world.kernel.set_overrun(tid, world.now.saturating_add(Span::from_ns(300 * MS)));
        let target = attach.then_some(crate::sim::Target::Thread(tid));
        let seq = world.send(client, request.clone(), target);
        world.run_until_idle();
        let answered =
            |world: &crate::sim::Simulation| world.connections[&client].outstanding.is_empty();
        assert!(!answered(&world));
        assert_eq!(
            world.attr_of(tid).policy,
            before.policy,
            "the thread keeps its attributes meanwhile"
        );
        // Other clients reserve, attach and change without delay.
        let others = world.tid_of(other);
        let theirs = world.attached(other, on_cpu(1, 2_000), others).spec;
        assert!(matches!(
            world.call(other, Request::Change { spec: theirs, task: on_cpu(1, 1_000) }),
            Reply::Granted(_)
        ));
        world.advance(Span::from_ns(200 * MS));
        world.run_until_idle();
        assert!(!answered(&world));
        world.advance(Span::from_ns(101 * MS));
        world.run_until_idle();
        let line = world.connections.get_mut(&client).expect("its connection");
        let (_, _, reply) = line.replies.pop_front().expect("an answer");
        assert!(matches!(reply, Reply::Done | Reply::Granted(_)), "{seq} {reply:?}");
        assert!(is_deadline(&world, tid));
        // An overrun that exceeds the maximum wait is refused with the kernel's error, without
        // effect.
        world.done(client, Request::Detach(spec));
        let slow = world.create(client, by(urgent(6), "fp")).spec;
        assert_eq!(world.attach(client, slow, tid), Reply::Done);
        let held = world.attr_of(tid);
        world.kernel.set_overrun(tid, world.now.saturating_add(Span::from_ns(501 * MS)));
        let task = by(timed(1_000, 10_000), "edf");
        let refusal = world.refused(client, Request::Change { spec: slow, task });
        assert_eq!((refusal.code, refusal.errno), (Code::Kernel, 11));
        assert_eq!(world.attr_of(tid), held);
        world.check_idle(false);
    }
}

#[test]
fn r36_an_adopting_daemon_waits_for_short_overruns_and_logs_only_long_ones() {
    for (owed, complains) in [(300, false), (700, true)] {
        let mut world = world();
        let client = world.connect(1000);
        let pid = world.tid_of(client);
        let own = world.kernel.ordinary();
        world.kernel.spawn_thread(500, pid, own);
        let spec = world.create(client, Task { owner: Owner::Thread, ..on_cpu(1, 1_000) }).spec;
        // The first daemon exits while it changes the thread's class; the record has the new
        // attributes.
        world.kernel.set_overrun(500, world.now.saturating_add(Span::from_ns(100 * MS)));
        world.send(
            client,
            Request::Attach { spec, thread: ThreadRef::Pidfd },
            Some(crate::sim::Target::Thread(500)),
        );
        world.run_until_idle();
        world.kernel.set_overrun(500, world.now.saturating_add(Span::from_ns(owed * MS)));
        world.restart();
        world.run_until_idle();
        assert!(!is_deadline(&world, 500));
        let said = world
            .log
            .iter()
            .any(|event| matches!(event, crate::LogEvent::ApplyFailed { tid: 500, .. }));
        assert_eq!(said, complains, "{owed} ms");
        world.advance(Span::from_ns(299 * MS));
        world.run_until_idle();
        assert!(!is_deadline(&world, 500), "too soon");
        let rest = if complains { 702 } else { 2 };
        world.advance(Span::from_ns(rest * MS));
        world.run_until_idle();
        assert!(is_deadline(&world, 500), "{owed} ms");
        world.check_idle(false);
    }
}

#[test]
fn r12_a_request_that_waits_for_an_overrun_handles_hang_up_exit_and_stop() {
    for attach in [true, false] {
        for what in ["hang up", "thread ends", "process ends", "stop", "root releases"] {
            let mut world = world();
            let (client, root) = (world.connect(1000), world.connect(0));
            let pid = world.tid_of(client);
            let own = world.kernel.ordinary();
            world.kernel.spawn_thread(500, pid, own);
            let (spec, request, target) = if attach {
                let spec = world.create(client, on_cpu(0, 1_000)).spec;
                (
                    spec,
                    Request::Attach { spec, thread: ThreadRef::Pidfd },
                    Some(crate::sim::Target::Thread(500)),
                )
            } else {
                let spec = world.attached(client, by(urgent(5), "fp"), 500).spec;
                (spec, Request::Change { spec, task: by(timed(1_000, 10_000), "edf") }, None)
            };
            world.kernel.set_overrun(500, world.now.saturating_add(Span::from_ns(300 * MS)));
            world.send(client, request, target);
            world.run_until_idle();
            match what {
                "hang up" => world.close_connection(client),
                "thread ends" => world.kernel.end_thread(500, world.now),
                "process ends" => world.kernel.end_process(pid, world.now),
                "stop" => {
                    world.send(root, Request::Stop { release: true }, None);
                }
                _ => {
                    world.send(root, Request::Release(spec), None);
                }
            }
            for _ in 0..5 {
                world.run_until_idle();
                world.advance(Span::from_ns(100 * MS));
            }
            world.run_until_idle();
            for session in [client, root] {
                if let Some(line) = world.connections.get(&session) {
                    assert!(line.outstanding.is_empty(), "{attach} {what}: {:?}", line.outstanding);
                }
            }
            world.check_idle(false);
            world.close_connection(client);
            world.close_connection(root);
            world.run_until_idle();
            world.advance(Span::from_ns(1_000 * MS));
            world.run_until_idle();
            assert_eq!(world.leftovers(), Vec::<String>::new(), "{attach} {what}");
        }
    }
}

#[test]
fn r18_a_failed_plugin_host_is_stopped_by_an_effect() {
    let mut world = world_of(setup(&["ours"], 1), 1);
    let client = world.connect(1000);
    world.send(client, Request::Create(by(urgent(5), "ours")), None);
    world.run_until_idle();
    // The plugin answers with a place outside its CPUs.
    assert!(world.answer_call(|question| match question {
        crate::input::ForeignCall::Accept { epoch, .. } => {
            Some(crate::input::ForeignAnswer {
                epoch: *epoch,
                verdict: 1,
                cpu: 7,
                priority: 44,
                ..crate::input::ForeignAnswer::default()
            })
        }
        _ => None,
    }));
    assert!(world.hosts.ended.is_empty());
    world.run_until_idle();
    assert_eq!(world.hosts.ended.iter().copied().collect::<Vec<u32>>(), [0]);
    assert!(world.log.iter().any(|event| matches!(event, LogEvent::PluginOutOfBounds { .. })));
}
