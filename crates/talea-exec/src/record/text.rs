//! Text format of a record: one line per entry, in order, for readers and for a replay on another
//! system.
//!
//! Format: the first line is [`HEADER`]; then `TIME WORD NUMBERS…`, with times in nanoseconds of
//! run time, and tasks, CPUs, resources and channels by their numbers in the engine. A truncated
//! file is the record of the beginning.

use super::{RecordEntry, RecordKind};
use std::fmt;
use std::io::{self, Write};
use talea_core::engine::{ChannelId, Condition, Cpu, Event, Order, ResourceId, TaskId};
use talea_core::{Time, Work};

/// First line of a record. Its number changes with the format.
pub const HEADER: &str = "talea-record 1";

/// Error in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Reason.
    pub reason: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for ParseError {}

/// Writes a record, a few bytes at a time: `out` should buffer.
pub fn write(record: &[RecordEntry], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{HEADER}")?;
    for entry in record {
        write!(out, "{} ", entry.now.as_ns())?;
        match entry.kind {
            RecordKind::Step => writeln!(out, "step"),
            RecordKind::Polled => writeln!(out, "polled"),
            RecordKind::Event(event) => write_event(event, out),
            RecordKind::Order(Order::Run { cpu, task, job, version }) => {
                writeln!(out, "run {} {} {job} {version}", cpu.0, task.0)
            }
            RecordKind::Order(Order::Idle { cpu }) => writeln!(out, "idle {}", cpu.0),
        }?;
    }
    Ok(())
}

fn write_event(event: Event, out: &mut impl Write) -> io::Result<()> {
    match event {
        Event::Arrived { task, arrival } => writeln!(out, "arrived {} {}", task.0, arrival.as_ns()),
        Event::Completed { task } => writeln!(out, "completed {}", task.0),
        Event::Blocked { task } => writeln!(out, "blocked {}", task.0),
        Event::Woke { task } => writeln!(out, "woke {}", task.0),
        Event::Locked { task, resource } => writeln!(out, "locked {} {}", task.0, resource.0),
        Event::Unlocked { task, resource } => writeln!(out, "unlocked {} {}", task.0, resource.0),
        Event::PreemptionPoint { task, nonpreemptive } => {
            writeln!(out, "point {} {}", task.0, u32::from(nonpreemptive))
        }
        Event::Pushed { channel } => writeln!(out, "pushed {}", channel.0),
        Event::Popped { channel } => writeln!(out, "popped {}", channel.0),
        Event::Changed(Condition::Battery(left)) => writeln!(out, "battery {left}"),
        Event::Changed(Condition::Mode(mode)) => writeln!(out, "mode {mode}"),
        Event::Changed(Condition::Permitted(mask)) => writeln!(out, "permitted {mask}"),
        Event::Stopped => writeln!(out, "stopped"),
        Event::Ran { cpu, work } => writeln!(out, "ran {} {}", cpu.0, work.as_ns()),
        Event::Timer => writeln!(out, "timer"),
    }
}

/// Reads a record.
///
/// # Errors
/// The first invalid line. The replay checks whether tasks and CPUs exist and whether the engine
/// accepts the events.
pub fn read(text: &str) -> Result<Vec<RecordEntry>, ParseError> {
    let mut lines = (1..).zip(text.lines());
    if lines.next().is_none_or(|(_, line)| line != HEADER) {
        return Err(ParseError {
            line: 1,
            reason: "not a record, or a record of another format version",
        });
    }
    let mut record: Vec<RecordEntry> = Vec::new();
    for (line, text) in lines {
        let wrong = |why| ParseError { line, reason: why };
        let (now, what) = parse_entry(text).map_err(wrong)?;
        if record.last().is_some_and(|last| last.now > now) {
            return Err(wrong("time goes backwards"));
        }
        record.push(RecordEntry { number: record.len() as u64, now, kind: what });
    }
    Ok(record)
}

/// Numbers after the word of a line.
struct Numbers<'a>(std::str::SplitAsciiWhitespace<'a>);

impl Numbers<'_> {
    fn next<T: std::str::FromStr>(&mut self) -> Result<T, &'static str> {
        let word = self.0.next().ok_or("missing number")?;
        word.parse().map_err(|_| "invalid or too large number")
    }
}

fn parse_entry(line: &str) -> Result<(Time, RecordKind), &'static str> {
    let mut rest = Numbers(line.split_ascii_whitespace());
    let now = Time::from_ns(rest.next()?);
    let word = rest.0.next().ok_or("missing word")?;
    let what = match word {
        "step" => RecordKind::Step,
        "polled" => RecordKind::Polled,
        "run" => RecordKind::Order(Order::Run {
            cpu: Cpu(rest.next()?),
            task: TaskId(rest.next()?),
            job: rest.next()?,
            version: rest.next()?,
        }),
        "idle" => RecordKind::Order(Order::Idle { cpu: Cpu(rest.next()?) }),
        word => RecordKind::Event(parse_event(word, &mut rest)?),
    };
    match rest.0.next() {
        None => Ok((now, what)),
        Some(_) => Err("too many numbers after the word"),
    }
}

fn parse_event(word: &str, rest: &mut Numbers<'_>) -> Result<Event, &'static str> {
    let mut task = || Ok::<_, &'static str>(TaskId(rest.next()?));
    Ok(match word {
        "arrived" => Event::Arrived { task: task()?, arrival: Time::from_ns(rest.next()?) },
        "completed" => Event::Completed { task: task()? },
        "blocked" => Event::Blocked { task: task()? },
        "woke" => Event::Woke { task: task()? },
        "locked" => Event::Locked { task: task()?, resource: ResourceId(rest.next()?) },
        "unlocked" => Event::Unlocked { task: task()?, resource: ResourceId(rest.next()?) },
        "point" => {
            let (task, section) = (task()?, rest.next::<u32>()?);
            Event::PreemptionPoint { task, nonpreemptive: section != 0 }
        }
        "pushed" => Event::Pushed { channel: ChannelId(rest.next()?) },
        "popped" => Event::Popped { channel: ChannelId(rest.next()?) },
        "battery" => Event::Changed(Condition::Battery(rest.next()?)),
        "mode" => Event::Changed(Condition::Mode(rest.next()?)),
        "permitted" => Event::Changed(Condition::Permitted(rest.next()?)),
        "stopped" => Event::Stopped,
        "ran" => Event::Ran { cpu: Cpu(rest.next()?), work: Work::from_ns(rest.next()?) },
        "timer" => Event::Timer,
        _ => return Err("unknown word"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<RecordEntry> {
        let (task, cpu, resource) = (TaskId(3), Cpu(1), ResourceId(4));
        let channel = ChannelId(5);
        let whats = [
            RecordKind::Step,
            RecordKind::Event(Event::Arrived { task, arrival: Time::from_ns(7) }),
            RecordKind::Event(Event::Completed { task }),
            RecordKind::Event(Event::Blocked { task }),
            RecordKind::Event(Event::Woke { task }),
            RecordKind::Event(Event::Locked { task, resource }),
            RecordKind::Event(Event::Unlocked { task, resource }),
            RecordKind::Event(Event::PreemptionPoint { task, nonpreemptive: true }),
            RecordKind::Event(Event::PreemptionPoint { task, nonpreemptive: false }),
            RecordKind::Event(Event::Pushed { channel }),
            RecordKind::Event(Event::Popped { channel }),
            RecordKind::Event(Event::Changed(Condition::Battery(u64::MAX))),
            RecordKind::Event(Event::Changed(Condition::Mode(2))),
            RecordKind::Event(Event::Changed(Condition::Permitted(9))),
            RecordKind::Event(Event::Stopped),
            RecordKind::Event(Event::Ran { cpu, work: Work::from_ns(11) }),
            RecordKind::Event(Event::Timer),
            RecordKind::Order(Order::Run { cpu, task, job: 12, version: 1 }),
            RecordKind::Order(Order::Idle { cpu }),
            RecordKind::Polled,
        ];
        (0..)
            .zip(whats)
            .map(|(number, what)| RecordEntry {
                number,
                now: Time::from_ns(number / 3),
                kind: what,
            })
            .collect()
    }

    fn written() -> String {
        let mut text = Vec::new();
        write(&all(), &mut text).expect("writing to memory cannot fail");
        String::from_utf8(text).expect("plain text")
    }

    #[test]
    fn a_written_record_is_read_back() {
        assert_eq!(read(&written()), Ok(all()));
    }

    #[test]
    fn an_invalid_line_is_reported_with_its_number() {
        for (line, why) in [
            ("7", "missing word"),
            ("", "missing number"),
            ("soon step", "invalid or too large number"),
            ("7 run 1 2 3", "missing number"),
            ("7 ran 1 99999999999999999999", "invalid or too large number"),
            ("7 idle -1", "invalid or too large number"),
            ("7 step 1", "too many numbers after the word"),
            ("7 jumped 1", "unknown word"),
            ("1 step", "time goes backwards"),
        ] {
            let text = format!("{}{line}\n", written());
            assert_eq!(
                read(&text),
                Err(ParseError { line: all().len() + 2, reason: why }),
                "{line}"
            );
        }
        assert_eq!(read("").map_err(|wrong| wrong.line), Err(1));
        assert_eq!(read("talea-record 2\n").map_err(|wrong| wrong.line), Err(1));
    }
}
