//! `edf`: worst fit, thresholds, desired runtimes, the kernel's limits.

use super::*;
use std::collections::BTreeSet;

/// Multiple of every span used below, so that loads are integers.
const L: u64 = 720_720 * 1_000;

#[test]
fn r13_worst_fit_equals_the_reference_model_on_a_hundred_thousand_requests() {
    let mut rng = Rng::new(13);
    let divisors: Vec<u64> =
        (1..=1_001).filter(|d| L.is_multiple_of(*d) && L / d >= 720_720).collect();
    let (mut asked, mut accepted, mut exactly) = (0, 0, 0);
    while asked < 100_000 {
        let count = *rng.pick(&[1, 1, 2, 3, 4, 8, 20, 64]);
        let tenths = 5 + rng.below(6);
        let platform = Platform { deadline_share: Charge::ONE, ..pinnable(count) };
        let threshold = Some(Charge::ratio(tenths, 10));
        let list = format!("0-{}", count - 1);
        let mut rig = Rig::new(platform, vec![edf("edf", &list, Confine::Auto, threshold)]);
        // Reference model: per CPU the load in parts of L, and the number of tasks.
        let limit = L * tenths / 10;
        let mut loads: Vec<(u64, u32)> = vec![(0, 0); count as usize];
        let mut held: Vec<(SpecSlot, usize, u64)> = vec![];
        for _ in 0..400 {
            asked += 1;
            if rng.chance(35) && !held.is_empty() {
                let (slot, cpu, load) = held.swap_remove(rng.below(held.len() as u64) as usize);
                rig.plugin_set.release(slot, None);
                loads[cpu] = (loads[cpu].0 - load, loads[cpu].1 - 1);
                continue;
            }
            let span = L / rng.pick(&divisors);
            let runtime = (span / (1 + rng.below(20))).max(RUNTIME_MIN);
            let params = periodic(span, runtime);
            let load = runtime * (L / span);
            let least = loads.iter().map(|&(load, _)| load).min().unwrap();
            let fits = least + load <= limit;
            match rig.create(0, &ask(&params)) {
                Ok(slot) => {
                    assert!(fits, "{load} of {L} accepted beside {loads:?}");
                    // The choice among equally loaded CPUs depends on rounding.
                    let cpu = rig.plugin_set.placement(slot).cpu.unwrap() as usize;
                    assert_eq!(loads[cpu].0, least, "not the least loaded CPU");
                    loads[cpu] = (loads[cpu].0 + load, loads[cpu].1 + 1);
                    exactly += u32::from(loads[cpu].0 == limit);
                    accepted += 1;
                    held.push((slot, cpu, load));
                }
                Err(no) => {
                    assert!(!fits, "{load} of {L} refused beside {loads:?}: {no:?}");
                    assert_eq!(
                        (no.reason, no.field),
                        (RejectionReason::NoRoom, Field::Utilization)
                    );
                    assert_eq!(
                        loads[no.cpu.unwrap() as usize].0,
                        least,
                        "the CPU where the request is closest to fitting"
                    );
                    let free = u128::from(limit - least) * 1_000_000 / u128::from(L);
                    assert_eq!((no.limit, u128::from(no.fits)), (tenths * 100_000, free));
                }
            }
        }
        rig.audit();
        rig.clear();
    }
    assert!(
        accepted > 20_000 && exactly > 100,
        "{accepted} accepted, {exactly} filled a CPU exactly"
    );
}

/// Minimum runtime of `SCHED_DEADLINE`, in nanoseconds.
const RUNTIME_MIN: u64 = 1024;

#[test]
fn r13_ties_of_rounded_loads_do_not_affect_acceptance() {
    // Three tasks of a third: as charges they sum to slightly more than one CPU.
    let platform = Platform { deadline_share: Charge::ONE, ..pinnable(1) };
    let mut rig = Rig::new(platform, vec![edf("edf", "0", Confine::Auto, None)]);
    for _ in 0..3 {
        rig.create(0, &ask(&periodic(3 * MS, MS))).unwrap();
    }
    let no = rig.create(0, &ask(&periodic(4_000 * MS, RUNTIME_MIN))).unwrap_err();
    assert_eq!((no.reason, no.fits), (RejectionReason::NoRoom, 0));
    rig.clear();
}

#[test]
fn r8_the_accepted_runtime_is_the_formula_s_for_all_small_cases() {
    // Unit 10 us, T = 100 units; other load, Q, Q^d, D and the rules' bounds in units.
    const UNIT: u64 = 10_000;
    let threshold = 90;
    for other in (0..=90).step_by(15) {
        for runtime in [1, 10, 31, 60] {
            for desired in [0, 10, 31, 45, 90, 100] {
                for deadline in [60, 100] {
                    for (max_runtime, max_share) in
                        [(None, None), (Some(40), None), (None, Some(35)), (Some(33), Some(50))]
                    {
                        if (desired != 0 && desired < runtime) || runtime > deadline {
                            continue;
                        }
                        let mut rig =
                            Rig::new(pinnable(1), vec![edf("edf", "0", Confine::Auto, None)]);
                        if other > 0 {
                            rig.create(0, &ask(&periodic(100 * UNIT, other * UNIT))).unwrap();
                        }
                        let params = Params {
                            desired: (desired != 0).then_some(Work::from_ns(desired * UNIT)),
                            deadline: Some(Span::from_ns(deadline * UNIT)),
                            ..periodic(100 * UNIT, runtime * UNIT)
                        };
                        let cap = RuntimeCap {
                            runtime: max_runtime.map(|max| Work::from_ns(max * UNIT)),
                            charge: max_share.map(|max| Charge::ratio(max, 100)),
                        };
                        // In nanoseconds: Q^a = max(Q, min(Q^d, free · min(T, D))), clipped.
                        let free = (threshold - other) * deadline * UNIT / 100;
                        let clipped = [
                            Some(desired.max(runtime) * UNIT),
                            Some(free),
                            max_runtime.map(|max| max * UNIT),
                            max_share.map(|max| max * deadline * UNIT / 100),
                            Some(deadline * UNIT),
                        ];
                        let dense = runtime * 100 > (threshold - other) * deadline;
                        let most = clipped.into_iter().flatten().min().unwrap().max(runtime * UNIT);
                        let expected = if dense { runtime * UNIT } else { most };
                        let verdict = rig.create(0, &PluginRequest { cap, ..ask(&params) });
                        let own =
                            |at: u64| if at < deadline { 0 } else { (at - deadline) / 100 + 1 };
                        let due = |at: u64| own(at) * runtime + at / 100 * other;
                        if (1..2_000).any(|at| due(at) * 100 > threshold * at) {
                            assert!(dense, "the sum accepts what does not fit: {params:?} {other}");
                            assert_eq!(verdict.unwrap_err().reason, RejectionReason::NoRoom);
                            continue;
                        }
                        let placed = rig.plugin_set.placement(verdict.unwrap());
                        assert_eq!(
                            placed.runtime,
                            Some(Work::from_ns(expected)),
                            "{params:?} {cap:?} {other}"
                        );
                        assert_eq!(placed.charge, Charge::ratio(expected, deadline * UNIT));
                        let less = desired != 0 && expected < desired * UNIT;
                        assert_eq!(placed.notes.contains(Notes::BELOW_DESIRED), less);
                        rig.clear();
                    }
                }
            }
        }
    }
}

#[test]
fn r8_the_accepted_runtime_changes_only_on_the_task_s_own_request() {
    let mut rig = Rig::new(pinnable(1), vec![edf("edf", "0", Confine::Auto, None)]);
    let other = rig.create(0, &ask(&periodic(10 * MS, 5 * MS))).unwrap();
    let elastic = Params { desired: Some(Work::from_ns(8 * MS)), ..periodic(10 * MS, MS) };
    let slot = rig.create(0, &ask(&elastic)).unwrap();
    assert_eq!(
        rig.plugin_set.placement(slot).runtime,
        Some(Work::from_ns(4 * MS)),
        "the rest of 90 %"
    );
    rig.plugin_set.release(other, None);
    assert_eq!(rig.plugin_set.placement(slot).runtime, Some(Work::from_ns(4 * MS)));
    rig.change(slot, 0, &ask(&elastic), None).unwrap();
    assert_eq!(
        rig.plugin_set.placement(slot).runtime,
        Some(Work::from_ns(8 * MS)),
        "its own share counts as free"
    );
    rig.clear();
}

#[test]
fn retif_w8_the_ledger_counts_the_granted_runtime() {
    // Two tasks of 10 % with a desired 90 %: the first gets it, the second finds no capacity.
    let mut rig = Rig::new(pinnable(1), vec![edf("edf", "0", Confine::Auto, None)]);
    let greedy = Params { desired: Some(Work::from_ns(9 * MS)), ..periodic(10 * MS, MS) };
    let slot = rig.create(0, &ask(&greedy)).unwrap();
    assert_eq!(rig.plugin_set.placement(slot).charge, Charge::ratio(9, 10));
    assert_eq!(rig.create(0, &ask(&greedy)).unwrap_err().reason, RejectionReason::NoRoom);
    rig.clear();
}

#[test]
fn retif_w7_an_empty_cpu_is_found_and_none_is_overloaded() {
    // ReTiF placed 70 % on a CPU with 50 % while another CPU was empty.
    let threshold = Some(Charge::ONE);
    let platform = Platform { deadline_share: Charge::ONE, ..pinnable(4) };
    let mut rig = Rig::new(platform, vec![edf("edf", "0-3", Confine::Auto, threshold)]);
    for percent in [60, 1, 50] {
        rig.create(0, &ask(&periodic(100 * MS, percent * MS))).unwrap();
    }
    let slot = rig.create(0, &ask(&periodic(100 * MS, 70 * MS))).unwrap();
    assert_eq!(rig.plugin_set.placement(slot).cpu, Some(3));
    let mut rng = Rng::new(7);
    while rig.create(0, &ask(&periodic(100 * MS, (5 + rng.below(56)) * MS))).is_ok() {}
    for index in 0..4 {
        assert!(rig.plugin_set.cpu_info(0, index).unwrap().used <= Charge::ONE);
    }
    rig.clear();
}

#[test]
fn retif_w9_long_periods_are_counted_as_they_are() {
    // 2^31 + 10 us with 2·10^9 us of runtime made the utilization in ReTiF negative.
    let platform = Platform {
        deadline_period: (Span::from_ns(100_000), Span::from_ns(u64::MAX)),
        ..pinnable(1)
    };
    let mut rig = Rig::new(platform, vec![edf("edf", "0", Confine::Auto, Some(Charge::ONE))]);
    let long = periodic(((1 << 31) + 10) * 1_000, 1_800_000_000_000);
    rig.create(0, &ask(&long)).unwrap();
    assert!(rig.plugin_set.cpu_info(0, 0).unwrap().used > Charge::ratio(8, 10));
    assert_eq!(
        rig.create(0, &ask(&periodic(10 * MS, 2 * MS))).unwrap_err().reason,
        RejectionReason::NoRoom
    );
    rig.clear();
}

#[test]
fn retif_w11_the_configured_threshold_applies() {
    for percent in [10, 50, 89, 95, 100] {
        let threshold = Some(Charge::ratio(percent, 100));
        let rig = Rig::new(pinnable(1), vec![edf("edf", "0", Confine::Auto, threshold)]);
        for asked in 1..=100 {
            let said = rig.plugin_set.ask(0, &ask(&periodic(100 * MS, asked * MS)), None);
            // Never above the kernel's own 90 %, whatever is configured.
            assert_eq!(offered(&said).is_some(), asked <= percent.min(90), "{asked} of {percent}");
        }
    }
}

#[test]
fn r12_what_linux_would_refuse_is_refused_at_create() {
    let rig = Rig::new(pinnable(1), vec![edf("edf", "0", Confine::Auto, None)]);
    let with_deadline =
        |deadline| Params { deadline: Some(Span::from_ns(deadline)), ..periodic(10 * MS, MS) };
    let cases = [
        (
            with_deadline(10 * MS + 1),
            RejectionReason::Contradiction,
            Field::Deadline,
            10 * MS + 1,
            10 * MS,
        ),
        (
            periodic(10 * MS, RUNTIME_MIN - 1),
            RejectionReason::OutOfRange,
            Field::Runtime,
            RUNTIME_MIN - 1,
            RUNTIME_MIN,
        ),
        (periodic(99_999, 2_000), RejectionReason::OutOfRange, Field::Period, 99_999, 100_000),
        (
            periodic(4_194_304_001, 2_000),
            RejectionReason::OutOfRange,
            Field::Period,
            4_194_304_001,
            4_194_304_000,
        ),
    ];
    for (params, reason, field, asked, limit) in cases {
        let no = refused(rig.plugin_set.ask(0, &ask(&params), None));
        assert_eq!(
            (no.reason, no.field, no.asked, no.limit, no.fits),
            (reason, field, asked, limit, limit)
        );
    }
    for params in [
        with_deadline(10 * MS),
        // The kernel accepts a deadline below the minimum period.
        Params { deadline: Some(Span::from_ns(50_000)), ..periodic(100_000, RUNTIME_MIN) },
        periodic(4_194_304_000, RUNTIME_MIN),
    ] {
        assert!(offered(&rig.plugin_set.ask(0, &ask(&params), None)).is_some(), "{params:?}");
    }
}

#[test]
fn r14_an_ignored_test_gives_the_least_runtime_up_to_the_kernel_s_own_limit() {
    let half = Some(Charge::ratio(1, 2));
    let mut rig = Rig::new(pinnable(2), vec![edf("edf", "0-1", Confine::Auto, half)]);
    let greedy = Params { desired: Some(Work::from_ns(9 * MS)), ..periodic(10 * MS, 4 * MS) };
    let ignoring = |params| PluginRequest { ignore_admission: true, ..ask(params) };
    // A test that passes is not ignored.
    let first = rig.create(0, &ignoring(&greedy)).unwrap();
    assert_eq!(rig.plugin_set.placement(first).runtime, Some(Work::from_ns(5 * MS)));
    assert!(!rig.plugin_set.placement(first).notes.contains(Notes::ADMISSION_IGNORED));
    let second = rig.create(0, &ignoring(&greedy)).unwrap();
    assert_eq!(rig.plugin_set.placement(second).cpu, Some(1));
    // 50 % + 40 % on a CPU with a threshold of 50 %: accepted with Q, and the other task gets a
    // note.
    assert_eq!(rig.create(0, &ask(&greedy)).unwrap_err().reason, RejectionReason::NoRoom);
    let third = rig.create(0, &ignoring(&greedy)).unwrap();
    let placed = rig.plugin_set.placement(third);
    assert_eq!((placed.cpu, placed.runtime), (Some(0), Some(Work::from_ns(4 * MS))));
    assert!(
        placed
            .notes
            .contains(Notes::ADMISSION_IGNORED.with(Notes::NOT_PROVED).with(Notes::BELOW_DESIRED))
    );
    assert!(rig.plugin_set.placement(first).notes.contains(Notes::NOT_PROVED));
    assert!(!rig.plugin_set.placement(second).notes.contains(Notes::NOT_PROVED));
    // 90 % is the kernel's limit: one more fits on CPU 1; the next would be refused at attach, so
    // it is rejected now.
    rig.create(0, &ignoring(&greedy)).unwrap();
    let no = rig.create(0, &ignoring(&greedy)).unwrap_err();
    assert_eq!((no.reason, no.limit), (RejectionReason::NoRoom, 900_000));
    rig.plugin_set.release(third, None);
    assert!(!rig.plugin_set.placement(first).notes.contains(Notes::NOT_PROVED));
    rig.clear();
}

#[test]
fn r36_bandwidth_becomes_free_at_the_zero_lag_time_and_not_before() {
    let mut rig = Rig::new(pinnable(1), vec![edf("edf", "0", Confine::Auto, None)]);
    let (a, b) = (periodic(10 * MS, 5 * MS), periodic(10 * MS, 4 * MS));
    let slot = rig.create(0, &ask(&a)).unwrap();
    rig.attach(slot);
    let zero_lag = Monotonic::from_ns(70 * MS);
    rig.plugin_set.release(slot, Some(zero_lag));
    assert_eq!(
        (rig.plugin_set.info(0).specs, rig.plugin_set.cpu_info(0, 0).unwrap().specs),
        (0, 0),
        "the spec itself is gone"
    );
    assert_eq!(rig.plugin_set.cpu_info(0, 0).unwrap().used, Charge::ratio(1, 2));
    rig.create(0, &ask(&b)).unwrap();
    assert_eq!(rig.create(0, &ask(&b)).unwrap_err().fits, 0);
    assert_eq!(rig.plugin_set.next_expiry(), Some(zero_lag));
    let epoch = rig.plugin_set.epoch();
    rig.plugin_set.release_expired(Monotonic::from_ns(70 * MS - 1));
    assert_eq!((rig.create(0, &ask(&b)).is_ok(), rig.plugin_set.epoch()), (false, epoch));
    rig.audit();
    rig.plugin_set.release_expired(zero_lag);
    assert_ne!(rig.plugin_set.epoch(), epoch, "answers have changed");
    rig.create(0, &ask(&b)).unwrap();
    assert_eq!(rig.plugin_set.next_expiry(), None);
    rig.clear();
}

#[test]
fn r36_a_changed_task_may_reuse_its_share_at_once_and_other_tasks_may_not() {
    let plugins = vec![edf("edf", "0-1", Confine::Auto, None), fp("fp", "0-1", 1, 9)];
    let mut rig = Rig::new(pinnable(2), plugins);
    let until = Some(Monotonic::from_ns(90 * MS));
    let slot = rig.create(0, &ask(&periodic(10 * MS, 6 * MS))).unwrap();
    let used = |rig: &Rig, index| rig.plugin_set.cpu_info(0, index).unwrap().used.ppm();
    // Smaller on the same CPU: the difference is held.
    rig.change(slot, 0, &ask(&periodic(10 * MS, 2 * MS)), until).unwrap();
    assert_eq!(used(&rig, 0), 600_000);
    rig.plugin_set.release_expired(Monotonic::from_ns(90 * MS));
    assert_eq!(used(&rig, 0), 200_000);
    // To another CPU: the whole charge is held.
    let params = periodic(10 * MS, 3 * MS);
    rig.change(slot, 0, &PluginRequest { allowed: cpus("1"), ..ask(&params) }, until).unwrap();
    assert_eq!((used(&rig, 0), used(&rig, 1)), (200_000, 300_000));
    // To another plugin: the whole charge is held.
    rig.plugin_set.release_expired(Monotonic::NEVER);
    let low = at_priority(3);
    rig.change(slot, 1, &ask(&low), until).unwrap();
    assert_eq!((used(&rig, 0), used(&rig, 1)), (0, 300_000));
    rig.audit();
    rig.clear();
}

#[test]
fn global_edf_charges_the_domain_by_the_test_of_goossens_funk_and_baruah() {
    let mut rig = Rig::new(Platform::declared(2), vec![edf("edf", "0-1", Confine::Auto, None)]);
    let slot = rig.create(0, &ask(&periodic(10 * MS, 6 * MS))).unwrap();
    let placed = rig.plugin_set.placement(slot);
    assert_eq!((placed.cpu, placed.mechanism), (None, Mechanism::DeadlineGlobal));
    assert_eq!(rig.plugin_set.attr(slot).cpus, cpus("0-1"), "the whole domain");
    // 2 · 0.9 − 0.6 − 0.6 leaves 0.6.
    assert_eq!(rig.plugin_set.cpu_info(0, 0).unwrap().free.ppm_down(), 600_000);
    let no = refused(rig.plugin_set.ask(0, &ask(&periodic(100 * MS, 61 * MS)), None));
    assert_eq!((no.reason, no.cpu, no.fits), (RejectionReason::NoRoom, None, 600_000));
    let second = rig.create(0, &ask(&periodic(100 * MS, 60 * MS))).unwrap();
    assert_eq!(rig.create(0, &ask(&periodic(1_000 * MS, MS))).unwrap_err().fits, 0);
    rig.plugin_set.release(slot, Some(Monotonic::from_ns(5)));
    assert!(
        rig.create(0, &ask(&periodic(1_000 * MS, MS))).is_err(),
        "the zero-lag hold remains in the domain"
    );
    rig.plugin_set.release_expired(Monotonic::from_ns(5));
    rig.change(second, 0, &ask(&periodic(10 * MS, 9 * MS)), None).unwrap();
    rig.clear();
}

#[test]
fn r13_global_edf_equals_exact_arithmetic_on_random_requests() {
    let mut rng = Rng::new(131);
    let (mut yes, mut no) = (0, 0);
    for _ in 0..60 {
        let count = 1 + rng.below(8) as u32;
        let list = format!("0-{}", count - 1);
        let mut rig =
            Rig::new(Platform::declared(count), vec![edf("edf", &list, Confine::Global, None)]);
        for _ in 0..120 {
            let slots = rig.slots();
            if rng.chance(30) && !slots.is_empty() {
                rig.plugin_set.release(*rng.pick(&slots), None);
                continue;
            }
            // Tenths and twentieths, so that the bound is sometimes met exactly.
            let period = *rng.pick(&[10, 20, 40]);
            let params = periodic(period * MS, (1 + rng.below(period * 6 / 10)) * MS);
            let leaving = slots.first().copied().filter(|_| rng.chance(20));
            let fits = plain::expected(&rig, 0, &ask(&params), leaving).is_some();
            assert_eq!(
                offered(&rig.plugin_set.ask(0, &ask(&params), leaving)).is_some(),
                fits,
                "{params:?}"
            );
            *if fits { &mut yes } else { &mut no } += 1;
            if fits && leaving.is_none() {
                rig.create(0, &ask(&params)).unwrap();
            }
        }
        rig.audit();
        rig.clear();
    }
    assert!(yes > 800 && no > 800, "{yes} {no}");
}

#[test]
fn the_confinement_of_edf_depends_on_the_platform() {
    let said = |confine, list: &str, platform: &Platform| {
        let rig = Rig::new(platform.clone(), vec![edf("edf", list, confine, None)]);
        match rig.plugin_set.ask(0, &ask(&periodic(10 * MS, MS)), None) {
            Verdict::Ok(offer) => Ok(offer.cpu),
            other => Err(refused(other).reason),
        }
    };
    let plain = Platform::declared(4);
    assert_eq!(said(Confine::Auto, "0-3", &plain), Ok(None), "a whole domain");
    assert_eq!(
        said(Confine::Auto, "1-2", &plain),
        Err(RejectionReason::Unsupported),
        "part of a domain"
    );
    assert_eq!(said(Confine::Partition, "1-2", &plain), Ok(Some(1)), "opted in");
    let v2 = Platform { partitionable: cpus("2-3"), ..plain.clone() };
    assert_eq!(said(Confine::Auto, "2-3", &v2), Ok(Some(2)));
    assert_eq!(said(Confine::Auto, "0,3", &v2), Ok(Some(3)), "only on a CPU that confines");
    assert_eq!(said(Confine::Global, "0-3", &v2), Ok(None));
    assert_eq!(said(Confine::Global, "2-3", &v2), Err(RejectionReason::Unsupported));
    let split = Platform { root_domains: vec![cpus("0-2"), cpus("3")], ..plain };
    assert_eq!(
        said(Confine::Auto, "3", &split),
        Ok(Some(3)),
        "a domain of one CPU confines as it is"
    );
    assert_eq!(said(Confine::Auto, "0-2", &split), Ok(None));
    let pinned_kinds: BTreeSet<bool> = [pinnable(1), Platform::declared(2)]
        .map(|platform| {
            let list = format!("0-{}", platform.cpus.len() - 1);
            let mut rig = Rig::new(platform, vec![edf("edf", &list, Confine::Auto, None)]);
            let slot = rig.create(0, &ask(&periodic(10 * MS, MS))).unwrap();
            assert_eq!(rig.plugin_set.placement(slot).granularity, Span::from_ns(4 * MS));
            rig.plugin_set.placement(slot).mechanism == Mechanism::DeadlinePinned
        })
        .into();
    assert_eq!(pinned_kinds.len(), 2);
}
