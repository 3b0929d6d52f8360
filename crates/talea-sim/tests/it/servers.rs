//! Budget traces of each server compared with hand tables (L5): exhaustion, a late wake-up,
//! back-to-back jobs, an idle interval.

use crate::harness::{cost, listed, run, span, task, work};
use talea_core::engine::{SchedulerSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};

/// Returns the intervals in which the server's client ran, alone on a CPU. Each element of `jobs`
/// is (time, cost).
pub(crate) fn served(reservation: Reservation, jobs: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
    let mut spec = SchedulerSpec::new("server", PolicySpec::Fifo);
    spec.reservation = Some(reservation);
    let server = tree.scheduler(Tree::ROOT, spec);
    let mut sources = vec![];
    for &(at, ns) in jobs {
        tree.task(server, task("client", 1_000));
        sources.push(listed(&[at], cost(ns)));
    }
    // A background task shows the gaps.
    tree.task(Tree::ROOT, task("other", 1_000_000));
    sources.push(listed(&[0], cost(1_000_000)));
    let log = run(&tree, &sources, 200);
    let other = jobs.len() as u32;
    let mut spans: Vec<(u64, u64)> = vec![];
    for two in log.runs.windows(2).filter(|two| two[0].2 != other) {
        match spans.last_mut().filter(|last| last.1 == two[0].0) {
            Some(last) => last.1 = two[1].0,
            None => spans.push((two[0].0, two[1].0)),
        }
    }
    spans
}

fn reservation(kind: ServerKind) -> Reservation {
    Reservation::new(kind, work(4), span(20))
}

#[test]
fn s1_l5_an_exhausted_deferrable_server_or_hard_cbs_waits_for_its_refill() {
    let jobs = [(0, 10)];
    let expected = [(0, 4), (20, 24), (40, 42)];
    for kind in
        [ServerKind::Polling, ServerKind::Deferrable, ServerKind::Sporadic, ServerKind::HardCbs]
    {
        assert_eq!(served(reservation(kind), &jobs), expected, "{kind:?}");
    }
    assert_eq!(
        served(reservation(ServerKind::SoftCbs), &jobs),
        [(0, 10)],
        "the soft one continues"
    );
}

#[test]
fn l5_a_late_wake_up() {
    // Demand for two budgets at 15.
    let jobs = [(15, 8)];
    assert_eq!(
        served(reservation(ServerKind::Polling), &jobs),
        [(20, 24), (40, 44)],
        "after the poll"
    );
    assert_eq!(
        served(reservation(ServerKind::Deferrable), &jobs),
        [(15, 19), (20, 24)],
        "and again at once"
    );
    assert_eq!(
        served(reservation(ServerKind::Sporadic), &jobs),
        [(15, 19), (35, 39)],
        "T after its use began"
    );
    assert_eq!(
        served(reservation(ServerKind::HardCbs), &jobs),
        [(15, 19), (35, 39)],
        "T after it woke"
    );
}

#[test]
fn l5_back_to_back() {
    // Two units late in a period, then unlimited demand.
    let jobs = [(18, 2), (20, 10)];
    assert_eq!(served(reservation(ServerKind::Polling), &jobs), [(20, 24), (40, 44), (60, 64)]);
    assert_eq!(served(reservation(ServerKind::Deferrable), &jobs), [(18, 24), (40, 44), (60, 62)]);
    // Two of the four were used from 18, the others from 20.
    assert_eq!(served(reservation(ServerKind::Sporadic), &jobs), [(18, 22), (38, 42), (58, 62)]);
    // At 20 it is idle for no time: two are left, which fit before 38.
    assert_eq!(served(reservation(ServerKind::HardCbs), &jobs), [(18, 22), (38, 42), (58, 62)]);
}

#[test]
fn l24_budget_missed_for_two_periods_or_more_is_lost() {
    // One unit, then fifty units of a more urgent task.
    for (kind, expected) in [
        (ServerKind::Polling, [(0, 1), (51, 55), (60, 64), (80, 84)]),
        (ServerKind::Deferrable, [(0, 1), (51, 55), (60, 64), (80, 84)]),
        // The rest of the old budget, and a new one, whose period begins with it.
        (ServerKind::Sporadic, [(0, 1), (51, 58), (74, 78), (94, 98)]),
        (ServerKind::HardCbs, [(0, 1), (51, 58), (74, 78), (94, 98)]),
    ] {
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
        let mut spec = SchedulerSpec::new("server", PolicySpec::Fifo);
        spec.reservation = Some(reservation(kind));
        let server = tree.scheduler(Tree::ROOT, spec);
        tree.task(server, task("greedy", 1_000));
        tree.task(Tree::ROOT, task("urgent", 1));
        tree.task(Tree::ROOT, task("other", 1_000_000));
        let sources =
            [listed(&[0], cost(1_000)), listed(&[1], cost(50)), listed(&[0], cost(1_000))];
        let log = run(&tree, &sources, 100);
        let spans: Vec<(u64, u64)> = log
            .runs
            .windows(2)
            .filter(|two| two[0].2 == 0)
            .map(|two| (two[0].0, two[1].0))
            .collect();
        assert_eq!(spans, expected, "{kind:?}");
    }
}

#[test]
fn l5_an_idle_interval_in_the_middle() {
    // One unit, a pause, then more than the rest.
    let jobs = [(0, 1), (10, 5)];
    assert_eq!(
        served(reservation(ServerKind::Polling), &jobs),
        [(0, 1), (20, 24), (40, 41)],
        "what is not used is lost"
    );
    assert_eq!(served(reservation(ServerKind::Deferrable), &jobs), [(0, 1), (10, 13), (20, 22)]);
    // The three that are left count from 10 on.
    assert_eq!(
        served(reservation(ServerKind::Sporadic), &jobs),
        [(0, 1), (10, 13), (20, 21), (30, 31)]
    );
    // Three are left at 10 and two would fit before 20: a new budget and 30 as the deadline.
    assert_eq!(served(reservation(ServerKind::HardCbs), &jobs), [(0, 1), (10, 14), (30, 31)]);
}

#[test]
fn l5_a_cbs_with_a_short_deadline_is_cut_to_what_fits_and_waits_between_d_and_t() {
    let short = Reservation { deadline: Some(span(8)), ..reservation(ServerKind::HardCbs) };
    // One unit at 0 (deadline 8); at 4 three are left, and half of the time to 8 is two.
    assert_eq!(served(short, &[(0, 1), (4, 4)]), [(0, 1), (4, 6), (20, 22)]);
    // At 12 the deadline has passed and the period has not.
    assert_eq!(served(short, &[(0, 1), (12, 4)]), [(0, 1), (20, 24)]);
    // At 22 both have passed.
    assert_eq!(served(short, &[(0, 1), (22, 5)]), [(0, 1), (22, 26), (42, 43)]);
}

#[test]
fn l5_a_budget_exhausted_with_its_job_serves_the_next_job_fully() {
    // Jobs of exactly Q, at least T apart: the second arrives between the refill and its deadline.
    let short = Reservation { deadline: Some(span(8)), ..reservation(ServerKind::HardCbs) };
    assert_eq!(served(short, &[(0, 4), (23, 4), (43, 4)]), [(0, 4), (23, 27), (43, 47)]);
}

#[test]
fn l5_a_reservation_begins_with_its_offset() {
    for kind in [
        ServerKind::Polling,
        ServerKind::Deferrable,
        ServerKind::Sporadic,
        ServerKind::HardCbs,
        ServerKind::SoftCbs,
    ] {
        let late = Reservation { offset: span(7), ..reservation(kind) };
        assert_eq!(served(late, &[(0, 4)]), [(7, 11)], "{kind:?}");
    }
}

#[test]
fn l5_a_full_list_of_refills_delays_a_sporadic_server_and_loses_nothing() {
    // Eighteen jobs of one unit, three apart: the list has room for sixteen refills.
    let of = Reservation::new(ServerKind::Sporadic, work(20), span(100));
    let jobs: Vec<(u64, u64)> = (0..18).map(|job| (3 * job, 1)).chain([(60, 40)]).collect();
    let spans = served(of, &jobs);
    let total: u64 = spans.iter().map(|(from, to)| to - from).sum();
    let within = |from: u64, to: u64| -> u64 {
        spans.iter().map(|span| span.1.min(to).saturating_sub(span.0.max(from))).sum()
    };
    for from in 0..100 {
        assert!(within(from, from + 100) <= 20, "from {from}: {spans:?}");
    }
    assert!(within(0, 100) >= 18 && within(100, 200) >= 19, "{spans:?}");
    assert!(total >= 38, "{spans:?}");
}

#[test]
fn l5_a_root_with_a_budget_waits_for_its_refill_with_all_its_tasks() {
    for kind in
        [ServerKind::Polling, ServerKind::Deferrable, ServerKind::Sporadic, ServerKind::HardCbs]
    {
        let mut root = SchedulerSpec::new("cpu", PolicySpec::Edf);
        root.reservation = Some(reservation(kind));
        let mut tree = Tree::new(1, root);
        tree.task(Tree::ROOT, task("long", 1_000));
        tree.task(Tree::ROOT, task("short", 5));
        let log = run(&tree, &[listed(&[0], cost(10)), listed(&[2], cost(1))], 200);
        let runs: Vec<_> = log.runs.iter().map(|&(at, _, task)| (at, task)).collect();
        assert_eq!(runs, [(0, 0), (2, 1), (3, 0), (20, 0), (40, 0)], "{kind:?}");
        assert_eq!((log.ends(0), log.ends(1)), (vec![43], vec![3]), "{kind:?}");
    }
}
