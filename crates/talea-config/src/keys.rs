//! Keys of the configuration file, each once. The reader takes its suggestions from this list, and
//! a test compares the tables in `docs/manual/configuration.md` with it.
//!
//! Invariant: no listed key is ignored, and no other key is read. The reader asserts that it reads
//! only listed keys. A test gives every listed key a value of a wrong type and expects an error.

use crate::key::Form::{Boolean, Decimal, Duration, Integer, Table, Text, Texts, Word};
use crate::key::{FileSection, Key, key};
use Section::{Daemon, Plugin, Quota, Rule, Top};
use talea_core::Span;

/// A table of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Outside of any table.
    Top,
    /// `[daemon]`
    Daemon,
    /// `[daemon.quota]`
    Quota,
    /// `[[plugin]]`
    Plugin,
    /// `[[rule]]`
    Rule,
}

impl Section {
    /// Sections of the file, in the order of the manual.
    pub const ALL: [Section; 5] =
        [Section::Top, Section::Daemon, Section::Quota, Section::Plugin, Section::Rule];
}

impl FileSection for Section {
    const MAX_SPAN: Option<Span> = None;

    fn header(self) -> &'static str {
        match self {
            Section::Top => "the top of the file",
            Section::Daemon => "[daemon]",
            Section::Quota => "[daemon.quota]",
            Section::Plugin => "[[plugin]]",
            Section::Rule => "[[rule]]",
        }
    }

    fn is_top(self) -> bool {
        self == Section::Top
    }

    fn file() -> &'static [Key<Section>] {
        KEYS
    }
}

/// Plugin kinds, in the order of the manual.
pub const KINDS: [&str; 5] = ["edf", "rm", "fp", "rr", "foreign"];

/// All keys of the daemon's configuration.
pub const KEYS: &[Key<Section>] = &[
    key(Top, "daemon", Table, "[daemon]").default("all defaults").means("Settings of the daemon itself."),
    key(Top, "plugin", Table, "[[plugin]]")
        .default("required")
        .range("1 to 32 of them")
        .means("One scheduling plugin; earlier ones have precedence."),
    key(Top, "rule", Table, "[[rule]]")
        .default("only root is served")
        .range("up to 10,000 of them")
        .means("An access rule: which subject may request what."),
    // [daemon]
    key(Daemon, "socket", Text, "\"/run/talea/talea.sock\"")
        .default("\"/run/talea/talea.sock\"")
        .range("absolute path, up to 107 bytes")
        .means("Path of the socket."),
    key(Daemon, "socket_mode", Text, "\"0660\"")
        .default("\"0666\"")
        .range("\"0000\" to \"0777\", octal")
        .means("Permissions of the socket; connecting needs the right to write."),
    key(Daemon, "socket_owner", Text, "\"root\"")
        .default("the daemon's user")
        .range("user name or `#uid`")
        .means("Owner of the socket."),
    key(Daemon, "socket_group", Text, "\"realtime\"")
        .default("the daemon's group")
        .range("group name or `#gid`")
        .means("Group of the socket."),
    key(Daemon, "state_directory", Text, "\"/run/talea\"")
        .default("\"/run/talea\"")
        .range("absolute path")
        .means("Folder of the state file, in which a restarted daemon finds its grants."),
    key(Daemon, "audit_directory", Text, "\"/var/log/talea\"")
        .default("\"/var/log/talea\"")
        .range("absolute path")
        .means("Folder of the audit trail, which `talea log` reads."),
    key(Daemon, "audit_mib", Integer, "64")
        .default("64")
        .range("0 to 65,536")
        .means("Maximum size of the audit trail in MiB; `0` for no audit trail."),
    key(Daemon, "log_level", Word(&["error", "warning", "info", "debug"]), "\"info\"")
        .default("\"info\"")
        .means("The least important messages that are logged."),
    key(Daemon, "access", Word(&["rules", "off"]), "\"rules\"")
        .default("\"rules\"")
        .means("`rules`: a request needs a rule that allows it. `off`: every request of every user is served."),
    key(Daemon, "root", Word(&["unrestricted", "ruled"]), "\"unrestricted\"")
        .default("\"unrestricted\"")
        .means("Whether rules bind root."),
    key(Daemon, "groups", Word(&["all", "effective"]), "\"all\"").default("\"all\"").means(
        "Which groups of a client match `@group` rules: supplementary ones too, or the effective one.",
    ),
    key(Daemon, "front_ends", Texts, "[\"talea-rtkit\"]")
        .default("[]")
        .range("user names, or `#number`")
        .means("Users whose processes may request grants in the name of other users, but not of root."),
    key(Daemon, "quota", Table, "[daemon.quota]")
        .default("all defaults")
        .means("Limits of one user."),
    // [daemon.quota]
    key(Quota, "sessions_per_user", Integer, "128")
        .default("128")
        .range("1 to 65,536")
        .means("Connections of one user at a time."),
    key(Quota, "sessions", Integer, "1024").default("1024").range("1 to 65,536").means("Connections in total."),
    key(Quota, "sessions_without_rule", Integer, "64")
        .default("64")
        .range("1 to 65,536")
        .means("Connections of all users together that no rule serves."),
    key(Quota, "specs_per_user", Integer, "1024")
        .default("1024")
        .range("1 to 1,048,576")
        .means("Accepted task specifications of one user."),
    key(Quota, "specs", Integer, "32768")
        .default("32768")
        .range("1 to 1,048,576")
        .means("Accepted task specifications in total."),
    key(Quota, "levels_per_user", Integer, "20")
        .default("99")
        .range("1 to 99")
        .means("Priority levels of a plugin with `refuse_sharing` that one user may occupy; root is exempt."),
    key(Quota, "requests_per_second", Integer, "10000")
        .default("10000")
        .range("1 to 1,000,000")
        .means("Sustained requests a second of one user; a group counts once for each of its tasks; root is exempt."),
    key(Quota, "burst", Integer, "2000")
        .default("2000")
        .range("1 to 1,000,000")
        .means("Requests that a user may send at once before the rate applies."),
    // [[plugin]]
    key(Plugin, "name", Text, "\"rm\"")
        .default("required")
        .range("1 to 31 bytes without blanks, unique, not `-`")
        .means("The name that requests and rules use."),
    key(Plugin, "kind", Word(&KINDS), "\"rm\"").default("required").means("The scheduling algorithm."),
    key(Plugin, "cpus", Text, "\"0-1\"")
        .default("required")
        .range("kernel list such as `0-3,5`, or `all`")
        .means("CPUs on which the plugin may place tasks."),
    key(Plugin, "priorities", Text, "\"50-89\"")
        .default("required")
        .range("`low-high` within 1 to 99; 98 and 99 are for the daemon and watchdogs")
        .means("Kernel priorities that the plugin may hand out.")
        .only(&["rm", "fp", "rr", "foreign"]),
    key(Plugin, "threshold", Decimal, "0.9")
        .default("what the kernel admits")
        .range("above 0, up to 1, in whole CPUs")
        .means("Maximum utilization of each CPU (U^thr of ReTiF Eq. 3); exact.")
        .only(&["edf"]),
    key(Plugin, "confine", Word(&["auto", "partition", "global"]), "\"auto\"")
        .default("\"auto\"")
        .means("Method that keeps a task on one CPU; see below. `foreign`: with `class = \"deadline\"`.")
        .only(&["edf", "foreign"]),
    key(Plugin, "test", Word(&["necessary", "liu-layland", "hyperbolic", "exact"]), "\"exact\"")
        .default("\"exact\"")
        .means("The admission test; see below.")
        .only(&["rm"]),
    key(Plugin, "refuse_sharing", Boolean, "true")
        .default("false")
        .means(
            "Refuse a new distinct deadline or priority when every level is taken, instead of sharing one.",
        )
        .only(&["rm", "fp", "rr"]),
    key(Plugin, "levels", Word(&["each", "common"]), "\"common\"")
        .default("\"each\"")
        .means("Whether each CPU has an order of priorities of its own, or all have one; see below.")
        .only(&["fp", "rr"]),
    key(Plugin, "on_overrun", Word(&["notify", "throttle", "demote"]), "\"demote\"")
        .default("\"throttle\"")
        .means(
            "What happens to a thread that exceeds its runtime in a period: it waits at ordinary priority until \
             its next refill, it loses its policy, or it is only counted.",
        )
        .only(&["rm", "fp", "rr", "foreign"]),
    key(Plugin, "module", Text, "\"/usr/lib/talea/plugins/least_loaded.so\"")
        .default("required")
        .range("absolute path")
        .means(
            "The shared object; it runs in an unprivileged process of its own. The daemon starts \
             without it if it is not ready within a second; it then serves later.",
        )
        .only(&["foreign"]),
    key(Plugin, "argument", Text, "\"\"")
        .default("\"\"")
        .range("up to 4,096 bytes")
        .means("Argument of the module's init function.")
        .only(&["foreign"]),
    key(Plugin, "timeout", Duration, "\"50ms\"")
        .default("\"50ms\"")
        .range("\"1ms\" to \"10s\"")
        .means(
            "Maximum time of an answer; a plugin that exceeds it is taken out of service and started again. Time in \
             which other threads keep it from its CPU does not count.",
        )
        .only(&["foreign"]),
    key(Plugin, "class", Word(&["fifo", "rr", "deadline"]), "\"fifo\"")
        .default("\"fifo\"")
        .means("The kernel class of its threads. Those of the deadline class have no `priorities`.")
        .only(&["foreign"]),
    // [[rule]]
    key(Rule, "domain", Text, "\"@audio\"")
        .default("required")
        .range("user, `@group`, `#uid`, `@#gid`, or `-` for every user")
        .means("The users that the rule applies to."),
    key(Rule, "plugin", Text, "\"rm\"")
        .default("\"-\"")
        .range("a plugin's name, or `-` for any")
        .means("Plugin that the rule applies to."),
    key(Rule, "max_utilization", Decimal, "0.7")
        .default("no bound")
        .range("above 0, up to 1024, in whole CPUs")
        .means(
            "Maximum utilization of everything that the subject holds, in sum; exact. Its threads without a \
             runtime share the rest.",
        ),
    key(Rule, "max_runtime", Duration, "\"3ms\"")
        .default("no bound")
        .range("above 0")
        .means("Maximum runtime of one task."),
    key(Rule, "min_period", Duration, "\"1ms\"")
        .default("no bound")
        .range("above 0")
        .means("Shortest period of one task."),
    key(Rule, "max_period", Duration, "\"1s\"")
        .default("no bound")
        .range("above 0")
        .means("Longest period of one task."),
    key(Rule, "min_deadline", Duration, "\"1ms\"")
        .default("no bound")
        .range("above 0")
        .means("Shortest relative deadline of one task."),
    key(Rule, "max_deadline", Duration, "\"1s\"")
        .default("no bound")
        .range("above 0")
        .means("Longest relative deadline of one task."),
    key(Rule, "min_priority", Integer, "1")
        .default("no bound")
        .range("1 to 99; 100 is the deadline class")
        .means(
            "Lowest priority that one task may have: what it declares for fp and rr, what they hand out for edf \
             (100) and rm.",
        ),
    key(Rule, "max_priority", Integer, "60")
        .default("no bound")
        .range("1 to 99; 100 is the deadline class")
        .means(
            "Highest priority that one task may have: what it declares for fp and rr, what they hand out for edf \
             (100) and rm.",
        ),
    key(Rule, "ignore_adm_test", Boolean, "false")
        .default("not allowed")
        .means("Whether tasks may skip admission tests."),
    key(Rule, "allow_unbounded", Boolean, "true")
        .default("not allowed")
        .means("Whether a task that omits a bounded parameter may still be served."),
    key(Rule, "on_overrun", Word(&["notify", "throttle", "demote"]), "\"demote\"")
        .default("the plugin's")
        .means("`on_overrun` of the plugin, for these users; of several rules, the strictest."),
    key(Rule, "min_nice", Integer, "-11")
        .default("not allowed")
        .range("-20 to 19")
        .means(
            "Lowest nice value that the users' threads may get; it concerns no plugin. Of several rules, the \
             highest.",
        ),
];
