//! Sleep of a dispatcher until it checks the budget in use on its CPU.
//!
//! Each check of a budget sets the next one: sleep for the remaining budget, corrected by what
//! earlier sleeps gave the worker beyond the plan ([`WakeupEstimator`]), and at least for
//! [`SleepState::min_sleep`].

use talea_core::mutate;
use talea_core::{Span, Time, Work};

/// Smallest remainder of a budget for which a dispatcher sleeps. A shorter remainder is charged at
/// once, because sleeping costs more.
pub(crate) const MIN_REMAINDER: Span = Span::from_ns(4_000);
/// Minimum sleep of a dispatcher before a budget ends. The minimum grows while the worker gets
/// nothing done in it: a timer that is too short expires before the worker has its CPU.
const MIN_SLEEP: Span = Span::from_ns(5_000);
/// Maximum of the minimum sleep, and thus of the budget overrun. It exceeds the latency until any
/// worker gets its CPU.
const MAX_SLEEP: Span = Span::from_ns(320_000);

/// Difference between the CPU time that a sleep gave a worker and the planned CPU time, in
/// nanoseconds. A negative value means that the sleep gave less than planned.
///
/// A dispatcher wakes a little after its timer, and its worker uses the budget meanwhile. The
/// worker, in turn, gets its CPU a little after the sleep has begun. A wake-up is therefore set
/// earlier by the excess of earlier sleeps. It is never so early that a check finds more than a
/// negligible remainder ([`MIN_REMAINDER`]). The correction follows the error by a part of it, so
/// that the effect of one disturbance is short.
#[derive(Clone, Copy, Debug)]
struct Correction(i64);

impl Correction {
    /// Minimum change of the correction, unless the error is smaller.
    const MIN_STEP_NS: i64 = 250;
    /// The correction changes by this fraction of the error.
    const GAIN_DIVISOR: i64 = 4;
    /// Remainder of a budget that a check may find.
    const TOLERATED_REMAINDER_NS: i64 = MIN_REMAINDER.as_ns() as i64 / 2;
    /// Largest error of a timer on an undisturbed system; a larger error is a disturbance.
    const MAX_NS: i64 = 30_000;

    /// Observes a sleep that was to leave nothing of a budget and gave `beyond` more than planned.
    fn observe(&mut self, beyond: i64) {
        let off = mutate!(
            "exec-lead-stays",
            if beyond > 0 { beyond } else { (beyond + Correction::TOLERATED_REMAINDER_NS).min(0) },
            beyond.max(0)
        );
        self.adjust(off);
    }

    fn adjust(&mut self, off: i64) {
        let part = mutate!(
            "exec-lead-leaps",
            if off.abs() > Correction::MAX_NS { 0 } else { off.abs() / Correction::GAIN_DIVISOR },
            off.abs()
        );
        let step = part.max(Correction::MIN_STEP_NS).min(off.abs());
        self.0 = (self.0 + step * off.signum()).clamp(-Correction::MAX_NS, Correction::MAX_NS);
    }
}

/// Estimator of the sleep after which to check a budget.
///
/// A worker may get less CPU time in a long sleep than its length. Interrupts and hypervisors take
/// a part of it: on virtual machines intervals of ten microseconds. A check that is early for that
/// reason finds a remainder longer than the minimum sleep. Where long sleeps differ, the dispatcher
/// therefore checks once before the end, with a [margin](WakeupEstimator::margin_ns) for one more
/// sleep, which is too short for large losses. That costs one more wake-up per budget; where long
/// sleeps do not differ, it costs nothing.
#[derive(Clone, Copy, Debug)]
struct WakeupEstimator {
    long: Correction,
    short: Correction,
    /// Average error of the last long sleeps.
    long_error_ns: i64,
    /// Shortest known sleep in which a worker gets CPU time.
    min_sleep: Span,
}

impl WakeupEstimator {
    /// Error before the first observation: the first budgets must not be overrun either.
    const INITIAL_ERROR_NS: i64 = 8_000;
    /// The average changes by this fraction of the difference.
    const AVERAGE_DIVISOR: i64 = 8;

    /// Returns the estimator for a dispatcher with this minimum wake-up latency.
    fn with_latency(late: Span) -> WakeupEstimator {
        let late = (late.as_ns() as i64).min(Correction::MAX_NS);
        WakeupEstimator {
            long: Correction(late),
            short: Correction(0),
            long_error_ns: WakeupEstimator::INITIAL_ERROR_NS,
            min_sleep: MIN_SLEEP,
        }
    }

    const INITIAL: WakeupEstimator = WakeupEstimator {
        long: Correction(0),
        short: Correction(0),
        long_error_ns: WakeupEstimator::INITIAL_ERROR_NS,
        min_sleep: MIN_SLEEP,
    };

    /// Whether a sleep that gives `planned` ns is long: much longer than the final sleep of a
    /// budget.
    fn is_long_sleep(&self, planned: u64) -> bool {
        planned / 4 > self.final_sleep_ns()
    }

    /// Returns the CPU time that the final sleep before the end of a budget gives if another sleep
    /// precedes the final one.
    fn final_sleep_ns(&self) -> u64 {
        2 * self.min_sleep.as_ns() + 3 * self.long_error_ns as u64 + self.short.0.max(0) as u64
    }

    /// Returns the remainder that the next check is to find if `left` ns of the budget are left
    /// now.
    fn margin_ns(&self, left: u64) -> u64 {
        mutate!(
            "exec-lead-always",
            if self.long_error_ns <= Correction::TOLERATED_REMAINDER_NS || !self.is_long_sleep(left)
            {
                0
            } else {
                mutate!("exec-lead-spare", self.final_sleep_ns(), left.min(0))
            },
            if !self.is_long_sleep(left) {
                0
            } else {
                self.final_sleep_ns().max(self.long_error_ns as u64 + 20_000)
            }
        )
    }

    /// Returns the length of the sleep that gives a worker `planned` ns.
    fn sleep_length(&self, planned: u64) -> Span {
        let correction = if self.is_long_sleep(planned) { self.long } else { self.short };
        Span::from_ns(planned.saturating_add_signed(mutate!(
            "exec-lead-none",
            -correction.0,
            correction.0.min(0)
        )))
    }

    /// Observes a sleep: its planned and real CPU time, and whether the plan was to leave nothing
    /// of the budget.
    fn observe(&mut self, planned: u64, actual: u64, leaves_nothing: bool) {
        let signed = |length: u64| i64::try_from(length).unwrap_or(i64::MAX);
        let beyond = signed(actual).saturating_sub(signed(planned));
        let is_long = self.is_long_sleep(planned);
        if is_long {
            self.long_error_ns += (beyond.abs().min(Correction::MAX_NS) - self.long_error_ns)
                / WakeupEstimator::AVERAGE_DIVISOR;
        }
        let correction = if is_long { &mut self.long } else { &mut self.short };
        if leaves_nothing { correction.observe(beyond) } else { correction.adjust(beyond) }
    }

    /// Doubles the minimum sleep, after a sleep of this length gave the worker nothing.
    fn double_min_sleep(&mut self, sleep: Span) {
        self.min_sleep =
            Span::from_ns(self.min_sleep.as_ns().max(2 * sleep.as_ns()).min(MAX_SLEEP.as_ns() / 4));
    }

    /// Starts a new budget. Lets the minimum sleep decay, because it was learned a while ago.
    fn begin_budget(&mut self) {
        self.min_sleep = Span::from_ns(self.min_sleep.as_ns() / 16 * 15).max(MIN_SLEEP);
    }
}

/// State of a sleep.
#[derive(Clone, Copy, Debug)]
struct SleepState {
    /// Remaining budget when the sleep began; `None` if no budget is in use.
    remaining_before: Option<Span>,
    /// Remaining budget at the last check. `planned_ns` is the part that the worker gets until the
    /// wake-up.
    remaining_ns: u64,
    planned_ns: u64,
    /// Minimum sleep.
    min_sleep: Span,
    /// Time of the next check.
    wakes_at: Time,
    /// Whether the sleep is longer than planned. The error of such a sleep says nothing about
    /// timers.
    is_extended: bool,
}

impl SleepState {
    const NONE: SleepState = SleepState {
        remaining_before: None,
        remaining_ns: 0,
        planned_ns: 0,
        min_sleep: MIN_SLEEP,
        wakes_at: Time::NEVER,
        is_extended: false,
    };
}

/// Sleep of the dispatcher of a CPU while a budget is in use there.
#[derive(Clone, Copy, Debug)]
pub(super) struct BudgetSleep {
    state: SleepState,
    estimator: WakeupEstimator,
}

impl BudgetSleep {
    /// No sleep, and an estimator before the first observation.
    pub(super) const INITIAL: BudgetSleep =
        BudgetSleep { state: SleepState::NONE, estimator: WakeupEstimator::INITIAL };

    /// Sets the minimum wake-up latency of the dispatcher.
    pub(super) fn calibrate(&mut self, late: Span) {
        self.estimator = WakeupEstimator::with_latency(late);
    }

    /// Observes the CPU time that the CPU consumed since the sleep began, read at `now`.
    pub(super) fn observe(&mut self, now: Time, work: Work) {
        let sleep = self.state;
        if sleep.remaining_before.is_some() && now >= sleep.wakes_at && !sleep.is_extended {
            self.estimator.observe(
                sleep.planned_ns,
                work.as_ns(),
                sleep.planned_ns == sleep.remaining_ns,
            );
        }
    }

    /// Returns the length of the sleep that gives the worker `left`.
    pub(super) fn length_for(&self, left: Span) -> Span {
        self.estimator.sleep_length(left.as_ns())
    }

    /// Begins no sleep, because no budget is in use.
    pub(super) fn clear(&mut self) {
        self.state = SleepState::NONE;
    }

    /// Begins a sleep at `clock`, with `left` of a budget. Returns the time of the check.
    pub(super) fn begin(&mut self, clock: Time, left: Span) -> Time {
        let (sleep, estimator) = (&mut self.state, &mut self.estimator);
        match sleep.remaining_before {
            // The same budget, checked for another reason: that says nothing about the sleep.
            Some(before)
                if left <= before
                    && mutate!("exec-loop-doubles", clock < sleep.wakes_at, false) => {}
            // The worker got less than half of the sleep.
            Some(before)
                if left <= before
                    && left.as_ns() + sleep.min_sleep.as_ns() / 2 > before.as_ns() =>
            {
                estimator.double_min_sleep(sleep.min_sleep);
                sleep.min_sleep = (sleep.min_sleep + sleep.min_sleep).min(MAX_SLEEP);
                sleep.remaining_before = Some(left);
            }
            before => {
                if before.is_none_or(|before| left > before) {
                    estimator.begin_budget();
                }
                sleep.min_sleep = estimator.min_sleep;
                sleep.remaining_before = Some(left);
            }
        }
        sleep.remaining_ns = left.as_ns();
        sleep.planned_ns = sleep.remaining_ns - estimator.margin_ns(sleep.remaining_ns);
        let length = estimator.sleep_length(sleep.planned_ns);
        sleep.is_extended = length < sleep.min_sleep;
        sleep.wakes_at = mutate!(
            "exec-loop-sleep",
            clock.saturating_add(length.max(sleep.min_sleep)),
            clock.saturating_add(left)
        );
        sleep.wakes_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_sim::rng::Rng;

    /// Latency of a dispatcher, and delay until its worker gets the CPU after the sleep has begun.
    const LATE: u64 = 20_000;
    const BEGINS: u64 = 14_000;
    const BUDGET: u64 = 1_000_000;

    /// Returns the overrun of a budget, and the number of checks. With `with_losses`, 10 us of each
    /// 400 us are lost now and then.
    fn overrun(estimator: &mut WakeupEstimator, with_losses: bool, rng: &mut Rng) -> (u64, u32) {
        let (mut left, mut checks) = (BUDGET, 0);
        estimator.begin_budget();
        loop {
            checks += 1;
            let planned = left - estimator.margin_ns(left);
            let (sleep, least) =
                (estimator.sleep_length(planned).as_ns(), estimator.min_sleep.as_ns());
            let sleep = sleep.max(least);
            let lost = (0..sleep / 20_000).filter(|_| with_losses && rng.below(20) == 0).count()
                as u64
                * 10_000;
            let actual = (sleep + LATE).saturating_sub(BEGINS + lost);
            if sleep >= least && actual > 0 {
                estimator.observe(planned, actual, planned == left);
            }
            if actual + MIN_REMAINDER.as_ns() > left {
                return (actual.saturating_sub(left), checks);
            }
            if actual < least / 2 {
                estimator.double_min_sleep(Span::from_ns(least));
            }
            left -= actual;
        }
    }

    /// Returns the median and the ninth decile of overruns, and the checks per budget.
    fn many(mut each: impl FnMut() -> (u64, u32)) -> (u64, u64, f64) {
        let (mut over, checks): (Vec<u64>, Vec<u32>) = (0..1_000).map(|_| each()).unzip();
        over.sort_unstable();
        (over[500], over[900], f64::from(checks.iter().sum::<u32>()) / 1e3)
    }

    #[test]
    fn l5_where_long_sleeps_lose_time_a_check_before_the_end_keeps_budgets() {
        let (mut rng, mut estimator) =
            (Rng::new(5), WakeupEstimator::with_latency(Span::from_ns(LATE)));
        let (median, most, checks) = many(|| overrun(&mut estimator, true, &mut rng));
        // An estimator that learns the same but never checks before the end.
        let (mut rng, mut estimator) =
            (Rng::new(5), WakeupEstimator::with_latency(Span::from_ns(LATE)));
        let (_, without, fewer) = many(|| {
            estimator.long_error_ns = 0;
            overrun(&mut estimator, true, &mut rng)
        });
        println!(
            "median {median} ns, p90 {most} ns in {checks} checks; {without} ns in {fewer} without the margin"
        );
        assert!(median <= 2_000 && 2 * most < without, "{median}, {most}, {without}");
        assert!(checks < 2.6, "{checks}");
    }

    #[test]
    fn l5_where_long_sleeps_do_not_differ_one_check_is_enough() {
        let (mut rng, mut estimator) =
            (Rng::new(6), WakeupEstimator::with_latency(Span::from_ns(LATE)));
        let (median, most, checks) = many(|| overrun(&mut estimator, false, &mut rng));
        assert!(median == 0 && most == 0 && checks < 1.03, "{median}, {most}, {checks}");
    }
}
