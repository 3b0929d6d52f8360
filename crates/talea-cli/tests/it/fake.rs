//! A fake daemon: a closure of the test answers every request.
//!
//! The socket, the messages and the descriptors are real; only the decisions are not.

use crate::harness::Scratch;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use talea_core::{Attr, Charge, CpuSet, Params, Policy, Span, Work};
use talea_os::seqpacket::{self, Access, Listener};
use talea_proto::message::{CpuInfo, Mechanism, Name, Notes, Overruns, PluginInfo, Status, Token};
use talea_proto::wire::decode_request;
use talea_proto::{
    Code, Field, Granted, MESSAGE_MAX, Refusal, Reply, Request, SpecId, SpecInfo, Task,
};

type Answer = dyn FnMut(&Request) -> Reply + Send;

/// The daemon; it ends with the test.
pub(crate) struct Fake {
    pub(crate) socket: PathBuf,
    pub(crate) asked: Receiver<Asked>,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// A request, and the thread that was sent with it.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) thread: Option<talea_os::Thread>,
}

impl Fake {
    /// Starts a daemon that replies with `answer`; requests for `Hello` and the plugins have fixed
    /// replies.
    pub(crate) fn start(
        scratch: &Scratch,
        answer: impl FnMut(&Request) -> Reply + Send + 'static,
    ) -> Fake {
        let socket = scratch.path().join("talea.sock");
        let access = Access { mode: 0o600, uid: None, gid: None };
        let listener = Listener::bind(&socket, access, 8).expect("a socket for the fake daemon");
        let (ended, stop) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        let (sender, asked) = channel();
        let answer: Arc<Mutex<Box<Answer>>> = Arc::new(Mutex::new(Box::new(answer)));
        let thread = std::thread::spawn(move || listen(&listener, &ended, &sender, &answer));
        Fake { socket, asked, stop: Some(stop), thread: Some(thread) }
    }

    /// Returns the requests so far, without `Hello` and plugin requests.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.asked.try_iter().map(|asked| asked.request).collect()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // The end of the pipe ends the loop.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the fake daemon ends in order");
        }
    }
}

/// Serves all connections in one thread, as the real daemon does.
fn listen(
    listener: &Listener,
    ended: &OwnedFd,
    sender: &Sender<Asked>,
    answer: &Mutex<Box<Answer>>,
) {
    let mut clients: Vec<OwnedFd> = Vec::new();
    loop {
        let mut fds = vec![
            PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
        ];
        fds.extend(
            clients.iter().map(|client| PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN)),
        );
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other.expect("poll"),
        };
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if ready[0] {
            return;
        }
        let mut index = 0;
        clients.retain(|client| {
            index += 1;
            !ready[index + 1] || serve(client, sender, answer)
        });
        if ready[1] {
            clients.extend(listener.accept().expect("accept"));
        }
    }
}

/// Serves one message; false at the end of the connection.
fn serve(client: &OwnedFd, sender: &Sender<Asked>, answer: &Mutex<Box<Answer>>) -> bool {
    let mut buffer = vec![0; MESSAGE_MAX];
    let Ok(received) = seqpacket::recv(client, &mut buffer) else { return false };
    if received.len == 0 {
        return false;
    }
    let (seq, request) =
        decode_request(&buffer[..received.len]).expect("talea speaks the protocol");
    let reply = match request {
        Request::Hello { .. } => Reply::Welcome { version: talea_proto::VERSION, instance: 1 },
        Request::Plugin(0) => Reply::Plugin(Box::new(edf())),
        Request::Plugin(1) => Reply::Plugin(Box::new(fp())),
        Request::PluginCpu { plugin, index } if index < 2 => Reply::PluginCpu(CpuInfo {
            cpu: index,
            free: Charge::ratio(7 - u64::from(plugin), 10),
            used: Charge::ratio(2, 10),
            specs: 1 - index,
        }),
        Request::Plugin(_) | Request::PluginCpu { .. } => Reply::End,
        _ => {
            let reply = answer.lock().expect("the test's closure did not panic")(&request);
            let thread = received.fd.map(|fd| talea_os::Thread::from_fd(fd).expect("a pidfd"));
            // The test may have stopped listening.
            let _ = sender.send(Asked { request, thread });
            reply
        }
    };
    let length = reply.encode(seq, &mut buffer);
    seqpacket::send(client, &buffer[..length], None).is_ok()
}

/// A plugin of the deadline class.
fn edf() -> PluginInfo {
    PluginInfo {
        index: 0,
        name: name("edf"),
        kind: name("edf"),
        cpus: CpuSet::first(2),
        band: (0, 0),
        specs: 1,
        out_of_service: false,
    }
}

/// A plugin with fixed priorities.
fn fp() -> PluginInfo {
    PluginInfo { index: 1, name: name("background"), kind: name("fp"), band: (1, 49), ..edf() }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a short name")
}

pub(crate) fn ms(ms: u64) -> Span {
    Span::from_ns(ms * 1_000_000)
}

/// A task with 2 ms every 10 ms.
pub(crate) fn task() -> Task {
    let params = Params {
        period: Some(ms(10)),
        runtime: Some(Work::from_ns(2_000_000)),
        ..Params::default()
    };
    Task { params, ..Task::default() }
}

/// The grant of a plugin of kind `edf` for this task.
pub(crate) fn granted(spec: u64) -> Granted {
    Granted {
        spec: SpecId(spec),
        token: Token([0; 16]),
        plugin: 0,
        cpu: None,
        runtime: Some(Work::from_ns(2_000_000)),
        charge: Charge::ratio(2, 10),
        priority: 0,
        mechanism: Mechanism::DeadlineGlobal,
        granularity: ms(4),
        notes: Notes::default(),
    }
}

/// A listed grant.
pub(crate) fn spec(spec: u64, tid: Option<u32>) -> SpecInfo {
    let policy =
        Policy::Deadline { runtime: Work::from_ns(2_000_000), deadline: ms(10), period: ms(10) };
    let attr = Attr { policy, reset_on_fork: true, cpus: CpuSet::EMPTY };
    SpecInfo {
        overruns: Overruns::default(),
        granted: granted(spec),
        task: task(),
        plugin_name: name("edf"),
        uid: 4_000_000,
        pid: 4711,
        tid,
        attr: tid.map(|_| attr),
        detached: None,
    }
}

/// Counters of a running daemon.
pub(crate) fn status() -> Status {
    Status {
        instance: 0x1234_5678_9abc_def0,
        pid: 815,
        uptime_ns: 3 * 3_600_000_000_000 + 25 * 60_000_000_000,
        plugins: 2,
        sessions: 3,
        specs: 1,
        attached: 1,
        requests: 42,
        refused: 2,
        adopted: 0,
        rules: 5,
        wakeups: 99,
    }
}

/// A refusal with only its code.
pub(crate) fn refusal(code: Code) -> Refusal {
    Refusal {
        code,
        field: Field::Request,
        asked: 0,
        limit: 0,
        errno: 0,
        index: 0,
        rule: None,
        answers: Vec::new(),
    }
}

/// A refusal as a reply.
pub(crate) fn refused(code: Code) -> Reply {
    Reply::Refused(Box::new(refusal(code)))
}
