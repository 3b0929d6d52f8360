//! Flow of tokens through channels.

use super::super::{Engine, Handled, NodeId, Notification, Observer, TaskId, Tree};
use super::{Channel, ChannelId, ChannelSpec, Graph, MAX_SIGNALS, Traffic};
use crate::Time;
use crate::mutate;
use alloc::vec::Vec;

impl Graph {
    /// Builds the channels of a checked tree. `task` returns the task of a node.
    pub(in super::super) fn new(tree: &Tree, tasks: usize, task: impl Fn(NodeId) -> u32) -> Graph {
        let channel = |spec: &ChannelSpec| {
            let capacity = if spec.size == 0 { MAX_SIGNALS.max(spec.tokens) } else { spec.size };
            Channel {
                from: task(spec.from),
                to: task(spec.to),
                tokens: spec.tokens,
                is_signal: spec.size == 0,
                deadlines: alloc::vec![Time::NEVER; capacity as usize],
                first: 0,
                stored: 0,
                visible: 0,
                claimed: 0,
                traffic: Traffic::default(),
            }
        };
        let channels: Vec<Channel> = tree.channels.iter().map(channel).collect();
        let (mut out, mut into) = (alloc::vec![Vec::new(); tasks], alloc::vec![Vec::new(); tasks]);
        for (at, channel) in channels.iter().enumerate() {
            out[channel.from as usize].push(at as u32);
            into[channel.to as usize].push(at as u32);
        }
        Graph { channels, out, into }
    }

    /// Returns the task that pushes into `channel`, if the channel exists.
    pub(in super::super) fn source(&self, channel: ChannelId) -> Option<u32> {
        self.channels.get(channel.0 as usize).map(|channel| channel.from)
    }

    /// Claims the tokens of one activation of `task`. Returns the deadline of the activation, or
    /// `None` if tokens are missing.
    fn claim_inputs(&mut self, task: u32) -> Option<Time> {
        let into = &self.into[task as usize];
        if !mutate!(
            "core-graph-join",
            into.iter().all(|&at| self.channels[at as usize].can_activate()),
            into.iter().take(1).all(|&at| self.channels[at as usize].can_activate())
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

impl<W: Observer> Engine<W> {
    /// Publishes the tokens of a completed job of `task` with `deadline`, and activates the sinks.
    pub(in super::super) fn publish(&mut self, now: Time, task: u32, deadline: Time) {
        let count = self.optional.graph.as_ref().map_or(0, |graph| graph.out[task as usize].len());
        for index in 0..count {
            let graph = self.optional.graph.as_mut().expect("counted");
            let at = graph.out[task as usize][index];
            let channel = &mut graph.channels[at as usize];
            let sink = channel.to;
            if !channel.publish(deadline) {
                self.notifications.push(mutate!(
                    "core-graph-silent",
                    Notification::NotActivated { channel: ChannelId(at) },
                    Notification::Refused { task: TaskId(at) }
                ));
            }
            while let Some(deadline) =
                self.optional.graph.as_mut().and_then(|graph| graph.claim_inputs(sink))
            {
                let due = mutate!(
                    "core-graph-carried",
                    deadline,
                    deadline.max(now + self.tasks[sink as usize].deadline)
                );
                self.activate(now, sink, now, due);
            }
        }
    }

    /// Activates a task for a graph or a table. The job is released with the arrivals of this
    /// instant.
    ///
    /// `nominal` is the nominal time of the release.
    pub(in super::super) fn activate(
        &mut self,
        now: Time,
        task: u32,
        nominal: Time,
        deadline: Time,
    ) {
        let state = &mut self.tasks[task as usize];
        if !state.jobs.push_with_deadline(nominal, deadline) {
            return self.notifications.push(Notification::Refused { task: TaskId(task) });
        }
        self.notifications.push(Notification::Activated { task: TaskId(task), deadline });
        self.schedule_release(now, task);
    }

    /// Pushes a token of the current job of the source of `channel`. The token becomes visible when
    /// the job completes.
    pub(in super::super) fn push_token(&mut self, channel: ChannelId) -> Handled {
        let graph = self.optional.graph.as_mut().expect("a channel of this engine");
        let channel = &mut graph.channels[channel.0 as usize];
        let job =
            self.tasks[channel.from as usize].jobs.first().expect("a job of the source is pending");
        if channel.push(job.deadline) {
            Handled::Done
        } else {
            mutate!("core-channel-answers", Handled::Full, Handled::Done)
        }
    }

    /// Pops a token for a job of the sink of `channel`.
    pub(in super::super) fn pop_token(&mut self, channel: ChannelId) -> Handled {
        let graph = self.optional.graph.as_mut().expect("a channel of this engine");
        if graph.channels[channel.0 as usize].pop() {
            Handled::Done
        } else {
            mutate!("core-channel-answers-empty", Handled::Empty, Handled::Full)
        }
    }

    /// Returns the counters of `channel`.
    pub fn traffic(&self, channel: ChannelId) -> Traffic {
        self.optional
            .graph
            .as_ref()
            .map_or_else(Traffic::default, |graph| graph.channels[channel.0 as usize].traffic)
    }

    /// Returns the number of data tokens in `channel` from completed jobs.
    pub fn stored(&self, channel: ChannelId) -> u32 {
        self.optional.graph.as_ref().map_or(0, |graph| graph.channels[channel.0 as usize].visible)
    }

    /// Whether a completion of `task` may activate other tasks.
    pub fn has_successors(&self, task: TaskId) -> bool {
        let graph = self.optional.graph.as_ref();
        graph.is_some_and(|graph| !graph.out[task.0 as usize].is_empty())
    }

    /// Iterates over the data channels out of `task`.
    pub fn outputs(&self, task: TaskId) -> impl Iterator<Item = ChannelId> {
        let graph = self.optional.graph.as_ref();
        let out = graph.map_or(&[][..], |graph| &graph.out[task.0 as usize]);
        out.iter()
            .filter(move |&&at| graph.is_some_and(|graph| !graph.channels[at as usize].is_signal))
            .map(|&at| ChannelId(at))
    }

    /// Iterates over the data channels into `task`, with the tokens of an activation.
    pub fn inputs(&self, task: TaskId) -> impl Iterator<Item = (ChannelId, u32)> {
        let graph = self.optional.graph.as_ref();
        let into = graph.map_or(&[][..], |graph| &graph.into[task.0 as usize]);
        into.iter().filter_map(move |&at| {
            let channel = &graph?.channels[at as usize];
            (!channel.is_signal).then_some((ChannelId(at), channel.tokens))
        })
    }

    /// Returns the number of tokens from completed jobs that have activated no job, with or without
    /// data.
    pub fn unclaimed(&self, channel: ChannelId) -> u32 {
        let channel = self.optional.graph.as_ref().map(|graph| &graph.channels[channel.0 as usize]);
        channel.map_or(0, |channel| {
            mutate!("core-channel-keep", channel.visible - channel.claimed, channel.visible)
        })
    }

    /// Fills channel `c` with `left[c]` tokens at time zero, and activates the sinks that then have
    /// their tokens. Channels without a number stay empty, and tokens that do not fit are dropped.
    ///
    /// A new run keeps the [unclaimed](Engine::unclaimed) tokens of a stopped one in this way. The
    /// deadlines of the old run are meaningless. The tokens therefore have the relative deadline of
    /// the task that they activate, from the new time zero.
    pub fn keep_tokens(&mut self, left: &[u32]) {
        let Some(graph) = &mut self.optional.graph else { return };
        for (channel, &count) in graph.channels.iter_mut().zip(left) {
            let deadline = Time::ZERO + self.tasks[channel.to as usize].deadline;
            for _ in 0..count.min(channel.deadlines.len() as u32) {
                channel.push(deadline);
                channel.traffic = Traffic::default();
            }
            channel.visible = channel.stored;
        }
        let nodes: Vec<u32> = graph.channels.iter().map(|channel| channel.to).collect();
        for sink in nodes {
            while let Some(deadline) =
                self.optional.graph.as_mut().and_then(|graph| graph.claim_inputs(sink))
            {
                self.activate(Time::ZERO, sink, Time::ZERO, deadline);
            }
        }
    }
}
