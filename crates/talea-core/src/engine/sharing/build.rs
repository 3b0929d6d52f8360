//! Construction of the sharing state, including the priority ceilings.

use super::super::ids::{AcceleratorId, ResourceId};
use super::super::versions::Conditions;
use super::super::{Engine, NONE, NodeKind, Observer};
use super::{Resource, ResourceSpec, Selection, Sharing, TaskSharing, Version, WaitsFor};
use crate::Time;
use crate::criteria::Criteria;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl<W: Observer> Engine<W> {
    /// Builds the sharing state of an engine that is otherwise complete.
    pub(in super::super) fn build_sharing(&self, plan: SharingPlan) -> Box<Sharing> {
        let resources = plan.resources.iter().enumerate().map(|(which, spec)| {
            let uses = |task: &TaskPlan| task.uses.iter().any(|used| used.0 as usize == which);
            let users = || plan.tasks.iter().filter(|task| uses(task));
            // The relative deadline of its jobs, regardless of a scheduler above.
            let own_deadline =
                |user: &TaskPlan| self.nodes[user.node as usize].entry.criteria.relative_deadline;
            let all = users()
                .map(|user| user.node)
                .reduce(|a, b| self.common_ancestor(a, b))
                .unwrap_or(0);
            // The common ancestor of a single user is the task itself.
            let ancestor = match self.shape.node_kinds[all as usize] {
                NodeKind::Task(_) => self.parent_of(all).unwrap_or(0),
                NodeKind::Scheduler(_) => all,
            };
            let seen = |user: &TaskPlan| {
                self.criteria_at(user.node, ancestor, self.nodes[user.node as usize].entry.criteria)
            };
            let ceiling =
                users().map(seen).fold(Criteria::LEAST, |most, one| most.most_urgent(&one));
            Resource {
                protocol: spec.protocol,
                holder: NONE,
                ceiling: Criteria { deadline: Time::NEVER, arrival: Time::NEVER, ..ceiling },
                floor: users()
                    .filter(|user| !self.has_server_between(user.node, ancestor))
                    .map(own_deadline)
                    .min(),
                ancestor,
                users: (0..)
                    .zip(&plan.tasks)
                    .filter(|(_, task)| uses(task))
                    .map(|(task, _)| task)
                    .collect(),
            }
        });
        let resources: Vec<Resource> = resources.collect();
        let (nodes, tasks) = (self.nodes.len(), plan.tasks.len());
        let shared = plan.tasks.into_iter().map(|task| {
            let mask = |of: &[AcceleratorId]| of.iter().fold(0, |mask, id| mask | 1u64 << id.0);
            let needs: Vec<u64> =
                task.versions.iter().map(|version| mask(&version.accelerators)).collect();
            let selects_version = !task.versions.is_empty();
            TaskSharing {
                base_criteria: self.nodes[task.node as usize].entry.criteria,
                versions: task.versions,
                needs,
                uses: task.uses,
                version: 0,
                selects_version,
                must_acquire: selects_version,
                waits_for: WaitsFor::Nothing,
                held_accelerators: 0,
            }
        });
        Box::new(Sharing {
            selection: plan.selection,
            conditions: Conditions::default(),
            inheritance: plan.inheritance,
            tasks: shared.collect(),
            free_accelerators: u64::MAX,
            holders: alloc::vec![NONE; plan.accelerators],
            resources,
            waiting: Vec::with_capacity(tasks),
            inherited: alloc::vec![Criteria::LEAST; nodes],
            boosted: Vec::with_capacity(nodes),
            to_update: Vec::with_capacity(2 * nodes),
            visited: alloc::vec![0; tasks],
            visit: 0,
        })
    }
}

/// Arguments of [`Engine::build_sharing`].
pub(in super::super) struct SharingPlan<'a> {
    pub(in super::super) selection: Selection,
    pub(in super::super) inheritance: bool,
    pub(in super::super) accelerators: usize,
    pub(in super::super) resources: &'a [ResourceSpec],
    pub(in super::super) tasks: Vec<TaskPlan>,
}

/// One task of a [`SharingPlan`].
pub(in super::super) struct TaskPlan {
    pub(in super::super) node: u32,
    pub(in super::super) versions: Vec<Version>,
    pub(in super::super) uses: Vec<ResourceId>,
}
