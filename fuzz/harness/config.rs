//! Properties of `talea-config` that must hold for any bytes. Panics where one does not.

use talea_config::duration::{parse_reservation, parse_span};
use talea_config::write::write;
use talea_config::{self as config, Diagnostic, FILE_MAX, Names, Severity, Target, diagnostic};
use talea_core::CpuSet;
use talea_core::setup::Setup;

/// Every name exists: the meaning of a file must not depend on the machine that fuzzes it.
pub(crate) struct AnyName;

impl Names for AnyName {
    fn user(&self, name: &str) -> Option<u32> {
        // FNV-1a; below the kernel's "no id".
        let hash = name
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
        Some(hash.min(u32::MAX - 1))
    }

    fn group(&self, name: &str) -> Option<u32> {
        self.user(name)
    }
}

/// A configuration file.
pub(crate) fn config(bytes: &[u8]) {
    let target = Target::new(CpuSet::first(8));
    match config::read_bytes(bytes, "fuzz", &AnyName, &target) {
        Err(found) => {
            assert!(
                found.iter().any(|d| d.severity == Severity::Error),
                "refused without an error"
            );
            complaints_are_sound(&found, bytes);
        }
        Ok(loaded) => {
            assert!(
                loaded.warnings.iter().all(|d| d.severity == Severity::Warning),
                "loaded with an error"
            );
            complaints_are_sound(&loaded.warnings, bytes);
            assert_eq!(loaded.setup.plugins.len(), loaded.plugin_origins.len());
            let text = write(&loaded.daemon, &loaded.setup);
            if text.len() > FILE_MAX {
                return;
            }
            let again = config::read(&text, "again", &AnyName, &target)
                .unwrap_or_else(|found| panic!("{}\n{text}", diagnostic::render(&found, false)));
            assert_eq!(again.daemon, loaded.daemon);
            assert_eq!(without_origins(again.setup), without_origins(loaded.setup));
        }
    }
}

fn without_origins(mut setup: Setup) -> Setup {
    for rule in &mut setup.rules {
        rule.origin.clear();
    }
    setup
}

/// Places exist, order is the file's, and printing them does nothing to a terminal.
pub(crate) fn complaints_are_sound(found: &[Diagnostic], bytes: &[u8]) {
    assert!(found.len() <= 101, "complaints are bounded");
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let lines: Vec<&str> = text.split('\n').collect();
    let mut last = (0, 0);
    for d in found {
        let line = lines.get(d.line as usize - 1).unwrap_or_else(|| panic!("no such line: {d}"));
        assert!(d.column as usize <= line.chars().count() + 1, "no such column: {d}");
        assert!((d.line, d.column) >= last, "out of order: {d}");
        last = (d.line, d.column);
        assert!(
            ![&d.what, &d.why, &d.remedy].iter().any(|s| s.trim().is_empty()),
            "a sentence is missing: {d:?}"
        );
        assert!(!d.render(false).chars().any(|c| c.is_control() && c != '\n'), "{d:?}");
        assert!(!d.to_string().chars().any(char::is_control), "{d:?}");
    }
}

/// A duration, and a reservation.
pub(crate) fn duration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match parse_span(&text) {
        Ok(span) => assert_eq!(parse_span(&span.to_string()), Ok(span), "{text}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Err(error) = parse_reservation(&text) {
        assert!(!error.to_string().is_empty());
    }
}
