//! Foreign plugins under FIFO and RR that place a task on all their CPUs.

use super::life::record;
use super::*;

const OWN: u32 = 2;

/// Returns three plugins on all CPUs, of which the foreign one is the last. The other two admit a
/// task only within the sum of all charges on its CPU.
fn three(list: &str) -> Vec<PluginSetup> {
    vec![
        edf("edf", list, Confine::Auto, None),
        rm("rm", list, 60, 99, RmTest::Necessary),
        foreign("own", list, 1, 9),
    ]
}

fn naming(list: &str) -> ForeignAnswer {
    let set = cpus(list);
    let cpu = set.iter().next().map_or(-1, |cpu| cpu as i32);
    ForeignAnswer { verdict: 1, cpu, priority: 5, cpus: set, ..ForeignAnswer::default() }
}

/// Adds up the charges of a reference model: each spec, in full, on each of its CPUs.
fn sum(specs: &[(SpecSlot, CpuSet, Charge)], cpu: u32) -> Charge {
    let here = specs.iter().filter(|(_, cpus, _)| cpus.contains(cpu));
    here.fold(Charge::ZERO, |sum, (.., charge)| sum.saturating_add(*charge))
}

#[test]
fn r18_every_cpu_of_a_set_is_charged_in_full_and_none_is_overbooked_or_lost() {
    let mut refused_beside_sets = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut rig = Rig::new(pinnable(3), three("0-2"));
        let mut specs: Vec<(SpecSlot, CpuSet, Charge)> = vec![];
        let mut records: Vec<(SpecSlot, u32, Record)> = vec![];
        for _ in 0..60 {
            let params = periodic(10 * MS, rng.between(1, 30) * MS / 10);
            let plugin = rng.below(3) as u32;
            let old = specs.get(rng.below(8) as usize).copied();
            let said = if plugin == OWN {
                let set = *rng.pick(&["0-2", "0-2", "0-2", "0", "1", "2"]);
                rig.plugin_set.check_answer(OWN, &ask(&params), &naming(set), None).unwrap()
            } else {
                rig.plugin_set.ask(plugin, &ask(&params), None)
            };
            match (offered(&said), old) {
                (_, Some(old)) if rng.chance(40) => {
                    rig.plugin_set.release(old.0, None);
                    specs.retain(|spec| spec.0 != old.0);
                    records.retain(|&(slot, ..)| slot != old.0);
                }
                (Some(offer), _) => {
                    let slot = rig.admit(plugin, &ask(&params), &offer);
                    let placed = rig.plugin_set.attr(slot).cpus;
                    assert_eq!(placed, offer.cpu.map_or(cpus("0-2"), CpuSet::single));
                    specs.push((slot, placed, offer.charge));
                    records.push((slot, plugin, record(&rig, slot, params)));
                    if let (0 | 1, Some(cpu)) = (plugin, offer.cpu) {
                        // Each charge is rounded up by less than one unit.
                        let most = Charge::ONE.saturating_add(Charge::from_bits(60));
                        assert!(sum(&specs, cpu) <= most, "CPU {cpu} is overbooked");
                    }
                }
                (None, _) => refused_beside_sets += 1,
            }
            for cpu in 0..3 {
                let info = rig.plugin_set.cpu_info(OWN, cpu).unwrap();
                assert_eq!(info.used, sum(&specs, cpu), "seed {seed}, CPU {cpu}");
            }
            rig.audit();
        }
        let mut next = Rig::new(pinnable(3), three("0-2"));
        for (slot, plugin, record) in &records {
            next.plugin_set.adopt(*plugin, *slot, record);
            assert_eq!(next.plugin_set.attr(*slot).cpus, rig.plugin_set.attr(*slot).cpus);
        }
        for plugin in 0..3 {
            for cpu in 0..3 {
                let (one, other) = (&rig.plugin_set, &next.plugin_set);
                assert_eq!(one.cpu_info(plugin, cpu), other.cpu_info(plugin, cpu), "seed {seed}");
            }
        }
        next.audit();
        next.clear();
        rig.clear();
    }
    assert!(refused_beside_sets > 100, "only {refused_beside_sets} requests found no room");
}

#[test]
fn r18_a_set_counts_once_per_cpu_in_the_root_domain_of_global_edf() {
    let mut rig = Rig::new(Platform::declared(2), three("0-1"));
    let half = periodic(10 * MS, 5 * MS);
    let said = rig.plugin_set.check_answer(OWN, &ask(&half), &naming("0-1"), None).unwrap();
    let slot = rig.admit(OWN, &ask(&half), &offered(&said).unwrap());
    // Two CPUs of 90 % less the set leave 80 %: two thirds, and exactly the rest.
    let third = periodic(9 * MS, 3 * MS);
    for _ in 0..2 {
        rig.create(0, &ask(&third)).unwrap();
    }
    let last = rig.create(0, &ask(&periodic(15 * MS, 2 * MS))).unwrap();
    let no = rig.create(0, &ask(&periodic(1_000 * MS, 2_000))).unwrap_err();
    assert_eq!(no.reason, RejectionReason::NoRoom);
    assert!(offered(&rig.plugin_set.ask(0, &ask(&third), Some(slot))).is_some());
    rig.plugin_set.release(last, None);
    // A set that becomes smaller than it was frees its share on both CPUs.
    let tenth = periodic(10 * MS, MS);
    let said = rig.plugin_set.check_answer(OWN, &ask(&tenth), &naming("0-1"), Some(slot)).unwrap();
    rig.plugin_set.replace(slot, OWN, &ask(&tenth), &offered(&said).unwrap(), None);
    assert!(rig.create(0, &ask(&periodic(20 * MS, 9 * MS))).is_ok());
    rig.audit();
    rig.clear();
}

#[test]
fn r7_a_spec_that_leaves_its_set_reuses_its_share_on_each_cpu() {
    let mut rig = Rig::new(pinnable(2), three("0-1"));
    let (own, larger) = (periodic(10 * MS, 6 * MS), periodic(10 * MS, 8 * MS));
    let said = rig.plugin_set.check_answer(OWN, &ask(&own), &naming("0-1"), None).unwrap();
    let slot = rig.admit(OWN, &ask(&own), &offered(&said).unwrap());
    for plugin in 0..2 {
        for list in ["0", "1"] {
            let ask = PluginRequest { allowed: cpus(list), ..ask(&larger) };
            let no = refused(rig.plugin_set.ask(plugin, &ask, None));
            assert_eq!(no.reason, RejectionReason::NoRoom);
            assert!(offered(&rig.plugin_set.ask(plugin, &ask, Some(slot))).is_some());
        }
    }
    rig.change(slot, 0, &ask(&larger), None).unwrap();
    rig.audit();
    rig.clear();
}

#[test]
fn r18_a_set_is_all_cpus_of_the_call_and_of_the_plugin() {
    let mut rig = Rig::new(pinnable(3), three("0-2"));
    let params = at_priority(5);
    let judged = |rig: &Rig, ask: &PluginRequest<'_>, list| {
        rig.plugin_set.check_answer(OWN, ask, &naming(list), None)
    };
    for list in ["0-1", "0-3"] {
        let why = format!("CPUs {list}, which are not all of 0-2");
        assert_eq!(judged(&rig, &ask(&params), list), Err(BoundsViolation(why)));
    }
    // All of the call, but not of the plugin: the client is refused, and the plugin serves on.
    let offline = ThreadScope { offline: cpus("2"), ..ThreadScope::default() };
    let reserved = ThreadScope { reserved: cpus("2"), executor: 7, ..ThreadScope::default() };
    let mask = ThreadScope { cpus: cpus("0-1"), ..ThreadScope::default() };
    for (ask, reason) in [
        (PluginRequest { allowed: cpus("0-1"), ..ask(&params) }, RejectionReason::NoCpu),
        (PluginRequest { thread: offline, ..ask(&params) }, RejectionReason::Offline),
        (PluginRequest { thread: reserved, ..ask(&params) }, RejectionReason::Reserved),
        (PluginRequest { thread: mask, ..ask(&params) }, RejectionReason::OutsideMask),
    ] {
        assert_eq!(refused(judged(&rig, &ask, "0-1").unwrap()).reason, reason);
    }
    let elsewhere = PluginRequest { preferred: cpus("0-1"), ..ask(&params) };
    let offer = offered(&judged(&rig, &elsewhere, "0-2").unwrap()).unwrap();
    assert!(offer.notes.contains(Notes::PREFERRED_CPUS_IGNORED));
    let slot = rig.admit(OWN, &elsewhere, &offer);
    assert_eq!(rig.plugin_set.attr(slot).cpus, cpus("0-2"));
    // An urgent thread without a grant on one of the CPUs is noted.
    let policy = Policy::Fifo(Priority(50));
    let urgent = RealTimeThread { tid: 1, cpus: cpus("2"), policy };
    rig.plugin_set.set_ungranted(&[urgent]);
    assert!(rig.plugin_set.placement(slot).notes.contains(Notes::UNGRANTED_ABOVE));
    rig.plugin_set.set_ungranted(&[]);
    rig.clear();
}

#[test]
fn r31_a_plugin_above_rm_may_not_name_a_set() {
    let above =
        |list| vec![foreign("own", "0-1", 80, 99), rm("rm", list, 40, 79, RmTest::Hyperbolic)];
    let params = periodic(10 * MS, MS);
    let rig = Rig::new(pinnable(3), above("1-2"));
    for ignore_admission in [false, true] {
        let ask = PluginRequest { ignore_admission, ..ask(&params) };
        let answer = ForeignAnswer { priority: 90, ..naming("0-1") };
        let no = refused(rig.plugin_set.check_answer(0, &ask, &answer, None).unwrap());
        assert_eq!((no.reason, no.asked, no.fits), (RejectionReason::WouldBreakOthers, 100_000, 0));
    }
    // A set of an earlier configuration becomes a CPU.
    let mut before = Rig::new(pinnable(3), above("2"));
    let answer = ForeignAnswer { priority: 90, ..naming("0-1") };
    let said = before.plugin_set.check_answer(0, &ask(&params), &answer, None).unwrap();
    let slot = before.admit(0, &ask(&params), &offered(&said).unwrap());
    let mut rig = rig;
    rig.plugin_set.adopt(0, slot, &record(&before, slot, params));
    assert_eq!(rig.plugin_set.placement(slot).cpu, Some(0));
    rig.audit();
    rig.clear();
    before.clear();
}
