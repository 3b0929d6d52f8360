//! Questions that change nothing: specs, plugins, connections, the daemon in numbers.
//!
//! Lists go by "the first at or after", so a client that asks for an index that does not exist gets
//! the end of the list and nothing else (facts M3, M4), and what comes and goes between two
//! questions shifts nothing. Users see what is theirs; root sees everything.

use crate::broker::Broker;
use crate::input::{SessionId, ThreadId};
use crate::spec::{Attached, Spec};
use crate::suite::Slot;
use crate::whose::Wish;
use talea_core::mutate;
use talea_proto::message::{SessionInfo, SpecId, SpecInfo, Status, Token};
use talea_proto::{Refusal, Reply, Request};

impl Broker {
    /// The answer to a question that changes nothing.
    pub(crate) fn look_up(
        &self,
        asker: SessionId,
        question: &Request,
    ) -> Result<Reply, Box<Refusal>> {
        Ok(match *question {
            Request::Query(id) => {
                let slot = self.find(asker, id, Wish::See)?;
                Reply::Spec(Box::new(self.spec_info(asker, slot)))
            }
            Request::Status => Reply::Status(Box::new(self.status())),
            Request::Plugin(plugin) if (plugin as usize) < self.suite.len() => {
                Reply::Plugin(Box::new(self.suite.info(plugin)))
            }
            Request::PluginCpu { plugin, index } if (plugin as usize) < self.suite.len() => {
                self.suite.cpu(plugin, index).map_or(Reply::End, Reply::PluginCpu)
            }
            Request::NextSpec(from) => self.next_spec(asker, from),
            Request::NextSession(from) => self.next_session(asker, SessionId(from)),
            _ => Reply::End,
        })
    }

    fn next_spec(&self, asker: SessionId, from: SpecId) -> Reply {
        let uid = self.sessions[&asker].uid;
        let next = if mutate!("message-next-spec", uid == 0, true) {
            self.ids.at_least(from)
        } else {
            self.users.spec_at_least(uid, from)
        };
        next.map_or(Reply::End, |(_, slot)| Reply::Spec(Box::new(self.spec_info(asker, slot))))
    }

    fn next_session(&self, asker: SessionId, from: SessionId) -> Reply {
        let uid = self.sessions[&asker].uid;
        let mut visible =
            self.sessions.range(from..).filter(|(_, session)| uid == 0 || session.uid == uid);
        visible.find(|(_, session)| !session.is_turned_away()).map_or(
            Reply::End,
            |(id, session)| {
                Reply::Session(SessionInfo {
                    session: id.0,
                    pid: session.process.pid,
                    uid: session.uid,
                    specs: session.specs.len() as u32,
                })
            },
        )
    }

    fn spec_info(&self, asker: SessionId, slot: u32) -> SpecInfo {
        let spec = self.specs.at(slot);
        let mut granted = self.granted(slot);
        if spec.session.is_none_or(|(session, _)| session != asker) {
            mutate!(
                "message-query",
                {
                    granted.token = Token([0; 16]);
                },
                {}
            );
        }
        SpecInfo {
            granted,
            task: spec.task,
            plugin_name: self.plugin_name(spec.plugin),
            uid: spec.uid,
            pid: spec.process.pid,
            tid: spec.thread.as_ref().map(|thread| thread.tid),
            attr: spec.thread.as_ref().filter(|thread| thread.naps == 0).map(|thread| thread.given),
        }
    }

    /// The daemon in numbers; `wakeups` is the driver's to fill.
    pub fn status(&self) -> Status {
        Status {
            instance: self.instance,
            pid: self.pid,
            uptime_ns: self.now.as_ns() - self.started.unwrap_or(self.now).as_ns(),
            plugins: self.suite.len() as u32,
            sessions: self.sessions(),
            specs: self.specs(),
            attached: self.attached(),
            requests: self.counters.requests,
            refused: self.counters.refused,
            adopted: mutate!("message-status", self.counters.adopted, 0),
            rules: self.setup.rules.len() as u32,
            wakeups: 0,
        }
    }

    /// Connections in service.
    pub fn sessions(&self) -> u32 {
        self.sessions.len() as u32 - self.turned_away
    }

    /// Accepted specs.
    pub fn specs(&self) -> u32 {
        self.ids.len() as u32
    }

    /// Threads under a spec.
    pub fn attached(&self) -> u32 {
        self.counters.attached
    }

    /// Connections and specs of one user.
    pub fn user_usage(&self, uid: u32) -> (u32, u32) {
        self.users.held(uid)
    }

    /// Whether somebody has asked for the daemon's end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// Whether `thread` is under a spec.
    pub fn is_attached(&self, thread: ThreadId) -> bool {
        self.threads.contains_key(&thread)
    }

    /// The slots with a spec whose thread, if any, the kernel has confirmed to be as the books say.
    pub fn confirmed(&self) -> impl Iterator<Item = u32> {
        let settled = |spec: &Spec| {
            let order_pending = spec.thread.as_ref().is_some_and(|thread| thread.ticket.is_some());
            let unwilling =
                |thread: &Attached| thread.failing || thread.naps > 0 || thread.retry_at.is_some();
            spec.is_idle() && !order_pending && !spec.thread.as_deref().is_some_and(unwilling)
        };
        self.specs.iter().filter(move |(_, spec)| settled(spec)).map(|(slot, _)| slot)
    }

    /// What the books say that a thread of this slot should be.
    pub fn should_be(&self, slot: u32) -> Option<talea_core::Attr> {
        self.specs.get(slot).filter(|spec| spec.booked).map(|_| self.suite.attr(Slot(slot)))
    }
}
