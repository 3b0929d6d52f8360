//! Canaries: ordinary threads that show whether ordinary threads get CPU time.
//!
//! Model: a thread per CPU, pinned to it. A canary sleeps until the event loop asks it, and then
//! answers once. So it consumes nothing unless it is asked, and the broker decides when
//! ([`talea_broker::Effect::CheckCanaries`]).
//!
//! A canary requests short time slices. So its answer shows whether its CPU serves ordinary threads
//! at all, not how many others wait there (Linux 6.12; before, it waits like any thread).
//!
//! The kernel moves a canary away from a CPU that goes off-line. It answers from there, and returns
//! with the first question after the CPU is back. An isolated CPU, and one that admits no
//! ordinary thread of the daemon, for example in a cpuset partition, have no canary.

use crate::cpu_times::CpuTimes;
use rustix::thread::sched_getcpu;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use talea_core::{CpuSet, Span};
use talea_os::Tid;
use talea_os::sched::{self, Attr, Policy};

/// Time slice of a canary, the shortest that the kernel permits.
const SLICE: Span = Span::from_ns(100_000);

/// Canaries of all CPUs.
#[derive(Debug, Default)]
pub(crate) struct Canaries {
    by_cpu: BTreeMap<u32, Canary>,
    is_any_silent: bool,
    /// Check in progress.
    pub(crate) cpu_times: CpuTimes,
}

/// Canary of one CPU; dropping it ends its thread as soon as that runs.
#[derive(Debug)]
struct Canary {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    asked: AtomicU32,
    answered: AtomicU32,
    is_ending: AtomicBool,
}

impl Canaries {
    /// Starts a canary on each of `cpus` that admits one.
    pub(crate) fn start(cpus: &CpuSet) -> Canaries {
        let canary = |cpu| Some((cpu, Canary::start(cpu).ok()?));
        let by_cpu = cpus.iter().filter_map(canary).collect();
        Canaries { by_cpu, ..Canaries::default() }
    }

    /// Whether there is a canary.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_cpu.is_empty()
    }

    /// Returns those of `cpus` whose canary has not answered the last question, and asks the
    /// others.
    pub(crate) fn check(&mut self, cpus: &CpuSet) -> CpuSet {
        let canaries = cpus.iter().filter_map(|cpu| Some((cpu, self.by_cpu.get(&cpu)?)));
        let silent: CpuSet =
            canaries.filter(|(_, canary)| !canary.ask_again()).map(|(cpu, _)| cpu).collect();
        self.is_any_silent = !silent.is_empty();
        silent
    }

    /// Whether a canary was silent at the last check.
    pub(crate) fn is_any_silent(&self) -> bool {
        self.is_any_silent
    }
}

impl Canary {
    fn start(cpu: u32) -> io::Result<Canary> {
        let shared = Arc::new(Shared::default());
        let (ready, started) = channel();
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("talea-canary/{cpu}"))
            .spawn(move || run(cpu, &of_thread, &ready))?;
        let canary = Canary { shared, thread };
        match started.recv() {
            Ok(result) => result.map(|()| canary),
            Err(_) => Err(io::Error::other("the canary has ended")),
        }
    }

    /// Asks the canary, unless the last question is unanswered; returns whether it is answered.
    fn ask_again(&self) -> bool {
        let asked = self.shared.asked.load(Ordering::Relaxed);
        let has_answered = self.shared.answered.load(Ordering::Acquire) == asked;
        if has_answered {
            self.shared.asked.store(asked.wrapping_add(1), Ordering::Release);
            self.thread.thread().unpark();
        }
        has_answered
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // A starved canary does not end now: nothing waits for it.
        self.shared.is_ending.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }
}

fn run(cpu: u32, shared: &Shared, ready: &Sender<io::Result<()>>) {
    let (me, own) = (Tid::current(), CpuSet::single(cpu));
    let placed = sched::set_affinity(me, &own);
    let is_placed = placed.is_ok();
    // Before the policy: on a starved CPU the thread does not continue after it.
    if ready.send(placed).is_err() || !is_placed {
        return;
    }
    let ordinary = Attr::plain(Policy::NORMAL);
    // A kernel without slices ignores them. Every thread may become ordinary.
    let _ = sched::set(me, &ordinary.with_slice(SLICE)).or_else(|_| sched::set(me, &ordinary));
    while !shared.is_ending.load(Ordering::Acquire) {
        let asked = shared.asked.load(Ordering::Acquire);
        if shared.answered.load(Ordering::Relaxed) == asked {
            std::thread::park();
            continue;
        }
        if sched_getcpu() != cpu as usize {
            // An error means that the CPU is still off-line, or closed to this thread.
            let _ = sched::set_affinity(me, &own);
        }
        shared.answered.store(asked, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_canary_answers_each_question_once_and_is_asked_by_a_check_only() {
        let Some(cpus) = talea_os::sysinfo::online_now() else { return };
        let mut canaries = Canaries::start(&cpus);
        let own = CpuSet::single(cpus.iter().next().expect("a CPU"));
        for _ in 0..20 {
            let end = Instant::now() + Duration::from_secs(10);
            while !canaries.check(&own).is_empty() {
                assert!(Instant::now() < end, "the canary does not answer");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let canary = canaries.by_cpu.values().next().expect("a canary");
        assert_eq!(canary.shared.asked.load(Ordering::Relaxed), 20);
        assert!(canaries.check(&CpuSet::single(1000)).is_empty(), "no canary, no silence");
        for other in canaries.by_cpu.values().skip(1) {
            assert_eq!(other.shared.asked.load(Ordering::Relaxed), 0);
        }
    }
}
