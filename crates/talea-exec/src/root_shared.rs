//! State that the threads of one root share without a lock.

use crate::mailbox::Mailbox;
use crate::work::Job;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};
use talea_core::mutate;
use talea_core::{CpuSet, Monotonic, Work};
use talea_os::Tid;
use talea_os::event_count::{EventCount, Woken};
use talea_os::pi_mutex::PiMutex;
use talea_os::sched::{self, Attr, Policy};
use talea_os::signal_stop::StopGate;

/// FIFO priorities of a run, larger values first.
///
/// The dispatchers have `top`, programs the priority below it, and workers the next ones, by their
/// preemption levels where that helps. Workers that were preempted and must not run have `bottom`.
/// The watchdog and the stall monitors stand one above `top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// Lowest priority: 1 to 96.
    pub bottom: u8,
    /// Highest priority: `bottom + 2` to 98. Below `bottom + 3` there is no priority for programs.
    pub top: u8,
}

impl Default for Band {
    /// Returns the default band.
    ///
    /// It is above threaded interrupts, which are FIFO 50: what needs those (a disk, a network)
    /// waits while a run keeps its CPUs busy. It is below the kernel's migration and watchdog
    /// threads. It is used from the top: with few preemption levels also above the priorities that
    /// `talead` grants by default.
    fn default() -> Band {
        Band { bottom: 51, top: 93 }
    }
}

impl Band {
    /// Whether the bounds are valid.
    pub fn is_valid(self) -> bool {
        self.bottom >= 1 && self.top <= 98 && self.bottom + 2 <= self.top
    }

    /// Whether there is a priority for programs, between dispatchers and workers.
    pub(crate) fn has_program_level(self) -> bool {
        self.bottom + 3 <= self.top
    }
}

/// Stack that steps and most jobs need: several pages.
const STACK_SIZE: usize = 1 << 14;

/// Prefaults the stack of the calling thread, and sets its timer slack to the minimum.
#[inline(never)]
pub(crate) fn prepare_thread() {
    talea_os::clock::set_timer_slack_min();
    let mut stack = [0u8; STACK_SIZE];
    std::hint::black_box(&mut stack);
}

/// Control that a run has over the priorities of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PriorityControl {
    /// It sets them at any time.
    Full,
    /// A rights provider has set each of them once ([`crate::rights`]).
    Fixed,
    /// There are none.
    None,
}

/// Priority of each kind of thread in a band. Without priorities all threads are ordinary ones, and
/// a stop gate alone keeps a worker from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PriorityMap {
    band: Band,
    pub(crate) control: PriorityControl,
}

impl PriorityMap {
    pub(crate) fn new(band: Band, control: PriorityControl) -> PriorityMap {
        PriorityMap { band, control }
    }

    fn set(self, tid: Tid, priority: u8) -> io::Result<()> {
        if self.control == PriorityControl::Full {
            sched::set(tid, &Attr::grant(Policy::Fifo(priority)))
        } else {
            Ok(())
        }
    }

    pub(crate) fn set_watchdog(self, tid: Tid) -> io::Result<()> {
        self.set(tid, self.band.top + 1)
    }

    pub(crate) fn set_dispatcher(self, tid: Tid) -> io::Result<()> {
        self.set(tid, self.band.top)
    }

    /// Sets the priority of a worker that may run; level 0 is the highest.
    pub(crate) fn set_runnable(self, tid: Tid, level: u8) -> io::Result<()> {
        self.set(tid, self.top_worker_priority() - level)
    }

    fn top_worker_priority(self) -> u8 {
        self.band.top - 1 - u8::from(self.band.has_program_level())
    }

    /// Number of levels of workers: at least 1.
    pub(crate) fn worker_levels(self) -> u8 {
        self.top_worker_priority() - self.band.bottom
    }

    /// Priority of the threads of programs; only if the band has one.
    pub(crate) fn program_priority(self) -> u8 {
        self.band.top - 1
    }

    /// Priority of the process that restores the system if the run dies.
    pub(crate) fn reaper_priority(self) -> u8 {
        self.band.top + 1
    }

    /// Sets the priority of a worker that was preempted and must not run.
    pub(crate) fn set_parked(self, tid: Tid) -> io::Result<()> {
        self.set(tid, mutate!("exec-ranks", self.band.bottom, self.band.top - 1))
    }
}

/// Job assignment of a worker, on a cache line of its own because its neighbours belong to other
/// CPUs.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct WorkerSlot {
    /// Notified once for each job, and at the end of the run.
    job_ready: EventCount,
    number: AtomicU64,
    version: AtomicU32,
    cost: AtomicU64,
    /// CPU where the worker was last dispatched: it reports to the dispatcher of that CPU.
    pub(crate) cpu: AtomicU32,
    /// Next element in the mailbox that contains this one.
    pub(crate) next: AtomicU32,
    /// Activations of the task from outside that have not been read.
    pub(crate) activations: AtomicU32,
    pub(crate) stop_gate: StopGate,
    /// Whether the program was idle and got the CPU.
    pub(crate) has_woken: AtomicBool,
}

impl WorkerSlot {
    /// Assigns a job to a worker that has none.
    ///
    /// An awake worker takes it; a sleeping one has to be [woken](WorkerSlot::wake).
    pub(crate) fn assign(&self, job: Job) {
        self.number.store(job.number, Ordering::Relaxed);
        self.version.store(job.version, Ordering::Relaxed);
        self.cost.store(job.cost.as_ns(), Ordering::Relaxed);
        // Publishes the stores above.
        self.job_ready.increment();
    }

    /// Wakes a worker to which a job was assigned.
    pub(crate) fn wake(&self) {
        self.job_ready.wake();
    }

    /// Notifies a worker that takes no orders.
    pub(crate) fn notify(&self) {
        self.job_ready.notify();
    }

    /// Waits until the event count differs from `key`, but at most until `until`.
    pub(crate) fn wait_until(&self, key: u32, until: Monotonic) -> Woken {
        self.job_ready.wait(key, until)
    }

    /// Returns the last assigned job.
    pub(crate) fn job(&self) -> Job {
        Job {
            number: self.number.load(Ordering::Relaxed),
            version: self.version.load(Ordering::Relaxed),
            cost: Work::from_ns(self.cost.load(Ordering::Relaxed)),
        }
    }
}

/// A CPU of a root.
#[derive(Debug)]
pub(crate) struct CpuShared {
    /// Number of the CPU in the kernel.
    pub(crate) number: u32,
    pub(crate) mailbox: Mailbox,
    pub(crate) idle_detector: IdleDetector,
}

/// Detector of a CPU that its program does not want.
#[derive(Debug, Default)]
pub(crate) struct IdleDetector {
    /// Number of times that a program was started or resumed on this CPU; notified at each.
    pub(crate) epoch: EventCount,
    /// Value of `epoch` when the CPU was last found idle.
    pub(crate) idle_epoch: AtomicU32,
}

/// Shared state of one root.
#[derive(Debug)]
pub(crate) struct RootShared {
    /// CPUs, by CPU of the engine.
    pub(crate) cpus: Vec<CpuShared>,
    /// Job assignments, by task.
    pub(crate) slots: Vec<WorkerSlot>,
    /// Thread ids of the workers, once they are known and until they were joined; after that the
    /// ids may be reused.
    pub(crate) worker_tids: PiMutex<Vec<Tid>>,
    /// Whether the run is over: no job starts.
    pub(crate) is_over: AtomicBool,
    /// Whether Linux alone schedules the workers: they take no orders, and leave by themselves.
    is_native: bool,
    /// CPUs for threads that have left their priority: a CPU that the run does not use, if the
    /// caller may use one.
    home_cpus: CpuSet,
    /// All roots of the run.
    pub(crate) all_roots: OnceLock<Vec<Weak<RootShared>>>,
}

impl RootShared {
    /// Creates the state for `tasks` tasks on these CPUs; threads that leave their priority go to
    /// `home`.
    pub(crate) fn new(cpus: &[u32], tasks: usize, is_native: bool, home: &CpuSet) -> RootShared {
        let manage = |&number: &u32| CpuShared {
            number,
            mailbox: Mailbox::new(tasks),
            idle_detector: IdleDetector::default(),
        };
        RootShared {
            cpus: cpus.iter().map(manage).collect(),
            slots: (0..tasks).map(|_| WorkerSlot::default()).collect(),
            worker_tids: PiMutex::new(Vec::new()),
            is_over: AtomicBool::new(false),
            is_native,
            home_cpus: *home,
            all_roots: OnceLock::new(),
        }
    }

    /// Whether Linux alone schedules the workers.
    pub(crate) fn is_native(&self) -> bool {
        self.is_native
    }

    /// Cancels all roots of the run, after a failure.
    pub(crate) fn cancel_all(&self) {
        self.cancel();
        for shared in self.all_roots.get().into_iter().flatten().filter_map(Weak::upgrade) {
            shared.cancel();
        }
    }

    /// Cancels this root: its dispatchers leave, and clean up.
    pub(crate) fn cancel(&self) {
        self.is_over.store(true, Ordering::Release);
        for cpu in &self.cpus {
            cpu.mailbox.event_count.notify();
        }
    }

    /// Makes all workers ordinary threads.
    pub(crate) fn demote_workers(&self) {
        for &tid in self.worker_tids.lock().iter() {
            self.demote_thread(tid);
        }
    }

    /// Makes a thread an ordinary one, and unpins it.
    ///
    /// It keeps its flags: a run need not have the right to change them. Unpinned, because
    /// real-time threads of another program may have its CPU and leave ordinary threads 50 ms of
    /// each second there, in one piece.
    pub(crate) fn demote_thread(&self, tid: Tid) {
        // The thread may have ended; then there is nothing to restore. A thread that stays
        // real-time stays where it is.
        let _: io::Result<()> = mutate!(
            "exec-leave-pinned",
            sched::set(tid, &Attr::grant(Policy::NORMAL))
                .and_then(|()| sched::set_affinity(tid, &self.home_cpus)),
            sched::set(tid, &Attr::grant(Policy::NORMAL)).and_then(|()| {
                let _ = &self.home_cpus;
                Ok(())
            })
        );
    }

    /// Releases all workers so that they end, as ordinary threads where a mechanism moved them.
    ///
    /// To be called when no mechanism is active; a second call does nothing. A worker scheduled by
    /// Linux keeps its policy, because it may sleep with a reservation. The kernel would not return
    /// the bandwidth of a reservation taken from a sleeping thread (docs/decisions/0003).
    pub(crate) fn release_workers(&self) {
        self.is_over.store(true, Ordering::Release);
        if !self.is_native {
            self.demote_workers();
        }
        for slot in &self.slots {
            slot.stop_gate.resume();
            slot.job_ready.notify();
        }
        for cpu in &self.cpus {
            cpu.idle_detector.epoch.notify();
        }
    }
}
