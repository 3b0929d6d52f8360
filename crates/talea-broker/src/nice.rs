//! Nice values of threads without a grant.
//!
//! A nice value is no grant: it has no charge, no owner and no end, as with `setpriority`. The
//! rules bound it (`min_nice`), and the audit trail has each change.

use crate::broker::Broker;
use crate::input::{Effect, Errno, NiceOrder, ThreadError, ThreadFacts};
use crate::refuse::{kernel_refusal, refusal};
use crate::spec::ReplyTo;
use crate::trail::AuditThread;
use talea_core::mutate;
use talea_proto::{Code, Field, Refusal, Reply, ThreadRef};

impl Broker {
    pub(crate) fn nice(
        &mut self,
        reply_to: ReplyTo,
        nice: i8,
        named: ThreadRef,
        thread: Option<Result<ThreadFacts, ThreadError>>,
    ) {
        match self.check_nice(reply_to, nice, named, thread.as_ref()) {
            Ok(facts) => {
                let uid = self.sessions[&reply_to.session].uid;
                let owner = Some(uid).filter(|&uid| uid != 0);
                let ReplyTo { session, seq } = reply_to;
                let order = NiceOrder { session, seq, thread: facts, nice, owner };
                self.emit(Effect::SetNice(Box::new(order)));
                self.emit(Effect::ForgetThread { thread: facts.thread });
            }
            Err(refusal) => {
                self.forget_unused(thread);
                self.refuse_attach(reply_to, named, refusal);
            }
        }
    }

    fn check_nice(
        &self,
        reply_to: ReplyTo,
        nice: i8,
        named: ThreadRef,
        thread: Option<&Result<ThreadFacts, ThreadError>>,
    ) -> Result<ThreadFacts, Box<Refusal>> {
        let facts = self.named_thread(reply_to, named, thread)?;
        let session = &self.sessions[&reply_to.session];
        if let Some(uid) =
            mutate!("message-nice-owner", Some(session.uid).filter(|&uid| uid != 0), None)
            && let Some(other) = facts.uids.other_than(uid)
        {
            return Err(refusal(Code::ForeignThread, Field::Thread, other.into(), uid.into()));
        }
        self.rules.admit_nice(self.clients.snapshot(session.client), nice).map_err(|denial| {
            let mut no = refusal(denial.code, denial.field, denial.asked, denial.limit);
            no.rule = denial.rule.map(|rule| self.rules.origin(rule).to_owned());
            no
        })?;
        let is_taken = self.threads.has(&facts);
        if mutate!("message-nice-taken", is_taken, false) {
            let tid = facts.tid.into();
            return Err(refusal(Code::ThreadTaken, Field::Thread, tid, tid));
        }
        Ok(facts)
    }

    /// Answers the request of an order.
    pub(crate) fn nice_set(&mut self, order: &NiceOrder, result: Result<(), Errno>) {
        let NiceOrder { session, seq, thread, nice, .. } = *order;
        let ThreadFacts { tid, tgid, start, inode, .. } = thread;
        let reply_to = ReplyTo { session, seq };
        match result {
            Ok(()) => {
                let thread = AuditThread { tid, tgid, start, inode };
                mutate!("trail-nice", self.record_nice(session, thread, nice));
                self.reply(reply_to, Reply::Done);
            }
            Err(errno) => self.refuse(reply_to, kernel_refusal(errno)),
        }
    }
}
