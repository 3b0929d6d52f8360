//! The scheduler machine: one root, its tree of schedulers and tasks, and the CPUs it owns.
//!
//! SF3P's abstract model (RSP 2014, section V), grown to several CPUs, servers and time partitions.
//! Events go in with the time ([`Machine::handle`]), orders come out ([`Machine::poll`]), and
//! between them the machine says when it wants to be asked again ([`Machine::next_wakeup`]). It
//! owns no clock and no thread: the simulator and the executor drive it alike.
//!
//! Beside the tree and its jobs stand, each in a folder and absent where a description does not ask
//! for it: `versions` (which of several a job runs in), `sharing` (accelerators, resources,
//! inheritance), `graph` (channels and who they activate), `table` (off-line schedules).
//!
//! The order of what happens at one instant (docs/model.md, section 2): completions; ends of slots
//! and exhausted budgets; arrivals; refills and starts of slots; then one decision. A driver only
//! has to report completions before arrivals: the machine does its own share at the right place.
//!
//! Invariants (SF3P section V-C, restated for servers, slots and several CPUs), checked by
//! [`Machine::audit`]:
//! 1. an eligible scheduler shows the criteria of its head, its own values and its server's
//!    deadline laid over; a root, which has nobody to show them to, only where it has a server;
//! 2. it is not eligible only when no child is, its budget is gone, or its slot is closed;
//! 3. it is eligible only if at least one child is;
//! 4. it is active exactly when one child is (a root with m CPUs: at most m, and no CPU is idle
//!    while a child waits that could run on it).
//!
//! Cost: O(depth · log n) per event, and nothing is allocated after [`Tree::build`](Tree::build).
//! Where jobs share something, the end of one costs a look at what its task uses, and a change in
//! who holds or waits O((waiters + users) · depth) besides; several CPUs cost what `global.rs`
//! says.

#![allow(
    clippy::inline_always,
    reason = "measured: a decision is a tenth cheaper when it is one function"
)]

mod admit;
mod announce;
mod audit;
mod build;
mod check;
mod course;
mod dispatch;
mod event;
mod global;
mod graph;
mod jobs;
mod meter;
mod notes;
#[cfg(test)]
mod operations;
mod possible;
mod preemption;
mod run;
mod sharing;
mod spec;
mod state;
mod table;
mod timers;
mod tree;
mod versions;
mod watch;
mod wrong;

use crate::mutate;
pub use event::{Event, Handled, Order};
pub use graph::{ChannelId, ChannelSpec, Traffic};
pub use jobs::Job;
pub use notes::Note;
pub use sharing::{AcceleratorId, Protocol, ResourceId, ResourceSpec};
pub use spec::{Affinity, Backlog, Body, SchedulerSpec, TaskSpec};
pub use tree::{Families, LONGEST, Migration, Node, NodeId, Tree};
pub use versions::{Candidates, Chooser, Condition, Conditions, GivenChooser, Selection, Version};
pub use watch::{Signal, Watch};
pub use wrong::{TreeError, Wrong};

use crate::Time;
use crate::heap::Heap;
use crate::sched::Part;
use alloc::boxed::Box;
use alloc::vec::Vec;
use global::Global;
use state::{BLOCKED, CpuState, Doing, Group, Kid, NONE, Picked, Runnable, STALLED, Task, What};

/// A task of one machine, numbered from 0 in the order of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// A CPU of one machine, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu(pub u32);

/// One root at work.
#[derive(Debug)]
pub struct Machine<W: Watch = ()> {
    nodes: Vec<Runnable>,
    /// Of each node.
    whats: Vec<What>,
    /// Of each node: the one in the tree that it was built from.
    ids: Vec<NodeId>,
    groups: Vec<Group>,
    tasks: Vec<Task>,
    kids: Vec<Kid>,
    cpus: Vec<CpuState>,
    /// Of the root, when it owns several CPUs.
    global: Option<Global>,
    /// Of the root, when it follows an off-line table.
    table: Option<Box<table::Table>>,
    graph: Option<Box<graph::Graph>>,
    /// Versions, accelerators, resources.
    share: Option<Box<sharing::Sharing>>,
    notes: notes::Notes,
    /// No new jobs.
    stopped: bool,
    /// Refills, wakeups of policies, delayed releases.
    timers: Heap,
    /// Groups whose budget or quantum has just been used up.
    spent: Vec<u32>,
    now: Time,
    /// Counts who has become ready.
    stamp: u64,
    /// A decision is due.
    dirty: bool,
    /// CPUs, a bit each, whose task may be another one although the root's choice is the same.
    stale: u64,
    /// CPUs, a bit each, that are still to be ordered to stop.
    stops: u64,
    /// Those that are still to be ordered to run a job.
    starts: u64,
    /// Orders of the last decision have been polled, but not yet that there are no more.
    asked: bool,
    /// Some scheduler does not preempt.
    any_nonpreemptive: bool,
    /// Some scheduler counts what its children consume.
    any_metered: bool,
    watch: W,
}

impl<W: Watch> Machine<W> {
    /// When the machine wants to be asked again, even if nothing happens.
    #[inline]
    pub fn next_wakeup(&self) -> Option<Time> {
        let timer = self.timers.first().map_or(Time::NEVER, |(key, _)| Time::from_ns(key >> 2));
        let next = if self.any_metered {
            self.cpus.iter().fold(timer, |next, cpu| next.min(cpu.expiry))
        } else {
            timer
        };
        (next < Time::NEVER).then_some(next)
    }

    /// Tells the machine what has happened. Time never runs backwards; at one instant `Ran` comes
    /// first, then completions, then the rest.
    ///
    /// # Panics
    /// If time runs backwards or a task completes that has no job: a driver's mistake, never a
    /// user's.
    #[inline(always)]
    pub fn handle(&mut self, now: Time, event: Event) -> Handled {
        assert!(now >= self.now, "time ran backwards");
        self.now = now;
        match event {
            Event::Arrived { task, arrival } => return self.arrived(now, task.0, arrival),
            Event::Completed { task } => self.completed(now, task.0),
            Event::Blocked { task } => self.blocked(now, task.0),
            Event::Woke { task } => {
                self.catch_up(now, Part::Ends);
                self.tasks[task.0 as usize].held &= !BLOCKED;
                self.show_task_again(now, task.0);
            }
            Event::Locked { task, resource } => {
                if !self.asks(now, task.0, resource.0) {
                    return Handled::Waits;
                }
            }
            Event::Unlocked { task, resource } => self.unlocks(now, task.0, resource.0),
            Event::Pushed { channel } => return self.pushes(channel),
            Event::Popped { channel } => return self.pops(channel),
            Event::Changed(condition) => self.change(condition),
            Event::Stopped => self.stopped = true,
            Event::Ran { cpu, work } => self.ran(now, cpu.0 as usize, work),
            Event::Timer => {}
        }
        Handled::Done
    }

    /// The next order, after everything of this instant has been told.
    #[inline(always)]
    pub fn poll(&mut self, now: Time) -> Option<Order> {
        if self.stops | self.starts == 0 {
            if core::mem::take(&mut self.asked) {
                return None;
            }
            self.catch_up(now, Part::Starts);
            if self.dirty {
                self.decide(now);
            } else {
                mutate!(
                    "core-meter-stale",
                    if self.any_metered {
                        // Budgets were counted at full speed, but some of it went elsewhere, or
                        // nothing would have been told.
                        self.measure(now);
                    },
                    if self.any_metered && self.cpus.iter().any(|cpu| cpu.expiry <= now) {
                        // Budgets were counted at full speed, but some of it went elsewhere, or
                        // nothing would have been told.
                        self.measure(now);
                    }
                );
                return None;
            }
        }
        self.next_order()
    }

    /// Who stops comes before who starts: nobody is ever on two CPUs.
    #[inline(always)]
    fn next_order(&mut self) -> Option<Order> {
        mutate!(
            "core-order-stop",
            if self.stops != 0 {
                let cpu = self.stops.trailing_zeros();
                self.stops &= self.stops - 1;
                self.asked = true;
                self.cpus[cpu as usize].actual = Doing::NOTHING;
                return Some(Order::Idle { cpu: Cpu(cpu) });
            },
            if self.stops != 0 && self.starts == 0 {
                let cpu = self.stops.trailing_zeros();
                self.stops &= self.stops - 1;
                self.asked = true;
                self.cpus[cpu as usize].actual = Doing::NOTHING;
                return Some(Order::Idle { cpu: Cpu(cpu) });
            }
        );
        if self.starts != 0 {
            let cpu = self.starts.trailing_zeros();
            self.starts &= self.starts - 1;
            self.asked = true;
            let state = &mut self.cpus[cpu as usize];
            state.actual = state.target;
            let Doing { task, job } = state.target;
            let version = self.share.as_ref().map_or(0, |share| share.version(task));
            return Some(Order::Run { cpu: Cpu(cpu), task: TaskId(task), job, version });
        }
        None
    }
}
