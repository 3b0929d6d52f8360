//! The gate: what a job must have before it runs.

use super::super::global::Kids;
use super::super::versions::Candidates;
use super::super::{Machine, NONE, Note, Picked, STALLED, TaskId, Watch};
use super::{Protocol, Sharing, Wants};
use crate::Time;

impl Sharing {
    /// The job under way has ended: everything that it held is free.
    fn job_ended(&mut self, task: u32) {
        let shared = &mut self.tasks[task as usize];
        self.free |= core::mem::take(&mut shared.holds);
        shared.closed = shared.gated;
        shared.wants = Wants::Nothing;
        shared.version = 0;
        for resource in &mut self.resources {
            if resource.holder == task {
                resource.holder = NONE;
            }
        }
        self.waiting.retain(|&waiting| waiting != task);
    }
}

impl<W: Watch> Machine<W> {
    /// Opens the gates of those who would run now, the most urgent first, until nobody who would run is held up.
    pub(in super::super) fn settle(&mut self, now: Time) {
        loop {
            self.dirty = false;
            if let Some(global) = &mut self.global {
                global.decide(now, Kids { nodes: &self.nodes, kids: &self.kids });
            }
            let mut first: Option<(usize, u32)> = None;
            for cpu in 0..self.cpus.len() {
                let Some(Picked { task, .. }) = self.candidate(now, cpu) else { continue };
                if !self.share.as_ref().is_some_and(|share| share.tasks[task as usize].closed) {
                    continue;
                }
                let is_first = first.is_none_or(|(other, _)| {
                    let kids = Kids { nodes: &self.nodes, kids: &self.kids };
                    self.global.as_ref().is_some_and(|global| global.outranks(now, kids, cpu, other))
                });
                if is_first {
                    first = Some((cpu, task));
                }
            }
            let Some((cpu, task)) = first else { return };
            self.open(now, cpu, task);
        }
    }

    /// Gives `task`, which would run on `cpu`, what it needs, or lets it wait.
    fn open(&mut self, now: Time, cpu: usize, task: u32) {
        let share = self.share.as_mut().expect("a gate");
        if let Wants::Resource(which) = share.tasks[task as usize].wants {
            if share.resources[which as usize].holder != NONE {
                return self.stall(now, task);
            }
            let shared = &mut share.tasks[task as usize];
            (shared.wants, shared.closed) = (Wants::Nothing, false);
            return self.locks(now, task, which);
        }
        if let Some(table) = &self.table {
            // Accelerators are the business of whoever computed the table (YASMIN section 3.4).
            let shared = &mut share.tasks[task as usize];
            let chosen = table.version(cpu, self.nodes[self.tasks[task as usize].node as usize].entry.child);
            (shared.version, shared.closed) = (chosen.unwrap_or(0), false);
            return;
        }
        let possible = share.possible(task);
        let shared = &share.tasks[task as usize];
        let all = u64::MAX >> (64 - shared.versions.len());
        let job = self.tasks[task as usize].ring.first().map_or(0, |job| job.number);
        let free = if possible == 0 { all } else { possible };
        let candidates = Candidates { versions: &shared.versions, free, job, conditions: &share.conditions };
        let version = share.selection.choose(&candidates);
        let needs = shared.needs[version as usize];
        let shared = &mut share.tasks[task as usize];
        if possible == 0 {
            shared.wants = Wants::Version(version);
            return self.stall(now, task);
        }
        (shared.version, shared.closed) = (version, false);
        share.take_accelerators(task, needs);
    }

    /// `task` can't go on: it lends its key and lets others run.
    fn stall(&mut self, now: Time, task: u32) {
        let state = &mut self.tasks[task as usize];
        state.held |= STALLED;
        let node = state.node;
        let share = self.share.as_mut().expect("a gate");
        share.waiting.push(task);
        let has_not_begun = matches!(share.tasks[task as usize].wants, Wants::Version(_));
        if share.is_deadlock(task) {
            self.notes.push(Note::Deadlock { task: TaskId(task) });
        }
        self.show_task_again(now, task);
        if has_not_begun
            && self.nodes[node as usize].parent == 0
            && let Some(global) = &mut self.global
        {
            global.unbind(self.nodes[node as usize].entry.child);
        }
        self.relend(now);
    }

    /// `task` locks a resource, or waits for it; whether it has it now.
    pub(in super::super) fn asks(&mut self, now: Time, task: u32, which: u32) -> bool {
        let share = self.share.as_mut().expect("a resource of this machine");
        assert!(
            share.tasks[task as usize].uses.iter().any(|used| used.0 == which),
            "locks what it does not use"
        );
        assert_ne!(share.resources[which as usize].holder, task, "locks what it holds");
        if share.resources[which as usize].holder == NONE {
            self.locks(now, task, which);
            return true;
        }
        let shared = &mut share.tasks[task as usize];
        (shared.wants, shared.closed) = (Wants::Resource(which), true);
        self.stall(now, task);
        false
    }

    fn locks(&mut self, now: Time, task: u32, which: u32) {
        let share = self.share.as_mut().expect("a resource of this machine");
        share.lock(now, task, which);
        if share.resources[which as usize].protocol == Protocol::Ceiling {
            self.relend(now);
        }
    }

    /// `task` unlocks what it holds.
    pub(in super::super) fn unlocks(&mut self, now: Time, task: u32, which: u32) {
        let share = self.share.as_mut().expect("a resource of this machine");
        let holder = core::mem::replace(&mut share.resources[which as usize].holder, NONE);
        assert_eq!(holder, task, "unlocks what it does not hold");
        self.wake_waiters(now);
    }

    /// The job of `task` has ended: frees what it held. [`Machine::wake_waiters`] is to follow when the task's next
    /// job has been released.
    pub(in super::super) fn job_gives_back(&mut self, task: u32) {
        let node = self.tasks[task as usize].node;
        self.nodes[node as usize].boosted = false;
        self.share.as_mut().expect("a gate").job_ended(task);
    }

    /// Lets those try again whose wait may be over.
    pub(in super::super) fn wake_waiters(&mut self, now: Time) {
        let mut at = 0;
        let mut changed = false;
        while let Some(share) = &mut self.share
            && let Some(&task) = share.waiting.get(at)
        {
            if !share.can_go(task) {
                at += 1;
                continue;
            }
            share.waiting.remove(at);
            let shared = &mut share.tasks[task as usize];
            if matches!(shared.wants, Wants::Version(_)) {
                shared.wants = Wants::Nothing;
            }
            self.tasks[task as usize].held &= !STALLED;
            self.show_task_again(now, task);
            changed = true;
        }
        let share = self.share.as_ref().expect("a gate");
        if changed || !share.boosted.is_empty() {
            self.relend(now);
        }
    }
}

impl Sharing {
    /// Whether `task`, which waits, waits in the end for itself. Only resources can close a circle: accelerators are
    /// taken all at once, by a job that holds nothing yet.
    fn is_deadlock(&self, task: u32) -> bool {
        let mut at = task;
        for _ in 0..self.tasks.len() {
            let Wants::Resource(which) = self.tasks[at as usize].wants else { return false };
            at = self.resources[which as usize].holder;
            if at == NONE || !self.waiting.contains(&at) {
                return false;
            }
            if at == task {
                return true;
            }
        }
        false
    }
}
