//! Wakeup listener: detects that an idle program gets a CPU again.
//!
//! A wakeup listener reads the CPU clock of its program where the kernel reports no wake-ups in
//! time. Perf events may be refused, or stop, or the kernel may be fully preemptible: it then
//! delivers them from a thread at FIFO 1 that a busy CPU never runs.
//!
//! The listener of a group that another process fills also reports that the group gets its first
//! member or loses its last one. While such a group is empty, the listener only waits.

use crate::root_shared::RootShared;
use std::io::{self, PipeReader};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use talea_core::engine::TaskId;
use talea_core::{Monotonic, Span};
use talea_os::cgroup::{Cgroup, CgroupChanges};
use talea_os::clock;
use talea_os::event_count::EventCount;
use talea_os::wakeup_events::{self, GroupEvent, WakeupEvent, WakeupWatch};

/// Number of polls between two checks of whether the cgroup is empty.
const POLLS_PER_EMPTY_CHECK: u32 = 128;
/// Period at which the listener reads the clock of a program whose wake-ups the kernel does not
/// report.
const POLL_PERIOD: Span = Span::from_ns(1_000_000);
/// `POLL_PERIOD` for `poll(2)`.
const POLL_TIMEOUT: Duration = Duration::from_millis(1);

/// Detection of the wake-ups of a program.
#[derive(Debug)]
pub(super) struct WakeupListener {
    events: Option<WakeupWatch>,
    /// Whether the kernel has stopped reporting wake-ups.
    has_lost_events: AtomicBool,
    /// Event count of poll requests, notified when the listener is to detect a wake-up.
    poll_requests: EventCount,
    /// CPU clock of the program at the last poll request.
    armed_cpu_time_ns: AtomicU64,
    /// Whether the group had members when the listener or a step last read that. The listener
    /// reports the next difference.
    had_members: AtomicBool,
    /// CLOCK_MONOTONIC at the last report. Until the step for that report the program has no CPU,
    /// because the listener and the dispatcher have higher priorities.
    reported_at_ns: AtomicU64,
}

impl WakeupListener {
    /// Creates the listener. Without `events` it polls the program's clock.
    pub(super) fn new(events: Option<WakeupWatch>) -> WakeupListener {
        WakeupListener {
            events,
            has_lost_events: AtomicBool::new(false),
            poll_requests: EventCount::new(),
            armed_cpu_time_ns: AtomicU64::new(0),
            had_members: AtomicBool::new(false),
            reported_at_ns: AtomicU64::new(0),
        }
    }

    /// Arms the listener: it reports the next wake-up.
    pub(super) fn arm(&self, group: &Cgroup) -> io::Result<()> {
        if let Some(events) = self.events.as_ref().filter(|_| !self.is_polled()) {
            let armed = events.arm();
            // After arming: a listener that loses its events later polls.
            if !self.is_polled() {
                return armed;
            }
        }
        self.armed_cpu_time_ns.store(group.used()?.as_ns(), Ordering::Release);
        self.poll_requests.notify();
        Ok(())
    }

    /// Whether the listener polls the program's clock.
    pub(super) fn is_polled(&self) -> bool {
        self.events.is_none() || self.has_lost_events.load(Ordering::SeqCst)
    }

    /// Notes that a step has found the group without members, so that the listener reports the next
    /// entry. The kernel may report an exit and the next entry as one change.
    pub(super) fn note_empty(&self) {
        self.had_members.store(false, Ordering::Release);
    }

    /// Returns the time since the last report.
    pub(super) fn time_since_report(&self) -> Span {
        let reported_at = self.reported_at_ns.load(Ordering::Acquire);
        clock::now().saturating_since(Monotonic::from_ns(reported_at))
    }

    /// Reports a wake-up to the dispatcher.
    fn report(&self, shared: &RootShared, task: TaskId) {
        self.reported_at_ns.store(clock::now().as_ns(), Ordering::Release);
        shared.slots[task.0 as usize].has_woken.store(true, Ordering::Release);
        shared.cpus[0].mailbox.event_count.notify();
    }

    /// Whether the clock has moved since the last poll request, which had another key than `key`.
    /// Returns true once for each request.
    fn clock_has_moved(&self, group: &Cgroup, key: &mut u32) -> io::Result<bool> {
        let asked = self.poll_requests.key();
        let has_moved = asked != *key
            && group.used()?.as_ns() != self.armed_cpu_time_ns.load(Ordering::Acquire);
        if has_moved {
            *key = asked;
        }
        Ok(has_moved)
    }

    /// Reports wake-ups of a group that another process fills, and changes of its membership. Runs
    /// until the other end of `stop` is closed or the group is removed.
    pub(super) fn run_filled(
        &self,
        (group, changes): (&Cgroup, &CgroupChanges),
        shared: &RootShared,
        task: TaskId,
        stop: &PipeReader,
    ) {
        let mut key = 0;
        // A removed group has no members, and would be ready at every wait.
        while let Ok(has_members) = changes.is_populated() {
            if self.had_members.swap(has_members, Ordering::AcqRel) != has_members {
                self.report(shared, task);
            }
            let watch = self.events.as_ref().filter(|_| !self.is_polled());
            let timeout = (has_members && watch.is_none()).then_some(POLL_TIMEOUT);
            match wakeup_events::wait_for_group(watch, changes, stop.as_fd(), timeout) {
                Ok(GroupEvent::Switched) => self.report(shared, task),
                Ok(GroupEvent::Changed) => {}
                Ok(GroupEvent::TimedOut) => match self.clock_has_moved(group, &mut key) {
                    Ok(true) => self.report(shared, task),
                    Ok(false) => {}
                    Err(_) => break,
                },
                Ok(GroupEvent::Cancelled) => return,
                // The group may have woken unnoticed since it was armed.
                Err(_) if watch.is_some() => {
                    self.has_lost_events.store(true, Ordering::SeqCst);
                    self.report(shared, task);
                }
                Err(_) => break,
            }
        }
        self.report(shared, task);
    }

    /// Reports wake-ups to the dispatcher, until the run is over or the cgroup is empty.
    pub(super) fn run(
        &self,
        group: &Cgroup,
        shared: &RootShared,
        task: TaskId,
        (stop, over): (&PipeReader, &AtomicBool),
    ) {
        // A process enters the cgroup only as a child of one that is in it.
        let is_empty = |group: &Cgroup| group.is_populated().is_ok_and(|is| !is);
        let awake = || self.report(shared, task);
        if let Some(events) = &self.events {
            loop {
                match events.wait(stop.as_fd()) {
                    Ok(WakeupEvent::Switched) => awake(),
                    Ok(WakeupEvent::Cancelled) => return,
                    Ok(WakeupEvent::Ended) | Err(_) => break,
                }
            }
            // A process that has just exited stays in its cgroup for a moment.
            clock::sleep_until(clock::now() + POLL_PERIOD);
            if over.load(Ordering::Acquire) || is_empty(group) {
                return;
            }
            self.has_lost_events.store(true, Ordering::SeqCst);
            // It may have woken unnoticed since it was armed.
            awake();
        }
        let (mut key, mut polls) = (0, 0_u32);
        while !shared.is_over.load(Ordering::Acquire) {
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS_PER_EMPTY_CHECK) && is_empty(group) {
                return;
            }
            // The loop also notices the end of the run.
            match self.clock_has_moved(group, &mut key) {
                Ok(true) => awake(),
                Ok(false) => {}
                Err(_) => return,
            }
            clock::sleep_until(clock::now() + POLL_PERIOD);
        }
    }
}
