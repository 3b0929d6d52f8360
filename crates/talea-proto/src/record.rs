//! Persistent record of a grant: one fixed-size record for each grant, in the state file.
//!
//! A record contains the thread id, start time, pidfd inode and previous attributes of the attached
//! thread. The daemon writes the record before it executes the recorded operation. After a crash,
//! the recovery may therefore undo more than was done, never less.

use crate::message::{Name, SpecId, Task, Token};
use crate::wire::{AttrWire, TaskWire};
use talea_core::{Attr, Charge, Span, Work};
use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Record of an accepted spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Identifier of the spec.
    pub spec: SpecId,
    /// Secret required for claims.
    pub token: Token,
    /// User that created the spec.
    pub uid: u32,
    /// Process that created or last claimed the spec.
    pub pid: u32,
    /// Start time of that process, in clock ticks since boot; 0 when unknown.
    pub pid_start: u64,
    /// The request.
    pub task: Task,
    /// Name of the plugin that serves the spec.
    pub plugin: Name,
    /// CPU of the placement; `None` for all CPUs of the plugin.
    pub cpu: Option<u32>,
    /// Accepted runtime Q^a; `None` if the task declares no runtime.
    pub runtime: Option<Work>,
    /// Charge of the spec.
    pub charge: Charge,
    /// Kernel priority that a foreign plugin assigned; otherwise 0.
    pub priority: u8,
    /// Deadline and period that a foreign plugin chose; `None` for those of the task.
    pub terms: Option<DeadlineTerms>,
    /// Attached thread.
    pub thread: Option<RecordThread>,
    /// Whether a front end made the request for the user.
    pub is_from_front_end: bool,
}

/// Parameters of the deadline class beside the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineTerms {
    /// Deadline, relative to an activation.
    pub deadline: Span,
    /// Period.
    pub period: Span,
}

/// Thread of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordThread {
    /// Id of the thread's process in the daemon's PID namespace.
    pub tid: u32,
    /// Process of the thread.
    pub tgid: u32,
    /// Start time of the thread in clock ticks since boot; 0 if the inode identifies the thread.
    pub start: u64,
    /// Inode of the thread's pidfd, unique for this boot; 0 if the kernel has no unique inodes.
    pub inode: u64,
    /// Attributes before the grant, restored at its end.
    pub previous: Attr,
    /// Attributes applied under the grant.
    pub applied: Attr,
}

/// Size of an encoded record, in bytes.
pub const RECORD_SIZE: usize = 704;

/// Size of the part that every record has, in bytes.
const HEAD_SIZE: usize = 320;

/// Number of the record layout; a daemon that does not know it ignores the record.
const FORMAT: u32 = 1;

const HAS_CPU: u32 = 1;
const HAS_RUNTIME: u32 = 1 << 1;
const HAS_THREAD: u32 = 1 << 2;
const HAS_TERMS: u32 = 1 << 3;
const IS_FROM_FRONT_END: u32 = 1 << 4;
const FLAGS: u32 = (1 << 5) - 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RecordWire {
    head: HeadWire,
    thread: ThreadWire,
    deadline_ns: U64,
    period_ns: U64,
    zero: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HeadWire {
    format: U32,
    flags: U32,
    spec: U64,
    token: [u8; 16],
    uid: U32,
    pid: U32,
    pid_start: U64,
    charge: U128,
    runtime_ns: U64,
    cpu: U32,
    priority: U32,
    plugin: [u8; 32],
    task: TaskWire,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ThreadWire {
    tid: U32,
    tgid: U32,
    start: U64,
    inode: U64,
    previous: AttrWire,
    applied: AttrWire,
}

const _: () = assert!(size_of::<ThreadWire>() == 360);
const _: () = assert!(size_of::<RecordWire>() == RECORD_SIZE);
const _: () = assert!(core::mem::offset_of!(HeadWire, task) == 112);
const _: () = assert!(core::mem::offset_of!(RecordWire, thread) == HEAD_SIZE);

impl Record {
    /// Returns the record as bytes; every byte is initialised.
    pub fn encode(&self) -> [u8; RECORD_SIZE] {
        let mut bytes = [0; RECORD_SIZE];
        self.encode_to(&mut bytes);
        bytes
    }

    /// Writes the significant bytes to the front of `buffer` and returns their number. All
    /// following bytes of a record are zero and need not be stored.
    pub fn encode_to(&self, buffer: &mut [u8]) -> usize {
        let (wire, _) =
            RecordWire::mut_from_prefix(buffer).expect("the buffer is shorter than RECORD_SIZE");
        let bit = |is: bool, bit: u32| if is { bit } else { 0 };
        let flags = bit(self.cpu.is_some(), HAS_CPU)
            | bit(self.runtime.is_some(), HAS_RUNTIME)
            | bit(self.thread.is_some(), HAS_THREAD)
            | bit(self.terms.is_some(), HAS_TERMS)
            | bit(self.is_from_front_end, IS_FROM_FRONT_END);
        wire.head = HeadWire {
            format: U32::new(FORMAT),
            flags: U32::new(flags),
            spec: U64::new(self.spec.0),
            token: self.token.0,
            uid: U32::new(self.uid),
            pid: U32::new(self.pid),
            pid_start: U64::new(self.pid_start),
            charge: U128::new(self.charge.bits()),
            runtime_ns: U64::new(self.runtime.map_or(0, Work::as_ns)),
            cpu: U32::new(self.cpu.unwrap_or(0)),
            priority: U32::new(u32::from(self.priority)),
            plugin: self.plugin.0,
            task: TaskWire::new(&self.task),
        };
        if self.thread.is_none() && self.terms.is_none() {
            return HEAD_SIZE;
        }
        wire.thread = self.thread.as_ref().map_or_else(ThreadWire::new_zeroed, ThreadWire::new);
        let terms = |of: fn(&DeadlineTerms) -> Span| {
            U64::new(self.terms.as_ref().map_or(0, |t| of(t).as_ns()))
        };
        (wire.deadline_ns, wire.period_ns) = (terms(|t| t.deadline), terms(|t| t.period));
        wire.zero = U64::ZERO;
        RECORD_SIZE
    }

    /// Decodes a record from all its bytes or from the significant ones ([`Record::encode_to`]);
    /// `None` for any input that [`Record::encode`] does not produce.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let mut whole = [0; RECORD_SIZE];
        whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let wire = RecordWire::ref_from_bytes(&whole[..]).ok()?;
        let head = &wire.head;
        let flags = head.flags.get();
        if head.format.get() != FORMAT || flags & !FLAGS != 0 {
            return None;
        }
        let has = |bit: u32| flags & bit != 0;
        let record = Record {
            spec: SpecId(head.spec.get()),
            token: Token(head.token),
            uid: head.uid.get(),
            pid: head.pid.get(),
            pid_start: head.pid_start.get(),
            task: head.task.decode()?,
            plugin: Name(head.plugin),
            cpu: has(HAS_CPU).then(|| head.cpu.get()),
            runtime: has(HAS_RUNTIME).then(|| Work::from_ns(head.runtime_ns.get())),
            charge: Charge::from_bits(head.charge.get()),
            priority: u8::try_from(head.priority.get()).ok()?,
            terms: has(HAS_TERMS).then(|| DeadlineTerms {
                deadline: Span::from_ns(wire.deadline_ns.get()),
                period: Span::from_ns(wire.period_ns.get()),
            }),
            thread: if has(HAS_THREAD) { Some(wire.thread.decode()?) } else { None },
            is_from_front_end: has(IS_FROM_FRONT_END),
        };
        // Parameters that are not declared must be zero, and names must be valid.
        let text = head
            .plugin
            .split(|&byte| byte == 0)
            .next()
            .and_then(|text| str::from_utf8(text).ok())?;
        let mut again = [0; RECORD_SIZE];
        let kept = [record.encode_to(&mut again), RECORD_SIZE].contains(&bytes.len());
        (kept && Name::new(text) == Some(record.plugin) && again == whole).then_some(record)
    }
}

impl ThreadWire {
    fn new(thread: &RecordThread) -> ThreadWire {
        ThreadWire {
            tid: U32::new(thread.tid),
            tgid: U32::new(thread.tgid),
            start: U64::new(thread.start),
            inode: U64::new(thread.inode),
            previous: AttrWire::new(&thread.previous),
            applied: AttrWire::new(&thread.applied),
        }
    }

    fn decode(&self) -> Option<RecordThread> {
        Some(RecordThread {
            tid: self.tid.get(),
            tgid: self.tgid.get(),
            start: self.start.get(),
            inode: self.inode.get(),
            previous: self.previous.decode()?,
            applied: self.applied.decode()?,
        })
    }
}
