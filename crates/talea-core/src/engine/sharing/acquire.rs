//! Acquisition of accelerators and resources.
//!
//! A job with [`must_acquire`](super::TaskSharing::must_acquire) may not run before it has acquired
//! its needs: accelerators or a resource.
//!
//! | state | event | next state |
//! | --- | --- | --- |
//! | must acquire | selected for a CPU, needs available | acquired |
//! | must acquire | selected for a CPU, needs held by another job | waiting |
//! | acquired | requests a resource that is free | acquired |
//! | acquired | requests a resource that is held | waiting, must acquire |
//! | waiting | needs available again | must acquire |
//! | any | completion | everything released |

use super::super::global::Children;
use super::super::versions::Candidates;
use super::super::{AWAITS_RESOURCE, Candidate, Engine, NONE, Notification, Observer, TaskId};
use super::{Protocol, Sharing, WaitsFor};
use crate::Time;
use crate::mutate;

impl Sharing {
    /// Releases all accelerators and resources that the completed job held.
    fn release_all(&mut self, task: u32) {
        let shared = &mut self.tasks[task as usize];
        mutate!(
            "core-accelerator-back",
            self.free_accelerators |= core::mem::take(&mut shared.held_accelerators),
            shared.held_accelerators = 0
        );
        shared.must_acquire = shared.selects_version;
        shared.version = 0;
        let waits =
            core::mem::replace(&mut shared.waits_for, WaitsFor::Nothing) != WaitsFor::Nothing;
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
        // A driver may report the completion of a job that should be waiting.
        if waits {
            self.waiting.retain(|&waiting| waiting != task);
        }
    }
}

impl<W: Observer> Engine<W> {
    /// Lets the selected jobs acquire their needs, the most urgent job first, until every selected
    /// job may run.
    pub(in super::super) fn resolve_waits(&mut self, now: Time) {
        loop {
            self.decision.need_resched = false;
            if let Some(global) = &mut self.global {
                global.decide(now, Children { nodes: &self.nodes, children: &self.shape.children });
            }
            let mut first: Option<(usize, u32)> = None;
            for cpu in 0..self.cpus.len() {
                let Some(Candidate { task, .. }) = mutate!(
                    "core-nonpreemptive-gate",
                    self.candidate::<false>(now, cpu),
                    self.candidate::<true>(now, cpu)
                ) else {
                    continue;
                };
                if !self
                    .optional
                    .sharing
                    .as_ref()
                    .is_some_and(|sharing| sharing.tasks[task as usize].must_acquire)
                {
                    continue;
                }
                let is_first = first.is_none_or(|(other, _)| {
                    let children = Children { nodes: &self.nodes, children: &self.shape.children };
                    let global = self.global.as_ref();
                    let outranks =
                        global.is_some_and(|global| global.outranks(now, children, cpu, other));
                    mutate!("core-accelerator-urgent", outranks, outranks && other > cpu)
                });
                if is_first {
                    first = Some((cpu, task));
                }
            }
            let Some((cpu, task)) = first else { return };
            self.acquire(now, cpu, task);
        }
    }

    /// Acquires the needs of `task`, which was selected for `cpu`, or blocks the task.
    fn acquire(&mut self, now: Time, cpu: usize, task: u32) {
        let sharing = self.optional.sharing.as_mut().expect("sharing state");
        if let WaitsFor::Resource(which) = sharing.tasks[task as usize].waits_for {
            if !sharing.may_acquire(task, which) {
                return self.deny_cpu(now, cpu, task);
            }
            let shared = &mut sharing.tasks[task as usize];
            (shared.waits_for, shared.must_acquire) = (WaitsFor::Nothing, false);
            return self.grant_lock(now, task, which);
        }
        if let Some(table) = &self.optional.table {
            // The author of the table is responsible for accelerators (YASMIN section 3.4).
            let shared = &mut sharing.tasks[task as usize];
            let chosen =
                table.version(cpu, self.nodes[self.tasks[task as usize].node as usize].entry.child);
            (shared.version, shared.must_acquire) = (chosen.unwrap_or(0), false);
            return;
        }
        let available = sharing.available_versions(task);
        let shared = &sharing.tasks[task as usize];
        let all = u64::MAX >> (64 - shared.versions.len());
        let job = self.tasks[task as usize].jobs.first().map_or(0, |job| job.number);
        let free = if available == 0 { all } else { available };
        let (versions, conditions) = (&shared.versions, &sharing.conditions);
        let candidates =
            Candidates { task: TaskId(task), versions, available: free, job, conditions };
        let version = sharing.selection.choose(&candidates);
        let needs = shared.needs[version as usize];
        let shared = &mut sharing.tasks[task as usize];
        if available == 0 {
            shared.waits_for = WaitsFor::Version(version);
            return self.deny_cpu(now, cpu, task);
        }
        (shared.version, shared.must_acquire) = (version, false);
        sharing.acquire_accelerators(task, needs);
    }

    /// Blocks `task` on an accelerator or a resource. The holders may inherit the criteria of the
    /// task.
    fn block(&mut self, now: Time, task: u32) {
        let state = &mut self.tasks[task as usize];
        state.blocked_on |= AWAITS_RESOURCE;
        let sharing = self.optional.sharing.as_mut().expect("sharing state");
        sharing.waiting.push(task);
        if sharing.is_deadlock(task) {
            self.notifications.push(Notification::Deadlock { task: TaskId(task) });
        }
        self.update_task(now, task, false);
        self.recompute_inheritance(now);
    }

    /// Blocks `task`, which was selected for `cpu`.
    ///
    /// The child of the root at or above the task loses the CPU, unless a job below that child is
    /// running there.
    fn deny_cpu(&mut self, now: Time, cpu: usize, task: u32) {
        self.block(now, task);
        if self.global.is_none() {
            return;
        }
        let top = self.root_child_of(self.tasks[task as usize].node);
        let assignment = self.cpus[cpu].scheduled;
        let is_running_there = assignment.task().is_some_and(|other| {
            let state = &self.tasks[other as usize];
            let is_current_job = state.jobs.first().is_some_and(|job| job.number == assignment.job);
            is_current_job
                && state.released
                && state.blocked_on == 0
                && self.root_child_of(state.node) == top
        });
        mutate!(
            "core-nonpreemptive-global-gate",
            if let (false, Some(global)) = (is_running_there, &mut self.global) {
                global.yield_cpu(now, &self.nodes[top as usize].entry);
            },
            if let (true, Some(global)) = (false, &mut self.global) {
                global.yield_cpu(now, &self.nodes[top as usize].entry);
            }
        )
    }

    /// Locks a resource, or blocks the task. Returns whether the resource is locked.
    pub(in super::super) fn try_lock(&mut self, now: Time, task: u32, which: u32) -> bool {
        let sharing = self.optional.sharing.as_mut().expect("a resource of this engine");
        assert!(
            sharing.tasks[task as usize].uses.iter().any(|used| used.0 == which),
            "locks an undeclared resource"
        );
        assert_ne!(
            sharing.resources[which as usize].holder, task,
            "locks a resource that it holds"
        );
        if sharing.may_acquire(task, which) {
            self.grant_lock(now, task, which);
            return true;
        }
        let shared = &mut sharing.tasks[task as usize];
        (shared.waits_for, shared.must_acquire) = (WaitsFor::Resource(which), true);
        self.yield_cpu(now, task, |engine| engine.block(now, task));
        false
    }

    fn grant_lock(&mut self, now: Time, task: u32, which: u32) {
        let sharing = self.optional.sharing.as_mut().expect("a resource of this engine");
        sharing.lock(now, task, which);
        if sharing.resources[which as usize].protocol == Protocol::Ceiling {
            self.recompute_inheritance(now);
        }
    }

    /// Unlocks a resource.
    pub(in super::super) fn unlock(&mut self, now: Time, task: u32, which: u32) {
        let sharing = self.optional.sharing.as_mut().expect("a resource of this engine");
        let holder = core::mem::replace(&mut sharing.resources[which as usize].holder, NONE);
        assert_eq!(holder, task, "unlocks a resource that it does not hold");
        self.wake_waiters(now);
    }

    /// Releases all accelerators and resources that the completed job of `task` held.
    ///
    /// [`Engine::wake_waiters`] must follow after the release of the task's next job.
    pub(in super::super) fn release_held(&mut self, task: u32) {
        let node = self.tasks[task as usize].node;
        self.nodes[node as usize].boosted = false;
        self.optional.sharing.as_mut().expect("sharing state").release_all(task);
    }

    /// Wakes the waiting tasks whose needs may be available.
    pub(in super::super) fn wake_waiters(&mut self, now: Time) {
        let mut at = 0;
        let mut changed = false;
        while let Some(sharing) = &mut self.optional.sharing
            && let Some(&task) = sharing.waiting.get(at)
        {
            if !sharing.can_proceed(task) {
                at += 1;
                continue;
            }
            sharing.waiting.remove(at);
            let shared = &mut sharing.tasks[task as usize];
            if matches!(shared.waits_for, WaitsFor::Version(_)) {
                shared.waits_for = WaitsFor::Nothing;
            }
            self.tasks[task as usize].blocked_on &= !AWAITS_RESOURCE;
            self.update_task(now, task, false);
            changed = true;
        }
        let sharing = self.optional.sharing.as_ref().expect("sharing state");
        if changed || !sharing.boosted.is_empty() {
            self.recompute_inheritance(now);
        }
    }
}

impl Sharing {
    /// Whether the waiting `task` waits indirectly for itself.
    ///
    /// Only resources can form a cycle. A job acquires all its accelerators at once and holds
    /// nothing before.
    fn is_deadlock(&mut self, task: u32) -> bool {
        self.visit += 1;
        self.is_waiting_for(task, task)
    }

    /// Whether one of the tasks that `at` waits for is `task`, or waits for `task`.
    fn is_waiting_for(&mut self, at: u32, task: u32) -> bool {
        let WaitsFor::Resource(which) = self.tasks[at as usize].waits_for else { return false };
        for index in 0..self.tasks[at as usize].uses.len() {
            let used = self.tasks[at as usize].uses[index].0;
            let Some(other) = self.blocking_holder(at, which, used) else { continue };
            if other == task {
                return mutate!("core-resource-circle", true, false);
            }
            let is_new =
                core::mem::replace(&mut self.visited[other as usize], self.visit) != self.visit;
            if is_new && self.is_waiting_for(other, task) {
                return true;
            }
        }
        false
    }
}
