//! Reference model: a scheduler and a simulator, written from the definitions, independent of
//! Talea.
//!
//! It imports nothing from Talea and shares none of its data structures. Numbers are ticks, and
//! time advances one tick at a time. The model searches every queue, a list, completely, and
//! recomputes eligibility after every event. docs/model.md, sections 1 to 6, defines the order of
//! events. The servers are in [`server`], with their papers.

pub(crate) mod server;

use server::Server;
use std::collections::VecDeque;

/// Order of a scheduler's children.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    Edf,
    Fp,
    Rm,
    Dm,
    Criticality,
    Fifo,
    RoundRobin {
        quantum: u64,
    },
    Table {
        frame: u64,
        /// Slots: (start, end, child).
        slots: Vec<(u64, u64, usize)>,
        lending: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) order: Order,
    pub(crate) preemptive: bool,
    pub(crate) own_priority: Option<u64>,
    pub(crate) server: Option<server::Spec>,
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) period: u64,
    pub(crate) deadline: u64,
    pub(crate) priority: u64,
    pub(crate) criticality: u64,
    /// Whether the minimum separation of releases is enforced.
    pub(crate) enforced: bool,
    /// Number of jobs that may wait behind the current job.
    pub(crate) capacity: usize,
    pub(crate) arrivals: Vec<u64>,
    /// Costs in order, repeated from the start. Refused jobs consume no cost.
    pub(crate) costs: Vec<u64>,
    /// Accelerator that a job holds from its start to its end.
    pub(crate) accelerator: Option<usize>,
    /// Self-suspension (work, span): a job suspends itself after that work, unless its cost is no
    /// larger.
    pub(crate) suspends: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Group(Group),
    Task(Task),
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) parent: Option<usize>,
    pub(crate) kind: Kind,
}

/// Described system. Node 0 is the root, and parents precede their children.
#[derive(Clone, Debug)]
pub(crate) struct System {
    pub(crate) cpus: usize,
    /// Whether jobs stay on the CPU on which they were started.
    pub(crate) bound: bool,
    pub(crate) nodes: Vec<Node>,
    pub(crate) interference: Interference,
}

/// Stalls and overheads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interference {
    /// Stalls: (CPU, from, to).
    pub(crate) stalls: Vec<(usize, u64, u64)>,
    /// Overhead of each arrival, on the CPU where its task ran last.
    pub(crate) release: u64,
    /// Overhead of each switch to another job, on its CPU.
    pub(crate) decision: u64,
}

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// `ends[t]`: completion times of task `t`, in node order.
    pub(crate) ends: Vec<Vec<u64>>,
    /// `refused[t]`: number of refused jobs of task `t`.
    pub(crate) refused: Vec<u64>,
    /// `ticks[t][cpu]`: task that ran in tick `t`.
    pub(crate) ticks: Vec<Vec<Option<usize>>>,
}

impl System {
    pub(crate) fn children(&self, of: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].parent == Some(of)).collect()
    }

    pub(crate) fn tasks(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|&node| matches!(self.nodes[node].kind, Kind::Task(_)))
            .collect()
    }

    /// Runs from 0 up to and including the events at `until`.
    pub(crate) fn run(&self, until: u64) -> Outcome {
        let mut state = State::new(self);
        for now in 0..=until {
            state.instant(now);
            if now < until {
                state.tick();
            }
        }
        state.outcome
    }
}

#[derive(Clone, Debug)]
struct Job {
    release: u64,
    deadline: u64,
    released: bool,
    started: bool,
    left: u64,
    done: u64,
    /// Whether the job has suspended itself.
    slept: bool,
    /// End of the self-suspension.
    until: Option<u64>,
    /// Whether the job holds its accelerator.
    has: bool,
    /// Whether the job waits for its accelerator.
    stalled: bool,
}

#[derive(Clone, Debug)]
struct Criteria {
    deadline: u64,
    arrival: u64,
    period: u64,
    relative: u64,
    priority: u64,
    criticality: u64,
    yields: bool,
}

struct State<'a> {
    system: &'a System,
    children: Vec<Vec<usize>>,
    tasks: Vec<usize>,
    now: u64,
    outcome: Outcome,
    /// `jobs[n]`: pending jobs of node `n`. The index of the other lists is a node or CPU, too.
    jobs: Vec<VecDeque<Job>>,
    earliest: Vec<u64>,
    taken: Vec<usize>,
    eligible: Vec<bool>,
    since: Vec<u64>,
    stamp: u64,
    servers: Vec<Option<Server>>,
    pending: Vec<bool>,
    /// `current[n]`: current child of a nonpreemptive scheduler `n`.
    current: Vec<Option<usize>>,
    /// `turns[n]`: eligible children of a round-robin scheduler `n`, in the order of their turns.
    turns: Vec<Vec<usize>>,
    quantum: Vec<u64>,
    /// `owner[n]`: owner of the current slot of table `n`.
    owner: Vec<Option<usize>>,
    bound: Vec<Option<usize>>,
    last: Vec<usize>,
    /// `given[cpu]`: child of the root on a CPU; only for a root with several CPUs.
    given: Vec<Option<usize>>,
    /// `runs[cpu]`: node of the running task.
    runs: Vec<Option<usize>>,
    /// `ordered[cpu]`: task and job of the last order.
    ordered: Vec<Option<(usize, usize)>>,
    /// `owed[cpu]`: ticks of overhead that are pending.
    owed: Vec<u64>,
    /// `seen[n]`: CPU of the last job of node `n`.
    seen: Vec<usize>,
    /// Tasks waiting for an accelerator, in the order in which their waits began.
    waiting: Vec<usize>,
    /// Accelerators that a job holds.
    taken_up: Vec<usize>,
}

impl<'a> State<'a> {
    fn new(system: &'a System) -> State<'a> {
        let n = system.nodes.len();
        let server = |node: &Node| match &node.kind {
            Kind::Group(group) => group.server.map(Server::new),
            Kind::Task(_) => None,
        };
        let tasks = system.tasks();
        State {
            system,
            children: (0..n).map(|node| system.children(node)).collect(),
            now: 0,
            outcome: Outcome {
                ends: vec![vec![]; tasks.len()],
                refused: vec![0; tasks.len()],
                ticks: vec![],
            },
            tasks,
            jobs: vec![VecDeque::new(); n],
            earliest: vec![0; n],
            taken: vec![0; n],
            eligible: vec![false; n],
            since: vec![0; n],
            stamp: 0,
            servers: system.nodes.iter().map(server).collect(),
            pending: vec![false; n],
            current: vec![None; n],
            turns: vec![vec![]; n],
            quantum: vec![0; n],
            owner: vec![None; n],
            bound: vec![None; n],
            last: vec![0; n],
            given: vec![None; system.cpus],
            runs: vec![None; system.cpus],
            ordered: vec![None; system.cpus],
            owed: vec![0; system.cpus],
            seen: vec![0; n],
            waiting: vec![],
            taken_up: vec![],
        }
    }

    fn task(&self, node: usize) -> Option<&'a Task> {
        match &self.system.nodes[node].kind {
            Kind::Task(task) => Some(task),
            Kind::Group(_) => None,
        }
    }

    fn group(&self, node: usize) -> Option<&'a Group> {
        match &self.system.nodes[node].kind {
            Kind::Group(group) => Some(group),
            Kind::Task(_) => None,
        }
    }

    fn number(&self, task: usize) -> usize {
        self.tasks.iter().position(|&node| node == task).expect("a task")
    }

    /// Returns the ancestors, nearest first, each with its child on the path.
    fn path(&self, mut node: usize) -> Vec<(usize, usize)> {
        let mut path = vec![];
        while let Some(parent) = self.system.nodes[node].parent {
            path.push((parent, node));
            node = parent;
        }
        path
    }

    /// Processes all events of one instant in their order, and the decision.
    fn instant(&mut self, now: u64) {
        self.now = now;
        // Completions.
        for cpu in 0..self.runs.len() {
            if let Some(task) = self.runs[cpu]
                && self.jobs[task][0].left == 0
            {
                self.complete(cpu, task);
            } else if let Some(task) = self.runs[cpu]
                && let Some((after, length)) = self.task(task).expect("a task").suspends
                && self.jobs[task][0].done == after
                && !std::mem::replace(&mut self.jobs[task][0].slept, true)
            {
                self.jobs[task][0].until = Some(now + length);
                self.runs[cpu] = None;
                for (group, child) in self.path(task) {
                    self.current[group] = None;
                    if group == 0
                        && self.system.cpus > 1
                        && !self.group(0).expect("a group").preemptive
                    {
                        self.given
                            .iter_mut()
                            .filter(|given| **given == Some(child))
                            .for_each(|given| *given = None);
                    }
                }
                self.settle();
            }
        }
        // Exhausted budgets and ends of slots.
        for node in 0..self.servers.len() {
            if let Some(server) = &mut self.servers[node]
                && server.is_exhausted
            {
                server.exhausted(now);
                self.settle();
            }
        }
        if self.servers.iter().any(Option::is_some) {
            self.settle();
        }
        self.slots(|&(_, end, _), frame| (now % frame == end % frame && now > 0).then_some(None));
        for task in self.tasks.clone() {
            if let Some(job) = self.jobs[task].front_mut()
                && job.until == Some(now)
            {
                job.until = None;
                self.settle();
            }
        }
        // Arrivals, and jobs delayed by their separation.
        for task in self.tasks.clone() {
            let spec = self.task(task).expect("a task");
            for _ in spec.arrivals.iter().filter(|&&at| at == now) {
                self.arrive(task, spec);
                self.settle();
                self.owed[self.seen[task]] += self.system.interference.release;
            }
        }
        for task in self.tasks.clone() {
            if let Some(job) = self.jobs[task].front_mut()
                && job.release <= now
                && !std::mem::replace(&mut job.released, true)
            {
                self.settle();
            }
        }
        // Refills and starts of slots.
        for node in 0..self.servers.len() {
            if let Some(server) = &mut self.servers[node]
                && server.refill_at().is_some_and(|at| at <= now)
            {
                server.refill(now);
                self.settle();
            }
        }
        self.slots(|&(start, _, owner), frame| (now % frame == start).then_some(Some(owner)));
        self.decide();
    }

    fn slots(&mut self, edge: impl Fn(&(u64, u64, usize), u64) -> Option<Option<usize>>) {
        for node in 0..self.system.nodes.len() {
            if let Some(Group { order: Order::Table { frame, slots, .. }, .. }) = self.group(node)
                && let Some(owner) = slots.iter().find_map(|slot| edge(slot, *frame))
            {
                self.owner[node] = owner.map(|child| self.children[node][child]);
                self.settle();
            }
        }
    }

    fn arrive(&mut self, task: usize, spec: &Task) {
        if self.jobs[task].len() > spec.capacity {
            let number = self.number(task);
            self.outcome.refused[number] += 1;
            return;
        }
        let mut release = self.now;
        if spec.enforced {
            release = release.max(self.earliest[task]);
            self.earliest[task] = release + spec.period;
        }
        let left = spec.costs[self.taken[task] % spec.costs.len()];
        self.taken[task] += 1;
        let released = self.jobs[task].is_empty() && release <= self.now;
        self.jobs[task].push_back(Job {
            release,
            deadline: release + spec.deadline,
            released,
            started: false,
            left,
            done: 0,
            slept: false,
            until: None,
            has: false,
            stalled: false,
        });
    }

    fn complete(&mut self, cpu: usize, task: usize) {
        let had = self.jobs[task].pop_front().expect("a job").has;
        let number = self.number(task);
        self.outcome.ends[number].push(self.now);
        self.runs[cpu] = None;
        if let Some(next) = self.jobs[task].front_mut() {
            next.released = next.release <= self.now;
            if next.released {
                // The next job is queued behind the waiting ones.
                self.stamp += 1;
                self.since[task] = self.stamp;
            }
        }
        for (group, child) in self.path(task) {
            self.current[group] = None;
            if group == 0 && self.system.cpus > 1 {
                self.given[cpu] = None;
                if !self.has_started_job(child) {
                    self.bound[child] = None;
                }
            }
        }
        self.settle();
        if had {
            let accelerator = self.task(task).expect("a task").accelerator;
            self.taken_up.retain(|&other| Some(other) != accelerator);
            for other in self.waiting.clone() {
                if self.task(other).expect("a task").accelerator == accelerator {
                    self.waiting.retain(|&waiting| waiting != other);
                    self.jobs[other][0].stalled = false;
                    self.settle();
                }
            }
        }
    }

    fn has_started_job(&self, node: usize) -> bool {
        self.jobs[node].front().is_some_and(|job| job.started)
            || self.children[node].iter().any(|&child| self.has_started_job(child))
    }

    /// Recomputes eligibility, from the leaves to the root.
    fn settle(&mut self) {
        for node in (0..self.system.nodes.len()).rev() {
            let mut is = match self.group(node) {
                None => {
                    let may = |job: &Job| job.released && !job.stalled && job.until.is_none();
                    self.jobs[node].front().is_some_and(may)
                }
                Some(_) if node == 0 && self.system.cpus > 1 => true,
                Some(_) => self.head(node).is_some(),
            };
            if let Some(server) = &mut self.servers[node] {
                if is != self.pending[node] {
                    self.pending[node] = is;
                    if is { server.wake(self.now) } else { server.idle() }
                }
                is &= server.is_open();
            }
            let was = std::mem::replace(&mut self.eligible[node], is);
            let Some(parent) = self.system.nodes[node].parent else { continue };
            if is && !was {
                self.stamp += 1;
                self.since[node] = self.stamp;
                if let Order::RoundRobin { quantum } = self.group(parent).expect("a group").order {
                    self.turns[parent].push(node);
                    self.quantum[node] = quantum;
                }
            }
            if was && !is {
                self.turns[parent].retain(|&other| other != node);
                if self.current[parent] == Some(node) {
                    self.current[parent] = None;
                }
                for given in self.given.iter_mut().filter(|given| **given == Some(node)) {
                    *given = None;
                }
            }
        }
    }

    fn criteria(&self, node: usize) -> Criteria {
        let Some(group) = self.group(node) else {
            let (task, job) = (self.task(node).expect("a task"), &self.jobs[node][0]);
            return Criteria {
                deadline: job.deadline,
                arrival: job.release,
                period: task.period,
                relative: task.deadline,
                priority: task.priority,
                criticality: task.criticality,
                yields: false,
            };
        };
        let mut criteria = self.criteria(self.head(node).expect("eligible"));
        criteria.priority = group.own_priority.unwrap_or(criteria.priority);
        criteria.yields |= matches!(group.order, Order::Table { .. });
        if let Some(server) = &self.servers[node] {
            criteria.deadline = server.deadline();
        }
        criteria
    }

    /// Returns the sort key of a child of `group`. The child with the smallest key is first. Keys
    /// of different schedulers are not comparable.
    fn rank(&self, group: usize, child: usize) -> (u64, u64, usize) {
        let criteria = self.criteria(child);
        match &self.group(group).expect("a group").order {
            Order::Edf => (criteria.deadline, 0, child),
            Order::Rm => (criteria.period, 0, child),
            Order::Dm => (criteria.relative, 0, child),
            Order::Criticality => (255 - criteria.criticality, 0, child),
            Order::Fifo => (criteria.arrival, 0, child),
            Order::Fp => (
                (255 - criteria.priority) * 2 + u64::from(criteria.yields),
                self.since[child],
                child,
            ),
            Order::RoundRobin { .. } => {
                let turn = self.turns[group].iter().position(|&other| other == child);
                (turn.expect("eligible") as u64, 0, child)
            }
            Order::Table { .. } => (u64::from(self.owner[group] != Some(child)), 0, child),
        }
    }

    /// Returns the child that would run if the scheduler `group` had a CPU.
    fn head(&self, group: usize) -> Option<usize> {
        if self.current[group].is_some() {
            return self.current[group];
        }
        let is_strict = matches!(
            self.group(group).expect("a group").order,
            Order::Table { lending: false, .. }
        );
        let may = self.children[group].iter().copied().filter(|&child| self.eligible[child]);
        let may = may.filter(|&child| !is_strict || self.owner[group] == Some(child));
        may.min_by_key(|&child| self.rank(group, child))
    }

    /// Lets the selected tasks acquire their accelerators or blocks them, the most urgent first,
    /// until every selected task holds its accelerator.
    fn acquire_accelerators(&mut self) {
        loop {
            let mut first: Option<(usize, usize)> = None;
            if self.system.cpus > 1 {
                self.give();
            }
            for cpu in 0..self.system.cpus {
                let from = if self.system.cpus > 1 {
                    self.given[cpu]
                } else {
                    Some(0).filter(|_| self.eligible[0])
                };
                let Some(task) = from.and_then(|node| self.descend(node, false)) else { continue };
                let is_shut = self.task(task).expect("a task").accelerator.is_some()
                    && !self.jobs[task][0].has;
                let rank = |cpu: usize| self.given[cpu].map(|child| self.rank(0, child));
                if is_shut && first.is_none_or(|(other, _)| rank(cpu) < rank(other)) {
                    first = Some((cpu, task));
                }
            }
            let Some((cpu, task)) = first else { return };
            let accelerator = self.task(task).expect("a task").accelerator.expect("shut");
            if self.taken_up.contains(&accelerator) {
                self.jobs[task][0].stalled = true;
                self.waiting.push(task);
                self.settle();
                // No job below has started there: the CPU is not reserved for the others.
                let below = |other: usize| {
                    self.path(other).last().map(|last| last.1)
                        == self.path(task).last().map(|last| last.1)
                };
                let is_at_work =
                    self.runs[cpu].is_some_and(|other| self.eligible[other] && below(other));
                if self.system.cpus > 1
                    && !self.group(0).expect("a group").preemptive
                    && !is_at_work
                {
                    self.given[cpu] = None;
                }
            } else {
                self.taken_up.push(accelerator);
                self.jobs[task][0].has = true;
            }
        }
    }

    fn decide(&mut self) {
        if self.tasks.iter().any(|&task| self.task(task).expect("a task").accelerator.is_some()) {
            self.acquire_accelerators();
        }
        if self.system.cpus == 1 {
            self.runs[0] = if self.eligible[0] { self.descend(0, true) } else { None };
        } else {
            self.give();
            for cpu in 0..self.system.cpus {
                self.runs[cpu] = self.given[cpu].and_then(|child| self.descend(child, true));
                if let (Some(child), true) = (self.given[cpu], self.system.bound) {
                    self.bound[child] = Some(cpu);
                }
            }
        }
        for (cpu, task) in self.runs.clone().into_iter().enumerate() {
            let job = task.map(|task| (task, self.outcome.ends[self.number(task)].len()));
            if let (Some(task), true) = (task, job != self.ordered[cpu]) {
                self.owed[cpu] += self.system.interference.decision;
                self.seen[task] = cpu;
            }
            self.ordered[cpu] = job;
            if let Some(task) = task {
                self.jobs[task][0].started = true;
            }
        }
    }

    /// Returns the task that runs if `node` has a CPU. With `keep` the task runs, and nonpreemptive
    /// schedulers record their current child.
    fn descend(&mut self, mut node: usize, keep: bool) -> Option<usize> {
        while let Some(group) = self.group(node) {
            let head = self.head(node)?;
            if keep && !group.preemptive {
                self.current[node] = Some(head);
            }
            node = head;
        }
        Some(node)
    }

    /// Assigns CPUs to children of the root until no waiting child should run.
    fn give(&mut self) {
        let preemptive = self.group(0).expect("a group").preemptive;
        loop {
            let mut best: Option<(usize, usize)> = None;
            for &child in &self.children[0] {
                if !self.eligible[child] || self.given.contains(&Some(child)) {
                    continue;
                }
                let cpu = self.place(child);
                let fits = match self.given[cpu] {
                    None => true,
                    Some(other) => preemptive && self.rank(0, child) < self.rank(0, other),
                };
                if fits && best.is_none_or(|(best, _)| self.rank(0, child) < self.rank(0, best)) {
                    best = Some((child, cpu));
                }
            }
            let Some((child, cpu)) = best else { return };
            self.given[cpu] = Some(child);
            self.last[child] = cpu;
        }
    }

    /// Returns the CPU for a child of the root. The order of preference is the CPU to which its job
    /// is bound, its last CPU if idle, the first idle CPU, and the CPU of the least urgent child.
    fn place(&self, child: usize) -> usize {
        if let Some(cpu) = self.bound[child] {
            return cpu;
        }
        if self.given[self.last[child]].is_none() {
            return self.last[child];
        }
        if let Some(idle) = self.given.iter().position(Option::is_none) {
            return idle;
        }
        (0..self.given.len())
            .max_by_key(|&cpu| self.given[cpu].map(|other| self.rank(0, other)))
            .expect("a CPU")
    }

    /// Performs one tick of work, and charges it to the ancestors.
    fn tick(&mut self) {
        let number = |task: Option<usize>| task.map(|task| self.number(task));
        let row = self.runs.iter().map(|&task| number(task)).collect();
        self.outcome.ticks.push(row);
        for (cpu, task) in self.runs.clone().into_iter().enumerate() {
            let now = self.now;
            if self
                .system
                .interference
                .stalls
                .iter()
                .any(|&(at, from, to)| at == cpu && (from..to).contains(&now))
            {
                continue;
            }
            if self.owed[cpu] > 0 {
                self.owed[cpu] -= 1;
                continue;
            }
            let Some(task) = task else { continue };
            self.jobs[task][0].left -= 1;
            self.jobs[task][0].done += 1;
            for (group, child) in self.path(task) {
                if let Some(server) = &mut self.servers[group] {
                    server.charge(self.now + 1);
                }
                if let Order::RoundRobin { quantum } = self.group(group).expect("a group").order
                    && self.turns[group].len() > 1
                {
                    self.quantum[child] -= 1;
                    if self.quantum[child] == 0 {
                        self.quantum[child] = quantum;
                        self.turns[group].retain(|&other| other != child);
                        self.turns[group].push(child);
                    }
                }
            }
        }
    }
}
