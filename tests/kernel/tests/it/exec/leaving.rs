//! End of a run while other runs continue.

use super::{single, small, two_cpus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use talea_core::{CpuSet, Span};
use talea_exec::{Job, Options, RunControl, execute_until};
use talea_kernel_tests::{Bench, kernel, needs, needs_root};
use talea_os::Tid;
use talea_os::sched::{self, Attr};

/// Length of a run that its job ends long before.
const LENGTH: Span = Span::from_ns(30_000_000_000);

#[test]
fn a_thread_that_leaves_a_run_does_not_wait_for_a_program_on_its_cpu() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_leaves");
    const SPIN: Duration = Duration::from_millis(800);
    let tree = small();
    let (begins, begun) = std::sync::mpsc::channel::<()>();
    let has_let_go = &AtomicBool::new(false);
    let control = &RunControl::default();
    // This thread is no part of the run, so it must not wait for the program either.
    let own = sched::get_affinity(Tid::current()).expect("an affinity");
    let others = own.difference(&CpuSet::single(two_cpus()[0]));
    sched::set_affinity(Tid::current(), &others).expect("another CPU");
    std::thread::scope(|scope| {
        // Below the run, but above a thread that has left it; it gets the CPU as soon as the only
        // job has ended, and ends the run.
        scope.spawn(move || {
            let tid = Tid::current();
            sched::set_affinity(tid, &CpuSet::single(two_cpus()[0])).expect("a CPU");
            sched::set(tid, &Attr::grant(sched::Policy::Fifo(1))).expect("a priority");
            begun.recv().expect("a run");
            control.cancel();
            let begun = std::time::Instant::now();
            while begun.elapsed() < SPIN {}
            has_let_go.store(true, Ordering::Relaxed);
        });
        let plan = single(&tree, Box::new(move |_, _| begins.send(()).expect("it waits")));
        execute_until(plan, &Options::new(LENGTH), control).expect("it runs");
        assert!(
            !has_let_go.load(Ordering::Relaxed),
            "it took as long as the other one had the CPU"
        );
    });
    sched::set_affinity(Tid::current(), &own).expect("all CPUs");
}

#[test]
fn a_worker_that_leaves_a_run_moves_to_the_other_cpus() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_leaves_cpu");
    const TIMEOUT: Duration = Duration::from_secs(1);
    let tree = small();
    let run_cpus = CpuSet::single(two_cpus()[0]);
    let affinities = Mutex::new(Vec::new());
    let control = RunControl::default();
    let body = |_: &Job, is_over: &AtomicBool| {
        let affinity = || sched::get_affinity(Tid::current()).expect("an affinity");
        let is_ordinary =
            || sched::get(Tid::current()).is_ok_and(|attr| attr.policy == sched::Policy::NORMAL);
        let in_run = affinity();
        control.cancel();
        while !is_over.load(Ordering::Acquire) {}
        // The run makes its workers ordinary threads, then unpins them.
        let end = Instant::now() + TIMEOUT;
        while Instant::now() < end && !(is_ordinary() && affinity() != in_run) {}
        affinities.lock().expect("no panic").extend([in_run, affinity()]);
    };
    let plan = single(&tree, Box::new(body));
    execute_until(plan, &Options::new(LENGTH), &control).expect("it runs");
    let own = sched::get_affinity(Tid::current()).expect("an affinity");
    assert_eq!(
        affinities.into_inner().expect("no panic"),
        [run_cpus, own.difference(&run_cpus)],
        "in the run, and after the run"
    );
}
