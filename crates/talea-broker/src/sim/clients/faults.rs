//! Random faults of clients, threads, plugins and the daemon.

use super::configs::set_rules;
use super::{Clients, HeldSpec, MAX_PERIOD};
use crate::input::{ForeignAnswer, ForeignCall, SessionId, Uids};
use crate::sim::MS;
use talea_core::{Attr, CpuSet, Policy, Priority, Span, Work};
use talea_proto::message::SpecId;
use talea_proto::refusal::{PLUGIN_TEXT_MAX, PluginText};
use talea_proto::{Code, Owner, Reply, Request, VERSION};

impl Clients {
    /// Executes a random event or fault of a client, a thread or a process.
    pub(super) fn disturb(&mut self) {
        let now = self.world.now;
        match self.world.rng.below(15) {
            0 | 1 => {
                // live counterpart: kill -9 of a client with effects in progress.
                if let Some(session) = self.any_session() {
                    self.world.close_connection(session);
                }
            }
            2 => {
                if let Some(pid) = self.any_process() {
                    self.world.kernel.end_process(pid, now);
                    let theirs = self
                        .world
                        .connections
                        .iter()
                        .filter(|(_, connection)| connection.process.pid == pid);
                    let theirs: Vec<SessionId> = theirs.map(|(&session, _)| session).collect();
                    for session in theirs {
                        // A child may have inherited the socket: then no end of the connection is
                        // reported.
                        if self.world.rng.chance(800) {
                            self.world.close_connection(session);
                        }
                    }
                }
            }
            3 | 4 => {
                // live counterpart: a thread that exits between the check and the apply.
                let tid = self.any_thread();
                if self.world.kernel.processes.contains_key(&tid) && self.world.rng.chance(800) {
                    return;
                }
                self.world.kernel.end_thread(tid, now);
            }
            5 | 6 => {
                // live counterpart: ns_last_pid written by root, so that the id is reused at once.
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
                // live counterpart: a client that waits for the reply to its attach; a throttled
                // thread that is detached.
                let tid = self.any_thread();
                let cpu = self.world.rng.below(4) as u32;
                if !self.world.kernel.threads.contains_key(&tid) {
                    return;
                }
                match self.world.rng.below(3) {
                    0 => self.world.kernel.wake(tid),
                    1 => self.world.kernel.put_to_sleep(tid, cpu),
                    _ => {
                        let overrun = self.world.rng.pick(&[10, 100, 400, 900]) * MS;
                        self.world
                            .kernel
                            .set_overrun(tid, now.saturating_add(Span::from_ns(overrun)));
                    }
                }
            }
            // live counterpart: a set-user-id program, a service that calls seteuid, and back.
            10 | 11 => {
                let tid = self.any_thread();
                let Some(thread) = self.world.kernel.threads.get(&tid) else { return };
                let own = self.world.kernel.processes.get(&thread.tgid).map_or(0, |own| own.1);
                let other = self.world.rng.pick(&[0, 1000, 1001, own, own, own]);
                let uids = self.world.rng.pick(&[
                    Uids::all(other),
                    Uids { effective: other, ..Uids::all(own) },
                    Uids { real: own, ..Uids::all(other) },
                    Uids { saved: other, ..Uids::all(own) },
                ]);
                self.world.kernel.change_credentials(tid, uids, now);
                self.count("credentials changed");
                // Without the kernel's events, an inspection finds the change.
                if self.world.rng.chance(500) {
                    self.world.report_credentials(tid);
                }
            }
            // live counterpart: taskset, chrt and sched_setattr while attached.
            12..15 => {
                // Mostly a thread that was changed before: a second departure has another effect.
                let recorded = self.world.file.values().filter_map(|record| record.thread);
                let attached: Vec<u32> = recorded.map(|thread| thread.tid).collect();
                let again = self.restless.filter(|tid| attached.contains(tid));
                let tid = match again.filter(|_| self.world.rng.chance(700)) {
                    Some(tid) => tid,
                    None if attached.is_empty() => self.any_thread(),
                    None => self.world.rng.pick(&attached),
                };
                self.restless = Some(tid);
                let Some(thread) = self.world.kernel.threads.get(&tid) else { return };
                let mut attr = thread.attr;
                let cpu = self.world.rng.below(2) as u32;
                match (self.world.rng.below(8), attr.policy) {
                    (0..5, _) => attr.cpus = CpuSet::single(cpu),
                    (5, Policy::Fifo(priority)) if priority.0 > 1 => {
                        attr.policy = Policy::Fifo(Priority(priority.0 - 1));
                    }
                    (5 | 6, _) => attr.policy = Policy::Other { nice: 5 },
                    _ => {
                        (attr.policy, attr.reset_on_fork) = (Policy::Fifo(Priority(7)), false);
                    }
                }
                self.world.kernel.set_outside(tid, attr, now);
                self.count("set outside");
                // Again after the inspection.
                if self.world.rng.chance(300) {
                    self.world.advance(Span::from_ns(200 * MS));
                    self.world.run_until_idle();
                    if let Some(thread) = self.world.kernel.threads.get(&tid) {
                        let moved = Attr { cpus: attr.cpus, ..thread.attr };
                        self.world.kernel.set_outside(tid, moved, self.world.now);
                    }
                }
            }
            _ => {
                if let Some(tgid) = self.any_process()
                    && self.world.kernel.threads.len() < 30
                {
                    let tid = self.world.kernel.free_id(50);
                    let mut own = self.world.kernel.ordinary();
                    if self.world.rng.chance(300) {
                        own.policy = self.world.rng.pick(&[
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
        let ns = self.world.rng.pick(&[1, MS, 10 * MS, 60 * MS, 300 * MS, 2_000 * MS]);
        self.world.advance(Span::from_ns(ns));
    }

    pub(super) fn answer_plugins(&mut self) {
        let (faults, trouble) = (self.world.faults, self.trouble);
        let roll = self.world.rng.below(1000);
        let (low, verdict) = (self.world.rng.below(14), self.world.rng.pick(&[1, 1, 1, 0, -1]));
        if let Some(&(plugin, ..)) = self.world.calls.values().next()
            && trouble
            && roll < faults.crashes
        {
            return self.world.fail_host(plugin);
        }
        let restarted = self.world.hosts.ended.first().copied();
        if let Some(plugin) = restarted.filter(|_| roll.is_multiple_of(8)) {
            self.world.restart_host(plugin);
        }
        let is_deadline = self.world.is_deadline_called();
        self.rank_specs(trouble && roll < faults.crashes + faults.out_of_bounds);
        let granted = self.world.rng.below(5);
        let text = [self.world.rng.below(256) as u8; PLUGIN_TEXT_MAX];
        let silent = trouble && roll >= 1000 - faults.no_answer;
        let out_of_bounds = trouble && roll < faults.crashes + faults.out_of_bounds;
        self.world.answer_call(|question| {
            let ForeignCall::Accept { task, cpus, epoch, .. } = question else {
                let answer = ForeignAnswer {
                    epoch: 0,
                    verdict: 1,
                    cpu: -1,
                    priority: 0,
                    ..ForeignAnswer::default()
                };
                return (!silent).then_some(answer);
            };
            let cpu = cpus.iter().last().map_or(-1, |cpu| cpu as i32);
            let priority = if out_of_bounds { 99 } else { 40 + (low % 10) as i32 };
            let verdict = if cpu < 0 { -1 } else { verdict };
            // Between the runtime and the desired one; in trouble perhaps outside.
            let runtime_ns = match (task.params.runtime, task.params.desired) {
                (Some(least), Some(most)) => {
                    let (least, most) = (least.as_ns(), most.as_ns());
                    [0, least, most, least.midpoint(most), most.saturating_add(1)]
                        [granted.min(3 + u64::from(out_of_bounds)) as usize]
                }
                (None, None) if is_deadline => 1_000 * (2 + granted),
                _ => 0,
            };
            let (deadline_ns, period_ns) = match task.params.period {
                None if is_deadline => ([0, 3 * MS][low as usize % 2], 10 * MS),
                Some(period) if is_deadline && low == 5 => (0, period.as_ns() / 2),
                _ => (0, 0),
            };
            // The plugin knows what the kernel does not admit.
            let tight = is_deadline && !trouble && low < 5;
            let verdict = if tight { -1 } else { verdict };
            let text = PluginText::from_untrusted(&text);
            (!silent).then_some(ForeignAnswer {
                epoch: *epoch,
                verdict,
                cpu,
                priority,
                runtime_ns,
                deadline_ns,
                period_ns,
                cpus: if !is_deadline && low % 4 == 0 { *cpus } else { CpuSet::EMPTY },
                text,
            })
        });
    }

    /// Gives some specs of the plugin whose call is answered next a new level, and with
    /// `out_of_bounds` also one that it does not hold, or an invalid level.
    fn rank_specs(&mut self, out_of_bounds: bool) {
        let Some((plugin, call, _)) = self.world.calls.values().next() else { return };
        let (plugin, is_rank) = (*plugin, matches!(call, ForeignCall::Rank));
        if matches!(call, ForeignCall::Accept { .. }) && !out_of_bounds {
            return;
        }
        if self.world.is_deadline_called() && !out_of_bounds {
            return;
        }
        let held = self.world.hosts.held.get(&plugin).cloned().unwrap_or_default();
        let mut ranks = Vec::new();
        for spec in held {
            if self.world.rng.chance(400) {
                ranks.push((spec, 40 + self.world.rng.below(10) as i32));
            }
        }
        if out_of_bounds {
            let wrong = match ranks.first() {
                Some(&(spec, _)) if self.world.rng.chance(500) => (spec, 39),
                _ => (SpecId(u64::MAX - 1), 40),
            };
            ranks.push(wrong);
        }
        if ranks.is_empty() {
            return;
        }
        self.count("specs ranked");
        let more = !is_rank && self.world.rng.chance(200);
        self.world.rank(plugin, ranks, more);
    }

    /// Starves every CPU for a second. Some threads consume most of its time meanwhile.
    fn starve(&mut self) {
        self.world.canaries.starved = CpuSet::first(talea_core::cpus::MAX_CPUS as u32);
        for _ in 0..20 {
            let threads: Vec<u32> = self.world.kernel.threads.keys().copied().collect();
            for tid in threads.into_iter().filter(|tid| tid % 3 != 0) {
                let consumed = self.world.canaries.consumed.entry(tid).or_default();
                *consumed = consumed.checked_add(Work::from_ns(40 * MS)).expect("small");
            }
            self.world.advance(Span::from_ns(50 * MS));
            self.world.run_until_idle();
        }
        self.world.canaries.starved = CpuSet::EMPTY;
    }

    /// Restarts the daemon, changes its rules, or starves the CPUs.
    pub(super) fn upheaval(&mut self) {
        if self.world.rng.chance(500) {
            let mut setup = self.world.setup().clone();
            set_rules(&mut setup, &mut self.world.rng);
            return self.world.reload(setup);
        }
        if self.world.rng.chance(400) {
            return self.starve();
        }
        self.take_replies();
        let owners_live = |crowd: &Clients, held: &HeldSpec| {
            let connection = crowd.world.connections.get(&held.session);
            held.owner != Owner::Thread
                && connection
                    .is_some_and(|connection| crowd.world.kernel.is_alive(connection.process))
        };
        let safe: Vec<(SpecId, HeldSpec, u32)> = self
            .held
            .iter()
            .filter(|(id, held)| !self.disturbed.contains(id) && owners_live(self, held))
            .map(|(&id, held)| (id, *held, self.world.connections[&held.session].process.pid))
            .collect();
        for (id, held, _) in &safe {
            let recorded = self.world.file.values().any(|record| record.spec == *id);
            assert!(recorded, "{id:?} of an existing client has no record: {held:?}");
        }
        self.held.clear();
        self.seen.clear();
        self.count("restarts");
        self.disturbed.clear();
        self.world.restart();
        self.lenient_until = self.world.now.saturating_add(MAX_PERIOD);
        // Clients reconnect and claim; some quotas admit only a few.
        for (id, held, pid) in safe {
            let uid = self.world.kernel.processes[&pid].1;
            let broker = &self.world.broker;
            let (own, _) = broker.usage(broker.subject_of_specs(uid));
            if self.world.setup().quota.sessions_per_user <= own
                || self.world.setup().quota.sessions <= self.world.broker.sessions()
            {
                continue;
            }
            let session = self.world.open_connection(pid, 100, &[]);
            self.world.send(session, Request::Hello { min: VERSION, max: VERSION }, None);
            self.world.send(session, Request::Claim { spec: id, token: held.token }, None);
            self.world.run_until_idle();
            let Some(connection) = self.world.connections.get_mut(&session) else { continue };
            for (_, request, reply) in connection.replies.drain(..) {
                if let Request::Claim { .. } = request {
                    // Its thread is being detached, because it has changed meanwhile.
                    if matches!(&reply, Reply::Refused(refusal) if refusal.code == Code::Busy) {
                        continue;
                    }
                    // The adopted thread may still have an apply in progress.
                    let Reply::Granted(granted) = reply else {
                        panic!("{id:?} was not adopted: {reply:?}")
                    };
                    *self.counts.entry("claims after a restart").or_default() += 1;
                    assert_eq!((granted.spec, granted.token), (id, held.token));
                    self.held.insert(id, HeldSpec { session, ..held });
                }
            }
        }
    }
}
