//! Description of one root: a tree of schedulers and tasks, before a run.
//!
//! A [`Tree`] is data, which an application may edit while no engine runs (L23, Y1: tasks and
//! servers are added, removed and resized between runs). [`Tree::build`] checks the tree and builds
//! the [`Engine`](super::Engine). A node keeps its [`NodeId`] for the life of the tree. The
//! [`NodeId`]s order children and break ties.

use super::graph::ChannelSpec;
use super::ids::{AcceleratorId, ChannelId, NodeId, ResourceId};
use super::sharing::{Protocol, ResourceSpec};
use super::spec::{Affinity, NodeSpec, SchedulerSpec, TaskSpec};
use super::versions::Selection;
use crate::Span;
use crate::mutate;
use alloc::string::String;
use alloc::vec::Vec;

/// A node with its parent.
#[derive(Clone, Debug)]
pub struct Node {
    /// Parent node; `None` for the root.
    pub parent: Option<NodeId>,
    /// Specification of the node.
    pub spec: NodeSpec,
}

impl Node {
    /// Returns the CPUs that the node may use; see [`TaskSpec::affinity`].
    pub fn affinity(&self) -> Affinity {
        match &self.spec {
            NodeSpec::Scheduler(spec) => spec.affinity,
            NodeSpec::Task(spec) => spec.affinity,
        }
    }
}

/// Times at which a job may migrate from the CPU on which it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Migration {
    /// Migration at any time.
    #[default]
    Anytime,
    /// Migration only between jobs (YASMIN section 3.3: tasks migrate, jobs do not).
    JobBoundaries,
}

/// One root with all nodes below it.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Number of CPUs that the root owns. Each node below the root uses one CPU at a time.
    pub cpus: u32,
    /// Migration between the CPUs of the root.
    pub migration: Migration,
    /// Rule by which the root chooses versions.
    pub selection: Selection,
    /// Whether the holder of an accelerator inherits the criteria of waiting jobs (YASMIN section
    /// 3.2).
    pub inheritance: bool,
    /// `accelerators[a]`: display name of [`AcceleratorId`] `a`.
    pub accelerators: Vec<String>,
    /// `resources[r]`: specification of [`ResourceId`] `r`.
    pub resources: Vec<ResourceSpec>,
    /// `channels[c]`: specification of [`ChannelId`] `c`.
    pub channels: Vec<ChannelSpec>,
    nodes: Vec<Option<Node>>,
}

/// Maximum length of a run, and of any time in a description. A sum of three of them does not
/// overflow.
pub const MAX_RUN: Span = Span::from_ns(1 << 61);

impl Tree {
    /// Creates a tree that consists of a root.
    pub fn new(cpus: u32, root: SchedulerSpec) -> Tree {
        let root = Node { parent: None, spec: NodeSpec::Scheduler(root) };
        Tree {
            cpus,
            migration: Migration::default(),
            selection: Selection::default(),
            inheritance: true,
            accelerators: Vec::new(),
            resources: Vec::new(),
            channels: Vec::new(),
            nodes: alloc::vec![Some(root)],
        }
    }

    /// The root node.
    pub const ROOT: NodeId = NodeId(0);

    /// Adds a scheduler below `parent`.
    pub fn scheduler(&mut self, parent: NodeId, spec: SchedulerSpec) -> NodeId {
        self.add(parent, NodeSpec::Scheduler(spec))
    }

    /// Adds a task below `parent`.
    pub fn task(&mut self, parent: NodeId, spec: TaskSpec) -> NodeId {
        self.add(parent, NodeSpec::Task(spec))
    }

    /// Adds an accelerator.
    pub fn accelerator(&mut self, name: &str) -> AcceleratorId {
        self.accelerators.push(name.into());
        AcceleratorId(self.accelerators.len() as u32 - 1)
    }

    /// Adds a shared resource.
    pub fn resource(&mut self, name: &str, protocol: Protocol) -> ResourceId {
        self.resources.push(ResourceSpec { name: name.into(), protocol });
        ResourceId(self.resources.len() as u32 - 1)
    }

    /// Adds a channel for up to `size` tokens. An activation takes one token.
    ///
    /// The channel's number may change when a node is removed.
    pub fn channel(&mut self, from: NodeId, to: NodeId, size: u32) -> ChannelId {
        self.channels.push(ChannelSpec { name: String::new(), from, to, size, tokens: 1 });
        ChannelId(self.channels.len() as u32 - 1)
    }

    fn add(&mut self, parent: NodeId, body: NodeSpec) -> NodeId {
        mutate!(
            "core-edit-names",
            {},
            if let Some(free) = self.nodes.iter().position(Option::is_none) {
                self.nodes[free] = Some(Node { parent: Some(parent), spec: body });
                return NodeId(free as u32);
            }
        );
        self.nodes.push(Some(Node { parent: Some(parent), spec: body }));
        NodeId((self.nodes.len() - 1) as u32)
    }

    /// Removes a node, all nodes below it and their channels. The root cannot be removed.
    pub fn remove(&mut self, node: NodeId) {
        if node == Tree::ROOT {
            return;
        }
        self.nodes[node.0 as usize] = None;
        // Children have larger numbers than their parents.
        for at in node.0 as usize + 1..self.nodes.len() {
            let parent = self.nodes[at].as_ref().and_then(|node| node.parent);
            if mutate!(
                "core-edit-below",
                parent.is_some_and(|parent| self.get(parent).is_none()),
                parent.is_some_and(|parent| self.get(parent).is_none() && parent != node)
            ) {
                self.nodes[at] = None;
            }
        }
        let mut channels = core::mem::take(&mut self.channels);
        channels
            .retain(|channel| self.get(channel.from).is_some() && self.get(channel.to).is_some());
        self.channels = channels;
    }

    /// Returns a node, if it exists.
    pub fn get(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(node.0 as usize)?.as_ref()
    }

    /// Returns a mutable reference to a node, if it exists.
    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(node.0 as usize)?.as_mut()
    }

    /// Iterates over all nodes, in order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes
            .iter()
            .enumerate()
            .filter_map(|(id, node)| Some((NodeId(id as u32), node.as_ref()?)))
    }

    /// Iterates over the children of `parent`, in order. The function takes O(nodes);
    /// [`Tree::child_index`] is faster for many parents.
    pub fn children(&self, parent: NodeId) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes().filter(move |(_, node)| node.parent == Some(parent))
    }

    /// Builds an index of the children of every node.
    pub fn child_index(&self) -> ChildIndex {
        let mut first = alloc::vec![0; self.nodes.len() + 1];
        let at = |node: &Node| {
            node.parent.map(|parent| parent.0 as usize).filter(|&at| at < self.nodes.len())
        };
        self.nodes().filter_map(|(_, node)| at(node)).for_each(|parent| first[parent + 1] += 1);
        for next in 1..first.len() {
            first[next] += first[next - 1];
        }
        let mut members = alloc::vec![Tree::ROOT; first.last().copied().unwrap_or(0)];
        let mut free = first.clone();
        for (id, node) in self.nodes() {
            if let Some(parent) = at(node) {
                members[free[parent]] = id;
                free[parent] += 1;
            }
        }
        ChildIndex { members, first }
    }

    /// Iterates over the schedulers above `node`, nearest first.
    pub fn ancestors(&self, node: NodeId) -> impl Iterator<Item = (NodeId, &SchedulerSpec)> {
        let parent = |of: NodeId| self.get(of).and_then(|node| node.parent);
        core::iter::successors(parent(node), move |&at| parent(at)).filter_map(|at| {
            match &self.get(at)?.spec {
                NodeSpec::Scheduler(spec) => Some((at, spec)),
                NodeSpec::Task(_) => None,
            }
        })
    }
}

/// Index of the children of each node of a [`Tree`].
#[derive(Clone, Debug)]
pub struct ChildIndex {
    /// Children of all nodes, sorted by parent.
    members: Vec<NodeId>,
    /// `first[n]`: index of the first child of node `n`. The last element is the total.
    first: Vec<usize>,
}

impl ChildIndex {
    /// Returns the children of a node, in order.
    pub fn of(&self, parent: NodeId) -> &[NodeId] {
        let at = parent.0 as usize;
        match self.first.get(at..at.saturating_add(2)) {
            Some(&[start, end]) => &self.members[start..end],
            _ => &[],
        }
    }
}
