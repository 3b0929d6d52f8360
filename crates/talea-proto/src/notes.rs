//! Remarks of the daemon about a grant.

/// Remarks for the holder of a grant. A set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes(pub u32);

impl Notes {
    /// No schedulability test proves the deadlines of this task. Its plugin has no such test, a
    /// runtime is missing (its own or that of another task on the CPU), or a failed test was
    /// ignored.
    pub const NOT_PROVED: Notes = Notes(1);
    /// The test failed and was ignored on request.
    pub const ADMISSION_IGNORED: Notes = Notes(1 << 1);
    /// The accepted runtime is below the desired runtime.
    pub const BELOW_DESIRED: Notes = Notes(1 << 2);
    /// Other periods or priorities share this task's kernel priority.
    pub const LEVEL_SHARED: Notes = Notes(1 << 3);
    /// The plugin serves the task partially (a recommended parameter is missing).
    pub const PARTIAL: Notes = Notes(1 << 4);
    /// The task was not placed on its preferred CPUs.
    pub const PREFERRED_CPUS_IGNORED: Notes = Notes(1 << 5);
    /// The budget is not enforced: an overrun takes CPU time from lower priorities.
    pub const BUDGET_NOT_ENFORCED: Notes = Notes(1 << 6);
    /// The order of this task's kernel priority spans all CPUs of the plugin, not only the task's
    /// CPU.
    pub const COMMON_LEVELS: Notes = Notes(1 << 7);
    /// Real-time threads without a grant may have a higher kernel priority than this task on its
    /// CPU.
    pub const UNGRANTED_ABOVE: Notes = Notes(1 << 8);
    /// The thread may consume any CPU time: no runtime and period are declared, and no rule limits
    /// it.
    pub const UNLIMITED: Notes = Notes(1 << 9);
    /// The thread becomes real-time at its next wake-up (`Caveat::PendingWakeup`).
    pub const PENDING_WAKEUP: Notes = Notes(1 << 10);
    /// A front end made the request for the user, such as that of RealtimeKit on D-Bus.
    pub const FRONT_END: Notes = Notes(1 << 11);

    /// Whether every bit of `other` is set.
    pub fn contains(self, other: Notes) -> bool {
        self.0 & other.0 == other.0
    }

    /// Every note with the name that programs can rely on.
    pub const STABLE_NAMES: [(Notes, &'static str); 12] = [
        (Notes::NOT_PROVED, "not-proved"),
        (Notes::ADMISSION_IGNORED, "admission-ignored"),
        (Notes::BELOW_DESIRED, "below-desired"),
        (Notes::LEVEL_SHARED, "level-shared"),
        (Notes::PARTIAL, "partial"),
        (Notes::PREFERRED_CPUS_IGNORED, "preferred-cpus-ignored"),
        (Notes::BUDGET_NOT_ENFORCED, "budget-not-enforced"),
        (Notes::COMMON_LEVELS, "common-levels"),
        (Notes::UNGRANTED_ABOVE, "ungranted-above"),
        (Notes::UNLIMITED, "unlimited"),
        (Notes::PENDING_WAKEUP, "pending-wakeup"),
        (Notes::FRONT_END, "front-end"),
    ];

    /// Returns the names of the bits that are set.
    pub fn stable_names(self) -> impl Iterator<Item = &'static str> {
        Notes::STABLE_NAMES
            .into_iter()
            .filter(move |(note, _)| self.contains(*note))
            .map(|(_, word)| word)
    }

    /// Returns the set without the bits of `other`.
    #[must_use]
    pub fn without(self, other: Notes) -> Notes {
        Notes(self.0 & !other.0)
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn with(self, other: Notes) -> Notes {
        Notes(self.0 | other.0)
    }
}
