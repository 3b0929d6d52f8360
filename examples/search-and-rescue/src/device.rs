//! An emulated accelerator: a thread that serves requests, and takes as long for each request as
//! the device would.
//!
//! A caller waits for its result and leaves its CPU idle. The thread computes on that CPU, with a
//! priority below the dispatchers only. The algorithms of the emulation are much faster than the
//! device, so that the thread sleeps for the rest of the time.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use talea_client::{Client, CpuSet, Grant, Notes, Spec};
use talea_os::Tid;
use talea_os::sched::{self, Attr, Policy};
use talea_runtime::Daemon;

type Request = Box<dyn FnOnce() + Send>;

/// Priority of the device's thread: above the workers of a run, which have 91 and less, and below
/// the dispatchers.
const PRIORITY: u8 = 92;

/// Time-out of requests to the daemon.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(2);

/// Requests real-time priority for the calling thread: by the right of the process, otherwise by
/// grants of the daemon. The thread keeps the priority until the returned grants are dropped.
/// `None` if the thread needs no grants, or gets none. Without real-time priority other threads
/// delay the device.
fn acquire_priority(cpus: &[u32]) -> Option<Vec<Grant>> {
    if sched::set(Tid::current(), &Attr::grant(Policy::Fifo(PRIORITY))).is_ok() {
        return None;
    }
    let client = Client::builder().timeout(DAEMON_TIMEOUT).connect().ok()?;
    // A grant is for one CPU, but this thread runs on the CPU of its caller. So each CPU is charged
    // with a grant, and the thread is attached to the first one.
    let spec = |&cpu: &u32| {
        Spec::builder().priority(Daemon::default().priority).only_cpus(CpuSet::single(cpu)).build()
    };
    let specs: Vec<Spec> = cpus.iter().map(spec).collect::<Result<_, _>>().ok()?;
    let grants = client.create_group(&specs).ok()?.ok()?;
    grants.first()?.attach_current().ok()?.ok()?;
    // Without common levels the priority is valid only on the CPU of the grant.
    let is_common = |grant: &Grant| {
        grant.granted().is_some_and(|granted| granted.notes.contains(Notes::COMMON_LEVELS))
    };
    if grants.iter().all(is_common) {
        let _ = sched::set_affinity(Tid::current(), &cpus.iter().copied().collect());
    }
    Some(grants)
}

/// An emulated device. The thread of the device ends when the device is dropped.
#[derive(Debug)]
pub struct Device {
    requests: Option<SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
}

/// Minimum length of a sleep. The device omits a shorter sleep, because the beginning and the end
/// of a sleep take as long.
const MIN_SLEEP: Duration = Duration::from_micros(20);

impl Device {
    /// Starts the device's thread, with real-time priority if the process has the right or the
    /// daemon grants the priority. `cpus` are the CPUs of the callers.
    pub fn start(cpus: &[u32]) -> Device {
        let (requests, receiver): (SyncSender<Request>, Receiver<Request>) = sync_channel(1);
        let cpus = cpus.to_vec();
        let serve = move || {
            let _grants = acquire_priority(&cpus);
            while let Ok(request) = receiver.recv() {
                request();
            }
        };
        let thread = std::thread::Builder::new().name("device".into()).spawn(serve);
        Device { requests: Some(requests), thread: Some(thread.expect("a thread")) }
    }

    /// Runs `work` on the device, which takes `time`, and waits for the result.
    ///
    /// # Panics
    /// Panics if `work` panics.
    pub fn call<T: Send + 'static>(
        &self,
        time: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (sender, receiver) = sync_channel(1);
        let start = Instant::now();
        let request = move || {
            // A panic drops the sender, and the caller panics.
            let Ok(result) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) else {
                return;
            };
            let rest = time.checked_sub(start.elapsed());
            if let Some(rest) = rest.filter(|rest| *rest > MIN_SLEEP) {
                std::thread::sleep(rest);
            }
            let _ = sender.send(result);
        };
        let requests = self.requests.as_ref().expect("present until the drop");
        requests.send(Box::new(request)).expect("the device's thread");
        receiver.recv().expect("the work has not panicked")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // The thread cannot panic, because it catches the panics of its requests.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_takes_the_stated_time_and_survives_a_panic_of_the_work() {
        let device = Device::start(&[0]);
        let start = Instant::now();
        assert_eq!(device.call(Duration::from_millis(5), || 6 * 7), 42);
        assert!(start.elapsed() >= Duration::from_millis(5));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            device.call(Duration::ZERO, || -> u32 { panic!("in the device") })
        }));
        assert!(panicked.is_err());
        assert_eq!(device.call(Duration::ZERO, || 1), 1);
    }
}
