//! Ceilings, and room for everything.

use super::super::versions::Conditions;
use super::super::{Machine, NONE, Watch, What};
use super::{
    AcceleratorId, Resource, ResourceId, ResourceSpec, Selection, Shared, Sharing, Version, Wants,
};
use crate::Time;
use crate::criteria::Criteria;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl<W: Watch> Machine<W> {
    /// Of a machine that is all built but for this.
    pub(in super::super) fn share_out(&self, plan: Plan) -> Box<Sharing> {
        let resources = plan.resources.iter().enumerate().map(|(which, spec)| {
            let uses = |task: &Task| task.uses.iter().any(|used| used.0 as usize == which);
            let users = || plan.tasks.iter().filter(|task| uses(task));
            // What its job's deadline counts with, whatever a group above shows.
            let own_deadline =
                |user: &Task| self.nodes[user.node as usize].entry.criteria.relative_deadline;
            let all = users().map(|user| user.node).reduce(|a, b| self.meet(a, b)).unwrap_or(0);
            // A single user meets itself.
            let meet = match self.whats[all as usize] {
                What::Task(_) => self.above(all).unwrap_or(0),
                What::Group(_) => all,
            };
            let seen = |user: &Task| {
                self.fold(user.node, meet, self.nodes[user.node as usize].entry.criteria)
            };
            let ceiling =
                users().map(seen).fold(Criteria::LEAST, |most, one| most.most_urgent(&one));
            Resource {
                protocol: spec.protocol,
                holder: NONE,
                ceiling: Criteria { deadline: Time::NEVER, arrival: Time::NEVER, ..ceiling },
                floor: users()
                    .filter(|user| !self.is_served(user.node, meet))
                    .map(own_deadline)
                    .min(),
                meet,
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
            let gated = !task.versions.is_empty();
            Shared {
                natural: self.nodes[task.node as usize].entry.criteria,
                versions: task.versions,
                needs,
                uses: task.uses,
                version: 0,
                gated,
                closed: gated,
                wants: Wants::Nothing,
                holds: 0,
            }
        });
        Box::new(Sharing {
            selection: plan.selection,
            conditions: Conditions::default(),
            inheritance: plan.inheritance,
            tasks: shared.collect(),
            free: u64::MAX,
            holders: alloc::vec![NONE; plan.accelerators],
            resources,
            waiting: Vec::with_capacity(tasks),
            lent: alloc::vec![Criteria::LEAST; nodes],
            boosted: Vec::with_capacity(nodes),
            tell: Vec::with_capacity(2 * nodes),
            met: alloc::vec![0; tasks],
            walk: 0,
        })
    }
}

/// What [`Machine::share_out`] needs of the description.
pub(in super::super) struct Plan<'a> {
    pub(in super::super) selection: Selection,
    pub(in super::super) inheritance: bool,
    pub(in super::super) accelerators: usize,
    pub(in super::super) resources: &'a [ResourceSpec],
    pub(in super::super) tasks: Vec<Task>,
}

/// One task of a [`Plan`].
pub(in super::super) struct Task {
    pub(in super::super) node: u32,
    pub(in super::super) versions: Vec<Version>,
    pub(in super::super) uses: Vec<ResourceId>,
}
