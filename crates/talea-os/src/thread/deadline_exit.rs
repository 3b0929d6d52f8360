//! Takes a thread out of SCHED_DEADLINE without corrupting the kernel's bandwidth accounting or
//! freezing the thread.
//!
//! # Kernel facts
//!
//! Measured on 6.1 to 7.2 (K1) and on 6.18 (K2); Q, D, T are runtime, deadline, period.
//!
//! - K1, the leak. A thread that sleeps past its zero-lag time and is then demoted from outside
//!   leaves its bandwidth in the root domain's `total_bw` forever.
//! - K2, the freeze. A thread with an overdrawn budget is marked as throttled until a timer
//!   replenishes it. Demoted meanwhile, it keeps the mark until its zero-lag time, deadline −
//!   runtime · T / Q (the remaining runtime is negative). Put back into the class before that, it
//!   waits for a timer that has already expired: it never runs again and cannot even be killed.
//! - K3. The smallest runtime (1024 ns) over a period of more than 2^20 times that is a share that
//!   rounds to 0 in the kernel's unit, 2^-20 CPUs. A thread with such a share leaks nothing by K1.
//! - K4. Shrinking an overdrawn thread to that share multiplies T / Q by up to a million, and so
//!   moves its zero-lag time hours away. If the thread sleeps, shrinking also removes the timer
//!   that would clear its mark.
//! - K5. A thread without budget leaks nothing when it is demoted: its zero-lag time is still to
//!   come, and the kernel returns its bandwidth then. The same holds for any runnable thread.
//! - K6. `/proc/TID/sched` shows the remaining runtime (`dl.runtime`): exact for a sleeping thread,
//!   up to a tick old for a running one. A change of parameters, even by 1 ns, makes the kernel
//!   account the runtime first.
//! - K7. A thread that has not run since it entered the class has a budget that is still to be
//!   filled; the values shown are from an earlier stay in the class.
//! - K8. Zero-lag time changes by running, and by waking after it, which starts a new period. It
//!   does not change when the budget is refilled.
//! - K9. A throttled thread can neither run nor sleep. With its own parameters it pays off its
//!   overrun at its own rate.
//! - K10. `/proc/TID/schedstat` counts CPU time and switches: two equal readings mean that the
//!   thread did not run in between.
//! - K11. Reading the sysctl `kernel.sched_rt_runtime_us` or `sched_rt_period_us` rebuilds the root
//!   domains (6.18). The kernel then forgets the bandwidth of threads that have left the class, and
//!   subtracts that bandwidth again at their zero-lag times: `total_bw` falls below zero, and the
//!   kernel refuses deadline threads until the next rebuild.
//!
//! # States of a thread
//!
//! "What is certain" is the overrun that the thread certainly has when it is demoted.
//!
//! | state | policy in the kernel | in [`dl_overruns`] | transition |
//! | --- | --- | --- | --- |
//! | *outside* | another class | none | *in class*: it is granted Q, D, T |
//! | *in class* | Q, D, T | none | *prepared*: [`prepare_exit`] |
//! | *prepared* | Q, D, T + 1 ns, or shrunk | none | *pending*: [`PendingExit::record_pending`] |
//! | *pending* | as before | what is certain | *left*: demoted; *in class*: [`abort_exit`] |
//! | *left* | another class | what is certain | *outside* or *owing*: [`finish_exit`] |
//! | *owing* | another class | until t | *outside*: t has passed |
//! | *stuck* | another class | forever | none: its mark is never cleared (K4) |
//!
//! The thread may wake, run and be throttled between any two of these calls, and this process may
//! be preempted between them. So [`finish_exit`] reads afterwards what the thread did meanwhile
//! (K10), and records an overrun that can no longer be prevented.
//!
//! [`prepare_exit`] decides, from top to bottom:
//!
//! | the thread | call | result |
//! | --- | --- | --- |
//! | has another policy | none | `Clean` |
//! | has not run since it entered (K7) | shrink | `Measured`, shrunk |
//! | has ended | none | `None` |
//! | shows no budget, in any reading | shrink | `Clean`: K1 is certain, K2 is not |
//! | sleeps with budget left | shrink | `Measured`, shrunk |
//! | sleeps without budget | none | `Measured`, own parameters (K5) |
//! | runnable, at most 200 µs or Q / 2 left | none | `Measured`, own parameters (K5) |
//! | runnable, more left; still some after shrinking | shrink | `Measured`, shrunk |
//! | same, none left after shrinking, runnable | shrink, undo | `Measured`, own parameters (K9) |
//! | same, asleep by then, or the kernel refuses to undo | shrink | `Stuck` (K4) |
//!
//! A runnable thread is first changed by 1 ns and read again (K6).
//!
//! [`finish_exit`] derives the overrun:
//!
//! | result | the thread since it was read (K10) | owes until |
//! | --- | --- | --- |
//! | `Clean` | irrelevant | nothing |
//! | `Measured`, budget left | did not run, or is never counted | nothing |
//! | `Measured`, budget left | ran on, within its budget | nothing |
//! | `Measured` | ran on, or had no budget left | its zero-lag time |
//! | `Measured` | woke, or is not counted | the later of that and zero-lag of a new period |
//! | `Stuck` | irrelevant | forever |
//!
//! # A killed process
//!
//! | killed in | what it leaves | successor |
//! | --- | --- | --- |
//! | *prepared*, not shrunk | Q, D, T + n ns | [`is_same_or_nudged`] accepts it as granted |
//! | *prepared*, *pending*, shrunk | the smallest share | [`is_exit_begun`]: resumes, see below |
//! | *left* | what is certain | [`dl_overruns`] reads the file; the thread stays out |
//!
//! To resume, the successor calls [`resume_exit`], sets Q, D, T again (K9), and starts a new exit.
//! Each predecessor that was killed in the act may have added 1 ns: n is at most [`MAX_NUDGES`].
//!
//! # Invariants
//!
//! 1. A thread with an unexpired entry in [`dl_overruns`] does not enter the class (K2).
//! 2. A thread known to be without budget is not shrunk (K4). A sleeping thread with budget is not
//!    demoted unshrunk (K1).
//! 3. What a thread certainly owes is recorded before it is demoted. What it may owe by running
//!    between the reading and the demotion is recorded after it; only a kill between these two
//!    calls loses that.
//! 4. Nothing between the reading and the demotion may block: what was read must still hold.

use super::dl_overruns::{self, PendingRecord};
use super::key::{ThreadIncarnation, ThreadKey};
use super::run_count::{RunCount, SchedstatReader};
use super::sched_clock;
use crate::sched::{self, Attr, DEADLINE_RUNTIME_MIN_NS, Policy};
use crate::sys::is;
use crate::{Tid, clock, proc};
use std::sync::OnceLock;
use talea_core::mutate;
use talea_core::{Monotonic, Span, Work};

/// Result of [`prepare_exit`], evaluated by [`finish_exit`] after the demotion.
#[derive(Clone, Copy)]
pub(super) enum PendingExit {
    /// No overrun is possible or measurable.
    Clean,
    /// Parameters, budget and run count with which the thread leaves.
    Measured { params: DlParams, budget: DlBudget, runs: Option<RunCount> },
    /// The thread has a throttled mark that nothing will clear.
    Stuck,
}

/// Deadline parameters with which a thread pays off its overrun.
#[derive(Clone, Copy)]
pub(super) struct DlParams {
    runtime: Work,
    deadline: Span,
    period: Span,
}

impl DlParams {
    fn is_shrunk(self) -> bool {
        self.runtime == SHRUNK.runtime && [SHRUNK.period, shrunk_period()].contains(&self.period)
    }
}

/// Smallest period over which the smallest runtime is less than one unit of the kernel's
/// accounting, 2^-20 CPUs (K3).
const SHRUNK_PERIOD: Span = Span::from_ns(DEADLINE_RUNTIME_MIN_NS * (1 << 20) + 1);
/// Budget that a running thread may consume while the budget is read.
const READ_LATENCY_NS: u64 = 20_000;
/// Minimum budget of a runnable thread that is shrunk. With less, or with less than half its
/// runtime, the thread might exhaust the budget before the call.
const MIN_BUDGET_TO_SHRINK_NS: i64 = 200_000;
/// Length of the longest tick: CPU time that the kernel may not have accounted yet.
const MAX_TICK_NS: u64 = 20_000_000;
/// Parameters of a shrunk thread.
const SHRUNK: DlParams = DlParams {
    runtime: Work::from_ns(DEADLINE_RUNTIME_MIN_NS),
    deadline: SHRUNK_PERIOD,
    period: SHRUNK_PERIOD,
};

/// Prepares the deadline exit of a thread. The caller must demote the thread at once and then call
/// [`finish_exit`].
///
/// `entered` is the run count when the thread entered the class, if it is known. This function must
/// not block: see invariant 4.
///
/// Returns `None`, without effect, if `is_alive` returns `false`. Does not call `is_alive` if the
/// thread has another policy, or has not run since it entered the class (K7).
pub(super) fn prepare_exit(
    (tgid, tid): (Tid, Tid),
    has: &Attr,
    entered: Option<RunCount>,
    reader: &SchedstatReader,
    is_alive: impl FnOnce() -> bool,
) -> Option<PendingExit> {
    let Policy::Deadline { runtime, deadline, period } = has.policy else {
        return Some(PendingExit::Clean);
    };
    if let Some(entered) = entered
        && let runs @ Some(now) = reader.read()
        && now == entered
    {
        // Not run since it entered (K7): when it wakes now, it starts with the smallest budget.
        shrink_runtime(tid, has);
        return Some(PendingExit::Measured {
            params: SHRUNK,
            budget: DlBudget { left: 1, deadline: 0 },
            runs,
        });
    }
    mutate!(
        "os-leave-foreign",
        if !is_alive() {
            return None;
        }
    );

    let params = DlParams { runtime, deadline, period };
    let mut sample = DlSample::take((tgid, tid), reader);
    if !sample.is_asleep && force_accounting(tid, has) {
        // The value of a running thread was up to a tick old; now it is accounted (K6).
        sample = DlSample::take((tgid, tid), reader);
    }
    let Some(budget) = sample.budget else {
        // The kernel does not report the budget: the leak is certain, the freeze is not.
        shrink_runtime(tid, has);
        return Some(PendingExit::Clean);
    };
    let min_budget = MIN_BUDGET_TO_SHRINK_NS.min(runtime.as_ns() as i64 / 2);
    if budget.left <= if sample.is_asleep { 0 } else { min_budget } {
        // Nothing leaks (K5).
        return Some(PendingExit::Measured { params, budget, runs: sample.runs });
    }
    shrink_runtime(tid, has);
    if sample.is_asleep {
        return Some(PendingExit::Measured { params: SHRUNK, budget, runs: sample.runs });
    }
    // This process may have been preempted for longer than the budget lasted.
    let now = DlSample::take((tgid, tid), reader);
    Some(match now.budget {
        Some(budget) if budget.left > 0 => {
            PendingExit::Measured { params: SHRUNK, budget, runs: now.runs }
        }
        // Throttled: with its own parameters it can pay off the overrun (K9).
        Some(budget) if !now.is_asleep && sched::set(tid, has).is_ok() => {
            PendingExit::Measured { params, budget, runs: now.runs }
        }
        // Asleep: shrinking has removed the timer that would clear its mark (K4).
        Some(_) => PendingExit::Stuck,
        None => PendingExit::Clean,
    })
}

impl PendingExit {
    /// Records, before the demotion, the overrun that is certain after it. If this process is
    /// killed in between, its successor must not put the thread back too early. [`finish_exit`] or
    /// [`abort_exit`] replaces the record.
    pub(super) fn record_pending(&self, key: ThreadKey) -> PendingRecord {
        dl_overruns::record_pending(key, |before| match self {
            // No overrun is known.
            PendingExit::Clean => None,
            // Budget is left, so no overrun is certain.
            PendingExit::Measured { params, budget, .. }
                if mutate!(
                    "os-debts-announced",
                    params.is_shrunk()
                        && mutate!("os-debts-announced-shrunk", budget.left > 0, true),
                    params.is_shrunk() || budget.left <= 0
                ) =>
            {
                None
            }
            PendingExit::Measured { params, budget, .. } => {
                let overdrawn = DlBudget {
                    left: budget.left.min(0).saturating_sub_unsigned(READ_LATENCY_NS),
                    ..*budget
                };
                let deadline = sched_clock::estimate_latest(params.runtime, params.period);
                // A thread that was found shrunk may have a deadline far off: see [`resume_exit`].
                let deadline = before.map_or(deadline, |before| before.max(deadline));
                Some(overdrawn.zero_lag_at(*params, deadline))
            }
            PendingExit::Stuck => Some(Monotonic::NEVER),
        })
    }
}

/// Withdraws the pending record, because the kernel refused the demotion or the thread has ended.
pub(super) fn abort_exit(pending: &PendingRecord) {
    dl_overruns::settle(pending, None, ThreadIncarnation::default);
}

/// Records, after the demotion, the overrun of the thread, in addition to earlier overruns. `main`
/// returns the incarnation of the main thread that would inherit the overrun. Returns whether the
/// reader still works, so that the number still belongs to the thread.
pub(super) fn finish_exit(
    pending: &PendingRecord,
    exit: PendingExit,
    reader: &SchedstatReader,
    main: impl FnOnce() -> ThreadIncarnation,
) -> bool {
    let after = reader.read();
    dl_overruns::settle(pending, overrun_until(exit, after), main);
    after.is_some()
}

/// Records the overrun of a thread that a killed process has shrunk. Must run before the thread
/// gets its own parameters back, because they hide the overrun.
pub(super) fn resume_exit((tgid, tid): (Tid, Tid), key: ThreadKey, main: ThreadIncarnation) {
    if let Some(until) =
        DlSample::take((tgid, tid), &SchedstatReader::open(tid)).overrun_since_shrink()
    {
        dl_overruns::record(key, main, until);
    }
}

/// Returns the time until which a demoted thread must stay out of the class. `after` is the
/// thread's run count after the demotion.
fn overrun_until(exit: PendingExit, after: Option<RunCount>) -> Option<Monotonic> {
    let (params, budget, before) = match exit {
        PendingExit::Clean => return None,
        PendingExit::Stuck => return Some(Monotonic::NEVER),
        PendingExit::Measured { params, budget, runs } => (params, budget, runs),
    };
    if after == before && budget.left > 0 {
        return None;
    }
    // See K8: only running changes zero-lag time, and waking after it, which starts a new period.
    let (used, woke) = match (before, after) {
        (Some(before), Some(after)) => {
            (after.ns.saturating_sub(before.ns), after.switches != before.switches)
        }
        _ => (MAX_TICK_NS, true),
    };
    let used = if after == before { 0 } else { used.saturating_add(READ_LATENCY_NS) };
    if !woke && budget.left > 0 && used <= budget.left as u64 {
        return None;
    }
    let left = if woke { budget.left.min(0) } else { budget.left };
    let overdrawn = DlBudget { left: left.saturating_sub_unsigned(used), ..budget };
    let mut until = overdrawn.zero_lag(params);
    if woke {
        let renewed = DlBudget { left: -(used.min(i64::MAX as u64) as i64), ..budget };
        until =
            until.max(renewed.zero_lag_at(params, clock::now().saturating_add(params.deadline)));
    }
    Some(until)
}

/// Whether a killed process has begun to take the thread out of the class and has not restored
/// `old`. `own` is the policy granted to the thread.
pub(super) fn is_exit_begun(has: &Attr, own: &Attr, old: &Attr) -> bool {
    let has_min_runtime = has.policy == min_runtime_policy(shrunk_period(), shrunk_period())
        || matches!(
            own.policy,
            Policy::Deadline { deadline, period, .. }
                if has.policy == min_runtime_policy(deadline, period)
        );
    mutate!(
        "os-leave-begun-old",
        has_min_runtime
            && mutate!("os-leave-unfinished", has.policy != own.policy, has.policy == own.policy)
            && has.policy != old.policy,
        has_min_runtime && has.policy != own.policy
    )
}

/// Maximum number of [forced accountings](force_accounting) of a thread by daemons that were killed
/// one after the other, each during the call.
const MAX_NUDGES: u64 = 16;

/// Whether a thread that was granted `given` may have `has` as a result: the same policy, or a
/// policy that the exit from the deadline class sets temporarily.
pub fn is_same_or_nudged(has: &Policy, given: &Policy) -> bool {
    let (
        Policy::Deadline { runtime, deadline, period },
        Policy::Deadline { period: has_period, .. },
    ) = (*given, *has)
    else {
        return has == given;
    };
    let nudged = Policy::Deadline { runtime, deadline, period: has_period };
    let is_nudged = *has == nudged
        && has_period.checked_sub(period).is_some_and(|by| by <= Span::from_ns(MAX_NUDGES));
    mutate!("os-leave-comes-of", is_nudged, has.is_deadline() || is_nudged)
        || [
            min_runtime_policy(shrunk_period(), shrunk_period()),
            min_runtime_policy(deadline, has_period),
        ]
        .contains(has)
}

/// State of a deadline thread at one time, as far as it is visible from outside.
struct DlSample {
    /// Budget of the thread. For a running thread the value is up to a tick old.
    budget: Option<DlBudget>,
    /// Whether the thread sleeps. If it sleeps, the budget is exact.
    is_asleep: bool,
    /// Run count of the thread, read before the budget.
    runs: Option<RunCount>,
}

impl DlSample {
    fn take((tgid, tid): (Tid, Tid), reader: &SchedstatReader) -> DlSample {
        const TRIES: u32 = 4;
        let mut runs = reader.read();
        for _ in 0..TRIES {
            let budget = DlBudget::read(tid);
            if is_runnable(tgid, tid) {
                return DlSample { budget, is_asleep: false, runs };
            }
            // It may have fallen asleep since its budget was read, and overdrawn it on the way.
            let after = reader.read();
            if mutate!("kernel-leave-asleep", after == runs, after.is_some()) {
                return DlSample { budget, is_asleep: true, runs };
            }
            runs = after;
        }
        DlSample { budget: DlBudget::read(tid), is_asleep: false, runs }
    }

    fn overrun_since_shrink(&self) -> Option<Monotonic> {
        let budget = self.budget.filter(|budget| budget.left <= 0)?;
        if self.is_asleep {
            // Shrinking has removed the timer that would clear its mark (K4).
            return mutate!("os-debts-mark", Some(Monotonic::NEVER), None);
        }
        // It may have been replenished since: at this rate that takes a second per microsecond
        // overdrawn.
        Some(sched_clock::to_monotonic_latest(budget.deadline, SHRUNK.runtime, SHRUNK.period))
    }
}

/// Makes the kernel account the thread's runtime by a change of the period by 1 ns (K6). Returns
/// whether the kernel accepted the change.
fn force_accounting(tid: Tid, has: &Attr) -> bool {
    let Policy::Deadline { runtime, deadline, period } = has.policy else { return false };
    let has_period = Policy::Deadline { runtime, deadline, period: period + Span::from_ns(1) };
    sched::set(tid, &Attr { policy: has_period, ..*has }).is_ok()
}

fn is_runnable(tgid: Tid, tid: Tid) -> bool {
    proc::stat_of(tgid, tid).is_ok_and(|stat| stat.state == b'R')
}

/// Budget of a deadline thread in its current period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DlBudget {
    /// Remaining runtime in nanoseconds; negative if the budget is overdrawn.
    left: i64,
    /// Absolute deadline on the scheduler's clock, in nanoseconds.
    deadline: u64,
}

impl DlBudget {
    /// Reads the budget. Returns `None` where the kernel does not report the budget.
    fn read(tid: Tid) -> Option<DlBudget> {
        DlBudget::parse(&proc::read(&format!("/proc/{tid}/sched")).ok()?)
    }

    fn parse(text: &[u8]) -> Option<DlBudget> {
        let number = |name: &[u8]| -> Option<i64> {
            let line = text.split(|&byte| byte == b'\n').find(|line| line.starts_with(name))?;
            std::str::from_utf8(line).ok()?.split_once(':')?.1.trim().parse().ok()
        };
        let (left, deadline) = (number(b"dl.runtime")?, number(b"dl.deadline")?);
        // Not woken since it first entered the class: nothing is filled, and nothing overdrawn.
        let left = if deadline == 0 { left.max(1) } else { left };
        Some(DlBudget { left, deadline: deadline as u64 })
    }

    /// Returns an upper bound, on `CLOCK_MONOTONIC`, of the zero-lag time: deadline − left · T / Q.
    /// At that time the kernel forgets the budget of a thread outside the class.
    fn zero_lag(self, params: DlParams) -> Monotonic {
        self.zero_lag_at(
            params,
            sched_clock::to_monotonic_latest(self.deadline, params.runtime, params.period),
        )
    }

    /// Variant of [`DlBudget::zero_lag`] for a deadline on `CLOCK_MONOTONIC`.
    fn zero_lag_at(self, params: DlParams, deadline: Monotonic) -> Monotonic {
        // Inaccuracy of the kernel's timer.
        const MARGIN: u64 = 1_000_000;
        let overrun =
            u128::from(self.left.min(0).unsigned_abs()) * u128::from(params.period.as_ns());
        let lag = overrun.div_ceil(u128::from(params.runtime.as_ns().max(1)));
        deadline.saturating_add(Span::from_ns(
            u64::try_from(lag).unwrap_or(u64::MAX).saturating_add(MARGIN),
        ))
    }
}

/// Shrinks the thread to the smallest share that the kernel accepts.
///
/// A refusal (a domain already over its limit, parameters that became immutable) is not an error.
/// Leaving the class is still right, and may then leak the share.
fn shrink_runtime(tid: Tid, has: &Attr) {
    mutate!("kernel-leave-shrink", {}, {
        if tid.as_raw() > 0 {
            return;
        }
    });
    let Policy::Deadline { deadline, period, .. } = has.policy else { return };
    let shrunk = min_runtime_policy(shrunk_period(), shrunk_period());
    if let Err(error) = sched::set(tid, &Attr { policy: shrunk, ..*has })
        && is(&error, libc::EINVAL)
    {
        // The administrator has lowered the bound since it was read: the thread's own period is
        // certainly allowed.
        drop(sched::set(tid, &Attr { policy: min_runtime_policy(deadline, period), ..*has }));
    }
}

/// Returns the policy with the smallest runtime over this deadline and period.
fn min_runtime_policy(deadline: Span, period: Span) -> Policy {
    Policy::Deadline { runtime: SHRUNK.runtime, deadline, period }
}

/// Returns the period of a shrunk thread on this machine.
fn shrunk_period() -> Span {
    SHRUNK.period.min(max_period())
}

/// Returns the longest deadline period that the kernel accepts. The function reads the value once.
fn max_period() -> Span {
    static MAX_PERIOD: OnceLock<Span> = OnceLock::new();
    const DEFAULT_US: u64 = 4_194_304;
    *MAX_PERIOD.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/sched_deadline_period_max_us").ok();
        let us = text.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_US);
        Span::from_us(us).unwrap_or(Span::from_ns(DEFAULT_US * 1_000))
    })
}

#[cfg(test)]
mod tests;
