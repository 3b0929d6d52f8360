//! L3C's rows where they are about time.

use crate::scene::{ms, run, us};
use std::fmt::Write;

/// The example of Fig. 4 with every time ten times as long, but that C needs a hundredth less than
/// its budget, so that a job that takes a microsecond more than it should still ends within it:
/// without reservations A and the second job of B are late, with them B is safe.
#[test]
fn l7_the_example_of_figure_4_keeps_the_simulators_time() {
    let tasks = |a: &str, b: &str, c: &str| {
        format!(
            r#"
            [[task]]
            name = "A"
            {a}
            period = "100ms"
            deadline = "50ms"
            offset = "5ms"
            cost = "10ms"
            [[task]]
            name = "B"
            {b}
            period = "80ms"
            cost = "50ms"
            [[task]]
            name = "C"
            {c}
            period = "100ms"
            arrivals = ["30ms", "80ms", "90ms", "100ms", "110ms", "120ms"]
            cost = "9900us"
            "#
        )
    };
    let stock = format!(
        "duration = \"190ms\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n{}",
        tasks("priority = 2", "priority = 1", "priority = 3")
    );
    let run_stock = run(&stock);
    run_stock.keeps_time(us(500), us(500));
    let reserved = format!(
        r#"
        duration = "250ms"
        [[scheduler]]
        name = "cpu"
        policy = "fp"
        [[scheduler]]
        name = "band"
        in = "cpu"
        policy = "edf"
        priority = 2
        [[scheduler]]
        name = "for-A"
        in = "band"
        policy = "fifo"
        server = "sporadic"
        budget = "20ms"
        period = "100ms"
        [[scheduler]]
        name = "for-C"
        in = "band"
        policy = "fifo"
        server = "sporadic"
        budget = "10ms"
        period = "100ms"
        {}
        "#,
        tasks("in = \"for-A\"", "in = \"cpu\"\npriority = 1", "in = \"for-C\"")
    );
    let run = run(&reserved);
    run.keeps_time(us(500), us(500));
    // Within a millisecond of ten times the paper's.
    for (name, job, end) in [("A", 0, 15), ("C", 0, 40), ("B", 0, 70), ("C", 1, 140), ("B", 1, 150)]
    {
        let (ended, end) = (run.ends(name)[job].1.as_ns(), ms(end).as_ns());
        assert!(ended.abs_diff(end) <= ms(1).as_ns(), "job {job} of {name} ended at {ended}");
    }
}

/// Two partitions that both have work all the time: a switch is late by no more than a timer and a
/// change of priorities, and five hundred frames later by no more than at first.
#[test]
fn l1_partitions_switch_on_time_for_five_hundred_frames() {
    let run = run(r#"
        duration = "2s"
        [[scheduler]]
        name = "cpu"
        policy = "partitions"
        frame = "4ms"
        [[scheduler.slot]]
        owner = "one"
        length = "2ms"
        [[scheduler.slot]]
        owner = "two"
        start = "2ms"
        length = "2ms"
        [[scheduler]]
        name = "one"
        in = "cpu"
        policy = "fifo"
        [[scheduler]]
        name = "two"
        in = "cpu"
        policy = "fifo"
        [[task]]
        name = "a"
        in = "one"
        period = "10s"
        cost = "3s"
        [[task]]
        name = "b"
        in = "two"
        period = "10s"
        cost = "3s"
        "#);
    run.keeps_time(us(0), us(50));
    assert!(run.real.timed_events().len() >= 999, "{}", run.real.timed_events().len());
}

/// Tasks above a band do not depend on the load of its clients: each end of such a task is where it
/// was, up to 0.2 ms.
#[test]
fn l13_above_a_band_a_burst_changes_nothing() {
    let system = |cost: &str| {
        let mut text = r#"
            duration = "600ms"
            [[scheduler]]
            name = "cpu"
            policy = "fp"
            [[task]]
            name = "top"
            in = "cpu"
            priority = 250
            period = "20ms"
            offset = "1ms"
            cost = "2ms"
            [[scheduler]]
            name = "band"
            in = "cpu"
            policy = "edf"
            priority = 200
            "#
        .to_owned();
        for (name, period) in [("slow", 90), ("medium", 70), ("fast", 50)] {
            let _ = write!(
                text,
                r#"
                [[scheduler]]
                name = "{name}"
                in = "band"
                policy = "fifo"
                server = "sporadic"
                budget = "8ms"
                period = "{period}ms"
                [[task]]
                name = "{name}-client"
                in = "{name}"
                period = "300ms"
                cost = "{cost}"
                "#
            );
        }
        text
    };
    let [calm, burst] = ["2ms", "80ms"].map(|cost| run(&system(cost)).ends("top"));
    assert!(calm.len() == 30 && burst.len() == 30, "{} and {} jobs", calm.len(), burst.len());
    let most = calm
        .iter()
        .zip(&burst)
        .map(|((_, calm), (_, burst))| calm.as_ns().abs_diff(burst.as_ns()))
        .max();
    println!("with a burst below it, {most:?} ns off at most");
    assert!(most.is_some_and(|most| most < us(200).as_ns()), "{most:?}");
}
