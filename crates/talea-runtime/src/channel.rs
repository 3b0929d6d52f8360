//! Data from one task to another.
//!
//! Model (docs/model.md, section 8): a bounded first-in first-out queue. What a job puts in can be taken when the job has ended, and
//! what it takes makes room when it has ended ([`Flow`]). Nobody waits: a full channel takes nothing and an empty one gives nothing,
//! which is counted. The queue has no lock, because whoever puts or takes may be stopped in the middle of it; and since one end is one
//! task, whose jobs come one after the other, and the flow lets nobody touch a cell before the job that had it last has ended, nobody
//! ever spins for another one's next step there.

use crossbeam_queue::ArrayQueue;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use talea_exec::Flow;

/// What became of what was put and taken.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) full: AtomicU64,
    pub(crate) empty: AtomicU64,
}

struct Shared<T> {
    flow: Arc<Flow>,
    counts: Arc<Counts>,
    data: ArrayQueue<T>,
}

/// The end that the source puts into; each of its versions may have one.
pub struct Output<T>(Arc<Shared<T>>);

/// The end that the sink takes from; each of its versions may have one.
pub struct Input<T>(Arc<Shared<T>>);

impl<T> Clone for Output<T> {
    fn clone(&self) -> Output<T> {
        Output(Arc::clone(&self.0))
    }
}

impl<T> Clone for Input<T> {
    fn clone(&self) -> Input<T> {
        Input(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Output<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("flow", &self.0.flow).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Input<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("flow", &self.0.flow).finish_non_exhaustive()
    }
}

impl<T> Output<T> {
    /// Puts one in, from a job of the source.
    ///
    /// # Errors
    /// Gives it back if the channel is full.
    pub fn push(&self, value: T) -> Result<(), T> {
        if self.has_room() { self.put(value) } else { Err(value) }
    }

    /// Puts in what `value` makes, which is asked only when there is room; whether there was. Whatever room a job finds belonged to
    /// jobs that have ended, so what these have given back is there, complete. If `value` panics nothing was put in.
    pub fn push_with(&self, value: impl FnOnce() -> T) -> bool {
        self.has_room() && self.put(value()).is_ok()
    }

    /// There is as much in the queue as the flow says: what is put is counted just before, with nothing between that could fail.
    fn put(&self, value: T) -> Result<(), T> {
        if self.0.flow.push() { self.0.data.push(value) } else { Err(value) }
    }

    fn has_room(&self) -> bool {
        let is_room = self.0.flow.has_room();
        if !is_room {
            self.0.counts.full.fetch_add(1, Ordering::Relaxed);
        }
        is_room
    }
}

impl<T> Input<T> {
    /// Takes the first out, from a job of the sink; nothing, if the channel is empty.
    pub fn pop(&self) -> Option<T> {
        if !self.0.flow.pop() {
            self.0.counts.empty.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.0.data.pop()
    }
}

/// What the application keeps of a channel, whatever lies in it.
pub(crate) struct Kept {
    pub(crate) flow: Arc<Flow>,
    pub(crate) counts: Arc<Counts>,
    /// Throws away what is left in it but for the last so many.
    trim: Box<dyn Fn(usize) + Send>,
}

impl Kept {
    /// For another start, with empty channels.
    pub(crate) fn clear(&self) {
        (self.trim)(0);
        self.flow.clear();
    }

    /// For another start, with what has activated nobody.
    pub(crate) fn trim(&self) {
        (self.trim)(self.flow.visible() as usize);
    }
}

/// Both ends of a channel with room for `size`.
pub(crate) fn channel<T: Send + 'static>(flow: Flow, size: u32) -> (Output<T>, Input<T>, Kept) {
    let (flow, counts) = (Arc::new(flow), Arc::new(Counts::default()));
    let data = ArrayQueue::new(size.max(1) as usize);
    let shared = Arc::new(Shared { flow: Arc::clone(&flow), counts: Arc::clone(&counts), data });
    let trim = {
        let shared = Arc::clone(&shared);
        Box::new(move |left| while shared.data.len() > left && shared.data.pop().is_some() {})
    };
    (Output(Arc::clone(&shared)), Input(shared), Kept { flow, counts, trim })
}

#[cfg(test)]
mod tests {
    use super::channel;
    use talea_core::machine::TaskId;
    use talea_exec::Flow;

    #[test]
    fn y10_what_panics_while_it_is_made_was_not_put_in_and_takes_no_room() {
        let (put, take, kept) = channel::<u64>(Flow::new(TaskId(0), TaskId(1), 1, 0), 1);
        let made = std::panic::AssertUnwindSafe(|| put.push_with(|| panic!("on purpose")));
        assert!(std::panic::catch_unwind(made).is_err());
        assert!(put.push_with(|| 7), "there is room");
        assert!(!put.push_with(|| unreachable!("there is none")));
        assert_eq!((put.push(8), take.pop()), (Err(8), None), "what was put is seen when its job has ended");
        assert_eq!(kept.counts.full.load(std::sync::atomic::Ordering::Relaxed), 2);
    }
}
