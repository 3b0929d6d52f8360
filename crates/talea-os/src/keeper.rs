//! A process that puts things back for another one that has died.
//!
//! Model: a copy of the process that shares nothing with it: no descriptor, no session, no signal that a terminal sends to all. It
//! sleeps until its parent ends, kills who is in its groups and removes them, and is gone. A process that has done so itself
//! dismisses it before.
//!
//! Its parent is a *thread* (`PR_SET_PDEATHSIG` is about those), which is there for nothing else, at the same rank as the keeper. A
//! process has not ended before all its threads have, and some of them may not even get a CPU to do so from the very programs that
//! are to be killed; this one does.
//!
//! Between `fork` and its end it makes system calls on data that were prepared before, and nothing else: the other threads of the
//! process do not exist in it, but the locks that they held do.

use crate::sys::check;
use crate::{Attr, Policy, Tid, proc, sched};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

/// Tries to remove a group, a millisecond apart.
const TRIES: u32 = 5_000;

/// The keeper of a run.
#[derive(Debug)]
pub(crate) struct Keeper {
    pid: Tid,
    dismiss: Sender<()>,
    parent: JoinHandle<()>,
}

/// What it needs, made before it is alone.
struct Duty {
    kill: CString,
    /// Inner ones first.
    rooms: Vec<CString>,
    rank: Option<u8>,
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

impl Keeper {
    /// Keeps the group at the path that `place` makes of the keeper's parent and the moment that this began, with those in it; they
    /// need not exist yet.
    pub(crate) fn start(
        place: impl FnOnce(Tid, u64) -> (PathBuf, Vec<PathBuf>) + Send + 'static,
        rank: Option<u8>,
    ) -> io::Result<(Keeper, PathBuf)> {
        let (say, said) = channel();
        let (dismiss, dismissed) = channel::<()>();
        let parent = Builder::new().name("exec-keeper".into()).spawn(move || {
            let begin = || -> io::Result<(Tid, PathBuf)> {
                let me = Tid::current();
                let (path, inner) = place(me, proc::stat(me)?.start_ticks);
                let mut rooms = inner.iter().map(|path| c_string(path)).collect::<io::Result<Vec<_>>>()?;
                rooms.push(c_string(&path)?);
                let duty = Duty { kill: c_string(&path.join("cgroup.kill"))?, rooms, rank };
                Ok((fork(&duty)?, path))
            };
            let child = begin();
            let pid = child.as_ref().ok().map(|&(pid, _)| pid);
            // Whoever waits for it has not gone.
            let _ = say.send(child);
            if let (Some(pid), Ok(())) = (pid, dismissed.recv()) {
                end(pid);
            }
        })?;
        let (pid, path) = said.recv().map_err(io::Error::other)??;
        Ok((Keeper { pid, dismiss, parent }, path))
    }

    pub(crate) fn pid(&self) -> Tid {
        self.pid
    }

    /// Nothing is left to be done. A keeper that is dropped instead does it now.
    pub(crate) fn dismiss(self) {
        // Its parent waits for nothing else.
        let _ = self.dismiss.send(());
        let _ = self.parent.join();
    }
}

/// Takes the rank of the keeper, and becomes its parent.
fn fork(duty: &Duty) -> io::Result<Tid> {
    if let Some(priority) = duty.rank {
        sched::set(Tid::current(), &Attr::grant(Policy::Fifo(priority)))?;
    }
    let process = Tid::of_process().as_raw();
    // SAFETY: the child only makes system calls until it ends (`keep`), as a copy of one thread among several must.
    match check(unsafe { libc::fork() })? {
        0 => keep(process, duty),
        pid => Ok(Tid::new(pid).expect("a child has a positive pid")),
    }
}

/// Ends a keeper of the calling thread.
fn end(pid: Tid) {
    // SAFETY: integers, and no status is wanted; the child is ours and was not waited for, so the number is its own.
    unsafe {
        libc::kill(pid.as_raw(), libc::SIGKILL);
        while libc::waitpid(pid.as_raw(), std::ptr::null_mut(), 0) == -1
            && *libc::__errno_location() == libc::EINTR
        {}
    }
}

/// The life of the keeper.
fn keep(process: i32, duty: &Duty) -> ! {
    // SAFETY: system calls with integers, with strings that end and with structures that live as long as the calls; none of
    // them allocates or takes a lock of the process. What fails is done without: there is nobody to be told.
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
        libc::prctl(libc::PR_SET_NAME, c"talea-keeper".as_ptr());
        if let Some(priority) = duty.rank {
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
        clean(duty);
        libc::_exit(0)
    }
}

/// # Safety
/// Only system calls: see [`keep`].
unsafe fn clean(duty: &Duty) {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: as those of the caller; every string ends, and the pause is a valid structure.
    unsafe {
        for _ in 0..TRIES {
            // Each time: a child that was being made may have been missed, and would live.
            let file = libc::open(duty.kill.as_ptr(), libc::O_WRONLY);
            if file != -1 {
                libc::write(file, c"1".as_ptr().cast(), 1);
                libc::close(file);
            }
            let mut last = 0;
            for room in &duty.rooms {
                last = libc::rmdir(room.as_ptr());
            }
            if last == 0 || matches!(*libc::__errno_location(), libc::ENOENT | libc::ENODEV) {
                return;
            }
            libc::nanosleep(&raw const pause, std::ptr::null_mut());
        }
    }
}
