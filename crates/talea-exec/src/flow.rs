//! Tokens that jobs move themselves: how many data lie in a channel, as its two ends and the machine see it.
//!
//! Model (docs/model.md, section 8): what a job puts becomes visible when it ends, and what it takes makes room when it ends. So both
//! are counted here while the job runs, told to the machine in the step of its end, under the machine's lock, and only then
//! settled: an end that asks in between sees what the machine sees. One task puts and one takes, and the jobs of a task come one
//! after the other; so each count has one writer at a time.

use std::sync::atomic::{AtomicU32, Ordering};
use talea_core::machine::TaskId;

/// Of one channel.
#[derive(Debug)]
pub struct Flow {
    from: TaskId,
    to: TaskId,
    size: u32,
    /// Data that may be taken, and have not been.
    visible: AtomicU32,
    /// Data that may be put.
    room: AtomicU32,
    /// By the jobs under way.
    pushed: AtomicU32,
    popped: AtomicU32,
}

impl Flow {
    /// Of a channel from a task to another with room for so many data, of which some are there.
    pub fn new(from: TaskId, to: TaskId, size: u32, there: u32) -> Flow {
        let there = there.min(size);
        Flow {
            from,
            to,
            size,
            visible: there.into(),
            room: (size - there).into(),
            pushed: 0.into(),
            popped: 0.into(),
        }
    }

    /// A job of the source puts one in; whether there was room.
    pub fn push(&self) -> bool {
        let is_room = one_less(&self.room);
        if is_room {
            self.pushed.fetch_add(1, Ordering::AcqRel);
        }
        is_room
    }

    /// A job of the sink takes one out; whether there was one.
    pub fn pop(&self) -> bool {
        let is_one = one_less(&self.visible);
        if is_one {
            self.popped.fetch_add(1, Ordering::AcqRel);
        }
        is_one
    }

    /// Nothing is in it any more: for another run.
    pub fn clear(&self) {
        for count in [&self.visible, &self.pushed, &self.popped] {
            count.store(0, Ordering::Release);
        }
        self.room.store(self.size, Ordering::Release);
    }

    /// Data that lie in it, and that no job has taken; of a channel without data, its tokens.
    pub fn visible(&self) -> u32 {
        self.visible.load(Ordering::Acquire)
    }

    /// A run is over, and so many tokens have activated nobody: the rest is of no use to another run. Their data are whoever kept
    /// them's to throw away, the oldest first.
    pub(crate) fn leave(&self, unclaimed: u32) {
        self.clear();
        self.visible.store(unclaimed, Ordering::Release);
        self.room.store(self.size.saturating_sub(unclaimed), Ordering::Release);
    }

    /// What the job of `task` under way has popped and pushed here.
    pub(crate) fn moved_by(&self, task: TaskId) -> (u32, u32) {
        let of =
            |end: TaskId, count: &AtomicU32| if end == task { count.swap(0, Ordering::AcqRel) } else { 0 };
        (of(self.to, &self.popped), of(self.from, &self.pushed))
    }

    /// The machine knows.
    pub(crate) fn settle(&self, popped: u32, pushed: u32) {
        self.room.fetch_add(popped, Ordering::AcqRel);
        self.visible.fetch_add(pushed, Ordering::AcqRel);
    }
}

fn one_less(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
