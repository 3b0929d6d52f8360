//! State of a round of fair queueing: the time of each user, and the connections that wait.
//! Module `serve` has the rules.

use talea_core::Span;
use talea_os::epoll::Events;

/// Number of events read from a nested set at once.
pub(super) const BATCH: usize = 8;

/// A ready connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) uid: u32,
    pub(super) session: u64,
    pub(super) hung_up: bool,
}

/// State of one round; the buffers are reused.
pub(super) struct FairQueue {
    /// Users served in this round, sorted, with the time of their messages after the first one.
    served: Vec<(u32, Span)>,
    /// Ready connections of users that have already been served.
    pub(super) deferred: Vec<Ready>,
    /// Users whose nested sets have ready connections.
    pub(super) nested_ready: Vec<u32>,
    /// Event buffer for nested sets; absent while in use.
    pub(super) batch: Option<Events>,
}

impl Default for FairQueue {
    fn default() -> FairQueue {
        let batch = Some(Events::with_capacity(BATCH));
        FairQueue { served: Vec::new(), deferred: Vec::new(), nested_ready: Vec::new(), batch }
    }
}

impl FairQueue {
    /// Marks `uid` as served; returns whether this was the first time in this round.
    pub(super) fn first_in_round(&mut self, uid: u32) -> bool {
        match self.served.binary_search_by_key(&uid, |&(uid, _)| uid) {
            Ok(_) => false,
            Err(at) => {
                self.served.insert(at, (uid, Span::ZERO));
                true
            }
        }
    }

    /// Returns the time charged to `uid` in this round.
    pub(super) fn used_by(&mut self, uid: u32) -> &mut Span {
        let at = self
            .served
            .binary_search_by_key(&uid, |&(uid, _)| uid)
            .expect("the user was marked as served first");
        &mut self.served[at].1
    }

    /// Ends the round.
    pub(super) fn end_round(&mut self) {
        self.deferred.clear();
        self.served.clear();
    }
}
