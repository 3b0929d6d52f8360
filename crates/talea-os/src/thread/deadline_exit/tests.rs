//! Tests of the protocol's pure decisions.

use super::super::dl_overruns::tests::{dead_thread, serialize_tests};
use super::*;

#[test]
fn the_budget_is_parsed_with_its_sign() {
    let text =
        b"x (7, #threads: 1)\npolicy       :     6\ndl.runtime      :      -784280\ndl.deadline : 4\n";
    assert_eq!(DlBudget::parse(text), Some(DlBudget { left: -784_280, deadline: 4 }));
    assert_eq!(
        DlBudget::parse(b"dl.runtime : 0\ndl.deadline : 0\n").map(|budget| budget.left),
        Some(1)
    );
    assert_eq!(DlBudget::parse(b"policy : 0\n"), None);
}

#[test]
fn the_shrunk_share_rounds_to_zero_in_the_kernels_accounting() {
    assert_eq!((DEADLINE_RUNTIME_MIN_NS << 20) / SHRUNK_PERIOD.as_ns(), 0);
    assert!(SHRUNK_PERIOD < max_period());
}

#[test]
fn an_overrun_is_paid_off_at_the_threads_own_rate() {
    // 1 ms overdrawn at 1 ms in 100 ms.
    let ms = |n: u64| n * 1_000_000;
    let period = Span::from_ns(ms(100));
    let params = DlParams { runtime: Work::from_ns(ms(1)), deadline: period, period };
    let none = DlBudget { left: 0, deadline: ms(7) }.zero_lag(params);
    let one = DlBudget { left: -(ms(1) as i64), deadline: ms(7) }.zero_lag(params);
    // The clocks are compared anew each time.
    let lag = one.as_ns().abs_diff(none.as_ns());
    assert!(lag.abs_diff(ms(100)) < ms(50), "{lag}");
}

#[test]
fn a_thread_that_ran_past_its_shrunk_budget_stays_out() {
    let _serialized = serialize_tests();
    let key = dead_thread(u64::MAX - 7);
    // No earlier record, or only the last one.
    let settle = |owes, reader: &SchedstatReader| {
        dl_overruns::tests::set(&key, None);
        finish_exit(
            &PendingExit::Clean.record_pending(key),
            owes,
            reader,
            ThreadIncarnation::default,
        );
    };
    let runs = RunCount { ns: 0, switches: 0 };
    let budget = DlBudget { left: 1_000_000, deadline: 0 };
    // This thread has certainly been switched to since it had a run count of zero.
    let reader = SchedstatReader::open(key.tid);
    settle(PendingExit::Measured { params: SHRUNK, budget, runs: Some(runs) }, &reader);
    let until = dl_overruns::blocked_until(&key).expect("an overrun");
    assert!(until > clock::now() + SHRUNK_PERIOD);
    settle(PendingExit::Clean, &reader);
    assert_eq!(dl_overruns::blocked_until(&key), None);
    settle(PendingExit::Stuck, &reader);
    assert_eq!(dl_overruns::blocked_until(&key), Some(Monotonic::NEVER));
    dl_overruns::tests::set(&key, None);
}

#[test]
fn a_certain_overrun_is_recorded_before_the_thread_leaves() {
    let _serialized = serialize_tests();
    let key = dead_thread(u64::MAX - 11);
    let ms = |n: u64| n * 1_000_000;
    let period = Span::from_ns(ms(20));
    let params = DlParams { runtime: Work::from_ns(ms(1)), deadline: period, period };
    let at = |params, left| PendingExit::Measured {
        params,
        budget: DlBudget { left, deadline: 0 },
        runs: None,
    };
    for free in [PendingExit::Clean, at(SHRUNK, 1_000_000)] {
        free.record_pending(key);
        assert_eq!(dl_overruns::blocked_until(&key), None);
    }
    let own = at(params, -(ms(3) as i64)).record_pending(key);
    let until = dl_overruns::blocked_until(&key).expect("3 ms at 1 ms in 20 ms, and more");
    assert!(until > clock::now() + Span::from_ns(ms(50)), "{until:?}");
    abort_exit(&own);
    // With the smallest runtime the same takes an hour.
    let shrunk = at(SHRUNK, -(ms(3) as i64)).record_pending(key);
    let until = dl_overruns::blocked_until(&key).expect("3 ms at 1,024 ns in a second");
    assert!(until > clock::now() + Span::from_ns(ms(2_000_000)), "{until:?}");
    abort_exit(&shrunk);
    let never = PendingExit::Stuck.record_pending(key);
    assert_eq!(dl_overruns::blocked_until(&key), Some(Monotonic::NEVER));
    abort_exit(&never);
    assert_eq!(dl_overruns::blocked_until(&key), None);
}

#[test]
fn an_earlier_overrun_survives_another_exit() {
    let _serialized = serialize_tests();
    let key = dead_thread(u64::MAX - 13);
    let reader = SchedstatReader::open(key.tid);
    let far = clock::now() + Span::from_ns(3_600_000_000_000);
    for known in [far, Monotonic::NEVER] {
        dl_overruns::tests::record(&key, known);
        let period = Span::from_ns(20_000_000);
        let params = DlParams { runtime: Work::from_ns(1_000_000), deadline: period, period };
        let budget = DlBudget { left: -1, deadline: 0 };
        let exit = PendingExit::Measured { params, budget, runs: reader.read() };
        // A process killed here leaves no less.
        let pending = exit.record_pending(key);
        assert!(dl_overruns::blocked_until(&key) >= Some(known));
        abort_exit(&pending);
        assert_eq!(dl_overruns::blocked_until(&key), Some(known));
        finish_exit(
            &exit.record_pending(key),
            PendingExit::Clean,
            &reader,
            ThreadIncarnation::default,
        );
        assert_eq!(dl_overruns::blocked_until(&key), Some(known));
    }
    dl_overruns::tests::set(&key, None);
}

#[test]
fn an_overrun_of_a_shrunk_thread_is_paid_off_at_that_rate_or_never() {
    let hour = 3_600_000_000_000;
    // On the scheduler's clock, which is less than an hour behind CLOCK_MONOTONIC.
    let budget = |left| Some(DlBudget { left, deadline: clock::now().as_ns() + 2 * hour });
    let owes =
        |budget, asleep| DlSample { budget, is_asleep: asleep, runs: None }.overrun_since_shrink();
    for asleep in [true, false] {
        assert_eq!(owes(budget(1), asleep), None, "it has budget left");
        assert_eq!(owes(None, asleep), None, "the kernel reports no budget");
    }
    assert_eq!(owes(budget(0), true), Some(Monotonic::NEVER));
    let until = owes(budget(0), false).expect("an overrun");
    assert!(until > clock::now() + Span::from_ns(hour) && until < Monotonic::NEVER, "{until:?}");
}

#[test]
fn a_grant_is_recognised_at_every_step_of_the_exit() {
    let ms = |n: u64| Span::from_ns(n * 1_000_000);
    let deadline = |runtime, deadline, period| Policy::Deadline {
        runtime: Work::from_ns(runtime),
        deadline,
        period,
    };
    let given = deadline(2_000_000, ms(10), ms(20));
    let nudged = |by| deadline(2_000_000, ms(10), ms(20) + Span::from_ns(by));
    let shrunk = min_runtime_policy(shrunk_period(), shrunk_period());
    for has in [given, nudged(1), nudged(MAX_NUDGES), shrunk, min_runtime_policy(ms(10), ms(20))] {
        assert!(is_same_or_nudged(&has, &given), "{has:?}");
    }
    let others = [
        nudged(MAX_NUDGES + 1),
        deadline(2_000_000, ms(10), ms(19)),
        deadline(2_000_001, ms(10), ms(20)),
        deadline(2_000_000, ms(11), ms(20)),
        deadline(1_000_000, ms(10), ms(20)),
        Policy::NORMAL,
    ];
    for has in others {
        assert!(!is_same_or_nudged(&has, &given), "{has:?}");
    }
    let fifo = Policy::Fifo(9);
    assert!(
        is_same_or_nudged(&fifo, &fifo)
            && !is_same_or_nudged(&shrunk, &fifo)
            && !is_same_or_nudged(&Policy::Fifo(8), &fifo)
    );
}

#[test]
fn an_exit_is_begun_only_if_the_thread_is_shrunk() {
    let ms = |n: u64| Span::from_ns(n * 1_000_000);
    let deadline = |runtime, deadline, period| {
        Attr::grant(Policy::Deadline { runtime: Work::from_ns(runtime), deadline, period })
    };
    let (own, old) = (deadline(2_000_000, ms(10), ms(20)), Attr::plain(Policy::NORMAL));
    let shrunk = deadline(1_024, SHRUNK_PERIOD, SHRUNK_PERIOD);
    assert!(is_exit_begun(&shrunk, &own, &old));
    assert!(
        is_exit_begun(&deadline(1_024, ms(10), ms(20)), &own, &old),
        "where the bound was lowered"
    );
    assert!(is_exit_begun(&shrunk, &old, &old), "its grant may be of another class by now");
    assert!(!is_exit_begun(&own, &own, &old));
    assert!(!is_exit_begun(&old, &own, &old));
    assert!(!is_exit_begun(&shrunk, &shrunk, &old), "the shrunk share itself was granted");
    assert!(!is_exit_begun(&shrunk, &own, &shrunk), "it had the shrunk share before");
    assert!(
        !is_exit_begun(&deadline(1_024, ms(10), ms(30)), &own, &old),
        "another process's small budget"
    );
}
