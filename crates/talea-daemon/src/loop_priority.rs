//! Priority of the event loop: above the threads that it grants, within a budget.
//!
//! Threads of grants may consume a whole CPU at a real-time priority. An ordinary daemon would then
//! wait for the kernel's throttling, up to 0.95 s for each request. So the event loop of a service
//! runs at [`priority`], above every band. Enforcers stay above the loop.
//!
//! *Budget.* The loop works for requests of any user, so its work above the bands is limited: to
//! [`BUDGET`], refilled at the rate of one budget per [`PERIOD`]. Beyond it the loop is
//! *throttled*: it continues as an ordinary thread until the budget is full again. Grants see the
//! loop as a thread of at most one budget, and a tenth of the CPU, plus the rest of one round.
//!
//! | state | event | next state | action |
//! | --- | --- | --- | --- |
//! | *raised* | a round ends, budget left | *raised* | |
//! | *raised* | a round ends, budget exhausted | *throttled* | the guardian is asked |
//! | *throttled* | a round ends | *throttled* | |
//! | *throttled* | [`STARVED_CHECKS`] checks find it waiting | *reserved* | the guardian raises the loop |
//! | *reserved* | the first round ends | *reserved* | the loop holds the heavy shares |
//! | *reserved* | a round ends, reserve exhausted | *exhausted* | the guardian lowers the loop |
//! | *throttled*, *reserved*, *exhausted* | the budget is full | *raised* | no share is held |
//!
//! *Shares.* The work of a round, also that for new connections, is charged to the subjects that it
//! serves, besides the budget. A subject is *heavy* if it has used at least the mean since the
//! budget was full. So a throttled loop that real-time threads starve continues with the requests
//! of the other subjects, out of a reserve of one budget. Root is never heavy. Grants see the loop
//! as a thread of at most two budgets and a fifth of the CPU while they starve it and users flood
//! it.
//!
//! The *guardian* is a thread with the highest priority. It sets the policy of the loop at all
//! transitions, because a throttled loop may be starved and could not raise itself.
//!
//! The loop's work is the time from the end of a wait to the next wait, by the clock: an upper
//! bound of the CPU time, without a system call. Its debt is limited to one budget, so a stall of
//! the computer throttles the loop for at most two periods.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use talea_core::setup::Setup;
use talea_core::{Monotonic, Span, mutate};
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, clock, proc};

/// Priority of the guardian, the highest one, as that of the enforcers.
const HIGHEST: u8 = 99;
/// Work of the loop above the bands.
const BUDGET: Span = Span::from_ns(2_000_000);
/// Time in which the budget is refilled.
const PERIOD: Span = Span::from_ns(20_000_000);
/// Work of a reserved loop above the bands, until the budget is full.
const RESERVE: Span = BUDGET;
/// Interval of the guardian's checks of a throttled loop.
const CHECK_PERIOD: Span = Span::from_ns(250_000);
/// Number of checks in a row that find a starved loop waiting for a CPU: runnable, and without the
/// end of a round since the last check.
const STARVED_CHECKS: u32 = 2;
/// Refill time of a unit of work.
const REFILL: u64 = PERIOD.as_ns() / BUDGET.as_ns();
/// Share of root.
const ROOT: u32 = 0;
/// Value of [`Shared::until`] without a request.
const NONE: u64 = 0;
/// Value of [`Shared::until`] that ends the guardian.
const END: u64 = u64::MAX;

/// Returns the priority of the event loop: one below the enforcers, unless a band reaches it.
pub(crate) fn priority(setup: &Setup) -> u8 {
    let highest = setup.plugins.iter().filter_map(|plugin| plugin.band).map(|band| band.high.0);
    if highest.max() >= Some(HIGHEST - 1) { HIGHEST } else { HIGHEST - 1 }
}

/// Budget of the loop, as a token bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LoopBudget {
    /// Time at which the budget is full.
    full_at: Monotonic,
    throttled_until: Monotonic,
}

impl LoopBudget {
    /// Charges the work from `begun` to `ended`. Returns the end of the throttling if the work has
    /// exhausted the budget.
    #[inline]
    fn charge(&mut self, begun: Monotonic, ended: Monotonic) -> Option<Monotonic> {
        // Work at ordinary priority does not count.
        if ended < self.throttled_until {
            return None;
        }
        let begun = begun.max(self.throttled_until);
        let work = ended.saturating_since(begun);
        let refill = Span::from_ns(work.as_ns().saturating_mul(REFILL));
        let most = ended.saturating_add(PERIOD).saturating_add(PERIOD);
        self.full_at = self.full_at.max(begun).saturating_add(refill).min(most);
        if self.full_at.saturating_since(ended) < PERIOD {
            return None;
        }
        self.throttled_until = self.full_at;
        Some(self.full_at)
    }
}

/// Work of the raised loop by share, since the budget was full.
#[derive(Clone, Debug, Default)]
struct Usage {
    /// Shares, sorted, with their work in nanoseconds.
    by_share: Vec<(u32, u64)>,
}

impl Usage {
    fn add(&mut self, share: u32, work: Span) {
        match self.by_share.binary_search_by_key(&share, |&(share, _)| share) {
            Ok(at) => self.by_share[at].1 += work.as_ns(),
            Err(at) => self.by_share.insert(at, (share, work.as_ns())),
        }
    }

    /// Returns the shares that have used at least the mean. Linear in the active shares.
    fn heavy(&self) -> Vec<u32> {
        let sum: u64 = self.by_share.iter().map(|&(_, work)| work).sum();
        let count = self.by_share.len() as u64;
        let is_heavy = |&&(share, work): &&(u32, u64)| share != ROOT && work * count >= sum;
        self.by_share.iter().filter(is_heavy).map(|&(share, _)| share).collect()
    }
}

/// Change of the shares that the loop serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShareChange {
    /// Do not serve these shares.
    Hold(Vec<u32>),
    /// Serve all shares.
    ServeAll,
}

/// Raises the calling thread, which will be the event loop's, for the start of a service: beside
/// threads that never sleep, an ordinary start would take as long as they do. Its children and
/// threads start as ordinary ones. Without the right to FIFO policies, the
/// start is ordinary, and the daemon logs that later.
pub fn raise_for_start() {
    let raised = Attr::grant(Policy::Fifo(HIGHEST - 1));
    let _ = sched::set(Tid::current(), &raised);
}

/// Priority of the event loop of a service. Dropping it ends the guardian and makes the thread an
/// ordinary one.
#[derive(Debug, Default)]
pub(crate) struct LoopPriority {
    budget: LoopBudget,
    usage: Usage,
    /// Rest of the reserve, while the loop is *reserved* or *exhausted*.
    reserve: Option<Span>,
    rounds: u64,
    guardian: Option<Guardian>,
}

#[derive(Debug)]
struct Guardian {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    event_loop: Tid,
    raised: Attr,
    ordinary: Attr,
    /// Attributes after the end.
    original: Attr,
    /// End of the throttling, in nanoseconds.
    until: AtomicU64,
    /// Number of rounds.
    rounds: AtomicU64,
    /// Time at which the loop became *reserved*, in nanoseconds; 0 if it is not.
    reserved_at: AtomicU64,
    /// Whether the reserve is exhausted.
    is_exhausted: AtomicBool,
}

impl LoopPriority {
    /// Raises the calling thread, which is the event loop's, and starts the guardian. New threads
    /// inherit the priority until [`LoopPriority::stop_inheritance`]: ordinary ones would not start
    /// on starved CPUs.
    pub(crate) fn raise(priority: u8) -> io::Result<LoopPriority> {
        let event_loop = Tid::current();
        let nice = sched::get_nice(event_loop)?;
        let (fifo, other) = (Policy::Fifo(priority), Policy::Other { nice });
        let raised = Attr::grant(mutate!("daemon-loop-priority", fifo, other));
        sched::set(event_loop, &Attr::plain(raised.policy))?;
        let shared = Arc::new(Shared {
            event_loop,
            raised,
            ordinary: Attr::grant(other),
            original: Attr::plain(other),
            until: AtomicU64::new(NONE),
            rounds: AtomicU64::new(0),
            reserved_at: AtomicU64::new(0),
            is_exhausted: AtomicBool::new(false),
        });
        let (ready, started) = channel();
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("talea-guardian".to_owned())
            .spawn(move || guard(&of_thread, &ready))?;
        let guardian = Guardian { shared, thread: Some(thread) };
        started.recv().map_err(|_| io::Error::other("the guardian has ended"))??;
        Ok(LoopPriority { guardian: Some(guardian), ..LoopPriority::default() })
    }

    /// Lets later children and threads of the loop start as ordinary ones.
    pub(crate) fn stop_inheritance(&self) -> io::Result<()> {
        let Some(Guardian { shared, .. }) = &self.guardian else { return Ok(()) };
        sched::set(shared.event_loop, &shared.raised)
    }

    /// Starts a round.
    #[inline]
    pub(crate) fn round_begun(&mut self, now: Monotonic) {
        if self.budget.full_at <= now {
            self.usage.by_share.clear();
        }
    }

    /// Charges the work from `begun` to `ended` to a share, besides the budget. Other threads may
    /// interrupt a throttled loop, so its work is not charged.
    #[inline]
    pub(crate) fn charge_share(&mut self, share: u32, begun: Monotonic, ended: Monotonic) {
        if self.guardian.is_some() && begun >= self.budget.throttled_until {
            self.usage.add(share, ended.saturating_since(begun));
        }
    }

    /// Charges the round that began at `begun` and ends now.
    #[inline]
    pub(crate) fn round_ended(&mut self, begun: Monotonic) -> Option<ShareChange> {
        let guardian = self.guardian.as_ref()?;
        let ended = clock::now();
        self.rounds += 1;
        guardian.shared.rounds.store(self.rounds, Ordering::Relaxed);
        if ended < self.budget.throttled_until {
            return self.charge_reserve(begun, ended);
        }
        let until = self.budget.charge(begun, ended);
        if let Some(until) = mutate!("daemon-loop-budget", until, None) {
            guardian.ask(until.as_ns());
        }
        self.reserve.take().map(|_| ShareChange::ServeAll)
    }

    /// Charges a round of a throttled loop to the reserve, if it is *reserved*.
    fn charge_reserve(&mut self, begun: Monotonic, ended: Monotonic) -> Option<ShareChange> {
        let guardian = self.guardian.as_ref()?;
        let at = guardian.shared.reserved_at.load(Ordering::Acquire);
        if at == 0 {
            return None;
        }
        let left = self.reserve.unwrap_or(RESERVE).as_ns();
        let work = ended.saturating_since(begun.max(Monotonic::from_ns(at))).as_ns();
        let change = self.reserve.is_none().then(|| ShareChange::Hold(self.usage.heavy()));
        self.reserve = Some(Span::from_ns(left.saturating_sub(work)));
        if left > 0 && work >= left {
            guardian.shared.is_exhausted.store(true, Ordering::Release);
            guardian.wake();
        }
        mutate!("daemon-loop-shares", change, None)
    }

    /// Returns the time at which the loop must end a round to serve all shares again; `None` if it
    /// serves them.
    pub(crate) fn next_due(&self) -> Option<Monotonic> {
        self.reserve.map(|_| self.budget.throttled_until)
    }
}

impl Guardian {
    #[cold]
    fn ask(&self, until: u64) {
        self.shared.until.store(until, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.ask(END);
        if let Some(thread) = self.thread.take() {
            // A panic aborts the daemon.
            let _ = thread.join();
        }
        if Tid::current() == self.shared.event_loop {
            // The loop has ended: what follows is not urgent.
            let _ = sched::set(self.shared.event_loop, &self.shared.original);
        }
    }
}

impl Shared {
    /// Whether the loop has work. A loop whose state cannot be read counts as runnable.
    fn is_runnable(&self) -> bool {
        let stat = proc::stat_of(Tid::of_process(), self.event_loop);
        mutate!("daemon-loop-idle", stat.map_or(true, |stat| stat.state == b'R'), true)
    }

    /// Waits until `until`. Raises a starved loop until its reserve is exhausted.
    fn throttle(&self, until: Monotonic) {
        let mut rounds = self.rounds.load(Ordering::Relaxed);
        let mut starved_checks = 0;
        let is_starved = loop {
            let next = clock::now().saturating_add(CHECK_PERIOD);
            clock::sleep_until(next.min(until));
            if next >= until {
                break false;
            }
            let before = std::mem::replace(&mut rounds, self.rounds.load(Ordering::Relaxed));
            let is_waiting = rounds == before && self.is_runnable();
            starved_checks = if is_waiting { starved_checks + 1 } else { 0 };
            if mutate!("daemon-loop-reserve", starved_checks == STARVED_CHECKS, false) {
                break true;
            }
        };
        if is_starved {
            let now = clock::now();
            self.is_exhausted.store(false, Ordering::Relaxed);
            self.reserved_at.store(now.as_ns(), Ordering::Release);
            let _ = sched::set(self.event_loop, &self.raised);
            let left = until.saturating_since(now);
            while !self.is_exhausted.load(Ordering::Acquire) && clock::now() < until {
                std::thread::park_timeout(Duration::from_nanos(left.as_ns()));
            }
            if clock::now() < until {
                let _ = sched::set(self.event_loop, &self.ordinary);
                clock::sleep_until(until);
            }
            self.reserved_at.store(0, Ordering::Release);
        }
    }
}

fn guard(shared: &Shared, ready: &Sender<io::Result<()>>) {
    let placed = sched::set(Tid::current(), &Attr::grant(Policy::Fifo(HIGHEST)));
    let is_placed = placed.is_ok();
    if ready.send(placed).is_err() || !is_placed {
        return;
    }
    loop {
        match shared.until.load(Ordering::Acquire) {
            NONE => std::thread::park(),
            END => return,
            until => {
                // The loop lives at least as long as this thread. If the administrator takes the
                // right away meanwhile, the loop keeps the policy that it has.
                let _ = sched::set(shared.event_loop, &shared.ordinary);
                shared.throttle(Monotonic::from_ns(until));
                let _ = sched::set(shared.event_loop, &shared.raised);
                // A later request stays.
                let _ =
                    shared.until.compare_exchange(until, NONE, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::Priority;
    use talea_core::setup::{Band, FpOptions, OnOverrun, PluginKind, PluginSetup};

    const US: u64 = 1_000;

    fn at(us: u64) -> Monotonic {
        Monotonic::from_ns(us * US)
    }

    /// Charges rounds of `work_us` that begin every `every_us`, within a second. Returns the work
    /// above the bands in each period of `PERIOD`, in microseconds.
    fn raised(work_us: u64, every_us: u64) -> Vec<u64> {
        let mut budget = LoopBudget::default();
        let period = PERIOD.as_ns() / US;
        let mut work = vec![0; (1_000_000 / period) as usize + 1];
        for begun in (0..1_000_000).step_by(every_us as usize) {
            if at(begun) >= budget.throttled_until {
                work[(begun / period) as usize] += work_us;
            }
            budget.charge(at(begun), at(begun + work_us));
        }
        work
    }

    #[test]
    fn a_quiet_loop_is_never_throttled() {
        let mut budget = LoopBudget::default();
        // 9 % of a CPU.
        for begun in (0..1_000_000).step_by(100) {
            assert_eq!(budget.charge(at(begun), at(begun + 9)), None);
        }
        // A single round below the budget, after a pause.
        assert_eq!(budget.charge(at(2_000_000), at(2_001_900)), None);
    }

    #[test]
    fn a_busy_loop_has_a_budget_in_each_period() {
        let budget = BUDGET.as_ns() / US;
        for (work, every) in [(10, 10), (10, 20), (50, 100), (500, 600), (1_000, 1_000)] {
            let raised = raised(work, every);
            let sum: u64 = raised.iter().sum();
            assert!(sum <= 1_000_000 / 10 + budget + work, "{work} each {every}: {sum}");
            assert!(sum >= 1_000_000 / 14, "{work} each {every}: {sum}");
            let most = raised.iter().max().copied().unwrap_or_default();
            assert!(most <= 2 * budget + 2 * work, "{work} each {every}: {most} in a period");
        }
    }

    #[test]
    fn shares_that_have_used_the_mean_are_heavy_except_root() {
        let mut usage = Usage::default();
        assert_eq!(usage.heavy(), [0; 0]);
        usage.add(7, Span::from_ns(10));
        assert_eq!(usage.heavy(), [7]);
        for (share, work) in [(5, 300), (9, 290), (7, 10), (0, 500), (5, 1), (3, 1)] {
            usage.add(share, Span::from_ns(work));
        }
        assert_eq!(usage.by_share, [(0, 500), (3, 1), (5, 301), (7, 20), (9, 290)]);
        assert_eq!(usage.heavy(), [5, 9]);
    }

    #[test]
    fn the_debt_of_a_stall_is_limited() {
        let mut budget = LoopBudget::default();
        let until = budget.charge(at(0), at(5_000_000)).expect("the budget is exhausted");
        assert_eq!(until, at(5_000_000).saturating_add(PERIOD).saturating_add(PERIOD));
        // Throttled: not charged.
        assert_eq!(budget.charge(at(5_000_000), at(5_039_000)), None);
        assert_eq!(budget.charge(at(5_040_000), at(5_041_000)), None);
        assert!(budget.charge(at(5_041_000), at(5_043_000)).is_some());
    }

    #[test]
    fn the_loop_is_above_every_band() {
        let band = |high| Band { low: Priority(1), high: Priority(high) };
        let with = |bands: &[u8]| {
            let plugin = |high| PluginSetup {
                name: "fp".to_owned(),
                cpus: talea_core::CpuSet::first(1),
                band: Some(band(high)),
                kind: PluginKind::Fp(FpOptions::default()),
                on_overrun: OnOverrun::Throttle,
            };
            Setup { plugins: bands.iter().map(|&high| plugin(high)).collect(), ..Setup::default() }
        };
        assert_eq!(priority(&with(&[])), 98);
        assert_eq!(priority(&with(&[49, 97])), 98);
        assert_eq!(priority(&with(&[49, 98])), 99);
        assert_eq!(priority(&with(&[99])), 99);
    }
}
