//! Attach and detach: identity, access, and restored attributes (R28, R32).

use super::stage::{MS, Words, by, owned, timed, urgent, world};
use crate::input::{Errno, ThreadError};
use crate::sim::Target;
use talea_core::{Attr, CpuSet, Policy, Priority, Span};
use talea_proto::{Code, Field, Owner, Reply, Request, ThreadRef};

const EPERM: Errno = Errno(1);
const EBUSY: Errno = Errno(16);
const NO_FAULT: Errno = Errno(0);

#[test]
fn retif_s4_attach_without_a_thread_is_malformed_and_never_means_the_daemon() {
    let mut world = world();
    let client = world.connect(1000);
    let granted = world.create(client, urgent(5));
    let attach = Request::Attach { spec: granted.spec, thread: ThreadRef::Pidfd };
    let refusal = world.refused(client, attach.clone());
    assert_eq!((refusal.code, refusal.field), (Code::Malformed, Field::Thread));
    for (why, code) in [
        (ThreadError::Gone, Code::NoSuchThread),
        (ThreadError::TidNotAccepted, Code::TidNotAccepted),
        (ThreadError::NotAThread, Code::Malformed),
        (ThreadError::Kernel(EPERM), Code::Kernel),
    ] {
        let Reply::Refused(refusal) =
            world.call_about(client, attach.clone(), Some(Target::Bad(why)))
        else {
            panic!("refused")
        };
        assert_eq!(refusal.code, code);
    }
    assert_eq!(world.broker.attached(), 0);
    world.check_idle(false);
}

#[test]
fn r25_an_own_tid_does_not_name_a_thread_of_another_process() {
    let mut world = world();
    let (client, neighbour) = (world.connect(1000), world.connect(1000));
    let own = world.kernel.ordinary();
    let (main, other) = (world.tid_of(client), world.tid_of(neighbour));
    world.kernel.spawn_thread(500, main, own);
    world.kernel.spawn_thread(600, other, own);
    // By id, any thread of the same user is accepted; an own thread must belong to the client's
    // process.
    for (tid, is_own) in [(main, true), (500, true), (other, false), (600, false)] {
        for (thread, answer) in [(ThreadRef::OwnTid(tid), is_own), (ThreadRef::Tid(tid), true)] {
            let granted = world.create(client, urgent(5));
            let attach = Request::Attach { spec: granted.spec, thread };
            let lines = world.log.len();
            match world.call_about(client, attach, Some(Target::Thread(tid))) {
                Reply::Done => assert!(answer, "{thread:?}"),
                Reply::Refused(refusal) => {
                    assert!(!answer, "{thread:?}");
                    assert_eq!(
                        (refusal.code, refusal.asked),
                        (Code::TidNotAccepted, u64::from(tid))
                    );
                    assert_eq!(world.attr_of(tid), own);
                    assert_eq!(
                        world.log.len(),
                        lines,
                        "clients try this first, so it is not logged"
                    );
                }
                reply => panic!("{reply:?}"),
            }
            world.done(client, Request::Release(granted.spec));
        }
    }
    world.check_idle(false);
}

#[test]
fn retif_s5_a_spec_with_a_thread_refuses_a_second_thread() {
    let mut world = world();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let own = world.kernel.ordinary();
    world.kernel.spawn_thread(500, tid, own);
    let granted = world.attached(client, urgent(5), tid);
    let Reply::Refused(refusal) = world.attach(client, granted.spec, 500) else {
        panic!("refused")
    };
    assert_eq!((refusal.code, refusal.limit), (Code::SpecTaken, u64::from(tid)));
    assert_eq!(world.attr_of(500), own);
    world.check_idle(false);
}

#[test]
fn retif_s9_a_thread_with_a_spec_refuses_a_second_spec() {
    let mut world = world();
    let (client, root) = (world.connect(1000), world.connect(0));
    let tid = world.tid_of(client);
    world.attached(client, urgent(5), tid);
    for session in [client, root] {
        let other = world.create(session, urgent(9));
        let applied = world.attr_of(tid);
        let Reply::Refused(refusal) = world.attach(session, other.spec, tid) else {
            panic!("refused")
        };
        assert_eq!(refusal.code, Code::ThreadTaken);
        world.done(session, Request::Release(other.spec));
        assert_eq!(world.attr_of(tid), applied, "releasing the other spec does not demote it");
    }
    world.check_idle(false);
}

#[test]
fn retif_s6_children_of_attached_threads_start_as_ordinary_threads() {
    // live counterpart: the kernel attributes of children of an attached thread.
    let every = |plugin: &str| {
        let mut task = timed(1000, 10_000);
        task.params.priority = Some(Priority(5));
        by(task, plugin)
    };
    for from in ["edf", "rm", "fp", "rr"] {
        for to in ["edf", "rm", "fp", "rr"] {
            let mut world = world();
            let client = world.connect(1000);
            let tid = world.tid_of(client);
            let granted = world.attached(client, every(from), tid);
            assert!(world.attr_of(tid).reset_on_fork, "{from}");
            // A more urgent task arrives, so that this thread may be moved; then it is changed,
            // then its daemon.
            world.create(client, by(timed(100, 5_000), "rm"));
            let change = Request::Change { spec: granted.spec, task: every(to) };
            assert!(matches!(world.call(client, change), Reply::Granted(_)));
            assert!(world.attr_of(tid).reset_on_fork, "{from} to {to}");
            world.restart();
            world.run_until_idle();
            assert!(world.attr_of(tid).reset_on_fork && world.attr_of(tid).policy.is_real_time());
            // A thread that did not reset before does not after the grant.
            let root = world.connect(0);
            world.done(root, Request::Release(granted.spec));
            assert_eq!(world.attr_of(tid), world.kernel.ordinary());
        }
    }
}

#[test]
fn retif_s7_r32_another_thread_with_the_same_id_is_not_modified() {
    let mut world = world();
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    let own = world.kernel.ordinary();
    world.kernel.spawn_thread(500, pid, own);
    let granted = world.attached(client, urgent(5), 500);
    // The id is reused at once, with exactly the policy of the grant.
    let applied = world.attr_of(500);
    world.kernel.end_thread(500, world.now);
    world.kernel.spawn_thread(500, pid, applied);
    world.done(client, Request::Release(granted.spec));
    assert_eq!(world.attr_of(500), applied);
    world.check_idle(false);
}

#[test]
fn retif_s8_releasing_a_spec_without_a_thread_modifies_no_thread() {
    let mut world = world();
    let client = world.connect(1000);
    let before: Vec<Attr> = world.kernel.threads.values().map(|thread| thread.attr).collect();
    for task in [urgent(5), by(timed(1000, 10_000), "edf"), by(urgent(3), "rr")] {
        let granted = world.create(client, task);
        world.done(client, Request::Release(granted.spec));
    }
    let after: Vec<Attr> = world.kernel.threads.values().map(|thread| thread.attr).collect();
    assert_eq!(before, after);
}

#[test]
fn retif_s10_r28_every_end_of_a_grant_restores_the_previous_attributes() {
    let previous = [
        Attr { policy: Policy::Rr(Priority(5)), reset_on_fork: false, cpus: CpuSet::single(1) },
        Attr { policy: Policy::Other { nice: -7 }, reset_on_fork: false, cpus: CpuSet::single(0) },
        Attr { policy: Policy::Batch { nice: 3 }, reset_on_fork: true, cpus: CpuSet::first(2) },
        Attr { policy: Policy::Idle, reset_on_fork: false, cpus: CpuSet::first(2) },
    ];
    for task in
        [urgent(5), by(urgent(5), "rr"), by(timed(1000, 10_000), "edf"), by(timed(0, 9000), "rm")]
    {
        for own in previous {
            for way in 0..3 {
                let mut world = world();
                let client = world.connect(1000);
                let pid = world.tid_of(client);
                world.kernel.spawn_thread(500, pid, own);
                let granted = world.attached(client, task, 500);
                assert_ne!(world.attr_of(500), own);
                match way {
                    0 => world.done(client, Request::Detach(granted.spec)),
                    1 => world.done(client, Request::Release(granted.spec)),
                    _ => {
                        world.close_connection(client);
                        world.run_until_idle();
                    }
                }
                assert_eq!(world.attr_of(500), own, "{task:?} variant {way}");
                world.check_idle(false);
            }
        }
    }
}

#[test]
fn r28_attributes_of_another_grant_are_never_restored() {
    let mut world = world();
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    let mut task = urgent(5);
    (task.cpus, task.cpus_mandatory) = (CpuSet::single(1), true);
    world.attached(client, task, pid);
    // A child of the attached thread starts as an ordinary thread, but on the CPU of the grant.
    let mut born = world.kernel.ordinary();
    born.cpus = world.attr_of(pid).cpus;
    world.kernel.spawn_thread(500, pid, born);
    let granted = world.attached(client, urgent(6), 500);
    world.done(client, Request::Release(granted.spec));
    assert_eq!(world.attr_of(500), world.kernel.ordinary());

    // A thread that an earlier daemon left without a record.
    let left =
        Attr { policy: Policy::Fifo(Priority(33)), reset_on_fork: true, cpus: CpuSet::single(0) };
    world.kernel.spawn_thread(501, pid, left);
    let granted = world.attached(client, urgent(6), 501);
    world.done(client, Request::Release(granted.spec));
    assert_eq!(world.attr_of(501), world.kernel.ordinary());
}

#[test]
fn r28_detach_and_attach_in_quick_succession_keep_the_first_previous_attributes() {
    let mut world = world();
    let client = world.connect(1000);
    let (pid, tid) = (world.tid_of(client), 500);
    let before = Attr { policy: Policy::Rr(Priority(5)), ..world.kernel.ordinary() };
    world.kernel.spawn_thread(tid, pid, before);
    let granted = world.attached(client, urgent(5), tid);
    // All three requests are read before the kernel has executed the first.
    let attach = Request::Attach { spec: granted.spec, thread: ThreadRef::Pidfd };
    world.send(client, Request::Detach(granted.spec), None);
    world.send(client, attach, Some(Target::Thread(tid)));
    world.send(client, Request::Detach(granted.spec), None);
    for _ in 0..3 {
        world.read_one(client);
    }
    world.run_until_idle();
    let replies: Vec<Reply> = world
        .connections
        .get_mut(&client)
        .unwrap()
        .replies
        .drain(..)
        .map(|(_, _, reply)| reply)
        .collect();
    assert_eq!(replies, [Reply::Done, Reply::Done, Reply::Done]);
    assert_eq!(world.attr_of(tid), before);
    world.check_idle(false);
}

#[test]
fn retif_s11_a_refused_attach_leaves_the_thread_unchanged() {
    for errno in [EPERM, EBUSY] {
        for task in [urgent(5), by(timed(1000, 10_000), "edf")] {
            // A full deadline class may have room a moment later: the attach is repeated for 1 s.
            let waits = errno == EBUSY && task.params.runtime.is_some();
            let mut world = world();
            let client = world.connect(1000);
            let tid = world.tid_of(client);
            let before = world.attr_of(tid);
            let granted = world.create(client, task);
            world.next_errors.extend(vec![errno; if waits { 101 } else { 1 }]);
            let asked = world.now;
            let Reply::Refused(refusal) = world.attach(client, granted.spec, tid) else {
                panic!("refused")
            };
            assert_eq!(world.now.since(asked).as_ns(), if waits { 1_000 * MS } else { 0 });
            assert_eq!((refusal.code, refusal.errno), (Code::Kernel, errno.0));
            assert_eq!(world.attr_of(tid), before, "not even its CPUs");
            world.check_idle(false);
            assert_eq!(
                world.attach(client, granted.spec, tid),
                Reply::Done,
                "the spec is still there"
            );
        }
    }
}

#[test]
fn a_thread_exit_between_check_and_apply_is_a_refusal() {
    let mut world = world();
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    let own = world.kernel.ordinary();
    world.kernel.spawn_thread(500, pid, own);
    let granted = world.create(client, urgent(5));
    let attach = Request::Attach { spec: granted.spec, thread: ThreadRef::Pidfd };
    world.send(client, attach, Some(Target::Thread(500)));
    world.read_one(client);
    world.kernel.end_thread(500, world.now);
    world.run_until_idle();
    let (_, _, reply) =
        world.connections.get_mut(&client).and_then(|line| line.replies.pop_front()).unwrap();
    assert!(matches!(reply, Reply::Refused(refusal) if refusal.code == Code::NoSuchThread));
    world.check_idle(false);
    assert_eq!(world.attach(client, granted.spec, pid), Reply::Done);
}

#[test]
fn the_exit_of_a_thread_may_be_reported_before_the_result_of_its_last_order() {
    // live counterpart: both events are ready at once, and the poll reports the pidfd first.
    for what in 0..3 {
        for owner in [Owner::Session, Owner::Thread] {
            let mut world = world();
            let client = world.connect(1000);
            let pid = world.tid_of(client);
            let own = world.kernel.ordinary();
            world.kernel.spawn_thread(500, pid, own);
            let granted = world.create(client, owned(by(timed(2000, 10_000), "edf"), owner));
            let spec = granted.spec;
            let (request, target) = match what {
                0 => {
                    (Request::Attach { spec, thread: ThreadRef::Pidfd }, Some(Target::Thread(500)))
                }
                1 => (Request::Change { spec, task: by(timed(3000, 10_000), "edf") }, None),
                _ => (Request::Detach(spec), None),
            };
            if what > 0 {
                assert_eq!(world.attach(client, spec, 500), Reply::Done);
            }
            world.send(client, request, target);
            world.read_one(client);
            while world.run_effect() {}
            world.kernel.end_thread(500, world.now);
            world.deliver_exit();
            world.run_until_idle();
            assert_eq!(world.connections[&client].replies.len(), 1, "answered once");
            assert_eq!(world.broker.attached(), 0, "{what} {owner:?}");
            world.check_idle(false);
            world.close_connection(client);
            world.run_until_idle();
            world.advance(Span::from_ns(1000 * MS));
            assert_eq!(world.leftovers(), Vec::<String>::new());
        }
    }
}

#[test]
fn retif_s14_the_exit_of_a_thread_is_detected_at_once() {
    for (owner, stays) in [(Owner::Session, true), (Owner::Process, true), (Owner::Thread, false)] {
        let mut world = world();
        let client = world.connect(1000);
        let (pid, free) = (world.tid_of(client), world.free(client));
        let own = world.kernel.ordinary();
        world.kernel.spawn_thread(500, pid, own);
        let task = owned(by(timed(3000, 10_000), "rm"), owner);
        let granted = world.attached(client, task, 500);
        let held = world.free(client);
        assert_ne!(held, free);
        world.kernel.end_thread(500, world.now);
        world.run_until_idle();
        assert_eq!(world.broker.attached(), 0);
        assert_eq!(world.query(client, granted.spec).is_some(), stays, "{owner:?}");
        assert_eq!(world.free(client), if stays { held } else { free });
        world.check_idle(false);
    }
}

#[test]
fn r36_bandwidth_of_a_leaving_deadline_thread_is_held_until_its_zero_lag_time() {
    let mut world = world();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let mut task = by(timed(60_000, 100_000), "edf");
    (task.cpus, task.cpus_mandatory) = (CpuSet::single(0), true);
    let granted = world.attached(client, task, tid);
    world.done(client, Request::Release(granted.spec));
    assert_eq!(world.broker.next_wakeup(), None, "no request waits for the zero-lag time");
    let released = world.now;
    let again = world.create(client, task);
    assert_eq!(world.now.since(released), Span::from_ns(100 * MS), "the request waits until then");
    assert_eq!(world.broker.next_wakeup(), None);
    // Without a thread there is no zero-lag time.
    world.done(client, Request::Release(again.spec));
    world.create(client, task);
}

#[test]
fn r36_bandwidth_is_also_held_when_the_thread_leaves_before_its_spec() {
    let on_cpu_0 = |runtime_us| {
        let mut task = by(timed(runtime_us, 100_000), "edf");
        (task.cpus, task.cpus_mandatory) = (CpuSet::single(0), true);
        task
    };
    let task = on_cpu_0(60_000);
    for leaves in ["detach", "death"] {
        for ends in ["release", "hang-up", "less", "elsewhere"] {
            let mut world = world();
            let (client, other) = (world.connect(1000), world.connect(1000));
            let pid = world.tid_of(client);
            let own = world.kernel.ordinary();
            world.kernel.spawn_thread(500, pid, own);
            let spec = world.attached(client, task, 500).spec;
            if leaves == "detach" {
                world.done(client, Request::Detach(spec));
            } else {
                world.kernel.end_thread(500, world.now);
                world.run_until_idle();
            }
            world.advance(Span::from_ns(10 * MS));
            let change = |task| Request::Change { spec, task };
            match ends {
                "release" => world.done(client, Request::Release(spec)),
                "hang-up" => {
                    world.close_connection(client);
                    world.run_until_idle();
                }
                "less" => assert!(matches!(
                    world.call(client, change(on_cpu_0(10_000))),
                    Reply::Granted(_)
                )),
                _ => {
                    let low = change(by(urgent(5), "fp"));
                    assert!(matches!(world.call(client, low), Reply::Granted(_)));
                    // The grant of the next plugin has no zero-lag time.
                    world.done(client, Request::Release(spec));
                }
            }
            let asked = world.now;
            world.create(other, task);
            let waited = world.now.since(asked);
            assert_eq!(waited, Span::from_ns(90 * MS), "{leaves}, {ends}");
            world.check_idle(false);
        }
    }
}

#[test]
fn a_refused_restore_tries_weaker_attributes_and_is_then_retried() {
    // The previous CPUs are gone: ordinary attributes on all CPUs are applied.
    let mut world = world();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let mut own = world.kernel.ordinary();
    own.policy = Policy::Rr(Priority(3));
    world.kernel.spawn_thread(500, tid, own);
    let granted = world.attached(client, urgent(5), 500);
    world.next_errors.extend([EPERM, NO_FAULT]);
    // The reply reports that the thread has lost its policy, and so does the log.
    let caveat = talea_proto::message::Caveat::PolicyLost { errno: 1 };
    assert_eq!(world.call(client, Request::Release(granted.spec)), Reply::DoneWithCaveat(caveat));
    assert!(world.log.contains(&crate::input::LogEvent::RestoredWithCaveat {
        tid: 500,
        uid: 1000,
        caveat
    }));
    assert_eq!(world.attr_of(500), world.kernel.ordinary());
    world.kernel.end_thread(500, world.now);

    // The kernel refuses all: the requester keeps its grant and receives the error.
    let granted = world.attached(client, urgent(5), tid);
    let applied = world.attr_of(tid);
    world.next_errors.extend([EPERM, EPERM, EPERM]);
    let refusal = world.refused(client, Request::Release(granted.spec));
    assert_eq!((refusal.code, refusal.errno), (Code::Kernel, 1));
    assert_eq!(world.attr_of(tid), applied);
    world.check_idle(false);

    // No requester is left: the restore is retried until it succeeds, and the record stays until
    // then.
    world.next_errors.extend([EPERM, EPERM, EPERM]);
    world.close_connection(client);
    world.run_until_idle();
    assert_eq!((world.file.len(), world.broker.specs()), (1, 1));
    world.advance(Span::from_ns(1000 * MS));
    world.run_until_idle();
    assert_eq!(world.attr_of(tid), world.kernel.ordinary());
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn r30_a_grant_covers_one_thread_and_each_thread_of_a_process_may_have_its_own() {
    let mut world = world();
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    let own = world.kernel.ordinary();
    for tid in [500, 501] {
        world.kernel.spawn_thread(tid, pid, own);
    }
    let first = world.attached(client, urgent(5), 500);
    assert_eq!(
        (world.attr_of(pid), world.attr_of(501)),
        (own, own),
        "other threads of the process are not covered"
    );
    world.attached(client, urgent(6), pid);
    world.done(client, Request::Release(first.spec));
    assert_eq!(world.attr_of(500), own);
    assert!(world.attr_of(pid).policy.is_real_time());
    world.check_idle(false);
}
