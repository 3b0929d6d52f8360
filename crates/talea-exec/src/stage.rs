//! What the threads of one root share without a lock.

use crate::mailbox::Mailbox;
use crate::work::Job;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};
use talea_core::mutate;
use talea_core::{CpuSet, Time, Work};
use talea_os::Tid;
use talea_os::bell::{Bell, Woken};
use talea_os::gate::Gate;
use talea_os::pilock::PiLock;
use talea_os::sched::{self, Attr, Policy};

/// The FIFO priorities of a run, larger first: the dispatchers have the top, programs the one below
/// it, workers the next ones, by their preemption levels where that helps, workers that were
/// stopped and must not get in the way the bottom. The watchdog and the monitors of holes stand one
/// above the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// 1 to 96.
    pub bottom: u8,
    /// `bottom + 2` to 98. Where it is not `bottom + 3` at least there are no programs.
    pub top: u8,
}

impl Default for Band {
    /// Above threaded interrupts, which are FIFO 50: what hangs on those (a disk, a network) waits
    /// while a run keeps its CPUs busy. Below the kernel's migration and watchdog threads. It is
    /// used from the top: with few preemption levels also above what `talead` hands out by default.
    fn default() -> Band {
        Band { bottom: 51, top: 93 }
    }
}

impl Band {
    /// Whether such a band can be had.
    pub fn is_sound(self) -> bool {
        self.bottom >= 1 && self.top <= 98 && self.bottom + 2 <= self.top
    }

    /// Whether there is a level for programs, between dispatchers and workers.
    pub(crate) fn is_roomy(self) -> bool {
        self.bottom + 3 <= self.top
    }
}

/// Of a thread's stack, what steps and most jobs need: several pages.
const STACK: usize = 1 << 14;

/// Touches what the calling thread will need of its own, so that no page is missing when it
/// matters; and its timers are not put off.
#[inline(never)]
pub(crate) fn warm_up() {
    talea_os::clock::wake_on_time();
    let mut stack = [0u8; STACK];
    std::hint::black_box(&mut stack);
}

/// What a run has of priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It moves them as it likes.
    Own,
    /// Somebody else gives each thread one, for good ([`crate::rights`]).
    Given,
    /// None.
    Nothing,
}

/// Who stands where in a band; or nowhere: then everybody is an ordinary thread, the kernel runs
/// whom it likes, and whoever may not run is held back by a gate alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranks {
    band: Band,
    pub(crate) hold: Hold,
}

impl Ranks {
    pub(crate) fn new(band: Band, hold: Hold) -> Ranks {
        Ranks { band, hold }
    }

    fn give(self, tid: Tid, priority: u8) -> io::Result<()> {
        if self.hold == Hold::Own {
            sched::set(tid, &Attr::grant(Policy::Fifo(priority)))
        } else {
            Ok(())
        }
    }

    pub(crate) fn watchdog(self, tid: Tid) -> io::Result<()> {
        self.give(tid, self.band.top + 1)
    }

    pub(crate) fn dispatcher(self, tid: Tid) -> io::Result<()> {
        self.give(tid, self.band.top)
    }

    /// Of a worker that may run, so many levels below the most urgent of them.
    pub(crate) fn raised(self, tid: Tid, grade: u8) -> io::Result<()> {
        self.give(tid, self.highest() - grade)
    }

    fn highest(self) -> u8 {
        self.band.top - 1 - u8::from(self.band.is_roomy())
    }

    /// How many such levels there are: 1 at least.
    pub(crate) fn grades(self) -> u8 {
        self.highest() - self.band.bottom
    }

    /// Of the threads of programs; only where the band has room for them.
    pub(crate) fn program(self) -> u8 {
        self.band.top - 1
    }

    /// Of who puts things back if the run dies.
    pub(crate) fn keeper(self) -> u8 {
        self.band.top + 1
    }

    /// Of a worker that was stopped.
    pub(crate) fn lowered(self, tid: Tid) -> io::Result<()> {
        self.give(tid, mutate!("exec-ranks", self.band.bottom, self.band.top - 1))
    }
}

/// A worker's side of the desk; on a cache line of its own, because its neighbours belong to other
/// CPUs.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Rings once for each job, and at the end of the run.
    go: Bell,
    number: AtomicU64,
    version: AtomicU32,
    cost: AtomicU64,
    /// Where it was last ordered to run: whose dispatcher it tells.
    pub(crate) cpu: AtomicU32,
    /// The next in the mailbox that it is in.
    pub(crate) next: AtomicU32,
    /// Jobs of its task that were asked for from outside and have not been read.
    pub(crate) asked: AtomicU32,
    pub(crate) gate: Gate,
    /// Of a program: it was idle and got the CPU.
    pub(crate) woke: AtomicBool,
}

impl Slot {
    /// A new job, for a worker that has none.
    ///
    /// Its worker takes it when it is awake; if it sleeps it has to be [called](Slot::call).
    pub(crate) fn give(&self, job: Job) {
        self.number.store(job.number, Ordering::Relaxed);
        self.version.store(job.version, Ordering::Relaxed);
        self.cost.store(job.cost.as_ns(), Ordering::Relaxed);
        // What stands above is seen by whoever hears it.
        self.go.count();
    }

    /// Wakes a worker that was given a job.
    pub(crate) fn call(&self) {
        self.go.rouse();
    }

    /// Something has changed for a worker that looks after itself.
    pub(crate) fn ring(&self) {
        self.go.ring();
    }

    /// Waits for the ring after so many, but until this time on the machine's clock at most.
    pub(crate) fn wait_until(&self, heard: u32, until: Time) -> Woken {
        self.go.wait(heard, until)
    }

    /// The job that was given last.
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
pub(crate) struct Managed {
    /// As the kernel counts.
    pub(crate) number: u32,
    pub(crate) mailbox: Mailbox,
    pub(crate) sentinel: Sentinel,
}

/// Whoever has a CPU that the program to which it belongs does not want.
#[derive(Debug, Default)]
pub(crate) struct Sentinel {
    /// Rings whenever a program is let go.
    pub(crate) bell: Bell,
    /// How often it had rung when the CPU was last found unwanted.
    pub(crate) quiet: AtomicU32,
}

/// Of one root.
#[derive(Debug)]
pub(crate) struct Stage {
    /// By CPU of the machine.
    pub(crate) cpus: Vec<Managed>,
    /// By task.
    pub(crate) slots: Vec<Slot>,
    /// Its workers, once they are known and until they have been waited for: then the numbers may
    /// be anybody's.
    pub(crate) workers: PiLock<Vec<Tid>>,
    /// The run is over: nobody begins anything.
    pub(crate) over: AtomicBool,
    /// No machine moves its workers: they look after themselves, and leave by themselves.
    is_native: bool,
    /// Where whoever has left its place goes: on a CPU that the run does not drive, if whoever
    /// asked for the run may be on one.
    home: CpuSet,
    /// The roots that run together, this one among them.
    pub(crate) crew: OnceLock<Vec<Weak<Stage>>>,
}

impl Stage {
    /// Of so many tasks on these CPUs; whoever leaves its place goes `home`.
    pub(crate) fn new(cpus: &[u32], tasks: usize, is_native: bool, home: &CpuSet) -> Stage {
        let manage = |&number: &u32| Managed {
            number,
            mailbox: Mailbox::new(tasks),
            sentinel: Sentinel::default(),
        };
        Stage {
            cpus: cpus.iter().map(manage).collect(),
            slots: (0..tasks).map(|_| Slot::default()).collect(),
            workers: PiLock::new(Vec::new()),
            over: AtomicBool::new(false),
            is_native,
            home: *home,
            crew: OnceLock::new(),
        }
    }

    /// Whether nobody gives orders to its workers.
    pub(crate) fn is_native(&self) -> bool {
        self.is_native
    }

    /// Something went wrong: all roots are called off.
    pub(crate) fn call_all_off(&self) {
        self.call_off();
        for stage in self.crew.get().into_iter().flatten().filter_map(Weak::upgrade) {
            stage.call_off();
        }
    }

    /// Says that the run of this root is over; dispatchers leave, and the last things are done by
    /// them.
    pub(crate) fn call_off(&self) {
        self.over.store(true, Ordering::Release);
        for cpu in &self.cpus {
            cpu.mailbox.bell.ring();
        }
    }

    /// Makes ordinary threads of all workers, wherever they stand.
    pub(crate) fn demote(&self) {
        for &tid in self.workers.lock().iter() {
            self.dismiss(tid);
        }
    }

    /// Makes an ordinary thread of one, with the flag that it has: to take that away needs a right
    /// that a run may do without. It is pinned no longer: another program's real-time threads may
    /// have its CPU, and leave an ordinary thread 50 ms of each second there, in one go.
    pub(crate) fn dismiss(&self, tid: Tid) {
        // It may have ended; then there is nothing to put back. Whoever stays a real-time thread
        // stays where it was let be one.
        let _: io::Result<()> = mutate!(
            "exec-leave-pinned",
            sched::set(tid, &Attr::grant(Policy::NORMAL))
                .and_then(|()| sched::set_affinity(tid, &self.home)),
            sched::set(tid, &Attr::grant(Policy::NORMAL)).and_then(|()| {
                let _ = &self.home;
                Ok(())
            })
        );
    }

    /// Lets all workers end; as ordinary threads, wherever they stand, where somebody else moved
    /// them. To be done when no mechanism does any more; a second time does no harm. One that looks
    /// after itself may be asleep with a reservation, which the kernel would never give back if it
    /// were taken from it (docs/decisions/0003).
    pub(crate) fn let_go(&self) {
        self.over.store(true, Ordering::Release);
        if !self.is_native {
            self.demote();
        }
        for slot in &self.slots {
            slot.gate.open();
            slot.go.ring();
        }
        for cpu in &self.cpus {
            cpu.sentinel.bell.ring();
        }
    }
}
