//! Affinity as a declared parameter, and CPU lists of all shapes.

use super::*;

#[test]
fn r35_a_mandatory_cpu_set_is_obeyed_and_preferred_cpus_are_tried_first() {
    let plugins = vec![
        edf("edf", "0-3", Confine::Auto, None),
        rm("rm", "0-3", 50, 99, RmTest::Hyperbolic),
        fp("fp", "0-3", 1, 49),
    ];
    let mut rig = Rig::new(pinnable(4), plugins);
    let params = Params { priority: Some(Priority(5)), ..periodic(10 * MS, 3 * MS) };
    for plugin in 0..3 {
        // CPU 2 is already loaded, and is still the requested one.
        let only = PluginRequest { allowed: cpus("2"), ..ask(&params) };
        let unmet = PluginRequest { preferred: cpus("2-3"), ..ask(&params) };
        for (ask, list) in [(only, "2"), (unmet, "2-3")] {
            let slot = rig.create(plugin, &ask).unwrap();
            let placed = rig.plugin_set.placement(slot);
            assert!(cpus(list).contains(placed.cpu.unwrap()), "plugin {plugin}: {placed:?}");
            assert!(!placed.notes.contains(Notes::PREFERRED_CPUS_IGNORED));
            assert_eq!(rig.plugin_set.attr(slot).cpus, CpuSet::single(placed.cpu.unwrap()));
            rig.plugin_set.release(slot, None);
        }
        let none = PluginRequest { allowed: cpus("4-7"), ..ask(&params) };
        let no = refused(rig.plugin_set.ask(plugin, &none, None));
        assert_eq!(
            (no.reason, no.field, no.asked, no.fits),
            (RejectionReason::NoCpu, Field::Cpus, 4, 0)
        );
        assert_eq!(
            rig.plugin_set.cpus_for(plugin, &PluginRequest { allowed: cpus("3-9"), ..none }, None),
            cpus("3")
        );
    }
    // An unmet preference is a note, an unmet condition is a rejection.
    let full = periodic(10 * MS, 9 * MS);
    rig.create(0, &PluginRequest { allowed: cpus("1"), ..ask(&full) }).unwrap();
    let slot = rig.create(0, &PluginRequest { preferred: cpus("1"), ..ask(&full) }).unwrap();
    assert_eq!(rig.plugin_set.placement(slot).cpu, Some(0));
    assert!(rig.plugin_set.placement(slot).notes.contains(Notes::PREFERRED_CPUS_IGNORED));
    assert_eq!(
        rig.create(0, &PluginRequest { allowed: cpus("1"), ..ask(&full) }).unwrap_err().cpu,
        Some(1)
    );
    rig.clear();
}

#[test]
fn r35_a_preference_for_many_full_cpus_is_not_a_condition() {
    let plugins = vec![
        edf("edf", "0-31", Confine::Auto, None),
        rm("rm", "0-31", 50, 99, RmTest::Hyperbolic),
        plugin(
            "fp",
            "0-31",
            band(1, 1),
            PluginKind::Fp(FpOptions { refuse_sharing: true, ..FpOptions::default() }),
        ),
    ];
    let mut rig = Rig::new(pinnable(32), plugins);
    let params = Params { priority: Some(Priority(5)), ..periodic(10 * MS, 6 * MS) };
    for cpu in 0..16 {
        rig.create(1, &PluginRequest { allowed: CpuSet::single(cpu), ..ask(&params) }).unwrap();
        rig.create(2, &PluginRequest { allowed: CpuSet::single(cpu), ..ask(&at_priority(9)) })
            .unwrap();
    }
    for plugin in 0..3 {
        let slot =
            rig.create(plugin, &PluginRequest { preferred: cpus("0-15"), ..ask(&params) }).unwrap();
        let placed = rig.plugin_set.placement(slot);
        assert!(
            placed.cpu >= Some(16) && placed.notes.contains(Notes::PREFERRED_CPUS_IGNORED),
            "{placed:?}"
        );
    }
    rig.clear();
}

#[test]
fn r35_a_root_domain_is_granted_only_as_a_whole() {
    let mut rig = Rig::new(Platform::declared(2), vec![edf("edf", "0-1", Confine::Auto, None)]);
    let params = periodic(10 * MS, MS);
    let no =
        refused(rig.plugin_set.ask(0, &PluginRequest { allowed: cpus("0"), ..ask(&params) }, None));
    assert_eq!(
        (no.reason, no.fits),
        (RejectionReason::NoCpu, 1),
        "CPU 1 would have to be acceptable, too"
    );
    assert!(rig.create(0, &PluginRequest { allowed: cpus("0-5"), ..ask(&params) }).is_ok());
    let unmet = rig.create(0, &PluginRequest { preferred: cpus("0"), ..ask(&params) }).unwrap();
    assert!(rig.plugin_set.placement(unmet).notes.contains(Notes::PREFERRED_CPUS_IGNORED));
    rig.clear();
}

#[test]
fn retif_m1_cpu_lists_need_not_begin_at_0_nor_be_contiguous() {
    for list in ["1", "1-2", "3,5,7", "0,63-65", "1000,1023"] {
        let plugins = vec![
            edf("edf", list, Confine::Auto, None),
            rm("rm", list, 50, 99, RmTest::Hyperbolic),
            fp("fp", list, 20, 49),
            rr("rr", list, 1, 19),
        ];
        let mut rig = Rig::new(pinnable(1024), plugins);
        let params = Params { priority: Some(Priority(5)), ..periodic(10 * MS, MS) };
        for plugin in 0..4 {
            for _ in 0..2 * cpus(list).len() {
                let slot = rig.create(plugin, &ask(&params)).unwrap();
                assert!(cpus(list).contains(rig.plugin_set.placement(slot).cpu.unwrap()));
            }
            for (index, cpu) in cpus(list).iter().enumerate() {
                let info = rig.plugin_set.cpu_info(plugin, index as u32).unwrap();
                assert_eq!((info.cpu, info.specs), (cpu, 2), "plugin {plugin} on {list}");
            }
            assert_eq!(rig.plugin_set.cpu_info(plugin, cpus(list).len()), None);
        }
        rig.clear();
    }
}

#[test]
fn retif_m6_counters_reach_beyond_32_cpus() {
    let plugins = vec![rm("rm", "0-99", 50, 99, RmTest::Hyperbolic), rr("rr", "0-99", 1, 49)];
    let mut rig = Rig::new(Platform::declared(100), plugins);
    for _ in 0..3 {
        for cpu in 0..100 {
            let slot = rig.create(0, &ask(&periodic(10 * MS, MS))).unwrap();
            assert_eq!(rig.plugin_set.placement(slot).cpu, Some(cpu), "least loaded, lowest first");
        }
        for cpu in 0..100 {
            let slot = rig.create(1, &ask(&at_priority(1 + cpu as u8 % 99))).unwrap();
            assert_eq!(rig.plugin_set.placement(slot).cpu, Some(cpu), "fewest tasks, lowest first");
        }
    }
    assert_eq!(rig.plugin_set.cpu_info(1, 99).unwrap().specs, 3);
    rig.audit();
    rig.clear();
}
