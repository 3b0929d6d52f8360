//! Events of the kernel about CPUs that go off-line or come back.
//!
//! Source: the broadcasts of device events (`NETLINK_KOBJECT_UEVENT`, group 1;
//! `Documentation/ABI/testing/sysfs-uevent`). The kernel sends one after it has taken a CPU
//! off-line or brought it back. Any process of the first network namespace receives them; a socket
//! filter for CPUs would need the text, so the reader compares it. In another network namespace no
//! event arrives: the caller must also look from time to time
//! ([`sysinfo::online_now`](crate::sysinfo::online_now)).

use crate::sys::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Group of the kernel's own broadcasts. Others are those of a device manager.
const KERNEL_GROUP: u32 = 1;
/// Length of the part of a message that is read; the action and the device are at its beginning.
const MESSAGE: usize = 256;

/// Socket that receives device events.
#[derive(Debug)]
pub struct CpuEvents(OwnedFd);

impl CpuEvents {
    /// Subscribes.
    ///
    /// # Errors
    /// The kernel's error; a sandbox may refuse the address family.
    pub fn open() -> io::Result<CpuEvents> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes three integers.
        let fd =
            check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT) })?;
        // SAFETY: the call has just made this descriptor for us.
        let events = CpuEvents(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: all bytes of the structure may be zero.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = KERNEL_GROUP;
        let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the address is a local variable of the given length.
        check(unsafe { libc::bind(events.0.as_raw_fd(), (&raw const address).cast(), length) })?;
        Ok(events)
    }

    /// Receives all waiting events. Returns whether one of them is about a CPU, or events were
    /// lost.
    pub fn take(&self) -> io::Result<bool> {
        let mut found = false;
        loop {
            let mut message = [0; MESSAGE];
            match rustix::net::recv(&self.0, &mut message, rustix::net::RecvFlags::TRUNC) {
                Ok((length, _)) => found |= is_about_cpu(&message[..length.min(MESSAGE)]),
                Err(rustix::io::Errno::AGAIN) => return Ok(found),
                Err(rustix::io::Errno::NOBUFS) => found = true,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for CpuEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether a message reports a CPU: `offline@/devices/system/cpu/cpu1`, then a zero byte.
///
/// A process may send such a message, too. So the caller reads the state of the CPUs itself.
fn is_about_cpu(message: &[u8]) -> bool {
    let first = message.split(|&byte| byte == 0).next().unwrap_or_default();
    let device = first.splitn(2, |&byte| byte == b'@').nth(1).unwrap_or_default();
    let cpu = device.strip_prefix(b"/devices/system/cpu/cpu").unwrap_or_default();
    !cpu.is_empty() && cpu.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_of_cpus_are_reported() {
        assert!(is_about_cpu(b"offline@/devices/system/cpu/cpu1\0ACTION=offline\0"));
        assert!(is_about_cpu(b"online@/devices/system/cpu/cpu17\0"));
        for other in [
            &b""[..],
            b"@",
            b"add@/devices/virtual/block/loop0\0",
            b"change@/devices/system/cpu/cpu1/cache\0",
            b"add@/devices/system/cpu/cpuidle\0",
            b"libudev\0\xfe\xed\xca\xfe",
        ] {
            assert!(!is_about_cpu(other), "{other:?}");
        }
    }

    #[test]
    fn without_events_there_is_nothing_to_take() {
        let events = CpuEvents::open().expect("any process may");
        assert!(!events.take().expect("readable"));
    }
}
