//! The race that cannot be provoked from outside: the thread ends between the check and the calls,
//! and its number is reused.

use super::*;
use crate::sched::{self, Attr, Policy};
use std::process::{Child, Command};
use talea_core::CpuSet;

/// Starts a program under the number `wanted`; `None` where that cannot be done.
fn spawn_as(wanted: Tid) -> Option<Child> {
    for _ in 0..200 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (wanted.as_raw() - 1).to_string()).ok()?;
        let mut child = Command::new("sleep").arg("30").spawn().ok()?;
        if child.id() as i32 == wanted.as_raw() {
            return Some(child);
        }
        child.kill().ok()?;
        child.wait().ok()?;
    }
    None
}

#[test]
fn r32_a_thread_that_reuses_the_number_becomes_ordinary_again() {
    for method in [Method::Pidfd, Method::StartTime] {
        let mut first = Command::new("sleep").arg("30").spawn().expect("a child");
        let tid = Tid::new(first.id() as i32).expect("a pid");
        let thread = Thread::open_by(tid, method);
        let may = sched::set(tid, &Attr::grant(Policy::Fifo(1))).is_ok();
        let mut other = None;
        let affinity = CpuSet::single(0);
        let answer = thread.as_ref().ok().map(|thread| {
            let before = thread.snapshot().expect("it lives");
            thread.apply_once(&before, &Attr::grant(Policy::Fifo(2)), Some(&affinity), || {
                first.kill().expect("killed");
                first.wait().expect("collected");
                other = spawn_as(tid);
            })
        });
        drop(first.kill());
        drop(first.wait());
        let Some(mut other) = other.filter(|_| may) else {
            assert!(
                std::env::var_os("TALEA_KERNEL_TESTS").is_none_or(|v| v != "required"),
                "{method:?} or the right to choose the next number is missing"
            );
            eprintln!("skipped: needs {method:?} and the right to choose the next number");
            continue;
        };
        let (policy, cpus) = (sched::get(tid), sched::get_affinity(tid));
        other.kill().expect("killed");
        other.wait().expect("collected");
        assert!(matches!(answer, Some(Err(ApplyError::Gone))), "{answer:?}");
        assert_eq!(policy.expect("attributes").policy, Policy::NORMAL);
        assert!(cpus.expect("an affinity").len() > 1 || sched_cpus() == 1);
    }
}

fn sched_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
