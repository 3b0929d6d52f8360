//! The invariants, asked of a machine at rest.

use super::global::Kids;
use super::{Machine, NONE, Runnable, Watch, What};
use crate::Time;
use crate::mutate;
use crate::sched::{Entry, Scheduler};
use crate::server::Server;
use alloc::format;
use alloc::string::String;

impl<W: Watch> Machine<W> {
    /// Checks the four invariants of SF3P section V-C as restated at the head of this module, after
    /// every order has been polled. O(nodes). For tests, and for checking recorded runs.
    pub fn audit(&self, now: Time) -> Result<(), String> {
        for (at, group) in self.groups.iter().enumerate() {
            let node = &self.nodes[group.node as usize];
            let id = self.ids[group.node as usize];
            let kids = self.kids_of(at as u32);
            let ready = kids.clone().filter(|(_, kid)| kid.eligible).count();
            if at == 0 && self.global.is_some() {
                self.audit_global(now)?;
                continue;
            }
            let head = group.current.or_else(|| group.policy.head(now));
            if let (None, Some(head)) = (group.current, head) {
                let first = self.entry(self.kids[(group.kids + head) as usize].node);
                let mut others =
                    kids.clone().filter(|(_, kid)| kid.eligible && kid.entry.child != head);
                let is_before = |kid: &Runnable| group.policy.before(now, &kid.entry, &first);
                if let Some((other, _)) = others.find(|(_, kid)| is_before(kid)) {
                    return Err(format!(
                        "1: the head of {id:?} is child {head}, but {:?} comes before it",
                        self.ids[other]
                    ));
                }
            }
            let open = group.server.as_ref().is_none_or(|server| !server.budget(now).is_zero());
            if node.eligible {
                let Some(head) = head else {
                    return Err(format!("3: {id:?} is eligible without a head"));
                };
                let kid = &self.nodes[self.kids[(group.kids + head) as usize].node as usize];
                let mut shown = group.own.over(&kid.entry.criteria);
                if let Some(server) = &group.server {
                    shown.deadline = server.deadline();
                }
                if let (true, true, Some(share)) = (kid.boosted, node.boosted, &self.share) {
                    shown = shown.most_urgent(share.lent(group.node));
                }
                if shown != node.entry.criteria
                    && mutate!("core-audit-shown", self.is_seen(at as u32), ready == 0)
                {
                    return Err(format!(
                        "1: {id:?} shows {:?}, its head {shown:?}",
                        node.entry.criteria
                    ));
                }
                if mutate!(
                    "core-audit-child",
                    ready == 0 || !kid.eligible,
                    ready == 0 && kid.eligible
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
        // 4: who runs is eligible all the way up, and the paths of two CPUs meet nowhere but in the
        // root.
        for (cpu, state) in self.cpus.iter().enumerate() {
            let Some(task) = state.target.task() else { continue };
            if state.actual != state.target {
                return Err(format!("cpu {cpu} was not told"));
            }
            let mut at = self.tasks[task as usize].node;
            while self.nodes[at as usize].parent != NONE {
                if !self.nodes[at as usize].eligible {
                    return Err(format!("4: {:?} runs and is not eligible", self.ids[at as usize]));
                }
                let shared = self.cpus[..cpu].iter().filter_map(|other| other.target.task());
                for other in shared {
                    if self.is_above(at, self.tasks[other as usize].node) {
                        return Err(format!(
                            "4: {:?} is active on two CPUs",
                            self.ids[at as usize]
                        ));
                    }
                }
                at = self.groups[self.nodes[at as usize].parent as usize].node;
            }
        }
        if self.share.as_ref().is_some_and(|share| !share.is_consistent()) {
            return Err("somebody waits for what is free, or holds what is somebody else's".into());
        }
        if self.global.is_none() && self.table.is_none() {
            let root = &self.nodes[self.groups[0].node as usize];
            if root.eligible != self.cpus[0].target.task().is_some() {
                return Err(
                    "4: the CPU is idle although the root is eligible, or the other way round"
                        .into(),
                );
            }
        }
        Ok(())
    }

    /// The children of a group, with their numbers as nodes.
    fn kids_of(&self, group: u32) -> impl Iterator<Item = (usize, &Runnable)> + Clone {
        self.nodes.iter().enumerate().filter(move |(_, kid)| kid.parent == group)
    }

    fn entry(&self, node: u32) -> Entry {
        self.nodes[node as usize].entry
    }

    fn is_above(&self, node: u32, mut below: u32) -> bool {
        loop {
            if below == node {
                return true;
            }
            match self.above(below) {
                None => return false,
                Some(above) => below = above,
            }
        }
    }

    fn audit_global(&self, now: Time) -> Result<(), String> {
        let kids = Kids { nodes: &self.nodes, kids: &self.kids };
        if self.global.as_ref().is_some_and(|global| !global.is_settled(now, kids)) {
            return Err(
                "4: somebody waits who comes before somebody who runs on a CPU of his".into()
            );
        }
        let ready = self.kids_of(0).filter(|(_, kid)| kid.eligible).count();
        let busy = self.cpus.iter().filter(|cpu| cpu.target.task().is_some()).count();
        let free = self.cpus.len() - busy;
        // With jobs bound to CPUs a child may wait beside an idle CPU.
        let bound = self.global.as_ref().is_some_and(super::Global::may_wait);
        mutate!(
            "core-audit-idle",
            if busy > ready || (!bound && free > 0 && busy < ready) {
                return Err(format!(
                    "4: {busy} of {} CPUs are busy, {ready} children are ready",
                    self.cpus.len()
                ));
            },
            if busy > ready {
                return Err(format!(
                    "4: {busy} of {} CPUs are busy, {ready} children are ready",
                    self.cpus.len()
                ));
            }
        );
        for (at, kid) in self.kids_of(0) {
            if let What::Task(task) = self.whats[at] {
                let runs = self.cpus.iter().filter(|cpu| cpu.target.task() == Some(task)).count();
                if runs > usize::from(kid.eligible) {
                    return Err(format!("4: {:?} runs {runs} times", self.ids[at]));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Doing, Event, Machine, SchedulerSpec, TaskId, TaskSpec, Tree};
    use crate::sched::Policy;
    use crate::{Span, Time};

    /// A root with so many CPUs, a group of two tasks below it and one beside, all of them ready.
    fn busy(cpus: u32) -> Machine {
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", Policy::Edf));
        let group = tree.scheduler(Tree::ROOT, SchedulerSpec::new("group", Policy::Edf));
        for (parent, period) in [(group, 10), (group, 20), (Tree::ROOT, 30)] {
            tree.task(parent, TaskSpec::new("task", Span::from_ns(period)));
        }
        let mut machine = tree.build().expect("a tree");
        for task in 0..3 {
            let _ = machine
                .handle(Time::ZERO, Event::Arrived { task: TaskId(task), arrival: Time::ZERO });
        }
        while machine.poll(Time::ZERO).is_some() {}
        machine
    }

    fn complaint(cpus: u32, spoil: impl Fn(&mut Machine)) -> alloc::string::String {
        let mut machine = busy(cpus);
        assert_eq!(machine.audit(Time::ZERO), Ok(()));
        spoil(&mut machine);
        machine.audit(Time::ZERO).expect_err("a broken invariant")
    }

    #[test]
    fn s3_the_audit_sees_each_invariant_when_it_is_broken() {
        // Nodes come as they were declared: root, group, its tasks, the other one.
        let says = |what: &str, number: &str| assert!(what.starts_with(number), "{number}: {what}");
        says(&complaint(1, |machine| machine.nodes[1].entry.criteria.deadline = Time::NEVER), "1:");
        let shows = complaint(1, |machine| machine.nodes[1].entry.criteria.arrival = Time::NEVER);
        assert!(shows.starts_with("1:") && shows.contains("shows"), "{shows}");
        says(&complaint(1, |machine| machine.nodes[2].eligible = false), "3:");
        says(&complaint(1, |machine| machine.nodes[0].eligible = false), "2:");
        let rests = |machine: &mut Machine, cpu: usize| {
            machine.cpus[cpu].target = Doing::NOTHING;
            machine.cpus[cpu].actual = Doing::NOTHING;
        };
        says(&complaint(1, |machine| rests(machine, 0)), "4:");
        says(&complaint(2, |machine| rests(machine, 1)), "4:");
        // Both CPUs below one child.
        let twice = |machine: &mut Machine| {
            let of = Doing { task: 1, job: 0 };
            (machine.cpus[1].target, machine.cpus[1].actual) = (of, of);
        };
        says(&complaint(2, twice), "4:");
    }
}
