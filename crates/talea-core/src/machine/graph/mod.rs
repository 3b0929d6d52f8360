//! Task graphs: who is activated by whom, and the channels between.
//!
//! YASMIN section 2, with docs/model.md, section 8. Only roots of a graph arrive by themselves. A
//! node is activated when every channel into it holds the tokens that an activation takes; what a
//! job has put in becomes visible when it ends. Every token carries the absolute deadline of the
//! activation of the graph that it stems from, and so does the job that takes it: of several the
//! latest, because only with that one the node could be activated.
//!
//! Invariants of a channel: `claimed <= visible <= stored <= room`; nobody blocks: full and empty
//! are answers, and counted.

mod check;
mod flow;
#[cfg(test)]
mod tests;

use super::tree::NodeId;
use crate::Time;
use crate::mutate;
use alloc::string::String;
use alloc::vec::Vec;

/// Tokens without data that wait for their like in the other channels of a join at most.
const WAITING: u32 = 64;

/// A channel of one machine, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// An edge of a graph: a queue of tokens from one task to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// For people.
    pub name: String,
    /// Whose jobs put tokens in.
    pub from: NodeId,
    /// Whose jobs they activate.
    pub to: NodeId,
    /// Tokens with data that it holds; 0: a token without data by itself at each completion of the
    /// source.
    pub size: u32,
    /// How many an activation takes.
    pub tokens: u32,
}

/// What has passed through a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Tokens put in.
    pub pushed: u64,
    /// Tokens taken out.
    pub popped: u64,
    /// Tokens for which there was no room.
    pub overflows: u64,
    /// Times that somebody found nothing.
    pub underflows: u64,
    /// Jobs of the source that ended without a token.
    pub silent: u64,
}

#[derive(Debug)]
struct Channel {
    /// Tasks.
    from: u32,
    to: u32,
    tokens: u32,
    /// Tokens without data: activation takes them out.
    is_signal: bool,
    /// Deadlines, oldest first.
    ring: Vec<Time>,
    first: u32,
    /// Tokens in the ring, those of a job that has not ended included.
    stored: u32,
    /// Of these, put in by jobs that have ended.
    visible: u32,
    /// Of these, taken by an activation.
    claimed: u32,
    traffic: Traffic,
    /// In the tree.
    id: (NodeId, NodeId),
}

impl Channel {
    fn at(&self, index: u32) -> usize {
        (self.first as usize + index as usize) % self.ring.len()
    }

    fn push(&mut self, deadline: Time) -> bool {
        if self.stored as usize == self.ring.len() {
            self.traffic.overflows += 1;
            return mutate!("core-channel-full", false, true);
        }
        let at = self.at(self.stored);
        self.ring[at] = deadline;
        self.stored += 1;
        self.traffic.pushed += 1;
        true
    }

    /// The job of the source has ended; whether it has left a token.
    fn publish(&mut self, deadline: Time) -> bool {
        if self.is_signal {
            self.push(deadline);
        }
        let news = self.visible < self.stored;
        self.visible = self.stored;
        self.traffic.silent += u64::from(!news);
        news
    }

    fn is_enough(&self) -> bool {
        mutate!(
            "core-graph-tokens",
            self.visible - self.claimed >= self.tokens,
            self.visible - self.claimed >= self.tokens.min(1)
        )
    }

    /// Takes the tokens of one activation, and says the latest deadline.
    fn claim(&mut self) -> Time {
        let latest =
            (self.claimed..self.claimed + self.tokens).map(|index| self.ring[self.at(index)]).max();
        self.claimed += self.tokens;
        mutate!(
            "core-graph-signal",
            {
                if self.is_signal {
                    self.drop_first(self.tokens);
                }
            },
            {}
        );

        latest.expect("an activation takes a token")
    }

    fn drop_first(&mut self, count: u32) {
        self.first = self.at(count) as u32;
        self.stored -= count;
        self.visible -= count;
        // A job that takes more than its activation claimed takes what would have activated the
        // next.
        self.claimed = mutate!(
            "core-channel-claim",
            self.claimed.saturating_sub(count),
            self.claimed.min(self.visible)
        );
        self.traffic.popped += u64::from(count);
    }

    fn pop(&mut self) -> bool {
        if self.visible == 0 {
            mutate!(
                "core-channel-empty",
                {
                    self.traffic.underflows += 1;
                },
                {}
            );

            return false;
        }
        self.drop_first(1);
        true
    }
}

/// The channels of a machine.
#[derive(Debug)]
pub(super) struct Graph {
    channels: Vec<Channel>,
    /// Of each task, the channels out of it and into it.
    out: Vec<Vec<u32>>,
    into: Vec<Vec<u32>>,
}
