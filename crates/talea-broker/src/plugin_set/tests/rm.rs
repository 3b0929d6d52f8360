//! `rm`: order by period or deadline, the tests, and the proof status.

use super::*;
use talea_core::Policy;

fn only_period(period: u64) -> Params {
    Params { period: Some(Span::from_ns(period)), ..Params::default() }
}

pub(super) fn single(test: RmTest) -> Rig {
    Rig::new(Platform::declared(1), vec![rm("rm", "0", 1, 99, test)])
}

#[test]
fn r15_the_period_alone_is_enough_and_shorter_periods_have_higher_priority() {
    let mut rig = single(RmTest::Hyperbolic);
    let slots: Vec<SpecSlot> =
        [30, 10, 20, 40].map(|p| rig.create(0, &ask(&only_period(p * MS))).unwrap()).into();
    let priority = |slot| rig.plugin_set.placement(slot).priority;
    assert!(priority(slots[1]) > priority(slots[2]));
    assert!(priority(slots[2]) > priority(slots[0]));
    assert!(priority(slots[0]) > priority(slots[3]));
    let placed = rig.plugin_set.placement(slots[0]);
    assert!(
        placed
            .notes
            .contains(Notes::PARTIAL.with(Notes::NOT_PROVED).with(Notes::BUDGET_NOT_ENFORCED))
    );
    // D < T: the deadline determines the order, and equal urgency is an equal level.
    let constrained = Params { deadline: Some(Span::from_ns(10 * MS)), ..only_period(50 * MS) };
    let slot = rig.create(0, &ask(&constrained)).unwrap();
    assert_eq!(
        rig.plugin_set.placement(slot).priority,
        rig.plugin_set.placement(slots[1]).priority
    );
    rig.clear();
}

#[test]
fn r15_only_threads_with_a_changed_priority_are_moved() {
    let mut rng = Rng::new(151);
    let (mut asked, mut moved_threads) = (0, 0);
    for _ in 0..25 {
        let levels = *rng.pick(&[4, 12, 60]);
        let mut rig = Rig::new(
            Platform::declared(2),
            vec![rm("rm", "0-1", 20, 19 + levels, RmTest::Necessary)],
        );
        // Attributes last applied to each attached thread.
        let mut kernel: Vec<(SpecSlot, Attr)> = vec![];
        for _ in 0..200 {
            asked += 1;
            let slots = rig.slots();
            match rng.below(6) {
                0 if !slots.is_empty() => {
                    let slot = *rng.pick(&slots);
                    rig.plugin_set.release(slot, None);
                    kernel.retain(|&(s, _)| s != slot);
                }
                1 if !slots.is_empty() => {
                    let slot = *rng.pick(&slots);
                    rig.change(slot, 0, &ask(&only_period((1 + rng.below(90)) * MS)), None)
                        .unwrap();
                    // The caller of `replace` applies the attributes.
                    if let Some((_, applied)) = kernel.iter_mut().find(|(s, _)| *s == slot) {
                        *applied = rig.plugin_set.attr(slot);
                    }
                }
                2 if !kernel.is_empty() => {
                    let (slot, _) = kernel.swap_remove(rng.below(kernel.len() as u64) as usize);
                    rig.plugin_set.set_attached(slot, false);
                }
                _ => {
                    let slot = rig.create(0, &ask(&only_period((1 + rng.below(90)) * MS))).unwrap();
                    if rng.chance(80) {
                        rig.plugin_set.set_attached(slot, true);
                        kernel.push((slot, rig.plugin_set.attr(slot)));
                    }
                }
            }
            if rng.chance(30) {
                // Several decisions may precede a drain; a reverted change is not reported.
                continue;
            }
            for slot in rig.moved() {
                moved_threads += 1;
                let (_, applied) =
                    kernel.iter_mut().find(|(s, _)| *s == slot).expect("moved, but not attached");
                assert_ne!(*applied, rig.plugin_set.attr(slot), "reported without a change");
                *applied = rig.plugin_set.attr(slot);
            }
            for &(slot, applied) in &kernel {
                assert_eq!(applied, rig.plugin_set.attr(slot), "slot {slot:?} was not reported");
            }
        }
        rig.audit();
        rig.clear();
    }
    assert!(moved_threads < asked, "{moved_threads} threads moved in {asked} decisions");
}

#[test]
fn retif_w4_running_threads_keep_the_order_of_their_periods() {
    // ReTiF left 10, 100, 50 and 5 ms at kernel priorities 1, 1, 2 and 4.
    let mut rig = Rig::new(Platform::declared(1), vec![rm("rm", "0", 1, 4, RmTest::Necessary)]);
    let mut kernel = vec![];
    for period in [10, 100, 50, 5] {
        let slot = rig.create(0, &ask(&only_period(period * MS))).unwrap();
        rig.plugin_set.set_attached(slot, true);
        kernel.push((slot, period, rig.plugin_set.attr(slot).policy));
        for slot in rig.moved() {
            kernel.iter_mut().find(|(s, ..)| *s == slot).unwrap().2 =
                rig.plugin_set.attr(slot).policy;
        }
    }
    kernel.sort_unstable_by_key(|&(_, period, _)| period);
    let fifo = [4, 3, 2, 1].map(|priority| Policy::Fifo(Priority(priority)));
    assert_eq!(kernel.iter().map(|&(_, _, policy)| policy).collect::<Vec<_>>(), fifo);
    rig.clear();
}

#[test]
fn retif_w6_insertions_and_removals_keep_the_count_of_periods_exact() {
    let mut rig = Rig::new(Platform::declared(1), vec![rm("rm", "0", 1, 3, RmTest::Necessary)]);
    for _ in 0..150 {
        let slot = rig.create(0, &ask(&only_period(7 * MS))).unwrap();
        rig.plugin_set.release(slot, None);
    }
    let slots = [10, 20, 30].map(|period| rig.create(0, &ask(&only_period(period * MS))).unwrap());
    assert_eq!(slots.map(|slot| rig.plugin_set.placement(slot).priority), [3, 2, 1]);
    rig.clear();
}

#[test]
fn r16_each_test_accepts_what_its_theorem_accepts() {
    // 3/5, 1/8, 1/10 passes the hyperbolic bound only; 1/4, 2/6, 3/10 only the necessary test.
    let cases = [
        (vec![(2, 6), (2, 8), (2, 12)], [true, true, true]),
        (vec![(3, 5), (1, 8), (1, 10)], [true, false, true]),
        (vec![(1, 4), (2, 6), (3, 10)], [true, false, false]),
        (vec![(1, 4), (2, 6), (3, 10), (1, 3)], [false, false, false]),
    ];
    for (tasks, accepted) in cases {
        for (test, all) in
            [RmTest::Necessary, RmTest::LiuLayland, RmTest::Hyperbolic].into_iter().zip(accepted)
        {
            let mut rig = single(test);
            let said =
                tasks.iter().all(|&(q, t)| rig.create(0, &ask(&periodic(t * MS, q * MS))).is_ok());
            assert_eq!(said, all, "{test:?} {tasks:?}");
            for slot in rig.slots() {
                let proved = !rig.plugin_set.placement(slot).notes.contains(Notes::NOT_PROVED);
                assert_eq!(proved, test != RmTest::Necessary, "necessary proves nothing");
            }
            rig.clear();
        }
    }
}

#[test]
fn r16_the_bounds_themselves_pass_and_rejections_report_the_value_that_fits() {
    let mut rig = single(RmTest::Hyperbolic);
    rig.create(0, &ask(&periodic(10 * MS, 5 * MS))).unwrap();
    let no = rig.create(0, &ask(&periodic(30 * MS, 10 * MS + 1))).unwrap_err();
    assert_eq!(
        (no.reason, no.field, no.cpu, no.fits),
        (RejectionReason::NoRoom, Field::Utilization, Some(0), 333_333)
    );
    rig.create(0, &ask(&periodic(30 * MS, 10 * MS))).unwrap();
    assert_eq!(rig.plugin_set.cpu_info(0, 0).unwrap().free.ppm_down(), 0);
    rig.clear();

    let mut rig = single(RmTest::Necessary);
    for _ in 0..3 {
        rig.create(0, &ask(&periodic(9 * MS, 3 * MS))).unwrap();
    }
    assert_eq!(rig.create(0, &ask(&periodic(1_000_000 * MS, 1))).unwrap_err().fits, 0);
    rig.clear();

    let mut rig = single(RmTest::LiuLayland);
    rig.create(0, &ask(&periodic(10 * MS, 4 * MS))).unwrap();
    // 2(√2 − 1) = 0.828427…
    assert_eq!(rig.create(0, &ask(&periodic(20 * MS, 10 * MS))).unwrap_err().fits, 428_427);
    assert_eq!(rig.plugin_set.cpu_info(0, 0).unwrap().free.ppm_down(), 428_427);
    rig.clear();
}

#[test]
fn r16_an_unknown_runtime_leaves_those_above_it_proved_and_the_others_not() {
    let mut rig = single(RmTest::Hyperbolic);
    let slots = [10, 20, 30].map(|period| rig.create(0, &ask(&periodic(period * MS, MS))).unwrap());
    let proved = |rig: &Rig| {
        slots.map(|slot| !rig.plugin_set.placement(slot).notes.contains(Notes::NOT_PROVED))
    };
    assert_eq!(proved(&rig), [true, true, true]);
    let unknown = rig.create(0, &ask(&only_period(20 * MS))).unwrap();
    assert_eq!(proved(&rig), [true, false, false], "below and at its level nothing is proved");
    // The known ones are still tested.
    let verdict = rig.plugin_set.ask(0, &ask(&periodic(40 * MS, 38 * MS)), None);
    assert_eq!(refused(verdict).reason, RejectionReason::NoRoom);
    let below = rig.create(0, &ask(&periodic(40 * MS, MS))).unwrap();
    assert!(rig.plugin_set.placement(below).notes.contains(Notes::NOT_PROVED));
    rig.plugin_set.release(unknown, None);
    assert_eq!(proved(&rig), [true, true, true]);
    rig.clear();
}

#[test]
fn r14_an_ignored_test_is_recorded_and_makes_lower_levels_unproved() {
    let mut rig = single(RmTest::Hyperbolic);
    let above = rig.create(0, &ask(&periodic(5 * MS, MS))).unwrap();
    let below = rig.create(0, &ask(&periodic(50 * MS, 25 * MS))).unwrap();
    let params = periodic(20 * MS, 15 * MS);
    assert!(rig.create(0, &ask(&params)).is_err());
    let slot = rig.create(0, &PluginRequest { ignore_admission: true, ..ask(&params) }).unwrap();
    let notes = |slot| rig.plugin_set.placement(slot).notes;
    assert!(notes(slot).contains(Notes::ADMISSION_IGNORED.with(Notes::NOT_PROVED)));
    assert!(notes(below).contains(Notes::NOT_PROVED) && !notes(above).contains(Notes::NOT_PROVED));
    // A test that passes is not ignored.
    let fits = rig.plugin_set.ask(
        0,
        &PluginRequest { ignore_admission: true, ..ask(&only_period(MS)) },
        None,
    );
    assert!(!offered(&fits).unwrap().notes.contains(Notes::ADMISSION_IGNORED));
    rig.clear();
}

#[test]
fn r16_more_periods_than_levels_are_tested_by_the_shortest_of_each_level_or_rejected() {
    let mut rig = Rig::new(Platform::declared(1), vec![rm("rm", "0", 1, 2, RmTest::Hyperbolic)]);
    for (period, runtime) in [(10, 2), (40, 4)] {
        rig.create(0, &ask(&periodic(period * MS, runtime * MS))).unwrap();
    }
    // Its period would be a third level: it shares the first, and counts as if its period were 10
    // ms.
    let slot = rig.create(0, &ask(&periodic(20 * MS, MS))).unwrap();
    assert!(rig.plugin_set.placement(slot).notes.contains(Notes::LEVEL_SHARED));
    // (1 + 3/10 + x/10)(1 + 4/40) ≤ 2: x ≤ 5.1818…
    let no = refused(rig.plugin_set.ask(0, &ask(&periodic(20 * MS, 6 * MS)), None));
    assert_eq!(no.fits, 259_090, "5.18 ms of 20");
    rig.clear();

    let options = RmOptions { test: RmTest::Hyperbolic, refuse_sharing: true };
    let kind = plugin("rm", "0", band(1, 2), PluginKind::Rm(options));
    let mut rig = Rig::new(Platform::declared(1), vec![kind]);
    for period in [10, 40, 40] {
        rig.create(0, &ask(&periodic(period * MS, MS))).unwrap();
    }
    let no = rig.create(0, &ask(&periodic(20 * MS, MS))).unwrap_err();
    assert_eq!((no.reason, no.asked, no.limit), (RejectionReason::NoLevel, 3, 2));
    rig.clear();
}

#[test]
fn r16_admission_equals_exact_arithmetic_on_a_hundred_thousand_random_requests() {
    let mut rng = Rng::new(1_600);
    let (mut asked, mut yes, mut no, mut shared) = (0, 0, 0, 0);
    while asked < 100_000 {
        let count = 1 + rng.below(3) as u32;
        let test = *rng.pick(&[
            RmTest::Hyperbolic,
            RmTest::Exact,
            RmTest::Exact,
            RmTest::LiuLayland,
            RmTest::Necessary,
        ]);
        let levels = *rng.pick(&[1, 2, 3, 5, 20]);
        let list = format!("0-{}", count - 1);
        let mut rig =
            Rig::new(Platform::declared(count), vec![rm("rm", &list, 5, 4 + levels, test)]);
        let size = *rng.pick(&[3, 6, 15]);
        for _ in 0..80 {
            asked += 1;
            let slots = rig.slots();
            if rng.chance(25) && !slots.is_empty() {
                rig.plugin_set.release(*rng.pick(&slots), None);
                continue;
            }
            let period = *rng.pick(&[4, 6, 8, 9, 12, 16, 20, 24, 30, 36, 48]);
            let mut params = periodic(period * MS, (1 + rng.below(period * 2)) * MS / size);
            if rng.chance(15) {
                params.deadline = Some(Span::from_ns((period - 1) * MS));
            }
            if params.runtime.unwrap().as_ns() > params.density_span().unwrap().as_ns() {
                continue;
            }
            let leaving = slots.first().copied().filter(|_| rng.chance(25));
            let said = rig.plugin_set.ask(0, &ask(&params), leaving);
            let expected = plain::expected(&rig, 0, &ask(&params), leaving);
            assert_eq!(
                offered(&said).as_ref().map(plain::place_of),
                expected,
                "{test:?} {params:?} {leaving:?}"
            );
            *if expected.is_some() { &mut yes } else { &mut no } += 1;
            match (offered(&said), leaving) {
                (Some(offer), None) => {
                    let slot = rig.admit(0, &ask(&params), &offer);
                    shared += u32::from(
                        rig.plugin_set.placement(slot).notes.contains(Notes::LEVEL_SHARED),
                    );
                }
                (Some(_), Some(slot)) => rig.change(slot, 0, &ask(&params), None).unwrap(),
                (None, _) => {}
            }
        }
        rig.audit();
        rig.clear();
    }
    assert!(yes > 20_000 && no > 5_000 && shared > 5_000, "{yes} {no} {shared}");
}
