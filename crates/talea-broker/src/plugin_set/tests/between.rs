//! Obligations between plugins on the same CPUs (R31).

use super::*;

/// Unit of the random sets, in nanoseconds: above the kernel's minimum.
const UNIT: u64 = 100_000;

#[test]
fn r31_edf_counts_the_charges_of_other_plugins_on_its_cpus() {
    let plugins =
        vec![edf("edf", "0-1", Confine::Auto, None), rm("rm", "0-1", 50, 99, RmTest::Hyperbolic)];
    let mut rig = Rig::new(pinnable(2), plugins);
    let on_0 = periodic(10 * MS, 5 * MS);
    rig.create(1, &PluginRequest { allowed: cpus("0"), ..ask(&on_0) }).unwrap();
    // The CPU without the rm task is the least loaded one; on the other only 40 % are left.
    let slot = rig.create(0, &ask(&periodic(10 * MS, 5 * MS))).unwrap();
    assert_eq!(rig.plugin_set.placement(slot).cpu, Some(1));
    let params = periodic(100 * MS, 41 * MS);
    let no =
        refused(rig.plugin_set.ask(0, &PluginRequest { allowed: cpus("0"), ..ask(&params) }, None));
    assert_eq!((no.reason, no.fits), (RejectionReason::NoRoom, 400_000));
    rig.clear();
}

#[test]
fn r31_tasks_that_outrank_rm_may_not_break_its_guarantees() {
    let plugins = vec![
        edf("edf", "0", Confine::Auto, None),
        fp("high", "0", 80, 99),
        rm("rm", "0", 40, 79, RmTest::Hyperbolic),
        fp("low", "0", 1, 39),
    ];
    let mut rig = Rig::new(pinnable(1), plugins);
    let slot = rig.create(2, &ask(&periodic(10 * MS, 5 * MS))).unwrap();
    // 3/2 · (1 + U) ≤ 2 leaves a third to a shorter task above.
    let (fits, breaks) = (periodic(5 * MS, 5 * MS / 3), periodic(5 * MS, 5 * MS / 3 + 1));
    let urgent = |params| Params { priority: Some(Priority(50)), ..params };
    for plugin in [0, 1] {
        let (fits, breaks) = (urgent(fits), urgent(breaks));
        let no = refused(rig.plugin_set.ask(plugin, &ask(&breaks), None));
        assert_eq!(
            (no.reason, no.cpu, no.fits),
            (RejectionReason::WouldBreakOthers, Some(0), 333_333),
            "plugin {plugin}"
        );
        assert!(offered(&rig.plugin_set.ask(plugin, &ask(&fits), None)).is_some());
    }
    // A task with a longer period counts as if it had 10 ms: at most 5 ms of work are left, for any
    // period.
    let no = refused(rig.plugin_set.ask(0, &ask(&periodic(1_000 * MS, 6 * MS)), None));
    assert_eq!((no.reason, no.fits), (RejectionReason::WouldBreakOthers, 5_000));
    // Below, any task is accepted.
    let low = rig.create(3, &ask(&urgent(breaks))).unwrap();
    assert!(!rig.plugin_set.placement(slot).notes.contains(Notes::NOT_PROVED));
    // Above, an unknown runtime cannot be tested: the task is accepted, and rm's tasks become "not
    // proved".
    let unknown = rig.create(1, &ask(&at_priority(1))).unwrap();
    assert!(rig.plugin_set.placement(slot).notes.contains(Notes::NOT_PROVED));
    // Without a guarantee none can be broken.
    let heavy = rig.create(1, &ask(&urgent(periodic(5 * MS, 4 * MS)))).unwrap();
    rig.plugin_set.release(unknown, None);
    assert!(
        rig.plugin_set.placement(slot).notes.contains(Notes::NOT_PROVED),
        "the note is computed, not stored"
    );
    rig.plugin_set.release(heavy, None);
    assert!(!rig.plugin_set.placement(slot).notes.contains(Notes::NOT_PROVED));
    rig.plugin_set.release(low, None);
    // A desired runtime grows as far as the guarantee allows.
    let elastic = Params { desired: Some(Work::from_ns(9 * MS)), ..periodic(10 * MS, MS) };
    let slot = rig.create(0, &ask(&elastic)).unwrap();
    assert_eq!(rig.plugin_set.placement(slot).charge.ppm(), 400_000, "90 % less rm's 50 %");
    rig.change(
        slot,
        0,
        &ask(&Params { desired: Some(Work::from_ns(4 * MS)), ..periodic(5 * MS, MS) }),
        None,
    )
    .unwrap();
    assert_eq!(
        rig.plugin_set.placement(slot).charge.ppm(),
        333_334,
        "a third, to the nanosecond above"
    );
    rig.clear();
}

#[test]
fn r31_foreign_plugins_above_rm_may_not_break_its_guarantees() {
    let plugins = vec![foreign("own", "0-1", 80, 99), rm("rm", "0", 40, 79, RmTest::Hyperbolic)];
    let mut rig = Rig::new(Platform::declared(2), plugins);
    rig.create(1, &ask(&periodic(10 * MS, 5 * MS))).unwrap();
    let answer =
        |cpu| ForeignAnswer { epoch: 0, verdict: 1, cpu, priority: 90, ..ForeignAnswer::default() };
    let heavy = periodic(5 * MS, 2 * MS);
    let judged = |cpu, ignore_admission| {
        let ask = PluginRequest { ignore_admission, ..ask(&heavy) };
        rig.plugin_set.check_answer(0, &ask, &answer(cpu), None).unwrap()
    };
    let no = refused(judged(0, false));
    assert_eq!((no.reason, no.cpu, no.fits), (RejectionReason::WouldBreakOthers, Some(0), 333_333));
    assert!(offered(&judged(1, false)).is_some(), "CPU 1 has no rm");
    assert!(offered(&judged(0, true)).unwrap().notes.contains(Notes::ADMISSION_IGNORED));
}

#[test]
fn r31_bands_that_meet_in_one_level_do_not_tie() {
    // ReTiF's Listing 2: RM 50-99 above RR 1-50.
    let plugins = vec![rm("rm", "0", 50, 99, RmTest::Hyperbolic), rr("rr", "0", 1, 50)];
    let mut rig = Rig::new(Platform::declared(1), plugins);
    let slot = rig.create(0, &ask(&periodic(10 * MS, MS))).unwrap();
    for priority in 1..=99 {
        let below = rig.create(1, &ask(&at_priority(priority))).unwrap();
        assert!(rig.plugin_set.placement(below).priority < 50);
    }
    assert!(
        !rig.plugin_set.placement(slot).notes.contains(Notes::NOT_PROVED),
        "no task outranks it"
    );
    // Bands with a larger overlap are accepted as configured: both count as above each other.
    let plugins = vec![rm("rm", "0", 50, 99, RmTest::Hyperbolic), rr("rr", "0", 1, 60)];
    let mut rig = Rig::new(Platform::declared(1), plugins);
    let slot = rig.create(0, &ask(&periodic(10 * MS, MS))).unwrap();
    rig.create(1, &ask(&at_priority(1))).unwrap();
    assert!(rig.plugin_set.placement(slot).notes.contains(Notes::NOT_PROVED));
    rig.clear();
}

#[test]
fn r31_tasks_under_global_edf_count_on_every_cpu_of_their_domain() {
    let plugins =
        vec![edf("edf", "0-1", Confine::Auto, None), rm("rm", "0-1", 1, 99, RmTest::Hyperbolic)];
    let mut rig = Rig::new(Platform::declared(2), plugins);
    let slot = rig.create(1, &ask(&periodic(10 * MS, 5 * MS))).unwrap();
    // A third may be above; a part of a job may come from the other CPU, so half of that.
    let no = refused(rig.plugin_set.ask(0, &ask(&periodic(5 * MS, MS)), None));
    assert_eq!((no.reason, no.cpu, no.fits), (RejectionReason::WouldBreakOthers, None, 166_666));
    let global = rig.create(0, &ask(&periodic(5 * MS, MS / 2))).unwrap();
    let proved =
        |rig: &Rig, slot| !rig.plugin_set.placement(slot).notes.contains(Notes::NOT_PROVED);
    assert!(proved(&rig, slot));
    // 3/2 · 12/10 = 1.8 leaves a ninth on CPU 0; CPU 1 has 2/1.2 − 1.
    let no = refused(rig.plugin_set.ask(
        1,
        &PluginRequest { allowed: cpus("0"), ..ask(&periodic(100 * MS, 12 * MS)) },
        None,
    ));
    assert_eq!(no.fits, 111_111);
    let other = rig.create(1, &ask(&periodic(100 * MS, 66 * MS))).unwrap();
    assert_eq!(rig.plugin_set.placement(other).cpu, Some(1));
    rig.plugin_set.release(global, Some(Monotonic::from_ns(7)));
    let twelve = periodic(100 * MS, 12 * MS);
    assert!(
        rig.create(1, &PluginRequest { allowed: cpus("0"), ..ask(&twelve) }).is_err(),
        "the zero-lag hold remains"
    );
    rig.plugin_set.release_expired(Monotonic::from_ns(7));
    rig.create(1, &PluginRequest { allowed: cpus("0"), ..ask(&twelve) }).unwrap();
    rig.audit();
    rig.clear();
}

/// Returns a rig of up to four plugins with bands of all kinds on up to three CPUs.
fn random_rig(rng: &mut Rng, pinned: bool) -> Rig {
    let count = 1 + rng.below(3) as u32;
    let list = format!("0-{}", count - 1);
    let platform = if pinned { pinnable(count) } else { Platform::declared(count) };
    let mut plugins = vec![];
    let test = |rng: &mut Rng| {
        *rng.pick(&[
            RmTest::Hyperbolic,
            RmTest::Exact,
            RmTest::Exact,
            RmTest::LiuLayland,
            RmTest::Necessary,
        ])
    };
    if rng.chance(70) {
        plugins.push(edf(
            "edf",
            &list,
            Confine::Auto,
            rng.chance(30).then_some(Charge::ratio(7, 10)),
        ));
    }
    let bands = *rng.pick(&[
        [(60, 80), (40, 60), (20, 39)],
        [(10, 12), (10, 12), (1, 9)],
        [(5, 5), (6, 9), (1, 4)],
    ]);
    for (i, (low, high)) in bands.into_iter().enumerate() {
        let part = if rng.chance(70) { list.clone() } else { format!("{}", count - 1) };
        plugins.push(match rng.below(4) {
            0 => fp(&format!("fp{i}"), &part, low, high),
            1 => rr(&format!("rr{i}"), &part, low, high),
            _ => rm(&format!("rm{i}"), &part, low, high, test(rng)),
        });
    }
    Rig::new(platform, plugins)
}

fn random_params(rng: &mut Rng) -> Params {
    let period = *rng.pick(&[3, 4, 5, 6, 8, 10, 12]);
    let work = 1 + rng.below(period.min(4));
    let deadline =
        rng.chance(20).then(|| Span::from_ns((work + rng.below(period - work + 1)) * UNIT));
    Params {
        priority: rng.chance(60).then(|| Priority(1 + rng.below(99) as u8)),
        deadline,
        runtime: rng.chance(85).then(|| Work::from_ns(work * UNIT)),
        ..periodic(period * UNIT, UNIT)
    }
}

/// Executes `steps` random requests, and calls `look` after each.
fn play(
    rng: &mut Rng,
    rig: &mut Rig,
    steps: u32,
    mut look: impl FnMut(&Rig, &mut Rng),
) -> (u32, u32) {
    let (mut yes, mut no) = (0, 0);
    let mut now = 0;
    for _ in 0..steps {
        now += rng.below(3);
        rig.plugin_set.release_expired(Monotonic::from_ns(now));
        let slots = rig.slots();
        let free_at = rng.chance(50).then(|| Monotonic::from_ns(now + rng.below(8)));
        if rng.chance(25) && !slots.is_empty() {
            let slot = *rng.pick(&slots);
            let linger = free_at.filter(|_| rig.plugin_set.placement(slot).priority == 0);
            rig.plugin_set.release(slot, linger);
            continue;
        }
        let (params, plugin) = (random_params(rng), rng.below(rig.plugin_set.len() as u64) as u32);
        let leaving = slots.first().copied().filter(|_| rng.chance(20));
        let preferred = if rng.chance(20) {
            CpuSet::single(rig.platform.cpus.len() - 1)
        } else {
            CpuSet::EMPTY
        };
        let unlimited = ExactTestBudget::unlimited();
        let ask = PluginRequest {
            preferred,
            ignore_admission: rng.chance(4),
            exact_tests: Some(&unlimited),
            ..ask(&params)
        };
        let said = rig.plugin_set.ask(plugin, &ask, leaving);
        let (is_edf, missing) = match rig.setup.plugins[plugin as usize].kind {
            PluginKind::Edf(_) => (true, params.runtime.is_none()),
            PluginKind::Rm(_) => (false, false),
            _ => (false, params.priority.is_none()),
        };
        if missing {
            assert_eq!(refused(said).reason, RejectionReason::Missing);
            continue;
        }
        let expected = plain::expected(rig, plugin, &ask, leaving);
        if !ask.ignore_admission || expected.is_some() {
            let place = offered(&said).as_ref().map(plain::place_of);
            assert_eq!(
                place, expected,
                "{params:?} to {plugin} of {:?} for {leaving:?}",
                rig.setup.plugins
            );
        }
        *if expected.is_some() { &mut yes } else { &mut no } += 1;
        match (offered(&said), leaving) {
            (Some(offer), None) => {
                rig.admit(plugin, &ask, &offer);
            }
            (Some(_), Some(slot)) => {
                let linger =
                    free_at.filter(|_| is_edf && rig.plugin_set.placement(slot).priority == 0);
                rig.change(slot, plugin, &ask, linger).unwrap();
            }
            (None, _) => {}
        }
        look(rig, rng);
    }
    (yes, no)
}

#[test]
fn r31_every_answer_equals_the_reference_model_on_random_mixtures_of_plugins() {
    let mut rng = Rng::new(31);
    let (mut yes, mut no) = (0, 0);
    for round in 0..220 {
        let mut rig = random_rig(&mut rng, round % 3 != 0);
        let (y, n) = play(&mut rng, &mut rig, 60, |_, _| {});
        (yes, no) = (yes + y, no + n);
        rig.audit();
        rig.clear();
    }
    assert!(yes > 3_000 && no > 2_000, "{yes} {no}");
}

/// Task in the reference scheduler.
#[derive(Clone, Copy, Debug)]
struct Running {
    slot: SpecSlot,
    /// Kernel priority; `None` for EDF, which outranks all priorities.
    level: Option<u8>,
    work: u64,
    period: u64,
    deadline: u64,
    offset: u64,
    proved: bool,
}

/// Returns the first proved task that misses a deadline before `until`; all tasks share one CPU.
fn miss(tasks: &[Running], until: u64) -> Option<SpecSlot> {
    // Pending jobs: task, release, remaining work.
    let mut ready: Vec<(usize, u64, u64)> = vec![];
    for now in 0..until {
        for (i, task) in tasks.iter().enumerate() {
            if now >= task.offset && (now - task.offset).is_multiple_of(task.period) {
                ready.push((i, now, task.work));
            }
        }
        let late = ready
            .iter()
            .find(|&&(i, release, _)| tasks[i].proved && now >= release + tasks[i].deadline);
        if let Some(&(i, ..)) = late {
            return Some(tasks[i].slot);
        }
        let urgency = |&(i, release, _): &(usize, u64, u64)| match tasks[i].level {
            None => (0, release + tasks[i].deadline, i),
            Some(level) => (100 - u64::from(level), release, i),
        };
        let Some(next) = (0..ready.len()).min_by_key(|&k| urgency(&ready[k])) else { continue };
        ready[next].2 -= 1;
        if ready[next].2 == 0 {
            ready.swap_remove(next);
        }
    }
    None
}

#[test]
fn r31_proved_tasks_never_miss_a_deadline_when_executed() {
    let mut rng = Rng::new(3_131);
    let (mut proved, mut below) = (0, 0);
    for _ in 0..250 {
        let mut rig = random_rig(&mut rng, true);
        play(&mut rng, &mut rig, 25, |rig, rng| {
            for cpu in &rig.platform.cpus {
                let slots = rig
                    .slots()
                    .into_iter()
                    .filter(|slot| rig.plugin_set.placement(*slot).cpu == Some(cpu));
                let mut tasks: Vec<Running> = slots
                    .filter_map(|slot| {
                        let (entry, placed) =
                            (rig.plugin_set.at(slot), rig.plugin_set.placement(slot));
                        let units = |ns: u64| ns / UNIT;
                        let period = units(entry.params.period?.as_ns());
                        Some(Running {
                            slot,
                            level: (placed.priority > 0).then_some(placed.priority),
                            work: units(entry.runtime?.as_ns()),
                            period,
                            deadline: entry
                                .params
                                .deadline
                                .map_or(period, |deadline| units(deadline.as_ns())),
                            offset: rng.below(period),
                            proved: !placed.notes.contains(Notes::NOT_PROVED),
                        })
                    })
                    .collect();
                let claimed = tasks.iter().filter(|task| task.proved).count();
                proved += claimed;
                below += usize::from(claimed > 0 && tasks.iter().any(|task| task.level.is_none()));
                assert_eq!(miss(&tasks, 60), None, "{tasks:?}");
                for task in &mut tasks {
                    task.offset = 0;
                }
                assert_eq!(miss(&tasks, 60), None, "{tasks:?}");
            }
        });
    }
    assert!(proved > 3_000 && below > 500, "{proved} {below}");
}
