//! Government of the cgroup of a program: its levels, its freezing, its wake-ups, and the idle
//! detector of its CPU.
//!
//! This file needs the cgroup only, not what has started the program in it. A *filled* group is one
//! whose members another process starts and ends.

use super::listener::WakeupListener;
use crate::failure::Failure;
use crate::mechanism::freeze::{Freezable, Members};
use crate::policy_monitor::ProgramPolicies;
use crate::root_shared::{PriorityMap, ProgramLevel, RootShared};
use std::fmt;
use std::io::{self, PipeReader};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use talea_core::engine::TaskId;
use talea_core::{CpuSet, Monotonic, Span, Work};
use talea_os::cgroup::{self, Cgroup};
use talea_os::sched::{self, Attr};
use talea_os::wakeup_events::WakeupWatch;
use talea_os::{Tid, proc};

/// Maximum number of threads of a program whose wake-ups are timed. A job that another thread
/// begins is released when the engine receives the event.
const MAX_TIMED_THREADS: usize = 16;
/// Maximum number of walks over the threads of a program that set a level.
const MAX_WALKS: u32 = 4;

/// Isolation of a stopped program: the cgroup is frozen, the threads have the lowest real-time
/// priority, and the kernel may limit the program's CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Isolation {
    /// Whether the kernel also limits the program's real-time CPU time by a control group.
    pub has_rt_group: bool,
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("freezer, FIFO 1")?;
        if self.has_rt_group { f.write_str(", real-time control group") } else { Ok(()) }
    }
}

/// Governed cgroup with its listener thread.
pub(super) struct Governed<'scope> {
    pub(super) listener_thread: ScopedJoinHandle<'scope, ()>,
    pub(super) listener: Arc<WakeupListener>,
    pub(super) policy_changed: Arc<OnceLock<String>>,
    pub(super) isolation: Isolation,
    /// Handle for the mechanism, until the mechanism takes it.
    pub(super) handle: Option<ProgramHandle>,
}

/// Origin of the members of a governed cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The run has started the program, frozen.
    Run,
    /// Another process fills the cgroup.
    Filled,
}

/// Starts the listener of a cgroup, at the dispatcher's priority. The listener runs until the other
/// end of `stop` is closed. `is_over` says whether the run has killed the program.
pub(super) fn govern<'scope>(
    scope: &'scope Scope<'scope, '_>,
    (cgroup, origin): (&Arc<Cgroup>, Origin),
    (shared, task): (&'scope Arc<RootShared>, TaskId),
    priorities: PriorityMap,
    events: Option<WakeupWatch>,
    (stop, is_over): (&Arc<PipeReader>, &'scope AtomicBool),
) -> Result<Governed<'scope>, Failure> {
    let cpu = shared.cpus[0].number;
    let listener = Arc::new(WakeupListener::new(events));
    let policy_changed: Arc<OnceLock<String>> = Arc::default();
    let mut handle = ProgramHandle {
        cgroup: Arc::clone(cgroup),
        origin,
        listener: Arc::clone(&listener),
        policies: ProgramPolicies::new(priorities),
        policy_changed: Arc::clone(&policy_changed),
        armed_times: Vec::with_capacity(MAX_TIMED_THREADS),
    };
    if origin == Origin::Filled {
        // Before the policy monitor reads the levels that an earlier run has left.
        handle.freeze()?;
        handle.adopt()?;
    }
    let changes = (origin == Origin::Filled).then(|| cgroup.changes()).transpose()?;
    let (report, reported) = channel();
    let listener_thread =
        Builder::new().name(format!("talea-wake{}", task.0)).spawn_scoped(scope, {
            let (listener, cgroup, stop) =
                (Arc::clone(&listener), Arc::clone(cgroup), Arc::clone(stop));
            move || {
                let entered = sched::set_affinity(Tid::current(), &CpuSet::single(cpu))
                    .and_then(|()| priorities.set_dispatcher(Tid::current()));
                let is_in = entered.is_ok();
                // The receiver waits for it.
                let _ = report.send(entered);
                match &changes {
                    _ if !is_in => {}
                    Some(changes) => listener.run_filled((&cgroup, changes), shared, task, &stop),
                    None => listener.run(&cgroup, shared, task, (&stop, is_over)),
                }
            }
        })?;
    reported.recv().map_err(|_| Failure::Os(io::Error::other("a wakeup listener panicked")))??;
    let isolation = Isolation { has_rt_group: cgroup.rt_group().is_some() };
    Ok(Governed { listener_thread, listener, policy_changed, isolation, handle: Some(handle) })
}

/// Starts the idle detector of a CPU. The detector sleeps below the programs, and reports when it
/// gets the CPU.
pub(super) fn spawn_idle_detector<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Arc<RootShared>,
    priorities: PriorityMap,
) -> Result<ScopedJoinHandle<'scope, ()>, Failure> {
    let (report, reported) = channel();
    let cpu = &shared.cpus[0];
    let watch = move || {
        let entered = sched::set_affinity(Tid::current(), &CpuSet::single(cpu.number))
            .and_then(|()| priorities.set_runnable(Tid::current(), 0));
        let is_in = entered.is_ok();
        let _ = report.send(entered);
        let mut key = 0;
        while is_in && !shared.is_over.load(Ordering::Acquire) {
            cpu.idle_detector.epoch.wait(key, Monotonic::NEVER);
            key = cpu.idle_detector.epoch.key();
            cpu.idle_detector.idle_epoch.store(key, Ordering::Release);
            cpu.mailbox.event_count.notify();
        }
    };
    let name = format!("talea-idle{}", cpu.number);
    let detector = Builder::new().name(name).spawn_scoped(scope, watch)?;
    reported.recv().map_err(|_| Failure::Os(io::Error::other("an idle detector panicked")))??;
    Ok(detector)
}

/// Program in the form that the mechanism uses.
#[derive(Debug)]
pub(crate) struct ProgramHandle {
    cgroup: Arc<Cgroup>,
    origin: Origin,
    listener: Arc<WakeupListener>,
    policies: ProgramPolicies,
    policy_changed: Arc<OnceLock<String>>,
    /// Runnable times of the program's first threads when the listener was armed.
    armed_times: Vec<(Tid, Span)>,
}

impl ProgramHandle {
    /// Returns the description of the first change that the run did not make.
    pub(crate) fn policy_changed(&self) -> Option<&str> {
        self.policy_changed.get().map(String::as_str)
    }

    /// Sets the level of all threads. If `notes_changes`, stores a policy that the run did not
    /// give.
    fn set_levels(&mut self, level: ProgramLevel, notes_changes: bool) -> io::Result<()> {
        let policy = self.policies.of(level);
        // A thread that is created meanwhile has the level of its creator, and a second walk
        // finds it.
        for _ in 0..MAX_WALKS {
            let mut is_done = true;
            self.cgroup.for_each_thread(|tid| {
                let Ok(now) = sched::get(tid) else { return };
                let is_change = notes_changes && !self.policies.contain(now.policy);
                if is_change && self.policy_changed.get().is_none() {
                    let _ = self.policy_changed.set(self.policies.describe_change(tid, now.policy));
                }
                if now.policy != policy {
                    is_done = false;
                    // It may have exited.
                    let _: io::Result<()> = sched::set(tid, &Attr::plain(policy));
                }
            })?;
            if is_done {
                break;
            }
        }
        Ok(())
    }

    /// Replaces the error of a filled group that another process has removed: such a group has no
    /// members.
    fn unless_removed<T: Default>(&self, result: io::Result<T>) -> io::Result<T> {
        match result {
            Err(error) if self.origin == Origin::Filled && cgroup::is_removed(&error) => {
                Ok(T::default())
            }
            other => other,
        }
    }
}

impl Freezable for ProgramHandle {
    fn members(&mut self) -> io::Result<Members> {
        match self.origin {
            Origin::Run => Ok(Members::OfRun),
            Origin::Filled if !self.unless_removed(self.cgroup.is_populated())? => {
                self.listener.note_empty();
                Ok(Members::None)
            }
            Origin::Filled => {
                let is_freezing = self.unless_removed(self.cgroup.is_freezing())?;
                Ok(Members::Some { is_freezing })
            }
        }
    }

    fn adopt(&mut self) -> io::Result<()> {
        let set = self.set_levels(ProgramLevel::Stopped, false);
        self.unless_removed(set)
    }

    fn set_level(&mut self, level: ProgramLevel) -> io::Result<()> {
        let set = self.set_levels(level, true);
        self.unless_removed(set)
    }

    fn is_frozen(&mut self) -> io::Result<bool> {
        self.unless_removed(self.cgroup.is_frozen())
    }

    fn freeze(&mut self) -> io::Result<()> {
        self.unless_removed(self.cgroup.freeze())
    }

    fn thaw(&mut self) -> io::Result<()> {
        self.unless_removed(self.cgroup.thaw())
    }

    fn cpu_time(&mut self) -> io::Result<Work> {
        self.unless_removed(self.cgroup.used())
    }

    fn arm_wakeup(&mut self) -> io::Result<()> {
        let (group, times) = (&self.cgroup, &mut self.armed_times);
        times.clear();
        let armed = group.for_each_thread(|tid| {
            if times.len() < MAX_TIMED_THREADS
                && let Ok(time) = proc::runnable_time(tid)
            {
                times.push((tid, time));
            }
        });
        let armed = armed.and_then(|()| self.listener.arm(group));
        self.unless_removed(armed)
    }

    fn time_since_wakeup(&mut self) -> Span {
        let since =
            |&(tid, before): &(Tid, Span)| proc::runnable_time(tid).ok()?.checked_sub(before);
        let runnable = self.armed_times.iter().filter_map(since).max().unwrap_or(Span::ZERO);
        runnable + self.listener.time_since_report()
    }
}
