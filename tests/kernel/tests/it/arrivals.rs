//! A connection that is alone is watched for arrivals: nothing that it sends is left lying.

use rustix::process::Signal;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use talea_kernel_tests::{Bench, Daemon, config, kernel, needs_root};
use talea_os::{proc, seqpacket};
use talea_proto::message::Status;
use talea_proto::wire::decode_reply;
use talea_proto::{MESSAGE_MAX, Reply, Request, VERSION};

/// Longer than a hole in this machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// In the `events:` of an entry of an epoll set: reported when something arrives.
const EDGE: u32 = 1 << 31;

/// A connection that may ask before it has been answered.
struct Caller {
    socket: OwnedFd,
    sent: u32,
    heard: u32,
}

impl Caller {
    fn new(daemon: &Daemon) -> Caller {
        let socket = seqpacket::connect(daemon.socket(), PATIENCE).expect("a connection");
        let mut caller = Caller { socket, sent: 0, heard: 0 };
        caller.send(&Request::Hello { min: VERSION, max: VERSION });
        let said = caller.receive();
        assert!(matches!(said, Reply::Welcome { .. }), "{said:?}");
        caller
    }

    fn send(&mut self, request: &Request) {
        self.sent += 1;
        let mut buffer = vec![0; MESSAGE_MAX];
        let length = request.encode(self.sent, &mut buffer);
        seqpacket::send_waiting(&self.socket, &buffer[..length], None).expect("room in the socket");
    }

    fn receive(&mut self) -> Reply {
        let mut buffer = vec![0; MESSAGE_MAX];
        let received = seqpacket::recv_waiting(&self.socket, &mut buffer).expect("an answer in time");
        let (seq, reply) = decode_reply(&buffer[..received.len]).expect("a reply");
        self.heard += 1;
        assert_eq!(seq, self.heard, "answers come in the order of the requests");
        reply
    }

    fn status(&mut self) -> Status {
        self.send(&Request::Status);
        match self.receive() {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }
}

/// Whether a connection is watched for arrivals, from the kernel's account of the daemon's sets.
fn watches_arrivals(daemon: &Daemon) -> bool {
    let home = format!("/proc/{}", daemon.pid());
    let link = |fd: &str| std::fs::read_link(Path::new(&home).join("fd").join(fd)).unwrap_or_default();
    let sets = std::fs::read_dir(format!("{home}/fd")).expect("descriptors");
    let names = sets.map(|entry| entry.expect("a descriptor").file_name().into_string().expect("a number"));
    names.filter(|fd| link(fd).to_string_lossy().contains("[eventpoll]")).any(|set| {
        let text = std::fs::read_to_string(format!("{home}/fdinfo/{set}")).expect("a set's account");
        text.lines().any(|line| {
            let mut words = line.split_ascii_whitespace();
            let (Some("tfd:"), Some(fd), Some("events:"), Some(events)) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                return false;
            };
            let events = u32::from_str_radix(events, 16).expect("a mask");
            events & EDGE != 0 && link(fd).to_string_lossy().starts_with("socket:")
        })
    })
}

/// Asks until the daemon watches for arrivals; `false` when it never does.
fn becomes_alone(caller: &mut Caller, daemon: &Daemon) -> bool {
    (0..50).any(|_| {
        for _ in 0..32 {
            caller.status();
        }
        watches_arrivals(daemon)
    })
}

#[test]
fn who_is_alone_and_busy_is_watched_for_arrivals_until_quiet() {
    needs_root!();
    let bench = Bench::new("arrivals");
    let daemon = Daemon::start(&bench, &config::open());
    let mut caller = Caller::new(&daemon);
    assert!(!watches_arrivals(&daemon), "nobody has said more than hello");
    assert!(becomes_alone(&mut caller, &daemon));
    let quiet = Instant::now();
    while watches_arrivals(&daemon) {
        assert!(quiet.elapsed() < PATIENCE, "watched for arrivals although quiet");
        std::thread::sleep(Duration::from_millis(5));
    }
    // From then on nothing wakes the daemon: two questions are two wake-ups.
    let before = caller.status().wakeups;
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(caller.status().wakeups - before, 1);
}

#[test]
fn who_is_heard_beside_another_is_not_alone() {
    needs_root!();
    let bench = Bench::new("beside");
    let daemon = Daemon::start(&bench, &config::open());
    let (mut first, mut second) = (Caller::new(&daemon), Caller::new(&daemon));
    assert!(becomes_alone(&mut first, &daemon));
    second.status();
    assert!(!watches_arrivals(&daemon));
    first.status();
    assert!(becomes_alone(&mut second, &daemon));
    // Its end is heard, too.
    drop(second);
    let status = first.status();
    assert!(!watches_arrivals(&daemon));
    assert_eq!(status.sessions, 1);
}

/// Sends requests that can only be seen to arrive as one.
fn ask_ahead(caller: &mut Caller, daemon: &Daemon) {
    let stopped = || proc::stat(kernel::tid(daemon.pid())).expect("a daemon").state == b'T';
    daemon.signal(Signal::STOP);
    let asked = Instant::now();
    while !stopped() {
        assert!(asked.elapsed() < PATIENCE, "the daemon does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
    (0..3).for_each(|_| caller.send(&Request::Status));
    daemon.signal(Signal::CONT);
    for _ in 0..3 {
        let said = caller.receive();
        assert!(matches!(said, Reply::Status(_)), "{said:?}");
    }
}

#[test]
fn requests_sent_ahead_of_the_answers_are_all_answered() {
    needs_root!();
    let bench = Bench::new("ahead");
    let daemon = Daemon::start(&bench, &config::open());
    let mut caller = Caller::new(&daemon);
    // A hole in this machine, or a beat, may come between: then it was not watched for arrivals when it asked.
    let learned = (0..100).any(|_| {
        if !becomes_alone(&mut caller, &daemon) {
            return true;
        }
        ask_ahead(&mut caller, &daemon);
        false
    });
    assert!(learned, "watched for arrivals time and again although it asks ahead");
}
