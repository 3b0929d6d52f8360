//! Reload of the configuration on SIGHUP.
//!
//! Reading the file asks the user and group database, which may be a process that gets no CPU time
//! or a server that does not answer. So a thread of its own reads it, and the event loop gets the
//! result by an event. Reloads that overlap follow each other.

use crate::event_queue::EventQueue;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use talea_core::mutate;
use talea_core::setup::Setup;

/// Function that reads the configuration again; it logs errors itself.
pub type Reload = Box<dyn FnMut() -> Option<Setup> + Send>;

/// Reader of the configuration.
pub(super) struct Reloader {
    read: Arc<Mutex<Reload>>,
    setups: Arc<EventQueue<Setup>>,
}

impl Reloader {
    pub(super) fn new(read: Reload) -> io::Result<Reloader> {
        Ok(Reloader { read: Arc::new(Mutex::new(read)), setups: Arc::new(EventQueue::new()?) })
    }

    /// Returns the descriptor that is readable when [`Reloader::take`] has a setup.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.setups.as_fd()
    }

    /// Returns the setups that were read since the last call.
    pub(super) fn take(&self) -> Vec<Setup> {
        self.setups.take()
    }

    /// Starts a thread that reads the configuration.
    pub(super) fn begin(&self) -> io::Result<()> {
        let (read, setups) = (self.read.clone(), self.setups.clone());
        let reading = std::thread::Builder::new().name("talea-reload".to_owned());
        let reading = reading.spawn(move || {
            let setup = read.lock().unwrap_or_else(PoisonError::into_inner)();
            if let Some(setup) = setup {
                setups.push(setup);
            }
        })?;
        if mutate!("recovery-reload-waits", false, true) {
            let _ = reading.join();
        }
        Ok(())
    }
}
