//! The code in the manual is compiled, and its first program runs.

#[path = "../../examples/manual.rs"]
mod program;

use std::path::Path;
use talea_kernel_tests::{Bench, kernel, needs};

/// Removes blanks, line ends, comments, and the commas that depend on line ends.
fn bare(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    lines.flat_map(str::chars).filter(|c| !c.is_whitespace() && *c != ',').collect()
}

#[test]
fn y1_the_rust_code_of_the_manual_compiles_and_its_fork_and_join_runs() {
    let read = |path: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(root.join(path)).expect("a file of the tree")
    };
    let (manual, source) =
        (read("../../docs/manual/runtime.md"), bare(&read("examples/manual.rs")));
    let blocks: Vec<&str> = manual
        .split("\n```rust\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("```")?.0))
        .collect();
    assert!(blocks.len() >= 4, "{blocks:?}");
    for block in blocks {
        let code = block.lines().filter(|line| !line.starts_with("use "));
        let code = code.collect::<Vec<_>>().join("\n");
        // The manual marks omissions.
        for part in code.split("// ...") {
            assert!(source.contains(&bare(part)), "examples/manual.rs does not have: {part}");
        }
    }
    let _bench = Bench::new("runtime_manual");
    needs!("two CPUs", kernel::cpus().iter().count() >= 2);
    program::main().expect("it runs");
}
