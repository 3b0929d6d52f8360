//! The gate: what a job must have before it runs.

use super::super::global::Kids;
use super::super::versions::Candidates;
use super::super::{Machine, NONE, Note, Picked, STALLED, TaskId, Watch};
use super::{Protocol, Sharing, Wants};
use crate::Time;
use crate::mutate;

impl Sharing {
    /// The job under way has ended: everything that it held is free.
    fn job_ended(&mut self, task: u32) {
        let shared = &mut self.tasks[task as usize];
        mutate!(
            "core-accelerator-back",
            self.free |= core::mem::take(&mut shared.holds),
            shared.holds = 0
        );
        shared.closed = shared.gated;
        shared.version = 0;
        let waits = core::mem::replace(&mut shared.wants, Wants::Nothing) != Wants::Nothing;
        for used in &shared.uses {
            let resource = &mut self.resources[used.0 as usize];
            mutate!(
                "core-resource-end",
                if resource.holder == task {
                    resource.holder = NONE;
                },
                if resource.holder == task && task == NONE {
                    resource.holder = NONE;
                }
            )
        }
        // A driver may say that one has ended which should have waited.
        if waits {
            self.waiting.retain(|&waiting| waiting != task);
        }
    }
}

impl<W: Watch> Machine<W> {
    /// Opens the gates of those who would run now, the most urgent first, until nobody who would
    /// run is held up.
    pub(in super::super) fn settle(&mut self, now: Time) {
        loop {
            self.dirty = false;
            if let Some(global) = &mut self.global {
                global.decide(now, Kids { nodes: &self.nodes, kids: &self.kids });
            }
            let mut first: Option<(usize, u32)> = None;
            for cpu in 0..self.cpus.len() {
                let Some(Picked { task, .. }) = mutate!(
                    "core-nonpreemptive-gate",
                    self.candidate::<false>(now, cpu),
                    self.candidate::<true>(now, cpu)
                ) else {
                    continue;
                };
                if !self.share.as_ref().is_some_and(|share| share.tasks[task as usize].closed) {
                    continue;
                }
                let is_first = mutate!(
                    "core-accelerator-urgent",
                    first.is_none_or(|(other, _)| {
                        let kids = Kids { nodes: &self.nodes, kids: &self.kids };
                        self.global
                            .as_ref()
                            .is_some_and(|global| global.outranks(now, kids, cpu, other))
                    }),
                    first.is_none_or(|(other, _)| other > cpu && {
                        let kids = Kids { nodes: &self.nodes, kids: &self.kids };
                        self.global
                            .as_ref()
                            .is_some_and(|global| global.outranks(now, kids, cpu, other))
                    })
                );
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
            if !share.is_free_for(task, which) {
                return self.turn_away(now, cpu, task);
            }
            let shared = &mut share.tasks[task as usize];
            (shared.wants, shared.closed) = (Wants::Nothing, false);
            return self.locks(now, task, which);
        }
        if let Some(table) = &self.table {
            // Accelerators are the business of whoever computed the table (YASMIN section 3.4).
            let shared = &mut share.tasks[task as usize];
            let chosen =
                table.version(cpu, self.nodes[self.tasks[task as usize].node as usize].entry.child);
            (shared.version, shared.closed) = (chosen.unwrap_or(0), false);
            return;
        }
        let possible = share.possible(task);
        let shared = &share.tasks[task as usize];
        let all = u64::MAX >> (64 - shared.versions.len());
        let job = self.tasks[task as usize].ring.first().map_or(0, |job| job.number);
        let free = if possible == 0 { all } else { possible };
        let (versions, conditions) = (&shared.versions, &share.conditions);
        let candidates = Candidates { task: TaskId(task), versions, free, job, conditions };
        let version = share.selection.choose(&candidates);
        let needs = shared.needs[version as usize];
        let shared = &mut share.tasks[task as usize];
        if possible == 0 {
            shared.wants = Wants::Version(version);
            return self.turn_away(now, cpu, task);
        }
        (shared.version, shared.closed) = (version, false);
        share.take_accelerators(task, needs);
    }

    /// `task` can't go on: it lends its key and lets others run.
    fn stall(&mut self, now: Time, task: u32) {
        let state = &mut self.tasks[task as usize];
        state.held |= STALLED;
        let share = self.share.as_mut().expect("a gate");
        share.waiting.push(task);
        if share.is_deadlock(task) {
            self.notes.push(Note::Deadlock { task: TaskId(task) });
        }
        self.show_task_again(now, task);
        self.relend(now);
    }

    /// `task`, which would run on `cpu`, does not. Nobody who is first in its place has a right to
    /// that CPU, unless he is at work there.
    fn turn_away(&mut self, now: Time, cpu: usize, task: u32) {
        self.stall(now, task);
        if self.global.is_none() {
            return;
        }
        let top = self.top_of(self.tasks[task as usize].node);
        let doing = self.cpus[cpu].actual;
        let is_at_work = doing.task().is_some_and(|other| {
            let state = &self.tasks[other as usize];
            let is_his = state.ring.first().is_some_and(|job| job.number == doing.job);
            is_his && state.released && state.held == 0 && self.top_of(state.node) == top
        });
        mutate!(
            "core-nonpreemptive-global-gate",
            if let (false, Some(global)) = (is_at_work, &mut self.global) {
                global.give_up(now, &self.nodes[top as usize].entry);
            },
            if let (true, Some(global)) = (false, &mut self.global) {
                global.give_up(now, &self.nodes[top as usize].entry);
            }
        )
    }

    /// `task` locks a resource, or waits for it; whether it has it now.
    pub(in super::super) fn asks(&mut self, now: Time, task: u32, which: u32) -> bool {
        let share = self.share.as_mut().expect("a resource of this machine");
        assert!(
            share.tasks[task as usize].uses.iter().any(|used| used.0 == which),
            "locks what it does not use"
        );
        assert_ne!(share.resources[which as usize].holder, task, "locks what it holds");
        if share.is_free_for(task, which) {
            self.locks(now, task, which);
            return true;
        }
        let shared = &mut share.tasks[task as usize];
        (shared.wants, shared.closed) = (Wants::Resource(which), true);
        self.gives_up(now, task, |machine| machine.stall(now, task));
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

    /// The job of `task` has ended: frees what it held. [`Machine::wake_waiters`] is to follow when
    /// the task's next job has been released.
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
    /// Whether `task`, which waits, waits in the end for itself. Only resources can close a circle:
    /// accelerators are taken all at once, by a job that holds nothing yet.
    fn is_deadlock(&mut self, task: u32) -> bool {
        self.walk += 1;
        self.leads_to(task, task)
    }

    /// Whether one of those for whom `at` waits is `task`, or waits for it.
    fn leads_to(&mut self, at: u32, task: u32) -> bool {
        let Wants::Resource(which) = self.tasks[at as usize].wants else { return false };
        for index in 0..self.tasks[at as usize].uses.len() {
            let used = self.tasks[at as usize].uses[index].0;
            let Some(other) = self.holder_for(at, which, used) else { continue };
            if other == task {
                return mutate!("core-resource-circle", true, false);
            }
            let is_new = core::mem::replace(&mut self.met[other as usize], self.walk) != self.walk;
            if is_new && self.leads_to(other, task) {
                return true;
            }
        }
        false
    }
}
