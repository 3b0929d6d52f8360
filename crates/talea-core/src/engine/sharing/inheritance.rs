//! Priority inheritance and ceilings, through a tree.
//!
//! The reference is Sha, Rajkumar and Lehoczky, IEEE Trans. Computers 39(9), 1990. Inheritance is
//! transitive. A waiter and a holder have a lowest common scheduler. For a ceiling, every potential
//! waiter counts, and every released job. The *inherited key* is the waiter's criteria as the
//! common scheduler compares them, with overrides and servers' deadlines applied. Every node from
//! the holder up to below the common scheduler presents the more urgent of its own criteria and the
//! key. A scheduler presents the key only while its head is on this path.
//!
//! A scheduler on the path may have overrides that hide its children's criteria from the common
//! scheduler. Inside this scheduler, criteria cannot be compared with the key. If the key precedes
//! the scheduler's own criteria, the child on the path precedes all its siblings. Otherwise the key
//! is compared unchanged.
//!
//! Budgets are not inherited. A holder in a server without budget waits for the refill, and so do
//! its waiters. The executor and the analysis use the same rule.
//!
//! The engine recomputes all inheritance when a job begins or ends to wait or to hold. The engine
//! also recomputes it when a job is released while another job holds one of its resources under a
//! ceiling. The cost is O((waiters + users) · depth), and zero otherwise.

use super::super::{AWAITS_RESOURCE, Engine, NONE, NodeKind, Observer};
use super::{Protocol, Sharing, WaitsFor};
use crate::Time;
use crate::criteria::Criteria;
use crate::mutate;
use crate::sched::{Child, Policy, ReadyChild};
use crate::server::Server;

impl<W: Observer> Engine<W> {
    /// Returns the criteria of a task: its own criteria, with the release and deadline of its
    /// released job, and the inherited criteria.
    #[cold]
    pub(in super::super) fn task_criteria(&self, task: u32) -> Criteria {
        let (state, sharing) =
            (&self.tasks[task as usize], self.optional.sharing.as_ref().expect("sharing state"));
        let node = &self.nodes[state.node as usize];
        let mut base_criteria = sharing.tasks[task as usize].base_criteria;
        (base_criteria.arrival, base_criteria.deadline) =
            match state.jobs.first().filter(|_| state.released) {
                Some(job) => (job.release, job.deadline),
                None => (node.entry.criteria.arrival, node.entry.criteria.deadline),
            };
        if node.boosted {
            base_criteria.most_urgent(&sharing.inherited[state.node as usize])
        } else {
            base_criteria
        }
    }

    /// Returns the criteria of a scheduler: `own`, combined with the inherited criteria if `head`
    /// is on the path to the holder.
    #[cold]
    pub(in super::super) fn scheduler_criteria(
        &self,
        scheduler: u32,
        head: Child,
        own: &Criteria,
    ) -> Criteria {
        let (scheduler, sharing) = (
            &self.schedulers[scheduler as usize],
            self.optional.sharing.as_ref().expect("sharing state"),
        );
        let child = self.shape.children[(scheduler.first_child + head) as usize].node;
        let leads =
            self.nodes[child as usize].boosted && self.nodes[scheduler.node as usize].boosted;
        mutate!(
            "core-inheritance-group",
            if leads { own.most_urgent(&sharing.inherited[scheduler.node as usize]) } else { *own },
            if leads && own.yields {
                own.most_urgent(&sharing.inherited[scheduler.node as usize])
            } else {
                *own
            }
        )
    }

    /// Returns the lowest node at or above both nodes. Parents have smaller numbers than their
    /// children.
    pub(super) fn common_ancestor(&self, mut a: u32, mut b: u32) -> u32 {
        while a != b {
            let lower = if a > b { &mut a } else { &mut b };
            *lower = self.parent_of(*lower).expect("one root");
        }
        a
    }

    /// Returns `criteria` of `node` as the scheduler at `ancestor` compares them.
    pub(super) fn criteria_at(
        &self,
        mut node: u32,
        ancestor: u32,
        mut criteria: Criteria,
    ) -> Criteria {
        while let Some(above) = self.parent_of(node).filter(|&above| above != ancestor) {
            node = above;
            let NodeKind::Scheduler(scheduler) = self.shape.node_kinds[node as usize] else {
                unreachable!("tasks have no children")
            };
            let scheduler = &self.schedulers[scheduler as usize];
            criteria = scheduler.overrides.apply_to(&criteria);
            if let Some(server) = &scheduler.server {
                criteria.deadline = server.deadline();
            }
        }
        criteria
    }

    /// Whether there is a server between `node` and the scheduler at `ancestor`.
    pub(super) fn has_server_between(&self, node: u32, ancestor: u32) -> bool {
        let schedulers = core::iter::successors(self.parent_of(node), |&at| self.parent_of(at));
        schedulers.take_while(|&at| at != ancestor).any(|at| {
            match self.shape.node_kinds[at as usize] {
                NodeKind::Scheduler(scheduler) => {
                    self.schedulers[scheduler as usize].server.is_some()
                }
                NodeKind::Task(_) => false,
            }
        })
    }

    /// Applies ceilings when a job of `task` is released: a holder of one of its resources may have
    /// to precede it.
    #[cold]
    pub(in super::super) fn apply_ceilings(&mut self, now: Time, task: u32) {
        if self.tasks[task as usize].released
            && self.optional.sharing.as_ref().is_some_and(|sharing| sharing.is_below_ceiling(task))
        {
            self.recompute_inheritance(now);
        }
    }

    /// Recomputes all inheritance and propagates the changes.
    pub(in super::super) fn recompute_inheritance(&mut self, now: Time) {
        let mut sharing = self.optional.sharing.take().expect("sharing state");
        sharing.to_update.clear();
        for &node in &sharing.boosted {
            mutate!("core-inheritance-end", self.nodes[node as usize].boosted = false);

            sharing.to_update.push(node);
        }
        sharing.boosted.clear();
        for at in 0..sharing.waiting.len() {
            let from = sharing.waiting[at];
            sharing.visit += 1;
            sharing.visited[from as usize] = sharing.visit;
            self.inherit_along(now, &mut sharing, from, from);
        }
        for which in
            mutate!("core-resource-ceiling", 0, sharing.resources.len())..sharing.resources.len()
        {
            let resource = &sharing.resources[which];
            if resource.protocol == Protocol::Ceiling && resource.holder != NONE {
                let node = self.tasks[resource.holder as usize].node;
                let (key, ancestor, holder) =
                    (resource.ceiling, resource.ancestor, resource.holder);
                self.boost_path(now, &mut sharing, node, ancestor, &key);
                // Released jobs may have an earlier deadline than the floor: late ones, nodes with
                // their graph's deadline, and clients of servers.
                for at in 0..sharing.resources[which].users.len() {
                    let user = sharing.resources[which].users[at];
                    if user != holder
                        && mutate!(
                            "core-ceiling-present",
                            self.tasks[user as usize].released,
                            !self.tasks[user as usize].released
                        )
                    {
                        sharing.visit += 1;
                        sharing.visited[user as usize] = sharing.visit;
                        self.inherit_to(now, &mut sharing, user, holder);
                    }
                }
            }
        }
        let Sharing { to_update, boosted, .. } = &mut *sharing;
        to_update.extend_from_slice(boosted);
        // From the leaves up, each once.
        to_update.sort_unstable_by(|a, b| b.cmp(a));
        to_update.dedup();
        let to_update = core::mem::take(&mut sharing.to_update);
        self.optional.sharing = Some(sharing);
        for &node in &to_update {
            match self.shape.node_kinds[node as usize] {
                NodeKind::Task(task) => self.update_task(now, task, false),
                NodeKind::Scheduler(scheduler) => self.propagate_from(now, scheduler),
            }
        }
        self.optional.sharing.as_mut().expect("restored").to_update = to_update;
    }

    /// Lets the holders that `at` waits for inherit the key of `from`, and transitively the holders
    /// that they wait for.
    fn inherit_along(&mut self, now: Time, sharing: &mut Sharing, from: u32, at: u32) {
        let mut accelerators = match sharing.tasks[at as usize].waits_for {
            WaitsFor::Version(version)
                if mutate!(
                    "core-accelerator-inheritance",
                    mutate!("core-accelerator-opted-out", sharing.inheritance, true),
                    false
                ) =>
            {
                sharing.tasks[at as usize].needs[version as usize] & !sharing.free_accelerators
            }
            WaitsFor::Resource(which)
                if mutate!(
                    "core-resource-inheritance",
                    mutate!(
                        "core-resource-none",
                        sharing.resources[which as usize].protocol != Protocol::None,
                        true
                    ),
                    sharing.resources[which as usize].protocol == Protocol::Ceiling
                ) =>
            {
                for index in 0..sharing.tasks[at as usize].uses.len() {
                    let used = sharing.tasks[at as usize].uses[index].0;
                    if let Some(holder) = sharing.blocking_holder(at, which, used) {
                        self.inherit_to(now, sharing, from, holder);
                    }
                }
                0
            }
            _ => 0,
        };
        while accelerators != 0 {
            let holder = sharing.holders[accelerators.trailing_zeros() as usize];
            accelerators &= accelerators - 1;
            self.inherit_to(now, sharing, from, holder);
        }
    }

    fn inherit_to(&mut self, now: Time, sharing: &mut Sharing, from: u32, holder: u32) {
        if sharing.visited[holder as usize] == sharing.visit {
            return;
        }
        sharing.visited[holder as usize] = sharing.visit;
        let (waiting, holding) = (self.tasks[from as usize].node, self.tasks[holder as usize].node);
        let mut key = sharing.tasks[from as usize].base_criteria;
        if let Some(job) = self.tasks[from as usize].jobs.first() {
            (key.arrival, key.deadline) = (job.release, job.deadline);
        }
        let ancestor = self.common_ancestor(waiting, holding);
        let key = self.criteria_at(waiting, ancestor, key);
        self.boost_path(now, sharing, holding, ancestor, &key);
        mutate!(
            "core-inheritance-chain",
            if self.tasks[holder as usize].blocked_on & AWAITS_RESOURCE != 0 {
                self.inherit_along(now, sharing, from, holder);
            }
        );
    }

    /// Lets every node from the task at `holder` up to below `ancestor` inherit `key`.
    fn boost_path(
        &mut self,
        now: Time,
        sharing: &mut Sharing,
        holder: u32,
        ancestor: u32,
        key: &Criteria,
    ) {
        let NodeKind::Scheduler(scheduler) = self.shape.node_kinds[ancestor as usize] else {
            return;
        };
        // The part of the most urgent criteria that schedulers on the path hide.
        let shell = self.criteria_at(holder, ancestor, Criteria::MOST);
        let entry = |criteria: &Criteria| ReadyChild {
            child: 0,
            job: 0,
            ready_seq: 0,
            criteria: *criteria,
        };
        let policy = &self.schedulers[scheduler as usize].policy;
        let inner = if policy.before(
            now,
            &entry(mutate!("core-inheritance-hidden", key, &shell)),
            &entry(&shell),
        ) {
            &Criteria::MOST
        } else {
            key
        };
        let mut at = holder;
        while at != ancestor {
            let above = self.parent_of(at).expect("the ancestor is above the holder");
            let value = if above == ancestor { key } else { inner };
            let node = &mut self.nodes[at as usize];
            let inherited = &mut sharing.inherited[at as usize];
            if node.boosted {
                *inherited = inherited.most_urgent(value);
            } else {
                node.boosted = true;
                *inherited = *value;
                sharing.boosted.push(at);
            }
            at = above;
        }
    }
}
