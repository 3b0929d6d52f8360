//! Client of the echo server: sends requests at given times and measures their response times.

use super::{EchoReply, MESSAGE, answer};
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Read;
use std::net::{Ipv4Addr, UdpSocket};
use talea_core::{Monotonic, Span, Time};
use talea_os::clock;
use talea_study::exit::Exit;

/// Options of `talea-lab ask`.
#[derive(clap::Args, Debug)]
pub(crate) struct AskArgs {
    /// Port of the server.
    #[arg(long)]
    port: u16,
    /// Nanoseconds of the machine's monotonic clock that the times count from.
    #[arg(long, value_name = "NS")]
    zero: u64,
    /// How long it waits for answers after the last request, in milliseconds.
    #[arg(long, value_name = "MS", default_value = "1000")]
    patience: u64,
}

/// Times of a request since time zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestTimes {
    /// Instant at which the request was sent.
    pub(crate) sent: Time,
    /// Instant at which the reply arrived. `None` without a reply.
    pub(crate) answered: Option<Time>,
}

/// Measurements of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientReport {
    pub(crate) asked: Vec<RequestTimes>,
    /// Intervals since time zero in which the client should have been awake and was not. The client
    /// reads the clock at least once per [`PROBE_PERIOD`].
    pub(crate) stalls: Vec<(Time, Time)>,
}

/// Maximum distance between two readings of the clock.
const PROBE_PERIOD: Span = Span::from_ns(1_000_000);
/// Lateness of an ordinary wake-up. A stall is longer.
const WAKEUP_LATENCY: Span = Span::from_ns(300_000);

/// Sends requests at the times on standard input (in nanoseconds, ordered, one per line). Prints
/// when each request was sent and answered.
pub(crate) fn ask(args: &AskArgs) -> anyhow::Result<Exit> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read the times")?;
    let times = text
        .lines()
        .map(str::parse)
        .collect::<Result<Vec<u64>, _>>()
        .context("a time is no number")?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("no socket")?;
    socket.connect((Ipv4Addr::LOCALHOST, args.port))?;
    socket.set_nonblocking(true)?;
    let zero = Monotonic::from_ns(args.zero);
    let patience = Span::from_ns(args.patience * 1_000_000);
    let report = send_requests(&socket, zero, &times, patience);
    talea_study::output::print(&lines(&report))?;
    Ok(Exit::Ok)
}

/// Returns the message of a request. All messages, and therefore all replies, are different.
fn message(number: usize) -> [u8; MESSAGE] {
    let mut message = [0x5a; MESSAGE];
    message[..8].copy_from_slice(&(number as u64).to_le_bytes());
    message
}

fn send_requests(
    socket: &UdpSocket,
    zero: Monotonic,
    times: &[u64],
    patience: Span,
) -> ClientReport {
    // All messages are prepared before the first request.
    let messages: Vec<_> = (0..times.len()).map(message).collect();
    let whose: HashMap<EchoReply, usize> =
        messages.iter().enumerate().map(|(number, message)| (answer(message), number)).collect();
    let mut report = ClientReport { asked: Vec::with_capacity(times.len()), stalls: Vec::new() };
    let all = &mut report.asked;
    let mut open = 0;
    let since = |now: Monotonic| now.run_time(zero);
    let last = times.last().map_or(0, |&last| last);
    let end = zero + Span::from_ns(last) + patience;
    loop {
        let due = times.get(all.len()).map(|&at| zero + Span::from_ns(at));
        let now = clock::now();
        if due.is_some_and(|due| due <= now) {
            // If the server is not ready yet, the request has no reply; this is no error.
            let _ = socket.send(&messages[all.len()]);
            all.push(RequestTimes { sent: since(now), answered: None });
            open += 1;
            continue;
        }
        if due.is_none() && (open == 0 || now >= end) {
            return report;
        }
        let wakes = (now + PROBE_PERIOD).min(due.unwrap_or(end));
        let until = wakes.as_ns().saturating_sub(now.as_ns());
        let mut waits = [PollFd::new(socket, PollFlags::IN)];
        let _ = poll(&mut waits, Some(&Timespec { tv_sec: 0, tv_nsec: until as i64 }));
        let mut got: EchoReply = [0; 20];
        while let Ok(length) = socket.recv(&mut got) {
            let now = clock::now();
            let number = whose.get(&got).filter(|_| length == got.len());
            if let Some(asked) = number
                .and_then(|&number| all.get_mut(number))
                .filter(|asked| asked.answered.is_none())
            {
                asked.answered = Some(since(now));
                open -= 1;
            }
        }
        let now = clock::now();
        if now > wakes + WAKEUP_LATENCY {
            report.stalls.push((since(wakes), since(now)));
        }
    }
}

fn lines(report: &ClientReport) -> String {
    let mut text = String::new();
    for asked in &report.asked {
        let answered = asked.answered.map_or_else(|| "-".to_owned(), |at| at.as_ns().to_string());
        let _ = writeln!(text, "asked {} {answered}", asked.sent.as_ns());
    }
    for (from, to) in &report.stalls {
        let _ = writeln!(text, "stall {} {}", from.as_ns(), to.as_ns());
    }
    text
}

/// Parses the output of [`ask`].
pub(crate) fn read(text: &str) -> anyhow::Result<ClientReport> {
    let mut report = ClientReport::default();
    let at = |text: &str| text.parse().ok().map(Time::from_ns);
    let mut one = |line: &str| {
        let (word, times) = line.split_once(' ')?;
        let (from, to) = times.split_once(' ')?;
        match word {
            "asked" => {
                let answered = if to == "-" { None } else { Some(at(to)?) };
                report.asked.push(RequestTimes { sent: at(from)?, answered });
            }
            "stall" => report.stalls.push((at(from)?, at(to)?)),
            _ => return None,
        }
        Some(())
    };
    text.lines().try_for_each(&mut one).context("what was asked can't be read")?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_answered_once_and_what_is_lost_stays_without_an_answer() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        client.connect(server.local_addr().expect("its place")).expect("connected");
        client.set_nonblocking(true).expect("a flag");
        let answers = std::thread::spawn(move || {
            let mut request = [0; MESSAGE];
            for number in 0..3 {
                let (length, from) = server.recv_from(&mut request).expect("a request");
                // The second request is lost; the others are answered twice, and a reply to no
                // request follows.
                for what in [answer(&request[..length]), answer(&request[..length]), [7; 20]] {
                    if number != 1 {
                        server.send_to(&what, from).expect("an answer");
                    }
                }
            }
        });
        let zero = clock::now();
        let report =
            send_requests(&client, zero, &[0, 2_000_000, 4_000_000], Span::from_ns(200_000_000));
        answers.join().expect("it ends");
        let all = &report.asked;
        let has: Vec<bool> = all.iter().map(|asked| asked.answered.is_some()).collect();
        assert_eq!(has, [true, false, true]);
        assert!(all[2].sent >= Time::from_ns(4_000_000) && all[2].answered > Some(all[2].sent));
        assert_eq!(read(&lines(&report)).expect("what was written"), report);
    }
}
