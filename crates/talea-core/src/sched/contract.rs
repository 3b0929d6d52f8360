//! Contract of every [`Policy`], checked under random sequences of calls.
//!
//! The tests of this folder apply the contract to the built-in policies. The author of an external
//! policy applies [`check`] to that policy.

use super::{Child, ChildInfo, Policy, PolicyImpl, PolicySpec, ReadyChild, Resched};
use crate::criteria::Criteria;
use crate::mutate;
use crate::rng::Rng;
use crate::{Span, Time, Work};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

const CHILDREN: u32 = 7;
const CASES: u64 = 200;
const CALLS: u32 = 200;
const WAKES: u32 = 10_000;

/// Sort key of a child: the lowest is first.
pub(super) type Order = fn(&ReadyChild) -> (u64, u64, Child);

/// Generates random criteria. `unit` is the resolution of all times in nanoseconds.
fn criteria(rng: &mut Rng, unit: u64) -> Criteria {
    let mut time = |below| Time::from_ns(rng.below(below) * unit);
    let (deadline, arrival) = (time(8), time(8));
    let mut span = || Span::from_ns((rng.below(5) + 1) * unit);
    let (period, relative_deadline) = (span(), span());
    let priority = [0, 63, 64, 200, 255][rng.below(5) as usize];
    let (criticality, yields) = (rng.below(3) as u8, rng.below(4) == 0);
    Criteria { deadline, arrival, period, relative_deadline, priority, criticality, yields }
}

/// Checks a policy against the contract.
///
/// 1. The head is ready, and is the first in the order of [`before`](Policy::before), which is
///    strict. With a ready child, a policy that does not share time has a head.
/// 2. The policy keeps every ready child until it is finished.
/// 3. After [`Resched::Keep`], the head, its criteria and its allowance are unchanged.
/// 4. An instance that knows only the admissions orders two children in one direction only. Without
///    accounting and wakeups, this instance orders like the active instance.
/// 5. After a wakeup, the next wakeup is later.
///
/// Children are admitted with costs. The check omits a refused child.
///
/// # Errors
/// The violated rule, or that the policy admits no child.
pub fn check(policy: &PolicySpec) -> Result<(), String> {
    check_order(policy, None)
}

/// Checks the contract, and a numeric order if the policy has one.
pub(super) fn check_order(policy: &PolicySpec, order: Option<Order>) -> Result<(), String> {
    let mut refused_cases = 0;
    let mut last_reason = String::new();
    for case in 0..CASES {
        if let Some(reason) = check_case(policy, order, case)? {
            (refused_cases, last_reason) = (refused_cases + 1, reason);
        }
    }
    if refused_cases == CASES {
        return Err(format!("{} does not admit a child with a cost: {last_reason}", policy.name()));
    }
    Ok(())
}

/// Builds an instance that knows only the admissions.
///
/// Returns the admitted children, and the reason of the last refusal.
fn admitted(policy: &PolicySpec, unit: u64, rng: &mut Rng) -> (PolicyImpl, Vec<Child>, String) {
    let mut built = policy.build(CHILDREN as usize);
    let (mut admitted_children, mut refusal) = (Vec::new(), String::new());
    for child in 0..CHILDREN {
        let cost = Some(Work::from_ns((rng.below(4) + 1) * unit));
        let criteria =
            Criteria { deadline: Time::NEVER, arrival: Time::NEVER, ..criteria(rng, unit) };
        match built.admit(&ChildInfo { child, name: "child", criteria, cost }) {
            Ok(()) => admitted_children.push(child),
            Err(reason) => refusal = reason,
        }
    }
    (built, admitted_children, refusal)
}

/// Checks that an instance that knows only the admissions orders `pair` in one direction, and like
/// `active`.
fn check_fresh(
    name: &str,
    fresh: &PolicyImpl,
    active: Option<&PolicyImpl>,
    now: Time,
    pair: [&ReadyChild; 2],
) -> Result<(), String> {
    let [a, b] = pair;
    let (one, other) = (fresh.before(now, a, b), fresh.before(now, b, a));
    if one && other {
        return Err(format!("{name}: {a:?} and {b:?} come before each other"));
    }
    if active
        .is_some_and(|active| (active.before(now, a, b), active.before(now, b, a)) != (one, other))
    {
        return Err(format!(
            "{name}: an instance that does not know {a:?} and {b:?} orders them differently"
        ));
    }
    Ok(())
}

/// Checks one case. Returns the reason if the policy admits no child.
fn check_case(
    policy: &PolicySpec,
    order: Option<Order>,
    case: u64,
) -> Result<Option<String>, String> {
    let name = policy.name();
    // Small numbers produce ties; milliseconds suit policies with a resolution coarser than
    // nanoseconds.
    let unit =
        if matches!(policy, PolicySpec::Custom { .. }) && case % 2 == 1 { 1_000_000 } else { 1 };
    let mut rng = Rng::new(case);
    let (fresh, ..) = admitted(policy, unit, &mut rng.clone());
    let (mut built, admitted_children, refusal) = admitted(policy, unit, &mut rng);
    if admitted_children.is_empty() {
        return Ok(Some(refusal));
    }
    // Such a policy may serve a root with several CPUs, which asks about children that this
    // instance does not know.
    let is_stateless =
        !(policy.is_time_sharing() || fresh.needs_accounting() || fresh.next_wakeup().is_some());
    let mut ready: Vec<Option<ReadyChild>> = vec![None; CHILDREN as usize];
    let (mut now, mut ready_seq) = (Time::ZERO, 0);
    let mut wakes = 0;
    for _ in 0..CALLS {
        now += Span::from_ns(rng.below(3) * unit);
        let before = built.head(now);
        let allowed = before.map(|head| built.allowance(now, head));
        let mut is_unchanged = true;
        let mut charged = Work::ZERO;
        let child = admitted_children[rng.below(admitted_children.len() as u64) as usize];
        while let Some((at, part)) = built.next_wakeup().filter(|wakeup| wakeup.0 <= now) {
            // A policy with a resolution of nanoseconds has been exercised enough in this case.
            wakes += 1;
            if wakes > WAKES {
                return Ok(None);
            }
            is_unchanged &= built.wake(at, part) == Resched::Keep;
            if built.next_wakeup().is_some_and(|next| next <= (at, part)) {
                return Err(format!(
                    "{name} was woken at {at:?} and requests the same wakeup again"
                ));
            }
        }
        let mut changed = None;
        let answer = match (ready[child as usize], rng.below(3)) {
            (None, _) => {
                ready_seq += 1;
                // A new job, or a job that has waited.
                let job = (ready_seq / 2) as u32;
                let entry =
                    ReadyChild { child, job, ready_seq, criteria: criteria(&mut rng, unit) };
                ready[child as usize] = Some(entry);
                built.ready(now, &entry)
            }
            (Some(_), 0) => {
                ready[child as usize] = None;
                built.finished(now, child)
            }
            (Some(mut entry), 1) => {
                // Criteria change, sometimes with a new job.
                entry.criteria = criteria(&mut rng, unit);
                ready_seq += 1;
                if rng.below(2) == 0 {
                    (entry.ready_seq, entry.job) = (ready_seq, ready_seq as u32);
                }
                ready[child as usize] = Some(entry);
                changed = Some(child);
                built.update(now, &entry)
            }
            (Some(_), _) => match built.head(now) {
                Some(head) if built.needs_accounting() => {
                    let allowance = built.allowance(now, head).unwrap_or(Work::from_ns(9 * unit));
                    charged = Work::from_ns(rng.below(allowance.as_ns() + 1));
                    built.charge(now, head, charged)
                }
                _ => Resched::Keep,
            },
        };
        is_unchanged &= answer == Resched::Keep;
        let head = built.head(now);
        if is_unchanged && head != before {
            return Err(format!(
                "{name} returned Keep, but its head has changed: {head:?} after {before:?}"
            ));
        }
        if is_unchanged && head.is_some() && head == changed {
            return Err(format!(
                "{name} returned Keep, but the criteria of its head {head:?} have changed"
            ));
        }
        if mutate!("core-contract-allowance", is_unchanged, false)
            && charged.is_zero()
            && head.map(|head| built.allowance(now, head)) != allowed
        {
            return Err(format!(
                "{name} returned Keep, but the allowance of its head {head:?} has changed"
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
            return Err(format!("{name} is out of order: {first:?} is its head among {ready:?}"));
        }
    }
    Ok(None)
}
