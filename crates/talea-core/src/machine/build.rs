//! From the description to the machine. The only place that allocates.

use super::graph::Graph;
use super::notes::Notes;
use super::table::Table;
use super::{Affinity, Body, NodeId, Tree, sharing};
use super::{
    CpuState, Doing, Global, Group, Kid, Machine, NONE, Runnable, Task, TreeError, Watch, What,
    jobs,
};
use crate::Time;
use crate::criteria::Criteria;
use crate::heap::Heap;
use crate::mutate;
use crate::sched::{Entry, Policy, Scheduler};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

impl Tree {
    /// Checks the description and makes a machine of it that stands at time zero.
    pub fn build(&self) -> Result<Machine, TreeError> {
        self.build_with(())
    }

    /// As [`Tree::build`], with somebody who watches.
    pub fn build_with<W: Watch>(&self, watch: W) -> Result<Machine<W>, TreeError> {
        self.check()?;
        let (mut nodes, mut groups, mut tasks) =
            (Vec::new(), Vec::<Group>::new(), Vec::<Task>::new());
        let (mut whats, mut ids) = (Vec::new(), Vec::new());
        let families = self.families();
        // Of a scheduler's node: its group and how many children it has so far.
        let mut seen: BTreeMap<NodeId, (u32, u32)> = BTreeMap::new();
        let mut above: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        let inherited = self.inherited();
        let mut numbers: BTreeMap<NodeId, u32> = BTreeMap::new();
        let mut shared = Vec::new();
        for (id, node) in self.nodes() {
            let at = nodes.len() as u32;
            let (parent, child) = match node.parent.and_then(|parent| seen.get_mut(&parent)) {
                None => (NONE, 0),
                Some((group, children)) => {
                    *children += 1;
                    (*group, *children - 1)
                }
            };
            if let Some(parent) = node.parent {
                above.entry(parent).or_default().push(at);
            }
            let mut criteria = Criteria::LEAST;
            let mut metered = false;
            let what = match &node.body {
                Body::Scheduler(spec) => {
                    seen.insert(id, (groups.len() as u32, 0));
                    let mut own = spec.own;
                    own.yields |= mutate!(
                        "core-band-yields",
                        matches!(spec.policy, Policy::Partitions { .. }),
                        false
                    );
                    let policy = self.policy(id, spec, families.of(id))?;
                    let counts = spec.reservation.is_some() || policy.metered();
                    groups.push(Group {
                        policy,
                        server: spec.reservation.as_ref().map(crate::server::Reservation::build),
                        due: crate::Time::NEVER,
                        own,
                        node: at,
                        kids: 0,
                        pending: false,
                        preemptive: spec.preemptive,
                        current: None,
                        metered: counts,
                        is_spent: false,
                    });
                    criteria = own.over(&criteria);
                    What::Group(groups.len() as u32 - 1)
                }
                Body::Task(spec) => {
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
                    shared.push(sharing::Task {
                        node: at,
                        versions: spec.versions.clone(),
                        uses: spec.uses.clone(),
                    });
                    let mut group = parent;
                    while group != NONE {
                        metered |= groups[group as usize].metered;
                        let above: &Runnable = &nodes[groups[group as usize].node as usize];
                        group = above.parent;
                    }
                    tasks.push(Task {
                        ring: jobs::Ring::new(
                            spec.backlog.capacity,
                            spec.enforced.then_some(spec.period),
                        ),
                        deadline: criteria.relative_deadline,
                        node: at,
                        released: false,
                        started: false,
                        held: 0,
                    });
                    What::Task(tasks.len() as u32 - 1)
                }
            };
            nodes.push(Runnable {
                entry: Entry { child, job: 0, since: 0, criteria },
                parent,
                eligible: false,
                boosted: false,
                metered,
            });
            whats.push(what);
            ids.push(id);
        }
        let mut kids = Vec::with_capacity(nodes.len());
        for group in &mut groups {
            group.kids = kids.len() as u32;
            let id = ids[group.node as usize];
            let own = above.get(&id).into_iter().flatten();
            kids.extend(own.map(|&node| Kid::new(node, whats[node as usize])));
        }
        let Some(Body::Scheduler(root)) = self.get(Tree::ROOT).map(|node| &node.body) else {
            unreachable!("checked: the root is a scheduler")
        };
        let table = match &root.policy {
            Policy::Table { hyperperiod, entries } => {
                Some(Table::new(self.cpus, *hyperperiod, entries))
            }
            _ => None,
        };
        let global = (self.cpus > 1 && table.is_none()).then(|| {
            let affinities: Vec<Affinity> =
                self.children(Tree::ROOT).map(|(_, node)| node.affinity()).collect();
            let children = families.of(Tree::ROOT);
            let lane = || self.policy(Tree::ROOT, root, children).expect("built once already");
            Global::new(
                root.policy.rank(),
                lane,
                &affinities,
                self.cpus,
                self.migration,
                root.preemptive,
            )
        });
        let graph = (!self.channels.is_empty())
            .then(|| Graph::new(self, tasks.len(), |node| numbers[&node]));
        let shares = shared.iter().any(|task| !task.versions.is_empty() || !task.uses.is_empty());
        let has_notes = shares || graph.is_some() || table.is_some();
        let notes = if has_notes { 64 + 4 * (tasks.len() + self.channels.len()) } else { 0 };
        let idle = || CpuState {
            actual: Doing::NOTHING,
            target: Doing::NOTHING,
            expiry: Time::NEVER,
            metered: false,
        };
        let mut machine = Machine {
            timers: Heap::new(2 * groups.len() + tasks.len()),
            spent: Vec::with_capacity(groups.len()),
            any_nonpreemptive: groups.iter().any(|group| !group.preemptive),
            any_metered: groups.iter().any(|group| group.metered),
            nodes,
            whats,
            ids,
            groups,
            tasks,
            kids,
            cpus: (0..self.cpus).map(|_| idle()).collect(),
            global,
            table: table.map(Box::new),
            graph: graph.map(Box::new),
            share: None,
            notes: Notes::new(notes),
            stopped: false,
            now: Time::ZERO,
            stamp: 0,
            dirty: true,
            stale: u64::MAX,
            stops: 0,
            starts: 0,
            asked: false,
            watch,
        };
        if shares {
            machine.share = Some(machine.share_out(sharing::Plan {
                selection: self.selection,
                inheritance: self.inheritance,
                accelerators: self.accelerators.len(),
                resources: &self.resources,
                tasks: shared,
            }));
        }
        for group in 0..machine.groups.len() as u32 {
            machine.rearm(Time::ZERO, group);
            machine.rearm_policy(group);
        }
        Ok(machine)
    }
}
