//! Change: atomic, across plugins, and without effect when it fails (R7).

use super::stage::{MS, Words, by, setup, world_of};
use crate::input::Errno;
use crate::sim::Simulation;
use talea_core::{Params, Priority, Span, Work};
use talea_proto::{Code, Reply, Request, Task};

/// Returns a task that all four plugins serve.
fn task(runtime: u64, period: u64, priority: u8) -> Task {
    let params = Params {
        period: Some(Span::from_ns(period)),
        runtime: Some(Work::from_ns(runtime)),
        priority: Some(Priority(priority)),
        ..Params::default()
    };
    Task { params, ..Task::default() }
}

const ALL: [&str; 4] = ["edf", "rm", "fp", "rr"];

fn all_four() -> Simulation {
    world_of(setup(&ALL, 2), 2)
}

/// Observes every state of the thread while the request is executed.
fn watch(world: &mut Simulation, tid: u32, mut each: impl FnMut(&Simulation)) {
    loop {
        let busy = world.run_effect() || world.deliver_input();
        assert!(
            world.attr_of(tid).policy.is_real_time(),
            "the thread was without a real-time policy"
        );
        each(world);
        if !busy {
            return;
        }
    }
}

#[test]
fn retif_w1_r7_all_pairs_of_plugins_change_into_each_other_with_and_without_a_thread() {
    for from in ALL {
        for to in ALL {
            for attached in [false, true] {
                let mut world = all_four();
                let client = world.connect(1000);
                let tid = world.tid_of(client);
                let free = world.free(client);
                let granted = world.create(client, by(task(2 * MS, 20 * MS, 10), from));
                if attached {
                    assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
                }
                let new = by(task(3 * MS, 30 * MS, 20), to);
                world.send(client, Request::Change { spec: granted.spec, task: new }, None);
                world.read_one(client);
                if attached {
                    watch(&mut world, tid, |_| {});
                }
                world.run_until_idle();
                let (_, _, reply) =
                    world.connections.get_mut(&client).unwrap().replies.pop_front().unwrap();
                let Reply::Granted(changed) = reply else { panic!("{from} to {to}: {reply:?}") };
                assert_eq!((changed.spec, changed.token), (granted.spec, granted.token));
                assert_eq!(ALL[changed.plugin as usize], to);
                let info = world.query(client, granted.spec).unwrap();
                assert_eq!((info.task.params, info.plugin_name.as_str()), (new.params, to));
                world.check_idle(false);
                world.done(client, Request::Release(granted.spec));
                world.advance(Span::from_ns(1000 * MS));
                assert_eq!(world.free(client), free, "{from} to {to}: also for the old plugin");
            }
        }
    }
}

#[test]
fn r7_a_refused_change_has_no_effect() {
    for from in ALL {
        for to in ALL {
            let mut world = all_four();
            let client = world.connect(1000);
            let tid = world.tid_of(client);
            let old = by(task(2 * MS, 20 * MS, 10), from);
            let granted = world.attached(client, old, tid);
            let (before, free) = (world.attr_of(tid), world.free(client));
            let file = world.file.clone();

            // Refused by the broker: invalid task, unknown plugin, no room.
            for (bad, code) in [
                (by(task(21 * MS, 20 * MS, 10), to), Code::Malformed),
                (by(task(2 * MS, 20 * MS, 10), "nobody"), Code::UnknownPlugin),
                (by(Task::default(), to), Code::NoPlugin),
            ] {
                let refusal =
                    world.refused(client, Request::Change { spec: granted.spec, task: bad });
                assert_eq!(refusal.code, code, "{from} to {to}");
            }
            assert_eq!((world.attr_of(tid), world.free(client)), (before, free.clone()));

            // Refused by the kernel.
            let new = by(task(3 * MS, 30 * MS, 20), to);
            world.next_errors.push_back(Errno(16));
            world.send(client, Request::Change { spec: granted.spec, task: new }, None);
            world.read_one(client);
            watch(&mut world, tid, |_| {});
            world.run_until_idle();
            let (_, _, reply) =
                world.connections.get_mut(&client).unwrap().replies.pop_front().unwrap();
            match reply {
                Reply::Refused(refusal) => {
                    assert_eq!((refusal.code, refusal.errno), (Code::Kernel, 16), "{from} to {to}");
                }
                // Nothing to apply: the thread already has these attributes.
                Reply::Granted(_)
                    if from == to && (from == "fp" || from == "rr" || from == "rm") =>
                {
                    continue;
                }
                other => panic!("{from} to {to}: {other:?}"),
            }
            assert_eq!(world.attr_of(tid), before, "{from} to {to}");
            assert_eq!(world.query(client, granted.spec).unwrap().task, old);
            world.check_idle(false);
            world.advance(Span::from_ns(1000 * MS));
            assert_eq!((world.free(client), &world.file), (free, &file), "{from} to {to}");
        }
    }
}

#[test]
fn r7_the_capacity_of_the_old_terms_stays_reserved_until_the_kernel_decides() {
    let mut world = world_of(setup(&["rm"], 1), 1);
    let (client, other) = (world.connect(1000), world.connect(1000));
    let tid = world.tid_of(client);
    let granted = world.attached(client, task(8 * MS, 10 * MS, 1), tid);
    // A task between the old period and the new one, so that the thread's priority must change.
    let between = world.tid_of(other);
    world.attached(other, task(MS / 10, 15 * MS, 1), between);
    // From 80 % down to 10 %, which the kernel will refuse; meanwhile another request needs 60 %.
    let less = task(2 * MS, 20 * MS, 1);
    world.send(client, Request::Change { spec: granted.spec, task: less }, None);
    world.read_one(client);
    world.send(other, Request::Create(task(6 * MS, 10 * MS, 1)), None);
    world.read_one(other);
    assert!(!world.connections[&other].outstanding.is_empty());
    world.next_errors.push_back(Errno(1));
    world.run_until_idle();
    let mut code = |session| {
        let line: &mut crate::sim::Connection = world.connections.get_mut(&session).unwrap();
        match line.replies.pop_front().expect("both are answered").2 {
            Reply::Refused(refusal) => refusal.code,
            other => panic!("80 % and 60 % on one CPU: {other:?}"),
        }
    };
    assert_eq!((code(client), code(other)), (Code::Kernel, Code::NoPlugin));
    world.check_idle(false);
    let Reply::Granted(_) = world.call(client, Request::Change { spec: granted.spec, task: less })
    else {
        panic!("the kernel accepts it now")
    };
    world.create(other, task(6 * MS, 10 * MS, 1));
}

#[test]
fn a_change_stays_in_force_if_its_thread_has_just_exited() {
    let mut world = all_four();
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    let own = world.kernel.ordinary();
    world.kernel.spawn_thread(500, pid, own);
    let granted = world.attached(client, by(task(2 * MS, 20 * MS, 10), "edf"), 500);
    world.kernel.end_thread(500, world.now);
    let new = by(task(3 * MS, 30 * MS, 10), "edf");
    world.send(client, Request::Change { spec: granted.spec, task: new }, None);
    world.read_one(client);
    world.run_until_idle();
    let (_, _, reply) = world.connections.get_mut(&client).unwrap().replies.pop_front().unwrap();
    assert!(matches!(reply, Reply::Granted(_)), "{reply:?}");
    assert_eq!(world.query(client, granted.spec).unwrap().task.params, new.params);
    world.check_idle(false);
    assert_eq!(world.attach(client, granted.spec, pid), Reply::Done);
}
