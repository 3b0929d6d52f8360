//! Overrun of a thread's last deadline reservation, which the next daemon knows, too.
//!
//! If the daemon put the thread back into the deadline class before the overrun debt is repaid, the
//! kernel would never run the thread again, and no signal could end it.

use crate::tasks::{reserved, with};
use std::time::{Duration, Instant};
use talea_kernel_tests::bench::program;
use talea_kernel_tests::{ALICE, Agent, Bench, Daemon, config, eventually, kernel, needs_root};
use talea_os::proc;
use talea_os::sched::{self, Attr, Policy};
use talea_proto::{Reply, Request};

/// Minimum work of the thread, in microseconds: more than its budget, so that the kernel throttles
/// the thread, and the test detaches it in this state.
const WORK: u64 = 8_000;

/// Period of the thread, in milliseconds.
const PERIOD: u64 = 100;
/// Budget of the thread, in microseconds.
const RUNTIME: u64 = 1_000;
/// Minimum rest of the period when the test finds that the budget is exhausted.
const LEFT: Duration = Duration::from_millis(PERIOD / 2);
/// Maximum wait: long enough to repay an overrun debt, and to distinguish a frozen thread from a
/// slow one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Error number for a thread that still has an overrun debt.
const EAGAIN: i32 = 11;

/// End of the first daemon.
#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    Stopped,
}

#[test]
fn r28_retif_10_5_a_thread_with_an_overrun_is_not_frozen_by_the_next_daemon() {
    needs_root!();
    let bench = Bench::new("overruns");
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
            // The kernel charges a stall of the machine to the thread, and the daemon refuses an
            // overrun that takes longer than half a second.
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

/// The thread takes over the number of its process's main thread, and keeps its overrun debt.
#[test]
fn r28_retif_10_5_exec_in_a_thread_with_an_overrun_does_not_freeze_the_process() {
    /// Period in milliseconds; half of it is long enough to start a program.
    const PERIOD: u64 = 400;
    /// Budget in microseconds: an overrun of one tick is repaid after about half a second.
    const RUNTIME: u64 = 3_000;
    needs_root!();
    let bench = Bench::new("overruns-exec");
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

/// Returns the remaining budget of a thread, in nanoseconds.
fn budget(tid: i32) -> i64 {
    let text = std::fs::read_to_string(format!("/proc/{tid}/sched")).expect("its state");
    let line = text.lines().find(|line| line.starts_with("dl.runtime")).expect("a deadline thread");
    line.rsplit(':').next().expect("a value").trim().parse().expect("a number")
}

/// Waits until the thread has overrun its budget, and returns the current time.
#[track_caller]
fn wait_until_overdrawn(tid: i32) -> Instant {
    let end = Instant::now() + PATIENCE;
    while budget(tid) >= 0 {
        assert!(Instant::now() < end, "it never overdraws its budget");
        std::thread::sleep(Duration::from_micros(200));
    }
    Instant::now()
}

/// Returns the CPU time of a thread, in nanoseconds.
fn ran(tid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).expect("its times");
    text.split_ascii_whitespace().next().expect("a number").parse().expect("a number")
}

/// Fails if the thread is frozen; first makes it ordinary again, because otherwise no signal could
/// end the test.
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
