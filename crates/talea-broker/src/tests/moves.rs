//! Order of priority changes: the order of attached threads is never inverted, not even between two
//! applies (R7, R15, R17).

use super::stage::{Words, setup, timed, urgent, world_of};
use crate::input::SessionId;
use crate::sim::{Rng, Simulation, Target};
use std::collections::BTreeMap;
use talea_core::setup::{Band, PluginKind, RmOptions, RmTest};
use talea_core::{Policy, Priority};
use talea_proto::message::SpecId;
use talea_proto::{Reply, Request, Task, ThreadRef};

/// An attached thread whose client was informed, with its importance: a larger value has
/// precedence.
struct Member {
    tid: u32,
    importance: i64,
}

struct Scene {
    world: Simulation,
    client: SessionId,
    members: BTreeMap<SpecId, Member>,
    /// Spec whose change is in progress; the change may invert the order of its thread.
    changing: Option<SpecId>,
    /// Maximum number of threads that one request has moved.
    moves: u32,
}

fn priority(world: &Simulation, tid: u32) -> u8 {
    match world.attr_of(tid).policy {
        Policy::Fifo(Priority(level)) | Policy::Rr(Priority(level)) => level,
        other => panic!("thread {tid} is attached and has {other:?}"),
    }
}

impl Scene {
    fn new(plugin: &str, levels: u8) -> Scene {
        let mut setup = setup(&[plugin], 1);
        setup.plugins[0].band = Some(Band { low: Priority(50), high: Priority(49 + levels) });
        if let PluginKind::Rm(options) = &mut setup.plugins[0].kind {
            *options = RmOptions { test: RmTest::Necessary, refuse_sharing: false };
        }
        let mut world = world_of(setup, 1);
        let client = world.connect(1000);
        Scene { world, client, members: BTreeMap::new(), changing: None, moves: 0 }
    }

    /// Returns the priorities of all members, in order of their ids.
    fn levels(&self) -> Vec<u8> {
        self.members.values().map(|member| priority(&self.world, member.tid)).collect()
    }

    /// Checks every pair: the two share a level or are in order; if they are apart before and
    /// after, they never share a level in between.
    fn check(&self, course: &[Vec<u8>]) {
        let (first, last) = (&course[0], &course[course.len() - 1]);
        let others =
            || self.members.iter().enumerate().filter(|(_, (id, _))| Some(**id) != self.changing);
        for (u, (_, upper)) in others() {
            for (l, (_, lower)) in
                others().filter(|(_, (_, lower))| lower.importance < upper.importance)
            {
                let apart = first[u] > first[l] && last[u] > last[l];
                for levels in course {
                    let (high, low) = (levels[u], levels[l]);
                    let in_order = high > low || (high == low && !apart);
                    assert!(in_order, "{}: {high}, {}: {low}", upper.importance, lower.importance);
                }
            }
        }
    }

    /// Sends a request, and checks all threads after each kernel operation.
    fn watch(&mut self, request: Request, target: Option<Target>) -> Reply {
        self.world.send(self.client, request, target);
        self.world.read_one(self.client);
        let mut course = vec![self.levels()];
        while self.world.run_effect() || self.world.deliver_input() {
            course.push(self.levels());
        }
        course.dedup();
        self.moves = self.moves.max(course.len() as u32 - 1);
        self.check(&course);
        let line = self.world.connections.get_mut(&self.client).expect("it is open");
        line.replies.pop_front().expect("every request is answered").2
    }
}

fn run(plugin: &str, levels: u8, seed: u64, task: fn(u64) -> (Task, i64)) -> u32 {
    let mut rng = Rng::Seed(seed);
    let mut scene = Scene::new(plugin, levels);
    let pid = scene.world.tid_of(scene.client);
    for round in 0..150 {
        let (task, importance) = task(1 + rng.below(60));
        let ids: Vec<SpecId> = scene.members.keys().copied().collect();
        match rng.below(10) {
            0..4 if !ids.is_empty() && ids.len() > 12 || ids.len() > 30 => {
                let spec = rng.pick(&ids);
                let gone = scene.members.remove(&spec).expect("the spec is a member");
                assert_eq!(scene.watch(Request::Release(spec), None), Reply::Done);
                scene.world.kernel.end_thread(gone.tid, scene.world.now);
            }
            0..7 => {
                let tid = 1000 + round;
                let own = scene.world.kernel.ordinary();
                scene.world.kernel.spawn_thread(tid, pid, own);
                let Reply::Granted(granted) = scene.watch(Request::Create(task), None) else {
                    continue;
                };
                let attach = Request::Attach { spec: granted.spec, thread: ThreadRef::Pidfd };
                assert_eq!(scene.watch(attach, Some(Target::Thread(tid))), Reply::Done);
                scene.members.insert(granted.spec, Member { tid, importance });
                scene.check(&[scene.levels()]);
            }
            _ if !ids.is_empty() => {
                let spec = rng.pick(&ids);
                scene.changing = Some(spec);
                let said = scene.watch(Request::Change { spec, task }, None);
                scene.changing = None;
                // From now on the new importance applies.
                if let Reply::Granted(_) = said {
                    scene.members.get_mut(&spec).expect("the spec is a member").importance =
                        importance;
                }
                scene.check(&[scene.levels()]);
            }
            _ => {}
        }
    }
    scene.world.check_idle(false);
    scene.moves
}

#[test]
fn retif_w4_r15_running_rm_threads_keep_their_order_at_every_instant() {
    let task = |n: u64| (timed(0, n * 1000), -(n as i64));
    for levels in [1, 2, 4, 8, 30] {
        let most = (0..2).map(|seed| run("rm", levels, seed, task)).max();
        assert!(most > Some(1) || levels <= 2, "never two at a time with {levels} levels");
    }
}

#[test]
fn retif_w5_r17_running_fp_and_rr_threads_keep_their_order_at_every_instant() {
    let task = |n: u64| (urgent(n as u8), n as i64);
    for plugin in ["fp", "rr"] {
        for levels in [1, 2, 4, 8, 30] {
            let most = (0..2).map(|seed| run(plugin, levels, seed, task)).max();
            assert!(most > Some(1) || levels <= 2, "never two at a time with {levels} levels");
        }
    }
}

#[test]
fn retif_w4_the_periods_that_retif_inverted_keep_their_order() {
    let mut world = world_of(setup(&["rm"], 1), 1);
    let client = world.connect(1000);
    let pid = world.tid_of(client);
    let mut tids = Vec::new();
    for (tid, period_ms) in [(500, 10), (501, 100), (502, 50), (503, 5)] {
        let own = world.kernel.ordinary();
        world.kernel.spawn_thread(tid, pid, own);
        world.attached(client, timed(500, period_ms * 1000), tid);
        tids.push((period_ms, tid));
    }
    tids.sort_unstable();
    let levels: Vec<u8> = tids.iter().map(|&(_, tid)| priority(&world, tid)).collect();
    assert!(levels.is_sorted_by(|a, b| a > b), "shorter periods run first: {levels:?}");
}
