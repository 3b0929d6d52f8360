//! Functions of `talea.h` that declare an application.

use super::choice::{Choose, Given};
use super::job::Call;
use super::state::{App, Known, Served, runtime_error, wrong};
use super::{Pipe, convert};
use crate::ffi::{CallError, CallResult, given, place, read};
use crate::layout::{TaleaAppConfig, TaleaTask, TaleaTaskVersion};
use crate::message::call;
use libc::{c_char, c_int, c_void, size_t};
use std::any::Any;
use std::ffi::CStr;
use std::sync::Arc;
use talea_runtime::{Application, Config, Selection, Server, VersionId};

impl App {
    pub(crate) fn configure(&self, config: &TaleaAppConfig) -> CallResult {
        self.with(|declared| {
            let user = declared.chooser.as_ref().map(|given| given.selection());
            let config = convert::config(config, user)?;
            *declared.stopped()?.config() = config;
            Ok(())
        })
    }

    pub(crate) fn task(&self, given: &TaleaTask) -> CallResult<u32> {
        self.with(|declared| {
            let number = declared.tasks.len();
            let task = convert::task(given, number, &declared.servers)?;
            let id = declared.stopped()?.task(task);
            declared.serve(given)?;
            declared.tasks.push(Known { id, versions: Vec::new() });
            Ok(number as u32)
        })
    }

    pub(crate) fn replace_task(&self, number: u32, given: &TaleaTask) -> CallResult {
        self.with(|declared| {
            let id = declared.task(number)?;
            let task = convert::task(given, number as usize, &declared.servers)?;
            declared.stopped()?.replace_task(id, task);
            declared.serve(given)
        })
    }

    pub(crate) fn version(
        &self,
        task: u32,
        version: &TaleaTaskVersion,
        what: Call,
    ) -> CallResult<u32> {
        self.with(|declared| {
            let id = declared.task(task)?;
            let number = declared.tasks[task as usize].versions.len();
            let version = convert::version(version, number)?;
            let version: VersionId =
                declared.stopped()?.version(id, version, move |job| what.run(task, job));
            declared.tasks[task as usize].versions.push(version);
            Ok(number as u32)
        })
    }

    pub(crate) fn accelerator(&self, name: &str) -> CallResult<u32> {
        self.with(|declared| {
            let accelerator = declared.stopped()?.accelerator(name);
            declared.accelerators.push(accelerator);
            Ok(declared.accelerators.len() as u32 - 1)
        })
    }

    pub(crate) fn uses(&self, task: u32, version: u32, accelerator: u32) -> CallResult {
        self.with(|declared| {
            let version = declared.version(task, version)?;
            let known = declared.accelerators.get(accelerator as usize).copied();
            let known =
                known.ok_or_else(|| wrong(format!("there is no accelerator {accelerator}")))?;
            declared.stopped()?.uses(version, known);
            Ok(())
        })
    }

    pub(crate) fn server(&self, server: Server) -> CallResult<u32> {
        self.with(|declared| {
            let id = declared.stopped()?.server(server.clone());
            declared.servers.push(Served { id, server, core: None });
            Ok(declared.servers.len() as u32 - 1)
        })
    }

    pub(crate) fn set_table(&self, table: Option<&str>) -> CallResult {
        self.with(|declared| {
            let app = declared.stopped()?;
            let table = table
                .map(|text| app.read_table(text))
                .transpose()
                .map_err(|error| runtime_error(&error))?;
            app.set_table(table);
            Ok(())
        })
    }

    pub(crate) fn describe(&self) -> CallResult<String> {
        self.with(|declared| declared.stopped()?.describe().map_err(|error| runtime_error(&error)))
    }

    pub(crate) fn edge(&self, from: u32, to: u32) -> CallResult {
        self.with(|declared| {
            let (from, to) = (declared.task(from)?, declared.task(to)?);
            declared.stopped()?.edge(from, to);
            Ok(())
        })
    }

    /// Connects two tasks by a channel for elements of `item` bytes. The channel lives as long as
    /// the application.
    pub(crate) fn channel(
        &self,
        ends: (u32, u32),
        item: usize,
        (length, tokens): (u32, u32),
    ) -> CallResult<*const Pipe> {
        self.with(|declared| {
            let tasks = (declared.task(ends.0)?, declared.task(ends.1)?);
            if item == 0 || length == 0 {
                return Err(wrong(
                    "a channel has room for something: talea_app_edge is for no data",
                ));
            }
            let app = declared.stopped()?;
            let pipe = Pipe::new(app, tasks, (length, tokens.max(1)), item).ok_or_else(|| {
                CallError::Message(
                    libc::ENOMEM,
                    format!("{length} elements of {item} bytes: at most 1048576, and 1 GiB"),
                )
            })?;
            let pipe = Arc::new(pipe);
            declared.channels.push(Arc::clone(&pipe));
            Ok(Arc::as_ptr(&pipe))
        })
    }
}

/// Returns a text of the caller.
///
/// # Safety
/// `text` is NULL or ends with a zero.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> CallResult<&'a str> {
    if text.is_null() {
        return Err(wrong("name is NULL"));
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| wrong("name is no text"))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_new(config: *const TaleaAppConfig, app: *mut *mut App) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let (config, app) = unsafe { (read(config)?, place(app, "app is NULL")?) };
        *app = std::ptr::null_mut();
        let config = convert::config(&config, None)?;
        *app = Box::into_raw(Box::new(App::new(Application::new(config))));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_free(app: *mut App) -> c_int {
    call(|| {
        if app.is_null() {
            return Ok(());
        }
        // In a child of fork the application stays shared, so it is only borrowed here.
        // SAFETY: `talea_app_new` returned the pointer.
        unsafe { &*app }.is_ours()?;
        // SAFETY: `talea_app_new` returned the pointer, and by the header no thread uses it any
        // more.
        drop(unsafe { Box::from_raw(app) });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_configure(
    app: *mut App,
    config: *const TaleaAppConfig,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let (app, config) = unsafe { (given(app, "app is NULL")?, read(config)?) };
        app.configure(&config)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_choose(
    app: *mut App,
    choose: Option<Choose>,
    data: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let app = unsafe { given(app, "app is NULL") }?;
        let choose = choose.ok_or(CallError::Caller(libc::EINVAL, "choose is NULL"))?;
        app.choose(Given { choose, data })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_task(
    app: *mut App,
    task: *const TaleaTask,
    id: *mut u32,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let (app, task, id) =
            unsafe { (given(app, "app is NULL")?, read(task)?, place(id, "id is NULL")?) };
        *id = app.task(&task)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_replace_task(
    app: *mut App,
    id: u32,
    task: *const TaleaTask,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let (app, task) = unsafe { (given(app, "app is NULL")?, read(task)?) };
        app.replace_task(id, &task)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_version(
    app: *mut App,
    task: u32,
    version: *const TaleaTaskVersion,
    function: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    argument: *mut c_void,
    id: *mut u32,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let (app, version) = unsafe { (given(app, "app is NULL")?, read(version)?) };
        let function = function.ok_or(CallError::Caller(libc::EINVAL, "function is NULL"))?;
        let number = app.version(task, &version, Call { function, argument })?;
        // SAFETY: NULL or room for a number.
        if let Some(id) = unsafe { id.as_mut() } {
            *id = number;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_accelerator(
    app: *mut App,
    name: *const c_char,
    id: *mut u32,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let (app, name, id) =
            unsafe { (given(app, "app is NULL")?, text(name)?, place(id, "id is NULL")?) };
        *id = app.accelerator(name)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_uses(
    app: *mut App,
    task: u32,
    version: u32,
    accelerator: u32,
) -> c_int {
    // SAFETY: as the header says.
    call(|| unsafe { given(app, "app is NULL") }?.uses(task, version, accelerator))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_server(
    app: *mut App,
    name: *const c_char,
    kind: u32,
    budget_ns: u64,
    period_ns: u64,
    id: *mut u32,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let (app, name, id) =
            unsafe { (given(app, "app is NULL")?, text(name)?, place(id, "id is NULL")?) };
        *id = app.server(convert::server(name, kind, budget_ns, period_ns)?)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_set_table(app: *mut App, table: *const c_char) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let app = unsafe { given(app, "app is NULL") }?;
        // SAFETY: as the header says, it is NULL or text with a zero.
        let table = if table.is_null() { None } else { Some(unsafe { text(table) }?) };
        app.set_table(table)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_describe(
    app: *mut App,
    text: *mut c_char,
    room: size_t,
    length: *mut size_t,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let described = unsafe { given(app, "app is NULL") }?.describe()?;
        if !length.is_null() {
            // SAFETY: as the header says, it names room for a size.
            unsafe { length.write_unaligned(described.len()) };
        }
        if room <= described.len() {
            return Err(CallError::Message(
                libc::ENOSPC,
                format!("the text is {} bytes long, and there is room for {room}", described.len()),
            ));
        }
        if text.is_null() {
            return Err(CallError::Caller(libc::EINVAL, "text is NULL"));
        }
        // SAFETY: by the header, it points to `room` bytes of the caller alone: enough for the
        // text and a zero, by the test above.
        unsafe {
            text.cast::<u8>().copy_from_nonoverlapping(described.as_ptr(), described.len());
            text.cast::<u8>().add(described.len()).write(0);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_edge(app: *mut App, from: u32, to: u32) -> c_int {
    // SAFETY: as the header says.
    call(|| unsafe { given(app, "app is NULL") }?.edge(from, to))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_channel(
    app: *mut App,
    from: u32,
    to: u32,
    item_size: size_t,
    length: u32,
    tokens: u32,
    channel: *mut *mut Pipe,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let (app, channel) =
            unsafe { (given(app, "app is NULL")?, place(channel, "channel is NULL")?) };
        *channel = app.channel((from, to), item_size, (length, tokens))?.cast_mut();
        Ok(())
    })
}

/// Creates an application with the default configuration.
impl Default for App {
    fn default() -> App {
        App::new(Application::new(Config::default()))
    }
}

impl App {
    /// Sets the version selection. Keeps `asked` for as long as an engine can call it.
    pub(crate) fn select<T: Any + Send>(&self, selection: Selection, asked: Box<T>) -> CallResult {
        self.with(|declared| {
            declared.stopped()?.config().selection = selection;
            // No engine has a pointer to the previous one: the application is stopped.
            declared.asked = Some(asked);
            Ok(())
        })
    }

    /// Sets the function that selects versions.
    pub(crate) fn choose(&self, given: Given) -> CallResult {
        self.with(|declared| {
            let given = Box::new(given);
            let selection = given.selection();
            declared.stopped()?.config().selection = selection;
            // No engine has a pointer to the previous one: the application is stopped.
            declared.chooser = Some(given);
            Ok(())
        })
    }
}
