//! The kernel that runs: its release and the build options and settings that matter.

use super::sys_root::SysRoot;
use std::io;

/// Facts about a kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Version as numbers, such as (6, 18).
    pub version: (u32, u32),
    /// Release, as `uname -r` prints it.
    pub release: String,
    /// Whether the kernel is fully preemptible. On such a kernel timerfd, POSIX timers and perf
    /// signals starve behind FIFO threads.
    pub preempt_rt: bool,
    /// Clock source, such as `tsc`.
    pub clocksource: Option<String>,
    /// Lockdown mode, such as `none` or `integrity`.
    pub lockdown: Option<String>,
}

impl Kernel {
    pub(super) fn read(root: &SysRoot) -> io::Result<Kernel> {
        const CLOCKSOURCE: &str =
            "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let release = root.text("/proc/sys/kernel/osrelease")?;
        let version = version(&release)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unknown kernel release"))?;
        let version_line = root.text("/proc/sys/kernel/version").unwrap_or_default();
        let lockdown = root.text("/sys/kernel/security/lockdown").ok();
        Ok(Kernel {
            version,
            release,
            preempt_rt: version_line.contains("PREEMPT_RT")
                || root.number("/sys/kernel/realtime") == Some(1),
            clocksource: root.text(CLOCKSOURCE).ok(),
            lockdown: lockdown.and_then(|text| bracketed(&text)),
        })
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Returns the word in brackets of a line such as `none [integrity] confidentiality`.
fn bracketed(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}
