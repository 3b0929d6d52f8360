//! A trace of all events, as a stream of bytes, for long runs.
//!
//! Format 2: eight bytes `TALEATR2`, then records without padding. A number is an LEB128 varint:
//! seven bits per byte, the least significant first, the top bit set on all but the last byte. A
//! record begins with the number `16 · d + kind`, where d is the nanoseconds since the previous
//! record (since zero for the first). The numbers of its kind follow:
//!
//! | kind | event | numbers |
//! | --- | --- | --- |
//! | 0 | arrival | task; now minus the nominal time |
//! | 1 | refusal | task |
//! | 2 | first dispatch of a job | CPU, task, job, version |
//! | 3 | dispatch | CPU, task, job |
//! | 4 | idle | CPU |
//! | 5 | completion | CPU, task, job; now minus the release; deadline minus release (below) |
//! | 6 | activation by a graph or a table | task, deadline |
//! | 7 | refused activation | task |
//! | 8 | completion without a token | channel |
//! | 9 | overrun of a table entry | CPU, task, job |
//! | 10 | deadlock | task |
//!
//! A job number is written as a difference, modulo 2^64, so that it usually takes one byte. The
//! difference is to the job number of the previous record about its task, or to zero in the first
//! record. A deadline may precede the release, at the end of a late graph. The signed difference of
//! the two, modulo 2^64, is therefore zigzag-encoded: doubled, and inverted if negative. A job
//! takes about 30 bytes in total.

use std::io::{self, Write};
use talea_core::Time;
use talea_core::engine::{ChannelId, Cpu, Notification, TaskId};
use talea_core::sink::{Completion, Sink};

const MAGIC: &[u8; 8] = b"TALEATR2";
/// Maximum length of a record: six numbers of ten bytes each.
const MAX_RECORD_LEN: usize = 60;
const BUFFER_LEN: usize = 1 << 16;

/// Encodes a signed difference as a number that is small for small magnitudes.
fn zigzag(difference: u64) -> u64 {
    difference << 1 ^ (difference.cast_signed() >> 63).cast_unsigned()
}

fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

/// An event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// An arrival: [`Sink::on_arrival`].
    Arrived {
        /// Task of the job.
        task: TaskId,
        /// Nominal time of the arrival.
        nominal: Time,
    },
    /// A refusal: [`Sink::on_refusal`].
    Refused(TaskId),
    /// A first dispatch: [`Sink::on_start`].
    Started {
        /// CPU of the job.
        cpu: Cpu,
        /// Task of the job.
        task: TaskId,
        /// Number of the job.
        job: u64,
        /// Version of the job.
        version: u32,
    },
    /// A dispatch: [`Sink::on_dispatch`].
    Dispatched {
        /// CPU of the job.
        cpu: Cpu,
        /// Task of the job.
        task: TaskId,
        /// Number of the job.
        job: u64,
    },
    /// An idle order: [`Sink::on_idle`].
    Idle(Cpu),
    /// A completion: [`Sink::on_completion`].
    Completed(Completion),
    /// A notification: [`Sink::on_notification`].
    Notified(Notification),
}

impl TraceEvent {
    /// Reports the event to `sink`.
    pub fn report(&self, now: Time, sink: &mut impl Sink) {
        match *self {
            TraceEvent::Arrived { task, nominal } => sink.on_arrival(now, task, nominal),
            TraceEvent::Refused(task) => sink.on_refusal(now, task),
            TraceEvent::Started { cpu, task, job, version } => {
                sink.on_start(now, cpu, task, job, version);
            }
            TraceEvent::Dispatched { cpu, task, job } => sink.on_dispatch(now, cpu, task, job),
            TraceEvent::Idle(cpu) => sink.on_idle(now, cpu),
            TraceEvent::Completed(job) => sink.on_completion(&job),
            TraceEvent::Notified(notification) => sink.on_notification(now, &notification),
        }
    }
}

/// Writer of a trace, which buffers the output. [`Trace::finish`] returns the first error.
#[derive(Debug)]
pub struct Trace<W: Write> {
    to: W,
    buffer: Box<[u8]>,
    len: usize,
    last: Time,
    /// `jobs[t]`: number of the last written job of task `t`.
    jobs: Vec<u64>,
    failed: Option<io::Error>,
}

impl<W: Write> Trace<W> {
    /// Creates a trace of a run with a number of tasks.
    pub fn new(to: W, tasks: usize) -> Trace<W> {
        let mut buffer = vec![0; BUFFER_LEN].into_boxed_slice();
        buffer[..MAGIC.len()].copy_from_slice(MAGIC);
        Trace { to, buffer, len: MAGIC.len(), last: Time::ZERO, jobs: vec![0; tasks], failed: None }
    }

    /// Writes the rest of the buffer. Returns the destination, or the first error of the run.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush();
        self.failed.map_or(Ok(self.to), Err)
    }

    fn flush(&mut self) {
        let written = self.to.write_all(&self.buffer[..self.len]);
        if let (Err(error), None) = (written, &self.failed) {
            self.failed = Some(error);
        }
        self.len = 0;
    }

    #[inline]
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.buffer[self.len] = number as u8 | 0x80;
            self.len += 1;
            number >>= 7;
        }
        self.buffer[self.len] = number as u8;
        self.len += 1;
    }

    #[inline]
    fn record<const N: usize>(&mut self, now: Time, kind: u64, numbers: [u64; N]) {
        if self.len + MAX_RECORD_LEN > BUFFER_LEN {
            self.flush();
        }
        // A clock of 60 bits lasts for 36 years.
        self.number(now.since(self.last).as_ns() << 4 | kind);
        self.last = now;
        for number in numbers {
            self.number(number);
        }
    }

    #[inline]
    fn job(&mut self, task: TaskId, job: u64) -> u64 {
        job.wrapping_sub(core::mem::replace(&mut self.jobs[task.0 as usize], job))
    }
}

impl<W: Write> Sink for Trace<W> {
    #[inline]
    fn on_arrival(&mut self, now: Time, task: TaskId, nominal: Time) {
        self.record(now, 0, [task.0.into(), now.since(nominal).as_ns()]);
    }

    fn on_refusal(&mut self, now: Time, task: TaskId) {
        self.record(now, 1, [task.0.into()]);
    }

    #[inline]
    fn on_start(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64, version: u32) {
        let job = self.job(task, job);
        self.record(now, 2, [cpu.0.into(), task.0.into(), job, version.into()]);
    }

    #[inline]
    fn on_dispatch(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        let job = self.job(task, job);
        self.record(now, 3, [cpu.0.into(), task.0.into(), job]);
    }

    #[inline]
    fn on_idle(&mut self, now: Time, cpu: Cpu) {
        self.record(now, 4, [cpu.0.into()]);
    }

    #[inline]
    fn on_completion(&mut self, of: &Completion) {
        let job = self.job(of.task, of.job);
        let relative = zigzag(of.deadline.as_ns().wrapping_sub(of.release.as_ns()));
        self.record(
            of.end,
            5,
            [of.cpu.0.into(), of.task.0.into(), job, of.response().as_ns(), relative],
        );
    }

    fn on_notification(&mut self, now: Time, notification: &Notification) {
        match *notification {
            Notification::Activated { task, deadline } => {
                self.record(now, 6, [task.0.into(), deadline.as_ns()]);
            }
            Notification::Refused { task } => self.record(now, 7, [task.0.into()]),
            Notification::NotActivated { channel } => self.record(now, 8, [channel.0.into()]),
            Notification::Overrun { cpu, task, job } => {
                let job = self.job(task, job);
                self.record(now, 9, [cpu.0.into(), task.0.into(), job]);
            }
            Notification::Deadlock { task } => self.record(now, 10, [task.0.into()]),
        }
    }
}

/// Error of the reader: the trace is invalid or incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Offset of the unreadable record, in bytes.
    pub offset: usize,
}

/// Reader of a trace.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    now: Time,
    jobs: Vec<u64>,
}

impl<'a> Reader<'a> {
    /// Opens a trace of a run with a number of tasks.
    pub fn new(bytes: &'a [u8], tasks: usize) -> Result<Reader<'a>, Malformed> {
        if !bytes.starts_with(MAGIC) {
            return Err(Malformed { offset: 0 });
        }
        Ok(Reader { bytes, at: MAGIC.len(), now: Time::ZERO, jobs: vec![0; tasks] })
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn number_u32(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn task(&mut self) -> Option<TaskId> {
        self.number_u32().filter(|&task| (task as usize) < self.jobs.len()).map(TaskId)
    }

    fn task_and_job(&mut self) -> Option<(TaskId, u64)> {
        let task = self.task()?;
        let step = self.number()?;
        let job = &mut self.jobs[task.0 as usize];
        *job = job.wrapping_add(step);
        Some((task, *job))
    }

    fn earlier(&mut self) -> Option<Time> {
        let span = self.number()?;
        self.now.as_ns().checked_sub(span).map(Time::from_ns)
    }

    fn record(&mut self) -> Option<(Time, TraceEvent)> {
        let head = self.number()?;
        self.now = Time::from_ns(self.now.as_ns().checked_add(head >> 4)?);
        let event = match head & 15 {
            0 => TraceEvent::Arrived { task: self.task()?, nominal: self.earlier()? },
            1 => TraceEvent::Refused(self.task()?),
            2 => {
                let cpu = Cpu(self.number_u32()?);
                let (task, job) = self.task_and_job()?;
                TraceEvent::Started { cpu, task, job, version: self.number_u32()? }
            }
            3 => {
                let cpu = Cpu(self.number_u32()?);
                let (task, job) = self.task_and_job()?;
                TraceEvent::Dispatched { cpu, task, job }
            }
            4 => TraceEvent::Idle(Cpu(self.number_u32()?)),
            5 => {
                let cpu = Cpu(self.number_u32()?);
                let (task, job) = self.task_and_job()?;
                let release = self.earlier()?;
                let deadline =
                    Time::from_ns(release.as_ns().wrapping_add(unzigzag(self.number()?)));
                TraceEvent::Completed(Completion {
                    task,
                    job,
                    release,
                    deadline,
                    end: self.now,
                    cpu,
                })
            }
            6 => {
                let task = self.task()?;
                TraceEvent::Notified(Notification::Activated {
                    task,
                    deadline: Time::from_ns(self.number()?),
                })
            }
            7 => TraceEvent::Notified(Notification::Refused { task: self.task()? }),
            8 => TraceEvent::Notified(Notification::NotActivated {
                channel: ChannelId(self.number_u32()?),
            }),
            9 => {
                let cpu = Cpu(self.number_u32()?);
                let (task, job) = self.task_and_job()?;
                TraceEvent::Notified(Notification::Overrun { cpu, task, job })
            }
            10 => TraceEvent::Notified(Notification::Deadlock { task: self.task()? }),
            _ => return None,
        };
        Some((self.now, event))
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<(Time, TraceEvent), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.at;
        if offset >= self.bytes.len() {
            return None;
        }
        let record = self.record();
        if record.is_none() {
            // All following bytes are meaningless.
            self.at = self.bytes.len();
        }
        Some(record.ok_or(Malformed { offset }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use talea_core::Span;

    /// Generates every kind of event, with small to maximal numbers.
    fn random_events(rng: &mut Rng, jobs: &mut [u64; 5]) -> Vec<(Time, TraceEvent)> {
        let mut now = Time::ZERO;
        let mut all = Vec::new();
        for _ in 0..2_000 {
            now += Span::from_ns(rng.next() >> (rng.between(20, 63)));
            let (task, cpu) = (TaskId(rng.below(5) as u32), Cpu(rng.below(64) as u32));
            let job = &mut jobs[task.0 as usize];
            let earlier = Time::from_ns(rng.between(0, now.as_ns()));
            let later = now.saturating_add(Span::from_ns(rng.next() >> rng.between(4, 63)));
            if rng.below(3) == 0 {
                *job = rng.next() >> rng.below(64);
            }
            let job = *job;
            all.push((
                now,
                match rng.below(11) {
                    0 => TraceEvent::Arrived { task, nominal: earlier },
                    1 => TraceEvent::Refused(task),
                    2 => TraceEvent::Started { cpu, task, job, version: rng.next() as u32 },
                    3 => TraceEvent::Dispatched { cpu, task, job },
                    4 => TraceEvent::Idle(cpu),
                    5 => TraceEvent::Completed(Completion {
                        task,
                        job,
                        release: earlier,
                        // The job of a late graph was due before its release.
                        deadline: if job.is_multiple_of(2) {
                            later
                        } else {
                            Time::from_ns(earlier.as_ns() / 2)
                        },
                        end: now,
                        cpu,
                    }),
                    6 => TraceEvent::Notified(Notification::Activated { task, deadline: later }),
                    7 => TraceEvent::Notified(Notification::Refused { task }),
                    8 => TraceEvent::Notified(Notification::NotActivated {
                        channel: ChannelId(rng.next() as u32),
                    }),
                    9 => TraceEvent::Notified(Notification::Overrun { cpu, task, job }),
                    _ => TraceEvent::Notified(Notification::Deadlock { task }),
                },
            ));
        }
        all
    }

    fn write(all: &[(Time, TraceEvent)]) -> Vec<u8> {
        let mut trace = Trace::new(Vec::new(), 5);
        for (now, event) in all {
            event.report(*now, &mut trace);
        }
        trace.finish().expect("a Vec accepts everything")
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        for seed in 0..20 {
            let all = random_events(&mut Rng::new(seed), &mut [0; 5]);
            let bytes = write(&all);
            let read: Result<Vec<_>, _> = Reader::new(&bytes, 5).expect("a trace").collect();
            assert_eq!(read.as_ref(), Ok(&all));
        }
    }

    #[test]
    fn a_truncated_trace_or_a_wrong_byte_is_an_error_and_never_panics() {
        let bytes = write(&random_events(&mut Rng::new(1), &mut [0; 5])[..50]);
        assert_eq!(Reader::new(&bytes[..7], 5).err(), Some(Malformed { offset: 0 }));
        for end in MAGIC.len()..bytes.len() {
            let read: Vec<_> = Reader::new(&bytes[..end], 5).expect("a beginning").collect();
            assert!(read.iter().rev().skip(1).all(Result::is_ok), "only the last may be cut");
        }
        for at in MAGIC.len()..bytes.len() {
            let mut wrong = bytes.clone();
            for bit in 0..8 {
                wrong[at] ^= 1 << bit;
                let _ = Reader::new(&wrong, 5).expect("a beginning").count();
            }
        }
    }

    #[test]
    fn a_full_disk_is_reported_by_finish() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let trace = Trace::new(Full, 1);
        assert_eq!(
            trace.finish().err().map(|error| error.kind()),
            Some(io::ErrorKind::StorageFull)
        );
    }
}
