//! A daemon that dies and is restarted.

use crate::grants::{connect, create, ms, spec};
use crate::mock::{Mock, Next};
use std::time::Instant;
use talea_client::{Client, Failure};
use talea_proto::Request;

#[test]
fn r6_a_dead_daemon_is_a_failure_every_time() {
    let mut mock = Mock::start();
    let client = Client::builder().path(mock.path()).timeout(ms(100)).connect().expect("it lives");
    mock.down();
    let asked = Instant::now();
    for _ in 0..1000 {
        let failure = client.status().expect_err("it is dead");
        assert!(matches!(failure, Failure::Connection { .. }), "{failure}");
    }
    assert!(asked.elapsed() < ms(50_000), "only the first call waits for another daemon");
}

#[test]
fn the_client_reconnects_to_a_restarted_daemon_and_claims_its_grants() {
    let mut mock = Mock::start();
    let client = connect(&mock);
    let kept = create(&client, 2);
    let first = client.instance();
    mock.down();
    mock.up();
    let another = create(&client, 3);
    assert_ne!(client.instance(), first, "the instance changes with a restart");
    assert!(!kept.is_lost());
    let claims = |mock: &Mock| {
        mock.world().log.iter().filter(|request| matches!(request, Request::Claim { .. })).count()
    };
    assert_eq!(claims(&mock), 1, "claimed once, before the next request");
    drop(another);
    kept.release().expect("connected").expect("it was claimed");
    assert!(mock.world().specs.is_empty());
}

#[test]
fn a_grant_that_the_daemon_does_not_know_is_lost() {
    let mut mock = Mock::start();
    let client = connect(&mock);
    let grant = create(&client, 2);
    mock.down();
    mock.world().specs.clear();
    mock.up();
    client.status().expect("reconnected").expect("not refused");
    assert!(grant.is_lost());
    let requests = mock.world().log.len();
    drop(grant);
    assert_eq!(mock.world().log.len(), requests, "a lost grant is not released");
}

#[test]
fn a_grant_is_claimed_before_it_is_released_to_a_restarted_daemon() {
    let mut mock = Mock::start();
    let client = connect(&mock);
    let (dropped, released) = (create(&client, 2), create(&client, 3));
    mock.down();
    mock.up();
    released.release().expect("reconnected").expect("claimed, then released");
    drop(dropped);
    assert!(mock.world().specs.is_empty());
}

#[test]
fn a_failed_release_is_repeated_later() {
    let mut mock = Mock::start();
    let client = connect(&mock);
    let grant = create(&client, 2);
    mock.down();
    drop(grant);
    mock.up();
    client.status().expect("reconnected").expect("not refused");
    assert!(
        mock.world().specs.is_empty(),
        "the grant was dropped while there was no daemon, and stayed"
    );
}

#[test]
fn a_released_grant_is_not_claimed() {
    let mut mock = Mock::start();
    let client = connect(&mock);
    drop(create(&client, 2));
    mock.down();
    mock.up();
    client.status().expect("reconnected").expect("not refused");
    assert!(!mock.world().log.iter().any(|request| matches!(request, Request::Claim { .. })));
}

#[test]
fn a_lazy_client_connects_with_its_first_request() {
    let mock = Mock::start();
    let client =
        Client::builder().path(mock.path()).timeout(ms(20_000)).lazy().expect("not disabled");
    assert_eq!((mock.world().connections, client.instance()), (0, None));
    client.status().expect("connected").expect("not refused");
    assert_eq!(mock.world().connections, 1);
}

#[test]
fn retif_s12_the_socket_is_closed_in_programs_that_are_started() {
    let sockets = || {
        let listing =
            std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().expect("ls");
        String::from_utf8_lossy(&listing.stdout).matches("socket:").count()
    };
    let before = sockets();
    let mock = Mock::start();
    let client = connect(&mock);
    let _grant = create(&client, 2);
    assert_eq!(sockets(), before, "a program that was started holds our connection");
}

#[test]
fn attack_19_a_call_waits_for_the_next_daemon() {
    let mut mock = Mock::start();
    let client = connect(&mock);
    let grant = create(&client, 2);
    mock.down();
    let asking = std::thread::spawn({
        let client = client.clone();
        move || client.status().expect("answered by the next daemon").expect("not refused")
    });
    std::thread::sleep(ms(30));
    mock.up();
    assert_eq!(asking.join().expect("no panic").specs, 1);
    assert!(!grant.is_lost());
}

#[test]
fn attack_19_a_client_that_was_never_connected_waits_only_for_a_killed_daemon() {
    let mut mock = Mock::start();
    mock.down();
    let connect = || Client::builder().path(mock.path()).timeout(ms(20_000)).connect();
    let asked = Instant::now();
    let failure = connect().expect_err("an orderly end has removed the socket");
    assert!(matches!(failure, Failure::Connection { .. }), "{failure}");
    assert!(asked.elapsed() < ms(10_000), "it waited");
    // A killed daemon leaves its socket.
    drop(std::os::unix::net::UnixListener::bind(mock.path()).expect("a socket"));
    std::thread::scope(|scope| {
        let connecting = scope.spawn(connect);
        std::thread::sleep(ms(30));
        assert!(!connecting.is_finished(), "it waits");
        // As a next daemon does.
        std::fs::remove_file(mock.path()).expect("removed");
        let failure = connecting.join().expect("no panic").expect_err("no daemon");
        assert!(matches!(failure, Failure::Connection { .. }), "{failure}");
    });
    mock.up();
    Client::builder().path(mock.path()).connect().expect("connected");
}

#[test]
fn attack_19_a_request_whose_answer_is_lost_takes_effect_once() {
    for lost in [Next::DieBefore, Next::DieAfter] {
        let mock = Mock::start();
        let client = connect(&mock);
        mock.script([lost]);
        let single = create(&client, 2);
        assert_eq!(mock.world().specs.len(), 1, "{lost:?}");
        mock.script([lost]);
        let group = client.create_group(&[spec(1), spec(1), spec(1)]).expect("connected");
        let group = group.expect("granted");
        assert_eq!((group.len(), mock.world().specs.len()), (3, 4), "{lost:?}");
        for grant in group.iter().chain([&single]) {
            assert!(!grant.is_lost());
        }
        mock.script([lost]);
        single.attach_current().expect("connected").expect("attached");
        mock.script([lost]);
        single.change(&spec(3)).expect("connected").expect("changed");
        mock.script([lost]);
        single.detach().expect("connected").expect("detached once");
        mock.script([lost]);
        single.release().expect("connected").expect("released once");
        assert_eq!(mock.world().specs.len(), 3, "{lost:?}");
        drop(group);
        assert!(mock.world().specs.is_empty(), "{lost:?}");
    }
}

#[test]
fn attack_15_idle_clients_of_a_process_claim_with_the_first_active_one() {
    let mut mock = Mock::start();
    let (active, idle, empty) = (connect(&mock), connect(&mock), connect(&mock));
    let (grant, other) = (create(&idle, 2), create(&active, 3));
    mock.down();
    mock.up();
    active.status().expect("reconnected").expect("not refused");
    let claims =
        mock.world().log.iter().filter(|asked| matches!(asked, Request::Claim { .. })).count();
    assert_eq!(claims, 2, "the grants of both");
    assert_eq!(idle.instance(), active.instance());
    assert_ne!(empty.instance(), active.instance(), "it holds nothing");
    assert!(!grant.is_lost() && !other.is_lost());
}

#[test]
fn attack_15_a_library_names_itself_before_its_first_claim() {
    let mut mock = Mock::start();
    let (one, other) = (connect(&mock), connect(&mock));
    let (first, second) = (create(&one, 2), create(&other, 3));
    mock.down();
    mock.up();
    let before = mock.world().seeds.len();
    assert_eq!(before, 2);
    one.status().expect("reconnected").expect("not refused");
    let world = mock.world();
    let claim = world.log.iter().position(|asked| matches!(asked, Request::Claim { .. }));
    let (_, at) = world.seeds[before];
    assert!(at <= claim.expect("the grants are claimed"), "{:?}", world.seeds);
    let libraries: Vec<u64> = world.seeds.iter().map(|(seed, _)| seed.library()).collect();
    assert_eq!(libraries, [libraries[0]; 4], "one number for the connections of one library");
    assert_ne!(libraries[0], 0);
    let mut seeds: Vec<_> = world.seeds.iter().map(|(seed, _)| seed.0).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 4, "a secret for each connection");
    drop(world);
    assert!(!first.is_lost() && !second.is_lost());
}
