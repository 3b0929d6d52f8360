//! The rows: what ReTiF's papers claim, one line each, and the defects of its original that ours must not have.
//!
//! Needed are a deterministic test (`sim`: pure crates) and a live one (`vm`: real kernel, real daemon, C programs);
//! where the claim leaves no room for one of them, it is not asked for.

/// One row.
pub(crate) struct Row {
    /// As test names begin with it, in lower case: `r13`.
    pub(crate) id: &'static str,
    pub(crate) claim: &'static str,
    pub(crate) sim: bool,
    pub(crate) vm: bool,
}

const fn row(id: &'static str, sim: bool, vm: bool, claim: &'static str) -> Row {
    Row { id, claim, sim, vm }
}

/// Rows of the checklist.
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
    row("r32", true, true, "thread id reuse hits no stranger"),
    row("r33", false, true, "no cost in critical loops"),
    row("r34", false, true, "cost against specs, CPUs, plugins and clients"),
    row("r35", true, true, "affinity as a parameter"),
    row("r36", true, false, "bandwidth returns at the zero-lag time"),
    row("r37", true, false, "pure crates need no Linux"),
];

/// Defects of the original (checklist row R38): one test each at least, of either kind.
pub(crate) const DEFECTS: &[Row] = &[
    row("retif_m1", false, false, "arrays sized by managed CPUs, indexed by CPU number"),
    row("retif_m2", false, false, "priority from the wire as an unchecked index"),
    row("retif_m3", false, false, "negative indexes in info calls"),
    row("retif_m4", false, false, "index one past the end"),
    row("retif_m5", false, false, "replies carry uninitialised memory"),
    row("retif_m6", false, false, "static tables for 32 CPUs"),
    row("retif_m7", false, false, "descriptor sets past 1,023"),
    row("retif_m8", false, false, "plugin symbols unchecked; plugins without CPUs"),
    row("retif_d1", false, false, "SIGPIPE kills the daemon"),
    row("retif_d2", false, false, "a client that does not read stops everybody"),
    row("retif_d3", false, false, "descriptor exhaustion"),
    row("retif_d4", false, false, "no quotas"),
    row("retif_d5", false, false, "idle connections cost every request"),
    row("retif_d6", false, false, "partial messages desynchronise"),
    row("retif_s1", false, false, "any user makes any process real-time"),
    row("retif_s2", false, false, "any client handles any task"),
    row("retif_s3", false, false, "the client's pid is believed"),
    row("retif_s4", false, false, "attach of pid 0 hits the daemon"),
    row("retif_s5", false, false, "two threads in turn under one task"),
    row("retif_s6", false, false, "children stay real-time"),
    row("retif_s7", false, false, "reused ids are demoted"),
    row("retif_s8", false, false, "the daemon demotes itself"),
    row("retif_s9", false, false, "one thread under two tasks"),
    row("retif_s10", false, false, "detach restores nothing"),
    row("retif_s11", false, false, "a failed attach leaves the thread pinned"),
    row("retif_s12", false, false, "inherited sockets delay cleaning up"),
    row("retif_s13", false, false, "a second daemon takes over the socket"),
    row("retif_s14", false, false, "a dead thread is never noticed"),
    row("retif_w1", false, false, "change never works"),
    row("retif_w2", false, false, "desired runtime is unreachable"),
    row("retif_w3", false, false, "units of the period; the first wait"),
    row("retif_w4", false, false, "rm inversion"),
    row("retif_w5", false, false, "rr inversion"),
    row("retif_w6", false, false, "count of distinct periods drifts"),
    row("retif_w7", false, false, "placement overloads a CPU"),
    row("retif_w8", false, false, "books hold the minimum instead of the granted runtime"),
    row("retif_w9", false, false, "32-bit periods"),
    row("retif_w10", false, false, "task ids as floats"),
    row("retif_w11", false, false, "the utilisation bound is unused"),
    row("retif_w12", false, false, "impossible requests are accepted"),
    row("retif_w13", false, false, "the named plugin is ignored"),
    row("retif_w14", false, false, "races between threads of a client"),
    row("retif_w15", false, false, "end of file is reported as success"),
    row("retif_w16", false, false, "leaks of memory and descriptors"),
    row("retif_w17", false, false, "one name, two layouts"),
    row("retif_w18", false, false, "closing one connection releases another's tasks"),
    row("retif_10_5", false, false, "death of the daemon leaves threads and knobs behind"),
];
