//! Commands of the test agent that connect many times, and that measure connections.

use crate::lines;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use talea_os::seqpacket;
use talea_proto::Reply;
use talea_proto::wire::decode_reply;

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

/// Connects `count` times with pauses, and waits for the answers to `hello` and to `status` each
/// time. Returns the rounds of the daemon's event loop from the connect to the last answer: the
/// median, the 99th percentile, the maximum, and the number of connections without an answer.
///
/// Rounds and not time: no other process that gets CPU time adds to them.
pub fn probe(path: &Path, count: usize, hello: &[u8], status: &[u8]) -> io::Result<String> {
    let answer = |socket: &OwnedFd, message: &[u8]| -> io::Result<u64> {
        let mut reply = [0; 4096];
        seqpacket::send_waiting(socket, message, None)?;
        let length = seqpacket::recv_waiting(socket, &mut reply)?.len;
        match decode_reply(&reply[..length]) {
            Ok((_, Reply::Status(status))) => Ok(status.wakeups),
            Ok((_, Reply::Welcome { .. })) => Ok(0),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    };
    let connect = || {
        let socket = seqpacket::connect(path, PATIENCE)?;
        answer(&socket, hello)?;
        let now = answer(&socket, status)?;
        Ok::<_, io::Error>((socket, now))
    };
    let (mut failed, mut rounds) = (0, Vec::new());
    let (mut last, _) = connect()?;
    for _ in 0..count {
        std::thread::sleep(Duration::from_millis(2));
        let before = answer(&last, status)?;
        match connect() {
            Ok((socket, now)) => {
                rounds.push(now - before);
                last = socket;
            }
            Err(_) => failed += 1,
        }
    }
    rounds.sort_unstable();
    let [median, p99, most] = [50, 99, 100].map(|part| at(&rounds, part).unwrap_or(0));
    Ok(format!("{median} {p99} {most} {failed}"))
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
    let [median, p99, most] =
        [50, 99, 100].map(|part| at(&took, part).map_or(0, |took| took.as_micros()));
    format!("{median} {p99} {most}")
}

/// Returns the value at this per cent of a sorted list.
fn at<T: Copy>(sorted: &[T], per_cent: usize) -> Option<T> {
    let index = (sorted.len() * per_cent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied()
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
        ["probe", path, count, hello, status] => lines::bytes(hello).and_then(|hello| {
            probe(Path::new(path), number(count)? as usize, &hello, &lines::bytes(status)?)
        }),
        _ => return None,
    };
    Some(made)
}
