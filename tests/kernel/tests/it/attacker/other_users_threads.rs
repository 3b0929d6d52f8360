//! Threads and specs of other users: guessed, forged, replayed, borrowed, disguised.

use super::fixture::{Fixture, MALLORY, code, refusal, set_mode, small, test_clients, unlimited};
use crate::tasks::{owned_by, periodic, ranked, with};
use std::os::unix::process::CommandExt;
use std::process::Command;
use talea_kernel_tests::{Agent, BOB, eventually, kernel, needs, needs_root};
use talea_proto::message::Token;
use talea_proto::{Code, Owner, Reply, Request, SpecId, ThreadRef};

/// Returns all requests on a spec.
fn every_verb(spec: SpecId) -> [Request; 6] {
    [
        Request::Change { spec, task: small() },
        Request::Release(spec),
        Request::Detach(spec),
        Request::Query(spec),
        Request::Claim { spec, token: Token([0; 16]) },
        Request::Attach { spec, thread: ThreadRef::Pidfd },
    ]
}

#[test]
fn r25_retif_s1_no_thread_of_another_user_can_be_named() {
    needs_root!();
    let fixture = Fixture::new("attack-threads");
    let mallory = Fixture::mallory();
    let client = mallory.connect(&fixture.daemon);
    fixture.under(|| {
        for task in [
            small(),
            with("fp", ranked(50)),
            with("rr", ranked(50)),
            with("edf", crate::tasks::reserved(20, 200)),
        ] {
            let grant = client.create(task);
            for (what, tid) in fixture.threads_of_others() {
                for reply in [
                    client.try_attach(grant.spec, tid),
                    client.try_attach_by_number(grant.spec, tid),
                ] {
                    let no = refusal(reply);
                    assert_eq!(
                        (no.code, no.limit),
                        (Code::ForeignThread, u64::from(MALLORY)),
                        "{what}"
                    );
                }
            }
            assert_eq!(client.query(grant.spec).tid, None);
            client.done(&Request::Release(grant.spec));
        }
    });
}

#[test]
fn r25_kernel_threads_thread_zero_and_unused_numbers_are_refused() {
    needs_root!();
    let fixture = Fixture::new("attack-numbers");
    let (mallory, root) = (Fixture::mallory(), Agent::root());
    let (client, of_root) = (mallory.connect(&fixture.daemon), root.connect(&fixture.daemon));
    let kernel_thread = (2..64).find(|&tid| {
        talea_os::proc::stat(kernel::tid(tid)).is_ok_and(|stat| stat.is_kernel_thread())
    });
    fixture.under(|| {
        for (client, grant) in
            [(&client, client.create(small())), (&of_root, of_root.create(small()))]
        {
            let try_number = |tid: u32| {
                code(client.ask(&Request::Attach { spec: grant.spec, thread: ThreadRef::Tid(tid) }))
            };
            // In a system call, 0 means the calling thread: the daemon.
            assert_eq!(try_number(0), Code::Malformed);
            for unused in [u32::MAX, i32::MAX as u32, 1 << 31, 4_194_304, 4_194_305] {
                assert_eq!(try_number(unused), Code::NoSuchThread, "{unused}");
            }
            // Not even root's client moves the kernel's own threads.
            if let Some(tid) = kernel_thread {
                for reply in [
                    client.try_attach(grant.spec, tid),
                    client.try_attach_by_number(grant.spec, tid),
                ] {
                    let code = code(reply);
                    assert!(matches!(code, Code::Kernel | Code::ForeignThread), "{code:?}");
                }
            }
            // Nothing was named at all.
            assert_eq!(
                code(client.ask(&Request::Attach { spec: grant.spec, thread: ThreadRef::Pidfd })),
                Code::Malformed
            );
            client.done(&Request::Release(grant.spec));
        }
    });
}

#[test]
fn r25_retif_s2_guessed_specs_do_not_exist_for_any_request() {
    needs_root!();
    let fixture = Fixture::new("attack-specs");
    let mallory = Fixture::mallory();
    let client = mallory.connect(&fixture.daemon);
    let tid = mallory.thread();
    fixture.under(|| {
        for id in (0..40).chain([u64::MAX, u64::MAX - 1, 1 << 63, 1 << 32]) {
            for request in every_verb(SpecId(id)) {
                let reply = match request {
                    Request::Attach { spec, .. } => client.try_attach(spec, tid),
                    request => client.ask(&request),
                };
                assert_eq!(code(reply), Code::NoSuchSpec, "spec {id}");
            }
        }
        // And a walk through the list shows none.
        assert_eq!(client.ask(&Request::NextSpec(SpecId(0))), Reply::End);
        let mut next = 0;
        while let Reply::Session(info) = client.ask(&Request::NextSession(next)) {
            assert_eq!(info.uid, MALLORY, "sessions of others are not shown");
            next = info.session + 1;
        }
    });
    assert!(kernel::is_ordinary(tid));
}

#[test]
fn r25_retif_s3_a_stolen_token_is_worth_nothing_to_another_user_and_little_to_the_same() {
    needs_root!();
    let fixture = Fixture::new("attack-tokens");
    let mallory = Fixture::mallory();
    let (client, second) = (mallory.connect(&fixture.daemon), mallory.connect(&fixture.daemon));
    // Bob's own words, overheard.
    let bobs = fixture.bob().connect(&fixture.daemon);
    let stolen = bobs.create(owned_by(Owner::Process, with("quiet", ranked(3))));
    fixture.under(|| {
        for _ in 0..20 {
            assert_eq!(code(client.claim(stolen.spec, stolen.token)), Code::NoSuchSpec);
        }
        // Her own spec, from another connection of hers: seen, but not commanded without the token.
        let own = client.create(owned_by(Owner::Process, small()));
        assert_eq!(
            second.query(own.spec).granted.token,
            Token([0; 16]),
            "a token is reported once"
        );
        let mut token = own.token;
        for bit in 0..128 {
            token.0[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(code(second.claim(own.spec, token)), Code::BadToken, "bit {bit}");
            token.0[bit / 8] ^= 1 << (bit % 8);
        }
        for no in [Request::Change { spec: own.spec, task: small() }, Request::Detach(own.spec)] {
            assert_eq!(code(second.ask(&no)), Code::NotOwner);
        }
        // Replayed after the spec's end it names nothing, and never names a later spec.
        client.done(&Request::Release(own.spec));
        let later = client.create(small());
        assert_ne!(later.spec, own.spec, "names are never used twice");
        assert_eq!(code(second.claim(own.spec, own.token)), Code::NoSuchSpec);
        assert_eq!(code(second.claim(later.spec, own.token)), Code::BadToken);
        client.done(&Request::Release(later.spec));
    });
    bobs.done(&Request::Release(stolen.spec));
}

#[test]
fn r25_a_replayed_claim_takes_nothing_from_the_first_claimant() {
    needs_root!();
    let mut fixture = Fixture::new("attack-replay");
    let mallory = Fixture::mallory();
    let tid = fixture.bob().thread();
    let grant = {
        let client = fixture.bob().connect(&fixture.daemon);
        let grant = client.create(with("quiet", ranked(3)));
        client.attach(grant.spec, tid);
        grant
    };
    let given = kernel::attr(tid);
    for _ in 0..3 {
        fixture.daemon.kill();
        fixture.daemon.restart();
        // Before Bob is back: his grant waits for him alone.
        let client = mallory.connect(&fixture.daemon);
        for token in [grant.token, Token([0; 16]), Token([0xff; 16])] {
            assert_eq!(code(client.claim(grant.spec, token)), Code::NoSuchSpec);
        }
        let bob = fixture.bob().connect(&fixture.daemon);
        assert_eq!(code(bob.claim(grant.spec, Token([0; 16]))), Code::BadToken);
        assert!(matches!(bob.claim(grant.spec, grant.token), Reply::Granted(_)));
        assert_eq!(code(client.claim(grant.spec, grant.token)), Code::NoSuchSpec);
        assert_eq!(kernel::attr(tid), given);
    }
}

#[test]
fn r25_a_thread_belongs_to_its_user_at_the_time_of_the_request() {
    needs_root!();
    let fixture = Fixture::new("attack-turncoat");
    // Root's program, whose threads take Mallory's user on and off: what a set-user-id program does
    // in its life.
    let turncoat = fixture.test_clients(0);
    let mallory = Fixture::mallory();
    let client = mallory.connect(&fixture.daemon);
    let become_user = |tid: i32, real: u32, effective: u32, saved: u32| {
        assert_eq!(turncoat.order(&format!("become {tid} {real} {effective} {saved}")), "became");
    };
    fixture.under(|| {
        let tid = turncoat.thread();
        let grant = client.create(unlimited());
        let attempts = |expected: Code| {
            for reply in
                [client.try_attach(grant.spec, tid), client.try_attach_by_number(grant.spec, tid)]
            {
                assert_eq!(code(reply), expected);
            }
            assert!(kernel::is_ordinary(tid));
        };
        attempts(Code::ForeignThread);
        // All three ids count: a program that root has lent to Mallory is still root's, and so is
        // one that works with her rights for a moment.
        become_user(tid, MALLORY, 0, 0);
        attempts(Code::ForeignThread);
        become_user(tid, MALLORY, BOB, 0);
        attempts(Code::ForeignThread);
        become_user(tid, 0, MALLORY, 0);
        attempts(Code::ForeignThread);
        become_user(tid, MALLORY, MALLORY, 0);
        attempts(Code::ForeignThread);
        become_user(tid, MALLORY, MALLORY, MALLORY);
        client.attach(grant.spec, tid);
        assert!(kernel::policy(tid).is_realtime());
        client.done(&Request::Release(grant.spec));
        assert!(kernel::is_ordinary(tid));
    });
}

#[test]
fn r25_an_attached_thread_that_changed_its_user_gets_no_further_grant() {
    needs_root!();
    let fixture = Fixture::new("attack-upgrade");
    let turncoat = crate::attack::with_cap_setuid(&fixture.bench);
    let mallory = Fixture::mallory();
    let client = mallory.connect(&fixture.daemon);
    let tid = turncoat.thread();
    let grant = client.create(with("fp", ranked(5)));
    client.attach(grant.spec, tid);
    assert_eq!(turncoat.order(&format!("become {tid} 0 0 0")), "became");
    eventually("its grant has ended", || kernel::is_ordinary(tid));
    let given = kernel::attr(tid);
    for task in [
        with("fp", ranked(90)),
        with("rr", ranked(90)),
        with("edf", crate::tasks::reserved(10, 1_000)),
    ] {
        // The spec has no thread any more.
        let said = client.ask(&Request::Change { spec: grant.spec, task });
        assert!(matches!(said, Reply::Granted(_)), "{said:?}");
        assert_eq!(kernel::attr(tid), given);
        assert_eq!(code(client.try_attach(grant.spec, tid)), Code::ForeignThread);
    }
    client.done(&Request::Release(grant.spec));
    assert_eq!(kernel::attr(tid), given);
    client.close();
    fixture.is_unharmed();
}

#[test]
fn r25_a_set_user_id_program_belongs_to_its_owner() {
    needs_root!();
    let fixture = Fixture::new("attack-suid");
    let program = test_clients(&fixture.bench);
    let mallory = Fixture::mallory();
    let client = mallory.connect(&fixture.daemon);
    for owner in [BOB, 0] {
        let lent = fixture.bench.path(&format!("suid-{owner}"));
        std::fs::copy(&program, &lent).expect("a copy");
        std::os::unix::fs::chown(&lent, Some(owner), Some(owner)).expect("chown");
        set_mode(&lent, 0o4755);
        let mut command = Command::new(&lent);
        command.uid(MALLORY).gid(MALLORY);
        // Started by Mallory, running as its owner.
        let lent = Agent::start(command, 0);
        let tid = lent.thread();
        let effective = talea_os::proc::status(kernel::tid(tid)).expect("a thread").uids.effective;
        needs!("set-user-id programs (no nosuid mount)", effective == owner);
        fixture.under(|| {
            let grant = client.create(small());
            for tid in [tid, lent.pid()] {
                for reply in [
                    client.try_attach(grant.spec, tid),
                    client.try_attach_by_number(grant.spec, tid),
                ] {
                    assert_eq!(code(reply), Code::ForeignThread);
                }
                assert!(kernel::is_ordinary(tid));
            }
            client.done(&Request::Release(grant.spec));
        });
    }
}

#[test]
fn r25_numbers_from_another_pid_namespace_name_no_thread() {
    needs_root!();
    let fixture = Fixture::new("attack-namespace");
    // Every user can create a user namespace, and in it a PID namespace with its own process 1.
    let inside_runs = |program: &std::path::Path| {
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--"])
            .arg(program);
        command
    };
    let mut attempt = inside_runs("/bin/true".as_ref());
    let possible = attempt.uid(MALLORY).gid(MALLORY).status().is_ok_and(|status| status.success());
    needs!("unprivileged user namespaces", possible);
    let inside = Agent::start(inside_runs(&test_clients(&fixture.bench)), MALLORY);
    let client = inside.connect(&fixture.daemon);
    let tid = inside.thread();
    fixture.under(|| {
        let grant = client.create(small());
        for number in [1, 2, tid, fixture.daemon.pid()]
            .into_iter()
            .chain(fixture.threads_of_others().map(|(_, t)| t))
        {
            assert_eq!(
                code(client.try_attach_by_number(grant.spec, number)),
                Code::TidNotAccepted,
                "{number}"
            );
        }
        // She is root in there and an ordinary user here.
        for release in [false, true] {
            assert_eq!(client.refused(&Request::Stop { release }).code, Code::NotRoot);
        }
        // A descriptor names the right thread from anywhere.
        client.attach(grant.spec, tid);
        let here = client.query(grant.spec).tid.expect("attached") as i32;
        assert!(kernel::policy(here).is_realtime());
        client.done(&Request::Release(grant.spec));
        assert!(kernel::is_ordinary(here));
    });
}

#[test]
fn r25_a_socket_has_the_rights_of_the_connecting_process() {
    needs_root!();
    let fixture = Fixture::new("attack-borrowed");
    let root = fixture.test_clients(0);
    let socket = fixture.daemon.socket().display();
    fixture.under(|| {
        // Connected as Mallory, then used by root's process: Mallory's rights, no more.
        let index =
            root.order(&format!("connect-as {socket} {MALLORY}")).parse().expect("a number");
        let client = root.client_at(index);
        assert!(matches!(client.ask(&hello()), Reply::Welcome { .. }));
        let grant = client.create(small());
        for (what, tid) in fixture.threads_of_others() {
            assert_eq!(code(client.try_attach(grant.spec, tid)), Code::ForeignThread, "{what}");
        }
        let own = root.thread();
        assert_eq!(code(client.try_attach(grant.spec, own)), Code::ForeignThread);
        assert_eq!(client.refused(&Request::Stop { release: true }).code, Code::NotRoot);
        assert_eq!(client.query(grant.spec).uid, MALLORY);
        client.done(&Request::Release(grant.spec));
        client.close();
    });
}

fn hello() -> Request {
    Request::Hello { min: talea_proto::VERSION, max: talea_proto::VERSION }
}

#[test]
fn r25_a_thread_is_not_kept_real_time_by_ending_its_process_at_the_right_moment() {
    needs_root!();
    let fixture = Fixture::new("attack-exit");
    fixture.under(|| {
        let mallory = Fixture::mallory();
        let client = mallory.connect(&fixture.daemon);
        let grant = client.create(owned_by(Owner::Thread, with("rm", periodic(100))));
        let tid = mallory.thread();
        // Killed with the request on its way.
        client.send(&Request::Attach { spec: grant.spec, thread: ThreadRef::Tid(tid as u32) });
        mallory.kill();
        eventually("the thread is gone", || !kernel::exists(tid));
    });
}
