//! Accepts connections, also when no descriptors are left.
//!
//! A round accepts up to [`MAX_ACCEPTS`] connections and adds those whose turn it is to the broker,
//! for at most [`QUANTUM`] (module `accept_queue`).
//!
//! The acceptor's spare descriptors also serve root, and users with grants that have no connection,
//! when other clients have used up the rest.
//!
//! | state | transition | next state |
//! | --- | --- | --- |
//! | *listening* | a connection is accepted | *listening* |
//! | *listening* | EMFILE: close a spare, accept root or a user with grants | *listening* |
//! | *listening* | EMFILE: close a spare, queue the connection, drop one of the longest queue, reopen | *listening* |
//! | *listening* | EMFILE, the last spare cannot be reopened | *paused*, [`SHORT_PAUSE`] |
//! | *listening* | other error | *paused*, [`PAUSE`] |
//! | *paused*: the listeners are not watched | the pause expires | *listening* |
//!
//! A connection that is accepted must be closed at some time, which may block. So with too many
//! pending closes (module `deferred_close`), only root can connect:
//!
//! | state | transition | next state |
//! | --- | --- | --- |
//! | *open* | too many pending closes: the mode of the sockets excludes other users | *restricted* |
//! | *open* | the mode cannot be changed, because the sockets are another user's | *paused* |
//! | *restricted* | [`PAUSE`] later, few enough pending closes: restore the mode | *open* |
//!
//! In the state *restricted*, connections of other users that wait in the backlog are accepted: the
//! backlog bounds them, and root does not wait behind them.

use super::Daemon;
use std::io;
use std::os::fd::OwnedFd;
use talea_broker::{Input, Peer, Subject};
use talea_core::{Monotonic, Span, mutate};
use talea_os::{clock, peer, proc, seqpacket};

/// Maximum number of connections accepted from one listener per round. An accept alone costs less
/// than a request.
const MAX_ACCEPTS: usize = 8;
/// Time per round after which no further connection is added to the broker. Adding one costs
/// several requests.
const QUANTUM: Span = Span::from_ns(30_000);
/// Number of connections beyond a user's quota that wait for their turn. The others are dropped,
/// and do not receive the refusal.
const MAX_REFUSED_WAITING: u32 = 4;
/// Number of spare descriptors that only root may use: a socket and a pidfd for each of its
/// connections.
const ROOT_SPARES: usize = 8;
/// Pause of the listeners when the reserve does not help.
const PAUSE: Span = Span::from_ns(100_000_000);
/// Pause of the listeners while the rejected connection still uses the reserve's descriptor.
const SHORT_PAUSE: Span = Span::from_ns(1_000_000);

impl Daemon {
    /// Accepts connections from a ready listener.
    pub(super) fn accept_ready(&mut self, now: Monotonic, index: u64) {
        let index = index as usize;
        if self.deferred_close.is_over_limit() && !self.restrict(now) {
            return;
        }
        let mut begun = clock::now();
        for _ in 0..MAX_ACCEPTS {
            // A free descriptor is first of all a spare again.
            self.acceptor.reopen_spares();
            match self.acceptor.accept(index) {
                Ok(None) => return,
                Ok(Some(socket)) => begun = self.enqueue_connection(socket, begun),
                Err(error) if !self.accept_without_descriptors(now, index, &error) => return,
                Err(_) => {}
            }
        }
    }

    /// Lets only root connect. Pauses the listeners and returns `false` if that is not possible.
    #[cold]
    fn restrict(&mut self, now: Monotonic) -> bool {
        if self.acceptor.is_restricted() {
            return true;
        }
        let restricted = mutate!(
            "recovery-close-restrict",
            self.acceptor.restrict(now, PAUSE),
            Err(io::ErrorKind::Unsupported.into())
        );
        if self.limiters.restricted.allows(now) {
            let who = match &restricted {
                Ok(()) => "only root can connect".to_owned(),
                Err(error) => format!("no connection is accepted, not even root's ({error})"),
            };
            self.log.error(format_args!(
                "{who}: too many descriptors sent by clients wait to be closed"
            ));
        }
        if restricted.is_err() {
            self.acceptor.pause(now, PAUSE, &self.epoll);
        }
        restricted.is_ok()
    }

    /// Ends the pause of the listeners, and lets all users connect again, when it is time.
    pub(super) fn resume_accepting(&mut self, now: Monotonic) {
        self.acceptor.resume(now, &self.epoll);
        if !self.acceptor.is_unrestricting(now) {
            return;
        }
        let is_over_limit = self.deferred_close.is_over_limit();
        let changed = if is_over_limit {
            self.acceptor.restrict(now, PAUSE)
        } else {
            self.acceptor.unrestrict(now, PAUSE)
        };
        let Err(error) = changed else { return };
        if is_over_limit {
            self.acceptor.pause(now, PAUSE, &self.epoll);
        }
        if self.limiters.rejected.allows(now) {
            self.log.error(format_args!("the mode of the socket cannot be changed: {error}"));
        }
    }

    /// Handles an accept that failed: accepts one connection with a spare descriptor. Returns
    /// `false` if no further connection can be accepted in this round.
    #[cold]
    fn accept_without_descriptors(
        &mut self,
        now: Monotonic,
        index: usize,
        error: &io::Error,
    ) -> bool {
        let full = error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error());
        let accepted = if mutate!("recovery-no-descriptors", full, false) {
            self.acceptor.accept_with_spare(index)
        } else {
            Err(io::ErrorKind::Other.into())
        };
        let connection = match accepted {
            Ok(None) => return false,
            Ok(Some(connection)) => Some(connection),
            Err(_) => None,
        };
        if self.limiters.rejected.allows(now) {
            self.log.error(format_args!("connections are rejected: accept failed: {error}"));
        }
        let Some(connection) = connection else {
            self.acceptor.pause(now, PAUSE, &self.epoll);
            return false;
        };
        self.admit_with_spares(now, connection);
        let has_spare = self.acceptor.spares() > 0;
        if !has_spare {
            self.acceptor.pause(now, SHORT_PAUSE, &self.epoll);
        }
        has_spare
    }

    /// Adds a connection of root, or of a user with grants that has no connection, with spare
    /// descriptors. Any other connection waits for its turn in place of one of the longest queue.
    fn admit_with_spares(&mut self, now: Monotonic, socket: OwnedFd) {
        let Ok(uid) = peer::user(&socket) else { return };
        let subject = self.broker.subject_of_specs(uid);
        let kept = match subject {
            Subject::ROOT => Some(0),
            _ => matches!(self.broker.usage(subject), (0, 1..)).then_some(ROOT_SPARES),
        };
        // One more for the pidfd of the client's process, and one to reject the next connection.
        let is_admitted = kept.is_some_and(|kept| self.acceptor.spares() >= kept + 2);
        if mutate!("recovery-spares", is_admitted, false) {
            self.acceptor.close_spare();
            return self.add_or_log(now, socket);
        }
        self.acceptor.queue.push(subject.number(), socket);
        if let Some((user, dropped)) = self.acceptor.queue.drop_from_longest() {
            self.deferred_close.hang_up(user, dropped);
        }
        self.acceptor.reopen_spares();
    }

    /// Queues an accepted connection, and charges its user for the time since `begun`. Returns the
    /// current time.
    fn enqueue_connection(&mut self, socket: OwnedFd, begun: Monotonic) -> Monotonic {
        let Ok(uid) = peer::user(&socket) else { return begun };
        let subject = self.broker.subject_of_specs(uid);
        self.enqueue_for(subject, socket);
        let now = clock::now();
        self.priority.charge_share(subject.number(), begun, now);
        now
    }

    /// Queues an accepted connection, or drops it if its user is beyond the quota.
    fn enqueue_for(&mut self, subject: Subject, socket: OwnedFd) {
        let queue = &mut self.acceptor.queue;
        let quota = self.broker.quota();
        let held = self.broker.usage(subject).0 as usize + queue.len_of(subject.number());
        let most = quota.sessions_per_user.saturating_add(MAX_REFUSED_WAITING) as usize;
        if subject != Subject::ROOT && held >= most {
            return self.deferred_close.hang_up(subject.number(), socket);
        }
        let is_full = queue.len() >= quota.sessions as usize;
        queue.push(subject.number(), socket);
        if is_full && let Some((user, dropped)) = queue.drop_from_longest() {
            self.deferred_close.hang_up(user, dropped);
        }
    }

    /// Adds the waiting connections whose turn it is to the broker, for at most one quantum.
    #[inline(never)]
    pub(super) fn add_waiting(&mut self, now: Monotonic) {
        let mut begun = clock::now();
        let end = begun.saturating_add(QUANTUM);
        while let Some((user, socket)) = self.acceptor.queue.pop(now, self.broker.quota()) {
            // A client that has left meanwhile costs no more than this check.
            if seqpacket::has_ended(&socket) {
                self.deferred_close.hang_up(user, socket);
            } else {
                self.add_or_log(now, socket);
            }
            let done = clock::now();
            self.priority.charge_share(user, begun, done);
            begun = done;
            if self.exit.is_some() || done >= end {
                return;
            }
        }
    }

    /// Returns the time at which a waiting connection has its turn.
    pub(super) fn next_turn(&self) -> Option<Monotonic> {
        if !self.acceptor.has_waiting() {
            return None;
        }
        self.acceptor.queue.next_turn(self.broker.quota())
    }

    /// Closes the waiting connections at the end of the daemon.
    pub(super) fn drop_waiting(&mut self) {
        while let Some((user, socket)) = self.acceptor.queue.drop_from_longest() {
            self.deferred_close.hang_up(user, socket);
        }
    }

    fn add_or_log(&mut self, now: Monotonic, socket: OwnedFd) {
        if let Err(error) = self.add_connection(now, socket) {
            self.log.debug(format_args!("a new connection was lost: {error}"));
        }
    }

    /// Adds a new connection, and passes the credentials of its peer to the broker.
    pub(super) fn add_connection(&mut self, now: Monotonic, socket: OwnedFd) -> io::Result<()> {
        let credentials = peer::credentials(&socket)?;
        let peer = Peer {
            pid: credentials.pid.map_or(0, |tid| tid.as_raw() as u32),
            // An exited process has no start time; the end of its connection follows.
            pid_start: credentials
                .pid
                .and_then(|tid| Some(proc::stat(tid).ok()?.start_ticks))
                .unwrap_or(0),
            uid: credentials.uid,
            gid: credentials.gid,
            groups: credentials.groups,
        };
        let share = self.broker.subject_of_specs(peer.uid).number();
        let session = self.sessions.add(socket, (peer.uid, share), &self.epoll)?;
        self.handle_input(now, Input::Connected { session, peer });
        Ok(())
    }
}
