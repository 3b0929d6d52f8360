//! What a shield sees of the machine, and what it may turn there.
//!
//! Whatever a keeper needs of it (all but the names) allocates nothing: its process is a copy with
//! one thread.

use crate::proc::{self, Stat};
use crate::{Policy, Tid, sched};
use rustix::fs::{Mode, OFlags, RawDir};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use talea_core::CpuSet;
use talea_core::cpus::MAX_CPUS;

/// Which CPUs serve something that is no thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knob {
    /// Interrupts that are set up from now on.
    NewInterrupts,
    /// The kernel's workers that are bound to no CPU.
    Workers,
    /// An interrupt.
    Interrupt(u32),
    /// Where an interrupt really goes; can't be turned.
    Effective(u32),
}

/// The machine.
pub(super) trait Ground {
    /// All threads, each with its process.
    fn each(&self, visit: &mut dyn FnMut(Tid, Tid, &Stat));
    /// One of them.
    fn stat(&self, process: Tid, tid: Tid) -> io::Result<Stat>;
    /// Where it may run.
    fn affinity(&self, tid: Tid) -> io::Result<CpuSet>;
    /// Where it may run from now on.
    fn set_affinity(&self, tid: Tid, cpus: &CpuSet) -> io::Result<()>;
    /// The CPUs that threads can run on now: the kernel tells of no others where threads may run.
    fn online(&self) -> CpuSet;
    /// Whether it goes before all ordinary threads.
    fn is_real_time(&self, tid: Tid) -> bool;
    /// What a knob says.
    fn read(&self, knob: Knob) -> io::Result<CpuSet>;
    /// Turns it.
    fn turn(&self, knob: Knob, cpus: &CpuSet) -> io::Result<()>;
    /// The machine's interrupts. Allocates.
    fn interrupts(&self) -> Vec<u32>;
    /// A millisecond goes by.
    fn pause(&self);
}

/// The real one.
pub(super) struct Linux;

impl Ground for Linux {
    fn each(&self, visit: &mut dyn FnMut(Tid, Tid, &Stat)) {
        each_number("/proc", &mut |process| {
            each_number(
                Line::<64>::of(format_args!("/proc/{process}/task")).as_str(),
                &mut |tid| {
                    if let Ok(stat) = self.stat(process, tid) {
                        visit(process, tid, &stat);
                    }
                },
            );
        });
    }

    fn stat(&self, process: Tid, tid: Tid) -> io::Result<Stat> {
        proc::stat_at(Line::<64>::of(format_args!("/proc/{process}/task/{tid}/stat")).as_str())
    }

    fn affinity(&self, tid: Tid) -> io::Result<CpuSet> {
        sched::get_affinity(tid)
    }

    fn set_affinity(&self, tid: Tid, cpus: &CpuSet) -> io::Result<()> {
        sched::set_affinity(tid, cpus)
    }

    fn online(&self) -> CpuSet {
        let mut buffer = [0; LIST];
        let read = proc::read_into("/sys/devices/system/cpu/online", &mut buffer);
        let text = read.ok().and_then(|text| std::str::from_utf8(text).ok());
        // Where it can't be read, threads are compared as if there were all.
        text.and_then(|text| CpuSet::parse(text).ok()).unwrap_or(CpuSet::first(MAX_CPUS as u32))
    }

    fn is_real_time(&self, tid: Tid) -> bool {
        sched::get(tid).is_ok_and(|attr| Policy::is_realtime(attr.policy))
    }

    fn read(&self, knob: Knob) -> io::Result<CpuSet> {
        let mut buffer = [0; 2 * MASK];
        let text = match knob {
            // What was asked for; the other file is without the CPUs of isolated partitions. Older
            // kernels have that one alone.
            Knob::Workers => {
                match proc::read_into(
                    "/sys/devices/virtual/workqueue/cpumask_requested",
                    &mut buffer,
                ) {
                    Ok(text) => text.len(),
                    Err(_) => proc::read_into(path(knob).as_str(), &mut buffer)?.len(),
                }
            }
            _ => proc::read_into(path(knob).as_str(), &mut buffer)?.len(),
        };
        parse_mask(&buffer[..text]).ok_or_else(|| crate::sys::errno(libc::EINVAL))
    }

    fn turn(&self, knob: Knob, cpus: &CpuSet) -> io::Result<()> {
        let mut file = File::options().write(true).open(path(knob).as_str())?;
        file.write_all(mask(cpus).as_str().as_bytes())
    }

    fn interrupts(&self) -> Vec<u32> {
        let mut found = Vec::new();
        // No interrupt's number is zero but the timer's, and that is nobody's to move.
        each_number("/proc/irq", &mut |number| found.push(number.as_raw().unsigned_abs()));
        found.sort_unstable();
        found
    }

    fn pause(&self) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn path(knob: Knob) -> Line<64> {
    match knob {
        Knob::NewInterrupts => Line::of(format_args!("/proc/irq/default_smp_affinity")),
        Knob::Workers => Line::of(format_args!("/sys/devices/virtual/workqueue/cpumask")),
        Knob::Interrupt(number) => Line::of(format_args!("/proc/irq/{number}/smp_affinity")),
        Knob::Effective(number) => Line::of(format_args!("/proc/irq/{number}/effective_affinity")),
    }
}

/// Those entries of a directory that are positive numbers.
fn each_number(path: &str, visit: &mut dyn FnMut(Tid)) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // One that has ended has none.
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

/// The longest mask: eight digits and a comma for 32 CPUs.
const MASK: usize = MAX_CPUS / 32 * 9;

/// The longest list: every second CPU of all, with a comma each.
const LIST: usize = MAX_CPUS / 2 * 5;

/// A set of CPUs as the kernel writes masks: hexadecimal words of 32, the highest first.
fn mask(cpus: &CpuSet) -> Line<MASK> {
    let half = |at: usize| (cpus.words()[at / 2] >> (at % 2 * 32)) as u32;
    let highest = (0..MAX_CPUS / 32).rev().find(|&at| half(at) != 0).unwrap_or(0);
    let mut line = Line::of(format_args!("{:x}", half(highest)));
    for at in (0..highest).rev() {
        // It has room for all.
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

/// Text without allocation; what is longer is cut.
struct Line<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Line<N> {
    fn of(text: fmt::Arguments<'_>) -> Line<N> {
        let mut line = Line { bytes: [0; N], length: 0 };
        // Every caller has counted.
        let _ = line.write_fmt(text);
        line
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or("")
    }
}

impl<const N: usize> fmt::Write for Line<N> {
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
    fn masks_are_written_as_the_kernel_reads_them() {
        let check = |cpus: &str, text: &str| {
            let cpus = CpuSet::parse(cpus).expect("a list");
            assert_eq!(mask(&cpus).as_str(), text);
            assert_eq!(parse_mask(format!("{text}\n").as_bytes()), Some(cpus));
        };
        check("0-1", "3");
        check("31", "80000000");
        check("0,32", "1,00000001");
        check("64,95", "80000001,00000000,00000000");
        let all = CpuSet::first(MAX_CPUS as u32);
        assert_eq!(mask(&all).as_str().len(), MASK - 1);
        assert_eq!(parse_mask(mask(&all).as_str().as_bytes()), Some(all));
        assert_eq!(parse_mask(b"00000000,00000003\n"), Some(CpuSet::first(2)));
        assert_eq!(parse_mask(b"no\n"), None);
    }

    #[test]
    fn all_threads_are_seen() {
        let (me, other) = (Tid::current(), Tid::of_process());
        let mut found = Vec::new();
        Linux.each(&mut |process, tid, stat| found.push((process, tid, stat.start_ticks)));
        let stat = Linux.stat(other, me).expect("its own");
        assert!(found.contains(&(other, me, stat.start_ticks)));
        assert!(found.iter().any(|&(process, tid, _)| (process, tid) == (other, other)));
    }
}
