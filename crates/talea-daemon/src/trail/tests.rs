//! Files, buffer and marks of the audit trail, without a daemon.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use store::{Owner, list};
use talea_broker::Subject;
use talea_broker::input::{Errno, ProcessId};
use talea_broker::trail::AuditEvent;
use talea_config::LogLevel;
use talea_core::Monotonic;
use talea_proto::{Code, Field, SpecId};

/// A directory of one test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("talea-trail-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        Directory(path)
    }

    fn store(&self, max_bytes: u64) -> Store {
        Store::open(&self.0, max_bytes).expect("a directory of this user")
    }

    /// Returns the lines of a stream.
    fn lines(&self, owner: Owner) -> Vec<String> {
        let files = list(&self.0).expect("it exists").remove(&owner).unwrap_or_default();
        let read = |path: &Path| std::fs::read_to_string(path).expect("a readable file");
        let text: String = files.iter().map(|file| read(&file.path)).collect();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the size of all files.
    fn bytes(&self) -> u64 {
        let files = list(&self.0).expect("it exists").into_values().flatten();
        files.map(|file| file.path.metadata().map_or(0, |meta| meta.len())).sum()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn record(uid: u32, count: u64) -> AuditRecord {
    AuditRecord {
        subject: Some(Subject::user(uid)),
        first: Monotonic::from_ns(1),
        last: Monotonic::from_ns(2),
        count,
        uid,
        process: ProcessId { pid: 17, start: 4_711 },
        spec: SpecId(3),
        plugin: None,
        rule: Some("talead.toml:12".into()),
        thread: None,
        by: None,
        event: AuditEvent::Refusal {
            request: "create",
            code: Code::RuleBound,
            field: Field::Period,
            asked: 1,
            limit: 2,
            errno: Errno(0),
            reason: None,
        },
    }
}

fn sequence(lines: &[String]) -> Vec<u64> {
    let number = |line: &String| {
        let rest = line.strip_prefix("{\"seq\":").expect("a line with a number");
        rest[..rest.find(',').expect("a comma")].parse().expect("a number")
    };
    lines.iter().map(number).collect()
}

fn add(store: &mut Store, uid: u32, records: u64) {
    let clocks = Clocks::now();
    for _ in 0..records {
        store.add(&record(uid, 1), &clocks).expect("memory");
    }
    assert!(store.flush().is_empty());
}

#[test]
fn a_subject_with_many_records_displaces_its_own_ones_only() {
    let directory = Directory::new("fair");
    let max_bytes = 1 << 20;
    let mut store = directory.store(max_bytes);
    add(&mut store, 60_001, 10);
    let mut restarted = false;
    for round in 0..40 {
        add(&mut store, 60_002, 500);
        if round == 20 && !restarted {
            restarted = true;
            drop(store);
            store = directory.store(max_bytes);
        }
        assert!(directory.bytes() <= max_bytes, "{} bytes", directory.bytes());
    }
    assert_eq!(sequence(&directory.lines(Owner::User(60_001))), (1..=10).collect::<Vec<u64>>());
    let flooder = sequence(&directory.lines(Owner::User(60_002)));
    assert_eq!(flooder.last(), Some(&20_000));
    assert!(flooder.len() < 20_000, "it was a flood");
    assert!(flooder.len() > 2_000, "its last records stay: {}", flooder.len());
    assert!(flooder.windows(2).all(|pair| pair[0] + 1 == pair[1]), "no gap among them");
    // Both continue.
    add(&mut store, 60_001, 1);
    assert_eq!(directory.lines(Owner::User(60_001)).len(), 11);
}

#[test]
fn a_torn_line_damages_no_other_line() {
    let directory = Directory::new("torn");
    let mut store = directory.store(1 << 20);
    add(&mut store, 60_001, 3);
    drop(store);
    let path = list(&directory.0).expect("it exists")[&Owner::User(60_001)][0].path.clone();
    let text = std::fs::read_to_string(&path).expect("a readable file");
    std::fs::write(&path, &text[..text.len() - 20]).expect("a writable file");
    let mut store = directory.store(1 << 20);
    add(&mut store, 60_001, 2);
    let lines = directory.lines(Owner::User(60_001));
    assert_eq!(lines.len(), 5, "the torn line stands alone: {lines:?}");
    let whole: Vec<String> = lines.into_iter().filter(|line| line.ends_with('}')).collect();
    // The third line was lost; its number is used again.
    assert_eq!(sequence(&whole), [1, 2, 3, 4]);
}

#[test]
fn one_daemon_writes_in_a_directory_at_a_time() {
    let directory = Directory::new("lock");
    let store = directory.store(1 << 20);
    let error = Store::open(&directory.0, 1 << 20).expect_err("it is locked");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    drop(store);
    // Every user may open the directory, and lock it.
    let opened = std::fs::File::open(&directory.0).expect("a directory");
    rustix::fs::flock(&opened, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
    directory.store(1 << 20);
    let mode = directory.0.join("lock").metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A directory that other users may change is refused.
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&directory.0, open).expect("it is ours");
    let error = Store::open(&directory.0, 1 << 20).expect_err("it is not trusted");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn only_the_user_may_read_the_users_file() {
    let directory = Directory::new("access");
    let mut store = directory.store(1 << 20);
    add(&mut store, 60_001, 1);
    add(&mut store, u32::MAX, 1);
    store.append_own(|seq| line::stop(seq, &Clocks::now())).expect("room");
    let mode = |owner| {
        let path = list(&directory.0).expect("it exists")[&owner][0].path.clone();
        path.metadata().expect("it exists").permissions().mode() & 0o777
    };
    assert_eq!(mode(Owner::Daemon), 0o644);
    assert_eq!(mode(Owner::Unserved), 0o600);
    let path = list(&directory.0).expect("it exists")[&Owner::User(60_001)][0].path.clone();
    let mut list = vec![0; 64];
    match rustix::fs::getxattr(&path, "system.posix_acl_access", &mut list) {
        Ok(length) => {
            list.truncate(length);
            // Five entries of eight bytes; the second one is the user's.
            assert_eq!(list.len(), 44);
            assert_eq!(list[12..20], [2, 0, 4, 0, 0x61, 0xea, 0, 0]);
            assert_eq!(mode(Owner::User(60_001)), 0o640, "the mask is in the group's bits");
        }
        Err(_) => assert_eq!(mode(Owner::User(60_001)), 0o600),
    }
}

#[test]
fn each_start_is_marked_with_the_end_of_the_daemon_before() {
    let directory = Directory::new("start");
    let log = Log::new(LogLevel::Error);
    let options = || TrailOptions { directory: directory.0.clone(), max_bytes: 1 << 20 };
    let own = || directory.lines(Owner::Daemon);
    drop(Trail::start(options(), log).expect("a thread"));
    assert!(own()[0].contains("\"event\":\"start\"") && !own()[0].contains("cause"));
    assert!(own()[1].contains("\"event\":\"stop\""));
    let trail = Trail::start(options(), log).expect("a thread");
    trail.add(std::iter::once(record(60_001, 1)));
    drop(trail);
    assert!(own()[2].contains("\"event\":\"start\"") && !own()[2].contains("cause"));
    assert_eq!(directory.lines(Owner::User(60_001)).len(), 1, "written at the end");
    // Killed: without a stop.
    let path = list(&directory.0).expect("it exists")[&Owner::Daemon][0].path.clone();
    std::fs::write(&path, own()[..3].join("\n") + "\n").expect("a writable file");
    drop(Trail::start(options(), log).expect("a thread"));
    assert!(own()[3].contains("\"cause\":\"no-stop-recorded\""), "{:?}", own());
    assert_eq!(sequence(&own()), [1, 2, 3, 4, 5]);
}

#[test]
fn records_beyond_the_buffer_are_counted_and_the_count_is_a_record() {
    let directory = Directory::new("lost");
    // No recorder: as if it waited for the disk.
    let shared = Shared::new().expect("an event");
    shared.add((0..MAX_RECORDS + 10).map(|_| record(60_001, 2)));
    let mut buffer = shared.buffer.lock();
    assert_eq!((buffer.records.len(), buffer.lost.count), (MAX_RECORDS, 20));
    let options = TrailOptions { directory: directory.0.clone(), max_bytes: 64 << 20 };
    let mut recorder = Recorder::new(options, Log::new(LogLevel::Error));
    recorder.lost.merge(&buffer.lost);
    recorder.write(&mut buffer.records);
    assert_eq!(directory.lines(Owner::User(60_001)).len(), MAX_RECORDS);
    let own = directory.lines(Owner::Daemon);
    assert!(own[1].contains("\"event\":\"lost\",\"count\":20"), "{own:?}");
    assert_eq!(recorder.lost.count, 0);
}

#[test]
fn a_directory_that_appears_later_gets_the_number_of_lost_events() {
    let directory = Directory::new("late");
    std::fs::write(&directory.0, "a file in its place").expect("a writable directory");
    let options = TrailOptions { directory: directory.0.clone(), max_bytes: 1 << 20 };
    let mut recorder = Recorder::new(options, Log::new(LogLevel::Error));
    recorder.write(&mut vec![record(60_001, 3), record(60_001, 4)]);
    assert_eq!(recorder.lost.count, 7);
    std::fs::remove_file(&directory.0).expect("it exists");
    recorder.write(&mut vec![record(60_001, 1)]);
    let own = directory.lines(Owner::Daemon);
    assert!(own[1].contains("\"event\":\"lost\",\"count\":7"), "{own:?}");
    assert_eq!(directory.lines(Owner::User(60_001)).len(), 1);
}
