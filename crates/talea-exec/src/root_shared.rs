//! State that the threads of one root share without a lock.

use crate::mailbox::Mailbox;
use crate::run_clock::RunClock;
use crate::worker_slot::WorkerSlot;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};
use talea_core::CpuSet;
use talea_core::mutate;
use talea_os::Tid;
use talea_os::event_count::EventCount;
use talea_os::pi_mutex::PiMutex;
use talea_os::sched::{self, Attr, Policy};

/// Range of FIFO priorities of a run. A thread with a larger value runs first.
///
/// The dispatchers have `top`, programs the two priorities below (`ProgramLevel`), and workers
/// the next ones, one per preemption level where levels help. Workers that were preempted and must
/// not run have `bottom`. The watchdog and the stall monitors have `top + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// Lowest priority: 1 to 96.
    pub bottom: u8,
    /// Highest priority: `bottom + 2` to 98. Programs need `bottom + 4`.
    pub top: u8,
}

impl Default for Band {
    /// Returns the default band.
    ///
    /// The band is above threaded interrupts, which are FIFO 50. What depends on those interrupts
    /// (a disk, a network) waits while a run keeps its CPUs busy. The band is below the kernel's
    /// migration and watchdog threads. A run uses the band from the top, so a run with few
    /// preemption levels is also above the priorities that `talead` grants by default.
    fn default() -> Band {
        Band { bottom: 51, top: 93 }
    }
}

impl Band {
    /// Whether the bounds of the band are valid.
    pub fn is_valid(self) -> bool {
        self.bottom >= 1 && self.top <= 98 && self.bottom + 2 <= self.top
    }

    /// Whether there are priorities for programs, between dispatchers and workers.
    pub(crate) fn has_program_levels(self) -> bool {
        self.bottom + 4 <= self.top
    }
}

/// Size in bytes of the stack that steps and most jobs need: several pages.
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
    /// The run sets priorities at any time.
    Full,
    /// A rights provider has set each priority once ([`crate::rights`]).
    Fixed,
    /// The run has no real-time priorities.
    None,
}

/// Real-time level of all threads of a program. The stepping thread sets it when the state of the
/// program changes ([`mechanism::freeze`](crate::mechanism::freeze)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramLevel {
    /// Above a running program: the kernel runs a program that wakes at once.
    Idle,
    /// Below idle programs, above the idle detector and the workers.
    Running,
    /// Below all other real-time threads, for a thread that the kernel cannot freeze.
    Stopped,
}

impl ProgramLevel {
    /// All levels.
    pub(crate) const ALL: [ProgramLevel; 3] =
        [ProgramLevel::Idle, ProgramLevel::Running, ProgramLevel::Stopped];
}

/// Priority of each kind of thread in a band. Without priorities all threads are ordinary threads,
/// and a stop gate alone keeps a worker from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PriorityMap {
    band: Band,
    pub(crate) control: PriorityControl,
    has_programs: bool,
}

impl PriorityMap {
    /// Creates the map of a run with or without programs.
    pub(crate) fn new(band: Band, control: PriorityControl, has_programs: bool) -> PriorityMap {
        PriorityMap { band, control, has_programs }
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

    /// Sets the priority of a worker that waits for a device in a suspended job: above all workers
    /// where the band has room for that.
    pub(crate) fn set_waiting(self, tid: Tid) -> io::Result<()> {
        let unused = u8::from(!self.has_programs && self.band.has_program_levels());
        self.set(tid, self.top_worker_priority() + unused)
    }

    fn top_worker_priority(self) -> u8 {
        // A run without programs leaves one priority unused.
        let of_programs = if self.has_programs { 2 } else { 1 };
        self.band.top - 1 - if self.band.has_program_levels() { of_programs } else { 0 }
    }

    /// Returns the number of levels of workers, at least 1.
    pub(crate) fn worker_levels(self) -> u8 {
        self.top_worker_priority() - self.band.bottom
    }

    /// Returns the policy of the threads of a program. Only valid if the band has priorities for
    /// programs.
    ///
    /// Threads of one program share the CPU round robin. A stopped program has FIFO. A program
    /// cannot choose that policy, so the policy monitor never mistakes it for a choice of the
    /// program.
    pub(crate) fn program_policy(self, level: ProgramLevel) -> Policy {
        match level {
            ProgramLevel::Idle => Policy::Rr(self.band.top - 1),
            ProgramLevel::Running => Policy::Rr(self.band.top - 2),
            ProgramLevel::Stopped => Policy::Fifo(1),
        }
    }

    /// Returns the priority of the process that restores the system if the run dies.
    pub(crate) fn reaper_priority(self) -> u8 {
        self.band.top + 1
    }

    /// Sets the priority of a worker that was preempted and must not run.
    pub(crate) fn set_parked(self, tid: Tid) -> io::Result<()> {
        self.set(tid, mutate!("exec-ranks", self.band.bottom, self.band.top - 1))
    }
}

/// State of one CPU of a root that threads share.
#[derive(Debug)]
pub(crate) struct CpuShared {
    /// Number of the CPU in the kernel.
    pub(crate) number: u32,
    pub(crate) mailbox: Mailbox,
    pub(crate) idle_detector: IdleDetector,
}

/// Idle detector of a CPU.
#[derive(Debug, Default)]
pub(crate) struct IdleDetector {
    /// Number of times that a program was started or resumed on this CPU, as an event count that
    /// each start and each resumption notifies.
    pub(crate) epoch: EventCount,
    /// Value of `epoch` when the CPU was last found idle.
    pub(crate) idle_epoch: AtomicU32,
}

/// Shared state of one root.
#[derive(Debug)]
pub(crate) struct RootShared {
    /// `cpus[c]`: state of CPU `c` of the engine.
    pub(crate) cpus: Vec<CpuShared>,
    /// `slots[n]`: job assignment of the worker of task `n`.
    pub(crate) slots: Vec<WorkerSlot>,
    /// Thread numbers of the workers. Empty before the numbers are known, and after the workers
    /// were joined, because the kernel may then reuse the numbers.
    pub(crate) worker_tids: PiMutex<Vec<Tid>>,
    /// Whether the run is over: no job starts.
    pub(crate) is_over: AtomicBool,
    /// Whether Linux alone schedules the workers. Such workers take no orders, and leave by
    /// themselves.
    is_native: bool,
    /// CPUs for threads that have left their priority: a CPU that the run does not use, if the
    /// caller may use such a CPU.
    home_cpus: CpuSet,
    /// All roots of the run.
    pub(crate) all_roots: OnceLock<Vec<Weak<RootShared>>>,
    /// Number of the tree in force ([`RunControl::tree_in_force`](crate::RunControl)).
    pub(crate) tree_in_force: AtomicU64,
    /// Clock of the run, set at its start.
    pub(crate) clock: OnceLock<RunClock>,
}

impl RootShared {
    /// Creates the state for `tasks` tasks on these CPUs. Threads that leave their priority move to
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
            tree_in_force: AtomicU64::new(0),
            clock: OnceLock::new(),
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

    /// Cancels this root: the root's dispatchers clean up and leave.
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

    /// Makes a thread an ordinary thread, and unpins it.
    ///
    /// The thread keeps its flags, because a run may lack the right to change flags. It must be
    /// unpinned, because real-time threads of another program may occupy its CPU. They leave
    /// ordinary threads 50 ms of each second, in one piece.
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

    /// Releases all workers so that they end. Workers that a mechanism moved end as ordinary
    /// threads.
    ///
    /// Must be called when no mechanism is active. A second call does nothing. A worker scheduled
    /// by Linux keeps its policy, because it may sleep with a reservation. The kernel would not
    /// return the bandwidth of a reservation taken from a sleeping thread (docs/decisions/0003).
    pub(crate) fn release_workers(&self) {
        self.is_over.store(true, Ordering::Release);
        if !self.is_native {
            self.demote_workers();
        }
        for slot in &self.slots {
            slot.stop_gate.resume();
            slot.notify();
        }
        for cpu in &self.cpus {
            cpu.idle_detector.epoch.notify();
        }
    }
}
