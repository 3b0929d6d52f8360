//! Test of the server's number of lines.

#[test]
fn l19_the_server_has_fewer_than_a_hundred_lines_of_code() {
    let code = include_str!("../src/lib.rs").lines().map(str::trim);
    let lines = code.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    assert!(lines < 100, "{lines} lines");
}
