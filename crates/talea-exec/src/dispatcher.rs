//! The loop of one dispatcher; the twin of the simulator's.
//!
//! Note how often the bell has rung; take the lock; read the clock; read the mail; step; set the
//! alarm; give the lock back; sleep until the alarm or the bell. Whatever is posted after the mail
//! was read has rung the bell, so it is not slept over; so has a worker that stepped after that and
//! left something to be looked at sooner ([`office`](crate::office)). Nothing here allocates.

use crate::mailbox::Mailbox;
use crate::mechanism::Mechanism;
use crate::office::{Office, Steps};
use crate::root::Stepper;
use crate::stage::{self, Ranks, Stage};
use std::io;
use std::sync::atomic::Ordering;
use talea_core::mutate;
use talea_core::{CpuSet, Span, Time, Work};
use talea_os::bell::{Bell, Woken};
use talea_os::pilock::PiLock;
use talea_os::{Tid, clock, sched};

/// What a dispatcher says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// How often it was awake.
    pub steps: u64,
    /// Steps that finishing workers made in its place; what these take of the CPU is the workers'.
    pub by_workers: u64,
    /// Steps that workers made in its place which were awake by themselves when their jobs came.
    pub by_themselves: u64,
    /// Of its own, because a time had come.
    pub timers: u64,
    /// The latest that it was awake after such a time.
    pub latest: Span,
    /// What it has used of its CPU.
    pub used: Work,
    /// How long it has waited for the lock of its root in all, and the longest of these.
    pub locked: Span,
    /// The longest.
    pub locked_most: Span,
    /// The longest that it was at it: from the first look at the clock of a wake to the last. By
    /// two looks that it takes anyway, so without what the kernel needs to wake it and to put it to
    /// sleep.
    pub longest: Span,
    /// When it left, on the run's own time line.
    pub left: Time,
}

/// When a run begins and ends, on the machine's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeline {
    pub(crate) zero: Time,
    /// On the run's own time line.
    pub(crate) until: Time,
}

impl Timeline {
    pub(crate) fn now(&self) -> Time {
        Time::from_ns(clock::now().as_ns().saturating_sub(self.zero.as_ns()))
    }

    pub(crate) fn of_machine(&self, at: Time) -> Time {
        self.zero.saturating_add(Span::from_ns(at.as_ns()))
    }
}

impl Timeline {
    /// Sleeps until the run begins, or is called off before.
    fn wait_for_zero(&self, mailbox: &Mailbox, stage: &Stage) {
        loop {
            let heard = mailbox.bell.heard();
            if stage.over.load(Ordering::Acquire) || clock::now() >= self.zero {
                return;
            }
            mailbox.bell.wait(heard, self.zero);
        }
    }
}

/// Puts the calling thread where a dispatcher stands.
pub(crate) fn enter(cpu: u32, ranks: Ranks) -> io::Result<()> {
    let tid = Tid::current();
    sched::set_affinity(tid, &CpuSet::single(cpu))?;
    stage::warm_up();
    ranks.dispatcher(tid)
}

/// However its dispatcher leaves: the other dispatchers of its root are called off, those of all
/// roots if it falls; the root is closed, and its workers are ordinary threads that end.
struct Leaving<'a, M: Mechanism>(&'a Stage, &'a PiLock<Office<M>>);

impl<M: Mechanism> Drop for Leaving<'_, M> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.call_all_off();
        }
        self.0.call_off();
        self.1.lock().root.close();
        self.0.let_go();
    }
}

/// How late the calling thread is awake after a time, where nothing disturbs it: the least of some
/// short sleeps.
fn least_late() -> Span {
    const SLEEPS: u32 = 8;
    const SLEEP: Span = Span::from_ns(100_000);
    let late = (0..SLEEPS).map(|_| {
        let due = clock::now() + SLEEP;
        clock::sleep_until(due);
        clock::now().since(due)
    });
    late.min().unwrap_or(Span::ZERO)
}

/// Sleeps until the bell rings or `due` comes; the last of it awake, if so much is to be `spin`.
fn rest(bell: &Bell, heard: u32, due: Time, spin: Span) -> Woken {
    if spin.is_zero() || mutate!("exec-spin", due == Time::NEVER, due <= Time::NEVER) {
        return bell.wait(heard, due);
    }
    let now = clock::now();
    // Half of the time at least is somebody else's.
    let half = due.as_ns().saturating_sub(now.as_ns()) / 2;
    let early = Span::from_ns(half.min(spin.as_ns()));
    if bell.wait(heard, Time::from_ns(due.as_ns().saturating_sub(early.as_ns()))) == Woken::Rung {
        return Woken::Rung;
    }
    while clock::now() < due {
        if bell.heard() != heard {
            return Woken::Rung;
        }
        std::hint::spin_loop();
    }
    Woken::Due
}

/// Drives the root of `office` as the dispatcher of its CPU `cpu` from the zero of `time` to its
/// end.
pub(crate) fn drive<M: Mechanism>(
    cpu: usize,
    stage: &Stage,
    office: &PiLock<Office<M>>,
    time: Timeline,
    spin: Span,
) -> Result<Effort, M::Error> {
    let _leaving = Leaving(stage, office);
    let mailbox = &stage.cpus[cpu].mailbox;
    let mut effort = Effort::default();
    office.lock().root.expect_to_be_late(cpu, least_late());
    let before = clock::thread_cpu_time();
    time.wait_for_zero(mailbox, stage);
    let mut due = Time::ZERO;
    let mut woken = Woken::Due;
    loop {
        let heard = mailbox.bell.heard();
        let wakes = time.now();
        if stage.over.load(Ordering::Acquire) || wakes >= time.until {
            effort.left = wakes.min(time.until);
            break;
        }
        effort.steps += 1;
        if woken == Woken::Due {
            effort.timers += 1;
            effort.latest = effort.latest.max(wakes.since(due));
        }
        {
            let mut office = office.lock();
            // Of this moment, not of before the lock: nobody's time runs backwards.
            let now = time.now();
            let waited = now.since(wakes);
            effort.locked += waited;
            effort.locked_most = effort.locked_most.max(waited);
            if woken == Woken::Due {
                office.root.awake(cpu, due, wakes);
            }
            let who = Stepper { cpu, worker: None };
            if !office.step(who, None, now, stage).inspect_err(|_| stage.call_all_off())? {
                effort.left = now.min(time.until);
                break;
            }
            let ring = |other: usize| stage.cpus[other].mailbox.bell.ring();
            let done = time.now();
            effort.longest = effort.longest.max(done.since(wakes));
            due = office.root.arm(cpu, done, ring).min(time.until);
        }
        woken = rest(&mailbox.bell, heard, time.of_machine(due), spin);
    }
    effort.used = clock::thread_cpu_time().checked_sub(before).unwrap_or(Work::ZERO);
    let mut office = office.lock();
    // A worker may have stepped since.
    let end = time.now().min(time.until);
    effort.left = effort.left.max(office.close(end)?.min(time.until));
    let Steps { finished, came } = std::mem::take(&mut office.steps[cpu]);
    (effort.by_workers, effort.by_themselves) = (finished, came);
    Ok(effort)
}
