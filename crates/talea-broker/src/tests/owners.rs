//! Owners of grants (R29), also with effects in progress.

use super::stage::{Words, owned, timed, urgent, world};
use crate::sim::Target;
use talea_core::Span;
use talea_proto::{Owner, Reply, Request, ThreadRef};

#[test]
fn r29_grants_owned_by_a_connection_end_with_it_and_others_stay() {
    for (owner, stays) in [(Owner::Session, false), (Owner::Process, true), (Owner::Thread, true)] {
        let mut world = world();
        let (client, root) = (world.connect(1000), world.connect(0));
        let tid = world.tid_of(client);
        let before = world.attr_of(tid);
        let granted = world.attached(client, owned(urgent(5), owner), tid);
        world.close_connection(client);
        world.run_until_idle();
        assert_eq!(world.query(root, granted.spec).is_some(), stays, "{owner:?}");
        assert_eq!(world.attr_of(tid) == before, !stays, "{owner:?}");
        world.check_idle(false);
        world.kernel.end_process(tid, world.now);
        world.run_until_idle();
        assert_eq!(world.query(root, granted.spec), None, "{owner:?}");
        assert!(world.file.is_empty());
    }
}

#[test]
fn r29_a_thread_owned_spec_without_a_thread_belongs_to_its_connection() {
    let mut world = world();
    let (client, root) = (world.connect(1000), world.connect(0));
    let granted = world.create(client, owned(urgent(5), Owner::Thread));
    world.close_connection(client);
    world.run_until_idle();
    assert_eq!(world.query(root, granted.spec), None);
}

#[test]
fn r29_a_thread_owned_spec_ends_when_root_detaches_the_thread() {
    let mut world = world();
    let (client, root) = (world.connect(1000), world.connect(0));
    let tid = world.tid_of(client);
    let before = world.attr_of(tid);
    let granted = world.attached(client, owned(urgent(5), Owner::Thread), tid);
    world.close_connection(client);
    world.run_until_idle();
    world.done(root, Request::Detach(granted.spec));
    assert_eq!(world.attr_of(tid), before);
    assert_eq!(world.query(root, granted.spec), None);
}

#[test]
fn r29_an_attached_thread_of_another_process_outlives_it_only_as_the_owner() {
    for (owner, stays) in [(Owner::Process, false), (Owner::Thread, true)] {
        let mut world = world();
        let (client, other, root) = (world.connect(1000), world.connect(1000), world.connect(0));
        let (pid, tid) = (world.tid_of(client), world.tid_of(other));
        let before = world.attr_of(tid);
        let granted = world.attached(client, owned(urgent(5), owner), tid);
        world.kernel.end_process(pid, world.now);
        world.run_until_idle();
        assert_eq!(world.query(root, granted.spec).is_some(), stays, "{owner:?}");
        assert_eq!(world.attr_of(tid) == before, !stays, "{owner:?}");
        world.check_idle(false);
    }
}

#[test]
fn a_hang_up_at_any_point_of_attach_change_or_release_leaves_nothing_behind() {
    for what in 0..4 {
        for progress in 0..12 {
            let mut world = world();
            let client = world.connect(1000);
            let tid = world.tid_of(client);
            let before = world.attr_of(tid);
            let granted = world.create(client, urgent(5));
            let spec = granted.spec;
            let (request, target) = match what {
                0 => {
                    (Request::Attach { spec, thread: ThreadRef::Pidfd }, Some(Target::Thread(tid)))
                }
                1 => (Request::Change { spec, task: timed(1000, 10_000) }, None),
                2 => (Request::Release(spec), None),
                _ => (Request::Detach(spec), None),
            };
            if what > 0 {
                assert_eq!(world.attach(client, spec, tid), Reply::Done);
            }
            world.send(client, request, target);
            world.read_one(client);
            for _ in 0..progress {
                let _ = world.run_effect() || world.deliver_input();
            }
            world.close_connection(client);
            world.run_until_idle();
            world.advance(Span::from_ns(1_000_000_000));
            world.run_until_idle();
            assert_eq!(world.attr_of(tid), before, "{what} {progress}");
            assert_eq!(world.leftovers(), Vec::<String>::new(), "{what} {progress}");
            world.check_idle(false);
        }
    }
}
