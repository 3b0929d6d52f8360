//! Leaving the deadline class: no bandwidth leaks in the kernel's accounting, and no thread is
//! frozen when it enters again.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::{Sleeper, deadline, machine_lock, may_be_realtime, needs, online, wait_until};
use talea_core::rng::Rng;
use talea_core::{CpuSet, Span, Work};
use talea_os::thread::Restored;
use talea_os::{ApplyError, Attr, Policy, Thread, Tid, sched};

fn exactly(restored: &Restored) -> bool {
    matches!(restored, Restored::Exactly)
}

/// Returns the kernel's admitted bandwidth, summed over all CPUs, in units of 2^-20 CPUs.
fn admitted_bandwidth() -> i64 {
    talea_os::sysinfo::dl_bandwidth()
        .expect("the kernel's accounting")
        .iter()
        .map(|cpu| cpu.total)
        .sum()
}

#[test]
fn r36_releasing_a_sleeping_deadline_thread_leaks_no_kernel_bandwidth() {
    needs!("debugfs", support::mount_debugfs_for_tests());
    needs!("the right to set real-time policies", may_be_realtime());
    let _machine = machine_lock();
    let before = admitted_bandwidth();
    let sleeper = Sleeper::start();
    let thread = Thread::open(sleeper.tid).expect("a living thread");
    let old = thread.snapshot().expect("a snapshot");
    let fifo = Attr::grant(Policy::Fifo(1));
    // Alternately restored, and moved to another class: 60 grants of 20 %, 12 times what a machine
    // of two CPUs can lose before it refuses.
    for cycle in 0..60 {
        let granted = thread.apply(&Attr::grant(deadline(2_000, 10_000)), Some(&online()));
        if cycle == 0
            && let Err(ApplyError::Refused { error, .. }) = &granted
        {
            needs!(format!("SCHED_DEADLINE ({error})"), false);
        }
        granted.expect("SCHED_DEADLINE");
        sleeper.settle();
        if cycle % 2 == 0 {
            assert!(exactly(&thread.restore(&old).expect("restored")));
        } else {
            thread.apply(&fifo, Some(&CpuSet::single(0))).expect("FIFO");
            thread.restore(&old).expect("restored");
        }
    }
    // The bandwidth of a running thread with an overrun returns at its zero-lag time, at most one
    // period later. One residue is 1024 ns in 4.19 s, which is nothing in units of 2^-20.
    let residue = talea_os::sysinfo::dl_bandwidth().expect("the kernel's accounting").len() as i64;
    wait_until("the bandwidth is back", || admitted_bandwidth() - before <= residue);
}

/// Thread that repeats its work until it is stopped, for 20 s at most.
struct Restless {
    sleeper: Arc<Sleeper>,
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Restless {
    fn start(mut again: impl FnMut() + Send + 'static) -> Restless {
        let (sleeper, stop) = (Arc::new(Sleeper::start()), Arc::new(AtomicBool::new(false)));
        let handle = std::thread::spawn({
            let (sleeper, stop, start) = (sleeper.clone(), stop.clone(), Instant::now());
            let job = move || {
                while !stop.load(Ordering::Relaxed) && start.elapsed().as_secs() < 20 {
                    again();
                }
            };
            move || sleeper.run(job)
        });
        Restless { sleeper, stop, handle: Some(handle) }
    }

    fn tid(&self) -> Tid {
        self.sleeper.tid
    }
}

impl Drop for Restless {
    fn drop(&mut self) {
        // A thread that the kernel has frozen could never end, nor the test program.
        drop(sched::set(self.tid(), &Attr::plain(Policy::NORMAL)));
        self.stop.store(true, Ordering::Relaxed);
        if let Some(handle) = self.handle.take() {
            handle.join().expect("an orderly end");
        }
    }
}

/// Results of requesting one grant repeatedly.
#[derive(Default)]
struct Requests {
    grants: u32,
    refusals: u32,
    /// Number of refusals until a time that is too far in the future to wait for.
    far_off: u32,
}

/// Result of one request.
enum RequestResult {
    Granted,
    /// Request that was refused. The thread slept until the time in the error.
    Waited,
    FarOff,
    /// The machine does not offer the policy to this process.
    Never(std::io::Error),
}

impl Requests {
    fn once_more(&mut self, thread: &Thread, grant: &Attr, max_wait_ns: u64) -> RequestResult {
        match thread.apply(grant, Some(&online())) {
            Ok(()) => {
                self.grants += 1;
                RequestResult::Granted
            }
            Err(ApplyError::OverrunDebt { until }) => {
                self.refusals += 1;
                if until > talea_os::clock::now().saturating_add(Span::from_ns(max_wait_ns)) {
                    self.far_off += 1;
                    return RequestResult::FarOff;
                }
                talea_os::clock::sleep_until(until);
                RequestResult::Waited
            }
            Err(ApplyError::Refused { error, .. }) if self.grants == 0 => {
                RequestResult::Never(error)
            }
            Err(other) => panic!("{other}"),
        }
    }
}

impl std::fmt::Display for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} grants, {} refusals, {} of them far off",
            self.grants, self.refusals, self.far_off
        )
    }
}

/// CPU time of a thread so far.
fn ran(tid: Tid) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).expect("its times");
    text.split_ascii_whitespace().next().expect("a number").parse().expect("a number")
}

#[test]
fn a_thread_released_with_an_overdrawn_budget_is_not_frozen_by_its_next_grant() {
    needs!("the right to set real-time policies", may_be_realtime());
    let _machine = machine_lock();
    let spinner = Restless::start(std::hint::spin_loop);
    let tid = spinner.tid();
    wait_until("it runs", || talea_os::proc::stat(tid).is_ok_and(|stat| stat.state == b'R'));
    let thread = Thread::open(tid).expect("a living thread");
    let old = thread.snapshot().expect("a snapshot");
    let grant = Attr::grant(deadline(1_000, 20_000));
    let (mut grants, mut refusals) = (0, 0);
    // The longer the pause, the more of the kernel's timers have expired when the next grant comes.
    for pause in [0, 5, 20, 30, 60] {
        let granted = thread.apply(&grant, Some(&online()));
        if grants == 0
            && let Err(ApplyError::Refused { error, .. }) = &granted
        {
            needs!(format!("SCHED_DEADLINE ({error})"), false);
        }
        match granted {
            Ok(()) => {}
            Err(ApplyError::OverrunDebt { until }) => {
                refusals += 1;
                assert_eq!(thread.snapshot().expect("a snapshot"), old);
                talea_os::clock::sleep_until(until);
                thread.apply(&grant, Some(&online())).expect("after the time in the error");
            }
            Err(other) => panic!("{other}"),
        }
        grants += 1;
        let before = ran(tid);
        wait_until("it runs under its grant", || ran(tid) > before);
        // Long enough to spend its budget: ticks are 1 to 10 ms.
        std::thread::sleep(Duration::from_millis(15));
        assert!(exactly(&thread.restore(&old).expect("restored")));
        let before = ran(tid);
        wait_until("it runs without a grant", || ran(tid) > before);
        std::thread::sleep(Duration::from_millis(pause));
    }
    assert_eq!(grants, 5);
    assert!(refusals > 0, "a spinning thread overdraws its budget");
}

/// Simulates a process killed between the two calls.
#[test]
fn r28_an_exit_begun_by_a_killed_process_is_finished_by_its_successor() {
    needs!("the right to set real-time policies", may_be_realtime());
    let _machine = machine_lock();
    let own = Attr::grant(deadline(1_000, 20_000));
    // The smallest runtime over a period that makes its share round to zero.
    let shrunk = Attr::grant(Policy::Deadline {
        runtime: Work::from_ns(1_024),
        deadline: Span::from_ns((1_024 << 20) + 1),
        period: Span::from_ns((1_024 << 20) + 1),
    });
    let spinner = Restless::start(std::hint::spin_loop);
    let tid = spinner.tid();
    let old = Thread::open(tid).expect("a living thread").snapshot().expect("a snapshot");
    let mut finished = 0;
    for pause in [0, 2, 10, 40] {
        let before = Thread::open(tid).expect("a living thread");
        match before.apply(&own, Some(&online())) {
            Err(ApplyError::Refused { error, .. }) if pause == 0 => {
                needs!(format!("SCHED_DEADLINE ({error})"), false);
                return;
            }
            Err(ApplyError::OverrunDebt { until }) => {
                let far = talea_os::clock::now().saturating_add(Span::from_ns(2_000_000_000));
                if until > far {
                    eprintln!(
                        "the kernel kept it throttled with the smallest runtime for too long"
                    );
                    break;
                }
                talea_os::clock::sleep_until(until);
                before.apply(&own, Some(&online())).expect("after the time in the error");
            }
            other => other.expect("granted"),
        }
        // A thread with its granted policy is left alone.
        assert!(!before.finish_deadline_exit(&own, &old.attr).expect("read"));
        assert!(before.snapshot().expect("a snapshot").attr.policy.is_deadline());
        sched::set(tid, &shrunk).expect("smaller");
        std::thread::sleep(Duration::from_millis(pause));
        let next = Thread::open(tid).expect("a living thread");
        assert!(next.finish_deadline_exit(&own, &old.attr).expect("taken out"));
        assert_eq!(next.snapshot().expect("a snapshot"), old);
        let so_far = ran(tid);
        wait_until("it runs without a grant", || ran(tid) > so_far);
        assert!(
            !next.finish_deadline_exit(&own, &old.attr).expect("read"),
            "there is nothing more to be finished"
        );
        finished += 1;
    }
    // A CPU stall may end the loop early, but not before one round.
    eprintln!("taken out {finished} times");
    assert!(finished > 0);
    // With the smallest runtime it has overrun that in the last pause at the latest: the process
    // that resumed the exit has recorded that this is not paid off soon.
    let thread = Thread::open(tid).expect("a living thread");
    let soon = talea_os::clock::now().saturating_add(Span::from_ns(1_000_000_000));
    match thread.apply(&own, Some(&online())) {
        Err(ApplyError::OverrunDebt { until }) => assert!(until > soon, "{until:?}"),
        other => panic!("{other:?}"),
    }
}

/// The moment at which its budget is hardest to read from outside: the kernel accounts its runtime,
/// and finds its budget overdrawn, only as it falls asleep.
#[test]
fn threads_that_overdraw_their_budget_while_falling_asleep_are_not_frozen_by_their_next_grant() {
    const BURST: Duration = Duration::from_micros(1_010);
    needs!("the right to set real-time policies", may_be_realtime());
    let _machine = machine_lock();
    let grant = Attr::grant(deadline(1_000, 20_000));
    let mut asked = Requests::default();
    for _ in 0..6 {
        let (begun, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let restless = Restless::start({
            let begun = begun.clone();
            move || {
                let begin = start.elapsed();
                begun.store(begin.as_nanos() as u64, Ordering::Relaxed);
                while start.elapsed().saturating_sub(begin) < BURST {}
                std::thread::sleep(Duration::from_millis(4));
            }
        });
        let thread = Thread::open(restless.tid()).expect("a living thread");
        let old = thread.snapshot().expect("a snapshot");
        for round in 0..40 {
            match asked.once_more(&thread, &grant, 100_000_000) {
                RequestResult::Granted => {}
                RequestResult::Waited => continue,
                RequestResult::FarOff => break,
                RequestResult::Never(error) => {
                    needs!(format!("SCHED_DEADLINE ({error})"), false);
                    return;
                }
            }
            let last = begun.load(Ordering::Relaxed);
            wait_until("a burst begins under its grant", || begun.load(Ordering::Relaxed) > last);
            let end = Duration::from_nanos(begun.load(Ordering::Relaxed)) + BURST;
            // From 100 us before the end of the burst on, in steps of 2 us: a reading takes about
            // that long.
            let look =
                (end + Duration::from_micros(2 * round)).saturating_sub(Duration::from_micros(100));
            while start.elapsed() < look {}
            thread.restore(&old).expect("restored");
        }
    }
    eprintln!("{asked}");
    // If this process is preempted at the wrong moment it must assume the worst, but that is not
    // the rule.
    assert!(asked.grants > 40 && asked.far_off < 3, "{asked}");
}

#[test]
fn r36_threads_with_random_bursts_are_neither_frozen_nor_leaked() {
    needs!("debugfs", support::mount_debugfs_for_tests());
    needs!("the right to set real-time policies", may_be_realtime());
    let _machine = machine_lock();
    let before = admitted_bandwidth();
    let mut rng = Rng::new(0x5EED);
    let mut random = move |below: u64| rng.below(below);
    let grant = Attr::grant(deadline(1_000, 10_000));
    let mut asked = Requests::default();
    for _ in 0..6 {
        // Bursts below and above the budget, sleeps below and above the period.
        let (burst, sleep) = (200 + random(2_500), 500 + random(15_000));
        let restless = Restless::start(move || {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_micros(burst) {}
            std::thread::sleep(Duration::from_micros(sleep));
        });
        let tid = restless.tid();
        let thread = Thread::open(tid).expect("a living thread");
        let old = thread.snapshot().expect("a snapshot");
        for _ in 0..25 {
            match asked.once_more(&thread, &grant, 300_000_000) {
                RequestResult::Granted => {}
                RequestResult::Waited => continue,
                RequestResult::FarOff => break,
                RequestResult::Never(error) => {
                    needs!(format!("SCHED_DEADLINE ({error})"), false);
                    return;
                }
            }
            let was = ran(tid);
            if random(4) > 0 {
                wait_until("it runs under its grant", || ran(tid) > was);
                std::thread::sleep(Duration::from_micros(random(12_000)));
            }
            thread.restore(&old).expect("restored");
            std::thread::sleep(Duration::from_micros(random(6_000)));
        }
    }
    eprintln!("{asked}");
    // A preemption at the wrong moment may cost a thread its next grants, but not every thread.
    assert!(asked.grants > 30 && asked.far_off < 6, "{asked}");
    let residue = talea_os::sysinfo::dl_bandwidth().expect("the kernel's accounting").len() as i64;
    wait_until("the bandwidth is back", || admitted_bandwidth() - before <= residue);
}
