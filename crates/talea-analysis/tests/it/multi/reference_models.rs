//! The fast tests against their reference models, on every small set and on random sets. The file
//! also checks proved relations between tests, and sustainability.

use super::plain::{self, Rule};
use super::{lists, random_set, small_tasks, task};
use talea_analysis::multi::bertogna_cirinei::{self, GlobalPolicy};
use talea_analysis::multi::{Scratch, baruah, bcl, da_lc, ff_dbf, gfb, guan, necessary};
use talea_analysis::{Sporadic, Verdict, Witness};
use talea_sim::rng::Rng;

const POINTS: u64 = 1 << 16;

fn bounds(verdict: &Verdict) -> Option<Vec<i128>> {
    match verdict {
        Verdict::Proved { bounds } => {
            Some(bounds.iter().map(|bound| i128::from(bound.as_ns())).collect())
        }
        _ => None,
    }
}

/// Passes sets of three and four tasks with small periods, and random sets with longer periods, to
/// `f`.
fn sets(f: &mut dyn FnMut(&[Sporadic], u32)) {
    // Two CPUs and three tasks: the smallest case in which a task waits.
    lists(&small_tasks(4), 3, false, &mut |tasks| f(tasks, 2));
    lists(&small_tasks(3), 4, true, &mut |tasks| {
        f(tasks, 2);
        f(tasks, 3);
    });
    let mut rng = Rng::new(7);
    for round in 0..1_500 {
        let cpus = 2 + round % 3;
        let count = rng.between(3, 9);
        let load = rng.between(15, 90);
        f(&random_set(&mut rng, count, 60, cpus, load, round % 2 == 0), cpus);
    }
}

#[test]
fn bcl_is_its_definition_on_every_small_set() {
    let mut scratch = Scratch::new();
    let (mut seen, mut proved) = (0, 0);
    sets(&mut |tasks, cpus| {
        let each = plain::bcl(tasks, cpus);
        let first = bcl::plain_slacks(tasks, cpus, &mut scratch).expect("within the assumptions");
        assert_eq!(first, each.iter().position(|&proved| !proved), "{tasks:?} {cpus}");
        let slacks = plain::bcl_iterative(tasks, cpus);
        let deadlines = tasks.iter().map(|task| i128::from(task.deadline.as_ns()));
        let plain: Option<Vec<i128>> = slacks.map(|slacks| {
            deadlines.zip(slacks).map(|(deadline, slack)| deadline - slack).collect()
        });
        assert_eq!(bounds(&bcl::iterative(tasks, cpus, &mut scratch)), plain, "{tasks:?} {cpus}");
        seen += 1;
        proved += usize::from(plain.is_some());
    });
    println!("{seen} sets, {proved} proved by the iterative test");
    assert!(proved > 1_000);
}

#[test]
fn bertogna_cirinei_is_its_definition_on_every_small_set() {
    let mut scratch = Scratch::new();
    for (policy, rule) in [
        (GlobalPolicy::WorkConserving, Rule::Any),
        (GlobalPolicy::Edf, Rule::Edf),
        (GlobalPolicy::FixedPriority, Rule::Fp),
    ] {
        let (mut seen, mut proved) = (0, 0);
        sets(&mut |tasks, cpus| {
            let there = plain::bertogna_cirinei(rule, tasks, cpus);
            let here = bounds(&bertogna_cirinei::test(policy, tasks, cpus, &mut scratch));
            assert_eq!(here, there, "{rule:?} {tasks:?} {cpus}");
            seen += 1;
            proved += usize::from(there.is_some());
        });
        println!("{rule:?}: {seen} sets, {proved} proved");
        assert!(proved > 500);
    }
}

#[test]
fn guan_is_its_definition_on_every_small_set() {
    let mut scratch = Scratch::new();
    let mut proved = 0;
    sets(&mut |tasks, cpus| {
        let there = plain::guan(tasks, cpus);
        assert_eq!(bounds(&guan::test(tasks, cpus, &mut scratch)), there, "{tasks:?} {cpus}");
        proved += usize::from(there.is_some());
    });
    assert!(proved > 1_000);
}

#[test]
fn bar_is_its_definition_on_every_small_set() {
    let mut scratch = Scratch::new();
    let (mut proved, mut refused) = (0, 0);
    sets(&mut |tasks, cpus| {
        let full =
            plain::numbers(tasks).iter().map(|&(c, _, t)| c * 1_000_000 / t + 1).sum::<i128>();
        if full >= 990_000 * i128::from(cpus) {
            return;
        }
        let there = plain::bar(tasks, cpus, 400);
        let here = baruah::test(tasks, cpus, POINTS, &mut scratch).is_proved();
        // The plain one looks up to 400 only: what it finds counts.
        assert!(here || !there, "refused without a reason: {tasks:?} {cpus}");
        assert!(there || !here, "{tasks:?} {cpus}");
        proved += usize::from(here);
        refused += usize::from(!here);
    });
    println!("{proved} proved, {refused} refused");
    assert!(proved > 1_000 && refused > 1_000);
}

#[test]
fn ff_dbf_finds_a_speed_whenever_there_is_one() {
    let mut scratch = Scratch::new();
    let (mut proved, mut refused, mut higher) = (0, 0, 0);
    // Fractions to try, without those that are the same.
    let speeds: Vec<(i128, i128)> = (1..=12)
        .flat_map(|down| (1..=down).map(move |up| (up, down)))
        .filter(|&(up, down)| gcd(up, down) == 1)
        .collect();
    let mut check = |tasks: &[Sporadic], cpus: u32| {
        let numbers = plain::numbers(tasks);
        let m = i128::from(cpus);
        let used = numbers.iter().map(|&(c, _, t)| 1_000_000 * c / t + 1).sum::<i128>();
        // The plain one looks as far as this only, and so can't tell where next to nothing is left
        // idle.
        let tells = |(up, down): (i128, i128)| {
            1_000_000 * m - (m - 1) * up * 1_000_000 / down - used > 100_000
        };
        let least = |(up, down): (i128, i128)| numbers.iter().all(|&(c, d, _)| c * down <= up * d);
        match ff_dbf::speed(tasks, cpus, POINTS, &mut scratch) {
            Ok(speed) => {
                let speed = (i128::from(speed.numerator), i128::from(speed.denominator));
                assert!(least(speed), "{speed:?}: {tasks:?}");
                assert!(plain::ff_dbf(tasks, cpus, speed, 120), "{speed:?}: {tasks:?} {cpus}");
                proved += 1;
                higher += usize::from(!numbers.iter().any(|&(c, d, _)| c * speed.1 == speed.0 * d));
                // It is the least.
                let lower = speeds
                    .iter()
                    .filter(|&&s| s.0 * speed.1 < speed.0 * s.1 && least(s) && tells(s));
                for &lower in lower {
                    assert!(
                        !plain::ff_dbf(tasks, cpus, lower, 120),
                        "{lower:?} < {speed:?}: {tasks:?} {cpus}"
                    );
                }
            }
            Err(Verdict::Unknown { .. }) => {
                refused += 1;
                for &speed in speeds.iter().filter(|&&speed| least(speed) && tells(speed)) {
                    assert!(!plain::ff_dbf(tasks, cpus, speed, 120), "{speed:?}: {tasks:?} {cpus}");
                }
            }
            Err(other) => panic!("{other:?}"),
        }
    };
    lists(&small_tasks(4), 3, true, &mut |tasks| check(tasks, 2));
    lists(&small_tasks(3), 4, true, &mut |tasks| {
        check(tasks, 2);
        check(tasks, 3);
    });
    let mut rng = Rng::new(8);
    for round in 0..400 {
        let cpus = 2 + round % 3;
        let (count, load) = (rng.between(3, 9), rng.between(5, 50));
        check(&random_set(&mut rng, count, 14, cpus, load, false), cpus);
    }
    // A few that are due soon, and as many as there are CPUs, as dense, that are not: these would
    // have to be ahead too far.
    for _ in 0..200 {
        let soon = 2 * rng.between(1, 4);
        let later = soon * rng.between(2, 9);
        let mut tasks = vec![task(soon / 2, soon, 90); 2];
        tasks.extend(vec![task(later / 2, later, 90); 4]);
        check(&tasks, 4);
    }
    println!(
        "{proved} proved, {higher} of them by more than the largest density, {refused} refused"
    );
    assert!(proved > 200 && higher > 10 && refused > 1_000);
}

fn gcd(a: i128, b: i128) -> i128 {
    if a == 0 { b } else { gcd(b % a, a) }
}

#[test]
fn a_refuted_load_is_the_first_overfull_window() {
    let mut scratch = Scratch::new();
    let (mut overloads, mut windows) = (0, 0);
    sets(&mut |tasks, cpus| {
        let there = plain::overfull(tasks, cpus, 300);
        match necessary::test(tasks, cpus, POINTS, &mut scratch) {
            Verdict::Refuted { witness: Witness::Demand { at, demand, supply, .. } } => {
                assert!(demand.as_ns() > supply.as_ns());
                assert_eq!(Some(i128::from(at.as_ns())), there, "{tasks:?} {cpus}");
                windows += 1;
            }
            Verdict::Refuted { witness: Witness::Overload { .. } } => overloads += 1,
            Verdict::Unknown { .. } => assert_eq!(there, None, "{tasks:?} {cpus}"),
            other => panic!("{other:?}"),
        }
    });
    println!("{overloads} overloads, {windows} windows");
    assert!(overloads > 100 && windows > 100);
}

#[test]
fn da_lc_is_its_definition_and_an_order_is_found_whenever_there_is_one() {
    let mut scratch = Scratch::new();
    let (mut found, mut none) = (0, 0);
    lists(&small_tasks(4), 4, true, &mut |tasks| {
        // Every fifth set is enough.
        let sum: u64 = tasks.iter().map(|task| task.cost.as_ns() * 7 + task.deadline.as_ns()).sum();
        if !sum.is_multiple_of(5) {
            return;
        }
        let mut exists = false;
        permutations(tasks, &mut |order| {
            let plain = (1..=order.len()).all(|count| plain::da_lc(&order[..count], 2));
            assert_eq!(da_lc::test(order, 2, &mut scratch).is_proved(), plain, "{order:?}");
            exists |= plain;
        });
        let order = da_lc::assign(tasks, 2, &mut scratch).expect("within the assumptions");
        assert_eq!(order.is_some(), exists, "{tasks:?}");
        if let Some(order) = order {
            let ordered: Vec<Sporadic> = order.iter().map(|&at| tasks[at]).collect();
            assert!(da_lc::test(&ordered, 2, &mut scratch).is_proved(), "{ordered:?}");
            found += 1;
        } else {
            none += 1;
        }
    });
    println!("{found} sets with an order, {none} without");
    assert!(found > 100 && none > 100);
}

fn permutations(tasks: &[Sporadic], f: &mut dyn FnMut(&[Sporadic])) {
    fn go(tasks: &mut Vec<Sporadic>, from: usize, f: &mut dyn FnMut(&[Sporadic])) {
        if from == tasks.len() {
            return f(tasks);
        }
        for at in from..tasks.len() {
            tasks.swap(from, at);
            go(tasks, from + 1, f);
            tasks.swap(from, at);
        }
    }
    go(&mut tasks.to_vec(), 0, f);
}

#[test]
fn proved_dominance_holds() {
    let mut scratch = Scratch::new();
    sets(&mut |tasks, cpus| {
        let mut ask =
            |test: fn(&[Sporadic], u32, &mut Scratch) -> Verdict| test(tasks, cpus, &mut scratch);
        let plain = ask(bcl::plain);
        let iterative = ask(bcl::iterative);
        let edf = ask(|tasks, cpus, scratch| {
            bertogna_cirinei::test(GlobalPolicy::Edf, tasks, cpus, scratch)
        });
        let any = ask(|tasks, cpus, scratch| {
            bertogna_cirinei::test(GlobalPolicy::WorkConserving, tasks, cpus, scratch)
        });
        let fp = ask(|tasks, cpus, scratch| {
            bertogna_cirinei::test(GlobalPolicy::FixedPriority, tasks, cpus, scratch)
        });
        let guan = ask(guan::test);
        let da_lc = ask(da_lc::test);
        let gfb = gfb::test(tasks, cpus);
        let ff_dbf = ask(|tasks, cpus, scratch| ff_dbf::test(tasks, cpus, POINTS, scratch));
        let load = ask(|tasks, cpus, scratch| necessary::test(tasks, cpus, POINTS, scratch));
        for (better, worse, what) in [
            (&iterative, &plain, "iterative and plain"),
            (&edf, &iterative, "response times and slacks"),
            (&edf, &any, "EDF and any policy"),
            (&fp, &any, "fixed priorities and any policy"),
            (&guan, &fp, "Guan and Bertogna-Cirinei"),
            (&guan, &da_lc, "Guan and DA-LC"),
            (&ff_dbf, &gfb, "FF-DBF and density"),
        ] {
            assert!(better.is_proved() || !worse.is_proved(), "{what}: {tasks:?} {cpus}");
        }
        // Bounds of the better are no larger, where both take all tasks into account once.
        if let (Some(guan), Some(fp)) = (bounds(&guan), bounds(&fp)) {
            assert!(guan.iter().zip(&fp).all(|(guan, fp)| guan <= fp), "{tasks:?} {cpus}");
        }
        if matches!(load, Verdict::Refuted { .. }) {
            for verdict in [&plain, &iterative, &edf, &any, &fp, &guan, &da_lc, &gfb, &ff_dbf] {
                assert!(!verdict.is_proved(), "{tasks:?} {cpus}");
            }
        }
    });
}

/// Relaxation of a parameter in which an entry claims sustainability.
type Relax = fn(&mut Sporadic);

#[test]
fn tests_are_sustainable_as_their_catalogue_entries_say() {
    let cheaper: Relax =
        |t| *t = task(t.cost.as_ns().max(2) - 1, t.deadline.as_ns(), t.period.as_ns());
    let rarer: Relax = |t| *t = task(t.cost.as_ns(), t.deadline.as_ns(), t.period.as_ns() + 1);
    let later: Relax = |t| {
        *t = task(t.cost.as_ns(), (t.deadline.as_ns() + 1).min(t.period.as_ns()), t.period.as_ns());
    };
    type Test = fn(&[Sporadic], u32, &mut Scratch) -> Verdict;
    let tests: [(&str, &str, Test); 8] = [
        (gfb::INFO.name, gfb::INFO.sustainable, |tasks, cpus, _| gfb::test(tasks, cpus)),
        (bcl::PLAIN.name, bcl::PLAIN.sustainable, bcl::plain),
        (bcl::ITERATIVE.name, bcl::ITERATIVE.sustainable, bcl::iterative),
        (bertogna_cirinei::ANY.name, bertogna_cirinei::ANY.sustainable, |tasks, cpus, scratch| {
            bertogna_cirinei::test(GlobalPolicy::WorkConserving, tasks, cpus, scratch)
        }),
        (bertogna_cirinei::EDF.name, bertogna_cirinei::EDF.sustainable, |tasks, cpus, scratch| {
            bertogna_cirinei::test(GlobalPolicy::Edf, tasks, cpus, scratch)
        }),
        (bertogna_cirinei::FP.name, bertogna_cirinei::FP.sustainable, |tasks, cpus, scratch| {
            bertogna_cirinei::test(GlobalPolicy::FixedPriority, tasks, cpus, scratch)
        }),
        (guan::INFO.name, guan::INFO.sustainable, guan::test),
        (da_lc::INFO.name, da_lc::INFO.sustainable, da_lc::test),
    ];
    let mut scratch = Scratch::new();
    let mut lost = std::collections::BTreeMap::<(&str, &str), usize>::new();
    sets(&mut |tasks, cpus| {
        for (name, sustainable, test) in tests {
            if !test(tasks, cpus, &mut scratch).is_proved() {
                continue;
            }
            for (what, relax) in [("costs", cheaper), ("periods", rarer), ("deadlines", later)] {
                for at in 0..tasks.len() {
                    let mut relaxed = tasks.to_vec();
                    relax(&mut relaxed[at]);
                    if !test(&relaxed, cpus, &mut scratch).is_proved() {
                        assert!(
                            !sustainable.contains(what),
                            "{name}, {what}: {tasks:?} {at} {cpus}"
                        );
                        *lost.entry((name, what)).or_default() += 1;
                    }
                }
            }
        }
    });
    for ((name, what), count) in lost {
        println!("{name}: {count} sets are lost when {what} are relaxed");
    }
}
