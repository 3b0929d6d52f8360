//! What jobs hold while others wait: accelerators and shared resources.
//!
//! Model (docs/model.md, sections 7 and 10). A job that needs something stands before a *gate*:
//! when it would be dispatched, it either gets all that it needs, or it *stalls*: it is not
//! eligible until something that it needs is given back, and then tries again when its turn comes.
//! Accelerators are taken at the first dispatch and held to the job's end; resources are locked and
//! unlocked under way. Who stalls may lend its key to whoever holds what it needs (`lend.rs`).
//!
//! Invariants: nobody holds some of its accelerators; a free thing has no holder; a stalled task
//! stands in `waiting` once, and somebody holds something that it wants.
//!
//! A machine without versions, accelerators and resources has none of this.

mod build;
mod gate;
mod lend;
#[cfg(test)]
mod tests;

use crate::mutate;
pub(super) use build::{Plan, Task};

use super::versions::{Conditions, Selection, Version};
use crate::criteria::Criteria;
use crate::{Span, Time};
use alloc::string::String;
use alloc::vec::Vec;

/// An accelerator of one machine, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AcceleratorId(pub u32);

/// A shared resource of one machine, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u32);

/// What becomes of the holder of a resource (docs/model.md, section 10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Nothing: whoever asks waits.
    None,
    /// It has the most urgent key of those who wait.
    #[default]
    Inheritance,
    /// It has, from the moment of locking, the most urgent key of all who may ever wait. Of
    /// deadlines that is the floor: now and the least relative deadline (Burns et al., *The
    /// Deadline Floor Protocol*, RTS 2015), or that of a job that is there and has a lesser one.
    /// Nobody locks what has a ceiling while somebody else holds such a resource that it uses.
    Ceiling,
}

/// A resource that one job at a time may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceSpec {
    /// For people.
    pub name: String,
    /// What becomes of its holder.
    pub protocol: Protocol,
}

/// What a stalled task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    Nothing,
    /// The accelerators of this version, or of any other; its key goes to the holders of this
    /// one's.
    Version(u32),
    Resource(u32),
}

#[derive(Debug)]
struct Shared {
    /// Its criteria when nobody lends it any; deadline and arrival are the job's.
    natural: Criteria,
    versions: Vec<Version>,
    /// The accelerators of each version, bit k for accelerator k.
    needs: Vec<u64>,
    uses: Vec<ResourceId>,
    /// Of the job under way.
    version: u32,
    /// Its jobs choose a version when they are first dispatched.
    gated: bool,
    /// It must pass the gate before it runs.
    closed: bool,
    wants: Wants,
    /// Accelerators that it holds.
    holds: u64,
}

#[derive(Debug)]
struct Resource {
    protocol: Protocol,
    /// Or [`NONE`](super::NONE).
    holder: u32,
    /// Of those who use it, as the lowest scheduler above all of them sees it; the deadline from
    /// the moment of locking.
    ceiling: Criteria,
    /// The least relative deadline of those who use it and stand behind no server.
    floor: Option<Span>,
    /// That scheduler's node.
    meet: u32,
    /// The tasks that use it.
    users: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Sharing {
    selection: Selection,
    pub(super) conditions: Conditions,
    inheritance: bool,
    tasks: Vec<Shared>,
    /// Bit k: accelerator k is free.
    free: u64,
    /// Of each accelerator that is not.
    holders: Vec<u32>,
    resources: Vec<Resource>,
    /// Who stalls, in the order in which they began.
    waiting: Vec<u32>,
    /// What has been lent to each node.
    lent: Vec<Criteria>,
    /// The nodes to which something has been lent.
    boosted: Vec<u32>,
    /// Scratch: those to be told of a change.
    tell: Vec<u32>,
    /// Scratch: the walk on which a task was last met.
    met: Vec<u64>,
    walk: u64,
}

impl Sharing {
    /// What has been lent to `node`.
    #[inline]
    pub(super) fn lent(&self, node: u32) -> &Criteria {
        &self.lent[node as usize]
    }

    /// The version of the job under way.
    #[inline]
    pub(super) fn version(&self, task: u32) -> u32 {
        self.tasks[task as usize].version
    }

    /// Whether there is anything that a job may have to wait for.
    pub(super) fn has_gates(&self) -> bool {
        !self.holders.is_empty() || !self.resources.is_empty()
    }

    /// Who holds accelerator `which`.
    pub(super) fn accelerator(&self, which: u32) -> Option<u32> {
        (self.free >> which & 1 == 0).then(|| self.holders[which as usize])
    }

    /// Who holds resource `which`.
    pub(super) fn resource(&self, which: u32) -> Option<u32> {
        Some(self.resources[which as usize].holder).filter(|&holder| holder != super::NONE)
    }

    /// Whether `task`, whose job is under way, may ask for resource `which`: it uses it, has it
    /// not, and waits for nothing.
    pub(super) fn may_lock(&self, task: u32, which: u32) -> bool {
        let shared = &self.tasks[task as usize];
        shared.uses.iter().any(|used| used.0 == which)
            && self.resources[which as usize].holder != task
            && matches!(shared.wants, Wants::Nothing)
    }

    /// Whether `task` has resource `which`, of which there may be none.
    pub(super) fn holds(&self, task: u32, which: u32) -> bool {
        self.resources.get(which as usize).is_some_and(|resource| resource.holder == task)
    }

    /// Whether somebody waits for `task` to give something back, or might be unfairly held up: the
    /// audit's question.
    pub(super) fn is_consistent(&self) -> bool {
        self.tasks.iter().enumerate().all(|(task, shared)| {
            let held = (0..self.holders.len())
                .filter(|&at| self.accelerator(at as u32) == Some(task as u32));
            held.fold(0, |mask, at| mask | 1 << at) == shared.holds
        }) && self.waiting.iter().all(|&task| !self.can_go(task))
    }

    /// Which versions of `task` could have all their accelerators now, a bit each.
    fn possible(&self, task: u32) -> u64 {
        let needs = self.tasks[task as usize].needs.iter().enumerate();
        needs.fold(0, |mask, (at, &needs)| {
            mask | u64::from(mutate!(
                "core-accelerator-all",
                needs & !self.free == 0,
                needs == 0 || needs & self.free != 0
            )) << at
        })
    }

    /// Whether `task`, which waits, could have what it waits for.
    fn can_go(&self, task: u32) -> bool {
        match self.tasks[task as usize].wants {
            Wants::Nothing => true,
            Wants::Version(_) => self.possible(task) != 0,
            Wants::Resource(which) => self.is_free_for(task, which),
        }
    }

    /// Whether `task` may lock `which` now.
    fn is_free_for(&self, task: u32, which: u32) -> bool {
        let uses = &self.tasks[task as usize].uses;
        uses.iter().all(|used| self.holder_for(task, which, used.0).is_none())
    }

    /// Who holds `used`, if `task`, which uses it, can't have `which` because of that. Of resources
    /// with ceilings a job is given one only when nobody else holds any that it uses: whoever
    /// locked last then never waits for those who did before, so that no circle closes, whatever
    /// became of the ceilings.
    fn holder_for(&self, task: u32, which: u32, used: u32) -> Option<u32> {
        let has_ceiling = |of: u32| self.resources[of as usize].protocol == Protocol::Ceiling;
        let matters = mutate!(
            "core-ceiling-grant",
            used == which || (has_ceiling(which) && has_ceiling(used)),
            used == which
        );
        let holder = self.resources[used as usize].holder;
        (matters && holder != super::NONE && holder != task).then_some(holder)
    }

    /// Whether somebody else holds a resource with a ceiling that `task` uses.
    fn is_below_ceiling(&self, task: u32) -> bool {
        self.tasks[task as usize].uses.iter().any(|used| {
            let resource = &self.resources[used.0 as usize];
            resource.protocol == Protocol::Ceiling
                && !matches!(resource.holder, super::NONE)
                && resource.holder != task
        })
    }

    fn take_accelerators(&mut self, task: u32, needs: u64) {
        debug_assert!(needs & !self.free == 0, "taken twice");
        self.free &= !needs;
        self.tasks[task as usize].holds |= needs;
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
