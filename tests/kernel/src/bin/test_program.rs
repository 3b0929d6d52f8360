//! Program of a deployment: `ready MS` reports that it is ready after this time, `report PATH`
//! reports to another socket and ends, `threads COUNT` starts threads that leave their policy, and
//! `echo WORD` only waits.
#![forbid(unsafe_code)]

use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use talea_os::{Attr, Policy, Tid, sched};

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
        ["echo", _] => {}
        _ => panic!("ready MS | report PATH | threads COUNT | echo WORD"),
    }
    std::thread::sleep(Duration::from_mins(10));
}

fn report(path: &str) {
    let socket = UnixDatagram::unbound().expect("a socket");
    socket.send_to(b"READY=1", path).expect("the socket of the daemon");
    // The daemon identifies the sender by its process, so it must not end too early.
    std::thread::sleep(Duration::from_secs(2));
}
