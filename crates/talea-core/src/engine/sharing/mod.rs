//! Sharing among jobs: accelerators and shared resources.
//!
//! Model (docs/model.md, sections 7 and 10). A job acquires its accelerators at its first dispatch
//! and holds them until it completes. The job locks and unlocks resources while it runs. If a need
//! is not available, the job *waits*: it is not eligible until another job releases one of its
//! needs. Then the job retries when it is selected again (`acquire.rs`). The holders may inherit
//! the criteria of the waiter (`inheritance.rs`).
//!
//! Invariants:
//! 1. A job holds all or none of its accelerators.
//! 2. A free accelerator or resource has no holder.
//! 3. A waiting task is in `waiting` once, and another job holds one of its needs.
//!
//! An engine without versions, accelerators and resources has no sharing state.

mod acquire;
mod build;
mod inheritance;
#[cfg(test)]
mod tests;

use crate::mutate;
pub(super) use build::{SharingPlan, TaskPlan};

use super::ids::ResourceId;
use super::versions::{Conditions, Selection, Version};
use crate::criteria::Criteria;
use crate::{Span, Time};
use alloc::string::String;
use alloc::vec::Vec;

/// Locking protocol of a resource (docs/model.md, section 10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// No protocol: the holder keeps its own criteria.
    None,
    /// Priority inheritance: the holder has the most urgent key of the waiters.
    #[default]
    Inheritance,
    /// Immediate priority ceiling: from locking on, the holder has the most urgent key of all
    /// users.
    ///
    /// For deadlines, this is the deadline floor: now plus the smallest relative deadline (Burns et
    /// al., *The Deadline Floor Protocol*, RTS 2015), or the earlier deadline of a released job. A
    /// job locks a resource with a ceiling only under a condition: no other job holds a resource
    /// with a ceiling that its task uses.
    Ceiling,
}

/// A resource that one job at a time may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceSpec {
    /// Name for display.
    pub name: String,
    /// Locking protocol.
    pub protocol: Protocol,
}

/// Need of a waiting task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    Nothing,
    /// The accelerators of this version, or of any other version. The holders of the accelerators
    /// of this version inherit the key.
    Version(u32),
    Resource(u32),
}

#[derive(Debug)]
struct TaskSharing {
    /// Criteria of the task without inheritance. Deadline and arrival come from the job.
    base_criteria: Criteria,
    versions: Vec<Version>,
    /// `needs[v]`: bit mask of the accelerators of version `v`.
    needs: Vec<u64>,
    uses: Vec<ResourceId>,
    /// Version of the current job.
    version: u32,
    /// Whether the task's jobs select a version at their first dispatch.
    selects_version: bool,
    /// Whether the current job must acquire its needs before it runs.
    must_acquire: bool,
    waits_for: WaitsFor,
    /// Bit mask of held accelerators.
    held_accelerators: u64,
}

#[derive(Debug)]
struct Resource {
    protocol: Protocol,
    /// Task that holds the resource, or [`NONE`](super::NONE).
    holder: u32,
    /// Most urgent criteria of the users, as their common scheduler compares them. The deadline is
    /// set on locking.
    ceiling: Criteria,
    /// Smallest relative deadline of the users that are not below a server.
    floor: Option<Span>,
    /// Node of the common scheduler.
    ancestor: u32,
    /// Tasks that use the resource.
    users: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Sharing {
    selection: Selection,
    pub(super) conditions: Conditions,
    inheritance: bool,
    tasks: Vec<TaskSharing>,
    /// Bit mask of free accelerators.
    free_accelerators: u64,
    /// `holders[a]`: holder of accelerator `a`, unless it is free.
    holders: Vec<u32>,
    resources: Vec<Resource>,
    /// Waiting tasks, in the order in which their waits began.
    waiting: Vec<u32>,
    /// `inherited[n]`: criteria that node `n` has inherited.
    inherited: Vec<Criteria>,
    /// Nodes with inherited criteria.
    boosted: Vec<u32>,
    /// Scratch: nodes to be updated.
    to_update: Vec<u32>,
    /// Scratch: `visited[t]` is the number of the last walk that visited task `t`.
    visited: Vec<u64>,
    visit: u64,
}

impl Sharing {
    /// Returns the criteria that `node` has inherited.
    #[inline]
    pub(super) fn inherited(&self, node: u32) -> &Criteria {
        &self.inherited[node as usize]
    }

    /// Returns the version of the current job.
    #[inline]
    pub(super) fn version(&self, task: u32) -> u32 {
        self.tasks[task as usize].version
    }

    /// Whether a job may ever have to wait.
    pub(super) fn can_block(&self) -> bool {
        !self.holders.is_empty() || !self.resources.is_empty()
    }

    /// Returns the holder of an accelerator.
    pub(super) fn accelerator(&self, which: u32) -> Option<u32> {
        (self.free_accelerators >> which & 1 == 0).then(|| self.holders[which as usize])
    }

    /// Returns the holder of a resource.
    pub(super) fn resource(&self, which: u32) -> Option<u32> {
        Some(self.resources[which as usize].holder).filter(|&holder| holder != super::NONE)
    }

    /// Whether the released job of `task` may request a resource: the task uses the resource, and
    /// the job neither holds it nor waits.
    pub(super) fn may_lock(&self, task: u32, which: u32) -> bool {
        let shared = &self.tasks[task as usize];
        shared.uses.iter().any(|used| used.0 == which)
            && self.resources[which as usize].holder != task
            && matches!(shared.waits_for, WaitsFor::Nothing)
    }

    /// Whether `task` holds a resource. The resource need not exist.
    pub(super) fn holds(&self, task: u32, which: u32) -> bool {
        self.resources.get(which as usize).is_some_and(|resource| resource.holder == task)
    }

    /// Whether holders and waiters are consistent. The audit checks this.
    pub(super) fn is_consistent(&self) -> bool {
        self.tasks.iter().enumerate().all(|(task, shared)| {
            let held = (0..self.holders.len())
                .filter(|&at| self.accelerator(at as u32) == Some(task as u32));
            held.fold(0, |mask, at| mask | 1 << at) == shared.held_accelerators
        }) && self.waiting.iter().all(|&task| !self.can_proceed(task))
    }

    /// Returns the bit mask of versions of `task` whose accelerators are all available.
    fn available_versions(&self, task: u32) -> u64 {
        let needs = self.tasks[task as usize].needs.iter().enumerate();
        needs.fold(0, |mask, (at, &needs)| {
            mask | u64::from(mutate!(
                "core-accelerator-all",
                needs & !self.free_accelerators == 0,
                needs == 0 || needs & self.free_accelerators != 0
            )) << at
        })
    }

    /// Whether the needs of the waiting `task` are available.
    fn can_proceed(&self, task: u32) -> bool {
        match self.tasks[task as usize].waits_for {
            WaitsFor::Nothing => true,
            WaitsFor::Version(_) => self.available_versions(task) != 0,
            WaitsFor::Resource(which) => self.may_acquire(task, which),
        }
    }

    /// Whether `task` may lock a resource now.
    fn may_acquire(&self, task: u32, which: u32) -> bool {
        let uses = &self.tasks[task as usize].uses;
        uses.iter().all(|used| self.blocking_holder(task, which, used.0).is_none())
    }

    /// Returns the holder of `used` if it prevents `task`, which uses that resource, from locking
    /// `which`.
    ///
    /// A job locks a resource with a ceiling only while no other job holds a resource with a
    /// ceiling that its task uses. So the last job to lock never waits for the earlier jobs, and no
    /// cycle can form, whatever the ceilings are.
    fn blocking_holder(&self, task: u32, which: u32, used: u32) -> Option<u32> {
        let has_ceiling = |of: u32| self.resources[of as usize].protocol == Protocol::Ceiling;
        let matters = mutate!(
            "core-ceiling-grant",
            used == which || (has_ceiling(which) && has_ceiling(used)),
            used == which
        );
        let holder = self.resources[used as usize].holder;
        (matters && holder != super::NONE && holder != task).then_some(holder)
    }

    /// Whether another job holds a resource with a ceiling that `task` uses.
    fn is_below_ceiling(&self, task: u32) -> bool {
        self.tasks[task as usize].uses.iter().any(|used| {
            let resource = &self.resources[used.0 as usize];
            resource.protocol == Protocol::Ceiling
                && !matches!(resource.holder, super::NONE)
                && resource.holder != task
        })
    }

    fn acquire_accelerators(&mut self, task: u32, needs: u64) {
        debug_assert!(needs & !self.free_accelerators == 0, "acquired twice");
        self.free_accelerators &= !needs;
        self.tasks[task as usize].held_accelerators |= needs;
        let mut left = needs;
        while left != 0 {
            self.holders[left.trailing_zeros() as usize] = task;
            left &= left - 1;
        }
    }

    fn lock(&mut self, now: Time, task: u32, which: u32) {
        let resource = &mut self.resources[which as usize];
        debug_assert_eq!(resource.holder, super::NONE, "locked twice");
        resource.holder = task;
        resource.ceiling.deadline = mutate!(
            "core-resource-floor",
            resource.floor.map_or(Time::NEVER, |floor| now.saturating_add(floor)),
            resource.floor.map_or(Time::NEVER, |_| now.max(Time::NEVER))
        );
    }
}
