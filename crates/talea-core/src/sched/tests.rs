//! What every policy must do, whatever it orders by: the contract of [`Scheduler`], under random sequences of calls.

use super::*;
use alloc::vec;

fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

fn criteria(seed: &mut u64) -> Criteria {
    let mut time = |below| Time::from_ns(random(seed, below));
    let (deadline, arrival) = (time(8), time(8));
    let mut span = || Span::from_ns(random(seed, 5) + 1);
    let (period, relative_deadline) = (span(), span());
    let priority = [0, 63, 64, 200, 255][random(seed, 5) as usize];
    let (criticality, yields) = (random(seed, 3) as u8, random(seed, 4) == 0);
    Criteria { deadline, arrival, period, relative_deadline, priority, criticality, yields }
}

/// Where a child belongs: the lower, the earlier.
type Order = fn(&Entry) -> (u64, u64, Child);

/// `order`: what the policy orders by, where numbers say it.
fn suite(policy: &Policy, order: Option<Order>) {
    const CHILDREN: u32 = 7;
    let name = policy.name();
    for case in 0..200 {
        let mut seed = case;
        let mut built = policy.build(CHILDREN as usize);
        let mut ready: Vec<Option<Entry>> = vec![None; CHILDREN as usize];
        let (mut now, mut stamp) = (Time::ZERO, 0);
        for _ in 0..200 {
            now += Span::from_ns(random(&mut seed, 3));
            let before = built.head(now);
            let mut is_kept = true;
            let child = random(&mut seed, u64::from(CHILDREN)) as Child;
            while let Some((at, part)) = built.next_wakeup().filter(|wakeup| wakeup.0 <= now) {
                is_kept &= built.wake(at, part) == Resched::Keep;
            }
            let mut changed = None;
            let kept = match (ready[child as usize], random(&mut seed, 3)) {
                (None, _) => {
                    stamp += 1;
                    let entry = Entry { child, since: stamp, criteria: criteria(&mut seed) };
                    ready[child as usize] = Some(entry);
                    built.ready(now, &entry)
                }
                (Some(_), 0) => {
                    ready[child as usize] = None;
                    built.finished(now, child)
                }
                (Some(mut entry), 1) => {
                    // A change of criteria, sometimes with a new job.
                    entry.criteria = criteria(&mut seed);
                    stamp += 1;
                    entry.since = if random(&mut seed, 2) == 0 { stamp } else { entry.since };
                    ready[child as usize] = Some(entry);
                    changed = Some(child);
                    built.update(now, &entry)
                }
                (Some(_), _) => match built.head(now) {
                    Some(head) if built.metered() => {
                        let allowance = built.allowance(now, head).unwrap_or(Work::from_ns(9));
                        built.charge(now, head, Work::from_ns(random(&mut seed, allowance.as_ns() + 1)))
                    }
                    _ => Resched::Keep,
                },
            };
            is_kept &= kept == Resched::Keep;
            let head = built.head(now);
            assert!(!is_kept || head == before, "{name} said Keep, but its head is another one");
            assert!(
                !is_kept || head.is_none() || head != changed,
                "{name} said Keep, but its head has other criteria"
            );
            let Some(first) = head.map(|head| ready[head as usize].expect("the head of a policy is ready"))
            else {
                assert!(
                    policy.is_time_sharing() || ready.iter().all(Option::is_none),
                    "{name} has a ready child and no head"
                );
                continue;
            };
            for other in ready.iter().flatten().filter(|other| other.child != first.child) {
                assert!(
                    !built.before(now, other, &first),
                    "{name}: {other:?} comes before the head {first:?}"
                );
                let is_less = !policy.is_time_sharing() && order.is_some();
                assert!(!is_less || built.before(now, &first, other), "{name}: a strict order has no equals");
            }
            if let Some(order) = order {
                assert_eq!(
                    ready.iter().flatten().map(order).min(),
                    Some(order(&first)),
                    "{name} is not in order"
                );
            }
        }
    }
}

#[test]
fn s19_policies_that_order_by_a_number_keep_the_contract() {
    suite(&Policy::Edf, Some(|of| (of.criteria.deadline.as_ns(), 0, of.child)));
    suite(&Policy::RateMonotonic, Some(|of| (of.criteria.period.as_ns(), 0, of.child)));
    suite(&Policy::DeadlineMonotonic, Some(|of| (of.criteria.relative_deadline.as_ns(), 0, of.child)));
    suite(&Policy::CriticalityMonotonic, Some(|of| (255 - u64::from(of.criteria.criticality), 0, of.child)));
    suite(&Policy::Fifo, Some(|of| (of.criteria.arrival.as_ns(), 0, of.child)));
}

#[test]
fn l2_fixed_priorities_find_the_highest_level_as_a_scan_does_and_keep_its_queue() {
    suite(
        &Policy::FixedPriority,
        Some(|of| {
            let level = 2 * (255 - u64::from(of.criteria.priority)) + u64::from(of.criteria.yields);
            (level, of.since, of.child)
        }),
    );
}

#[test]
fn s19_round_robin_and_partitions_keep_the_contract() {
    suite(&Policy::RoundRobin { quantum: Work::from_ns(3) }, None);
    let slot = |start, end, owner| Slot { start: Span::from_ns(start), end: Span::from_ns(end), owner };
    for lending in [false, true] {
        let slots = vec![slot(0, 3, 1), slot(3, 4, 0), slot(6, 9, 1)];
        suite(&Policy::Partitions { frame: Span::from_ns(10), slots, lending }, None);
    }
}
