//! Random requests of clients, valid and invalid.

use super::Clients;
use crate::input::{SessionId, ThreadError};
use crate::sim::MS;
use crate::sim::simulation::Target;
use talea_core::{CpuSet, Params, Priority, Span, Work};
use talea_proto::message::{Name, SpecId, Token};
use talea_proto::{Owner, Request, Task, ThreadRef};

impl Clients {
    pub(super) fn any_session(&mut self) -> Option<SessionId> {
        let sessions: Vec<SessionId> = self.world.connections.keys().copied().collect();
        (!sessions.is_empty()).then(|| self.world.rng.pick(&sessions))
    }

    pub(super) fn any_thread(&mut self) -> u32 {
        let threads: Vec<u32> = self.world.kernel.threads.keys().copied().collect();
        if threads.is_empty() { 1 } else { self.world.rng.pick(&threads) }
    }

    /// Returns a thread of this connection's process, or the process id if it has no thread.
    pub(super) fn own_thread(&mut self, session: SessionId) -> u32 {
        let pid = self.world.connections[&session].process.pid;
        let threads = self.world.kernel.threads.iter().filter(|(_, thread)| thread.tgid == pid);
        let threads: Vec<u32> = threads.map(|(&tid, _)| tid).collect();
        if threads.is_empty() { pid } else { self.world.rng.pick(&threads) }
    }

    pub(super) fn any_process(&mut self) -> Option<u32> {
        let processes: Vec<u32> = self.world.kernel.processes.keys().copied().collect();
        (!processes.is_empty()).then(|| self.world.rng.pick(&processes))
    }

    /// Adds another process, or another connection, mostly with its hello.
    pub(super) fn add_client(&mut self) {
        let pid = match self.any_process() {
            Some(pid) if self.world.rng.chance(400) || self.world.kernel.processes.len() > 10 => {
                pid
            }
            _ => {
                let from = 2 + self.world.rng.below(20) as u32;
                let pid = self.world.kernel.free_id(from);
                let uid = self.world.rng.pick(&[0, 1000, 1000, 1001]);
                self.world.kernel.spawn(pid, uid);
                pid
            }
        };
        if self.world.connections.len() < 16 {
            let groups = self.world.rng.pick(&[&[][..], &[7], &[7, 8]]);
            let session = self.world.open_connection(pid, 100, groups);
            // live counterpart: a connection that is kept open without a hello.
            if self.world.rng.chance(50) {
                return;
            }
            let max = self.world.rng.pick(&[talea_proto::VERSION, talea_proto::VERSION, 9, 0]);
            self.world.send(session, Request::Hello { min: max.min(1), max }, None);
        }
    }

    pub(super) fn any_task(&mut self) -> Task {
        let rng = &mut self.world.rng;
        let period = rng.pick(&[5, 10, 10, 20, 50, 100, 200]) * MS;
        let runtime = period * rng.pick(&[1, 1, 2, 5, 5, 10, 10, 20, 30, 30, 60, 110]) / 100;
        let plugin = match rng.below(24) {
            0..3 => Name::new("edf"),
            3..6 => Name::new("rm"),
            6..9 => Name::new("fp"),
            9..11 => Name::new("ours"),
            11 => Name::new("nobody"),
            _ => None,
        };
        let params = Params {
            period: rng.chance(850).then_some(Span::from_ns(period)),
            runtime: rng.chance(800).then_some(Work::from_ns(runtime)),
            desired: rng.chance(200).then_some(Work::from_ns(runtime * 2)),
            deadline: rng.chance(200).then_some(Span::from_ns(period / 2)),
            priority: rng.chance(600).then_some(Priority(if rng.chance(30) {
                100
            } else {
                1 + rng.below(99) as u8
            })),
        };
        let cpus = match rng.below(5) {
            0 => CpuSet::single(rng.below(4) as u32),
            _ => CpuSet::EMPTY,
        };
        Task {
            params,
            plugin,
            cpus,
            cpus_mandatory: rng.chance(300),
            ignore_admission: rng.chance(50),
            owner: rng.pick(&[Owner::Session, Owner::Session, Owner::Process, Owner::Thread]),
            thread: None,
            exclusive: rng.chance(20),
        }
    }

    pub(super) fn any_spec(&mut self, session: SessionId) -> SpecId {
        let own = self.held.iter().filter(|(_, held)| held.session == session).map(|(&id, _)| id);
        let own: Vec<SpecId> = own.collect();
        if !own.is_empty() && self.world.rng.chance(900) {
            return self.world.rng.pick(&own);
        }
        SpecId(self.world.rng.below(40))
    }

    pub(super) fn ask(&mut self) {
        let Some(session) = self.any_session() else { return };
        let spec = self.any_spec(session);
        let mut target = None;
        let request = match self.world.rng.below(40) {
            0..10 => Request::Create(self.any_task()),
            10..12 => {
                let count = self.world.rng.below(5);
                Request::CreateGroup((0..count).map(|_| self.any_task()).collect())
            }
            12..17 => Request::Change { spec, task: self.any_task() },
            17..19 => Request::Release(spec),
            19..29 => {
                target = match self.world.rng.below(24) {
                    0 => None,
                    1 => Some(Target::Bad(ThreadError::TidNotAccepted)),
                    2 => Some(Target::Bad(ThreadError::NotAThread)),
                    3..5 => Some(Target::Thread(self.any_thread())),
                    _ => Some(Target::Thread(self.own_thread(session))),
                };
                if let Some(Target::Thread(tid)) = target
                    && self.world.rng.chance(200)
                    && self.world.kernel.threads.contains_key(&tid)
                {
                    let cpu = self.world.rng.below(4) as u32;
                    self.world.kernel.put_to_sleep(tid, cpu);
                }
                Request::Attach { spec, thread: ThreadRef::Pidfd }
            }
            29..31 => Request::Detach(spec),
            31..33 => Request::Query(spec),
            33..35 => {
                let known = self.held.get(&spec).map(|held| held.token);
                let token = known.filter(|_| self.world.rng.chance(800)).unwrap_or(Token([3; 16]));
                Request::Claim { spec, token }
            }
            35 => Request::Explain(self.any_task()),
            36 if self.world.rng.chance(300) => {
                let of = self.any_thread();
                let of = if self.world.rng.chance(500) { self.own_thread(session) } else { of };
                target = match self.world.rng.below(12) {
                    0 => None,
                    1 => Some(Target::Bad(ThreadError::NotAThread)),
                    _ => Some(Target::Thread(of)),
                };
                let uid = self.world.kernel.threads.get(&of).map_or(1000, |found| found.uids.real);
                let uid = if self.world.rng.chance(900) { uid } else { 1000 };
                Request::ActFor { uid }
            }
            36 => match self.world.rng.below(6) {
                5 => Request::Counters,
                0 if session.0 % 2 == 0 => Request::Seed(Token([session.0 as u8; 16])),
                0 => Request::Status,
                1 => Request::Plugin(1),
                2 => Request::Plugin(99),
                3 => Request::PluginCpu { plugin: 0, index: 1 },
                _ => Request::PluginCpu { plugin: 7, index: u32::MAX },
            },
            37 => Request::NextSpec(spec),
            38 => Request::NextSession(spec.0),
            _ => return self.world.send_nonsense(session),
        };
        if let Request::Release(id) | Request::Claim { spec: id, .. } = request {
            self.disturbed.insert(id);
        }
        self.world.send(session, request, target);
        if self.world.rng.chance(700) {
            self.world.read_one(session);
        }
    }
}
