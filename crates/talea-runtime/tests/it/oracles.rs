//! Response times on real threads, compared with the simulation of the application's own file.
//!
//! Each response time is within half a millisecond, or one millisecond, of the simulated response
//! time. Rounds with a CPU stall are excluded.

use crate::MS;
use crate::timed::{Device, Timed};
use crate::verdict::{Shown, is_so};
use std::time::Duration;
use talea_core::Span;
use talea_kernel_tests::{Bench, Runs, kernel, needs, needs_root};
use talea_runtime::{Config, Priorities, Task, TaskId};
use talea_sim::Completion;

const PERIOD: Duration = Duration::from_millis(120);
/// Rounds of [`PERIOD`].
const ROUNDS: u32 = 5;
/// Number of rounds that are conclusive: the median of three.
const ENOUGH: usize = 3;

fn cpus(count: usize) -> Vec<u32> {
    kernel::cpus().iter().take(count).collect()
}

/// A task, and the offset of its job in a round.
type Member = (TaskId, Duration);

/// Runs the tasks until their response times are the simulated times and those in `expected`, in
/// ms.
fn responds(
    what: &str,
    expected: &[u32],
    within: Duration,
    make: impl Fn() -> (Timed, Vec<Member>),
) {
    is_so(&mut Runs::at_least(1), what, || {
        let (timed, members) = make();
        let length = PERIOD * ROUNDS;
        let simulated = timed.simulated(length);
        for (&(task, _), &expected) in members.iter().zip(expected) {
            let mut of = simulated.iter().filter(|job| job.task.0 as usize == task.number());
            let expected = u64::from(expected) * 1_000_000;
            assert!(
                of.all(|job| job.response().as_ns() == expected),
                "{what}: simulated {simulated:?}"
            );
        }
        // Before the next round.
        let seen = timed.run(PERIOD * (10 * ROUNDS - 1) / 10);
        // Time that is taken from computing jobs is not the scheduler's.
        let most = |expected: u32| within + MS * expected * (1_000 + seen.taken()) / 1_000;
        let of = |(&(task, offset), &expected): (&Member, &u32)| {
            seen.responses(task, (offset, PERIOD), ROUNDS, most(expected))
        };
        let responses: Vec<Vec<Duration>> = members.iter().zip(expected).map(of).collect();
        let is = |(responses, &expected): (&Vec<Duration>, &u32)| {
            let middle = responses.get(responses.len() / 2);
            middle.is_some_and(|&middle| {
                ((MS * expected).saturating_sub(within)..=most(expected)).contains(&middle)
            })
        };
        Shown {
            is_so: responses.iter().zip(expected).all(is),
            is_enough: responses.iter().all(|responses| responses.len() >= ENOUGH),
            is_calm: seen.is_calm(),
            saw: format!(
                "{responses:?}, not {expected:?} ms, with {} thousandths taken",
                seen.taken()
            ),
        }
    });
}

#[test]
fn y2_y4_oracle_2_on_threads_with_and_without_preemption() {
    needs_root!();
    let _bench = Bench::new("runtime_oracle_2");
    needs!("two CPUs", cpus(2).len() == 2);
    for (preemptive, expected) in [(true, [18, 8, 8]), (false, [10, 8, 14])] {
        responds("oracle 2", &expected, MS / 2, || {
            let mut timed = Timed::new(Config { cpus: cpus(2), preemptive, ..Config::default() });
            let of = |name: &str, due: u32| Task::periodic(name, PERIOD).deadline(MS * due);
            let first = timed.computing(of("j1", 100), 10 * MS);
            let second = timed.computing(of("j2", 90), 8 * MS);
            let third = timed.computing(of("j3", 10).offset(2 * MS), 8 * MS);
            (timed, vec![(first, Duration::ZERO), (second, Duration::ZERO), (third, 2 * MS)])
        });
    }
}

#[test]
fn y7_oracle_3_on_threads_with_cpu_with_gpu_and_with_both() {
    needs_root!();
    let _bench = Bench::new("runtime_oracle_3");
    needs!("two CPUs", cpus(2).len() == 2);
    for (by_gpu, by_cpu, expected, late) in [
        (false, true, [70, 50], [true, false]),
        (true, false, [30, 60], [false, true]),
        (true, true, [30, 50], [false; 2]),
    ] {
        let seen_late = std::cell::Cell::new([false; 2]);
        responds("oracle 3", &expected, MS, || {
            let mut timed = Timed::new(Config { cpus: cpus(2), ..Config::default() });
            let device = Device::new(cpus(2)[1]);
            let gpu = timed.app.accelerator("gpu");
            let members = [("a", 70), ("b", 50)].map(|(name, cost)| {
                let task = timed.task(Task::periodic(name, PERIOD).deadline(55 * MS));
                if by_gpu {
                    let device = device.clone();
                    let version =
                        timed.version(task, "gpu", 30 * MS, move || device.use_for(30 * MS));
                    timed.app.uses(version, gpu);
                }
                if by_cpu {
                    timed.computes(task, "cpu", MS * cost);
                }
                (task, Duration::ZERO)
            });
            let simulated = timed.simulated(PERIOD);
            let is_late = |task: TaskId| {
                simulated.iter().any(|job| job.task.0 as usize == task.number() && job.is_late())
            };
            seen_late.set(members.map(|(task, _)| is_late(task)));
            (timed, members.to_vec())
        });
        assert_eq!(seen_late.get(), late, "who misses 55 ms");
    }
}

#[test]
fn y8_oracle_4_on_threads_without_and_with_inheritance() {
    needs_root!();
    let _bench = Bench::new("runtime_oracle_4");
    // Ends 21, 60, 31 with it, and 20 and 50 and 60 without.
    for (inheritance, expected) in [(true, [21, 55, 25]), (false, [50, 30, 54])] {
        // So the most urgent one ends within 26 ms, and without inheritance not within 50.
        responds("oracle 4", &expected, MS, || {
            let mut timed = Timed::new(Config { cpus: cpus(1), inheritance, ..Config::default() });
            let accelerator = timed.app.accelerator("accelerator");
            let declared = [("l", 0, 100, 20), ("m", 5, 60, 30), ("h", 6, 45, 10)];
            let members = declared.map(|(name, offset, due, cost)| {
                let task =
                    timed.task(Task::periodic(name, PERIOD).offset(MS * offset).deadline(MS * due));
                let version = timed.computes(task, "only", MS * cost);
                if name != "m" {
                    timed.app.uses(version, accelerator);
                }
                (task, MS * offset)
            });
            (timed, members.to_vec())
        });
    }
}

#[test]
fn y3_with_a_deadline_beyond_the_period_two_jobs_are_pending_and_none_is_late_on_threads() {
    const SHORT: Duration = Duration::from_millis(45);
    const LENGTH: Duration = Duration::from_millis(900);
    needs_root!();
    let _bench = Bench::new("runtime_arbitrary");
    is_so(&mut Runs::at_least(1), "an arbitrary deadline", || {
        let config = Config { cpus: cpus(1), priorities: Priorities::User, ..Config::default() };
        let mut timed = Timed::new(config);
        timed.computing(Task::periodic("high", 100 * MS).priority(2), 40 * MS);
        let low = Task::periodic("low", SHORT).deadline(80 * MS).priority(1).backlog(4);
        let low = timed.computing(low, 22 * MS);
        let simulated = timed.simulated(LENGTH);
        let longest = simulated
            .iter()
            .filter(|job| job.task.0 as usize == low.number())
            .map(Completion::response);
        assert_eq!(
            longest.max().map(Span::as_ns),
            Some(62_000_000),
            "the next is there 17 ms before"
        );
        assert!(!simulated.iter().any(Completion::is_late), "{simulated:?}");
        let seen = timed.run(LENGTH);
        let late: u64 = seen.report.tasks.iter().map(|task| task.deadline_misses).sum();
        let longest = seen.report.tasks[low.number()].max_response;
        // Longer than a period: the next one was pending, and ran after it.
        let in_order =
            seen.done[low.number()].is_sorted_by(|a, b| a.job < b.job && a.end <= b.begin);
        assert!(in_order, "one after the other: {:?}", seen.done[low.number()]);
        Shown {
            is_so: late == 0 && longest > SHORT,
            // A job that is delayed for this long in total has as much left again of the 18 ms
            // between the longest response and its deadline.
            is_enough: seen.total_stalled() < 9 * MS,
            is_calm: seen.is_calm(),
            saw: format!(
                "{late} late, longest {longest:?}, stood still for {:?}",
                seen.total_stalled()
            ),
        }
    });
}
