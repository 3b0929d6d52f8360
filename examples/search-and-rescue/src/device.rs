//! An accelerator, emulated: a thread that does what it is given, and is busy with it for as long
//! as the device would be.
//!
//! Whoever calls waits. While it does, its CPU is free: there the emulation computes, below nobody
//! but the scheduler's own threads. It is by far quicker than the device that it plays, because its
//! algorithms are; the rest of the time it sleeps.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use talea_client::{Client, CpuSet, Grant, Notes, Spec};
use talea_os::Tid;
use talea_os::sched::{self, Attr, Policy};
use talea_runtime::Daemon;

type Work = Box<dyn FnOnce() + Send>;

/// Above the workers of a run, which stand from 91 down: on the CPU of one that waits, nobody but a
/// dispatcher comes before it.
const PRIORITY: u8 = 92;

/// A daemon that does not answer by then is none.
const PATIENCE: Duration = Duration::from_secs(2);

/// The priority that the runtime's workers have, for the calling thread: by its own right, or else
/// by the daemon's, as long as what is returned is kept. Without either the device is as slow as
/// whoever runs before it lets it be.
fn rise(cpus: &[u32]) -> Option<Vec<Grant>> {
    if sched::set(Tid::current(), &Attr::grant(Policy::Fifo(PRIORITY))).is_ok() {
        return None;
    }
    let client = Client::builder().timeout(PATIENCE).connect().ok()?;
    // A grant is for one CPU, and this thread is wherever somebody waits for it: the others stand
    // in for it there.
    let spec = |&cpu: &u32| {
        Spec::builder().priority(Daemon::default().priority).only_cpus(CpuSet::single(cpu)).build()
    };
    let specs: Vec<Spec> = cpus.iter().map(spec).collect::<Result<_, _>>().ok()?;
    let grants = client.create_group(&specs).ok()?.ok()?;
    grants.first()?.attach_current().ok()?.ok()?;
    // Where each CPU has levels of its own it stays on its own.
    let is_common = |grant: &Grant| {
        grant.granted().is_some_and(|granted| granted.notes.contains(Notes::COMMON_LEVELS))
    };
    if grants.iter().all(is_common) {
        let _ = sched::set_affinity(Tid::current(), &cpus.iter().copied().collect());
    }
    Some(grants)
}

/// A device; dropping it ends its thread.
#[derive(Debug)]
pub struct Device {
    works: Option<SyncSender<Work>>,
    thread: Option<JoinHandle<()>>,
}

/// What is left of a wait that is shorter than this is spun: a sleep would take as long to begin
/// and end.
const SPUN: Duration = Duration::from_micros(20);

impl Device {
    /// Starts its thread, at real-time priority if that is allowed, or granted on `cpus`, where its
    /// callers run.
    pub fn start(cpus: &[u32]) -> Device {
        let (works, given): (SyncSender<Work>, Receiver<Work>) = sync_channel(1);
        let cpus = cpus.to_vec();
        let serve = move || {
            let _granted = rise(&cpus);
            while let Ok(work) = given.recv() {
                work();
            }
        };
        let thread = std::thread::Builder::new().name("device".into()).spawn(serve);
        Device { works: Some(works), thread: Some(thread.expect("a thread")) }
    }

    /// Has the device do `work`, which takes it `time`, and waits for the result.
    ///
    /// # Panics
    /// If the work does.
    pub fn call<T: Send + 'static>(
        &self,
        time: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (done, answer) = sync_channel(1);
        let began = Instant::now();
        let work = move || {
            // A caller that has panicked meanwhile waits for nothing.
            let Ok(result) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) else {
                return;
            };
            if let Some(left) = time.checked_sub(began.elapsed()).filter(|left| *left > SPUN) {
                std::thread::sleep(left);
            }
            let _ = done.send(result);
        };
        self.works
            .as_ref()
            .expect("until it is dropped")
            .send(Box::new(work))
            .expect("the device's thread");
        answer.recv().expect("the device's work has not panicked")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.works = None;
        if let Some(thread) = self.thread.take() {
            // It catches the panics of its works.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_one_thing_after_the_other_takes_its_time_and_survives_what_panics() {
        let device = Device::start(&[0]);
        let began = Instant::now();
        assert_eq!(device.call(Duration::from_millis(5), || 6 * 7), 42);
        assert!(began.elapsed() >= Duration::from_millis(5));
        let fell = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            device.call(Duration::ZERO, || -> u32 { panic!("in the device") })
        }));
        assert!(fell.is_err());
        assert_eq!(device.call(Duration::ZERO, || 1), 1);
    }
}
