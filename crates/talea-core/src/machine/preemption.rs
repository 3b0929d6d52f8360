//! Whose arrivals take the CPU from whom: a question of drivers that would rather not be awake for
//! the others.
//!
//! Model: one CPU, and nothing on the way from the root to the task but schedulers that order by
//! criteria. A job that arrives changes what runs only where, at some level, its branch comes
//! before the one that runs. Whoever runs was there before, so it is enough to ask each policy
//! about a sibling that came last before it: of deadlines and arrivals an earlier one is more
//! urgent, and of a level's queue too. What a branch shows is what its most urgent task shows, so
//! all tasks below a sibling are asked about. A scheduler that does not preempt is not asked at all
//! while one of its children is under way.
//!
//! *Preemption levels* (Baker, Real-Time Systems 3(1), 1991, who defines them for EDF by relative
//! deadlines): a job can take the CPU only from those with a lower level. Of jobs that have begun,
//! then, the one that is to run has the highest, whatever the policy: it came when the others had
//! begun. A kernel that knows no more than levels runs the right one.
//!
//! A job that comes behind another one of its own task is a matter of that task alone until the
//! first one has ended: to whom nothing but criteria counts it shows what it has shown before.
//!
//! Conservative: a server, a quantum, a table, an accelerator, a resource, a graph or an enforced
//! separation anywhere in the machine is answered with no, and so are a policy from outside and,
//! below a scheduler that does not preempt, a place in a queue. Then whether an arrival matters may
//! depend on when it is told.
//!
//! Plain twin: all decisions of random runs, in the executor's tests of its loop.

use super::{Machine, NONE, TaskId, Watch};
use crate::mutate;
use crate::sched::{Built, Entry, Scheduler};
use crate::{Span, Time};
use alloc::vec::Vec;

impl<W: Watch> Machine<W> {
    /// Whether nothing but criteria and the order of arrivals counts on the one CPU that there is,
    /// and no release that comes before a late telling would be told before it.
    fn is_plain(&self) -> bool {
        let holds = self.share.as_ref().is_some_and(|share| share.has_gates());
        let is_spaced = self.tasks.iter().any(|task| task.ring.is_spaced());
        let is_one = self.cpus.len() == 1 && self.table.is_none() && self.graph.is_none();
        is_one && !self.any_metered && !holds && !is_spaced
    }

    /// The groups from that of `task` up to the root, from below.
    fn groups_of(&self, task: TaskId) -> impl Iterator<Item = u32> {
        let of = |node: u32| Some(self.nodes[node as usize].parent).filter(|&group| group != NONE);
        core::iter::successors(of(self.tasks[task.0 as usize].node), move |&group| {
            of(self.groups[group as usize].node)
        })
    }

    /// Whether a job of `task` that comes behind another one of it changes nothing else, if it is
    /// told with its own time and before everything that happens later: it may then be told when
    /// the first one ends.
    ///
    /// O(tasks + depth), for the begin of a run.
    pub fn queues_behind_itself(&self, task: TaskId) -> bool {
        mutate!(
            "core-preemption-plain",
            self.is_plain()
                && self
                    .groups_of(task)
                    .all(|group| is_ordered(&self.groups[group as usize].policy)),
            self.groups_of(task).all(|group| is_ordered(&self.groups[group as usize].policy))
        )
    }

    /// By task: from how many others its arrivals may take the CPU; none, if it does not queue
    /// behind itself. Where that is a matter of an order among tasks, as with any one policy for
    /// all, these are preemption levels: `a` is above `b` wherever it does not [leave it
    /// alone](Machine::leaves_alone). Elsewhere some may not be.
    ///
    /// O(tasks² · depth), for the begin of a run.
    pub fn preemption_levels(&self) -> Vec<u32> {
        let tasks = || (0..self.tasks.len() as u32).map(TaskId);
        let level = |task: TaskId| {
            let interrupts = |&other: &TaskId| {
                other != task
                    && mutate!(
                        "core-preemption-levels",
                        !self.leaves_alone(task, other),
                        self.leaves_alone(task, other)
                    )
            };
            if self.queues_behind_itself(task) {
                tasks().filter(interrupts).count() as u32
            } else {
                0
            }
        };
        tasks().map(level).collect()
    }

    /// Of a task that [queues behind itself](Machine::queues_behind_itself): whether its arrivals
    /// leave the CPU to a job of `other` that has it, if they are told with their own time and
    /// before everything that happens later. They may then be told when the next thing happens.
    ///
    /// O(depth), for the begin of a run.
    pub fn leaves_alone(&self, task: TaskId, other: TaskId) -> bool {
        // Below a scheduler that does not preempt it may come before a job that was there first; so
        // what that shows may rise while it keeps its old place in the queue of a level.
        let mut is_stubborn = false;
        self.groups_of(task).all(|group| {
            let state = &self.groups[group as usize];
            let keeps_its_place = is_stubborn;
            is_stubborn |= !state.preemptive;
            let (Some(mut mine), Some(mut its)) =
                (self.seen(group, task.0, 1), self.seen(group, other.0, 0))
            else {
                return true;
            };
            if keeps_its_place {
                (mine.since, its.since) = (0, 1);
            }
            let waits = mine.child == its.child || !state.policy.before(Time::ZERO, &mine, &its);
            mutate!(
                "exec-doze-preempts",
                !state.preemptive || waits,
                !state.preemptive || waits || task != other
            )
        })
    }

    /// What `group` sees of a job of `task` that arrives at `at`, if the task is below it.
    fn seen(&self, group: u32, task: u32, at: u64) -> Option<Entry> {
        let state = &self.tasks[task as usize];
        let mut node = &self.nodes[state.node as usize];
        let mut shown = node.entry.criteria;
        shown.arrival = Time::ZERO + Span::from_ns(at);
        shown.deadline = shown.arrival.saturating_add(state.deadline);
        while node.parent != group {
            let above = self.groups.get(node.parent as usize)?;
            shown = above.own.over(&shown);
            node = &self.nodes[above.node as usize];
        }
        Some(Entry { child: node.entry.child, job: 0, since: at, criteria: shown })
    }
}

/// Whether nothing but criteria and the order of arrivals counts.
fn is_ordered(policy: &Built) -> bool {
    !matches!(policy, Built::RoundRobin(_) | Built::Partitions(_) | Built::Custom(_))
}

#[cfg(test)]
mod tests {
    use crate::criteria::Own;
    use crate::machine::{NodeId, Protocol, SchedulerSpec, TaskId, TaskSpec, Tree, Version};
    use crate::sched::Policy;
    use crate::server::{Kind, Reservation};
    use crate::{Span, Work};
    use alloc::vec::Vec;

    fn task(tree: &mut Tree, parent: NodeId, ms: u64, priority: u8) {
        let mut spec = TaskSpec::new("task", Span::from_ns(ms * 1_000_000));
        spec.priority = priority;
        let _ = tree.task(parent, spec);
    }

    /// Of a flat root: tasks with these periods and priorities.
    fn flat(policy: Policy, tasks: &[(u64, u8)]) -> Tree {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", policy));
        for &(ms, priority) in tasks {
            task(&mut tree, Tree::ROOT, ms, priority);
        }
        tree
    }

    /// Who interrupts nobody.
    fn patient(tree: &Tree) -> Vec<u32> {
        let machine = tree.build().expect("a sound tree");
        let all = || (0..machine.tasks() as u32).map(TaskId);
        let leaves_all_alone =
            |task| all().all(|other| other == task || machine.leaves_alone(task, other));
        let is_patient =
            |&task: &TaskId| machine.queues_behind_itself(task) && leaves_all_alone(task);
        all().filter(is_patient).map(|task| task.0).collect()
    }

    /// By task; whoever may interrupt another one is above it.
    fn levels(tree: &Tree) -> Vec<u32> {
        let machine = tree.build().expect("a sound tree");
        let levels = machine.preemption_levels();
        let pairs = (0..levels.len()).flat_map(|a| (0..levels.len()).map(move |b| (a, b)));
        for (a, b) in pairs.filter(|(a, b)| a != b) {
            let is_ordered =
                machine.leaves_alone(TaskId(a as u32), TaskId(b as u32)) || levels[a] > levels[b];
            assert!(is_ordered, "{a} and {b} of {levels:?}");
        }
        levels
    }

    #[test]
    fn s8_in_a_flat_root_it_is_whoever_comes_last_in_its_order() {
        let tasks = [(10, 3), (30, 1), (20, 2), (30, 1)];
        assert_eq!(
            patient(&flat(Policy::Edf, &tasks)),
            [1, 3],
            "the later of two equal deadlines has to wait"
        );
        assert_eq!(
            patient(&flat(Policy::RateMonotonic, &tasks)),
            [3],
            "of two equal periods the first interrupts"
        );
        assert_eq!(patient(&flat(Policy::DeadlineMonotonic, &tasks)), [3]);
        assert_eq!(patient(&flat(Policy::FixedPriority, &tasks)), [1, 3], "a level is a queue");
        assert_eq!(patient(&flat(Policy::CriticalityMonotonic, &tasks)), [3]);
        assert_eq!(patient(&flat(Policy::Fifo, &tasks)), [0, 1, 2, 3]);
        let quantum = Work::from_ns(1_000_000);
        assert_eq!(patient(&flat(Policy::RoundRobin { quantum }, &tasks)), []);
        let mut stubborn = flat(Policy::Edf, &tasks);
        let super::super::Body::Scheduler(root) =
            &mut stubborn.get_mut(Tree::ROOT).expect("a root").body
        else {
            unreachable!("a scheduler")
        };
        root.preemptive = false;
        assert_eq!(patient(&stubborn), [0, 1, 2, 3]);
        let mut two = flat(Policy::Edf, &tasks);
        two.cpus = 2;
        assert_eq!(patient(&two), []);
    }

    #[test]
    fn s8_preemption_levels_are_those_of_deadlines_periods_or_priorities() {
        let tasks = [(10, 3), (30, 1), (20, 2), (10, 3)];
        assert_eq!(
            levels(&flat(Policy::Edf, &tasks)),
            [2, 0, 1, 2],
            "of two equal deadlines the first one stays"
        );
        assert_eq!(
            levels(&flat(Policy::RateMonotonic, &tasks)),
            [3, 0, 1, 2],
            "of two equal periods the first interrupts"
        );
        assert_eq!(
            levels(&flat(Policy::FixedPriority, &tasks)),
            [2, 0, 1, 2],
            "a level is a queue"
        );
        assert_eq!(levels(&flat(Policy::Fifo, &tasks)), [0, 0, 0, 0]);
        let mut tree = flat(Policy::RateMonotonic, &[(50, 0)]);
        let own = Own { period: Some(Span::from_ns(40_000_000)), ..Own::default() };
        let group = tree.scheduler(
            Tree::ROOT,
            SchedulerSpec { own, ..SchedulerSpec::new("group", Policy::Edf) },
        );
        task(&mut tree, group, 60, 0);
        task(&mut tree, group, 45, 0);
        assert_eq!(
            levels(&tree),
            [0, 1, 2],
            "the group stands first, and within it the shorter deadline"
        );
        let quantum = Work::from_ns(1_000_000);
        let machine = flat(Policy::RoundRobin { quantum }, &tasks).build().expect("a sound tree");
        assert_eq!(machine.preemption_levels(), [0; 4], "nothing is promised");
    }

    #[test]
    fn s8_below_schedulers_each_level_is_asked() {
        let mut tree = flat(Policy::RateMonotonic, &[(50, 0)]);
        let group = tree.scheduler(Tree::ROOT, SchedulerSpec::new("group", Policy::Edf));
        task(&mut tree, group, 60, 0);
        task(&mut tree, group, 40, 0);
        assert_eq!(
            patient(&tree),
            [1],
            "the first one comes before the longest below its sibling; the last before its own"
        );
        let own = |period| Own { period: Some(Span::from_ns(period)), ..Own::default() };
        let set = |tree: &mut Tree, own| {
            if let Some(super::super::Body::Scheduler(spec)) =
                tree.get_mut(group).map(|node| &mut node.body)
            {
                spec.own = own;
            }
        };
        set(&mut tree, own(1));
        assert_eq!(patient(&tree), [0], "the group stands above it, whoever is in it");
        set(&mut tree, own(99_000_000));
        assert_eq!(patient(&tree), [1]);
        set(&mut tree, Own::default());
        let stubborn = SchedulerSpec { preemptive: false, ..SchedulerSpec::new("b", Policy::Edf) };
        let other = tree.scheduler(Tree::ROOT, stubborn);
        task(&mut tree, other, 70, 0);
        task(&mut tree, other, 80, 0);
        assert_eq!(
            patient(&tree),
            [3, 4],
            "neither interrupts its neighbour, whichever comes first"
        );
        set(&mut tree, own(75_000_000));
        assert_eq!(
            patient(&tree),
            [4],
            "but one of them a job of another branch, as a whole branch does"
        );
    }

    #[test]
    fn s8_a_group_that_does_not_preempt_may_rise_and_keeps_its_place_in_a_queue() {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::FixedPriority));
        let stubborn =
            SchedulerSpec { preemptive: false, ..SchedulerSpec::new("group", Policy::Edf) };
        let group = tree.scheduler(Tree::ROOT, stubborn);
        task(&mut tree, group, 100, 1);
        task(&mut tree, group, 50, 2);
        // While this one computes, the group, which has waited for longer, rises to its level by
        // its second task's job.
        task(&mut tree, Tree::ROOT, 100, 2);
        task(&mut tree, Tree::ROOT, 100, 3);
        assert_eq!(patient(&tree), [0]);
    }

    #[test]
    fn s8_where_more_than_criteria_counts_nobody_is() {
        let tasks = [(10, 0), (20, 0)];
        let mut served = flat(Policy::Edf, &tasks);
        let mut server = SchedulerSpec::new("server", Policy::Fifo);
        server.reservation = Some(Reservation::new(
            Kind::Polling,
            Work::from_ns(1_000_000),
            Span::from_ns(10_000_000),
        ));
        let server = served.scheduler(Tree::ROOT, server);
        task(&mut served, server, 10, 0);
        let mut joined = flat(Policy::Edf, &tasks);
        let node = joined.task(Tree::ROOT, TaskSpec::node("node"));
        let _ = joined.channel(NodeId(1), node, 0);
        let change = |what: &dyn Fn(&mut Tree, &mut TaskSpec)| {
            let mut tree = flat(Policy::Edf, &tasks);
            let mut spec = TaskSpec::new("last", Span::from_ns(99_000_000));
            what(&mut tree, &mut spec);
            let _ = tree.task(Tree::ROOT, spec);
            patient(&tree)
        };
        assert_eq!((patient(&served), patient(&joined)), (Vec::new(), Vec::new()));
        assert_eq!(change(&|_, _| ()), [2]);
        assert_eq!(change(&|_, spec| spec.versions.push(Version::new("only"))), [2]);
        assert_eq!(change(&|_, spec| spec.enforced = true), []);
        let mut spaced = flat(Policy::Edf, &tasks);
        let _ = spaced.task(
            Tree::ROOT,
            TaskSpec { enforced: true, ..TaskSpec::new("early", Span::from_ns(5_000_000)) },
        );
        assert_eq!(patient(&spaced), [], "its releases are told in time");
        assert_eq!(change(&|tree, spec| spec.uses.push(tree.resource("r", Protocol::None))), []);
        let needs = |tree: &mut Tree, spec: &mut TaskSpec| {
            let accelerators = alloc::vec![tree.accelerator("a")];
            spec.versions.push(Version { accelerators, ..Version::new("v") });
        };
        assert_eq!(change(&needs), []);
    }
}
