//! Names of users and groups, from the system's name service.
//!
//! Only configuration and reports use names; every decision is made on numbers.

use crate::sys::errno;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// User account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User id of the account.
    pub uid: u32,
    /// Primary group id of the account.
    pub gid: u32,
}

/// Account under which a program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// User with its primary group.
    pub user: User,
    /// Groups of a login, including the primary group.
    pub groups: Vec<u32>,
    /// Home directory.
    pub home: PathBuf,
    /// Login shell.
    pub shell: PathBuf,
}

/// Group of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Name of the group.
    pub name: String,
    /// Group id of the group.
    pub gid: u32,
}

/// Maximum size of a record in bytes. A larger record is a configuration mistake.
const ROOM_MAX: usize = 1 << 20;

/// Returns the account called `name`. Returns `None` if there is none.
pub fn user_by_name(name: &str) -> io::Result<Option<User>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    user(|record, room, found| {
        // SAFETY: all pointers are valid for the call; `room` says its own length.
        unsafe {
            libc::getpwnam_r(name.as_ptr(), record, room.as_mut_ptr().cast(), room.len(), found)
        }
    })
}

/// Returns the account with number `uid`. Returns `None` if there is none.
pub fn user_by_id(uid: u32) -> io::Result<Option<User>> {
    user(|record, room, found| {
        // SAFETY: as above.
        unsafe { libc::getpwuid_r(uid, record, room.as_mut_ptr().cast(), room.len(), found) }
    })
}

/// Returns the last uid of `range` that no account, no process and none of `taken` has. Returns
/// `None` if there is none.
pub fn unused_uid(range: RangeInclusive<u32>, taken: &[u32]) -> io::Result<Option<u32>> {
    let mut used: Vec<u32> = taken.to_vec();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let is_process = entry.file_name().as_bytes().first().is_some_and(u8::is_ascii_digit);
        // A process may end meanwhile.
        if let (true, Ok(meta)) = (is_process, entry.metadata()) {
            used.push(meta.uid());
        }
    }
    for uid in range.rev().filter(|uid| !used.contains(uid)) {
        if user_by_id(uid)?.is_none() {
            return Ok(Some(uid));
        }
    }
    Ok(None)
}

/// Returns the account with this name, or else with this number. Returns `None` if there is none.
pub fn account(name_or_uid: &str) -> io::Result<Option<Account>> {
    let by_name = user_by_name(name_or_uid)?;
    let found = match (by_name, name_or_uid.parse()) {
        (None, Ok(uid)) => user_by_id(uid)?,
        (found, _) => found,
    };
    let Some(user) = found else { return Ok(None) };
    let groups = groups_of(&user)?;
    let of = |record: &libc::passwd| {
        // SAFETY: a record that was found has C strings.
        unsafe { (path(record.pw_dir), path(record.pw_shell)) }
    };
    let ask = |record, room: &mut [u8], found| {
        // SAFETY: all pointers are valid for the call; `room` says its own length.
        unsafe { libc::getpwuid_r(user.uid, record, room.as_mut_ptr().cast(), room.len(), found) }
    };
    let (home, shell) = lookup(ask, of)?.unwrap_or_default();
    Ok(Some(Account { user, groups, home, shell }))
}

/// Returns the group called `name`. Returns `None` if there is none.
pub fn group_by_name(name: &str) -> io::Result<Option<Group>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    group(|record, room, found| {
        // SAFETY: as above.
        unsafe {
            libc::getgrnam_r(name.as_ptr(), record, room.as_mut_ptr().cast(), room.len(), found)
        }
    })
}

/// Returns every group that a login of `user` would have, including the primary group.
pub fn groups_of(user: &User) -> io::Result<Vec<u32>> {
    let name = CString::new(user.name.as_str()).map_err(|_| errno(libc::EINVAL))?;
    let mut groups = vec![0 as libc::gid_t; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: `groups` has room for `count` ids; `name` is a C string.
        let returned = unsafe {
            libc::getgrouplist(name.as_ptr(), user.gid, groups.as_mut_ptr(), &raw mut count)
        };
        let count = usize::try_from(count).unwrap_or(0);
        if returned >= 0 {
            groups.truncate(count);
            groups.sort_unstable();
            groups.dedup();
            return Ok(groups);
        }
        if count <= groups.len() || count > ROOM_MAX {
            return Err(errno(libc::ERANGE));
        }
        groups.resize(count, 0);
    }
}

fn user(
    ask: impl FnMut(*mut libc::passwd, &mut [u8], *mut *mut libc::passwd) -> libc::c_int,
) -> io::Result<Option<User>> {
    lookup(ask, |record: &libc::passwd| {
        // SAFETY: a record that was found has a C string for a name.
        User { name: unsafe { text(record.pw_name) }, uid: record.pw_uid, gid: record.pw_gid }
    })
}

fn group(
    ask: impl FnMut(*mut libc::group, &mut [u8], *mut *mut libc::group) -> libc::c_int,
) -> io::Result<Option<Group>> {
    lookup(ask, |record: &libc::group| {
        // SAFETY: a record that was found has a C string for a name.
        Group { name: unsafe { text(record.gr_name) }, gid: record.gr_gid }
    })
}

/// Calls `ask` with a growing buffer until the record fits. `take` reads the record while the
/// buffer is alive.
fn lookup<R, T>(
    mut ask: impl FnMut(*mut R, &mut [u8], *mut *mut R) -> libc::c_int,
    take: impl FnOnce(&R) -> T,
) -> io::Result<Option<T>> {
    let mut room = vec![0u8; 1024];
    loop {
        let mut record = MaybeUninit::<R>::uninit();
        let mut found = std::ptr::null_mut();
        match ask(record.as_mut_ptr(), &mut room, &raw mut found) {
            libc::ERANGE if room.len() < ROOM_MAX => {
                let larger = room.len() * 4;
                room.resize(larger, 0);
            }
            libc::EINTR => {}
            // SAFETY: null, or `record`, which the call then has filled with pointers into `room`.
            0 => return Ok(unsafe { found.as_ref() }.map(take)),
            // "Not found", as different name services report it.
            libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
            other => return Err(errno(other)),
        }
    }
}

/// # Safety
/// `name` is a C string.
unsafe fn path(name: *const libc::c_char) -> PathBuf {
    // SAFETY: as the caller promises.
    PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()))
}

/// # Safety
/// `name` is a C string.
unsafe fn text(name: *const libc::c_char) -> String {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_user_zero_in_group_zero() {
        let root = user_by_name("root").expect("a lookup").expect("root");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(user_by_id(0).expect("a lookup"), Some(root.clone()));
        assert!(groups_of(&root).expect("a lookup").contains(&0));
    }

    #[test]
    fn an_account_is_found_by_its_name_and_by_its_number() {
        let root = account("root").expect("a lookup").expect("root");
        assert_eq!((root.user.uid, root.groups.contains(&0)), (0, true));
        assert!(root.home.is_absolute(), "{root:?}");
        assert_eq!(account("0").expect("a lookup"), Some(root));
        assert_eq!(account("3999999999").expect("a lookup"), None);
        assert_eq!(account("no such user").expect("a lookup"), None);
    }

    #[test]
    fn an_unknown_name_is_not_an_error() {
        assert_eq!(user_by_name("no such user").expect("a lookup"), None);
        assert_eq!(user_by_name("nul\0name").expect("a lookup"), None);
        assert_eq!(group_by_name("no such group").expect("a lookup"), None);
        assert_eq!(user_by_id(3_999_999_999).expect("a lookup"), None);
    }
}
