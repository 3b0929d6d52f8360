//! Shield: keeps the CPUs of an application clear of foreign threads (YASMIN sections 3.3 and 3.5).

use crate::report::ShieldReport;
use std::io;
use talea_exec::Failure;
use talea_os::shield::{Shield, ShieldError, check};

/// Checks that a process with the rights could shield these CPUs.
pub(crate) fn check_cpus(cpus: &[u32]) -> Result<(), ShieldError> {
    check(&cpus.iter().copied().collect())
}

/// Raises a shield. Returns the reason if a shield is impossible.
///
/// # Errors
/// [`Failure::NoRight`] if a shield is impossible and `require_real_time` is set.
pub(crate) fn raise(
    cpus: &[u32],
    require_real_time: bool,
) -> Result<Result<Shield, String>, Failure> {
    match Shield::raise(&cpus.iter().copied().collect()) {
        Ok(shield) => Ok(Ok(shield)),
        Err(why) if require_real_time => {
            let why = format!("no shield: {why}");
            Err(Failure::NoRight(io::Error::new(io::ErrorKind::PermissionDenied, why)))
        }
        Err(why) => Ok(Err(why.to_string())),
    }
}

/// Scans again for foreign threads, and restores all settings.
pub(crate) fn lower(shield: Shield) -> ShieldReport {
    let cleared = shield.report();
    let describe =
        |left: &[talea_os::shield::Unmoved]| left.iter().map(ToString::to_string).collect();
    let mut report = ShieldReport {
        threads: cleared.threads,
        interrupts: cleared.interrupts,
        not_moved: describe(&cleared.unmoved),
        foreign_threads: describe(&shield.foreign()),
        ..ShieldReport::default()
    };
    let restored = shield.lower();
    (report.restored, report.changed) = (restored.restored, restored.skipped);
    report
}
