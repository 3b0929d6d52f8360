//! Files that mirror the grants and the overruns of deadline threads.

use crate::log::Log;
use talea_broker::input::Errno;
use talea_os::statefile::{StateError, StateFile};
use talea_os::thread::dl_overruns::PersistGuard;

/// Open files of the state directory.
pub(super) struct StateMirror {
    // Dropped before `file`, whose lock the next daemon waits for.
    _overruns: PersistGuard,
    /// File with a record of each grant.
    pub(super) file: StateFile,
    /// Whether the file could not grow at the last attempt.
    is_full: bool,
}

impl StateMirror {
    pub(super) fn new(file: StateFile, overruns: PersistGuard) -> StateMirror {
        StateMirror { _overruns: overruns, file, is_full: false }
    }

    /// Returns the number of allocated slots.
    pub(super) fn slots(&self) -> u32 {
        u32::try_from(self.file.capacity()).unwrap_or(u32::MAX)
    }

    /// Allocates slots. Returns the error number of a failure, or 0. The first of several failures
    /// is logged.
    pub(super) fn reserve(&mut self, slots: u32, log: &Log) -> Errno {
        let grown = self.file.reserve(slots as usize);
        if let Err(error) = &grown
            && !self.is_full
        {
            log.error(format_args!(
                "the state file cannot grow: {error}; further tasks are refused"
            ));
        }
        self.is_full = grown.is_err();
        let errno = match grown {
            Err(StateError::Os { error, .. }) => error.raw_os_error(),
            Err(_) => Some(rustix::io::Errno::IO.raw_os_error()),
            Ok(()) => None,
        };
        Errno(errno.unwrap_or(0))
    }
}
