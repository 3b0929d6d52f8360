//! Access rules: who may ask which plugin for what. ReTiF (JSA 2021) section 4.
//!
//! Model: a rule speaks about a *subject*, a domain (everybody, a user, a group) with a plugin or
//! with any, and bounds one property. Nothing is allowed that no rule speaks about; where several
//! match, all must hold. A rule for one plugin grants nothing on another. At connect the matching
//! rules are compiled, per plugin, into the tightest bound of each property ([`Snapshot`]), so that
//! a request costs a few comparisons however many rules there are.
//!
//! *Aggregates.* `max_utilization` bounds what its subject holds in all: the charges of all specs
//! whose creator belongs to the domain, of that plugin or of any, root's included. The books are
//! exact (what was charged is discharged), and since every charge is rounded up by less than 2^-64,
//! a sum that is over the bound by less than that a charge still passes: a bound of 1.0 takes ten
//! tasks of 10 %.
//!
//! *Escape by omission* (checklist R22). Whoever is bounded in something must declare it: an
//! undeclared runtime, period, deadline (if there is no period either) or utilisation is a refusal,
//! since no plugin could hold the bound. A priority is special. `fp` and `rr` take it from the
//! request; `edf` and `rm` hand out one of their own (100, as ReTiF's files count the deadline
//! class, or one of the band), whatever the request says, so there the bound must contain that; a
//! foreign plugin may do either, so it counts as the one kind when a priority is declared and as
//! the other when not. `allow_unbounded` lifts all of this.
//!
//! *Ignoring tests* and *omitting* need a matching rule that allows it, and none that forbids it.
//!
//! Absent on purpose: whose threads a client may touch. That is not configurable.

use crate::input::Peer;
use crate::plugin::Clip;
use talea_core::mutate;
use talea_core::setup::{
    Access, Bound, DEADLINE_CLASS, Domain, Groups, PluginKind, Root, RuleId, Setup,
};
use talea_core::{Charge, Priority, Span, Work};
use talea_proto::{Code, Field, Task};

/// Why the rules say no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// `NotAllowed`, `RuleBound` or `RuleOmission`.
    pub code: Code,
    /// About what; fixes the unit of the numbers.
    pub field: Field,
    /// What was asked for, 0 when it was left out. For a utilisation: what the subject would hold
    /// in all. For a priority that the plugin hands out by itself: that one.
    pub asked: u64,
    /// The rule's bound.
    pub limit: u64,
    /// Which rule; `None` when none matches.
    pub rule: Option<RuleId>,
}

/// What the rules say about one client: compiled at connect, and anew after a reload.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    unrestricted: bool,
    /// By plugin; empty for the unrestricted.
    bounds: Box<[Bounds]>,
    /// Subjects with an aggregate that the client belongs to: index, and the plugin if it is about
    /// one.
    subjects: Box<[(u32, Option<u32>)]>,
}

/// The tightest bounds of one client on one plugin, each with the rule it comes from.
#[derive(Clone, Debug, Default)]
struct Bounds {
    /// Whether any rule matches.
    consent: bool,
    runtime_max: Option<(Work, RuleId)>,
    period_min: Option<(Span, RuleId)>,
    period_max: Option<(Span, RuleId)>,
    deadline_min: Option<(Span, RuleId)>,
    deadline_max: Option<(Span, RuleId)>,
    priority_min: Option<(u8, RuleId)>,
    priority_max: Option<(u8, RuleId)>,
    ignore_admission: Option<(bool, RuleId)>,
    allow_unbounded: Option<(bool, RuleId)>,
    /// Every aggregate that applies: subject and bound.
    shares: Vec<(u32, Charge, RuleId)>,
}

/// What a subject holds.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    charge: Charge,
    specs: u32,
}

/// Where a plugin's priorities come from.
#[derive(Clone, Copy, Debug)]
enum Priorities {
    /// From the request.
    Requested,
    /// From the plugin: lowest and highest.
    Own(u8, u8),
    /// From the request or, if that has none, from the plugin.
    Either(u8, u8),
}

/// All rules, and what each subject of an aggregate holds.
#[derive(Debug)]
pub struct Rules {
    setup: Setup,
    priorities: Vec<Priorities>,
    subjects: Vec<(Domain, Option<u32>)>,
    held: Vec<Held>,
}

impl Rules {
    /// Compiles the rules of a setup; every aggregate starts at zero.
    pub fn compile(setup: &Setup) -> Rules {
        let mut subjects: Vec<(Domain, Option<u32>)> = Vec::new();
        for rule in &setup.rules {
            let subject = subject(rule);
            if matches!(rule.bound, Bound::MaxUtilization(_)) && !subjects.contains(&subject) {
                subjects.push(subject);
            }
        }
        let priorities = setup.plugins.iter().map(|plugin| {
            let (low, high) = plugin.band.map_or((1, 99), |band| (band.low.0, band.high.0));
            match plugin.kind {
                PluginKind::Edf(_) => Priorities::Own(DEADLINE_CLASS, DEADLINE_CLASS),
                PluginKind::Rm(_) => Priorities::Own(low, high),
                PluginKind::Fp(_) | PluginKind::Rr(_) => Priorities::Requested,
                PluginKind::Foreign(_) => Priorities::Either(low, high),
            }
        });
        Rules {
            priorities: priorities.collect(),
            held: vec![Held::default(); subjects.len()],
            subjects,
            setup: setup.clone(),
        }
    }

    /// What applies to `peer`.
    pub fn snapshot(&self, peer: &Peer) -> Snapshot {
        let setup = &self.setup;
        let unrestricted = setup.access == Access::Off
            || mutate!(
                "rule-root",
                peer.uid == 0 && setup.root == Root::Unrestricted,
                peer.uid == 0
            );
        let matches = |domain| {
            mutate!(
                "rule-user",
                match domain {
                    Domain::Global => true,
                    Domain::User(uid) => uid == peer.uid,
                    Domain::Group(gid) => {
                        mutate!(
                            "rule-group",
                            gid == peer.gid
                                || (mutate!(
                                    "rule-effective-group",
                                    setup.groups == Groups::All && peer.groups.contains(&gid),
                                    peer.groups.contains(&gid)
                                )),
                            gid == peer.gid
                        )
                    }
                },
                match domain {
                    Domain::Global => true,
                    Domain::User(_) => true,
                    Domain::Group(gid) => {
                        gid == peer.gid
                            || (setup.groups == Groups::All && peer.groups.contains(&gid))
                    }
                }
            )
        };
        let subjects = self.subjects.iter().enumerate().filter(|(_, (domain, _))| matches(*domain));
        let subjects = subjects.map(|(i, (_, plugin))| (i as u32, *plugin)).collect();
        let mut bounds =
            vec![Bounds::default(); if unrestricted { 0 } else { setup.plugins.len() }];
        if !unrestricted {
            for (i, rule) in setup.rules.iter().enumerate().filter(|(_, rule)| matches(rule.domain))
            {
                for (plugin, bounds) in bounds.iter_mut().enumerate() {
                    if mutate!(
                        "rule-plugin",
                        rule.plugin.is_none_or(|only| only == plugin),
                        plugin < usize::MAX
                    ) {
                        self.tighten(bounds, RuleId(i as u32));
                    }
                }
            }
        }
        Snapshot { unrestricted, bounds: bounds.into(), subjects }
    }

    fn tighten(&self, bounds: &mut Bounds, id: RuleId) {
        let rule = &self.setup.rules[id.0 as usize];
        bounds.consent = true;
        match rule.bound {
            Bound::MaxUtilization(limit) => {
                let subject = subject(rule);
                let index = self
                    .subjects
                    .iter()
                    .position(|s| *s == subject)
                    .expect("compiled with the rules");
                bounds.shares.push((index as u32, limit, id));
            }
            Bound::MaxRuntime(limit) => at_most(&mut bounds.runtime_max, limit, id),
            Bound::MinPeriod(limit) => at_least(&mut bounds.period_min, limit, id),
            Bound::MaxPeriod(limit) => at_most(&mut bounds.period_max, limit, id),
            Bound::MinDeadline(limit) => at_least(&mut bounds.deadline_min, limit, id),
            Bound::MaxDeadline(limit) => at_most(&mut bounds.deadline_max, limit, id),
            Bound::MinPriority(Priority(limit)) => at_least(&mut bounds.priority_min, limit, id),
            Bound::MaxPriority(Priority(limit)) => at_most(&mut bounds.priority_max, limit, id),
            // `false` is the tighter of the two.
            Bound::IgnoreAdmission(allowed) => at_most(&mut bounds.ignore_admission, allowed, id),
            Bound::AllowUnbounded(allowed) => at_most(&mut bounds.allow_unbounded, allowed, id),
        }
    }

    /// Whether any rule lets this client ask for anything.
    pub fn any(&self, client: &Snapshot) -> bool {
        client.unrestricted || client.bounds.iter().any(|bounds| bounds.consent)
    }

    /// Whether the client may ask `plugin` for `task`, and how far a desired runtime may go.
    /// `leaving` is what the spec being changed holds of which plugin: it counts as given back.
    pub fn admit(
        &self,
        client: &Snapshot,
        plugin: u32,
        task: &Task,
        leaving: Option<(u32, Charge)>,
    ) -> Result<Clip, Denial> {
        if client.unrestricted {
            return Ok(Clip::default());
        }
        let denial =
            |code, field, asked, limit, rule| Err(Denial { code, field, asked, limit, rule });
        let Some(bounds) = client.bounds.get(plugin as usize).filter(|bounds| bounds.consent)
        else {
            return mutate!(
                "rule-consent",
                denial(Code::NotAllowed, Field::Request, 0, 0, None),
                Ok(Clip::default())
            );
        };
        match bounds.ignore_admission {
            _ if !task.ignore_admission => {}
            Some((true, _)) => {}
            Some((false, rule)) => {
                return denial(Code::RuleBound, Field::IgnoreAdmission, 1, 0, Some(rule));
            }
            None => return denial(Code::NotAllowed, Field::IgnoreAdmission, 1, 0, None),
        }
        bounds.check(task, self.priorities[plugin as usize])?;
        let mut clip = Clip { runtime: bounds.runtime_max.map(|(limit, _)| limit), charge: None };
        let charge = task.params.runtime.and_then(|runtime| task.params.charge_of(runtime));
        for &(subject, limit, rule) in &bounds.shares {
            let Some(charge) = charge else {
                if bounds.is_unbounded() {
                    continue;
                }
                return denial(Code::RuleOmission, Field::Utilization, 0, limit.ppm(), Some(rule));
            };
            let (held, slack) = self.held_by(subject, leaving);
            let after = held.saturating_add(charge);
            if after > limit.saturating_add(slack) {
                return denial(
                    Code::RuleBound,
                    Field::Utilization,
                    after.ppm(),
                    limit.ppm(),
                    Some(rule),
                );
            }
            let left = limit.saturating_add(slack).saturating_sub(held);
            clip.charge = Some(clip.charge.map_or(left, |least| least.min(left)));
        }
        Ok(clip)
    }

    /// What a subject holds without what is leaving, and by how much rounding may have raised that
    /// and one charge.
    fn held_by(&self, subject: u32, leaving: Option<(u32, Charge)>) -> (Charge, Charge) {
        let held = self.held[subject as usize];
        let counts = self.subjects[subject as usize].1;
        let leaving = leaving.filter(|&(plugin, _)| counts.is_none_or(|only| only == plugin));
        let rest = held.charge.saturating_sub(leaving.map_or(Charge::ZERO, |(_, charge)| charge));
        (rest, Charge::from_bits(u128::from(held.specs) + 1))
    }

    /// Counts what the client now holds of `plugin` towards every subject that it belongs to.
    pub fn charge(&mut self, client: &Snapshot, plugin: u32, charge: Charge) {
        for subject in client.subjects_of(plugin) {
            let held = &mut self.held[subject as usize];
            mutate!(
                "rule-aggregate",
                {
                    held.charge = held.charge.saturating_add(charge);
                },
                {}
            );

            held.specs += 1;
        }
    }

    /// Takes back what [`Rules::charge`] counted, with the same arguments.
    ///
    /// # Panics
    /// If it was never counted.
    pub fn discharge(&mut self, client: &Snapshot, plugin: u32, charge: Charge) {
        for subject in client.subjects_of(plugin) {
            let held = &mut self.held[subject as usize];
            held.charge =
                held.charge.checked_sub(charge).expect("a subject gives back more than it holds");
            held.specs -= 1;
        }
    }

    /// Where a rule was written.
    pub fn origin(&self, rule: RuleId) -> &str {
        self.setup.rules.get(rule.0 as usize).map_or("", |rule| &rule.origin)
    }
}

impl Snapshot {
    /// The subjects that count what the client holds of `plugin`.
    fn subjects_of(&self, plugin: u32) -> impl Iterator<Item = u32> {
        let counts = move |only: &Option<u32>| only.is_none_or(|only| only == plugin);
        self.subjects.iter().filter(move |(_, only)| counts(only)).map(|&(subject, _)| subject)
    }
}

impl Bounds {
    fn is_unbounded(&self) -> bool {
        self.allow_unbounded.is_some_and(|(allowed, _)| allowed)
    }

    /// The bounds on single parameters.
    fn check(&self, task: &Task, priorities: Priorities) -> Result<(), Denial> {
        let params = &task.params;
        let runtime = params.runtime.map(Work::as_ns);
        let period = params.period.map(Span::as_ns);
        let deadline = params.deadline_or_period().map(Span::as_ns);
        let work = |bound: Option<(Work, RuleId)>| bound.map(|(limit, rule)| (limit.as_ns(), rule));
        let span = |bound: Option<(Span, RuleId)>| bound.map(|(limit, rule)| (limit.as_ns(), rule));
        let priority =
            |bound: Option<(u8, RuleId)>| bound.map(|(limit, rule)| (u64::from(limit), rule));
        self.within(Field::Runtime, runtime, None, work(self.runtime_max))?;
        self.within(Field::Period, period, span(self.period_min), span(self.period_max))?;
        self.within(Field::Deadline, deadline, span(self.deadline_min), span(self.deadline_max))?;
        let (min, max) = (priority(self.priority_min), priority(self.priority_max));
        let asked = params.priority.map(|priority| u64::from(priority.0));
        match priorities {
            Priorities::Requested => self.within(Field::Priority, asked, min, max),
            Priorities::Either(..) if asked.is_some() => {
                self.within(Field::Priority, asked, min, max)
            }
            Priorities::Own(low, high) | Priorities::Either(low, high) => {
                if asked.is_some() {
                    self.within(Field::Priority, asked, min, max)?;
                }
                self.holds(low.into(), high.into(), min, max)
            }
        }
    }

    fn within(
        &self,
        field: Field,
        asked: Option<u64>,
        min: Option<(u64, RuleId)>,
        max: Option<(u64, RuleId)>,
    ) -> Result<(), Denial> {
        let Some(asked) = asked else {
            return mutate!(
                "rule-omission",
                match min.or(max) {
                    Some((limit, rule)) if !self.is_unbounded() => {
                        Err(Denial {
                            code: Code::RuleOmission,
                            field,
                            asked: 0,
                            limit,
                            rule: Some(rule),
                        })
                    }
                    _ => Ok(()),
                },
                match min.or(max) {
                    _ => Ok(()),
                }
            );
        };
        let below = min.filter(|&(limit, _)| asked < limit);
        match below.or(max.filter(|&(limit, _)| asked > limit)) {
            None => Ok(()),
            Some((limit, rule)) => {
                Err(Denial { code: Code::RuleBound, field, asked, limit, rule: Some(rule) })
            }
        }
    }

    /// Whether priorities that a plugin hands out by itself stay within the bounds.
    fn holds(
        &self,
        low: u64,
        high: u64,
        min: Option<(u64, RuleId)>,
        max: Option<(u64, RuleId)>,
    ) -> Result<(), Denial> {
        let below = min.filter(|&(limit, _)| low < limit).map(|bound| (low, bound));
        let above = max.filter(|&(limit, _)| high > limit).map(|bound| (high, bound));
        match above.or(below) {
            Some((asked, (limit, rule))) if !self.is_unbounded() => {
                let (code, field) = (Code::RuleOmission, Field::Priority);
                Err(Denial { code, field, asked, limit, rule: Some(rule) })
            }
            _ => Ok(()),
        }
    }
}

fn subject(rule: &talea_core::setup::Rule) -> (Domain, Option<u32>) {
    (rule.domain, rule.plugin.map(|plugin| plugin as u32))
}

/// Keeps the smaller bound; the first rule that says so is named.
fn at_most<T: PartialOrd>(bound: &mut Option<(T, RuleId)>, limit: T, rule: RuleId) {
    if bound.as_ref().is_none_or(|(tightest, _)| limit < *tightest) {
        *bound = Some((limit, rule));
    }
}

/// Keeps the larger bound; the first rule that says so is named.
fn at_least<T: PartialOrd>(bound: &mut Option<(T, RuleId)>, limit: T, rule: RuleId) {
    if bound.as_ref().is_none_or(|(tightest, _)| limit > *tightest) {
        *bound = Some((limit, rule));
    }
}

#[cfg(test)]
mod tests;
