//! Parameters required by each plugin: ReTiF's Table 6 (R1, R11).

use super::stage::{MS, Words, by, setup, world_of};
use talea_core::{Params, Priority, Span, Work};
use talea_proto::refusal::{PluginVerdict, RejectionReason};
use talea_proto::{Code, Field, Reply, Request, Task};

/// Returns one of the 32 subsets of {T, Q, Q^d, D, P}.
fn subset(bits: u32) -> Params {
    Params {
        period: (bits & 1 != 0).then_some(Span::from_ns(10 * MS)),
        runtime: (bits & 2 != 0).then_some(Work::from_ns(MS)),
        desired: (bits & 4 != 0).then_some(Work::from_ns(2 * MS)),
        deadline: (bits & 8 != 0).then_some(Span::from_ns(8 * MS)),
        priority: (bits & 16 != 0).then_some(Priority(7)),
    }
}

/// Returns the expectation of Table 6: served in full, in part, or a missing parameter.
fn table_6(plugin: &str, params: &Params) -> Result<bool, Field> {
    let (t, q, p) = (params.period.is_some(), params.runtime.is_some(), params.priority.is_some());
    match plugin {
        "edf" | "rm" if !t => Err(Field::Period),
        "edf" if !q => Err(Field::Runtime),
        "fp" | "rr" if !p => Err(Field::Priority),
        // The runtime is recommended, not mandatory.
        "rm" => Ok(q),
        _ => Ok(true),
    }
}

#[test]
fn r1_r11_all_32_subsets_of_parameters_and_4_plugins_agree_with_table_6() {
    for plugin in ["edf", "rm", "fp", "rr"] {
        for bits in 0..32 {
            let params = subset(bits);
            let mut world = world_of(setup(&["edf", "rm", "fp", "rr"], 2), 2);
            let client = world.connect(1000);
            let task = by(Task { params, ..Task::default() }, plugin);
            let said = world.call(client, Request::Create(task));
            match (table_6(plugin, &params), said) {
                (Ok(full), Reply::Granted(granted)) => {
                    let partial = granted.notes.contains(talea_proto::message::Notes::PARTIAL);
                    assert_eq!(partial, !full, "{plugin} {params:?}");
                    if let (Some(asked), Some(got)) = (params.runtime, granted.runtime) {
                        assert!(asked <= got, "{plugin} {params:?}: Q^a = {got}");
                        assert!(
                            got <= params.desired.unwrap_or(asked),
                            "{plugin} {params:?}: Q^a = {got}"
                        );
                    }
                }
                (Err(missing), Reply::Refused(refusal)) => {
                    assert_eq!(refusal.code, Code::NoPlugin, "{plugin} {params:?}");
                    assert_eq!(refusal.answers.len(), 1, "only the named plugin is asked");
                    let PluginVerdict::No(no) = refusal.answers[0].verdict else {
                        panic!("{refusal:?}")
                    };
                    assert_eq!(
                        (no.reason, no.field),
                        (RejectionReason::Missing, missing),
                        "{plugin} {params:?}"
                    );
                }
                (expected, said) => panic!("{plugin} {params:?}: {expected:?} but {said:?}"),
            }
        }
    }
}

#[test]
fn r9_all_32_subsets_are_served_by_the_first_full_or_else_the_first_partial_plugin() {
    let order = ["edf", "rm", "fp", "rr"];
    for bits in 0..32 {
        let params = subset(bits);
        let mut world = world_of(setup(&order, 2), 2);
        let client = world.connect(1000);
        let full = order.iter().position(|plugin| table_6(plugin, &params) == Ok(true));
        let expected = full.or(order.iter().position(|plugin| table_6(plugin, &params).is_ok()));
        let said = world.call(client, Request::Create(Task { params, ..Task::default() }));
        match (expected, said) {
            (Some(plugin), Reply::Granted(granted)) => {
                assert_eq!(granted.plugin as usize, plugin, "{params:?}");
            }
            (None, Reply::Refused(refusal)) => {
                assert_eq!(
                    (refusal.code, refusal.answers.len()),
                    (Code::NoPlugin, 4),
                    "{params:?}"
                );
                assert_eq!(world.broker.specs(), 0);
            }
            (expected, said) => panic!("{params:?}: {expected:?} but {said:?}"),
        }
    }
}

#[test]
fn retif_w13_r10_only_the_named_plugin_is_asked_and_an_unknown_name_is_refused() {
    let mut world = world_of(setup(&["edf", "rm", "fp", "rr"], 2), 2);
    let client = world.connect(1000);
    let task = Task { params: subset(0b10011), ..Task::default() };
    for (index, plugin) in ["edf", "rm", "fp", "rr"].iter().enumerate() {
        assert_eq!(world.create(client, by(task, plugin)).plugin as usize, index);
    }
    let refusal = world.refused(client, Request::Create(by(task, "nobody")));
    assert_eq!((refusal.code, refusal.field), (Code::UnknownPlugin, Field::Plugin));
    assert_eq!(world.broker.specs(), 4);
}

#[test]
fn retif_w12_a_runtime_above_its_period_or_deadline_is_refused_by_every_plugin() {
    let mut world = world_of(setup(&["edf", "rm", "fp", "rr"], 2), 2);
    let client = world.connect(1000);
    let (t, q) = (Some(Span::from_ns(10 * MS)), Some(Work::from_ns(11 * MS)));
    let p = Some(Priority(5));
    let params = Params { period: t, runtime: q, priority: p, ..Params::default() };
    let mut task = Task { params, ..Task::default() };
    for plugin in [None, Some("edf"), Some("rm"), Some("fp"), Some("rr")] {
        task.plugin = plugin.and_then(talea_proto::message::Name::new);
        let refusal = world.refused(client, Request::Create(task));
        assert_eq!((refusal.code, refusal.field), (Code::Malformed, Field::Runtime));
        assert_eq!((refusal.asked, refusal.limit), (11 * MS, 10 * MS));
    }
}

#[test]
fn r12_create_refuses_what_the_kernel_would_refuse_and_grants_what_it_accepts() {
    let edf = |runtime: u64, deadline: u64, period: u64| {
        let params = Params {
            period: Some(Span::from_ns(period)),
            runtime: Some(Work::from_ns(runtime)),
            deadline: Some(Span::from_ns(deadline)),
            ..Params::default()
        };
        by(Task { params, ..Task::default() }, "edf")
    };
    let longest = 4_194_304_000;
    let cases = [
        (edf(1024, 10 * MS, 10 * MS), None),
        (edf(1023, 10 * MS, 10 * MS), Some(Field::Runtime)),
        (edf(MS, 10 * MS, 10 * MS - 1), Some(Field::Deadline)),
        (edf(2048, 100_000, 100_000), None),
        (edf(2048, 99_999, 99_999), Some(Field::Period)),
        (edf(MS, longest, longest), None),
        (edf(MS, longest, longest + 1), Some(Field::Period)),
    ];
    for (task, refused) in cases {
        let mut world = world_of(setup(&["edf"], 2), 2);
        let client = world.connect(1000);
        let tid = world.tid_of(client);
        match (world.call(client, Request::Create(task)), refused) {
            (Reply::Granted(granted), None) => {
                assert_eq!(
                    world.attach(client, granted.spec, tid),
                    Reply::Done,
                    "{:?}",
                    task.params
                );
            }
            (Reply::Refused(refusal), Some(field)) => {
                let PluginVerdict::No(no) = refusal.answers[0].verdict else {
                    panic!("{refusal:?}")
                };
                assert_eq!(no.field, field, "{:?}: {no:?}", task.params);
            }
            (said, _) => panic!("{:?}: {said:?}", task.params),
        }
    }
}

#[test]
fn retif_w2_r8_the_accepted_runtime_is_reported_counted_and_changed_only_on_request() {
    let mut world = world_of(setup(&["edf"], 1), 1);
    let (first, second) = (world.connect(1000), world.connect(1000));
    let want = |runtime: u64, desired: u64| {
        let mut task = Task { params: subset(0b11), ..Task::default() };
        task.params.runtime = Some(Work::from_ns(runtime));
        task.params.desired = Some(Work::from_ns(desired));
        task
    };
    let full = world.free(first)[0];
    let one = world.create(first, want(MS, 6 * MS));
    assert_eq!(one.runtime, Some(Work::from_ns(6 * MS)), "the desired runtime fits");
    assert_eq!(full - world.free(first)[0], 600_000, "the ledger counts the accepted runtime");
    // The second task gets the rest; the first one keeps its runtime.
    let two = world.create(second, want(MS, 6 * MS));
    let left = two.runtime.expect("a runtime was requested");
    assert!(Work::from_ns(MS) < left && left < Work::from_ns(4 * MS), "{left}");
    assert!(two.notes.contains(talea_proto::message::Notes::BELOW_DESIRED));
    assert_eq!(world.query(first, one.spec).unwrap().granted.runtime, one.runtime);
    world.done(first, Request::Release(one.spec));
    assert_eq!(world.query(second, two.spec).unwrap().granted.runtime, Some(left));
    // The runtime grows on request.
    let change = Request::Change { spec: two.spec, task: want(MS, 6 * MS) };
    let Reply::Granted(grown) = world.call(second, change) else { panic!("it fits") };
    assert_eq!(grown.runtime, Some(Work::from_ns(6 * MS)));
}
