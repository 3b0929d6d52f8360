//! Actions of jobs beside computing, on threads: suspension, locks, tokens, versions, and tables.
//! The orders and their sequence are those of a simulation.

use super::scene::{Agreed, Scene};
use talea_core::engine::Event;
use talea_exec::RecordKind;
use talea_kernel_tests::{Bench, kernel, needs, needs_root};

/// Returns the number of events of a kind that the engine received.
fn count_events(agreed: &Agreed, wanted: impl Fn(Event) -> bool) -> usize {
    let is_wanted = |kind: RecordKind| matches!(kind, RecordKind::Event(event) if wanted(event));
    agreed.record().iter().filter(|entry| is_wanted(entry.kind)).count()
}

#[test]
fn y8_a_lock_is_waited_for_and_lends_on_threads() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("exec_resources");
    let scene = Scene::read(
        r#"
        duration = "144ms"
        [[scheduler]]
        name = "cpu"
        policy = "fp"
        [[resource]]
        name = "bus"
        protocol = "inheritance"
        [[task]]
        name = "high"
        priority = 30
        period = "77ms"
        offset = "8ms"
        cost = "6ms"
        [[task.section]]
        resource = "bus"
        start = "2ms"
        length = "3ms"
        [[task]]
        name = "middle"
        priority = 20
        period = "77ms"
        offset = "16ms"
        cost = "12ms"
        [[task]]
        name = "low"
        priority = 10
        period = "77ms"
        cost = "24ms"
        [[task.section]]
        resource = "bus"
        start = "4ms"
        length = "12ms"
        [[task.suspension]]
        start = "20ms"
        length = "10ms"
        "#,
    );
    let agreed = &scene.agrees(&bench)[0];
    assert!(count_events(agreed, |event| matches!(event, Event::Locked { .. })) >= 4);
    assert!(count_events(agreed, |event| matches!(event, Event::Woke { .. })) >= 1);
    assert!(agreed.preemptions() >= 2, "{}", agreed.preemptions());
}

#[test]
fn y9_a_graph_activates_its_nodes_on_threads_across_cpus() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("exec_graph");
    let scene = Scene::read(
        r#"
        duration = "160ms"
        [[scheduler]]
        name = "both"
        policy = "edf"
        cpus = 2
        [[task]]
        name = "camera"
        period = "70ms"
        cost = "9ms"
        [[task]]
        name = "laser"
        period = "70ms"
        cost = "15ms"
        [[task]]
        name = "fusion"
        cost = "14ms"
        [[task]]
        name = "record"
        cost = "6ms"
        [[channel]]
        from = "camera"
        to = "fusion"
        size = 2
        [[channel]]
        from = "laser"
        to = "fusion"
        [[channel]]
        from = "fusion"
        to = "record"
        size = 2
        "#,
    );
    let agreed = &scene.agrees(&bench)[0];
    // No thread has reported that jobs of the last two arrived.
    assert_eq!(count_events(agreed, |event| matches!(event, Event::Arrived { .. })), 6);
    assert!(count_events(agreed, |event| matches!(event, Event::Completed { .. })) >= 8);
    assert!(count_events(agreed, |event| matches!(event, Event::Pushed { .. })) >= 4);
}

#[test]
fn y6_y7_versions_are_chosen_by_what_is_free_and_by_the_battery_on_threads() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("exec_versions");
    let scene = Scene::read(
        r#"
        duration = "150ms"
        [[scheduler]]
        name = "cpu"
        policy = "edf"
        selection = "energy"
        [[accelerator]]
        name = "gpu"
        [[task]]
        name = "detect"
        period = "45ms"
        [[task.version]]
        name = "gpu"
        cost = "5ms"
        accelerators = ["gpu"]
        energy = 30
        [[task.version]]
        name = "full"
        cost = "20ms"
        energy = 20
        [[task.version]]
        name = "coarse"
        cost = "9ms"
        energy = 5
        [[change]]
        at = "30ms"
        battery = 25
        [[change]]
        at = "75ms"
        battery = 10
        "#,
    );
    let agreed = &scene.agrees(&bench)[0];
    let versions: Vec<u32> = agreed
        .record()
        .iter()
        .filter_map(|entry| match entry.kind {
            RecordKind::Order(talea_core::engine::Order::Run { version, .. }) => Some(version),
            _ => None,
        })
        .collect();
    assert_eq!(versions, [0, 1, 2, 2]);
}

#[test]
fn y11_y12_an_off_line_table_is_followed_on_threads() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("exec_table");
    let scene = Scene::read(
        r#"
        duration = "98ms"
        [[scheduler]]
        name = "cpus"
        policy = "table"
        cpus = 2
        hyperperiod = "50ms"
        [[scheduler.entry]]
        owner = "filter"
        length = "14ms"
        version = "fast"
        activates = true
        [[scheduler.entry]]
        owner = "filter"
        start = "24ms"
        length = "20ms"
        version = "slow"
        activates = true
        [[scheduler.entry]]
        cpu = 1
        owner = "plan"
        start = "7ms"
        length = "10ms"
        activates = true
        continues = true
        [[scheduler.entry]]
        cpu = 1
        owner = "plan"
        start = "32ms"
        length = "14ms"
        [[task]]
        name = "filter"
        period = "25ms"
        [[task.version]]
        name = "fast"
        cost = "9ms"
        [[task.version]]
        name = "slow"
        cost = "15ms"
        [[task]]
        name = "plan"
        period = "50ms"
        cost = "18ms"
        "#,
    );
    let agreed = &scene.agrees(&bench)[0];
    assert!(agreed.rests_within_jobs() >= 2, "`plan` is computed in two pieces");
    assert_eq!(
        count_events(agreed, |event| matches!(event, Event::Arrived { .. })),
        0,
        "the table makes the jobs"
    );
}
