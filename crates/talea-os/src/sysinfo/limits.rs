//! Resource limits that decide what a process may do without privileges.

use super::sys_root::SysRoot;

/// Soft limits of a process. `u64::MAX` stands for no limit, and `None` for an unreadable one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Highest real-time priority: RLIMIT_RTPRIO.
    pub rt_priority: Option<u64>,
    /// CPU time of a real-time thread in microseconds without blocking: RLIMIT_RTTIME.
    pub rt_time_us: Option<u64>,
    /// Limit of the nice value, RLIMIT_NICE: a nice value may go down to 20 minus this limit.
    pub nice: Option<u64>,
    /// Bytes of memory that the process may lock: RLIMIT_MEMLOCK.
    pub memlock: Option<u64>,
    /// Number of descriptors: RLIMIT_NOFILE.
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
