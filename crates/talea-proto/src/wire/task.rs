//! Encoding of tasks, names, CPU sets and thread attributes.

use super::field_error::FieldError;
use crate::message::{Name, Owner, Task, ThreadRef};
use crate::refusal::Field;
use talea_core::{Attr, CpuSet, Params, Policy, Priority, Span, Work};
use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// CPU set: bit `n % 64` of word `n / 64` is CPU `n`.
type Cpus = [U64; 16];

/// Encoding of a task specification.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TaskWire {
    period_ns: U64,
    runtime_ns: U64,
    desired_ns: U64,
    deadline_ns: U64,
    flags: U32,
    priority: U32,
    owner: U32,
    tid: U32,
    plugin: [u8; 32],
    cpus: Cpus,
}

const _: () = assert!(size_of::<TaskWire>() == 208);
const _: () = assert!(core::mem::offset_of!(TaskWire, flags) == 32);
const _: () = assert!(core::mem::offset_of!(TaskWire, priority) == 36);
const _: () = assert!(core::mem::offset_of!(TaskWire, owner) == 40);
const _: () = assert!(core::mem::offset_of!(TaskWire, plugin) == 48);
const _: () = assert!(core::mem::offset_of!(TaskWire, cpus) == 80);

const PERIOD: u32 = 1;
const RUNTIME: u32 = 1 << 1;
const DESIRED: u32 = 1 << 2;
const DEADLINE: u32 = 1 << 3;
const PRIORITY: u32 = 1 << 4;
const PLUGIN: u32 = 1 << 5;
const CPUS_MANDATORY: u32 = 1 << 6;
const IGNORE_ADMISSION: u32 = 1 << 7;
/// The task names its thread: by the passed pidfd, or by `tid` with one of the next two flags.
const THREAD: u32 = 1 << 8;
const THREAD_TID: u32 = 1 << 9;
const THREAD_OWN: u32 = 1 << 10;
const EXCLUSIVE: u32 = 1 << 11;
const TASK_FLAGS: u32 = (1 << 12) - 1;
const THREAD_FLAGS: u32 = THREAD | THREAD_TID | THREAD_OWN;
const THREAD_BY_TID: u32 = THREAD | THREAD_TID;
const THREAD_BY_OWN: u32 = THREAD | THREAD_OWN;

impl TaskWire {
    /// Encodes a task specification.
    pub fn new(task: &Task) -> TaskWire {
        let Params { period, runtime, desired, deadline, priority } = task.params;
        let declared = [
            (period.is_some(), PERIOD),
            (runtime.is_some(), RUNTIME),
            (desired.is_some(), DESIRED),
            (deadline.is_some(), DEADLINE),
            (priority.is_some(), PRIORITY),
            (task.plugin.is_some(), PLUGIN),
            (task.cpus_mandatory, CPUS_MANDATORY),
            (task.ignore_admission, IGNORE_ADMISSION),
            (task.exclusive, EXCLUSIVE),
            (task.thread.is_some(), THREAD),
            (matches!(task.thread, Some(ThreadRef::Tid(_))), THREAD_TID),
            (matches!(task.thread, Some(ThreadRef::OwnTid(_))), THREAD_OWN),
        ];
        TaskWire {
            period_ns: span(period),
            runtime_ns: work(runtime),
            desired_ns: work(desired),
            deadline_ns: span(deadline),
            flags: flags(&declared),
            priority: U32::new(priority.map_or(0, |priority| u32::from(priority.0))),
            owner: U32::new(match task.owner {
                Owner::Session => 0,
                Owner::Process => 1,
                Owner::Thread => 2,
            }),
            tid: U32::new(task.thread.and_then(ThreadRef::tid).unwrap_or(0)),
            plugin: task.plugin.map_or([0; 32], |name| name.0),
            cpus: cpus_to_wire(&task.cpus),
        }
    }

    pub(super) fn read(&self) -> Result<Task, FieldError> {
        let flags = self.flags.get();
        FieldError::bits(Field::Request, flags, TASK_FLAGS)?;
        let has = |bit: u32| flags & bit != 0;
        Ok(Task {
            params: Params {
                period: declared(Field::Period, has(PERIOD), self.period_ns)?.map(Span::from_ns),
                runtime: declared(Field::Runtime, has(RUNTIME), self.runtime_ns)?
                    .map(Work::from_ns),
                desired: declared(Field::Desired, has(DESIRED), self.desired_ns)?
                    .map(Work::from_ns),
                deadline: declared(Field::Deadline, has(DEADLINE), self.deadline_ns)?
                    .map(Span::from_ns),
                priority: match (has(PRIORITY), self.priority.get()) {
                    (false, 0) => None,
                    (false, undeclared) => {
                        return Err(FieldError::new(Field::Priority, undeclared, 0_u64));
                    }
                    (true, priority) => Some(read_priority(Field::Priority, priority)?),
                },
            },
            plugin: match (has(PLUGIN), self.plugin) {
                (false, bytes) if bytes == [0; 32] => None,
                (false, _) => return Err(FieldError::new(Field::Plugin, 1_u64, 0_u64)),
                (true, bytes) => Some(read_name(Field::Plugin, bytes)?),
            },
            cpus: cpus_from_wire(&self.cpus),
            cpus_mandatory: has(CPUS_MANDATORY),
            ignore_admission: has(IGNORE_ADMISSION),
            exclusive: has(EXCLUSIVE),
            owner: match self.owner.get() {
                0 => Owner::Session,
                1 => Owner::Process,
                2 => Owner::Thread,
                other => return Err(FieldError::new(Field::Owner, other, 2_u64)),
            },
            thread: match (flags & THREAD_FLAGS, self.tid.get()) {
                (0, 0) => None,
                (THREAD, 0) => Some(ThreadRef::Pidfd),
                (THREAD_BY_TID, tid) if tid != 0 => Some(ThreadRef::Tid(tid)),
                (THREAD_BY_OWN, tid) if tid != 0 => Some(ThreadRef::OwnTid(tid)),
                // Thread id 0 is invalid: the kernel would take it as the daemon itself.
                (_, tid) => return Err(FieldError::new(Field::Thread, tid, 0_u64)),
            },
        })
    }

    /// Decodes the task specification; `None` for invalid bytes.
    pub fn decode(&self) -> Option<Task> {
        self.read().ok()
    }
}

/// Encoding of a thread's scheduling attributes. Policies have the kernel's numbers.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AttrWire {
    runtime_ns: U64,
    deadline_ns: U64,
    period_ns: U64,
    policy: U32,
    flags: U32,
    nice: I32,
    priority: U32,
    cpus: Cpus,
}

const _: () = assert!(size_of::<AttrWire>() == 168);
const _: () = assert!(core::mem::offset_of!(AttrWire, policy) == 24);
const _: () = assert!(core::mem::offset_of!(AttrWire, cpus) == 40);

const OTHER: u32 = 0;
const FIFO: u32 = 1;
const RR: u32 = 2;
const BATCH: u32 = 3;
const IDLE: u32 = 5;
const EDF: u32 = 6;
const RESET_ON_FORK: u32 = 1;

impl AttrWire {
    /// All zeros: encoding of absent attributes.
    pub const NONE: AttrWire = AttrWire {
        runtime_ns: U64::ZERO,
        deadline_ns: U64::ZERO,
        period_ns: U64::ZERO,
        policy: U32::ZERO,
        flags: U32::ZERO,
        nice: I32::ZERO,
        priority: U32::ZERO,
        cpus: [U64::ZERO; 16],
    };

    /// Encodes attributes.
    pub fn new(attr: &Attr) -> AttrWire {
        let mut wire = AttrWire {
            flags: U32::new(u32::from(attr.reset_on_fork)),
            cpus: cpus_to_wire(&attr.cpus),
            ..AttrWire::NONE
        };
        let policy = match attr.policy {
            Policy::Other { nice } => {
                wire.nice = I32::new(i32::from(nice));
                OTHER
            }
            Policy::Batch { nice } => {
                wire.nice = I32::new(i32::from(nice));
                BATCH
            }
            Policy::Idle => IDLE,
            Policy::Fifo(priority) => {
                wire.priority = U32::new(u32::from(priority.0));
                FIFO
            }
            Policy::Rr(priority) => {
                wire.priority = U32::new(u32::from(priority.0));
                RR
            }
            Policy::Deadline { runtime, deadline, period } => {
                wire.runtime_ns = U64::new(runtime.as_ns());
                wire.deadline_ns = U64::new(deadline.as_ns());
                wire.period_ns = U64::new(period.as_ns());
                EDF
            }
        };
        wire.policy = U32::new(policy);
        wire
    }

    pub(super) fn read(&self) -> Result<Attr, FieldError> {
        let wrong = |value: u32| FieldError::new(Field::Thread, value, 0_u64);
        FieldError::bits(Field::Thread, self.flags.get(), RESET_ON_FORK)?;
        let nice = || i8::try_from(self.nice.get()).map_err(|_| wrong(self.nice.get() as u32));
        let priority = || read_priority(Field::Thread, self.priority.get());
        let policy = match self.policy.get() {
            OTHER => Policy::Other { nice: nice()? },
            BATCH => Policy::Batch { nice: nice()? },
            IDLE => Policy::Idle,
            FIFO => Policy::Fifo(priority()?),
            RR => Policy::Rr(priority()?),
            EDF => Policy::Deadline {
                runtime: Work::from_ns(self.runtime_ns.get()),
                deadline: Span::from_ns(self.deadline_ns.get()),
                period: Span::from_ns(self.period_ns.get()),
            },
            other => return Err(wrong(other)),
        };
        let attr = Attr {
            policy,
            reset_on_fork: self.flags.get() & RESET_ON_FORK != 0,
            cpus: cpus_from_wire(&self.cpus),
        };
        // Fields that the policy does not use must be zero; otherwise two byte strings would have
        // the same meaning.
        if AttrWire::new(&attr).as_bytes() == self.as_bytes() {
            Ok(attr)
        } else {
            Err(wrong(self.policy.get()))
        }
    }

    /// Decodes the attributes; `None` for invalid bytes.
    pub fn decode(&self) -> Option<Attr> {
        self.read().ok()
    }
}

/// Returns `value` if it is declared; an undeclared value must be zero.
pub(super) fn declared(field: Field, is: bool, value: U64) -> Result<Option<u64>, FieldError> {
    if is { Ok(Some(value.get())) } else { FieldError::zero(field, value.get()).map(|()| None) }
}

/// Decodes a name: 1 to 31 bytes of UTF-8, then zeros.
pub(super) fn read_name(field: Field, bytes: [u8; 32]) -> Result<Name, FieldError> {
    let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(32);
    let padded = bytes[len..].iter().all(|&byte| byte == 0);
    if (1..=31).contains(&len) && padded && core::str::from_utf8(&bytes[..len]).is_ok() {
        Ok(Name(bytes))
    } else {
        Err(FieldError::new(field, len as u64, 31_u64))
    }
}

/// Decodes a priority of one byte; the broker checks its range.
fn read_priority(field: Field, value: u32) -> Result<Priority, FieldError> {
    u8::try_from(value).map(Priority).map_err(|_| FieldError::new(field, value, 99_u64))
}

/// Returns the bits for which the condition holds.
pub(super) fn flags(bits: &[(bool, u32)]) -> U32 {
    U32::new(bits.iter().filter(|(is, _)| *is).fold(0, |all, (_, bit)| all | bit))
}

fn span(value: Option<Span>) -> U64 {
    U64::new(value.map_or(0, Span::as_ns))
}

pub(super) fn work(value: Option<Work>) -> U64 {
    U64::new(value.map_or(0, Work::as_ns))
}

pub(super) fn cpus_to_wire(cpus: &CpuSet) -> Cpus {
    cpus.words().map(U64::new)
}

pub(super) fn cpus_from_wire(cpus: &Cpus) -> CpuSet {
    CpuSet::from_words(cpus.map(U64::get))
}
