//! Flows: tokens that jobs move explicitly, as the two ends of a channel and the engine count them.
//!
//! Model (docs/model.md, section 8): what a job pushes becomes visible at its end, and what it pops
//! makes room at its end. Both are counted here while the job runs, delivered to the engine in the
//! step of its end under the root lock, and then committed. So an end that reads the counts in
//! between sees the state of the engine. One task pushes and one pops, and the jobs of a task run
//! one after the other: each count has one writer at a time. Pushing and popping take no lock. The
//! count that a job has found entitles it to a datum, or to a cell that an ended job has emptied
//! (`Tokens`; the tests run all interleavings).

use crate::mpsc_stack::AtomicInt;
use std::sync::atomic::{AtomicU32, Ordering};
use talea_core::engine::TaskId;
use talea_core::mutate;

/// Flow of one channel.
#[derive(Debug)]
pub struct Flow {
    from: TaskId,
    to: TaskId,
    size: u32,
    tokens: Tokens,
}

impl Flow {
    /// Creates the flow of a channel between two tasks with capacity `size`. The flow starts with
    /// `there` data.
    pub fn new(from: TaskId, to: TaskId, size: u32, there: u32) -> Flow {
        Flow { from, to, size, tokens: Tokens::new(size, there.min(size)) }
    }

    /// Pushes a datum in a job of the source. Returns whether there was room.
    pub fn push(&self) -> bool {
        self.tokens.push()
    }

    /// Whether there is room for a datum of the source. No other task pushes.
    pub fn has_room(&self) -> bool {
        self.tokens.has_room()
    }

    /// Pops a datum in a job of the sink. Returns whether there was one.
    pub fn pop(&self) -> bool {
        self.tokens.pop()
    }

    /// Empties the flow for another run.
    pub fn clear(&self) {
        self.reset_to(0);
    }

    /// Returns the number of data that no job has popped. For a channel without data, these are its
    /// tokens.
    pub fn visible(&self) -> u32 {
        self.tokens.visible.load(Ordering::Acquire)
    }

    /// Resets the flow after a run to the tokens that have activated no job. The next run does not
    /// need the other data; the owner of the data drops them, the oldest first.
    pub(crate) fn reset_to(&self, unclaimed: u32) {
        self.tokens.reset(self.size, unclaimed);
    }

    /// Returns the tasks whose jobs push and pop.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = TaskId> {
        let to = (self.to != self.from).then_some(self.to);
        std::iter::once(self.from).chain(to)
    }

    /// Returns the numbers of data that the current job of `task` has popped and pushed in this
    /// flow, and resets both numbers.
    pub(crate) fn take_moved(&self, task: TaskId) -> (u32, u32) {
        let popped = if self.to == task { self.tokens.take_popped() } else { 0 };
        let pushed = if self.from == task { self.tokens.take_pushed() } else { 0 };
        (popped, pushed)
    }

    /// Commits the numbers of popped and pushed data, after they were delivered to the engine.
    pub(crate) fn commit(&self, popped: u32, pushed: u32) {
        self.tokens.commit(popped, pushed);
    }
}

/// Counts of a flow; the atomic type is a parameter for loom.
#[derive(Debug)]
struct Tokens<W = AtomicU32> {
    /// Number of data that may be popped.
    visible: W,
    /// Number of cells that may be filled.
    room: W,
    /// Number of data pushed by the current job.
    pushed: W,
    popped: W,
}

impl<W: AtomicInt> Tokens<W> {
    fn new(size: u32, there: u32) -> Tokens<W> {
        Tokens {
            visible: W::new(there),
            room: W::new(size - there),
            pushed: W::new(0),
            popped: W::new(0),
        }
    }

    fn push(&self) -> bool {
        let is_room = decrement_if_positive(&self.room);
        if is_room {
            self.pushed.add(1, Ordering::AcqRel);
            mutate!("exec-flow-early", {}, {
                self.visible.add(1, Ordering::AcqRel);
            });
        }
        is_room
    }

    fn has_room(&self) -> bool {
        self.room.load(Ordering::Acquire) > 0
    }

    fn pop(&self) -> bool {
        let is_one = decrement_if_positive(&self.visible);
        if is_one {
            self.popped.add(1, Ordering::AcqRel);
        }
        is_one
    }

    fn take_popped(&self) -> u32 {
        self.popped.swap(0, Ordering::AcqRel)
    }

    fn take_pushed(&self) -> u32 {
        self.pushed.swap(0, Ordering::AcqRel)
    }

    fn commit(&self, popped: u32, pushed: u32) {
        mutate!(
            "exec-flow-room",
            self.room.add(popped, mutate!("exec-flow-order", Ordering::AcqRel, Ordering::Relaxed))
        );

        self.visible.add(pushed, Ordering::AcqRel);
    }

    /// Resets the counts. Called while no thread uses the flow.
    fn reset(&self, size: u32, unclaimed: u32) {
        self.pushed.store(0, Ordering::Release);
        self.popped.store(0, Ordering::Release);
        self.visible.store(unclaimed, Ordering::Release);
        self.room.store(size.saturating_sub(unclaimed), Ordering::Release);
    }
}

/// Decrements a count if it is positive. Returns whether it was positive.
fn decrement_if_positive(count: &impl AtomicInt) -> bool {
    let mut there = count.load(Ordering::Acquire);
    while there > 0 {
        match count.compare_exchange_weak(there, there - 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(other) => there = other,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    type Shared = loom::sync::atomic::AtomicU32;

    #[test]
    fn y10_pushed_data_are_visible_and_popped_ones_make_room_only_when_the_job_has_ended() {
        let (from, to) = (TaskId(0), TaskId(1));
        let flow = Flow::new(from, to, 2, 0);
        assert!(flow.push() && flow.push() && !flow.push(), "there is room for two");
        assert!(!flow.pop(), "no job has ended");
        assert_eq!(flow.take_moved(to), (0, 0));
        assert_eq!(flow.take_moved(from), (0, 2));
        flow.commit(0, 2);
        assert!(flow.pop() && !flow.push(), "the room is not there yet");
        assert_eq!(flow.take_moved(to), (1, 0));
        flow.commit(1, 0);
        assert!(flow.push() && !flow.push() && flow.pop() && !flow.pop());
        let full = Flow::new(from, to, 2, 9);
        assert!(!full.push() && full.pop() && full.pop() && !full.pop());
    }

    const SIZE: u32 = 2;
    /// Content of a cell whose last datum was popped.
    const TAKEN: u32 = 0;

    /// A channel as its two ends use it: only the counts let them access a cell.
    struct Channel {
        tokens: Tokens<Shared>,
        cells: [Shared; SIZE as usize],
        /// Number of data as the engine counts them, behind the root lock.
        engine: Mutex<u32>,
    }

    impl Channel {
        /// Ends a job, as a step does.
        fn end(&self, popped: u32, pushed: u32) {
            let mut count = self.engine.lock().unwrap();
            *count = count.checked_sub(popped).expect("the engine knows the popped data");
            *count += pushed;
            assert!(*count <= SIZE, "there is no room for it");
            self.tokens.commit(popped, pushed);
        }

        /// Pushes data from number `next` on while there is room. Returns the number of the first
        /// datum that found no room.
        fn put(&self, mut next: u32) -> u32 {
            while self.tokens.push() {
                let cell = &self.cells[(next % SIZE) as usize];
                // Only the count orders these two.
                assert_eq!(
                    cell.load(Ordering::Relaxed),
                    TAKEN,
                    "the cell was emptied before its room was committed"
                );
                cell.store(1 + next, Ordering::Relaxed);
                next += 1;
            }
            next
        }

        fn take(&self, mut next: u32) -> u32 {
            while self.tokens.pop() {
                let cell = &self.cells[(next % SIZE) as usize];
                assert_eq!(cell.load(Ordering::Relaxed), 1 + next, "the datum is there, in order");
                cell.store(TAKEN, Ordering::Relaxed);
                next += 1;
            }
            next
        }
    }

    fn model(check: impl Fn(Arc<Channel>) + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let word = || Shared::new(0);
            let channel = Channel {
                tokens: Tokens::new(SIZE, 0),
                cells: [word(), word()],
                engine: Mutex::new(0),
            };
            check(Arc::new(channel));
        });
    }

    #[test]
    fn y10_in_every_interleaving_a_counted_datum_is_there_and_a_cell_with_room_is_empty() {
        model(|channel| {
            let source = thread::spawn({
                let channel = Arc::clone(&channel);
                move || {
                    (0..2).fold(0, |next, _| {
                        let put = channel.put(next);
                        let pushed = channel.tokens.take_pushed();
                        assert_eq!(pushed, put - next, "each pushed datum is counted once");
                        channel.end(0, pushed);
                        put
                    })
                }
            });
            let taken = (0..2).fold(0, |next, _| {
                let taken = channel.take(next);
                let popped = channel.tokens.take_popped();
                assert_eq!(popped, taken - next, "each popped datum is counted once");
                channel.end(popped, 0);
                taken
            });
            let put = source.join().unwrap();
            let count = *channel.engine.lock().unwrap();
            let [visible, room] = [&channel.tokens.visible, &channel.tokens.room]
                .map(|word| word.load(Ordering::Acquire));
            assert_eq!((count, visible, room), (put - taken, put - taken, SIZE + taken - put));
        });
    }

    #[test]
    fn y10_in_every_interleaving_another_thread_may_step_for_the_end_of_a_job() {
        // A worker pushes itself on a stack at the end of its job, and the dispatcher drains it: a
        // release and an acquire.
        model(|channel| {
            let reported = Arc::new(Shared::new(0));
            let source = thread::spawn({
                let (channel, reported) = (Arc::clone(&channel), Arc::clone(&reported));
                move || {
                    channel.put(0);
                    reported.store(1, Ordering::Release);
                }
            });
            let sink = thread::spawn({
                let channel = Arc::clone(&channel);
                move || {
                    let taken = channel.take(0);
                    channel.end(channel.tokens.take_popped(), 0);
                    taken
                }
            });
            if reported.load(Ordering::Acquire) == 1 {
                let pushed = channel.tokens.take_pushed();
                assert_eq!(pushed, SIZE, "the thread that sees the end sees all pushed data");
                channel.end(0, pushed);
            }
            source.join().unwrap();
            let taken = sink.join().unwrap();
            assert!(*channel.engine.lock().unwrap() <= SIZE - taken);
        });
    }
}
