//! The jobs of a task that have arrived and not ended.
//!
//! Model: the job under way or next, and a ring of (release, deadline) of those that wait behind it; jobs of one task run
//! in order and never two at once (YASMIN checklist, 2.5 point 11). With enforced separation a job may be here before it
//! is released. As a rule nobody waits, so that the ring is not touched.

use crate::{Span, Time};
use alloc::vec;
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
    /// The job under way, if [`Ring::len`] says that there is one.
    under_way: Queued,
    /// Its number.
    number: u64,
    len: u32,
    /// Where in `waiting` the next one is.
    next: u32,
    /// No job may be released before.
    earliest: Time,
    waiting: Vec<Queued>,
}

impl Ring {
    /// For the job under way and `waiting` behind it.
    pub(crate) fn new(waiting: u32) -> Ring {
        let nobody = Queued { release: Time::NEVER, deadline: Time::NEVER };
        Ring {
            under_way: nobody,
            number: 0,
            len: 0,
            next: 0,
            earliest: Time::ZERO,
            waiting: vec![nobody; waiting as usize],
        }
    }

    /// The job under way.
    #[inline]
    pub(crate) fn first(&self) -> Option<Job> {
        let Queued { release, deadline } = self.under_way;
        (self.len > 0).then_some(Job { number: self.number, release, deadline })
    }

    /// All of them, in order.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = Job> {
        let behind = self.waiting.iter().cycle().skip(self.next as usize);
        let all = core::iter::once(&self.under_way).chain(behind).take(self.len as usize);
        all.zip(self.number..).map(|(queued, number)| Job {
            number,
            release: queued.release,
            deadline: queued.deadline,
        })
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Jobs that were due at `now` and have not ended.
    pub(crate) fn overdue(&self, now: Time) -> u32 {
        self.jobs().filter(|job| job.deadline <= now).count() as u32
    }

    /// Queues a job; `false` when there is no room.
    #[inline]
    pub(crate) fn push(&mut self, arrival: Time, relative_deadline: Span, separation: Option<Span>) -> bool {
        let release = separation.map_or(arrival, |_| arrival.max(self.earliest));
        self.put(Queued { release, deadline: release + relative_deadline }, separation)
    }

    /// The same with a deadline that was set before: that of a graph's activation.
    pub(crate) fn push_until(&mut self, arrival: Time, deadline: Time, separation: Option<Span>) -> bool {
        let release = separation.map_or(arrival, |_| arrival.max(self.earliest));
        self.put(Queued { release, deadline }, separation)
    }

    #[inline]
    fn put(&mut self, job: Queued, separation: Option<Span>) -> bool {
        if self.len == 0 {
            self.under_way = job;
        } else {
            let (waiting, room) = (self.len as usize - 1, self.waiting.len());
            if waiting == room {
                return false;
            }
            let at = self.next as usize + waiting;
            self.waiting[if at < room { at } else { at - room }] = job;
        }
        self.len += 1;
        if let Some(separation) = separation {
            self.earliest = job.release + separation;
        }
        true
    }

    /// The job under way has ended.
    #[inline]
    pub(crate) fn pop(&mut self) {
        debug_assert!(self.len > 0, "a job ended that was not there");
        self.len -= 1;
        self.number += 1;
        if self.len > 0 {
            self.under_way = self.waiting[self.next as usize];
            self.next += 1;
            if self.next as usize == self.waiting.len() {
                self.next = 0;
            }
        }
    }
}
