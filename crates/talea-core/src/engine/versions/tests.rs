//! Selection rules, compared with a reference model or with results by hand.

use super::*;
use alloc::vec;

fn version(energy: u64, time: u64, modes: u64, needs: u64) -> Version {
    Version { energy, time: Work::from_ns(time), modes, needs, ..Version::default() }
}

fn choose(selection: Selection, versions: &[Version], free: u64, conditions: &Conditions) -> u32 {
    selection.choose(&Candidates { task: TaskId(3), versions, available: free, job: 0, conditions })
}

#[test]
fn y6_with_a_falling_battery_the_largest_budget_that_it_holds_is_chosen() {
    // Listing 2 of the paper: v1 with a budget of 5, v2 with 12, in this order.
    let versions = vec![version(5, 0, 0, 0), version(12, 0, 0, 0)];
    for battery in (0..=100).rev() {
        let conditions = Conditions { battery, ..Conditions::default() };
        let expected = u32::from(battery >= 12);
        assert_eq!(choose(Selection::Energy, &versions, 0b11, &conditions), expected, "{battery}");
        assert_eq!(
            choose(Selection::Energy, &versions, 0b10, &conditions),
            1,
            "the only available one"
        );
    }
}

#[test]
fn y6_the_trade_off_moves_from_time_to_energy_with_its_weight() {
    let versions = vec![version(100, 10, 0, 0), version(40, 40, 0, 0), version(10, 100, 0, 0)];
    let all = Conditions::default();
    for weight in 0..=1_000 {
        let model = versions
            .iter()
            .enumerate()
            .min_by_key(|(_, version)| {
                u64::from(weight) * version.energy
                    + u64::from(1_000 - weight) * version.time.as_ns()
            })
            .expect("some");
        assert_eq!(
            choose(Selection::TradeOff { weight }, &versions, 0b111, &all),
            model.0 as u32,
            "{weight}"
        );
    }
    assert_eq!(choose(Selection::TradeOff { weight: 0 }, &versions, 0b111, &all), 0);
    assert_eq!(choose(Selection::TradeOff { weight: 500 }, &versions, 0b111, &all), 1);
    assert_eq!(choose(Selection::TradeOff { weight: 1_000 }, &versions, 0b111, &all), 2);
}

#[test]
fn y6_the_first_version_of_the_mode_is_chosen_or_else_the_last() {
    let versions = vec![version(0, 0, 0b01, 0), version(0, 0, 0b10, 0), version(0, 0, 0b110, 0)];
    for (mode, free, expected) in
        [(0, 0b111, 0), (1, 0b111, 1), (1, 0b101, 2), (2, 0b111, 2), (5, 0b111, 2), (5, 0b011, 1)]
    {
        let conditions = Conditions { mode, ..Conditions::default() };
        assert_eq!(
            choose(Selection::Mode, &versions, free, &conditions),
            expected,
            "mode {mode} of {free:b}"
        );
    }
}

#[test]
fn y6_a_version_needs_all_its_bits_permitted() {
    let versions = vec![version(0, 0, 0, 0b011), version(0, 0, 0, 0b100), version(0, 0, 0, 0)];
    for (permitted, expected) in
        [(0b111, 0), (0b011, 0), (0b001, 2), (0b100, 1), (0b101, 1), (0, 2)]
    {
        let conditions = Conditions { permitted, ..Conditions::default() };
        assert_eq!(
            choose(Selection::Mask, &versions, 0b111, &conditions),
            expected,
            "{permitted:b}"
        );
    }
}

#[test]
fn y6_a_selector_receives_candidates_and_conditions_and_an_invalid_result_falls_back() {
    let versions = vec![version(1, 0, 0, 0), version(2, 0, 0, 0), version(3, 0, 0, 0)];
    let conditions = Conditions { battery: 2, ..Conditions::default() };
    fn exact(of: &Candidates) -> Option<u32> {
        of.iter().find(|(_, version)| version.energy == of.conditions.battery).map(|(at, _)| at)
    }
    assert_eq!(choose(Selection::User(exact), &versions, 0b111, &conditions), 1);
    assert_eq!(
        choose(Selection::User(exact), &versions, 0b101, &conditions),
        2,
        "the last candidate"
    );
    assert_eq!(choose(Selection::User(|_| Some(77)), &versions, 0b011, &conditions), 1);
    assert_eq!(
        choose(Selection::User(|_| Some(0)), &versions, 0b110, &conditions),
        2,
        "the first is not available"
    );
    assert_eq!(choose(Selection::Declared, &versions, 0b110, &conditions), 1);
}

#[test]
fn y6_in_a_mode_beyond_the_bit_mask_the_last_version_is_chosen() {
    let versions = vec![version(0, 0, 0, 0), version(0, 0, 0, 0)];
    for mode in [63, 64, 255] {
        let conditions = Conditions { mode, ..Conditions::default() };
        let chosen = choose(Selection::Mode, &versions, 0b11, &conditions);
        assert!(chosen < 2, "mode {mode}");
    }
}

#[test]
fn y6_conditions_change_one_at_a_time() {
    let mut conditions = Conditions::default();
    conditions.set(Condition::Battery(7));
    conditions.set(Condition::Mode(3));
    conditions.set(Condition::Permitted(5));
    assert_eq!(conditions, Conditions { battery: 7, mode: 3, permitted: 5 });
}

#[test]
fn y6_a_selector_with_a_context_receives_it_with_the_task() {
    let versions = vec![version(0, 0, 0, 0), version(0, 0, 0, 0), version(0, 0, 0, 0)];
    let all = Conditions::default();
    let by_number = |of: &Candidates, number: u64| Some(of.task.0 - number as u32);
    for number in 1..=3 {
        assert_eq!(
            choose(Selection::UserWithContext(by_number, number), &versions, 0b111, &all),
            3 - number as u32
        );
    }
    assert_eq!(
        choose(Selection::UserWithContext(|_, _| None, 0), &versions, 0b011, &all),
        1,
        "the last candidate"
    );
}
