//! When a dispatcher has to be awake again.
//!
//! The CPU whose budget is used up looks after that itself, because a dispatcher finds the clock of a worker on its own CPU
//! standing still, and stops it at once. Everything else belongs to whoever is awake first: a dispatcher leaves it alone
//! while another one is going to be awake by then.

use super::{LEAST, Root};
use crate::mechanism::Mechanism;
use talea_core::machine::Cpu;
use talea_core::{Span, Time, Work};

/// A worker that is about to use up its budget is left alone for at least this long, and for longer while it gets nothing
/// done in it: a timer that is too short fires before the worker has its CPU.
const SHORTEST: Span = Span::from_ns(5_000);
/// But never for longer than this: by so much a budget may be overrun. More than any way to a worker takes.
const LONGEST: Span = Span::from_ns(320_000);

/// A dispatcher that sleeps until a budget is used up is awake a little after its alarm, and the worker used the budget
/// meanwhile. So it sets its alarm earlier by what it was late before, and no earlier than lets a look that comes too soon find
/// next to nothing left ([`LEAST`]). It follows by such steps: what one disturbance does is forgotten soon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lead(Span);

impl Lead {
    pub(super) const NONE: Lead = Lead(Span::ZERO);
    /// By so much it follows at most.
    const STEP: u64 = 250;
    /// So much may be left when the dispatcher looks.
    const LEFT: u64 = LEAST.as_ns() / 2;
    /// No timer on a machine at rest is later than this.
    const MOST: u64 = 30_000;

    /// A look that the alarm caused found so much left of the budget, or so much used beyond it.
    fn found(&mut self, left: u64, beyond: u64) {
        let (more, less) = (beyond.min(Lead::STEP), left.saturating_sub(Lead::LEFT).min(Lead::STEP));
        self.0 = Span::from_ns((self.0.as_ns() + more).saturating_sub(less).min(Lead::MOST));
    }
}

/// How a dispatcher sleeps while a budget is used on its CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nap {
    /// What the budget had left when the nap began; none: nothing is metered.
    before: Option<Span>,
    /// The shortest sleep.
    least: Span,
    /// When it wants to look again.
    alarm: Time,
    /// It sleeps for longer than what it wants to sleep for: how late it is then says nothing about alarms.
    is_stretched: bool,
}

impl Nap {
    pub(super) const NONE: Nap =
        Nap { before: None, least: SHORTEST, alarm: Time::NEVER, is_stretched: false };
}

impl<M: Mechanism> Root<M> {
    /// The dispatcher of `cpu` is so late at least when it sleeps until a time.
    pub(crate) fn expect_to_be_late(&mut self, cpu: usize, late: Span) {
        self.leads[cpu] = Lead(late.min(Span::from_ns(Lead::MOST)));
    }

    /// So much was consumed on `cpu` since its dispatcher fell asleep.
    pub(super) fn learn(&mut self, cpu: usize, work: Work) {
        let nap = self.naps[cpu];
        if let Some(before) = nap.before
            && self.now >= nap.alarm
            && !nap.is_stretched
        {
            let (before, work) = (before.as_ns(), work.as_ns());
            self.leads[cpu].found(before.saturating_sub(work), work.saturating_sub(before));
        }
    }

    /// When something happens by itself that is not the end of a budget, and that nobody else is awake for.
    pub(super) fn general(&self) -> Time {
        let first = |of: &talea_core::heap::Heap| of.first().map_or(Time::NEVER, |(at, _)| Time::from_ns(at));
        let change = self.changes.get(self.changed).map_or(Time::NEVER, |&(at, _)| at);
        self.machine.next_timer().min(first(&self.alarms)).min(first(&self.wakes)).min(change)
    }

    /// When the dispatcher of `cpu`, which has just stepped and is about to sleep at `clock`, has to be awake again. `ring`
    /// is called for others that have to look sooner than they meant to.
    pub(crate) fn arm(&mut self, cpu: usize, clock: Time, mut ring: impl FnMut(usize)) -> Time {
        let general = self.general();
        let mut first = Time::NEVER;
        for other in (0..self.armed.len()).filter(|&other| other != cpu) {
            if self.machine.budget_end(Cpu(other as u32)) < self.armed[other] {
                // It will be awake at once.
                self.armed[other] = self.now;
                ring(other);
            }
            first = first.min(self.armed[other]);
        }
        let own = self.budget_alarm(cpu, clock);
        self.armed[cpu] = if first <= general { own } else { own.min(general) };
        self.armed[cpu]
    }

    /// Somebody else than a dispatcher has just stepped, on `cpu`: `ring` is called for each dispatcher that is not awake soon enough;
    /// also when all is done, which they look after.
    pub(crate) fn alert(&self, cpu: usize, mut ring: impl FnMut(usize)) {
        let general = self.general();
        let is_late = |armed: &[Time]| armed.iter().all(|&at| at > general);
        for other in 0..self.armed.len() {
            let end = self.machine.budget_end(Cpu(other as u32));
            let look = end.as_ns().saturating_sub(self.leads[other].0.as_ns());
            let is_used_up = end != Time::NEVER && look < self.armed[other].as_ns();
            // It counts as awake at its old alarm still: whoever rings does so later, and may be stopped before.
            if is_used_up || (other == cpu && (is_late(&self.armed) || self.is_done())) {
                ring(other);
            }
        }
    }

    /// When the budget that is being used on `cpu` is to be looked at again.
    fn budget_alarm(&mut self, cpu: usize, clock: Time) -> Time {
        let end = self.machine.budget_end(Cpu(cpu as u32));
        if end == Time::NEVER {
            self.naps[cpu] = Nap::NONE;
            return end;
        }
        // The machine counts from the step, but the worker gets its CPU only now: without this the next look would find
        // the less of the budget used the longer a step takes.
        let clock = clock.max(self.now);
        let left = end.since(self.now.min(end));
        let nap = &mut self.naps[cpu];
        match nap.before {
            // The same budget, looked at because of something else: that says nothing about the nap.
            Some(before) if left <= before && clock < nap.alarm => {}
            // Less than half of the nap was of use.
            Some(before) if left <= before && left.as_ns() + nap.least.as_ns() / 2 > before.as_ns() => {
                nap.least = (nap.least + nap.least).min(LONGEST);
                nap.before = Some(left);
            }
            _ => {
                nap.least = SHORTEST;
                nap.before = Some(left);
            }
        }
        let sleep = Span::from_ns(left.as_ns().saturating_sub(self.leads[cpu].0.as_ns()));
        nap.is_stretched = sleep < nap.least;
        nap.alarm = clock.saturating_add(sleep.max(nap.least));
        nap.alarm
    }
}
