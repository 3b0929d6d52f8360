//! Claims of threads without a grant in the ledger.

use super::RealTimeThread;
use crate::broker::Broker;
use crate::input::SessionId;
use crate::ledger::Claim;
use crate::plugin_set::PluginSet;
use talea_core::{Charge, Monotonic, Policy, mutate};

impl Broker {
    /// Whether deadline threads without a grant are charged.
    pub fn has_ungranted(&self) -> bool {
        self.plugin_set.has_ungranted()
    }

    /// Whether the real-time threads of the machine matter for a request of this connection: it has
    /// said hello, and a rule serves its client.
    pub fn is_served(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|session| {
            let snapshot = self.clients.snapshot(session.client);
            let is_served = session.is_welcome() && self.rules.allows_anything(snapshot);
            mutate!("survey-served", is_served, true)
        })
    }

    pub(crate) fn real_time_threads(&mut self, threads: &[RealTimeThread]) {
        let ungranted: Vec<RealTimeThread> =
            threads.iter().filter(|thread| !self.threads.has_tid(thread.tid)).copied().collect();
        self.plugin_set.set_ungranted(&ungranted);
    }
}

impl PluginSet {
    /// Replaces the real-time threads without a grant.
    pub fn set_ungranted(&mut self, threads: &[RealTimeThread]) {
        let mut claims: Vec<Claim> =
            threads.iter().flat_map(|thread| self.claims_of(thread)).collect();
        claims.sort_unstable();
        self.note_ungranted_fifo(threads);
        self.replace_ungranted(&claims);
    }

    fn claims_of(&self, thread: &RealTimeThread) -> Vec<Claim> {
        let Policy::Deadline { runtime, deadline, period } = thread.policy else {
            return Vec::new();
        };
        let (plugin, span) = (self.len() as u32, deadline.min(period));
        if span.is_zero() || runtime.is_zero() {
            return Vec::new();
        }
        let claim = |place| Claim {
            plugin,
            place,
            charge: Charge::new(runtime, span),
            work_ns: runtime.as_ns(),
            span_ns: span.as_ns(),
            period_ns: period.as_ns(),
            rate: Charge::new(runtime, period),
            deadline: true,
            unproved: false,
        };
        self.places_of(&thread.cpus).into_iter().map(claim).collect()
    }

    /// Returns the latest end of the zero-lag holds by `until` if the plugin would serve the
    /// request without these holds; otherwise `None`. The ledger is unchanged afterwards.
    pub(crate) fn fits_without_holds(
        &mut self,
        plugin: u32,
        ask: &crate::plugin::PluginRequest<'_>,
        leaving: Option<crate::plugin_set::SpecSlot>,
        until: Monotonic,
    ) -> Option<Monotonic> {
        let holds = self.take_holds(until);
        let (last, _) = *holds.last()?;
        let said = self.ask(plugin, ask, leaving);
        self.put_holds_back(&holds);
        (!matches!(said, crate::plugin::Verdict::No(_))).then_some(last)
    }
}
