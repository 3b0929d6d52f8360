//! Periodic releases: as a load of the executor, and as sleeps of a plain thread, whose lateness is
//! the baseline.

use crate::placement::enter;
use talea_core::{Span, Time, Work};
use talea_exec::{Arrival, Load};
use talea_os::{Policy, clock};

/// Returns a load of `jobs` jobs with equal costs, one per `period` from `offset` on.
pub(super) fn periodic(offset: Span, period: Span, jobs: u64, cost: Work) -> Load {
    let at = |k: u64| Time::ZERO + offset + Span::from_ns(k * period.as_ns());
    Load::new((0..jobs).map(|k| Arrival { observed: at(k), nominal: at(k) }).collect(), vec![cost])
}

/// Runs `what` on a plain FIFO thread on `cpu`, at the priority of a dispatcher.
pub(super) fn by_hand<T: Send>(cpu: u32, what: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    let thread = || -> std::io::Result<T> {
        enter(cpu, Policy::Fifo(talea_exec::Band::default().top))?;
        Ok(what())
    };
    let done = std::thread::scope(|scope| scope.spawn(thread).join());
    Ok(done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
}

/// Measures the lateness of a plain thread after each of `times` sleeps, in ns.
pub(super) fn lateness_by_hand(cpu: u32, period: Span, times: usize) -> anyhow::Result<Vec<u64>> {
    by_hand(cpu, move || {
        let mut due = clock::now() + period;
        let mut late = Vec::with_capacity(times);
        for _ in 0..times {
            due += period;
            clock::sleep_until(due);
            late.push(clock::now().since(due).as_ns());
        }
        late
    })
}

/// Lateness in ns above which the computer was stalled. The value is that of the executor's
/// monitor.
const STALL: u64 = 300_000;

/// Splits latenesses into those outside of stalls and the number of those within.
pub(super) fn outside_stalls(late: Vec<u64>) -> (Vec<u64>, usize) {
    let all = late.len();
    let kept: Vec<u64> = late.into_iter().filter(|&ns| ns <= STALL).collect();
    let within = all - kept.len();
    (kept, within)
}
