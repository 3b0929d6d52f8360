//! A daemon that does not answer, answers late, or sends invalid messages.

use crate::grants::{connect, create, ms, spec};
use crate::mock::{Mock, Next};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use talea_client::{Client, Failure, Spec};
use talea_os::seqpacket::{Access, Listener};

fn impatient(mock: &Mock) -> Client {
    Client::builder().path(mock.path()).timeout(ms(50)).connect().expect("it listens")
}

#[test]
fn r6_a_silent_daemon_is_a_failure_within_the_time_out() {
    let mock = Mock::start();
    let client = impatient(&mock);
    mock.script([Next::Mute]);
    let asked = Instant::now();
    let failure = client.status().expect_err("no answer");
    assert!(matches!(failure, Failure::TimedOut { after, .. } if after == ms(50)), "{failure}");
    assert!(asked.elapsed() >= ms(50), "gave up early");
    client.status().expect("the next request is answered").expect("and not refused");
}

#[test]
fn r6_a_daemon_that_accepts_no_connection_is_a_failure_within_the_time_out() {
    // Connections wait in the backlog; hello is never read.
    let directory = std::env::temp_dir().join(format!("talea-deaf-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join("s");
    let listener =
        Listener::bind(&path, Access { mode: 0o600, uid: None, gid: None }, 4).expect("bind");
    let failure = Client::builder().path(&path).timeout(ms(50)).connect().expect_err("no accept");
    assert!(matches!(failure, Failure::TimedOut { .. }), "{failure}");
    drop(listener);
    std::fs::remove_dir_all(directory).expect("ours");
}

#[test]
fn r6_a_daemon_whose_queue_is_full_is_a_failure_within_the_time_out() {
    let mut mock = Mock::start();
    let patient = Client::builder().path(mock.path()).timeout(ms(5)).connect().expect("it listens");
    mock.freeze();
    // The daemon is still in its previous wait, and may serve one more.
    drop(patient.status());
    // Every request stays in the queue; soon there is no space for another.
    let group = [spec(0); 64];
    let (send, received) = mpsc::channel();
    let asking = std::thread::spawn(move || {
        for _ in 0..60 {
            send.send(patient.create_group(&group).map(drop)).expect("the test receives");
        }
    });
    for _ in 0..60 {
        let failure = received.recv_timeout(Duration::from_secs(20)).expect("a call hangs");
        let failure = failure.expect_err("no reader");
        assert!(matches!(failure, Failure::TimedOut { .. }), "{failure}");
    }
    asking.join().expect("no panic");
}

#[test]
fn a_late_reply_is_not_accepted_for_another_request() {
    let mock = Mock::start();
    let client = impatient(&mock);
    mock.script([Next::Late]);
    client.query(talea_client::SpecId(77)).expect_err("it comes too late");
    let status = client.status().expect("answered").expect("not refused");
    assert_eq!(status.plugins, 1);
}

#[test]
fn a_late_grant_is_released() {
    let mock = Mock::start();
    let client = impatient(&mock);
    mock.script([Next::Late]);
    client.create(&spec(5)).expect_err("it comes too late");
    assert_eq!(mock.world().specs.len(), 1, "granted to an abandoned request");
    client.status().expect("answered").expect("not refused");
    assert!(mock.world().specs.is_empty(), "the unclaimed grant was not released");
}

#[test]
fn an_invalid_reply_is_a_failure_and_the_next_call_reconnects() {
    let mock = Mock::start();
    let client = connect(&mock);
    mock.script([Next::Nonsense]);
    let failure = client.status().expect_err("nonsense");
    assert!(matches!(failure, Failure::Protocol(_)), "{failure}");
    client.status().expect("a new connection").expect("not refused");
    assert_eq!(mock.world().connections, 2);
}

#[test]
fn retif_w15_the_end_of_the_connection_is_an_error_not_an_answer() {
    let mock = Mock::start();
    let client = connect(&mock);
    // Each repetition ends in the same way, and their number is bounded.
    mock.script([Next::HangUp; 10]);
    let failure =
        client.create(&Spec::builder().build().expect("good")).expect_err("the daemon hung up");
    assert!(matches!(failure, Failure::Connection { .. }), "{failure}");
    mock.script([]);
    drop(create(&client, 1));
}
