//! Construction of an engine from a tree. Only this module allocates.

use super::graph::Graph;
use super::notifications::NotificationQueue;
use super::state::{BEGINS_IN_SECTION, DecisionState, IN_SECTION, NonpreemptiveParts, TreeShape};
use super::table::Table;
use super::{Affinity, NodeId, NodeSpec, Preemption, Tree, sharing};
use super::{
    Assignment, ChildRef, CpuState, Engine, Global, NONE, NodeKind, Observer, OptionalParts,
    Runnable, SchedulerNode, TaskState, TreeError, jobs,
};
use crate::Time;
use crate::criteria::Criteria;
use crate::heap::Heap;
use crate::mutate;
use crate::sched::{Policy, PolicySpec, ReadyChild};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

impl Tree {
    /// Checks the tree and builds an engine at time zero.
    pub fn build(&self) -> Result<Engine, TreeError> {
        self.build_with(())
    }

    /// Checks the tree and builds an engine with an observer.
    pub fn build_with<W: Observer>(&self, observer: W) -> Result<Engine<W>, TreeError> {
        self.check()?;
        let (mut nodes, mut schedulers, mut tasks) =
            (Vec::new(), Vec::<SchedulerNode>::new(), Vec::<TaskState>::new());
        let (mut node_kinds, mut ids) = (Vec::new(), Vec::new());
        let families = self.child_index();
        // `seen[n]`: index of scheduler node `n`, and its number of children so far.
        let mut seen: BTreeMap<NodeId, (u32, u32)> = BTreeMap::new();
        let mut above: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        let inherited = self.inherited_criteria();
        let mut numbers: BTreeMap<NodeId, u32> = BTreeMap::new();
        let mut plans = Vec::new();
        let mut any_sections = false;
        for (id, node) in self.nodes() {
            let at = nodes.len() as u32;
            let (parent, child) = match node.parent.and_then(|parent| seen.get_mut(&parent)) {
                None => (NONE, 0),
                Some((scheduler, children)) => {
                    *children += 1;
                    (*scheduler, *children - 1)
                }
            };
            if let Some(parent) = node.parent {
                above.entry(parent).or_default().push(at);
            }
            let mut criteria = Criteria::LEAST;
            let mut accounted = false;
            let kind = match &node.spec {
                NodeSpec::Scheduler(spec) => {
                    seen.insert(id, (schedulers.len() as u32, 0));
                    let mut overrides = spec.overrides;
                    overrides.yields |= mutate!(
                        "core-band-yields",
                        matches!(spec.policy, PolicySpec::Partitions { .. }),
                        false
                    );
                    let policy = self.policy(id, spec, families.of(id))?;
                    let counts = spec.reservation.is_some() || policy.needs_accounting();
                    schedulers.push(SchedulerNode {
                        policy,
                        server: spec.reservation.as_ref().map(crate::server::Reservation::build),
                        last_deadline: crate::Time::NEVER,
                        overrides,
                        node: at,
                        first_child: 0,
                        pending: false,
                        preemptive: spec.preemptive,
                        current: None,
                        needs_accounting: counts,
                        is_exhausted: false,
                    });
                    criteria = overrides.apply_to(&criteria);
                    NodeKind::Scheduler(schedulers.len() as u32 - 1)
                }
                NodeSpec::Task(spec) => {
                    criteria.period = spec.period;
                    criteria.relative_deadline = spec.deadline;
                    criteria.priority = spec.priority;
                    criteria.criticality = spec.criticality;
                    if let Some(roots) = inherited.get(&id) {
                        mutate!(
                            "core-graph-priority",
                            criteria = *roots,
                            criteria.deadline = roots.deadline
                        );
                    }
                    numbers.insert(id, tasks.len() as u32);
                    plans.push(sharing::TaskPlan {
                        node: at,
                        versions: spec.versions.clone(),
                        uses: spec.uses.clone(),
                    });
                    let mut scheduler = parent;
                    while scheduler != NONE {
                        accounted |= schedulers[scheduler as usize].needs_accounting;
                        let above: &Runnable = &nodes[schedulers[scheduler as usize].node as usize];
                        scheduler = above.parent;
                    }
                    tasks.push(TaskState {
                        jobs: jobs::JobQueue::new(
                            spec.backlog.capacity,
                            spec.enforced.then_some(spec.period),
                        ),
                        deadline: criteria.relative_deadline,
                        node: at,
                        released: false,
                        started: false,
                        blocked_on: 0,
                        section: match spec.preemption {
                            Preemption::AtPoints => BEGINS_IN_SECTION | IN_SECTION,
                            Preemption::Anywhere | Preemption::Floating => 0,
                        },
                    });
                    any_sections |= spec.preemption != Preemption::Anywhere;
                    NodeKind::Task(tasks.len() as u32 - 1)
                }
            };
            nodes.push(Runnable {
                entry: ReadyChild { child, job: 0, ready_seq: 0, criteria },
                parent,
                eligible: false,
                boosted: false,
                accounted,
            });
            node_kinds.push(kind);
            ids.push(id);
        }
        let mut children = Vec::with_capacity(nodes.len());
        for scheduler in &mut schedulers {
            scheduler.first_child = children.len() as u32;
            let id = ids[scheduler.node as usize];
            let own = above.get(&id).into_iter().flatten();
            children.extend(own.map(|&node| ChildRef::new(node, node_kinds[node as usize])));
        }
        let Some(NodeSpec::Scheduler(root)) = self.get(Tree::ROOT).map(|node| &node.spec) else {
            unreachable!("checked: the root is a scheduler")
        };
        let table = match &root.policy {
            PolicySpec::Table { hyperperiod, entries } => {
                Some(Table::new(self.cpus, *hyperperiod, entries))
            }
            _ => None,
        };
        let global = (self.cpus > 1 && table.is_none()).then(|| {
            let affinities: Vec<Affinity> =
                self.children(Tree::ROOT).map(|(_, node)| node.affinity()).collect();
            let children = families.of(Tree::ROOT);
            let queue = || {
                self.policy(Tree::ROOT, root, children).expect("the same policy was built before")
            };
            Global::new(
                root.policy.rank(),
                queue,
                &affinities,
                self.cpus,
                self.migration,
                root.preemptive,
            )
        });
        let graph = (!self.channels.is_empty())
            .then(|| Graph::new(self, tasks.len(), |node| numbers[&node]));
        let has_sharing =
            plans.iter().any(|task| !task.versions.is_empty() || !task.uses.is_empty());
        let has_notifications = has_sharing || graph.is_some() || table.is_some();
        let notifications =
            if has_notifications { 64 + 4 * (tasks.len() + self.channels.len()) } else { 0 };
        let idle = || CpuState {
            scheduled: Assignment::IDLE,
            linked: Assignment::IDLE,
            budget_end: Time::NEVER,
            accounted: false,
        };
        let shape = TreeShape {
            nonpreemptive: if any_sections {
                NonpreemptiveParts::Sections
            } else if schedulers.iter().any(|scheduler| !scheduler.preemptive) {
                NonpreemptiveParts::Schedulers
            } else {
                NonpreemptiveParts::None
            },
            any_accounting: schedulers.iter().any(|scheduler| scheduler.needs_accounting),
            node_kinds,
            ids,
            children,
        };
        let mut engine = Engine {
            timers: Heap::new(2 * schedulers.len() + tasks.len()),
            exhausted: Vec::with_capacity(schedulers.len()),
            shape,
            nodes,
            schedulers,
            tasks,
            cpus: (0..self.cpus).map(|_| idle()).collect(),
            global,
            optional: OptionalParts {
                table: table.map(Box::new),
                graph: graph.map(Box::new),
                sharing: None,
            },
            notifications: NotificationQueue::new(notifications),
            stopped: false,
            now: Time::ZERO,
            ready_seq: 0,
            decision: DecisionState {
                need_resched: true,
                cpus_to_recheck: u64::MAX,
                stops: 0,
                starts: 0,
                orders_polled: false,
            },
            observer,
        };
        if has_sharing {
            engine.optional.sharing = Some(engine.build_sharing(sharing::SharingPlan {
                selection: self.selection,
                inheritance: self.inheritance,
                accelerators: self.accelerators.len(),
                resources: &self.resources,
                tasks: plans,
            }));
        }
        for scheduler in 0..engine.schedulers.len() as u32 {
            engine.update_refill_timer(Time::ZERO, scheduler);
            engine.update_policy_timer(scheduler);
        }
        Ok(engine)
    }
}
