//! Actions that a user may not do to another user, the superuser, or the daemon. The attacker here
//! follows the protocol; the one of `abuse` does not.

use crate::tasks::{owned_by, periodic, with};
use std::os::unix::process::CommandExt;
use std::process::Command;
use talea_kernel_tests::bench::program;
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Client, Daemon, config, eventually, kernel, needs_root,
};
use talea_os::sched::Policy;
use talea_proto::message::Token;
use talea_proto::{Code, Owner, Reply, Request, SpecId, ThreadRef};

fn code(reply: Reply) -> Code {
    match reply {
        Reply::Refused(refusal) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn r25_retif_s1_no_user_changes_threads_of_others() {
    needs_root!();
    let bench = Bench::new("s1");
    let daemon = Daemon::start(&bench, &config::open());
    let (alice, bob, root) = (Agent::user(ALICE), Agent::user(BOB), Agent::root());
    let attacker = bob.connect(&daemon);
    let granted = attacker.create(with("rm", periodic(10)));
    for victim in [
        alice.thread(),
        root.thread(),
        alice.pid(),
        root.pid(),
        daemon.pid(),
        std::process::id() as i32,
    ] {
        let before = kernel::attr(victim);
        assert_eq!(code(attacker.try_attach_by_number(granted.spec, victim)), Code::ForeignThread);
        assert_eq!(code(attacker.try_attach(granted.spec, victim)), Code::ForeignThread);
        assert_eq!(kernel::attr(victim), before);
    }
    // Init, kernel threads, and what does not exist.
    for victim in [1, 2, 3] {
        assert!(matches!(attacker.try_attach_by_number(granted.spec, victim), Reply::Refused(_)));
    }
    // Root may do it.
    let tid = alice.thread();
    let ours = root.connect(&daemon);
    let granted = ours.create(with("rm", periodic(10)));
    ours.attach(granted.spec, tid);
    assert!(kernel::policy(tid).is_realtime());
}

#[test]
fn r25_retif_s2_s3_specs_of_others_do_not_exist() {
    needs_root!();
    let bench = Bench::new("s2");
    let daemon = Daemon::start(&bench, &config::open());
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let client = alice.connect(&daemon);
    let tid = alice.thread();
    let granted = client.create(with("rm", periodic(10)));
    client.attach(granted.spec, tid);
    let attr = kernel::attr(tid);
    let attacker = bob.connect(&daemon);
    let own = bob.thread();
    // Forged ids around the real one, and the real one.
    for id in
        [0, granted.spec.0, granted.spec.0 + 1, granted.spec.0.wrapping_sub(1), u64::MAX, 1 << 32]
    {
        let spec = SpecId(id);
        for request in [
            Request::Query(spec),
            Request::Release(spec),
            Request::Detach(spec),
            Request::Change { spec, task: with("rm", periodic(1)) },
            Request::Claim { spec, token: granted.token },
            Request::Claim { spec, token: Token([0; 16]) },
        ] {
            assert_eq!(attacker.refused(&request).code, Code::NoSuchSpec, "{request:?}");
        }
        assert_eq!(code(attacker.try_attach(spec, own)), Code::NoSuchSpec);
    }
    assert_eq!(attacker.ask(&Request::NextSpec(SpecId(0))), Reply::End, "nothing to see");
    // Another connection of the same user sees it, and that is all: it has not got the token.
    let sibling = Agent::user(ALICE);
    let other = sibling.connect(&daemon);
    assert_eq!(other.query(granted.spec).granted.token, Token([0; 16]));
    for request in [
        Request::Release(granted.spec),
        Request::Detach(granted.spec),
        Request::Change { spec: granted.spec, task: with("rm", periodic(1)) },
    ] {
        assert_eq!(other.refused(&request).code, Code::NotOwner, "{request:?}");
    }
    assert_eq!(code(other.claim(granted.spec, Token([1; 16]))), Code::BadToken);
    assert_eq!(kernel::attr(tid), attr);
    assert!(kernel::is_ordinary(own));
}

#[test]
fn retif_s4_s8_thread_zero_is_no_thread_and_never_the_daemon() {
    needs_root!();
    let bench = Bench::new("s4");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    daemon.wait_until_raised();
    let before = (kernel::attr(daemon.pid()), kernel::affinity(daemon.pid()));
    let granted = client.create(with("rm", periodic(10)));
    for number in [0, -1, i32::MIN, i32::MAX, 4_194_305] {
        let said = code(client.try_attach_by_number(granted.spec, number));
        assert!(matches!(said, Code::NoSuchThread | Code::Malformed), "{number}: {said:?}");
    }
    assert_eq!(
        client.refused(&Request::Attach { spec: granted.spec, thread: ThreadRef::Pidfd }).code,
        Code::Malformed
    );
    // Releasing what was never attached neither reads nor changes the policy of any thread.
    client.done(&Request::Release(granted.spec));
    daemon.wait_until_raised();
    assert_eq!((kernel::attr(daemon.pid()), kernel::affinity(daemon.pid())), before);
    assert!(kernel::is_ordinary(alice.pid()));
}

#[test]
fn retif_s5_s9_one_admission_makes_one_thread_real_time() {
    needs_root!();
    let bench = Bench::new("s5");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let (one, two) = (alice.thread(), alice.thread());
    let first = client.create(with("rm", periodic(10)));
    let second = client.create(with("rm", periodic(20)));
    client.attach(first.spec, one);
    assert_eq!(code(client.try_attach(first.spec, two)), Code::SpecTaken);
    assert!(kernel::is_ordinary(two));
    assert_eq!(code(client.try_attach(second.spec, one)), Code::ThreadTaken);
    assert_eq!(code(client.try_attach_by_number(second.spec, one)), Code::ThreadTaken);
    // So ending the second leaves the first alone.
    client.done(&Request::Release(second.spec));
    assert!(kernel::policy(one).is_realtime());
    client.done(&Request::Release(first.spec));
    assert!(kernel::is_ordinary(one));
}

#[test]
fn retif_w18_two_connections_of_one_process_are_two_clients() {
    needs_root!();
    let bench = Bench::new("w18");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let (one, two) = (alice.connect(&daemon), alice.connect(&daemon));
    let (a, b) = (alice.thread(), alice.thread());
    let first = one.create(with("rm", periodic(10)));
    one.attach(first.spec, a);
    let second = two.create(with("rm", periodic(20)));
    two.attach(second.spec, b);
    two.close();
    talea_kernel_tests::eventually("the second client's thread is back", || kernel::is_ordinary(b));
    assert!(kernel::policy(a).is_realtime());
    assert_eq!(one.query(first.spec).tid, Some(a as u32));
}

#[test]
fn r25_only_root_stops_the_daemon() {
    needs_root!();
    let bench = Bench::new("stop");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for release in [false, true] {
        assert_eq!(client.refused(&Request::Stop { release }).code, Code::NotRoot);
    }
    // Root of a user namespace of its own is no root here.
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--"]).arg(program("talea-test-agent"));
    command.uid(BOB).gid(BOB);
    let pretender = Agent::start(command, 0);
    if pretender.order("pid").parse::<i32>().is_ok() {
        let client = pretender.connect(&daemon);
        assert_eq!(client.refused(&Request::Stop { release: true }).code, Code::NotRoot);
    }
}

/// Starts an agent of `uid` in a PID namespace of its own.
fn namespaced(uid: u32) -> Agent {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--"]);
    command.args([
        "setpriv",
        &format!("--reuid={uid}"),
        &format!("--regid={uid}"),
        "--clear-groups",
        "--",
    ]);
    command.arg(program("talea-test-agent"));
    Agent::start(command, 0)
}

#[test]
fn r25_a_bare_number_from_another_pid_namespace_names_no_thread_and_a_pidfd_the_right_one() {
    needs_root!();
    let bench = Bench::new("namespace");
    let daemon = Daemon::start(&bench, &config::open());
    let inside = namespaced(ALICE);
    let client = inside.connect(&daemon);
    let local = inside.thread();
    let granted = client.create(with("rm", periodic(10)));
    // Its small numbers are other threads' numbers here.
    for number in [local, 1, daemon.pid()] {
        assert_eq!(code(client.try_attach_by_number(granted.spec, number)), Code::TidNotAccepted);
        assert_eq!(code(client.try_attach_own(granted.spec, number)), Code::TidNotAccepted);
    }
    client.attach(granted.spec, local);
    let here = client.query(granted.spec).tid.expect("attached") as i32;
    assert_ne!(here, local);
    assert_eq!(kernel::policy(here), Policy::Fifo(granted.priority));
    client.done(&Request::Release(granted.spec));
    assert!(kernel::is_ordinary(here));
}

#[test]
fn r25_a_tid_claimed_as_own_names_no_thread_of_another_process() {
    needs_root!();
    let bench = Bench::new("own-number");
    let daemon = Daemon::start(&bench, &config::open());
    let (alice, sister, bob) = (Agent::user(ALICE), Agent::user(ALICE), Agent::user(BOB));
    let client = alice.connect(&daemon);
    let granted = client.create(with("rm", periodic(10)));
    for foreign in [sister.pid(), sister.thread(), bob.pid(), bob.thread(), daemon.pid(), 1, 2] {
        daemon.wait_until_raised();
        let before = kernel::policy(foreign);
        let said = client.try_attach_own(granted.spec, foreign);
        assert!(
            matches!(code(said.clone()), Code::TidNotAccepted | Code::Kernel),
            "{foreign}: {said:?}"
        );
        daemon.wait_until_raised();
        assert_eq!(kernel::policy(foreign), before, "{foreign}");
    }
    let tid = alice.thread();
    assert_eq!(client.try_attach_own(granted.spec, tid), Reply::Done);
    assert_eq!(kernel::policy(tid), Policy::Fifo(granted.priority));
    client.done(&Request::Release(granted.spec));
    assert!(kernel::is_ordinary(tid));
}

#[test]
fn r25_only_a_pidfd_of_a_thread_names_a_thread() {
    needs_root!();
    let bench = Bench::new("descriptor");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let granted = client.create(with("rm", periodic(10)));
    let tid = alice.thread();
    let descriptors =
        || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("fds").count();
    let before = descriptors();
    for path in ["/dev/null", "/proc/self/stat", "/proc/1", "/"] {
        let message =
            client.encode(&Request::Attach { spec: granted.spec, thread: ThreadRef::Pidfd });
        let said = alice.order(&format!("send-file {} {path} {message}", client.index()));
        assert_eq!(said, "sent");
        let reply = client.receive().expect("an answer").1;
        assert_eq!(code(reply), Code::Malformed, "{path}");
    }
    // A descriptor with a message that has no use for one is closed, not kept.
    for _ in 0..50 {
        let message = client.encode(&Request::Status);
        alice.order(&format!("send-file {} /dev/null {message}", client.index()));
        client.receive().expect("an answer");
    }
    eventually("every descriptor is closed", || descriptors() == before);
    client.attach(granted.spec, tid);
}

#[test]
fn r25_a_thread_that_changes_its_user_is_no_longer_the_clients() {
    needs_root!();
    let bench = Bench::new("changed-user");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let granted = client.create(owned_by(Owner::Process, with("rm", periodic(10))));
    // The same number of process, another program of another user: `setpriv` execs in place.
    let bob = Agent::user(BOB);
    assert_eq!(code(client.try_attach(granted.spec, bob.pid())), Code::ForeignThread);
    let refusals: &[&dyn Fn(&Client) -> Reply] =
        &[&|client| client.try_attach(granted.spec, bob.thread()), &|client| {
            client.try_attach_by_number(granted.spec, bob.thread())
        }];
    for attempt in refusals {
        assert_eq!(code(attempt(&client)), Code::ForeignThread);
    }
}
