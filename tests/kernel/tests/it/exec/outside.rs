//! Policies and servers from outside, as the examples have them, on threads.

#[allow(unreachable_pub, reason = "public in the example")]
#[path = "../../../../../examples/policy-llf/src/lib.rs"]
mod policy;
#[allow(unreachable_pub, reason = "public in the example")]
#[path = "../../../../../examples/server-saver/src/lib.rs"]
pub(super) mod server;

use super::scene::Scene;
use talea_core::Work;
use talea_core::engine::TaskId;
use talea_exec::ScheduleEvent;
use talea_kernel_tests::{Bench, kernel, needs, needs_root};
use talea_system::Registry;

#[test]
fn s19_a_custom_policy_schedules_threads_in_a_tree_of_three_levels() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("exec_llf");
    let scene = Scene::read_with(
        r#"
        duration = "250ms"
        [[scheduler]]
        name = "cpu0"
        policy = "fp"
        [[scheduler]]
        name = "band"
        in = "cpu0"
        policy = "edf"
        priority = 30
        [[scheduler]]
        name = "vision"
        in = "band"
        policy = "llf"
        server = "deferrable"
        budget = "100ms"
        period = "400ms"
        [[task]]
        name = "loop"
        in = "cpu0"
        priority = 50
        period = "70ms"
        offset = "6ms"
        cost = "5ms"
        [[task]]
        name = "early"
        in = "vision"
        period = "400ms"
        deadline = "120ms"
        cost = "10ms"
        offset = "12ms"
        [[task]]
        name = "tight"
        in = "vision"
        period = "400ms"
        deadline = "130ms"
        cost = "60ms"
        offset = "12ms"
        "#,
        &Registry::new().policy("llf", policy::make),
    );
    // When both have the same laxity they take turns of a millisecond of work, so the order of
    // their completions is open.
    let agreed = &scene.runs(&bench)[0];
    let turns = agreed.turns();
    let begins = |index: u32| {
        let is_its =
            |turn: &_| matches!(turn, ScheduleEvent::Dispatched { task, .. } if task.0 == index);
        turns.iter().position(is_its).unwrap_or_else(|| panic!("{index} has not begun: {turns:?}"))
    };
    // By deadlines `early` would come first; there is less time to spare for `tight`, for its first
    // forty milliseconds.
    assert!(begins(2) < begins(1), "{turns:?}");
    assert!(turns.contains(&ScheduleEvent::Completed { task: TaskId(1), job: 0 }), "{turns:?}");
}

#[test]
fn l19_a_custom_server_spends_its_saved_budget_on_threads() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("exec_saver");
    let scene = |kind: &str| {
        let text = format!(
            r#"
            duration = "150ms"
            [[scheduler]]
            name = "cpu0"
            policy = "fp"
            [[scheduler]]
            name = "requests"
            in = "cpu0"
            policy = "fifo"
            priority = 10
            server = "{kind}"
            budget = "8ms"
            period = "40ms"
            [[task]]
            name = "loop"
            in = "cpu0"
            priority = 50
            period = "75ms"
            offset = "25ms"
            cost = "4ms"
            [[task]]
            name = "burst"
            in = "requests"
            period = "200ms"
            offset = "50ms"
            cost = "14ms"
            "#
        );
        Scene::read_with(&text, &Registry::new().server("saver", server::make))
    };
    // The eight milliseconds of the first period were not used: the burst is answered at once.
    let saver = &scene("saver").agrees(&bench)[0];
    assert_eq!(saver.rests_within_jobs(), 0);
    let (granted, slack) = saver.worst_grant("burst");
    assert!(granted + slack >= Work::from_ns(13_900_000), "{granted} and {slack}");
    // Without a bonus it waits for the next budget in between.
    assert_eq!(scene("deferrable").agrees(&bench)[0].rests_within_jobs(), 1);
}
