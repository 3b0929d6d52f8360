//! An overrun is neither lost nor held against another thread.

use super::*;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::mpsc;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path =
            std::env::temp_dir().join(format!("talea-dl-overruns-{}-{name}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).expect("a new directory");
        Dir(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("dl_overruns")
    }

    /// Returns what the next process would find.
    fn found(&self) -> Vec<Overrun> {
        // A child of a concurrent test holds the lock until it executes its program.
        let open = || StateFile::open_or_create(&self.file(), OVERRUN_SIZE, 1);
        let retry = |_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            open().ok()
        };
        let file = open().ok().or_else(|| (0..200).find_map(retry)).expect("an unlocked file");
        file.records().filter_map(|(_, bytes)| Overrun::decode(bytes)).collect()
    }
}

impl Dir {
    fn has(&self, key: ThreadKey, until: Monotonic) -> bool {
        self.found().iter().any(|overrun| (overrun.thread, overrun.until) == (key, until))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn own_key() -> ThreadKey {
    Thread::open(Tid::current()).expect("this thread lives").key()
}

/// Returns a key of a thread that does not live, and that no thread could have become.
pub(crate) fn dead_thread(inode: u64) -> ThreadKey {
    let tid = Tid::current();
    ThreadKey { process: tid, tid, incarnation: ThreadIncarnation { inode, start: 0 } }
}

/// Records an overrun of a thread of this process, except for a [`dead_thread`].
pub(crate) fn record(key: &ThreadKey, until: Monotonic) {
    super::record(*key, main_incarnation(key), until);
}

fn main_incarnation(key: &ThreadKey) -> ThreadIncarnation {
    Thread::open(key.process).map_or(ThreadIncarnation::UNKNOWN, |main| main.key().incarnation)
}

pub(crate) fn known(key: &ThreadKey) -> Option<Monotonic> {
    lock().find(key)
}

/// Sets the entry of the thread to exactly `until`.
pub(crate) fn set(key: &ThreadKey, until: Option<Monotonic>) {
    let mut table = lock();
    match until {
        Some(until) => table.store(
            Overrun { thread: *key, main_incarnation: ThreadIncarnation::UNKNOWN, until },
            None,
        ),
        None => table.remove(key),
    }
}

fn marked(key: ThreadKey, inode: u64) -> ThreadKey {
    ThreadKey { incarnation: ThreadIncarnation { inode, ..key.incarnation }, ..key }
}

/// Checks the invariants of the table.
fn audit() {
    let table = lock();
    let entries: Vec<_> = table
        .slots
        .iter()
        .enumerate()
        .filter_map(|(slot, overrun)| Some((overrun.as_ref()?, slot)))
        .collect();
    assert_eq!(entries.len(), table.index.len());
    assert_eq!(entries.len(), COUNT.load(Ordering::Relaxed));
    assert!(
        entries.iter().all(|(overrun, slot)| table.index.get(&overrun.thread) == Some(slot)),
        "{table:?}"
    );
    assert_eq!(entries.len() + table.free.len(), table.slots.len());
}

/// Starts threads that live until the guards are dropped.
fn start_threads(count: usize) -> Vec<(ThreadKey, mpsc::Sender<()>)> {
    let one = || {
        let ((send, received), (alive, ended)) = (mpsc::channel(), mpsc::channel::<()>());
        drop(std::thread::spawn(move || {
            send.send(own_key()).expect("a receiver");
            let _ = ended.recv();
        }));
        (received.recv().expect("a key"), alive)
    };
    (0..count).map(|_| one()).collect()
}

/// Returns a thread of this process that has ended, and the main thread.
fn ended() -> (ThreadKey, ThreadKey) {
    let of = |tid| Thread::open(tid).expect("a living thread").key();
    let ended = std::thread::spawn(move || of(Tid::current())).join().expect("a key");
    // It is joined a moment before the kernel reports its end.
    while Thread::open(ended.tid).is_ok_and(|thread| thread.key() == ended) {
        std::thread::yield_now();
    }
    (ended, of(Tid::of_process()))
}

/// The tests share the table of this process; some count its entries or use its main thread.
pub(crate) fn serialize_tests() -> MutexGuard<'static, ()> {
    static SERIALIZED: Mutex<()> = Mutex::new(());
    SERIALIZED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn an_entry_ends_at_its_time() {
    let _serialized = serialize_tests();
    let key = dead_thread(u64::MAX - 1);
    record(&key, Monotonic::NEVER);
    assert_eq!(blocked_until(&key), Some(Monotonic::NEVER));
    assert_eq!(blocked_until(&marked(key, 3)), None, "another thread has no overrun");
    record(&key, clock::now());
    assert_eq!(blocked_until(&key), Some(Monotonic::NEVER), "it is only ever made longer");
    set(&key, Some(clock::now()));
    assert_eq!(blocked_until(&key), None);
    record(&key, Monotonic::NEVER);
    set(&key, None);
    assert_eq!((blocked_until(&key), known(&key)), (None, None));
}

#[test]
fn the_next_process_reads_the_entries_of_living_threads() {
    let _serialized = serialize_tests();
    let dir = Dir::new("next");
    let key = own_key();
    // A thread that has ended or never existed.
    let gone = marked(ThreadKey { process: key.tid, ..key }, key.incarnation.inode ^ 1);
    let kept = persist_to(&dir.file()).expect("a new file");
    record(&key, Monotonic::NEVER);
    record(&gone, Monotonic::NEVER);
    drop(kept);
    let written = dir.found();
    for key in [key, gone] {
        assert!(
            written
                .iter()
                .any(|overrun| (overrun.thread, overrun.until) == (key, Monotonic::NEVER)),
            "{written:?}"
        );
        set(&key, None);
    }
    assert_eq!(blocked_until(&key), None);
    let kept = persist_to(&dir.file()).expect("the same file");
    assert_eq!(blocked_until(&key), Some(Monotonic::NEVER));
    assert_eq!(known(&gone), None, "that thread does not live");
    set(&key, None);
    drop(kept);
    assert!(dir.found().iter().all(|overrun| overrun.thread != key), "{:?}", dir.found());
}

#[test]
fn an_older_file_shortens_no_entry_and_drops_none() {
    let _serialized = serialize_tests();
    let (older, other) = (Dir::new("older"), Dir::new("newer"));
    let far = clock::now() + Span::from_ns(3_600_000_000_000);
    let key = own_key();
    let kept = persist_to(&older.file()).expect("a new file");
    record(&key, far);
    drop(kept);
    set(&key, Some(Monotonic::NEVER));
    let both = (
        persist_to(&other.file()).expect("a new file"),
        persist_to(&older.file()).expect("the older"),
    );
    assert_eq!(blocked_until(&key), Some(Monotonic::NEVER));
    drop(both);
    set(&key, None);
    for dir in [&older, &other] {
        assert!(dir.has(key, Monotonic::NEVER), "{:?}", dir.found());
    }
    // In the file its slot is the first; here other threads have all slots.
    let others = start_threads(MIN_SLOTS + 4);
    for (other, _) in &others {
        record(other, Monotonic::NEVER);
    }
    drop(persist_to(&older.file()).expect("the older"));
    let found: Vec<_> = older.found().into_iter().map(|overrun| overrun.thread).collect();
    let mut all: Vec<_> = others.iter().map(|&(other, _)| other).chain([key]).collect();
    assert!(all.iter().all(|key| found.contains(key)), "{found:?}");
    for key in &all {
        set(key, None);
    }
    // Each entry once.
    all.extend(&found);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), found.len());
}

#[test]
fn each_file_has_every_entry_and_is_used_by_one_process() {
    let _serialized = serialize_tests();
    let (one, other) = (Dir::new("one"), Dir::new("other"));
    let key = own_key();
    let before = persist_to(&one.file()).expect("a new file");
    record(&key, Monotonic::NEVER);
    let after = persist_to(&other.file()).expect("a new file");
    assert!(matches!(persist_to(&other.file()), Err(StateError::InUse { .. })));
    drop((before, after));
    set(&key, None);
    assert!(one.has(key, Monotonic::NEVER) && other.has(key, Monotonic::NEVER));
}

#[test]
fn an_ended_thread_passes_its_overrun_to_its_main_thread() {
    let _serialized = serialize_tests();
    let (ended, main) = ended();
    record(&main, clock::now());
    assert_eq!(blocked_until(&main), None);
    record(&ended, Monotonic::NEVER);
    assert_eq!(blocked_until(&own_key()), None, "another thread does not inherit");
    assert_eq!(blocked_until(&main), Some(Monotonic::NEVER));
    assert_eq!(known(&ended), None);
    // The longer of the two counts.
    let soon = clock::now() + Span::from_ns(3_600_000_000_000);
    set(&main, Some(soon));
    record(&ended, Monotonic::NEVER);
    assert_eq!((blocked_until(&main), known(&ended)), (Some(Monotonic::NEVER), None));
    record(&ended, soon);
    assert_eq!((blocked_until(&main), known(&ended)), (Some(Monotonic::NEVER), None));
    set(&main, None);
    // The same after a restart.
    let dir = Dir::new("inherited");
    let kept = persist_to(&dir.file()).expect("a new file");
    record(&ended, Monotonic::NEVER);
    drop(kept);
    set(&ended, None);
    drop(persist_to(&dir.file()).expect("the same file"));
    assert_eq!((known(&ended), known(&main)), (None, Some(Monotonic::NEVER)));
    set(&main, None);
    // Living threads do not pass their overrun on, unless there are too many to check.
    let threads = start_threads(MAX_PROBES + 1);
    for (number, (key, _)) in threads.iter().enumerate() {
        assert_eq!(blocked_until(&main), None, "{number}");
        record(key, Monotonic::NEVER);
    }
    assert_eq!((blocked_until(&main), known(&main)), (Some(Monotonic::NEVER), None));
    for (key, _) in &threads {
        set(key, None);
    }
}

#[test]
fn entries_of_ended_threads_free_their_slots() {
    let _serialized = serialize_tests();
    let soon = clock::now() + Span::from_ns(1);
    let before = lock().slots.len();
    for round in 0..4_000 {
        record(&dead_thread(2 * round), soon);
        record(&dead_thread(2 * round + 1), Monotonic::NEVER);
    }
    let slots = lock().slots.len();
    assert!(slots <= before.max(64), "{slots} slots, {before} before");
}

#[test]
fn an_entry_checked_before_that_of_its_main_thread_is_transferred_and_not_lost() {
    let _serialized = serialize_tests();
    let (ended, main) = ended();
    let soon = clock::now();
    // The ended thread's slot precedes that of its main thread, whose own entry is paid off; the
    // table is full of others.
    let before = lock().slots.len();
    record(&ended, Monotonic::NEVER);
    set(&main, Some(soon));
    let threads = start_threads(MIN_SLOTS);
    for (other, _) in &threads {
        record(other, Monotonic::NEVER);
    }
    // Enough insertions to check all slots, and one more.
    let rounds = 2 * (lock().slots.len() / SCANS_PER_INSERT + 2) as u64;
    for round in 0..rounds {
        record(&dead_thread(u64::MAX - 100 - round), Monotonic::NEVER);
        audit();
    }
    assert_eq!(
        (known(&main), known(&ended)),
        (Some(Monotonic::NEVER), None),
        "{before} slots before"
    );
    for key in threads.iter().map(|(other, _)| other).chain([&main]) {
        set(key, None);
    }
    audit();
}

#[test]
fn a_thread_may_inherit_while_a_slot_is_reserved_for_it() {
    let _serialized = serialize_tests();
    let (ended, main) = ended();
    let far = clock::now() + Span::from_ns(3_600_000_000_000);
    let threads = start_threads(MIN_SLOTS);
    for (other, _) in &threads {
        record(other, Monotonic::NEVER);
    }
    record(&ended, far);
    {
        // It is the next to be checked.
        let mut table = lock();
        table.free.clear();
        let kept: Vec<_> = table.slots.iter().flatten().copied().collect();
        table.slots = kept.iter().copied().map(Some).collect();
        table.index = (0..).zip(&kept).map(|(slot, overrun)| (overrun.thread, slot)).collect();
        let count = table.slots.len();
        table.scan_pos = (table.index[&ended] + count - 1) % count;
    }
    audit();
    // The pending time is earlier than what the thread has inherited by then.
    let announced = record_pending(main, |_| Some(clock::now() + Span::from_ns(1_000_000_000)));
    assert_eq!(
        (announced.before, announced.is_recorded, known(&main)),
        (Some(far), true, Some(far))
    );
    settle(&announced, None, ThreadIncarnation::default);
    assert_eq!((known(&main), known(&ended)), (Some(far), None));
    audit();
    for key in threads.iter().map(|(other, _)| other).chain([&main]) {
        set(key, None);
    }
}

#[test]
fn a_later_process_with_the_same_number_inherits_nothing() {
    let _serialized = serialize_tests();
    let (ended, main) = ended();
    let other = ThreadIncarnation { inode: main.incarnation.inode ^ 1, ..main.incarnation };
    super::record(ended, other, Monotonic::NEVER);
    assert_eq!((blocked_until(&main), known(&ended)), (None, None));
    // The same after a restart.
    let dir = Dir::new("foreign");
    let kept = persist_to(&dir.file()).expect("a new file");
    super::record(ended, other, Monotonic::NEVER);
    drop(kept);
    set(&ended, None);
    drop(persist_to(&dir.file()).expect("the same file"));
    assert_eq!((known(&ended), known(&main)), (None, None));
    // Nor does a thread inherit if the main thread's incarnation is unknown.
    super::record(ended, ThreadIncarnation::UNKNOWN, Monotonic::NEVER);
    assert_eq!((blocked_until(&main), known(&ended)), (None, None));
    // Its own main thread inherits.
    super::record(ended, main.incarnation, Monotonic::NEVER);
    assert_eq!(blocked_until(&main), Some(Monotonic::NEVER));
    set(&main, None);
}

#[test]
fn entries_recorded_during_a_pending_exit_are_kept() {
    let _serialized = serialize_tests();
    let key = dead_thread(u64::MAX - 17);
    let at = |ms: u64| clock::now() + Span::from_ns(ms * 1_000_000);
    let (near, far) = (at(60_000), at(3_600_000));
    for owes in [Some(near), None] {
        let announced = record_pending(key, |_| Some(near));
        record(&key, far);
        settle(&announced, owes, ThreadIncarnation::default);
        assert_eq!(known(&key), Some(far));
        set(&key, None);
    }
    // Also if it is earlier than the pending time, which turns out not to be owed.
    let announced = record_pending(key, |_| Some(far));
    record(&key, near);
    assert_eq!(known(&key), Some(far));
    settle(&announced, None, ThreadIncarnation::default);
    assert_eq!(known(&key), Some(near));
    set(&key, None);
    assert!(lock().pending.is_empty());
}

#[test]
fn a_file_that_is_reopened_repeatedly_does_not_grow() {
    let _serialized = serialize_tests();
    let dir = Dir::new("again");
    let key = own_key();
    record(&key, Monotonic::NEVER);
    let length = || std::fs::metadata(dir.file()).expect("the file").len();
    drop(persist_to(&dir.file()).expect("a new file"));
    drop(persist_to(&dir.file()).expect("the same file"));
    let first = length();
    for _ in 0..10 {
        drop(persist_to(&dir.file()).expect("the same file"));
    }
    assert_eq!(length(), first);
    assert!(dir.has(key, Monotonic::NEVER));
    set(&key, None);
}

#[test]
fn an_expired_entry_is_removed_by_a_query() {
    let _serialized = serialize_tests();
    let key = dead_thread(u64::MAX - 19);
    record(&key, clock::now());
    assert_eq!((blocked_until(&key), known(&key)), (None, None));
    audit();
}
