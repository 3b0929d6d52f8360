//! As much of an output as fits at the end of a log.
//!
//! A server shows the last lines of a log only, so the end of a run repeats what matters: of a step
//! its first and last lines, of a failed test its panic.

use std::collections::VecDeque;

/// Lines of a step that are kept from its beginning, where compilers put the first error, and from
/// its end.
const FIRST: usize = 12;
const LAST: usize = 24;
/// A line may be a whole structure in one piece.
const WIDTH: usize = 600;
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

/// The first and the last lines of an output.
#[derive(Debug, Default)]
pub(crate) struct Excerpt {
    first: Vec<String>,
    last: VecDeque<String>,
    left_out: usize,
}

impl Excerpt {
    pub(crate) fn line(&mut self, line: &str) {
        // Cargo's progress: of a fresh build a hundred lines, and none of them says what is wrong.
        if PROGRESS.iter().any(|word| line.trim_start().starts_with(word)) {
            return;
        }
        if self.first.len() < FIRST {
            self.first.push(line.to_owned());
            return;
        }
        if self.last.len() == LAST {
            self.last.pop_front();
            self.left_out += 1;
        }
        self.last.push_back(line.to_owned());
    }

    pub(crate) fn lines(self) -> Vec<String> {
        let gap = (self.left_out > 0).then(|| format!("[{} lines left out]", self.left_out));
        self.first.into_iter().chain(gap).chain(self.last).collect()
    }
}

/// What a failure said in at most `limit` lines (four at least): from its panic on, without the
/// stack.
pub(crate) fn shortened(says: &[String], limit: usize) -> Vec<String> {
    let limit = limit.max(4);
    let lines = without_stacks(says);
    let chosen: Vec<String> = if lines.len() <= limit {
        lines.iter().map(|&line| line.to_owned()).collect()
    } else {
        let panic = lines.iter().position(|line| line.contains("panicked at")).unwrap_or(0);
        let from = panic.min(lines.len() - limit);
        let rest = &lines[from..];
        let (ahead, behind) = (limit * 2 / 3, limit - limit * 2 / 3);
        let gap = rest.len() - ahead.min(rest.len()) - behind.min(rest.len());
        let said = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        let mut chosen = said(&rest[..ahead]);
        if gap > 0 {
            // In the place of a line, so that the limit holds.
            chosen.push(format!("[{} lines left out]", gap + 1));
            chosen.extend(said(&rest[rest.len() - behind + 1..]));
        } else {
            chosen.extend(said(&rest[ahead..]));
        }
        chosen
    };
    chosen.iter().map(|line| narrow(line)).collect()
}

/// Without what `RUST_BACKTRACE` adds, and without empty lines at both ends.
fn without_stacks(says: &[String]) -> Vec<&str> {
    let mut inside = false;
    let mut kept: Vec<&str> = Vec::new();
    for line in says {
        let rest = line.trim_start();
        if rest == "stack backtrace:" {
            inside = true;
        }
        let frame = rest.starts_with("at ") || rest.starts_with(|c: char| c.is_ascii_digit());
        let note = rest.starts_with("note: ") && rest.contains("`RUST_BACKTRACE");
        inside &= frame || rest == "stack backtrace:";
        let blank = rest.is_empty() && kept.last().is_none_or(|last| last.is_empty());
        if !(inside || note || blank) {
            kept.push(line);
        }
    }
    while kept.last().is_some_and(|line| line.trim().is_empty()) {
        kept.pop();
    }
    kept
}

fn narrow(line: &str) -> String {
    match line.char_indices().nth(WIDTH) {
        Some((at, _)) => format!("{}… [{} bytes in all]", &line[..at], line.len()),
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
        let mut excerpt = Excerpt::default();
        excerpt.line("   Compiling talea-core v0.1.0 (crates/talea-core)");
        (0..100).for_each(|number| excerpt.line(&number.to_string()));
        let kept = excerpt.lines();
        assert_eq!(kept.first().map(String::as_str), Some("0"));
        assert_eq!(kept[FIRST], format!("[{} lines left out]", 100 - FIRST - LAST));
        assert_eq!(kept.last().map(String::as_str), Some("99"));
    }

    #[test]
    fn the_panic_is_kept_and_the_stack_is_not() {
        let mut says = lines(&"noise\n".repeat(50));
        says.extend(lines(
            "\nthread 'a' (1) panicked at x.rs:1:2:\nassertion failed: b\nstack backtrace:",
        ));
        says.extend(lines(
            "   0: f\n             at ./x.rs:3:4\nnote: run with `RUST_BACKTRACE=1`\nafter\n\n",
        ));
        let short = shortened(&says, 6);
        assert!(short.len() <= 6, "{short:?}");
        assert!(short.contains(&"assertion failed: b".to_owned()), "{short:?}");
        assert_eq!(short.last().map(String::as_str), Some("after"));
        assert!(
            !short.iter().any(|line| line.contains("x.rs:3:4") || line.contains("backtrace")),
            "{short:?}"
        );
    }

    #[test]
    fn what_follows_a_panic_does_not_push_it_out() {
        let mut says = lines("thread 'a' panicked at x.rs:1:2:\nleft: 1\nright: 2");
        says.extend(lines(&"the daemon said\n".repeat(90)));
        says.push("the end".to_owned());
        let short = shortened(&says, 9);
        assert_eq!(short.len(), 9, "{short:?}");
        assert_eq!(short[..3], says[..3]);
        assert_eq!(short.last().map(String::as_str), Some("the end"));
        assert!(short.contains(&"[86 lines left out]".to_owned()), "{short:?}");
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let short = shortened(&["é".repeat(5000)], 9);
        assert!(short[0].chars().count() < WIDTH + 40, "{}", short[0].len());
    }
}
