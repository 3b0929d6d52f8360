//! A hand on a run from outside: from any thread, workers included.

use crate::stage::Stage;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use talea_core::Time;
use talea_core::machine::{Condition, TaskId};

/// Ends a run, also one that has not begun; asks for jobs; says what becomes of the world.
#[derive(Debug, Default)]
pub struct Remote {
    called_off: AtomicBool,
    /// Set under the lock; read without it.
    stages: OnceLock<Vec<std::sync::Weak<Stage>>>,
    sets: Mutex<()>,
    zero: OnceLock<Time>,
}

impl Remote {
    /// The run is to end now. What has happened until then is reported as if it had been planned
    /// so.
    pub fn call_off(&self) {
        self.called_off.store(true, Ordering::Release);
        // Whoever begins either sees that, or has set what is found here.
        let _sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        for stage in self.stages.get().into_iter().flatten().filter_map(std::sync::Weak::upgrade) {
            stage.call_off();
        }
    }

    /// Whether it was called off.
    pub fn was_called_off(&self) -> bool {
        self.called_off.load(Ordering::Acquire)
    }

    /// When the run begins or began, on the machine's monotonic clock; nothing, as long as it is
    /// being prepared.
    pub fn zero(&self) -> Option<Time> {
        self.zero.get().copied()
    }

    /// No job is taken any more; those that have come are done, with what their graphs activate,
    /// and then the run is over (YASMIN Table 1), also where Linux alone runs them. Whether there
    /// is a run that can be told.
    pub fn stop(&self) -> bool {
        let told =
            (0..).map_while(|root| self.stage(root)).map(|stage| stage.cpus[0].mailbox.stop());
        told.count() > 0
    }

    /// Wants a job of a task whose jobs come by themselves, or don't: as soon as the machine has
    /// room and the task allows it. Whether there is a run that was told; how many were refused,
    /// its report says. A root that Linux alone runs takes none: its workers ask nobody, and what
    /// is reserved for them is reserved for the jobs of their loads. Takes no lock.
    pub fn activate(&self, root: usize, task: TaskId) -> bool {
        self.stage(root).is_some_and(|stage| {
            let is_one = (task.0 as usize) < stage.slots.len() && !stage.is_native();
            if is_one {
                stage.cpus[0].mailbox.ask(task, &stage.slots);
            }
            is_one
        })
    }

    /// Battery, mode or mask of a root have become this; of several before the machine looks, the
    /// last. Whether there is a run that was told; a root that Linux alone runs has nothing that it
    /// could decide. Takes no lock.
    pub fn change(&self, root: usize, condition: Condition) -> bool {
        let led = self.stage(root).filter(|stage| !stage.is_native());
        led.map(|stage| stage.cpus[0].mailbox.change(condition)).is_some()
    }

    fn stage(&self, root: usize) -> Option<Arc<Stage>> {
        self.stages.get()?.get(root)?.upgrade()
    }

    /// The run begins at `zero`, and everybody is in it: whoever has called it off has said so
    /// before this, or finds them. One that could not begin is not known, so that another one may
    /// be tried.
    pub(crate) fn begins(&self, stages: &[Arc<Stage>], zero: Time) {
        let _sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        // A second run of one remote is another run: it is not known.
        let _ = self.stages.set(stages.iter().map(Arc::downgrade).collect());
        let _ = self.zero.set(zero);
        if self.was_called_off() {
            for stage in stages {
                stage.call_off();
            }
        }
    }
}
