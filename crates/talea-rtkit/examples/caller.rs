//! A program that calls `org.freedesktop.RealtimeKit1` by the commands of a test, usually as an
//! unprivileged user. Each input line is a command, and each command has one output line.
#![forbid(unsafe_code)]

use rustix::process::{Resource, Rlimit, setrlimit};
use std::io;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use talea_kernel_tests::lines;
use zbus::OwnedVariant;
use zbus::connection::Builder;
use zbus::{Connection, DBusError, Error, Message};

/// Sends a method call and waits for the reply.
macro_rules! send {
    ($bus:expr, $interface:expr, $member:expr, $body:expr) => {
        zbus::block_on($bus.call_method(
            Some(NAME),
            "/org/freedesktop/RealtimeKit1",
            Some($interface),
            $member,
            $body,
        ))
    };
}

/// Calls a method of the interface.
macro_rules! call {
    ($bus:expr, $member:expr, $body:expr $(,)?) => {
        said(send!($bus, NAME, $member, $body), |_| Ok("ok".to_owned()))
    };
}

const NAME: &str = "org.freedesktop.RealtimeKit1";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

fn main() {
    let connection = zbus::block_on(connect()).expect("a bus");
    lines::serve(|words| obey(&connection, words));
}

/// Connects to the bus. A call without a reply is an error, and no hung test.
async fn connect() -> Result<Connection, Error> {
    Builder::system().method_timeout(Duration::from_secs(20)).build().await
}

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse().map_err(|_| io::Error::other("not a number"))
}

fn obey(bus: &Connection, words: &[&str]) -> io::Result<String> {
    Ok(match *words {
        ["pid"] => std::process::id().to_string(),
        // A thread that sleeps until the end of the process.
        ["thread"] => {
            let (sender, receiver) = channel();
            std::thread::spawn(move || {
                let _ = sender.send(rustix::thread::gettid().as_raw_pid());
                loop {
                    std::thread::park();
                }
            });
            receiver.recv().map_err(io::Error::other)?.to_string()
        }
        // A thread that computes until the end of the process.
        ["busy-thread"] => {
            let (sender, receiver) = channel();
            std::thread::spawn(move || {
                let _ = sender.send(rustix::thread::gettid().as_raw_pid());
                loop {
                    std::hint::spin_loop();
                }
            });
            receiver.recv().map_err(io::Error::other)?.to_string()
        }
        // Grants to this many threads, one after another; the times of the calls in microseconds.
        ["grants", count, priority] => grants(bus, number(count)?, number(priority)?)?,
        // Calls without a pause from this many threads, until the end of the process.
        ["flood", threads] => {
            for _ in 0..number::<usize>(threads)? {
                let bus = bus.clone();
                std::thread::spawn(move || {
                    let own = rustix::thread::gettid().as_raw_pid() as u64;
                    loop {
                        let _ = call!(bus, "MakeThreadRealtime", &(own, 5_u32));
                    }
                });
            }
            "flooding".to_owned()
        }
        // Reads of a property without a pause until the end of the process.
        ["reads"] => {
            let bus = zbus::block_on(connect()).map_err(io::Error::other)?;
            std::thread::spawn(move || {
                while send!(bus, PROPERTIES, "Get", &(NAME, "MinNiceLevel")).is_ok() {}
            });
            "reading".to_owned()
        }
        ["rttime", soft, hard] => {
            let limit = Rlimit { current: Some(number(soft)?), maximum: Some(number(hard)?) };
            setrlimit(Resource::Rttime, limit)?;
            "set".to_owned()
        }
        ["realtime", thread, priority] => {
            call!(bus, "MakeThreadRealtime", &(number::<u64>(thread)?, number::<u32>(priority)?),)
        }
        ["realtime-of", process, thread, priority] => call!(
            bus,
            "MakeThreadRealtimeWithPID",
            &(number::<u64>(process)?, number::<u64>(thread)?, number::<u32>(priority)?),
        ),
        ["high", thread, nice] => {
            call!(bus, "MakeThreadHighPriority", &(number::<u64>(thread)?, number::<i32>(nice)?))
        }
        ["high-of", process, thread, nice] => call!(
            bus,
            "MakeThreadHighPriorityWithPID",
            &(number::<u64>(process)?, number::<u64>(thread)?, number::<i32>(nice)?),
        ),
        ["call", member] => call!(bus, member, &()),
        ["wrong-types", member] => call!(bus, member, &("text", 1.5_f64)),
        ["get", property] => {
            let reply = send!(bus, PROPERTIES, "Get", &(NAME, property));
            said(reply, |reply| {
                let value: OwnedVariant = reply.body().deserialize()?;
                Ok(format!("{} {}", value.value_signature(), shown(&value)))
            })
        }
        ["get-all"] => said(send!(bus, PROPERTIES, "GetAll", &NAME), |reply| {
            let all: std::collections::BTreeMap<String, OwnedVariant> =
                reply.body().deserialize()?;
            let all = all.iter().map(|(name, value)| format!("{name}={}", shown(value)));
            Ok(all.collect::<Vec<_>>().join(" "))
        }),
        ["introspect"] => {
            let reply = send!(bus, "org.freedesktop.DBus.Introspectable", "Introspect", &());
            said(reply, |reply| {
                let text: String = reply.body().deserialize()?;
                Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
            })
        }
        _ => return Err(io::Error::other(format!("no such command: {words:?}"))),
    })
}

/// Grants real time to `count` threads that end afterwards. Returns the median, the 99th percentile
/// and the maximum of the times until the reply, in microseconds, or the first error.
fn grants(bus: &Connection, count: usize, priority: u32) -> io::Result<String> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let (tid, thread) = channel();
        let (end, ended) = channel::<()>();
        let handle = std::thread::spawn(move || {
            let _ = tid.send(rustix::thread::gettid().as_raw_pid());
            let _ = ended.recv();
        });
        let thread = thread.recv().map_err(io::Error::other)? as u64;
        let begun = Instant::now();
        let said = call!(bus, "MakeThreadRealtime", &(thread, priority));
        times.push(begun.elapsed());
        drop(end);
        let _ = handle.join();
        if said != "ok" {
            return Ok(said);
        }
    }
    times.sort_unstable();
    let of = |part: usize| times[(count * part / 100).min(count - 1)].as_micros();
    Ok(format!("{} {} {}", of(50), of(99), of(100)))
}

fn shown(value: &OwnedVariant) -> String {
    match &**value {
        zbus::Variant::I32(number) => number.to_string(),
        zbus::Variant::I64(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// Returns the text of a reply, or the name and the text of the error.
fn said(
    reply: Result<Message, Error>,
    read: impl FnOnce(&Message) -> Result<String, Error>,
) -> String {
    match reply.and_then(|reply| read(&reply)) {
        Ok(text) => text,
        Err(Error::FDO(error)) => {
            let text = error.description().unwrap_or_default().replace('\n', " ");
            format!("{} {text}", error.name())
        }
        Err(Error::MethodError(name, text, _)) => {
            let text = text.unwrap_or_default().replace('\n', " ");
            format!("{name} {text}")
        }
        Err(other) => format!("failed {other}"),
    }
}
