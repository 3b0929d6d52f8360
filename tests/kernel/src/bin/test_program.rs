//! Program of a deployment: `ready MS` reports that it is ready after this time, `report PATH`
//! reports to another socket and ends, `threads COUNT` starts threads that leave their policy,
//! `periodic PERIOD COST` has periodic jobs (in milliseconds) and writes the late ones, and
//! `echo WORD` only waits.
#![forbid(unsafe_code)]

use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use talea_core::{Span, Work};
use talea_os::{Attr, Policy, Tid, clock, sched};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["ready", ms] => {
            std::thread::sleep(Duration::from_millis(ms.parse().expect("a number")));
            report(&std::env::var("NOTIFY_SOCKET").expect("a socket for readiness"));
        }
        ["report", path] => {
            report(path);
            return;
        }
        ["threads", count] => {
            for _ in 0..count.parse().expect("a number") {
                std::thread::Builder::new()
                    .stack_size(64 << 10)
                    .spawn(|| {
                        // Any thread may lower its own policy.
                        let ordinary = Attr::plain(Policy::NORMAL);
                        sched::set(Tid::current(), &ordinary).expect("a lower policy");
                        std::thread::sleep(Duration::from_mins(10));
                    })
                    .expect("a thread");
            }
        }
        ["periodic", period, cost] => {
            let ns = |word: &str| word.parse::<u64>().expect("a number") * 1_000_000;
            periodic(Span::from_ns(ns(period)), Work::from_ns(ns(cost)));
        }
        ["echo", _] => {}
        _ => panic!("ready MS | report PATH | threads COUNT | periodic PERIOD COST | echo WORD"),
    }
    std::thread::sleep(Duration::from_mins(10));
}

/// Executes periodic jobs. Writes the release and the end of each job that ends after the release
/// of the next one, and the number of jobs from time to time.
fn periodic(period: Span, cost: Work) -> ! {
    let mut release = clock::now();
    for number in 1_u64.. {
        release += period;
        clock::sleep_until(release);
        let end = clock::thread_cpu_time().checked_add(cost).expect("a short cost");
        while clock::thread_cpu_time() < end {}
        let ended = clock::now();
        if ended > release + period {
            say(&format!("late {} {}\n", release.as_ns(), ended.as_ns()));
        }
        if number.is_multiple_of(50) {
            say(&format!("jobs {number}\n"));
        }
    }
    unreachable!("jobs do not end")
}

/// Writes a line by one system call, beside other writers.
fn say(line: &str) {
    std::io::stderr().write_all(line.as_bytes()).expect("an open pipe");
}

fn report(path: &str) {
    let socket = UnixDatagram::unbound().expect("a socket");
    socket.send_to(b"READY=1", path).expect("the socket of the daemon");
    // The daemon identifies the sender by its process, so it must not end too early.
    std::thread::sleep(Duration::from_secs(2));
}
