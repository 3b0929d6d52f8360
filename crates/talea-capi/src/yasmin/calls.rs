//! Functions of `yasmin.h` that declare tasks, versions and accelerators.

use super::layout::{Battery, Function, Select, YasConfiguration, YasData, YasProperties};
use super::state::{Task, Yasmin, declare, room, set};
use crate::app::{Call, text, wrong};
use crate::ffi::{CallError, CallResult, given, protect, read};
use crate::layout::{TaleaTask, TaleaTaskVersion};
use crate::message::{self, call};
use libc::{c_char, c_void, size_t};

const INVALID: i32 = -1;

/// Returns the number, or [`INVALID`], which is the paper's result for an error.
fn number(inside: impl FnOnce() -> CallResult<u32>) -> i32 {
    let given = protect(inside).and_then(|number| {
        i32::try_from(number).map_err(|_| CallError::Caller(libc::ERANGE, "there are too many"))
    });
    given.unwrap_or_else(|error| {
        message::remember(error);
        INVALID
    })
}

/// Converts the program's description of a task.
///
/// # Safety
/// `data` is NULL or points to `size` bytes. The name in `data` is NULL or ends with a zero.
unsafe fn described(yasmin: &Yasmin, data: *const YasData, size: size_t) -> CallResult<Task> {
    if size != size_of::<YasData>() {
        return Err(CallError::Caller(
            libc::EINVAL,
            "TData has another size than this library knows",
        ));
    }
    // SAFETY: the caller's promise.
    let data = unsafe { given(data, "the TData is NULL") }?;
    let mut name = [0; 32];
    if !data.name.is_null() {
        // SAFETY: the caller's promise.
        let text = unsafe { text(data.name) }?;
        if text.len() >= name.len() {
            return Err(wrong(format!(
                "the name {text:?} has {} bytes: 31 are possible",
                text.len()
            )));
        }
        name[..text.len()].copy_from_slice(text.as_bytes());
    }
    if yasmin.limits.mapping == 2 && u32::from(data.core) >= yasmin.limits.threads {
        let (core, threads) = (data.core, yasmin.limits.threads);
        return Err(wrong(format!("virt_core_id is {core}: THREADS_SIZE is {threads}")));
    }
    let base = TaleaTask {
        size: 0,
        kind: 0,
        period_ns: 0,
        deadline_ns: 0,
        offset_ns: 0,
        priority: data.priority.into(),
        core: data.core.into(),
        backlog: 0,
        server: 0,
        name,
        cores: 0,
    };
    Ok(Task {
        base,
        period_ns: yasmin.ns("period", data.period)?,
        deadline_ns: yasmin.ns("deadline", data.deadline)?,
        offset_ns: yasmin.ns("release_offset", data.offset)?,
        is_sporadic: data.sporadic != 0,
        is_node: false,
        versions: 0,
        battery: None,
        select: None,
    })
}

impl Yasmin {
    /// Checks that the configured number of tasks of this kind leaves room for the task.
    fn room_for(&self, task: &Task, itself: Option<usize>) -> CallResult {
        let others = self.tasks.iter().enumerate().filter(|&(at, _)| Some(at) != itself);
        let like = others.filter(|(_, known)| known.is_periodic() == task.is_periodic()).count();
        if task.is_periodic() {
            room("task with a period", "PERIODIC_TASK_SIZE", like, self.limits.periodic_tasks)
        } else {
            room(
                "task without a period",
                "NONPERIODIC_TASK_SIZE",
                like,
                self.limits.nonperiodic_tasks,
            )
        }
    }

    fn add(&mut self, task: Task) -> CallResult<u32> {
        // What it is, is said when it starts.
        const ACTIVATED: u32 = 2;
        self.room_for(&task, None)?;
        let id = self.app.task(&TaleaTask { kind: ACTIVATED, deadline_ns: 1, ..task.base })?;
        self.tasks.push(task);
        Ok(id)
    }

    fn alter(&mut self, id: i32, anew: Task) -> CallResult {
        self.app.is_stopped()?;
        self.task(id)?;
        self.room_for(&anew, usize::try_from(id).ok())?;
        let known = self.task(id)?;
        let Task { base, period_ns, deadline_ns, offset_ns, is_sporadic, .. } = anew;
        *known = Task { base, period_ns, deadline_ns, offset_ns, is_sporadic, ..*known };
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn yas_init_with(configuration: *const YasConfiguration) {
    call(|| {
        // SAFETY: as the header says.
        let configuration = unsafe { read(configuration) }?;
        super::live::end()?;
        set(Yasmin::new(configuration))
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn yas_task_declare(data: *const YasData, size: size_t) -> i32 {
    number(|| {
        declare(|yasmin| {
            // SAFETY: as the header says.
            let task = unsafe { described(yasmin, data, size) }?;
            yasmin.add(task)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn yas_task_change_to(task: i32, data: *const YasData, size: size_t) {
    call(|| {
        declare(|yasmin| {
            // SAFETY: as the header says.
            let anew = unsafe { described(yasmin, data, size) }?;
            yasmin.alter(task, anew)
        })
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn yas_version_declare(
    task: i32,
    function: Option<Function>,
    argument: *mut c_void,
    properties: *const YasProperties,
    battery: Option<Battery>,
    select: Option<Select>,
) -> i32 {
    number(|| {
        declare(|yasmin| {
            // SAFETY: as the header says.
            let properties = unsafe { read(properties) }?;
            let function =
                function.ok_or(CallError::Caller(libc::EINVAL, "the function is NULL"))?;
            let (most, time_ns) = (yasmin.limits.versions, yasmin.ns("time", properties.time)?);
            let versions = yasmin.task(task)?.versions;
            room("version", "VERSION_MAX_SIZE", versions as usize, most)?;
            let version = TaleaTaskVersion {
                size: 0,
                wait: 0,
                wait_ns: 0,
                energy: properties.energy,
                time_ns,
                modes: properties.modes,
                needs: properties.permissions,
                name: [0; 32],
            };
            let id = yasmin.app.version(task as u32, &version, Call { function, argument })?;
            let task = yasmin.task(task)?;
            task.versions += 1;
            task.battery = task.battery.or(battery);
            task.select = task.select.or(select);
            Ok(id)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn yas_hwaccel_decl(name: *const c_char) -> i32 {
    number(|| {
        declare(|yasmin| {
            // SAFETY: as the header says.
            let name = unsafe { text(name) }?;
            room(
                "accelerator",
                "HWACCEL_SIZE",
                yasmin.accelerators as usize,
                yasmin.limits.accelerators,
            )?;
            let id = yasmin.app.accelerator(name)?;
            yasmin.accelerators += 1;
            Ok(id)
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn yas_hwaccel_use(task: i32, version: i32, accelerator: i32) {
    call(|| {
        declare(|yasmin| {
            yasmin.task(task)?;
            let (version, accelerator) = (version as u32, accelerator as u32);
            yasmin.app.uses(task as u32, version, accelerator)
        })
    });
}
