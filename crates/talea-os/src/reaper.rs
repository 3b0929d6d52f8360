//! A reaper: a forked process that cleans up when the process that started it dies.
//!
//! Model: a copy of the process that shares nothing with it: no descriptor, no session, no terminal
//! signal. It sleeps until its parent ends, runs its [`Cleanup`] and exits. A process that has
//! cleaned up by itself disarms it first.
//!
//! | state | reaper process | parent thread | transition |
//! | --- | --- | --- | --- |
//! | *armed* | in `sigwaitinfo` | in `waitid` | *cleaning*, *restarting*, *disarmed* |
//! | *restarting* | killed, a zombie | collects it, forks the next one | *armed*; *gone* |
//! | *cleaning* | runs [`Cleanup::run`] | ended, or in `waitid` | *gone*: the reaper exits |
//! | *disarmed* | killed by [`Reaper::disarm`] | collects it and ends | *gone* |
//! | *gone* | none | none | none |
//!
//! - *armed* to *cleaning*: SIGUSR1, sent by the kernel when the parent thread ends
//!   (`PR_SET_PDEATHSIG`) or by dropping the [`Reaper`]; or the reaper finds at its start that its
//!   parent has changed.
//! - *armed* to *restarting*: another process kills the reaper. This may happen [`MAX_RESTARTS`]
//!   times.
//! - *restarting* to *gone*: the reaper is not needed any more, the restarts are used up, or `fork`
//!   fails.
//!
//! Kernel facts:
//!
//! 1. `PR_SET_PDEATHSIG` follows the parent *thread*, not the process. A process has not ended
//!    before all its threads have, and some threads may get no CPU to end on, because the programs
//!    that are to be killed have it. So the parent is a thread without other work, at the reaper's
//!    own priority.
//! 2. A service manager's stop ends the whole cgroup, a terminal's signals the whole session or
//!    process group. So the reaper leaves the process's cgroup, session and process group, and has
//!    its own name.
//! 3. A child collected by `waitid` gives its number free. So the number is valid while it is
//!    stored: the parent waits with `WNOWAIT`, and collects and replaces the number under the lock.
//!
//! Invariants:
//!
//! 1. Between `fork` and its end the reaper makes only system calls on data prepared before: the
//!    other threads of the process do not exist in it, but the locks that they held do.
//! 2. SIGUSR1 is blocked before `fork`, so it is never lost and never ends the reaper.
//! 3. The last reaper has no successor, but its end does not end the parent's process.

use crate::sys::check;
use crate::{Attr, Policy, Tid, proc, sched};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use talea_core::mutate;

/// Maximum number of restarts of a killed reaper. More kills are intended, or have another cause
/// that a restart does not cure.
const MAX_RESTARTS: u32 = 100;

/// Work that a reaper does when its process has died.
pub(crate) trait Cleanup: Send {
    /// Cleans up, in a copy of the process that has one thread. May make system calls on data
    /// prepared before. Allocates nothing, takes no lock of the process, and does not panic.
    fn run(&self);
}

/// Handle to a running reaper.
#[derive(Debug)]
pub(crate) struct Reaper {
    state: Arc<Mutex<ReaperState>>,
    parent: Option<JoinHandle<()>>,
}

/// State shared by the parent thread and the handle.
#[derive(Debug)]
struct ReaperState {
    /// Process number of the reaper. While the field is set, the parent does not collect the
    /// reaper, so the kernel does not reuse the number.
    pid: Option<Tid>,
    is_needed: bool,
}

/// Data of a reaper, prepared before the fork.
pub(crate) struct ReaperConfig {
    cleanup: Box<dyn Cleanup>,
    /// Path of the `cgroup.procs` file that moves the reaper out of the process's cgroup.
    cgroup_procs: Option<CString>,
    priority: Option<u8>,
}

impl ReaperConfig {
    /// Prepares a reaper with this cleanup, at this FIFO priority. The reaper moves to the cgroup
    /// at `top` if it has the right.
    pub(crate) fn new(
        cleanup: impl Cleanup + 'static,
        top: Option<&Path>,
        priority: Option<u8>,
    ) -> io::Result<ReaperConfig> {
        let procs = top.map(|top| CString::new(top.join("cgroup.procs").as_os_str().as_bytes()));
        Ok(ReaperConfig {
            cleanup: Box::new(cleanup),
            cgroup_procs: procs.transpose().map_err(io::Error::other)?,
            priority,
        })
    }
}

fn lock(state: &Mutex<ReaperState>) -> MutexGuard<'_, ReaperState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reaper {
    /// Starts a reaper. `prepare` gets the parent thread and its start time and returns the
    /// configuration.
    pub(crate) fn start<T: Send + 'static>(
        prepare: impl FnOnce(Tid, u64) -> io::Result<(ReaperConfig, T)> + Send + 'static,
    ) -> io::Result<(Reaper, T)> {
        let (send, received) = channel();
        let parent = Builder::new().name("talea-reaper".into()).spawn(move || {
            let start = || -> io::Result<(ReaperConfig, Tid, T)> {
                let me = Tid::current();
                let (config, prepared) = prepare(me, proc::stat(me)?.start_ticks)?;
                block_signals();
                let pid = fork_reaper(&config)?;
                Ok((config, pid, prepared))
            };
            // The receiver waits for this message.
            match start() {
                Ok((config, pid, prepared)) => {
                    let state =
                        Arc::new(Mutex::new(ReaperState { pid: Some(pid), is_needed: true }));
                    let _ = send.send(Ok((Arc::clone(&state), prepared)));
                    supervise(&state, &config);
                }
                Err(error) => drop(send.send(Err(error))),
            }
        })?;
        let (state, prepared) = received.recv().map_err(io::Error::other)??;
        Ok((Reaper { state, parent: Some(parent) }, prepared))
    }

    /// Ends the reaper without cleanup. Dropping the handle instead runs the cleanup at once.
    pub(crate) fn disarm(mut self) {
        self.finish(libc::SIGKILL);
        // The parent thread waits for nothing else.
        let _ = self.parent.take().map(JoinHandle::join);
    }

    fn finish(&self, signal: i32) {
        let mut state = lock(&self.state);
        state.is_needed = false;
        if let Some(pid) = state.pid {
            // SAFETY: integers; the child was not collected, so the number is its own.
            unsafe { libc::kill(pid.as_raw(), signal) };
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if self.parent.is_some() {
            self.finish(libc::SIGUSR1);
        }
    }
}

/// Blocks SIGUSR1 in the calling thread and its children, so that the wake-up signal does not end
/// the reaper.
fn block_signals() {
    // SAFETY: a set of signals that the first call fills.
    unsafe {
        let mut wake = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(wake.as_mut_ptr());
        libc::sigaddset(wake.as_mut_ptr(), libc::SIGUSR1);
        libc::pthread_sigmask(libc::SIG_BLOCK, wake.as_ptr(), std::ptr::null_mut());
    }
}

/// Restarts a reaper that another process kills, until the reaper is no longer needed.
fn supervise(state: &Mutex<ReaperState>, config: &ReaperConfig) {
    for restarts_left in (0..=MAX_RESTARTS).rev() {
        let Some(pid) = lock(state).pid else { return };
        // `WNOWAIT` keeps the number, because another thread may be about to send a signal to it.
        wait_for_exit(pid, libc::WEXITED | libc::WNOWAIT);
        let mut state = lock(state);
        wait_for_exit(pid, libc::WEXITED);
        // The last reaper has no successor: with this thread, its parent, gone a successor would
        // start its cleanup at once.
        state.pid =
            if state.is_needed && restarts_left > mutate!("os-reaper-successor", 0, MAX_RESTARTS) {
                fork_reaper(config).ok()
            } else {
                None
            };
    }
}

/// Waits for the end of a child.
fn wait_for_exit(pid: Tid, options: libc::c_int) {
    let mut status = std::mem::MaybeUninit::<libc::siginfo_t>::uninit();
    // SAFETY: the kernel fills a structure that is never read.
    unsafe {
        while libc::waitid(libc::P_PID, pid.as_raw() as libc::id_t, status.as_mut_ptr(), options)
            == -1
            && *libc::__errno_location() == libc::EINTR
        {}
    }
}

/// Sets the reaper's priority on the calling thread and forks the reaper.
fn fork_reaper(config: &ReaperConfig) -> io::Result<Tid> {
    if let Some(priority) = config.priority {
        sched::set(Tid::current(), &Attr::grant(Policy::Fifo(priority)))?;
    }
    let process = Tid::of_process().as_raw();
    // SAFETY: the child only makes system calls until it ends (`reaper_main`), as a copy of one
    // thread among several must.
    match check(unsafe { libc::fork() })? {
        0 => reaper_main(process, config),
        pid => Ok(Tid::new(pid).expect("a child has a positive pid")),
    }
}

/// Main function of the reaper process.
fn reaper_main(process: i32, config: &ReaperConfig) -> ! {
    // SAFETY: system calls with integers, with strings that end and with structures that live as
    // long as the calls; none of them allocates or takes a lock of the process. Failures are
    // ignored: there is no process to report them to.
    unsafe {
        let mut wake = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(wake.as_mut_ptr());
        libc::sigaddset(wake.as_mut_ptr(), libc::SIGUSR1);
        libc::sigprocmask(libc::SIG_SETMASK, wake.as_ptr(), std::ptr::null_mut());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGUSR1, 0, 0, 0);
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"talea-reaper".as_ptr());
        // Without the right it stays in the cgroup.
        if let Some(procs) = &config.cgroup_procs {
            let procs = libc::open(procs.as_ptr(), libc::O_WRONLY);
            if procs != -1 {
                mutate!(
                    "os-reaper-out",
                    {
                        libc::write(procs, c"0".as_ptr().cast(), 1);
                    },
                    {
                        libc::close(procs);
                    }
                );
            }
        }
        if let Some(priority) = config.priority {
            // The parent's policy is not inherited.
            let parameters = libc::sched_param { sched_priority: i32::from(priority) };
            libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters);
        }
        // Otherwise a process that reads the other end of a pipe waits for the reaper's end in
        // vain.
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
        // The parent may have died before `prctl`.
        while libc::getppid() == process {
            if libc::sigwaitinfo(wake.as_ptr(), std::ptr::null_mut()) == libc::SIGUSR1 {
                break;
            }
        }
        config.cleanup.run();
        libc::_exit(0)
    }
}
