//! Attach and detach: a thread becomes real-time under a spec, and becomes again what it was.
//!
//! Record, watch, apply; the answer waits for the kernel. Whose thread it is was read from the
//! kernel when the request was read (checklist R25). A thread serves one spec and a spec has one
//! thread (facts S5, S9), so one admission never makes two threads real-time.

use crate::broker::Broker;
use crate::input::{Effect, Errno, ForeignQuestion, ThreadError, ThreadFacts};
use crate::refuse::{ESRCH, kernel, plain, refusal};
use crate::restore::Way;
use crate::spec::{Asker, Attached, Step};
use crate::suite::Slot;
use crate::whose::Wish;
use talea_core::mutate;
use talea_proto::message::{But, SpecId};
use talea_proto::{Code, Field, Named, Refusal, Reply};

impl Broker {
    pub(crate) fn attach(
        &mut self,
        asker: Asker,
        id: SpecId,
        named: Named,
        thread: Option<Result<ThreadFacts, ThreadError>>,
    ) {
        match self.may_attach(asker, id, named, thread.as_ref()) {
            Ok((slot, facts)) => {
                let (previous, given) = (self.previous_of(&facts), self.suite.attr(Slot(slot)));
                self.enter_thread(slot, Attached::new(&facts, previous, given));
                self.specs.at_mut(slot).step = Step::Attaching(asker);
                let ticket = self.ticket(slot);
                let attached =
                    self.specs.at_mut(slot).thread.as_mut().expect("it was just entered");
                attached.ticket = Some(ticket);
                self.emit(Effect::Apply { ticket, thread: facts.thread, attr: given });
            }
            Err(refusal) => {
                self.drop_facts(thread);
                match (named, refusal.code) {
                    // Clients try this first and come back with a pidfd: nothing that anybody
                    // should read in a log.
                    (Named::Own(_), Code::BareTid) => self.reply(asker, Reply::Refused(refusal)),
                    _ => self.refuse(asker, refusal),
                }
            }
        }
    }

    fn may_attach(
        &self,
        asker: Asker,
        id: SpecId,
        named: Named,
        thread: Option<&Result<ThreadFacts, ThreadError>>,
    ) -> Result<(u32, ThreadFacts), Box<Refusal>> {
        let slot = self.find_idle(asker.session, id, Wish::Command)?;
        let facts = match thread {
            // Neither a descriptor nor an id came along (0 never means the daemon: facts S4), or
            // what came is something else.
            None | Some(Err(ThreadError::NotAThread)) => {
                return Err(plain(Code::Malformed, Field::Thread));
            }
            Some(Err(ThreadError::Gone)) => return Err(plain(Code::NoSuchThread, Field::Thread)),
            Some(Err(ThreadError::BareTid)) => {
                return Err(refusal(
                    Code::BareTid,
                    Field::Thread,
                    named.number().unwrap_or(0).into(),
                    0,
                ));
            }
            Some(Err(ThreadError::Kernel(errno))) => return Err(kernel(*errno)),
            Some(Ok(facts)) => facts,
        };
        let session = &self.sessions[&asker.session];
        if let Named::Own(tid) = named
            && mutate!("message-attach-own", facts.tgid != session.process.pid, false)
        {
            return Err(refusal(Code::BareTid, Field::Thread, tid.into(), 0));
        }
        let uid = session.uid;
        if mutate!("message-attach-owner", uid != 0 && facts.euid != uid, false) {
            return Err(refusal(Code::OthersThread, Field::Thread, facts.euid.into(), uid.into()));
        }
        let held = |code, tid: u32| Err(refusal(code, Field::Thread, facts.tid.into(), tid.into()));
        if let Some(thread) = &self.specs.at(slot).thread {
            return held(Code::SpecTaken, thread.tid);
        }
        let taken = self.identities.contains_key(&facts.identity());
        if taken || self.threads.contains_key(&facts.thread) {
            return held(Code::ThreadTaken, facts.tid);
        }
        Ok((slot, *facts))
    }

    pub(crate) fn attach_done(&mut self, slot: u32, asker: Asker, result: Result<(), Errno>) {
        match result {
            Ok(()) => self.say_attached(slot, asker, Reply::Done),
            Err(ESRCH) => {
                self.strike_thread(slot);
                self.emit(Effect::Remember { slot });
                self.refuse(asker, kernel(ESRCH));
                self.reconsider(slot);
            }
            // The kernel may have done half of it, such as the CPUs without the policy (facts S11).
            Err(errno) => self.start_restore(slot, Some(asker), Some(kernel(errno)), Way::Courtesy),
        }
    }

    /// The thread has its place; the rest comes when it wakes.
    pub(crate) fn attached_but(&mut self, slot: u32, asker: Asker) {
        self.say_attached(slot, asker, Reply::DoneBut(But::Asleep));
    }

    fn say_attached(&mut self, slot: u32, asker: Asker, said: Reply) {
        self.suite.attached(Slot(slot), true);
        let (spec, plugin) = (self.specs.at(slot).id, self.specs.at(slot).plugin);
        self.tell(plugin, ForeignQuestion::Attach { spec });
        self.reply(asker, said);
        self.settle(slot);
        self.reconsider(slot);
    }

    pub(crate) fn detach(&mut self, asker: Asker, id: SpecId) {
        match self.find_idle(asker.session, id, Wish::Command) {
            Ok(slot) if self.specs.at(slot).thread.is_none() => {
                mutate!(
                    "message-detach",
                    self.refuse(asker, plain(Code::NotAttached, Field::Thread)),
                    self.reply(asker, Reply::Done)
                );
            }
            Ok(slot) => self.start_restore(slot, Some(asker), None, Way::Detach),
            Err(refusal) => self.refuse(asker, refusal),
        }
    }

    /// Tells a foreign plugin that its spec's thread is its own again.
    pub(crate) fn tell_detached(&mut self, slot: u32) {
        let (spec, plugin) = (self.specs.at(slot).id, self.specs.at(slot).plugin);
        self.tell(plugin, ForeignQuestion::Detach { spec });
    }
}
