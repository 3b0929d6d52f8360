//! Log lines for the administrator.
//!
//! Model: one line is one write to standard error. Under a service manager that reads priorities,
//! each line starts with `<N>`; elsewhere it starts with a word. Such a manager sets
//! `JOURNAL_STREAM` to the identity of standard error, see `sd-daemon(3)`. Successful requests are
//! never logged.
//!
//! Invariant: one message is one line. Clients choose names, so control characters are replaced
//! before writing.

use std::fmt;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use talea_config::LogLevel;
use talea_config::diagnostic::harmless;
use talea_core::{Monotonic, Span};

/// Destination and minimum importance of lines.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    level: LogLevel,
    priorities: bool,
}

impl Log {
    /// Creates a log that writes lines of at least this importance to standard error.
    pub fn new(level: LogLevel) -> Log {
        Log { level, priorities: is_journal() }
    }

    /// Logs a failure.
    pub fn error(&self, line: impl fmt::Display) {
        self.write(LogLevel::Error, &line);
    }

    /// Logs a warning.
    pub fn warning(&self, line: impl fmt::Display) {
        self.write(LogLevel::Warning, &line);
    }

    /// Logs information: start, stop, first refusals.
    pub fn info(&self, line: impl fmt::Display) {
        self.write(LogLevel::Info, &line);
    }

    /// Logs a line for debugging.
    pub fn debug(&self, line: impl fmt::Display) {
        self.write(LogLevel::Debug, &line);
    }

    fn write(&self, level: LogLevel, line: &dyn fmt::Display) {
        if level > self.level {
            return;
        }
        // Without standard error the line cannot be reported.
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
        text.extend(line.to_string().chars().map(harmless));
        text.push('\n');
        text
    }
}

/// Rate limit for log lines that clients can trigger repeatedly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogLimiter {
    last: Option<Monotonic>,
}

impl LogLimiter {
    /// Minimum time between two lines.
    const PERIOD: Span = Span::from_ns(60_000_000_000);

    /// Whether a line may be written now.
    pub(crate) fn allows(&mut self, now: Monotonic) -> bool {
        let due = self.last.is_none_or(|last| last.saturating_add(LogLimiter::PERIOD) <= now);
        if due {
            self.last = Some(now);
        }
        due
    }
}

/// Whether standard error is the stream that the service manager reads. An inherited variable
/// refers to another file.
fn is_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    let Some((device, inode)) = stream.split_once(':') else { return false };
    let announced = (device.parse(), inode.parse());
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|meta| (Ok(meta.dev()), Ok(meta.ino())) == announced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_client_names_do_not_break_log_lines() {
        let log = Log { level: LogLevel::Info, priorities: false };
        let name = "rm\n<0>talead: all is lost\x1b[2J";
        let text = log.format(LogLevel::Warning, &name);
        assert_eq!(text, "talead: warning: rm\u{fffd}<0>talead: all is lost\u{fffd}[2J\n");
    }

    #[test]
    fn journal_lines_have_priority_prefixes() {
        let log = Log { level: LogLevel::Info, priorities: true };
        let levels = [LogLevel::Error, LogLevel::Warning, LogLevel::Info, LogLevel::Debug];
        let lines = levels.map(|level| log.format(level, &"x"));
        assert_eq!(lines, ["<3>x\n", "<4>x\n", "<6>x\n", "<7>x\n"]);
    }
}
