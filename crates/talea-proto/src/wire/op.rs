//! Numbers of the operations in the messages of the protocol. A number is never reused.

/// Operations that clients send.
#[allow(missing_docs, reason = "each is the variant of `Request` with its name")]
pub mod request {
    pub const HELLO: u16 = 1;
    pub const CREATE: u16 = 2;
    pub const CREATE_GROUP: u16 = 3;
    pub const CHANGE: u16 = 4;
    pub const RELEASE: u16 = 5;
    pub const ATTACH: u16 = 6;
    pub const DETACH: u16 = 7;
    pub const QUERY: u16 = 8;
    pub const CLAIM: u16 = 9;
    pub const EXPLAIN: u16 = 10;
    pub const STATUS: u16 = 11;
    pub const PLUGIN: u16 = 12;
    pub const PLUGIN_CPU: u16 = 13;
    pub const NEXT_SPEC: u16 = 14;
    pub const NEXT_SESSION: u16 = 15;
    pub const STOP: u16 = 16;
    pub const SEED: u16 = 17;
    pub const COUNTERS: u16 = 18;
    pub const ACT_FOR: u16 = 19;
    pub const NICE: u16 = 20;
}

/// Operations that the daemon sends. The highest bit is set, so that a message reflected to its
/// sender is not decoded.
#[allow(missing_docs, reason = "each is the variant of `Reply` with its name")]
pub mod reply {
    pub const WELCOME: u16 = 0x8001;
    pub const GRANTED: u16 = 0x8002;
    pub const GRANTED_GROUP: u16 = 0x8003;
    pub const DONE: u16 = 0x8004;
    pub const REFUSED: u16 = 0x8005;
    pub const SPEC: u16 = 0x8006;
    pub const EXPLAINED: u16 = 0x8007;
    pub const STATUS: u16 = 0x8008;
    pub const PLUGIN: u16 = 0x8009;
    pub const PLUGIN_CPU: u16 = 0x800a;
    pub const SESSION: u16 = 0x800b;
    pub const END: u16 = 0x800c;
    pub const DONE_WITH_CAVEAT: u16 = 0x800d;
    pub const COUNTERS: u16 = 0x800e;
}
