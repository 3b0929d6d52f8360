//! Encoding of refusals and plugin answers: a head, then the answers, then the rule's text.

use crate::PLUGINS_MAX;
use crate::notes::Notes;
use crate::refusal::{
    Code, Field, PluginAnswer, PluginText, PluginVerdict, Refusal, Rejection, RejectionReason,
    Witness,
};
use crate::wire::bytes::{Reader, Writer, known};
use crate::wire::field_error::FieldError;
use crate::wire::task::read_name;
use alloc::string::String;
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Charge, Span, Work};
use zerocopy::little_endian::{I32, U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Maximum number of encoded bytes of a rule's origin.
pub const RULE_MAX: usize = 1024;

/// Head of a refusal; 40 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RefusalWire {
    code: U16,
    field: U16,
    errno: I32,
    asked: U64,
    limit: U64,
    index: U32,
    answers: U16,
    rule_len: U16,
    flags: U32,
    zero: U32,
}

/// Encoding of a plugin's answer. Fields that `kind` does not use are zero.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PluginAnswerWire {
    name: [u8; 32],
    plugin: U32,
    kind: U16,
    why: U16,
    field: U16,
    flags: U16,
    cpu: U32,
    asked: U64,
    limit: U64,
    fits: U64,
    rest: [u8; 24],
    // The length is a number: with the constant, the compiler panics.
    text: [u8; 96],
}

/// Rest of an acceptance.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct OfferWire {
    charge: U128,
    notes: U32,
    zero: U32,
}

/// Rest of a rejection: its witness.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct WitnessWire {
    /// Window, or period of the late task, or delay until a zero-lag hold ends.
    at: U64,
    /// Demand, or response time; 0 for an unbounded response time.
    needs: U64,
    /// Supply, or deadline.
    has: U64,
}

const _: () = assert!(size_of::<RefusalWire>() == 40);
const _: () = assert!(size_of::<OfferWire>() == 24 && size_of::<WitnessWire>() == 24);
const _: () = assert!(size_of::<PluginAnswerWire>() == 192);
const _: () = assert!(core::mem::offset_of!(PluginAnswerWire, kind) == 36);
const _: () = assert!(core::mem::offset_of!(PluginAnswerWire, asked) == 48);
const _: () = assert!(core::mem::offset_of!(PluginAnswerWire, rest) == 72);
// An explanation with a refusal is the second longest reply.
const _: () = assert!(
    8 + 16 + 40 + 2 * PLUGINS_MAX * size_of::<PluginAnswerWire>() + RULE_MAX <= crate::MESSAGE_MAX
);

const HAS_RULE: u32 = 1;
const HAS_CPU: u16 = 1;
/// The witness is a deadline miss, with [`IS_OWN`] of the requested task.
const IS_DEADLINE_MISS: u16 = 1 << 1;
const IS_OWN: u16 = 1 << 2;
const IS_DEMAND: u16 = 1 << 3;
const IS_HELD: u16 = 1 << 4;
const OK: u16 = 0;
const PARTIAL: u16 = 1;
const NO: u16 = 2;
const DENIED: u16 = 3;

pub(super) fn write(refusal: &Refusal, out: &mut Writer) {
    let answers = truncated(&refusal.answers);
    let rule = refusal.rule.as_deref().map(truncated_rule);
    out.write(&RefusalWire {
        code: U16::new(refusal.code as u16),
        field: U16::new(refusal.field as u16),
        errno: I32::new(refusal.errno),
        asked: U64::new(refusal.asked),
        limit: U64::new(refusal.limit),
        index: U32::new(refusal.index),
        answers: U16::new(answers.len() as u16),
        rule_len: U16::new(rule.map_or(0, str::len) as u16),
        flags: U32::new(if rule.is_some() { HAS_RULE } else { 0 }),
        zero: U32::ZERO,
    });
    for answer in answers {
        out.write(&PluginAnswerWire::new(answer));
    }
    out.write(rule.unwrap_or(""));
}

pub(super) fn read(body: &mut Reader) -> Result<Refusal, FieldError> {
    let head: &RefusalWire = body.next()?;
    let wrong = |value: u64| FieldError::new(Field::Message, value, 0_u64);
    FieldError::bits(Field::Message, head.flags.get(), HAS_RULE)?;
    FieldError::zero(Field::Message, head.zero.get())?;
    let answers = read_answers(body, u32::from(head.answers.get()))?;
    let rule_len = usize::from(head.rule_len.get());
    if rule_len > RULE_MAX {
        return Err(FieldError::length(rule_len, RULE_MAX));
    }
    let text = body.next_slice::<u8>(rule_len)?;
    let text = core::str::from_utf8(text).map_err(|error| wrong(error.valid_up_to() as u64))?;
    let rule = match (head.flags.get() & HAS_RULE != 0, text) {
        (true, text) => Some(String::from(text)),
        (false, "") => None,
        (false, text) => return Err(wrong(text.len() as u64)),
    };
    Ok(Refusal {
        code: known(Field::Message, head.code.get(), Code::from_number(head.code.get()))?,
        field: known(Field::Message, head.field.get(), Field::from_number(head.field.get()))?,
        asked: head.asked.get(),
        limit: head.limit.get(),
        errno: head.errno.get(),
        index: head.index.get(),
        rule,
        answers,
    })
}

pub(super) fn read_answers(body: &mut Reader, count: u32) -> Result<Vec<PluginAnswer>, FieldError> {
    if count as usize > PLUGINS_MAX {
        return Err(FieldError::new(Field::Message, count, PLUGINS_MAX as u64));
    }
    body.next_slice::<PluginAnswerWire>(count as usize)?
        .iter()
        .map(PluginAnswerWire::read)
        .collect()
}

/// Returns as many answers as fit; no daemon has more plugins.
pub(super) fn truncated(answers: &[PluginAnswer]) -> &[PluginAnswer] {
    &answers[..answers.len().min(PLUGINS_MAX)]
}

/// Returns at most [`RULE_MAX`] bytes of `rule`, cut at a character boundary.
fn truncated_rule(rule: &str) -> &str {
    &rule[..rule.floor_char_boundary(RULE_MAX)]
}

fn witness_to_wire(witness: Option<Witness>) -> (u16, WitnessWire) {
    let wire = |at: Span, needs: u64, has: u64| WitnessWire {
        at: U64::new(at.as_ns()),
        needs: U64::new(needs),
        has: U64::new(has),
    };
    match witness {
        None => (0, wire(Span::ZERO, 0, 0)),
        Some(Witness::DeadlineMiss { own, period, deadline, response }) => (
            if own { IS_DEADLINE_MISS | IS_OWN } else { IS_DEADLINE_MISS },
            wire(period, response.map_or(0, Span::as_ns), deadline.as_ns()),
        ),
        Some(Witness::Demand { at, demand, supply }) => {
            (IS_DEMAND, wire(at, demand.as_ns(), supply.as_ns()))
        }
        Some(Witness::Held { free_in }) => (IS_HELD, wire(free_in, 0, 0)),
    }
}

fn witness_from_wire(flags: u16, wire: &WitnessWire) -> Option<Witness> {
    let (at, needs, has) = (wire.at.get(), wire.needs.get(), wire.has.get());
    if flags & IS_DEADLINE_MISS != 0 {
        Some(Witness::DeadlineMiss {
            own: mutate!("proto-witness-own", flags & IS_OWN != 0, flags & IS_OWN == 0),
            period: Span::from_ns(at),
            deadline: Span::from_ns(has),
            response: (needs > 0).then(|| Span::from_ns(needs)),
        })
    } else if flags & IS_DEMAND != 0 {
        let (demand, supply) = (Work::from_ns(needs), Work::from_ns(has));
        Some(Witness::Demand { at: Span::from_ns(at), demand, supply })
    } else if flags & IS_HELD != 0 {
        Some(Witness::Held { free_in: Span::from_ns(at) })
    } else {
        None
    }
}

impl PluginAnswerWire {
    /// Encodes an answer.
    pub fn new(answer: &PluginAnswer) -> PluginAnswerWire {
        let blank = PluginAnswerWire {
            name: answer.name.0,
            plugin: U32::new(answer.plugin),
            kind: U16::ZERO,
            why: U16::ZERO,
            field: U16::ZERO,
            flags: U16::ZERO,
            cpu: U32::ZERO,
            asked: U64::ZERO,
            limit: U64::ZERO,
            fits: U64::ZERO,
            rest: [0; 24],
            text: *answer.text.bytes(),
        };
        let placed = |cpu: Option<u32>| PluginAnswerWire {
            flags: U16::new(if cpu.is_some() { HAS_CPU } else { 0 }),
            cpu: U32::new(cpu.unwrap_or(0)),
            ..blank
        };
        let yes = |kind: u16, cpu: Option<u32>, charge: Charge, notes: Notes| PluginAnswerWire {
            kind: U16::new(kind),
            rest: zerocopy::transmute!(OfferWire {
                charge: U128::new(charge.bits()),
                notes: U32::new(notes.0),
                zero: U32::ZERO,
            }),
            ..placed(cpu)
        };
        match answer.verdict {
            PluginVerdict::Ok { cpu, charge, notes } => yes(OK, cpu, charge, notes),
            PluginVerdict::Partial { cpu, charge, notes } => yes(PARTIAL, cpu, charge, notes),
            PluginVerdict::No(no) => {
                let (flags, witness) = witness_to_wire(no.witness);
                let placed = placed(no.cpu);
                PluginAnswerWire {
                    kind: U16::new(NO),
                    why: U16::new(no.reason as u16),
                    field: U16::new(no.field as u16),
                    flags: U16::new(placed.flags.get() | flags),
                    asked: U64::new(no.asked),
                    limit: U64::new(no.limit),
                    fits: U64::new(no.fits),
                    rest: zerocopy::transmute!(witness),
                    ..placed
                }
            }
            PluginVerdict::Denied { code, field, asked, limit } => PluginAnswerWire {
                kind: U16::new(DENIED),
                why: U16::new(code as u16),
                field: U16::new(field as u16),
                asked: U64::new(asked),
                limit: U64::new(limit),
                ..blank
            },
        }
    }

    fn read(&self) -> Result<PluginAnswer, FieldError> {
        let cpu = (self.flags.get() & HAS_CPU != 0).then(|| self.cpu.get());
        let yes: OfferWire = zerocopy::transmute!(self.rest);
        let (charge, notes) = (Charge::from_bits(yes.charge.get()), Notes(yes.notes.get()));
        let (why, field) = (self.why.get(), self.field.get());
        let known_field = || known(Field::Message, field, Field::from_number(field));
        let (asked, limit) = (self.asked.get(), self.limit.get());
        let verdict = match self.kind.get() {
            OK => PluginVerdict::Ok { cpu, charge, notes },
            PARTIAL => PluginVerdict::Partial { cpu, charge, notes },
            NO => PluginVerdict::No(Rejection {
                reason: known(Field::Message, why, RejectionReason::from_number(why))?,
                field: known_field()?,
                cpu,
                asked,
                limit,
                fits: self.fits.get(),
                witness: witness_from_wire(self.flags.get(), &zerocopy::transmute!(self.rest)),
            }),
            DENIED => PluginVerdict::Denied {
                code: known(Field::Message, why, Code::from_number(why))?,
                field: known_field()?,
                asked,
                limit,
            },
            unknown => return Err(FieldError::new(Field::Message, unknown, DENIED)),
        };
        let answer = PluginAnswer {
            plugin: self.plugin.get(),
            name: read_name(Field::Plugin, self.name)?,
            verdict,
            text: PluginText::from_wire(self.text)
                .ok_or_else(|| FieldError::new(Field::Message, self.plugin.get(), 0_u64))?,
        };
        // Fields that the kind does not use must be zero; otherwise two byte strings would have the
        // same meaning.
        if PluginAnswerWire::new(&answer) == *self {
            Ok(answer)
        } else {
            Err(FieldError::new(Field::Message, self.kind.get(), 0_u64))
        }
    }

    /// Decodes the answer; `None` for invalid bytes.
    pub fn decode(&self) -> Option<PluginAnswer> {
        self.read().ok()
    }
}
