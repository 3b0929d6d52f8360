//! Threads whose credentials, CPUs or policy change while they are attached.

use super::stage::{MS, Words, by, owned, urgent, world};
use crate::input::Uids;
use crate::sim::Target;
use talea_core::{Attr, CpuSet, Policy, Priority, Span};
use talea_proto::message::DetachCause;
use talea_proto::{Code, Owner, Reply, Request, Task, ThreadRef};

/// Threads that do not run as user 1000 only.
const FOREIGN: [Uids; 4] = [
    Uids::all(1001),
    Uids { effective: 0, ..Uids::all(1000) },
    Uids { real: 1000, ..Uids::all(0) },
    Uids { saved: 0, ..Uids::all(1000) },
];

#[test]
fn attack_11_a_thread_that_is_the_users_in_part_only_is_not_attached() {
    let mut world = world();
    let (alice, root) = (world.connect(1000), world.connect(0));
    let tid = world.tid_of(alice);
    let own = world.attr_of(tid);
    for uids in FOREIGN {
        world.kernel.change_credentials(tid, uids, world.now);
        let granted = world.create(alice, urgent(5));
        // Refused at once: not recorded, and not found by an order.
        let attach = Request::Attach { spec: granted.spec, thread: ThreadRef::Pidfd };
        world.send(alice, attach, Some(Target::Thread(tid)));
        world.read_one(alice);
        assert_eq!(world.broker.attached(), 0, "{uids:?}");
        world.run_until_idle();
        let replies = &mut world.connections.get_mut(&alice).expect("it is open").replies;
        let Some((_, _, Reply::Refused(refusal))) = replies.pop_front() else { panic!("{uids:?}") };
        let other = uids.other_than(1000).expect("it is foreign");
        assert_eq!((refusal.code, refusal.asked), (Code::ForeignThread, other.into()));
        // A grant of the user is no grant for others, not even by root.
        assert!(matches!(world.attach(root, granted.spec, tid), Reply::Refused(_)));
        assert_eq!(world.attr_of(tid), own);
        world.done(alice, Request::Release(granted.spec));
    }
    world.check_idle(false);
}

#[test]
fn attack_1_root_decides_about_every_thread() {
    let mut world = world();
    let (alice, root) = (world.connect(1000), world.connect(0));
    let tid = world.tid_of(alice);
    let granted = world.attached(root, owned(urgent(5), Owner::Process), tid);
    let given = world.attr_of(tid);
    world.kernel.change_credentials(tid, Uids::all(7), world.now);
    world.report_credentials(tid);
    world.run_until_idle();
    assert_eq!(world.attr_of(tid), given);
    world.restart();
    world.run_until_idle();
    assert_eq!(world.attr_of(tid), given);
    let root = world.connect(0);
    world.done(root, Request::Release(granted.spec));
    assert_eq!(world.attr_of(tid), world.kernel.ordinary());
}

#[test]
fn attack_1_the_next_daemon_ends_the_grant_of_a_foreign_thread() {
    for owner in [Owner::Process, Owner::Thread] {
        let mut world = world();
        let alice = world.connect(1000);
        let tid = world.tid_of(alice);
        let own = world.attr_of(tid);
        world.attached(alice, owned(urgent(5), owner), tid);
        world.kernel.change_credentials(tid, Uids::all(0), world.now);
        world.restart();
        world.run_until_idle();
        assert_eq!(world.attr_of(tid), own, "{owner:?}");
        world.check_idle(false);
    }
}

#[test]
fn attack_1_a_grant_ends_with_the_credentials_of_its_thread() {
    for owner in [Owner::Session, Owner::Process, Owner::Thread] {
        for uids in FOREIGN {
            let mut world = world();
            let alice = world.connect(1000);
            let tid = world.tid_of(alice);
            let before = world.attr_of(tid);
            let granted = world.attached(alice, owned(urgent(5), owner), tid);
            // The program sets attributes of its own.
            let mut has = world.attr_of(tid);
            has.cpus = CpuSet::single(1 - granted.cpu.expect("a CPU"));
            world.kernel.set_outside(tid, has, world.now);
            world.kernel.change_credentials(tid, uids, world.now);
            world.report_credentials(tid);
            world.run_until_idle();
            assert_eq!(world.attr_of(tid), Attr { cpus: has.cpus, ..before }, "{uids:?}");
            let info = world.query(alice, granted.spec);
            let cause = info.map(|info| (info.tid, info.detached));
            let lives = owner != Owner::Thread;
            assert_eq!(cause, lives.then_some((None, Some(DetachCause::Credentials))));
            if lives {
                let change = Request::Change { spec: granted.spec, task: urgent(9) };
                assert!(matches!(world.call(alice, change), Reply::Granted(_)));
                assert_eq!(
                    world.refused(alice, Request::Detach(granted.spec)).code,
                    Code::NotAttached
                );
            }
            assert!(!world.attr_of(tid).policy.is_real_time());
        }
    }
}

#[test]
fn r25_an_attached_thread_with_changed_credentials_gets_no_new_attributes() {
    let mut world = world();
    let (alice, bob) = (world.connect(1000), world.connect(1001));
    let tid = world.tid_of(alice);
    let before = world.attr_of(tid);
    let task = |priority| Task {
        cpus: CpuSet::single(0),
        cpus_mandatory: true,
        ..by(urgent(priority), "fp")
    };
    let granted = world.attached(alice, task(5), tid);
    world.kernel.change_credentials(tid, Uids { effective: 0, ..Uids::all(1000) }, world.now);
    // Others' grants move the levels of this one.
    for priority in (6..16).chain(1..5) {
        world.create(bob, task(priority));
        if !world.attr_of(tid).policy.is_real_time() {
            break;
        }
    }
    assert_eq!(world.attr_of(tid), before);
    let info = world.query(alice, granted.spec).expect("the spec stays");
    assert_eq!(info.detached, Some(DetachCause::Credentials));
    world.check_idle(false);
}

#[test]
fn attack_2_a_thread_is_returned_once_and_then_loses_its_grant() {
    let mut world = world();
    let alice = world.connect(1000);
    let tid = world.tid_of(alice);
    let own = world.attr_of(tid);
    let granted = world.attached(alice, urgent(5), tid);
    let applied = world.attr_of(tid);
    let moved = Attr { cpus: CpuSet::single(1 - granted.cpu.expect("a CPU")), ..applied };
    let inspect = |world: &mut crate::sim::Simulation| {
        world.advance(Span::from_ns(200 * MS));
        world.run_until_idle();
    };
    for _ in 0..3 {
        world.kernel.set_outside(tid, moved, world.now);
        inspect(&mut world);
        assert_eq!(world.attr_of(tid), applied, "returned");
        world.advance(Span::from_ns(10_000 * MS));
        world.run_until_idle();
    }
    for expected in [applied, Attr { cpus: moved.cpus, ..own }] {
        world.kernel.set_outside(tid, moved, world.now);
        inspect(&mut world);
        assert_eq!(world.attr_of(tid), expected);
    }
    let info = world.query(alice, granted.spec).expect("the spec stays");
    assert_eq!((info.tid, info.detached), (None, Some(DetachCause::Affinity)));
    assert_eq!(world.broker.next_wakeup(), None, "nothing is left to inspect");
    // The next thread of the spec begins anew.
    let other = world.kernel.free_id(500);
    world.kernel.spawn_thread(other, tid, own);
    assert_eq!(world.attach(alice, granted.spec, other), Reply::Done);
    assert_eq!(world.query(alice, granted.spec).expect("it stays").detached, None);
}

#[test]
fn attack_14_a_policy_set_meanwhile_ends_the_grant_and_stays() {
    let set = [
        (Policy::Fifo(Priority(50)), false, true),
        (Policy::Other { nice: 19 }, true, true),
        (Policy::Idle, true, true),
        // Without rights a thread can only lower itself: that is no right to stay real-time.
        (Policy::Fifo(Priority(1)), true, false),
    ];
    for (policy, reset_on_fork, stays) in set {
        let mut world = world();
        let alice = world.connect(1000);
        let tid = world.tid_of(alice);
        let own = world.attr_of(tid);
        let granted = world.attached(alice, by(urgent(5), "fp"), tid);
        let attr = Attr { policy, reset_on_fork, ..world.attr_of(tid) };
        world.kernel.set_outside(tid, attr, world.now);
        world.advance(Span::from_ns(200 * MS));
        world.run_until_idle();
        let wanted = if stays { Attr { policy, ..own } } else { own };
        assert_eq!(world.attr_of(tid), wanted);
        let info = world.query(alice, granted.spec).expect("the spec stays");
        assert_eq!((info.tid, info.detached), (None, Some(DetachCause::Policy)));
    }
}
