//! Thread that hands the record to a sink while the run goes on.
//!
//! Model: an ordinary thread exchanges the lists of a root by empty ones of the same size under the
//! root lock, sorts the entries and passes them on. The exchange moves pointers only. A list that
//! fills up in between loses entries: the sink gets the entries before the first missing one.

use super::context::LiveState;
use crate::record::{RecordEntry, RecordSink};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use talea_os::pi_mutex::PiMutex;

/// Time between two exchanges.
const PERIOD: Duration = Duration::from_millis(100);

/// Streamed root with its empty lists.
pub(super) struct StreamedRoot {
    /// Index of the root.
    pub(super) number: usize,
    pub(super) state: Arc<PiMutex<LiveState>>,
    /// `lists[c]`: empty list for CPU `c`, as large as the list of its log.
    pub(super) lists: Vec<Vec<RecordEntry>>,
    /// Number of the next entry; `None` after a missing entry.
    pub(super) next: Option<u64>,
}

impl StreamedRoot {
    /// Creates empty lists for `cpus` CPUs.
    pub(super) fn new(
        number: usize,
        state: Arc<PiMutex<LiveState>>,
        cpus: usize,
        room: usize,
    ) -> StreamedRoot {
        let lists = (0..cpus).map(|_| Vec::with_capacity(room)).collect();
        StreamedRoot { number, state, lists, next: Some(0) }
    }

    fn drain(&mut self, merged: &mut Vec<RecordEntry>, sink: &mut dyn RecordSink) {
        self.state.lock().exchange_logs(&mut self.lists);
        merged.clear();
        for list in &mut self.lists {
            merged.append(list);
        }
        merged.sort_unstable_by_key(|entry| entry.number);
        let Some(first) = self.next else { return };
        let whole = (first..).zip(&*merged).take_while(|(number, entry)| entry.number == *number);
        let count = whole.count();
        self.next = (count == merged.len()).then_some(first + count as u64);
        if count > 0 {
            sink.take(self.number, &merged[..count]);
        }
    }
}

/// Passes the entries to `sink` until the other end of `over` is dropped, and then all remaining
/// entries.
pub(super) fn run(roots: &mut [StreamedRoot], sink: &mut dyn RecordSink, over: &Receiver<()>) {
    let mut merged = Vec::new();
    loop {
        let is_over = over.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout);
        for root in &mut *roots {
            root.drain(&mut merged, sink);
        }
        if is_over {
            return;
        }
    }
}
