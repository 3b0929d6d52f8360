//! Every key of a system file, once; see [`crate::config::keys`], which holds the machinery.

use crate::config::keys::Form::{Boolean, Duration, Durations, Integer, Table, Text, Texts, Word};
use crate::config::keys::Section::{Expect, Scheduler, Slot, System, Task};
use crate::config::keys::{Key, Section, key};

/// The sections of a system file, in the order of the manual.
pub const SECTIONS: [Section; 5] = [System, Scheduler, Slot, Task, Expect];

/// Policies, in the order of the manual; programs may add names of their own.
pub const POLICIES: [&str; 8] = ["edf", "fp", "rm", "dm", "criticality", "fifo", "rr", "partitions"];

/// Servers, in the order of the manual.
pub const SERVERS: [&str; 5] = ["polling", "deferrable", "sporadic", "cbs", "soft-cbs"];

/// The list.
pub const KEYS: &[Key] = &[
    key(System, "duration", Duration, "\"10s\"")
        .default("\"10s\"")
        .range("above 0")
        .means("How long a run is."),
    key(System, "seed", Integer, "1")
        .default("1")
        .range("0 to 4294967295")
        .means("Of everything that is random."),
    key(System, "include", Texts, "[\"sensors.toml\"]")
        .default("nothing")
        .range("paths relative to this file")
        .means("Files whose schedulers and tasks belong to this system."),
    key(System, "scheduler", Table, "[[scheduler]]").default("required").means("One inner node of a tree."),
    key(System, "task", Table, "[[task]]").default("no load").means("One leaf of a tree."),
    key(System, "expect", Table, "[[expect]]").default("nothing").means("What a run must show."),
    // [[scheduler]]
    key(Scheduler, "name", Text, "\"cpu0\"")
        .default("required")
        .range("1 to 63 letters, digits, `_`, `-` and `.`; unique")
        .means("What others call it."),
    key(Scheduler, "in", Text, "\"cpu0\"")
        .default("it is a root")
        .range("name of a scheduler")
        .means("The scheduler above it."),
    key(Scheduler, "policy", Word(&POLICIES), "\"edf\"")
        .default("required; `fifo` for a server")
        .means("How its children are ordered."),
    key(Scheduler, "cpus", Integer, "2").default("1").range("1 to 64").means("CPUs that a root owns."),
    key(Scheduler, "migration", Word(&["anytime", "job-boundaries"]), "\"job-boundaries\"")
        .default("\"anytime\"")
        .means("When a job of a root with several CPUs may change its CPU."),
    key(Scheduler, "preemptive", Boolean, "false")
        .default("true")
        .means("Whether a child may be interrupted in favour of a sibling."),
    key(Scheduler, "priority", Integer, "30")
        .default("its head's")
        .range("0 to 255, larger is more urgent")
        .means("Where the whole group stands under `fp`."),
    key(Scheduler, "criticality", Integer, "2")
        .default("its head's")
        .range("0 to 255, larger is more critical")
        .means("Where the whole group stands under `criticality`."),
    key(Scheduler, "quantum", Duration, "\"10ms\"")
        .default("required for `rr`")
        .range("above 0")
        .means("How long a child of `rr` runs before the next one's turn."),
    key(Scheduler, "frame", Duration, "\"40ms\"")
        .default("required for `partitions`")
        .range("above 0")
        .means("Length of the table of `partitions`, which repeats."),
    key(Scheduler, "slot", Table, "[[scheduler.slot]]")
        .default("required for `partitions`")
        .means("An interval of the frame."),
    key(Scheduler, "lending", Boolean, "true")
        .default("false")
        .means("Whether others may use a slot whose owner has nothing to run."),
    key(Scheduler, "server", Word(&SERVERS), "\"deferrable\"")
        .default("it is not a server")
        .means("The algorithm that keeps a reservation for its children."),
    key(Scheduler, "budget", Duration, "\"1ms\"")
        .default("required for a server")
        .range("above 0, up to the deadline")
        .means("CPU time that a server has in every period."),
    key(Scheduler, "period", Duration, "\"50ms\"")
        .default("required for a server")
        .range("above 0")
        .means("Period of a server."),
    key(Scheduler, "deadline", Duration, "\"20ms\"")
        .default("the period")
        .range("budget to period")
        .means("Within which a server's budget is to be had."),
    key(Scheduler, "offset", Duration, "\"5ms\"")
        .default("\"0\"")
        .range("less than the period")
        .means("When the first period of a server begins."),
    // [[scheduler.slot]]
    key(Slot, "owner", Text, "\"tp1\"")
        .default("required")
        .range("name of a child")
        .means("Who may run in the slot."),
    key(Slot, "start", Duration, "\"20ms\"")
        .default("where the slot before it ends")
        .range("within the frame")
        .means("Offset in the frame at which the slot begins."),
    key(Slot, "length", Duration, "\"20ms\"")
        .default("required")
        .range("above 0")
        .means("How long the slot is."),
    // [[task]]
    key(Task, "name", Text, "\"video\"")
        .default("required")
        .range("1 to 63 letters, digits, `_`, `-` and `.`; unique")
        .means("What others call it."),
    key(Task, "in", Text, "\"cpu0\"")
        .default("the only root, if there is one")
        .range("name of a scheduler")
        .means("The scheduler above it."),
    key(Task, "period", Duration, "\"40ms\"")
        .default("required")
        .range("above 0")
        .means("Distance of its jobs, or the least distance of a sporadic task."),
    key(Task, "deadline", Duration, "\"20ms\"")
        .default("the period")
        .range("above 0")
        .means("Relative deadline."),
    key(Task, "cost", Durations, "\"4ms\"")
        .default("required")
        .range("a duration, a list of them, or `{ min = \"1ms\", max = \"4ms\" }`")
        .means("CPU time of a job; a list is used up and begun again."),
    key(Task, "priority", Integer, "20")
        .default("0")
        .range("0 to 255, larger is more urgent")
        .means("Where it stands under `fp`."),
    key(Task, "criticality", Integer, "1")
        .default("0")
        .range("0 to 255, larger is more critical")
        .means("Where it stands under `criticality`."),
    key(Task, "offset", Duration, "\"2ms\"")
        .default("\"0\"")
        .range("any")
        .means("When its first job arrives."),
    key(Task, "jitter", Duration, "\"1ms\"")
        .default("\"0\"")
        .range("less than the period")
        .means("How late after its nominal time an arrival may be seen."),
    key(Task, "arrivals", Durations, "[\"3ms\", \"8ms\"]")
        .default("periodic")
        .range("times since the start, in order")
        .means("When its jobs arrive, instead of periodically."),
    key(Task, "slack", Duration, "\"5ms\"")
        .default("it is periodic")
        .range("above 0")
        .means("Makes it sporadic: the distance of two jobs is up to so much longer, at random."),
    key(Task, "enforce", Boolean, "true")
        .default("false")
        .means("Whether a job that comes early waits until the period is over."),
    key(Task, "backlog", Integer, "16")
        .default("64")
        .range("0 to 1048576")
        .means("Jobs that may wait behind the one under way; more are refused."),
    key(Task, "count", Integer, "5")
        .default("1")
        .range("1 to 10000")
        .means("How many such tasks there are; `name` then gets a number, from 0."),
    // [[expect]]
    key(Expect, "task", Text, "\"video\"")
        .default("all tasks together")
        .range("name of a task, or its beginning with `*`")
        .means("Whom the expectation is about."),
    key(Expect, "misses", Integer, "0")
        .default("not checked")
        .range("0 to 4294967295")
        .means("How many jobs may end after their deadline."),
    key(Expect, "response", Duration, "\"13ms\"")
        .default("not checked")
        .range("above 0")
        .means("The longest response time that is right."),
];
