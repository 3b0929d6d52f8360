//! Pending jobs of a task.
//!
//! Model: the current job, and a ring buffer of (release, deadline) of the waiting jobs. Jobs of
//! one task run in order and never in parallel (YASMIN, section 2.5). With enforced separation, a
//! job may be pending before its release. Usually no job waits. So the ring buffer is separate, and
//! the data that each event reads stays small.

use crate::mutate;
use crate::{Span, Time};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// A job of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Number of the job, from 0. Refused jobs are not counted.
    pub number: u64,
    /// Earliest start: the nominal arrival, or later with enforced separation.
    pub release: Time,
    /// Absolute deadline.
    pub deadline: Time,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    release: Time,
    deadline: Time,
}

#[derive(Clone, Debug)]
pub(crate) struct JobQueue {
    /// Current job, if [`JobQueue::len`] is not zero.
    current: Queued,
    /// Number of the current job.
    number: u64,
    len: u32,
    /// Whether the minimum separation is enforced.
    separated: bool,
    rest: Box<WaitingJobs>,
}

/// Jobs that wait behind the current job.
#[derive(Clone, Debug)]
struct WaitingJobs {
    waiting: Vec<Queued>,
    /// Index of the next job in `waiting`.
    next: u32,
    /// Minimum separation; meaningful only if it is enforced.
    separation: Span,
    /// Earliest next release, if the separation is enforced.
    earliest: Time,
}

impl JobQueue {
    /// Creates a queue for the current job and `waiting` further jobs. If `separation` is given,
    /// the queue enforces it.
    pub(crate) fn new(waiting: u32, separation: Option<Span>) -> JobQueue {
        let no_job = Queued { release: Time::NEVER, deadline: Time::NEVER };
        let rest = WaitingJobs {
            waiting: vec![no_job; waiting as usize],
            next: 0,
            separation: separation.unwrap_or(Span::ZERO),
            earliest: Time::ZERO,
        };
        JobQueue {
            current: no_job,
            number: 0,
            len: 0,
            separated: separation.is_some(),
            rest: Box::new(rest),
        }
    }

    /// Whether the minimum separation is enforced, so that a job may be pending before its release.
    #[inline]
    pub(crate) fn enforces_separation(&self) -> bool {
        self.separated
    }

    /// Returns the current job, or `None` if no job is pending.
    #[inline]
    pub(crate) fn first(&self) -> Option<Job> {
        let Queued { release, deadline } = self.current;
        (self.len > 0).then_some(Job { number: self.number, release, deadline })
    }

    /// Iterates over the pending jobs, in order.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = Job> {
        let rest = self.rest.waiting.iter().cycle().skip(self.rest.next as usize);
        let all = core::iter::once(&self.current).chain(rest).take(self.len as usize);
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

    /// Returns the number of pending jobs with a deadline at or before `now`.
    pub(crate) fn overdue(&self, now: Time) -> u32 {
        self.jobs().filter(|job| job.deadline <= now).count() as u32
    }

    /// Queues a job. Returns `false` if the queue is full.
    #[inline]
    pub(crate) fn push(&mut self, arrival: Time, relative_deadline: Span) -> bool {
        let release = self.release(arrival);
        self.enqueue(Queued { release, deadline: release.saturating_add(relative_deadline) })
    }

    /// Queues a job with the absolute deadline of an activation by a graph or a table. Returns
    /// `false` if the queue is full.
    pub(crate) fn push_with_deadline(&mut self, arrival: Time, deadline: Time) -> bool {
        let release = self.release(arrival);
        self.enqueue(Queued { release, deadline })
    }

    #[inline]
    fn release(&self, arrival: Time) -> Time {
        if self.separated { arrival.max(self.rest.earliest) } else { arrival }
    }

    #[inline]
    fn enqueue(&mut self, job: Queued) -> bool {
        if self.len == 0 {
            self.current = job;
        } else {
            let WaitingJobs { waiting, next, .. } = &mut *self.rest;
            let (count, room) = (self.len as usize - 1, waiting.len());
            if count == room {
                return mutate!("core-job-backlog", false, true);
            }
            let at = *next as usize + count;
            waiting[if at < room { at } else { at - room }] = job;
        }
        self.len += 1;
        if self.separated {
            // In a long queue, the release may be later than any event.
            self.rest.earliest = mutate!(
                "core-far-release",
                mutate!(
                    "core-job-separation",
                    job.release.saturating_add(self.rest.separation),
                    job.release
                ),
                job.release + self.rest.separation
            );
        }
        true
    }

    /// Removes the completed current job.
    #[inline]
    pub(crate) fn pop(&mut self) {
        debug_assert!(self.len > 0, "no job is pending");
        self.len -= 1;
        self.number += 1;
        if self.len > 0 {
            let WaitingJobs { waiting, next, .. } = &mut *self.rest;
            self.current = waiting[*next as usize];
            *next += 1;
            if *next as usize == waiting.len() {
                *next = 0;
            }
        }
    }
}
