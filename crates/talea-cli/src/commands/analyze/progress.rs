//! What takes longer than a second says how far it is.

use crate::commands::simulate::short;
use std::fmt;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use talea_core::Span;

/// From the first word on.
const PATIENCE: Duration = Duration::from_secs(1);
/// From one to the next.
const DISTANCE: Duration = Duration::from_millis(200);

type Tell = Box<dyn FnMut(fmt::Arguments<'_>)>;

pub(super) struct Progress {
    due: Instant,
    distance: Duration,
    tries: u64,
    shown: bool,
    /// None: nobody would see it.
    tell: Option<Tell>,
}

impl Progress {
    /// On a terminal.
    pub(super) fn new() -> Progress {
        let mut progress = Progress::quiet();
        if std::io::stderr().is_terminal() {
            // Whatever was longer before is gone.
            progress.tell = Some(Box::new(|what| eprint!("\r\x1b[K{what}")));
        }
        progress
    }

    pub(super) fn quiet() -> Progress {
        Progress {
            due: Instant::now() + PATIENCE,
            distance: DISTANCE,
            tries: 0,
            shown: false,
            tell: None,
        }
    }

    /// So many of all tasks of a root are done.
    pub(super) fn show(&mut self, root: &str, done: usize, all: usize) {
        self.say(format_args!("{root}: {done} of {all} tasks"));
    }

    /// A run of it has come so far.
    pub(super) fn simulated(&mut self, root: &str, done: Span, all: Span) {
        self.say(format_args!(
            "{root}: {} of {} simulated",
            short(done.as_ns()),
            short(all.as_ns())
        ));
    }

    /// One more try of nobody knows how many.
    pub(super) fn tried(&mut self, what: &str) {
        self.tries += 1;
        let tries = self.tries;
        self.say(format_args!("{what}: {tries} tries"));
    }

    fn say(&mut self, what: fmt::Arguments<'_>) {
        let Some(tell) = &mut self.tell else { return };
        let now = Instant::now();
        if now >= self.due {
            tell(what);
            (self.shown, self.due) = (true, now + self.distance);
        }
    }

    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprintln!();
        }
    }
}

#[cfg(test)]
impl Progress {
    /// Every word, at once.
    pub(super) fn eager(tell: impl FnMut(fmt::Arguments<'_>) + 'static) -> Progress {
        let mut progress = Progress::quiet();
        (progress.due, progress.distance) = (Instant::now(), Duration::ZERO);
        progress.tell = Some(Box::new(tell));
        progress
    }
}
