//! Who had a CPU from when to when, by the kernel's own word.
//!
//! Model: `perf_event_open(2)`, an event for each CPU that counts nothing and has the kernel write
//! down every switch of threads (`PERF_RECORD_SWITCH_CPU_WIDE`) with `CLOCK_MONOTONIC`. Nobody
//! reads while it is written: a ring that is full loses what comes later, and says how much. Costs
//! less than a microsecond a switch. Unlike a tracing instance nothing of it outlives the process.
//! Needs root, CAP_PERFMON or `kernel.perf_event_paranoid` of 0 or less.

use crate::Tid;
use crate::perf::{
    self, Attr, CONTEXT_SWITCH, DISABLE, DISABLED, DUMMY, ENABLE, PAGE, SAMPLE_ID_ALL, SAMPLE_TID,
    SAMPLE_TIME, SOFTWARE, USE_CLOCKID,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use talea_core::Time;

/// A thread on a CPU without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// The CPU, as the kernel counts.
    pub cpu: u32,
    /// The thread; none is the idle one.
    pub thread: Option<Tid>,
    /// On `CLOCK_MONOTONIC`.
    pub from: Time,
    /// The same.
    pub to: Time,
}

const RECORD_LOST: u32 = 2;
const RECORD_SWITCH_CPU_WIDE: u32 = 15;
/// In `misc`: the thread of this record leaves the CPU.
const OUT: u16 = 1 << 13;
/// Where the head of the ring stands in its first page.
const HEAD: usize = 1024;

/// The ring of one CPU.
#[derive(Debug)]
struct Ring {
    cpu: u32,
    event: OwnedFd,
    pages: *mut libc::c_void,
    /// Of the data, a power of two; the first page comes before it.
    room: usize,
}

impl Ring {
    fn open(cpu: u32, room: usize) -> io::Result<Ring> {
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
            libc::mmap(null_mut(), PAGE + room, access, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring { cpu, event, pages, room })
    }

    fn control(&self, what: libc::c_ulong) -> io::Result<()> {
        perf::control(&self.event, what)
    }

    /// Everything that was written, once nothing is any more.
    fn bytes(&self) -> Vec<u8> {
        // SAFETY: the head is an aligned word of the first page, which is mapped; the kernel writes
        // it, hence the atomic.
        let head =
            unsafe { &*self.pages.byte_add(HEAD).cast::<AtomicU64>() }.load(Ordering::Acquire);
        fence(Ordering::Acquire);
        // Nobody has ever moved the tail: what did not fit was lost, and nothing was written over.
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

/// Switches that are being written down.
#[derive(Debug)]
pub struct Switches(Vec<Ring>);

/// What was written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stays {
    /// By CPU, in order.
    pub stays: Vec<Stay>,
    /// Switches for which there was no room.
    pub lost: u64,
}

/// A switch takes two records, one of either side.
const EACH: usize = 2 * 32;

impl Switches {
    /// From now on, on these CPUs, up to so many switches of each.
    pub fn watch(cpus: &[u32], most: usize) -> io::Result<Switches> {
        let room = most.saturating_mul(EACH).clamp(PAGE, 1 << 28).next_power_of_two();
        let rings =
            cpus.iter().map(|&cpu| Ring::open(cpu, room)).collect::<io::Result<Vec<_>>>()?;
        for ring in &rings {
            ring.control(ENABLE)?;
        }
        Ok(Switches(rings))
    }

    /// Ends it.
    pub fn finish(self) -> io::Result<Stays> {
        let mut all = Stays::default();
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

/// Reads the records of one CPU. What does not end, or did not begin, within them is left out.
fn decode(cpu: u32, mut bytes: &[u8], all: &mut Stays) {
    let mut since: Option<(u32, Time)> = None;
    while let (Some(kind), Some(rest)) = (word(bytes, 0), word(bytes, 4)) {
        let (misc, size) = (rest as u16, (rest >> 16) as usize);
        let Some(record) = bytes.get(..size).filter(|_| size >= 8) else { break };
        match kind {
            RECORD_LOST => all.lost += long(record, 16).unwrap_or(0),
            RECORD_SWITCH_CPU_WIDE => {
                // Behind the other side's numbers: whose record this is, and when.
                let (Some(tid), Some(time)) = (word(record, 20), long(record, 24)) else { break };
                let now = Time::from_ns(time);
                if misc & OUT == 0 {
                    since = Some((tid, now));
                } else if let Some((who, from)) = since.take().filter(|&(who, _)| who == tid) {
                    let thread = i32::try_from(who).ok().and_then(Tid::new);
                    all.stays.push(Stay { cpu, thread, from, to: now });
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
        record(RECORD_SWITCH_CPU_WIDE, if out { OUT } else { 0 }, &[0, 0, 9, tid, at, 0])
    }

    #[test]
    fn a_stay_is_from_coming_to_leaving_and_what_was_lost_is_counted() {
        let records = [
            switch(true, 5, 10),
            switch(false, 6, 11),
            switch(true, 6, 20),
            switch(false, 0, 21),
            record(RECORD_LOST, 0, &[1, 0, 7, 0, 9, 5, 30, 0]),
            switch(true, 0, 40),
            switch(false, 6, 41),
        ];
        let mut all = Stays::default();
        decode(3, &records.concat(), &mut all);
        let stay = |thread, from, to| Stay {
            cpu: 3,
            thread,
            from: Time::from_ns(from),
            to: Time::from_ns(to),
        };
        assert_eq!(all.stays, [stay(Tid::new(6), 11, 20), stay(None, 21, 40)]);
        assert_eq!(all.lost, 7);
        // Half a record at the end, and a size that leads nowhere.
        let whole = records.concat();
        for cut in 0..whole.len() {
            decode(3, &whole[..cut], &mut Stays::default());
        }
        decode(3, &record(RECORD_LOST, 0, &[])[..4], &mut Stays::default());
        decode(3, &[0; 64], &mut Stays::default());
    }

    #[test]
    fn a_thread_is_seen_where_and_when_it_works() {
        let me = Tid::current();
        let before = sched::get_affinity(me).expect("our CPUs");
        let cpu = before.iter().next().expect("one");
        let Ok(switches) = Switches::watch(&[cpu], 100_000) else {
            eprintln!("skipped: needs the right to perf_event_open");
            return;
        };
        // In a thread of its own, whose CPUs nobody else cares about.
        let (tid, from, to) = std::thread::spawn(move || {
            sched::set_affinity(Tid::current(), &CpuSet::single(cpu)).expect("one of our CPUs");
            let nap = || clock::sleep_until(clock::now() + Span::from_ns(1_000_000));
            nap();
            let from = clock::now();
            while clock::now() < from + Span::from_ns(5_000_000) {}
            let to = clock::now();
            nap();
            (Tid::current(), from, to)
        })
        .join()
        .expect("it works");
        let all = switches.finish().expect("what was written");
        assert_eq!(all.lost, 0);
        let mine: Vec<&Stay> = all.stays.iter().filter(|stay| stay.thread == Some(tid)).collect();
        assert!(mine.iter().all(|stay| stay.cpu == cpu && stay.from <= stay.to));
        // Somebody may have been let in between; then it is there in pieces.
        let within = |stay: &&&Stay| stay.from <= to && stay.to >= from;
        let seen: u64 = mine
            .iter()
            .filter(within)
            .map(|stay| stay.to.min(to).since(stay.from.max(from)).as_ns())
            .sum();
        assert!(seen > 0 && seen <= to.since(from).as_ns(), "{seen} of {:?}", to.since(from));
    }
}
