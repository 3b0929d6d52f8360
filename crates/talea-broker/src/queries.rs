//! Read-only requests: specs, plugins, connections and counters.
//!
//! Lists are read by "first element at or after an index". A request for an index beyond the end
//! returns the end of the list, and insertions and removals between two requests shift no index. A
//! user's requests return only the specs and connections of this user; those of the superuser
//! return all.

use crate::broker::Broker;
use crate::input::{SessionId, ThreadId};
use crate::ownership::AccessKind;
use crate::plugin_set::SpecSlot;
use crate::spec::{Attached, Spec};
use crate::subjects::Subject;
use talea_core::mutate;
use talea_core::setup::Quota;
use talea_proto::message::{Overruns, SessionInfo, SpecId, SpecInfo, Status, Token};
use talea_proto::{Refusal, Reply, Request};

impl Broker {
    /// Answers a read-only request.
    pub(crate) fn query(
        &self,
        requester: SessionId,
        question: &Request,
    ) -> Result<Reply, Box<Refusal>> {
        Ok(match *question {
            Request::Query(id) => {
                let slot = self.find(requester, id, AccessKind::Read)?;
                Reply::Spec(Box::new(self.spec_info(requester, slot)))
            }
            Request::Status => Reply::Status(Box::new(self.status())),
            Request::Counters => Reply::Counters(Box::new(self.counters())),
            Request::Plugin(plugin)
                if mutate!("message-plugin", (plugin as usize) < self.plugin_set.len(), true) =>
            {
                Reply::Plugin(Box::new(self.plugin_set.info(plugin)))
            }
            Request::PluginCpu { plugin, index }
                if mutate!(
                    "message-plugin-cpu",
                    (plugin as usize) < self.plugin_set.len(),
                    true
                ) =>
            {
                self.plugin_set.cpu_info(plugin, index).map_or(Reply::End, Reply::PluginCpu)
            }
            Request::NextSpec(from) => self.next_spec(requester, from),
            Request::NextSession(from) => self.next_session(requester, SessionId(from)),
            _ => Reply::End,
        })
    }

    fn next_spec(&self, requester: SessionId, from: SpecId) -> Reply {
        let uid = self.sessions[&requester].uid;
        let next = if mutate!("message-next-spec", uid == 0, true) {
            self.ids.at_least(from)
        } else {
            self.users.spec_at_least(uid, from)
        };
        next.map_or(Reply::End, |(_, slot)| Reply::Spec(Box::new(self.spec_info(requester, slot))))
    }

    fn next_session(&self, requester: SessionId, from: SessionId) -> Reply {
        let uid = self.sessions[&requester].uid;
        let mut visible = self.sessions.range(from..).filter(|(_, session)| {
            mutate!("message-next-session", uid == 0 || session.uid == uid, true)
        });
        visible.find(|(_, session)| !session.is_rejected()).map_or(Reply::End, |(id, session)| {
            Reply::Session(SessionInfo {
                session: id.0,
                pid: session.process.pid,
                uid: session.uid,
                specs: session.specs.len() as u32,
            })
        })
    }

    fn spec_info(&self, requester: SessionId, slot: u32) -> SpecInfo {
        let spec = self.specs.at(slot);
        let mut granted = self.granted(slot);
        if spec.session.is_none_or(|(session, _)| session != requester) {
            mutate!("message-query", granted.token = Token([0; 16]));
        }
        SpecInfo {
            granted,
            task: spec.task,
            plugin_name: self.plugin_name(spec.plugin),
            uid: spec.uid,
            pid: spec.lifetime.process.pid,
            tid: spec.thread.as_ref().map(|thread| thread.tid),
            attr: spec
                .thread
                .as_ref()
                .filter(|thread| thread.attempts.asleep == 0)
                .map(|thread| thread.applied),
            overruns: Overruns::default(),
            detached: spec.detached,
        }
    }

    /// Returns the counters; the driver fills in `wakeups`.
    pub fn status(&self) -> Status {
        Status {
            instance: self.identity.instance,
            pid: self.identity.pid,
            uptime_ns: self.identity.uptime_ns(self.now),
            plugins: self.plugin_set.len() as u32,
            sessions: self.sessions(),
            specs: self.specs(),
            attached: self.attached(),
            requests: self.counters.requests,
            refused: self.counters.refused(),
            adopted: mutate!("message-status", self.counters.adopted, 0),
            rules: self.setup.rules.len() as u32,
            wakeups: 0,
        }
    }

    /// Returns the counts of events; the driver adds the times of requests.
    pub fn counters(&self) -> talea_proto::Counters {
        let refusals = self.counters.refusals;
        talea_proto::Counters { refusals, ..self.audited_events() }
    }

    /// Returns the number of accepted connections.
    pub fn sessions(&self) -> u32 {
        self.sessions.len() as u32 - self.rejected_sessions
    }

    /// Returns the number of accepted specs.
    pub fn specs(&self) -> u32 {
        self.ids.len() as u32
    }

    /// Returns the number of attached threads.
    pub fn attached(&self) -> u32 {
        self.counters.attached
    }

    /// Returns the quotas in force.
    pub fn quota(&self) -> &Quota {
        &self.setup.quota
    }

    /// Returns the numbers of connections and specs that are charged to a subject.
    pub fn usage(&self, subject: Subject) -> (u32, u32) {
        self.users.usage(subject)
    }

    /// Whether `thread` is attached to a spec.
    pub fn is_attached(&self, thread: ThreadId) -> bool {
        self.threads.has_handle(thread)
    }

    /// Returns the slots of specs whose thread, if any, is confirmed by the kernel to have the
    /// attributes of the ledger.
    pub fn confirmed(&self) -> impl Iterator<Item = u32> {
        let settled = |spec: &Spec| {
            let order_pending = spec.thread.as_ref().is_some_and(|thread| thread.ticket.is_some());
            let unwilling = |thread: &Attached| thread.attempts.are_open();
            spec.is_idle() && !order_pending && !spec.thread.as_deref().is_some_and(unwilling)
        };
        self.specs.iter().filter(move |(_, spec)| settled(spec)).map(|(slot, _)| slot)
    }

    /// Returns the attributes that a thread of this slot should have; `None` if the slot has no
    /// reservation.
    pub fn expected_attr(&self, slot: u32) -> Option<talea_core::Attr> {
        self.specs
            .get(slot)
            .filter(|spec| spec.in_ledger)
            .map(|_| self.plugin_set.attr(SpecSlot(slot)))
    }
}
