//! Declarations since `init`.

use super::layout::{Battery, Select, YasChannel, YasConfiguration};
use super::select::{Asked, Table};
use crate::app::{App, is_inside, wrong};
use crate::ffi::{CallError, CallResult};
use crate::layout::{TaleaAppConfig, TaleaTask};
use crate::message;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use talea_core::engine::MAX_RUN;
use talea_core::mutate;

/// Task as its `TData` describes it.
#[derive(Clone, Copy)]
pub(crate) struct Task {
    /// Name, priority and worker of the task. `as_talea` adds the rest.
    pub(crate) base: TaleaTask,
    pub(crate) period_ns: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) offset_ns: u64,
    pub(crate) is_sporadic: bool,
    /// Whether a channel leads to the task.
    pub(crate) is_node: bool,
    pub(crate) versions: u32,
    pub(crate) battery: Option<Battery>,
    pub(crate) select: Option<Select>,
}

/// Channel of the program that is connected.
pub(crate) struct Connected(pub(crate) *const YasChannel);

// SAFETY: the header says that it lives as long as the application; only its atomic field is
// written.
unsafe impl Send for Connected {}

/// Declarations since `init`.
pub(crate) struct Yasmin {
    pub(crate) app: Arc<App>,
    pub(crate) limits: YasConfiguration,
    pub(crate) tasks: Vec<Task>,
    pub(crate) accelerators: u32,
    pub(crate) channels: Vec<Connected>,
    /// Message of the first refusal.
    pub(crate) refused: Option<String>,
}

static DECLARED: Mutex<Option<Yasmin>> = Mutex::new(None);
/// Application, in a lock of its own for jobs.
static APP: RwLock<Option<Arc<App>>> = RwLock::new(None);

/// Locks the declarations. Returns an error in a job and in a function that selects a version.
pub(crate) fn declared() -> CallResult<MutexGuard<'static, Option<Yasmin>>> {
    if is_inside() {
        return Err(CallError::Caller(libc::EDEADLK, "jobs and choosers may not call this"));
    }
    Ok(DECLARED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Adds to the declarations. Keeps the first refusal for `start`.
pub(crate) fn declare<T>(add: impl FnOnce(&mut Yasmin) -> CallResult<T>) -> CallResult<T> {
    let mut declared = declared()?;
    let yasmin =
        declared.as_mut().ok_or(CallError::Caller(libc::EINVAL, "init() was not called"))?;
    let added = add(yasmin);
    if let Err(error) = &added
        && yasmin.refused.is_none()
    {
        yasmin.refused = Some(message::message_of(error));
    }
    added
}

/// Returns the application, unless another thread creates or frees it. Does not block.
pub(crate) fn app() -> Option<Arc<App>> {
    APP.try_read().ok().and_then(|app| app.clone())
}

/// Checks that there is room for one more `what` beside `number` declared ones, of at most `most`.
pub(crate) fn room(what: &str, macro_name: &str, number: usize, most: u32) -> CallResult {
    if mutate!("yasmin-room", number < most as usize, number <= most as usize) {
        return Ok(());
    }
    Err(wrong(format!("one {what} too many: {macro_name} is {most}")))
}

/// Forgets the declarations. Called when the application is stopped.
pub(crate) fn forget() -> CallResult {
    let gone = declared()?.take();
    *APP.write().unwrap_or_else(PoisonError::into_inner) = None;
    for Connected(channel) in gone.iter().flat_map(|yasmin| &yasmin.channels) {
        // SAFETY: it lives as long as the application, says the header.
        unsafe { &**channel }.connected.store(std::ptr::null_mut(), Ordering::Release);
    }
    Ok(())
}

/// Replaces the declarations.
pub(crate) fn set(yasmin: Yasmin) -> CallResult {
    let mut declared = declared()?;
    *APP.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&yasmin.app));
    *declared = Some(yasmin);
    Ok(())
}

impl Yasmin {
    /// Creates the declarations after `init`. Like every refusal, that of an invalid configuration
    /// is kept for `start`.
    pub(crate) fn new(limits: YasConfiguration) -> Yasmin {
        let (tasks, channels, accelerators) = Default::default();
        let app = Arc::new(App::default());
        let mut yasmin = Yasmin { app, limits, tasks, accelerators, channels, refused: None };
        if let Err(error) = yasmin.configure() {
            yasmin.refused = Some(message::message_of(&error));
        }
        yasmin
    }

    fn configure(&mut self) -> CallResult {
        let limits = &self.limits;
        if limits.threads == 0 || limits.time_unit_ns == 0 {
            return Err(wrong("THREADS_SIZE and YAS_TIME_UNIT_NS are at least 1"));
        }
        let known = |value: u32, most: u32| (1..=most).contains(&value);
        if !(known(limits.mapping, 2)
            && known(limits.priorities, 4)
            && known(limits.selection, 6)
            && known(limits.preemption, 2))
        {
            return Err(wrong("the configuration has a constant that is not known"));
        }
        let mut cpus = [0; 16];
        cpus[0] = limits.worker_cpus;
        self.app.configure(&TaleaAppConfig {
            size: 0,
            // 2: not preemptive.
            flags: limits.preemption - 1,
            mapping: limits.mapping - 1,
            priorities: limits.priorities - 1,
            selection: super::select::of_talea(limits.selection),
            weight: limits.trade_off_weight,
            workers: limits.threads,
            rights: 0,
            cpus,
            daemon_priority: 0,
            zero: 0,
            daemon_plugin: [0; 32],
            spin_ns: limits.spin_ns,
        })
    }

    /// Converts `units` of the program's time unit to nanoseconds. Returns an error that names
    /// `what` if the result exceeds [`MAX_RUN`].
    pub(crate) fn ns(&self, what: &str, units: u64) -> CallResult<u64> {
        let ns = units.checked_mul(self.limits.time_unit_ns).filter(|&ns| ns <= MAX_RUN.as_ns());
        ns.ok_or_else(|| {
            wrong(format!("{what} is {units} units of {} ns: too long", self.limits.time_unit_ns))
        })
    }

    pub(crate) fn task(&mut self, id: i32) -> CallResult<&mut Task> {
        let count = self.tasks.len();
        let known = usize::try_from(id).ok().and_then(|id| self.tasks.get_mut(id));
        known.ok_or_else(|| wrong(format!("there is no task {id}: {count} are declared")))
    }

    /// Passes the kinds of the tasks and the version selection to the application.
    pub(crate) fn prepare(&mut self) -> CallResult {
        if let Some(refused) = mutate!("yasmin-refused", self.refused.as_ref(), None) {
            return Err(CallError::Message(libc::EINVAL, refused.clone()));
        }
        for (number, task) in self.tasks.iter().enumerate() {
            self.app.replace_task(number as u32, &task.as_talea())?;
        }
        let asked =
            self.tasks.iter().map(|task| Asked { battery: task.battery, select: task.select });
        let table = Box::new(Table(asked.collect()));
        match table.selection(self.limits.selection) {
            // The application's own: it may be running still when what is declared is forgotten.
            Some(selection) => self.app.select(selection, table),
            None => Ok(()),
        }
    }
}

impl Task {
    /// Converts the task to the structure of `talea.h`.
    fn as_talea(&self) -> TaleaTask {
        const PERIODIC: u32 = 0;
        const SPORADIC: u32 = 1;
        const ACTIVATED: u32 = 2;
        const NODE: u32 = 3;
        let task = TaleaTask { deadline_ns: self.deadline_ns, ..self.base };
        match (self.is_node, self.period_ns) {
            // One with a period, too, is refused.
            (true, period_ns) => mutate!(
                "yasmin-node-period",
                TaleaTask { kind: NODE, period_ns, ..task },
                TaleaTask { kind: NODE, period_ns: period_ns & 0, ..task }
            ),
            (false, 0) if task.deadline_ns == 0 => {
                TaleaTask { kind: ACTIVATED, deadline_ns: MAX_RUN.as_ns(), ..task }
            }
            (false, 0) => TaleaTask { kind: ACTIVATED, ..task },
            (false, period_ns) if self.is_sporadic => {
                TaleaTask { kind: SPORADIC, period_ns, ..task }
            }
            (false, period_ns) => {
                TaleaTask { kind: PERIODIC, period_ns, offset_ns: self.offset_ns, ..task }
            }
        }
    }

    /// Whether the task counts towards `PERIODIC_TASK_SIZE`.
    pub(crate) fn is_periodic(&self) -> bool {
        self.period_ns > 0 && !self.is_sporadic
    }
}
