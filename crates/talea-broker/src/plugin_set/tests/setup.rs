//! Setups that prevent the start of the daemon, and the configurations of the papers.

use super::*;

#[test]
fn r18_retif_m8_an_unusable_plugin_prevents_the_start_and_is_named() {
    let platform = pinnable(2);
    let refused =
        |plugins: Vec<PluginSetup>| PluginSet::new(&setup(plugins), &platform).unwrap_err();
    let cases = [
        (vec![fp("a", "0-3", 1, 9)], "plugin \"a\": CPU 2-3 does not exist here (CPUs: 0-1)"),
        (
            vec![fp("a", "0", 1, 9), rm("a", "1", 1, 9, RmTest::Necessary)],
            "plugin \"a\": the name is used twice; rename one of the plugins",
        ),
        (vec![fp("", "0", 1, 9)], "plugin \"\": the name is invalid; it must have 1 to 31 bytes"),
        (
            vec![fp(&"x".repeat(32), "0", 1, 9)],
            &format!(
                "plugin {:?}: the name is invalid; it must have 1 to 31 bytes",
                "x".repeat(32)
            ),
        ),
        (vec![fp("b", "0", 9, 1)], "plugin \"b\": the priorities 9-1 are not a range within 1-99"),
        (vec![rr("b", "0", 0, 5)], "plugin \"b\": the priorities 0-5 are not a range within 1-99"),
        (
            vec![foreign("b", "0", 5, 100)],
            "plugin \"b\": the priorities 5-100 are not a range within 1-99",
        ),
        (
            vec![PluginSetup { band: None, ..fp("c", "0", 1, 1) }],
            "plugin \"c\": the range of priorities is missing; set `priorities`",
        ),
        (
            vec![PluginSetup { cpus: CpuSet::EMPTY, ..fp("d", "0", 1, 1) }],
            "plugin \"d\": its CPU set is empty; set `cpus`",
        ),
    ];
    for (plugins, why) in cases {
        assert_eq!(refused(plugins), why);
    }
    let many: Vec<PluginSetup> =
        (0..=PLUGINS_MAX).map(|i| fp(&format!("p{i}"), "0", 1, 9)).collect();
    assert!(refused(many).contains("the maximum is 32"));
    let split = Platform { partitionable: cpus("1"), ..Platform::declared(2) };
    let both = vec![edf("all", "0-1", Confine::Global, None), edf("one", "1", Confine::Auto, None)];
    let why = PluginSet::new(&setup(both), &split).unwrap_err();
    assert_eq!(
        why,
        "plugin \"one\": a partition of CPU 1 would split the root domain of plugin \"all\""
    );
}

#[test]
fn r19_listing_2_loads_as_printed_and_each_plugin_serves() {
    let plugins = vec![
        edf("EDF", "0", Confine::Partition, None),
        rm("RM1", "1,2", 50, 99, RmTest::Necessary),
        rr("RR", "1,2", 1, 50),
        rm("RM2", "3,4", 1, 99, RmTest::Necessary),
        fp("FP", "5-7", 1, 99),
    ];
    let mut rig = Rig::new(Platform::declared(8), plugins);
    let params = Params { priority: Some(Priority(50)), ..periodic(10 * MS, MS) };
    for (plugin, list) in [(0, "0"), (1, "1-2"), (2, "1-2"), (3, "3-4"), (4, "5-7")] {
        let slot = rig.create(plugin, &ask(&params)).unwrap();
        assert!(cpus(list).contains(rig.plugin_set.placement(slot).cpu.unwrap()));
    }
    let info = rig.plugin_set.info(2);
    assert_eq!(
        (info.name.as_str(), info.kind.as_str(), info.band, info.specs),
        ("RR", "rr", (1, 50), 1)
    );
    assert_eq!(
        (
            rig.plugin_set.find(&Name::new("RM2").unwrap()),
            rig.plugin_set.find(&Name::new("rm2").unwrap())
        ),
        (Some(3), None)
    );
    rig.clear();
}

#[test]
fn one_algorithm_may_be_loaded_several_times_on_the_same_cpus() {
    let plugins: Vec<PluginSetup> = (0..16)
        .map(|i| rm(&format!("rm{i}"), "0-1", 1 + 6 * i, 6 + 6 * i, RmTest::Hyperbolic))
        .collect();
    let mut rig = Rig::new(Platform::declared(2), plugins);
    for plugin in 0..16 {
        let slot =
            rig.create(plugin, &ask(&periodic((200 - 10 * u64::from(plugin)) * MS, MS))).unwrap();
        assert!(
            !rig.plugin_set.placement(slot).notes.contains(Notes::NOT_PROVED),
            "plugin {plugin}"
        );
    }
    rig.audit();
    rig.clear();
}
