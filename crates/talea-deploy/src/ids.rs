//! Identities of effects, requests, processes, threads and values.

/// Number of an effect. Numbers increase in the order of the effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EffectNumber(pub u64);

/// Number of a request; assigned by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// POSIX error number from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Unique identity of a process: a process id alone is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Start time in clock ticks since boot.
    pub start: u64,
    /// Process id in the driver's PID namespace.
    pub pid: u32,
}

/// Unique identity of a thread: a thread id alone is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId {
    /// Start time in clock ticks since boot.
    pub start: u64,
    /// Thread id in the driver's PID namespace.
    pub tid: u32,
}

/// Kind of a value of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingKind {
    /// Policy with its parameters.
    Policy,
    /// CPUs.
    Cpus,
}
