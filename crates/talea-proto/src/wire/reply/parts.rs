//! Reply bodies of fixed length.

use crate::message::{
    Caveat, CpuInfo, DetachCause, Granted, Mechanism, Notes, Overruns, PluginInfo, Reply,
    SessionInfo, SpecId, SpecInfo, Status, Token,
};
use crate::refusal::Field;
use crate::wire::field_error::FieldError;
use crate::wire::task::{
    AttrWire, TaskWire, cpus_from_wire, cpus_to_wire, declared, flags, read_name, work,
};
use talea_core::{Charge, Span, Work};
use zerocopy::little_endian::{I32, U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Body of a welcome; 16 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct WelcomeWire {
    instance: U64,
    version: U16,
    zero: [u8; 6],
}

impl WelcomeWire {
    pub(super) fn new(version: u16, instance: u64) -> WelcomeWire {
        WelcomeWire { instance: U64::new(instance), version: U16::new(version), zero: [0; 6] }
    }

    pub(super) fn read(&self) -> Result<Reply, FieldError> {
        FieldError::zero(Field::Message, self.zero.iter().fold(0, |all, byte| all | byte))?;
        Ok(Reply::Welcome { version: self.version.get(), instance: self.instance.get() })
    }
}

/// Body of a reply with a caveat; 8 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct CaveatWire {
    what: U32,
    errno: I32,
}

impl CaveatWire {
    pub(super) fn new(but: Caveat) -> CaveatWire {
        let (what, errno) = match but {
            Caveat::PendingWakeup => (1, 0),
            Caveat::AffinityWidened => (2, 0),
            Caveat::PolicyLost { errno } => (3, errno),
        };
        CaveatWire { what: U32::new(what), errno: I32::new(errno) }
    }

    pub(super) fn read(&self) -> Result<Caveat, FieldError> {
        match (self.what.get(), self.errno.get()) {
            (1, 0) => Ok(Caveat::PendingWakeup),
            (2, 0) => Ok(Caveat::AffinityWidened),
            (3, errno) => Ok(Caveat::PolicyLost { errno }),
            (what, _) => Err(FieldError::new(Field::Message, what, 3_u32)),
        }
    }
}

/// A grant as bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct GrantedWire {
    spec: U64,
    token: [u8; 16],
    charge: U128,
    runtime_ns: U64,
    granularity_ns: U64,
    plugin: U32,
    cpu: U32,
    notes: U32,
    flags: U16,
    mechanism: u8,
    priority: u8,
}

const HAS_CPU: u32 = 1;
const HAS_RUNTIME: u32 = 1 << 1;

impl GrantedWire {
    /// Encodes a grant.
    pub fn new(granted: &Granted) -> GrantedWire {
        let bits =
            flags(&[(granted.cpu.is_some(), HAS_CPU), (granted.runtime.is_some(), HAS_RUNTIME)]);
        GrantedWire {
            spec: U64::new(granted.spec.0),
            token: granted.token.0,
            charge: U128::new(granted.charge.bits()),
            runtime_ns: work(granted.runtime),
            granularity_ns: U64::new(granted.granularity.as_ns()),
            plugin: U32::new(granted.plugin),
            cpu: U32::new(granted.cpu.unwrap_or(0)),
            notes: U32::new(granted.notes.0),
            flags: U16::new(bits.get() as u16),
            mechanism: granted.mechanism as u8,
            priority: granted.priority,
        }
    }

    pub(super) fn read(&self) -> Result<Granted, FieldError> {
        let bits = u32::from(self.flags.get());
        FieldError::bits(Field::Message, bits, HAS_CPU | HAS_RUNTIME)?;
        let mechanism = Mechanism::ALL.into_iter().find(|known| *known as u8 == self.mechanism);
        Ok(Granted {
            spec: SpecId(self.spec.get()),
            token: Token(self.token),
            plugin: self.plugin.get(),
            cpu: optional(Field::Cpus, bits & HAS_CPU != 0, self.cpu)?,
            runtime: declared(Field::Runtime, bits & HAS_RUNTIME != 0, self.runtime_ns)?
                .map(Work::from_ns),
            charge: Charge::from_bits(self.charge.get()),
            priority: self.priority,
            mechanism: mechanism
                .ok_or_else(|| FieldError::new(Field::Message, self.mechanism, 0_u64))?,
            granularity: Span::from_ns(self.granularity_ns.get()),
            // All bits are accepted: a client may ignore a note that its build does not know.
            notes: Notes(self.notes.get()),
        })
    }
}

/// Body of the description of a spec; 512 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct SpecWire {
    granted: GrantedWire,
    task: TaskWire,
    plugin_name: [u8; 32],
    uid: U32,
    pid: U32,
    tid: U32,
    flags: U32,
    attr: AttrWire,
    overruns: U64,
    last_overrun_ns: U64,
}

const HAS_TID: u32 = 1;
const HAS_ATTR: u32 = 1 << 1;
const IS_THROTTLED: u32 = 1 << 2;
/// Position and mask of the [`DetachCause`]; 0 for none.
const CAUSE_SHIFT: u32 = 4;
const CAUSE: u32 = 0xf << CAUSE_SHIFT;

impl SpecWire {
    pub(super) fn new(info: &SpecInfo) -> SpecWire {
        SpecWire {
            granted: GrantedWire::new(&info.granted),
            task: TaskWire::new(&info.task),
            plugin_name: info.plugin_name.0,
            uid: U32::new(info.uid),
            pid: U32::new(info.pid),
            tid: U32::new(info.tid.unwrap_or(0)),
            flags: U32::new(
                flags(&[
                    (info.tid.is_some(), HAS_TID),
                    (info.attr.is_some(), HAS_ATTR),
                    (info.overruns.is_throttled, IS_THROTTLED),
                ])
                .get()
                    | info.detached.map_or(0, |cause| (cause as u32) << CAUSE_SHIFT),
            ),
            attr: info.attr.as_ref().map_or(AttrWire::NONE, AttrWire::new),
            overruns: U64::new(info.overruns.count),
            last_overrun_ns: U64::new(info.overruns.last_ns),
        }
    }

    pub(super) fn read(&self) -> Result<SpecInfo, FieldError> {
        let bits = self.flags.get();
        FieldError::bits(Field::Message, bits, HAS_TID | HAS_ATTR | IS_THROTTLED | CAUSE)?;
        let detached = match (bits & CAUSE) >> CAUSE_SHIFT {
            0 => None,
            number => Some(
                (DetachCause::ALL.into_iter().find(|&cause| cause as u32 == number))
                    .ok_or_else(|| FieldError::new(Field::Message, number, 4_u32))?,
            ),
        };
        let attr = if bits & HAS_ATTR != 0 {
            Some(self.attr.read()?)
        } else if self.attr.as_bytes() == AttrWire::NONE.as_bytes() {
            None
        } else {
            return Err(FieldError::new(Field::Thread, 1_u64, 0_u64));
        };
        Ok(SpecInfo {
            granted: self.granted.read()?,
            task: self.task.read()?,
            plugin_name: read_name(Field::Plugin, self.plugin_name)?,
            uid: self.uid.get(),
            pid: self.pid.get(),
            tid: optional(Field::Thread, bits & HAS_TID != 0, self.tid)?,
            attr,
            overruns: Overruns {
                count: self.overruns.get(),
                last_ns: self.last_overrun_ns.get(),
                is_throttled: bits & IS_THROTTLED != 0,
            },
            detached,
        })
    }
}

/// Body of the counters; 72 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct StatusWire {
    instance: U64,
    uptime_ns: U64,
    requests: U64,
    refused: U64,
    wakeups: U64,
    pid: U32,
    plugins: U32,
    sessions: U32,
    specs: U32,
    attached: U32,
    adopted: U32,
    rules: U32,
    zero: U32,
}

impl StatusWire {
    pub(super) fn new(status: &Status) -> StatusWire {
        StatusWire {
            instance: U64::new(status.instance),
            uptime_ns: U64::new(status.uptime_ns),
            requests: U64::new(status.requests),
            refused: U64::new(status.refused),
            wakeups: U64::new(status.wakeups),
            pid: U32::new(status.pid),
            plugins: U32::new(status.plugins),
            sessions: U32::new(status.sessions),
            specs: U32::new(status.specs),
            attached: U32::new(status.attached),
            adopted: U32::new(status.adopted),
            rules: U32::new(status.rules),
            zero: U32::ZERO,
        }
    }

    pub(super) fn read(&self) -> Result<Status, FieldError> {
        FieldError::zero(Field::Message, self.zero.get())?;
        Ok(Status {
            instance: self.instance.get(),
            pid: self.pid.get(),
            uptime_ns: self.uptime_ns.get(),
            plugins: self.plugins.get(),
            sessions: self.sessions.get(),
            specs: self.specs.get(),
            attached: self.attached.get(),
            requests: self.requests.get(),
            refused: self.refused.get(),
            adopted: self.adopted.get(),
            rules: self.rules.get(),
            wakeups: self.wakeups.get(),
        })
    }
}

/// Body of the description of a plugin; 208 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct PluginWire {
    name: [u8; 32],
    kind: [u8; 32],
    cpus: [U64; 16],
    index: U32,
    specs: U32,
    low: u8,
    high: u8,
    out_of_service: u8,
    zero: [u8; 5],
}

impl PluginWire {
    pub(super) fn new(info: &PluginInfo) -> PluginWire {
        PluginWire {
            name: info.name.0,
            kind: info.kind.0,
            cpus: cpus_to_wire(&info.cpus),
            index: U32::new(info.index),
            specs: U32::new(info.specs),
            low: info.band.0,
            high: info.band.1,
            out_of_service: u8::from(info.out_of_service),
            zero: [0; 5],
        }
    }

    pub(super) fn read(&self) -> Result<PluginInfo, FieldError> {
        FieldError::bits(Field::Message, u32::from(self.out_of_service), 1)?;
        FieldError::zero(Field::Message, self.zero.iter().fold(0, |all, byte| all | byte))?;
        Ok(PluginInfo {
            index: self.index.get(),
            name: read_name(Field::Plugin, self.name)?,
            kind: read_name(Field::Plugin, self.kind)?,
            cpus: cpus_from_wire(&self.cpus),
            band: (self.low, self.high),
            specs: self.specs.get(),
            out_of_service: self.out_of_service != 0,
        })
    }
}

/// Body of the usage of a plugin on a CPU; 40 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct CpuWire {
    cpu: U32,
    specs: U32,
    free: U128,
    used: U128,
}

impl CpuWire {
    pub(super) fn new(info: &CpuInfo) -> CpuWire {
        CpuWire {
            cpu: U32::new(info.cpu),
            specs: U32::new(info.specs),
            free: U128::new(info.free.bits()),
            used: U128::new(info.used.bits()),
        }
    }

    pub(super) fn read(&self) -> CpuInfo {
        CpuInfo {
            cpu: self.cpu.get(),
            free: Charge::from_bits(self.free.get()),
            used: Charge::from_bits(self.used.get()),
            specs: self.specs.get(),
        }
    }
}

/// Body of the description of a connection; 24 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct SessionWire {
    session: U64,
    pid: U32,
    uid: U32,
    specs: U32,
    zero: U32,
}

impl SessionWire {
    pub(super) fn new(info: &SessionInfo) -> SessionWire {
        SessionWire {
            session: U64::new(info.session),
            pid: U32::new(info.pid),
            uid: U32::new(info.uid),
            specs: U32::new(info.specs),
            zero: U32::ZERO,
        }
    }

    pub(super) fn read(&self) -> Result<SessionInfo, FieldError> {
        FieldError::zero(Field::Message, self.zero.get())?;
        Ok(SessionInfo {
            session: self.session.get(),
            pid: self.pid.get(),
            uid: self.uid.get(),
            specs: self.specs.get(),
        })
    }
}

const _: () = assert!(size_of::<WelcomeWire>() == 16);
const _: () = assert!(size_of::<GrantedWire>() == 72);
const _: () = assert!(core::mem::offset_of!(GrantedWire, charge) == 24);
const _: () = assert!(core::mem::offset_of!(GrantedWire, notes) == 64);
const _: () = assert!(core::mem::offset_of!(GrantedWire, priority) == 71);
const _: () = assert!(size_of::<SpecWire>() == 512);
const _: () = assert!(size_of::<StatusWire>() == 72);
const _: () = assert!(size_of::<PluginWire>() == 208);
const _: () = assert!(size_of::<CpuWire>() == 40);
const _: () = assert!(size_of::<SessionWire>() == 24);

/// Returns `value` if it is present; an absent value must be zero.
fn optional(field: Field, is: bool, value: U32) -> Result<Option<u32>, FieldError> {
    if is { Ok(Some(value.get())) } else { FieldError::zero(field, value.get()).map(|()| None) }
}
