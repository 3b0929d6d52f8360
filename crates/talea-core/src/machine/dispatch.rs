//! Top down: who runs where from now on, and until when at most (SF3P section VI).

use super::global::Kids;
use super::{Doing, Kid, Machine, NONE, Picked, Signal, Watch, What};
use crate::Time;
use crate::mutate;
use alloc::vec::Vec;

impl<W: Watch> Machine<W> {
    /// Who runs where from now on (SF3P section VI: the top-down phase).
    #[inline(always)]
    pub(super) fn decide(&mut self, now: Time) {
        if self.share.is_some() {
            self.settle(now);
        }
        self.dirty = false;
        let stale = core::mem::take(&mut self.stale);
        if let Some(global) = &mut self.global {
            global.decide(now, Kids { nodes: &self.nodes, kids: &self.kids });
            let binds = global.binds();
            let mut left = (global.take_touched() | stale) & (u64::MAX >> (64 - self.cpus.len()));
            while left != 0 {
                let cpu = left.trailing_zeros() as usize;
                left &= left - 1;
                let child = self.global.as_ref().and_then(|global| global.running(cpu));
                let picked = match child {
                    // The root's children come first.
                    Some(child) => self.descend::<true>(now, self.kids[child as usize]),
                    None => None,
                };
                if let (true, Some(picked)) = (binds, picked) {
                    self.start(cpu, picked.task);
                }
                self.aim(now, cpu, picked);
            }
        } else if self.table.is_none() {
            let is_eligible = self.nodes[Kid::ROOT.node as usize].eligible;
            let picked = if is_eligible { self.descend::<true>(now, Kid::ROOT) } else { None };
            self.aim(now, 0, picked);
        } else {
            for cpu in 0..self.cpus.len() {
                let picked = self.candidate::<true>(now, cpu);
                self.aim(now, cpu, picked);
            }
        }
        if self.any_metered {
            self.measure(now);
        }
    }

    /// The job of `task` has a CPU, perhaps for the first time.
    fn start(&mut self, cpu: usize, task: u32) {
        if let Some(global) = &mut self.global
            && !core::mem::replace(&mut self.tasks[task as usize].started, true)
        {
            global.job_started(cpu);
        }
    }

    /// The task that has `cpu`, now that the policies have decided. `KEEP`: as in
    /// [`Machine::descend`].
    pub(super) fn candidate<const KEEP: bool>(&mut self, now: Time, cpu: usize) -> Option<Picked> {
        let kid = if let Some(global) = &self.global {
            // The root's children come first.
            self.kids[global.running(cpu)? as usize]
        } else if let Some(table) = &self.table {
            self.kids[table.owner(cpu)? as usize]
        } else {
            Kid::ROOT
        };
        if self.nodes[kid.node as usize].eligible { self.descend::<KEEP>(now, kid) } else { None }
    }

    /// The task that runs when `kid` has the CPU. `KEEP`: it does, and schedulers that do not
    /// preempt hold on to it; otherwise it may yet be turned away at a gate.
    #[inline(always)]
    fn descend<const KEEP: bool>(&mut self, now: Time, mut kid: Kid) -> Option<Picked> {
        loop {
            match kid.what() {
                What::Task(task) => {
                    // Of ten thousand tasks neither this line of memory nor the task's own is in
                    // the cache. Asked for together, they are waited for once, and the job's end
                    // finds both.
                    return Some(Picked { task, metered: self.nodes[kid.node as usize].metered });
                }
                What::Group(group) => {
                    let state = &mut self.groups[group as usize];
                    let head = state.current.or_else(|| state.policy.settled_head(now))?;
                    if KEEP && !state.preemptive {
                        state.current = mutate!("core-nonpreemptive", Some(head), None);
                    }
                    kid = self.kids[(state.kids + head) as usize];
                }
            }
        }
    }

    #[inline(always)]
    fn aim(&mut self, now: Time, cpu: usize, picked: Option<Picked>) {
        let mut target = Doing::NOTHING;
        let mut metered = false;
        if let Some(picked) = picked {
            metered = picked.metered;
            if let Some(job) = self.tasks[picked.task as usize].ring.first() {
                target = Doing { task: picked.task, job: job.number };
            }
        }
        if W::ON {
            let node = |doing: Doing| doing.task().map(|task| self.tasks[task as usize].node);
            let (from, to) = (node(self.cpus[cpu].target), node(target));
            self.pass(now, from, to);
        }
        let state = &mut self.cpus[cpu];
        state.target = target;
        state.metered = metered;
        state.expiry = Time::NEVER;
        if state.actual != target {
            let orders = if target == Doing::NOTHING { &mut self.stops } else { &mut self.starts };
            *orders |= 1 << cpu;
        }
    }

    /// Shows who loses and who gets the CPU, on the way from one task to another.
    pub(super) fn pass(&mut self, now: Time, from: Option<u32>, to: Option<u32>) {
        let meets = |machine: &Self, node: u32, of: Option<u32>| {
            let mut at = of;
            while let Some(here) = at {
                if here == node {
                    return true;
                }
                at = machine.above(here);
            }
            false
        };
        let mut at = from;
        while let Some(node) = at.filter(|&node| !meets(self, node, to)) {
            self.watch.see(now, Signal::Deactivate, self.ids[node as usize]);
            at = self.above(node);
        }
        // From the top down: as deep as the tree is, and only while somebody looks.
        let mut path: Vec<u32> = Vec::new();
        let mut at = to;
        while let Some(node) = at.filter(|&node| !meets(self, node, from)) {
            path.push(node);
            at = self.above(node);
        }
        for &node in path.iter().rev() {
            self.watch.see(now, Signal::Activate, self.ids[node as usize]);
        }
    }

    pub(super) fn above(&self, node: u32) -> Option<u32> {
        let parent = self.nodes[node as usize].parent;
        (parent != NONE).then(|| self.groups[parent as usize].node)
    }
}
