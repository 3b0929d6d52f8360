//! Data from one task to another.
//!
//! Model (docs/model.md, section 8): a bounded first-in first-out queue. What a job puts in can be
//! taken when the job has ended, and what it takes makes room when it has ended ([`Flow`]). Nobody
//! waits: a full channel takes nothing and an empty one gives nothing, which is counted. The queue
//! has no lock, because whoever puts or takes may be stopped in the middle of it; and since one end
//! is one task, whose jobs come one after the other, and the flow lets nobody touch a cell before
//! the job that had it last has ended, nobody ever spins for another one's next step there. Whoever
//! does no job of the task at an end is turned away ([`Doing`]).

use crate::doing::Doing;
use crossbeam_queue::ArrayQueue;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use talea_core::mutate;
use talea_exec::{Flow, panics};

/// What became of what was put and taken.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) full: AtomicU64,
    pub(crate) empty: AtomicU64,
}

/// Whose an end is.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) doing: Doing,
    /// Its name, when the channel was declared.
    pub(crate) task: String,
}

impl Counts {
    /// A run that had to be ended has told nobody.
    pub(crate) fn forget(&self) {
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

impl<T> Shared<T> {
    #[cold]
    fn turn_away(&self, whose: &End, does: &str) -> ! {
        let (from, to, whose) = (&self.from.task, &self.to.task, &whose.task);
        panic!(
            "the channel from {from} to {to}: only a job of {whose} {does}, in the thread that does it"
        );
    }
}

impl<T> Output<T> {
    /// Whether the calling thread may put something in: it does a job of the source.
    pub fn is_mine(&self) -> bool {
        self.0.from.doing.is_under_way()
    }

    /// Puts one in, from a job of the source.
    ///
    /// # Errors
    /// Gives it back if the channel is full.
    ///
    /// # Panics
    /// If the calling thread does [no such job](Output::is_mine).
    pub fn push(&self, value: T) -> Result<(), T> {
        if self.has_room() { self.put(value) } else { Err(value) }
    }

    /// Puts in what `value` makes, which is asked only when there is room; whether there was.
    /// Whatever room a job finds belonged to jobs that have ended, so what these have given back is
    /// there, complete. If `value` panics nothing was put in.
    ///
    /// # Panics
    /// As [`push`](Output::push).
    pub fn push_with(&self, value: impl FnOnce() -> T) -> bool {
        self.has_room() && self.put(value()).is_ok()
    }

    /// There is as much in the queue as the flow says: what is put is counted just before, with
    /// nothing between that could fail.
    fn put(&self, value: T) -> Result<(), T> {
        if self.0.flow.push() { self.0.data.push(value) } else { Err(value) }
    }

    fn has_room(&self) -> bool {
        mutate!(
            "runtime-channel-anybody",
            {
                if !self.is_mine() {
                    self.0.turn_away(&self.0.from, "puts something in");
                }
            },
            {}
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
    /// Whether the calling thread may take something out: it does a job of the sink.
    pub fn is_mine(&self) -> bool {
        self.0.to.doing.is_under_way()
    }

    /// Takes the first out, from a job of the sink; nothing, if the channel is empty.
    ///
    /// # Panics
    /// If the calling thread does [no such job](Input::is_mine).
    pub fn pop(&self) -> Option<T> {
        mutate!(
            "runtime-channel-sink",
            {
                if !self.is_mine() {
                    self.0.turn_away(&self.0.to, "takes something out");
                }
            },
            {}
        );

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
    /// Throws away what is left in it but for the last so many. What panics while it is thrown away
    /// is gone all the same.
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

/// Both ends of a channel with room for `size`, and whose they are.
pub(crate) fn channel<T: Send + 'static>(
    flow: Flow,
    size: u32,
    (from, to): (End, End),
) -> (Output<T>, Input<T>, Kept) {
    let (flow, counts) = (Arc::new(flow), Arc::new(Counts::default()));
    let data = ArrayQueue::new(size.max(1) as usize);
    let shared =
        Arc::new(Shared { from, to, flow: Arc::clone(&flow), counts: Arc::clone(&counts), data });
    let trim = {
        let shared = Arc::clone(&shared);
        Box::new(move |left| {
            while shared.data.len() > left {
                mutate!(
                    "runtime-channel-bomb",
                    {
                        if let Err(panic) =
                            catch_unwind(AssertUnwindSafe(|| drop(shared.data.pop())))
                        {
                            // The hook of the program has said it, as of any panic.
                            drop(panics::said(panic));
                        }
                    },
                    {
                        drop(shared.data.pop());
                    }
                );
            }
        })
    };
    (Output(Arc::clone(&shared)), Input(shared), Kept { flow, counts, trim })
}

#[cfg(test)]
mod tests;
