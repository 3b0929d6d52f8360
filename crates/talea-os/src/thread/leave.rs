//! Leaving SCHED_DEADLINE without hurting the kernel's books or the thread.
//!
//! Two traps, both measured (the first on 6.1 to 7.2, the second on 6.18):
//!
//! - *The leak.* A thread that sleeps past its zero-lag time and is then demoted from outside
//!   leaves its bandwidth in the kernel's books for ever. Shrunk first, to the smallest runtime
//!   over a long period, it leaves a share that rounds to nothing.
//! - *The freeze.* A thread that has overdrawn its budget is marked as throttled until a timer
//!   replenishes it. Taken out of the class meanwhile, it keeps the mark until its zero-lag time,
//!   deadline − runtime · T / Q. Put back into the class before that, it waits for a timer that has
//!   already gone: it never runs again and can't even be killed. Shrinking such a thread multiplies
//!   its debt by a million and moves that time hours away.
//!
//! So a thread with budget left is shrunk. One without is demoted as it is: its zero-lag time is
//! still to come, and the kernel takes its bandwidth back then. Until that time it must not enter
//! the class again: that is a *debt*, see [`debts`].
//!
//! All this happens to a thread that may wake, run and be throttled between any two of our calls,
//! and we may be kept from the CPU between them: so what it did meanwhile is looked up afterwards
//! ([`Runs`]), and what can't be mended is remembered as a debt.

use super::debts::{self, Announced, Debtor, Mark};
use super::schedclock;
use crate::sched::{self, Attr, DEADLINE_RUNTIME_MIN_NS, Policy};
use crate::sys::is;
use crate::{Tid, clock, proc};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use talea_core::mutate;
use talea_core::{Span, Time, Work};

/// How much a thread has run and how often it was switched to: equal twice means that it did not
/// run in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Runs {
    ns: u64,
    times: u64,
}

/// What [`settle`] must look at once the thread has been demoted.
#[derive(Clone, Copy)]
pub(super) enum Leaving {
    /// Nothing.
    Free,
    /// At this rate, with this budget, when it had run so much.
    At { rate: Rate, budget: Budget, runs: Option<Runs> },
    /// With a mark that nothing will clear.
    Marked,
}

/// The parameters by which a debt is paid.
#[derive(Clone, Copy)]
pub(super) struct Rate {
    runtime: Work,
    deadline: Span,
    period: Span,
}

impl Rate {
    fn is_shrunk(self) -> bool {
        self.runtime == SHRUNK.runtime && [SHRUNK.period, shrunk_period()].contains(&self.period)
    }
}

/// The smallest period over which the smallest runtime is less than one unit of the kernel's books,
/// 2^-20 CPUs.
const SHRUNK_PERIOD: Span = Span::from_ns(DEADLINE_RUNTIME_MIN_NS * (1 << 20) + 1);
/// Budget that is not counted on: a thread goes on running while we look.
const SLACK_NS: u64 = 20_000;
/// With less than this, or half its runtime, a runnable thread is demoted as it is: it might be
/// through with it before we are.
const COMFORT_NS: i64 = 200_000;
/// A long tick: what a thread may run without the kernel's noticing.
const TICK_NS: u64 = 20_000_000;
/// The rate of a shrunk thread.
const SHRUNK: Rate = Rate {
    runtime: Work::from_ns(DEADLINE_RUNTIME_MIN_NS),
    deadline: SHRUNK_PERIOD,
    period: SHRUNK_PERIOD,
};

/// Makes ready to leave the class; the caller demotes the thread at once and then calls [`settle`].
///
/// It is named by its process and its own number; `entered` is what it had run when it entered the
/// class, where known. Nothing here may take long: what is read must still be true when the thread
/// is demoted, or the books suffer.
///
/// `None` where the thread has ended: nothing was done. `is_alive` is only asked where the meter
/// does not tell.
pub(super) fn prepare(
    (tgid, tid): (Tid, Tid),
    has: &Attr,
    entered: Option<Runs>,
    meter: &Meter,
    is_alive: impl FnOnce() -> bool,
) -> Option<Leaving> {
    let Policy::Deadline { runtime, deadline, period } = has.policy else {
        return Some(Leaving::Free);
    };
    if let Some(entered) = entered
        && let runs @ Some(now) = meter.runs()
        && now == entered
    {
        // It has slept since it entered: its budget is still to be filled, and what the kernel
        // tells of it is from an earlier life. When it wakes now, it begins with the shrunk one.
        shrink(tid, has);
        return Some(Leaving::At { rate: SHRUNK, budget: Budget { left: 1, deadline: 0 }, runs });
    }
    mutate!(
        "os-leave-stranger",
        {
            if !is_alive() {
                return None;
            }
        },
        {}
    );

    let rate = Rate { runtime, deadline, period };
    let mut seen = Seen::of((tgid, tid), meter);
    if !seen.asleep && nudge(tid, has) {
        // What the kernel told of a running thread was a tick old; now it has just been counted.
        seen = Seen::of((tgid, tid), meter);
    }
    let Some(budget) = seen.budget else {
        // Kernels that tell nothing: the leak is certain, the freeze is not.
        shrink(tid, has);
        return Some(Leaving::Free);
    };
    let comfort = COMFORT_NS.min(runtime.as_ns() as i64 / 2);
    if budget.left <= if seen.asleep { 0 } else { comfort } {
        // Nothing leaks: the kernel still waits for the zero-lag time of a debtor, and of whatever
        // is runnable.
        return Some(Leaving::At { rate, budget, runs: seen.runs });
    }
    shrink(tid, has);
    if seen.asleep {
        return Some(Leaving::At { rate: SHRUNK, budget, runs: seen.runs });
    }
    // We may have been kept from the CPU for longer than it had left.
    let now = Seen::of((tgid, tid), meter);
    Some(match now.budget {
        Some(budget) if budget.left > 0 => Leaving::At { rate: SHRUNK, budget, runs: now.runs },
        // Throttled, so it can neither run nor sleep: at its own rate, given back, it can pay.
        Some(budget) if !now.asleep && sched::set(tid, has).is_ok() => {
            Leaving::At { rate, budget, runs: now.runs }
        }
        // It sleeps, and shrinking has taken away the timer that would clear its mark.
        Some(_) => Leaving::Marked,
        None => Leaving::Free,
    })
}

impl Leaving {
    /// What is certain to be owed when the thread has been demoted is known to be owed before:
    /// whoever takes over from a process that is killed in between must not put it back too early.
    /// [`settle`] knows better, or [`stay`].
    pub(super) fn announce(&self, debtor: Debtor) -> Announced {
        debts::announce(debtor, |before| match self {
            // Nothing is known of it.
            Leaving::Free => None,
            // It has budget left, so nothing is certain.
            Leaving::At { rate, budget, .. }
                if mutate!(
                    "os-debts-announced",
                    rate.is_shrunk() && budget.left > 0,
                    rate.is_shrunk() || budget.left <= 0
                ) =>
            {
                None
            }
            Leaving::At { rate, budget, .. } => {
                let debt = Budget {
                    left: budget.left.min(0).saturating_sub_unsigned(SLACK_NS),
                    ..*budget
                };
                let deadline = schedclock::guess(rate.runtime, rate.period);
                // Whoever was found shrunk may have a deadline far off: see [`take_over`].
                let deadline = before.map_or(deadline, |before| before.max(deadline));
                Some(debt.lag(*rate, deadline))
            }
            Leaving::Marked => Some(Time::NEVER),
        })
    }
}

/// The demotion was refused, or the thread has ended.
pub(super) fn stay(announced: &Announced) {
    debts::settle(announced, None, Mark::default);
}

/// After the demotion: the thread may have to stay out of the class for a time. What it owed
/// before, it still does. `main` tells whose main thread would inherit that. Says whether the meter
/// could be read, so that the number is still the thread's.
pub(super) fn settle(
    announced: &Announced,
    leaving: Leaving,
    meter: &Meter,
    main: impl FnOnce() -> Mark,
) -> bool {
    let after = meter.runs();
    debts::settle(announced, owes_until(leaving, after), main);
    after.is_some()
}

/// Before a thread that somebody else has shrunk is given its own rate back: what can't be seen any
/// more when it has that.
pub(super) fn take_over((tgid, tid): (Tid, Tid), debtor: Debtor, main: Mark) {
    if let Some(until) = Seen::of((tgid, tid), &Meter::of(tid)).owes_since_it_was_shrunk() {
        debts::owe(debtor, main, until);
    }
}

/// `after` is what the thread had run when it had been demoted.
fn owes_until(leaving: Leaving, after: Option<Runs>) -> Option<Time> {
    let (rate, budget, before) = match leaving {
        Leaving::Free => return None,
        Leaving::Marked => return Some(Time::NEVER),
        Leaving::At { rate, budget, runs } => (rate, budget, runs),
    };
    if after == before && budget.left > 0 {
        return None;
    }
    // Zero-lag time does not change when a budget is filled, only by running, and by waking after
    // it: then it begins anew.
    let (used, woke) = match (before, after) {
        (Some(before), Some(after)) => {
            (after.ns.saturating_sub(before.ns), after.times != before.times)
        }
        _ => (TICK_NS, true),
    };
    let used = if after == before { 0 } else { used.saturating_add(SLACK_NS) };
    if !woke && budget.left > 0 && used <= budget.left as u64 {
        return None;
    }
    let left = if woke { budget.left.min(0) } else { budget.left };
    let debt = Budget { left: left.saturating_sub_unsigned(used), ..budget };
    let mut until = debt.zero_lag(rate);
    if woke {
        let anew = Budget { left: -(used.min(i64::MAX as u64) as i64), ..budget };
        until = until.max(anew.lag(rate, clock::now().saturating_add(rate.deadline)));
    }
    Some(until)
}

/// Whether somebody has begun to take a thread out of the class that had `own` there, and was
/// killed before it had `old`.
pub(super) fn is_begun(has: &Attr, own: &Attr, old: &Attr) -> bool {
    let is_least = has.policy == least(shrunk_period(), shrunk_period())
        || matches!(own.policy, Policy::Deadline { deadline, period, .. } if has.policy == least(deadline, period));
    mutate!(
        "os-leave-begun-old",
        is_least
            && mutate!("os-leave-unfinished", has.policy != own.policy, has.policy == own.policy)
            && has.policy != old.policy,
        is_least && has.policy != own.policy
    )
}

/// So often a thread may have been [nudged](nudge) by daemons that were killed one after the other,
/// each in the act.
const NUDGES: u64 = 16;

/// Whether whoever was given `given` may have `has` for that: it itself, or what taking a thread
/// out of the deadline class makes of it on the way.
pub fn comes_of(has: &Policy, given: &Policy) -> bool {
    let (Policy::Deadline { runtime, deadline, period }, Policy::Deadline { period: longer, .. }) =
        (*given, *has)
    else {
        return has == given;
    };
    let nudged = Policy::Deadline { runtime, deadline, period: longer };
    let is_nudged =
        *has == nudged && longer.checked_sub(period).is_some_and(|by| by <= Span::from_ns(NUDGES));
    mutate!("os-leave-comes-of", is_nudged, has.is_deadline() || is_nudged)
        || [least(shrunk_period(), shrunk_period()), least(deadline, longer)].contains(has)
}

/// Where a thread's [`Runs`] are read, opened once for all readings: finding the file takes longer
/// than they do.
///
/// It names the thread that had the number when it was opened, and no later one: as long as it can
/// be read the number is that thread's. Only a thread that replaces its process's program becomes
/// the process's first one. Its counts differ from the other's, so that nothing is taken for equal.
#[derive(Debug)]
pub(super) struct Meter(Option<File>);

impl Meter {
    /// That of `tid`.
    pub(super) fn of(tid: Tid) -> Meter {
        Meter(File::open(format!("/proc/{tid}/schedstat")).ok())
    }

    /// `None` where the kernel does not count.
    pub(super) fn runs(&self) -> Option<Runs> {
        let mut buffer = [0; 128];
        let length = self.0.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let text = &buffer[..length];
        let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
        let (ns, _, times) = (words.next()?, words.next()?, words.next()?);
        Some(Runs { ns: ns.parse().ok()?, times: times.parse().ok()? })
    }
}

/// What is kept of a thread that was given a deadline policy, until it is given another one.
#[derive(Debug)]
pub(super) struct Entered {
    /// What it had run when it entered the class; `None` where the kernel does not count.
    runs: Option<Runs>,
    /// Still open, if it is one of the first.
    meter: Option<Kept>,
}

impl Entered {
    /// To be taken before the thread enters: from then on it may run.
    pub(super) fn of(tid: Tid) -> Entered {
        let meter = Meter::of(tid);
        Entered { runs: meter.runs(), meter: Kept::keep(meter) }
    }

    /// Whether its meter will tell if it lives.
    pub(super) fn is_metered(&self) -> bool {
        self.meter.is_some() && self.runs.is_some()
    }

    /// What it had run then, where known, and where to read what it has run since.
    pub(super) fn since(entered: Option<Entered>, tid: Tid) -> (Option<Runs>, Meter) {
        let (runs, kept) = entered.map_or((None, None), |entered| (entered.runs, entered.meter));
        (runs, kept.map_or_else(|| Meter::of(tid), Kept::into_meter))
    }
}

/// A meter that stays open between two calls of ours: opening it again takes longer than the calls
/// that leave the class. But descriptors are few and every held thread has one already, so only so
/// many threads have another.
#[derive(Debug)]
struct Kept(Meter);

/// How many meters are kept.
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// Most of them, as a part of the descriptors that we may have, and altogether.
const KEPT_PART: u64 = 16;
const KEPT_MOST: u64 = 1024;

/// How many descriptors stay open for threads in the deadline class, of so many that this process
/// may have. Each holds a page of the kernel's besides.
pub fn descriptors_kept(allowed: u64) -> u64 {
    KEPT_MOST.min(allowed / KEPT_PART)
}

impl Kept {
    fn keep(meter: Meter) -> Option<Kept> {
        static MOST: OnceLock<usize> = OnceLock::new();
        let most = *MOST.get_or_init(|| {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
            limit.map_or(KEPT_MOST, descriptors_kept) as usize
        });
        meter.0.as_ref()?;
        if KEPT.fetch_add(1, Ordering::Relaxed) < most {
            return Some(Kept(meter));
        }
        KEPT.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn into_meter(mut self) -> Meter {
        Meter(self.0.0.take())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread at one moment, as far as that can be had from outside.
struct Seen {
    /// Of a running thread it may be a tick old.
    budget: Option<Budget>,
    /// Then the rest is exact.
    asleep: bool,
    /// Read before the rest.
    runs: Option<Runs>,
}

impl Seen {
    fn of((tgid, tid): (Tid, Tid), meter: &Meter) -> Seen {
        const TRIES: u32 = 4;
        let mut runs = meter.runs();
        for _ in 0..TRIES {
            let budget = Budget::of(tid);
            if is_runnable(tgid, tid) {
                return Seen { budget, asleep: false, runs };
            }
            // It may have gone to sleep since its budget was read, and overdrawn it on the way.
            let after = meter.runs();
            if mutate!("kernel-leave-asleep", after == runs, after.is_some()) {
                return Seen { budget, asleep: true, runs };
            }
            runs = after;
        }
        Seen { budget: Budget::of(tid), asleep: false, runs }
    }

    fn owes_since_it_was_shrunk(&self) -> Option<Time> {
        let budget = self.budget.filter(|budget| budget.left <= 0)?;
        if self.asleep {
            // Shrinking has taken away the timer that would clear its mark.
            return mutate!("os-debts-mark", Some(Time::NEVER), None);
        }
        // It may have been replenished since: at this rate that takes a second for each microsecond
        // overdrawn.
        Some(schedclock::latest(budget.deadline, SHRUNK.runtime, SHRUNK.period))
    }
}

/// Has the kernel count what the thread has run until now: it does when parameters change, if by a
/// nanosecond.
fn nudge(tid: Tid, has: &Attr) -> bool {
    let Policy::Deadline { runtime, deadline, period } = has.policy else { return false };
    let longer = Policy::Deadline { runtime, deadline, period: period + Span::from_ns(1) };
    sched::set(tid, &Attr { policy: longer, ..*has }).is_ok()
}

fn is_runnable(tgid: Tid, tid: Tid) -> bool {
    proc::stat_of(tgid, tid).is_ok_and(|stat| stat.state == b'R')
}

/// The state of a deadline thread in its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// What is left in nanoseconds; negative when overdrawn.
    left: i64,
    /// The absolute deadline, on the scheduler's clock.
    deadline: u64,
}

impl Budget {
    /// `None` where the kernel does not tell.
    fn of(tid: Tid) -> Option<Budget> {
        Budget::parse(&proc::read(&format!("/proc/{tid}/sched")).ok()?)
    }

    fn parse(text: &[u8]) -> Option<Budget> {
        let number = |name: &[u8]| -> Option<i64> {
            let line = text.split(|&byte| byte == b'\n').find(|line| line.starts_with(name))?;
            std::str::from_utf8(line).ok()?.split_once(':')?.1.trim().parse().ok()
        };
        let (left, deadline) = (number(b"dl.runtime")?, number(b"dl.deadline")?);
        // Never woken since it first entered the class: nothing is filled, and nothing overdrawn.
        let left = if deadline == 0 { left.max(1) } else { left };
        Some(Budget { left, deadline: deadline as u64 })
    }

    /// When the kernel forgets the budget of a thread that has left the class: deadline − left · T
    /// / Q. An upper bound, on our clock.
    fn zero_lag(self, rate: Rate) -> Time {
        self.lag(rate, schedclock::latest(self.deadline, rate.runtime, rate.period))
    }

    /// As [`Budget::zero_lag`], for a deadline on our clock.
    fn lag(self, rate: Rate, deadline: Time) -> Time {
        // The kernel's timer is not exact.
        const MARGIN: u64 = 1_000_000;
        let debt = u128::from(self.left.min(0).unsigned_abs()) * u128::from(rate.period.as_ns());
        let lag = debt.div_ceil(u128::from(rate.runtime.as_ns().max(1)));
        deadline.saturating_add(Span::from_ns(
            u64::try_from(lag).unwrap_or(u64::MAX).saturating_add(MARGIN),
        ))
    }
}

/// Takes the smallest share that the kernel knows.
///
/// Not an error where that is refused (a domain already over its limit, parameters that became
/// immutable): leaving is still right, and may then cost the share.
fn shrink(tid: Tid, has: &Attr) {
    mutate!("kernel-leave-shrink", {}, {
        if tid.as_raw() > 0 {
            return;
        }
    });
    let Policy::Deadline { deadline, period, .. } = has.policy else { return };
    let tiny = least(shrunk_period(), shrunk_period());
    if let Err(error) = sched::set(tid, &Attr { policy: tiny, ..*has })
        && is(&error, libc::EINVAL)
    {
        // The bound was lowered since it was read: the thread's own period is certainly allowed.
        drop(sched::set(tid, &Attr { policy: least(deadline, period), ..*has }));
    }
}

/// The least runtime over this period.
fn least(deadline: Span, period: Span) -> Policy {
    Policy::Deadline { runtime: SHRUNK.runtime, deadline, period }
}

/// The period of a shrunk thread on this machine.
fn shrunk_period() -> Span {
    SHRUNK.period.min(longest_period())
}

/// The longest deadline period that the kernel accepts; read once.
fn longest_period() -> Span {
    static LONGEST: OnceLock<Span> = OnceLock::new();
    const DEFAULT_US: u64 = 4_194_304;
    *LONGEST.get_or_init(|| {
        let told = std::fs::read_to_string("/proc/sys/kernel/sched_deadline_period_max_us").ok();
        let us = told.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_US);
        Span::from_us(us).unwrap_or(Span::from_ns(DEFAULT_US * 1_000))
    })
}

#[cfg(test)]
mod tests {
    use super::super::debts::tests::{alone, nobody};
    use super::*;

    #[test]
    fn the_budget_is_read_with_its_sign() {
        let text =
            b"x (7, #threads: 1)\npolicy       :     6\ndl.runtime      :      -784280\ndl.deadline : 4\n";
        assert_eq!(Budget::parse(text), Some(Budget { left: -784_280, deadline: 4 }));
        assert_eq!(
            Budget::parse(b"dl.runtime : 0\ndl.deadline : 0\n").map(|budget| budget.left),
            Some(1)
        );
        assert_eq!(Budget::parse(b"policy : 0\n"), None);
    }

    #[test]
    fn the_shrunk_share_is_nothing_in_the_kernels_books() {
        assert_eq!((DEADLINE_RUNTIME_MIN_NS << 20) / SHRUNK_PERIOD.as_ns(), 0);
        assert!(SHRUNK_PERIOD < longest_period());
    }

    #[test]
    fn a_debt_is_paid_at_the_threads_own_rate() {
        // 1 ms owed at 1 ms in 100 ms.
        let ms = |n: u64| n * 1_000_000;
        let period = Span::from_ns(ms(100));
        let rate = Rate { runtime: Work::from_ns(ms(1)), deadline: period, period };
        let none = Budget { left: 0, deadline: ms(7) }.zero_lag(rate);
        let one = Budget { left: -(ms(1) as i64), deadline: ms(7) }.zero_lag(rate);
        // The clocks are compared anew each time.
        let lag = one.as_ns().abs_diff(none.as_ns());
        assert!(lag.abs_diff(ms(100)) < ms(50), "{lag}");
    }

    #[test]
    fn what_ran_past_its_shrunk_budget_stays_out() {
        let _alone = alone();
        let debtor = nobody(u64::MAX - 7);
        // Nobody has said anything of it, or only what was found last.
        let settle = |owes, meter: &Meter| {
            debts::tests::set(&debtor, None);
            settle(&Leaving::Free.announce(debtor), owes, meter, Mark::default);
        };
        let runs = Runs { ns: 0, times: 0 };
        let budget = Budget { left: 1_000_000, deadline: 0 };
        // This thread has certainly been switched to since it had run for nothing.
        let meter = Meter::of(debtor.tid);
        settle(Leaving::At { rate: SHRUNK, budget, runs: Some(runs) }, &meter);
        let until = debts::owing_until(&debtor).expect("a debt");
        assert!(until > clock::now() + SHRUNK_PERIOD);
        settle(Leaving::Free, &meter);
        assert_eq!(debts::owing_until(&debtor), None);
        settle(Leaving::Marked, &meter);
        assert_eq!(debts::owing_until(&debtor), Some(Time::NEVER));
        debts::tests::set(&debtor, None);
    }

    #[test]
    fn what_is_certain_to_be_owed_is_known_before_the_thread_leaves() {
        let _alone = alone();
        let debtor = nobody(u64::MAX - 11);
        let ms = |n: u64| n * 1_000_000;
        let period = Span::from_ns(ms(20));
        let rate = Rate { runtime: Work::from_ns(ms(1)), deadline: period, period };
        let at =
            |rate, left| Leaving::At { rate, budget: Budget { left, deadline: 0 }, runs: None };
        for free in [Leaving::Free, at(SHRUNK, 1_000_000)] {
            free.announce(debtor);
            assert_eq!(debts::owing_until(&debtor), None);
        }
        let mine = at(rate, -(ms(3) as i64)).announce(debtor);
        let until = debts::owing_until(&debtor).expect("3 ms at 1 in 20, and more");
        assert!(until > clock::now() + Span::from_ns(ms(50)), "{until:?}");
        stay(&mine);
        // With the least budget the same takes an hour.
        let shrunk = at(SHRUNK, -(ms(3) as i64)).announce(debtor);
        let until = debts::owing_until(&debtor).expect("3 ms at 1,024 ns in a second");
        assert!(until > clock::now() + Span::from_ns(ms(2_000_000)), "{until:?}");
        stay(&shrunk);
        let never = Leaving::Marked.announce(debtor);
        assert_eq!(debts::owing_until(&debtor), Some(Time::NEVER));
        stay(&never);
        assert_eq!(debts::owing_until(&debtor), None);
    }

    #[test]
    fn what_was_owed_before_a_thread_left_again_is_owed_afterwards() {
        let _alone = alone();
        let debtor = nobody(u64::MAX - 13);
        let meter = Meter::of(debtor.tid);
        let far = clock::now() + Span::from_ns(3_600_000_000_000);
        for known in [far, Time::NEVER] {
            debts::tests::owe(&debtor, known);
            let period = Span::from_ns(20_000_000);
            let rate = Rate { runtime: Work::from_ns(1_000_000), deadline: period, period };
            let budget = Budget { left: -1, deadline: 0 };
            let leaving = Leaving::At { rate, budget, runs: meter.runs() };
            // Whoever is killed here leaves no less.
            let announced = leaving.announce(debtor);
            assert!(debts::owing_until(&debtor) >= Some(known));
            stay(&announced);
            assert_eq!(debts::owing_until(&debtor), Some(known));
            settle(&leaving.announce(debtor), Leaving::Free, &meter, Mark::default);
            assert_eq!(debts::owing_until(&debtor), Some(known));
        }
        debts::tests::set(&debtor, None);
    }

    #[test]
    fn what_was_overdrawn_with_the_least_budget_is_paid_at_that_rate_or_never() {
        let hour = 3_600_000_000_000;
        // On the scheduler's clock, which is not behind ours by an hour.
        let budget = |left| Some(Budget { left, deadline: clock::now().as_ns() + 2 * hour });
        let owes = |budget, asleep| Seen { budget, asleep, runs: None }.owes_since_it_was_shrunk();
        for asleep in [true, false] {
            assert_eq!(owes(budget(1), asleep), None, "it has budget left");
            assert_eq!(owes(None, asleep), None, "the kernel tells nothing");
        }
        assert_eq!(owes(budget(0), true), Some(Time::NEVER));
        let until = owes(budget(0), false).expect("a debt");
        assert!(until > clock::now() + Span::from_ns(hour) && until < Time::NEVER, "{until:?}");
    }

    #[test]
    fn what_was_given_is_known_again_on_its_way_out_of_the_class() {
        let ms = |n: u64| Span::from_ns(n * 1_000_000);
        let deadline = |runtime, deadline, period| Policy::Deadline {
            runtime: Work::from_ns(runtime),
            deadline,
            period,
        };
        let given = deadline(2_000_000, ms(10), ms(20));
        let nudged = |by| deadline(2_000_000, ms(10), ms(20) + Span::from_ns(by));
        let shrunk = least(shrunk_period(), shrunk_period());
        for has in [given, nudged(1), nudged(NUDGES), shrunk, least(ms(10), ms(20))] {
            assert!(comes_of(&has, &given), "{has:?}");
        }
        let others = [
            nudged(NUDGES + 1),
            deadline(2_000_000, ms(10), ms(19)),
            deadline(2_000_001, ms(10), ms(20)),
            deadline(2_000_000, ms(11), ms(20)),
            deadline(1_000_000, ms(10), ms(20)),
            Policy::NORMAL,
        ];
        for has in others {
            assert!(!comes_of(&has, &given), "{has:?}");
        }
        let fifo = Policy::Fifo(9);
        assert!(
            comes_of(&fifo, &fifo)
                && !comes_of(&shrunk, &fifo)
                && !comes_of(&Policy::Fifo(8), &fifo)
        );
    }

    #[test]
    fn begun_is_only_what_shrinking_leaves() {
        let ms = |n: u64| Span::from_ns(n * 1_000_000);
        let deadline = |runtime, deadline, period| {
            Attr::grant(Policy::Deadline { runtime: Work::from_ns(runtime), deadline, period })
        };
        let (own, old) = (deadline(2_000_000, ms(10), ms(20)), Attr::plain(Policy::NORMAL));
        let shrunk = deadline(1_024, SHRUNK_PERIOD, SHRUNK_PERIOD);
        assert!(is_begun(&shrunk, &own, &old));
        assert!(
            is_begun(&deadline(1_024, ms(10), ms(20)), &own, &old),
            "where the bound was lowered"
        );
        assert!(is_begun(&shrunk, &old, &old), "its grant may have been another class's since");
        assert!(!is_begun(&own, &own, &old));
        assert!(!is_begun(&old, &own, &old));
        assert!(!is_begun(&shrunk, &shrunk, &old), "that was granted");
        assert!(!is_begun(&shrunk, &own, &shrunk), "that it had before");
        assert!(
            !is_begun(&deadline(1_024, ms(10), ms(30)), &own, &old),
            "somebody else's little budget"
        );
    }

    #[test]
    fn meters_are_kept_for_so_many_threads_and_reopened_for_the_others() {
        let tid = Tid::current();
        let most = KEPT_MOST as usize + 8;
        let before = KEPT.load(Ordering::Relaxed);
        let all: Vec<Entered> = (0..most).map(|_| Entered::of(tid)).collect();
        let kept = all.iter().filter(|entered| entered.meter.is_some()).count();
        assert!(kept > 0 && kept <= KEPT_MOST as usize, "{kept}");
        for entered in all {
            let (runs, meter) = Entered::since(Some(entered), tid);
            // On a machine that counts, every one can still be read.
            assert_eq!(runs.is_some(), meter.runs().is_some());
        }
        // Other tests may keep some at the same time.
        assert!(KEPT.load(Ordering::Relaxed) <= before + 8);
    }
}
