//! CPUs that work at full speed, and the loop.
//!
//! What not every simulation needs (marks in jobs, holes, overheads, changes of the world) is in
//! [`Extras`]. The loop is compiled twice, so that it costs the others nothing.

mod extras;

use crate::sink::{Completion, Sink};
use crate::stream::Stream;
use extras::Extras;
use talea_core::heap::Heap;
use talea_core::machine::{Cpu, Event, Handled, Job, Machine, Order, TaskId, Watch};
use talea_core::mutate;
use talea_core::workload::script::Script;
use talea_core::workload::{Case, Workload};
use talea_core::{Span, Time, Work};

#[derive(Clone, Copy, Debug)]
struct CpuState {
    running: Option<TaskId>,
    /// Since when, or since the machine was last told.
    since: Time,
}

#[derive(Clone, Debug)]
struct TaskState {
    stream: Stream,
    /// Of the job under way, up to its next mark or its end.
    left: Work,
    /// Number of the job that `left` is of.
    job: Option<u64>,
    /// Where it runs.
    cpu: Option<u32>,
    /// The nominal time of the next arrival.
    nominal: Time,
}

/// How a simulation ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Where it stands.
    pub now: Time,
    /// Instants at which something happened.
    pub steps: u64,
}

/// A machine, its CPUs and its workload.
#[derive(Debug)]
pub struct World<W: Watch = ()> {
    machine: Machine<W>,
    cpus: Vec<CpuState>,
    /// Of each CPU: when its job ends if nothing comes between. A list, for CPUs are few, and an
    /// end is set and taken back more often than the first one is asked for.
    ends: Vec<Time>,
    tasks: Vec<TaskState>,
    arrivals: Heap,
    /// Whether the machine may want to know what was consumed.
    metered: bool,
    case: Case,
    extras: Option<Box<Extras>>,
    outcome: Outcome,
}

fn span_of(work: Work) -> Span {
    Span::from_ns(work.as_ns())
}

impl<W: Watch> World<W> {
    /// A world at time zero.
    ///
    /// # Panics
    /// If the workload does not have one source for each task of the machine.
    pub fn new(machine: Machine<W>, cpus: u32, workload: &Workload) -> World<W> {
        assert_eq!(machine.tasks(), workload.sources.len(), "one source for each task");
        let idle = CpuState { running: None, since: Time::ZERO };
        let tasks = workload.sources.iter().enumerate().map(|(task, source)| TaskState {
            stream: Stream::new(source, workload.seed, task as u64),
            left: Work::ZERO,
            job: None,
            cpu: None,
            nominal: Time::ZERO,
        });
        let mut world = World {
            arrivals: Heap::new(workload.sources.len()),
            cpus: vec![idle; cpus as usize],
            ends: vec![Time::NEVER; cpus as usize],
            metered: machine.meters(),
            tasks: tasks.collect(),
            machine,
            case: Case::Drawn,
            extras: None,
            outcome: Outcome::default(),
        };
        let scripts: Vec<Option<Script>> = (0..)
            .zip(&workload.sources)
            .map(|(task, source)| {
                let inputs: Vec<_> = world.machine.inputs(TaskId(task)).collect();
                let outputs: Vec<_> = world.machine.outputs(TaskId(task)).collect();
                Script::new(&source.cost, &inputs, &outputs)
            })
            .collect();
        if scripts.iter().any(Option::is_some) || world.machine.has_notes() {
            world.extras().scripts = scripts;
        }
        for task in 0..world.tasks.len() {
            world.expect(task as u32);
        }
        world
    }

    /// A job of `task` comes now: of a task without arrivals of its own to come.
    ///
    /// # Panics
    /// If the task has arrivals of its own to come.
    pub fn activate(&mut self, task: TaskId) {
        assert!(!self.arrivals.contains(task.0), "it has arrivals of its own");
        self.tasks[task.0 as usize].nominal = self.outcome.now;
        self.arrivals.set(task.0, self.outcome.now.as_ns());
    }

    /// No job comes any more; those that have come are done when the world goes on
    /// ([`Machine::is_drained`] says whether they are).
    pub fn stop(&mut self) {
        let _ = self.machine.handle(self.outcome.now, Event::Stopped);
        mutate!(
            "sim-stop",
            {
                for task in 0..self.tasks.len() {
                    self.arrivals.remove(task as u32);
                }
            },
            {}
        );
    }

    /// The machine, to ask it.
    pub fn machine(&self) -> &Machine<W> {
        &self.machine
    }

    /// Where the world stands.
    pub fn now(&self) -> Time {
        self.outcome.now
    }

    /// When something happens next; [`Time::NEVER`] if nothing does.
    pub fn next_event(&self) -> Time {
        if self.extras.is_some() { self.next::<true>() } else { self.next::<false>() }
    }

    /// The machine, to see what was watched.
    pub fn machine_mut(&mut self) -> &mut Machine<W> {
        &mut self.machine
    }

    #[inline]
    fn expect(&mut self, task: u32) {
        let state = &mut self.tasks[task as usize];
        match state.stream.arrival() {
            Some((seen, nominal)) => {
                state.nominal = nominal;
                self.arrivals.set(task, seen.as_ns());
            }
            None => _ = self.arrivals.remove(task),
        }
    }

    /// `X`: there are [`Extras`].
    #[inline]
    fn next<const X: bool>(&self) -> Time {
        let arrival = self.arrivals.first().map_or(Time::NEVER, |(at, _)| Time::from_ns(at));
        let next = self.ends.iter().fold(arrival, |next, &end| next.min(end));
        match &self.extras {
            Some(extras) if X => next.min(self.next_extra(extras)),
            _ => next.min(self.machine.next_wakeup().unwrap_or(Time::NEVER)),
        }
    }

    /// Lets time pass up to and including what happens before `until`.
    pub fn run(&mut self, until: Time, sink: &mut impl Sink) -> Outcome {
        if self.extras.is_some() {
            self.run_until::<true>(until, sink);
        } else {
            self.run_until::<false>(until, sink);
        }
        self.outcome.now = until;
        self.outcome
    }

    /// Jobs that end exactly at `until`, up to which it has run: a run does not look at that
    /// instant any more.
    pub fn ending(&self, until: Time) -> impl Iterator<Item = Completion> {
        (0..).zip(self.ends.iter().zip(&self.cpus)).filter_map(move |(at, (&end, cpu))| {
            let task = cpu.running.filter(|&task| end == until && self.is_last(task))?;
            let job = self.machine.job(task)?;
            let Job { number, release, deadline } = job;
            Some(Completion { task, job: number, release, deadline, end, cpu: Cpu(at) })
        })
    }

    fn run_until<const X: bool>(&mut self, until: Time, sink: &mut impl Sink) {
        loop {
            let now = self.next::<X>();
            if now >= until {
                return;
            }
            self.step::<X>(now, sink);
        }
    }

    /// One instant; `false` when nothing would ever happen again.
    pub fn advance(&mut self, sink: &mut impl Sink) -> bool {
        let now = self.next_event();
        if now == Time::NEVER {
            return false;
        }
        if self.extras.is_some() {
            self.step::<true>(now, sink);
        } else {
            self.step::<false>(now, sink);
        }
        self.outcome.now = now;
        true
    }

    #[inline]
    fn step<const X: bool>(&mut self, now: Time, sink: &mut impl Sink) {
        self.outcome.steps += 1;
        if let (true, Some(extras)) = (X, &mut self.extras) {
            extras.now = now;
        }
        mutate!(
            "sim-metered",
            if self.metered {
                self.report::<X>(now);
            },
            if self.metered && self.outcome.steps % 2 == 0 {
                self.report::<X>(now);
            }
        );
        for at in 0..self.ends.len() {
            if self.ends[at] <= now {
                if X { self.reach(now, at, sink) } else { self.complete::<X>(now, at, sink) }
            }
        }
        if X {
            self.change(now);
        }
        while let Some((at, task)) = self.arrivals.first()
            && at <= now.as_ns()
        {
            let arrival = self.tasks[task as usize].nominal;
            sink.arrived(now, TaskId(task), arrival);
            if self.machine.handle(now, Event::Arrived { task: TaskId(task), arrival })
                == Handled::Refused
            {
                sink.refused(now, TaskId(task));
            }
            self.expect(task);
            if X {
                self.spend_release(now, task);
            }
        }
        while let Some(order) = self.machine.poll(now) {
            match order {
                Order::Run { cpu, task, job, version } => {
                    self.halt::<X>(now, cpu.0 as usize);
                    if self.start::<X>(now, cpu.0 as usize, task, job, version) {
                        sink.begins(now, cpu, task, job, version);
                    }
                    sink.runs(now, cpu, task, job);
                }
                Order::Idle { cpu } => {
                    self.halt::<X>(now, cpu.0 as usize);
                    sink.idles(now, cpu);
                }
            }
        }
        if X {
            self.take_notes(now, sink);
        }
    }

    /// Tells the machine what was consumed.
    fn report<const X: bool>(&mut self, now: Time) {
        for at in 0..self.cpus.len() {
            let cpu = Cpu(at as u32);
            if self.machine.is_metered(cpu) {
                let work = self.account::<X>(now, at);
                let _ = self.machine.handle(now, Event::Ran { cpu, work });
            }
        }
    }

    /// What the job on a CPU has done since it was last asked.
    #[inline]
    fn account<const X: bool>(&mut self, now: Time, at: usize) -> Work {
        let cpu = &mut self.cpus[at];
        let Some(task) = cpu.running else { return Work::ZERO };
        let spent = match &self.extras {
            Some(extras) if X => extras.spent(at, cpu.since, now),
            _ => now.since(cpu.since),
        };
        let work = Work::from_ns(spent.as_ns());
        cpu.since = now;
        let state = &mut self.tasks[task.0 as usize];
        state.left = state.left.checked_sub(work).expect("no job runs longer than it costs");
        work
    }

    #[inline]
    fn complete<const X: bool>(&mut self, now: Time, at: usize, sink: &mut impl Sink) {
        self.ends[at] = Time::NEVER;
        let Some(task) = self.cpus[at].running.take() else { return };
        let state = &mut self.tasks[task.0 as usize];
        (state.job, state.cpu) = (None, None);
        let job = self.machine.job(task).expect("the job under way");
        sink.completed(&Completion {
            task,
            job: job.number,
            release: job.release,
            deadline: job.deadline,
            end: now,
            cpu: Cpu(at as u32),
        });
        let _ = self.machine.handle(now, Event::Completed { task });
    }

    /// Whoever runs on a CPU stops.
    #[inline]
    fn halt<const X: bool>(&mut self, now: Time, at: usize) {
        if self.cpus[at].running.is_some() {
            self.account::<X>(now, at);
            self.ends[at] = Time::NEVER;
        }
        if let Some(task) = self.cpus[at].running.take() {
            self.tasks[task.0 as usize].cpu = None;
        }
    }

    /// `cpu` goes over to a job; whether for the first time.
    #[inline]
    fn start<const X: bool>(
        &mut self,
        now: Time,
        at: usize,
        task: TaskId,
        job: u64,
        version: u32,
    ) -> bool {
        // Somebody who moves was stopped there before he starts here.
        if let Some(from) = self.tasks[task.0 as usize].cpu {
            self.halt::<X>(now, from as usize);
        }
        let state = &mut self.tasks[task.0 as usize];
        let begins = state.job != Some(job);
        if begins {
            state.job = Some(job);
            state.left = state.stream.cost(version, self.case);
        }
        state.cpu = Some(at as u32);
        self.cpus[at] = CpuState { running: Some(task), since: now };
        match &mut self.extras {
            Some(extras) if X => {
                if let (true, Some(script)) = (begins, &mut extras.scripts[task.0 as usize]) {
                    state.left = script.begin(job, version, state.left);
                }
                extras.spend_order(now, at, task, begins);
                self.aim(now, at);
            }
            _ => self.ends[at] = now + span_of(state.left),
        }
        begins
    }
}
