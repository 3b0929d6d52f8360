//! Every key of a system file, once; see [`crate::config::keys`], which holds the machinery.

use crate::config::keys::Form::{
    Boolean, Duration, Durations, Integer, Integers, Table, Text, Texts, Word,
};
use crate::config::keys::Section::{
    Accelerator, Change, Channel, CriticalSection, Entry, Expect, Hole, Overheads, Resource,
    Scheduler, Slot, Suspension, System, Task, Version,
};
use crate::config::keys::{Key, Section, key};

/// The sections of a system file, in the order of the manual.
pub const SECTIONS: [Section; 15] = [
    System,
    Scheduler,
    Slot,
    Entry,
    Task,
    Version,
    CriticalSection,
    Suspension,
    Accelerator,
    Resource,
    Channel,
    Overheads,
    Hole,
    Change,
    Expect,
];

/// Policies, in the order of the manual; programs may add names of their own.
pub const POLICIES: [&str; 9] =
    ["edf", "fp", "rm", "dm", "criticality", "fifo", "rr", "partitions", "table"];

/// Servers, in the order of the manual.
pub const SERVERS: [&str; 5] = ["polling", "deferrable", "sporadic", "cbs", "soft-cbs"];

/// How versions are chosen, in the order of the manual; programs may add names of their own.
pub const SELECTIONS: [&str; 5] = ["declared", "energy", "trade-off", "mode", "mask"];

/// What becomes of the holder of a resource, in the order of the manual.
pub const PROTOCOLS: [&str; 3] = ["none", "inheritance", "ceiling"];

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
    key(System, "accelerator", Table, "[[accelerator]]")
        .default("none")
        .means("Something that a version of a task needs to itself."),
    key(System, "resource", Table, "[[resource]]").default("none").means("Something that one job at a time may lock."),
    key(System, "channel", Table, "[[channel]]").default("no graph").means("An edge of a graph, from task to task."),
    key(System, "overheads", Table, "[overheads]").default("nothing").means("What scheduling costs."),
    key(System, "hole", Table, "[[hole]]").default("none").means("When nothing progresses on a CPU."),
    key(System, "change", Table, "[[change]]").default("none").means("When battery, mode or mask change."),
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
        .means("How its children are ordered; `talea new policy` begins one of your own."),
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
    key(Scheduler, "hyperperiod", Duration, "\"40ms\"")
        .default("required for `table`")
        .range("above 0")
        .means("Length of an off-line `table`, which repeats."),
    key(Scheduler, "entry", Table, "[[scheduler.entry]]")
        .default("required for `table`")
        .means("An interval of an off-line table on one CPU."),
    key(Scheduler, "affinity", Text, "\"0-1\"")
        .default("all of them")
        .range("CPUs of its root, from 0, such as `0-2,5`; for children of a root")
        .means("The CPUs that its tasks may use."),
    key(Scheduler, "selection", Word(&SELECTIONS), "\"energy\"")
        .default("\"declared\"")
        .means("How a root chooses among the versions that can be had."),
    key(Scheduler, "weight", Integer, "500")
        .default("500")
        .range("0 (time only) to 1000 (energy only)")
        .means("Of energy in a `trade-off`, in thousandths."),
    key(Scheduler, "inheritance", Boolean, "false")
        .default("true")
        .means("Whether who waits for an accelerator of this root lends its urgency to who holds it."),
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
    // [[scheduler.entry]]
    key(Entry, "owner", Text, "\"video\"")
        .default("required")
        .range("name of a child")
        .means("Who has the CPU in it."),
    key(Entry, "cpu", Integer, "1").default("0").range("0 to 63; below the `cpus` of the root").means("Where."),
    key(Entry, "start", Duration, "\"20ms\"")
        .default("where the entry before it ends, on its CPU")
        .range("within the hyperperiod")
        .means("Offset in the hyperperiod at which it begins."),
    key(Entry, "length", Duration, "\"20ms\"").default("required").range("above 0").means("How long it is."),
    key(Entry, "version", Text, "\"gpu\"")
        .default("the first")
        .range("name of a version of its owner")
        .means("The version of a job that begins here."),
    key(Entry, "activates", Boolean, "true")
        .default("false")
        .means("Whether it makes the job that it runs; its owner's jobs then come from the table only."),
    key(Entry, "goes_on", Boolean, "true")
        .default("false")
        .means("Whether the job is meant to go on in a later entry: then it is no overrun."),
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
        .default("required, unless it is a program without `cost`; of the end of a channel: that of its graph")
        .range("above 0")
        .means("Distance of its jobs, or the least distance of a sporadic task."),
    key(Task, "deadline", Duration, "\"20ms\"")
        .default("the period; of the end of a channel: that of its graph")
        .range("above 0")
        .means("Relative deadline."),
    key(Task, "cost", Durations, "\"4ms\"")
        .default("required, unless it has versions or is a program without `period`")
        .range("a duration, a list of them, `{ min = \"1ms\", max = \"4ms\" }` or `{ low = \"1ms\", high = \"4ms\", share = 10 }`")
        .means("CPU time of a job; a list is used up and begun again; `share` of a thousand jobs take `high`."),
    key(Task, "priority", Integer, "20")
        .default("0; of the end of a channel: the most urgent of its graph")
        .range("0 to 255, larger is more urgent")
        .means("Where it stands under `fp`."),
    key(Task, "criticality", Integer, "1")
        .default("0; of the end of a channel: the most critical of its graph")
        .range("0 to 255, larger is more critical")
        .means("Where it stands under `criticality`."),
    key(Task, "offset", Duration, "\"2ms\"")
        .default("\"0\"")
        .range("any")
        .means("When its first job arrives. A file without any says nothing of phases: an analysis looks at all of them."),
    key(Task, "jitter", Duration, "\"1ms\"")
        .default("\"0\"")
        .range("less than the period")
        .means("How late after its nominal time an arrival may be seen. Not beside `slack`."),
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
    key(Task, "affinity", Text, "\"0-1\"")
        .default("all of them")
        .range("CPUs of its root, from 0, such as `0-2,5`; for children of a root")
        .means("The CPUs that it may use."),
    key(Task, "program", Texts, "[\"sha1sum\", \"/dev/zero\"]")
        .default("generated work")
        .range("a program and its arguments")
        .means("What runs on real threads; the rest is assumed of it. Without `period` and `cost` it always wants the CPU."),
    key(Task, "version", Table, "[[task.version]]").default("it has one").means("One of several ways to do what it does."),
    key(Task, "section", Table, "[[task.section]]")
        .default("it locks nothing")
        .means("A part of each job in which it holds a resource."),
    key(Task, "suspension", Table, "[[task.suspension]]")
        .default("none")
        .means("Where each job waits for something that is not a CPU."),
    // [[task.version]]
    key(Version, "name", Text, "\"gpu\"")
        .default("required")
        .range("1 to 63 letters, digits, `_`, `-` and `.`; unique in its task")
        .means("What tables and reports call it."),
    key(Version, "cost", Durations, "\"4ms\"")
        .default("required")
        .range("as that of a task")
        .means("CPU time of a job in this version."),
    key(Version, "accelerators", Texts, "[\"gpu0\"]")
        .default("none")
        .range("names of accelerators")
        .means("What a job holds from its first dispatch to its end, all or none."),
    key(Version, "energy", Integer, "12")
        .default("0")
        .range("0 to 4294967295, in the unit of the battery")
        .means("What a job uses up: for `energy` and `trade-off`."),
    key(Version, "time", Duration, "\"4ms\"")
        .default("the most that it costs")
        .range("above 0")
        .means("What a job takes: for `trade-off`."),
    key(Version, "modes", Integers, "[0, 2]")
        .default("all")
        .range("0 to 63 each")
        .means("The modes that it is meant for: for `mode`."),
    key(Version, "needs", Integers, "[3]")
        .default("none")
        .range("0 to 63 each")
        .means("The permissions that it needs: for `mask`."),
    // [[task.section]]
    key(CriticalSection, "resource", Text, "\"bus\"")
        .default("required")
        .range("name of a resource")
        .means("What is locked."),
    key(CriticalSection, "start", Duration, "\"1ms\"")
        .default("\"0\"")
        .range("less than the most that a job costs")
        .means("The work of the job before it."),
    key(CriticalSection, "length", Duration, "\"2ms\"")
        .default("required")
        .range("above 0, not beyond the most that a job costs")
        .means("The work in it."),
    // [[task.suspension]]
    key(Suspension, "start", Duration, "\"1ms\"")
        .default("\"0\"")
        .range("less than the most that a job costs")
        .means("The work of the job before it."),
    key(Suspension, "length", Duration, "\"5ms\"").default("required").range("above 0").means("How long it waits."),
    // [[accelerator]]
    key(Accelerator, "name", Text, "\"gpu0\"")
        .default("required")
        .range("1 to 63 letters, digits, `_`, `-` and `.`; unique")
        .means("What versions call it."),
    key(Accelerator, "in", Text, "\"cpu0\"")
        .default("the only root, if there is one")
        .range("name of a root")
        .means("Whose tasks may use it."),
    // [[resource]]
    key(Resource, "name", Text, "\"bus\"")
        .default("required")
        .range("1 to 63 letters, digits, `_`, `-` and `.`; unique")
        .means("What sections call it."),
    key(Resource, "in", Text, "\"cpu0\"")
        .default("the only root, if there is one")
        .range("name of a root")
        .means("Whose tasks may lock it."),
    key(Resource, "protocol", Word(&PROTOCOLS), "\"ceiling\"")
        .default("\"inheritance\"")
        .means("What becomes of the urgency of who holds it."),
    // [[channel]]
    key(Channel, "from", Text, "\"camera\"")
        .default("required")
        .range("name of a task")
        .means("Whose jobs put tokens in."),
    key(Channel, "to", Text, "\"video\"")
        .default("required")
        .range("name of a task of the same root")
        .means("Whose jobs they activate; it has no arrivals of its own."),
    key(Channel, "size", Integer, "4")
        .default("0")
        .range("0 to 1048576")
        .means("Tokens with data that it holds; 0: a token without data at each end of a job."),
    key(Channel, "tokens", Integer, "2")
        .default("1")
        .range("1 to 64; up to the size, unless that is 0")
        .means("How many an activation takes."),
    key(Channel, "push", Integers, "[1, 0, 2]")
        .default("one each")
        .range("0 to 1024 each; not with size 0")
        .means("Tokens that the jobs put in, one number after the other and again from the start."),
    key(Channel, "pop", Integers, "[1, 1, 0]")
        .default("what activates")
        .range("0 to 1024 each; not with size 0")
        .means("Tokens that the jobs at its end take out, likewise."),
    // [overheads]
    key(Overheads, "release", Duration, "\"2us\"")
        .default("\"0\"").range("up to 1s")
        .means("Each arrival, on the CPU where its task ran last."),
    key(Overheads, "decision", Duration, "\"1us\"").default("\"0\"").range("up to 1s").means("Each order to run."),
    key(Overheads, "level", Duration, "\"100ns\"")
        .default("\"0\"").range("up to 1s")
        .means("More for each scheduler above the task."),
    key(Overheads, "switch", Duration, "\"3us\"").default("\"0\"").range("up to 1s").means("Each change to another job."),
    key(Overheads, "migration", Duration, "\"20us\"")
        .default("\"0\"").range("up to 1s")
        .means("More when the job was on another CPU before."),
    // [[hole]]
    key(Hole, "in", Text, "\"cpu0\"")
        .default("the only root, if there is one")
        .range("name of a root")
        .means("Whose CPU it is in."),
    key(Hole, "cpu", Integer, "1").default("0").range("0 to 63; below the `cpus` of the root").means("Which one."),
    key(Hole, "start", Duration, "\"100ms\"").default("required").range("any").means("When it begins."),
    key(Hole, "length", Duration, "\"5ms\"").default("required").range("above 0").means("How long it is."),
    // [[change]]
    key(Change, "at", Duration, "\"2s\"").default("required").range("any").means("When it happens."),
    key(Change, "battery", Integer, "40")
        .default("it stays; full at first")
        .range("0 to 4294967295, in the unit of the versions' energy")
        .means("What the battery holds from then on."),
    key(Change, "mode", Integer, "2").default("it stays; `0` at first").range("0 to 63").means("The mode from then on."),
    key(Change, "permitted", Integers, "[0, 3]")
        .default("it stays; all at first")
        .range("0 to 63 each")
        .means("The permissions that are given from then on."),
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
