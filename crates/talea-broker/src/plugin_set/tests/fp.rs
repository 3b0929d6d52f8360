//! `fp` and `rr`: fewest tasks first, preserved order, invalid priorities from the wire.

use super::*;

#[test]
fn r17_tasks_go_to_the_cpu_with_the_fewest_and_keep_their_order() {
    let mut rng = Rng::new(17);
    for round in 0..40 {
        let count = *rng.pick(&[1, 2, 3, 40]);
        let list = format!("0-{}", count - 1);
        let (low, high) = *rng.pick(&[(1, 99), (50, 52), (7, 7), (10, 30)]);
        let kind =
            if round % 2 == 0 { fp("x", &list, low, high) } else { rr("x", &list, low, high) };
        let mut rig = Rig::new(Platform::declared(count), vec![kind]);
        let mut held: Vec<(SpecSlot, u32, u8)> = vec![];
        for _ in 0..150 {
            let tasks = |cpu| held.iter().filter(|&&(_, c, _)| c == cpu).count();
            if rng.chance(35) && !held.is_empty() {
                let (slot, ..) = held.swap_remove(rng.below(held.len() as u64) as usize);
                rig.plugin_set.release(slot, None);
                continue;
            }
            let priority = 1 + rng.below(99) as u8;
            let cpu = (0..count).min_by_key(|&cpu| (tasks(cpu), cpu)).unwrap();
            let slot = rig.create(0, &ask(&at_priority(priority))).unwrap();
            assert_eq!(rig.plugin_set.placement(slot).cpu, Some(cpu));
            held.push((slot, cpu, priority));
        }
        for cpu in 0..count {
            let here: Vec<_> = held.iter().filter(|&&(_, c, _)| c == cpu).collect();
            let mut distinct: Vec<u8> = here.iter().map(|&&(_, _, priority)| priority).collect();
            distinct.sort_unstable();
            distinct.dedup();
            let enough = distinct.len() <= usize::from(high - low) + 1;
            for &&(a, _, above) in &here {
                let a = rig.plugin_set.placement(a).priority;
                assert!(low <= a && a <= high);
                for &&(b, _, below) in here.iter().filter(|&&&(_, _, below)| below < above) {
                    let b = rig.plugin_set.placement(b);
                    assert!(
                        a > b.priority || (!enough && a == b.priority),
                        "{above} at {a}, {below} at {b:?}"
                    );
                    assert!(!enough || !b.notes.contains(Notes::LEVEL_SHARED));
                }
            }
        }
        rig.audit();
        rig.clear();
    }
}

#[test]
fn y22_with_common_levels_a_priority_has_one_level_on_all_cpus_under_insertions_and_removals() {
    let mut rng = Rng::new(22);
    for round in 0..40 {
        let count = *rng.pick(&[2, 3, 40]);
        let list = format!("0-{}", count - 1);
        let (low, high) = *rng.pick(&[(1, 99), (50, 52), (7, 7), (10, 30)]);
        let options = FpOptions { levels: FpLevels::Common, ..FpOptions::default() };
        let kind = if round % 2 == 0 { PluginKind::Fp(options) } else { PluginKind::Rr(options) };
        let mut rig =
            Rig::new(Platform::declared(count), vec![plugin("x", &list, band(low, high), kind)]);
        let mut held: Vec<(SpecSlot, u8)> = vec![];
        for _ in 0..100 {
            match rng.below(3) {
                0 if !held.is_empty() => {
                    let (slot, _) = held.swap_remove(rng.below(held.len() as u64) as usize);
                    rig.plugin_set.release(slot, None);
                }
                1 if !held.is_empty() => {
                    let at = rng.below(held.len() as u64) as usize;
                    let priority = 1 + rng.below(99) as u8;
                    rig.change(held[at].0, 0, &ask(&at_priority(priority)), None).unwrap();
                    held[at].1 = priority;
                }
                _ => {
                    let priority = 1 + rng.below(99) as u8;
                    let allowed = CpuSet::single(rng.below(u64::from(count)) as u32);
                    let slot = rig
                        .create(0, &PluginRequest { allowed, ..ask(&at_priority(priority)) })
                        .unwrap();
                    held.push((slot, priority));
                }
            }
            let mut distinct: Vec<u8> = held.iter().map(|&(_, priority)| priority).collect();
            distinct.sort_unstable();
            distinct.dedup();
            let enough = distinct.len() <= usize::from(high - low) + 1;
            for &(a, above) in &held {
                let a = rig.plugin_set.placement(a).priority;
                assert!(low <= a && a <= high);
                for &(b, below) in held.iter().filter(|&&(_, below)| below <= above) {
                    let b = rig.plugin_set.placement(b).priority;
                    let is = if above == below { a == b } else { a > b || (!enough && a == b) };
                    assert!(is, "{above} at {a}, {below} at {b}");
                }
            }
        }
        rig.audit();
        rig.clear();
    }
}

#[test]
fn y22_common_levels_are_counted_over_all_cpus() {
    let options = FpOptions { refuse_sharing: true, levels: FpLevels::Common };
    let kind = plugin("fp", "0-1", band(10, 12), PluginKind::Fp(options));
    let mut rig = Rig::new(Platform::declared(2), vec![kind]);
    let on = |cpu| move |priority| (CpuSet::single(cpu), at_priority(priority));
    let slots: Vec<SpecSlot> = [on(0)(50), on(1)(51), on(0)(52), on(1)(50)]
        .iter()
        .map(|(allowed, params)| {
            rig.create(0, &PluginRequest { allowed: *allowed, ..ask(params) }).unwrap()
        })
        .collect();
    // A fourth priority has no level on any CPU; an existing one has.
    let (allowed, params) = on(1)(40);
    let no = rig.create(0, &PluginRequest { allowed, ..ask(&params) }).unwrap_err();
    assert_eq!(
        (no.reason, no.field, no.asked, no.limit),
        (RejectionReason::NoLevel, Field::Levels, 4, 3)
    );
    // A thread that moves to another CPU leaves its level unshared.
    let (allowed, params) = on(1)(40);
    rig.change(slots[2], 0, &PluginRequest { allowed, ..ask(&params) }, None).unwrap();
    let levels: Vec<u8> =
        slots.iter().map(|&slot| rig.plugin_set.placement(slot).priority).collect();
    assert!(
        slots.iter().all(|&slot| rig
            .plugin_set
            .placement(slot)
            .notes
            .contains(Notes::COMMON_LEVELS)),
        "it is said"
    );
    assert!(levels[1] > levels[0] && levels[0] == levels[3] && levels[0] > levels[2], "{levels:?}");
    rig.clear();
}

#[test]
fn r17_attributes_are_fifo_or_rr_on_one_cpu_and_reset_on_fork() {
    let mut rig =
        Rig::new(Platform::declared(2), vec![fp("fp", "1", 10, 20), rr("rr", "0", 30, 40)]);
    let one = rig.create(0, &ask(&at_priority(99))).unwrap();
    let two = rig.create(1, &ask(&at_priority(1))).unwrap();
    let attr = rig.plugin_set.attr(one);
    assert!(matches!(attr.policy, talea_core::Policy::Fifo(Priority(10..=20))));
    assert_eq!((attr.cpus, attr.reset_on_fork), (cpus("1"), true));
    assert!(matches!(rig.plugin_set.attr(two).policy, talea_core::Policy::Rr(Priority(30..=40))));
    let placed = rig.plugin_set.placement(two);
    assert_eq!(
        (placed.mechanism, placed.cpu, placed.charge),
        (Mechanism::Rr, Some(0), Charge::ZERO)
    );
    assert!(placed.notes.contains(Notes::NOT_PROVED.with(Notes::BUDGET_NOT_ENFORCED)));
    assert!(!placed.notes.contains(Notes::COMMON_LEVELS), "each CPU has its own");
    rig.clear();
}

#[test]
fn r17_sharing_can_be_refused() {
    let options = FpOptions { refuse_sharing: true, ..FpOptions::default() };
    let kind = plugin("fp", "0-1", band(1, 2), PluginKind::Fp(options));
    let mut rig = Rig::new(Platform::declared(2), vec![kind]);
    // Two levels on two CPUs: four distinct priorities, then equal ones only.
    let slots: Vec<SpecSlot> =
        [10, 20, 30, 40].map(|p| rig.create(0, &ask(&at_priority(p))).unwrap()).into();
    let no = rig.create(0, &ask(&at_priority(50))).unwrap_err();
    assert_eq!(
        (no.reason, no.field, no.asked, no.limit),
        (RejectionReason::NoLevel, Field::Levels, 3, 2)
    );
    assert!(
        rig.create(0, &PluginRequest { ignore_admission: true, ..ask(&at_priority(50)) }).is_err(),
        "the rejection is not a test result"
    );
    // 10 and 30 are on CPU 0: an equal priority is placed where it need not be shared.
    let equal = rig.create(0, &ask(&at_priority(20))).unwrap();
    assert_eq!(rig.plugin_set.placement(equal).cpu, Some(1));
    // A change frees its own level first.
    rig.change(slots[0], 0, &ask(&at_priority(50)), None).unwrap();
    assert_eq!(rig.plugin_set.placement(slots[0]).cpu, Some(0));
    rig.clear();
}

#[test]
fn retif_w5_running_rr_threads_keep_the_requested_order() {
    let mut rig = Rig::new(Platform::declared(1), vec![rr("rr", "0", 1, 3)]);
    let mut applied: Vec<(SpecSlot, u8, u8)> = vec![];
    for priority in [50, 10, 30] {
        let slot = rig.create(0, &ask(&at_priority(priority))).unwrap();
        for moved in rig.moved() {
            let entry = applied.iter_mut().find(|(slot, ..)| *slot == moved).unwrap();
            entry.2 = rig.plugin_set.placement(moved).priority;
        }
        applied.push((slot, priority, rig.attach(slot)));
    }
    applied.sort_unstable_by_key(|&(_, priority, _)| priority);
    assert_eq!(applied.iter().map(|&(_, _, applied)| applied).collect::<Vec<_>>(), [1, 2, 3]);
    rig.clear();
}

#[test]
fn retif_m2_priorities_from_the_wire_index_nothing() {
    let rig = Rig::new(Platform::declared(1), vec![fp("fp", "0", 1, 99), rr("rr", "0", 1, 99)]);
    for plugin in [0, 1] {
        for (priority, nearest) in [(0, 1), (100, 99), (200, 99), (255, 99)] {
            let no = refused(rig.plugin_set.ask(plugin, &ask(&at_priority(priority)), None));
            assert_eq!(
                (no.reason, no.field, no.fits),
                (RejectionReason::OutOfRange, Field::Priority, nearest)
            );
        }
        for priority in [1, 99] {
            assert!(
                offered(&rig.plugin_set.ask(plugin, &ask(&at_priority(priority)), None)).is_some()
            );
        }
    }
}

#[test]
fn a_platform_without_fifo_is_reported() {
    let platform = Platform { fifo: false, ..Platform::declared(1) };
    let plugins = vec![fp("fp", "0", 1, 9), rm("rm", "0", 10, 19, RmTest::Hyperbolic)];
    let rig = Rig::new(platform, plugins);
    assert_eq!(
        refused(rig.plugin_set.ask(0, &ask(&at_priority(5)), None)).reason,
        RejectionReason::Unsupported
    );
    assert_eq!(
        refused(rig.plugin_set.ask(1, &ask(&periodic(MS, 10_000)), None)).reason,
        RejectionReason::Unsupported
    );
}
