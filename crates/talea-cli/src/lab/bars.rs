//! What the measurements must reach, and whether they do. Ratios and bytes only: absolute times belong to the machine.

use super::ipc::{Row, Setting};
use super::samples::ratio;
use serde::Serialize;

/// One bar.
#[derive(Debug, Serialize)]
pub(super) struct Bar {
    pub(super) what: String,
    pub(super) found: String,
    pub(super) met: bool,
}

/// Create and change against a raw exchange, with nothing granted.
const ASK: f64 = 1.25;
/// The same with much granted, or many connected, against the same with nothing.
const GROWTH: f64 = 1.10;
/// Attach and detach against two raw exchanges and the direct calls.
const ATTACH: f64 = 2.0;
/// Memory of the daemon for a spec.
const BYTES: u64 = 1024;

/// Every bar that the rows have something to say about. Same core only: across, the machine's interrupts are measured.
pub(super) fn judge(rows: &[Row]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for row in rows.iter().filter(|row| row.setting.same_core && row.setting.instances == 1) {
        let plain = Setting { specs: 0, idle: 0, ..row.setting };
        if row.setting == plain {
            let create = bar(row, "create against raw", row.create_ratio, ASK);
            bars.push(also_inlined(create, row.create_inlined_ratio));
            let change = bar(row, "change against raw", row.change_ratio, ASK);
            bars.push(also_inlined(change, row.change_inlined_ratio));
            bars.push(bar(row, "attach and detach against raw and direct", row.attach_detach_ratio, ATTACH));
            continue;
        }
        if let Some(bytes) = row.bytes_per_spec {
            let found = format!("{bytes} bytes, at most {BYTES}");
            bars.push(Bar {
                what: format!("{}: memory per spec", name(&row.setting)),
                found,
                met: bytes < BYTES,
            });
        }
        let Some(empty) = rows.iter().find(|other| other.setting == plain) else { continue };
        // Each against its own baseline of the same minute.
        let grown = |now: f64, before: f64| ratio((now * 1000.0) as u64, (before * 1000.0) as u64);
        bars.push(bar(row, "growth of create", grown(row.create_ratio, empty.create_ratio), GROWTH));
        bars.push(bar(row, "growth of change", grown(row.change_ratio, empty.change_ratio), GROWTH));
    }
    bars
}

fn bar(row: &Row, what: &str, found: f64, most: f64) -> Bar {
    Bar {
        what: format!("{}: {what}", name(&row.setting)),
        found: format!("{found:.2}, at most {most:.2}"),
        met: found <= most,
    }
}

/// Says the ratio to the same exchange without the C library's functions, too.
fn also_inlined(bar: Bar, ratio: f64) -> Bar {
    Bar { found: format!("{} ({ratio:.2} against inlined system calls)", bar.found), ..bar }
}

fn name(setting: &Setting) -> String {
    format!("{} at {} specs, {} idle", setting.plugin.name(), setting.specs, setting.idle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::samples::Summary;
    use crate::lab::tasks::Kind;

    fn row(specs: usize, create_ratio: f64, bytes: Option<u64>) -> Row {
        let none = Summary::default();
        Row {
            setting: Setting { same_core: true, plugin: Kind::Rm, specs, idle: 0, instances: 1 },
            raw: none,
            raw_inlined: none,
            create: none,
            change: none,
            attach: none,
            detach: none,
            attach_detach: none,
            release: none,
            raw_small: none,
            direct: none,
            create_ratio,
            change_ratio: 1.0,
            release_ratio: 1.0,
            attach_detach_ratio: 2.5,
            create_inlined_ratio: 1.0,
            change_inlined_ratio: 1.0,
            bytes_per_spec: bytes,
            mirrored_bytes_per_spec: None,
        }
    }

    #[test]
    fn bars_are_met_or_missed_by_their_numbers() {
        let bars = judge(&[row(0, 1.25, None), row(16_384, 1.40, Some(1024))]);
        let missed: Vec<_> = bars.iter().filter(|bar| !bar.met).map(|bar| bar.what.as_str()).collect();
        let late = "rm at 16384 specs, 0 idle: growth of create";
        assert_eq!(
            missed,
            [
                "rm at 0 specs, 0 idle: attach and detach against raw and direct",
                "rm at 16384 specs, 0 idle: memory per spec",
                late
            ]
        );
        assert_eq!(bars.len(), 6);
    }
}
