//! A file of records, bounded in size, that survives the death of its writer.
//!
//! Model: a header, then slots. Each slot has two halves and a state word that selects the valid
//! half. A write fills the other half, then flips the state word. So at every instant the file
//! holds the whole old record or the whole new one: a writer that is killed in between loses at
//! most the write in progress. A checksum detects damage other than a torn write. Writing is plain
//! stores into a mapping: no system call except for growth.
//!
//! Invariants. One holder at a time, by `flock`. Only root or this user can read or write the file.
//! Root also opens the file of a service's user, to repair what its daemon left: the file and its
//! directory belong to that user, and no other user can have changed the path. A file that root
//! creates in such a directory belongs to that user.
//! Records of another boot are cleared when the file is opened, because their thread numbers have
//! no meaning any more.
//!
//! The file is for one machine and one life of `/run`: numbers are in native byte order, and
//! nothing is synchronised to a disk.

mod map;

use crate::clock;
use crate::file_lock;
use crate::files;
use crate::sys::errno;
use map::Map;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use talea_core::Span;
use talea_core::mutate;

const MAGIC: u64 = u64::from_be_bytes(*b"TALEAst\0");
const FORMAT: u64 = 2;

/// Header words, each 8 bytes: magic, format, record size, boot id (two words).
const HEADER: usize = 64;
const AT_MAGIC: usize = 0;
const AT_FORMAT: usize = 8;
const AT_RECORD: usize = 16;
const AT_BOOT: usize = 24;

/// State word of a slot: bit 0 is set if it has a record, bit 1 selects the half.
const VALID: u64 = 1;
const HALF: u64 = 2;

/// State of the file when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenResult {
    /// The file is new.
    New,
    /// An earlier process of this boot has left the file, with its records.
    SameBoot,
    /// The file is of another boot. Its records were cleared.
    OtherBoot,
}

/// Reason why a state file cannot be used.
#[derive(Debug)]
pub enum StateError {
    /// Another process holds the file.
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Another user owns the file or could have changed it.
    Untrusted {
        /// The file.
        path: PathBuf,
        /// Owner of the file.
        uid: u32,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The file is not a state file, or has another version.
    Foreign {
        /// The file.
        path: PathBuf,
        /// The field that differs.
        what: &'static str,
        /// Value found.
        found: u64,
        /// Value expected.
        wanted: u64,
    },
    /// The kernel refused a step.
    Os {
        /// Step that failed.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}

/// Open, locked state file.
#[derive(Debug)]
pub struct StateFile {
    map: Map,
    // Holds the lock.
    file: File,
    path: PathBuf,
    record: usize,
    capacity: usize,
    found: OpenResult,
}

impl StateFile {
    /// Opens or creates the file at `path`, for records of at most `record_size` bytes.
    ///
    /// The file initially has `capacity` slots, and grows when necessary.
    ///
    /// # Panics
    /// If `record_size` is zero.
    pub fn open_or_create(
        path: &Path,
        record_size: usize,
        capacity: usize,
    ) -> Result<StateFile, StateError> {
        assert!(record_size > 0, "a record of no bytes");
        let boot = clock::boot_id().map_err(|error| StateError::Os {
            doing: "read the boot id for",
            path: path.to_owned(),
            error,
        })?;
        StateFile::open_in_boot(path, record_size, capacity, boot)
    }

    /// Variant of [`StateFile::open_or_create`] that waits for at most `timeout` until another
    /// holder releases the file.
    pub fn open_waiting(
        path: &Path,
        record_size: usize,
        capacity: usize,
        timeout: Span,
    ) -> Result<StateFile, StateError> {
        const PAUSE: Span = Span::from_ns(1_000_000);
        let end = clock::now() + timeout;
        loop {
            match StateFile::open_or_create(path, record_size, capacity) {
                Err(StateError::InUse { .. }) if clock::now() < end => {
                    clock::sleep_until(clock::now() + PAUSE);
                }
                other => return other,
            }
        }
    }

    /// Variant of [`StateFile::open_or_create`] with a given boot id, so that a test can simulate a
    /// reboot.
    pub fn open_in_boot(
        path: &Path,
        record_size: usize,
        capacity: usize,
        boot: [u8; 16],
    ) -> Result<StateFile, StateError> {
        let os =
            |doing| move |error: io::Error| StateError::Os { doing, path: path.to_owned(), error };
        let file = file_lock::open(path).map_err(os("open"))?;
        let meta = file.metadata().map_err(os("stat"))?;
        let euid = rustix::process::geteuid().as_raw();
        let service = (euid == 0).then(|| service_user(path)).flatten();
        if let Some((uid, gid)) = service.filter(|_| meta.uid() == 0 && meta.len() == 0) {
            // A file that the service's user cannot open would keep its daemon from starting.
            std::os::unix::fs::fchown(&file, Some(uid), Some(gid)).map_err(os("chown"))?;
        }
        let is_services = service.is_some_and(|(uid, _)| uid == meta.uid());
        let ours = meta.uid() == euid
            || meta.uid() == 0
            || mutate!("repair-service-state", is_services, false);
        if !meta.is_file()
            || !ours
            || meta.mode() & mutate!("recovery-state-trust", 0o077, 0o1000) != 0
            || meta.nlink() != 1
        {
            return Err(StateError::Untrusted {
                path: path.to_owned(),
                uid: meta.uid(),
                mode: meta.mode() & 0o7777,
            });
        }
        let locked = file_lock::lock(path, file).map_err(os("lock"))?;
        let file = locked.taken().ok_or_else(|| StateError::InUse { path: path.to_owned() })?;
        // Read again: it may have grown while another process held it.
        let length = file.metadata().map_err(os("stat"))?.len() as usize;
        let capacity = capacity.max(length.saturating_sub(HEADER) / slot_size(record_size));
        let wanted = HEADER + capacity * slot_size(record_size);
        if length < wanted {
            reserve(&file, wanted).map_err(os("grow"))?;
        }
        let map = Map::new(&file, wanted).map_err(os("map"))?;
        let mut state = StateFile {
            map,
            file,
            path: path.to_owned(),
            record: record_size,
            capacity,
            found: OpenResult::New,
        };
        state.found = state.read_header(boot)?;
        Ok(state)
    }

    /// Reads the header, or writes the header of a new file. The magic number is written last: a
    /// file whose creator was killed has none and counts as new.
    fn read_header(&mut self, boot: [u8; 16]) -> Result<OpenResult, StateError> {
        let boot_now = u128::from_ne_bytes(boot);
        let boot_now = [boot_now as u64, (boot_now >> 64) as u64];
        let magic = self.map.load(AT_MAGIC);
        if magic != 0 {
            let record = self.record as u64;
            for (what, open_result, wanted) in [
                ("magic number", magic, MAGIC),
                ("format", self.map.load(AT_FORMAT), FORMAT),
                ("record size", self.map.load(AT_RECORD), record),
            ] {
                if open_result != wanted {
                    return Err(StateError::Foreign {
                        path: self.path.clone(),
                        what,
                        found: open_result,
                        wanted,
                    });
                }
            }
            if mutate!(
                "recovery-state-boot",
                [self.map.load(AT_BOOT), self.map.load(AT_BOOT + 8)] == boot_now,
                magic != 0
            ) {
                return Ok(OpenResult::SameBoot);
            }
        }
        for slot in 0..self.capacity {
            self.map.store(slot_at(slot, self.record), 0);
        }
        self.map.store(AT_FORMAT, FORMAT);
        self.map.store(AT_RECORD, self.record as u64);
        self.map.store(AT_BOOT, boot_now[0]);
        self.map.store(AT_BOOT + 8, boot_now[1]);
        self.map.store(AT_MAGIC, MAGIC);
        Ok(if magic == 0 { OpenResult::New } else { OpenResult::OtherBoot })
    }

    /// Returns the state of the file when it was opened.
    pub fn open_result(&self) -> OpenResult {
        self.found
    }

    /// Returns the current number of slots.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Allocates at least `slots` slots on disk, so that a later write of one of them cannot fail.
    /// If the file system has no room for twice the present number, allocates `slots` exactly.
    pub fn reserve(&mut self, slots: usize) -> Result<(), StateError> {
        if slots <= self.capacity {
            return Ok(());
        }
        self.grow(slots.max(self.capacity * 2)).or_else(|_| self.grow(slots))
    }

    /// Writes `record` into `slot`, replacing the slot's record. Grows the file if `slot` is beyond
    /// its end. Only the growth can fail, so a write after [`StateFile::reserve`] cannot.
    ///
    /// # Panics
    /// If `record` is longer than the record size of the file.
    pub fn write(&mut self, slot: usize, record: &[u8]) -> Result<(), StateError> {
        assert!(record.len() <= self.record, "a record that is too long");
        self.reserve(slot + 1)?;
        let at = slot_at(slot, self.record);
        let state = self.map.load(at);
        let other =
            mutate!("recovery-state-half", if state & HALF == 0 { HALF } else { 0 }, state & HALF);
        let half = half_at(at, other, self.record);
        self.map.write(half + PREFIX, record);
        self.map.store(half + 8, record.len() as u64);
        self.map.store(half, checksum(slot, record));
        // This store makes the record valid; everything above happens before it.
        self.map.store(at, other | VALID);
        Ok(())
    }

    /// Clears `slot`.
    pub fn clear(&mut self, slot: usize) {
        if slot < self.capacity {
            let at = slot_at(slot, self.record);
            let state = self.map.load(at);
            self.map.store(at, state & HALF);
        }
    }

    /// Returns the record in `slot`. Returns `None` for an empty or damaged slot.
    pub fn get(&self, slot: usize) -> Option<&[u8]> {
        if slot >= self.capacity {
            return None;
        }
        let at = slot_at(slot, self.record);
        let state = self.map.load(at);
        if state & VALID == 0 || state & !(VALID | HALF) != 0 {
            return None;
        }
        let half = half_at(at, state & HALF, self.record);
        let length = usize::try_from(self.map.load(half + 8))
            .ok()
            .filter(|&length| length <= self.record)?;
        let record = self.map.read(half + PREFIX, length);
        mutate!(
            "recovery-state-checksum",
            (self.map.load(half) == checksum(slot, record)).then_some(record),
            Some(record)
        )
    }

    /// Iterates over all records, by ascending slot.
    pub fn records(&self) -> impl Iterator<Item = (usize, &[u8])> + '_ {
        (0..self.capacity).filter_map(|slot| Some((slot, self.get(slot)?)))
    }

    fn grow(&mut self, capacity: usize) -> Result<(), StateError> {
        let length = HEADER + capacity * slot_size(self.record);
        let os = |doing| {
            let path = self.path.clone();
            move |error: io::Error| StateError::Os { doing, path, error }
        };
        reserve(&self.file, length).map_err(os("grow"))?;
        self.map.remap(length).map_err(os("map"))?;
        self.capacity = capacity;
        Ok(())
    }
}

/// Returns the user and the group of the directory of `path` if it is not root's: the user of a
/// service. Only root and this user can have changed any part of the path.
fn service_user(path: &Path) -> Option<(u32, u32)> {
    let path = std::path::absolute(path).ok()?;
    let directory = path.parent()?;
    let meta = directory.metadata().ok()?;
    let is_trusted = meta.uid() != 0 && files::check_trusted_directory_for(directory, meta.uid());
    is_trusted.then(|| (meta.uid(), meta.gid()))
}

/// Allocates the first `length` bytes of the file on disk. Without that, a store into a sparse part
/// would kill this process if the file system is full. A file system that cannot allocate in
/// advance gets zeros to write.
fn reserve(file: &File, length: usize) -> io::Result<()> {
    let length = u64::try_from(length).map_err(|_| errno(libc::EFBIG))?;
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, length) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(file, length),
        Err(error) => Err(error.into()),
    }
}

/// Extends the file to `length` bytes by zeros, or leaves its length as it was.
fn write_zeros(file: &File, length: u64) -> io::Result<()> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let from = file.metadata()?.len();
    let mut at = from;
    while at < length {
        let part = (length - at).min(ZEROS.len() as u64) as usize;
        match file.write_at(&ZEROS[..part], at) {
            Ok(written) => at += written as u64,
            Err(error) => {
                // The shorter file is as good as before.
                let _ = file.set_len(from);
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Length of the checksum and the record's length, which precede the bytes of a record.
const PREFIX: usize = 16;

/// Size of a slot: the state word, then twice checksum, length and record; a multiple of eight.
const fn slot_size(record: usize) -> usize {
    8 + 2 * half_size(record)
}

const fn half_size(record: usize) -> usize {
    PREFIX + record.next_multiple_of(8)
}

fn slot_at(slot: usize, record: usize) -> usize {
    HEADER + slot * slot_size(record)
}

fn half_at(slot_at: usize, half: u64, record: usize) -> usize {
    slot_at + 8 + if half == 0 { 0 } else { half_size(record) }
}

/// Computes a checksum by multiplying and rotating, word by word in four chains that a processor
/// executes in parallel. The checksum protects against accidents, not against malice, because only
/// root can write the file.
fn checksum(slot: usize, record: &[u8]) -> u64 {
    const FACTOR: u64 = 0xD6E8_FEB8_6659_FD93;
    const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let mut sums: [u64; 4] =
        std::array::from_fn(|chain| SEED ^ ((slot as u64) << 2 | chain as u64));
    let (blocks, tail) = record.as_chunks::<32>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = mix(*sum, u64::from_ne_bytes(*word));
        }
    }
    let mut last = [0; 32];
    last[..tail.len()].copy_from_slice(tail);
    for (sum, word) in sums.iter_mut().zip(last.as_chunks::<8>().0) {
        *sum = mix(*sum, u64::from_ne_bytes(*word));
    }
    sums.into_iter().fold(record.len() as u64, mix)
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::InUse { path } => {
                write!(f, "{} is held by another instance", path.display())
            }
            StateError::Untrusted { path, uid, mode } => write!(
                f,
                "{} (user {uid}, mode {mode:04o}) could have been changed by others; it must be a regular file of \
                 root or of this user, with mode 0600 and one name",
                path.display()
            ),
            StateError::Foreign { path, what, found, wanted } => write!(
                f,
                "{} is not a state file of this version: {what} {found:#x} instead of {wanted:#x}",
                path.display()
            ),
            StateError::Os { doing, path, error } => {
                write!(f, "{doing} {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for StateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StateError::Os { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Point at which a test interrupts a write.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum TornWrite {
    /// Half of the record is written.
    Record,
    /// The record is written, its checksum is not.
    Checksum,
    /// All but the state word is written.
    State,
}

#[doc(hidden)]
impl StateFile {
    /// Executes [`StateFile::write`] up to `torn`, as if this process were killed there.
    pub fn write_torn(&mut self, slot: usize, record: &[u8], torn: TornWrite) {
        let at = slot_at(slot, self.record);
        let other = if self.map.load(at) & HALF == 0 { HALF } else { 0 };
        let half = half_at(at, other, self.record);
        let (part, sum) = match torn {
            TornWrite::Record => (record.len() / 2, false),
            TornWrite::Checksum => (record.len(), false),
            TornWrite::State => (record.len(), true),
        };
        self.map.write(half + PREFIX, &record[..part]);
        if sum {
            self.map.store(half + 8, record.len() as u64);
            self.map.store(half, checksum(slot, record));
        }
    }

    /// Returns the offset of the record of `slot` in the file, so that a test can damage it.
    pub fn offset_of(&self, slot: usize) -> usize {
        let at = slot_at(slot, self.record);
        half_at(at, self.map.load(at) & HALF, self.record) + PREFIX
    }
}
