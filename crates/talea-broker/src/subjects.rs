//! Subjects of charges: the units to which connections, specs, requests and log lines are charged.
//!
//! | user of a connection or spec | subject |
//! | --- | --- |
//! | root | root, without a request rate |
//! | a user that a rule serves, whose subject has specs, or of a front end | the user |
//! | a subordinate user of such a user (`subuid(5)`) | the owner of the range |
//! | any other user | one subject for all of them: [`Subject::UNSERVED`] |
//!
//! A user without an entry in the rules therefore gets no larger share by connecting as several
//! users: neither as subordinate users nor together with other users that no rule serves. A range
//! that root owns is charged to the first user of the range, because root has reserves.

mod charged;

use std::fmt;
use talea_core::setup::SubordinateUsers;

/// Unit to which connections, specs, requests and log lines are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject(u32);

impl Subject {
    /// Root.
    pub const ROOT: Subject = Subject(0);
    /// All users that no rule serves, together. The number is the kernel's "no user".
    pub const UNSERVED: Subject = Subject(u32::MAX);

    /// Returns the subject of one user.
    pub const fn user(uid: u32) -> Subject {
        Subject(uid)
    }

    /// Returns the number of the subject: a user id, or the kernel's "no user".
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Subject::UNSERVED => f.write_str("the group of users that no rule serves"),
            Subject(uid) => write!(f, "user {uid}"),
        }
    }
}

/// Owners of subordinate users.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subordinates {
    /// Disjoint ranges in increasing order: first user, last user, owner.
    ranges: Vec<(u32, u32, u32)>,
}

impl Subordinates {
    /// Creates the lookup. Where two ranges overlap, the one with the lower start applies.
    pub(crate) fn new(ranges: &[SubordinateUsers]) -> Subordinates {
        let mut sorted: Vec<&SubordinateUsers> =
            ranges.iter().filter(|range| range.count > 0).collect();
        sorted.sort_by_key(|range| range.first);
        let mut disjoint: Vec<(u32, u32, u32)> = Vec::new();
        for range in sorted {
            let first = match disjoint.last() {
                Some(&(_, u32::MAX, _)) => break,
                Some(&(_, last, _)) => range.first.max(last + 1),
                None => range.first,
            };
            let last = range.first.saturating_add(range.count - 1);
            if first <= last {
                let owner = if range.owner == 0 { range.first } else { range.owner };
                disjoint.push((first, last, owner));
            }
        }
        Subordinates { ranges: disjoint }
    }

    /// Returns the owner of a subordinate user; the user itself if it is none.
    fn owner(&self, uid: u32) -> u32 {
        let after = self.ranges.partition_point(|&(first, ..)| first <= uid);
        match after.checked_sub(1).map(|at| self.ranges[at]) {
            Some((_, last, owner)) if uid <= last => owner,
            _ => uid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(owner: u32, first: u32, count: u32) -> SubordinateUsers {
        SubordinateUsers { owner, first, count }
    }

    #[test]
    fn a_subordinate_user_has_the_owner_of_its_range() {
        let ranges = [
            range(1001, 200_000, 65_536),
            range(1000, 100_000, 65_536),
            range(0, 300_000, 10),
            range(1002, 265_000, 2_000),
            range(1003, 400_000, 0),
            range(1004, u32::MAX - 1, 9),
            range(1005, u32::MAX, 1),
        ];
        let subordinates = Subordinates::new(&ranges);
        for (uid, owner) in [
            (1000, 1000),
            (99_999, 99_999),
            (100_000, 1000),
            (165_535, 1000),
            (165_536, 165_536),
            (200_000, 1001),
            (265_535, 1001),
            (265_536, 1002),
            (266_999, 1002),
            (267_000, 267_000),
            (300_000, 300_000),
            (300_009, 300_000),
            (400_000, 400_000),
            (u32::MAX - 1, 1004),
        ] {
            assert_eq!(subordinates.owner(uid), owner, "user {uid}");
        }
    }
}
