//! The simulation: CPUs of full speed, and the event loop.
//!
//! Optional features (job steps, stalls, overheads, changes of conditions) are in [`Optional`]. The
//! loop is compiled twice, so that simulations without these features do not pay for them.

mod optional;
mod optional_events;
mod switch;

use crate::job_source::JobSource;
use optional::Optional;
use talea_core::engine::{Cpu, Engine, Event, Handled, Job, Observer, Order, TaskId};
use talea_core::heap::Heap;
use talea_core::mutate;
use talea_core::sink::{Completion, Sink};
use talea_core::workload::job_program::JobProgram;
use talea_core::workload::{CostMode, Workload};
use talea_core::{Span, Time, Work};

#[derive(Clone, Copy, Debug)]
struct CpuState {
    running: Option<TaskId>,
    /// Start of the running job, or time of the last report to the engine.
    since: Time,
}

#[derive(Clone, Debug)]
struct TaskState {
    generator: JobSource,
    /// Remaining work of the current job up to its next step or its end.
    left: Work,
    /// Number of the job that `left` belongs to.
    job: Option<u64>,
    /// CPU on which the job runs.
    cpu: Option<u32>,
    /// Nominal time of the next arrival.
    nominal: Time,
}

/// Result of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Current time.
    pub now: Time,
    /// Number of simulated instants.
    pub steps: u64,
}

/// An engine with its CPUs and its workload.
#[derive(Debug)]
pub struct Simulation<W: Observer = ()> {
    engine: Engine<W>,
    cpus: Vec<CpuState>,
    /// `ends[cpu]`: end of the running job if no event intervenes.
    ///
    /// The ends are a list, because CPUs are few and ends change more often than the first end is
    /// queried.
    ends: Vec<Time>,
    tasks: Vec<TaskState>,
    arrivals: Heap,
    /// Whether the engine may need consumption reports.
    needs_accounting: bool,
    cost_mode: CostMode,
    optional: Option<Box<Optional>>,
    outcome: Outcome,
}

fn span_of(work: Work) -> Span {
    Span::from_ns(work.as_ns())
}

impl<W: Observer> Simulation<W> {
    /// Creates a simulation at time zero.
    ///
    /// # Panics
    /// If the workload does not have one source for each task of the engine.
    pub fn new(engine: Engine<W>, cpus: u32, workload: &Workload) -> Simulation<W> {
        assert_eq!(engine.tasks(), workload.sources.len(), "one source for each task");
        let idle = CpuState { running: None, since: Time::ZERO };
        let tasks = workload.sources.iter().enumerate().map(|(task, source)| TaskState {
            generator: JobSource::new(source, workload.seed, task as u64),
            left: Work::ZERO,
            job: None,
            cpu: None,
            nominal: Time::ZERO,
        });
        let mut simulation = Simulation {
            arrivals: Heap::new(workload.sources.len()),
            cpus: vec![idle; cpus as usize],
            ends: vec![Time::NEVER; cpus as usize],
            needs_accounting: engine.needs_accounting(),
            tasks: tasks.collect(),
            engine,
            cost_mode: CostMode::Sampled,
            optional: None,
            outcome: Outcome::default(),
        };
        let programs: Vec<Option<JobProgram>> = (0..)
            .zip(&workload.sources)
            .map(|(task, source)| {
                let inputs: Vec<_> = simulation.engine.inputs(TaskId(task)).collect();
                let outputs: Vec<_> = simulation.engine.outputs(TaskId(task)).collect();
                let program = JobProgram::new(&source.cost, &inputs, &outputs)?;
                Some(program.with_seed(workload.seed ^ u64::from(task)))
            })
            .collect();
        if programs.iter().any(Option::is_some) || simulation.engine.has_notifications() {
            simulation.optional().programs = programs;
        }
        for task in 0..simulation.tasks.len() {
            simulation.schedule_arrival(task as u32);
        }
        simulation
    }

    /// Schedules an arrival of `task` at the current time.
    ///
    /// # Panics
    /// If the task has pending arrivals of its own.
    pub fn activate(&mut self, task: TaskId) {
        assert!(!self.arrivals.contains(task.0), "the task has pending arrivals");
        self.tasks[task.0 as usize].nominal = self.outcome.now;
        self.arrivals.set(task.0, self.outcome.now.as_ns());
    }

    /// Stops arrivals. Pending jobs complete as the simulation continues. [`Engine::is_drained`]
    /// states whether all have completed.
    pub fn stop(&mut self) {
        let _ = self.engine.handle(self.outcome.now, Event::Stopped);
        mutate!(
            "sim-stop",
            for task in 0..self.tasks.len() {
                self.arrivals.remove(task as u32);
            }
        );
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Engine<W> {
        &self.engine
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.outcome.now
    }

    /// Returns the time of the next event; [`Time::NEVER`] if there is none.
    pub fn next_event(&self) -> Time {
        if self.optional.is_some() { self.next::<true>() } else { self.next::<false>() }
    }

    /// Returns the mutable engine, for access to its observer.
    pub fn engine_mut(&mut self) -> &mut Engine<W> {
        &mut self.engine
    }

    #[inline]
    fn schedule_arrival(&mut self, task: u32) {
        let state = &mut self.tasks[task as usize];
        match state.generator.arrival() {
            Some((seen, nominal)) => {
                state.nominal = nominal;
                self.arrivals.set(task, seen.as_ns());
            }
            None => _ = self.arrivals.remove(task),
        }
    }

    /// Returns the time of the next event. `X` states whether there are [`Optional`] features.
    #[inline]
    fn next<const X: bool>(&self) -> Time {
        let arrival = self.arrivals.first().map_or(Time::NEVER, |(at, _)| Time::from_ns(at));
        let next = self.ends.iter().fold(arrival, |next, &end| next.min(end));
        match &self.optional {
            Some(optional) if X => next.min(self.next_optional_event(optional)),
            _ => next.min(self.engine.next_wakeup().unwrap_or(Time::NEVER)),
        }
    }

    /// Simulates all events before `until`.
    pub fn run(&mut self, until: Time, sink: &mut impl Sink) -> Outcome {
        if self.optional.is_some() {
            self.run_until::<true>(until, sink);
        } else {
            self.run_until::<false>(until, sink);
        }
        self.outcome.now = until;
        self.outcome
    }

    /// Iterates over the jobs that complete exactly at `until`, the end of the run. The run does
    /// not simulate these completions.
    pub fn completions_at(&self, until: Time) -> impl Iterator<Item = Completion> {
        (0..).zip(self.ends.iter().zip(&self.cpus)).filter_map(move |(at, (&end, cpu))| {
            let task = cpu.running.filter(|&task| end == until && self.is_last_segment(task))?;
            let job = self.engine.job(task)?;
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

    /// Simulates one instant. Returns `false` if there are no further events.
    pub fn advance(&mut self, sink: &mut impl Sink) -> bool {
        let now = self.next_event();
        if now == Time::NEVER {
            return false;
        }
        if self.optional.is_some() {
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
        if let (true, Some(optional)) = (X, &mut self.optional) {
            optional.now = now;
        }
        mutate!(
            "sim-metered",
            if self.needs_accounting {
                self.report_consumption::<X>(now);
            },
            if self.needs_accounting && self.outcome.steps % 2 == 0 {
                self.report_consumption::<X>(now);
            }
        );
        for at in 0..self.ends.len() {
            if self.ends[at] <= now {
                if X { self.end_segment(now, at, sink) } else { self.complete::<X>(now, at, sink) }
            }
        }
        if X {
            self.apply_changes(now);
        }
        while let Some((at, task)) = self.arrivals.first()
            && at <= now.as_ns()
        {
            let arrival = self.tasks[task as usize].nominal;
            sink.on_arrival(now, TaskId(task), arrival);
            if self.engine.handle(now, Event::Arrived { task: TaskId(task), arrival })
                == Handled::Refused
            {
                sink.on_refusal(now, TaskId(task));
            }
            self.schedule_arrival(task);
            if X {
                self.add_release_overhead(now, task);
            }
        }
        while let Some(order) = self.engine.poll(now) {
            match order {
                Order::Run { cpu, task, job, version } => {
                    self.halt::<X>(now, cpu.0 as usize);
                    if self.start::<X>(now, cpu.0 as usize, task, job, version) {
                        sink.on_start(now, cpu, task, job, version);
                    }
                    sink.on_dispatch(now, cpu, task, job);
                }
                Order::Idle { cpu } => {
                    self.halt::<X>(now, cpu.0 as usize);
                    sink.on_idle(now, cpu);
                }
            }
        }
        if X {
            self.drain_notifications(now, sink);
        }
    }

    /// Reports consumption to the engine.
    fn report_consumption<const X: bool>(&mut self, now: Time) {
        for at in 0..self.cpus.len() {
            let cpu = Cpu(at as u32);
            if self.engine.is_accounted(cpu) {
                let work = self.update_progress::<X>(now, at);
                let _ = self.engine.handle(now, Event::Ran { cpu, work });
            }
        }
    }

    /// Updates the job on a CPU. Returns the progress of the job since the last update; zero on an
    /// idle CPU.
    #[inline]
    fn update_progress<const X: bool>(&mut self, now: Time, at: usize) -> Work {
        let cpu = &mut self.cpus[at];
        let Some(task) = cpu.running else { return Work::ZERO };
        let progress = match &self.optional {
            Some(optional) if X => optional.progress(at, cpu.since, now),
            _ => now.since(cpu.since),
        };
        cpu.since = now;
        if X && let Some(optional) = &self.optional
            && let Some(consumed) = optional.consumption_of_wait(task, progress)
        {
            return Work::from_ns(consumed.as_ns());
        }
        let work = Work::from_ns(progress.as_ns());
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
        let job = self.engine.job(task).expect("the completed job");
        sink.on_completion(&Completion {
            task,
            job: job.number,
            release: job.release,
            deadline: job.deadline,
            end: now,
            cpu: Cpu(at as u32),
        });
        let _ = self.engine.handle(now, Event::Completed { task });
    }

    /// Stops the progress of the job on a CPU.
    #[inline]
    fn halt<const X: bool>(&mut self, now: Time, at: usize) {
        if self.cpus[at].running.is_some() {
            self.update_progress::<X>(now, at);
            self.ends[at] = Time::NEVER;
        }
        if let Some(task) = self.cpus[at].running.take() {
            self.tasks[task.0 as usize].cpu = None;
        }
    }

    /// Starts or resumes a job on a CPU. Returns whether this is its first dispatch.
    #[inline]
    fn start<const X: bool>(
        &mut self,
        now: Time,
        at: usize,
        task: TaskId,
        job: u64,
        version: u32,
    ) -> bool {
        // A migrating job is halted on its old CPU first.
        if let Some(from) = self.tasks[task.0 as usize].cpu {
            self.halt::<X>(now, from as usize);
        }
        let state = &mut self.tasks[task.0 as usize];
        let begins = state.job != Some(job);
        if begins {
            state.job = Some(job);
            state.left = state.generator.cost(version, self.cost_mode);
        }
        state.cpu = Some(at as u32);
        self.cpus[at] = CpuState { running: Some(task), since: now };
        match &mut self.optional {
            Some(optional) if X => {
                if let (true, Some(program)) = (begins, &mut optional.programs[task.0 as usize]) {
                    state.left = program.begin(job, version, state.left);
                }
                optional.add_dispatch_overhead(now, at, task, begins);
                self.set_end(now, at);
            }
            _ => self.ends[at] = now + span_of(state.left),
        }
        begins
    }
}
