//! Process that executes commands of a test, usually as another user.
//!
//! Model: each input line is a command of several words, and each command has one output line. The
//! agent does not know Talea's protocol: it connects, sends the bytes of a command, keeps threads,
//! and reports the replies. The test decides everything that the client does to the daemon.
//!
//! The agent ends at the end of its standard input.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use talea_kernel_tests::lines::bytes;
use talea_kernel_tests::{crowd, lines};
use talea_os::{Tid, seqpacket};

/// Command to a worker thread.
enum Order {
    /// Consume CPU time until this wall time has passed; report the consumed CPU time in
    /// microseconds.
    Hog(Duration, String),
    Jobs(u32, u64, u64, u64),
    Work(Duration),
    /// Wake up this many times, with this period in microseconds; report the median lateness in
    /// nanoseconds.
    Periods(u32, u64),
    /// Start a program from this thread; report its process id.
    Program,
    /// Start a thread from this thread; report its id.
    Child,
    /// Execute this program in place of the process; the program answers.
    Become(String),
    /// End the thread.
    End,
}

struct Worker {
    orders: Sender<Order>,
    answers: Receiver<String>,
    handle: JoinHandle<()>,
}

#[derive(Default)]
struct Agent {
    connections: Vec<Option<OwnedFd>>,
    workers: HashMap<i32, Worker>,
}

/// Returns the command of a program that sleeps for a minute. The program may outlive a killed
/// agent, so it ends by itself and holds no descriptor that the test runner might wait for.
fn sleeper() -> Command {
    let mut command = Command::new("/bin/sleep");
    command.arg("60").stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn main() {
    let mut agent = Agent::default();
    lines::serve(|words| agent.obey(words))
}

impl Agent {
    fn obey(&mut self, words: &[&str]) -> io::Result<String> {
        match *words {
            ["pid"] => Ok(std::process::id().to_string()),
            ["connect", path] => {
                let socket = seqpacket::connect(Path::new(path), Duration::from_secs(10))?;
                self.connections.push(Some(socket));
                Ok((self.connections.len() - 1).to_string())
            }
            ["connect-many", path, count] => {
                let mut made = 0;
                for _ in 0..number(count)? {
                    match seqpacket::connect(Path::new(path), Duration::from_secs(10)) {
                        Ok(socket) => self.connections.push(Some(socket)),
                        Err(_) => break,
                    }
                    made += 1;
                }
                Ok(made.to_string())
            }
            // A program that keeps a copy of a connection; its process id.
            ["inherit", index] => {
                let copy = self.connection(index)?.try_clone()?;
                let program = sleeper().stdin(copy).spawn()?;
                Ok(program.id().to_string())
            }
            ["close", index] => {
                self.connections[number(index)?] = None;
                Ok("closed".to_owned())
            }
            ["close-all"] => {
                self.connections.clear();
                Ok("closed".to_owned())
            }
            ["send", index, hex] => {
                seqpacket::send_waiting(self.connection(index)?, &bytes(hex)?, None)?;
                Ok("sent".to_owned())
            }
            ["send-thread", index, tid, hex] => {
                let fd = thread_pidfd(tid)?;
                seqpacket::send_waiting(self.connection(index)?, &bytes(hex)?, Some(fd.as_fd()))?;
                Ok("sent".to_owned())
            }
            ["send-file", index, path, hex] => {
                let file = std::fs::File::open(path)?;
                seqpacket::send_waiting(self.connection(index)?, &bytes(hex)?, Some(file.as_fd()))?;
                Ok("sent".to_owned())
            }
            ["receive", index] => {
                let mut buffer = vec![0; 64 * 1024];
                let received = seqpacket::recv_waiting(self.connection(index)?, &mut buffer)?;
                if received.len == 0 {
                    return Ok("end".to_owned());
                }
                Ok(hex(&buffer[..received.len]))
            }
            // Sends until the socket is full, without reading; reports the number of messages sent.
            ["flood", index, most, hex] => {
                let message = bytes(hex)?;
                let socket = self.connection(index)?;
                let mut sent = 0;
                for _ in 0..number(most)? {
                    if seqpacket::send(socket, &message, None).is_err() {
                        break;
                    }
                    sent += 1;
                }
                Ok(sent.to_string())
            }
            // The same on every connection at once, for a while.
            ["flood-all", milliseconds, hex] => {
                let message = bytes(hex)?;
                let end = Instant::now() + Duration::from_millis(number(milliseconds)? as u64);
                let mut sent = 0u64;
                while Instant::now() < end {
                    for socket in self.connections.iter().flatten() {
                        sent += u64::from(seqpacket::send(socket, &message, None).is_ok());
                    }
                }
                Ok(sent.to_string())
            }
            // A request and its reply on every connection, for a while; reports the number of
            // replies.
            ["ask-all", milliseconds, hex] => {
                let message = bytes(hex)?;
                let end = Instant::now() + Duration::from_millis(number(milliseconds)? as u64);
                let mut buffer = vec![0; 64 * 1024];
                let mut received = 0u64;
                while Instant::now() < end {
                    for socket in self.connections.iter().flatten() {
                        seqpacket::send_waiting(socket, &message, None)?;
                    }
                    for socket in self.connections.iter().flatten() {
                        received +=
                            u64::from(seqpacket::recv_waiting(socket, &mut buffer)?.len > 0);
                    }
                }
                Ok(received.to_string())
            }
            // Requests on one connection, with pauses between; reports the median, the 99th
            // percentile and the maximum of the response times in nanoseconds.
            ["response-times", index, count, pause_us, hex] => {
                let (socket, message) = (self.connection(index)?, bytes(hex)?);
                let pause = Duration::from_micros(number(pause_us)? as u64);
                let mut buffer = vec![0; 64 * 1024];
                let mut times = Vec::new();
                for _ in 0..number(count)? {
                    let begun = Instant::now();
                    seqpacket::send_waiting(socket, &message, None)?;
                    seqpacket::recv_waiting(socket, &mut buffer)?;
                    times.push(begun.elapsed().as_nanos());
                    if !pause.is_zero() {
                        std::thread::sleep(pause);
                    }
                }
                times.sort_unstable();
                let at = |per_cent: usize| times[(times.len() - 1) * per_cent / 100];
                Ok(format!("{} {} {}", at(50), at(99), at(100)))
            }
            ["thread"] => {
                let worker = start_worker();
                let tid = worker.answers.recv().map_err(io::Error::other)?;
                self.workers.insert(tid.parse().map_err(io::Error::other)?, worker);
                Ok(tid)
            }
            // The main thread itself computes.
            ["compute", milliseconds] => {
                Ok(work(Duration::from_millis(number(milliseconds)? as u64)))
            }
            ["work", tid, milliseconds] => {
                self.order(tid, Order::Work(Duration::from_millis(number(milliseconds)? as u64)))
            }
            ["periods", tid, count, microseconds] => {
                self.order(tid, Order::Periods(number(count)? as u32, number(microseconds)? as u64))
            }
            // Takes all CPU time that it gets; reports how much.
            ["hog", tid, milliseconds, kind] => {
                let wall = Duration::from_millis(number(milliseconds)? as u64);
                self.order(tid, Order::Hog(wall, kind.to_owned()))
            }
            // Jobs of a given CPU time; the number that started late.
            ["jobs", tid, count, period_us, cost_us, late_us] => {
                let (count, period, cost) = (number(count)?, number(period_us)?, number(cost_us)?);
                self.order(
                    tid,
                    Order::Jobs(count as u32, period as u64, cost as u64, number(late_us)? as u64),
                )
            }
            ["program-from", tid] => self.order(tid, Order::Program),
            ["exec-from", tid, program] => self.order(tid, Order::Become(program.to_owned())),
            ["child-of", tid] => self.order(tid, Order::Child),
            ["end", tid] => {
                let worker =
                    self.workers.remove(&(number(tid)? as i32)).ok_or(io::ErrorKind::NotFound)?;
                worker.orders.send(Order::End).map_err(io::Error::other)?;
                worker.handle.join().map_err(|_| io::Error::other("a thread panicked"))?;
                Ok("ended".to_owned())
            }
            ["ask-often", index, count, hex] => {
                crowd::ask_often(self.connection(index)?, number(count)?, &bytes(hex)?)
            }
            _ => crowd::obey(words)
                .unwrap_or_else(|| Err(io::Error::other(format!("unknown order {words:?}")))),
        }
    }

    fn connection(&self, index: &str) -> io::Result<&OwnedFd> {
        self.connections
            .get(number(index)?)
            .and_then(Option::as_ref)
            .ok_or(io::ErrorKind::NotConnected.into())
    }

    fn order(&self, tid: &str, order: Order) -> io::Result<String> {
        let worker = self.workers.get(&(number(tid)? as i32)).ok_or(io::ErrorKind::NotFound)?;
        worker.orders.send(order).map_err(io::Error::other)?;
        worker.answers.recv().map_err(io::Error::other)
    }
}

fn start_worker() -> Worker {
    let (orders, todo) = channel();
    let (done, answers) = channel();
    let handle = std::thread::spawn(move || {
        let _ = done.send(Tid::current().to_string());
        let mut programs: Vec<Child> = Vec::new();
        for order in todo {
            let said = match order {
                Order::Work(cost) => work(cost),
                Order::Hog(wall, kind) => hog(wall, &kind),
                Order::Jobs(count, period_us, cost_us, late_us) => {
                    jobs(count, period_us, cost_us, late_us)
                }
                Order::Periods(count, microseconds) => periods(count, microseconds),
                Order::Program => match sleeper().spawn() {
                    Ok(program) => {
                        let pid = program.id().to_string();
                        programs.push(program);
                        pid
                    }
                    Err(error) => format!("error {error}"),
                },
                Order::Child => {
                    let (say, heard) = channel();
                    std::thread::spawn(move || {
                        let _ = say.send(Tid::current().to_string());
                        std::thread::sleep(Duration::from_mins(10));
                    });
                    heard.recv().unwrap_or_default()
                }
                Order::Become(program) => {
                    let error = Command::new(program).exec();
                    format!("error {error}")
                }
                Order::End => break,
            };
            let _ = done.send(said);
        }
        for mut program in programs {
            let _ = program.kill();
            let _ = program.wait();
        }
    });
    Worker { orders, answers, handle }
}

/// Consumes CPU time; returns the elapsed wall time in microseconds.
fn work(cost: Duration) -> String {
    let begun = Instant::now();
    let start = talea_os::clock::thread_cpu_time().as_ns();
    while u128::from(talea_os::clock::thread_cpu_time().as_ns() - start) < cost.as_nanos() {
        std::hint::spin_loop();
    }
    begun.elapsed().as_micros().to_string()
}

/// Consumes CPU time until the wall time `wall` has passed. `kind` selects long system calls
/// (`calls`), bursts (`bursts`), started processes (`fork`), changes of the CPU (`move`) or
/// computation (any other text). Returns the consumed CPU time in microseconds.
fn hog(wall: Duration, kind: &str) -> String {
    let end = Instant::now() + wall;
    let start = talea_os::clock::thread_cpu_time().as_ns();
    let allowed = talea_os::sysinfo::online_now().unwrap_or_default();
    let mut zeros = std::fs::File::open("/dev/zero").expect("a device");
    let mut buffer = vec![0; if kind == "calls" { 16 << 20 } else { 1 }];
    while Instant::now() < end {
        match kind {
            "calls" => std::io::Read::read_exact(&mut zeros, &mut buffer).expect("zeros"),
            "bursts" => {
                work(Duration::from_millis(2));
                std::thread::sleep(Duration::from_micros(1_300));
            }
            "fork" => {
                let _ = std::process::Command::new("/bin/true").status();
            }
            "move" => {
                let cpu = rustix::thread::sched_getcpu() as u32;
                let other = allowed.iter().find(|&other| other != cpu).unwrap_or(cpu);
                let _ = talea_os::sched::set_affinity(
                    Tid::current(),
                    &talea_core::CpuSet::single(other),
                );
                work(Duration::from_millis(5));
            }
            _ => std::hint::spin_loop(),
        }
    }
    ((talea_os::clock::thread_cpu_time().as_ns() - start) / 1_000).to_string()
}

/// Runs jobs of `cost_us` every `period_us`. Returns the number of jobs that started at least
/// `late_us` after their release, or that exceeded their cost by at least `late_us`. (The kernel
/// counts a stall by the hypervisor as CPU time.)
fn jobs(count: u32, period_us: u64, cost_us: u64, late_us: u64) -> String {
    let span = talea_core::Span::from_ns(period_us * 1_000);
    let mut next = talea_os::clock::now();
    let mut late = 0;
    for _ in 0..count {
        next += span;
        talea_os::clock::sleep_until(next);
        let started_late = talea_os::clock::now().since(next).as_ns() >= late_us * 1_000;
        let before = talea_os::clock::thread_cpu_time().as_ns();
        work(Duration::from_micros(cost_us));
        let took = talea_os::clock::thread_cpu_time().as_ns() - before;
        late += u32::from(started_late || took >= (cost_us + late_us) * 1_000);
    }
    late.to_string()
}

/// Wakes up periodically; returns the median lateness in nanoseconds.
fn periods(count: u32, microseconds: u64) -> String {
    let span = talea_core::Span::from_ns(microseconds * 1_000);
    let mut next = talea_os::clock::now();
    let mut late: Vec<u64> = (0..count)
        .map(|_| {
            next += span;
            talea_os::clock::sleep_until(next);
            talea_os::clock::now().since(next).as_ns()
        })
        .collect();
    late.sort_unstable();
    late.get(late.len() / 2).copied().unwrap_or(0).to_string()
}

/// Opens a pidfd of any thread, including another user's: `PIDFD_THREAD` is `O_EXCL`.
fn thread_pidfd(tid: &str) -> io::Result<OwnedFd> {
    let pid =
        rustix::process::Pid::from_raw(number(tid)? as i32).ok_or(io::ErrorKind::InvalidInput)?;
    let flags = rustix::process::PidfdFlags::from_bits_retain(rustix::fs::OFlags::EXCL.bits());
    Ok(rustix::process::pidfd_open(pid, flags)?)
}

fn number(word: &str) -> io::Result<usize> {
    word.parse().map_err(|_| io::Error::other(format!("{word} is no number")))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
