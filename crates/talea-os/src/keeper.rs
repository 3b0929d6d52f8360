//! A process that puts things back for another one that has died.
//!
//! Model: a copy of the process that shares nothing with it: no descriptor, no session, no signal
//! that a terminal sends to all. It sleeps until its parent ends, does its [`Duty`], and is gone. A
//! process that has done so itself dismisses it before.
//!
//! Its parent is a *thread* (`PR_SET_PDEATHSIG` is about those), which is there for nothing else,
//! at the same rank as the keeper. A process has not ended before all its threads have, and some of
//! them may not even get a CPU to do so from the very programs that are to be killed; this one
//! does. And if the keeper is killed, it makes another one at once.
//!
//! Who ends a process with all that belongs to it shall not end its keeper, too, whom it needs just
//! then. So that leaves the process's group (a service manager's stop ends all who are in that),
//! its session and its group of processes, and has a name of its own.
//!
//! Between `fork` and its end it makes system calls on data that were prepared before, and nothing
//! else: the other threads of the process do not exist in it, but the locks that they held do.

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

/// So many keepers follow one that is killed: who ends more of them means it, or something else is
/// wrong.
const SUCCESSORS: u32 = 100;

/// What a keeper does at the end.
pub(crate) trait Duty: Send {
    /// In the copy of a process of which one thread is left: it may make system calls on what was
    /// prepared before. It allocates nothing, takes no lock of the process, and does not panic.
    fn clean(&self);
}

/// The keeper of a run.
#[derive(Debug)]
pub(crate) struct Keeper {
    child: Arc<Mutex<Child>>,
    parent: Option<JoinHandle<()>>,
}

/// What the keeper's parent shares with whoever needs it.
#[derive(Debug)]
struct Child {
    /// Not waited for: the number is its own as long as it stands here.
    pid: Option<Tid>,
    is_needed: bool,
}

/// What it needs, made before it is alone.
pub(crate) struct Post {
    duty: Box<dyn Duty>,
    /// Who writes there leaves the group where it is.
    out: Option<CString>,
    rank: Option<u8>,
}

impl Post {
    /// With this duty, at this FIFO priority; outside of the cgroup of the process, if that can be,
    /// and in the one at `top`.
    pub(crate) fn new(
        duty: impl Duty + 'static,
        top: Option<&Path>,
        rank: Option<u8>,
    ) -> io::Result<Post> {
        let out = top.map(|top| CString::new(top.join("cgroup.procs").as_os_str().as_bytes()));
        Ok(Post { duty: Box::new(duty), out: out.transpose().map_err(io::Error::other)?, rank })
    }
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keeper {
    /// Starts one at the post that `prepare` makes of the keeper's parent and the moment that this
    /// began.
    pub(crate) fn start<T: Send + 'static>(
        prepare: impl FnOnce(Tid, u64) -> io::Result<(Post, T)> + Send + 'static,
    ) -> io::Result<(Keeper, T)> {
        let (say, said) = channel();
        let parent = Builder::new().name("exec-keeper".into()).spawn(move || {
            let begin = || -> io::Result<(Post, Tid, T)> {
                let me = Tid::current();
                let (post, prepared) = prepare(me, proc::stat(me)?.start_ticks)?;
                hold_back();
                let pid = fork(&post)?;
                Ok((post, pid, prepared))
            };
            // Whoever waits for it has not gone.
            match begin() {
                Ok((post, pid, prepared)) => {
                    let child = Arc::new(Mutex::new(Child { pid: Some(pid), is_needed: true }));
                    let _ = say.send(Ok((Arc::clone(&child), prepared)));
                    look_after(&child, &post);
                }
                Err(error) => drop(say.send(Err(error))),
            }
        })?;
        let (child, prepared) = said.recv().map_err(io::Error::other)??;
        Ok((Keeper { child, parent: Some(parent) }, prepared))
    }

    /// Nothing is left to be done. A keeper that is dropped instead does it now.
    pub(crate) fn dismiss(mut self) {
        self.end(libc::SIGKILL);
        // It waits for nothing else.
        let _ = self.parent.take().map(JoinHandle::join);
    }

    fn end(&self, signal: i32) {
        let mut child = lock(&self.child);
        child.is_needed = false;
        if let Some(pid) = child.pid {
            // SAFETY: integers; the child was not waited for, so the number is its own.
            unsafe { libc::kill(pid.as_raw(), signal) };
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.parent.is_some() {
            self.end(libc::SIGUSR1);
        }
    }
}

/// Keeps the calling thread, and whoever it makes, from being ended by what tells the keeper to
/// begin.
fn hold_back() {
    // SAFETY: a set of signals that the first call fills.
    unsafe {
        let mut wake = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(wake.as_mut_ptr());
        libc::sigaddset(wake.as_mut_ptr(), libc::SIGUSR1);
        libc::pthread_sigmask(libc::SIG_BLOCK, wake.as_ptr(), std::ptr::null_mut());
    }
}

/// Waits until nobody needs a keeper any more, and makes another one of each that is killed before.
fn look_after(child: &Mutex<Child>, post: &Post) {
    for left in (0..=SUCCESSORS).rev() {
        let Some(pid) = lock(child).pid else { return };
        // Without its status, and so without its number, which somebody may be about to send a
        // signal to.
        wait(pid, libc::WEXITED | libc::WNOWAIT);
        let mut child = lock(child);
        wait(pid, libc::WEXITED);
        // The last one has no successor: with this thread, its parent, gone that would begin at
        // once.
        child.pid = if child.is_needed && left > mutate!("os-keeper-successor", 0, SUCCESSORS) {
            fork(post).ok()
        } else {
            None
        };
    }
}

/// Waits for the end of a child.
fn wait(pid: Tid, options: libc::c_int) {
    let mut status = std::mem::MaybeUninit::<libc::siginfo_t>::uninit();
    // SAFETY: the kernel fills a structure that nobody reads.
    unsafe {
        while libc::waitid(libc::P_PID, pid.as_raw() as libc::id_t, status.as_mut_ptr(), options)
            == -1
            && *libc::__errno_location() == libc::EINTR
        {}
    }
}

/// Takes the rank of the keeper, and becomes its parent.
fn fork(post: &Post) -> io::Result<Tid> {
    if let Some(priority) = post.rank {
        sched::set(Tid::current(), &Attr::grant(Policy::Fifo(priority)))?;
    }
    let process = Tid::of_process().as_raw();
    // SAFETY: the child only makes system calls until it ends (`keep`), as a copy of one thread
    // among several must.
    match check(unsafe { libc::fork() })? {
        0 => keep(process, post),
        pid => Ok(Tid::new(pid).expect("a child has a positive pid")),
    }
}

/// The life of the keeper.
fn keep(process: i32, post: &Post) -> ! {
    // SAFETY: system calls with integers, with strings that end and with structures that live as
    // long as the calls; none of them allocates or takes a lock of the process. What fails is done
    // without: there is nobody to be told.
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
        libc::prctl(libc::PR_SET_NAME, c"exec-keeper".as_ptr());
        // Where it has no right to that it stays.
        if let Some(out) = &post.out {
            let out = libc::open(out.as_ptr(), libc::O_WRONLY);
            if out != -1 {
                mutate!(
                    "os-keeper-out",
                    {
                        libc::write(out, c"0".as_ptr().cast(), 1);
                    },
                    {
                        libc::close(out);
                    }
                );
            }
        }
        if let Some(priority) = post.rank {
            // The parent's is not inherited.
            let parameters = libc::sched_param { sched_priority: i32::from(priority) };
            libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters);
        }
        // So that nobody waits for its end in vain.
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
        // The process may have died before the signal was asked for.
        while libc::getppid() == process {
            if libc::sigwaitinfo(wake.as_ptr(), std::ptr::null_mut()) == libc::SIGUSR1 {
                break;
            }
        }
        post.duty.clean();
        libc::_exit(0)
    }
}
