//! Worker of a root that Linux schedules: it runs its jobs at their releases, without orders.

use super::MAX_DL_PERIOD;
use super::queue::{JobQueue, PendingJob};
use super::report::JobRecord;
use crate::mailbox::Batch;
use crate::root_shared::{self, RootShared};
use crate::run_clock::RunClock;
use crate::work::{Job, JobBody};
use crate::worker_slot::WorkerSlot;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use talea_core::engine::{Event, TaskId};
use talea_core::mutate;
use talea_core::{CpuSet, Span, Time, Work};
use talea_os::event_count::Woken;
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, clock as os_clock};

/// Jobs that a worker recorded.
#[derive(Debug, Default)]
pub(crate) struct JobLog {
    pub(crate) jobs: Vec<JobRecord>,
    /// Number of jobs without room in the log.
    pub(crate) lost: u64,
    /// CPU time that the worker consumed in total; `ordered` is the part for jobs.
    pub(crate) total: Work,
    pub(crate) ordered: Work,
    /// Refused arrivals, up to the room for them.
    pub(crate) refused_arrivals: Vec<crate::load::Arrival>,
    /// Number of refused arrivals.
    pub(crate) refusals: u64,
}

impl JobLog {
    /// Creates a log for `room` jobs. Writes the memory once, so that no page fault occurs in the
    /// run.
    pub(crate) fn new(room: usize) -> JobLog {
        let mut jobs = vec![JobRecord::default(); room];
        jobs.clear();
        JobLog { jobs, ..JobLog::default() }
    }

    fn push(&mut self, record: JobRecord) {
        if self.jobs.len() == self.jobs.capacity() {
            self.lost += 1;
        } else {
            self.jobs.push(record);
        }
    }
}

/// Pins the calling thread to `cpu` and sets its policy.
pub(crate) fn enter(cpu: u32, policy: Policy) -> io::Result<Tid> {
    let tid = Tid::current();
    sched::set_affinity(tid, &CpuSet::single(cpu))?;
    root_shared::prepare_thread();
    set_policy_when_free(policy).map(|()| tid)
}

/// Sets the policy of the calling thread.
///
/// The kernel returns the bandwidth of an earlier run's reservation up to a period after the end of
/// the reservation. The function waits for that.
pub(crate) fn set_policy_when_free(policy: Policy) -> io::Result<()> {
    let give_up_at = os_clock::now() + MAX_DL_PERIOD;
    loop {
        match sched::set(Tid::current(), &Attr::grant(policy)) {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && os_clock::now() < give_up_at =>
            {
                os_clock::sleep_until(os_clock::now() + RETRY_PERIOD);
            }
            set => return set,
        }
    }
}

/// Period of the attempts.
const RETRY_PERIOD: Span = Span::from_ns(5_000_000);

/// Guard that cancels the run if its worker panics.
struct PanicGuard<'a>(&'a RootShared);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel_all();
        }
    }
}

/// Shutdown of a root before the end of the run: no job arrives, arrived jobs complete, and the
/// last worker reports the end.
#[derive(Debug)]
pub(crate) struct Shutdown {
    /// Run time from which no job arrives; [`Time::NEVER`] without a shutdown.
    since_ns: AtomicU64,
    /// Number of workers that have not left.
    active_workers: AtomicU32,
}

impl Shutdown {
    /// Creates the state for `workers` workers.
    pub(crate) fn new(workers: usize) -> Shutdown {
        Shutdown {
            since_ns: AtomicU64::new(u64::MAX),
            active_workers: AtomicU32::new(workers as u32),
        }
    }

    fn since(&self) -> Time {
        Time::from_ns(self.since_ns.load(Ordering::Acquire))
    }

    fn is_done(&self) -> bool {
        self.since() != Time::NEVER && self.active_workers.load(Ordering::Acquire) == 0
    }
}

/// Reason why a worker does not run its next job.
enum ExitReason {
    /// The run is over.
    Over,
    /// The job does not arrive, because a shutdown precedes it.
    Shutdown,
}

/// Sleeps until a job of the calling worker may run, by CLOCK_MONOTONIC, because run time stands
/// still before the run begins. There is no other wake-up, because a wake-up would cost a
/// reservation its budget.
fn wait_until_ready(
    shared: &RootShared,
    task: TaskId,
    shutdown: &Shutdown,
    job: &PendingJob,
    clock: RunClock,
) -> Result<(), ExitReason> {
    let at = clock.to_monotonic(job.ready());
    // A shutdown notifies, and so does the end of the run.
    for key in 0.. {
        if shared.is_over.load(Ordering::Acquire) {
            return Err(ExitReason::Over);
        } else if job.arrival.observed >= shutdown.since() {
            return Err(ExitReason::Shutdown);
        } else if os_clock::now() >= at
            || shared.slots[task.0 as usize].wait_until(key, at) == Woken::TimedOut
        {
            return Ok(());
        }
    }
    Ok(())
}

/// Runs a worker from the start of the run to its end. `started` yields the start.
pub(crate) fn run(
    task: TaskId,
    (shared, shutdown): (&RootShared, &Shutdown),
    mut queue: JobQueue,
    mut log: JobLog,
    mut body: JobBody<'_>,
    started: &Receiver<RunClock>,
) -> JobLog {
    let _guard = PanicGuard(shared);
    let Ok(clock) = started.recv() else { return log };
    let is_over = || shared.is_over.load(Ordering::Acquire);
    let before = os_clock::thread_cpu_time();
    // A reservation would lose the rest of its budget until the next period.
    let yields = !sched::get(Tid::current()).is_ok_and(|attr| attr.policy.is_deadline());
    while let Some(job) = queue.next() {
        let ready = job.ready();
        let mut record = JobRecord::of(&job);
        if ready >= clock.until {
            log.push(record);
            break;
        }
        let outcome = wait_until_ready(shared, task, shutdown, &job, clock);
        if let Err(ExitReason::Shutdown) = outcome {
            break;
        }
        let begin = clock.now();
        if outcome.is_err() || is_over() || begin >= clock.until {
            log.push(record);
            break;
        }
        let used = os_clock::thread_cpu_time();
        let cost = queue.cursor.cost(0);
        body(&Job::new(job.number, 0, cost), &shared.is_over);
        record.cpu_time = os_clock::thread_cpu_time().checked_sub(used).unwrap_or(Work::ZERO);
        log.ordered += record.cpu_time;
        let end = clock.now();
        record.begin = Some(begin);
        // A completion after the end does not belong to the run.
        if is_over() || end >= clock.until {
            log.push(record);
            break;
        }
        record.end = Some(end);
        log.push(record);
        queue.admit_until(end.min(shutdown.since()));
        if yields && queue.pending().next().is_some_and(|next| next.ready() <= end) {
            // Behind the other threads of the same level, which have waited.
            std::thread::yield_now();
        }
    }
    queue.admit_until(clock.now().min(clock.until).min(shutdown.since()));
    for job in queue.pending() {
        log.push(JobRecord::of(job));
    }
    log.total = os_clock::thread_cpu_time().checked_sub(before).unwrap_or(Work::ZERO);
    (log.refused_arrivals, log.refusals) = (queue.refused, queue.refusals);
    shutdown.active_workers.fetch_sub(1, Ordering::AcqRel);
    shared.cpus[0].mailbox.event_count.notify();
    log
}

/// Sleeps until the run is over, then ends it. A worker in a job does not read the clock, so this
/// thread does.
pub(crate) fn wait_for_end(shared: &RootShared, shutdown: &Shutdown, clock: RunClock) -> Time {
    let mailbox = &shared.cpus[0].mailbox;
    let mut batch = Batch::new(shared.slots.len());
    let mut key = 0;
    while !shared.is_over.load(Ordering::Acquire)
        && clock.now() < clock.until
        && !shutdown.is_done()
    {
        mailbox.event_count.wait(key, clock.to_monotonic(clock.until));
        key = mailbox.event_count.key();
        mailbox.drain(&shared.slots, &mut batch);
        if batch.events.contains(&Event::Stopped) && shutdown.since() == Time::NEVER {
            shutdown.since_ns.store(clock.now().as_ns(), Ordering::Release);
            mutate!(
                "exec-native-stop",
                shared.slots.iter().for_each(WorkerSlot::notify),
                shared.slots.iter().take(0).for_each(WorkerSlot::notify)
            );
        }
        batch.clear();
    }
    shared.release_workers();
    clock.now().min(clock.until)
}
