//! Groups of processes that are frozen, metered and killed as one: cgroup v2.
//!
//! Model: one directory per run below the top of the hierarchy, and one in it per program. A
//! program enters its cgroup before it starts, and everything that it creates starts there (a
//! program with rights over the hierarchy may leave). Freezing, CPU time and killing need no
//! controller, so this works wherever the hierarchy is mounted, also where version 1 has all
//! controllers.
//!
//! The kernel reports the CPU time of a cgroup in microseconds, exact for threads that do not run
//! at that moment. So the value is exact if it is read on the CPU to which the whole cgroup is
//! pinned.
//!
//! The kernel freezes a thread when it returns to user space. A thread in a long system call runs
//! on, so a cgroup may have a second group in the hierarchy of the `cpu` controller (v1), which
//! limits the real-time CPU time of its members also inside of system calls ([`rt_group`]).
//!
//! Cleanup: [`RunCgroups`] removes its cgroups and kills their processes; a reaper
//! does so if this process dies first, and [`remove_leftover`] if both were killed at the same
//! instant.
//!
//! Absent on purpose: freezing by version 1, where killing a frozen group takes several writes.

mod changes;
mod cleanup;
pub mod handover;
pub mod program_group;
pub mod rt_group;

pub use changes::CgroupChanges;

use crate::Tid;
use crate::proc;
use crate::reaper::{Reaper, ReaperConfig};
use crate::sys::is_gone;
use changes::has_line;
use cleanup::KillCgroup;
use rt_group::{RtGroup, RtLimit};
use rustix::fs::statfs;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use talea_core::Work;

/// Prefix of the directories of this module. The number and the start time of the reaper's parent
/// thread follow.
const PREFIX: &str = "talea-exec-";
/// Time limit within which killed processes must disappear.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the mount point of the cgroup v2 hierarchy.
pub fn mount_point() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (at, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(at.replace("\\040", " ")))
    };
    mounts.lines().filter_map(mount).next_back()
}

/// Whether an operation failed because another process has removed the cgroup.
pub fn is_removed(error: &io::Error) -> bool {
    is_gone(error)
}

/// One cgroup.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    freeze: File,
    usage: File,
    events: File,
    threads: File,
    rt_group: Option<RtGroup>,
}

/// Type of the file system of cgroup v2 (`linux/magic.h`).
const CGROUP2_SUPER_MAGIC: rustix::fs::FsWord = 0x6367_7270;
/// Size in bytes of a read of thread numbers.
const READ_SIZE: usize = 2048;

impl Cgroup {
    fn create(path: PathBuf) -> io::Result<Cgroup> {
        fs::create_dir(&path)?;
        Cgroup::open(path)
    }

    /// Opens a cgroup that exists, for example one that another process fills.
    ///
    /// # Errors
    /// If `path` is no directory of a cgroup v2 hierarchy, or is its top, which cannot be frozen.
    pub fn open(path: PathBuf) -> io::Result<Cgroup> {
        if statfs(&path)?.f_type != CGROUP2_SUPER_MAGIC {
            return Err(io::Error::other("not a directory of a cgroup v2 hierarchy"));
        }
        let freeze = File::options().read(true).write(true).open(path.join("cgroup.freeze"));
        let freeze = freeze.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other("the top of a hierarchy cannot be frozen"),
            _ => error,
        })?;
        let usage = File::open(path.join("cpu.stat"))?;
        let events = File::open(path.join("cgroup.events"))?;
        let threads = File::open(path.join("cgroup.threads"))?;
        Ok(Cgroup { path, freeze, usage, events, threads, rt_group: None })
    }

    /// Returns the directory of the cgroup.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Freezes the cgroup: no thread in it returns to user space. A thread that runs on another CPU
    /// continues until the kernel reaches it. A thread in a system call stops at the end of the
    /// call, however long that takes. Sleeping threads continue to sleep.
    pub fn freeze(&self) -> io::Result<()> {
        self.freeze.write_all_at(b"1", 0)
    }

    /// Thaws the cgroup. `epoll_wait` and `sigtimedwait` calls of its threads return as
    /// interrupted.
    pub fn thaw(&self) -> io::Result<()> {
        self.freeze.write_all_at(b"0", 0)
    }

    /// Returns the CPU time that all present and past members have used on any CPU.
    pub fn used(&self) -> io::Result<Work> {
        // The first line is: usage_usec NUMBER.
        let mut text = [0; 64];
        let len = self.usage.read_at(&mut text, 0)?;
        parse_usage(&text[..len])
            .ok_or_else(|| io::Error::other("cpu.stat does not begin with usage_usec"))
    }

    /// Returns the processes in the cgroup.
    pub fn processes(&self) -> io::Result<Vec<Tid>> {
        let text = fs::read_to_string(self.path.join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok().and_then(Tid::new)).collect())
    }

    /// Returns the threads in the cgroup.
    pub fn threads(&self) -> io::Result<Vec<Tid>> {
        let text = fs::read_to_string(self.path.join("cgroup.threads"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok().and_then(Tid::new)).collect())
    }

    /// Calls `visit` for each thread in the cgroup. May omit a thread that is created or ends
    /// meanwhile. Allocates nothing.
    pub fn for_each_thread(&self, mut visit: impl FnMut(Tid)) -> io::Result<()> {
        let (mut text, mut at, mut number) = ([0; READ_SIZE], 0, 0_i32);
        loop {
            let len = match self.threads.read_at(&mut text, at) {
                Ok(0) => return Ok(()),
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            at += len as u64;
            for &byte in &text[..len] {
                if byte.is_ascii_digit() {
                    number = number.wrapping_mul(10).wrapping_add(i32::from(byte - b'0'));
                } else if let Some(tid) = Tid::new(std::mem::take(&mut number)) {
                    visit(tid);
                }
            }
        }
    }

    /// Returns the group that limits the real-time CPU time of the cgroup, if there is one.
    pub fn rt_group(&self) -> Option<&RtGroup> {
        self.rt_group.as_ref()
    }

    /// Whether all threads in the cgroup are frozen.
    pub fn is_frozen(&self) -> io::Result<bool> {
        has_line(&self.events, "frozen 1")
    }

    /// Whether the last write to `cgroup.freeze` was a freeze, by any process. Threads may still be
    /// on their way.
    pub fn is_freezing(&self) -> io::Result<bool> {
        has_line(&self.freeze, "1")
    }

    /// Whether the cgroup has members.
    pub fn is_populated(&self) -> io::Result<bool> {
        has_line(&self.events, "populated 1")
    }

    /// Opens a descriptor that reports changes of the membership.
    pub fn changes(&self) -> io::Result<CgroupChanges> {
        CgroupChanges::open(&self.path)
    }

    /// Opens the file through which processes enter the cgroup.
    pub(crate) fn procs_file(&self) -> io::Result<File> {
        File::options().write(true).open(self.path.join("cgroup.procs"))
    }
}

fn parse_usage(text: &[u8]) -> Option<Work> {
    let text = text.strip_prefix(b"usage_usec ")?;
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok().and_then(Work::from_us)
}

/// Cgroups of one run.
#[derive(Debug)]
pub struct RunCgroups {
    path: PathBuf,
    cgroups: Vec<Arc<Cgroup>>,
    /// Reaper of the cgroups, present until all cgroups are removed.
    reaper: Option<Reaper>,
}

impl RunCgroups {
    /// Creates an empty cgroup for each element of `limits`, and a reaper that removes them and
    /// kills their members if this process dies. The reaper runs at FIFO priority `priority`, if
    /// given, because the members may have a higher priority than all other threads. A cgroup with
    /// a limit gets a real-time control group where the kernel grants one.
    ///
    /// # Errors
    /// Without the hierarchy, or without the right to create cgroups in it.
    pub fn create(limits: &[Option<RtLimit>], priority: Option<u8>) -> io::Result<RunCgroups> {
        let top = mount_point().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no cgroup2 file system is mounted")
        })?;
        let rt_top = rt_group::mount_point()
            .filter(|_| limits.iter().any(Option::is_some) && rt_group::is_throttled());
        let is_limited: Vec<bool> = limits.iter().map(Option::is_some).collect();
        // The reaper must exist before the first cgroup.
        let (reaper, (path, rt_paths)) = Reaper::start(move |parent, start_ticks| {
            let name = format!("{PREFIX}{}-{start_ticks}", parent.as_raw());
            let rt_path = |at: usize| {
                Some(rt_top.as_ref().filter(|_| is_limited[at])?.join(format!("{name}-{at}")))
            };
            let rt_paths: Vec<_> = (0..is_limited.len()).map(rt_path).collect();
            let path = top.join(name);
            let kill = KillCgroup::new(&path, rt_paths.iter().flatten())?;
            Ok((ReaperConfig::new(kill, Some(&top), priority)?, (path, rt_paths)))
        })?;
        let mut cgroups =
            RunCgroups { path: path.clone(), cgroups: Vec::new(), reaper: Some(reaper) };
        fs::create_dir(&path)?;
        for (at, (limit, rt_path)) in limits.iter().zip(rt_paths).enumerate() {
            let mut cgroup = Cgroup::create(path.join(at.to_string()))?;
            // The kernel may have no room for the limit: then the cgroup does without it.
            cgroup.rt_group =
                limit.zip(rt_path).and_then(|(limit, path)| RtGroup::create(path, limit).ok());
            cgroups.cgroups.push(Arc::new(cgroup));
        }
        Ok(cgroups)
    }

    /// Kills all members of all cgroups.
    ///
    /// # Errors
    /// If the kernel refuses the write.
    pub fn kill(&self) -> io::Result<()> {
        let killed = fs::write(self.path.join("cgroup.kill"), "1");
        self.rt_groups().for_each(RtGroup::release);
        killed
    }

    fn rt_groups(&self) -> impl Iterator<Item = &RtGroup> {
        self.cgroups.iter().filter_map(|cgroup| cgroup.rt_group())
    }

    /// Returns the threads in all cgroups of the run. Omits the threads of cgroups that it cannot
    /// read.
    pub fn threads(&self) -> Vec<Tid> {
        self.cgroups.iter().filter_map(|cgroup| cgroup.threads().ok()).flatten().collect()
    }

    /// Returns the cgroup at index `at`.
    pub fn cgroup(&self, at: usize) -> &Arc<Cgroup> {
        &self.cgroups[at]
    }
}

impl Drop for RunCgroups {
    fn drop(&mut self) {
        self.rt_groups().for_each(RtGroup::release);
        let removed = remove(&self.path);
        if self.rt_groups().map(RtGroup::remove).fold(removed, Result::and).is_ok()
            && let Some(reaper) = self.reaper.take()
        {
            reaper.disarm();
        }
        // Otherwise the reaper kills the remaining members when this process ends.
    }
}

/// Kills all members of a directory of this module and removes the directory.
fn remove(path: &Path) -> io::Result<()> {
    let end = Instant::now() + REMOVE_TIMEOUT;
    loop {
        // Repeated: a child that was being created may have been missed and would live. The file is
        // never created, so a removed directory stays removed.
        let kill = File::options().write(true).open(path.join("cgroup.kill"));
        kill.and_then(|file| file.write_all_at(b"1", 0)).or_else(unless_gone)?;
        match fs::remove_dir(path)
            .or_else(|_| remove_children(path).and_then(|()| fs::remove_dir(path)))
        {
            Err(error) if is_gone(&error) => return Ok(()),
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
}

/// Removes the directories below `path`, deepest first, because a program may have created cgroups
/// below its own cgroup.
fn remove_children(path: &Path) -> io::Result<()> {
    for entry in
        fs::read_dir(path)?.flatten().filter(|entry| entry.file_type().is_ok_and(|of| of.is_dir()))
    {
        remove_children(&entry.path())
            .and_then(|()| fs::remove_dir(entry.path()))
            .or_else(unless_gone)?;
    }
    Ok(())
}

fn unless_gone(error: io::Error) -> io::Result<()> {
    if is_gone(&error) { Ok(()) } else { Err(error) }
}

/// Returns the cgroups of runs whose process and reaper are both gone. The reaper's parent thread
/// stands for the process, because the parent thread ends at once with the process. Other threads
/// may have to wait for a CPU that the cgroup's threads occupy.
pub fn leftover() -> Vec<PathBuf> {
    let is_leftover = |name: &str| {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let pid = Tid::new(parts.next()?.parse().ok()?)?;
        let start_ticks: u64 = parts.next()?.parse().ok()?;
        Some(match proc::stat(pid) {
            Ok(stat) => stat.start_ticks != start_ticks || stat.has_ended(),
            // An unreadable file proves nothing.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        })
    };
    let tops = mount_point().into_iter().chain(rt_group::mount_point());
    let found = tops
        .filter_map(|top| fs::read_dir(top).ok())
        .flat_map(Iterator::flatten)
        .filter(|entry| entry.file_name().to_str().and_then(is_leftover) == Some(true));
    found.map(|entry| entry.path()).collect()
}

/// Removes the [`leftover`] cgroups, kills their members, and returns their paths.
///
/// # Errors
/// The last failure. All other cgroups were removed.
pub fn remove_leftover() -> io::Result<Vec<PathBuf>> {
    let found = leftover();
    let rt_top = rt_group::mount_point();
    let is_rt = |path: &Path| rt_top.as_ref().is_some_and(|top| path.starts_with(top));
    // Members of a throttled group could not exit.
    found.iter().filter(|path| is_rt(path)).for_each(|path| rt_group::release(path));
    let mut all = Ok(());
    for path in &found {
        all = if is_rt(path) { rt_group::remove(path) } else { remove(path) }.and(all);
    }
    all.map(|()| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_cgroup_is_read_in_microseconds() {
        assert_eq!(parse_usage(b"usage_usec 98196\nuser_usec 5\n"), Work::from_us(98_196));
        assert_eq!(parse_usage(b"usage_usec 0"), Some(Work::ZERO));
        assert_eq!(parse_usage(b"usage_usec \n"), None);
        assert_eq!(parse_usage(b"user_usec 1\n"), None);
        assert_eq!(parse_usage(b""), None);
    }

    #[test]
    fn cgroups_of_living_processes_are_not_leftover() {
        // A cgroup of a living process is never returned.
        let mine = format!("{PREFIX}{}-", Tid::current().as_raw());
        assert!(leftover().iter().all(|path| !path.to_string_lossy().contains(&mine)));
    }
}
