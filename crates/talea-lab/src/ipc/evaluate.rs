//! Thresholds of the exchange of messages.

use super::super::samples::median;
use super::super::thresholds::{Threshold, range};
use super::row::{IpcRow, Ratios, Setting};

/// Maximum ratio of create and change to a raw exchange, without any grants.
const MAX_REQUEST_RATIO: f64 = 1.25;
/// Maximum growth of an operation with many grants, or many connections, against none.
const MAX_GROWTH: f64 = 1.10;
/// Maximum ratio of attach and detach to two raw exchanges and the direct calls.
const MAX_ATTACH_RATIO: f64 = 2.0;
/// Limit of the daemon's memory per spec, in bytes.
const MAX_BYTES: u64 = 1024;

/// Evaluates each threshold for which there are rows. Only rows on the same core count, because
/// across cores the interrupts of the computer dominate.
pub(super) fn evaluate(rows: &[IpcRow]) -> Vec<Threshold> {
    let mut thresholds = Vec::new();
    for row in rows.iter().filter(|row| row.setting.same_core && row.setting.instances == 1) {
        let plain = Setting { specs: 0, idle: 0, ..row.setting };
        if row.setting == plain {
            let create = threshold(
                row,
                "create against raw",
                &of(row, |round| round.create_ratio),
                MAX_REQUEST_RATIO,
            );
            thresholds.push(also(create, row.ratios.create_inlined_ratio, "inlined system calls"));
            let change = threshold(
                row,
                "change against raw",
                &of(row, |round| round.change_ratio),
                MAX_REQUEST_RATIO,
            );
            thresholds.push(also(change, row.ratios.change_inlined_ratio, "inlined system calls"));
            let found = of(row, |round| round.attach_detach_calls_ratio);
            let attach = threshold(
                row,
                "attach and detach against raw and direct",
                &found,
                MAX_ATTACH_RATIO,
            );
            let looking = row.ratios.attach_detach_ratio;
            thresholds.push(also(
                attach,
                looking,
                "raw and calls that look at the thread as we do",
            ));
            continue;
        }
        if let Some(bytes) = row.bytes_per_spec {
            let found = format!("{bytes} bytes, at most {MAX_BYTES}");
            thresholds.push(Threshold {
                what: format!("{}: memory per spec", name(&row.setting)),
                found,
                passed: bytes < MAX_BYTES,
            });
        }
        let Some(empty) = rows.iter().find(|other| other.setting == plain) else { continue };
        let create = growth(row, empty, |round| round.create_ratio);
        thresholds.push(threshold(row, "growth of create", &create, MAX_GROWTH));
        let change = growth(row, empty, |round| round.change_ratio);
        thresholds.push(threshold(row, "growth of change", &change, MAX_GROWTH));
    }
    thresholds
}

/// Returns one ratio of each round.
fn of(row: &IpcRow, one: fn(&Ratios) -> f64) -> Vec<f64> {
    row.rounds.iter().map(one).collect()
}

/// Returns the growth of a ratio per round. The baseline of each round is of the same second.
fn growth(row: &IpcRow, empty: &IpcRow, one: fn(&Ratios) -> f64) -> Vec<f64> {
    let of_round = |(now, before)| one(now) / one(before);
    row.rounds.iter().zip(&empty.rounds).map(of_round).collect()
}

/// Compares the median of all rounds with its threshold. A missing measurement is not a number, and
/// fails.
fn threshold(row: &IpcRow, what: &str, rounds: &[f64], most: f64) -> Threshold {
    let found = median(rounds.iter().copied());
    let (low, high) = range(rounds.iter().copied());
    Threshold {
        what: format!("{}: {what}", name(&row.setting)),
        found: format!(
            "{found:.3} ({low:.2}-{high:.2} in {} rounds), at most {most:.2}",
            rounds.len()
        ),
        passed: found <= most,
    }
}

/// Adds the ratio to another baseline to the text of a threshold.
fn also(threshold: Threshold, ratio: f64, to: &str) -> Threshold {
    Threshold { found: format!("{} ({ratio:.2} against {to})", threshold.found), ..threshold }
}

fn name(setting: &Setting) -> String {
    format!("{} at {} specs, {} idle", setting.plugin.name(), setting.specs, setting.idle)
}

#[cfg(test)]
mod tests {
    use super::super::row::Baselines;
    use super::*;
    use crate::samples::Summary;
    use crate::tasks::Kind;

    fn row(specs: usize, create: [f64; 3], bytes: Option<u64>) -> IpcRow {
        let none = Summary::default();
        let round = |create_ratio| Ratios {
            create_ratio,
            change_ratio: 1.0,
            release_ratio: 1.0,
            attach_detach_ratio: 2.5,
            attach_detach_calls_ratio: 3.0,
            create_inlined_ratio: 1.0,
            change_inlined_ratio: 1.0,
        };
        IpcRow {
            setting: Setting { same_core: true, plugin: Kind::Rm, specs, idle: 0, instances: 1 },
            baselines: Baselines {
                raw: none,
                raw_inlined: none,
                raw_small: none,
                direct: none,
                direct_calls: none,
            },
            create: none,
            change: none,
            attach: none,
            detach: none,
            attach_detach: none,
            release: none,
            ratios: round(median(create.into_iter())),
            rounds: create.into_iter().map(round).collect(),
            bytes_per_spec: bytes,
            mirrored_bytes_per_spec: None,
        }
    }

    #[test]
    fn a_threshold_is_missed_by_little_and_by_what_was_not_measured() {
        let judged = |create| evaluate(&[row(0, [create; 3], None)])[0].passed;
        assert!(judged(1.25));
        assert!(!judged(1.2501));
        assert!(!judged(f64::NAN));
    }

    #[test]
    fn thresholds_are_met_or_missed_by_their_numbers() {
        let thresholds =
            evaluate(&[row(0, [1.25, 1.9, 1.2], None), row(16_384, [1.40, 2.2, 1.2], Some(1024))]);
        let missed: Vec<_> = thresholds
            .iter()
            .filter(|threshold| !threshold.passed)
            .map(|threshold| threshold.what.as_str())
            .collect();
        let late = "rm at 16384 specs, 0 idle: growth of create";
        assert_eq!(
            missed,
            [
                "rm at 0 specs, 0 idle: attach and detach against raw and direct",
                "rm at 16384 specs, 0 idle: memory per spec",
                late
            ]
        );
        assert_eq!(thresholds.len(), 6);
        // The median round decides; growth is computed per round.
        assert!(
            thresholds[0].found.starts_with("1.250 (1.20-1.90 in 3 rounds), at most 1.25"),
            "{}",
            thresholds[0].found
        );
        assert!(
            thresholds[4].found.starts_with("1.120 (1.00-1.16 in 3 rounds)"),
            "{}",
            thresholds[4].found
        );
    }
}
