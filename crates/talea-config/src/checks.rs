//! Checks across lines: plugins that conflict, and rules that contradict each other or have no
//! effect.
//!
//! Cost: quadratic in plugins (at most 32), linear in rules.

use crate::daemon::DaemonPart;
use crate::plugin::PluginAt;
use crate::rule::RuleAt;
use crate::source::{Findings, Words, words};
use crate::target::Target;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use talea_core::setup::{Access, Bound, Confine, DEADLINE_CLASS, Domain, PluginKind, Root, Rule};
use talea_core::{CpuSet, Span, mutate};

/// Reports names that occur twice.
pub(super) fn unique_names(names: &[(String, Range<usize>)], findings: &mut Findings<'_>) {
    let mut first: HashMap<&str, &Range<usize>> = HashMap::new();
    for (name, at) in names {
        if let Some(before) = first.get(name.as_str()) {
            let line = findings.source.line(before.start);
            findings.error(
                at,
                words(
                    format!("a second plugin is called `{name}`"),
                    format!("requests and rules could not tell it from the one on line {line}"),
                    format!("call it `{name}2`, say"),
                ),
            );
        } else {
            first.insert(name, at);
        }
    }
}

/// Returns the lowest and highest priority of a plugin. The deadline class is above all priorities.
fn priorities(plugin: &PluginAt) -> (u8, u8) {
    plugin.setup.band.map_or((DEADLINE_CLASS, DEADLINE_CLASS), |band| (band.low.0, band.high.0))
}

/// Checks the priority order between plugins on CPUs that they share (R9, R31).
pub(super) fn plugin_pairs(plugins: &[PluginAt], findings: &mut Findings<'_>) {
    for (index, later) in plugins.iter().enumerate() {
        for earlier in &plugins[..index] {
            let shared = later.setup.cpus.intersection(&earlier.setup.cpus);
            if shared.is_empty() {
                continue;
            }
            partial_overlap(earlier, later, findings);
            let (one, two) = (priorities(earlier), priorities(later));
            let (first, second) = (&earlier.setup.name, &later.setup.name);
            let places =
                format!("`{first}` (line {}) and `{second}` share CPUs {shared}", earlier.line);
            if two.0 > one.1 {
                findings.warning(
                    &later.band_at,
                    words(
                        format!("`{second}` outranks `{first}`, which has precedence"),
                        format!("{places}: requests go to `{first}` first, but threads of `{second}` preempt its threads"),
                        "move the more urgent plugin up in the file, or swap the priorities",
                    ),
                );
            } else if one.0 <= two.1 && one.0 < DEADLINE_CLASS {
                findings.warning(
                    &later.band_at,
                    words(
                        format!("the priorities of `{second}` overlap those of `{first}`"),
                        format!("{places}: they account for each other, but within the overlap either may preempt the other"),
                        "give them disjoint priorities or different CPUs",
                    ),
                );
            } else if one.0 >= DEADLINE_CLASS && two.0 >= DEADLINE_CLASS {
                findings.warning(
                    &later.cpus_at,
                    words(
                        format!("`{second}` and `{first}` both reserve on the deadline class"),
                        format!("{places}: the kernel tells their threads apart by deadline only"),
                        "give them different CPUs, or keep one of them",
                    ),
                );
            }
        }
    }
}

/// Reports CPUs that two plugins share, if each has CPUs of its own besides.
fn partial_overlap(earlier: &PluginAt, later: &PluginAt, findings: &mut Findings<'_>) {
    let (one, two) = (&earlier.setup.cpus, &later.setup.cpus);
    let (only_one, only_two) = (one.difference(two), two.difference(one));
    if mutate!("config-partial-overlap", only_one.is_empty() || only_two.is_empty(), true) {
        return;
    }
    let (first, second) = (&earlier.setup.name, &later.setup.name);
    findings.warning(
        &later.cpus_at,
        words(
            format!("the CPUs of `{second}` and `{first}` overlap partially"),
            format!(
                "both have CPUs {}, only `{first}` (line {}) has CPUs {only_one}, and only `{second}` has CPUs {only_two}: what \
                 fits on the shared ones depends on the order of the requests",
                one.intersection(two),
                earlier.line
            ),
            "give them equal or disjoint CPUs, or those of one to the other also",
        ),
    );
}

/// Reports plugins of the deadline class that serve no task, because no root domain of the computer
/// fits.
pub(super) fn unservable(plugins: &[PluginAt], target: &Target, findings: &mut Findings<'_>) {
    let Some(domains) = &target.domains else { return };
    for plugin in plugins {
        let Some(confine) = plugin.setup.kind.confine() else { continue };
        let cpus = plugin.setup.cpus;
        let is_single = |set: &CpuSet| set.len() == 1 && cpus.intersection(set) == *set;
        let serves = match confine {
            Confine::Partition => domains.can_partition || domains.sets.iter().any(is_single),
            Confine::Auto => domains.sets.contains(&cpus) || domains.sets.iter().any(is_single),
            Confine::Global => domains.sets.contains(&cpus),
        };
        if mutate!("config-unservable", serves, true) {
            continue;
        }
        let list: Vec<String> = domains.sets.iter().map(CpuSet::to_string).collect();
        let list = list.join(" and ");
        let or = if confine == Confine::Partition {
            "make each CPU a partition root, and start the programs inside"
        } else if domains.can_partition {
            "add `confine = \"partition\"`"
        } else {
            "make each of them a partition root"
        };
        let remedy = match &domains.sets[..] {
            [only] if confine != Confine::Partition => {
                format!("write `cpus = \"{only}\"`, or {or}")
            }
            _ => or.to_owned(),
        };
        findings.warning(
            &plugin.cpus_at,
            words(
                format!("`{}` serves no task here", plugin.setup.name),
                format!(
                    "the kernel admits deadline threads only to whole root domains: CPUs {list} here, not CPUs {cpus}"
                ),
                remedy,
            ),
        );
    }
}

/// Quantity that has a lower and an upper bound.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Quantity {
    Period,
    Deadline,
    Priority,
}

/// Returns the side of `bound`: the quantity, whether it is the upper side, and the value. `None`
/// for a bound without a side.
fn side(bound: &Bound) -> Option<(Quantity, bool, u64)> {
    match bound {
        Bound::MinPeriod(span) => Some((Quantity::Period, false, span.as_ns())),
        Bound::MaxPeriod(span) => Some((Quantity::Period, true, span.as_ns())),
        Bound::MinDeadline(span) => Some((Quantity::Deadline, false, span.as_ns())),
        Bound::MaxDeadline(span) => Some((Quantity::Deadline, true, span.as_ns())),
        Bound::MinPriority(level) => Some((Quantity::Priority, false, u64::from(level.0))),
        Bound::MaxPriority(level) => Some((Quantity::Priority, true, u64::from(level.0))),
        _ => None,
    }
}

fn show(quantity: Quantity, value: u64) -> String {
    match quantity {
        Quantity::Priority => value.to_string(),
        Quantity::Period | Quantity::Deadline => Span::from_ns(value).to_string(),
    }
}

type Subject = (Domain, Option<usize>);

/// Reports bounds that exclude each other. All matching rules must hold, so these bounds refuse
/// every request.
pub(super) fn contradictions(rules: &[RuleAt], findings: &mut Findings<'_>) {
    // The strictest bound of each subject and side, with the rule that says it.
    let mut strictest: HashMap<(Subject, Quantity, bool), (u64, usize)> = HashMap::new();
    let mut said: HashMap<(Subject, &'static str), usize> = HashMap::new();
    for (index, RuleAt { rule, at }) in rules.iter().enumerate() {
        let subject = (rule.domain, rule.plugin);
        if let Some(before) = said.insert((subject, rule.bound.key()), index) {
            let line = findings.source.line(rules[before].at.start);
            findings.warning(
                at,
                words(
                    format!("`{}` is given twice for the same subject", rule.bound.key()),
                    format!("all rules must hold, so the stricter of this and line {line} decides"),
                    "keep one of them",
                ),
            );
        }
        let Some((quantity, upper, value)) = side(&rule.bound) else { continue };
        if let Some(text) =
            excluded(rules, index, strictest.get(&(subject, quantity, !upper)), findings)
        {
            findings.error(at, text);
        }
        let entry = strictest.entry((subject, quantity, upper)).or_insert((value, index));
        let stricter = if upper { value < entry.0 } else { value > entry.0 };
        if stricter {
            *entry = (value, index);
        }
    }
    // Every request of a subject also matches the rules of wider ones, wherever those are written.
    for (index, RuleAt { rule, at }) in rules.iter().enumerate() {
        let Some((quantity, upper, _)) = side(&rule.bound) else { continue };
        let subject = (rule.domain, rule.plugin);
        let wider = [(Domain::Global, rule.plugin), (rule.domain, None), (Domain::Global, None)];
        let text = wider.into_iter().filter(|other| *other != subject).find_map(|other| {
            excluded(rules, index, strictest.get(&(other, quantity, !upper)), findings)
        });
        if let Some(text) = text {
            findings.warning(at, text);
        }
    }
}

/// Returns the message that rule `index` and the `other` side exclude each other; `None` if they do
/// not.
fn excluded(
    rules: &[RuleAt],
    index: usize,
    other: Option<&(u64, usize)>,
    findings: &Findings<'_>,
) -> Option<Words> {
    let (quantity, upper, value) = side(&rules[index].rule.bound)?;
    let &(against, by) = other?;
    let (least, most) = if upper { (against, value) } else { (value, against) };
    let line = findings.source.line(rules[by].at.start);
    (least > most).then(|| {
        words(
            format!(
                "`{}` contradicts `{}` on line {line}",
                rules[index].rule.bound.key(),
                rules[by].rule.bound.key()
            ),
            format!(
                "all matching rules must hold, and nothing is both at least {} and at most {}",
                show(quantity, least),
                show(quantity, most)
            ),
            "make the minimum at most the maximum",
        )
    })
}

/// Whether a bound on the priority excludes some of the priorities that `plugin` assigns.
fn excludes(bound: &Bound, plugin: &PluginAt) -> bool {
    let (low, high) = priorities(plugin);
    match bound {
        Bound::MinPriority(least) => low < least.0,
        Bound::MaxPriority(most) => high > most.0,
        _ => false,
    }
}

/// Whether a rule allows this subject to omit a bounded parameter.
fn lifted(domain: Domain, plugin: Option<usize>, unbounded: &HashSet<Subject>) -> bool {
    let wide = [(domain, plugin), (domain, None), (Domain::Global, plugin), (Domain::Global, None)];
    wide.iter().any(|subject| unbounded.contains(subject))
}

/// Warns if a bound on the priority, in a rule for all plugins, excludes priorities that plugins of
/// kind edf or rm assign.
fn any_plugin(
    rule: &Rule,
    at: &Range<usize>,
    plugins: &[PluginAt],
    unbounded: &HashSet<Subject>,
    findings: &mut Findings<'_>,
) {
    let own =
        |plugin: &PluginAt| matches!(plugin.setup.kind, PluginKind::Edf(_) | PluginKind::Rm(_));
    let beyond = plugins
        .iter()
        .enumerate()
        .filter(|(_, plugin)| own(plugin) && excludes(&rule.bound, plugin));
    let (free, closed): (Vec<_>, Vec<_>) =
        beyond.partition(|&(index, _)| lifted(rule.domain, Some(index), unbounded));
    let key = rule.bound.key();
    let names = |plugins: &[(usize, &PluginAt)]| {
        let names = plugins.iter().map(|(_, plugin)| format!("`{}`", plugin.setup.name));
        names.collect::<Vec<_>>().join(", ")
    };
    let fixed = plugins
        .iter()
        .find(|plugin| matches!(plugin.setup.kind, PluginKind::Fp(_) | PluginKind::Rr(_)));
    let fixed = fixed.map_or("fp", |plugin| &plugin.setup.name);
    if !closed.is_empty() {
        findings.warning(
            at,
            words(
                format!("`{key}` keeps this subject from {}", names(&closed)),
                "the priorities that edf and rm hand out by themselves are beyond the bound (100 is the deadline class)",
                format!("if that is not meant, write `plugin = \"{fixed}\"` in this rule, or move the bound"),
            ),
        );
    }
    if !free.is_empty() {
        findings.warning(
            at,
            words(
                format!("`{key}` does not bind {}", names(&free)),
                "edf and rm hand out priorities of their own, and `allow_unbounded` lets the request leave its priority out",
                format!("if that is not meant, write `plugin = \"{fixed}\"` in this rule"),
            ),
        );
    }
}

/// Warns about rules that never match, or bound a parameter that their plugin does not use (ReTiF
/// Table 6).
pub(super) fn idle_rules(
    daemon: &DaemonPart,
    plugins: &[PluginAt],
    rules: &[RuleAt],
    findings: &mut Findings<'_>,
) {
    if let (Access::Off, Some(first)) = (daemon.access, rules.first()) {
        findings.warning(
            &first.at,
            words(
                "no rule is asked",
                "with `access = \"off\"` every request of every user is served",
                "write `access = \"rules\"`, or remove the rules",
            ),
        );
        return;
    }
    let unbounded: HashSet<Subject> = rules
        .iter()
        .filter(|r| r.rule.bound == Bound::AllowUnbounded(true))
        .map(|r| (r.rule.domain, r.rule.plugin))
        .collect();
    for RuleAt { rule, at } in rules {
        if rule.domain == Domain::User(0) && daemon.root == Root::Unrestricted {
            findings.warning(
                at,
                words(
                    "this rule never matches",
                    "root is not bound by rules",
                    "write `root = \"ruled\"` in [daemon], or remove the rule",
                ),
            );
            continue;
        }
        if rule.plugin.is_none() {
            any_plugin(rule, at, plugins, &unbounded, findings);
        }
        let Some(plugin) = rule.plugin.and_then(|index| plugins.get(index)) else { continue };
        let (name, key) = (&plugin.setup.name, rule.bound.key());
        let by_priority = matches!(plugin.setup.kind, PluginKind::Fp(_) | PluginKind::Rr(_));
        let by_time = matches!(plugin.setup.kind, PluginKind::Edf(_) | PluginKind::Rm(_));
        let on_priority = matches!(rule.bound, Bound::MinPriority(_) | Bound::MaxPriority(_));
        let flag = matches!(rule.bound, Bound::IgnoreAdmission(_) | Bound::AllowUnbounded(_));
        let lifted = || lifted(rule.domain, rule.plugin, &unbounded);
        let kind = plugin.setup.kind.name();
        if by_time && on_priority {
            let (low, high) = priorities(plugin);
            let text = if !excludes(&rule.bound, plugin) {
                words(
                    format!("`{key}` bounds nothing on `{name}`"),
                    format!(
                        "plugins of kind \"{kind}\" hand out priorities of their own, and those of `{name}` are within the bound"
                    ),
                    "bound the period or the utilisation instead",
                )
            } else if lifted() {
                continue;
            } else {
                let own = if low == high { format!("{low}") } else { format!("{low}-{high}") };
                words(
                    format!("`{key}` on `{name}` refuses every request"),
                    format!(
                        "plugins of kind \"{kind}\" hand out priorities of their own, here {own}, which the bound excludes (100 is the deadline class)"
                    ),
                    "move the bound, or bound the period or the utilisation instead",
                )
            };
            findings.warning(at, text);
        } else if by_priority && matches!(rule.bound, Bound::IgnoreAdmission(_)) {
            findings.warning(
                at,
                words(
                    format!("`{key}` says nothing on `{name}`"),
                    format!("plugins of kind \"{kind}\" have no admission test to ignore"),
                    "remove the line",
                ),
            );
        } else if by_priority && !on_priority && !flag && !lifted() {
            findings.warning(
                at,
                words(
                    format!("`{key}` on `{name}` refuses every request that does not declare it"),
                    format!(
                        "plugins of kind \"{kind}\" serve by priority alone; what is bounded must be declared"
                    ),
                    "add `allow_unbounded = true`, or bound `max_priority` instead",
                ),
            );
        }
    }
}
