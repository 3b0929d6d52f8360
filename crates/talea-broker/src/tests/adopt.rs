//! Restart of the daemon: grants of existing owners are adopted, others are released.

use super::stage::{MS, Words, by, owned, setup, timed, urgent, world, world_of};
use crate::input::{Errno, LogEvent, SessionId};
use crate::sim::{Simulation, Target};
use talea_core::Span;
use talea_proto::message::{SpecId, Token};
use talea_proto::{Code, Owner, Reply, Request, ThreadRef, VERSION};

#[test]
fn retif_10_5_a_killed_daemon_loses_no_grant_with_an_existing_owner() {
    for owner in [Owner::Session, Owner::Process, Owner::Thread] {
        let mut world = world();
        let client = world.connect(1000);
        let pid = world.tid_of(client);
        let before = world.attr_of(pid);
        let attached = world.attached(client, owned(by(timed(2000, 10_000), "edf"), owner), pid);
        let idle = world.create(client, owned(urgent(7), owner));
        let (applied, free) = (world.attr_of(pid), world.free(client));
        world.restart();
        world.run_until_idle();
        assert_eq!(world.attr_of(pid), applied, "{owner:?}: the thread keeps its attributes");
        assert_eq!(world.broker.status().adopted, 2);
        world.check_idle(false);

        let client = world.open_connection(pid, 1000, &[]);
        assert!(matches!(
            world.call(client, Request::Hello { min: VERSION, max: VERSION }),
            Reply::Welcome { .. }
        ));
        assert_eq!(world.free(client), free, "{owner:?}: the ledger is as before");
        for granted in [attached, idle] {
            let claim = Request::Claim { spec: granted.spec, token: granted.token };
            let Reply::Granted(again) = world.call(client, claim) else { panic!("claimed") };
            assert_eq!(
                (again.spec, again.token, again.cpu),
                (granted.spec, granted.token, granted.cpu)
            );
            assert_eq!(
                (again.plugin, again.runtime, again.charge),
                (granted.plugin, granted.runtime, granted.charge)
            );
        }
        let new = world.create(client, urgent(5));
        assert!(new.spec > idle.spec, "new ids are above the adopted ones");
        world.done(client, Request::Release(attached.spec));
        assert_eq!(
            world.attr_of(pid),
            before,
            "{owner:?}: the attributes from before the first daemon's grant"
        );
    }
}

#[test]
fn unclaimed_grants_stay_until_their_owner_ends() {
    for owner in [Owner::Session, Owner::Process, Owner::Thread] {
        let mut world = world();
        let client = world.connect(1000);
        let pid = world.tid_of(client);
        world.attached(client, owned(urgent(5), owner), pid);
        world.restart();
        world.run_until_idle();
        assert_eq!((world.broker.specs(), world.broker.attached()), (1, 1), "{owner:?}");
        world.kernel.end_process(pid, world.now);
        world.run_until_idle();
        assert_eq!(world.leftovers(), Vec::<String>::new(), "{owner:?}");
        assert!(world.file.is_empty());
    }
}

#[test]
fn retif_10_5_a_grant_is_released_if_its_owner_exited_with_the_daemon() {
    for owner in [Owner::Session, Owner::Process] {
        let mut world = world();
        let (client, other) = (world.connect(1000), world.connect(1000));
        let (pid, tid) = (world.tid_of(client), world.tid_of(other));
        let before = world.attr_of(tid);
        world.attached(client, owned(urgent(5), owner), tid);
        world.kernel.end_process(pid, world.now);
        world.restart();
        world.run_until_idle();
        assert_eq!(world.attr_of(tid), before, "{owner:?}");
        assert!(world.log.iter().any(|event| matches!(event, LogEvent::Dropped { .. })));
        assert_eq!(world.leftovers(), Vec::<String>::new());
        assert!(world.file.is_empty());
    }
}

#[test]
fn r36_bandwidth_of_a_thread_that_exited_with_the_daemon_is_held_until_its_zero_lag_time() {
    let mut world = world();
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    let own = world.kernel.ordinary();
    world.kernel.spawn_thread(500, pid, own);
    let mut task = owned(by(timed(60_000, 100_000), "edf"), Owner::Thread);
    (task.cpus, task.cpus_mandatory) = (talea_core::CpuSet::single(0), true);
    world.attached(client, task, 500);
    world.kernel.end_thread(500, world.now);
    world.restart();
    world.run_until_idle();
    let client = world.open_connection(pid, 1000, &[]);
    world.call(client, Request::Hello { min: VERSION, max: VERSION });
    assert_eq!(world.broker.specs(), 0, "it ended with its thread");
    let asked = world.now;
    world.create(client, task);
    assert_eq!(world.now.since(asked), talea_core::Span::from_ns(100_000_000));
}

#[test]
fn r32_a_reused_thread_id_is_not_adopted() {
    let mut world = world();
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    let own = world.kernel.ordinary();
    for owner in [Owner::Process, Owner::Thread] {
        world.kernel.spawn_thread(500, pid, own);
        let client = world.open_connection(pid, 1000, &[]);
        world.call(client, Request::Hello { min: VERSION, max: VERSION });
        let granted = world.attached(client, owned(urgent(5), owner), 500);
        world.kernel.end_thread(500, world.now);
        world.kernel.spawn_thread(500, pid, own);
        world.restart();
        world.run_until_idle();
        assert_eq!(world.attr_of(500), own);
        let root = world.connect(0);
        let info = world.query(root, granted.spec);
        // A grant owned by the thread has ended with it; one owned by a process waits for another
        // thread.
        assert_eq!(info.map(|info| info.tid), (owner == Owner::Process).then_some(None));
        world.kernel.end_thread(500, world.now);
        world.check_idle(false);
    }
}

#[test]
fn retif_10_5_a_crash_at_any_point_of_an_attach_leaves_no_privileged_thread_unknown() {
    for progress in 0..8 {
        for daemon_only in [true, false] {
            let mut world = world();
            let client = world.connect(1000);
            let pid = world.tid_of(client);
            let own = world.kernel.ordinary();
            world.kernel.spawn_thread(500, pid, own);
            let granted = world.create(client, urgent(5));
            let attach = Request::Attach { spec: granted.spec, thread: ThreadRef::Pidfd };
            world.send(client, attach, Some(Target::Thread(500)));
            world.read_one(client);
            for _ in 0..progress {
                let _ = world.run_effect() || world.deliver_input();
            }
            if !daemon_only {
                world.kernel.processes.remove(&pid);
            }
            world.restart();
            world.run_until_idle();
            world.check_idle(false);
            if !daemon_only {
                assert_eq!(world.attr_of(500), own, "{progress}");
                assert!(world.file.is_empty());
            }
        }
    }
}

#[test]
fn a_grant_of_a_removed_plugin_stays_recorded_until_its_thread_is_restored() {
    let mut world = world();
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    let before = world.attr_of(pid);
    world.attached(client, by(urgent(5), "rr"), pid);
    world.next_errors.extend([Errno(1), Errno(1), Errno(1)]);
    world.restart_with(setup(&["edf", "rm", "fp"], 2));
    world.run_until_idle();
    assert_eq!(world.file.len(), 1, "the kernel has not restored the thread yet");
    let root = world.connect(0);
    assert_eq!(world.call(root, Request::NextSpec(talea_proto::SpecId(0))), Reply::End);
    world.advance(talea_core::Span::from_ns(1_000_000_000));
    world.run_until_idle();
    assert_eq!(world.attr_of(pid), before);
    assert!(world.file.is_empty());
    world.close_connection(root);
    world.run_until_idle();
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_claim_after_a_restart_needs_the_token_and_the_same_user() {
    let mut world = world();
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    let granted = world.create(client, urgent(5));
    world.restart();
    world.run_until_idle();
    let (same, other) = (world.open_connection(pid, 1000, &[]), world.connect(1001));
    world.call(same, Request::Hello { min: VERSION, max: VERSION });
    let (spec, token) = (granted.spec, granted.token);
    assert_eq!(world.refused(other, Request::Claim { spec, token }).code, Code::NoSuchSpec);
    let wrong = talea_proto::message::Token([0; 16]);
    assert_eq!(world.refused(same, Request::Claim { spec, token: wrong }).code, Code::BadToken);
    // The same user may not modify the spec before claiming it.
    assert_eq!(world.refused(same, Request::Release(spec)).code, Code::NotOwner);
    assert!(matches!(world.call(same, Request::Claim { spec, token }), Reply::Granted(_)));
    world.done(same, Request::Release(spec));
}

#[test]
fn r24_the_usage_of_a_group_is_counted_by_the_next_daemon_before_any_claim() {
    use talea_core::setup::{Access, Bound, Domain, Rule};
    for owner in [Owner::Process, Owner::Thread] {
        let mut setup = setup(&["rm"], 2);
        setup.access = Access::Rules;
        setup.rules = vec![Rule {
            domain: Domain::Group(29),
            plugin: None,
            bound: Bound::MaxUtilization(talea_core::Charge::ratio(1, 2)),
            origin: "talead.toml:3".to_owned(),
        }];
        let mut world = world_of(setup, 2);
        let greet = |world: &mut Simulation, pid: u32| {
            let session = world.open_connection(pid, pid, &[29]);
            assert!(matches!(
                world.call(session, Request::Hello { min: VERSION, max: VERSION }),
                Reply::Welcome { .. }
            ));
            session
        };
        for (pid, uid) in [(50, 1000), (51, 1000), (52, 1001)] {
            world.kernel.spawn(pid, uid);
        }
        let client = greet(&mut world, 50);
        // The thread belongs to another process, which connects only once to be known.
        let other = greet(&mut world, 51);
        world.close_connection(other);
        let held = world.attached(client, owned(timed(4_000, 10_000), owner), 51);
        if owner == Owner::Thread {
            world.kernel.end_process(50, world.now);
        }
        world.restart();
        world.run_until_idle();
        let (member, root) = (greet(&mut world, 52), world.connect(0));
        let refusal = world.refused(member, Request::Create(timed(2_000, 10_000)));
        assert_eq!((refusal.code, refusal.asked), (Code::RuleBound, 600_000), "{owner:?}");
        // Root may change it under the rules of its client.
        let less = Request::Change { spec: held.spec, task: timed(3_000, 10_000) };
        assert!(matches!(world.call(root, less), Reply::Granted(_)), "{owner:?}");
        world.create(member, timed(2_000, 10_000));
        world.done(root, Request::Release(held.spec));
        world.create(member, timed(3_000, 10_000));
        world.check_idle(false);
    }
}

#[test]
fn adopted_users_count_towards_their_quota() {
    let mut setup = setup(&["fp"], 2);
    setup.quota.specs_per_user = 2;
    let mut world = world_of(setup, 2);
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    world.create(client, urgent(5));
    world.create(client, urgent(5));
    world.restart();
    world.run_until_idle();
    let client = world.open_connection(pid, 1000, &[]);
    world.call(client, Request::Hello { min: VERSION, max: VERSION });
    assert_eq!(world.refused(client, Request::Create(urgent(5))).code, Code::Quota);
}

/// Connects a process of user 1000 again.
pub(super) fn reconnect(world: &mut Simulation, pid: u32) -> SessionId {
    let client = world.open_connection(pid, 1000, &[]);
    let welcome = world.call(client, Request::Hello { min: VERSION, max: VERSION });
    assert!(matches!(welcome, Reply::Welcome { .. }), "{welcome:?}");
    client
}

#[test]
fn attack_15_a_process_that_connects_again_has_five_seconds_for_its_claims() {
    let mut world = world();
    let (client, other) = (world.connect(1000), world.connect(1000));
    let (pid, idle) = (world.tid_of(client), world.tid_of(other));
    let own = world.kernel.ordinary();
    world.kernel.spawn_thread(500, pid, own);
    let before = world.attr_of(500);
    let claimed = world.attached(client, urgent(5), pid);
    let leaked = world.attached(client, urgent(6), 500);
    let unused = world.create(client, owned(urgent(7), Owner::Thread));
    let process = world.create(client, owned(urgent(8), Owner::Process));
    let of_idle = world.create(other, urgent(9));
    world.restart();
    world.run_until_idle();
    world.advance(Span::from_ns(3_600 * 1_000 * MS));
    world.run_until_idle();
    assert_eq!(world.broker.specs(), 5, "a process without requests keeps its grants");

    // A connection that is not accepted yet, or never, starts no time.
    world.open_connection(pid, 1000, &[]);
    world.advance(Span::from_ns(60_000 * MS));
    world.run_until_idle();
    assert_eq!(world.broker.specs(), 5);

    let client = reconnect(&mut world, pid);
    let claim = Request::Claim { spec: claimed.spec, token: claimed.token };
    assert!(matches!(world.call(client, claim), Reply::Granted(_)));
    world.advance(Span::from_ns(3_000 * MS));
    // A further connection does not extend the time.
    let again = reconnect(&mut world, pid);
    world.advance(Span::from_ns(1_999 * MS));
    world.run_until_idle();
    assert_eq!(world.broker.specs(), 5);
    world.advance(Span::from_ns(MS));
    world.run_until_idle();
    for (granted, stays) in
        [(claimed, true), (leaked, false), (unused, false), (process, true), (of_idle, true)]
    {
        assert_eq!(world.query(again, granted.spec).is_some(), stays, "{:?}", granted.spec);
    }
    assert_eq!(world.attr_of(500), before, "the thread of an unclaimed grant is restored");
    world.check_idle(false);
    for pid in [pid, idle] {
        world.kernel.end_process(pid, world.now);
    }
    world.run_until_idle();
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn attack_15_a_library_has_its_own_time_for_claims() {
    let mut world = world();
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    let seeded = |world: &mut Simulation, library| {
        let client = reconnect(world, pid);
        world.done(client, Request::Seed(Token::new(library, u64::from(client.0 as u32))));
        client
    };
    let (busy, also_busy) = (seeded(&mut world, 1), seeded(&mut world, 1));
    let idle = seeded(&mut world, 2);
    let claimed = world.create(busy, urgent(5));
    let dropped = world.create(also_busy, urgent(6));
    let of_idle = world.create(idle, urgent(7));
    let unseeded = world.create(client, urgent(8));
    world.restart();
    world.run_until_idle();
    let busy = seeded(&mut world, 1);
    let claim = Request::Claim { spec: claimed.spec, token: claimed.token };
    assert!(matches!(world.call(busy, claim), Reply::Granted(_)));
    world.advance(Span::from_ns(3_600 * 1_000 * MS));
    world.run_until_idle();
    for (granted, stays) in [(claimed, true), (dropped, false), (of_idle, true), (unseeded, false)]
    {
        assert_eq!(world.query(busy, granted.spec).is_some(), stays, "{:?}", granted.spec);
    }
    // The time of the other library starts with its own connection.
    let idle = seeded(&mut world, 2);
    world.advance(Span::from_ns(4_999 * MS));
    world.run_until_idle();
    let claim = Request::Claim { spec: of_idle.spec, token: of_idle.token };
    assert!(matches!(world.call(idle, claim), Reply::Granted(_)));
    world.advance(Span::from_ns(5_000 * MS));
    world.run_until_idle();
    assert!(world.query(idle, of_idle.spec).is_some());
    world.check_idle(false);
}

#[test]
fn attack_19_a_client_claims_by_its_seed_what_a_lost_reply_has_granted() {
    let mut world = world();
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    let unseeded = world.create(client, urgent(5));
    let seed = Token(*b"a secret of ours");
    world.done(client, Request::Seed(seed));
    let seq = world.send(client, Request::Create(urgent(6)), None);
    let group = world.send(client, Request::CreateGroup(vec![urgent(7), urgent(8)]), None);
    world.run_until_idle();
    assert_eq!(world.broker.specs(), 4, "the daemon is killed before the client reads the replies");
    world.restart();
    world.run_until_idle();
    let client = reconnect(&mut world, pid);
    let by_token = |token| Request::Claim { spec: SpecId(0), token };
    let first = Token::derived(seed, group);
    for token in [Token::derived(seed, seq), first, first.of_group(1), unseeded.token] {
        match world.call(client, by_token(token)) {
            Reply::Granted(granted) => assert_eq!(granted.token, token),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(world.refused(client, by_token(first.of_group(2))).code, Code::NoSuchSpec);
    // Another user cannot claim, even with the token.
    let mallory = world.connect(1001);
    assert_eq!(world.refused(mallory, by_token(first)).code, Code::NoSuchSpec);
    let root = world.connect(0);
    assert_eq!(world.refused(root, by_token(first)).code, Code::NoSuchSpec, "only one's own");
}
