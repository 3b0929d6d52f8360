//! Exact admission tests: acceptances beyond the sums, witnesses of rejections, and limits.

use super::plain::LedgerModel;
use super::rm::single;
use super::*;
use crate::exact_test::MAX_EXACT_TESTS;
use talea_proto::refusal::Witness;

fn with_deadline(deadline: u64, params: Params) -> Params {
    Params { deadline: Some(Span::from_ns(deadline)), ..params }
}

fn late(own: bool, period: u64, deadline: u64, response: Option<u64>) -> Witness {
    let span = |ms: u64| Span::from_ns(ms * MS);
    Witness::DeadlineMiss {
        own,
        period: span(period),
        deadline: span(deadline),
        response: response.map(span),
    }
}

fn is_proved(rig: &Rig, slot: SpecSlot) -> bool {
    !rig.plugin_set.placement(slot).notes.contains(Notes::NOT_PROVED)
}

#[test]
fn r16_exact_is_the_default_and_accepts_a_full_cpu_of_harmonic_periods() {
    assert_eq!(RmOptions::default().test, RmTest::Exact);
    let harmonic = [(4, 2), (8, 2), (16, 4)];
    for (test, all) in [(RmTest::Exact, true), (RmTest::Hyperbolic, false)] {
        let mut rig = single(test);
        let said: Vec<_> =
            harmonic.map(|(t, q)| rig.create(0, &ask(&periodic(t * MS, q * MS)))).into();
        assert_eq!(said.iter().all(Result::is_ok), all, "{test:?}");
        for slot in rig.slots() {
            assert!(is_proved(&rig, slot));
        }
        rig.clear();
    }
}

#[test]
fn r16_a_rejection_names_the_late_task_and_its_response_time() {
    // Buttazzo (2011): 1/4, 2/6, 3/10 respond within 1, 3 and 10.
    let mut rig = single(RmTest::Exact);
    for (t, q) in [(4, 1), (6, 2), (10, 3)] {
        rig.create(0, &ask(&periodic(t * MS, q * MS))).unwrap();
    }
    // In the middle: the task of 10 ms would complete later.
    let no = rig.create(0, &ask(&periodic(8 * MS, MS / 2))).unwrap_err();
    assert_eq!((no.reason, no.fits), (RejectionReason::NoRoom, 0));
    let Some(Witness::DeadlineMiss { own: false, period, deadline, response: Some(response) }) =
        no.witness
    else {
        panic!("{no:?}")
    };
    assert_eq!((period, deadline), (Span::from_ns(10 * MS), Span::from_ns(10 * MS)));
    // 3 + 3·1 + 2·2 + 2·0.5 = 11 ≤ 12.
    assert_eq!(response, Span::from_ns(11 * MS));
    // Slightly less urgent, the new task itself is late: 1 + 5·1 + 3·2 + 2·3 = 18.
    let no = rig.create(0, &ask(&with_deadline(10 * MS + 1, periodic(100 * MS, MS)))).unwrap_err();
    let Some(Witness::DeadlineMiss { own: true, response: Some(response), .. }) = no.witness else {
        panic!("{no:?}")
    };
    assert_eq!(response, Span::from_ns(18 * MS));
    // More than the CPU: detected without a list.
    let no = rig.create(0, &ask(&periodic(100 * MS, 50 * MS))).unwrap_err();
    assert_eq!(no.witness, None);
    rig.clear();
}

#[test]
fn r16_tasks_that_share_a_level_delay_each_other_for_any_periods() {
    let mut rig = Rig::new(Platform::declared(1), vec![rm("rm", "0", 1, 1, RmTest::Exact)]);
    rig.create(0, &ask(&periodic(100 * MS, 4 * MS))).unwrap();
    rig.create(0, &ask(&periodic(10 * MS, 5 * MS))).unwrap();
    // 5 + 4 + 1 within 10 ms: the hyperbolic bound would count 10/10.
    let slot = rig.create(0, &ask(&periodic(20 * MS, MS))).unwrap();
    assert!(is_proved(&rig, slot));
    // One more nanosecond of any task is too much for the task of 10 ms.
    let no = rig.create(0, &ask(&periodic(1_000 * MS, MS))).unwrap_err();
    assert_eq!(no.witness, Some(late(false, 10, 10, Some(11))));
    let no = rig.create(0, &ask(&periodic(10 * MS, MS))).unwrap_err();
    assert_eq!(
        no.witness,
        Some(late(true, 10, 10, Some(11))),
        "one of several equal tasks, and it is the new one"
    );
    rig.clear();
}

#[test]
fn r31_r16_tasks_that_outrank_rm_are_tested_exactly_and_rejected_with_a_witness() {
    let plugins = vec![
        edf("edf", "0", Confine::Auto, None),
        fp("high", "0", 80, 99),
        rm("rm", "0", 40, 79, RmTest::Exact),
    ];
    let platform = Platform { deadline_share: Charge::ONE, ..pinnable(1) };
    let mut rig = Rig::new(platform, plugins);
    let slot = rig.create(2, &ask(&periodic(10 * MS, 5 * MS))).unwrap();
    // The hyperbolic bound leaves a third; exactly, two jobs of 2.5 ms fit.
    let urgent = |params| Params { priority: Some(Priority(50)), ..params };
    for plugin in [0, 1] {
        let no = refused(rig.plugin_set.ask(
            plugin,
            &ask(&urgent(periodic(7 * MS, 5 * MS / 2 + 1))),
            None,
        ));
        assert_eq!(
            (no.reason, no.fits),
            (RejectionReason::WouldBreakOthers, 333_333),
            "plugin {plugin}"
        );
        let Some(Witness::DeadlineMiss { own: false, response: Some(response), .. }) = no.witness
        else {
            panic!("{no:?}")
        };
        assert!(response > Span::from_ns(10 * MS));
        assert!(
            offered(&rig.plugin_set.ask(plugin, &ask(&urgent(periodic(7 * MS, 5 * MS / 2))), None))
                .is_some()
        );
    }
    // A longer period above is counted with its own value: 3 ms once per second.
    let rare = rig.create(1, &ask(&urgent(periodic(1_000 * MS, 3 * MS)))).unwrap();
    assert!(is_proved(&rig, slot));
    let no = refused(rig.plugin_set.ask(0, &ask(&periodic(7 * MS, 5 * MS / 2)), None));
    assert_eq!(no.reason, RejectionReason::WouldBreakOthers);
    rig.plugin_set.release(rare, None);
    rig.create(0, &ask(&periodic(7 * MS, 5 * MS / 2))).unwrap();
    assert!(is_proved(&rig, slot));
    rig.clear();
}

#[test]
fn r31_r16_one_job_of_a_global_task_may_come_over_from_another_cpu() {
    let plugins =
        vec![edf("edf", "0-1", Confine::Auto, None), rm("rm", "0-1", 1, 99, RmTest::Exact)];
    let mut rig = Rig::new(Platform::declared(2), plugins);
    rig.create(1, &ask(&periodic(10 * MS, 4 * MS))).unwrap();
    // Within 10 ms (2 + 1) jobs of 2 ms: 4 + 6. With twice their work they would be 8.
    rig.create(0, &ask(&periodic(5 * MS, 2 * MS))).unwrap();
    // And (1 + 1) more, which extend the window by another job of the first.
    let no = rig.create(0, &ask(&periodic(1_000 * MS, MS))).unwrap_err();
    assert_eq!(
        (no.reason, no.witness),
        (RejectionReason::WouldBreakOthers, Some(late(false, 10, 10, Some(14))))
    );
    rig.clear();
}

#[test]
fn r13_the_demand_of_constrained_deadlines_is_counted_at_the_deadlines() {
    let platform = Platform { deadline_share: Charge::ONE, ..pinnable(1) };
    let mut rig = Rig::new(platform.clone(), vec![edf("edf", "0", Confine::Auto, None)]);
    // Densities 4/5 and 4/10: the sum exceeds one, the demand is 4 by 5 and 8 by 10.
    let first = rig.create(0, &ask(&with_deadline(5 * MS, periodic(20 * MS, 4 * MS)))).unwrap();
    let second = rig.create(0, &ask(&with_deadline(10 * MS, periodic(20 * MS, 4 * MS)))).unwrap();
    assert!(is_proved(&rig, first) && is_proved(&rig, second));
    let no =
        rig.create(0, &ask(&with_deadline(10 * MS, periodic(50 * MS, 2 * MS + 1)))).unwrap_err();
    let (at, supply) = (Span::from_ns(10 * MS), Work::from_ns(10 * MS));
    let demand = Work::from_ns(10 * MS + 1);
    assert_eq!(
        (no.reason, no.witness),
        (RejectionReason::NoRoom, Some(Witness::Demand { at, demand, supply }))
    );
    rig.create(0, &ask(&with_deadline(10 * MS, periodic(50 * MS, 2 * MS)))).unwrap();
    // A desired runtime is granted as far as the sum allows: not at all.
    let elastic = Params { desired: Some(Work::from_ns(3 * MS)), ..periodic(40 * MS, MS) };
    let slot = rig.create(0, &ask(&elastic)).unwrap();
    assert_eq!(rig.plugin_set.placement(slot).runtime, Some(Work::from_ns(MS)));
    assert!(rig.plugin_set.placement(slot).notes.contains(Notes::BELOW_DESIRED));
    rig.clear();

    // Only the configured share is available: 4.5 ms by 5, and 9 by 10.
    let half = Some(Charge::ratio(9, 10));
    let mut rig = Rig::new(platform, vec![edf("edf", "0", Confine::Auto, half)]);
    rig.create(0, &ask(&with_deadline(5 * MS, periodic(20 * MS, 4 * MS)))).unwrap();
    rig.create(0, &ask(&with_deadline(10 * MS, periodic(20 * MS, 4 * MS)))).unwrap();
    let no = rig.create(0, &ask(&with_deadline(10 * MS, periodic(50 * MS, 2 * MS)))).unwrap_err();
    let Some(Witness::Demand { at, demand, supply }) = no.witness else { panic!("{no:?}") };
    assert_eq!((at.as_ns(), demand.as_ns()), (10 * MS, 10 * MS));
    assert!(supply.as_ns().abs_diff(9 * MS) <= 1);
    rig.clear();
}

#[test]
fn r31_the_total_utilization_stays_within_the_threshold() {
    let plugins = vec![edf("edf", "0", Confine::Auto, None), rm("rm", "0", 1, 99, RmTest::Exact)];
    let mut rig = Rig::new(pinnable(1), plugins);
    rig.create(1, &ask(&periodic(100 * MS, 60 * MS))).unwrap();
    // 60 % are reserved; 30 of the 90 % are left, for any deadline.
    let short = |runtime| with_deadline(5 * MS, periodic(10 * MS, runtime));
    let no = rig.create(0, &ask(&short(3 * MS + 1_000))).unwrap_err();
    assert_eq!((no.reason, no.witness), (RejectionReason::NoRoom, None));
    rig.create(0, &ask(&short(3 * MS))).unwrap();
    rig.clear();
}

#[test]
fn a_request_runs_a_limited_number_of_exact_tests() {
    // Beside 5 of 10 ms, 3 of 7 do not fit; beside 7.1 of 14 they do; the bound accepts neither.
    let count = 2 * MAX_EXACT_TESTS as u32;
    let list = format!("0-{}", count - 1);
    let mut rig = Rig::new(Platform::declared(count), vec![rm("rm", &list, 1, 99, RmTest::Exact)]);
    let (slow, good) = (periodic(10 * MS, 5 * MS), periodic(14 * MS, 71 * MS / 10));
    for cpu in 0..count {
        let params = if cpu < count / 2 { &slow } else { &good };
        rig.create(0, &PluginRequest { allowed: CpuSet::single(cpu), ..ask(params) }).unwrap();
    }
    let third = periodic(7 * MS, 3 * MS);
    let last = PluginRequest { allowed: CpuSet::single(count - 1), ..ask(&third) };
    let exact_tests = ExactTestBudget::default();
    let no = refused(rig.plugin_set.ask(
        0,
        &PluginRequest { exact_tests: Some(&exact_tests), ..ask(&third) },
        None,
    ));
    assert_eq!(no.witness, Some(late(false, 10, 10, Some(11))));
    assert!(offered(&rig.plugin_set.ask(0, &last, None)).is_some(), "a CPU fits it");
    // The tests used by one task of a group are not available to the next ones.
    let again =
        rig.plugin_set.ask(0, &PluginRequest { exact_tests: Some(&exact_tests), ..last }, None);
    assert_eq!(refused(again).witness, None);
    rig.clear();
}

#[test]
fn too_many_tasks_on_a_cpu_are_left_to_the_bound() {
    let mut rig = single(RmTest::Exact);
    rig.create(0, &ask(&periodic(10 * MS, 5 * MS))).unwrap();
    for _ in 0..crate::exact_test::MAX_TASKS {
        rig.create(0, &ask(&periodic(1_000 * MS, 1_000))).unwrap();
    }
    let no = rig.create(0, &ask(&periodic(5 * MS, 2 * MS))).unwrap_err();
    assert_eq!(no.witness, None, "no exact test was run");
    for slot in rig.slots().into_iter().skip(100) {
        rig.plugin_set.release(slot, None);
    }
    rig.create(0, &ask(&periodic(5 * MS, 2 * MS))).unwrap();
    rig.clear();
}

#[test]
fn r16_exact_dominates_the_hyperbolic_bound_and_keeps_its_guarantees() {
    let mut rng = Rng::new(1_610);
    let (mut both, mut more, mut checked) = (0, 0, 0);
    for _ in 0..400 {
        let levels = *rng.pick(&[1, 2, 4, 30]);
        let rigs = [RmTest::Hyperbolic, RmTest::Exact].map(|test| {
            let plugins =
                vec![edf("edf", "0", Confine::Auto, None), rm("rm", "0", 5, 4 + levels, test)];
            Rig::new(pinnable(1), plugins)
        });
        let [mut bound, mut exact] = rigs;
        // The same specs in both, as long as the bound accepts them; then only in the exact one.
        for step in 0..40 {
            let slots = exact.slots();
            if rng.chance(20) && !slots.is_empty() {
                let slot = *rng.pick(&slots);
                exact.plugin_set.release(slot, None);
                if bound.slots().contains(&slot) {
                    bound.plugin_set.release(slot, None);
                }
                continue;
            }
            let period = *rng.pick(&[4, 6, 8, 10, 12, 16, 20, 24, 30, 40, 60]) * MS;
            let runtime = (1 + rng.below(period / 2)).max(2_000);
            let deadline =
                runtime.max(period / 4) + rng.below(period - runtime.max(period / 4) + 1);
            let params = if rng.chance(50) {
                with_deadline(deadline, periodic(period, runtime))
            } else {
                periodic(period, runtime)
            };
            let plugin = u32::from(!rng.chance(20));
            let leaving = slots
                .first()
                .copied()
                .filter(|slot| rng.chance(15) && bound.slots().contains(slot));
            let (weak, strong) = (
                bound.plugin_set.ask(plugin, &ask(&params), leaving),
                exact.plugin_set.ask(plugin, &ask(&params), leaving),
            );
            let same = bound.slots() == exact.slots();
            match (offered(&weak), offered(&strong)) {
                (Some(_), None) if same => {
                    panic!("step {step}: only the bound accepts {params:?}: {strong:?}")
                }
                (_, None) => {}
                (weak, Some(offer)) => {
                    *if weak.is_some() { &mut both } else { &mut more } += 1;
                    let next = exact.next.max(bound.next);
                    (exact.next, bound.next) = (next, next);
                    if let Some(slot) = leaving {
                        exact.plugin_set.replace(slot, plugin, &ask(&params), &offer, None);
                        match weak {
                            Some(weak) => {
                                bound.plugin_set.replace(slot, plugin, &ask(&params), &weak, None);
                            }
                            None => bound.plugin_set.release(slot, None),
                        }
                    } else {
                        let slot = exact.admit(plugin, &ask(&params), &offer);
                        if let Some(weak) = weak {
                            assert_eq!(bound.admit(plugin, &ask(&params), &weak), slot);
                        }
                    }
                }
            }
            // Every guarantee holds in the textbook test.
            if exact.slots().iter().any(|&slot| exact.plugin_set.at(slot).claim.plugin == 1) {
                checked += 1;
                assert!(
                    LedgerModel::of(&exact, None).all_in_time(&exact, 1, 0, true),
                    "step {step}"
                );
                for slot in exact.slots() {
                    assert!(is_proved(&exact, slot), "step {step}");
                }
            }
        }
        exact.audit();
        exact.clear();
        bound.clear();
    }
    assert!(both > 1_000 && more > 500 && checked > 5_000, "{both} {more} {checked}");
}
