//! Programs that change their own scheduling.

use super::programs::{Boxed, build};
use talea_core::server::ServerKind;
use talea_exec::{Failure, ProgramExit, ProgramReport, Report};
use talea_kernel_tests::{Bench, kernel, needs, needs_root};
use talea_os::cgroup;

const MS: u64 = 1_000_000;

/// Runs a program that requests `what`; returns its report.
fn asking(bench: &Bench, what: &str) -> ProgramReport {
    let program = vec![build(bench, "strays").display().to_string(), what.to_owned()];
    let (budget, period, length) = (5 * MS, 20 * MS, 1_000 * MS);
    let boxed =
        Boxed { kind: ServerKind::Deferrable, budget, period, length, program, listen: true };
    // A thread that does not follow the orders may also delay the end of its run for longer than
    // the watchdog waits. That says nothing, so only this result is retried.
    for _ in 0..4 {
        match boxed.try_run() {
            Ok(report) => return of(report),
            Err(Failure::Hung) => eprintln!("{what}: ended by its watchdog, once more"),
            Err(failure) => panic!("{what}: {failure}"),
        }
    }
    of(boxed.run())
}

fn of(mut report: Report) -> ProgramReport {
    report.roots[0].programs[0].take().expect("a program")
}

#[test]
fn l20_a_program_gets_no_real_time_policy_or_priority_of_its_own_choice() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", cgroup::mount_point().is_some());
    let bench = Bench::new("exec_l20_refused");
    for what in ["fifo", "rr"] {
        let report = asking(&bench, what);
        let ProgramExit::Exited(status) = report.exit else { panic!("{what}: {report:?}") };
        assert_eq!((status.code(), &report.policy_changed), (Some(3), &None), "{what}");
    }
}

#[test]
fn l20_a_program_that_leaves_its_policy_or_its_cpu_is_reported() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", cgroup::mount_point().is_some());
    let bench = Bench::new("exec_l20_policy_changed");
    for (what, message) in [("other", "instead of Rr("), ("cpus", "may run on CPUs ")] {
        let report = asking(&bench, what);
        assert_eq!(report.exit, ProgramExit::Killed, "{what}");
        let change = report.policy_changed.expect("it was seen");
        assert!(change.contains(message) && change.contains("(strays)"), "{what}: {change}");
    }
}
