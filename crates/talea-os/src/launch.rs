//! Starts a program frozen in its cgroup.
//!
//! Model: between fork and exec the child sets its CPU and priority and enters its cgroup, which is
//! frozen, and stops there. It executes the program when the cgroup is thawed for the first time:
//! no part of the program, not even its start, is outside of what is metered. The starting thread
//! waits until then, so a separate thread should do it. Before it sets its priority, the child
//! enters the real-time control group of the cgroup, if the cgroup has one.
//!
//! The program dies with the thread that starts it: the child asks the kernel for that first, and
//! exits by itself if its parent was gone before.
//!
//! Last resort: if every process that could kill it is gone too (the run and its reaper), a program
//! at a real-time priority would occupy its CPU forever. So the CPU time that each of its threads
//! may use without blocking is limited (`RLIMIT_RTTIME`) to what the whole run could give it, plus
//! some seconds; then the kernel kills the process. The kernel counts in ticks from the thread's
//! last sleep. Children inherit the limit, and a program with rights may lift it.
//!
//! A scheduled program must not schedule itself. The program and its children have no CAP_SYS_NICE,
//! even as root, and no real-time priority but the given one (`RLIMIT_RTPRIO`). The kernel refuses
//! them a higher priority and another real-time policy. Any thread may lower its own policy or move
//! to another CPU, and one with CAP_SYS_RESOURCE can lift the limit.
//!
//! A program may run as another user than this process. Then it has that user's groups, and no more
//! privileges by its exec (`PR_SET_NO_NEW_PRIVS`) unless the user is root. Its environment is that
//! of a login: no variable of this process but PATH and the locale. It has a session of its own, so
//! that it cannot type into the terminal of this process.
//!
//! A program of a deployment outlives its starter, so two of these steps do not apply: it does not
//! die with a thread, and its CPU time is not limited. [`Program::start_detached`] starts it as an
//! ordinary program, and its starter sets the attributes of its threads afterwards: a CPU that
//! other real-time threads occupy must not delay the starter, which waits for the exec.
//! [`Program::start_frozen`] starts it in a frozen group, and does not wait for the exec.
//!
//! Everything between fork and exec is async-signal-safe: system calls on data prepared before.

use crate::Tid;
use crate::capabilities::Capability;
use crate::cgroup::Cgroup;
use crate::cgroup::program_group::ProgramGroup;
use crate::cgroup::rt_group::RtGroup;
use crate::sys::{check, errno};
use crate::users::Account;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use talea_core::CpuSet;
use talea_core::mutate;

/// Highest number of a signal.
const MAX_SIGNAL: libc::c_int = 64;

/// Executable file with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    file: PathBuf,
    arguments: Vec<OsString>,
    account: Option<Account>,
}

impl Program {
    /// Resolves `arguments`, of which the first names the program. The name is a path, or without a
    /// slash a file in one of the directories of `PATH`.
    ///
    /// # Errors
    /// If there is no such file that this process may execute.
    pub fn find(arguments: &[impl AsRef<OsStr>]) -> io::Result<Program> {
        let not_found = || io::Error::new(io::ErrorKind::NotFound, "no such executable file");
        let name = arguments.first().ok_or_else(not_found)?.as_ref();
        let may = |file: &Path| {
            file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
        };
        let file = if name.as_encoded_bytes().contains(&b'/') {
            Some(PathBuf::from(name)).filter(|file| may(file))
        } else {
            let directories = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&directories)
                .map(|directory| directory.join(name))
                .find(|file| may(file))
        };
        let arguments = arguments.iter().map(|argument| argument.as_ref().to_owned()).collect();
        Ok(Program { file: file.ok_or_else(not_found)?, arguments, account: None })
    }

    /// Returns the program with the account under which it runs. `None` stands for the account of
    /// this process.
    #[must_use]
    pub fn run_as(self, account: Option<Account>) -> Program {
        Program { account, ..self }
    }

    /// Returns the executable file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Starts the program in `cgroup`, on `cpu`. Returns when the program has started, which is not
    /// before the cgroup is thawed.
    ///
    /// The program runs at SCHED_RR, `priority`. Its threads and children inherit the priority and
    /// share the CPU in turn. They get no higher priority and no other real-time policy. The
    /// standard input of the program is empty, and its output goes to standard error. The program
    /// dies with the calling thread, or when one of its threads has used `max_cpu_time` without
    /// blocking.
    ///
    /// # Errors
    /// If the kernel refuses any step.
    pub fn start(
        &self,
        cgroup: &Cgroup,
        cpu: u32,
        priority: u8,
        max_cpu_time: Option<Duration>,
    ) -> io::Result<Child> {
        let procs = cgroup.procs_file()?;
        let rt_tasks = cgroup.rt_group().map(RtGroup::tasks_file).transpose()?;
        let rt_raw = rt_tasks.as_ref().map(AsRawFd::as_raw_fd);
        let (mask, raw) = (mask(&CpuSet::single(cpu)), procs.as_raw_fd());
        let limit = max_cpu_time.map(limit).transpose()?;
        let parent = Tid::of_process().as_raw();
        let mut command = Command::new(&self.file);
        command.arg0(&self.arguments[0]).args(&self.arguments[1..]).stdin(Stdio::null());
        let output = self.account.as_ref().map(|_| write_only_terminal()).transpose()?.flatten();
        if let Some(output) = output {
            command.stdout(output.try_clone()?).stderr(output);
        } else {
            command.stdout(io::stderr());
        }
        let ids = self.account.as_ref().map(|account| {
            set_login_environment(&mut command, account);
            Ids::of(account)
        });
        let enter = move || {
            let parameters = libc::sched_param { sched_priority: i32::from(priority) };
            // SAFETY: integers, and structures that live as long as the calls; the descriptor is
            // open until exec.
            unsafe {
                // A terminal signal is for the program's starter only.
                check(libc::setsid())?;
                if let Some(limit) = &limit {
                    check(libc::setrlimit(libc::RLIMIT_RTTIME, limit))?;
                }
                // As an ordinary thread: the group may have less room for a real-time one.
                if let Some(tasks) = rt_raw
                    && libc::write(tasks, c"0".as_ptr().cast(), 1) != 1
                {
                    return Err(io::Error::last_os_error());
                }
                check(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const mask))?;
                check(libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters))?;
                drop_scheduling_rights();
                if let Some(ids) = &ids {
                    ids.assume()?;
                }
                // After the change of the user, which resets it.
                check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
                // The parent may have died before `prctl`.
                if libc::getppid() != parent {
                    libc::_exit(127);
                }
                // The child stops on the return from this write.
                enter_group(raw)
            }
        };
        // SAFETY: the closure runs between fork and exec and only makes system calls; `procs` and
        // `rt_tasks` outlive the start.
        unsafe { command.pre_exec(enter) };
        let child = command.spawn();
        drop((procs, rt_tasks));
        child
    }

    /// Starts the program in `group` as an ordinary program that outlives this process. Returns
    /// when the program executes.
    ///
    /// Its standard input is empty, and its folder is `/`. Its output goes where the standard error
    /// of this process goes, through an open file of its own, so it cannot close or block that of
    /// others.
    ///
    /// # Errors
    /// `EINVAL` for a program without an account ([`Program::run_as`]), or the error of the step
    /// that the kernel refuses.
    pub fn start_detached(
        &self,
        group: &ProgramGroup,
        detached: &Detached<'_>,
        rights: SchedulingRights,
    ) -> io::Result<Child> {
        let ids = Ids::of(self.known_account()?);
        let procs = group.procs_file()?;
        let raw = procs.as_raw_fd();
        let mut command = self.detached_command(detached)?;
        let enter = move || {
            // SAFETY: system calls; the descriptor is open until exec.
            unsafe {
                // In the group every process belongs to the program, also for a starter that finds
                // it after the end of this one. Its threads have no attribute of the starter there.
                leave_starter()?;
                enter_group(raw)?;
                if rights == SchedulingRights::Dropped {
                    drop_scheduling_rights();
                }
                ids.assume()
            }
        };
        // SAFETY: the closure runs between fork and exec and only makes system calls; `procs`
        // outlives the start.
        unsafe { command.pre_exec(enter) };
        let child = command.spawn();
        drop(procs);
        child
    }

    /// Starts the program as [`Program::start_detached`] does, frozen: the child takes SCHED_RR at
    /// `priority` on `cpus`, enters `group`, which is frozen, and executes the program when the
    /// group is thawed. Returns before that.
    ///
    /// The child closes the files of this process first, so nothing waits for it: neither this call
    /// nor a lock of this process. Every later error ends the child with 127.
    ///
    /// # Errors
    /// As [`Program::start_detached`], for the steps before that.
    pub fn start_frozen(
        &self,
        group: &ProgramGroup,
        detached: &Detached<'_>,
        cpus: &CpuSet,
        priority: u8,
    ) -> io::Result<Child> {
        /// First descriptor after the standard ones.
        const FIRST: RawFd = 3;
        let ids = Ids::of(self.known_account()?);
        let procs = group.procs_file()?;
        let (raw, mask) = (procs.as_raw_fd(), mask(cpus));
        let mut command = self.detached_command(detached)?;
        let exec = Exec::of(&command, &self.arguments[0])?;
        let enter = move || {
            let parameters = libc::sched_param { sched_priority: i32::from(priority) };
            // SAFETY: system calls on structures and strings that live as long as the calls.
            unsafe {
                leave_starter()?;
                if raw != FIRST {
                    check(libc::dup3(raw, FIRST, libc::O_CLOEXEC))?;
                }
                // Also the pipe for whose end `spawn` waits, so it returns now.
                close_from(FIRST + 1)?;
                let steps = || {
                    check(libc::sched_setaffinity(0, size_of_val(&mask), &raw const mask))?;
                    check(libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters))?;
                    drop_scheduling_rights();
                    ids.assume()?;
                    // The child stops on the return from this write.
                    enter_group(FIRST)?;
                    exec.run()
                };
                let _: io::Result<()> = steps();
                libc::_exit(127)
            }
        };
        // SAFETY: the closure runs between fork and exec and only makes system calls; `procs`
        // outlives the start, and the closure owns the strings.
        unsafe { command.pre_exec(enter) };
        let child = command.spawn();
        drop(procs);
        child
    }

    fn known_account(&self) -> io::Result<&Account> {
        self.account.as_ref().ok_or_else(|| errno(libc::EINVAL))
    }

    /// Returns the command of a program that outlives this process.
    fn detached_command(&self, detached: &Detached<'_>) -> io::Result<Command> {
        let mut command = Command::new(&self.file);
        command.arg0(&self.arguments[0]).args(&self.arguments[1..]).current_dir("/");
        let output = own_output(detached.name)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        set_login_environment(&mut command, self.known_account()?);
        command.envs(detached.variables.iter().copied());
        Ok(command)
    }
}

/// Right of a program to schedule threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingRights {
    /// It has that of its starter.
    Kept,
    /// It has no CAP_SYS_NICE, and may take no real-time priority.
    Dropped,
}

/// Program that outlives its starter.
#[derive(Clone, Copy, Debug)]
pub struct Detached<'a> {
    /// Identifier of its lines in systemd's journal.
    pub name: &'a str,
    /// Variables of its environment besides those of a login.
    pub variables: &'a [(&'a str, &'a OsStr)],
}

/// Arguments of `execve`, prepared before the fork.
struct Exec {
    file: CString,
    arguments: Vec<*const libc::c_char>,
    variables: Vec<*const libc::c_char>,
    /// Strings to which the lists point.
    _strings: Vec<CString>,
}

// SAFETY: the pointers point to the strings that the structure owns, which never change.
unsafe impl Send for Exec {}
// SAFETY: as above.
unsafe impl Sync for Exec {}

impl Exec {
    /// Prepares the execution of a command whose environment was cleared.
    fn of(command: &Command, arg0: &OsStr) -> io::Result<Exec> {
        let c_string =
            |text: &OsStr| CString::new(text.as_encoded_bytes()).map_err(io::Error::from);
        let mut strings = vec![c_string(arg0)?];
        for argument in command.get_args() {
            strings.push(c_string(argument)?);
        }
        let count = strings.len();
        for (name, value) in command.get_envs() {
            let Some(value) = value else { continue };
            let mut variable = name.to_owned();
            variable.push("=");
            variable.push(value);
            strings.push(c_string(&variable)?);
        }
        let list = |strings: &[CString]| {
            strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (arguments, variables) = (list(&strings[..count]), list(&strings[count..]));
        let file = c_string(command.get_program())?;
        Ok(Exec { file, arguments, variables, _strings: strings })
    }

    /// Executes the program. Returns only an error.
    ///
    /// # Safety
    /// Only a system call, so it may run between fork and exec.
    unsafe fn run(&self) -> io::Result<()> {
        let (arguments, variables) = (self.arguments.as_ptr(), self.variables.as_ptr());
        // SAFETY: strings and lists that end, which live as long as the call.
        check(unsafe { libc::execve(self.file.as_ptr(), arguments, variables) }).map(drop)
    }
}

/// Returns the path of a program of Talea that no user starts: beside the executable of this
/// process, else in the directory for internal programs of an installation.
///
/// # Errors
/// `NotFound`, with both directories in words.
pub fn internal_program(name: &str) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let places = [beside.to_owned(), beside.join("../libexec/talea")];
    let found = places.iter().map(|place| place.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let [beside, internal] = places.map(|place| place.display().to_string());
        let what = format!("{name} is neither in {beside} nor in {internal}; install it there");
        io::Error::new(io::ErrorKind::NotFound, what)
    })
}

/// Makes this process an ordinary one that has nothing of its starter: its policy, its session, its
/// signals.
///
/// # Safety
/// Only system calls, so it may run between fork and exec.
unsafe fn leave_starter() -> io::Result<()> {
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: integers, and structures that live as long as the calls.
    unsafe {
        check(libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary))?;
        check(libc::setpriority(libc::PRIO_PROCESS, 0, 0))?;
        check(libc::setsid())?;
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        // An ignored signal stays ignored through an exec, as SIGHUP below nohup.
        for signal in 1..=MAX_SIGNAL {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::umask(0o022);
    }
    Ok(())
}

/// Closes all descriptors from `first`.
///
/// # Safety
/// The caller uses none of them afterwards.
unsafe fn close_from(first: RawFd) -> io::Result<()> {
    let (first, last) = (first as libc::c_uint, libc::c_uint::MAX);
    // SAFETY: integers.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Numbers of an account, for the calls between fork and exec.
struct Ids {
    groups: Vec<u32>,
    gid: u32,
    uid: u32,
}

impl Ids {
    fn of(account: &Account) -> Ids {
        Ids { groups: account.groups.clone(), gid: account.user.gid, uid: account.user.uid }
    }

    /// Makes this process one of the account, without more privileges by its exec.
    ///
    /// # Safety
    /// Only system calls, so it may run between fork and exec.
    unsafe fn assume(&self) -> io::Result<()> {
        let &Ids { gid, uid, .. } = self;
        // SAFETY: integers, and a list that lives as long as the call.
        unsafe {
            check(libc::setgroups(self.groups.len(), self.groups.as_ptr()))?;
            check(libc::setresgid(gid, gid, gid))?;
            check(mutate!("os-launch-user", libc::setresuid(uid, uid, uid), 0))?;
            if uid != 0 {
                check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
            }
        }
        Ok(())
    }
}

/// Takes the right to change scheduling attributes from this process and from its exec. The calls
/// are refused only to processes that could not change their policy anyway.
///
/// # Safety
/// Only system calls, so it may run between fork and exec.
unsafe fn drop_scheduling_rights() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let sys_nice = Capability::SysNice as libc::c_ulong;
    // SAFETY: integers, and a structure that lives as long as the calls.
    unsafe {
        libc::setrlimit(libc::RLIMIT_RTPRIO, &raw const none);
        libc::setrlimit(libc::RLIMIT_NICE, &raw const none);
        mutate!("os-launch-nice", libc::prctl(libc::PR_CAPBSET_DROP, sys_nice, 0, 0, 0), 0);
    }
}

/// Moves this process into the group whose `cgroup.procs` is open at `procs`.
///
/// # Safety
/// Only system calls, so it may run between fork and exec.
unsafe fn enter_group(procs: RawFd) -> io::Result<()> {
    // Zero names the writing process.
    // SAFETY: a string that lives as long as the call.
    let written = unsafe { libc::write(procs, c"0".as_ptr().cast(), 1) };
    if written == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Socket of systemd's journal for the output of programs.
const JOURNAL: &str = "/run/systemd/journal/stdout";

/// Returns an open file of its own for what standard error of this process is: a terminal, a file
/// or a pipe for writing only, or a stream to the journal in place of another socket. Without a
/// journal or a reader of the pipe, the output is lost.
///
/// # Errors
/// The kernel's error.
fn own_output(name: &str) -> io::Result<OwnedFd> {
    let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
    let opened = File::options().append(true).custom_flags(flags).open("/proc/self/fd/2");
    match opened {
        Ok(file) => {
            // The open must not wait for the reader of a pipe; the program's writes may.
            rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND)?;
            Ok(file.into())
        }
        // A socket, or a pipe without a reader.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            let Ok(mut stream) = UnixStream::connect(JOURNAL) else {
                return Ok(File::options().write(true).open("/dev/null")?.into());
            };
            // Identifier, unit, priority (informational), prefixes of levels, three forwards.
            stream.write_all(format!("{name}\n\n6\n1\n0\n0\n0\n").as_bytes())?;
            stream.shutdown(Shutdown::Read)?;
            Ok(stream.into())
        }
        Err(error) => Err(error),
    }
}

/// Returns the terminal of standard error for writing only, if standard error is a terminal. A
/// program of another user must not read what is typed there.
fn write_only_terminal() -> io::Result<Option<File>> {
    if !io::stderr().is_terminal() {
        return Ok(None);
    }
    let options = File::options().write(true).custom_flags(libc::O_NOCTTY).clone();
    options.open("/proc/self/fd/2").map(Some)
}

/// Gives the program the environment of a login of its user.
fn set_login_environment(command: &mut Command, account: &Account) {
    let is_kept = |name: &OsStr| {
        name == "PATH" || name == "LANG" || name.as_encoded_bytes().starts_with(b"LC_")
    };
    let kept: Vec<_> = std::env::vars_os().filter(|(name, _)| is_kept(name)).collect();
    command.env_clear().envs(kept);
    command.env("HOME", &account.home).env("SHELL", &account.shell);
    command.env("USER", &account.user.name).env("LOGNAME", &account.user.name);
}

/// Returns the limit of real-time CPU time without blocking: `max_cpu_time`, or this process's own
/// hard limit if that is lower.
fn limit(max_cpu_time: Duration) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid structure, which the kernel fills.
    check(unsafe { libc::getrlimit(libc::RLIMIT_RTTIME, &raw mut limit) })?;
    let limit_us =
        u64::try_from(max_cpu_time.as_micros()).unwrap_or(libc::RLIM_INFINITY).min(limit.rlim_max);
    // Both limits: the soft one alone would send a signal that a program may catch.
    Ok(libc::rlimit { rlim_cur: limit_us, rlim_max: limit_us })
}

fn mask(cpus: &CpuSet) -> libc::cpu_set_t {
    // SAFETY: a set of bits, of which none is a valid value.
    let mut mask: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus {
        // SAFETY: sets a bit of the set, which has one for each CPU that a `CpuSet` can have.
        unsafe { libc::CPU_SET(cpu as usize, &mut mask) };
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_path_or_in_path() {
        assert!(Program::find(&["sh"]).is_ok());
        assert!(Program::find(&["/bin/sh", "-c", "true"]).is_ok());
        for wrong in [&["no-such-program-anywhere"][..], &["/etc/passwd"], &["/bin"], &[""], &[]] {
            let error = Program::find(wrong).expect_err("none");
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{wrong:?}");
        }
    }
}
