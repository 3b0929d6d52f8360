//! Access rules: requests allowed to clients. ReTiF (JSA 2021) section 4.
//!
//! Model: a rule is about a *subject*, a domain (all users, a user, a group) with one plugin or
//! any, and bounds one property. A request is allowed only if at least one rule matches; all
//! matching rules must hold. A rule for one plugin allows nothing on another plugin. At connect the
//! matching rules are compiled, per plugin, into the tightest bound of each property
//! ([`Snapshot`]), so that a request costs a few comparisons for any number of rules.
//!
//! *Aggregates.* `max_utilization` bounds the total charge of its subject: the charges of all specs
//! whose creator belongs to the domain, of that plugin or of any, including those of the superuser.
//! The sums are exact (each charge is later discharged). Every charge is rounded up by less than
//! 2^-64, so a sum that exceeds the bound by less than that per charge still passes: a bound of 1.0
//! allows ten tasks of 10 %.
//!
//! *Escape by omission* (R22). A client with a bound on a property must declare it: an undeclared
//! runtime, period, deadline (without a period) or utilization is refused, because no plugin could
//! enforce the bound. The priority is special. `fp` and `rr` use the priority of the request. `edf`
//! and `rm` assign one of their own (100 for the deadline class, as in ReTiF's files, or one of the
//! band), so the bound must contain it. A foreign plugin may do either: it counts as the first kind
//! if a priority is declared, else as the second. `allow_unbounded` lifts all of this.
//!
//! *Ignoring tests* and *omitting* require a matching rule that allows it, and no rule that forbids
//! it.
//!
//! *Threads without a runtime*, which `allow_unbounded` admits below a `max_utilization`, share
//! what the charges leave of it ([`shares`]).
//!
//! Absent on purpose: rules for the threads that a client may attach. Access to threads is not
//! configurable.

pub mod shares;

use crate::input::Peer;
use crate::plugin::RuntimeCap;
use std::collections::BTreeSet;
use std::sync::Arc;
use talea_core::mutate;
use talea_core::setup::{
    Access, Bound, DEADLINE_CLASS, Domain, Groups, OnOverrun, PluginKind, Root, RuleId, Setup,
};
use talea_core::{Charge, Priority, Span, Work};
use talea_proto::{Code, Field, Task};

/// Denial of a request by the access rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// `NotAllowed`, `RuleBound` or `RuleOmission`.
    pub code: Code,
    /// Field concerned; determines the unit of the numbers.
    pub field: Field,
    /// Requested value, 0 if it was omitted. For a utilization: the resulting total of the subject.
    /// For a priority that the plugin assigns: that priority. For a thread without a runtime: the
    /// minimum share.
    pub asked: u64,
    /// Bound of the rule; for a thread without a runtime, what is left of it.
    pub limit: u64,
    /// The rule; `None` if no rule matches, or if no rule permits to ignore the test.
    pub rule: Option<RuleId>,
}

/// Rules for one client, compiled at connect and after a reload.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    unrestricted: bool,
    /// `bounds[p]`: bounds for plugin `p`; empty for an unrestricted client.
    bounds: Box<[Bounds]>,
    /// Subjects with an aggregate that the client belongs to: index, and the plugin if the subject
    /// has one.
    subjects: Box<[(u32, Option<u32>)]>,
    /// Lowest nice value that a thread may get, with its rule; `None` without a rule.
    nice_min: Option<(i8, RuleId)>,
}

impl Snapshot {
    /// Returns the first rule that matches the client on `plugin`; `None` for an unrestricted
    /// client.
    pub fn first_rule(&self, plugin: u32) -> Option<RuleId> {
        self.bounds.get(plugin as usize)?.first
    }

    /// Returns the rule that bounds nice values; `None` if there is none.
    pub(crate) fn nice_rule(&self) -> Option<RuleId> {
        self.nice_min.map(|(_, rule)| rule)
    }
}

/// Tightest bounds of one client on one plugin, each with its rule.
#[derive(Clone, Debug, Default)]
struct Bounds {
    /// Whether any rule matches.
    consent: bool,
    /// First rule that matches.
    first: Option<RuleId>,
    runtime_max: Option<(Work, RuleId)>,
    period_min: Option<(Span, RuleId)>,
    period_max: Option<(Span, RuleId)>,
    deadline_min: Option<(Span, RuleId)>,
    deadline_max: Option<(Span, RuleId)>,
    priority_min: Option<(u8, RuleId)>,
    priority_max: Option<(u8, RuleId)>,
    ignore_admission: Option<(bool, RuleId)>,
    allow_unbounded: Option<(bool, RuleId)>,
    on_overrun: Option<(OnOverrun, RuleId)>,
    /// All applicable aggregates: subject and bound.
    shares: Vec<(u32, Charge, RuleId)>,
}

/// Usage of a subject.
#[derive(Clone, Debug, Default)]
struct Usage {
    charge: Charge,
    specs: u32,
    /// Attached threads that share the rest.
    sharing: BTreeSet<u32>,
}

impl Usage {
    /// Returns the maximum rounding error of the usage and one more charge.
    fn rounding(&self) -> Charge {
        Charge::from_bits(u128::from(self.specs) + self.sharing.len() as u128 + 1)
    }
}

/// Source of a plugin's priorities.
#[derive(Clone, Copy, Debug)]
enum Priorities {
    /// The request.
    Requested,
    /// The plugin: lowest and highest.
    Own(u8, u8),
    /// The request or, if it declares none, the plugin.
    Either(u8, u8),
}

/// All rules, and the usage of each subject with an aggregate.
#[derive(Debug)]
pub struct Rules {
    setup: Setup,
    priorities: Vec<Priorities>,
    subjects: Vec<(Domain, Option<u32>)>,
    usage: Vec<Usage>,
    /// Subjects whose shares may have changed.
    changed: BTreeSet<u32>,
    /// `origins[r]`: location of rule `r`, shared by the records of the audit trail.
    origins: Vec<Arc<str>>,
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
                _ if plugin.kind.is_deadline() => Priorities::Own(DEADLINE_CLASS, DEADLINE_CLASS),
                PluginKind::Edf(_) => unreachable!("`edf` has the deadline class"),
                PluginKind::Rm(_) => Priorities::Own(low, high),
                PluginKind::Fp(_) | PluginKind::Rr(_) => Priorities::Requested,
                PluginKind::Foreign(_) => Priorities::Either(low, high),
            }
        });
        Rules {
            priorities: priorities.collect(),
            usage: vec![Usage::default(); subjects.len()],
            subjects,
            changed: BTreeSet::new(),
            origins: setup.rules.iter().map(|rule| rule.origin.as_str().into()).collect(),
            setup: setup.clone(),
        }
    }

    /// Returns the rules that apply to `peer`.
    pub fn snapshot(&self, peer: &Peer) -> Snapshot {
        let setup = &self.setup;
        let unrestricted = setup.access == Access::Off
            || mutate!(
                "rule-root",
                peer.uid == 0 && setup.root == Root::Unrestricted,
                peer.uid == 0
            );
        let all_groups = mutate!("rule-effective-group", setup.groups == Groups::All, true);
        let is_member = |gid| all_groups && peer.groups.contains(&gid);
        let matches = |domain| match domain {
            Domain::Global => true,
            Domain::User(uid) => mutate!("rule-user", uid == peer.uid, true),
            Domain::Group(gid) => gid == peer.gid || mutate!("rule-group", is_member(gid), false),
        };
        let subjects = self.subjects.iter().enumerate().filter(|(_, (domain, _))| matches(*domain));
        let subjects = subjects.map(|(i, (_, plugin))| (i as u32, *plugin)).collect();
        let mut nice_min = None;
        let mut bounds =
            vec![Bounds::default(); if unrestricted { 0 } else { setup.plugins.len() }];
        if !unrestricted {
            for (i, rule) in setup.rules.iter().enumerate().filter(|(_, rule)| matches(rule.domain))
            {
                if let Bound::MinNice(limit) = rule.bound {
                    mutate!("rule-min-nice", at_least(&mut nice_min, limit, RuleId(i as u32)));
                    continue;
                }
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
        Snapshot { unrestricted, bounds: bounds.into(), subjects, nice_min }
    }

    fn tighten(&self, bounds: &mut Bounds, id: RuleId) {
        let rule = &self.setup.rules[id.0 as usize];
        bounds.consent = true;
        bounds.first.get_or_insert(id);
        match rule.bound {
            Bound::MaxUtilization(limit) => {
                let subject = subject(rule);
                let index = self
                    .subjects
                    .iter()
                    .position(|s| *s == subject)
                    .expect("compiled with the rules");
                mutate!("rule-max-utilization", bounds.shares.push((index as u32, limit, id)));
            }
            Bound::MaxRuntime(limit) => {
                mutate!("rule-max-runtime", at_most(&mut bounds.runtime_max, limit, id));
            }
            Bound::MinPeriod(limit) => {
                mutate!("rule-min-period", at_least(&mut bounds.period_min, limit, id));
            }
            Bound::MaxPeriod(limit) => {
                mutate!("rule-max-period", at_most(&mut bounds.period_max, limit, id));
            }
            Bound::MinDeadline(limit) => {
                mutate!("rule-min-deadline", at_least(&mut bounds.deadline_min, limit, id));
            }
            Bound::MaxDeadline(limit) => {
                mutate!("rule-max-deadline", at_most(&mut bounds.deadline_max, limit, id));
            }
            Bound::MinPriority(Priority(limit)) => {
                mutate!("rule-min-priority", at_least(&mut bounds.priority_min, limit, id));
            }
            Bound::MaxPriority(Priority(limit)) => {
                mutate!("rule-max-priority", at_most(&mut bounds.priority_max, limit, id));
            }
            // `false` is the tighter of the two.
            Bound::IgnoreAdmission(allowed) => {
                mutate!("rule-ignore-adm-test", at_most(&mut bounds.ignore_admission, allowed, id));
            }
            Bound::AllowUnbounded(allowed) => {
                mutate!("rule-allow-unbounded", at_most(&mut bounds.allow_unbounded, allowed, id));
            }
            Bound::OnOverrun(reaction) => {
                mutate!("rule-on-overrun", at_least(&mut bounds.on_overrun, reaction, id));
            }
            Bound::MinNice(_) => unreachable!("it concerns no plugin"),
        }
    }

    /// Returns the reaction to overruns that the client's rules demand on `plugin`, if any does.
    pub fn on_overrun(&self, client: &Snapshot, plugin: u32) -> Option<OnOverrun> {
        client.bounds.get(plugin as usize)?.on_overrun.map(|(reaction, _)| reaction)
    }

    /// Checks whether a thread of the client may get this nice value.
    pub fn admit_nice(&self, client: &Snapshot, nice: i8) -> Result<(), Denial> {
        let denial = |code, limit, rule| {
            Err(Denial { code, field: Field::Nice, asked: nice_number(nice), limit, rule })
        };
        match client.nice_min {
            _ if client.unrestricted => Ok(()),
            None => denial(Code::NotAllowed, 0, None),
            Some((limit, rule)) if mutate!("rule-nice", nice < limit, false) => {
                denial(Code::RuleBound, nice_number(limit), Some(rule))
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether any rule allows this client a request.
    pub fn allows_anything(&self, client: &Snapshot) -> bool {
        client.unrestricted
            || client.nice_min.is_some()
            || client.bounds.iter().any(|bounds| bounds.consent)
    }

    /// Checks whether the client may request `task` from `plugin`; returns the bounds for a desired
    /// runtime. `leaving` is the plugin and charge of the spec to be replaced, with the minimum
    /// share of a sharing thread: it counts as released.
    pub fn admit(
        &self,
        client: &Snapshot,
        plugin: u32,
        task: &Task,
        leaving: Option<(u32, Charge)>,
    ) -> Result<RuntimeCap, Denial> {
        if client.unrestricted {
            return Ok(RuntimeCap::default());
        }
        let denial =
            |code, field, asked, limit, rule| Err(Denial { code, field, asked, limit, rule });
        let Some(bounds) = client.bounds.get(plugin as usize).filter(|bounds| bounds.consent)
        else {
            return mutate!(
                "rule-consent",
                denial(Code::NotAllowed, Field::Request, 0, 0, None),
                Ok(RuntimeCap::default())
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
        let mut cap =
            RuntimeCap { runtime: bounds.runtime_max.map(|(limit, _)| limit), charge: None };
        let charge = task.params.runtime.and_then(|runtime| task.params.charge_of(runtime));
        if charge.is_none() && bounds.is_unbounded() {
            return self.admit_sharing(client, plugin, leaving).map(|()| cap);
        }
        for &(subject, limit, rule) in &bounds.shares {
            let Some(charge) = charge else {
                return denial(Code::RuleOmission, Field::Utilization, 0, limit.ppm(), Some(rule));
            };
            let (usage, slack) = self.usage_without(subject, leaving);
            let after = usage.saturating_add(charge);
            if after > limit.saturating_add(slack) {
                return denial(
                    Code::RuleBound,
                    Field::Utilization,
                    after.ppm(),
                    limit.ppm(),
                    Some(rule),
                );
            }
            let left = limit.saturating_add(slack).saturating_sub(usage);
            cap.charge = Some(cap.charge.map_or(left, |least| least.min(left)));
        }
        Ok(cap)
    }

    /// Adds a charge of the client on `plugin` to all its subjects.
    pub fn charge(&mut self, client: &Snapshot, plugin: u32, charge: Charge) {
        for subject in client.subjects_of(plugin) {
            let usage = &mut self.usage[subject as usize];
            mutate!("rule-aggregate", usage.charge = usage.charge.saturating_add(charge));

            usage.specs += 1;
            if !usage.sharing.is_empty() {
                self.changed.insert(subject);
            }
        }
    }

    /// Reverts [`Rules::charge`] with the same arguments.
    ///
    /// # Panics
    /// If the charge was not counted.
    pub fn discharge(&mut self, client: &Snapshot, plugin: u32, charge: Charge) {
        for subject in client.subjects_of(plugin) {
            let usage = &mut self.usage[subject as usize];
            usage.charge =
                usage.charge.checked_sub(charge).expect("more is discharged than was charged");
            usage.specs -= 1;
            if !usage.sharing.is_empty() {
                self.changed.insert(subject);
            }
        }
    }

    /// Returns the location of a rule; empty for an unknown rule.
    pub fn origin(&self, rule: RuleId) -> &str {
        self.setup.rules.get(rule.0 as usize).map_or("", |rule| &rule.origin)
    }
}

impl Rules {
    /// Returns the location of a rule, without a copy.
    pub(crate) fn shared_origin(&self, rule: RuleId) -> Option<Arc<str>> {
        self.origins.get(rule.0 as usize).cloned()
    }
}

impl Snapshot {
    /// Returns the subjects that count the client's charges on `plugin`.
    fn subjects_of(&self, plugin: u32) -> impl Iterator<Item = u32> {
        let counts = move |only: &Option<u32>| only.is_none_or(|only| only == plugin);
        self.subjects.iter().filter(move |(_, only)| counts(only)).map(|&(subject, _)| subject)
    }

    /// Returns the aggregates that bind the client on `plugin`.
    fn shares_on(&self, plugin: u32) -> &[(u32, Charge, RuleId)] {
        self.bounds.get(plugin as usize).map_or(&[], |bounds| &bounds.shares)
    }
}

/// Returns the number of a nice value in answers, see [`Field::Nice`].
fn nice_number(nice: i8) -> u64 {
    (20 - i64::from(nice)) as u64
}

impl Bounds {
    fn is_unbounded(&self) -> bool {
        self.allow_unbounded.is_some_and(|(allowed, _)| allowed)
    }

    /// Checks the bounds on single parameters.
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
                self.check_own_priorities(low.into(), high.into(), min, max)
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

    /// Checks that the priorities assigned by the plugin are within the bounds.
    fn check_own_priorities(
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

/// Keeps the smaller bound; among equal bounds, the first rule.
fn at_most<T: PartialOrd>(bound: &mut Option<(T, RuleId)>, limit: T, rule: RuleId) {
    if bound.as_ref().is_none_or(|(tightest, _)| limit < *tightest) {
        *bound = Some((limit, rule));
    }
}

/// Keeps the larger bound; among equal bounds, the first rule.
fn at_least<T: PartialOrd>(bound: &mut Option<(T, RuleId)>, limit: T, rule: RuleId) {
    if bound.as_ref().is_none_or(|(tightest, _)| limit > *tightest) {
        *bound = Some((limit, rule));
    }
}

#[cfg(test)]
mod tests;
