//! Workers that are numbers, CPUs that work at full speed, and dispatchers that wake when they
//! said.

#[path = "told.rs"]
mod told;

use crate::course::{Course, Turn};
use crate::load::Load;
use crate::mailbox::Mail;
use crate::mechanism::{After, Mechanism};
use crate::record::{Entry, Log, merge};
use crate::root::{Root, Stepper};
use crate::stretch::Stretch;
use crate::tally::Tally;
use crate::work::Job;
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use talea_core::machine::{Condition, Cpu, TaskId, Tree};
use talea_core::workload::Workload;
use talea_core::{Span, Time, Work};
use talea_sim::World;

#[derive(Clone, Copy, Debug, Default)]
struct FakeWorker {
    used: u64,
    /// Of its job.
    left: Option<u64>,
    /// Where it is let run.
    cpu: Option<usize>,
    /// It has a job and was not called to it: its own timer wakes it.
    awake: u64,
    /// So many levels below the highest it stands.
    grade: u8,
}

/// What the mechanism and the test look at.
#[derive(Debug, Default)]
pub(super) struct Threads {
    workers: Vec<FakeWorker>,
    now: u64,
    /// When workers go on.
    from: u64,
    /// Who steps, if it is a worker.
    steps: Option<TaskId>,
    /// Who was given a job by another worker in this step.
    called: Option<TaskId>,
    pub(super) stops: u64,
    /// How often somebody got the CPU who stands no higher than one that was stopped.
    below: u64,
}

impl Threads {
    /// The dispatcher has the CPU until `to`, and the way back to the worker takes `switch` more.
    fn lose(&mut self, to: u64, switch: u64) {
        self.now = to;
        self.from = to + switch;
    }

    /// Whoever is let run works until `to`.
    fn advance(&mut self, to: u64) {
        let from = self.now.max(self.from);
        self.now = to;
        for worker in self.workers.iter_mut().filter(|worker| worker.cpu.is_some()) {
            let passed = to.saturating_sub(from.max(worker.awake));
            worker.used += passed;
            worker.left = worker.left.map(|left| left - passed);
        }
    }

    fn first_end(&self) -> u64 {
        let running = self.workers.iter().filter(|worker| worker.cpu.is_some());
        running
            .filter_map(|worker| Some((worker.awake, worker.left?)))
            .map(|(awake, left)| self.now.max(self.from).max(awake) + left)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Whether a worker that is awake by itself at `awake` gets the CPU, of which there is one.
    fn is_let_in(&self, task: usize, awake: u64) -> bool {
        let mut running = self.workers.iter().filter(|worker| worker.cpu.is_some());
        running.all(|running| self.workers[task].grade < running.grade || awake < running.awake)
    }

    /// Who has just ended, and where.
    fn ended(&self) -> Vec<(TaskId, usize)> {
        let over =
            |(task, worker): (u32, &FakeWorker)| Some((TaskId(task), worker.cpu?, worker.left?));
        let all = (0..).zip(&self.workers).filter_map(over);
        all.filter(|&(.., left)| left == 0).map(|(task, cpu, _)| (task, cpu)).collect()
    }

    /// `task` gets a CPU of which there is one: whoever was stopped stands lower, if grades are
    /// preemption levels.
    fn look_below(&mut self, task: usize) {
        let grade = self.workers[task].grade;
        let others = self
            .workers
            .iter()
            .enumerate()
            .filter(|&(other, worker)| other != task && worker.left.is_some());
        self.below += u64::from(
            others.into_iter().any(|(_, worker)| worker.cpu.is_none() && worker.grade <= grade),
        );
    }

    /// Never two on one CPU.
    fn check(&self) {
        let mut taken: Vec<usize> = self.workers.iter().filter_map(|worker| worker.cpu).collect();
        let running = taken.len();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), running, "two workers on one CPU: {self:?}");
    }
}

/// Moves them.
#[derive(Clone, Debug)]
pub(super) struct Fake(pub(super) Rc<RefCell<Threads>>);

impl Fake {
    pub(super) fn new(tasks: usize) -> Fake {
        let workers = vec![FakeWorker::default(); tasks];
        Fake(Rc::new(RefCell::new(Threads { workers, ..Threads::default() })))
    }

    /// Whoever is let run does so until then.
    pub(super) fn work_until(&self, now: u64) {
        self.0.borrow_mut().advance(now);
    }
}

impl Mechanism for Fake {
    type Error = Infallible;

    fn used(&mut self, task: TaskId) -> Result<Work, Infallible> {
        Ok(Work::from_ns(self.0.borrow().workers[task.0 as usize].used))
    }

    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> Result<(), Infallible> {
        let mut threads = self.0.borrow_mut();
        if threads.steps == Some(task) {
            let grade = threads.workers[task.0 as usize].grade;
            let is_there =
                |worker: &FakeWorker| worker.cpu == Some(cpu.0 as usize) && worker.grade <= grade;
            assert!(
                !threads.workers.iter().any(is_there),
                "whoever steps goes behind one that nobody stops then"
            );
        } else if threads.steps.is_some() {
            threads.called = Some(task);
        }
        threads.look_below(task.0 as usize);
        let worker = &mut threads.workers[task.0 as usize];
        assert_eq!((worker.left, worker.cpu), (None, None), "it has a job");
        worker.left = Some(job.cost.as_ns());
        (worker.cpu, worker.awake) = (Some(cpu.0 as usize), 0);
        Ok(())
    }

    fn resume(&mut self, cpu: Cpu, task: TaskId) -> Result<(), Infallible> {
        let mut threads = self.0.borrow_mut();
        threads.look_below(task.0 as usize);
        let worker = &mut threads.workers[task.0 as usize];
        assert!(worker.left.is_some(), "it has no job");
        worker.cpu = Some(cpu.0 as usize);
        Ok(())
    }

    fn stop(&mut self, cpu: Cpu, task: TaskId, _successor: bool) -> Result<(), Infallible> {
        let mut threads = self.0.borrow_mut();
        let worker = &mut threads.workers[task.0 as usize];
        assert_eq!(worker.cpu.take(), Some(cpu.0 as usize), "it runs elsewhere");
        threads.stops += 1;
        Ok(())
    }

    fn ended(&mut self, task: TaskId) -> Result<(), Infallible> {
        let worker = &mut self.0.borrow_mut().workers[task.0 as usize];
        assert_eq!(worker.left.take(), Some(0), "it has work left");
        worker.cpu = None;
        Ok(())
    }

    fn grade(&mut self, grades: &[u8]) -> Result<(), Infallible> {
        for (worker, &grade) in self.0.borrow_mut().workers.iter_mut().zip(grades) {
            worker.grade = grade;
        }
        Ok(())
    }

    fn ready(&mut self, task: TaskId) -> Result<(), Infallible> {
        let threads = self.0.borrow();
        assert!(threads.steps.is_none_or(|by| by == task), "it does not step");
        let worker = &threads.workers[task.0 as usize];
        assert_eq!((worker.left, worker.cpu), (None, None), "it has a job");
        Ok(())
    }

    fn after(&mut self) -> After {
        After { call: self.0.borrow().called, ..After::default() }
    }

    fn rest(&mut self, cpu: Cpu) -> Result<(), Infallible> {
        let threads = self.0.borrow();
        assert!(
            threads.workers.iter().all(|worker| worker.cpu != Some(cpu.0 as usize)),
            "somebody runs"
        );
        Ok(())
    }
}

/// A run of the loop.
pub(super) struct Ran {
    pub(super) course: Course,
    pub(super) record: Vec<Entry>,
    pub(super) stops: u64,
    pub(super) steps: u64,
    /// Of these, by workers that had finished.
    pub(super) by_workers: u64,
    /// And by workers whose jobs came.
    pub(super) by_themselves: u64,
    /// How many were not called to their jobs, because they were awake by themselves.
    pub(super) up: u64,
    pub(super) tallies: Vec<Tally>,
    pub(super) refused: u64,
    /// How often somebody got the CPU who stands no higher than one that was stopped.
    pub(super) below: u64,
    /// When dispatchers were awake late, or workers in their places.
    pub(super) late: Vec<Stretch>,
}

/// Runs `tree` until `until`; each time that a dispatcher wakes by its alarm it is late by `late`.
pub(super) fn run(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    late: impl FnMut() -> Span,
) -> Ran {
    run_with(tree, workload, until, (Span::ZERO, Span::ZERO), late)
}

/// The same, where a step keeps all CPUs busy for so long, and the way back to the workers for so
/// much longer.
pub(super) fn run_with(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    (effort, switch): (Span, Span),
    late: impl FnMut() -> Span,
) -> Ran {
    run_in(tree, workload, until, (effort, switch), Vec::new(), late)
}

/// The same in a world that changes.
pub(super) fn run_in(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    (effort, switch): (Span, Span),
    changes: Vec<(Time, Condition)>,
    late: impl FnMut() -> Span,
) -> Ran {
    run_by(tree, workload, until, (effort, switch), changes, |_| false, late)
}

/// The same, where a worker that finishes may step the root itself if `may` says so, told how many
/// steps there were.
pub(super) fn run_by(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    (effort, switch): (Span, Span),
    changes: Vec<(Time, Condition)>,
    may: impl FnMut(u64) -> bool,
    late: impl FnMut() -> Span,
) -> Ran {
    go(tree, workload, until, (effort, switch), changes, may, late, None)
}

/// Where workers always step the root when they finish, and those that may are awake by themselves
/// when their jobs come, late by `late` as dispatchers are; on so many levels. In a world that
/// changes.
pub(super) fn run_dozing(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    room: u8,
    changes: Vec<(Time, Condition)>,
    late: impl FnMut() -> Span,
) -> Ran {
    let none = (Span::ZERO, Span::ZERO);
    go(tree, workload, until, none, changes, |_| true, late, Some((room, &mut || None)))
}

/// For a job of whom somebody asks.
type Asks<'a> = &'a mut dyn FnMut() -> Option<TaskId>;

/// The same, where each worker that finishes finds that somebody has asked for a job of the task
/// that `asks` says.
pub(super) fn run_asked(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    room: u8,
    asks: Asks<'_>,
    late: impl FnMut() -> Span,
) -> Ran {
    let none = (Span::ZERO, Span::ZERO);
    go(tree, workload, until, none, Vec::new(), |_| true, late, Some((room, asks)))
}

#[allow(clippy::too_many_arguments, reason = "everything that a run may differ in")]
fn go(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    (effort, switch): (Span, Span),
    changes: Vec<(Time, Condition)>,
    mut may: impl FnMut(u64) -> bool,
    mut late: impl FnMut() -> Span,
    mut dozes: Option<(u8, Asks<'_>)>,
) -> Ran {
    let cpus = tree.cpus as usize;
    let machine = tree.build().expect("a sound tree");
    let meters = machine.meters();
    let fake = Fake::new(machine.tasks());
    let drawn = talea_sim::draw(workload, until, |_| 1_000);
    let loads = drawn
        .into_iter()
        .zip(&workload.sources)
        .map(|(drawn, source)| Load::drawn(&drawn.arrivals, drawn.costs, source.cost.clone()));
    let Ok(mut root) = Root::new(machine, cpus, fake.clone(), loads.collect(), changes, Vec::new());
    if let Some((room, _)) = dozes {
        let Ok(()) = root.let_doze(room);
    }
    // As any dispatcher is; where there are budgets it would look at them earlier than a twin does.
    for cpu in (0..cpus).filter(|_| !meters) {
        root.expect_to_be_late(cpu, Span::from_ns(5_000));
    }
    let mut logs: Vec<Log> = (0..cpus).map(|_| Log::new(1 << 16)).collect();
    let mut due = vec![0; cpus];
    // By task: when its worker is awake by itself, and gets the CPU if nobody has it or it stands
    // above whoever has it.
    let mut naps = vec![Nap::NONE; workload.sources.len()];
    let (mut steps, mut by_workers, mut by_themselves, mut up) = (0, 0, 0, 0);
    loop {
        let first = fake.0.borrow().first_end().min(due.iter().copied().min().expect("a CPU"));
        for (nap, worker) in naps.iter_mut().zip(&fake.0.borrow().workers) {
            // Whoever was called sleeps no more.
            *nap = if worker.left.is_some() { Nap::NONE } else { *nap };
        }
        let (nap, sleeper) = {
            let threads = fake.0.borrow();
            let naps =
                naps.iter().enumerate().filter(|&(task, nap)| threads.is_let_in(task, nap.awake));
            naps.map(|(task, nap)| (nap.awake, task as u32)).min().unwrap_or((u64::MAX, 0))
        };
        if nap < first.min(until.as_ns()) {
            let now = nap.max(fake.0.borrow().now);
            fake.0.borrow_mut().advance(now);
            naps[sleeper as usize] = Nap::NONE;
            let (task, now) = (TaskId(sleeper), Time::from_ns(now));
            if root.comes(task, now) {
                let who = Stepper { cpu: 0, worker: Some(task) };
                fake.0.borrow_mut().steps = who.worker;
                let Ok(()) = root.step(who, now, &Mail::default(), &mut logs[0]);
                (steps, by_themselves) = (steps + 1, by_themselves + 1);
                let Ok(nap) = root.doze(task);
                naps[sleeper as usize] = Nap::of(nap, &mut late);
                up += u64::from(is_up(&mut root, &fake, &naps));
                root.alert(0, |other| due[other] = now.as_ns());
            }
            continue;
        }
        // What was due while a dispatcher was busy is looked at when it is done.
        let now = first.max(fake.0.borrow().now);
        if now >= until.as_ns() {
            break;
        }
        fake.0.borrow_mut().advance(now);
        let ended = fake.0.borrow().ended();
        let awake = due.iter().position(|&due| due <= now);
        // A worker speaks for itself alone. Where two end at one instant, in two steps, no
        // simulation is their twin.
        let alone = if let [one] = ended[..] { Some(one) } else { None };
        let worker = alone.filter(|_| awake.is_none() && !root.is_metered() && may(steps));
        let asks = worker.and(dozes.as_mut()).and_then(|(_, asks)| asks());
        let asked = asks.into_iter().map(|task| (task, 1)).collect();
        let ended = ended.into_iter().map(|(task, _)| task).collect();
        let mail = Mail { ended, asked, ..Mail::default() };
        // Which dispatcher it is matters only for who wakes when.
        let cpu = worker.map_or(awake.unwrap_or(0), |(_, cpu)| cpu);
        let who = Stepper { cpu, worker: worker.map(|(task, _)| task) };
        fake.0.borrow_mut().steps = who.worker;
        let Ok(()) = root.step(who, Time::from_ns(now), &mail, &mut logs[cpu]);
        fake.0.borrow().check();
        steps += 1;
        assert!(steps < 1_000_000, "time stands still at {now}");
        let mut rung = Vec::new();
        let asleep = now + effort.as_ns();
        fake.0.borrow_mut().lose(asleep, switch.as_ns());
        if worker.is_some() {
            by_workers += 1;
            for &task in &mail.ended {
                let Ok(nap) = root.doze(task);
                naps[task.0 as usize] = Nap::of(nap, &mut late);
            }
            up += u64::from(is_up(&mut root, &fake, &naps));
            root.alert(cpu, |other| due[other] = asleep);
            continue;
        }
        let armed = root.arm(cpu, Time::from_ns(asleep), |other| rung.push(other)).as_ns();
        due[cpu] = armed.saturating_add(late().as_ns());
        for other in rung {
            due[other] = asleep;
        }
    }
    root.conclude(until, &mut logs[0]);
    let (record, lost) = merge(logs);
    assert_eq!(lost, 0);
    let (stops, below) = (fake.0.borrow().stops, fake.0.borrow().below);
    let (tallies, refused, late) = (root.tallies().to_vec(), root.refused(), root.late().to_vec());
    let course = Course::of(tree.cpus, &record);
    Ran {
        course,
        record,
        stops,
        steps,
        by_workers,
        by_themselves,
        up,
        tallies,
        refused,
        below,
        late,
    }
}

/// When a worker that sleeps is awake by itself.
#[derive(Clone, Copy)]
struct Nap {
    /// Its alarm.
    until: u64,
    /// When it hears that.
    awake: u64,
}

impl Nap {
    const NONE: Nap = Nap { until: u64::MAX, awake: u64::MAX };

    fn of(until: Option<Time>, late: &mut impl FnMut() -> Span) -> Nap {
        let of = |until: Time| Nap {
            until: until.as_ns(),
            awake: until.as_ns().saturating_add(late().as_ns()),
        };
        until.map_or(Nap::NONE, of)
    }
}

/// Whether the one who was given a job in this worker's step is not called to it, who then must be
/// awake by itself: his alarm is one that he has not heard, for now or earlier. He begins when he
/// hears it.
fn is_up(root: &mut Root<Fake>, fake: &Fake, naps: &[Nap]) -> bool {
    let after = root.after();
    let Some(given) = fake.0.borrow_mut().called.take() else { return false };
    let is_up = after.call != Some(given);
    if is_up {
        let nap = naps[given.0 as usize];
        assert!(nap.until != u64::MAX, "{given:?} sleeps over its job");
        assert!(nap.until <= root.now().as_ns(), "{given:?} sleeps on until {}", nap.until);
        fake.0.borrow_mut().workers[given.0 as usize].awake = nap.awake;
    }
    is_up
}

/// The same in the simulator.
pub(super) fn simulate(tree: &Tree, workload: &Workload, until: Time) -> Course {
    simulate_in(tree, workload, until, Vec::new())
}

/// The same in a world that changes.
pub(super) fn simulate_in(
    tree: &Tree,
    workload: &Workload,
    until: Time,
    changes: Vec<(Time, Condition)>,
) -> Course {
    let mut world = World::new(tree.build().expect("a sound tree"), tree.cpus, workload);
    if !changes.is_empty() {
        world = world.with_changes(changes);
    }
    told::course(world, tree.cpus, until)
}
