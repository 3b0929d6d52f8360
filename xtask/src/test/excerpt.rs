//! Shortening of outputs for the end of a log.
//!
//! A server keeps only the last lines of a log. For this reason the end of a run repeats the first
//! and the last lines of a failed step, and the panic of a failed test.

/// Number of lines that an excerpt keeps from the beginning of a step, where compilers print the
/// first error.
const FIRST_LINES: usize = 12;
/// Number of lines that an excerpt keeps from the end of a step.
const LAST_LINES: usize = 24;
/// Number of characters that an excerpt keeps of a line, which may hold a whole structure.
const MAX_WIDTH: usize = 600;
/// First words of the lines by which cargo reports progress.
const PROGRESS: [&str; 8] = [
    "Compiling ",
    "Checking ",
    "Documenting ",
    "Downloading ",
    "Downloaded ",
    "Blocking ",
    "Locking ",
    "Updating ",
];

/// Returns the first and the last lines of an output, without cargo's progress.
pub(super) fn of(output: &[String]) -> Vec<String> {
    let is_progress = |line: &str| PROGRESS.iter().any(|word| line.trim_start().starts_with(word));
    let mut lines: Vec<_> = output.iter().filter(|line| !is_progress(line)).cloned().collect();
    if let Some(omitted) = lines.len().checked_sub(FIRST_LINES + LAST_LINES + 1) {
        let gap = format!("[{} lines omitted]", omitted + 1);
        lines.splice(FIRST_LINES..lines.len() - LAST_LINES, [gap]);
    }
    lines
}

/// Returns at most `limit` lines (four at least) of a failure, from its panic on, without the
/// stack.
pub(super) fn of_failure(output: &[String], limit: usize) -> Vec<String> {
    let limit = limit.max(4);
    let lines = without_stacks(output);
    let panic = lines.iter().position(|line| line.contains("panicked at")).unwrap_or(0);
    let from = panic.min(lines.len().saturating_sub(limit));
    let mut chosen: Vec<String> = lines[from..].iter().map(|line| narrow(line)).collect();
    if let Some(omitted) = chosen.len().checked_sub(limit + 1) {
        let first = limit * 2 / 3;
        // The mark takes the place of a line, so that the limit holds.
        let last = limit - first - 1;
        let gap = format!("[{} lines omitted]", omitted + 2);
        chosen.splice(first..chosen.len() - last, [gap]);
    }
    chosen
}

/// Returns the lines without stack traces, and without repeated, leading and trailing empty lines.
fn without_stacks(output: &[String]) -> Vec<&str> {
    let mut is_stack = false;
    let mut kept: Vec<&str> = Vec::new();
    for line in output {
        let rest = line.trim_start();
        if rest == "stack backtrace:" {
            is_stack = true;
        }
        let is_frame = rest.starts_with("at ") || rest.starts_with(|c: char| c.is_ascii_digit());
        let is_note = rest.starts_with("note: ") && rest.contains("`RUST_BACKTRACE");
        is_stack &= is_frame || rest == "stack backtrace:";
        let is_blank = rest.is_empty() && kept.last().is_none_or(|last| last.is_empty());
        if !(is_stack || is_note || is_blank) {
            kept.push(line);
        }
    }
    while kept.last().is_some_and(|line| line.trim().is_empty()) {
        kept.pop();
    }
    kept
}

fn narrow(line: &str) -> String {
    match line.char_indices().nth(MAX_WIDTH) {
        Some((at, _)) => format!("{}… [{} bytes in total]", &line[..at], line.len()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn both_ends_of_a_long_output_are_kept() {
        let mut output = lines("   Compiling talea-core v0.1.0 (crates/talea-core)");
        output.extend((0..100).map(|number| number.to_string()));
        let kept = of(&output);
        assert_eq!(kept.first().map(String::as_str), Some("0"));
        assert_eq!(
            kept[FIRST_LINES],
            format!("[{} lines omitted]", 100 - FIRST_LINES - LAST_LINES)
        );
        assert_eq!(kept.last().map(String::as_str), Some("99"));
        assert_eq!(of(&output[..37]).len(), 36, "a short one is whole");
    }

    #[test]
    fn the_panic_is_kept_and_the_stack_is_not() {
        let mut output = lines(&"noise\n".repeat(50));
        output.extend(lines("\nthread 'a' (1) panicked at x.rs:1:2:\nassertion failed: b"));
        output.extend(lines("stack backtrace:\n   0: f\n             at ./x.rs:3:4"));
        output.extend(lines("note: run with `RUST_BACKTRACE=1`\nafter\n\n"));
        let short = of_failure(&output, 6);
        assert!(short.len() <= 6, "{short:?}");
        assert!(short.contains(&"assertion failed: b".to_owned()), "{short:?}");
        assert_eq!(short.last().map(String::as_str), Some("after"));
        let is_stack = |line: &String| line.contains("x.rs:3:4") || line.contains("backtrace");
        assert!(!short.iter().any(is_stack), "{short:?}");
    }

    #[test]
    fn lines_after_a_panic_do_not_displace_it() {
        let mut output = lines("thread 'a' panicked at x.rs:1:2:\nleft: 1\nright: 2");
        output.extend(lines(&"a line of the daemon\n".repeat(90)));
        output.push("the end".to_owned());
        let short = of_failure(&output, 9);
        assert_eq!(short.len(), 9, "{short:?}");
        assert_eq!(short[..3], output[..3]);
        assert_eq!(short.last().map(String::as_str), Some("the end"));
        assert!(short.contains(&"[86 lines omitted]".to_owned()), "{short:?}");
    }

    #[test]
    fn a_wide_line_is_cut() {
        let short = of_failure(&["é".repeat(5000)], 9);
        assert!(short[0].chars().count() < MAX_WIDTH + 40, "{}", short[0].len());
    }
}
