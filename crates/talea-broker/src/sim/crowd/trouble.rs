//! What happens to clients, threads, plugins and the daemon.

use super::scene::set_rules;
use super::{Crowd, Held, LONGEST_PERIOD, MS};
use crate::input::{ForeignAnswer, ForeignQuestion, SessionId};
use talea_core::{Policy, Priority, Span};
use talea_proto::message::SpecId;
use talea_proto::{Owner, Reply, Request, VERSION};

impl Crowd {
    /// Somebody ends, or becomes somebody else.
    pub(super) fn disturb(&mut self) {
        let now = self.world.now;
        match self.world.dice.below(10) {
            0 | 1 => {
                // live twin: kill -9 of a client with effects under way.
                if let Some(session) = self.any_session() {
                    self.world.hang_up(session);
                }
            }
            2 => {
                if let Some(pid) = self.any_process() {
                    self.world.kernel.end_process(pid, now);
                    let theirs =
                        self.world.lines.iter().filter(|(_, line)| line.process.pid == pid);
                    let theirs: Vec<SessionId> = theirs.map(|(&session, _)| session).collect();
                    for session in theirs {
                        // A child may have inherited the socket: then there is no hang-up.
                        if self.world.dice.chance(800) {
                            self.world.hang_up(session);
                        }
                    }
                }
            }
            3 | 4 => {
                // live twin: a thread that exits between the check and the apply.
                let tid = self.any_thread();
                if self.world.kernel.processes.contains_key(&tid) && self.world.dice.chance(800) {
                    return;
                }
                self.world.kernel.end_thread(tid, now);
            }
            5 | 6 => {
                // live twin: ns_last_pid written by root, so that the id comes back at once.
                let tid = self.any_thread();
                self.world.kernel.end_thread(tid, now);
                if let Some(tgid) = self.any_process()
                    && (!self.world.kernel.processes.contains_key(&tid) || tid == tgid)
                {
                    let own = self.world.kernel.ordinary();
                    self.world.kernel.spawn_thread(tid, tgid, own);
                }
            }
            7 => {
                // live twin: a client that waits for the answer to its attach; a throttled thread
                // that is detached.
                let tid = self.any_thread();
                let cpu = self.world.dice.below(4) as u32;
                if !self.world.kernel.threads.contains_key(&tid) {
                    return;
                }
                match self.world.dice.below(3) {
                    0 => self.world.kernel.wakes(tid),
                    1 => self.world.kernel.falls_asleep(tid, cpu),
                    _ => {
                        let debt = self.world.dice.pick(&[10, 100, 400, 900]) * MS;
                        self.world.kernel.owes(tid, now.saturating_add(Span::from_ns(debt)));
                    }
                }
            }
            _ => {
                if let Some(tgid) = self.any_process()
                    && self.world.kernel.threads.len() < 30
                {
                    let tid = self.world.kernel.free_id(50);
                    let mut own = self.world.kernel.ordinary();
                    if self.world.dice.chance(300) {
                        own.policy = self.world.dice.pick(&[
                            Policy::Rr(Priority(5)),
                            Policy::Other { nice: -3 },
                            Policy::Batch { nice: 4 },
                            Policy::Idle,
                        ]);
                    }
                    self.world.kernel.spawn_thread(tid, tgid, own);
                }
            }
        }
    }

    pub(super) fn pass_time(&mut self) {
        let ns = self.world.dice.pick(&[1, MS, 10 * MS, 60 * MS, 300 * MS, 2_000 * MS]);
        self.world.advance(Span::from_ns(ns));
    }

    pub(super) fn answer_plugins(&mut self) {
        let (faults, trouble) = (self.world.faults, self.trouble);
        let roll = self.world.dice.below(1000);
        let (low, verdict) = (self.world.dice.below(14), self.world.dice.pick(&[1, 1, 1, 0, -1]));
        if let Some(&(plugin, ..)) = self.world.questions.values().next()
            && trouble
            && roll < faults.crashes
        {
            return self.world.plugin_down(plugin);
        }
        let silent = trouble && roll >= 1000 - faults.silence;
        let lies = trouble && roll < faults.crashes + faults.lies;
        self.world.answer_one(|question| {
            let ForeignQuestion::Accept { cpus, epoch, .. } = question else {
                let told = ForeignAnswer { epoch: 0, verdict: 1, cpu: -1, priority: 0 };
                return (!silent).then_some(told);
            };
            let cpu = cpus.iter().last().map_or(-1, |cpu| cpu as i32);
            let priority = if lies { 99 } else { 40 + (low % 10) as i32 };
            let verdict = if cpu < 0 { -1 } else { verdict };
            (!silent).then_some(ForeignAnswer { epoch: *epoch, verdict, cpu, priority })
        });
    }

    /// The daemon dies, or its rules change.
    pub(super) fn upheaval(&mut self) {
        if self.world.dice.chance(500) {
            let mut setup = self.world.setup().clone();
            set_rules(&mut setup, &mut self.world.dice);
            return self.world.reload(setup);
        }
        self.take_replies();
        let owners_live = |crowd: &Crowd, held: &Held| {
            let line = crowd.world.lines.get(&held.session);
            held.owner != Owner::Thread
                && line.is_some_and(|line| crowd.world.kernel.lives(line.process))
        };
        let safe: Vec<(SpecId, Held, u32)> = self
            .held
            .iter()
            .filter(|(id, held)| !self.meddled.contains(id) && owners_live(self, held))
            .map(|(&id, held)| (id, *held, self.world.lines[&held.session].process.pid))
            .collect();
        for (id, held, _) in &safe {
            let recorded = self.world.file.values().any(|record| record.spec == *id);
            assert!(recorded, "{id:?} of a living client is not on record: {held:?}");
        }
        self.held.clear();
        self.seen.clear();
        self.count("restarts");
        self.meddled.clear();
        self.world.restart();
        self.lenient_until = self.world.now.saturating_add(LONGEST_PERIOD);
        // Clients come back and claim; some quotas let only a few in.
        for (id, held, pid) in safe {
            let uid = self.world.kernel.processes[&pid].1;
            if self.world.setup().quota.sessions_per_user <= self.world.broker.user_usage(uid).0
                || self.world.setup().quota.sessions <= self.world.broker.sessions()
            {
                continue;
            }
            let session = self.world.dial(pid, 100, &[]);
            self.world.send(session, Request::Hello { min: VERSION, max: VERSION }, None);
            self.world.send(session, Request::Claim { spec: id, token: held.token }, None);
            self.world.settle();
            let Some(line) = self.world.lines.get_mut(&session) else { continue };
            for (_, request, reply) in line.replies.drain(..) {
                if let Request::Claim { .. } = request {
                    // Its adopted thread may just be on its way to what the books say.
                    let Reply::Granted(granted) = reply else {
                        panic!("{id:?} was not adopted: {reply:?}")
                    };
                    *self.tally.entry("claims after a restart").or_default() += 1;
                    assert_eq!((granted.spec, granted.token), (id, held.token));
                    self.held.insert(id, Held { session, ..held });
                }
            }
        }
    }
}
