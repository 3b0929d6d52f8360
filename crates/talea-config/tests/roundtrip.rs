//! Round trips through text: whole setups, and every utilisation.

mod common;

use common::{names, target};
use proptest::prelude::*;
use talea_config::decimal::{parse_charge, write_charge};
use talea_config::write::write;
use talea_config::{self as config, DaemonSetup, Loaded, LogLevel};
use talea_core::setup::{
    Access, Band, Bound, Confine, Domain, EdfOptions, ForeignClass, ForeignOptions, FpLevels,
    FpOptions, Groups, OnOverrun, PluginKind, PluginSetup, Quota, RmOptions, RmTest, Root, Rule,
    Setup,
};
use talea_core::{Charge, CpuSet, Priority, Span, Work};

const CPUS: u32 = 64;

/// Upper limit of generated minima and lower limit of generated maxima, so that no two contradict.
const MIDDLE: u64 = 5_000_000;

fn charge(most: u128) -> impl Strategy<Value = Charge> {
    prop_oneof![
        (1..=most).prop_map(Charge::from_bits),
        (1_u64..=1_000).prop_map(|n| Charge::ratio(n, 1_000)),
        Just(Charge::ONE),
        Just(Charge::from_bits(1)),
    ]
}

/// Generates any text that TOML can hold, with quotes and control characters.
fn anything() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![any::<char>(), prop::sample::select(vec!['"', '\\', '\n', '\'', '#'])],
        0..20,
    )
    .prop_map(|letters| letters.into_iter().filter(|&c| c != '\0').collect())
}

/// Generates an absolute path of printable characters.
fn path() -> impl Strategy<Value = String> {
    anything().prop_map(|text| format!("/{}.", text.replace(char::is_control, "?")))
}

fn kind() -> impl Strategy<Value = PluginKind> {
    let confine = prop::sample::select(vec![Confine::Auto, Confine::Partition, Confine::Global]);
    let test =
        prop::sample::select(vec![RmTest::Necessary, RmTest::LiuLayland, RmTest::Hyperbolic]);
    let class = prop::sample::select(vec![
        (ForeignClass::Fifo, Confine::Auto),
        (ForeignClass::Rr, Confine::Auto),
        (ForeignClass::Deadline, Confine::Auto),
        (ForeignClass::Deadline, Confine::Partition),
        (ForeignClass::Deadline, Confine::Global),
    ]);
    let foreign = (path(), anything(), 1_000_000_u64..=10_000_000_000, class).prop_map(
        |(module, argument, timeout, (class, confine))| ForeignOptions {
            module,
            argument,
            timeout: Span::from_ns(timeout),
            class,
            confine,
        },
    );
    let levels = prop::sample::select(vec![FpLevels::Each, FpLevels::Common]);
    let fixed = (any::<bool>(), levels)
        .prop_map(|(refuse_sharing, levels)| FpOptions { refuse_sharing, levels });
    prop_oneof![
        (proptest::option::of(charge(1 << 64)), confine)
            .prop_map(|(threshold, confine)| PluginKind::Edf(EdfOptions { threshold, confine })),
        (test, any::<bool>())
            .prop_map(|(test, refuse_sharing)| PluginKind::Rm(RmOptions { test, refuse_sharing })),
        fixed.clone().prop_map(PluginKind::Fp),
        fixed.prop_map(PluginKind::Rr),
        foreign.prop_map(PluginKind::Foreign),
    ]
}

fn plugin() -> impl Strategy<Value = PluginSetup> {
    let cpus = proptest::collection::vec(0..CPUS, 1..6)
        .prop_map(|cpus| cpus.into_iter().collect::<CpuSet>());
    (cpus, (1_u8..=99, 1_u8..=99), kind()).prop_map(|(cpus, (a, b), kind)| PluginSetup {
        name: String::new(),
        cpus,
        band: (!kind.is_deadline())
            .then_some(Band { low: Priority(a.min(b)), high: Priority(a.max(b)) }),
        // Not written for the deadline class, so only the default is read back.
        on_overrun: match &kind {
            kind if kind.is_deadline() => OnOverrun::default(),
            _ => OnOverrun::ALL[usize::from(a) % 3],
        },
        kind,
    })
}

fn bound() -> impl Strategy<Value = Bound> {
    let low = || (1..=MIDDLE).prop_map(Span::from_ns);
    let high = || (MIDDLE..=u64::MAX).prop_map(Span::from_ns);
    prop_oneof![
        charge(1024 << 64).prop_map(Bound::MaxUtilization),
        (1..=u64::MAX).prop_map(|ns| Bound::MaxRuntime(Work::from_ns(ns))),
        low().prop_map(Bound::MinPeriod),
        high().prop_map(Bound::MaxPeriod),
        low().prop_map(Bound::MinDeadline),
        high().prop_map(Bound::MaxDeadline),
        (1_u8..=50).prop_map(|p| Bound::MinPriority(Priority(p))),
        (50_u8..=99).prop_map(|p| Bound::MaxPriority(Priority(p))),
        any::<bool>().prop_map(Bound::IgnoreAdmission),
        (0..3_usize).prop_map(|index| Bound::OnOverrun(OnOverrun::ALL[index])),
        any::<bool>().prop_map(Bound::AllowUnbounded),
        (-20_i8..=19).prop_map(Bound::MinNice),
    ]
}

fn rule(plugins: usize) -> impl Strategy<Value = Rule> {
    let domain = prop_oneof![
        Just(Domain::Global),
        (0..u32::MAX).prop_map(Domain::User),
        (0_u32..3).prop_map(Domain::User),
        (0..u32::MAX).prop_map(Domain::Group),
    ];
    (domain, proptest::option::of(0..plugins), bound()).prop_map(|(domain, plugin, bound)| Rule {
        domain,
        plugin,
        bound,
        origin: String::new(),
    })
}

fn quota() -> impl Strategy<Value = Quota> {
    (
        1_u32..=65_536,
        1_u32..=65_536,
        1_u32..=65_536,
        1_u32..=1_048_576,
        1_u32..=1_048_576,
        1_u32..=99,
        1_u32..=1_000_000,
        1_u32..=1_000_000,
    )
        .prop_map(
            |(
                sessions_per_user,
                sessions,
                sessions_without_rule,
                specs_per_user,
                specs,
                levels_per_user,
                requests_per_second,
                burst,
            )| {
                Quota {
                    sessions_per_user,
                    sessions,
                    sessions_without_rule,
                    specs_per_user,
                    specs,
                    levels_per_user,
                    requests_per_second,
                    burst,
                }
            },
        )
}

fn setup() -> impl Strategy<Value = Setup> {
    let plugins = proptest::collection::vec(plugin(), 1..6).prop_map(|mut plugins| {
        for (n, plugin) in plugins.iter_mut().enumerate() {
            plugin.name = format!("{}\"{n}\\é", plugin.kind.name());
        }
        plugins
    });
    plugins.prop_flat_map(|plugins| {
        let rules = proptest::collection::vec(rule(plugins.len()), 0..12);
        let words = (any::<bool>(), any::<bool>(), any::<bool>());
        let front_ends = proptest::collection::btree_set(0..u32::MAX, 0..4);
        (Just(plugins), rules, words, quota(), front_ends).prop_map(
            |(plugins, rules, (off, ruled, effective), quota, front_ends)| Setup {
                plugins,
                rules,
                access: if off { Access::Off } else { Access::Rules },
                root: if ruled { Root::Ruled } else { Root::Unrestricted },
                groups: if effective { Groups::Effective } else { Groups::All },
                quota,
                front_ends: front_ends.into_iter().collect(),
                subordinate_users: Vec::new(),
            },
        )
    })
}

fn daemon() -> impl Strategy<Value = DaemonSetup> {
    let id = || proptest::option::of(0..u32::MAX);
    let level = prop::sample::select(LogLevel::WORDS.map(|(_, level)| level).to_vec());
    let audit = (path(), 0_u32..=65_536);
    (path(), 0_u32..=0o777, id(), id(), path(), audit, level).prop_map(
        |(socket, socket_mode, socket_owner, socket_group, state_directory, audit, log_level)| {
            let (audit_directory, audit_mib) = audit;
            DaemonSetup {
                socket,
                socket_mode,
                socket_owner,
                socket_group,
                state_directory,
                audit_directory,
                audit_mib,
                log_level,
            }
        },
    )
}

fn load(text: &str) -> Loaded {
    config::read(text, "talead.toml", &names(), &target(CPUS)).unwrap_or_else(|found| {
        panic!("{}\n{text}", talea_config::diagnostic::render(&found, false))
    })
}

fn without_origins(mut setup: Setup) -> Setup {
    for rule in &mut setup.rules {
        rule.origin.clear();
    }
    setup
}

proptest! {
    #[test]
    fn what_is_written_reads_back_as_it_was(daemon in daemon(), setup in setup()) {
        let text = write(&daemon, &setup);
        let loaded = load(&text);
        prop_assert_eq!(&loaded.daemon, &daemon);
        prop_assert_eq!(without_origins(loaded.setup.clone()), setup);
        // Once more, with the origins that the first reading gave.
        let again = load(&write(&loaded.daemon, &loaded.setup));
        prop_assert_eq!(again.setup, loaded.setup);
    }

    #[test]
    fn every_rule_says_its_line(setup in setup()) {
        let text = write(&DaemonSetup::default(), &setup);
        for rule in load(&text).setup.rules {
            let line: usize = rule.origin.strip_prefix("talead.toml:").expect("file and line").parse().expect("a line");
            let written = text.lines().nth(line - 1).expect("a line of the file");
            prop_assert!(written.starts_with(&format!("{} = ", rule.bound.key())), "{written}");
        }
    }

    #[test]
    fn a_decimal_is_its_ratio(whole in 0_u64..1024, part in 0_u64..1_000_000) {
        // Reference model: the fraction by integers, as core's charge rounds it.
        let expected = Charge::ratio(whole * 1_000_000 + part, 1_000_000);
        prop_assert_eq!(parse_charge(&format!("{whole}.{part:06}")), Ok(expected));
    }

    #[test]
    fn every_charge_has_a_decimal_that_reads_back_as_itself(bits in 0_u128..=1024 << 64) {
        let charge = Charge::from_bits(bits);
        let text = write_charge(charge).expect("at most 1024 CPUs");
        prop_assert_eq!(parse_charge(&text), Ok(charge), "{}", text);
    }
}

#[test]
fn decimals_are_written_as_short_as_people_write_them() {
    for (text, charge) in [
        ("0.7", Charge::ratio(7, 10)),
        ("0.95", Charge::ratio(95, 100)),
        ("1.0", Charge::ONE),
        ("1024.0", Charge::from_bits(1024 << 64)),
        ("0.0", Charge::ZERO),
    ] {
        assert_eq!(write_charge(charge).as_deref(), Some(text));
        assert_eq!(parse_charge(text), Ok(charge));
    }
    assert_eq!(write_charge(Charge::from_bits((1024 << 64) + 1)), None);
}

#[test]
fn decimals_that_are_none_are_refused() {
    for text in [
        "", ".", ".5", "5.", "1.2.3", "-0.5", "1e3", "7e-1", "inf", "nan", "+inf", "0x10", "1_0",
        "1024.1", "1025",
    ] {
        assert!(parse_charge(text).is_err(), "{text}");
    }
    assert!(parse_charge("99999999999999999999999").is_err());
    assert!(parse_charge("0.000000000000000000001").is_err(), "21 decimals");
    assert_eq!(parse_charge("0.00000000000000000001"), Ok(Charge::from_bits(1)), "20 decimals");
    assert_eq!(parse_charge("0.500000000000000000000000000"), Ok(Charge::ratio(1, 2)));
}
