//! Static preemption analysis: which arrivals can preempt which tasks.
//!
//! A driver uses this analysis to avoid wake-ups for arrivals that cannot preempt the running task.
//!
//! Model: one CPU, and only schedulers that order by criteria between the root and the task. An
//! arriving job changes the decision only if, at some level, its branch precedes the running
//! branch. The running task arrived earlier. For deadlines, arrivals and positions in a level's
//! queue, the earlier job is more urgent. So a query to each policy about a sibling that arrived
//! last suffices. A branch presents the criteria of its most urgent task, so the query covers all
//! tasks below a sibling. A nonpreemptive scheduler is not queried while one of its children is
//! current.
//!
//! *Preemption levels* (Baker, Real-Time Systems 3(1), 1991, who defines them for EDF by relative
//! deadlines): a job can preempt only jobs of lower level. Let several jobs have started. The job
//! that has to run arrived last, when the others had started. So it has the highest level, whatever
//! the policy, and a kernel with fixed priorities by level runs this job.
//!
//! If only criteria count, a job behind another job of its own task changes no criteria. So the job
//! concerns only that task until the other job completes.
//!
//! The analysis is conservative. It permits no deferral in an engine with a server, quantum, table,
//! accelerator, resource, graph, nonpreemptive section or enforced separation. Below an external
//! policy, the analysis permits no deferral either. Below a nonpreemptive scheduler, the analysis
//! assumes that the arrival has an earlier queue position. In all these cases, the effect of an
//! arrival may depend on when the driver reports it.
//!
//! Reference model: all decisions of random runs, in the executor's tests of its loop.

use super::{Engine, NONE, Observer, TaskId};
use crate::mutate;
use crate::sched::{Policy, PolicyImpl, ReadyChild};
use crate::{Span, Time};
use alloc::vec::Vec;

impl<W: Observer> Engine<W> {
    /// Whether the engine has one CPU, and no table, graph, accounting, accelerator, resource,
    /// nonpreemptive section or enforced separation. Then only criteria and the order of arrivals
    /// count.
    fn is_plain(&self) -> bool {
        let holds = self.optional.sharing.as_ref().is_some_and(|sharing| sharing.can_block());
        let enforces_separation = self.tasks.iter().any(|task| task.jobs.enforces_separation());
        let is_one =
            self.cpus.len() == 1 && self.optional.table.is_none() && self.optional.graph.is_none();
        is_one
            && mutate!("core-section-deferral", !self.shape.nonpreemptive.has_sections(), true)
            && !self.shape.any_accounting
            && !holds
            && !enforces_separation
    }

    /// Iterates over the schedulers above `task`, from the bottom up.
    fn schedulers_of(&self, task: TaskId) -> impl Iterator<Item = u32> {
        let of = |node: u32| {
            Some(self.nodes[node as usize].parent).filter(|&scheduler| scheduler != NONE)
        };
        core::iter::successors(of(self.tasks[task.0 as usize].node), move |&scheduler| {
            of(self.schedulers[scheduler as usize].node)
        })
    }

    /// Whether the release of a job behind another job of `task` may be deferred to the completion
    /// of that job.
    ///
    /// The driver must then report the release with its own time, before all later events. The
    /// function takes O(tasks + depth) and serves the start of a run.
    pub fn release_may_be_deferred(&self, task: TaskId) -> bool {
        mutate!(
            "core-preemption-plain",
            self.is_plain()
                && self
                    .schedulers_of(task)
                    .all(|scheduler| is_ordered(&self.schedulers[scheduler as usize].policy)),
            self.schedulers_of(task)
                .all(|scheduler| is_ordered(&self.schedulers[scheduler as usize].policy))
        )
    }

    /// Returns the preemption levels: for each task, the number of tasks that its arrivals may
    /// preempt.
    ///
    /// The level is zero for a task whose releases may not be deferred. The relation *can preempt*
    /// (not [`Engine::cannot_preempt`]) is an order among tasks if all tasks have one policy, for
    /// example. Then a task has a higher level than every task that it can preempt. The function
    /// takes O(tasks² · depth) and serves the start of a run.
    pub fn preemption_levels(&self) -> Vec<u32> {
        let tasks = || (0..self.tasks.len() as u32).map(TaskId);
        let level = |task: TaskId| {
            let may_preempt = |&other: &TaskId| {
                other != task
                    && mutate!(
                        "core-preemption-levels",
                        !self.cannot_preempt(task, other),
                        self.cannot_preempt(task, other)
                    )
            };
            if self.release_may_be_deferred(task) {
                tasks().filter(may_preempt).count() as u32
            } else {
                0
            }
        };
        tasks().map(level).collect()
    }

    /// Whether an arrival of `task` never preempts a running job of `other`.
    ///
    /// `task` must satisfy [`Engine::release_may_be_deferred`]. The driver may then report the
    /// arrival at the next event, with its own time. The function takes O(depth) and serves the
    /// start of a run.
    pub fn cannot_preempt(&self, task: TaskId, other: TaskId) -> bool {
        // Below a nonpreemptive scheduler it may come before an earlier job. The scheduler's
        // criteria may then rise while it keeps its old position in a level's queue.
        let mut below_nonpreemptive = false;
        self.schedulers_of(task).all(|scheduler| {
            let state = &self.schedulers[scheduler as usize];
            let keeps_place = below_nonpreemptive;
            below_nonpreemptive |= !state.preemptive;
            let (Some(mut own_entry), Some(mut other_entry)) =
                (self.entry_at(scheduler, task.0, 1), self.entry_at(scheduler, other.0, 0))
            else {
                return true;
            };
            if keeps_place {
                (own_entry.ready_seq, other_entry.ready_seq) = (0, 1);
            }
            let waits = own_entry.child == other_entry.child
                || !state.policy.before(Time::ZERO, &own_entry, &other_entry);
            mutate!(
                "exec-release-timer-preempts",
                !state.preemptive || waits,
                !state.preemptive || waits || task != other
            )
        })
    }

    /// Returns the entry that `scheduler` would have for a job of `task` that arrives at `at`.
    /// `None` if the task is not below `scheduler`.
    fn entry_at(&self, scheduler: u32, task: u32, at: u64) -> Option<ReadyChild> {
        let state = &self.tasks[task as usize];
        let mut node = &self.nodes[state.node as usize];
        let mut presented = node.entry.criteria;
        presented.arrival = Time::ZERO + Span::from_ns(at);
        presented.deadline = presented.arrival.saturating_add(state.deadline);
        while node.parent != scheduler {
            let above = self.schedulers.get(node.parent as usize)?;
            presented = above.overrides.apply_to(&presented);
            node = &self.nodes[above.node as usize];
        }
        Some(ReadyChild { child: node.entry.child, job: 0, ready_seq: at, criteria: presented })
    }
}

/// Whether the policy orders its children only by criteria and the order of arrivals.
fn is_ordered(policy: &PolicyImpl) -> bool {
    !matches!(policy, PolicyImpl::RoundRobin(_) | PolicyImpl::Partitions(_) | PolicyImpl::Custom(_))
}

#[cfg(test)]
mod tests {
    use crate::criteria::Overrides;
    use crate::engine::{NodeId, Protocol, SchedulerSpec, TaskId, TaskSpec, Tree, Version};
    use crate::sched::PolicySpec;
    use crate::server::{Reservation, ServerKind};
    use crate::{Span, Work};
    use alloc::vec::Vec;

    fn task(tree: &mut Tree, parent: NodeId, ms: u64, priority: u8) {
        let mut spec = TaskSpec::new("task", Span::from_ns(ms * 1_000_000));
        spec.priority = priority;
        let _ = tree.task(parent, spec);
    }

    /// Builds a root with tasks of the given periods and priorities.
    fn flat(policy: PolicySpec, tasks: &[(u64, u8)]) -> Tree {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", policy));
        for &(ms, priority) in tasks {
            task(&mut tree, Tree::ROOT, ms, priority);
        }
        tree
    }

    /// Returns the tasks that preempt no other task.
    fn never_preempting(tree: &Tree) -> Vec<u32> {
        let engine = tree.build().expect("a sound tree");
        let all = || (0..engine.tasks() as u32).map(TaskId);
        let preempts_none =
            |task| all().all(|other| other == task || engine.cannot_preempt(task, other));
        let never_preempts =
            |&task: &TaskId| engine.release_may_be_deferred(task) && preempts_none(task);
        all().filter(never_preempts).map(|task| task.0).collect()
    }

    /// Returns the preemption levels, and checks that they order all preemptions.
    fn levels(tree: &Tree) -> Vec<u32> {
        let engine = tree.build().expect("a sound tree");
        let levels = engine.preemption_levels();
        let pairs = (0..levels.len()).flat_map(|a| (0..levels.len()).map(move |b| (a, b)));
        for (a, b) in pairs.filter(|(a, b)| a != b) {
            let is_ordered =
                engine.cannot_preempt(TaskId(a as u32), TaskId(b as u32)) || levels[a] > levels[b];
            assert!(is_ordered, "{a} and {b} of {levels:?}");
        }
        levels
    }

    #[test]
    fn nonpreemptive_sections_permit_no_deferral() {
        let mut tree = flat(PolicySpec::FixedPriority, &[(10, 3), (30, 1)]);
        assert_eq!(never_preempting(&tree), [1]);
        let mut spec = TaskSpec::new("sections", Span::from_ns(1_000_000));
        spec.preemption = crate::engine::Preemption::AtPoints;
        let _ = tree.task(Tree::ROOT, spec);
        assert!(never_preempting(&tree).is_empty(), "an arrival may come between two sections");
    }

    #[test]
    fn s8_in_a_flat_root_only_the_last_in_the_order_never_preempts() {
        let tasks = [(10, 3), (30, 1), (20, 2), (30, 1)];
        assert_eq!(
            never_preempting(&flat(PolicySpec::Edf, &tasks)),
            [1, 3],
            "the later of two equal deadlines has to wait"
        );
        assert_eq!(
            never_preempting(&flat(PolicySpec::RateMonotonic, &tasks)),
            [3],
            "of two equal periods the first preempts"
        );
        assert_eq!(never_preempting(&flat(PolicySpec::DeadlineMonotonic, &tasks)), [3]);
        assert_eq!(
            never_preempting(&flat(PolicySpec::FixedPriority, &tasks)),
            [1, 3],
            "a level is a queue"
        );
        assert_eq!(never_preempting(&flat(PolicySpec::CriticalityMonotonic, &tasks)), [3]);
        assert_eq!(never_preempting(&flat(PolicySpec::Fifo, &tasks)), [0, 1, 2, 3]);
        let quantum = Work::from_ns(1_000_000);
        assert_eq!(never_preempting(&flat(PolicySpec::RoundRobin { quantum }, &tasks)), []);
        let mut nonpreemptive = flat(PolicySpec::Edf, &tasks);
        let super::super::NodeSpec::Scheduler(root) =
            &mut nonpreemptive.get_mut(Tree::ROOT).expect("a root").spec
        else {
            unreachable!("a scheduler")
        };
        root.preemptive = false;
        assert_eq!(never_preempting(&nonpreemptive), [0, 1, 2, 3]);
        let mut two = flat(PolicySpec::Edf, &tasks);
        two.cpus = 2;
        assert_eq!(never_preempting(&two), []);
    }

    #[test]
    fn s8_preemption_levels_are_those_of_deadlines_periods_or_priorities() {
        let tasks = [(10, 3), (30, 1), (20, 2), (10, 3)];
        assert_eq!(
            levels(&flat(PolicySpec::Edf, &tasks)),
            [2, 0, 1, 2],
            "of two equal deadlines the first one stays"
        );
        assert_eq!(
            levels(&flat(PolicySpec::RateMonotonic, &tasks)),
            [3, 0, 1, 2],
            "of two equal periods the first preempts"
        );
        assert_eq!(
            levels(&flat(PolicySpec::FixedPriority, &tasks)),
            [2, 0, 1, 2],
            "a level is a queue"
        );
        assert_eq!(levels(&flat(PolicySpec::Fifo, &tasks)), [0, 0, 0, 0]);
        let mut tree = flat(PolicySpec::RateMonotonic, &[(50, 0)]);
        let own = Overrides { period: Some(Span::from_ns(40_000_000)), ..Overrides::default() };
        let scheduler = tree.scheduler(
            Tree::ROOT,
            SchedulerSpec { overrides: own, ..SchedulerSpec::new("group", PolicySpec::Edf) },
        );
        task(&mut tree, scheduler, 60, 0);
        task(&mut tree, scheduler, 45, 0);
        assert_eq!(
            levels(&tree),
            [0, 1, 2],
            "the group is first, and within it the shorter deadline"
        );
        let quantum = Work::from_ns(1_000_000);
        let engine =
            flat(PolicySpec::RoundRobin { quantum }, &tasks).build().expect("a sound tree");
        assert_eq!(engine.preemption_levels(), [0; 4], "no guarantee");
    }

    #[test]
    fn s8_in_a_tree_each_level_is_checked() {
        let mut tree = flat(PolicySpec::RateMonotonic, &[(50, 0)]);
        let scheduler = tree.scheduler(Tree::ROOT, SchedulerSpec::new("group", PolicySpec::Edf));
        task(&mut tree, scheduler, 60, 0);
        task(&mut tree, scheduler, 40, 0);
        assert_eq!(
            never_preempting(&tree),
            [1],
            "the first precedes the longest below its sibling; the last precedes its own"
        );
        let own =
            |period| Overrides { period: Some(Span::from_ns(period)), ..Overrides::default() };
        let set = |tree: &mut Tree, own| {
            if let Some(super::super::NodeSpec::Scheduler(spec)) =
                tree.get_mut(scheduler).map(|node| &mut node.spec)
            {
                spec.overrides = own;
            }
        };
        set(&mut tree, own(1));
        assert_eq!(never_preempting(&tree), [0], "the group precedes it, regardless of its tasks");
        set(&mut tree, own(99_000_000));
        assert_eq!(never_preempting(&tree), [1]);
        set(&mut tree, Overrides::default());
        let nonpreemptive =
            SchedulerSpec { preemptive: false, ..SchedulerSpec::new("b", PolicySpec::Edf) };
        let other = tree.scheduler(Tree::ROOT, nonpreemptive);
        task(&mut tree, other, 70, 0);
        task(&mut tree, other, 80, 0);
        assert_eq!(never_preempting(&tree), [3, 4], "neither preempts its sibling, in any order");
        set(&mut tree, own(75_000_000));
        assert_eq!(
            never_preempting(&tree),
            [4],
            "but one of them preempts a job of another branch"
        );
    }

    #[test]
    fn s8_a_nonpreemptive_group_may_rise_and_keeps_its_place_in_a_queue() {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
        let nonpreemptive =
            SchedulerSpec { preemptive: false, ..SchedulerSpec::new("group", PolicySpec::Edf) };
        let scheduler = tree.scheduler(Tree::ROOT, nonpreemptive);
        task(&mut tree, scheduler, 100, 1);
        task(&mut tree, scheduler, 50, 2);
        // While this task runs, the group, which has waited longer, rises to its level by the job
        // of its second task.
        task(&mut tree, Tree::ROOT, 100, 2);
        task(&mut tree, Tree::ROOT, 100, 3);
        assert_eq!(never_preempting(&tree), [0]);
    }

    #[test]
    fn s8_if_more_than_criteria_counts_every_task_may_preempt() {
        let tasks = [(10, 0), (20, 0)];
        let mut served = flat(PolicySpec::Edf, &tasks);
        let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
        server.reservation = Some(Reservation::new(
            ServerKind::Polling,
            Work::from_ns(1_000_000),
            Span::from_ns(10_000_000),
        ));
        let server = served.scheduler(Tree::ROOT, server);
        task(&mut served, server, 10, 0);
        let mut joined = flat(PolicySpec::Edf, &tasks);
        let node = joined.task(Tree::ROOT, TaskSpec::node("node"));
        let _ = joined.channel(NodeId(1), node, 0);
        let change = |what: &dyn Fn(&mut Tree, &mut TaskSpec)| {
            let mut tree = flat(PolicySpec::Edf, &tasks);
            let mut spec = TaskSpec::new("last", Span::from_ns(99_000_000));
            what(&mut tree, &mut spec);
            let _ = tree.task(Tree::ROOT, spec);
            never_preempting(&tree)
        };
        assert_eq!(
            (never_preempting(&served), never_preempting(&joined)),
            (Vec::new(), Vec::new())
        );
        assert_eq!(change(&|_, _| ()), [2]);
        assert_eq!(change(&|_, spec| spec.versions.push(Version::new("only"))), [2]);
        assert_eq!(change(&|_, spec| spec.enforced = true), []);
        let mut separated = flat(PolicySpec::Edf, &tasks);
        let _ = separated.task(
            Tree::ROOT,
            TaskSpec { enforced: true, ..TaskSpec::new("early", Span::from_ns(5_000_000)) },
        );
        assert_eq!(never_preempting(&separated), [], "its releases are reported in time");
        assert_eq!(change(&|tree, spec| spec.uses.push(tree.resource("r", Protocol::None))), []);
        let needs = |tree: &mut Tree, spec: &mut TaskSpec| {
            let accelerators = alloc::vec![tree.accelerator("a")];
            spec.versions.push(Version { accelerators, ..Version::new("v") });
        };
        assert_eq!(change(&needs), []);
    }
}
