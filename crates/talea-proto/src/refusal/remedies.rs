//! Sentences that refusals and `talea doctor` share: consequence and remedy of a machine setting.

/// Consequence of RLIMIT_RTTIME.
pub const TIME_LIMIT: &str = "a FIFO or RR thread that computes this long without blocking gets \
                              SIGXCPU, then SIGKILL; deadline threads are exempt";

/// Remedy for RLIMIT_RTTIME.
pub const TIME_LIMIT_REMEDY: &str = "ulimit -R unlimited, or LimitRTTIME=infinity in the unit, or \
                                     declare a runtime so that edf serves it";

/// Consequence of a control group without real-time runtime.
pub const GROUP: &str = "FIFO and RR are refused to its threads (EPERM), also to root; \
                         SCHED_DEADLINE is not";

/// Remedy for a control group without real-time runtime.
pub const GROUP_REMEDY: &str = "give the group cpu.rt_runtime_us, or move the thread to the root \
                                group, or declare a runtime so that edf serves it";

/// Consequence of an affinity that cuts a root domain.
pub const AFFINITY: &str = "a thread that may not use its whole root domain is refused \
                            SCHED_DEADLINE (EPERM); FIFO and RR are not affected";
