//! Rows of the coverage table: the claims of the papers, and the defects of the original ReTiF
//! daemon and library. `docs/requirements.md` has each row as a sentence with its source.
//!
//! A row needs a deterministic test (`sim`: pure crates) and a live test (`vm`: real kernel, real
//! daemon, C programs). The row needs no test in a column in which the claim leaves nothing to
//! test.

/// Whether a row must have a test in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A test is required.
    Asked,
    /// No test is required yet. The table lists existing tests.
    Later,
    /// There is nothing to test, for this reason. If the reason is empty, the reason of the whole
    /// column applies.
    Not(&'static str),
}

/// One row of the table.
pub(crate) struct Row {
    /// Prefix of the names of the row's tests, in lower case: `r13`.
    pub(crate) id: &'static str,
    pub(crate) claim: &'static str,
    pub(crate) sim: Need,
    pub(crate) vm: Need,
}

/// Creates a row of ReTiF.
const fn row(id: &'static str, sim: bool, vm: bool, claim: &'static str) -> Row {
    Row { id, claim, sim: need(sim), vm: need(vm) }
}

const fn need(is: bool) -> Need {
    if is { Need::Asked } else { Need::Not("") }
}

/// Creates a row of a paper that the simulator and the executor repeat.
const fn paper(id: &'static str, claim: &'static str) -> Row {
    Row { id, claim, sim: Need::Asked, vm: Need::Later }
}

/// Creates a row of a paper that a simulation cannot test, because of `why`.
const fn live(id: &'static str, claim: &'static str, why: &'static str) -> Row {
    Row { id, claim, sim: Need::Not(why), vm: Need::Later }
}

/// Rows of ReTiF's papers.
pub(crate) const CLAIMS: &[Row] = &[
    row("r1", true, true, "any subset of period, runtime, desired runtime, deadline and priority"),
    row("r2", true, true, "connect, create, change, release, attach, detach"),
    row("r3", true, true, "every getter and setter"),
    row("r4", false, true, "result codes"),
    row("r5", false, true, "the papers' listings compile, link and run"),
    row("r6", false, true, "every call has a time-out"),
    row("r7", true, true, "change is atomic and may move the plugin"),
    row("r8", true, true, "desired and accepted runtime"),
    row("r9", true, false, "highest precedence OK, else highest PARTIAL, else refused"),
    row("r10", true, true, "a named plugin is the only one asked"),
    row("r11", true, false, "mandatory, recommended, optional and unused parameters"),
    row("r12", true, true, "what Linux would refuse is refused at create"),
    row("r13", true, true, "edf: worst fit, threshold"),
    row("r14", true, true, "ignore-admission"),
    row("r15", true, true, "rm: order of periods kept and re-applied"),
    row("r16", true, false, "rm: admission tests"),
    row("r17", true, true, "fp and rr: order of priorities kept"),
    row("r18", true, true, "plugins from outside"),
    row("r19", true, false, "the papers' configuration loads as printed"),
    row("r20", true, true, "no rule, no service"),
    row("r21", true, true, "nine properties, each bound from both sides"),
    row("r22", true, true, "no escape by omission"),
    row("r23", true, true, "domains: global, user, group"),
    row("r24", true, true, "aggregate utilisation per subject"),
    row("r25", true, true, "threads of other users are refused"),
    row("r26", false, true, "files that others can write are refused"),
    row("r27", true, false, "the papers' rules are imported as printed"),
    row("r28", true, true, "threads become again what they were"),
    row("r29", true, true, "whose is a grant"),
    row("r30", false, true, "threads, processes, children"),
    row("r31", true, true, "plugins on common CPUs account for each other"),
    row("r32", true, true, "reuse of a thread id affects no other thread"),
    row("r33", false, true, "no cost in critical loops"),
    row("r34", false, true, "cost against specs, CPUs, plugins and clients"),
    row("r35", true, true, "affinity as a parameter"),
    row("r36", true, false, "bandwidth returns at the zero-lag time"),
    row("r37", true, false, "pure crates need no Linux"),
];

/// Rows of the defects of the original ReTiF daemon and library (R38). A defect between a process
/// and the kernel has no deterministic model, and no test machine has more than 32 CPUs.
pub(crate) const DEFECTS: &[Row] = &[
    row("retif_m1", true, true, "arrays sized by managed CPUs, indexed by CPU number"),
    row("retif_m2", true, true, "priority from the wire as an unchecked index"),
    row("retif_m3", true, true, "negative indexes in info calls"),
    row("retif_m4", true, true, "index one past the end"),
    row("retif_m5", true, true, "replies carry uninitialised memory"),
    row("retif_m6", true, false, "static tables for 32 CPUs"),
    row("retif_m7", false, true, "descriptor sets past 1,023"),
    row("retif_m8", true, true, "plugin symbols unchecked; plugins without CPUs"),
    row("retif_d1", false, true, "SIGPIPE kills the daemon"),
    row("retif_d2", false, true, "a client that does not read stops all others"),
    row("retif_d3", false, true, "descriptor exhaustion"),
    row("retif_d4", true, true, "no quotas"),
    row("retif_d5", false, true, "idle connections cost every request"),
    row("retif_d6", true, true, "partial messages desynchronise"),
    row("retif_s1", true, true, "any user makes any process real-time"),
    row("retif_s2", true, true, "any client handles any task"),
    row("retif_s3", true, true, "the client's pid is believed"),
    row("retif_s4", true, true, "attach of pid 0 hits the daemon"),
    row("retif_s5", true, true, "two threads in turn under one task"),
    row("retif_s6", true, true, "children stay real-time"),
    row("retif_s7", true, true, "reused ids are demoted"),
    row("retif_s8", true, true, "the daemon demotes itself"),
    row("retif_s9", true, true, "one thread under two tasks"),
    row("retif_s10", true, true, "detach restores nothing"),
    row("retif_s11", true, true, "a failed attach leaves the thread pinned"),
    row("retif_s12", true, true, "inherited sockets delay cleaning up"),
    row("retif_s13", false, true, "a second daemon takes over the socket"),
    row("retif_s14", true, true, "a dead thread is never noticed"),
    row("retif_w1", true, true, "change never works"),
    row("retif_w2", true, true, "desired runtime is unreachable"),
    row("retif_w3", false, true, "units of the period; the first wait"),
    row("retif_w4", true, true, "rm inversion"),
    row("retif_w5", true, true, "rr inversion"),
    row("retif_w6", true, true, "count of distinct periods drifts"),
    row("retif_w7", true, true, "placement overloads a CPU"),
    row("retif_w8", true, true, "the ledger holds the minimum instead of the granted runtime"),
    row("retif_w9", true, true, "32-bit periods"),
    row("retif_w10", true, true, "task ids as floats"),
    row("retif_w11", true, true, "the utilisation bound is unused"),
    row("retif_w12", true, true, "impossible requests are accepted"),
    row("retif_w13", true, true, "the named plugin is ignored"),
    row("retif_w14", false, true, "races between threads of a client"),
    row("retif_w15", false, true, "end of file is reported as success"),
    row("retif_w16", false, true, "leaks of memory and descriptors"),
    row("retif_w17", false, true, "one name, two layouts"),
    row("retif_w18", true, true, "closing one connection releases another's tasks"),
    row("retif_10_5", true, true, "death of the daemon leaves threads and knobs behind"),
];

/// All rows of SF3P (RSP 2014).
pub(crate) const SF3P: &[Row] = &[
    paper("s1", "library: EDF, FP, RM, FIFO, TDMA, CBS, deferrable server"),
    paper("s2", "arbitrary depth of composition"),
    paper("s3", "invariants 1 to 4"),
    paper("s4", "TDMA only under time sharing"),
    paper("s5", "EDF trees of 1 to 5 levels are equivalent"),
    paper("s6", "Fig. 6: misses against utilisation"),
    paper("s7", "EDF meets deadlines up to 99.9 %"),
    paper("s8", "Fig. 7: scheduler overhead is counted and linear"),
    live(
        "s9",
        "Fig. 8: other overhead is measured apart",
        "what a machine spends is not simulated",
    ),
    live("s10", "Fig. 9: overhead against levels", "what a machine spends is not simulated"),
    paper("s11", "Table II: the flight management software"),
    paper("s12", "Fig. 4: order of events"),
    paper("s13", "preemptive and non-preemptive variants"),
    paper("s14", "periodic, jittered, aperiodic, offset arrivals without drift"),
    paper("s15", "a queued job is ordered by its own deadline"),
    paper("s16", "deadlines count from the nominal release"),
    paper("s17", "inactive workers never run"),
    paper("s18", "the same file is simulated and executed"),
    paper("s19", "a policy from outside with little effort"),
    paper("s20", "outputs"),
    live("s21", "the load generator's accuracy", "simulated work is exact"),
    paper("s22", "bad input"),
    paper("s23", "portability"),
];

/// All rows of YASMIN (Middleware 2021).
pub(crate) const YASMIN: &[Row] = &[
    paper("y1", "declaring, starting, stopping, editing while stopped"),
    paper("y2", "global and partitioned EDF and FP; RM, DM, user priorities"),
    paper("y3", "implicit, constrained, arbitrary deadlines"),
    paper("y4", "preemption on and off"),
    paper("y5", "global or partitioned without touching tasks"),
    paper("y6", "several versions, five methods of selection"),
    paper("y7", "accelerators: a busy one is avoided"),
    paper("y8", "priority inheritance on accelerators"),
    paper("y9", "graphs: activation, tokens, edges of size 0"),
    paper("y10", "channels: overflow, underflow"),
    paper("y11", "off-line tables"),
    paper("y12", "off-line with versions chosen beforehand"),
    paper("y13", "sporadic and user-activated tasks"),
    paper("y14", "start, stop, resume, modes"),
    live(
        "y15",
        "waiting and locking: sleep or spin",
        "the scheduler machine does not depend on how a driver waits",
    ),
    paper("y16", "operations per job are O(log n)"),
    live("y17", "Table 2: latency", "simulated wake-ups have no latency"),
    paper("y18", "Fig. 5: 24 configurations"),
    paper("y19", "no allocation after start"),
    live("y20", "memory is locked, times count from the start", "a simulation has no page faults"),
    paper("y21", "adding a policy is small"),
    live("y22", "portability: without root", "the simulator never needs it"),
];

/// All rows of L3C in PikeOS (RTNS 2017).
pub(crate) const L3C: &[Row] = &[
    paper("l1", "time partitions, cyclic table, forced preemption"),
    paper("l2", "256 levels, FIFO in a level"),
    paper("l3", "TP_0 is always eligible and wins ties"),
    paper("l4", "EDF bands at any level"),
    paper("l5", "polling, sporadic, deferrable, hard CBS servers"),
    paper("l6", "no reservations in time partitions"),
    paper("l7", "Fig. 4"),
    paper("l8", "plug-ins without access to the core's data"),
    paper("l9", "no cost when off"),
    paper("l10", "existing configurations stay as they were"),
    paper("l11", "static configuration of the whole system"),
    paper("l12", "bounds hold in simulations and in reality"),
    paper("l13", "no interference above the bands"),
    paper("l14", "Fig. 5"),
    paper("l15", "Fig. 6"),
    paper("l16", "high priority, normal load"),
    paper("l17", "Figs 7 and 8"),
    paper("l18", "recovery after a burst"),
    paper("l19", "a custom server"),
    live("l20", "threads need no change", "there are no threads in a simulation"),
    paper("l21", "instances per CPU"),
    paper("l22", "trace and job statistics"),
    paper("l23", "reservations: create, resize, delete, refuse"),
    paper("l24", "budgets across partition switches and stalls"),
];
