//! Ownership of specs and access to them (R25).

use super::stage::{Words, owned, urgent, world};
use talea_proto::message::Token;
use talea_proto::{Code, Owner, Reply, Request, ThreadRef, VERSION};

#[test]
fn retif_s1_r25_a_thread_of_another_user_is_refused_unless_root_asks() {
    let mut world = world();
    let (root, mallory) = (world.connect(0), world.connect(1001));
    let (theirs, own) = (world.tid_of(root), world.tid_of(mallory));
    let granted = world.create(mallory, urgent(5));
    let before = world.attr_of(theirs);
    let Reply::Refused(refusal) = world.attach(mallory, granted.spec, theirs) else {
        panic!("refused")
    };
    assert_eq!((refusal.code, refusal.asked, refusal.limit), (Code::ForeignThread, 0, 1001));
    assert_eq!(world.attr_of(theirs), before);
    let granted = world.create(root, urgent(5));
    assert_eq!(world.attach(root, granted.spec, own), Reply::Done);
    world.check_idle(false);
}

#[test]
fn retif_s2_other_users_read_nothing_and_other_connections_modify_nothing() {
    let mut world = world();
    let (alice, again, mallory) = (world.connect(1000), world.connect(1000), world.connect(1001));
    let tid = world.tid_of(alice);
    let granted = world.attached(alice, urgent(5), tid);
    let (spec, task) = (granted.spec, urgent(6));
    let meddling = [
        Request::Change { spec, task },
        Request::Release(spec),
        Request::Detach(spec),
        Request::Attach { spec, thread: ThreadRef::Pidfd },
    ];
    for request in meddling {
        assert_eq!(world.refused(mallory, request.clone()).code, Code::NoSuchSpec);
        assert_eq!(world.refused(again, request).code, Code::NotOwner);
    }
    assert_eq!(world.query(mallory, spec), None);
    let seen = world.query(again, spec).expect("the same user may read");
    assert_eq!(seen.granted.token, Token([0; 16]), "the token is for its owner only");
    assert_eq!(world.query(alice, spec).expect("it is theirs").granted.token, granted.token);
    assert_eq!(
        world.refused(mallory, Request::Claim { spec, token: granted.token }).code,
        Code::NoSuchSpec
    );
    assert!(world.attr_of(tid).policy.is_real_time());
}

#[test]
fn r25_root_may_change_and_release_specs_of_users() {
    let mut world = world();
    let (alice, root) = (world.connect(1000), world.connect(0));
    let tid = world.tid_of(alice);
    let before = world.attr_of(tid);
    let granted = world.attached(alice, urgent(5), tid);
    let changed = world.call(root, Request::Change { spec: granted.spec, task: urgent(9) });
    assert!(matches!(changed, Reply::Granted(_)), "{changed:?}");
    world.done(root, Request::Detach(granted.spec));
    assert_eq!(world.attr_of(tid), before);
    world.done(root, Request::Release(granted.spec));
}

#[test]
fn r29_the_same_user_may_release_specs_without_an_owning_connection() {
    for owner in [Owner::Process, Owner::Thread] {
        let mut world = world();
        let (alice, cli, mallory) = (world.connect(1000), world.connect(1000), world.connect(1001));
        let tid = world.tid_of(alice);
        let before = world.attr_of(tid);
        let granted = world.attached(alice, owned(urgent(5), owner), tid);
        assert_eq!(world.refused(mallory, Request::Release(granted.spec)).code, Code::NoSuchSpec);
        assert_eq!(world.refused(cli, Request::Detach(granted.spec)).code, Code::NotOwner);
        world.done(cli, Request::Release(granted.spec));
        assert_eq!(world.attr_of(tid), before);
        world.check_idle(false);
    }
}

#[test]
fn retif_s3_w18_the_end_of_one_connection_is_not_the_end_of_another() {
    let mut world = world();
    let alice = world.connect(1000);
    let pid = world.tid_of(alice);
    // The kernel reports the peer at connect; a message cannot claim another identity.
    let second = world.open_connection(pid, 1000, &[]);
    let hello = Request::Hello { min: VERSION, max: VERSION };
    assert!(matches!(world.call(second, hello), Reply::Welcome { .. }));
    let (one, two) = (world.create(alice, urgent(5)), world.create(second, urgent(6)));
    world.close_connection(alice);
    world.run_until_idle();
    assert_eq!(world.query(second, one.spec), None);
    assert!(world.query(second, two.spec).is_some());
}

#[test]
fn retif_s12_a_socket_inherited_by_a_child_keeps_no_grant() {
    let mut world = world();
    let alice = world.connect(1000);
    let pid = world.tid_of(alice);
    world.create(alice, urgent(5));
    world.kernel.end_process(pid, world.now);
    // No end of the connection is reported: a child still holds the socket.
    world.run_until_idle();
    assert!(!world.connections.contains_key(&alice));
    assert_eq!((world.broker.specs(), world.broker.sessions()), (0, 0));
    assert!(world.file.is_empty());
}

#[test]
fn a_claim_needs_the_token_and_moves_the_spec() {
    let mut world = world();
    let (first, second) = (world.connect(1000), world.connect(1000));
    let granted = world.create(first, urgent(5));
    let (spec, token) = (granted.spec, granted.token);
    let mut wrong = token;
    wrong.0[3] ^= 1;
    assert_eq!(world.refused(second, Request::Claim { spec, token: wrong }).code, Code::BadToken);
    assert_eq!(world.call(second, Request::Claim { spec, token }), Reply::Granted(granted));
    assert_eq!(world.refused(first, Request::Release(spec)).code, Code::NotOwner);
    world.close_connection(first);
    world.run_until_idle();
    assert!(world.query(second, spec).is_some(), "the spec is bound to the second connection");
    world.close_connection(second);
    world.run_until_idle();
    assert_eq!(world.leftovers(), Vec::<String>::new());
}
