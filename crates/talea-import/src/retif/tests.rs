//! Import of the papers' files as printed.

use super::*;
use talea_core::setup::{Bound, Domain, PluginKind, RmTest};
use talea_core::{Priority, Span};

const LISTING_2: &str = include_str!("listing-2.txt");

const LISTING_3: &str = "\
# Domain  Plugin-name  Property         Value
# Limit the aggregate utilization of user1 on EDF to 70%
user1     EDF          max_utilization  0.7
# Limit the CDROM group task period using any plugin to 9 ms
@cdrom    -            max_period       9000
";

const ISORC: &str = "EDF 100-100 0\n\nRM 50-99 1,2\n\nRR 1-49 1,2\n\nFP 1-99 3-7\n";

struct Table;

impl Names for Table {
    fn user(&self, name: &str) -> Option<u32> {
        (name == "user1").then_some(1001)
    }

    fn group(&self, name: &str) -> Option<u32> {
        (name == "cdrom").then_some(24)
    }
}

fn import(plugins: &str, rules: Option<&str>) -> Result<String, Vec<Diagnostic>> {
    retif(
        File { origin: "plugins.conf", text: plugins },
        rules.map(|text| File { origin: "rules.conf", text }),
    )
}

fn load(toml: &str, cpus: u32) -> Result<config::Loaded, Vec<Diagnostic>> {
    config::read(toml, "talead.toml", &Table, &Target::new(CpuSet::first(cpus)))
}

#[test]
fn r19_listing_2_loads_as_printed_on_a_machine_with_its_cpus() {
    let loaded = load(&import(LISTING_2, None).expect("the paper's own file"), 8)
        .expect("eight CPUs are enough");
    let plugins: Vec<_> = loaded
        .setup
        .plugins
        .iter()
        .map(|p| {
            (
                p.name.as_str(),
                p.kind.name(),
                p.cpus.to_string(),
                p.band.map(|b| (b.low.0, b.high.0)),
            )
        })
        .collect();
    assert_eq!(
        plugins,
        [
            ("EDF", "edf", "0".to_owned(), None),
            ("RM1", "rm", "1-2".to_owned(), Some((50, 99))),
            ("RR", "rr", "1-2".to_owned(), Some((1, 50))),
            ("RM2", "rm", "3-4".to_owned(), Some((1, 99))),
            ("FP", "fp", "5-7".to_owned(), Some((1, 99))),
        ]
    );
    assert!(loaded.setup.rules.is_empty());
}

#[test]
fn r19_on_a_smaller_machine_the_missing_cpus_are_named() {
    let found = load(&import(LISTING_2, None).expect("the paper's own file"), 4)
        .expect_err("CPUs 4 to 7 are missing");
    let what: Vec<&str> = found.iter().filter(|d| d.is_error()).map(|d| d.what.as_str()).collect();
    assert_eq!(what, ["CPU 4 does not exist here", "CPUs 5-7 do not exist here"]);
    assert!(found.iter().any(|d| d.remedy.contains("talea check --cpus 8")), "{found:?}");
}

#[test]
fn r19_the_forerunners_listing_loads_as_printed_with_and_without_headings() {
    let plain = load(&import(ISORC, None).expect("as printed"), 8).expect("eight CPUs are enough");
    let words: Vec<&str> = plain.setup.plugins.iter().map(|p| p.kind.name()).collect();
    assert_eq!(words, ["edf", "rm", "rr", "fp"]);
    let headed = format!(
        "! SYSTEM\n-1\nsched_rt_period_us 1000000\n100\n! PLUGINS\n{ISORC}! RULES\nuser1 RM max_runtime 500\n"
    );
    let toml = import(&headed, None).expect("with headings");
    let headed = load(&toml, 8).expect("eight CPUs are enough");
    assert_eq!(headed.setup.plugins, plain.setup.plugins);
    assert_eq!(headed.setup.rules.len(), 1);
    assert_eq!(toml.matches("sets the kernel").count(), 3, "{toml}");
}

#[test]
fn r16_an_imported_rm_keeps_the_papers_test() {
    let loaded = load(&import(LISTING_2, None).expect("the paper's own file"), 8)
        .expect("eight CPUs are enough");
    for plugin in &loaded.setup.plugins {
        if let PluginKind::Rm(options) = &plugin.kind {
            assert_eq!(options.test, RmTest::Necessary, "{}", plugin.name);
        }
    }
}

#[test]
fn r27_listing_3_imports_as_printed() {
    let toml = import(LISTING_2, Some(LISTING_3)).expect("both of the paper's files");
    let rules = load(&toml, 8).expect("eight CPUs are enough").setup.rules;
    let parts: Vec<_> = rules.iter().map(|r| (r.domain, r.plugin, r.bound)).collect();
    assert_eq!(
        parts,
        [
            (Domain::User(1001), Some(0), Bound::MaxUtilization(talea_core::Charge::ratio(7, 10))),
            (Domain::Group(24), None, Bound::MaxPeriod(Span::from_ns(9_000_000))),
        ]
    );
}

#[test]
fn r27_every_property_of_table_5_is_read_with_its_unit() {
    let rules = "\
- - max_utilization 1.5
- - max_runtime 0.5
- - min_period 1
- - max_period 1000000
- - min_deadline 7
- - max_deadline 999
- - min_priority 1
- - max_priority 100
- - ignore_adm_test true
";
    let toml = import(LISTING_2, Some(rules)).expect("all of Table 5");
    let bounds: Vec<Bound> =
        load(&toml, 8).expect("loads").setup.rules.iter().map(|r| r.bound).collect();
    assert_eq!(
        bounds,
        [
            Bound::MaxUtilization(talea_core::Charge::ratio(3, 2)),
            Bound::MaxRuntime(talea_core::Work::from_ns(500)),
            Bound::MinPeriod(Span::from_ns(1_000)),
            Bound::MaxPeriod(Span::from_ns(1_000_000_000)),
            Bound::MinDeadline(Span::from_ns(7_000)),
            Bound::MaxDeadline(Span::from_ns(999_000)),
            Bound::MinPriority(Priority(1)),
            // The deadline class in both formats: without it the rule would exclude every user from
            // EDF.
            Bound::MaxPriority(Priority(100)),
            Bound::IgnoreAdmission(true),
        ]
    );
}

#[test]
fn an_unknown_module_becomes_a_foreign_plugin() {
    let toml = import("X /opt/x/mine.so 10-20 0\nY sub/other.so 5 1\n", None)
        .expect("two foreign plugins");
    let loaded = load(&toml, 2).expect("loads");
    let modules: Vec<&str> = loaded
        .setup
        .plugins
        .iter()
        .map(|p| match &p.kind {
            PluginKind::Foreign(options) => options.module.as_str(),
            _ => "",
        })
        .collect();
    assert_eq!(modules, ["/opt/x/mine.so", "/usr/lib/talea/plugins/other.so"]);
    assert!(toml.contains("built again for talea_plugin.h"), "{toml}");
}

#[test]
fn modules_of_real_builds_are_recognised_and_others_are_not() {
    for (module, want) in [
        ("EDF.so", Some("edf")),
        ("/usr/lib/retif/sched_RM.so", Some("rm")),
        ("libretif_fp.so.0", Some("fp")),
        ("RR", Some("rr")),
        ("EDFX.so", None),
        ("my_rm.so", None),
        ("", None),
    ] {
        assert_eq!(values::kind(module), want, "{module}");
    }
}

#[test]
fn what_is_wrong_in_the_papers_files_is_said_at_its_place() {
    let bad_plugins = [
        ("EDF EDF.so 100-100\n", "p:1:1", "no plugin", "RM1 RM.so"),
        ("RM RM.so 99-50 1\n", "p:1:10", "backwards", "50-99"),
        ("RM RM.so 100-100 1\n", "p:1:10", "not all there", "write it like `50-89`"),
        ("# names\nA RM.so 1-2 0\nA RR.so 3-4 0\n", "p:3:1", "from the one on line 2", "call it"),
        ("RM RM.so 50-99 1,x\n", "p:1:16", "list of CPUs", "0-3,5"),
        ("A RM.so 1-2 0\nA RR.so 3-4 0\n", "p:2:1", "second plugin", "call it"),
        (
            "an-awfully-long-name-of-32-bytes RM.so 1-2 0\n",
            "p:1:1",
            "name of a plugin",
            "short word",
        ),
        ("", "p:1:1", "no plugin in this file", "EDF.so"),
        ("# only a comment\n", "p:1:1", "no plugin in this file", "EDF.so"),
    ];
    for (text, place, reason, remedy) in bad_plugins {
        let found = retif(File { origin: "p", text }, None).expect_err(text);
        check(&found[0], place, reason, remedy);
    }
    let bad_rules = [
        ("user1 EDF max_utilization\n", "r:1:1", "3 columns", "user1 EDF max_utilization 0.7"),
        ("user1 EFD max_runtime 5\n", "r:1:7", "no plugin called `EFD`", "did you mean EDF?"),
        (
            "user1 EDF max_utilisation 0.7\n",
            "r:1:11",
            "not a property",
            "did you mean max_utilization?",
        ),
        ("user1 EDF domain 0.7\n", "r:1:11", "not a property", "write one of"),
        ("\nuser1 EDF max_runtime 9ms\n", "r:2:23", "`9ms` is not a value", "microseconds"),
        ("- - max_runtime 0\n", "r:1:17", "`0` is not a value", "microseconds"),
        ("- - max_utilization -0.5\n", "r:1:21", "`-0.5` is not a value", "fraction"),
        ("- - min_priority 101\n", "r:1:18", "`101` is not a value", "50"),
        ("- - ignore_adm_test yes\n", "r:1:21", "`yes` is not a value", "true or false"),
        (
            "- - min_period 9\n- - max_period 5\n",
            "r:2:16",
            "contradicts `min_period` on line 1",
            "at most the maximum",
        ),
        ("@ - max_period 5\n", "r:1:1", "name is empty", "number"),
    ];
    for (text, place, reason, remedy) in bad_rules {
        let found = retif(File { origin: "p", text: LISTING_2 }, Some(File { origin: "r", text }))
            .expect_err(text);
        check(&found[0], place, reason, remedy);
    }
}

fn check(found: &Diagnostic, place: &str, reason: &str, remedy: &str) {
    assert_eq!(format!("{}:{}:{}", found.origin, found.line, found.column), place, "{found}");
    assert!(found.what.contains(reason) || found.why.contains(reason), "{reason}: {found}");
    assert!(found.remedy.contains(remedy), "{remedy}: {found}");
}

const YAML: &str = "\
---
configuration:
  system:
    rr_timeslice: 0
    sched_max_util: 0.95
  plugins:
    - name: EDF
      plugin: sched_EDF.so   # comment
      priority: 100
      cores: [1, 2]
    - name: \"RM\"
      plugin: sched_RM.so
      priority: 50-99
      cores: 3-7
    -
      name: FP
      plugin: sched_FP.so
      priority: [1, 49]
      cores:
        - 3
        - 5
  rules:
    - domain: user1
      type: user
      properties:
        - max_runtime: 5
";

#[test]
fn the_published_daemons_yaml_is_read() {
    let toml = import(YAML, None).expect("the published form");
    let loaded = load(&toml, 8).expect("eight CPUs are enough");
    let plugins: Vec<_> = loaded
        .setup
        .plugins
        .iter()
        .map(|p| {
            format!(
                "{} {} {} {:?}",
                p.name,
                p.kind.name(),
                p.cpus,
                p.band.map(|b| (b.low.0, b.high.0))
            )
        })
        .collect();
    assert_eq!(
        plugins,
        ["EDF edf 1-2 None", "RM rm 3-7 Some((50, 99))", "FP fp 3,5 Some((1, 49))"]
    );
    for note in ["rr_timeslice", "sched_max_util: 0.95", "`rules` are not imported"] {
        assert!(toml.contains(note), "{note}: {toml}");
    }
}

#[test]
fn yaml_that_is_not_read_is_refused_with_its_place() {
    for (text, place, reason) in [
        ("plugins:\n  - name: A\n", "p:2:3", "has no `plugin`"),
        ("plugins: {a: 1}\n", "p:1:10", "not read"),
        ("plugins:\n  what is this\n", "p:2:3", "no `key: value`"),
        (
            "plugins:\n  - name: A\n    plugin: RM.so\n    priority: 1-2\n    cores: abc\n",
            "p:5:12",
            "list of CPUs",
        ),
        ("system:\n  rr_timeslice: 1\n", "p:1:1", "no plugin in this file"),
    ] {
        let found = retif(File { origin: "p", text }, None).expect_err(text);
        check(&found[0], place, reason, "");
    }
}
