//! Refusals are sentences with numbers and units, and the names for programs are stable.

use crate::strategies::refusal;
use proptest::prelude::*;
use talea_core::{Charge, Span, Work};
use talea_proto::message::{Name, Notes};
use talea_proto::refusal::PluginText;
use talea_proto::refusal::{PluginVerdict, RejectionReason, Witness};
use talea_proto::{Code, Field, PluginAnswer, Refusal, Rejection};

fn refusal_of(code: Code, field: Field, asked: u64, limit: u64) -> Refusal {
    Refusal { code, field, asked, limit, errno: 0, index: 0, rule: None, answers: Vec::new() }
}

fn no(reason: RejectionReason, field: Field, asked: u64, limit: u64, fits: u64) -> Rejection {
    Rejection { reason, field, cpu: None, asked, limit, fits, witness: None }
}

#[test]
fn a_rule_is_named_with_its_location_and_its_bound() {
    let mut refusal = refusal_of(Code::RuleBound, Field::Runtime, 5_000_000, 2_000_000);
    refusal.rule = Some("talead.toml:12".into());
    assert_eq!(
        refusal.to_string(),
        "Not allowed: a runtime of 5ms was requested and the access rule at talead.toml:12 allows \
         at most 2ms."
    );
    let refusal = refusal_of(Code::RuleBound, Field::Period, 1_000_000, 10_000_000);
    assert_eq!(
        refusal.to_string(),
        "Not allowed: a period of 1ms was requested and an access rule allows at least 10ms."
    );
}

#[test]
fn omitted_parameters_can_be_declared_but_not_priorities_assigned_by_a_plugin() {
    let refusal = refusal_of(Code::RuleOmission, Field::Priority, 0, 40);
    let text = refusal.to_string();
    assert!(
        text.contains("declares no priority") && text.contains("declare it within the bound"),
        "{text}"
    );
    let refusal = refusal_of(Code::RuleOmission, Field::Priority, 100, 40);
    let text = refusal.to_string();
    assert!(text.contains("assigns priority 100") && text.contains("at most 40"), "{text}");
    assert!(!text.contains("declare it"), "{text}");
}

#[test]
fn every_rejection_reports_the_value_that_fits() {
    let name = |text| Name::new(text).expect("a name");
    let mut refusal = refusal_of(Code::NoPlugin, Field::Request, 0, 0);
    let full = Rejection {
        cpu: Some(1),
        ..no(RejectionReason::NoRoom, Field::Utilization, 700_000, 490_000, 490_000)
    };
    refusal.answers = vec![
        PluginAnswer {
            plugin: 0,
            name: name("edf"),
            verdict: PluginVerdict::No(full),
            text: PluginText::NONE,
        },
        PluginAnswer {
            plugin: 1,
            name: name("fp"),
            verdict: PluginVerdict::No(no(RejectionReason::Missing, Field::Priority, 0, 0, 0)),
            text: PluginText::NONE,
        },
    ];
    assert_eq!(
        refusal.to_string(),
        "No plugin can serve the request. Plugin edf: no room on CPU 1: a utilization of 70.00% of \
         a CPU was requested, the bound is 49.00% of a CPU; a utilization of 49.00% of a CPU would \
         fit. Plugin fp: the plugin needs a priority and the request declares none."
    );
}

#[test]
fn r16_a_witness_takes_the_place_of_the_bound() {
    let ms = |count: u64| Span::from_ns(count * 1_000_000);
    let full = Rejection {
        cpu: Some(0),
        ..no(RejectionReason::NoRoom, Field::Utilization, 400_000, 100_000, 100_000)
    };
    let with = |witness| Rejection { witness: Some(witness), ..full }.to_string();
    let late =
        |own, response| Witness::DeadlineMiss { own, period: ms(20), deadline: ms(15), response };
    assert_eq!(
        with(late(true, Some(ms(17)))),
        "no room on CPU 0: a utilization of 40.00% of a CPU was requested; this task could complete \
         17ms after its release; its deadline is 15ms; a utilization of 10.00% of a CPU would fit"
    );
    let text = with(late(false, None));
    assert!(
        text.contains(
            "; the task with a period of 20ms could complete without bound after its release; its \
             deadline is 15ms;"
        ),
        "{text}"
    );
    let (at, demand, supply) = (ms(15), Work::from_ns(14_000_000), Work::from_ns(13_500_000));
    let text = with(Witness::Demand { at, demand, supply });
    assert!(
        text.contains("; within 15ms the demand could be 14ms and the supply is 13500us;"),
        "{text}"
    );
}

#[test]
fn an_acceptance_names_the_place_and_the_charge() {
    let charge = Charge::ratio(1, 5);
    let yes = PluginVerdict::Ok { cpu: Some(3), charge, notes: Notes::default() };
    assert_eq!(yes.to_string(), "yes, on CPU 3 for 20.00% of a CPU");
}

#[test]
fn bounds_are_reported_as_minimum_or_maximum() {
    let short = no(RejectionReason::OutOfRange, Field::Runtime, 500, 1_024, 1_024);
    assert_eq!(
        short.to_string(),
        "a runtime of 500ns was requested and the plugin accepts at least 1024ns; a runtime of \
         1024ns would fit"
    );
    let long = no(RejectionReason::Contradiction, Field::Runtime, 12_000_000, 10_000_000, 0);
    assert!(long.to_string().ends_with("requires at most 10ms"), "{long}");
}

#[test]
fn invalid_parameters_are_reported_with_the_bound() {
    let refusal = refusal_of(Code::Malformed, Field::Runtime, 11_000_000, 10_000_000);
    assert_eq!(
        refusal.to_string(),
        "The runtime is invalid: 11ms was requested, and it must be at most 10ms."
    );
    let refusal = refusal_of(Code::Malformed, Field::Desired, 3_000, 4_000);
    assert!(refusal.to_string().ends_with("it must be at least 4us."), "{refusal}");
}

#[test]
fn stable_names_are_kebab_case_and_distinct() {
    let words: Vec<&str> = Code::ALL
        .map(Code::stable_name)
        .into_iter()
        .chain(RejectionReason::ALL.map(RejectionReason::stable_name))
        .chain(Notes(u32::MAX).stable_names())
        .collect();
    for word in &words {
        assert!(word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{word}");
    }
    assert_eq!(Code::NoPlugin.stable_name(), "no-plugin");
    assert_eq!(Field::IgnoreAdmission.stable_name(), "ignore-admission");
    let codes: std::collections::BTreeSet<_> = Code::ALL.map(Code::stable_name).into();
    assert_eq!(codes.len(), Code::ALL.len());
    for code in Code::ALL {
        assert_eq!(Code::from_number(code as u16), Some(code));
    }
    assert_eq!(Code::from_number(0), None);
}

proptest! {
    #[test]
    fn every_refusal_is_a_sequence_of_sentences(refusal in refusal()) {
        let text = refusal.to_string();
        prop_assert!(text.starts_with(char::is_uppercase), "{}", text);
        prop_assert!(text.ends_with('.'), "{}", text);
    }
}
