//! Configuration by an administrator: the daemon, its plugins, its access rules.
//!
//! The module is plain data. `talea-config` reads it from a file and reports errors with positions.
//! `talea-broker` applies it. ReTiF (JSA 2021), sections 3.5 (plugins) and 4 (rules).

use crate::{Charge, CpuSet, Priority, Span, Work};
use alloc::string::String;
use alloc::vec::Vec;

/// The complete configuration of the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Plugins in order of precedence. The first plugin that can serve a request fully gets it
    /// (ReTiF 3.3, 3.5).
    pub plugins: Vec<PluginSetup>,
    /// Rules in file order. The index of a rule is its [`RuleId`] in refusals.
    pub rules: Vec<Rule>,
    /// Whether access rules are in force.
    pub access: Access,
    /// Whether rules apply to the superuser.
    pub root: Root,
    /// Groups of a client that count in rules.
    pub groups: Groups,
    /// Limits of the sessions, specs and requests of one user.
    pub quota: Quota,
    /// Users whose connections may act for other users, in increasing order.
    pub front_ends: Vec<u32>,
    /// Ranges of subordinate users, charged to their owners. They come from the machine
    /// (`subuid(5)`), not from the configuration file.
    pub subordinate_users: Vec<SubordinateUsers>,
}

/// Range of subordinate users: user ids that its owner may take in user namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubordinateUsers {
    /// Owner of the range.
    pub owner: u32,
    /// First user id.
    pub first: u32,
    /// Number of user ids.
    pub count: u32,
}

/// Whether access rules are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The broker refuses a request without a matching rule (ReTiF 4.1, requirement 1).
    #[default]
    Rules,
    /// Every user may request everything. The administrator must write this explicitly.
    Off,
}

/// Treatment of the superuser by the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Root {
    /// The superuser passes every rule (ReTiF 4.1, requirement 3).
    #[default]
    Unrestricted,
    /// The superuser needs rules like any other user.
    Ruled,
}

/// Groups of a client that decide about its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Groups {
    /// Effective and supplementary groups.
    #[default]
    All,
    /// Only the effective group (ReTiF 4.3, literally).
    Effective,
}

/// Limits of the sessions, specs and requests of one user. The totals bound the daemon itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Simultaneous connections of one user.
    pub sessions_per_user: u32,
    /// Simultaneous connections in total.
    pub sessions: u32,
    /// Simultaneous connections of all users together that no rule serves.
    pub sessions_without_rule: u32,
    /// Granted specs of one user.
    pub specs_per_user: u32,
    /// Granted specs in total.
    pub specs: u32,
    /// Priority levels of a plugin with `refuse_sharing` that one user may occupy. The superuser is
    /// exempt.
    pub levels_per_user: u32,
    /// Sustained requests per second of one user. The superuser is exempt. A request for a group of
    /// tasks counts once for each task.
    pub requests_per_second: u32,
    /// Requests that a user may send in a burst before the rate applies.
    pub burst: u32,
}

impl Default for Quota {
    fn default() -> Quota {
        Quota {
            sessions_per_user: 128,
            sessions: 1024,
            sessions_without_rule: 64,
            specs_per_user: 1024,
            specs: 32_768,
            levels_per_user: 99,
            requests_per_second: 10_000,
            burst: 2_000,
        }
    }
}

/// One `[[plugin]]` entry of the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSetup {
    /// Name in requests and rules; unique, at most [`PLUGIN_NAME_MAX`] bytes.
    pub name: String,
    /// CPUs on which the plugin may place tasks.
    pub cpus: CpuSet,
    /// Lowest and highest kernel priority that the plugin may assign (its band); `None` for the
    /// deadline class.
    pub band: Option<Band>,
    /// Algorithm, with its options.
    pub kind: PluginKind,
    /// Reaction to a thread that exceeds its budget. A rule may replace it.
    pub on_overrun: OnOverrun,
}

/// Reaction to a FIFO or RR thread that exceeds its budget, from the mildest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnOverrun {
    /// The daemon counts and reports the overrun, and does not enforce the budget.
    Notify,
    /// The thread waits at ordinary priority until its budget is refilled.
    #[default]
    Throttle,
    /// The daemon restores the thread, and the spec stays without a thread.
    Demote,
}

impl OnOverrun {
    /// All reactions.
    pub const ALL: [OnOverrun; 3] = [OnOverrun::Notify, OnOverrun::Throttle, OnOverrun::Demote];

    /// Returns the keyword in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            OnOverrun::Notify => "notify",
            OnOverrun::Throttle => "throttle",
            OnOverrun::Demote => "demote",
        }
    }
}

/// Maximum number of plugins of one daemon.
pub const PLUGINS_MAX: usize = 32;

/// Maximum length of a plugin name in bytes (ReTiF's `PLUGIN_MAX_NAME` without its terminator).
pub const PLUGIN_NAME_MAX: usize = 31;

/// An inclusive range of kernel real-time priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// The least urgent member.
    pub low: Priority,
    /// The most urgent member.
    pub high: Priority,
}

impl Band {
    /// Returns the number of levels: R in ReTiF Eq. 6.
    pub fn levels(&self) -> usize {
        usize::from(self.high.0 - self.low.0) + 1
    }
}

/// Algorithms of the plugins.
///
/// The list is closed: the compiler reports every place that must handle a new variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginKind {
    /// Partitioned EDF on `SCHED_DEADLINE` (ReTiF 5.1).
    Edf(EdfOptions),
    /// Rate monotonic (deadline monotonic when D < T) on `SCHED_FIFO` (ReTiF 5.2).
    Rm(RmOptions),
    /// Fixed priority on `SCHED_FIFO` (ReTiF 5.3).
    Fp(FpOptions),
    /// Round robin on `SCHED_RR` (ReTiF 5.3).
    Rr(FpOptions),
    /// A shared object that runs in a plugin host (ReTiF 3.4).
    Foreign(ForeignOptions),
}

impl PluginKind {
    /// Returns the use of the kernel's root domains; `None` for fixed priorities.
    pub fn confine(&self) -> Option<Confine> {
        match self {
            PluginKind::Edf(options) => Some(options.confine),
            PluginKind::Foreign(options) if options.class == ForeignClass::Deadline => {
                Some(options.confine)
            }
            _ => None,
        }
    }

    /// Whether the plugin's threads have the deadline class, and so no priorities.
    pub fn is_deadline(&self) -> bool {
        self.confine().is_some()
    }

    /// Returns the keyword in configuration files.
    pub fn name(&self) -> &'static str {
        match self {
            PluginKind::Edf(_) => "edf",
            PluginKind::Rm(_) => "rm",
            PluginKind::Fp(_) => "fp",
            PluginKind::Rr(_) => "rr",
            PluginKind::Foreign(_) => "foreign",
        }
    }
}

/// Options of `edf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdfOptions {
    /// U^thr of ReTiF Eq. 3, for each CPU. `None` means the largest share that the kernel admits.
    pub threshold: Option<Charge>,
    /// Method that confines tasks to one CPU.
    pub confine: Confine,
}

/// Use of the kernel's root domains by `edf`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confine {
    /// CPUs that already are root domains of their own. Otherwise tasks are unpinned, with a global
    /// test.
    #[default]
    Auto,
    /// Only CPUs that the daemon makes root domains of their own. On cgroup v1, this disables load
    /// balancing for all processes.
    Partition,
    /// Tasks on `SCHED_DEADLINE` are unpinned, with a global EDF test over the whole root domain.
    Global,
}

/// Options of `rm`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RmOptions {
    /// The admission test.
    pub test: RmTest,
    /// Whether the plugin refuses a new distinct deadline if every level is occupied. Otherwise the
    /// deadline shares a level.
    pub refuse_sharing: bool,
}

/// Admission tests of `rm`. The first test gives no guarantee. The others follow from the most to
/// the least pessimistic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RmTest {
    /// U ≤ 1 (ReTiF 5.2): refuses only impossible sets.
    Necessary,
    /// U ≤ n(2^(1/n) − 1). Liu and Layland, J. ACM 20(1), 1973, theorem 5.
    LiuLayland,
    /// Π(U_i + 1) ≤ 2. Bini, Buttazzo and Buttazzo, IEEE Trans. Computers 52(7), 2003, theorem 1.
    Hyperbolic,
    /// Response times: the last task of every level meets the level's shortest deadline.
    ///
    /// Joseph and Pandya, The Computer Journal 29(5), 1986. A set that the hyperbolic bound accepts
    /// needs no response times.
    #[default]
    Exact,
}

/// Options of `fp` and `rr`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FpOptions {
    /// Whether the plugin refuses a new distinct priority if every level is occupied (the option
    /// announced in ReTiF 5.3).
    pub refuse_sharing: bool,
    /// Set of CPUs over which priorities are ordered.
    pub levels: FpLevels,
}

/// Set of CPUs over which `fp` and `rr` map requested priorities to kernel priorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FpLevels {
    /// Each CPU has an order of its own with all levels of the band. Priority 50 on one CPU is
    /// unrelated to priority 50 on another.
    #[default]
    Each,
    /// One order applies to all CPUs: equal priorities have equal levels on every CPU, and a larger
    /// priority has a higher level.
    ///
    /// The value is intended for applications that migrate their threads.
    Common,
}

/// Options of a foreign plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignOptions {
    /// Absolute path of the shared object.
    pub module: String,
    /// Argument of the plugin's init function, passed unchanged.
    pub argument: String,
    /// Maximum time for a reply.
    pub timeout: Span,
    /// Kernel scheduling class of the threads that the plugin serves.
    pub class: ForeignClass,
    /// Use of the kernel's root domains in the deadline class.
    pub confine: Confine,
}

/// Kernel scheduling classes that a foreign plugin may assign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignClass {
    /// `SCHED_FIFO`.
    #[default]
    Fifo,
    /// `SCHED_RR`.
    Rr,
    /// `SCHED_DEADLINE`, with parameters that the plugin chooses.
    Deadline,
}

/// Subjects of a rule. Names are resolved to ids when the file is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// All users: `-`.
    Global,
    /// One effective user id.
    User(u32),
    /// One group id: `@name`.
    Group(u32),
}

/// Access rule: a subject (domain and plugin) and its permission (ReTiF 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Users or groups that the rule applies to.
    pub domain: Domain,
    /// Index into [`Setup::plugins`]; `None` is `-`, any plugin.
    pub plugin: Option<usize>,
    /// Bound of the rule. A file entry with several bounds becomes several rules.
    pub bound: Bound,
    /// Source position for refusals, such as `talead.toml:12`.
    pub origin: String,
}

/// Position of a rule in [`Setup::rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

/// Access control properties of ReTiF Table 5, and `allow_unbounded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `max_utilization`: limit of the total over all grants of the subject.
    MaxUtilization(Charge),
    /// `max_runtime`: largest runtime.
    MaxRuntime(Work),
    /// `min_period`: shortest period.
    MinPeriod(Span),
    /// `max_period`: longest period.
    MaxPeriod(Span),
    /// `min_deadline`: shortest relative deadline.
    MinDeadline(Span),
    /// `max_deadline`: longest relative deadline.
    MaxDeadline(Span),
    /// `min_priority`: lowest priority. [`DEADLINE_CLASS`] represents the deadline class.
    MinPriority(Priority),
    /// `max_priority`: highest priority. [`DEADLINE_CLASS`] represents the deadline class.
    MaxPriority(Priority),
    /// `ignore_adm_test`: whether the subject may skip admission tests.
    IgnoreAdmission(bool),
    /// `allow_unbounded`: whether a plugin may serve a task that omits a bounded parameter (R22).
    AllowUnbounded(bool),
    /// `on_overrun`: reaction to an overrun, in place of the plugin's reaction. Of several rules,
    /// the strictest applies.
    OnOverrun(OnOverrun),
    /// `min_nice`: lowest nice value that a thread may get. No plugin is concerned, and the bound
    /// allows nothing else.
    MinNice(i8),
}

/// Priority that represents the deadline class in rules, as in ReTiF's files (`EDF.so 100-100`, and
/// 1 to 100 in Table 5).
pub const DEADLINE_CLASS: u8 = 100;

impl Bound {
    /// Returns the property's key in files.
    pub fn key(&self) -> &'static str {
        match self {
            Bound::MaxUtilization(_) => "max_utilization",
            Bound::MaxRuntime(_) => "max_runtime",
            Bound::MinPeriod(_) => "min_period",
            Bound::MaxPeriod(_) => "max_period",
            Bound::MinDeadline(_) => "min_deadline",
            Bound::MaxDeadline(_) => "max_deadline",
            Bound::MinPriority(_) => "min_priority",
            Bound::MaxPriority(_) => "max_priority",
            Bound::IgnoreAdmission(_) => "ignore_adm_test",
            Bound::AllowUnbounded(_) => "allow_unbounded",
            Bound::OnOverrun(_) => "on_overrun",
            Bound::MinNice(_) => "min_nice",
        }
    }
}
