//! Tests of the command line: the real binary in a scratch folder.
//!
//! Model: most tests use a daemon that the test itself implements ([`fake`]), so every reply,
//! refusal and failure is available without rights. Texts are compared with files under
//! `snapshots/`, which `TALEA_BLESS=1` rewrites. Tests that need a real kernel and rights are in
//! [`live`].

mod analyze;
mod answers;
mod audit;
mod browser;
mod cases;
mod chains;
mod chapters;
mod check;
mod compare;
mod deploy;
mod execute;
mod exits;
mod fake;
mod generate;
mod generated;
mod harness;
mod hostile;
mod idle_band;
mod import;
mod intercept;
mod live;
mod live_answers;
mod live_cases;
mod manual;
mod mechanism;
mod new;
mod perfetto;
mod random;
mod repair;
mod rows;
mod run;
mod shares;
mod simulate;
#[path = "../../../talea-sim/tests/it/soak.rs"]
mod soak;
mod stops;
mod sweep;
mod synthesize;
mod systems;
mod witness;

/// Path of the binary under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_talea");
