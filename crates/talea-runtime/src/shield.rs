//! CPUs of an application that are kept clear of others (YASMIN sections 3.3 and 3.5).

use crate::report::ShieldReport;
use std::io;
use talea_exec::Failure;
use talea_os::shield::{Refusal, Shield, check};

/// Whether these can be kept clear at all here, by whoever may.
pub(crate) fn can_be(cpus: &[u32]) -> Result<(), Refusal> {
    check(&cpus.iter().copied().collect())
}

/// What keeps them clear, or why nothing does.
pub(crate) fn raise(cpus: &[u32], insist: bool) -> Result<Result<Shield, String>, Failure> {
    match Shield::raise(&cpus.iter().copied().collect()) {
        Ok(shield) => Ok(Ok(shield)),
        Err(why) if insist => {
            let why = format!("no shield: {why}");
            Err(Failure::NoRight(io::Error::new(io::ErrorKind::PermissionDenied, why)))
        }
        Err(why) => Ok(Err(why.to_string())),
    }
}

/// Looks again, and puts everything back.
pub(crate) fn lower(shield: Shield) -> ShieldReport {
    let cleared = shield.cleared();
    let told = |left: &[talea_os::shield::Left]| left.iter().map(ToString::to_string).collect();
    let mut report = ShieldReport {
        threads: cleared.threads,
        interrupts: cleared.interrupts,
        left: told(&cleared.left),
        strangers: told(&shield.strangers()),
        ..ShieldReport::default()
    };
    let restored = shield.lower();
    (report.restored, report.changed) = (restored.restored, restored.left);
    report
}
