//! Machines and setups for a crowd.

use super::MS;
use crate::input::Machine;
use crate::sim::dice::Dice;
use talea_core::setup::{
    Access, Band, Bound, Confine, Domain, EdfOptions, ForeignClass, ForeignOptions, FpLevels,
    FpOptions, PluginKind, PluginSetup, Quota, RmOptions, RmTest, Rule, Setup,
};
use talea_core::{Charge, CpuSet, Priority, Span, Work};

fn band(low: u8, high: u8) -> Band {
    Band { low: Priority(low), high: Priority(high) }
}

/// A machine and a setup for it, and whether its kernel admits deadline threads CPU by CPU.
pub(super) fn scene(dice: &mut Dice) -> (Setup, Machine, bool) {
    let machine = Machine::declared(1 + dice.below(4) as u32);
    let pinned = dice.chance(500);
    let mut plugins = Vec::new();
    let mut add = |name: &str, band, kind, cpus| {
        plugins.push(PluginSetup { name: name.to_owned(), cpus, band, kind });
    };
    let some = |dice: &mut Dice| {
        let cpus: CpuSet = machine.cpus.iter().filter(|_| dice.chance(700)).collect();
        if cpus.is_empty() { machine.cpus } else { cpus }
    };
    if dice.chance(800) {
        let confine = if pinned { Confine::Partition } else { Confine::Global };
        let cpus = if pinned { some(dice) } else { machine.cpus };
        add("edf", None, PluginKind::Edf(EdfOptions { threshold: None, confine }), cpus);
    }
    if dice.chance(800) {
        let test =
            dice.pick(&[RmTest::Necessary, RmTest::LiuLayland, RmTest::Hyperbolic, RmTest::Exact]);
        let rm = RmOptions { test, refuse_sharing: dice.chance(300) };
        let low = 60 + dice.below(28) as u8;
        add("rm", Some(band(low, 89)), PluginKind::Rm(rm), some(dice));
    }
    if dice.chance(400) {
        let foreign = ForeignOptions {
            module: "/usr/lib/talea/ours.so".to_owned(),
            argument: String::new(),
            timeout: Span::from_ns(50 * MS),
            class: dice.pick(&[ForeignClass::Fifo, ForeignClass::Rr]),
        };
        add("ours", Some(band(40, 49)), PluginKind::Foreign(foreign), some(dice));
    }
    if dice.chance(700) {
        let refuse_sharing = dice.chance(300);
        add(
            "fp",
            Some(band(30, 31 + dice.below(8) as u8)),
            PluginKind::Fp(FpOptions {
                refuse_sharing,
                levels: dice.pick(&[FpLevels::Each, FpLevels::Common]),
            }),
            some(dice),
        );
    }
    add("rr", Some(band(10, 15)), PluginKind::Rr(FpOptions::default()), some(dice));
    let mut setup = Setup { plugins, ..Setup::default() };
    set_rules(&mut setup, dice);
    (setup, machine, pinned)
}

/// Other rules and quotas; the plugins stay.
pub(super) fn set_rules(setup: &mut Setup, dice: &mut Dice) {
    setup.access = dice.pick(&[Access::Off, Access::Off, Access::Rules]);
    let bounds = [
        Bound::MaxUtilization(Charge::ratio(1, 2)),
        Bound::MaxRuntime(Work::from_ns(20 * MS)),
        Bound::MinPeriod(Span::from_ns(5 * MS)),
        Bound::MaxPriority(Priority(50)),
        Bound::AllowUnbounded(true),
        Bound::IgnoreAdmission(true),
    ];
    setup.rules = (0..dice.below(6))
        .map(|line| Rule {
            domain: dice.pick(&[Domain::Global, Domain::User(1000), Domain::Group(7)]),
            plugin: dice.pick(&[None, Some(0)]),
            bound: dice.pick(&bounds),
            origin: format!("talead.toml:{line}"),
        })
        .collect();
    setup.quota = if dice.chance(300) {
        Quota {
            sessions_per_user: 3,
            sessions: 6,
            specs_per_user: 4,
            specs: 10,
            requests_per_second: 50,
            burst: 5,
        }
    } else {
        Quota::default()
    };
}
