//! Test that each claim of the papers has its tests.

use std::process::Command;

#[test]
fn every_claim_has_a_test() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("coverage").output().expect("xtask");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
