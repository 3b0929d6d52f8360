//! A program that calls `org.freedesktop.RealtimeKit1` by the commands of a test, usually as an
//! unprivileged user. Each input line is a command, and each command has one output line.
#![forbid(unsafe_code)]

use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use talea_kernel_tests::lines;
use zbus::OwnedVariant;
use zbus::connection::Builder;
use zbus::message::Flags;
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
/// Time limit of a call.
const TIME_OUT: Duration = Duration::from_secs(20);
/// Bytes of a message with its number.
const SERIAL: Range<usize> = 8..12;
static POLKIT_ANSWERS: AtomicU32 = AtomicU32::new(0);
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

fn main() {
    let connection = zbus::block_on(connect()).expect("a bus");
    lines::serve(|words| obey(&connection, words));
}

/// Connects to the bus. A call without a reply is an error, and no hung test.
async fn connect() -> Result<Connection, Error> {
    Builder::system().method_timeout(TIME_OUT).build().await
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
        // The same over a connection of its own whose replies stay unread, with or without the flag
        // that no reply is expected.
        ["flood-unread", flag] => {
            flood_unread(flag == "no-reply")?;
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
        // Questions to polkit without a pause until the end of the process, and the number of
        // answers so far.
        ["asks-polkit"] => {
            let bus = zbus::block_on(connect()).map_err(io::Error::other)?;
            std::thread::spawn(move || {
                while ask_polkit(&bus).is_ok() {
                    POLKIT_ANSWERS.fetch_add(1, Ordering::Relaxed);
                }
            });
            "asking".to_owned()
        }
        ["polkit-answers"] => POLKIT_ANSWERS.load(Ordering::Relaxed).to_string(),
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
        // Through the portal of the session.
        ["portal", process, thread, priority] => {
            let bus = Builder::session().method_timeout(TIME_OUT);
            let bus = zbus::block_on(bus.build()).map_err(io::Error::other)?;
            let reply = zbus::block_on(bus.call_method(
                Some("org.freedesktop.portal.Desktop"),
                "/org/freedesktop/portal/desktop",
                Some("org.freedesktop.portal.Realtime"),
                "MakeThreadRealtimeWithPID",
                &(number::<u64>(process)?, number::<u64>(thread)?, number::<u32>(priority)?),
            ));
            said(reply, |_| Ok("ok".to_owned()))
        }
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

/// Asks polkit for all actions.
fn ask_polkit(bus: &Connection) -> Result<Message, Error> {
    zbus::block_on(bus.call_method(
        Some("org.freedesktop.PolicyKit1"),
        "/org/freedesktop/PolicyKit1/Authority",
        Some("org.freedesktop.PolicyKit1.Authority"),
        "EnumerateActions",
        &"",
    ))
}

/// Sends calls without a pause, and reads nothing after the greeting.
fn flood_unread(no_reply: bool) -> io::Result<()> {
    const BUS: &str = "org.freedesktop.DBus";
    /// Messages of one system call.
    const BATCH: usize = 64;
    let address = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").map_err(io::Error::other)?;
    let mut stream = UnixStream::connect(address.trim_start_matches("unix:path="))?;
    let user = rustix::process::getuid().as_raw().to_string();
    let user = user.bytes().fold(String::new(), |all, byte| all + &format!("{byte:02x}"));
    write!(stream, "\0AUTH EXTERNAL {user}\r\n")?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    assert!(line.starts_with(b"OK"), "{}", String::from_utf8_lossy(&line));
    stream.write_all(b"BEGIN\r\n")?;
    let hello = Message::method_call("/org/freedesktop/DBus", "Hello");
    let hello = hello.destination(BUS).interface(BUS).build(&()).map_err(io::Error::other)?;
    stream.write_all(hello.data())?;
    let own = rustix::thread::gettid().as_raw_pid() as u64;
    let flags = if no_reply { Flags::NO_REPLY_EXPECTED } else { Flags::empty() };
    let call = Message::method_call("/org/freedesktop/RealtimeKit1", "MakeThreadRealtime");
    let call = call.destination(NAME).interface(NAME).with_flags(flags).build(&(own, 5_u32));
    let call = call.map_err(io::Error::other)?.data().to_vec();
    std::thread::spawn(move || {
        let mut batch = call.repeat(BATCH);
        let mut serial = 1_u32;
        loop {
            for message in batch.chunks_exact_mut(call.len()) {
                serial = serial.wrapping_add(1).max(1);
                message[SERIAL].copy_from_slice(&serial.to_ne_bytes());
            }
            if stream.write_all(&batch).is_err() {
                return;
            }
        }
    });
    Ok(())
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
