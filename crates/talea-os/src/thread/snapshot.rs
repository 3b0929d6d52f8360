//! Scheduling attributes of a thread, to be restored later.

use crate::sched::{self, Attr, Policy};
use crate::{Tid, proc};
use std::io;
use std::sync::OnceLock;
use talea_core::CpuSet;

/// Policy, nice value and affinity of a thread at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Policy with its parameters.
    pub attr: Attr,
    /// Nice value, even while a real-time policy hides it.
    pub nice: i32,
    /// Affinity of the thread.
    pub affinity: CpuSet,
}

impl Snapshot {
    /// Length of [`Snapshot::to_bytes`].
    pub const BYTES: usize = Attr::BYTES + 8 + size_of::<CpuSet>();

    /// Encodes the snapshot for a file on the same machine.
    pub fn to_bytes(&self) -> [u8; Snapshot::BYTES] {
        let mut out = [0; Snapshot::BYTES];
        let (attr, rest) = out.split_at_mut(Attr::BYTES);
        attr.copy_from_slice(&self.attr.to_bytes());
        let (nice, affinity) = rest.split_at_mut(8);
        nice.copy_from_slice(&i64::from(self.nice).to_ne_bytes());
        for (bytes, word) in affinity.chunks_exact_mut(8).zip(self.affinity.words()) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        out
    }

    /// Decodes the result of [`Snapshot::to_bytes`]. Returns `None` for attributes that no thread
    /// can have.
    pub fn from_bytes(bytes: &[u8; Snapshot::BYTES]) -> Option<Snapshot> {
        let (attr, rest) = bytes.split_first_chunk::<{ Attr::BYTES }>()?;
        let (nice, affinity) = rest.split_first_chunk::<8>()?;
        let mut words = [0; talea_core::cpus::MAX_CPUS / 64];
        for (word, bytes) in words.iter_mut().zip(affinity.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        }
        Some(Snapshot {
            attr: Attr::from_bytes(attr)?,
            nice: i32::try_from(i64::from_ne_bytes(*nice)).ok()?,
            affinity: CpuSet::from_words(words),
        })
    }

    /// Returns the affinity to set on a thread that has `now`. Returns `None` if the thread has the
    /// right affinity.
    ///
    /// A thread that could use every CPU gets the full mask. The kernel then lets the thread follow
    /// its cpuset, as it does with a thread that was never restricted.
    pub(super) fn changed_affinity(&self, now: &Snapshot) -> Option<&CpuSet> {
        (self.affinity != now.affinity).then(|| {
            static EVERY: OnceLock<CpuSet> = OnceLock::new();
            if online().is_subset(&self.affinity) {
                EVERY.get_or_init(every_cpu)
            } else {
                &self.affinity
            }
        })
    }
}

/// Reads the attributes of the thread that has number `tid` now.
pub(super) fn read(tid: Tid) -> io::Result<Snapshot> {
    let snapshot = read_in_force(tid)?;
    Ok(match shown_nice(snapshot.attr.policy) {
        Some(_) => snapshot,
        None => Snapshot { nice: sched::get_nice(tid)?, ..snapshot },
    })
}

/// Variant of [`read`] without a system call for a nice value that the policy hides. Such a nice
/// value is reported as zero.
pub(super) fn read_in_force(tid: Tid) -> io::Result<Snapshot> {
    let attr = sched::get(tid)?;
    Ok(Snapshot {
        attr,
        nice: shown_nice(attr.policy).unwrap_or(0),
        affinity: sched::get_affinity(tid)?,
    })
}

/// Returns the nice value that is part of `policy`. Returns `None` if the policy has none.
pub(super) fn shown_nice(policy: Policy) -> Option<i32> {
    match policy {
        Policy::Other { nice } | Policy::Batch { nice } | Policy::Ext { nice } => Some(nice),
        _ => None,
    }
}

/// Returns the CPUs that were online at the first call. After a CPU comes online later, restored
/// masks are exact instead of full.
pub(super) fn online() -> &'static CpuSet {
    static ONLINE: OnceLock<CpuSet> = OnceLock::new();
    ONLINE.get_or_init(|| {
        let text = proc::read("/sys/devices/system/cpu/online").unwrap_or_default();
        std::str::from_utf8(&text)
            .ok()
            .and_then(|text| CpuSet::parse(text).ok())
            .unwrap_or_else(every_cpu)
    })
}

pub(super) fn every_cpu() -> CpuSet {
    CpuSet::first(talea_core::cpus::MAX_CPUS as u32)
}
