//! A daemon that dies and is restarted.

use crate::grants::{connect, create, ms};
use crate::mock::Mock;
use talea_client::{Client, Failure};
use talea_proto::Request;

#[test]
fn r6_a_dead_daemon_is_a_failure_every_time() {
    let mut mock = Mock::start();
    let client = connect(&mock);
    mock.down();
    for _ in 0..3 {
        let failure = client.status().expect_err("it is dead");
        assert!(matches!(failure, Failure::Connection { .. }), "{failure}");
    }
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
