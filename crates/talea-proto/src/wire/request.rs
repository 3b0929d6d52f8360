//! Encoding of requests.

use super::bytes::{Reader, Writer};
use super::field_error::FieldError;
use super::header::{DecodeError, split_header};
use super::op::request as op;
use super::task::{TaskWire, flags};
use crate::GROUP_MAX;
use crate::message::{Request, SpecId, ThreadRef, Token};
use crate::refusal::Field;
use alloc::vec::Vec;
use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct HelloWire {
    min: U16,
    max: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct ChangeWire {
    spec: U64,
    task: TaskWire,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct AttachWire {
    spec: U64,
    flags: U32,
    tid: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct NiceWire {
    nice: I32,
    flags: U32,
    tid: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct ClaimWire {
    spec: U64,
    token: [u8; 16],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct PluginCpuWire {
    plugin: U32,
    index: U32,
}

/// Head of a list.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct GroupWire {
    count: U32,
    zero: U32,
}

const _: () = assert!(size_of::<HelloWire>() == 4);
const _: () = assert!(size_of::<ChangeWire>() == 216);
const _: () = assert!(size_of::<AttachWire>() == 16);
const _: () = assert!(size_of::<NiceWire>() == 12);
const _: () = assert!(size_of::<ClaimWire>() == 24);
const _: () = assert!(size_of::<PluginCpuWire>() == 8);
const _: () = assert!(size_of::<GroupWire>() == 8);
const _: () = assert!(8 + 8 + GROUP_MAX * size_of::<TaskWire>() <= crate::MESSAGE_MAX);

const HAS_TID: u32 = 1;
/// Flag beside [`HAS_TID`]: the thread belongs to the sender's process.
const IS_OWN: u32 = 2;
const HAS_AND_IS_OWN: u32 = HAS_TID | IS_OWN;
const STOP_RELEASE: u32 = 1;

impl GroupWire {
    /// Creates the head of a list.
    ///
    /// # Panics
    /// If `count` is larger than [`GROUP_MAX`].
    pub(super) fn new(count: usize) -> GroupWire {
        assert!(
            count <= GROUP_MAX,
            "a group of {count} tasks; at most {GROUP_MAX} fit into a message"
        );
        GroupWire { count: U32::new(count as u32), zero: U32::ZERO }
    }

    pub(super) fn count(&self) -> Result<usize, FieldError> {
        FieldError::zero(Field::Group, self.zero.get())?;
        match self.count.get() as usize {
            count @ 1..=GROUP_MAX => Ok(count),
            count => Err(FieldError::new(Field::Group, count as u64, GROUP_MAX as u64)),
        }
    }
}

impl Request {
    /// Writes the request as message number `seq` and returns the number of bytes.
    pub fn encode(&self, seq: u32, buffer: &mut [u8]) -> usize {
        let mut out = Writer::new(buffer, self.op(), seq);
        match self {
            Request::Hello { min, max } => {
                out.write(&HelloWire { min: U16::new(*min), max: U16::new(*max) });
            }
            Request::Create(task) | Request::Explain(task) => out.write(&TaskWire::new(task)),
            Request::CreateGroup(tasks) => {
                out.write(&GroupWire::new(tasks.len()));
                for task in tasks {
                    out.write(&TaskWire::new(task));
                }
            }
            Request::Change { spec, task } => {
                out.write(&ChangeWire { spec: U64::new(spec.0), task: TaskWire::new(task) });
            }
            Request::Release(spec)
            | Request::Detach(spec)
            | Request::Query(spec)
            | Request::NextSpec(spec) => {
                out.write(&U64::new(spec.0));
            }
            Request::Attach { spec, thread } => {
                let (flags, tid) = thread_words(*thread);
                out.write(&AttachWire { spec: U64::new(spec.0), flags, tid });
            }
            Request::Nice { nice, thread } => {
                let (flags, tid) = thread_words(*thread);
                out.write(&NiceWire { nice: I32::new((*nice).into()), flags, tid });
            }
            Request::Claim { spec, token } => {
                out.write(&ClaimWire { spec: U64::new(spec.0), token: token.0 });
            }
            Request::Seed(seed) => out.write(&seed.0),
            Request::ActFor { uid } => out.write(&U32::new(*uid)),
            Request::Status | Request::Counters => {}
            Request::Plugin(index) => out.write(&U32::new(*index)),
            Request::PluginCpu { plugin, index } => {
                out.write(&PluginCpuWire { plugin: U32::new(*plugin), index: U32::new(*index) });
            }
            Request::NextSession(session) => out.write(&U64::new(*session)),
            Request::Stop { release } => out.write(&flags(&[(*release, STOP_RELEASE)])),
        }
        out.len()
    }

    fn op(&self) -> u16 {
        match self {
            Request::Hello { .. } => op::HELLO,
            Request::Create(_) => op::CREATE,
            Request::CreateGroup(_) => op::CREATE_GROUP,
            Request::Change { .. } => op::CHANGE,
            Request::Release(_) => op::RELEASE,
            Request::Attach { .. } => op::ATTACH,
            Request::Detach(_) => op::DETACH,
            Request::Nice { .. } => op::NICE,
            Request::Query(_) => op::QUERY,
            Request::Seed(_) => op::SEED,
            Request::ActFor { .. } => op::ACT_FOR,
            Request::Claim { .. } => op::CLAIM,
            Request::Explain(_) => op::EXPLAIN,
            Request::Status => op::STATUS,
            Request::Counters => op::COUNTERS,
            Request::Plugin(_) => op::PLUGIN,
            Request::PluginCpu { .. } => op::PLUGIN_CPU,
            Request::NextSpec(_) => op::NEXT_SPEC,
            Request::NextSession(_) => op::NEXT_SESSION,
            Request::Stop { .. } => op::STOP,
        }
    }
}

/// Returns the flags and the id of a reference to a thread.
fn thread_words(thread: ThreadRef) -> (U32, U32) {
    let flags = flags(&[
        (thread.tid().is_some(), HAS_TID),
        (matches!(thread, ThreadRef::OwnTid(_)), IS_OWN),
    ]);
    (flags, U32::new(thread.tid().unwrap_or(0)))
}

/// Reads a reference to a thread.
fn read_thread(flags: u32, tid: u32) -> Result<ThreadRef, FieldError> {
    FieldError::bits(Field::Thread, flags, HAS_TID | IS_OWN)?;
    match (flags, tid) {
        (0, 0) => Ok(ThreadRef::Pidfd),
        (HAS_TID, tid) if tid != 0 => Ok(ThreadRef::Tid(tid)),
        (HAS_AND_IS_OWN, tid) if tid != 0 => Ok(ThreadRef::OwnTid(tid)),
        // Thread id 0 is invalid: the kernel would take it as the daemon itself.
        (_, tid) => Err(FieldError::new(Field::Thread, tid, 0_u64)),
    }
}

/// Decodes one message as a request; returns its number and the request.
pub fn decode_request(message: &[u8]) -> Result<(u32, Request), DecodeError> {
    let (header, body) = split_header(message, &[op::HELLO])?;
    let seq = header.seq.get();
    match decode_body(header.op.get(), Reader::new(body)) {
        Ok(request) => Ok((seq, request)),
        Err(wrong) => Err(DecodeError { seq, refusal: wrong.into() }),
    }
}

fn decode_body(operation: u16, mut body: Reader) -> Result<Request, FieldError> {
    let spec = |body: Reader| body.sole::<U64>().map(|spec| SpecId(spec.get()));
    Ok(match operation {
        op::HELLO => {
            let hello: &HelloWire = body.sole()?;
            Request::Hello { min: hello.min.get(), max: hello.max.get() }
        }
        op::CREATE => Request::Create(body.sole::<TaskWire>()?.read()?),
        op::CREATE_GROUP => {
            let count = body.next::<GroupWire>()?.count()?;
            let tasks = body.next_slice::<TaskWire>(count)?;
            body.expect_end()?;
            let read = |(index, task): (u32, &TaskWire)| {
                task.read().map_err(|wrong| FieldError { index, ..wrong })
            };
            Request::CreateGroup((0..).zip(tasks).map(read).collect::<Result<Vec<_>, _>>()?)
        }
        op::CHANGE => {
            let change: &ChangeWire = body.sole()?;
            Request::Change { spec: SpecId(change.spec.get()), task: change.task.read()? }
        }
        op::RELEASE => Request::Release(spec(body)?),
        op::ATTACH => {
            let attach: &AttachWire = body.sole()?;
            let thread = read_thread(attach.flags.get(), attach.tid.get())?;
            Request::Attach { spec: SpecId(attach.spec.get()), thread }
        }
        op::NICE => {
            let words: &NiceWire = body.sole()?;
            let thread = read_thread(words.flags.get(), words.tid.get())?;
            let nice = words.nice.get();
            let asked = u64::try_from(20 - i64::from(nice)).unwrap_or(0);
            match i8::try_from(nice).ok().filter(|nice| (-20..=19).contains(nice)) {
                Some(nice) => Request::Nice { nice, thread },
                None if nice < 0 => return Err(FieldError::new(Field::Nice, asked, 40_u64)),
                None => return Err(FieldError::new(Field::Nice, asked, 1_u64)),
            }
        }
        op::DETACH => Request::Detach(spec(body)?),
        op::QUERY => Request::Query(spec(body)?),
        op::CLAIM => {
            let claim: &ClaimWire = body.sole()?;
            Request::Claim { spec: SpecId(claim.spec.get()), token: Token(claim.token) }
        }
        op::SEED => Request::Seed(Token(*body.sole::<[u8; 16]>()?)),
        op::ACT_FOR => Request::ActFor { uid: body.sole::<U32>()?.get() },
        op::EXPLAIN => Request::Explain(body.sole::<TaskWire>()?.read()?),
        op::STATUS | op::COUNTERS => {
            body.expect_end()?;
            if operation == op::STATUS { Request::Status } else { Request::Counters }
        }
        op::PLUGIN => Request::Plugin(body.sole::<U32>()?.get()),
        op::PLUGIN_CPU => {
            let at: &PluginCpuWire = body.sole()?;
            Request::PluginCpu { plugin: at.plugin.get(), index: at.index.get() }
        }
        op::NEXT_SPEC => Request::NextSpec(spec(body)?),
        op::NEXT_SESSION => Request::NextSession(body.sole::<U64>()?.get()),
        op::STOP => {
            let bits = body.sole::<U32>()?.get();
            FieldError::bits(Field::Request, bits, STOP_RELEASE)?;
            Request::Stop { release: bits & STOP_RELEASE != 0 }
        }
        unknown => return Err(FieldError::new(Field::Message, unknown, op::NICE)),
    })
}
