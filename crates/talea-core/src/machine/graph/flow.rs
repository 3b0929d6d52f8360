//! Tokens on their way.

use super::super::{Handled, Machine, NodeId, Note, TaskId, Tree, Watch};
use super::{Channel, ChannelId, ChannelSpec, Graph, Traffic, WAITING};
use crate::Time;
use crate::mutate;
use alloc::vec::Vec;

impl Graph {
    /// Of a tree that was checked; `task` says which task a node is.
    pub(in super::super) fn new(tree: &Tree, tasks: usize, task: impl Fn(NodeId) -> u32) -> Graph {
        let channel = |spec: &ChannelSpec| Channel {
            from: task(spec.from),
            to: task(spec.to),
            tokens: spec.tokens,
            is_signal: spec.size == 0,
            ring: alloc::vec![Time::NEVER; if spec.size == 0 { WAITING.max(spec.tokens) } else { spec.size } as usize],
            first: 0,
            stored: 0,
            visible: 0,
            claimed: 0,
            traffic: Traffic::default(),
            id: (spec.from, spec.to),
        };
        let channels: Vec<Channel> = tree.channels.iter().map(channel).collect();
        let (mut out, mut into) = (alloc::vec![Vec::new(); tasks], alloc::vec![Vec::new(); tasks]);
        for (at, channel) in channels.iter().enumerate() {
            out[channel.from as usize].push(at as u32);
            into[channel.to as usize].push(at as u32);
        }
        Graph { channels, out, into }
    }

    /// Whether `task` is activated by others.
    #[inline]
    pub(in super::super) fn is_node(&self, task: u32) -> bool {
        !self.into[task as usize].is_empty()
    }

    /// The task that puts tokens into `channel`, if there is such a channel.
    pub(in super::super) fn source(&self, channel: ChannelId) -> Option<u32> {
        self.channels.get(channel.0 as usize).map(|channel| channel.from)
    }

    /// Whether every channel into `task` holds what an activation takes; takes it, and says the
    /// deadline.
    fn activate(&mut self, task: u32) -> Option<Time> {
        let into = &self.into[task as usize];
        if !mutate!(
            "core-graph-join",
            into.iter().all(|&at| self.channels[at as usize].is_enough()),
            into.iter().take(1).all(|&at| self.channels[at as usize].is_enough())
        ) {
            return None;
        }
        mutate!(
            "core-graph-deadline",
            into.iter().map(|&at| self.channels[at as usize].claim()).max(),
            into.iter().map(|&at| self.channels[at as usize].claim()).min()
        )
    }
}

impl<W: Watch> Machine<W> {
    /// A job of `task` with this deadline has ended: what it has put into channels becomes visible.
    pub(in super::super) fn publish(&mut self, now: Time, task: u32, deadline: Time) {
        let count = self.graph.as_ref().map_or(0, |graph| graph.out[task as usize].len());
        for index in 0..count {
            let graph = self.graph.as_mut().expect("counted");
            let at = graph.out[task as usize][index];
            let channel = &mut graph.channels[at as usize];
            let sink = channel.to;
            if !channel.publish(deadline) {
                self.notes.push(mutate!(
                    "core-graph-silent",
                    Note::NotActivated { channel: ChannelId(at) },
                    Note::Refused { task: TaskId(at) }
                ));
            }
            while let Some(deadline) = self.graph.as_mut().and_then(|graph| graph.activate(sink)) {
                self.activated(now, sink, now, deadline);
            }
        }
    }

    /// A graph or a table asks for a job, which is released with the arrivals of this instant.
    /// `nominal`: when that should have been.
    pub(in super::super) fn activated(
        &mut self,
        now: Time,
        task: u32,
        nominal: Time,
        deadline: Time,
    ) {
        let state = &mut self.tasks[task as usize];
        if !state.ring.push_until(nominal, deadline) {
            return self.notes.push(Note::Refused { task: TaskId(task) });
        }
        self.notes.push(Note::Activated { task: TaskId(task), deadline });
        self.release_later(now, task);
    }

    /// The job under way of the source of `channel` puts a token in; it becomes visible when the
    /// job ends.
    pub(in super::super) fn pushes(&mut self, channel: ChannelId) -> Handled {
        let graph = self.graph.as_mut().expect("a channel of this machine");
        let channel = &mut graph.channels[channel.0 as usize];
        let job = self.tasks[channel.from as usize].ring.first().expect("pushed by a job");
        if channel.push(job.deadline) {
            Handled::Done
        } else {
            mutate!("core-channel-answers", Handled::Full, Handled::Done)
        }
    }

    /// A job of the sink of `channel` takes a token out.
    pub(in super::super) fn pops(&mut self, channel: ChannelId) -> Handled {
        let graph = self.graph.as_mut().expect("a channel of this machine");
        if graph.channels[channel.0 as usize].pop() {
            Handled::Done
        } else {
            mutate!("core-channel-answers-empty", Handled::Empty, Handled::Full)
        }
    }

    /// What has passed through `channel`.
    pub fn traffic(&self, channel: ChannelId) -> Traffic {
        self.graph
            .as_ref()
            .map_or_else(Traffic::default, |graph| graph.channels[channel.0 as usize].traffic)
    }

    /// Tokens with data in `channel` that jobs which have ended put in.
    pub fn stored(&self, channel: ChannelId) -> u32 {
        self.graph.as_ref().map_or(0, |graph| graph.channels[channel.0 as usize].visible)
    }

    /// Channels with data out of `task`.
    pub fn outputs(&self, task: TaskId) -> impl Iterator<Item = ChannelId> {
        let graph = self.graph.as_ref();
        let out = graph.map_or(&[][..], |graph| &graph.out[task.0 as usize]);
        out.iter()
            .filter(move |&&at| graph.is_some_and(|graph| !graph.channels[at as usize].is_signal))
            .map(|&at| ChannelId(at))
    }

    /// Channels with data into `task`, and how many tokens an activation takes.
    pub fn inputs(&self, task: TaskId) -> impl Iterator<Item = (ChannelId, u32)> {
        let graph = self.graph.as_ref();
        let into = graph.map_or(&[][..], |graph| &graph.into[task.0 as usize]);
        into.iter().filter_map(move |&at| {
            let channel = &graph?.channels[at as usize];
            (!channel.is_signal).then_some((ChannelId(at), channel.tokens))
        })
    }

    /// Tokens in `channel` that jobs which have ended put in, and that have activated nobody: with
    /// data or without.
    pub fn unclaimed(&self, channel: ChannelId) -> u32 {
        let channel = self.graph.as_ref().map(|graph| &graph.channels[channel.0 as usize]);
        channel.map_or(0, |channel| channel.visible - channel.claimed)
    }

    /// What `before`, which has stopped, has left in its channels: for a start that keeps them.
    /// Channels are matched by their ends; what does not fit is left. Nobody knows any more what
    /// the tokens were late for: they count as activations at the new zero, with the relative
    /// deadline of the task that they activate.
    pub fn keep_channels<V: Watch>(&mut self, before: &Machine<V>) {
        let (Some(graph), Some(old)) = (&self.graph, &before.graph) else { return };
        let left = graph.channels.iter().map(|channel| {
            let was = old.channels.iter().find(|was| was.id == channel.id);
            was.map_or(0, |was| {
                mutate!("core-channel-keep", was.visible - was.claimed, was.visible)
            })
        });
        self.keep_tokens(&left.collect::<Vec<u32>>());
    }

    /// The same, told by number: so many tokens lie in each channel when it starts; in those that
    /// are not told of, none.
    pub fn keep_tokens(&mut self, left: &[u32]) {
        let Some(graph) = &mut self.graph else { return };
        for (channel, &count) in graph.channels.iter_mut().zip(left) {
            let deadline = Time::ZERO + self.tasks[channel.to as usize].deadline;
            for _ in 0..count.min(channel.ring.len() as u32) {
                channel.push(deadline);
                channel.traffic = Traffic::default();
            }
            channel.visible = channel.stored;
        }
        let nodes: Vec<u32> = graph.channels.iter().map(|channel| channel.to).collect();
        for sink in nodes {
            while let Some(deadline) = self.graph.as_mut().and_then(|graph| graph.activate(sink)) {
                self.activated(Time::ZERO, sink, Time::ZERO, deadline);
            }
        }
    }
}
