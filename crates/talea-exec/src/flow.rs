//! Tokens that jobs move themselves: how many data lie in a channel, as its two ends and the
//! machine see it.
//!
//! Model (docs/model.md, section 8): what a job puts becomes visible when it ends, and what it
//! takes makes room when it ends. So both are counted here while the job runs, told to the machine
//! in the step of its end, under the machine's lock, and only then settled: an end that asks in
//! between sees what the machine sees. One task puts and one takes, and the jobs of a task come one
//! after the other; so each count has one writer at a time. Who puts and who takes hold no lock
//! meanwhile: what makes a datum theirs, and a cell that somebody has emptied, is the count that
//! they have found (`Tokens`, in all interleavings in the tests below).

use crate::letters::Word;
use std::sync::atomic::{AtomicU32, Ordering};
use talea_core::machine::TaskId;
use talea_core::mutate;

/// Of one channel.
#[derive(Debug)]
pub struct Flow {
    from: TaskId,
    to: TaskId,
    size: u32,
    tokens: Tokens,
}

impl Flow {
    /// Of a channel from a task to another with room for so many data, of which some are there.
    pub fn new(from: TaskId, to: TaskId, size: u32, there: u32) -> Flow {
        Flow { from, to, size, tokens: Tokens::new(size, there.min(size)) }
    }

    /// A job of the source puts one in; whether there was room.
    pub fn push(&self) -> bool {
        self.tokens.push()
    }

    /// Whether a job of the source would find room: nobody else puts anything in.
    pub fn has_room(&self) -> bool {
        self.tokens.has_room()
    }

    /// A job of the sink takes one out; whether there was one.
    pub fn pop(&self) -> bool {
        self.tokens.pop()
    }

    /// Nothing is in it any more: for another run.
    pub fn clear(&self) {
        self.leave(0);
    }

    /// Data that lie in it, and that no job has taken; of a channel without data, its tokens.
    pub fn visible(&self) -> u32 {
        self.tokens.visible.load(Ordering::Acquire)
    }

    /// A run is over, and so many tokens have activated nobody: the rest is of no use to another
    /// run. Their data are whoever kept them's to throw away, the oldest first.
    pub(crate) fn leave(&self, unclaimed: u32) {
        self.tokens.leave(self.size, unclaimed);
    }

    /// Whose jobs put, and whose take.
    pub(crate) fn ends(&self) -> impl Iterator<Item = TaskId> {
        let to = (self.to != self.from).then_some(self.to);
        std::iter::once(self.from).chain(to)
    }

    /// What the job of `task` under way has popped and pushed here.
    pub(crate) fn moved_by(&self, task: TaskId) -> (u32, u32) {
        let popped = if self.to == task { self.tokens.popped() } else { 0 };
        let pushed = if self.from == task { self.tokens.pushed() } else { 0 };
        (popped, pushed)
    }

    /// The machine knows.
    pub(crate) fn settle(&self, popped: u32, pushed: u32) {
        self.tokens.settle(popped, pushed);
    }
}

/// The counts; their words are a parameter, for the model checker.
#[derive(Debug)]
struct Tokens<W = AtomicU32> {
    /// Data that may be taken, and have not been.
    visible: W,
    /// Data that may be put.
    room: W,
    /// By the jobs under way.
    pushed: W,
    popped: W,
}

impl<W: Word> Tokens<W> {
    fn new(size: u32, there: u32) -> Tokens<W> {
        Tokens {
            visible: W::new(there),
            room: W::new(size - there),
            pushed: W::new(0),
            popped: W::new(0),
        }
    }

    fn push(&self) -> bool {
        let is_room = one_less(&self.room);
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
        let is_one = one_less(&self.visible);
        if is_one {
            self.popped.add(1, Ordering::AcqRel);
        }
        is_one
    }

    fn popped(&self) -> u32 {
        self.popped.swap(0, Ordering::AcqRel)
    }

    fn pushed(&self) -> u32 {
        self.pushed.swap(0, Ordering::AcqRel)
    }

    fn settle(&self, popped: u32, pushed: u32) {
        mutate!(
            "exec-flow-room",
            {
                self.room
                    .add(popped, mutate!("exec-flow-order", Ordering::AcqRel, Ordering::Relaxed));
            },
            {}
        );

        self.visible.add(pushed, Ordering::AcqRel);
    }

    /// Nobody is at it.
    fn leave(&self, size: u32, unclaimed: u32) {
        self.pushed.store(0, Ordering::Release);
        self.popped.store(0, Ordering::Release);
        self.visible.store(unclaimed, Ordering::Release);
        self.room.store(size.saturating_sub(unclaimed), Ordering::Release);
    }
}

/// Whether there was one to take off.
fn one_less(count: &impl Word) -> bool {
    let mut there = count.load(Ordering::Acquire);
    while there > 0 {
        match count.replace(there, there - 1, Ordering::AcqRel, Ordering::Acquire) {
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
    fn y10_what_is_put_is_seen_and_what_is_taken_makes_room_only_when_the_job_has_ended() {
        let (from, to) = (TaskId(0), TaskId(1));
        let flow = Flow::new(from, to, 2, 0);
        assert!(flow.push() && flow.push() && !flow.push(), "there is room for two");
        assert!(!flow.pop(), "nobody has ended");
        assert_eq!(flow.moved_by(to), (0, 0));
        assert_eq!(flow.moved_by(from), (0, 2));
        flow.settle(0, 2);
        assert!(flow.pop() && !flow.push(), "the room is not there yet");
        assert_eq!(flow.moved_by(to), (1, 0));
        flow.settle(1, 0);
        assert!(flow.push() && !flow.push() && flow.pop() && !flow.pop());
        let full = Flow::new(from, to, 2, 9);
        assert!(!full.push() && full.pop() && full.pop() && !full.pop());
    }

    const SIZE: u32 = 2;
    /// In a cell that its last datum was taken out of.
    const TAKEN: u32 = 0;

    /// A channel as its two ends use it: what they have found in the flow is all that lets them at
    /// a cell.
    struct Channel {
        tokens: Tokens<Shared>,
        cells: [Shared; SIZE as usize],
        /// The machine, behind its lock: what lies in the channel by its account.
        machine: Mutex<u32>,
    }

    impl Channel {
        /// The end of a job, by whoever steps the machine for it.
        fn end(&self, popped: u32, pushed: u32) {
            let mut lies = self.machine.lock().unwrap();
            *lies = lies.checked_sub(popped).expect("the machine knows of what was taken");
            *lies += pushed;
            assert!(*lies <= SIZE, "there is no room for it");
            self.tokens.settle(popped, pushed);
        }

        /// Puts the data from `next` on, as many as there is room for; the first that found none.
        fn put(&self, mut next: u32) -> u32 {
            while self.tokens.push() {
                let cell = &self.cells[(next % SIZE) as usize];
                // Nobody but the count orders these two.
                assert_eq!(
                    cell.load(Ordering::Relaxed),
                    TAKEN,
                    "it was given back, and before that it was emptied"
                );
                cell.store(1 + next, Ordering::Relaxed);
                next += 1;
            }
            next
        }

        fn take(&self, mut next: u32) -> u32 {
            while self.tokens.pop() {
                let cell = &self.cells[(next % SIZE) as usize];
                assert_eq!(cell.load(Ordering::Relaxed), 1 + next, "it is there, and in its order");
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
                machine: Mutex::new(0),
            };
            check(Arc::new(channel));
        });
    }

    #[test]
    fn y10_in_every_interleaving_a_datum_that_is_found_is_there_and_a_cell_with_room_is_empty() {
        model(|channel| {
            let source = thread::spawn({
                let channel = Arc::clone(&channel);
                move || {
                    (0..2).fold(0, |next, _| {
                        let put = channel.put(next);
                        let pushed = channel.tokens.pushed();
                        assert_eq!(pushed, put - next, "what a job has put is counted once");
                        channel.end(0, pushed);
                        put
                    })
                }
            });
            let taken = (0..2).fold(0, |next, _| {
                let taken = channel.take(next);
                let popped = channel.tokens.popped();
                assert_eq!(popped, taken - next, "what a job has taken is counted once");
                channel.end(popped, 0);
                taken
            });
            let put = source.join().unwrap();
            let lies = *channel.machine.lock().unwrap();
            let [visible, room] = [&channel.tokens.visible, &channel.tokens.room]
                .map(|word| word.load(Ordering::Acquire));
            assert_eq!((lies, visible, room), (put - taken, put - taken, SIZE + taken - put));
        });
    }

    #[test]
    fn y10_in_every_interleaving_another_thread_may_step_the_machine_for_the_end_of_a_job() {
        // A worker whose job has ended puts itself on a list, and the dispatcher finds it there: a
        // release and an acquire.
        model(|channel| {
            let told = Arc::new(Shared::new(0));
            let source = thread::spawn({
                let (channel, told) = (Arc::clone(&channel), Arc::clone(&told));
                move || {
                    channel.put(0);
                    told.store(1, Ordering::Release);
                }
            });
            let sink = thread::spawn({
                let channel = Arc::clone(&channel);
                move || {
                    let taken = channel.take(0);
                    channel.end(channel.tokens.popped(), 0);
                    taken
                }
            });
            if told.load(Ordering::Acquire) == 1 {
                let pushed = channel.tokens.pushed();
                assert_eq!(pushed, SIZE, "whoever is told of the end is told of all that was put");
                channel.end(0, pushed);
            }
            source.join().unwrap();
            let taken = sink.join().unwrap();
            assert!(*channel.machine.lock().unwrap() <= SIZE - taken);
        });
    }
}
