//! The workers of one root at their desks, and the machine that moves them, if there is one.

use super::{Door, Failure, Live, MOST_ROOM, Options, RootPlan, RootReport};
use crate::dispatcher::{Effort, Timeline};
use crate::holes::SETTLED;
use crate::load::{Arrivals, Cursor, Load};
use crate::mechanism::audit::{Audited, Consumed};
use crate::mechanism::freeze::Freeze;
use crate::mechanism::{Chosen, Flip, Identity, Means, Mixed};
use crate::native::queue::Queue;
use crate::native::worker::{Closing, Diary};
use crate::native::{self, Plan, Promise};
use crate::office::Counter;
use crate::programs::{Actor, ProgramReport};
use crate::record;
use crate::root::Root;
use crate::stage::{Hold, Ranks, Stage};
use crate::work::Body;
use crate::worker;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use talea_core::machine::{Machine as Scheduler, TaskId, Tree};
use talea_core::{Span, Time};
use talea_os::machine::Machine;
use talea_os::pilock::PiLock;
use talea_os::sched::Policy;

/// Of one root.
pub(super) struct Cast {
    /// As the kernel counts.
    pub(super) cpus: Vec<u32>,
    pub(super) led: Led,
}

/// By whom.
pub(super) enum Led {
    /// A machine.
    Machine {
        live: Arc<PiLock<Live>>,
        /// Where workers may step it themselves.
        door: Option<Door>,
        chosen: Chosen,
    },
    /// Nobody.
    Native {
        promise: Promise,
        why: String,
        /// The longest period of a reservation.
        longest: Span,
        starts: Vec<Sender<Timeline>>,
        closing: Arc<Closing>,
        /// By task, when they have left.
        diaries: Mutex<Receiver<(TaskId, Diary)>>,
    },
}

/// How a monitor can stand above the workers of a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Above {
    /// By its priority.
    Priority,
    /// By a reservation with a shorter deadline.
    Reservation,
}

/// Whether nobody who runs is ever moved to a CPU that has just become free, on which a worker
/// steps: behind the newcomer that would wait with the lock. So it is where two children of the
/// root may use the same CPUs or none in common.
fn stays_free(tree: &Tree) -> bool {
    let sets = || tree.children(Tree::ROOT).map(|(_, node)| node.affinity().0);
    let all = u64::MAX >> (u64::BITS - tree.cpus.clamp(1, u64::BITS));
    sets().all(|one| sets().all(|other| one & all == other & all || one & other & all == 0))
}

impl Cast {
    pub(super) fn new<'scope, 'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        (root, machine, stage): (RootPlan<'a>, Scheduler, &Arc<Stage>),
        actors: Option<Vec<Option<Actor>>>,
        ranks: Ranks,
        options: &Options,
        workers: &mut Vec<ScopedJoinHandle<'scope, ()>>,
    ) -> Result<Cast, Failure> {
        let (bodies, loads): (Vec<_>, Vec<_>) =
            root.tasks.into_iter().map(|task| (task.body, task.load)).unzip();
        let door = Door::default();
        let identities = employ(scope, stage, &door, ranks, bodies, workers)?;
        // See `office`. A program stands above a worker, and would take the CPU from one that lets
        // it go in the middle of a step.
        let may_step = match ranks.hold {
            Hold::Nothing => false,
            _ if root.cpus.len() == 1 => actors.is_none(),
            // Not beside a dispatcher that is awake before its time, at a level that the lock can
            // lend but that takes no CPU from it.
            Hold::Own => actors.is_none() && options.spin.is_zero() && stays_free(root.tree),
            Hold::Given => false,
        };
        let tasks = identities.len();
        let flip = Flip::new(Arc::clone(stage), ranks, &identities);
        let freeze = actors.map(|actors| Freeze::new(Arc::clone(stage), actors));
        let mechanism = Audited::new(Mixed::new(flip, freeze), tasks, options.audit)?;
        let cpus = root.cpus.len();
        let programs = loads.iter().filter(|load| load.program.is_some()).count();
        let chosen = Chosen::for_orders(ranks.hold, tasks, programs);
        let mut live = Root::new(machine, cpus, mechanism, loads, root.changes, root.flows)?;
        // Whoever comes by itself stands by its grade. Nor is anybody awake before its time but a
        // dispatcher.
        if may_step && ranks.hold == Hold::Own && options.spin.is_zero() {
            live.let_doze(ranks.grades())?;
        }
        let live = Arc::new(PiLock::new(Live::new(live, cpus, tasks, options.room)));
        let led = Led::Machine { live, door: may_step.then_some(door), chosen };
        Ok(Cast { cpus: root.cpus, led })
    }

    /// Of a root that Linux runs alone.
    pub(super) fn native<'scope, 'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        (root, plan, stage): (RootPlan<'a>, Plan, &Arc<Stage>),
        options: &Options,
        workers: &mut Vec<ScopedJoinHandle<'scope, ()>>,
    ) -> Result<Cast, Failure> {
        let cpu = root.cpus[0];
        let (say, said) = channel();
        let (leave, diaries) = channel();
        let mut starts = Vec::new();
        let tasks = root.tasks.len();
        let closing = Arc::new(Closing::new(tasks));
        let Plan { promise, stands, rules, why } = plan;
        let period = |stand: &Policy| match stand {
            Policy::Deadline { period, .. } => *period,
            _ => Span::ZERO,
        };
        let longest = stands.iter().map(period).max().unwrap_or(Span::ZERO);
        for ((task, plan), (stand, rule)) in
            (0..).map(TaskId).zip(root.tasks).zip(stands.into_iter().zip(rules))
        {
            let room = room(&plan.load, options);
            let queue = Queue::new(rule, Cursor::new(plan.load), room);
            let (diary, body, stage) = (Diary::new(room), plan.body, Arc::clone(stage));
            let closing = Arc::clone(&closing);
            let (start, started) = channel();
            starts.push(start);
            let (say, leave) = (say.clone(), leave.clone());
            let name = format!("exec-task{}", task.0);
            workers.push(Builder::new().name(name).spawn_scoped(scope, move || {
                // Whoever asked has not gone.
                let _ = say.send((task, native::worker::enter(cpu, stand)));
                drop(say);
                let diary =
                    native::worker::live(task, (&stage, &closing), queue, diary, body, &started);
                let _ = leave.send((task, diary));
            })?);
        }
        drop(say);
        let mut tids = Vec::new();
        for (task, entered) in said.iter().take(tasks) {
            tids.push((task, entered.map_err(|error| refused(error, cpu, &promise))?));
        }
        tids.sort_unstable_by_key(|&(task, _)| task);
        assert_eq!(tids.len(), tasks, "each of them says so");
        *stage.workers.lock() = tids.into_iter().map(|(_, tid)| tid).collect();
        let led =
            Led::Native { promise, why, longest, starts, closing, diaries: Mutex::new(diaries) };
        Ok(Cast { cpus: root.cpus, led })
    }

    pub(super) fn above(&self) -> Above {
        match &self.led {
            Led::Native { promise: Promise::Deadlines(_), .. } => Above::Reservation,
            _ => Above::Priority,
        }
    }

    /// So long after they have been told when it begins, workers with reservations have all of
    /// their first budget, and so has their monitor: what they used on the way is of one before.
    pub(super) fn settles(&self) -> Span {
        match (&self.led, self.above()) {
            (Led::Native { longest, .. }, Above::Reservation) => (*longest).max(SETTLED),
            _ => Span::ZERO,
        }
    }

    /// Its workers learn when the zero of the time line is.
    pub(super) fn begin(&self, time: Timeline) {
        match &self.led {
            Led::Machine { live, door, .. } => {
                if let Some(door) = door {
                    door.set(Counter::new(Arc::clone(live), time)).expect("set once");
                }
            }
            Led::Native { starts, .. } => {
                for start in starts {
                    // One that fell has called everybody off.
                    let _ = start.send(time);
                }
            }
        }
    }

    /// What was said by whoever panicked in a step.
    pub(super) fn fell(&self) -> Option<String> {
        match &self.led {
            Led::Machine { live, .. } => live.lock().fell().map(str::to_owned),
            Led::Native { .. } => None,
        }
    }

    /// What became of it until `end`, when everybody has left.
    pub(super) fn report(
        &self,
        effort: Vec<Effort>,
        end: Time,
        programs: Vec<Option<ProgramReport>>,
    ) -> RootReport {
        let (live, chosen) = match &self.led {
            Led::Machine { live, chosen, .. } => (live, chosen.clone()),
            Led::Native { promise, why, diaries, .. } => {
                let diaries = diaries.lock().unwrap_or_else(PoisonError::into_inner);
                let mut diaries: Vec<(TaskId, Diary)> = diaries.try_iter().collect();
                diaries.sort_unstable_by_key(|&(task, _)| task);
                let diaries = diaries.into_iter().map(|(_, diary)| diary).collect();
                return self::alone(promise, why, diaries, end, effort, programs);
            }
        };
        let mut live = live.lock();
        let (record, lost) = record::merge(live.take_logs());
        let root = &live.root;
        root.leave_flows();
        let consumed = root.mechanism().consumed().to_vec();
        let mut stretches = [root.mechanism().stretches().all(), root.late()].concat();
        stretches.sort_by_key(|stretch| stretch.to);
        let (refused, tallies) = (root.refused(), root.tallies().to_vec());
        RootReport {
            chosen,
            native: None,
            record,
            lost,
            effort,
            consumed,
            refused,
            tallies,
            programs,
            stretches,
            ran: None,
            stood: None,
        }
    }
}

/// Of a root that Linux ran alone, from what its workers have kept.
fn alone(
    promise: &Promise,
    why: &str,
    diaries: Vec<Diary>,
    end: Time,
    effort: Vec<Effort>,
    programs: Vec<Option<ProgramReport>>,
) -> RootReport {
    let consumed = diaries.iter().map(|diary| Consumed::told(diary.ordered, diary.total)).collect();
    let (refused, lost) = (
        diaries.iter().map(|diary| diary.refusals).sum(),
        diaries.iter().map(|diary| diary.lost).sum(),
    );
    let (lives, noted) = diaries.into_iter().map(|diary| (diary.lives, diary.refused)).unzip();
    let course = native::Course { promise: promise.clone(), lives, refused: noted };
    RootReport {
        chosen: Chosen { means: Means::Native, why: why.to_owned() },
        record: Vec::new(),
        lost,
        effort,
        consumed,
        refused,
        tallies: course.tallies(),
        programs,
        stretches: course.stretches(None, end),
        ran: None,
        stood: None,
        native: Some(course),
    }
}

/// Jobs that a task may have.
fn room(load: &Load, options: &Options) -> usize {
    let jobs = match &load.arrivals {
        Arrivals::List(list) => list.len(),
        Arrivals::Every { period, .. } => {
            let jobs = options.duration.as_ns() / period.as_ns().max(1) + 2;
            usize::try_from(jobs).unwrap_or(MOST_ROOM)
        }
        Arrivals::Asked => 0,
    };
    jobs.min(options.room)
}

/// Why a worker did not get what it should have.
fn refused(error: io::Error, cpu: u32, promise: &Promise) -> Failure {
    let domain = || Some(Machine::probe().ok()?.domain_of(cpu)?.cpus);
    match (promise, error.kind()) {
        (Promise::Deadlines(_), io::ErrorKind::PermissionDenied) => match domain() {
            Some(domain) if domain.len() > 1 => Failure::Plan(format!(
                "SCHED_DEADLINE can't be pinned to CPU {cpu}: it shares its root domain with others ({domain}), and needs \
                 a cpuset partition of its own"
            )),
            _ => error.into(),
        },
        (Promise::Deadlines(_), io::ErrorKind::ResourceBusy) => Failure::Plan(format!(
            "the kernel's own admission has no room for the reservations on CPU {cpu}, budgets in their deadlines: one CPU holds 90 % \
             (95 % before Linux 6.12)"
        )),
        _ => error.into(),
    }
}

/// A worker for each body, at its desk.
fn employ<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    stage: &Arc<Stage>,
    door: &Door,
    ranks: Ranks,
    bodies: Vec<Body<'a>>,
    workers: &mut Vec<ScopedJoinHandle<'scope, ()>>,
) -> Result<Vec<Identity>, Failure> {
    let (say, said) = channel();
    let count = bodies.len();
    for (task, body) in (0..).map(TaskId).zip(bodies) {
        let (stage, door, say) = (Arc::clone(stage), Arc::clone(door), say.clone());
        let name = format!("exec-task{}", task.0);
        workers.push(Builder::new().name(name).spawn_scoped(scope, move || {
            worker::live(task, &stage, &door, ranks, body, move |identity| {
                // Whoever asked has not gone.
                let _ = say.send((task, identity));
            });
        })?);
    }
    drop(say);
    let mut identities: Vec<Option<Identity>> = vec![None; count];
    for (task, identity) in said.iter().take(count) {
        identities[task.0 as usize] = Some(identity?);
    }
    let identities: Vec<Identity> = identities.into_iter().flatten().collect();
    assert_eq!(identities.len(), count, "each of them says so");
    let tids = identities.iter().map(|identity| identity.tid).collect();
    *stage.workers.lock() = tids;
    Ok(identities)
}
