//! Attributes of threads from `/proc`.
//!
//! Every answer is about the thread that has the number at that moment; [`crate::Thread`] checks
//! before and after. Paths of the form `/proc/TID` exist for every thread, not only for main
//! threads.

use crate::Tid;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use talea_core::{Span, Work};

/// Users of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uids {
    /// Real user id.
    pub real: u32,
    /// Effective user id: the thread's owner for access rules.
    pub effective: u32,
    /// Saved user id, to which the thread may return.
    pub saved: u32,
}

/// Fields of `/proc/TID/stat` that identify a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// State letter: `R`, `S`, `D`, `T`, `Z`, `X` …
    pub state: u8,
    /// Number of the parent process; 0 if there is none.
    pub parent: i32,
    /// Flags of the thread: `PF_*`.
    pub flags: u32,
    /// Start time in clock ticks since boot. Thread number and start time together name one thread
    /// of this boot.
    pub start_ticks: u64,
    /// CPU on which the thread ran last. A sleeping thread stays there until it wakes, even if its
    /// affinity excludes the CPU.
    pub cpu: u32,
}

const PF_KTHREAD: u32 = 0x0020_0000;
const PF_EXITING: u32 = 0x4;
/// Flag of a thread whose affinity no user may change.
const PF_NO_SETAFFINITY: u32 = 0x0400_0000;

impl Stat {
    /// Whether the thread is a kernel thread.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// Whether the kernel refuses to change the thread's affinity.
    pub fn is_bound(&self) -> bool {
        self.flags & PF_NO_SETAFFINITY != 0
    }

    /// Whether the thread is about to end.
    pub fn is_exiting(&self) -> bool {
        self.flags & PF_EXITING != 0
    }

    /// Whether the thread has ended and only waits to be collected.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Fields of `/proc/TID/status` that Talea uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Process of the thread, named by its main thread.
    pub tgid: Tid,
    /// Number of the parent process; 0 if there is none.
    pub parent: i32,
    /// Real and effective user of the thread.
    pub uids: Uids,
    /// Effective group of the thread.
    pub effective_group: u32,
    /// Supplementary groups of the thread.
    pub groups: Vec<u32>,
    /// Numbers of the thread in its PID namespaces, from the namespace of the mounted `/proc` down
    /// to the thread's own.
    pub ns_tids: Vec<i32>,
}

/// Returns the threads of process `pid`, main thread first. May omit threads that start meanwhile.
pub fn threads_of(pid: Tid) -> io::Result<Vec<Tid>> {
    let mut tids = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        tids.extend(
            entry?.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Tid::new),
        );
    }
    tids.sort_unstable_by_key(|&tid| (tid != pid, tid));
    Ok(tids)
}

/// Returns the thread's name, at most 15 bytes. Replaces invalid UTF-8.
pub fn comm(tid: Tid) -> io::Result<String> {
    let name = std::fs::read(format!("/proc/{tid}/comm"))?;
    Ok(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

/// Returns the resident memory of this process, in bytes.
pub fn resident_memory() -> io::Result<u64> {
    let statm = String::from_utf8_lossy(&read("/proc/self/statm")?).into_owned();
    let pages = statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| unreadable("statm"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Returns the path of the program that the process runs. Needs the right to inspect the process.
/// Kernel threads have no program (`ENOENT`).
pub fn exe(tid: Tid) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/{tid}/exe"))
}

/// Reads `/proc/TID/stat`.
pub fn stat(tid: Tid) -> io::Result<Stat> {
    stat_at(&format!("/proc/{tid}/stat"))
}

/// Variant of [`stat`] for a thread of process `tgid`. `/proc/TID/stat` sums the CPU time of all
/// threads of the process, which takes time proportional to their number.
/// `/proc/TGID/task/TID/stat` does not.
///
/// Does not allocate: a caller above all other threads must not wait for the lock of the allocator.
pub fn stat_of(tgid: Tid, tid: Tid) -> io::Result<Stat> {
    // Two numbers of at most 10 digits.
    let mut path = io::Cursor::new([0; 48]);
    write!(path, "/proc/{tgid}/task/{tid}/stat")?;
    let length = path.position() as usize;
    let path = path.into_inner();
    stat_at(std::str::from_utf8(&path[..length]).map_err(io::Error::other)?)
}

/// Reads a stat file without allocating, if the file has the known form.
pub(crate) fn stat_at(path: &str) -> io::Result<Stat> {
    // 52 numbers of at most 20 digits and a name of at most 64 bytes; the kernel returns the line
    // in one piece.
    let mut buffer = [0; 2048];
    parse_stat(read_into(path, &mut buffer)?).ok_or_else(|| unreadable("stat"))
}

/// Reads `/proc/TID/status`.
pub fn status(tid: Tid) -> io::Result<Status> {
    parse_status(&read(&format!("/proc/{tid}/status"))?).ok_or_else(|| unreadable("status"))
}

/// Times of a thread since its creation. They are exact for a thread that does not run, and zero
/// where the kernel does not count (no SCHED_INFO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTimes {
    /// Time with a CPU.
    pub ran: Span,
    /// Time in which the thread was ready and another thread had its CPU.
    pub waited: Span,
}

/// Returns how long a thread has had a CPU or waited for one since its creation.
pub fn runnable_time(tid: Tid) -> io::Result<Span> {
    let times = run_times(tid)?;
    Ok(Span::from_ns(times.ran.as_ns().saturating_add(times.waited.as_ns())))
}

/// Returns the CPU time of a thread, as of the last tick or switch on its CPU.
pub fn cpu_time(tid: Tid) -> io::Result<Work> {
    run_times(tid).map(|times| Work::from_ns(times.ran.as_ns()))
}

/// Returns the times of a thread with a CPU and in a run queue. Allocates nothing.
pub fn run_times(tid: Tid) -> io::Result<RunTimes> {
    let mut path = [0; 40];
    let mut rest = &mut path[..];
    write!(rest, "/proc/{tid}/schedstat")?;
    let unused = rest.len();
    let path = str::from_utf8(&path[..path.len() - unused]).map_err(io::Error::other)?;
    // Time with a CPU, time in a run queue, and number of times that it got a CPU.
    let mut buffer = [0; 80];
    let text = read_into(path, &mut buffer)?;
    let mut numbers = text
        .split(u8::is_ascii_whitespace)
        .map(|word| str::from_utf8(word).ok().and_then(|word| word.parse::<u64>().ok()));
    let (Some(Some(ran)), Some(Some(waited))) = (numbers.next(), numbers.next()) else {
        return Err(unreadable("schedstat"));
    };
    Ok(RunTimes { ran: Span::from_ns(ran), waited: Span::from_ns(waited) })
}

fn unreadable(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/TID/{name} has an unknown form"))
}

/// Reads a file of `/proc`. For a thread that ends between open and read the kernel returns
/// `ESRCH`, which this function reports as "not found".
pub(crate) fn read(path: &str) -> io::Result<Vec<u8>> {
    std::fs::read(path).map_err(ended_is_absent)
}

/// Variant of [`read`] for a file that fits into `buffer`. Takes three system calls and allocates
/// nothing.
pub(crate) fn read_into<'a>(path: &str, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let length = std::fs::File::open(path)
        .and_then(|mut file| file.read(buffer))
        .map_err(ended_is_absent)?;
    Ok(&buffer[..length])
}

/// Converts the error of a thread that ends between open and read to "not found".
fn ended_is_absent(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ESRCH) => crate::sys::errno(libc::ENOENT),
        _ => error,
    }
}

/// Parses a stat line. The name may contain spaces and parentheses, so fields are counted from the
/// last parenthesis.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let rest = &text[text.iter().rposition(|&byte| byte == b')')? + 1..];
    // `nth` continues from the last field: its argument counts the fields in between.
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    Some(Stat {
        state: *fields.next()?.as_bytes().first()?,
        parent: fields.next()?.parse().ok()?,
        flags: fields.nth(4)?.parse().ok()?,
        start_ticks: fields.nth(12)?.parse().ok()?,
        cpu: fields.nth(16)?.parse().ok()?,
    })
}

fn parse_status(text: &[u8]) -> Option<Status> {
    let (mut uids, mut gids) = (field(text, "Uid")?, field(text, "Gid")?);
    let groups = field(text, "Groups").into_iter().flatten();
    let ns_tids = field(text, "NSpid").into_iter().flatten();
    Some(Status {
        tgid: field(text, "Tgid")?.next()?.parse().ok().and_then(Tid::new)?,
        parent: field(text, "PPid")?.next()?.parse().ok()?,
        uids: Uids {
            real: uids.next()?.parse().ok()?,
            effective: uids.next()?.parse().ok()?,
            saved: uids.next()?.parse().ok()?,
        },
        effective_group: gids.nth(1)?.parse().ok()?,
        groups: groups.filter_map(|number| number.parse().ok()).collect(),
        ns_tids: ns_tids.filter_map(|number| number.parse().ok()).collect(),
    })
}

/// Returns the words after `name:` at the start of a line. The first line of `status` is the
/// thread's own name, in which the kernel escapes line ends.
pub(crate) fn field<'a>(text: &'a [u8], name: &str) -> Option<std::str::SplitAsciiWhitespace<'a>> {
    let line = text.split(|&byte| byte == b'\n').find(|line| {
        line.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b':'))
    })?;
    Some(std::str::from_utf8(&line[name.len() + 1..]).ok()?.split_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_cannot_forge_its_stat_by_its_name() {
        let text =
            b"77 (x) Z 0 0 (y) S 1 2 3 4 5 2097152 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21 22 \
            23 24 25 26 27 28 29 30 31 32 33 34 35 9 37 38\n";
        let stat = parse_stat(text).expect("a stat line");
        assert_eq!((stat.state, stat.parent, stat.start_ticks, stat.cpu), (b'S', 1, 4242, 9));
        assert!(stat.is_kernel_thread());
        assert_eq!(parse_stat(b"77 (x"), None);
        assert_eq!(parse_stat(b"77 (x) S 1"), None);
    }

    #[test]
    fn status_gives_the_effective_user_and_groups() {
        let text = b"Name:\tUid:\nTgid:\t12\nPPid:\t2\nUid:\t1000\t1001\t1002\t1000\n\
            Gid:\t70\t71\t72\t73\nGroups:\t5 6 \nNSpid:\t12\t3\n";
        let status = parse_status(text).expect("a status file");
        assert_eq!(status.uids, Uids { real: 1000, effective: 1001, saved: 1002 });
        assert_eq!((status.tgid.as_raw(), status.parent), (12, 2));
        assert_eq!((status.effective_group, &status.groups[..]), (71, &[5, 6][..]));
        assert_eq!(status.ns_tids, [12, 3]);
    }

    #[test]
    fn the_own_process_is_readable() {
        let me = Tid::of_process();
        assert_eq!(threads_of(me).expect("own threads")[0], me);
        assert_eq!(status(me).expect("own status").tgid, me);
        assert!(!stat(me).expect("own stat").is_kernel_thread());
        let (thread, other) = (Tid::current(), Tid::new(i32::MAX).expect("a number"));
        let (alone, of_process) =
            (stat(thread).expect("a stat"), stat_of(me, thread).expect("a stat"));
        assert_eq!(alone.start_ticks, of_process.start_ticks);
        let absent = stat_of(me, other).expect_err("no thread has this number");
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }
}
