//! Change, adoption, answers of foreign plugins, and read-only requests.

use super::*;
use talea_proto::message::{Owner, SpecId, Task, Token};

fn four() -> Vec<PluginSetup> {
    vec![
        edf("edf", "0-1", Confine::Auto, None),
        rm("rm", "0-1", 60, 99, RmTest::Hyperbolic),
        fp("fp", "0-1", 30, 59),
        rr("rr", "0-1", 10, 29),
        foreign("own", "0-1", 1, 9),
    ]
}

fn everything() -> Params {
    Params { priority: Some(Priority(40)), ..periodic(10 * MS, 2 * MS) }
}

fn answer(verdict: i32, cpu: i32, priority: i32) -> ForeignAnswer {
    ForeignAnswer { epoch: 0, verdict, cpu, priority, ..ForeignAnswer::default() }
}

#[test]
fn r7_a_change_moves_between_any_two_plugins_and_keeps_the_ledger_exact() {
    for platform in [pinnable(2), Platform::declared(2)] {
        for from in 0..4 {
            for to in 0..4 {
                for attached in [false, true] {
                    let mut rig = Rig::new(platform.clone(), four());
                    let slot = rig.create(from, &ask(&everything())).unwrap();
                    rig.plugin_set.set_attached(slot, attached);
                    let other = Params {
                        period: Some(Span::from_ns(20 * MS)),
                        priority: Some(Priority(7)),
                        ..everything()
                    };
                    rig.change(slot, to, &ask(&other), None).unwrap();
                    let placed = rig.plugin_set.placement(slot);
                    assert_eq!((placed.plugin, placed.charge), (to, Charge::ratio(2, 20)));
                    assert_eq!(rig.moved(), [], "the caller of `replace` applies the attributes");
                    let specs = (0..4).map(|plugin| rig.plugin_set.info(plugin).specs);
                    assert!(
                        specs
                            .enumerate()
                            .all(|(plugin, specs)| specs == u32::from(plugin as u32 == to))
                    );
                    rig.audit();
                    rig.clear();
                }
            }
        }
    }
}

#[test]
fn r7_a_spec_treated_as_released_is_released_only_for_the_request() {
    let mut rig = Rig::new(pinnable(1), vec![edf("edf", "0", Confine::Auto, None)]);
    let slot = rig.create(0, &ask(&periodic(10 * MS, 9 * MS))).unwrap();
    let eight = periodic(10 * MS, 8 * MS);
    assert!(offered(&rig.plugin_set.ask(0, &ask(&eight), Some(slot))).is_some());
    let no = refused(rig.plugin_set.ask(0, &ask(&eight), None));
    assert_eq!(no.fits, 0);
    assert_eq!(rig.plugin_set.cpu_info(0, 0).unwrap().used.ppm(), 900_000);
    rig.clear();
}

#[test]
fn read_only_requests_change_nothing_and_every_decision_changes_the_epoch() {
    let mut rig = Rig::new(pinnable(2), four());
    let slot = rig.create(1, &ask(&everything())).unwrap();
    let epoch = rig.plugin_set.epoch();
    let before = format!("{:?}", rig.plugin_set);
    for plugin in 0..4 {
        let _ = rig.plugin_set.ask(plugin, &ask(&everything()), Some(slot));
        let _ = (
            rig.plugin_set.cpu_info(plugin, 1),
            rig.plugin_set.info(plugin),
            rig.plugin_set.placement(slot),
            rig.plugin_set.attr(slot),
        );
    }
    let _ = rig.plugin_set.check_answer(4, &ask(&everything()), &answer(1, 0, 5), Some(slot));
    assert_eq!((format!("{:?}", rig.plugin_set), rig.plugin_set.epoch()), (before, epoch));
    rig.change(slot, 1, &ask(&everything()), None).unwrap();
    assert_ne!(rig.plugin_set.epoch(), epoch);
    let epoch = rig.plugin_set.epoch();
    rig.plugin_set.release(slot, None);
    assert_ne!(rig.plugin_set.epoch(), epoch);
}

#[test]
fn r18_a_foreign_answer_is_checked_against_its_bounds() {
    let mut rig = Rig::new(pinnable(3), four());
    assert!(rig.plugin_set.is_foreign(4) && !rig.plugin_set.is_foreign(0));
    assert_eq!(
        (rig.plugin_set.timeout(4), rig.plugin_set.timeout(0)),
        (Span::from_ns(50 * MS), Span::ZERO)
    );
    let (all, params) = (everything(), everything());
    let judged = |rig: &Rig, answer: &ForeignAnswer| {
        rig.plugin_set.check_answer(4, &ask(&all), answer, None)
    };
    for (invalid, why) in [
        (answer(2, 0, 5), "verdict 2, which is not 1, 0 or -1"),
        (answer(1, 2, 5), "CPU 2, which is not in 0-1"),
        (answer(1, -1, 5), "CPU -1, which is not in 0-1"),
        (answer(0, 0, 10), "priority 10, which is not in 1-9"),
        (answer(1, 0, 261), "priority 261, which is not in 1-9"),
        (answer(1, 0, -1), "priority -1, which is not in 1-9"),
    ] {
        assert_eq!(judged(&rig, &invalid), Err(BoundsViolation(why.to_owned())));
    }
    let on_1 = PluginRequest { allowed: cpus("1"), ..ask(&params) };
    assert!(
        rig.plugin_set.check_answer(4, &on_1, &answer(1, 0, 5), None).is_err(),
        "outside the CPUs that the client accepts"
    );
    assert_eq!(
        refused(judged(&rig, &answer(-1, 99, 99)).unwrap()).reason,
        RejectionReason::Foreign
    );
    assert!(matches!(judged(&rig, &answer(0, 1, 9)), Ok(Verdict::Partial(_))));
    let verdict = judged(&rig, &answer(1, 1, 9)).unwrap();
    let slot = rig.admit(4, &ask(&params), &offered(&verdict).unwrap());
    let placed = rig.plugin_set.placement(slot);
    assert_eq!((placed.cpu, placed.priority, placed.charge), (Some(1), 9, Charge::ratio(2, 10)));
    assert_eq!(rig.plugin_set.attr(slot).policy, talea_core::Policy::Fifo(Priority(9)));
    rig.plugin_set.out_of_service(4);
    assert_eq!(
        refused(judged(&rig, &answer(1, 1, 9)).unwrap()).reason,
        RejectionReason::OutOfService
    );
    assert!(rig.plugin_set.info(4).out_of_service);
    assert_eq!(rig.plugin_set.placement(slot), placed, "its specs keep their attributes");
    rig.clear();
}

pub(super) fn record(rig: &Rig, slot: SpecSlot, params: Params) -> Record {
    let placed = rig.plugin_set.placement(slot);
    let task = Task { params, owner: Owner::Process, ..Task::default() };
    Record {
        spec: SpecId(7),
        token: Token([0; 16]),
        uid: 1,
        pid: 2,
        pid_start: 3,
        task,
        plugin: rig.plugin_set.info(placed.plugin).name,
        cpu: placed.cpu,
        runtime: placed.runtime,
        charge: placed.charge,
        priority: placed.priority,
        terms: None,
        thread: None,
        is_from_front_end: false,
    }
}

#[test]
fn adoption_makes_no_admission_test() {
    for platform in [pinnable(2), Platform::declared(2)] {
        let mut rig = Rig::new(platform.clone(), four());
        let elastic = Params { desired: Some(Work::from_ns(3 * MS)), ..everything() };
        let mut records = vec![];
        for plugin in 0..4 {
            let slot = rig.create(plugin, &ask(&elastic)).unwrap();
            records.push((plugin, slot, record(&rig, slot, elastic)));
        }
        let mut next = Rig::new(platform, four());
        for (plugin, slot, record) in &records {
            next.plugin_set.adopt(*plugin, *slot, record);
        }
        for (_, slot, _) in &records {
            assert_eq!(next.plugin_set.placement(*slot), rig.plugin_set.placement(*slot));
            assert_eq!(next.plugin_set.attr(*slot), rig.plugin_set.attr(*slot));
        }
        next.audit();
        next.clear();
    }
}

#[test]
fn adoption_handles_a_changed_setup_and_invalid_records() {
    let mut rig = Rig::new(pinnable(2), four());
    let slot = rig.create(1, &PluginRequest { allowed: cpus("1"), ..ask(&everything()) }).unwrap();
    let good = record(&rig, slot, everything());
    // The plugin no longer has that CPU: another one is used.
    let mut next = Rig::new(
        pinnable(1),
        vec![rm("rm", "0", 60, 99, RmTest::Hyperbolic), foreign("own", "0", 3, 9)],
    );
    next.plugin_set.adopt(0, SpecSlot(5), &good);
    assert_eq!(next.plugin_set.placement(SpecSlot(5)).cpu, Some(0));
    // Nothing is declared, the charge is far too large, and the priority is no longer in the
    // plugin's band.
    let empty = Task { params: Params::default(), ..good.task };
    let odd =
        Record { task: empty, runtime: None, charge: Charge::ONE.times(9), priority: 77, ..good };
    for (plugin, slot) in [(0, SpecSlot(0)), (1, SpecSlot(1))] {
        next.plugin_set.adopt(plugin, slot, &odd);
        let priority = next.plugin_set.placement(slot).priority;
        assert!(if plugin == 1 { priority == 9 } else { (60..=99).contains(&priority) });
    }
    assert_eq!(
        next.plugin_set.cpu_info(0, 0).unwrap().free,
        Charge::ZERO.max(next.plugin_set.cpu_info(0, 0).unwrap().free)
    );
    next.audit();
    next.clear();
}
