//! Rows of the coverage table: those of `docs/requirements.md`, each with the tests that it needs.
//!
//! A row needs a deterministic test (`sim`: pure crates) and a live test (`vm`: real kernel, real
//! daemon, C programs). The lists below have the rows that leave nothing to test in a column.

use anyhow::{Context, Result};

/// Whether a row must have a test in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A test is required.
    Asked,
    /// No test is required yet. The table lists existing tests.
    Later,
    /// There is nothing to test, for this reason. If the reason is empty, the reason of the whole
    /// column applies.
    Not(&'static str),
}

/// One row of the table.
pub(crate) struct Row<'a> {
    /// Id as `docs/requirements.md` has it: `R13`, `10.5`.
    pub(crate) id: &'a str,
    /// Prefix of the names of the row's tests: `r13`, `retif_10_5`.
    pub(crate) tests: String,
    pub(crate) claim: &'a str,
    pub(crate) sim: Need,
    pub(crate) vm: Need,
}

/// Title of a table, its heading in `docs/requirements.md`, and the prefix of its tests.
const TABLES: [(&str, &str, &str); 6] = [
    ("Claims of ReTiF", "## R: ReTiF", ""),
    ("Defects of the original", "### R38", "retif_"),
    ("Claims of SF3P", "## S: SF3P", ""),
    ("Claims of YASMIN", "## Y: YASMIN", ""),
    ("Claims of L3C in PikeOS", "## L: L3C", ""),
    ("Deployments", "## D: deployments", ""),
];

/// Rows of ReTiF that only processes and the kernel decide. A defect between a process and the
/// kernel has no deterministic model.
const NOT_SIM: [&str; 18] = [
    "r4",
    "r5",
    "r6",
    "r26",
    "r30",
    "r33",
    "r34",
    "retif_m7",
    "retif_d1",
    "retif_d2",
    "retif_d3",
    "retif_d5",
    "retif_s13",
    "retif_w3",
    "retif_w14",
    "retif_w15",
    "retif_w16",
    "retif_w17",
];
/// Rows of ReTiF that pure code decides. No test machine has more than 32 CPUs (M6).
const NOT_VM: [&str; 8] = ["r9", "r11", "r16", "r19", "r27", "r36", "r37", "retif_m6"];
/// Rows of the papers on scheduling that a simulation cannot test, with the reasons.
const LIVE: [(&str, &str); 21] = [
    ("s9", "what a machine spends is not simulated"),
    ("s10", "what a machine spends is not simulated"),
    ("s21", "simulated work is exact"),
    ("y15", "the scheduler machine does not depend on how a driver waits"),
    ("y17", "simulated wake-ups have no latency"),
    ("y20", "a simulation has no page faults"),
    ("y22", "the simulator never needs it"),
    ("l20", "there are no threads in a simulation"),
    ("d13", "the analysis has tests of its own"),
    ("d15", "a simulation has no threads to change"),
    ("d17", "the simulated computer has no processes"),
    ("d18", "the simulated computer has no users and no control groups"),
    ("d19", "the simulated computer has no sockets"),
    ("d20", "the simulated computer has no users"),
    ("d21", "what a kernel needs for many threads is not simulated"),
    ("d22", "the command-line tool is tested against a real daemon"),
    ("d26", "the ledger is tested with exclusive specs of any executor"),
    ("d33", "the simulated figures are those of l17"),
    ("d34", "a simulated switch takes no time"),
    ("d35", "the faults of the simulated computer are those of d1 and d2"),
    ("d36", "a simulation has no governor"),
];

/// Returns the tables of `docs/requirements.md`, each with its title.
pub(crate) fn tables(text: &str) -> Result<Vec<(&'static str, Vec<Row<'_>>)>> {
    let table = |(title, heading, prefix)| {
        let at = text.find(heading).with_context(|| format!("no heading {heading}"))?;
        let part = text[at..].split("\n#").next().unwrap_or_default();
        let lines = part.lines().filter_map(|line| line.strip_prefix("| "));
        let rows = lines.skip(2).map(|line| {
            let (id, rest) = line.split_once('|').context("a row with one cell")?;
            let claim = rest.split('|').next().unwrap_or_default().trim();
            anyhow::Ok(Row::new(id.trim(), prefix, claim))
        });
        Ok((title, rows.collect::<Result<_>>()?))
    };
    TABLES.into_iter().map(table).collect()
}

impl<'a> Row<'a> {
    fn new(id: &'a str, prefix: &str, claim: &'a str) -> Row<'a> {
        let tests = format!("{prefix}{}", id.to_lowercase().replace('.', "_"));
        let is_retif = tests.starts_with('r');
        let live = LIVE.iter().find(|(row, _)| *row == tests);
        let sim = match live {
            Some((_, why)) => Need::Not(why),
            None if NOT_SIM.contains(&&*tests) => Need::Not(""),
            None => Need::Asked,
        };
        let vm = match is_retif {
            _ if NOT_VM.contains(&&*tests) => Need::Not(""),
            true => Need::Asked,
            false => Need::Later,
        };
        Row { id, tests, claim, sim, vm }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_is_a_row_and_every_exception_is_one() {
        let text = std::fs::read_to_string(crate::shell::root().join("docs/requirements.md"))
            .expect("the requirements");
        let tables = tables(&text).expect("all tables");
        let counts: Vec<usize> = tables.iter().map(|(_, rows)| rows.len()).collect();
        assert_eq!(counts, [37, 47, 23, 22, 24, 36]);
        let rows: Vec<&Row<'_>> = tables.iter().flat_map(|(_, rows)| rows).collect();
        assert!(rows.iter().all(|row| row.claim.contains('.')), "each claim is a sentence");
        let exceptions = NOT_SIM.iter().chain(&NOT_VM).chain(LIVE.iter().map(|(row, _)| row));
        for exception in exceptions {
            assert_eq!(
                rows.iter().filter(|row| row.tests == **exception).count(),
                1,
                "{exception}"
            );
        }
        let unique: std::collections::BTreeSet<&String> =
            rows.iter().map(|row| &row.tests).collect();
        assert_eq!(unique.len(), rows.len());
    }
}
