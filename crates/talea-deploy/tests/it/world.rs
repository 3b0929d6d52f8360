//! Simulated computer: programs, threads, other writers, and a driver that loses effects.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use talea_core::rng::Rng;
use talea_core::{Attr, CpuSet, Monotonic, Policy, Priority, Span};
use talea_deploy::input::{
    Errno, Exit, Program, Refusal, RequestId, Setting, SettingKind, StopSignal, Thread,
};
use talea_deploy::{
    Command, Condition, Deployment, Effect, EffectNumber, Event, FileHash, Generation, Governed,
    Health, Input, Observation, OnFailure, ProcessId, Record, Request, Restart, RestartOn, Role,
    RootSpec, TaskSpec, ThreadId,
};

pub(crate) const MS: u64 = 1_000_000;
/// Time from the order of another table until it is in force.
const FRAME: Span = Span::from_ns(150 * MS);
/// Time from the start of a program until it is ready.
const READY_AFTER: Span = Span::from_ns(50 * MS);

pub(crate) fn ms(count: u64) -> Span {
    Span::from_ns(count * MS)
}

pub(crate) fn fifo(priority: u8, cpu: u32) -> Attr {
    Attr {
        policy: Policy::Fifo(Priority(priority)),
        reset_on_fork: true,
        cpus: CpuSet::single(cpu),
    }
}

/// Returns a task whose program restarts after failures at short intervals.
pub(crate) fn task(name: &str, word: &str, priority: u8) -> TaskSpec {
    TaskSpec {
        name: name.to_owned(),
        root: 0,
        command: Command {
            words: vec![word.to_owned()],
            user: Some("player".to_owned()),
            role: Role::Linux,
        },
        attr: fifo(priority, 0),
        health: Health {
            ready: None,
            on_failure: OnFailure::Restart,
            restart: Restart {
                when: RestartOn::Failure,
                attempts: 1_000_000,
                within: ms(2_000),
                backoff: ms(100),
            },
        },
        governed: None,
    }
}

/// Returns a task of the root that has a governor.
pub(crate) fn governed(name: &str, word: &str) -> TaskSpec {
    let mut spec = task(name, word, 40);
    (spec.root, spec.command.role) = (1, Role::Governed(CpuSet::first(2)));
    spec.attr.cpus = CpuSet::first(2);
    spec
}

/// Name of the governor's task.
pub(crate) const GOVERNOR: &str = "box (governor)";

pub(crate) fn generation(number: u64, tasks: Vec<TaskSpec>) -> Arc<Generation> {
    generation_with(number, tasks, "a table")
}

/// Returns a generation with a root that Linux schedules and one that a governor schedules by this
/// text.
pub(crate) fn generation_with(
    number: u64,
    mut tasks: Vec<TaskSpec>,
    system: &str,
) -> Arc<Generation> {
    let root = |name: &str| RootSpec { name: name.to_owned(), cpus: CpuSet::first(2) };
    let names: Vec<String> =
        tasks.iter().filter(|task| task.root == 1).map(|task| task.name.clone()).collect();
    if !names.is_empty() {
        let (root, cpus) = ("box".to_owned(), CpuSet::first(2));
        let governed = Governed { root, cpus, system: system.to_owned(), tasks: names };
        tasks.push(TaskSpec::governor(1, governed));
    }
    let hash = FileHash([number as u8; 32]);
    let roots = vec![root("cpu0"), root("box")];
    let report = "proved".to_owned();
    Arc::new(Generation::new(number, hash, roots, tasks, report, false).expect("valid"))
}

/// Running or exited program of the simulated computer.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) task: String,
    /// The role of a governor has the table that it has reported last.
    pub(crate) command: Command,
    /// Command with the table in force.
    pub(crate) governs: Command,
    /// Command with an ordered table, and the end of the frame.
    pub(crate) ordered: Option<(Monotonic, Command)>,
    pub(crate) exit: Option<Exit>,
    pub(crate) ready_at: Monotonic,
    pub(crate) threads: BTreeMap<ThreadId, Attr>,
    pub(crate) ignores_terminate: bool,
}

/// Probabilities in percent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// An effect is lost, and no answer follows.
    pub(crate) lost_effect: u64,
    /// The kernel refuses a start or a set; half of the answers are lost.
    pub(crate) refused: u64,
    /// The driver stops amid its effects and goes on at the next step.
    pub(crate) delay: u64,
    /// A new program ignores SIGTERM.
    pub(crate) ignores_terminate: u64,
}

/// Simulated computer with its machine.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) now: Monotonic,
    pub(crate) machine: Deployment,
    pub(crate) programs: BTreeMap<ProcessId, Instance>,
    pub(crate) faults: Faults,
    pub(crate) rng: Rng,
    /// Durable record.
    pub(crate) disk: Record,
    pub(crate) events: Vec<Event>,
    pub(crate) answers: Vec<(RequestId, Result<(), Refusal>)>,
    /// Executed effects that change the computer.
    pub(crate) changes: Vec<Effect>,
    pub(crate) tally: BTreeMap<&'static str, u64>,
    queue: VecDeque<(EffectNumber, Effect)>,
    seen: EffectNumber,
    next_id: u32,
    requests: u64,
    /// Whether new programs never become ready.
    pub(crate) never_ready: bool,
    /// Whether a governor exits when it starts.
    pub(crate) fails_to_govern: bool,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let now = Monotonic::from_ns(1_000 * MS);
        World {
            now,
            machine: Deployment::restore(Record::default(), now),
            programs: BTreeMap::new(),
            faults: Faults::default(),
            rng: Rng::new(seed),
            disk: Record::default(),
            events: Vec::new(),
            answers: Vec::new(),
            changes: Vec::new(),
            tally: BTreeMap::new(),
            queue: VecDeque::new(),
            seen: EffectNumber(0),
            next_id: 100,
            requests: 0,
            never_ready: false,
            fails_to_govern: false,
        }
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// Passes a request, and executes its effects.
    pub(crate) fn ask(&mut self, what: Request) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.handle(Input::Requested { request, what });
        self.drive();
        request
    }

    /// Passes a request whose answer must be positive.
    pub(crate) fn ask_ok(&mut self, what: Request) {
        let request = self.ask(what);
        assert_eq!(self.answer(request), Some(Ok(())));
    }

    pub(crate) fn answer(&self, request: RequestId) -> Option<Result<(), Refusal>> {
        self.answers.iter().find(|(of, _)| *of == request).map(|(_, answer)| answer.clone())
    }

    pub(crate) fn apply(&mut self, generation: &Arc<Generation>, confirm: Option<Span>) {
        self.ask_ok(Request::Apply { generation: generation.clone(), confirm });
    }

    /// Advances to the machine's next wake-up and executes the effects. Returns false if the
    /// machine waits for nothing.
    pub(crate) fn step(&mut self) -> bool {
        let is_busy = !self.queue.is_empty();
        self.drive();
        let Some(at) = self.machine.next_wakeup() else { return is_busy };
        self.now = self.now.max(at);
        self.handle(Input::Timer);
        self.drive();
        true
    }

    pub(crate) fn run(&mut self, length: Span) {
        let end = self.now + length;
        while self.machine.next_wakeup().is_some_and(|at| at <= end) {
            self.step();
        }
        self.now = self.now.max(end);
    }

    /// Replaces the machine by one from the durable record. Effects on their way are lost.
    pub(crate) fn crash(&mut self) {
        self.count("crashes");
        self.queue.clear();
        self.seen = EffectNumber(0);
        self.machine = Deployment::restore(self.disk.clone(), self.now);
    }

    fn handle(&mut self, input: Input) {
        self.machine.handle(self.now, input);
        while let Some(effect) = self.machine.poll_effect() {
            self.queue.push_back(effect);
        }
    }

    fn drive(&mut self) {
        while let Some((number, effect)) = self.queue.pop_front() {
            let is_lossy =
                !matches!(effect, Effect::Store(_) | Effect::Answer { .. } | Effect::Report(_));
            if is_lossy && self.rng.chance(self.faults.lost_effect) {
                self.count("lost effects");
            } else {
                self.execute(number, &effect);
            }
            self.seen = number;
            if self.rng.chance(self.faults.delay) {
                self.count("delays");
                // An observation amid the effects.
                let observation = self.observation();
                self.handle(Input::Observed(observation));
                return;
            }
        }
    }

    fn is_refused(&mut self, number: EffectNumber, errno: i32) -> bool {
        if !self.rng.chance(self.faults.refused) {
            return false;
        }
        self.count("refused effects");
        if self.rng.chance(50) {
            self.handle(Input::Failed { effect: number, error: Errno(errno) });
        } else {
            self.count("lost answers");
        }
        true
    }

    fn execute(&mut self, number: EffectNumber, effect: &Effect) {
        match effect {
            Effect::Store(record) => self.disk = (**record).clone(),
            Effect::Observe => {
                let observation = self.observation();
                self.handle(Input::Observed(observation));
            }
            Effect::Start(task) => {
                self.check_start(task);
                self.changes.push(effect.clone());
                if !self.is_refused(number, 2) {
                    let TaskSpec { name, command, attr, .. } = *task.clone();
                    self.spawn(name, command, attr);
                }
            }
            Effect::Stop { process, signal } => {
                self.changes.push(effect.clone());
                if let Some(program) = self.programs.get_mut(process)
                    && program.exit.is_none()
                    && (*signal == StopSignal::Kill || !program.ignores_terminate)
                {
                    let number = if *signal == StopSignal::Kill { 9 } else { 15 };
                    program.exit = Some(Exit::Signal(number));
                }
            }
            Effect::Forget { process } => {
                assert!(self.programs.get(process).is_none_or(|program| program.exit.is_some()));
                self.programs.remove(process);
            }
            Effect::Set { thread, setting } => {
                self.check_set(*thread, *setting);
                self.changes.push(effect.clone());
                if !self.is_refused(number, 1)
                    && let Some(attr) = self.thread_mut(*thread)
                {
                    match *setting {
                        Setting::Policy { policy, reset_on_fork } => {
                            (attr.policy, attr.reset_on_fork) = (policy, reset_on_fork);
                        }
                        Setting::Cpus(cpus) => attr.cpus = cpus,
                    }
                }
            }
            Effect::Adjust { process, task } => {
                self.check_adjust(*process, task);
                self.changes.push(effect.clone());
                self.count("adjustments");
                self.end_frames();
                if let Some(program) = self.programs.get_mut(process) {
                    let command = task.command.clone();
                    program.command.role = Role::Governor(FileHash::default());
                    if program.ordered.is_none() && program.governs == command {
                        program.command = command;
                    } else {
                        let due = program.ordered.as_ref().map_or(self.now + FRAME, |of| of.0);
                        program.ordered = Some((due, command));
                    }
                }
            }
            Effect::Report(event) => self.events.push(event.clone()),
            Effect::Answer { request, answer } => {
                assert_eq!(self.answer(*request), None, "answered twice");
                self.answers.push((*request, answer.clone()));
            }
        }
    }

    fn spawn(&mut self, task: String, command: Command, attr: Attr) {
        self.count(if task == GOVERNOR { "starts of governors" } else { "starts" });
        let process = ProcessId { start: self.now.as_ns(), pid: self.new_id() };
        let main = ThreadId { start: self.now.as_ns(), tid: process.pid };
        let ignores_terminate = self.rng.chance(self.faults.ignores_terminate);
        let ready_at = if self.never_ready { Monotonic::NEVER } else { self.now + READY_AFTER };
        let threads = BTreeMap::from([(main, attr)]);
        let exit = (self.fails_to_govern && task == GOVERNOR).then_some(Exit::Code(3));
        let (governs, ordered) = (command.clone(), None);
        let program = Instance {
            task,
            command,
            governs,
            ordered,
            exit,
            ready_at,
            threads,
            ignores_terminate,
        };
        self.programs.insert(process, program);
    }

    pub(crate) fn new_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    /// Puts ordered tables in force whose frame has ended. Reports of that may be lost.
    fn end_frames(&mut self) {
        let is_due = |&mut (at, _): &mut (Monotonic, Command)| at <= self.now;
        let mut lost = 0;
        for program in self.programs.values_mut() {
            let Some((_, command)) = program.ordered.take_if(is_due) else { continue };
            program.governs = command;
            if self.rng.chance(self.faults.lost_effect) {
                lost += 1;
            } else {
                program.command = program.governs.clone();
            }
        }
        *self.tally.entry("lost reports").or_default() += lost;
    }

    fn observation(&mut self) -> Observation {
        self.end_frames();
        let programs = self.programs.iter().map(|(&process, program)| Program {
            process,
            task: program.task.clone(),
            command: program.command.clone(),
            exit: program.exit,
            is_ready: program.ready_at <= self.now,
            threads: program.threads.iter().map(|(&id, &attr)| Thread { id, attr }).collect(),
        });
        Observation { seen: self.seen, programs: programs.collect(), occupied: Vec::new() }
    }

    pub(crate) fn thread_mut(&mut self, thread: ThreadId) -> Option<&mut Attr> {
        self.programs.values_mut().find_map(|program| program.threads.get_mut(&thread))
    }

    /// Checks a start: the durable generation has the task, and no program plays it.
    fn check_start(&self, task: &TaskSpec) {
        let generation = self.disk.in_force.as_ref().expect("a start without a generation");
        let spec = generation.task(&task.name).expect("a start of a removed task");
        // A delayed start may be of the generation before.
        if self.queue.iter().all(|(_, effect)| !matches!(effect, Effect::Store(_))) {
            assert_eq!(task, spec);
        }
        assert_eq!(self.running(&task.name).count(), 0, "two programs play {}", task.name);
    }

    /// Checks the order of a table: the governor is ready, and the table is that of its root.
    fn check_adjust(&self, process: ProcessId, task: &TaskSpec) {
        let generation = self.disk.in_force.as_ref().expect("a table without a generation");
        if self.queue.iter().all(|(_, effect)| !matches!(effect, Effect::Store(_))) {
            assert_eq!(Some(task), generation.task(GOVERNOR));
        }
        let Some(program) = self.programs.get(&process) else { return };
        assert!(program.command.is_same_program(&task.command), "it starts again");
        assert!(program.ready_at <= self.now, "the signal ends a governor that is not ready");
    }

    /// Checks a set: the thread belongs to a task in force, whose value it is.
    fn check_set(&self, thread: ThreadId, setting: Setting) {
        let owner = self.programs.values().find(|program| program.threads.contains_key(&thread));
        let Some(owner) = owner else { return };
        let generation = self.disk.in_force.as_ref().expect("a set without a generation");
        let spec = generation.task(&owner.task).expect("a set of a removed task");
        match setting {
            Setting::Policy { policy, .. } => {
                assert_eq!(owner.command.role, Role::Linux, "a policy beside a governor");
                assert_eq!(policy, spec.attr.policy);
            }
            Setting::Cpus(cpus) => assert_eq!(cpus, spec.attr.cpus),
        }
    }

    /// Returns the programs that play a task.
    pub(crate) fn running<'w>(
        &'w self,
        task: &'w str,
    ) -> impl Iterator<Item = (ProcessId, &'w Instance)> {
        let of_task = move |program: &Instance| program.exit.is_none() && program.task == task;
        let programs = self.programs.iter().map(|(&process, program)| (process, program));
        programs.filter(move |(_, program)| of_task(program))
    }

    /// Returns the only program that plays a task.
    pub(crate) fn only(&self, task: &str) -> ProcessId {
        let found: Vec<ProcessId> = self.running(task).map(|(process, _)| process).collect();
        assert_eq!(found.len(), 1, "{task}: {found:?}");
        found[0]
    }

    /// Ends a program by itself.
    pub(crate) fn exit(&mut self, task: &str, exit: Exit) {
        let process = self.only(task);
        self.programs.get_mut(&process).expect("it runs").exit = Some(exit);
    }

    /// Returns what differs from the desired state; `None` if nothing does.
    pub(crate) fn difference(&self) -> Option<String> {
        let status = self.machine.status();
        if status.trial_until.is_some() || !self.queue.is_empty() {
            return Some("on trial, or effects are on their way".to_owned());
        }
        let specs = status.in_force.as_ref().map_or(&[][..], |generation| generation.tasks());
        for program in self.programs.values() {
            let Some(spec) = specs.iter().find(|spec| spec.name == program.task) else {
                return Some(format!("{} is not in force", program.task));
            };
            let commands = [&program.command, &program.governs];
            if program.exit.is_some() || commands != [&spec.command; 2] {
                return Some(format!("{} has another program", program.task));
            }
        }
        for (spec, state) in specs.iter().zip(&status.tasks) {
            let running: Vec<_> = self.running(&spec.name).collect();
            let is_inactive = matches!(state.condition, Condition::Inactive(_));
            if running.len() != usize::from(!is_inactive) || state.condition == Condition::Stopping
            {
                return Some(format!("{} programs play {}", running.len(), spec.name));
            }
            let threads = running.iter().flat_map(|(_, program)| &program.threads);
            for (&thread, attr) in threads.filter(|_| spec.governed.is_none()) {
                let is_contended = |kind| state.contended.contains(&(thread, kind));
                let policy = (attr.policy, attr.reset_on_fork);
                let is_policy = spec.command.role != Role::Linux
                    || policy == (spec.attr.policy, spec.attr.reset_on_fork);
                if !is_policy && !is_contended(SettingKind::Policy)
                    || attr.cpus != spec.attr.cpus && !is_contended(SettingKind::Cpus)
                {
                    return Some(format!("a thread of {} has {attr:?}", spec.name));
                }
            }
        }
        None
    }
}
