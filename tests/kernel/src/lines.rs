//! Protocol of the helper programs of the tests: each input line of words has one output line.

use std::io::{self, BufRead, Write};

/// Answers each line of the standard input until its end, then ends the process without waiting for
/// its threads. An error is answered by `errno NUMBER`, or by `error …` if it has no number.
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

/// Returns the bytes of a hexadecimal text.
pub fn bytes(hex: &str) -> io::Result<Vec<u8>> {
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect::<Option<_>>()
        .ok_or_else(|| io::Error::other("not hexadecimal"))
}
