//! Clients that the agent cannot imitate: many at once, clients that change their identity, and the
//! honest client that measures its service.
//!
//! Model: the protocol is that of the agent, one line in and one line out;
//! [`talea_kernel_tests::Agent`] drives both programs. In addition, roles run in the background
//! until a command stops them, so that an attack continues while the test checks something else. A
//! role returns its counts as `name=number` words.
//!
//! The program ends at the end of its standard input, even while roles run.
#![forbid(unsafe_code)]

mod busy;
mod fd_passing;
mod holder;
mod honest;
mod leaving;
mod many_connections;
mod unresponsive_fs;
mod work;

use rustix::net::Shutdown;
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use talea_kernel_tests::lines;
use talea_os::{Tid, sched, seqpacket};

/// Maximum wait of any call to the daemon; a longer wait counts as blocked.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Next identity of a sleeping thread.
enum Become {
    /// Another user, by the real, effective and saved user id.
    User(u32, u32, u32),
    /// A program, in place of the whole process.
    Program(String),
}

struct Sleeper {
    orders: Sender<Become>,
    answers: Receiver<String>,
}

struct Job {
    stop: Arc<AtomicBool>,
    handle: JoinHandle<io::Result<String>>,
}

#[derive(Default)]
struct TestClients {
    connections: Vec<Option<OwnedFd>>,
    sleepers: HashMap<i32, Sleeper>,
    jobs: HashMap<String, Job>,
    /// Ends of sockets that must stay open, so that the sent descriptors have their effect.
    kept: Vec<OwnedFd>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, path] = &arguments[..]
        && role == unresponsive_fs::ROLE
    {
        // The parent process waits for our end.
        let _ = unresponsive_fs::run(path);
        std::process::exit(0);
    }
    let mut clients = TestClients::default();
    lines::serve(|words| clients.obey(words))
}

impl TestClients {
    fn obey(&mut self, words: &[&str]) -> io::Result<String> {
        match *words {
            ["pid"] => Ok(std::process::id().to_string()),
            ["connect", path] => {
                self.connections.push(Some(seqpacket::connect(Path::new(path), PATIENCE)?));
                Ok((self.connections.len() - 1).to_string())
            }
            // Connected with the rights of that user, and used by us from then on.
            ["connect-as", path, uid] => {
                let (path, uid) = (Path::new(path).to_owned(), Uid::from_raw(number(uid)? as u32));
                let connecting = std::thread::spawn(move || {
                    set_thread_res_uid(uid, uid, uid)?;
                    seqpacket::connect(&path, PATIENCE)
                });
                let socket =
                    connecting.join().map_err(|_| io::Error::other("a thread panicked"))??;
                self.connections.push(Some(socket));
                Ok((self.connections.len() - 1).to_string())
            }
            ["close", index] => {
                self.connections[number(index)?] = None;
                Ok("closed".to_owned())
            }
            ["send", index, hex] => {
                seqpacket::send_waiting(self.connection(index)?, &bytes(hex)?, None)?;
                Ok("sent".to_owned())
            }
            ["send-thread", index, tid, hex] => {
                let fd = fd_passing::thread_pidfd(number(tid)? as i32)?;
                seqpacket::send_waiting(self.connection(index)?, &bytes(hex)?, Some(fd.as_fd()))?;
                Ok("sent".to_owned())
            }
            // `count` times this message, then one that carries the descriptors that the words
            // after it name. Behind so many, ours are closed before the daemon has received its
            // own.
            ["send-parcel", index, hex, count, ref what @ ..] => {
                let message = bytes(hex)?;
                let fd_passing::Parcel { fds, kept } =
                    fd_passing::pack(what, self.connection(index)?.as_fd())?;
                let socket = self.connection(index)?;
                for _ in 0..number(count)? {
                    seqpacket::send_waiting(socket, &message, None)?;
                }
                let sent = fd_passing::send(socket, &message, &fds);
                // A process that closes a file of a hung file system hangs: not this one.
                let (ours, closed) =
                    if what[0] == "hung" { (fds, Vec::new()) } else { (Vec::new(), fds) };
                drop(closed);
                self.kept.extend(kept.into_iter().chain(ours));
                sent.map(|()| "sent".to_owned())
            }
            ["receive", index] => {
                let mut buffer = vec![0; 64 * 1024];
                match seqpacket::recv_waiting(self.connection(index)?, &mut buffer)?.len {
                    0 => Ok("end".to_owned()),
                    length => Ok(talea_kernel_tests::agent::hex(&buffer[..length])),
                }
            }
            ["thread"] => {
                let (tid, sleeper) = start_sleeper()?;
                self.sleepers.insert(tid, sleeper);
                Ok(tid.to_string())
            }
            // A thread that sleeps, works periodically or runs until the process ends.
            ["habit", habit] => {
                let habit = work::Habit::ALL[number(habit)? % work::Habit::ALL.len()];
                Ok(work::start(habit)?.to_string())
            }
            ["become", tid, real, effective, saved] => {
                let uid = |word| Ok::<_, io::Error>(number(word)? as u32);
                self.sleeper_becomes(tid, Become::User(uid(real)?, uid(effective)?, uid(saved)?))
            }
            // That thread starts another program, which goes on reading orders and is the one to
            // answer.
            ["exec-from", tid, program] => {
                self.sleeper_becomes(tid, Become::Program(program.to_owned()))
            }
            ["exec", program] => Err(exec(program)),
            // Sets its own attributes, as a program does that knows that it runs with rights.
            ["settle"] => {
                let me = Tid::of_process();
                let attr = sched::Attr::plain(sched::Policy::Other { nice: 0 });
                // Without rights the mark of a grant stays.
                let attr = sched::Attr { reset_on_fork: true, ..attr };
                sched::set(me, &attr)?;
                sched::set_nice(me, 7)?;
                sched::set_affinity(me, &talea_core::CpuSet::single(1))?;
                Ok("settled".to_owned())
            }
            ["shutdown", index, "read"] => half_closed(self.connection(index)?, Shutdown::Read),
            ["shutdown", index, "write"] => half_closed(self.connection(index)?, Shutdown::Write),
            ["start", name, role, ref rest @ ..] => {
                let job = start(role, rest)?;
                self.jobs.insert(name.to_owned(), job);
                Ok("started".to_owned())
            }
            ["stop", name] => {
                let job = self.jobs.remove(name).ok_or(io::ErrorKind::NotFound)?;
                job.stop.store(true, Ordering::Relaxed);
                job.handle.join().map_err(|_| io::Error::other("a role panicked"))?
            }
            _ => Err(io::Error::other(format!("unknown order {words:?}"))),
        }
    }

    fn sleeper_becomes(&self, tid: &str, what: Become) -> io::Result<String> {
        let sleeper = self.sleepers.get(&(number(tid)? as i32)).ok_or(io::ErrorKind::NotFound)?;
        sleeper.orders.send(what).map_err(io::Error::other)?;
        sleeper.answers.recv().map_err(io::Error::other)
    }

    fn connection(&self, index: &str) -> io::Result<&OwnedFd> {
        let found = self.connections.get(number(index)?).and_then(Option::as_ref);
        found.ok_or(io::ErrorKind::NotConnected.into())
    }
}

/// Executes another program in place of this one; returns only if that fails.
fn exec(program: &str) -> io::Error {
    std::os::unix::process::CommandExt::exec(&mut std::process::Command::new(program))
}

fn half_closed(connection: &OwnedFd, how: Shutdown) -> io::Result<String> {
    rustix::net::shutdown(connection, how)?;
    Ok("shut".to_owned())
}

/// Starts a role; the role is ready before the answer is sent.
fn start(role: &str, words: &[&str]) -> io::Result<Job> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = stop.clone();
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let (ready, wait) = channel();
    let role = role.to_owned();
    let handle = std::thread::spawn(move || {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ready = || {
            let _ = ready.send(());
        };
        match role.as_str() {
            "honest" => honest::run(&words, &stopping, ready),
            "swarm" => many_connections::run(&words, &stopping, ready),
            "busy" => busy::run(&words, &stopping, ready),
            "holder" => holder::run(&words, &stopping, ready),
            "leaving" => leaving::run(&words, &stopping, ready),
            "spin" => {
                ready();
                while !stopping.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                Ok("spun".to_owned())
            }
            _ => Err(io::Error::other(format!("unknown role {role}"))),
        }
    });
    match wait.recv() {
        Ok(()) => Ok(Job { stop, handle }),
        // It has ended without having been ready.
        Err(_) => match handle.join() {
            Ok(Ok(said)) => Err(io::Error::other(said)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("a role panicked")),
        },
    }
}

/// Starts a thread that sleeps, and that changes its identity on command. Returns its TID and its
/// channels.
fn start_sleeper() -> io::Result<(i32, Sleeper)> {
    let (orders, todo) = channel::<Become>();
    let (done, answers) = channel();
    let (say, heard) = channel();
    std::thread::spawn(move || {
        let _ = say.send(Tid::current().as_raw());
        for what in todo {
            let (real, effective, saved) = match what {
                Become::User(real, effective, saved) => (real, effective, saved),
                Become::Program(program) => {
                    let _ = done.send(exec(&program).to_string());
                    continue;
                }
            };
            // The kernel's call and not the C library's: it changes this thread alone.
            let [real, effective, saved] = [real, effective, saved].map(Uid::from_raw);
            let changed = set_thread_res_uid(real, effective, saved);
            let said = changed.map_or_else(
                |error| format!("errno {}", error.raw_os_error()),
                |()| "became".into(),
            );
            let _ = done.send(said);
        }
    });
    let tid = heard.recv().map_err(io::Error::other)?;
    Ok((tid, Sleeper { orders, answers }))
}

pub(crate) fn number(word: &str) -> io::Result<usize> {
    word.parse().map_err(|_| io::Error::other(format!("{word} is no number")))
}

fn bytes(hex: &str) -> io::Result<Vec<u8>> {
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

/// Returns a borrowed copy of every owned descriptor.
pub(crate) fn borrowed(fds: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    fds.iter().map(AsFd::as_fd).collect()
}
