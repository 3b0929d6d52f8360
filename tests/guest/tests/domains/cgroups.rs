//! Hierarchies of control groups, which this machine has for the tests alone.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CStr;
use std::fs;
use std::path::Path;
use talea_kernel_tests::eventually;

const ROOT: &str = "/sys/fs/cgroup";

/// Version of the hierarchy of the cpusets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// Mounted hierarchy; dropping it restores the one that the machine starts with.
pub(crate) struct Mounted(Version);

/// Mounts the cpusets in this version. The machine starts with version 2.
pub(crate) fn switch_to(version: Version) -> Mounted {
    if version == Version::V1 {
        const CPUSET: &CStr = c"cpuset";
        unmount(ROOT, UnmountFlags::empty()).expect("a mount point");
        mount("tmpfs", ROOT, "tmpfs", MountFlags::empty(), None).expect("tmpfs");
        let at = format!("{ROOT}/cpuset");
        fs::create_dir(&at).expect("a folder");
        mount("cgroup", &at, "cgroup", MountFlags::empty(), CPUSET).expect("cgroup v1");
    }
    Mounted(version)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.0 == Version::V1 && !std::thread::panicking() {
            unmount(format!("{ROOT}/cpuset"), UnmountFlags::empty()).expect("a mount point");
            unmount(ROOT, UnmountFlags::empty()).expect("a mount point");
            mount("cgroup2", ROOT, "cgroup2", MountFlags::empty(), None).expect("cgroup v2");
            // The kernel moves the controller after the end of the other hierarchy.
            let controllers = || fs::read_to_string(format!("{ROOT}/cgroup.controllers"));
            eventually("cgroup v2 has the cpusets", || {
                controllers().is_ok_and(|text| text.contains("cpuset"))
            });
        }
    }
}

/// Partition of an administrator, on cgroup v2.
const PARTITION: &str = "/sys/fs/cgroup/listing";

/// Makes a root domain of one CPU.
pub(crate) fn make_partition_of(cpu: u32) {
    write(Path::new(ROOT), "cgroup.subtree_control", "+cpuset");
    let at = Path::new(PARTITION);
    fs::create_dir(at).expect("a group");
    write(at, "cpuset.cpus", &cpu.to_string());
    write(at, "cpuset.cpus.partition", "root");
    let state = fs::read_to_string(at.join("cpuset.cpus.partition")).expect("its state");
    assert_eq!(state.trim(), "root");
}

/// Moves a process into the partition.
pub(crate) fn enter_partition(pid: i32) {
    write(Path::new(PARTITION), "cgroup.procs", &pid.to_string());
}

fn write(at: &Path, name: &str, text: &str) {
    let path = at.join(name);
    fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
