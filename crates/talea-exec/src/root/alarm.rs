//! When a dispatcher has to be awake again.
//!
//! The CPU whose budget is used up looks after that itself, because a dispatcher finds the clock of
//! a worker on its own CPU standing still, and stops it at once. Everything else belongs to whoever
//! is awake first: a dispatcher leaves it alone while another one is going to be awake by then.

use super::{LEAST, Root};
use crate::mechanism::Mechanism;
use talea_core::machine::Cpu;
use talea_core::mutate;
use talea_core::{Span, Time, Work};

/// A worker that is about to use up its budget is left alone for at least this long, and for longer
/// while it gets nothing done in it: a timer that is too short fires before the worker has its CPU.
const SHORTEST: Span = Span::from_ns(5_000);
/// But never for longer than this: by so much a budget may be overrun. More than any way to a
/// worker takes.
const LONGEST: Span = Span::from_ns(320_000);

/// What naps give a worker beyond what they were to give it, in nanoseconds; below zero, short of
/// it. A dispatcher is awake a little after its alarm, and the worker used the budget meanwhile;
/// but the worker gets its CPU a little after the nap has begun, too.
///
/// So an alarm is set earlier by as much as naps gave too much before, and no earlier than lets a
/// look that comes too soon find next to nothing left ([`LEAST`]). It follows by a part of what was
/// found: what one disturbance does is forgotten soon.
#[derive(Clone, Copy, Debug)]
struct Habit(i64);

impl Habit {
    /// By so much it follows at least, if it was off by more.
    const STEP: i64 = 250;
    /// One nap of so many changes it by what it was off.
    const OF: i64 = 4;
    /// So much may be left when the dispatcher looks.
    const LEFT: i64 = LEAST.as_ns() as i64 / 2;
    /// No timer on a machine at rest is later than this; what was off by more was disturbed.
    const MOST: i64 = 30_000;

    /// A nap that was to leave nothing of a budget was found to have given so much beyond it.
    fn found(&mut self, beyond: i64) {
        let off = mutate!(
            "exec-lead-stays",
            if beyond > 0 { beyond } else { (beyond + Habit::LEFT).min(0) },
            beyond.max(0)
        );
        self.follow(off);
    }

    fn follow(&mut self, off: i64) {
        let part = mutate!(
            "exec-lead-leaps",
            if off.abs() > Habit::MOST { 0 } else { off.abs() / Habit::OF },
            off.abs()
        );
        let step = part.max(Habit::STEP).min(off.abs());
        self.0 = (self.0 + step * off.signum()).clamp(-Habit::MOST, Habit::MOST);
    }
}

/// When to look at a budget of which so much is left.
///
/// Of a long nap a worker may get less than it takes: interrupts and hypervisors take some of it,
/// on virtual machines pieces of ten microseconds. A look that comes too soon for that finds so
/// much left that the shortest nap is longer than that. So where long naps differ the dispatcher
/// looks once before the end, with enough [to spare](Lead::spare) for one more nap, which is too
/// short for much to be taken of it. That costs one more wake for each budget; where long naps are
/// alike, nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lead {
    long: Habit,
    short: Habit,
    /// How far long naps are off, on the average of the last ones.
    off: i64,
    /// The shortest nap in which a worker gets anything, as far as that is known.
    least: Span,
}

impl Lead {
    /// Before anything is known: the first budgets are not to be overrun, either.
    const AT_FIRST: i64 = 8_000;
    /// One nap of so many changes the average.
    const OF: i64 = 8;

    /// Of a dispatcher that is so late at least.
    fn late(late: Span) -> Lead {
        let late = (late.as_ns() as i64).min(Habit::MOST);
        Lead { long: Habit(late), short: Habit(0), off: Lead::AT_FIRST, least: SHORTEST }
    }

    pub(super) const NONE: Lead =
        Lead { long: Habit(0), short: Habit(0), off: Lead::AT_FIRST, least: SHORTEST };

    /// Whether a nap that is to give so much is a long one: much longer than one that is the last.
    fn is_long(&self, give: u64) -> bool {
        give / 4 > self.last()
    }

    /// What the last nap before the end of a budget is to give, if another one came before.
    fn last(&self) -> u64 {
        2 * self.least.as_ns() + 3 * self.off as u64 + self.short.0.max(0) as u64
    }

    /// What is to be left at the next look at a budget of which so much is left.
    fn spare(&self, left: u64) -> u64 {
        mutate!(
            "exec-lead-always",
            if self.off <= Habit::LEFT || !self.is_long(left) {
                0
            } else {
                mutate!("exec-lead-spare", self.last(), left.min(0))
            },
            if !self.is_long(left) { 0 } else { self.last().max(self.off as u64 + 20_000) }
        )
    }

    /// How long to sleep to give a worker so much.
    fn sleep(&self, give: u64) -> Span {
        let habit = if self.is_long(give) { self.long } else { self.short };
        Span::from_ns(give.saturating_add_signed(mutate!(
            "exec-lead-none",
            -habit.0,
            habit.0.min(0)
        )))
    }

    /// A nap that was to give so much, and leave nothing or something of the budget, gave so much.
    fn learn(&mut self, give: u64, gave: u64, leaves_nothing: bool) {
        let signed = |length: u64| i64::try_from(length).unwrap_or(i64::MAX);
        let beyond = signed(gave).saturating_sub(signed(give));
        let is_long = self.is_long(give);
        if is_long {
            self.off += (beyond.abs().min(Habit::MOST) - self.off) / Lead::OF;
        }
        let habit = if is_long { &mut self.long } else { &mut self.short };
        if leaves_nothing { habit.found(beyond) } else { habit.follow(beyond) }
    }

    /// A nap of this length was of no use.
    fn too_short(&mut self, nap: Span) {
        self.least =
            Span::from_ns(self.least.as_ns().max(2 * nap.as_ns()).min(LONGEST.as_ns() / 4));
    }

    /// A new budget: what is known of the shortest nap is of a while ago.
    fn renew(&mut self) {
        self.least = Span::from_ns(self.least.as_ns() / 16 * 15).max(SHORTEST);
    }
}

/// How a dispatcher sleeps while a budget is used on its CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nap {
    /// What the budget had left when the nap began; none: nothing is metered.
    before: Option<Span>,
    /// What it had left when it was last looked at, and what of that the worker is to get by the
    /// alarm.
    left: u64,
    give: u64,
    /// The shortest sleep.
    least: Span,
    /// When it wants to look again.
    alarm: Time,
    /// It sleeps for longer than what it wants to sleep for: how late it is then says nothing about
    /// alarms.
    is_stretched: bool,
}

impl Nap {
    pub(super) const NONE: Nap = Nap {
        before: None,
        left: 0,
        give: 0,
        least: SHORTEST,
        alarm: Time::NEVER,
        is_stretched: false,
    };
}

impl<M: Mechanism> Root<M> {
    /// The dispatcher of `cpu` is so late at least when it sleeps until a time.
    pub(crate) fn expect_to_be_late(&mut self, cpu: usize, late: Span) {
        self.leads[cpu] = Lead::late(late);
    }

    /// So much was consumed on `cpu` since its dispatcher fell asleep.
    pub(super) fn learn(&mut self, cpu: usize, work: Work) {
        let nap = self.naps[cpu];
        if nap.before.is_some() && self.now >= nap.alarm && !nap.is_stretched {
            self.leads[cpu].learn(nap.give, work.as_ns(), nap.give == nap.left);
        }
    }

    /// When something happens by itself that is not the end of a budget, and that nobody else is
    /// awake for.
    pub(super) fn general(&self) -> Time {
        let first = |of: &talea_core::heap::Heap| {
            of.first().map_or(Time::NEVER, |(at, _)| Time::from_ns(at))
        };
        let change = self.changes.get(self.changed).map_or(Time::NEVER, |&(at, _)| at);
        mutate!(
            "exec-alarm-wake",
            self.machine.next_timer().min(first(&self.alarms)).min(first(&self.wakes)).min(change),
            self.machine.next_timer().min(first(&self.alarms)).min(change)
        )
    }

    /// When the dispatcher of `cpu`, which has just stepped and is about to sleep at `clock`, has
    /// to be awake again. `ring` is called for others that have to look sooner than they meant to.
    pub(crate) fn arm(&mut self, cpu: usize, clock: Time, mut ring: impl FnMut(usize)) -> Time {
        let general = self.general();
        let mut first = Time::NEVER;
        for other in (0..self.armed.len()).filter(|&other| other != cpu) {
            if self.machine.budget_end(Cpu(other as u32)) < self.armed[other] {
                // It will be awake at once.
                self.armed[other] = self.now;
                mutate!(
                    "exec-loop-ring",
                    {
                        ring(other);
                    },
                    {}
                );
            }
            first = first.min(self.armed[other]);
        }
        let own = self.budget_alarm(cpu, clock);
        self.armed[cpu] = if first <= general { own } else { own.min(general) };
        self.armed[cpu]
    }

    /// Somebody else than a dispatcher has just stepped, on `cpu`: `ring` is called for each
    /// dispatcher that is not awake soon enough; also when all is done, which they look after.
    pub(crate) fn alert(&self, cpu: usize, mut ring: impl FnMut(usize)) {
        let general = self.general();
        let is_late = |armed: &[Time]| armed.iter().all(|&at| at > general);
        for other in 0..self.armed.len() {
            let end = self.machine.budget_end(Cpu(other as u32));
            let left = end.since(self.now.min(end));
            let look = self.now.saturating_add(self.leads[other].sleep(left.as_ns()));
            let is_used_up = mutate!(
                "exec-doze-free",
                mutate!("exec-office-alarm", end != Time::NEVER, end == Time::ZERO)
                    && look < self.armed[other],
                look < self.armed[other]
            );
            // It counts as awake at its old alarm still: whoever rings does so later, and may be
            // stopped before.
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
        // The machine counts from the step, but the worker gets its CPU only now: without this the
        // next look would find the less of the budget used the longer a step takes.
        let clock = clock.max(self.now);
        let left = end.since(self.now.min(end));
        let (nap, lead) = (&mut self.naps[cpu], &mut self.leads[cpu]);
        match nap.before {
            // The same budget, looked at because of something else: that says nothing about the
            // nap.
            Some(before) if left <= before && clock < nap.alarm => {}
            // Less than half of the nap was of use.
            Some(before)
                if left <= before && left.as_ns() + nap.least.as_ns() / 2 > before.as_ns() =>
            {
                lead.too_short(nap.least);
                nap.least = (nap.least + nap.least).min(LONGEST);
                nap.before = Some(left);
            }
            before => {
                if before.is_none_or(|before| left > before) {
                    lead.renew();
                }
                nap.least = lead.least;
                nap.before = Some(left);
            }
        }
        nap.left = left.as_ns();
        nap.give = nap.left - lead.spare(nap.left);
        let sleep = lead.sleep(nap.give);
        nap.is_stretched = sleep < nap.least;
        nap.alarm = mutate!("exec-loop-nap", clock.saturating_add(sleep.max(nap.least)), end);
        nap.alarm
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_sim::dice::Dice;

    /// A dispatcher is late by so much, and its worker gets the CPU so much after a nap has begun.
    const LATE: u64 = 20_000;
    const BEGINS: u64 = 14_000;
    const BUDGET: u64 = 1_000_000;

    /// What is used beyond a budget of which each 400 us lose a piece of 10 us now and then, and
    /// how many looks it took.
    fn overrun(lead: &mut Lead, pieces: bool, dice: &mut Dice) -> (u64, u32) {
        let (mut left, mut looks) = (BUDGET, 0);
        lead.renew();
        loop {
            looks += 1;
            let give = left - lead.spare(left);
            let (sleep, least) = (lead.sleep(give).as_ns(), lead.least.as_ns());
            let nap = sleep.max(least);
            let lost =
                (0..nap / 20_000).filter(|_| pieces && dice.below(20) == 0).count() as u64 * 10_000;
            let gave = (nap + LATE).saturating_sub(BEGINS + lost);
            if sleep >= least && gave > 0 {
                lead.learn(give, gave, give == left);
            }
            if gave + LEAST.as_ns() > left {
                return (gave.saturating_sub(left), looks);
            }
            if gave < least / 2 {
                lead.too_short(Span::from_ns(least));
            }
            left -= gave;
        }
    }

    /// Median and the nine of ten of overruns, and looks for each budget.
    fn many(mut each: impl FnMut() -> (u64, u32)) -> (u64, u64, f64) {
        let (mut over, looks): (Vec<u64>, Vec<u32>) = (0..1_000).map(|_| each()).unzip();
        over.sort_unstable();
        (over[500], over[900], f64::from(looks.iter().sum::<u32>()) / 1e3)
    }

    #[test]
    fn l5_where_long_naps_lose_pieces_a_look_before_the_end_keeps_budgets() {
        let (mut dice, mut lead) = (Dice::new(5), Lead::late(Span::from_ns(LATE)));
        let (median, most, looks) = many(|| overrun(&mut lead, true, &mut dice));
        // Who never looks before, and else learns the same.
        let (mut dice, mut lead) = (Dice::new(5), Lead::late(Span::from_ns(LATE)));
        let (_, without, fewer) = many(|| {
            lead.off = 0;
            overrun(&mut lead, true, &mut dice)
        });
        println!("{median} ns, nine of ten {most} in {looks} looks, {without} in {fewer}");
        assert!(median <= 2_000 && 2 * most < without, "{median}, {most}, {without}");
        assert!(looks < 2.6, "{looks}");
    }

    #[test]
    fn l5_where_long_naps_are_alike_one_look_is_enough() {
        let (mut dice, mut lead) = (Dice::new(6), Lead::late(Span::from_ns(LATE)));
        let (median, most, looks) = many(|| overrun(&mut lead, false, &mut dice));
        assert!(median == 0 && most == 0 && looks < 1.03, "{median}, {most}, {looks}");
    }
}
