//! What jobs do besides working: where they stop on their way.
//!
//! Model: a job's work is cut into pieces at its marks. When a piece is done, the marks at that
//! offset are acted upon in their order; a lock that has to wait and a suspension end it there, and
//! the rest follows when the job goes on.

use super::{Act, Cost, Mark};
use crate::machine::{ChannelId, ResourceId};
use crate::mutate;
use crate::{Span, Work};
use alloc::vec;
use alloc::vec::Vec;

/// The marks of one task, and how far its job under way has come.
#[derive(Clone, Debug)]
pub struct Script {
    /// By version; the last for all others.
    versions: Vec<Vec<Mark>>,
    version: usize,
    next: usize,
    /// Of the job: its cost, where its piece under way ends, and what it holds.
    cost: Work,
    done: Work,
    held: Vec<ResourceId>,
    job: u64,
}

impl Script {
    /// Of a task with such a cost and these channels, those that it takes from with the tokens that
    /// activate it; `None` when its jobs do nothing but work.
    pub fn new(cost: &Cost, inputs: &[(ChannelId, u32)], outputs: &[ChannelId]) -> Option<Script> {
        let script = |cost: &Cost| {
            let mut marks = match cost {
                Cost::Marked { marks, .. } => marks.clone(),
                _ => Vec::new(),
            };
            let says = |marks: &[Mark], wanted: &dyn Fn(&Act) -> bool| {
                marks.iter().any(|mark| wanted(&mark.act))
            };
            for &(channel, tokens) in inputs {
                if !says(&marks, &|act| matches!(act, Act::Pop(of, _) if *of == channel)) {
                    marks.insert(0, Mark { at: Work::ZERO, act: Act::Pop(channel, vec![tokens]) });
                }
            }
            for &channel in outputs {
                if !says(&marks, &|act| matches!(act, Act::Push(of, _) if *of == channel)) {
                    marks.push(Mark {
                        at: Work::from_ns(u64::MAX),
                        act: Act::Push(channel, vec![1]),
                    });
                }
            }
            marks
        };
        let versions: Vec<Vec<Mark>> = cost.by_version().into_iter().map(script).collect();
        let held = Vec::with_capacity(versions.iter().map(Vec::len).max().unwrap_or(0));
        let is_empty = versions.iter().all(Vec::is_empty);
        let (cost, done) = (Work::ZERO, Work::ZERO);
        (!is_empty).then_some(Script { versions, version: 0, next: 0, cost, done, held, job: 0 })
    }

    /// A job begins, in this version, and costs so much in all; says how long its first piece is.
    ///
    /// # Panics
    /// If marks are not sorted.
    pub fn begin(&mut self, job: u64, version: u32, cost: Work) -> Work {
        self.version = (version as usize).min(self.versions.len() - 1);
        (self.next, self.job, self.cost, self.done) = (0, job, cost, Work::ZERO);
        self.held.clear();
        self.advance()
    }

    /// On to the next mark, or to the end.
    fn advance(&mut self) -> Work {
        let mark = mutate!(
            "sim-mark-order",
            self.versions[self.version]
                .get(self.next)
                .map_or(self.cost, |mark| mark.at.min(self.cost)),
            self.versions[self.version].get(self.next).map_or(self.cost, |_| self.cost)
        );
        let piece = mark.checked_sub(self.done).expect("marks are sorted");
        self.done = mark;
        piece
    }

    /// A piece is done: what the job does now, one thing after the other, until there is nothing
    /// more at this offset.
    pub fn act(&mut self) -> Option<Deed> {
        while let Some(mark) = self.versions[self.version]
            .get(self.next)
            .filter(|mark| mark.at.min(self.cost) <= self.done)
        {
            self.next += 1;
            let is_over = mutate!("sim-mark-short", self.done == self.cost, self.done > self.cost);
            let own = |counts: &[u32]| counts[(self.job % counts.len() as u64) as usize];
            match &mark.act {
                Act::Lock(_) | Act::Suspend(_) if is_over => {}
                Act::Unlock(resource) if !self.held.contains(resource) => {}
                Act::Lock(resource) => {
                    self.held.push(*resource);
                    return Some(Deed::Lock(*resource));
                }
                Act::Unlock(resource) => {
                    self.held.retain(|held| held != resource);
                    return Some(Deed::Unlock(*resource));
                }
                Act::Suspend(span) => return Some(Deed::Suspend(*span)),
                Act::Push(channel, counts) => return Some(Deed::Push(*channel, own(counts))),
                Act::Pop(channel, counts) => return Some(Deed::Pop(*channel, own(counts))),
            }
        }
        None
    }

    /// A piece is done and what follows it is or will be; how long the next one is, or `None`: the
    /// job is over.
    ///
    /// # Panics
    /// If marks are not sorted.
    pub fn turn(&mut self) -> Option<Work> {
        let is_over = self.done == self.cost && self.next == self.versions[self.version].len();
        (!is_over).then(|| self.advance())
    }
}

/// What a job does at one mark.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    /// Asks for a resource.
    Lock(ResourceId),
    /// Gives it back.
    Unlock(ResourceId),
    /// Waits for something that is not a CPU, for so long.
    Suspend(Span),
    /// Puts so many tokens in.
    Push(ChannelId, u32),
    /// Takes so many out.
    Pop(ChannelId, u32),
}
