//! Dominance results of the literature, checked on every generated set; both outcomes occur.

use crate::rng::{Deadlines, random, rng, rounds};
use talea_analysis::uni::{edf_response, fp_response, qpa};
use talea_analysis::{Demand, Sporadic, edf, rm};
use talea_core::Charge;

fn demands(tasks: &[Sporadic]) -> Vec<Demand> {
    tasks.iter().map(|task| Demand::new(task.cost, task.period.min(task.deadline))).collect()
}

#[test]
fn liu_layland_implies_hyperbolic_implies_response_times() {
    let mut rng = rng(21);
    let mut accepted = [0; 4];
    for _ in 0..rounds(20_000) {
        let count = rng.between(1, 6);
        let mut tasks = random(&mut rng, count, 1_000, 190 / count, Deadlines::Constrained);
        for task in &mut tasks {
            task.deadline = task.period;
        }
        tasks.sort_by_key(|task| task.period);
        let classes = rm::merged(demands(&tasks));
        let verdicts = [
            rm::liu_layland(&classes),
            rm::hyperbolic(&classes),
            fp_response::verdict(&tasks).is_proved(),
            rm::necessary(&classes),
        ];
        assert!(verdicts.is_sorted(), "{verdicts:?}: {tasks:?}");
        for (count, verdict) in accepted.iter_mut().zip(verdicts) {
            *count += u64::from(verdict);
        }
    }
    println!("Liu and Layland, hyperbolic, response times, U ≤ 1: {accepted:?}");
    assert!(accepted.windows(2).all(|pair| pair[0] < pair[1]), "each accepts more: {accepted:?}");
}

#[test]
fn density_implies_demand_and_fixed_priorities_imply_edf() {
    let mut rng = rng(22);
    let mut accepted = [0; 3];
    for _ in 0..rounds(20_000) {
        let count = rng.between(1, 6);
        let tasks = random(&mut rng, count, 1_000, 160 / count, Deadlines::Constrained);
        let density = edf::partitioned(&demands(&tasks), Charge::ONE);
        let demand = qpa::verdict(&tasks).is_proved();
        // EDF is optimal on one CPU (Dertouzos 1974).
        let fixed = fp_response::verdict(&tasks).is_proved();
        assert!(demand || !(density || fixed), "{tasks:?}");
        for (count, verdict) in accepted.iter_mut().zip([density, fixed, demand]) {
            *count += u64::from(verdict);
        }
    }
    println!("density, fixed priorities, demand: {accepted:?}");
    assert!(accepted[0] < accepted[2] && accepted[1] < accepted[2], "{accepted:?}");
}

#[test]
fn response_times_and_demand_are_one_test_for_edf() {
    let mut rng = rng(23);
    let mut proved = 0;
    let all = rounds(5_000);
    for _ in 0..all {
        let count = rng.between(1, 6);
        let tasks = random(&mut rng, count, 200, 160 / count, Deadlines::Arbitrary);
        let verdict = qpa::verdict(&tasks).is_proved();
        assert_eq!(edf_response::verdict(&tasks).is_proved(), verdict, "{tasks:?}");
        proved += u64::from(verdict);
    }
    assert!(proved > all / 5 && proved < all * 9 / 10, "{proved} of {all}");
}
