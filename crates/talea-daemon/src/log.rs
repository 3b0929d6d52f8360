//! Lines for whoever looks after the machine.
//!
//! Model: one line, one write to standard error. Under a service manager that reads priorities
//! (`JOURNAL_STREAM` is set and names our standard error, see `sd-daemon(3)`), each line starts
//! with `<N>`; elsewhere with a word. Healthy is silent: requests that succeed are never logged.
//!
//! Invariant: a line is a line. Clients choose names, so control characters are replaced before
//! writing.

use std::fmt;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use talea_core::{Span, Time};
use talea_system::config::LogLevel;

/// Where lines go and how important they must be.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    level: LogLevel,
    priorities: bool,
}

impl Log {
    /// Writes to standard error what is at least as important as `level`.
    pub fn new(level: LogLevel) -> Log {
        Log { level, priorities: is_journal() }
    }

    /// The same with another level.
    #[must_use]
    pub fn at(self, level: LogLevel) -> Log {
        Log { level, ..self }
    }

    /// Something failed.
    pub fn error(&self, line: impl fmt::Display) {
        self.write(LogLevel::Error, &line);
    }

    /// Something is doubtful.
    pub fn warning(&self, line: impl fmt::Display) {
        self.write(LogLevel::Warning, &line);
    }

    /// Start, stop, first refusals.
    pub fn info(&self, line: impl fmt::Display) {
        self.write(LogLevel::Info, &line);
    }

    /// For somebody who is looking for something.
    pub fn debug(&self, line: impl fmt::Display) {
        self.write(LogLevel::Debug, &line);
    }

    fn write(&self, level: LogLevel, line: &dyn fmt::Display) {
        if level > self.level {
            return;
        }
        // Nobody is left to tell when standard error is gone.
        let _ = std::io::stderr().write_all(self.format(level, line).as_bytes());
    }

    fn format(&self, level: LogLevel, line: &dyn fmt::Display) -> String {
        let mut text = match (self.priorities, level) {
            (true, LogLevel::Error) => "<3>",
            (true, LogLevel::Warning) => "<4>",
            (true, LogLevel::Info) => "<6>",
            (true, LogLevel::Debug) => "<7>",
            (false, LogLevel::Error) => "talead: error: ",
            (false, LogLevel::Warning) => "talead: warning: ",
            (false, LogLevel::Info | LogLevel::Debug) => "talead: ",
        }
        .to_owned();
        text.extend(line.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }));
        text.push('\n');
        text
    }
}

/// Keeps what somebody can provoke again and again from filling the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reminder {
    last: Option<Time>,
}

impl Reminder {
    /// How often it is worth a line.
    const EVERY: Span = Span::from_ns(60_000_000_000);

    /// Whether a line should be written now.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        let due = self.last.is_none_or(|last| last.saturating_add(Reminder::EVERY) <= now);
        if due {
            self.last = Some(now);
        }
        due
    }
}

/// Whether standard error is the stream that the service manager reads: a variable that was merely
/// inherited names another file.
fn is_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    let Some((device, inode)) = stream.split_once(':') else { return false };
    let told = (device.parse(), inode.parse());
    std::fs::metadata("/proc/self/fd/2").is_ok_and(|meta| (Ok(meta.dev()), Ok(meta.ino())) == told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_line_whatever_a_client_calls_itself() {
        let log = Log { level: LogLevel::Info, priorities: false };
        let name = "rm\n<0>talead: all is lost\x1b[2J";
        let text = log.format(LogLevel::Warning, &name);
        assert_eq!(text, "talead: warning: rm <0>talead: all is lost [2J\n");
    }

    #[test]
    fn a_journal_gets_priorities() {
        let log = Log { level: LogLevel::Info, priorities: true };
        let levels = [LogLevel::Error, LogLevel::Warning, LogLevel::Info, LogLevel::Debug];
        let lines = levels.map(|level| log.format(level, &"x"));
        assert_eq!(lines, ["<3>x\n", "<4>x\n", "<6>x\n", "<7>x\n"]);
    }
}
