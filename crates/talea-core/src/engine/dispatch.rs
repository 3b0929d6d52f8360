//! Top-down phase: the decision links a job to each CPU (SF3P section VI).
//!
//! For each CPU, the decision descends from the root, or from the child that owns the CPU, along
//! the heads of the policies to a task. The result is the CPU's `linked` assignment. A difference
//! to the `scheduled` assignment becomes an order.

use super::global::Children;
use super::state::IN_SECTION;
use super::{Assignment, Candidate, ChildRef, Engine, NONE, NodeKind, Observer, Signal};
use crate::Time;
use crate::mutate;
use alloc::vec::Vec;

impl<W: Observer> Engine<W> {
    /// Makes the decision for all CPUs whose assignment may have changed.
    #[inline(always)]
    pub(super) fn decide(&mut self, now: Time) {
        if self.optional.sharing.is_some() {
            self.resolve_waits(now);
        }
        self.decision.need_resched = false;
        let cpus_to_recheck = core::mem::take(&mut self.decision.cpus_to_recheck);
        if let Some(global) = &mut self.global {
            global.decide(now, Children { nodes: &self.nodes, children: &self.shape.children });
            let binds = global.binds_jobs();
            let mut left = (global.take_changed_cpus() | cpus_to_recheck)
                & (u64::MAX >> (64 - self.cpus.len()));
            while left != 0 {
                let cpu = left.trailing_zeros() as usize;
                left &= left - 1;
                let child = self.global.as_ref().and_then(|global| global.running_on(cpu));
                let candidate = match child {
                    // The root's children are stored first.
                    Some(child) => self.descend::<true>(now, self.shape.children[child as usize]),
                    None => None,
                };
                if let (true, Some(candidate)) = (binds, candidate) {
                    self.start(cpu, candidate.task);
                }
                self.link(now, cpu, candidate);
            }
        } else if self.optional.table.is_none() {
            let is_eligible = self.nodes[ChildRef::ROOT.node as usize].eligible;
            let candidate =
                if is_eligible { self.descend::<true>(now, ChildRef::ROOT) } else { None };
            self.link(now, 0, candidate);
        } else {
            for cpu in 0..self.cpus.len() {
                let candidate = self.candidate::<true>(now, cpu);
                self.link(now, cpu, candidate);
            }
        }
        if self.shape.any_accounting {
            self.update_budget_ends(now);
        }
    }

    /// Records the first dispatch of the current job of `task`. Later dispatches have no effect.
    fn start(&mut self, cpu: usize, task: u32) {
        if let Some(global) = &mut self.global
            && !core::mem::replace(&mut self.tasks[task as usize].started, true)
        {
            global.job_started(cpu);
        }
    }

    /// Returns the task that owns `cpu` after the decision of the policies, or `None` for an idle
    /// CPU. [`Engine::descend`] defines `KEEP`.
    pub(super) fn candidate<const KEEP: bool>(
        &mut self,
        now: Time,
        cpu: usize,
    ) -> Option<Candidate> {
        let child = if let Some(global) = &self.global {
            // The root's children are stored first.
            self.shape.children[global.running_on(cpu)? as usize]
        } else if let Some(table) = &self.optional.table {
            self.shape.children[table.owner(cpu)? as usize]
        } else {
            ChildRef::ROOT
        };
        if self.nodes[child.node as usize].eligible {
            self.descend::<KEEP>(now, child)
        } else {
            None
        }
    }

    /// Returns the task that runs if `child` has the CPU. `None` if a scheduler on the path has no
    /// head.
    ///
    /// With `KEEP` the task runs, and nonpreemptive schedulers record their current child. Without
    /// `KEEP`, the task may still have to wait for an accelerator or a resource.
    #[inline(always)]
    fn descend<const KEEP: bool>(&mut self, now: Time, mut child: ChildRef) -> Option<Candidate> {
        loop {
            match child.kind() {
                NodeKind::Task(task) => {
                    if KEEP && self.shape.nonpreemptive.has_sections() {
                        self.keep_in_section(child.node, task);
                    }
                    // Among ten thousand tasks, neither this cache line nor the task's own is
                    // cached. Requested together, they cost one wait, and the completion finds
                    // both.
                    return Some(Candidate {
                        task,
                        accounted: self.nodes[child.node as usize].accounted,
                    });
                }
                NodeKind::Scheduler(scheduler) => {
                    let state = &mut self.schedulers[scheduler as usize];
                    let head = state.current.or_else(|| state.policy.settled_head(now))?;
                    if KEEP && !state.preemptive {
                        state.current = mutate!("core-nonpreemptive", Some(head), None);
                    }
                    child = self.shape.children[(state.first_child + head) as usize];
                }
            }
        }
    }

    /// Makes a dispatched task in a nonpreemptive section the current child of its scheduler.
    fn keep_in_section(&mut self, node: u32, task: u32) {
        let node = &self.nodes[node as usize];
        if self.tasks[task as usize].section & IN_SECTION != 0 {
            let scheduler = &mut self.schedulers[node.parent as usize];
            scheduler.current = mutate!("core-section", Some(node.entry.child), None);
        }
    }

    #[inline(always)]
    fn link(&mut self, now: Time, cpu: usize, candidate: Option<Candidate>) {
        let mut linked = Assignment::IDLE;
        let mut accounted = false;
        if let Some(candidate) = candidate {
            accounted = candidate.accounted;
            if let Some(job) = self.tasks[candidate.task as usize].jobs.first() {
                linked = Assignment { task: candidate.task, job: job.number };
            }
        }
        if W::ENABLED {
            let node = |assignment: Assignment| {
                assignment.task().map(|task| self.tasks[task as usize].node)
            };
            let (from, to) = (node(self.cpus[cpu].linked), node(linked));
            self.emit_activation(now, from, to);
        }
        let state = &mut self.cpus[cpu];
        state.linked = linked;
        state.accounted = accounted;
        state.budget_end = Time::NEVER;
        if state.scheduled != linked {
            let orders = if linked == Assignment::IDLE {
                &mut self.decision.stops
            } else {
                &mut self.decision.starts
            };
            *orders |= 1 << cpu;
        }
    }

    /// Reports deactivations and activations on the path from one task to another.
    pub(super) fn emit_activation(&mut self, now: Time, from: Option<u32>, to: Option<u32>) {
        let is_on_path = |engine: &Self, node: u32, of: Option<u32>| {
            let mut at = of;
            while let Some(here) = at {
                if here == node {
                    return true;
                }
                at = engine.parent_of(here);
            }
            false
        };
        let mut at = from;
        while let Some(node) = at.filter(|&node| !is_on_path(self, node, to)) {
            self.observer.on_signal(now, Signal::Deactivate, self.shape.ids[node as usize]);
            at = self.parent_of(node);
        }
        // From the top down: at most as long as the tree is deep, and only with an observer.
        let mut path: Vec<u32> = Vec::new();
        let mut at = to;
        while let Some(node) = at.filter(|&node| !is_on_path(self, node, from)) {
            path.push(node);
            at = self.parent_of(node);
        }
        for &node in path.iter().rev() {
            self.observer.on_signal(now, Signal::Activate, self.shape.ids[node as usize]);
        }
    }

    pub(super) fn parent_of(&self, node: u32) -> Option<u32> {
        let parent = self.nodes[node as usize].parent;
        (parent != NONE).then(|| self.schedulers[parent as usize].node)
    }
}
