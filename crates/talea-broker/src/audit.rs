//! Consistency checks for tests, the simulation and fuzzing. The checks compare every index with
//! the indexed data and every counter with a recount.

use crate::broker::{Broker, Timer, WatchOwner};
use crate::plugin_set::SpecSlot;
use crate::rules::Rules;
use crate::session::Session;
use crate::spec::PendingOp;
use crate::subjects::Subject;
use std::collections::BTreeMap;

impl Broker {
    /// Compares every list and counter with its source.
    ///
    /// # Panics
    /// If they differ, which is a bug in the broker.
    pub fn audit(&self) {
        self.audit_specs();
        self.audit_sessions();
        self.audit_users();
        self.audit_timers();
        self.audit_trail();
    }

    /// Compares the usage of the rules' subjects with a recount.
    ///
    /// # Panics
    /// If they differ.
    pub fn audit_aggregates(&self) {
        let mut fresh = Rules::compile(&self.setup);
        for (_, spec) in self.specs.iter().filter(|(_, spec)| spec.in_ledger) {
            fresh.charge(self.clients.snapshot(spec.client), spec.plugin, spec.offer.charge);
        }
        for (slot, spec) in self.specs.iter().filter(|(_, spec)| spec.thread.is_some()) {
            if self.is_sharing(slot) {
                fresh.add_sharing(self.clients.snapshot(spec.client), spec.plugin, slot);
            }
        }
        drop(fresh.take_changed());
        assert_eq!(format!("{fresh:?}"), format!("{:?}", self.rules), "aggregates are miscounted");
    }

    /// Returns the number of threads that unanswered requests name and that are not attached.
    pub fn waiting_threads(&self) -> usize {
        let queued: usize = self.sessions.values().map(Session::queued_threads).sum();
        queued + self.waiting.values().filter(|waiting| waiting.names_thread()).count()
    }

    /// Returns the remaining objects, one line per kind; empty if every counter is zero.
    pub fn leftovers(&self) -> Vec<String> {
        let (sessions, specs, _) = self.users.totals();
        let mut left: Vec<String> = [
            ("sessions", self.sessions.len()),
            ("levels", self.held_levels.len()),
            ("rejected connections", self.rejected_sessions as usize),
            ("clients", self.clients.len()),
            ("specs", self.specs.len() as usize),
            ("ids", self.ids.len()),
            ("sessions of users", sessions as usize),
            ("specs of users", specs as usize),
            ("watched processes", self.processes.len()),
            ("unclaimed specs", self.adopted.unclaimed.len()),
            ("timers", self.timers.len()),
            ("changes", self.changes.count() as usize),
            ("blocked requests", self.changes.blocked()),
            ("threads with refused restores", self.restore_failed as usize),
            ("deferred changes", self.deferred.len()),
            ("waiting requests", self.waiting.len()),
            ("attached threads", self.counters.attached as usize),
        ]
        .into_iter()
        .chain(self.threads.lengths())
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
        for plugin in 0..self.plugin_set.len() as u32 {
            for cpu in (0..).map_while(|index| self.plugin_set.cpu_info(plugin, index)) {
                if cpu.used != talea_core::Charge::ZERO || cpu.specs != 0 {
                    left.push(format!("plugin {plugin}: {cpu:?}"));
                }
            }
        }
        left
    }

    fn audit_specs(&self) {
        let (mut named, mut attached, mut changing, mut restore_failed) = (0, 0, 0, 0);
        for (slot, spec) in self.specs.iter() {
            if spec.id.0 != 0 && spec.in_ledger {
                assert_eq!(self.ids.get(spec.id), Some(slot), "ids and slots differ");
                let listed = self.users.spec_at_least(spec.uid, spec.id);
                assert_eq!(listed, Some((spec.id, slot)), "a user's list of specs is wrong");
                let with_token = self.users.spec_with_token(spec.uid, spec.token);
                let found = with_token.and_then(|id| self.ids.get(id)).map(|at| self.specs.at(at));
                let found = found.map(|found| (found.uid, found.token));
                assert_eq!(found, Some((spec.uid, spec.token)), "the index by token is wrong");
                named += 1;
            }
            if spec.in_ledger {
                let placed = self.plugin_set.placement(SpecSlot(slot));
                assert_eq!(placed.plugin, spec.plugin, "plugin set and spec differ in the plugin");
                assert_eq!(
                    placed.charge, spec.offer.charge,
                    "plugin set and spec differ in the charge"
                );
            }
            if let Some((session, position)) = spec.session {
                assert_eq!(
                    self.sessions[&session].specs[position as usize], slot,
                    "the session's list lacks the spec"
                );
            }
            let watch = self.processes.contains(&(spec.lifetime.process, WatchOwner::Spec(slot)));
            assert_eq!(watch, spec.lifetime.process_watched, "watched processes differ");
            changing += u32::from(matches!(spec.step, PendingOp::Changing(_)));
            let Some(thread) = &spec.thread else {
                assert!(spec.is_idle(), "an operation is in progress without a thread");
                continue;
            };
            attached += 1;
            assert!(self.threads.is_consistent(thread, slot), "an index lacks the thread");
            if let Some(at) = thread.attempts.retry_at {
                assert!(
                    thread.ticket.is_none(),
                    "an order waits for both its result and its retry time"
                );
                assert!(self.timers.contains(&(at, Timer::Retry(slot))), "a retry has no timer");
                restore_failed += u32::from(matches!(spec.step, PendingOp::Restoring(_)));
            } else {
                assert!(
                    spec.is_idle() || thread.ticket.is_some(),
                    "an operation is in progress without an order"
                );
            }
        }
        assert_eq!(named, self.ids.len(), "ids without specs");
        assert_eq!(named, self.users.token_count(), "tokens without specs");
        assert_eq!(attached, self.counters.attached, "attached threads are miscounted");
        for (list, length) in self.threads.lengths() {
            assert_eq!(length, attached as usize, "{list} without specs");
        }
        assert_eq!(changing, self.changes.count(), "changes are miscounted");
        assert_eq!(
            restore_failed, self.restore_failed,
            "threads with refused restores are miscounted"
        );
    }

    fn audit_sessions(&self) {
        for (id, session) in &self.sessions {
            for (position, &slot) in session.specs.iter().enumerate() {
                assert_eq!(
                    self.specs.at(slot).session,
                    Some((*id, position as u32)),
                    "a session's list of specs is wrong"
                );
            }
        }
        let rejected_sessions =
            self.sessions.values().filter(|session| session.is_rejected()).count();
        assert_eq!(
            rejected_sessions as u32, self.rejected_sessions,
            "rejected connections are miscounted"
        );
        let watchers =
            self.processes.iter().filter(|(_, holder)| matches!(holder, WatchOwner::Session(_)));
        for (process, holder) in watchers {
            let WatchOwner::Session(id) = holder else { continue };
            assert_eq!(self.sessions[id].process, *process, "a session's process is wrong");
        }
    }

    fn audit_users(&self) {
        assert_eq!(self.held_levels, self.counted_levels(), "levels are miscounted");
        let mut users: BTreeMap<Subject, (u32, u32)> = BTreeMap::new();
        for session in self.sessions.values().filter(|session| !session.is_rejected()) {
            users.entry(session.subject).or_default().0 += 1;
        }
        for (_, spec) in self.specs.iter() {
            users.entry(spec.subject).or_default().1 += 1;
        }
        let mut totals = (0, 0);
        for (subject, held) in users {
            assert_eq!(self.usage(subject), held, "the usage of {subject} is miscounted");
            totals = (totals.0 + held.0, totals.1 + held.1);
        }
        let (sessions, specs, _) = self.users.totals();
        assert_eq!((sessions, specs), totals, "subjects without usage have counts");
    }

    fn audit_trail(&self) {
        let sums = self.audit_balance();
        assert_eq!((sums.specs, sums.threads), self.audited(), "the audit trail is incomplete");
        let events = self.counters();
        let specs = (events.grants + events.adoptions) as i64 - events.releases as i64;
        assert_eq!(specs, sums.specs, "grants are miscounted");
        assert_eq!(events.overruns, sums.overruns, "overruns are miscounted");
        assert!(sums.refusals <= self.counters.refused(), "the audit trail has too many refusals");
    }

    fn audit_timers(&self) {
        for &(at, timer) in &self.timers {
            match timer {
                Timer::RateLimitEnd(id) => {
                    assert!(
                        self.sessions[&id].is_rate_limited_until(at),
                        "a timer for a session within its rate"
                    );
                }
                Timer::HelloOverdue(id) => {
                    assert!(
                        self.sessions[&id].awaits_hello_until(at),
                        "a timer for a session with its hello"
                    );
                }
                Timer::ResumeDeferred(id) => {
                    assert!(
                        self.deferred.contains_key(&id),
                        "a timer for a change that is not deferred"
                    );
                }
                Timer::ResumeWaiting(id) => {
                    assert!(
                        self.waiting.contains_key(&id),
                        "a timer for a request that does not wait"
                    );
                }
                Timer::LogSummary => {
                    assert!(self.log_limit.has_suppressed(), "a summary of nothing is armed");
                }
                Timer::AuditCounts => {
                    assert!(self.has_audit_counts_until(at), "a count of nothing is armed");
                }
                Timer::Inspect => {
                    assert_eq!(self.inspection_at, Some(at), "two inspections are armed");
                    assert!(!self.threads.is_empty(), "an inspection of nothing is armed");
                }
                Timer::ClaimEnd(slot) => {
                    let until = self
                        .specs
                        .get(slot)
                        .map(|spec| (spec.lifetime.unclaimed, spec.lifetime.claim_until));
                    assert_eq!(
                        until,
                        Some((true, Some(at))),
                        "a claim that is not awaited has a timer"
                    );
                }
                Timer::CheckCanaries => {
                    assert_eq!(self.canaries.timer, Some(at), "two checks of canaries are armed");
                }
                Timer::Retry(slot) => {
                    let thread = self.specs.at(slot).thread.as_ref();
                    assert_eq!(
                        thread.and_then(|thread| thread.attempts.retry_at),
                        Some(at),
                        "a timer without a retry"
                    );
                }
            }
        }
    }
}
