//! Change: other terms, perhaps another plugin, in one step (checklist R7).
//!
//! While the new attributes of an attached thread are with the kernel nobody else books, so that
//! the old terms still have their room if the kernel refuses the new ones. The thread is given its
//! new attributes directly; at no instant is it without a real-time policy.

use crate::broker::Broker;
use crate::decide::{Job, Kind, Round, ask_for};
use crate::exact::Tries;
use crate::input::{Effect, Errno, ForeignQuestion};
use crate::plugin::{Clip, Offer};
use crate::refuse::{ESRCH, kernel, plain, refusal};
use crate::spec::{Asker, Step, Undo};
use crate::suite::Slot;
use crate::whose::Wish;
use talea_core::Time;
use talea_core::mutate;
use talea_proto::message::SpecId;
use talea_proto::{Code, Field, Granted, Reply, Task};

impl Broker {
    pub(crate) fn change(&mut self, asker: Asker, id: SpecId, mut task: Task) {
        let slot = match self.find_idle(asker.session, id, Wish::Command) {
            Ok(slot) => slot,
            Err(refusal) => return self.refuse(asker, refusal),
        };
        let (client, uid) =
            (self.sessions[&asker.session].client, self.sessions[&asker.session].uid);
        // It was theirs when it was attached; what it has become since is given nothing more.
        if let Some(thread) = &self.specs.at(slot).thread
            && uid != 0
            && mutate!("message-change-owner", thread.euid != uid, thread.euid == u32::MAX)
        {
            let refusal =
                refusal(Code::OthersThread, Field::Thread, thread.euid.into(), uid.into());
            return self.refuse(asker, refusal);
        }
        task.owner = self.specs.at(slot).task.owner;
        match self.round(client, &task, Some((id, slot)), false) {
            Ok(round) => {
                let kind = Kind::Change { spec: id };
                let tries = Tries::default();
                self.deliberate(Job { asker, kind, entropy: 0, round, tries }, None);
            }
            Err(refusal) => self.refuse(asker, refusal),
        }
    }

    pub(crate) fn take_up_change(
        &mut self,
        asker: Asker,
        id: SpecId,
        round: &Round,
        plugin: u32,
        offer: &Offer,
    ) {
        let task = &round.task;
        let slot = match round.slot_still() {
            Some(slot) => slot,
            // A foreign plugin has taken its time over this.
            None => match self.find_idle(asker.session, id, Wish::Command) {
                Ok(slot) => slot,
                Err(refusal) => return self.refuse(asker, refusal),
            },
        };
        let free_at = self.zero_lag(slot);
        let spec = self.specs.at(slot);
        let old_plugin = spec.plugin;
        let undo = spec.thread.as_ref().map(|thread| Undo {
            asker,
            task: spec.task,
            plugin: old_plugin,
            offer: spec.offer,
            given: thread.given,
        });
        self.set_terms(slot, task, plugin, offer, free_at);
        match undo {
            Some(undo) if self.suite.attr(Slot(slot)) != undo.given => {
                self.specs.at_mut(slot).step = Step::Changing(Box::new(undo));
                self.changing += 1;
                self.apply_moves(&[slot]);
            }
            _ => {
                mutate!(
                    "message-change-recorded",
                    {
                        self.emit(Effect::Remember { slot });
                    },
                    {}
                );

                self.apply_moves(&[]);
                // What lingers of the old terms was not there when the offer was made.
                let granted = free_at.is_none().then(|| self.granted_on(slot));
                self.changed(slot, asker, old_plugin, granted);
            }
        }
    }

    fn set_terms(
        &mut self,
        slot: u32,
        task: &Task,
        plugin: u32,
        offer: &Offer,
        free_at: Option<Time>,
    ) {
        let spec = self.specs.at_mut(slot);
        let snapshot = self.clients.snapshot(spec.client);
        self.rules.discharge(snapshot, spec.plugin, spec.offer.charge);
        self.rules.charge(snapshot, plugin, offer.charge);
        spec.task = *task;
        spec.plugin = plugin;
        spec.offer = *offer;
        self.suite.replace(Slot(slot), plugin, &ask_for(task, Clip::default()), offer, free_at);
    }

    pub(crate) fn change_done(&mut self, slot: u32, undo: &Undo, result: Result<(), Errno>) {
        self.changing -= 1;
        match result {
            Ok(()) => {
                self.changed(slot, undo.asker, undo.plugin, None);
                self.settle(slot);
                self.reconsider(slot);
            }
            Err(ESRCH) => {
                // The new terms hold; there is just no thread any more.
                let id = self.specs.at(slot).id;
                self.thread_ended(slot);
                if self.ids.get(id) == Some(slot) {
                    self.changed(slot, undo.asker, undo.plugin, None);
                } else {
                    self.refuse(undo.asker, plain(Code::NoSuchThread, Field::Thread));
                }
            }
            Err(errno) => {
                self.take_back(slot, undo);
                self.refuse(undo.asker, kernel(errno));
                self.reconsider(slot);
            }
        }
    }

    /// The old terms hold.
    pub(crate) fn take_back(&mut self, slot: u32, undo: &Undo) {
        self.set_terms(slot, &undo.task, undo.plugin, &undo.offer, None);
        // The kernel may have done half of it, such as the CPUs without the policy.
        let attr = self.suite.attr(Slot(slot));
        self.order(slot, attr);
        self.apply_moves(&[]);
    }

    /// The new terms hold; `granted` is what they are, where that is known.
    fn changed(&mut self, slot: u32, asker: Asker, old_plugin: u32, granted: Option<Granted>) {
        let (spec, plugin) = (self.specs.at(slot).id, self.specs.at(slot).plugin);
        if plugin != old_plugin {
            self.tell(old_plugin, ForeignQuestion::Release { spec });
        }
        self.tell_scheduled(slot);
        let granted = granted.unwrap_or_else(|| self.granted(slot));
        self.reply(asker, Reply::Granted(granted));
    }
}
