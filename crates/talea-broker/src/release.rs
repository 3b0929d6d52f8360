//! The end of a spec: asked for, or because nobody is left for whom it exists (checklist R29).

use crate::broker::{Broker, Holder};
use crate::input::{Effect, ForeignQuestion};
use crate::restore::Way;
use crate::spec::{Asker, Step};
use crate::suite::Slot;
use crate::whose::Wish;
use talea_core::Time;
use talea_core::mutate;
use talea_proto::Reply;
use talea_proto::message::SpecId;

impl Broker {
    pub(crate) fn release(&mut self, asker: Asker, id: SpecId) {
        match self.find_idle(asker.session, id, Wish::Release) {
            Ok(slot) if self.specs.at(slot).thread.is_some() => {
                self.start_restore(slot, Some(asker), None, Way::Release);
            }
            Ok(slot) => {
                self.drop_spec(slot, self.zero_lag(slot));
                self.reply(asker, Reply::Done);
            }
            Err(refusal) => self.refuse(asker, refusal),
        }
    }

    /// Whether a grant still has somebody to exist for. A daemon that ends without giving back
    /// leaves every grant to the next one.
    pub(crate) fn is_owned(&self, slot: u32) -> bool {
        mutate!(
            "message-stop-release",
            match self.stopping {
                Some(stopping) => !stopping.release,
                None => mutate!("life-session", self.specs.at(slot).has_owner(), true),
            },
            match self.stopping {
                Some(_) => true,
                None => self.specs.at(slot).has_owner(),
            }
        )
    }

    /// Somebody has ended: whoever is left without an owner is given back. What is with the kernel
    /// comes here again when it is through.
    pub(crate) fn reconsider(&mut self, slot: u32) {
        if self.specs.get(slot).is_none_or(|spec| spec.id.0 == 0) || self.is_owned(slot) {
            return;
        }
        let spec = self.specs.at_mut(slot);
        match &mut spec.step {
            Step::Idle if spec.thread.is_some() => {
                self.start_restore(slot, None, None, Way::Stubborn)
            }
            Step::Idle => self.drop_spec(slot, self.zero_lag(slot)),
            Step::Restoring(restoring) if restoring.way != Way::Courtesy => {
                restoring.way = Way::Stubborn
            }
            Step::Restoring(_) | Step::Attaching(_) | Step::Changing(_) => {}
        }
    }

    /// Takes a spec off every list. `free_at` is when its bandwidth may be given to others, if not
    /// now.
    pub(crate) fn drop_spec(&mut self, slot: u32, free_at: Option<Time>) {
        self.set_free(slot);
        let spec = self.specs.remove(slot).expect("a spec ends once");
        assert!(spec.thread.is_none() && spec.is_idle(), "a spec ends without its thread");
        if spec.booked {
            self.suite.release(Slot(slot), free_at);
            self.rules.discharge(
                self.clients.snapshot(spec.client),
                spec.plugin,
                spec.offer.charge,
            );
        }
        let user = self.users.of(spec.uid);
        user.specs -= 1;
        user.ids.remove(spec.id);
        self.clients.let_go(spec.client);
        if spec.watched {
            self.unwatch_process(spec.process, Holder::Spec(slot));
        }
        self.ids.remove(spec.id);
        mutate!(
            "message-release",
            {
                self.emit(Effect::Erase { slot });
            },
            {}
        );

        if spec.booked {
            self.tell(spec.plugin, ForeignQuestion::Release { spec: spec.id });
        }
        self.apply_moves(&[]);
    }
}
