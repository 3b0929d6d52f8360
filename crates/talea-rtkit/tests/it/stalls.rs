//! Detection of CPU stalls, which no scheduling policy prevents.
//!
//! Model: on each CPU a thread at the highest priority wakes up every millisecond. A thread that
//! wakes up much later shows that its CPU ran nothing at all for that time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use talea_core::CpuSet;
use talea_kernel_tests::kernel;
use talea_os::Tid;
use talea_os::sched::{self, Attr, Policy};

/// Sleep of a thread of the detector.
const SLEEP: Duration = Duration::from_millis(1);
/// Lateness above which a thread has seen a stall.
const TOLERANCE: Duration = Duration::from_millis(2);

/// Running detector.
pub(crate) struct StallDetector {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u32>>,
}

impl StallDetector {
    /// Starts a thread on each CPU.
    pub(crate) fn start() -> StallDetector {
        let end = Arc::new(AtomicBool::new(false));
        let cpus = kernel::cpus();
        let threads = cpus.iter().map(|cpu| {
            let end = Arc::clone(&end);
            std::thread::spawn(move || stalls_of(cpu, &end))
        });
        StallDetector { threads: threads.collect(), end }
    }

    /// Ends the threads, and returns the number of stalls.
    pub(crate) fn finish(self) -> u32 {
        self.end.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().expect("a detector")).sum()
    }
}

/// Counts the stalls of a CPU until `end` is set.
fn stalls_of(cpu: u32, end: &AtomicBool) -> u32 {
    let own = Tid::current();
    sched::set_affinity(own, &CpuSet::from_iter([cpu])).expect("a CPU of this machine");
    sched::set(own, &Attr::plain(Policy::Fifo(99))).expect("real time");
    let mut stalls = 0;
    while !end.load(Ordering::Relaxed) {
        let begun = Instant::now();
        std::thread::sleep(SLEEP);
        stalls += u32::from(begun.elapsed() > SLEEP + TOLERANCE);
    }
    stalls
}
