//! A record as a file: one line a thing, in order, to be read by people and by a replay on another
//! machine.
//!
//! Form: the first line is [`HEADER`]; then `TIME WORD NUMBERS…`, times in nanoseconds of the run's
//! own time line, tasks, CPUs, resources and channels by their numbers in the machine. A file that
//! was cut off is the record of the begin.

use super::{Entry, What};
use std::fmt;
use std::io::{self, Write};
use talea_core::machine::{ChannelId, Condition, Cpu, Event, Order, ResourceId, TaskId};
use talea_core::{Time, Work};

/// What the first line says; the number changes with the form.
pub const HEADER: &str = "talea-record 1";

/// A line that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Which, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: &'static str,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for Unreadable {}

/// Writes a record, a few bytes a time: give it something that buffers.
pub fn write(record: &[Entry], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{HEADER}")?;
    for entry in record {
        write!(out, "{} ", entry.now.as_ns())?;
        match entry.what {
            What::Step => writeln!(out, "step"),
            What::Polled => writeln!(out, "polled"),
            What::Told(event) => tell(event, out),
            What::Ordered(Order::Run { cpu, task, job, version }) => {
                writeln!(out, "run {} {} {job} {version}", cpu.0, task.0)
            }
            What::Ordered(Order::Idle { cpu }) => writeln!(out, "idle {}", cpu.0),
        }?;
    }
    Ok(())
}

fn tell(event: Event, out: &mut impl Write) -> io::Result<()> {
    match event {
        Event::Arrived { task, arrival } => writeln!(out, "arrived {} {}", task.0, arrival.as_ns()),
        Event::Completed { task } => writeln!(out, "completed {}", task.0),
        Event::Blocked { task } => writeln!(out, "blocked {}", task.0),
        Event::Woke { task } => writeln!(out, "woke {}", task.0),
        Event::Locked { task, resource } => writeln!(out, "locked {} {}", task.0, resource.0),
        Event::Unlocked { task, resource } => writeln!(out, "unlocked {} {}", task.0, resource.0),
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

/// Reads what was written.
///
/// # Errors
/// The first line that means nothing. That the machine can do with it what it says, and that there
/// is such a task or CPU, is for the replay to find out.
pub fn read(text: &str) -> Result<Vec<Entry>, Unreadable> {
    let mut lines = (1..).zip(text.lines());
    if lines.next().is_none_or(|(_, line)| line != HEADER) {
        return Err(Unreadable { line: 1, why: "this is no record, or one of another form" });
    }
    let mut record: Vec<Entry> = Vec::new();
    for (line, text) in lines {
        let wrong = |why| Unreadable { line, why };
        let (now, what) = entry(text).map_err(wrong)?;
        if record.last().is_some_and(|last| last.now > now) {
            return Err(wrong("time runs backwards"));
        }
        record.push(Entry { number: record.len() as u64, now, what });
    }
    Ok(record)
}

/// The numbers behind a word.
struct Numbers<'a>(std::str::SplitAsciiWhitespace<'a>);

impl Numbers<'_> {
    fn next<T: std::str::FromStr>(&mut self) -> Result<T, &'static str> {
        let word = self.0.next().ok_or("a number is missing")?;
        word.parse().map_err(|_| "a number is none, or too large")
    }
}

fn entry(line: &str) -> Result<(Time, What), &'static str> {
    let mut rest = Numbers(line.split_ascii_whitespace());
    let now = Time::from_ns(rest.next()?);
    let word = rest.0.next().ok_or("there is no word")?;
    let what = match word {
        "step" => What::Step,
        "polled" => What::Polled,
        "run" => What::Ordered(Order::Run {
            cpu: Cpu(rest.next()?),
            task: TaskId(rest.next()?),
            job: rest.next()?,
            version: rest.next()?,
        }),
        "idle" => What::Ordered(Order::Idle { cpu: Cpu(rest.next()?) }),
        word => What::Told(told(word, &mut rest)?),
    };
    match rest.0.next() {
        None => Ok((now, what)),
        Some(_) => Err("there is more than belongs to the word"),
    }
}

fn told(word: &str, rest: &mut Numbers<'_>) -> Result<Event, &'static str> {
    let mut task = || Ok::<_, &'static str>(TaskId(rest.next()?));
    Ok(match word {
        "arrived" => Event::Arrived { task: task()?, arrival: Time::from_ns(rest.next()?) },
        "completed" => Event::Completed { task: task()? },
        "blocked" => Event::Blocked { task: task()? },
        "woke" => Event::Woke { task: task()? },
        "locked" => Event::Locked { task: task()?, resource: ResourceId(rest.next()?) },
        "unlocked" => Event::Unlocked { task: task()?, resource: ResourceId(rest.next()?) },
        "pushed" => Event::Pushed { channel: ChannelId(rest.next()?) },
        "popped" => Event::Popped { channel: ChannelId(rest.next()?) },
        "battery" => Event::Changed(Condition::Battery(rest.next()?)),
        "mode" => Event::Changed(Condition::Mode(rest.next()?)),
        "permitted" => Event::Changed(Condition::Permitted(rest.next()?)),
        "stopped" => Event::Stopped,
        "ran" => Event::Ran { cpu: Cpu(rest.next()?), work: Work::from_ns(rest.next()?) },
        "timer" => Event::Timer,
        _ => return Err("nobody knows this word"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Entry> {
        let (task, cpu, resource) = (TaskId(3), Cpu(1), ResourceId(4));
        let channel = ChannelId(5);
        let whats = [
            What::Step,
            What::Told(Event::Arrived { task, arrival: Time::from_ns(7) }),
            What::Told(Event::Completed { task }),
            What::Told(Event::Blocked { task }),
            What::Told(Event::Woke { task }),
            What::Told(Event::Locked { task, resource }),
            What::Told(Event::Unlocked { task, resource }),
            What::Told(Event::Pushed { channel }),
            What::Told(Event::Popped { channel }),
            What::Told(Event::Changed(Condition::Battery(u64::MAX))),
            What::Told(Event::Changed(Condition::Mode(2))),
            What::Told(Event::Changed(Condition::Permitted(9))),
            What::Told(Event::Stopped),
            What::Told(Event::Ran { cpu, work: Work::from_ns(11) }),
            What::Told(Event::Timer),
            What::Ordered(Order::Run { cpu, task, job: 12, version: 1 }),
            What::Ordered(Order::Idle { cpu }),
            What::Polled,
        ];
        (0..)
            .zip(whats)
            .map(|(number, what)| Entry { number, now: Time::from_ns(number / 3), what })
            .collect()
    }

    fn written() -> String {
        let mut text = Vec::new();
        write(&all(), &mut text).expect("memory takes all");
        String::from_utf8(text).expect("plain text")
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(read(&written()), Ok(all()));
    }

    #[test]
    fn a_line_that_means_nothing_is_named() {
        for (line, why) in [
            ("7", "there is no word"),
            ("", "a number is missing"),
            ("soon step", "a number is none, or too large"),
            ("7 run 1 2 3", "a number is missing"),
            ("7 ran 1 99999999999999999999", "a number is none, or too large"),
            ("7 idle -1", "a number is none, or too large"),
            ("7 step 1", "there is more than belongs to the word"),
            ("7 jumped 1", "nobody knows this word"),
            ("1 step", "time runs backwards"),
        ] {
            let text = format!("{}{line}\n", written());
            assert_eq!(read(&text), Err(Unreadable { line: all().len() + 2, why }), "{line}");
        }
        assert_eq!(read("").map_err(|wrong| wrong.line), Err(1));
        assert_eq!(read("talea-record 2\n").map_err(|wrong| wrong.line), Err(1));
    }
}
