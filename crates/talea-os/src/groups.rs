//! Groups of processes that are stopped, metered and ended as one: cgroup v2.
//!
//! Model: a directory of ours below the top of the hierarchy for a run, and one in it for each
//! program. A program is put into its group before it begins, and everything that it creates begins
//! there (one with rights over the hierarchy may leave). Freezing, CPU time and ending need no
//! controller, so this works wherever the hierarchy is mounted at all, also where version 1 has all
//! of them.
//!
//! What a group has consumed is told in microseconds, and is up to date for whoever does not run at
//! that moment; so it is exact when it is asked on the CPU to which all of a group is pinned.
//!
//! Nothing survives: [`Family`] removes its groups with all who are in them, a process that keeps
//! them does that if this one dies before, and [`sweep`] if both were killed at the same instant.
//!
//! Absent on purpose: version 1, whose freezer takes several writes to end what it holds.

mod last;

use crate::Tid;
use crate::keeper::{Keeper, Post};
use crate::proc;
use last::Rites;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use talea_core::Work;

/// How ours are called: this, the keeper's parent, a thread of the process, and when that began.
const PREFIX: &str = "talea-exec-";
/// How long those who were killed may take to be gone.
const DYING: Duration = Duration::from_secs(2);

/// Where the hierarchy is mounted.
pub fn hierarchy() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (at, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(at.replace("\\040", " ")))
    };
    mounts.lines().filter_map(mount).next_back()
}

/// One group.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    freeze: File,
    usage: File,
}

impl Group {
    fn create(path: PathBuf) -> io::Result<Group> {
        fs::create_dir(&path)?;
        let freeze = File::options().write(true).open(path.join("cgroup.freeze"))?;
        let usage = File::open(path.join("cpu.stat"))?;
        Ok(Group { path, freeze, usage })
    }

    /// Nobody in it gets back to user space: those who run on another CPU do until they are
    /// reached, and who is in a system call is stopped at its end, however long it works there;
    /// those who sleep go on sleeping.
    pub fn freeze(&self) -> io::Result<()> {
        self.freeze.write_all_at(b"1", 0)
    }

    /// They go on. Who slept in `epoll_wait` or `sigtimedwait` is told that it was interrupted.
    pub fn thaw(&self) -> io::Result<()> {
        self.freeze.write_all_at(b"0", 0)
    }

    /// What all who are or were in it have used of any CPU.
    pub fn used(&self) -> io::Result<Work> {
        // Its first line: usage_usec NUMBER.
        let mut text = [0; 64];
        let len = self.usage.read_at(&mut text, 0)?;
        parse_usage(&text[..len])
            .ok_or_else(|| io::Error::other("cpu.stat does not begin with usage_usec"))
    }

    /// The processes in it.
    pub fn members(&self) -> io::Result<Vec<Tid>> {
        let text = fs::read_to_string(self.path.join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok().and_then(Tid::new)).collect())
    }

    /// The threads in it.
    pub fn threads(&self) -> io::Result<Vec<Tid>> {
        let text = fs::read_to_string(self.path.join("cgroup.threads"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok().and_then(Tid::new)).collect())
    }

    /// Whether everybody in it stands still.
    pub fn is_frozen(&self) -> io::Result<bool> {
        self.event("frozen 1")
    }

    /// Whether there is anybody in it.
    pub fn is_populated(&self) -> io::Result<bool> {
        self.event("populated 1")
    }

    fn event(&self, line: &str) -> io::Result<bool> {
        Ok(fs::read_to_string(self.path.join("cgroup.events"))?.lines().any(|found| found == line))
    }

    /// Where those are written who are to be in it.
    pub(crate) fn door(&self) -> io::Result<File> {
        File::options().write(true).open(self.path.join("cgroup.procs"))
    }
}

fn parse_usage(text: &[u8]) -> Option<Work> {
    let text = text.strip_prefix(b"usage_usec ")?;
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok().and_then(Work::from_us)
}

/// The groups of one run.
#[derive(Debug)]
pub struct Family {
    path: PathBuf,
    groups: Vec<Group>,
    /// Until nothing is left to be removed.
    keeper: Option<Keeper>,
}

impl Family {
    /// So many empty groups, and a process that removes them with all who are in them should this
    /// one die; at the FIFO priority `rank`, if there is one, because whoever is in them may stand
    /// above all others.
    ///
    /// # Errors
    /// Without the hierarchy, or without the right to make groups in it.
    pub fn found(count: usize, rank: Option<u8>) -> io::Result<Family> {
        let top = hierarchy().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no cgroup2 file system is mounted")
        })?;
        // Before there is anything to be kept.
        let (keeper, path) = Keeper::start(move |parent, begun| {
            let path = top.join(format!("{PREFIX}{}-{begun}", parent.as_raw()));
            Ok((Post::new(Rites::of(&path)?, Some(&top), rank)?, path))
        })?;
        let mut family = Family { path: path.clone(), groups: Vec::new(), keeper: Some(keeper) };
        fs::create_dir(&path)?;
        for at in 0..count {
            family.groups.push(Group::create(path.join(at.to_string()))?);
        }
        Ok(family)
    }

    /// Ends everybody in any of them.
    ///
    /// # Errors
    /// If the kernel refuses that.
    pub fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    /// The threads in all of them; those of a group that can't be read are left out.
    pub fn threads(&self) -> Vec<Tid> {
        self.groups.iter().filter_map(|group| group.threads().ok()).flatten().collect()
    }

    /// One of them.
    pub fn group(&self, at: usize) -> &Group {
        &self.groups[at]
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if remove(&self.path).is_ok()
            && let Some(keeper) = self.keeper.take()
        {
            keeper.dismiss();
        }
        // Else whoever is left is the keeper's when this process ends.
    }
}

/// Ends all who are in a directory of ours, and removes it.
fn remove(path: &Path) -> io::Result<()> {
    let end = Instant::now() + DYING;
    loop {
        // Each time: a child that was being made may have been missed, and would live. Never made:
        // what is gone stays so.
        let kill = File::options().write(true).open(path.join("cgroup.kill"));
        kill.and_then(|file| file.write_all_at(b"1", 0)).or_else(unless_gone)?;
        match fs::remove_dir(path).or_else(|_| below(path).and_then(|()| fs::remove_dir(path))) {
            Err(error) if is_gone(&error) => return Ok(()),
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
}

/// Removes what is below, the deepest first: a program may have made groups of its own.
fn below(path: &Path) -> io::Result<()> {
    for entry in
        fs::read_dir(path)?.flatten().filter(|entry| entry.file_type().is_ok_and(|of| of.is_dir()))
    {
        below(&entry.path()).and_then(|()| fs::remove_dir(entry.path())).or_else(unless_gone)?;
    }
    Ok(())
}

/// Somebody else was faster.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

fn unless_gone(error: io::Error) -> io::Result<()> {
    if is_gone(&error) { Ok(()) } else { Err(error) }
}

/// Groups of runs whose process is gone, and whose keeper, too. The parent of the keeper stands for
/// the process: it ends at once with it, where other threads may have to wait for a CPU that those
/// in the groups have.
pub fn orphans() -> Vec<PathBuf> {
    let is_orphan = |name: &str| {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let pid = Tid::new(parts.next()?.parse().ok()?)?;
        let begun: u64 = parts.next()?.parse().ok()?;
        Some(match proc::stat(pid) {
            Ok(stat) => stat.start_ticks != begun || stat.has_ended(),
            // What can't be read says nothing.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        })
    };
    let Some(entries) = hierarchy().and_then(|top| fs::read_dir(top).ok()) else {
        return Vec::new();
    };
    let found = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().and_then(is_orphan) == Some(true));
    found.map(|entry| entry.path()).collect()
}

/// Removes [`orphans`] with all who are in them; those that were there.
///
/// # Errors
/// The last that could not be removed; the others were.
pub fn sweep() -> io::Result<Vec<PathBuf>> {
    let found = orphans();
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
    fn the_time_of_a_group_is_read_in_microseconds() {
        assert_eq!(parse_usage(b"usage_usec 98196\nuser_usec 5\n"), Work::from_us(98_196));
        assert_eq!(parse_usage(b"usage_usec 0"), Some(Work::ZERO));
        assert_eq!(parse_usage(b"usage_usec \n"), None);
        assert_eq!(parse_usage(b"user_usec 1\n"), None);
        assert_eq!(parse_usage(b""), None);
    }

    #[test]
    fn names_of_others_are_nobodys_orphans() {
        // Whatever is there, nothing of a living process is found.
        let mine = format!("{PREFIX}{}-", Tid::current().as_raw());
        assert!(orphans().iter().all(|path| !path.to_string_lossy().contains(&mine)));
    }
}
