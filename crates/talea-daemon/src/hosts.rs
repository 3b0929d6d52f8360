//! The processes in which foreign plugins live.
//!
//! Model: one process an instance, started before anything is granted, never restarted. One
//! question is under way at a time; those behind it wait here, and the time-out of each counts from
//! the moment it is sent. A host that ends, is late, or answers what was not asked is *down*: it is
//! killed, everything that waited for it is told so, and nothing is sent to it again.
//!
//! What a plugin writes to its standard error becomes log lines under its name, so many a second
//! and no more.
//!
//! ReTiF, J. Systems Architecture 2021, section 3.4.

use crate::log::Log;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use talea_broker::Ticket;
use talea_broker::input::{ForeignAnswer, ForeignQuestion};
use talea_core::mutate;
use talea_core::setup::{PluginKind, PluginSetup, Setup};
use talea_core::{Span, Time};
use talea_os::spawn::{Child, Sandbox, describe, spawn_sandboxed};
use talea_os::{clock, files, seqpacket};
use talea_proto::Task;
use talea_proto::host::{self, Answer, Call, HOST_VERSION, Question, TEXT_MAX, failure};
use talea_proto::message::Name;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The program that hosts a plugin.
pub(crate) const PROGRAM: &str = "talea-plugin-host";
/// Whom a host becomes when the daemon is root: user and group `nobody`.
const NOBODY: (u32, u32) = (65534, 65534);
/// How long loading and init may take.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long all plugins together may take to say goodbye; less than a second.
const FINI_TIMEOUT: Span = Span::from_ns(300_000_000);
/// Lines of a plugin that are logged in one second.
const LINES_PER_SECOND: u32 = 10;

/// One plugin's process.
#[derive(Debug)]
struct Host {
    name: String,
    child: Child,
    socket: OwnedFd,
    stderr: File,
    /// The question at the front has been sent; the others wait.
    pending: VecDeque<Pending>,
    /// When the answer to it is overdue.
    deadline: Option<Time>,
    down: bool,
    lines: Lines,
}

#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    epoch: u64,
    question: Question,
    timeout: Span,
}

/// What has become of a question, or of a host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A question was answered, or will never be (`None`).
    Answered(Ticket, Option<ForeignAnswer>),
    /// This plugin's host is no more.
    Down(u32),
}

/// The hosts of all foreign plugins, by the plugin's index.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    hosts: Vec<Option<Host>>,
}

impl Hosts {
    /// Starts a process for each foreign plugin of `setup` and waits until all of them are ready.
    ///
    /// The error names the plugin that is not, and why; the others are ended again.
    pub(crate) fn start(setup: &Setup, program: Option<&Path>, log: &Log) -> Result<Hosts, String> {
        let mut hosts = Vec::with_capacity(setup.plugins.len());
        for plugin in &setup.plugins {
            let host = match &plugin.kind {
                PluginKind::Foreign(options) => Some(
                    Host::start(plugin, &options.module, &options.argument, program, log)
                        .map_err(|why| format!("plugin `{}`: {why}", plugin.name))?,
                ),
                _ => None,
            };
            hosts.push(host);
        }
        Ok(Hosts { hosts })
    }

    /// What the event loop must watch: index, socket, standard error.
    pub(crate) fn descriptors(
        &self,
    ) -> impl Iterator<Item = (u64, BorrowedFd<'_>, BorrowedFd<'_>)> {
        let hosts = self.hosts.iter().enumerate();
        hosts.filter_map(|(index, host)| {
            let host = host.as_ref()?;
            Some((index as u64, host.socket.as_fd(), host.stderr.as_fd()))
        })
    }

    /// When the first answer is overdue.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.hosts.iter().flatten().filter_map(|host| host.deadline).min()
    }

    /// Puts a question, now or after those before it.
    #[allow(clippy::too_many_arguments)] // The broker's effect, taken apart, and where news and lines go.
    pub(crate) fn ask(
        &mut self,
        now: Time,
        plugin: u32,
        ticket: Ticket,
        question: &ForeignQuestion,
        timeout: Span,
        news: &mut Vec<News>,
        log: &Log,
    ) {
        let Some(host) =
            self.hosts.get_mut(plugin as usize).and_then(Option::as_mut).filter(|host| !host.down)
        else {
            news.push(News::Answered(ticket, None));
            return;
        };
        let (epoch, question) = translate(question, ticket);
        host.pending.push_back(Pending { ticket, epoch, question, timeout });
        if host.pending.len() == 1
            && let Err(why) = host.send_first(now)
        {
            host.end(plugin, &why, news, log);
        }
    }

    /// A host's socket has something to say.
    pub(crate) fn readable(&mut self, now: Time, index: u64, news: &mut Vec<News>, log: &Log) {
        let Some(host) = self.hosts.get_mut(index as usize).and_then(Option::as_mut) else {
            return;
        };
        if host.down {
            return;
        }
        match host.receive() {
            Ok(None) => {}
            Ok(Some(answer)) => {
                let answered =
                    host.pending.pop_front().expect("receive has matched it with its question");
                let answer = ForeignAnswer {
                    epoch: answered.epoch,
                    verdict: answer.verdict,
                    cpu: answer.cpu,
                    priority: answer.priority,
                };
                news.push(News::Answered(answered.ticket, Some(answer)));
                host.deadline = None;
                if let Err(why) = host.send_first(now) {
                    host.end(index as u32, &why, news, log);
                }
            }
            Err(why) => host.end(index as u32, &why, news, log),
        }
    }

    /// A plugin has written to its standard error. `false` when it has closed it.
    pub(crate) fn stderr_readable(&mut self, now: Time, index: u64, log: &Log) -> bool {
        let Some(host) = self.hosts.get_mut(index as usize).and_then(Option::as_mut) else {
            return false;
        };
        host.relay(now, log)
    }

    /// Standard error of a host, to stop watching it.
    pub(crate) fn stderr(&self, index: u64) -> Option<BorrowedFd<'_>> {
        self.hosts.get(index as usize)?.as_ref().map(|host| host.stderr.as_fd())
    }

    /// The socket of a host that is down, to stop watching it.
    pub(crate) fn dead_socket(&self, index: u32) -> Option<BorrowedFd<'_>> {
        let host = self.hosts.get(index as usize)?.as_ref()?;
        host.down.then(|| host.socket.as_fd())
    }

    /// Ends the host of a plugin that the broker asks no more; `false` when it has ended already.
    pub(crate) fn dismiss(&mut self, plugin: u32) -> bool {
        let host = self.hosts.get_mut(plugin as usize).and_then(Option::as_mut);
        let Some(host) = host.filter(|host| !host.down) else { return false };
        host.stop();
        host.pending.clear();
        true
    }

    /// Says goodbye to every plugin and gives them a moment for their `fini`.
    pub(crate) fn finish(&mut self, log: &Log) {
        let hosts = || self.hosts.iter().flatten().filter(|host| !host.down);
        for host in hosts() {
            // A host reads the end of the stream; one that has ended already needs no telling.
            let _ = rustix::net::shutdown(&host.socket, rustix::net::Shutdown::Both);
        }
        let end = clock::now() + FINI_TIMEOUT;
        for host in hosts() {
            let now = clock::now();
            let left = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: end.as_ns().saturating_sub(now.as_ns()) as i64,
            };
            // Who is not done by then is killed when the last handle goes.
            let _ = rustix::event::poll(
                &mut [rustix::event::PollFd::new(&host.child, rustix::event::PollFlags::IN)],
                Some(&left),
            );
        }
        for host in self.hosts.iter_mut().flatten() {
            host.relay(clock::now(), log);
        }
    }

    /// Ends the hosts whose answer is overdue.
    pub(crate) fn expire(&mut self, now: Time, news: &mut Vec<News>, log: &Log) {
        for (index, host) in self.hosts.iter_mut().enumerate() {
            let Some(host) = host else { continue };
            if mutate!(
                "plugin-foreign-late",
                host.deadline.is_some_and(|deadline| deadline <= now),
                host.deadline.is_some_and(|deadline| deadline <= now && deadline > now)
            ) {
                let timeout = host.pending.front().map_or(Span::ZERO, |first| first.timeout);
                host.end(index as u32, &format!("no answer within {timeout}"), news, log);
            }
        }
    }
}

impl Host {
    fn start(
        plugin: &PluginSetup,
        module: &str,
        argument: &str,
        program: Option<&Path>,
        log: &Log,
    ) -> Result<Host, String> {
        let module_path = Path::new(module);
        files::check_trusted(module_path).map_err(|untrusted| untrusted.to_string())?;
        let program = match program {
            Some(program) => program.to_owned(),
            None => find_program()?,
        };
        // The child runs code from it, so it must be as trustworthy as we are.
        files::check_trusted(&program).map_err(|untrusted| untrusted.to_string())?;
        if module.len() > TEXT_MAX || argument.len() > TEXT_MAX {
            return Err(format!("`module` and `argument` may have {TEXT_MAX} bytes"));
        }
        let (ours, theirs) =
            seqpacket::pair(false).map_err(|error| format!("socketpair: {error}"))?;
        seqpacket::set_timeout(&ours, INIT_TIMEOUT)
            .map_err(|error| format!("time-out: {error}"))?;
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| format!("pipe: {error}"))?;
        rustix::io::ioctl_fionbio(&read, true).map_err(|error| format!("pipe: {error}"))?;
        let is_root = rustix::process::geteuid().is_root();
        let sandbox = Sandbox { user: is_root.then_some(NOBODY), ..Sandbox::default() };
        let child = spawn_sandboxed(&program, [""; 0], theirs, Stdio::from(write), &sandbox)
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mut host = Host {
            name: plugin.name.clone(),
            child,
            socket: ours,
            stderr: File::from(read),
            pending: VecDeque::new(),
            deadline: None,
            down: false,
            lines: Lines::default(),
        };
        let ready = host.init(plugin, module, argument);
        // What it has said by now explains a failure; later lines come through the event loop.
        host.relay(clock::now(), log);
        ready?;
        rustix::io::ioctl_fionbio(&host.socket, true)
            .map_err(|error| format!("socket: {error}"))?;
        Ok(host)
    }

    fn init(&mut self, plugin: &PluginSetup, module: &str, argument: &str) -> Result<(), String> {
        let band = plugin.band.ok_or("a foreign plugin needs `priorities`")?;
        let setup = host::Setup {
            version: HOST_VERSION,
            priority_low: band.low.0.into(),
            priority_high: band.high.0.into(),
            module_len: module.len() as u16,
            argument_len: argument.len() as u16,
            cpus: *plugin.cpus.words(),
            name: Name::new(&plugin.name).unwrap_or_default().0,
        };
        let mut message = setup.as_bytes().to_vec();
        message.extend_from_slice(module.as_bytes());
        message.extend_from_slice(argument.as_bytes());
        seqpacket::send(&self.socket, &message, None)
            .map_err(|error| format!("its host: {error}"))?;
        let mut buffer = [0; size_of::<Answer>() + 1];
        let received = seqpacket::recv_waiting(&self.socket, &mut buffer).map_err(|error| {
            if error.kind() == io::ErrorKind::TimedOut {
                return format!("its init was not done within {} s", INIT_TIMEOUT.as_secs());
            }
            format!("its host: {error}")
        })?;
        if received.len == 0 {
            return Err(format!("its host {} during init", self.how_it_ended()));
        }
        let answer = Answer::read_from_bytes(&buffer[..received.len])
            .map_err(|_| "its host answered the setup with nonsense".to_owned())?;
        match answer.verdict {
            0 => Ok(()),
            failure::LOAD => {
                Err(format!("{module} could not be loaded (the line before says why)"))
            }
            failure::SANDBOX => {
                Err("its host could not give up its rights (the line before says why)".to_owned())
            }
            code => Err(format!("its init refused with {code}")),
        }
    }

    fn send_first(&mut self, now: Time) -> Result<(), String> {
        let Some(first) = self.pending.front() else { return Ok(()) };
        self.deadline = Some(now + first.timeout);
        seqpacket::send(&self.socket, first.question.as_bytes(), None).map_err(|error| match error
            .kind()
        {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self.how_it_ended(),
            _ => error.to_string(),
        })
    }

    /// The answer to the question at the front; `None` when nothing is there yet.
    fn receive(&mut self) -> Result<Option<Answer>, String> {
        let mut buffer = [0; size_of::<Answer>() + 1];
        let received = match seqpacket::recv(&self.socket, &mut buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(self.how_it_ended());
            }
            Err(error) => return Err(error.to_string()),
        };
        if received.len == 0 {
            return mutate!("plugin-foreign-ended", Err(self.how_it_ended()), Ok(None));
        }
        let asked = self.pending.front().ok_or("it spoke without being asked")?;
        let answer = Answer::read_from_bytes(&buffer[..received.len]).map_err(|_| {
            format!("its answer has {} bytes instead of {}", received.len, size_of::<Answer>())
        })?;
        if mutate!("plugin-foreign-ticket", answer.ticket != asked.question.ticket, false) {
            return Err("it answered another question".to_owned());
        }
        Ok(Some(answer))
    }

    fn how_it_ended(&mut self) -> String {
        // Its end of the socket is closed, so it has ended or will not be missed.
        match self.child.end() {
            Ok(Some(status)) => describe(status),
            Ok(None) => "does not end although it was killed".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    fn end(&mut self, plugin: u32, why: &str, news: &mut Vec<News>, log: &Log) {
        self.stop();
        log.error(format_args!("plugin `{}`: {why}", self.name));
        news.extend(self.pending.drain(..).map(|pending| News::Answered(pending.ticket, None)));
        news.push(News::Down(plugin));
    }

    fn stop(&mut self) {
        self.down = true;
        self.deadline = None;
        // It may have ended already, and then there is nothing to kill.
        let _ = self.child.end();
    }

    /// Logs what the plugin has written; `false` at the end of it.
    fn relay(&mut self, now: Time, log: &Log) -> bool {
        let mut buffer = [0; 4096];
        match self.stderr.read(&mut buffer) {
            Ok(0) => {
                self.lines.finish(&self.name, now, log);
                false
            }
            Ok(length) => {
                self.lines.take(&self.name, &buffer[..length], now, log);
                true
            }
            Err(error) => {
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        }
    }
}

/// A plugin's standard error, cut into lines.
#[derive(Debug, Default)]
struct Lines {
    begun: Vec<u8>,
    second: u64,
    written: u32,
}

impl Lines {
    /// Longer lines are cut.
    const LONGEST: usize = 512;

    fn take(&mut self, name: &str, bytes: &[u8], now: Time, log: &Log) {
        for &byte in bytes {
            if byte == b'\n' || self.begun.len() >= Lines::LONGEST {
                self.finish(name, now, log);
            }
            if byte != b'\n' {
                self.begun.push(byte);
            }
        }
    }

    fn finish(&mut self, name: &str, now: Time, log: &Log) {
        let second = now.as_ns() / 1_000_000_000;
        if second != self.second {
            (self.second, self.written) = (second, 0);
        }
        if !self.begun.is_empty() {
            self.written += 1;
            match self.written {
                ..=LINES_PER_SECOND => {
                    log.info(format_args!(
                        "plugin `{name}` says: {}",
                        String::from_utf8_lossy(&self.begun)
                    ));
                }
                over if over == LINES_PER_SECOND + 1 => {
                    log.info(format_args!(
                        "plugin `{name}` says more than {LINES_PER_SECOND} lines a second"
                    ));
                }
                _ => {}
            }
        }
        self.begun.clear();
    }
}

/// As the host understands it, and the ledger's epoch that comes back with the answer.
fn translate(question: &ForeignQuestion, ticket: Ticket) -> (u64, Question) {
    let mut out = Question::new_zeroed();
    out.ticket = ticket.0;
    let mut epoch_now = 0;
    let describe = |out: &mut Question, task: &Task| {
        let params = &task.params;
        out.period_ns = params.period.map_or(0, Span::as_ns);
        out.runtime_ns = params.runtime.map_or(0, talea_core::Work::as_ns);
        out.desired_ns = params.desired.map_or(0, talea_core::Work::as_ns);
        out.deadline_ns = params.deadline.map_or(0, Span::as_ns);
        out.priority = params.priority.map_or(0, |priority| priority.0.into());
        out.flags = if task.ignore_admission { host::IGNORE_ADMISSION } else { 0 };
    };
    let (call, spec) = match question {
        ForeignQuestion::Accept { task, cpus, replaces, epoch } => {
            describe(&mut out, task);
            out.cpus = *cpus.words();
            epoch_now = *epoch;
            match replaces {
                None => (Call::Accept, 0),
                Some(spec) => (Call::Change, spec.0),
            }
        }
        ForeignQuestion::Schedule { spec, task, cpu, priority } => {
            describe(&mut out, task);
            out.cpus = *talea_core::CpuSet::single(*cpu).words();
            out.place_cpu = *cpu as i32;
            out.place_priority = i32::from(*priority);
            (Call::Schedule, spec.0)
        }
        ForeignQuestion::Release { spec } => (Call::Release, spec.0),
        ForeignQuestion::Attach { spec } => (Call::Attach, spec.0),
        ForeignQuestion::Detach { spec } => (Call::Detach, spec.0),
    };
    out.call = call as u32;
    out.spec = spec;
    (epoch_now, out)
}

/// Beside our own program, or where an installation puts programs that nobody calls by hand.
fn find_program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("where is this program? {error}"))?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let places = [beside.join(PROGRAM), beside.join("../libexec/talea").join(PROGRAM)];
    match places.iter().find(|place| place.is_file()) {
        Some(found) => Ok(found.clone()),
        None => Err(format!(
            "{PROGRAM} is neither in {} nor in {}; install it there",
            beside.display(),
            places[1].parent().unwrap_or(beside).display()
        )),
    }
}
