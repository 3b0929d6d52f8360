//! Keys of a system file, each once. [`talea_config::key`] has the types of the list.

use Section::{
    Accelerator, Chain, Change, Channel, CriticalSection, Curve, Entry, Expect, Mode, Overheads,
    Resource, Restart, Scheduler, Slot, Stall, Suspension, Task, Top, Version,
};
use talea_config::key::Form::{
    Boolean, Duration, Durations, Integer, Integers, Table, Text, Texts, Word,
};
use talea_config::key::{FileSection, Key, key};
use talea_core::Span;
use talea_core::engine::MAX_RUN;

/// A table of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Outside of any table.
    Top,
    /// `[[scheduler]]`
    Scheduler,
    /// `[[scheduler.slot]]`
    Slot,
    /// `[[scheduler.entry]]`
    Entry,
    /// `[[task]]`
    Task,
    /// `[task.curve]`
    Curve,
    /// `[task.restart]`
    Restart,
    /// `[[task.version]]`
    Version,
    /// `[[task.section]]`
    CriticalSection,
    /// `[[task.suspension]]`
    Suspension,
    /// `[[accelerator]]`
    Accelerator,
    /// `[[resource]]`
    Resource,
    /// `[[channel]]`
    Channel,
    /// `[[chain]]`
    Chain,
    /// `[overheads]`
    Overheads,
    /// `[[stall]]`
    Stall,
    /// `[[change]]`
    Change,
    /// `[[expect]]`
    Expect,
    /// `[[mode]]`
    Mode,
}

impl FileSection for Section {
    const MAX_SPAN: Option<Span> = Some(MAX_RUN);

    fn header(self) -> &'static str {
        match self {
            Section::Top => "the top of the file",
            Section::Scheduler => "[[scheduler]]",
            Section::Slot => "[[scheduler.slot]]",
            Section::Entry => "[[scheduler.entry]]",
            Section::Task => "[[task]]",
            Section::Curve => "[task.curve]",
            Section::Restart => "[task.restart]",
            Section::Version => "[[task.version]]",
            Section::CriticalSection => "[[task.section]]",
            Section::Suspension => "[[task.suspension]]",
            Section::Accelerator => "[[accelerator]]",
            Section::Resource => "[[resource]]",
            Section::Channel => "[[channel]]",
            Section::Chain => "[[chain]]",
            Section::Overheads => "[overheads]",
            Section::Stall => "[[stall]]",
            Section::Change => "[[change]]",
            Section::Expect => "[[expect]]",
            Section::Mode => "[[mode]]",
        }
    }

    fn is_top(self) -> bool {
        self == Section::Top
    }

    fn file() -> &'static [Key<Section>] {
        KEYS
    }
}

/// Sections of a system file, in the order of the manual.
pub const SECTIONS: [Section; 19] = [
    Top,
    Scheduler,
    Slot,
    Entry,
    Task,
    Curve,
    Restart,
    Version,
    CriticalSection,
    Suspension,
    Accelerator,
    Resource,
    Channel,
    Chain,
    Overheads,
    Stall,
    Change,
    Expect,
    Mode,
];

/// Policies, in the order of the manual. Programs may add names of their own.
pub const POLICIES: [&str; 9] =
    ["edf", "fp", "rm", "dm", "criticality", "fifo", "rr", "partitions", "table"];

/// Servers, in the order of the manual.
pub const SERVERS: [&str; 5] = ["polling", "deferrable", "sporadic", "cbs", "soft-cbs"];

/// Selection rules of versions, in the order of the manual. Programs may add names of their own.
pub const SELECTIONS: [&str; 5] = ["declared", "energy", "trade-off", "mode", "mask"];

/// Resource access protocols, in the order of the manual.
pub const PROTOCOLS: [&str; 3] = ["none", "inheritance", "ceiling"];

/// States of the CPU of a job that waits for a device, in the order of the manual.
pub const CPU_USES: [&str; 3] = ["free", "spin", "hold"];

/// Actions at a failure of a program, in the order of the manual.
pub const FAILURE_ACTIONS: [&str; 3] = ["restart", "idle", "ignore"];

/// Exits after which a program starts again, in the order of the manual.
pub const RESTART_EXITS: [&str; 2] = ["failure", "always"];

/// All keys of a system file.
pub const KEYS: &[Key<Section>] = &[
    key(Top, "duration", Duration, "\"10s\"")
        .default("\"10s\"")
        .range("above 0")
        .means("Length of a run."),
    key(Top, "seed", Integer, "1")
        .default("1")
        .range("0 to 4294967295")
        .means("Seed of all random numbers."),
    key(Top, "include", Texts, "[\"sensors.toml\"]")
        .default("nothing")
        .range("paths relative to this file")
        .means("Files whose schedulers and tasks belong to this system."),
    key(Top, "scheduler", Table, "[[scheduler]]").default("required").means("An inner node of a tree."),
    key(Top, "task", Table, "[[task]]").default("no load").means("A leaf of a tree."),
    key(Top, "accelerator", Table, "[[accelerator]]")
        .default("none")
        .means("A device that one job at a time may hold."),
    key(Top, "resource", Table, "[[resource]]").default("none").means("A resource that one job at a time may lock."),
    key(Top, "channel", Table, "[[channel]]").default("no graph").means("An edge of a graph, from task to task."),
    key(Top, "chain", Table, "[[chain]]").default("none").means("A path of data through tasks, with its latencies."),
    key(Top, "overheads", Table, "[overheads]").default("nothing").means("Costs of scheduling."),
    key(Top, "stall", Table, "[[stall]]").default("none").means("An interval without progress on a CPU."),
    key(Top, "change", Table, "[[change]]").default("none").means("A change of battery, mode or permissions."),
    key(Top, "expect", Table, "[[expect]]").default("nothing").means("An expectation that a run must meet."),
    key(Top, "mode", Table, "[[mode]]").default("it has one").means("One of several sets of tasks and parameters."),
    // [[scheduler]]
    key(Scheduler, "name", Text, "\"cpu0\"")
        .default("required")
        .range("1 to 63 letters, digits, `_`, `-` and `.`; unique")
        .means("Name for other tables."),
    key(Scheduler, "in", Text, "\"cpu0\"")
        .default("it is a root")
        .range("name of a scheduler")
        .means("The scheduler above it."),
    key(Scheduler, "policy", Word(&POLICIES), "\"edf\"")
        .default("required; `fifo` for a server")
        .means("Order of its children; `talea new policy` writes a template of a policy."),
    key(Scheduler, "cpus", Integer, "2").default("1").range("1 to 64").means("Number of CPUs that a root owns."),
    key(Scheduler, "migration", Word(&["anytime", "job-boundaries"]), "\"job-boundaries\"")
        .default("\"anytime\"")
        .means("When a job of a root with several CPUs may migrate."),
    key(Scheduler, "preemptive", Boolean, "false")
        .default("true")
        .means("Whether a sibling may preempt a child."),
    key(Scheduler, "priority", Integer, "30")
        .default("its head's")
        .range("0 to 255, larger is more urgent")
        .means("Priority of the whole group under `fp`."),
    key(Scheduler, "criticality", Integer, "2")
        .default("its head's")
        .range("0 to 255, larger is more critical")
        .means("Criticality of the whole group under `criticality`."),
    key(Scheduler, "quantum", Duration, "\"10ms\"")
        .default("required for `rr`")
        .range("above 0")
        .means("Time for which a child of `rr` runs before the next one."),
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
        .means("CPUs that its tasks may use."),
    key(Scheduler, "selection", Word(&SELECTIONS), "\"energy\"")
        .default("\"declared\"")
        .means("Rule by which a root selects among the available versions."),
    key(Scheduler, "weight", Integer, "500")
        .default("500")
        .range("0 (time only) to 1000 (energy only)")
        .means("Weight of energy in a `trade-off`, in thousandths."),
    key(Scheduler, "inheritance", Boolean, "false")
        .default("true")
        .means("Whether a job that waits for an accelerator of this root lends its urgency to the holder."),
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
        .means("Length after each refill in which a server's budget is available."),
    key(Scheduler, "offset", Duration, "\"5ms\"")
        .default("\"0\"")
        .range("less than the period")
        .means("Start of the first period of a server."),
    // [[scheduler.slot]]
    key(Slot, "owner", Text, "\"tp1\"")
        .default("required")
        .range("name of a child")
        .means("Child that may run in the slot."),
    key(Slot, "start", Duration, "\"20ms\"")
        .default("where the slot before it ends")
        .range("within the frame")
        .means("Offset in the frame at which the slot begins."),
    key(Slot, "length", Duration, "\"20ms\"")
        .default("required")
        .range("above 0")
        .means("Length of the slot."),
    // [[scheduler.entry]]
    key(Entry, "owner", Text, "\"video\"")
        .default("required")
        .range("name of a child")
        .means("Child that has the CPU in the entry."),
    key(Entry, "cpu", Integer, "1").default("0").range("0 to 63; below the `cpus` of the root").means("CPU of the entry."),
    key(Entry, "start", Duration, "\"20ms\"")
        .default("where the entry before it ends, on its CPU")
        .range("within the hyperperiod")
        .means("Offset in the hyperperiod at which the entry begins."),
    key(Entry, "length", Duration, "\"20ms\"").default("required").range("above 0").means("Length of the entry."),
    key(Entry, "version", Text, "\"gpu\"")
        .default("the first")
        .range("name of a version of its owner")
        .means("The version of a job that begins here."),
    key(Entry, "activates", Boolean, "true")
        .default("false")
        .means("Whether the entry creates the job that it runs; the owner then has no other arrivals."),
    key(Entry, "continues", Boolean, "true")
        .default("false")
        .means("Whether the job is meant to continue in a later entry; then it is no overrun."),
    // [[task]]
    key(Task, "name", Text, "\"video\"")
        .default("required")
        .range("1 to 63 letters, digits, `_`, `-` and `.`; unique")
        .means("Name for other tables."),
    key(Task, "in", Text, "\"cpu0\"")
        .default("the only root, if there is one")
        .range("name of a scheduler")
        .means("The scheduler above it."),
    key(Task, "period", Duration, "\"40ms\"")
        .default("required, unless it is a program without `cost`; of the end of a channel: that of its graph")
        .range("above 0")
        .means("Separation of its jobs, or the minimum separation of a sporadic task."),
    key(Task, "deadline", Duration, "\"20ms\"")
        .default("the period; of the end of a channel: that of its graph")
        .range("above 0")
        .means("Relative deadline."),
    key(Task, "cost", Durations, "\"4ms\"")
        .default("required, unless it has versions or is a program without `period`")
        .range("a duration, a list of them, `{ min = \"1ms\", max = \"4ms\" }` or `{ low = \"1ms\", high = \"4ms\", share = 10 }`")
        .means("CPU time of a job; a list repeats; `share` of a thousand jobs take `high`."),
    key(Task, "priority", Integer, "20")
        .default("0; of the end of a channel: the most urgent of its graph")
        .range("0 to 255, larger is more urgent")
        .means("Priority under `fp`."),
    key(Task, "criticality", Integer, "1")
        .default("0; of the end of a channel: the most critical of its graph")
        .range("0 to 255, larger is more critical")
        .means("Criticality under `criticality`."),
    key(Task, "offset", Duration, "\"2ms\"")
        .default("\"0\"")
        .range("any")
        .means("Arrival of its first job. If a task of a root states an offset, also `\"0\"`, an analysis assumes the stated phases; otherwise it covers all phases."),
    key(Task, "jitter", Duration, "\"1ms\"")
        .default("\"0\"")
        .range("any")
        .means("Maximum time from an arrival to its release; the deadline counts from the arrival. Not beside `separation_max`."),
    key(Task, "arrivals", Durations, "[\"3ms\", \"8ms\"]")
        .default("periodic")
        .range("times since the start, in order")
        .means("Arrivals of its jobs, instead of periodic ones."),
    key(Task, "separation_max", Duration, "\"15ms\"")
        .default("it is periodic")
        .range("above the period")
        .means("Makes the task sporadic: the separation of two arrivals is random, from the period to this."),
    key(Task, "curve", Table, "[task.curve]")
        .default("none")
        .means("Minimum distances between arrivals, instead of a period: an arrival curve."),
    key(Task, "preemption_points", Durations, "[\"2ms\", \"5ms\"]")
        .default("anywhere")
        .range("a list of durations in order, above 0 and below the most that a job costs; `[]` for never")
        .means("Work of a job after which a sibling may preempt it, and nowhere else."),
    key(Task, "nonpreemptive_max", Duration, "\"1ms\"")
        .default("`\"0\"`: none")
        .range("up to the most that a job costs")
        .means("Longest section of a job that no sibling preempts; such sections begin anywhere."),
    key(Task, "nonpreemptive_last", Duration, "\"0.5ms\"")
        .default("`\"0\"`: none")
        .range("up to `nonpreemptive_max`")
        .means("Section at the end of each job that no sibling preempts."),
    key(Task, "enforce", Boolean, "true")
        .default("false")
        .means("Whether an early job waits for the end of the period."),
    key(Task, "logical_execution_time", Boolean, "true")
        .default("false")
        .means("Whether each job reads its input at its release and writes its output at its deadline, for chains; simulated and analysed only."),
    key(Task, "backlog", Integer, "16")
        .default("64")
        .range("0 to 1048576")
        .means("Maximum number of jobs that wait behind the current one; further jobs are refused."),
    key(Task, "count", Integer, "5")
        .default("1")
        .range("1 to 10000")
        .means("Number of such tasks; `name` then gets a number, from 0."),
    key(Task, "affinity", Text, "\"0-1\"")
        .default("all of them")
        .range("CPUs of its root, from 0, such as `0-2,5`; for children of a root")
        .means("CPUs that the task may use."),
    key(Task, "program", Texts, "[\"sha1sum\", \"/dev/zero\"]")
        .default("generated work")
        .range("a program and its arguments")
        .means("Program on real threads; the other keys are assumed of it. Without `period` and `cost` it always wants the CPU."),
    key(Task, "user", Text, "\"audio\"")
        .default("the user who runs the file; required if that is root")
        .range("name or number of an account; with `program`")
        .means("User of the program's processes."),
    key(Task, "ready", Duration, "\"1s\"")
        .default("it reports nothing")
        .range("above 0; with `program`")
        .means("Time from its start within which the program reports that it is ready; for `talea deploy`."),
    key(Task, "on_failure", Word(&FAILURE_ACTIONS), "\"idle\"")
        .default("\"restart\"")
        .range("with `program`")
        .means("Action if the program fails or is not ready in time; for `talea deploy`."),
    key(Task, "restart", Table, "[task.restart]")
        .default("three within a minute")
        .range("with `program`; not beside another `on_failure` than `restart`")
        .means("Limits of restarts; for `talea deploy`."),
    key(Task, "version", Table, "[[task.version]]").default("it has one").means("One of several implementations of the task."),
    key(Task, "section", Table, "[[task.section]]")
        .default("it locks nothing")
        .means("A part of each job in which it holds a resource."),
    key(Task, "suspension", Table, "[[task.suspension]]")
        .default("none")
        .means("A part of each job in which it waits, such as for a device."),
    // [task.curve]
    key(Curve, "distances", Durations, "[\"2ms\", \"20ms\"]")
        .default("another form")
        .range("1 to 1000 durations that do not decrease, not all zero")
        .means("Minimum distance of an arrival to the next one, to the second after it, and so on."),
    key(Curve, "burst", Integer, "3")
        .default("another form")
        .range("1 to 1000")
        .means("Maximum number of arrivals in any window of the length `within`."),
    key(Curve, "within", Duration, "\"30ms\"")
        .default("required beside `burst`")
        .range("above 0")
        .means("Length of the window of a `burst`; it excludes its end."),
    key(Curve, "jitter", Duration, "\"25ms\"")
        .default("another form")
        .range("any; up to 4096 jobs in a burst")
        .means("Maximum delay of arrivals that are otherwise periodic; the deadline counts from the delayed arrival."),
    key(Curve, "separation", Duration, "\"1ms\"")
        .default("\"0\"")
        .range("up to the period; with `burst` or `jitter`")
        .means("Minimum distance of two arrivals."),
    key(Curve, "trace", Durations, "[\"0\", \"3ms\", \"20ms\"]")
        .default("another form")
        .range("times in order")
        .means("Recorded arrivals, whose densest windows are the curve."),
    key(Curve, "jobs", Integer, "2")
        .default("required beside `trace`")
        .range("1 to 1000; less than the arrivals of the trace")
        .means("Number of distances that are derived from the trace."),
    key(Curve, "extra_delay", Duration, "\"4ms\"")
        .default("\"0\": as dense as the curve permits")
        .range("any")
        .means("Maximum random time of a simulated arrival beyond the earliest time that the curve permits."),
    // [task.restart]
    key(Restart, "when", Word(&RESTART_EXITS), "\"always\"")
        .default("\"failure\"")
        .means("Exits after which the program starts again: only failures, or a success as well."),
    key(Restart, "attempts", Integer, "5")
        .default("3")
        .range("0 to 1000")
        .means("Maximum number of restarts `within` the window; after that the task has failed."),
    key(Restart, "within", Duration, "\"30s\"")
        .default("\"60s\"")
        .range("above 0")
        .means("Length of the window that ends with a failure."),
    key(Restart, "backoff", Duration, "\"200ms\"")
        .default("`\"1s\"`, at most `within`")
        .range("up to `within`")
        .means("Time before the first restart of a window; each further one waits twice as long, up to `within`."),
    // [[task.version]]
    key(Version, "name", Text, "\"gpu\"")
        .default("required")
        .range("1 to 63 letters, digits, `_`, `-` and `.`; unique in its task")
        .means("Name in tables and reports."),
    key(Version, "cost", Durations, "\"4ms\"")
        .default("required")
        .range("as that of a task")
        .means("CPU time of a job in this version."),
    key(Version, "accelerators", Texts, "[\"gpu0\"]")
        .default("none")
        .range("names of accelerators")
        .means("Accelerators that a job holds from its first dispatch to its completion, all or none."),
    key(Version, "energy", Integer, "12")
        .default("0")
        .range("0 to 4294967295, in the unit of the battery")
        .means("Energy that a job consumes; for `energy` and `trade-off`."),
    key(Version, "time", Duration, "\"4ms\"")
        .default("the most that it costs")
        .range("above 0")
        .means("Time that a job takes; for `trade-off`."),
    key(Version, "modes", Integers, "[0, 2]")
        .default("all")
        .range("0 to 63 each")
        .means("Modes of the version; for `mode`."),
    key(Version, "needs", Integers, "[3]")
        .default("none")
        .range("0 to 63 each")
        .means("Permissions that the version needs; for `mask`."),
    // [[task.section]]
    key(CriticalSection, "resource", Text, "\"bus\"")
        .default("required")
        .range("name of a resource")
        .means("Resource that is locked."),
    key(CriticalSection, "start", Duration, "\"1ms\"")
        .default("\"0\"")
        .range("less than the most that a job costs")
        .means("Work of the job before its start."),
    key(CriticalSection, "length", Duration, "\"2ms\"")
        .default("required")
        .range("above 0, not beyond the most that a job costs")
        .means("Work of the job in the section."),
    // [[task.suspension]]
    key(Suspension, "start", Duration, "\"1ms\"")
        .default("\"0\"")
        .range("less than the most that a job costs")
        .means("Work of the job before its start."),
    key(Suspension, "length", Duration, "\"5ms\"").default("required").range("above 0").means("Length of the wait."),
    key(Suspension, "while", Word(&CPU_USES), "\"spin\"")
        .default("`\"free\"`")
        .means("State of the CPU during the wait."),
    key(Suspension, "version", Text, "\"gpu\"")
        .default("every version")
        .range("name of a version of the task")
        .means("Version whose jobs wait."),
    // [[accelerator]]
    key(Accelerator, "name", Text, "\"gpu0\"")
        .default("required")
        .range("1 to 63 letters, digits, `_`, `-` and `.`; unique")
        .means("Name for versions."),
    key(Accelerator, "in", Text, "\"cpu0\"")
        .default("the only root, if there is one")
        .range("name of a root")
        .means("Root of the tasks that may use it."),
    // [[resource]]
    key(Resource, "name", Text, "\"bus\"")
        .default("required")
        .range("1 to 63 letters, digits, `_`, `-` and `.`; unique")
        .means("Name for sections."),
    key(Resource, "in", Text, "\"cpu0\"")
        .default("the only root, if there is one")
        .range("name of a root")
        .means("Root of the tasks that may lock it."),
    key(Resource, "protocol", Word(&PROTOCOLS), "\"ceiling\"")
        .default("\"inheritance\"")
        .means("Urgency of the holder."),
    // [[channel]]
    key(Channel, "from", Text, "\"camera\"")
        .default("required")
        .range("name of a task")
        .means("Task that pushes tokens."),
    key(Channel, "to", Text, "\"video\"")
        .default("required")
        .range("name of a task of the same root")
        .means("Task that the tokens activate; it has no arrivals of its own."),
    key(Channel, "size", Integer, "4")
        .default("0")
        .range("0 to 1048576")
        .means("Capacity in tokens with data; 0: a token without data at each completion."),
    key(Channel, "tokens", Integer, "2")
        .default("1")
        .range("1 to 64; up to the size, unless that is 0")
        .means("Tokens that an activation takes."),
    key(Channel, "push", Integers, "[1, 0, 2]")
        .default("one each")
        .range("0 to 1024 each; not with size 0")
        .means("Tokens that the jobs push; the list repeats."),
    key(Channel, "pop", Integers, "[1, 1, 0]")
        .default("what activates")
        .range("0 to 1024 each; not with size 0")
        .means("Tokens that the jobs of the consumer pop; the list repeats."),
    // [[chain]]
    key(Chain, "name", Text, "\"brake\"")
        .default("its tasks")
        .range("1 to 63 letters, digits, `_`, `-` and `.`; unique among chains")
        .means("Name in reports."),
    key(Chain, "tasks", Texts, "[\"camera\", \"video\"]")
        .default("required")
        .range("names of 2 to 64 different tasks, also of several roots")
        .means("The path: each task reads what the one before it writes, by a channel between them or else by a register."),
    key(Chain, "reaction", Duration, "\"80ms\"")
        .default("not required")
        .range("above 0")
        .means("Required maximum of the reaction time."),
    key(Chain, "age", Duration, "\"100ms\"")
        .default("not required")
        .range("above 0")
        .means("Required maximum of the data age."),
    // [overheads]
    key(Overheads, "release", Duration, "\"2us\"")
        .default("\"0\"").range("up to 1s")
        .means("Cost of an arrival, on the CPU where its task ran last."),
    key(Overheads, "decision", Duration, "\"1us\"").default("\"0\"").range("up to 1s").means("Cost of an order to run."),
    key(Overheads, "level", Duration, "\"100ns\"")
        .default("\"0\"").range("up to 1s")
        .means("Additional cost of an order for each scheduler above the task."),
    key(Overheads, "switch", Duration, "\"3us\"").default("\"0\"").range("up to 1s").means("Cost of a switch to another job."),
    key(Overheads, "migration", Duration, "\"20us\"")
        .default("\"0\"").range("up to 1s")
        .means("Additional cost if the job was on another CPU before."),
    // [[stall]]
    key(Stall, "in", Text, "\"cpu0\"")
        .default("the only root, if there is one")
        .range("name of a root")
        .means("The root of the stalled CPU."),
    key(Stall, "cpu", Integer, "1").default("0").range("0 to 63; below the `cpus` of the root").means("Number of the stalled CPU."),
    key(Stall, "start", Duration, "\"100ms\"").default("required").range("any").means("Start of the stall."),
    key(Stall, "length", Duration, "\"5ms\"").default("required").range("above 0").means("Length of the stall."),
    // [[change]]
    key(Change, "at", Duration, "\"2s\"").default("required").range("any").means("Instant of the change."),
    key(Change, "battery", Integer, "40")
        .default("it stays; full at first")
        .range("0 to 4294967295, in the unit of the versions' energy")
        .means("State of the battery from then on."),
    key(Change, "mode", Integer, "2").default("it stays; `0` at first").range("0 to 63").means("The mode from then on."),
    key(Change, "permitted", Integers, "[0, 3]")
        .default("it stays; all at first")
        .range("0 to 63 each")
        .means("Permissions from then on."),
    // [[expect]]
    key(Expect, "task", Text, "\"video\"")
        .default("all tasks together")
        .range("name of a task, or its beginning with `*`")
        .means("The tasks that the expectation applies to."),
    key(Expect, "misses", Integer, "0")
        .default("not checked")
        .range("0 to 4294967295")
        .means("Maximum number of jobs that may miss their deadline."),
    key(Expect, "response", Duration, "\"13ms\"")
        .default("not checked")
        .range("above 0")
        .means("Maximum response time."),
    // [[mode]]
    key(Mode, "name", Text, "\"landing\"")
        .default("required")
        .range("1 to 63 letters, digits, `_`, `-` and `.`; unique among modes")
        .means("Name for commands and reports."),
    key(Mode, "tasks", Texts, "[\"camera\", \"loop*\"]")
        .default("all")
        .range("names of tasks, or their beginnings with `*`")
        .means("The tasks that run in the mode."),
    key(Mode, "initial", Boolean, "true")
        .default("`true` for the first mode, if no other mode says so")
        .means("Whether the system starts in the mode."),
    key(Mode, "fallback", Boolean, "true")
        .default("`false`")
        .means("Whether the mode is the one for failures. Reports show it; no command switches to it by itself yet."),
    key(Mode, "task", Table, "[[mode.task]]")
        .default("as in the file")
        .range("`name` of a task of this file, and keys of `[[task]]`")
        .means("The keys of a task that differ in the mode."),
    key(Mode, "scheduler", Table, "[[mode.scheduler]]")
        .default("as in the file")
        .range("`name` of a scheduler of this file, and keys of `[[scheduler]]`")
        .means("The keys of a scheduler that differ in the mode."),
];
