//! System interface of a shield: threads, affinities and interrupt masks.
//!
//! All operations that a reaper needs (all but the list of interrupts) allocate nothing: the reaper
//! is a copy of a process with one thread.

use crate::proc::{self, Stat};
use crate::{Policy, Tid, sched};
use rustix::fs::{Mode, OFlags, RawDir};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use talea_core::CpuSet;
use talea_core::cpus::MAX_CPUS;

/// Affinity mask of an object that is not a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AffinityTarget {
    /// Default affinity of new interrupts.
    NewInterrupts,
    /// Affinity of the kernel's unbound workers.
    UnboundWorkers,
    /// Allowed CPUs of an interrupt.
    Interrupt(u32),
    /// CPUs to which an interrupt is delivered. The mask is read-only.
    EffectiveInterrupt(u32),
}

/// Operations on a machine. The tests implement them for a simulated machine.
pub(super) trait SystemOps {
    /// Calls `visit` for each thread with its process, its number and its state.
    fn for_each_thread(&self, visit: &mut dyn FnMut(Tid, Tid, &Stat));
    /// Reads the state of a thread.
    fn stat(&self, process: Tid, tid: Tid) -> io::Result<Stat>;
    /// Returns a thread's affinity.
    fn affinity(&self, tid: Tid) -> io::Result<CpuSet>;
    /// Sets a thread's affinity.
    fn set_affinity(&self, tid: Tid, cpus: &CpuSet) -> io::Result<()>;
    /// Returns the online CPUs. The kernel omits offline CPUs from a thread's affinity, so a
    /// comparison with a stored affinity must omit them, too.
    fn online(&self) -> CpuSet;
    /// Whether a thread has a real-time policy.
    fn is_real_time(&self, tid: Tid) -> bool;
    /// Reads a mask.
    fn read_mask(&self, target: AffinityTarget) -> io::Result<CpuSet>;
    /// Writes a mask.
    fn write_mask(&self, target: AffinityTarget, cpus: &CpuSet) -> io::Result<()>;
    /// Returns the machine's interrupts. Allocates.
    fn interrupts(&self) -> Vec<u32>;
    /// Sleeps for one millisecond.
    fn sleep_1_ms(&self);
}

/// The running machine, through system calls and files of `/proc` and `/sys`.
pub(super) struct Linux;

impl SystemOps for Linux {
    fn for_each_thread(&self, visit: &mut dyn FnMut(Tid, Tid, &Stat)) {
        for_each_number("/proc", &mut |process| {
            for_each_number(
                FixedText::<64>::of(format_args!("/proc/{process}/task")).as_str(),
                &mut |tid| {
                    if let Ok(stat) = self.stat(process, tid) {
                        visit(process, tid, &stat);
                    }
                },
            );
        });
    }

    fn stat(&self, process: Tid, tid: Tid) -> io::Result<Stat> {
        proc::stat_at(FixedText::<64>::of(format_args!("/proc/{process}/task/{tid}/stat")).as_str())
    }

    fn affinity(&self, tid: Tid) -> io::Result<CpuSet> {
        sched::get_affinity(tid)
    }

    fn set_affinity(&self, tid: Tid, cpus: &CpuSet) -> io::Result<()> {
        sched::set_affinity(tid, cpus)
    }

    fn online(&self) -> CpuSet {
        let mut buffer = [0; MAX_LIST_LEN];
        let read = proc::read_into("/sys/devices/system/cpu/online", &mut buffer);
        let text = read.ok().and_then(|text| std::str::from_utf8(text).ok());
        // If unreadable, all CPUs count as online.
        text.and_then(|text| CpuSet::parse(text).ok()).unwrap_or(CpuSet::first(MAX_CPUS as u32))
    }

    fn is_real_time(&self, tid: Tid) -> bool {
        sched::get(tid).is_ok_and(|attr| Policy::is_realtime(attr.policy))
    }

    fn read_mask(&self, target: AffinityTarget) -> io::Result<CpuSet> {
        let mut buffer = [0; 2 * MAX_MASK_LEN];
        let text = match target {
            // `cpumask_requested` is what was written; `cpumask` lacks the CPUs of isolated
            // partitions. Older kernels have `cpumask` only.
            AffinityTarget::UnboundWorkers => {
                match proc::read_into(
                    "/sys/devices/virtual/workqueue/cpumask_requested",
                    &mut buffer,
                ) {
                    Ok(text) => text.len(),
                    Err(_) => proc::read_into(mask_path(target).as_str(), &mut buffer)?.len(),
                }
            }
            _ => proc::read_into(mask_path(target).as_str(), &mut buffer)?.len(),
        };
        parse_mask(&buffer[..text]).ok_or_else(|| crate::sys::errno(libc::EINVAL))
    }

    fn write_mask(&self, target: AffinityTarget, cpus: &CpuSet) -> io::Result<()> {
        let mut file = File::options().write(true).open(mask_path(target).as_str())?;
        file.write_all(format_mask(cpus).as_str().as_bytes())
    }

    fn interrupts(&self) -> Vec<u32> {
        let mut found = Vec::new();
        // Interrupt 0 is the timer's, which cannot be moved.
        for_each_number("/proc/irq", &mut |number| found.push(number.as_raw().unsigned_abs()));
        found.sort_unstable();
        found
    }

    fn sleep_1_ms(&self) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn mask_path(target: AffinityTarget) -> FixedText<64> {
    match target {
        AffinityTarget::NewInterrupts => {
            FixedText::of(format_args!("/proc/irq/default_smp_affinity"))
        }
        AffinityTarget::UnboundWorkers => {
            FixedText::of(format_args!("/sys/devices/virtual/workqueue/cpumask"))
        }
        AffinityTarget::Interrupt(number) => {
            FixedText::of(format_args!("/proc/irq/{number}/smp_affinity"))
        }
        AffinityTarget::EffectiveInterrupt(number) => {
            FixedText::of(format_args!("/proc/irq/{number}/effective_affinity"))
        }
    }
}

/// Visits the entries of a directory whose names are positive numbers.
fn for_each_number(path: &str, visit: &mut dyn FnMut(Tid)) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A process that has ended has no directory.
    let Ok(directory) = rustix::fs::open(path, flags, Mode::empty()) else { return };
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        if let Some(number) = number.and_then(Tid::new) {
            visit(number);
        }
    }
}

/// Length of the longest mask: nine characters (eight digits and a comma) for 32 CPUs.
const MAX_MASK_LEN: usize = MAX_CPUS / 32 * 9;

/// Length of the longest list: every second CPU, each with a comma.
const MAX_LIST_LEN: usize = MAX_CPUS / 2 * 5;

/// Formats a CPU mask as the kernel does: hexadecimal words of 32 bits, the highest first.
fn format_mask(cpus: &CpuSet) -> FixedText<MAX_MASK_LEN> {
    let half = |at: usize| (cpus.words()[at / 2] >> (at % 2 * 32)) as u32;
    let highest = (0..MAX_CPUS / 32).rev().find(|&at| half(at) != 0).unwrap_or(0);
    let mut line = FixedText::of(format_args!("{:x}", half(highest)));
    for at in (0..highest).rev() {
        // The buffer has room for all words.
        let _ = write!(line, ",{:08x}", half(at));
    }
    line
}

fn parse_mask(text: &[u8]) -> Option<CpuSet> {
    let text = std::str::from_utf8(text).ok()?.trim_end();
    let mut words = [0; MAX_CPUS / 64];
    for (at, digits) in text.rsplit(',').enumerate() {
        let half = u64::from(u32::from_str_radix(digits, 16).ok()?);
        match words.get_mut(at / 2) {
            Some(word) => *word |= half << (at % 2 * 32),
            None if half == 0 => {}
            None => return None,
        }
    }
    Some(CpuSet::from_words(words))
}

/// Fixed-size text buffer without allocation. Longer text is cut.
struct FixedText<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> FixedText<N> {
    fn of(text: fmt::Arguments<'_>) -> FixedText<N> {
        let mut line = FixedText { bytes: [0; N], length: 0 };
        // Each caller's `N` is large enough.
        let _ = line.write_fmt(text);
        line
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or("")
    }
}

impl<const N: usize> fmt::Write for FixedText<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_the_kernels_format() {
        let check = |cpus: &str, text: &str| {
            let cpus = CpuSet::parse(cpus).expect("a list");
            assert_eq!(format_mask(&cpus).as_str(), text);
            assert_eq!(parse_mask(format!("{text}\n").as_bytes()), Some(cpus));
        };
        check("0-1", "3");
        check("31", "80000000");
        check("0,32", "1,00000001");
        check("64,95", "80000001,00000000,00000000");
        let all = CpuSet::first(MAX_CPUS as u32);
        assert_eq!(format_mask(&all).as_str().len(), MAX_MASK_LEN - 1);
        assert_eq!(parse_mask(format_mask(&all).as_str().as_bytes()), Some(all));
        assert_eq!(parse_mask(b"00000000,00000003\n"), Some(CpuSet::first(2)));
        assert_eq!(parse_mask(b"no\n"), None);
    }

    #[test]
    fn all_threads_are_visited() {
        let (me, other) = (Tid::current(), Tid::of_process());
        let mut found = Vec::new();
        Linux.for_each_thread(&mut |process, tid, stat| {
            found.push((process, tid, stat.start_ticks));
        });
        let stat = Linux.stat(other, me).expect("its own");
        assert!(found.contains(&(other, me, stat.start_ticks)));
        assert!(found.iter().any(|&(process, tid, _)| (process, tid) == (other, other)));
    }
}
