//! `talea generate`: its output is an executable system and is reproducible.

use crate::harness::{Ended, Scratch, run, snapshot};

fn generate(scratch: &Scratch, options: &str) -> Ended {
    let mut words = vec!["generate"];
    words.extend(options.split_whitespace());
    run(scratch, &words)
}

/// Returns the values of a key, in the order of the file.
fn values<'t>(text: &'t str, key: &str) -> Vec<&'t str> {
    let start = format!("{key} = \"");
    text.lines().filter_map(|line| line.strip_prefix(&start)?.strip_suffix('"')).collect()
}

#[test]
fn a_set_is_a_system_file_that_says_what_it_was_drawn_from() {
    let scratch = Scratch::new();
    let options = "--tasks 4 --utilization 1.5 --cpus 2 --deadlines constrained:0.5 --periods 10ms,20ms,50ms --seed 7";
    let ended = generate(&scratch, options);
    snapshot("generate", &ended.transcript());
    assert_eq!(generate(&scratch, options).out, ended.out, "same seed, same bytes");
    assert_ne!(generate(&scratch, &options.replace("seed 7", "seed 8")).out, ended.out);
    scratch.file("set.toml", &ended.out);
    let simulated = run(&scratch, &["simulate", "set.toml", "--for", "1s"]);
    assert_eq!(simulated.code, Some(0), "{}", simulated.err);
    assert!(simulated.out.starts_with("cpu0 on 2 CPUs"), "{}", simulated.out);
}

#[test]
fn several_sets_are_files_and_each_of_them_runs() {
    let scratch = Scratch::new();
    for method in ["uunifast-discard", "randfixedsum", "drs"] {
        let options = format!(
            "--tasks 6 --utilization 1.7 --cpus 2 --method {method} --sets 11 --out {method}"
        );
        assert_eq!(generate(&scratch, &options).code, Some(0), "{method}");
        let mut sums = std::collections::BTreeSet::new();
        for number in 0..11 {
            let name = format!("{method}/set-{number:02}.toml");
            let text = std::fs::read_to_string(scratch.path().join(&name)).expect("a file");
            assert!(text.contains(&format!("Set {number} of seed 1")) && text.contains(method));
            assert_eq!(values(&text, "cost").len(), 6);
            sums.insert(values(&text, "cost").join(" "));
            assert_eq!(
                run(&scratch, &["simulate", &name, "--for", "100ms"]).code,
                Some(0),
                "{name}"
            );
        }
        assert_eq!(sums.len(), 11, "each set is another one");
    }
}

#[test]
fn y2_a_partitioned_set_has_a_scheduler_for_each_cpu_and_a_place_for_each_task() {
    let scratch = Scratch::new();
    let ended =
        generate(&scratch, "--tasks 8 --utilization 2.1 --cpus 3 --partitioned --policy dm");
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(values(&ended.out, "policy"), ["dm"; 3]);
    let homes = values(&ended.out, "in");
    assert_eq!(homes.len(), 8);
    for cpu in ["cpu0", "cpu1", "cpu2"] {
        assert!(homes.contains(&cpu), "{homes:?}");
    }
    scratch.file("set.toml", &ended.out);
    assert_eq!(run(&scratch, &["simulate", "set.toml", "--for", "1s"]).code, Some(0));
}

#[test]
fn y9_graphs_are_tasks_and_channels_and_only_their_roots_have_periods() {
    let scratch = Scratch::new();
    for shape in ["erdos-renyi", "layers:3"] {
        let options = format!(
            "--tasks 3 --utilization 1.2 --cpus 2 --graph {shape} --nodes 4..8 --edges 0.5"
        );
        let ended = generate(&scratch, &options);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let (nodes, ends) = (values(&ended.out, "cost").len(), values(&ended.out, "to"));
        let inner: std::collections::BTreeSet<&str> = ends.iter().copied().collect();
        assert!((12..=24).contains(&nodes) && !inner.is_empty(), "{}", ended.out);
        assert_eq!(
            values(&ended.out, "period").len(),
            nodes - inner.len(),
            "{shape}: only roots arrive"
        );
        scratch.file("graphs.toml", &ended.out);
        let simulated = run(&scratch, &["simulate", "graphs.toml", "--for", "3s"]);
        assert_eq!(simulated.code, Some(0), "{shape}: {}", simulated.err);
    }
}

#[test]
fn what_can_not_be_drawn_is_refused_with_what_could_be() {
    let scratch = Scratch::new();
    for (options, part) in [
        ("--utilization 11", "at most, not to 11"),
        ("--utilization 0", ""),
        ("--utilization 1e3", "exponent"),
        ("--tasks 0 --utilization 1", "1 to 1000 tasks"),
        ("--tasks 3 --utilization 1 --max-utilization 0.3", "0.9 at most"),
        ("--tasks 3 --utilization 1 --max-utilization 0.3,0.4", "2 bounds for 3 tasks"),
        ("--tasks 2 --utilization 1 --max-utilization 0.9,0.8", "the same bounds for every task"),
        ("--tasks 2 --utilization 1 --max-utilization 1.5", "one CPU at a time"),
        (
            "--tasks 2 --utilization 1 --min-utilization 0.6 --max-utilization 0.5",
            "at least 0.6 and at most 0.5",
        ),
        (
            "--tasks 10 --utilization 9.999 --method uunifast-discard",
            "randfixedsum generates none that does",
        ),
        ("--utilization 1 --periods 10ms..15500us", "not a multiple"),
        ("--utilization 1 --periods 20ms..10ms", "no period is"),
        ("--utilization 1 --periods 10", "has no unit"),
        ("--utilization 1 --deadlines soon", "constrained:0.7"),
        ("--utilization 1 --graph ring", "layers:4"),
        ("--utilization 1 --graph layers:0", "layers:4"),
        ("--utilization 1 --graph erdos-renyi --nodes 0..3", "1 to 1000 nodes"),
        ("--utilization 1 --graph erdos-renyi --edges 1.1", "at most 1"),
        ("--utilization 1 --nodes 3", "--graph"),
        ("--utilization 1 --method fair", "randfixedsum"),
        ("--utilization 1 --sets 2", "--out"),
    ] {
        let ended = generate(&scratch, options);
        let wanted = if part.is_empty() { 0 } else { 2 };
        assert_eq!(ended.code, Some(wanted), "{options}: {}", ended.err);
        assert!(ended.err.contains(part), "{options}: {}", ended.err);
    }
}
