//! Checks of the replies to clients.

use super::{Clients, HeldSpec};
use crate::input::SessionId;
use talea_proto::{Code, Owner, Reply, Request, Task};

pub(super) fn what_happened(request: &Request, reply: &Reply) -> &'static str {
    match (request, reply) {
        (Request::Create(_), Reply::Granted(_)) => "created",
        (Request::CreateGroup(_), Reply::GrantedGroup(_)) => "groups created",
        (Request::Change { .. }, Reply::Granted(_)) => "changed",
        (Request::Change { .. }, Reply::Refused(refusal)) if refusal.code == Code::Kernel => {
            "changes refused by the kernel"
        }
        (Request::Attach { .. }, Reply::Done) => "attached",
        (Request::Attach { .. }, Reply::DoneWithCaveat(_)) => "attached with a pending wake-up",
        (Request::Detach(_) | Request::Release(_), Reply::DoneWithCaveat(_)) => {
            "released with a restriction"
        }
        (Request::Attach { .. }, Reply::Refused(refusal)) if refusal.code == Code::Kernel => {
            "attaches refused by the kernel"
        }
        (Request::Attach { .. }, Reply::Refused(refusal)) if refusal.code == Code::NoSuchThread => {
            "attaches of exited threads"
        }
        (Request::Detach(_), Reply::Done) => "detached",
        (Request::Release(_), Reply::Done) => "released",
        (Request::Claim { .. }, Reply::Granted(_)) => "claimed",
        (Request::Explain(_), Reply::Explained { .. }) => "explained",
        (_, Reply::Refused(refusal)) if refusal.code == Code::Quota => "over quota",
        (_, Reply::Refused(_)) => "refused otherwise",
        _ => "queried",
    }
}

impl Clients {
    pub(super) fn take_replies(&mut self) {
        let mut taken = Vec::new();
        for (&session, connection) in &mut self.world.connections {
            for (_, request, reply) in connection.replies.drain(..) {
                taken.push((session, request, reply));
            }
        }
        for (session, request, reply) in taken {
            self.count(what_happened(&request, &reply));
            match (request, reply) {
                (Request::Create(task), Reply::Granted(granted)) => {
                    self.granted(session, &task, granted);
                }
                (Request::CreateGroup(tasks), Reply::GrantedGroup(group)) => {
                    assert_eq!(tasks.len(), group.len());
                    for (task, granted) in tasks.iter().zip(group) {
                        self.granted(session, task, granted);
                    }
                }
                (Request::Claim { spec, token }, Reply::Granted(_)) => {
                    if let Some(held) = self.held.get_mut(&spec) {
                        held.session = session;
                        assert_eq!(held.token, token);
                    }
                }
                (Request::Release(spec), Reply::Done | Reply::DoneWithCaveat(_)) => {
                    self.held.remove(&spec);
                }
                _ => {}
            }
        }
        let world = &self.world;
        self.held.retain(|_, held| {
            world.connections.contains_key(&held.session) || held.owner != Owner::Session
        });
    }

    pub(super) fn granted(
        &mut self,
        session: SessionId,
        task: &Task,
        granted: talea_proto::Granted,
    ) {
        assert!(self.seen.insert(granted.spec), "{:?} is assigned twice", granted.spec);
        let plugin = &self.world.setup().plugins[granted.plugin as usize];
        assert!(
            granted.cpu.is_none_or(|cpu| plugin.cpus.contains(cpu)),
            "placed outside its plugin's CPUs"
        );
        assert!(
            task.plugin.is_none_or(|name| name.as_str() == plugin.name),
            "another plugin than the named one"
        );
        if let (Some(asked), Some(runtime)) = (task.params.runtime, granted.runtime) {
            let most = task.params.desired.unwrap_or(asked);
            assert!(
                asked <= runtime && runtime <= most,
                "Q^a = {runtime} outside [{asked}, {most}]"
            );
        }
        let held = HeldSpec { session, token: granted.token, owner: task.owner };
        self.held.insert(granted.spec, held);
    }
}
