//! What an administrator sets up: the daemon, its plugins, its access rules.
//!
//! Plain data. `talea-system` reads it from a file and checks it with positions; `talea-broker`
//! decides by it. ReTiF (JSA 2021) sections 3.5 (plugins) and 4 (rules).

use crate::{Charge, CpuSet, Priority, Span, Work};
use alloc::string::String;
use alloc::vec::Vec;

/// Everything that the broker must know from the administrator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// In order of precedence: the first that can serve a request fully gets it (ReTiF 3.3, 3.5).
    pub plugins: Vec<PluginSetup>,
    /// In file order; a rule's index is its [`RuleId`] in refusals.
    pub rules: Vec<Rule>,
    /// Whether rules are asked at all.
    pub access: Access,
    /// Whether rules bind root.
    pub root: Root,
    /// Which groups of a client count.
    pub groups: Groups,
    /// What one user may hold and ask.
    pub quota: Quota,
}

/// Whether access rules are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// No rule, no service (ReTiF 4.1, requirement 1).
    #[default]
    Rules,
    /// Everybody may ask for everything; must be written out by the administrator.
    Off,
}

/// How root is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Root {
    /// Root passes every rule (ReTiF 4.1, requirement 3).
    #[default]
    Unrestricted,
    /// Root needs rules like anybody else.
    Ruled,
}

/// Which groups decide about a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Groups {
    /// Effective and supplementary groups.
    #[default]
    All,
    /// Only the effective group, as ReTiF 4.3 reads.
    Effective,
}

/// Bounds on what one user may hold and ask; the daemon itself is bounded by the totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Connections of one user at a time.
    pub sessions_per_user: u32,
    /// Connections in all.
    pub sessions: u32,
    /// Accepted task specifications of one user.
    pub specs_per_user: u32,
    /// Accepted task specifications in all.
    pub specs: u32,
    /// Sustained requests a second of one user, a group counting as many as it has tasks; root is
    /// exempt.
    pub requests_per_second: u32,
    /// Requests that a user may send at once before the rate holds.
    pub burst: u32,
}

impl Default for Quota {
    fn default() -> Quota {
        Quota {
            sessions_per_user: 128,
            sessions: 1024,
            specs_per_user: 1024,
            specs: 32_768,
            requests_per_second: 10_000,
            burst: 2_000,
        }
    }
}

/// One `[[plugin]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSetup {
    /// The name that requests and rules use; unique, at most [`PLUGIN_NAME_MAX`] bytes.
    pub name: String,
    /// Where the plugin may place tasks.
    pub cpus: CpuSet,
    /// Lowest and highest kernel priority that the plugin may hand out (its band); `None` for
    /// `edf`.
    pub band: Option<Band>,
    /// Which algorithm, with its options.
    pub kind: PluginKind,
}

/// Most plugins that one daemon loads.
pub const PLUGINS_MAX: usize = 32;

/// Longest plugin name in bytes (ReTiF's `PLUGIN_MAX_NAME` less its terminator).
pub const PLUGIN_NAME_MAX: usize = 31;

/// An inclusive range of kernel real-time priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// Least urgent member.
    pub low: Priority,
    /// Most urgent member.
    pub high: Priority,
}

impl Band {
    /// How many levels there are: R in ReTiF Eq. 6.
    pub fn levels(&self) -> usize {
        usize::from(self.high.0 - self.low.0) + 1
    }
}

/// The plugins that Talea has. The closed list: add a variant and the compiler names what must
/// learn about it.
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
    /// A shared object in a process of its own (ReTiF 3.4).
    Foreign(ForeignOptions),
}

impl PluginKind {
    /// The word that files use for it.
    pub fn word(&self) -> &'static str {
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
    /// U^thr of ReTiF Eq. 3, per CPU; `None` means the largest share that the kernel itself admits.
    pub threshold: Option<Charge>,
    /// How tasks are confined to one CPU.
    pub confine: Confine,
}

/// How `edf` meets the kernel's root domains (design, section 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confine {
    /// On CPUs that are root domains of their own already; else unpinned with a global test.
    #[default]
    Auto,
    /// On such CPUs only, which the daemon makes of them: on cgroup v1, where that switches load
    /// balancing off for everyone.
    Partition,
    /// Unpinned `SCHED_DEADLINE` with a global EDF test over the whole root domain.
    Global,
}

/// Options of `rm`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RmOptions {
    /// The admission test.
    pub test: RmTest,
    /// Refuse a new distinct deadline when every level is taken, instead of sharing a level.
    pub refuse_sharing: bool,
}

/// Admission tests of `rm`: what promises nothing first, then those that prove, in order of how
/// much they accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RmTest {
    /// U ≤ 1 (ReTiF 5.2): refuses only what can't work.
    Necessary,
    /// U ≤ n(2^(1/n) − 1). Liu and Layland, J. ACM 20(1), 1973, theorem 5.
    LiuLayland,
    /// Π(U_i + 1) ≤ 2. Bini, Buttazzo and Buttazzo, IEEE Trans. Computers 52(7), 2003, theorem 1.
    Hyperbolic,
    /// Response times: every level's last task within the level's shortest deadline. Joseph and
    /// Pandya, The Computer Journal 29(5), 1986. The hyperbolic bound decides first, where it says
    /// yes.
    #[default]
    Exact,
}

/// Options of `fp` and `rr`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FpOptions {
    /// Refuse a new distinct priority when every level is taken (the option that ReTiF 5.3
    /// announces).
    pub refuse_sharing: bool,
    /// Over which CPUs priorities are ordered.
    pub levels: FpLevels,
}

/// Over which CPUs `fp` and `rr` turn requested priorities into those of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FpLevels {
    /// Each CPU has an order of its own: what priority 50 is on one says nothing of another, and
    /// each has all levels of the band.
    #[default]
    Each,
    /// One order for all of them: equal priorities have the same level wherever they are, and a
    /// larger one a higher level. For applications that move their threads.
    Common,
}

/// Options of a foreign plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignOptions {
    /// The shared object, an absolute path.
    pub module: String,
    /// Passed to the plugin's init as it stands.
    pub argument: String,
    /// How long an answer may take.
    pub timeout: Span,
    /// The kernel class its threads get.
    pub class: ForeignClass,
}

/// The kernel classes that a foreign plugin may hand out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignClass {
    /// `SCHED_FIFO`.
    #[default]
    Fifo,
    /// `SCHED_RR`.
    Rr,
}

/// Whom a rule speaks about; names are resolved to ids when the file is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// Everybody: `-`.
    Global,
    /// One effective user id.
    User(u32),
    /// One group id: `@name`.
    Group(u32),
}

/// One access rule: subject (domain and plugin) and what it is allowed (ReTiF 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whom it speaks about.
    pub domain: Domain,
    /// Index into [`Setup::plugins`]; `None` is `-`, any plugin.
    pub plugin: Option<usize>,
    /// One bound; a file entry with several becomes several rules.
    pub bound: Bound,
    /// Where it was written, for refusals: `talead.toml:12`.
    pub origin: String,
}

/// The position of a rule in [`Setup::rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

/// The access control properties of ReTiF Table 5, and `allow_unbounded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `max_utilization`: aggregate over everything that the subject holds.
    MaxUtilization(Charge),
    /// `max_runtime`.
    MaxRuntime(Work),
    /// `min_period`.
    MinPeriod(Span),
    /// `max_period`.
    MaxPeriod(Span),
    /// `min_deadline`.
    MinDeadline(Span),
    /// `max_deadline`.
    MaxDeadline(Span),
    /// `min_priority`; [`DEADLINE_CLASS`] stands for the deadline class.
    MinPriority(Priority),
    /// `max_priority`; [`DEADLINE_CLASS`] stands for the deadline class.
    MaxPriority(Priority),
    /// `ignore_adm_test`: may the subject skip admission tests.
    IgnoreAdmission(bool),
    /// `allow_unbounded`: a task that omits a bounded parameter may still be served (checklist
    /// R22).
    AllowUnbounded(bool),
}

/// The deadline class in the numbers of rules, as in ReTiF's files (`EDF.so 100-100`, and 1 to 100
/// in Table 5).
pub const DEADLINE_CLASS: u8 = 100;

impl Bound {
    /// The property's key in files.
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
        }
    }
}
