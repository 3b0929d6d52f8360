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
//! Cleanup: [`RunCgroups`] removes its cgroups and kills their processes; a reaper
//! does so if this process dies first, and [`remove_leftover`] if both were killed at the same
//! instant.
//!
//! Absent on purpose: version 1, where killing a frozen group takes several writes.

mod cleanup;

use crate::Tid;
use crate::proc;
use crate::reaper::{Reaper, ReaperConfig};
use cleanup::KillCgroup;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use talea_core::Work;

/// Prefix of our directories; the number and the start time of the reaper's parent thread follow.
const PREFIX: &str = "talea-exec-";
/// Time limit for killed processes to disappear.
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

/// One cgroup.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    freeze: File,
    usage: File,
}

impl Cgroup {
    fn create(path: PathBuf) -> io::Result<Cgroup> {
        fs::create_dir(&path)?;
        let freeze = File::options().write(true).open(path.join("cgroup.freeze"))?;
        let usage = File::open(path.join("cpu.stat"))?;
        Ok(Cgroup { path, freeze, usage })
    }

    /// Freezes the cgroup: no thread in it returns to user space. A thread that runs on another CPU
    /// continues until the kernel reaches it. A thread in a system call stops at the end of the
    /// call, however long that takes. Sleeping threads continue to sleep.
    pub fn freeze(&self) -> io::Result<()> {
        self.freeze.write_all_at(b"1", 0)
    }

    /// Thaws the cgroup. `epoll_wait` and `sigtimedwait` calls in it return as interrupted.
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

    /// Whether all threads in the cgroup are frozen.
    pub fn is_frozen(&self) -> io::Result<bool> {
        self.has_event("frozen 1")
    }

    /// Whether the cgroup has members.
    pub fn is_populated(&self) -> io::Result<bool> {
        self.has_event("populated 1")
    }

    fn has_event(&self, line: &str) -> io::Result<bool> {
        Ok(fs::read_to_string(self.path.join("cgroup.events"))?.lines().any(|found| found == line))
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
    cgroups: Vec<Cgroup>,
    /// Set until all cgroups are removed.
    reaper: Option<Reaper>,
}

impl RunCgroups {
    /// Creates `count` empty cgroups, and a reaper that removes them and kills their members if
    /// this process dies. The reaper runs at FIFO priority `priority`, if given, because the
    /// members may have a higher priority than all other threads.
    ///
    /// # Errors
    /// Without the hierarchy, or without the right to create cgroups in it.
    pub fn create(count: usize, priority: Option<u8>) -> io::Result<RunCgroups> {
        let top = mount_point().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no cgroup2 file system is mounted")
        })?;
        // The reaper must exist before the first cgroup.
        let (reaper, path) = Reaper::start(move |parent, start_ticks| {
            let path = top.join(format!("{PREFIX}{}-{start_ticks}", parent.as_raw()));
            Ok((ReaperConfig::new(KillCgroup::new(&path)?, Some(&top), priority)?, path))
        })?;
        let mut cgroups =
            RunCgroups { path: path.clone(), cgroups: Vec::new(), reaper: Some(reaper) };
        fs::create_dir(&path)?;
        for at in 0..count {
            cgroups.cgroups.push(Cgroup::create(path.join(at.to_string()))?);
        }
        Ok(cgroups)
    }

    /// Kills all members of all cgroups.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    /// Returns the threads in all cgroups; those of an unreadable cgroup are omitted.
    pub fn threads(&self) -> Vec<Tid> {
        self.cgroups.iter().filter_map(|cgroup| cgroup.threads().ok()).flatten().collect()
    }

    /// Returns the cgroup at this index.
    pub fn cgroup(&self, at: usize) -> &Cgroup {
        &self.cgroups[at]
    }
}

impl Drop for RunCgroups {
    fn drop(&mut self) {
        if remove(&self.path).is_ok()
            && let Some(reaper) = self.reaper.take()
        {
            reaper.disarm();
        }
        // Otherwise the reaper kills the remaining members when this process ends.
    }
}

/// Kills all members of one of our directories and removes it.
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

/// Removes the directories below `path`, deepest first: a program may have created cgroups of its
/// own.
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

/// Whether another process has removed the directory already.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

fn unless_gone(error: io::Error) -> io::Result<()> {
    if is_gone(&error) { Ok(()) } else { Err(error) }
}

/// Returns the cgroups of runs whose process and reaper are both gone. The reaper's parent thread
/// stands for the process: it ends at once with the process, whereas other threads may have to wait
/// for a CPU that the cgroup's threads occupy.
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
    let Some(entries) = mount_point().and_then(|top| fs::read_dir(top).ok()) else {
        return Vec::new();
    };
    let found = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().and_then(is_leftover) == Some(true));
    found.map(|entry| entry.path()).collect()
}

/// Removes the [`leftover`] cgroups, kills their members, and returns their paths.
///
/// # Errors
/// The last failure; all other cgroups were removed.
pub fn remove_leftover() -> io::Result<Vec<PathBuf>> {
    let found = leftover();
    let mut all = Ok(());
    for path in &found {
        all = remove(path).and(all);
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
