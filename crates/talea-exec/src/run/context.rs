//! Context of a run: the values that its threads share, and the types of its roots.

use crate::mechanism::Mixed;
use crate::mechanism::audit::Audited;
use crate::options::Options;
use crate::programs::{ProgramControl, ProgramHandle};
use crate::rights::RightsProvider;
use crate::root_shared::RootShared;
use crate::root_state::{RootState, StepHandle};
use crate::run_control::RunControl;
use crate::watchdog::Watchdog;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::ScopedJoinHandle;

/// Everything that the threads of a run borrow.
pub(super) struct RunContext<'s> {
    pub(super) shared_roots: &'s [Arc<RootShared>],
    pub(super) watchdog: &'s Watchdog,
    pub(super) remote: &'s RunControl,
    /// Flag that stops the monitors.
    pub(super) stop: &'s AtomicBool,
    pub(super) options: &'s Options,
    pub(super) programs: &'s ProgramControl,
    pub(super) grantor: Option<&'s dyn RightsProvider>,
}

/// State of a root with its mechanism.
pub(super) type LiveState = RootState<Audited<Mixed<ProgramHandle>>>;
/// Cell of the handle with which workers step their root.
pub(super) type StepHandleCell = Arc<OnceLock<StepHandle<Audited<Mixed<ProgramHandle>>>>>;

/// Waits for a thread, and passes its panic on.
pub(super) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
