//! A process that puts things back for another one that has died.
//!
//! Model: a copy of the process that shares nothing with it: no descriptor, no session, no signal that a terminal sends to all. It
//! sleeps until its parent ends, kills who is in its groups and removes them, and is gone. A process that has done so itself
//! dismisses it before.
//!
//! Its parent is a *thread* (`PR_SET_PDEATHSIG` is about those), which is there for nothing else, at the same rank as the keeper. A
//! process has not ended before all its threads have, and some of them may not even get a CPU to do so from the very programs that
//! are to be killed; this one does. And if the keeper is killed, it makes another one at once.
//!
//! Who ends a process with all that belongs to it shall not end its keeper, too, whom it needs just then. So that leaves the process's group
//! (a service manager's stop ends all who are in that), its session and its group of processes, and has a name of its own.
//!
//! Between `fork` and its end it makes system calls on data that were prepared before, and nothing else: the other threads of the
//! process do not exist in it, but the locks that they held do.

use crate::sys::check;
use crate::{Attr, Policy, Tid, proc, sched};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Tries to remove a group, a millisecond apart.
const TRIES: u32 = 5_000;
/// So many keepers follow one that is killed: who ends more of them means it, or something else is wrong.
const SUCCESSORS: u32 = 100;
/// Groups stand below each other at most so deep, or are left.
const DEPTH: u32 = 16;

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
struct Duty {
    kill: CString,
    room: CString,
    /// Who writes there leaves the group where it is.
    out: CString,
    rank: Option<u8>,
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keeper {
    /// Keeps the group at the path that `place` makes of the keeper's parent and the moment that this began, with those in it; it
    /// need not exist yet.
    pub(crate) fn start(
        place: impl FnOnce(Tid, u64) -> PathBuf + Send + 'static,
        rank: Option<u8>,
    ) -> io::Result<(Keeper, PathBuf)> {
        let (say, said) = channel();
        let parent = Builder::new().name("exec-keeper".into()).spawn(move || {
            let begin = || -> io::Result<(Duty, Tid, PathBuf)> {
                let me = Tid::current();
                let path = place(me, proc::stat(me)?.start_ticks);
                let (kill, out) = (path.join("cgroup.kill"), path.with_file_name("cgroup.procs"));
                let duty =
                    Duty { kill: c_string(&kill)?, room: c_string(&path)?, out: c_string(&out)?, rank };
                hold_back();
                let pid = fork(&duty)?;
                Ok((duty, pid, path))
            };
            // Whoever waits for it has not gone.
            match begin() {
                Ok((duty, pid, path)) => {
                    let child = Arc::new(Mutex::new(Child { pid: Some(pid), is_needed: true }));
                    let _ = say.send(Ok((Arc::clone(&child), path)));
                    look_after(&child, &duty);
                }
                Err(error) => drop(say.send(Err(error))),
            }
        })?;
        let (child, path) = said.recv().map_err(io::Error::other)??;
        Ok((Keeper { child, parent: Some(parent) }, path))
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

/// Keeps the calling thread, and whoever it makes, from being ended by what tells the keeper to begin.
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
fn look_after(child: &Mutex<Child>, duty: &Duty) {
    for _ in 0..=SUCCESSORS {
        let Some(pid) = lock(child).pid else { return };
        // Without its status, and so without its number, which somebody may be about to send a signal to.
        wait(pid, libc::WEXITED | libc::WNOWAIT);
        let mut child = lock(child);
        wait(pid, libc::WEXITED);
        child.pid = if child.is_needed { fork(duty).ok() } else { None };
    }
}

/// Waits for the end of a child.
fn wait(pid: Tid, options: libc::c_int) {
    let mut status = std::mem::MaybeUninit::<libc::siginfo_t>::uninit();
    // SAFETY: the kernel fills a structure that nobody reads.
    unsafe {
        while libc::waitid(libc::P_PID, pid.as_raw() as libc::id_t, status.as_mut_ptr(), options) == -1
            && *libc::__errno_location() == libc::EINTR
        {}
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
        libc::prctl(libc::PR_SET_NAME, c"exec-keeper".as_ptr());
        // Where it has no right to that it stays.
        let out = libc::open(duty.out.as_ptr(), libc::O_WRONLY);
        if out != -1 {
            libc::write(out, c"0".as_ptr().cast(), 1);
        }
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
            if remove(libc::AT_FDCWD, duty.room.as_ptr(), DEPTH) {
                return;
            }
            libc::nanosleep(&raw const pause, std::ptr::null_mut());
        }
    }
}

/// Removes a group with those below it: a program may have made some. Whether it is gone.
///
/// # Safety
/// Only system calls: see [`keep`]. The name ends.
unsafe fn remove(at: libc::c_int, name: *const libc::c_char, depth: u32) -> bool {
    // What `getdents64` writes: a number and an offset, of eight bytes each, the entry's length, of two, its kind, of one, and its name.
    const LENGTH: usize = 16;
    const KIND: usize = 18;
    const NAME: usize = 19;
    // SAFETY: as those of the caller; the kernel fills the buffer with whole entries, whose names end, and says how much it has filled.
    unsafe {
        let is_gone = || matches!(*libc::__errno_location(), libc::ENOENT | libc::ENODEV);
        if libc::unlinkat(at, name, libc::AT_REMOVEDIR) == 0 || is_gone() {
            return true;
        }
        if depth == 0 {
            return false;
        }
        let folder = libc::openat(at, name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW);
        if folder == -1 {
            return is_gone();
        }
        let mut buffer = [0_u64; 256];
        let bytes = buffer.as_mut_ptr().cast::<u8>();
        loop {
            let filled = libc::syscall(libc::SYS_getdents64, folder, bytes, size_of_val(&buffer));
            let Some(filled) = usize::try_from(filled).ok().filter(|&filled| filled > 0) else { break };
            let mut entry = 0;
            while entry < filled {
                let of = bytes.add(entry);
                let name = of.add(NAME).cast::<libc::c_char>();
                if *of.add(KIND) == libc::DT_DIR && *name != b'.' as libc::c_char {
                    remove(folder, name, depth - 1);
                }
                entry += usize::from(of.add(LENGTH).cast::<u16>().read_unaligned());
            }
        }
        libc::close(folder);
        libc::unlinkat(at, name, libc::AT_REMOVEDIR) == 0 || is_gone()
    }
}
