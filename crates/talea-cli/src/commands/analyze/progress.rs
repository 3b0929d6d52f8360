//! What takes longer than a second says how far it is.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

pub(super) struct Progress {
    began: Instant,
    shown: bool,
    last: Instant,
    tries: u64,
}

impl Progress {
    pub(super) fn new() -> Progress {
        let now = Instant::now();
        Progress { began: now, shown: false, last: now, tries: 0 }
    }

    /// So many of all tasks of a root are done.
    pub(super) fn show(&mut self, root: &str, done: usize, all: usize) {
        self.say(|| format!("{root}: {done} of {all} tasks"));
    }

    /// One more try of nobody knows how many.
    pub(super) fn tried(&mut self, what: &str) {
        self.tries += 1;
        let tries = self.tries;
        self.say(|| format!("{what}: {tries} tries"));
    }

    fn say(&mut self, what: impl FnOnce() -> String) {
        const PATIENCE: Duration = Duration::from_secs(1);
        const DISTANCE: Duration = Duration::from_millis(200);
        let is_due = self.began.elapsed() > PATIENCE && self.last.elapsed() > DISTANCE;
        if is_due && std::io::stderr().is_terminal() {
            eprint!("\r{}", what());
            (self.shown, self.last) = (true, Instant::now());
        }
    }

    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprintln!();
        }
    }
}
