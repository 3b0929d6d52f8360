//! What survives the daemon: one fixed-size record a grant, in the state file.
//!
//! Design, section 9: boot id, tid, start time, pidfd inode and previous attributes. A record is
//! written before what it promises is done, so that whoever reads it after a crash can undo more
//! than was done, never less.

use crate::message::{Name, SpecId, Task, Token};
use crate::wire::{AttrWire, TaskWire};
use talea_core::{Attr, Charge, Work};
use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One accepted spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub spec: SpecId,
    /// Proof for claims.
    pub token: Token,
    /// User that created it.
    pub uid: u32,
    /// Process that created it.
    pub pid: u32,
    /// Start time of that process, in clock ticks since boot; 0 when unknown.
    pub pid_start: u64,
    /// What was asked.
    pub task: Task,
    /// The name of the plugin that serves it.
    pub plugin: Name,
    /// Where it is placed.
    pub cpu: Option<u32>,
    /// Q^a.
    pub runtime: Option<Work>,
    /// What it costs.
    pub charge: Charge,
    /// The kernel priority, for a foreign plugin's spec.
    pub priority: u8,
    /// The attached thread.
    pub thread: Option<RecordThread>,
}

/// The thread of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordThread {
    /// Its id in the daemon's PID namespace.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// Its start time in clock ticks since boot; 0 where the inode tells.
    pub start: u64,
    /// Its pidfd's inode, which no other thread of this boot has; 0 when the kernel gives none.
    pub inode: u64,
    /// What it was before and shall be again.
    pub previous: Attr,
    /// What it has been given.
    pub given: Attr,
}

/// Bytes of an encoded record.
pub const RECORD_SIZE: usize = 704;

/// The part of them that every record has.
const HEAD_SIZE: usize = 320;

/// The layout's number; a daemon that does not know it leaves the record alone.
const FORMAT: u32 = 1;

const HAS_CPU: u32 = 1;
const HAS_RUNTIME: u32 = 1 << 1;
const HAS_THREAD: u32 = 1 << 2;
const FLAGS: u32 = (1 << 3) - 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RecordWire {
    head: HeadWire,
    thread: ThreadWire,
    zero: [u8; 24],
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
    given: AttrWire,
}

const _: () = assert!(size_of::<ThreadWire>() == 360);
const _: () = assert!(size_of::<RecordWire>() == RECORD_SIZE);
const _: () = assert!(core::mem::offset_of!(HeadWire, task) == 112);
const _: () = assert!(core::mem::offset_of!(RecordWire, thread) == HEAD_SIZE);

impl Record {
    /// As bytes, every one of them written.
    pub fn encode(&self) -> [u8; RECORD_SIZE] {
        let mut bytes = [0; RECORD_SIZE];
        self.encode_to(&mut bytes);
        bytes
    }

    /// Writes the bytes that say something to the front of `buffer`, and says how many they are.
    /// Those that would follow are zero and need not be kept.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`RECORD_SIZE`].
    pub fn encode_to(&self, buffer: &mut [u8]) -> usize {
        let (wire, _) = RecordWire::mut_from_prefix(buffer).expect("room for a record");
        let bit = |is: bool, bit: u32| if is { bit } else { 0 };
        let flags = bit(self.cpu.is_some(), HAS_CPU)
            | bit(self.runtime.is_some(), HAS_RUNTIME)
            | bit(self.thread.is_some(), HAS_THREAD);
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
        let Some(thread) = &self.thread else { return HEAD_SIZE };
        wire.thread = ThreadWire::new(thread);
        wire.zero = [0; 24];
        RECORD_SIZE
    }

    /// From bytes, all or those that [`Record::encode_to`] says to keep; `None` for anything that
    /// [`Record::encode`] does not write.
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
            thread: if has(HAS_THREAD) { Some(wire.thread.decode()?) } else { None },
        };
        // What is not declared must be zero and names must be names.
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
            given: AttrWire::new(&thread.given),
        }
    }

    fn decode(&self) -> Option<RecordThread> {
        Some(RecordThread {
            tid: self.tid.get(),
            tgid: self.tgid.get(),
            start: self.start.get(),
            inode: self.inode.get(),
            previous: self.previous.decode()?,
            given: self.given.decode()?,
        })
    }
}
