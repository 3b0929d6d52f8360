//! State of the broker, dispatch of inputs and queue of effects.
//!
//! Model: [`Broker::handle`] receives the time and one input. When it returns, the queue contains
//! all immediate effects. The results of the kernel or of a foreign plugin return as separate
//! inputs.
//!
//! Invariants, checked by the simulation after each step:
//!
//! 1. A request of an existing connection is answered exactly once.
//! 2. An effect that makes a thread privileged is preceded by the effect that records it.
//! 3. The ledger contains what the kernel has confirmed. While a change awaits the kernel's result,
//!    the ledger contains the new terms, and no other request may reserve.

use crate::attached_threads::AttachedThreads;
use crate::clients::Clients;
use crate::deferred::DeferredChange;
use crate::foreign::Host;
use crate::ids::Ids;
use crate::input::{Effect, Input, LogEvent, Platform, ProcessId, SessionId, ThreadId, Ticket};
use crate::level_quota::HeldLevels;
use crate::log_limit::LogLimit;
use crate::outbox::Outbox;
use crate::pending_changes::PendingChanges;
use crate::plugin::ThreadScope;
use crate::plugin_set::{PluginSet, SpecSlot};
use crate::records::RecordRoom;
use crate::rules::Rules;
use crate::session::{QueuedRequest, Session};
use crate::slab::Slab;
use crate::spec::ReplyTo;
use crate::starvation::Canaries;
use crate::subjects::{Subject, Subordinates};
use crate::threads::AttrChange;
use crate::trail::Trail;
use crate::users::Users;
use crate::waiting::WaitingRequest;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use talea_core::Monotonic;
use talea_core::mutate;
use talea_core::setup::Setup;
use talea_proto::counters::CODES;
use talea_proto::message::Name;
use talea_proto::record::Record;
use talea_proto::refusal::PluginAnswer;
use talea_proto::{Code, Field, GROUP_MAX, Refusal, Reply, SpecId};

/// Sessions, specs, rules and plugins of one daemon.
pub struct Broker {
    pub(crate) setup: Setup,
    pub(crate) platform: Platform,
    /// CPUs that are off-line now.
    pub(crate) offline: talea_core::CpuSet,
    pub(crate) plugin_set: PluginSet,
    pub(crate) rules: Rules,
    /// `hosts[p]`: host of plugin `p`; unused for built-in plugins.
    pub(crate) hosts: Vec<Host>,

    pub(crate) identity: Identity,
    pub(crate) now: Monotonic,
    outbox: Outbox,

    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// Number of connections beyond the quota, which are open only for their refusal.
    pub(crate) rejected_sessions: u32,
    pub(crate) clients: Clients,
    pub(crate) users: Users,
    pub(crate) subordinates: Subordinates,
    pub(crate) log_limit: LogLimit,
    pub(crate) trail: Trail,
    pub(crate) held_levels: HeldLevels,

    pub(crate) specs: Slab,
    /// Room for the records of the specs.
    pub(crate) record_room: RecordRoom,
    pub(crate) ids: Ids,
    pub(crate) next_id: u64,
    /// Slots of the attached threads.
    pub(crate) threads: AttachedThreads,
    /// Watched processes, with the owner of each watch.
    pub(crate) processes: BTreeSet<(ProcessId, WatchOwner)>,
    pub(crate) timers: BTreeSet<(Monotonic, Timer)>,

    /// Connections whose time-out for the hello has expired during the current input.
    pub(crate) overdue_hellos: Vec<SessionId>,
    /// Connections with a queued request that can be served now.
    pub(crate) ready: VecDeque<SessionId>,
    pub(crate) changes: PendingChanges,
    /// Changes that wait for the end of their thread's overrun.
    pub(crate) deferred: BTreeMap<SessionId, DeferredChange>,
    /// Requests that wait for the end of zero-lag holds.
    pub(crate) waiting: BTreeMap<SessionId, WaitingRequest>,
    /// Number of specs whose thread the kernel refuses to restore; retried by timer.
    pub(crate) restore_failed: u32,
    /// Time of the next inspection; `None` without attached threads.
    pub(crate) inspection_at: Option<Monotonic>,
    pub(crate) canaries: Canaries,
    pub(crate) stopping: Option<Shutdown>,
    pub(crate) adopted: Adopted,

    /// `exclusive[cpu]`: slot of the spec that has reserved the CPU.
    pub(crate) exclusive: BTreeMap<u32, u32>,

    pub(crate) counters: Counters,
    pub(crate) buffers: Buffers,
}

/// Buffers that later decisions use again, so that these allocate nothing.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Answers of the plugins to a request.
    pub(crate) answers: Vec<PluginAnswer>,
    /// Specs whose kernel priority a decision has changed.
    pub(crate) moved: Vec<SpecSlot>,
    /// Orders that follow from a decision.
    pub(crate) moves: Vec<AttrChange>,
}

/// Identity of the daemon.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Identity {
    /// Random number of this daemon instance.
    pub(crate) instance: u64,
    /// Process of the daemon.
    pub(crate) pid: u32,
    /// Time of the first input.
    pub(crate) started: Option<Monotonic>,
}

impl Identity {
    /// Returns the nanoseconds since the first input.
    pub(crate) fn uptime_ns(&self, now: Monotonic) -> u64 {
        now.as_ns() - self.started.unwrap_or(now).as_ns()
    }
}

/// Owner of a watch on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WatchOwner {
    /// A connection, which a child of the process must not keep open.
    Session(SessionId),
    /// A spec.
    Spec(u32),
}

/// Purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// End the rate limit of a connection.
    RateLimitEnd(SessionId),
    /// Close a connection without a hello.
    HelloOverdue(SessionId),
    /// Repeat an apply or a restore that the kernel refused or deferred.
    Retry(u32),
    /// End the time for the claim of an adopted spec.
    ClaimEnd(u32),
    /// Evaluate a deferred change again.
    ResumeDeferred(SessionId),
    /// Evaluate a request again that waited for a zero-lag hold.
    ResumeWaiting(SessionId),
    /// Inspect the attached threads.
    Inspect,
    /// Check the canaries again, because one is silent.
    CheckCanaries,
    /// Log the number of suppressed log lines.
    LogSummary,
    /// Record the counted events of the audit trail.
    AuditCounts,
}

/// Shutdown in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shutdown {
    /// Request to answer after the last restore; `None` without `release`, and after the reply.
    pub(crate) reply_to: Option<ReplyTo>,
    /// Whether every grant is released first.
    pub(crate) release: bool,
}

/// Adopted specs in states of their own.
#[derive(Debug, Default)]
pub(crate) struct Adopted {
    /// Process, library and slot of specs that have to be claimed.
    pub(crate) unclaimed: BTreeSet<(ProcessId, u64, u32)>,
    /// Specs whose thread has not been compared with the ledger.
    pub(crate) unverified: Vec<u32>,
}

/// Counters for the status report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: u64,
    /// `refusals[c]`: requests that were refused with the code of this number.
    pub(crate) refusals: [u64; CODES],
    pub(crate) attached: u32,
    pub(crate) adopted: u32,
}

impl Counters {
    pub(crate) fn count_refusal(&mut self, refusal: &Refusal) {
        self.refusals[mutate!("message-counters", refusal.code as usize, 0)] += 1;
    }

    /// Returns the number of refused requests.
    pub(crate) fn refused(&self) -> u64 {
        self.refusals.iter().sum()
    }
}

impl Broker {
    /// Creates a broker without grants. The error names the plugin that cannot work, with the
    /// reason.
    pub fn new(setup: Setup, platform: Platform) -> Result<Broker, String> {
        let plugin_set = PluginSet::new(&setup, &platform)?;
        let rules = Rules::compile(&setup);
        let subordinates = Subordinates::new(&setup.subordinate_users);
        Ok(Broker {
            hosts: (0..plugin_set.len()).map(|_| Host::default()).collect(),
            setup,
            offline: platform.offline,
            platform,
            plugin_set,
            rules,
            identity: Identity::default(),
            now: Monotonic::ZERO,
            outbox: Outbox::default(),
            sessions: BTreeMap::new(),
            rejected_sessions: 0,
            clients: Clients::default(),
            users: Users::default(),
            subordinates,
            log_limit: LogLimit::default(),
            trail: Trail::default(),
            held_levels: HeldLevels::default(),
            specs: Slab::default(),
            record_room: RecordRoom::default(),
            ids: Ids::default(),
            next_id: 1,
            threads: AttachedThreads::default(),
            processes: BTreeSet::new(),
            timers: BTreeSet::new(),
            overdue_hellos: Vec::new(),
            ready: VecDeque::new(),
            changes: PendingChanges::default(),
            deferred: BTreeMap::new(),
            waiting: BTreeMap::new(),
            restore_failed: 0,
            inspection_at: None,
            canaries: Canaries::default(),
            stopping: None,
            adopted: Adopted::default(),
            exclusive: BTreeMap::new(),
            counters: Counters::default(),
            buffers: Buffers::default(),
        })
    }

    /// Sets the identity for the welcome reply and the status report.
    pub fn set_identity(&mut self, instance: u64, pid: u32) {
        (self.identity.instance, self.identity.pid) = (instance, pid);
    }

    /// Handles one input. Times may repeat; a time before the last one counts as the last one.
    pub fn handle(&mut self, now: Monotonic, input: Input) {
        self.now = self.now.max(now);
        self.identity.started.get_or_insert(self.now);
        self.plugin_set.release_expired(self.now);
        self.fire_timers();
        let is_adopting = matches!(input, Input::Adopt { .. });
        if !is_adopting {
            self.apply_adopted();
        }
        match input {
            Input::Connected { session, peer } => self.session_opened(session, peer),
            Input::Received { session, seq, request, thread, caller, entropy } => {
                let scope = ThreadScope::default();
                let queued = QueuedRequest { seq, request, thread, caller, scope, entropy };
                self.received(session, queued);
            }
            Input::Undecodable { session, seq, refusal } => {
                self.undecodable(ReplyTo { session, seq }, refusal);
            }
            Input::Disconnected { session } => self.disconnected(session),
            Input::CredentialsChanged { thread, uids } => self.credentials_changed(thread, uids),
            Input::AttrChanged { thread, attr } => self.attr_changed(thread, &attr),
            Input::NotApplied { ticket, found } => self.not_applied(ticket, &found),
            Input::CanariesChecked { silent, consumed } => {
                self.canaries_checked(&silent, &consumed);
            }
            Input::CpuTime { thread, consumed } => self.cpu_time(thread, consumed),
            Input::RealTimeThreads { threads } => self.real_time_threads(&threads),
            Input::ThreadExited { thread } => self.thread_exited(thread),
            Input::Overrun { thread } => self.overrun(thread),
            Input::Overran { thread, overruns, consumed } => {
                self.overran(thread, overruns, consumed);
            }
            Input::ProcessExited { process } => self.process_exited(process),
            Input::Done { ticket, result } => self.done(ticket, result),
            Input::NiceSet { order, result } => self.nice_set(&order, result),
            Input::DoneWithCaveat { ticket, caveat } => self.done_with_caveat(ticket, caveat),
            Input::NotBefore { ticket, at } => self.not_before(ticket, at),
            Input::PluginAnswered { ticket, answer } => {
                self.plugin_answered(ticket, answer.as_ref());
            }
            Input::PluginRanked { plugin, ranks, more } => self.plugin_ranked(plugin, &ranks, more),
            Input::HostFailed { plugin } => self.take_out_of_service(plugin, "its host has ended"),
            Input::CpusChanged { offline } => self.cpus_changed(offline),
            Input::HostStarting { plugin } => self.host_starting(plugin),
            Input::HostServes { plugin } => self.take_into_service(plugin),
            Input::Reloaded { setup } => self.reloaded(*setup),
            Input::Adopt { slot, record, thread, lingers, process_alive, groups } => {
                self.adopt(slot, &record, thread, lingers, process_alive, groups);
            }
            Input::RecordSlots { slots, errno } => {
                self.record_room = RecordRoom { slots, errno };
            }
            Input::Timer => {}
        }
        self.close_silent();
        self.serve_waiting();
        // Shares of adopted threads are final after the last record.
        if !is_adopting {
            self.sync_shares(None);
        }
        self.finish_stopping();
    }

    /// Removes and returns the oldest effect; `None` if there is none.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.outbox.pop()
    }

    /// Returns the time at which the driver must pass [`Input::Timer`], unless it passes another
    /// input earlier; `None` if no timer is armed.
    ///
    /// Zero-lag holds need a timer only if a request waits for them, because [`Broker::handle`]
    /// first releases the expired ones.
    pub fn next_wakeup(&self) -> Option<Monotonic> {
        if !self.adopted.unverified.is_empty() {
            return Some(self.now);
        }
        self.timers.first().map(|&(at, _)| at)
    }

    /// Returns the handle of the thread that is attached to a spec; `None` if there is none. Before
    /// a request to change the spec, the driver checks the thread's owner
    /// ([`Input::CredentialsChanged`]).
    pub fn thread_of(&self, spec: SpecId) -> Option<ThreadId> {
        let slot = self.ids.get(spec)?;
        self.specs.at(slot).thread.as_ref().map(|thread| thread.thread)
    }

    /// Returns the record of `slot` for the state file; `None` clears the slot.
    pub fn record(&self, slot: u32) -> Option<Record> {
        self.specs.get(slot).filter(|spec| spec.id.0 != 0).map(|spec| {
            let is_asked = self.clients.has_front_end(spec.client);
            spec.record(self.plugin_name(spec.plugin), is_asked)
        })
    }

    /// Returns the number of slots that the driver should allocate before a request that creates
    /// specs; `None` if there are enough for the largest group.
    pub fn wanted_slots(&self) -> Option<u32> {
        let wanted = self.specs.end_after(GROUP_MAX as u32);
        (wanted > self.record_room.slots).then_some(wanted)
    }

    /// Returns the name of a plugin; empty if this daemon does not have it.
    pub(crate) fn plugin_name(&self, plugin: u32) -> Name {
        self.plugin_set.name(plugin).unwrap_or_default()
    }

    pub(crate) fn emit(&mut self, effect: Effect) {
        self.outbox.push(effect);
    }

    pub(crate) fn log(&mut self, event: LogEvent) {
        self.emit(Effect::Log(event));
    }

    /// Logs an event that a client of this subject has caused, within the rate limit.
    pub(crate) fn log_about(&mut self, subject: Subject, event: LogEvent) {
        let first = !self.log_limit.has_suppressed();
        if self.log_limit.allows(subject, self.now) {
            self.log(event);
        } else if first {
            self.timers.insert((self.log_limit.end(), Timer::LogSummary));
        }
    }

    /// Logs the number of suppressed lines, after the window.
    pub(crate) fn log_summary(&mut self) {
        if let Some((lines, subject)) = self.log_limit.take_suppressed() {
            self.log(LogEvent::Suppressed { lines, subject });
        }
    }

    /// Creates a ticket that contains `place`: a slot, or a plugin.
    pub(crate) fn ticket(&mut self, place: u32) -> Ticket {
        self.outbox.ticket(place)
    }

    /// Answers a request, unless its connection is gone, and makes the next request of that
    /// connection ready.
    pub(crate) fn reply(&mut self, reply_to: ReplyTo, reply: Reply) {
        if let Some(session) = self.sessions.get_mut(&reply_to.session) {
            session.reply_sent();
            if session.has_waiting() {
                self.ready.push_back(reply_to.session);
            }
            self.emit(Effect::Reply { session: reply_to.session, seq: reply_to.seq, reply });
            self.update_reading(reply_to.session);
        }
    }

    /// Refuses a request, and logs the first refusal of each cause per connection.
    pub(crate) fn refuse(&mut self, reply_to: ReplyTo, refusal: Box<Refusal>) {
        self.counters.count_refusal(&refusal);
        let asked = self.sessions.get(&reply_to.session).map(|session| session.asked);
        if let Some(asked) = asked {
            self.record_refusal(reply_to.session, asked, &refusal);
        }
        self.log_refusal(reply_to.session, &refusal);
        self.reply(reply_to, Reply::Refused(refusal));
    }

    pub(crate) fn log_refusal(&mut self, session: SessionId, refusal: &Refusal) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        if session.is_first_of_cause(refusal.code, refusal.field) {
            let (uid, pid, subject) = (session.uid, session.process.pid, session.subject);
            let refusal = Box::new(refusal.clone());
            self.log_about(subject, LogEvent::Refused { uid, pid, refusal });
        }
    }

    /// Answers with success or with the refusal.
    pub(crate) fn reply_or_refuse(
        &mut self,
        reply_to: ReplyTo,
        result: Result<Reply, Box<Refusal>>,
    ) {
        match result {
            Ok(reply) => self.reply(reply_to, reply),
            Err(refusal) => self.refuse(reply_to, refusal),
        }
    }

    pub(crate) fn watch_process(&mut self, process: ProcessId, owner: WatchOwner) {
        let known = self.watches(process);
        self.processes.insert((process, owner));
        if !known {
            self.emit(Effect::WatchProcess { process });
        }
    }

    pub(crate) fn unwatch_process(&mut self, process: ProcessId, owner: WatchOwner) {
        if self.processes.remove(&(process, owner)) && !self.watches(process) {
            self.emit(Effect::ForgetProcess { process });
        }
    }

    fn watches(&self, process: ProcessId) -> bool {
        let least = (process, WatchOwner::Session(SessionId(0)));
        self.processes.range(least..).next().is_some_and(|(found, _)| *found == process)
    }

    fn process_exited(&mut self, process: ProcessId) {
        let least = (process, WatchOwner::Session(SessionId(0)));
        let of_it = self.processes.range(least..).take_while(|(found, _)| *found == process);
        let owners: Vec<WatchOwner> = of_it.map(|&(_, owner)| owner).collect();
        for &owner in &owners {
            self.processes.remove(&(process, owner));
        }
        for owner in owners {
            match owner {
                // A child process may still hold the socket, but it is not the peer that connected.
                WatchOwner::Session(session) => {
                    mutate!("life-inherited-socket", self.close(session));
                }
                WatchOwner::Spec(slot) => {
                    // The end of an earlier watch owner may have removed this spec.
                    if let Some(spec) =
                        self.specs.get_mut(slot).filter(|spec| spec.lifetime.process == process)
                    {
                        spec.lifetime.process_watched = false;
                        mutate!("life-process", spec.lifetime.process_exited = true);

                        self.release_if_unowned(slot);
                    }
                }
            }
        }
    }

    fn fire_timers(&mut self) {
        while let Some(&(at, timer)) = self.timers.first().filter(|(at, _)| *at <= self.now) {
            self.timers.remove(&(at, timer));
            match timer {
                Timer::HelloOverdue(session) => self.overdue_hellos.push(session),
                Timer::RateLimitEnd(session) => self.rate_limit_ended(session),
                Timer::Retry(slot) => self.retry(slot),
                Timer::ClaimEnd(slot) => self.claim_time_ended(slot),
                Timer::ResumeDeferred(session) => self.resume_deferred(session),
                Timer::ResumeWaiting(session) => self.resume_waiting(session),
                Timer::Inspect => self.inspect(),
                Timer::CheckCanaries => {
                    self.canaries.timer = None;
                    self.check_canaries();
                }
                Timer::LogSummary => self.log_summary(),
                Timer::AuditCounts => self.audit_window_ended(),
            }
        }
    }

    fn finish_stopping(&mut self) {
        let all_tried = self.specs.len() <= self.restore_failed;
        if let Some(Shutdown { reply_to: Some(reply_to), release: true }) = self.stopping
            && all_tried
        {
            self.stopping = Some(Shutdown { reply_to: None, release: true });
            self.reply(reply_to, Reply::Done);
            self.emit(Effect::Exit);
        }
    }

    /// Stops the daemon if the superuser requests it. With `release`, the broker first restores
    /// every thread; the reply follows the last restore.
    pub(crate) fn stop(&mut self, reply_to: ReplyTo, release: bool) {
        if mutate!("message-stop", self.sessions[&reply_to.session].uid != 0, false) {
            return self.refuse(
                reply_to,
                crate::refuse::refusal_without_numbers(Code::NotRoot, Field::Request),
            );
        }
        self.stopping = Some(Shutdown { reply_to: release.then_some(reply_to), release });
        self.refuse_pending();
        self.refuse_deferred();
        if !release {
            self.reply(reply_to, Reply::Done);
            self.emit(Effect::Exit);
            return;
        }
        let slots: Vec<u32> = self.specs.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            if self.specs.get(slot).is_some() {
                self.release_if_unowned(slot);
            }
        }
    }
}
