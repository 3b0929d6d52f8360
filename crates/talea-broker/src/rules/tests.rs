//! Every property from both sides, then random histories against a reference model.

use super::*;
use talea_core::rng::Rng;
use talea_core::setup::{
    Band, Confine, EdfOptions, ForeignClass, ForeignOptions, FpOptions, OnOverrun, PluginSetup,
    RmOptions, Rule,
};
use talea_core::{CpuSet, Params};

const MS: u64 = 1_000_000;

/// Returns `edf`, `rm` on 60-89, `fp` on 20-59, `rr` on 10-19, and a foreign plugin on 1-9.
fn plugins() -> Vec<PluginSetup> {
    let band = |low, high| Some(Band { low: Priority(low), high: Priority(high) });
    let foreign = ForeignOptions {
        module: "/lib/example.so".to_owned(),
        argument: String::new(),
        timeout: Span::from_ns(MS),
        class: ForeignClass::Fifo,
        confine: Confine::default(),
    };
    let plugin = |name: &str, band, kind| PluginSetup {
        name: name.to_owned(),
        cpus: CpuSet::first(2),
        band,
        kind,
        on_overrun: OnOverrun::Throttle,
    };
    vec![
        plugin("edf", None, PluginKind::Edf(EdfOptions::default())),
        plugin("rm", band(60, 89), PluginKind::Rm(RmOptions::default())),
        plugin("fp", band(20, 59), PluginKind::Fp(FpOptions::default())),
        plugin("rr", band(10, 19), PluginKind::Rr(FpOptions::default())),
        plugin("own", band(1, 9), PluginKind::Foreign(foreign)),
    ]
}

fn rule(domain: Domain, plugin: Option<usize>, bound: Bound) -> Rule {
    Rule { domain, plugin, bound, origin: format!("{domain:?} {}", bound.key()) }
}

fn setup(rules: &[(Domain, Option<usize>, Bound)]) -> Setup {
    let rules = rules.iter().map(|&(domain, plugin, bound)| rule(domain, plugin, bound)).collect();
    Setup { plugins: plugins(), rules, ..Setup::default() }
}

fn peer(uid: u32, gid: u32, groups: &[u32]) -> Peer {
    Peer { pid: 1, pid_start: 1, uid, gid, groups: groups.to_vec() }
}

fn task(params: Params) -> Task {
    Task { params, ..Task::default() }
}

fn full() -> Params {
    Params {
        period: Some(Span::from_ns(10 * MS)),
        runtime: Some(Work::from_ns(2 * MS)),
        desired: None,
        deadline: Some(Span::from_ns(8 * MS)),
        priority: Some(Priority(50)),
    }
}

/// Applies the rules for user 7 to `task` on `plugin`.
fn said(
    rules: &[(Domain, Option<usize>, Bound)],
    plugin: u32,
    task: &Task,
) -> Result<RuntimeCap, Denial> {
    let rules = Rules::compile(&setup(rules));
    rules.admit(&rules.snapshot(&peer(7, 70, &[71, 72])), plugin, task, None)
}

const ALL_USERS: Domain = Domain::Global;
const USER: Domain = Domain::User(7);

#[test]
fn r20_without_a_rule_there_is_no_service() {
    let rules = Rules::compile(&setup(&[]));
    let user = rules.snapshot(&peer(7, 70, &[]));
    assert!(!rules.allows_anything(&user));
    for plugin in 0..5 {
        let denial = rules.admit(&user, plugin, &task(full()), None).unwrap_err();
        assert_eq!(
            (denial.code, denial.field, denial.rule),
            (Code::NotAllowed, Field::Request, None)
        );
    }
    // Rules for other users do not apply to this user.
    let others = [
        (Domain::User(8), None, Bound::MaxPriority(Priority(99))),
        (Domain::Group(73), None, Bound::MaxPriority(Priority(99))),
    ];
    assert_eq!(said(&others, 2, &task(full())).unwrap_err().code, Code::NotAllowed);
}

#[test]
fn r20_rules_are_off_only_if_configured_and_root_is_exempt_unless_configured() {
    let strict = [(ALL_USERS, None, Bound::MaxRuntime(Work::from_ns(1)))];
    for (access, root, uid, free) in [
        (Access::Rules, Root::Unrestricted, 7, false),
        (Access::Rules, Root::Unrestricted, 0, true),
        (Access::Rules, Root::Ruled, 0, false),
        (Access::Off, Root::Ruled, 7, true),
        (Access::Off, Root::Unrestricted, 0, true),
    ] {
        let rules = Rules::compile(&Setup { access, root, ..setup(&strict) });
        let client = rules.snapshot(&peer(uid, 0, &[]));
        let task = Task { ignore_admission: true, ..task(full()) };
        for plugin in 0..5 {
            assert_eq!(
                rules.admit(&client, plugin, &task, None).is_ok(),
                free,
                "{access:?} {root:?} {uid}"
            );
        }
        assert!(rules.allows_anything(&client));
        let none = Rules::compile(&Setup { access, root, ..setup(&[]) });
        assert_eq!(none.allows_anything(&none.snapshot(&peer(uid, 0, &[]))), free);
    }
    assert_eq!(Setup::default().access, Access::Rules);
}

#[test]
fn r21_each_property_bounds_from_its_side_and_the_bound_itself_passes() {
    let with = |change: &dyn Fn(&mut Params)| {
        let mut params = full();
        change(&mut params);
        task(params)
    };
    let period = |ns: u64| with(&|p: &mut Params| p.period = Some(Span::from_ns(ns)));
    let deadline = |ns: u64| with(&|p: &mut Params| p.deadline = Some(Span::from_ns(ns)));
    let runtime = |ns: u64| with(&|p: &mut Params| p.runtime = Some(Work::from_ns(ns)));
    let priority = |value: u8| with(&|p: &mut Params| p.priority = Some(Priority(value)));
    let cases = [
        (
            Bound::MaxRuntime(Work::from_ns(MS)),
            Field::Runtime,
            runtime(MS),
            runtime(MS + 1),
            MS + 1,
            MS,
        ),
        (
            Bound::MinPeriod(Span::from_ns(MS)),
            Field::Period,
            period(MS),
            period(MS - 1),
            MS - 1,
            MS,
        ),
        (
            Bound::MaxPeriod(Span::from_ns(MS)),
            Field::Period,
            period(MS),
            period(MS + 1),
            MS + 1,
            MS,
        ),
        (
            Bound::MinDeadline(Span::from_ns(MS)),
            Field::Deadline,
            deadline(MS),
            deadline(MS - 1),
            MS - 1,
            MS,
        ),
        (
            Bound::MaxDeadline(Span::from_ns(MS)),
            Field::Deadline,
            deadline(MS),
            deadline(MS + 1),
            MS + 1,
            MS,
        ),
        (Bound::MinPriority(Priority(30)), Field::Priority, priority(30), priority(29), 29, 30),
        (Bound::MaxPriority(Priority(30)), Field::Priority, priority(30), priority(31), 31, 30),
        // 2 ms within a deadline of 8 ms, and a nanosecond more.
        (
            Bound::MaxUtilization(Charge::ratio(1, 4)),
            Field::Utilization,
            runtime(2 * MS),
            runtime(2 * MS + 1),
            250_001,
            250_000,
        ),
    ];
    for (bound, field, passes, fails, asked, limit) in cases {
        for plugin in [None, Some(2)] {
            let rules = [(USER, plugin, bound)];
            assert!(said(&rules, 2, &passes).is_ok(), "{bound:?}");
            let denial = said(&rules, 2, &fails).unwrap_err();
            let expected =
                Denial { code: Code::RuleBound, field, asked, limit, rule: Some(RuleId(0)) };
            assert_eq!(denial, expected, "{bound:?}");
        }
    }
    // An undeclared deadline is the period.
    let implicit = with(&|p: &mut Params| p.deadline = None);
    assert!(
        said(&[(USER, None, Bound::MaxDeadline(Span::from_ns(10 * MS)))], 2, &implicit).is_ok()
    );
    assert!(
        said(&[(USER, None, Bound::MaxDeadline(Span::from_ns(10 * MS - 1)))], 2, &implicit)
            .is_err()
    );
}

#[test]
fn r21_ignoring_admission_needs_a_rule_that_allows_it_and_none_that_forbids_it() {
    let ignoring = Task { ignore_admission: true, ..task(full()) };
    let consent = (USER, None, Bound::MaxPriority(Priority(100)));
    let rule = |domain, allowed| (domain, None, Bound::IgnoreAdmission(allowed));
    let denial = said(&[consent], 2, &ignoring).unwrap_err();
    assert_eq!(
        (denial.code, denial.field, denial.rule),
        (Code::NotAllowed, Field::IgnoreAdmission, None)
    );
    assert!(said(&[consent, rule(USER, true)], 2, &ignoring).is_ok());
    assert!(said(&[rule(USER, true), rule(ALL_USERS, true)], 2, &ignoring).is_ok());
    let denial = said(&[rule(USER, true), rule(ALL_USERS, false)], 2, &ignoring).unwrap_err();
    assert_eq!(
        (denial.code, denial.field, denial.rule),
        (Code::RuleBound, Field::IgnoreAdmission, Some(RuleId(1)))
    );
    assert!(
        said(&[rule(USER, false)], 2, &task(full())).is_ok(),
        "a request without the flag needs no rule"
    );
    let elsewhere = (USER, Some(1), Bound::IgnoreAdmission(true));
    assert!(said(&[consent, elsewhere], 2, &ignoring).is_err(), "a rule on another plugin");
}

#[test]
fn r22_bounded_properties_must_be_declared() {
    let without = |change: &dyn Fn(&mut Params)| {
        let mut params = full();
        change(&mut params);
        task(params)
    };
    let no_runtime = without(&|p: &mut Params| p.runtime = None);
    let no_period = without(&|p: &mut Params| p.period = None);
    let neither = without(&|p: &mut Params| (p.period, p.deadline) = (None, None));
    let no_priority = without(&|p: &mut Params| p.priority = None);
    let cases = [
        (Bound::MaxRuntime(Work::from_ns(9 * MS)), Field::Runtime, &no_runtime, 9 * MS),
        (Bound::MaxUtilization(Charge::ONE), Field::Utilization, &no_runtime, 1_000_000),
        (Bound::MaxUtilization(Charge::ONE), Field::Utilization, &neither, 1_000_000),
        (Bound::MinPeriod(Span::from_ns(MS)), Field::Period, &no_period, MS),
        (Bound::MaxPeriod(Span::from_ns(99 * MS)), Field::Period, &no_period, 99 * MS),
        (Bound::MinDeadline(Span::from_ns(MS)), Field::Deadline, &neither, MS),
        (Bound::MaxDeadline(Span::from_ns(99 * MS)), Field::Deadline, &neither, 99 * MS),
        (Bound::MinPriority(Priority(1)), Field::Priority, &no_priority, 1),
        (Bound::MaxPriority(Priority(60)), Field::Priority, &no_priority, 60),
    ];
    for (bound, field, task, limit) in cases {
        // A user with a limited runtime or utilization cannot use FP, RR or RM with only T; and so
        // on.
        for plugin in [2, 3] {
            let denial = said(&[(USER, None, bound)], plugin, task).unwrap_err();
            let expected =
                Denial { code: Code::RuleOmission, field, asked: 0, limit, rule: Some(RuleId(0)) };
            assert_eq!(denial, expected, "{bound:?}");
            let lift = |allowed| (ALL_USERS, None, Bound::AllowUnbounded(allowed));
            assert!(said(&[(USER, None, bound), lift(true)], plugin, task).is_ok());
            assert!(said(&[(USER, None, bound), lift(true), lift(false)], plugin, task).is_err());
            let elsewhere = (USER, Some(0), Bound::AllowUnbounded(true));
            assert!(said(&[(USER, None, bound), elsewhere], plugin, task).is_err());
        }
    }
    assert!(
        said(&[(USER, None, Bound::MaxRuntime(Work::from_ns(9 * MS)))], 1, &no_runtime).is_err(),
        "T-only RM"
    );
    assert!(
        said(&[(USER, None, Bound::MaxDeadline(Span::from_ns(9 * MS)))], 1, &no_period).is_ok(),
        "D is declared"
    );
    // A declared value is checked even if it may be omitted.
    let rules = [
        (USER, None, Bound::AllowUnbounded(true)),
        (USER, None, Bound::MaxRuntime(Work::from_ns(MS))),
    ];
    assert_eq!(said(&rules, 2, &task(full())).unwrap_err().code, Code::RuleBound);
}

#[test]
fn r22_priorities_assigned_by_a_plugin_must_be_within_the_bounds() {
    let max = |limit| (USER, None, Bound::MaxPriority(Priority(limit)));
    let min = |limit| (USER, None, Bound::MinPriority(Priority(limit)));
    // A low declared priority does not help: edf and rm ignore it.
    let low = task(Params { priority: Some(Priority(5)), ..full() });
    let none = task(Params { priority: None, ..full() });
    for task in [&low, &none] {
        let denial = said(&[max(99)], 0, task).unwrap_err();
        assert_eq!(
            (denial.code, denial.field, denial.asked, denial.limit),
            (Code::RuleOmission, Field::Priority, 100, 99)
        );
        assert!(said(&[max(100)], 0, task).is_ok(), "ReTiF's files call the deadline class 100");
        assert_eq!(said(&[max(88)], 1, task).unwrap_err().asked, 89);
        assert!(said(&[max(89)], 1, task).is_ok());
        assert!(said(&[max(88), (USER, Some(1), Bound::AllowUnbounded(true))], 1, task).is_ok());
    }
    assert_eq!(said(&[min(61)], 1, &none).unwrap_err().asked, 60);
    assert!(said(&[min(60)], 1, &none).is_ok() && said(&[min(60)], 0, &none).is_ok());
    assert_eq!(
        said(&[min(6)], 1, &low).unwrap_err().code,
        Code::RuleBound,
        "a declared priority is checked"
    );
    // A foreign plugin may use the request's priority; without one its own must be within the
    // bounds.
    assert!(said(&[max(5)], 4, &low).is_ok() && said(&[max(9)], 4, &none).is_ok());
    assert_eq!(said(&[max(8)], 4, &none).unwrap_err().asked, 9);
}

#[test]
fn r23_domains_are_all_users_one_user_and_groups() {
    let consent = |domain| [(domain, None, Bound::MaxPriority(Priority(100)))];
    for (domain, all, effective) in [
        (ALL_USERS, true, true),
        (Domain::User(7), true, true),
        (Domain::User(70), false, false),
        (Domain::Group(70), true, true),
        (Domain::Group(71), true, false),
        (Domain::Group(7), false, false),
    ] {
        for (groups, expected) in [(Groups::All, all), (Groups::Effective, effective)] {
            let rules = Rules::compile(&Setup { groups, ..setup(&consent(domain)) });
            let client = rules.snapshot(&peer(7, 70, &[71, 72]));
            assert_eq!(rules.allows_anything(&client), expected, "{domain:?} {groups:?}");
        }
    }
    assert_eq!(Setup::default().groups, Groups::All);
}

#[test]
fn r23_a_rule_on_one_plugin_neither_allows_nor_bounds_another() {
    let rules = [(USER, Some(0), Bound::MaxRuntime(Work::from_ns(3 * MS)))];
    assert!(said(&rules, 0, &task(full())).is_ok());
    for plugin in 1..5 {
        assert_eq!(said(&rules, plugin, &task(full())).unwrap_err().code, Code::NotAllowed);
    }
    let both = [rules[0], (USER, Some(2), Bound::MaxRuntime(Work::from_ns(MS)))];
    assert!(said(&both, 0, &task(full())).is_ok() && said(&both, 2, &task(full())).is_err());
}

#[test]
fn r23_the_paper_s_example_of_intersection() {
    // u1 at most 0.5 in total; all users at most 0.3 on p1: u1 on p1 at most 0.3. J section 4.3.
    let mut rules = Rules::compile(&setup(&[
        (USER, None, Bound::MaxUtilization(Charge::ratio(5, 10))),
        (ALL_USERS, Some(1), Bound::MaxUtilization(Charge::ratio(3, 10))),
    ]));
    let client = rules.snapshot(&peer(7, 70, &[]));
    let tenth = task(Params { runtime: Some(Work::from_ns(MS)), deadline: None, ..full() });
    let charge = Charge::ratio(1, 10);
    let mut granted = [0, 0];
    for (i, plugin) in [(0, 1), (1, 0)] {
        while granted[i] < 10 && rules.admit(&client, plugin, &tenth, None).is_ok() {
            rules.charge(&client, plugin, charge);
            granted[i] += 1;
        }
    }
    assert_eq!(granted, [3, 2], "0.3 on p1, and 0.5 in total");
    let denial = rules.admit(&client, 1, &tenth, None).unwrap_err();
    assert_eq!((denial.asked, denial.limit), (600_000, 500_000));
}

#[test]
fn r24_the_bound_itself_passes_despite_rounding_and_the_cap_is_the_rest() {
    let bound = (USER, None, Bound::MaxUtilization(Charge::ONE));
    let mut rules =
        Rules::compile(&setup(&[bound, (USER, None, Bound::MaxRuntime(Work::from_ns(5 * MS)))]));
    let client = rules.snapshot(&peer(7, 70, &[]));
    let third = task(Params {
        period: Some(Span::from_ns(3 * MS)),
        runtime: Some(Work::from_ns(MS)),
        ..Params::default()
    });
    for left in [3, 2, 1] {
        let cap = rules.admit(&client, 0, &third, None).unwrap();
        assert_eq!(cap.runtime, Some(Work::from_ns(5 * MS)));
        assert_eq!(
            cap.charge.unwrap().of(Span::from_ns(3 * MS)),
            Work::from_ns(left * MS),
            "to the nanosecond"
        );
        rules.charge(&client, 0, Charge::ratio(1, 3));
    }
    let tiny = task(Params { runtime: Some(Work::from_ns(1)), ..third.params });
    assert!(rules.admit(&client, 0, &tiny, None).is_err());
    // The replaced spec counts as released, on its plugin.
    let leaving = Some((0, Charge::ratio(1, 3)));
    assert!(rules.admit(&client, 2, &third, leaving).is_ok());
    assert!(rules.admit(&client, 2, &tiny, Some((0, Charge::ZERO))).is_err());
    // A subject that does not count it is not reduced.
    let bound = (USER, Some(1), Bound::MaxUtilization(Charge::ratio(1, 2)));
    let mut rules =
        Rules::compile(&setup(&[bound, (USER, None, Bound::MaxPriority(Priority(100)))]));
    let client = rules.snapshot(&peer(7, 70, &[]));
    rules.charge(&client, 1, Charge::ratio(1, 2));
    rules.charge(&client, 0, Charge::ratio(1, 2));
    assert!(rules.admit(&client, 1, &third, Some((0, Charge::ratio(1, 2)))).is_err());
    assert!(rules.admit(&client, 1, &third, Some((1, Charge::ratio(1, 2)))).is_ok());
}

/// Reference model of the rules: no compilation, no running sums.
struct Plain {
    setup: Setup,
    /// Charges of each client on each plugin.
    specs: Vec<(Peer, u32, Charge)>,
}

impl Plain {
    fn matches(&self, domain: Domain, peer: &Peer) -> bool {
        match domain {
            Domain::Global => true,
            Domain::User(uid) => peer.uid == uid,
            Domain::Group(gid) => {
                peer.gid == gid || (self.setup.groups == Groups::All && peer.groups.contains(&gid))
            }
        }
    }

    fn admits(
        &self,
        peer: &Peer,
        plugin: u32,
        task: &Task,
        leaving: Option<usize>,
    ) -> Result<(), Code> {
        if self.setup.access == Access::Off
            || (peer.uid == 0 && self.setup.root == Root::Unrestricted)
        {
            return Ok(());
        }
        let matching: Vec<&Rule> = (self.setup.rules.iter())
            .filter(|r| self.matches(r.domain, peer) && r.plugin.is_none_or(|p| p as u32 == plugin))
            .collect();
        if matching.is_empty() {
            return Err(Code::NotAllowed);
        }
        let flags = |pick: fn(&Bound) -> Option<bool>| {
            let all: Vec<bool> = matching.iter().filter_map(|r| pick(&r.bound)).collect();
            (!all.is_empty()).then(|| all.iter().all(|&yes| yes))
        };
        let unbounded =
            flags(|b| if let Bound::AllowUnbounded(yes) = b { Some(*yes) } else { None });
        let ignore = flags(|b| if let Bound::IgnoreAdmission(yes) = b { Some(*yes) } else { None });
        match ignore {
            None if task.ignore_admission => return Err(Code::NotAllowed),
            Some(false) if task.ignore_admission => return Err(Code::RuleBound),
            _ => {}
        }
        let p = &task.params;
        let (mut over, mut omitted) = (false, false);
        let mut check = |value: Option<u64>, within: &dyn Fn(u64) -> bool| match value {
            None => omitted = true,
            Some(value) => over |= !within(value),
        };
        let deadline = p.deadline.or(p.period).map(Span::as_ns);
        let mut own_priorities: Vec<u64> = vec![];
        let declared = p.priority.map(|p| u64::from(p.0));
        let (takes_declared, band) = match (
            &self.setup.plugins[plugin as usize].kind,
            self.setup.plugins[plugin as usize].band,
        ) {
            (PluginKind::Edf(_), _) => (false, vec![100]),
            (PluginKind::Rm(_), Some(b)) => (false, vec![b.low.0.into(), b.high.0.into()]),
            (PluginKind::Foreign(_), Some(b)) if declared.is_none() => {
                (false, vec![b.low.0.into(), b.high.0.into()])
            }
            _ => (true, vec![]),
        };
        if !takes_declared {
            own_priorities = band;
        }
        let mut escapes = false;
        for rule in &matching {
            match rule.bound {
                Bound::MaxRuntime(max) => check(p.runtime.map(Work::as_ns), &|v| v <= max.as_ns()),
                Bound::MinPeriod(min) => check(p.period.map(Span::as_ns), &|v| v >= min.as_ns()),
                Bound::MaxPeriod(max) => check(p.period.map(Span::as_ns), &|v| v <= max.as_ns()),
                Bound::MinDeadline(min) => check(deadline, &|v| v >= min.as_ns()),
                Bound::MaxDeadline(max) => check(deadline, &|v| v <= max.as_ns()),
                Bound::MinPriority(Priority(min)) => {
                    if takes_declared || declared.is_some() {
                        check(declared, &|v| v >= min.into());
                    }
                    escapes |= own_priorities.iter().any(|&own| own < min.into());
                }
                Bound::MaxPriority(Priority(max)) => {
                    if takes_declared || declared.is_some() {
                        check(declared, &|v| v <= max.into());
                    }
                    escapes |= own_priorities.iter().any(|&own| own > max.into());
                }
                Bound::MaxUtilization(max) => {
                    let charge = p.runtime.and_then(|q| p.charge_of(q));
                    if charge.is_none() && unbounded != Some(true) {
                        check(None, &|_| true);
                        continue;
                    }
                    let counted = self.specs.iter().enumerate().filter(|(i, (who, what, _))| {
                        Some(*i) != leaving
                            && self.matches(rule.domain, who)
                            && rule.plugin.is_none_or(|p| p as u32 == *what)
                    });
                    let charge = charge.unwrap_or(Charge::ratio(1, 1_000));
                    let held = counted.fold(charge, |sum, (_, (_, _, c))| sum.saturating_add(*c));
                    let fits = held <= max.saturating_add(Charge::from_bits(1 << 20));
                    check(Some(0), &|_| fits);
                }
                Bound::IgnoreAdmission(_)
                | Bound::AllowUnbounded(_)
                | Bound::OnOverrun(_)
                | Bound::MinNice(_) => {}
            }
        }
        if over {
            Err(Code::RuleBound)
        } else if (omitted || escapes) && unbounded != Some(true) {
            Err(Code::RuleOmission)
        } else {
            Ok(())
        }
    }
}

fn random_setup(rng: &mut Rng) -> Setup {
    let domains = [
        ALL_USERS,
        ALL_USERS,
        Domain::User(7),
        Domain::User(8),
        Domain::Group(70),
        Domain::Group(71),
    ];
    let rules: Vec<_> = (0..rng.below(9))
        .map(|_| {
            let span = |rng: &mut Rng| Span::from_ns((1 + rng.below(12)) * MS);
            let bound = match rng.below(11) {
                0 | 1 => Bound::MaxUtilization(Charge::ratio(1 + rng.below(10), 10)),
                2 => Bound::MaxRuntime(Work::from_ns((1 + rng.below(4)) * MS)),
                3 => Bound::MinPeriod(span(rng)),
                4 => Bound::MaxPeriod(span(rng)),
                5 => Bound::MinDeadline(span(rng)),
                6 => Bound::MaxDeadline(span(rng)),
                7 => Bound::MinPriority(Priority(1 + rng.below(70) as u8)),
                8 => Bound::MaxPriority(Priority(30 + rng.below(71) as u8)),
                9 => Bound::IgnoreAdmission(rng.chance(70)),
                _ => Bound::AllowUnbounded(rng.chance(70)),
            };
            let plugin = rng.chance(40).then(|| rng.below(5) as usize);
            (*rng.pick(&domains), plugin, bound)
        })
        .collect();
    let root = if rng.chance(50) { Root::Ruled } else { Root::Unrestricted };
    let groups = if rng.chance(50) { Groups::All } else { Groups::Effective };
    let access = if rng.chance(3) { Access::Off } else { Access::Rules };
    Setup { root, groups, access, ..setup(&rules) }
}

fn random_task(rng: &mut Rng) -> Task {
    let span = |rng: &mut Rng| rng.chance(75).then(|| Span::from_ns((1 + rng.below(12)) * MS));
    let params = Params {
        period: span(rng),
        runtime: rng.chance(80).then(|| Work::from_ns((1 + rng.below(4)) * MS)),
        desired: None,
        deadline: span(rng).filter(|_| rng.chance(60)),
        priority: rng.chance(60).then(|| Priority(1 + rng.below(99) as u8)),
    };
    Task { ignore_admission: rng.chance(20), ..task(params) }
}

#[test]
fn r23_r24_random_histories_equal_the_reference_model_and_end_at_zero() {
    let mut rng = Rng::new(24);
    let peers = [
        peer(0, 0, &[]),
        peer(7, 70, &[71]),
        peer(7, 7, &[]),
        peer(8, 71, &[70]),
        peer(9, 9, &[71]),
    ];
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..700 {
        let setup = random_setup(&mut rng);
        let mut rules = Rules::compile(&setup);
        let clients: Vec<Snapshot> = peers.iter().map(|peer| rules.snapshot(peer)).collect();
        let mut plain = Plain { setup, specs: vec![] };
        // Index of the client, plugin, charge: parallel to the reference model's list.
        let mut held: Vec<(usize, u32, Charge)> = vec![];
        for _ in 0..60 {
            if rng.chance(25) && !held.is_empty() {
                let gone = rng.below(held.len() as u64) as usize;
                let (client, plugin, charge) = held.swap_remove(gone);
                plain.specs.swap_remove(gone);
                rules.discharge(&clients[client], plugin, charge);
                continue;
            }
            let (client, plugin, task) =
                (rng.below(5) as usize, rng.below(5) as u32, random_task(&mut rng));
            let changes = held.iter().position(|&(c, ..)| c == client).filter(|_| rng.chance(40));
            let leaving = changes.map(|i| (held[i].1, held[i].2));
            let verdict = rules.admit(&clients[client], plugin, &task, leaving);
            let code = verdict.as_ref().err().map(|denial| denial.code);
            let expected = plain.admits(&peers[client], plugin, &task, changes);
            // If several bounds are exceeded, any of them may be reported.
            assert_eq!(verdict.is_ok(), expected.is_ok(), "{task:?} {:?}", plain.setup.rules);
            if code == Some(Code::NotAllowed) || expected == Err(Code::NotAllowed) {
                assert_eq!(code, expected.err());
            }
            *seen.entry(code.map(|code| code as u16)).or_insert(0) += 1;
            let Ok(cap) = verdict else { continue };
            let charge =
                task.params.runtime.and_then(|q| task.params.charge_of(q)).unwrap_or(Charge::ZERO);
            if let (Some(most), Some(span)) = (cap.charge, task.params.density_span()) {
                // The maximum within the cap is allowed; a nanosecond more is not.
                let most = most.of(span);
                let with =
                    |q: Work| Task { params: Params { runtime: Some(q), ..task.params }, ..task };
                let within_runtime = cap.runtime.is_none_or(|max| most < max);
                if within_runtime {
                    assert!(rules.admit(&clients[client], plugin, &with(most), leaving).is_ok());
                    assert!(
                        rules
                            .admit(
                                &clients[client],
                                plugin,
                                &with(most + Work::from_ns(1)),
                                leaving
                            )
                            .is_err()
                    );
                }
            }
            if let Some(i) = changes {
                let (_, old, old_charge) = held.swap_remove(i);
                plain.specs.swap_remove(i);
                rules.discharge(&clients[client], old, old_charge);
            }
            rules.charge(&clients[client], plugin, charge);
            held.push((client, plugin, charge));
            plain.specs.push((peers[client].clone(), plugin, charge));
        }
        for (subject, total) in rules.subjects.iter().zip(&rules.usage) {
            let counted = plain.specs.iter().filter(|(who, what, _)| {
                plain.matches(subject.0, who) && subject.1.is_none_or(|plugin| plugin == *what)
            });
            let sum = counted
                .clone()
                .fold(Charge::ZERO, |sum, (_, _, charge)| sum.saturating_add(*charge));
            assert_eq!((total.charge, total.specs), (sum, counted.count() as u32), "{subject:?}");
        }
        for (client, plugin, charge) in held {
            rules.discharge(&clients[client], plugin, charge);
        }
        assert!(rules.usage.iter().all(|held| held.charge == Charge::ZERO && held.specs == 0));
    }
    assert!(seen.len() == 4 && seen.values().all(|&count| count > 500), "{seen:?}");
}
