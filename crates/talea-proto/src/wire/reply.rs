//! Replies as bytes.

mod parts;
mod refused;

pub use parts::GrantedWire;
pub use refused::{AnswerWire, RULE_MAX};

use super::bytes::{Reader, Writer};
use super::op::reply as op;
use super::request::GroupWire;
use super::task::flags;
use super::{Field, Garbled, Wrong};
use crate::message::{Granted, Reply};
use crate::refusal::Refusal;
use alloc::boxed::Box;
use alloc::vec::Vec;
use parts::{ButWire, CpuWire, PluginWire, SessionWire, SpecWire, StatusWire, WelcomeWire};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Before the answers of an explanation, and before the refusal that may follow them.
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
    /// Writes the reply to request number `seq` and says how many bytes that took.
    ///
    /// A rule's origin is cut to [`RULE_MAX`] bytes and a list of answers to
    /// [`crate::PLUGINS_MAX`].
    ///
    /// # Panics
    /// If `buffer` is too short ([`crate::MESSAGE_MAX`] is enough), or a group is larger than
    /// [`crate::GROUP_MAX`].
    pub fn encode(&self, seq: u32, buffer: &mut [u8]) -> usize {
        let mut out = Writer::new(buffer, self.op(), seq);
        match self {
            Reply::Welcome { version, instance } => out.put(&WelcomeWire::new(*version, *instance)),
            Reply::Granted(granted) => out.put(&GrantedWire::new(granted)),
            Reply::GrantedGroup(group) => {
                out.put(&GroupWire::new(group.len()));
                for granted in group {
                    out.put(&GrantedWire::new(granted));
                }
            }
            Reply::Done | Reply::End => {}
            Reply::DoneBut(but) => out.put(&ButWire::new(*but)),
            Reply::Refused(refusal) => refused::write(refusal, &mut out),
            Reply::Spec(info) => out.put(&SpecWire::new(info)),
            Reply::Explained { chosen, answers, refusal } => {
                let answers = refused::first(answers);
                out.put(&ExplainedWire {
                    chosen: U32::new(chosen.unwrap_or(0)),
                    answers: U32::new(answers.len() as u32),
                    flags: flags(&[
                        (chosen.is_some(), HAS_CHOSEN),
                        (refusal.is_some(), HAS_REFUSAL),
                    ]),
                    zero: U32::ZERO,
                });
                for answer in answers {
                    out.put(&AnswerWire::new(answer));
                }
                if let Some(refusal) = refusal {
                    refused::write(refusal, &mut out);
                }
            }
            Reply::Status(status) => out.put(&StatusWire::new(status)),
            Reply::Plugin(info) => out.put(&PluginWire::new(info)),
            Reply::PluginCpu(info) => out.put(&CpuWire::new(info)),
            Reply::Session(info) => out.put(&SessionWire::new(info)),
        }
        out.len()
    }

    fn op(&self) -> u16 {
        match self {
            Reply::Welcome { .. } => op::WELCOME,
            Reply::Granted(_) => op::GRANTED,
            Reply::GrantedGroup(_) => op::GRANTED_GROUP,
            Reply::Done => op::DONE,
            Reply::DoneBut(_) => op::DONE_BUT,
            Reply::Refused(_) => op::REFUSED,
            Reply::Spec(_) => op::SPEC,
            Reply::Explained { .. } => op::EXPLAINED,
            Reply::Status(_) => op::STATUS,
            Reply::Plugin(_) => op::PLUGIN,
            Reply::PluginCpu(_) => op::PLUGIN_CPU,
            Reply::Session(_) => op::SESSION,
            Reply::End => op::END,
        }
    }
}

/// Reads one message as a reply, with the number of the request that it answers.
pub fn decode_reply(message: &[u8]) -> Result<(u32, Reply), Garbled> {
    let (header, body) = super::open(message, &[op::WELCOME, op::REFUSED])?;
    let seq = header.seq.get();
    match decode_body(header.op.get(), Reader::new(body)) {
        Ok(reply) => Ok((seq, reply)),
        Err(wrong) => Err(Garbled { seq, refusal: wrong.into() }),
    }
}

fn decode_body(operation: u16, mut body: Reader) -> Result<Reply, Wrong> {
    Ok(match operation {
        op::WELCOME => body.only::<WelcomeWire>()?.read()?,
        op::GRANTED => Reply::Granted(body.only::<GrantedWire>()?.read()?),
        op::GRANTED_GROUP => {
            let count = body.take::<GroupWire>()?.count()?;
            let group = body.take_many::<GrantedWire>(count)?;
            body.end()?;
            Reply::GrantedGroup(
                group.iter().map(GrantedWire::read).collect::<Result<Vec<Granted>, _>>()?,
            )
        }
        op::DONE | op::END => {
            body.end()?;
            if operation == op::DONE { Reply::Done } else { Reply::End }
        }
        op::DONE_BUT => Reply::DoneBut(body.only::<ButWire>()?.read()?),
        op::REFUSED => Reply::Refused(Box::new(last_refusal(body)?)),
        op::SPEC => Reply::Spec(Box::new(body.only::<SpecWire>()?.read()?)),
        op::EXPLAINED => {
            let head: &ExplainedWire = body.take()?;
            Wrong::bits(Field::Message, head.flags.get(), HAS_CHOSEN | HAS_REFUSAL)?;
            Wrong::zero(Field::Message, head.zero.get())?;
            let chosen = match (head.flags.get() & HAS_CHOSEN != 0, head.chosen.get()) {
                (true, index) => Some(index),
                (false, 0) => None,
                (false, index) => return Err(Wrong::new(Field::Message, index, 0_u64)),
            };
            let answers = refused::read_answers(&mut body, head.answers.get())?;
            let refusal = if head.flags.get() & HAS_REFUSAL != 0 {
                Some(Box::new(last_refusal(body)?))
            } else {
                body.end()?;
                None
            };
            Reply::Explained { chosen, answers, refusal }
        }
        op::STATUS => Reply::Status(Box::new(body.only::<StatusWire>()?.read()?)),
        op::PLUGIN => Reply::Plugin(Box::new(body.only::<PluginWire>()?.read()?)),
        op::PLUGIN_CPU => Reply::PluginCpu(body.only::<CpuWire>()?.read()),
        op::SESSION => Reply::Session(body.only::<SessionWire>()?.read()?),
        unknown => return Err(Wrong::new(Field::Message, unknown, op::DONE_BUT)),
    })
}

fn last_refusal(mut body: Reader) -> Result<Refusal, Wrong> {
    let refusal = refused::read(&mut body)?;
    body.end()?;
    Ok(refusal)
}
