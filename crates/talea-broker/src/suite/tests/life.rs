//! Change, adoption, foreign answers, and questions that change nothing.

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
    ForeignAnswer { epoch: 0, verdict, cpu, priority }
}

#[test]
fn r7_a_change_moves_between_any_two_plugins_and_leaves_exact_books() {
    for machine in [pinnable(2), Machine::declared(2)] {
        for from in 0..4 {
            for to in 0..4 {
                for attached in [false, true] {
                    let mut rig = Rig::new(machine.clone(), four());
                    let slot = rig.create(from, &ask(&everything())).unwrap();
                    rig.suite.attached(slot, attached);
                    let other = Params {
                        period: Some(Span::from_ns(20 * MS)),
                        priority: Some(Priority(7)),
                        ..everything()
                    };
                    rig.change(slot, to, &ask(&other), None).unwrap();
                    let placed = rig.suite.placed(slot);
                    assert_eq!((placed.plugin, placed.charge), (to, Charge::ratio(2, 20)));
                    assert_eq!(rig.moved(), [], "whoever replaces, applies");
                    let specs = (0..4).map(|plugin| rig.suite.info(plugin).specs);
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
fn r7_what_is_judged_as_gone_is_only_gone_for_the_question() {
    let mut rig = Rig::new(pinnable(1), vec![edf("edf", "0", Confine::Auto, None)]);
    let slot = rig.create(0, &ask(&periodic(10 * MS, 9 * MS))).unwrap();
    let eight = periodic(10 * MS, 8 * MS);
    assert!(offered(&rig.suite.ask(0, &ask(&eight), Some(slot))).is_some());
    let no = refused(rig.suite.ask(0, &ask(&eight), None));
    assert_eq!(no.fits, 0);
    assert_eq!(rig.suite.cpu(0, 0).unwrap().used.ppm(), 900_000);
    rig.clear();
}

#[test]
fn questions_change_nothing_and_every_decision_changes_the_epoch() {
    let mut rig = Rig::new(pinnable(2), four());
    let slot = rig.create(1, &ask(&everything())).unwrap();
    let epoch = rig.suite.epoch();
    let before = format!("{:?}", rig.suite);
    for plugin in 0..4 {
        let _ = rig.suite.ask(plugin, &ask(&everything()), Some(slot));
        let _ = (
            rig.suite.cpu(plugin, 1),
            rig.suite.info(plugin),
            rig.suite.placed(slot),
            rig.suite.attr(slot),
        );
    }
    let _ = rig.suite.judge(4, &ask(&everything()), &answer(1, 0, 5), Some(slot));
    assert_eq!((format!("{:?}", rig.suite), rig.suite.epoch()), (before, epoch));
    rig.change(slot, 1, &ask(&everything()), None).unwrap();
    assert_ne!(rig.suite.epoch(), epoch);
    let epoch = rig.suite.epoch();
    rig.suite.release(slot, None);
    assert_ne!(rig.suite.epoch(), epoch);
}

#[test]
fn r18_a_foreign_answer_is_held_against_its_bounds() {
    let mut rig = Rig::new(pinnable(3), four());
    assert!(rig.suite.is_foreign(4) && !rig.suite.is_foreign(0));
    assert_eq!((rig.suite.timeout(4), rig.suite.timeout(0)), (Span::from_ns(50 * MS), Span::ZERO));
    let (all, params) = (everything(), everything());
    let judged = |rig: &Rig, answer: &ForeignAnswer| rig.suite.judge(4, &ask(&all), answer, None);
    for (lie, why) in [
        (answer(2, 0, 5), "verdict 2, which is none of 1, 0 and -1"),
        (answer(1, 2, 5), "CPU 2, which is none of 0-1"),
        (answer(1, -1, 5), "CPU -1, which is none of 0-1"),
        (answer(0, 0, 10), "priority 10, which is not in 1-9"),
        (answer(1, 0, 261), "priority 261, which is not in 1-9"),
        (answer(1, 0, -1), "priority -1, which is not in 1-9"),
    ] {
        assert_eq!(judged(&rig, &lie), Err(Lie(why.to_owned())));
    }
    let on_1 = Ask { allowed: cpus("1"), ..ask(&params) };
    assert!(
        rig.suite.judge(4, &on_1, &answer(1, 0, 5), None).is_err(),
        "not where the client allows"
    );
    assert_eq!(refused(judged(&rig, &answer(-1, 99, 99)).unwrap()).reason, Reason::Foreign);
    assert!(matches!(judged(&rig, &answer(0, 1, 9)), Ok(Verdict::Partial(_))));
    let verdict = judged(&rig, &answer(1, 1, 9)).unwrap();
    let slot = rig.admit(4, &ask(&params), &offered(&verdict).unwrap());
    let placed = rig.suite.placed(slot);
    assert_eq!((placed.cpu, placed.priority, placed.charge), (Some(1), 9, Charge::ratio(2, 10)));
    assert_eq!(rig.suite.attr(slot).policy, talea_core::Policy::Fifo(Priority(9)));
    rig.suite.out_of_service(4);
    assert_eq!(refused(judged(&rig, &answer(1, 1, 9)).unwrap()).reason, Reason::OutOfService);
    assert!(rig.suite.info(4).out_of_service);
    assert_eq!(rig.suite.placed(slot), placed, "what it has accepted keeps its attributes");
    rig.clear();
}

fn record(rig: &Rig, slot: Slot, params: Params) -> Record {
    let placed = rig.suite.placed(slot);
    let task = Task { params, owner: Owner::Process, ..Task::default() };
    Record {
        spec: SpecId(7),
        token: Token([0; 16]),
        uid: 1,
        pid: 2,
        pid_start: 3,
        task,
        plugin: rig.suite.info(placed.plugin).name,
        cpu: placed.cpu,
        runtime: placed.runtime,
        charge: placed.charge,
        priority: placed.priority,
        thread: None,
    }
}

#[test]
fn adoption_takes_what_was_granted_without_a_test() {
    for machine in [pinnable(2), Machine::declared(2)] {
        let mut rig = Rig::new(machine.clone(), four());
        let elastic = Params { desired: Some(Work::from_ns(3 * MS)), ..everything() };
        let mut records = vec![];
        for plugin in 0..4 {
            let slot = rig.create(plugin, &ask(&elastic)).unwrap();
            records.push((plugin, slot, record(&rig, slot, elastic)));
        }
        let mut next = Rig::new(machine, four());
        for (plugin, slot, record) in &records {
            next.suite.adopt(*plugin, *slot, record);
        }
        for (_, slot, _) in &records {
            assert_eq!(next.suite.placed(*slot), rig.suite.placed(*slot));
            assert_eq!(next.suite.attr(*slot), rig.suite.attr(*slot));
        }
        next.audit();
        next.clear();
    }
}

#[test]
fn adoption_survives_a_changed_setup_and_records_without_sense() {
    let mut rig = Rig::new(pinnable(2), four());
    let slot = rig.create(1, &Ask { allowed: cpus("1"), ..ask(&everything()) }).unwrap();
    let good = record(&rig, slot, everything());
    // The plugin has lost that CPU: another one is taken.
    let mut next = Rig::new(
        pinnable(1),
        vec![rm("rm", "0", 60, 99, RmTest::Hyperbolic), foreign("own", "0", 3, 9)],
    );
    next.suite.adopt(0, Slot(5), &good);
    assert_eq!(next.suite.placed(Slot(5)).cpu, Some(0));
    // Nothing is declared, far too much is charged, the priority is no longer the plugin's.
    let empty = Task { params: Params::default(), ..good.task };
    let odd =
        Record { task: empty, runtime: None, charge: Charge::ONE.times(9), priority: 77, ..good };
    for (plugin, slot) in [(0, Slot(0)), (1, Slot(1))] {
        next.suite.adopt(plugin, slot, &odd);
        let priority = next.suite.placed(slot).priority;
        assert!(if plugin == 1 { priority == 9 } else { (60..=99).contains(&priority) });
    }
    assert_eq!(
        next.suite.cpu(0, 0).unwrap().free,
        Charge::ZERO.max(next.suite.cpu(0, 0).unwrap().free)
    );
    next.audit();
    next.clear();
}
