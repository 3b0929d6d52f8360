//! Service threads of a run: dispatchers, watchdog, stall monitors.

use super::context::RunContext;
use super::root_threads::{Driver, MonitorPolicy, RootThreads};
use crate::dispatcher::{self, DispatcherStats};
use crate::failure::Failure;
use crate::native;
use crate::options::MAX_SPIN;
use crate::root_shared::PriorityMap;
use crate::run_clock::RunClock;
use crate::stalls::{self, Stall};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use talea_core::mutate;
use talea_core::{Monotonic, Time};
use talea_os::Tid;

/// Dispatchers of a run, one per CPU, in the order of roots and CPUs.
pub(super) struct Dispatchers<'scope> {
    pub(super) threads: Vec<ScopedJoinHandle<'scope, io::Result<DispatcherStats>>>,
    /// Senders of the start messages, one per thread.
    pub(super) starts: Vec<Sender<RunClock>>,
    pub(super) are_all_ready: bool,
}

/// Watchdog and stall monitors of a run.
pub(super) struct Monitors<'scope> {
    pub(super) watchdog: ScopedJoinHandle<'scope, ()>,
    /// Sender of the planned end of the run to the watchdog. If it is dropped unused, the watchdog
    /// leaves.
    pub(super) planned_end: Option<Sender<Monotonic>>,
    pub(super) threads: Vec<ScopedJoinHandle<'scope, Vec<Stall>>>,
    /// Senders of the start of the run to the monitors.
    pub(super) monitor_starts: Vec<Sender<Monotonic>>,
}

impl<'s> RunContext<'s> {
    pub(super) fn dispatchers<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        root_threads: &[RootThreads],
        priorities: PriorityMap,
    ) -> Result<Dispatchers<'scope>, Failure>
    where
        's: 'scope,
    {
        let (mut threads, mut starts) = (Vec::new(), Vec::new());
        let (ready, entered) = channel();
        for (threads_of_root, shared) in root_threads.iter().zip(self.shared_roots) {
            let state = match &threads_of_root.driver {
                Driver::Engine { state, .. } => state,
                Driver::Linux { shutdown, .. } => {
                    let shutdown = Arc::clone(shutdown);
                    let (start, started) = channel::<RunClock>();
                    starts.push(start);
                    let (ready, place) = (ready.clone(), threads.len());
                    threads.push(Builder::new().name("talea-end".into()).spawn_scoped(
                        scope,
                        move || {
                            // As below; above the workers, and on any CPU.
                            let _ = ready.send(
                                priorities
                                    .set_watchdog(Tid::current())
                                    .map(|()| (place, Tid::current())),
                            );
                            drop(ready);
                            let stopped_at = started.recv().map_or(Time::ZERO, |time| {
                                native::worker::wait_for_end(shared, &shutdown, time)
                            });
                            Ok(DispatcherStats { stopped_at, ..DispatcherStats::default() })
                        },
                    )?);
                    continue;
                }
            };
            for (cpu, &number) in threads_of_root.cpus.iter().enumerate() {
                let (start, started) = channel::<RunClock>();
                starts.push(start);
                let (ready, state, spin) =
                    (ready.clone(), Arc::clone(state), self.options.spin.min(MAX_SPIN));
                let (name, place) = (format!("exec-cpu{number}"), threads.len());
                let programs = self.programs;
                programs.dispatcher_started();
                threads.push(Builder::new().name(name).spawn_scoped(scope, move || {
                    // The receiver waits for it.
                    let _ = ready.send(
                        dispatcher::enter(number, priorities).map(|()| (place, Tid::current())),
                    );
                    // If another thread panics before it reports, the closed channel shows it.
                    drop(ready);
                    match started.recv() {
                        Ok(time) => {
                            let stats = dispatcher::run(cpu, shared, &state, time, spin);
                            programs.dispatcher_stopped(priorities);
                            stats
                        }
                        // Another thread could not enter.
                        Err(_) => Ok(DispatcherStats::default()),
                    }
                })?);
            }
        }
        drop(ready);
        let mut tids =
            entered.iter().take(threads.len()).collect::<io::Result<Vec<(usize, Tid)>>>()?;
        // In the order of their CPUs, not in that of their reports.
        mutate!(
            "exec-threads-order",
            tids.sort_unstable_by_key(|&(place, _)| place),
            tids.sort_unstable_by_key(|&(_, tid)| std::cmp::Reverse(tid.as_raw()))
        );
        let are_all_ready = tids.len() == threads.len();
        *self.watchdog.dispatchers.lock() = tids.into_iter().map(|(_, tid)| tid).collect();
        if !are_all_ready {
            // One panicked; the others leave when they get no start message, and its panic is
            // passed on.
            starts.clear();
        }
        Ok(Dispatchers { threads, starts, are_all_ready })
    }

    /// Starts the watchdog. Also starts a stall monitor on each of these CPUs if the options
    /// request stall monitors.
    pub(super) fn monitors<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        cpus: &[(u32, MonitorPolicy)],
        priorities: PriorityMap,
    ) -> Result<Monitors<'scope>, Failure>
    where
        's: 'scope,
    {
        let (ready, entered) = channel();
        let (watchdog, shared_roots, programs) = (self.watchdog, self.shared_roots, self.programs);
        let (begin, begun) = channel();
        let watchdog = Builder::new().name("exec-watchdog".into()).spawn_scoped(scope, {
            let ready = ready.clone();
            move || {
                let is_in = watchdog.enter(priorities);
                let may_run = is_in.is_ok();
                let _ = ready.send(is_in);
                drop(ready);
                if may_run {
                    watchdog.run(&begun, shared_roots, programs);
                }
            }
        })?;
        let (mut monitors, mut monitor_starts) = (Vec::new(), Vec::new());
        for &(cpu, policy) in cpus.iter().filter(|_| self.options.monitor) {
            let (start, started) = channel::<Monotonic>();
            monitor_starts.push(start);
            let (ready, stop) = (ready.clone(), self.stop);
            let probe = move || {
                let (entered, probe): (_, fn(_, _, &_) -> _) = match policy {
                    MonitorPolicy::Fifo => {
                        (stalls::enter_fifo(cpu, priorities), stalls::probe_fifo)
                    }
                    MonitorPolicy::Deadline => {
                        (stalls::enter_reserved(cpu), stalls::probe_reserved)
                    }
                };
                let _ = ready.send(entered);
                drop(ready);
                started.recv().map_or_else(|_| Vec::new(), |zero| probe(cpu, zero, stop))
            };
            let name = format!("exec-monitor{cpu}");
            monitors.push(Builder::new().name(name).spawn_scoped(scope, probe)?);
        }
        drop(ready);
        // The run does not begin without them.
        let explain = |error: io::Error| {
            match error.kind() {
            io::ErrorKind::ResourceBusy => Failure::Plan(
                "the kernel's admission test has no room for the stall monitor, which needs six thousandths of the CPU".into(),
            ),
            _ => error.into(),
        }
        };
        entered.iter().collect::<io::Result<()>>().map_err(explain)?;
        Ok(Monitors { watchdog, planned_end: Some(begin), threads: monitors, monitor_starts })
    }
}
