//! Bin packing with an exact test inside: against the simulator, against all placements, and
//! against the bound that guarantees success.

use super::{random_set, simulated};
use crate::rng::{rng, rounds};
use talea_analysis::multi::bertogna_cirinei::GlobalPolicy;
use talea_analysis::multi::partition::{Fit, PackingOrder, edf, fp, lopez, pack};
use talea_analysis::{Demand, Sporadic, uni};
use talea_core::Charge;
use talea_sim::Completion;

const FITS: [Fit; 3] = [Fit::First, Fit::Best, Fit::Worst];
const ORDERS: [PackingOrder; 2] = [PackingOrder::Given, PackingOrder::Decreasing];

/// Whether the tasks meet their deadlines under EDF on one CPU, exactly.
fn by_demand(tasks: &[Sporadic]) -> bool {
    uni::qpa::verdict(tasks).is_proved()
}

/// Whether the tasks with D = T meet their deadlines under EDF on one CPU, exactly.
fn by_utilisation(tasks: &[Sporadic]) -> bool {
    let demands: Vec<Demand> =
        tasks.iter().map(|task| Demand::new(task.cost, task.period)).collect();
    talea_analysis::edf::partitioned(&demands, Charge::ONE)
}

/// Whether the tasks meet their deadlines under fixed priorities on one CPU, exactly.
fn by_response(tasks: &[Sporadic]) -> bool {
    uni::fp_response::verdict(tasks).is_proved()
}

/// Whether some placement satisfies the test on every CPU.
fn exists(tasks: &[Sporadic], cpus: usize, accepts: fn(&[Sporadic]) -> bool) -> bool {
    let placements = (cpus as u64).pow(tasks.len() as u32);
    (0..placements).any(|number| {
        let cpu_of = |task: usize| number / (cpus as u64).pow(task as u32) % cpus as u64;
        (0..cpus as u64).all(|cpu| {
            let there: Vec<Sporadic> = (0..tasks.len())
                .filter(|&task| cpu_of(task) == cpu)
                .map(|task| tasks[task])
                .collect();
            accepts(&there)
        })
    })
}

#[test]
fn packed_sets_meet_their_deadlines_and_sets_without_placement_are_not_packed() {
    let mut rng = rng(51);
    let mut counts = [[0; 3]; 2];
    let mut missed = 0;
    for round in 0..rounds(300) {
        let cpus = 2 + (round % 2) as u32;
        let count = u64::from(cpus) + 1 + round % 4;
        let load = rng.between(50, 95);
        let tasks = random_set(&mut rng, count, 40, cpus, load, round % 3 == 0);
        let (policy, accepts): (_, fn(&[Sporadic]) -> bool) = match round % 3 {
            0 => (GlobalPolicy::Edf, by_utilisation),
            1 => (GlobalPolicy::Edf, by_demand),
            _ => (GlobalPolicy::FixedPriority, by_response),
        };
        let there_is_one = exists(&tasks, cpus as usize, accepts);
        for (fit, row) in FITS.into_iter().zip(0..) {
            for (order, column) in ORDERS.into_iter().zip(0..) {
                let packed = pack(&tasks, cpus, fit, order, accepts);
                let by_name = match policy {
                    GlobalPolicy::FixedPriority => fp(&tasks, cpus, fit, order),
                    _ => edf(&tasks, cpus, fit, order),
                };
                assert_eq!(packed, by_name, "{tasks:?} on {cpus}");
                let Ok(cpu_of) = packed else {
                    missed += usize::from(there_is_one);
                    continue;
                };
                assert!(there_is_one, "{tasks:?} on {cpus}: {cpu_of:?}");
                let counts: &mut [i32; 3] = &mut counts[column];
                counts[row] += 1;
                for cpu in 0..cpus {
                    let there: Vec<Sporadic> = tasks
                        .iter()
                        .zip(&cpu_of)
                        .filter(|&(_, &of)| of == cpu)
                        .map(|(task, _)| *task)
                        .collect();
                    let times = simulated::arrivals(&mut rng, &there, 1_000, false);
                    let ended = simulated::simulate(policy, &there, 1, &times);
                    assert!(!ended.iter().any(Completion::is_late), "{there:?}");
                }
            }
        }
    }
    println!(
        "first, best, worst fit as given {:?}, decreasing {:?}; {missed} times none was found where there is one",
        counts[0], counts[1]
    );
    assert!(missed > 0 && counts.iter().flatten().all(|&count| count > 50));
}

#[test]
fn lopez_2004_first_and_best_fit_place_every_set_that_the_bound_accepts() {
    let mut rng = rng(52);
    let mut accepted = 0;
    for round in 0..rounds(6_000) {
        let cpus = 2 + (round % 4) as u32;
        let (count, load) = (rng.between(2, 14), rng.between(40, 80));
        let tasks = random_set(&mut rng, count, 30, cpus, load, true);
        if !lopez(&tasks, cpus) {
            continue;
        }
        accepted += 1;
        for fit in [Fit::First, Fit::Best] {
            for order in ORDERS {
                let placed = pack(&tasks, cpus, fit, order, by_utilisation);
                assert!(placed.is_ok(), "{fit:?} {order:?}: {tasks:?} on {cpus}");
            }
        }
    }
    println!("{accepted} sets within the bound");
    assert!(accepted > 500);
}
