//! Reload of the configuration on SIGHUP.
//!
//! Reading the file asks the user and group database, which may be a process that gets no CPU time
//! or a server that does not answer. So a thread of its own reads it, and the event loop gets the
//! result by an event. Reloads that overlap follow each other.

use super::Daemon;
use crate::event_queue::EventQueue;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use talea_broker::Input;
use talea_core::setup::Setup;
use talea_core::{Monotonic, mutate};

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

    /// Returns the descriptor that is readable when [`Daemon::on_reloaded`] has a setup.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.setups.as_fd()
    }

    /// Starts a thread that reads the configuration.
    fn begin(&self) -> io::Result<()> {
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

impl Daemon {
    /// Begins to read the configuration again.
    pub(super) fn begin_reload(&mut self) {
        if let Some(Err(error)) = self.reloader.as_ref().map(Reloader::begin) {
            self.log.error(format_args!(
                "the configuration is not reloaded: no thread can be started: {error}"
            ));
        }
    }

    /// Applies the configurations that were read.
    pub(super) fn on_reloaded(&mut self, now: Monotonic) {
        let Some(reloader) = &self.reloader else { return };
        for setup in reloader.setups.take() {
            let input = Input::Reloaded { setup: Box::new(setup) };
            mutate!("recovery-reload", self.handle_input(now, input), ());
            self.log.info("the configuration was reloaded");
            // A failed notification does not affect the service.
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        }
    }
}
