//! Validation of tasks before any plugin is asked; a refusal names the valid number.
//!
//! ReTiF's daemon accepted invalid tasks at the lowest priority. Here a budget larger than its own
//! period is an error of the client, for every plugin.

use crate::refuse::refusal;
use talea_core::{CpuSet, Span, Work};
use talea_proto::{Code, Field, Refusal, Task};

/// Maximum time in a request, in nanoseconds: 292 years, so that sums of a few never overflow.
const MAX_TIME_NS: u64 = i64::MAX as u64;

/// Checks `task` for a machine with these CPUs.
pub(crate) fn validate(task: &Task, cpus: &CpuSet) -> Result<(), Box<Refusal>> {
    let params = &task.params;
    let malformed = |field, asked, limit| Err(refusal(Code::Malformed, field, asked, limit));
    let times = [
        (Field::Period, params.period.map(Span::as_ns)),
        (Field::Runtime, params.runtime.map(Work::as_ns)),
        (Field::Desired, params.desired.map(Work::as_ns)),
        (Field::Deadline, params.deadline.map(Span::as_ns)),
    ];
    for (field, ns) in times {
        match ns {
            Some(0) => return malformed(field, 0, 1),
            Some(ns) if ns > MAX_TIME_NS => return malformed(field, ns, MAX_TIME_NS),
            _ => {}
        }
    }
    if let Some(priority) = params.priority {
        match priority.0 {
            0 => return malformed(Field::Priority, 0, 1),
            100.. => return malformed(Field::Priority, priority.0.into(), 99),
            _ => {}
        }
    }
    if let (Some(runtime), Some(span)) = (params.runtime, params.density_span())
        && runtime.as_ns() > span.as_ns()
    {
        return malformed(Field::Runtime, runtime.as_ns(), span.as_ns());
    }
    if let (Some(runtime), Some(desired)) = (params.runtime, params.desired)
        && desired < runtime
    {
        return malformed(Field::Desired, desired.as_ns(), runtime.as_ns());
    }
    if !task.cpus.is_empty() && task.cpus.intersection(cpus).is_empty() {
        let asked = task.cpus.iter().next().unwrap_or(0);
        let limit = cpus.iter().last().unwrap_or(0);
        return malformed(Field::Cpus, asked.into(), limit.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::{Params, Priority};

    fn task(period: u64, runtime: u64, desired: u64, deadline: u64, priority: u8) -> Task {
        // In this function u64::MAX and u8::MAX stand for "not declared".
        let ns = |ns: u64| (ns != u64::MAX).then_some(ns);
        let params = Params {
            period: ns(period).map(Span::from_ns),
            runtime: ns(runtime).map(Work::from_ns),
            desired: ns(desired).map(Work::from_ns),
            deadline: ns(deadline).map(Span::from_ns),
            priority: (priority != u8::MAX).then_some(Priority(priority)),
        };
        Task { params, ..Task::default() }
    }

    #[test]
    fn retif_w12_invalid_parameters_are_refused_with_the_valid_number() {
        const NO: u64 = u64::MAX;
        let cases = [
            (task(0, NO, NO, NO, 255), Some((Field::Period, 0, 1))),
            (task(NO, 0, NO, NO, 255), Some((Field::Runtime, 0, 1))),
            (task(NO, NO, 0, NO, 255), Some((Field::Desired, 0, 1))),
            (task(NO, NO, NO, 0, 255), Some((Field::Deadline, 0, 1))),
            (task(NO, NO, NO, NO, 0), Some((Field::Priority, 0, 1))),
            (task(NO, NO, NO, NO, 100), Some((Field::Priority, 100, 99))),
            (task(10, 11, NO, NO, 255), Some((Field::Runtime, 11, 10))),
            (task(10, 6, NO, 5, 255), Some((Field::Runtime, 6, 5))),
            (task(NO, 6, NO, 5, 255), Some((Field::Runtime, 6, 5))),
            (task(10, 4, 3, NO, 255), Some((Field::Desired, 3, 4))),
            (task(NO - 1, NO, NO, NO, 255), Some((Field::Period, NO - 1, MAX_TIME_NS))),
            (task(10, 10, NO, NO, 255), None),
            (task(10, 5, 20, 5, 99), None),
            (task(NO, NO, NO, NO, 255), None),
            (task(MAX_TIME_NS, 1, NO, NO, 1), None),
        ];
        for (task, expected) in cases {
            let refusal = validate(&task, &CpuSet::first(2)).err();
            assert!(refusal.as_ref().is_none_or(|refusal| refusal.code == Code::Malformed));
            assert_eq!(
                refusal.map(|refusal| (refusal.field, refusal.asked, refusal.limit)),
                expected,
                "{task:?}"
            );
        }
    }

    #[test]
    fn r35_missing_cpus_are_refused_and_a_partial_overlap_is_accepted() {
        let mut task = task(u64::MAX, u64::MAX, u64::MAX, u64::MAX, 5);
        task.cpus = CpuSet::single(7);
        let refusal = validate(&task, &CpuSet::first(4)).unwrap_err();
        assert_eq!((refusal.field, refusal.asked, refusal.limit), (Field::Cpus, 7, 3));
        task.cpus.insert(3);
        assert!(validate(&task, &CpuSet::first(4)).is_ok());
    }
}
