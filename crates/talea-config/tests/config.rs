//! The setups of correct files, and the positions of messages about faults.

mod common;

use common::{names, target};
use talea_config::Diagnostic;
use talea_config::{DaemonSetup, Loaded, LogLevel, RootDomains, read, read_bytes};
use talea_core::setup::{
    Access, Band, Bound, Confine, Domain, EdfOptions, ForeignClass, ForeignOptions, Groups,
    PluginKind, Quota, RmOptions, RmTest, Root,
};
use talea_core::{Charge, CpuSet, Priority, Span, Work};

const EDF: &str = "[[plugin]]\nname = \"edf\"\nkind = \"edf\"\ncpus = \"0\"\n";

fn load(text: &str) -> Loaded {
    read(text, "talead.toml", &names(), &target(4))
        .unwrap_or_else(|found| panic!("{}", talea_config::diagnostic::render(&found, false)))
}

fn complaints(text: &str) -> Vec<Diagnostic> {
    match read(text, "talead.toml", &names(), &target(4)) {
        Ok(loaded) => loaded.warnings,
        Err(found) => found,
    }
}

#[test]
fn a_file_means_what_it_says() {
    let loaded = load(
        r#"
[daemon]
socket = "/run/t.sock"
socket_mode = "0660"
socket_owner = "alice"
socket_group = "realtime"
state_directory = "/var/lib/talea"
audit_directory = "/srv/audit/"
audit_mib = 7
log_level = "debug"
access = "off"
root = "ruled"
groups = "effective"
[daemon.quota]
sessions_per_user = 1
sessions = 2
specs_per_user = 3
specs = 4
requests_per_second = 5
burst = 6
sessions_without_rule = 7
levels_per_user = 8

[[plugin]]
name = "edf"
kind = "edf"
cpus = "0-1"
threshold = 0.9
confine = "partition"
[[plugin]]
name = "rm"
kind = "rm"
cpus = "all"
priorities = "50-89"
test = "liu-layland"
refuse_sharing = true
[[plugin]]
name = "least"
kind = "foreign"
module = "/usr/lib/talea/plugins/least_loaded.so"
argument = "x=1"
timeout = "20ms"
class = "rr"
cpus = "3"
priorities = "10-20"
"#,
    );
    assert_eq!(
        loaded.daemon,
        DaemonSetup {
            socket: "/run/t.sock".to_owned(),
            socket_mode: 0o660,
            socket_owner: Some(1000),
            socket_group: Some(99),
            state_directory: "/var/lib/talea".to_owned(),
            audit_directory: "/srv/audit/".to_owned(),
            audit_mib: 7,
            log_level: LogLevel::Debug,
        }
    );
    let setup = loaded.setup;
    assert_eq!(
        (setup.access, setup.root, setup.groups),
        (Access::Off, Root::Ruled, Groups::Effective)
    );
    let quota = Quota {
        sessions_per_user: 1,
        sessions: 2,
        sessions_without_rule: 7,
        specs_per_user: 3,
        specs: 4,
        levels_per_user: 8,
        requests_per_second: 5,
        burst: 6,
    };
    assert_eq!(setup.quota, quota);
    let [edf, rm, least] = setup.plugins.as_slice() else { panic!("three plugins") };
    assert_eq!(
        edf.kind,
        PluginKind::Edf(EdfOptions {
            threshold: Some(Charge::ratio(9, 10)),
            confine: Confine::Partition
        })
    );
    assert_eq!((edf.band, edf.cpus), (None, CpuSet::first(2)));
    assert_eq!(
        rm.kind,
        PluginKind::Rm(RmOptions { test: RmTest::LiuLayland, refuse_sharing: true })
    );
    assert_eq!(rm.band, Some(Band { low: Priority(50), high: Priority(89) }));
    assert_eq!(rm.cpus, CpuSet::first(4));
    assert_eq!(
        least.kind,
        PluginKind::Foreign(ForeignOptions {
            module: "/usr/lib/talea/plugins/least_loaded.so".to_owned(),
            argument: "x=1".to_owned(),
            timeout: Span::from_ns(20_000_000),
            class: ForeignClass::Rr,
            confine: Confine::Auto,
        })
    );
    assert_eq!(loaded.plugin_origins, ["talead.toml:24", "talead.toml:30", "talead.toml:37"]);
}

#[test]
fn r20_rules_are_in_force_unless_off_is_written() {
    let loaded = load(EDF);
    assert_eq!((loaded.setup.access, loaded.setup.root), (Access::Rules, Root::Unrestricted));
    assert!(loaded.setup.rules.is_empty());
    assert_eq!(load(&format!("[daemon]\naccess = \"off\"\n{EDF}")).setup.access, Access::Off);
}

#[test]
fn r21_each_property_becomes_one_rule_with_its_line() {
    let rules = r#"[[rule]]
domain = "alice"
plugin = "edf"
max_utilization = 0.7
max_runtime = "3ms"
min_period = "1ms"
max_period = "1s"
min_deadline = "500us"
max_deadline = "900ms"
ignore_adm_test = true
allow_unbounded = false
[[rule]]
domain = "@#77"
min_priority = 2
max_priority = 30
[[rule]]
domain = "-"
max_utilization = 2
"#;
    let loaded = load(&format!("{EDF}{rules}"));
    let (alice, edf) = (Domain::User(1000), Some(0));
    let expected = [
        (alice, edf, Bound::MaxUtilization(Charge::ratio(7, 10)), 8),
        (alice, edf, Bound::MaxRuntime(Work::from_ns(3_000_000)), 9),
        (alice, edf, Bound::MinPeriod(Span::from_ns(1_000_000)), 10),
        (alice, edf, Bound::MaxPeriod(Span::from_ns(1_000_000_000)), 11),
        (alice, edf, Bound::MinDeadline(Span::from_ns(500_000)), 12),
        (alice, edf, Bound::MaxDeadline(Span::from_ns(900_000_000)), 13),
        (alice, edf, Bound::IgnoreAdmission(true), 14),
        (alice, edf, Bound::AllowUnbounded(false), 15),
        (Domain::Group(77), None, Bound::MinPriority(Priority(2)), 18),
        (Domain::Group(77), None, Bound::MaxPriority(Priority(30)), 19),
        (Domain::Global, None, Bound::MaxUtilization(Charge::from_bits(2 << 64)), 22),
    ];
    assert_eq!(loaded.setup.rules.len(), expected.len());
    for (rule, (domain, plugin, bound, line)) in loaded.setup.rules.iter().zip(expected) {
        assert_eq!((rule.domain, rule.plugin, rule.bound), (domain, plugin, bound));
        assert_eq!(rule.origin, format!("talead.toml:{line}"));
    }
}

/// Returns the warnings about two plugins of the given kinds and priorities on CPUs 0-2 and 1-2.
fn pair(first: (&str, &str), second: (&str, &str)) -> Vec<String> {
    let plugin = |name: &str, cpus: &str, (kind, band): (&str, &str)| {
        let priorities =
            if band.is_empty() { String::new() } else { format!("priorities = \"{band}\"\n") };
        format!("[[plugin]]\nname = \"{name}\"\nkind = \"{kind}\"\ncpus = \"{cpus}\"\n{priorities}")
    };
    let text = format!("{}{}", plugin("one", "0-2", first), plugin("two", "1-2", second));
    load(&text).warnings.into_iter().map(|d| d.what).collect()
}

#[test]
fn r9_precedence_that_priorities_contradict_is_a_warning() {
    assert_eq!(pair(("rm", "50-60"), ("fp", "10-20")), [""; 0]);
    assert_eq!(
        pair(("rm", "10-20"), ("fp", "50-60")),
        ["`two` outranks `one`, which has precedence"]
    );
    assert_eq!(pair(("edf", ""), ("fp", "50-60")), [""; 0]);
    assert_eq!(pair(("fp", "50-60"), ("edf", "")), ["`two` outranks `one`, which has precedence"]);
}

#[test]
fn r31_overlapping_priorities_on_shared_cpus_are_a_warning() {
    for (one, two) in
        [("50-60", "60-70"), ("50-60", "40-50"), ("50-60", "50-60"), ("1-97", "20-30")]
    {
        assert_eq!(
            pair(("rm", one), ("rr", two)),
            ["the priorities of `two` overlap those of `one`"],
            "{one} {two}"
        );
    }
    assert_eq!(
        pair(("edf", ""), ("edf", "")),
        ["`two` and `one` both reserve on the deadline class"]
    );
}

#[test]
fn r31_cpus_that_plugins_share_in_part_are_a_warning() {
    let text = |one: &str, two: &str| {
        let plugin = |name: &str, cpus: &str, band: &str| {
            format!(
                "[[plugin]]\nname = \"{name}\"\nkind = \"rm\"\ncpus = \"{cpus}\"\npriorities = \"{band}\"\n"
            )
        };
        format!("{}{}", plugin("one", one, "50-60"), plugin("two", two, "10-20"))
    };
    let warnings = |one: &str, two: &str| load(&text(one, two)).warnings;
    for (one, two) in [("0-1", "1-2"), ("1-2", "0-1"), ("0,2", "2-3")] {
        let found = warnings(one, two);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].what, "the CPUs of `two` and `one` overlap partially");
        assert_eq!(found[0].line, 9);
    }
    for (one, two) in [("0-1", "0-1"), ("0-3", "1"), ("1", "0-3"), ("0", "1"), ("0-1", "2-3")] {
        assert!(warnings(one, two).is_empty(), "{one} {two}");
    }
}

/// The kernel admits a deadline thread only if it may use all CPUs of its root domain.
#[test]
fn r12_an_edf_plugin_that_no_root_domain_fits_is_a_warning() {
    let cpus = |list: &str| CpuSet::parse(list).expect("a list");
    let check = |on: &str, confine: &str, domains: &[&str], can_partition: bool| {
        let confine =
            if confine.is_empty() { String::new() } else { format!("confine = \"{confine}\"\n") };
        let text = format!("[[plugin]]\nname = \"e\"\nkind = \"edf\"\ncpus = \"{on}\"\n{confine}");
        let sets = domains.iter().map(|list| cpus(list)).collect();
        let target = target(4).with_domains(RootDomains { sets, can_partition });
        let loaded = read(&text, "talead.toml", &names(), &target).expect("sound");
        loaded.warnings
    };
    let refused = check("0", "", &["0-3"], true);
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].what.as_str(), refused[0].line), ("`e` serves no task here", 4));
    assert!(refused[0].remedy.contains("`cpus = \"0-3\"`, or add `confine = \"partition\"`"));
    for (on, confine, domains, can_partition, count) in [
        ("0-3", "", &["0-3"][..], true, 0),
        ("all", "global", &["0-3"], true, 0),
        ("0-1", "auto", &["0-3"], true, 1),
        ("0-1", "global", &["0-1", "2-3"], true, 0),
        ("0-1", "auto", &["0", "1-3"], true, 0),
        ("0-1", "global", &["0", "1-3"], true, 1),
        ("0-1", "partition", &["0-3"], true, 0),
        ("0-1", "partition", &["0-3"], false, 1),
        ("0-1", "partition", &["1", "0,2-3"], false, 0),
    ] {
        let found = check(on, confine, domains, can_partition);
        assert_eq!(found.len(), count, "{on} {confine} {domains:?}: {found:?}");
    }
}

#[test]
fn plugins_without_a_common_cpu_do_not_meet() {
    let text = "[[plugin]]\nname = \"a\"\nkind = \"rm\"\ncpus = \"0\"\npriorities = \"1-9\"\n\
                [[plugin]]\nname = \"b\"\nkind = \"rm\"\ncpus = \"1\"\npriorities = \"1-9\"\n";
    assert_eq!(load(text).warnings, []);
}

#[test]
fn places_count_characters_and_ignore_marks_and_carriage_returns() {
    for (text, place) in [
        ("x = 1\n", (1, 1)),
        ("\u{feff}x = 1\n", (1, 1)),
        ("\r\n\r\n  x = 1\r\n", (3, 3)),
        ("\"ä\" = 1\n", (1, 1)),
        ("plugin = [{ name = \"ää\", kind = \"edf\", cpus = \"0\", x = 1 }]\n", (1, 52)),
        ("\t\tx = 1", (1, 3)),
    ] {
        let found = complaints(text);
        let unknown = found
            .iter()
            .find(|d| d.what.contains("unknown key"))
            .unwrap_or_else(|| panic!("{text}: {found:?}"));
        assert_eq!((unknown.line, unknown.column), place, "{text:?}");
    }
}

#[test]
fn a_caret_stands_under_what_is_meant_even_in_a_long_line() {
    let text = format!(
        "plugin = [{{ name = \"{}\", kind = \"edf\", cpus = \"0,x\" }}]\n",
        "é".repeat(400)
    );
    let found = complaints(&text);
    let cpus = found.iter().find(|d| d.what.contains("list of CPUs")).expect("the list is wrong");
    let rendered = cpus.render(false);
    let lines: Vec<&str> = rendered.lines().collect();
    let caret = lines[4].chars().position(|c| c == '^').expect("a caret");
    assert_eq!(lines[3].chars().nth(caret), Some('x'), "{rendered}");
    assert_eq!(lines[4].matches('^').count(), 1, "{rendered}");
    assert!(lines[3].chars().count() < 160, "{rendered}");
}

#[test]
fn a_hostile_file_does_not_drive_the_terminal() {
    let text =
        "\"\\u001b[2J\" = 1\n[daemon]\nsocket = \"\\u001b[31m\\u202e\"\naccess = \"\\u0007\"\n";
    let found = complaints(text);
    assert!(found.len() >= 3);
    let shown = talea_config::diagnostic::render(&found, false);
    assert!(!shown.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{shown:?}");
    let raw = read_bytes(b"[daemon]\nsocket = \"\x1b[2J\"\n", "f\x1b[1m", &names(), &target(4))
        .expect_err("raw escape");
    let shown = talea_config::diagnostic::render(&raw, false);
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
}

#[test]
fn another_machine_is_another_target() {
    let text = EDF.replace("\"0\"", "\"5-7\"");
    let found = complaints(&text);
    assert!(found[0].remedy.contains("--cpus 8"), "{}", found[0]);
    let loaded = read(&text, "f", &names(), &target(8)).expect("a machine with eight CPUs");
    assert_eq!(loaded.setup.plugins[0].cpus, (5..8).collect::<CpuSet>());
}

#[test]
fn a_target_with_other_priorities_has_other_bounds() {
    let text = "[[plugin]]\nname = \"rm\"\nkind = \"rm\"\ncpus = \"0\"\npriorities = \"1-40\"\n";
    let mut small = target(1);
    small.priorities = 1..=31;
    let found = read(text, "f", &names(), &small).expect_err("only 31 priorities");
    assert!(found[0].why.contains("1 (least) to 31"), "{}", found[0]);
    assert!(found[0].remedy.contains("1-29"), "{}", found[0]);
}
