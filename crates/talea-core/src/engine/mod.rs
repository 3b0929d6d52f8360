//! The scheduler engine: one root, its tree of schedulers and tasks, and the CPUs that it owns.
//!
//! The engine implements SF3P's abstract model (RSP 2014, section V), extended to several CPUs,
//! servers and time partitions. A driver passes events with their time to [`Engine::handle`] and
//! receives orders from [`Engine::poll`]. [`Engine::next_wakeup`] returns the time of the next
//! call. The engine owns no clock and no thread: the simulator and the executor drive it alike.
//!
//! Optional parts have one folder each, and take no memory if a description does not use them:
//! `versions` (selection of a job's version), `sharing` (accelerators, resources, inheritance),
//! `graph` (channels and activations), `table` (off-line schedules).
//!
//! Order within one instant (docs/model.md, section 2): completions; ends of slots and exhausted
//! budgets; arrivals; refills and starts of slots; one decision. A driver must report completions
//! before arrivals. The engine inserts its own actions at the right point of this order.
//!
//! Invariants (SF3P section V-C, restated for servers, slots and several CPUs), checked by
//! [`Engine::audit`]:
//! 1. An eligible scheduler presents the criteria of its head, with its overrides and its server's
//!    deadline applied. The root has no parent, and presents criteria only if it has a server.
//! 2. A scheduler is not eligible only if no child is, its budget is exhausted, or its slot is
//!    closed.
//! 3. A scheduler is eligible only if at least one child is.
//! 4. A scheduler is active exactly when one child is. A root with m CPUs has at most m active
//!    children, and no CPU is idle while a child waits that could run on it.
//!
//! Cost: O(depth · log n) per event, and no allocation after [`Tree::build`](Tree::build). With
//! shared resources, a completion also visits the resources of its task, and a change of holders or
//! waiters costs O((waiters + users) · depth). The cost of several CPUs is given in `global.rs`.

#![allow(
    clippy::inline_always,
    reason = "measured: a decision is a tenth cheaper when it is one function"
)]

mod accounting;
mod admit;
mod audit;
mod build;
mod check;
mod dispatch;
mod error;
mod event;
mod global;
mod graph;
mod ids;
mod job_lifecycle;
mod jobs;
mod notifications;
mod observer;
#[cfg(test)]
mod operations;
mod preemption;
mod propagate;
mod queries;
mod sharing;
mod spec;
mod state;
mod switch_rule;
mod table;
mod timers;
mod tree;
mod validate;
mod versions;

use crate::mutate;
pub use error::{TreeError, TreeErrorKind};
pub use event::{Event, Handled, Order};
pub use graph::{ChannelSpec, Traffic};
pub use ids::{AcceleratorId, ChannelId, Cpu, NodeId, ResourceId, TaskId};
pub use jobs::Job;
pub use notifications::Notification;
pub use observer::{Observer, Signal};
pub use sharing::{Protocol, ResourceSpec};
pub use spec::{Affinity, Backlog, NodeSpec, Preemption, SchedulerSpec, TaskSpec};
pub use switch_rule::{PendingSwitch, SwitchCause, SwitchInstant, SwitchRule};
pub use tree::{ChildIndex, MAX_RUN, Migration, Node, Tree};
pub use versions::{
    Candidates, Condition, Conditions, ContextSelector, Selection, Version, VersionSelector,
};

use crate::Time;
use crate::heap::Heap;
use crate::sched::Phase;
use alloc::boxed::Box;
use alloc::vec::Vec;
use global::Global;
use state::{
    AWAITS_RESOURCE, Assignment, Candidate, ChildRef, CpuState, DecisionState, NONE, NodeKind,
    Runnable, SELF_SUSPENDED, SchedulerNode, TaskState, TreeShape,
};

/// The scheduler of one root at run time.
#[derive(Debug)]
pub struct Engine<W: Observer = ()> {
    shape: TreeShape,
    nodes: Vec<Runnable>,
    schedulers: Vec<SchedulerNode>,
    tasks: Vec<TaskState>,
    cpus: Vec<CpuState>,
    /// Run queues of a root with several CPUs.
    global: Option<Global>,
    optional: OptionalParts,
    notifications: notifications::NotificationQueue,
    /// Whether new jobs are refused.
    stopped: bool,
    /// Refills, wakeups of policies and delayed releases.
    timers: Heap,
    /// Schedulers whose budget or quantum was just exhausted, and whose change is not yet
    /// propagated.
    exhausted: Vec<u32>,
    now: Time,
    /// Sequence number of the last child that became ready.
    ready_seq: u64,
    decision: DecisionState,
    observer: W,
}

/// Parts that exist only if the description of the tree uses them.
#[derive(Debug, Default)]
struct OptionalParts {
    /// The off-line table of the root.
    table: Option<Box<table::Table>>,
    graph: Option<Box<graph::Graph>>,
    /// Versions, accelerators and resources.
    sharing: Option<Box<sharing::Sharing>>,
}

impl<W: Observer> Engine<W> {
    /// Returns the time at which the driver must call the engine even without an event, if there is
    /// such a time.
    #[inline]
    pub fn next_wakeup(&self) -> Option<Time> {
        let timer = self.timers.first().map_or(Time::NEVER, |(key, _)| Time::from_ns(key >> 2));
        let next = if self.shape.any_accounting {
            self.cpus.iter().fold(timer, |next, cpu| next.min(cpu.budget_end))
        } else {
            timer
        };
        (next < Time::NEVER).then_some(next)
    }

    /// Handles an event. At one instant, `Ran` precedes completions, and completions precede all
    /// other events.
    ///
    /// # Panics
    /// If time runs backwards, or if the event contradicts the state, such as a completion without
    /// a job. Both are errors of a driver, never of a user.
    #[inline(always)]
    pub fn handle(&mut self, now: Time, event: Event) -> Handled {
        assert!(now >= self.now, "time ran backwards");
        self.now = now;
        match event {
            Event::Arrived { task, arrival } => return self.job_arrived(now, task.0, arrival),
            Event::Completed { task } => self.job_completed(now, task.0),
            Event::Blocked { task } => self.job_blocked(now, task.0),
            Event::Woke { task } => {
                self.process_due(now, Phase::Ends);
                self.tasks[task.0 as usize].blocked_on &= !SELF_SUSPENDED;
                self.update_task(now, task.0, false);
            }
            Event::Locked { task, resource } => {
                if !self.try_lock(now, task.0, resource.0) {
                    return Handled::Waits;
                }
            }
            Event::PreemptionPoint { task, nonpreemptive } => {
                self.pass_preemption_point(now, task.0, nonpreemptive);
            }
            Event::Unlocked { task, resource } => self.unlock(now, task.0, resource.0),
            Event::Pushed { channel } => return self.push_token(channel),
            Event::Popped { channel } => return self.pop_token(channel),
            Event::Changed(condition) => self.change(condition),
            Event::Stopped => self.stopped = true,
            Event::Ran { cpu, work } => self.charge(now, cpu.0 as usize, work),
            Event::Timer => {}
        }
        Handled::Done
    }

    /// Returns the next order, after all events of this instant have been handled. `None` if no
    /// order is left.
    #[inline(always)]
    pub fn poll(&mut self, now: Time) -> Option<Order> {
        if self.decision.stops | self.decision.starts == 0 {
            if core::mem::take(&mut self.decision.orders_polled) {
                return None;
            }
            self.process_due(now, Phase::Starts);
            if self.decision.need_resched {
                self.decide(now);
            } else {
                if mutate!(
                    "core-meter-stale",
                    self.shape.any_accounting,
                    self.shape.any_accounting && self.cpus.iter().any(|cpu| cpu.budget_end <= now)
                ) {
                    // Budgets were predicted for full speed. The driver is called earlier, so part
                    // of the time was lost.
                    self.update_budget_ends(now);
                }
                return None;
            }
        }
        self.next_order()
    }

    /// Returns the next order. Orders to idle precede orders to run, so no task is ever on two
    /// CPUs.
    #[inline(always)]
    fn next_order(&mut self) -> Option<Order> {
        if mutate!(
            "core-order-stop",
            self.decision.stops != 0,
            self.decision.stops != 0 && self.decision.starts == 0
        ) {
            let cpu = self.decision.stops.trailing_zeros();
            self.decision.stops &= self.decision.stops - 1;
            self.decision.orders_polled = true;
            self.cpus[cpu as usize].scheduled = Assignment::IDLE;
            return Some(Order::Idle { cpu: Cpu(cpu) });
        }
        if self.decision.starts != 0 {
            let cpu = self.decision.starts.trailing_zeros();
            self.decision.starts &= self.decision.starts - 1;
            self.decision.orders_polled = true;
            let state = &mut self.cpus[cpu as usize];
            state.scheduled = state.linked;
            let Assignment { task, job } = state.linked;
            let version = self.optional.sharing.as_ref().map_or(0, |sharing| sharing.version(task));
            return Some(Order::Run { cpu: Cpu(cpu), task: TaskId(task), job, version });
        }
        None
    }
}
