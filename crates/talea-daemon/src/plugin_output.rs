//! Standard error of a plugin, as lines of the log: at most [`LINES_PER_SECOND`].

use crate::log::Log;
use talea_core::Monotonic;

/// Maximum number of logged lines of a plugin per second.
const LINES_PER_SECOND: u32 = 10;

/// Line buffer for a plugin's standard error.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    partial: Vec<u8>,
    second: u64,
    written: u32,
}

impl LineBuffer {
    /// Maximum length of a line in bytes; longer lines are split.
    const MAX_LINE_LEN: usize = 512;

    /// Logs the complete lines of these bytes.
    pub(crate) fn take(&mut self, name: &str, bytes: &[u8], now: Monotonic, log: &Log) {
        for &byte in bytes {
            if byte == b'\n' || self.partial.len() >= LineBuffer::MAX_LINE_LEN {
                self.finish(name, now, log);
            }
            if byte != b'\n' {
                self.partial.push(byte);
            }
        }
    }

    /// Logs the rest of an incomplete line.
    pub(crate) fn finish(&mut self, name: &str, now: Monotonic, log: &Log) {
        let second = now.as_ns() / 1_000_000_000;
        if second != self.second {
            (self.second, self.written) = (second, 0);
        }
        if !self.partial.is_empty() {
            self.written += 1;
            match self.written {
                ..=LINES_PER_SECOND => {
                    log.info(format_args!(
                        "plugin `{name}`: {}",
                        String::from_utf8_lossy(&self.partial)
                    ));
                }
                over if over == LINES_PER_SECOND + 1 => {
                    log.info(format_args!(
                        "plugin `{name}` wrote more than {LINES_PER_SECOND} lines in one second; \
                         the rest of this second is dropped"
                    ));
                }
                _ => {}
            }
        }
        self.partial.clear();
    }
}
