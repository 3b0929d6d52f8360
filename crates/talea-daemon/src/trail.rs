//! Audit trail on disk: records of the broker, written by a thread of its own.
//!
//! Model: the event loop adds records to a buffer in memory; the *recorder*, an ordinary thread,
//! takes all of them at once, formats them (`line`) and writes them (`store`). The event loop makes
//! no system call for a record, except to wake a recorder that sleeps: at most once per `PAUSE`.
//!
//! | state of the recorder | event | next state |
//! | --- | --- | --- |
//! | *sleeping* | a record arrives | *collecting*, woken by the event loop |
//! | *sleeping* | events are lost and `RETRY` has passed | *collecting* |
//! | *collecting* | `PAUSE` has passed, a record has arrived | *writing* |
//! | *collecting* | `PAUSE` has passed, no record has arrived | *sleeping* |
//! | *writing* | all records are written or lost | *collecting* |
//! | any | the daemon ends | *ended*, with all records written |
//!
//! Invariants.
//!
//! 1. The event loop never waits for the disk. The lock of the buffer has priority inheritance, and
//!    the recorder holds it only to exchange the buffer for an empty one.
//! 2. A record that finds the buffer full, or that cannot be written, is lost. The number of lost
//!    events is a record itself as soon as the disk accepts one.

pub mod line;
pub mod store;

use crate::log::Log;
use line::{Clocks, Lost};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use store::Store;
use talea_broker::AuditRecord;
use talea_core::mutate;
use talea_os::Tid;
use talea_os::pi_mutex::PiMutex;
use talea_os::sched::{self, Attr, Policy};

/// Maximum number of records in the buffer.
const MAX_RECORDS: usize = 4_096;
/// Time in which the recorder collects records before it writes them.
const PAUSE: Duration = Duration::from_millis(100);
/// Time after which lost records are reported again to a disk that did not accept the report.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum time that the end of the daemon waits for the recorder.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Place of the audit trail.
#[derive(Clone, Debug)]
pub struct TrailOptions {
    /// Directory of the files.
    pub directory: PathBuf,
    /// Maximum size of all files, in bytes.
    pub max_bytes: u64,
}

/// Audit trail of a daemon. Dropping it writes the remaining records.
#[derive(Debug)]
pub(crate) struct Trail {
    shared: Arc<Shared>,
    ended: Receiver<()>,
}

#[derive(Debug)]
struct Shared {
    buffer: PiMutex<Buffer>,
    /// Readable when the recorder has to wake up.
    event: OwnedFd,
}

#[derive(Debug)]
struct Buffer {
    records: Vec<AuditRecord>,
    lost: Lost,
    is_sleeping: bool,
    ends: bool,
}

impl Trail {
    /// Starts the recorder. A directory that cannot be used is reported in the log, and so is the
    /// first failure to write.
    pub(crate) fn start(options: TrailOptions, log: Log) -> io::Result<Trail> {
        let shared = Arc::new(Shared::new()?);
        let (end, ended) = channel();
        let of_thread = shared.clone();
        std::thread::Builder::new().name("talea-audit".to_owned()).spawn(move || {
            // The event loop may have its priority already.
            let _ = sched::set(Tid::current(), &Attr::plain(Policy::NORMAL));
            Recorder::new(options, log).run(&of_thread);
            let _ = end.send(());
        })?;
        Ok(Trail { shared, ended })
    }

    /// Adds records to the buffer; never waits for the disk.
    pub(crate) fn add(&self, records: impl Iterator<Item = AuditRecord>) {
        self.shared.add(records);
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        self.shared.buffer.lock().ends = true;
        self.shared.notify();
        // A disk that hangs must not keep the daemon from its end.
        let _ = self.ended.recv_timeout(END_TIMEOUT);
    }
}

impl Shared {
    fn new() -> io::Result<Shared> {
        let buffer = Buffer {
            records: Vec::with_capacity(MAX_RECORDS),
            lost: Lost::default(),
            is_sleeping: false,
            ends: false,
        };
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Shared { buffer: PiMutex::new(buffer), event })
    }

    fn add(&self, records: impl Iterator<Item = AuditRecord>) {
        let mut buffer = self.buffer.lock();
        for record in records {
            if mutate!("trail-buffer", buffer.records.len() < MAX_RECORDS, true) {
                buffer.records.push(record);
            } else {
                buffer.lost.add(record.count, record.first, record.last, 0);
            }
        }
        let wake = std::mem::take(&mut buffer.is_sleeping);
        drop(buffer);
        if wake {
            self.notify();
        }
    }

    fn notify(&self) {
        // A full counter is readable already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Waits until the event is readable, or for `timeout`.
    fn wait(&self, timeout: Option<Duration>) {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let _ = poll(&mut [PollFd::new(&self.event, PollFlags::IN)], timeout.as_ref());
    }

    fn clear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

/// State of the recorder.
#[derive(Debug)]
struct Recorder {
    options: TrailOptions,
    store: Option<Store>,
    lost: Lost,
    is_failing: bool,
    log: Log,
}

impl Recorder {
    fn new(options: TrailOptions, log: Log) -> Recorder {
        Recorder { options, store: None, lost: Lost::default(), is_failing: false, log }
    }

    fn run(&mut self, shared: &Shared) {
        let mut records = Vec::with_capacity(MAX_RECORDS);
        self.open();
        loop {
            let mut buffer = shared.buffer.lock();
            let ends = buffer.ends;
            std::mem::swap(&mut buffer.records, &mut records);
            let lost = std::mem::take(&mut buffer.lost);
            let is_idle = records.is_empty() && lost.count == 0;
            buffer.is_sleeping = is_idle && !ends;
            drop(buffer);
            self.lost.merge(&lost);
            self.write(&mut records);
            if ends {
                self.end();
                return;
            }
            if !is_idle {
                shared.wait(Some(PAUSE));
                continue;
            }
            shared.wait((self.lost.count > 0).then_some(RETRY));
            shared.clear();
            if !shared.buffer.lock().ends {
                shared.wait(Some(PAUSE));
            }
        }
    }

    /// Opens the directory and marks the start of the daemon.
    fn open(&mut self) {
        if self.store.is_some() {
            return;
        }
        match Store::open(&self.options.directory, self.options.max_bytes) {
            Ok(mut store) => {
                let clocks = Clocks::now();
                let started = store.has_started_before();
                let result = store.append_own(|seq| line::start(seq, &clocks, started));
                self.store = Some(store);
                self.note(result);
            }
            Err(error) => self.note(Err(error)),
        }
    }

    /// Logs the first error after a success.
    fn note(&mut self, result: io::Result<()>) {
        match result {
            Ok(()) => self.is_failing = false,
            Err(error) if !std::mem::replace(&mut self.is_failing, true) => {
                let directory = self.options.directory.display();
                self.log.error(format_args!(
                    "the audit trail in {directory} is not written: {error}; its losses are counted"
                ));
            }
            Err(_) => {}
        }
    }

    fn write(&mut self, records: &mut Vec<AuditRecord>) {
        if records.is_empty() && self.lost.count == 0 {
            return;
        }
        self.open();
        let clocks = Clocks::now();
        let mut result = Ok(());
        for record in records.drain(..) {
            let written = match &mut self.store {
                Some(store) => store.add(&record, &clocks),
                None => Err(io::Error::from(rustix::io::Errno::NOENT)),
            };
            if let Err(error) = written {
                let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
                self.lost.add(record.count, record.first, record.last, errno);
                result = Err(error);
            }
        }
        let Some(store) = &mut self.store else { return };
        for (events, error) in store.flush() {
            let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
            self.lost.add(events.count, events.first, events.last, errno);
            result = Err(error);
        }
        if self.lost.count > 0 {
            let lost = self.lost;
            let written = store.append_own(|seq| line::lost(seq, &clocks, &lost));
            if written.is_ok() {
                self.lost = Lost::default();
            }
            result = result.and(written);
        }
        self.note(result);
    }

    fn end(&mut self) {
        if let Some(store) = &mut self.store {
            let clocks = Clocks::now();
            // The next start reports an end without this record.
            let _ = store.append_own(|seq| line::stop(seq, &clocks));
        }
    }
}

#[cfg(test)]
mod tests;
