//! Definitions of `perf_event_open(2)` shared by the tracing modules.

use crate::sys::{check, check_long};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `struct perf_event_attr` in the size of Linux 5.7, up to the last field that Talea uses.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Attr {
    pub(crate) kind: u32,
    pub(crate) size: u32,
    pub(crate) config: u64,
    pub(crate) sample_period: u64,
    pub(crate) sample_type: u64,
    pub(crate) read_format: u64,
    pub(crate) flags: u64,
    pub(crate) wakeup: u32,
    pub(crate) bp_type: u32,
    pub(crate) config1: u64,
    pub(crate) config2: u64,
    pub(crate) branch_sample_type: u64,
    pub(crate) sample_regs_user: u64,
    pub(crate) sample_stack_user: u32,
    pub(crate) clockid: i32,
    pub(crate) sample_regs_intr: u64,
    pub(crate) aux_watermark: u32,
    pub(crate) sample_max_stack: u16,
    pub(crate) reserved: u16,
}

const _: () = assert!(size_of::<Attr>() == 112);

pub(crate) const SOFTWARE: u32 = 1;
pub(crate) const DUMMY: u64 = 9;
pub(crate) const SAMPLE_TID: u64 = 1 << 1;
pub(crate) const SAMPLE_TIME: u64 = 1 << 2;
pub(crate) const DISABLED: u64 = 1;
pub(crate) const SAMPLE_ID_ALL: u64 = 1 << 18;
pub(crate) const USE_CLOCKID: u64 = 1 << 25;
pub(crate) const CONTEXT_SWITCH: u64 = 1 << 26;
pub(crate) const FLAG_PID_CGROUP: libc::c_ulong = 4;
pub(crate) const FLAG_CLOEXEC: libc::c_ulong = 8;
pub(crate) const ENABLE: libc::c_ulong = 0x2400;
pub(crate) const DISABLE: libc::c_ulong = 0x2401;
pub(crate) const INHERIT: u64 = 1 << 1;
pub(crate) const WATERMARK: u64 = 1 << 14;
pub(crate) const PAGE: usize = 4096;

/// Opens an event of thread `tid`, or of all threads (-1), on CPU `cpu`.
pub(crate) fn open(attr: &Attr, tid: i32, cpu: u32) -> io::Result<OwnedFd> {
    open_on(attr, tid, cpu as libc::c_int, 0)
}

/// Opens an event of all threads of a cgroup on CPU `cpu`. `directory` is the cgroup's.
pub(crate) fn open_on_cgroup(attr: &Attr, directory: &File, cpu: u32) -> io::Result<OwnedFd> {
    open_on(attr, directory.as_raw_fd(), cpu as libc::c_int, FLAG_PID_CGROUP)
}

/// Opens an event of thread `tid` on all CPUs.
pub(crate) fn open_on_any_cpu(attr: &Attr, tid: i32) -> io::Result<OwnedFd> {
    open_on(attr, tid, -1, 0)
}

fn open_on(
    attr: &Attr,
    target: i32,
    cpu: libc::c_int,
    flags: libc::c_ulong,
) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads `attr.size` bytes, the size of `attr`; the rest are integers.
    let fd = check_long(unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attr),
            target,
            cpu,
            -1,
            flags | FLAG_CLOEXEC,
        )
    })?;
    // SAFETY: the returned descriptor is fresh and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Sends [`ENABLE`] or [`DISABLE`] to an event.
pub(crate) fn control(event: &OwnedFd, request: libc::c_ulong) -> io::Result<()> {
    // SAFETY: takes no argument beside the request.
    check(unsafe { libc::ioctl(event.as_raw_fd(), request as _, 0) }).map(drop)
}
