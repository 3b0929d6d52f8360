//! What is to be run, and whether it can be.

use crate::flow::Flow;
use crate::load::{Arrivals, Load};
use crate::mechanism::Wish;
use crate::native;
use crate::root::LEAST;
use crate::run::Failure;
use crate::stage::Band;
use crate::work::Body;
use std::fmt;
use std::sync::Arc;
use talea_core::cpus::MAX_CPUS;
use talea_core::machine::{Body as Node, Condition, LONGEST, Tree};
use talea_core::sched::Policy;
use talea_core::{Span, Time};
use talea_os::sched;

/// A task of a root: what comes, and what its jobs do.
pub struct TaskPlan<'a> {
    /// Jobs.
    pub load: Load,
    /// [`crate::work::spender`], or anybody's own.
    pub body: Body<'a>,
}

impl fmt::Debug for TaskPlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskPlan").field("load", &self.load).finish_non_exhaustive()
    }
}

/// A root of the system.
#[derive(Debug)]
pub struct RootPlan<'a> {
    /// Its tree.
    pub tree: &'a Tree,
    /// By task of its machine.
    pub tasks: Vec<TaskPlan<'a>>,
    /// What becomes of battery, mode and mask, in order of time.
    pub changes: Vec<(Time, Condition)>,
    /// By channel of the tree, if there are tasks whose jobs move tokens themselves
    /// ([`Load::tells`]). What lies in them when the run begins counts as activations at its zero;
    /// what has activated nobody lies in them when it is over.
    pub flows: Vec<Arc<Flow>>,
    /// The CPUs that it gets, as the kernel counts them; as many as the tree has, and nobody
    /// else's.
    pub cpus: Vec<u32>,
}

/// How a run is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long it is; at most [`LONGEST`].
    pub duration: Span,
    /// When it begins, on the machine's monotonic clock, for somebody who wants to be there;
    /// without it, and if its threads are not ready by then, a moment after they are.
    pub begin: Option<Time>,
    /// Priorities.
    pub band: Band,
    /// Entries of a dispatcher's record, made before the run begins; at most [`MOST_ROOM`].
    pub room: usize,
    /// Whether each worker's clock is read whenever it is let run and stopped
    /// ([`Consumed`](crate::mechanism::audit::Consumed)).
    pub audit: bool,
    /// Whether a monitor looks for holes on each CPU.
    pub monitor: bool,
    /// Whether threads get the priorities at all. Without them, and without any right, the
    /// machine's orders are obeyed by stopping threads; who else the kernel runs meanwhile is its
    /// own affair.
    pub priorities: bool,
    /// By what roots are to run.
    pub wish: Wish,
    /// Whether the kernel is asked to tell when programs wake; otherwise, and where it refuses,
    /// their clocks are looked at each millisecond.
    pub listen: bool,
    /// Whether the process's memory is locked when all threads are there, as far as it may be; it
    /// stays so.
    pub locks_memory: bool,
    /// For so long, at most, and no more than half of its sleep, a dispatcher is awake before it
    /// has something to do, looking at the clock; at most [`MOST_SPIN`].
    pub spin: Span,
    /// Up to how many switches of threads the kernel is asked to write down on each CPU; 0: none.
    pub switches: usize,
}

/// The largest record of a dispatcher: nearly a gigabyte.
pub const MOST_ROOM: usize = 1 << 24;

/// Whoever looks at the clock keeps everybody else from the CPU.
pub const MOST_SPIN: Span = Span::from_ns(1_000_000);

impl Options {
    /// A run of this length with everything that can be looked at.
    pub fn new(duration: Span) -> Options {
        let band = Band::default();
        Options {
            duration,
            begin: None,
            band,
            room: 1 << 16,
            audit: true,
            monitor: true,
            priorities: true,
            wish: Wish::Machine,
            listen: true,
            locks_memory: false,
            spin: Span::ZERO,
            switches: 0,
        }
    }
}
pub(super) fn check(roots: &[RootPlan<'_>], options: &Options) -> Result<(), Failure> {
    let wrong = |why: String| Err(Failure::Plan(why));
    if !options.band.is_sound() {
        return wrong(format!("{:?} is no band: 1 ≤ bottom, bottom + 2 ≤ top ≤ 98", options.band));
    }
    if options.duration > LONGEST {
        return wrong(format!("a run of {} is longer than any clock goes", options.duration));
    }
    if options.room > MOST_ROOM {
        return wrong(format!("a record with {} entries; at most {MOST_ROOM}", options.room));
    }
    let mut seen = Vec::new();
    for root in roots {
        can_be_driven(root.tree).map_err(Failure::Plan)?;
        if root.cpus.len() != root.tree.cpus as usize {
            return wrong(format!(
                "a root with {} CPUs was given {}",
                root.tree.cpus,
                root.cpus.len()
            ));
        }
        for (task, plan) in root.tasks.iter().enumerate() {
            if matches!(plan.load.arrivals, Arrivals::Every { period, .. } if period.is_zero()) {
                return wrong(format!("task {task} has a job every 0 ns"));
            }
        }
        if root.tasks.iter().any(|task| task.load.program.is_some()) {
            programs_can_run(root, options).map_err(Failure::Plan)?;
        }
        for &cpu in &root.cpus {
            if cpu as usize >= MAX_CPUS {
                return wrong(format!("CPU {cpu} is beyond the last one, {}", MAX_CPUS - 1));
            }
            if seen.contains(&cpu) {
                return wrong(format!("CPU {cpu} was given twice"));
            }
            seen.push(cpu);
        }
    }
    Ok(())
}

/// What the kernel is told of each root, where it is to produce the schedules.
pub(super) fn natives(
    roots: &[RootPlan<'_>],
    options: &Options,
) -> Result<Vec<Option<native::Plan>>, String> {
    if options.wish == Wish::Machine {
        return Ok(roots.iter().map(|_| None).collect());
    }
    if !options.priorities {
        return Err("without real-time priorities Linux runs whom it likes".to_owned());
    }
    let quantum =
        sched::quantum().map_err(|error| format!("the kernel's quantum can't be read: {error}"))?;
    let of = |root: &RootPlan<'_>| {
        let loads: Vec<&Load> = root.tasks.iter().map(|task| &task.load).collect();
        let end = Time::ZERO + options.duration;
        let plan = native::plan(root.tree, &loads, options.band.top, quantum, end);
        plan.map(Some).map_err(|why| format!("Linux alone can't run {}: {why}", name_of(root.tree)))
    };
    roots.iter().map(of).collect()
}

/// What a root is called.
fn name_of(tree: &Tree) -> &str {
    match tree.get(Tree::ROOT).map(|node| &node.body) {
        Some(Node::Scheduler(spec)) => &spec.name,
        _ => "a root",
    }
}

/// What the first task of a root that is a program is called.
fn program_of<'a>(root: &RootPlan<'a>) -> &'a str {
    let tasks = root.tree.nodes().filter_map(|(_, node)| match &node.body {
        Node::Task(task) => Some(task.name.as_str()),
        Node::Scheduler(_) => None,
    });
    let mut programs = tasks.zip(&root.tasks).filter(|(_, plan)| plan.load.program.is_some());
    programs.next().map_or("a task", |(name, _)| name)
}

/// Whether programs can be tasks of this root in this run.
fn programs_can_run(root: &RootPlan<'_>, options: &Options) -> Result<(), String> {
    if root.tree.cpus > 1 {
        let (name, task, cpus) = (name_of(root.tree), program_of(root), root.tree.cpus);
        Err(format!(
            "{name} has {cpus} CPUs, and its task {task} is a program, which stays on one: let it stand below a root that owns one"
        ))
    } else if !options.priorities {
        Err("programs need real-time priorities and groups of their own, which are root's"
            .to_owned())
    } else if !options.band.is_roomy() {
        Err(format!("{:?} leaves no place for programs: bottom + 3 ≤ top", options.band))
    } else {
        Ok(())
    }
}

/// Whether threads can do what the tree says.
fn can_be_driven(tree: &Tree) -> Result<(), String> {
    for (_, node) in tree.nodes() {
        match &node.body {
            Node::Task(_) => {}
            Node::Scheduler(spec) => {
                let quantum = match spec.policy {
                    Policy::RoundRobin { quantum } => Some(quantum),
                    _ => None,
                };
                let budget = spec.reservation.map(|reservation| reservation.budget);
                for (what, work) in [("quantum", quantum), ("budget", budget)] {
                    if let Some(work) = work.filter(|work| work.as_ns() < LEAST.as_ns()) {
                        let name = &spec.name;
                        return Err(format!(
                            "{name}: a {what} of {work} can't be kept; at least {LEAST}"
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}
