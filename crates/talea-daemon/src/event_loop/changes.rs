//! Detection of changes to attached threads: by events of the kernel, and by inspection.
//!
//! | change | detected by | latency |
//! | --- | --- | --- |
//! | credentials | process events, for the processes with an attached thread | some 100 µs |
//! | credentials, without process events | inspection | one period |
//! | CPUs, policy, priority | inspection | one period |
//!
//! The broker orders the inspections ([`talea_broker::Effect::Inspect`]). The socket of the events
//! is open while a thread is attached, and for [`LINGER`] after that. The daemon opens the socket
//! after the round in which the first thread was attached, so that no reply waits for it. Then the
//! daemon reads the credentials once, so it misses no change in between.

use super::token::Token;
use std::collections::BTreeSet;
use std::io;
use talea_broker::ThreadId;
use talea_core::{Monotonic, Span, mutate};
use talea_os::Tid;
use talea_os::epoll::{Epoll, Interest};
use talea_os::proc_events::{ProcEvent, ProcEvents};

/// Time for which the socket stays open without attached threads: a program that attaches threads
/// one after the other does not open it each time.
const LINGER: Span = Span::from_ns(1_000_000_000);

/// Subscription to the events of the processes with attached threads.
#[derive(Debug)]
pub(super) struct ChangeEvents {
    socket: Option<ProcEvents>,
    /// Whether the kernel sends no events to this process.
    unavailable: bool,
    /// Attached threads, by process.
    threads: BTreeSet<(Tid, ThreadId)>,
    /// Processes that the socket's filter accepts.
    filtered: Vec<Tid>,
    /// Whether the filter lacks a process with an attached thread, or the last thread was detached.
    is_stale: bool,
    /// Time at which the socket is closed unless a thread is attached before.
    closes_at: Option<Monotonic>,
    /// Last inspected thread.
    pub(super) inspected: ThreadId,
}

impl Default for ChangeEvents {
    fn default() -> ChangeEvents {
        ChangeEvents {
            socket: None,
            unavailable: false,
            threads: BTreeSet::new(),
            filtered: Vec::new(),
            is_stale: false,
            closes_at: None,
            inspected: ThreadId(0),
        }
    }
}

impl ChangeEvents {
    /// Starts watching an attached thread. A process that the filter still accepts needs no other
    /// filter, whose translation by the kernel interrupts all CPUs.
    pub(super) fn add(&mut self, process: Tid, thread: ThreadId) {
        self.closes_at = None;
        self.is_stale |= self.filtered.binary_search(&process).is_err();
        self.threads.insert((process, thread));
    }

    /// Stops watching a thread. Its process stays in the filter until the filter changes anyway.
    pub(super) fn remove(&mut self, process: Tid, thread: ThreadId) {
        self.threads.remove(&(process, thread));
        self.is_stale |= self.threads.is_empty();
    }

    /// Returns the time at which the daemon must call [`ChangeEvents::update`].
    pub(super) fn next_due(&self) -> Option<Monotonic> {
        self.closes_at
    }

    pub(super) fn of_process(&self, process: Tid) -> impl Iterator<Item = ThreadId> {
        let all = (process, ThreadId(0))..=(process, ThreadId(u64::MAX));
        self.threads.range(all).map(|&(_, thread)| thread)
    }

    /// Returns the number of watched threads.
    pub(super) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Returns the threads that the events affect, each once: those of the changed processes, or
    /// all if events were lost. A process that changes again and again costs one check per thread.
    pub(super) fn affected(&self, events: &[ProcEvent]) -> Vec<ThreadId> {
        if events.iter().any(|event| matches!(event, ProcEvent::Lost)) {
            return self.threads.iter().map(|&(_, thread)| thread).collect();
        }
        let changed: BTreeSet<Tid> = events
            .iter()
            .filter_map(|event| match event {
                ProcEvent::Changed(process) => Some(*process),
                ProcEvent::Lost => None,
            })
            .collect();
        changed.into_iter().flat_map(|process| self.of_process(process)).collect()
    }

    /// Whether the socket is open. Without it, only inspections detect changes of credentials.
    pub(super) fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Returns the next event; `None` if there is none, or no socket.
    pub(super) fn next(&mut self) -> Option<ProcEvent> {
        let event = self.socket.as_ref()?.next();
        event.unwrap_or_else(|_| {
            // Reopened with the next process; inspections go on.
            self.close();
            None
        })
    }

    /// Closes the socket until the next thread is attached.
    pub(super) fn close(&mut self) {
        self.socket = None;
        self.filtered.clear();
    }

    /// Whether the daemon must call [`ChangeEvents::update`] now.
    #[inline]
    pub(super) fn is_due(&self, now: Monotonic) -> bool {
        self.is_stale || self.closes_at.is_some_and(|at| at <= now)
    }

    /// Opens or closes the socket, or changes its filter. Returns the processes that are watched
    /// from now on.
    pub(super) fn update(&mut self, now: Monotonic, epoll: &Epoll) -> io::Result<Vec<Tid>> {
        self.is_stale = false;
        if mutate!("daemon-change-events", false, true) {
            return Ok(Vec::new());
        }
        if self.threads.is_empty() {
            let closes_at = *self.closes_at.get_or_insert(now.saturating_add(LINGER));
            if closes_at <= now {
                // Closing the only descriptor also ends the watch.
                self.close();
                self.closes_at = None;
            }
            return Ok(Vec::new());
        }
        if self.unavailable {
            return Ok(Vec::new());
        }
        let mut wanted: Vec<Tid> = self.threads.iter().map(|&(process, _)| process).collect();
        wanted.dedup();
        let socket = if let Some(socket) = &self.socket {
            socket
        } else {
            let Some(socket) = ProcEvents::open()? else {
                self.unavailable = true;
                return Ok(Vec::new());
            };
            epoll.add(&socket, Interest::READ, Token::ProcEvents.pack())?;
            self.socket.insert(socket)
        };
        socket.set_processes(&wanted)?;
        let mut added = wanted.clone();
        added.retain(|process| self.filtered.binary_search(process).is_err());
        self.filtered = wanted;
        Ok(added)
    }
}

#[cfg(test)]
mod tests {
    use super::{ChangeEvents, Monotonic, ProcEvent, ThreadId, Tid};

    #[test]
    fn a_process_in_the_filter_needs_no_other_filter() {
        let [known, other] = [7, 8].map(|process| Tid::new(process).expect("a process"));
        let at = Monotonic::from_ns(5);
        let closes_at = Some(at);
        let mut changes =
            ChangeEvents { filtered: vec![known], closes_at, ..ChangeEvents::default() };
        assert!(changes.is_due(at));
        changes.add(known, ThreadId(1));
        assert!(!changes.is_due(at));
        changes.add(other, ThreadId(2));
        assert!(changes.is_due(at));
    }

    #[test]
    fn events_of_one_process_cost_one_check_of_each_thread() {
        let [known, other] = [7, 8].map(|process| Tid::new(process).expect("a process"));
        let mut changes = ChangeEvents::default();
        for (of, id) in [(known, 1), (known, 2), (other, 3)] {
            changes.add(of, ThreadId(id));
        }
        let again = [ProcEvent::Changed(known); 64];
        assert_eq!(changes.affected(&again), [1, 2].map(ThreadId));
        let lost = [ProcEvent::Lost, ProcEvent::Changed(known), ProcEvent::Lost];
        assert_eq!(changes.affected(&lost), [1, 2, 3].map(ThreadId));
    }
}
