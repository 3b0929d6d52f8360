//! The scheduler machine: one root, its tree of schedulers and tasks, and the CPUs it owns.
//!
//! SF3P's abstract model (RSP 2014, section V), grown to several CPUs, servers and time partitions. Events go in with
//! the time ([`Machine::handle`]), orders come out ([`Machine::poll`]), and between them the machine says when it wants
//! to be asked again ([`Machine::next_wakeup`]). It owns no clock and no thread: the simulator and the executor drive it
//! alike.
//!
//! Beside the tree and its jobs stand, each in a folder and absent where a description does not ask for it: `versions`
//! (which of several a job runs in), `sharing` (accelerators, resources, inheritance), `graph` (channels and who they
//! activate), `table` (off-line schedules).
//!
//! The order of what happens at one instant (docs/model.md, section 2): completions; ends of slots and exhausted
//! budgets; arrivals; refills and starts of slots; then one decision. A driver only has to report completions before
//! arrivals: the machine does its own share at the right place.
//!
//! Invariants (SF3P section V-C, restated for servers, slots and several CPUs), checked by [`Machine::audit`]:
//! 1. an eligible scheduler shows the criteria of its head, its own values and its server's deadline laid over;
//! 2. it is not eligible only when no child is, its budget is gone, or its slot is closed;
//! 3. it is eligible only if at least one child is;
//! 4. it is active exactly when one child is (a root with m CPUs: at most m, and no CPU is idle while a child waits
//!    that could run on it).
//!
//! Cost: O(depth · log n) per event; nothing is allocated after [`Tree::build`](Tree::build).

#![allow(clippy::inline_always, reason = "measured: a decision is a tenth cheaper when it is one function")]

mod admit;
mod announce;
mod audit;
mod build;
mod check;
mod dispatch;
mod global;
mod graph;
mod jobs;
mod notes;
#[cfg(test)]
mod operations;
mod run;
mod sharing;
mod spec;
mod table;
mod tree;
mod versions;
mod watch;
mod wrong;

pub use graph::{ChannelId, ChannelSpec, Traffic};
pub use jobs::Job;
pub use notes::Note;
pub use sharing::{AcceleratorId, Protocol, ResourceId, ResourceSpec};
pub use spec::{Affinity, Backlog, Body, SchedulerSpec, TaskSpec};
pub use tree::{LONGEST, Migration, Node, NodeId, Tree};
pub use versions::{Candidates, Chooser, Condition, Conditions, Selection, Version};
pub use watch::{Signal, Watch};
pub use wrong::{TreeError, Wrong};

use crate::criteria::Own;
use crate::heap::Heap;
use crate::sched::{self, Child, Entry, Part, Resched, Scheduler};
use crate::server::{self, Server};
use crate::{Span, Time, Work};
use alloc::boxed::Box;
use alloc::vec::Vec;
use global::Global;

/// A task of one machine, numbered from 0 in the order of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// A CPU of one machine, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu(pub u32);

/// What the world tells the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A job of `task` has come. Its deadline counts from `arrival`, the *nominal* time, which may be earlier than now.
    Arrived {
        /// Whose job.
        task: TaskId,
        /// When it should have come.
        arrival: Time,
    },
    /// The job under way has ended.
    Completed {
        /// Whose job.
        task: TaskId,
    },
    /// The job under way waits for something that is not a CPU.
    Blocked {
        /// Whose job.
        task: TaskId,
    },
    /// It waits no longer.
    Woke {
        /// Whose job.
        task: TaskId,
    },
    /// The job under way has come to where it locks `resource`. It goes on when it is next ordered to run, at once
    /// unless the answer is [`Handled::Waits`].
    Locked {
        /// Whose job.
        task: TaskId,
        /// What it locks; one of those that its task uses.
        resource: ResourceId,
    },
    /// The job under way has unlocked `resource`. What it has not unlocked at its end is unlocked then.
    Unlocked {
        /// Whose job.
        task: TaskId,
        /// What it held.
        resource: ResourceId,
    },
    /// The job under way of the channel's source has put a token in.
    Pushed {
        /// Where.
        channel: ChannelId,
    },
    /// The job under way of the channel's sink has taken a token out.
    Popped {
        /// Where.
        channel: ChannelId,
    },
    /// The world has changed as far as versions depend on it.
    Changed(Condition),
    /// No job is taken from now on; those that have come are done, and what their graphs activate (Y14). A new start is a
    /// new machine of the same tree, or of an edited one, with a new zero: see [`Machine::keep_channels`].
    Stopped,
    /// The task that runs on `cpu` has consumed so much since this was last told. To be told before everything else of an
    /// instant, for every CPU that [`Machine::is_metered`].
    Ran {
        /// Where.
        cpu: Cpu,
        /// How much.
        work: Work,
    },
    /// Nothing but that time has passed.
    Timer,
}

/// What the machine asks of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `cpu` runs this job until the next order for it.
    Run {
        /// Where.
        cpu: Cpu,
        /// Whose job.
        task: TaskId,
        /// Which one.
        job: u64,
        /// In which version.
        version: u32,
    },
    /// `cpu` has nothing to run.
    Idle {
        /// Where.
        cpu: Cpu,
    },
}

/// What became of an arrival.
#[must_use = "a refused job will never run"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// As it should.
    Done,
    /// There was no room for the job in its task's backlog.
    Refused,
    /// Somebody holds the resource; the job waits.
    Waits,
    /// The channel is full: the token is lost, and counted.
    Full,
    /// The channel is empty: there is nothing to take, which is counted.
    Empty,
    /// The machine was stopped before the job came.
    Stopped,
}

const NONE: u32 = u32::MAX;
/// It waits for something that is not a CPU, says the driver.
const BLOCKED: u8 = 1;
/// It waits for something that another job holds.
const STALLED: u8 = 2;

/// A node: what its parent knows of it.
#[derive(Debug)]
struct Runnable {
    /// As its parent's policy sees it.
    entry: Entry,
    /// The scheduler above; [`NONE`] for the root.
    parent: u32,
    eligible: bool,
    /// Something has been lent to it.
    boosted: bool,
    /// In the tree that it was built from.
    id: NodeId,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Task(u32),
    Group(u32),
}

/// A scheduler at work.
#[derive(Debug)]
struct Group {
    policy: sched::Built,
    server: Option<server::Built>,
    /// The deadline of the server when somebody last looked: with another one it is another job of it.
    due: Time,
    own: Own,
    node: u32,
    /// Where its children begin in [`Machine::kids`].
    kids: u32,
    /// Whether a child is ready: what the server was told last.
    pending: bool,
    preemptive: bool,
    /// The child under way, of a scheduler that does not preempt.
    current: Option<Child>,
    /// Whether consumption matters to the policy or the server.
    metered: bool,
    /// Whether it is in [`Machine::spent`].
    is_spent: bool,
}

#[derive(Debug)]
struct Task {
    ring: jobs::Ring,
    deadline: Span,
    separation: Option<Span>,
    node: u32,
    /// A job is under way and released.
    released: bool,
    /// It has had a CPU; counted only where that binds it.
    started: bool,
    /// Why the job may not run although it is released: [`BLOCKED`], [`STALLED`].
    held: u8,
    /// Whether a scheduler above counts what it consumes.
    metered: bool,
}

/// What a CPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Doing {
    /// Whose job; [`NONE`]: nothing.
    task: u32,
    job: u64,
}

impl Doing {
    const NOTHING: Doing = Doing { task: NONE, job: 0 };

    #[inline]
    fn task(self) -> Option<u32> {
        (self.task != NONE).then_some(self.task)
    }
}

#[derive(Debug)]
struct CpuState {
    /// As ordered.
    actual: Doing,
    /// As decided.
    target: Doing,
    /// When a budget or a quantum of the path that runs would be used up at full speed.
    expiry: Time,
    metered: bool,
}

/// One root at work.
#[derive(Debug)]
pub struct Machine<W: Watch = ()> {
    nodes: Vec<Runnable>,
    groups: Vec<Group>,
    tasks: Vec<Task>,
    kids: Vec<u32>,
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

/// A timer's key: its time, and the part of that instant.
#[inline]
fn key(at: Time, part: Part) -> u64 {
    at.as_ns() << 2 | part as u64
}

/// Of the three timers that a node may have.
#[derive(Clone, Copy)]
enum Alarm {
    Refill(u32),
    Policy(u32),
    Release(u32),
}

impl<W: Watch> Machine<W> {
    /// The number of tasks.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// The number of CPUs.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// The node that a task is in the tree.
    pub fn node_of(&self, task: TaskId) -> NodeId {
        self.nodes[self.tasks[task.0 as usize].node as usize].id
    }

    /// The job of `task` that is under way or next.
    pub fn job(&self, task: TaskId) -> Option<Job> {
        self.tasks[task.0 as usize].ring.first()
    }

    /// Whether a job of `task` is under way: only then can one end.
    pub fn is_under_way(&self, task: TaskId) -> bool {
        self.tasks[task.0 as usize].released
    }

    /// How many jobs of `task` have arrived and not ended.
    pub fn backlog(&self, task: TaskId) -> u32 {
        self.tasks[task.0 as usize].ring.len()
    }

    /// How many of them have a deadline at or before `now`: late, although they never ended. O(backlog).
    pub fn overdue(&self, task: TaskId, now: Time) -> u32 {
        self.tasks[task.0 as usize].ring.overdue(now)
    }

    /// Whether [`Event::Ran`] may ever be wanted.
    pub fn meters(&self) -> bool {
        self.any_metered
    }

    /// Whether [`Event::Ran`] is wanted for `cpu` now.
    #[inline]
    pub fn is_metered(&self, cpu: Cpu) -> bool {
        self.cpus[cpu.0 as usize].metered
    }

    /// Whoever looks.
    pub fn watch(&mut self) -> &mut W {
        &mut self.watch
    }

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

    /// Tells the machine what has happened. Time never runs backwards; at one instant `Ran` comes first, then
    /// completions, then the rest.
    ///
    /// # Panics
    /// If time runs backwards or a task completes that has no job: a driver's mistake, never a user's.
    #[inline(always)]
    pub fn handle(&mut self, now: Time, event: Event) -> Handled {
        assert!(now >= self.now, "time ran backwards");
        self.now = now;
        match event {
            Event::Arrived { task, arrival } => return self.arrived(now, task.0, arrival),
            Event::Completed { task } => self.completed(now, task.0),
            Event::Blocked { task } => {
                self.tasks[task.0 as usize].held |= BLOCKED;
                self.show_task_again(now, task.0);
            }
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
                if self.any_metered && self.cpus.iter().any(|cpu| cpu.expiry <= now) {
                    // Budgets were counted at full speed, but some of it went elsewhere.
                    self.measure(now);
                }
                return None;
            }
        }
        self.next_order()
    }

    /// Who stops comes before who starts: nobody is ever on two CPUs.
    #[inline(always)]
    fn next_order(&mut self) -> Option<Order> {
        if self.stops != 0 {
            let cpu = self.stops.trailing_zeros();
            self.stops &= self.stops - 1;
            self.asked = true;
            self.cpus[cpu as usize].actual = Doing::NOTHING;
            return Some(Order::Idle { cpu: Cpu(cpu) });
        }
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

    fn arrived(&mut self, now: Time, task: u32, arrival: Time) -> Handled {
        self.catch_up(now, Part::Ends);
        if self.stopped {
            return Handled::Stopped;
        }
        let state = &mut self.tasks[task as usize];
        if !state.ring.push(arrival, state.deadline, state.separation) {
            return Handled::Refused;
        }
        // Behind one that has to keep its distance there is nothing to do.
        if state.ring.len() == 1 {
            self.release(now, task, false);
        }
        Handled::Done
    }

    /// Lets the first job of the ring run, or sets the alarm for when it may. `ended`: another one has just ended.
    #[inline(always)]
    fn release(&mut self, now: Time, task: u32, ended: bool) {
        let state = &mut self.tasks[task as usize];
        let first = state.ring.first();
        state.released = first.is_some_and(|job| job.release <= now || state.separation.is_none());
        if let (false, Some(job)) = (state.released, first) {
            self.timers.set(self.alarm(Alarm::Release(task)), key(job.release, Part::Arrivals));
        }
        self.show_task(now, task, ended);
    }

    /// A delayed release is due.
    #[cold]
    fn release_due(&mut self, now: Time, task: u32) {
        self.release(now, task, false);
    }

    /// Releases the first job of the ring with the arrivals of its instant, unless one is under way.
    fn release_later(&mut self, now: Time, task: u32) {
        let state = &self.tasks[task as usize];
        if let (false, Some(job)) = (state.released, state.ring.first()) {
            self.timers.set(self.alarm(Alarm::Release(task)), key(job.release.max(now), Part::Arrivals));
        }
    }

    fn completed(&mut self, now: Time, task: u32) {
        let state = &mut self.tasks[task as usize];
        assert!(state.released, "a job ended that was not under way");
        // The deadline that its successors in a graph inherit.
        let deadline = state.ring.first().map_or(now, |job| job.deadline);
        state.ring.pop();
        state.held = 0;
        let (node, was_started) = (state.node, core::mem::take(&mut state.started));
        let entry = &mut self.nodes[node as usize].entry;
        entry.job = entry.job.wrapping_add(1);
        if self.share.is_some() {
            self.job_gives_back(task);
        }
        if self.any_nonpreemptive {
            self.let_go(node);
        }
        self.release(now, task, true);
        if self.any_nonpreemptive {
            self.look_again(now, node);
        }
        if self.global.is_some() {
            let top = self.top_of(node);
            if let Some(global) = &mut self.global {
                global.job_ended(now, &self.nodes[top as usize].entry, was_started);
            }
        }
        if self.share.is_some() {
            self.wake_waiters(now);
        }
        if self.graph.is_some() {
            self.publish(now, task, deadline);
        }
        self.dirty = true;
    }

    /// The child of the root above or at `node`.
    fn top_of(&self, mut node: u32) -> u32 {
        // The root's group is the first.
        while self.nodes[node as usize].parent != 0 {
            node = self.groups[self.nodes[node as usize].parent as usize].node;
        }
        node
    }

    fn alarm(&self, of: Alarm) -> u32 {
        match of {
            Alarm::Refill(group) => group,
            Alarm::Policy(group) => self.groups.len() as u32 + group,
            Alarm::Release(task) => 2 * self.groups.len() as u32 + task,
        }
    }

    fn rearm(&mut self, now: Time, group: u32) {
        let Some(server) = &self.groups[group as usize].server else { return };
        let alarm = self.alarm(Alarm::Refill(group));
        match server.next_refill(now) {
            // One that is overdue comes with the refills of this instant, not before its arrivals.
            Some(at) => self.timers.set(alarm, key(at.max(now), Part::Starts)),
            None => _ = self.timers.remove(alarm),
        }
    }

    fn rearm_policy(&mut self, group: u32) {
        let alarm = self.alarm(Alarm::Policy(group));
        let next = match &self.table {
            Some(table) if group == 0 => table.edge(),
            _ => self.groups[group as usize].policy.next_wakeup(),
        };
        match next {
            Some((at, part)) => self.timers.set(alarm, key(at, part)),
            None => _ = self.timers.remove(alarm),
        }
    }

    /// Does what was due before or in this part of this instant.
    #[inline(always)]
    fn catch_up(&mut self, now: Time, part: Part) {
        let until = key(now, part);
        if !self.spent.is_empty() || self.timers.first().is_some_and(|(due, _)| due <= until) {
            self.catch_up_until(now, until);
        }
    }

    fn catch_up_until(&mut self, now: Time, until: u64) {
        while let Some(group) = self.spent.pop() {
            let state = &mut self.groups[group as usize];
            state.is_spent = false;
            if let Some(server) = &mut state.server
                && server.budget(now).is_zero()
            {
                server.exhausted(now);
            }
            self.refresh(now, group);
        }
        while let Some((due, alarm)) = self.timers.first().filter(|&(due, _)| due <= until) {
            self.ring(now, due, alarm);
        }
    }

    fn ring(&mut self, now: Time, due: u64, alarm: u32) {
        let groups = self.groups.len() as u32;
        if alarm < groups {
            if let Some(server) = &mut self.groups[alarm as usize].server {
                server.refill(now);
            }
            self.rearm(now, alarm);
            self.refresh(now, alarm);
        } else if alarm < 2 * groups {
            let group = alarm - groups;
            let part = if due & 3 == Part::Ends as u64 { Part::Ends } else { Part::Starts };
            let at = Time::from_ns(due >> 2);
            if group == 0 && self.table.is_some() {
                self.turn_table(now, (at, part));
                return self.rearm_policy(group);
            }
            let _ = self.groups[group as usize].policy.wake(at, part);
            self.rearm_policy(group);
            self.refresh(now, group);
        } else {
            self.timers.remove(alarm);
            self.release_due(now, alarm - 2 * groups);
        }
    }

    /// Charges everything above the task that runs on `cpu`.
    fn ran(&mut self, now: Time, cpu: usize, work: Work) {
        let Some(task) = self.cpus[cpu].actual.task().filter(|_| !work.is_zero()) else { return };
        let mut node = self.tasks[task as usize].node;
        while self.nodes[node as usize].parent != NONE {
            let (parent, child) = (self.nodes[node as usize].parent, self.nodes[node as usize].entry.child);
            let group = &mut self.groups[parent as usize];
            node = group.node;
            if !group.metered {
                continue;
            }
            let mut changed = false;
            if let Some(server) = &mut group.server {
                // What ran over its budget, because a driver was late, is not charged twice.
                let budget = server.budget(now);
                if !budget.is_zero() {
                    server.charge(now, work.min(budget));
                    let shown = self.nodes[node as usize].entry.criteria.deadline;
                    changed = server.budget(now).is_zero() || server.deadline() != shown;
                }
            }
            if group.policy.metered() {
                changed |= group.policy.charge(now, child, work) == Resched::Pick;
            }
            // Shown later: those above have not been charged yet.
            if changed && !core::mem::replace(&mut group.is_spent, true) {
                self.spent.push(parent);
            }
        }
        self.dirty = true;
    }
}
