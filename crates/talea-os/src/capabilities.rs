//! Capabilities of the calling thread, and how to drop them.
//!
//! Linux keeps capabilities per thread, so a process drops them before it starts other threads.
//! Dropping is final: it also shrinks the bounding set where the kernel allows that. No program
//! started later regains the capabilities.
//!
//! Reference: `capabilities(7)`.

use crate::sys::{check, check_long, is};
use std::fmt;
use std::io;

/// Capabilities that Talea uses, with the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Right to change the owners of files.
    Chown = 0,
    /// Right to write any file.
    DacOverride = 1,
    /// Right to read any file and to enter any directory.
    DacReadSearch = 2,
    /// Right to signal any process.
    Kill = 5,
    /// Right to change group ids.
    SetGid = 6,
    /// Right to change user ids.
    SetUid = 7,
    /// Right to shrink the bounding set.
    SetPcap = 8,
    /// Right to lock memory.
    IpcLock = 14,
    /// Right to inspect any process.
    SysPtrace = 19,
    /// Right to administer the system: mounts, cgroups, sysctls.
    SysAdmin = 21,
    /// Right to set policy, priority and affinity of any thread.
    SysNice = 23,
    /// Right to exceed resource limits.
    SysResource = 24,
    /// Right to measure the CPU time of any thread by perf events.
    PerfMon = 38,
}

/// Set of capabilities, by bit number.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CapSet(pub u64);

impl CapSet {
    /// Returns the set of these capabilities.
    pub fn of(capabilities: &[Capability]) -> CapSet {
        CapSet(capabilities.iter().fold(0, |bits, &one| bits | 1 << one as u8))
    }

    /// Whether `capability` is a member.
    pub fn has(self, capability: Capability) -> bool {
        self.0 & 1 << capability as u8 != 0
    }
}

impl fmt::Debug for CapSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CapSet({:#x})", self.0)
    }
}

/// `_LINUX_CAPABILITY_VERSION_3`: two words of 32 bits each.
const VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Word {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Returns the effective capabilities of the calling thread.
pub fn effective() -> io::Result<CapSet> {
    Ok(join(&read()?, |word| word.effective))
}

/// Drops all capabilities of the calling thread that are not in `wanted`. Returns the remaining
/// permitted and effective capabilities.
pub fn keep_only(wanted: CapSet) -> io::Result<CapSet> {
    let has = join(&read()?, |word| word.permitted);
    let kept = CapSet(has.0 & wanted.0);
    // The bounding set comes first, while the right to shrink it remains. Without that right
    // nothing is lost: a thread without capabilities gains none except by a set-user-id program.
    for number in 0..64u64 {
        if wanted.0 & 1 << number != 0 {
            continue;
        }
        // SAFETY: takes integers.
        match check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) }) {
            Ok(_) => {}
            Err(error) if is(&error, libc::EPERM) => break,
            // Beyond the last capability that this kernel knows.
            Err(error) if is(&error, libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
    }
    let clear_all = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
    // SAFETY: takes integers.
    check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear_all, 0, 0, 0) })?;
    write(kept)?;
    Ok(kept)
}

fn read() -> io::Result<[Word; 2]> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut words = [Word::default(); 2];
    // SAFETY: version 3 writes two words.
    check_long(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) })?;
    Ok(words)
}

fn write(set: CapSet) -> io::Result<()> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let word = |bits: u32| Word { effective: bits, permitted: bits, inheritable: 0 };
    let words = [word(set.0 as u32), word((set.0 >> 32) as u32)];
    // SAFETY: version 3 reads two words.
    check_long(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, words.as_ptr()) })?;
    Ok(())
}

fn join(words: &[Word; 2], part: impl Fn(&Word) -> u32) -> CapSet {
    CapSet(u64::from(part(&words[0])) | u64::from(part(&words[1])) << 32)
}
