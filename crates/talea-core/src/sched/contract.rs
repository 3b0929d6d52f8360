//! What every policy must do, whatever it orders by: the contract of [`Scheduler`], under random sequences of calls.
//!
//! The built-in policies are held to it in the tests here, and whoever writes one of his own holds it to the same.

use super::{Child, Entry, Newcomer, Policy, Resched, Scheduler};
use crate::criteria::Criteria;
use crate::{Span, Time, Work};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

const CHILDREN: u32 = 7;
const CASES: u64 = 200;
const CALLS: u32 = 200;
const WAKES: u32 = 10_000;

/// Where a child belongs: the lower, the earlier.
pub(super) type Order = fn(&Entry) -> (u64, u64, Child);

fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// `unit`: of all times, in nanoseconds.
fn criteria(seed: &mut u64, unit: u64) -> Criteria {
    let mut time = |below| Time::from_ns(random(seed, below) * unit);
    let (deadline, arrival) = (time(8), time(8));
    let mut span = || Span::from_ns((random(seed, 5) + 1) * unit);
    let (period, relative_deadline) = (span(), span());
    let priority = [0, 63, 64, 200, 255][random(seed, 5) as usize];
    let (criticality, yields) = (random(seed, 3) as u8, random(seed, 4) == 0);
    Criteria { deadline, arrival, period, relative_deadline, priority, criticality, yields }
}

/// Holds a policy to the contract: its head is ready and the first of its order, which is strict; who is ready is not
/// forgotten; and who says [`Resched::Keep`] keeps. Children are admitted with costs.
///
/// # Errors
/// What it does not keep.
pub fn check(policy: &Policy) -> Result<(), String> {
    check_order(policy, None)
}

/// The same, with what the policy orders by where a number says it.
pub(super) fn check_order(policy: &Policy, order: Option<Order>) -> Result<(), String> {
    (0..CASES).try_for_each(|case| check_case(policy, order, case))
}

fn check_case(policy: &Policy, order: Option<Order>, case: u64) -> Result<(), String> {
    let name = policy.name();
    // Small numbers find ties; milliseconds are for policies that count in something coarser than nanoseconds.
    let unit = if matches!(policy, Policy::Custom { .. }) && case % 2 == 1 { 1_000_000 } else { 1 };
    let mut seed = case;
    let mut built = policy.build(CHILDREN as usize);
    for child in 0..CHILDREN {
        let cost = Some(Work::from_ns((random(&mut seed, 4) + 1) * unit));
        let criteria = Criteria { deadline: Time::NEVER, arrival: Time::NEVER, ..criteria(&mut seed, unit) };
        built
            .admit(&Newcomer { child, name: "child", criteria, cost })
            .map_err(|why| format!("{name} does not take a child with a cost: {why}"))?;
    }
    let mut ready: Vec<Option<Entry>> = vec![None; CHILDREN as usize];
    let (mut now, mut stamp) = (Time::ZERO, 0);
    let mut wakes = 0;
    for _ in 0..CALLS {
        now += Span::from_ns(random(&mut seed, 3) * unit);
        let before = built.head(now);
        let mut is_kept = true;
        let child = random(&mut seed, u64::from(CHILDREN)) as Child;
        while let Some((at, part)) = built.next_wakeup().filter(|wakeup| wakeup.0 <= now) {
            // One that counts in nanoseconds has seen enough for this case.
            wakes += 1;
            if wakes > WAKES {
                return Ok(());
            }
            is_kept &= built.wake(at, part) == Resched::Keep;
            if built.next_wakeup().is_some_and(|next| next <= (at, part)) {
                return Err(format!("{name} was woken at {at:?} and wants to be woken then again"));
            }
        }
        let mut changed = None;
        let kept = match (ready[child as usize], random(&mut seed, 3)) {
            (None, _) => {
                stamp += 1;
                let entry = Entry { child, since: stamp, criteria: criteria(&mut seed, unit) };
                ready[child as usize] = Some(entry);
                built.ready(now, &entry)
            }
            (Some(_), 0) => {
                ready[child as usize] = None;
                built.finished(now, child)
            }
            (Some(mut entry), 1) => {
                // A change of criteria, sometimes with a new job.
                entry.criteria = criteria(&mut seed, unit);
                stamp += 1;
                entry.since = if random(&mut seed, 2) == 0 { stamp } else { entry.since };
                ready[child as usize] = Some(entry);
                changed = Some(child);
                built.update(now, &entry)
            }
            (Some(_), _) => match built.head(now) {
                Some(head) if built.metered() => {
                    let allowance = built.allowance(now, head).unwrap_or(Work::from_ns(9 * unit));
                    built.charge(now, head, Work::from_ns(random(&mut seed, allowance.as_ns() + 1)))
                }
                _ => Resched::Keep,
            },
        };
        is_kept &= kept == Resched::Keep;
        let head = built.head(now);
        if is_kept && head != before {
            return Err(format!("{name} said Keep, but its head is another one: {head:?} after {before:?}"));
        }
        if is_kept && head.is_some() && head == changed {
            return Err(format!("{name} said Keep, but its head {head:?} has other criteria"));
        }
        let Some(head) = head else {
            if !policy.is_time_sharing() && ready.iter().any(Option::is_some) {
                return Err(format!("{name} has a ready child and no head"));
            }
            continue;
        };
        let Some(first) = ready.get(head as usize).copied().flatten() else {
            return Err(format!("{name}: the head {head} is not ready"));
        };
        for other in ready.iter().flatten().filter(|other| other.child != head) {
            if built.before(now, other, &first) {
                return Err(format!("{name}: {other:?} comes before the head {first:?}"));
            }
            let is_strict = !policy.is_time_sharing() && order.is_some();
            if is_strict && !built.before(now, &first, other) {
                return Err(format!("{name}: a strict order has no equals: {first:?}, {other:?}"));
            }
        }
        if let Some(order) = order
            && ready.iter().flatten().map(order).min() != Some(order(&first))
        {
            return Err(format!("{name} is not in order: {first:?} is its head among {ready:?}"));
        }
    }
    Ok(())
}
