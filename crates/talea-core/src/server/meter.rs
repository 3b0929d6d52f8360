//! Budget meter of a thread that the kernel schedules: decides when the budget of the thread is
//! exhausted.
//!
//! Model: the kernel records when the thread gets a CPU and when it loses it. The meter replays
//! these records on the [sporadic server](super::ServerKind::Sporadic) of the declared runtime Q
//! and period T. Let a thread run only while its meter has an allowance. The thread then interferes
//! with lower priorities no more than the periodic task (Q, T) that the admission test has assumed.
//! This holds although the thread waits for no period (Sprunt, Sha and Lehoczky, Real-Time Systems
//! 1(1), 1989).
//!
//! *Activations.* The server needs the time at which the thread became ready. A record contains the
//! time at which the thread got the CPU, which is later by its waiting time. The caller passes the
//! total waiting time since the last replay ([`BudgetMeter::add_delay`]); the activations consume
//! this time in their order. Otherwise the meter would refill a thread late that higher priorities
//! have delayed. The thread would be throttled although it has kept its declaration.
//!
//! *Debt.* Enforcement is late by some microseconds. The consumption in this time is charged to the
//! next refills of the thread, but at most [`MAX_DEBT`] or Q. The limit is necessary because an
//! interval in which a hypervisor ran another guest counts as consumption, although the thread did
//! not compute.

use super::{Reservation, Server, ServerKind, sporadic::Sporadic};
use crate::{Monotonic, Span, Time, Work, mutate};

/// Maximum debt of a thread whose budget is smaller.
pub const MAX_DEBT: Work = Work::from_ns(2_000_000);

/// Number of steps per period in which [`BudgetMeter::resume_at`] searches.
const SEARCH_STEPS: u64 = 8;

/// Event of a thread in a record of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The thread got a CPU.
    In,
    /// The thread lost its CPU to another thread, and is still ready.
    Preempted,
    /// The thread waits or sleeps.
    Asleep,
    /// The thread runs on a CPU that it got before this record.
    Runs,
}

/// State of the thread after the last replayed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running {
        since: Time,
    },
    Ready {
        since: Time,
    },
    Asleep {
        since: Time,
    },
    /// Not known: no record since `since`.
    Unknown {
        since: Time,
    },
}

/// Budget meter of one thread; see the [module](self).
#[derive(Clone, Debug)]
pub struct BudgetMeter {
    server: Sporadic,
    budget: Work,
    period: Span,
    state: State,
    /// Time of the last record.
    last: Time,
    debt: Work,
    delay: Span,
}

impl BudgetMeter {
    /// Creates a meter with a full budget at `now`. The thread counts as asleep until its first
    /// record.
    ///
    /// # Panics
    /// If `budget` is zero or longer than `period`.
    pub fn new(budget: Work, period: Span, now: Monotonic) -> BudgetMeter {
        assert!(
            !budget.is_zero() && budget.as_ns() <= period.as_ns(),
            "a budget of {budget} every {period}"
        );
        BudgetMeter {
            server: Sporadic::new(&Reservation::new(ServerKind::Sporadic, budget, period)),
            budget,
            period,
            state: State::Asleep { since: time(now) },
            last: time(now),
            debt: Work::ZERO,
            delay: Span::ZERO,
        }
    }

    /// Adds waiting time for the next activations: the time in which the thread was ready and
    /// another thread had its CPU.
    pub fn add_delay(&mut self, delay: Span) {
        self.delay += delay;
    }

    /// Replays one record. A record that is older than the last one counts as simultaneous.
    pub fn replay(&mut self, at: Monotonic, switch: Switch) {
        let at = time(at).max(self.last);
        self.advance(Monotonic::from_ns(at.as_ns()));
        self.last = at;
        self.state = match (switch, self.state) {
            (Switch::In, State::Asleep { since }) => {
                let delay = self.delay.min(at.since(since));
                self.delay = Span::from_ns(self.delay.as_ns() - delay.as_ns());
                let ready = Time::from_ns(at.as_ns() - delay.as_ns());
                self.server.wake(mutate!("core-meter-delay", ready, at));
                State::Running { since: at }
            }
            (Switch::In, State::Unknown { .. }) => {
                self.server.wake(at);
                State::Running { since: at }
            }
            (Switch::In, State::Ready { since }) => {
                // The waiting time of a ready thread belongs to no activation.
                let waited = at.since(since).as_ns();
                self.delay = Span::from_ns(self.delay.as_ns().saturating_sub(waited));
                State::Running { since: at }
            }
            (Switch::In | Switch::Runs, State::Running { .. }) => State::Running { since: at },
            (Switch::Asleep, State::Asleep { since }) => State::Asleep { since },
            (out, State::Asleep { since } | State::Ready { since } | State::Unknown { since }) => {
                self.ran_unrecorded(since, at);
                self.after(out, at)
            }
            (out, State::Running { .. }) => self.after(out, at),
        };
    }

    /// Returns the state after a record that shows that the thread had a CPU until then.
    fn after(&mut self, switch: Switch, at: Time) -> State {
        match switch {
            Switch::In | Switch::Runs => State::Running { since: at },
            Switch::Preempted => State::Ready { since: at },
            Switch::Asleep => {
                self.server.idle(at);
                State::Asleep { since: at }
            }
        }
    }

    /// Charges a time in which the thread had a CPU although no record says so.
    fn ran_unrecorded(&mut self, from: Time, to: Time) {
        if matches!(self.state, State::Asleep { .. } | State::Unknown { .. }) {
            self.server.wake(from);
        }
        consume(&mut self.server, &mut self.debt, from, to);
        self.debt = self.debt.min(self.budget.max(MAX_DEBT));
    }

    /// Notifies that records are missing: from now on, the thread may have a CPU.
    pub fn records_lost(&mut self) {
        if !matches!(self.state, State::Running { .. }) {
            self.state = State::Unknown { since: self.last };
        }
    }

    /// Charges the consumption of the thread until `now`.
    pub fn advance(&mut self, now: Monotonic) {
        let now = time(now);
        if let State::Running { since } = &mut self.state {
            let now = now.max(*since);
            let from = core::mem::replace(since, now);
            consume(&mut self.server, &mut self.debt, from, now);
            self.debt = self.debt.min(self.budget.max(MAX_DEBT));
        }
    }

    /// Charges CPU time to a thread that has not been ready yet: at most its budget.
    pub fn charge_spent(&mut self, now: Monotonic, spent: Work) {
        let now = time(now);
        self.server.wake(now);
        if refill(&mut self.server, now) {
            self.server.charge(now, spent.min(self.server.budget(now)));
        }
        self.server.idle(now);
    }

    /// Charges CPU time that the thread has consumed since it was [`resumed`](Self::resumed), if
    /// there was no record since.
    pub fn charge_unrecorded(&mut self, now: Monotonic, consumed: Work) {
        if let State::Unknown { since } = self.state
            && !consumed.is_zero()
        {
            let from = time(now).as_ns().saturating_sub(consumed.as_ns());
            self.ran_unrecorded(Time::from_ns(from).max(since), time(now));
            self.state = State::Running { since: time(now) };
        }
    }

    /// Charges `cost`, the time of one enforcement, to the thread. So a thread that exhausts a tiny
    /// budget again and again pays for the time that its enforcement takes from other threads.
    pub fn charge_enforcement(&mut self, cost: Work) {
        self.debt += cost;
    }

    /// Notifies that the thread was throttled until `now`. The meter does not replay the records of
    /// that time.
    pub fn resumed(&mut self, now: Monotonic) {
        self.last = self.last.max(time(now));
        self.state = State::Unknown { since: self.last };
        self.delay = Span::ZERO;
    }

    /// Returns the CPU time that the thread may consume if it runs from `now` on without a pause.
    /// The result is at most twice the budget, and zero if the budget is exhausted.
    pub fn allowance(&mut self, now: Monotonic) -> Work {
        self.advance(now);
        self.allowance_at(time(now))
    }

    fn allowance_at(&self, now: Time) -> Work {
        let mut server = self.server.clone();
        if matches!(self.state, State::Asleep { .. } | State::Unknown { .. }) {
            server.wake(now);
        }
        let most = self.budget + self.budget;
        let (mut at, mut sum) = (now, Work::ZERO);
        while sum < most && refill(&mut server, at) {
            let budget = server.budget(at);
            at += Span::from_ns(budget.as_ns());
            sum += budget;
            server.charge(at, budget);
        }
        sum.min(most)
    }

    /// Returns the times and amounts of the refills after `now`: the consumption that is not
    /// refilled yet. The thread counts as asleep from `now` on.
    pub fn outstanding(&mut self, now: Monotonic) -> impl Iterator<Item = (Monotonic, Work)> + '_ {
        self.advance(now);
        let now = time(now);
        if !matches!(self.state, State::Asleep { .. }) {
            self.server.idle(now);
            self.state = State::Asleep { since: now };
            self.last = self.last.max(now);
        }
        self.server.refills_after(now).map(|(at, work)| (Monotonic::from_ns(at.as_ns()), work))
    }

    /// Pays the debt of an exhausted thread from its next refills. Returns the earliest time at
    /// which the thread may run again for at least `least` or its whole budget. The times are on a
    /// grid of an eighth of the period.
    pub fn resume_at(&mut self, now: Monotonic, least: Work) -> Monotonic {
        self.advance(now);
        let least = least.min(self.budget);
        let mut at = time(now);
        while !self.debt.is_zero() || !refill(&mut self.server, at) {
            if refill(&mut self.server, at) {
                let paid = self.server.budget(at).min(self.debt);
                self.debt = self.debt.checked_sub(paid).expect("no more than the debt");
                at += Span::from_ns(paid.as_ns());
                self.server.charge(at, mutate!("core-meter-debt", paid, Work::from_ns(1)));
            } else if let Some(next) = self.server.next_refill(at) {
                at = at.max(next);
            }
        }
        let step = Span::from_ns((self.period.as_ns() / SEARCH_STEPS).max(1));
        // A sporadic server has its whole budget one period after its last use.
        for _ in 0..2 * SEARCH_STEPS {
            if self.allowance_at(at) >= least {
                break;
            }
            at += step;
        }
        // Until then, the thread has consumed what is refilled later.
        mutate!("core-meter-hold", self.server.hold(time(now)));
        Monotonic::from_ns(at.as_ns())
    }
}

fn time(at: Monotonic) -> Time {
    Time::from_ns(at.as_ns())
}

/// Makes a refill usable that is due. Returns whether the server has budget.
fn refill(server: &mut Sporadic, now: Time) -> bool {
    if server.budget(now).is_zero() && server.next_refill(now).is_some_and(|at| at <= now) {
        server.refill(now);
    }
    !server.budget(now).is_zero()
}

/// Charges the time from `from` to `to` to the server, and the excess over its budget to `debt`.
fn consume(server: &mut Sporadic, debt: &mut Work, from: Time, to: Time) {
    let mut at = from;
    while at < to {
        let left = to.since(at);
        if refill(server, at) {
            let part = Span::from_ns(server.budget(at).as_ns()).min(left);
            at += part;
            server.charge(at, Work::from_ns(part.as_ns()));
        } else {
            let next = server.next_refill(at).map_or(left, |next| next.since(at)).min(left);
            *debt += Work::from_ns(next.as_ns());
            at += next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000;

    fn at(ns: u64) -> Monotonic {
        Monotonic::from_ns(ns)
    }

    fn meter(budget_ns: u64, period_ns: u64) -> BudgetMeter {
        BudgetMeter::new(Work::from_ns(budget_ns), Span::from_ns(period_ns), at(0))
    }

    /// Runs a thread on `bursts`, (start, work), as far as its meter allows. The enforcer is late
    /// by `late`. Returns the intervals in which the thread ran until `end`.
    fn enforced(
        meter: &mut BudgetMeter,
        bursts: &[(u64, u64)],
        late: u64,
        end: u64,
    ) -> Vec<(u64, u64)> {
        let (mut ran, mut now) = (Vec::new(), 0);
        for &(from, mut work) in bursts {
            now = now.max(from);
            while work > 0 && now < end {
                meter.replay(at(now), Switch::In);
                let allowed = meter.allowance(at(now)).as_ns();
                let runs = work.min(allowed + late);
                ran.push((now, now + runs));
                now += runs;
                work -= runs;
                if work > 0 {
                    meter.replay(at(now), Switch::Preempted);
                    now = meter.resume_at(at(now), Work::from_ns(1)).as_ns();
                    meter.resumed(at(now));
                } else {
                    meter.replay(at(now), Switch::Asleep);
                }
            }
        }
        ran
    }

    fn consumed(ran: &[(u64, u64)], from: u64, to: u64) -> u64 {
        ran.iter().map(|&(a, b)| b.min(to).saturating_sub(a.max(from))).sum()
    }

    #[test]
    fn a_spinning_thread_gets_its_budget_at_the_start_of_each_period() {
        let ran = enforced(&mut meter(MS, 10 * MS), &[(0, u64::MAX)], 0, 100 * MS);
        let expected: Vec<_> = (0..10).map(|k| (k * 10 * MS, k * 10 * MS + MS)).collect();
        assert_eq!(ran, expected);
    }

    #[test]
    fn what_a_late_enforcer_lets_through_is_repaid() {
        let (late, end) = (60_000, 10_000 * MS);
        for (budget, period) in
            [(MS, 100 * MS), (20_000, MS), (3 * MS, 10 * MS), (200_000, 1_000_000)]
        {
            let ran = enforced(&mut meter(budget, period), &[(0, u64::MAX)], late, end);
            let (sum, declared) = (consumed(&ran, 0, end), end / period * budget);
            assert!(sum <= declared + budget + late, "{sum} of {declared}");
            assert!(sum >= declared / 10 * 8, "{sum} of {declared}");
        }
    }

    #[test]
    fn no_pattern_of_bursts_interferes_more_than_the_periodic_task() {
        let mut rng = Rng::new(7);
        for _ in 0..300 {
            let period = 1 + rng.below(1000);
            let budget = 1 + rng.below(period);
            let mut bursts = Vec::new();
            let mut from = 0;
            for _ in 0..20 {
                from += rng.below(2 * period);
                bursts.push((from, 1 + rng.below(2 * budget)));
            }
            let ran = enforced(&mut meter(budget, period), &bursts, 0, u64::MAX);
            for (i, &(from, _)) in ran.iter().enumerate() {
                for &(_, to) in &ran[i..] {
                    let (most, used) =
                        (budget * (to - from).div_ceil(period), consumed(&ran, from, to));
                    assert!(used <= most, "{used} of {most} in {from}..{to} ({budget}/{period})");
                }
            }
        }
    }

    /// Tests a thread that keeps its declaration, below a higher priority that delays the thread.
    /// Its jobs are at least a period apart, no longer than the budget, and complete within the
    /// period.
    #[test]
    fn a_thread_that_keeps_its_declaration_is_never_exhausted() {
        let mut rng = Rng::new(11);
        let mut jobs = 0;
        for _ in 0..300 {
            let period = 20 + rng.below(1000);
            let budget = 1 + rng.below(period / 2);
            let mut meter = meter(budget, period);
            let (mut release, mut now) = (rng.below(period), 0);
            meter.replay(at(0), Switch::Asleep);
            for _ in 0..30 {
                let deadline = release + period;
                let mut work = 1 + rng.below(budget);
                let mut is_first = true;
                now = now.max(release);
                while work > 0 {
                    // Higher priorities use part of the slack.
                    let wait = rng.below(deadline - now - work + 1);
                    if is_first {
                        meter.add_delay(Span::from_ns(now + wait - release));
                    }
                    is_first = false;
                    now += wait;
                    let runs = 1 + rng.below(work);
                    meter.replay(at(now), Switch::In);
                    let allowed = meter.allowance(at(now)).as_ns();
                    assert!(allowed >= runs, "{allowed} for {runs} ({budget}/{period})");
                    now += runs;
                    work -= runs;
                    meter
                        .replay(at(now), if work > 0 { Switch::Preempted } else { Switch::Asleep });
                }
                jobs += 1;
                release += period + rng.below(3) * rng.below(period);
            }
        }
        assert_eq!(jobs, 9000);
    }

    #[test]
    fn a_stall_of_the_computer_costs_a_bounded_part() {
        let mut meter = meter(MS, 100 * MS);
        meter.replay(at(0), Switch::In);
        // One second in which a hypervisor ran another machine.
        let after = at(1000 * MS);
        meter.advance(after);
        assert!(meter.resume_at(after, Work::from_ns(MS)) <= after + Span::from_ns(400 * MS));
    }

    #[test]
    fn a_thread_that_runs_without_a_record_is_charged() {
        let mut meter = meter(4 * MS, 10 * MS);
        meter.resumed(at(0));
        meter.replay(at(3 * MS), Switch::Runs);
        assert_eq!(meter.allowance(at(3 * MS)), Work::from_ns(MS));
        meter.replay(at(3 * MS), Switch::Preempted);
        meter.records_lost();
        meter.replay(at(4 * MS), Switch::Asleep);
        assert_eq!(meter.allowance(at(5 * MS)), Work::ZERO);
        // A record that is older than the last one.
        meter.replay(at(MS), Switch::In);
    }

    #[test]
    fn waiting_within_a_job_is_no_delay_of_the_next_activation() {
        let mut meter = meter(MS, 10 * MS);
        meter.replay(at(0), Switch::In);
        meter.replay(at(1), Switch::Preempted);
        meter.add_delay(Span::from_ns(9 * MS - 1));
        meter.replay(at(9 * MS), Switch::In);
        meter.replay(at(10 * MS - 1), Switch::Asleep);
        meter.replay(at(18 * MS), Switch::In);
        // The budget of this activation returns ten milliseconds after 18 ms.
        meter.replay(at(19 * MS), Switch::Preempted);
        assert_eq!(meter.allowance(at(20 * MS)), Work::ZERO);
    }

    #[test]
    fn spent_budget_is_missing_for_a_period() {
        let mut meter = meter(4 * MS, 10 * MS);
        meter.charge_spent(at(MS), Work::from_ns(3 * MS));
        assert_eq!(meter.allowance(at(2 * MS)), Work::from_ns(MS));
        assert_eq!(
            meter.outstanding(at(2 * MS)).next(),
            Some((at(11 * MS), Work::from_ns(3 * MS)))
        );
        assert_eq!(meter.allowance(at(12 * MS)), Work::from_ns(4 * MS));
    }

    #[test]
    fn consumed_budget_is_outstanding_until_its_refill() {
        let mut meter = meter(4 * MS, 10 * MS);
        meter.replay(at(MS), Switch::In);
        meter.replay(at(2 * MS), Switch::Asleep);
        meter.replay(at(5 * MS), Switch::In);
        let outstanding: Vec<_> = meter.outstanding(at(7 * MS)).collect();
        let expected = [(at(11 * MS), Work::from_ns(MS)), (at(15 * MS), Work::from_ns(2 * MS))];
        assert_eq!(outstanding, expected);
        assert_eq!(meter.outstanding(at(12 * MS)).count(), 1);
    }

    #[test]
    fn a_throttled_thread_has_its_consumption_outstanding() {
        let least = Work::from_ns(20_000);
        let all = [(at(11 * MS), Work::from_ns(4 * MS))];
        // Exhausted, and throttled since.
        let mut exhausted = meter(4 * MS, 10 * MS);
        exhausted.replay(at(MS), Switch::In);
        assert_eq!(exhausted.resume_at(at(5 * MS), least), at(11 * MS));
        exhausted.resumed(at(6 * MS));
        assert_eq!(exhausted.outstanding(at(6 * MS)).collect::<Vec<_>>(), all);
        // Throttled from the start: the user has spent the budget.
        let mut spent = meter(4 * MS, 10 * MS);
        spent.charge_spent(at(MS), Work::from_ns(4 * MS));
        spent.resumed(at(MS));
        assert_eq!(spent.resume_at(at(MS), least), at(11 * MS));
        assert_eq!(spent.outstanding(at(6 * MS)).collect::<Vec<_>>(), all);
        assert_eq!(spent.resume_at(at(11 * MS), least), at(11 * MS));
    }

    #[test]
    fn an_enforcement_that_costs_more_than_the_budget_is_paid_by_the_thread() {
        let mut meter = meter(10_000, 100_000);
        meter.replay(at(0), Switch::In);
        meter.advance(at(10_000));
        meter.charge_enforcement(Work::from_ns(50_000));
        let resumed = meter.resume_at(at(10_000), Work::from_ns(10_000)).as_ns();
        assert!((500_000..=800_000).contains(&resumed), "{resumed}");
    }
}
