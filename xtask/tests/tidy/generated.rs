//! Test that generated files are fresh.

use std::process::Command;

#[test]
fn the_coverage_table_is_fresh() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["coverage", "--check"])
        .output()
        .expect("xtask");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
