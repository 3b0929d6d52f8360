//! Limits of attached threads: a thread may consume no more CPU time than its grant provides.
//!
//! The kernel enforces the budget of a deadline thread. The driver enforces the budget of a FIFO or
//! RR thread ([`Effect::Limit`]): the accepted runtime in each declared period, by a sporadic
//! server (`talea_core::server::meter`), so that the thread interferes with lower priorities no
//! more than the admission test has assumed. ReTiF (JSA 2021), section 3.2, leaves this to the
//! kernel's real-time throttling.
//!
//! A grant without a runtime or a period is unlimited; its notes contain [`Notes::UNLIMITED`].

use crate::broker::Broker;
use crate::input::{Effect, Limit, LogEvent, ThreadId};
use crate::plugin_set::Placement;
use crate::restore::RestoreReason;
use talea_core::setup::OnOverrun;
use talea_core::{Span, Work, mutate};
use talea_proto::Task;
use talea_proto::message::Notes;

impl Broker {
    /// Returns the limit that the driver enforces on the spec's thread; `None` if it enforces none.
    fn limit_of(&self, slot: u32) -> Option<Limit> {
        let spec = self.specs.at(slot);
        let declared = spec.offer.runtime.zip(spec.task.params.period).filter(|_| spec.in_ledger);
        let on_overrun = self.reaction(spec.plugin, declared, spec.client)?;
        declared.map(|(budget, period)| Limit { budget, period, on_overrun, uid: spec.uid })
    }

    /// Returns the reaction to overruns of a task with this budget and period; `None` if the driver
    /// does not limit it.
    fn reaction(
        &self,
        plugin: u32,
        declared: Option<(Work, Span)>,
        client: u32,
    ) -> Option<OnOverrun> {
        let setup = self.setup.plugins.get(plugin as usize)?;
        let (budget, period) = declared?;
        let is_limited = self.platform.enforcement.is_some()
            && setup.band.is_some()
            && !budget.is_zero()
            && budget.as_ns() < period.as_ns();
        let ruled = self.rules.on_overrun(self.clients.snapshot(client), plugin);
        is_limited.then_some(ruled.unwrap_or(setup.on_overrun))
    }

    /// Orders the limit of the spec's thread if it has changed.
    pub(crate) fn sync_limit(&mut self, slot: u32) {
        let limit = mutate!("limit-none", self.limit_of(slot), None);
        let Some(attached) = &mut self.specs.at_mut(slot).thread else { return };
        if attached.limit != limit {
            attached.limit = limit;
            let thread = attached.thread;
            self.emit(Effect::Limit { thread, limit });
        }
    }

    /// Returns the enforcement granularity of a grant.
    pub(crate) fn enforcement_granularity(&self, slot: u32, placed: &Placement) -> Span {
        match (self.limit_of(slot), self.platform.enforcement) {
            (Some(_), Some(granularity)) => granularity,
            _ => placed.granularity,
        }
    }

    /// Returns `notes`, corrected by whether the driver enforces the budget and whether a budget is
    /// declared.
    pub(crate) fn enforcement_notes(
        &self,
        plugin: u32,
        task: &Task,
        budget: Option<Work>,
        client: u32,
        notes: Notes,
    ) -> Notes {
        let declared = budget.zip(task.params.period);
        let is_kernel = self.setup.plugins.get(plugin as usize).is_some_and(|p| p.band.is_none());
        match self.reaction(plugin, declared, client) {
            _ if is_kernel => notes,
            Some(OnOverrun::Notify) => notes.with(Notes::BUDGET_NOT_ENFORCED),
            Some(_) => notes.without(Notes::BUDGET_NOT_ENFORCED),
            None if declared.is_none() => notes.with(Notes::UNLIMITED),
            None => notes,
        }
    }

    /// Detaches a thread that the driver has demoted because of an overrun; the spec stays. No
    /// effect while an operation of the spec is in progress.
    pub(crate) fn overrun(&mut self, thread: ThreadId) {
        let Some(&slot) = self.threads.get(&thread) else { return };
        let spec = self.specs.at(slot);
        let (uid, tid) = (spec.uid, spec.thread.as_ref().map_or(0, |thread| thread.tid));
        if spec.is_idle() {
            self.log(LogEvent::Demoted { tid, uid });
            self.start_restore(slot, None, None, RestoreReason::Detach);
        }
    }
}
