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
//! 2. A group that a driver removes was empty, and no process can enter it afterwards. A driver
//!    removes the group of a governed task only if no program and no governor has it.
//! 3. A start sets the attributes of the first thread after the exec, unless a governor schedules
//!    the program: then the first thread has them before, in a frozen group.
//! 4. The group of a governed task exists while its governor or a program of the task does, and the
//!    programs of the task follow each other in it. So a governor may end and begin at any time.

use crate::attributes;
use crate::failure::Failure;
use crate::log::log;
use crate::store::{read, write};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};
use talea_core::{CpuSet, mutate};
use talea_deploy::input::{Errno, Exit, Program, StopSignal, Thread};
use talea_deploy::text::Instance;
use talea_deploy::{FileHash, Governed, ProcessId, Role, TaskSpec, mechanism};
use talea_os::cgroup::handover;
use talea_os::cgroup::program_group::{self, ProgramGroup};
use talea_os::files::check_trusted;
use talea_os::launch::{Detached, SchedulingRights};
use talea_os::process_handle::ProcessHandle;
use talea_os::{Tid, clock, launch, proc, users};

/// Program that governs a root.
const GOVERNOR: &str = "talea-governor";
/// Name of the group above the groups of programs.
const GROUP: &str = "talea-deploy";
/// Name of the group above the groups of governed tasks.
const GOVERNED: &str = "governed";
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
    /// Group above the groups of governed tasks. Its name has a hash of the runtime directory:
    /// another daemon may have tasks with the same names.
    governed_group: PathBuf,
    /// Directory of the system files and of the statistics of governors.
    systems: PathBuf,
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

/// Report of a program to the socket for readiness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramReport {
    is_ready: bool,
    /// Hash of the table in force, from a governor.
    governs: Option<FileHash>,
}

impl ProgramReport {
    /// Reads a report. One that says nothing is the default.
    pub(crate) fn of(text: &str) -> ProgramReport {
        let governs = text.lines().find_map(|line| line.strip_prefix("X_TALEA_GOVERNS="));
        ProgramReport {
            is_ready: text.lines().any(|line| line == "READY=1"),
            governs: governs.and_then(FileHash::parse),
        }
    }
}

/// Meaning of a report.
pub(crate) enum Ready {
    /// The program of this task is ready from now on.
    Now(String),
    /// The governor of this task governs by another table from now on.
    Adjusted(String),
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
            governed_group: base.join(GROUP).join(governed_name(runtime)),
            systems: runtime.join("systems"),
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
        programs.remove_empty_groups();
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
            // A process that enters the group now finds it removed. The group of a governed task
            // stays: its process enters it a moment after its start.
            if !self.is_of_governed_task(group.path()) && group.remove().is_ok() {
                self.remove_file(name);
                return None;
            }
            // The process is between its entry and its visibility, or between exit and its end.
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.is_of_governed_task(group.path()) {
            self.remove_file(name);
        } else {
            let path = group.path().display();
            log(&format!("{path} cannot be removed; the next start tries again"));
        }
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

    /// Starts the program of a task.
    pub(crate) fn start(&mut self, task: &TaskSpec) -> Result<(), Errno> {
        self.try_start(task).map_err(|error| {
            let TaskSpec { name, command, .. } = task;
            log(&format!("{name}: {} was not started: {error}", command.words.join(" ")));
            let number = error.raw_os_error().or(match error.kind() {
                io::ErrorKind::NotFound => Some(rustix::io::Errno::NOENT.raw_os_error()),
                _ => None,
            });
            Errno(number.unwrap_or(rustix::io::Errno::INVAL.raw_os_error()))
        })
    }

    fn try_start(&mut self, task: &TaskSpec) -> io::Result<()> {
        let command = &task.command;
        let user = command.user.as_deref().unwrap_or("root");
        let account = users::account(user)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no account {user}")))?;
        let words = match &task.governed {
            Some(governed) => self.governor_words(governed)?,
            None => command.words.iter().map(Into::into).collect(),
        };
        let program = launch::Program::find(&words)?.run_as(Some(account));
        // No other program of this boot has had the name.
        let name = format!("{}-{}", clock::now().as_ns(), std::process::id());
        let path = match command.role {
            Role::Governed(cpus) => self.group_of_governed(&task.name, &cpus),
            Role::Linux | Role::Governor(_) => self.group.join(&name),
        };
        let mut instance = Instance {
            boot: self.boot.clone(),
            task: task.name.clone(),
            command: command.clone(),
            group: path.display().to_string(),
            process: None,
            is_ready: false,
        };
        let file = self.directory.join(&name);
        write(&file, &instance.to_text()).map_err(io::Error::other)?;
        let (group, child) = self.start_in(&path, &program, task).inspect_err(|_| {
            if !self.is_of_governed_task(&path) {
                let _ = ProgramGroup::at(&path).remove();
            }
            drop(std::fs::remove_file(&file));
            self.remove_empty_groups();
        })?;
        let opened = Tid::new(child.id() as i32)
            .ok_or_else(|| io::Error::other("no process number"))
            .and_then(ProcessHandle::open);
        let handle = match opened {
            Ok(handle) => handle,
            Err(error) => {
                let mut child = child;
                let _ = child.kill();
                let _ = group.kill();
                let _ = child.wait();
                if !self.is_of_governed_task(&path) {
                    let _ = group.remove();
                }
                self.remove_file(&name);
                return Err(error);
            }
        };
        let process = id_of(&handle);
        if command.role == Role::Linux {
            // An error comes back by the next inspection, which sets the attributes again.
            let _ = attributes::set_all(handle.pid(), &task.attr);
        }
        instance.process = Some(process);
        self.write(&name, &instance);
        let state = State::Running { handle, child: Some(child) };
        self.by_name.insert(name, OneProgram { instance, group, process, state });
        Ok(())
    }

    /// Starts the first process of a program in the group at `path`.
    fn start_in(
        &self,
        path: &Path,
        program: &launch::Program,
        task: &TaskSpec,
    ) -> io::Result<(ProgramGroup, Child)> {
        let variables = &[("NOTIFY_SOCKET", self.notify.as_os_str())];
        let detached = Detached { name: &task.name, variables };
        let rights = match task.command.role {
            Role::Governed(cpus) => return start_frozen(path, program, &detached, &cpus),
            Role::Linux => SchedulingRights::Dropped,
            Role::Governor(_) => SchedulingRights::Kept,
        };
        let group = ProgramGroup::create(path)?;
        let start = || program.start_detached(&group, &detached, rights);
        let child = start_in_time(&group, start)?;
        Ok((group, child))
    }

    /// Returns the command line of a governor, after its file and its groups exist.
    fn governor_words(&self, governed: &Governed) -> io::Result<Vec<OsString>> {
        let system = self.write_system(governed)?;
        let statistics = system.with_extension("json");
        let governor = launch::internal_program(GOVERNOR)?;
        // It runs as root.
        check_trusted(&governor).map_err(io::Error::other)?;
        let mut words: Vec<OsString> = vec![governor.into(), "--system".into(), system.into()];
        words.extend(["--root".into(), governed.root.clone().into(), "--cpus".into()]);
        words.push(governed.cpus.to_string().into());
        words.extend(["--stats".into(), statistics.into()]);
        for task in &governed.tasks {
            let path = self.group_of_governed(task, &governed.cpus);
            ProgramGroup::at_or_create(&path)?;
            let mut group = OsString::from(format!("{task}="));
            group.push(path);
            words.extend(["--group".into(), group]);
        }
        Ok(words)
    }

    /// Changes the table of a governor: writes its file, and lets the governor read it again.
    pub(crate) fn adjust(&mut self, process: ProcessId, task: &TaskSpec) -> Result<(), Errno> {
        let found = self.by_name.iter_mut().find(|(_, program)| program.process == process);
        let (Some(governed), Some((name, program))) = (&task.governed, found) else {
            return Ok(());
        };
        program.instance.command.role = Role::Governor(FileHash::default());
        let (name, instance) = (name.clone(), program.instance.clone());
        self.write(&name, &instance);
        let State::Running { handle, .. } = &self.by_name[&name].state else { return Ok(()) };
        let adjusted = self.write_system(governed).and_then(|_| {
            let hangup = rustix::process::Signal::HUP.as_raw();
            handle.signal(hangup)
        });
        adjusted.map_err(|error| {
            log(&format!("{}: its table was not changed: {error}", task.name));
            Errno(error.raw_os_error().unwrap_or(rustix::io::Errno::INVAL.raw_os_error()))
        })
    }

    /// Writes the file of a governor. Its first line has the hash of the table, which the governor
    /// repeats in its reports.
    fn write_system(&self, governed: &Governed) -> io::Result<PathBuf> {
        let system = self.systems.join(file_name(&governed.root)).with_extension("toml");
        let text = format!("# governs {}\n{}", governed.hash(), governed.system);
        write(&system, &text).map_err(io::Error::other)?;
        Ok(system)
    }

    /// Returns the path of the group of a governed task. A task on other CPUs has another group:
    /// its program there starts again.
    fn group_of_governed(&self, task: &str, cpus: &CpuSet) -> PathBuf {
        self.governed_group.join(format!("{}.{cpus}", file_name(task)))
    }

    /// Whether a group belongs to a governed task, and not to one program.
    fn is_of_governed_task(&self, group: &Path) -> bool {
        group.parent() == Some(&self.governed_group)
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
                State::Running { .. } => (None, program.threads()),
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
        let is_free = if self.is_of_governed_task(program.group.path()) {
            !program.is_populated()
        } else {
            program.group.remove().is_ok()
        };
        // Otherwise the next observation has it again, and the machine forgets it again.
        if is_ended && is_free {
            let name = name.clone();
            self.remove_file(&name);
            self.by_name.remove(&name);
            self.remove_empty_groups();
        }
    }

    /// Notes what the process `sender` has reported about its program.
    pub(crate) fn note_report(&mut self, sender: Tid, report: ProgramReport) -> Ready {
        let Ok(group) = program_group::of_process(sender) else { return Ready::Foreign };
        let is_its = |program: &OneProgram| {
            mutate!("deployd-ready-sender", group.starts_with(program.group.path()), true)
        };
        let found = self.by_name.iter_mut().find(|(_, program)| is_its(program));
        let Some((name, program)) = found else { return Ready::Foreign };
        let before = program.instance.clone();
        program.instance.is_ready |= report.is_ready;
        if let (Role::Governor(table), Some(governs)) =
            (&mut program.instance.command.role, report.governs)
        {
            *table = governs;
        }
        if program.instance == before {
            return Ready::Before;
        }
        let (name, instance) = (name.clone(), program.instance.clone());
        self.write(&name, &instance);
        if before.is_ready { Ready::Adjusted(instance.task) } else { Ready::Now(instance.task) }
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

    /// Removes the groups of governed tasks that no program and no governor uses, the files of
    /// governors that are gone, and the groups above, if they are empty.
    fn remove_empty_groups(&self) {
        let (mut groups, mut systems) = (BTreeSet::new(), BTreeSet::new());
        for program in self.by_name.values() {
            let command = &program.instance.command;
            match (command.role, &command.words[..]) {
                (Role::Governed(_), _) => drop(groups.insert(program.group.path().to_owned())),
                (Role::Governor(_), [_, root, cpus, tasks @ ..]) => {
                    systems.insert(file_name(root));
                    let cpus = CpuSet::parse(cpus).unwrap_or_default();
                    groups.extend(tasks.iter().map(|task| self.group_of_governed(task, &cpus)));
                }
                _ => {}
            }
        }
        for name in names_in(&self.governed_group) {
            let path = self.governed_group.join(name);
            if path.is_dir() && !groups.contains(&path) {
                // A group with processes stays.
                drop(ProgramGroup::at(&path).remove());
            }
        }
        for name in names_in(&self.systems) {
            let root = name.split('.').next().unwrap_or_default();
            if !systems.contains(root) {
                drop(std::fs::remove_file(self.systems.join(name)));
            }
        }
        drop(std::fs::remove_dir(&self.governed_group));
        drop(std::fs::remove_dir(&self.group));
    }
}

/// Returns the name of the group above the groups of governed tasks.
fn governed_name(runtime: &Path) -> String {
    let hash = FileHash::of([&*runtime.to_string_lossy()]).to_string();
    format!("{GOVERNED}-{}", &hash[..16])
}

/// Returns the names in a directory, which may be missing.
fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Starts a program in the frozen group at `path`, and waits until its process is there: then no
/// governor or reaper thaws the group before.
fn start_frozen(
    path: &Path,
    program: &launch::Program,
    detached: &Detached<'_>,
    cpus: &CpuSet,
) -> io::Result<(ProgramGroup, Child)> {
    let group = ProgramGroup::at_or_create(path)?;
    let _lock = handover::keep_frozen(path)?;
    mutate!("deployd-frozen-start", group.freeze(), Ok(()))?;
    let mut child = program.start_frozen(&group, detached, cpus, mechanism::START_LEVEL)?;
    let end = Instant::now() + START_TIMEOUT;
    while group.processes()?.is_empty() && child.try_wait()?.is_none() {
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Err(rustix::io::Errno::TIMEDOUT.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok((group, child))
}

/// Returns the name of a file for a task or a root, whose name may have any character.
fn file_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.len() <= 64 && name.chars().all(is_plain) {
        return format!("n-{name}");
    }
    format!("h-{}", FileHash::of([name]))
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
    /// Returns the threads whose attributes the machine keeps.
    fn threads(&self) -> Vec<Thread> {
        match self.instance.command.role {
            Role::Linux | Role::Governed(_) => attributes::threads(&self.group),
            Role::Governor(_) => Vec::new(),
        }
    }

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
