//! The description of one root: a tree of schedulers and tasks, before anything runs.
//!
//! A [`Tree`] is data. It may be edited as long as nothing runs (L23, Y1: tasks and servers come,
//! go and change size while stopped), and [`Tree::build`] checks it and makes the
//! [`Machine`](super::Machine). Nodes keep their [`NodeId`] for the life of the tree; children are
//! ordered by it, and ties follow that order.

use super::graph::{ChannelId, ChannelSpec};
use super::sharing::{AcceleratorId, Protocol, ResourceId, ResourceSpec};
use super::spec::{Affinity, Body, SchedulerSpec, TaskSpec};
use super::versions::Selection;
use crate::Span;
use crate::mutate;
use alloc::string::String;
use alloc::vec::Vec;

/// A node of a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// One node with its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// `None`: the root.
    pub parent: Option<NodeId>,
    /// What it is.
    pub body: Body,
}

impl Node {
    /// See [`TaskSpec::affinity`].
    pub fn affinity(&self) -> Affinity {
        match &self.body {
            Body::Scheduler(spec) => spec.affinity,
            Body::Task(spec) => spec.affinity,
        }
    }
}

/// When a job may go on on another CPU than the one it was started on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Migration {
    /// At any time.
    #[default]
    Anytime,
    /// Not before it has ended (YASMIN section 3.3: tasks migrate, jobs do not).
    JobBoundaries,
}

/// One root with everything below it.
#[derive(Clone, Debug)]
pub struct Tree {
    /// CPUs that the root owns. Its inner nodes and tasks use one at a time each.
    pub cpus: u32,
    /// For roots with several CPUs.
    pub migration: Migration,
    /// How versions are chosen.
    pub selection: Selection,
    /// Whether a job that waits for an accelerator lends its key to whoever holds it (YASMIN
    /// section 3.2).
    pub inheritance: bool,
    /// By [`AcceleratorId`]; names are for people.
    pub accelerators: Vec<String>,
    /// By [`ResourceId`].
    pub resources: Vec<ResourceSpec>,
    /// By [`ChannelId`].
    pub channels: Vec<ChannelSpec>,
    nodes: Vec<Option<Node>>,
}

/// The longest time that a description may hold: sums of a few of them never overflow.
pub const LONGEST: Span = Span::from_ns(1 << 61);

impl Tree {
    /// A tree that is a root so far.
    pub fn new(cpus: u32, root: SchedulerSpec) -> Tree {
        let root = Node { parent: None, body: Body::Scheduler(root) };
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

    /// The root.
    pub const ROOT: NodeId = NodeId(0);

    /// Adds a scheduler below `parent`.
    pub fn scheduler(&mut self, parent: NodeId, spec: SchedulerSpec) -> NodeId {
        self.add(parent, Body::Scheduler(spec))
    }

    /// Adds a task below `parent`.
    pub fn task(&mut self, parent: NodeId, spec: TaskSpec) -> NodeId {
        self.add(parent, Body::Task(spec))
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

    /// Adds a channel with room for `size` tokens, of which an activation takes one. Its number may
    /// change when a node is removed.
    pub fn channel(&mut self, from: NodeId, to: NodeId, size: u32) -> ChannelId {
        self.channels.push(ChannelSpec { name: String::new(), from, to, size, tokens: 1 });
        ChannelId(self.channels.len() as u32 - 1)
    }

    fn add(&mut self, parent: NodeId, body: Body) -> NodeId {
        self.nodes.push(Some(Node { parent: Some(parent), body }));
        NodeId((self.nodes.len() - 1) as u32)
    }

    /// Takes a node, everything below it and their channels out. The root stays.
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

    /// A node, unless it was removed or never there.
    pub fn get(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(node.0 as usize)?.as_ref()
    }

    /// A node, to change it.
    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(node.0 as usize)?.as_mut()
    }

    /// Every node, in order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes
            .iter()
            .enumerate()
            .filter_map(|(id, node)| Some((NodeId(id as u32), node.as_ref()?)))
    }

    /// The children of `parent`, in order. Looks at every node: who asks for those of many takes
    /// [`Tree::families`].
    pub fn children(&self, parent: NodeId) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes().filter(move |(_, node)| node.parent == Some(parent))
    }

    /// The children of every node, in order.
    pub fn families(&self) -> Families {
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
        Families { members, first }
    }

    /// The schedulers above `node`, nearest first.
    pub fn above(&self, node: NodeId) -> impl Iterator<Item = (NodeId, &SchedulerSpec)> {
        let parent = |of: NodeId| self.get(of).and_then(|node| node.parent);
        core::iter::successors(parent(node), move |&at| parent(at)).filter_map(|at| {
            match &self.get(at)?.body {
                Body::Scheduler(spec) => Some((at, spec)),
                Body::Task(_) => None,
            }
        })
    }
}

/// Who the children of each node of a [`Tree`] are, looked up once.
#[derive(Clone, Debug)]
pub struct Families {
    /// One family after the other.
    members: Vec<NodeId>,
    /// By node: where its own begins; the end of the last.
    first: Vec<usize>,
}

impl Families {
    /// The children of a node, in order.
    pub fn of(&self, parent: NodeId) -> &[NodeId] {
        let at = parent.0 as usize;
        match self.first.get(at..at.saturating_add(2)) {
            Some(&[start, end]) => &self.members[start..end],
            _ => &[],
        }
    }
}
