//! Encoding of replies.

mod parts;
mod refusal;

pub use parts::GrantedWire;
pub use refusal::{PluginAnswerWire, RULE_MAX};

use super::bytes::{Reader, Writer};
use super::field_error::FieldError;
use super::header::{DecodeError, split_header};
use super::op::reply as op;
use super::request::GroupWire;
use super::task::flags;
use crate::counters::Counters;
use crate::message::{Granted, Reply};
use crate::refusal::{Field, Refusal};
use alloc::boxed::Box;
use alloc::vec::Vec;
use parts::{CaveatWire, CpuWire, PluginWire, SessionWire, SpecWire, StatusWire, WelcomeWire};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Head of an explanation; the answers and an optional refusal follow.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ExplainedWire {
    chosen: U32,
    answers: U32,
    flags: U32,
    zero: U32,
}

const _: () = assert!(size_of::<ExplainedWire>() == 16);

const HAS_CHOSEN: u32 = 1;
const HAS_REFUSAL: u32 = 1 << 1;

impl Reply {
    /// Writes the reply to request number `seq` and returns the number of bytes.
    pub fn encode(&self, seq: u32, buffer: &mut [u8]) -> usize {
        let mut out = Writer::new(buffer, self.op(), seq);
        match self {
            Reply::Welcome { version, instance } => {
                out.write(&WelcomeWire::new(*version, *instance));
            }
            Reply::Granted(granted) => out.write(&GrantedWire::new(granted)),
            Reply::GrantedGroup(group) => {
                out.write(&GroupWire::new(group.len()));
                for granted in group {
                    out.write(&GrantedWire::new(granted));
                }
            }
            Reply::Done | Reply::End => {}
            Reply::DoneWithCaveat(but) => out.write(&CaveatWire::new(*but)),
            Reply::Refused(refusal) => refusal::write(refusal, &mut out),
            Reply::Spec(info) => out.write(&SpecWire::new(info)),
            Reply::Explained { chosen, answers, refusal } => {
                let answers = refusal::truncated(answers);
                out.write(&ExplainedWire {
                    chosen: U32::new(chosen.unwrap_or(0)),
                    answers: U32::new(answers.len() as u32),
                    flags: flags(&[
                        (chosen.is_some(), HAS_CHOSEN),
                        (refusal.is_some(), HAS_REFUSAL),
                    ]),
                    zero: U32::ZERO,
                });
                for answer in answers {
                    out.write(&PluginAnswerWire::new(answer));
                }
                if let Some(refusal) = refusal {
                    refusal::write(refusal, &mut out);
                }
            }
            Reply::Status(status) => out.write(&StatusWire::new(status)),
            Reply::Counters(counters) => out.write(&counters.to_words().map(U64::new)),
            Reply::Plugin(info) => out.write(&PluginWire::new(info)),
            Reply::PluginCpu(info) => out.write(&CpuWire::new(info)),
            Reply::Session(info) => out.write(&SessionWire::new(info)),
        }
        out.len()
    }

    fn op(&self) -> u16 {
        match self {
            Reply::Welcome { .. } => op::WELCOME,
            Reply::Granted(_) => op::GRANTED,
            Reply::GrantedGroup(_) => op::GRANTED_GROUP,
            Reply::Done => op::DONE,
            Reply::DoneWithCaveat(_) => op::DONE_WITH_CAVEAT,
            Reply::Refused(_) => op::REFUSED,
            Reply::Spec(_) => op::SPEC,
            Reply::Explained { .. } => op::EXPLAINED,
            Reply::Status(_) => op::STATUS,
            Reply::Counters(_) => op::COUNTERS,
            Reply::Plugin(_) => op::PLUGIN,
            Reply::PluginCpu(_) => op::PLUGIN_CPU,
            Reply::Session(_) => op::SESSION,
            Reply::End => op::END,
        }
    }
}

/// Decodes one message as a reply; returns the number of its request and the reply.
pub fn decode_reply(message: &[u8]) -> Result<(u32, Reply), DecodeError> {
    let (header, body) = split_header(message, &[op::WELCOME, op::REFUSED])?;
    let seq = header.seq.get();
    match decode_body(header.op.get(), Reader::new(body)) {
        Ok(reply) => Ok((seq, reply)),
        Err(wrong) => Err(DecodeError { seq, refusal: wrong.into() }),
    }
}

fn decode_body(operation: u16, mut body: Reader) -> Result<Reply, FieldError> {
    Ok(match operation {
        op::WELCOME => body.sole::<WelcomeWire>()?.read()?,
        op::GRANTED => Reply::Granted(body.sole::<GrantedWire>()?.read()?),
        op::GRANTED_GROUP => {
            let count = body.next::<GroupWire>()?.count()?;
            let group = body.next_slice::<GrantedWire>(count)?;
            body.expect_end()?;
            Reply::GrantedGroup(
                group.iter().map(GrantedWire::read).collect::<Result<Vec<Granted>, _>>()?,
            )
        }
        op::DONE | op::END => {
            body.expect_end()?;
            if operation == op::DONE { Reply::Done } else { Reply::End }
        }
        op::DONE_WITH_CAVEAT => Reply::DoneWithCaveat(body.sole::<CaveatWire>()?.read()?),
        op::REFUSED => Reply::Refused(Box::new(last_refusal(body)?)),
        op::SPEC => Reply::Spec(Box::new(body.sole::<SpecWire>()?.read()?)),
        op::EXPLAINED => {
            let head: &ExplainedWire = body.next()?;
            FieldError::bits(Field::Message, head.flags.get(), HAS_CHOSEN | HAS_REFUSAL)?;
            FieldError::zero(Field::Message, head.zero.get())?;
            let chosen = match (head.flags.get() & HAS_CHOSEN != 0, head.chosen.get()) {
                (true, index) => Some(index),
                (false, 0) => None,
                (false, index) => return Err(FieldError::new(Field::Message, index, 0_u64)),
            };
            let answers = refusal::read_answers(&mut body, head.answers.get())?;
            let refusal = if head.flags.get() & HAS_REFUSAL != 0 {
                Some(Box::new(last_refusal(body)?))
            } else {
                body.expect_end()?;
                None
            };
            Reply::Explained { chosen, answers, refusal }
        }
        op::STATUS => Reply::Status(Box::new(body.sole::<StatusWire>()?.read()?)),
        op::COUNTERS => {
            let words: &[U64; Counters::LEN] = body.sole()?;
            Reply::Counters(Box::new(Counters::from_words(words.iter().map(|word| word.get()))))
        }
        op::PLUGIN => Reply::Plugin(Box::new(body.sole::<PluginWire>()?.read()?)),
        op::PLUGIN_CPU => Reply::PluginCpu(body.sole::<CpuWire>()?.read()),
        op::SESSION => Reply::Session(body.sole::<SessionWire>()?.read()?),
        unknown => return Err(FieldError::new(Field::Message, unknown, op::COUNTERS)),
    })
}

fn last_refusal(mut body: Reader) -> Result<Refusal, FieldError> {
    let refusal = refusal::read(&mut body)?;
    body.expect_end()?;
    Ok(refusal)
}
