//! Channels: data from one task to another.
//!
//! Model (docs/model.md, section 8): a bounded first-in first-out queue. A pushed datum can be
//! popped when the pushing job has ended, and a popped datum makes room when the popping job has
//! ended ([`Flow`]). No thread waits: a push to a full channel and a pop from an empty channel
//! fail, and are counted. The queue has no lock, because a thread that pushes or pops may be
//! stopped in the middle of the operation. Each end belongs to one task, whose jobs run one after
//! the other. The flow lets no job use a cell before the job that used the cell last has ended. So
//! no thread ever spins for the next instruction of another thread. A thread that does not run a
//! job of the task at an end is rejected ([`CurrentTask`]).

use crate::current_task::CurrentTask;
use crossbeam_queue::ArrayQueue;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use talea_core::mutate;
use talea_exec::{Flow, panics};

/// Numbers of failed operations of a channel.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) full: AtomicU64,
    pub(crate) empty: AtomicU64,
}

/// Owner of an end of a channel.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) owner: CurrentTask,
    /// Name of the owning task when the channel was declared.
    pub(crate) task: String,
}

impl Counts {
    /// Resets the counts, because a run that had to be ended has not reported them.
    pub(crate) fn reset(&self) {
        self.full.store(0, Ordering::Relaxed);
        self.empty.store(0, Ordering::Relaxed);
    }
}

struct Shared<T> {
    from: End,
    to: End,
    flow: Arc<Flow>,
    counts: Arc<Counts>,
    data: ArrayQueue<T>,
}

/// End of a channel to which the source pushes. Each version of the source may have one.
pub struct Output<T>(Arc<Shared<T>>);

/// End of a channel from which the sink pops. Each version of the sink may have one.
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

impl<T> Shared<T> {
    #[cold]
    fn reject(&self, owner: &End, does: &str) -> ! {
        let (from, to, owner) = (&self.from.task, &self.to.task, &owner.task);
        panic!("the channel from {from} to {to}: only a job of {owner} {does}, in its own thread");
    }
}

impl<T> Output<T> {
    /// Whether the calling thread may push, because it runs a job of the source.
    pub fn is_mine(&self) -> bool {
        self.0.from.owner.is_current()
    }

    /// Pushes a datum, in a job of the source.
    ///
    /// # Errors
    /// Returns the datum if the channel is full.
    ///
    /// # Panics
    /// If the calling thread does not run [such a job](Output::is_mine).
    pub fn push(&self, value: T) -> Result<(), T> {
        if self.has_room() { self.put(value) } else { Err(value) }
    }

    /// Pushes the result of `value`, and returns whether there was room. Calls `value` only if
    /// there is room.
    ///
    /// The room belonged to jobs that have ended, so the data that they popped is complete. If
    /// `value` panics, nothing is pushed.
    ///
    /// # Panics
    /// Those of [`push`](Output::push).
    pub fn push_with(&self, value: impl FnOnce() -> T) -> bool {
        self.has_room() && self.put(value()).is_ok()
    }

    /// Pushes to the flow and to the queue, so that the two agree. The flow comes first, and
    /// nothing in between can fail.
    fn put(&self, value: T) -> Result<(), T> {
        let put = || if self.0.flow.push() { self.0.data.push(value) } else { Err(value) };
        mutate!("rows-cost-channel", put(), talea_os::clock::slowed(3, put))
    }

    fn has_room(&self) -> bool {
        mutate!(
            "runtime-channel-any-thread",
            if !self.is_mine() {
                self.0.reject(&self.0.from, "pushes");
            }
        );

        let is_room =
            mutate!("runtime-channel-phantom", self.0.flow.has_room(), self.0.flow.push());
        if !is_room {
            self.0.counts.full.fetch_add(1, Ordering::Relaxed);
        }
        is_room
    }
}

impl<T> Input<T> {
    /// Whether the calling thread may pop, because it runs a job of the sink.
    pub fn is_mine(&self) -> bool {
        self.0.to.owner.is_current()
    }

    /// Pops the first datum, in a job of the sink. Returns `None` if the channel is empty.
    ///
    /// # Panics
    /// If the calling thread does not run [a job of the sink](Input::is_mine).
    pub fn pop(&self) -> Option<T> {
        mutate!(
            "runtime-channel-sink",
            if !self.is_mine() {
                self.0.reject(&self.0.to, "pops");
            }
        );

        if !self.0.flow.pop() {
            self.0.counts.empty.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.0.data.pop()
    }
}

/// State of a channel in the application, for any type of data.
pub(crate) struct ChannelState {
    pub(crate) flow: Arc<Flow>,
    pub(crate) counts: Arc<Counts>,
    /// Drops the oldest data, until as many data are left as the argument states. A datum that
    /// panics when it is dropped is removed, too.
    drop_oldest: Box<dyn Fn(usize) + Send>,
}

impl ChannelState {
    /// Empties the channel for another start.
    pub(crate) fn clear(&self) {
        (self.drop_oldest)(0);
        self.flow.clear();
    }

    /// Drops the data that have activated jobs, for another start.
    pub(crate) fn drop_claimed(&self) {
        (self.drop_oldest)(self.flow.visible() as usize);
    }
}

/// Creates both ends of a channel with room for `size` data, and its state.
pub(crate) fn channel<T: Send + 'static>(
    flow: Flow,
    size: u32,
    (from, to): (End, End),
) -> (Output<T>, Input<T>, ChannelState) {
    let (flow, counts) = (Arc::new(flow), Arc::new(Counts::default()));
    let data = ArrayQueue::new(size.max(1) as usize);
    let shared =
        Arc::new(Shared { from, to, flow: Arc::clone(&flow), counts: Arc::clone(&counts), data });
    let drop_oldest = {
        let shared = Arc::clone(&shared);
        Box::new(move |left| {
            while shared.data.len() > left {
                mutate!(
                    "runtime-channel-bomb",
                    {
                        if let Err(panic) =
                            catch_unwind(AssertUnwindSafe(|| drop(shared.data.pop())))
                        {
                            // The panic hook has reported it.
                            drop(panics::message(panic));
                        }
                    },
                    {
                        drop(shared.data.pop());
                    }
                );
            }
        })
    };
    (Output(Arc::clone(&shared)), Input(shared), ChannelState { flow, counts, drop_oldest })
}

#[cfg(test)]
mod tests;
