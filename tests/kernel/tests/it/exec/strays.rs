//! Programs that would schedule themselves.

use super::programs::{Boxed, build};
use talea_core::server::Kind;
use talea_exec::{Failure, Fate, ProgramReport, Report};
use talea_kernel_tests::{Bench, kernel, needs, needs_root};
use talea_os::groups;

const MS: u64 = 1_000_000;

/// What became of a program that asks for this.
fn asking(bench: &Bench, what: &str) -> ProgramReport {
    let program = vec![build(bench, "strays").display().to_string(), what.to_owned()];
    let (budget, period, length) = (5 * MS, 20 * MS, 1_000 * MS);
    let boxed = Boxed { kind: Kind::Deferrable, budget, period, length, program, listen: true };
    // Who is not what the machine orders may hold up the end of its run, too, for longer than the
    // watchdog waits: that is no answer, and nothing else is asked again.
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
    needs!("cgroup v2", groups::hierarchy().is_some());
    let bench = Bench::new("exec_l20_refused");
    for what in ["fifo", "rr"] {
        let report = asking(&bench, what);
        let Fate::Ended(status) = report.fate else { panic!("{what}: {report:?}") };
        assert_eq!((status.code(), &report.strayed), (Some(3), &None), "{what}");
    }
}

#[test]
fn l20_a_program_that_leaves_its_policy_or_its_cpu_is_told() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", groups::hierarchy().is_some());
    let bench = Bench::new("exec_l20_strayed");
    for (what, told) in [("other", "instead of Rr("), ("cpus", "may run on CPUs ")] {
        let report = asking(&bench, what);
        assert_eq!(report.fate, Fate::Killed, "{what}");
        let strayed = report.strayed.expect("it was seen");
        assert!(strayed.contains(told) && strayed.contains("(strays)"), "{what}: {strayed}");
    }
}
