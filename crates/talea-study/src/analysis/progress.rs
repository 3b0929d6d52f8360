//! Progress messages of analyses that take longer than a second.

use crate::run_summary::short;
use std::fmt;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use talea_core::Span;

/// Time before the first message.
const FIRST_UPDATE_DELAY: Duration = Duration::from_secs(1);
/// Time between two messages.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);

type WriteLine = Box<dyn FnMut(fmt::Arguments<'_>)>;

pub(super) struct Progress {
    due: Instant,
    interval: Duration,
    tries: u64,
    shown: bool,
    /// Function that writes a message; `None` if standard error is not a terminal.
    write_line: Option<WriteLine>,
}

impl Progress {
    /// Creates a progress that writes to standard error if standard error is a terminal.
    pub(super) fn new() -> Progress {
        let mut progress = Progress::silent();
        if std::io::stderr().is_terminal() {
            // The escape sequence erases the longer previous message.
            progress.write_line = Some(Box::new(|what| eprint!("\r\x1b[K{what}")));
        }
        progress
    }

    pub(super) fn silent() -> Progress {
        Progress {
            due: Instant::now() + FIRST_UPDATE_DELAY,
            interval: UPDATE_INTERVAL,
            tries: 0,
            shown: false,
            write_line: None,
        }
    }

    /// Reports that `done` of `all` tasks of a root are analysed.
    pub(super) fn tasks_analysed(&mut self, root: &str, done: usize, all: usize) {
        self.update(format_args!("{root}: {done} of {all} tasks"));
    }

    /// Reports how much of a run is simulated.
    pub(super) fn simulated(&mut self, root: &str, done: Span, all: Span) {
        self.update(format_args!(
            "{root}: {} of {} simulated",
            short(done.as_ns()),
            short(all.as_ns())
        ));
    }

    /// Counts an attempt. The total number of attempts is unknown.
    pub(super) fn tried(&mut self, what: &str) {
        self.tries += 1;
        let tries = self.tries;
        self.update(format_args!("{what}: {tries} tries"));
    }

    fn update(&mut self, what: fmt::Arguments<'_>) {
        let Some(write_line) = &mut self.write_line else { return };
        let now = Instant::now();
        if now >= self.due {
            write_line(what);
            (self.shown, self.due) = (true, now + self.interval);
        }
    }

    pub(super) fn finish_line(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprintln!();
        }
    }
}

#[cfg(test)]
impl Progress {
    /// Creates a progress that writes every message immediately.
    pub(super) fn immediate(write_line: impl FnMut(fmt::Arguments<'_>) + 'static) -> Progress {
        let mut progress = Progress::silent();
        (progress.due, progress.interval) = (Instant::now(), Duration::ZERO);
        progress.write_line = Some(Box::new(write_line));
        progress
    }
}
