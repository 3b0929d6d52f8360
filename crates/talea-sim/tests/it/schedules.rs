//! Schedules on which independent tools agree: every completion time and every miss
//! (tests/data/README.md).

use serde_json::Value;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Span, Time, Work};
use talea_sim::{Jobs, Simulation, Source, Workload};

fn numbers(value: &Value) -> Vec<Option<u64>> {
    value.as_array().expect("a list").iter().map(Value::as_u64).collect()
}

#[test]
fn y2_s6_every_completion_time_of_the_oracle_schedules_is_equal() {
    let lines = include_str!("../data/schedules.jsonl").lines();
    let mut schedules = 0;
    for line in lines {
        let case: Value = serde_json::from_str(line).expect("JSON");
        let (id, policy, cpus) =
            (&case["id"], case["policy"].as_str().expect("a policy"), case["m"].as_u64());
        let cpus = cpus.expect("m") as u32;
        let policy = match policy {
            "EDF" | "G-EDF" => PolicySpec::Edf,
            "RM" | "G-RM" => PolicySpec::RateMonotonic,
            other => panic!("unknown policy {other}"),
        };
        let until = Time::from_ns(case["H"].as_u64().expect("H"));
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", policy));
        let mut workload = Workload::default();
        for (at, task) in case["tasks"].as_array().expect("tasks").iter().enumerate() {
            let task = numbers(task);
            let [Some(cost), Some(period), Some(deadline)] = task[..] else {
                panic!("{id}: {task:?}")
            };
            let mut spec = TaskSpec::new(&at.to_string(), Span::from_ns(period));
            spec.deadline = Span::from_ns(deadline);
            spec.backlog.capacity = 1 << 16;
            tree.task(Tree::ROOT, spec);
            workload.sources.push(Source::periodic(Span::from_ns(period), Work::from_ns(cost)));
        }
        let mut simulation = Simulation::new(tree.build().expect("a tree"), cpus, &workload);
        let mut jobs = Jobs::default();
        // A completion exactly at the horizon still counts.
        simulation.run(until + Span::from_ns(1), &mut jobs);
        let finish: Vec<Vec<Option<u64>>> =
            case["finish"].as_array().expect("finish").iter().map(numbers).collect();
        let mut missed: Vec<(u64, u64)> = Vec::new();
        for (task, expected) in finish.iter().enumerate() {
            let mut got: Vec<Option<u64>> = vec![None; expected.len()];
            for job in jobs.ended.iter().filter(|job| job.task.0 as usize == task) {
                if let Some(slot) = got.get_mut(job.job as usize) {
                    *slot = Some(job.end.as_ns());
                }
            }
            assert_eq!(&got, expected, "schedule {id}, task {task}");
            let spec = numbers(&case["tasks"][task]);
            for (job, end) in got.iter().enumerate() {
                let due = job as u64 * spec[1].expect("T") + spec[2].expect("D");
                let is_missed = end.map_or(due <= until.as_ns(), |end| end > due);
                if is_missed {
                    missed.push((task as u64, job as u64));
                }
            }
        }
        let mut expected: Vec<(u64, u64)> = case["misses"]
            .as_array()
            .expect("misses")
            .iter()
            .map(|miss| (miss[0].as_u64().expect("task"), miss[1].as_u64().expect("job")))
            .collect();
        expected.sort_unstable();
        assert_eq!(missed, expected, "misses of schedule {id}");
        schedules += 1;
    }
    assert_eq!(schedules, 37, "all of the file");
}
