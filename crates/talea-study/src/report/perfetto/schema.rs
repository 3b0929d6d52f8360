//! Numbers of Perfetto's published schema (`perfetto_trace.proto`), as far as the traces use it.
//!
//! One module per message. `tests/it/perfetto/subset.proto` has the same numbers from another
//! source, and a test decodes traces with it.

pub(super) mod trace {
    pub(crate) const PACKET: u32 = 1;
}

pub(super) mod packet {
    pub(crate) const CLOCK_SNAPSHOT: u32 = 6;
    pub(crate) const TIMESTAMP: u32 = 8;
    pub(crate) const SEQUENCE: u32 = 10;
    pub(crate) const TRACK_EVENT: u32 = 11;
    pub(crate) const INTERNED_DATA: u32 = 12;
    pub(crate) const SEQUENCE_FLAGS: u32 = 13;
    pub(crate) const DEFAULTS: u32 = 59;
    pub(crate) const TRACK_DESCRIPTOR: u32 = 60;
    /// Flag: the sequence begins, so earlier interned names are void.
    pub(crate) const STATE_CLEARED: u64 = 1;
    /// Flag: the packet refers to interned names.
    pub(crate) const NEEDS_STATE: u64 = 2;
}

pub(super) mod defaults {
    pub(crate) const CLOCK: u32 = 58;
}

pub(super) mod clock {
    /// Number of the field with the clocks of a snapshot.
    pub(crate) const CLOCKS: u32 = 1;
    pub(crate) const PRIMARY: u32 = 2;
    /// Number of the field with the id of a clock.
    pub(crate) const ID: u32 = 1;
    pub(crate) const TIMESTAMP: u32 = 2;
    pub(crate) const MONOTONIC: u64 = 3;
}

pub(super) mod track {
    pub(crate) const UUID: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    pub(crate) const PROCESS: u32 = 3;
    pub(crate) const PARENT: u32 = 5;
    pub(crate) const COUNTER: u32 = 8;
    pub(crate) const CHILD_ORDERING: u32 = 11;
    pub(crate) const RANK: u32 = 12;
    /// Ordering: children are ordered by their ranks.
    pub(crate) const EXPLICIT: u64 = 3;
    pub(crate) const PROCESS_PID: u32 = 1;
    pub(crate) const PROCESS_NAME: u32 = 6;
    pub(crate) const COUNTER_UNIT: u32 = 3;
    pub(crate) const NANOSECONDS: u64 = 1;
}

pub(super) mod event {
    pub(crate) const CATEGORY: u32 = 3;
    pub(crate) const ANNOTATION: u32 = 4;
    pub(crate) const TYPE: u32 = 9;
    pub(crate) const NAME: u32 = 10;
    pub(crate) const TRACK: u32 = 11;
    pub(crate) const COUNTER_VALUE: u32 = 30;
    pub(crate) const BEGIN: u64 = 1;
    pub(crate) const END: u64 = 2;
    pub(crate) const INSTANT: u64 = 3;
    pub(crate) const COUNTER: u64 = 4;
}

pub(super) mod annotation {
    pub(crate) const NAME: u32 = 1;
    pub(crate) const NUMBER: u32 = 3;
}

pub(super) mod interned {
    pub(crate) const CATEGORIES: u32 = 1;
    pub(crate) const NAMES: u32 = 2;
    pub(crate) const ANNOTATIONS: u32 = 3;
    pub(crate) const IID: u32 = 1;
    pub(crate) const TEXT: u32 = 2;
}
