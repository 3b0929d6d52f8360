//! Tests of durations and reservations: accepted texts, refused texts and their messages.

use super::*;
use proptest::prelude::*;
use talea_core::{Params, Priority, Work};

#[test]
fn durations_are_read_exactly() {
    for (text, ns) in [
        ("0", 0),
        ("0ms", 0),
        ("1024ns", 1_024),
        ("100us", 100_000),
        ("100µs", 100_000),
        ("10ms", 10_000_000),
        ("1.5ms", 1_500_000),
        ("1.500000ms", 1_500_000),
        ("0.000001ms", 1),
        ("2s", 2_000_000_000),
        ("90min", 5_400_000_000_000),
        ("1.5min", 90_000_000_000),
        ("0.000000001min", 60),
        ("24h", 86_400_000_000_000),
        ("30d", 2_592_000_000_000_000),
        ("007ms", 7_000_000),
        ("18446744073709551615ns", u64::MAX),
        ("18446744073.709551615s", u64::MAX),
    ] {
        assert_eq!(parse_span(text), Ok(Span::from_ns(ns)), "{text}");
    }
}

#[test]
fn a_refused_duration_says_what_would_be_right() {
    for (text, reason) in [
        ("", "empty"),
        ("10", "write \"10us\" or \"10ms\""),
        ("10 ms", "write \"10ms\""),
        ("10MS", "write \"10ms\""),
        ("5m", "the units are ns, us, ms, s, min, h and d"),
        ("300000d", "584 years"),
        ("-1ms", "negative"),
        ("1.5ns", "finer than a nanosecond"),
        ("0.0000001ms", "finer than a nanosecond"),
        ("1.2.3ms", "not a duration"),
        (".5ms", "not a duration"),
        ("5.ms", "not a duration"),
        ("ms", "not a duration"),
        ("1e3us", "not a duration"),
        ("18446744073709551616ns", "584 years"),
        ("18446744074s", "584 years"),
        ("99999999999999999999999999s", "584 years"),
    ] {
        let error = parse_span(text).expect_err(text).to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn reservations_read_as_in_rtla_with_units() {
    let real_time = |params, kind| Ok(Reservation::RealTime { params, kind });
    let level = |p| Params { priority: Some(Priority(p)), ..Params::default() };
    let reserved = Params {
        runtime: Some(Work::from_ns(2_000_000)),
        period: Some(Span::from_ns(10_000_000)),
        ..Params::default()
    };
    assert_eq!(parse_reservation("d:2ms:10ms"), real_time(reserved, "edf"));
    assert_eq!(parse_reservation("f:50"), real_time(level(50), "fp"));
    assert_eq!(parse_reservation("r:1"), real_time(level(1), "rr"));
    assert_eq!(parse_reservation("o:-20"), Ok(Reservation::Ordinary { nice: -20 }));
}

#[test]
fn a_refused_reservation_says_what_would_be_right() {
    for (text, reason) in [
        ("", "write d:RUNTIME:PERIOD"),
        ("d", "write d:RUNTIME:PERIOD"),
        ("d:2ms", "write d:RUNTIME:PERIOD"),
        ("d:2ms:10ms:10ms", "write d:RUNTIME:PERIOD"),
        ("x:1", "write d:RUNTIME:PERIOD"),
        ("d:2:10ms", "the runtime: 2 has no unit"),
        ("d:2ms:ten", "the period: "),
        ("d:0ms:10ms", "the runtime must be longer than zero"),
        ("d:10ms:2ms", "write the runtime first"),
        ("f:0", "1 (least) to 99"),
        ("f:100", "1 (least) to 99"),
        ("r:", "1 (least) to 99"),
        ("o:20", "-20 (favoured) to 19"),
    ] {
        let error = parse_reservation(text).expect_err(text).to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn what_a_span_prints_reads_back_as_itself(ns in any::<u64>()) {
        let span = Span::from_ns(ns);
        prop_assert_eq!(parse_span(&span.to_string()), Ok(span));
    }

    #[test]
    fn decimals_are_exact_or_refused(whole in 0_u64..1_000_000, part in 0_u64..1_000_000_000) {
        // Reference model: the same number in nanoseconds, by integers only.
        let text = format!("{whole}.{part:09}s");
        prop_assert_eq!(parse_span(&text), Ok(Span::from_ns(whole * 1_000_000_000 + part)));
        let in_us = parse_span(&format!("{whole}.{part:09}us"));
        let exact = part.is_multiple_of(1_000_000);
        let expected = Ok(Span::from_ns(whole * 1_000 + part / 1_000_000));
        prop_assert_eq!(in_us, if exact { expected } else { Err(SpanError::TooFine) });
    }

    #[test]
    fn nothing_written_makes_it_panic(text in "\\PC{0,30}") {
        let _ = parse_span(&text);
        let _ = parse_reservation(&text);
    }
}
