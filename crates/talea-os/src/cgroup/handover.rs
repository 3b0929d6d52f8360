//! Handover of cgroups from one governor to the next.
//!
//! A *governor* freezes and thaws cgroups that another process fills, and sets the levels of their
//! threads. Its members outlive it, so the groups must not stay in the state that it has left.
//!
//! | state of a group | lock | its threads | transitions |
//! | --- | --- | --- | --- |
//! | *governed* | of the governor | as the governor orders | to *handed over*, when the governor ends or is killed |
//! | *handed over* | free | frozen, FIFO 1 | to *governed*, by a successor; to *released*, after a second |
//! | *released* | free | thawed, ordinary | to *governed*, by a successor |
//!
//! A reaper makes the first transition within its wake-up latency, and the last one. It is outside
//! of the governor's control group, above the members in priority, and a killed one has a
//! successor. If the governor and its reaper are killed at one instant, the groups stay as they
//! are until a successor takes them over, or until [`release`].
//!
//! The lock is that of the file `cgroup.kill` of the group (`flock`), which only the owner of the
//! group can open. The kernel frees it when the governor ends, however it ends. The reaper freezes
//! a group without the lock, because the threads of a killed governor may still be ending. A
//! successor sets up its threads before it thaws a group, which takes longer than that.

use super::cleanup::{c_string, write};
use crate::reaper::{Cleanup, Reaper, ReaperConfig};
use crate::{Tid, file_lock};
use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use talea_core::mutate;

/// Time that a successor has before the reaper releases the groups.
const GRACE_PERIOD: libc::timespec = libc::timespec { tv_sec: 1, tv_nsec: 0 };
/// Time within which the threads of a killed governor must have ended.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of walks over the threads of a group that set a policy. Each walk after the first
/// finds threads that were created meanwhile.
const MAX_WALKS: u32 = 16;

/// Reason why groups cannot be taken over.
#[derive(Debug)]
pub enum HandoverError {
    /// Another process governs this group.
    Governed(PathBuf, Option<Tid>),
    /// The kernel refused an operation on this group.
    Os(PathBuf, io::Error),
}

impl fmt::Display for HandoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandoverError::Governed(path, holder) => {
                write!(f, "{} is governed by another process", path.display())?;
                holder.map_or(Ok(()), |pid| write!(f, ", {pid}"))
            }
            HandoverError::Os(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for HandoverError {}

/// Locks of governed groups, and the reaper that hands the groups over when this process ends.
#[derive(Debug)]
pub struct Handover {
    _locks: Vec<File>,
    /// Dropping it hands the groups over.
    _reaper: Reaper,
}

impl Handover {
    /// Takes over the groups at `paths`. The reaper runs at FIFO priority `priority` and moves to
    /// the cgroup at `top`, if it has the right.
    ///
    /// # Errors
    /// If another process governs a group, or the kernel refuses an operation.
    pub fn take(
        paths: &[PathBuf],
        top: Option<&Path>,
        priority: u8,
    ) -> Result<Handover, HandoverError> {
        let locks = paths.iter().map(|path| lock(path)).collect::<Result<Vec<File>, _>>()?;
        let os = |error| HandoverError::Os(paths.first().cloned().unwrap_or_default(), error);
        let groups = paths.iter().map(|path| LeftGroup::new(path));
        let groups = groups.collect::<io::Result<Vec<LeftGroup>>>().map_err(os)?;
        let top = top.map(Path::to_owned);
        let (reaper, ()) = Reaper::start(move |_, _| {
            Ok((ReaperConfig::new(LeftGroups(groups), top.as_deref(), Some(priority))?, ()))
        })
        .map_err(os)?;
        Ok(Handover { _locks: locks, _reaper: reaper })
    }
}

/// Lock of a group while a process enters it, unless a governor has the lock. In both cases no
/// reaper thaws the group meanwhile.
///
/// # Errors
/// The kernel's error.
pub fn keep_frozen(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().write(true).open(path.join("cgroup.kill"))?;
    Ok(file_lock::try_lock(&file)?.then_some(file))
}

/// Locks a group. Waits for the end of a killed governor.
fn lock(path: &Path) -> Result<File, HandoverError> {
    let os = |error| HandoverError::Os(path.to_owned(), error);
    let file = File::options().write(true).open(path.join("cgroup.kill")).map_err(os)?;
    let end = Instant::now() + LOCK_TIMEOUT;
    while !file_lock::try_lock(&file).map_err(os)? {
        if Instant::now() > end {
            let holder = file_lock::holder(&file).unwrap_or(None);
            return Err(HandoverError::Governed(path.to_owned(), holder));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(file)
}

/// Releases a group that no process governs: its threads become ordinary threads, and it is thawed.
///
/// # Errors
/// If another process governs the group, or the kernel refuses an operation.
pub fn release(path: &Path) -> Result<(), HandoverError> {
    let _lock = lock(path)?;
    let group = LeftGroup::new(path).map_err(|error| HandoverError::Os(path.to_owned(), error))?;
    // SAFETY: system calls only, on strings that end.
    unsafe { group.release() };
    Ok(())
}

/// Group of a governor that has ended.
struct LeftGroup {
    freeze: CString,
    threads: CString,
    lock: CString,
}

struct LeftGroups(Vec<LeftGroup>);

impl LeftGroup {
    fn new(path: &Path) -> io::Result<LeftGroup> {
        Ok(LeftGroup {
            freeze: c_string(&path.join("cgroup.freeze"))?,
            threads: c_string(&path.join("cgroup.threads"))?,
            lock: c_string(&path.join("cgroup.kill"))?,
        })
    }

    /// Freezes the group, and gives its threads the lowest real-time priority.
    ///
    /// # Safety
    /// Only system calls: see [`Cleanup::run`].
    unsafe fn hand_over(&self) {
        // SAFETY: as above.
        unsafe {
            write(&self.freeze, b"1");
            set_policy(&self.threads, libc::SCHED_FIFO, 1);
        }
    }

    /// Makes the threads of the group ordinary threads, and thaws it.
    ///
    /// # Safety
    /// Only system calls: see [`Cleanup::run`].
    unsafe fn release(&self) {
        // SAFETY: as above.
        unsafe {
            set_policy(&self.threads, libc::SCHED_OTHER, 0);
            write(&self.freeze, b"0");
            // A thread may have been created by one that was in a system call.
            set_policy(&self.threads, libc::SCHED_OTHER, 0);
        }
    }

    /// Releases the group unless a successor governs it.
    ///
    /// # Safety
    /// Only system calls: see [`Cleanup::run`].
    unsafe fn release_unless_governed(&self) {
        // SAFETY: system calls on a string that ends.
        unsafe {
            let file = libc::open(self.lock.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if file == -1 {
                return;
            }
            let is_free = libc::flock(file, libc::LOCK_EX | libc::LOCK_NB) == 0;
            if mutate!("os-handover-successor", is_free, true) {
                self.release();
            }
            libc::close(file);
        }
    }
}

impl Cleanup for LeftGroups {
    fn run(&self) {
        // SAFETY: system calls on strings that end, and on a structure that is valid; none of them
        // allocates.
        unsafe {
            self.0.iter().for_each(|group| group.hand_over());
            let mut left = GRACE_PERIOD;
            while libc::nanosleep(&raw const left, &raw mut left) == -1
                && *libc::__errno_location() == libc::EINTR
            {}
            self.0.iter().for_each(|group| group.release_unless_governed());
        }
    }
}

/// Sets a policy on all threads that the file `threads` lists, until a walk finds no other policy.
///
/// # Safety
/// Only system calls: see [`Cleanup::run`].
unsafe fn set_policy(threads: &CString, policy: libc::c_int, priority: libc::c_int) {
    let parameters = libc::sched_param { sched_priority: priority };
    let mut text = [0_u8; 4096];
    for _ in 0..MAX_WALKS {
        let (mut is_done, mut number) = (true, 0_i32);
        // SAFETY: system calls on a string that ends, on a buffer and on a structure that live as
        // long as the calls.
        unsafe {
            let file = libc::open(threads.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            if file == -1 {
                return;
            }
            while let Ok(length @ 1..) =
                usize::try_from(libc::read(file, text.as_mut_ptr().cast(), text.len()))
            {
                for &byte in &text[..length] {
                    if byte.is_ascii_digit() {
                        number = number.wrapping_mul(10).wrapping_add(i32::from(byte - b'0'));
                        continue;
                    }
                    let tid = std::mem::take(&mut number);
                    let now = libc::sched_getscheduler(tid);
                    // -1: the thread has ended.
                    if now != -1 && now & !libc::SCHED_RESET_ON_FORK != policy {
                        is_done = false;
                        libc::sched_setscheduler(tid, policy, &raw const parameters);
                    }
                }
            }
            libc::close(file);
        }
        if is_done {
            return;
        }
    }
}
