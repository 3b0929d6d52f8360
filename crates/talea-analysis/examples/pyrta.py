"""Compares the bounds of `sets_for_peers` with pyRTA, the tool of the Prosa project.

    python3 -m venv target/pyrta
    target/pyrta/bin/pip install response-time-analysis==0.1.1
    cargo run --release -p talea-analysis --example sets_for_peers |
        target/pyrta/bin/python3 crates/talea-analysis/examples/pyrta.py

Exits with 1 if a bound differs, or is missing where pyRTA has one.
"""

import sys
from collections import Counter, defaultdict

from response_time_analysis import edf, fp
from response_time_analysis.model import (
    WCET,
    Deadline,
    IdealProcessor,
    LimitedPreemptive,
    PeriodicWithJitter,
    Priority,
    Task,
    taskset,
)

HORIZON = 1_000_000

results = defaultdict(Counter)
for line in sys.stdin:
    group, policy, *texts = line.split()
    rows = [text.split(",") for text in texts]
    tasks = []
    for at, row in enumerate(rows):
        cost, period, deadline, jitter, longest, last = map(int, row[:6])
        execution = LimitedPreemptive(WCET(cost), longest, last)
        arrivals = PeriodicWithJitter(period, jitter)
        tasks.append(Task(arrivals, execution, Deadline(deadline), Priority(len(rows) - at)))
    rta = {"fp": fp.rta, "edf": edf.rta}[policy]
    for task, row in zip(tasks, rows):
        theirs = rta(taskset(tasks), task, IdealProcessor(), HORIZON).response_time_bound
        ours = None if row[6] == "-" else int(row[6])
        if theirs is None:
            result = "without a bound of pyRTA"
        elif ours is None:
            result = "missing"
        else:
            result = "equal" if ours == theirs else "tighter" if ours < theirs else "looser"
        if result in ("missing", "tighter", "looser") and not results[group][result]:
            print(f"{result}: {theirs} for {','.join(row)} in {line}", end="")
        results[group][result] += 1
for group, counts in results.items():
    print(group + ":", ", ".join(f"{count} {result}" for result, count in counts.items()))
WRONG = ("missing", "tighter", "looser")
wrong = sum(counts[word] for counts in results.values() for word in WRONG)
sys.exit(not results or wrong > 0)
