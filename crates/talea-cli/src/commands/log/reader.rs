//! Reader of the files of the audit trail.
//!
//! Model: each reading returns the complete lines that were added since the last one, in the order
//! of their times; the lines of one subject keep their order also if the clock was set back. A file
//! that this user may not read is skipped. A file that was removed meanwhile has ended.

use super::entry::Entry;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use talea_daemon::trail::store::{Owner, list};

/// Maximum number of bytes that one reading takes from one file.
const MAX_BYTES: u64 = 64 << 20;

/// Records of one reading.
#[derive(Debug, Default)]
pub(in crate::commands) struct Found {
    pub(in crate::commands) entries: Vec<Entry>,
    /// Number of records that are missing between others of their subject.
    pub(in crate::commands) missing: u64,
    /// Number of incomplete lines.
    pub(in crate::commands) damaged: usize,
}

/// Position in the files.
#[derive(Debug)]
pub(in crate::commands) struct Reader {
    directory: PathBuf,
    offsets: BTreeMap<PathBuf, u64>,
    /// Number of the last record of each subject.
    last: BTreeMap<Owner, u64>,
}

impl Reader {
    pub(in crate::commands) fn new(directory: PathBuf) -> Reader {
        Reader { directory, offsets: BTreeMap::new(), last: BTreeMap::new() }
    }

    /// Returns the records since the last reading that are not before `since`.
    pub(in crate::commands) fn read(&mut self, since: &str) -> io::Result<Found> {
        let mut found = Found::default();
        let mut offsets = BTreeMap::new();
        let mut keyed: Vec<(String, Entry)> = Vec::new();
        for (owner, files) in list(&self.directory)? {
            // A clock that was set back does not change the order of one subject's records.
            let mut latest = String::new();
            for file in files {
                let before = self.offsets.get(&file.path).copied().unwrap_or(0);
                let Some((text, after)) = read_lines(&file.path, before)? else { continue };
                offsets.insert(file.path, after);
                for line in text.split_terminator('\n').filter(|line| !line.is_empty()) {
                    let Some(entry) = Entry::parse(line) else {
                        found.damaged += 1;
                        continue;
                    };
                    let last = self.last.insert(owner, entry.number());
                    if entry.time() < since {
                        continue;
                    }
                    if let Some(last) = last {
                        found.missing += entry.number().saturating_sub(last + 1);
                    }
                    if entry.time() > latest.as_str() {
                        entry.time().clone_into(&mut latest);
                    }
                    keyed.push((latest.clone(), entry));
                }
            }
        }
        self.offsets = offsets;
        keyed.sort_by(|one, other| one.0.cmp(&other.0));
        found.entries = keyed.into_iter().map(|(_, entry)| entry).collect();
        Ok(found)
    }
}

/// Returns the complete lines from `offset` on, and the offset behind them. `None` if the file was
/// removed, or this user may not read it.
fn read_lines(path: &Path, offset: u64) -> io::Result<Option<(String, u64)>> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let mut file = match opened {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(None);
        }
        other => other?,
    };
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    Ok(Some((text, offset + end as u64)))
}
