//! The jobs of a task that have arrived and not ended.
//!
//! Model: the job under way or next, and a ring of (release, deadline) of those that wait behind
//! it; jobs of one task run in order and never two at once (YASMIN checklist, 2.5 point 11). With
//! enforced separation a job may be here before it is released. As a rule nobody waits, so that the
//! ring is not touched: it stands apart, and what is looked at with each event is small.

use crate::mutate;
use crate::{Span, Time};
use alloc::boxed::Box;
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
    /// Whether jobs have to keep their distance.
    spaced: bool,
    behind: Box<Behind>,
}

/// Who waits behind the job under way.
#[derive(Clone, Debug)]
struct Behind {
    waiting: Vec<Queued>,
    /// Where in `waiting` the next one is.
    next: u32,
    /// The distance, where it has to be kept.
    separation: Span,
    /// No job may be released before, where it has to be kept.
    earliest: Time,
}

impl Ring {
    /// For the job under way and `waiting` behind it, which may have to keep their distance.
    pub(crate) fn new(waiting: u32, separation: Option<Span>) -> Ring {
        let nobody = Queued { release: Time::NEVER, deadline: Time::NEVER };
        let behind = Behind {
            waiting: vec![nobody; waiting as usize],
            next: 0,
            separation: separation.unwrap_or(Span::ZERO),
            earliest: Time::ZERO,
        };
        Ring {
            under_way: nobody,
            number: 0,
            len: 0,
            spaced: separation.is_some(),
            behind: Box::new(behind),
        }
    }

    /// Whether jobs have to keep their distance, so that one may be here before it is released.
    #[inline]
    pub(crate) fn is_spaced(&self) -> bool {
        self.spaced
    }

    /// The job under way.
    #[inline]
    pub(crate) fn first(&self) -> Option<Job> {
        let Queued { release, deadline } = self.under_way;
        (self.len > 0).then_some(Job { number: self.number, release, deadline })
    }

    /// All of them, in order.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = Job> {
        let behind = self.behind.waiting.iter().cycle().skip(self.behind.next as usize);
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
    pub(crate) fn push(&mut self, arrival: Time, relative_deadline: Span) -> bool {
        let release = self.release(arrival);
        self.put(Queued { release, deadline: release.saturating_add(relative_deadline) })
    }

    /// The same with a deadline that was set before: that of a graph's activation.
    pub(crate) fn push_until(&mut self, arrival: Time, deadline: Time) -> bool {
        let release = self.release(arrival);
        self.put(Queued { release, deadline })
    }

    #[inline]
    fn release(&self, arrival: Time) -> Time {
        if self.spaced { arrival.max(self.behind.earliest) } else { arrival }
    }

    #[inline]
    fn put(&mut self, job: Queued) -> bool {
        if self.len == 0 {
            self.under_way = job;
        } else {
            let Behind { waiting, next, .. } = &mut *self.behind;
            let (count, room) = (self.len as usize - 1, waiting.len());
            if count == room {
                return mutate!("core-job-backlog", false, true);
            }
            let at = *next as usize + count;
            waiting[if at < room { at } else { at - room }] = job;
        }
        self.len += 1;
        if self.spaced {
            // In a long queue that may be later than anything that happens.
            self.behind.earliest = mutate!(
                "core-far-release",
                mutate!(
                    "core-job-separation",
                    job.release.saturating_add(self.behind.separation),
                    job.release
                ),
                job.release + self.behind.separation
            );
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
            let Behind { waiting, next, .. } = &mut *self.behind;
            self.under_way = waiting[*next as usize];
            *next += 1;
            if *next as usize == waiting.len() {
                *next = 0;
            }
        }
    }
}
