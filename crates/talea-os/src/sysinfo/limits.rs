//! Resource limits that decide what a process may do without privileges.

use super::sys_root::SysRoot;

/// Soft limits of a process; `u64::MAX` for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// RLIMIT_RTPRIO: highest real-time priority.
    pub rt_priority: Option<u64>,
    /// RLIMIT_RTTIME: CPU time in microseconds without blocking.
    pub rt_time_us: Option<u64>,
    /// RLIMIT_NICE: nice may go down to 20 minus this.
    pub nice: Option<u64>,
    /// RLIMIT_MEMLOCK: bytes.
    pub memlock: Option<u64>,
    /// RLIMIT_NOFILE: descriptors.
    pub files: Option<u64>,
}

impl Limits {
    pub(super) fn read(root: &SysRoot) -> Limits {
        let text = root.text("/proc/self/limits").unwrap_or_default();
        let find = |name: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
            match rest.split_ascii_whitespace().next()? {
                "unlimited" => Some(u64::MAX),
                number => number.parse().ok(),
            }
        };
        Limits {
            rt_priority: find("Max realtime priority"),
            rt_time_us: find("Max realtime timeout"),
            nice: find("Max nice priority"),
            memlock: find("Max locked memory"),
            files: find("Max open files"),
        }
    }
}
