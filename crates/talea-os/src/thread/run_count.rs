//! Run counts of threads, from `/proc/TID/schedstat`: whether, and how long, a thread ran between
//! two readings.

use crate::Tid;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Run count of a thread: CPU time and number of switches. Two equal counts mean that the thread
/// did not run in between ([K10](super::deadline_exit)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunCount {
    pub(super) ns: u64,
    pub(super) switches: u64,
}

/// Reader of a thread's run count. The reader opens the file once for all readings, because opening
/// takes longer than reading.
///
/// The file names the thread that had the number when the file was opened, and no later thread.
/// While the file is readable, the number belongs to that thread. The one exception is a thread
/// that replaces its process's program (`execve`) and so becomes the main thread. Its counts differ
/// from those of the old main thread, so the two never compare as equal.
#[derive(Debug)]
pub(super) struct SchedstatReader(Option<File>);

impl SchedstatReader {
    /// Opens the reader of `tid`.
    pub(super) fn open(tid: Tid) -> SchedstatReader {
        SchedstatReader(File::open(format!("/proc/{tid}/schedstat")).ok())
    }

    /// Reads the run count. Returns `None` where the kernel does not count.
    pub(super) fn read(&self) -> Option<RunCount> {
        let mut buffer = [0; 128];
        let length = self.0.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let text = &buffer[..length];
        let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
        let (ns, _, switches) = (words.next()?, words.next()?, words.next()?);
        Some(RunCount { ns: ns.parse().ok()?, switches: switches.parse().ok()? })
    }
}

/// Run count of a thread when a deadline policy was set, kept until another policy is set.
#[derive(Debug)]
pub(super) struct ExecAtEntry {
    /// Run count at the entry into the class. `None` where the kernel does not count.
    runs: Option<RunCount>,
    /// Reader, kept open for a limited number of threads.
    reader: Option<OpenReader>,
}

impl ExecAtEntry {
    /// Reads the run count. Must be called before the thread enters the class, because the thread
    /// may run from then on.
    pub(super) fn read(tid: Tid) -> ExecAtEntry {
        let reader = SchedstatReader::open(tid);
        ExecAtEntry { runs: reader.read(), reader: OpenReader::keep(reader) }
    }

    /// Whether the open reader will show if the thread has ended.
    pub(super) fn has_open_reader(&self) -> bool {
        self.reader.is_some() && self.runs.is_some()
    }

    /// Returns the run count at the entry, if it is known, and a reader.
    pub(super) fn into_parts(
        entered: Option<ExecAtEntry>,
        tid: Tid,
    ) -> (Option<RunCount>, SchedstatReader) {
        let (runs, kept) = entered.map_or((None, None), |entered| (entered.runs, entered.reader));
        (runs, kept.map_or_else(|| SchedstatReader::open(tid), OpenReader::into_reader))
    }
}

/// Reader that stays open between two calls, because opening it again takes longer than the calls
/// that leave the class. Descriptors are scarce, and each held thread has one already, so the
/// number of open readers is limited.
#[derive(Debug)]
struct OpenReader(SchedstatReader);

/// Number of readers that are open.
static OPEN_READERS: AtomicUsize = AtomicUsize::new(0);
/// Divisor of the limit of open readers: the limit is this fraction of the descriptors, and at most
/// `MAX_OPEN_READERS`.
const OPEN_READERS_DIVISOR: u64 = 16;
const MAX_OPEN_READERS: u64 = 1024;

/// Returns the number of descriptors that stay open for threads in the deadline class, if this
/// process may have `allowed` descriptors. Each of them also holds a page of kernel memory.
pub fn max_open_readers(allowed: u64) -> u64 {
    MAX_OPEN_READERS.min(allowed / OPEN_READERS_DIVISOR)
}

impl OpenReader {
    fn keep(reader: SchedstatReader) -> Option<OpenReader> {
        static LIMIT: OnceLock<usize> = OnceLock::new();
        let limit = *LIMIT.get_or_init(|| {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
            limit.map_or(MAX_OPEN_READERS, max_open_readers) as usize
        });
        reader.0.as_ref()?;
        if OPEN_READERS.fetch_add(1, Ordering::Relaxed) < limit {
            return Some(OpenReader(reader));
        }
        OPEN_READERS.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn into_reader(mut self) -> SchedstatReader {
        SchedstatReader(self.0.0.take())
    }
}

impl Drop for OpenReader {
    fn drop(&mut self) {
        OPEN_READERS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_stay_open_up_to_a_limit_and_are_reopened_beyond() {
        let tid = Tid::current();
        let limit = MAX_OPEN_READERS as usize + 8;
        let before = OPEN_READERS.load(Ordering::Relaxed);
        let all: Vec<ExecAtEntry> = (0..limit).map(|_| ExecAtEntry::read(tid)).collect();
        let kept = all.iter().filter(|entered| entered.reader.is_some()).count();
        assert!(kept > 0 && kept <= MAX_OPEN_READERS as usize, "{kept}");
        for entered in all {
            let (runs, reader) = ExecAtEntry::into_parts(Some(entered), tid);
            // On a kernel that counts, each can still be read.
            assert_eq!(runs.is_some(), reader.read().is_some());
        }
        // Other tests may keep some at the same time.
        assert!(OPEN_READERS.load(Ordering::Relaxed) <= before + 8);
    }
}
