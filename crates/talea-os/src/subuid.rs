//! Subordinate users: the ranges of user ids that users may take in user namespaces.
//!
//! `subuid(5)`: each line of `/etc/subuid` is a user name or id, the first subordinate user id, and
//! the number of ids. Ranges from another source of `nsswitch.conf(5)` are not known here.

use crate::{files, users};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use talea_core::setup::SubordinateUsers;

/// Path of the file.
pub const PATH: &str = "/etc/subuid";
/// Maximum number of bytes that are read.
const FILE_MAX: u64 = 1 << 20;
/// Maximum number of ranges.
const RANGES_MAX: usize = 16_384;

/// Reason why the file was not read.
#[derive(Debug)]
pub enum Unreadable {
    /// Another user could have written the file.
    Untrusted(files::Untrusted),
    /// Another error.
    Os(io::Error),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Untrusted(error) => error.fmt(f),
            Unreadable::Os(error) => write!(f, "{PATH}: {error}"),
        }
    }
}

/// Reads the ranges of the file at `path`; none if it does not exist. Lines that are malformed or
/// name an unknown user are ignored, as are those beyond 1 MiB and beyond 16,384 ranges.
pub fn read(path: &Path) -> Result<Vec<SubordinateUsers>, Unreadable> {
    if matches!(path.try_exists(), Ok(false)) {
        return Ok(Vec::new());
    }
    let file = files::open_trusted(path).map_err(Unreadable::Untrusted)?;
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes).map_err(Unreadable::Os)?;
    let mut known: BTreeMap<String, Option<u32>> = BTreeMap::new();
    Ok(parse(&String::from_utf8_lossy(&bytes), |name| {
        *known
            .entry(name.to_owned())
            .or_insert_with(|| users::user_by_name(name).ok().flatten().map(|user| user.uid))
    }))
}

/// Returns the ranges of a file's text. `user` finds a user by name.
fn parse(text: &str, mut user: impl FnMut(&str) -> Option<u32>) -> Vec<SubordinateUsers> {
    let ranges = text.lines().filter_map(|line| {
        let mut fields = line.trim().split(':');
        let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        let (first, count) = (first.parse().ok()?, count.parse().ok()?);
        let owner = match owner.parse() {
            Ok(uid) => uid,
            Err(_) => user(owner)?,
        };
        Some(SubordinateUsers { owner, first, count })
    });
    ranges.take(RANGES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_known_users_are_read_and_other_lines_are_ignored() {
        let text = "alice:100000:65536\n# a comment\n1001:200000:10\nnobody knows:1:1\n\nbob:x:5\n\
                    alice:400000\nalice:300000:4294967296\n alice:500000:1 \n";
        let found = parse(text, |name| (name == "alice").then_some(1000));
        let range = |owner, first, count| SubordinateUsers { owner, first, count };
        let expected =
            [range(1000, 100_000, 65_536), range(1001, 200_000, 10), range(1000, 500_000, 1)];
        assert_eq!(found, expected);
        let many = "5:6:7\n".repeat(RANGES_MAX + 1);
        assert_eq!(parse(&many, |_| None).len(), RANGES_MAX);
    }

    #[test]
    fn a_file_that_does_not_exist_has_no_ranges() {
        assert_eq!(read(Path::new("/no such/subuid")).expect("none"), []);
    }
}
