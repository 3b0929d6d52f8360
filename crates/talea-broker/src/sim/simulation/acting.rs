//! Connections that act for another process.

use super::{Connection, Simulation, Target};
use crate::input::{Caller, Peer, ProcessId, ThreadError};

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
}

impl Connection {
    /// Gives the connection the identity of the process that it acts for from now on.
    pub(super) fn act(&mut self) {
        let caller = self.caller.take().expect("an accepted request names a process");
        self.process = ProcessId { pid: caller.peer.pid, start: caller.peer.pid_start };
        self.uid = caller.peer.uid;
    }
}
