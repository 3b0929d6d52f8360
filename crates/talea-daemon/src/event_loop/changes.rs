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

use super::Daemon;
use super::token::Token;
use std::collections::BTreeSet;
use std::io;
use talea_broker::{Input, ThreadId};
use talea_core::mutate;
use talea_core::{Monotonic, Span};
use talea_os::Tid;
use talea_os::epoll::{Epoll, Interest};
use talea_os::proc_events::{ProcEvent, ProcEvents};

/// Maximum number of process events handled per round.
const MAX_EVENTS: u32 = 64;

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
    /// Whether a process has got its first attached thread, or the last thread was detached.
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
    /// Starts watching an attached thread.
    pub(super) fn add(&mut self, process: Tid, thread: ThreadId) {
        let is_known = self.of_process(process).next().is_some();
        self.is_stale |= !is_known;
        self.threads.insert((process, thread));
    }

    /// Stops watching a thread. Its process stays in the filter until the filter changes anyway.
    pub(super) fn remove(&mut self, process: Tid, thread: ThreadId) {
        self.threads.remove(&(process, thread));
        self.is_stale |= self.threads.is_empty();
    }

    /// Returns the time at which the daemon must call [`Daemon::update_change_events`].
    pub(super) fn next_due(&self) -> Option<Monotonic> {
        self.closes_at
    }

    pub(super) fn of_process(&self, process: Tid) -> impl Iterator<Item = ThreadId> {
        let all = (process, ThreadId(0))..=(process, ThreadId(u64::MAX));
        self.threads.range(all).map(|&(_, thread)| thread)
    }

    /// Opens or closes the socket, or changes its filter. Returns the processes that are watched
    /// from now on.
    fn update(&mut self, now: Monotonic, epoll: &Epoll) -> io::Result<Vec<Tid>> {
        self.is_stale = false;
        if self.threads.is_empty() {
            let closes_at = *self.closes_at.get_or_insert(now.saturating_add(LINGER));
            if closes_at <= now {
                // Closing the only descriptor also ends the watch.
                self.socket = None;
                self.filtered.clear();
                self.closes_at = None;
            }
            return Ok(Vec::new());
        }
        self.closes_at = None;
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

impl Daemon {
    /// Updates the subscription to process events after a round.
    #[inline]
    pub(super) fn update_change_events(&mut self, now: Monotonic) {
        let changes = &self.threads.changes;
        if changes.is_stale || changes.closes_at.is_some_and(|at| at <= now) {
            self.update_stale_change_events(now);
        }
    }

    #[cold]
    fn update_stale_change_events(&mut self, now: Monotonic) {
        let added =
            mutate!("daemon-change-events", self.threads.changes.update(now, &self.epoll), {
                self.threads.changes.is_stale = false;
                Ok(Vec::new())
            });
        match added {
            Ok(added) => {
                for process in added {
                    self.check_process(now, process);
                }
            }
            Err(error) => {
                // The next inspection detects what the socket does not report.
                self.threads.changes.socket = None;
                self.threads.changes.filtered.clear();
                if self.unwatched_limiter.allows(now) {
                    self.log.warning(format_args!(
                        "process events are not received: {error}; changes of credentials are \
                         detected by inspection"
                    ));
                }
            }
        }
    }

    /// Handles process events.
    pub(super) fn on_proc_events(&mut self, now: Monotonic) {
        for _ in 0..MAX_EVENTS {
            let Some(socket) = &self.threads.changes.socket else { return };
            match socket.next() {
                Ok(None) => return,
                Ok(Some(ProcEvent::Changed(process))) => self.check_process(now, process),
                Ok(Some(ProcEvent::Lost)) => {
                    let all: Vec<ThreadId> =
                        self.threads.changes.threads.iter().map(|&(_, thread)| thread).collect();
                    for thread in all {
                        self.check_credentials(now, thread);
                    }
                }
                Err(_) => {
                    // Reopened with the next process; inspections go on.
                    self.threads.changes.socket = None;
                    self.threads.changes.filtered.clear();
                    return;
                }
            }
        }
    }

    fn check_process(&mut self, now: Monotonic, process: Tid) {
        let threads: Vec<ThreadId> = self.threads.changes.of_process(process).collect();
        for thread in threads {
            self.check_credentials(now, thread);
        }
    }

    /// Informs the broker if the credentials of a thread have changed.
    pub(super) fn check_credentials(&mut self, now: Monotonic, thread: ThreadId) {
        if let Some(uids) = self.threads.changed_uids(thread) {
            self.handle_input(now, Input::CredentialsChanged { thread, uids });
        }
    }

    /// Informs the broker of the thread's overruns since the last report.
    pub(super) fn report_overruns(&mut self, now: Monotonic, thread: ThreadId) {
        if let Some((overruns, consumed)) = self.threads.new_overruns(thread) {
            self.broker.handle(now, Input::Overran { thread, overruns, consumed });
        }
    }

    /// Compares the next threads with what the broker knows of them. Called between two effects.
    pub(super) fn inspect(&mut self, now: Monotonic, count: u32) {
        // A demoted thread differs, too; the broker must know the reason first.
        for thread in self.threads.take_demoted() {
            self.report_overruns(now, thread);
            self.broker.handle(now, Input::Overrun { thread });
        }
        self.check_cpus(now);
        let reads_uids = self.threads.changes.socket.is_none();
        for _ in 0..count.min(self.threads.changes.threads.len() as u32) {
            let Some(thread) = self.threads.next_to_inspect() else { return };
            self.report_overruns(now, thread);
            if reads_uids && let Some(uids) = self.threads.changed_uids(thread) {
                self.broker.handle(now, Input::CredentialsChanged { thread, uids });
            }
            if let Some(attr) = self.threads.changed_attr(thread) {
                self.broker.handle(now, Input::AttrChanged { thread, attr });
            }
        }
    }
}
