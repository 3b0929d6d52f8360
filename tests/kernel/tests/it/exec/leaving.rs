//! End of a run while other runs continue.

use super::{single, small, two_cpus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use talea_core::{CpuSet, Span};
use talea_exec::{Options, execute};
use talea_kernel_tests::{Bench, kernel, needs, needs_root};
use talea_os::Tid;
use talea_os::sched::{self, Attr};

#[test]
fn a_thread_that_leaves_a_run_does_not_wait_for_a_program_on_its_cpu() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_leaves");
    const SPIN: Duration = Duration::from_millis(800);
    let tree = small();
    let (begins, begun) = std::sync::mpsc::channel::<()>();
    let has_let_go = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Below the run, but above a thread that has left it; it gets the CPU as soon as the only
        // job has ended.
        scope.spawn(move || {
            let tid = Tid::current();
            sched::set_affinity(tid, &CpuSet::single(two_cpus()[0])).expect("a CPU");
            sched::set(tid, &Attr::grant(sched::Policy::Fifo(1))).expect("a priority");
            begun.recv().expect("a run");
            let begun = std::time::Instant::now();
            while begun.elapsed() < SPIN {}
            has_let_go.store(true, Ordering::Relaxed);
        });
        let plan = single(&tree, Box::new(move |_, _| begins.send(()).expect("it waits")));
        execute(plan, &Options::new(Span::from_ns(50_000_000))).expect("it runs");
        assert!(
            !has_let_go.load(Ordering::Relaxed),
            "it took as long as the other one had the CPU"
        );
    });
}
