//! Check of the engine's invariants between two instants.

use super::global::Children;
use super::{Engine, NONE, NodeKind, Observer, Runnable};
use crate::Time;
use crate::mutate;
use crate::sched::{Policy, ReadyChild};
use crate::server::Server;
use alloc::format;
use alloc::string::String;

impl<W: Observer> Engine<W> {
    /// Checks the four invariants of SF3P section V-C, as restated in the head of [`super`].
    ///
    /// The check is valid after every order has been polled. The cost grows with schedulers ·
    /// nodes. The check serves tests and checks of recorded runs.
    pub fn audit(&self, now: Time) -> Result<(), String> {
        for (at, scheduler) in self.schedulers.iter().enumerate() {
            let node = &self.nodes[scheduler.node as usize];
            let id = self.shape.ids[scheduler.node as usize];
            let children = self.children_of(at as u32);
            let ready = children.clone().filter(|(_, child)| child.eligible).count();
            if at == 0 && self.global.is_some() {
                self.audit_global(now)?;
                continue;
            }
            let head = scheduler.current.or_else(|| scheduler.policy.head(now));
            if let (None, Some(head)) = (scheduler.current, head) {
                let first =
                    self.entry(self.shape.children[(scheduler.first_child + head) as usize].node);
                let mut others = children
                    .clone()
                    .filter(|(_, child)| child.eligible && child.entry.child != head);
                let is_before =
                    |child: &Runnable| scheduler.policy.before(now, &child.entry, &first);
                if let Some((other, _)) = others.find(|(_, child)| is_before(child)) {
                    return Err(format!(
                        "1: the head of {id:?} is child {head}, but {:?} comes before it",
                        self.shape.ids[other]
                    ));
                }
            }
            let open = scheduler.server.as_ref().is_none_or(|server| !server.budget(now).is_zero());
            if node.eligible {
                let Some(head) = head else {
                    return Err(format!("3: {id:?} is eligible without a head"));
                };
                let child = &self.nodes
                    [self.shape.children[(scheduler.first_child + head) as usize].node as usize];
                let mut presented = scheduler.overrides.apply_to(&child.entry.criteria);
                if let Some(server) = &scheduler.server {
                    presented.deadline = server.deadline();
                }
                if let (true, true, Some(sharing)) =
                    (child.boosted, node.boosted, &self.optional.sharing)
                {
                    presented = presented.most_urgent(sharing.inherited(scheduler.node));
                }
                if presented != node.entry.criteria
                    && mutate!("core-audit-presented", self.is_observed(at as u32), ready == 0)
                {
                    return Err(format!(
                        "1: {id:?} presents {:?}, its head {presented:?}",
                        node.entry.criteria
                    ));
                }
                if mutate!(
                    "core-audit-child",
                    ready == 0 || !child.eligible,
                    ready == 0 && child.eligible
                ) {
                    return Err(format!("3: {id:?} is eligible, its head is not"));
                }
                if !open {
                    return Err(format!("2: {id:?} is eligible without a budget"));
                }
            } else if head.is_some() && mutate!("core-audit-eligible", open, !open) {
                return Err(format!("2: {id:?} is not eligible, but a child is"));
            }
        }
        // 4: a running task is eligible on its whole path, and the paths of two CPUs share only the
        // root.
        for (cpu, state) in self.cpus.iter().enumerate() {
            let Some(task) = state.linked.task() else { continue };
            if state.scheduled != state.linked {
                return Err(format!("cpu {cpu} has a pending order"));
            }
            let mut at = self.tasks[task as usize].node;
            while self.nodes[at as usize].parent != NONE {
                if !self.nodes[at as usize].eligible {
                    return Err(format!(
                        "4: {:?} runs and is not eligible",
                        self.shape.ids[at as usize]
                    ));
                }
                let shared = self.cpus[..cpu].iter().filter_map(|other| other.linked.task());
                for other in shared {
                    if self.is_above(at, self.tasks[other as usize].node) {
                        return Err(format!(
                            "4: {:?} is active on two CPUs",
                            self.shape.ids[at as usize]
                        ));
                    }
                }
                at = self.schedulers[self.nodes[at as usize].parent as usize].node;
            }
        }
        if self.optional.sharing.as_ref().is_some_and(|sharing| !sharing.is_consistent()) {
            return Err("a task waits for a free resource, or holds one of another task".into());
        }
        if self.global.is_none() && self.optional.table.is_none() {
            let root = &self.nodes[self.schedulers[0].node as usize];
            if root.eligible != self.cpus[0].linked.task().is_some() {
                return Err(
                    "4: the CPU is idle although the root is eligible, or the other way round"
                        .into(),
                );
            }
        }
        Ok(())
    }

    /// Returns the children of a scheduler with their node numbers.
    fn children_of(&self, scheduler: u32) -> impl Iterator<Item = (usize, &Runnable)> + Clone {
        self.nodes.iter().enumerate().filter(move |(_, child)| child.parent == scheduler)
    }

    fn entry(&self, node: u32) -> ReadyChild {
        self.nodes[node as usize].entry
    }

    fn is_above(&self, node: u32, mut below: u32) -> bool {
        loop {
            if below == node {
                return true;
            }
            match self.parent_of(below) {
                None => return false,
                Some(above) => below = above,
            }
        }
    }

    fn audit_global(&self, now: Time) -> Result<(), String> {
        let children = Children { nodes: &self.nodes, children: &self.shape.children };
        if self.global.as_ref().is_some_and(|global| !global.is_settled(now, children)) {
            return Err("4: a child waits that precedes a running one on its CPUs".into());
        }
        let ready = self.children_of(0).filter(|(_, child)| child.eligible).count();
        let busy = self.cpus.iter().filter(|cpu| cpu.linked.task().is_some()).count();
        let free = self.cpus.len() - busy;
        // If jobs are bound to CPUs, a child may wait beside an idle CPU.
        let bound = self.global.as_ref().is_some_and(super::Global::may_wait_beside_idle_cpu);
        let waits = !bound && free > 0 && busy < ready;
        if busy > ready || mutate!("core-audit-idle", waits, false) {
            let cpus = self.cpus.len();
            return Err(format!("4: {busy} of {cpus} CPUs are busy, {ready} children are ready"));
        }
        for (at, child) in self.children_of(0) {
            if let NodeKind::Task(task) = self.shape.node_kinds[at] {
                let runs = self.cpus.iter().filter(|cpu| cpu.linked.task() == Some(task)).count();
                if runs > usize::from(child.eligible) {
                    return Err(format!("4: {:?} runs {runs} times", self.shape.ids[at]));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Assignment, Engine, Event, SchedulerSpec, TaskId, TaskSpec, Tree};
    use crate::sched::PolicySpec;
    use crate::{Span, Time};

    /// Builds a root with `cpus` CPUs. Below it are a scheduler of two tasks and one more task, all
    /// of them ready.
    fn busy(cpus: u32) -> Engine {
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", PolicySpec::Edf));
        let scheduler = tree.scheduler(Tree::ROOT, SchedulerSpec::new("group", PolicySpec::Edf));
        for (parent, period) in [(scheduler, 10), (scheduler, 20), (Tree::ROOT, 30)] {
            tree.task(parent, TaskSpec::new("task", Span::from_ns(period)));
        }
        let mut engine = tree.build().expect("a tree");
        for task in 0..3 {
            let _ = engine
                .handle(Time::ZERO, Event::Arrived { task: TaskId(task), arrival: Time::ZERO });
        }
        while engine.poll(Time::ZERO).is_some() {}
        engine
    }

    fn broken(cpus: u32, corrupt: impl Fn(&mut Engine)) -> alloc::string::String {
        let mut engine = busy(cpus);
        assert_eq!(engine.audit(Time::ZERO), Ok(()));
        corrupt(&mut engine);
        engine.audit(Time::ZERO).expect_err("a broken invariant")
    }

    #[test]
    fn s3_the_audit_detects_each_broken_invariant() {
        // Nodes are numbered in the order of declaration: root, group, its tasks, the other task.
        let says = |what: &str, number: &str| assert!(what.starts_with(number), "{number}: {what}");
        says(&broken(1, |engine| engine.nodes[1].entry.criteria.deadline = Time::NEVER), "1:");
        let message = broken(1, |engine| engine.nodes[1].entry.criteria.arrival = Time::NEVER);
        assert!(message.starts_with("1:") && message.contains("presents"), "{message}");
        says(&broken(1, |engine| engine.nodes[2].eligible = false), "3:");
        says(&broken(1, |engine| engine.nodes[0].eligible = false), "2:");
        let make_idle = |engine: &mut Engine, cpu: usize| {
            engine.cpus[cpu].linked = Assignment::IDLE;
            engine.cpus[cpu].scheduled = Assignment::IDLE;
        };
        says(&broken(1, |engine| make_idle(engine, 0)), "4:");
        says(&broken(2, |engine| make_idle(engine, 1)), "4:");
        // Both CPUs below one child.
        let twice = |engine: &mut Engine| {
            let of = Assignment { task: 1, job: 0 };
            (engine.cpus[1].linked, engine.cpus[1].scheduled) = (of, of);
        };
        says(&broken(2, twice), "4:");
    }
}
