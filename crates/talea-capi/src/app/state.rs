//! State of an application behind its handle.

use super::channel::Pipe;
use super::choice::Given;
use super::job::is_inside;
use crate::ffi::{CallError, CallResult};
use crate::layout::TaleaTask;
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use talea_core::mutate;
use talea_runtime::{
    Accelerator, Application, Error, Failure, Report, RunHandle, Running, Server, ServerId, TaskId,
    VersionId,
};

/// Object of a `talea_app *`.
pub struct App {
    declared: Mutex<Declared>,
    /// Handle of the run, written before the first job of the run and after the last one. A reader
    /// that finds the lock taken does not wait.
    run: RwLock<Option<RunHandle>>,
    /// Process that created the application. A child of a fork has none of the application's
    /// threads.
    owner: u32,
}

/// Declarations of an application, with the application's state and last report.
pub(crate) struct Declared {
    state: State,
    pub(crate) tasks: Vec<Known>,
    pub(crate) accelerators: Vec<Accelerator>,
    pub(crate) servers: Vec<Served>,
    /// Channels of the application. The caller has pointers to them.
    pub(crate) channels: Vec<Arc<Pipe>>,
    /// Function that selects versions, to which the engine has a pointer.
    pub(crate) chooser: Option<Box<Given>>,
    /// Context of a selection that another module has set.
    pub(crate) asked: Option<Box<dyn Any + Send>>,
    pub(crate) report: Option<Report>,
}

/// Server, and the CPU of the server's first task, on which the server is placed.
pub(crate) struct Served {
    pub(crate) id: ServerId,
    pub(crate) server: Server,
    pub(crate) core: Option<u32>,
}

impl Declared {
    /// Places the server that a task names on the CPU of the task, unless an earlier task has
    /// placed it.
    pub(crate) fn serve(&mut self, task: &TaleaTask) -> CallResult {
        let at = (task.server as usize).wrapping_sub(1);
        let Some(Served { id, server, core: core @ None }) = self.servers.get_mut(at) else {
            return Ok(());
        };
        *core = Some(task.core);
        let (id, anew) = (*id, server.clone().core(task.core));
        self.stopped()?.replace_server(id, anew);
        Ok(())
    }
}

/// Task with its versions.
pub(crate) struct Known {
    pub(crate) id: TaskId,
    pub(crate) versions: Vec<VersionId>,
}

enum State {
    Stopped(Box<Application>),
    Running(Box<Running>),
    /// Another thread starts or stops the application.
    Between,
}

/// Creates the error for a mistake of the caller.
pub(crate) fn wrong(what: impl Into<String>) -> CallError {
    CallError::Message(libc::EINVAL, what.into())
}

/// Converts an error of the runtime.
pub(crate) fn runtime_error(error: &Error) -> CallError {
    let errno = match error {
        Error::Declared(_) => libc::EINVAL,
        Error::Machine(_) => libc::ENODEV,
        Error::Run(Failure::NoRight(_)) => libc::EPERM,
        Error::Run(Failure::Os(error)) => error.raw_os_error().unwrap_or(libc::EIO),
        Error::Run(_) => libc::EIO,
    };
    CallError::Message(errno, error.to_string())
}

impl Declared {
    /// Returns the declarations of a stopped application, to change them.
    pub(crate) fn stopped(&mut self) -> CallResult<&mut Application> {
        match &mut self.state {
            State::Stopped(app) => Ok(app),
            State::Running(_) | State::Between => {
                Err(CallError::Caller(libc::EBUSY, "the application runs: stop it first"))
            }
        }
    }

    pub(crate) fn task(&self, task: u32) -> CallResult<TaskId> {
        let known = self.tasks.get(task as usize).map(|known| known.id);
        known.ok_or_else(|| {
            wrong(format!("there is no task {task}: {} are declared", self.tasks.len()))
        })
    }

    pub(crate) fn version(&self, task: u32, version: u32) -> CallResult<VersionId> {
        self.task(task)?;
        let versions = &self.tasks[task as usize].versions;
        let known = versions.get(version as usize).copied();
        known.ok_or_else(|| {
            wrong(format!("task {task} has no version {version}: it has {}", versions.len()))
        })
    }
}

impl App {
    pub(crate) fn new(application: Application) -> App {
        let declared = Declared {
            state: State::Stopped(Box::new(application)),
            tasks: Vec::new(),
            accelerators: Vec::new(),
            servers: Vec::new(),
            channels: Vec::new(),
            chooser: None,
            asked: None,
            report: None,
        };
        App { declared: Mutex::new(declared), run: RwLock::new(None), owner: std::process::id() }
    }

    /// Checks that the calling thread may wait for the application. The thread must not run a job,
    /// and its process must not be a child of a fork, which has none of the application's threads.
    pub(crate) fn is_ours(&self) -> CallResult {
        if is_inside() {
            // A stop waits for jobs and choosers, so these must not wait for a thread that
            // declares.
            return Err(CallError::Caller(libc::EDEADLK, "jobs and choosers may not call this"));
        }
        self.is_of_this_process()
    }

    /// Checks that the application belongs to this process, and not to the process from which this
    /// one was forked.
    fn is_of_this_process(&self) -> CallResult {
        if self.owner == std::process::id() {
            return Ok(());
        }
        Err(CallError::Caller(
            libc::ECHILD,
            "the application belongs to the process that this one was forked from",
        ))
    }

    /// Calls `inside` with the declarations.
    pub(crate) fn with<T>(
        &self,
        inside: impl FnOnce(&mut Declared) -> CallResult<T>,
    ) -> CallResult<T> {
        self.is_ours()?;
        inside(&mut self.declared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn is_stopped(&self) -> CallResult {
        self.with(|declared| declared.stopped().map(drop))
    }

    pub(crate) fn start(&self) -> CallResult {
        let app = self.with(|declared| {
            declared.stopped()?;
            match std::mem::replace(&mut declared.state, State::Between) {
                State::Stopped(app) => Ok(app),
                State::Running(_) | State::Between => unreachable!("it was stopped"),
            }
        })?;
        let set_run = |run| *self.run.write().unwrap_or_else(PoisonError::into_inner) = Some(run);
        let (state, answer) = match app.start_with(set_run) {
            Ok(running) => (State::Running(Box::new(running)), Ok(())),
            Err(back) => (
                mutate!("capi-start-back", State::Stopped(Box::new(back.app)), State::Between),
                Err(runtime_error(&back.error)),
            ),
        };
        if answer.is_err() {
            self.clear_run();
        }
        self.with(|declared| {
            declared.state = state;
            answer
        })
    }

    pub(crate) fn stop(&self) -> CallResult<Report> {
        let running =
            self.with(|declared| match std::mem::replace(&mut declared.state, State::Between) {
                State::Running(running) => Ok(running),
                other => {
                    declared.state = other;
                    Err(CallError::Caller(libc::ESRCH, "the application does not run"))
                }
            })?;
        // Not behind the lock: it takes as long as the jobs do.
        let (app, report) = running.stop_keeping();
        self.clear_run();
        self.with(|declared| {
            declared.state = State::Stopped(Box::new(app));
            declared.report = report.as_ref().ok().cloned();
            report.map_err(|error| runtime_error(&error))
        })
    }

    fn clear_run(&self) {
        *self.run.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Calls `action` with the handle of the run. Returns an error if the application does not run.
    /// Does not block, so jobs may call the function.
    pub(crate) fn with_run(&self, action: impl FnOnce(&RunHandle) -> bool) -> CallResult {
        mutate!("capi-app-forked", {
            // In a child of fork the call would reach a copy of the run without threads.
            self.is_of_this_process()?;
        });

        let is_done = self.run.try_read().is_ok_and(|run| run.as_ref().is_some_and(action));
        if is_done {
            Ok(())
        } else {
            Err(CallError::Caller(libc::ESRCH, "the application does not run"))
        }
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let declared = self.declared.get_mut().unwrap_or_else(PoisonError::into_inner);
        // First of all, because the run uses everything else.
        declared.state = State::Between;
    }
}
