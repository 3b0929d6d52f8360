//! Control of a run from any thread, including the run's workers.

use crate::failure::Failure;
use crate::root_shared::RootShared;
use crate::run::check_budgets;
use crate::statistics::{RootStatistics, RunningRoot};
use crate::successor::Successor;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use talea_core::engine::{Condition, SwitchRule, TaskId, Tree};
use talea_core::{Monotonic, Time};

/// Control of a run: cancels the run, even before the run begins, activates jobs, and changes
/// conditions.
#[derive(Debug, Default)]
pub struct RunControl {
    cancelled: AtomicBool,
    /// Set under `begin_lock`, and read without a lock.
    roots: OnceLock<Vec<std::sync::Weak<RootShared>>>,
    begin_lock: Mutex<()>,
    zero: OnceLock<Monotonic>,
    /// `running[r]`: root `r`, if an engine schedules it.
    running: OnceLock<Vec<Option<std::sync::Weak<dyn RunningRoot>>>>,
}

/// Request to switch a root to another tree while it runs.
#[derive(Debug)]
pub struct SwitchRequest<'t> {
    /// Number by which the caller knows the tree; more than 0.
    pub number: u64,
    /// The tree, with the tasks of the tree in force in the same order.
    pub tree: &'t Tree,
    /// Changes of battery, mode and permissions since the switch, in order of time.
    pub changes: Vec<(Time, Condition)>,
}

impl RunControl {
    /// Cancels the run. The report then covers the time until now, as if this end had been planned.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        // A run that begins either sees the flag, or has stored the roots found here.
        let _lock = self.begin_lock.lock().unwrap_or_else(PoisonError::into_inner);
        for shared in self.roots.get().into_iter().flatten().filter_map(std::sync::Weak::upgrade) {
            shared.cancel();
        }
    }

    /// Whether the run was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Returns the start of the run on CLOCK_MONOTONIC, or `None` while the run is being prepared.
    pub fn zero(&self) -> Option<Monotonic> {
        self.zero.get().copied()
    }

    /// Returns the statistics of each root that has an engine, or nothing while there is no run.
    /// Takes the lock of each root for some microseconds.
    pub fn statistics(&self) -> Vec<RootStatistics> {
        let running = self.running.get().into_iter().flatten().flatten();
        running.filter_map(std::sync::Weak::upgrade).map(|root| root.statistics()).collect()
    }

    /// Requests that a root switches to another tree, at the instant of [`SwitchRule`]. A second
    /// request replaces the tree of the first one, unless that is in force. Returns whether a run
    /// received the request. Takes the lock of the root for some microseconds.
    ///
    /// # Errors
    /// If the tree is invalid, or has other tasks or CPUs, or if a task of the root is no group
    /// that another process fills.
    pub fn request_switch(&self, root: usize, request: SwitchRequest<'_>) -> Result<bool, Failure> {
        let running = self.running.get().and_then(|roots| roots.get(root)?.as_ref()?.upgrade());
        let (Some(shared), Some(running)) = (self.root(root), running) else { return Ok(false) };
        let SwitchRequest { number, tree, changes } = request;
        check_budgets(tree).map_err(Failure::Plan)?;
        let engine = tree.build().map_err(Failure::Tree)?;
        let (tasks, cpus) = (shared.slots.len(), shared.cpus.len());
        if (engine.tasks(), engine.cpus()) != (tasks, cpus) {
            return Err(Failure::Plan(format!(
                "a root with {tasks} tasks and {cpus} CPUs cannot switch to a tree with {} and {}",
                engine.tasks(),
                engine.cpus()
            )));
        }
        let successor = Successor { number, engine, rule: SwitchRule::of(tree), changes };
        if !running.request_switch(Box::new(successor)) {
            let why = "only a root of groups that other processes fill switches to another tree";
            return Err(Failure::Plan(why.to_owned()));
        }
        shared.cpus[0].mailbox.event_count.notify();
        Ok(true)
    }

    /// Returns the number of the tree that a root has: 0 for that of the plan. `None` without a
    /// run. Takes no lock.
    pub fn tree_in_force(&self, root: usize) -> Option<u64> {
        Some(self.root(root)?.tree_in_force.load(Ordering::Acquire))
    }

    /// Stops releases, also on roots that Linux schedules. Released jobs and the jobs that their
    /// graphs activate complete, and then the run ends (YASMIN, Table 1). Returns whether there is
    /// a run.
    pub fn stop(&self) -> bool {
        let notified = (0..)
            .map_while(|root| self.root(root))
            .map(|shared| shared.cpus[0].mailbox.request_stop());
        notified.count() > 0
    }

    /// Activates a job of a task as soon as the engine has room and the task allows the activation.
    /// Returns whether a run received the request.
    ///
    /// The report of the run counts refused jobs. A root that Linux schedules accepts no request:
    /// its workers take no orders, and their reservations are for the jobs of their loads. Takes no
    /// lock.
    pub fn activate(&self, root: usize, task: TaskId) -> bool {
        self.root(root).is_some_and(|shared| {
            let is_one = (task.0 as usize) < shared.slots.len() && !shared.is_native();
            if is_one {
                shared.cpus[0].mailbox.request_activation(task, &shared.slots);
            }
            is_one
        })
    }

    /// Sets battery, mode or permissions of a root. Of several changes before the next step, the
    /// last one counts.
    ///
    /// Returns whether a run received the request. A root that Linux schedules does not use
    /// conditions. Takes no lock.
    pub fn change(&self, root: usize, condition: Condition) -> bool {
        let engine_root = self.root(root).filter(|shared| !shared.is_native());
        engine_root.map(|shared| shared.cpus[0].mailbox.set_condition(condition)).is_some()
    }

    fn root(&self, root: usize) -> Option<Arc<RootShared>> {
        self.roots.get()?.get(root)?.upgrade()
    }

    /// Stores the roots of the run that engines schedule.
    pub(crate) fn set_running(&self, roots: Vec<Option<std::sync::Weak<dyn RunningRoot>>>) {
        // A second run with one control is another run: it is not stored.
        let _ = self.running.set(roots);
    }

    /// Begins the run at `zero`. Called when all threads are ready. This function handles a
    /// cancellation before the call, and a later cancellation finds the roots. A run that could not
    /// begin is not stored, so that another attempt is possible.
    pub(crate) fn begin(&self, shared_roots: &[Arc<RootShared>], zero: Monotonic) {
        let _lock = self.begin_lock.lock().unwrap_or_else(PoisonError::into_inner);
        // A second run with one control is another run: it is not stored.
        let _ = self.roots.set(shared_roots.iter().map(Arc::downgrade).collect());
        let _ = self.zero.set(zero);
        if self.is_cancelled() {
            for shared in shared_roots {
                shared.cancel();
            }
        }
    }
}
