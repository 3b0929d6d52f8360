//! Test of the policy's number of lines.

#[test]
fn s19_the_policy_has_fewer_than_sixty_lines_of_code() {
    let code = include_str!("../src/lib.rs").lines().map(str::trim);
    let lines = code.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    assert!(lines < 60, "{lines} lines");
}
