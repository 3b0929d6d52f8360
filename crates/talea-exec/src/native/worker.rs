//! A thread that does the jobs of one task when they come, and asks nobody.

use super::LONGEST_PERIOD;
use super::course::Life;
use super::queue::{Come, Queue};
use crate::dispatcher::Timeline;
use crate::mailbox::Mail;
use crate::stage::{self, Slot, Stage};
use crate::work::{Body, Job};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use talea_core::machine::{Event, TaskId};
use talea_core::mutate;
use talea_core::{CpuSet, Span, Time, Work};
use talea_os::bell::Woken;
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, clock};

/// What a worker knows when it leaves.
#[derive(Debug, Default)]
pub(crate) struct Diary {
    pub(crate) lives: Vec<Life>,
    /// Jobs for which there was no room in here.
    pub(crate) lost: u64,
    /// What it has used in all, and for jobs.
    pub(crate) total: Work,
    pub(crate) ordered: Work,
    /// Jobs that were refused, as far as there was room for them.
    pub(crate) refused: Vec<crate::load::Arrival>,
    /// How many there were.
    pub(crate) refusals: u64,
}

impl Diary {
    /// For so many jobs; written once, so that no page is missing when it matters.
    pub(crate) fn new(room: usize) -> Diary {
        let mut lives = vec![Life::default(); room];
        lives.clear();
        Diary { lives, ..Diary::default() }
    }

    fn put(&mut self, life: Life) {
        if self.lives.len() == self.lives.capacity() {
            self.lost += 1;
        } else {
            self.lives.push(life);
        }
    }
}

/// Puts the calling thread on its CPU and gives it what its schedule is made of.
pub(crate) fn enter(cpu: u32, stand: Policy) -> io::Result<Tid> {
    let tid = Tid::current();
    sched::set_affinity(tid, &CpuSet::single(cpu))?;
    stage::warm_up();
    claim(stand).map(|()| tid)
}

/// Gives the calling thread a policy. What a run before this one had reserved the kernel gives back
/// up to a period after its end: that is waited for.
pub(crate) fn claim(stand: Policy) -> io::Result<()> {
    let patience = clock::now() + LONGEST_PERIOD;
    loop {
        match sched::set(Tid::current(), &Attr::grant(stand)) {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && clock::now() < patience =>
            {
                clock::sleep_until(clock::now() + LOOK);
            }
            set => return set,
        }
    }
}

/// Between two tries.
const LOOK: Span = Span::from_ns(5_000_000);

/// Calls the run off if its worker panics.
struct Fallen<'a>(&'a Stage);

impl Drop for Fallen<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.call_all_off();
        }
    }
}

/// How a root ends before its time: nobody comes any more, what has come is done, and whoever is
/// last says so.
#[derive(Debug)]
pub(crate) struct Closing {
    /// From when on, on the time line; the end of all time as long as it is open.
    from: AtomicU64,
    /// Workers that have not left.
    present: AtomicU32,
}

impl Closing {
    /// For so many workers.
    pub(crate) fn new(workers: usize) -> Closing {
        Closing { from: AtomicU64::new(u64::MAX), present: AtomicU32::new(workers as u32) }
    }

    fn from(&self) -> Time {
        Time::from_ns(self.from.load(Ordering::Acquire))
    }

    fn is_done(&self) -> bool {
        self.from() != Time::NEVER && self.present.load(Ordering::Acquire) == 0
    }
}

/// Why a worker does not do its next job.
enum Leave {
    /// The run is over.
    Over,
    /// It has not come, and does not come any more.
    Closed,
}

/// Sleeps until a job of the calling worker may run. By the machine's clock: before its zero the
/// time line stands. There is no wake but for a job: it would cost a reservation its budget.
fn await_turn(
    stage: &Stage,
    task: TaskId,
    closing: &Closing,
    come: &Come,
    time: Timeline,
) -> Result<(), Leave> {
    let at = time.of_machine(come.ready());
    // The close of the root rings, and the end of the run.
    for heard in 0.. {
        if stage.over.load(Ordering::Acquire) {
            return Err(Leave::Over);
        } else if come.arrival.seen >= closing.from() {
            return Err(Leave::Closed);
        } else if clock::now() >= at
            || stage.slots[task.0 as usize].wait_until(heard, at) == Woken::Due
        {
            return Ok(());
        }
    }
    Ok(())
}

/// From the zero of the time line, which comes from `started`, to the end of the run.
pub(crate) fn live(
    task: TaskId,
    (stage, closing): (&Stage, &Closing),
    mut queue: Queue,
    mut diary: Diary,
    mut body: Body<'_>,
    started: &Receiver<Timeline>,
) -> Diary {
    let _fallen = Fallen(stage);
    let Ok(time) = started.recv() else { return diary };
    let is_over = || stage.over.load(Ordering::Acquire);
    let before = clock::thread_cpu_time();
    // Of a reservation that would be all there is of it until the next period.
    let yields = !sched::get(Tid::current()).is_ok_and(|attr| attr.policy.is_deadline());
    while let Some(come) = queue.next() {
        let ready = come.ready();
        let mut life = Life::of(&come);
        if ready >= time.until {
            diary.put(life);
            break;
        }
        let turn = await_turn(stage, task, closing, &come, time);
        if let Err(Leave::Closed) = turn {
            break;
        }
        let begin = time.now();
        if turn.is_err() || is_over() || begin >= time.until {
            diary.put(life);
            break;
        }
        let used = clock::thread_cpu_time();
        let cost = queue.cursor.cost(0);
        body(&Job { number: come.number, version: 0, cost }, &stage.over);
        life.used = clock::thread_cpu_time().checked_sub(used).unwrap_or(Work::ZERO);
        diary.ordered += life.used;
        let end = time.now();
        life.begin = Some(begin);
        // What ends after the run is not of the run.
        if is_over() || end >= time.until {
            diary.put(life);
            break;
        }
        life.end = Some(end);
        diary.put(life);
        queue.come_until(end.min(closing.from()));
        if yields && queue.left().next().is_some_and(|next| next.ready() <= end) {
            // Behind its neighbours of the same level, who have waited.
            std::thread::yield_now();
        }
    }
    queue.come_until(time.now().min(time.until).min(closing.from()));
    for come in queue.left() {
        diary.put(Life::of(come));
    }
    diary.total = clock::thread_cpu_time().checked_sub(before).unwrap_or(Work::ZERO);
    (diary.refused, diary.refusals) = (queue.refused, queue.refusals);
    closing.present.fetch_sub(1, Ordering::AcqRel);
    stage.cpus[0].mailbox.bell.ring();
    diary
}

/// Sleeps through the run and ends it: from outside, because whoever works does not look at the
/// clock.
pub(crate) fn end(stage: &Stage, closing: &Closing, time: Timeline) -> Time {
    let mailbox = &stage.cpus[0].mailbox;
    let mut mail = Mail::new(stage.slots.len());
    let mut heard = 0;
    while !stage.over.load(Ordering::Acquire) && time.now() < time.until && !closing.is_done() {
        mailbox.bell.wait(heard, time.of_machine(time.until));
        heard = mailbox.bell.heard();
        mailbox.take(&stage.slots, &mut mail);
        if mail.said.contains(&Event::Stopped) && closing.from() == Time::NEVER {
            closing.from.store(time.now().as_ns(), Ordering::Release);
            mutate!(
                "exec-native-stop",
                stage.slots.iter().for_each(Slot::ring),
                stage.slots.iter().take(0).for_each(Slot::ring)
            );
        }
        mail.clear();
    }
    stage.let_go();
    time.now().min(time.until)
}
