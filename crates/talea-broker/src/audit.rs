//! The broker's lists against each other. For tests, the simulation and fuzzing: every index is
//! compared with what it indexes, every counter with what it counts.

use crate::broker::{Broker, Holder, Timer};
use crate::rules::Rules;
use crate::spec::Step;
use crate::suite::Slot;
use std::collections::BTreeMap;

impl Broker {
    /// Compares every list and counter with its source.
    ///
    /// # Panics
    /// When two of them differ: that is a bug in the broker.
    pub fn audit(&self) {
        self.audit_specs();
        self.audit_sessions();
        self.audit_users();
        self.audit_timers();
    }

    /// Compares what the rules' subjects hold with a count from the beginning.
    ///
    /// # Panics
    /// When they differ.
    pub fn audit_aggregates(&self) {
        let mut fresh = Rules::compile(&self.setup);
        for (_, spec) in self.specs.iter().filter(|(_, spec)| spec.booked) {
            fresh.charge(self.clients.snapshot(spec.client), spec.plugin, spec.offer.charge);
        }
        assert_eq!(format!("{fresh:?}"), format!("{:?}", self.rules), "aggregates are miscounted");
    }

    /// What is left, one line for each kind of thing; empty when every counter is back to zero.
    pub fn leftovers(&self) -> Vec<String> {
        let (sessions, specs, _) = self.users.totals();
        let mut left: Vec<String> = [
            ("sessions", self.sessions.len()),
            ("connections turned away", self.turned_away as usize),
            ("clients", self.clients.len()),
            ("specs", self.specs.len() as usize),
            ("ids", self.ids.len()),
            ("sessions of users", sessions as usize),
            ("specs of users", specs as usize),
            ("threads", self.threads.len()),
            ("identities", self.identities.len()),
            ("families", self.families.len()),
            ("watched processes", self.processes.len()),
            ("timers", self.timers.len()),
            ("changes", self.changing as usize),
            ("blocked requests", self.blocked.len()),
            ("stuck threads", self.stuck as usize),
            ("parked changes", self.parked.len()),
            ("attached threads", self.counters.attached as usize),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
        for plugin in 0..self.suite.len() as u32 {
            for cpu in (0..).map_while(|index| self.suite.cpu(plugin, index)) {
                if cpu.used != talea_core::Charge::ZERO || cpu.specs != 0 {
                    left.push(format!("plugin {plugin}: {cpu:?}"));
                }
            }
        }
        left
    }

    fn audit_specs(&self) {
        let (mut named, mut attached, mut changing, mut stuck) = (0, 0, 0, 0);
        for (slot, spec) in self.specs.iter() {
            if spec.id.0 != 0 && spec.booked {
                assert_eq!(self.ids.get(spec.id), Some(slot), "ids and slots differ");
                let listed = self.users.spec_at_least(spec.uid, spec.id);
                assert_eq!(listed, Some((spec.id, slot)), "a user's list of specs is off");
                named += 1;
            }
            if spec.booked {
                let placed = self.suite.placed(Slot(slot));
                assert_eq!(placed.plugin, spec.plugin, "suite and spec differ about the plugin");
                assert_eq!(
                    placed.charge, spec.offer.charge,
                    "suite and spec differ about the charge"
                );
            }
            if let Some((session, position)) = spec.session {
                assert_eq!(
                    self.sessions[&session].specs[position as usize], slot,
                    "lost by its session"
                );
            }
            let watch = self.processes.contains(&(spec.process, Holder::Spec(slot)));
            assert_eq!(watch, spec.watched, "watched processes differ");
            changing += u32::from(matches!(spec.step, Step::Changing(_)));
            let Some(thread) = &spec.thread else {
                assert!(spec.is_idle(), "something is under way without a thread");
                continue;
            };
            attached += 1;
            assert_eq!(self.threads.get(&thread.thread), Some(&slot), "lost by its handle");
            assert_eq!(self.identities.get(&thread.identity()), Some(&slot), "lost by its id");
            assert!(self.families.contains(&(thread.tgid, slot)), "lost by its process");
            if let Some(at) = thread.retry_at {
                assert!(thread.ticket.is_none(), "an order waits for its answer and for its time");
                assert!(self.timers.contains(&(at, Timer::Retry(slot))), "its retry has no timer");
                stuck += u32::from(matches!(spec.step, Step::Restoring(_)));
            } else {
                assert!(
                    spec.is_idle() || thread.ticket.is_some(),
                    "something is under way without an order"
                );
            }
        }
        assert_eq!(named, self.ids.len(), "ids without specs");
        assert_eq!(attached, self.counters.attached, "attached threads are miscounted");
        let lists = (self.threads.len(), self.identities.len(), self.families.len());
        assert_eq!(
            lists,
            (attached as usize, attached as usize, attached as usize),
            "threads without specs"
        );
        assert_eq!(changing, self.changing, "changes are miscounted");
        assert_eq!(stuck, self.stuck, "stuck threads are miscounted");
    }

    fn audit_sessions(&self) {
        for (id, session) in &self.sessions {
            for (position, &slot) in session.specs.iter().enumerate() {
                assert_eq!(
                    self.specs.at(slot).session,
                    Some((*id, position as u32)),
                    "a list of specs is off"
                );
            }
        }
        let turned_away = self.sessions.values().filter(|session| session.is_turned_away()).count();
        assert_eq!(turned_away as u32, self.turned_away, "those turned away are miscounted");
        let watchers =
            self.processes.iter().filter(|(_, holder)| matches!(holder, Holder::Session(_)));
        for (process, holder) in watchers {
            let Holder::Session(id) = holder else { continue };
            assert_eq!(self.sessions[id].process, *process, "a session's process is off");
        }
    }

    fn audit_users(&self) {
        let mut users: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for session in self.sessions.values().filter(|session| !session.is_turned_away()) {
            users.entry(session.uid).or_default().0 += 1;
        }
        for (_, spec) in self.specs.iter() {
            users.entry(spec.uid).or_default().1 += 1;
        }
        let mut totals = (0, 0);
        for (uid, held) in users {
            assert_eq!(self.user_usage(uid), held, "what user {uid} holds is miscounted");
            totals = (totals.0 + held.0, totals.1 + held.1);
        }
        let (sessions, specs, _) = self.users.totals();
        assert_eq!((sessions, specs), totals, "users who hold nothing have counts");
    }

    fn audit_timers(&self) {
        for &(at, timer) in &self.timers {
            match timer {
                Timer::Rearm(id) => {
                    assert!(self.sessions[&id].owes(at), "a timer for a session without debt");
                }
                Timer::Again(id) => {
                    assert!(
                        self.parked.contains_key(&id),
                        "a timer for a change that is not parked"
                    );
                }
                Timer::Retry(slot) => {
                    let thread = self.specs.at(slot).thread.as_ref();
                    assert_eq!(
                        thread.and_then(|thread| thread.retry_at),
                        Some(at),
                        "a timer for nothing"
                    );
                }
            }
        }
    }
}
