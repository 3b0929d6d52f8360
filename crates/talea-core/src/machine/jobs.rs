//! The jobs of a task that have arrived and not ended.
//!
//! Model: a ring of (release, deadline) per task, in one block for all of them. The first is the job under way; jobs
//! of one task run in order and never two at once (YASMIN checklist, 2.5 point 11). With enforced separation a job
//! may be in the ring before it is released.

use crate::{Span, Time};
use alloc::vec::Vec;

/// One job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Which of its task, from 0, refused ones not counted.
    pub number: u64,
    /// From when it may run: the nominal arrival, or later by enforced separation.
    pub release: Time,
    /// Absolute.
    pub deadline: Time,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    release: Time,
    deadline: Time,
}

#[derive(Clone, Debug)]
pub(crate) struct Ring {
    slots: Vec<Queued>,
    first: u32,
    len: u32,
    /// Number of the first.
    number: u64,
    /// No job may be released before.
    earliest: Time,
}

impl Ring {
    /// For the job under way and `waiting` behind it.
    pub(crate) fn new(waiting: u32) -> Ring {
        let capacity = waiting as usize + 1;
        let mut slots = Vec::with_capacity(capacity);
        slots.resize(capacity, Queued { release: Time::NEVER, deadline: Time::NEVER });
        Ring { slots, first: 0, len: 0, number: 0, earliest: Time::ZERO }
    }

    /// The job under way.
    #[inline]
    pub(crate) fn first(&self) -> Option<Job> {
        let queued = self.slots[self.first as usize];
        (self.len > 0).then_some(Job {
            number: self.number,
            release: queued.release,
            deadline: queued.deadline,
        })
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Jobs that were due at `now` and have not ended.
    pub(crate) fn overdue(&self, now: Time) -> u32 {
        let all = self.slots.iter().cycle().skip(self.first as usize).take(self.len as usize);
        all.filter(|queued| queued.deadline <= now).count() as u32
    }

    /// Queues a job; `false` when there is no room.
    #[inline]
    pub(crate) fn push(&mut self, arrival: Time, relative_deadline: Span, separation: Option<Span>) -> bool {
        if self.len as usize == self.slots.len() {
            return false;
        }
        let mut release = arrival;
        if let Some(separation) = separation {
            release = release.max(self.earliest);
            self.earliest = release + separation;
        }
        self.put(release, release + relative_deadline);
        true
    }

    /// The same with a deadline that was set before: that of a graph's activation.
    pub(crate) fn push_until(&mut self, arrival: Time, deadline: Time, separation: Option<Span>) -> bool {
        let done = self.push(arrival, Span::ZERO, separation);
        if done {
            let last = (self.first as usize + self.len as usize - 1) % self.slots.len();
            self.slots[last].deadline = deadline;
        }
        done
    }

    #[inline]
    fn put(&mut self, release: Time, deadline: Time) {
        let mut at = self.first as usize + self.len as usize;
        if at >= self.slots.len() {
            at -= self.slots.len();
        }
        self.slots[at] = Queued { release, deadline };
        self.len += 1;
    }

    /// The job under way has ended.
    #[inline]
    pub(crate) fn pop(&mut self) {
        debug_assert!(self.len > 0, "a job ended that was not there");
        self.len -= 1;
        self.number += 1;
        self.first += 1;
        if self.first as usize == self.slots.len() {
            self.first = 0;
        }
    }
}
