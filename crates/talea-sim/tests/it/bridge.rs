//! Conversion of the reference model's description into a tree and a workload, and their
//! simulation.

use crate::reference::server::Kind as Server;
use crate::reference::{Group, Kind, Order, Outcome, System, Task};
use talea_core::criteria::Overrides;
use talea_core::engine::{
    AcceleratorId, Cpu, Migration, NodeId, NodeSpec, SchedulerSpec, TaskId, TaskSpec, Tree, Version,
};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::{Reservation, ServerKind};
use talea_core::workload::{Environment, Stall};
use talea_core::{Span, Time, Work};
use talea_sim::{Arrivals, Completion, Cost, Overheads, Simulation, Sink, Source, Workload};

fn policy(of: &Order) -> PolicySpec {
    match of {
        Order::Edf => PolicySpec::Edf,
        Order::Fp => PolicySpec::FixedPriority,
        Order::Rm => PolicySpec::RateMonotonic,
        Order::Dm => PolicySpec::DeadlineMonotonic,
        Order::Criticality => PolicySpec::CriticalityMonotonic,
        Order::Fifo => PolicySpec::Fifo,
        Order::RoundRobin { quantum } => {
            PolicySpec::RoundRobin { quantum: Work::from_ns(*quantum) }
        }
        Order::Table { frame, slots, lending } => PolicySpec::Partitions {
            frame: Span::from_ns(*frame),
            slots: slots
                .iter()
                .map(|&(start, end, owner)| Slot {
                    start: Span::from_ns(start),
                    end: Span::from_ns(end),
                    owner: owner as u32,
                })
                .collect(),
            lending: *lending,
        },
    }
}

fn scheduler(of: &Group) -> SchedulerSpec {
    let mut spec = SchedulerSpec::new("group", policy(&of.order));
    spec.preemptive = of.preemptive;
    spec.overrides = Overrides {
        priority: of.own_priority.map(|priority| priority as u8),
        ..Overrides::default()
    };
    spec.reservation = of.server.map(|server| Reservation {
        kind: match server.kind {
            Server::Polling => ServerKind::Polling,
            Server::Deferrable => ServerKind::Deferrable,
            Server::Sporadic => ServerKind::Sporadic,
            Server::HardCbs => ServerKind::HardCbs,
            Server::SoftCbs => ServerKind::SoftCbs,
        },
        budget: Work::from_ns(server.budget),
        period: Span::from_ns(server.period),
        deadline: Some(Span::from_ns(server.deadline)),
        offset: Span::from_ns(server.offset),
    });
    spec
}

fn task(of: &Task) -> (TaskSpec, Source) {
    let mut spec = TaskSpec::new("task", Span::from_ns(of.period));
    spec.deadline = Span::from_ns(of.deadline);
    spec.priority = of.priority as u8;
    spec.criticality = of.criticality as u8;
    spec.enforced = of.enforced;
    spec.backlog.capacity = of.capacity as u32;
    if let Some(accelerator) = of.accelerator {
        let accelerators = vec![AcceleratorId(accelerator as u32)];
        spec.versions = vec![Version { accelerators, ..Version::new("version") }];
    }
    let mut cost = Cost::List(of.costs.iter().map(|&cost| Work::from_ns(cost)).collect());
    if let Some((after, length)) = of.suspends {
        cost = cost.suspending(Work::from_ns(after), Span::from_ns(length));
    }
    let arrivals = Arrivals::List(of.arrivals.iter().map(|&at| Time::from_ns(at)).collect());
    let source = Source { arrivals, cost };
    (spec, source)
}

/// Builds the tree, with the model's node numbers, and the workload.
pub(crate) fn tree(of: &System) -> (Tree, Workload) {
    let mut workload = Workload::default();
    let mut tree = None::<Tree>;
    for node in &of.nodes {
        match (&node.kind, &mut tree) {
            (Kind::Group(root), None) => tree = Some(Tree::new(of.cpus as u32, scheduler(root))),
            (Kind::Task(_), None) => panic!("the root is a group"),
            (Kind::Group(group), Some(tree)) => {
                tree.scheduler(
                    NodeId(node.parent.expect("below the root") as u32),
                    scheduler(group),
                );
            }
            (Kind::Task(of), Some(tree)) => {
                let (spec, source) = task(of);
                tree.task(NodeId(node.parent.expect("below the root") as u32), spec);
                workload.sources.push(source);
            }
        }
    }
    let mut tree = tree.expect("a root");
    tree.inheritance = false;
    for _ in 0..2 {
        tree.accelerator("accelerator");
    }
    tree.migration = if of.bound { Migration::JobBoundaries } else { Migration::Anytime };
    assert!(matches!(tree.get(Tree::ROOT).map(|root| &root.spec), Some(NodeSpec::Scheduler(_))));
    (tree, workload)
}

fn surroundings(of: &System) -> Environment {
    let stall = |&(cpu, from, to): &(usize, u64, u64)| Stall {
        cpu: Cpu(cpu as u32),
        from: Time::from_ns(from),
        to: Time::from_ns(to),
    };
    Environment {
        overheads: Overheads {
            release: Span::from_ns(of.interference.release),
            decision: Span::from_ns(of.interference.decision),
            ..Overheads::default()
        },
        stalls: of.interference.stalls.iter().map(stall).collect(),
        changes: Vec::new(),
    }
}

/// Sink with the output format of the reference model.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) outcome: Outcome,
    runs: Vec<Option<usize>>,
}

impl Record {
    pub(crate) fn new(tasks: usize, cpus: usize) -> Record {
        let outcome = Outcome { ends: vec![vec![]; tasks], refused: vec![0; tasks], ticks: vec![] };
        Record { outcome, runs: vec![None; cpus] }
    }

    /// Extends the running intervals to `now`.
    pub(crate) fn fill(&mut self, now: Time) {
        while (self.outcome.ticks.len() as u64) < now.as_ns() {
            self.outcome.ticks.push(self.runs.clone());
        }
    }
}

impl Sink for Record {
    fn on_refusal(&mut self, _now: Time, task: TaskId) {
        self.outcome.refused[task.0 as usize] += 1;
    }

    fn on_dispatch(&mut self, now: Time, cpu: Cpu, task: TaskId, _job: u64) {
        self.fill(now);
        // A migrating task has left its old CPU.
        for other in self.runs.iter_mut().filter(|other| **other == Some(task.0 as usize)) {
            *other = None;
        }
        self.runs[cpu.0 as usize] = Some(task.0 as usize);
    }

    fn on_idle(&mut self, now: Time, cpu: Cpu) {
        self.fill(now);
        self.runs[cpu.0 as usize] = None;
    }

    fn on_completion(&mut self, job: &Completion) {
        let ends = &mut self.outcome.ends[job.task.0 as usize];
        assert_eq!(ends.len() as u64, job.job, "jobs of one task end in order");
        ends.push(job.end.as_ns());
    }
}

/// Returns the simulator's result, with an audit after every instant.
pub(crate) fn simulate(system: &System, until: u64) -> Outcome {
    simulate_with(system, until, |_| {})
}

/// Simulates after a change to the tree that the reference model cannot express.
pub(crate) fn simulate_with(system: &System, until: u64, change: impl Fn(&mut Tree)) -> Outcome {
    let (mut tree, workload) = tree(system);
    change(&mut tree);
    let engine = tree.build().unwrap_or_else(|wrong| panic!("{wrong:?}: {system:#?}"));
    let mut simulation = Simulation::new(engine, system.cpus as u32, &workload)
        .with_environment(&surroundings(system));
    let mut record = Record::new(workload.sources.len(), system.cpus);
    for now in 0..=until {
        simulation.run(Time::from_ns(now + 1), &mut record);
        if let Err(wrong) = simulation.engine().audit(Time::from_ns(now)) {
            panic!("at {now}, {wrong}: {system:#?}");
        }
    }
    record.fill(Time::from_ns(until));
    record.outcome
}
