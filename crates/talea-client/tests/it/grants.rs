//! Requests, grants and releases.

use crate::mock::Mock;
use std::sync::Barrier;
use std::time::Duration;
use talea_client::{Client, Code, Failure, Field, Grant, Owner, Spec};
use talea_proto::{Request, ThreadRef};

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn connect(mock: &Mock) -> Client {
    Client::builder()
        .path(mock.path())
        .timeout(Duration::from_secs(20))
        .connect()
        .expect("it listens")
}

/// Returns a spec of `runtime` in every 10 ms.
pub(crate) fn spec(runtime: u64) -> Spec {
    Spec::builder().period(ms(10)).runtime(ms(runtime)).build().expect("a good spec")
}

pub(crate) fn create(client: &Client, runtime: u64) -> Grant {
    client.create(&spec(runtime)).expect("connected").expect("there is room")
}

#[test]
fn r2_a_dropped_grant_is_released() {
    let mock = Mock::start();
    let client = connect(&mock);
    let grant = create(&client, 2);
    assert_eq!(mock.world().specs.len(), 1);
    drop(grant);
    assert!(mock.world().specs.is_empty());
}

#[test]
fn r2_a_release_reports_its_result_and_happens_once() {
    let mock = Mock::start();
    let client = connect(&mock);
    let grant = create(&client, 2);
    let spec = grant.spec();
    grant.release().expect("connected").expect("it was there");
    let refusal = client.release(spec).expect("connected").expect_err("it was released already");
    assert_eq!(refusal.code, Code::NoSuchSpec);
}

#[test]
fn a_disowned_grant_is_not_released() {
    let mock = Mock::start();
    let client = connect(&mock);
    let spec = Spec::builder().period(ms(10)).owner(Owner::Thread).build().expect("good");
    let id = client.create(&spec).expect("connected").expect("room").disown();
    assert_eq!(mock.world().specs[&id.0].task.owner, Owner::Thread);
}

#[test]
fn r8_the_accepted_runtime_lies_between_runtime_and_desired() {
    let mock = Mock::start();
    let client = connect(&mock);
    let _first = create(&client, 5);
    let desired =
        Spec::builder().period(ms(10)).runtime(ms(2)).desired(ms(9)).build().expect("good");
    let grant = client.create(&desired).expect("connected").expect("room");
    let accepted = grant.accepted_runtime().expect("a runtime was declared");
    assert!(ms(4) < accepted && accepted <= ms(5), "{accepted:?}");
    let without = client.create(&Spec::builder().period(ms(10)).build().expect("good"));
    assert_eq!(without.expect("connected").expect("room").accepted_runtime(), None);
}

#[test]
fn a_refusal_is_a_value_that_contains_what_would_fit() {
    let mock = Mock::start();
    let client = connect(&mock);
    let _grant = create(&client, 6);
    let refusal =
        client.create(&spec(5)).expect("connected").expect_err("60 % and 50 % do not fit");
    assert_eq!(refusal.code, Code::NoPlugin);
    assert!(refusal.to_string().contains("a runtime of 5ms was requested"), "{refusal}");
}

#[test]
fn r7_a_refused_change_changes_nothing() {
    let mock = Mock::start();
    let client = connect(&mock);
    let grant = create(&client, 4);
    let other = create(&client, 4);
    let before = grant.granted();
    grant.change(&spec(8)).expect("connected").expect_err("40 % and 80 % do not fit");
    assert_eq!(grant.granted(), before);
    other.change(&spec(5)).expect("connected").expect("40 % and 50 % fit");
    assert_eq!(other.accepted_runtime(), Some(ms(5)));
}

#[test]
fn groups_are_granted_entirely_or_not_at_all() {
    let mock = Mock::start();
    let client = connect(&mock);
    let group = client.create_group(&[spec(2), spec(3)]).expect("connected").expect("room");
    assert_eq!(
        group.iter().map(Grant::accepted_runtime).collect::<Vec<_>>(),
        [Some(ms(2)), Some(ms(3))]
    );
    client
        .create_group(&[spec(2), spec(4)])
        .expect("connected")
        .expect_err("20 % are left for the second");
    assert_eq!(mock.world().specs.len(), 2);
    let refusal = client.create_group(&[]).expect("not asked").expect_err("nothing is not a group");
    assert_eq!((refusal.code, refusal.field), (Code::Malformed, Field::Group));
}

#[test]
fn r2_attach_names_threads_of_this_process_by_number_and_by_pidfd_where_that_means_nothing() {
    r2_attach_names_the_calling_thread_and_others(false);
    r2_attach_names_the_calling_thread_and_others(true);
}

fn r2_attach_names_the_calling_thread_and_others(elsewhere: bool) {
    let mock = Mock::start();
    mock.world().elsewhere = elsewhere;
    let client = connect(&mock);
    let grant = create(&client, 1);
    let spec = grant.spec().0;
    grant.attach_current().expect("connected").expect("it lives");
    assert_eq!(mock.world().specs[&spec].tid, Some(rustix::thread::gettid().as_raw_pid() as u32));
    let (send, received) = std::sync::mpsc::channel();
    let done = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            send.send(rustix::thread::gettid().as_raw_pid() as u32).expect("the test receives");
            done.wait();
        });
        let tid = received.recv().expect("a thread id");
        grant.attach(tid).expect("connected").expect("it lives");
        assert_eq!(mock.world().specs[&spec].tid, Some(tid));
        done.wait();
    });
    grant.detach().expect("connected").expect("attached");
    let refusal = grant.detach().expect("connected").expect_err("detached already");
    assert_eq!(refusal.code, Code::NotAttached);
    let world = mock.world();
    let by = |named: fn(&ThreadRef) -> bool| {
        let is =
            |request: &&Request| matches!(request, Request::Attach { thread, .. } if named(thread));
        world.log.iter().filter(is).count()
    };
    assert_eq!(by(|named| matches!(named, ThreadRef::OwnTid(_))), 2, "the number is tried first");
    assert_eq!(by(|named| matches!(named, ThreadRef::Pidfd)), if elsewhere { 2 } else { 0 });
}

#[test]
fn attaching_a_thread_that_is_not_there_is_a_refusal() {
    let mock = Mock::start();
    let client = connect(&mock);
    let grant = create(&client, 1);
    for (tid, elsewhere) in
        [(u32::MAX, false), (i32::MAX as u32, false), (u32::MAX, true), (i32::MAX as u32, true)]
    {
        mock.world().elsewhere = elsewhere;
        let refusal =
            grant.attach(tid).expect("no failure").expect_err("no thread has this number");
        assert_eq!(refusal.code, Code::NoSuchThread);
    }
}

#[test]
fn everything_can_be_listed() {
    let mock = Mock::start();
    let client = connect(&mock);
    let grants = [create(&client, 1), create(&client, 2), create(&client, 3)];
    let listed: Vec<_> =
        client.list().expect("ok").expect("ok").iter().map(|info| info.granted.spec).collect();
    assert_eq!(listed, grants.iter().map(Grant::spec).collect::<Vec<_>>());
    assert_eq!(client.status().expect("ok").expect("ok").specs, 3);
    let plugins = client.plugins().expect("ok").expect("ok");
    assert_eq!(plugins.len(), 1);
    assert_eq!(client.plugin_cpus(plugins[0].index).expect("ok").expect("ok").len(), 1);
    assert_eq!(client.sessions().expect("ok").expect("ok").len(), 1);
    let explanation = client.explain(&spec(9)).expect("ok").expect("ok");
    assert_eq!((explanation.chosen, explanation.answers.len()), (None, 1));
    assert_eq!(
        grants[1].info().expect("ok").expect("ok").granted.runtime.map(talea_core::Work::as_ns),
        Some(2_000_000)
    );
}

#[test]
fn retif_w14_threads_that_share_a_client_get_a_spec_each() {
    let mock = Mock::start();
    let client = connect(&mock);
    let free = Spec::builder().period(ms(10)).build().expect("good");
    let ids: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..200)
                        .map(|_| client.create(&free).expect("connected").expect("room").disown().0)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), 800);
}

#[test]
fn a_missing_daemon_is_a_failure_that_names_the_socket() {
    let failure = Client::builder()
        .path("/nonexistent/talea.sock")
        .connect()
        .expect_err("no process listens there");
    assert!(matches!(failure, Failure::Connection { .. }));
    assert!(failure.to_string().contains("/nonexistent/talea.sock"), "{failure}");
    assert_eq!(failure.errno(), rustix::io::Errno::NOENT.raw_os_error());
}
