//! Programs of the deployment: start, adoption, observation and end.
//!
//! | state of a program | event | next state |
//! | --- | --- | --- |
//! | – | start | *running*, or – if the kernel refuses |
//! | – | adoption of an instance whose first process lives | *running* |
//! | – | adoption of an instance whose first process is gone | *ended*, exit unknown |
//! | *running* | its first process has ended | *ended*; the rest of its group is killed |
//! | *ended* | its exit is known | observed as exited; forgotten when its group is empty |
//! | *ended* | its exit is unknown | not observed; forgotten when its group is empty |
//!
//! Invariants.
//!
//! 1. The file of an instance exists before its group, and its group before its first process. The
//!    file is removed after the group. So a later driver finds every process.
//! 2. A group that a driver removes was empty, and no process can enter it afterwards.
//! 3. A start sets the attributes of the first thread after the exec: the start of a program does
//!    not depend on its mechanism.

use crate::attributes;
use crate::failure::Failure;
use crate::log::log;
use crate::store::{read, write};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;
use talea_core::{Attr, mutate};
use talea_deploy::input::{Errno, Exit, Program, StopSignal};
use talea_deploy::text::Instance;
use talea_deploy::{Command, ProcessId};
use talea_os::cgroup::program_group::{self, ProgramGroup};
use talea_os::process_handle::ProcessHandle;
use talea_os::{Tid, clock, launch, proc, users};

/// Name of the group above the groups of programs.
const GROUP: &str = "talea-deploy";
/// Time after which a start is given up: the kernel waits in the exec for the file system of the
/// program, and for a lease that its owner has taken.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of attempts to remove the group of an interrupted start, a millisecond apart.
const REMOVE_ATTEMPTS: u32 = 1_000;

/// Programs of one driver.
#[derive(Debug)]
pub(crate) struct Programs {
    /// Directory of the files of instances.
    directory: PathBuf,
    /// Group above the groups of new programs.
    group: PathBuf,
    /// Address of the socket for readiness.
    notify: PathBuf,
    boot: String,
    /// `by_name[name]`: program whose file has this name.
    by_name: BTreeMap<String, OneProgram>,
}

#[derive(Debug)]
struct OneProgram {
    instance: Instance,
    group: ProgramGroup,
    process: ProcessId,
    state: State,
}

#[derive(Debug)]
enum State {
    Running {
        handle: ProcessHandle,
        /// The process as a child of this one; `None` if the program was adopted.
        child: Option<Child>,
    },
    Ended(Option<Exit>),
}

/// Meaning of a report of readiness.
pub(crate) enum Ready {
    /// The program of this task is ready from now on.
    Now(String),
    /// The program was ready before.
    Before,
    /// The sender is no process of a program.
    Foreign,
}

impl Programs {
    /// Adopts the programs whose instances are below `runtime`.
    pub(crate) fn adopt(runtime: &Path, notify: &Path, boot: &str) -> Result<Programs, Failure> {
        let base = program_group::base().map_err(|error| {
            let remedy =
                "mount -t cgroup2 none /sys/fs/cgroup: each program has a group of its own";
            Failure::new(format!("control groups: {error}"), remedy)
        })?;
        let mut programs = Programs {
            directory: runtime.join("programs"),
            group: base.join(GROUP),
            notify: notify.to_owned(),
            boot: boot.to_owned(),
            by_name: BTreeMap::new(),
        };
        let os = |error: io::Error| {
            Failure::new(format!("{}: {error}", programs.directory.display()), "look at its owner")
        };
        let entries = std::fs::read_dir(&programs.directory).map_err(os)?;
        let names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        for name in names {
            let path = programs.directory.join(&name);
            if Path::new(&name).extension().is_some() {
                // A write that was interrupted.
                drop(std::fs::remove_file(path));
                continue;
            }
            let Some(text) = read(&path)? else { continue };
            let instance = Instance::from_text(&text).map_err(|why| {
                let remedy = "end its program by hand (the file names its group), and remove it";
                Failure::new(format!("{}: {why}", path.display()), remedy)
            })?;
            if let Some(program) = programs.adopt_one(&name, instance) {
                programs.by_name.insert(name, program);
            }
        }
        Ok(programs)
    }

    /// Adopts one program. Returns `None`, and removes its file, if the program never started.
    fn adopt_one(&self, name: &str, instance: Instance) -> Option<OneProgram> {
        let group = ProgramGroup::at(Path::new(&instance.group));
        if instance.boot != self.boot {
            self.remove_file(name);
            return None;
        }
        let (process, handle) = if let Some(id) = instance.process {
            (id, open(id))
        } else {
            // The driver ended while it started the program.
            let handle = self.find_started(name, &group)?;
            (id_of(&handle), Some(handle))
        };
        let state = match handle {
            Some(handle) => State::Running { handle, child: None },
            None => State::Ended(None),
        };
        let instance = Instance { process: Some(process), ..instance };
        self.write(name, &instance);
        Some(OneProgram { instance, group, process, state })
    }

    /// Finds the first process of an interrupted start. Returns `None`, and removes
    /// the file, if no process has entered the group.
    fn find_started(&self, name: &str, group: &ProgramGroup) -> Option<ProcessHandle> {
        for _ in 0..REMOVE_ATTEMPTS {
            if let Some(handle) = first_process(group) {
                return Some(handle);
            }
            // A process that enters the group now finds it removed.
            if group.remove().is_ok() {
                self.remove_file(name);
                return None;
            }
            // The process is between its entry and its visibility, or between exit and its end.
            std::thread::sleep(Duration::from_millis(1));
        }
        log(&format!("{} cannot be removed; the next start tries again", group.path().display()));
        None
    }

    /// Returns the running programs that were found.
    pub(crate) fn adopted(&self) -> impl Iterator<Item = (&str, ProcessId)> {
        self.by_name.values().map(|program| (program.instance.task.as_str(), program.process))
    }

    /// Returns the pidfds of the running programs, each with the name of its file.
    pub(crate) fn watched(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.by_name.iter().filter_map(|(name, program)| match &program.state {
            State::Running { handle, .. } => Some((name.as_str(), handle.as_fd())),
            State::Ended(_) => None,
        })
    }

    /// Starts a program.
    pub(crate) fn start(
        &mut self,
        task: &str,
        command: &Command,
        attr: &Attr,
    ) -> Result<(), Errno> {
        self.try_start(task, command, attr).map_err(|error| {
            log(&format!("{task}: {} was not started: {error}", command.words.join(" ")));
            let number = error.raw_os_error().or(match error.kind() {
                io::ErrorKind::NotFound => Some(rustix::io::Errno::NOENT.raw_os_error()),
                _ => None,
            });
            Errno(number.unwrap_or(rustix::io::Errno::INVAL.raw_os_error()))
        })
    }

    fn try_start(&mut self, task: &str, command: &Command, attr: &Attr) -> io::Result<()> {
        let not_found = |what: String| io::Error::new(io::ErrorKind::NotFound, what);
        let account = match &command.user {
            Some(user) => {
                users::account(user)?.ok_or_else(|| not_found(format!("no account {user}")))?
            }
            None => users::account("root")?.ok_or_else(|| not_found("no account root".into()))?,
        };
        let program = launch::Program::find(&command.words)?.run_as(Some(account));
        // No other program of this boot has had the name.
        let name = format!("{}-{}", clock::now().as_ns(), std::process::id());
        let path = self.group.join(&name);
        let mut instance = Instance {
            boot: self.boot.clone(),
            task: task.to_owned(),
            command: command.clone(),
            group: path.display().to_string(),
            process: None,
            is_ready: false,
        };
        let file = self.directory.join(&name);
        write(&file, &instance.to_text()).map_err(io::Error::other)?;
        let started = ProgramGroup::create(&path).and_then(|group| {
            let variables = [("NOTIFY_SOCKET", self.notify.as_os_str())];
            let variables: &[(&str, &OsStr)] = &variables;
            let child = start_in_time(&group, || program.start_detached(&group, task, variables))?;
            Ok((group, child))
        });
        let (group, child) = started.inspect_err(|_| {
            let _ = ProgramGroup::at(&path).remove();
            drop(std::fs::remove_file(&file));
            self.remove_empty_group();
        })?;
        let opened = Tid::new(child.id() as i32)
            .ok_or_else(|| io::Error::other("no process number"))
            .and_then(ProcessHandle::open);
        let handle = match opened {
            Ok(handle) => handle,
            Err(error) => {
                let mut child = child;
                let _ = group.kill();
                let _ = child.wait();
                let _ = group.remove();
                self.remove_file(&name);
                return Err(error);
            }
        };
        let process = id_of(&handle);
        // An error comes back by the next inspection, which sets the attributes again.
        let _ = attributes::set_all(handle.pid(), attr);
        instance.process = Some(process);
        self.write(&name, &instance);
        let state = State::Running { handle, child: Some(child) };
        self.by_name.insert(name, OneProgram { instance, group, process, state });
        Ok(())
    }

    /// Observes all programs. The second result is the tasks whose ended programs have processes
    /// left, for example in a system call that no signal ends.
    pub(crate) fn observe(&mut self) -> (Vec<Program>, Vec<String>) {
        let (mut observed, mut occupied) = (Vec::new(), Vec::new());
        let names: Vec<String> = self.by_name.keys().cloned().collect();
        for name in names {
            let Some(program) = self.by_name.get_mut(&name) else { continue };
            program.note_end();
            let is_ended = matches!(program.state, State::Ended(_));
            let is_occupied = is_ended && program.is_populated();
            if is_occupied {
                occupied.push(program.instance.task.clone());
            }
            let (exit, threads) = match &program.state {
                State::Running { .. } => (None, attributes::threads(&program.group)),
                State::Ended(Some(exit)) => (Some(*exit), Vec::new()),
                State::Ended(None) if is_occupied => continue,
                State::Ended(None) => {
                    self.forget(program_id(&self.by_name, &name));
                    continue;
                }
            };
            observed.push(Program {
                process: program.process,
                task: program.instance.task.clone(),
                command: program.instance.command.clone(),
                exit,
                is_ready: program.instance.is_ready,
                threads,
            });
        }
        (observed, occupied)
    }

    /// Stops a program.
    pub(crate) fn stop(&mut self, process: ProcessId, signal: StopSignal) {
        let Some(program) = self.of(process) else { return };
        let stopped = match (signal, &program.state) {
            (StopSignal::Terminate, State::Running { handle, .. }) => {
                handle.signal(rustix::process::Signal::TERM.as_raw())
            }
            _ => program.group.kill(),
        };
        if let Err(error) = stopped
            && program.is_populated()
        {
            log(&format!(
                "{}: process {} was not stopped: {error}",
                program.instance.task, process.pid
            ));
        }
    }

    /// Forgets an ended program: removes its group and its file.
    pub(crate) fn forget(&mut self, process: ProcessId) {
        let found = self.by_name.iter().find(|(_, program)| program.process == process);
        let Some((name, program)) = found else { return };
        let is_ended = matches!(program.state, State::Ended(_));
        // Otherwise the next observation has it again, and the machine forgets it again.
        if is_ended && program.group.remove().is_ok() {
            let name = name.clone();
            self.remove_file(&name);
            self.by_name.remove(&name);
            self.remove_empty_group();
        }
    }

    /// Notes that the process `sender` has reported that its program is ready.
    pub(crate) fn note_ready(&mut self, sender: Tid) -> Ready {
        let Ok(group) = program_group::of_process(sender) else { return Ready::Foreign };
        let is_its = |program: &OneProgram| {
            mutate!("deployd-ready-sender", group.starts_with(program.group.path()), true)
        };
        let found = self.by_name.iter_mut().find(|(_, program)| is_its(program));
        let Some((name, program)) = found else { return Ready::Foreign };
        if std::mem::replace(&mut program.instance.is_ready, true) {
            return Ready::Before;
        }
        let (name, instance) = (name.clone(), program.instance.clone());
        self.write(&name, &instance);
        Ready::Now(instance.task)
    }

    fn of(&self, process: ProcessId) -> Option<&OneProgram> {
        self.by_name.values().find(|program| program.process == process)
    }

    /// Writes the file of an instance. Without it, a later driver finds the first process as the
    /// oldest one in the group, and the program as not ready.
    fn write(&self, name: &str, instance: &Instance) {
        if let Err(failure) = write(&self.directory.join(name), &instance.to_text()) {
            log(&failure.to_string());
        }
    }

    fn remove_file(&self, name: &str) {
        // A file that is already gone is fine.
        drop(std::fs::remove_file(self.directory.join(name)));
    }

    /// Removes the group above the groups of programs, if it is empty.
    fn remove_empty_group(&self) {
        drop(std::fs::remove_dir(&self.group));
    }
}

/// Calls `start`, which waits for the exec of a child in `group`, and kills the child if that takes
/// longer than [`START_TIMEOUT`].
fn start_in_time(
    group: &ProgramGroup,
    start: impl FnOnce() -> io::Result<Child>,
) -> io::Result<Child> {
    let (started, over) = channel::<()>();
    std::thread::scope(|scope| {
        let watch = move || {
            if over.recv_timeout(START_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                // Without a kill the start goes on.
                drop(group.kill());
            }
        };
        Builder::new().name("talea-start".into()).spawn_scoped(scope, watch)?;
        let child = start();
        drop(started);
        child
    })
}

fn program_id(programs: &BTreeMap<String, OneProgram>, name: &str) -> ProcessId {
    programs[name].process
}

impl OneProgram {
    /// Notes the end of the first process, and kills the rest of the program.
    fn note_end(&mut self) {
        let State::Running { handle, child } = &mut self.state else { return };
        if handle.is_alive() {
            return;
        }
        // The exit of an adopted program is unknown: its parent has it.
        let exit = child.as_mut().and_then(|child| child.try_wait().ok().flatten()).map(exit_of);
        self.state = State::Ended(exit);
    }

    /// Whether processes of an ended program exist. They are killed.
    fn is_populated(&self) -> bool {
        let is_populated = self.group.processes().is_ok_and(|processes| !processes.is_empty());
        if mutate!("deployd-kill-rest", is_populated, false) {
            // Repeated: a child that was being created may have been missed and would live.
            drop(self.group.kill());
        }
        is_populated
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match status.code() {
        Some(code) => Exit::Code(code),
        None => Exit::Signal(status.signal().unwrap_or(0)),
    }
}

fn id_of(handle: &ProcessHandle) -> ProcessId {
    ProcessId { start: handle.start_ticks(), pid: handle.pid().as_raw() as u32 }
}

/// Opens the process with this identity, if it has not ended.
fn open(id: ProcessId) -> Option<ProcessHandle> {
    let handle = ProcessHandle::open(Tid::new(id.pid as i32)?).ok()?;
    (handle.start_ticks() == id.start && handle.is_alive()).then_some(handle)
}

/// Opens the oldest process in a group.
fn first_process(group: &ProgramGroup) -> Option<ProcessHandle> {
    let processes = group.processes().ok()?;
    let oldest = processes.into_iter().filter_map(|pid| Some((proc::stat(pid).ok()?, pid)));
    let (_, pid) = oldest.min_by_key(|(stat, pid)| (stat.start_ticks, *pid))?;
    let handle = ProcessHandle::open(pid).ok()?;
    // The process may have ended, and its number may be that of another one.
    group.processes().ok()?.contains(&pid).then_some(handle)
}
