//! How little it takes.

#[test]
fn l19_it_is_shorter_than_a_hundred_lines() {
    let code = include_str!("../src/lib.rs").lines().map(str::trim);
    let lines = code.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    assert!(lines < 100, "{lines} lines");
}
