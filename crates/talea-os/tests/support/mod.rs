//! What the kernel tests share. Copy it into another crate's tests as it is.
//!
//! Kernel tests change the machine for a moment: [`machine_lock`] keeps those of all crates from
//! meeting, and whatever they change is put back when a guard is dropped.
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

/// Returns from the test, saying so, when the machine lacks something. With
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

/// Whether we may set any thread's policy and become anybody.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Mounts debugfs where it is not mounted, to read the kernel's deadline books. Left mounted: other
/// tests may be reading.
pub fn mount_debugfs_for_tests() -> bool {
    let debug = Path::new("/sys/kernel/debug/sched/debug");
    if !debug.exists() {
        drop(Command::new("mount").args(["-t", "debugfs", "none", "/sys/kernel/debug"]).output());
    }
    std::fs::read(debug).is_ok()
}

/// Held while a test depends on machine-wide state: deadline books, cpusets, `ns_last_pid`.
pub fn machine_lock() -> File {
    let path = std::env::temp_dir().join("talea-kernel-tests.lock");
    let file =
        File::options().create(true).truncate(false).write(true).open(path).expect("a lock file");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("the lock");
    file
}

/// A directory that goes when the test ends.
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

/// A thread that sleeps until it is told to end, and runs small jobs in between.
pub struct Sleeper {
    pub tid: Tid,
    jobs: Option<mpsc::Sender<Box<dyn FnOnce() + Send>>>,
    handle: Option<JoinHandle<()>>,
}

impl Sleeper {
    pub fn start() -> Sleeper {
        let (jobs, inbox) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (tell, told) = mpsc::channel();
        let handle = std::thread::spawn(move || {
            tell.send(Tid::current()).expect("somebody who asked");
            while let Ok(job) = inbox.recv() {
                job();
            }
        });
        let tid = told.recv().expect("a thread number");
        let sleeper = Sleeper { tid, jobs: Some(jobs), handle: Some(handle) };
        sleeper.settle();
        sleeper
    }

    /// Runs `job` in the thread and returns what it returns.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        let job = Box::new(move || tell.send(job()).expect("somebody who asked"));
        self.jobs.as_ref().expect("a living thread").send(job).expect("a living thread");
        told.recv().expect("the job's result")
    }

    /// Returns when the thread is really asleep.
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
        // join returns when the thread has told so, a little before the kernel has forgotten its
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

/// CPUs that run now, as the kernel lists them.
pub fn online() -> CpuSet {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("the online CPUs");
    CpuSet::parse(&text).expect("a CPU list")
}

/// Whether the kernel gives this process a real-time policy at all.
pub fn may_be_realtime() -> bool {
    let sleeper = Sleeper::start();
    talea_os::sched::set(sleeper.tid, &Attr::grant(Policy::Fifo(1))).is_ok()
}
