//! Driver of the simulation, and the invariants checked at each of its steps.
//!
//! The driver executes the same effects by the same rules as the daemon's event loop, only later.
//! [`Faults`] names the live counterpart of each fault.

mod acting;
mod inspections;
mod silent;
mod trail;

use super::canaries::Canaries;
use super::kernel::{ApplyOutcome, Kernel};
use super::rng::Rng;
use crate::Broker;
use crate::drift::{self, is_given};
use crate::input::{
    Caller, Effect, Errno, ForeignCall, Found, Groups, Input, Limit, LogEvent, Peer, Platform,
    ProcessId, SessionId, ThreadError, ThreadFacts, ThreadId, Ticket,
};
use crate::trail::{AuditRecord, Balance};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use talea_core::setup::Setup;
use talea_core::{Attr, Monotonic, Policy, Span};
use talea_proto::message::Caveat;
use talea_proto::record::{Record, RecordThread};
use talea_proto::{Reply, Request, SpecId, VERSION};

/// Maximum number of timers for which [`Simulation::call`] waits.
const MAX_WAKEUPS: u32 = 1_000;

/// Probabilities of faults, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The kernel refuses an apply after setting the CPUs. live counterpart: a thread in a cgroup
    /// without real-time runtime; a full root domain.
    pub apply: u64,
    /// The kernel refuses a restore. live counterpart: previous CPUs taken offline; CAP_SYS_NICE
    /// dropped.
    pub restore: u64,
    /// A foreign plugin does not answer in time. live counterpart: the C plugin that sleeps.
    pub no_answer: u64,
    /// A foreign plugin answers outside its bounds. live counterpart: the C plugin that violates
    /// its bounds.
    pub out_of_bounds: u64,
    /// The state file cannot grow before a request. live counterpart: a full file system.
    pub full_disk: u64,
    /// A foreign plugin's host exits during a call. live counterpart: the C plugin that crashes.
    pub crashes: u64,
}

/// Reference to a thread in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A thread id or pidfd: the driver opens a handle in both cases.
    Thread(u32),
    /// A reference that the driver cannot resolve.
    Bad(ThreadError),
}

/// Client's end of a connection.
#[derive(Debug)]
pub struct Connection {
    /// Process of the client.
    pub process: ProcessId,
    /// User of the client.
    pub uid: u32,
    /// Unanswered requests, by number.
    pub outstanding: BTreeMap<u32, Request>,
    /// Sent messages that the driver has not read.
    socket: VecDeque<(u32, Option<Request>, Option<Target>)>,
    /// Whether the driver reads the connection.
    pub is_reading: bool,
    /// Received replies that are not checked yet.
    pub replies: VecDeque<(u32, Request, Reply)>,
    next_seq: u32,
    /// Process of the last request to act for one.
    caller: Option<Caller>,
}

/// Hosts of foreign plugins.
#[derive(Debug, Default)]
pub struct PluginHosts {
    /// Plugins with a stopped host.
    pub ended: BTreeSet<u32>,
    /// Specs that each plugin was notified of.
    pub held: BTreeMap<u32, BTreeSet<SpecId>>,
}

/// Environment of one broker.
pub struct Simulation {
    /// Current time.
    pub now: Monotonic,
    pub broker: Broker,
    /// Simulated kernel.
    pub kernel: Kernel,
    /// Open connections.
    pub connections: BTreeMap<SessionId, Connection>,
    /// State file.
    pub file: BTreeMap<u32, Record>,
    /// Number of allocated slots of the state file.
    pub(super) slots: u32,
    /// Logged events.
    pub log: Vec<LogEvent>,
    /// Records of the audit trail since the last check.
    trail: Vec<AuditRecord>,
    /// Sums over the records before.
    trail_sums: Balance,
    /// Probabilities of faults.
    pub faults: Faults,
    /// Errors of the next kernel operations, before random ones; 0 means no error.
    pub next_errors: VecDeque<Errno>,
    /// Source of random decisions.
    pub rng: Rng,
    /// Calls of foreign plugins, with their time-outs.
    pub calls: BTreeMap<Ticket, (u32, ForeignCall, Monotonic)>,
    /// Whether the broker has stopped the daemon.
    pub exited: bool,
    /// Applies that the kernel's admission test has refused, without a fault.
    pub refused_by_kernel: Vec<(Monotonic, Attr, Errno)>,
    /// Start of the present daemon.
    started: Monotonic,
    setup: Setup,
    platform: Platform,
    effects: VecDeque<Effect>,
    pub(super) inbox: VecDeque<Input>,
    /// Hosts of foreign plugins.
    pub hosts: PluginHosts,
    pub(super) watched: BTreeSet<ThreadId>,
    /// Canaries of all CPUs.
    pub canaries: Canaries,
    /// Limits that the driver enforces.
    pub(crate) limits: BTreeMap<ThreadId, Limit>,
    watched_processes: BTreeSet<ProcessId>,
    /// Attributes that the kernel has last accepted for a held thread.
    pub(super) applied: BTreeMap<ThreadId, Attr>,
    /// Attributes that the kernel has refused since, perhaps after it applied a part.
    tried: BTreeMap<ThreadId, Vec<Attr>>,
    next_session: u64,
    /// Groups of the processes that have ever connected.
    groups: BTreeMap<u32, Groups>,
}

impl Simulation {
    /// Creates an environment without faults and clients.
    pub fn new(setup: Setup, platform: Platform, pinned: bool, rng: Rng) -> Simulation {
        let mut broker = Broker::new(setup.clone(), platform.clone())
            .expect("the setup is valid on this machine");
        broker.set_identity(1, 1);
        Simulation {
            now: Monotonic::from_ns(1_000_000),
            broker,
            kernel: Kernel::new(&platform, pinned),
            connections: BTreeMap::new(),
            file: BTreeMap::new(),
            slots: 0,
            log: Vec::new(),
            trail: Vec::new(),
            trail_sums: Balance::default(),
            faults: Faults::default(),
            next_errors: VecDeque::new(),
            rng,
            calls: BTreeMap::new(),
            exited: false,
            refused_by_kernel: Vec::new(),
            started: Monotonic::ZERO,
            setup,
            platform,
            effects: VecDeque::new(),
            inbox: VecDeque::new(),
            hosts: PluginHosts::default(),
            watched: BTreeSet::new(),
            canaries: Canaries::default(),
            limits: BTreeMap::new(),
            watched_processes: BTreeSet::new(),
            applied: BTreeMap::new(),
            tried: BTreeMap::new(),
            next_session: 1,
            groups: BTreeMap::new(),
        }
    }

    /// Passes one input to the broker.
    pub fn handle_input(&mut self, input: Input) {
        self.broker.handle(self.now, input);
        while let Some(effect) = self.broker.poll_effect() {
            self.effects.push_back(effect);
        }
        self.collect_trail();
        self.broker.audit();
    }

    /// Opens a connection of a process, without a hello.
    pub fn open_connection(&mut self, pid: u32, gid: u32, groups: &[u32]) -> SessionId {
        let (start, uid) = self.kernel.processes[&pid];
        let session = SessionId(self.next_session);
        self.next_session += 1;
        let connection = Connection {
            process: ProcessId { pid, start },
            uid,
            outstanding: BTreeMap::new(),
            socket: VecDeque::new(),
            is_reading: true,
            replies: VecDeque::new(),
            next_seq: 1,
            caller: None,
        };
        self.connections.insert(session, connection);
        let peer = Peer { pid, pid_start: start, uid, gid, groups: groups.to_vec() };
        self.groups.insert(pid, Groups { effective: gid, supplementary: groups.to_vec() });
        self.handle_input(Input::Connected { session, peer });
        session
    }

    /// Opens a connection of a new process of `uid`, with an answered hello.
    pub fn connect(&mut self, uid: u32) -> SessionId {
        let pid = self.kernel.free_id(100);
        self.kernel.spawn(pid, uid);
        let session = self.open_connection(pid, uid, &[]);
        let welcome = self.call(session, Request::Hello { min: VERSION, max: VERSION });
        assert!(matches!(welcome, Reply::Welcome { .. }), "{welcome:?}");
        session
    }

    /// Returns the main thread of a connection's process.
    pub fn tid_of(&self, session: SessionId) -> u32 {
        self.connections[&session].process.pid
    }

    /// Returns the current attributes of a thread.
    pub fn attr_of(&self, tid: u32) -> Attr {
        self.kernel.threads[&tid].attr
    }

    /// Sends a request on a connection and returns its number.
    pub fn send(&mut self, session: SessionId, request: Request, target: Option<Target>) -> u32 {
        let connection = self.connections.get_mut(&session).expect("the connection is open");
        let seq = connection.next_seq;
        connection.next_seq += 1;
        connection.outstanding.insert(seq, request.clone());
        connection.socket.push_back((seq, Some(request), target));
        seq
    }

    /// Sends an undecodable message on a connection. The expected reply is a refusal.
    pub fn send_nonsense(&mut self, session: SessionId) {
        let connection = self.connections.get_mut(&session).expect("the connection is open");
        let seq = connection.next_seq;
        connection.next_seq += 1;
        connection.outstanding.insert(seq, Request::Status);
        connection.socket.push_back((seq, None, None));
    }

    /// Sends a request and runs until it is answered, also if it waits for a time.
    pub fn call(&mut self, session: SessionId, request: Request) -> Reply {
        self.call_about(session, request, None)
    }

    /// Variant of [`Simulation::call`] for a request that refers to a thread.
    pub fn call_about(
        &mut self,
        session: SessionId,
        request: Request,
        target: Option<Target>,
    ) -> Reply {
        let seq = self.send(session, request, target);
        self.run_until_idle();
        for _ in 0..MAX_WAKEUPS {
            let waits = |line: &Connection| !line.is_reading && line.outstanding.contains_key(&seq);
            let Some(at) = self.broker.next_wakeup() else { break };
            if !self.connections.get(&session).is_some_and(waits) || !self.calls.is_empty() {
                break;
            }
            self.now = self.now.max(at);
            self.handle_input(Input::Timer);
            self.run_until_idle();
        }
        let connection = self.connections.get_mut(&session);
        let connection =
            connection.unwrap_or_else(|| panic!("{session:?} was closed without a reply"));
        let at = connection.replies.iter().position(|(answered, ..)| *answered == seq);
        connection
            .replies
            .remove(at.expect("every request is answered"))
            .expect("the reply was just found")
            .2
    }

    /// Closes a connection from the client's end.
    pub fn close_connection(&mut self, session: SessionId) {
        if self.connections.remove(&session).is_some() {
            self.inbox.push_back(Input::Disconnected { session });
        }
    }

    /// Reads one request of this connection; returns false if it is suspended or has none.
    pub fn read_one(&mut self, session: SessionId) -> bool {
        let Some(connection) =
            self.connections.get_mut(&session).filter(|connection| connection.is_reading)
        else {
            return false;
        };
        let Some((seq, request, target)) = connection.socket.pop_front() else { return false };
        let Some(request) = request else {
            let refusal = *crate::refuse::refusal(
                talea_proto::Code::Malformed,
                talea_proto::Field::Message,
                0,
                0,
            );
            self.handle_input(Input::Undecodable { session, seq, refusal });
            return true;
        };
        if let Request::Change { spec, .. } = request
            && let Some(thread) = self.broker.thread_of(spec)
            && let Some(uids) = self.kernel.uids_of(thread)
        {
            self.handle_input(Input::CredentialsChanged { thread, uids });
        }
        if matches!(
            request,
            Request::Create(_)
                | Request::CreateGroup(_)
                | Request::Change { .. }
                | Request::Explain(_)
        ) {
            let threads = self.kernel.real_time_threads();
            self.handle_input(Input::RealTimeThreads { threads });
        }
        if matches!(request, Request::Create(_) | Request::CreateGroup(_)) {
            self.allocate_slots();
        }
        let is_acting = matches!(request, Request::ActFor { .. });
        let (of_caller, of_thread) = if is_acting { (target, None) } else { (None, target) };
        let caller = of_caller.map(|target| Box::new(self.caller(target)));
        let thread = of_thread.map(|target| match target {
            Target::Thread(tid) => self.kernel.open(tid).ok_or(ThreadError::Gone),
            Target::Bad(why) => Err(why),
        });
        if let Some(Ok(caller)) = caller.as_deref() {
            self.connections.get_mut(&session).expect("it is open").caller = Some(caller.clone());
        }
        let entropy = u128::from(self.rng.word()) << 64 | u128::from(self.rng.word()) | 1;
        self.handle_input(Input::Received { session, seq, request, thread, caller, entropy });
        true
    }

    /// Executes the next effect; returns false if there is none.
    pub fn run_effect(&mut self) -> bool {
        let Some(effect) = self.effects.pop_front() else { return false };
        match effect {
            Effect::Reply { session, seq, reply } => self.deliver(session, seq, reply),
            Effect::Close { session } => {
                self.connections.remove(&session);
            }
            Effect::CloseIfSilent { session } => self.close_if_silent(session),
            Effect::SuspendReading { session } => self.set_reading(session, false),
            Effect::ResumeReading { session } => self.set_reading(session, true),
            Effect::Apply { ticket, thread, attr, owner } => {
                if !self.applied.contains_key(&thread) {
                    self.sample_cpu_time(thread);
                }
                self.apply(ticket, thread, &attr, owner);
            }
            Effect::SetNice(order) => self.set_nice(order),
            Effect::Restore { ticket, thread, attr, applied, owner } => {
                self.limits.remove(&thread);
                self.sample_cpu_time(thread);
                self.restore(ticket, thread, &attr, &applied, owner);
            }
            Effect::Inspect { threads } => self.inspect(threads),
            Effect::CheckCanaries { cpus } => self.check_canaries(cpus),
            Effect::Limit { thread, limit } => {
                let before = match limit {
                    Some(limit) => self.limits.insert(thread, limit),
                    None => self.limits.remove(&thread),
                };
                assert_ne!(before, limit, "the limit of {thread:?} is ordered twice");
            }
            Effect::WatchThread { thread } => {
                assert!(self.watched.insert(thread), "{thread:?} is watched twice");
            }
            Effect::ForgetThread { thread } => {
                self.watched.remove(&thread);
                self.limits.remove(&thread);
                self.applied.remove(&thread);
                self.tried.remove(&thread);
                self.kernel.close(thread);
            }
            Effect::WatchProcess { process } => {
                assert!(self.watched_processes.insert(process), "{process:?} is watched twice");
            }
            Effect::ForgetProcess { process } => {
                // The exit may have been reported meanwhile.
                self.watched_processes.remove(&process);
            }
            Effect::WriteRecord { slot } => self.write_record(slot),
            Effect::EraseRecord { slot } => {
                // The slot may already have a new spec; its own WriteRecord follows.
                self.file.remove(&slot);
            }
            Effect::CallPlugin { ticket, plugin, call, timeout } => {
                let busy = self.calls.values().any(|(asked, ..)| *asked == plugin);
                assert!(!busy, "plugin {plugin} has two calls in flight");
                let until = self.now.saturating_add(timeout);
                self.note_call(plugin, &call);
                self.calls.insert(ticket, (plugin, *call, until));
            }
            Effect::StopHost { plugin } => {
                assert!(
                    self.hosts.ended.insert(plugin),
                    "the host of plugin {plugin} is stopped twice"
                );
                self.calls.retain(|_, (asked, ..)| *asked != plugin);
                self.hosts.held.remove(&plugin);
            }
            Effect::Exit => self.exited = true,
            Effect::Log(event) => self.log.push(event),
        }
        true
    }

    fn deliver(&mut self, session: SessionId, seq: u32, reply: Reply) {
        if let Some(connection) = self.connections.get_mut(&session) {
            let request = connection.outstanding.remove(&seq);
            let request =
                request.unwrap_or_else(|| panic!("{session:?} {seq} is answered twice: {reply:?}"));
            if let (Request::ActFor { .. }, Reply::Done) = (&request, &reply) {
                connection.act();
            }
            connection.replies.push_back((seq, request, reply));
        }
    }

    fn set_reading(&mut self, session: SessionId, is_reading: bool) {
        if let Some(connection) = self.connections.get_mut(&session) {
            assert_ne!(
                connection.is_reading, is_reading,
                "{session:?} is suspended or resumed twice"
            );
            connection.is_reading = is_reading;
        }
    }

    fn fault(&mut self, permille: u64) -> Option<Errno> {
        if let Some(errno) = self.next_errors.pop_front() {
            return Some(errno).filter(|errno| errno.0 != 0);
        }
        self.rng.chance(permille).then(|| self.rng.pick(&[Errno(1), Errno(16)]))
    }

    fn is_foreign(&self, thread: ThreadId) -> bool {
        let uids = self.kernel.uids_of(thread);
        let uid = self.user_of(thread).filter(|&uid| uid != 0);
        uids.zip(uid).is_some_and(|(uids, uid)| uids.other_than(uid).is_some())
    }

    fn restore(
        &mut self,
        ticket: Ticket,
        thread: ThreadId,
        attr: &Attr,
        applied: &Attr,
        owner: Option<u32>,
    ) {
        let mut given = self.tried.get(&thread).cloned().unwrap_or_default();
        given.extend([Some(*applied), self.applied.get(&thread).copied()].into_iter().flatten());
        let before = self.kernel.thread_of(thread).map(|(_, found)| found.attr);
        let fault = self.fault(self.faults.restore);
        let result = self.kernel.restore(thread, attr, (&given, owner), self.now, fault);
        let wider = result.is_ok() && self.rng.chance(self.faults.restore / 4);
        self.inbox.push_back(if wider {
            // None of the thread's own CPUs is left.
            let all = Attr { cpus: self.platform.cpus, ..*attr };
            let done = self.kernel.restore(thread, &all, (&given, owner), self.now, None);
            assert_eq!(done, Ok(()), "a restore succeeds with all CPUs");
            Input::DoneWithCaveat { ticket, caveat: Caveat::AffinityWidened }
        } else {
            Input::Done { ticket, result }
        });
        let after = self.kernel.thread_of(thread).map(|(_, found)| found.attr);
        if let Some((before, after)) = before.zip(after)
            && self.is_foreign(thread)
        {
            let demoted = before.policy.is_real_time() && !after.policy.is_real_time();
            assert!(
                after.policy == before.policy || demoted,
                "a foreign thread has got {after:?}, had {before:?}"
            );
            assert!(
                after.cpus == before.cpus || given.iter().any(|given| given.cpus == before.cpus),
                "a foreign thread was moved from {before:?}"
            );
        }
    }

    /// Reports the credentials and the changed attributes of all attached threads to the broker.
    fn apply(&mut self, ticket: Ticket, thread: ThreadId, attr: &Attr, owner: Option<u32>) {
        if let Some(uids) = self.kernel.uids_of(thread)
            && owner.is_some_and(|owner| uids.other_than(owner).is_some())
        {
            let found = Found::Credentials(uids);
            return self.inbox.push_back(Input::NotApplied { ticket, found });
        }
        assert!(!self.is_foreign(thread), "a foreign thread is to get {attr:?}");
        if let Some((_, found)) = self.kernel.thread_of(thread)
            && let Some(applied) = self.applied.get(&thread)
            && !is_given(&found.attr, &[*applied, *attr])
        {
            let found = Found::Attr(found.attr);
            return self.inbox.push_back(Input::NotApplied { ticket, found });
        }
        if let Some((tid, start)) =
            self.kernel.thread_of(thread).map(|(tid, found)| (tid, found.start))
        {
            let recorded = self.file.values().filter_map(|record| record.thread);
            let known =
                recorded.filter(|recorded| (recorded.tid, recorded.start) == (tid, start)).count();
            assert_eq!(
                known, 1,
                "thread {tid} becomes real-time and has {known} records in the state file"
            );
        }
        let fault = self.fault(self.faults.apply);
        self.tried.entry(thread).or_default().push(*attr);
        let result = match self.kernel.set(thread, attr, self.now, fault) {
            Ok(ApplyOutcome::Asleep) => {
                let given = self.applied.remove(&thread).map(|applied| [applied, *attr]);
                self.kernel.await_wakeup(thread, given, owner, self.now);
                let input = Input::DoneWithCaveat { ticket, caveat: Caveat::PendingWakeup };
                return self.inbox.push_back(input);
            }
            Ok(ApplyOutcome::NotBefore(at)) => {
                return self.inbox.push_back(Input::NotBefore { ticket, at });
            }
            Ok(ApplyOutcome::Done) => {
                self.applied.insert(thread, *attr);
                self.tried.remove(&thread);
                Ok(())
            }
            Err(errno) => Err(errno),
        };
        if let (None, Err(errno)) = (fault, result) {
            // A spec whose thread has just exited keeps its reservation, and the kernel still
            // counts the old thread's share: the next thread may be too early.
            if errno.0 != 3 && !self.kernel.has_zero_lag_hold(&attr.cpus, self.now) {
                self.refused_by_kernel.push((self.now, *attr, errno));
            }
        }
        self.inbox.push_back(Input::Done { ticket, result });
    }

    /// Passes the next queued input to the broker; returns false if there is none.
    pub fn deliver_input(&mut self) -> bool {
        let Some(input) = self.inbox.pop_front() else { return false };
        self.handle_input(input);
        true
    }

    /// Reports one exited thread or process to the broker; returns false if there is none.
    pub fn deliver_exit(&mut self) -> bool {
        let dead =
            self.watched.iter().copied().find(|&handle| self.kernel.thread_of(handle).is_none());
        if let Some(thread) = dead {
            self.watched.remove(&thread);
            self.handle_input(Input::ThreadExited { thread });
            return true;
        }
        let dead =
            self.watched_processes.iter().copied().find(|&process| !self.kernel.is_alive(process));
        if let Some(process) = dead {
            self.watched_processes.remove(&process);
            self.handle_input(Input::ProcessExited { process });
            return true;
        }
        false
    }

    /// Runs until idle, without advancing the time or answering foreign plugins.
    pub fn run_until_idle(&mut self) {
        for _ in 0..100_000 {
            let sessions: Vec<SessionId> = self.connections.keys().copied().collect();
            let worked = self.run_effect() || self.deliver_input() || self.deliver_exit() || {
                let due = self.broker.next_wakeup().is_some_and(|at| at <= self.now);
                if due {
                    self.handle_input(Input::Timer);
                }
                due || sessions.into_iter().any(|session| self.read_one(session))
            };
            if !worked {
                return;
            }
        }
        panic!("the simulation does not become idle");
    }

    /// Advances the time; the timer comes late or not at all, as with the real driver.
    pub fn advance(&mut self, span: Span) {
        self.now = self.now.saturating_add(span);
        let late: Vec<Ticket> = self
            .calls
            .iter()
            .filter(|(_, (_, _, until))| *until <= self.now)
            .map(|(&t, _)| t)
            .collect();
        for ticket in late {
            self.calls.remove(&ticket);
            self.handle_input(Input::PluginAnswered { ticket, answer: None });
        }
        if self.broker.next_wakeup().is_some_and(|at| at <= self.now) {
            self.handle_input(Input::Timer);
        }
    }

    /// Returns [`Broker::leftovers`] after an input that releases expired holds.
    pub fn leftovers(&mut self) -> Vec<String> {
        self.handle_input(Input::Timer);
        self.run_until_idle();
        self.broker.leftovers()
    }

    /// Kills the daemon and starts another one with the state file. live counterpart: SIGKILL to
    /// talead under load.
    pub fn restart(&mut self) {
        self.restart_with(self.setup.clone());
    }

    /// Kills the daemon and starts another one with a changed setup.
    pub fn restart_with(&mut self, setup: Setup) {
        self.setup = setup;
        self.started = self.now;
        self.trail.clear();
        self.trail_sums = Balance::default();
        self.effects.clear();
        self.inbox.clear();
        self.hosts.ended.clear();
        self.hosts.held.clear();
        self.watched.clear();
        self.limits.clear();
        self.watched_processes.clear();
        self.applied.clear();
        self.tried.clear();
        self.calls.clear();
        self.connections.clear();
        self.kernel.close_all();
        self.exited = false;
        let broker = Broker::new(self.setup.clone(), self.platform.clone());
        self.broker = broker.expect("the setup is valid on this machine");
        self.broker.set_identity(2, 1);
        for (slot, record) in self.file.clone() {
            let found = record.thread.and_then(|thread| self.kernel.open(thread.tid));
            let same = |facts: &ThreadFacts| {
                record.thread.is_some_and(|thread| thread.start == facts.start)
            };
            let thread = match found {
                Some(facts) if !same(&facts) => {
                    self.kernel.close(facts.thread);
                    None
                }
                other => other,
            };
            let lingers = record.thread.is_none_or(|last| {
                thread.is_none() && self.kernel.has_zero_lag_hold(&last.applied.cpus, self.now)
            });
            if let Some((facts, of_thread)) = thread.zip(record.thread) {
                let RecordThread { applied, previous, .. } = of_thread;
                let found = drift::adopted(&facts.attr, &applied, &previous);
                self.applied.insert(facts.thread, found);
            }
            let process = ProcessId { pid: record.pid, start: record.pid_start };
            let process_alive = self.kernel.is_alive(process);
            let witness = thread
                .as_ref()
                .filter(|facts| facts.uids.effective == record.uid)
                .map(|facts| facts.tgid);
            let witness = if process_alive { Some(record.pid) } else { witness };
            let groups = witness.and_then(|pid| self.groups.get(&pid).cloned());
            self.handle_input(Input::Adopt {
                slot,
                record: Box::new(record),
                thread,
                lingers,
                process_alive,
                groups,
            });
        }
        self.handle_input(Input::RecordSlots { slots: self.slots, errno: Errno(0) });
    }

    /// Reloads the configuration. live counterpart: SIGHUP to talead.
    pub fn reload(&mut self, setup: Setup) {
        self.setup = setup.clone();
        self.handle_input(Input::Reloaded { setup: Box::new(setup) });
    }

    /// Returns the broker's setup.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Returns the number of pending effects and inputs.
    pub fn in_flight(&self) -> usize {
        self.effects.len() + self.inbox.len()
    }

    /// Checks the invariants of an idle system.
    ///
    /// With `lenient`, a fault may have made a restore fail. Then a thread may have lost its
    /// policy, but it must not have a real-time policy that it did not have before.
    pub fn check_idle(&mut self, lenient: bool) {
        assert_eq!(self.in_flight(), 0, "not idle");
        self.check_trail();
        self.broker.audit_aggregates();
        // An inspection finds a change after this time at most.
        let is_recent = |at: Option<Monotonic>| {
            let from = at.map(|at| at.max(self.started));
            from.is_some_and(|from| self.now < from.saturating_add(Span::from_ns(200_000_000)))
        };
        for slot in self.broker.confirmed() {
            let (record, wanted) = (self.broker.record(slot), self.broker.expected_attr(slot));
            let Some((record, wanted)) = record.zip(wanted) else { continue };
            assert_eq!(
                self.file.get(&slot),
                Some(&record),
                "the record in slot {slot} is outdated"
            );
            if let Some(thread) = record.thread {
                let found = &self.kernel.threads[&thread.tid];
                assert_eq!(
                    found.start, thread.start,
                    "another thread has the id of an attached thread"
                );
                if is_recent(found.set_outside_at) {
                    continue;
                }
                assert_eq!(
                    found.attr, wanted,
                    "ledger and kernel differ for thread {}",
                    thread.tid
                );
                let is_limited = matches!(wanted.policy, Policy::Fifo(_) | Policy::Rr(_));
                let declared = record.runtime.zip(record.task.params.period);
                let declared = declared.filter(|(budget, period)| {
                    is_limited && !budget.is_zero() && budget.as_ns() < period.as_ns()
                });
                let handle = self.broker.thread_of(record.spec).expect("the record has a thread");
                let limit = self.limits.get(&handle).copied();
                if record.runtime.is_none() || record.task.params.period.is_none() {
                    let share = self.broker.limit_of(slot);
                    assert_eq!(limit, share, "the share of thread {}", thread.tid);
                } else {
                    let limit = limit.map(|limit| (limit.budget, limit.period));
                    assert_eq!(limit, declared, "the limit of thread {}", thread.tid);
                }
                assert!(
                    record.uid == 0
                        || is_recent(found.credentials_at)
                        || found.uids.other_than(record.uid).is_none(),
                    "foreign thread {} has a grant of user {}",
                    thread.tid,
                    record.uid
                );
            }
        }
        let attached: BTreeSet<(u32, u64)> = self
            .file
            .values()
            .filter_map(|record| record.thread)
            .map(|t| (t.tid, t.start))
            .collect();
        for (tid, thread) in &self.kernel.threads {
            if !attached.contains(&(*tid, thread.start)) {
                let (is, was) = (thread.attr, thread.own);
                if thread.set_outside_at.is_some() || thread.credentials_at.is_some() {
                    let is_left = is.policy.is_real_time() && is.reset_on_fork;
                    assert!(!is_left, "thread {tid} has kept granted attributes: {is:?}");
                } else if lenient {
                    let harmless = is.policy == was.policy || !is.policy.is_real_time();
                    assert!(harmless, "thread {tid} has kept granted attributes: {is:?}");
                } else {
                    assert_eq!(
                        is, was,
                        "thread {tid} does not have its attributes from before the grant"
                    );
                }
            }
        }
        // A request that waits behind a deferred one may have a handle, too.
        let waits = self.connections.values().any(|connection| !connection.outstanding.is_empty());
        if self.calls.is_empty() && !waits {
            let known = self.broker.attached() as usize + self.broker.waiting_threads();
            assert_eq!(self.kernel.open_handles(), known, "handles leak");
        }
        for (session, connection) in &self.connections {
            if connection.is_reading && self.calls.is_empty() {
                let unanswered = &connection.outstanding;
                assert!(unanswered.is_empty(), "{session:?} waits for {unanswered:?}");
            }
        }
    }
}
