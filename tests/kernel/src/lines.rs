//! Protocol of the helper programs of the tests: a line of words in, a line out.

use std::io::{self, BufRead, Write};

/// Answers each line of the standard input until that ends, then ends the process: threads that
/// spin or sleep are not waited for. An error is said as `errno NUMBER`, or `error …` where the
/// system gave it none.
pub fn serve(mut obey: impl FnMut(&[&str]) -> io::Result<String>) -> ! {
    let mut out = io::stdout();
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let words: Vec<&str> = line.split(' ').collect();
        let said = obey(&words).unwrap_or_else(|error| match error.raw_os_error() {
            Some(number) => format!("errno {number}"),
            None => format!("error {error}"),
        });
        if writeln!(out, "{said}").and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    std::process::exit(0)
}
