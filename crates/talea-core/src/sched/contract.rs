//! What every policy must do, whatever it orders by: the contract of [`Scheduler`], under random
//! sequences of calls.
//!
//! The built-in policies are held to it in the tests here, and whoever writes one of his own holds
//! it to the same.

use super::{Built, Child, Entry, Newcomer, Policy, Resched, Scheduler};
use crate::criteria::Criteria;
use crate::mutate;
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

/// Holds a policy to the contract: its head is ready and the first of its order, which is strict;
/// who is ready is not forgotten; and who says [`Resched::Keep`] keeps its head, that one's
/// criteria and its allowance. An instance that was only told of admissions orders as the one at
/// work does, unless the policy is metered or has wakeups, and never both ways. Children are
/// admitted with costs; whoever is refused is left out.
///
/// # Errors
/// What it does not keep, or that it takes nobody.
pub fn check(policy: &Policy) -> Result<(), String> {
    check_order(policy, None)
}

/// The same, with what the policy orders by where a number says it.
pub(super) fn check_order(policy: &Policy, order: Option<Order>) -> Result<(), String> {
    let mut refused = 0;
    let mut why = String::new();
    for case in 0..CASES {
        if let Some(reason) = check_case(policy, order, case)? {
            (refused, why) = (refused + 1, reason);
        }
    }
    if refused == CASES {
        return Err(format!("{} does not take a child with a cost: {why}", policy.name()));
    }
    Ok(())
}

/// An instance that was told of admissions alone; whom it has taken, and why not the last of the
/// others.
fn admitted(policy: &Policy, unit: u64, seed: &mut u64) -> (Built, Vec<Child>, String) {
    let mut built = policy.build(CHILDREN as usize);
    let (mut taken, mut refusal) = (Vec::new(), String::new());
    for child in 0..CHILDREN {
        let cost = Some(Work::from_ns((random(seed, 4) + 1) * unit));
        let criteria =
            Criteria { deadline: Time::NEVER, arrival: Time::NEVER, ..criteria(seed, unit) };
        match built.admit(&Newcomer { child, name: "child", criteria, cost }) {
            Ok(()) => taken.push(child),
            Err(why) => refusal = why,
        }
    }
    (built, taken, refusal)
}

/// Of an instance that was told of nothing but admissions.
fn check_fresh(
    name: &str,
    fresh: &Built,
    told: Option<&Built>,
    now: Time,
    pair: [&Entry; 2],
) -> Result<(), String> {
    let [a, b] = pair;
    let (one, other) = (fresh.before(now, a, b), fresh.before(now, b, a));
    if one && other {
        return Err(format!("{name}: {a:?} and {b:?} come before each other"));
    }
    if told.is_some_and(|told| (told.before(now, a, b), told.before(now, b, a)) != (one, other)) {
        return Err(format!(
            "{name}: an instance that was not told of {a:?} and {b:?} orders them otherwise"
        ));
    }
    Ok(())
}

/// Why it takes nobody, if that is so.
fn check_case(policy: &Policy, order: Option<Order>, case: u64) -> Result<Option<String>, String> {
    let name = policy.name();
    // Small numbers find ties; milliseconds are for policies that count in something coarser than
    // nanoseconds.
    let unit = if matches!(policy, Policy::Custom { .. }) && case % 2 == 1 { 1_000_000 } else { 1 };
    let mut seed = case;
    let (fresh, ..) = admitted(policy, unit, &mut seed.clone());
    let (mut built, taken, refusal) = admitted(policy, unit, &mut seed);
    if taken.is_empty() {
        return Ok(Some(refusal));
    }
    // Such a one may be that of a root with several CPUs, and is asked there about children that it
    // was not told of.
    let is_stateless =
        !(policy.is_time_sharing() || fresh.metered() || fresh.next_wakeup().is_some());
    let mut ready: Vec<Option<Entry>> = vec![None; CHILDREN as usize];
    let (mut now, mut stamp) = (Time::ZERO, 0);
    let mut wakes = 0;
    for _ in 0..CALLS {
        now += Span::from_ns(random(&mut seed, 3) * unit);
        let before = built.head(now);
        let allowed = before.map(|head| built.allowance(now, head));
        let mut is_kept = true;
        let mut charged = Work::ZERO;
        let child = taken[random(&mut seed, taken.len() as u64) as usize];
        while let Some((at, part)) = built.next_wakeup().filter(|wakeup| wakeup.0 <= now) {
            // One that counts in nanoseconds has seen enough for this case.
            wakes += 1;
            if wakes > WAKES {
                return Ok(None);
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
                // A new job, or one that has waited.
                let job = (stamp / 2) as u32;
                let entry = Entry { child, job, since: stamp, criteria: criteria(&mut seed, unit) };
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
                if random(&mut seed, 2) == 0 {
                    (entry.since, entry.job) = (stamp, stamp as u32);
                }
                ready[child as usize] = Some(entry);
                changed = Some(child);
                built.update(now, &entry)
            }
            (Some(_), _) => match built.head(now) {
                Some(head) if built.metered() => {
                    let allowance = built.allowance(now, head).unwrap_or(Work::from_ns(9 * unit));
                    charged = Work::from_ns(random(&mut seed, allowance.as_ns() + 1));
                    built.charge(now, head, charged)
                }
                _ => Resched::Keep,
            },
        };
        is_kept &= kept == Resched::Keep;
        let head = built.head(now);
        if is_kept && head != before {
            return Err(format!(
                "{name} said Keep, but its head is another one: {head:?} after {before:?}"
            ));
        }
        if is_kept && head.is_some() && head == changed {
            return Err(format!("{name} said Keep, but its head {head:?} has other criteria"));
        }
        if mutate!("core-contract-allowance", is_kept, false)
            && charged.is_zero()
            && head.map(|head| built.allowance(now, head)) != allowed
        {
            return Err(format!(
                "{name} said Keep, but the allowance of its head {head:?} is another one"
            ));
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
            check_fresh(name, &fresh, is_stateless.then_some(&built), now, [other, &first])?;
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
    Ok(None)
}
