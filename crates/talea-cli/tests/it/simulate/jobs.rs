//! The file of jobs, compared with the page of the same run.

use crate::harness::{Scratch, run};
use serde_json::Value;
use std::collections::BTreeMap;

/// Two CPUs with a task that migrates, suspends itself and is preempted; overheads; late jobs; and
/// a table that stops a job.
const SYSTEM: &str = r#"
duration = "200ms"
[overheads]
decision = "20us"
[[scheduler]]
name = "two"
policy = "fp"
cpus = 2
[[task]]
name = "high"
in = "two"
period = "5ms"
cost = { min = "1ms", max = "3ms" }
priority = 9
[[task]]
name = "middle"
in = "two"
period = "7ms"
cost = "3ms"
priority = 8
[[task.suspension]]
start = "1ms"
length = "2ms"
[[task]]
name = "low"
in = "two"
period = "20ms"
cost = "13ms"
deadline = "15ms"
priority = 1
[[scheduler]]
name = "table"
policy = "table"
hyperperiod = "10ms"
[[scheduler.entry]]
owner = "stopped"
length = "5ms"
[[task]]
name = "stopped"
in = "table"
period = "20ms"
cost = "6ms"
"#;

/// A row, by column names.
type Line = BTreeMap<String, String>;

fn lines(csv: &str) -> Vec<Line> {
    let mut lines = csv.lines().map(|line| line.split(',').map(str::to_owned));
    let names: Vec<String> = lines.next().expect("a head").collect();
    lines.map(|cells| names.iter().cloned().zip(cells).collect()).collect()
}

/// Computes execution time, preemptions and migrations of each job from the drawn segments.
fn pieces(root: &Value) -> BTreeMap<(u64, u64), (i64, i64, i64)> {
    let column = |at: usize| -> Vec<i64> {
        let cells = root["segments"][at].as_array().expect("a column");
        cells.iter().map(|cell| cell.as_i64().expect("a number")).collect()
    };
    let [cpus, tasks, jobs, starts, lengths] = [0, 1, 2, 3, 4].map(column);
    let mut order: Vec<usize> = (0..cpus.len()).collect();
    order.sort_by_key(|&at| starts[at]);
    let mut of: BTreeMap<(u64, u64), Vec<[i64; 3]>> = BTreeMap::new();
    for at in order {
        let list = of.entry((tasks[at] as u64, jobs[at] as u64)).or_default();
        match list.last_mut() {
            // Continued without a pause.
            Some(last) if last[0] == cpus[at] && last[1] + last[2] == starts[at] => {
                last[2] += lengths[at];
            }
            _ => list.push([cpus[at], starts[at], lengths[at]]),
        }
    }
    let sums = |list: &Vec<[i64; 3]>| {
        let moves = list.windows(2).filter(|two| two[0][0] != two[1][0]).count() as i64;
        (list.iter().map(|piece| piece[2]).sum(), list.len() as i64 - 1, moves)
    };
    of.iter().map(|(&job, list)| (job, sums(list))).collect()
}

#[test]
fn l22_the_file_of_jobs_has_the_columns_of_st_job_stats_and_they_can_be_computed_again() {
    let scratch = Scratch::new();
    scratch.file("system.toml", SYSTEM);
    let ended =
        run(&scratch, &["simulate", "system.toml", "--csv", "jobs.csv", "--html", "run.html"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).expect(name);
    let jobs = lines(&read("jobs.csv"));
    let page = read("run.html");
    let data =
        page.split_once("application/json\">").and_then(|(_, rest)| rest.split_once("</script>"));
    let data: Value = serde_json::from_str(data.expect("the page's data").0).expect("JSON");
    let mut seen = [0; 4];
    for root in data["roots"].as_array().expect("roots") {
        let drawn = pieces(root);
        for (number, task) in root["tasks"].as_array().expect("tasks").iter().enumerate() {
            let name = task["name"].as_str().expect("a name");
            for job in jobs.iter().filter(|job| job["task"] == name) {
                let get = |column: &str| {
                    job[column].parse::<i64>().unwrap_or_else(|_| panic!("{column}: {job:?}"))
                };
                let (end, deadline, late) = (get("end_ns"), get("deadline_ns"), get("late") == 1);
                assert_eq!(get("period_ns"), task["period"].as_i64().expect("a period"));
                assert_eq!(get("response_ns"), end - get("release_ns"), "{job:?}");
                assert_eq!(get("lateness_ns"), end - deadline, "{job:?}");
                assert_eq!(get("tardiness_ns"), (end - deadline).max(0), "{job:?}");
                assert_eq!(late, end > deadline, "{job:?}");
                // A job of the table that costs 6 ms in an entry of 5 ms.
                assert_eq!(get("forced") == 1, name == "stopped", "{job:?}");
                let ran = (get("ran_ns"), get("preemptions"), get("migrations"));
                assert_eq!(ran, drawn[&(number as u64, get("job") as u64)], "{job:?}");
                for (seen, is) in
                    seen.iter_mut().zip([late, ran.1 > 0, ran.2 > 0, name == "stopped"])
                {
                    *seen += u32::from(is);
                }
            }
        }
    }
    assert!(seen.iter().all(|&times| times > 0), "every kind is there: {seen:?}");
}
