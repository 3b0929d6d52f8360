//! Trace of the kernel's context switches: which thread ran on a CPU from when to when.
//!
//! Model: `perf_event_open(2)`. An event per CPU that counts nothing makes the kernel record every
//! context switch (`PERF_RECORD_SWITCH_CPU_WIDE`) with `CLOCK_MONOTONIC`. The ring is read only at
//! the end: a full ring loses later records, and the kernel reports how many. The cost is below a
//! microsecond per switch. Unlike a tracing instance it does not outlive the process. Needs root,
//! CAP_PERFMON or `kernel.perf_event_paranoid` of 0 or less.

use crate::Tid;
use crate::perf::{
    self, Attr, CONTEXT_SWITCH, DISABLE, DISABLED, DUMMY, ENABLE, PAGE, SAMPLE_ID_ALL, SAMPLE_TID,
    SAMPLE_TIME, SOFTWARE, USE_CLOCKID,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use talea_core::Monotonic;
use talea_core::mutate;

/// Interval in which one thread ran on a CPU without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunInterval {
    /// Kernel number of the CPU.
    pub cpu: u32,
    /// Thread that ran. `None` stands for the idle thread.
    pub thread: Option<Tid>,
    /// Start on `CLOCK_MONOTONIC`.
    pub from: Monotonic,
    /// End on `CLOCK_MONOTONIC`.
    pub to: Monotonic,
}

const RECORD_LOST: u32 = 2;
const RECORD_SWITCH_CPU_WIDE: u32 = 15;
/// Flag in `misc`: the thread of the record leaves the CPU.
const SWITCH_OUT: u16 = 1 << 13;
/// Offset of the ring's head in its first page.
const HEAD_OFFSET: usize = 1024;

/// Perf event and ring buffer of one CPU.
#[derive(Debug)]
struct Ring {
    cpu: u32,
    event: OwnedFd,
    pages: *mut libc::c_void,
    /// Size of the data area in bytes, a power of two; the first page precedes it.
    room: usize,
}

impl Ring {
    fn open(cpu: u32, data_size: usize) -> io::Result<Ring> {
        let attr = Attr {
            kind: SOFTWARE,
            size: size_of::<Attr>() as u32,
            config: DUMMY,
            sample_type: SAMPLE_TID | SAMPLE_TIME,
            flags: DISABLED | SAMPLE_ID_ALL | USE_CLOCKID | CONTEXT_SWITCH,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        let event = perf::open(&attr, -1, cpu)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let pages = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(null_mut(), PAGE + data_size, access, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring { cpu, event, pages, room: data_size })
    }

    fn control(&self, what: libc::c_ulong) -> io::Result<()> {
        perf::control(&self.event, what)
    }

    /// Returns the bytes of all records. Must be called when the event is disabled.
    fn bytes(&self) -> Vec<u8> {
        // SAFETY: the head is an aligned word of the first page, which is mapped; the kernel writes
        // it, hence the atomic.
        let head = unsafe { &*self.pages.byte_add(HEAD_OFFSET).cast::<AtomicU64>() }
            .load(Ordering::Acquire);
        fence(Ordering::Acquire);
        // The tail was never moved: records that did not fit were lost, and none was overwritten.
        let len = usize::try_from(head).unwrap_or(usize::MAX).min(self.room);
        // SAFETY: `len` bytes behind the first page are mapped, and the kernel has stopped writing.
        unsafe { std::slice::from_raw_parts(self.pages.byte_add(PAGE).cast::<u8>(), len) }.to_vec()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: ours, of this length, and nothing borrows from it.
        unsafe { libc::munmap(self.pages, PAGE + self.room) };
    }
}

/// Running trace of the context switches of some CPUs.
#[derive(Debug)]
pub struct SwitchTrace(Vec<Ring>);

/// Result of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchRecord {
    /// Intervals in order of time, CPU by CPU.
    pub intervals: Vec<RunInterval>,
    /// Number of records that did not fit into the ring.
    pub lost: u64,
}

/// Size of the two records of a switch: one for the old thread, one for the new.
const BYTES_PER_SWITCH: usize = 2 * 32;

impl SwitchTrace {
    /// Starts to trace `cpus`, with room for `max_switches` switches on each CPU.
    pub fn start(cpus: &[u32], max_switches: usize) -> io::Result<SwitchTrace> {
        let room =
            max_switches.saturating_mul(BYTES_PER_SWITCH).clamp(PAGE, 1 << 28).next_power_of_two();
        let rings =
            cpus.iter().map(|&cpu| Ring::open(cpu, room)).collect::<io::Result<Vec<_>>>()?;
        for ring in &rings {
            ring.control(ENABLE)?;
        }
        Ok(SwitchTrace(rings))
    }

    /// Stops the trace and returns its result.
    pub fn finish(self) -> io::Result<SwitchRecord> {
        let mut all = SwitchRecord::default();
        for ring in &self.0 {
            ring.control(DISABLE)?;
            decode(ring.cpu, &ring.bytes(), &mut all);
        }
        Ok(all)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Decodes the records of one CPU. Omits intervals that start before the trace or end after it.
fn decode(cpu: u32, mut bytes: &[u8], all: &mut SwitchRecord) {
    let mut since: Option<(u32, Monotonic)> = None;
    while let (Some(kind), Some(rest)) = (word(bytes, 0), word(bytes, 4)) {
        let (misc, size) = (rest as u16, (rest >> 16) as usize);
        let Some(record) = bytes.get(..size).filter(|_| size >= 8) else { break };
        match kind {
            RECORD_LOST => {
                let lost = long(record, 16).unwrap_or(0);
                all.lost += mutate!("os-switches-lost", lost, 0);
            }
            RECORD_SWITCH_CPU_WIDE => {
                // The other thread's numbers come first, then the thread of this record and the
                // time.
                let (Some(tid), Some(time)) = (word(record, 20), long(record, 24)) else { break };
                let now = Monotonic::from_ns(time);
                if misc & SWITCH_OUT == 0 {
                    since = Some((tid, now));
                } else if let Some((running, from)) =
                    since.take().filter(|&(running, _)| running == tid)
                {
                    let thread = i32::try_from(running).ok().and_then(Tid::new);
                    all.intervals.push(RunInterval { cpu, thread, from, to: now });
                }
            }
            _ => {}
        }
        bytes = &bytes[size..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock, sched};
    use talea_core::{CpuSet, Span};

    fn record(kind: u32, misc: u16, body: &[u32]) -> Vec<u8> {
        let size = 8 + 4 * body.len() as u32;
        let mut words = vec![kind, size << 16 | u32::from(misc)];
        words.extend_from_slice(body);
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn switch(out: bool, tid: u32, at: u32) -> Vec<u8> {
        record(RECORD_SWITCH_CPU_WIDE, if out { SWITCH_OUT } else { 0 }, &[0, 0, 9, tid, at, 0])
    }

    #[test]
    fn intervals_go_from_switch_in_to_switch_out_and_lost_records_are_counted() {
        let records = [
            switch(true, 5, 10),
            switch(false, 6, 11),
            switch(true, 6, 20),
            switch(false, 0, 21),
            record(RECORD_LOST, 0, &[1, 0, 7, 0, 9, 5, 30, 0]),
            switch(true, 0, 40),
            switch(false, 6, 41),
        ];
        let mut all = SwitchRecord::default();
        decode(3, &records.concat(), &mut all);
        let interval = |thread, from, to| RunInterval {
            cpu: 3,
            thread,
            from: Monotonic::from_ns(from),
            to: Monotonic::from_ns(to),
        };
        assert_eq!(all.intervals, [interval(Tid::new(6), 11, 20), interval(None, 21, 40)]);
        assert_eq!(all.lost, 7);
        // Half a record at the end, and a size beyond the end.
        let whole = records.concat();
        for cut in 0..whole.len() {
            decode(3, &whole[..cut], &mut SwitchRecord::default());
        }
        decode(3, &record(RECORD_LOST, 0, &[])[..4], &mut SwitchRecord::default());
        decode(3, &[0; 64], &mut SwitchRecord::default());
    }

    #[test]
    fn a_busy_thread_is_traced_on_its_cpu() {
        let me = Tid::current();
        let before = sched::get_affinity(me).expect("our CPUs");
        let cpu = before.iter().next().expect("one");
        let Ok(switches) = SwitchTrace::start(&[cpu], 100_000) else {
            eprintln!("skipped: needs the right to perf_event_open");
            return;
        };
        // In a separate thread, whose affinity no other test depends on.
        let (tid, from, to) = std::thread::spawn(move || {
            sched::set_affinity(Tid::current(), &CpuSet::single(cpu)).expect("one of our CPUs");
            let sleep = || clock::sleep_until(clock::now() + Span::from_ns(1_000_000));
            sleep();
            let from = clock::now();
            while clock::now() < from + Span::from_ns(5_000_000) {}
            let to = clock::now();
            sleep();
            (Tid::current(), from, to)
        })
        .join()
        .expect("it works");
        let all = switches.finish().expect("what was written");
        assert_eq!(all.lost, 0);
        let mine: Vec<&RunInterval> =
            all.intervals.iter().filter(|interval| interval.thread == Some(tid)).collect();
        assert!(mine.iter().all(|interval| interval.cpu == cpu && interval.from <= interval.to));
        // Another thread may have preempted it; then there are several intervals.
        let within = |interval: &&&RunInterval| interval.from <= to && interval.to >= from;
        let traced: u64 = mine
            .iter()
            .filter(within)
            .map(|interval| interval.to.min(to).since(interval.from.max(from)).as_ns())
            .sum();
        assert!(traced > 0 && traced <= to.since(from).as_ns(), "{traced} of {:?}", to.since(from));
    }
}
