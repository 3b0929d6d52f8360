//! Task graphs: activations between tasks, and the channels that carry them.
//!
//! The model is that of YASMIN section 2, with the rules of docs/model.md, section 8. Only graph
//! roots have arrivals. A node is activated when every channel into it holds the tokens of an
//! activation. Tokens of a job become visible when the job completes. Each token carries the
//! absolute deadline of the graph activation that it originates from, and so does the activated
//! job. Of several deadlines the latest applies, because the node could not be activated without
//! the token of that deadline.
//!
//! Invariants of a channel: `claimed <= visible <= stored <= capacity`. No job blocks: full and
//! empty channels are results, which the engine counts.

mod check;
#[cfg(test)]
mod tests;
mod tokens;

use super::ids::{ChannelId, NodeId};
use crate::Time;
use crate::mutate;
use alloc::string::String;
use alloc::vec::Vec;

/// Capacity of a channel without data, unless one activation takes more tokens.
const MAX_SIGNALS: u32 = 64;

/// An edge of a graph: a queue of tokens from one task to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// Name for display.
    pub name: String,
    /// Source: the task whose jobs push tokens.
    pub from: NodeId,
    /// Sink: the task that the tokens activate.
    pub to: NodeId,
    /// Capacity in data tokens. With 0, each completion of the source pushes one token without
    /// data.
    pub size: u32,
    /// Number of tokens that one activation takes.
    pub tokens: u32,
}

/// Counters of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Tokens pushed.
    pub pushed: u64,
    /// Tokens that jobs popped, or that activations removed from a channel without data.
    pub popped: u64,
    /// Tokens lost because the channel was full.
    pub overflows: u64,
    /// Attempts to pop from the empty channel.
    pub underflows: u64,
    /// Completed jobs of the source that pushed no token.
    pub silent: u64,
}

#[derive(Debug)]
struct Channel {
    /// Source task.
    from: u32,
    to: u32,
    tokens: u32,
    /// Whether tokens carry no data. An activation then removes its tokens.
    is_signal: bool,
    /// Deadlines of the tokens, oldest first.
    deadlines: Vec<Time>,
    first: u32,
    /// Tokens in the ring, including those of an incomplete job.
    stored: u32,
    /// Stored tokens from completed jobs.
    visible: u32,
    /// Visible tokens that an activation has taken.
    claimed: u32,
    traffic: Traffic,
}

impl Channel {
    fn at(&self, index: u32) -> usize {
        (self.first as usize + index as usize) % self.deadlines.len()
    }

    fn push(&mut self, deadline: Time) -> bool {
        if self.stored as usize == self.deadlines.len() {
            self.traffic.overflows += 1;
            return mutate!("core-channel-full", false, true);
        }
        let at = self.at(self.stored);
        self.deadlines[at] = deadline;
        self.stored += 1;
        self.traffic.pushed += 1;
        true
    }

    /// Publishes the tokens of the source's completed job. Returns whether there was a token.
    fn publish(&mut self, deadline: Time) -> bool {
        if self.is_signal {
            self.push(deadline);
        }
        let has_token = self.visible < self.stored;
        self.visible = self.stored;
        self.traffic.silent += u64::from(!has_token);
        has_token
    }

    fn can_activate(&self) -> bool {
        mutate!(
            "core-graph-tokens",
            self.visible - self.claimed >= self.tokens,
            self.visible - self.claimed >= self.tokens.min(1)
        )
    }

    /// Claims the tokens of one activation. Returns the latest of their deadlines.
    fn claim(&mut self) -> Time {
        let latest = (self.claimed..self.claimed + self.tokens)
            .map(|index| self.deadlines[self.at(index)])
            .max();
        self.claimed += self.tokens;
        mutate!(
            "core-graph-signal",
            if self.is_signal {
                self.drop_first(self.tokens);
            }
        );

        latest.expect("an activation takes a token")
    }

    fn drop_first(&mut self, count: u32) {
        self.first = self.at(count) as u32;
        self.stored -= count;
        self.visible -= count;
        // A job that pops more than its activation claimed takes tokens of the next activation.
        self.claimed = mutate!(
            "core-channel-claim",
            self.claimed.saturating_sub(count),
            self.claimed.min(self.visible)
        );
        self.traffic.popped += u64::from(count);
    }

    fn pop(&mut self) -> bool {
        if self.visible == 0 {
            mutate!("core-channel-empty", self.traffic.underflows += 1);

            return false;
        }
        self.drop_first(1);
        true
    }
}

/// The channels of an engine.
#[derive(Debug)]
pub(super) struct Graph {
    channels: Vec<Channel>,
    /// `out[t]`, `into[t]`: channels out of and into task `t`.
    out: Vec<Vec<u32>>,
    into: Vec<Vec<u32>>,
}
