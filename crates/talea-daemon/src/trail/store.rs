//! Files of the audit trail, bounded in total, with a fair share for each subject.
//!
//! Model: each subject has a *stream* of lines, in files that are only appended to. The name of a
//! file has the subject and the number of its first line
//! (`uid-1000.000000000001.jsonl`). If the next line would exceed the bound of all files, the
//! stream with the most bytes loses its oldest file. So a subject that causes many records
//! displaces its own ones: a stream below the equal share of all streams never loses a line.
//!
//! A file counts with whole blocks of `BLOCK`, as on disk. A removed file is truncated first,
//! so that a reader with an open descriptor keeps no space.
//!
//! *Access.* The daemon's user owns the files. A user reads the stream of his own records by an
//! access control list, as in the journal of systemd (`journalctl(1)`). Root reads all of them;
//! lines about the daemon have no user and are readable by all users. The users that no rule
//! serves share one stream, which root reads only.
//!
//! *Damage.* Lines are appended by one call. A daemon that is killed in between leaves a part of
//! the last line; the next append starts a new line, and readers skip the part. Nothing is
//! synchronised to the disk: a crash of the kernel may lose the last seconds.

use super::line::{self, Clocks};
use rustix::fs::{XattrFlags, fsetxattr};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use talea_broker::{AuditRecord, Subject};
use talea_core::{Monotonic, mutate};
use talea_os::file_lock;

/// Name of the lock file. The directory itself is no lock: every user can read it, and so lock it.
const LOCK: &str = "lock";
/// Unit of the space that a file occupies, in bytes.
const BLOCK: u64 = 4_096;
/// Smallest and largest file, in bytes.
const FILE_BYTES: (u64, u64) = (16 << 10, 1 << 20);
/// Extension of files.
const EXTENSION: &str = "jsonl";
/// Longest line, in bytes, for the search of the last one.
const MAX_LINE: u64 = 16 << 10;

/// Owner of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The daemon itself.
    Daemon,
    /// One user, with the user's subordinate users.
    User(u32),
    /// The users that no rule serves.
    Unserved,
}

impl Owner {
    fn of(subject: Option<Subject>) -> Owner {
        match subject {
            None => Owner::Daemon,
            Some(Subject::UNSERVED) => Owner::Unserved,
            Some(subject) => Owner::User(subject.number()),
        }
    }

    fn file_name(self, first: u64) -> String {
        let name = match self {
            Owner::Daemon => "daemon".to_owned(),
            Owner::User(uid) => format!("uid-{uid}"),
            Owner::Unserved => "unserved".to_owned(),
        };
        format!("{name}.{first:012}.{EXTENSION}")
    }

    fn parse(name: &str) -> Option<(Owner, u64)> {
        let mut parts = name.split('.');
        let (owner, first, extension) = (parts.next()?, parts.next()?, parts.next()?);
        let owner = match owner {
            "daemon" => Owner::Daemon,
            "unserved" => Owner::Unserved,
            user => Owner::User(user.strip_prefix("uid-")?.parse().ok()?),
        };
        (extension == EXTENSION && parts.next().is_none()).then_some(())?;
        Some((owner, first.parse().ok()?))
    }
}

/// A file of a stream.
#[derive(Clone, Debug)]
pub struct TrailFile {
    /// Number of the first line.
    pub first: u64,
    /// Path of the file.
    pub path: PathBuf,
    bytes: u64,
}

impl TrailFile {
    fn charge(&self) -> u64 {
        self.bytes.max(1).next_multiple_of(BLOCK)
    }
}

/// Returns the files of all streams in a directory, in order.
///
/// # Errors
/// If the directory cannot be read.
pub fn list(directory: &Path) -> io::Result<BTreeMap<Owner, Vec<TrailFile>>> {
    let mut found: BTreeMap<Owner, Vec<TrailFile>> = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let Some((owner, first)) = entry.file_name().to_str().and_then(Owner::parse) else {
            continue;
        };
        // A file that was removed meanwhile is not listed.
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_file() {
            let file = TrailFile { first, path: entry.path(), bytes: meta.len() };
            found.entry(owner).or_default().push(file);
        }
    }
    for files in found.values_mut() {
        files.sort_by_key(|file| file.first);
    }
    Ok(found)
}

/// Lines of a stream that are not written yet.
#[derive(Debug, Default)]
struct Pending {
    text: String,
    events: Option<Events>,
}

/// Events of lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Events {
    pub(super) count: u64,
    pub(super) first: Monotonic,
    pub(super) last: Monotonic,
}

#[derive(Debug, Default)]
struct Stream {
    files: VecDeque<TrailFile>,
    /// Number of the next line; `None` until the last line is found.
    next: Option<u64>,
    /// Whether the last file ends within a line.
    is_torn: bool,
    pending: Pending,
}

impl Stream {
    fn charge(&self) -> u64 {
        self.files.iter().map(TrailFile::charge).sum()
    }
}

/// Open directory of the audit trail.
#[derive(Debug)]
pub(super) struct Store {
    directory: PathBuf,
    max_bytes: u64,
    streams: BTreeMap<Owner, Stream>,
    /// Bytes of all files, in whole blocks.
    total: u64,
    // Holds the lock.
    _lock: File,
}

impl Store {
    /// Opens the directory, or creates it. No other daemon may have it open.
    pub(super) fn open(directory: &Path, max_bytes: u64) -> io::Result<Store> {
        match DirBuilder::new().mode(0o755).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            // The mask of the service must not hide a user's own records.
            Ok(()) => std::fs::set_permissions(directory, Permissions::from_mode(0o755))?,
            Err(_) => {}
        }
        talea_os::files::check_trusted_directory(directory).map_err(|untrusted| {
            io::Error::new(io::ErrorKind::PermissionDenied, untrusted.to_string())
        })?;
        let path = directory.join(LOCK);
        let lock = file_lock::lock(&path, file_lock::open(&path)?)?.taken().ok_or_else(|| {
            io::Error::new(io::ErrorKind::AddrInUse, "another daemon writes there")
        })?;
        let mut streams = BTreeMap::new();
        for (owner, files) in list(directory)? {
            let stream = Stream { files: files.into(), ..Stream::default() };
            streams.insert(owner, stream);
        }
        let total = streams.values().map(Stream::charge).sum();
        Ok(Store { directory: directory.to_owned(), max_bytes, streams, total, _lock: lock })
    }

    /// Whether an earlier daemon has recorded its stop; `None` without an earlier daemon.
    pub(super) fn has_started_before(&mut self) -> Option<bool> {
        let file = self.streams.get(&Owner::Daemon)?.files.back()?;
        let tail = read_tail(&file.path).ok()?;
        let last = tail.lines().rev().find(|line| line_number(line).is_some())?;
        Some(last.contains("\"event\":\"stop\""))
    }

    /// Adds the line of a record to its stream; [`Store::flush`] writes it.
    pub(super) fn add(&mut self, record: &AuditRecord, clocks: &Clocks) -> io::Result<()> {
        let owner = Owner::of(record.subject);
        let seq = self.next_line(owner)?;
        let stream = self.streams.entry(owner).or_default();
        stream.pending.text.push_str(&line::record(seq, clocks, record));
        let events = stream.pending.events.get_or_insert(Events {
            count: 0,
            first: record.first,
            last: record.last,
        });
        events.count += record.count;
        events.last = record.last;
        Ok(())
    }

    /// Writes all added lines. Returns the events of those that could not be written.
    pub(super) fn flush(&mut self) -> Vec<(Events, io::Error)> {
        let waiting = |(owner, stream): (&Owner, &Stream)| {
            (!stream.pending.text.is_empty()).then_some(*owner)
        };
        let owners: Vec<Owner> = self.streams.iter().filter_map(waiting).collect();
        let mut lost = Vec::new();
        for owner in owners {
            let stream = self.streams.entry(owner).or_default();
            let Pending { text, events } = std::mem::take(&mut stream.pending);
            if let (Err(error), Some(events)) = (self.append(owner, &text), events) {
                lost.push((events, error));
            }
        }
        lost
    }

    /// Writes a line about the daemon itself; `line` gets its number.
    pub(super) fn append_own(&mut self, line: impl FnOnce(u64) -> String) -> io::Result<()> {
        let seq = self.next_line(Owner::Daemon)?;
        self.append(Owner::Daemon, &line(seq))
    }

    /// Returns the number of the stream's next line, and counts it.
    fn next_line(&mut self, owner: Owner) -> io::Result<u64> {
        let stream = self.streams.entry(owner).or_default();
        let next = match (stream.next, stream.files.back()) {
            (Some(next), _) => next,
            (None, None) => 1,
            (None, Some(last)) => {
                let tail = match read_tail(&last.path) {
                    // An administrator has removed the file.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
                    other => other?,
                };
                stream.is_torn = !tail.is_empty() && !tail.ends_with('\n');
                let number = tail.lines().rev().find_map(line_number);
                number.map_or(last.first, |number| number + 1)
            }
        };
        stream.next = Some(next + 1);
        Ok(next)
    }

    /// Appends lines to a stream, in files of limited size.
    fn append(&mut self, owner: Owner, text: &str) -> io::Result<()> {
        let file_bytes = (self.max_bytes / 64).clamp(FILE_BYTES.0, FILE_BYTES.1);
        let mut rest = text;
        while !rest.is_empty() {
            // A part of whole lines that fits into a file.
            let most = rest.len().min(file_bytes as usize);
            let end = rest.as_bytes()[..most].iter().rposition(|&byte| byte == b'\n');
            let end = end.or_else(|| rest.find('\n')).map_or(rest.len(), |at| at + 1);
            let (part, after) = rest.split_at(end);
            self.make_room(part.len() as u64);
            let mut written = self.append_part(owner, part, file_bytes);
            while written.as_ref().is_err_and(is_full) && self.remove_oldest(true) {
                // On a full disk the trail uses its own space again.
                written = self.append_part(owner, part, file_bytes);
            }
            written?;
            rest = after;
        }
        Ok(())
    }

    fn append_part(&mut self, owner: Owner, part: &str, file_bytes: u64) -> io::Result<()> {
        let first = line_number(part).unwrap_or(1);
        let directory = self.directory.clone();
        let stream = self.streams.entry(owner).or_default();
        let fits = |last: &TrailFile| last.bytes + part.len() as u64 <= file_bytes;
        let is_new = !stream.files.back().is_some_and(fits);
        if is_new {
            let path = directory.join(owner.file_name(first));
            stream.files.push_back(TrailFile { first, path, bytes: 0 });
            stream.is_torn = false;
        }
        let file = stream.files.back_mut().expect("there is one");
        let before = file.charge();
        let mut text = std::borrow::Cow::Borrowed(part);
        if mutate!("trail-torn", stream.is_torn, false) {
            text.to_mut().insert(0, '\n');
        }
        let result = write_part(&file.path, owner, text.as_bytes());
        match &result {
            Ok(bytes) => (file.bytes, stream.is_torn) = (*bytes, false),
            Err(_) if is_new => {
                // Without an entry for a file that may not exist.
                let _ = std::fs::remove_file(&file.path);
                stream.files.pop_back();
                return result.map(drop);
            }
            Err(_) => {
                // The length may have been restored.
                let bytes = file.path.metadata().map_or(file.bytes, |meta| meta.len());
                stream.is_torn |= bytes != file.bytes;
                file.bytes = bytes;
            }
        }
        let after = file.charge();
        self.total = self.total + after - if is_new { 0 } else { before };
        result.map(drop)
    }

    /// Removes the oldest files of the largest streams until `bytes` more are within the bound.
    fn make_room(&mut self, bytes: u64) {
        let needed = bytes.next_multiple_of(BLOCK);
        while mutate!("trail-bound", self.total + needed > self.max_bytes, false)
            && self.remove_oldest(false)
        {}
    }

    /// Removes the oldest file of the largest stream, with `keeps_last` only if it has another
    /// one. Returns whether it has removed one.
    fn remove_oldest(&mut self, keeps_last: bool) -> bool {
        let streams = self.streams.iter().filter(|(_, stream)| !stream.files.is_empty());
        let charge =
            |stream: &Stream| mutate!("trail-fair", stream.charge(), u64::MAX - stream.charge());
        let largest = streams.max_by_key(|(_, stream)| charge(stream));
        let chosen = largest.map(|(owner, _)| *owner);
        let Some(stream) = chosen.and_then(|owner| self.streams.get_mut(&owner)) else {
            return false;
        };
        if keeps_last && stream.files.len() < 2 {
            return false;
        }
        let Some(oldest) = stream.files.pop_front() else { return false };
        self.total -= oldest.charge();
        // Another process may keep a removed file open.
        let truncated = OpenOptions::new().write(true).open(&oldest.path);
        drop(truncated.and_then(|file| file.set_len(0)));
        drop(std::fs::remove_file(&oldest.path));
        true
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns the number of a line; `None` if the line is damaged.
fn line_number(line: &str) -> Option<u64> {
    let line = line.trim_start_matches('\n');
    let digits = line.strip_prefix("{\"seq\":")?;
    let end = digits.find(',')?;
    let is_whole = line.lines().next()?.ends_with('}');
    digits[..end].parse().ok().filter(|_| is_whole)
}

/// Returns the end of a file, from the start of a line if it is longer than a line.
fn read_tail(path: &Path) -> io::Result<String> {
    let mut file = OpenOptions::new().read(true).custom_flags(no_follow()).open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(2 * MAX_LINE)))?;
    let mut bytes = Vec::new();
    file.take(2 * MAX_LINE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits() as i32
}

/// Appends to a file, or creates it with the access of its owner. Returns its new length.
fn write_part(path: &Path, owner: Owner, bytes: &[u8]) -> io::Result<u64> {
    let options = |create: bool| {
        let mut options = OpenOptions::new();
        options.append(true).create_new(create).mode(0o600).custom_flags(no_follow());
        options
    };
    let mut file = match options(false).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = options(true).open(path)?;
            share(&file, owner)?;
            file
        }
        other => other?,
    };
    let before = file.metadata()?.len();
    if let Err(error) = file.write_all(bytes) {
        // No part of a line stays, unless the disk refuses that, too.
        let _ = file.set_len(before);
        return Err(error);
    }
    Ok(before + bytes.len() as u64)
}

/// Lets the user of a stream read the file. On a file system without access control lists only the
/// daemon's user and root read it.
fn share(file: &File, owner: Owner) -> io::Result<()> {
    match owner {
        Owner::Daemon => file.set_permissions(Permissions::from_mode(0o644)),
        Owner::Unserved | Owner::User(0) => Ok(()),
        Owner::User(uid) => {
            let list = mutate!("trail-access", read_access(uid), read_access(uid + 1));
            match fsetxattr(file, "system.posix_acl_access", &list, XattrFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// Returns the access control list that lets the file's user read and write, and `uid` read:
/// `include/uapi/linux/posix_acl_xattr.h`.
fn read_access(uid: u32) -> Vec<u8> {
    const UNDEFINED: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 6, UNDEFINED),
        (0x02, 4, uid),
        (0x04, 0, UNDEFINED),
        (0x10, 4, UNDEFINED),
        (0x20, 0, UNDEFINED),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, access, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(access.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}
