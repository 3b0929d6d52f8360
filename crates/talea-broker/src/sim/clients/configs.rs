//! Random platforms and setups.

use crate::input::Platform;
use crate::sim::MS;
use crate::sim::rng::Rng;
use talea_core::setup::{
    Access, Band, Bound, Confine, Domain, EdfOptions, ForeignClass, ForeignOptions, FpLevels,
    FpOptions, OnOverrun, PluginKind, PluginSetup, Quota, RmOptions, RmTest, Rule, Setup,
    SubordinateUsers,
};
use talea_core::{Charge, CpuSet, Priority, Span, Work};

fn band(low: u8, high: u8) -> Band {
    Band { low: Priority(low), high: Priority(high) }
}

/// Returns a setup, a platform, and whether the kernel admits deadline threads per CPU.
pub(super) fn config(rng: &mut Rng) -> (Setup, Platform, bool) {
    let platform = Platform::declared(1 + rng.below(4) as u32);
    let pinned = rng.chance(500);
    let mut plugins = Vec::new();
    let mut add = |name: &str, band, kind, cpus| {
        plugins.push(PluginSetup {
            name: name.to_owned(),
            cpus,
            band,
            kind,
            on_overrun: OnOverrun::Throttle,
        });
    };
    let some = |rng: &mut Rng| {
        let cpus: CpuSet = platform.cpus.iter().filter(|_| rng.chance(700)).collect();
        if cpus.is_empty() { platform.cpus } else { cpus }
    };
    if rng.chance(800) {
        let confine = if pinned { Confine::Partition } else { Confine::Global };
        let cpus = if pinned { some(rng) } else { platform.cpus };
        add("edf", None, PluginKind::Edf(EdfOptions { threshold: None, confine }), cpus);
    }
    if rng.chance(800) {
        let test =
            rng.pick(&[RmTest::Necessary, RmTest::LiuLayland, RmTest::Hyperbolic, RmTest::Exact]);
        let rm = RmOptions { test, refuse_sharing: rng.chance(300) };
        let low = 60 + rng.below(28) as u8;
        add("rm", Some(band(low, 89)), PluginKind::Rm(rm), some(rng));
    }
    if rng.chance(400) {
        let class = rng.pick(&[ForeignClass::Fifo, ForeignClass::Rr, ForeignClass::Deadline]);
        let is_deadline = class == ForeignClass::Deadline;
        let confine = if pinned { Confine::Partition } else { Confine::Global };
        let foreign = ForeignOptions {
            module: "/usr/lib/talea/ours.so".to_owned(),
            argument: String::new(),
            timeout: Span::from_ns(50 * MS),
            class,
            confine: if is_deadline { confine } else { Confine::default() },
        };
        let band = (!is_deadline).then_some(band(40, 49));
        let cpus = if is_deadline && !pinned { platform.cpus } else { some(rng) };
        add("ours", band, PluginKind::Foreign(foreign), cpus);
    }
    if rng.chance(700) {
        let refuse_sharing = rng.chance(300);
        add(
            "fp",
            Some(band(30, 31 + rng.below(8) as u8)),
            PluginKind::Fp(FpOptions {
                refuse_sharing,
                levels: rng.pick(&[FpLevels::Each, FpLevels::Common]),
            }),
            some(rng),
        );
    }
    add("rr", Some(band(10, 15)), PluginKind::Rr(FpOptions::default()), some(rng));
    let mut setup = Setup { plugins, ..Setup::default() };
    set_rules(&mut setup, rng);
    (setup, platform, pinned)
}

/// Changes the rules and quotas; the plugins stay.
pub(super) fn set_rules(setup: &mut Setup, rng: &mut Rng) {
    setup.access = rng.pick(&[Access::Off, Access::Off, Access::Rules]);
    let bounds = [
        Bound::MaxUtilization(Charge::ratio(1, 2)),
        Bound::MaxRuntime(Work::from_ns(20 * MS)),
        Bound::MinPeriod(Span::from_ns(5 * MS)),
        Bound::MaxPriority(Priority(50)),
        Bound::AllowUnbounded(true),
        Bound::IgnoreAdmission(true),
    ];
    setup.rules = (0..rng.below(6))
        .map(|connection| Rule {
            domain: rng.pick(&[Domain::Global, Domain::User(1000), Domain::Group(7)]),
            plugin: rng.pick(&[None, Some(0)]),
            bound: rng.pick(&bounds),
            origin: format!("talead.toml:{connection}"),
        })
        .collect();
    // User 1001 may become a subordinate user of 1000.
    let range = SubordinateUsers { owner: 1000, first: 1001, count: 5 };
    setup.subordinate_users = if rng.chance(300) { vec![range] } else { Vec::new() };
    setup.front_ends = if rng.chance(700) { vec![1001] } else { Vec::new() };
    setup.quota = if rng.chance(300) {
        Quota {
            sessions_per_user: 3,
            sessions: 6,
            sessions_without_rule: 2,
            specs_per_user: 4,
            specs: 10,
            levels_per_user: 2,
            requests_per_second: 50,
            burst: 5,
        }
    } else {
        Quota::default()
    };
}
