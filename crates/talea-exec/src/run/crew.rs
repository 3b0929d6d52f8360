//! Who stands above the workers: dispatchers, the watchdog, monitors of holes.

use super::cast::{Above, Cast, Led};
use super::plan::MOST_SPIN;
use super::{Failure, Shared};
use crate::dispatcher::{self, Effort, Timeline};
use crate::holes::{self, Hole};
use crate::native;
use crate::stage::Ranks;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use talea_core::Time;
use talea_core::mutate;
use talea_os::Tid;

/// One for each CPU, in the order of roots and CPUs.
pub(super) struct Dispatchers<'scope> {
    pub(super) threads: Vec<ScopedJoinHandle<'scope, io::Result<Effort>>>,
    /// What each waits for.
    pub(super) starts: Vec<Sender<Timeline>>,
    pub(super) are_all_in: bool,
}

/// Those who look on.
pub(super) struct Watchers<'scope> {
    pub(super) dog: ScopedJoinHandle<'scope, ()>,
    /// Tells the watchdog when the run is to be over; without that it leaves.
    pub(super) begin: Option<Sender<Time>>,
    pub(super) monitors: Vec<ScopedJoinHandle<'scope, Vec<Hole>>>,
    /// Tell the monitors when it begins.
    pub(super) looks: Vec<Sender<Time>>,
}

impl<'s> Shared<'s> {
    pub(super) fn dispatchers<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        casts: &[Cast],
        ranks: Ranks,
    ) -> Result<Dispatchers<'scope>, Failure>
    where
        's: 'scope,
    {
        let (mut threads, mut starts) = (Vec::new(), Vec::new());
        let (ready, entered) = channel();
        for (cast, stage) in casts.iter().zip(self.stages) {
            let live = match &cast.led {
                Led::Machine { live, .. } => live,
                Led::Native { closing, .. } => {
                    let closing = Arc::clone(closing);
                    let (start, started) = channel::<Timeline>();
                    starts.push(start);
                    let (ready, place) = (ready.clone(), threads.len());
                    threads.push(Builder::new().name("exec-end".into()).spawn_scoped(
                        scope,
                        move || {
                            // As below; above the workers, and free to go to any CPU.
                            let _ = ready.send(
                                ranks.watchdog(Tid::current()).map(|()| (place, Tid::current())),
                            );
                            drop(ready);
                            let left = started.recv().map_or(Time::ZERO, |time| {
                                native::worker::end(stage, &closing, time)
                            });
                            Ok(Effort { left, ..Effort::default() })
                        },
                    )?);
                    continue;
                }
            };
            for (cpu, &number) in cast.cpus.iter().enumerate() {
                let (start, started) = channel::<Timeline>();
                starts.push(start);
                let (ready, live, spin) =
                    (ready.clone(), Arc::clone(live), self.options.spin.min(MOST_SPIN));
                let (name, place) = (format!("exec-cpu{number}"), threads.len());
                let programs = self.programs;
                programs.comes();
                threads.push(Builder::new().name(name).spawn_scoped(scope, move || {
                    // Whoever waits for it has not gone.
                    let _ = ready
                        .send(dispatcher::enter(number, ranks).map(|()| (place, Tid::current())));
                    // If another one falls before it says anything, that is how it is noticed.
                    drop(ready);
                    match started.recv() {
                        Ok(time) => {
                            let effort = dispatcher::drive(cpu, stage, &live, time, spin);
                            programs.leaves(ranks);
                            effort
                        }
                        // Another one could not enter.
                        Err(_) => Ok(Effort::default()),
                    }
                })?);
            }
        }
        drop(ready);
        let mut tids =
            entered.iter().take(threads.len()).collect::<io::Result<Vec<(usize, Tid)>>>()?;
        // In the order of their CPUs, not in that in which they came.
        mutate!(
            "exec-crew-order",
            tids.sort_unstable_by_key(|&(place, _)| place),
            tids.sort_unstable_by_key(|&(_, tid)| std::cmp::Reverse(tid.as_raw()))
        );
        let are_all_in = tids.len() == threads.len();
        *self.watchdog.dispatchers.lock() = tids.into_iter().map(|(_, tid)| tid).collect();
        if !are_all_in {
            // One fell; the others leave when there is no start for them, and its panic is passed
            // on.
            starts.clear();
        }
        Ok(Dispatchers { threads, starts, are_all_in })
    }

    /// The watchdog, and a monitor on each of these CPUs, if there are to be any.
    pub(super) fn watchers<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        cpus: &[(u32, Above)],
        ranks: Ranks,
    ) -> Result<Watchers<'scope>, Failure>
    where
        's: 'scope,
    {
        let (ready, entered) = channel();
        let (dog, stages, programs) = (self.watchdog, self.stages, self.programs);
        let (begin, begun) = channel();
        let dog = Builder::new().name("exec-watchdog".into()).spawn_scoped(scope, {
            let ready = ready.clone();
            move || {
                let is_in = dog.enter(ranks);
                let may_watch = is_in.is_ok();
                let _ = ready.send(is_in);
                drop(ready);
                if may_watch {
                    dog.watch(&begun, stages, programs);
                }
            }
        })?;
        let (mut monitors, mut looks) = (Vec::new(), Vec::new());
        for &(cpu, above) in cpus.iter().filter(|_| self.options.monitor) {
            let (look, looked) = channel::<Time>();
            looks.push(look);
            let (ready, stop) = (ready.clone(), self.stop);
            let watch = move || {
                let (entered, watch): (_, fn(_, _, &_) -> _) = match above {
                    Above::Priority => (holes::enter(cpu, ranks), holes::watch),
                    Above::Reservation => (holes::enter_reserved(cpu), holes::watch_rarely),
                };
                let _ = ready.send(entered);
                drop(ready);
                looked.recv().map_or_else(|_| Vec::new(), |zero| watch(cpu, zero, stop))
            };
            let name = format!("exec-monitor{cpu}");
            monitors.push(Builder::new().name(name).spawn_scoped(scope, watch)?);
        }
        drop(ready);
        // Nobody begins whom nobody watches.
        let no_room = |error: io::Error| {
            match error.kind() {
            io::ErrorKind::ResourceBusy => Failure::Plan(
                "the kernel's own admission has no room left for the monitor of holes, which wants six thousandths of the CPU".into(),
            ),
            _ => error.into(),
        }
        };
        entered.iter().collect::<io::Result<()>>().map_err(no_room)?;
        Ok(Watchers { dog, begin: Some(begin), monitors, looks })
    }
}
