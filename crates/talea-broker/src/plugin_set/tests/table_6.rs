//! Parameters required by each plugin: ReTiF (JSA 2021), Table 6.

use super::*;

/// Returns T, Q, Q^d, D and P selected by the bits of `subset`.
fn subset(bits: u32) -> Params {
    let has = |bit: u32| bits & (1 << bit) != 0;
    Params {
        period: has(0).then_some(Span::from_ns(10 * MS)),
        runtime: has(1).then_some(Work::from_ns(MS)),
        desired: has(2).then_some(Work::from_ns(2 * MS)),
        deadline: has(3).then_some(Span::from_ns(8 * MS)),
        priority: has(4).then_some(Priority(30)),
    }
}

#[test]
fn r11_table_6_holds_for_all_32_subsets_and_4_plugins() {
    let plugins = vec![
        edf("edf", "0-1", Confine::Auto, None),
        rm("rm", "0-1", 60, 99, RmTest::Hyperbolic),
        fp("fp", "0-1", 30, 59),
        rr("rr", "0-1", 1, 29),
    ];
    let rig = Rig::new(pinnable(2), plugins);
    for bits in 0..32 {
        let params = subset(bits);
        let (period, runtime, priority) =
            (params.period.is_some(), params.runtime.is_some(), params.priority.is_some());
        let said = |plugin| rig.plugin_set.ask(plugin, &ask(&params), None);
        // EDF: T and Q mandatory, Q^d and D optional, P unused.
        match said(0) {
            Verdict::Ok(offer) => {
                assert!(period && runtime);
                let accepted = if params.desired.is_some() { 2 * MS } else { MS };
                let span = if params.deadline.is_some() { 8 * MS } else { 10 * MS };
                assert_eq!(offer.runtime, Some(Work::from_ns(accepted)));
                assert_eq!(offer.charge, Charge::ratio(accepted, span));
            }
            Verdict::No(no) => {
                let first = if period { Field::Runtime } else { Field::Period };
                assert!(
                    !(period && runtime)
                        && (no.reason, no.field) == (RejectionReason::Missing, first),
                    "{params:?}"
                );
            }
            Verdict::Partial(_) => panic!("edf never serves partially"),
        }
        // RM: T mandatory, Q recommended, D optional, the rest unused.
        match said(1) {
            Verdict::Ok(offer) => {
                assert!(period && runtime && offer.runtime == Some(Work::from_ns(MS)));
            }
            Verdict::Partial(offer) => {
                assert!(
                    period
                        && !runtime
                        && offer.notes.contains(Notes::PARTIAL.with(Notes::NOT_PROVED))
                );
                assert_eq!((offer.runtime, offer.charge), (None, Charge::ZERO));
            }
            Verdict::No(no) => {
                assert!(
                    !period && (no.reason, no.field) == (RejectionReason::Missing, Field::Period)
                );
            }
        }
        // RR and FP: P mandatory, the rest unused.
        for plugin in [2, 3] {
            match said(plugin) {
                Verdict::Ok(_) => assert!(priority, "{params:?}"),
                Verdict::No(no) => {
                    assert!(
                        !priority
                            && (no.reason, no.field) == (RejectionReason::Missing, Field::Priority)
                    );
                }
                Verdict::Partial(_) => panic!("fp and rr never serve partially"),
            }
        }
    }
}

#[test]
fn r1_an_undeclared_deadline_is_the_period() {
    let mut rig = Rig::new(pinnable(1), vec![edf("edf", "0", Confine::Auto, None)]);
    let implicit = periodic(10 * MS, 3 * MS);
    let explicit = Params { deadline: Some(Span::from_ns(10 * MS)), ..implicit };
    let one = rig.create(0, &ask(&implicit)).unwrap();
    let two = rig.create(0, &ask(&explicit)).unwrap();
    assert_eq!(rig.plugin_set.attr(one), rig.plugin_set.attr(two));
    rig.clear();
}

#[test]
fn retif_w12_impossible_requests_are_refused_by_every_plugin() {
    let plugins = vec![
        edf("edf", "0", Confine::Auto, None),
        rm("rm", "0", 60, 99, RmTest::Necessary),
        fp("fp", "0", 1, 59),
        rr("rr", "0", 1, 59),
    ];
    let rig = Rig::new(pinnable(1), plugins);
    let whole = Params { priority: Some(Priority(9)), ..periodic(10 * MS, 5 * MS) };
    let cases = [
        (Params { runtime: Some(Work::from_ns(10 * MS + 1)), ..whole }, Field::Runtime, 10 * MS),
        (Params { deadline: Some(Span::from_ns(4 * MS)), ..whole }, Field::Runtime, 4 * MS),
        (Params { desired: Some(Work::from_ns(5 * MS - 1)), ..whole }, Field::Desired, 5 * MS),
        (Params { period: Some(Span::ZERO), ..whole }, Field::Period, 1),
        (Params { runtime: Some(Work::ZERO), ..whole }, Field::Runtime, 1),
        (Params { deadline: Some(Span::ZERO), ..whole }, Field::Deadline, 1),
    ];
    for plugin in 0..4 {
        for (params, field, fits) in &cases {
            for ignore_admission in [false, true] {
                let no = refused(rig.plugin_set.ask(
                    plugin,
                    &PluginRequest { ignore_admission, ..ask(params) },
                    None,
                ));
                assert_eq!((no.field, no.fits), (*field, *fits), "plugin {plugin}: {params:?}");
                assert!(matches!(
                    no.reason,
                    RejectionReason::Contradiction | RejectionReason::OutOfRange
                ));
            }
        }
        assert!(offered(&rig.plugin_set.ask(plugin, &ask(&whole), None)).is_some());
    }
}
