//! Helpers shared by the kernel tests. Copy this file into another crate's tests unchanged.
//!
//! Kernel tests change the machine temporarily: [`machine_lock`] serialises those of all crates,
//! and each change is undone when a guard is dropped.
#![allow(
    dead_code,
    unused_macros,
    unused_imports,
    unreachable_pub,
    reason = "each test file uses its part"
)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use talea_core::{CpuSet, Span, Work};
use talea_os::{Attr, Policy, Tid};

/// Returns from the test with a message if the machine lacks something. With
/// `TALEA_KERNEL_TESTS=required` that is a failure: a skip is not a pass.
macro_rules! needs {
    ($what:expr, $have:expr) => {
        if !$have {
            assert!(
                std::env::var_os("TALEA_KERNEL_TESTS").is_none_or(|v| v != "required"),
                "{} is missing",
                $what
            );
            eprintln!("skipped: needs {}", $what);
            return;
        }
    };
}
pub(crate) use needs;

/// Whether this process may set any thread's policy and become any user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Mounts debugfs where it is not mounted, to read the kernel's deadline bandwidth. It stays
/// mounted: other tests may be reading.
pub fn mount_debugfs_for_tests() -> bool {
    let debug = Path::new("/sys/kernel/debug/sched/debug");
    if !debug.exists() {
        drop(Command::new("mount").args(["-t", "debugfs", "none", "/sys/kernel/debug"]).output());
    }
    std::fs::read(debug).is_ok()
}

/// Returns a lock to hold while a test depends on machine-wide state: deadline bandwidth, cpusets,
/// `ns_last_pid`.
pub fn machine_lock() -> File {
    let path = std::env::temp_dir().join("talea-kernel-tests.lock");
    let file =
        File::options().create(true).truncate(false).write(true).open(path).expect("a lock file");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("the lock");
    file
}

/// Directory that is removed when the test ends.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("talea-os-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir(&path).expect("a scratch directory");
        Scratch(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Thread that sleeps until it must end, and runs small jobs in between.
pub struct Sleeper {
    pub tid: Tid,
    jobs: Option<mpsc::Sender<Box<dyn FnOnce() + Send>>>,
    handle: Option<JoinHandle<()>>,
}

impl Sleeper {
    pub fn start() -> Sleeper {
        let (jobs, inbox) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (send, received) = mpsc::channel();
        let handle = std::thread::spawn(move || {
            send.send(Tid::current()).expect("a receiver");
            while let Ok(job) = inbox.recv() {
                job();
            }
        });
        let tid = received.recv().expect("a thread number");
        let sleeper = Sleeper { tid, jobs: Some(jobs), handle: Some(handle) };
        sleeper.settle();
        sleeper
    }

    /// Runs `job` in the thread and returns its result.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (send, received) = mpsc::channel();
        let job = Box::new(move || send.send(job()).expect("a receiver"));
        self.jobs.as_ref().expect("a living thread").send(job).expect("a living thread");
        received.recv().expect("the job's result")
    }

    /// Waits until the thread is asleep.
    pub fn settle(&self) {
        wait_until("the thread sleeps", || {
            talea_os::proc::stat(self.tid).is_ok_and(|stat| stat.state == b'S')
        });
    }

    pub fn end(&mut self) {
        // A failed test must not leave a thread that the kernel does not run any more: it could
        // never end.
        drop(talea_os::sched::set(self.tid, &Attr::plain(Policy::NORMAL)));
        self.jobs = None;
        if let Some(handle) = self.handle.take() {
            handle.join().expect("an orderly end");
        }
        // join returns when the thread has reported its end, a little before the kernel frees its
        // number.
        let path = format!("/proc/self/task/{}", self.tid);
        wait_until("the thread is gone", || !Path::new(&path).exists());
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.end();
    }
}

/// Polls until `done`; fails after ten seconds, which no step here needs.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "waited in vain until {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub fn deadline(runtime_us: u64, period_us: u64) -> Policy {
    let period = Span::from_us(period_us).expect("a period");
    Policy::Deadline {
        runtime: Work::from_us(runtime_us).expect("a runtime"),
        deadline: period,
        period,
    }
}

/// Returns the CPUs that are online.
pub fn online() -> CpuSet {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("the online CPUs");
    CpuSet::parse(&text).expect("a CPU list")
}

/// Whether the kernel grants this process a real-time policy at all.
pub fn may_be_realtime() -> bool {
    let sleeper = Sleeper::start();
    talea_os::sched::set(sleeper.tid, &Attr::grant(Policy::Fifo(1))).is_ok()
}
