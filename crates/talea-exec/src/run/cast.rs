//! The workers of one root at their desks, and the machine that moves them.

use super::{Door, Failure, Live, Options, RootPlan, RootReport};
use crate::dispatcher::Effort;
use crate::mechanism::audit::Audited;
use crate::mechanism::freeze::Freeze;
use crate::mechanism::{Flip, Identity, Mixed};
use crate::programs::{Actor, ProgramReport};
use crate::record;
use crate::root::Root;
use crate::stage::{Hold, Ranks, Stage};
use crate::work::Body;
use crate::worker;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{Builder, Scope, ScopedJoinHandle};
use talea_core::machine::{Machine, TaskId};
use talea_os::pilock::PiLock;

/// Of one root.
pub(super) struct Cast {
    /// As the kernel counts.
    pub(super) cpus: Vec<u32>,
    pub(super) live: Arc<PiLock<Live>>,
    /// Where workers may step the machine themselves.
    pub(super) door: Option<Door>,
}

impl Cast {
    pub(super) fn new<'scope, 'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        (root, machine, stage): (RootPlan<'a>, Machine, &Arc<Stage>),
        actors: Option<Vec<Option<Actor>>>,
        ranks: Ranks,
        options: &Options,
        workers: &mut Vec<ScopedJoinHandle<'scope, ()>>,
    ) -> Result<Cast, Failure> {
        let (bodies, loads): (Vec<_>, Vec<_>) =
            root.tasks.into_iter().map(|task| (task.body, task.load)).unzip();
        let door = Door::default();
        let identities = employ(scope, stage, &door, ranks, bodies, workers)?;
        // Of a root with one CPU: see `office`. A program stands above a worker, and would take the CPU from one that lets it go in
        // the middle of a step.
        let may_step = root.cpus.len() == 1 && ranks.hold != Hold::Nothing && actors.is_none();
        let tasks = identities.len();
        let flip = Flip::new(Arc::clone(stage), ranks, &identities);
        let freeze = actors.map(|actors| Freeze::new(Arc::clone(stage), actors));
        let mechanism = Audited::new(Mixed::new(flip, freeze), tasks, options.audit)?;
        let cpus = root.cpus.len();
        let live = Root::new(machine, cpus, mechanism, loads, root.changes, root.flows)?;
        let live = Arc::new(PiLock::new(Live::new(live, cpus, tasks, options.room)));
        Ok(Cast { cpus: root.cpus, live, door: may_step.then_some(door) })
    }

    /// What became of it, when all its dispatchers have left.
    pub(super) fn report(&self, effort: Vec<Effort>, programs: Vec<Option<ProgramReport>>) -> RootReport {
        let mut live = self.live.lock();
        let (record, lost) = record::merge(live.take_logs());
        let root = &live.root;
        let consumed = root.mechanism().consumed().to_vec();
        let mut stretches = [root.mechanism().stretches().all(), root.late()].concat();
        stretches.sort_by_key(|stretch| stretch.to);
        let (refused, tallies) = (root.refused(), root.tallies().to_vec());
        RootReport { record, lost, effort, consumed, refused, tallies, programs, stretches, ran: None }
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
