//! Control groups: the version that controls scheduling here, and whether they refuse real-time
//! policies.
//!
//! With RT_GROUP_SCHED on cgroup v1 every group but the root starts with no real-time runtime, and
//! FIFO is then refused (`EPERM`); SCHED_DEADLINE is not.

use super::sys_root::SysRoot;
use talea_core::{Span, Work};

/// Hierarchy of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 1, mounted at this path.
    V1(String),
    /// Version 2, mounted at this path.
    V2(String),
    /// No hierarchy of the controller is visible.
    Absent,
}

/// Control groups that matter to scheduling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    /// Hierarchy of the cpu controller.
    pub cpu: Hierarchy,
    /// Hierarchy of the cpuset controller.
    pub cpuset: Hierarchy,
    /// Group of this process, where the kernel has RT_GROUP_SCHED; `None` otherwise.
    pub rt_group: Option<RtGroup>,
}

/// Real-time runtime of a cgroup v1 `cpu` group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtGroup {
    /// Path in the hierarchy; `/` is the root group.
    pub path: String,
    /// Runtime of the group's FIFO and RR threads per period. Zero means that the kernel refuses
    /// such policies. `None` stands for no limit.
    pub runtime: Option<Work>,
    /// Period of the runtime.
    pub period: Span,
}

impl RtGroup {
    /// Whether the kernel refuses FIFO and RR to threads in the group.
    pub fn refuses_realtime(&self) -> bool {
        self.runtime.is_some_and(Work::is_zero)
    }
}

impl Cgroups {
    pub(super) fn read(root: &SysRoot) -> Cgroups {
        let mounts = mounts(root);
        let find = |controller: &str| {
            let v1 =
                mounts.iter().find(|mount| mount.options.iter().any(|option| option == controller));
            if let Some(mount) = v1 {
                return Hierarchy::V1(mount.at.clone());
            }
            let v2 = mounts.iter().find(|mount| {
                let listed = root.text(&format!("{}/cgroup.controllers", mount.at));
                mount.v2
                    && listed.is_ok_and(|text| {
                        text.split_ascii_whitespace().any(|word| word == controller)
                    })
            });
            v2.map_or(Hierarchy::Absent, |mount| Hierarchy::V2(mount.at.clone()))
        };
        let rt_group = rt_group(root, &mounts, "/proc/self/cgroup");
        Cgroups { cpu: find("cpu"), cpuset: find("cpuset"), rt_group }
    }
}

pub(super) struct Mount {
    at: String,
    v2: bool,
    /// Mount options. For version 1 they name the controllers.
    options: Vec<String>,
}

/// Reads the control group file systems from `/proc/self/mounts`. Later mounts hide earlier ones at
/// the same place.
pub(super) fn mounts(root: &SysRoot) -> Vec<Mount> {
    let text = root.text("/proc/self/mounts").unwrap_or_default();
    let mount = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (at, kind, options) = (words.next()?, words.next()?, words.next()?);
        matches!(kind, "cgroup" | "cgroup2").then(|| Mount {
            at: at.replace("\\040", " "),
            v2: kind == "cgroup2",
            options: options.split(',').map(str::to_owned).collect(),
        })
    };
    text.lines().filter_map(mount).collect()
}

/// Returns the group of the `cpu` controller (v1) in the text of `/proc/TID/cgroup`.
pub(super) fn cpu_path(membership: &str) -> Option<&str> {
    membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next()?;
        controllers.split(',').any(|name| name == "cpu").then(|| parts.next())?
    })
}

/// Reads the group that a line of `/proc/TID/cgroup` such as `1:cpu,cpuacct:/path` names.
pub(super) fn rt_group(root: &SysRoot, mounts: &[Mount], membership: &str) -> Option<RtGroup> {
    let text = root.text(membership).ok()?;
    let path = cpu_path(&text)?;
    let mount =
        mounts.iter().find(|mount| !mount.v2 && mount.options.iter().any(|name| name == "cpu"))?;
    let read =
        |name: &str| root.number(&format!("{}/{}/{name}", mount.at, path.trim_start_matches('/')));
    let runtime = read("cpu.rt_runtime_us")?;
    let period =
        read("cpu.rt_period_us").and_then(|us| u64::try_from(us).ok()).and_then(Span::from_us)?;
    Some(RtGroup {
        path: path.to_owned(),
        runtime: u64::try_from(runtime).ok().and_then(Work::from_us),
        period,
    })
}
