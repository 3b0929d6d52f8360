//! Connections that act for another process, and nice values.

use super::{Connection, Simulation, Target};
use crate::input::{Caller, Errno, Input, NiceOrder, Peer, ProcessId, ThreadError};
use talea_core::Policy;

impl Simulation {
    /// Returns the process of a thread as the driver finds it, with its groups.
    pub(super) fn caller(&self, target: Target) -> Result<Caller, ThreadError> {
        let tid = match target {
            Target::Thread(tid) => tid,
            Target::Bad(why) => return Err(why),
        };
        let thread = self.kernel.threads.get(&tid).ok_or(ThreadError::Gone)?;
        let main = self.kernel.threads.get(&thread.tgid).ok_or(ThreadError::Gone)?;
        let groups = self.groups.get(&thread.tgid);
        let peer = Peer {
            pid: thread.tgid,
            pid_start: self.kernel.processes[&thread.tgid].0,
            uid: main.uids.effective,
            gid: groups.map_or(100, |groups| groups.effective),
            groups: groups.map_or_else(Vec::new, |groups| groups.supplementary.clone()),
        };
        Ok(Caller { peer, uids: main.uids })
    }

    /// Executes `Effect::SetNice`. live counterpart: `set_nice` of the daemon.
    pub(super) fn set_nice(&mut self, order: Box<NiceOrder>) {
        let NiceOrder { thread, nice, owner, .. } = *order;
        let found = self.kernel.thread_of(thread.thread).map(|(tid, found)| (tid, found.uids));
        let result = match found {
            None => Err(Errno(3)),
            Some((_, uids)) if owner.is_some_and(|owner| uids.other_than(owner).is_some()) => {
                Err(Errno(1))
            }
            Some((tid, _)) => {
                let found = self.kernel.threads.get_mut(&tid).expect("it was just found");
                found.attr.policy = Policy::Other { nice };
                found.attr.reset_on_fork = true;
                found.own = found.attr;
                Ok(())
            }
        };
        self.handle_input(Input::NiceSet { order, result });
    }
}

impl Connection {
    /// Gives the connection the identity of the process that it acts for from now on.
    pub(super) fn act(&mut self) {
        let caller = self.caller.take().expect("an accepted request names a process");
        self.process = ProcessId { pid: caller.peer.pid, start: caller.peer.pid_start };
        self.uid = caller.peer.uid;
    }
}
