//! Front ends: connections that act for another user.
//!
//! A front end, such as that of RealtimeKit, receives requests of users through another protocol.
//! It passes a pidfd of the requesting process, and the driver reads that process's credentials
//! from the kernel. From then on the connection has the identity of the process: its rules, its
//! quotas, its specs and its records on the audit trail.
//!
//! | state of a connection | request | next state |
//! | --- | --- | --- |
//! | *own*: identity of its peer | act for a process of user U | *acting* for U |
//! | *own* | the same, refused | *own* |
//! | *acting* for U | act for any process: refused | *acting* for U |
//!
//! Invariants.
//!
//! 1. A connection acts only for a process that has only the ids of one user, and never for the
//!    superuser.
//! 2. A connection with a spec does not change its identity.
//! 3. An acting connection has exactly the rights of a connection of its process. So a front end
//!    that an attacker controls obtains no more for a user than that user can.

use crate::broker::{Broker, WatchOwner};
use crate::input::{Caller, ProcessId, ThreadError};
use crate::refuse::{kernel_refusal, refusal, refusal_without_numbers};
use crate::spec::ReplyTo;
use talea_core::mutate;
use talea_proto::{Code, Field, Refusal, Reply};

impl Broker {
    pub(crate) fn act_for(
        &mut self,
        reply_to: ReplyTo,
        uid: u32,
        caller: Option<Box<Result<Caller, ThreadError>>>,
    ) {
        let acting = self
            .check_caller(reply_to, uid, caller.map(|caller| *caller))
            .and_then(|caller| self.change_identity(reply_to, caller));
        self.reply_or_refuse(reply_to, acting.map(|()| Reply::Done));
    }

    fn check_caller(
        &self,
        reply_to: ReplyTo,
        uid: u32,
        caller: Option<Result<Caller, ThreadError>>,
    ) -> Result<Caller, Box<Refusal>> {
        let session = &self.sessions[&reply_to.session];
        let is_listed = session.uid == 0 || self.setup.front_ends.contains(&session.uid);
        let front_end = self.clients.front_end(session.client);
        let is_own = front_end.is_none() && session.specs.is_empty();
        let may_act = mutate!("message-act-for-front-end", is_listed, true)
            && mutate!("message-act-for-once", is_own, front_end.is_none())
            && mutate!("message-act-for-root", uid != 0, true);
        if !may_act {
            let own = front_end.unwrap_or(session.uid);
            return Err(refusal(Code::NotFrontEnd, Field::Owner, own.into(), uid.into()));
        }
        let caller = match caller {
            None | Some(Err(ThreadError::NotAThread | ThreadError::TidNotAccepted)) => {
                return Err(refusal_without_numbers(Code::Malformed, Field::Thread));
            }
            Some(Err(ThreadError::Gone)) => {
                return Err(refusal_without_numbers(Code::NoSuchThread, Field::Thread));
            }
            Some(Err(ThreadError::Kernel(errno))) => return Err(kernel_refusal(errno)),
            Some(Ok(caller)) => caller,
        };
        let other = caller.uids.other_than(uid);
        match mutate!("message-act-for-credentials", other, None) {
            Some(other) => {
                Err(refusal(Code::ForeignThread, Field::Thread, other.into(), uid.into()))
            }
            None => Ok(caller),
        }
    }

    /// Gives the connection the identity of the process.
    fn change_identity(&mut self, reply_to: ReplyTo, caller: Caller) -> Result<(), Box<Refusal>> {
        let Caller { peer, .. } = caller;
        let (uid, process) = (peer.uid, ProcessId { pid: peer.pid, start: peer.pid_start });
        let client = self.clients.insert(peer, &self.rules);
        let subject = self.subject_of_client(client);
        if let Some(no) = mutate!("message-act-for-quota", self.too_many_of_subject(subject), None)
        {
            self.clients.release(client);
            return Err(no);
        }
        let session =
            self.sessions.get_mut(&reply_to.session).expect("only open connections are served");
        let before = (session.subject, session.process, session.client);
        self.clients.set_front_end(client, Some(session.uid));
        session.uid = uid;
        session.subject = subject;
        session.process = process;
        session.client = client;
        let (old_subject, old_process, old_client) = before;
        self.users.account(old_subject).sessions -= 1;
        self.users.account(subject).sessions += 1;
        self.clients.release(old_client);
        let owner = WatchOwner::Session(reply_to.session);
        self.unwatch_process(old_process, owner);
        self.watch_process(process, owner);
        Ok(())
    }
}
