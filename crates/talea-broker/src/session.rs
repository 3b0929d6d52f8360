//! Connections: hello, one request at a time, who is held back and why.
//!
//! A connection has at most one unanswered request. What a client sends behind it waits here, and
//! the connection is not read from meanwhile, so a client can fill its own socket but not our
//! memory. The same holds for whoever asks too fast, until its debt is back inside the burst
//! (users.rs), and for connections beyond the quota, which live only to hear why they are refused.

use crate::broker::{Blocked, Broker, Holder, Timer};
use crate::input::{Effect, LogEvent, Peer, ProcessId, SessionId, ThreadError, ThreadFacts};
use crate::refuse::{plain, refusal};
use crate::spec::Asker;
use crate::users::Spent;
use std::collections::VecDeque;
use talea_core::Time;
use talea_core::mutate;
use talea_proto::{Code, Field, Refusal, Reply, Request, VERSION};

/// Requests of one connection that may wait for the one before them.
const WAITING_MAX: usize = 4;
/// Connections beyond the quota that are kept until they have been told so.
const TURNED_AWAY_MAX: u32 = 64;
/// Places that only root gets when the connections are all taken, so that `talea stop` gets
/// through.
const ROOTS_PLACES: u32 = 8;

/// One connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) uid: u32,
    pub(crate) process: ProcessId,
    pub(crate) client: u32,
    /// Slots of the specs that it commands.
    pub(crate) specs: Vec<u32>,
    greeted: bool,
    /// Why it was turned away at the door.
    turned_away: Option<Box<Refusal>>,
    unanswered: Unanswered,
    waiting: VecDeque<Waiting>,
    /// How long its request may wait for a thread's debt, once it does.
    pub(crate) patient_until: Option<Time>,
    /// Until when it has asked too much.
    owes_until: Option<Time>,
    disarmed: bool,
    /// A bit for each field, by code: what has been logged.
    logged: [u32; 32],
}

/// What a connection's unanswered request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unanswered {
    /// There is none.
    Nothing,
    /// For the kernel, which answers at once.
    Kernel,
    /// For a foreign plugin or for somebody else's change: the connection is not read from.
    Long,
}

/// A request with what the driver found out about it.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) seq: u32,
    pub(crate) request: Request,
    pub(crate) thread: Option<Result<ThreadFacts, ThreadError>>,
    pub(crate) entropy: u128,
}

impl Session {
    pub(crate) fn answered(&mut self) {
        self.unanswered = Unanswered::Nothing;
        self.patient_until = None;
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn is_turned_away(&self) -> bool {
        self.turned_away.is_some()
    }

    /// Whether it is held back until `at`.
    pub(crate) fn owes(&self, at: Time) -> bool {
        self.owes_until == Some(at)
    }

    /// Whether nothing was refused here with this code and field before.
    pub(crate) fn first_of_its_cause(&mut self, code: Code, field: Field) -> bool {
        let (of_code, bit) = (&mut self.logged[code as usize % 32], 1 << (field as u32 % 32));
        let first = *of_code & bit == 0;
        *of_code |= bit;
        first
    }
}

/// How many ordinary requests one is worth: each task of a group is decided, booked and recorded
/// like a single one.
fn weight(request: &Request) -> u32 {
    mutate!(
        "quota-rate-groups",
        match request {
            Request::CreateGroup(tasks) => tasks.len().max(1) as u32,
            _ => 1,
        },
        match request {
            Request::CreateGroup(_) => 1,
            _ => 1,
        }
    )
}

impl Broker {
    pub(crate) fn connected(&mut self, id: SessionId, peer: Peer) {
        self.users.sweep(self.now);
        let turned_away = self.too_many_sessions(peer.uid);
        if turned_away.is_some() && self.turned_away >= TURNED_AWAY_MAX {
            return self.emit(Effect::Close { session: id });
        }
        match turned_away {
            Some(_) => self.turned_away += 1,
            None => self.users.of(peer.uid).sessions += 1,
        }
        let (uid, process) = (peer.uid, ProcessId { pid: peer.pid, start: peer.pid_start });
        let session = Session {
            uid,
            process,
            client: self.clients.insert(peer, &self.rules),
            specs: Vec::new(),
            greeted: false,
            turned_away,
            unanswered: Unanswered::Nothing,
            waiting: VecDeque::new(),
            patient_until: None,
            owes_until: None,
            disarmed: false,
            logged: [0; 32],
        };
        let known = self.sessions.insert(id, session);
        assert!(known.is_none(), "{id:?} was given twice");
        if process.pid != 0 {
            self.watch_process(process, Holder::Session(id));
        }
    }

    fn too_many_sessions(&self, uid: u32) -> Option<Box<Refusal>> {
        let quota = &self.setup.quota;
        let (all, (own, _)) = (self.sessions.len() as u32 - self.turned_away, self.users.held(uid));
        let places = quota.sessions.saturating_add(if uid == 0 { ROOTS_PLACES } else { 0 });
        let too_many = |held: u32, limit: u32| {
            Some(refusal(Code::Quota, Field::Sessions, u64::from(held) + 1, u64::from(limit)))
        };
        if mutate!("quota-sessions", own >= quota.sessions_per_user, own == u32::MAX) {
            return too_many(own, quota.sessions_per_user);
        }
        if all >= places { too_many(all, quota.sessions) } else { None }
    }

    pub(crate) fn asked(&mut self, id: SessionId, mut asked: Waiting) {
        self.counters.requests += 1;
        let Some(session) = self.sessions.get_mut(&id) else {
            return self.drop_facts(asked.thread);
        };
        let idle = session.unanswered == Unanswered::Nothing && session.waiting.is_empty();
        let full = session.waiting.len() >= WAITING_MAX;
        self.pay(id, weight(&asked.request));
        let asker = Asker { session: id, seq: asked.seq };
        if let Some(Ok(facts)) = &mut asked.thread {
            // It may wait here until the grant that the thread has now is over.
            if let Some(thread) = self.thread_named(facts.identity()) {
                facts.attr = thread.previous;
            }
        }
        if idle {
            self.serve(id, asked);
        } else if full {
            // Only a driver that reads on from a disarmed connection comes here.
            self.drop_facts(asked.thread);
            self.counters.refused += 1;
            let reply = Reply::Refused(plain(Code::Busy, Field::Request));
            self.emit(Effect::Reply { session: id, seq: asker.seq, reply });
        } else {
            self.sessions.get_mut(&id).expect("it was just there").waiting.push_back(asked);
        }
        self.hold_back(id);
    }

    pub(crate) fn garbled(&mut self, asker: Asker, refusal: Refusal) {
        self.counters.requests += 1;
        let Some(session) = self.sessions.get(&asker.session) else { return };
        let greeted = session.greeted;
        self.pay(asker.session, 1);
        self.counters.refused += 1;
        let refusal = Box::new(refusal);
        self.log_refusal(asker.session, &refusal);
        // Not by `reply`: an older request of this connection may still be unanswered.
        let reply = Reply::Refused(refusal);
        self.emit(Effect::Reply { session: asker.session, seq: asker.seq, reply });
        if greeted {
            self.hold_back(asker.session);
        } else {
            self.close(asker.session);
        }
    }

    /// Books a request, and holds the connection back when it was one too many.
    fn pay(&mut self, id: SessionId, weight: u32) {
        let session = self.sessions.get_mut(&id).expect("only living connections pay");
        let uid = session.uid;
        if let Spent::Over { until, log } =
            self.users.spend(uid, self.now, &self.setup.quota, weight)
        {
            if let Some(before) = session.owes_until.replace(until) {
                self.timers.remove(&(before, Timer::Rearm(id)));
            }
            self.timers.insert((until, Timer::Rearm(id)));
            if log {
                self.log(LogEvent::RateLimited { uid });
            }
        }
    }

    pub(crate) fn rearm(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.owes_until = None;
            self.hold_back(id);
        }
    }

    /// Reads from a connection again, or no longer, as it now stands.
    pub(crate) fn hold_back(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let disarm = session.owes_until.is_some()
            || session.unanswered == Unanswered::Long
            || !session.waiting.is_empty();
        if disarm != session.disarmed {
            session.disarmed = disarm;
            self.emit(if disarm {
                Effect::Disarm { session: id }
            } else {
                Effect::Arm { session: id }
            });
        }
    }

    /// The unanswered request of this connection will take long.
    pub(crate) fn takes_long(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.unanswered = Unanswered::Long;
            self.hold_back(id);
        }
    }

    /// Serves what could not be served before, in order, until nothing more can be.
    pub(crate) fn serve_waiting(&mut self) {
        loop {
            if self.changing == 0
                && let Some(blocked) = self.blocked.pop_front()
            {
                match blocked {
                    Blocked::Request(id, asked) => self.serve(id, *asked),
                    Blocked::Resume(job, word) => self.deliberate(*job, Some(word)),
                }
                continue;
            }
            let Some(id) = self.ready.pop_front() else { return };
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            if session.unanswered == Unanswered::Nothing
                && let Some(asked) = session.waiting.pop_front()
            {
                self.serve(id, asked);
                self.hold_back(id);
            }
        }
    }

    fn serve(&mut self, id: SessionId, asked: Waiting) {
        let Waiting { seq, request, thread, entropy } = asked;
        let asker = Asker { session: id, seq };
        let session = self.sessions.get_mut(&id).expect("only living connections are served");
        session.unanswered = Unanswered::Kernel;
        if let Request::Hello { min, max } = request {
            self.drop_facts(thread);
            return self.hello(asker, min, max);
        }
        if mutate!("message-hello", !session.greeted, false) {
            self.drop_facts(thread);
            self.refuse(asker, refusal(Code::Version, Field::Message, 0, VERSION.into()));
            return self.close(id);
        }
        if self.stopping.is_some() {
            self.drop_facts(thread);
            return self.refuse(asker, plain(Code::Stopping, Field::Request));
        }
        let books = matches!(
            request,
            Request::Create(_) | Request::CreateGroup(_) | Request::Change { .. }
        );
        if books && self.changing > 0 {
            self.takes_long(id);
            self.drop_facts(thread);
            let asked = Waiting { seq, request, thread: None, entropy };
            return self.blocked.push_back(Blocked::Request(id, Box::new(asked)));
        }
        if let Request::Attach { spec, thread: named } = request {
            return self.attach(asker, spec, named, thread);
        }
        self.drop_facts(thread);
        match request {
            Request::Hello { .. } | Request::Attach { .. } => unreachable!("served above"),
            Request::Create(task) => self.create(asker, &task, entropy),
            Request::CreateGroup(tasks) => self.create_group(asker, tasks, entropy),
            Request::Change { spec, task } => self.change(asker, spec, task),
            Request::Release(spec) => self.release(asker, spec),
            Request::Detach(spec) => self.detach(asker, spec),
            Request::Claim { spec, token } => self.claim(asker, spec, token),
            Request::Explain(task) => self.explain(asker, &task),
            Request::Stop { release } => self.stop(asker, release),
            question => {
                let said = self.look_up(id, &question);
                self.conclude(asker, said);
            }
        }
    }

    fn hello(&mut self, asker: Asker, min: u16, max: u16) {
        let session =
            self.sessions.get_mut(&asker.session).expect("only living connections are served");
        let no = match session.turned_away.take() {
            Some(refusal) => Some(refusal),
            None if mutate!(
                "message-hello-version",
                min <= VERSION && VERSION <= max,
                min <= max
            ) =>
            {
                None
            }
            None => Some(refusal(Code::Version, Field::Message, max.into(), VERSION.into())),
        };
        if let Some(no) = no {
            // A connection that was turned away stays counted as such until it is closed, below.
            session.turned_away = (no.code == Code::Quota).then(|| no.clone());
            self.refuse(asker, no);
            return self.close(asker.session);
        }
        session.greeted = true;
        let welcome = Reply::Welcome { version: VERSION, instance: self.instance };
        self.reply(asker, welcome);
    }

    /// Ends a connection from our side.
    pub(crate) fn close(&mut self, id: SessionId) {
        if self.sessions.contains_key(&id) {
            self.emit(Effect::Close { session: id });
            self.hung_up(id);
        }
    }

    /// A connection has ended: what it commanded is given back unless somebody else owns it.
    pub(crate) fn hung_up(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        match session.turned_away {
            Some(_) => self.turned_away -= 1,
            None => self.users.of(session.uid).sessions -= 1,
        }
        self.unwatch_process(session.process, Holder::Session(id));
        if let Some(until) = session.owes_until {
            self.timers.remove(&(until, Timer::Rearm(id)));
        }
        for asked in session.waiting {
            self.drop_facts(asked.thread);
        }
        if session.unanswered == Unanswered::Long {
            self.abandon(id);
            self.unpark(id);
        }
        for &slot in &session.specs {
            self.specs.at_mut(slot).session = None;
        }
        for slot in session.specs {
            self.reconsider(slot);
        }
        self.clients.let_go(session.client);
    }

    /// Nobody will use this thread that the driver looked up.
    pub(crate) fn drop_facts(&mut self, thread: Option<Result<ThreadFacts, ThreadError>>) {
        if let Some(Ok(facts)) = thread {
            // Unless the driver gave the same handle to a thread that is attached.
            if !self.threads.contains_key(&facts.thread) {
                self.emit(Effect::Forget { thread: facts.thread });
            }
        }
    }
}
