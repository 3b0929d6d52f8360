//! What a thread owes to its last deadline reservation is known to the next daemon, too: put back
//! into the class before that is paid, the kernel would never run it again, and nobody could kill
//! it.

use crate::tasks::{reserved, with};
use std::time::{Duration, Instant};
use talea_kernel_tests::bench::program;
use talea_kernel_tests::{ALICE, Agent, Bench, Daemon, config, eventually, kernel, needs_root};
use talea_os::proc;
use talea_os::sched::{self, Attr, Policy};
use talea_proto::{Reply, Request};

/// What it takes at least, in microseconds: more than its budget, so that it's throttled, and taken
/// out while it is.
const WORK: u64 = 8_000;

/// Its period, in milliseconds, and its budget, in microseconds.
const PERIOD: u64 = 100;
const RUNTIME: u64 = 1_000;
/// What is certainly left of its period when it is seen to have spent its budget.
const LEFT: Duration = Duration::from_millis(PERIOD / 2);
/// Long enough for whoever owes to pay, or for a frozen thread to be told from a slow one.
const PATIENCE: Duration = Duration::from_secs(10);
/// The kernel's word for "not now".
const EAGAIN: i32 = 11;

/// How the first daemon ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    Stopped,
}

#[test]
fn r28_retif_10_5_a_thread_in_debt_is_not_frozen_by_the_daemon_after_the_one_that_took_it_out() {
    needs_root!();
    let bench = Bench::new("debts");
    let mut daemon = Daemon::start(&bench, &config::open());
    let (alice, root) = (Agent::user(ALICE), Agent::root());
    let (mut granted, mut refused) = (0, 0);
    for round in 0..10 {
        let tid = alice.thread();
        let end = if round % 2 == 0 { End::Killed } else { End::Stopped };
        let by_first = root.connect(&daemon);
        let spec = by_first.create(with("edf", reserved(PERIOD, RUNTIME))).spec;
        by_first.attach(spec, tid);
        alice.begin(&format!("work {tid} {}", WORK / 1_000));
        let overdrawn = wait_until_overdrawn(tid);
        by_first.done(&Request::Release(spec));
        assert!(kernel::is_ordinary(tid));
        by_first.close();
        match end {
            End::Killed => daemon.kill(),
            End::Stopped => assert!(daemon.terminate().success()),
        }
        daemon.restart();
        let by_second = root.connect(&daemon);
        let spec = by_second.create(with("edf", reserved(PERIOD, RUNTIME))).spec;
        match by_second.try_attach(spec, tid) {
            Reply::Done => {
                granted += 1;
                // The kernel forgets its budget at its deadline, and as much later as it owes.
                let waited = overdrawn.elapsed();
                assert!(
                    waited > LEFT,
                    "granted after {waited:?} by the daemon after one that was {end:?}"
                );
            }
            // A hole of the machine is booked as the thread's, and what takes longer than half a
            // second is refused.
            Reply::Refused(refusal) if refusal.errno == EAGAIN => refused += 1,
            other => panic!("{other:?}"),
        }
        expect_to_go_on(tid, &format!("after a daemon that was {end:?}, round {round}"));
        by_second.done(&Request::Release(spec));
        let took: u64 = alice.finish().parse().expect("the thread runs to the end of its work");
        assert!(took >= WORK, "{took} us");
        by_second.close();
        alice.end_thread(tid);
    }
    println!("{granted} grants, {refused} refusals");
    assert!(granted > refused, "{granted} grants, {refused} refusals");
}

/// It takes the place of its process's main thread, number and all, and what it owes along.
#[test]
fn r28_retif_10_5_a_thread_in_debt_that_starts_a_program_is_not_frozen_by_a_grant_to_its_process() {
    /// Long enough to start a program in half of it.
    const PERIOD: u64 = 400;
    /// So much that what a tick lets it overdraw is paid after half a second or so.
    const RUNTIME: u64 = 3_000;
    needs_root!();
    let bench = Bench::new("debts-exec");
    let (daemon, root) = (Daemon::start(&bench, &config::open()), Agent::root());
    let client = root.connect(&daemon);
    let mut refused = 0;
    for round in 0..5 {
        let other = Agent::user(ALICE);
        let (main, tid) = (other.pid(), other.thread());
        let spec = client.create(with("edf", reserved(PERIOD, RUNTIME))).spec;
        client.attach(spec, tid);
        other.begin(&format!("work {tid} {}", WORK / 1_000));
        let overdrawn = wait_until_overdrawn(tid);
        client.done(&Request::Release(spec));
        other.finish();
        other.exec_from(tid, &program("talea-test-agent"));
        let spec = client.create(with("edf", reserved(PERIOD, RUNTIME))).spec;
        other.begin(&format!("compute {}", 2 * WORK / 1_000));
        eventually("it has paid, and is let in", || match client.try_attach(spec, main) {
            Reply::Done => true,
            Reply::Refused(refusal) if refusal.errno == EAGAIN => {
                refused += 1;
                false
            }
            other => panic!("{other:?}"),
        });
        let waited = overdrawn.elapsed();
        assert!(waited > Duration::from_millis(PERIOD / 2), "granted after {waited:?}");
        expect_to_go_on(main, &format!("round {round}"));
        client.done(&Request::Release(spec));
        other.finish();
    }
    println!("5 grants, {refused} refusals");
    client.close();
}

/// What is left of its budget, in nanoseconds.
fn budget(tid: i32) -> i64 {
    let text = std::fs::read_to_string(format!("/proc/{tid}/sched")).expect("its state");
    let line = text.lines().find(|line| line.starts_with("dl.runtime")).expect("a deadline thread");
    line.rsplit(':').next().expect("a value").trim().parse().expect("a number")
}

/// Waits until it has overdrawn its budget; when that was seen.
#[track_caller]
fn wait_until_overdrawn(tid: i32) -> Instant {
    let end = Instant::now() + PATIENCE;
    while budget(tid) >= 0 {
        assert!(Instant::now() < end, "it never overdraws its budget");
        std::thread::sleep(Duration::from_micros(200));
    }
    Instant::now()
}

/// CPU time of a thread so far.
fn ran(tid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).expect("its times");
    text.split_ascii_whitespace().next().expect("a number").parse().expect("a number")
}

/// A frozen thread must be thawed before anything else, or nobody could end the test.
#[track_caller]
fn expect_to_go_on(tid: i32, when: &str) {
    let (before, end) = (ran(tid), Instant::now() + PATIENCE);
    while ran(tid) == before && proc::stat(kernel::tid(tid)).is_ok_and(|stat| stat.state == b'R') {
        if Instant::now() > end {
            let attr = kernel::attr(tid);
            sched::set(kernel::tid(tid), &Attr::plain(Policy::NORMAL)).expect("ordinary again");
            panic!("frozen {when}, with {attr:?}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
