//! Refusals and plugins' answers as bytes: a head, then the answers, then the rule's text.

use crate::PLUGINS_MAX;
use crate::message::Notes;
use crate::refusal::{Answer, Code, No, Reason, Refusal, Said, Witness};
use crate::wire::bytes::{Reader, Writer, known};
use crate::wire::task::read_name;
use crate::wire::{Field, Wrong};
use alloc::string::String;
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Charge, Span, Work};
use zerocopy::little_endian::{I32, U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// No more bytes of a rule's origin travel.
pub const RULE_MAX: usize = 1024;

/// 40 bytes.
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

/// A plugin's answer as bytes. What `kind` does not use is zero.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AnswerWire {
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
}

/// The rest of a yes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct YesWire {
    charge: U128,
    notes: U32,
    zero: U32,
}

/// The rest of a no: its witness.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct WitnessWire {
    /// The window, or the period of who is late.
    at: U64,
    /// What is due, or the response; 0 for one without bound.
    needs: U64,
    /// What there is, or the deadline.
    has: U64,
}

const _: () = assert!(size_of::<RefusalWire>() == 40);
const _: () = assert!(size_of::<YesWire>() == 24 && size_of::<WitnessWire>() == 24);
const _: () = assert!(size_of::<AnswerWire>() == 96);
const _: () = assert!(core::mem::offset_of!(AnswerWire, kind) == 36);
const _: () = assert!(core::mem::offset_of!(AnswerWire, asked) == 48);
const _: () = assert!(core::mem::offset_of!(AnswerWire, rest) == 72);
// An explanation that carries a refusal is the longest reply but one.
const _: () = assert!(
    8 + 16 + 40 + 2 * PLUGINS_MAX * size_of::<AnswerWire>() + RULE_MAX <= crate::MESSAGE_MAX
);

const HAS_RULE: u32 = 1;
const HAS_CPU: u16 = 1;
/// The witness is a task that is late, and perhaps the one of the request; or a window with too
/// much due.
const IS_LATE: u16 = 1 << 1;
const IS_OWN: u16 = 1 << 2;
const IS_DEMAND: u16 = 1 << 3;
const OK: u16 = 0;
const PARTIAL: u16 = 1;
const NO: u16 = 2;
const DENIED: u16 = 3;

pub(super) fn write(refusal: &Refusal, out: &mut Writer) {
    let answers = first(&refusal.answers);
    let rule = refusal.rule.as_deref().map(cut);
    out.put(&RefusalWire {
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
        out.put(&AnswerWire::new(answer));
    }
    out.put(rule.unwrap_or(""));
}

pub(super) fn read(body: &mut Reader) -> Result<Refusal, Wrong> {
    let head: &RefusalWire = body.take()?;
    let wrong = |value: u64| Wrong::new(Field::Message, value, 0_u64);
    Wrong::bits(Field::Message, head.flags.get(), HAS_RULE)?;
    Wrong::zero(Field::Message, head.zero.get())?;
    let answers = read_answers(body, u32::from(head.answers.get()))?;
    let rule_len = usize::from(head.rule_len.get());
    if rule_len > RULE_MAX {
        return Err(Wrong::length(rule_len, RULE_MAX));
    }
    let text = body.take_many::<u8>(rule_len)?;
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

pub(super) fn read_answers(body: &mut Reader, count: u32) -> Result<Vec<Answer>, Wrong> {
    if count as usize > PLUGINS_MAX {
        return Err(Wrong::new(Field::Message, count, PLUGINS_MAX as u64));
    }
    body.take_many::<AnswerWire>(count as usize)?.iter().map(AnswerWire::read).collect()
}

/// As many answers as fit; no daemon has more plugins.
pub(super) fn first(answers: &[Answer]) -> &[Answer] {
    &answers[..answers.len().min(PLUGINS_MAX)]
}

/// At most [`RULE_MAX`] bytes of `rule`, whole characters.
fn cut(rule: &str) -> &str {
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
        Some(Witness::Late { own, period, deadline, response }) => (
            if own { IS_LATE | IS_OWN } else { IS_LATE },
            wire(period, response.map_or(0, Span::as_ns), deadline.as_ns()),
        ),
        Some(Witness::Demand { at, demand, supply }) => {
            (IS_DEMAND, wire(at, demand.as_ns(), supply.as_ns()))
        }
    }
}

fn witness_from_wire(flags: u16, wire: &WitnessWire) -> Option<Witness> {
    let (at, needs, has) = (wire.at.get(), wire.needs.get(), wire.has.get());
    if flags & IS_LATE != 0 {
        Some(Witness::Late {
            own: mutate!("proto-witness-own", flags & IS_OWN != 0, flags & IS_OWN == 0),
            period: Span::from_ns(at),
            deadline: Span::from_ns(has),
            response: (needs > 0).then(|| Span::from_ns(needs)),
        })
    } else if flags & IS_DEMAND != 0 {
        let (demand, supply) = (Work::from_ns(needs), Work::from_ns(has));
        Some(Witness::Demand { at: Span::from_ns(at), demand, supply })
    } else {
        None
    }
}

impl AnswerWire {
    /// From a value.
    pub fn new(answer: &Answer) -> AnswerWire {
        let blank = AnswerWire {
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
        };
        let placed = |cpu: Option<u32>| AnswerWire {
            flags: U16::new(if cpu.is_some() { HAS_CPU } else { 0 }),
            cpu: U32::new(cpu.unwrap_or(0)),
            ..blank
        };
        let yes = |kind: u16, cpu: Option<u32>, charge: Charge, notes: Notes| AnswerWire {
            kind: U16::new(kind),
            rest: zerocopy::transmute!(YesWire {
                charge: U128::new(charge.bits()),
                notes: U32::new(notes.0),
                zero: U32::ZERO,
            }),
            ..placed(cpu)
        };
        match answer.verdict {
            Said::Ok { cpu, charge, notes } => yes(OK, cpu, charge, notes),
            Said::Partial { cpu, charge, notes } => yes(PARTIAL, cpu, charge, notes),
            Said::No(no) => {
                let (flags, witness) = witness_to_wire(no.witness);
                let placed = placed(no.cpu);
                AnswerWire {
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
            Said::Denied { code, field, asked, limit } => AnswerWire {
                kind: U16::new(DENIED),
                why: U16::new(code as u16),
                field: U16::new(field as u16),
                asked: U64::new(asked),
                limit: U64::new(limit),
                ..blank
            },
        }
    }

    fn read(&self) -> Result<Answer, Wrong> {
        let cpu = (self.flags.get() & HAS_CPU != 0).then(|| self.cpu.get());
        let yes: YesWire = zerocopy::transmute!(self.rest);
        let (charge, notes) = (Charge::from_bits(yes.charge.get()), Notes(yes.notes.get()));
        let (why, field) = (self.why.get(), self.field.get());
        let known_field = || known(Field::Message, field, Field::from_number(field));
        let (asked, limit) = (self.asked.get(), self.limit.get());
        let verdict = match self.kind.get() {
            OK => Said::Ok { cpu, charge, notes },
            PARTIAL => Said::Partial { cpu, charge, notes },
            NO => Said::No(No {
                reason: known(Field::Message, why, Reason::from_number(why))?,
                field: known_field()?,
                cpu,
                asked,
                limit,
                fits: self.fits.get(),
                witness: witness_from_wire(self.flags.get(), &zerocopy::transmute!(self.rest)),
            }),
            DENIED => Said::Denied {
                code: known(Field::Message, why, Code::from_number(why))?,
                field: known_field()?,
                asked,
                limit,
            },
            unknown => return Err(Wrong::new(Field::Message, unknown, DENIED)),
        };
        let answer = Answer {
            plugin: self.plugin.get(),
            name: read_name(Field::Plugin, self.name)?,
            verdict,
        };
        // What the kind does not use must be zero, or two byte strings would mean the same.
        if AnswerWire::new(&answer) == *self {
            Ok(answer)
        } else {
            Err(Wrong::new(Field::Message, self.kind.get(), 0_u64))
        }
    }

    /// As a value; `None` if no value has these bytes.
    pub fn decode(&self) -> Option<Answer> {
        self.read().ok()
    }
}
