//! Opening and end of connections, and the order of their requests.

use super::{HELLO_TIMEOUT, Hello, PendingReply, QueuedRequest, Session};
use crate::broker::{Broker, Timer, WatchOwner};
use crate::input::{Effect, LogEvent, Peer, ProcessId, SessionId, ThreadError, ThreadFacts};
use crate::pending_changes::Blocked;
use crate::refuse::{refusal, refusal_without_numbers, too_many_sessions};
use crate::spec::ReplyTo;
use crate::subjects::Subject;
use crate::trail::Asked;
use crate::users::RateVerdict;
use std::collections::VecDeque;
use talea_core::mutate;
use talea_proto::{Code, Field, Refusal, Reply, Request, VERSION};

/// Maximum number of queued requests of one connection.
const WAITING_MAX: usize = 4;
/// Maximum number of connections beyond the quota that wait for their refusal.
const REJECTED_MAX: u32 = 64;
/// Additional connections reserved for the superuser, so that `talea stop` always works.
const ROOT_RESERVE: u32 = 8;
/// Additional connections reserved for subjects with specs and few connections, so that the holder
/// of a grant can reach the daemon.
const GRANT_RESERVE: u32 = 64;
/// Maximum number of connections of a subject that uses [`GRANT_RESERVE`].
const GRANT_RESERVE_EACH: u32 = 2;

/// Cost of a request in ordinary requests: each task of a group is evaluated, reserved and recorded
/// like a single one.
fn request_cost(request: &Request) -> u32 {
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
    pub(crate) fn session_opened(&mut self, id: SessionId, peer: Peer) {
        self.users.sweep(self.now);
        let (uid, process) = (peer.uid, ProcessId { pid: peer.pid, start: peer.pid_start });
        let client = self.clients.insert(peer, &self.rules);
        let subject = self.subject_of_client(client);
        let rejection = self.too_many_sessions(subject);
        let is_unserved = subject == Subject::UNSERVED;
        let rejected_max = if is_unserved { REJECTED_MAX / 2 } else { REJECTED_MAX };
        if rejection.is_some() && self.rejected_sessions >= rejected_max {
            self.clients.release(client);
            return self.emit(Effect::Close { session: id });
        }
        match rejection {
            Some(_) => self.rejected_sessions += 1,
            None => self.users.account(subject).sessions += 1,
        }
        let hello_until = (process.pid == 0 || process.pid != self.identity.pid)
            .then(|| self.now.saturating_add(HELLO_TIMEOUT));
        if let Some(until) = hello_until {
            self.timers.insert((until, Timer::HelloOverdue(id)));
        }
        let session = Session {
            uid,
            subject,
            process,
            client,
            specs: Vec::new(),
            seed: None,
            asked: Asked::NOTHING,
            hello: Hello { is_done: false, until: hello_until, rejection },
            pending_reply: PendingReply::None,
            waiting: VecDeque::new(),
            wait_until: None,
            rate_limited_until: None,
            is_suspended: false,
            logged_refusals: [0; 32],
        };
        let known = self.sessions.insert(id, session);
        assert!(known.is_none(), "{id:?} was given twice");
        if process.pid != 0 {
            self.watch_process(process, WatchOwner::Session(id));
        }
    }

    fn too_many_sessions(&self, subject: Subject) -> Option<Box<Refusal>> {
        self.too_many_of_subject(subject).or_else(|| self.too_many_in_total(subject))
    }

    fn too_many_in_total(&self, subject: Subject) -> Option<Box<Refusal>> {
        let quota = &self.setup.quota;
        let all = self.sessions.len() as u32 - self.rejected_sessions;
        let (own, specs) = self.users.usage(subject);
        let reserve = match subject {
            Subject::ROOT => ROOT_RESERVE + GRANT_RESERVE,
            _ if specs > 0 && own < GRANT_RESERVE_EACH => GRANT_RESERVE,
            _ => 0,
        };
        let places = quota.sessions.saturating_add(reserve);
        (all >= places).then(|| too_many_sessions(all, quota.sessions))
    }

    /// Returns the refusal of one more connection of this subject, if its quota is exhausted.
    pub(crate) fn too_many_of_subject(&self, subject: Subject) -> Option<Box<Refusal>> {
        let quota = &self.setup.quota;
        let (own, _) = self.users.usage(subject);
        let most = if subject == Subject::UNSERVED {
            quota.sessions_without_rule
        } else {
            quota.sessions_per_user
        };
        mutate!("quota-sessions", own >= most, own == u32::MAX)
            .then(|| too_many_sessions(own, most))
    }

    pub(crate) fn received(&mut self, id: SessionId, mut queued: QueuedRequest) {
        self.counters.requests += 1;
        let Some(session) = self.sessions.get_mut(&id) else {
            return self.forget_unused(queued.thread);
        };
        let idle = session.pending_reply == PendingReply::None && session.waiting.is_empty();
        let full = session.waiting.len() >= WAITING_MAX;
        self.charge_request(id, request_cost(&queued.request));
        let reply_to = ReplyTo { session: id, seq: queued.seq };
        if let Some(Ok(facts)) = &mut queued.thread {
            // The request may be queued until the thread's current grant has ended.
            if let Some(thread) = self.thread_named(facts.identity()) {
                facts.attr = thread.previous;
            }
        }
        if idle {
            self.serve(id, queued);
        } else if full {
            // Reached only if the driver reads from a suspended connection.
            self.forget_unused(queued.thread);
            let refusal = refusal_without_numbers(Code::Busy, Field::Request);
            self.counters.count_refusal(&refusal);
            self.record_refusal(id, Asked::new(&queued.request), &refusal);
            let reply = Reply::Refused(refusal);
            self.emit(Effect::Reply { session: id, seq: reply_to.seq, reply });
        } else {
            self.sessions
                .get_mut(&id)
                .expect("the session was just looked up")
                .waiting
                .push_back(queued);
        }
        self.update_reading(id);
    }

    pub(crate) fn undecodable(&mut self, reply_to: ReplyTo, refusal: Refusal) {
        self.counters.requests += 1;
        let Some(session) = self.sessions.get(&reply_to.session) else { return };
        let hello_done = session.hello.is_done;
        self.charge_request(reply_to.session, 1);
        self.counters.count_refusal(&refusal);
        let refusal = Box::new(refusal);
        self.record_refusal(reply_to.session, Asked::NOTHING, &refusal);
        self.log_refusal(reply_to.session, &refusal);
        // Not by `reply`: an older request of this connection may still be unanswered.
        let reply = Reply::Refused(refusal);
        self.emit(Effect::Reply { session: reply_to.session, seq: reply_to.seq, reply });
        if hello_done {
            self.update_reading(reply_to.session);
        } else {
            self.close(reply_to.session);
        }
    }

    /// Charges a request to the subject's rate and suspends the connection if the rate is exceeded.
    fn charge_request(&mut self, id: SessionId, cost: u32) {
        let session = self.sessions.get_mut(&id).expect("only open connections are charged");
        let subject = session.subject;
        if let RateVerdict::Over { until, log } =
            self.users.charge(subject, self.now, &self.setup.quota, cost)
        {
            if let Some(before) = session.rate_limited_until.replace(until) {
                self.timers.remove(&(before, Timer::RateLimitEnd(id)));
            }
            self.timers.insert((until, Timer::RateLimitEnd(id)));
            if log {
                self.log_about(subject, LogEvent::RateLimited { subject });
            }
        }
    }

    pub(crate) fn rate_limit_ended(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.rate_limited_until = None;
            self.update_reading(id);
        }
    }

    /// Closes the connections whose time-out for the hello has expired. Called after the current
    /// input, which may be a late hello.
    pub(crate) fn close_silent(&mut self) {
        while let Some(id) = self.overdue_hellos.pop() {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            session.hello.until = None;
            if !session.hello.is_done {
                mutate!("quota-hello", self.emit(Effect::CloseIfSilent { session: id }));
            }
        }
    }

    /// Ends the time-out for the hello.
    fn disarm_hello(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Some(until) = session.hello.until.take() {
            self.timers.remove(&(until, Timer::HelloOverdue(id)));
        }
    }

    /// Updates whether the connection is read.
    pub(crate) fn update_reading(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let suspend = session.rate_limited_until.is_some()
            || session.pending_reply == PendingReply::External
            || !session.waiting.is_empty();
        if suspend != session.is_suspended {
            session.is_suspended = suspend;
            self.emit(if suspend {
                Effect::SuspendReading { session: id }
            } else {
                Effect::ResumeReading { session: id }
            });
        }
    }

    /// Marks the unanswered request as waiting for an external event.
    pub(crate) fn wait_external(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.pending_reply = PendingReply::External;
            self.update_reading(id);
        }
    }

    /// Serves blocked and queued requests, in order, as far as possible.
    pub(crate) fn serve_waiting(&mut self) {
        loop {
            if let Some(blocked) = self.changes.unblock() {
                match blocked {
                    Blocked::Request(id, queued) => self.serve(id, *queued),
                    Blocked::Resume(request, reply) => self.run_admission(*request, reply),
                }
                continue;
            }
            let Some(id) = self.ready.pop_front() else { return };
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            if session.pending_reply == PendingReply::None
                && let Some(queued) = session.waiting.pop_front()
            {
                self.serve(id, queued);
                self.update_reading(id);
            }
        }
    }

    fn serve(&mut self, id: SessionId, queued: QueuedRequest) {
        let QueuedRequest { seq, request, thread, caller, scope, entropy } = queued;
        let reply_to = ReplyTo { session: id, seq };
        let session = self.sessions.get_mut(&id).expect("only open connections are served");
        session.pending_reply = PendingReply::Kernel;
        session.asked = Asked::new(&request);
        if let Request::Hello { min, max } = request {
            self.forget_unused(thread);
            return self.hello(reply_to, min, max);
        }
        if mutate!("message-hello", !session.hello.is_done, false) {
            self.forget_unused(thread);
            self.refuse(reply_to, refusal(Code::Version, Field::Message, 0, VERSION.into()));
            return self.close(id);
        }
        if self.stopping.is_some() {
            self.forget_unused(thread);
            return self.refuse(reply_to, refusal_without_numbers(Code::Stopping, Field::Request));
        }
        let reserves = matches!(
            request,
            Request::Create(_) | Request::CreateGroup(_) | Request::Change { .. }
        );
        if reserves && self.changes.is_any() {
            self.wait_external(id);
            let scope = self.scope_of_request(thread.as_ref()).unwrap_or(scope);
            self.forget_unused(thread);
            let queued = QueuedRequest { seq, request, thread: None, caller: None, scope, entropy };
            return self.changes.block(Blocked::Request(id, Box::new(queued)));
        }
        if let Request::Attach { spec, thread: named } = request {
            return self.attach(reply_to, spec, named, thread);
        }
        if let Request::Nice { nice, thread: named } = request {
            return self.nice(reply_to, nice, named, thread);
        }
        let scope = self.scope_of_request(thread.as_ref()).unwrap_or(scope);
        self.forget_unused(thread);
        match request {
            Request::Hello { .. } | Request::Attach { .. } | Request::Nice { .. } => {
                unreachable!("served above")
            }
            Request::Create(task) => {
                let token = self.token_for(reply_to, entropy);
                self.create(reply_to, &task, &scope, token);
            }
            Request::CreateGroup(tasks) => {
                let token = self.token_for(reply_to, entropy);
                self.create_group(reply_to, tasks, &scope, token);
            }
            Request::Seed(seed) => self.seed(reply_to, seed),
            Request::ActFor { uid } => self.act_for(reply_to, uid, caller),
            Request::Change { spec, task } => self.change(reply_to, spec, task),
            Request::Release(spec) => self.release(reply_to, spec),
            Request::Detach(spec) => self.detach(reply_to, spec),
            Request::Claim { spec, token } => self.claim(reply_to, spec, token),
            Request::Explain(task) => self.explain(reply_to, &task, &scope),
            Request::Stop { release } => self.stop(reply_to, release),
            question => {
                let reply = self.query(id, &question);
                self.reply_or_refuse(reply_to, reply);
            }
        }
    }

    fn hello(&mut self, reply_to: ReplyTo, min: u16, max: u16) {
        let session =
            self.sessions.get_mut(&reply_to.session).expect("only open connections are served");
        let no = match session.hello.rejection.take() {
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
            // A rejected connection stays counted as rejected until it is closed, below.
            session.hello.rejection = (no.code == Code::Quota).then(|| no.clone());
            self.refuse(reply_to, no);
            return self.close(reply_to.session);
        }
        session.hello.is_done = true;
        let process = session.process;
        self.expect_claims(process, 0);
        self.disarm_hello(reply_to.session);
        let welcome = Reply::Welcome { version: VERSION, instance: self.identity.instance };
        self.reply(reply_to, welcome);
    }

    /// Closes a connection.
    pub(crate) fn close(&mut self, id: SessionId) {
        if self.sessions.contains_key(&id) {
            self.emit(Effect::Close { session: id });
            self.disconnected(id);
        }
    }

    /// Handles the end of a connection: its specs are released unless they have another owner.
    pub(crate) fn disconnected(&mut self, id: SessionId) {
        self.disarm_hello(id);
        let Some(session) = self.sessions.remove(&id) else { return };
        match session.hello.rejection {
            Some(_) => self.rejected_sessions -= 1,
            None => self.users.account(session.subject).sessions -= 1,
        }
        self.unwatch_process(session.process, WatchOwner::Session(id));
        if let Some(until) = session.rate_limited_until {
            self.timers.remove(&(until, Timer::RateLimitEnd(id)));
        }
        for queued in session.waiting {
            self.forget_unused(queued.thread);
        }
        if session.pending_reply == PendingReply::External {
            self.cancel_pending(id);
            self.cancel_deferred(id);
        }
        for &slot in &session.specs {
            self.specs.at_mut(slot).session = None;
        }
        for slot in session.specs {
            self.release_if_unowned(slot);
        }
        self.clients.release(session.client);
    }

    /// Forgets a thread that the driver resolved for a request that does not use it.
    pub(crate) fn forget_unused(&mut self, thread: Option<Result<ThreadFacts, ThreadError>>) {
        if let Some(Ok(facts)) = thread {
            // The driver may have passed the handle of an attached thread.
            if !self.threads.has_handle(facts.thread) {
                self.emit(Effect::ForgetThread { thread: facts.thread });
            }
        }
    }
}
