//! Commands of the test agent that connect many times, and that measure connections.

use crate::lines;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use talea_os::seqpacket;

/// Maximum time for a connect and for a reply.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connects to `path`, sends `hello` unless it is empty, and disconnects, until `end`. Returns the
/// number of connections.
pub fn churn(path: &Path, hello: &[u8], end: Instant) -> u64 {
    let mut made = 0;
    while Instant::now() < end {
        if let Ok(socket) = seqpacket::connect(path, PATIENCE) {
            if !hello.is_empty() {
                let _ = seqpacket::send(&socket, hello, None);
            }
            made += 1;
        }
    }
    made
}

/// Holds `count` connections without a hello until `end`, and replaces those that the daemon
/// closes. Returns the number of connections.
pub fn hold(path: &Path, count: usize, end: Instant) -> u64 {
    let mut open: Vec<Option<OwnedFd>> = (0..count).map(|_| None).collect();
    let mut made = 0;
    while Instant::now() < end {
        for place in &mut open {
            if place.as_ref().is_none_or(seqpacket::has_ended) {
                *place = seqpacket::connect(path, PATIENCE).ok();
                made += u64::from(place.is_some());
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    made
}

/// Connects `count` times, waits for the answer to `hello` and disconnects. Returns the latencies
/// as `summary` does, and the number of connections without an answer.
pub fn probe(path: &Path, count: usize, hello: &[u8]) -> io::Result<String> {
    let mut failed = 0;
    let mut took = Vec::new();
    for _ in 0..count {
        std::thread::sleep(Duration::from_millis(2));
        let begun = Instant::now();
        let answered = seqpacket::connect(path, PATIENCE).and_then(|socket| {
            seqpacket::send_waiting(&socket, hello, None)?;
            seqpacket::recv_waiting(&socket, &mut [0; 4096])
        });
        match answered {
            Ok(received) if received.len > 0 => took.push(begun.elapsed()),
            _ => failed += 1,
        }
    }
    Ok(format!("{} {failed}", summary(took)))
}

/// Sends `message` on a connection `count` times, one after the other. Returns the latencies as
/// `summary` does.
pub fn ask_often(socket: &OwnedFd, count: usize, message: &[u8]) -> io::Result<String> {
    let mut took = Vec::new();
    for _ in 0..count {
        std::thread::sleep(Duration::from_millis(1));
        let begun = Instant::now();
        seqpacket::send_waiting(socket, message, None)?;
        seqpacket::recv_waiting(socket, &mut [0; 4096])?;
        took.push(begun.elapsed());
    }
    Ok(summary(took))
}

/// Returns the median, the 99th percentile and the maximum in microseconds.
fn summary(mut took: Vec<Duration>) -> String {
    took.sort_unstable();
    let at = |part: usize| {
        let index = (took.len() * part / 100).min(took.len().saturating_sub(1));
        took.get(index).map_or(0, Duration::as_micros)
    };
    format!("{} {} {}", at(50), at(99), at(100))
}

/// Executes one of these commands; `None` if the words are none.
pub fn obey(words: &[&str]) -> Option<io::Result<String>> {
    let number = |text: &str| text.parse::<u64>().map_err(io::Error::other);
    let end = |ms: &str| Ok::<_, io::Error>(Instant::now() + Duration::from_millis(number(ms)?));
    let made = match *words {
        ["churn", path, ms, hex] => lines::bytes(hex)
            .and_then(|hello| Ok(churn(Path::new(path), &hello, end(ms)?).to_string())),
        ["hold", path, count, ms] => number(count)
            .and_then(|count| Ok(hold(Path::new(path), count as usize, end(ms)?).to_string())),
        ["probe", path, count, hex] => lines::bytes(hex)
            .and_then(|hello| probe(Path::new(path), number(count)? as usize, &hello)),
        _ => return None,
    };
    Some(made)
}
