//! The state file: torn writes, crashes, reboots, and its lock.

mod support;

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use support::{Scratch, is_root, needs};
use talea_core::Span;
use talea_os::statefile::{OpenResult, StateError, StateFile, TornWrite};

fn open(path: &Path, capacity: usize) -> StateFile {
    StateFile::open_or_create(path, 20, capacity).expect("a state file")
}

fn record(n: u8) -> [u8; 20] {
    [n; 20]
}

#[test]
fn records_survive_their_writer() {
    let scratch = Scratch::new("state");
    let path = scratch.join("state");
    let mut state = open(&path, 4);
    assert_eq!(state.open_result(), OpenResult::New);
    state.write(1, &record(1)).expect("written");
    state.write(3, &record(3)).expect("written");
    state.write(3, &record(33)).expect("replaced");
    state.write(2, &record(2)).expect("written");
    state.clear(2);
    state.clear(1000);
    drop(state);
    let state = open(&path, 4);
    assert_eq!(state.open_result(), OpenResult::SameBoot);
    assert!(state.records().eq([(1, &record(1)[..]), (3, &record(33)[..])]));
    assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o7777, 0o600);
}

#[test]
fn growing_keeps_all_records() {
    let scratch = Scratch::new("state-grow");
    let path = scratch.join("state");
    let mut state = open(&path, 1);
    for slot in 0..5000 {
        state.write(slot, &record(slot as u8)).expect("written");
    }
    assert!(state.capacity() >= 5000);
    drop(state);
    let state = open(&path, 1);
    assert_eq!(state.records().count(), 5000);
    assert!(state.records().all(|(slot, bytes)| bytes == record(slot as u8)));
}

#[test]
fn a_torn_write_loses_only_itself() {
    for torn in [TornWrite::Record, TornWrite::Checksum, TornWrite::State] {
        let scratch = Scratch::new("state-torn");
        let path = scratch.join("state");
        let mut state = open(&path, 4);
        state.write(0, &record(1)).expect("written");
        state.write(0, &record(2)).expect("written");
        state.write_torn(0, &record(3), torn);
        state.write_torn(1, &record(4), torn);
        drop(state);
        let mut state = open(&path, 4);
        assert!(state.records().eq([(0, &record(2)[..])]), "{torn:?}");
        state.write(0, &record(5)).expect("written");
        state.write(1, &record(6)).expect("written");
        assert!(state.records().eq([(0, &record(5)[..]), (1, &record(6)[..])]), "{torn:?}");
    }
}

#[test]
fn a_damaged_record_is_not_believed() {
    let scratch = Scratch::new("state-damage");
    let path = scratch.join("state");
    let mut state = open(&path, 2);
    state.write(0, &record(1)).expect("written");
    state.write(1, &record(1)).expect("written");
    let at = state.offset_of(0);
    drop(state);
    let file = std::fs::File::options().write(true).open(&path).expect("the file");
    file.write_all_at(&[9], at as u64 + 7).expect("damaged");
    assert!(open(&path, 2).records().eq([(1, &record(1)[..])]));
}

#[test]
fn records_of_another_boot_are_gone() {
    let scratch = Scratch::new("state-boot");
    let path = scratch.join("state");
    let mut state = StateFile::open_in_boot(&path, 20, 4, [1; 16]).expect("a state file");
    state.write(2, &record(2)).expect("written");
    drop(state);
    let state = StateFile::open_in_boot(&path, 20, 4, [1; 16]).expect("a state file");
    assert_eq!((state.open_result(), state.records().count()), (OpenResult::SameBoot, 1));
    drop(state);
    let state = StateFile::open_in_boot(&path, 20, 4, [2; 16]).expect("a state file");
    assert_eq!((state.open_result(), state.records().count()), (OpenResult::OtherBoot, 0));
    drop(state);
    let state = StateFile::open_in_boot(&path, 20, 4, [1; 16]).expect("a state file");
    assert_eq!(state.records().count(), 0, "not even back in the first one");
}

#[test]
fn retif_s13_there_is_one_holder() {
    let scratch = Scratch::new("state-lock");
    let path = scratch.join("state");
    let first = open(&path, 4);
    assert!(matches!(StateFile::open_or_create(&path, 20, 4), Err(StateError::InUse { .. })));
    let patience = Span::from_ns(5_000_000);
    assert!(matches!(
        StateFile::open_waiting(&path, 20, 4, patience),
        Err(StateError::InUse { .. })
    ));
    let waiting = std::thread::spawn({
        let path = path.clone();
        move || {
            StateFile::open_waiting(&path, 20, 4, Span::from_ns(10_000_000_000))
                .map(|state| state.open_result())
        }
    });
    drop(first);
    assert_eq!(waiting.join().expect("a result").expect("its turn"), OpenResult::SameBoot);
}

#[test]
fn a_file_that_others_could_have_written_is_refused() {
    let scratch = Scratch::new("state-trust");
    let path = scratch.join("state");
    drop(open(&path, 4));
    for mode in [0o620, 0o602, 0o640, 0o604] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
        match StateFile::open_or_create(&path, 20, 4) {
            Err(StateError::Untrusted { mode: found, .. }) => assert_eq!(found, mode),
            other => panic!("{mode:o}: {other:?}"),
        }
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    let link = scratch.join("link");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    assert!(StateFile::open_or_create(&link, 20, 4).is_err(), "links are not followed");
    std::fs::hard_link(&path, scratch.join("second name")).expect("a link");
    assert!(matches!(StateFile::open_or_create(&path, 20, 4), Err(StateError::Untrusted { .. })));
    std::fs::remove_file(scratch.join("second name")).expect("removed");
    drop(open(&path, 4));
    needs!("root", is_root());
    std::os::unix::fs::chown(&path, Some(65_534), None).expect("changed owner");
    match StateFile::open_or_create(&path, 20, 4) {
        Err(StateError::Untrusted { uid, .. }) => assert_eq!(uid, 65_534),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_of_another_kind_is_refused_and_unchanged() {
    let scratch = Scratch::new("state-foreign");
    let path = scratch.join("state");
    std::fs::write(&path, vec![b'#'; 5000]).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    assert!(matches!(
        StateFile::open_or_create(&path, 20, 4),
        Err(StateError::Foreign { what: "magic number", .. })
    ));
    assert_eq!(std::fs::read(&path).expect("the file"), vec![b'#'; 5000]);
    let other = scratch.join("other");
    drop(open(&other, 4));
    match StateFile::open_or_create(&other, 24, 4) {
        Err(StateError::Foreign { what, found, wanted, .. }) => {
            assert_eq!((what, found, wanted), ("record size", 20, 24));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn slots_are_allocated_before_they_are_written() {
    let scratch = Scratch::new("state-reserve");
    let path = scratch.join("state");
    let mut state = open(&path, 4);
    state.write(3, &record(3)).expect("written");
    state.reserve(6).expect("room");
    assert_eq!(state.capacity(), 8, "twice the slots before");
    let meta = path.metadata().expect("a file");
    assert!(
        std::os::unix::fs::MetadataExt::blocks(&meta) * 512 >= meta.len(),
        "no part of the file is sparse"
    );
    state.reserve(2).expect("nothing to do");
    assert_eq!((state.capacity(), state.get(3)), (8, Some(&record(3)[..])));
}
