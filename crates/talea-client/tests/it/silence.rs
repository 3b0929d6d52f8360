//! A daemon that does not answer, answers late, or answers nonsense.

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
    let failure = client.status().expect_err("nobody answers");
    assert!(matches!(failure, Failure::TimedOut { after, .. } if after == ms(50)), "{failure}");
    assert!(asked.elapsed() >= ms(50), "gave up early");
    client.status().expect("the next request is answered").expect("and not refused");
}

#[test]
fn r6_a_daemon_that_accepts_nobody_is_a_failure_within_the_time_out() {
    // Connections wait in the backlog; hello is never read.
    let folder = std::env::temp_dir().join(format!("talea-deaf-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("s");
    let listener =
        Listener::bind(&path, Access { mode: 0o600, uid: None, gid: None }, 4).expect("bind");
    let failure =
        Client::builder().path(&path).timeout(ms(50)).connect().expect_err("nobody accepts");
    assert!(matches!(failure, Failure::TimedOut { .. }), "{failure}");
    drop(listener);
    std::fs::remove_dir_all(folder).expect("ours");
}

#[test]
fn r6_a_daemon_whose_queue_is_full_is_a_failure_within_the_time_out() {
    let mut mock = Mock::start();
    let patient = Client::builder().path(mock.path()).timeout(ms(5)).connect().expect("it listens");
    mock.freeze();
    // It is still waiting as it was, and may serve one more.
    drop(patient.status());
    // Every request stays in the queue; soon there is no room for another.
    let group = [spec(0); 64];
    let (tell, told) = mpsc::channel();
    let asking = std::thread::spawn(move || {
        for _ in 0..60 {
            tell.send(patient.create_group(&group).map(drop)).expect("somebody listens");
        }
    });
    for _ in 0..60 {
        let failure = told.recv_timeout(Duration::from_secs(20)).expect("a call hangs");
        let failure = failure.expect_err("nobody reads");
        assert!(matches!(failure, Failure::TimedOut { .. }), "{failure}");
    }
    asking.join().expect("no panic");
}

#[test]
fn a_late_reply_is_not_taken_for_another_requests() {
    let mock = Mock::start();
    let client = impatient(&mock);
    mock.script([Next::Late]);
    client.query(talea_client::SpecId(77)).expect_err("it comes too late");
    let status = client.status().expect("answered").expect("not refused");
    assert_eq!(status.plugins, 1);
}

#[test]
fn what_is_granted_too_late_is_given_back() {
    let mock = Mock::start();
    let client = impatient(&mock);
    mock.script([Next::Late]);
    client.create(&spec(5)).expect_err("it comes too late");
    assert_eq!(mock.world().specs.len(), 1, "granted to nobody");
    client.status().expect("answered").expect("not refused");
    assert!(mock.world().specs.is_empty(), "the grant that nobody knows of was not given back");
}

#[test]
fn nonsense_is_a_failure_and_the_next_call_starts_afresh() {
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
    mock.script([Next::HangUp]);
    let failure =
        client.create(&Spec::builder().build().expect("good")).expect_err("the daemon hung up");
    assert!(matches!(failure, Failure::Connection { .. }), "{failure}");
    drop(create(&client, 1));
}
