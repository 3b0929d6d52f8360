//! Everything that happens, as a stream of bytes: the full trace of a long run.
//!
//! Format 2. Eight bytes `TALEATR2`, then records without padding. A number is an LEB128 varint:
//! seven bits a byte, the least significant first, the top bit set on all but the last. A record
//! begins with the number `16 · d + kind`, d being nanoseconds since the record before it (since
//! zero for the first), and goes on with these numbers:
//!
//! | kind | what | numbers |
//! | --- | --- | --- |
//! | 0 | a job has arrived | task; by how much its nominal time is earlier than now |
//! | 1 | it had no room | task |
//! | 2 | a CPU goes over to a job for the first time | CPU, task, job, version |
//! | 3 | a CPU goes over to a job | CPU, task, job |
//! | 4 | a CPU goes over to nothing | CPU |
//! | 5 | a job has ended | CPU, task, job; how long ago it was released; its deadline less that, as below |
//! | 6 | a graph or a table has activated a task | task, deadline |
//! | 7 | the same, but without room | task |
//! | 8 | a job has ended without a token | channel |
//! | 9 | an entry of a table is over, its job is not | CPU, task, job |
//! | 10 | a circle of waiting was closed | task |
//!
//! A job's number is written as the difference, modulo 2^64, to that of the last record about its
//! task (to zero in the first), so that it takes a byte. A deadline may lie before the release, at
//! the end of a graph that is late: the difference, modulo 2^64 and with a sign, is doubled, and
//! one that is negative is then inverted (zigzag). About 30 bytes a job in all.

use crate::sink::{Completion, Sink};
use std::io::{self, Write};
use talea_core::Time;
use talea_core::machine::{ChannelId, Cpu, Note, TaskId};

const MAGIC: &[u8; 8] = b"TALEATR2";
/// No record is longer: six numbers of ten bytes each.
const LONGEST: usize = 60;
const ROOM: usize = 1 << 16;

/// A small number for a small difference of either sign.
fn zigzag(difference: u64) -> u64 {
    difference << 1 ^ (difference.cast_signed() >> 63).cast_unsigned()
}

fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

/// One thing that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// See [`Sink::arrived`].
    Arrived {
        /// Whose job.
        task: TaskId,
        /// When it should have come.
        nominal: Time,
    },
    /// See [`Sink::refused`].
    Refused(TaskId),
    /// See [`Sink::begins`].
    Begins {
        /// Where.
        cpu: Cpu,
        /// Whose job.
        task: TaskId,
        /// Which.
        job: u64,
        /// In which version.
        version: u32,
    },
    /// See [`Sink::runs`].
    Runs {
        /// Where.
        cpu: Cpu,
        /// Whose job.
        task: TaskId,
        /// Which.
        job: u64,
    },
    /// See [`Sink::idles`].
    Idles(Cpu),
    /// See [`Sink::completed`].
    Completed(Completion),
    /// See [`Sink::noted`].
    Noted(Note),
}

/// Writes a trace. What is written is buffered; errors are kept until [`Trace::finish`].
#[derive(Debug)]
pub struct Trace<W: Write> {
    to: W,
    buffer: Box<[u8]>,
    len: usize,
    last: Time,
    /// By task: the number of the job that was last written.
    jobs: Vec<u64>,
    failed: Option<io::Error>,
}

impl<W: Write> Trace<W> {
    /// Of so many tasks.
    pub fn new(to: W, tasks: usize) -> Trace<W> {
        let mut buffer = vec![0; ROOM].into_boxed_slice();
        buffer[..MAGIC.len()].copy_from_slice(MAGIC);
        Trace { to, buffer, len: MAGIC.len(), last: Time::ZERO, jobs: vec![0; tasks], failed: None }
    }

    /// Writes what is left.
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
        if self.len + LONGEST > ROOM {
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
    fn arrived(&mut self, now: Time, task: TaskId, nominal: Time) {
        self.record(now, 0, [task.0.into(), now.since(nominal).as_ns()]);
    }

    fn refused(&mut self, now: Time, task: TaskId) {
        self.record(now, 1, [task.0.into()]);
    }

    #[inline]
    fn begins(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64, version: u32) {
        let job = self.job(task, job);
        self.record(now, 2, [cpu.0.into(), task.0.into(), job, version.into()]);
    }

    #[inline]
    fn runs(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        let job = self.job(task, job);
        self.record(now, 3, [cpu.0.into(), task.0.into(), job]);
    }

    #[inline]
    fn idles(&mut self, now: Time, cpu: Cpu) {
        self.record(now, 4, [cpu.0.into()]);
    }

    #[inline]
    fn completed(&mut self, of: &Completion) {
        let job = self.job(of.task, of.job);
        let relative = zigzag(of.deadline.as_ns().wrapping_sub(of.release.as_ns()));
        self.record(
            of.end,
            5,
            [of.cpu.0.into(), of.task.0.into(), job, of.response().as_ns(), relative],
        );
    }

    fn noted(&mut self, now: Time, note: &Note) {
        match *note {
            Note::Activated { task, deadline } => {
                self.record(now, 6, [task.0.into(), deadline.as_ns()])
            }
            Note::Refused { task } => self.record(now, 7, [task.0.into()]),
            Note::NotActivated { channel } => self.record(now, 8, [channel.0.into()]),
            Note::Overrun { cpu, task, job } => {
                let job = self.job(task, job);
                self.record(now, 9, [cpu.0.into(), task.0.into(), job]);
            }
            Note::Deadlock { task } => self.record(now, 10, [task.0.into()]),
        }
    }
}

/// A trace that is none, or not a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where the record begins that can't be read, in bytes.
    pub offset: usize,
}

/// Reads a trace.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    now: Time,
    jobs: Vec<u64>,
}

impl<'a> Reader<'a> {
    /// Of a run with so many tasks.
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

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn task(&mut self) -> Option<TaskId> {
        self.small().filter(|&task| (task as usize) < self.jobs.len()).map(TaskId)
    }

    fn of_task(&mut self) -> Option<(TaskId, u64)> {
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

    fn record(&mut self) -> Option<(Time, Happened)> {
        let head = self.number()?;
        self.now = Time::from_ns(self.now.as_ns().checked_add(head >> 4)?);
        let happened = match head & 15 {
            0 => Happened::Arrived { task: self.task()?, nominal: self.earlier()? },
            1 => Happened::Refused(self.task()?),
            2 => {
                let cpu = Cpu(self.small()?);
                let (task, job) = self.of_task()?;
                Happened::Begins { cpu, task, job, version: self.small()? }
            }
            3 => {
                let cpu = Cpu(self.small()?);
                let (task, job) = self.of_task()?;
                Happened::Runs { cpu, task, job }
            }
            4 => Happened::Idles(Cpu(self.small()?)),
            5 => {
                let cpu = Cpu(self.small()?);
                let (task, job) = self.of_task()?;
                let release = self.earlier()?;
                let deadline =
                    Time::from_ns(release.as_ns().wrapping_add(unzigzag(self.number()?)));
                Happened::Completed(Completion { task, job, release, deadline, end: self.now, cpu })
            }
            6 => {
                let task = self.task()?;
                Happened::Noted(Note::Activated { task, deadline: Time::from_ns(self.number()?) })
            }
            7 => Happened::Noted(Note::Refused { task: self.task()? }),
            8 => Happened::Noted(Note::NotActivated { channel: ChannelId(self.small()?) }),
            9 => {
                let cpu = Cpu(self.small()?);
                let (task, job) = self.of_task()?;
                Happened::Noted(Note::Overrun { cpu, task, job })
            }
            10 => Happened::Noted(Note::Deadlock { task: self.task()? }),
            _ => return None,
        };
        Some((self.now, happened))
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<(Time, Happened), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.at;
        if offset >= self.bytes.len() {
            return None;
        }
        let record = self.record();
        if record.is_none() {
            // Nothing after it makes sense.
            self.at = self.bytes.len();
        }
        Some(record.ok_or(Malformed { offset }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;
    use talea_core::Span;

    /// Whatever a sink may be told, with numbers from small to the largest.
    fn told(dice: &mut Dice, jobs: &mut [u64; 5]) -> Vec<(Time, Happened)> {
        let mut now = Time::ZERO;
        let mut all = Vec::new();
        for _ in 0..2_000 {
            now += Span::from_ns(dice.next() >> (dice.between(20, 63)));
            let (task, cpu) = (TaskId(dice.below(5) as u32), Cpu(dice.below(64) as u32));
            let job = &mut jobs[task.0 as usize];
            let earlier = Time::from_ns(dice.between(0, now.as_ns()));
            let later = now.saturating_add(Span::from_ns(dice.next() >> dice.between(4, 63)));
            if dice.below(3) == 0 {
                *job = dice.next() >> dice.below(64);
            }
            let job = *job;
            all.push((
                now,
                match dice.below(11) {
                    0 => Happened::Arrived { task, nominal: earlier },
                    1 => Happened::Refused(task),
                    2 => Happened::Begins { cpu, task, job, version: dice.next() as u32 },
                    3 => Happened::Runs { cpu, task, job },
                    4 => Happened::Idles(cpu),
                    5 => Happened::Completed(Completion {
                        task,
                        job,
                        release: earlier,
                        // The job of a late graph was due before it was released.
                        deadline: if job.is_multiple_of(2) {
                            later
                        } else {
                            Time::from_ns(earlier.as_ns() / 2)
                        },
                        end: now,
                        cpu,
                    }),
                    6 => Happened::Noted(Note::Activated { task, deadline: later }),
                    7 => Happened::Noted(Note::Refused { task }),
                    8 => Happened::Noted(Note::NotActivated {
                        channel: ChannelId(dice.next() as u32),
                    }),
                    9 => Happened::Noted(Note::Overrun { cpu, task, job }),
                    _ => Happened::Noted(Note::Deadlock { task }),
                },
            ));
        }
        all
    }

    fn write(all: &[(Time, Happened)]) -> Vec<u8> {
        let mut trace = Trace::new(Vec::new(), 5);
        for (now, happened) in all {
            match *happened {
                Happened::Arrived { task, nominal } => trace.arrived(*now, task, nominal),
                Happened::Refused(task) => trace.refused(*now, task),
                Happened::Begins { cpu, task, job, version } => {
                    trace.begins(*now, cpu, task, job, version)
                }
                Happened::Runs { cpu, task, job } => trace.runs(*now, cpu, task, job),
                Happened::Idles(cpu) => trace.idles(*now, cpu),
                Happened::Completed(of) => trace.completed(&of),
                Happened::Noted(note) => trace.noted(*now, &note),
            }
        }
        trace.finish().expect("a Vec takes everything")
    }

    #[test]
    fn what_is_read_is_what_was_told() {
        for seed in 0..20 {
            let all = told(&mut Dice::new(seed), &mut [0; 5]);
            let bytes = write(&all);
            let read: Result<Vec<_>, _> = Reader::new(&bytes, 5).expect("a trace").collect();
            assert_eq!(read.as_ref(), Ok(&all));
        }
    }

    #[test]
    fn half_a_trace_and_a_wrong_byte_are_said_and_never_panic() {
        let bytes = write(&told(&mut Dice::new(1), &mut [0; 5])[..50]);
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
    fn a_disk_that_is_full_is_told_at_the_end() {
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
