//! A thread with a limit, shared by the daemon and an enforcer.
//!
//! | state | event | next state | action |
//! | --- | --- | --- | --- |
//! | *new* | a policy is applied | *running*, *throttled* if no budget is left | clock armed |
//! | *running* | clock fires, allowance left | *running* | clock armed for the allowance |
//! | *running* | clock fires, exhausted, `throttle` | *throttled* | ordinary policy |
//! | *running* | clock fires, exhausted, `demote` | *ended* | ordinary policy, daemon notified |
//! | *running* | clock fires, exhausted, `notify` | *running* | new budget |
//! | *throttled* | refill | *running* | granted policy, clock armed |
//! | *throttled* | another policy is applied | *throttled* | the policy is set at the refill |
//! | *running* or *throttled* | clock ends, thread lives | *ended* | ordinary policy, daemon notified |
//! | any | the limit ends | *ended* | |
//!
//! The kernel ends a clock with its thread, and when the thread executes a set-user-id or an
//! unreadable program: then the thread loses its policy, because its CPU time is not known.
//!
//! Invariants. While a limit exists, the thread's policy is changed under the lock only. A
//! throttled thread gets its policy back only while all its user ids are those of the grant's user,
//! and only while it has the ordinary policy that the enforcer has set.

use crate::convert;
use std::io;
use std::sync::Arc;
use talea_broker::ThreadId;
use talea_broker::input::Limit;
use talea_core::server::meter::BudgetMeter;
use talea_core::setup::OnOverrun;
use talea_core::{Monotonic, Span, Work, mutate};
use talea_os::pi_mutex::{PiMutex, PiMutexGuard};
use talea_os::task_clock::TaskClock;
use talea_os::{ApplyError, Thread, clock, proc, sched};
use talea_proto::message::Overruns;

/// Allowance below which a thread counts as exhausted: arming the clock costs as much.
const MIN_ALLOWANCE: Work = Work::from_ns(20_000);
/// Cost of a throttle and its end, charged to the thread.
const THROTTLE_COST: Work = Work::from_ns(50_000);
/// Smallest budget that is enforced per period: below it, several periods are enforced as one.
const MIN_BUDGET_NS: u64 = 100_000;
/// Longest period that is enforced: sums with times of the clock do not overflow.
const MAX_PERIOD_NS: u64 = 1 << 56;
/// Delay before a policy that the kernel has refused is set again.
const RETRY_AFTER: Span = Span::from_ns(1_000_000_000);

/// A thread with a limit.
#[derive(Debug)]
pub(crate) struct LimitedThread {
    id: ThreadId,
    state: PiMutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    thread: Arc<Thread>,
    clock: Option<TaskClock>,
    meter: BudgetMeter,
    limit: Limit,
    /// Policy of the grant.
    granted: Option<sched::Attr>,
    /// Policy that the thread had when it was throttled: the granted one, or a lower priority.
    paused: Option<sched::Attr>,
    /// Reading of the clock when the thread last began to run under its limit.
    counted: Work,
    /// Policy of the thread while it is throttled.
    ordinary: sched::Attr,
    phase: Phase,
    cpu: Option<u32>,
    overruns: Overruns,
    /// CPU time consumed of the budget at the last overrun.
    last_consumed: Work,
}

/// Remainder of a limit that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// User of the grant.
    pub(super) uid: u32,
    /// Consumed parts of its budget, with the times at which they would have been refilled.
    pub(super) outstanding: Vec<(Monotonic, Work)>,
    /// Attributes that the enforcer has set in place of the granted ones and not taken back.
    pub(super) ordinary: Option<sched::Attr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Running,
    Throttled { until: Monotonic },
    Ended,
}

/// Action of the enforcer after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for the next event.
    Wait,
    /// Call [`LimitedThread::refill`] at this time.
    RefillAt(Monotonic),
    /// Notify the daemon: the thread was demoted.
    Demoted,
    /// End: no further event concerns the thread.
    End,
}

/// Returns the budget and the period to enforce: tiny ones are multiplied, so that the enforcement
/// costs less than the budget.
fn enforceable(limit: &Limit) -> (Work, Span) {
    let factor = MIN_BUDGET_NS.div_ceil(limit.budget.as_ns().max(1)).max(1);
    let period = limit.period.as_ns().saturating_mul(factor).min(MAX_PERIOD_NS);
    let budget = limit.budget.as_ns().saturating_mul(factor).min(period);
    (Work::from_ns(budget), Span::from_ns(period))
}

/// Whether a thread has its granted policy, or a FIFO or RR policy of a lower priority: an
/// unprivileged thread may lower its own.
fn is_granted(has: &sched::Attr, granted: &sched::Attr) -> bool {
    has.reset_on_fork
        && has.policy.is_realtime()
        && !has.policy.is_deadline()
        && has.policy.priority() <= granted.policy.priority()
}

impl LimitedThread {
    pub(super) fn new(
        id: ThreadId,
        thread: Arc<Thread>,
        nice: i32,
        limit: Limit,
        now: Monotonic,
    ) -> io::Result<LimitedThread> {
        let clock = TaskClock::open(thread.tid())?;
        if !thread.is_alive() {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()));
        }
        let (budget, period) = enforceable(&limit);
        let meter = BudgetMeter::new(budget, period, now);
        let state = State {
            thread,
            clock: Some(clock),
            meter,
            limit,
            granted: None,
            paused: None,
            counted: Work::ZERO,
            ordinary: sched::Attr::grant(sched::Policy::Other { nice }),
            phase: Phase::New,
            cpu: None,
            overruns: Overruns::default(),
            last_consumed: Work::ZERO,
        };
        Ok(LimitedThread { id, state: PiMutex::new(state) })
    }

    /// Returns the budget that is enforced.
    pub(super) fn budget(&self) -> Work {
        enforceable(&self.state.lock().limit).0
    }

    /// Charges what the user has consumed of earlier limits.
    pub(super) fn charge_spent(&self, now: Monotonic, spent: Work) {
        self.state.lock().meter.charge_spent(now, spent);
    }

    /// Continues the count of the limit that this one replaces.
    pub(crate) fn continue_count(&self, overruns: Overruns) {
        self.state.lock().overruns = Overruns { is_throttled: false, ..overruns };
    }

    /// Whether the limit has ended, so that no policy may be applied.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().phase == Phase::Ended
    }

    pub(crate) fn id(&self) -> ThreadId {
        self.id
    }

    /// Returns the CPU whose enforcer has the thread, if any.
    pub(crate) fn cpu(&self) -> Option<u32> {
        self.state.lock().cpu
    }

    /// Returns the overruns.
    pub(crate) fn overruns(&self) -> Overruns {
        let state = self.state.lock();
        let is_throttled = matches!(state.phase, Phase::Throttled { .. });
        Overruns { is_throttled, ..state.overruns }
    }

    /// Returns the CPU time that the thread had consumed of its budget at the last overrun.
    pub(crate) fn last_consumed(&self) -> Work {
        self.state.lock().last_consumed
    }

    /// Calls `read` while the enforcer cannot change the policy. The argument is the ordinary
    /// attributes of a throttled thread, and `None` for any other thread.
    pub(crate) fn with_throttled<T>(&self, read: impl FnOnce(Option<&sched::Attr>) -> T) -> T {
        let state = self.state.lock();
        let is_throttled = matches!(state.phase, Phase::Throttled { .. });
        read(is_throttled.then_some(&state.ordinary))
    }

    /// Applies a policy of the grant by `apply`, unless the thread is throttled: then `throttle`
    /// applies its ordinary attributes. Returns the result, and the time of the refill of a
    /// throttled thread.
    pub(crate) fn apply<T, E>(
        &self,
        attr: &sched::Attr,
        throttle: impl FnOnce(&sched::Attr) -> Result<T, E>,
        apply: impl FnOnce() -> Result<T, E>,
    ) -> (Result<T, E>, Option<Monotonic>) {
        let mut state = self.state.lock();
        let now = clock::now();
        if state.phase == Phase::New {
            state.start(now);
        }
        let until = match state.phase {
            Phase::Throttled { until } => Some(until),
            _ => None,
        };
        let result = if until.is_some() { throttle(&state.ordinary) } else { apply() };
        if result.is_ok() {
            state.granted = Some(*attr);
            state.paused = None;
        }
        (result, until)
    }

    /// Starts the enforcement for a thread that has a grant already; returns the time of its refill
    /// if it starts throttled.
    pub(crate) fn adopt(&self, granted: &sched::Attr) -> Option<Monotonic> {
        let mut state = self.state.lock();
        state.granted = Some(*granted);
        state.start(clock::now());
        if let Phase::Throttled { until } = state.phase {
            state.set_ordinary();
            return Some(until);
        }
        // A thread that has ended needs no policy; another error is repeated by the broker.
        let _ = state.set_granted();
        None
    }

    /// Ends the limit. With `restore`, a throttled thread gets its policy back.
    pub(super) fn end(&self, now: Monotonic, restore: bool) -> Ended {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Throttled { .. }) {
            // CPU time at ordinary priority does not count.
            state.meter.resumed(now);
        } else {
            state.replay();
        }
        if state.phase == Phase::Running {
            state.charge_unrecorded(now);
        }
        let outstanding = match state.phase {
            Phase::New => Vec::new(),
            _ => state.meter.outstanding(now).collect(),
        };
        if restore && matches!(state.phase, Phase::Throttled { .. }) {
            // A thread that has ended needs no policy; another error is repeated by the broker.
            let _ = state.set_granted();
        }
        // The enforcer itself ends a limit with ordinary attributes only.
        let is_ordinary = matches!(state.phase, Phase::Throttled { .. } | Phase::Ended);
        let ordinary = (is_ordinary && !restore).then_some(state.ordinary);
        state.stop();
        Ended { uid: state.limit.uid, outstanding, ordinary }
    }

    pub(super) fn lock(&self) -> PiMutexGuard<'_, State> {
        self.state.lock()
    }

    /// Handles the clock, in the enforcer of `cpu`: the budget may be exhausted, or the ring of
    /// records is half full.
    pub(super) fn clock_fired(&self, cpu: u32) -> Next {
        let mut state = self.state.lock();
        if state.cpu != Some(cpu) {
            return Next::Wait;
        }
        state.replay();
        let now = clock::now();
        // An ended event stays readable: it must leave the set in every phase.
        if state.clock.as_ref().is_none_or(TaskClock::has_ended) {
            state.meter.advance(now);
            return state.clock_ended();
        }
        if state.phase != Phase::Running || state.arm(now) {
            Next::Wait
        } else {
            state.exhausted(now)
        }
    }

    /// Gives a throttled thread its policy back, in the enforcer of `cpu`.
    pub(super) fn refill(&self, cpu: u32) -> Next {
        let mut state = self.state.lock();
        let Phase::Throttled { until } = state.phase else { return Next::Wait };
        let now = clock::now();
        if state.cpu != Some(cpu) {
            Next::Wait
        } else if now < until {
            Next::RefillAt(until)
        } else {
            state.refill(now)
        }
    }
}

impl State {
    pub(super) fn set_cpu(&mut self, cpu: Option<u32>) {
        self.cpu = cpu;
    }

    pub(super) fn cpu(&self) -> Option<u32> {
        self.cpu
    }

    pub(super) fn clock(&self) -> Option<&TaskClock> {
        self.clock.as_ref()
    }

    /// Starts the limit: the thread runs, or is throttled if earlier limits have exhausted the
    /// budget.
    fn start(&mut self, now: Monotonic) {
        self.meter.resumed(now);
        self.count();
        self.phase = if self.arm(now) {
            Phase::Running
        } else {
            Phase::Throttled { until: self.meter.resume_at(now, MIN_ALLOWANCE) }
        };
    }

    /// Replays the switches that the kernel has recorded.
    fn replay(&mut self) {
        let State { clock: Some(clock), meter, .. } = self else { return };
        let delay = clock.take_waiting_time();
        meter.add_delay(delay);
        if clock.drain(|at, switch| meter.replay(at, switch)) {
            meter.records_lost();
        }
    }

    /// Stores the current reading of the clock.
    fn count(&mut self) {
        if let Some(Ok(counted)) = self.clock.as_ref().map(TaskClock::consumed) {
            self.counted = counted;
        }
    }

    /// Charges the CPU time that no record contains, because the thread has run since its limit
    /// began.
    fn charge_unrecorded(&mut self, now: Monotonic) {
        let Some(Ok(counted)) = self.clock.as_ref().map(TaskClock::consumed) else { return };
        let consumed = counted.checked_sub(self.counted).unwrap_or(Work::ZERO);
        self.meter.charge_unrecorded(now, consumed);
    }

    /// Arms the clock for the allowance; returns whether there is one.
    fn arm(&mut self, now: Monotonic) -> bool {
        let allowance = self.meter.allowance(now);
        let (budget, _) = enforceable(&self.limit);
        // Beyond the budget, its refills have to be replayed.
        let time = allowance.min(budget.max(MIN_ALLOWANCE));
        allowance >= MIN_ALLOWANCE
            && self.clock.as_ref().is_some_and(|clock| clock.arm(time).is_ok())
    }

    fn exhausted(&mut self, now: Monotonic) -> Next {
        self.overruns.count += 1;
        self.overruns.last_ns = now.as_ns();
        // Of a copy: for this meter the thread has not gone to sleep.
        let mut meter = self.meter.clone();
        let outstanding = meter.outstanding(now).map(|(_, consumed)| consumed);
        self.last_consumed = outstanding.fold(Work::ZERO, |sum, consumed| sum + consumed);
        match self.limit.on_overrun {
            OnOverrun::Notify => {
                let (budget, period) = enforceable(&self.limit);
                self.meter = BudgetMeter::new(budget, period, now);
                self.arm(now);
                Next::Wait
            }
            OnOverrun::Throttle => {
                self.meter.charge_enforcement(THROTTLE_COST);
                let until = self.meter.resume_at(now, MIN_ALLOWANCE);
                if mutate!("limit-throttle", self.set_ordinary(), true) {
                    self.phase = Phase::Throttled { until };
                    Next::RefillAt(until)
                } else {
                    self.stop()
                }
            }
            OnOverrun::Demote => {
                self.set_ordinary();
                self.stop();
                Next::Demoted
            }
        }
    }

    /// Replaces the granted policy of the thread by the ordinary one; returns whether the thread
    /// lives. A priority above the granted one, or another class, stays, because an administrator
    /// has set it. The thread itself has set a lower priority, which is kept for the refill.
    fn set_ordinary(&mut self) -> bool {
        let Some(granted) = self.granted else { return true };
        let done = match self.thread.snapshot() {
            Ok(now) if is_granted(&now.attr, &granted) => {
                self.paused = Some(now.attr);
                self.thread.apply(&self.ordinary, None)
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        // After the policy: the kernel may make this thread wait for a lock of the limited one.
        if let Some(clock) = &self.clock {
            // A clock that goes on costs time, and its records are dropped.
            let _ = clock.stop();
        }
        !matches!(done, Err(ApplyError::Gone))
    }

    /// Gives the thread its policy back, unless an administrator has set another one.
    fn set_granted(&mut self) -> Result<(), ApplyError> {
        let Some(attr) = self.paused.take().or(self.granted) else { return Ok(()) };
        match self.thread.snapshot()?.attr.policy {
            sched::Policy::Other { .. } => self.thread.apply(&attr, None),
            _ => Ok(()),
        }
    }

    fn refill(&mut self, now: Monotonic) -> Next {
        if let Some(clock) = &mut self.clock {
            clock.take_waiting_time();
            clock.drain(|_, _| ());
        }
        self.meter.resumed(now);
        let resume = self.meter.resume_at(now, MIN_ALLOWANCE);
        if resume > now {
            self.phase = Phase::Throttled { until: resume };
            return Next::RefillAt(resume);
        }
        // As at an apply: every user id must be that of the grant, unless it is a grant of root.
        let owner = Some(self.limit.uid).filter(|&uid| uid != 0);
        match self.thread.uids_now() {
            Ok(uids)
                if owner.is_none_or(|uid| convert::uids_of(uids).other_than(uid).is_none()) => {}
            Ok(_) => {
                self.stop();
                return Next::Demoted;
            }
            Err(_) => return self.stop(),
        }
        self.count();
        // Without an armed clock, the thread would be unlimited.
        let resumed = self.arm(now).then(|| self.set_granted());
        match resumed {
            Some(Ok(())) => {
                self.phase = Phase::Running;
                Next::Wait
            }
            Some(Err(ApplyError::Gone)) => self.stop(),
            Some(Err(_)) | None => {
                let until = now.saturating_add(RETRY_AFTER);
                self.phase = Phase::Throttled { until };
                Next::RefillAt(until)
            }
        }
    }

    /// Handles the end of the clock: the thread ends, or its CPU time is not known any more.
    fn clock_ended(&mut self) -> Next {
        self.clock = None;
        let is_exiting = proc::stat(self.thread.tid()).map_or(true, |stat| stat.is_exiting());
        if self.phase == Phase::Ended || is_exiting || !self.thread.is_alive() {
            return self.stop();
        }
        self.set_ordinary();
        self.stop();
        Next::Demoted
    }

    fn stop(&mut self) -> Next {
        self.phase = Phase::Ended;
        self.clock = None;
        Next::End
    }
}
